"""The matrices of comparisons, as arrays where they are small and sparse where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints

DENSE = 3000
"""Up to so many items matrices are items x items arrays."""
CELLS = 30_000_000
"""Up to so many cells an items x annotators table is an array."""


def total(index: Ints, value: Floats, size: int) -> Floats:
    """Sums of values by their index."""
    return np.bincount(index, value, size).astype(np.float64, copy=False)


def pair_table(i: Ints, j: Ints, w: Floats, N: int) -> Any:
    """N x N: sums of weights by pair."""
    if N <= DENSE:
        return total(i * N + j, w, N * N).reshape(N, N)
    from scipy import sparse

    return sparse.coo_array((w, (i, j)), shape=(N, N)).tocsr()


def cross_table(i: Ints, j: Ints, m: Ints, w: Floats, N: int, M: int) -> Any:
    """N x M: +w for winners, -w for losers."""
    if N <= DENSE and N * M <= CELLS:
        return (total(i * M + m, w, N * M) - total(j * M + m, w, N * M)).reshape(N, M)
    from scipy import sparse

    at = (np.concatenate([i, j]), np.concatenate([m, m]))
    return sparse.coo_array((np.concatenate([w, -w]), at), shape=(N, M)).tocsr()


def laplacian(A: Any, N: int, size: int) -> Any:
    """sum of a_ij (e_i - e_j)(e_i - e_j)', with empty rows and columns for what is shared."""
    if isinstance(A, np.ndarray):
        H = np.zeros((size, size))
        np.negative(A, out=H[:N, :N])
        H[:N, :N] -= A.T
        H[np.arange(N), np.arange(N)] += A.sum(axis=0) + A.sum(axis=1)
        return H
    from scipy import sparse

    both = A + A.T
    diagonal = np.append(np.asarray(both.sum(axis=1)).ravel(), np.zeros(size - N))
    both = both.copy()
    both.resize((size, size))
    return (sparse.diags_array(diagonal) - both).tocsr()


def side_by_side(parts: list[Any]) -> Any:
    """Tables of items and annotators, as one."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.hstack(parts)
    from scipy import sparse

    return sparse.hstack(parts).tocsr()


def with_lines(C: Any, rows: int, M: int, *lines: Floats) -> Any:
    """The table of items and annotators with a line for each of what is shared (zeros where it does not meet theta)."""
    below = [*lines, *[np.zeros(M)] * (rows - len(lines))]
    if not below:
        return C
    if isinstance(C, np.ndarray):
        return np.vstack([C, *below])
    from scipy import sparse

    return sparse.vstack([C, *(sparse.csr_array(line[None, :]) for line in below)]).tocsr()


def with_shared(H: Any, at: int, cross: Floats, own: float) -> Any:
    """The row, column and diagonal of tau."""
    if isinstance(H, np.ndarray):
        H[at, : len(cross)] = H[: len(cross), at] = cross
        H[at, at] = own
        return H
    from scipy import sparse

    n, k = H.shape[0], np.arange(len(cross))
    row = sparse.coo_array((cross, (np.full(len(cross), at), k)), shape=(n, n))
    return (H + row + row.T + sparse.coo_array(([own], ([at], [at])), shape=(n, n))).tocsr()


def add_diagonal(H: Any, extra: Floats) -> Any:
    """H + diag(extra); an array is changed in place."""
    if isinstance(H, np.ndarray):
        H[np.arange(len(extra)), np.arange(len(extra))] += extra
        return H
    from scipy import sparse

    return (H + sparse.diags_array(extra)).tocsr()
