"""How well clusters match known classes: Hungarian accuracy, normalised mutual information, adjusted Rand index.

All take a :class:`~crowdwise.Clustering` and the truth as a mapping from item to class, or N cluster codes and N class
codes (-1: unknown). None of them cares how clusters are numbered. Intervals are bootstrapped over items.

With n[k, c] items in cluster k and class c:

    accuracy = max over matchings of clusters to classes of sum n[k, match(k)] / N
    NMI      = I(cluster; class) / ((H(cluster) + H(class)) / 2)
    ARI      = (S - E) / (M - E),  S pairs together in both, E = together in clusters * together in classes / all pairs,
               M the mean of the two
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from crowdwise.core import result
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.result import some_known
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options


def cluster_accuracy(found: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The share of items whose cluster is their class, under the best one-to-one matching of clusters to classes."""
    from scipy.optimize import linear_sum_assignment

    k, c = _known(found, truth)

    def statistic(weight: Floats) -> float:
        table = _table(k, c, weight)
        rows, columns = linear_sum_assignment(-table)
        return float(table[rows, columns].sum() / weight.sum())

    return Bootstrap(**options).of_weights(statistic, len(k))


def mutual_information(found: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Normalised mutual information of clusters and classes (by the mean of their entropies): 1 is a perfect match."""
    k, c = _known(found, truth)

    def statistic(weight: Floats) -> float:
        p = _table(k, c, weight) / weight.sum()
        rows, columns = _bits(p.sum(axis=1)), _bits(p.sum(axis=0))
        if rows + columns == 0.0:  # one cluster and one class
            return 1.0
        return min(1.0, max(0.0, 2.0 * (rows + columns - _bits(p)) / (rows + columns)))

    return Bootstrap(**options).of_weights(statistic, len(k))


def adjusted_rand(found: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The adjusted Rand index: 1 is a perfect match, 0 what random clusters of these sizes come to.

    In resamples an item is never paired with itself.
    """
    k, c = _known(found, truth)

    return Bootstrap(**options).of_weights(lambda weight: result.adjusted_rand(k, c, weight), len(k))


def _table(k: Ints, c: Ints, weight: Floats) -> Floats:
    K, C = int(k.max()) + 1, int(c.max()) + 1
    return np.asarray(np.bincount(k * C + c, weights=weight, minlength=K * C).reshape(K, C), dtype=np.float64)


def _bits(p: Floats) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def _known(found: Any, truth: Any) -> tuple[Ints, Ints]:
    """Cluster and class codes, from 0 on, of the items whose class is known."""
    if hasattr(found, "cluster_codes"):
        cluster, true = found.cluster_codes, found.truth_codes(truth)
    else:
        cluster, true = np.asarray(found), np.asarray(truth)
        if cluster.ndim != 1 or cluster.shape != true.shape or true.dtype.kind not in "iu":
            raise InputError(
                "Expected a Clustering with a mapping from item to class, or N clusters with N integer class codes, "
                f"and found shapes {cluster.shape} and {true.shape} ({true.dtype})."
            )
    known = some_known(true >= 0)
    return tuple(np.unique(x[known], return_inverse=True)[1] for x in (cluster, true))  # type: ignore[return-value]
