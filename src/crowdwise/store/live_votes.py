"""The model of a campaign of classes in memory: a stream that follows the votes in the store, as in a campaign folder
(:mod:`crowdwise.store.vote_stream`). A vote that is taken back after its block was learned makes it start again from
the first vote, in the background. Of items, annotators and votes only what is new is read.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from crowdwise.active.end_state import People, Situation, Standing, find_situation, find_standing, status_of
from crowdwise.active.stopping import Proof
from crowdwise.active.strategies import Strategy
from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import NotFittedError, ReadError
from crowdwise.online.stream import Online
from crowdwise.online.vote_store import Names, grown
from crowdwise.store import steady_clock
from crowdwise.store.campaign_rows import CampaignRow
from crowdwise.store.store_tables import annotators, answers, items, leases, skips, votes
from crowdwise.store.vote_stream import BLOCK, CHUNK, Snapshots, VoteStream


class CodedVote(NamedTuple):
    """A vote in codes, with its answer as JSON text; ``retracts`` is the number of the vote that it takes back."""

    seq: int
    item: int
    annotator: int
    answer: str
    retracts: int | None
    shown: str | None = None


OF_ITEM, OF_PERSON = ("gold", "closed", "priority", "settled"), ("price", "available", "max_votes")


class LiveNames:
    """The items and annotators of a campaign. The code of an item or annotator is its number less one."""

    def __init__(self) -> None:
        self.items, self.annotators = Names(), Names()
        self.version = 0
        self.gold: dict[int, str] = {}  # code of an item -> its known answer
        self.settled: dict[int, str] = {}  # code of an item -> what a second look says of it: no model learns from that
        self._closed = np.zeros(0, dtype=bool)
        self._priority = np.ones(0)
        self._people = np.zeros((0, 3))

    def follow(self, conn: sa.Connection, row: CampaignRow) -> bool:
        """Read what changed since; whether gold is among it."""
        if row.version == self.version:
            return False
        golden = self._read_items(conn, row)
        for code, price, available, most in self._changed(conn, row, annotators, self.annotators, *OF_PERSON):
            self._people = grown(self._people, code + 1)
            self._people[code] = price, available, np.nan if most is None else most
        self.version = row.version
        return golden

    def _changed(
        self, conn: sa.Connection, row: CampaignRow, table: sa.Table, names: Names, *facts: str
    ) -> Iterator[tuple[Any, ...]]:
        """Codes and facts of what changed since; names that are new are added."""
        columns = [table.c[name] for name in ("number", "name", *facts)]
        query = sa.select(*columns).where(table.c.campaign == row.id, table.c.version > self.version)
        for number, name, *values in conn.execute(query.order_by(table.c.number)):
            if number > len(names) + 1:
                raise ReadError(f"The {table.name} of campaign {row.id} are not numbered one after the other.")
            if number > len(names):
                names.extend([json.loads(name)])
            yield number - 1, *values

    def _read_items(self, conn: sa.Connection, row: CampaignRow) -> bool:
        golden = False
        for code, gold, closed, priority, settled in self._changed(conn, row, items, self.items, *OF_ITEM):
            golden |= self.gold.get(code) != gold
            for known, text in ((self.gold, gold), (self.settled, settled)):
                if text is None:
                    known.pop(code, None)
                else:
                    known[code] = text
            self._closed, self._priority = grown(self._closed, code + 1), grown(self._priority, code + 1)
            self._closed[code], self._priority[code] = closed, priority
        return golden

    @property
    def closed(self) -> npt.NDArray[np.bool_]:
        """N: items that nothing more is asked about: they were closed, or settled by a second look."""
        out = self._closed[: len(self.items)].copy()
        out[list(self.settled)] = True
        return out

    def settled_answers(self) -> dict[Any, Any]:
        """Item -> what a second look says of it."""
        return {self.items.names[n]: json.loads(text) for n, text in self.settled.items()}

    @property
    def priority(self) -> npt.NDArray[np.float64]:
        return self._priority[: len(self.items)].copy()

    def people(self, conn: sa.Connection, campaign: str) -> People:
        """The annotators, with how many votes each has given where some may not give any number."""
        price, available, most = self._people[: len(self.annotators)].T.copy()
        n_votes = np.zeros(len(price))
        if not np.isnan(most).all():
            query = sa.select(answers.c.annotator, sa.func.count()).where(answers.c.campaign == campaign)
            for number, count in conn.execute(query.group_by(answers.c.annotator)):
                n_votes[number - 1] = count
        return People(price, available.astype(bool), most, n_votes)


def read_pairs(conn: sa.Connection, table: sa.Table, campaign: str, *where: Any) -> tuple[Ints, Ints]:
    """Codes of items and annotators in a table of pairs."""
    query = sa.select(table.c.item, table.c.annotator).where(table.c.campaign == campaign, *where)
    pairs = np.array([tuple(pair) for pair in conn.execute(query)], dtype=np.int64).reshape(-1, 2) - 1
    return pairs[:, 0], pairs[:, 1]


def read_open(conn: sa.Connection, campaign: str, now: float) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints], float]:
    """Pairs that are out, pairs that were skipped, and what the first will cost."""
    valid = leases.c.expires > now
    cost = sa.select(sa.func.coalesce(sa.func.sum(leases.c.price), 0.0)).where(leases.c.campaign == campaign, valid)
    asked = read_pairs(conn, leases, campaign, valid)
    return asked, read_pairs(conn, skips, campaign), float(conn.execute(cost).scalar_one())


def read_votes(conn: sa.Connection, campaign: str, after: int, upto: int) -> list[CodedVote]:
    """The next votes in their order; a number that is missing is an error, since followers must not skip a vote."""
    columns = (votes.c.seq, votes.c.item - 1, votes.c.annotator - 1, votes.c.answer, votes.c.retracts, votes.c.shown)
    query = sa.select(*columns).where(votes.c.campaign == campaign, votes.c.seq > after, votes.c.seq <= upto)
    coded = [CodedVote(*row) for row in conn.execute(query.order_by(votes.c.seq).limit(CHUNK))]
    if not coded or coded[0].seq != after + 1 or coded[-1].seq != after + len(coded):
        raise ReadError(f"Votes of campaign {campaign} after number {after} are missing from the store.")
    return coded


NO_VOTES = "No votes have come in yet."
SNAPSHOT = 20_000  # after so many votes, and a quarter more than in the last one, a snapshot of the stream is saved
REBUILD_SHARE = 10.0  # after a rebuild that took t seconds the next one waits this many times t


@dataclass(frozen=True, eq=False)
class VotesView:
    """A campaign of classes at a moment: nothing in it changes."""

    row: CampaignRow
    online: Online
    situation: Situation
    priority: Floats
    gold: dict[int, str]
    settled: dict[Any, Any]  # item -> what a second look says of it

    @property
    def seq(self) -> int:
        return self.row.last_vote

    @cached_property
    def standing(self) -> Standing:
        return find_standing(self.row.rule, self.situation, self.online)

    @cached_property
    def status(self) -> dict[str, Any]:
        """Counts, money, the estimated accuracy, and its status."""
        counts = {"votes": self.row.n_answers, "method": self.row.settings["method"], "seq": self.seq}
        return counts | status_of(self.row.rule, self.situation, self.online)

    @cached_property
    def consensus(self) -> Consensus:
        if not self.online.store.n_votes:
            raise NotFittedError(NO_VOTES)
        return self.online.consensus()

    @cached_property
    def table(self) -> Any:
        """The votes, as the library has them."""
        if not self.online.store.n_votes:
            raise NotFittedError(NO_VOTES)
        return self.online.votes()

    @cached_property
    def strategy(self) -> Strategy:
        """For the questions of one annotator: tests are mixed in elsewhere."""
        return replace(self.row.strategy, gold_rate=0.0, spread=0.0, votes_per_item=1)

    def why_none(self, annotator: int) -> str | None:
        """Why an annotator (a code) gets no question now."""
        if annotator >= len(self.situation.state.available):
            return None
        return self.situation.why_not(annotator, self.row.rule, self.standing.why)

    def propose(self, annotator: int, n: int, draw: int) -> list[int]:
        """Codes of items to ask an annotator about, best first, with gold ones among them at the set rate."""
        state = self.situation.state
        if self.standing.state != "running" or annotator >= len(state.available) or not state.available[annotator]:
            return []
        rng = np.random.default_rng([self.row.settings["seed"], annotator, draw])
        only = np.arange(len(state.available)) == annotator
        weight = self.priority if (self.priority != 1.0).any() else None
        codes = self.strategy.propose(state.replace(available=only, weight=weight), n, rng).item.tolist()
        voted = self.situation.state.voted
        done = set(voted.item[voted.annotator == annotator].tolist()) if self.gold else set()
        return mixed(self.row, codes, self.gold, done, self.situation.shut, rng)


def mixed(
    row: CampaignRow, codes: list[int], gold: Mapping[int, str], done: Container[int], shut: Any,
    rng: np.random.Generator,
) -> list[int]:  # fmt: skip
    """Questions with tests (items with a known answer that were not ``done``) among them: those of practice come first,
    then each place is a test with probability ``gold_rate``."""
    rate, practice = row.settings["gold_rate"], row.settings["practice"]
    if not gold or not (rate or practice):
        return codes
    tests = [code for code in gold if code not in done and not shut[code]]
    rng.shuffle(tests)
    first = max(0, practice - sum(code in done for code in gold))
    out, tests = tests[:first], tests[first:]
    for code in codes:
        while tests and rng.random() < rate:
            out.append(tests.pop())
        out.append(code)
    return out


class LiveVotes:
    """The stream of a campaign of classes. One thread at a time calls :meth:`follow`."""

    def __init__(self, snapshots: Path | None = None) -> None:
        self.names = LiveNames()
        self.folder = snapshots
        """Where snapshots of the stream are, so that it need not be learned from the first vote after a start."""
        self.stream: VoteStream | None = None
        self.stale = False  # whether a vote that was learned for good was taken back since
        self._rebuilt = (0.0, 0.0)  # when it last began again, and how long that took

    def follow(self, conn: sa.Connection, row: CampaignRow) -> VotesView:
        """The campaign as it is now."""
        names, began = self.names, time.perf_counter()
        golden = names.follow(conn, row)
        code = {json.dumps(c): k for k, c in enumerate(row.classes)}
        gold = {n: code[text] for n, text in names.gold.items()}
        stream, from_start = self.stream, self.stream is None
        if stream is None:
            snapshots = None if self.folder is None else Snapshots(self.folder, row.model())
            make = partial(row.strategy.stream, row.model(), row.classes)
            stream = self.stream = VoteStream(make, names.items, names.annotators, snapshots)
            stream.load(lambda number: self._notes(conn, row, number, row.last_vote))
        rested = time.monotonic() - self._rebuilt[0] > REBUILD_SHARE * self._rebuilt[1]
        if ((golden or from_start) and not stream.knows(gold)) or (self.stale and rested):
            stream.restart()
            self.stale, from_start = False, True
        gone = self._retracted(conn, row.id, row.last_vote) if from_start else None
        while stream.read < row.last_vote:
            self._take(read_votes(conn, row.id, stream.read, row.last_vote), stream, code, gold, gone)
        if from_start:
            self._rebuilt = (time.monotonic(), time.perf_counter() - began)
        online = stream.now(gold)
        asked, skipped, cost = read_open(conn, row.id, steady_clock.now())
        known = np.zeros(len(names.items), dtype=bool)
        known[list(gold)] = True
        situation = find_situation(
            online, row.rule, names.people(conn, row.id), names.closed, known, asked, skipped, (row.spent, cost),
            Proof.of(row.settings.get("proof")), row.last_vote,
        )  # fmt: skip
        return VotesView(row, online, situation, names.priority, dict(names.gold), names.settled_answers())

    def _take(
        self, coded: list[CodedVote], stream: VoteStream, code: dict[str, int], gold: dict[int, int],
        gone: frozenset[int] | None,
    ) -> None:  # fmt: skip
        """Learn from votes; ``gone``: the numbers of all that were taken back, where none was learned before."""
        if gone is None:
            gone = frozenset(vote.retracts for vote in coded if vote.retracts is not None)
            self.stale |= any(number <= stream.learned for number in gone)
        rows = [(vote.seq, vote.item, vote.annotator, code[vote.answer]) for vote in coded if vote.retracts is None]
        stream.take(np.array(rows, dtype=np.int64).reshape(-1, 4), coded[-1].seq, gold, gone)

    @property
    def snapshot_is_due(self) -> bool:
        """Whether enough was learned since the last snapshot."""
        stream = self.stream
        if stream is None or stream.snapshots is None or self.stale:
            return False
        return stream.learned >= SNAPSHOT + 1.25 * stream.saved

    def snapshot(self, conn: sa.Connection, row: CampaignRow) -> Callable[[], None]:
        """What saves the stream as it is now; it may be called later."""
        stream = self.stream
        assert stream is not None and stream.snapshots is not None
        stream.saved = stream.learned
        notes = self._notes(conn, row, stream.learned, stream.read)
        return partial(stream.snapshots.save, stream.base.copy(), stream.learned, notes)

    def _notes(self, conn: sa.Connection, row: CampaignRow, number: int, until: int) -> dict[str, Any]:
        """What a snapshot says of the votes up to a number: which model has seen them, which was the last, and which of
        them were taken back by votes up to another number."""
        query = sa.select(votes.c.vote_id, votes.c.time).where(votes.c.campaign == row.id, votes.c.seq == number)
        last = conn.execute(query).first()
        gone = sorted(seq for seq in self._retracted(conn, row.id, until) if seq <= number)
        settings = {name: row.settings[name] for name in ("method", "params", "strategy")}
        digest = hashlib.sha256(json.dumps([settings, row.classes, gone], sort_keys=True).encode()).hexdigest()
        return {"campaign": row.id, "last": None if last is None else [*last], "digest": digest, "block": BLOCK}

    @staticmethod
    def _retracted(conn: sa.Connection, campaign: str, until: int) -> frozenset[int]:
        """The numbers of votes that were taken back by votes up to a number."""
        mine = (votes.c.campaign == campaign) & (votes.c.seq <= until)
        return frozenset(conn.execute(sa.select(votes.c.retracts).where(mine, votes.c.retracts.is_not(None))).scalars())
