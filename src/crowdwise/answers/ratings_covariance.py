"""Ratings combined by the covariances of annotators: low rank plus sparse.

The answers of annotator i to the items have a covariance with those of j and with the truth, C[i, j] and r[i]. Where
the errors of two annotators are uncorrelated

    C[i, j] = r[i] + r[j] - V,   V the variance of the truth        so with s = r - V / 2:  C[i, j] = s[i] + s[j]

off the diagonal: rank two, whatever the noise. What is left over for a few pairs is a sparse matrix E of errors made in
common (copiers, or people of one school). On the diagonal the error of i is C[i, i] - 2 s[i], without V. The best
linear estimate of an item rated by the annotators A is

    z = mu + r_A' C_A^-1 (x_A - b_A - mu),    of variance V - r_A' C_A^-1 r_A

=================  ==============  ======  ==========================================================================
symbol             code            shape   how it is estimated
=================  ==============  ======  ==========================================================================
C[i, j], n[i, j]   ``C``, ``n``    M x M   over the items that both rated, each pair centred on these
b[i]               ``bias``        M       least squares on the pairs' differences, n as weights; sum 0
s[i]               ``s``           M       weighted least squares on C, shrunk to their mean (spread learned by EM)
E[i, j]            ``E``           M x M   residuals above chance (Bonferroni over pairs), which are left out of s
R[i]               ``R``           M       C[i, i] - 2 s[i], squeezed towards the crowd's (Smyth 2004)
V                  ``V``           1       2 mean s: ratings stretch the truth by 1 on average
=================  ==============  ======  ==========================================================================

V cannot be seen in ratings alone; the rule used is that of ``gaussian`` (mean scale 1). Where r - V and R together are
no covariance matrix (they may not be: many noisy estimates), r is moved towards V until they are; so is E towards 0.

Reference: Y. Tenzer, O. Dror, B. Nadler, E. Bilal and Y. Kluger, Crowdsourcing regression: a spectral approach, AISTATS
(2022), for the covariances; the sparse part, the treatment of items rated by a few and the shrinkage are ours. G. K.
Smyth, Linear models and empirical Bayes methods, Statistical Applications in Genetics and Molecular Biology 3 (2004).
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from crowdwise.answers.ratings_shared import RatingModel, bias_deviation, counts, hedged, standardise
from crowdwise.core.constraints import Bounds, declared
from crowdwise.core.loop import Callback
from crowdwise.core.numerics import Floats
from crowdwise.data.ratings import Ratings
from crowdwise.errors import InputError

MAX_ANNOTATORS = 1_500
"""Annotators above which M x M matrices are refused."""
EDGE = 0.9
"""How near to the edge of what a covariance matrix can be r - V and E may come."""
MIN_VARIANCE = 1e-6


def pair_moments(ratings: Ratings, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Over the items that both of a pair rated: weight n, covariance C (unbiased), mean difference D; all M x M."""
    from scipy.sparse import csr_matrix

    shape, w = (len(ratings), ratings.n_annotators), ratings.weights

    def matrix(data: Floats) -> Any:
        return csr_matrix((data, ratings.annotator, ratings.indptr), shape=shape, copy=True)  # summed in its place

    total = matrix(w)
    total.sum_duplicates()  # an annotator who rated an item twice has rated it once, with the mean
    value = matrix(w * y)
    value.sum_duplicates()
    value.data = value.data / total.data
    one = total.copy()
    one.data = np.ones_like(one.data)
    n, cross = (one.T @ one).toarray(), (value.T @ value).toarray()
    first = (value.T @ one).toarray()  # sum of i's answers where j answered, too
    with np.errstate(divide="ignore", invalid="ignore"):
        C = np.where(n > 1, (cross - first * first.T / n) / (n - 1.0), 0.0)
        D = np.where(n > 0, (first - first.T) / n, 0.0)
    return n, C, D


def biases(n: Floats, D: Floats) -> Floats:
    """b that minimise sum n (D - (b_i - b_j))^2 / 2 + sum b^2 / 2: one item's worth of shrinkage."""
    off = n - np.diag(np.diag(n))
    L = np.diag(off.sum(axis=1) + 1.0) - off
    b = np.linalg.solve(L, (off * D).sum(axis=1))
    return np.asarray(b - b.mean())


def additive(C: Floats, W: Floats) -> Floats:
    """s: weighted least squares on C[i, j] = s_i + s_j, s ~ N(mean, spread^2) learned by EM."""
    M = len(C)
    mean = float((W * C).sum() / max(W.sum(), 1e-300)) / 2.0
    row = W.sum(axis=1)
    total = (W * C).sum(axis=1)
    rough = np.divide(total, row, out=np.full(M, 2.0 * mean), where=row > 0) - mean
    spread2 = float(np.var(rough)) + MIN_VARIANCE
    for _ in range(30):
        inverse = np.linalg.inv(W + np.diag(row + 1.0 / spread2))
        s = inverse @ (total + mean / spread2)
        mean = float(s.mean())
        new = float(((s - mean) ** 2 + np.diag(inverse)).mean()) + MIN_VARIANCE
        if abs(new - spread2) < 1e-3 * spread2:
            break
        spread2 = new
    return np.asarray(s)


def low_rank_and_sparse(n: Floats, C: Floats, level: float, min_items: int) -> tuple[Floats, Floats]:
    """s and E: pairs whose covariance is not s_i + s_j, by more than chance over all pairs."""
    from scipy.special import ndtri

    M = len(C)
    scale = np.diag(C)
    off = (n > 2) & ~np.eye(M, dtype=bool)
    common = float((n * C)[off].sum() / max(n[off].sum(), 1.0))
    variance = (np.outer(scale, scale) + common**2 + MIN_VARIANCE) / np.maximum(n - 1.0, 1.0)
    W = np.where(off, 1.0 / variance, 0.0)
    tested = off & (n >= min_items)
    pairs = max(int(tested.sum()) // 2, 1)
    bar = float(-ndtri(level / 2.0 / pairs))
    odd = np.zeros_like(off)
    for _ in range(5):
        s = additive(C, np.where(odd, 0.0, W))
        gap = C - s[:, None] - s[None, :]
        outlying = tested & (np.abs(gap) > bar * np.sqrt(variance))
        if (outlying == odd).all():
            break
        odd = outlying
    return s, np.where(odd, gap, 0.0)


def squeezed(variance: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Variances pulled towards their crowd's, and the degrees of freedom they then have. log R - digamma(d/2) +
    log(d/2) has the variance trigamma(d/2) + trigamma(d0/2): d0 by moments."""
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    d = np.maximum(freedom, 1e-3)
    used = freedom >= 1.0
    if used.sum() < 2:
        return variance, d
    e = np.log(variance[used]) - digamma(d[used] / 2.0) + np.log(d[used] / 2.0)
    excess = float(np.var(e, ddof=1) - polygamma(1, d[used] / 2.0).mean())
    d0 = 1e4
    if excess > 0:
        d0 = 2.0 * np.exp(brentq(lambda t: float(polygamma(1, np.exp(t))) - excess, -7.0, 12.0))
    d0 = float(np.clip(d0, 1.0, 1e4))
    crowd = float(np.exp(e.mean() + digamma(d0 / 2.0) - np.log(d0 / 2.0)))
    free = np.where(used, freedom, 0.0)
    return (free * variance + d0 * crowd) / (free + d0), free + d0


def combine(
    indptr: Any, annotator: Any, y: Floats, r: Floats, R: Floats, E: Floats, V: float
) -> tuple[Floats, Floats, Floats]:
    """The best linear estimate of every item (mean 0), its variance, and for every rating the estimate of its item
    without it; items with equally many ratings at once."""
    count = np.diff(indptr)
    z, var, without = np.zeros(len(count)), np.full(len(count), V), np.zeros(len(y))
    for size in np.unique(count[count > 0]).tolist():
        items = np.flatnonzero(count == size)
        step = max(1, int(2e7 // size**2))  # so many numbers of small matrices are solved at once
        for lo in range(0, len(items), step):
            block = items[lo : lo + step]
            at = indptr[block][:, None] + np.arange(size)
            z[block], var[block], without[at] = _combine_some(annotator[at], y[at], r, R, E, V)
    return z, var, without


def _combine_some(who: Any, y: Floats, r: Floats, R: Floats, E: Floats, V: float) -> tuple[Floats, Floats, Floats]:
    B, size = who.shape
    noise = np.sqrt(R[who])
    common = E[who[:, :, None], who[:, None, :]] / (noise[:, :, None] * noise[:, None, :])
    same = who[:, :, None] == who[:, None, :]
    common = np.where(same, 0.0, np.clip(common, -0.95, 0.95))
    odd = np.flatnonzero(np.abs(common).sum(axis=(1, 2)) > 0)
    if len(odd):
        lowest = np.linalg.eigvalsh(common[odd])[:, 0]
        common[odd] *= np.minimum(1.0, EDGE / np.maximum(-lowest, 1e-12))[:, None, None]
    error = (common + np.eye(size)) * noise[:, :, None] * noise[:, None, :]
    lean = r[who] - V
    # C - (rank one of V) must stay positive: lean' error^-1 lean < V.
    tilt = (lean * np.linalg.solve(error, lean[:, :, None])[:, :, 0]).sum(axis=1) / V
    lean *= np.minimum(1.0, np.sqrt(EDGE / np.maximum(tilt, 1e-12)))[:, None]
    rho = V + lean
    inverse = np.linalg.inv(error + rho[:, :, None] + rho[:, None, :] - V)
    weight, scaled = (np.einsum("bij,bj->bi", inverse, x) for x in (rho, y))
    z = (weight * y).sum(axis=1)
    # r' C^-1 y without row and column i is r' C^-1 y - (C^-1 r)_i (C^-1 y)_i / (C^-1)_ii.
    without = z[:, None] - weight * scaled / np.einsum("bii->bi", inverse)
    return z, np.maximum(V - (weight * rho).sum(axis=1), MIN_VARIANCE * V), without


@declared
class CovarianceRatings(RatingModel):
    """The best linear combination of ratings, by covariances of annotators: low rank plus sparse.

    Parameters
    ----------
    level
        The probability of finding any pair with errors in common where there is none.
    min_items
        Items that a pair must have rated in common to be tested.
    hedge
        Mix in the plain mean as far as held-out ratings ask for it (``share`` of the result).

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(500, n_annotators=12, n_copiers=4, votes_per_item=8, random_state=3)
    >>> [round(cw.aggregate(crowd.ratings, key).score(crowd.truth), 2) for key in ("mean", "covariance")]
    [0.37, 0.79]
    """

    key = "covariance"

    level: Annotated[float, Bounds(above=0, maximum=1)] = 0.05
    min_items: Annotated[int, Bounds(minimum=3)] = 10
    hedge: bool = True

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        self._check_several(answers)
        M = answers.n_annotators
        if M > MAX_ANNOTATORS:
            raise InputError(
                f"There are {M:,} annotators, and covariance compares all pairs of at most {MAX_ANNOTATORS:,}. "
                "Use gaussian, whose cost grows with the number of ratings."
            )
        y, centre, unit = standardise(answers)
        n, C, D = pair_moments(answers, y)
        if not ((n > 2) & ~np.eye(M, dtype=bool)).any():
            raise InputError("No two annotators rated three items in common: there are no covariances. Use gaussian.")
        own = np.diag(n)
        average = float((own * np.diag(C)).sum() / max(own[own > 1].sum(), 1.0))
        C[np.arange(M), np.arange(M)] = np.where(own > 2, np.maximum(np.diag(C), MIN_VARIANCE), average)
        bias = biases(n, D)
        s, E = low_rank_and_sparse(n, C, self.level, self.min_items)
        V = max(2.0 * float(np.average(s, weights=own + 1e-9)), 0.02 * average, MIN_VARIANCE)
        R, freedom = squeezed(np.maximum(np.diag(C) - 2.0 * s, 0.05 * np.diag(C)), np.where(own > 2, own - 2.0, 0.0))
        m, w = answers.annotator, answers.weights
        mu = float((w * (y - bias[m])).sum() / w.sum())
        z, spread, without = combine(answers.indptr, m, y - bias[m] - mu, s + V / 2.0, R, E, V)
        partners = (E != 0).sum(axis=1)
        final, share = mu + z, 1.0
        if self.hedge:  # ratings of annotators who err alike are best predicted by their common errors
            final, share = hedged(answers, y, final, mu + without, judges=partners[m] == 0)
        near = np.where(partners > 0, np.abs(E).argmax(axis=1), np.arange(M))
        own_part = w / counts(answers.item, w, len(answers))[answers.item]
        own_ratings, free = counts(m, w, M), counts(m, w * (1.0 - own_part), M)
        return dict(
            values=centre + unit * final, share=share, deviations=unit * np.sqrt(spread + (final - mu - z) ** 2),
            bias=unit * bias, bias_sd=unit * bias_deviation(bias, R, own_ratings, free),
            precision=1.0 / (R * unit**2), precision_shape=freedom / 2.0,
            mean=centre + unit * mu, spread=unit * float(np.sqrt(V)), centre=centre, iterations=1,
            annotator_columns={
                "correlation": (s + V / 2.0) / np.sqrt(V * np.maximum(np.diag(C), R)),
                "partners": partners,
                "partner": np.where(partners > 0, answers.annotators[near].astype(str), ""),
            },
        )  # fmt: skip
