"""Means and shares of all items from predictions for all and gold labels of a few: prediction-powered inference.

Whatever the predictions are (posteriors of a crowd, scores of LLM judges), their error is measured on the gold items
and taken off. With gold items S, drawn with probabilities p_i (at random: n / N), and weights w_i = 1 / p_i:

    estimate = mean_S(y) + lambda (mean of f over all items - mean_S(f)),      mean_S(x) = sum_S w x / sum_S w

This is PPI++: with gold items among the N, its weight for the others' predictions is lambda (N - n) / N. The slope
lambda of y on f makes the variance smallest; 0 is gold labels alone.

==========  ============  ============================================================================================
symbol      code          equation
==========  ============  ============================================================================================
lambda      ``weight``    sum_S w (y - mean y) (f - mean f) / S_ff, at least 0;   S_ff = sum_S w (f - mean f)^2
h_i         ``leverage``  w_i / sum w + w_i (f_i - mean f)^2 / S_ff
d_i         ``residual``  (y_i - lambda f_i, centred) / (1 - h_i): what the item shows of a fit without it
V           ``spread``    sum_S (1 - p) w^2 d^2 / (sum w)^2
==========  ============  ============================================================================================

**Few gold labels** show few errors of good predictions, or none; the plain interval is then far too narrow.

- Means: a t interval of n - 2 degrees of freedom with r V_0 for the variance, V_0 that of gold alone and
  r = (n V / V_0 + DOUBT) / (n + DOUBT).
- Shares: quantiles of the mean residual under the Bayesian bootstrap (weights drawn from a Dirichlet distribution),
  each end with an item more whose truth is the other one, of Gamma(``UNSEEN``) weight, in its direction. Gold alone,
  lambda = 0, has Wilson's interval with the effective sample size mean y (1 - mean y) / V_0.
- Where this is not narrower than by gold alone, gold alone is the estimate.
- Differences have the interval of two independent ones (Newcombe).

``beyond``: the figure of the population that the N items were drawn from, not of these N; adds var(y) / N.

A. Angelopoulos, J. Duchi and T. Zrnic, PPI++: efficient prediction-powered inference, arXiv 2311.01453 (2023);
C.-E. Sarndal, B. Swensson and J. Wretman, Model assisted survey sampling (1992), for the finite population.

Coefficients of labels on covariates, from predictions for all items and gold labels of a few (PPI++).

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

from crowdwise.core.intervals import quantile
from crowdwise.core.numerics import Floats
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Estimate

DOUBT = 2.0
"""How many gold labels that the predictions know nothing of are imagined beside the real ones."""
MIN_GOLD = 5
"""With fewer gold labels predictions are not used."""
OWN_SLOPE = 30
"""A group with fewer gold labels takes the slope of all groups."""
UNSEEN = 0.3
"""How many errors that no gold label showed are imagined in each direction, on average."""
DRAWS, WORK = 2_000, 2_000_000
"""Draws for an interval, fewer where draws times gold labels would be more than the second."""


@dataclass(frozen=True)
class Rectified:
    """A mean or a share: the estimate, that of the gold labels alone, and that of the predictions alone."""

    estimate: Estimate
    gold: Estimate
    model: float
    weight: float
    items: int


@dataclass(frozen=True)
class Slope:
    """A slope of truths on predictions, and the weighted squares of predictions that it rests on."""

    value: float
    squares: float


def slope_of(y: Floats, f: Floats, w: Floats, group: Floats | None = None) -> Slope:
    """The slope within groups (of all, without)."""
    code = np.zeros(len(y), dtype=np.int64) if group is None else np.asarray(group)
    total = np.maximum(np.bincount(code, weights=w), 1e-300)
    dy, df = (x - (np.bincount(code, weights=w * x) / total)[code] for x in (y, f))
    squares = float(w @ df**2)
    return Slope(max(float(w @ (dy * df)) / squares, 0.0) if squares > 1e-12 else 0.0, squares)


def figure(
    y: Floats, f: Floats, everywhere: Floats, p: Floats | None = None, *, share: bool = False, beyond: bool = False,
    level: float = 0.95, slope: Slope | None = None,
) -> Rectified:  # fmt: skip
    """The mean of a group of items: n truths and predictions of gold items, and predictions of all N items.

    ``p``: the probabilities with which gold items were drawn; by default all alike. ``share``: truths are 0 or 1.
    ``slope``: of all groups, used where this one has few gold labels.
    """
    n, N, model = len(y), len(everywhere), float(everywhere.mean()) if len(everywhere) else np.nan
    if n == 0:
        nothing = Estimate(np.nan, np.nan, np.nan, 0, level)
        return Rectified(nothing, nothing, model, 0.0, N)
    p = np.full(n, n / N) if p is None else p
    if n == N and not beyond:  # all truths are known
        mean = float(y.mean())
        all_of = Estimate(mean, mean, mean, n, level)
        return Rectified(all_of, all_of, model, 0.0, N)
    w = 1.0 / p
    total = float(w.sum())
    mean = float(w @ y) / total
    outside = float(w @ (y - mean) ** 2) / total / N if beyond else 0.0

    def spread(e: Floats) -> float:
        return float(((1.0 - p) * w**2) @ e**2) / total**2 + outside

    V0 = spread(y - mean)
    alone = float((1.0 - p) @ w**2) / total**2 + (1.0 / N if beyond else 0.0)
    size = mean * (1.0 - mean) / V0 if V0 > 0.0 else 1.0 / max(alone, 1e-9)
    if share:
        gold = Estimate(mean, *wilson(mean, size, n - 1, level), n, level)
    else:
        known = n > 1 and np.ptp(y) > 0.0  # else nothing shows how far the others are
        reach = quantile(level, np.array(n - 1.0)) * np.sqrt(V0 * n / (n - 1)) if known else np.nan
        gold = Estimate(mean, mean - float(reach), mean + float(reach), n, level)
    own = slope_of(y, f, w) if slope is None or n >= OWN_SLOPE else slope
    if n < MIN_GOLD or V0 <= 0.0 or own.value == 0.0:
        return Rectified(gold, gold, model, 0.0, N)
    centre = float(w @ f) / total
    leverage = np.minimum(w / total + w * (f - centre) ** 2 / own.squares, 1.0 - 1e-3)
    plain = y - mean - own.value * (f - centre)
    residual = plain / (1.0 - leverage)
    value = mean + own.value * (model - centre)
    if share:
        value = min(max(value, 0.0), 1.0)
        below, above = _reach(y, plain, residual - float(w @ residual) / total, w, level)
        left, z = float((1.0 - p).mean()), float(quantile(level, np.array(n - 1.0)))
        below, above = (np.hypot(np.sqrt(left) * one, z * np.sqrt(outside)) for one in (below, above))
        low, high = max(value - below, 0.0), min(value + above, 1.0)
    else:
        ratio = (n * spread(residual) / V0 + DOUBT) / (n + DOUBT)
        reach = float(quantile(level, np.array(n - 2.0))) * np.sqrt(ratio * V0)
        low, high = value - reach, value + reach
    if not high - low < gold.high - gold.low:
        return Rectified(gold, gold, model, 0.0, N)
    return Rectified(Estimate(value, float(low), float(high), n, level), gold, model, own.value, N)


def _reach(y: Floats, plain: Floats, residual: Floats, w: Floats, level: float) -> tuple[float, float]:
    """How far the share may lie below and above its estimate, by draws of the gold items' weights."""
    rng, n = np.random.default_rng(0), len(y)
    rounds = int(np.clip(WORK // n, 400, DRAWS))
    weights = rng.standard_exponential((rounds, n)) * (w / w.mean())
    sums, total, ends = weights @ residual, weights.sum(axis=1), []
    for truth, step, q in ((1.0, -1.0, (1.0 - level) / 2.0), (0.0, 1.0, (1.0 + level) / 2.0)):
        turned = rng.choice(plain[y == truth] + step, rounds)
        mass = rng.standard_gamma(UNSEEN, rounds)
        ends.append(float(np.quantile((sums + mass * turned) / (total + mass), q)))
    return max(-ends[0], 0.0), max(ends[1], 0.0)


def wilson(p: float, size: float, freedom: float, level: float) -> tuple[float, float]:
    """The score interval of a share p of ``size`` trials (effective, so any number), with a t quantile."""
    if freedom < 1:
        return 0.0, 1.0
    z2 = float(quantile(level, np.array(float(freedom)))) ** 2
    centre, reach = p + z2 / (2.0 * size), np.sqrt(z2 * (p * (1.0 - p) / size + z2 / (4.0 * size**2)))
    return max(float((centre - reach) / (1.0 + z2 / size)), 0.0), min(float((centre + reach) / (1.0 + z2 / size)), 1.0)


def difference(a: Estimate, b: Estimate) -> Estimate:
    """a - b for two independent figures: each end adds the squares of the distances to the ends it comes from."""
    value = a.value - b.value
    low = value - np.hypot(a.value - a.low, b.high - b.value)
    high = value + np.hypot(a.high - a.value, b.value - b.low)
    return Estimate(value, float(low), float(high), min(a.n, b.n), a.level)


def inverted(labels: Floats, errors: Floats, level: float = 0.95, random_state: int = 0) -> list[Estimate]:
    """True shares from counts of labels and error rates of the labels that were measured elsewhere (Rogan and Gladen).

    ``errors`` is K x K, truth by label: counts, whose uncertainty goes into the intervals, or rates (rows of sum 1),
    which are taken as exact. The labels' expected shares are errors' x true shares; that is solved, and held within
    0 and 1. Intervals are by draws of both from Dirichlet posteriors under Jeffreys' prior.
    """
    K, rng = len(labels), np.random.default_rng(random_state)
    exact = np.allclose(errors.sum(axis=1), 1.0)
    rates = errors / errors.sum(axis=1, keepdims=True)
    value = _solved(rates[None], (labels / labels.sum())[None])[0]
    seen = rng.dirichlet(labels + 0.5, DRAWS)
    rows = np.broadcast_to(rates, (DRAWS, K, K))
    if not exact:
        rows = np.stack([rng.dirichlet(row + 0.5, DRAWS) for row in errors], axis=1)
    low, high = np.quantile(_solved(rows, seen), [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    n = int(labels.sum())
    ends = zip(value.tolist(), np.minimum(low, value).tolist(), np.maximum(high, value).tolist(), strict=True)
    return [Estimate(v, a, b, n, level) for v, a, b in ends]


def _solved(rates: Floats, shares: Floats) -> Floats:
    """B x K: pi with rates' pi = shares, negative shares set to 0."""
    if len(rates) == 1:
        pi = np.linalg.lstsq(rates[0].T, shares[0], rcond=None)[0][None]
    else:
        pi = np.linalg.solve(np.swapaxes(rates, 1, 2) + 1e-9 * np.eye(rates.shape[1]), shares[:, :, None])[:, :, 0]
    pi = np.maximum(pi, 0.0)
    return np.asarray(pi / np.maximum(pi.sum(axis=1, keepdims=True), 1e-300))


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
        weight = np.ones(len(f)) if w is None else w
        return cls(X, f, weight / weight.mean())

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
        for _ in range(100):
            mu, mu_o = _expit(gold.X @ beta), _expit(others.X @ beta)
            gradient = gold.gradients(mu, y - lam * gold.f + lam * mu).mean(axis=0)
            gradient += lam * others.gradients(mu_o, others.f).mean(axis=0)
            slope, slope_o = mu * (1.0 - mu), mu_o * (1.0 - mu_o)
            H = (1.0 - lam) * gold.curvature(slope) / len(mu) + lam * others.curvature(slope_o) / len(mu_o)
            if not np.isfinite(H).all() or np.linalg.cond(H) > 1e13 or np.abs(beta).max() > 1e6:
                break  # coefficients go on to infinity
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
