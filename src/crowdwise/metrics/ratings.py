"""Errors and rank correlations of numbers and of ordinal classes, where the truth is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Floats
from crowdwise.core.result import Estimates, kendall_tau, some_known
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options


def mae(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Mean absolute error: of numbers in their unit, of grades in grades."""
    x, y = _numbers(result, truth)
    return Bootstrap(**options).mean(np.abs(x - y))


def rmse(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Root mean square error."""
    x, y = _numbers(result, truth)
    square = (x - y) ** 2
    return Bootstrap(**options).of_weights(lambda w: float(np.sqrt(w @ square / w.sum())), len(x))


def quadratic_kappa(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
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

    return Bootstrap(**options).of_weights(statistic, len(x))


def spearman(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Spearman's rank correlation, ties at their mean rank; 0 where one side is constant."""
    from scipy.stats import rankdata

    def statistic(x: Floats, y: Floats) -> float:
        a, b = (rankdata(v) - (len(v) + 1) / 2.0 for v in (x, y))
        size = np.sqrt((a @ a) * (b @ b))
        return float(a @ b / size) if size > 0 else 0.0

    return _resampled(statistic, result, truth, **options)


def kendall(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Kendall's rank correlation tau-b, which allows for ties; 0 where one side is constant. 200 resamples."""
    return _resampled(kendall_tau, result, truth, **({"resamples": 200} | options))


def _resampled(
    statistic: Callable[[Floats, Floats], float], result: Any, truth: Any, **options: Unpack[Options]
) -> Estimate:
    """A statistic of pairs, with items drawn again for the interval."""
    x, y = _numbers(result, truth)

    def weighted(w: Floats) -> float:
        take = np.repeat(np.arange(len(x)), w.astype(np.int64))
        return statistic(x[take], y[take])

    return Bootstrap(**options).of_weights(weighted, len(x))


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
    known = some_known(~(np.isnan(x) | np.isnan(y)))
    return x[known], y[known]
