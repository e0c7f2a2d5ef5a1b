"""Dawid-Skene held to what the labels mean: ``anchored``.

The likelihood of votes does not know what a label means. On sparse or lopsided data it can rise while a latent class
drifts away from the label of its name, and accuracy falls. ``anchored`` therefore maximises

    J(theta, pi) = (1 - a) * sum_n log sum_k pi_k prod_votes theta[m, k, l]          the likelihood
                 +      a  * sum_n sum_k v[n, k] ( log pi_k + sum_votes log theta[m, k, l] )   the anchor
                 +           sum b log theta                                          the prior

with v[n, k] the share of class k among the votes on item n (its gold label where it has one) and b the hierarchical
prior of :mod:`crowdwise.core.priors`. The anchor is the complete-data log-likelihood of a world in which the vote
shares are right; it is concave in the logarithms and its statistics are constant.

EM for J: given theta, q is the posterior as always, and (1 - a) * log-likelihood is bounded from below by (1 - a) times
the expected complete-data log-likelihood, tight at the current theta. Adding the anchor, the bound is that of ordinary
EM with the counts

    c[m, l, k] = (1 - a) * sum q[n, k] + a * sum v[n, k]      (sums over m's votes for l)

so the maximisation step is (c + b) normalised, and J never falls. The constant statistics add up like the others, so
threads, partitions and streams work unchanged.

The anchor dilutes: vote shares are softer than the truth, so the matrices at the maximum of J are too, and with them
the posterior. Once the anchor has decided which class is which, one maximisation step without it, (sum q + b)
normalised, gives the matrices that the votes support. Posterior, confusion and prior are reported after that step;
objective and trace are those of J.

With a = 0 this is ``dawid-skene`` under the hierarchical prior.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from crowdwise.core.constraints import Share
from crowdwise.core.em import Engine
from crowdwise.core.model import Family, Params, SingleVotes, Stats, declared
from crowdwise.core.priors import Prior
from crowdwise.core.starts import shares
from crowdwise.core.vote_parts import VoteParts
from crowdwise.methods.ds_dawid_skene import DawidSkene


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
class AnchoredFamily(Family):
    """A family with its counts mixed with those of the vote shares."""

    free: Family
    anchor: Anchor

    def maximise(self, stats: Stats) -> Params:
        return self.free.maximise(self.anchor.mixed(stats))

    def objective(self, log_likelihood: float, params: Params) -> float:
        return self.free.objective(self.anchor.objective(log_likelihood, params), params)


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

    def _family_of(self, parts: VoteParts) -> Family:
        at_votes = parts.statistics(lambda part: shares(part.votes, part.gold))
        return AnchoredFamily(super()._family_of(parts), Anchor(float(self.anchor), at_votes))

    def _finish(self, part: Engine, family: Family, params: Params) -> Params:
        assert isinstance(family, AnchoredFamily)
        self.anchored_params_ = params
        return family.free.maximise(part.expect(params))
