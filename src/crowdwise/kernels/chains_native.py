"""Sums over taggings, compiled: one visit to a sequence gathers scores, goes forward, backward, and counts.

Messages are logarithms. A step needs log sum_j exp(a[j]) A[j, k]; taking out the largest a[j] makes that one product
with A for K exponentials, where the sum of logarithms would take K^2. Only where the product vanishes (the largest
state cannot be followed by k, and all that can are e^-600 times less probable) is the sum taken term by term.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.kernels.compiler import in_threads, item_cuts, njit, threads_for
from crowdwise.kernels.reference import Floats, Ints

VANISHED = 1e-270
"""Below it a product may have lost terms to underflow."""


def expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints, starts: Ints,
    posterior: bool = True, threads: int = 0,
) -> tuple[Floats, Floats, float, Floats]:  # fmt: skip
    """As :func:`crowdwise.kernels.chains.reference_expect`; without ``posterior`` the last result is empty."""
    C, K = log_score.shape
    N = len(indptr) - 1
    T = threads or threads_for(len(cell) + N, C)
    cuts = item_cuts(starts, T)
    q = np.empty((N if posterior else 0, K))
    counts, chain, evidence = np.zeros((T, C, K)), np.zeros((T, K + 1, K)), np.zeros((T, 1))
    longest = int(np.diff(starts).max())
    fixed = (indptr, cell, weight, log_score, log_prior, np.exp(log_prior), truth, starts, longest, q)
    in_threads(lambda t: _expect(cuts[t], cuts[t + 1], *fixed, counts[t], chain[t], evidence[t]), T)
    return counts.sum(axis=0), chain.sum(axis=0), float(evidence.sum()), q


def viterbi(logit: Floats, log_prior: Floats, starts: Ints) -> Ints:
    """As :func:`crowdwise.kernels.chains.reference_viterbi`."""
    path = np.empty(len(logit), dtype=np.int32)
    T = threads_for(len(logit), 0)
    cuts = item_cuts(starts, T)
    longest = int(np.diff(starts).max())
    in_threads(lambda t: _viterbi(cuts[t], cuts[t + 1], logit, log_prior, starts, longest, path), T)
    return path


@njit(nogil=True, inline="always")
def _peak(x: Any) -> float:
    top = x[0]
    for k in range(1, len(x)):
        top = max(top, x[k])
    return top if top > -np.inf else 0.0


@njit(nogil=True)
def _along(x: Any, row: Any) -> float:
    """log sum_j exp(x[j] + row[j]), term by term."""
    top = -np.inf
    for j in range(len(x)):
        top = max(top, x[j] + row[j])
    if top == -np.inf:
        return -np.inf
    total = 0.0
    for j in range(len(x)):
        total += np.exp(x[j] + row[j] - top)
    return top + np.log(total)  # type: ignore[no-any-return]


@njit(nogil=True, cache=True)
def _expect(
    lo: int, hi: int, indptr: Any, cell: Any, weight: Any, log_score: Any, log_prior: Any, prior: Any, truth: Any,
    starts: Any, longest: int, q: Any, counts: Any, chain: Any, evidence: Any,
) -> None:  # fmt: skip
    K = log_score.shape[1]
    a, b, e = np.empty((longest, K)), np.empty((longest, K)), np.empty((longest, K))
    u, v, x = np.empty(K), np.empty(K), np.empty(K)
    total = 0.0
    for g in range(lo, hi):
        at, L = starts[g], starts[g + 1] - starts[g]
        for t in range(L):
            for k in range(K):
                e[t, k] = 0.0
            for s in range(indptr[at + t], indptr[at + t + 1]):
                w = weight[s] if weight.size else 1.0
                for k in range(K):
                    e[t, k] += w * log_score[cell[s], k]
            if truth.size and truth[at + t] >= 0:
                for k in range(K):
                    if k != truth[at + t]:
                        e[t, k] = -np.inf
            if t == 0:
                for k in range(K):
                    a[0, k] = log_prior[0, k] + e[0, k]
                continue
            top = _peak(a[t - 1])
            for j in range(K):
                u[j] = np.exp(a[t - 1, j] - top)
                x[j] = 0.0
            for j in range(K):
                for k in range(K):
                    x[k] += u[j] * prior[j + 1, k]
            for k in range(K):
                step = top + np.log(x[k]) if x[k] > VANISHED else _along(a[t - 1], log_prior[1:, k])
                a[t, k] = step + e[t, k]
        for k in range(K):
            b[L - 1, k] = 0.0
        for t in range(L - 1, 0, -1):
            for k in range(K):
                x[k] = e[t, k] + b[t, k]
            top, peak = _peak(x), _peak(a[t - 1])
            for k in range(K):
                v[k] = np.exp(x[k] - top)
                u[k] = np.exp(a[t - 1, k] - peak)
            z = 0.0
            for j in range(K):
                step = 0.0
                for k in range(K):
                    step += prior[j + 1, k] * v[k]
                b[t - 1, j] = top + np.log(step) if step > VANISHED else _along(x, log_prior[j + 1])
                z += u[j] * step
            if z > VANISHED:
                for j in range(K):
                    for k in range(K):
                        chain[j + 1, k] += u[j] * prior[j + 1, k] * v[k] / z
            else:
                for j in range(K):
                    v[j] = a[t - 1, j] + b[t - 1, j]
                z = _along(v, np.zeros(K))
                for j in range(K):
                    for k in range(K):
                        chain[j + 1, k] += np.exp(a[t - 1, j] + log_prior[j + 1, k] + x[k] - z)
        for t in range(L):
            for k in range(K):
                x[k] = a[t, k] + b[t, k]
            top = _peak(x)
            z = 0.0
            for k in range(K):
                x[k] = np.exp(x[k] - top)
                z += x[k]
            if t == L - 1:
                total += top + np.log(z)
            for k in range(K):
                x[k] /= z
                if q.shape[0] > 0:
                    q[at + t, k] = x[k]
                if t == 0:
                    chain[0, k] += x[k]
            for s in range(indptr[at + t], indptr[at + t + 1]):
                w = weight[s] if weight.size else 1.0
                for k in range(K):
                    counts[cell[s], k] += w * x[k]
    evidence[0] = total


@njit(nogil=True, cache=True)
def _viterbi(lo: int, hi: int, logit: Any, log_prior: Any, starts: Any, longest: int, path: Any) -> None:
    K = logit.shape[1]
    best, new = np.empty(K), np.empty(K)
    came = np.zeros((longest, K), dtype=np.int32)
    for g in range(lo, hi):
        at, L = starts[g], starts[g + 1] - starts[g]
        for k in range(K):
            best[k] = log_prior[0, k] + logit[at, k]
        for t in range(1, L):
            for k in range(K):
                from_j, reach = 0, best[0] + log_prior[1, k]
                for j in range(1, K):
                    here = best[j] + log_prior[j + 1, k]
                    if here > reach:
                        from_j, reach = j, here
                came[t, k] = from_j
                new[k] = reach + logit[at + t, k]
            best[:] = new
        k = 0
        for j in range(1, K):
            if best[j] > best[k]:
                k = j
        for t in range(L - 1, 0, -1):
            path[at + t] = k
            k = came[t, k]
        path[at] = k
