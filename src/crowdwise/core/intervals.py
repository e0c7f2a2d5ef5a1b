"""Intervals for what methods say of annotators: columns ``NAME_low`` and ``NAME_high`` beside ``NAME``.

They are at the level of 95 %. Which uncertainty goes in is said by each method; what they share is here: a Normal
interval held within the parameter's range, the interval of a rate, and that of a share behind which there is an
inferred truth (:func:`crowdwise.core.numerics.share_interval`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, share_interval

LEVEL = 0.95
Z = 1.959963984540054
"""The 97.5 % quantile of the Normal distribution."""


def with_interval(name: str, value: Floats, low: Floats, high: Floats) -> dict[str, npt.NDArray[Any]]:
    """The three columns of an estimate; the value is within its interval whatever rounding did."""
    return {name: value, f"{name}_low": np.minimum(low, value), f"{name}_high": np.maximum(high, value)}


def normal_columns(name: str, value: Floats, sd: Floats, level: float, freedom: Any = None) -> dict[str, Any]:
    """The three columns of an estimate with a Normal (or t) distribution of such a deviation."""
    reach = quantile(level, freedom) * sd
    return with_interval(name, value, value - reach, value + reach)


def count_columns(name: str, count: Floats, trials: Any, level: float) -> dict[str, Any]:
    """The three columns of a number per trial, by the Gamma posterior under Jeffreys' prior."""
    n = np.maximum(trials, 1)
    return with_interval(name, count / n, *gamma_interval((count + 0.5) / n, count + 0.5, level))


def interval_text(
    low: float, high: float, *, level: float = 0.95, form: Callable[[float], str] = "{:.3f}".format
) -> str:
    """An interval as it is written everywhere.

    >>> interval_text(0.61, 0.66), interval_text(-0.2, 0.3, level=0.9), interval_text(0.61, 0.66, form="{:.0%}".format)
    ('95% CI 0.610-0.660', '90% CI -0.200 to 0.300', '95% CI 61-66%')
    """
    a, b = form(low), form(high)
    if not (a[0].isdigit() and b[0].isdigit()):
        return f"{100 * level:.6g}% CI {a} to {b}"
    return f"{100 * level:.6g}% CI {a.removesuffix('%') if b.endswith('%') else a}-{b}"


def around(value: Floats, variance: Floats, low: float = -np.inf, high: float = np.inf) -> tuple[Floats, Floats]:
    """value -+ 1.96 standard deviations, held between ``low`` and ``high``; no information: all of that range."""
    reach = Z * np.sqrt(np.where(np.isfinite(variance), variance, np.inf))
    return np.clip(value - reach, low, high), np.clip(value + reach, low, high)


def quantile(level: float, freedom: Floats | None = None) -> Any:
    """How many standard deviations hold the middle ``level`` of a Normal or t distribution (of that deviation)."""
    from scipy.special import ndtri, stdtrit

    p = (1.0 + level) / 2.0
    return float(ndtri(p)) if freedom is None else stdtrit(freedom, p)


def beta_interval(a: Floats, b: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """The central interval of Beta(a, b)."""
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    return np.asarray(betaincinv(a, b, tail)), np.asarray(betaincinv(a, b, 1.0 - tail))


def gamma_interval(mean: Floats, shape: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """The central interval of Gamma distributions with these means and shapes."""
    from scipy.special import gammaincinv

    tail = (1.0 - level) / 2.0
    low, high = (np.asarray(mean * gammaincinv(shape, p) / shape) for p in (tail, 1.0 - tail))
    return np.minimum(low, mean), np.maximum(high, mean)


def rate_interval(right: Floats, total: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Of a rate with ``right`` of ``total`` trials, by the Beta posterior under Jeffreys' prior."""
    return beta_interval(right + 0.5, np.maximum(total - right, 0.0) + 0.5, level)


def row_interval(counts: Floats, spread: Floats, t: int, level: float = LEVEL) -> tuple[Floats, Floats, Floats]:
    """P(answer t | truth t) and its interval, from counts[..., truth, answer] of two answers and their variances.

    The truth is inferred: the variance of the sum over answers of 1[truth = t] (1[answer = t] - p) goes into it.
    """
    right, total = counts[..., t, t], counts[..., t, :].sum(axis=-1)
    p = (right + 0.5) / (total + 1.0)
    unsure = (1.0 - p) ** 2 * spread[..., t, t] + p**2 * spread[..., t, 1 - t]
    low, high = share_interval(right, total, unsure, level)
    return p, low, high
