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

``anchored`` is held to what the labels mean. On sparse or lopsided data the likelihood can rise while a latent class
drifts away from the label of its name, and accuracy falls. So it maximises

    J(theta, pi) = (1 - a) * sum_n log sum_k pi_k prod_votes theta[m, k, l]          the likelihood
                 +      a  * sum_n sum_k v[n, k] ( log pi_k + sum_votes log theta[m, k, l] )   the anchor
                 +           sum b log theta                                          the prior

with v[n, k] the share of class k among the votes on item n (its gold label where it has one) and b the hierarchical
prior of :mod:`crowdwise.core.priors`. The anchor is the complete-data log-likelihood of a world in which the vote
shares are right. Given theta, (1 - a) * log-likelihood is bounded from below by (1 - a) times the expected
complete-data log-likelihood, tight at the current theta, so that J never falls under ordinary EM with the counts

    c[m, l, k] = (1 - a) * sum q[n, k] + a * sum v[n, k]      (sums over m's votes for l)

Vote shares are softer than the truth, so the matrices at the maximum of J are too. Once the anchor has decided which
class is which, one maximisation step without it, (sum q + b) normalised, gives the matrices that the votes support.
Posterior, confusion and prior are reported after that step; objective and trace are those of J.

A. P. Dawid and A. M. Skene, Maximum likelihood estimation of observer error-rates using the EM
algorithm, Applied Statistics 28 (1979). V. B. Sinha, S. Rao and V. N. Balasubramanian, Fast Dawid-Skene
(2018), for the hard version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from crowdwise.core import em, priors
from crowdwise.core.constraints import Share
from crowdwise.core.em import Engine
from crowdwise.core.model import Family, Params, SingleVotes, Stats, declared
from crowdwise.core.numerics import Floats, normalise, safe_log
from crowdwise.core.priors import Prior
from crowdwise.core.starts import majority, shares
from crowdwise.core.vote_parts import VotePart, VoteParts
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
    return np.where(np.eye(K, dtype=bool), w[:, None], error[:, None])


@dataclass(frozen=True)
class ConfusionFamily(Family):
    """The maximisation step and the objective, for one way of tying the confusion matrices."""

    tie: Tie
    pseudo: Floats
    class_prior: Floats | None
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

    def _family_of(self, parts: VoteParts) -> ConfusionFamily:
        counts = partial(majority_counts, parts)
        pseudo = priors.pseudo_counts(self.prior, self.history, parts.names, counts=counts, quick=self._quick)
        class_prior = priors.class_prior_counts(self.class_prior, parts.names)
        return ConfusionFamily(self._tie, pseudo, class_prior, self._even_items)


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


def best_classes(params: Params, part: VotePart) -> Stats:
    """The statistics of items that count for their most probable class alone, the first of equals."""
    soft, q = em.expect(part.part, params, posterior=True)
    best = q.argmax(axis=1)
    of_best = float(safe_log(q[np.arange(len(q)), best]).sum())
    return replace(em.statistics(part.part, np.eye(q.shape[1])[best]), log_likelihood=soft.log_likelihood + of_best)


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

    accelerate: bool = field(default=False, init=False)

    def _expect(self, parts: Any, params: Params) -> Stats:
        stats: Stats = parts.summed(partial(best_classes, params))
        return stats


@dataclass(frozen=True)
class Anchor:
    """A share a of the counts that is that of (weighted) vote shares, whatever the posterior."""

    share: float
    votes: Stats
    """The statistics of the vote shares."""

    def mixed(self, stats: Stats) -> Stats:
        """(1 - a) times the statistics of the posterior, plus a times those of the vote shares."""
        a = self.share
        return Stats((1.0 - a) * stats.counts + a * self.votes.counts, (1.0 - a) * stats.mass + a * self.votes.mass)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """The first two terms of J."""
        at_votes = float(np.vdot(self.votes.counts, params.log_score)) + float(self.votes.mass @ params.log_prior[0])
        return (1.0 - self.share) * log_likelihood + self.share * at_votes


@dataclass(frozen=True)
class AnchoredFamily(ConfusionFamily):
    """The same with counts mixed with those of the vote shares."""

    anchor: Anchor = field(kw_only=True)

    @property
    def free(self) -> ConfusionFamily:
        """Without the anchor."""
        return ConfusionFamily(self.tie, self.pseudo, self.class_prior, self.even_items)

    def maximise(self, stats: Stats) -> Params:
        return super().maximise(self.anchor.mixed(stats))

    def objective(self, log_likelihood: float, params: Params) -> float:
        return super().objective(self.anchor.objective(log_likelihood, params), params)


@declared
class Anchored(DawidSkene):
    """Dawid-Skene with its classes anchored to the votes, and annotators shrunk towards their crowd.

    Parameters
    ----------
    anchor
        a, from 0 (the likelihood alone) to 1 (the vote shares alone).

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(800, n_annotators=60, n_classes=8, votes_per_item=2, random_state=0)
    >>> anchored, plain = cw.aggregate(crowd.votes, "anchored"), cw.aggregate(crowd.votes, "dawid-skene")
    >>> anchored.score(crowd.truth) > plain.score(crowd.truth)
    True
    """

    key = "anchored"
    streams = False
    reads_backwards = False
    single_votes: ClassVar[SingleVotes] = "certain"

    anchor: Share = 0.5
    prior: Prior = "hierarchical"
    anchored_params_: Params = field(init=False)
    """The maximum of J, before the last step without the anchor."""

    def _family_of(self, parts: VoteParts) -> AnchoredFamily:
        at_votes = parts.statistics(lambda part: shares(part.votes, part.gold))
        return AnchoredFamily(**vars(super()._family_of(parts)), anchor=Anchor(float(self.anchor), at_votes))

    def _finish(self, part: Engine, family: Family, params: Params) -> Params:
        assert isinstance(family, AnchoredFamily)
        self.anchored_params_ = params
        return family.free.maximise(part.expect(params))
