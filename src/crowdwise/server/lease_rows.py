"""Questions that are out: an item is leased to one annotator at a time, by the key of its row, until it is answered,
released, skipped, or its time is over."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from crowdwise.server.answer_codes import SIDES
from crowdwise.server.campaign_rows import CampaignRow
from crowdwise.server.store_tables import annotators, answers, items, leases, skips

__all__ = ["Lease", "ask_again", "awaited", "drop_expired", "lease_items", "open_leases", "release", "skip"]


@dataclass(frozen=True)
class Lease:
    """A question that is out, with the order in which the sides of a pair are shown."""

    item: int
    expires: float
    shown: str | None


def open_leases(conn: sa.Connection, row: CampaignRow, annotator: int, limit: int) -> list[Lease]:
    """The questions that an annotator has, the oldest first; their time begins again."""
    now, patience = time.time(), row.settings["patience"]
    found = conn.execute(_OPEN, {"campaign": row.id, "who": annotator, "now": now, "most": limit}).all()
    for one in found:
        conn.execute(_RENEW, {"c": row.id, "n": one.item, "expires": now + patience})
    return [Lease(one.item, now + patience, one.shown) for one in found]


_OPEN = (
    sa.select(leases.c.item, leases.c.shown)
    .join(items, (items.c.campaign == leases.c.campaign) & (items.c.number == leases.c.item))
    .where(
        leases.c.campaign == sa.bindparam("campaign"), leases.c.annotator == sa.bindparam("who"),
        leases.c.expires > sa.bindparam("now"), items.c.closed.is_(False),
    )
    .order_by(leases.c.given, leases.c.item)
    .limit(sa.bindparam("most"))
)  # fmt: skip
_RENEW = (
    leases.update()
    .where(leases.c.campaign == sa.bindparam("c"), leases.c.item == sa.bindparam("n"))
    .values(expires=sa.bindparam("expires"))
)


def drop_expired(conn: sa.Connection, campaign: str) -> None:
    conn.execute(leases.delete().where(leases.c.campaign == campaign, leases.c.expires <= time.time()))


def awaited(conn: sa.Connection, campaign: str) -> float:
    """What the questions that are out will cost."""
    query = sa.select(sa.func.coalesce(sa.func.sum(leases.c.price), 0.0)).where(leases.c.campaign == campaign)
    return float(conn.execute(query).scalar_one())


def lease_items(conn: sa.Connection, row: CampaignRow, annotator: int, wanted: Sequence[int], n: int) -> list[Lease]:
    """Lease up to n of some items, in their order: those that are open, not out, and not answered or skipped by the
    annotator, within the budget and the most votes of the annotator. Which side of a pair is shown first is drawn."""
    who = conn.execute(
        sa.select(annotators.c.price, annotators.c.available, annotators.c.max_votes).where(
            annotators.c.campaign == row.id, annotators.c.number == annotator
        )
    ).one()
    if not who.available or not wanted or n < 1 or row.state != "open":
        return []
    drop_expired(conn, row.id)
    n = min(n, _affordable(conn, row, annotator, who.price, who.max_votes))
    free = set(conn.execute(_FREE, {"campaign": row.id, "items": list(wanted), "who": annotator}).scalars())
    now = time.time()
    chosen = [item for item in dict.fromkeys(wanted) if item in free][: max(n, 0)]
    if not chosen:
        return []
    expires = now + row.settings["patience"]
    paired = row.answer_type == "comparisons"
    shown = {item: SIDES[secrets.randbelow(2)] if paired else None for item in chosen}
    conn.execute(
        leases.insert(),
        [
            {
                "campaign": row.id, "item": item, "annotator": annotator, "price": who.price, "given": now + 1e-6 * i,
                "expires": expires, "shown": shown[item],
            }
            for i, item in enumerate(chosen)
        ],
    )  # fmt: skip
    return [Lease(item, expires, shown[item]) for item in chosen]


_FREE = sa.select(items.c.number).where(
    items.c.campaign == sa.bindparam("campaign"),
    items.c.number.in_(sa.bindparam("items", expanding=True)),
    items.c.closed.is_(False),
    ~sa.exists().where(leases.c.campaign == items.c.campaign, leases.c.item == items.c.number),
    *(
        ~sa.exists().where(
            table.c.campaign == items.c.campaign,
            table.c.item == items.c.number,
            table.c.annotator == sa.bindparam("who"),
        )
        for table in (answers, skips)
    ),
)


def _affordable(conn: sa.Connection, row: CampaignRow, annotator: int, price: float, max_votes: int | None) -> int:
    """How many more questions an annotator may get."""
    most = 1 << 30
    if row.rule.budget is not None:
        left = row.rule.budget * (1.0 + 1e-12) - row.spent - awaited(conn, row.id)
        most = min(most, int(left // price))
    if max_votes is not None:
        given = 0
        for table in (answers, leases):
            query = sa.select(sa.func.count()).where(table.c.campaign == row.id, table.c.annotator == annotator)
            given += int(conn.execute(query).scalar_one())
        most = min(most, max_votes - given)
    return most


def release(conn: sa.Connection, campaign: str, annotator: int | None, numbers: Sequence[int] | None) -> int:
    """Take back questions of an annotator, about some items, or both; how many there were."""
    where = [leases.c.campaign == campaign]
    where += [] if annotator is None else [leases.c.annotator == annotator]
    where += [] if numbers is None else [leases.c.item.in_(list(numbers))]
    return int(conn.execute(leases.delete().where(*where)).rowcount)


def skip(conn: sa.Connection, campaign: str, annotator: int, item: int, reason: str) -> None:
    """Never ask an annotator about an item again, and say why."""
    there = sa.select(skips.c.item).where(
        skips.c.campaign == campaign, skips.c.item == item, skips.c.annotator == annotator
    )
    if conn.execute(there).first() is None:
        row = {"campaign": campaign, "item": item, "annotator": annotator, "reason": reason, "time": time.time()}
        conn.execute(skips.insert(), row)
    release(conn, campaign, annotator, [item])


def ask_again(conn: sa.Connection, campaign: str, annotator: int, item: int) -> None:
    """An annotator may be asked about an item that was skipped."""
    where = (skips.c.campaign == campaign, skips.c.item == item, skips.c.annotator == annotator)
    conn.execute(skips.delete().where(*where))
