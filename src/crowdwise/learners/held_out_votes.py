"""Predictions for items that a network has not seen, scored, sharpened and combined by the votes on those items.

Given the class, an input and the votes on it are independent. So the best that N x K class probabilities p from inputs
can say of a vote is

    P(m says l | x_n) = sum_k p[n, k] theta[m, k, l]

and the likelihood of the votes under the best theta is a score of p that needs no truth. Each vote counts alone, so
that votes that annotators have copied from one another do not support each other.

==============  =====================  =============  =============================================================
symbol          code                   shape          equation
==============  =====================  =============  =============================================================
theta           ``vote_confusions``    M x K x K      EM: r[v, k] ~ p[n, k] theta[m, k, l], theta[m, k, l] ~ sum r
s[v]            ``vote_likelihoods``   E              P(vote v), theta from the other folds
w[j]            ``stacking``           J              max sum_v log sum_j w[j] s[j, v]
u[m]            ``annotator_weights``  M              max sum_n log sum_k p[n, k] g[n, k] / pi[k], drawn to 1
g(votes)        ``log_g``              N x K          softmax_k ( log pi[k] + sum over votes u[m] log theta[m, k, l] )
==============  =====================  =============  =============================================================

The sum that u maximises is the information that votes and inputs share: mistakes that annotators share with each other,
but not with the inputs, are weighed down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes

ROUNDS = 15
PSEUDO_VOTES = 2.0
"""Votes that every row of a confusion matrix has in addition, distributed like those of the crowd."""
TEMPERATURES = (0.67, 1.0, 1.5, 2.25)
STRENGTH = 4.0
"""How strongly the weight of an annotator is drawn to one, in votes."""
FLOOR = 1e-9


class VoteList(NamedTuple):
    """Votes as one row each."""

    item: Ints
    annotator: Ints
    label: Ints
    weight: Floats
    n_annotators: int

    @classmethod
    def of(cls, votes: Votes) -> VoteList:
        item = np.repeat(np.arange(len(votes)), np.diff(votes.indptr))
        return cls(
            item, votes.annotator.astype(np.int64), votes.label.astype(np.int64), votes.weights, votes.n_annotators
        )

    def select(self, mask: Ints) -> VoteList:
        return VoteList(*(part[mask] for part in self[:4]), self.n_annotators)  # type: ignore[index]


def sharpened(p: Floats, temperature: float) -> Floats:
    """p^(1 / temperature), normalised."""
    log_p = np.log(np.maximum(p, FLOOR)) / temperature
    q = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def vote_confusions(p: Floats, votes: VoteList) -> Floats:
    """M x K x K: theta."""
    M, K = votes.n_annotators, p.shape[1]
    cell, rows = votes.annotator * K + votes.label, p[votes.item]

    def counted(r: Floats) -> Floats:
        columns = [np.bincount(cell, r[:, k] * votes.weight, minlength=M * K) for k in range(K)]
        table = np.stack(columns, axis=1).reshape(M, K, K).transpose(0, 2, 1)
        crowd = table.sum(axis=0) + 1.0 / K
        table = table + PSEUDO_VOTES * crowd / crowd.sum(axis=1, keepdims=True)
        return np.asarray(table / table.sum(axis=2, keepdims=True))

    theta = counted(rows)
    for _ in range(ROUNDS):
        r = rows * theta[votes.annotator, :, votes.label]
        theta = counted(r / np.maximum(r.sum(axis=1, keepdims=True), FLOOR))
    return theta


def vote_likelihoods(p: Floats, votes: VoteList, fold: Ints) -> Floats:
    """E: the probability of each vote, with theta from the votes on the items of other folds."""
    said = np.empty(len(votes.item))
    for j in np.unique(fold):
        own = fold[votes.item] == j
        theta = vote_confusions(p, votes.select(~own))
        said[own] = (p[votes.item[own]] * theta[votes.annotator[own], :, votes.label[own]]).sum(axis=1)
    return np.maximum(said, FLOOR)


class Scored(NamedTuple):
    """Predictions at their best temperature."""

    p: Floats
    temperature: float
    said: Floats
    """E: the probability of each vote."""
    score: float
    """The mean log-likelihood of a vote."""


def scored(p: Floats, votes: VoteList, fold: Ints) -> Scored:
    """The predictions at the temperature under which the votes are most likely."""
    found = []
    for temperature in TEMPERATURES:
        q = sharpened(p, temperature)
        said = vote_likelihoods(q, votes, fold)
        score = float((votes.weight * np.log(said)).sum() / votes.weight.sum())
        found.append(Scored(q, temperature, said, score))
    return max(found, key=lambda one: one.score)


def stacking(said: Floats, weight: Floats, rounds: int = 200) -> Floats:
    """J: the weights of a mixture of J x E likelihoods under which the votes are most likely."""
    w = np.full(len(said), 1.0 / len(said))
    for _ in range(rounds):
        r = w[:, None] * said
        w = (r / r.sum(axis=0) * weight).sum(axis=1) / weight.sum()
    return np.asarray(w)


def log_g(scores: Floats, u: Floats, log_pi: Floats, votes: VoteList, n_items: int) -> Floats:
    """N x K: log class probabilities from the votes alone; ``scores`` is E x K, log theta of each vote."""
    each = (u[votes.annotator] * votes.weight)[:, None] * scores
    total = np.stack([np.bincount(votes.item, column, minlength=n_items) for column in each.T], axis=1) + log_pi
    return np.asarray(total - np.logaddexp.reduce(total, axis=1, keepdims=True))


def annotator_weights(p: Floats, theta: Floats, votes: VoteList) -> Floats:
    """M: how much each annotator's votes count, between 0 and 2."""
    from scipy.optimize import minimize

    log_pi = np.log(np.maximum(p[np.unique(votes.item)].mean(axis=0), FLOOR))
    scores = np.log(theta[votes.annotator, :, votes.label])
    log_p = np.log(np.maximum(p, FLOOR))
    voted = np.bincount(votes.item, minlength=len(p)) > 0

    def loss(u: Floats) -> tuple[float, Floats]:
        own = log_g(scores, u, log_pi, votes, len(p))
        both = log_p + own - log_pi
        total = np.logaddexp.reduce(both, axis=1)
        gap = np.exp(both - total[:, None]) - np.exp(own)
        slope = np.bincount(
            votes.annotator, votes.weight * (gap[votes.item] * scores).sum(axis=1), minlength=votes.n_annotators
        )
        off = u - 1.0
        return float(-total[voted].sum() + 0.5 * STRENGTH * (off * off).sum()), STRENGTH * off - slope

    found = minimize(loss, np.ones(votes.n_annotators), jac=True, method="L-BFGS-B", bounds=[(0.0, 2.0)] * len(theta))
    return np.asarray(found.x)


def posterior(p: Floats, theta: Floats, u: Floats, votes: VoteList) -> Floats:
    """N x K: class probabilities from inputs and votes."""
    scores = np.log(theta[votes.annotator, :, votes.label])
    log_q = np.log(np.maximum(p, FLOOR)) + log_g(scores, u, np.zeros(p.shape[1]), votes, len(p))
    return np.asarray(np.exp(log_q - np.logaddexp.reduce(log_q, axis=1, keepdims=True)))
