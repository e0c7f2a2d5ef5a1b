"""How much more often pairs of votes on an item agree than a fitted model explains (see core.dependence)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.vote_sums import tally
from crowdwise.data.votes import Votes

MAX_TABLE = 2**20
"""The most cells (items x classes x classes) of a table of sums."""


@dataclass(frozen=True)
class Answers:
    """The votes of each annotator on each item together: a vote of weight w is as good as w of them."""

    indptr: Ints
    who: Ints
    weight: Floats
    same: Floats
    """The sum over labels of the squared weight: pairs of an annotator with themselves say nothing."""

    @classmethod
    def of(cls, votes: Votes) -> Answers:
        """Rows of votes are sorted by item and annotator."""
        w, item, who = votes.weights, votes.item, votes.annotator
        new = np.ones(votes.n_votes, dtype=bool)
        new[1:] = (item[1:] != item[:-1]) | (who[1:] != who[:-1])
        if new.all():
            return cls(votes.indptr, who, w, w * w)
        group = np.cumsum(new) - 1
        G = int(group[-1]) + 1
        said, place = np.unique(group * votes.n_classes + votes.label, return_inverse=True)
        squares = np.bincount(place, weights=w) ** 2
        indptr = np.concatenate([[0], np.cumsum(np.bincount(item[new], minlength=len(votes)))])
        same = np.bincount(said // votes.n_classes, weights=squares, minlength=G).astype(np.float64)
        return cls(indptr, who[new], np.bincount(group, weights=w, minlength=G).astype(np.float64), same)

    @property
    def per_item(self) -> Ints:
        """The number of annotators of each item."""
        return np.diff(self.indptr)


def excess_agreement(votes: Votes, theta: Floats, q: Floats) -> tuple[float, float]:
    """A and its standard error, from theta[m, l, k] and q; NaN where no item has two votes.

    With S[n, k, l] the sum of theta[m, k, l] over the annotators of n, the sum over pairs of sum_l theta theta' is that
    of S² less that of theta²: no pair is visited.
    """
    M, K, _ = theta.shape
    answers, total = theta.transpose(0, 2, 1).reshape(M, K * K), Answers.of(votes)
    square = np.einsum("mlk,mlk->mk", theta, theta)
    counted = tally(votes, np.ones(M))
    numbers, spans = [], []
    step = max(1, MAX_TABLE // (K * K))
    for lo in range(0, len(votes), step):
        hi = min(lo + step, len(votes))
        rows = slice(total.indptr[lo], total.indptr[hi])
        indptr, who, w = total.indptr[lo : hi + 1] - total.indptr[lo], total.who[rows], total.weight[rows]
        item = np.repeat(np.arange(hi - lo), np.diff(indptr))
        sums, own = _sums(indptr, who, w, answers).reshape(-1, K, K), _sums(indptr, who, w * w, square)
        expected = (q[lo:hi] * (np.einsum("nkl,nkl->nk", sums, sums) - own)).sum(axis=1)
        n = np.bincount(item, weights=w, minlength=hi - lo)
        agree = (counted[lo:hi] ** 2).sum(axis=1) - np.bincount(item, weights=total.same[rows], minlength=hi - lo)
        numbers.append(agree - expected)
        spans.append(n * n - np.bincount(item, weights=w * w, minlength=hi - lo) - expected)
    number, span = np.concatenate(numbers), np.concatenate(spans)
    room = float(span.sum())
    if not room > 1e-9:
        return float("nan"), float("nan")
    A = float(number.sum()) / room
    return A, float(np.sqrt(((number - A * span) ** 2).sum())) / room


def _sums(indptr: Ints, who: Ints, weight: Floats, table: Floats) -> Floats:
    """N x columns: for each item the weighted sum of its annotators' rows of a table."""
    from scipy.sparse import csr_matrix

    return np.asarray(csr_matrix((weight, who, indptr), shape=(len(indptr) - 1, len(table))) @ table)
