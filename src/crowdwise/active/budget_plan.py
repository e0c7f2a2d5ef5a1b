"""A budget, a crowd: how many items, and how many votes on each?

With B votes to spend, N = B / l items can have l votes each. Few votes leave wrong labels; many leave few labels. What
is best depends on the crowd, and on what the labels are for: a crowd like the one at hand is made to vote on new items
(or, where a classifier is to be learned, on the inputs at hand), once for each l and seed, and what comes out is
measured.

===================  ================================================================================================
theta, pi            confusion matrices and prior of the crowd, from a fit of its votes
activity             how likely each annotator is to be the next to vote: the share of votes each gave
``accuracy``         the share of labels that are right
``right``            how many labels are right, N times that: what counts where labels themselves are wanted
``test``             the accuracy of a classifier learned from the N inputs and B votes, on inputs of its own
===================  ================================================================================================

**It fails** where the fit fails (matrices that are wrong make another crowd), and knows nothing of hard and easy items
or of annotators who tire. Inputs are given the classes that the fit says they have (or their truth where it is
known). Learners gain from many items with few votes: H. Kim et al., DeepBP (2022), appendix A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.simulate.crowds import answer

MEASURES = ("accuracy", "right", "test")
CHUNK = 1_000_000
"""The most cells (items x annotators) of the table by which votes are dealt out that are held at once."""

__all__ = ["Crowd", "Inputs", "Plan", "Row", "make_plan"]


@dataclass(frozen=True, eq=False)
class Crowd:
    """What is known of a crowd: enough to let it vote again."""

    classes: Sequence[Any]
    confusion: Floats
    """M x K x K, axis 1 the truth."""
    prior: Floats
    activity: Floats
    """M: how likely each annotator is to be the next to vote."""

    @classmethod
    def of(cls, votes: Votes, confusion: Floats | None, prior: Floats) -> Crowd:
        """The crowd of a fit."""
        if confusion is None:
            raise ParameterError("The method has no confusion matrices to make a crowd from: take dawid-skene, say.")
        given = np.bincount(votes.annotator, minlength=votes.n_annotators)
        return cls(
            votes.classes.tolist(),
            np.asarray(confusion),
            np.asarray(prior),
            normalise(given.astype(np.float64), axis=0),
        )

    def vote(self, truth: Ints, votes_per_item: int, rng: np.random.Generator) -> Votes:
        """So many votes on each of some items, by annotators who come as often as they do."""
        M, N = len(self.confusion), len(truth)
        if votes_per_item > M:
            raise ParameterError(f"votes_per_item={votes_per_item}: the crowd has {M} annotators, who vote once each.")
        hope = np.log(np.maximum(self.activity, 1e-12))
        step = max(1, CHUNK // M)
        dealt = [  # the largest of log p + Gumbel are a draw without replacement
            np.argpartition(-(hope + rng.gumbel(size=(min(step, N - lo), M))), votes_per_item - 1, axis=1)
            for lo in range(0, N, step)
        ]
        who = np.concatenate([d[:, :votes_per_item] for d in dealt]).ravel()
        item = np.repeat(np.arange(N), votes_per_item)
        return Votes.from_codes(
            item, who, answer(self.confusion, who, truth[item], rng), items=np.arange(N),
            annotators=np.arange(M), classes=list(self.classes), truth=truth,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a classifier can be learned from and tested on; classes are codes."""

    X: Any
    classes: Ints
    X_test: Any
    classes_test: Ints

    def __post_init__(self) -> None:
        for name, x, k in (("X", self.X, self.classes), ("X_test", self.X_test, self.classes_test)):
            if len(x) != len(k) or len(k) == 0:
                raise InputError(f"{name}: expected as many rows as classes, one at least; found {len(x)}, {len(k)}.")


@dataclass(frozen=True)
class Row:
    """One crowd that was let vote."""

    votes_per_item: int
    items: int
    seed: int
    accuracy: float
    right: float
    test: float | None = None


@dataclass(frozen=True)
class Plan:
    """What came out, for each number of votes per item."""

    budget: int
    rows: list[Row] = field(repr=False)

    @property
    def choices(self) -> list[int]:
        return sorted({row.votes_per_item for row in self.rows})

    def items(self, votes_per_item: int) -> int:
        return next(row.items for row in self.rows if row.votes_per_item == votes_per_item)

    def summary(self, measure: str) -> list[tuple[float, float, float]]:
        """Mean, and the band in which four of five seeds lie, for each number of votes per item."""
        if measure not in MEASURES:
            raise ParameterError(f"measure={measure!r}: expected {', '.join(map(repr, MEASURES))}.")
        out = []
        for choice in self.choices:
            found = [getattr(row, measure) for row in self.rows if row.votes_per_item == choice]
            if None in found:
                raise ParameterError("No classifier was learned: hand over inputs and a learner.")
            low, high = np.quantile(found, [0.1, 0.9]).tolist()
            out.append((float(np.mean(found)), low, high))
        return out

    def best(self, measure: str) -> int:
        """The number of votes per item at which the mean is largest; the smaller of two that are alike."""
        means = [mean for mean, _, _ in self.summary(measure)]
        return self.choices[int(np.argmax(means))]


@dataclass(frozen=True, eq=False)
class Trial:
    """One crowd to be let vote; it can be sent to another process."""

    crowd: Crowd
    budget: int
    votes_per_item: int
    seed: int
    model: Callable[[], Any]
    learner: Callable[[int], Any] | None = None
    inputs: Inputs | None = None

    def __call__(self) -> Row:
        rng = np.random.default_rng([self.seed, self.votes_per_item])
        N = self.budget // self.votes_per_item
        if self.inputs is None:
            truth = rng.choice(len(self.crowd.prior), size=N, p=self.crowd.prior)
        else:
            chosen = np.sort(rng.permutation(len(self.inputs.classes))[:N])
            truth, N = self.inputs.classes[chosen], len(chosen)
        votes = self.crowd.vote(truth, self.votes_per_item, rng)
        accuracy = float(self.model().fit(votes).consensus_.score(truth))
        test = None
        if self.learner is not None and self.inputs is not None:
            made = self.learner(self.seed).fit(np.asarray(self.inputs.X)[chosen], votes)
            said = np.asarray(made.predict_proba(self.inputs.X_test)).argmax(axis=1)
            test = float((said == self.inputs.classes_test).mean())
        return Row(self.votes_per_item, N, self.seed, accuracy, accuracy * N, test)


def make_plan(
    crowd: Crowd,
    budget: int,
    model: Callable[[], Any],
    *,
    votes_per_item: Sequence[int] = (1, 2, 3, 5, 9),
    seeds: int = 10,
    learner: Callable[[int], Any] | None = None,
    inputs: Inputs | None = None,
    run: Callable[[Iterable[Trial]], Iterator[Row]] | None = None,
) -> Plan:
    """Let the crowd vote, for each number of votes per item.

    Parameters
    ----------
    crowd
        See :meth:`Crowd.of`.
    budget
        How many votes can be paid for.
    model
        Makes the model that turns votes into labels.
    votes_per_item
        What to try. The number of items is the budget divided by it (with inputs: no more than there are).
    learner
        Makes a learner from a seed, to be fitted with inputs and votes.
    inputs
        What the learner learns from and is tested on.
    run
        Runs the trials, in parallel say; by default one after the other.
    """
    if not isinstance(budget, (int, np.integer)) or isinstance(budget, bool) or budget < 1:
        raise ParameterError(f"budget={budget!r}: expected a whole number of votes, 1 at least.")
    if not isinstance(seeds, (int, np.integer)) or seeds < 1:
        raise ParameterError(f"seeds={seeds!r}: expected a whole number of at least 1.")
    choices = sorted(set(votes_per_item))
    M = len(crowd.confusion)
    wrong = [c for c in choices if not isinstance(c, (int, np.integer)) or not 1 <= c <= min(M, budget)]
    if wrong or not choices:
        raise ParameterError(
            f"votes_per_item={list(votes_per_item)!r}: expected whole numbers from 1 to {min(M, budget)} "
            f"(there are {M} annotators, who vote on an item once, and {budget} votes)."
        )
    if (learner is None) != (inputs is None):
        raise ParameterError("learner and inputs go together: give both, or neither.")
    trials = [
        Trial(crowd, int(budget), int(choice), seed, model, learner, inputs)
        for choice in choices
        for seed in range(int(seeds))
    ]
    return Plan(int(budget), list((run or (lambda some: (trial() for trial in some)))(trials)))
