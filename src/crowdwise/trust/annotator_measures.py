"""Measures of annotators, and the tests behind the flags: skill, bias, confusions, weight, information, speed, drift.

Every measure reads the votes as :mod:`crowdwise.core.leave_one_out` does: r[s, k] is the probability of class k by the
other votes on the item, x[m, k, l] the expected counts. When it fails: see :mod:`crowdwise.trust.annotators`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.intervals import with_interval
from crowdwise.core.leave_one_out import LeaveOneOut
from crowdwise.core.numerics import Floats, Ints, binomial_tail, normalise
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError

MOSTLY = 0.9
"""The share of an annotator's votes from which a label may be called their only one."""

PAUSE = 1800.0
"""Seconds without a vote after which an annotator is taken to have paused."""
LEAST_FOR_DRIFT = 10
"""The fewest votes of which a drift is looked for."""


@dataclass(frozen=True)
class Skills:
    """Skill, its standard error, and p-values of the two hypotheses about it; M each."""

    value: Floats
    error: Floats
    p_worse: Floats
    p_random: Floats


@dataclass(frozen=True)
class Slopes:
    """The regression behind a skill: votes (at least 1), spread of r and slope, M each; means of both sides, M x K."""

    votes: Floats
    said: Floats
    mean: Floats
    spread: Floats
    value: Floats
    """0 where the spread is none."""


def slopes(evidence: LeaveOneOut) -> Slopes:
    """The skill alone, without its error and its tests."""
    votes = evidence.votes
    M, K = votes.n_annotators, votes.n_classes
    n = np.maximum(np.bincount(votes.annotator, minlength=M), 1).astype(np.float64)
    said = np.bincount(evidence.cell, minlength=M * K).reshape(M, K) / n[:, None]
    mean = evidence.counts.sum(axis=2) / n[:, None]
    square, both = np.zeros(M), evidence.per_annotator(evidence.right) / n
    for k in range(K):
        square += evidence.per_annotator(evidence.others(k) ** 2) / n
    spread = square - (mean * mean).sum(axis=1)
    shared = both - (said * mean).sum(axis=1)
    return Slopes(n, said, mean, spread, np.divide(shared, spread, out=np.zeros(M), where=spread > 1e-9))


def skills(evidence: LeaveOneOut, useful: float) -> Skills:
    """The pooled regression of "said l" on r[s, l], the probability that l is true by the other votes.

    If an annotator knows the answer with probability g and else answers from habit h, P(says l) = g r_l + (1 - g) h_l,
    the slope is g. Tests are score tests with the variance under that model at g = 0 and at g = ``useful``, h taken
    from the labels they use; the interval's error is the usual robust one."""
    from scipy.special import ndtr

    votes = evidence.votes
    M, K, m = votes.n_annotators, votes.n_classes, votes.annotator
    line = slopes(evidence)
    n, said, mean, spread, g = line.votes, line.said, line.mean, line.spread, line.value
    known = spread > 1e-9
    levels = (0.0, useful)
    habits = [normalise(np.maximum(said - v * mean, 0.0) + 1e-12, axis=1) for v in levels]
    moments = [[np.zeros(votes.n_votes) for _ in range(2)] for _ in levels]
    robust = np.zeros(votes.n_votes)
    for k in range(K):
        r = evidence.others(k)
        apart = r - mean[m, k]
        for v, h, (first, second) in zip(levels, habits, moments, strict=True):
            p = v * r + (1.0 - v) * h[m, k]
            first += p * apart
            second += p * apart * apart
        robust += ((votes.label == k) - said[m, k] - g[m] * apart) * apart
    p_values = []
    for v, (first, second) in zip(levels, moments, strict=True):
        variance = evidence.per_annotator(second - first * first)
        z = np.divide((g - v) * spread * n, np.sqrt(variance), out=np.zeros(M), where=known & (variance > 1e-12))
        p_values.append(np.where(known, ndtr(z), 1.0))
    error = np.sqrt(evidence.per_annotator(robust * robust))
    se = np.divide(error, spread * n, out=np.full(M, np.inf), where=known)
    # No residual at all (always the same label) is not certainty: the error under g = 0 stands in.
    null = np.sqrt(evidence.per_annotator(moments[1][1] - moments[1][0] ** 2))
    se = np.where(
        known,
        np.maximum(se, np.where(error < 1e-9, np.divide(null, spread * n, out=np.ones(M), where=known), 0.0)),
        np.inf,
    )
    return Skills(np.where(known, g, np.nan), np.where(known, se, np.nan), p_values[0], p_values[1])


def rule_skills(evidence: LeaveOneOut, useful: float) -> Skills:
    """The skill of annotators who name one class or nothing, by gold items alone; NaN, and p-values of 1, without.

    A rule that knows with probability g and else votes for its class l on any item is right on b + g (1 - b) of its
    votes, b the share of l among the gold items; tests are binomial. The votes of others do not show it: rules for one
    class rarely meet those for another, and on real sets agreement with the others hardly goes with precision.
    """
    votes, gold = evidence.votes, evidence.gold
    M, K = votes.n_annotators, votes.n_classes
    known = (gold[evidence.item] >= 0).astype(np.float64)
    n, right = evidence.per_annotator(known), evidence.per_annotator(known * (gold[evidence.item] == votes.label))
    label = np.bincount(evidence.cell, minlength=M * K).reshape(M, K).argmax(axis=1)
    b = ((np.bincount(gold[gold >= 0], minlength=K) + 1.0) / ((gold >= 0).sum() + K))[label]
    p, spread = (right + 0.5) / (n + 1.0), np.where(n > 0, 1.0 - b, np.nan)
    error = np.sqrt(p * (1.0 - p) / (n + 1.0)) / spread
    tails = [binomial_tail(n - right, n, 1.0 - b - g * (1.0 - b)) for g in (0.0, useful)]
    return Skills((p - b) / spread, error, tails[0], tails[1])


def constant_p(evidence: LeaveOneOut) -> Floats:
    """M x K: p-values against P(says l | truth is not l) <= 1/2; 1 where l is under ``MOSTLY`` of the votes."""
    x = evidence.counts
    use, total = x.sum(axis=1), x.sum(axis=(1, 2))[:, None]
    wrong = use - np.einsum("mkk->mk", x)  # said l, is not l
    not_l = total - x.sum(axis=2)
    return np.where(use >= MOSTLY * np.maximum(total, 1.0), binomial_tail(wrong, not_l, 0.5), 1.0)


def class_bias(evidence: LeaveOneOut) -> tuple[Floats, Floats, Floats]:
    """M x K: (said l) - P(truth is l) as a share of the votes, its standard error, and p-values.

    Said l for another class, and another for l: a sign test between the two kinds of mistakes, against a half, or
    against the share that the rest of the crowd has where that is more. The expected numbers under r vary less than
    numbers do, so test and error are on the safe side.
    """
    x = evidence.counts
    hit = np.einsum("mkk->mk", x)
    over, under = x.sum(axis=1) - hit, x.sum(axis=2) - hit
    n = np.maximum(x.sum(axis=(1, 2)), 1.0)[:, None]
    rest, missed = over.sum(axis=0) - over, under.sum(axis=0) - under
    usual = np.clip((rest + 0.5) / (rest + missed + 1.0), 0.5, 1.0 - 1e-9)
    error = np.sqrt(np.maximum(over + under, 1.0)) / n
    return (over - under) / n, error, binomial_tail(over, over + under, usual)


def confusion_p(evidence: LeaveOneOut, least: float) -> Floats:
    """M x K x K (annotator, truth, label): p-values against P(l | truth k) <= max(least, the rate of all others)."""
    x = evidence.counts
    M, K, _ = x.shape
    rest = x.sum(axis=0)[None] - x
    rate = normalise(rest + 1e-9, axis=2)
    n = np.broadcast_to(x.sum(axis=2, keepdims=True), x.shape)
    p = binomial_tail(x, n, np.clip(np.maximum(rate, least), 0.0, 1.0 - 1e-9))
    p[:, np.arange(K), np.arange(K)] = 1.0
    return p


def agreement(votes: Votes, level: float) -> dict[str, npt.NDArray[Any]]:
    """The mean share of an item's other votes that say the same, over items with any."""
    from scipy.special import betaincinv

    K, M = votes.n_classes, votes.n_annotators
    item = votes.item
    same = np.bincount(item * K + votes.label, minlength=len(votes) * K)[item * K + votes.label] - 1.0
    others = np.diff(votes.indptr)[item] - 1.0
    seen = others > 0
    x, m = same[seen] / others[seen], votes.annotator[seen]
    n, total, square = (np.bincount(m, weights=w, minlength=M).astype(np.float64) for w in (np.ones_like(x), x, x * x))
    mean = np.divide(total, n, out=np.full(M, np.nan), where=n > 0)
    gentle = (total + 0.5) / (n + 1.0)
    # Shares vary less than yes and no do: as many votes as would vary as much.
    variance = np.maximum(np.divide(square, n, out=np.zeros(M), where=n > 0) - np.nan_to_num(mean) ** 2, 1e-12)
    worth = np.where(n > 1, n * np.clip(gentle * (1.0 - gentle) / variance, 1.0, 10.0), n)
    a, b = np.nan_to_num(mean, nan=0.5) * worth + 0.5, (1.0 - np.nan_to_num(mean, nan=0.5)) * worth + 0.5
    tail = (1.0 - level) / 2.0
    return with_interval("agreement", mean, betaincinv(a, b, tail), betaincinv(a, b, 1.0 - tail))


def weights(evidence: LeaveOneOut, reach: float) -> dict[str, npt.NDArray[Any]]:
    """log theta[l, l] - log of the mean of theta[k, l] over the other classes k (by prior), averaged over their votes.

    Var log theta = psi'(a) - psi'(A) for a Dirichlet; that of the mean by the delta method; rows are independent.
    """
    from scipy.special import polygamma

    theta, pi = evidence.theta, evidence.prior
    M, K, _ = theta.shape
    alpha = evidence.counts + evidence.pseudo
    total = alpha.sum(axis=2, keepdims=True)
    own = np.einsum("mkk->mk", theta)
    rest = np.maximum(np.einsum("k,mkl->ml", pi, theta) - pi * own, 1e-300) / np.maximum(1.0 - pi, 1e-12)
    value = np.log(np.maximum(own, 1e-300)) - np.log(rest)
    diagonal = np.einsum("mkk->mk", alpha)
    variance = polygamma(1, np.maximum(diagonal, 1e-6)) - polygamma(1, np.maximum(total[:, :, 0], 1e-6))
    spread = pi[None, :, None] ** 2 * theta * (1.0 - theta) / (total + 1.0)
    spread[:, np.arange(K), np.arange(K)] = 0.0
    variance = variance + spread.sum(axis=1) / ((1.0 - pi) * rest) ** 2
    use = normalise(np.bincount(evidence.cell, minlength=M * K).reshape(M, K).astype(np.float64), axis=1)
    mean, error = (use * value).sum(axis=1), np.sqrt((use * use * np.maximum(variance, 0.0)).sum(axis=1))
    return with_interval("weight", mean, mean - reach * error, mean + reach * error)


def information(evidence: LeaveOneOut, reach: float) -> dict[str, npt.NDArray[Any]]:
    """I(truth; label) in bits, with the delta method's error, held between 0 and the entropy of the classes."""
    theta, pi = evidence.theta, evidence.prior
    label = np.einsum("k,mkl->ml", pi, theta)
    ratio = np.log2(np.maximum(theta, 1e-300) / np.maximum(label, 1e-300)[:, None])
    mean = (theta * ratio).sum(axis=2)
    within = (theta * ratio * ratio).sum(axis=2) - mean * mean
    total = (evidence.counts + evidence.pseudo).sum(axis=2)
    value = np.maximum(mean @ pi, 0.0)
    error = np.sqrt((pi * pi * np.maximum(within, 0.0) / (total + 1.0)).sum(axis=1))
    most = float(-(pi * np.log2(np.maximum(pi, 1e-300))).sum())
    return with_interval(
        "information", value, np.clip(value - reach * error, 0.0, most), np.clip(value + reach * error, 0.0, most)
    )


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
