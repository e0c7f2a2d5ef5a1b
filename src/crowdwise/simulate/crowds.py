"""What every simulated crowd shares: the crowd itself, its steps, and the checks of what was asked for.

A scenario (:mod:`crowdwise.simulate`) checks its parameters, draws the truth, lets each annotator answer from a
table of probabilities (:func:`answer`), and hands all of it to :func:`collect`. Letters as in the scenarios."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import Bounds, Check, Count, RandomState, checked, is_count, is_number
from crowdwise.data.encoding import Codes
from crowdwise.data.folders import replacing, write_arrays
from crowdwise.data.heavy import pl
from crowdwise.data.table import Table
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]
Rng = np.random.Generator
VotesPerItem = int | float | None
Prior = Sequence[float] | npt.NDArray[np.float64] | None
Truth = Sequence[int] | npt.NDArray[Any] | None


Classes = Annotated[int, Bounds(minimum=2)]
Pair = Annotated[
    tuple[float, float],
    Check(lambda pair: len(pair) == 2 and all(is_number(x) and x > 0 for x in pair), "(a, b), two positive numbers"),
]
MeanAndDeviation = Annotated[
    tuple[float, float],
    Check(lambda pair: len(pair) == 2 and all(map(is_number, pair)) and pair[1] >= 0, "(mean, standard deviation)"),
]

T = TypeVar("T", bound=Table)


@dataclass(frozen=True, eq=False)
class SimulatedAnswers(Generic[T]):
    """A simulated crowd.

    Attributes
    ----------
    name
        The scenario.
    answers
        The table of answers, with the truth of every item where it can hold one.
    parameters
        What the answers were drawn from.
    features
        Arrays about the items, where the scenario has any (``x_train``).
    """

    name: str
    answers: T
    parameters: dict[str, Any] = field(repr=False)
    features: dict[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)

    @property
    def truth(self) -> Any:
        """What is true of every item, as the table holds it."""
        truth = getattr(self.answers, "truth", None)
        if truth is None:
            raise InputError("These answers have no truth: a simulated crowd is made with the truth of every item.")
        return truth

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a dataset folder that every command reads: all of it, or nothing.

        Answers go to ``labels.csv``, what is true of items to ``truth.csv``, numbers to ``parameters.npz``, names to
        ``meta.json`` (rows of ``confusion`` follow its ``annotators``, columns its ``classes``). A folder that holds
        anything is never touched.
        """
        with replacing(folder, "simulated crowd", manifest=False) as work:
            _write(self.answers.with_truth(None).to_frame("polars"), work / "labels")
            truth = self._truths()
            if truth is not None:
                one = truth.width == 2  # an item and what is true of it
                _write(truth.rename({truth.columns[-1]: "truth"}) if one else truth, work / "truth")
            if self.features:
                write_arrays(work / "features.npz", self.features)
            arrays = {name: np.asarray(value) for name, value in self.parameters.items()}
            about = {"name": self.name, "source": "simulated by crowdwise", "items": len(self.answers)}
            about |= {"annotators": self.answers.annotators.tolist(), **self._described()}
            about["parameters"] = {
                name: array.tolist() for name, array in arrays.items()
                if array.dtype.kind == "U" or (array.ndim == 0 and array.dtype.kind in "biuf")
            }  # fmt: skip
            describe(work, arrays, about)

    def _truths(self) -> Any:
        """What is true of each item, as a table; ``None`` where the answers have no such truth."""
        return self.answers.truth_frame()

    def _described(self) -> dict[str, Any]:
        """What ``meta.json`` says of the answers."""
        return {"answer_type": self.answers.answer_type, "answers": self.answers.n_answers}


def describe(folder: Path, parameters: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """The parameters that are numbers as arrays, and what there is to say as JSON."""
    arrays = {name: np.asarray(value) for name, value in parameters.items()}
    write_arrays(folder / "parameters.npz", {name: a for name, a in arrays.items() if a.dtype.kind in "biuf"})
    (folder / "meta.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


def _write(table: pl.DataFrame, place: Path) -> None:
    """A table as CSV; as JSON lines where its cells are lists."""
    if any(dtype.is_nested() for dtype in table.dtypes):
        table.write_ndjson(place.with_suffix(".jsonl"))
    else:
        table.write_csv(place.with_suffix(".csv"))


def known(name: str, doc: str) -> Any:
    """An attribute that is one of the parameters."""
    return property(lambda crowd: crowd.parameters[name], doc=doc)


class Simulated(SimulatedAnswers[Votes]):
    """A simulated crowd that votes. Parameters always hold ``prior`` (K), ``confusion`` (M, K, K: each annotator's
    behaviour when looked at alone) and ``accuracy`` (M); the rest depends on the scenario."""

    @property
    def votes(self) -> Votes:
        """The votes, with the true class (code) of every item."""
        return self.answers

    def _described(self) -> dict[str, Any]:
        return {"votes": self.votes.n_votes, "classes": self.votes.classes.tolist()}


def begin(n_classes: int, prior: Prior, random_state: RandomState) -> tuple[Array, Rng]:
    """The class prior, checked, and a generator."""
    rng = np.random.default_rng(random_state)
    if prior is None:
        return np.full(n_classes, 1.0 / n_classes), rng
    pi = np.asarray(prior, dtype=np.float64)
    if pi.shape != (n_classes,) or not (pi >= 0).all() or not abs(pi.sum() - 1) < 1e-6:
        raise ParameterError(f"prior={prior!r}: expected {n_classes} probabilities, one for each class, that sum to 1.")
    return pi / pi.sum(), rng


def draw_truth(n_items: int, pi: Array, rng: Rng) -> Codes:
    return rng.choice(len(pi), size=n_items, p=pi).astype(np.int32)


def truth_of(truth: Truth, n_items: int, pi: Array, rng: Rng) -> tuple[Codes, Array]:
    """The given classes of some items and how often each is true of them; drawn from the prior where none are given."""
    if truth is None:
        return draw_truth(n_items, pi, rng), pi
    codes = np.asarray(truth)
    K = len(pi)
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or not len(codes) or codes.min() < 0 or codes.max() >= K:
        raise ParameterError(f"truth: expected one class code from 0 to {K - 1} for each item.")
    return codes.astype(np.int32), np.bincount(codes, minlength=K) / len(codes)


def answer(theta: Array, annotator: Ints, truth: Ints, rng: Rng, u: Array | None = None) -> Codes:
    """One label per vote from ``theta[annotator, truth]``, by inverting the cumulative distribution at ``u``."""
    M, K, L = theta.shape
    table = np.cumsum(theta, axis=2).reshape(M * K, L)
    table /= table[:, -1:]
    row = annotator.astype(np.int64) * K + truth
    u = rng.random(len(row)) if u is None else u
    label = np.zeros(len(row), dtype=np.int32)
    for edge in table.T[:-1]:
        label += u >= edge[row]
    return label


def another(k: npt.NDArray[Any], K: int, rng: Rng) -> Codes:
    """For each class, one of the others, uniformly."""
    return ((k + rng.integers(1, K, size=np.shape(k))) % K).astype(np.int32)


def collect(
    name: str, pairs: tuple[Codes, Codes], label: Codes, truth: Codes, pi: Array, theta: Array,
    classes: Sequence[Any] | None = None, **parameters: Any,
) -> Simulated:  # fmt: skip
    """The votes and what they were drawn from, with the accuracy that the prior and the confusion give."""
    M, K, _ = theta.shape
    names = [f"a{m}" for m in range(M)]
    known = np.arange(K) if classes is None else classes
    votes = Votes.from_codes(*pairs, label, items=np.arange(len(truth)), annotators=names, classes=known, truth=truth)
    accuracy = np.einsum("k,mkk->m", pi, theta)
    return Simulated(name, votes, {"prior": pi, "confusion": theta, "accuracy": accuracy, **parameters})


def independent(
    name: str, n_items: int, theta: Array, pi: Array, votes_per_item: VotesPerItem, rng: Rng, truth: Truth = None,
    classes: Sequence[Any] | None = None, **parameters: Any,
) -> Simulated:  # fmt: skip
    """The Dawid-Skene model: given the truth, everybody answers from their own confusion matrix."""
    known, pi = truth_of(truth, n_items, pi, rng)
    item, annotator = assign(len(known), len(theta), votes_per_item, random_state=rng)
    label = answer(theta, annotator, known[item], rng)
    return collect(name, (item, annotator), label, known, pi, theta, classes, **parameters)


def one_coin_confusion(accuracy: Array, K: int) -> Array:
    """(M, K, K): ``accuracy[m]`` (or ``accuracy[m, k]``) on the diagonal, the rest spread evenly."""
    w = np.broadcast_to(accuracy.reshape(len(accuracy), -1), (len(accuracy), K))[:, :, None]
    return np.where(np.eye(K, dtype=bool), w, (1 - w) / (K - 1))


def dirichlet_rows(alpha: npt.NDArray[Any], rng: Rng) -> Array:
    """One draw per last axis. In logs, with Gamma(a) = Gamma(a + 1) U^(1/a), so that tiny concentrations do not
    underflow."""
    logs = np.log(rng.standard_gamma(alpha + 1)) + np.log1p(-rng.random(alpha.shape)) / alpha
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def dirichlet_confusion(size: int, K: int, diagonal: float, rest: float, rng: Rng) -> Array:
    return dirichlet_rows(np.broadcast_to(np.where(np.eye(K, dtype=bool), diagonal, rest), (size, K, K)), rng)


def random_mask(M: int, share: float, rng: Rng) -> npt.NDArray[np.bool_]:
    """A mask with round(share * M) of M set, at random."""
    return rng.permutation(np.arange(M) < round(share * M))


def around(M: int, mean: float, spread: float, rng: Rng) -> Array:
    """M probabilities scattered about a mean."""
    return np.clip(mean + spread * rng.standard_normal(M), 0, 1)


CHUNK = 1_000_000
"""The most cells (items x annotators) of the table by which votes are dealt out that are held at once."""


@dataclass(frozen=True, eq=False)
class FittedCrowd:
    """The parameters of a crowd that can vote again."""

    classes: Sequence[Any]
    confusion: Array
    """M x K x K, axis 1 the truth."""
    prior: Array
    activity: Array
    """M: the probability of each annotator to give the next vote."""

    @classmethod
    def of(cls, votes: Votes, confusion: Array | None, prior: Array) -> FittedCrowd:
        """The crowd of a fit: its confusion matrices, prior, and the share of votes of each annotator."""
        if confusion is None:
            raise ParameterError("The method has no confusion matrices to make a crowd from: take dawid-skene, say.")
        count = np.bincount(votes.annotator, minlength=votes.n_annotators)
        return cls(votes.classes.tolist(), np.asarray(confusion), np.asarray(prior), count / count.sum())

    @property
    def n_annotators(self) -> int:
        return len(self.confusion)

    def vote(self, truth: npt.NDArray[Any], votes_per_item: int, random_state: RandomState = 0) -> Votes:
        """So many votes on each of some items, by annotators drawn by their activity without replacement."""
        M, N, rng = self.n_annotators, len(truth), np.random.default_rng(random_state)
        if votes_per_item > M:
            raise ParameterError(f"votes_per_item={votes_per_item}: the crowd has {M} annotators, who vote once each.")
        log_activity = np.log(np.maximum(self.activity, 1e-12))
        step = max(1, CHUNK // M)
        dealt = [  # the largest of log p + Gumbel are a draw without replacement
            np.argpartition(-(log_activity + rng.gumbel(size=(min(step, N - lo), M))), votes_per_item - 1, axis=1)
            for lo in range(0, N, step)
        ]
        who = np.concatenate([d[:, :votes_per_item] for d in dealt]).ravel()
        item = np.repeat(np.arange(N), votes_per_item)
        return Votes.from_codes(
            item, who, answer(self.confusion, who, truth[item], rng), items=np.arange(N),
            annotators=np.arange(M), classes=list(self.classes), truth=truth,
        )  # fmt: skip


@checked
def assign(
    n_items: Count, n_annotators: Count, votes_per_item: VotesPerItem = None, *, random_state: RandomState = 0
) -> tuple[Codes, Codes]:
    """The (item, annotator) pairs that get a vote, sorted.

    Parameters
    ----------
    votes_per_item
        ``None``: everybody labels everything. An integer: that many distinct annotators for each item,
        at random. A fraction between 0 and 1: each pair is kept with that probability; an item that
        would be left alone gets one annotator.
    """
    rng, N, M = np.random.default_rng(random_state), n_items, n_annotators
    if votes_per_item is None:
        return np.repeat(np.arange(N, dtype=np.int32), M), np.tile(np.arange(M, dtype=np.int32), N)
    if is_count(votes_per_item) and 1 <= votes_per_item <= M:
        r = int(votes_per_item)
        return np.repeat(np.arange(N, dtype=np.int32), r), _distinct(N, M, r, rng).ravel()
    if is_number(votes_per_item) and 0 < votes_per_item < 1:
        return _keep(N, M, float(votes_per_item), rng)
    raise ParameterError(
        f"votes_per_item={votes_per_item!r}: expected None (everybody labels everything), "
        f"an integer from 1 to the {M} annotators, or a fraction between 0 and 1 (the chance that a pair is kept)."
    )


def _distinct(N: int, M: int, r: int, rng: Rng) -> Codes:
    """N x r: r distinct annotators for each item, sorted (Floyd's sampling without replacement, all items at once)."""
    chosen = np.empty((N, r), dtype=np.int32)
    for i in range(r):
        last = M - r + i
        draw = rng.integers(last + 1, size=N, dtype=np.int32)
        taken = (chosen[:, :i] == draw[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, last, draw)
    chosen.sort(axis=1)
    return chosen


def _keep(N: int, M: int, p: float, rng: Rng) -> tuple[Codes, Codes]:
    """Each pair with probability p: the gaps between kept pairs are geometric, so only these are drawn."""
    total = N * M
    expected = int(total * p + 6 * np.sqrt(total * p) + 16)
    cell = np.empty(0, dtype=np.int64)
    while len(cell) == 0 or cell[-1] < total:
        gaps = np.minimum(rng.geometric(p, size=expected), total + 1)
        cell = np.concatenate([cell, (cell[-1] if len(cell) else -1) + np.cumsum(gaps)])
    cell = cell[cell < total]
    alone = np.flatnonzero(np.bincount(cell // M, minlength=N) == 0)
    cell = np.sort(np.concatenate([cell, alone * M + rng.integers(M, size=len(alone))]))
    return (cell // M).astype(np.int32), (cell % M).astype(np.int32)


@checked
def regular_assignment(
    n_items: Count, n_annotators: Count, l: Count, r: Count, *, random_state: RandomState = 0  # noqa: E741
) -> tuple[Codes, Codes]:  # fmt: skip
    """A random (l, r)-regular assignment: l annotators for every item, r items for every annotator, no pair twice.

    Ends of edges are matched at random (the configuration model), then pairs that came up twice swap
    annotators with random other pairs until none is left.
    """
    N, M, rng = n_items, n_annotators, np.random.default_rng(random_state)
    if N * l != M * r:
        raise ParameterError(
            f"No (l={l}, r={r})-regular assignment of {N} items to {M} annotators: "
            f"expected {N} x {l} = {N * l} to equal {M} x {r} = {M * r}."
        )
    if l > M:
        raise ParameterError(f"l={l}: an item cannot have more than the {M} different annotators.")
    if 2 * l > M:  # nearly complete: choose who does not label what
        kept = np.ones((N, M), dtype=bool)
        if l < M:
            kept[regular_assignment(N, M, M - l, N - r, random_state=rng)] = False
        item, annotator = np.nonzero(kept)
        return item.astype(np.int32), annotator.astype(np.int32)
    item = np.repeat(np.arange(N, dtype=np.int64), l)
    annotator = rng.permutation(np.repeat(np.arange(M, dtype=np.int64), r))
    cell = np.sort(_part_doubles(item, annotator, M, rng))
    return (cell // M).astype(np.int32), (cell % M).astype(np.int32)


def _part_doubles(item: Ints, annotator: Ints, M: int, rng: Rng) -> Ints:
    """The cells ``item * M + annotator`` after double pairs have swapped annotators. With l <= M / 2 a swap that helps
    always exists."""
    while True:
        cell = item * M + annotator
        order = np.argsort(cell, kind="stable")
        ranked = cell[order]
        double = order[1:][ranked[1:] == ranked[:-1]]
        if len(double) == 0:
            return cell
        partner, first = np.unique(rng.integers(len(cell), size=len(double)), return_index=True)
        double = double[first]
        wanted = np.stack([item[double] * M + annotator[partner], item[partner] * M + annotator[double]])
        at = np.minimum(np.searchsorted(ranked, wanted), len(ranked) - 1)
        free = (ranked[at] != wanted).all(axis=0) & ~np.isin(partner, double)
        a, b = double[free], partner[free]
        annotator[a], annotator[b] = annotator[b], annotator[a]
