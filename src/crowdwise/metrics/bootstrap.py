"""Figures with bootstrap intervals: what all metrics and all coefficients of agreement return.

Items are drawn with replacement. A statistic is either a function of how often each item was drawn, with a percentile
interval; or a function of sums over items, with the bias-corrected and accelerated interval (Efron 1987), a little
widened for few items. In the second form items that add the same are one pattern, so answers are read once.

==============  =============  =====================================================================================
symbol          code           meaning
==============  =============  =====================================================================================
w[b, n]         ``weights``    how often resample b drew item (or pattern) n
x[p, d]         ``table``      what an item of pattern p adds to sum d
N_p             ``times``      how many items have it
t(sum_p N_p x)  ``statistic``  the value, from B x D sums to B values
==============  =============  =====================================================================================

When it fails: fewer than ``MIN_ITEMS`` items, or items that all give the same value, say nothing about the spread, and
there is no interval (NaN); with fewer than about 20 it is rough. Items that are near copies count twice.

Reference: B. Efron, Better bootstrap confidence intervals, JASA 82 (1987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from crowdwise.core.constraints import Count, Fraction, RandomState, checked
from crowdwise.core.intervals import interval_text
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.result import some_known

CHUNK = 2**22
"""How many numbers a piece of the bootstrap holds at once."""
MIN_ITEMS = 10
"""The fewest items that an interval is made of: with fewer it holds the value far less often than its level says."""
SAME = 1e-12
"""Draws that differ by less are the same but for rounding."""

Statistic = Callable[[Floats], Floats]
"""From B x D sums over items to B values."""


@dataclass(frozen=True)
class Estimate:
    """A figure, the two ends of its interval, and how many items (or annotators) it rests on.

    The ends are NaN where there is no interval: fewer than 10 items, or items that all give the same value.
    """

    value: float
    low: float
    high: float
    n: int
    level: float = 0.95

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Estimate:
        """The one that was stored as JSON, ``None`` for NaN."""
        value, low, high = (np.nan if stored[end] is None else stored[end] for end in ("value", "low", "high"))
        return cls(value, low, high, stored["n"], stored["level"])

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        return f"Estimate({self.value:.3f}, {self.interval()}, n={self.n})"

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return bool(np.isfinite(self.low))

    @property
    def too_few(self) -> bool:
        """Whether it rests on too few items for an interval."""
        return self.n < MIN_ITEMS

    def interval(self, form: Callable[[float], str] = "{:.3f}".format) -> str:
        """The interval in words, or why there is none.

        >>> Estimate(0.6, 0.5, 0.7, 50).interval(), Estimate(0.5, float("nan"), float("nan"), 2).interval()
        ('95% CI 0.500-0.700', 'no 95% CI: fewer than 10')
        """
        if self.has_interval:
            return interval_text(self.low, self.high, level=self.level, form=form)
        why = f": fewer than {MIN_ITEMS}" if self.too_few else ": all alike"
        return f"no {100 * self.level:.6g}% CI{why if np.isfinite(self.value) else ''}"


class Options(TypedDict, total=False):
    """The keywords that every metric and every coefficient takes: those of :class:`Bootstrap`."""

    level: float
    resamples: int
    random_state: RandomState


@dataclass(frozen=True)
class Bootstrap:
    """How an interval is made. There is none (NaN) for fewer than 10 items, and where all give the same value.

    Attributes
    ----------
    level
        Its level.
    resamples
        The number of bootstrap resamples; fewer where there are very many items, never under 200 (or under what was
        asked for).
    random_state
        The seed.
    """

    level: float = 0.95
    resamples: int = 1000
    random_state: RandomState = 0

    def __post_init__(self) -> None:
        _check(level=self.level, resamples=self.resamples, random_state=self.random_state)

    def mean(self, x: Floats) -> Estimate:
        """The mean of x with a percentile interval; resampled by value where there are few different ones."""
        values, count = np.unique(x, return_counts=True)
        n = len(x)
        if len(values) > 64 or n < MIN_ITEMS:
            return self.of_weights(lambda w: float(w @ x / w.sum()), n)
        rng = np.random.default_rng(self.random_state)
        means = rng.multinomial(n, count / n, size=self.resamples) @ values / n
        return self._percentiles(float(x.mean()), means, n)

    def share(self, x: Floats) -> Estimate:
        """The mean of x between 0 and 1. Where all are 0, or all 1, the interval is the exact one: (0, 1 - t) or (t, 1)
        with t^n = (1 - level) / 2."""
        n = len(x)
        if n < MIN_ITEMS or len(values := np.unique(x)) > 1 or values[0] not in (0.0, 1.0):
            return self.mean(x)
        t, value = ((1.0 - self.level) / 2.0) ** (1.0 / n), float(values[0])
        return Estimate(value, t * value, 1.0 - t * (1.0 - value), n, self.level)

    def of_weights(self, statistic: Callable[[Floats], float], n: int) -> Estimate:
        """A statistic of how often each of n items was drawn, with a percentile interval."""
        once = some_known(np.ones(n, dtype=np.int64))
        value = statistic(np.ones(n))
        batches = self._weights(once, n) if n >= MIN_ITEMS else ()
        return self._percentiles(value, np.array([statistic(weight) for batch in batches for weight in batch]), n)

    def _percentiles(self, value: float, draws: Floats, n: int) -> Estimate:
        low = high = np.nan
        if len(draws) and np.ptp(draws) >= SAME:
            low, high = np.quantile(draws, [(1.0 - self.level) / 2.0, (1.0 + self.level) / 2.0])
        return Estimate(value, float(low), float(high), n, self.level)

    def of_sums(self, table: Any, times: Ints, statistic: Statistic, n: int) -> Estimate:
        """A function of sums over items, with the bias-corrected and accelerated interval.

        ``table`` (P x D, dense or sparse) holds what an item of each pattern adds, ``times`` how many items have it;
        ``n`` is the number of items that say something.
        """
        value, low, high = float(statistic(_dense(times.astype(np.float64)[None] @ table))[0]), np.nan, np.nan
        if n >= MIN_ITEMS:
            draws = [statistic(_dense(weight @ table)) for weight in self._weights(times, table.shape[1])]
            low, high = bca(value, np.concatenate(draws), *_jackknife(table, times, statistic), self.level)
        return Estimate(value, low, high, n, self.level)

    def ratio(self, part: Floats, whole: Floats, n: int | None = None, *, empty: float = np.nan) -> Estimate:
        """The sum over items of ``part`` over that of ``whole``, ``empty`` where that is 0; of ``n`` items that say
        something, by default all."""

        def statistic(sums: Floats) -> Floats:
            top, bottom = sums.T
            return np.asarray(np.divide(top, bottom, out=np.full(len(sums), empty), where=bottom > 0.0))

        table = np.column_stack([part, whole]).astype(np.float64)
        return self.of_sums(table, np.ones(len(table), dtype=np.int64), statistic, len(table) if n is None else n)

    def _weights(self, times: Ints, width: int) -> Iterator[Floats]:
        """How often each pattern was drawn, some resamples (rows) at a time."""
        N, P = int(times.sum()), len(times)
        rng = np.random.default_rng(self.random_state)
        rounds = int(min(self.resamples, max(200, 2e8 // max(min(N, 20 * P), 1))))  # fewer of very many items
        step = max(1, CHUNK // max(P, width))
        which = None if 20 * P < N else np.repeat(np.arange(P), times)
        for at in range(0, rounds, step):
            size = min(step, rounds - at)
            if which is None:  # a binomial draw for every pattern costs about as much as twenty items
                yield rng.multinomial(N, times / N, size=size).astype(np.float64)
            else:
                drawn = [np.bincount(which[rng.integers(0, N, N)], minlength=P) for _ in range(size)]
                yield np.stack(drawn).astype(np.float64)


@checked
def _check(level: Fraction, resamples: Count, random_state: RandomState) -> None:
    """Refuse what an interval cannot be made with."""


def bca(value: float, draws: Floats, gone: Floats, times: Floats, level: float) -> tuple[float, float]:
    """The bias-corrected and accelerated interval, from bootstrap draws and leave-one-item-out values.

    Draws in which the coefficient does not exist are left out. NaN where all others are the same.
    """
    from scipy.special import ndtr, ndtri

    draws = draws[np.isfinite(draws)]
    if not np.isfinite(value) or len(draws) == 0 or np.ptp(draws) < SAME:
        return np.nan, np.nan
    B = len(draws)
    below = (np.count_nonzero(draws < value - SAME) + np.count_nonzero(np.abs(draws - value) <= SAME) / 2.0) / B
    bias = ndtri(np.clip(below, 1.0 / (B + 1), B / (B + 1)))
    ok = np.isfinite(gone)
    pull = np.average(gone[ok], weights=times[ok]) - gone[ok] if ok.any() else np.zeros(1)
    times = times[ok] if ok.any() else np.ones(1)
    spread = float((times * pull**2).sum())
    skew = float((times * pull**3).sum()) / (6.0 * spread**1.5) if spread > 0.0 else 0.0
    z = _reach(level, max(float(times.sum()), 2.0))
    at = [float(ndtr(bias + s / max(1.0 - skew * s, 1e-3))) for s in (bias - z, bias + z)]
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
