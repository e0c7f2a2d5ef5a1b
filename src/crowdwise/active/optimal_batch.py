"""The best batch: which annotator gets which item, when annotators can take only so much.

``assign`` maximises the sum of values of the chosen pairs: n items at most, one annotator each, and no annotator more
items than allowed. Without limits that bind, each item takes its best annotator. Else it is an assignment problem:
rows are items, columns are the slots of annotators, and as many empty columns as there are items to be left out; it is
solved exactly (Jonker and Volgenant, through scipy) up to ``EXACT`` cells, and beyond by taking the best pair that is
left, again and again, which is never worth less than half of the best. Where there are far more slots than items, only
the annotators whose votes are worth most on average keep theirs, ``SPARE`` slots for each item.
"""

from __future__ import annotations

import numpy as np

from crowdwise.core.numerics import Floats, Ints

SPARE = 3
EXACT = 300_000
"""The most cells (items x slots) of a problem that is solved exactly."""

__all__ = ["assign", "assign_pairs"]


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


def assign_pairs(row: Ints, column: Ints, value: Floats, capacity: Floats, n: int) -> Ints:
    """As :func:`assign` where only some pairs can be: the places of the chosen ones among them, best first."""
    if len(row) == 0 or n <= 0:
        return np.empty(0, dtype=np.int64)
    order = np.lexsort((-value, row))
    order = order[capacity[column[order]] >= 1]
    best = order[np.concatenate([[True], row[order][1:] != row[order][:-1]])] if len(order) else order
    best = best[np.argsort(-value[best], kind="stable")][:n]
    if (np.bincount(column[best], minlength=len(capacity)) <= capacity).all():
        return np.asarray(best)
    rows, local = np.unique(row, return_inverse=True)
    place = np.full((len(rows), len(capacity)), -1)
    place[local, column] = np.arange(len(row))
    taken = assign(np.where(place >= 0, value[place], -np.inf), capacity, n)
    return np.asarray(place[taken])


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
    if C * int(useful.sum()) > EXACT:
        return _greedy(value, useful, n)
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


def _greedy(value: Floats, capacity: Ints, n: int) -> tuple[Ints, Ints]:
    """The best pair that is left, again and again.

    That is the stable matching of items and annotators who all go by the same values (Gale and Shapley): in a round
    every item without an annotator turns to the best that has not refused it, and annotators keep the best of all who
    turned to them, as many as they have room for.
    """
    C, A = value.shape
    open_ = np.where(capacity > 0, value, -np.inf)
    held = np.full(C, -1)
    left = np.arange(C)
    while len(left):
        best = open_[left].argmax(axis=1)
        fine = np.isfinite(open_[left, best])
        held[left[fine]] = best[fine]
        row = np.flatnonzero((held >= 0) & np.isin(held, best[fine]))
        order = row[np.lexsort((-value[row, held[row]], held[row]))]
        rank = np.arange(len(order)) - np.searchsorted(held[order], held[order])
        left = order[rank >= capacity[held[order]]]
        open_[left, held[left]] = -np.inf
        held[left] = -1
    row = np.flatnonzero(held >= 0)
    row = row[np.argsort(-value[row, held[row]], kind="stable")][:n]
    return row, held[row]
