"""Whether probabilities are what they say: log loss, Brier score, calibration error and curve."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import Count, Fraction, checked
from crowdwise.core.numerics import Floats, Ints
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options
from crowdwise.metrics.labels import hits, known_items


@checked
def log_loss(result: Any, truth: Any, *, floor: Fraction = 1e-15, **options: Unpack[Options]) -> Estimate:
    """The mean of -log P(true class), with probabilities held above ``floor``."""
    q, y = known_items(result, truth)
    return Bootstrap(**options).mean(-np.log(np.maximum(q[np.arange(len(y)), y], floor)))


def brier(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The mean of sum_k (q_k - 1[truth = k])^2: 0 is perfect, 2 certain and wrong."""
    q, y = known_items(result, truth)
    score = (q * q).sum(axis=1) - 2.0 * q[np.arange(len(y)), y] + 1.0
    return Bootstrap(**options).mean(score)


@checked
def calibration_error(result: Any, truth: Any, *, bins: Count = 15, **options: Unpack[Options]) -> Estimate:
    """Expected calibration error: the mean over items of |accuracy - probability| of their bin.

    Bins are of equal width over the top probability.
    """
    q, y = known_items(result, truth)
    top, right, where = q.max(axis=1), hits(q, y), _bin(q, bins)

    def statistic(weight: Floats) -> float:
        gap = np.bincount(where, weights=weight * (right - top), minlength=bins)
        return float(np.abs(gap).sum() / weight.sum())

    return Bootstrap(**options).of_weights(statistic, len(y))


@checked
def reliability(result: Any, truth: Any, *, bins: Count = 15) -> dict[str, npt.NDArray[Any]]:
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
    return np.asarray(np.clip(np.ceil(q.max(axis=1) * bins) - 1, 0, bins - 1), dtype=np.int64)
