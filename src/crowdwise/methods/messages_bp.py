"""Belief propagation on the graph of annotators and items, the annotators integrated out.

The truths z have a fixed class prior pi, annotator m a confusion matrix theta_m drawn from a prior p(theta), and a
vote of m for l on an item of class k has probability theta_m[k, l]. Dawid-Skene finds the best theta; here theta is
integrated out. What is left is a distribution over the truths alone, with one factor per annotator.

``bp`` sends messages along the edges e = (item n, annotator m), one for each pair that has votes:

=================  ==============  =======  =================================================================
symbol             code            shape    equation
=================  ==============  =======  =================================================================
t_e(k; theta)                               prod_l theta[k, l]^(weight of m's votes for l on n)
nu_e(k)            ``nu``          E x K    pi[n, k] prod over the other edges d of n of mu_d(k); one-hot if known
mu_e(k)            ``log_mu``      E x K    E_theta[ t_e(k; theta) prod over the other edges d of m of f_d(theta) ]
f_d(theta)                                  sum_k nu_d(k) t_d(k; theta)
q[n, k]            posterior       N x K    proportional to pi[n, k] prod over the edges e of n of mu_e(k)
theta              confusion       MxKxK    E[ theta | all messages to m ]
log evidence       log_likelihood           sum_m log Z_m + sum_n log Z_n - sum_e log Z_e (Bethe)
=================  ==============  =======  =================================================================

The expectations are in :mod:`crowdwise.methods.messages_sweeps`: exact with one coin per annotator or with two
classes, drawn otherwise. Posterior and evidence are exact where the graph is a tree.

``mf`` approximates the posterior by independent factors, q(z) prod_m Dirichlet(theta_m; alpha + c_m), and alternates
c[m, k, l] = sum over m's votes for l of q[n, k] with q[n, k] ~ pi_k prod_votes exp E[log theta[m, k, l]], where E[log
theta] = digamma(alpha + c) - digamma(sum_l (alpha + c)). That is variational Bayes as in independent BCC, with the
class distribution fixed instead of learned under a prior of its own, and a weak prior on annotators: two on the truth
and one elsewhere, so that for two classes alpha is [2 1; 1 2]. Its objective is the evidence lower bound,

    sum_n log sum_k pi_k prod_votes exp E[log theta]  -  sum_m KL( Dirichlet(alpha + c_m) || Dirichlet(alpha) ).

Q. Liu, J. Peng and A. Ihler, Variational inference for crowdsourcing, NIPS 2012. H. Kim, S. Cho, D. Kim and J. Ok,
Robust deep learning from crowds with belief propagation, AISTATS 2022, for the sampled messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from crowdwise.core import em, priors, shrinkage
from crowdwise.core.constraints import Bounds, Check, Count, NonNegative
from crowdwise.core.em import Stats, log_class_prior
from crowdwise.core.model import Callback, EMModel, Family, Model, Outcome, Params, Part, Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, posterior_and_evidence, safe_log, softmax
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_parts import VoteParts
from crowdwise.core.vote_sums import sum_rows
from crowdwise.data import encoding
from crowdwise.errors import ParameterError
from crowdwise.methods.bayes_ibcc import divergence, expected_log
from crowdwise.methods.messages_sweeps import Dice, Integrator, LabelGraph, Nodes, exact_jobs, sampled_jobs

FOLLOW = 20
"""For so many sweeps at most draws follow the beliefs; then they stay, so that the messages can converge."""
CALM = 1e-3
"""They stay earlier where no message has moved by more than this."""


DrawnPrior = Annotated[Any, Check(callable, "a function that draws confusion matrices")]


def one_coin_parameters(prior: Any, history: Any, votes: Votes) -> Floats:
    """Beta (right, wrong) of one accuracy: the pair itself; of matrices, the sums on and off the diagonal."""

    def on_and_off(table: Floats) -> Floats:
        right = np.einsum("mkk->m", table)
        return np.stack([right, table.sum(axis=(1, 2)) - right], axis=1)

    pair = np.ndim(prior) < 2
    out = np.array([priors.right_and_wrong(prior)]) if pair else on_and_off(priors.dirichlet_rows(prior, None, votes))
    return out if history is None else out + on_and_off(priors.pseudo_counts(0.0, history, votes))


def gather(graph: LabelGraph, log_mu: Floats, log_pi: Floats) -> Floats:
    """log pi[n, k] + sum over the edges e of n of log mu_e(k), N x K."""
    return log_pi + sum_rows(log_mu, graph.item, len(log_pi))


def with_gold(nu: Floats, graph: LabelGraph, gold: Ints | None) -> Floats:
    """Messages of items, which are certain for items with gold labels."""
    return nu if gold is None else clamp(nu, gold[graph.item])


@declared
class BeliefPropagation(Model):
    """Belief propagation between items and annotators, whose confusion matrices are integrated out.

    Parameters
    ----------
    coins
        ``"full"``: a confusion matrix with independent rows (two classes: the two-coin model). ``"one"``: one
        accuracy per annotator, wrong answers spread evenly.
    prior
        The prior of annotators, as Dirichlet parameters: a pair (on the truth, on each other label), which with one
        coin is that of Beta(right, wrong); a number a, short for (a, 1); K x K (truth, label); or M x K x K. Or a
        function ``prior(rng, size)`` that draws ``size`` x K x K confusion matrices from any other prior.
    history
        Past performance, which adds to the prior: annotator -> K x K counts (truth, label), or a Consensus.
    class_prior
        ``"uniform"``, the probability of each class, or ``"learned"``: the mean of the beliefs after every sweep.
    integral
        ``"exact"`` (one coin, or two classes), ``"sampled"``, or ``"auto"``: exact where that exists.
    samples
        How many confusion matrices are drawn per annotator, where they are. The column ``effective_samples`` of the
        annotators' table is how many of them carry the result: under ten or so, draw more.
    damping
        The part of the old message (its logarithm) that stays: 0 to less than 1.
    max_iter, tol
        Stop after so many sweeps, or when no message of an annotator, as a probability, moves by more than ``tol``.

    Items of the fit, with the votes they had there, are predicted as they were in the fit; others from the
    annotators' posterior mean confusion.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.regular(600, l=5, r=6, a=1.0, b=0.5, random_state=0)
    >>> accuracy = cw.aggregate(crowd.votes, "bp", coins="one", prior=(1.0, 0.5)).score(crowd.truth)
    >>> accuracy > cw.aggregate(crowd.votes, "majority").score(crowd.truth) + 0.05
    True
    """

    key = "bp"
    single_annotator = True
    takes_item_prior = True

    columns_without_interval = ("effective_samples",)

    coins: Literal["full", "one"] = "full"
    prior: priors.DirichletPrior | DrawnPrior = 2.0
    history: priors.History = None
    class_prior: priors.ClassPrior = "uniform"
    integral: Literal["auto", "exact", "sampled"] = "auto"
    samples: Count = 400
    damping: Annotated[float, Bounds(minimum=0, below=1)] = 0.0
    max_iter: Count = 100
    tol: NonNegative = 1e-5
    theta_: Floats = field(init=False)
    belief_: Floats = field(init=False)
    """The posterior before gold labels are put in."""

    def _check_together(self) -> None:
        if callable(self.prior) and (self.coins == "one" or self.integral == "exact" or self.history is not None):
            raise ParameterError(
                "A prior given as a function draws whole confusion matrices: "
                "leave coins='full' and integral='auto', and give no history."
            )
        if self.coins == "one" and self.integral == "sampled":
            raise ParameterError("integral='sampled': with coins='one' the integral is exact, and nothing is drawn.")

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        N, K = len(votes), votes.n_classes
        graph = LabelGraph.of(votes)
        fixed = priors.class_prior_counts(self.class_prior, votes)
        pi = np.full(K, 1.0 / K) if fixed is None else fixed
        source, sampled, adaptive = self.source(votes, graph)

        def log_prior() -> Floats:
            return np.broadcast_to(safe_log(pi), (N, K)) + (0.0 if item_prior is None else item_prior)

        q = clamp(normalise(votes.shares() + 1.0 / K, axis=1), gold) if adaptive else None
        log_mu = np.zeros((len(graph.item), K))
        # Draws near the posterior represent the prior badly: there the first messages are vote shares, not uniform.
        nu = with_gold(softmax(log_prior()[graph.item]) if q is None else q[graph.item], graph, gold)
        change, integrator, follows = np.inf, source(q), adaptive
        rounds = Rounds(self.max_iter, votes.n_votes, callback)
        for sweep in rounds:
            if follows and sweep > 1:  # draw near the current beliefs
                integrator = source(q, integrator)
                follows = sweep <= FOLLOW and change > CALM
            new, theta, log_z, size = integrator.sweep(nu)
            new = (1.0 - self.damping) * new + self.damping * log_mu if sweep > 1 else new
            change = float(np.abs(softmax(new) - softmax(log_mu)).max(initial=0.0))
            log_mu = new
            logit = gather(graph, log_mu, log_prior())
            q, log_z_item = posterior_and_evidence(logit, gold)
            _, log_z_edge = posterior_and_evidence(safe_log(nu) + log_mu)
            value = log_z + float(log_z_item.sum()) - float(log_z_edge.sum())
            if fixed is None:
                pi = normalise(q.sum(axis=0), axis=0)
                logit = gather(graph, log_mu, log_prior())
            nu = with_gold(softmax(logit[graph.item] - log_mu), graph, gold)
            rounds.reached(value, moved=change, converged=change <= self.tol and not follows, traced=False)
        self.theta_, self._log_pi, self._votes = theta, safe_log(pi), votes
        self.belief_ = softmax(logit)
        return Outcome(
            posterior=clamp(self.belief_, gold), prior=pi, confusion=theta, log_likelihood=value,
            annotator_columns={"effective_samples": size} if sampled else {}, **rounds.outcome,
        )  # fmt: skip

    def source(self, votes: Votes, graph: LabelGraph) -> tuple[Callable[..., Integrator], bool, bool]:
        """A function from beliefs (and the earlier integrator) to an integrator; whether it draws; whether the draws
        follow the beliefs."""
        K = votes.n_classes
        rng = np.random.default_rng(self.random_state)
        if callable(self.prior):
            nodes = drawn_nodes(self.prior, int(self.samples), K, rng)
            self._unseen = np.exp(nodes.log_theta).mean(axis=0)
            shared = Integrator(graph)
            shared.add(np.arange(votes.n_annotators), nodes)
            return lambda q, earlier=None: shared, True, False
        bare = priors.dirichlet_rows(self.prior, None, votes).transpose(0, 2, 1)
        self._unseen = (bare / bare.sum(axis=2, keepdims=True)).mean(axis=0)
        alpha = priors.dirichlet_rows(self.prior, self.history, votes).transpose(0, 2, 1)
        if self.coins == "one":
            right, wrong = one_coin_parameters(self.prior, None, votes).mean(axis=0)
            self._unseen = shrinkage.one_coin_table(np.array([right / (right + wrong)]), K)[0]
            exact = exact_jobs(graph, one_coin_parameters(self.prior, self.history, votes)[:, None, :], K)
            return lambda q, earlier=None: exact, False, False
        if self.integral == "sampled" or (K > 2 and self.integral == "auto"):
            part = Part.of(votes)
            often = np.bincount(votes.label, weights=votes.weights, minlength=K)
            order = np.lexsort((votes.classes.astype(str), -often))
            dice = Dice.roll(int(self.samples), np.argsort(order), rng)

            def near(q: Floats, earlier: Integrator | None = None) -> Integrator:
                return sampled_jobs(graph, alpha, em.statistics(part, q).table().transpose(0, 2, 1), dice, earlier)

            return near, True, True
        if K > 2:
            raise ParameterError(
                f"integral='exact' with coins='full' is for two classes, and there are {K}: "
                "use coins='one' or integral='sampled'."
            )
        two = exact_jobs(graph, np.stack([alpha[:, 0, :], alpha[:, 1, ::-1]], axis=1), K)
        return lambda q, earlier=None: two, False, False

    def _predict(self, votes: Votes) -> Floats:
        theta = with_unseen(self.theta_, votes.n_annotators, self._unseen)
        log_score = safe_log(theta.transpose(0, 2, 1)).reshape(-1, votes.n_classes)
        _, q = em.expect(Part.of(votes), Params(log_score, self._log_pi[None]), posterior=True)
        here, there = same_items(votes, self._votes)
        q = q.copy()
        q[here] = self.belief_[there]
        return q


def same_items(votes: Votes, others: Votes) -> tuple[Ints, Ints]:
    """The items that both tables have under one name and with the same votes: their places in each."""
    place = encoding.locate(votes.items, others.items)
    size = np.diff(votes.indptr)
    here = np.flatnonzero((place >= 0) & (size == np.diff(others.indptr)[place]))
    there = place[here]

    def rows(table: Votes, which: Ints) -> Floats:
        """The votes of some items, in one order whatever theirs was."""
        n = size[here]
        at = np.repeat(table.indptr[which] - np.append(0, np.cumsum(n))[:-1], n) + np.arange(n.sum())
        owner = np.repeat(np.arange(len(which)), n)
        columns = np.stack([owner, table.annotator[at], table.label[at], table.weights[at]], axis=1).astype(np.float64)
        return columns[np.lexsort(columns.T[::-1])]

    ours, theirs = rows(votes, here), rows(others, there)
    differs = ours[(ours != theirs).any(axis=1), 0].astype(np.int64)
    keep = np.ones(len(here), dtype=bool)
    keep[differs] = False
    return here[keep], there[keep]


def drawn_nodes(prior: Callable[[np.random.Generator, int], Any], D: int, K: int, rng: np.random.Generator) -> Nodes:
    """D draws from a prior given as a function, each with the same weight."""
    theta = np.asarray(prior(rng, D), dtype=np.float64)
    if theta.shape != (D, K, K) or not ((theta >= 0).all() and np.allclose(theta.sum(axis=2), 1.0, atol=1e-6)):
        raise ParameterError(
            f"prior(rng, {D}) gave an array of shape {theta.shape}: "
            f"expected {D} x {K} x {K} confusion matrices (truth, label) whose rows sum to one."
        )
    return Nodes(safe_log(theta), np.full(D, -np.log(D)))


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
            right, wrong = mean_log[:, :1, None], mean_log[:, 1:, None] - np.log(K - 1.0)
            table = np.where(np.eye(K, dtype=bool), right, wrong)
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

    def _family_of(self, parts: VoteParts) -> MeanFieldFamily:
        votes = parts.names
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
