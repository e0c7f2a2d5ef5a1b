"""When annotators voted: how fast they are, and whether they got better or worse.

``speed`` is one over the mean time between two votes, pauses left out. ``drift`` is the slope of being right on the
order of the votes (0 the first, 1 the last), being right taken against what the annotator's own matrix expects for the
class: x[s] = a[s] - sum_k r[s, k] theta[m, k, k], with r and a of :mod:`crowdwise.core.leave_one_out`.

When it fails: with timestamps that go with the difficulty of items (a queue from easy to hard) everybody gets worse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.intervals import with_interval
from crowdwise.core.leave_one_out import LeaveOneOut
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError

PAUSE = 1800.0
"""Seconds without a vote after which an annotator is taken to have paused."""
LEAST_FOR_DRIFT = 10
"""The fewest votes of which a drift is looked for."""


def seconds(timestamp: npt.NDArray[Any]) -> Floats:
    """Timestamps in seconds: dates as such, numbers as they are, NaN where missing."""
    if timestamp.dtype.kind == "M":
        out = timestamp.astype("datetime64[ms]").astype(np.float64) / 1000.0
        return np.asarray(np.where(np.isnat(timestamp), np.nan, out))
    if timestamp.dtype.kind == "m":
        return np.asarray(timestamp / np.timedelta64(1, "ms") / 1000.0, dtype=np.float64)
    if timestamp.dtype.kind in "iuf":
        return np.asarray(timestamp.astype(np.float64))
    try:
        dates = [np.datetime64("NaT") if t is None else t for t in timestamp.tolist()]
        return seconds(np.array(dates, dtype="datetime64[ms]"))
    except (TypeError, ValueError):
        raise InputError(
            "The timestamps are neither dates nor numbers of seconds. Convert them before the votes are made."
        ) from None


def _in_time(votes: Votes, times: Floats) -> Ints:
    """The votes with a time, by annotator, then time (then as they came)."""
    order = np.lexsort((times, votes.annotator))
    return np.asarray(order[np.isfinite(times[order])])


def speed(votes: Votes, times: Floats) -> Floats:
    """Votes per hour: one over the mean time between votes, pauses left out; NaN without two votes in a row."""
    order = _in_time(votes, times)
    m, t = votes.annotator[order], times[order]
    gap, same = np.diff(t), m[1:] == m[:-1]
    working = same & (gap <= PAUSE)
    M = votes.n_annotators
    count = np.bincount(m[1:][working], minlength=M).astype(np.float64)
    spent = np.bincount(m[1:][working], weights=gap[working], minlength=M).astype(np.float64)
    return np.asarray(np.divide(3600.0 * count, spent, out=np.full(M, np.nan), where=spent > 0))


def drift(evidence: LeaveOneOut, times: Floats, level: float) -> tuple[dict[str, npt.NDArray[Any]], Floats]:
    """The slope of being right on the order of the votes (0 to 1), its interval, and two-sided p-values.

    Being right is taken against what the annotator's own matrix expects for the class:
    a[s] - sum_k r[s, k] theta[m, k, k]. The test is that of a correlation (Student's t, n - 2).
    """
    from scipy.special import stdtr, stdtrit

    votes = evidence.votes
    M = votes.n_annotators
    x = evidence.right.copy()
    for k in range(votes.n_classes):
        x -= evidence.others(k) * evidence.theta[:, k, k][votes.annotator]
    order = _in_time(votes, times)
    m, x, t = votes.annotator[order], x[order], times[order]
    n = np.bincount(m, minlength=M).astype(np.float64)
    first = np.concatenate([[0.0], np.cumsum(n)[:-1]])
    # Votes of the same instant share their mean place.
    place = np.arange(len(m), dtype=np.float64)
    run = np.concatenate([[0], np.cumsum((m[1:] != m[:-1]) | (t[1:] != t[:-1]))]) if len(m) else np.empty(0, np.int64)
    if len(m):
        place = (np.bincount(run, weights=place) / np.bincount(run))[run]
    u = (place - first[m]) / np.maximum(n[m] - 1.0, 1.0)

    def total(value: Floats) -> Floats:
        return np.bincount(m, weights=value, minlength=M).astype(np.float64)

    one = np.maximum(n, 1.0)
    u, x = u - (total(u) / one)[m], x - (total(x) / one)[m]
    uu, ux, xx = total(u * u), total(u * x), total(x * x)
    enough = (n >= LEAST_FOR_DRIFT) & (uu > 1e-9) & (xx > 1e-12)
    slope = np.divide(ux, uu, out=np.full(M, np.nan), where=enough)
    free = np.maximum(n - 2.0, 1.0)
    residual = np.maximum(xx - np.divide(ux * ux, uu, out=np.zeros(M), where=enough), 1e-12)
    error = np.sqrt(np.divide(residual / free, uu, out=np.full(M, np.nan), where=enough))
    p = np.where(enough, 2.0 * stdtr(free, -np.abs(np.nan_to_num(slope / error))), 1.0)
    reach = stdtrit(free, 0.5 + level / 2.0) * error
    return with_interval("drift", slope, np.maximum(slope - reach, -1.0), np.minimum(slope + reach, 1.0)), p
