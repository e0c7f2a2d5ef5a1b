"""Minimax conditional entropy: annotators confuse classes, and so do items.

Of all distributions of the votes, take those with the most entropy that still reproduce, softly, how often each
annotator gave each label to each class and how often each item got each label; then choose the truth with the least
entropy. The dual of that problem is a model with terms of the annotator and of the item,

    P(m says l of n | truth k) = exp( sigma[m, k, l] + tau[n, k, l] ) / sum over l',

and what is maximised is

    J(sigma, tau) = sum_n log sum_k pi[n, k] prod_votes P(l | k)^w  -  a/2 sum sigma^2  -  b/2 sum tau^2.

pi is uniform over the classes that occur, unless a prior per item is given. J is maximised in turns: q, the truth
distribution, given sigma and tau; then sigma and tau given q, a concave problem, by L-BFGS. Neither lowers J.

==================  ==================  ==========  ======================================================
symbol              code                shape       equation
==================  ==================  ==========  ======================================================
sigma[m, k, l]      ``sigma``           M x K x K   annotator m's tendency to say l when the truth is k
tau[n, k, l]        ``tau``             N x K x K   the same of item n, for all annotators
q[n, k]             ``q``               N x K       softmax_k( log pi[n, k] + sum_votes w log P(l | k) )
a                   annotator_penalty               K^2 / 4
b                   item_penalty                    a * mean votes per annotator / mean votes per item
difficulty          ``difficulty``      N           - sum_k q[n, k] ( tau[k, k] - mean of tau[k, l != k] )
==================  ==================  ==========  ======================================================

The terms of an item depend on sigma and on its own votes alone. So, once sigma has converged, q and tau of every item
are computed again from its votes, in the same way for the items of the fit and for any other (``item_terms``).

D. Zhou, J. C. Platt, S. Basu and Y. Mao, Learning from the wisdom of crowds by minimax entropy, NIPS 2012. D. Zhou,
Q. Liu, J. C. Platt and C. Meek, Aggregating ordinal labels from crowds by minimax conditional entropy, ICML 2014.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from crowdwise.core import starts
from crowdwise.core.constraints import Count, NonNegative, Positive
from crowdwise.core.model import Callback, Outcome, Part, Rounds, StartedModel, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise, one_algebra_thread, posterior_and_evidence
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_order import Canonical
from crowdwise.core.vote_sums import VoteEdges
from crowdwise.errors import InputError

MAX_NUMBERS = 10_000_000
"""(N + M) K^2 beyond which a fit is refused: L-BFGS keeps two dozen copies of sigma and tau, here 2 GB."""
MAX_WORK = 100_000_000
"""Votes times classes squared beyond which a fit is refused: a pass takes seconds, and a hundred of them are needed."""
ITEM_ROUNDS = 1000
"""The most rounds between an item's truth distribution and its terms, with the annotators fixed."""


def answers(e: VoteEdges, sigma: Floats, tau: Floats, k: int) -> tuple[Floats, Floats]:
    """For truth k: P of each label (K x S, the votes last), and the log-probability of the label given (S)."""
    z = sigma[:, k].T.copy()[:, e.annotator]  # labels first: numpy is slow along short last axes
    z += tau[:, k].T.copy()[:, e.item]
    z -= z.max(axis=0)
    chosen = z[e.label, np.arange(len(e.label))]
    p = np.exp(z, out=z)
    total = p.sum(axis=0)
    p /= total
    return p, chosen - np.log(total)


def residual(e: VoteEdges, p: Floats, mass: Floats) -> Floats:
    """( P(l' | k) - [l = l'] ) times the mass of each vote, in place of P."""
    p[e.label, np.arange(len(e.label))] -= 1.0
    p *= mass
    return p


def logits(e: VoteEdges, sigma: Floats, tau: Floats, log_prior: Floats) -> Floats:
    """log pi[n, k] + sum over n's votes of w log P(l | k)."""
    K = tau.shape[1]
    return log_prior + np.stack([e.per_item(e.weight * answers(e, sigma, tau, k)[1]) for k in range(K)], axis=1)


def penalty(sigma: Floats, tau: Floats, a: float, b: float) -> float:
    """a/2 sum sigma^2 + b/2 sum tau^2."""
    return 0.5 * (a * float(np.vdot(sigma, sigma)) + b * float(np.vdot(tau, tau)))


def loss(e: VoteEdges, q: Floats, sigma: Floats, tau: Floats, a: float, b: float) -> tuple[float, Floats, Floats]:
    """The loss of the parameters given q, and its gradients.

    value = - sum_votes w sum_k q[n, k] log P(l | k) + penalty;
    d/d sigma[m, k, l'] = sum over m's votes of w q[n, k] ( P(l' | k) - [l = l'] ) + a sigma, and so for tau.
    """
    K = q.shape[1]
    value = penalty(sigma, tau, a, b)
    d_sigma, d_tau = a * sigma, b * tau
    for k in range(K):
        p, log_p = answers(e, sigma, tau, k)
        mass = e.weight * q[e.item, k]
        value -= float(mass @ log_p)
        for label, x in enumerate(residual(e, p, mass)):
            d_sigma[:, k, label] += e.per_annotator(x)
            d_tau[:, k, label] += e.per_item(x)
    return value, d_sigma, d_tau


def fit_terms(
    e: VoteEdges, q: Floats, sigma: Floats, tau: Floats, a: float, b: float, rounds: int, slack: float
) -> tuple[Floats, Floats]:
    """sigma and tau that lower the loss given q: ``rounds`` iterations of L-BFGS, or until one gains under ``slack``.

    The variables are scaled by the square root of a bound on their curvature, penalty + (votes that concern
    them) / 2: an annotator with a thousand votes and an item with three need steps of different sizes.
    """
    from scipy.optimize import minimize

    mass = [e.weight * q[e.item, k] for k in range(q.shape[1])]
    scale_sigma = np.sqrt(a + 0.5 * np.stack([e.per_annotator(x) for x in mass], axis=1))[:, :, None]
    scale_tau = np.sqrt(b + 0.5 * np.stack([e.per_item(x) for x in mass], axis=1))[:, :, None]
    cut = sigma.size

    def split(x: Floats) -> tuple[Floats, Floats]:
        return x[:cut].reshape(sigma.shape) / scale_sigma, x[cut:].reshape(tau.shape) / scale_tau

    def scaled(x: Floats) -> tuple[float, Floats]:
        value, d_sigma, d_tau = loss(e, q, *split(x), a, b)
        return value, np.concatenate([(d_sigma / scale_sigma).ravel(), (d_tau / scale_tau).ravel()])

    start = np.concatenate([(sigma * scale_sigma).ravel(), (tau * scale_tau).ravel()])
    with one_algebra_thread():
        relative = slack / max(scaled(start)[0], 1.0)
        options = {"maxiter": rounds, "ftol": relative, "gtol": 1e-9}
        optimum = minimize(scaled, start, jac=True, method="L-BFGS-B", options=options)
    return split(np.asarray(optimum.x, dtype=np.float64))


def item_terms(e: VoteEdges, sigma: Floats, log_prior: Floats, gold: Ints, b: float) -> tuple[Floats, Floats]:
    """q and tau of items from their votes, given the annotators: from tau = 0, in turns until they converge.

    A turn moves tau[n, k] by gradient / ( b + W / 2 ), W the weight q[n, k] puts on the item's votes: the curvature of
    the loss is nowhere greater, so no turn lowers J, and no item's result depends on the others.
    """
    N, K = log_prior.shape
    tau = np.zeros((N, K, K))
    total = e.per_item(e.weight)
    q = np.empty((N, K))
    for _ in range(ITEM_ROUNDS):
        by_class = [answers(e, sigma, tau, k) for k in range(K)]
        logit = log_prior + np.stack([e.per_item(e.weight * log_p) for _, log_p in by_class], axis=1)
        q, _ = posterior_and_evidence(logit, gold)
        step = -b * tau
        for k, (p, _) in enumerate(by_class):
            for label, x in enumerate(residual(e, p, e.weight * q[e.item, k])):
                step[:, k, label] -= e.per_item(x)
        step /= (b + 0.5 * total[:, None] * q)[:, :, None]
        tau += step
        if np.abs(step).max(initial=0.0) < 1e-10:
            break
    return q, tau


@declared
class Minimax(StartedModel):
    """Minimax conditional entropy, regularised: an item's own confusion beside the annotator's.

    Parameters
    ----------
    annotator_penalty
        a, the weight of the squares of sigma; ``None``: K^2 / 4.
    item_penalty
        b, the weight of the squares of tau; ``None``: a times the mean number of votes per annotator over the mean
        number of votes per item. The greater, the nearer to a model in which all items are alike.
    inner_iter
        The most iterations of L-BFGS in one turn of sigma and tau.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(150, n_annotators=12, n_classes=3, votes_per_item=6, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "minimax")
    >>> consensus.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    >>> consensus.item_columns["difficulty"].shape
    (150,)
    """

    key = "minimax"

    annotator_penalty: Positive | None = None
    item_penalty: Positive | None = None
    inner_iter: Count = 25
    max_iter: Count = 50
    tol: NonNegative = 1e-5
    sigma_: Floats = field(init=False)
    """M x K x K (annotator, truth, label)."""
    tau_: Floats = field(init=False)
    """N x K x K (item, truth, label)."""

    def _check_votes(self, votes: Votes, gold: Ints | None) -> None:
        super()._check_votes(votes, gold)
        K = votes.n_classes
        numbers, work = (len(votes) + votes.n_annotators) * K**2, votes.n_votes * K**2
        if numbers > MAX_NUMBERS or work > MAX_WORK:
            raise InputError(
                f"{len(votes):,} items and {votes.n_votes:,} votes with {K} classes are beyond minimax: it would fit "
                f"{numbers:,} numbers (at most {MAX_NUMBERS:,}), with a hundred passes of {work:,} steps "
                f"(at most {MAX_WORK:,}). Use anchored or dawid-skene, or fit some of the items and predict the rest."
            )

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        c = Canonical.of(votes, gold, every_class=item_prior is not None)
        N, M, K = c.shape
        e = VoteEdges(c.item, c.annotator, c.label, c.weight, N, M)
        total = max(float(c.weight.sum()), 1e-12)
        a = K * K / 4.0 if self.annotator_penalty is None else float(self.annotator_penalty)
        voted, labelled = len(np.unique(c.annotator)), len(np.unique(c.item))
        b = a * labelled / voted if self.item_penalty is None else float(self.item_penalty)
        rows = np.ix_(c.item_order, c.class_order)
        log_prior = np.full((N, K), -np.log(K)) if item_prior is None else item_prior[rows]
        part = Part.of(votes, gold, item_prior)
        q = starts.initial_posterior(self.start, part, votes, gold, self.random_state)[rows]
        sigma, tau = np.zeros((M, K, K)), np.zeros((N, K, K))
        rounds = Rounds(self.max_iter, total, callback)
        for _ in rounds:
            sigma, tau = fit_terms(e, q, sigma, tau, a, b, self.inner_iter, 0.1 * self.tol * total)
            q, evidence = posterior_and_evidence(logits(e, sigma, tau, log_prior), c.gold)
            rounds.reached(float(evidence.sum()) - penalty(sigma, tau, a, b), below=self.tol)
        q, tau = item_terms(e, sigma, log_prior, c.gold, b)
        self.sigma_, self.tau_ = c.restore_annotators(sigma, 0.0), np.zeros((N, c.n_classes, c.n_classes))
        self.tau_[np.ix_(c.item_order, c.class_order, c.class_order)] = tau
        self._classes, self._penalty = np.sort(c.class_order), b
        theta = np.exp(sigma - sigma.max(axis=2, keepdims=True))
        ease = (np.einsum("nkk->nk", tau) * K - tau.sum(axis=2)) / (K - 1.0)
        return Outcome(
            posterior=c.restore_items(q),
            prior=c.restore_classes(normalise(q.sum(axis=0), axis=0)),
            confusion=c.restore_annotators(theta / theta.sum(axis=2, keepdims=True), 1.0 / c.n_classes),
            item_columns={"difficulty": c.back(c.item_order, -(q * ease).sum(axis=1) + 0.0)},
            **rounds.outcome,
        )

    def _predict(self, votes: Votes) -> Floats:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        sigma = with_unseen(self.sigma_, M, self.sigma_.mean(axis=0))  # unseen: like the average annotator
        classes = self._classes
        log_prior = np.full((N, len(classes)), -np.log(len(classes)))
        q = np.zeros((N, K))
        code = np.searchsorted(classes, votes.label)
        kept = np.isin(votes.label, classes)
        e = VoteEdges(votes.item[kept], votes.annotator[kept], code[kept], votes.weights[kept], N, M)
        sub = np.ascontiguousarray(sigma[:, classes][:, :, classes])
        q[:, classes], _ = item_terms(e, sub, log_prior, np.full(N, -1), self._penalty)
        return q
