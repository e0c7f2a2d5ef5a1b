"""A last layer for each annotator that predicts their votes: the doctor nets.

=======================  ==========================================================================================
``doctor-net``           a last layer for each annotator, which predicts their votes; the prediction is the average
``weighted-doctor-net``  the same with weights, learned in a second stage
=======================  ==========================================================================================

====================  ==============  ===========  ============================================================
symbol                code            shape        equation
====================  ==============  ===========  ============================================================
g_m(x)                ``votes_log``   E x K        softmax( W_m h(x) + b_m ), h the network without its last layer
w_m                   ``weights``     M            softmax of ``score`` over annotators with votes
====================  ==============  ===========  ============================================================

    doctor-net           loss = - mean over votes of log g_m(x)[l],   prediction = mean_m g_m(x)
    weighted-doctor-net  then, with all g_m fixed: loss = - mean_n sum_l share[n, l] log( mean of g_m(x_n)[l] over the
                         annotators m of item n, weighted by w_m ),   prediction = sum_m w_m g_m(x)

Reference: M. Guan, V. Gulshan, A. Dai and G. Hinton, Who said what: modeling individual labelers improves
classification, AAAI 2018.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.constraints import Count, Positive
from crowdwise.core.numerics import Floats
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.learners.head import FLOOR, Head
from crowdwise.learners.learner import Learner
from crowdwise.learners.stages import Stages
from crowdwise.learners.tensors import as_array, log_softmax
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training_data import TrainingData
from crowdwise.learners.training_settings import Callback
from crowdwise.learners.vote_edges import Batch

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
