"""Ratings with bias, scale and noise: a factor model of items and annotators, by variational EM.

The true number z of an item is Normal; annotator m sees it shifted, stretched around the centre c, and with noise:

    z[n] ~ N(mu, tau^2)          x = c + b[m] + a[m] (z[n] - c) + e,   e ~ N(0, 1 / p[m])
    b[m] ~ N(0, s_b^2)           a[m] ~ N(1, s_a^2)                    p[m] ~ Gamma(alpha, beta)

with the numbers in capitals in the table learned as well (empirical Bayes), so that annotators are shrunk towards
their crowd as far as the crowd is alike. a is 1 without ``scale``.

**What is identified.** Adding a constant to all z and taking it off all b changes no rating, nor does stretching all z
and shrinking all a. The priors decide while the model is fitted: the mean bias is 0 (E[a b] sums to 0, to be exact) and
the mean scale 1, up to its shrinkage. The values that are reported have the level of the plain mean.

**Items are fixed.** Without ``scale`` annotators are compared on the items they share, and on nothing else: tau is as
good as infinite while they are fitted (``FLAT``), and learned for the values afterwards.

=================  ================  =======  ====================================================================
symbol             code              shape    equation (y = x - c, u = z - c; w the weight of a rating)
=================  ================  =======  ====================================================================
u[n], v[n]         ``u``, ``v``      N        1/v = 1/tau^2 + sum w p E[a^2];  u = v (mu/tau^2 + sum w p (a y - E[ab]))
b, a, V            ``b``, ``a``...   M        V^-1 = diag(1/s_b^2, 1/s_a^2) + p sum w (1, u; u, u^2 + v)
p[m]               ``p``             M        (alpha + f n/2) / (beta + f sum w E[(y - b - a u)^2] / 2)
MU, TAU            ``mu, tau2``      1        mean u;  mean (u - mu)^2 + v
S_B, S_A           ``sb2, sa2``      1        sum (b^2 + var b) / (M - 1);  the same of a - 1
ALPHA, BETA        ``alpha, beta``   1        the best for the bound with q(p) at its best, by search in each
=================  ================  =======  ====================================================================

The objective is the variational lower bound of the log evidence, which no step lowers; all of it but the divergence of
the precisions counts f times. f (:func:`precision_power`) corrects for ratings that are not Normal, and s_b^2 is
reduced by :func:`additive_part`; both are 1 where the model is right. s_b and s_a are updated between runs of passes,
from variances that include the uncertainty of the items (the bound does not, and would shrink differences away). Its
M - 1 is that of a prior proportional to s, which keeps s above zero. Each pass also makes the shift and the stretch
that raise the bound most (parameter expansion): the updates alone would need hundreds of passes.

**Intervals.** The factorised posterior treats the annotators as known. The reported variances are those of
the joint Normal posterior of items, biases, scales and mu (inverse of the joint precision matrix, by its Schur
complement on the annotators), plus what not knowing p adds: sum (w p a r v)^2 / shape, r the residual, plus the square
of the distance between the value and the posterior mean, plus the error that all ratings on an item share
(``shared_error``). Degrees of freedom that items use up are taken off the shape of p: n becomes f sum (1 - h)^2, h the
leverage of a rating. Variances of biases and scales are enlarged for p and s_b being estimates.

V. C. Raykar et al., Learning from crowds, JMLR 11 (2010), section 5, for the precisions; F. Rodrigues, M. Lourenco,
B. Ribeiro and F. Pereira, Learning supervised topic models for classification and regression from crowds, PAMI 39
(2017), for biases; Y. Chung et al., A nondegenerate penalized likelihood estimator for variance parameters,
Psychometrika 78 (2013), for the prior of s; C. Liu and D. B. Rubin, Parameter expansion for EM, Biometrika 85 (1998).

All numbers are in standard units: the ratings have mean 0 and deviation 1.

The ratings on an item, biases taken off and weighted by precision, have a mean w[n] with variance V[n]; z[n] ~ N(mu,
tau^2) makes of it the posterior mean m[n] = (mu / tau^2 + w / V) / (1 / tau^2 + 1 / V).

**Half-way.** The reported value is s m[n] + (1 - s) w[n], ``shrink`` = s = 1/2. m is best where the truth is on the
scale of the ratings. On real sets it need not be: the slope of the truth on the crowd's values (noise taken off) lies
between 0.6 and 1.5 there, and annotators above the crowd are right as often as those below it. Half of the way
has three quarters of the gain where m is right, and half of the loss where it is not.

**Shared errors.** An item that misleads misleads many at once: x = z + g[n] + ..., and no number of ratings averages g
out. g cannot be seen in the ratings, yet where they scatter more it is larger (on five of six real sets, the squared
error grows in proportion to the variance of the ratings on the item): g[n] ~ N(0, c s^2 / d[n]), s^2 the variance of a
typical annotator's noise, d the ease of the item, d ~ Gamma(k, k) with k by maximum likelihood, c = ``shared_error``.
Integrated over d, g is t-distributed with 2 k + n - 1 degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdwise.answers.ratings_shared import (
    RatingModel,
    counts,
    ease_prior,
    gross_errors,
    hedged,
    nearby,
    other_scales,
    point_out_gross_errors,
    point_out_scales,
    scatter,
    standardise,
    variance_within,
    varied,
    weighted_mean,
)
from crowdwise.core.constraints import Count, NonNegative, Share, declared
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.ratings import Ratings

MIN_VARIANCE = 1e-8
"""The minimum variance, in units of that of all ratings."""
ALPHA = (1.0, 1e3)
"""The range of alpha: a prior of at least two ratings that annotators are alike keeps every variance above zero."""
FLAT = 1e4
"""The variance of items that have an effect of their own, in units of that of all ratings: as good as none known."""


@dataclass(frozen=True)
class RatingMatrices:
    """Standardised ratings as sparse items x annotators matrices: ``w`` of weights, ``wy`` of weights times numbers."""

    item: Ints
    annotator: Ints
    y: Floats
    weight: Floats
    indptr: Ints
    N: int
    M: int
    floor: float = MIN_VARIANCE
    """Added to every squared residual: the minimum variance of an annotator; one of a few ratings could reach zero."""

    @classmethod
    def of(cls, ratings: Ratings, y: Floats) -> RatingMatrices:
        N, M = len(ratings), ratings.n_annotators
        item, w = ratings.item, ratings.weights
        within = variance_within(item, w, y, N, default=1.0)
        return cls(item, ratings.annotator, y, w, ratings.indptr, N, M, max(1e-3 * within, MIN_VARIANCE))

    def select(self, rows: Any) -> RatingMatrices:
        """Some of the ratings, with all items and annotators."""
        indptr = np.concatenate([[0], np.cumsum(np.bincount(self.item[rows], minlength=self.N))])
        item, annotator = self.item[rows], self.annotator[rows]
        return replace(self, item=item, annotator=annotator, y=self.y[rows], weight=self.weight[rows], indptr=indptr)

    def merged(self) -> RatingMatrices:
        """With one rating per item and annotator: the mean of those there are, with the sum of their weights."""
        cell, first, at = np.unique(self.item * self.M + self.annotator, return_index=True, return_inverse=True)
        if len(cell) == len(self.y):
            return self
        weight = counts(at, self.weight, len(cell))
        y = counts(at, self.weight * self.y, len(cell)) / weight
        return replace(self.select(first), y=y, weight=weight)

    def alone(self) -> Any:
        """S: whether all of the weight on a rating's item is its annotator's."""
        first = np.zeros(self.N, dtype=np.int64)
        first[self.item[::-1]] = self.annotator[::-1]
        return (np.bincount(self.item[first[self.item] != self.annotator], minlength=self.N) == 0)[self.item]

    def matrix(self, data: Floats) -> Any:
        from scipy.sparse import csr_matrix

        return csr_matrix((data, self.annotator, self.indptr), shape=(self.N, self.M))


@dataclass(frozen=True)
class GaussianState:
    """The posteriors and the hyperparameters, after a pass."""

    u: Floats
    v: Floats
    b: Floats
    a: Floats
    vbb: Floats
    vab: Floats
    vaa: Floats
    shape: Floats
    rate: Floats
    mu: float
    tau2: float
    sb2: float
    sa2: float
    alpha: float
    beta: float

    @property
    def p(self) -> Floats:
        return self.shape / self.rate

    @property
    def log_p(self) -> Floats:
        from scipy.special import digamma

        return np.asarray(digamma(self.shape) - np.log(self.rate))


@dataclass(frozen=True)
class GaussianSettings:
    bias: bool
    scale: bool
    fixed: bool = False
    """Whether annotators are compared on the same items alone: tau is not learned but ``FLAT``."""
    power: float = 1.0
    """f: ratings count f times for the precisions (:func:`precision_power`)."""
    additive: float = 1.0
    """The part of s_b^2 that is used (:func:`additive_part`)."""


def begin(crowd: RatingMatrices, settings: GaussianSettings) -> GaussianState:
    """Item means, half-way to the grand mean; annotators all alike."""
    N, M = crowd.N, crowd.M
    total, weight = counts(crowd.item, crowd.weight * crowd.y, N), counts(crowd.item, crowd.weight, N)
    u = total / (weight + 1.0)
    within = float((crowd.weight * (crowd.y - u[crowd.item]) ** 2).sum() / crowd.weight.sum()) + MIN_VARIANCE
    zero, n = np.zeros(M), counts(crowd.annotator, crowd.weight, M)
    shape = 2.0 + n / 2.0
    tau2 = FLAT if settings.fixed else float(u.var()) + MIN_VARIANCE
    return GaussianState(
        u, np.full(N, within / 4.0), zero, np.ones(M), zero, zero, zero, shape, shape * within, float(u.mean()), tau2,
        0.25 * within if settings.bias else 0.0, 0.05 if settings.scale else 0.0, 2.0, 2.0 * within,
    )  # fmt: skip


def items_given(W: Any, Y: Any, s: GaussianState, settings: GaussianSettings) -> GaussianState:
    """u, v; then mu and tau."""
    p = s.p
    h = 1.0 / s.tau2 + W @ (p * (s.a**2 + s.vaa))
    u = (s.mu / s.tau2 + Y @ (p * s.a) - W @ (p * (s.a * s.b + s.vab))) / h
    mu = float(u.mean())
    tau2 = s.tau2 if settings.fixed else max(float(((u - mu) ** 2 + 1.0 / h).mean()), MIN_VARIANCE)
    return replace(s, u=u, v=1.0 / h, mu=mu, tau2=tau2)


def annotators_given(W: Any, Y: Any, s: GaussianState, settings: GaussianSettings) -> GaussianState:
    """b, a and their covariance; then s_b and s_a."""
    p = s.p
    n, su, suu = W.T @ np.ones(len(s.u)), W.T @ s.u, W.T @ (s.u**2 + s.v)
    sy, syu = Y.T @ np.ones(len(s.u)), Y.T @ s.u
    if settings.bias and settings.scale:
        A, B, C = 1.0 / s.sb2 + p * n, p * su, 1.0 / s.sa2 + p * suu
        f, g = p * sy, 1.0 / s.sa2 + p * syu
        det = A * C - B * B
        s = replace(s, b=(C * f - B * g) / det, a=(A * g - B * f) / det, vbb=C / det, vab=-B / det, vaa=A / det)
    elif settings.bias:
        vbb = 1.0 / (1.0 / s.sb2 + p * n)
        s = replace(s, b=vbb * p * (sy - su), vbb=vbb)
    elif settings.scale:
        vaa = 1.0 / (1.0 / s.sa2 + p * suu)
        s = replace(s, a=vaa * (1.0 / s.sa2 + p * syu), vaa=vaa)
    return s


def expand(s: GaussianState, settings: GaussianSettings) -> GaussianState:
    """Move the shift of all items (against biases) and their stretch (against scales) to the optimum of the priors."""
    if settings.bias:
        shift = float((s.a * s.b + s.vab).sum() / (s.a**2 + s.vaa).sum())
        s = replace(
            s, u=s.u + shift, mu=s.mu + shift, b=s.b - shift * s.a, vab=s.vab - shift * s.vaa,
            vbb=s.vbb - 2.0 * shift * s.vab + shift**2 * s.vaa,
        )  # fmt: skip
    if settings.scale:
        # c maximises M log c - sum E[(c a - 1)^2] / 2 s_a^2:  c^2 sum E[a^2] - c sum E[a] - M s_a^2 = 0
        square, total = float((s.a**2 + s.vaa).sum()), float(s.a.sum())
        c = (total + np.sqrt(total**2 + 4.0 * square * len(s.a) * s.sa2)) / (2.0 * square)
        s = replace(
            s, u=s.u / c, v=s.v / c**2, mu=s.mu / c, tau2=max(s.tau2 / c**2, MIN_VARIANCE), a=s.a * c, vaa=s.vaa * c**2,
            vab=s.vab * c,
        )  # fmt: skip
    return s


def differences(W: Any, s: GaussianState, settings: GaussianSettings) -> GaussianState:
    """s_b and s_a updated: (M - 1) s^2 = sum (b^2 + var b), where var b includes the uncertainty of the items.

    Where the ratings hold enough information on the biases, it is solved for s^2, s^2 = sum b^2 / (sum (1 - var b /
    s^2) - 1), which takes a few rounds instead of hundreds.
    """
    vbb, vaa = own_variances(W, s)
    out: dict[str, Any] = {}
    groups = (("sb2", settings.bias, s.b, vbb, s.sb2), ("sa2", settings.scale, s.a - 1.0, vaa, s.sa2))
    for name, on, gap, var, old in groups:
        if on:
            square, free = float((gap * gap).sum()), float((1.0 - var / old).sum()) - 1.0
            new = square / free if free > 0.5 else (square + float(var.sum())) / max(len(gap) - 1.0, 1.0)
            out[name] = float(np.clip(new, max(old / 10.0, MIN_VARIANCE), 10.0 * old))
    return replace(s, **out)


def own_variances(W: Any, s: GaussianState) -> tuple[Floats, Floats]:
    """Of b and a, each apart from all other annotators', the items having a posterior: p sum w (1 - w p a^2 v)..."""
    p = s.p
    h = 1.0 / s.tau2 + W @ (p * s.a**2)
    part = p * s.a**2 * (W.multiply(W).T @ (1.0 / h)), p * s.a**2 * (W.multiply(W).T @ (s.u**2 / h))
    known_b = np.maximum(p * (W.T @ np.ones(len(h)) - part[0]), 0.0)
    known_a = np.maximum(p * (W.T @ s.u**2 - part[1]), 0.0)
    return 1.0 / (1.0 / max(s.sb2, MIN_VARIANCE) + known_b), 1.0 / (1.0 / max(s.sa2, MIN_VARIANCE) + known_a)


def squares(W: Any, Y: Any, Z: Floats, s: GaussianState, floor: float) -> Floats:
    """sum over each annotator's ratings of w E[(y - b - a u)^2]; ``Z`` is sum w y^2."""
    one = np.ones(len(s.u))
    n, su, suu = W.T @ one, W.T @ s.u, W.T @ (s.u**2 + s.v)
    total = Z - 2.0 * s.b * (Y.T @ one) - 2.0 * s.a * (Y.T @ s.u)
    total += (s.b**2 + s.vbb) * n + 2.0 * (s.a * s.b + s.vab) * su + (s.a**2 + s.vaa) * suu
    return np.asarray(np.maximum(total, 0.0) + floor * n)


def precisions_given(n: Floats, square: Floats, s: GaussianState, power: float = 1.0) -> GaussianState:
    """alpha and beta, one step uphill with p integrated out; then the Gamma posteriors of p."""
    from scipy.special import gammaln

    n, square = power * n, power * square
    sizes, often = np.unique(n / 2.0, return_counts=True)

    def evidence(alpha: float, beta: float) -> float:
        each = (alpha + n / 2.0) @ np.log(beta + square / 2.0)
        return float(often @ gammaln(alpha + sizes) - each + len(n) * (alpha * np.log(beta) - gammaln(alpha)))

    typical = s.beta / s.alpha  # a variance
    alpha = nearby(lambda t: evidence(np.exp(t), np.exp(t) * typical), s.alpha, *ALPHA)
    typical = nearby(lambda t: evidence(alpha, alpha * np.exp(t)), typical, MIN_VARIANCE, 1e8)
    beta = alpha * typical
    return replace(s, alpha=alpha, beta=beta, shape=alpha + n / 2.0, rate=beta + square / 2.0)


def lower_bound(s: GaussianState, n: Floats, square: Floats, settings: GaussianSettings) -> float:
    """The bound; all but the divergence of the precisions counts ``settings.power`` times."""
    from scipy.special import digamma, gammaln

    log_p, p = s.log_p, s.p
    total = 0.5 * float((n * (log_p - float(np.log(2.0 * np.pi)))).sum() - (p * square).sum())
    gap = (s.u - s.mu) ** 2 + s.v
    total += 0.5 * float((np.log(s.v / s.tau2) + 1.0 - gap / s.tau2).sum())
    if settings.bias:
        total -= 0.5 * float((np.log(s.sb2) + (s.b**2 + s.vbb) / s.sb2 - 1.0).sum())
    if settings.scale:
        total -= 0.5 * float((np.log(s.sa2) + ((s.a - 1.0) ** 2 + s.vaa) / s.sa2 - 1.0).sum())
    if settings.bias and settings.scale:
        total += 0.5 * float(np.log(s.vbb * s.vaa - s.vab**2).sum())
    elif settings.bias or settings.scale:
        total += 0.5 * float(np.log(s.vbb if settings.bias else s.vaa).sum())
    prior = s.alpha * np.log(s.beta) - gammaln(s.alpha) + (s.alpha - 1.0) * log_p - s.beta * p
    entropy = s.shape - np.log(s.rate) + gammaln(s.shape) + (1.0 - s.shape) * digamma(s.shape)
    return settings.power * total + float((prior + entropy).sum())


def normal_spread(w: Floats, V: Floats) -> tuple[float, float]:
    """mu and tau^2 of w ~ N(mu, tau^2 + V), by scoring; tau^2 is not above the variance of w."""
    mu, tau2 = float(w.mean()), float(w.var())
    most = max(tau2, MIN_VARIANCE)
    for _ in range(50):
        weight = 1.0 / (tau2 + V)
        mu = float((weight * w).sum() / weight.sum())
        new = float((weight**2 * ((w - mu) ** 2 - V)).sum() / (weight**2).sum())
        new = float(np.clip(new, MIN_VARIANCE, most))
        if abs(new - tau2) <= 1e-9 * tau2:
            break
        tau2 = new
    return mu, tau2


def item_sums(crowd: RatingMatrices, s: GaussianState) -> tuple[Floats, Floats, Floats, Floats]:
    """Of the ratings on each item, the sums of precisions and of precisions times numbers (N), and their parts (S)."""
    m = crowd.annotator
    part = crowd.weight * s.p[m] * s.a[m] ** 2
    pull = crowd.weight * s.p[m] * s.a[m] * (crowd.y - s.b[m])
    return counts(crowd.item, part, crowd.N), counts(crowd.item, pull, crowd.N), part, pull


def between(h: Floats, top: Floats, mu: float, tau2: float, shrink: float) -> tuple[Floats, Floats]:
    """The reported value and the posterior mean: ``top / h`` moved towards mu; mu where nothing is known (h = 0)."""
    posterior = (mu / tau2 + top) / (1.0 / tau2 + h)
    plain = np.divide(top, h, out=np.full_like(top, mu), where=h > 1e-12)
    return shrink * posterior + (1.0 - shrink) * plain, posterior


def shared_errors(crowd: RatingMatrices, s: GaussianState, u: Floats, c: float) -> tuple[Floats, Floats]:
    """The squared scale of each item's shared error, and the degrees of freedom of its t distribution."""
    m, n = crowd.annotator, crowd.item
    free = np.maximum(counts(n, crowd.weight, crowd.N) - 1.0, 0.0) / 2.0
    Q = counts(n, crowd.weight * s.p[m] * (crowd.y - s.b[m] - s.a[m] * u[n]) ** 2, crowd.N) / 2.0
    k = 2.0
    for _ in range(8):
        k = ease_prior(free, Q, k)
    k = max(k, 1.5)  # the t distribution then has a variance on every item
    typical = float(np.median((1.0 / s.p)[m]))
    return c * typical * (k + Q) / (k + free), 2.0 * (k + free)


def _residuals(crowd: RatingMatrices) -> tuple[Ints, Floats, Floats, Floats, Floats]:
    """With one rating per item and annotator: the annotators, weights, the mean of the other ratings on each rating's
    item, the share of the rating in all of them (at most 0.9), and its distance from the mean of all."""
    crowd = crowd.merged()
    item, w = crowd.item, crowd.weight
    total, sums = counts(item, w, crowd.N)[item], counts(item, w * crowd.y, crowd.N)[item]
    mean, own = (sums - w * crowd.y) / np.maximum(total - w, 1e-9), np.minimum(w / total, 0.9)
    return crowd.annotator, w, mean, own, (crowd.y - mean) * (1.0 - own)


def precision_power(crowd: RatingMatrices, bias: bool) -> float:
    """f = 2 / (k - 1), at most 1: how much a rating counts for the precision of its annotator; k is the kurtosis.

    A variance that is estimated from n ratings has the relative variance (k - 1) / n, which is 2 / n for Normal noise
    alone. Where most answers are zero and a few are large k is 5 to 10, and annotators whose precisions are equal would
    seem to differ. E[r^4] and E[r^2]^2 (from pairs of ratings of one annotator) are summed over annotators in units of
    their own variance, with two ratings of the crowd's added to it; r is the distance from the item's mean.
    """
    (who, w, _, own, r), M = _residuals(crowd), crowd.M
    n = counts(who, w, M)
    if bias:
        r = r - (counts(who, w * r, M) / (n + 1.0))[who]
    square = r * r / (1.0 - own)
    first, second = counts(who, w * square, M), counts(who, w * square * square, M)
    several = n > 1.5
    if not several.any() or not second.sum() > 0.0:
        return 1.0
    n, first, second = n[several], first[several], second[several]
    variance = (first + 2.0 * first.sum() / n.sum()) / (n + 2.0)
    pairs = (np.maximum(first * first - second, 0.0) / ((n - 1.0) * variance**2)).sum()
    kurtosis = float((second / variance**2).sum() / max(float(pairs), 1e-300))
    return float(2.0 / (max(kurtosis, 3.0) - 1.0))


def additive_part(crowd: RatingMatrices) -> float:
    """The part of the variance of biases that shows on low and on high items alike; a standard error is added, so that
    biases are additive until the ratings say otherwise. At most 1.

    An annotator's items are low or high by the mean of the other ratings on them, below or above its mean. The product
    of the mean residuals on both has the expectation b^2 where a bias is added to every item, and a smaller one where
    annotators differ in how much they say of what there is to say (zeros are zeros to all of them). The mean product of
    two residuals on any two items is the whole of b^2.
    """
    (who, w, mean, _, r), M = _residuals(crowd), crowd.M
    n, squares = counts(who, w, M), counts(who, w * w, M)
    high = mean > (counts(who, w * mean, M) / np.maximum(n, 1e-300))[who]
    above = counts(who, w * high, M)
    weight = np.minimum(above, n - above)
    weight = weight / (20.0 + weight)  # half of the most with 20 ratings in each half
    if (weight > 0.0).sum() < 3:
        return 1.0

    def centred(part: Any, size: Floats) -> Floats:
        x = counts(who[part], (w * r)[part], M) / np.maximum(size, 1e-300)
        return np.asarray(x - (weight * x).sum() / weight.sum())

    far = centred(high, above) * centred(~high, n - above)
    own_mean = counts(who, w * r, M) / np.maximum(n, 1e-300)
    shift = own_mean - centred(slice(None), n)
    noise = counts(who, (w * (r - shift[who])) ** 2, M)
    near = ((n * (own_mean - shift)) ** 2 - noise) / np.maximum(n * n - squares, 1e-300)
    whole = float((weight * near).sum())
    if not whole > 0.0:
        return 1.0
    part = float((weight * far).sum()) / whole
    error = float(np.sqrt(((weight * (far - part * near)) ** 2).sum())) / whole
    return float(np.clip(part + error, 0.0, 1.0))


STABLE = 0.01
"""The relative change of s_b and s_a below which they have converged."""
DENSE = 2_000
"""Up to so many unknowns of annotators their joint covariance is inverted; above, each annotator's alone."""


def run_passes(
    crowd: RatingMatrices, settings: GaussianSettings, max_iter: int, tol: float, callback: Callback | None
) -> tuple[GaussianState, Rounds]:
    """Passes until the bound gains less than ``tol`` per rating, with s_b and s_a updated until they converge; the
    trace is the bound under the last s_b and s_a."""
    weight, n, y = crowd.weight, counts(crowd.annotator, crowd.weight, crowd.M), crowd.y
    s = begin(crowd, settings)
    W, Y = crowd.matrix(weight), crowd.matrix(weight * y)
    Z = counts(crowd.annotator, weight * y * y, crowd.M)
    rounds = Rounds(max_iter, float(weight.sum()), callback)
    last, moved = False, np.inf
    for _ in range(51):
        rounds.resume()
        for _ in rounds:
            s = expand(annotators_given(W, Y, items_given(W, Y, s, settings), settings), settings)
            square = squares(W, Y, Z, s, crowd.floor)
            s = precisions_given(n, square, s, settings.power)
            rounds.reached(lower_bound(s, n, square, settings), below=tol)
        if last or rounds.iterations >= max_iter:
            break
        new = differences(W, s, settings)
        moved = max(abs(x - y) / (y + 1e-3) for x, y in ((new.sb2, s.sb2), (new.sa2, s.sa2)))
        if moved < STABLE:
            if settings.additive == 1.0:
                break
            new = replace(s, sb2=max(settings.additive * s.sb2, MIN_VARIANCE))
            last = True
        s = new
    rounds.converged &= moved < STABLE
    return s, rounds


def variances(
    crowd: RatingMatrices, s: GaussianState, settings: GaussianSettings
) -> tuple[Floats, Floats, Floats, Floats]:
    """Of u (N), b and a (M) in the joint posterior, and the shape of p's Gamma distribution (see the module)."""
    from scipy.sparse import diags

    p, N, M, weight = s.p, crowd.N, crowd.M, crowd.weight
    W = crowd.matrix(weight)
    h = 1.0 / s.tau2 + W @ (p * s.a**2)
    G = W @ diags(p * s.a)  # d^2 / du db
    n, su, suu = W.T @ np.ones(N), W.T @ s.u, W.T @ s.u**2
    blocks = ([G] if settings.bias else []) + ([diags(s.u) @ G] if settings.scale else [])
    size = len(blocks) * M + 1
    if size <= DENSE and len(crowd.y) * size <= 3e8:
        var_u, var = _joint(blocks, h, p, n, su, suu, s, settings)
    else:
        var_u, var = _separate(W, h, s, settings)
    zero = np.zeros(M)
    vbb = var[:M] if settings.bias else zero
    vaa = var[-M:] if settings.scale else zero
    m, at = crowd.annotator, crowd.item
    r = crowd.y - s.b[m] - s.a[m] * s.u[at]
    unsure = counts(at, (weight * p[m] * s.a[m] * r / h[at]) ** 2 / s.shape[m], N)
    known = 1.0 / (1.0 / s.sb2 + p * n) if settings.bias else zero
    leverage = np.clip(p[m] * (s.a[m] ** 2 / h[at] + known[m]), 0.0, 1.0)
    free = settings.power * counts(m, crowd.weight * (1.0 - leverage) ** 2, M) / 2.0
    # The crowd's mean precision is itself an estimate, and those who rated little lean on it.
    crowd_mean = 1.0 / max(float((s.alpha * free / (s.alpha + free)).sum()), 1e-9)
    shape = s.alpha + free
    shape = 1.0 / (1.0 / shape + (s.alpha / shape) ** 2 * crowd_mean)
    # The noise of an annotator is known as a Gamma distribution (E[1 / p] = shape / (shape - 1) times 1 / E[p]), the
    # spread of the crowd by M - 1 differences ((M - 1) / (M - 3) likewise, in the mean that all share).
    noise, common = 1.0 + 1.0 / np.maximum(shape - 1.0, 1.0), 2.0 / max(M - 3.0, 1.0) / M
    return var_u + unsure, vbb * noise + common * s.sb2, vaa * noise + common * s.sa2, shape


def _joint(
    blocks: list[Any], h: Floats, p: Floats, n: Floats, su: Floats, suu: Floats, s: GaussianState,
    settings: GaussianSettings,
) -> tuple[Floats, Floats]:  # fmt: skip
    """The inverse of the joint precision of (items, annotators, mu): Schur complement on annotators and mu."""
    from scipy.sparse import csr_matrix, diags, hstack

    N, M = len(h), len(p)
    G = hstack([*blocks, csr_matrix(np.full((N, 1), -1.0 / s.tau2))]).tocsr()
    size = G.shape[1]
    S = -np.asarray((G.T @ diags(1.0 / h) @ G).todense())
    at = np.arange(M)
    if settings.bias:
        S[at, at] += 1.0 / s.sb2 + p * n
    if settings.scale:
        own = at + M * settings.bias
        S[own, own] += 1.0 / s.sa2 + p * suu
        if settings.bias:
            S[at, own] += p * su
            S[own, at] += p * su
    S[-1, -1] += N / s.tau2
    cov = np.linalg.pinv(S, hermitian=True) if size == 1 else np.linalg.inv(S)
    extra = np.empty(N)
    step = max(1, int(2e7 // size))
    for lo in range(0, N, step):
        rows = G[lo : lo + step]
        extra[lo : lo + step] = np.asarray(rows.multiply(rows @ cov).sum(axis=1)).ravel()
    return 1.0 / h + np.maximum(extra, 0.0) / h**2, np.maximum(np.diag(cov)[:-1], 0.0)


def _separate(W: Any, h: Floats, s: GaussianState, settings: GaussianSettings) -> tuple[Floats, Floats]:
    """As ``_joint``, each annotator's bias and scale apart from all others': what they share is at most s^2 / M."""
    vbb, vaa = own_variances(W, s)
    square = W.multiply(W).tocsr()
    parts, extra = [], np.zeros(len(h))
    if settings.bias:
        parts.append(vbb)
        extra += square @ ((s.p * s.a) ** 2 * vbb)
    if settings.scale:
        parts.append(vaa)
        extra += s.u**2 * (square @ ((s.p * s.a) ** 2 * vaa))
    return 1.0 / h + extra / h**2, np.concatenate(parts) if parts else np.empty(0)


@declared
class GaussianRatings(RatingModel):
    """Bias and precision of each annotator (and scale, where asked for), and the items' numbers, by variational EM.

    Parameters
    ----------
    bias, scale
        Whether annotators have a bias, and a scale, of their own. How much they differ is learned, so that either
        costs little where they do not.
    shrink
        How far values go from the weighted mean of their ratings (0) to the posterior mean (1), which lies nearer to
        the mean of all items. With ``scale`` always 1.
    shared_error
        The variance of the error that all ratings on an item share, in units of that of the ratings on it: intervals
        include it. 0: none.
    hedge
        Mix in the plain mean as far as held-out ratings ask for it (``share`` of the result).
    set_aside
        Whether gross errors, such as 700 instead of 70, count for nothing
        (:func:`~crowdwise.answers.ratings_shared.gross_errors`), and annotators on another scale
        (:func:`~crowdwise.answers.ratings_shared.other_scales`), unless they gave half of the ratings or more.
    max_iter, tol
        Stop after so many passes over the ratings, or when a pass gains less than ``tol`` per rating.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(300, n_annotators=10, votes_per_item=5)
    >>> {key: round(cw.aggregate(crowd.ratings, key).score(crowd.truth), 2) for key in ("mean", "gaussian")}
    {'mean': 0.73, 'gaussian': 0.82}
    """

    key = "gaussian"

    bias: bool = True
    scale: bool = False
    shrink: Share = 0.5
    shared_error: NonNegative = 0.4
    hedge: bool = True
    set_aside: bool = True
    max_iter: Count = 500
    tol: NonNegative = 1e-6

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        self._check_several(answers)
        aside = np.isin(answers.annotator, other_scales(answers)[0])
        if not self.set_aside or 2 * aside.sum() >= len(aside):
            aside[:] = False
        aside[~aside] = gross = gross_errors(rest := answers.select(~aside))
        point_out_gross_errors(rest, gross)
        if not (self.set_aside and aside.any()):
            return self._fit_kept(answers, callback)
        kept, far = answers.select(~aside), np.bincount(answers.annotator[aside], minlength=answers.n_annotators)
        return self._fit_kept(kept, callback) | {"annotator_columns": {"set_aside": far}, "ends": kept.ends()}

    def _point_out(self, answers: Ratings) -> None:
        point_out_scales(answers)

    def _fit_kept(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        y, centre, unit = standardise(answers)
        crowd = RatingMatrices.of(answers, y)
        if crowd.alone().all():
            z = weighted_mean(answers.item, answers.weights, answers.value, len(answers))
            note = "No two annotators rated the same item, so that they cannot be compared: values are plain means."
            return {"values": z, "iterations": 1, "share": 0.0, "notes": [note], **scatter(answers, z)}
        s, rounds, settings = self._annotators(crowd, callback)
        trace = np.array(rounds.trace) - settings.power * float(crowd.weight.sum()) * np.log(unit)
        var_u, vbb, vaa, shape = variances(crowd, s, settings)
        h, top, part, pull = item_sums(crowd, s)
        mu, tau2 = s.mu, s.tau2
        if settings.fixed:
            rated = h > 0.0
            mu, tau2 = normal_spread(top[rated] / h[rated], 1.0 / h[rated])
            var_u = 1.0 / (1.0 / var_u + 1.0 / tau2)
        shrink = 1.0 if self.scale else self.shrink
        u, best = between(h, top, mu, tau2, shrink)
        shift = float((crowd.weight * (y - u[crowd.item])).sum() / crowd.weight.sum())
        n = counts(crowd.annotator, crowd.weight, crowd.M) / crowd.weight.sum()
        level = s.sb2 * max(float(n @ n) - 1.0 / crowd.M, 0.0)
        share, final = 1.0, u + shift
        if self.hedge:
            at = crowd.item
            without, _ = between(h[at] - part, top[at] - pull, mu, tau2, shrink)
            # The model is judged at its own level: one whose weights and biases move it far is trusted less.
            final, share = hedged(answers, y, u, without, varied(answers))
            final = final + share * shift
        final = np.clip(final, y.min(), y.max())
        var_u = var_u + (final - best - shift) ** 2 + level
        extra: dict[str, Any] = {}
        if self.shared_error:
            common, freedom = shared_errors(crowd, s, u, self.shared_error)
            var_u = var_u + common
            extra |= {"shared": unit * np.sqrt(common), "freedom": freedom * (var_u / common) ** 2}
        if self.bias:
            extra |= {"bias": (s.b - shift) * unit, "bias_sd": np.sqrt(vbb + level) * unit}
        if self.scale:
            extra |= {"scale": s.a, "scale_sd": np.sqrt(vaa)}
        return extra | rounds.outcome | {
            "values": centre + unit * final, "share": share, "deviations": unit * np.sqrt(var_u),
            "precision": s.p / unit**2, "precision_shape": shape, "mean": centre + unit * (mu + shift),
            "spread": unit * float(np.sqrt(tau2)), "centre": centre, "trace": trace,
        }  # fmt: skip

    def _annotators(
        self, crowd: RatingMatrices, callback: Callback | None
    ) -> tuple[GaussianState, Rounds, GaussianSettings]:
        """The annotators, from the ratings on items with several; the items that follow, of all ratings."""
        several = ~crowd.alone()
        fixed = not self.scale
        sub = crowd.select(several) if fixed and not several.all() else crowd
        additive = additive_part(sub) if fixed and self.bias else 1.0
        settings = GaussianSettings(self.bias, self.scale, fixed, precision_power(sub, self.bias), additive)
        s, rounds = run_passes(sub, settings, self.max_iter, self.tol, callback)
        if sub is not crowd:
            s = items_given(crowd.matrix(crowd.weight), crowd.matrix(crowd.weight * crowd.y), s, settings)
        return s, rounds, settings
