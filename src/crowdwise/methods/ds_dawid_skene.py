"""Dawid and Skene's model and its relatives: annotators with confusion matrices, full or tied.

The truth of item n is drawn from the prior pi. Annotator m, seeing an item of class k, says l with probability
theta[m, k, l], independently of everybody else. The members of the family differ in how confusion matrices are tied,
that is, in how the scores log s[m, l, k] come from expected counts.

==========================  =======================================================  ==============
method                      theta[m, k, l]                                           parameters
==========================  =======================================================  ==============
``dawid-skene``             anything                                                 M K (K - 1)
``confusion-vector``        w[m, k] if l = k, else (1 - w[m, k]) / (K - 1)            M K
``one-coin``                w[m] if l = k, else (1 - w[m]) / (K - 1)                  M
``fast-dawid-skene``        anything, each item counted for its best class alone     M K (K - 1)
==========================  =======================================================  ==============

=========  ===========  ===================  =================================================
symbol     code         shape                equation
=========  ===========  ===================  =================================================
q[n, k]    posterior    N x K                softmax_k( log pi_k + sum_votes log theta[m, k, l] )
c[m,l,k]   ``counts``   M x L x K            sum over m's votes for l of q[n, k]
b[m,l,k]   ``pseudo``   (M or 1) x L x K     pseudo-counts of the prior
theta      ``table``    M x L x K            (c + b) / sum_l (c + b), tied as above
objective                                    sum_n log sum_k pi_k prod theta + sum b log theta
=========  ===========  ===================  =================================================

A. P. Dawid and A. M. Skene, Maximum likelihood estimation of observer error-rates using the EM
algorithm, Applied Statistics 28 (1979). V. B. Sinha, S. Rao and V. N. Balasubramanian, Fast Dawid-Skene
(2018), for the hard version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from crowdwise.core import priors
from crowdwise.core.em import Family, Params, Stats
from crowdwise.core.model import declared
from crowdwise.core.numerics import Floats, normalise
from crowdwise.core.starts import majority
from crowdwise.core.vote_parts import VoteParts
from crowdwise.errors import ParameterError
from crowdwise.online.streaming import StreamingModel

Tie = Callable[[Floats], Floats]


def full(counts: Floats) -> Floats:
    """theta[m, l, k] = c[m, l, k] / sum_l c[m, l, k]; uniform where there is nothing to go by."""
    return normalise(counts, axis=1)


def per_class(counts: Floats) -> Floats:
    """w[m, k] = c[m, k, k] / sum_l c[m, l, k], wrong answers spread evenly."""
    right = np.einsum("mkk->mk", counts)
    return _even_errors(right, counts.sum(axis=1) - right, counts.shape[1])


def one_coin(counts: Floats) -> Floats:
    """w[m] = sum_k c[m, k, k] / sum c[m], wrong answers spread evenly."""
    right = np.einsum("mkk->m", counts)[:, None]
    return _even_errors(right, counts.sum(axis=(1, 2))[:, None] - right, counts.shape[1])


def _even_errors(right: Floats, wrong: Floats, K: int) -> Floats:
    """theta[m, l, k] from right and wrong counts, M x K or M x 1 (all classes alike); chance where there are none."""
    total = right + wrong
    w = np.divide(right, total, out=np.full_like(total, 1.0 / K), where=total > 0)
    error = np.divide(wrong, total, out=np.full_like(total, 1.0 - 1.0 / K), where=total > 0) / (K - 1.0)
    out = np.broadcast_to(error[:, None, :], (len(right), K, K)).copy()
    out[:, np.arange(K), np.arange(K)] = w
    return out


@dataclass(frozen=True)
class ConfusionFamily(Family):
    """The maximisation step and the objective, for one way of tying the confusion matrices."""

    tie: Tie
    pseudo: Floats
    class_prior: Floats | None
    hard: bool = False
    even_items: float = 0.0
    """So many items, spread evenly over the classes, are added to those that a learned class prior is taken from."""

    def maximise(self, stats: Stats) -> Params:
        return stats.params(self.tie(stats.table() + self.pseudo), self.class_prior, self.even_items)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """log-likelihood + sum b log theta + (even items / K) sum log pi."""
        K = params.log_score.shape[1]
        if self.even_items and self.class_prior is None:
            log_likelihood += self.even_items / K * float(params.log_prior.sum())
        if self.pseudo.shape[0] == 1:
            return log_likelihood + float((self.pseudo[0] * params.log_score.reshape(-1, K, K).sum(axis=0)).sum())
        return log_likelihood + float(self.pseudo.ravel() @ params.log_score.ravel())


def majority_counts(parts: VoteParts) -> Floats:
    """Counts c[m, l, k] against the majority's labels, and gold labels where there are any."""
    return parts.statistics(lambda part: majority(part.votes, part.gold)).table()


@declared
class DawidSkene(StreamingModel):
    """Full confusion matrices, estimated by EM.

    Parameters
    ----------
    prior
        Pseudo-counts on the confusion matrices: a number of votes per row spread evenly over the labels, ``"crowd"`` or
        ``"hierarchical"`` (learned, see :mod:`crowdwise.core.priors`), or an array, K x K (truth, label) or M x K x K.
        The default, a hundredth of a vote, keeps probabilities off zero and changes little else; add-one smoothing
        ruins sparse many-class data.
    history
        Past performance, which stays in force: annotator -> K x K counts (truth, label), or a Consensus.
    class_prior
        ``"learned"``, ``"uniform"``, or the probability of each class.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    >>> model = cw.DawidSkene().fit(crowd.votes)
    >>> model.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "dawid-skene"
    in_parts = True
    _tie = staticmethod(full)
    _hard = False
    _quick = False
    _even_items = 0.0

    prior: priors.Prior = 0.01
    history: priors.History = None
    class_prior: priors.ClassPrior = "learned"

    def check_stream(self) -> None:
        super().check_stream()
        if isinstance(self.prior, str):
            raise ParameterError(
                f"prior={self.prior!r} is learned from all votes at once, which a stream does not have: "
                "give a number of votes, such as prior=0.01."
            )

    def _family_of(self, parts: VoteParts) -> Family:
        counts = partial(majority_counts, parts)
        pseudo = priors.pseudo_counts(self.prior, self.history, parts.names, counts=counts, quick=self._quick)
        class_prior = priors.class_prior_counts(self.class_prior, parts.names)
        return ConfusionFamily(self._tie, pseudo, class_prior, self._hard, self._even_items)


class OneCoin(DawidSkene):
    """One accuracy per annotator, wrong answers spread evenly over the other classes.

    Few parameters, so it is stable where votes are sparse or classes many; it misses annotators who are good at one
    class and bad at another. Pseudo-counts are pooled like the counts are.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=4, random_state=1)
    >>> consensus = cw.aggregate(crowd.votes, "one-coin")
    >>> bool(abs(consensus.confusion[:, 0, 0] - crowd.parameters["accuracy"]).max() < 0.2)
    True
    """

    key = "one-coin"
    single_votes = "open"
    _tie = staticmethod(one_coin)


class ConfusionVector(DawidSkene):
    """One accuracy per annotator and class, wrong answers spread evenly.

    Between ``one-coin`` and ``dawid-skene``: it learns how good annotators are at each class, and not which wrong
    answers they prefer.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(400, n_annotators=15, n_classes=4, votes_per_item=4, random_state=1)
    >>> cw.aggregate(crowd.votes, "confusion-vector").confusion.shape
    (15, 4, 4)
    """

    key = "confusion-vector"
    single_votes = "open"
    _tie = staticmethod(per_class)


@declared
class FastDawidSkene(DawidSkene):
    """Full confusion matrices by hard EM: every item counts for its most probable class alone.

    It converges in a handful of passes, at the price of an optimum that is often a little worse and of overconfident
    annotators. The posterior it reports is the soft one under the final parameters. There is nothing to accelerate.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "fast-dawid-skene")
    >>> bool(consensus.score(crowd.truth) > 0.8)
    True
    """

    key = "fast-dawid-skene"
    single_votes = "certain"
    streams = False  # an item with one vote, counted for that class alone, says its annotator is always right
    _hard = True

    accelerate: bool = field(default=False, init=False)
