"""Newton's method for comparisons: scores and annotators in one system of equations, and how sure they are.

Because no comparison has two annotators, the block of theta in the matrix is diagonal and is eliminated, which leaves a
system of the size of the items: solved by Cholesky up to ``DENSE`` items, by conjugate gradients beyond. Steps are
halved until they go up. Where the matrix is not positive definite a step goes by that of EM's M-step, which always is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.answers.comparisons_likelihood import (
    Derivatives,
    Games,
    Model,
    _add_diagonal,
    derivatives,
    log_prior,
    look,
)
from crowdwise.core.loop import Callback, Progress
from crowdwise.core.numerics import Floats

PROBES = 100
"""Vectors of random signs behind the standard errors of more than ``DENSE`` items."""

__all__ = ["Solution", "Spread", "covariance", "evidence", "maximise", "step"]


@dataclass(frozen=True)
class Solution:
    """Where the climb ended."""

    x: Floats
    theta: Floats
    trace: Floats
    iterations: int
    converged: bool
    end: Derivatives


# -------------------------------------------------------------------- steps


@dataclass(frozen=True)
class Eliminated:
    """H - C D^-1 C' for many items: never made, only multiplied with."""

    d: Derivatives

    def apply(self, u: Floats) -> Floats:
        out = self.d.H @ u
        return np.asarray(out if self.d.C is None else out - self.d.C @ ((self.d.C.T @ u) / self.d.D))

    def diagonal(self) -> Floats:
        own = np.asarray(self.d.H.diagonal())
        return own if self.d.C is None else own - np.asarray(self.d.C.multiply(self.d.C) @ (1.0 / self.d.D)).ravel()


def _schur(d: Derivatives, free: bool) -> Any:
    """H - C D^-1 C', theta eliminated; where no prior fixes the level of scores (``free``), a direction is added."""
    S = d.H
    if not isinstance(S, np.ndarray):
        return Eliminated(d)
    if isinstance(d.C, np.ndarray):
        from scipy.linalg.blas import dsyrk

        # Half of the product, the other being its mirror image.
        half = dsyrk(1.0, np.asfortranarray(d.C / np.sqrt(d.D)), lower=1)
        S = S - (half + np.tril(half, -1).T)
    elif d.C is not None:
        from scipy import sparse

        S = S - np.asarray((d.C @ sparse.diags_array(1.0 / d.D) @ d.C.T).todense())
    if free:
        n = len(S)
        S = S + np.full((n, n), np.abs(np.diagonal(S)).mean() / n)
    return S


def step(d: Derivatives, free: bool) -> tuple[Floats, Floats] | None:
    """The Newton step (x, theta); ``None`` where the matrix is not positive definite."""
    if len(d.D) and not (d.D > 0.0).all():
        return None
    right = d.g if d.C is None else d.g - d.C @ (d.g_theta / d.D)
    S = _schur(d, free)
    if isinstance(S, np.ndarray):
        from scipy.linalg import cho_factor, cho_solve

        try:
            dx = cho_solve(cho_factor(S, lower=True, check_finite=False), right)
        except np.linalg.LinAlgError:
            return None
    else:
        found = _conjugate_gradients(S.apply, right, S.diagonal())
        if found is None:
            return None
        dx = found
    return dx, (np.empty(0) if d.C is None else (d.g_theta - d.C.T @ dx) / d.D)


def _sure_step(d: Derivatives, free: bool) -> tuple[Floats, Floats]:
    """The step with a matrix that is positive definite but for rounding, which a growing diagonal makes up for."""
    ridge = 0.0
    while (found := step(d, free)) is None:
        ridge = max(4.0 * ridge, 1e-10 * float(np.abs(d.H.diagonal()).max()))
        extra = np.full(len(d.g), ridge)
        d = Derivatives(d.g, d.g_theta, _add_diagonal(d.H, extra), d.C, np.maximum(d.D, 1e-12) + ridge)
    return found


def _conjugate_gradients(apply: Callable[[Floats], Floats], b: Floats, diagonal: Floats) -> Floats | None:
    """The solution to a relative residual of 1e-8; ``None`` at a direction of negative curvature."""
    if not (diagonal > 0.0).all():
        return None
    x, r = np.zeros_like(b), b.copy()
    y = r / diagonal
    p, rho, stop = y.copy(), float(r @ y), 1e-8 * float(np.linalg.norm(b))
    for _ in range(10 * len(b)):
        if float(np.linalg.norm(r)) <= stop:
            break
        Ap = apply(p)
        curve = float(p @ Ap)
        if curve <= 0.0:
            return None if not x.any() else x
        x += (rho / curve) * p
        r -= (rho / curve) * Ap
        y = r / diagonal
        rho, before = float(r @ y), rho
        p = y + (rho / before) * p
    return x


def _in_eta(d: Derivatives, model: Model, theta: Floats) -> Derivatives:
    """The same derivatives with reliabilities eta in place of their logits, in units of eta (1 - eta).

    In eta, not in its logit, the log likelihood and the prior are concave, so that D is positive wherever one stands.
    """
    if model.kind != "reliable":
        return d
    return Derivatives(d.g, d.g_theta, d.H, d.C, d.D - d.g_theta * np.tanh(0.5 * theta))


def _without_cross(d: Derivatives, whole: Derivatives) -> Derivatives:
    """EM's matrix for the scores, the true one for annotators, who do not meet in it."""
    return Derivatives(d.g, d.g_theta, d.H, d.C, whole.D if len(whole.D) and (whole.D > 0.0).all() else d.D)


def _moved(model: Model, theta: Floats, u: Floats) -> Floats:
    """The annotators' numbers after a step; reliabilities go at most nine tenths of the way to 0 or 1."""
    if model.kind != "reliable":
        return theta + u if len(u) else theta
    low, high = 1.0 / (1.0 + np.exp(-theta)), 1.0 / (1.0 + np.exp(theta))  # eta and 1 - eta, both exact
    up = np.clip(1.0 + high * u, 0.1, None)
    down = np.clip(1.0 - low * u, 0.1, None)
    return np.asarray(theta + np.log(up) - np.log(down))


def maximise(
    games: Games, model: Model, x: Floats, theta: Floats, *, max_iter: int, tol: float,
    callback: Callback | None = None, total: float | None = None,
) -> Solution:  # fmt: skip
    """Climb to the top. ``tol``: stop once a step promises less than this per comparison."""
    n = max(float(games.weight.sum()) if total is None else total, 1.0)
    N, free = games.n_items, model.prior <= 0.0
    value, sums = look(games, model, x, theta)
    value += log_prior(model, x, theta, N)
    trace, converged, t = [value], False, 0
    for t in range(1, max_iter + 1):
        d = _in_eta(derivatives(games, model, x, theta, sums(True)), model, theta)
        found = step(d, free)
        if found is None:  # not concave here: go by EM's matrix, which always is
            found = _sure_step(_without_cross(derivatives(games, model, x, theta, sums(False)), d), free)
        dx, dt = found
        promise = float(d.g @ dx + (d.g_theta @ dt if len(dt) else 0.0))
        length = 1.0
        while True:
            new_x, new_t = x + length * dx, _moved(model, theta, length * dt)
            new, sums_there = look(games, model, new_x, new_t)
            new += log_prior(model, new_x, new_t, N)
            if new >= value + 1e-4 * length * promise or length < 1e-9:
                break
            length *= 0.5
        if new < value:  # rounding: there is nothing left to gain
            converged = promise <= 1e-9 * max(1.0, abs(value))
            break
        gain, value, x, theta, sums = new - value, new, new_x, new_t, sums_there
        trace.append(value)
        if callback is not None:
            callback(Progress(t, max_iter, value, gain / n))
        if 0.5 * promise <= tol * n:
            converged = True
            break
    end = derivatives(games, model, x, theta, sums(True))
    if not (end.D > 0.0).all():  # stopped too early to be at a top: go by EM's matrix
        end = derivatives(games, model, x, theta, sums(False))
    return Solution(x, theta, np.array(trace), t, converged, end)


# -------------------------------------------------------------------- how sure


def evidence(found: Solution, model: Model) -> float:
    """log P(all answers) with scores and reliabilities integrated out by Laplace's approximation, up to a constant
    that is the same for all priors of reliabilities; for up to ``DENSE`` items."""
    from scipy.special import betaln

    S, M = _schur(found.end, model.prior <= 0.0), len(found.theta)
    size = float(np.linalg.slogdet(S)[1])
    eta = 1.0 / (1.0 + np.exp(-found.theta))
    # D is by the logit; by arcsin(sqrt(eta)), on whose scale the mode is, it is divided by eta (1 - eta).
    wide = float(np.log(np.maximum(found.end.D, 1e-300)).sum() - np.log(eta * (1.0 - eta)).sum())
    a, b = model.beta
    flat = M * (float(betaln(a + 0.5, b + 0.5)) - 0.5 * np.log(2.0 * np.pi))
    return float(found.trace[-1] - 0.5 * (size + wide) - flat)


@dataclass(frozen=True)
class Spread:
    """Standard errors of the centred scores, of tau (and the mean position), and of theta; draws of the scores."""

    scores: Floats
    shared: Floats
    theta: Floats
    draws: npt.NDArray[np.float32]


def covariance(d: Derivatives, scores: Floats, *, free: bool, rng: np.random.Generator) -> Spread:
    """From the inverse of the observed information, the scores held to sum to zero.

    Draws are made in the order of the scores, so that names do not matter; beyond ``DENSE`` items each is drawn by
    itself.
    """
    N = len(scores)
    R = int(np.clip(500_000 // N, 200, 4000))
    S = _schur(d, free)
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
            theta = 1.0 / d.D + ((centred @ E) ** 2).sum(axis=0)
        else:
            theta = np.empty(0)
        centred[:, :N] -= centred[:, :N].mean(axis=1, keepdims=True)
        draws = noise @ centred[:, :N]
        variance = (centred**2).sum(axis=0)
        return Spread(
            np.sqrt(variance[:N]), np.sqrt(variance[N:]), np.sqrt(theta), (scores + draws).astype(np.float32)
        )  # fmt: skip
    return _sparse_covariance(d, S, scores, R, rng)


def _sparse_covariance(
    d: Derivatives, S: Eliminated, scores: Floats, R: int, rng: np.random.Generator
) -> Spread:  # fmt: skip
    """The same for many items: the diagonal of the inverse from products with random signs (Bekas et al. 2007).

    The mean of z * (S^-1 z) over vectors z of random signs is the diagonal, since the rest of S^-1 cancels out; with
    ``PROBES`` of them, and the rest of S^-1 small, it is good to a few percent.
    """
    N, n = len(scores), len(d.g)
    diagonal = S.diagonal()

    def solved(b: Floats) -> Floats:
        found = _conjugate_gradients(S.apply, b, diagonal)
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
            theta += u * ((d.C.T @ solved(d.C @ (u / d.D))) / d.D) / PROBES
    for at in range(N, n):
        unit = np.zeros(n)
        unit[at] = 1.0
        variance[at] = solved(unit)[at]
    least = 1.0 / (2.0 * np.maximum(diagonal, 1e-12))  # the inverse has at least 1 / S_ii there; centring takes little
    error = np.sqrt(np.maximum(variance, least))
    order = np.argsort(-scores, kind="stable")
    draws = np.empty((R, N), dtype=np.float32)
    draws[:, order] = scores[order] + error[:N][order] * rng.standard_normal((R, N))
    own = np.empty(0) if d.C is None else np.sqrt(1.0 / d.D + np.maximum(theta, 0.0))
    return Spread(error[:N], error[N:], own, draws)
