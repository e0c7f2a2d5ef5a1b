"""The model of a campaign of other answers than classes: fitted again to all answers, in the background. Items with the
fewest answers come first (of higher priority before others), until each has ``max_votes`` or the budget is spent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from crowdwise import api, registry
from crowdwise.active.end_state import NO_OTHER, QUESTIONS, People, Standing, all_asked, counted
from crowdwise.active.stopping import Sentence
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import NotFittedError
from crowdwise.store import steady_clock
from crowdwise.store.answer_forms import ALONE, OF_PAYLOAD, table_of
from crowdwise.store.campaign_rows import CampaignRow
from crowdwise.store.live_votes import NO_VOTES, LiveNames, mixed, read_open, read_votes
from crowdwise.store.store_tables import items


@dataclass(frozen=True, eq=False)
class RefitView:
    """A campaign of other answers at a moment: nothing in it changes."""

    row: CampaignRow
    items: list[Any]
    annotators: list[Any]
    people: People
    closed: Any
    gold: dict[int, str]
    priority: Floats
    settled: dict[Any, Any]  # item -> what a second look says of it
    answers: dict[tuple[int, int], tuple[str, str | None]]
    """The text of each answer, and which side of a pair came first."""
    payloads: dict[int, dict[str, Any]]  # what is shown of items, of forms whose answers need it
    asked: tuple[Ints, Ints]
    skipped: tuple[Ints, Ints]
    awaited: float

    @property
    def seq(self) -> int:
        return self.row.last_vote

    @property
    def enough(self) -> int:
        """How many answers finish an item."""
        return int(self.row.rule.max_votes or 0)

    @cached_property
    def answered(self) -> Ints:
        """N: answers on each item."""
        return np.bincount(np.array([n for n, _ in self.answers], dtype=np.int64), minlength=len(self.items))

    @cached_property
    def counts(self) -> Ints:
        """N: answers on each item, those that are awaited too."""
        return self.answered + np.bincount(self.asked[0], minlength=len(self.items))

    @cached_property
    def to_ask(self) -> Any:
        """N: items that are open, not known, not out, and short of answers."""
        out = ~self.closed & (self.counts < self.enough)
        out[list(self.gold)] = False
        out[self.asked[0]] = False
        return out

    @cached_property
    def standing(self) -> Standing:
        rule, unknown = self.row.rule, ~self.closed
        unknown[list(self.gold)] = False
        if not unknown.any():
            return Standing("waiting", "there are no items to label", "Add items.")
        price = self.people.price[self.people.available]
        if not len(price):
            return Standing("waiting", "no annotator is available", "Add annotators, or make some available.")
        cheapest = float(price.min())
        spent = rule.why_spent(self.row.spent, cheapest)
        if spent is not None:
            return Standing("budget-spent", spent, "To go on, raise the budget.")
        affordable = rule.why_spent(self.row.spent + self.awaited, cheapest) is None
        if affordable and self.to_ask.any() and self._can_ask().any():
            return Standing("running")
        if len(self.asked[0]):
            pattern = NO_OTHER if affordable else "{questions} out and may take the rest of the budget"
            why = Sentence(pattern, questions=counted(len(self.asked[0]), *QUESTIONS))
            return Standing("waiting", why, "Add the answers, or release the questions.")
        if self.to_ask.any():
            return all_asked(int(self.to_ask.sum()), self.people.available, self._room)
        why = Sentence("every item is finished ({n} answers each)", n=f"{self.enough}")
        return Standing("exhausted", why, "To go on, raise the most votes on an item (max_votes).")

    @cached_property
    def status(self) -> dict[str, Any]:
        """Counts, money, and its status."""
        rule, answered = self.row.rule, self.answered
        return {
            "votes": self.row.n_answers, "method": self.row.settings["method"], "seq": self.seq,
            "items": len(self.items), "closed": int(self.closed.sum()), "annotators": len(self.annotators),
            "spent": self.row.spent, "budget": rule.budget, "asked": len(self.asked[0]),
            "finished": int((answered >= self.enough).sum()), "voted_on": int((answered > 0).sum()),
            "target": None, "probability": None, "max_error": None, "proof": None,
            "accuracy": None, "accuracy_low": None, "accuracy_high": None,
            "accuracy_known": False, "reachable": None, "state": self.standing.state, "stop": self.standing.why,
            "advice": self.standing.advice,
        }  # fmt: skip

    @cached_property
    def table(self) -> Any:
        """The answers, as the library has them."""
        if not self.answers:
            raise NotFittedError(NO_VOTES)
        return table_of(self.row, [
            (self.items[n], self.annotators[m], json.loads(text), self.payloads.get(n, {}), first)
            for (n, m), (text, first) in self.answers.items()
        ])  # fmt: skip

    @cached_property
    def single(self) -> bool:
        """Whether all answers are of one annotator, and nothing says how reliable they are."""
        return self.row.form in ALONE and len({m for _, m in self.answers}) == 1

    @cached_property
    def consensus(self) -> Any:
        method, params = self.row.settings["method"], self.row.settings["params"]
        if self.single:
            method, params = ALONE[self.row.form]
        return api.fit(self.table, method, params, answers=self.row.answer_type).result

    def why_none(self, annotator: int) -> str | None:
        """Why an annotator (a code) gets no question now."""
        if annotator >= len(self.annotators):
            return None
        if not self.people.available[annotator]:
            return f"{self.annotators[annotator]!r} is not available"
        if self.standing.state == "running" and not self._free(annotator).any():
            name = self.annotators[annotator]
            return f"{name!r} has answered, skipped or been asked everything that is open to others"
        return self.standing.why

    @cached_property
    def _room(self) -> Floats:
        """M: how many more votes each annotator may give."""
        people = self.people
        n_votes = people.given + np.bincount(self.asked[1], minlength=len(people.price))
        return np.where(np.isnan(people.max_votes), np.inf, people.max_votes - n_votes)

    def _can_ask(self) -> npt.NDArray[np.bool_]:
        """M: annotators who can be asked about one of the items that are short of answers."""
        pairs = np.array([*self.answers, *zip(*self.skipped, strict=True)], dtype=np.int64).reshape(-1, 2)
        done = np.bincount(pairs[self.to_ask[pairs[:, 0]], 1], minlength=len(self.annotators))
        can: npt.NDArray[np.bool_] = self.people.available & (self._room >= 1.0) & (done < self.to_ask.sum())
        return can

    def _free(self, annotator: int) -> Any:
        """N: items that an annotator can be asked about."""
        free = self.to_ask.copy()
        free[[n for n, m in self.answers if m == annotator]] = False
        free[self.skipped[0][self.skipped[1] == annotator]] = False
        return free

    def propose(self, annotator: int, n: int, draw: int) -> list[int]:
        """Codes of items to ask an annotator about, with gold ones among them at the set rate."""
        running = self.standing.state == "running" and annotator < len(self.annotators)
        if not running or not self.people.available[annotator]:
            return []
        rng = np.random.default_rng([self.row.settings["seed"], annotator, draw])
        free = np.flatnonzero(self._free(annotator))
        order = np.lexsort((rng.random(len(free)), self.counts[free], -self.priority[free]))
        codes: list[int] = free[order][:n].tolist()
        done = {n for n, m in self.answers if m == annotator} if self.gold else set()
        return mixed(self.row, codes, self.gold, done, self.closed, rng)


class LiveRefit:
    """The answers of a campaign. One thread at a time calls :meth:`follow`."""

    stale = False

    def __init__(self) -> None:
        self.names = LiveNames()
        self.read = 0
        self.answers: dict[tuple[int, int], tuple[str, str | None]] = {}
        self.payloads: dict[int, dict[str, Any]] = {}

    def follow(self, conn: sa.Connection, row: CampaignRow) -> RefitView:
        """The campaign as it is now."""
        names, version = self.names, self.names.version
        names.follow(conn, row)
        if row.form == registry.PAIR or row.form in OF_PAYLOAD:
            query = sa.select(items.c.number, items.c.payload).where(items.c.campaign == row.id)
            for number, payload in conn.execute(query.where(items.c.version > version)):
                self.payloads[number - 1] = json.loads(payload)
        while self.read < row.last_vote:
            coded = read_votes(conn, row.id, self.read, row.last_vote)
            for vote in coded:
                if vote.retracts is None:
                    self.answers[vote.item, vote.annotator] = vote.answer, vote.shown
                else:
                    self.answers.pop((vote.item, vote.annotator), None)
            self.read = coded[-1].seq
        asked, skipped, cost = read_open(conn, row.id, steady_clock.now())
        return RefitView(
            row, list(names.items.names), list(names.annotators.names), names.people(conn, row.id), names.closed,
            dict(names.gold), names.priority, names.settled_answers(), dict(self.answers), dict(self.payloads), asked,
            skipped, cost,
        )  # fmt: skip
