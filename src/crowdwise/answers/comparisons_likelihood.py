"""The likelihood of comparisons and its derivatives: item scores, and one number per annotator, or two.

A comparison of winner w and loser l has z = s_w - s_l. With ties (Davidson) the three outcomes have

    P(w), P(l), P(tie)  =  softmax( z/2, -z/2, tau ),        without ties  P(w) = sigmoid(z)

An annotator m may have a number of their own, theta_m, or two of them:

=============  ==================================================================================
``plain``      none
``reliable``   theta_m = logit eta_m: P_m(w) = eta_m P(w) + (1 - eta_m) P(l), ties as they are
``position``   theta_m is added to z for the item shown first (and taken off for the other)
``slope``      theta_m = a_m: z = a_m (s_w - s_l)
``judges``     theta holds all slopes a, then all positions b: z = a_m (s_w - s_l) + b_m or - b_m
=============  ==================================================================================

With r = sigmoid(theta_m + z), the probability that a decided answer was not reversed, and c = (P(w) - P(l)) / 2,
v = (P(w) + P(l)) / 4 - c^2, the derivatives of the log likelihood of one comparison are

=======================  =====================  ======================
with respect to          decided                tie
=======================  =====================  ======================
z                        r - 1/2 - c            -c
theta (``reliable``)     r - eta                0
tau                      -P(tie)                1 - P(tie)
-(z, z)                  v - r(1-r)             v
-(z, theta)              -r(1-r)                0
-(theta, theta)          eta(1-eta) - r(1-r)    0
-(z, tau)                -c P(tie)              -c P(tie)
-(tau, tau)              P(tie)(1-P(tie))       P(tie)(1-P(tie))
=======================  =====================  ======================

(r = 1 where annotators have no reliability; a, b and the coefficients of covariates enter through z, so that their
derivatives are those of z times those of z by them, and -(s, a) has the derivative by z subtracted.) The r(1-r) is the
information lost by not knowing which answers were reversed (Louis' identity). Without it, and without the derivative by
z in -(s, a), the matrix is that of EM's M-step (of Fisher's scoring), which is always positive definite: steps fall
back on it where the exact matrix is not.

Covariates are columns of ``Matches.extra``: what the winner has more of than the loser; their coefficients are the last
entries of x.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from crowdwise.answers import comparisons_matches as tables
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import Derivatives, Objective, Point
from crowdwise.core.numerics import Floats

CHUNK = 65536
"""Rows computed together: they stay in the cache."""
LOG2 = float(np.log(2.0))
WIDE = 5.0
"""The standard deviation of the prior of covariates' coefficients."""


@dataclass(frozen=True)
class Likelihood:
    """What annotators differ in (``effect``), whether there are ties, and the priors.

    ``prior``: pseudo-comparisons of every item with one of score 0 (and, for ties, of two equal items), half of them
    won. ``beta``: exponents of eta and 1 - eta in the prior of reliabilities. ``spread``: standard deviation of the
    positions around their mean. ``slopes``: mean and standard deviation of the slopes. ``covariates``: how many there
    are, each under the prior Normal(0, ``WIDE``²). ``doubt``: for each row the weight of (s_w - s_l)² / 2 that is taken
    off (see ``JudgeBT``). ``habit``: for each annotator what is added to tau: some tie more than others.
    """

    effect: str
    ties: bool
    prior: float
    beta: tuple[float, float] = (1.0, 1.0)
    spread: float = 1.0
    slopes: tuple[float, float] = (1.0, 1.0)
    covariates: int = 0
    doubt: Floats | None = None
    habit: Floats | None = None

    @property
    def reliable(self) -> bool:
        """Whether annotators have reliabilities: theta."""
        return self.effect == "reliable"

    @property
    def sloped(self) -> bool:
        """Whether annotators have slopes: the first entries of theta."""
        return self.effect in ("slope", "judges")

    @property
    def placed(self) -> bool:
        """Whether annotators have positions: the last entries of theta."""
        return self.effect in ("position", "judges")

    @property
    def n_shared(self) -> int:
        """Numbers that belong to no item and no annotator: tau, the mean position, coefficients of covariates."""
        return int(self.ties) + int(self.placed) + self.covariates

    def mean_at(self, N: int) -> int:
        """Where the mean position is in x."""
        return N + int(self.ties)


def log_likelihood(matches: Matches, model: Likelihood, x: Floats, theta: Floats) -> tuple[float, dict[str, Floats]]:
    """The log likelihood, and row by row (see the table above) ``log_p`` and what its derivatives are made of."""
    S, N, M, K = len(matches.winner), matches.n_items, matches.n_annotators, model.covariates
    own_tau = None if not model.ties else x[N] + (np.zeros(M) if model.habit is None else model.habit)
    names = ["log_p", "g", "v", *(["k", "t"] if model.ties else []), *(["q"] if model.reliable else [])]
    out = {name: np.empty(S) for name in names}
    if model.reliable:
        out["r"] = np.zeros(S)
        log_eta = -np.logaddexp(0.0, -theta[:M])
    if model.sloped:
        out["gap"] = x[matches.winner] - x[matches.loser]
    for lo in range(0, S, CHUNK):
        cut = slice(lo, min(lo + CHUNK, S))
        m = matches.annotator[cut]
        z = theta[m] * out["gap"][cut] if model.sloped else x[matches.winner[cut]] - x[matches.loser[cut]]
        if model.placed:
            z += matches.sign[cut] * theta[-M:][m]
        if K and matches.extra is not None:
            z += matches.extra[cut] @ x[-K:]
        n = min(max(matches.decided - lo, 0), len(z))  # so many rows of the chunk are decided
        e = np.exp(-np.abs(z))
        if own_tau is None:
            log_p = np.minimum(z, 0.0) - np.log1p(e)
            small = e / (1.0 + e)
            p_w = np.where(z >= 0.0, 1.0 - small, small)
            c, v = p_w - 0.5, small * (1.0 - small)
        else:
            half, tau = 0.5 * np.abs(z), own_tau[m]
            top = np.maximum(half, tau)
            log_norm = top + np.log(np.exp(half - top) + np.exp(-half - top) + np.exp(tau - top))
            p_t = np.exp(tau - log_norm)
            p_w, p_l = np.exp(0.5 * z - log_norm), np.exp(-0.5 * z - log_norm)
            c = 0.5 * (p_w - p_l)
            v = 0.25 * (p_w + p_l) - c * c
            log_p = 0.5 * z - log_norm
            log_p[n:] = tau[n:] - log_norm[n:]
            out["k"][cut], out["t"][cut] = -c * p_t, p_t
        g = 0.5 - c
        g[n:] = -c[n:]
        if model.reliable:
            u = theta[m] + z
            eu = np.exp(-np.abs(u))
            log_r = np.minimum(u, 0.0) - np.log1p(eu)
            tiny = eu / (1.0 + eu)
            r = np.where(u >= 0.0, 1.0 - tiny, tiny)
            q = tiny * (1.0 - tiny)
            r[n:], q[n:] = 0.0, 0.0
            log_p[:n] += log_eta[m[:n]] - log_r[:n]
            g[:n] += r[:n] - 1.0
            out["r"][cut], out["q"][cut] = r, q
        out["log_p"][cut], out["g"][cut], out["v"][cut] = log_p, g, v
    total = float(matches.weight @ out["log_p"])
    if model.doubt is not None:
        total -= 0.5 * float(model.doubt @ out["gap"] ** 2)
    return total, out


def log_prior(model: Likelihood, x: Floats, theta: Floats, N: int) -> float:
    """The log prior density, up to a constant."""
    s, value = x[:N], 0.0
    if model.prior > 0.0:
        value -= 0.5 * model.prior * float((np.logaddexp(0.0, s) + np.logaddexp(0.0, -s)).sum())
        if model.ties:
            t = x[N] - LOG2
            value -= 0.5 * model.prior * float(np.logaddexp(0.0, t) + np.logaddexp(0.0, -t))
    own, place = split(model, theta)
    if model.reliable:
        a, b = model.beta
        value -= float((a * np.logaddexp(0.0, -own) + b * np.logaddexp(0.0, own)).sum())
    if model.sloped:
        value -= 0.5 * float(((own - model.slopes[0]) ** 2).sum()) / model.slopes[1] ** 2
    if model.placed:
        value -= 0.5 * float(((place - x[model.mean_at(N)]) ** 2).sum()) / model.spread**2
    if model.covariates:
        value -= 0.5 * float((x[-model.covariates :] ** 2).sum()) / WIDE**2
    return value


def split(model: Likelihood, theta: Floats) -> tuple[Floats, Floats]:
    """The logits of reliabilities or the slopes, and the positions, of which one may be empty."""
    M = len(theta) // 2 if model.effect == "judges" else len(theta) if model.effect != "position" else 0
    return theta[:M], theta[M:]


def score_prior(s: Floats, prior: float) -> tuple[Floats, Floats]:
    """Gradient and curvature of the prior of scores: ``prior`` comparisons with an item of score 0, half won."""
    p = 1.0 / (1.0 + np.exp(-np.clip(s, -500, 500)))
    return prior * (0.5 - p), prior * p * (1.0 - p)


def derivatives(
    matches: Matches, model: Likelihood, x: Floats, theta: Floats, rows: dict[str, Floats], exact: bool
) -> Derivatives:
    """Gradient and negative Hessian of log likelihood and log prior, from the rows of a pass; the matrix of EM's M-step
    where not ``exact``."""
    N, M, K, w = matches.n_items, matches.n_annotators, model.covariates, matches.weight
    i, j, m = matches.winner, matches.loser, matches.annotator
    wg, wv, d = w * rows["g"], w * rows["v"], slice(0, matches.decided)
    wk = w * rows["k"] if model.ties else np.zeros(0)
    wq = w * rows["q"] if model.reliable and exact else np.zeros(len(w))
    steep, gap = (theta[m], rows["gap"]) if model.sloped else (np.ones(1), np.zeros(1))
    doubt = 0.0 if model.doubt is None else model.doubt
    own, place = split(model, theta)
    g, shared = np.zeros(N + model.n_shared), np.zeros((model.n_shared, N + model.n_shared))
    lines = np.zeros((model.n_shared, len(theta)))  # of the shared numbers and theta
    g[:N] = tables.difference(i, j, wg * steep - doubt * gap, N)
    H = tables.laplacian(tables.pair_table(i, j, wv * steep**2 + doubt - wq, N))
    if model.ties:
        t = rows["t"]
        g[N] = float(w[matches.decided :].sum() - w @ t)
        shared[0, :N], shared[0, N] = tables.difference(i, j, wk * steep, N), float(w @ (t * (1.0 - t)))
    if model.prior > 0.0:
        fall, curvature = score_prior(x[:N], model.prior)
        g[:N] += fall
        H = tables.add_diagonal(H, curvature)
        if model.ties:
            t = 1.0 / (1.0 + np.exp(LOG2 - x[N]))
            g[N] += model.prior * (0.5 - t)
            shared[0, N] += model.prior * t * (1.0 - t)
    X = np.zeros((len(w), 0)) if matches.extra is None else matches.extra
    if K:
        g[-K:] = X.T @ wg - x[-K:] / WIDE**2
        shared[-K:, :N] = [tables.difference(i, j, wv * steep * column, N) for column in X.T]
        shared[-K:, -K:] = (X * wv[:, None]).T @ X + np.eye(K) / WIDE**2
        if model.ties:
            shared[-K:, N] = shared[0, -K:] = X.T @ wk
    g_theta, D, C = list[Floats](), list[Floats](), list[Any]()
    if model.reliable:
        odds = np.exp(-np.abs(np.clip(own, -300, 300)))
        unsure = odds / (1.0 + odds) ** 2  # eta (1 - eta), also where eta rounds to 1
        eta = 1.0 / (1.0 + np.exp(-np.clip(own, -300, 300)))
        (a, b), answered = model.beta, tables.total(m[d], w[d], M)
        g_theta.append(tables.total(m[d], (w * rows["r"])[d], M) - answered * eta + a - (a + b) * eta)
        D.append((answered + a + b) * unsure - tables.total(m, wq, M))
        C.append(tables.cross_table(i, j, m, -wq, N, M))
    numbers = [(own, gap, *model.slopes, wg if exact else 0.0)] if model.sloped else []
    if model.placed:
        at = model.mean_at(N)
        numbers.append((place, matches.sign, x[at], model.spread, 0.0))
        g[at] = float((place - x[at]).sum()) / model.spread**2
        shared[at - N, at] = M / model.spread**2
        lines[at - N, -M:] = -1.0 / model.spread**2
    for n, (value, column, mean, sd, less) in enumerate(numbers):  # slopes, positions
        g_theta.append(tables.total(m, wg * column, M) - (value - mean) / sd**2)
        D.append(tables.total(m, wv * column**2, M) + 1.0 / sd**2)
        C.append(tables.cross_table(i, j, m, wv * steep * column - less, N, M))
        if model.ties:
            lines[0, n * M : (n + 1) * M] = tables.total(m, wk * column, M)
        for k, one in enumerate(X.T):
            lines[k - K, n * M : (n + 1) * M] = tables.total(m, wv * one * column, M)
    H = tables.bordered(H, shared)
    if not D:
        return Derivatives(g, H)
    cross = tables.total(m, wv * gap * matches.sign, M) if model.effect == "judges" else None
    C = tables.stacked([tables.stacked(C, 1), lines], 0) if len(lines) else tables.stacked(C, 1)
    return Derivatives(g, H, np.concatenate(g_theta), C, np.concatenate(D), cross)


class MatchObjective(Objective):
    """Log likelihood and log prior of comparisons."""

    def __init__(self, matches: Matches, model: Likelihood) -> None:
        self.matches, self.model, self.free = matches, model, model.prior <= 0.0
        self.weight = float(matches.weight.sum())

    def at(self, x: Floats, theta: Floats) -> Point:
        matches, model = self.matches, self.model
        value, rows = log_likelihood(matches, model, x, theta)
        value += log_prior(model, x, theta, matches.n_items)
        return Point(value, partial(derivatives, matches, model, x, theta, rows))

    def for_step(self, d: Derivatives, theta: Floats) -> Derivatives:
        """With reliabilities eta in place of their logits, in units of eta (1 - eta). In eta, not in its logit, the log
        likelihood and the prior are concave, so that D is positive everywhere."""
        if not self.model.reliable:
            return d
        return replace(d, D=d.D - d.g_theta * np.tanh(0.5 * theta))

    def moved(self, theta: Floats, step: Floats) -> Floats:
        """Reliabilities move at most nine tenths of the way to 0 or 1."""
        if not self.model.reliable:
            return super().moved(theta, step)
        low, high = 1.0 / (1.0 + np.exp(-theta)), 1.0 / (1.0 + np.exp(theta))  # eta and 1 - eta, both exact
        up, down = np.clip(1.0 + high * step, 0.1, None), np.clip(1.0 - low * step, 0.1, None)
        return np.asarray(theta + np.log(up) - np.log(down))
