"""Where a clustering starts: a spectral embedding of the pairs, and k-means on it."""

from __future__ import annotations

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.similarities import Similarities

SOFT = 0.1
"""The share of a start's probability that is spread over all clusters."""


def embed(answers: Similarities, dimensions: int) -> Floats:
    """N x D: leading eigenvectors of the pair matrix, its answers centred and its rows normalised by degree."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import eigsh

    N, weight = len(answers), answers.weights
    mean = float((weight @ answers.same + 1.0) / (weight.sum() + 2.0))
    value = np.bincount(answers.pair, weights=weight * (answers.same - mean), minlength=answers.n_pairs)
    size = np.bincount(answers.pair, weights=weight * np.abs(answers.same - mean), minlength=answers.n_pairs)
    a, b = answers.pairs.T.astype(np.int64)
    degree = np.bincount(np.concatenate([a, b]), weights=np.tile(size, 2), minlength=N).astype(np.float64)
    degree = degree + (degree[degree > 0].mean() if (degree > 0).any() else 1.0)  # else few pairs dominate
    value = value / np.sqrt(degree[a] * degree[b])
    matrix = csr_array((np.tile(value, 2), (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(N, N))
    D = min(dimensions, N)
    if N <= max(200, 2 * D + 1):
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        v0 = np.random.default_rng(0).normal(size=N)
        values, vectors = eigsh(matrix, k=D, which="LA", v0=v0)
    top = np.argsort(-values)[:D]
    return np.asarray(vectors[:, top] * np.maximum(values[top], 0.0))


def kmeans(x: Floats, K: int, rng: np.random.Generator | None = None, steps: int = 30) -> Ints:
    """Groups of rows; the first centres lie far from each other (drawn by squared distance with a generator)."""
    at = [int(np.argmax((x * x).sum(axis=1))) if rng is None else int(rng.integers(len(x)))]
    gap = ((x - x[at[0]]) ** 2).sum(axis=1)
    while len(at) < K:
        total = gap.sum()
        new = int(gap.argmax()) if rng is None or total <= 0 else int(rng.choice(len(x), p=gap / total))
        at.append(new)
        gap = np.minimum(gap, ((x - x[new]) ** 2).sum(axis=1))
    centres = x[at].copy()
    code = np.zeros(len(x), dtype=np.int64)
    for _ in range(steps):
        away = (centres * centres).sum(axis=1) - 2.0 * x @ centres.T
        code = away.argmin(axis=1)
        count = np.bincount(code, minlength=K)
        for k in np.flatnonzero(count):
            centres[k] = x[code == k].mean(axis=0)
    return code


def soft(code: Ints, K: int) -> Floats:
    """N x K: nearly all on the given cluster."""
    q = np.full((len(code), K), SOFT / K)
    q[np.arange(len(code)), code] += 1.0 - SOFT
    return q
