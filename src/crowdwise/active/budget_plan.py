"""A budget, a crowd: how many items, and how many votes on each? (``docs/active-plan.md``)

With B votes to spend, N = B / l items can have l votes each. A crowd like the one at hand votes on new items (or, where
a classifier is to be learned, on the inputs at hand), once for each l and seed, and the results are measured:
``accuracy``, how many labels are ``right``, and the ``test`` accuracy of a classifier learned from inputs and votes.

Inputs have the classes of the fit, or their truth where it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from crowdwise.active.replays import BAND, Jobs, Progress, run_tasks
from crowdwise.active.votes_ahead import Promise
from crowdwise.core.constraints import Count, Fraction, RandomState, checked, is_count
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError

Measure = Literal["accuracy", "right", "test"]


class VotingCrowd(Protocol):
    """A crowd that can vote: :class:`crowdwise.simulate.FittedCrowd`, say."""

    @property
    def prior(self) -> Floats: ...

    @property
    def n_annotators(self) -> int: ...

    def vote(self, truth: Ints, votes_per_item: int, random_state: RandomState = 0) -> Votes: ...


@dataclass(frozen=True, eq=False)
class LearningInputs:
    """Inputs that a classifier can be learned from and tested on; classes are codes."""

    X: Any
    classes: Ints
    X_test: Any
    classes_test: Ints

    def __post_init__(self) -> None:
        for name, x, k in (("X", self.X, self.classes), ("X_test", self.X_test, self.classes_test)):
            if len(x) != len(k) or len(k) == 0:
                raise InputError(f"{name}: expected as many rows as classes, one at least; found {len(x)}, {len(k)}.")

    @classmethod
    @checked
    def split(cls, X: Any, classes: Ints, test_share: Fraction = 0.2, random_state: RandomState = 0) -> LearningInputs:
        """A random share of the inputs to test on, the others to learn from."""
        order, n = np.random.default_rng(random_state).permutation(len(classes)), int(test_share * len(classes))
        test, rest = order[:n], order[n:]
        return cls(X[rest], classes[rest], X[test], classes[test])


@dataclass(frozen=True)
class PlanRow:
    """One simulated crowd."""

    votes_per_item: int
    items: int
    seed: int
    accuracy: float
    right: float
    test: float | None = None


@dataclass(frozen=True)
class Plan:
    """The results for each number of votes per item."""

    budget: int
    rows: list[PlanRow] = field(repr=False)
    intervals: dict[int, tuple[float, float]] = field(default_factory=dict)
    """The interval of each accuracy, where it is not a band of simulated crowds."""

    @classmethod
    def of(cls, budget: int, promises: Sequence[Promise]) -> Plan:
        """A plan from accuracies with intervals, one for each number of votes per item."""
        items = [budget // int(p.votes_per_item) for p in promises]
        rows = [
            PlanRow(int(p.votes_per_item), n, 0, p.accuracy, p.accuracy * n)
            for p, n in zip(promises, items, strict=True)
        ]
        ends = {int(p.votes_per_item): (p.low, p.high) for p in promises}
        return cls(budget, rows, ends)

    def with_tests(self, learned: Plan) -> Plan:
        """The same accuracies with the test accuracies of another plan."""
        own = {row.votes_per_item: row for row in self.rows}
        rows = [
            replace(row, accuracy=own[row.votes_per_item].accuracy, right=own[row.votes_per_item].accuracy * row.items)
            for row in learned.rows
        ]
        return replace(self, rows=rows)

    @property
    def choices(self) -> list[int]:
        return sorted({row.votes_per_item for row in self.rows})

    def items(self, votes_per_item: int) -> int:
        return next(row.items for row in self.rows if row.votes_per_item == votes_per_item)

    @checked
    def summary(self, measure: Measure) -> list[tuple[float, float, float]]:
        """Mean, and the band in which four of five seeds lie, for each number of votes per item."""
        out = []
        for choice in self.choices:
            found = [getattr(row, measure) for row in self.rows if row.votes_per_item == choice]
            if None in found:
                raise ParameterError("No classifier was learned: hand over inputs and a learner.")
            low, high = np.quantile(found, BAND).tolist()
            if choice in self.intervals and measure != "test":
                low, high = (end * (self.items(choice) if measure == "right" else 1) for end in self.intervals[choice])
            out.append((float(np.mean(found)), low, high))
        return out

    def best(self, measure: Measure) -> int:
        """The number of votes per item at which the mean is largest; the smaller of two that are alike."""
        means = [mean for mean, _, _ in self.summary(measure)]
        return self.choices[int(np.argmax(means))]


@checked
def make_plan(
    crowd: VotingCrowd,
    budget: Count,
    model: Callable[[], Any],
    *,
    votes_per_item: Sequence[int] = (1, 2, 3, 5, 9),
    n_seeds: Count = 10,
    learner: Callable[[int], Any] | None = None,
    inputs: LearningInputs | None = None,
    n_jobs: Jobs = 1,
    progress: Progress | None = None,
) -> Plan:
    """Let a crowd vote, for each number of votes per item.

    Parameters
    ----------
    crowd
        :meth:`crowdwise.simulate.FittedCrowd.of` makes one from a fit.
    budget
        How many votes can be paid for.
    model
        Makes the model that turns votes into labels.
    votes_per_item
        What to try. The number of items is the budget divided by it (with inputs: no more than there are).
    n_seeds
        How many crowds for each number of votes per item.
    learner
        Makes a learner from a seed, to be fitted with inputs and votes.
    inputs
        What the learner learns from and is tested on.
    n_jobs
        Processes at a time; ``None``: as many as cores.
    progress
        Called with a name after each crowd.
    """
    choices = check_choices(votes_per_item, crowd.n_annotators, budget)
    if (learner is None) != (inputs is None):
        raise ParameterError("learner and inputs go together: give both, or neither.")
    runs = [(int(choice), seed) for choice in choices for seed in range(n_seeds)]
    tasks = [partial(_simulate, crowd, int(budget), choice, seed, model, learner, inputs) for choice, seed in runs]
    names = [f"{choice} votes per item" for choice, _ in runs]
    return Plan(int(budget), run_tasks(tasks, names, n_jobs, progress))


@checked
def check_choices(votes_per_item: Sequence[int], n_annotators: Count, budget: Count) -> list[int]:
    """Numbers of votes per item, sorted, or an error."""
    choices, most = sorted(set(votes_per_item)), min(n_annotators, budget)
    if not choices or not all(is_count(c) and 1 <= c <= most for c in choices):
        raise ParameterError(
            f"votes_per_item={list(votes_per_item)!r}: expected whole numbers from 1 to {most} "
            f"(there are {n_annotators} annotators, who vote on an item once, and {budget} votes)."
        )
    return choices


def _simulate(
    crowd: VotingCrowd, budget: int, votes_per_item: int, seed: int, model: Callable[[], Any],
    learner: Callable[[int], Any] | None, inputs: LearningInputs | None,
) -> PlanRow:  # fmt: skip
    """One crowd votes, and the results are measured; this can run in another process."""
    rng, N = np.random.default_rng([seed, votes_per_item]), budget // votes_per_item
    if inputs is None:
        truth = rng.choice(len(crowd.prior), size=N, p=crowd.prior)
    else:
        chosen = np.sort(rng.permutation(len(inputs.classes))[:N])
        truth, N = inputs.classes[chosen], len(chosen)
    votes = crowd.vote(truth, votes_per_item, rng)
    accuracy = float(model().fit(votes).consensus_.score(truth))
    test = None
    if learner is not None and inputs is not None:
        made = learner(seed).fit(np.asarray(inputs.X)[chosen], votes)
        said = np.asarray(made.predict_proba(inputs.X_test)).argmax(axis=1)
        test = float((said == inputs.classes_test).mean())
    return PlanRow(votes_per_item, N, seed, accuracy, accuracy * N, test)
