"""Votes as edge lists: what a batch of items hands to a loss.

A vote is an edge between an item and an annotator. A batch carries the edges of its items and nothing else, so its
size is that of its votes: no items x annotators table, no matrix per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from crowdwise.core.numerics import Ints
from crowdwise.data.ratings import Ratings
from crowdwise.data.votes import Votes
from crowdwise.learners.devices import log_softmax

Answers = TypeVar("Answers", Votes, Ratings)
VoteRows = tuple[Tensor, Tensor, Tensor, Tensor]
"""E each: row in the batch, annotator, label and weight of votes."""


def column_cells(first: Tensor, n_classes: int) -> Tensor:
    """E x K: the places of columns in a flat table of K x K matrices, from the place of the first number of each."""
    return first[:, None] + torch.arange(0, n_classes * n_classes, n_classes, device=first.device)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some items, the network's predictions for them, and their votes."""

    index: Tensor
    """B: the items' places among those trained on."""
    logits: Tensor
    """B x K: the network's output, before the softmax."""
    hidden: Tensor | None
    """B x H: the input of the network's last layer, for heads that ask for it."""
    row: Tensor
    """E: where in the batch the item of each vote is."""
    annotator: Tensor
    label: Tensor
    weight: Tensor

    def total(self, value: Tensor) -> Tensor:
        """B x K: sums over each item's votes of one row (of K) per vote."""
        out = value.new_zeros((len(self.index), value.shape[1]))
        return out.scatter_add(0, self.row[:, None].expand_as(value), value)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def log_f(self) -> Tensor:
        """B x K: log of the network's class probabilities."""
        return log_softmax(self.logits, dim=1)

    def mean(self, value: Tensor) -> Tensor:
        """The weighted mean over the batch's votes of one number per vote; zero without votes."""
        return (self.weight * value).sum() / self.total_weight

    def item_mean(self, value: Tensor) -> Tensor:
        """One number per vote, summed by weight over an item's votes and averaged over the items."""
        return (self.weight * value).sum() / len(self)

    @property
    def total_weight(self) -> Tensor:
        """The weight of all votes of the batch, above zero."""
        return self.weight.sum().clamp_min(1e-12)

    def cells(self, n_classes: int) -> Tensor:
        """E x K: where, in an M x K x K table, the column of each vote's annotator and label is."""
        return column_cells(self.annotator * (n_classes * n_classes) + self.label, n_classes)


@dataclass(frozen=True, eq=False)
class Edges:
    """All votes as tensors, in rows by item."""

    indptr: Tensor
    annotator: Tensor
    label: Tensor
    weight: Tensor
    n_annotators: int
    n_classes: int

    @classmethod
    def of(cls, votes: Votes | Ratings, device: torch.device | str = "cpu") -> Edges:
        """Votes, or ratings: their numbers are the labels, of a single class."""
        label, n_classes = (votes.value, 1) if isinstance(votes, Ratings) else (votes.label, votes.n_classes)
        of_label = torch.float32 if isinstance(votes, Ratings) else torch.int64
        kinds = (torch.int64, torch.int64, of_label, torch.float32)
        parts = zip((votes.indptr, votes.annotator, label, votes.weights), kinds, strict=True)
        indptr, annotator, labels, weight = (
            torch.as_tensor(np.array(part), dtype=kind, device=device) for part, kind in parts
        )
        return cls(indptr, annotator, labels, weight, votes.n_annotators, n_classes)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def item(self) -> Tensor:
        """The item of each vote."""
        return rows_of(self.indptr[1:] - self.indptr[:-1])

    def take(self, index: Tensor, n_votes: int | None = None) -> VoteRows:
        """row, annotator, label and weight of the votes on some items, in the order of the items.

        Where the host knows how many votes these are, it does not have to wait for the device to count them.
        """
        row, at = vote_places(self.indptr, index, n_votes)
        return row, self.annotator[at], self.label[at], self.weight[at]

    def cut(self, index: Tensor, n_votes: Ints, cuts: Sequence[tuple[int, int]]) -> list[VoteRows]:
        """What :meth:`take` gives of the items of each batch, from ``lo`` to below ``hi``: a gather for all of them."""
        sizes = [int(n_votes[lo:hi].sum()) for lo, hi in cuts]
        parts = zip(*(torch.split(part, sizes) for part in self.take(index, sum(sizes))), strict=True)
        return [(row - lo, *votes) for (lo, _), (row, *votes) in zip(cuts, parts, strict=True)]

    def draw(self, index: Tensor, n_votes: Ints, per_item: int | None) -> VoteRows:
        """What :meth:`take` gives, of at most ``per_item`` random votes on each item, with weights that make them stand
        for all of its votes (``None``: all votes); the host knows how many there are on each item (``n_votes``)."""
        total = int(n_votes.sum())
        if per_item is None:
            return self.take(index, total)
        n_drawn = int(np.minimum(n_votes, per_item).sum())
        row, at = vote_places(self.indptr, index, total)
        count = self.indptr[index + 1] - self.indptr[index]
        kept = count.clamp_max(per_item)
        shuffled = torch.argsort(row + torch.rand(total, dtype=torch.float64, device=row.device))
        drawn = rows_of(kept, n_drawn)
        first, before = torch.cumsum(count, 0) - count, torch.cumsum(kept, 0) - kept
        at = at[shuffled[torch.arange(n_drawn, device=row.device) + (first - before)[drawn]]]
        return drawn, self.annotator[at], self.label[at], self.weight[at] * (count / kept)[drawn]

    def batch(
        self, index: Tensor, logits: Tensor, hidden: Tensor | None = None, n_votes: int | None = None
    ) -> Batch:  # fmt: skip
        """The batch of some items, with the network's predictions for them."""
        row, annotator, label, weight = self.take(index, n_votes)
        return Batch(index, logits, hidden, row, annotator, label, weight.to(logits.dtype))


def rows_of(count: Tensor, total: int | None = None) -> Tensor:
    """0 so many times as the first count says, 1 as the second says, and so on; ``total`` is their sum, if known."""
    return torch.repeat_interleave(torch.arange(len(count), device=count.device), count, output_size=total)


def vote_places(indptr: Tensor, index: Tensor, n_votes: int | None = None) -> tuple[Tensor, Tensor]:
    """For the votes on some items: which of these items each is on, and its place among all votes."""
    first = indptr[index]
    count = indptr[index + 1] - first
    row = rows_of(count, n_votes)
    return row, torch.arange(len(row), device=index.device) + (first - (torch.cumsum(count, 0) - count))[row]


def used_items(votes: Votes, gold: Ints | None = None) -> npt.NDArray[np.bool_]:
    """N: which items have votes or, where ``gold`` holds class codes, a known class."""
    voted = np.diff(votes.indptr) > 0
    return voted if gold is None else voted | (np.asarray(gold) >= 0)


def split(votes: Answers, share: float, rng: np.random.Generator) -> tuple[Answers, Answers]:
    """Votes to train on and votes held out: a random share of the (item, annotator) pairs."""
    held = np.zeros(votes.n_answers, dtype=bool)
    held[rng.permutation(votes.n_answers)[: round(share * votes.n_answers)]] = True
    return votes.select(~held), votes.select(held)
