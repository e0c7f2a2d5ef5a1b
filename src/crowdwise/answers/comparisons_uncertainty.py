"""Uncertainty of scores at the optimum: standard errors, draws, and the evidence for a prior of reliabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crowdwise.answers.comparisons_likelihood import Likelihood, split
from crowdwise.answers.comparisons_newton import (
    Derivatives,
    Eliminated,
    Solution,
    conjugate_gradients,
    joined,
    schur,
    separated,
)
from crowdwise.core.numerics import Floats

PROBES = 100
"""Vectors of random signs behind the standard errors where matrices are sparse."""


def evidence(found: Solution, model: Likelihood) -> float:
    """log P(all answers) with scores and reliabilities integrated out by Laplace's approximation, up to a constant
    that is the same for all priors of reliabilities; for up to ``DENSE`` items."""
    from scipy.special import betaln

    d = separated(found.end)[0]
    S, logit = schur(d, model.prior <= 0.0), split(model, found.theta)[0]
    size, M = float(np.linalg.slogdet(S)[1]), len(logit)
    eta = 1.0 / (1.0 + np.exp(-logit))
    # D is by the logit; by arcsin(sqrt(eta)), on whose scale the mode is, it is divided by eta (1 - eta).
    wide = float(np.log(np.maximum(d.D, 1e-300)).sum() - np.log(eta * (1.0 - eta)).sum())
    a, b = model.beta
    flat = M * (float(betaln(a + 0.5, b + 0.5)) - 0.5 * np.log(2.0 * np.pi))
    return float(found.rounds.trace[-1] - 0.5 * (size + wide) - flat)


@dataclass(frozen=True)
class Spread:
    """Standard errors of the centred scores, of tau (and the mean position), and of theta; draws of the scores."""

    scores: Floats
    shared: Floats
    theta: Floats
    draws: npt.NDArray[np.float32]


def covariance(d: Derivatives, scores: Floats, *, free: bool, rng: np.random.Generator) -> Spread:
    """From the inverse of the observed information, the scores held to sum to zero. Draws are made in the order of the
    scores, so that names do not matter; beyond ``DENSE`` items each is drawn by itself."""
    N = len(scores)
    R = n_draws(N)
    d, mix = separated(d)
    S = schur(d, free)
    if isinstance(S, np.ndarray):
        from scipy.linalg import cholesky, solve_triangular

        order = np.concatenate([np.argsort(-scores, kind="stable"), np.arange(N, len(S))])
        try:
            L = cholesky(S[np.ix_(order, order)], lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            L = cholesky(S[np.ix_(order, order)] + np.eye(len(S)) * 1e-8 * np.trace(S), lower=True)
        root = solve_triangular(L, np.eye(len(S)), lower=True, check_finite=False)  # covariance = root' root
        back = np.empty(len(S), dtype=np.int64)
        back[order] = np.arange(len(S))
        centred = root[:, back].copy()
        noise = rng.standard_normal((R, len(S)))
        if d.C is not None:
            E = d.C / d.D if isinstance(d.C, np.ndarray) else np.asarray(d.C.todense()) / d.D
            theta = _own_variance(d.D, mix) + (joined(centred @ E, mix) ** 2).sum(axis=0)
        else:
            theta = np.empty(0)
        centred[:, :N] -= centred[:, :N].mean(axis=1, keepdims=True)
        draws = noise @ centred[:, :N]
        variance = (centred**2).sum(axis=0)
        error = np.sqrt(variance)
        return Spread(error[:N], error[N:], np.sqrt(theta), (scores + draws).astype(np.float32))
    return _sparse_covariance(d, S, scores, R, rng, mix)


def n_draws(N: int) -> int:
    """How many times N scores are drawn."""
    return int(np.clip(500_000 // N, 200, 4000))


def _own_variance(D: Floats, mix: Floats | None) -> Floats:
    """The variance of theta where x is known: that of a diagonal block, or of 2 x 2 blocks."""
    if mix is None:
        return 1.0 / D
    M = len(mix)
    return np.append(1.0 / D[:M] + mix**2 / D[M:], 1.0 / D[M:])


def _sparse_covariance(
    d: Derivatives, S: Eliminated, scores: Floats, R: int, rng: np.random.Generator, mix: Floats | None
) -> Spread:
    """The same for many items: the diagonal of the inverse from products with random signs (Bekas et al. 2007).

    The mean of z * (S^-1 z) over vectors z of random signs is the diagonal, since the rest of S^-1 cancels out; with
    ``PROBES`` of them, and the rest of S^-1 small, it is good to a few percent.
    """
    N, n = len(scores), len(d.g)
    diagonal = S.diagonal()

    def solved(b: Floats) -> Floats:
        found = conjugate_gradients(S.apply, b, diagonal)
        return np.zeros_like(b) if found is None else found

    def centred(u: Floats) -> Floats:
        out = u.copy()
        out[:N] -= u[:N].mean()
        return out

    variance = np.zeros(n)
    theta = np.zeros(len(d.D))
    for _ in range(PROBES):
        z = rng.choice([-1.0, 1.0], size=n)
        z[N:] = 0.0
        variance += z * centred(solved(centred(z))) / PROBES
        if d.C is not None:
            u = rng.choice([-1.0, 1.0], size=len(d.D))
            theta += u * ((d.C.T @ solved(d.C @ (u / d.D))) / d.D) / PROBES  # two numbers of one: taken as independent
    for at in range(N, n):
        unit = np.zeros(n)
        unit[at] = 1.0
        variance[at] = solved(unit)[at]
    least = 1.0 / (2.0 * np.maximum(diagonal, 1e-12))  # the inverse has at least 1 / S_ii there; centring takes little
    error = np.sqrt(np.maximum(variance, least))
    order = np.argsort(-scores, kind="stable")
    draws = np.empty((R, N), dtype=np.float32)
    draws[:, order] = scores[order] + error[:N][order] * rng.standard_normal((R, N))
    own = np.empty(0) if d.C is None else np.sqrt(_own_variance(d.D, mix) + np.maximum(theta, 0.0))
    return Spread(error[:N], error[N:], own, draws)
