"""Covariances of the votes of annotators: who goes with the others, and two clusters of them.

x[m] is the one-hot vote less its mean over m's votes. For independent annotators E <x[m], x[j]> = <G_m, G_j> with
G_m = theta[m] less its mean row, weighted with the root of the class shares: 0 for a spammer, and s times one and the
same matrix for one-coin annotators. So the covariances have low rank beside the diagonal.

===========  ======================  =====  ==========================================================================
symbol       code                    shape  equation
===========  ======================  =====  ==========================================================================
n, c         ``Covariances``         M x M  common items, and the mean of <x[m], x[j]> over them; sparse
v            ``rank_one``            M      v v' nearest to c off the diagonal, weighted with n
s            ``skill_of``            M      v / sqrt(1 - sum pi^2), with its standard error
V            ``principal_factors``   M x r  c = V V' + D, 0 <= D <= the variances
e(R)         ``top``                 1      largest eigenvalue of a symmetric matrix, its diagonal set to 0
r            ``parallel_factors``    1      the first r with e(C - V_r V_r') <= the largest e(C) of 19 shuffled votes
===========  ======================  =====  ==========================================================================

The published clusters: two-means of the rows of V, and the cluster whose centre is nearer 0 goes (``nearer_zero``). It
has two traps, and both are about the number of factors r. One too many ends at a single annotator, whose own D would
have to be negative (a Heywood case): then all others look like spammers. One too few leaves out what some annotators
know and others do not. The rank is chosen by parallel analysis (Horn 1965): shuffled votes have the same habits, the
same common items and no truth; chance is above 19 of them one time in 20.

When it fails: without common items there are no covariances, and pairs without them count as 0 in the clusters; copies
go together, whatever they know. Two-means splits every crowd, an honest one too: the verdict needs a test beside it.

References: Traganitis and Giannakis 2021 (ICASSP); J. L. Horn, Psychometrika 30 (1965).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, normalise
from crowdwise.data.votes import Votes
from crowdwise.trust.agreement_coefficients import common_cells

MOST_DENSE = 1500
"""The most annotators whose covariances are decomposed as a dense matrix."""

SHUFFLES = 19
"""Shuffled crowds: to be above all of them by chance has a probability of 1 / (SHUFFLES + 1) = 0.05."""


@dataclass(frozen=True)
class Covariances:
    """n and c over pairs with common items, as M x M sparse matrices without a diagonal; means and variances."""

    n: Any
    c: Any
    mean: Floats
    variance: Floats


def covariances(votes: Votes) -> Covariances:
    """c[m, j] = sum over common items of <x[m], x[j]> / n[m, j], x the one-hot vote less its mean."""
    from scipy.sparse import csr_matrix

    M, K = votes.n_annotators, votes.n_classes
    part = Part.of(votes)
    too_many = "for covariances. Use some of the items, votes[:10000], or a detector that is handed a consensus."
    row, col, value = common_cells(votes, part.weight, too_many)
    mean = normalise(
        np.bincount(part.cell, weights=votes.weight, minlength=M * K).reshape(M, K).astype(np.float64), axis=1
    )
    m, j, k, h = row // K, col // K, row % K, col % K
    keep = m != j
    m, j, k, h, value = m[keep], j[keep], k[keep], h[keep], value[keep]
    pair, place = np.unique(m.astype(np.int64) * M + j, return_inverse=True)
    m_of, j_of = pair // M, pair % M
    both = np.einsum("pk,pk->p", mean[m_of], mean[j_of])
    n = np.bincount(place, weights=value, minlength=len(pair))
    total = np.bincount(place, weights=value * ((k == h) - mean[m, h] - mean[j, k]), minlength=len(pair)) + both * n
    shape = (M, M)
    return Covariances(
        csr_matrix((n, (m_of, j_of)), shape=shape),
        csr_matrix((np.divide(total, n, out=np.zeros_like(n), where=n > 0), (m_of, j_of)), shape=shape),
        mean,
        1.0 - (mean**2).sum(axis=1),
    )


def rank_one(found: Covariances, max_iter: int = 500, tol: float = 1e-10) -> Floats:
    """v with v_m v_j = c_mj off the diagonal, by least squares weighted with n, and v_m^2 <= the variance of m.

    Annotators in groups without common items are solved together; the sign of each group is the one in which most
    of its votes are of positive v.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    n, bound = found.n, np.sqrt(found.variance)
    nc = csr_matrix((n.data * found.c.data, n.indices, n.indptr), shape=n.shape)
    degree = np.sqrt(np.maximum(np.asarray(n.sum(axis=1)).ravel(), 1e-12))
    groups, group = connected_components(n, directed=False)
    e = degree.copy()
    for _ in range(200):  # the top eigenvector of the scaled covariances of each group, from everybody alike
        e = (nc @ (e / degree)) / degree + e
        e /= np.sqrt(np.maximum(np.bincount(group, weights=e**2, minlength=groups), 1e-300))[group]
    v = e / degree
    top = np.bincount(group, weights=v * (nc @ v), minlength=groups)
    low = np.bincount(group, weights=v**2 * (n @ v**2), minlength=groups)
    v = np.clip(v * np.sqrt(np.maximum(top, 0.0) / np.maximum(low, 1e-300))[group], -bound, bound)

    def half(v: Floats) -> Floats:
        above, below = nc @ v, n @ v**2
        return np.asarray(
            np.clip(np.divide(above, below, out=np.zeros_like(above), where=below > 1e-12), -bound, bound)
        )

    u = v
    for _ in range(max_iter):
        before = v
        u = half(v)
        v = half(u)
        if np.abs(v - before).max() <= tol:
            break
    v = np.sign(u + v) * np.sqrt(np.maximum(u * v, 0.0))
    support = np.bincount(group, weights=v * degree**2, minlength=groups)
    return np.asarray(v * np.where(support >= 0.0, 1.0, -1.0)[group])


def skill_of(votes: Votes, found: Covariances, v: Floats, prior: Floats | None) -> tuple[Floats, Floats]:
    """s = v / sqrt(1 - sum pi^2) and its standard error, the other annotators held; nan and inf where unknown.

    v_m is a ratio of sums over m's votes: the own centred vote times what the others say, over the sum of their v^2.
    A mean over few own votes takes a part 1/n of the covariance away, which is put back. The variance is the larger
    of the one observed and that of an annotator who answers at random, whose label shares are their own and one vote of
    the crowd's, on items like all others: a few identical votes are no proof of anything.
    """
    M, K = votes.n_annotators, votes.n_classes
    item, who, w = votes.item, votes.annotator, votes.weights
    x = -found.mean[who]
    x[np.arange(len(x)), votes.label] += 1.0
    vw = v[who] * w
    said = np.stack([np.bincount(item, weights=vw * x[:, k], minlength=len(votes)) for k in range(K)], axis=1)
    squares = np.bincount(item, weights=v[who] ** 2 * w, minlength=len(votes))
    others, rest = said[item] - vw[:, None] * x, squares[item] - v[who] ** 2 * w
    product, loud = np.einsum("sk,sk->s", x, others), (others**2).sum(axis=1)

    def total(z: Floats) -> Floats:
        return np.bincount(who, weights=z, minlength=M).astype(np.float64)

    below = np.maximum(total(w * rest), 1e-12)
    own = total(w * product) / below
    n = total((rest > 0).astype(np.float64))
    seen = total((w * (product - own[who] * rest)) ** 2)
    share = normalise(np.bincount(votes.label, weights=votes.weight, minlength=K).astype(np.float64), axis=0)
    counted = total(w)
    smooth = (found.mean * counted[:, None] + share) / (counted[:, None] + 1.0)
    guessing = (1.0 - (smooth**2).sum(axis=1)) / max(K - 1.0, 1.0)
    typical = float(np.average(loud, weights=w)) if len(loud) else 0.0
    random = guessing * np.maximum(total(w**2 * loud), typical * total(w**2))
    back = np.divide(n, n - 1.0, out=np.full(M, np.nan), where=n > 1.5)
    if prior is None:
        named = np.bincount(item * K + votes.label, weights=np.maximum(vw, 0.0), minlength=len(votes) * K)
        label = named.reshape(-1, K)[np.diff(votes.indptr) > 0].argmax(axis=1)
        prior = normalise(np.bincount(label, minlength=K).astype(np.float64), axis=0)
    scale = np.sqrt(max(1.0 - float((prior**2).sum()), 1e-6))
    skill = own * back / scale
    error = np.sqrt(np.maximum(seen * np.where(n > 1.5, back, 1.0), random)) * back / below / scale
    known = (n > 1.5) & (below > 1e-9)
    return np.where(known, skill, np.nan), np.where(known, error, np.inf)


def principal_factors(found: Covariances, rank: int, max_iter: int = 500, tol: float = 1e-9) -> Floats:
    """V (M x rank) with C = V V' + D, 0 <= D <= the variances; pairs without common items have covariance 0."""
    from scipy.sparse import diags

    M = len(found.variance)
    dense = M <= MOST_DENSE or rank >= M - 1
    C = found.c.toarray() if dense else found.c
    common = found.variance / 2.0
    V = np.zeros((M, rank))
    for _ in range(max_iter):
        if dense:
            C[np.diag_indices(M)] = common
            value, vector = np.linalg.eigh(C)
            value, vector = value[-rank:], vector[:, -rank:]
        else:
            from scipy.sparse.linalg import eigsh

            value, vector = eigsh(C + diags(common), k=rank, which="LA", v0=np.sqrt(found.variance + 1e-9))
        V = vector * np.sqrt(np.maximum(value, 0.0))
        size = (V**2).sum(axis=1)
        new = np.minimum(size, found.variance)
        done = np.abs(new - common).max() <= tol
        common = new
        if done:
            break
    size = (V**2).sum(axis=1)
    return np.asarray(
        V * np.sqrt(np.divide(common, size, out=np.zeros_like(size), where=size > 1e-300))[:, None], dtype=np.float64
    )


def identified_rank(M: int, K: int) -> int:
    """K, or the most factors that the covariances of M annotators identify: (M - r)^2 >= M + r (Ledermann)."""
    r = 1
    while r < K and (M - r - 1) ** 2 >= M + r + 1 and r + 1 < M:
        r += 1
    return r


def shuffled(votes: Votes, rng: np.random.Generator) -> Votes:
    """The votes with every annotator's labels in a random order over their own items."""
    own = np.argsort(votes.annotator, kind="stable")
    mixed = np.lexsort((rng.random(votes.n_votes), votes.annotator))
    label = votes.label.copy()
    label[own] = votes.label[mixed]
    return replace(votes, label=label)


def top(found: Covariances, V: Floats | None = None) -> float:
    """The largest eigenvalue of C - V V', with nothing on the diagonal: there a factor of one annotator could hide."""
    M = len(found.variance)
    if M <= MOST_DENSE:
        left = found.c.toarray()
        if V is not None:
            left -= V @ V.T
        np.fill_diagonal(left, 0.0)
        return float(np.linalg.eigvalsh(left)[-1])
    from scipy.sparse.linalg import LinearOperator, eigsh

    size = np.zeros(M) if V is None else (V**2).sum(axis=1)

    def apply(x: Floats) -> Floats:
        y = found.c @ x
        return np.asarray(y if V is None else y - V @ (V.T @ x) + size * x)

    whole = LinearOperator((M, M), matvec=apply, dtype=np.float64)
    return float(eigsh(whole, k=1, which="LA", v0=np.ones(M), return_eigenvectors=False)[0])


def parallel_factors(votes: Votes, found: Covariances, most: int, random_state: int = 0) -> Floats:
    """V with as many factors, from 1 to ``most``, as stand out from shuffled votes."""
    V = principal_factors(found, 1)
    if most == 1:
        return V
    rng = np.random.default_rng(random_state)
    noise = max(top(covariances(shuffled(votes, rng))) for _ in range(SHUFFLES))
    for rank in range(2, most + 1):
        if top(found, V) <= noise:
            break
        V = principal_factors(found, rank)
    return V


def nearer_zero(V: Floats, starts: int = 20, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Two-means of the rows: who is in the cluster whose centre is nearer 0. Best of several starts.

    The first start is 0 and the longest row, the others pairs of rows.
    """
    M = len(V)
    rng = np.random.default_rng(seed)
    begin: list[Any] = [np.stack([np.zeros(V.shape[1]), V[(V**2).sum(axis=1).argmax()]])]
    begin += [V[rng.choice(M, 2, replace=False)] for _ in range(starts)]
    best, kept = np.inf, np.zeros(M, dtype=bool)
    for centre in begin:
        for _ in range(200):
            far = ((V[:, None] - centre[None]) ** 2).sum(axis=2)
            side = far[:, 1] < far[:, 0]
            if side.all() or not side.any():
                break
            new = np.stack([V[~side].mean(axis=0), V[side].mean(axis=0)])
            if np.array_equal(new, centre):
                break
            centre = new
        loss = float(far.min(axis=1).sum())
        if loss < best - 1e-12:
            near = int((centre**2).sum(axis=1).argmin())
            best, kept = loss, side == bool(near)
    return kept
