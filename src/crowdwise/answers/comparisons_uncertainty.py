"""Uncertainty of scores at the optimum: standard errors, draws, and the evidence for a prior of reliabilities.

Standard errors where comparisons hang together in groups, such as those on one prompt: the sandwich, by group.

At the optimum the sum of all gradients and of the prior's is zero. The estimate moves by J^-1 u where the comparisons
add a gradient u, J being the negative Hessian. Groups are independent and comparisons within one are not, so

    Var  =  G / (G - 1)  J^-1 ( sum over groups c of u_c u_c' ) J^-1,          u_c the sum of the gradients of group c

(Huber 1967; Liang and Zeger 1986). Where all comparisons are independent this is J^-1 up to noise. Annotators' numbers
theta are eliminated: of scores the part J^-1 u_c is S^-1 (g_c - C D^-1 h_c), S the Schur complement, g_c and h_c the
gradients by scores and by theta.

It needs many groups. An item that is in few of them has an error of at least that of independent comparisons, and where
most items are, all errors are those. So has an item that won, or lost, in hardly any: where nothing is against a score,
gradients vanish, and with them the spread of their sums, while nothing is known of how much better it is. What its
error lacks is added to the variance of its own score, before scores are centred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.answers import comparisons_matches as tables
from crowdwise.answers.comparisons_likelihood import Likelihood, log_likelihood, split
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import (
    Derivatives,
    Eliminated,
    NewtonSolution,
    conjugate_gradients,
    joined,
    schur,
    separated,
)
from crowdwise.core.numerics import Floats, Ints

PROBES = 100
"""Vectors of random signs behind the standard errors where matrices are sparse."""


def evidence(found: NewtonSolution, model: Likelihood) -> float:
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


MIN_GROUPS = 20
"""With fewer groups their spread is too uncertain to stand for that of all."""
MIN_OF_ITEM = 10
"""An item that is in fewer groups keeps at least the error of independent comparisons."""
MIN_EITHER = 5
"""So does an item that won (or tied) in fewer groups than this, or lost (or tied)."""
CELLS = 20_000_000
"""Up to so many cells gradients of annotators are kept for every group."""


@dataclass(frozen=True)
class Clustered:
    """Errors by group, or why there are none."""

    spread: Spread | None
    n_groups: int
    why_not: str = ""


def clustered(
    found: NewtonSolution, matches: Matches, model: Likelihood, plain: Spread, scores: Floats, rng: np.random.Generator
) -> Clustered:
    """The spread of scores and of annotators' numbers with comparisons in groups; ``plain``: with independent ones."""
    assert matches.group is not None
    N, group = matches.n_items, matches.group
    used, group = np.unique(group, return_inverse=True)
    G = len(used)
    if G < MIN_GROUPS:
        return Clustered(None, G, f"there are {G}, and {MIN_GROUPS} are needed")
    if N > tables.DENSE:
        return Clustered(None, G, f"that is done for up to {tables.DENSE:,} items")
    reach = _groups_of(group, [matches.winner, matches.loser], G, N)
    if (reach < MIN_OF_ITEM).mean() > 0.5:
        return Clustered(None, G, f"most items are in fewer than {MIN_OF_ITEM} of them")
    x_part, theta_part = _gradients(matches, model, found, group, G)
    d, mix = separated(found.end)
    if d.C is not None:
        own = _in_blocks(theta_part, mix) / d.D
        x_part = x_part - own @ d.C.T if isinstance(d.C, np.ndarray) else x_part - (d.C @ own.T).T
    moved = np.linalg.solve(schur(d, model.prior <= 0.0), x_part.T).T  # G x (N + shared)
    theta = plain.theta
    if d.C is not None and theta_part.size <= CELLS:
        along = joined((_in_blocks(theta_part, mix) - moved @ d.C) / d.D, mix)
        of_annotator = _groups_of(group, [matches.annotator], G, matches.n_annotators)
        few = np.tile(of_annotator < MIN_OF_ITEM, len(theta) // matches.n_annotators)
        wide = np.sqrt((along**2).sum(axis=0) * G / (G - 1.0))
        theta = np.where(few, np.maximum(wide, theta), wide)
    moved[:, :N] -= moved[:, :N].mean(axis=1, keepdims=True)
    V = moved.T @ moved * (G / (G - 1.0))
    few = (reach < MIN_OF_ITEM) | (_either(group, matches, G) < MIN_EITHER)
    short = np.where(few, np.maximum(plain.scores**2 - np.diagonal(V)[:N], 0.0), 0.0)
    own = (np.eye(N) - 1.0 / N)[:, short > 0.0] * np.sqrt(short[short > 0.0]) / (1.0 - 1.0 / N)
    V[:N, :N] += own @ own.T
    error = np.sqrt(np.diagonal(V))
    return Clustered(Spread(error[:N], error[N:], theta, _draws(V[:N, :N], scores, len(plain.draws), rng)), G)


def _draws(V: Floats, scores: Floats, R: int, rng: np.random.Generator) -> Any:
    """Scores from the Normal distribution, drawn in their order so that names do not matter."""
    N, order = len(scores), np.argsort(-scores, kind="stable")
    L = np.linalg.cholesky(V[np.ix_(order, order)] + np.eye(N) * 1e-9 * float(np.trace(V)) / N)
    draws = np.empty((R, N), dtype=np.float32)
    draws[:, order] = scores[order] + rng.standard_normal((R, N)) @ L.T
    return draws


def _gradients(
    matches: Matches, model: Likelihood, found: NewtonSolution, group: Ints, G: int
) -> tuple[Floats, Floats]:
    """G x (N + shared) and G x theta: the gradients of the log likelihood, summed by group."""
    N, M, w = matches.n_items, matches.n_annotators, matches.weight
    _, rows = log_likelihood(matches, model, found.x, found.theta)
    wg = w * rows["g"]
    x_part = np.zeros((G, N + model.n_shared))
    x_part[:, :N] = _by(group, matches.winner, wg, G, N) - _by(group, matches.loser, wg, G, N)
    if model.ties:
        tied = np.arange(len(w)) >= matches.decided
        x_part[:, N] = np.bincount(group, w * (tied - rows["t"]), G)
    parts = list[Floats]()
    if model.reliable:
        eta = 1.0 / (1.0 + np.exp(-np.clip(split(model, found.theta)[0], -300, 300)))
        d = slice(0, matches.decided)
        gain = w[d] * (rows["r"][d] - eta[matches.annotator[d]])
        parts.append(_by(group[d], matches.annotator[d], gain, G, M))
    if model.placed:
        parts.append(_by(group, matches.annotator, wg * matches.sign, G, M))
    return x_part, np.hstack(parts) if parts else np.zeros((G, 0))


def _in_blocks(h: Floats, mix: Floats | None) -> Floats:
    """Gradients by theta in the coordinates of ``separated``: L^-1 h."""
    if mix is None:
        return h
    M = len(mix)
    return np.hstack([h[:, :M], h[:, M:] - mix * h[:, :M]])


def _by(group: Ints, index: Ints, value: Floats, G: int, size: int) -> Floats:
    return tables.total(group * size + index, value, G * size).reshape(G, size)


def _either(group: Ints, matches: Matches, G: int) -> Ints:
    """Of each item the groups in which it won or tied, or those in which it lost or tied, whichever are fewer."""
    tied = np.arange(len(group)) >= matches.decided
    sides = ((matches.winner, matches.loser), (matches.loser, matches.winner))
    in_group, N = np.append(group, group[tied]), matches.n_items
    return np.minimum(*(_groups_of(in_group, [np.append(one, other[tied])], G, N) for one, other in sides))


def _groups_of(group: Ints, indices: list[Ints], G: int, size: int) -> Ints:
    """How many groups each item (or annotator) is in."""
    pairs = np.unique(np.concatenate([index.astype(np.int64) * G + group for index in indices]))
    return np.bincount(pairs // G, minlength=size)
