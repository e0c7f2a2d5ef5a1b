"""Community-based Bayesian classifier combination: confusion matrices drawn around those of a few communities.

With few votes each, no annotator's confusion matrix can be learned alone. Here annotator m belongs to community j with
probability lam[j], and the rows of their matrix scatter around the community's:

    c_m ~ lam,   theta[m, k] ~ Dir(B[c_m, k]),   pi ~ Dir(a0),   z_n ~ pi,   label of m on n ~ theta[m, z_n]

The mean of row k in community j is B[j, k] / sum_l B[j, k, l], and the sum is how alike its members are (the number of
votes that move an estimate half-way from the community's matrix to the annotator's own). Matrices, memberships and
truths are inferred by variational Bayes; B and lam are the most probable ones under B ~ Gamma around ``prior`` and
lam ~ Dir(2).

==============  ==============  ==============  =======================================================================
symbol          code            shape           equation
==============  ==============  ==============  =======================================================================
C[m, l, k]      ``counts``      M x L x K       sum over m's votes for l of q[n, k]
r[m, j]         ``member``      M x J           softmax_j( log lam_j + sum_k log DM(C[m, k] | B[j, k]) )
B[j, l, k]      ``centre``      J x L x K       (B u + s b0) / (v + s), u and v below; one step of Minka's fixed point
u[j, l, k]                      J x L x K       sum_m r[m, j] ( psi(B + C[m, l, k]) - psi(B) )
v[j, k]                         J x K           sum_m r[m, j] ( psi(sum_l B + sum_l C) - psi(sum_l B) )
s[m, l, k]      ``log_score``   (M L) x K       sum_j r[m, j] ( psi(B + C) - psi(sum_l (B + C)) )
q[n, k]         posterior       N x K           softmax_k( E log pi_k + sum_votes s[m, l, k] )
objective                                       sum_n log Z_n - KL(pi) - KL(c, theta) + log p(B) + log p(lam)
==============  ==============  ==============  =======================================================================

DM is the Dirichlet-multinomial probability. How many communities there are is chosen by the objective less
half the logarithm of M for each number that describes them (the Bayesian information criterion).

The model is that of Venanzi et al. with one change: they scatter members around a community by Gaussian noise on
log-odds and infer by expectation propagation; Dirichlet rows do the same job and keep every step exact.

M. Venanzi, J. Guiver, G. Kazai, P. Kohli and M. Shokouhi, Community-based Bayesian aggregation models for
crowdsourcing, WWW 2014. T. P. Minka, Estimating a Dirichlet distribution (2000), for the fixed point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from crowdwise.core.constraints import Count, Positive
from crowdwise.core.model import EMFit, Family, Params, Stats, Votes, declared
from crowdwise.core.numerics import Floats, normalise, softmax
from crowdwise.core.priors import class_dirichlet
from crowdwise.core.shrinkage import own_accuracy
from crowdwise.methods.bayes_ibcc import divergence, expected_log
from crowdwise.methods.groups_worker_cluster import GroupNumber, MixtureModel, by_accuracy

FIXED_POINTS = 3
"""Steps on the communities in each pass: they cost no look at the votes."""


def log_evidence(counts: Floats, centre: Floats) -> Floats:
    """M x J: sum_k log DM(C[m, :, k] | B[j, :, k]), the evidence of m's answers for community j."""
    from scipy.special import gammaln

    out = np.empty((len(counts), len(centre)))
    n = counts.sum(axis=1)
    for j, b in enumerate(centre):
        total = b.sum(axis=0)
        rows = (gammaln(total) - gammaln(total + n)).sum(axis=1)
        out[:, j] = rows + (gammaln(b + counts) - gammaln(b)).sum(axis=(1, 2))
    return out


def memberships(counts: Floats, centre: Floats, share: Floats) -> Floats:
    """r[m, j]: the probability that m belongs to community j."""
    return softmax(np.log(share) + log_evidence(counts, centre))


def moved(counts: Floats, centre: Floats, member: Floats, prior: Floats, strength: float) -> Floats:
    """One step of the fixed point for B; it never lowers sum_m r log DM + s sum( b0 log B - B )."""
    from scipy.special import digamma

    out = np.empty_like(centre)
    n = counts.sum(axis=1)
    for j, b in enumerate(centre):
        r = member[:, j]
        total = b.sum(axis=0)
        u = np.tensordot(r, digamma(b + counts) - digamma(b), axes=1)
        v = r @ (digamma(total + n) - digamma(total))
        out[j] = (b * u + strength * prior) / (v + strength)
    return out


@dataclass(frozen=True)
class Communities(Params):
    """The state of a fit: the communities, who belongs to them, and the counts of the annotators' own matrices."""

    centre: Floats
    share: Floats
    member: Floats
    counts: Floats
    classes: Floats


@dataclass
class CommunityFamily(Family):
    """The step and its objective.

    Communities move a little in each step, so the family stores them: each run of EM has a family of its own, and is
    not accelerated (an extrapolation that is undone would leave the wrong state).
    """

    prior: Floats
    strength: float
    classes: Floats
    centre: Floats
    share: Floats

    def maximise(self, stats: Stats) -> Communities:
        counts = stats.table()
        J = len(self.share)
        for _ in range(FIXED_POINTS):
            member = memberships(counts, self.centre, self.share)
            self.share = (member.sum(axis=0) + 1.0) / (len(counts) + J)
            self.centre = moved(counts, self.centre, member, self.prior, self.strength)
        member = memberships(counts, self.centre, self.share)
        classes = stats.mass + self.classes
        score = np.zeros_like(counts)
        for j, b in enumerate(self.centre):
            score += member[:, j, None, None] * expected_log(b + counts, axis=1)
        score, log_prior = score.reshape(stats.counts.shape), expected_log(classes, axis=0)[None]
        return Communities(score, log_prior, self.centre, self.share, member, counts, classes)

    def objective(self, log_likelihood: float, params: Params) -> float:
        from scipy.special import gammaln

        assert isinstance(params, Communities)
        r, s, b0, J = params.member, self.strength, self.prior, len(params.share)
        value = log_likelihood - divergence(params.classes, self.classes, params.log_prior[0], axis=0)
        # -KL(c, theta) = sum_m [ sum_j r (log lam - log r + log DM) - sum C s ], by the definition of DM.
        joint = np.log(params.share) + log_evidence(params.counts, params.centre)
        value += float((r * (joint - np.log(np.maximum(r, 1e-300)))).sum())
        value -= float((params.counts * params.log_score.reshape(params.counts.shape)).sum())
        # log p(B), a Gamma with shape 1 + s b0 and rate s, and log p(lam).
        density = s * b0 * np.log(params.centre) - s * params.centre + (1 + s * b0) * np.log(s) - gammaln(1 + s * b0)
        return value + float(density.sum()) + float(np.log(params.share).sum() + gammaln(2.0 * J))


@declared
class CBCC(MixtureModel):
    """Community-based Bayesian classifier combination: annotators are shrunk towards one of a few communities.

    Parameters
    ----------
    n_communities
        How many communities there are, or ``"evidence"``: as many, up to ``max_communities``, as the penalised
        objective favours.
    max_communities
        The most communities tried with ``"evidence"``.
    prior_strength
        How strong the ``prior`` of the communities is: 1 weighs about as much as one annotator.

    Notes
    -----
    The table of annotators has the columns ``community`` (0 is the most accurate one) and ``community_probability``.
    The fitted model has ``community_confusion_`` (J x K x K) and ``community_share_``.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(200, n_annotators=100, n_classes=3, votes_per_item=5, random_state=0)
    >>> cw.aggregate(crowd.votes, "cbcc").score(crowd.truth) > cw.aggregate(crowd.votes, "ibcc").score(crowd.truth)
    True
    """

    key = "cbcc"
    group = "community"
    single_votes = "certain"
    columns_without_interval = ("community", "community_probability")

    n_communities: GroupNumber = "evidence"
    max_communities: Count = 4
    prior_strength: Positive = 1.0
    community_confusion_: Floats = field(init=False)
    community_share_: Floats = field(init=False)

    def _tried(self, M: int) -> Iterable[int]:
        if isinstance(self.n_communities, str):
            return range(1, min(self.max_communities, M) + 1)
        return [int(self.n_communities)]

    def _grouped(self, start: Stats, votes: Votes, J: int) -> CommunityFamily:
        prior = self._common_prior(votes)
        counts = start.table()
        member = by_accuracy(own_accuracy(counts), J)
        centre = normalise(np.einsum("mj,mlk->jlk", member, counts) + prior, axis=1) * prior.sum(axis=1, keepdims=True)
        share = (member.sum(axis=0) + 1.0) / (len(counts) + J)
        alpha = class_dirichlet(self.class_alpha, votes)
        return CommunityFamily(prior[0], float(self.prior_strength), alpha, centre, share)

    def _score(self, fit: EMFit, J: int, votes: Votes) -> float:
        M, K = votes.n_annotators, votes.n_classes
        return float(fit.objective - 0.5 * (J * K * K + J - 1.0) * np.log(M))

    def _described(self, params: Params) -> tuple[Floats, Floats, Floats, Floats]:
        assert isinstance(params, Communities)
        theta = np.zeros_like(params.counts)
        for j, b in enumerate(params.centre):
            theta += params.member[:, j, None, None] * normalise(b + params.counts, axis=1).transpose(0, 2, 1)
        return theta, normalise(params.centre, axis=1).transpose(0, 2, 1), params.share, params.member
