"""Gibbs-CrowdSVM: a Bayesian Dawid-Skene whose classes must also win by a margin of weighted votes.

Annotators have confusion matrices phi[m], as in Dawid-Skene, and weights eta_m, as in ``m3v``; with s[n, k] the sum of
w eta_m over the votes for k on n,

    p(y, phi, eta | votes)  ~  prod phi[m, y_n, l]^w  Dir(phi; alpha)  N(eta; 0, I)  prod_n exp(-2 c max(0, zeta_n)),
    zeta_n = margin - s[n, y_n] + max_{d != y_n} s[n, d].

The paper has a prior variance v of eta as well; c, margin and v say the same as c sqrt(v), margin / sqrt(v) and 1, so v
is 1 here. c is that whose classes and mean confusion matrices make the votes likeliest (``vote_likelihood``).

exp(-2 c max(0, zeta)) is a mixture of normals over lambda_n, so all conditionals are standard and are drawn in turn:

==============  ===============  ===========  ==================================================================
symbol          code             shape        drawn from
==============  ===============  ===========  ==================================================================
phi[m, k]       ``log_phi``      M x K x K    Dirichlet(alpha + counts of m's labels on items of class k)
1 / lambda_n    ``precision``    N            inverse Gaussian with mean 1 / (c |zeta_n|) and shape 1
eta             ``eta``          M            normal: precision I + c^2 B' diag(1/lambda) B, times its mean = B' (c +
                                              c^2 margin / lambda); B[n] = votes for y_n less those for the rival
y_n             ``y``            N            softmax_k( sum_votes w log phi[m, k, l] - 2 c max(0, zeta_n(k)) ),
                                              lambda summed out
==============  ===============  ===========  ==================================================================

q is the mean over the kept draws of that softmax. With two classes the sampler is exact. With more, the rival, the best
class other than y_n, is held fixed while eta is drawn and renewed afterwards, as in the paper: that keeps eta normal,
and makes the probabilities too sure where votes are few (by up to 0.13 on five items, three votes each, three classes).

T. Tian and J. Zhu, Max-margin majority voting for learning from crowds, NIPS 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from crowdwise.core.constraints import Count, CountFromZero, NonNegative, Positive, fixed_seed
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.model import Callback, Outcome, Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, decide, normalise, one_algebra_thread, safe_log, softmax
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_order import Canonical
from crowdwise.errors import InputError
from crowdwise.methods.entropy_m3v import MarginModel, confusion_counts, margins, rivals, scores

COSTS = (2.0**-4, 2.0**-2, 1.0)
"""What ``crowd-svm`` tries where the likelihood is to choose: on simulated crowds these three are as good as more, and
better than any fixed cost."""
MAX_NUMBERS = 100_000_000
"""Draws of confusion matrices, in numbers, beyond which a fit is refused: two chains are held, here 1.6 GB."""


def inverse_gaussian(mean: Floats, rng: np.random.Generator) -> Floats:
    """A draw each from the inverse Gaussian with shape 1 (Michael, Schucany and Haas), without cancellation.

    Takes as many random numbers whatever the means are.
    """
    a = mean * rng.standard_normal(len(mean)) ** 2
    x = mean * 4.0 * a / (np.sqrt(a * a + 4.0 * a) + a) ** 2
    other = rng.random(len(mean)) * (mean + x) > mean
    return np.where(other, mean * (mean / x), x)


def draw_normal(B: Any, at: Floats, target: Floats, rng: np.random.Generator) -> Floats:
    """A draw from the normal with precision A = I + B' diag(at) B and mean A^-1 B' target.

    B' target plus a draw with covariance A is solved for by conjugate gradients, so no M x M matrix is made.
    """
    from scipy.sparse.linalg import LinearOperator, cg

    N, M = B.shape
    right = B.T @ (target + np.sqrt(at) * rng.standard_normal(N)) + rng.standard_normal(M)
    diagonal = 1.0 + B.multiply(B).T @ at
    A = LinearOperator((M, M), matvec=lambda x: x + B.T @ (at * (B @ x)), dtype=np.float64)
    inverse = LinearOperator((M, M), matvec=lambda x: x / diagonal, dtype=np.float64)
    return np.asarray(cg(A, right, rtol=1e-9, atol=0.0, maxiter=20 * M + 100, M=inverse)[0])


def truth_given(log_phi: Floats, eta: Floats, votes: Any, shape: tuple[int, int], c: float, margin: float) -> Floats:
    """softmax_k( sum_votes w log phi[m, k, l] - 2 c max(0, zeta(k)) ), for votes = (item, annotator, label, weight)."""
    item, annotator, label, weight = votes
    N, K = shape
    columns = [np.bincount(item, weights=weight * log_phi[annotator, k, label], minlength=N) for k in range(K)]
    logit = np.stack(columns, axis=1).astype(np.float64)
    s = scores(item, label, weight * eta[annotator], N, K)
    return softmax(logit - 2.0 * c * np.maximum(0.0, margin - margins(s)))


def vote_likelihood(v: Canonical, y: Ints, phi: Floats) -> float:
    """sum_votes w log phi[m, y_n, l]."""
    return float(v.weight @ safe_log(phi[v.annotator, y[v.item], v.label]))


@dataclass(frozen=True)
class SamplerRun:
    """One run of the sampler: the mean of q, and the draws of log phi and eta."""

    q: Floats
    log_phi: Floats
    eta: Floats

    @property
    def phi(self) -> Floats:
        """The mean of the confusion matrices."""
        return normalise(np.exp(self.log_phi).mean(axis=0), axis=2)


@declared
class CrowdSVM(MarginModel):
    """Gibbs-CrowdSVM: Bayesian Dawid-Skene in which the classes must also win by a margin of weighted votes.

    Parameters
    ----------
    alpha
        Pseudo-votes on every cell of the confusion matrices.
    cost
        The cost of a missed margin, c; 0 leaves the margins out, which is Dawid-Skene by Gibbs sampling.
        ``"likelihood"``: of 1/16, 1/4 and 1 the one whose classes and confusion matrices make the votes likeliest.
    margin
        The margin asked for, in standard deviations of the weights under their prior.
    burn_in, samples
        Draws thrown away, and draws kept. Those kept are stored: samples x M x K^2 numbers.

    >>> import crowdwise as cw
    >>> votes = cw.simulate.dirichlet(300, n_annotators=15, n_classes=3, votes_per_item=5, random_state=0).votes
    >>> cw.aggregate(votes, "crowd-svm").score(votes.truth) > cw.aggregate(votes, "majority").score(votes.truth)
    True
    """

    key = "crowd-svm"
    costs = COSTS
    single_votes = "certain"

    alpha: Positive = 1.0
    cost: NonNegative | Literal["likelihood"] = "likelihood"
    margin: Positive = 1.0
    burn_in: CountFromZero = 10
    samples: Count = 50
    log_phi_: Floats = field(init=False)
    """samples x M x K x K: the draws of the confusion matrices (truth, label), as logarithms."""
    eta_: Floats = field(init=False)
    """samples x M: the draws of the weights."""

    def _check_votes(self, votes: Votes, gold: Ints | None) -> None:
        super()._check_votes(votes, gold)
        M, K = votes.n_annotators, votes.n_classes
        numbers = self.samples * M * K**2
        if numbers > MAX_NUMBERS:
            raise InputError(
                f"{self.samples} draws of the confusion matrices of {M:,} annotators over {K:,} classes are "
                f"{numbers:,} numbers, and crowd-svm keeps at most {MAX_NUMBERS:,}. "
                "Ask for fewer samples, or use anchored or dawid-skene."
            )

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        there = np.flatnonzero(np.bincount(votes.annotator, minlength=votes.n_annotators))
        active = votes if len(there) == votes.n_annotators else votes.only(votes.annotators[there].tolist())
        v = Canonical.of(active, gold)
        self._seed = fixed_seed(self.random_state)  # every cost gets the same random numbers
        chain = self._best(v, active, gold, self.cost, callback)
        q, eta, place = chain.q, chain.eta, there[v.annotator_order]
        classes = np.argsort(v.class_order)  # back in the order of the votes, without those left out
        log_phi = chain.log_phi[:, :, classes][:, :, :, classes]
        self.eta_ = np.repeat(eta.mean(axis=1, keepdims=True), votes.n_annotators, axis=1)  # no votes: like the average
        self.eta_[:, place] = eta
        self.log_phi_ = np.repeat(safe_log(np.exp(log_phi).mean(axis=1, keepdims=True)), votes.n_annotators, axis=1)
        self.log_phi_[:, place] = log_phi
        self._classes = v.class_order[classes]
        theta = v.restore_annotators(chain.phi, 1.0 / v.n_classes)
        confusion = np.repeat(theta.mean(axis=0, keepdims=True), votes.n_annotators, axis=0)
        confusion[there] = theta
        weight, variance = self.eta_.mean(axis=0), self.eta_.var(axis=0)
        absent = np.setdiff1d(np.arange(votes.n_annotators), there)
        variance[absent] = max(float(variance.max()), 1.0)  # of the prior
        return Outcome(
            posterior=v.restore_items(q),
            prior=v.restore_classes(normalise(q.sum(axis=0), axis=0)),
            confusion=confusion,
            iterations=self.burn_in + self.samples,
            annotator_columns=with_interval("weight", weight, *around(weight, variance)),
        )

    def _likelihood(self, v: Canonical, fit: Any) -> float:
        return vote_likelihood(v, decide(fit.q, fit.q.sum(axis=0)), fit.phi)

    def _fit_cost(self, v: Canonical, y: Ints, cost: float, restart: int, callback: Callback | None) -> SamplerRun:
        """One run of the sampler from the classes y."""
        rounds = Rounds(self.burn_in + self.samples, len(v.item), callback, restart)
        with one_algebra_thread():
            return self._sample(v, y, cost, np.random.default_rng(self._seed), rounds)

    def _sample(self, v: Canonical, y: Ints, c: float, rng: np.random.Generator, rounds: Rounds) -> SamplerRun:
        from scipy.sparse import csr_array

        N, M, K = v.shape
        margin = float(self.margin)
        votes = (v.item, v.annotator, v.label, v.weight)
        indptr = np.searchsorted(v.item, np.arange(N + 1))
        eta = np.full(M, margin * N / max(v.weight.sum(), 1e-12))  # unanimous items start with about the margin
        kept_phi, kept_eta, mean = np.empty((self.samples, M, K, K)), np.empty((self.samples, M)), np.zeros((N, K))
        for t, _ in enumerate(rounds):
            rival, ahead = rivals(scores(v.item, v.label, v.weight * eta[v.annotator], N, K), y)
            precision = inverse_gaussian(1.0 / np.maximum(c * np.abs(margin - ahead), 1e-6), rng)
            sign = (v.label == y[v.item]).astype(np.float64) - (v.label == rival[v.item])
            B = csr_array((v.weight * sign, v.annotator, indptr), shape=(N, M))
            eta = draw_normal(B, c * c * precision, c + c * c * margin * precision, rng)
            gamma = rng.standard_gamma(confusion_counts(v, y) + self.alpha)
            log_phi = safe_log(gamma) - safe_log(gamma.sum(axis=2, keepdims=True))
            q = clamp(truth_given(log_phi, eta, votes, (N, K), c, margin), v.gold)
            y = np.minimum((q.cumsum(axis=1) < rng.random((N, 1))).sum(axis=1), K - 1)
            y = np.where(v.gold >= 0, v.gold, y)
            if t >= self.burn_in:
                mean += q / self.samples
                kept_phi[t - self.burn_in], kept_eta[t - self.burn_in] = log_phi, eta
            rounds.reached()
        return SamplerRun(mean / mean.sum(axis=1, keepdims=True), kept_phi, kept_eta)

    def _predict(self, votes: Votes) -> Floats:
        classes = self._classes
        N, M, K = len(votes), votes.n_annotators, len(classes)
        inside = np.isin(votes.label, classes)
        item, who, label, weight = (x[inside] for x in (votes.item, votes.annotator, votes.label, votes.weights))
        table, mean = (item, who, np.searchsorted(classes, label), weight), np.zeros((N, K))
        for log_phi, eta in zip(self.log_phi_, self.eta_, strict=True):
            log_phi = with_unseen(log_phi, M, safe_log(np.exp(log_phi).mean(axis=0)))  # like the average annotator
            eta = with_unseen(eta, M, eta.mean())
            mean += truth_given(log_phi, eta, table, (N, K), self.cost_, float(self.margin))
        q = np.zeros((N, votes.n_classes))
        q[:, classes] = mean / mean.sum(axis=1, keepdims=True)
        return q
