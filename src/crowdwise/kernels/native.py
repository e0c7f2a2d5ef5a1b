"""The same kernels compiled: a fused pass over the votes, specialised on the number of classes, threaded.

One visit to an item gathers its scores, takes the softmax and scatters the expected counts, so the
N x K posterior never touches memory unless it is asked for. Threads take runs of items and keep
accumulators of their own; they are plain Python threads, since the compiled code releases the GIL.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from crowdwise.kernels.reference import Floats, Ints

SPECIALISED = 16
"""Up to this many classes a pass is compiled for exactly that number, so that its loops unroll."""


CACHED_BITS = 15
"""Tables of so many bits' entries stay in a core's cache: work on large data is dealt out in runs of that size."""


def threads_for(n_votes: int, n_cells: int) -> int:
    """How many threads pay: each keeps a table of ``n_cells`` rows, which must be small beside the votes."""
    limit = (
        int(os.environ.get("CROWDWISE_THREADS", 0)) or len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    return max(1, min(limit, n_votes // max(1, n_cells), n_votes // 50_000))


def expect(
    indptr: Ints,
    cell: Ints,
    weight: Floats,
    log_score: Floats,
    log_prior: Floats,
    truth: Ints,
    hard: bool = False,
    posterior: bool = True,
    threads: int = 0,
) -> tuple[Floats, Floats, float, Floats]:
    """As :func:`crowdwise.kernels.reference.expect`; without ``posterior`` the last result is empty."""
    C, K = log_score.shape
    N = len(indptr) - 1
    T = threads or threads_for(len(cell), C)
    run = _expect(K if K <= SPECIALISED else 0, len(weight) > 0)
    q = np.empty((N if posterior else 0, K))
    counts, mass, evidence = np.zeros((T, C, K)), np.zeros((T, K)), np.zeros((T, 1))
    cuts = _cuts(indptr, T)
    fixed = (indptr, cell, weight, log_score, log_prior, truth, hard, POWERS, q)
    _spread(lambda t: run(cuts[t], cuts[t + 1], *fixed, counts[t], mass[t], evidence[t]), T)
    return (counts[0] if T == 1 else counts.sum(axis=0)), mass.sum(axis=0), float(evidence.sum()), q


def shares(indptr: Ints, label: Ints, weight: Floats, K: int) -> Floats:
    """As :func:`crowdwise.kernels.reference.shares`."""
    out = np.zeros((len(indptr) - 1, K))
    T = threads_for(len(label), 0)
    cuts = _cuts(indptr, T)
    _spread(lambda t: _shares(cuts[t], cuts[t + 1], indptr, label, weight, out), T)
    return out


def scatter(
    indptr: Ints, cell: Ints, weight: Floats, q: Floats, n_cells: int, spread: bool = False, threads: int = 0
) -> Floats:
    """As :func:`crowdwise.kernels.reference.scatter`."""
    T = threads or threads_for(len(cell), n_cells)
    counts = np.zeros((T, n_cells, q.shape[1]))
    cuts = _cuts(indptr, T)
    _spread(lambda t: _scatter(cuts[t], cuts[t + 1], indptr, cell, weight, q, spread, counts[t]), T)
    return np.asarray(counts[0] if T == 1 else counts.sum(axis=0))


def cooccurrence(indptr: Ints, cell: Ints, weight: Floats, n_cells: int) -> tuple[Ints, Ints, Floats]:
    """As :func:`crowdwise.kernels.reference.cooccurrence`, row by row with one dense row of memory (Gustavson's
    sparse product)."""
    item = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    by_cell = np.argsort(cell, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=n_cells))])
    w = weight if len(weight) else np.ones(len(cell))
    size = _count_partners(indptr, cell, item, by_cell, start, n_cells)
    rows = np.concatenate([[0], np.cumsum(size)])
    indices, values = np.empty(rows[-1], dtype=np.int64), np.empty(rows[-1])
    _fill_partners(indptr, cell, w, item, by_cell, start, rows, indices, values, n_cells)
    return rows, indices, values


def arrange(item: Ints, annotator: Ints, n_items: int) -> tuple[Ints | None, Ints, Ints, int, int]:
    """Votes sorted by item, then annotator, then as they came.

    Returns their order (``None``: they are in order already), the item boundaries, the annotators in that
    order, and how many votes repeat the (item, annotator) before them, with the position of the first.

    Votes are first dealt to runs of items small enough that sorting one stays in the cache.
    """
    indptr = np.zeros(n_items + 1, dtype=np.int64)
    if _in_order(item, annotator, indptr):
        return None, indptr, annotator.copy(), *_repeats(indptr, annotator)
    S = len(item)
    P = ((n_items - 1) >> CACHED_BITS) + 1
    start = _run_sizes(item, CACHED_BITS, P)
    items, packed = np.empty(S, dtype=np.int32), np.empty(S, dtype=np.int64)
    _deal_votes(item, annotator, CACHED_BITS, start[:-1].copy(), items, packed)
    order, who = np.empty(S, dtype=np.int32 if S < 2**31 else np.int64), np.empty(S, dtype=np.int32)
    T = min(P, threads_for(S, 0))
    cuts = np.linspace(0, P, T + 1).astype(np.int64)
    _spread(lambda t: _sort_runs(cuts[t], cuts[t + 1], CACHED_BITS, start, items, packed, indptr, order, who), T)
    return order, indptr, who, *_repeats(indptr, who)


def mark(values: Ints, low: int, seen: npt.NDArray[np.bool_]) -> None:
    """``seen[values - low] = True``, without making ``values - low``."""
    _mark(values, low, seen)


def take(values: npt.NDArray[Any], order: Ints) -> npt.NDArray[Any]:
    """``values[order]``, threaded."""
    out = np.empty(len(order), dtype=values.dtype)
    T = threads_for(len(order), 0)
    cuts = np.linspace(0, len(order), T + 1).astype(np.int64)
    _spread(lambda t: _take(cuts[t], cuts[t + 1], values, order, out), T)
    return out


def code(hashes: list[npt.NDArray[Any]]) -> tuple[Ints, Ints]:
    """Codes in order of first appearance, and the row where each appears, from two independent hashes of each value.

    The hashes are 64 and 32 bits wide; the list is emptied, so that their memory can be reused on the way. Few
    distinct values go through one small table. Otherwise rows are dealt to partitions by the top bits of
    their hash, so that the table of each stays in the cache.
    """
    first, second = hashes
    hashes.clear()
    S = len(first)
    codes = np.empty(S, dtype=np.int32)
    rows = np.empty(1 << CACHED_BITS - 2, dtype=np.int64)
    few = _code_few(first, second, codes, rows)
    if few >= 0:
        return codes, rows[:few].copy()
    bits = max(1, int(S).bit_length() - 2 - CACHED_BITS)
    start = _partition_sizes(first, bits)
    P = len(start) - 1
    row, h, g = np.empty(S, dtype=np.int32), np.empty(S, dtype=np.uint64), np.empty(S, dtype=np.uint32)
    _deal_hashes(first, second, bits, start[:-1].copy(), row, h, g)
    del first, second
    local, seen = np.empty(S, dtype=np.int32), np.empty(S, dtype=np.int32)
    used = np.empty(P, dtype=np.int64)
    T = min(P, threads_for(S, 0))
    cuts = np.linspace(0, P, T + 1).astype(np.int64)
    _spread(lambda t: _code_partitions(cuts[t], cuts[t + 1], start, row, h, g, local, seen, used), T)
    first_rows = _number_by_appearance(start, seen, used, np.zeros(S, dtype=np.int32))
    _spread(lambda t: _write_codes(cuts[t], cuts[t + 1], start, row, local, seen, codes), T)
    return codes, first_rows


def _cuts(indptr: Ints, T: int) -> Ints:
    """T runs of items with about equally many votes."""
    cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], T + 1))
    cuts[0], cuts[-1] = 0, len(indptr) - 1
    return cuts


def _spread(work: Callable[[int], Any], T: int) -> None:
    if T == 1:
        work(0)
        return
    with ThreadPoolExecutor(T) as pool:
        for done in [pool.submit(work, t) for t in range(T)]:
            done.result()


POWERS = np.ldexp(1.0, np.arange(-1074, 1))
"""2^-1074 to 2^0."""


@njit(nogil=True, inline="always")
def _exp(x: float, powers: Any) -> float:
    """e^x for x <= 0, to the last digit or two, in a form that loops can be vectorised over.

    x = n log 2 + r with n whole and |r| <= log(2) / 2; e^r is a Taylor sum, 2^n comes from a table. Cody and
    Waite's two-part log 2 keeps r exact.
    """
    x = max(x, -740.0)
    n = np.rint(x * 1.4426950408889634)
    r = x - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * powers[np.int64(n) + 1074]  # type: ignore[no-any-return]


@cache
def _expect(n_classes: int, weighted: bool) -> Callable[..., None]:
    """The fused pass over items ``lo`` to ``hi``, for exactly ``n_classes`` (0: any number), with or without
    weights."""

    @njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
    def run(
        lo: int,
        hi: int,
        indptr: Any,
        cell: Any,
        weight: Any,
        log_score: Any,
        log_prior: Any,
        truth: Any,
        hard: bool,
        powers: Any,
        q: Any,
        counts: Any,
        mass: Any,
        evidence: Any,
    ) -> None:
        K = n_classes if n_classes > 0 else log_score.shape[1]
        x = np.empty(K)
        per_item, gold, keep = log_prior.shape[0] > 1, truth.size > 0, q.shape[0] > 0
        total = 0.0
        for n in range(lo, hi):
            row = n if per_item else 0
            for k in range(K):
                x[k] = log_prior[row, k]
            for s in range(indptr[n], indptr[n + 1]):
                c = cell[s]
                for k in range(K):
                    x[k] += weight[s] * log_score[c, k] if weighted else log_score[c, k]
            known = truth[n] if gold else -1
            if known >= 0:
                total += x[known]
                for k in range(K):
                    x[k] = 0.0
                x[known] = 1.0
            else:
                top = x[0]
                for k in range(1, K):
                    top = max(top, x[k])
                z = 0.0
                for k in range(K):
                    x[k] = _exp(x[k] - top, powers)
                for k in range(K):
                    z += x[k]
                share = 1.0 / z
                for k in range(K):
                    x[k] *= share
                total += top if hard else top + np.log(z)
            if keep:
                for k in range(K):
                    q[n, k] = x[k]
            if hard:
                best = 0
                for k in range(1, K):
                    if x[k] > x[best]:
                        best = k
                for s in range(indptr[n], indptr[n + 1]):
                    counts[cell[s], best] += weight[s] if weighted else 1.0
                mass[best] += 1.0
            else:
                for s in range(indptr[n], indptr[n + 1]):
                    c = cell[s]
                    for k in range(K):
                        counts[c, k] += weight[s] * x[k] if weighted else x[k]
                for k in range(K):
                    mass[k] += x[k]
        evidence[0] = total

    compiled: Callable[..., None] = run
    return compiled


@njit(nogil=True, cache=True)
def _shares(lo: int, hi: int, indptr: Any, label: Any, weight: Any, out: Any) -> None:
    K = out.shape[1]
    for n in range(lo, hi):
        total = 0.0
        for s in range(indptr[n], indptr[n + 1]):
            w = weight[s] if weight.size else 1.0
            out[n, label[s]] += w
            total += w
        for k in range(K):
            out[n, k] = out[n, k] / total if total > 0.0 else 1.0 / K


@njit(nogil=True, cache=True)
def _scatter(lo: int, hi: int, indptr: Any, cell: Any, weight: Any, q: Any, spread: bool, counts: Any) -> None:
    K = q.shape[1]
    for n in range(lo, hi):
        for s in range(indptr[n], indptr[n + 1]):
            w = weight[s] if weight.size else 1.0
            for k in range(K):
                counts[cell[s], k] += w * q[n, k] * (1.0 - q[n, k] if spread else 1.0)


@njit(nogil=True, cache=True)
def _count_partners(indptr: Any, cell: Any, item: Any, by_cell: Any, start: Any, n_cells: int) -> Any:
    size = np.zeros(n_cells, dtype=np.int64)
    seen = np.full(n_cells, -1, dtype=np.int64)
    for c in range(n_cells):
        for i in range(start[c], start[c + 1]):
            s = by_cell[i]
            for t in range(indptr[item[s]], indptr[item[s] + 1]):
                if t != s and seen[cell[t]] != c:
                    seen[cell[t]] = c
                    size[c] += 1
    return size


@njit(nogil=True, cache=True)
def _fill_partners(
    indptr: Any,
    cell: Any,
    w: Any,
    item: Any,
    by_cell: Any,
    start: Any,
    rows: Any,
    indices: Any,
    values: Any,
    n_cells: int,
) -> None:
    total = np.zeros(n_cells)
    for c in range(n_cells):
        end = rows[c]
        for i in range(start[c], start[c + 1]):
            s = by_cell[i]
            for t in range(indptr[item[s]], indptr[item[s] + 1]):
                if t != s:
                    d = cell[t]
                    if total[d] == 0.0:
                        indices[end] = d
                        end += 1
                    total[d] += w[s] * w[t]
        indices[rows[c] : end] = np.sort(indices[rows[c] : end])
        for i in range(rows[c], end):
            values[i] = total[indices[i]]
            total[indices[i]] = 0.0


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
def _run_sizes(item: Any, shift: int, P: int) -> Any:
    """Where each run of ``2^shift`` items begins among the votes."""
    start = np.zeros(P + 1, dtype=np.int64)
    for s in range(len(item)):
        start[(item[s] >> shift) + 1] += 1
    for p in range(P):
        start[p + 1] += start[p]
    return start


@njit(nogil=True, cache=True)
def _deal_votes(item: Any, annotator: Any, shift: int, fill: Any, items: Any, packed: Any) -> None:
    for s in range(len(item)):
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
    fill = np.empty(size, dtype=np.int64)
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
        run = np.empty(b - a, dtype=np.int64)
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
def _mark(values: Any, low: int, seen: Any) -> None:
    for s in range(len(values)):
        seen[values[s] - low] = True


@njit(nogil=True, cache=True)
def _take(lo: int, hi: int, values: Any, order: Any, out: Any) -> None:
    for i in range(lo, hi):
        out[i] = values[order[i]]


@njit(nogil=True, cache=True)
def _code_few(first: Any, second: Any, codes: Any, rows: Any) -> Any:
    """Codes by open addressing in one small table; -1 as soon as there are more distinct values than ``rows`` holds."""
    size = 4 * len(rows)
    key, check = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint32)
    value = np.full(size, -1, dtype=np.int32)
    used = 0
    for s in range(len(first)):
        h, g = first[s], second[s]
        at = np.int64(h & np.uint64(size - 1))
        while value[at] >= 0 and (key[at] != h or check[at] != g):
            at = (at + 1) & (size - 1)
        if value[at] < 0:
            if used == len(rows):
                return -1
            key[at], check[at], value[at] = h, g, used
            rows[used] = s
            used += 1
        codes[s] = value[at]
    return used


@njit(nogil=True, cache=True)
def _partition_sizes(first: Any, bits: int) -> Any:
    """Where each partition begins: rows counted by the top ``bits`` bits of their hash."""
    start = np.zeros((1 << bits) + 1, dtype=np.int64)
    shift = np.uint64(64 - bits)
    for s in range(len(first)):
        start[np.int64(first[s] >> shift) + 1] += 1
    for p in range(1 << bits):
        start[p + 1] += start[p]
    return start


@njit(nogil=True, cache=True)
def _deal_hashes(first: Any, second: Any, bits: int, fill: Any, row: Any, h: Any, g: Any) -> None:
    shift = np.uint64(64 - bits)
    for s in range(len(first)):
        p = np.int64(first[s] >> shift)
        at = fill[p]
        row[at], h[at], g[at] = s, first[s], second[s]
        fill[p] = at + 1


@njit(nogil=True, cache=True)
def _code_partitions(lo: int, hi: int, start: Any, row: Any, h: Any, g: Any, local: Any, seen: Any, used: Any) -> None:
    """Codes within each partition, and the rows where they first appear, by open addressing with linear probing."""
    for p in range(lo, hi):
        a, b = start[p], start[p + 1]
        size = 4
        while size < 2 * (b - a):
            size *= 2
        key, check = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint32)
        value = np.full(size, -1, dtype=np.int32)
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
