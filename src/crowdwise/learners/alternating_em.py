"""Networks that alternate with inference: guess the classes, train the network on the guess, guess again.

Every learner here keeps a posterior q[n, k] over the classes of the items it trains on, lowers the cross-entropy of the
network against it, - mean_n sum_k q[n, k] log f(x_n)[k], and infers q anew from the votes and what the network has
learned. They differ in how they infer:

============  =====================================================================================================
``aggnet``    EM: q ~ f(x) prod theta; theta from the counts of q. A round every epoch
``mbem``      q ~ pi prod theta; theta and pi from counts of the network's *hard* predictions. A few rounds, the
              network trained anew in each
``deep-mf``   variational Bayes: q ~ f(x) prod exp E[log theta], theta under a Dirichlet. A round every epoch
``deep-bp``   belief propagation, in :mod:`crowdwise.learners.alternating_deep_bp`
============  =====================================================================================================

=================  ===========  =========  ====================================================================
symbol             code         shape      equation
=================  ===========  =========  ====================================================================
q[n, k]            ``target``   N x K      starts at the vote shares; one-hot where the truth is known
c[m, k, l]         counts       M x K x K  sum over m's votes for l of weight q[n, k]
theta[m, k, l]     ``counted``  M x K x K  aggnet, mbem: (c + prior) / its sum over l. deep-mf: alpha + c, likewise
E[log theta]       ``score``    M x K x K  deep-mf: digamma(alpha + c) - digamma(sum_l (alpha + c)); else log theta
f^(x)              ``held``     N x K      f(x) held between (1 - trust) / (K - 1) and trust, normalised
=================  ===========  =========  ====================================================================

Before the first epoch the network knows nothing: all train on the vote shares then.

When they fail: a network that can learn its target by heart confirms it, and nothing moves any more; annotators
who err together pass for right. ``mbem`` needs a network that predicts better than the votes it was trained on.
With a wrong prior on annotators, ``deep-mf`` can follow a few who answer everything at random. ``trust`` below one
keeps useless inputs from drowning the votes.

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
from crowdwise.core.checks import check_count, check_number
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.model import check_memory
from crowdwise.core.numerics import Floats, clamp, normalise, safe_log
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.head import FLOOR, Head, Predict, cross_entropy
from crowdwise.learners.learner import Learner
from crowdwise.learners.vote_edges import Batch, Edges
from crowdwise.methods import messages_bp
from crowdwise.methods.messages_mf import MeanFieldFamily

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
    """A posterior over the items trained on, which the network learns and the votes correct.

    A subclass infers it: ``begin`` before an epoch, and ``settle`` at the end what is known of the annotators.
    """

    target: Tensor
    score: Tensor

    def __init__(self, n_annotators: int, n_classes: int, trust: float = 1.0) -> None:
        super().__init__(n_annotators, n_classes)
        self.trust = trust
        self.register_buffer("target", torch.empty(0, n_classes))
        self.register_buffer("score", self.counted.log())

    def start(self, votes: Votes) -> None:
        self.votes = votes
        self.target = torch.as_tensor(starts.gold_weighted(votes, self.gold), dtype=torch.float32)

    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(self.target[batch.index].to(batch.logits.dtype), batch.logits)

    def forecast(self, batch: Batch) -> Tensor:
        log_f = torch.as_tensor(held(numbers(batch.log_f), self.trust), dtype=batch.logits.dtype).to(batch.logits)
        return torch.log_softmax(log_f + batch.total(batch.weight[:, None] * self._scores(batch)), dim=1)

    def _scores(self, batch: Batch) -> Tensor:
        """E x K: what each vote adds to the log probabilities; strangers answer as the crowd."""
        known = batch.annotator < self.n_annotators
        own = self.score[batch.annotator.clamp_max(self.n_annotators - 1), :, batch.label]
        return torch.where(known[:, None], own, self._log_columns(batch)).clamp_min(np.log(FLOOR)).to(batch.logits)

    def _keep(self, name: str, value: Floats) -> None:
        setattr(self, name, torch.as_tensor(value, dtype=torch.float32).to(self.counted.device))


class Maximising(Alternating):
    """Alternating in two steps: what is known of the annotators, given a posterior; the posterior, given that."""

    def begin(self, epoch: int, predict: Predict) -> None:
        if epoch > 0:
            self._keep("target", self.infer(numbers(self.target), numbers(predict())))

    def settle(self, log_f: Tensor, edges: Edges) -> None:
        """What is known of the annotators, after one more look at the items."""
        look = numbers(log_f)
        params = self.maximise(self.statistics(self.infer(numbers(self.target), look)), look)
        self._keep("counted", self.mean(params))
        self._keep("score", self.scores(params))

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


# -------------------------------------------------------------------- EM


class Counted(Maximising):
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
        return clamp(hard * used[:, None], self.gold)

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


class Believed(Maximising):
    """theta under Dirichlet distributions, independent of the truths."""

    def __init__(self, n_annotators: int, n_classes: int, trust: float, prior: Any) -> None:
        super().__init__(n_annotators, n_classes, trust)
        self.prior = prior

    def start(self, votes: Votes) -> None:
        super().start(votes)
        K = votes.n_classes
        alpha = messages_bp.dirichlet_parameters(self.prior, None, votes)
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


def check_trust(learner: Any, K: int) -> None:
    if not 1.0 / K < learner.trust <= 1.0:
        raise ParameterError(
            f"trust={learner.trust!r}: expected a probability above 1/{K}, that of a guess among {K} classes, up to 1."
        )
