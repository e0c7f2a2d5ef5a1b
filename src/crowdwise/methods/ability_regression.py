"""A logistic regression in which every vote connects one annotator with one item, and its sums over votes.

Vote s, by annotator m on item n, has x_s, a function of a_m and b_n (a :data:`Link`), with the slopes u_s = dx/da and
v_s = dx/db. With targets c_s in [0, 1], weights w_s and Gaussian priors on a and b, what is maximised is

    Q(a, b) = sum_s w_s ( c_s x_s - log(1 + exp x_s) ) + log priors.

The Fisher matrix of Q has diagonal blocks A (annotators) and B (items) and one entry per vote, X, between them:

=========  ==========  =====  =======================================================
symbol     code        shape  equation
=========  ==========  =====  =======================================================
p_s                    S      sigmoid(x_s)
h_s        ``h``       S      w_s p_s (1 - p_s)
A_m        ``A``       M      sum over m's votes of h_s u_s^2, and the prior's precision
B_n        ``B``       N      sum over n's votes of h_s v_s^2, and the prior's precision
X          ``cross``   S      h_s u_s v_s
=========  ==========  =====  =======================================================

It is positive definite. Eliminating the items leaves (A - X B^-1 X') da = ga - X B^-1 gb, which a few conjugate
gradient steps solve, each two sums over the votes; then db = (gb - X' da) / B. Nothing is ever items x annotators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crowdwise.core.numerics import Floats, Ints, clamp
from crowdwise.core.vote_sums import Edges
from crowdwise.data.votes import Votes

STEPS = 4
"""Newton steps in a maximisation step, at most; it ends sooner where a step gains a tenth of the first."""
INNER = 12
"""Conjugate gradient steps for one Newton step, at most."""
REACH = 2.0
"""How far one Newton step may move a parameter."""
GRID = np.linspace(-4.0, 4.0, 17)
"""Where difficulties are looked for, in standard deviations of their prior."""

Gaussian = tuple[float, float]
"""Mean and standard deviation."""
Link = Callable[[Floats, Floats, Ints, Ints], tuple[Floats, Floats | float, Floats | float]]
"""x_s, u_s, v_s of every vote, from all a and b and the annotator and item of every vote."""
Height = Callable[[Floats], tuple[Floats, Floats]]
"""Each item's part of J, and its slope, from the b of every item."""


@dataclass(frozen=True)
class Rows(Edges):
    """Votes as raw arrays, with the places of their labels."""

    K: int
    slot: Ints
    """label * N + item: classes come first, so that reductions over them run along memory."""
    cell: Ints
    """annotator * K + label."""

    @classmethod
    def of(cls, votes: Votes) -> Rows:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        item, annotator, label = (a.astype(np.int64) for a in (votes.item, votes.annotator, votes.label))
        weight, slot, cell = votes.weights.astype(np.float64), label * N + item, annotator * K + label
        return cls(item, annotator, label, weight, N, M, K, slot, cell)

    def voted(self, q: Floats) -> Floats:
        """q[n, l_s] of every vote."""
        return np.asarray(q.T.ravel()[self.slot])

    def per_label(self, values: Floats) -> Floats:
        """K x N: sums over the votes of an item for a class."""
        return np.asarray(np.bincount(self.slot, weights=values, minlength=self.K * self.N).reshape(self.K, self.N))


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), for any x."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def softplus(x: Floats) -> Floats:
    """log(1 + exp x), for any x."""
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def dot(a: Floats, b: Floats) -> float:
    """sum a b, in one thread: a threaded product of vectors costs more than it saves and sums in any order."""
    return float((a * b).sum())


def expect(
    rows: Rows, bonus: Floats, wrong: Floats, log_prior: Floats, gold: Ints | None = None
) -> tuple[Floats, Floats]:
    """The posterior q[n, k] and each item's log-likelihood (with its true class, where that is known).

    ``bonus`` is log P(l_s | truth = l_s) - log P(l_s | another truth), ``wrong`` the latter term. Only classes that
    somebody voted for differ, so there is one sum over the votes, whatever K.
    """
    logit = log_prior.T + rows.per_label(rows.weight * bonus)
    top = logit.max(axis=0)
    q = np.exp(logit - top)
    total = q.sum(axis=0)
    evidence = top + np.log(total)
    if gold is not None:
        known = np.flatnonzero(gold >= 0)
        evidence[known] = logit[gold[known], known]
    return clamp((q / total).T, gold), evidence + rows.per_item(rows.weight * wrong)


def log_gaussian(value: Floats, prior: Gaussian) -> Floats:
    """The log density of each value."""
    mean, sd = prior
    return np.asarray(-0.5 * ((value - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Problem:
    """The constants of a fit: the votes, the link that gives x, and the priors of a and b."""

    rows: Rows
    link: Link
    on_a: Gaussian
    on_b: Gaussian

    def x(self, a: Floats, b: Floats) -> tuple[Floats, Floats | float, Floats | float]:
        """x_s, u_s, v_s of every vote."""
        return self.link(a, b, self.rows.annotator, self.rows.item)

    def log_priors(self, a: Floats, b: Floats) -> float:
        return float(log_gaussian(a, self.on_a).sum() + log_gaussian(b, self.on_b).sum())


def surrogate(to: Problem, c: Floats, a: Floats, b: Floats) -> float:
    """Q(a, b) = sum w_s ( c_s x_s - log(1 + exp x_s) ) + log priors."""
    x, _, _ = to.x(a, b)
    return dot(to.rows.weight, c * x - softplus(x)) + to.log_priors(a, b)


def gradient(to: Problem, c: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """dQ/da and dQ/db: sums of w_s ( c_s - p_s ) times the slopes of x_s, and the slopes of the priors."""
    x, u, v = to.x(a, b)
    r = to.rows.weight * (c - sigmoid(x))
    (mean_a, sd_a), (mean_b, sd_b) = to.on_a, to.on_b
    return to.rows.per_annotator(r * u) - (a - mean_a) / sd_a**2, to.rows.per_item(r * v) - (b - mean_b) / sd_b**2


def direction(to: Problem, a: Floats, b: Floats, ga: Floats, gb: Floats) -> tuple[Floats, Floats]:
    """The Fisher matrix's answer (da, db) to a gradient (ga, gb).

    The items are eliminated exactly, so the answer points upwards wherever the conjugate gradients end.
    """
    rows = to.rows
    x, u, v = to.x(a, b)
    p = sigmoid(x)
    h = rows.weight * p * (1.0 - p)
    A = rows.per_annotator(h * u * u) + to.on_a[1] ** -2
    B = rows.per_item(h * v * v) + to.on_b[1] ** -2
    cross = h * u * v

    def to_items(y: Floats) -> Floats:
        return rows.per_item(cross * y[rows.annotator])

    def to_annotators(y: Floats) -> Floats:
        return rows.per_annotator(cross * y[rows.item])

    da, r = np.zeros_like(ga), ga - to_annotators(gb / B)
    s = r / A
    size = dot(r, s)
    enough = 1e-4 * size
    for _ in range(INNER):
        if size <= enough:
            break
        image = A * s - to_annotators(to_items(s) / B)
        step = size / dot(s, image)
        da, r = da + step * s, r - step * image
        old, size = size, dot(r, r / A)
        s = r / A + (size / old) * s
    return da, (gb - to_items(da)) / B


def ascend(to: Problem, c: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """A few safeguarded Newton steps up Q, from (a, b): Q never falls."""
    now, first = surrogate(to, c, a, b), 0.0
    for step in range(STEPS):
        ga, gb = gradient(to, c, a, b)
        da, db = within_reach(ga, gb, *direction(to, a, b, ga, gb))
        slope, length, best = dot(ga, da) + dot(gb, db), 1.0, -np.inf
        while length > 1e-6:
            best = surrogate(to, c, a + length * da, b + length * db)
            if best >= now + 1e-4 * length * slope:
                break
            length /= 2.0
        if not best > now:
            break
        a, b, gain, now = a + length * da, b + length * db, best - now, best
        first = first or gain
        if step and gain < 0.1 * first:
            break
    return a, b


def within_reach(ga: Floats, gb: Floats, da: Floats, db: Floats) -> tuple[Floats, Floats]:
    """A step with its long parts cut off; shortened as a whole where it would not point upwards any more."""
    a, b = np.clip(da, -REACH, REACH), np.clip(db, -REACH, REACH)
    if dot(ga, a) + dot(gb, b) > 0.0:
        return a, b
    longest = max(float(np.abs(da).max(initial=0.0)), float(np.abs(db).max(initial=0.0)), REACH)
    return da * (REACH / longest), db * (REACH / longest)


def best_difficulty(height: Height, on_b: Gaussian, N: int) -> Floats:
    """The b of every item at which J is greatest, all else fixed.

    A grid finds the right maximum; regula falsi on the slope (by Anderson and Bjorck's rule) refines it. The items do
    not interact, so an item has the same b whatever the others are.
    """
    mean, sd = on_b
    best, low, up = np.full(N, -np.inf), np.zeros(N), np.zeros(N)
    for point in mean + sd * GRID:
        found, slope = height(np.full(N, point))
        higher = found > best
        best, low, up = np.where(higher, found, best), np.where(higher, point, low), np.where(higher, slope, up)
    # From the best point the way goes up to `high`, which is no higher; `up` and `down` are the slopes on that way.
    way = np.where(up >= 0.0, 1.0, -1.0)
    high, up = low + way * sd * (GRID[1] - GRID[0]), np.abs(up)
    down = way * height(high)[1]
    side = np.zeros(N)
    for _ in range(60):
        falsi = (down <= 0.0) & (up > down)
        share = np.divide(up, up - down, out=np.full(N, 0.5), where=falsi)
        probe = low + share * (high - low)
        found, slope = height(probe)
        slope = slope * way
        # A slope that still goes up, but from lower ground, belongs to another maximum.
        rise = (slope > 0.0) & (found >= best - 1e-9)
        low, best = np.where(rise, probe, low), np.where(rise, np.maximum(found, best), best)
        high = np.where(rise, high, probe)
        # The end that stays a second time counts for less.
        before = np.where(rise, up, down)
        ratio = np.divide(slope, before, out=np.ones(N), where=before != 0.0)
        less = np.where(ratio < 1.0, 1.0 - ratio, 0.5)
        up = np.where(rise, slope, np.where(side < 0.0, up * less, up))
        down = np.where(rise, np.where(side > 0.0, down * less, down), slope)
        side = np.where(rise, 1.0, -1.0)
        if (np.minimum(np.abs(high - low), np.abs(slope)) < 1e-11).all():
            break
    return np.asarray(probe)
