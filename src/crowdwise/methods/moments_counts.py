"""The joint label shares of one, two and three annotators on the same items: the moments of ``tensor``.

=================  ============  ===================================================================================
symbol             code          equation
=================  ============  ===================================================================================
cell               c             annotator * K + label
w p[m]             ``first``     w times the share of each label among m's votes, w = n[m] or 1
w R[m, a]          ``pairs``     w times the joint label shares of m and a on their n[m, a] common items
w T[m, a, b]       ``triples``   w times the joint label shares of three annotators on their n[m, a, b] common items
=================  ============  ===================================================================================

With ``weighting="counts"`` w is the number of common items, so that w times a share is a plain count; with ``"blocks"``
it is 1. Only triples of cells that were seen are kept: with r_n votes on item n, at most the sum over items of r_n (r_n
- 1) (r_n - 2) / 6, and at most K^3 for each three annotators. An annotator is never paired with themselves, and a vote
of weight w counts as w votes. Too many annotators who share many items are refused by ``check_size``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import InputError

VOTE_TRIPLES = 30_000_000
"""The most triples of votes on a common item that are counted: some ten seconds."""
CELLS = 5_000_000
"""The most different triples of (annotator, label) that are held: under a gigabyte, and seconds for each sweep."""
PIECE = 2_000_000
"""Triples of votes that are enumerated at a time."""


@dataclass(frozen=True, eq=False)
class Slab:
    """Some triples: values by rows of two parts (lead, cell) and a column for the third, and weights likewise.

    Of one annotator's slab the lead is the label l. Of all triples, each once, it is the first cell, and the first
    annotator in the weights.
    """

    value: csr_matrix
    lead: Ints
    cell: Ints
    weight: csr_matrix
    weight_lead: Ints
    other: Ints
    leads: tuple[Ints, Ints]
    """The different leads and the first row of each, for rows are in their order."""

    @classmethod
    def of(cls, parts: tuple[Ints, Ints, Ints, Floats], who: tuple[Ints, Ints, Ints, Floats], C: int, J: int) -> Slab:
        lead, cell, third, value = parts
        V, rows = _rows(lead * C + cell, third, value, C)
        first, second, last, w = who
        W, by = _rows(first * J + second, last, w, J)
        return cls(V, rows // C, rows % C, W, by // J, by % J, np.unique(rows // C, return_index=True))

    def meet(self, flat: Floats) -> Floats:
        """Row by row, sum over the third part of w T A * A."""
        return np.asarray(flat[self.cell] * (self.value @ flat))

    def squares(self, G: Floats) -> Floats:
        """Row by row, sum over the third annotator of w G * G (G flat, one row for each annotator)."""
        return np.asarray(G[self.other] * (self.weight @ G))


@dataclass(frozen=True, eq=False)
class Moments:
    """The first three moments of J annotators (the last, the gold labels) over C = J K cells, times their weights."""

    first: Floats
    first_weight: Floats
    pairs: list[csr_matrix]
    """K x C for each annotator."""
    pair_weight: list[tuple[Ints, Floats]]
    """For each annotator the others with common items, and w."""
    own: list[Slab]
    """For each annotator all of their triples."""
    triples: Slab
    """Every triple once."""
    size: float
    """sum w |moment|^2."""


def check_size(per_item: Ints, J: int, K: int) -> None:
    """Refuse more triples than can be counted or held."""
    r = per_item.astype(np.float64)
    votes = float((r * (r - 1.0) * (r - 2.0)).sum() / 6.0)
    cells = min(votes, J * (J - 1.0) * (J - 2.0) / 6.0 * K**3)
    if votes > VOTE_TRIPLES or cells > CELLS:
        raise InputError(
            f"{J:,} annotators have votes enough to take part, with {votes:,.0f} triples of votes on common items and "
            f"up to {cells:,.0f} different ones; tensor counts up to {VOTE_TRIPLES:,} and holds up to {CELLS:,}. "
            "Use cnmf (pairs alone) or spectral-ds (triples of groups), or raise min_votes so that fewer take part."
        )


def vote_triples(indptr: Ints, cell: Ints, weight: Floats, C: int, K: int) -> tuple[Ints, Floats]:
    """Triples of cells of three annotators on one item: keys (c0 C + c1) C + c2, sorted, and the sums of w0 w1 w2.

    Votes are in order of annotators within an item, so c0 < c1 < c2. Items with as many votes are taken together, and
    all triples that begin with their i-th vote, so there is no loop over votes.
    """
    keys: list[Ints] = [np.empty(0, dtype=np.int64)]
    sums: list[Floats] = [np.empty(0)]
    size = np.diff(indptr)
    for r in np.unique(size[size > 2]):
        begin = indptr[:-1][size == r]
        for i in range(r - 2):
            j, k = np.triu_indices(r - 1 - i, 1)
            step = max(1, PIECE // len(j))
            for lo in range(0, len(begin), step):
                at = begin[lo : lo + step, None]
                one, two, three = (cell[at + i + place] for place in (np.zeros_like(j), j + 1, k + 1))
                apart = (one // K != two // K) & (two // K != three // K)
                w = weight[at + i] * weight[at + i + 1 + j] * weight[at + i + 1 + k]
                key, place = np.unique(((one * C + two) * C + three)[apart], return_inverse=True)
                keys.append(key)
                sums.append(np.bincount(place, weights=w[apart], minlength=len(key)).astype(np.float64))
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    return key, np.bincount(place, weights=np.concatenate(sums), minlength=len(key)).astype(np.float64)


def statistics(
    item: Ints, cell: Ints, weight: Floats, n_items: int, J: int, K: int, weighting: str = "counts"
) -> Moments:
    """All three moments of votes that are sorted by item and annotator; cell = annotator * K + label."""
    C = J * K
    indptr = np.concatenate([[0], np.cumsum(np.bincount(item, minlength=n_items))])
    said = np.bincount(cell, weights=weight, minlength=C).astype(np.float64).reshape(J, K)
    X = csr_matrix((weight, (item, cell)), shape=(n_items, C))
    met = (X.T @ X).tocoo()
    other = met.row // K != met.col // K
    key, count = vote_triples(indptr, cell, weight, C, K)
    cells = np.stack([key // C // C, key // C % C, key % C])
    return moments_of(said, (met.row[other], met.col[other], met.data[other]), cells, count, weighting)


def moments_of(
    said: Floats, met: tuple[Ints, Ints, Floats], cells: Ints, count: Floats, weighting: str = "counts"
) -> Moments:
    """Counts of labels (J x K), of pairs of cells (both ways round) and of triples of cells (3 x T, ascending)."""
    J, K = said.shape
    C = J * K
    row, column, pair = met
    who = cells // K
    pair_key, pair_place = np.unique(row.astype(np.int64) // K * J + column // K, return_inverse=True)
    key, place = np.unique((who[0] * J + who[1]) * J + who[2], return_inverse=True)
    trio = np.stack([key // J // J, key // J % J, key % J])
    said, w1, size1 = _weighted(said.ravel(), np.repeat(np.arange(J), K), J, weighting)
    pair, w2, size2 = _weighted(pair, pair_place, len(pair_key), weighting)
    count, w3, size3 = _weighted(count, place, len(key), weighting)
    R = csr_matrix((pair, (row, column)), shape=(C, C))
    at = np.searchsorted(pair_key, np.arange(J + 1) * J)
    own = []
    for m in range(J):
        mine, a, b, value = _around(m, who, cells, count)
        own.append(Slab.of((mine % K, a, b, value), _around(m, trio, trio, w3), C, J))
    return Moments(
        said.reshape(J, K), w1, [R[m * K : (m + 1) * K] for m in range(J)],
        [(pair_key[lo:hi] % J, w2[lo:hi]) for lo, hi in itertools.pairwise(at)], own,
        Slab.of((*cells, count), (*trio, w3), C, J), size1 + size2 / 2.0 + size3,
    )  # fmt: skip


def _weighted(count: Floats, block: Ints, B: int, weighting: str) -> tuple[Floats, Floats, float]:
    """w times the shares of each block, w, and sum w share^2."""
    n = np.bincount(block, weights=count, minlength=B).astype(np.float64)
    w = n if weighting == "counts" else (n > 0).astype(np.float64)
    share = count / np.maximum(n, 1e-300)[block]
    return w[block] * share, w, float(w[block] @ share**2)


def _rows(row: Ints, column: Ints, value: Floats, width: int) -> tuple[csr_matrix, Ints]:
    """A sparse matrix with a row for each different ``row``, and what those were."""
    names, place = np.unique(row, return_inverse=True)
    return csr_matrix((value, (place, column)), shape=(len(names), width)), names


def _around(m: int, who: Ints, parts: Ints, value: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    """The triples that m is in: m's part, the other two in order, and the value."""
    found = [(np.flatnonzero(who[i] == m), i, *others) for i, others in enumerate(((1, 2), (0, 2), (0, 1)))]
    own, a, b = (np.concatenate([parts[f[place]][f[0]] for f in found]) for place in (1, 2, 3))
    return own, a, b, np.concatenate([value[f[0]] for f in found])
