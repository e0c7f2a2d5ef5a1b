"""Rules for who should label what next, with names.

A strategy looks at :class:`~crowdwise.active.beliefs.Beliefs` and proposes a batch of (item, annotator) pairs. Either
items are chosen first, by how unsure they are, and then an annotator for each; or pairs are chosen together, by what
the vote is expected to tell, per unit of price.

==================  ===================================================================================
``random``          any item, any annotator
``entropy-random``  the most uncertain items, any annotator
``tutorial``        the most uncertain items; the best annotator, or with probability epsilon (.5 for the
                    first 100 votes, then .05) any: the protocol of the tutorial's tests
``ucb``             the most uncertain items; the annotator with the best hopes
``thompson``        the most uncertain items; the best annotator under a draw of all confusion matrices
``information``     pairs by expected information, under the mean confusion matrices
``value``           pairs by expected information per price, under a draw of the confusion matrices
==================  ===================================================================================

Constraints hold for all: nobody is asked twice about an item, who is away is not asked, nobody gets more than the
load left, items below ``overlap`` votes come first, and a share of questions may be ones whose answer is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.active import select
from crowdwise.active.assign import assign
from crowdwise.active.beliefs import Beliefs
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import ParameterError, suggestion

CANDIDATES = 4
"""How many times as many items as are asked for are looked at closely."""
FEWEST = 50
PEOPLE = 500
"""The most annotators that are looked at closely: those who promise most."""

__all__ = ["DEFAULT", "STRATEGIES", "Proposal", "Strategy", "strategy"]


@dataclass(frozen=True)
class Proposal:
    """Pairs to be asked, best first; codes are those of the beliefs."""

    item: Ints
    annotator: Ints
    value: Floats
    """What each vote is expected to tell, in the strategy's own units."""
    price: Floats

    def __len__(self) -> int:
        return len(self.item)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How a batch is chosen.

    Parameters
    ----------
    items
        ``"random"``, ``"least-confident"``, ``"margin"`` or ``"entropy"``: which items come first (with ``joint``, are
        looked at closely).
    annotators
        ``"random"``, ``"greedy"``, ``"epsilon-greedy"``, ``"ucb"`` or ``"thompson"``: whom to ask. With ``joint``,
        ``"thompson"`` draws confusion matrices and anything else takes their means.
    joint
        Choose pairs by what the vote is expected to tell, not items first and annotators then.
    value
        With ``joint``: ``"information"`` or ``"error-reduction"``.
    per_price
        Divide the value of an annotator by the price of a vote.
    overlap
        Items with fewer votes come first.
    gold_rate
        The share of questions whose answer is known.
    votes_per_item
        How many annotators an item may get in one batch.
    """

    items: str = "entropy"
    annotators: str = "thompson"
    joint: bool = True
    value: str = "information"
    per_price: bool = True
    overlap: int = 1
    gold_rate: float = 0.0
    votes_per_item: int = 1

    def __post_init__(self) -> None:
        for name, known in (
            ("items", select.ITEM_RULES),
            ("annotators", select.ANNOTATOR_RULES),
            ("value", select.VALUES),
        ):
            if getattr(self, name) not in known:
                raise ParameterError(f"{name}={getattr(self, name)!r}: expected {', '.join(map(repr, known))}.")
        for name, low in (("overlap", 0), ("votes_per_item", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < low:
                raise ParameterError(f"{name}={value!r}: expected a whole number of at least {low}.")
        if not (isinstance(self.gold_rate, (int, float)) and 0.0 <= self.gold_rate < 1.0):
            raise ParameterError(f"gold_rate={self.gold_rate!r}: expected a number from 0 to below 1.")

    def propose(self, beliefs: Beliefs, n: int, rng: np.random.Generator) -> Proposal:
        """Up to n pairs to be asked; fewer where the constraints leave no more."""
        tests = int(rng.binomial(n, self.gold_rate)) if beliefs.gold.any() else 0
        gold = self._batch(beliefs, np.flatnonzero(beliefs.gold), tests, rng, uncertain=False) if tests else []
        rest = np.flatnonzero(~beliefs.closed & ~beliefs.gold)
        batch = self._batch(beliefs, rest, n - sum(len(p) for p in gold), rng, taken=gold)
        return _joined([*batch, *gold])

    def _batch(
        self,
        beliefs: Beliefs,
        items: Ints,
        n: int,
        rng: np.random.Generator,
        *,
        uncertain: bool = True,
        taken: list[Proposal] | None = None,
    ) -> list[Proposal]:
        """Rounds in which an item gets at most one annotator each, until there are n pairs or no more can be made."""
        rounds = list(taken or [])
        made: list[Proposal] = []
        for _ in range(self.votes_per_item):
            left = n - sum(len(p) for p in made)
            if left <= 0:
                break
            load = beliefs.load.copy()
            for p in rounds:
                np.subtract.at(load, p.annotator, 1.0)
            people = np.flatnonzero(beliefs.available & (load >= 1.0))
            found = self._round(beliefs, items, people, load, left, rounds, rng, uncertain)
            if len(found) == 0:
                break
            made.append(found)
            rounds.append(found)
        return made

    def _round(
        self,
        beliefs: Beliefs,
        items: Ints,
        people: Ints,
        load: Floats,
        n: int,
        rounds: list[Proposal],
        rng: np.random.Generator,
        uncertain: bool,
    ) -> Proposal:
        if beliefs.possible is not None:  # only items somebody can still be asked about
            some = beliefs.possible.indptr[items + 1] > beliefs.possible.indptr[items]
            items = items[some]
        if len(items) == 0 or len(people) == 0:
            return _nothing()
        score = select.item_scores(beliefs.posterior[items], self.items if uncertain else "random", rng)
        score = score + 1e-9 * rng.random(len(score))  # equals in random order
        short = beliefs.votes_per_item[items] < self.overlap
        score = np.where(short, score + 1e3, score)
        size = n if not self.joint else max(CANDIDATES * n, FEWEST)
        if beliefs.possible is not None or not self.joint:
            size = max(size, FEWEST + CANDIDATES * n)  # some may turn out to have nobody left to ask
        chosen = items[_top(score, size)]
        theta, people = self._people(beliefs, people, load, n, rng)
        worth = self._worth(beliefs, chosen, people, theta, rng)
        if self.per_price:
            worth = worth / beliefs.price[people]
        if self.joint:
            worth = worth + np.where(beliefs.votes_per_item[chosen] < self.overlap, 1e3, 0.0)[:, None]
        else:  # the order of the items decides; the annotators' worth only who takes which
            worth = worth - 1e3 * np.arange(len(chosen))[:, None]
        allowed = _allowed(beliefs, chosen, people, rounds)
        row, column = assign(np.where(allowed, worth, -np.inf), load[people], n)
        told = worth[row, column]
        told = told - np.where(beliefs.votes_per_item[chosen[row]] < self.overlap, 1e3, 0.0) if self.joint else told
        return Proposal(chosen[row], people[column], told, beliefs.price[people[column]])

    def _people(
        self, beliefs: Beliefs, people: Ints, load: Floats, n: int, rng: np.random.Generator
    ) -> tuple[Floats, Ints]:
        """The annotators to look at closely, and their confusion matrices: drawn, or in the mean."""
        if beliefs.possible is None and len(people) > PEOPLE:
            rule = "thompson" if self.joint and self.annotators == "thompson" else self.annotators
            rule = "greedy" if rule == "epsilon-greedy" else rule
            hope = select.annotator_scores(beliefs.dirichlet[people], beliefs.prior, rule, rng)
            hope = hope - 1.0 / len(beliefs.classes)  # what is better than chance is what a price is paid for
            hope = hope / beliefs.price[people] if self.per_price else hope
            order = np.argsort(-hope, kind="stable")
            enough = int(np.searchsorted(np.cumsum(np.minimum(load[people[order]], n)), CANDIDATES * n) + 1)
            people = people[order[: max(PEOPLE, enough)]]
        dirichlet = beliefs.dirichlet[people]
        drawn = self.joint and self.annotators == "thompson"
        return (select.draw(dirichlet, rng) if drawn else select.mean(dirichlet)), people

    def _worth(self, beliefs: Beliefs, items: Ints, people: Ints, theta: Floats, rng: np.random.Generator) -> Floats:
        """C x A."""
        if self.joint:
            return select.pair_values(beliefs.posterior[items], theta, self.value)
        rule = "greedy" if self.annotators == "epsilon-greedy" else self.annotators
        score = select.annotator_scores(beliefs.dirichlet[people], beliefs.prior, rule, rng)
        worth = np.tile(score, (len(items), 1))
        if self.annotators == "random":
            return rng.random(worth.shape)
        if self.annotators == "epsilon-greedy":
            strays = rng.random(len(items)) < select.epsilon(beliefs.steps)
            worth[strays] = rng.random((int(strays.sum()), len(people)))
        return worth


STRATEGIES: dict[str, Strategy] = {
    "random": Strategy(items="random", annotators="random", joint=False, per_price=False),
    "entropy-random": Strategy(annotators="random", joint=False, per_price=False),
    "tutorial": Strategy(annotators="epsilon-greedy", joint=False, per_price=False),
    "ucb": Strategy(annotators="ucb", joint=False, per_price=False),
    "thompson": Strategy(annotators="thompson", joint=False, per_price=False),
    "information": Strategy(annotators="greedy", per_price=False),
    "value": Strategy(),
}
DEFAULT = "value"


def strategy(name: Any) -> Strategy:
    """A strategy by its name, or the strategy itself."""
    if isinstance(name, Strategy):
        return name
    found = STRATEGIES.get(name)
    if found is None:
        raise ParameterError(
            f"Unknown strategy {name!r}: there are {', '.join(STRATEGIES)}.{suggestion(str(name), list(STRATEGIES))}"
        )
    return found


def _top(score: Floats, n: int) -> Ints:
    """The places of the n largest, largest first."""
    if n < len(score):
        some = np.argpartition(-score, n)[:n]
        return np.asarray(some[np.argsort(-score[some], kind="stable")])
    return np.argsort(-score, kind="stable")


def _allowed(beliefs: Beliefs, items: Ints, people: Ints, rounds: list[Proposal]) -> Any:
    """C x A: which pairs may be asked."""
    column = np.full(len(beliefs.annotator_names), -1)
    column[people] = np.arange(len(people))

    def mark(pairs: tuple[Ints, Ints], value: bool) -> None:
        place, who = pairs
        here = column[who] >= 0
        out[place[here], column[who[here]]] = value

    out = np.full((len(items), len(people)), beliefs.possible is None)
    if beliefs.possible is not None:
        mark(beliefs.possible.among(items), True)
    mark(beliefs.done.among(items), False)
    if rounds:
        where = np.full(len(beliefs.item_names), -1)
        where[items] = np.arange(len(items))
        asked = np.concatenate([p.item for p in rounds])
        who = np.concatenate([p.annotator for p in rounds])
        here = where[asked] >= 0
        mark((where[asked[here]], who[here]), False)
    return out


def _nothing() -> Proposal:
    return Proposal(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


def _joined(parts: list[Proposal]) -> Proposal:
    if not parts:
        return _nothing()
    return Proposal(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("item", "annotator", "value", "price")))
