"""A few confusion matrices for a whole crowd: every annotator answers from one of J that are shared.

Annotators with few votes cannot have a matrix each. Here they belong to clusters, and all members of a cluster have
the same one; which cluster it is, and how many there are, is inferred.

    c_m ~ lam,   theta[j, k] ~ Dir(b0[k]),   pi ~ Dir(a0),   y_n ~ pi,   label of m on n ~ theta[c_m, y_n]

lam is Dir(1) over J clusters, or a Dirichlet process: lam[j] = v_j prod_{i<j} (1 - v_i), v_j ~ Beta(1, concentration),
broken off after J. All are inferred by variational Bayes.

==============  ==============  ==============  =======================================================================
symbol          code            shape           equation
==============  ==============  ==============  =======================================================================
C[m, l, k]      ``counts``      M x L x K       sum over m's votes for l of q[n, k]
B[j, l, k]      ``centre``      J x L x K       b0 + sum_m r[m, j] C[m, l, k]
r[m, j]         ``member``      M x J           softmax_j( E log lam_j + sum C[m] E log theta[j] )
E log theta     ``expected``    J x L x K       psi(B) - psi(sum_l B)
s[m, l, k]      ``log_score``   (M L) x K       sum_j r[m, j] E log theta[j, l, k]
q[n, k]         posterior       N x K           softmax_k( E log pi_k + sum_votes s[m, l, k] )
objective                                       sum_n log Z_n - KL(pi) - KL(theta) - KL(c) - KL(lam), the ELBO
==============  ==============  ==============  =======================================================================

How many there are is given, or found: the model is fitted with one, two, three..., each time from the same start with
annotators sorted into groups by how often they agree with it, and the fit with the best score is kept
(:class:`MixtureModel`, also the base of ``cbcc``, whose members scatter around their cluster). The score is the ELBO,
to which log J! is added: the clusters could have been numbered in so many ways. The Dirichlet process leaves those that
are not needed empty.

H. Imamura, I. Sato and M. Sugiyama, Analysis of minimax error rate for crowdsourcing and its application to worker
clustering model, ICML 2018. P. G. Moreno, A. Artes-Rodriguez, Y. W. Teh and F. Perez-Cruz, Bayesian nonparametric
crowdsourcing, JMLR 16 (2015), for the Dirichlet process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from crowdwise.core.constraints import Count, CountFromZero, NonNegative, Positive
from crowdwise.core.model import Callback, EMFit, EMModel, Family, Params, Stats, Votes, declared
from crowdwise.core.numerics import TINY, Floats, normalise, softmax
from crowdwise.core.priors import ClassAlpha, DirichletPrior, class_dirichlet, dirichlet_rows
from crowdwise.core.shrinkage import own_accuracy
from crowdwise.core.vote_parts import VoteParts
from crowdwise.errors import ParameterError
from crowdwise.methods.bayes_ibcc import divergence, expected_log

GroupNumber = Count | Literal["evidence"]
"""A number of groups, or as many as the evidence favours."""


def by_accuracy(accuracy: Floats, J: int) -> Floats:
    """The memberships r[m, j] at the start: annotators near the j-th of J evenly spaced quantiles of accuracy."""
    centre = np.quantile(accuracy, (np.arange(J) + 0.5) / J)
    width = max(float(accuracy.std()) / J, 1e-3)
    near = -0.5 * ((accuracy[:, None] - centre) / width) ** 2
    return softmax(near)


@declared
class MixtureModel(EMModel, ABC):
    """The search for the number of groups. In the callback, ``restart`` counts the numbers tried.

    Parameters
    ----------
    prior
        Parameters of the Dirichlets of the groups' matrices: a number for the diagonal, with 1 beside it; two,
        (diagonal, off-diagonal); or an array, K x K (truth, label).
    class_alpha
        Parameters of the Dirichlet of the classes: a number, or one for each class.
    """

    in_parts = True
    group: ClassVar[str]
    """What a group is called in the table of annotators and in attributes."""

    prior: DirichletPrior = 4.0
    class_alpha: ClassAlpha = 1.0
    tol: NonNegative = 1e-6
    restarts: CountFromZero = field(default=0, init=False)
    accelerate: bool = field(default=False, init=False)

    @abstractmethod
    def _tried(self, M: int) -> Iterable[int]:
        """The numbers of groups to try with M annotators."""

    @abstractmethod
    def _grouped(self, start: Stats, votes: Votes, J: int) -> Family:
        """The step of a fit with J groups; of the votes the names alone are looked at."""

    @abstractmethod
    def _score(self, fit: EMFit, J: int, votes: Votes) -> float:
        """The score by which the number of groups is chosen."""

    @abstractmethod
    def _described(self, params: Params) -> tuple[Floats, Floats, Floats, Floats]:
        """theta[m, k, l], and of the groups that have members: matrices, shares and memberships."""

    def _run(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit, dict[str, Any]]:
        start, votes = self._start(parts), parts.names
        numbers = enumerate(self._tried(int((start.table().sum(axis=(1, 2)) > 0.0).sum())))
        fits = ((self._run_em(parts, self._grouped(start, votes, J), start, callback, at), J) for at, J in numbers)
        fit, _ = max(fits, key=lambda tried: self._score(tried[0], tried[1], votes))  # the first of equals
        return fit.params, fit, {"log_likelihood": None, "annotator_columns": self._keep(fit.params)}

    def _prior(self, params: Params) -> Floats:
        return np.asarray(softmax(params.log_prior)[0])

    def _confusion(self, params: Params, K: int) -> Floats:
        return self._described(params)[0]

    def _keep(self, params: Params) -> dict[str, Any]:
        """Keep what was found about the groups; the columns of annotators."""
        _, matrices, shares, member = self._described(params)
        order = np.argsort(-np.einsum("jkk->j", matrices), kind="stable")  # the most accurate group first
        setattr(self, f"{self.group}_confusion_", matrices[order])
        setattr(self, f"{self.group}_share_", shares[order])
        member = member[:, order]
        return {self.group: member.argmax(axis=1), f"{self.group}_probability": member.max(axis=1)}

    def _common_prior(self, votes: Votes) -> Floats:
        """1 x K x K: the prior of every group."""
        prior = dirichlet_rows(self.prior, None, votes)
        if len(prior) != 1:
            raise ParameterError("prior is given for each annotator: groups have one, K x K, in common.")
        return prior


INNER = 3
"""Steps on clusters and memberships in each pass: they cost no look at the votes."""


def stick_parameters(member: Floats, concentration: float) -> Floats:
    """J x 2: the Beta of each stick v_j, given the memberships; the last one is 1 and has none."""
    mass = member.sum(axis=0)
    after = mass[::-1].cumsum()[::-1] - mass
    return np.stack([1.0 + mass, concentration + after], axis=1)[:-1]


def stick_log_shares(sticks: Floats) -> Floats:
    """E log lam_j = E log v_j + sum over i < j of E log (1 - v_i)."""
    log_v = expected_log(sticks, axis=1)
    before = np.concatenate([[0.0], np.cumsum(log_v[:, 1])])
    return np.asarray(np.append(log_v[:, 0], 0.0) + before)


def memberships(counts: Floats, expected: Floats, log_share: Floats) -> Floats:
    """r[m, j]: the probability that m belongs to cluster j."""
    J = len(expected)
    return softmax(log_share + counts.reshape(len(counts), -1) @ expected.reshape(J, -1).T)


def seen(counts: Floats) -> Floats:
    """M x 1: whether an annotator has votes; others do not change how large clusters are."""
    return np.asarray(counts.sum(axis=(1, 2)) > 0.0, dtype=np.float64)[:, None]


@dataclass(frozen=True)
class Clusters(Params):
    """The state of a fit."""

    centre: Floats
    member: Floats
    log_share: Floats
    mixing: Floats
    """Parameters of the Dirichlet of the shares, or of the Betas of the sticks (J - 1 x 2)."""
    classes: Floats


@dataclass
class ClusterFamily(Family):
    """The step and its objective.

    Memberships move from step to step, so the family stores them: each run of EM has a family of its own, and is not
    accelerated (an extrapolation that is undone would leave the wrong state).
    """

    prior: Floats
    classes: Floats
    member: Floats
    concentration: float | None

    def mixing(self) -> tuple[Floats, Floats]:
        """The distribution of the shares of the clusters, and E log lam."""
        if self.concentration is None:
            alpha = 1.0 + self.member.sum(axis=0)
            return alpha, expected_log(alpha, axis=0)
        order = np.argsort(-self.member.sum(axis=0), kind="stable")  # the longest stick first
        self.member = self.member[:, order]
        sticks = stick_parameters(self.member, self.concentration)
        return sticks, stick_log_shares(sticks)

    def maximise(self, stats: Stats) -> Clusters:
        counts = stats.table()
        for _ in range(INNER):
            mixing, log_share = self.mixing()
            centre = self.prior + np.einsum("mj,mlk->jlk", self.member, counts)
            expected = expected_log(centre, axis=1)
            self.member = memberships(counts, expected, log_share) * seen(counts)
        classes = stats.mass + self.classes
        everybody = np.where(seen(counts) > 0.0, self.member, softmax(log_share[None]))
        score = np.einsum("mj,jlk->mlk", everybody, expected).reshape(stats.counts.shape)
        log_prior = expected_log(classes, axis=0)[None]
        return Clusters(score, log_prior, centre, self.member, log_share, mixing, classes)

    def objective(self, log_likelihood: float, params: Params) -> float:
        assert isinstance(params, Clusters)
        r = params.member
        value = log_likelihood - divergence(params.classes, self.classes, params.log_prior[0], axis=0)
        for b in params.centre:
            value -= divergence(b, self.prior, expected_log(b, axis=0), axis=0)
        value += float((r * (params.log_share - np.log(np.maximum(r, TINY)))).sum())
        if self.concentration is None:
            one = np.ones_like(params.mixing)
            return value - divergence(params.mixing, one, expected_log(params.mixing, axis=0), axis=0)
        before = np.tile([1.0, self.concentration], (len(params.mixing), 1))
        return value - divergence(params.mixing, before, expected_log(params.mixing, axis=1), axis=1)


@declared
class WorkerCluster(MixtureModel):
    """Annotators as a mixture of a few shared confusion matrices, by variational Bayes.

    Parameters
    ----------
    n_clusters
        How many clusters there are, or ``"evidence"``: as many, up to ``max_clusters``, as the evidence favours. With
        ``mixing="process"``: the most there may be (``"evidence"``: ``max_clusters``).
    max_clusters
        The most clusters tried with ``"evidence"``.
    mixing
        How large clusters are: ``"dirichlet"``, any shares, or ``"process"``, a Dirichlet process that opens as many
        clusters as it needs.
    concentration
        Of the Dirichlet process: the larger, the more clusters.

    Notes
    -----
    The table of annotators has ``cluster`` (0 is the most accurate one) and ``cluster_probability``. The fitted model
    has ``cluster_confusion_`` (J x K x K) and ``cluster_share_``; clusters without members are left out.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(300, n_annotators=100, n_classes=3, votes_per_item=5, random_state=0)
    >>> model = cw.WorkerCluster().fit(crowd.votes)
    >>> model.cluster_confusion_.shape
    (2, 3, 3)
    >>> model.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "dawid-skene").score(crowd.truth)
    True
    """

    key = "worker-cluster"
    group = "cluster"
    columns_without_interval = ("cluster", "cluster_probability")

    n_clusters: GroupNumber = "evidence"
    max_clusters: Count = 6
    mixing: Literal["dirichlet", "process"] = "dirichlet"
    concentration: Positive = 1.0
    cluster_confusion_: Floats = field(init=False)
    cluster_share_: Floats = field(init=False)

    def _tried(self, M: int) -> Iterable[int]:
        if not isinstance(self.n_clusters, str):
            return [int(self.n_clusters)]
        return [self.max_clusters] if self.mixing == "process" else range(1, min(self.max_clusters, M) + 1)

    def _grouped(self, start: Stats, votes: Votes, J: int) -> ClusterFamily:
        prior = self._common_prior(votes)
        counts = start.table()
        there = seen(counts)[:, 0] > 0
        member = np.zeros((len(counts), J))
        member[there] = by_accuracy(own_accuracy(counts)[there], J)
        process = float(self.concentration) if self.mixing == "process" else None
        return ClusterFamily(prior[0], class_dirichlet(self.class_alpha, votes), member, process)

    def _score(self, fit: EMFit, J: int, votes: Votes) -> float:
        from scipy.special import gammaln

        return fit.objective + float(gammaln(J + 1.0))

    def _described(self, params: Params) -> tuple[Floats, Floats, Floats, Floats]:
        assert isinstance(params, Clusters)
        centre, own = normalise(params.centre, axis=1).transpose(0, 2, 1), params.member
        used = own.sum(axis=0) > 0.5
        everybody = np.where(own.sum(axis=1, keepdims=True) > 0.0, own, softmax(params.log_share[None]))
        theta = np.einsum("mj,jkl->mkl", everybody, centre)
        shares = normalise(own[:, used].sum(axis=0), axis=0)
        return theta / theta.sum(axis=2, keepdims=True), centre[used], shares, everybody[:, used]
