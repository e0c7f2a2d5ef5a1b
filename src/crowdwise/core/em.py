"""Expectation-maximisation: the two steps, acceleration, convergence.

A model gives two pure functions, ``expect(part, params) -> stats`` and ``maximise(stats) -> params``. The statistics
add up over any split of the votes, so the same pair serves one thread or many, a stream or a cluster. This file
alternates the two until they converge, wherever the votes are (:class:`Engine`).

Acceleration is SQUAREM (Varadhan and Roland 2008) in the space of the expected counts, where every model of the family
has its state, with three guards:

- it waits until plain EM is near an optimum (the gain per vote is under ``NEAR``): an early extrapolation can land in
  the basin of a worse one;
- an extrapolation may move at most ``REACH`` of the votes' mass from class to class;
- an extrapolation that lowers the objective is undone, so the trace never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import numpy as np

from crowdwise import kernels
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError

NEAR = 3e-5
REACH = 0.002


_cells: WeakKeyDictionary[Votes, ref[Ints]] = WeakKeyDictionary()
"""The cells of votes for as long as another owner holds them, a GPU that has these votes say."""


def _cells_of(votes: Votes) -> Ints:
    """The cell of each vote: see :meth:`crowdwise.Votes.cells`."""
    kept = _cells.get(votes)
    cell = None if kept is None else kept()
    if cell is None:
        cell = votes.cells()
        _cells[votes] = ref(cell)
    return cell


@dataclass(frozen=True)
class Part:
    """Some votes as raw arrays, the way the kernels take them (cell = annotator * K + label)."""

    indptr: Ints
    cell: Ints
    weight: Floats
    truth: Ints
    n_annotators: int
    n_classes: int
    item_prior: Floats | None = None

    @classmethod
    def of(
        cls, votes: Votes, truth: Ints | None = None, item_prior: Floats | None = None, cell: Ints | None = None
    ) -> Part:
        """All of the votes; ``item_prior`` is an N x K log prior, one row per item, ``cell`` that of each vote."""
        M, K = votes.n_annotators, votes.n_classes
        cell = _cells_of(votes) if cell is None else cell
        weight = np.empty(0) if votes.weight is None else votes.weight
        truth = np.empty(0, np.int32) if truth is None else truth
        return cls(votes.indptr, cell, weight, truth, M, K, item_prior)

    @property
    def n_cells(self) -> int:
        return self.n_annotators * self.n_classes

    @property
    def n_votes(self) -> float:
        """The total weight of the votes."""
        return float(self.weight.sum()) if len(self.weight) else float(len(self.cell))

    def split(self, lo: int, hi: int) -> Part:
        """The items ``lo`` to ``hi`` (exclusive)."""
        rows = slice(self.indptr[lo], self.indptr[hi])
        return replace(
            self, indptr=self.indptr[lo : hi + 1] - self.indptr[lo], cell=self.cell[rows], weight=self.weight[rows],
            truth=self.truth[lo:hi], item_prior=None if self.item_prior is None else self.item_prior[lo:hi],
        )  # fmt: skip

    def expect(self, params: Params) -> Stats:
        """The statistics of these votes under some parameters, by the threads of this machine."""
        return expect(self, params)[0]


@dataclass(frozen=True)
class Stats:
    """The statistics of a pass over votes; those of disjoint parts add up to those of the whole.

    ``counts[m * K + l, k]`` is the expected number of times annotator m said l when the truth was k,
    ``mass[k]`` the expected number of items of class k (for chains (1 + K) x K: of first tags, and of neighbours).
    """

    counts: Floats
    mass: Floats
    log_likelihood: float = 0.0

    def __add__(self, other: Stats) -> Stats:
        return Stats(self.counts + other.counts, self.mass + other.mass, self.log_likelihood + other.log_likelihood)

    def table(self) -> Floats:
        """The counts as c[m, l, k]."""
        K = self.counts.shape[1]
        return self.counts.reshape(-1, K, K)

    def params(self, theta: Floats, class_prior: Floats | None, even_items: float = 0.0) -> Params:
        """Parameters with these theta[m, l, k], and a class prior: the given one, or from the mass of the classes."""
        return Params(safe_log(theta).reshape(self.counts.shape), log_class_prior(self.mass, class_prior, even_items))


@dataclass(frozen=True)
class Params:
    """The parameters of a pass: log s[m * K + l, k] and the log prior of the classes (1 x K; chains: (1 + K) x K)."""

    log_score: Floats
    log_prior: Floats

    def confusion(self) -> Floats:
        """theta[m, k, l] from the scores, rows normalised."""
        K = self.log_score.shape[1]
        theta = np.exp(self.log_score.reshape(-1, K, K)).transpose(0, 2, 1)
        return np.asarray(theta / theta.sum(axis=2, keepdims=True))


class Family(Protocol):
    """How parameters come from statistics, and the objective."""

    def maximise(self, stats: Stats) -> Params: ...

    def objective(self, log_likelihood: float, params: Params) -> float: ...


class Engine(Protocol):
    """Where the votes are: what the loop asks of them. A :class:`Part` is one, in memory;
    :class:`crowdwise.core.vote_parts.VoteParts` another, in parts that are loaded one at a time."""

    @property
    def n_votes(self) -> float:
        """The total weight of the votes."""
        ...

    def expect(self, params: Params) -> Stats:
        """The statistics of all votes under some parameters."""
        ...


Expectation = Callable[[Any, Params], Stats]


@dataclass(frozen=True)
class EMFit:
    """The end of a run of EM."""

    params: Params
    trace: Floats
    iterations: int
    converged: bool

    @property
    def outcome(self) -> dict[str, Any]:
        """Trace, iterations and convergence, as every result has them."""
        return {"trace": self.trace, "iterations": self.iterations, "converged": self.converged}

    @property
    def objective(self) -> float:
        return float(self.trace[-1])


def best_fit(fits: Iterable[EMFit], margin: float = 0.0) -> EMFit:
    """The fit with the highest objective; a later one only where it is higher by more than the margin.

    Starts that end at the same optimum differ by rounding: with a margin the first of them is taken.
    """
    best: EMFit | None = None
    for fit in fits:
        if best is None or fit.objective > best.objective + margin:
            best = fit
    assert best is not None
    return best


def log_class_prior(mass: Floats, fixed: Floats | None, even_items: float = 0.0) -> Floats:
    """1 x K: the logarithm of the class prior, fixed or from the expected number of items of each class; there
    ``even_items`` more are spread evenly over the classes."""
    return safe_log(normalise(mass + even_items / len(mass), axis=0) if fixed is None else fixed)[None]


def expect(part: Part, params: Params, *, posterior: bool = False) -> tuple[Stats, Floats]:
    """The statistics of some votes under some parameters, and their N x K posterior where asked for."""
    check_engine()
    log_prior = params.log_prior if part.item_prior is None else params.log_prior + part.item_prior
    counts, mass, evidence, q = kernels.expect(
        part.indptr, part.cell, part.weight, params.log_score, log_prior, part.truth, posterior
    )
    return Stats(counts, mass, evidence), q


def check_engine() -> None:
    """Whether the engine exists, and runs on this machine."""
    name = kernels.asked_for()
    if name not in kernels.KERNEL_SETS:
        raise ParameterError(f"CROWDWISE_ENGINE={name!r} is not known. Choose from {', '.join(kernels.KERNEL_SETS)}.")
    if not kernels.available():
        raise ParameterError(
            "engine 'cuda' cannot be used here: there is no torch that finds a CUDA device. "
            "Leave the engine (and the variable CROWDWISE_ENGINE) out to compute on the processor."
        )


def statistics(part: Part, q: Floats) -> Stats:
    """The statistics that go with a given N x K posterior (a start, say)."""
    check_engine()
    return Stats(kernels.scatter(part.indptr, part.cell, part.weight, q, part.n_cells), q.sum(axis=0))


def count_moments(part: Part, q: Floats) -> tuple[Floats, Floats]:
    """The counts that go with a posterior and their variances, as c[m, k, l]."""
    counts, spread = (statistics(part, p).table().transpose(0, 2, 1).copy() for p in (q, q * (1.0 - q)))
    return counts, spread


def run_em(
    part: Engine, family: Family, start: Stats, *, max_iter: int = 500, tol: float = 1e-7, accelerate: bool = True,
    callback: Callback | None = None, restart: int = 0, expectation: Expectation | None = None,
) -> EMFit:  # fmt: skip
    """Alternate the two steps from some statistics until the objective gains less than ``tol`` per vote.

    An iteration is one pass over the votes, whether the point it tried was kept or not. ``expectation`` stands in for
    :func:`expect`: where items are not independent before the votes (their statistics add up over whole chains then),
    or count for their best class alone.
    """
    votes = max(part.n_votes, 1.0)
    rounds = Rounds(max_iter, votes, callback, restart)

    def step(stats: Stats) -> tuple[Params, Stats, float]:
        params = family.maximise(stats)
        new = part.expect(params) if expectation is None else expectation(part, params)
        return params, new, family.objective(new.log_likelihood, params)

    point = start
    recent: list[Stats] = []
    params: Params | None = None
    for _ in rounds:
        params, stats, objective = step(point)
        rounds.reached(objective, below=tol)
        recent = [*recent, point][-2:] if rounds.gain < NEAR else []
        point = stats
        if accelerate and len(recent) == 2 and rounds.another():
            further = extrapolate(recent[0], recent[1], point, votes)
            recent = []
            if further is not None:
                rounds.iterations += 1
                tried, stats, objective = step(further)
                if objective >= rounds.trace[-1]:
                    rounds.reached(objective)
                    params, point = tried, stats
    assert params is not None
    return EMFit(params, **rounds.outcome)


def extrapolate(x0: Stats, x1: Stats, x2: Stats, votes: float) -> Stats | None:
    """From three successive points, the SQUAREM step x0 - 2a r + a^2 v.

    Here r = x1 - x0, v = (x2 - x1) - r, a = -|r| / |v|. The step is shortened towards a = -1 (which is plain EM)
    until it stays within reach; counts that would turn negative become zero, and each cell keeps its total.
    ``None``: the step is too short to be worth a pass.
    """
    r, v = x1.counts - x0.counts, x2.counts - 2.0 * x1.counts + x0.counts
    r_mass, v_mass = x1.mass - x0.mass, x2.mass - 2.0 * x1.mass + x0.mass
    curvature = np.sqrt((v * v).sum() + (v_mass * v_mass).sum())
    if curvature == 0.0:
        return None
    a = -float(np.sqrt((r * r).sum() + (r_mass * r_mass).sum()) / curvature)
    while a < -1.01:
        counts = np.maximum(x0.counts - 2.0 * a * r + a * a * v, 0.0)
        total, target = counts.sum(axis=1, keepdims=True), x2.counts.sum(axis=1, keepdims=True)
        counts *= np.divide(target, total, out=np.zeros_like(total), where=total > 0.0)
        if np.abs(counts - x2.counts).sum() / 2.0 <= REACH * votes:
            mass = np.maximum(x0.mass - 2.0 * a * r_mass + a * a * v_mass, 0.0)
            return Stats(counts, mass * (x2.mass.sum() / mass.sum()))
        a = (a - 1.0) / 2.0
    return None
