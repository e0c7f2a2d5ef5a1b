"""Bootstrap intervals of statistics that are functions of sums over items.

Items with the same counts are one pattern; a resample is a draw of how often each pattern came, so votes are read once.
The interval is the bias-corrected and accelerated one (Efron 1987), a little widened for few items, annotators held.

==============  ============  =====================================================================================
symbol          code          meaning
==============  ============  =====================================================================================
x[p, d]         ``table``     what an item of pattern p adds to sum d
N_p             ``times``     how many items have it
t(sum_p N_p x)  ``statistic`` the value, from B x D sums to B values
==============  ============  =====================================================================================

When it fails: with fewer than about 20 items intervals are rough; items that are near copies count twice.

Reference: B. Efron, Better bootstrap confidence intervals, JASA 82 (1987).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import ParameterError
from crowdwise.metrics.bootstrap import WORK, Estimate

CHUNK = 2**22
"""How many numbers a piece of the bootstrap holds at once."""

Statistic = Callable[[Floats], Floats]
"""From B x D sums over items to B values."""


class Options(TypedDict, total=False):
    """What every coefficient takes: the keywords of :class:`Bootstrap`."""

    level: float
    resamples: int
    random_state: int


@dataclass(frozen=True)
class Bootstrap:
    """How an interval is made.

    Attributes
    ----------
    level
        Its level.
    resamples
        The number of bootstrap resamples; fewer where N is very large, never under 200 (or under what was asked for).
    random_state
        The seed.
    """

    level: float = 0.95
    resamples: int = 1000
    random_state: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ParameterError(f"level={self.level!r}: expected a number between 0 and 1, such as 0.95.")
        if self.resamples < 1:
            raise ParameterError(f"resamples={self.resamples!r}: expected at least 1.")

    def estimate(self, table: Any, times: Ints, statistic: Statistic, n: int) -> Estimate:
        """A function of sums over items, with its interval.

        ``table`` (P x D, dense or sparse) holds what an item of each pattern adds, ``times`` how many items have it.
        """
        N, P = int(times.sum()), len(times)
        rng = np.random.default_rng(self.random_state)
        rounds = int(min(self.resamples, max(200, WORK // max(min(N, 20 * P), 1))))
        value = float(statistic(_dense(times.astype(np.float64)[None] @ table))[0])
        draws = []
        step = max(1, CHUNK // max(P, table.shape[1]))
        for at in range(0, rounds, step):
            size = min(step, rounds - at)
            if 20 * P < N:  # a binomial draw for every pattern costs about as much as twenty items
                weight = rng.multinomial(N, times / N, size=size).astype(np.float64)
            else:
                who = np.repeat(np.arange(P), times)
                weight = np.stack(
                    [np.bincount(who[rng.integers(0, N, N)], minlength=P).astype(np.float64) for _ in range(size)]
                )
            draws.append(statistic(_dense(weight @ table)))
        low, high = bca(value, np.concatenate(draws), *_jackknife(table, times, statistic), self.level)
        return Estimate(value, low, high, n, self.level)


def bca(value: float, draws: Floats, gone: Floats, times: Floats, level: float) -> tuple[float, float]:
    """The bias-corrected and accelerated interval, from bootstrap draws and leave-one-item-out values.

    Draws in which the coefficient does not exist are left out.
    """
    from scipy.special import ndtr, ndtri

    draws = draws[np.isfinite(draws)]
    if not np.isfinite(value) or len(draws) == 0:
        return float("nan"), float("nan")
    if np.ptp(draws) < 1e-12:
        return value, value
    B = len(draws)
    below = (np.count_nonzero(draws < value - 1e-12) + np.count_nonzero(np.abs(draws - value) <= 1e-12) / 2.0) / B
    bias = ndtri(np.clip(below, 1.0 / (B + 1), B / (B + 1)))
    ok = np.isfinite(gone)
    pull = np.average(gone[ok], weights=times[ok]) - gone[ok] if ok.any() else np.zeros(1)
    times = times[ok] if ok.any() else np.ones(1)
    spread = float((times * pull**2).sum())
    skew = float((times * pull**3).sum()) / (6.0 * spread**1.5) if spread > 0.0 else 0.0
    N = max(float(times.sum()), 2.0)
    z = _reach(level, N)
    at = []
    for sign in (-1.0, 1.0):
        shifted = bias + sign * z
        at.append(float(ndtr(bias + shifted / max(1.0 - skew * shifted, 1e-3))))
    low, high = np.quantile(draws, np.clip(at, 0.0, 1.0))
    return float(min(low, value)), float(max(high, value))


def _reach(level: float, N: float) -> float:
    """Normal quantile, widened for few items: a bootstrap spread is short by (N - 1) / N, and a t has longer tails."""
    from scipy.special import ndtri, stdtrit

    tail = (1.0 + level) / 2.0
    return float(stdtrit(N - 1.0, tail) * np.sqrt(N / (N - 1.0))) if N < 1e5 else float(ndtri(tail))


def _jackknife(table: Any, times: Ints, statistic: Statistic) -> tuple[Floats, Floats]:
    """The value without one item of each pattern, and how many items that stands for."""
    P, D = table.shape
    total = _dense(times.astype(np.float64)[None] @ table)
    step = max(1, CHUNK // D)
    gone = [statistic(total - _dense(table[at : at + step])) for at in range(0, P, step)]
    return np.concatenate(gone), times.astype(np.float64)


def _dense(x: Any) -> Floats:
    return np.asarray(x.todense() if hasattr(x, "todense") else x, dtype=np.float64)
