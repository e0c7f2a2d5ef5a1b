"""What a method adds to a network: a loss on votes, and what it knows of the annotators.

A network turns an input into K logits. A head turns logits and the votes of a batch into a loss, learns about the
annotators while it is at it, and afterwards answers three questions: how each annotator answers (``confusion``), how
probable a vote is (``vote_log_probs``), and what an item's class is, given the network *and* votes (``forecast``).

A head that learns no confusion matrices gets them counted: ``settle`` compares the votes with what the network says
of their items. So every learner has them, and every learner can be judged by the likelihood of held-out votes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core.numerics import Ints
from crowdwise.data.votes import Votes
from crowdwise.learners.vote_edges import Batch, Edges

FLOOR = 1e-10
"""The least probability whose logarithm is taken."""

MANY = 256
"""With more annotators than this, terms for every annotator are estimated from those of the batch."""

Predict = Callable[[], Tensor]
"""N x K log probabilities of the items trained on, as the network sees them now."""


class Head(nn.Module):
    """The base of all heads. A subclass gives ``loss`` and, where it models votes, ``confusion``."""

    needs_hidden: ClassVar[bool] = False
    """Whether batches carry the input of the network's last layer."""

    resting: bool = False
    """Whether the network stays at rest in training (no dropout, statistics kept): for stages that do not train it."""

    gold: Ints | None = None
    """N class codes, -1 where unknown: what a posterior over the items trained on is held to. The trainer sets it."""

    counted: Tensor
    progress: float = 0.0
    """The share of training that is done, from 0 to under 1."""

    def __init__(self, n_annotators: int, n_classes: int) -> None:
        super().__init__()
        self.n_annotators, self.n_classes = n_annotators, n_classes
        self.register_buffer("counted", torch.full((n_annotators, n_classes, n_classes), 1.0 / n_classes))

    # ---------------------------------------------------------------- training

    def start(self, votes: Votes) -> None:
        """Look at the votes before training begins."""

    def begin(self, epoch: int, predict: Predict) -> None:
        """Look at the network's predictions before an epoch (counted from 0); alternating methods do their E-step."""

    def renew(self, epoch: int) -> bool:
        """Whether the network begins anew, from its first weights, with this epoch."""
        return False

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """What a step lowers: a mean over the batch."""

    def after_step(self) -> None:
        """Bring parameters back where they may be, after a step."""

    def slow_parameters(self) -> list[nn.Parameter]:
        """Those of the head's parameters that learn at the network's rate (its own take ``crowd_lr``)."""
        return []

    # ---------------------------------------------------------------- what it knows

    def predict_log_probs(self, batch: Batch) -> Tensor:
        """B x K: log probabilities of the classes from inputs alone: the network's, unless a head knows better."""
        return batch.log_f

    def confusion(self) -> Tensor:
        """M x K x K: P(annotator m says l, given truth k), axis 1 the truth."""
        return self.counted

    def settle(self, log_f: Tensor, edges: Edges) -> None:
        """Count confusion matrices against the network's predictions; heads that learn them need not."""
        if type(self).confusion is Head.confusion:
            self.counted = count_confusion(log_f.exp(), edges)

    def vote_log_probs(self, batch: Batch) -> Tensor:
        """E: log P(an annotator says what they said, given the input)."""
        return torch.logsumexp(self.predict_log_probs(batch)[batch.row] + self._log_columns(batch), dim=1)

    def forecast(self, batch: Batch) -> Tensor:
        """B x K: log probabilities of the classes, given the inputs and the votes."""
        votes = batch.total(batch.weight[:, None] * self._log_columns(batch))
        return torch.log_softmax(self.predict_log_probs(batch) + votes, dim=1)

    def _log_columns(self, batch: Batch) -> Tensor:
        """E x K: log P(the label that was given, by its annotator, for each possible truth); strangers as the crowd."""
        theta = self.confusion()
        known = batch.annotator.clamp_max(self.n_annotators - 1)
        columns = theta[known, :, batch.label]
        strangers = batch.annotator >= self.n_annotators
        if bool(strangers.any()):
            columns = torch.where(strangers[:, None], theta.mean(dim=0).T[batch.label], columns)
        return columns.clamp_min(FLOOR).log()


class Census(Head):
    """A head whose loss has a term for every annotator, whether the batch has votes of theirs or not.

    Up to ``MANY`` annotators all of them are looked at in every step. Beyond, a step would cost more by the crowd than
    by its votes, so the terms of the batch's own annotators stand for all: each vote counts for the inverse of how many
    votes of its annotator a batch has on average. The sum is right on average, as the likelihood of a batch is; an
    annotator without votes is left out.
    """

    rarity: Tensor

    def __init__(self, n_annotators: int, n_classes: int) -> None:
        super().__init__(n_annotators, n_classes)
        self.register_buffer("rarity", torch.zeros(n_annotators), persistent=False)

    @property
    def many(self) -> bool:
        return self.n_annotators > MANY

    def start(self, votes: Votes) -> None:
        used = np.diff(votes.indptr) > 0
        if self.gold is not None:
            used = used | (np.asarray(self.gold) >= 0)
        count = np.bincount(votes.annotator, minlength=self.n_annotators)
        self.rarity = torch.as_tensor(used.sum() / np.maximum(count, 1), dtype=torch.float32)

    def stands_for(self, batch: Batch) -> Tensor:
        """E: how many times each vote's annotator counts in a sum over all annotators."""
        return self.rarity.index_select(0, batch.annotator).to(batch.logits.dtype) / len(batch)


def count_confusion(f: Tensor, edges: Edges, strength: float = 1.0) -> Tensor:
    """M x K x K from the votes and N x K class probabilities of their items.

    Each row gets ``strength`` votes that fall like those of the whole crowd, whose own rows get one uniform vote.
    """
    M, K = edges.n_annotators, edges.n_classes
    item = torch.repeat_interleave(torch.arange(len(edges), device=f.device), edges.indptr[1:] - edges.indptr[:-1])
    cell = edges.annotator * K + edges.label
    counts = f.new_zeros((M * K, K)).index_add(0, cell, f[item] * edges.weight.to(f.dtype)[:, None])
    table = counts.reshape(M, K, K).transpose(1, 2)  # annotator, truth, label
    crowd = table.sum(dim=0) + 1.0 / K
    table = table + strength * crowd / crowd.sum(dim=1, keepdim=True)
    return table / table.sum(dim=2, keepdim=True)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """Mean over the batch of - sum_k target[k] log f[k], for soft targets."""
    return -(target * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()
