"""Sums over votes: by annotator, and by item and class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise import kernels
from crowdwise.core.numerics import Floats, Ints, effective_votes
from crowdwise.data.votes import Votes

MAX_TALLY = 2**26
"""The most cells (items x classes) of a table of votes that is made where it could be done without."""


@dataclass(frozen=True)
class VoteEdges:
    """Votes as edges between N items and M annotators: raw arrays, one entry per vote."""

    item: Ints
    annotator: Ints
    label: Ints
    weight: Floats
    N: int
    M: int

    @classmethod
    def of(cls, votes: Votes) -> VoteEdges:
        return VoteEdges(votes.item, votes.annotator, votes.label, votes.weights, len(votes), votes.n_annotators)

    def per_item(self, x: Floats) -> Floats:
        """Sums over the votes of each item."""
        return np.bincount(self.item, weights=x, minlength=self.N).astype(np.float64, copy=False)

    def per_annotator(self, x: Floats) -> Floats:
        """Sums over the votes of each annotator."""
        return np.bincount(self.annotator, weights=x, minlength=self.M).astype(np.float64, copy=False)


def sum_rows(rows: Floats, group: Ints, n: int) -> Floats:
    """n x K: the rows of each group summed, column by column."""
    return np.stack([np.bincount(group, weights=column, minlength=n) for column in rows.T], axis=1).astype(np.float64)


def per_annotator(votes: Votes, value: Floats | Ints | None = None) -> Floats:
    """M: the weighted sum of a value of each vote over an annotator's votes; by default their total weight."""
    weights = votes.weights if value is None else votes.weights * value
    return np.bincount(votes.annotator, weights=weights, minlength=votes.n_annotators).astype(np.float64)


def agreement_counts(votes: Votes, decided: Ints) -> tuple[Ints, Ints]:
    """M each: the number of each annotator's votes, and of those that say what was decided."""
    return kernels.agreements(votes.indptr, votes.annotator, votes.label, decided, votes.n_annotators)


def right_votes(votes: Votes, q: Floats) -> tuple[Floats, Floats, Floats]:
    """Each annotator's expected right votes under a posterior, all their votes, and the variance of the former."""
    p = q[votes.item, votes.label]
    return per_annotator(votes, p), per_annotator(votes), per_annotator(votes, p * (1.0 - p))


def known_share(right: Floats, total: Floats, unsure: Floats) -> Floats:
    """M: the share of each annotator's votes that would carry their information if the truths were known, from
    :func:`right_votes`."""
    return np.divide(effective_votes(right, total, unsure), total, out=np.zeros_like(total), where=total > 0)


def tally(votes: Votes, weight: Floats) -> Floats:
    """N x K: the summed weights of the annotators who said k of item n."""
    N, K = len(votes), votes.n_classes
    counted = np.bincount(
        votes.item * K + votes.label, weights=weight[votes.annotator] * votes.weights, minlength=N * K
    )
    return np.asarray(counted.reshape(N, K), dtype=np.float64)


def single_annotator_items(votes: Votes) -> Ints:
    """Which items (a mask) have votes, all of one annotator. The votes on an item stand in the order of annotators."""
    size = np.diff(votes.indptr)
    voted = np.flatnonzero(size > 0)
    out = np.zeros(len(votes), dtype=bool)
    out[voted] = votes.annotator[votes.indptr[voted]] == votes.annotator[votes.indptr[voted + 1] - 1]
    return np.asarray(out)


def confirmed(votes: Votes, gold: Ints | None) -> Ints:
    """Which items (a mask) have something to compare a vote with: another annotator's, or a gold label."""
    voted = np.diff(votes.indptr) > 0
    several = voted & ~single_annotator_items(votes)
    return np.asarray(several if gold is None else several | (voted & (gold >= 0)))


def outvoted(votes: Votes, labels: Ints, gold: Ints | None = None) -> tuple[Ints, Ints]:
    """The items of which another class has more (weighted) votes than their label, and the class with the most there.

    Items with gold are left out: their labels were given. Memory is that of the votes.
    """
    K, N = votes.n_classes, len(votes)
    if N * K <= MAX_TALLY:
        table = tally(votes, np.ones(votes.n_annotators))
        first = table.argmax(axis=1)
        own, most = table[np.arange(N), labels], table[np.arange(N), first]
    else:
        key, pair = np.unique(votes.item.astype(np.int64) * K + votes.label, return_inverse=True)
        count, item = np.bincount(pair, weights=votes.weights), key // K
        order = np.lexsort((key, -count, item))
        best = order[np.flatnonzero(np.diff(item[order], prepend=-1))]
        first, most, own = np.zeros(N, dtype=np.int64), np.zeros(N), np.zeros(N)
        first[item[best]], most[item[best]] = key[best] % K, count[best]
        mine = key % K == labels[item]
        own[item[mine]] = count[mine]
    lost = own < most * (1.0 - 1e-9)
    differs = np.flatnonzero(lost if gold is None else lost & (gold < 0))
    return differs, first[differs]
