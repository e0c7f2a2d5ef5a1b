"""Small pieces of arithmetic that several models share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise import kernels

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]

TINY = 1e-300
"""No probability is taken to be smaller: its logarithm stays finite, so a score can be weighted and summed."""
ROWS = 2**24
"""Numbers that are looked at in one go, where all rows at once would double the memory."""
TIE = 1e-9
"""Two posterior probabilities closer than this are a tie."""


def safe_log(p: Floats) -> Floats:
    """log p, with p held above ``TINY``."""
    return np.log(np.maximum(p, TINY))


def normalise(counts: Floats, axis: int) -> Floats:
    """Counts divided by their sum; uniform where there are none."""
    total = counts.sum(axis=axis, keepdims=True)
    return np.asarray(np.divide(counts, total, out=np.full_like(counts, 1.0 / counts.shape[axis]), where=total > 0))


def softmax(logit: Floats) -> Floats:
    """exp(logit) with rows that sum to one; the largest of a row is taken out first."""
    q = np.exp(logit - logit.max(axis=1, keepdims=True))
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def winners(q: Floats) -> Floats:
    """Each row counted for its largest entry alone, tied ones evenly."""
    return normalise((q >= q.max(axis=1, keepdims=True) - TIE).astype(np.float64), axis=1)


def clamp(q: Floats, gold: Ints | None) -> Floats:
    """A posterior with certainty where the truth is known."""
    if gold is None:
        return q
    q = q.copy()
    known = np.flatnonzero(gold >= 0)
    q[known] = 0.0
    q[known, gold[known]] = 1.0
    return q


def posterior_and_evidence(logit: Floats, gold: Ints | None = None) -> tuple[Floats, Floats]:
    """The softmax of every row and the log of its normaliser; of gold labels, certainty and the logit of the class."""
    top = logit.max(axis=1, keepdims=True)
    q = np.exp(logit - top)
    total = q.sum(axis=1, keepdims=True)
    evidence = (top + np.log(total))[:, 0]
    if gold is not None:
        known = np.flatnonzero(gold >= 0)
        evidence[known] = logit[known, gold[known]]
    return clamp(q / total, gold), evidence


def entropy(q: Floats) -> Floats:
    """The entropy of each row, in bits."""
    step = max(1, ROWS // max(q.shape[1], 1))  # some rows at a time: the logarithms of all would take as much memory
    parts = [q[at : at + step] for at in range(0, len(q), step)] or [q]
    return np.concatenate([-(p * np.log2(np.maximum(p, TINY))).sum(axis=1) + 0.0 for p in parts])


def decide(
    q: Floats, prior: Floats, ties: str = "prior", rng: np.random.Generator | None = None
) -> npt.NDArray[np.int32]:
    """The class of each item: the most probable; among equals the one with the higher prior, then the first.

    With ``ties="random"`` a seeded draw decides among equals.
    """
    best, at = kernels.top_class(q, TIE)
    if len(at):
        order = rng.random((len(at), q.shape[1])) if ties == "random" and rng is not None else prior
        tied = q[at] >= q[at].max(axis=1, keepdims=True) - TIE
        order = np.where(tied, order, -np.inf)
        best[at] = (order >= order.max(axis=1, keepdims=True) - TIE).argmax(axis=1)
    return best


def maximise_1d(f: Callable[[float], float], low: float, high: float, tol: float = 1e-4) -> float:
    """The maximiser of a unimodal function on an interval, by golden-section search."""
    ratio = (np.sqrt(5.0) - 1.0) / 2.0
    a, b = low, high
    x, y = b - ratio * (b - a), a + ratio * (b - a)
    fx, fy = f(x), f(y)
    while b - a > tol:
        if fx >= fy:
            b, y, fy = y, x, fx
            x = b - ratio * (b - a)
            fx = f(x)
        else:
            a, x, fx = x, y, fy
            y = a + ratio * (b - a)
            fy = f(y)
    return float((a + b) / 2.0)


def maximise_smooth(f: Callable[[float], float], low: float, high: float, width: float) -> float:
    """As :func:`maximise_1d`, of a smooth function: golden sections down to a width, then the top of a parabola.

    The parabola goes through the best point and its neighbours on both sides.
    """
    seen: dict[float, float] = {}

    def kept(x: float) -> float:
        seen[x] = f(x)
        return seen[x]

    middle = maximise_1d(kept, low, high, width)
    points = sorted(seen)
    i = max(range(len(points)), key=lambda i: seen[points[i]])
    if i in (0, len(points) - 1):
        return middle
    a, x, b = points[i - 1 : i + 2]
    left, right = (x - a) * (seen[x] - seen[b]), (x - b) * (seen[x] - seen[a])
    return x if left == right else float(x - 0.5 * ((x - a) * left - (x - b) * right) / (left - right))


def huber_mean(x: Floats, weight: Floats) -> float:
    """The weighted mean, numbers counting up to three deviations (1.48 times the median distance) from it.

    >>> round(huber_mean(np.array([1.0, 2.0, 3.0, 4.0, 90.0]), np.ones(5)), 2), huber_mean(np.arange(2.0), np.ones(2))
    (3.61, 0.5)
    """

    def median(v: Floats) -> float:
        order = np.argsort(v, kind="stable")
        w = weight[order]
        return float(np.interp(0.5 * w.sum(), np.cumsum(w) - 0.5 * w, v[order]))

    centre = median(x)
    limit = 3.0 * 1.48 * median(np.abs(x - centre))
    for _ in range(50):
        centre += float(weight @ np.clip(x - centre, -limit, limit) / weight.sum())
    return centre


def dirichlet_multinomial(counts: Floats, alpha: Floats) -> float:
    """log P(counts | alpha), summed over rows (the last axis), without the term that alpha does not enter.

    = sum over rows of [ lgamma(A) - lgamma(A + n) + sum_l lgamma(alpha_l + c_l) - lgamma(alpha_l) ],
    A = sum_l alpha_l, n = sum_l c_l.
    """
    from scipy.special import gammaln

    A, n = alpha.sum(axis=-1), counts.sum(axis=-1)
    return float((gammaln(A) - gammaln(A + n)).sum() + (gammaln(alpha + counts) - gammaln(alpha)).sum())


def effective_votes(right: Floats, total: Floats, unsure: Floats) -> Floats:
    """n_eff of :func:`share_interval`: how many trials of known outcome the inferred ones are worth."""
    gentle = (np.asarray(right) + 0.5) / (np.asarray(total) + 1.0)
    return np.clip(total - unsure / (gentle * (1.0 - gentle)), 0.0, total)


def share_interval(right: Floats, total: Floats, unsure: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Low and high ends of an interval for a share whose numerator was itself inferred.

    ``right`` of ``total`` trials are expected successes; ``unsure`` is the posterior variance of that
    number. With p the share, complete data would carry information n / p(1-p); Louis' principle
    takes off the part that is missing, Var(right) / (p(1-p))^2, which leaves as many trials as

        n_eff = n - Var(right) / p(1-p).

    The interval is that of a Beta(p n_eff + 1/2, (1-p) n_eff + 1/2).
    """
    from scipy.special import betaincinv

    n = np.asarray(total, dtype=np.float64)
    p = np.divide(right, n, out=np.full_like(n, 0.5), where=n > 0)
    n_eff = effective_votes(right, n, unsure)
    a, b = p * n_eff + 0.5, (1.0 - p) * n_eff + 0.5
    tail = (1.0 - level) / 2.0
    return np.minimum(betaincinv(a, b, tail), p), np.maximum(betaincinv(a, b, 1.0 - tail), p)


def share_with_interval(
    right: Floats, total: Floats, unsure: Floats, level: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """A share, nan where there were no trials, and the two ends of its interval: see :func:`share_interval`."""
    low, high = share_interval(right, total, unsure, level)
    return np.divide(right, total, out=np.full_like(total, np.nan), where=total > 0), low, high


def binomial_tail(x: Any, n: Any, p: Any) -> Floats:
    """P(X >= x), X binomial(n, p), with x and n not necessarily whole: I_p(x, n - x + 1); 1 for x = 0."""
    from scipy.special import betainc

    x, n = np.asarray(x, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return np.where(x > 1e-12, betainc(np.maximum(x, 1e-12), np.maximum(n - x, 0.0) + 1.0, p), 1.0)


def sample_items(cost: Ints, most: float, random_state: Any, side: Literal["left", "right"] = "left") -> Ints:
    """The items to look at, in order: all, or, at random, as many (at least one) as cost ``most`` together."""
    if cost.sum() <= most:
        return np.arange(len(cost))
    order = np.random.default_rng(random_state).permutation(len(cost))
    return np.sort(order[: max(int(np.searchsorted(np.cumsum(cost[order]), most, side=side)), 1)])


def one_algebra_thread() -> AbstractContextManager[object]:
    """Linear algebra on a single thread within the context.

    A solver makes thousands of short calls; splitting each over several threads takes many times as long where the
    processors are busy, and sums in another order.
    """
    import scipy.linalg  # noqa: F401  loads the library whose threads are to be limited

    limits: AbstractContextManager[object] = import_module("threadpoolctl").threadpool_limits(limits=1)
    return limits
