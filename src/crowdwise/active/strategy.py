"""Rules for who should label what next, with names.

A strategy looks at :class:`~crowdwise.active.state.Beliefs` and proposes a batch of (item, annotator) pairs. Either
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
``value``           pairs by expected information per price, nobody getting too large a share of a batch: where
                    all cost the same under draws of the confusion matrices; where prices differ strangers first,
                    on trial, and then under the mean confusion matrices
==================  ===================================================================================

Where prices differ, what is not known of annotators is learned on trial, together on few items, where that may pay
(:mod:`crowdwise.active.trials`), and not by draws: under draws the cheap are asked again and again, since many of them
always have one of whom the draw is good. Where all cost the same, trials gain nothing, and draws a little.

Constraints hold for all: nobody is asked twice about an item, who is away is not asked, nobody gets more than the
load left, items below ``overlap`` votes come first, and a share of questions may be ones whose answer is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdwise.active import acquisition
from crowdwise.active import trials as trial
from crowdwise.active.optimal_batch import assign, assign_pairs
from crowdwise.active.state import Beliefs
from crowdwise.core.model import EMModel
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import ParameterError, suggestion
from crowdwise.online.stream import RENEW, Online

CANDIDATES = 4
"""How many times as many items as are asked for are looked at closely."""
FEWEST = 50
DRAWS = 16
"""How many draws of the confusion matrices a batch is spread over: with one, the whole batch would go to whoever the
draw happens to favour."""
TRUST, SHRINK = 9.0, 8.0
"""What a stream trusts strangers with, and shrinks everybody by, where the next votes depend on it: an item with one
vote should look in doubt. Chosen on simulated crowds, as all here."""
PEOPLE = 500
"""The most annotators that are looked at closely: those who promise most."""
SHARE = 1 / 16
"""A batch need not be spread wider than this: the least share of it that an annotator may get."""

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
    trial
        Where prices differ: annotators are strangers until they have voted, on items that others voted on, too, this
        often times the square root of the items there are for each annotator. Strangers who may be worth their price
        are asked first, together about few items, each of which gets up to 24 votes (:mod:`crowdwise.active.trials`);
        after that means take the place of draws. 0: nobody is tried.
    spread
        Nobody gets more than so many times an equal share of a batch (or a sixteenth of it, if that is more), as long
        as others are left: a whole batch given to one who was lucky so far is money lost. 0: no such limit.
    overlap
        Items with fewer votes come first.
    gold_rate
        The share of questions whose answer is known.
    votes_per_item
        How many annotators an item may get in one batch.
    step
        The steps of the stream that goes with it (see :class:`crowdwise.Online`): ``None``, exact statistics. Decayed
        ones count an item again whenever it gets a vote, so that items in doubt, which are asked about most, come to
        outweigh the others and annotators look worse than they are; they are never made anew, as the tutorial has it.
    """

    items: str = "entropy"
    annotators: str = "thompson"
    joint: bool = True
    value: str = "information"
    per_price: bool = True
    trial: float = 5.0
    spread: float = 4.0
    overlap: int = 1
    gold_rate: float = 0.0
    votes_per_item: int = 1
    step: float | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("items", acquisition.ITEM_RULES),
            ("annotators", acquisition.ANNOTATOR_RULES),
            ("value", acquisition.VALUES),
        ):
            if getattr(self, name) not in known:
                raise ParameterError(f"{name}={getattr(self, name)!r}: expected {', '.join(map(repr, known))}.")
        for name, low in (("overlap", 0), ("votes_per_item", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < low:
                raise ParameterError(f"{name}={value!r}: expected a whole number of at least {low}.")
        if not (isinstance(self.gold_rate, (int, float)) and 0.0 <= self.gold_rate < 1.0):
            raise ParameterError(f"gold_rate={self.gold_rate!r}: expected a number from 0 to below 1.")
        for name in ("trial", "spread"):
            amount = getattr(self, name)
            if not (isinstance(amount, (int, float)) and 0.0 <= amount < np.inf):
                raise ParameterError(f"{name}={amount!r}: expected a number of at least 0 (0: none of it).")
        if self.step is not None and not (isinstance(self.step, (int, float)) and 0.5 < self.step <= 1.0):
            raise ParameterError(f"step={self.step!r}: expected a number above 0.5 and at most 1, or None (exact).")

    def stream(self, model: EMModel, classes: Any) -> Online:
        """A stream to follow the votes with that this strategy asks for."""
        renew = RENEW if self.step is None else None
        return Online(model, step=self.step, renew=renew, trust=TRUST, shrink=SHRINK, classes=classes)

    def propose(self, beliefs: Beliefs, n: int, rng: np.random.Generator) -> Proposal:
        """Up to n pairs to be asked; fewer where the constraints leave no more."""
        tests = int(rng.binomial(n, self.gold_rate)) if beliefs.gold.any() else 0
        gold = self._batch(beliefs, np.flatnonzero(beliefs.gold), tests, rng, uncertain=False) if tests else []
        rest = np.flatnonzero(~beliefs.closed & ~beliefs.gold)
        trials = self._trials(beliefs, rest, n - _size(gold), rng, gold)
        tried = np.zeros(len(beliefs.item_names), dtype=bool)  # these have votes enough for one batch
        for p in trials:
            tried[p.item] = True
        made = [*gold, *trials]
        batch = self._batch(beliefs, rest[~tried[rest]], n - _size(made), rng, taken=made)
        return _joined([*trials, *batch, *gold])

    def _tries(self, beliefs: Beliefs) -> bool:
        """Whether strangers are put on trial: where prices differ."""
        price = beliefs.price[beliefs.available]
        return self.trial > 0 and len(price) > 0 and bool(price.max() > price.min())

    def _rule(self, beliefs: Beliefs) -> str:
        """How annotators are ranked: strays from the best aside, and nothing drawn where trials tell."""
        means = self.annotators == "epsilon-greedy" or (self.annotators == "thompson" and self._tries(beliefs))
        return "greedy" if means else self.annotators

    def _trials(
        self, beliefs: Beliefs, items: Ints, n: int, rng: np.random.Generator, taken: list[Proposal]
    ) -> list[Proposal]:
        """Votes of strangers, together on few items (:mod:`crowdwise.active.trials`)."""
        need = trial.needed(beliefs, self.trial, rng) if self._tries(beliefs) else np.zeros(len(beliefs.price))
        n = min(n, int(need.sum()))
        made: list[Proposal] = []
        if n <= 0:
            return made
        some = trial.jury(beliefs, items, need, n, rng)
        anybody = replace(self, items="random", annotators="random", joint=False, per_price=False)
        for round_ in range(trial.JURY):
            here = some[beliefs.votes_per_item[some] + round_ < trial.JURY]
            load = _left(np.minimum(need, beliefs.load), [*taken, *made])
            found = anybody._round(
                beliefs, here, np.flatnonzero(load >= 1.0), load, n - _size(made), [*taken, *made], rng
            )
            if len(found) == 0:
                break
            made.append(replace(found, value=self._told(beliefs, found)))
        return made

    def _told(self, beliefs: Beliefs, asked: Proposal) -> Floats:
        """What some votes are expected to tell, under the mean confusion matrices."""
        who, place = np.unique(asked.annotator, return_inverse=True)
        theta = acquisition.mean(beliefs.dirichlet[who])
        told = acquisition.values_of(beliefs.posterior[asked.item], theta, self.value, np.arange(len(asked)), place)
        return told / asked.price if self.per_price else told

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
        people = int((beliefs.available & (beliefs.load >= 1.0)).sum())
        share = np.ceil(n * max(self.spread / max(people, 1), SHARE)) if self.spread else np.inf
        for _ in range(self.votes_per_item):
            before, free = len(made), items
            for most in dict.fromkeys((share, np.inf)):  # where shares leave questions over, anybody may have them
                left = n - _size(made)
                load = _left(np.minimum(beliefs.load, most), rounds)
                people_here = np.flatnonzero(beliefs.available & (load >= 1.0))
                found = self._round(beliefs, free, people_here, load, left, rounds, rng, uncertain)
                if len(found):
                    made.append(found)
                    rounds.append(found)
                    free = free[~np.isin(free, found.item)]
            if len(made) == before:
                break
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
        uncertain: bool = True,
    ) -> Proposal:
        if beliefs.possible is not None:  # only items somebody can still be asked about
            some = beliefs.possible.indptr[items + 1] > beliefs.possible.indptr[items]
            items = items[some]
        if n <= 0 or len(items) == 0 or len(people) == 0:
            return _nothing()
        weight = np.ones(len(beliefs.posterior)) if beliefs.weight is None else beliefs.weight
        score = weight[items] * acquisition.item_scores(
            beliefs.posterior[items], self.items if uncertain else "random", rng
        )
        score = score + 1e-9 * rng.random(len(score))  # equals in random order
        lift = 1e3 * max(1.0, float(weight.max()))  # more than any worth: items that are short of votes come first
        score = score + np.where(beliefs.votes_per_item[items] < self.overlap, lift, 0.0)
        size = n if not self.joint else max(CANDIDATES * n, FEWEST)
        if beliefs.possible is not None or not self.joint:
            size = max(size, FEWEST + CANDIDATES * n)  # some may turn out to have nobody left to ask
        chosen = items[_top(score, size)]
        people = self._people(beliefs, people, load, n, rng)
        pairs = None if beliefs.possible is None else _askable(beliefs, chosen, people, rounds)
        worth = self._worth(beliefs, chosen, people, pairs, rng)
        if self.joint:
            raised = np.where(beliefs.votes_per_item[chosen] < self.overlap, lift, 0.0)
        else:  # the order of the items decides; the annotators' worth only who takes which
            raised = -2.0 * (np.abs(worth).max(initial=0.0) + 1.0) * np.arange(len(chosen))
        if pairs is None:
            value = np.where(_allowed(beliefs, chosen, people, rounds), worth + raised[:, None], -np.inf)
            row, column = assign(value, load[people], n)
            told = worth[row, column]
        else:
            taken = assign_pairs(*pairs, worth + raised[pairs[0]], load[people], n)
            row, column, told = pairs[0][taken], pairs[1][taken], worth[taken]
        return Proposal(chosen[row], people[column], told, beliefs.price[people[column]])

    def _people(self, beliefs: Beliefs, people: Ints, load: Floats, n: int, rng: np.random.Generator) -> Ints:
        """The annotators to look at closely: those who promise most, where there are very many."""
        if beliefs.possible is not None or len(people) <= PEOPLE:
            return people
        rule = self._rule(beliefs)
        hope = acquisition.annotator_scores(beliefs.dirichlet[people], beliefs.prior, rule, rng)
        hope = hope - 1.0 / len(beliefs.classes)  # what is better than chance is what a price is paid for
        hope = hope / beliefs.price[people] if self.per_price else hope
        order = np.argsort(-hope - 1e-9 * rng.random(len(hope)), kind="stable")
        enough = int(np.searchsorted(np.cumsum(np.minimum(load[people[order]], n)), CANDIDATES * n) + 1)
        return np.asarray(people[order[: max(PEOPLE, enough)]])

    def _worth(
        self, beliefs: Beliefs, items: Ints, people: Ints, pairs: tuple[Ints, Ints] | None, rng: np.random.Generator
    ) -> Floats:
        """C x A, or only of some pairs (the place of the item, and of the annotator)."""
        shape = (len(items), len(people)) if pairs is None else pairs[0].shape
        place, column = (np.arange(shape[0]), np.arange(len(people))) if pairs is None else pairs
        dirichlet, rule = beliefs.dirichlet[people], self._rule(beliefs)

        def told(theta: Floats, here: Any = slice(None)) -> Floats:
            """Of all pairs of some rows, or of some pairs, under some confusion matrices."""
            if self.joint:
                q = beliefs.posterior[items]
                if pairs is None:
                    return acquisition.pair_values(q[here], theta, self.value)
                return acquisition.values_of(q, theta, self.value, place[here], column[here])
            if rule == "thompson":
                score = np.einsum("mkk->mk", theta) @ beliefs.prior
            else:
                score = acquisition.annotator_scores(dirichlet, beliefs.prior, rule, rng)
            return np.asarray(score[None] if pairs is None else score[column[here]])

        if rule == "thompson":
            worth = np.empty(shape)
            for d in range(min(DRAWS, len(items))):  # items are dealt out to several draws
                here = place % DRAWS == d
                worth[here] = told(acquisition.draw(dirichlet, rng), here)
        elif self.annotators == "random" and not self.joint:
            worth = rng.random(shape)
        else:
            worth = np.broadcast_to(told(acquisition.mean(dirichlet)), shape)
        if self.annotators == "epsilon-greedy" and not self.joint:
            strays = (rng.random(len(items)) < acquisition.epsilon(beliefs.steps))[place]
            worth = np.where(strays[:, None] if pairs is None else strays, rng.random(shape), worth)
        if self.per_price:
            worth = worth / beliefs.price[people][column]
        if self.joint and beliefs.weight is not None:
            weight = beliefs.weight[items][place]
            worth = worth * (weight[:, None] if pairs is None else weight)
        return np.asarray(worth + 1e-9 * rng.random(shape))  # equals in random order


PLAIN: dict[str, Any] = {"per_price": False, "trial": 0, "spread": 0}
STRATEGIES: dict[str, Strategy] = {
    "random": Strategy(items="random", annotators="random", joint=False, **PLAIN),
    "entropy-random": Strategy(annotators="random", joint=False, **PLAIN),
    "tutorial": Strategy(annotators="epsilon-greedy", joint=False, step=0.6, **PLAIN),
    "ucb": Strategy(annotators="ucb", joint=False, **PLAIN),
    "thompson": Strategy(annotators="thompson", joint=False, **PLAIN),
    "information": Strategy(annotators="greedy", **PLAIN),
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


def _asked(beliefs: Beliefs, items: Ints, rounds: list[Proposal]) -> tuple[Ints, Ints]:
    """The pairs among some items that must not be asked again: the place of the item, and the annotator."""
    parts = [beliefs.done.among(items)]
    if rounds:
        where = np.full(len(beliefs.item_names), -1)
        where[items] = np.arange(len(items))
        asked = where[np.concatenate([p.item for p in rounds])]
        parts.append((asked[asked >= 0], np.concatenate([p.annotator for p in rounds])[asked >= 0]))
    return np.concatenate([p for p, _ in parts]), np.concatenate([who for _, who in parts])


def _allowed(beliefs: Beliefs, items: Ints, people: Ints, rounds: list[Proposal]) -> Any:
    """C x A: which pairs may be asked."""
    column = np.full(len(beliefs.annotator_names), -1)
    column[people] = np.arange(len(people))
    place, who = _asked(beliefs, items, rounds)
    here = column[who] >= 0
    out = np.ones((len(items), len(people)), dtype=bool)
    out[place[here], column[who[here]]] = False
    return out


def _askable(beliefs: Beliefs, items: Ints, people: Ints, rounds: list[Proposal]) -> tuple[Ints, Ints]:
    """Where only some pairs are possible, those that may be asked: the place of the item and of the annotator."""
    assert beliefs.possible is not None
    M = len(beliefs.annotator_names)
    column = np.full(M, -1)
    column[people] = np.arange(len(people))
    place, who = beliefs.possible.among(items)
    before, voter = _asked(beliefs, items, rounds)
    keep = (column[who] >= 0) & ~np.isin(place * M + who, before * M + voter)
    return place[keep], column[who[keep]]


def _size(parts: list[Proposal]) -> int:
    return sum(len(p) for p in parts)


def _left(load: Floats, taken: list[Proposal]) -> Floats:
    """M: what is left of how much each may do."""
    load = load.copy()
    for p in taken:
        np.subtract.at(load, p.annotator, 1.0)
    return load


def _nothing() -> Proposal:
    return Proposal(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


def _joined(parts: list[Proposal]) -> Proposal:
    if not parts:
        return _nothing()
    return Proposal(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("item", "annotator", "value", "price")))
