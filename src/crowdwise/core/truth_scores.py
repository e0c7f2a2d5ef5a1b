"""One number for how well something found agrees with the truth: what :meth:`crowdwise.core.result.Result.score` gives.

:mod:`crowdwise.metrics` has these and many more, with intervals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import InputError


def some_known(known: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The items with known truth, of which there is at least one."""
    if not known.any():
        raise InputError("No item has a known truth: there is nothing to measure.")
    return known


def r_squared(found: Floats, truth: Floats) -> float:
    """1 - the mean squared error as a share of the variance of the truth; of a constant truth 1 or 0."""
    error, variance = float(((found - truth) ** 2).sum()), float(((truth - truth.mean()) ** 2).sum())
    return 1.0 - error / variance if variance > 0.0 else float(error == 0.0)


def kendall_tau(found: Floats, truth: Floats) -> float:
    """Kendall's rank correlation tau-b, which allows for ties; 0 where one side is constant."""
    from scipy.stats import kendalltau

    constant = (found == found[0]).all() or (truth == truth[0]).all()
    return 0.0 if constant else float(kendalltau(found, truth).statistic)


def adjusted_rand(cluster: Ints, truth: Ints, weight: Floats) -> float:
    """The adjusted Rand index of two partitions (codes from 0 on): 1 is a perfect match, 0 chance.

    = (S - E) / (M - E),  S pairs together in both, E = together in clusters * together in classes / all pairs, M the
    mean of the two. An item of weight w counts as w copies, which are not paired with each other.
    """
    K, C = int(cluster.max()) + 1, int(truth.max()) + 1
    table = np.bincount(cluster * C + truth, weights=weight, minlength=K * C).reshape(K, C)
    own = float((weight * weight).sum())
    both, rows, columns = (
        float((sizes * sizes).sum()) - own for sizes in (table, table.sum(axis=1), table.sum(axis=0))
    )  # fmt: skip
    total = float(weight.sum()) ** 2 - own
    expected, most = rows * columns / total if total > 0 else 0.0, (rows + columns) / 2.0
    return 1.0 if most == expected else (both - expected) / (most - expected)
