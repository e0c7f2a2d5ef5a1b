"""Webhooks in the store: where events of a campaign are sent, and what became of each."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from crowdwise.errors import InputError, ParameterError, suggestion
from crowdwise.store import steady_clock
from crowdwise.store.campaign_rows import NotThere
from crowdwise.store.database import count, largest
from crowdwise.store.store_tables import deliveries, events, webhooks

KINDS = ("votes", "undo", "settings", "items", "annotators", "state", "standing", "proof")  # kinds of events
MOST = 20  # webhooks of a campaign
TRIES = 8
FIRST, LONGEST = 5.0, 3600.0  # seconds before the second try, doubled for each further one, and the most
MOST_WAITING = 1_000  # deliveries of a webhook that wait; beyond them the oldest are dropped
HOUR, DAY, WEEK = 3_600.0, 86_400.0, 7 * 86_400.0  # seconds that events of votes, what arrived, and all else are kept
PART = 1_000  # events and deliveries that are forgotten at a time
EACH = 5  # deliveries of one webhook that are claimed at a time: those of others do not wait behind them
CLAIMED = 60.0  # seconds for which a delivery belongs to the process that sends it


def add_webhook(conn: sa.Connection, campaign: str, url: str, kinds: Sequence[str]) -> dict[str, Any]:
    """A new webhook; its secret, which signs what is sent, is shown once."""
    for kind in kinds:
        if kind not in KINDS:
            raise ParameterError(f"There is no event {kind!r}: there are {', '.join(KINDS)}.{suggestion(kind, KINDS)}")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        good = False
    if not good or "@" in url.partition("//")[2].partition("/")[0]:
        raise InputError(f"{url!r} is not a URL for a webhook: expected https://host/path.")
    if count(conn, webhooks, webhooks.c.campaign == campaign) >= MOST:
        raise InputError(f"A campaign has at most {MOST} webhooks: remove one first.")
    row = {
        "id": uuid.uuid4().hex[:16], "campaign": campaign, "url": url, "secret": secrets.token_urlsafe(32),
        "kinds": json.dumps(list(kinds)), "active": True, "last_event": last_event(conn, campaign),
        "created": steady_clock.now(),
    }  # fmt: skip
    conn.execute(webhooks.insert(), row)
    return {"id": row["id"], "url": url, "kinds": list(kinds), "secret": row["secret"]}


def last_event(conn: sa.Connection, campaign: str) -> int:
    """The number of the last event of a campaign."""
    return largest(conn, events.c.id, events.c.campaign == campaign)


def list_webhooks(conn: sa.Connection, campaign: str) -> list[dict[str, Any]]:
    """The webhooks of a campaign, with counts of their deliveries."""
    columns = deliveries.c.webhook, deliveries.c.state
    query = sa.select(*columns, sa.func.count()).group_by(*columns)
    counts = {(hook, state): n for hook, state, n in conn.execute(query)}
    return [
        {
            "id": row.id, "url": row.url, "kinds": json.loads(row.kinds), "created": row.created,
            "deliveries": {state: counts.get((row.id, state), 0) for state in ("waiting", "delivered", "dead")},
        }
        for row in conn.execute(sa.select(webhooks).where(webhooks.c.campaign == campaign).order_by(webhooks.c.created))
    ]  # fmt: skip


def _find(conn: sa.Connection, campaign: str, hook: str) -> None:
    query = sa.select(webhooks.c.id).where(webhooks.c.campaign == campaign, webhooks.c.id == hook)
    if conn.execute(query).first() is None:
        raise NotThere(f"There is no webhook {hook!r}.")


def remove_webhook(conn: sa.Connection, campaign: str, hook: str) -> None:
    _find(conn, campaign, hook)
    conn.execute(webhooks.delete().where(webhooks.c.id == hook))


def list_deliveries(
    conn: sa.Connection, campaign: str, hook: str, state: str | None, limit: int
) -> list[dict[str, Any]]:
    """What was sent, or is to be, the latest first; ``dead`` ones were given up."""
    _find(conn, campaign, hook)
    query = sa.select(deliveries).where(deliveries.c.webhook == hook).order_by(deliveries.c.event.desc()).limit(limit)
    rows = conn.execute(query if state is None else query.where(deliveries.c.state == state))
    shown = ("id", "event", "state", "tries", "due", "error")
    return [{name: row._mapping[name] for name in shown} | {"body": json.loads(row.body)} for row in rows]


def retry_delivery(conn: sa.Connection, campaign: str, hook: str, delivery: str) -> None:
    """Send a delivery that was given up again."""
    _find(conn, campaign, hook)
    where = (deliveries.c.id == delivery, deliveries.c.webhook == hook, deliveries.c.state == "dead")
    again = deliveries.update().where(*where).values(state="waiting", tries=0, due=steady_clock.now())
    if not conn.execute(again).rowcount:
        raise NotThere(f"There is no delivery {delivery!r} that was given up.")


def hooks_behind(conn: sa.Connection) -> list[tuple[str, str]]:
    """Ids of webhooks with new events, and of their campaigns."""
    newest = sa.select(sa.func.max(events.c.id)).where(events.c.campaign == webhooks.c.campaign).scalar_subquery()
    query = sa.select(webhooks.c.id, webhooks.c.campaign).where(webhooks.c.active, newest > webhooks.c.last_event)
    return [(row.id, row.campaign) for row in conn.execute(query)]


def take_events(conn: sa.Connection, hook: str) -> int:
    """Make deliveries of the new events of a webhook; votes that came one after the other are one."""
    row = conn.execute(sa.select(webhooks).where(webhooks.c.id == hook)).first()
    if row is None:
        return 0
    query = sa.select(events).where(events.c.campaign == row.campaign, events.c.id > row.last_event)
    new = conn.execute(query.order_by(events.c.id).limit(1000)).all()
    kinds, bodies = json.loads(row.kinds), list[dict[str, Any]]()
    for event in new:
        if kinds and event.kind not in kinds:
            continue
        data = json.loads(event.data)
        if bodies and event.kind == bodies[-1]["kind"] == "votes":
            data["added"] += bodies.pop()["data"]["added"]
        facts = {"event": event.id, "campaign": row.campaign, "kind": event.kind}
        bodies.append({**facts, "time": event.time, "data": data})
    if bodies:
        now = steady_clock.now()
        waits = {"webhook": hook, "state": "waiting", "tries": 0, "due": now, "error": None, "created": now}
        rows = [{"id": uuid.uuid4().hex[:16], "event": one["event"], "body": json.dumps(one)} | waits for one in bodies]
        conn.execute(deliveries.insert(), rows)
        waiting = sa.select(deliveries.c.id).where(deliveries.c.webhook == hook, deliveries.c.state == "waiting")
        late = waiting.order_by(deliveries.c.event.desc()).offset(MOST_WAITING)  # a receiver that is away
        conn.execute(deliveries.delete().where(deliveries.c.id.in_(late)))
    if new:
        conn.execute(webhooks.update().where(webhooks.c.id == hook).values(last_event=new[-1].id))
    return len(bodies)


def is_due(conn: sa.Connection) -> bool:
    """Whether the time of a delivery has come."""
    waits = sa.select(deliveries.c.id).where(deliveries.c.state == "waiting", deliveries.c.due <= steady_clock.now())
    return conn.execute(waits.limit(1)).first() is not None


def claim_due(conn: sa.Connection, busy: Sequence[str] = (), limit: int = 100) -> list[dict[str, Any]]:
    """Deliveries whose time has come, a few of each webhook not ``busy``; others do not send them for a while."""
    now = steady_clock.now()
    order = deliveries.c.due, deliveries.c.event
    place = sa.func.row_number().over(partition_by=deliveries.c.webhook, order_by=order)
    waits = (deliveries.c.state == "waiting") & (deliveries.c.due <= now) & deliveries.c.webhook.not_in(busy)
    due = sa.select(deliveries.c.id, place.label("place")).where(waits).subquery()
    query = (
        sa.select(deliveries, webhooks.c.url, webhooks.c.secret)
        .join(webhooks, webhooks.c.id == deliveries.c.webhook)
        .join(due, due.c.id == deliveries.c.id)
        .where(due.c.place <= EACH)
        .order_by(due.c.place, deliveries.c.due)
        .limit(limit)
        .with_for_update(of=deliveries, skip_locked=True)  # in PostgreSQL; SQLite has one writer
    )
    claimed = [dict(row._mapping) for row in conn.execute(query)]
    if claimed:
        ids = deliveries.c.id.in_([row["id"] for row in claimed])
        conn.execute(deliveries.update().where(ids).values(due=now + CLAIMED))
    return claimed


def note_result(conn: sa.Connection, id_: str, tries: int, error: str | None) -> None:
    """What became of a delivery: it arrived, is tried again later, or is given up."""
    values: dict[str, Any] = {"tries": tries, "error": error, "state": "delivered"}
    if error is not None:
        values["state"] = "dead" if tries >= TRIES else "waiting"
        values["due"] = steady_clock.now() + min(LONGEST, FIRST * 2.0 ** (tries - 1))
    conn.execute(deliveries.update().where(deliveries.c.id == id_).values(**values))


def drop_old(conn: sa.Connection) -> int:
    """Forget some events and deliveries whose time is over; how many. A few at a time: others write meanwhile."""
    now = steady_clock.now()
    old_events = (events.c.time < now - WEEK) | ((events.c.kind == "votes") & (events.c.time < now - HOUR))
    sent, created = deliveries.c.state, deliveries.c.created
    old_deliveries = ((sent == "delivered") & (created < now - DAY)) | ((sent == "dead") & (created < now - WEEK))
    each = ((events, old_events), (deliveries, old_deliveries))
    parts = [table.delete().where(table.c.id.in_(sa.select(table.c.id).where(old).limit(PART))) for table, old in each]
    return sum(conn.execute(part).rowcount for part in parts)
