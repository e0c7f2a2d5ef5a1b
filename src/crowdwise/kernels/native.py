"""The same kernels compiled: a fused pass over the votes, specialised on the number of classes, threaded.

One visit to an item gathers its scores, takes the softmax and scatters the expected counts, so the
N x K posterior never touches memory unless it is asked for. Threads take runs of items and keep
accumulators of their own; they are plain Python threads, since the compiled code releases the GIL.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from crowdwise.kernels.compiler import even_cuts, in_threads, item_cuts, njit, threads_for
from crowdwise.kernels.reference import Floats, Ints

SPECIALISED = 16
"""Up to this many classes a pass is compiled for exactly that number, so that its loops unroll."""


def expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints, posterior: bool = True,
    threads: int = 0,
) -> tuple[Floats, Floats, float, Floats]:  # fmt: skip
    """As :func:`crowdwise.kernels.reference.expect`; without ``posterior`` the last result is empty."""
    C, K = log_score.shape
    N = len(indptr) - 1
    T = threads or threads_for(len(cell), C)
    run = _expect(K if K <= SPECIALISED else 0, len(weight) > 0)
    q = np.empty((N if posterior else 0, K))
    counts, mass, evidence = np.zeros((T, C, K)), np.zeros((T, K)), np.zeros((T, 1))
    cuts = item_cuts(indptr, T)
    fixed = (indptr, cell, weight, log_score, log_prior, truth, POWERS, q)
    in_threads(lambda t: run(cuts[t], cuts[t + 1], *fixed, counts[t], mass[t], evidence[t]), T)
    return _total(counts), mass.sum(axis=0), float(evidence.sum()), q


def shares(indptr: Ints, label: Ints, weight: Floats, K: int) -> Floats:
    """As :func:`crowdwise.kernels.reference.shares`."""
    out = np.zeros((len(indptr) - 1, K))
    T = threads_for(len(label), 0)
    cuts = item_cuts(indptr, T)
    in_threads(lambda t: _shares(cuts[t], cuts[t + 1], indptr, label, weight, out), T)
    return out


def top_class(q: Floats, margin: float) -> tuple[Ints, Ints]:
    """As :func:`crowdwise.kernels.reference.top_class`."""
    T = threads_for(q.size, 0)
    best, tied, cuts = np.empty(len(q), dtype=np.int32), np.zeros(len(q), dtype=np.bool_), even_cuts(len(q), T)
    in_threads(lambda t: _top_class(cuts[t], cuts[t + 1], q, margin, best, tied), T)
    return best, np.flatnonzero(tied)


def agreements(indptr: Ints, annotator: Ints, label: Ints, decided: Ints, M: int) -> tuple[Ints, Ints]:
    """As :func:`crowdwise.kernels.reference.agreements`."""
    T = threads_for(len(label), 2 * M)
    counts, cuts = np.zeros((T, 2, M), dtype=np.int64), item_cuts(indptr, T)
    in_threads(lambda t: _agreements(cuts[t], cuts[t + 1], indptr, annotator, label, decided, counts[t]), T)
    votes, same = counts.sum(axis=0)
    return votes, same


def scatter(indptr: Ints, cell: Ints, weight: Floats, q: Floats, n_cells: int, threads: int = 0) -> Floats:
    """As :func:`crowdwise.kernels.reference.scatter`."""
    T = threads or threads_for(len(cell), n_cells)
    counts = np.zeros((T, n_cells, q.shape[1]))
    cuts = item_cuts(indptr, T)
    in_threads(lambda t: _scatter(cuts[t], cuts[t + 1], indptr, cell, weight, q, counts[t]), T)
    return _total(counts)


def _total(counts: Floats) -> Floats:
    """The sum over threads."""
    return np.asarray(counts[0] if len(counts) == 1 else counts.sum(axis=0))


def cooccurrence(indptr: Ints, cell: Ints, weight: Floats, n_cells: int) -> tuple[Ints, Ints, Floats]:
    """As :func:`crowdwise.kernels.reference.cooccurrence`, row by row with one dense row of memory (Gustavson)."""
    item = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    by_cell = np.argsort(cell, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=n_cells))])
    w = weight if len(weight) else np.ones(len(cell))
    size = _count_partners(indptr, cell, item, by_cell, start, n_cells)
    rows = np.concatenate([[0], np.cumsum(size)])
    indices, values = np.empty(rows[-1], dtype=np.int64), np.empty(rows[-1])
    _fill_partners(indptr, cell, w, item, by_cell, start, rows, indices, values, n_cells)
    return rows, indices, values


POWERS = np.ldexp(1.0, np.arange(-1077, 1))
"""2^-1077 (which is 0) to 2^0."""


@njit(nogil=True, inline="always")
def _exp(x: float, powers: Any) -> float:
    """e^x for x <= 0, to the last digit or two, in a form that loops can be vectorised over.

    x = n log 2 + r with n whole and |r| <= log(2) / 2; e^r is a Taylor sum, 2^n comes from a table. Cody and
    Waite's two-part log 2 keeps r exact.
    """
    x = max(x, -746.0)  # from here on e^x is 0, as the table says
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
    return p * powers[np.int64(n) + 1077]  # type: ignore[no-any-return]


@cache
def _expect(n_classes: int, weighted: bool) -> Any:
    """The fused pass over items ``lo`` to ``hi``, for exactly ``n_classes`` (0: any number), with or without
    weights."""

    @njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
    def run(
        lo: int, hi: int, indptr: Any, cell: Any, weight: Any, log_score: Any, log_prior: Any, truth: Any, powers: Any,
        q: Any, counts: Any, mass: Any, evidence: Any,
    ) -> None:  # fmt: skip
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
                total += top + np.log(z)
            if keep:
                for k in range(K):
                    q[n, k] = x[k]
            for s in range(indptr[n], indptr[n + 1]):
                c = cell[s]
                for k in range(K):
                    counts[c, k] += weight[s] * x[k] if weighted else x[k]
            for k in range(K):
                mass[k] += x[k]
        evidence[0] = total

    return run


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
def _scatter(lo: int, hi: int, indptr: Any, cell: Any, weight: Any, q: Any, counts: Any) -> None:
    K = q.shape[1]
    for n in range(lo, hi):
        for s in range(indptr[n], indptr[n + 1]):
            w = weight[s] if weight.size else 1.0
            for k in range(K):
                counts[cell[s], k] += w * q[n, k]


@njit(nogil=True, cache=True)
def _top_class(lo: int, hi: int, q: Any, margin: float, best: Any, tied: Any) -> None:
    for n in range(lo, hi):
        top = 0
        for k in range(1, q.shape[1]):
            if q[n, k] > q[n, top]:
                top = k
        best[n] = top
        limit = q[n, top] - margin
        for k in range(q.shape[1]):
            if k != top and q[n, k] >= limit:
                tied[n] = True


@njit(nogil=True, cache=True)
def _agreements(lo: int, hi: int, indptr: Any, annotator: Any, label: Any, decided: Any, counts: Any) -> None:
    for n in range(lo, hi):
        for s in range(indptr[n], indptr[n + 1]):
            counts[0, annotator[s]] += 1
            if label[s] == decided[n]:
                counts[1, annotator[s]] += 1


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
    indptr: Any, cell: Any, w: Any, item: Any, by_cell: Any, start: Any, rows: Any, indices: Any, values: Any,
    n_cells: int,
) -> None:  # fmt: skip
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
