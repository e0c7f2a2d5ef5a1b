"""How good a consensus is where the truth is known, every figure with a bootstrap interval.

All take a :class:`~crowdwise.Consensus` (or an N x K array of probabilities) and the truth: a mapping from
item to class, or N class codes with -1 for unknown. Items without truth are left out. Those for numbers and grades
(``mae``, ``rmse``, ``quadratic_kappa``, ``spearman``, ``kendall``) take :class:`~crowdwise.Estimates` and true
numbers, a Consensus over grades (its labels count by their place in the order of classes) and true classes, or two
arrays.

>>> import crowdwise as cw
>>> crowd = cw.simulate.one_coin(200, n_annotators=10, n_classes=2, votes_per_item=5, random_state=0)
>>> cw.metrics.accuracy(cw.aggregate(crowd.votes, "one-coin"), crowd.truth)
Estimate(0.745, 95% from 0.680 to 0.810, n=200)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.estimates import Estimates
from crowdwise.core.numerics import TIE, Floats, Ints
from crowdwise.errors import InputError, ParameterError
from crowdwise.metrics_bootstrap import WORK as WORK
from crowdwise.metrics_bootstrap import Estimate, bootstrap, bootstrap_mean
from crowdwise.metrics_clusters import adjusted_rand, cluster_accuracy, mutual_information
from crowdwise.metrics_sets import (
    hamming_loss,
    jaccard,
    label_scores,
    set_f1,
    set_precision,
    set_recall,
    subset_accuracy,
    top_k_with_gold_count,
)
from crowdwise.metrics_tags import span_scores, span_scores_per_type

__all__ = [
    "Estimate",
    "accuracy",
    "accuracy_per_class",
    "adjusted_rand",
    "brier",
    "calibration_error",
    "cluster_accuracy",
    "confusion_error",
    "hamming_loss",
    "jaccard",
    "kendall",
    "label_scores",
    "log_loss",
    "mae",
    "mutual_information",
    "quadratic_kappa",
    "reliability",
    "rmse",
    "set_f1",
    "set_precision",
    "set_recall",
    "span_scores",
    "span_scores_per_type",
    "spearman",
    "subset_accuracy",
    "top_k_with_gold_count",
]


def accuracy(result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0) -> Estimate:
    """The share of items whose most probable class is the true one.

    An item with j tied classes counts 1/j if the truth is among them.
    """
    q, y = _known(result, truth)
    return bootstrap_mean(hits(q, y), level=level, resamples=resamples, random_state=random_state)


def accuracy_per_class(
    result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0
) -> dict[Any, Estimate]:
    """The accuracy on the items of each true class (recall), by class name; classes without items are left out."""
    q, y = _known(result, truth)
    names = result.classes.tolist() if isinstance(result, Consensus) else list(range(q.shape[1]))
    right = hits(q, y)
    return {
        names[k]: bootstrap_mean(right[y == k], level=level, resamples=resamples, random_state=random_state)
        for k in np.unique(y).tolist()
    }


def log_loss(
    result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0, floor: float = 1e-15
) -> Estimate:
    """The mean of -log P(true class), with probabilities held above ``floor``."""
    if not 0.0 < floor < 1.0:
        raise ParameterError(f"floor={floor!r}: expected a number between 0 and 1.")
    q, y = _known(result, truth)
    return bootstrap_mean(
        -np.log(np.maximum(q[np.arange(len(y)), y], floor)), level=level, resamples=resamples, random_state=random_state
    )


def brier(result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0) -> Estimate:
    """The mean of sum_k (q_k - 1[truth = k])^2: 0 is perfect, 2 certain and wrong."""
    q, y = _known(result, truth)
    score = (q * q).sum(axis=1) - 2.0 * q[np.arange(len(y)), y] + 1.0
    return bootstrap_mean(score, level=level, resamples=resamples, random_state=random_state)


def calibration_error(
    result: Any, truth: Any, *, bins: int = 15, level: float = 0.95, resamples: int = 1000, random_state: int = 0
) -> Estimate:
    """Expected calibration error: the mean over items of |accuracy - probability| of their bin.

    Bins are of equal width over the top probability.
    """
    q, y = _known(result, truth)
    top, right, where = q.max(axis=1), hits(q, y), _bin(q, bins)

    def statistic(weight: Floats) -> float:
        gap = np.bincount(where, weights=weight * (right - top), minlength=bins)
        return float(np.abs(gap).sum() / weight.sum())

    return bootstrap(statistic, len(y), level=level, resamples=resamples, random_state=random_state)


def reliability(result: Any, truth: Any, *, bins: int = 15) -> dict[str, npt.NDArray[Any]]:
    """The calibration curve: number, mean probability and accuracy of the items in each bin of the top probability.

    Bins without items are left out.
    """
    q, y = _known(result, truth)
    where = _bin(q, bins)
    n = np.bincount(where, minlength=bins)
    used = n > 0
    top, right = (np.bincount(where, weights=x, minlength=bins)[used] / n[used] for x in (q.max(axis=1), hits(q, y)))
    return {"items": n[used], "probability": top, "accuracy": right}


def confusion_error(
    estimated: Any, true: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0
) -> Estimate:
    """How far estimated confusion matrices are from the true ones: the mean over annotators of |A - A'|_F^2 / K.

    Both are M x K x K (annotator, truth, label), or a Consensus that has them. Reference: Tanno et al. 2019.
    """
    tables = []
    for given in (estimated, true):
        table = given.confusion if isinstance(given, Consensus) else given
        if table is None:
            raise InputError(f"A {given.method} consensus has no confusion matrices to compare.")
        tables.append(np.asarray(table, dtype=np.float64))
    a, b = tables
    if a.shape != b.shape or a.ndim != 3 or a.shape[1] != a.shape[2]:
        raise InputError(f"Expected two M x K x K arrays of the same shape and found {a.shape} and {b.shape}.")
    return bootstrap_mean(
        ((a - b) ** 2).sum(axis=(1, 2)) / a.shape[1], level=level, resamples=resamples, random_state=random_state
    )


# -------------------------------------------------------------------- numbers and grades


def mae(result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0) -> Estimate:
    """Mean absolute error: of numbers in their unit, of grades in grades."""
    x, y = _numbers(result, truth)
    return bootstrap_mean(np.abs(x - y), level=level, resamples=resamples, random_state=random_state)


def rmse(result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0) -> Estimate:
    """Root mean square error."""
    x, y = _numbers(result, truth)
    square = (x - y) ** 2
    return bootstrap(
        lambda w: float(np.sqrt(w @ square / w.sum())), len(x), level=level, resamples=resamples,
        random_state=random_state,
    )  # fmt: skip


def quadratic_kappa(
    result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0
) -> Estimate:
    """Cohen's kappa with squared distances between grades as weights: 1 is perfect, 0 chance.

    = 1 - mean (x - y)^2 / (var x + var y + (mean x - mean y)^2): its denominator is the mean square of independent
    pairs.
    """
    x, y = _numbers(result, truth)

    def statistic(w: Floats) -> float:
        total = w.sum()
        a, b = w @ x / total, w @ y / total
        chance = w @ (x - a) ** 2 / total + w @ (y - b) ** 2 / total + (a - b) ** 2
        return 1.0 if chance == 0.0 else float(1.0 - w @ (x - y) ** 2 / total / chance)

    return bootstrap(statistic, len(x), level=level, resamples=resamples, random_state=random_state)


def spearman(result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0) -> Estimate:
    """Spearman's rank correlation, ties at their mean rank; 0 where one side is constant."""
    from scipy.stats import rankdata

    def statistic(x: Floats, y: Floats) -> float:
        a, b = (rankdata(v) - (len(v) + 1) / 2.0 for v in (x, y))
        size = np.sqrt((a @ a) * (b @ b))
        return float(a @ b / size) if size > 0 else 0.0

    return _resampled(statistic, result, truth, level=level, resamples=resamples, random_state=random_state)


def kendall(result: Any, truth: Any, *, level: float = 0.95, resamples: int = 200, random_state: int = 0) -> Estimate:
    """Kendall's rank correlation tau-b, which allows for ties; 0 where one side is constant."""
    from scipy.stats import kendalltau

    def statistic(x: Floats, y: Floats) -> float:
        return 0.0 if (x == x[0]).all() or (y == y[0]).all() else float(kendalltau(x, y).statistic)

    return _resampled(statistic, result, truth, level=level, resamples=resamples, random_state=random_state)


def _resampled(
    statistic: Callable[[Floats, Floats], float], result: Any, truth: Any, *, level: float, resamples: int,
    random_state: int,
) -> Estimate:  # fmt: skip
    """A statistic of pairs, with items drawn again for the interval."""
    x, y = _numbers(result, truth)

    def weighted(w: Floats) -> float:
        take = np.repeat(np.arange(len(x)), w.astype(np.int64))
        return statistic(x[take], y[take])

    return bootstrap(weighted, len(x), level=level, resamples=resamples, random_state=random_state)


def _numbers(result: Any, truth: Any) -> tuple[Floats, Floats]:
    """Found and true numbers (or places of grades) of the items with known truth."""
    if isinstance(result, Estimates):
        x, y = result.values, result.truth_values(truth)
    elif isinstance(result, Consensus):
        codes = result.truth_codes(truth)
        x, y = result.label_codes.astype(np.float64), np.where(codes >= 0, codes, np.nan)
    else:
        x, y = np.asarray(result, dtype=np.float64), np.asarray(truth, dtype=np.float64)
        if x.ndim != 1 or x.shape != y.shape:
            raise InputError(
                "Expected Estimates, a Consensus, or two arrays with a number for each item, and found shapes "
                f"{x.shape} and {y.shape}."
            )
    known = ~(np.isnan(x) | np.isnan(y))
    if not known.any():
        raise InputError("No item has a known truth: there is nothing to measure.")
    return x[known], y[known]


# -------------------------------------------------------------------- the pieces


def hits(q: Floats, y: Ints) -> Floats:
    """1 where the most probable class is the true one, 1/j where it is one of j tied ones, else 0."""
    tied = q >= q.max(axis=1, keepdims=True) - TIE
    return np.asarray(tied[np.arange(len(y)), y] / tied.sum(axis=1))


def _known(result: Any, truth: Any) -> tuple[Floats, Ints]:
    """The probabilities and true classes of the items with known truth."""
    if isinstance(result, Consensus):
        q, y = result.posterior, result.truth_codes(truth)
    else:
        q, y = np.asarray(result, dtype=np.float64), np.asarray(truth)
        if q.ndim != 2 or y.shape != (len(q),) or y.dtype.kind not in "iu":
            raise InputError(
                "Expected N x K probabilities with N integer class codes, "
                f"and found shapes {q.shape} and {y.shape} ({y.dtype}). "
                "To give class names, pass the Consensus and a mapping from item to class."
            )
        if len(y) and y.max() >= q.shape[1]:
            raise InputError(f"The truth has class code {y.max()}, and there are {q.shape[1]} classes.")
    known = y >= 0
    if not known.any():
        raise InputError("No item has a known truth: there is nothing to measure.")
    return q[known], y[known]


def _bin(q: Floats, bins: int) -> Ints:
    if bins < 1:
        raise ParameterError(f"bins={bins!r}: expected at least 1.")
    return np.asarray(np.clip(np.ceil(q.max(axis=1) * bins) - 1, 0, bins - 1), dtype=np.int64)
