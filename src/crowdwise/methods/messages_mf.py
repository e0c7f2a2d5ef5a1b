"""Mean field on the graph of annotators and items: truths and annotators are independent in the posterior.

The truths z have a fixed class prior pi, annotator m a confusion matrix theta_m drawn from a prior p(theta), as in
:mod:`crowdwise.methods.messages_bp`. ``mf`` approximates the posterior by independent factors, q(z) prod_m
Dirichlet(theta_m; alpha + c_m), and alternates c[m, k, l] = sum over m's votes for l of q[n, k] with q[n, k] ~ pi_k
prod_votes exp E[log theta[m, k, l]], where E[log theta] = digamma(alpha + c) - digamma(sum_l (alpha + c)). That is
variational Bayes as in independent BCC, with the class distribution fixed instead of learned under a prior of its own,
and a weak prior on annotators: two on the truth and one elsewhere, so that for two classes alpha is [2 1; 1 2]. Its
objective is the evidence lower bound,

    sum_n log sum_k pi_k prod_votes exp E[log theta]  -  sum_m KL( Dirichlet(alpha + c_m) || Dirichlet(alpha) ).

Q. Liu, J. Peng and A. Ihler, Variational inference for crowdsourcing, NIPS 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crowdwise.core import priors, shrinkage
from crowdwise.core.em import Params, Stats, log_class_prior
from crowdwise.core.model import EMModel, Family, Floats, declared
from crowdwise.core.vote_parts import Totals
from crowdwise.methods.bayes_ibcc import divergence, expected_log
from crowdwise.methods.messages_bp import one_coin_parameters


@dataclass(frozen=True)
class MeanLogs(Params):
    """Scores E[log theta], and the Dirichlet or Beta parameters (..., outcomes) that they come from."""

    alpha: Floats


@dataclass(frozen=True)
class MeanFieldFamily(Family):
    """Digamma updates: rows of Dirichlet parameters (M x K x K), or one Beta per annotator (M x 2)."""

    alpha: Floats
    class_prior: Floats | None

    def maximise(self, stats: Stats) -> MeanLogs:
        K = len(stats.mass)
        counts = stats.table().transpose(0, 2, 1)
        if self.alpha.ndim == 2:
            right = np.einsum("mkk->m", counts)
            counts = np.stack([right, counts.sum(axis=(1, 2)) - right], axis=1)
        alpha = self.alpha + counts
        mean_log = expected_log(alpha, axis=-1)
        if self.alpha.ndim == 2:
            table = np.repeat(mean_log[:, 1] - np.log(K - 1.0), K * K).reshape(-1, K, K)
            table[:, np.arange(K), np.arange(K)] = mean_log[:, :1]
        else:
            table = mean_log.transpose(0, 2, 1)
        log_prior = log_class_prior(stats.mass, self.class_prior)
        return MeanLogs(np.ascontiguousarray(table.reshape(-1, K)), log_prior, alpha)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """The lower bound: log-likelihood under E[log theta], less the divergence of the annotators from the prior."""
        assert isinstance(params, MeanLogs)
        a, before = params.alpha, np.broadcast_to(self.alpha, params.alpha.shape)
        return log_likelihood - divergence(a, before, expected_log(a, axis=-1), axis=-1)


@declared
class MeanField(EMModel):
    """Mean field: truths and confusion matrices are independent, each updated given the others' mean logarithms.

    Parameters
    ----------
    coins, prior, history, class_prior
        As in :class:`BeliefPropagation`, the prior without a function; ``class_prior="learned"`` maximises the bound.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.two_coin(400, n_annotators=20, votes_per_item=6, random_state=0)
    >>> cw.aggregate(crowd.votes, "mf").score(crowd.truth) > 0.85
    True
    """

    key = "mf"
    in_parts = True
    single_annotator = True

    coins: Literal["full", "one"] = "full"
    prior: priors.DirichletPrior = 2.0
    history: priors.History = None
    class_prior: priors.ClassPrior = "uniform"

    def _family_of(self, totals: Totals) -> MeanFieldFamily:
        votes = totals.names
        fixed = priors.class_prior_counts(self.class_prior, votes)
        if self.coins == "one":
            return MeanFieldFamily(one_coin_parameters(self.prior, self.history, votes), fixed)
        return MeanFieldFamily(priors.dirichlet_rows(self.prior, self.history, votes).transpose(0, 2, 1), fixed)

    def _confusion(self, params: Params, K: int) -> Floats:
        """The posterior mean of theta (the scores are means of its logarithm)."""
        assert isinstance(params, MeanLogs)
        mean = params.alpha / params.alpha.sum(axis=-1, keepdims=True)
        if mean.ndim == 3:
            return np.asarray(mean)
        return shrinkage.one_coin_table(mean[:, 0], K).transpose(0, 2, 1)
