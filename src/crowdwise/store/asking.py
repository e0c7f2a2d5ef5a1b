"""Who is asked what next in a campaign: the state of its stream, less what is out, skipped, finished or too dear."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from crowdwise.active.end_state import People, Situation, find_situation
from crowdwise.active.fair_assignment import propose_fairly
from crowdwise.active.state import Proposal, State
from crowdwise.active.stopping import Proof
from crowdwise.core.numerics import Ints
from crowdwise.online.stream import Online
from crowdwise.store.journal import Journal
from crowdwise.store.roster import Roster
from crowdwise.store.settings import Settings

TICK = 1e-6  # seconds between the questions of one batch, so that they keep their order


@dataclass(frozen=True)
class Question:
    """An annotator to be asked about an item."""

    item: Any
    annotator: Any
    price: float
    value: float
    """The expected value of the vote, in the strategy's own units."""


class Asking:
    """The questions of a campaign. Methods that change something belong inside :meth:`Journal.writing`."""

    def __init__(self, journal: Journal, roster: Roster) -> None:
        self.journal, self.roster = journal, roster

    def situation(self, online: Online, settings: Settings) -> Situation:
        """Eligible (item, annotator) pairs. Open questions count as if they were answered."""
        self.roster.refresh()
        N, M = len(self.roster.items), len(self.roster.annotators)
        people = self.journal.read("SELECT price, available, max_votes FROM annotators ORDER BY id LIMIT ?", (M,))
        with self.journal.decoding():
            price, available, max_votes = np.array(people, dtype=np.float64).reshape(-1, 3).T
            asked, skipped = self._pairs("asked"), self._pairs("skipped")
            if any((item >= N).any() or (who >= M).any() for item, who in (asked, skipped)):
                raise ValueError("a question is of an item or an annotator that is not there")
            counts = {}
            if not np.isnan(max_votes).all():
                counts = dict(self.journal.read("SELECT annotator - 1, count(*) FROM votes GROUP BY annotator"))
            votes_of = np.array([counts.get(m, 0) for m in range(M)], dtype=np.float64)
            shut, gold = np.zeros(N, dtype=bool), np.zeros(N, dtype=bool)
            shut[list(self.roster.items_with("closed"))] = True
            gold[list(self.roster.items_with("gold"))] = True
            proof = Proof.of(self.journal.facts().get("proof"))
        people_now = People(price, available.astype(bool), max_votes, votes_of)
        money = self.spent(), self.spent("asked")
        at = self.journal.count("votes")
        return find_situation(online, settings.rule, people_now, shut, gold, asked, skipped, money, proof, at)

    def spent(self, table: Literal["votes", "asked"] = "votes") -> float:
        """The price of all votes, or of all open questions."""
        return float(self.journal.read(f"SELECT coalesce(sum(price), 0) FROM {table}")[0][0])

    def propose(
        self, now: Situation, settings: Settings, online: Online, n: int, annotator: int | None = None
    ) -> list[Question]:
        """The next questions, for anybody or for one annotator (a code); they are noted as handed out."""
        state, left = now.state, np.inf
        if settings.rule.budget is not None:
            left = (settings.rule.budget - now.spent - now.awaited) * (1.0 + 1e-12)
        asked = state.available & (state.price <= left)
        asked &= annotator is None or np.arange(len(asked)) == annotator
        if not asked.any():
            return []
        proposal = self._choose(state.replace(available=asked), settings, online, n)
        proposal = proposal[: int(np.searchsorted(np.cumsum(proposal.price), left, "right"))]
        self.hand_out(proposal)
        self.journal.note(proposals=settings.proposals + 1)
        return self._named(state, proposal)

    def _choose(self, state: State, settings: Settings, online: Online, n: int) -> Proposal:
        """The proposal of the strategy, under the bound on the gap between groups where there is one."""
        seed = [settings.seed, settings.proposals]
        groups = {} if settings.gap is None else self.roster.items_with("grp")
        with self.journal.decoding():
            groups = {code: json.loads(text) for code, text in groups.items()}
        if settings.gap is None or len(set(groups.values())) < 2:
            return settings.strategy.propose(state, n, np.random.default_rng(seed))
        group = np.array([groups.get(code) for code in range(len(state.item_names))], dtype=object)
        random_state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        state = state.replace(group=group).by_group(online)
        return propose_fairly(state, n, settings.gap, settings.strategy, random_state=random_state).proposal

    def questions(self, state: State, settings: Settings, annotator: int | None = None) -> list[Question]:
        """The open questions, of all or of one annotator, the oldest first; their value is that of now."""
        query = "SELECT item - 1, annotator - 1, price FROM asked WHERE annotator = coalesce(?, annotator)"
        rows = self.journal.read(f"{query} ORDER BY time, item", (None if annotator is None else annotator + 1,))
        item, who, price = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        proposal = Proposal(item.astype(np.int64), who.astype(np.int64), np.zeros(len(item)), price)
        value = settings.strategy.expected_value(state, proposal) if len(item) else proposal.value
        return self._named(state, replace(proposal, value=value))

    @staticmethod
    def _named(state: State, proposal: Proposal) -> list[Question]:
        items, people = state.item_names[proposal.item], state.annotator_names[proposal.annotator]
        columns = (items.tolist(), people.tolist(), proposal.price.tolist(), proposal.value.tolist())
        return [Question(*row) for row in zip(*columns, strict=True)]

    def _pairs(self, table: Literal["asked", "skipped"]) -> tuple[Ints, Ints]:
        """The codes of the items and annotators of open questions, or of those that were skipped."""
        rows = self.journal.read(f"SELECT item - 1, annotator - 1 FROM {table}")
        item, annotator = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        return item, annotator

    def expire(self, patience: float) -> None:
        """Forget those that are older than so many seconds. Where the clock was set back, their time begins now."""
        now = time.time()
        self.journal.write("UPDATE asked SET time = ? WHERE time > ?", [(now, now)])
        self.journal.write("DELETE FROM asked WHERE time < ?", [(now - patience,)])

    def renew(self, annotator: int) -> None:
        """The time of an annotator's open questions begins again: the annotator is there."""
        last = "(SELECT max(time) FROM asked WHERE annotator = ?)"  # their order stays
        row = (time.time(), annotator + 1, annotator + 1)
        self.journal.write(f"UPDATE asked SET time = time + ? - {last} WHERE annotator = ?", [row])

    def hand_out(self, proposal: Proposal) -> None:
        """Note the pairs of a proposal: the best is the oldest."""
        when = time.time() - TICK * np.arange(len(proposal))[::-1]
        columns = (proposal.item + 1, proposal.annotator + 1, when, proposal.price)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        self.journal.write("INSERT INTO asked (item, annotator, time, price) VALUES (?, ?, ?, ?)", rows)

    def release(self, items: Iterable[int] | None, annotator: int | None) -> int:
        """Take back open questions about some items (codes), of an annotator, or both; how many there were."""
        before, mine = self.journal.count("asked"), [] if annotator is None else [annotator + 1]
        rows = [mine] if items is None else [[n + 1, *mine] for n in items]
        where = ["item = ?"] * (items is not None) + ["annotator = ?"] * len(mine)
        self.journal.write(f"DELETE FROM asked WHERE {' AND '.join(where)}", rows)
        return before - self.journal.count("asked")

    def skip(self, items: Iterable[int], annotator: int, skipped: bool) -> None:
        """Ask an annotator no more about some items (codes), or ask again."""
        pairs = [(n + 1, annotator + 1) for n in items]
        if skipped:
            rows = [(*pair, time.time()) for pair in pairs]
            self.journal.write("INSERT OR IGNORE INTO skipped (item, annotator, time) VALUES (?, ?, ?)", rows)
        self.journal.write(f"DELETE FROM {'asked' if skipped else 'skipped'} WHERE item = ? AND annotator = ?", pairs)
