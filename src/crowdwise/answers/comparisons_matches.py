"""Comparisons as winners and losers: the raw arrays that likelihoods are computed from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.comparisons import LEFT, RIGHT, TIE, Comparisons


@dataclass(frozen=True)
class Matches:
    """Comparisons as raw arrays: the decided ones first, then the ties."""

    winner: Ints
    loser: Ints
    annotator: Ints
    sign: Floats
    """+1 where the winner (the first, of a tie) is the left item, -1 where the loser is."""
    weight: Floats
    decided: int
    """So many rows have a winner; the others are ties."""
    n_items: int
    n_annotators: int
    group: Ints | None = None
    """The group (question) of each row, where that was asked for."""
    extra: Floats | None = None
    """Rows x covariates: what the winner has more of than the loser."""

    @classmethod
    def of(
        cls, table: Comparisons, *, ties: str = "davidson", by_annotator: bool = True, placed: bool = True,
        grouped: bool = False, covariates: Floats | None = None,
    ) -> Matches:  # fmt: skip
        """The comparisons; ``ties`` as they are (``davidson``), as ``half`` a win for each, or left out (``drop``).
        What a model does not use (annotators, positions) is dropped first, so that more rows are equal. ``grouped``:
        with the question of each. ``covariates``: rows x K, of the left item less the right one."""
        y, w, p = table.outcome, table.weights, table.left_probability
        rows = np.arange(len(y))
        if p is not None:  # a verdict with a probability counts in part for either side
            soft = np.flatnonzero(np.isfinite(p))
            w = np.append(np.where(np.isfinite(p), p, 1.0) * w, ((1.0 - p) * w)[soft])
            y = np.append(np.where(np.isfinite(p), LEFT, y), np.full(len(soft), RIGHT))
            kept = w > 0.0
            rows, w, y = np.append(rows, soft)[kept], w[kept], y[kept]
        if ties != "davidson":
            d, tie = np.flatnonzero(y != TIE), np.flatnonzero((y == TIE) & (ties == "half"))
            y = np.concatenate([y[d], np.full(len(tie), LEFT), np.full(len(tie), RIGHT)])
            rows, w = rows[np.concatenate([d, tie, tie])], np.concatenate([w[d], 0.5 * w[tie], 0.5 * w[tie]])
        a, b = table.left[rows].astype(np.int64), table.right[rows].astype(np.int64)
        m, M = np.zeros(len(rows), np.int64), 1
        if by_annotator:
            m, M = table.annotator[rows].astype(np.int64), table.n_annotators
        group = None if not grouped or table.question is None else table.question[rows].astype(np.int64)
        extra = None if covariates is None else covariates[rows]
        tie, left_won = y == TIE, y != RIGHT
        winner, loser = np.where(left_won, a, b), np.where(left_won, b, a)
        if not placed and tie.any():  # a tie has no winner: its items in one order
            low, high = np.minimum(winner, loser), np.maximum(winner, loser)
            winner, loser = np.where(tie, low, winner), np.where(tie, high, loser)
        N = table.n_items
        sign = np.where(winner == a, 1.0, -1.0)
        cells = 2 * M * N * N * (2 if placed else 1)
        if group is None and extra is None and cells <= max(400_000, 2 * len(a)):  # equal rows, by a table of all
            key = ((tie * np.int64(M) + m) * N + winner) * N + loser
            count = total(2 * key + (sign > 0.0) if placed else key, w, cells)
            key = np.flatnonzero(count)
            w, sign = count[key], np.where(key % 2 == 1, 1.0, -1.0) if placed else np.ones(len(key))
            key = key // 2 if placed else key
            won, pair = np.divmod(key, N * N)
            return cls(pair // N, pair % N, won % M, sign, w, int((won < M).sum()), N, M)
        order: Any = np.argsort(tie, kind="stable") if tie.any() else slice(None)
        group = None if group is None else group[order]
        extra = None if extra is None else (extra * sign[:, None])[order]
        winner, loser, m, sign, w = (part[order] for part in (winner, loser, m, sign, w.astype(np.float64)))
        return cls(winner, loser, m, sign, w, int((~tie).sum()), N, M, group, extra)

    @property
    def n_ties(self) -> int:
        return len(self.winner) - self.decided

    def scaled(self, factor: Floats) -> Matches:
        """The same comparisons, each annotator's counted ``factor`` times."""
        return replace(self, weight=self.weight * factor[self.annotator])

    def signed(self, factor: Floats) -> Matches:
        """The decided comparisons, each annotator's counted ``factor`` times, reversed where that is below 0."""
        d, f = slice(0, self.decided), factor[self.annotator[: self.decided]]
        back = f < 0.0
        return replace(
            self, winner=np.where(back, self.loser[d], self.winner[d]),
            loser=np.where(back, self.winner[d], self.loser[d]), annotator=self.annotator[d],
            sign=np.where(back, -1.0, 1.0) * self.sign[d], weight=self.weight[d] * np.abs(f),
        )  # fmt: skip


DENSE = 3000
"""Up to so many items matrices are items x items arrays."""


def total(index: Ints, value: Floats, size: int) -> Floats:
    """Sums of values by their index."""
    return np.bincount(index, value, size).astype(np.float64, copy=False)


def difference(i: Ints, j: Ints, value: Floats, N: int) -> Floats:
    """N: + for winners, - for losers."""
    return total(i, value, N) - total(j, value, N)


def pair_table(i: Ints, j: Ints, w: Floats, N: int) -> Any:
    """N x N: sums of weights by pair."""
    if N <= DENSE:
        return total(i * N + j, w, N * N).reshape(N, N)
    from scipy import sparse

    return sparse.coo_array((w, (i, j)), shape=(N, N)).tocsr()


def cross_table(i: Ints, j: Ints, m: Ints, w: Floats, N: int, M: int) -> Any:
    """N x M: +w for winners, -w for losers."""
    if N <= DENSE and N * M <= 30_000_000:
        return (total(i * M + m, w, N * M) - total(j * M + m, w, N * M)).reshape(N, M)
    from scipy import sparse

    at = (np.concatenate([i, j]), np.concatenate([m, m]))
    return sparse.coo_array((np.concatenate([w, -w]), at), shape=(N, M)).tocsr()


def laplacian(A: Any) -> Any:
    """sum of a_ij (e_i - e_j)(e_i - e_j)'."""
    if isinstance(A, np.ndarray):
        H = -A - A.T
        H[np.arange(len(A)), np.arange(len(A))] += A.sum(axis=0) + A.sum(axis=1)
        return H
    from scipy import sparse

    both = A + A.T
    return (sparse.diags_array(np.asarray(both.sum(axis=1)).ravel()) - both).tocsr()


def stacked(parts: list[Any], axis: int) -> Any:
    """Tables above each other (0) or side by side (1); sparse where one is."""
    if len(parts) == 1 or all(isinstance(part, np.ndarray) for part in parts):
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
    from scipy import sparse

    return (sparse.hstack if axis else sparse.vstack)([sparse.csr_array(part) for part in parts]).tocsr()


def scaled(C: Any, columns: Floats) -> Any:
    """C with each column multiplied."""
    if isinstance(C, np.ndarray):
        return C * columns
    from scipy import sparse

    return C @ sparse.diags_array(columns)


def bordered(H: Any, rows: Floats) -> Any:
    """H with these as its last rows and columns (all of them, their own block included)."""
    return stacked([stacked([H, rows[:, : H.shape[0]].T], 1), rows], 0) if len(rows) else H


def add_diagonal(H: Any, extra: Floats) -> Any:
    """H + diag(extra); an array is changed in place."""
    if isinstance(H, np.ndarray):
        H[np.arange(len(extra)), np.arange(len(extra))] += extra
        return H
    from scipy import sparse

    return (H + sparse.diags_array(extra)).tocsr()
