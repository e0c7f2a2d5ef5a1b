"""How much more often pairs of votes on an item agree than a fitted model explains (see core.dependence).

With D[n] the pairs of votes on item n that disagree and w[n] = pairs - E the number that the model expects,

    A = 1 - sum_n D / sum_n w,       V(A) = sum_n V(D) / (sum_n w)²,       e[n] = D - (1 - A) w

**Many items** show the spread themselves: sum e² estimates sum V(D), whatever the dependence.

**Few items** do not. A is fitted to the same D and takes a degree of freedom: e = 0 where there is one item, and on any
number of items without a disagreement, where A = 1 however few were to be expected. So the mean of V(D) has a prior
with one degree of freedom, the variance if the m votes on an item are independent. One vote that differs from the
others makes J disagreements. The share of agreeing pairs is a U-statistic of order 2, so that its variance is at most
2 / m that of one pair (Hoeffding, 1948; also where annotators differ):

    J[n] = m - 1 = 2 pairs / m,        V0[n] = J w (1 - w / pairs)        exact for two votes, or rare disagreements

Where they are rare, e² hardly ever shows them. Then D / J is a Poisson count, whose variance is estimated by the count
and one more (the mean of its posterior under a uniform prior): J² more. The larger of both stands, and as one degree of
freedom was added and one taken away,

    s² = ( sum e² + mean max(V0, J²) ) / (sum w)²

as with one more item, on which votes disagree. With many items it grows by a share of about 1 / N.
"""

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
    """A and its standard error s, from theta[m, l, k] and q; NaN where no item has votes of two annotators.

    With S[n, k, l] the sum of theta[m, k, l] over the annotators of n, the sum over pairs of sum_l theta theta' is that
    of S² less that of theta²: no pair is visited.
    """
    M, K, _ = theta.shape
    answers, total = theta.transpose(0, 2, 1).reshape(M, K * K), Answers.of(votes)
    square = np.einsum("mlk,mlk->mk", theta, theta)
    counted = tally(votes, np.ones(M))
    numbers, spans, variances = [], [], []
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
        pairs = n * n - np.bincount(item, weights=w * w, minlength=hi - lo)
        span, one_off = pairs - expected, 2.0 * pairs / np.maximum(np.diff(indptr), 1)
        independent = one_off * span * expected / np.where(pairs > 0.0, pairs, 1.0)
        numbers.append(agree - expected)
        spans.append(span)
        variances.append(np.maximum(independent, one_off**2)[pairs > 0.0])
    number, span, variance = (np.concatenate(of_items) for of_items in (numbers, spans, variances))
    room = float(span.sum())
    if not room > 1e-9:
        return float("nan"), float("nan")
    A = float(number.sum()) / room
    return A, float(np.sqrt(((number - A * span) ** 2).sum() + variance.mean())) / room


def _sums(indptr: Ints, who: Ints, weight: Floats, table: Floats) -> Floats:
    """N x columns: for each item the weighted sum of its annotators' rows of a table."""
    from scipy.sparse import csr_matrix

    return np.asarray(csr_matrix((weight, who, indptr), shape=(len(indptr) - 1, len(table))) @ table)
