"""Newton's method for scores: those of items, and one number for each annotator, in one system of equations.

Because no answer has two annotators, the block of theta in the matrix is diagonal and is eliminated, which leaves a
system of the size of the items: solved by Cholesky where it is an array, by conjugate gradients where it is sparse.
Where annotators have two numbers, the block is 2 x 2 for each, and :func:`separated` makes it diagonal first.
Steps are halved until the objective rises. Where the exact matrix is not positive definite, a step uses that of EM's
M-step, which always is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crowdwise.answers.comparisons_matches import add_diagonal, scaled, stacked
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats


@dataclass(frozen=True)
class Derivatives:
    """Gradient and negative Hessian in blocks: x = (scores, tau, mean position), theta = one per annotator, or two (all
    first ones, then all second ones). ``H`` (x by x) and ``C`` (x by theta; ``None`` without theta) are arrays or
    sparse; ``D`` is the diagonal of theta by theta, ``cross`` what joins the two numbers of an annotator."""

    g: Floats
    H: Any
    g_theta: Floats = field(default_factory=lambda: np.empty(0))
    C: Any = None
    D: Floats = field(default_factory=lambda: np.empty(0))
    cross: Floats | None = None


@dataclass(frozen=True)
class Point:
    """The objective at one place: its value, and its derivatives (exact, or with EM's matrix) when asked for."""

    value: float
    derivatives: Callable[[bool], Derivatives]


class Objective(ABC):
    """What is maximised over x and theta."""

    weight: float
    """The number (weight) of answers: tolerances are per answer."""
    free: bool
    """Whether no prior fixes the level of the scores."""

    @abstractmethod
    def at(self, x: Floats, theta: Floats) -> Point: ...

    def for_step(self, d: Derivatives, theta: Floats) -> Derivatives:
        """The derivatives by the coordinates of theta in which steps are made."""
        return d

    def moved(self, theta: Floats, step: Floats) -> Floats:
        """theta after a step in these coordinates."""
        return theta + step if len(step) else theta


@dataclass(frozen=True)
class NewtonSolution:
    """Where the steps ended."""

    x: Floats
    theta: Floats
    rounds: Rounds
    end: Derivatives


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


def separated(d: Derivatives) -> tuple[Derivatives, Floats | None]:
    """The same in coordinates in which the block of theta is diagonal, and what leads back (:func:`joined`).

    The block of an annotator is L diag L' with L = (1, 0; l, 1), l = cross / D_1. By u = L' theta the matrix is diag
    and C becomes C L'^-1.
    """
    if d.cross is None:
        return d, None
    M, C = len(d.cross), d.C
    mix = d.cross / np.where(d.D[:M] > 0.0, d.D[:M], np.inf)
    C = stacked([C[:, :M], C[:, M:] - scaled(C[:, :M], mix)], 1)
    return replace(d, C=C, D=np.append(d.D[:M], d.D[M:] - mix * d.cross), cross=None), mix


def in_blocks(h: Floats, mix: Floats | None) -> Floats:
    """Gradients by theta in the coordinates of :func:`separated`, L^-1 h, along the last axis."""
    if mix is None:
        return h
    M = len(mix)
    return np.concatenate([h[..., :M], h[..., M:] - mix * h[..., :M]], axis=-1)


def joined(u: Floats, mix: Floats | None) -> Floats:
    """theta from the coordinates of :func:`separated`, along the last axis."""
    if mix is None:
        return u
    M = len(mix)
    return np.concatenate([u[..., :M] - mix * u[..., M:], u[..., M:]], axis=-1)


def schur(d: Derivatives, free: bool) -> Any:
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
        S = S - np.asarray((scaled(d.C, 1.0 / d.D) @ d.C.T).todense())
    if free:
        n = len(S)
        S = S + np.full((n, n), np.abs(np.diagonal(S)).mean() / n)
    return S


def step(d: Derivatives, free: bool, g: Floats | None = None, h: Floats | None = None) -> tuple[Floats, Floats] | None:
    """The Newton step (x, theta); ``None`` where the matrix is not positive definite. By other gradients g and h than
    those of ``d``, where they are given: of arrays, one step for each row."""
    g, h = d.g if g is None else g, d.g_theta if h is None else h
    d, mix = separated(d)
    if len(d.D) and not (d.D > 0.0).all():
        return None
    h = in_blocks(h, mix)
    right = g if d.C is None else g - (d.C @ (h / d.D).T).T
    S = schur(d, free)
    if isinstance(S, np.ndarray):
        from scipy.linalg import cho_factor, cho_solve

        try:
            dx = cho_solve(cho_factor(S, lower=True, check_finite=False), right.T).T
        except np.linalg.LinAlgError:
            return None
    else:
        dx = conjugate_gradients(S.apply, right, S.diagonal())
        if dx is None:
            return None
    return dx, (h if d.C is None else joined((h - (d.C.T @ dx.T).T) / d.D, mix))


def sure_step(d: Derivatives, free: bool, g: Floats | None = None, h: Floats | None = None) -> tuple[Floats, Floats]:
    """The step with a matrix that is positive definite up to rounding: a diagonal is added, and grows, until it is."""
    ridge = 0.0
    while (move := step(d, free, g, h)) is None:
        ridge = max(4.0 * ridge, 1e-10 * float(np.abs(d.H.diagonal()).max()))
        extra = np.full(len(d.g), ridge)
        d = replace(d, H=add_diagonal(d.H, extra), D=np.maximum(d.D, 1e-12) + ridge)
    return move


def conjugate_gradients(apply: Callable[[Floats], Floats], b: Floats, diagonal: Floats) -> Floats | None:
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


def maximise(
    objective: Objective, x: Floats, theta: Floats | None = None, *, max_iter: int, tol: float,
    callback: Callback | None = None, weight: float | None = None,
) -> NewtonSolution:  # fmt: skip
    """Steps until one promises to gain less than ``tol`` per answer."""
    theta = np.empty(0) if theta is None else theta
    rounds = Rounds(max_iter, objective.weight if weight is None else weight, callback)
    here = objective.at(x, theta)
    rounds.trace.append(here.value)
    for _ in rounds:
        d = objective.for_step(here.derivatives(True), theta)
        move = step(d, objective.free)
        if move is None:  # not concave here: EM's matrix for the scores, the exact one for annotators
            safe = here.derivatives(False)
            safe = replace(safe, D=d.D, cross=None) if len(d.D) and (d.D > 0.0).all() else safe
            move = sure_step(safe, objective.free)
        dx, dt = move
        promise = float(d.g @ dx + (d.g_theta @ dt if len(dt) else 0.0))
        length = 1.0
        while True:
            new_x, new_theta = x + length * dx, objective.moved(theta, length * dt)
            new = objective.at(new_x, new_theta)
            if new.value >= here.value + 1e-4 * length * promise or length < 1e-9:
                break
            length *= 0.5
        if new.value < here.value:  # rounding: there is nothing left to gain
            rounds.converged = promise <= 1e-9 * max(1.0, abs(here.value))
            break
        here, x, theta = new, new_x, new_theta
        rounds.reached(here.value, converged=0.5 * promise <= tol * rounds.n_votes)
    end = here.derivatives(True)
    if not (separated(end)[0].D > 0.0).all():  # max_iter was reached before the optimum
        end = here.derivatives(False)
    return NewtonSolution(x, theta, rounds, end)
