"""Means, shares and coefficients by predictions and gold labels: against published formulas, and their coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binomtest, norm

from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Estimate
from crowdwise.metrics.rectified import Sample, Slope, difference, figure, inverted, linear, logistic, slope_of, wilson


def regression(binary: bool, n: int = 90, N: int = 700) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    X = np.c_[np.ones(n + N), rng.standard_normal((n + N, 2))]
    eta = X @ [0.3, 0.8, -0.5]
    y = (rng.random(n + N) < 1 / (1 + np.exp(-eta))).astype(float) if binary else eta + rng.standard_normal(n + N)
    f = np.clip(0.25 + 0.5 * y + 0.15 * rng.standard_normal(n + N), 0.01, 0.99) if binary else y + 0.5 * eta
    w, w_other = rng.uniform(0.5, 2.0, n), rng.uniform(0.5, 2.0, N)
    return X[:n], y[:n], f[:n], X[n:], f[n:], w / w.mean(), w_other / w_other.mean()


def ppi_plain(kind: str, X: Any, y: Any, f: Any, Xu: Any, fu: Any, w: Any, wu: Any) -> tuple[Any, Any]:
    """The interval of PPI++ (arXiv 2311.01453), item by item: tuned at lambda = 1, and again at the solution."""
    n, N, d = len(y), len(fu), X.shape[1]
    mean = (lambda t: t) if kind == "ols" else (lambda t: 1 / (1 + np.exp(-t)))

    def solve(lam: float) -> Any:
        if kind == "ols":
            far = np.linalg.lstsq(Xu * np.sqrt(wu)[:, None], lam * fu * np.sqrt(wu), rcond=None)[0]
            return far + np.linalg.lstsq(X * np.sqrt(w)[:, None], (y - lam * f) * np.sqrt(w), rcond=None)[0]

        def loss(b: Any) -> float:
            own, far = X @ b, Xu @ b
            far_loss = np.mean(wu * (np.logaddexp(0, far) - fu * far))
            return float(lam * far_loss + np.mean(w * ((1 - lam) * np.logaddexp(0, own) - (y - lam * f) * own)))

        start = minimize(loss, np.zeros(d), method="BFGS", options={"gtol": 1e-9}).x
        for _ in range(5):  # Newton's steps with a numerical Jacobian of the exact gradient

            def gradient(b: Any) -> Any:
                own = (w * (mean(X @ b) - y - lam * (mean(X @ b) - f))) @ X / n
                return own + lam * (wu * (mean(Xu @ b) - fu)) @ Xu / N

            J = np.stack([(gradient(start + h) - gradient(start - h)) / 2e-5 for h in 1e-5 * np.eye(d)], axis=1)
            start = start - np.linalg.solve(J, gradient(start))
        return start

    def parts(b: Any, both: bool = True) -> tuple[Any, ...]:
        slope = (lambda t: 1.0) if kind == "ols" else (lambda t: mean(t) * (1 - mean(t)))
        H = np.zeros((d, d))
        for rows, weights in ((X, w), (Xu, wu)):
            for x, one in zip(rows, weights, strict=True):
                H += one * slope(x @ b) * np.outer(x, x) / (n + N)
        g = [np.stack([a * x * (mean(x @ b) - t) for x, t, a in zip(rows, values, weights, strict=True)])
             for rows, values, weights in ((X, y, w), (X, f, w), (Xu, fu, wu))]  # fmt: skip
        return (np.linalg.inv(H), *g)

    lam = 1.0
    for _ in range(2):
        inverse, g, gf, gu = parts(solve(lam))
        C = sum(np.outer(a - g.mean(0), b - gf.mean(0)) for a, b in zip(g, gf, strict=True)) / n
        spread = np.cov(np.concatenate([gf, gu]).T)
        top, bottom = np.trace(inverse @ (C + C.T) @ inverse), np.trace(inverse @ spread @ inverse)
        lam = float(np.clip(top / (2 * (1 + n / N) * bottom), 0, 1))
    b = solve(lam)
    inverse, g, gf, gu = parts(b)
    sigma = inverse @ (n / N * np.cov((lam * gu).T) + np.cov((g - lam * gf).T)) @ inverse
    reach = norm.ppf(0.975) * np.sqrt(np.diag(sigma) / n)
    return b - reach, b + reach


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["ols", "logistic"])
def test_coefficients_are_those_of_the_published_formulas(kind: str, weighted: bool) -> None:
    X, y, f, Xu, fu, w, wu = regression(kind == "logistic")
    w, wu = (w, wu) if weighted else (np.ones_like(w), np.ones_like(wu))
    solve = {"ols": linear, "logistic": logistic}[kind]
    found = solve(y, Sample.of(X, f, w), Sample.of(Xu, fu, wu))
    reach = norm.ppf(0.975) * np.sqrt(np.diag(found.covariance))
    low, high = ppi_plain(kind, X, y, f, Xu, fu, w, wu)
    assert np.abs(found.value - reach - low).max() < 1e-8 and np.abs(found.value + reach - high).max() < 1e-8
    assert 0.0 < found.weight <= 1.0


PPI_PY = {
    "ols": (
        [0.235450816455, 0.472649164883, -0.744791862124], [0.580715384889, 0.96232705712, -0.265298144969],
    ),
    "logistic": (
        [-0.585799637025, 1.000312311076, -5.275687789983], [3.560072080127, 9.773295602168, -0.245475038662],
    ),
}  # fmt: skip
"""What ppi_ols_ci and ppi_logistic_ci of ppi_py 0.2.3 give (alpha .05) for the data below."""


@pytest.mark.parametrize("kind", PPI_PY)
def test_coefficients_are_those_of_ppi_py(kind: str) -> None:
    k = np.arange(60.0)
    X = np.c_[np.ones(60), np.sin(k), np.cos(1.7 * k)]
    y = 0.4 + 0.7 * np.sin(k) - 0.5 * np.cos(1.7 * k) + np.sin(3.1 * k)
    f = y + 0.8 * np.cos(2.3 * k)
    if kind == "logistic":
        y, f = (y > 0.3).astype(float), 1 / (1 + np.exp(-2 * (f - 0.3)))
    solve = {"ols": linear, "logistic": logistic}[kind]
    found = solve(y[:20], Sample.of(X[:20], f[:20]), Sample.of(X[20:], f[20:]))
    reach = norm.ppf(0.975) * np.sqrt(np.diag(found.covariance))
    low, high = PPI_PY[kind]
    assert np.abs(found.value - reach - low).max() < 1e-8 and np.abs(found.value + reach - high).max() < 1e-8


def test_the_mean_is_that_of_ppi_with_its_weight() -> None:
    rng = np.random.default_rng(0)
    y = rng.standard_normal(60)
    f, others = y + 0.4 * rng.standard_normal(60), rng.standard_normal(400)
    n, N = 60, 460
    found = figure(y, f, np.concatenate([f, others]))
    lam = found.weight * (N - n) / N
    assert found.estimate.value == pytest.approx(lam * others.mean() + (y - lam * f).mean(), abs=1e-12)
    ones = Sample.of(np.ones((60, 1)), f), Sample.of(np.ones((400, 1)), others)
    assert linear(y, *ones, weight=lam).value[0] == pytest.approx(found.estimate.value, abs=1e-12)


def test_worthless_predictions_leave_gold_alone() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(40) < 0.3).astype(float)
    for f, everywhere in ((np.zeros(40), np.zeros(500)), (1.0 - y, rng.random(500))):
        found = figure(y, f, everywhere, share=True)
        assert found.estimate == found.gold and found.weight == 0.0
    assert np.isnan(figure(np.empty(0), np.empty(0), np.ones(5)).estimate.value)


def test_gold_labels_of_all_items_leave_no_doubt() -> None:
    y = np.array([1.0, 2.0, 4.0, 5.0, 9.0, 3.0])
    found = figure(y, y + 1.0, y + 1.0).estimate
    assert found.low == found.high == found.value == 4.0
    beyond = figure(y, y + 1.0, y + 1.0, beyond=True).estimate
    assert beyond.low < 4.0 < beyond.high


@given(st.integers(1, 60), st.data())
def test_intervals_hold_their_estimate_and_are_not_wider_than_gold(n: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    everywhere = rng.random(100) < 0.4
    y = (rng.random(n) < np.where(everywhere[:n], 0.8, data.draw(st.sampled_from([0.0, 0.2])))).astype(float)
    p = rng.uniform(0.2, 0.9, n) if data.draw(st.booleans()) else None
    for share in (True, False):
        found = figure(y, everywhere[:n].astype(float), everywhere.astype(float), p, share=share)
        low, value, high = (getattr(found.estimate, part) for part in ("low", "value", "high"))
        assert (low <= value <= high) or np.isnan(low)
        assert not found.estimate.high - low > (found.gold.high - found.gold.low) * 1.02
        assert not share or 0.0 <= low <= high <= 1.0


def test_a_slope_of_groups_is_within_them() -> None:
    group = np.array([0, 0, 1, 1])
    found = slope_of(np.array([1.0, 2.0, 11.0, 12.0]), np.array([0.0, 1.0, 0.0, 1.0]), np.ones(4), group)
    assert found == Slope(1.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "false_positive", "false_negative", "soft"),
    [(0.5, 0.0, 0.08, False), (0.5, 0.05, 0.05, True), (0.9, 0.3, 0.0, False), (0.7, 0.2, 0.1, True)],
)
def test_shares_are_covered_whatever_the_bias(
    share: float, false_positive: float, false_negative: float, soft: bool
) -> None:
    rng = np.random.default_rng(1)
    y = (rng.random(3000) < share).astype(float)
    f = np.where(y == 1.0, rng.random(3000) >= false_negative, rng.random(3000) < false_positive).astype(float)
    f = np.clip(0.5 + (f - 0.5) * rng.beta(8, 2, 3000), 0, 1) if soft else f
    held, widths = 0, []
    for _ in range(150):
        drawn = rng.choice(3000, 100, replace=False)
        found = figure(y[drawn], f[drawn], f, share=True)
        held += found.estimate.low <= y.mean() <= found.estimate.high
        widths.append((found.estimate.high - found.estimate.low) / (found.gold.high - found.gold.low))
    assert held >= 150 * 0.95 - 2.5 * np.sqrt(150 * 0.05 * 0.95)
    assert max(widths) <= 1.02


def test_unequal_probabilities_are_weighed() -> None:
    rng = np.random.default_rng(2)
    f = rng.random(4000)
    y = 2.0 * f + rng.standard_normal(4000)
    p = 0.01 + 0.09 * f
    held, plain = 0, 0
    for _ in range(200):
        drawn = rng.random(4000) < p
        found = figure(y[drawn], f[drawn], f, p[drawn]).estimate
        held += found.low <= y.mean() <= found.high
        plain += figure(y[drawn], 0 * f[drawn], 0 * f).estimate.low <= y.mean()
    assert 180 <= held <= 199 and plain < 100


def test_differences_are_those_of_independent_figures() -> None:
    a, b = Estimate(0.6, 0.5, 0.68, 50), Estimate(0.4, 0.3, 0.52, 50)
    found = difference(a, b)
    assert found.value == pytest.approx(0.2)
    assert found.low == pytest.approx(0.2 - np.hypot(0.1, 0.12)) and found.high == pytest.approx(
        0.2 + np.hypot(0.08, 0.1)
    )


def test_wilson_with_many_degrees_of_freedom_is_the_textbook_one() -> None:
    textbook = binomtest(5, 50).proportion_ci(method="wilson")
    assert wilson(0.1, 50, 1e9, 0.95) == pytest.approx((textbook.low, textbook.high), abs=1e-7)


def test_error_rates_are_turned_back() -> None:
    errors = np.array([[80.0, 20.0], [10.0, 90.0]])
    labels = errors.T @ np.array([0.3, 0.7]) / 100 * 5000
    found = inverted(labels, errors)
    assert [one.value for one in found] == pytest.approx([0.3, 0.7])
    assert all(one.low < one.value < one.high for one in found)
    exact = inverted(labels, errors / 100.0)
    assert exact[0].high - exact[0].low < 0.4 * (found[0].high - found[0].low)
    rng, held = np.random.default_rng(0), 0
    for _ in range(100):
        seen = np.array([rng.multinomial(100, row / 100) for row in errors], dtype=float)
        made = rng.multinomial(3000, errors.T @ [0.3, 0.7] / 100).astype(float)
        one = inverted(made, seen)[0]
        held += one.low <= 0.3 <= one.high
    assert 89 <= held <= 100


def test_labels_that_a_covariate_separates_are_an_error() -> None:
    x = np.linspace(-1, 1, 40)
    X, y = np.c_[np.ones(40), x], (x > 0).astype(float)
    with pytest.raises(InputError, match="does not converge"):
        logistic(y[::2], Sample.of(X[::2], y[::2]), Sample.of(X[1::2], y[1::2]))
