"""Strategies with names: who should label what next (the table of them, and when each is best: ``docs/active.md``).

A strategy looks at a :class:`~crowdwise.active.state.State` and proposes a batch of (item, annotator) pairs. Either
items are chosen first, by their uncertainty, and then an annotator for each; or pairs are chosen jointly, by the
information gain of the vote, per unit of price.

The best batch (:func:`assign`) maximises the sum of values of the chosen pairs: n items at most, one annotator each,
and no annotator more items than allowed. Without limits that bind, each item takes its best annotator. Else rows are
items, columns the slots of annotators, and as many empty columns as there are items to be left out; that is solved
exactly (Jonker and Volgenant, through scipy) up to ``EXACT`` cells, and beyond by taking the best pair that is left,
again and again, which is never worth less than half of the best.

Trials: a vote on an item without other votes carries no information about its annotator, so new annotators are tried
together on few items, where prices differ.

==================  ==============================================================================================
I[m], p[m]          information gain of a vote of m on an item without votes, in bits; its price
R                   the going rate: I / p of the last of those annotators who, best first, have an information gain of
                    H(pi) together, as many as one item needs; the price of a new annotator counts as the mean price
N                   sum_n H(q[n]) / H(pi): how many items' worth of uncertainty is left
T                   trial_votes * sqrt(N / M) votes, M annotators: after so many on items that others voted on, too, an
                    annotator is not new any more
EI[m]               E max(0, I / p - R) over draws of the confusion matrix of m
==================  ==============================================================================================

New annotators with N EI[m] / R > T are tried: asked about all that is left, m may save N p[m] EI[m] / R, and the trial
costs T p[m]. After t votes the share t / (t + t0) of what can be learned of an annotator is learned, so that a trial
over a share N / M of the work is worth a N / M * t / (t + t0) - t, largest at t = sqrt(a t0 N / M) - t0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from crowdwise.active import acquisition
from crowdwise.active.acquisition import AnnotatorRule, ItemRule, Value
from crowdwise.active.state import Proposal, State, allowed, askable, joined, load_left, n_pairs
from crowdwise.core.constraints import (
    Bounds,
    Count,
    CountFromZero,
    NonNegative,
    Parameterised,
    RandomState,
    checked,
    declared,
)
from crowdwise.core.model import EMModel
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import ParameterError, suggestion
from crowdwise.online.stream import REFIT_FACTOR, Online, Step

CANDIDATES = 4
"""How many times as many items as are asked for are looked at closely."""
MIN_CANDIDATES = 50
DRAWS = 16
"""How many draws of the confusion matrices a batch is spread over: with one, the whole batch would go to the annotators
that the draw happens to favour."""
PRIOR_STRENGTH, SHRINKAGE = 9.0, 8.0
"""Of the stream, where the next votes depend on it: an item with one vote should look uncertain. Chosen on simulated
crowds, as all constants here."""
MAX_PEOPLE = 500
"""The most annotators that are looked at closely: those with the best scores."""
MIN_SHARE = 1 / 16
"""The least share of a batch that an annotator may get: it need not be spread wider."""


@declared
class Strategy(Parameterised):
    """How a batch is chosen.

    Parameters
    ----------
    items
        ``"random"``, ``"least-confident"``, ``"margin"`` or ``"entropy"``: which items come first (with ``joint``, are
        looked at closely).
    annotators
        ``"random"``, ``"greedy"``, ``"epsilon-greedy"``, ``"ucb"`` or ``"thompson"``: which annotators to ask. With
        ``joint``, ``"thompson"`` draws confusion matrices and all else takes their means.
    joint
        Choose pairs by the value of the vote, not items first and annotators then.
    value
        With ``joint``: ``"information"`` or ``"error-reduction"``.
    per_price
        Divide the value of an annotator by the price of a vote.
    trial_votes
        Where prices differ: annotators are new until they have given so many votes, times the square root of the items
        there are for each annotator, on items that others voted on, too. New annotators who may be worth their price
        are asked first, together about few items, each of which gets up to 24 votes;
        after that means take the place of draws. 0: no trials.
    spread
        No annotator gets more than so many times an equal share of a batch (or a sixteenth of it, if that is more), as
        long as others are left: a whole batch given to one lucky annotator is money lost. 0: no such limit.
    overlap
        Items with fewer votes come first.
    gold_rate
        The share of questions about items whose class is known.
    votes_per_item
        How many annotators an item may get in one batch.
    step
        The steps of the stream that goes with it (see :class:`crowdwise.Online`): ``None``, exact statistics. Decayed
        ones count an item again whenever it gets a vote, so that uncertain items, which are asked about most, come to
        outweigh the others and annotators look worse than they are; such a stream is never refit, as in the tutorial.
    """

    items: ItemRule = "entropy"
    annotators: AnnotatorRule = "thompson"
    joint: bool = True
    value: Value = "information"
    per_price: bool = True
    trial_votes: NonNegative = 5.0
    spread: NonNegative = 4.0
    overlap: CountFromZero = 1
    gold_rate: Annotated[float, Bounds(minimum=0, below=1)] = 0.0
    votes_per_item: Count = 1
    step: Step = None

    def __post_init__(self) -> None:
        self.check_parameters()

    def stream(self, model: EMModel, classes: Any) -> Online:
        """A stream for the votes that this strategy asks for."""
        refit = REFIT_FACTOR if self.step is None else None
        return Online(
            model, step=self.step, refit_factor=refit, prior_strength=PRIOR_STRENGTH, shrinkage=SHRINKAGE,
            classes=classes,
        )  # fmt: skip

    @checked
    def propose(self, state: State, n: Count, random_state: RandomState = 0) -> Proposal:
        """Up to n pairs to be asked; fewer where the constraints leave no more."""
        rng = np.random.default_rng(random_state)
        tests = int(rng.binomial(n, self.gold_rate)) if state.gold.any() else 0
        gold = self._batch(state, np.flatnonzero(state.gold), tests, rng, uncertain=False) if tests else []
        rest = np.flatnonzero(~state.closed & ~state.gold)
        tried = self._trials(state, rest, n - n_pairs(gold), rng, gold)
        others = np.ones(len(state.item_names), dtype=bool)  # items of trials have votes enough for one batch
        for p in tried:
            others[p.item] = False
        taken = [*gold, *tried]
        return joined([*tried, *self._batch(state, rest[others[rest]], n - n_pairs(taken), rng, taken), *gold])

    def _has_trials(self, state: State) -> bool:
        """Whether new annotators are tried: where prices differ."""
        price = state.price[state.available]
        return self.trial_votes > 0 and len(price) > 0 and bool(price.max() > price.min())

    def _rule(self, state: State) -> AnnotatorRule:
        """How annotators are ranked: without random choices, and without draws where there are trials."""
        means = self.annotators == "epsilon-greedy" or (self.annotators == "thompson" and self._has_trials(state))
        return "greedy" if means else self.annotators

    def _trials(
        self, state: State, items: Ints, n: int, rng: np.random.Generator, taken: list[Proposal]
    ) -> list[Proposal]:
        """Votes of new annotators, together on few items."""
        made: list[Proposal] = []
        if not self._has_trials(state):
            return made
        need = votes_needed(state, self.trial_votes, rng)
        n = min(n, int(need.sum()))
        if n <= 0:
            return made
        some = trial_items(state, items, need, n, rng)
        anybody = replace(self, items="random", annotators="random", joint=False, per_price=False)
        for round_ in range(MAX_VOTES):
            here = some[state.votes_per_item[some] + round_ < MAX_VOTES]
            load = load_left(np.minimum(need, state.load), [*taken, *made])
            people = np.flatnonzero(load >= 1.0)
            found = anybody._round(state, here, people, load, n - n_pairs(made), [*taken, *made], rng)
            if len(found) == 0:
                break
            made.append(replace(found, value=self.expected_value(state, found)))
        return made

    def expected_value(self, state: State, asked: Proposal) -> Floats:
        """The value of some votes under the mean confusion matrices."""
        theta, each = acquisition.mean(state.dirichlet_of(asked.item, asked.annotator)), np.arange(len(asked))
        value = acquisition.values_of(state.posterior[asked.item], theta, self.value, each, each)
        return value / asked.price if self.per_price else value

    def _batch(
        self, state: State, items: Ints, n: int, rng: np.random.Generator, taken: Sequence[Proposal] = (),
        uncertain: bool = True,
    ) -> list[Proposal]:  # fmt: skip
        """Rounds in which an item gets at most one annotator each, until there are n pairs or no more can be made."""
        rounds, made = list(taken), list[Proposal]()
        people = int((state.available & (state.load >= 1.0)).sum())
        share = np.ceil(n * max(self.spread / max(people, 1), MIN_SHARE)) if self.spread else np.inf
        for _ in range(self.votes_per_item):
            before, free = len(made), items
            for most in dict.fromkeys((share, np.inf)):  # where shares leave questions over, anybody may have them
                load = load_left(np.minimum(state.load, most), rounds)
                here = np.flatnonzero(state.available & (load >= 1.0))
                found = self._round(state, free, here, load, n - n_pairs(made), rounds, rng, uncertain)
                if len(found):
                    made.append(found)
                    rounds.append(found)
                    free = free[~np.isin(free, found.item)]
            if len(made) == before:
                break
        return made

    def _round(
        self, state: State, items: Ints, people: Ints, load: Floats, n: int, taken: Sequence[Proposal],
        rng: np.random.Generator, uncertain: bool = True,
    ) -> Proposal:  # fmt: skip
        """The best n pairs or fewer, one for an item at most."""
        if state.possible is not None:  # only items with an annotator left to ask
            items = items[state.possible.indptr[items + 1] > state.possible.indptr[items]]
        if n <= 0 or len(items) == 0 or len(people) == 0:
            return joined([])
        weight = np.ones(len(state.posterior)) if state.weight is None else state.weight
        rule: ItemRule = self.items if uncertain else "random"
        score = weight[items] * acquisition.item_scores(state.posterior[items], rule, rng)
        score = score + 1e-9 * rng.random(len(score))  # equals in random order
        lift = 1e3 * max(1.0, float(weight.max()))  # more than any value: items that are short of votes come first
        score = score + np.where(state.votes_per_item[items] < self.overlap, lift, 0.0)
        size = n if not self.joint else max(CANDIDATES * n, MIN_CANDIDATES)
        if state.possible is not None or not self.joint:
            size = max(size, MIN_CANDIDATES + CANDIDATES * n)  # some may turn out to have no annotator left to ask
        chosen = items[_top(score, size)]
        people = self._people(state, people, load, n, rng)
        pairs = None if state.possible is None else askable(state, chosen, people, taken)
        value = self._values(state, chosen, people, pairs, rng)
        if self.joint:
            raised = np.where(state.votes_per_item[chosen] < self.overlap, lift, 0.0)
        else:  # the order of the items decides; the annotators' values only who takes which
            raised = -2.0 * (np.abs(value).max(initial=0.0) + 1.0) * np.arange(len(chosen))
        if pairs is None:
            table = np.where(allowed(state, chosen, people, taken), value + raised[:, None], -np.inf)
            row, column = assign(table, load[people], n)
            value = value[row, column]
        else:
            some = assign_pairs(*pairs, value + raised[pairs[0]], load[people], n)
            row, column, value = pairs[0][some], pairs[1][some], value[some]
        return Proposal(chosen[row], people[column], value, state.price[people[column]])

    def _people(self, state: State, people: Ints, load: Floats, n: int, rng: np.random.Generator) -> Ints:
        """The annotators to look at closely: those with the best scores, where there are very many."""
        if state.possible is not None or len(people) <= MAX_PEOPLE:
            return people
        score = acquisition.annotator_scores(state.dirichlet[people], state.prior, self._rule(state), rng)
        score = score - 1.0 / len(state.classes)  # a price is paid for what is better than chance
        score = score / state.price[people] if self.per_price else score
        order = np.argsort(-score - 1e-9 * rng.random(len(score)), kind="stable")
        enough = int(np.searchsorted(np.cumsum(np.minimum(load[people[order]], n)), CANDIDATES * n) + 1)
        return np.asarray(people[order[: max(MAX_PEOPLE, enough)]])

    def _values(
        self, state: State, items: Ints, people: Ints, pairs: tuple[Ints, Ints] | None, rng: np.random.Generator
    ) -> Floats:
        """C x A, or of some pairs only (the places of the item and of the annotator)."""
        shape = (len(items), len(people)) if pairs is None else pairs[0].shape
        place, column = (np.arange(shape[0]), np.arange(len(people))) if pairs is None else pairs
        if state.group_dirichlet is not None:
            code, value = state.groups[0][items], np.empty(shape)
            for z in np.unique(code).tolist():
                some, here = np.flatnonzero(code == z), code[place] == z
                mine = None if pairs is None else (np.searchsorted(some, place[here]), column[here])
                known = state.dirichlet if z < 0 else state.group_dirichlet[z]
                alone = state.replace(dirichlet=known, group_dirichlet=None)
                value[here] = self._values(alone, items[some], people, mine, rng)
            return value
        dirichlet, rule = state.dirichlet[people], self._rule(state)

        def under(theta: Floats, here: Any = slice(None)) -> Floats:
            """Of all pairs of some rows, or of some pairs, under some confusion matrices."""
            if self.joint:
                q = state.posterior[items]
                if pairs is None:
                    return acquisition.pair_values(q[here], theta, self.value)
                return acquisition.values_of(q, theta, self.value, place[here], column[here])
            if rule == "thompson":
                score = np.einsum("mkk->mk", theta) @ state.prior
            else:
                score = acquisition.annotator_scores(dirichlet, state.prior, rule, rng)
            return np.asarray(score[None] if pairs is None else score[column[here]])

        if rule == "thompson":
            value = np.empty(shape)
            for d in range(min(DRAWS, len(items))):  # items are dealt out to several draws
                here = place % DRAWS == d
                value[here] = under(acquisition.draw(dirichlet, rng), here)
        elif self.annotators == "random" and not self.joint:
            value = rng.random(shape)
        else:
            value = np.broadcast_to(under(acquisition.mean(dirichlet)), shape)
        if self.annotators == "epsilon-greedy" and not self.joint:
            explored = (rng.random(len(items)) < acquisition.epsilon(state.n_votes))[place]
            value = np.where(explored[:, None] if pairs is None else explored, rng.random(shape), value)
        if self.per_price:
            value = value / state.price[people][column]
        if self.joint and state.weight is not None:
            weight = state.weight[items][place]
            value = value * (weight[:, None] if pairs is None else weight)
        return np.asarray(value + 1e-9 * rng.random(shape))  # equals in random order


PLAIN: dict[str, Any] = {"per_price": False, "trial_votes": 0, "spread": 0}
STRATEGIES: dict[str, Strategy] = {
    "random": Strategy(items="random", annotators="random", joint=False, **PLAIN),
    "entropy-random": Strategy(annotators="random", joint=False, **PLAIN),
    "tutorial": Strategy(annotators="epsilon-greedy", joint=False, step=0.6, **PLAIN),
    "ucb": Strategy(annotators="ucb", joint=False, **PLAIN),
    "thompson": Strategy(annotators="thompson", joint=False, **PLAIN),
    "information": Strategy(annotators="greedy", **PLAIN),
    "value": Strategy(),
}
"""All strategies by name."""
DEFAULT = "value"


def find_strategy(name: str | Strategy) -> Strategy:
    """A strategy by its name, or the strategy itself."""
    if isinstance(name, Strategy):
        return name
    if name not in STRATEGIES:
        raise ParameterError(
            f"Unknown strategy {name!r}: there are {', '.join(STRATEGIES)}.{suggestion(str(name), list(STRATEGIES))}"
        )
    return replace(STRATEGIES[name])


def _top(score: Floats, n: int) -> Ints:
    """The places of the n largest, largest first."""
    if n < len(score):
        some = np.argpartition(-score, n)[:n]
        return np.asarray(some[np.argsort(-score[some], kind="stable")])
    return np.argsort(-score, kind="stable")


SPARE = 3
EXACT = 300_000
"""The most cells (items x slots) of a problem that is solved exactly."""


def assign(value: Floats, capacity: Floats, n: int) -> tuple[Ints, Ints]:
    """The rows and columns of the chosen pairs, best first.

    Parameters
    ----------
    value
        C x A; ``-inf`` where a pair must not be.
    capacity
        A: how many rows a column may take.
    n
        How many pairs at most.
    """
    C, A = value.shape
    if C == 0 or A == 0 or n <= 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    value = np.where(capacity >= 1, value, -np.inf)
    best = value.argmax(axis=1)
    top = value[np.arange(C), best]
    rows = np.argsort(-top, kind="stable")[:n]
    rows = rows[np.isfinite(top[rows])]
    if (np.bincount(best[rows], minlength=A) <= capacity).all():
        return rows, best[rows]
    return _solved(value, capacity, n)


def assign_pairs(row: Ints, column: Ints, value: Floats, capacity: Floats, n: int) -> Ints:
    """As :func:`assign` where only some pairs can be: the places of the chosen ones among them, best first."""
    if len(row) == 0 or n <= 0:
        return np.empty(0, dtype=np.int64)
    order = np.lexsort((-value, row))
    order = order[capacity[column[order]] >= 1]
    best = order[np.concatenate([[True], row[order][1:] != row[order][:-1]])] if len(order) else order
    best = best[np.argsort(-value[best], kind="stable")][:n]
    if (np.bincount(column[best], minlength=len(capacity)) <= capacity).all():
        return np.asarray(best)
    rows, local = np.unique(row, return_inverse=True)
    place = np.full((len(rows), len(capacity)), -1)
    place[local, column] = np.arange(len(row))
    taken = assign(np.where(place >= 0, value[place], -np.inf), capacity, n)
    return np.asarray(place[taken])


def _solved(value: Floats, capacity: Floats, n: int) -> tuple[Ints, Ints]:
    from scipy.optimize import linear_sum_assignment

    C, A = value.shape
    n = min(n, C)
    # No annotator needs more slots than there are items that want them.
    useful = np.minimum(np.minimum(capacity, n), np.isfinite(value).sum(axis=0)).astype(np.int64)
    if useful.sum() > SPARE * C:
        worth = np.where(np.isfinite(value), value, 0.0).sum(axis=0) / np.maximum(np.isfinite(value).sum(axis=0), 1)
        order = np.argsort(-worth, kind="stable")
        dropped = order[np.cumsum(useful[order]) - useful[order] >= SPARE * C]
        useful[dropped] = 0
    if C * int(useful.sum()) > EXACT:
        return _greedy(value, useful, n)
    slots = np.repeat(np.arange(A), useful)
    gain = value[:, slots]
    allowed = np.isfinite(gain)
    scale = float(np.abs(gain[allowed]).max()) + 1.0 if allowed.any() else 1.0
    # Filling a slot is worth more than any value, so that as many pairs are made as can be; being left out is worth
    # nothing, and a pair that must not be is worse than that.
    lift = scale * (C + 1.0)
    left_out = np.zeros((C, C))
    whole = np.concatenate([np.where(allowed, gain + lift, -lift * (C + 1.0)), left_out], axis=1)
    if n < C:  # at most n pairs: C - n rows must take an empty column, which is then worth more than any pair
        whole[:, len(slots) : len(slots) + C - n] = 2.0 * lift * (C + 1.0)
    row, column = linear_sum_assignment(whole, maximize=True)
    taken = column < len(slots)
    row, column = row[taken], slots[column[taken]]
    fine = np.isfinite(value[row, column])
    row, column = row[fine], column[fine]
    order = np.argsort(-value[row, column], kind="stable")
    return row[order], column[order]


def _greedy(value: Floats, capacity: Ints, n: int) -> tuple[Ints, Ints]:
    """The best pair that is left, again and again.

    That is the stable matching of items and annotators who all go by the same values (Gale and Shapley): in a round
    every item without an annotator turns to the best that has not refused it, and annotators keep the best of all who
    turned to them, as many as they have room for.
    """
    C, A = value.shape
    open_ = np.where(capacity > 0, value, -np.inf)
    held = np.full(C, -1)
    left = np.arange(C)
    while len(left):
        best = open_[left].argmax(axis=1)
        fine = np.isfinite(open_[left, best])
        held[left[fine]] = best[fine]
        row = np.flatnonzero((held >= 0) & np.isin(held, best[fine]))
        order = row[np.lexsort((-value[row, held[row]], held[row]))]
        rank = np.arange(len(order)) - np.searchsorted(held[order], held[order])
        left = order[rank >= capacity[held[order]]]
        open_[left, held[left]] = -np.inf
        held[left] = -1
    row = np.flatnonzero(held >= 0)
    row = row[np.argsort(-value[row, held[row]], kind="stable")][:n]
    return row, held[row]


MAX_VOTES = 24
"""How many votes an item of a trial gets at most."""
TRIAL_DRAWS = 32
"""Draws of the confusion matrices for an expected improvement."""


def going_rate(gain: Floats, price: Floats, whole: float) -> float:
    """The gain per price of the last of those annotators who, best first, gain ``whole`` together (or of all).

    >>> import numpy as np
    >>> going_rate(np.array([0.5, 0.6, 0.5, 0.1]), np.array([1.0, 2.0, 1.0, 1.0]), 1.2)
    0.3
    """
    rate = gain / price
    order = np.argsort(-rate, kind="stable")
    last = min(int(np.searchsorted(np.cumsum(gain[order]), whole)), len(order) - 1)
    return float(rate[order[last]])


def expected_improvement(
    dirichlet: Floats, price: Floats, prior: Floats, rate: float, rng: np.random.Generator
) -> Floats:
    """M: the expectation of max(0, gain per price - rate) of a vote."""
    out = np.zeros(len(price))
    for _ in range(TRIAL_DRAWS):
        gain = acquisition.pair_values(prior[None], acquisition.draw(dirichlet, rng), "information")[0]
        out += np.maximum(gain / price - rate, 0.0)
    return out / TRIAL_DRAWS


def votes_needed(state: State, trial_votes: float, rng: np.random.Generator) -> Floats:
    """M: how many more votes each annotator should give on trial; 0 for those who are known or not worth a trial."""
    need = np.zeros(len(state.price))
    people = np.flatnonzero(state.available & (state.load >= 1.0))
    prior = state.prior
    whole = float(acquisition.bits(prior).sum())
    left = float(acquisition.bits(state.posterior[~state.closed]).sum()) / max(whole, 1e-9)
    enough = float(np.ceil(trial_votes * np.sqrt(left / max(len(people), 1))))
    size = np.diff(state.voted.indptr)
    shared = np.bincount(state.voted.annotator[np.repeat(size > 1, size)], minlength=len(need))[people]
    new = np.flatnonzero(shared < enough)
    if len(new) == 0:
        return need
    price = state.price[people]
    gain = acquisition.pair_values(prior[None], acquisition.mean(state.dirichlet[people]), "information")[0]
    rate = going_rate(gain, (shared * price + enough * price.mean()) / (shared + enough), whole)
    improvement = expected_improvement(state.dirichlet[people[new]], price[new], prior, rate, rng)
    new = new[left * improvement > enough * rate]
    need[people[new]] = enough - shared[new]
    return need


def trial_items(state: State, items: Ints, need: Floats, n: int, rng: np.random.Generator) -> Ints:
    """The items for n votes on trial, best first: those with most votes, while there is room for another."""
    votes = state.votes_per_item[items]
    room = MAX_VOTES - votes
    if state.possible is not None:
        place, who = state.possible.among(items)
        room = np.minimum(room, np.bincount(place[need[who] > 0], minlength=len(items)))
    weight = np.ones(len(items)) if state.weight is None else state.weight[items]
    order = np.lexsort((rng.random(len(items)), -weight, -votes))
    order = order[room[order] > 0]
    # Room for all the votes, and as many items as the annotator who needs most of them.
    enough = int(np.searchsorted(np.cumsum(room[order]), n)) + 1
    return np.asarray(items[order[: max(enough, int(need.max(initial=0.0)))]])
