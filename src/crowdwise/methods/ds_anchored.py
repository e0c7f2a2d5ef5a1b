"""Dawid-Skene held to what the labels mean: crowdwise's default.

The likelihood of votes does not know what a label means. On sparse or lopsided data it can rise while a
latent class drifts away from the label of its name, and accuracy falls. ``anchored`` therefore maximises

    J(theta, pi) = (1 - a) * sum_n log sum_k pi_k prod_votes theta[m, k, l]          the likelihood
                 +      a  * sum_n sum_k v[n, k] ( log pi_k + sum_votes log theta[m, k, l] )   the anchor
                 +           sum b log theta                                          the prior

with v[n, k] the share of class k among the votes on item n (the truth where it is known) and b the
hierarchical prior of :mod:`crowdwise.core.priors`. The anchor is the complete-data log-likelihood of a
world in which the vote shares are right; it is concave in the logarithms and its statistics are constant.

EM for J: given theta, q is the posterior as always, and (1 - a) * log-likelihood is bounded from below by
(1 - a) times the expected complete-data log-likelihood, tight at the current theta. Adding the anchor,
the bound is that of ordinary EM with the counts

    c[m, l, k] = (1 - a) * sum q[n, k] + a * sum v[n, k]      (sums over m's votes for l)

so the maximisation step is (c + b) normalised, and J never falls. The constant statistics add up like
the others, so threads, partitions and streams work unchanged.

The anchor dilutes: vote shares are softer than the truth, so the matrices at the maximum of J are too, and
with them the posterior. Once it has done its work, which is to say which class is which, one maximisation
step without it, (sum q + b) normalised, lets the matrices be what the votes support. What is reported
(posterior, confusion, prior) is that; objective and trace are those of J.

With a = 0 this is ``dawid-skene`` under the hierarchical prior. Plain ``dawid-skene`` is the better choice where
annotators have hundreds of votes each (the likelihood then needs no anchor), and where most of the crowd is
adversarial or confuses classes systematically (the vote shares then are the wrong anchor).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdwise.core import em, priors
from crowdwise.core.em import Family, Params, Part, Stats
from crowdwise.core.numerics import Ints
from crowdwise.core.parameters import declared
from crowdwise.core.starts import shares
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, DawidSkene


@dataclass(frozen=True)
class AnchoredFamily(ConfusionFamily):
    """The family with its counts mixed with those of the vote shares."""

    anchor: float = 0.5
    votes: Stats | None = None

    def maximise(self, stats: Stats) -> Params:
        assert self.votes is not None
        a = self.anchor
        return super().maximise(
            Stats((1.0 - a) * stats.counts + a * self.votes.counts, (1.0 - a) * stats.mass + a * self.votes.mass)
        )

    def objective(self, log_likelihood: float, params: Params) -> float:
        assert self.votes is not None
        held = float(np.vdot(self.votes.counts, params.log_score)) + float(self.votes.mass @ params.log_prior[0])
        return super().objective((1.0 - self.anchor) * log_likelihood + self.anchor * held, params)


@declared
class Anchored(DawidSkene):
    """Dawid-Skene with its classes anchored to the votes, and annotators shrunk towards their crowd.

    Parameters
    ----------
    anchor
        a, from 0 (the likelihood alone) to 1 (the vote shares alone).
    prior, history, class_prior, start, restarts, max_iter, tol, accelerate, ties, random_state
        As in :class:`DawidSkene`; the prior is ``"hierarchical"`` by default.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(800, n_annotators=60, n_classes=8, votes_per_item=2, random_state=0)
    >>> anchored, plain = cw.aggregate(crowd.votes, "anchored"), cw.aggregate(crowd.votes, "dawid-skene")
    >>> anchored.score(crowd.truth) > plain.score(crowd.truth)
    True
    """

    key = "anchored"
    streams = False

    anchor: float = 0.5
    prior: Any = "hierarchical"
    anchored_params_: Params = field(init=False)
    """Where J ended, before the last step without the anchor."""

    def _check_together(self) -> None:
        super()._check_together()
        if not (isinstance(self.anchor, (int, float)) and 0.0 <= self.anchor <= 1.0):
            raise ParameterError(f"anchor={self.anchor!r}: expected a number from 0 to 1.")

    def _family(self, part: Part, start: Stats, votes: Votes, gold: Ints | None) -> AnchoredFamily:
        held = em.statistics(part, shares(votes, gold))
        pseudo = priors.pseudo_counts(self.prior, self.history, votes, gold)
        return AnchoredFamily(
            self._tie, pseudo, priors.class_prior_counts(self.class_prior, votes), False, float(self.anchor), held
        )

    def _finish(self, part: Part, family: Family, params: Params) -> Params:
        assert isinstance(family, AnchoredFamily)
        self.anchored_params_ = params
        stats, _ = em.expect(part, params)
        return ConfusionFamily.maximise(family, stats)
