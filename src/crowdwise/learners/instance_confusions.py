"""Annotators who err differently from item to item: confusion matrices that depend on the input.

    P(m says l | x) = sum_k f(x)[k] T_m(x)[k, l]
    T_m(x)[k] = softmax_l( shared[k, l] + own[m, k, l] + sum_r tanh( (P h(x))[r] + e[m, r] ) V[r, k, l] )

h(x) is the input of the network's last layer. ``shared`` starts at matrices whose diagonal is ``accuracy``; ``own``, e
and V start at zero, so that at first all annotators answer alike, on all inputs, and an annotator without votes (or an
unseen one) continues to answer like the crowd. A K x K matrix is made for each vote of a batch only.

================  =============================================================================================
``trace-x``       all at once, by the likelihood of the votes plus a penalty on the traces of T, after a warm-up in
                  which T is fixed
``transition-x``  in stages: the network on the votes; T on the items the network is most confident of; labels
                  corrected with T; the network on those
================  =============================================================================================

======================  ===============  ===========  ==========================================================
symbol                  code             shape        equation
======================  ===============  ===========  ==========================================================
f(x)                    ``log_f``        B x K        softmax of the network
h(x)                    ``hidden``       B x H        the input of its last layer
log T_m(x)              ``log_rows``     E x K x K    above, one for each vote
q[n, k]                 ``target``       N x K        f(x_n)[k] prod over votes of T_m(x_n)[k, l], normalised
======================  ===============  ===========  ==========================================================

``transition-x`` corrects a label where the two likeliest classes are far enough apart: if their probabilities under q
have at least the ratio ``ratio``, the target is the likelier one alone; else it is q itself.

References: L. Zhang et al., Disentangling human error from ground truth in segmentation of medical images, NeurIPS
2020, for the penalty on T(x). H. Guo, B. Wang and G. Yi, Label correction of crowdsourced noisy annotations with an
instance-dependent noise transition model, NeurIPS 2023, for the stages and the test of likelihood ratios; here
T is an ordinary layer on top of the network where theirs is a separate Bayesian network.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.constraints import Bounds, Count, CountFromZero, Fraction, NonNegative, declared
from crowdwise.core.numerics import Floats
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners import losses
from crowdwise.learners.devices import as_array, columns, log_softmax
from crowdwise.learners.head import Head, Predict, cross_entropy
from crowdwise.learners.learner import Learner
from crowdwise.learners.trainer import Stages, Trainer, TrainingData
from crowdwise.learners.training_settings import Callback
from crowdwise.learners.vote_edges import Batch


class InstanceHead(Head):
    """A head with a matrix T_m(x) for each vote of a batch."""

    needs_hidden: ClassVar[bool] = True

    @abstractmethod
    def log_rows(self, batch: Batch) -> Tensor:
        """E x K x K: log T of each vote's annotator and item."""


class InstanceConfusions(InstanceHead):
    """T_m(x), made for the votes of a batch."""

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, rank: int, accuracy: float) -> None:
        super().__init__(n_annotators, n_classes)
        M, K = n_annotators, n_classes
        diagonal = math.log(accuracy * (K - 1) / (1.0 - accuracy))
        bound = 1.0 / math.sqrt(hidden)
        self.shared = nn.Parameter(diagonal * torch.eye(K))
        self.own = nn.Parameter(torch.zeros(M, K, K))
        self.P = nn.Parameter(torch.empty(hidden, rank).uniform_(-bound, bound))
        self.e = nn.Parameter(torch.zeros(M, rank))
        self.V = nn.Parameter(torch.zeros(rank, K, K))

    def slow_parameters(self) -> list[nn.Parameter]:
        return [self.P]

    def log_rows(self, batch: Batch, attached: bool = True) -> Tensor:
        """E x K x K: log T of each vote's annotator and item; unseen annotators have no own part."""
        return log_softmax(self.rows(batch, attached), dim=2)

    def rows(self, batch: Batch, attached: bool = True) -> Tensor:
        """The same before the softmax."""
        assert batch.hidden is not None
        hidden = batch.hidden if attached else batch.hidden.detach()
        known, zero = self.known_codes(batch), hidden.new_zeros(())
        own, e = (self.or_unseen(batch, t.index_select(0, known), lambda: zero) for t in (self.own, self.e))
        part = torch.tanh((hidden @ self.P).index_select(0, batch.row) + e)
        K = self.n_classes
        return own + torch.addmm(self.shared.reshape(-1), part, self.V.reshape(-1, K * K)).reshape(-1, K, K)

    def _log_columns(self, batch: Batch, attached: bool = True) -> Tensor:
        return columns(self.log_rows(batch, attached), batch.label)


class TracedInstances(InstanceConfusions):
    """The likelihood of the votes plus ``weight`` times the mean trace of their matrices."""

    def __init__(
        self, n_annotators: int, n_classes: int, hidden: int, rank: int, accuracy: float, weight: float, warm_up: int
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes, hidden, rank, accuracy)
        self.weight, self.warm_up, self.warm = weight, warm_up, False

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        self.warm = epoch < self.warm_up

    def loss(self, batch: Batch) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.warm):
            rows = self.rows(batch)
        norm = batch.total_weight
        fit = losses.mixture(batch, rows.detach(), norm, trace=self.weight * batch.weight / norm)
        return losses.with_gradients(
            fit.value, (batch.logits, fit.logits), *(((rows, fit.rows),) if rows.requires_grad else ())
        )


@declared
class InstanceLearner(Learner):
    """What learners with a matrix for every vote share.

    Parameters
    ----------
    accuracy
        The probability of a right vote, at first.
    """

    accuracy: Fraction = 0.8

    def _start(self, votes: Votes) -> float:
        """The diagonal T starts with, which must identify the classes."""
        if self.accuracy * votes.n_classes <= 1.0:
            raise ParameterError(
                f"accuracy={self.accuracy!r}: with {votes.n_classes} classes, annotators who start at chance or below "
                f"do not identify the classes. Give more than {1.0 / votes.n_classes:.3g}."
            )
        return self.accuracy

    def vote_confusion(self, X: Any, votes: Votes) -> Floats:
        """S x K x K: T_m(x) for each of some votes, in their order, given their items' inputs."""
        head, inputs = self._head_as(InstanceHead), self._new_inputs(X, votes)
        edges = self._edges(self._recoded(votes))
        rows = [head.log_rows(batch) for batch in self._trainer.batches(edges, inputs)]
        return as_array(torch.cat(rows).double().exp())


@declared
class TraceX(InstanceLearner):
    """Confusion matrices that depend on the input, of small trace.

    Parameters
    ----------
    rank
        How many features of the input annotators' errors may depend on.
    weight
        The weight of the mean trace.
    warm_up
        So many epochs train the network alone.
    """

    key: ClassVar[str] = "trace-x"
    rank: Count = 8
    weight: NonNegative = 0.01
    warm_up: CountFromZero = 10

    def _head(self, votes: Votes, hidden: int) -> Head:
        return TracedInstances(
            votes.n_annotators, votes.n_classes, hidden, self.rank, self._start(votes), self.weight, self.warm_up
        )


class Corrected(InstanceConfusions):
    """The three losses of ``transition-x``, one for each stage."""

    confident: Tensor
    target: Tensor

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, rank: int, accuracy: float) -> None:
        super().__init__(n_annotators, n_classes, hidden, rank, accuracy)
        self.stage = "votes"
        self.register_buffer("confident", torch.zeros(0, dtype=torch.int64), persistent=False)
        self.register_buffer("target", torch.zeros(0), persistent=False)

    def loss(self, batch: Batch) -> Tensor:
        if self.stage == "votes":
            return -batch.mean(batch.log_f[batch.row, batch.label])
        if self.stage == "transitions":
            return self.misfit(batch)
        # T depends on the network's hidden vector, so it is trained along with the network.
        return cross_entropy(self.target[batch.index].to(batch.logits.dtype), batch.logits) + self.misfit(batch)

    def misfit(self, batch: Batch) -> Tensor:
        """- mean log T over the votes on confident items, given their predicted class."""
        truth = self.confident[batch.index][batch.row]
        log_t = self._log_columns(batch, attached=False).gather(1, truth.clamp_min(0)[:, None])[:, 0]
        return -replace(batch, weight=batch.weight * (truth >= 0)).mean(log_t)


def most_confident(log_f: Tensor, voted: Tensor, share: float) -> Tensor:
    """N: the class of the items the network is most confident of, a share of each predicted class; -1 for others."""
    best, guess = log_f.max(dim=1)
    found = torch.full_like(guess, -1)
    for k in range(log_f.shape[1]):
        mine = torch.nonzero((guess == k) & voted)[:, 0]
        order = torch.sort(best[mine], descending=True, stable=True).indices
        found[mine[order[: math.ceil(share * len(mine))]]] = k
    return found


def correct(log_q: Tensor, ratio: float) -> Tensor:
    """N x K targets: the likelier class where it is ``ratio`` times as probable as any other, else the posterior."""
    top = log_q.topk(2, dim=1)
    decided = top.values[:, 0] - top.values[:, 1] >= math.log(ratio)
    hard = torch.zeros_like(log_q).scatter_(1, top.indices[:, :1], 1.0)
    return torch.where(decided[:, None], hard, log_q.exp())


@declared
class TransitionX(InstanceLearner):
    """Confusion matrices that depend on the input, learned from confident items, then labels corrected with them.

    Parameters
    ----------
    rank
        How many features of the input annotators' errors may depend on.
    share
        Of the items of each predicted class, the share the network is most confident of: T is learned from their votes
        (and from those on gold items).
    warm_up
        So many epochs train the network on the votes.
    transition_epochs
        So many epochs train T, with the network fixed. ``epochs`` of training on the corrected labels follow.
    ratio
        A corrected label is hard where the likeliest class is so many times as probable as any other, else soft.
    """

    key: ClassVar[str] = "transition-x"
    rank: Count = 8
    warm_up: Count = 10
    share: Annotated[float, Bounds(above=0, maximum=1)] = 0.5
    transition_epochs: Count = 20
    ratio: Annotated[float, Bounds(minimum=1)] = 10.0

    def _head(self, votes: Votes, hidden: int) -> Head:
        return Corrected(votes.n_annotators, votes.n_classes, hidden, self.rank, self._start(votes))

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        stages = Stages(self.warm_up + self.transition_epochs + self.epochs, callback)
        trainer = self._prepare(data)
        head, network = trainer.head, trainer.network
        assert isinstance(head, Corrected)
        gold = torch.full((len(data.votes.items),), -1, device=trainer.device)
        if trainer.gold is not None and self.select != "gold":
            gold = trainer.gold
        voted = trainer.edges.indptr[1:] > trainer.edges.indptr[:-1]
        stages.run(trainer.again(self.warm_up))
        if not stages.ended:
            log_f = trainer.log_probs(trainer.inputs)
            head.confident = torch.where(gold >= 0, gold, most_confident(log_f, voted, self.share))
            head.stage, head.network_frozen = "transitions", True
            network.requires_grad_(False)
            stages.run(trainer.again(self.transition_epochs))
            network.requires_grad_(True)
        if not stages.ended:
            target = correct(trainer.posterior(trainer.edges, trainer.inputs), self.ratio)
            known = functional.one_hot(gold.clamp_min(0), head.n_classes).to(target.dtype)
            head.target = torch.where((gold >= 0)[:, None], known, target)
            head.stage, head.network_frozen = "corrected", False
            stages.run(trainer, self.checkpoint)
        self.history_ = stages.history
        return trainer
