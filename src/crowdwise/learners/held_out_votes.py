"""Predictions for items that a network has not seen, scored and sharpened by the votes on those items.

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
q               ``posterior``          N x K          p[n, k] prod over votes theta[m, k, l], normalised
==============  =====================  =============  =============================================================

Two numbers are chosen by the score: with how many votes theta is drawn to the crowd's (``strength``) and, after that,
the temperature of p. In this order, because flat predictions make up for a theta that follows the noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes

ROUNDS = 15
STRENGTHS = (2.0, 8.0, 32.0, 128.0)
TEMPERATURES = (1.0, 0.67, 1.5, 2.25)
CLEARLY = 5.0
"""By how many standard errors a score must be larger to be preferred: training differs from seed to seed as well."""
FLOOR = 1e-9
MAX_JUDGES = 100_000
"""Votes that score predictions: of more, those on some of the items."""


class VoteList(NamedTuple):
    """Votes as one row each."""

    item: Ints
    annotator: Ints
    label: Ints
    weight: Floats
    n_annotators: int

    @classmethod
    def of(cls, votes: Votes) -> VoteList:
        item, annotator, label = (
            np.asarray(part, dtype=np.int64) for part in (votes.item, votes.annotator, votes.label)
        )
        return cls(item, annotator, label, votes.weights, votes.n_annotators)

    def judges(self, limit: int = MAX_JUDGES) -> VoteList:
        """All votes on some items, drawn by a fixed seed, so that they are about as many as the limit."""
        if len(self.item) <= limit:
            return self
        drawn = np.random.default_rng(0).random(int(self.item.max()) + 1) < limit / len(self.item)
        return self.select(drawn[self.item])

    def select(self, mask: npt.NDArray[np.bool_]) -> VoteList:
        """Some of the votes."""
        return VoteList(
            self.item[mask], self.annotator[mask], self.label[mask], self.weight[mask], self.n_annotators
        )  # fmt: skip


def sharpened(p: Floats, temperature: float) -> Floats:
    """p^(1 / temperature), normalised."""
    log_p = np.log(np.maximum(p, FLOOR)) / temperature
    q = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def vote_confusions(p: Floats, votes: VoteList, strength: float) -> Floats:
    """M x K x K: theta; every row has ``strength`` votes in addition, distributed like those of the crowd."""
    M, K = votes.n_annotators, p.shape[1]
    cell, rows = votes.annotator * K + votes.label, p[votes.item]

    def counted(r: Floats) -> Floats:
        columns = [np.bincount(cell, r[:, k] * votes.weight, minlength=M * K) for k in range(K)]
        table = np.stack(columns, axis=1).reshape(M, K, K).transpose(0, 2, 1)
        crowd = table.sum(axis=0) + 1.0 / K
        table = table + strength * crowd / crowd.sum(axis=1, keepdims=True)
        return np.asarray(table / table.sum(axis=2, keepdims=True))

    theta = counted(rows)
    for _ in range(ROUNDS):
        r = rows * theta[votes.annotator, :, votes.label]
        theta = counted(r / np.maximum(r.sum(axis=1, keepdims=True), FLOOR))
    return theta


def vote_likelihoods(p: Floats, votes: VoteList, fold: Ints, strength: float) -> Floats:
    """E: the probability of each vote, with theta from the votes on the items of other folds."""
    said = np.empty(len(votes.item))
    for j in np.unique(fold[votes.item]):
        own = fold[votes.item] == j
        theta = vote_confusions(p, votes.select(~own), strength)
        said[own] = (p[votes.item[own]] * theta[votes.annotator[own], :, votes.label[own]]).sum(axis=1)
    return np.maximum(said, FLOOR)


class Scored(NamedTuple):
    """Predictions at their best temperature."""

    p: Floats
    temperature: float
    strength: float
    said: Floats
    """E: the probability of each vote."""
    score: float
    """The mean log-likelihood of a vote."""

    def labels(self, votes: VoteList) -> tuple[Floats, Floats]:
        """q and theta: the classes from inputs and votes, and the annotators."""
        theta = vote_confusions(self.p, votes, self.strength)
        return posterior(self.p, theta, votes), theta


def scored(p: Floats, votes: VoteList, fold: Ints) -> Scored:
    """The predictions with the strength and the temperature under which the votes are most likely."""

    def at(temperature: float, strength: float) -> Scored:
        q = sharpened(p, temperature)
        said = vote_likelihoods(q, votes, fold, strength)
        score = float((votes.weight * np.log(said)).sum() / votes.weight.sum())
        return Scored(q, temperature, strength, said, score)

    first = max((at(TEMPERATURES[0], strength) for strength in STRENGTHS), key=lambda one: one.score)
    return max([first, *(at(t, first.strength) for t in TEMPERATURES[1:])], key=lambda one: one.score)


def clearly_better(one: Scored, other: Scored, votes: VoteList) -> bool:
    """Whether the votes are more likely under the first by more than chance: items are independent, votes are not."""
    gain = np.bincount(votes.item, votes.weight * np.log(one.said / other.said))
    gain = gain[np.bincount(votes.item) > 0]
    return bool(gain.sum() > CLEARLY * np.sqrt(len(gain)) * gain.std())


def posterior(p: Floats, theta: Floats, votes: VoteList) -> Floats:
    """N x K: class probabilities from inputs and votes."""
    each = votes.weight[:, None] * np.log(theta[votes.annotator, :, votes.label])
    log_q = np.log(np.maximum(p, FLOOR))
    log_q = log_q + np.stack([np.bincount(votes.item, column, minlength=len(p)) for column in each.T], axis=1)
    return np.asarray(np.exp(log_q - np.logaddexp.reduce(log_q, axis=1, keepdims=True)))
