"""The predictive log-likelihood of held-out votes: the one measure of methods that needs no truth.

A held-out vote is predicted from the *other* votes on its item and from the votes of its annotator on *other* items:

    p(l | rest) = sum_k q[n, k] theta[m, k, l]

**By items** (:func:`item_folds`, :func:`leave_one_out_scores`), for models with scores log s[m, l, k] of their own.
Parameters come from the items of other folds; each annotator's votes on an item are then predicted from the other
annotators' votes on it, so a class that fits its items too closely gains nothing. Folds come from the votes
(:mod:`crowdwise.core.vote_order`): neither the order of rows nor any name matters, and items with equal votes are
spread over all folds.

**By pairs** (:func:`split_pairs`, :func:`read_out`, :func:`predict_held_out`), for any method. A share of the (item,
annotator) pairs is held out, the method is fitted to the rest, and confusion matrices are computed from its posterior
in the same way for every method.

=============  ===============  ============  =====================================================================
symbol         code             shape         equation
=============  ===============  ============  =====================================================================
q[n, k]        ``posterior``    N x K         the method's, from the remaining votes
c[m, l, k]     counts           M x L x K     sum over m's remaining votes for l of q[n, k]
C[l, k]        crowd            L x K         (sum_m c + 1/100) normalised
theta          ``theta``        M x L x K     (c + s C) normalised; s: the most probable strength, from hard counts
d[n], w[n]     ``gain``         N             difference of two scores summed over the votes on n, and their weight
mean           ``mean``         1             sum d / sum w
error          ``error``        1             sqrt( N / (N - 1) sum (d - mean w)^2 ) / sum w
=============  ===============  ============  =====================================================================

A vote on an item without other votes is not predicted: it would measure favourite labels, not the item's class. The
error is that of a new sample of items with the same annotators; repeated splits are first averaged item by item, for
they do not make more items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise.core import em, vote_order
from crowdwise.core.em import Params, Part
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, winners
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.vote_sums import sum_rows
from crowdwise.data.votes import Votes


@dataclass(frozen=True)
class Scores:
    """The scores of held-out votes, one row for each (item, annotator) pair."""

    item: Ints
    weight: Floats
    log_p: Floats
    """log of the probability of the pair's votes."""

    def per_item(self, n_items: int) -> tuple[Floats, Floats]:
        """The sum of log p and the weight, by item."""
        log_p, weight = sum_rows(np.stack([self.log_p, self.weight], axis=1), self.item, n_items).T
        return log_p, weight


def item_folds(votes: Votes, folds: int, gold: Ints | None = None, *, max_votes: float = np.inf) -> Ints:
    """The fold of each item: neighbours in the canonical order go to different ones.

    With more votes than ``max_votes``, evenly spaced items with about so many are in folds; the others have -1.
    """
    rank, _ = vote_order.ranks(votes, gold)
    share = min(1.0, max_votes / max(votes.n_votes, 1))
    place = np.floor(rank * share).astype(np.int64)
    chosen = np.floor((rank + 1) * share) > place
    return np.where(chosen, place % folds, -1)


def leave_one_out_scores(
    params: Params, votes: Votes, gold: Ints | None = None, item_prior: Floats | None = None
) -> Scores:
    """Each annotator's votes on an item, predicted from those of the others there under given parameters.

    Where the item has a gold label, from that. ``item_prior`` is N x K, logarithms.
    """
    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    item, w = votes.item, votes.weights
    own = params.log_score.reshape(-1, K, K)[votes.annotator, votes.label] * w[:, None]
    key, pair = np.unique(item.astype(np.int64) * M + votes.annotator, return_inverse=True)
    where = key // M
    by_pair = sum_rows(own, pair, len(key))
    logit = sum_rows(by_pair, where, N) + params.log_prior
    if item_prior is not None:
        logit = logit + item_prior
    rest = logit[where] - by_pair
    predicted = np.bincount(where, minlength=N)[where] > 1
    if gold is not None:
        known = gold[where] >= 0
        rest[known] = np.log(1e-300)
        rest[known, gold[where[known]]] = 0.0
        predicted = predicted | known
    log_p = np.logaddexp.reduce(rest + by_pair, axis=1) - np.logaddexp.reduce(rest, axis=1)
    weight = np.bincount(pair, weights=w, minlength=len(key))
    return Scores(where[predicted], weight[predicted], log_p[predicted])


def split_pairs(votes: Votes, share: float, rng: np.random.Generator) -> Ints:
    """Which votes to hold out (a mask): a share of the (item, annotator) pairs; every item keeps at least one.

    Pairs are put into random order within their item, and the first ``floor(share * pairs + u)`` are taken, u uniform:
    items with few pairs give one with the right probability.
    """
    M = votes.n_annotators
    key, pair = np.unique(votes.item.astype(np.int64) * M + votes.annotator, return_inverse=True)
    where = key // M
    size = np.bincount(where, minlength=len(votes))
    take = np.minimum(np.floor(share * size + rng.random(len(votes))), np.maximum(size - 1, 0))
    order = np.lexsort((rng.random(len(key)), where))
    first = np.cumsum(size) - size
    rank = np.empty(len(key), dtype=np.int64)
    rank[order] = np.arange(len(key)) - np.repeat(first, size)
    return np.asarray((rank < take[where])[pair])


def read_out(votes: Votes, q: Floats) -> Floats:
    """theta[m, l, k] from a posterior and the votes it came from, shrunk towards the crowd, alike for all methods."""
    part = Part.of(votes)
    pseudo = learned_prior(em.statistics(part, winners(q)).table(), "crowd")
    return normalise(em.statistics(part, q).table() + pseudo, axis=1)


def predict_held_out(theta: Floats, q: Floats, votes: Votes) -> Floats:
    """P(label) for every vote and every label: S x L, from theta[m, l, k] and the posterior of each item."""
    return np.asarray(np.einsum("slk,sk->sl", theta[votes.annotator], q[votes.item]))


def paired(gain: Floats, weight: Floats) -> tuple[float, float]:
    """Mean difference per vote and its standard error, from sums by item (see the table above)."""
    used = weight > 0
    d, w = gain[used], weight[used]
    N, total = len(d), w.sum()
    mean = float(d.sum() / total) if N else 0.0
    if N < 2:
        return mean, float("inf")
    return mean, float(np.sqrt(N / (N - 1.0) * ((d - mean * w) ** 2).sum()) / total)


def log_scores(p: Floats, votes: Votes) -> Floats:
    """log P of what each vote said, from its distribution over labels."""
    return safe_log(p[np.arange(len(p)), votes.label])
