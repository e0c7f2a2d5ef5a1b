"""How much spans overlap, which of two sets belong together, and groups of what is alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints

HALF = 0.5
"""From this share of their union on, two spans with the same label count as the same, where overlap is enough."""
COMPARED, OF_CHANCE = 1000, 50.0
"""How many are compared with each other for overlaps by chance, and how many pairs the usual share is worth."""


def jaccard(start: Ints, end: Ints, start_2: Ints, end_2: Ints) -> Floats:
    """The share of the union of two spans that both hold, for every pair of two lists.

    >>> jaccard(np.array([0]), np.array([4]), np.array([0, 2, 6]), np.array([4, 6, 8])).round(2).tolist()
    [[1.0, 0.33, 0.0]]
    """
    both = np.minimum(end[:, None], end_2) - np.maximum(start[:, None], start_2)
    union = np.maximum(end[:, None], end_2) - np.minimum(start[:, None], start_2)
    return np.asarray(np.maximum(both, 0) / np.maximum(union, 1))


def likeness(predicted: Sequence[Any], true: Sequence[Any]) -> Floats:
    """:func:`jaccard` of two lists of (label, start, end); 0 where labels differ."""
    a, b = (np.array([span[1:] for span in spans], dtype=np.int64).reshape(-1, 2) for spans in (predicted, true))
    same = np.array([[one[0] == two[0] for two in true] for one in predicted], dtype=bool).reshape(len(a), len(b))
    return np.asarray(jaccard(a[:, 0], a[:, 1], b[:, 0], b[:, 1]) * same)


def pairs(like: Floats, least: float) -> tuple[Ints, Ints]:
    """The most pairs of rows and columns, one to one, that are alike by ``least`` or more; of equally many, the most
    alike."""
    from scipy.optimize import linear_sum_assignment

    enough = like >= least - 1e-12
    row, column = linear_sum_assignment(enough * (like + min(like.shape) + 1.0), maximize=True)
    kept = enough[row, column]
    return row[kept], column[kept]


def matches(predicted: Sequence[Any], true: Sequence[Any], least: float = HALF) -> int:
    """How many spans of two lists of (label, start, end) can be paired, one to one, with a Jaccard of ``least``.

    >>> matches([("A", 0, 4), ("A", 10, 14)], [("A", 0, 5), ("A", 13, 20), ("B", 10, 14)])
    1
    """
    return len(pairs(likeness(predicted, true), least)[0]) if len(predicted) and len(true) else 0


def characters(spans: Sequence[Any]) -> dict[Any, list[tuple[int, int]]]:
    """Label -> the stretches that its spans cover, without overlaps."""
    out: dict[Any, list[tuple[int, int]]] = {}
    for label, start, end in sorted(spans, key=lambda span: span[1:]):
        runs = out.setdefault(label, [])
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return out


def shared_characters(predicted: Sequence[Any], true: Sequence[Any]) -> tuple[int, int, int]:
    """Characters with the same label in both, in the first and in the second."""
    one, two = characters(predicted), characters(true)
    both = sum(
        max(0, min(b, d) - max(a, c)) for label, runs in one.items() for a, b in runs for c, d in two.get(label, [])
    )
    sizes = [sum(b - a for runs in side.values() for a, b in runs) for side in (one, two)]
    return both, sizes[0], sizes[1]


def linked(near: Floats, clash: npt.NDArray[np.bool_], least: float, size: Floats | None = None) -> Ints:
    """Groups by average linkage: of each of U things the first of its group. ``near`` is how alike two are (of groups
    of ``size`` things the mean), ``clash`` which may not be together; the most alike are joined first, while their mean
    is at least ``least``; of equals the first.

    >>> near = np.array([[1.0, 0.6, 0.5], [0.6, 1.0, 0.0], [0.5, 0.0, 1.0]])
    >>> linked(near, near > 1.0, 0.3).tolist()
    [0, 0, 2]
    """
    from scipy.sparse.csgraph import connected_components

    group, size = np.arange(len(near)), np.ones(len(near)) if size is None else size
    count, part = connected_components((near >= least) & ~clash, directed=False)
    for k in range(count):  # groups lie within such parts
        at = np.flatnonzero(part == k)
        n, apart = size[at], clash[np.ix_(at, at)] | np.eye(len(at), dtype=bool)
        total = near[np.ix_(at, at)] * np.outer(n, n)
        mean = np.where(apart, -1.0, (total / np.outer(n, n)).round(9))
        while mean.max() >= least:
            i, j = sorted(divmod(int(mean.argmax()), len(at)))
            n[i] += n[j]
            total[i] += total[j]
            total[:, i] = total[i]
            apart[i] |= apart[j]
            apart[:, i] = apart[i]
            apart[j] = apart[:, j] = True
            mean[j] = mean[:, j] = -1.0
            mean[i] = mean[:, i] = np.where(apart[i], -1.0, (total[i] / (n[i] * n)).round(9))
            group[group == at[j]] = at[i]
    return group


def evenly(order: Ints, most: int) -> Ints:
    """At most so many of an order, evenly spaced.

    >>> evenly(np.arange(10), 4).tolist()
    [0, 3, 6, 9]
    """
    return order[np.unique(np.linspace(0, len(order) - 1, most).round().astype(np.int64))]


def by_chance(near: Floats, item: Ints, least: float, usual: float) -> float:
    """The share of pairs on different items that are alike by ``least``: how often two have the same place by chance.
    ``usual`` counts as ``OF_CHANCE`` pairs."""
    apart = item[:, None] != item
    return float(((near[apart] >= least).sum() + usual * OF_CHANCE) / (apart.sum() + OF_CHANCE))


def weighted_medians(values: Floats, weights: Floats) -> Floats:
    """Of each row the smallest value with at least half of the weight up to it: the middle of Laplace errors."""
    order = np.argsort(values, axis=1, kind="stable")
    mass = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    at = (mass >= mass[:, -1:] / 2.0 * (1.0 - 1e-9)).argmax(axis=1)
    return np.asarray(np.take_along_axis(np.take_along_axis(values, order, axis=1), at[:, None], axis=1)[:, 0])
