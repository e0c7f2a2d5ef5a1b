"""Who is asked what next in a campaign: the state of its stream, less what is out, skipped, finished or too dear."""

from __future__ import annotations

import json

import numpy as np

from crowdwise.active.end_state import Situation
from crowdwise.active.fair_assignment import propose_fairly
from crowdwise.active.journal import Journal
from crowdwise.active.proposals import Proposal
from crowdwise.active.questions import OpenQuestions, Question
from crowdwise.active.roster import Roster
from crowdwise.active.settings import Settings
from crowdwise.active.state import Pairs, State
from crowdwise.online.stream import Online

__all__ = ["Asking"]


class Asking:
    """The questions of a campaign."""

    def __init__(self, journal: Journal, roster: Roster) -> None:
        self.journal, self.roster, self.open = journal, roster, OpenQuestions(journal)

    def situation(self, online: Online, settings: Settings) -> Situation:
        """Whom can be asked about what. Open questions count as if they were answered."""
        self.roster.refresh()
        N, M = len(self.roster.items), len(self.roster.annotators)
        people = self.journal.read("SELECT price, available, max_votes FROM annotators ORDER BY id LIMIT ?", (M,))
        with self.journal.decoding():
            price, available, max_votes = np.array(people, dtype=np.float64).reshape(-1, 3).T
            asked_item, asked_annotator = self.open.pairs()
            skipped_item, skipped_annotator = self.open.pairs("skipped")
            item, who = np.append(asked_item, skipped_item), np.append(asked_annotator, skipped_annotator)
            if (item >= N).any() or (who >= M).any():
                raise ValueError("a question is of an item or an annotator that is not there")
            load = np.where(np.isnan(max_votes), np.inf, max_votes)
            if np.isfinite(load).any():
                given = dict(self.journal.read("SELECT annotator - 1, count(*) FROM votes GROUP BY annotator"))
                votes = np.bincount(asked_annotator, minlength=M) + [given.get(m, 0) for m in range(M)]
                load = np.maximum(load - votes, 0.0)
            shut = np.zeros(N, dtype=bool)
            shut[list(self.roster.items_with("closed"))] = True
        state = State.of(online, price=price, available=available, load=load, closed=shut)
        gold, voted = state.gold.copy(), state.voted
        gold[list(self.roster.items_with("gold"))] = True
        if len(item):
            voted = Pairs.of(np.append(voted.item, item), np.append(voted.annotator, who), N)
        state = state.replace(gold=gold, voted=voted)
        finished = settings.rule.finished(state)
        waiting = np.zeros(N, dtype=bool)
        waiting[asked_item] = True  # one question at a time about an item
        state = state.replace(closed=shut | (finished & ~gold) | waiting)
        return Situation(state, shut, finished, self.spent(), self.open.price(), len(asked_item))

    def spent(self) -> float:
        return float(self.journal.read("SELECT coalesce(sum(price), 0) FROM votes")[0][0])

    def propose(self, now: Situation, settings: Settings, n: int, annotator: int | None = None) -> list[Question]:
        """The next questions, for anybody or for one annotator (a code); they are noted as handed out."""
        state, left = now.state, np.inf
        if settings.rule.budget is not None:
            left = (settings.rule.budget - now.spent - now.awaited) * (1.0 + 1e-12)
        asked = state.available & (state.price <= left)
        if annotator is not None:
            asked &= np.arange(len(asked)) == annotator
        if not asked.any():
            return []
        proposal = self._choose(state.replace(available=asked), settings, n)
        proposal = proposal[: int(np.searchsorted(np.cumsum(proposal.price), left, "right"))]
        self.open.hand_out(proposal)
        self.journal.note(proposals=settings.proposals + 1)
        return self._named(state, proposal)

    def _choose(self, state: State, settings: Settings, n: int) -> Proposal:
        """The proposal of the strategy, under the bound on the gap between groups where there is one."""
        seed = [settings.seed, settings.proposals]
        groups = {} if settings.gap is None else self.roster.items_with("grp")
        with self.journal.decoding():
            groups = {code: json.loads(text) for code, text in groups.items()}
        if settings.gap is None or len(set(groups.values())) < 2:
            return settings.strategy.propose(state, n, np.random.default_rng(seed))
        group = np.array([groups.get(code) for code in range(len(state.item_names))], dtype=object)
        random_state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        fair = propose_fairly(state.replace(group=group), n, settings.gap, settings.strategy, random_state=random_state)
        return fair.proposal

    def questions(self, state: State, settings: Settings, annotator: int | None = None) -> list[Question]:
        """The open questions, of all or of one annotator, the oldest first; their value is that of now."""
        item, who, price = self.open.rows(annotator)
        proposal = Proposal(item, who, np.zeros(len(item)), price)
        value = settings.strategy.expected_value(state, proposal) if len(item) else proposal.value
        return self._named(state, Proposal(item, who, value, price))

    @staticmethod
    def _named(state: State, proposal: Proposal) -> list[Question]:
        items, people = state.item_names[proposal.item], state.annotator_names[proposal.annotator]
        columns = (items.tolist(), people.tolist(), proposal.price.tolist(), proposal.value.tolist())
        return [Question(*row) for row in zip(*columns, strict=True)]
