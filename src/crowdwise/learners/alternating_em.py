"""Networks that alternate with inference: infer the classes, train the network on them, infer again.

Every learner here has a posterior q[n, k] over the classes of the items it trains on. It minimises the cross-entropy of
the network against it, - mean_n sum_k q[n, k] log f(x_n)[k], and then infers q again from the votes and the network's
predictions. They differ in the inference (references: docs/learners-alternating.md):

============  =====================================================================================================
``aggnet``    EM: q ~ f(x) prod theta; theta from the counts of q. A round every epoch
``mbem``      q ~ pi prod theta; theta and pi from counts of the network's *hard* predictions. A few rounds, each
              with a new training of the network
``deep-mf``   variational Bayes: q ~ f(x) prod exp E[log theta], theta under a Dirichlet. A round every epoch
``deep-bp``   belief propagation, in :mod:`crowdwise.learners.alternating_deep_bp`
``raykar``    EM with a data model f (softmax regression) instead of a network, refit in every round
============  =====================================================================================================

=================  ===========  =========  ====================================================================
symbol             code         shape      equation
=================  ===========  =========  ====================================================================
q[n, k]            ``target``   N x K      starts at the vote shares; one-hot for gold items
c[m, k, l]         counts       M x K x K  sum over m's votes for l of weight q[n, k]
theta[m, k, l]     ``counted``  M x K x K  aggnet, mbem: (c + prior) / its sum over l. deep-mf: alpha + c, likewise
E[log theta]       ``score``    M x K x K  deep-mf: digamma(alpha + c) - digamma(sum_l (alpha + c)); else log theta
f^(x)              ``clipped``  N x K      f(x) cut off at max_probability, the rest evenly to the other classes
=================  ===========  =========  ====================================================================

In the first epoch the network is untrained: all train on the vote shares then.

``raykar`` starts from the vote shares and maximises

    sum_n log sum_k f(x_n)[k] prod over the votes (m, l) of theta[m, k, l]^weight
      + sum b log theta + log prior of the weights of f,

which never decreases. Pseudo-counts b are those of a Dirichlet prior with parameters 1 + b. Items without votes and
without gold take no part in learning; gold fixes the class of an item.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from crowdwise.core import em, priors, starts
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import Bounds, Count, NonNegative, Positive, declared
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.loop import check_memory
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, safe_log
from crowdwise.core.priors import DirichletPrior, Prior
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.devices import as_array, score_table
from crowdwise.learners.head import FLOOR, Head, Predict, cross_entropy, vote_counts
from crowdwise.learners.learner import Learner
from crowdwise.learners.tabular import Softmax, Tabular
from crowdwise.learners.training_settings import Callback, EpochRounds
from crowdwise.learners.vote_edges import Batch, Edges, used_items
from crowdwise.methods.messages_bp import MeanFieldFamily


def clipped(log_f: Floats, highest: float) -> Floats:
    """log f^: no probability above ``highest``; what is cut off goes to the other classes in equal parts.

    That is min(f + t, highest) with the t for which a row sums to one, found by how many classes are cut off.
    """
    if highest >= 1.0 or (log_f <= np.log(highest)).all():
        return log_f
    f, K = np.exp(log_f), log_f.shape[1]
    down = -np.sort(-f, axis=1)
    cut = np.arange(K)  # so many classes are cut off
    rest = down.sum(axis=1, keepdims=True) - np.cumsum(down, axis=1) + down
    t = (1.0 - cut * highest - rest) / (K - cut)
    n = np.argmax(down + t <= highest * (1.0 + 1e-12), axis=1)[:, None]
    return safe_log(np.where(n > 0, np.minimum(f + np.take_along_axis(t, n, axis=1), highest), f))


class Alternating(Head):
    """A posterior over the items trained on, which is the network's target; inferred in ``begin_epoch``."""

    target: Tensor
    score: Tensor

    def __init__(self, n_annotators: int, n_classes: int, max_probability: float = 1.0) -> None:
        super().__init__(n_annotators, n_classes)
        self.max_probability = max_probability
        self.register_buffer("target", torch.empty(0, n_classes))
        self.register_buffer("score", self.counted.log())

    def start(self, votes: Votes) -> None:
        self.votes = votes
        self.target = torch.as_tensor(starts.gold_weighted(votes, self.gold), dtype=torch.float32)

    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(self.target[batch.index].to(batch.logits.dtype), batch.logits)

    def posterior_log_probs(self, batch: Batch) -> Tensor:
        f = clipped(as_array(batch.log_f), self.max_probability)
        log_f = torch.as_tensor(f, dtype=batch.logits.dtype).to(batch.logits)
        return torch.log_softmax(log_f + batch.total(batch.weight[:, None] * self._scores(batch)), dim=1)

    def _scores(self, batch: Batch) -> Tensor:
        """E x K: what each vote adds to the log probabilities; unseen annotators answer like the crowd."""
        known = self.score[self.known_codes(batch), :, batch.label]
        scores = self.or_unseen(batch, known, lambda: self._log_columns(batch))
        return scores.clamp_min(np.log(FLOOR)).to(batch.logits)

    def _set(self, **values: Floats) -> None:
        for name, value in values.items():
            setattr(self, name, torch.as_tensor(value, dtype=torch.float32).to(self.counted.device))


class Maximising(Alternating):
    """Alternating in two steps: parameters of the annotators, given a posterior; the posterior, given these."""

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        if epoch > 0:
            self._set(target=self.infer(as_array(self.target), as_array(predict())))

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        """The confusion matrices, after a last inference."""
        self._set_confusions(self.infer(as_array(self.target), as_array(log_f)))

    def _set_confusions(self, q: Floats) -> None:
        params = self.params_of(q)
        self._set(counted=self.mean(params), score=self.scores(params))

    @abstractmethod
    def maximise(self, stats: Stats) -> Params:
        """Parameters of the annotators, from the statistics of a posterior (or of the network's predictions)."""

    def params_of(self, q: Floats) -> Params:
        return self.maximise(em.statistics(Part.of(self.votes), q))

    def infer(self, q: Floats, log_f: Floats) -> Floats:
        """The posterior that follows from an earlier one and N x K log probabilities of the network."""
        part = Part.of(self.votes, self.gold, clipped(log_f, self.max_probability))
        return em.expect(part, self.params_of(q), posterior=True)[1]

    def scores(self, params: Params) -> Floats:
        """M x K x K: what a vote adds to the log probability of each class."""
        K = self.n_classes
        return params.log_score.reshape(-1, K, K).transpose(0, 2, 1)

    def mean(self, params: Params) -> Floats:
        """The mean of theta."""
        return np.exp(self.scores(params))


class CountedConfusions(Maximising):
    """theta from counts and pseudo-counts."""

    def __init__(self, n_annotators: int, n_classes: int, prior: Any) -> None:
        super().__init__(n_annotators, n_classes)
        self.prior = prior

    def start(self, votes: Votes) -> None:
        super().start(votes)
        self.extra = priors.pseudo_counts(self.prior, None, votes, self.gold)

    def maximise(self, stats: Stats) -> Params:
        return Params(score_table(safe_log(confusions(stats, self.extra))), np.zeros((1, self.n_classes)))


class DeviceEM(CountedConfusions):
    """EM whose rounds stay on a GPU, where the predictions are; on the CPU the kernels of the package are faster."""

    edges: Edges | None = None

    def __init__(self, n_annotators: int, n_classes: int, prior: Any, round_epochs: int = 1) -> None:
        super().__init__(n_annotators, n_classes, prior)
        self.round_epochs = round_epochs

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        if epoch % self.round_epochs:
            return
        if self.target.device.type == "cpu":
            super().begin_epoch(epoch, predict)
        elif epoch > 0:
            self.target = self.round(self.target.double(), predict().double())[0].float()

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        if self.target.device.type == "cpu":
            super().finish(log_f, edges)
            return
        q, _ = self.round(self.target.double(), log_f.double())
        theta = self.counts(q)
        self.counted, self.score = theta.float(), theta.clamp_min(1e-300).log().float()

    def round(self, q: Tensor, log_f: Tensor) -> tuple[Tensor, Tensor]:
        """The next posterior, from the last one and the network's log probabilities; and the confusions between."""
        edges, theta = self.votes_on(q.device), self.counts(q)
        scores = theta.clamp_min(1e-300).log().transpose(1, 2)[edges.annotator, edges.label]
        log_q = log_f.index_add(0, edges.item, edges.weight.to(q)[:, None] * scores)
        posterior = torch.softmax(log_q, dim=1)
        if self.gold is not None:
            gold = torch.as_tensor(np.asarray(self.gold), dtype=torch.int64, device=q.device)
            certain = torch.eye(self.n_classes, device=q.device, dtype=q.dtype)
            posterior[gold >= 0] = certain[gold[gold >= 0]]
        return posterior, theta

    def counts(self, q: Tensor) -> Tensor:
        """M x K x K confusion matrices from the votes, a posterior and the pseudo-counts."""
        extra = torch.as_tensor(np.asarray(self.extra), dtype=q.dtype, device=q.device)
        table = (vote_counts(q, self.votes_on(q.device)) + extra).transpose(1, 2)
        return table / table.sum(dim=2, keepdim=True)

    def votes_on(self, device: torch.device) -> Edges:
        if self.edges is None:
            self.edges = Edges.of(self.votes, device)
        return self.edges


@declared
class AggNet(Learner):
    """Expectation maximisation with a network as classifier: one round every epoch.

    Parameters
    ----------
    prior
        Pseudo-counts of the confusion matrices, in the forms that :class:`~crowdwise.Raykar` takes.
    round_epochs
        How many epochs the network is trained for between two rounds. The longer, the more of the noise in the labels
        of a round it has learned when the next begins.
    """

    key: ClassVar[str] = "aggnet"
    prior: Prior = 1.0
    round_epochs: Count = 1

    def _head(self, votes: Votes, hidden: int) -> Head:
        check_memory(votes)
        return DeviceEM(votes.n_annotators, votes.n_classes, self.prior, self.round_epochs)


class HardPredictions(CountedConfusions):
    """theta and pi from counts of the network's hard predictions, at the beginning of every round but the first."""

    def __init__(self, n_annotators: int, n_classes: int, prior: Any, n_rounds: int, epochs: int) -> None:
        super().__init__(n_annotators, n_classes, prior)
        self.begins = {round(r * epochs / n_rounds) for r in range(1, n_rounds)} - {0}

    def restarts_network(self, epoch: int) -> bool:
        return epoch in self.begins

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        if epoch in self.begins:
            super().begin_epoch(epoch, predict)

    def predictions(self, log_f: Floats) -> Floats:
        """N x K, one-hot; items without votes have no weight."""
        hard = np.eye(self.n_classes)[log_f.argmax(axis=1)]
        return clamp(hard * used_items(self.votes)[:, None], self.gold)

    def infer(self, q: Floats, log_f: Floats) -> Floats:
        params = self.params_of(self.predictions(log_f))
        return em.expect(Part.of(self.votes, self.gold), params, posterior=True)[1]

    def maximise(self, stats: Stats) -> Params:
        prior = safe_log(normalise(stats.mass + 1.0 / self.n_classes, axis=0))
        return Params(super().maximise(stats).log_score, prior[None])

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        self._set_confusions(self.predictions(as_array(log_f)))


@declared
class MBEM(Learner):
    """Model bootstrapped EM: train, estimate annotators from the predictions, infer the classes, train again.

    Once trained, the network replaces the class distribution where inputs and votes are combined.

    Parameters
    ----------
    prior
        Pseudo-counts of the confusion matrices, in the forms that :class:`~crowdwise.Raykar` takes.
    n_rounds
        How often the network is trained, each time from its first weights: on the vote shares, then on the posterior.
    epochs
        Of all rounds together; each gets the same number (with fewer epochs than rounds, some rounds get none).
    """

    key: ClassVar[str] = "mbem"
    prior: Prior = 1.0
    epochs: Count = 100
    n_rounds: Count = 2

    def _head(self, votes: Votes, hidden: int) -> Head:
        check_memory(votes)
        return HardPredictions(votes.n_annotators, votes.n_classes, self.prior, int(self.n_rounds), int(self.epochs))


class MeanFieldTheta(Maximising):
    """theta under Dirichlet distributions, independent of the truths."""

    def __init__(self, n_annotators: int, n_classes: int, max_probability: float, prior: Any) -> None:
        super().__init__(n_annotators, n_classes, max_probability)
        self.prior = prior

    def start(self, votes: Votes) -> None:
        super().start(votes)
        K = votes.n_classes
        alpha = priors.dirichlet_rows(self.prior, None, votes).transpose(0, 2, 1)
        self.family = MeanFieldFamily(alpha, np.full(K, 1.0 / K))

    def mean(self, params: Params) -> Floats:
        alpha = params.alpha  # type: ignore[attr-defined]
        return np.asarray(alpha / alpha.sum(axis=2, keepdims=True))

    def maximise(self, stats: Stats) -> Params:
        return self.family.maximise(stats)


@declared
class DeepMF(Learner):
    """Variational Bayes with a network as the items' prior: truths and confusion matrices are independent.

    Parameters
    ----------
    prior
        Dirichlet parameters of the rows of confusion matrices: a pair (on the truth, on each other label); a number a,
        short for (a, 1); K x K (truth, label); or M x K x K.
    max_probability
        The highest probability that the network's predictions have in inference.
    """

    key: ClassVar[str] = "deep-mf"
    prior: DirichletPrior = 2.0
    max_probability: Annotated[float, Bounds(above=0, maximum=1)] = 0.9

    def _head(self, votes: Votes, hidden: int) -> Head:
        return MeanFieldTheta(votes.n_annotators, votes.n_classes, self._highest(votes), self.prior)

    def _highest(self, votes: Votes) -> float:
        """``max_probability``, which must be above the probability of a guess; votes must fit into memory."""
        check_memory(votes)
        value, K = float(self.max_probability), votes.n_classes
        if value * K <= 1.0:
            raise ParameterError(
                f"max_probability={self.max_probability!r}: expected a probability above 1/{K}, that of a guess among "
                f"{K} classes, up to 1."
            )
        return value


def confusions(stats: Stats, extra: Floats) -> Floats:
    """theta[m, k, l] from counts and pseudo-counts b[m, l, k]."""
    return normalise((stats.table() + extra).transpose(0, 2, 1), axis=2)


@declared
class Raykar(Tabular):
    """Softmax regression (or any classifier) and confusion matrices learned together, by EM.

    Parameters
    ----------
    prior
        Pseudo-counts of the confusion matrices: a number of votes per row, spread evenly over labels;
        ``"crowd"``, ``"hierarchical"``; or an array, K x K or M x K x K (truth, label).
    spread
        Of ``"logistic"``: the prior standard deviation of its logits (a larger one fits more freely).
    max_iter, tol
        Stop after so many rounds, or when the objective gains less than ``tol`` per vote.

    Attributes
    ----------
    model_
        The fitted data model; ``model_.coef`` are the weights of softmax regression, ``model_.fitted`` is a fitted copy
        of the given classifier.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=3, random_state=0)
    >>> learner = Raykar(random_state=0).fit(crowd.features["x_train"], crowd.votes)
    >>> bool(learner.consensus_.score(crowd.truth) > 0.9)
    True
    """

    key: ClassVar[str] = "raykar"

    prior: Prior = 1.0
    spread: Positive = 2.0
    max_iter: Count = 100
    tol: NonNegative = 1e-4

    def _fit_model(self, x: Any, votes: Votes, gold: Ints | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        K = votes.n_classes
        extra = priors.pseudo_counts(self.prior, None, votes, gold)
        model, mass = self._data_model(x.shape[1], K, self.spread), self._mass(used_items(votes, gold))
        self.model_ = model
        q = starts.gold_weighted(votes, gold)
        stats = em.statistics(Part.of(votes, gold), q)
        rounds = EpochRounds(self.max_iter, max(float(votes.weights.sum()), 1.0), self.history_, callback)
        for _ in rounds:
            model.fit(x, q * mass)
            self.theta_ = theta = confusions(stats, extra)
            log_f = model.log_probs(x)
            part = Part.of(votes, gold, log_f)
            stats, q = em.expect(part, Params(score_table(safe_log(theta)), np.zeros((1, K))), posterior=True)
            prior = float((extra * safe_log(theta.transpose(0, 2, 1))).sum()) + model.log_prior()
            rounds.reached_within(stats.log_likelihood + prior, self.tol)
        # A classifier of scikit-learn's (a tree, say) maximises no likelihood, and need not converge.
        converged = rounds.converged or not isinstance(model, Softmax)
        return Outcome(
            posterior=q, prior=np.exp(log_f).mean(axis=0), confusion=theta, log_likelihood=stats.log_likelihood,
            item_prior=log_f, **rounds.outcome | {"converged": converged},
        )  # fmt: skip
