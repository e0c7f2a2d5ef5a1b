"""A last layer for each annotator, who predicts their votes: the doctor nets.

=======================  ==========================================================================================
``doctor-net``           a last layer for each annotator, who predicts their votes; the average of all is the answer
``weighted-doctor-net``  the same with weights, learned in a second stage
=======================  ==========================================================================================

====================  ==============  ===========  ============================================================
symbol                code            shape        equation
====================  ==============  ===========  ============================================================
g_m(x)                ``votes_log``   E x K        softmax( W_m h(x) + b_m ), h the network without its last layer
w_m                   ``weights``     M            softmax of ``score`` over annotators with votes
====================  ==============  ===========  ============================================================

    doctor-net           loss = - mean over votes of log g_m(x)[l],   answer = mean_m g_m(x)
    weighted-doctor-net  then, with all g_m fixed: loss = - mean_n sum_l share[n, l] log( mean of g_m(x_n)[l] over the
                         annotators m of item n, weighted by w_m ),   answer = sum_m w_m g_m(x)

When they fail: the doctors learn each annotator's mistakes along with the rest, and averaging removes only those that
others do not share.

Reference: M. Guan, V. Gulshan, A. Dai and G. Hinton, Who said what: modeling individual labelers improves
classification, AAAI 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.checks import check_choice, check_count
from crowdwise.core.numerics import Floats
from crowdwise.data.votes import Votes
from crowdwise.learners.head import FLOOR, Head
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.learner import Learner
from crowdwise.learners.trainer import Stages, Trainer
from crowdwise.learners.training import Callback
from crowdwise.learners.vote_edges import Batch, log_softmax

CELLS = 2**22
"""How many probabilities (items x annotators x classes) are looked at together where all heads are averaged."""


class Doctors(Head):
    """A last layer for each annotator, all with the same first weights; those without votes are left out of the answer.

    W and b are only ever looked up for the votes of a batch in training; the answer, which takes them all, is summed
    over blocks of annotators.
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
        """M: log of the weights in the answer, which sum to one over the annotators with votes."""
        return torch.log_softmax(self.score.masked_fill(~self.voted, -math.inf), dim=0)

    def votes_log(self, batch: Batch) -> Tensor:
        """E x K: log g of each vote's annotator for the vote's item; annotators must be known."""
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
        """What an annotator's own head says of their vote; strangers, and those without votes, as in :class:`Head`."""
        known = batch.annotator.clamp_max(self.n_annotators - 1)
        own = (batch.annotator < self.n_annotators) & self.voted[known]
        said = self.votes_log(replace(batch, annotator=known)).gather(1, batch.label[:, None])[:, 0]
        return said if bool(own.all()) else torch.where(own, said, super().vote_log_probs(batch))


class WeightedDoctors(Doctors):
    """Doctors whose weights are learned once they are fixed."""

    def weigh(self, network: nn.Module) -> None:
        """From now on, train the weights and nothing else."""
        for module in (network, self):
            module.requires_grad_(False)
        self.score.requires_grad_(True)
        self.resting = True

    def loss(self, batch: Batch) -> Tensor:
        if not self.resting:
            return super().loss(batch)
        log_g = self.votes_log(batch)
        # Each item's weights are brought to sum to one over its own annotators.
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


@dataclass(kw_only=True, eq=False, repr=False)
class DoctorNet(Learner):
    """A last layer for each annotator, trained on their votes; the answer is the average of all.

    Parameters
    ----------
    average
        Of the annotators' ``"probabilities"``, or of their ``"log-probabilities"`` (then normalised).

    Attributes
    ----------
    weights_
        M: each annotator's weight in the answer; even, and zero without votes.
    """

    key: ClassVar[str] = "doctor-net"
    average: str = "probabilities"

    @property
    def weights_(self) -> Floats:
        self._fitted()
        head = self._trainer.head
        assert isinstance(head, Doctors)
        return np.asarray(head.log_weights.detach().exp().double().cpu().numpy())

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return Doctors(votes.n_annotators, votes.n_classes, hidden, self.average)

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        return {"annotator_columns": {"weight": self.weights_}}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self, "average", ("probabilities", "log-probabilities"))


@dataclass(kw_only=True, eq=False, repr=False)
class WeightedDoctorNet(DoctorNet):
    """Annotators' last layers, averaged with weights that a second stage learns.

    Parameters
    ----------
    average
        As in :class:`DoctorNet`.
    crowd_lr
        Learning rate of the weights.
    weight_epochs
        How long the second stage takes, after ``epochs`` of the first; what ``select`` and ``patience`` choose is
        chosen in the first.

    Attributes
    ----------
    weights_
        M: each annotator's weight in the answer; they sum to one.
    """

    key: ClassVar[str] = "weighted-doctor-net"
    crowd_lr: float = 3e-2
    weight_epochs: int = 10

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return WeightedDoctors(votes.n_annotators, votes.n_classes, hidden, self.average)

    def _train(
        self, inputs: Inputs, train: Votes, held: Votes | None, gold: npt.NDArray[np.int32] | None,
        callback: Callback | None,
    ) -> None:  # fmt: skip
        stages = Stages(self.epochs + self.weight_epochs, callback)
        self._trainer = self._prepare(inputs, train, held, gold)
        stages.run(self._trainer, self.checkpoint)
        head = self._trainer.head
        assert isinstance(head, WeightedDoctors)
        if not stages.ended:
            head.weigh(self._trainer.network)
            stages.run(self._trainer.again(self.weight_epochs))
        self.history_ = stages.history

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count(self, "weight_epochs")
