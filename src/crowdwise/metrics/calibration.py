"""Whether probabilities are what they say: log loss, Brier score, calibration error and curve."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import ParameterError
from crowdwise.metrics.bootstrap import Estimate, bootstrap, bootstrap_mean
from crowdwise.metrics.labels import hits, known_items

__all__ = ["brier", "calibration_error", "log_loss", "reliability"]


def log_loss(
    result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0, floor: float = 1e-15
) -> Estimate:
    """The mean of -log P(true class), with probabilities held above ``floor``."""
    if not 0.0 < floor < 1.0:
        raise ParameterError(f"floor={floor!r}: expected a number between 0 and 1.")
    q, y = known_items(result, truth)
    return bootstrap_mean(
        -np.log(np.maximum(q[np.arange(len(y)), y], floor)), level=level, resamples=resamples, random_state=random_state
    )


def brier(result: Any, truth: Any, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0) -> Estimate:
    """The mean of sum_k (q_k - 1[truth = k])^2: 0 is perfect, 2 certain and wrong."""
    q, y = known_items(result, truth)
    score = (q * q).sum(axis=1) - 2.0 * q[np.arange(len(y)), y] + 1.0
    return bootstrap_mean(score, level=level, resamples=resamples, random_state=random_state)


def calibration_error(
    result: Any, truth: Any, *, bins: int = 15, level: float = 0.95, resamples: int = 1000, random_state: int = 0
) -> Estimate:
    """Expected calibration error: the mean over items of |accuracy - probability| of their bin.

    Bins are of equal width over the top probability.
    """
    q, y = known_items(result, truth)
    top, right, where = q.max(axis=1), hits(q, y), _bin(q, bins)

    def statistic(weight: Floats) -> float:
        gap = np.bincount(where, weights=weight * (right - top), minlength=bins)
        return float(np.abs(gap).sum() / weight.sum())

    return bootstrap(statistic, len(y), level=level, resamples=resamples, random_state=random_state)


def reliability(result: Any, truth: Any, *, bins: int = 15) -> dict[str, npt.NDArray[Any]]:
    """The calibration curve: number, mean probability and accuracy of the items in each bin of the top probability.

    Bins without items are left out.
    """
    q, y = known_items(result, truth)
    where = _bin(q, bins)
    n = np.bincount(where, minlength=bins)
    used = n > 0
    top, right = (np.bincount(where, weights=x, minlength=bins)[used] / n[used] for x in (q.max(axis=1), hits(q, y)))
    return {"items": n[used], "probability": top, "accuracy": right}


def _bin(q: Floats, bins: int) -> Ints:
    if bins < 1:
        raise ParameterError(f"bins={bins!r}: expected at least 1.")
    return np.asarray(np.clip(np.ceil(q.max(axis=1) * bins) - 1, 0, bins - 1), dtype=np.int64)
