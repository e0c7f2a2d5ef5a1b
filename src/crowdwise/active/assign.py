"""The best batch: which annotator gets which item, when annotators can take only so much.

``assign`` maximises the sum of values of the chosen pairs: n items at most, one annotator each, and no annotator more
items than allowed. Without limits that bind, each item takes its best annotator. Else it is an assignment problem:
rows are items, columns are the slots of annotators, and as many empty columns as there are items to be left out; it is
solved exactly (Jonker and Volgenant, through scipy). Where there are far more slots than items, only the annotators
whose votes are worth most on average keep theirs, ``SPARE`` slots for each item.
"""

from __future__ import annotations

import numpy as np

from crowdwise.core.numerics import Floats, Ints

SPARE = 3

__all__ = ["assign"]


def assign(value: Floats, capacity: Floats, n: int) -> tuple[Ints, Ints]:
    """The rows and columns of the chosen pairs, best first.

    Parameters
    ----------
    value
        C x A; ``-inf`` where a pair must not be.
    capacity
        A: how many rows a column may take.
    n
        How many pairs at most.
    """
    C, A = value.shape
    if C == 0 or A == 0 or n <= 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    value = np.where(capacity >= 1, value, -np.inf)
    best = value.argmax(axis=1)
    top = value[np.arange(C), best]
    rows = np.argsort(-top, kind="stable")[:n]
    rows = rows[np.isfinite(top[rows])]
    if (np.bincount(best[rows], minlength=A) <= capacity).all():
        return rows, best[rows]
    return _solved(value, capacity, n)


def _solved(value: Floats, capacity: Floats, n: int) -> tuple[Ints, Ints]:
    from scipy.optimize import linear_sum_assignment

    C, A = value.shape
    n = min(n, C)
    # Nobody needs more slots than there are items that want them.
    useful = np.minimum(np.minimum(capacity, n), np.isfinite(value).sum(axis=0)).astype(np.int64)
    if useful.sum() > SPARE * C:
        worth = np.where(np.isfinite(value), value, 0.0).sum(axis=0) / np.maximum(np.isfinite(value).sum(axis=0), 1)
        order = np.argsort(-worth, kind="stable")
        dropped = order[np.cumsum(useful[order]) - useful[order] >= SPARE * C]
        useful[dropped] = 0
    slots = np.repeat(np.arange(A), useful)
    gain = value[:, slots]
    allowed = np.isfinite(gain)
    scale = float(np.abs(gain[allowed]).max()) + 1.0 if allowed.any() else 1.0
    # Filling a slot is worth more than any value, so that as many pairs are made as can be; being left out is worth
    # nothing, and a pair that must not be is worse than that.
    lift = scale * (C + 1.0)
    left_out = np.zeros((C, C))
    whole = np.concatenate([np.where(allowed, gain + lift, -lift * (C + 1.0)), left_out], axis=1)
    if n < C:  # at most n pairs: C - n rows must take an empty column, which is then worth more than any pair
        whole[:, len(slots) : len(slots) + C - n] = 2.0 * lift * (C + 1.0)
    row, column = linear_sum_assignment(whole, maximize=True)
    taken = column < len(slots)
    row, column = row[taken], slots[column[taken]]
    fine = np.isfinite(value[row, column])
    row, column = row[fine], column[fine]
    order = np.argsort(-value[row, column], kind="stable")
    return row[order], column[order]
