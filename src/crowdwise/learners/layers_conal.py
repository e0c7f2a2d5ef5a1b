"""CoNAL: noise that is common to all annotators and noise of their own, mixed for each vote by a gate.

    P(m says . | x) = softmax_l( sum_k p[k] W[n, m, k, l] ),    W[n, m] = w C + (1 - w) C[m]

==================  ===================  ============  ==========================================================
symbol              code                 shape         equation
==================  ===================  ============  ==========================================================
p                   ``log_f``            B x K         softmax of the network
C[k, l]             ``common``           K x K         starts as twice the identity
C[m, k, l]          ``W``                M x K x K     starts as twice the identity
w(x, m)             ``gate``             one per vote  sigmoid of the cosine between embeddings of x and m
==================  ===================  ============  ==========================================================

The weights become confusion matrices as in :mod:`crowdwise.learners.layers_crowd_layer`.

Reference: Z. Chu, J. Ma and H. Wang, Learning from crowds by modeling common confusions, AAAI 2021.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.head import AnnotatorTerms, Head, Predict
from crowdwise.learners.joint_confusions import identity
from crowdwise.learners.layers_crowd_layer import Layer
from crowdwise.learners.learner import Learner
from crowdwise.learners.tensors import as_array, columns, log_softmax
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch

WIDTH = 128
"""Of the one hidden layer between the network's hidden vector and an embedding, as in the paper."""


class CommonNoise(AnnotatorTerms, Layer):
    """Weights common to all, weights of each annotator, and for every vote a gate between the two.

    The gate depends on the network's hidden vector without training the network. Its mean over an annotator's votes in
    the last epoch is the share of the common noise in the annotator's confusion matrix.
    """

    needs_hidden: ClassVar[bool] = True
    opened: Tensor
    votes: Tensor

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, embedding: int, weight: float) -> None:
        super().__init__(n_annotators, n_classes)
        M, K = n_annotators, n_classes
        self.weight = weight
        self.common = nn.Parameter(2.0 * torch.eye(K))
        self.W = nn.Parameter(2.0 * identity(K).expand(M, K, K).clone())
        self.annotators = nn.Parameter(torch.randn(M, embedding))
        self.items = nn.Sequential(nn.Linear(hidden, WIDTH), nn.ReLU(), nn.Linear(WIDTH, embedding))
        self.register_buffer("opened", torch.zeros(M))
        self.register_buffer("votes", torch.zeros(M))

    def slow_parameters(self) -> list[nn.Parameter]:
        return list(self.items.parameters())

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        self.opened.zero_()
        self.votes.zero_()

    def gate(self, batch: Batch, annotator: Tensor) -> Tensor:
        """E: the share of the common noise in each vote."""
        assert batch.hidden is not None
        v = functional.normalize(self.items(batch.hidden.detach()), dim=1)
        u = functional.normalize(self.annotators.index_select(0, annotator), dim=1)
        return torch.sigmoid((v.index_select(0, batch.row) * u).sum(dim=1))

    def weights(self, batch: Batch, annotator: Tensor) -> Tensor:
        return torch.lerp(self.W[annotator], self.common, self.gate(batch, annotator)[:, None, None])

    def mixed(self, batch: Batch, p: Tensor, annotator: Tensor) -> Tensor:
        """The mixture of the outputs of both tables, which is the output of the mixed table."""
        own = losses.mix(p.index_select(0, batch.row), self.W.index_select(0, annotator))
        return torch.lerp(own, (p @ self.common).index_select(0, batch.row), self.gate(batch, annotator)[:, None])

    def mean_gate(self) -> Tensor:
        """M: the mean gate of each annotator's votes, with one vote more at one half."""
        return (self.opened + 0.5) / (self.votes + 1.0)

    def table(self) -> Tensor:
        return torch.lerp(self.W, self.common, self.mean_gate()[:, None, None])

    def loss(self, batch: Batch) -> Tensor:
        gate = self.gate(batch, batch.annotator)
        w, common = gate.detach(), self.common.detach()
        self.opened.index_add_(0, batch.annotator, batch.weight * w)
        self.votes.index_add_(0, batch.annotator, batch.weight)
        found = losses.Predictions.of(batch, self.W)
        shared = found.mine @ common
        said, p = losses.log_probs(torch.lerp(found.z, shared, w[:, None]), batch.label)
        c = batch.weight / -float(len(batch))
        g = losses.label_gradient(c, p, batch.label)
        through = w[:, None] * g
        fit = found.fit((c * said).sum(), g - through, batch.total(through @ common.T))
        at_gate = ((shared - found.z) * g).sum(dim=1)
        # The reward for distance from the common weights; its gradient stays finite where all are equal, as at first.
        apart = (found.rows if self.many else self.W.detach()) - common
        norm = ((apart * apart).sum(dim=(1, 2)) + 1e-12).sqrt()
        share = -self.weight * (self.term_weights(batch) if self.many else torch.ones_like(norm))
        grad = apart * (share / norm)[:, None, None]
        rows = losses.GradientRows(fit.rows + grad if self.many else fit.rows, batch.annotator, self.W.shape)
        at_common = found.mine.T @ through - grad.sum(dim=0)
        return losses.with_gradients(
            fit.value + (share * norm).sum(), (batch.logits, fit.logits), (gate, at_gate), (self.common, at_common),
            (self.W, rows if self.many else rows.dense() + grad),
        )  # fmt: skip

    def _log_columns(self, batch: Batch) -> Tensor:
        known = columns(log_softmax(self.weights(batch, self.known_codes(batch)), dim=2), batch.label)
        return self.or_unseen(batch, known, lambda: super(CommonNoise, self)._log_columns(batch))


@declared
class CoNAL(Learner):
    """Noise that is common to all annotators and noise of their own, mixed for each vote by a gate.

    ``confusion_`` mixes the two for each annotator by the mean of the gate over their votes; the posterior uses the
    gate of each vote. The consensus has the annotator column ``common``, that mean.

    Parameters
    ----------
    embedding
        Dimensions of the embeddings of items and annotators: the gate is the sigmoid of their cosine.
    weight
        The weight of the reward for matrices that differ from the common one: the sum of the Frobenius norms.
    """

    key: ClassVar[str] = "conal"
    embedding: Count = 20
    weight: NonNegative = 1e-5

    def _head(self, votes: Votes, hidden: int) -> Head:
        return CommonNoise(votes.n_annotators, votes.n_classes, hidden, self.embedding, self.weight)

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        return {"annotator_columns": {"common": as_array(self._head_as(CommonNoise).mean_gate())}}
