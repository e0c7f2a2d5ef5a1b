"""Simple ways to learn from votes, the baselines of all other learners.

=======================  ==========================================================================================
``two-stage``            aggregate the votes first, with any method; then train on the labels
``soft-bootstrap``       the same, with targets that the network itself may correct
``single-confusion``     one confusion matrix for all annotators, after the network
``doctor-net``           a last layer for each annotator, which predicts their votes; the prediction is the average
``weighted-doctor-net``  the same with weights, learned in a second stage
=======================  ==========================================================================================

====================  ==============  ===========  ============================================================
symbol                code            shape        equation
====================  ==============  ===========  ============================================================
f(x)                  ``log_f``       B x K        softmax of the network
t[n, k]               ``target``      N x K        the label (or the posterior) of the first stage
theta[k, l]           ``rho``         K x K        row-normalised softplus of rho: P(any annotator says l | k)
g_m(x)                ``votes_log``   E x K        softmax( W_m h(x) + b_m ), h the network without its last layer
w_m                   ``weights``     M            softmax of ``score`` over annotators with votes
====================  ==============  ===========  ============================================================

    two-stage            loss = - mean_n sum_k t[n, k] log f(x_n)[k]
    soft-bootstrap       loss = - mean_n sum_k ( beta t[n, k] + (1 - beta) f(x_n)[k] ) log f(x_n)[k]
    single-confusion     loss = - mean over votes of log sum_k f(x)[k] theta[k, l]  +  weight * trace(theta)
    doctor-net           loss = - mean over votes of log g_m(x)[l],   prediction = mean_m g_m(x)
    weighted-doctor-net  then, with all g_m fixed: loss = - mean_n sum_l share[n, l] log( mean of g_m(x_n)[l] over the
                         annotators m of item n, weighted by w_m ),   prediction = sum_m w_m g_m(x)

References: S. Reed et al., Training deep neural networks on noisy labels with bootstrapping, 2014. S. Sukhbaatar et
al., Training convolutional networks with noisy labels, 2014. M. Guan, V. Gulshan, A. Dai and G. Hinton, Who said what:
modeling individual labelers improves classification, AAAI 2018. R. Tanno et al., Learning from noisy labels by
regularized estimation of annotator confusion, CVPR 2019, for all but the first as baselines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise import registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Bounds, Check, Count, MethodKey, NonNegative, Positive, declared
from crowdwise.core.numerics import Floats, decide, winners
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.devices import as_array, log_softmax
from crowdwise.learners.head import FLOOR, Head, count_confusion, cross_entropy
from crowdwise.learners.learner import Learner
from crowdwise.learners.trainer import Stages, Trainer, TrainingData
from crowdwise.learners.training_settings import Callback
from crowdwise.learners.vote_edges import Batch, Edges


class FixedTargets(Head):
    """The labels of a first stage as targets, and its confusion matrices where it has any."""

    target: Tensor

    def __init__(self, n_annotators: int, n_classes: int, target: Tensor, confusion: Tensor | None = None) -> None:
        super().__init__(n_annotators, n_classes)
        self.register_buffer("target", target, persistent=False)
        self.has_confusion = confusion is not None
        if confusion is not None:
            self.counted = confusion

    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(self.target[batch.index].to(batch.logits.dtype), batch.logits)

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        if not self.has_confusion:
            super().finish(log_f, edges)


class BootstrappedTargets(FixedTargets):
    """Targets mixed with the network's prediction: the entropy of the prediction is part of the loss."""

    def __init__(
        self, n_annotators: int, n_classes: int, target: Tensor, confusion: Tensor | None, beta: float
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes, target, confusion)
        self.beta = beta

    def loss(self, batch: Batch) -> Tensor:
        target = self.target[batch.index].to(batch.logits.dtype)
        mixed = self.beta * target + (1.0 - self.beta) * batch.log_f.exp()
        return cross_entropy(mixed, batch.logits)


@declared
class TwoStage(Learner):
    """Aggregate the votes with any method for votes, then train on its labels.

    Held-out votes are held out of both stages, and gold is used by both.

    Parameters
    ----------
    aggregator
        The key of the first stage: ``"majority"``, ``"dawid-skene"``... (``crowdwise methods`` lists them).
    labels
        Train on the ``"hard"`` consensus labels, where a tie counts for all its classes evenly, or on the ``"soft"``
        posterior.
    settings
        Parameters of the first stage's method, by name.

    Attributes
    ----------
    first_stage_
        The consensus of the first stage (not saved).

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=3, random_state=0)
    >>> learner = TwoStage(aggregator="dawid-skene", settings={"max_iter": 50}, epochs=20, random_state=0)
    >>> learner = learner.fit(crowd.features["x_train"], crowd.votes)
    >>> bool((learner.predict(crowd.features["x_train"]) == crowd.truth).mean() > 0.8)
    True
    """

    key: ClassVar[str] = "two-stage"
    aggregator: MethodKey = "majority"
    labels: Literal["hard", "soft"] = "hard"
    settings: Annotated[Any, Check(lambda value: isinstance(value, Mapping), "parameters by name")] | None = None

    def _check_together(self) -> None:
        super()._check_together()
        self._model().check_parameters()

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        gold = None if self.select == "gold" else data.gold
        self.first_stage_: Consensus = self._model().fit(data.votes, gold).consensus_
        return super()._train(data, callback)

    def _model(self) -> Any:
        """The first stage, with the learner's seed unless its settings name another."""
        return registry.create(
            self.aggregator, **({"random_state": getattr(self, "seed_", 0)} | dict(self.settings or {}))
        )

    def _stage(self, votes: Votes) -> tuple[Tensor, Tensor | None]:
        """Targets and confusion matrices; a loaded learner has no first stage and needs none."""
        found = getattr(self, "first_stage_", None)
        if found is None:
            return torch.full((len(votes), votes.n_classes), 1.0 / votes.n_classes), None
        q = found.posterior if self.labels == "soft" else winners(found.posterior)
        theta = None if found.confusion is None else torch.tensor(np.array(found.confusion), dtype=torch.float32)
        return torch.tensor(np.array(q), dtype=torch.float32), theta

    def _head(self, votes: Votes, hidden: int) -> Head:
        return FixedTargets(votes.n_annotators, votes.n_classes, *self._stage(votes))


@declared
class SoftBootstrap(TwoStage):
    """Train on aggregated labels mixed with the network's own predictions.

    Parameters
    ----------
    beta
        The share of the label in the target; the rest is the network's current prediction.
    """

    key: ClassVar[str] = "soft-bootstrap"
    beta: Annotated[float, Bounds(above=0, maximum=1)] = 0.95

    def _head(self, votes: Votes, hidden: int) -> Head:
        return BootstrappedTargets(votes.n_annotators, votes.n_classes, *self._stage(votes), beta=self.beta)


class SharedConfusion(Head):
    """theta[k, l] of the whole crowd, of all its votes or of its majorities."""

    majority: Tensor

    def __init__(self, n_annotators: int, n_classes: int, weight: float, per_vote: bool) -> None:
        super().__init__(n_annotators, n_classes)
        self.weight, self.per_vote = weight, per_vote
        self.rho = nn.Parameter(6.0 * torch.eye(n_classes) - 5.0)
        self.register_buffer("majority", torch.zeros(0, dtype=torch.int64), persistent=False)

    def start(self, votes: Votes) -> None:
        q = votes.shares()
        prior = np.bincount(votes.label, weights=votes.weights, minlength=votes.n_classes).astype(np.float64)
        self.majority = torch.as_tensor(decide(q, prior), dtype=torch.int64)

    @property
    def theta(self) -> Tensor:
        positive = functional.softplus(self.rho)
        return positive / positive.sum(dim=1, keepdim=True)

    def confusion(self) -> Tensor:
        # Of majorities, theta holds the errors of majorities, not of annotators.
        return self.theta.expand(self.n_annotators, -1, -1) if self.per_vote else self.counted

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        if not self.per_vote:
            self.counted = count_confusion(log_f.exp(), edges)

    def loss(self, batch: Batch) -> Tensor:
        theta = self.theta
        f, table = torch.softmax(batch.logits.detach(), dim=1), theta.detach().clamp_min(FLOOR)
        p = (f @ table).clamp_min(FLOOR)
        if self.per_vote:
            cell, c = batch.row * self.n_classes + batch.label, batch.weight / -batch.total_weight
        else:
            first = torch.arange(0, p.numel(), self.n_classes, device=p.device)
            cell, c = first + self.majority[batch.index], p.new_full((len(p),), -1.0 / len(p))
        said = p.take(cell)
        g = torch.zeros_like(p).put_(cell, c / said, accumulate=True)
        at_theta = (f.T @ g).add_(torch.eye(len(table), dtype=p.dtype, device=p.device), alpha=self.weight)
        value = (c * said.log()).sum() + self.weight * theta.detach().trace()
        return losses.with_gradients(value, (batch.logits, losses.through_softmax(f, g @ table.T)), (theta, at_theta))


@declared
class SingleConfusion(Learner):
    """One confusion matrix, of small trace, for the whole crowd.

    Parameters
    ----------
    weight
        The weight of the trace.
    labels
        What the matrix explains: all ``"votes"``, or, as in Tanno's paper, the ``"majority"`` of each item (then it
        holds the errors of majorities, and the annotators' matrices are counted against the network's predictions).

    Attributes
    ----------
    shared_confusion_
        K x K: P(label l, given truth k), the same for all annotators.
    """

    key: ClassVar[str] = "single-confusion"
    weight: NonNegative = 0.01
    labels: Literal["votes", "majority"] = "votes"

    @property
    def shared_confusion_(self) -> Floats:
        return as_array(self._head_as(SharedConfusion).theta)

    def _head(self, votes: Votes, hidden: int) -> Head:
        return SharedConfusion(votes.n_annotators, votes.n_classes, self.weight, self.labels == "votes")


CELLS = 2**22
"""How many probabilities (items x annotators x classes) are in memory together where all layers are averaged."""


class Doctors(Head):
    """A last layer for each annotator, all with the same first weights; those without votes are not averaged.

    Training takes W and b of the votes of a batch only; the average over all annotators is summed in blocks.
    """

    needs_hidden: ClassVar[bool] = True
    voted: Tensor

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, average: str) -> None:
        super().__init__(n_annotators, n_classes)
        self.average = average
        bound = 1.0 / math.sqrt(hidden)
        first = torch.empty(n_classes, hidden).uniform_(-bound, bound)
        self.W = nn.Parameter(first.expand(n_annotators, -1, -1).clone())
        self.b = nn.Parameter(torch.zeros(n_annotators, n_classes))
        self.score = nn.Parameter(torch.zeros(n_annotators), requires_grad=False)
        self.register_buffer("voted", torch.ones(n_annotators, dtype=torch.bool))

    def start(self, votes: Votes) -> None:
        count = np.bincount(votes.annotator, minlength=self.n_annotators)
        self.voted = torch.as_tensor(count > 0)

    def slow_parameters(self) -> list[nn.Parameter]:
        return [self.W, self.b]

    @property
    def log_weights(self) -> Tensor:
        """M: log of the weights in the average, which sum to one over the annotators with votes."""
        return torch.log_softmax(self.score.masked_fill(~self.voted, -math.inf), dim=0)

    def votes_log(self, batch: Batch) -> Tensor:
        """E x K: log g of each vote's annotator for the vote's item; annotators must be of the fit."""
        assert batch.hidden is not None
        logits = torch.bmm(self.W[batch.annotator], batch.hidden[batch.row][:, :, None])[:, :, 0]
        return log_softmax(logits + self.b[batch.annotator], dim=1)

    def loss(self, batch: Batch) -> Tensor:
        said = self.votes_log(batch).gather(1, batch.label[:, None])[:, 0]
        return -batch.mean(said)

    def predict_log_probs(self, batch: Batch) -> Tensor:
        assert batch.hidden is not None
        voted = torch.nonzero(self.voted)[:, 0]
        weight = self.log_weights[voted].exp()
        size = max(1, CELLS // max(1, len(batch) * self.n_classes))
        total = batch.hidden.new_zeros((len(batch), self.n_classes))
        for lo in range(0, len(voted), size):
            some = voted[lo : lo + size]
            logits = torch.einsum("bh,akh->bak", batch.hidden, self.W[some]) + self.b[some]
            log_g = log_softmax(logits, dim=2)
            value = log_g if self.average == "log-probabilities" else log_g.exp()
            total = total + torch.einsum("a,bak->bk", weight[lo : lo + size], value)
        if self.average == "log-probabilities":
            return torch.log_softmax(total, dim=1)
        return (total / total.sum(dim=1, keepdim=True)).clamp_min(FLOOR).log()

    def vote_log_probs(self, batch: Batch) -> Tensor:
        """By the annotator's own layer; unseen annotators, and those without votes, as in :class:`Head`."""
        known = self.known_codes(batch)
        own = (batch.annotator < self.n_annotators) & self.voted[known]
        said = self.votes_log(replace(batch, annotator=known)).gather(1, batch.label[:, None])[:, 0]
        return said if bool(own.all()) else torch.where(own, said, super().vote_log_probs(batch))


class WeightedDoctors(Doctors):
    """Doctors whose weights are learned in a second stage, with the layers fixed."""

    def train_weights(self, network: nn.Module) -> None:
        """From now on, train the weights alone."""
        for module in (network, self):
            module.requires_grad_(False)
        self.score.requires_grad_(True)
        self.network_frozen = True

    def loss(self, batch: Batch) -> Tensor:
        if not self.network_frozen:
            return super().loss(batch)
        log_g = self.votes_log(batch)
        # Each item's weights are normalised over its own annotators.
        weight = batch.weight * (self.score - self.score.detach().max()).exp()[batch.annotator]
        norm = batch.total(weight[:, None])
        voted = norm[:, 0] > 0.0
        weight = weight[:, None] / norm.clamp_min(FLOOR)[batch.row]
        if self.average == "log-probabilities":
            log_p = torch.log_softmax(batch.total(weight * log_g), dim=1)
        else:
            log_p = batch.total(weight * log_g.exp()).clamp_min(FLOOR).log()
        share = batch.total(batch.weight[:, None] * functional.one_hot(batch.label, self.n_classes))
        share = share / share.sum(dim=1, keepdim=True).clamp_min(FLOOR)
        return -(share * log_p).sum() / voted.sum().clamp_min(1)


@declared
class DoctorNet(Learner):
    """A last layer for each annotator, trained on their votes; the prediction is the average of all.

    Parameters
    ----------
    average
        Of the annotators' ``"probabilities"``, or of their ``"log-probabilities"`` (then normalised).

    Attributes
    ----------
    weights_
        M: each annotator's weight in the average; they sum to one, are equal unless learned, and zero without votes.
    """

    key: ClassVar[str] = "doctor-net"
    average: Literal["probabilities", "log-probabilities"] = "probabilities"

    @property
    def weights_(self) -> Floats:
        return as_array(self._head_as(Doctors).log_weights.exp())

    def _head(self, votes: Votes, hidden: int) -> Head:
        return Doctors(votes.n_annotators, votes.n_classes, hidden, self.average)

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        return {"annotator_columns": {"weight": self.weights_}}


@declared
class WeightedDoctorNet(DoctorNet):
    """Annotators' last layers, averaged with weights that a second stage learns.

    Parameters
    ----------
    crowd_lr
        Learning rate of the weights.
    weight_epochs
        Epochs of the second stage, after ``epochs`` of the first; ``select`` and ``patience`` act in the first.
    """

    key: ClassVar[str] = "weighted-doctor-net"
    crowd_lr: Positive = 3e-2
    weight_epochs: Count = 10

    def _head(self, votes: Votes, hidden: int) -> Head:
        return WeightedDoctors(votes.n_annotators, votes.n_classes, hidden, self.average)

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        stages = Stages(self.epochs + self.weight_epochs, callback)
        trainer = self._prepare(data)
        stages.run(trainer, self.checkpoint)
        head = trainer.head
        assert isinstance(head, WeightedDoctors)
        if not stages.ended:
            head.train_weights(trainer.network)
            stages.run(trainer.again(self.weight_epochs))
        self.history_ = stages.history
        return trainer
