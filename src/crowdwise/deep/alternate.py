"""Networks that alternate with inference: guess the classes, train the network on the guess, guess again.

Every learner here keeps a posterior q[n, k] over the classes of the items it trains on, lowers the cross-entropy of the
network against it, - mean_n sum_k q[n, k] log f(x_n)[k], and infers q anew from the votes and what the network has
learned. They differ in how they infer:

============  =====================================================================================================
``aggnet``    EM: q ~ f(x) prod theta; theta from the counts of q. A round every epoch
``mbem``      q ~ pi prod theta; theta and pi from counts of the network's *hard* predictions. A few rounds, the
              network trained anew in each
``deep-mf``   variational Bayes: q ~ f(x) prod exp E[log theta], theta under a Dirichlet. A round every epoch
``deep-bp``   belief propagation, theta integrated out, with f(x) as the items' prior. A few sweeps every epoch
============  =====================================================================================================

=================  ===========  =========  ====================================================================
symbol             code         shape      equation
=================  ===========  =========  ====================================================================
q[n, k]            ``target``   N x K      starts at the vote shares; one-hot where the truth is known
c[m, k, l]         counts       M x K x K  sum over m's votes for l of weight q[n, k]
theta[m, k, l]     ``counted``  M x K x K  aggnet, mbem: (c + prior) / its sum over l. deep-mf: alpha + c, likewise.
                                           deep-bp: E[ theta | messages ]
E[log theta]       ``score``    M x K x K  deep-mf: digamma(alpha + c) - digamma(sum_l (alpha + c)); else log theta
f^(x)              ``held``     N x K      f(x) held between (1 - trust) / (K - 1) and trust, normalised
mu_e(k)            ``log_mu``   E x K      deep-bp: message from an annotator to an item (``methods.messages``)
=================  ===========  =========  ====================================================================

Before the first epoch the network knows nothing: ``aggnet``, ``mbem`` and ``deep-mf`` train on the vote shares then,
``deep-bp`` on the beliefs from votes alone.

When they fail: a network that can learn its target by heart confirms it, and nothing moves any more; annotators
who err together pass for right. ``mbem`` needs a network that predicts better than the votes it was trained on.
With a wrong prior on annotators, ``deep-mf`` can follow a few who answer everything at random; ``deep-bp`` resists
where every item has few votes. ``trust`` below one keeps useless inputs from drowning the votes.

References: S. Albarqouni et al., AggNet, IEEE Transactions on Medical Imaging 35 (2016). A. Khetan, Z. Lipton and
A. Anandkumar, Learning from noisy singly-labeled data, ICLR 2018. H. Kim, S. Cho, D. Kim and J. Ok, Robust deep
learning from crowds with belief propagation, AISTATS 2022.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from crowdwise.core import em, priors, starts
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.model import check_memory, recode
from crowdwise.core.numerics import Floats, normalise, safe_log
from crowdwise.data.votes import Votes
from crowdwise.deep.edges import Batch, Edges
from crowdwise.deep.head import FLOOR, Head, Predict, cross_entropy
from crowdwise.deep.learner import Learner, check_choice, check_count, check_number
from crowdwise.deep.trainer import Trainer
from crowdwise.errors import ParameterError
from crowdwise.methods import messages
from crowdwise.methods.integrals import Graph
from crowdwise.methods.messages import BeliefPropagation, MeanFieldFamily, gather, hold, same_items, softmax

COLD = 100
"""Messages that start from nothing, before and after training, are sent so many times at most."""

# -------------------------------------------------------------------- what they share


def score_table(table: Floats) -> Floats:
    """M x K x K (annotator, truth, label) as the kernels take it: (m * K + l) x K."""
    return np.ascontiguousarray(table.transpose(0, 2, 1)).reshape(-1, table.shape[1])


def numbers(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().cpu().double().numpy())


def held(log_f: Floats, trust: float) -> Floats:
    """log f^: probabilities held between (1 - trust) / (K - 1) and trust, and normalised again."""
    if trust >= 1.0:
        return log_f
    f = np.clip(np.exp(log_f), (1.0 - trust) / (log_f.shape[1] - 1.0), trust)
    return np.asarray(np.log(f / f.sum(axis=1, keepdims=True)))


class Alternating(Head):
    """A posterior over the items trained on, which the network learns and the votes correct."""

    target: Tensor
    score: Tensor

    def __init__(self, n_annotators: int, n_classes: int, trust: float = 1.0) -> None:
        super().__init__(n_annotators, n_classes)
        self.trust = trust
        self.register_buffer("target", torch.empty(0, n_classes))
        self.register_buffer("score", self.counted.log())

    def start(self, votes: Votes) -> None:
        self.votes = votes
        self.target = torch.as_tensor(starts.informed(votes, self.gold), dtype=torch.float32)

    def begin(self, epoch: int, predict: Predict) -> None:
        if epoch > 0:
            self._keep("target", self.infer(numbers(self.target), numbers(predict())))

    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(self.target[batch.index].to(batch.logits.dtype), batch.logits)

    def settle(self, log_f: Tensor, edges: Edges) -> None:
        """What is known of the annotators, after one more look at the items."""
        look = numbers(log_f)
        params = self.maximise(self.statistics(self.infer(numbers(self.target), look)), look)
        self._keep("counted", self.mean(params))
        self._keep("score", self.scores(params))

    def forecast(self, batch: Batch) -> Tensor:
        log_f = torch.as_tensor(held(numbers(batch.log_f), self.trust), dtype=batch.logits.dtype).to(batch.logits)
        return torch.log_softmax(log_f + batch.total(batch.weight[:, None] * self._scores(batch)), dim=1)

    # ---------------------------------------------------------------- inference

    @abstractmethod
    def maximise(self, stats: Stats, log_f: Floats) -> Params:
        """What is known of the annotators, from the statistics of a posterior (or of the network's predictions)."""

    def infer(self, q: Floats, log_f: Floats) -> Floats:
        """The posterior that follows from an earlier one and N x K log probabilities of the network."""
        params = self.maximise(self.statistics(q), log_f)
        part = Part.of(self.votes, self.gold, held(log_f, self.trust))
        return em.expect(part, params, posterior=True)[1]

    def statistics(self, q: Floats) -> Stats:
        return em.statistics(Part.of(self.votes), q)

    def scores(self, params: Params) -> Floats:
        """M x K x K: what a vote adds to the log probability of each class."""
        K = self.n_classes
        return params.log_score.reshape(-1, K, K).transpose(0, 2, 1)

    def mean(self, params: Params) -> Floats:
        """theta, as it is believed on average."""
        return np.exp(self.scores(params))

    def _scores(self, batch: Batch) -> Tensor:
        """E x K: what each vote adds to the log probabilities; strangers answer as the crowd."""
        known = batch.annotator < self.n_annotators
        own = self.score[batch.annotator.clamp_max(self.n_annotators - 1), :, batch.label]
        return torch.where(known[:, None], own, self._log_columns(batch)).clamp_min(np.log(FLOOR)).to(batch.logits)

    def _keep(self, name: str, value: Floats) -> None:
        setattr(self, name, torch.as_tensor(value, dtype=torch.float32).to(self.counted.device))


# -------------------------------------------------------------------- EM


class Counted(Alternating):
    """theta from counts and pseudo-counts."""

    def __init__(self, n_annotators: int, n_classes: int, prior: Any) -> None:
        super().__init__(n_annotators, n_classes)
        self.prior = prior

    def start(self, votes: Votes) -> None:
        super().start(votes)
        self.extra = priors.pseudo_counts(self.prior, None, votes, self.gold)

    def maximise(self, stats: Stats, log_f: Floats) -> Params:
        theta = normalise((stats.table() + self.extra).transpose(0, 2, 1), axis=2)
        return Params(score_table(safe_log(theta)), np.zeros((1, self.n_classes)))


@dataclass(kw_only=True, eq=False, repr=False)
class AggNet(Learner):
    """Expectation and maximisation with a network as the maximisation's classifier: one round every epoch.

    Parameters
    ----------
    prior
        Pseudo-counts of the confusion matrices: a number of votes per row, spread evenly over labels;
        ``"crowd"``, ``"hierarchical"``; or an array, K x K or M x K x K (truth, label).

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=3, random_state=0)
    >>> learner = AggNet(epochs=15, random_state=0).fit(crowd.features["x_train"], crowd.votes)
    >>> bool(learner.consensus_.score(crowd.truth) > 0.9)
    True
    """

    key: ClassVar[str] = "aggnet"
    prior: Any = 1.0

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        check_memory(votes)
        return Counted(votes.n_annotators, votes.n_classes, self.prior)


class Bootstrapped(Counted):
    """theta and pi from counts of the network's hard predictions, at the beginning of every round but the first."""

    def __init__(self, n_annotators: int, n_classes: int, prior: Any, rounds: int, epochs: int) -> None:
        super().__init__(n_annotators, n_classes, prior)
        self.begins = {round(r * epochs / rounds) for r in range(1, rounds)} - {0}

    def renew(self, epoch: int) -> bool:
        return epoch in self.begins

    def begin(self, epoch: int, predict: Predict) -> None:
        if epoch in self.begins:
            super().begin(epoch, predict)

    def predictions(self, log_f: Floats) -> Floats:
        """N x K, one-hot; items without votes count for nothing."""
        hard = np.zeros_like(log_f)
        hard[np.arange(len(hard)), log_f.argmax(axis=1)] = 1.0
        used = np.diff(self.votes.indptr) > 0
        return starts.clamp(hard * used[:, None], self.gold)

    def infer(self, q: Floats, log_f: Floats) -> Floats:
        params = self.maximise(self.statistics(self.predictions(log_f)), log_f)
        return em.expect(Part.of(self.votes, self.gold), params, posterior=True)[1]

    def maximise(self, stats: Stats, log_f: Floats) -> Params:
        found = super().maximise(stats, log_f)
        return Params(found.log_score, safe_log(normalise(stats.mass + 1.0 / self.n_classes, axis=0))[None])

    def settle(self, log_f: Tensor, edges: Edges) -> None:
        look = numbers(log_f)
        params = self.maximise(self.statistics(self.predictions(look)), look)
        self._keep("counted", self.mean(params))
        self._keep("score", self.scores(params))


@dataclass(kw_only=True, eq=False, repr=False)
class MBEM(Learner):
    """Model bootstrapped EM: train, compare the votes with the predictions, weigh the votes, train anew.

    Once trained, the network takes the place of the class distribution where input and votes are looked at together.

    Parameters
    ----------
    rounds
        How often the network is trained, each time from its first weights: on the vote shares, then on the posterior.
    epochs
        Of all rounds together; each gets the same number (with fewer epochs than rounds, some rounds get none).
    prior
        Pseudo-counts of the confusion matrices, as in :class:`AggNet`.
    """

    key: ClassVar[str] = "mbem"
    epochs: int = 100
    rounds: int = 2
    prior: Any = 1.0

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        check_memory(votes)
        return Bootstrapped(votes.n_annotators, votes.n_classes, self.prior, int(self.rounds), int(self.epochs))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count(self, "rounds")


# -------------------------------------------------------------------- mean field


class Believed(Alternating):
    """theta under Dirichlet distributions, independent of the truths."""

    def __init__(self, n_annotators: int, n_classes: int, trust: float, prior: Any) -> None:
        super().__init__(n_annotators, n_classes, trust)
        self.prior = prior

    def start(self, votes: Votes) -> None:
        super().start(votes)
        K = votes.n_classes
        alpha = messages.dirichlet_parameters(self.prior, None, votes)
        self.family = MeanFieldFamily(alpha, np.full(K, 1.0 / K))

    def maximise(self, stats: Stats, log_f: Floats) -> Params:
        return self.family.maximise(stats)

    def mean(self, params: Params) -> Floats:
        alpha = params.alpha  # type: ignore[attr-defined]
        return np.asarray(alpha / alpha.sum(axis=2, keepdims=True))


@dataclass(kw_only=True, eq=False, repr=False)
class DeepMF(Learner):
    """Variational Bayes with a network as the items' prior: truths and confusion matrices taken for independent.

    Parameters
    ----------
    prior
        What annotators are like, as Dirichlet parameters of the rows of their confusion matrices: a pair (on the
        truth, on each other label); a number a, short for (a, 1); K x K (truth, label); or M x K x K.
    trust
        The most that the network is believed to be sure: its probabilities are held below it in inference.
    """

    key: ClassVar[str] = "deep-mf"
    prior: Any = 2.0
    trust: float = 0.9

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        check_memory(votes)
        check_trust(self, votes.n_classes)
        return Believed(votes.n_annotators, votes.n_classes, float(self.trust), self.prior)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self, "trust", above=0.0)


# -------------------------------------------------------------------- belief propagation


class Messages(Alternating):
    """Beliefs from messages between items and annotators, whose confusion matrices are integrated out."""

    log_mu: Tensor
    incoming: Tensor

    def __init__(self, n_annotators: int, n_classes: int, trust: float, model: BeliefPropagation) -> None:
        super().__init__(n_annotators, n_classes, trust)
        self.model = model
        for name in ("log_mu", "incoming"):
            self.register_buffer(name, torch.empty(0, n_classes))
        for name in ("seen_indptr", "seen_annotator", "seen_label"):
            self.register_buffer(name, torch.zeros(1, dtype=torch.int64))
        self.register_buffer("seen_weight", torch.ones(1))

    def start(self, votes: Votes) -> None:
        super().start(votes)
        self.problem = Beliefs(self.model, votes, self.gold)
        self._keep("log_mu", np.zeros((len(self.problem.graph.item), votes.n_classes)))

    def begin(self, epoch: int, predict: Predict) -> None:
        log_f = numbers(predict()) if epoch > 0 else np.zeros((len(self.votes), self.n_classes))
        log_mu, q, theta = self.problem.solve(
            held(log_f, self.trust) if epoch > 0 else log_f, numbers(self.target), numbers(self.log_mu), cold=epoch == 0
        )
        for name, value in (("log_mu", log_mu), ("target", q), ("counted", theta)):
            self._keep(name, value)

    def settle(self, log_f: Tensor, edges: Edges) -> None:
        """The annotators are known from the messages already."""
        self._keep("score", safe_log(numbers(self.counted)))

    def conclude(self, votes: Votes, log_f: Floats) -> Floats:
        """Beliefs of the items of all votes, messages sent until they settle; what they say is kept for later."""
        problem = Beliefs(self.model, votes, self.gold)
        log_pi = held(log_f, self.trust)
        log_mu, q, theta = problem.solve(
            log_pi, starts.informed(votes, self.gold), np.zeros((len(problem.graph.item), self.n_classes)), cold=True
        )
        self._keep("counted", theta)
        self._keep("score", safe_log(theta))
        self._keep("incoming", gather(problem.graph, log_mu, np.zeros_like(log_pi)))
        device = self.counted.device
        for name in ("indptr", "annotator", "label"):
            setattr(self, f"seen_{name}", torch.as_tensor(np.array(getattr(votes, name), dtype=np.int64)).to(device))
        self._keep("seen_weight", votes.weights)
        return q

    def seen(self, like: Votes, items: Any) -> Votes:
        """The votes of the fit, with the names of annotators and classes of votes that are in its codes."""
        indptr, annotator, label, weight = (
            getattr(self, f"seen_{name}").cpu().numpy() for name in ("indptr", "annotator", "label", "weight")
        )
        return Votes(
            indptr, annotator.astype(np.int32), label.astype(np.int32), items, like.annotators, like.classes,
            None if (weight == 1.0).all() else weight.astype(np.float64),
        )  # fmt: skip

    def maximise(self, stats: Stats, log_f: Floats) -> Params:
        raise NotImplementedError("Annotators are integrated out, not maximised.")


class Beliefs:
    """Votes as a graph, and messages over it."""

    def __init__(self, model: BeliefPropagation, votes: Votes, gold: Any) -> None:
        self.model, self.gold = model, gold
        self.graph = Graph.of(votes)
        self.source, _, self.adaptive = model.source(votes, self.graph)

    def solve(self, log_pi: Floats, q: Floats, log_mu: Floats, cold: bool) -> tuple[Floats, Floats, Floats]:
        """Messages (E x K), beliefs (N x K) and mean theta, from earlier messages and beliefs and the items' prior.

        Where the integrals are taken by draws, these are made near the earlier beliefs; starting cold, they follow the
        beliefs for some sweeps, and the first messages are the beliefs, as in ``methods.messages``.
        """
        graph, theta = self.graph, np.empty(0)
        follows = self.adaptive and cold
        integrator = self.source(q)
        logit = gather(graph, log_mu, log_pi)
        nu = q[graph.item] if follows else softmax(logit[graph.item] - log_mu)[0]
        for sweep in range(max(self.model.max_iter, COLD) if cold else self.model.max_iter):
            if follows and sweep:
                integrator = self.source(q)
            new, theta, *_ = integrator.sweep(hold(nu, graph, self.gold))
            new = (1.0 - self.model.damping) * new + self.model.damping * log_mu if sweep or not cold else new
            change = float(np.abs(softmax(new)[0] - softmax(log_mu)[0]).max(initial=0.0))
            log_mu = new
            logit = gather(graph, log_mu, log_pi)
            q = starts.clamp(softmax(logit)[0], self.gold)
            nu = softmax(logit[graph.item] - log_mu)[0]
            follows = follows and sweep < messages.FOLLOW and change > messages.CALM
            if change <= self.model.tol and not follows:
                break
        return log_mu, q, theta


@dataclass(kw_only=True, eq=False, repr=False)
class DeepBP(DeepMF):
    """Belief propagation with a network as the items' prior; confusion matrices are integrated out.

    Parameters
    ----------
    prior
        What annotators are like, as in :class:`DeepMF`; or a function ``prior(rng, size)`` that draws ``size`` x K x K
        confusion matrices from any other prior.
    trust
        The most that the network is believed to be sure: its probabilities are held below it in inference.
    coins
        ``"full"``: a confusion matrix with independent rows. ``"one"``: one accuracy per annotator, whose prior is then
        Beta(right, wrong) from the pair.
    sweeps, tol
        Messages are sent so many times an epoch at most, until none moves by more than ``tol``; the next epoch goes
        on from there. After training they are sent afresh, up to a hundred times.
    samples
        Draws per annotator where the integral is not exact (more than two classes and full matrices).
    damping
        The part of the old message (its logarithm) that stays.

    Examples
    --------
    >>> import crowdwise as cw
    >>> import numpy as np
    >>> crowd = cw.simulate.regular(300, l=3, r=4, a=1.0, b=0.5, random_state=0)
    >>> x = crowd.truth[:, None] + np.random.default_rng(0).normal(size=(300, 1))
    >>> learner = DeepBP(coins="one", prior=(1.0, 0.5), epochs=10, random_state=0).fit(x, crowd.votes)
    >>> learner.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key: ClassVar[str] = "deep-bp"
    coins: str = "full"
    sweeps: int = 10
    tol: float = 1e-3
    samples: int = 400
    damping: float = 0.0

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        check_memory(votes)
        check_trust(self, votes.n_classes)
        return Messages(votes.n_annotators, votes.n_classes, float(self.trust), self._model())

    def _model(self) -> BeliefPropagation:
        return BeliefPropagation(
            coins=self.coins, prior=self.prior, samples=int(self.samples), damping=float(self.damping),
            max_iter=int(self.sweeps), tol=float(self.tol), random_state=self.seed_,
        )  # fmt: skip

    def _posterior(self, trainer: Trainer, votes: Votes) -> tuple[Floats, Floats]:
        log_f = numbers(trainer.log_probs())
        head = trainer.head
        assert isinstance(head, Messages)
        return head.conclude(votes, log_f), np.exp(log_f).mean(axis=0)

    def predict_proba(self, X: Any, votes: Votes | None = None) -> Floats:
        """N x K class probabilities from the inputs; with ``votes``, from inputs and votes together.

        Items of the fit, with the votes they had there, get the messages of the fit; others are judged by the mean
        confusion of their annotators.
        """
        q = super().predict_proba(X, votes)
        if votes is None:
            return q
        head = self._trainer.head
        assert isinstance(head, Messages)
        coded = recode(votes, self.consensus_)
        here, there = same_items(coded, head.seen(coded, self.consensus_.item_names))
        if len(here):
            log_f = safe_log(super().predict_proba(X)[here])
            q[here] = softmax(held(log_f, head.trust) + numbers(head.incoming)[there])[0]
        return q

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self, "coins", ("full", "one"))
        check_count(self, "sweeps")
        check_count(self, "samples")
        check_number(self, "tol", least=0.0)
        check_number(self, "damping", least=0.0)
        if self.damping >= 1.0:
            raise ParameterError(f"damping={self.damping!r}: expected a number from 0 to less than 1.")
        if callable(self.prior) and self.coins == "one":
            raise ParameterError("A prior given as a function draws whole confusion matrices: leave coins='full'.")


def check_trust(learner: Any, K: int) -> None:
    if not 1.0 / K < learner.trust <= 1.0:
        raise ParameterError(
            f"trust={learner.trust!r}: expected a probability above 1/{K}, that of a guess among {K} classes, up to 1."
        )
