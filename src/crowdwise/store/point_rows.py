"""The curve of a campaign: votes, money, accuracy and the skills of annotators over time."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import sqlalchemy as sa

from crowdwise.store import steady_clock
from crowdwise.store.campaign_rows import add_event, find_campaign
from crowdwise.store.database import insert_new
from crowdwise.store.store_tables import points

MOST = 500
"""Points that are handed over; where there are more, every so many."""
SHOWN = ("annotator", "votes", "accuracy", "accuracy_low", "accuracy_high")
SKILLS = 1.1
"""Skills are noted when the votes have grown by this factor."""


def point_of(view: Any, noted: int) -> dict[str, Any]:
    """The point of a view; skills are in it where the votes have grown by ``SKILLS`` since they were last."""
    status = view.status
    known = status["accuracy_known"]
    return {
        "campaign": view.row.id, "seq": view.seq, "time": steady_clock.now(), "votes": status["votes"],
        "spent": status["spent"], "state": status["state"], "accuracy": status["accuracy"] if known else None,
        "low": status["accuracy_low"] if known else None, "high": status["accuracy_high"] if known else None,
        "skills": _skills(view) if status["votes"] >= SKILLS * noted else None,
    }  # fmt: skip


def _skills(view: Any) -> str | None:
    """Annotator -> votes, accuracy and its interval, as JSON; nothing where annotators have no accuracy."""
    if not view.row.n_answers:
        return None
    frame = view.consensus.to_frame("annotators", kind="polars")
    if "accuracy" not in frame.columns:
        return None
    rows = zip(*(frame[name].to_list() for name in SHOWN), strict=True)
    return json.dumps(
        [[name, votes, *(None if math.isnan(x) else round(x, 4) for x in rest)] for name, votes, *rest in rows]
    )


def add_point(conn: sa.Connection, made: dict[str, Any], standing: dict[str, Any]) -> None:
    """Write a point; another worker may have written it already. ``NotThere`` where the campaign is gone."""
    find_campaign(conn, made["campaign"])
    last = conn.execute(
        sa.select(points.c.state, points.c.seq)
        .where(points.c.campaign == made["campaign"])
        .order_by(points.c.seq.desc())
    ).first()
    if last is not None and last.seq >= made["seq"]:
        return
    insert_new(conn, points, [made])
    _thin(conn, made["campaign"])
    if (last.state if last is not None else "running") != made["state"]:
        add_event(conn, made["campaign"], "standing", standing)


def _thin(conn: sa.Connection, campaign: str) -> None:
    """Where there are too many points, keep half of them, evenly over the votes, and those with skills: a curve of a
    year has no more points than one of a day."""
    plain = (points.c.campaign == campaign, points.c.skills.is_(None))
    if conn.execute(sa.select(sa.func.count()).where(*plain)).scalar_one() < 4 * MOST:
        return
    there = np.array(conn.execute(sa.select(points.c.seq).where(*plain).order_by(points.c.seq)).scalars().all())
    kept = np.searchsorted(there, np.linspace(there[0], there[-1], 2 * MOST))
    gone = [{"at": int(seq)} for seq in np.delete(there, kept)]
    conn.execute(points.delete().where(*plain, points.c.seq == sa.bindparam("at")), gone)


def skills_noted(conn: sa.Connection, campaign: str) -> int:
    """How many votes there were when skills were last noted."""
    query = sa.select(sa.func.max(points.c.votes)).where(points.c.campaign == campaign, points.c.skills.is_not(None))
    return int(conn.execute(query).scalar() or 0)


def list_points(conn: sa.Connection, campaign: str) -> list[dict[str, Any]]:
    """The curve, of which at most ``MOST`` points, the first and the last among them."""
    columns = [column for column in points.c if column.name not in ("campaign", "skills")]
    found = conn.execute(sa.select(*columns).where(points.c.campaign == campaign).order_by(points.c.seq)).all()
    step = max(1, math.ceil(len(found) / MOST))
    rows = found[::step]
    return [dict(row._mapping) for row in [*rows, *([] if not found or rows[-1] is found[-1] else [found[-1]])]]


def skill_history(conn: sa.Connection, campaign: str, annotator: Any) -> list[dict[str, Any]]:
    """The accuracy of an annotator over time."""
    query = sa.select(points.c.time, points.c.skills).where(points.c.campaign == campaign, points.c.skills.is_not(None))
    return [
        {"time": row.time, **dict(zip(SHOWN, one, strict=True))}
        for row in conn.execute(query.order_by(points.c.seq))
        for one in json.loads(row.skills)
        if str(one[0]) == str(annotator)
    ]
