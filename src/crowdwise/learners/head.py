"""What a method adds to a network: a loss on votes, and what it learns about the annotators.

A network turns an input into K logits. A head turns logits and the votes of a batch into a loss and learns about the
annotators. Afterwards it answers three questions: how each annotator answers (``confusion``), how probable a vote is
(``vote_log_probs``), and what an item's class is, given the network *and* votes (``posterior_log_probs``).

Confusion matrices of a head that learns none are counted: ``finish`` compares the votes with the network's predictions.
So every learner has them, and every learner can be measured by the likelihood of held-out votes.
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
from crowdwise.learners.vote_edges import Batch, Edges, used_items

FLOOR = 1e-10
"""The smallest probability whose logarithm is taken."""

MANY = 256
"""With more annotators than this, terms for every annotator are estimated from those of the batch."""

Predict = Callable[[], Tensor]
"""N x K log probabilities of the items trained on, as the network predicts them now."""


class Head(nn.Module):
    """The base of all heads. A subclass gives ``loss`` and, where it models votes, ``confusion``."""

    needs_hidden: ClassVar[bool] = False
    """Whether batches carry the input of the network's last layer."""

    network_frozen: bool = False
    """Whether the network is not trained now (no dropout, no new statistics): for stages that train the head alone."""

    gold: Ints | None = None
    """N class codes, -1 where unknown, for inference about the items trained on. The trainer sets it."""

    slow_weight_decay: float | None = None
    """The weight decay of :meth:`slow_parameters`; by default that of the network."""

    counted: Tensor
    progress: float = 0.0
    """The share of training that is done, from 0 to under 1."""

    def __init__(self, n_annotators: int, n_classes: int) -> None:
        super().__init__()
        self.n_annotators, self.n_classes = n_annotators, n_classes
        self.register_buffer("counted", torch.full((n_annotators, n_classes, n_classes), 1.0 / n_classes))

    def start(self, votes: Votes) -> None:
        """Prepare for these votes, before training."""

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        """Prepare for an epoch (counted from 0); alternating methods do their E-step here."""

    def restarts_network(self, epoch: int) -> bool:
        """Whether the network goes back to its first weights before this epoch."""
        return False

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """What a step lowers: a mean over the batch."""

    def after_step(self) -> None:
        """Project parameters back to where they may be, after a step."""

    def slow_parameters(self) -> list[nn.Parameter]:
        """Those of the head's parameters that learn at the network's rate (the others at ``crowd_lr``)."""
        return []

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        """Count confusion matrices against the network's predictions; heads that learn them need not."""
        if type(self).confusion is Head.confusion:
            self.counted = count_confusion(log_f.exp(), edges)

    def predict_log_probs(self, batch: Batch) -> Tensor:
        """B x K: log class probabilities from inputs alone: the network's, unless a head improves on them."""
        return batch.log_f

    def confusion(self) -> Tensor:
        """M x K x K: P(annotator m says l, given truth k), axis 1 the truth."""
        return self.counted

    def vote_log_probs(self, batch: Batch) -> Tensor:
        """E: log P(an annotator gives the label they gave, given the input)."""
        return torch.logsumexp(self.predict_log_probs(batch)[batch.row] + self._log_columns(batch), dim=1)

    def posterior_log_probs(self, batch: Batch) -> Tensor:
        """B x K: log class probabilities, given the inputs and the votes."""
        return torch.log_softmax(self.predict_log_probs(batch) + self._evidence(batch), dim=1)

    def _evidence(self, batch: Batch) -> Tensor:
        """B x K: the log-likelihood of the votes on each item in each class."""
        return batch.total(batch.weight[:, None] * self._log_columns(batch))

    def _log_columns(self, batch: Batch) -> Tensor:
        """E x K: log P(the given label, by its annotator, for each possible truth); unseen annotators as the crowd."""
        theta = self.confusion()
        known = theta[self.known_codes(batch), :, batch.label]
        return self.or_unseen(batch, known, lambda: theta.mean(dim=0).T[batch.label]).clamp_min(FLOOR).log()

    def known_codes(self, batch: Batch) -> Tensor:
        """E: codes of annotators of the fit; an unseen annotator has that of the last one."""
        return batch.annotator.clamp_max(self.n_annotators - 1)

    def or_unseen(self, batch: Batch, known: Tensor, unseen: Callable[[], Tensor]) -> Tensor:
        """A row for every vote: ``known``, and ``unseen()`` where the annotator was not in the fit."""
        new = batch.annotator >= self.n_annotators
        if not bool(new.any()):
            return known
        return torch.where(new.reshape(-1, *(1 for _ in known.shape[1:])), unseen(), known)


class MixesVotes(Head):
    """A head that trains on mixtures of votes, where the setting ``mixup`` asks for it: of inputs and annotators."""

    votes_per_item: int | None = None
    """How many votes on an item are drawn in each epoch; all of them where none is given."""

    @abstractmethod
    def mixed_loss(self, batch: Batch, other: Batch, share: Tensor) -> Tensor:
        """The loss of E votes, each mixed with another one.

        Both batches have one item for each vote, with what the network predicts for the mixture of the two inputs;
        ``share`` (E) is that of the first.
        """


class AnnotatorTerms(Head):
    """A head whose loss has a term for every annotator, whether the batch has votes of theirs or not.

    Up to ``MANY`` annotators every step uses all of them. Beyond that a step would cost more by the crowd than by its
    votes, so the terms of the batch's own annotators are weighted to estimate the sum: each vote counts for the inverse
    of how many votes of its annotator a batch has on average. The estimate is unbiased, as the likelihood of a batch
    is; annotators without votes are left out.
    """

    rarity: Tensor

    def __init__(self, n_annotators: int, n_classes: int) -> None:
        super().__init__(n_annotators, n_classes)
        self.register_buffer("rarity", torch.zeros(n_annotators), persistent=False)

    @property
    def many(self) -> bool:
        return self.n_annotators > MANY

    def start(self, votes: Votes) -> None:
        count, used = np.bincount(votes.annotator, minlength=self.n_annotators), used_items(votes, self.gold)
        self.rarity = torch.as_tensor(used.sum() / np.maximum(count, 1), dtype=torch.float32)

    def term_weights(self, batch: Batch) -> Tensor:
        """E: how many times each vote's annotator counts in the estimate of a sum over all annotators."""
        return self.rarity.index_select(0, batch.annotator).to(batch.logits.dtype) / len(batch)


def vote_counts(f: Tensor, edges: Edges) -> Tensor:
    """M x K x K: the sum over an annotator's votes for a label of the N x K class probabilities of their items."""
    M, K = edges.n_annotators, edges.n_classes
    cell = edges.annotator * K + edges.label
    counts = f.new_zeros((M * K, K)).index_add(0, cell, f[edges.item] * edges.weight.to(f.dtype)[:, None])
    return counts.reshape(M, K, K)


def count_confusion(f: Tensor, edges: Edges, strength: float = 1.0) -> Tensor:
    """M x K x K from the votes and N x K class probabilities of their items.

    Each row gets ``strength`` pseudo-votes distributed like those of the whole crowd, whose own rows get one uniform
    vote.
    """
    table = vote_counts(f, edges).transpose(1, 2)  # annotator, truth, label
    crowd = table.sum(dim=0) + 1.0 / edges.n_classes
    table = table + strength * crowd / crowd.sum(dim=1, keepdim=True)
    return table / table.sum(dim=2, keepdim=True)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """Mean over the batch of - sum_k target[k] log f[k], for soft targets."""
    return -(target * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()
