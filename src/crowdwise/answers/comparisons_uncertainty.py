"""Uncertainty of scores at the optimum: standard errors, draws, and the evidence for a prior of reliabilities.

Standard errors where comparisons hang together in groups, such as those on one prompt: the sandwich, by group.

At the optimum the sum of all gradients and of the prior's is zero. The estimate moves by J^-1 u where the comparisons
add a gradient u, J being the negative Hessian. Groups are independent and comparisons within one are not, so

    Var  =  G / (G - 1)  J^-1 ( sum over groups c of u_c u_c' ) J^-1,          u_c the sum of the gradients of group c

(Huber 1967; Liang and Zeger 1986). Where all comparisons are independent this is J^-1 up to noise. With few groups it
is too small, since a group's own comparisons pull the estimate towards them: with J_c the information of group c,

    Var  =  sum of psi_c psi_c',          psi_c = J^-1 (1 - J_c J^-1)^(-1/2) u_c

is unbiased where comparisons are independent (CR2: Bell and McCaffrey 2002), and intervals are those of Student's t
with the degrees of freedom that this variance has there (Satterthwaite). With J^-1 = L L' and K_c = L' J_c L, psi_c is
L (1 - K_c)^(-1/2) L' u_c; of a number y = L' t in these coordinates the variance is a sum over groups c and d of
products of numbers with the covariances y' F_c (K_c [c = d] - K_c K_d) F_d y, F_c = (1 - K_c)^(-1/2).

With very many groups or numbers the correction is G / (G - 1), and G - 1 degrees of freedom. Annotators' numbers theta
are then eliminated: of scores the part J^-1 u_c is S^-1 (g_c - C D^-1 h_c), S the Schur complement, g_c and h_c the
gradients by scores and by theta.

Where nothing is against a number (an item that never lost, a judge who always took the first), gradients vanish, and
with them the spread of their sums. So no interval is narrower than that of independent comparisons where a number is in
fewer than ``MIN_GROUPS`` groups, where so few surprises are expected of its comparisons (the sum of p (1 - p)), or
where sets of items never lost to each other. Elsewhere it may be: judges of one prompt err alike, and so differ less
than if they had not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.answers import comparisons_matches as tables
from crowdwise.answers.comparisons_connectivity import strong_components
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
    sure_step,
)
from crowdwise.core.intervals import LEVEL, quantile
from crowdwise.core.numerics import Floats, Ints

PROBES = 100
"""Vectors of random signs behind the standard errors where matrices are sparse."""


def evidence(fit: NewtonSolution, model: Likelihood) -> float:
    """log P(all answers) with scores and reliabilities integrated out by Laplace's approximation, up to a constant
    that is the same for all priors of reliabilities; for up to ``DENSE`` items."""
    from scipy.special import betaln

    d = separated(fit.end)[0]
    S, logit = schur(d, model.prior <= 0.0), fit.theta
    size, M = float(np.linalg.slogdet(S)[1]), len(logit)
    eta = 1.0 / (1.0 + np.exp(-logit))
    # D is by the logit; by arcsin(sqrt(eta)), on whose scale the mode is, it is divided by eta (1 - eta).
    wide = float(np.log(np.maximum(d.D, 1e-300)).sum() - np.log(eta * (1.0 - eta)).sum())
    a, b = model.beta
    flat = M * (float(betaln(a + 0.5, b + 0.5)) - 0.5 * np.log(2.0 * np.pi))
    return float(fit.rounds.trace[-1] - 0.5 * (size + wide) - flat)


@dataclass(frozen=True)
class Spread:
    """Standard errors of the centred scores, of tau (and the mean position), and of theta; draws of the scores."""

    scores: Floats
    shared: Floats
    theta: Floats
    draws: npt.NDArray[np.float32]
    freedom: Floats | None = None
    """Degrees of freedom of the scores, where they are few, then of tau and of theta: N + shared + theta."""


def covariance(
    d: Derivatives, scores: Floats, *, free: bool, rng: np.random.Generator, slope: Floats | None = None
) -> Spread:
    """From the inverse of the observed information, the scores held to sum to zero. Draws are made in the order of the
    scores, so that names do not matter; beyond ``DENSE`` items each is drawn by itself.

    Where there are slopes, all are on the scale at which the mean absolute slope is 1: what moves it by e, the mean of
    the changes of slopes, adds e s to scores and takes e a off slopes.
    """
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
        theta, alone = np.empty(0), 0.0
        if d.C is not None:
            E = d.C / d.D if isinstance(d.C, np.ndarray) else np.asarray(d.C.todense()) / d.D
            moved = -joined(centred @ E, mix)
            theta = own_variance(d.D, mix)
            if slope is not None:
                M = len(slope)
                sign = np.append(np.sign(slope) / M, np.zeros(len(theta) - M))
                own = moved @ sign
                within = _within(d.D, mix, sign)
                alone = float(sign @ within)
                moved[:, :M] -= own[:, None] * slope
                theta[:M] += -2.0 * slope * within[:M] + slope**2 * alone
                centred[:, :N] += own[:, None] * scores
            theta = theta + (moved**2).sum(axis=0)
        centred[:, :N] -= centred[:, :N].mean(axis=1, keepdims=True)
        draws = noise @ centred[:, :N]
        variance = (centred**2).sum(axis=0)
        if slope is not None and d.C is not None:
            draws += np.sqrt(alone) * rng.standard_normal((R, 1)) * scores
            variance[:N] += alone * scores**2
        error = np.sqrt(variance)
        return Spread(error[:N], error[N:], np.sqrt(theta), (scores + draws).astype(np.float32))
    return _sparse_covariance(d, S, scores, R, rng, mix, slope)


def n_draws(N: int) -> int:
    """How many times N scores are drawn."""
    return int(np.clip(500_000 // N, 200, 4000))


def own_variance(D: Floats, mix: Floats | None) -> Floats:
    """The variance of theta where x is known: that of a diagonal block, or of 2 x 2 blocks."""
    if mix is None:
        return 1.0 / D
    M = len(mix)
    return np.append(1.0 / D[:M] + mix**2 / D[M:], 1.0 / D[M:])


def _within(D: Floats, mix: Floats | None, direction: Floats) -> Floats:
    """The covariance of theta with a sum of its entries, where x is known."""
    if mix is None:
        return np.asarray(direction / D)
    M = len(mix)
    u = np.append(direction[:M], direction[M:] - mix * direction[:M]) / D
    return joined(u, mix)


def _sparse_covariance(
    d: Derivatives, S: Eliminated, scores: Floats, R: int, rng: np.random.Generator, mix: Floats | None,
    slope: Floats | None = None,
) -> Spread:  # fmt: skip
    """The same for many items: the diagonal of the inverse from products with random signs (Bekas et al. 2007).

    The mean of z * (S^-1 z) over vectors z of random signs is the diagonal, since the rest of S^-1 cancels out; with
    ``PROBES`` of them, and the rest of S^-1 small, it is good to a few percent.
    """
    N, n = len(scores), len(d.g)
    diagonal = S.diagonal()

    def solved(b: Floats) -> Floats:
        x = conjugate_gradients(S.apply, b, diagonal)
        return np.zeros_like(b) if x is None else x

    def centred(u: Floats) -> Floats:
        return np.append(u[:N] - u[:N].mean(), u[N:])

    own, alone = np.zeros(n), 0.0  # what moves the mean slope, by which scores are multiplied
    if slope is not None and d.C is not None:
        sign = np.append(np.sign(slope) / len(slope), np.zeros(len(d.D) - len(slope)))
        alone = float(sign @ _within(d.D, mix, sign))
        if mix is not None:
            sign[len(slope) :] = -mix * sign[: len(slope)]
        own = -np.asarray(d.C @ (sign / d.D))
    along = np.append(scores - scores.mean(), np.zeros(n - N))
    variance, theta = np.zeros(n), np.zeros(len(d.D))
    for _ in range(PROBES):
        z = rng.choice([-1.0, 1.0], size=n)
        z[N:] = 0.0
        moved = solved(centred(z) + own * float(along @ z))
        variance += z * (centred(moved) + along * float(own @ moved)) / PROBES
        if d.C is not None:
            u = rng.choice([-1.0, 1.0], size=len(d.D))
            theta += u * ((d.C.T @ solved(d.C @ (u / d.D))) / d.D) / PROBES  # two numbers of one: taken as independent
    for at in range(N, n):
        variance[at] = solved(np.eye(1, n, at)[0])[at]
    variance += alone * along**2
    least = 1.0 / (2.0 * np.maximum(diagonal, 1e-12))  # the inverse has at least 1 / S_ii there; centring takes little
    error = np.sqrt(np.maximum(variance, least))
    order = np.argsort(-scores, kind="stable")
    draws = np.empty((R, N), dtype=np.float32)
    draws[:, order] = scores[order] + error[:N][order] * rng.standard_normal((R, N))
    each = np.empty(0) if d.C is None else np.sqrt(own_variance(d.D, mix) + np.maximum(theta, 0.0))
    return Spread(error[:N], error[N:], each, draws)


MIN_GROUPS, MIN_OF_ITEM = 5, 5
"""With fewer groups there are no errors by group; and most items must be in so many of them."""
EXACT_GROUPS, EXACT_NUMBERS = 120, 200
"""Up to so many groups and numbers the correction for few groups is exact."""


def clustered(
    fit: NewtonSolution, matches: Matches, model: Likelihood, plain: Spread, scores: Floats, rng: np.random.Generator
) -> Spread | str:
    """The spread of scores and of annotators' numbers with comparisons in groups, or why there is none; ``plain``: with
    independent ones."""
    N, M = matches.n_items, matches.n_annotators
    used, group = np.unique(np.asarray(matches.group), return_inverse=True)
    G, n_x, P = len(used), len(fit.x), len(fit.x) + len(fit.theta)
    if G < MIN_GROUPS:
        return f"there are {G}, and {MIN_GROUPS} are needed"
    if N > tables.DENSE:
        return f"that is done for up to {tables.DENSE:,} items"
    if (_groups_of(group, [matches.winner, matches.loser], G, N) < MIN_OF_ITEM).mean() > 0.5:
        return f"most items are in fewer than {MIN_OF_ITEM} of them"
    if G * P > 20_000_000:
        return "there are too many of them and of annotators"
    slope = split(model, fit.theta)[0] if model.sloped else None

    def on_scale(u: Floats) -> Floats:
        """Changes of all numbers (the last axis): slopes have the mean 1, scores the mean 0."""
        u = u.copy()
        if slope is not None:
            a = slice(n_x, n_x + M)
            e = (u[..., a] @ (np.sign(slope) / M))[..., None]
            u[..., :N] += e * scores
            u[..., a] -= e * slope
        u[..., :N] -= u[..., :N].mean(axis=-1, keepdims=True)
        return u

    rows = log_likelihood(matches, model, fit.x, fit.theta)[1]
    Z = _design(fit, matches, model, rows)
    u = _gradients(matches, model, fit, rows, group, Z)
    exact = not model.reliable and G <= EXACT_GROUPS and P <= EXACT_NUMBERS
    if exact:
        moved, freedom = _corrected(fit, matches, model, rows, group, Z, u, on_scale)
    else:
        steps = sure_step(fit.end, model.prior <= 0.0, u[:, :n_x], u[:, n_x:])
        moved = on_scale(np.hstack(steps)) * np.sqrt(G / (G - 1.0))
        freedom = np.full(P, G - 1.0)
    V, own = moved[:, :n_x].T @ moved[:, :n_x], np.sqrt((moved**2).sum(axis=0))
    alone = np.concatenate([plain.scores, plain.shared, plain.theta])
    narrow = own * quantile(LEVEL, freedom) < alone * quantile(LEVEL)
    narrow &= _blind(fit, matches, model, rows, group, G, exact)
    short = np.maximum(alone**2 - own**2, 0.0)[:N] * narrow[:N]
    far = (np.eye(N) - 1.0 / N)[:, short > 0.0] * np.sqrt(short[short > 0.0]) / (1.0 - 1.0 / N)
    usual = float(np.median(freedom[:N]))
    draws = student_draws(V[:N, :N] + far @ far.T, scores, len(plain.draws), rng, usual)
    error, freedom = np.where(narrow, alone, own), np.where(narrow, np.inf, freedom)
    return Spread(error[:N], error[N:n_x], error[n_x:], draws, freedom)


def _blind(
    fit: NewtonSolution, matches: Matches, model: Likelihood, rows: dict[str, Floats], group: Ints, G: int,
    exact: bool,
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """P: the numbers of which gradients may say too little."""
    P, N, M, m = len(fit.x) + len(fit.theta), matches.n_items, matches.n_annotators, matches.annotator
    if model.reliable or not (exact or G > EXACT_GROUPS):
        return np.ones(P, dtype=bool)
    w, sides = matches.weight, (matches.winner, matches.loser)
    surprises = w * rows["v"]
    items = sum(tables.total(side, surprises, N) for side in sides) < MIN_GROUPS
    items |= _groups_of(group, [*sides], G, N) < MIN_GROUPS
    items |= bool(strong_components(matches).any())
    tied = float(w @ (rows["t"] * (1.0 - rows["t"]))) if model.ties else np.inf
    shared = np.repeat([tied < MIN_GROUPS, surprises.sum() < MIN_GROUPS], [model.ties, model.n_shared - model.ties])
    judges = (tables.total(m, surprises, M) < MIN_GROUPS) | (_groups_of(group, [m], G, M) < MIN_GROUPS)
    return np.concatenate([items, shared, *[judges] * (len(fit.theta) // M)])


def student_draws(V: Floats, scores: Floats, R: int, rng: np.random.Generator, freedom: float) -> Any:
    """Scores from Student's t distribution, drawn in their order so that names do not matter."""
    N, order = len(scores), np.argsort(-scores, kind="stable")
    least = max(1e-9 * float(np.trace(V)) / N, 1e-18)  # where nothing varies, the draws are the scores
    L = np.linalg.cholesky(V[np.ix_(order, order)] + np.eye(N) * least)
    far = np.sqrt(freedom / rng.chisquare(freedom, (R, 1)))
    draws = np.empty((R, N), dtype=np.float32)
    draws[:, order] = scores[order] + far * (rng.standard_normal((R, N)) @ L.T)
    return draws


def _corrected(
    fit: NewtonSolution, matches: Matches, model: Likelihood, rows: dict[str, Floats], group: Ints, Z: Any,
    U: Floats, on_scale: Any,
) -> tuple[Floats, Floats]:  # fmt: skip
    """G x P: by how much each group moves all numbers, with the correction for few groups; P: degrees of freedom."""
    N, M, w, d, (G, P) = matches.n_items, matches.n_annotators, matches.weight, fit.end, U.shape
    n_x = len(fit.x)
    J = np.zeros((P, P))
    J[:n_x, :n_x] = d.H
    if d.C is not None:
        J[:n_x, n_x:], J[n_x:, :n_x] = d.C, np.transpose(d.C)
        J[np.arange(n_x, P), np.arange(n_x, P)] = d.D
        if d.cross is not None:
            at_a, at_b = np.arange(n_x, n_x + M), np.arange(n_x + M, P)
            J[at_a, at_b] = J[at_b, at_a] = d.cross
    if model.prior <= 0.0:
        J[:N, :N] += np.abs(np.diagonal(J)[:N]).mean() / N
    L = np.linalg.inv(np.linalg.cholesky(J)).T  # J^-1 = L L'
    y = on_scale(L.T).T  # P x P: row i is L' t_i
    moved, h, own = np.empty((G, P)), np.empty((G, P, P)), np.empty((G, P))
    for c in range(G):
        mine = np.flatnonzero(group == c)
        z, weight = Z[mine], w[mine]
        J_c = np.asarray((z.T @ (z * (weight * rows["v"][mine])[:, None])).todense())
        if model.ties:
            t = rows["t"][mine]
            J_c[N] = J_c[:, N] = np.asarray(z.T @ (weight * rows["k"][mine]))
            J_c[N, N] = float(weight @ (t * (1.0 - t)))
        value, Q = np.linalg.eigh(L.T @ J_c @ L)
        value = np.clip(value, 0.0, 0.99)  # no group decides all of a number
        F = (Q / np.sqrt(1.0 - value)) @ Q.T
        moved[c] = y @ (F @ (L.T @ U[c]))
        Fy = F @ y.T
        h[c] = (Q * value) @ (Q.T @ Fy)
        own[c] = (Fy * h[c]).sum(axis=0)
    freedom = np.empty(P)
    for k in range(P):
        both = np.diag(own[:, k]) - h[:, :, k] @ h[:, :, k].T
        freedom[k] = np.trace(both) ** 2 / max(float((both**2).sum()), 1e-300)
    return moved, np.clip(freedom, 1.0, G - 1.0)


def _design(fit: NewtonSolution, matches: Matches, model: Likelihood, rows: dict[str, Floats]) -> Any:
    """S x P, sparse: the derivatives of z by all numbers (tau and reliabilities are not in it)."""
    from scipy.sparse import csr_array

    S, n_x, m = len(matches.weight), len(fit.x), matches.annotator
    steep = fit.theta[m] if model.sloped else np.ones(S)
    columns = [(matches.winner, steep), (matches.loser, -steep)]
    columns += [(n_x + m, rows["gap"])] if model.sloped else []
    columns += [(n_x + len(fit.theta) - matches.n_annotators + m, matches.sign)] if model.placed else []
    if model.covariates and matches.extra is not None:
        columns += [(np.full(S, n_x - model.covariates + k), column) for k, column in enumerate(matches.extra.T)]
    at = (np.tile(np.arange(S), len(columns)), np.concatenate([c[0] for c in columns]))
    return csr_array((np.concatenate([c[1] for c in columns]), at), shape=(S, n_x + len(fit.theta)))


def _gradients(
    matches: Matches, model: Likelihood, fit: NewtonSolution, rows: dict[str, Floats], group: Ints, Z: Any
) -> Floats:
    """G x P: the gradients of the log likelihood, summed by group."""
    from scipy.sparse import csr_array

    N, n_x, w, d = matches.n_items, len(fit.x), matches.weight, slice(0, matches.decided)
    U = np.asarray((csr_array((w * rows["g"], (group, np.arange(len(w))))) @ Z).todense())
    if model.ties:
        U[:, N] = np.bincount(group, w * ((np.arange(len(w)) >= matches.decided) - rows["t"]))
    if model.reliable:
        eta = 1.0 / (1.0 + np.exp(-np.clip(fit.theta, -300, 300)))
        np.add.at(U, (group[d], n_x + matches.annotator[d]), w[d] * (rows["r"][d] - eta[matches.annotator[d]]))
    return U


def _groups_of(group: Ints, indices: list[Ints], G: int, size: int) -> Ints:
    """How many groups each item (or annotator) is in."""
    pairs = np.unique(np.concatenate([index.astype(np.int64) * G + group for index in indices]))
    return np.bincount(pairs // G, minlength=size)
