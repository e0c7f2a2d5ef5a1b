"""What came out, and what a lead looks at: status, consensus, reliability, agreement, report, curve, flags, pace."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import sqlalchemy as sa
from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse

from crowdwise import registry
from crowdwise.data.sheets import safe_table
from crowdwise.errors import NotFittedError, ParameterError
from crowdwise.report.build import build_report
from crowdwise.report.page import check_extra, page
from crowdwise.server.caller import Lead, Reader, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.store import steady_clock
from crowdwise.store.live_votes import NO_VOTES
from crowdwise.store.point_rows import list_points, skill_history
from crowdwise.store.roster_rows import find_numbers, items_since
from crowdwise.store.store_tables import annotators, items, leases, votes
from crowdwise.store.vote_rows import votes_of_item
from crowdwise.trust.agreement import agreement as agreement_of
from crowdwise.trust.annotators import assess_annotators
from crowdwise.trust.item_review import assess_items
from crowdwise.trust.wording import flag_words

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses(409))


def plain_rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a table as JSON can say them: numbers that are not finite are null."""
    return [
        {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}
        for row in frame.to_dicts()
    ]


def consensus_rows(view: Any, probabilities: bool = False) -> Any:
    """The consensus of a view as a table, one row for each item that was voted on; of classes with the probability of
    each, where that is asked for."""
    if not probabilities:
        return view.consensus.to_frame("items", kind="polars")
    if view.row.form != registry.ONE_CLASS:
        raise ParameterError(f"probabilities: of classes only; this campaign is of {view.row.answer_type}.")
    return view.consensus.to_frame("items", kind="polars", probabilities=True)


def reliability_rows(view: Any) -> list[dict[str, Any]]:
    """The reliability of annotators with intervals."""
    return plain_rows(view.consensus.to_frame("annotators", kind="polars"))


@router.get("/status", tags=["results"])
async def status(service: ServiceOf, caller: Reader, campaign: str) -> dict[str, Any]:
    """Counts, money, the accuracy as it is estimated without truth, how the campaign stands and why it stops."""
    return await service.compute_now(
        campaign, "status", lambda view: {**view.status, "campaign": campaign, "open": view.row.state}, leases=True
    )


@router.get(
    "/consensus", tags=["results"], responses={200: {"content": {"text/csv": {}, "application/vnd.apache.parquet": {}}}}
)
async def consensus(
    service: ServiceOf, caller: Reader, campaign: str,
    format: Literal["json", "csv", "parquet"] = "json",
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0, limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    label: Annotated[str | None, Query(max_length=500, description="Only items with this label.")] = None,
    min_probability: Annotated[float, Query(ge=0, le=1)] = 0.0,
    max_probability: Annotated[float, Query(ge=0, le=1)] = 1.0,
    probabilities: Annotated[bool, Query(description="Of every class.")] = False,
    since: Annotated[int | None, Query(ge=0, lt=2**62, description="Only items with votes after this cursor.")] = None,
) -> Any:  # fmt: skip
    """The consensus label of each item: pages as JSON (``seq`` is the cursor for ``since``), or all as a download."""

    def make(view: Any) -> Any:
        frame = consensus_rows(view, probabilities)
        if since is not None:
            names = service.read(lambda conn: items_since(conn, campaign, since))
            frame = frame.filter(frame["item"].is_in(names))
        if label is not None:
            if "label" not in frame.columns:
                raise ParameterError(f"label: results of {view.row.answer_type} have no label to filter by.")
            frame = frame.filter(frame["label"].cast(str) == label)
        if "probability" in frame.columns and (min_probability > 0.0 or max_probability < 1.0):
            frame = frame.filter(frame["probability"].is_between(min_probability, max_probability))
        if format != "json":
            return download(frame, format, "consensus")
        rows, more = plain_rows(frame[offset : offset + limit]), offset + limit < len(frame)
        return {"items": rows, "total": len(frame), "next": offset + limit if more else None, "seq": view.seq}

    asked = (format, offset, limit, label, min_probability, max_probability, probabilities, since)
    return await service.compute_now(campaign, ("consensus", *asked), make)


def download(frame: Any, format: str, name: str) -> Response:
    """A table as a file; no cell of a CSV file is a formula."""
    if format == "parquet":
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        body, media = buffer.getvalue(), "application/vnd.apache.parquet"
    else:
        body, media = safe_table(frame).write_csv().encode(), "text/csv; charset=utf-8"
    return Response(body, media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}.{format}"'})


@router.get("/reliability", tags=["results"])
async def reliability(service: ServiceOf, caller: Reader, campaign: str) -> list[dict[str, Any]]:
    """The reliability of each annotator, with intervals."""
    return await service.compute_now(campaign, "reliability", reliability_rows)


SANDBOX = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:"
)
"""The report is a page of its own with its script inside: it runs without an origin, so without cookies or the API."""


@router.get("/history", tags=["results"])
async def history(service: ServiceOf, caller: Reader, campaign: str) -> list[dict[str, Any]]:
    """Votes, money and the estimated accuracy over time."""
    return await service.read_now(lambda conn: list_points(conn, campaign), campaign)


@router.get("/annotators/{name}/history", tags=["results", "annotators"])
async def annotator_history(service: ServiceOf, caller: Lead, campaign: str, name: str) -> list[dict[str, Any]]:
    """The accuracy of an annotator over time, with intervals."""

    def read(conn: Any) -> Any:
        find_numbers(conn, annotators, campaign, [name])
        return skill_history(conn, campaign, name)

    return await service.read_now(read, campaign)


@router.get("/flags", tags=["results"])
async def flags(service: ServiceOf, caller: Lead, campaign: str) -> list[dict[str, Any]]:
    """Annotators with accuracy, skill, speed and flags (no better than guessing, drifting, too fast, ...), the most
    suspect first; of classes only."""
    return await service.compute_now(
        campaign, "flags", lambda view: service.read(lambda conn: annotator_flags(conn, view))
    )


@router.get("/review", tags=["results"])
async def review(
    service: ServiceOf, caller: Lead, campaign: str, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[dict[str, Any]]:
    """The items whose label is most in doubt, why, and their votes; of classes only."""
    return await service.compute_now(
        campaign, ("review", limit), lambda view: service.read(lambda conn: items_to_review(conn, view, limit))
    )


@router.get("/throughput", tags=["results"])
async def throughput(service: ServiceOf, caller: Reader, campaign: str) -> dict[str, Any]:
    """Votes of the last minute, hour and day, of each of the last 60 minutes (the latest last), and questions out."""
    return await service.read_now(lambda conn: pace(conn, campaign), campaign)


@router.get("/agreement", tags=["results"])
async def agreement(service: ServiceOf, caller: Reader, campaign: str) -> list[dict[str, Any]]:
    """How much annotators agree, by the coefficients that suit the answers, with intervals."""
    return await service.compute_now(
        campaign, "agreement", lambda view: plain_rows(agreement_of(view.table).to_frame(kind="polars"))
    )


@router.get("/report", tags=["results"], response_class=HTMLResponse)
async def report(service: ServiceOf, caller: Lead, campaign: str) -> HTMLResponse:
    """The report as an HTML page."""

    def make(view: Any) -> str:
        check_extra()
        return page(build_report(view.table, view.consensus, title=view.row.name, all_items=True))

    made = await service.compute_now(campaign, "report", make)
    return HTMLResponse(made, headers={"Content-Security-Policy": SANDBOX})


TIMED = 300_000
"""Up to so many votes the order of votes is looked at (drift)."""
FAST, MIN_TIMED = 3.0, 10
"""Too fast: the median seconds of an answer are less than this part of the crowd's; with so many answers at least."""


def _votes_with_times(conn: sa.Connection, view: Any) -> Any:
    """The votes of a view with their times, where they are not too many."""
    table = view.table
    if view.row.n_answers > TIMED:
        return table
    query = sa.select(votes.c.item, votes.c.annotator, votes.c.time).where(
        votes.c.campaign == view.row.id, votes.c.retracts.is_(None), votes.c.seq <= view.seq
    )
    items_, people = view.online.item_names.names, view.online.annotator_names.names
    when = {(items_[n - 1], people[m - 1]): t for n, m, t in conn.execute(query.order_by(votes.c.seq))}
    pairs = zip(table.items[table.item].tolist(), table.annotators[table.annotator].tolist(), strict=True)
    return replace(table, timestamp=np.array([when[pair] for pair in pairs]))


def _classes_only(view: Any, what: str) -> None:
    if view.row.answer_type != registry.VOTES:
        raise ParameterError(f"{what}: of campaigns of votes (classes) only; this one is of {view.row.answer_type}.")
    if not view.row.n_answers:
        raise NotFittedError(NO_VOTES)


def annotator_flags(conn: sa.Connection, view: Any) -> list[dict[str, Any]]:
    """Annotators with their skill, speed and flags, the most suspect first."""
    _classes_only(view, "flags")
    table = _votes_with_times(conn, view)
    found = assess_annotators(table, view.consensus)
    seconds = median_seconds(conn, view.row.id)
    usual = float(np.median(list(seconds.values()))) if seconds else 0.0
    frame = found.to_frame(kind="polars").to_dicts()
    out = []
    for row, flags in zip(frame, found.flags, strict=True):
        words = [{"kind": flag.kind.value, "words": flag_words(flag)} for flag in flags]
        pace_ = seconds.get(row["annotator"])
        if pace_ is not None and len(seconds) > 2 and pace_ * FAST < usual:
            words.append({"kind": "too-fast", "words": f"answers in {pace_:.1f} s, others in {usual:.1f} s"})
        row |= {"seconds": pace_, "flags": words}
        out.append({name: None if isinstance(x, float) and not np.isfinite(x) else x for name, x in row.items()})
    return sorted(out, key=lambda row: -(row["suspicion"] or 0.0))


def median_seconds(conn: sa.Connection, campaign: str) -> dict[Any, float]:
    """Annotator -> the median of the seconds of the latest answers, of those with enough that have a time."""
    query = (
        sa.select(annotators.c.name, votes.c.seconds)
        .join(annotators, (annotators.c.campaign == votes.c.campaign) & (annotators.c.number == votes.c.annotator))
        .where(votes.c.campaign == campaign, votes.c.seconds.is_not(None))
        .order_by(votes.c.seq.desc())
        .limit(20_000)
    )
    found: dict[str, list[float]] = {}
    for name, seconds in conn.execute(query):
        found.setdefault(name, []).append(seconds)
    return {json.loads(name): float(np.median(x)) for name, x in found.items() if len(x) >= MIN_TIMED}


def items_to_review(conn: sa.Connection, view: Any, limit: int) -> list[dict[str, Any]]:
    """The items whose label is most in doubt, with what is shown of them and their votes."""
    _classes_only(view, "review")
    known = {view.online.item_names.names[n]: json.loads(text) for n, text in view.gold.items()}
    found = assess_items(view.table, view.consensus)
    rows = found.to_frame("items", kind="polars").head(limit + len(known)).to_dicts()
    rows = [row for row in rows if row["item"] not in known][:limit]
    numbers = find_numbers(conn, items, view.row.id, [row["item"] for row in rows])
    kept = ("item", "label", "probability", "votes", "against", "review", "suggested", "why")
    out = []
    for row, number in zip(rows, numbers, strict=True):
        query = sa.select(items.c.payload).where(items.c.campaign == view.row.id, items.c.number == number)
        payload = json.loads(conn.execute(query).scalar_one())
        given = votes_of_item(conn, view.row.id, number)
        out.append({**{name: row[name] for name in kept}, "payload": payload, "given": given})
    return out


def pace(conn: sa.Connection, campaign: str) -> dict[str, Any]:
    """Votes in the last minute, hour and day, votes of each of the last 60 minutes, and the questions that are out."""
    now = steady_clock.now()
    spans = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}
    counted = sa.select(sa.func.count()).where(votes.c.campaign == campaign, votes.c.retracts.is_(None))
    out: dict[str, Any] = {
        name: conn.execute(counted.where(votes.c.time > now - span)).scalar_one() for name, span in spans.items()
    }
    rounds = 0.0 if conn.dialect.name == "sqlite" else 0.5  # SQLite cuts to an integer, PostgreSQL rounds
    minute = sa.cast((now - votes.c.time) / 60.0 - rounds, sa.Integer)
    query = sa.select(minute, sa.func.count()).where(votes.c.campaign == campaign, votes.c.time > now - 3600.0)
    ago = {row[0]: row[1] for row in conn.execute(query.group_by(minute))}
    out["minutes"] = [int(ago.get(59 - i, 0)) for i in range(60)]
    open_ = sa.select(sa.func.count()).where(leases.c.campaign == campaign, leases.c.expires > now)
    return {**out, "out": conn.execute(open_).scalar_one()}
