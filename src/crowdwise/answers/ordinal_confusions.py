"""The order of ordinal classes, and confusion matrices with an order: two numbers for each annotator, fitted by Fisher
scoring.

The equations are those of :mod:`crowdwise.answers.ordinal_dawid_skene`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from crowdwise.core.constraints import Check
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.data import encoding
from crowdwise.data.encoding import Vocabulary
from crowdwise.errors import ParameterError, listing

LOG_SPREAD = (np.log(0.05), np.log(20.0))
LOGISTIC = float(np.pi / np.sqrt(3.0))
"""The deviation of the logistic distribution: spreads then mean the same with either link."""


def _is_order(value: Any) -> bool:
    return value is None or (hasattr(value, "__len__") and not isinstance(value, str))


Order = Annotated[Any, Check(_is_order, "the classes, the lowest first, or None", (None,), ("low", 3))]


def ranks(classes: Vocabulary, order: Sequence[Any] | None, key: str) -> Ints:
    """The place of every class on the scale, lowest first."""
    if order is not None:
        place = encoding.locate(classes, encoding.to_vocabulary(list(order)))
        if (place < 0).any() or len(order) != len(classes) or len(set(place.tolist())) != len(classes):
            raise ParameterError(
                f"order={list(order)!r}: expected each of the classes {listing(classes, 10)} once, the lowest first."
            )
        return place.astype(np.int64)
    if classes.dtype.kind in "ib":
        return np.argsort(np.argsort(classes.astype(np.int64)))
    names = classes.tolist()
    if names == sorted(names) and len(names) > 2:
        warnings.warn(
            f"{key} orders the classes alphabetically, {' < '.join(map(str, names))}: give order=[...], the lowest "
            "first, if their order is another.",
            UserWarning,
            stacklevel=2,
        )
    return np.arange(len(classes))


@dataclass(frozen=True)
class Crowd:
    """What annotators have in common: the prior of their two numbers, the cuts, the lapse and the link."""

    location_sd: float
    spread_mean: float
    spread_sd: float
    cut: Floats
    lapse: float
    link: str

    def log_prior(self, location: Floats, log_spread: Floats) -> Floats:
        return np.asarray(
            -0.5 * (location / self.location_sd) ** 2 - 0.5 * ((log_spread - self.spread_mean) / self.spread_sd) ** 2
        )  # fmt: skip


def distribution(z: Floats, link: str) -> tuple[Floats, Floats]:
    """F and its density at z, infinite ends included."""
    from scipy.special import expit, ndtr

    if link == "normal":
        return np.asarray(ndtr(z)), np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    F = np.asarray(expit(LOGISTIC * z))
    return F, LOGISTIC * F * (1.0 - F)


def ordered(
    location: Floats, log_spread: Floats, crowd: Crowd, slopes: bool = False
) -> tuple[Floats, Floats | None, Floats | None]:
    """theta[m, k, l] and, where asked for, its derivatives by d and by log s."""
    K = len(crowd.cut) - 1
    s = np.exp(log_spread)[:, None, None]
    z = (crowd.cut[None, None, :] - np.arange(K)[None, :, None] - location[:, None, None]) / s
    F, f = distribution(z, crowd.link)
    theta = (1.0 - crowd.lapse) * np.diff(F, axis=2) + crowd.lapse / K
    if not slopes:
        return theta, None, None
    zf = np.where(np.isfinite(z), z, 0.0) * f
    by_location = -(1.0 - crowd.lapse) * np.diff(f, axis=2) / s
    return theta, by_location, -(1.0 - crowd.lapse) * np.diff(zf, axis=2)


def scoring(
    counts: Floats, crowd: Crowd, start: tuple[Floats, Floats] | None = None, steps: int = 50, tol: float = 1e-6
) -> tuple[Floats, Floats]:
    """d and log s that maximise sum c log theta + log prior, by Fisher scoring with halved steps. Annotators who have
    converged (a full step promises less than ``tol``) stop while others go on."""
    location, log_spread = moments(counts, crowd) if start is None else (start[0].copy(), start[1].copy())
    active = np.arange(len(counts))
    for _ in range(steps):
        c, d, t = counts[active], location[active], log_spread[active]
        now = penalised(c, d, t, crowd)
        slope, info = slopes(c, d, t, crowd)
        step = np.linalg.solve(info, slope[:, :, None])[:, :, 0]
        going = (slope * step).sum(axis=1) > tol
        if not going.any():
            break
        active, c, d, t, now, step = (x[going] for x in (active, c, d, t, now, step))
        better = np.zeros(len(active), dtype=bool)
        for halvings in range(12):
            rest = np.flatnonzero(~better)
            if len(rest) == 0:
                break
            new_d = np.clip(d[rest] + 0.5**halvings * step[rest, 0], -len(crowd.cut), len(crowd.cut))
            new_t = np.clip(t[rest] + 0.5**halvings * step[rest, 1], *LOG_SPREAD)
            up = penalised(c[rest], new_d, new_t, crowd) > now[rest]
            location[active[rest[up]]], log_spread[active[rest[up]]] = new_d[up], new_t[up]
            better[rest[up]] = True
        active = active[better]
        if len(active) == 0:
            break
    return location, log_spread


def moments(counts: Floats, crowd: Crowd) -> tuple[Floats, Floats]:
    """Starting values: the mean and the deviation of label - truth, one vote of the crowd's added."""
    at = np.arange(counts.shape[1])
    gap = at[None, :] - at[:, None]
    n = counts.sum(axis=(1, 2))
    location = (counts * gap).sum(axis=(1, 2)) / (n + 1.0)
    square = (counts * (gap - location[:, None, None]) ** 2).sum(axis=(1, 2))
    return location, 0.5 * np.log((square + np.exp(2.0 * crowd.spread_mean)) / (n + 1.0) + 0.01)


def penalised(counts: Floats, location: Floats, log_spread: Floats, crowd: Crowd) -> Floats:
    """M: sum c log theta + log prior."""
    theta, _, _ = ordered(location, log_spread, crowd)
    return np.asarray((counts * safe_log(theta)).sum(axis=(1, 2)) + crowd.log_prior(location, log_spread))


def slopes(counts: Floats, location: Floats, log_spread: Floats, crowd: Crowd) -> tuple[Floats, Floats]:
    """The gradient of :func:`penalised` (M x 2), and the Fisher information with the prior's (M x 2 x 2)."""
    theta, dd, dt = ordered(location, log_spread, crowd, slopes=True)
    assert dd is not None and dt is not None
    theta = np.maximum(theta, 1e-300)
    total, ratio = counts.sum(axis=2), counts / theta
    prior = crowd.location_sd**-2, crowd.spread_sd**-2
    slope = np.stack([(ratio * dd).sum(axis=(1, 2)), (ratio * dt).sum(axis=(1, 2))], axis=1)
    slope[:, 0] -= location * prior[0]
    slope[:, 1] -= (log_spread - crowd.spread_mean) * prior[1]
    info = np.empty((len(counts), 2, 2))
    for i, a in enumerate((dd, dt)):
        for j, b in enumerate((dd, dt)):
            info[:, i, j] = (total * (a * b / theta).sum(axis=2)).sum(axis=1) + (prior[i] if i == j else 0.0)
    return slope, info
