"""Questions that are out: an item is leased to one annotator at a time, by the key of its row, until it is answered,
released, skipped, or its time is over."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from crowdwise import registry
from crowdwise.store import steady_clock
from crowdwise.store.answer_forms import SIDES
from crowdwise.store.campaign_rows import CampaignRow, find_campaign
from crowdwise.store.database import among, count, insert_new, insert_rows, named_by, of_campaign
from crowdwise.store.store_tables import annotators, answers, items, leases, skips


@dataclass(frozen=True)
class Lease:
    """A question that is out, with the order in which the sides of a pair are shown."""

    item: int
    expires: float
    shown: str | None


@dataclass(frozen=True)
class LeaseAsked:
    """A request for questions: of an annotator, about some items in this order, up to n."""

    annotator: int
    wanted: Sequence[int]
    n: int


def lease_together(conn: sa.Connection, campaign: str, asked: Sequence[LeaseAsked]) -> list[list[Lease]]:
    """The questions of several requests: what each annotator has already, whose time begins again, then new ones: of
    the items that are wanted those that are open, not out, short of the most votes for an item (tests have no such
    limit), and not answered or skipped by the annotator, within the budget and the most votes of the annotator. Which
    side of a pair is shown first is drawn."""
    row, now = find_campaign(conn, campaign), steady_clock.now()
    expires = now + row.settings["patience"]
    conn.execute(_EXPIRED, {"campaign": campaign, "now": now})
    people = list({one.annotator for one in asked})
    names: dict[str, Any] = {"campaign": campaign, "people": people}
    held: dict[int, dict[int, Lease]] = {who: {} for who in people}
    for lease in conn.execute(_OPEN, names):
        held[lease.annotator][lease.item] = Lease(lease.item, expires, lease.shown)
    who = {person.number: person for person in conn.execute(_WHO, names)}
    wanted = list({item for one in asked for item in one.wanted})
    names |= {"items": wanted, "most": row.rule.max_votes}
    free = set(conn.execute(_FREE, names).scalars()) if wanted and row.state == "open" else set()
    if free and row.rule.max_votes is not None:  # questions are chosen ahead: an item may have got its votes since
        free -= set(conn.execute(_FULL, names).scalars())
    done = {tuple(pair) for pair in conn.execute(_DONE, names)} if free else set()
    left = money_left(conn, row)
    out, new = list[list[Lease]](), list[dict[str, Any]]()
    for one in asked:
        mine, person = held[one.annotator], who[one.annotator]
        room = one.n - len(mine) if person.available else 0
        if room > 0 and person.max_votes is not None:
            room = min(room, person.max_votes - votes_given(conn, campaign, one.annotator) - len(mine))
        for item in one.wanted:
            if room <= 0 or person.price > left:
                break
            if item not in free or (item, one.annotator) in done:
                continue
            shown = SIDES[secrets.randbelow(2)] if row.form == registry.PAIR else None
            mine[item] = Lease(item, expires, shown)
            new.append({
                "campaign": campaign, "item": item, "annotator": one.annotator, "price": person.price,
                "given": now + 1e-6 * len(new), "expires": expires, "shown": shown,
            })  # fmt: skip
            free.discard(item)
            left, room = left - person.price, room - 1
        out.append(list(mine.values())[: one.n])
    if any(held.values()):
        conn.execute(_RENEW, {"of": campaign, "people": people, "until": expires})
    insert_rows(conn, leases, new)
    return out


_EXPIRED = leases.delete().where(of_campaign(leases), leases.c.expires <= sa.bindparam("now"))
_OPEN = sa.select(leases).join(items, named_by(items, leases)).order_by(leases.c.given, leases.c.item)
_OPEN = _OPEN.where(of_campaign(leases), among(leases.c.annotator, "people"), items.c.closed.is_(False))
_WHO = sa.select(annotators).where(of_campaign(annotators), among(annotators.c.number, "people"))
_RENEW = leases.update().where(leases.c.campaign == sa.bindparam("of"), among(leases.c.annotator, "people"))
_RENEW = _RENEW.values(expires=sa.bindparam("until"))
_FREE = sa.select(items.c.number).where(
    of_campaign(items), among(items.c.number, "items"), items.c.closed.is_(False),
    ~sa.exists().where(leases.c.campaign == items.c.campaign, leases.c.item == items.c.number),
)  # fmt: skip
_FULL = sa.select(answers.c.item).join(items, named_by(items, answers)).group_by(answers.c.item)
_FULL = _FULL.where(of_campaign(answers), among(answers.c.item, "items"), items.c.gold.is_(None))
_FULL = _FULL.having(sa.func.count() >= sa.bindparam("most"))
_DONE = sa.union_all(*(
    sa.select(table.c.item, table.c.annotator).where(
        of_campaign(table), among(table.c.item, "items"), among(table.c.annotator, "people")
    )
    for table in (answers, skips)
))  # fmt: skip
_AWAITED = sa.select(sa.func.coalesce(sa.func.sum(leases.c.price), 0.0)).where(of_campaign(leases))


def money_left(conn: sa.Connection, row: CampaignRow) -> float:
    """What may still be spent, less what the questions that are out will cost."""
    if row.rule.budget is None:
        return math.inf
    awaited = float(conn.execute(_AWAITED, {"campaign": row.id}).scalar_one())
    return row.rule.budget * (1.0 + 1e-12) - row.spent - awaited


def votes_given(conn: sa.Connection, campaign: str, annotator: int) -> int:
    return count(conn, answers, answers.c.campaign == campaign, answers.c.annotator == annotator)


def release(conn: sa.Connection, campaign: str, annotator: int | None, numbers: Sequence[int] | None) -> int:
    """Take back questions of an annotator, about some items, or both; how many there were."""
    where = [leases.c.campaign == campaign]
    where += [] if annotator is None else [leases.c.annotator == annotator]
    where += [] if numbers is None else [leases.c.item.in_(list(numbers))]
    return int(conn.execute(leases.delete().where(*where)).rowcount)


def skip(conn: sa.Connection, campaign: str, annotator: int, item: int, reason: str, skipped: bool) -> None:
    """Never ask an annotator about an item again, and say why; or ask again."""
    if not skipped:
        where = (skips.c.campaign == campaign, skips.c.item == item, skips.c.annotator == annotator)
        conn.execute(skips.delete().where(*where))
        return
    row = {"campaign": campaign, "item": item, "annotator": annotator, "reason": reason, "time": steady_clock.now()}
    insert_new(conn, skips, [row])
    release(conn, campaign, annotator, [item])
