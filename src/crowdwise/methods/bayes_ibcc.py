"""Bayesian classifier combination: Dawid and Skene's model with Dirichlet priors, and a posterior over the matrices.

Classes and confusion matrices are drawn from Dirichlet distributions, then truths and votes as in ``dawid-skene``:

    pi ~ Dir(a0),   theta[m, k] ~ Dir(b0[m, k]),   z_n ~ pi,   label of m on n ~ theta[m, z_n]

``variational`` finds the product q(z) q(pi) q(theta) closest to the posterior. Its steps are those of EM, with expected
logarithms in place of logarithms, and they raise a lower bound of the evidence log p(votes). ``gibbs`` draws from the
posterior itself, in turn the truths given the parameters and the parameters given the truths.

===========  ==============  ===============  =======================================================================
symbol       code            shape            equation
===========  ==============  ===============  =======================================================================
q[n, k]      posterior       N x K            softmax_k( E log pi_k + sum_votes E log theta[m, k, l] )
c[m, l, k]   ``counts``      M x L x K        sum over m's votes for l of q[n, k]
b[m, l, k]   ``rows``        M x L x K        b0 + c, the Dirichlet of theta[m, k] (b0: ``prior`` and ``history``)
a[k]         ``classes``     K                a0 + sum_n q[n, k], the Dirichlet of pi
E log theta  ``log_score``   (M L) x K        psi(b[m, l, k]) - psi(sum_l b[m, l, k])
ELBO         objective                        sum_n log Z_n - KL(q(pi) | p(pi)) - sum_mk KL(q(theta[m, k]) | p)
===========  ==============  ===============  =======================================================================

Z_n is the normaliser of q[n]. The default prior, 4 on the diagonal and 1 beside it, says that annotators are somewhat
better than chance; it keeps classes at their labels where votes are few, and gives way where they are many.

H.-C. Kim and Z. Ghahramani, Bayesian classifier combination, AISTATS 2012 (the model, by Gibbs sampling). E. Simpson,
S. Roberts, I. Psorakis and A. Smith, Dynamic Bayesian combination of multiple imperfect classifiers (2013), the
variational version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from crowdwise.core import em, vote_order
from crowdwise.core.constraints import Bounds, CountFromZero
from crowdwise.core.model import Callback, EMFit, Family, Outcome, Params, Part, Rounds, Stats, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, softmax
from crowdwise.core.priors import ClassAlpha, DirichletPrior, History, class_dirichlet, dirichlet_rows
from crowdwise.core.vote_parts import VoteParts
from crowdwise.errors import ParameterError
from crowdwise.online.streaming import StreamingModel

BATCHES = 10
"""The number of stretches of a chain between which the variance of its averages is measured."""


def expected_log(a: Floats, axis: int) -> Floats:
    """E log p under Dir(a): psi(a_l) - psi(sum_l a_l)."""
    from scipy.special import digamma

    return np.asarray(digamma(a) - digamma(a.sum(axis=axis, keepdims=True)))


def divergence(a: Floats, a0: Floats, mean_log: Floats, axis: int) -> float:
    """KL(Dir(a) | Dir(a0)), summed over all Dirichlets but along ``axis``; ``mean_log`` is E log p under Dir(a).

    = log B(a0) - log B(a) + sum_l (a_l - a0_l) E log p_l.
    """
    return float((log_beta(a0, axis) - log_beta(a, axis) + ((a - a0) * mean_log).sum(axis=axis)).sum())


def log_beta(a: Floats, axis: int) -> Floats:
    """log B(a) = sum_l lgamma(a_l) - lgamma(sum_l a_l), the logarithm of what normalises Dir(a)."""
    from scipy.special import gammaln

    return np.asarray(gammaln(a).sum(axis=axis) - gammaln(a.sum(axis=axis)))


def draw_log_dirichlet(a: Floats, axis: int, rng: np.random.Generator) -> Floats:
    """The logarithm of a draw from each Dir(a).

    A Gamma(a) draw is a Gamma(a + 1) draw times U^(1/a): its logarithm is finite however small a is.
    """
    g = np.log(rng.standard_gamma(a + 1.0)) - rng.standard_exponential(a.shape) / a
    g -= g.max(axis=axis, keepdims=True)
    return np.asarray(g - np.log(np.exp(g).sum(axis=axis, keepdims=True)))


@dataclass(frozen=True)
class Dirichlets(Params):
    """Expected logarithms, and the Dirichlets they are of: ``rows[m, l, k]`` and ``classes[k]``."""

    rows: Floats
    classes: Floats


@dataclass(frozen=True)
class DirichletFamily(Family):
    """The variational step and the bound it raises."""

    rows: Floats
    classes: Floats

    def maximise(self, stats: Stats) -> Dirichlets:
        L = self.rows.shape[1]
        rows = stats.counts.reshape(-1, L, stats.counts.shape[1]) + self.rows
        classes = stats.mass + self.classes
        log_score = expected_log(rows, axis=1).reshape(stats.counts.shape)
        return Dirichlets(log_score, expected_log(classes, axis=0)[None], rows, classes)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """sum_n log Z_n - KL(pi) - KL(theta)."""
        assert isinstance(params, Dirichlets)
        rows = divergence(params.rows, self.rows, params.log_score.reshape(params.rows.shape), axis=1)
        return log_likelihood - rows - divergence(params.classes, self.classes, params.log_prior[0], axis=0)


@dataclass(frozen=True)
class ChainMeans:
    """Averages over the draws of a chain."""

    posterior: Floats
    error: Floats
    """N x K: the standard error of the posterior, from how much stretches of the chain differ."""
    theta: Floats
    """M x L x K."""
    pi: Floats


def gibbs(
    part: Part, family: DirichletFamily, state: Dirichlets, burn_in: int, samples: int, rng: np.random.Generator,
    rounds: Rounds | None = None,
) -> ChainMeans:  # fmt: skip
    """Draw parameters from ``state``, truths given them, the next state given those, and so on.

    The posterior is the average of P(z_n | parameters, votes) over the draws of the parameters, which is the average
    of the drawn truths with one source of noise less.
    """
    N, K = len(part.indptr) - 1, part.n_classes
    batches = min(BATCHES, samples)
    batch = np.arange(samples) * batches // samples
    total, squares, stretch = np.zeros((N, K)), np.zeros((N, K)), np.zeros((N, K))
    theta, pi = np.zeros_like(state.rows), np.zeros(K)
    rounds = Rounds(burn_in + samples, part.n_votes) if rounds is None else rounds
    for sweep, _ in enumerate(rounds):
        log_theta = draw_log_dirichlet(state.rows, 1, rng).reshape(-1, K)
        log_pi = draw_log_dirichlet(state.classes, 0, rng)
        stats, q = em.expect(part, Params(log_theta, log_pi[None]), posterior=True)
        s = sweep - burn_in
        if s >= 0:
            total += q
            stretch += q
            theta += normalise(state.rows, axis=1)
            pi += np.exp(log_pi)
            if s + 1 == samples or batch[s + 1] != batch[s]:
                squares += stretch * stretch / np.count_nonzero(batch == batch[s])
                stretch[:] = 0.0
        drawn = (rng.random((N, 1)) >= np.cumsum(q, axis=1)).sum(axis=1)
        truth = np.zeros((N, K))
        truth[np.arange(N), np.minimum(drawn, K - 1)] = 1.0
        state = family.maximise(em.statistics(part, truth))
        rounds.reached(stats.log_likelihood)
    q = total / samples
    # Var of the mean, by batch means: sum_b size_b (mean_b - mean)^2 / (batches - 1) / samples.
    error = np.sqrt(np.maximum(squares - samples * q * q, 0.0) / max(batches - 1, 1) / samples)
    return ChainMeans(q / q.sum(axis=1, keepdims=True), error, theta / samples, pi / pi.sum())


def drawn(votes: Votes, gold: Ints | None, rng: np.random.Generator, *size: int) -> Floats:
    """Exponential noise, one draw (of some size) per item and class, by their places in the canonical order.

    So neither the order of rows, of classes and of annotators nor their names matter to what is drawn.
    """
    items, classes = vote_order.ranks(votes, gold)
    out: Floats = rng.standard_exponential((len(items), len(classes), *size))[np.ix_(items, classes)]
    return out


@declared
class IBCC(StreamingModel):
    """Bayesian classifier combination with independent annotators: confusion matrices under Dirichlet priors.

    Parameters
    ----------
    prior
        Parameters of the Dirichlets of the confusion matrices: a number for the diagonal, with 1 beside it; two,
        (diagonal, off-diagonal); or an array, K x K (truth, label) or M x K x K. ``prior=(5, 2), class_alpha=1.1`` is
        the setting of BayesGC.
    class_alpha
        Parameters of the Dirichlet of the classes: a number, or one for each class.
    history
        Past performance, which stays in force: annotator -> K x K counts (truth, label), or a Consensus.
    inference
        ``"variational"``: the product of distributions closest to the posterior. ``"gibbs"``: draws from the
        posterior, by a chain that starts at the variational solution.
    burn_in, samples
        With ``"gibbs"``: how many sweeps are thrown away, and how many are averaged after them.

    Notes
    -----
    ``confusion`` holds posterior means. ``prior`` is the distribution of an item without votes. With ``"gibbs"`` the
    table of items has the column ``simulation_error``, the standard error of ``probability`` due to finite sampling;
    there is no objective, items outside the fit are answered with the posterior means of the parameters, and
    exchanging annotators or classes changes the draws, so results agree within that error.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(300, n_annotators=40, n_classes=4, votes_per_item=3, random_state=0)
    >>> bayes, plain = cw.IBCC().fit(crowd.votes).consensus_, cw.DawidSkene().fit(crowd.votes).consensus_
    >>> bayes.score(crowd.truth) > plain.score(crowd.truth)
    True
    """

    key = "ibcc"
    in_parts = True

    prior: DirichletPrior = 4.0
    class_alpha: ClassAlpha = 1.0
    history: History = None
    inference: Literal["variational", "gibbs"] = "variational"
    burn_in: CountFromZero = 100
    samples: Annotated[int, Bounds(minimum=2)] = 400

    def check_stream(self) -> None:
        super().check_stream()
        if self.inference != "variational":
            raise ParameterError(f"inference={self.inference!r} needs all votes at once; a stream needs 'variational'.")

    def check_in_parts(self) -> None:
        super().check_in_parts()
        if self.inference != "variational":
            raise ParameterError(
                f"inference={self.inference!r} needs all votes at once; votes in parts need 'variational'."
            )

    def _family_of(self, parts: VoteParts) -> DirichletFamily:
        rows = dirichlet_rows(self.prior, self.history, parts.names)
        return DirichletFamily(rows, class_dirichlet(self.class_alpha, parts.names))

    def _prior(self, params: Params) -> Floats:
        return np.asarray(softmax(params.log_prior)[0])

    def _confusion(self, params: Params, K: int) -> Floats:
        assert isinstance(params, Dirichlets)
        return normalise(params.rows, axis=1).transpose(0, 2, 1).copy()

    def _run(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit, dict[str, Any]]:
        # The normalisers' sum is part of the bound, not a likelihood: there is none to report.
        params, fit, _ = super()._run(parts, callback)
        return params, fit, {"log_likelihood": None}

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        outcome = super()._fit(votes, gold, item_prior, callback)
        if self.inference == "variational":
            return outcome
        part, state, K = Part.of(votes, gold, item_prior), self.params_, votes.n_classes
        assert isinstance(state, Dirichlets)
        rounds = Rounds(outcome.iterations + self.burn_in + self.samples, part.n_votes, callback)
        rounds.iterations = outcome.iterations
        family, rng = self._family_of(VoteParts.whole(votes, gold)), np.random.default_rng(self.random_state)
        chain = gibbs(part, family, state, self.burn_in, self.samples, rng, rounds)
        self.params_ = Params(safe_log(chain.theta).reshape(-1, K), safe_log(chain.pi)[None])
        self.stats_ = em.statistics(part, chain.posterior)
        best = chain.posterior.argmax(axis=1)
        return Outcome(
            posterior=chain.posterior, prior=chain.pi, confusion=chain.theta.transpose(0, 2, 1).copy(),
            iterations=rounds.iterations, item_columns={"simulation_error": chain.error[np.arange(len(best)), best]},
        )  # fmt: skip
