"""Counting votes: plain, weighted, or weighted by the accuracy of annotators on gold items.

``majority``: q[n, k] is the (weighted) share of class k among the votes on item n. Every annotator counts alike. It
cannot drift, and is hard to beat with one or two votes per item; it is wrong wherever reliable annotators are
outnumbered.

``gold-weighted``: annotator m was right on r_m of g_m items with gold labels. With the accuracy
w_m = (r_m + s * w) / (g_m + s), shrunk by s pseudo-votes towards the crowd's pooled accuracy w, a vote weighs its
log-odds, log( w_m (K - 1) / (1 - w_m) ): votes of annotators at chance count nothing, votes of those below it count
against their label. q is the softmax over classes.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from crowdwise.core.constraints import Positive
from crowdwise.core.intervals import beta_interval, with_interval
from crowdwise.core.model import Callback, Model, Votes, declared
from crowdwise.core.numerics import Floats, clamp, normalise, winners
from crowdwise.core.starts import log_odds, shares, tested_and_right, weighted_posterior
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_parts import VoteParts


@declared
class MajorityVote(Model):
    """The share of each class among an item's votes, counted by the votes' weights where they have any.

    Parameters
    ----------
    soft
        ``True``: the posterior is the vote shares. ``False``: all of it on the winning class, split evenly between tied
        ones.
    ties, random_state
        Tied items: the class chosen more often overall (``"prior"``), then the first; or ``"random"``, seeded.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_records([("a", 1, "cat"), ("a", 2, "cat"), ("a", 3, "dog"), ("b", 1, "dog")])
    >>> cw.aggregate(votes, "majority").labels.tolist()
    ['cat', 'dog']
    """

    key = "majority"
    in_parts = True
    vote_shares = True
    single_annotator = True
    reads_backwards = False
    single_votes = "certain"

    soft: bool = True

    def _fit_in_parts(self, parts: VoteParts, callback: Callback | None) -> dict[str, Any]:
        K = parts.names.n_classes
        counts = parts.total(lambda p: np.bincount(p.votes.label, weights=p.votes.weight, minlength=K), np.zeros(K))
        prior = normalise(counts.astype(np.float64), axis=0)
        return {"independent": lambda part: clamp(self._predict(part.votes), part.gold), "prior": prior}

    def _predict(self, votes: Votes) -> Floats:
        q = votes.shares()
        return q if self.soft else winners(q)


@declared
class GoldWeighted(Model):
    """Votes weighted by the log-odds of each annotator's accuracy on items with gold labels.

    Parameters
    ----------
    prior_strength
        Pseudo-votes by which an annotator's accuracy is shrunk towards the crowd's: without votes on gold items it is
        the crowd's.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=9, n_classes=3, votes_per_item=5, random_state=0)
    >>> gold = {n: int(crowd.truth[n]) for n in range(60)}
    >>> consensus = cw.aggregate(crowd.votes, "gold-weighted", gold=gold)
    >>> consensus.to_frame("annotators", kind="dict")["weight"].shape
    (9,)
    """

    key = "gold-weighted"
    in_parts = True
    single_annotator = True
    needs_gold = True

    columns_without_interval = ("gold_votes", "gold_right")

    prior_strength: Positive = 2.0
    weight_: Floats = field(init=False)

    def _fit_in_parts(self, parts: VoteParts, callback: Callback | None) -> dict[str, Any]:
        K = parts.names.n_classes
        tested, right = parts.total(tested_and_right, np.zeros((2, parts.names.n_annotators)))
        crowd = (right.sum() + 1.0) / (tested.sum() + 2.0)
        s = self.prior_strength
        a, b = right + s * crowd, np.maximum(tested - right, 0.0) + s * (1.0 - crowd)
        self.weight_, low, high = (log_odds(inside(p), K) for p in (a / (a + b), *beta_interval(a, b)))
        self._unseen = float(log_odds(inside(np.array(crowd)), K))
        mass = parts.total(lambda part: shares(part.votes, part.gold).sum(axis=0), np.zeros(K))
        columns = with_interval("weight", self.weight_, low, high) | {"gold_votes": tested, "gold_right": right}
        posterior = {"independent": lambda part: clamp(self._predict(part.votes), part.gold)}
        return posterior | {"prior": normalise(mass, axis=0), "annotator_columns": columns}

    def _predict(self, votes: Votes) -> Floats:
        return weighted_posterior(votes, with_unseen(self.weight_, votes.n_annotators, self._unseen))


def inside(p: Floats) -> Floats:
    """Probabilities that are neither 0 nor 1, so that their log-odds are numbers."""
    return np.clip(p, 1e-12, 1.0 - 1e-12)
