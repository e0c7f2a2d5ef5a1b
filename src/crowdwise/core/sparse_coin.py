"""One accuracy per annotator, for more classes than tables over classes have room for.

Memory is that of the votes: an item's class is one of the labels that it got. A vote of annotator m with accuracy w
adds b[m] = log( w (K - 1) / (1 - w) ) to its label; classes are equally probable beforehand. K is the number of classes
that an item can have (``options``): fewer than all labels where each item has options of its own, whose number may
differ from item to item.

=============  ===========  =========================================================================
symbol         code         equation
=============  ===========  =========================================================================
b[m]           ``gain``     log w[m] (K - 1) - log(1 - w[m]), times the weight of the vote
z[n, k]        ``logit``    sum of b over the votes on n for k; 0 for labels that n did not get
q[n, k]        ``q``        exp z / sum exp z over the labels that n got; a gold label has all of it
w[m]           ``skill``    (sum over m's votes of q + s mean) / (votes + s), mean: the crowd's
a[s]           ``right``    the vote is right, by the others: exp(z - b) over the sum with all K classes
=============  ===========  =========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdwise.core.loop import Rounds
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes

STRENGTH = 2.0
"""s: the votes of the crowd that are added to those of each annotator."""


@dataclass(frozen=True)
class SparseCoin:
    """A fit: accuracies, and the posterior of every (item, label) that occurs."""

    votes: Votes
    item: Ints
    label: Ints
    """P: item and label of each pair that occurs."""
    q: Floats
    skill: Floats
    right: Floats
    options: Ints
    """N: how many classes an item can have."""

    @classmethod
    def fit(cls, votes: Votes, gold: Ints | None, rounds: Rounds, tol: float, options: Any = None) -> SparseCoin:
        """Alternate q and w until no accuracy moves by ``tol``. ``options``: how many classes an item can have,
        one number or N; by default all labels."""
        K, M, m, weight = votes.n_classes, votes.n_annotators, votes.annotator, votes.weights
        key, pair = np.unique(votes.item.astype(np.int64) * K + votes.label, return_inverse=True)
        item, label = key // K, key % K
        known = np.full(len(key), -1) if gold is None else gold[item]
        n = np.bincount(m, weights=weight, minlength=M)
        start = np.flatnonzero(np.diff(item, prepend=-1))
        size = np.diff(np.append(start, len(key)))
        of_item = np.broadcast_to(np.asarray(K if options is None else options), len(votes))
        others_there, wrong = np.maximum(of_item[item] - np.repeat(size, size), 0), (of_item - 1.0)[votes.item]

        def within(logit: Floats, others: float) -> tuple[Floats, Floats, Floats]:
            """exp z, its sum over the item's labels (and other classes), and the largest z; for every pair."""
            top = np.repeat(np.maximum(np.maximum.reduceat(logit, start), 0.0), size)
            e = np.exp(logit - top)
            total = np.repeat(np.add.reduceat(e, start), size) + others * others_there * np.exp(-top)
            return e, total, top

        def posterior(logit: Floats) -> Floats:
            e, total, _ = within(logit, 0.0)
            q = e / np.maximum(total, 1e-300)
            return np.asarray(np.where(known >= 0, known == label, q))

        q = posterior(np.log(np.bincount(pair, weights=weight)))  # shares of the votes
        skill, gain, logit = np.full(M, 0.5), np.zeros(len(m)), np.zeros(len(key))
        for _ in rounds:
            hits = np.bincount(m, weights=weight * q[pair], minlength=M)
            mean = hits.sum() / max(float(n.sum()), 1e-300)
            new = np.clip((hits + STRENGTH * mean) / (n + STRENGTH), 1e-6, 1.0 - 1e-6)
            moved, skill = float(np.abs(new - skill).max()), new
            gain = (np.log(skill[m] * wrong) - np.log1p(-skill)[m]) * weight
            logit = np.bincount(pair, weights=gain).astype(np.float64)
            q = posterior(logit)
            rounds.reached(moved=moved, converged=moved <= tol)
        e, total, top = within(logit, 1.0)
        mine = np.exp((logit - top)[pair] - gain)
        rest = np.maximum((total - e)[pair], 0.0)
        right = mine / np.maximum(mine + rest, 1e-300)
        right = np.where(known[pair] >= 0, known[pair] == votes.label, right)
        return cls(votes, item, label, q, skill, right, of_item)

    def predict(self, votes: Votes) -> Floats:
        """N x K for votes in the codes of the fit; annotators after its last one have the mean accuracy."""
        unseen = np.full(max(votes.n_annotators - len(self.skill), 0), self.skill.mean())
        known = np.concatenate([self.skill, unseen])
        K, options = votes.n_classes, self.options.max() if votes.n_options is None else votes.n_options[votes.item]
        key, pair = np.unique(votes.item.astype(np.int64) * K + votes.label, return_inverse=True)
        gain = ((np.log(known) - np.log1p(-known))[votes.annotator] + np.log(options - 1.0)) * votes.weights
        logit = np.bincount(pair, weights=gain)
        item = key // K
        top = np.full(len(votes), -np.inf)
        np.maximum.at(top, item, logit)
        e = np.exp(logit - top[item])
        q = e / np.bincount(item, weights=e, minlength=len(votes))[item]
        return replace(self, votes=votes, item=item, label=key % K, q=q).posterior(None)

    def posterior(self, gold: Ints | None) -> Floats:
        """N x K. Items without votes have equal probabilities; memory is taken for what is not zero."""
        N, K = len(self.votes), self.votes.n_classes
        out = np.zeros((N, K))
        out[self.item, self.label] = self.q
        empty = np.bincount(self.item, weights=self.q, minlength=N) < 0.5
        if gold is not None:
            known = np.flatnonzero(gold >= 0)
            out[known] = 0.0
            out[known, gold[known]] = 1.0
            empty[known] = False
        out[empty] = 1.0 / K
        return out

    def prior(self) -> Floats:
        """K: the share of each class in the posterior."""
        mass = np.bincount(self.label, weights=self.q, minlength=self.votes.n_classes)
        return np.asarray(mass / mass.sum())
