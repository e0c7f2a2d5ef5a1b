"""The definition: every kernel in plain numpy, one line per equation.

Symbols: N items, S votes, K classes, C = M * L cells (an annotator and a label; cell = m * L + l).

=============  ==========  ========================================================================
``indptr``     N + 1       votes of item n are rows ``indptr[n]:indptr[n + 1]``
``cell``       S           which (annotator, label) each vote is
``weight``     S or empty  how much each vote counts (empty: 1)
``log_score``  C x K       log s[c, k]: what a vote in cell c says in favour of class k
``log_prior``  1 or N x K  log prior of the classes, the same for all items or one row per item
``truth``      N or empty  the class of the items where it is known, -1 elsewhere
=============  ==========  ========================================================================

Nothing here leaves log space before the row maximum is taken out, so an item may have one vote or a
million.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]


def expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints
) -> tuple[Floats, Floats, float, Floats]:
    """One pass over the votes: expected counts (C x K), class mass (K), log-likelihood, posterior (N x K).

    ====================================  =============================================================
    logit[n, k]                           log prior[n, k] + sum over votes s of n of w_s log s[cell_s, k]
    q[n, k]                               softmax over k; one-hot where the truth is known
    counts[c, k]                          sum over votes s in cell c of w_s q[item_s, k]
    mass[k]                               sum over n of q[n, k]
    log-likelihood                        sum over n of logsumexp_k logit[n, k], or of the logit of the
                                          true class
    ====================================  =============================================================
    """
    C, K = log_score.shape
    logit = logits(indptr, cell, weight, log_score, log_prior)
    top = logit.max(axis=1, keepdims=True)
    q = np.exp(logit - top)
    total = q.sum(axis=1, keepdims=True)
    q /= total
    evidence = (top + np.log(total))[:, 0]
    known = np.flatnonzero(truth >= 0)
    if len(known):
        evidence[known] = logit[known, truth[known]]
        q[known] = 0.0
        q[known, truth[known]] = 1.0
    return scatter(indptr, cell, weight, q, C), q.sum(axis=0), float(evidence.sum()), q


def logits(indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats) -> Floats:
    """logit[n, k] = log prior[n, k] + sum over the votes s of n of w_s log s[cell_s, k]."""
    N, K = len(indptr) - 1, log_score.shape[1]
    item = np.repeat(np.arange(N), np.diff(indptr))
    out = np.empty((N, K))
    for k in range(K):
        votes = log_score[:, k][cell]
        out[:, k] = np.bincount(item, weights=votes * weight if len(weight) else votes, minlength=N)
    return out + log_prior


def shares(indptr: Ints, label: Ints, weight: Floats, K: int) -> Floats:
    """v[n, k]: the (weighted) share of class k among the votes of item n; uniform where it has none."""
    N = len(indptr) - 1
    item = np.repeat(np.arange(N), np.diff(indptr))
    counts = np.bincount(item * K + label, weights=weight if len(weight) else None, minlength=N * K).reshape(N, K)
    total = counts.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(counts, total, out=np.full((N, K), 1.0 / K), where=total > 0))


def top_class(q: Floats, margin: float) -> tuple[Ints, Ints]:
    """The first of the largest in each row, and the rows in which another one is within the margin of it."""
    tied = q >= q.max(axis=1, keepdims=True) - margin
    return q.argmax(axis=1).astype(np.int32), np.flatnonzero(tied.sum(axis=1) > 1)


def agreements(indptr: Ints, annotator: Ints, label: Ints, decided: Ints, M: int) -> tuple[Ints, Ints]:
    """The number of votes of each annotator, and of those that say what was decided for their item."""
    same = annotator[label == np.repeat(decided, np.diff(indptr))]
    return np.bincount(annotator, minlength=M), np.bincount(same, minlength=M)


def scatter(indptr: Ints, cell: Ints, weight: Floats, q: Floats, n_cells: int) -> Floats:
    """counts[c, k] = sum over the votes s in cell c of w_s q[item_s, k]."""
    N, K = q.shape
    item = np.repeat(np.arange(N), np.diff(indptr))
    counts = np.empty((n_cells, K))
    for k in range(K):
        mass = q[:, k][item]
        counts[:, k] = np.bincount(cell, weights=mass * weight if len(weight) else mass, minlength=n_cells)
    return counts


def cooccurrence(indptr: Ints, cell: Ints, weight: Floats, n_cells: int) -> tuple[Ints, Ints, Floats]:
    """How often two cells meet on an item: ``(indptr, indices, values)`` of a symmetric C x C sparse matrix.

    values[c, d] = sum over items of w_c w_d, over pairs of different votes of the same item.
    """
    size = np.diff(indptr)
    pairs = size * size
    left = np.repeat(np.arange(len(cell)), np.repeat(size, size))  # vote s stands first once for each vote of its item
    within = np.arange(pairs.sum()) - np.repeat(np.concatenate([[0], np.cumsum(pairs)[:-1]]), pairs)
    right = np.repeat(indptr[:-1], pairs) + within % np.repeat(size, pairs)
    different = left != right
    left, right = left[different], right[different]
    w = weight if len(weight) else np.ones(len(cell))
    key, place = np.unique(cell[left].astype(np.int64) * n_cells + cell[right], return_inverse=True)
    values = np.bincount(place, weights=w[left] * w[right], minlength=len(key)).astype(np.float64)
    rows = np.searchsorted(key, np.arange(n_cells + 1) * np.int64(n_cells))
    return rows, key % n_cells, values
