"""Coefficients of labels on covariates, from predictions for all items and gold labels of a few (PPI++).

With X, y, f of the n gold items and X~, f~ of the N others, weights w (1 / p; of the others 1 / (1 - p)), of mean 1:

==========  ==============  ==========================================================================================
symbol      code            equation
==========  ==============  ==========================================================================================
beta        ``linear``      WLS(X~, lambda f~) + WLS(X, y - lambda f)
beta        ``logistic``    root of lambda mean g~(f~) + mean (g(y) - lambda g(f)),   g(y) = w x (mu(x beta) - y)
lambda      ``weight``      tr(H^-1 (C + C') H^-1) / (2 (1 + n / N) tr(H^-1 var(g(f)) H^-1)), within 0 and 1;
                            C = cov(g(y), g(f)) over gold items; var over all
var beta    ``covariance``  H^-1 (var(g(y) - lambda g(f)) / n + lambda^2 var(g~(f~)) / N) H^-1
==========  ==============  ==========================================================================================

Labels by a model alone bias such coefficients whatever their accuracy, as their errors depend on the covariates.

A. Angelopoulos, J. Duchi and T. Zrnic, PPI++, arXiv 2311.01453 (2023); N. Egami, M. Hinck, B. Stewart and H. Wei,
Using imperfect surrogates for downstream inference: design-based supervised learning, NeurIPS (2023), for draws with
known probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crowdwise.core.numerics import Floats
from crowdwise.errors import InputError

MAX_STEPS = 100
FAR = 1e6
"""Coefficients beyond it go on to infinity."""


@dataclass(frozen=True)
class Coefficients:
    """Coefficients, their covariance and the weight of the predictions."""

    value: Floats
    covariance: Floats
    weight: float


@dataclass(frozen=True)
class Sample:
    """Covariates, predictions and weights of mean 1 of some items."""

    X: Floats
    f: Floats
    w: Floats

    @classmethod
    def of(cls, X: Floats, f: Floats, w: Floats | None = None) -> Sample:
        given = np.ones(len(f)) if w is None else w
        return cls(X, f, given / given.mean())

    def gradients(self, mu: Floats, y: Floats) -> Floats:
        """n x d: w x (mu - y)."""
        return (self.w * (mu - y))[:, None] * self.X

    def curvature(self, slope: Floats) -> Floats:
        return (self.X * (self.w * slope)[:, None]).T @ self.X


Family = tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]
"""The mean mu of a linear predictor, and its derivative by mu."""


def _expit(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -700.0, 700.0)))


LINEAR: Family = (lambda x: x, np.ones_like)
LOGISTIC: Family = (_expit, lambda mu: mu * (1.0 - mu))


def linear(y: Floats, gold: Sample, others: Sample, weight: float | None = None) -> Coefficients:
    """Least squares."""

    def solve(lam: float) -> Floats:
        far, own = (
            np.linalg.solve(s.curvature(np.ones(len(s.f))), s.X.T @ (s.w * v))
            for s, v in ((others, lam * others.f), (gold, y - lam * gold.f))
        )
        return np.asarray(far + own)

    return _tuned(y, gold, others, weight, solve, LINEAR)


def logistic(y: Floats, gold: Sample, others: Sample, weight: float | None = None) -> Coefficients:
    """Logistic regression of truths 0 or 1."""

    def solve(lam: float) -> Floats:
        beta = np.zeros(gold.X.shape[1])
        for _ in range(MAX_STEPS):
            mu, mu_o = _expit(gold.X @ beta), _expit(others.X @ beta)
            gradient = gold.gradients(mu, y - lam * gold.f + lam * mu).mean(axis=0)
            gradient += lam * others.gradients(mu_o, others.f).mean(axis=0)
            slope, slope_o = mu * (1.0 - mu), mu_o * (1.0 - mu_o)
            H = (1.0 - lam) * gold.curvature(slope) / len(mu) + lam * others.curvature(slope_o) / len(mu_o)
            if not np.isfinite(H).all() or np.linalg.cond(H) > 1e13 or np.abs(beta).max() > FAR:
                break
            step = np.linalg.solve(H, gradient)
            step *= min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-300))
            beta = beta - step
            if np.abs(step).max() < 1e-12 * (1.0 + np.abs(beta).max()):
                return beta
        raise InputError(
            "The logistic regression does not converge: some covariate separates the labels, or gold labels are too "
            "few for so many covariates. Leave covariates out, or give more gold labels."
        )

    return _tuned(y, gold, others, weight, solve, LOGISTIC)


def _tuned(
    y: Floats, gold: Sample, others: Sample, weight: float | None, solve: Callable[[float], Floats], family: Family
) -> Coefficients:
    """Solve with the weight given; or with 1, and twice more with the weight that is best at the last solution."""
    n, N = len(y), len(others.f)
    mean, derivative = family
    lam = 1.0 if weight is None else weight
    for last in (False, False, True) if weight is None else (True,):
        beta = solve(lam)
        mu, mu_o = mean(gold.X @ beta), mean(others.X @ beta)
        if lam == 0.0 and last:
            H = gold.curvature(derivative(mu)) / n
        else:
            H = (gold.curvature(derivative(mu)) + others.curvature(derivative(mu_o))) / (n + N)
        inverse = np.linalg.inv(H)
        g, g_f, g_o = gold.gradients(mu, y), gold.gradients(mu, gold.f), others.gradients(mu_o, others.f)
        if not last:
            C = (g - g.mean(axis=0)).T @ (g_f - g_f.mean(axis=0)) / n
            spread = np.atleast_2d(np.cov(np.concatenate([g_f, g_o]).T))
            top = np.trace(inverse @ (C + C.T) @ inverse)
            bottom = 2.0 * (1.0 + n / N) * np.trace(inverse @ spread @ inverse)
            lam = float(np.clip(top / bottom, 0.0, 1.0)) if bottom > 0.0 else 0.0
    own, far = (np.atleast_2d(np.cov(x.T)) for x in (g - lam * g_f, lam * g_o))
    return Coefficients(beta, inverse @ (own / n + far / N) @ inverse, lam)
