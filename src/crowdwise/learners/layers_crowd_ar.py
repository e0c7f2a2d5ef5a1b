"""CrowdAR: a crowd layer, fitted to votes that are smoothed by their reliability.

    P(m says . | x) = softmax_l( sum_k p[k] W[m, k, l] ),    target of a vote = r * (its label) + (1 - r) / K

==================  ===================  ============  ==========================================================
symbol              code                 shape         equation
==================  ===================  ============  ==========================================================
p                   ``log_f``            B x K         softmax of the network
W[m, k, l]          ``W``                M x K x K     starts as ``diagonal`` times the identity
d(x), e[m]          ``difficulty``       K each        sigmoid( V2 sigmoid(V1 h) ) of the hidden vector h, free
r(x, m)             ``reliability``      one per vote  sigmoid( v'[(sigmoid(e[m]) - d(x)) p] + c ), v >= 0
loss                                                   mean over votes of share * cross-entropy with the target
                                                       + (1 - share) * cross-entropy of r with 1(label = argmax p)
==================  ===================  ============  ==========================================================

Reference: Z. Cao et al., Learning from crowds with annotation reliability, SIGIR 2023.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.constraints import Bounds, Positive
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.head import Head
from crowdwise.learners.joint_confusions import DIAGONAL, first_diagonal
from crowdwise.learners.layers_crowd_layer import CrowdWeights
from crowdwise.learners.learner import Learner
from crowdwise.learners.tensors import as_array
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch

WIDTH = 128
"""Of the one hidden layer between the network's hidden vector and the difficulty, as in the paper."""


class Reliable(CrowdWeights):
    """The crowd layer fitted to r * (the vote) + (1 - r) * (uniform), and a reliability r learned for every vote.

    r depends on the network (its hidden vector and p) without training it.
    """

    needs_hidden: ClassVar[bool] = True

    def __init__(
        self, n_annotators: int, n_classes: int, hidden: int, share: float, diagonal: float = DIAGONAL
    ) -> None:
        super().__init__(n_annotators, n_classes, "MW", diagonal)
        self.share = share
        self.expertise = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_annotators, n_classes)))
        self.difficult = nn.Sequential(
            nn.Linear(hidden, WIDTH), nn.Sigmoid(), nn.Linear(WIDTH, n_classes), nn.Sigmoid()
        )  # fmt: skip
        self.v = nn.Parameter(torch.ones(n_classes))
        self.c = nn.Parameter(torch.zeros(()))

    def slow_parameters(self) -> list[nn.Parameter]:
        return list(self.difficult.parameters())

    def after_step(self) -> None:
        with torch.no_grad():
            self.v.clamp_(min=0.0)  # the more able, the more reliable

    def difficulty(self, batch: Batch) -> Tensor:
        """B x K: how hard each item would be, were it of each class."""
        assert batch.hidden is not None
        found: Tensor = self.difficult(batch.hidden.detach())
        return found

    def logit(self, batch: Batch) -> Tensor:
        """E: of the reliability of each vote; unseen annotators have the mean expertise."""
        able = torch.sigmoid(self.expertise.index_select(0, self.known_codes(batch)))
        able = self.or_unseen(batch, able, lambda: torch.sigmoid(self.expertise).mean(dim=0))
        p = torch.softmax(batch.logits.detach(), dim=1)
        # Difficulties are the same for all votes on an item, so they are weighted once an item.
        hard = (self.difficulty(batch) * p) @ self.v
        easy = (able * p.index_select(0, batch.row)) @ self.v
        return easy - hard.index_select(0, batch.row) + self.c

    def reliability(self, batch: Batch) -> Tensor:
        """E: from 0 to 1."""
        return torch.sigmoid(self.logit(batch))

    def loss(self, batch: Batch) -> Tensor:
        """The mean over votes of share * smoothed + (1 - share) * judged, with gradients at z and at the logit of r."""
        assert self.W is not None
        logit = self.logit(batch)
        at = logit.detach()
        r = torch.sigmoid(at)
        found = losses.Predictions.of(batch, self.W)
        said, p = losses.log_probs(found.z, batch.label)
        mean = said - found.z.gather(1, batch.label[:, None])[:, 0] + found.z.mean(dim=1)  # of all labels' logarithms
        agrees = (batch.label == batch.logits.detach().argmax(dim=1)[batch.row]).to(at.dtype)
        judged = functional.softplus(at) - at * agrees
        smoothed = -(r * said + (1.0 - r) * mean)
        c = batch.weight / batch.total_weight
        value = (c * (self.share * smoothed + (1.0 - self.share) * judged)).sum()
        # - r log p[l] - (1 - r) mean log p is a cross-entropy against r * (the vote) + (1 - r) / K.
        b = self.share * c
        g = (p * b[:, None]).sub_((b * (1.0 - r) / self.n_classes)[:, None])
        fit = found.fit(value, g.scatter_add_(1, batch.label[:, None], (-b * r)[:, None]))
        slope = b * (mean - said) * r * (1.0 - r) + (1.0 - self.share) * c * (r - agrees)
        return losses.annotator_loss(batch, fit, self.W, (logit, slope))

    def posterior_log_probs(self, batch: Batch) -> Tensor:
        """Votes are weighted by their reliability."""
        weight = batch.weight * self.reliability(batch)
        return torch.log_softmax(batch.log_f + batch.total(weight[:, None] * self._log_columns(batch)), dim=1)


@declared
class CrowdAR(Learner):
    """A crowd layer for votes whose reliability is learned from the item's difficulty and the annotator's expertise.

    The consensus has the annotator column ``reliability`` (the mean over their votes; NaN without any) and the item
    column ``difficulty`` (from 0 to 1, for the class that the network predicts).

    Parameters
    ----------
    share
        The share of the loss of the smoothed votes; the rest fits reliabilities to whether the vote is the network's
        class.
    diagonal
        Where the weights from a class to the label of that class start; all others start at 0. By default where an
        annotator is right with probability 0.9.
    """

    key: ClassVar[str] = "crowd-ar"
    share: Annotated[float, Bounds(above=0, maximum=1)] = 0.9
    diagonal: Positive | None = None

    def _head(self, votes: Votes, hidden: int) -> Head:
        diagonal = first_diagonal(self.diagonal, votes.n_classes)
        return Reliable(votes.n_annotators, votes.n_classes, hidden, self.share, diagonal)

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        head = self._head_as(Reliable)
        total, count = torch.zeros((2, head.n_annotators), dtype=torch.float64, device=trainer.device)
        difficulty = []
        for batch in trainer.batches(trainer.edges, trainer.inputs):
            weight = batch.weight.double()
            total.index_add_(0, batch.annotator, weight * head.reliability(batch))
            count.index_add_(0, batch.annotator, weight)
            difficulty.append((batch.log_f.exp() * head.difficulty(batch)).sum(dim=1))
        return {
            "annotator_columns": {"reliability": as_array(total / count)},
            "item_columns": {"difficulty": as_array(torch.cat(difficulty))},
        }
