"""Compiled help for large tables: sorting votes by item, coding names, gathering rows.

Rows are dealt to runs or partitions small enough that working on one stays in a core's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.kernels.compiler import even_cuts, in_threads, njit, threads_for
from crowdwise.kernels.reference import Ints

BLOCK = 2**20
"""Rows that are hashed at a time."""
CACHED_BITS = 15
"""A table of 2 to this power entries stays in a core's cache."""


def arrange(item: Ints, annotator: Ints, n_items: int) -> tuple[Ints | None, Ints, Ints, int, int]:
    """Votes sorted by item, then annotator, then as they came.

    Returns their order (``None``: they are in order already), the item boundaries, the annotators in that
    order, and how many votes repeat the (item, annotator) before them, with the position of the first.
    """
    indptr = np.zeros(n_items + 1, dtype=np.int64)
    if _in_order(item, annotator, indptr):
        return None, indptr, annotator.copy(), *_repeats(indptr, annotator)
    S = len(item)
    P = ((n_items - 1) >> CACHED_BITS) + 1
    T = threads_for(S, 0)
    rows, count = even_cuts(S, T), np.zeros((T, P), dtype=np.int64)
    in_threads(lambda t: _count_runs(rows[t], rows[t + 1], item, CACHED_BITS, count[t]), T)
    start, fill = _places(count)
    items, packed = np.empty(S, dtype=np.int32), np.empty(S, dtype=np.int64)
    in_threads(lambda t: _deal_votes(rows[t], rows[t + 1], item, annotator, CACHED_BITS, fill[t], items, packed), T)
    order, who = items if S < 2**31 else np.empty(S, dtype=np.int64), np.empty(S, dtype=np.int32)  # over the items
    T = min(P, T)
    cuts = even_cuts(P, T)
    in_threads(lambda t: _sort_runs(cuts[t], cuts[t + 1], CACHED_BITS, start, items, packed, indptr, order, who), T)
    return order, indptr, who, *_repeats(indptr, who)


def _places(count: Ints) -> tuple[Ints, Ints]:
    """Where each partition begins, and where each thread puts its rows of it, from how many each has (T x P): those of
    the first thread come first."""
    end = np.cumsum(count.T).reshape(count.T.shape).T
    fill = np.ascontiguousarray(end - count)
    return np.append(fill[0], end[-1, -1]), fill


def take(values: npt.NDArray[Any], order: Ints, dtype: Any = None) -> npt.NDArray[Any]:
    """``values[order]``, threaded; of another type, if one is asked for."""
    out = np.empty(len(order), dtype=dtype or values.dtype)
    T = threads_for(len(order), 0)
    cuts = even_cuts(len(order), T)
    in_threads(lambda t: _take(cuts[t], cuts[t + 1], values, order, out), T)
    return out


def code_few(hashes: npt.NDArray[np.uint64]) -> tuple[Ints, Ints] | None:
    """Codes in order of first appearance, and the row where each appears, from a hash of each value; ``None`` where
    there are too many for one small table."""
    codes, rows = np.empty(len(hashes), dtype=np.int32), np.empty(1 << CACHED_BITS - 2, dtype=np.int64)
    few = _code_few(hashes, codes, rows)
    return None if few < 0 else (codes, rows[:few].copy())


def code(S: int, hashes: Callable[[int, int, int], npt.NDArray[np.uint64]]) -> tuple[Ints, Ints]:
    """The codes of many values: ``hashes(0, a, b)`` gives a hash of those from a to b, ``hashes(1, a, b)`` another.

    Rows are dealt to partitions by the top bits of their hash, so that the table of each stays in the cache.
    """
    bits = max(1, int(S).bit_length() - 2 - CACHED_BITS)
    P, T = 1 << bits, threads_for(S, 0)
    rows, count = even_cuts(S, T), np.zeros((T, P), dtype=np.int64)

    def blocks(t: int) -> Iterator[tuple[int, int]]:
        return pairwise([*range(rows[t], rows[t + 1], BLOCK), rows[t + 1]])

    def tally(t: int) -> None:
        for a, b in blocks(t):
            _count_partitions(hashes(0, a, b), bits, count[t])

    in_threads(tally, T)
    start, fill = _places(count)
    row, h, g = np.empty(S, dtype=np.int32), np.empty(S, dtype=np.uint64), np.empty(S, dtype=np.uint32)

    def deal(t: int, h: Any) -> None:
        for a, b in blocks(t):
            _deal_hashes(hashes(0, a, b), hashes(1, a, b), a, bits, fill[t], row, h, g)

    in_threads(partial(deal, h=h), T)
    seen, used = np.empty(S, dtype=np.int32), np.empty(P, dtype=np.int64)
    T = min(P, T)
    cuts = even_cuts(P, T)
    local = g.view(np.int32)  # each code takes the place of the hash that it was found by
    kept = [h]
    del h
    in_threads(lambda t: _code_partitions(cuts[t], cuts[t + 1], start, row, kept[0], g, local, seen, used), T)
    kept.clear()
    codes = np.zeros(S, dtype=np.int32)
    first_rows = _number_by_appearance(start, seen, used, codes)
    in_threads(lambda t: _write_codes(cuts[t], cuts[t + 1], start, row, local, seen, codes), T)
    return codes, first_rows


@njit(nogil=True, cache=True)
def _in_order(item: Any, annotator: Any, start: Any) -> Any:
    """Whether votes are in order; if so, ``start`` receives the item boundaries."""
    for s in range(1, len(item)):
        if item[s] < item[s - 1] or (item[s] == item[s - 1] and annotator[s] < annotator[s - 1]):
            return False
    for s in range(len(item)):
        start[item[s] + 1] += 1
    for n in range(len(start) - 1):
        start[n + 1] += start[n]
    return True


@njit(nogil=True, cache=True)
def _repeats(start: Any, annotator: Any) -> Any:
    count, where = 0, -1
    for n in range(len(start) - 1):
        for s in range(start[n] + 1, start[n + 1]):
            if annotator[s] == annotator[s - 1]:
                if count == 0:
                    where = s
                count += 1
    return count, where


@njit(nogil=True, cache=True)
def _count_runs(lo: int, hi: int, item: Any, shift: int, count: Any) -> None:
    """Add to ``count[p]`` the votes from ``lo`` to ``hi`` on items of run p, which has ``2^shift``."""
    for s in range(lo, hi):
        count[item[s] >> shift] += 1


@njit(nogil=True, cache=True)
def _deal_votes(lo: int, hi: int, item: Any, annotator: Any, shift: int, fill: Any, items: Any, packed: Any) -> None:
    for s in range(lo, hi):
        p = item[s] >> shift
        at = fill[p]
        items[at], packed[at] = item[s], (np.int64(annotator[s]) << 32) | s
        fill[p] = at + 1


@njit(nogil=True, cache=True)
def _sort_runs(
    lo: int, hi: int, shift: int, start: Any, items: Any, packed: Any, indptr: Any, order: Any, who: Any
) -> None:
    """A counting sort by item within each run, then a short sort by annotator (and row) within each item."""
    size = 1 << shift
    fill, most = np.empty(size, dtype=np.int64), 0
    for p in range(lo, hi):
        most = max(most, start[p + 1] - start[p])
    run = np.empty(most, dtype=np.int64)
    for p in range(lo, hi):
        a, b, base = start[p], start[p + 1], p << shift
        last = min(base + size, len(indptr) - 1)
        fill[:] = 0
        for i in range(a, b):
            fill[items[i] - base] += 1
        at = a
        for n in range(base, last):
            count = fill[n - base]
            fill[n - base] = at
            at += count
            indptr[n + 1] = at
        for i in range(a, b):
            n = items[i] - base
            run[fill[n] - a] = packed[i]
            fill[n] += 1
        left = 0
        for n in range(base, last):
            right = indptr[n + 1] - a
            if right - left > 32:
                run[left:right] = np.sort(run[left:right])
            else:
                for i in range(left + 1, right):
                    value, j = run[i], i - 1
                    while j >= left and run[j] > value:
                        run[j + 1] = run[j]
                        j -= 1
                    run[j + 1] = value
            left = right
        for i in range(a, b):
            order[i] = run[i - a] & 0xFFFFFFFF
            who[i] = run[i - a] >> 32


@njit(nogil=True, cache=True)
def mark(values: Any, low: int, seen: Any) -> None:
    """``seen[values - low] = True``, without making ``values - low``."""
    for s in range(len(values)):
        seen[values[s] - low] = True


@njit(nogil=True, cache=True)
def _take(lo: int, hi: int, values: Any, order: Any, out: Any) -> None:
    for i in range(lo, hi):
        out[i] = values[order[i]]


@njit(nogil=True, cache=True)
def _code_few(hashes: Any, codes: Any, rows: Any) -> Any:
    """Codes by open addressing in one small table; -1 as soon as there are more distinct values than ``rows`` holds."""
    size = 4 * len(rows)
    key, value = np.empty(size, dtype=np.uint64), np.full(size, -1, dtype=np.int32)
    used = 0
    for s in range(len(hashes)):
        h = hashes[s]
        at = np.int64(h & np.uint64(size - 1))
        while value[at] >= 0 and key[at] != h:
            at = (at + 1) & (size - 1)
        if value[at] < 0:
            if used == len(rows):
                return -1
            key[at], value[at] = h, used
            rows[used] = s
            used += 1
        codes[s] = value[at]
    return used


@njit(nogil=True, cache=True)
def _count_partitions(hashes: Any, bits: int, count: Any) -> None:
    """Add to ``count[p]`` the rows of each partition p: the top ``bits`` bits of their hash."""
    shift = np.uint64(64 - bits)
    for s in range(len(hashes)):
        count[np.int64(hashes[s] >> shift)] += 1


@njit(nogil=True, cache=True)
def _deal_hashes(first: Any, second: Any, begin: int, bits: int, fill: Any, row: Any, h: Any, g: Any) -> None:
    shift = np.uint64(64 - bits)
    for s in range(len(first)):
        p = np.int64(first[s] >> shift)
        at = fill[p]
        row[at], h[at], g[at] = begin + s, first[s], np.uint32(second[s])
        fill[p] = at + 1


@njit(nogil=True, cache=True)
def _code_partitions(lo: int, hi: int, start: Any, row: Any, h: Any, g: Any, local: Any, seen: Any, used: Any) -> None:
    """Codes within each partition, and the rows where they first appear, by open addressing with linear probing."""
    most = 4
    for p in range(lo, hi):
        while most < 2 * (start[p + 1] - start[p]):
            most *= 2
    key, check, value = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.uint32), np.empty(most, dtype=np.int32)
    for p in range(lo, hi):
        a, b = start[p], start[p + 1]
        size = 4
        while size < 2 * (b - a):
            size *= 2
        value[:size] = -1
        distinct = 0
        for i in range(a, b):
            at = np.int64(h[i] & np.uint64(size - 1))
            while value[at] >= 0 and (key[at] != h[i] or check[at] != g[i]):
                at = (at + 1) & (size - 1)
            if value[at] < 0:
                key[at], check[at], value[at] = h[i], g[i], distinct
                seen[a + distinct] = row[i]
                distinct += 1
            local[i] = value[at]
        used[p] = distinct


@njit(nogil=True, cache=True)
def _number_by_appearance(start: Any, seen: Any, used: Any, rank: Any) -> Any:
    """Put in ``seen`` the number of each distinct value by first appearance; returns the rows where they appear."""
    for p in range(len(used)):
        for i in range(start[p], start[p] + used[p]):
            rank[seen[i]] = 1
    total = 0
    for s in range(len(rank)):
        if rank[s]:
            rank[s] = total
            total += 1
    rows = np.empty(total, dtype=np.int64)
    for p in range(len(used)):
        for i in range(start[p], start[p] + used[p]):
            s = seen[i]
            seen[i] = rank[s]
            rows[rank[s]] = s
    return rows


@njit(nogil=True, cache=True)
def _write_codes(lo: int, hi: int, start: Any, row: Any, local: Any, seen: Any, codes: Any) -> None:
    for p in range(lo, hi):
        for i in range(start[p], start[p + 1]):
            codes[row[i]] = seen[start[p] + local[i]]
