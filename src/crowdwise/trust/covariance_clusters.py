"""Two clusters of annotators in the covariances of their votes: those near 0, and those who know something.

The published algorithm: C = V V' + D by principal factors, two-means of the rows of V, and the cluster whose centre is
nearer 0 goes. It has two traps, and both are about the number of factors r:

- one too many settles on a single annotator, whose own D would have to be negative (a Heywood case): then all others
  look like spammers. D is held between 0 and the variances.
- one too few leaves out what some annotators know and others do not.

The rank is chosen by parallel analysis (Horn 1965), one factor after the other: with r of them taken out, the
largest eigenvalue of what is left (off the diagonal) is compared with that of votes in which every annotator's labels
are shuffled over their items. Shuffled votes have the same habits, the same common items and no truth. As long as the
real one is larger than ``SHUFFLES`` = 19 shuffled ones, which chance does one time in 20, there is another factor.

===========  ===================  =====  =============================================================================
symbol       code                 shape  equation
===========  ===================  =====  =============================================================================
e(R)         ``top``              1      largest eigenvalue of a symmetric matrix, its diagonal set to 0
e_0          ``noise``            19     e(C) of shuffled votes
r            ``rank``             1      the first r >= 1 with e(C - V_r V_r') <= max e_0; at most ``identified_rank``
===========  ===================  =====  =============================================================================

When it fails: it splits every crowd, an honest one too; the verdict needs a test beside it. Pairs without common items
count as covariance 0, so that annotators of whom little is known are near 0.

References: Traganitis and Giannakis 2021 (ICASSP); J. L. Horn, Psychometrika 30 (1965).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats
from crowdwise.data.votes import Votes
from crowdwise.trust.annotator_covariance import MOST_DENSE, Covariances, covariances, principal_factors

SHUFFLES = 19
"""Shuffled crowds: to be above all of them by chance has a probability of 1 / (SHUFFLES + 1) = 0.05."""


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
