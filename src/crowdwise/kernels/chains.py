"""Exact sums over all taggings of sequences: forward-backward and Viterbi, in plain numpy and log space.

The tokens of sequence g are ``starts[g]`` to ``starts[g + 1]``. A tagging has the probability

    P(y) = first[y_1] * prod_t A[y_{t-1}, y_t]          P(votes | y) = prod over votes of s[cell, y_token]

=====================  ==================  =======================================================================
symbol                 code                equation
=====================  ==================  =======================================================================
log first, log A       ``log_prior``       (1 + K) x K: the first row, then the rows of A; ``-inf`` where impossible
e[t, k]                ``emissions``       sum over the votes on token t of w log s[cell, k]
a[t, k]                ``forward``         e[t, k] + log sum_j exp(a[t-1, j] + log A[j, k])
b[t, j]                ``backward``        log sum_k exp(log A[j, k] + e[t+1, k] + b[t+1, k])
q[t, k]                posterior           exp(a[t, k] + b[t, k] - log P(votes of the sequence))
c[j, k]                pairs               sum over neighbours of P(y_t = j, y_{t+1} = k, given the votes)
=====================  ==================  =======================================================================

All sequences take a step together; those that are over drop out. Messages are logarithms. A step needs log sum_j
exp(a[j]) A[j, k]; taking out the largest a[j] makes that one product with A for K exponentials, where the sum of
logarithms would take K^2. Only where the product vanishes (the largest state cannot be followed by k, and all that can
are e^-600 times less probable) is the sum taken term by term. L. R. Rabiner, A tutorial on hidden Markov models and
selected applications in speech recognition, 1989.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from crowdwise import kernels
from crowdwise.kernels import reference
from crowdwise.kernels.reference import Floats, Ints

VANISHED = 1e-270
"""Below it a product may have lost terms to underflow."""


def expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints, starts: Ints
) -> tuple[Floats, Floats, float, Floats]:
    """Expected counts (cells x K), those of the chain ((1 + K) x K, like the prior), log-likelihood and posterior.

    ``truth`` holds a class code per token (-1 unknown), or nothing.
    """
    C, K = log_score.shape
    e = emissions(indptr, cell, weight, log_score, truth)
    log_A, steps = log_prior[1:], list(_steps(starts))
    a, b = np.empty_like(e), np.zeros_like(e)
    a[steps[0]] = log_prior[0] + e[steps[0]]
    for rows in steps[1:]:
        a[rows] = _followed(a[rows - 1], log_A) + e[rows]
    for rows in reversed(steps[1:]):
        b[rows - 1] = _followed(e[rows] + b[rows], log_A.T)
    evidence = _log_sum(a[starts[1:] - 1], axis=1)
    q = np.exp(a + b - np.repeat(evidence, np.diff(starts))[:, None])
    q /= q.sum(axis=1, keepdims=True)
    later = np.delete(np.arange(len(e)), starts[:-1])
    chain = np.vstack([q[starts[:-1]].sum(axis=0), _pairs(a[later - 1], log_A, (e + b)[later])])
    return kernels.scatter(indptr, cell, weight, q, C), chain, float(evidence.sum()), q


def _followed(x: Floats, log_A: Floats) -> Floats:
    """log sum_j exp(x[., j] + log A[j, k])."""
    top = _peak(x)
    z = np.exp(x - top) @ np.exp(log_A)
    with np.errstate(divide="ignore"):
        out = top + np.log(z)
    lost = np.flatnonzero((z <= VANISHED).any(axis=1))
    out[lost] = _log_sum(x[lost, :, None] + log_A, axis=1)
    return np.asarray(out)


def _pairs(x: Floats, log_A: Floats, y: Floats) -> Floats:
    """c[j, k]: the sum of exp(x[., j] + log A[j, k] + y[., k]), each row scaled to a sum of one."""
    A, u, v = np.exp(log_A), np.exp(x - _peak(x)), np.exp(y - _peak(y))
    z = ((u @ A) * v).sum(axis=1)
    kept = z > VANISHED
    rest = x[~kept, :, None] + log_A + y[~kept, None, :]
    rest = np.exp(rest - _log_sum(rest.reshape(len(rest), log_A.size), axis=1)[:, None, None])
    return np.asarray(A * (u[kept].T @ (v[kept] / z[kept, None])) + rest.sum(axis=0))


def emissions(indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, truth: Ints) -> Floats:
    """e[t, k], with -inf for every class but the true one where that is known."""
    e = reference.logits(indptr, cell, weight, log_score, np.zeros((1, log_score.shape[1])))
    if len(truth):
        known = np.flatnonzero(truth >= 0)
        held = e[known, truth[known]]
        e[known] = -np.inf
        e[known, truth[known]] = held
    return e


def viterbi(logit: Floats, log_prior: Floats, starts: Ints) -> Ints:
    """The tagging of every sequence with the largest sum of token logits and log prior; among equals the first."""
    T, K = logit.shape
    log_first, log_A = log_prior[0], log_prior[1:]
    steps = list(_steps(starts))
    best, came = np.empty((T, K)), np.zeros((T, K), dtype=np.int32)
    best[steps[0]] = log_first + logit[steps[0]]
    for rows in steps[1:]:
        reach = best[rows - 1][:, :, None] + log_A
        came[rows] = reach.argmax(axis=1)
        best[rows] = reach.max(axis=1) + logit[rows]
    path = np.empty(T, dtype=np.int32)
    last = starts[1:] - 1
    path[last] = best[last].argmax(axis=1)
    for rows in reversed(steps[1:]):
        path[rows - 1] = came[rows, path[rows]]
    return path


def _steps(starts: Ints) -> Iterator[Ints]:
    """The first tokens of all sequences, then the second ones of those that have them, and so on."""
    length = np.diff(starts)
    order = np.argsort(-length, kind="stable")
    first, length = starts[:-1][order], length[order]
    for t in range(int(length[0])):
        yield first[: np.searchsorted(-length, -t, side="left")] + t


def _peak(x: Floats) -> Floats:
    """The largest of each row, or 0 where there is none."""
    top = x.max(axis=1, keepdims=True)
    return np.where(np.isfinite(top), top, 0.0)


def _log_sum(x: Floats, axis: int) -> Any:
    """log sum exp, where whole rows may be -inf."""
    top = x.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)
