"""A figure with a bootstrap interval: what all metrics return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crowdwise.core.numerics import Floats
from crowdwise.errors import InputError, ParameterError

__all__ = ["Estimate", "bootstrap", "bootstrap_mean"]

WORK = 2e8
"""Resamples times items: above it fewer resamples are drawn (at least 200)."""


@dataclass(frozen=True)
class Estimate:
    """A figure, the two ends of its bootstrap interval, and how many items (or annotators) it rests on."""

    value: float
    low: float
    high: float
    n: int
    level: float = 0.95

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        return f"Estimate({self.value:.3f}, {self.level:.0%} from {self.low:.3f} to {self.high:.3f}, n={self.n})"


def bootstrap_mean(x: Floats, *, level: float, resamples: int, random_state: int) -> Estimate:
    """The mean of x with an interval; resampling is by distinct values where there are few."""
    values, count = np.unique(x, return_counts=True)
    n = len(x)
    if len(values) <= 64 and n:
        _check(level, resamples)
        rng = np.random.default_rng(random_state)
        means = rng.multinomial(n, count / n, size=resamples) @ values / n
        return _estimate(float(x.mean()), means, n, level)
    return bootstrap(lambda w: float(w @ x / w.sum()), n, level=level, resamples=resamples, random_state=random_state)


def bootstrap(
    statistic: Callable[[Floats], float], n: int, *, level: float, resamples: int, random_state: int
) -> Estimate:
    """A statistic of item weights (how often each item was drawn) with a percentile interval."""
    _check(level, resamples)
    if n == 0:
        raise InputError("No item has a known truth: there is nothing to measure.")
    rng = np.random.default_rng(random_state)
    rounds = int(min(resamples, max(200, WORK // n)))
    draws = np.array(
        [statistic(np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64)) for _ in range(rounds)]
    )
    return _estimate(statistic(np.ones(n)), draws, n, level)


def _estimate(value: float, draws: Floats, n: int, level: float) -> Estimate:
    low, high = np.quantile(draws, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Estimate(value, float(low), float(high), n, level)


def _check(level: float, resamples: int) -> None:
    if not 0.0 < level < 1.0:
        raise ParameterError(f"level={level!r}: expected a number between 0 and 1, such as 0.95.")
    if resamples < 1:
        raise ParameterError(f"resamples={resamples!r}: expected at least 1.")
