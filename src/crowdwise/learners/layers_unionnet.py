"""UnionNet: all annotators as one, whose vote is one of M K pairs of annotator and label.

    A: P(m, l | x) = softmax over all pairs (m, l) of sum_k p[k] T[m, k, l]
    B: P(m, l | x) = sum_k p[k] softmax over all pairs of T[:, k, :]

==================  ===================  ============  ==========================================================
symbol              code                 shape         equation
==================  ===================  ============  ==========================================================
p                   ``log_f``            B x K         softmax of the network
T[m, k, l]          ``T``                M x K x K     starts as ``diagonal`` times the identity
loss                                                   - sum over an item's votes of log P(m, l | x), mean of items
==================  ===================  ============  ==========================================================

Reference: H. Wei et al., Deep learning from multiple noisy annotators as a union, IEEE TNNLS 2022.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from crowdwise.core.constraints import Positive
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.head import Head
from crowdwise.learners.joint_confusions import DIAGONAL, first_diagonal, identity
from crowdwise.learners.learner import Learner
from crowdwise.learners.tensors import log_softmax
from crowdwise.learners.vote_edges import Batch

BLOCK = 2**20
"""The most numbers of items x annotators x labels that variant A holds at once."""


class Union(Head):
    """T[m, k, l]: one distribution over all pairs of annotator and label, given the class.

    A: softmax over the pairs of sum_k p[k] T[:, k, :].    B: sum_k p[k] softmax over the pairs of T[:, k, :].

    Only the loss models who votes. Given that an annotator votes, the probability of a label is that of the pair over
    the sum of the annotator's pairs.
    """

    def __init__(self, n_annotators: int, n_classes: int, variant: str = "B", diagonal: float = DIAGONAL) -> None:
        super().__init__(n_annotators, n_classes)
        self.variant, self.diagonal = variant, diagonal
        self.T = nn.Parameter(identity(n_classes, diagonal).expand(n_annotators, n_classes, n_classes).clone())

    def confusion(self) -> Tensor:
        return log_softmax(self.T, dim=2).exp()

    def pairs(self, batch: Batch, annotator: Tensor) -> Tensor:
        """E x K: log of (A: up to a constant of the item) the probability of each annotator's pairs."""
        if self.variant == "A":
            return torch.einsum("ek,ekl->el", batch.log_f.exp()[batch.row], self.T[annotator])
        log_f = batch.log_f - torch.logsumexp(self.T, dim=(0, 2))
        return torch.logsumexp(log_f[batch.row][:, :, None] + self.T[annotator], dim=1)

    def loss(self, batch: Batch) -> Tensor:
        if self.variant == "A":
            pair = self.pairs(batch, batch.annotator).gather(1, batch.label[:, None])[:, 0]
            return batch.item_mean(log_total(batch.log_f.exp(), self.T)[batch.row] - pair)
        return self._mixture(batch)

    def _mixture(self, batch: Batch) -> Tensor:
        """Variant B. The gradient is r at T[m, k, l], less the sum of r times the softmax of T[:, k, :]."""
        T = self.T.detach()
        top = T.max()
        pairs = (T - top).exp_()
        sums = pairs.sum(dim=2).sum(dim=0)
        f = torch.log_softmax(batch.logits.detach(), dim=1)
        share = (f - sums.log()).index_select(0, batch.row) + (T[batch.annotator, :, batch.label] - top)
        log_p = torch.logsumexp(share, dim=1, keepdim=True)
        c = batch.weight[:, None] / -float(len(batch))
        r = c * (share - log_p).exp_()
        at, total = batch.total(r), r.sum(dim=0)
        grad = pairs.mul_((-total / sums)[:, None])
        grad.put_(batch.cells(T.shape[1]), r, accumulate=True)
        return losses.with_gradients(
            (c * log_p).sum(), (batch.logits, at - f.exp() * at.sum(dim=1, keepdim=True)), (self.T, grad)
        )

    def vote_log_probs(self, batch: Batch) -> Tensor:
        pairs = self.pairs(batch, self.known_codes(batch))
        found = log_softmax(pairs, dim=1).gather(1, batch.label[:, None])[:, 0]
        return self.or_unseen(batch, found, lambda: super(Union, self).vote_log_probs(batch))


def log_total(p: Tensor, T: Tensor, block: int = BLOCK) -> Tensor:
    """B: log of the sum over all pairs of exp( sum_k p[k] T[m, k, l] ), some annotators at a time."""

    def part(p: Tensor, some: Tensor) -> Tensor:
        return torch.logsumexp(torch.einsum("bk,mkl->bml", p, some), dim=(1, 2))

    parts = torch.split(T, max(1, block // max(1, len(p) * T.shape[2])))
    if len(parts) == 1:
        return part(p, T)
    # A part is computed again in the backward pass, so that not all parts are in memory together.
    return torch.logsumexp(torch.stack([checkpoint(part, p, some, use_reentrant=False) for some in parts]), dim=0)


@declared
class UnionNet(Learner):
    """All annotators as one: a vote is one of the M K pairs of annotator and label.

    Parameters
    ----------
    variant
        ``"B"``: a distribution over the pairs for each class, mixed by the network. ``"A"``: free weights, and one
        softmax over the pairs after them (its cost grows with items x annotators).
    diagonal
        Where the weights of pairs with the label of the class start; all others start at 0. By default where an
        annotator is right with probability 0.9.
    """

    key: ClassVar[str] = "unionnet"
    variant: Literal["A", "B"] = "B"
    diagonal: Positive | None = None

    def _head(self, votes: Votes, hidden: int) -> Head:
        return Union(votes.n_annotators, votes.n_classes, self.variant, first_diagonal(self.diagonal, votes.n_classes))
