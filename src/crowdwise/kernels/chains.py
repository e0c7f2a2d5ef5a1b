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

All sequences take a step together; those that are over drop out. ``chains_native`` is the same, compiled, sequence by
sequence. L. R. Rabiner, A tutorial on hidden Markov models and selected applications in speech recognition, 1989.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from crowdwise import kernels
from crowdwise.kernels import reference
from crowdwise.kernels.reference import Floats, Ints


def expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints, starts: Ints,
    *, posterior: bool = True, engine: str = "auto",
) -> tuple[Floats, Floats, float, Floats]:  # fmt: skip
    """Expected counts (cells x K), those of the chain ((1 + K) x K, like the prior), log-likelihood and posterior.

    ``truth`` holds a class code per token (-1 unknown), or nothing.
    """
    if _native((len(cell) + len(starts)) * log_score.shape[1] * 4, engine):
        from crowdwise.kernels import chains_native

        return chains_native.expect(indptr, cell, weight, log_score, log_prior, truth, starts, posterior)
    return reference_expect(indptr, cell, weight, log_score, log_prior, truth, starts)


def viterbi(logit: Floats, log_prior: Floats, starts: Ints, *, engine: str = "auto") -> Ints:
    """The tagging of every sequence with the largest sum of token logits and log prior; among equals the first."""
    if _native(4 * logit.size, engine):
        from crowdwise.kernels import chains_native

        return chains_native.viterbi(logit, log_prior, starts)
    return reference_viterbi(logit, log_prior, starts)


def _native(work: int, engine: str) -> bool:
    return kernels.choose(work, engine) is not reference


def reference_expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints, starts: Ints
) -> tuple[Floats, Floats, float, Floats]:
    """The definition of :func:`expect`."""
    C, K = log_score.shape
    e = emissions(indptr, cell, weight, log_score, truth)
    log_first, log_A = log_prior[0], log_prior[1:]
    steps = list(_steps(starts))
    a, b = forward(e, log_first, log_A, steps), backward(e, log_A, steps)
    evidence = _log_sum(a[starts[1:] - 1], axis=1)
    of_token = np.repeat(evidence, np.diff(starts))[:, None]
    q = np.exp(a + b - of_token)
    q /= q.sum(axis=1, keepdims=True)
    pairs = np.zeros((K, K))
    for rows in steps[1:]:
        joint = a[rows - 1][:, :, None] + log_A + (e + b)[rows][:, None, :] - of_token[rows][:, :, None]
        pairs += np.exp(joint).sum(axis=0)
    chain = np.vstack([q[starts[:-1]].sum(axis=0), pairs])
    return reference.scatter(indptr, cell, weight, q, C), chain, float(evidence.sum()), q


def emissions(indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, truth: Ints) -> Floats:
    """e[t, k], with -inf for every class but the true one where that is known."""
    e = reference.logits(indptr, cell, weight, log_score, np.zeros((1, log_score.shape[1])))
    if len(truth):
        known = np.flatnonzero(truth >= 0)
        held = e[known, truth[known]]
        e[known] = -np.inf
        e[known, truth[known]] = held
    return e


def forward(e: Floats, log_first: Floats, log_A: Floats, steps: list[Ints]) -> Floats:
    a = np.empty_like(e)
    a[steps[0]] = log_first + e[steps[0]]
    for rows in steps[1:]:
        a[rows] = _log_sum(a[rows - 1][:, :, None] + log_A, axis=1) + e[rows]
    return a


def backward(e: Floats, log_A: Floats, steps: list[Ints]) -> Floats:
    b = np.zeros_like(e)
    for rows in reversed(steps[1:]):
        b[rows - 1] = _log_sum(log_A + (e[rows] + b[rows])[:, None, :], axis=2)
    return b


def reference_viterbi(logit: Floats, log_prior: Floats, starts: Ints) -> Ints:
    """The definition of :func:`viterbi`."""
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


def _log_sum(x: Floats, axis: int) -> Any:
    """log sum exp, where whole rows may be -inf."""
    top = x.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)
