"""CrowdAR: a crowd layer, fitted to votes that are blurred as far as their reliability is low.

    P(m says . | x) = softmax_l( sum_k p[k] W[m, k, l] ),    target of a vote = r * (its label) + (1 - r) / K

==================  ===================  ============  ==========================================================
symbol              code                 shape         equation
==================  ===================  ============  ==========================================================
p                   ``log_f``            B x K         softmax of the network
W[m, k, l]          ``W``                M x K x K     starts as the identity
d(x), e[m]          ``difficulty``       K each        sigmoid( V2 sigmoid(V1 h) ) of the hidden vector h, free
r(x, m)             ``reliability``      one per vote  sigmoid( v'[(sigmoid(e[m]) - d(x)) p] + c ), v >= 0
loss                                                   mean over votes of share * cross-entropy with the target
                                                       + (1 - share) * cross-entropy of r with 1(label = argmax p)
==================  ===================  ============  ==========================================================

When it fails: as the crowd layer does; and a network that is wrong at first calls those unreliable who are right.

Reference: Z. Cao et al., Learning from crowds with annotation reliability, SIGIR 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.checks import check_number
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners import losses
from crowdwise.learners.head import Head
from crowdwise.learners.layers_crowd_layer import WIDTH, CrowdWeights
from crowdwise.learners.learner import Learner
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch


class Reliable(CrowdWeights):
    """The crowd layer fitted to r * (the vote) + (1 - r) * (uniform), and a reliability r learned for every vote.

    Where r comes from, the network is looked at (its hidden vector and p) and not trained.
    """

    needs_hidden: ClassVar[bool] = True

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, share: float) -> None:
        super().__init__(n_annotators, n_classes, "MW")
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
        """E: of the reliability of each vote; strangers are as able as the mean annotator."""
        known = batch.annotator.clamp_max(self.n_annotators - 1)
        able = torch.sigmoid(self.expertise.index_select(0, known))
        strangers = (batch.annotator >= self.n_annotators)[:, None]
        if bool(strangers.any()):
            able = torch.where(strangers, torch.sigmoid(self.expertise).mean(dim=0), able)
        p = torch.softmax(batch.logits.detach(), dim=1)
        # As difficulties are the same for all votes on an item, they are weighed once an item.
        hard = (self.difficulty(batch) * p) @ self.v
        easy = (able * p.index_select(0, batch.row)) @ self.v
        return easy - hard.index_select(0, batch.row) + self.c

    def reliability(self, batch: Batch) -> Tensor:
        """E: from 0 to 1."""
        return torch.sigmoid(self.logit(batch))

    def loss(self, batch: Batch) -> Tensor:
        """The mean over votes of share * blurred + (1 - share) * judged, with gradients at z and at the logit of r."""
        assert self.W is not None
        logit = self.logit(batch)
        at = logit.detach()
        r = torch.sigmoid(at)
        found = losses.Answers.of(batch, self.W)
        said, p = losses.log_probs(found.z, batch.label)
        mean = said - found.z.gather(1, batch.label[:, None])[:, 0] + found.z.mean(dim=1)  # of all labels' logarithms
        agrees = (batch.label == batch.logits.detach().argmax(dim=1)[batch.row]).to(at.dtype)
        judged = functional.softplus(at) - at * agrees
        blurred = -(r * said + (1.0 - r) * mean)
        c = batch.weight / batch.weight.sum().clamp_min(1e-12)
        value = (c * (self.share * blurred + (1.0 - self.share) * judged)).sum()
        # - r log p[l] - (1 - r) mean log p is a cross-entropy against r * (the vote) + (1 - r) / K.
        b = self.share * c
        g = (p * b[:, None]).sub_((b * (1.0 - r) / self.n_classes)[:, None])
        fit = found.fit(value, g.scatter_add_(1, batch.label[:, None], (-b * r)[:, None]))
        slope = b * (mean - said) * r * (1.0 - r) + (1.0 - self.share) * c * (r - agrees)
        W = losses.Rows(fit.rows, batch.annotator, self.W.shape)
        return losses.known(fit.value, (batch.logits, fit.logits), (self.W, W), (logit, slope))

    def forecast(self, batch: Batch) -> Tensor:
        """Votes count as far as they are reliable."""
        weight = batch.weight * self.reliability(batch)
        return torch.log_softmax(batch.log_f + batch.total(weight[:, None] * self._log_columns(batch)), dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdAR(Learner):
    """A crowd layer for votes whose reliability is learned from the item's difficulty and the annotator's expertise.

    The consensus has the annotator column ``reliability`` (the mean over their votes; NaN without any) and the item
    column ``difficulty`` (from 0 to 1, for the class the network takes it for).

    Parameters
    ----------
    share
        Of the loss of the blurred votes; the rest judges reliabilities by whether the network's class was voted for.
    """

    key: ClassVar[str] = "crowd-ar"
    share: float = 0.9

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return Reliable(votes.n_annotators, votes.n_classes, hidden, self.share)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self, "share", above=0.0)
        if self.share > 1.0:
            raise ParameterError(f"share={self.share!r}: expected a number above 0 and of at most 1.")

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        head = trainer.head
        assert isinstance(head, Reliable)
        total, count = torch.zeros((2, head.n_annotators), dtype=torch.float64, device=trainer.device)
        difficulty = []
        for batch in trainer.batches(trainer.edges):
            weight = batch.weight.double()
            total.index_add_(0, batch.annotator, weight * head.reliability(batch))
            count.index_add_(0, batch.annotator, weight)
            difficulty.append((batch.log_f.exp() * head.difficulty(batch)).sum(dim=1))
        return {
            "annotator_columns": {"reliability": (total / count).cpu().numpy()},
            "item_columns": {"difficulty": torch.cat(difficulty).double().cpu().numpy()},
        }
