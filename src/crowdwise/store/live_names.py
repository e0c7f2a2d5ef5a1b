"""Items, annotators and votes of a campaign in memory, in codes, kept up with the store: only what is new is read."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from crowdwise.active.end_state import People
from crowdwise.core.numerics import Ints
from crowdwise.errors import ReadError
from crowdwise.online.vote_store import Names, grown
from crowdwise.store.campaign_rows import CampaignRow
from crowdwise.store.store_tables import annotators, answers, items, leases, skips, votes
from crowdwise.store.vote_stream import CHUNK


class CodedVote(NamedTuple):
    """A vote in codes, with its answer as JSON text; ``retracts`` is the number of the vote that it takes back."""

    seq: int
    item: int
    annotator: int
    answer: str
    retracts: int | None


class LiveNames:
    """The items and annotators of a campaign. The code of an item or annotator is its number less one."""

    def __init__(self) -> None:
        self.items, self.annotators = Names(), Names()
        self.version = 0
        self.gold: dict[int, str] = {}
        """Code of an item -> its known answer."""
        self._closed = np.zeros(0, dtype=bool)
        self._priority = np.ones(0)
        self._people = np.zeros((0, 3))

    def follow(self, conn: sa.Connection, row: CampaignRow) -> bool:
        """Read what changed since; whether gold is among it."""
        if row.version == self.version:
            return False
        golden = self._read_items(conn, row)
        self._read_annotators(conn, row)
        self.version = row.version
        return golden

    def _read_items(self, conn: sa.Connection, row: CampaignRow) -> bool:
        columns = (items.c.number, items.c.name, items.c.gold, items.c.closed, items.c.priority)
        query = sa.select(*columns).where(items.c.campaign == row.id, items.c.version > self.version)
        golden = False
        for number, name, gold, closed, priority in conn.execute(query.order_by(items.c.number)):
            code = number - 1
            if code == len(self.items):
                self.items.extend([json.loads(name)])
                self._closed = grown(self._closed, number, False)
                self._priority = grown(self._priority, number, 1.0)
            elif code > len(self.items):
                raise ReadError(f"The items of campaign {row.id} are not numbered one after the other.")
            golden |= self.gold.get(code) != gold
            if gold is None:
                self.gold.pop(code, None)
            else:
                self.gold[code] = gold
            self._closed[code], self._priority[code] = closed, priority
        return golden

    def _read_annotators(self, conn: sa.Connection, row: CampaignRow) -> None:
        columns = (annotators.c.number, annotators.c.name, annotators.c.price, annotators.c.available)
        query = sa.select(*columns, annotators.c.max_votes).where(
            annotators.c.campaign == row.id, annotators.c.version > self.version
        )
        for number, name, price, available, most in conn.execute(query.order_by(annotators.c.number)):
            if number - 1 == len(self.annotators):
                self.annotators.extend([json.loads(name)])
                self._people = grown(self._people, number)
            elif number - 1 > len(self.annotators):
                raise ReadError(f"The annotators of campaign {row.id} are not numbered one after the other.")
            self._people[number - 1] = price, available, np.nan if most is None else most

    @property
    def closed(self) -> npt.NDArray[np.bool_]:
        return self._closed[: len(self.items)].copy()

    @property
    def priority(self) -> npt.NDArray[np.float64]:
        return self._priority[: len(self.items)].copy()

    def people(self, conn: sa.Connection, campaign: str) -> People:
        """The annotators, with how many votes each has given where some may not give any number."""
        price, available, most = self._people[: len(self.annotators)].T.copy()
        given = np.zeros(len(price))
        if not np.isnan(most).all():
            query = sa.select(answers.c.annotator, sa.func.count()).where(answers.c.campaign == campaign)
            for number, count in conn.execute(query.group_by(answers.c.annotator)):
                given[number - 1] = count
        return People(price, available.astype(bool), most, given)


def read_pairs(conn: sa.Connection, table: sa.Table, campaign: str, *where: Any) -> tuple[Ints, Ints]:
    """Codes of items and annotators in a table of pairs."""
    query = sa.select(table.c.item, table.c.annotator).where(table.c.campaign == campaign, *where)
    found = np.array([tuple(pair) for pair in conn.execute(query)], dtype=np.int64).reshape(-1, 2) - 1
    return found[:, 0], found[:, 1]


def read_open(conn: sa.Connection, campaign: str, now: float) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints], float]:
    """Pairs that are out, pairs that were skipped, and what the first will cost."""
    valid = leases.c.expires > now
    cost = sa.select(sa.func.coalesce(sa.func.sum(leases.c.price), 0.0)).where(leases.c.campaign == campaign, valid)
    asked = read_pairs(conn, leases, campaign, valid)
    return asked, read_pairs(conn, skips, campaign), float(conn.execute(cost).scalar_one())


def read_votes(conn: sa.Connection, campaign: str, after: int, upto: int) -> list[CodedVote]:
    """The next votes in their order; a number that is missing is an error, since followers must not skip a vote."""
    columns = (votes.c.seq, votes.c.item - 1, votes.c.annotator - 1, votes.c.answer, votes.c.retracts)
    query = sa.select(*columns).where(votes.c.campaign == campaign, votes.c.seq > after, votes.c.seq <= upto)
    found = [CodedVote(*row) for row in conn.execute(query.order_by(votes.c.seq).limit(CHUNK))]
    if found and (found[0].seq != after + 1 or found[-1].seq != after + len(found)):
        raise ReadError(f"Votes of campaign {campaign} after number {after} are missing from the store.")
    return found
