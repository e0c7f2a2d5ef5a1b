"""UnionNet: all annotators as one, who gives one of M K answers.

    A: P(m, l | x) = softmax over all pairs (m, l) of sum_k p[k] T[m, k, l]
    B: P(m, l | x) = sum_k p[k] softmax over all pairs of T[:, k, :]

==================  ===================  ============  ==========================================================
symbol              code                 shape         equation
==================  ===================  ============  ==========================================================
p                   ``log_f``            B x K         softmax of the network
T[m, k, l]          ``T``                M x K x K     starts as the identity
loss                                                   - sum over an item's votes of log P(m, l | x), mean of items
==================  ===================  ============  ==========================================================

When it fails: who votes often and who is right become one question, so that busy annotators draw the network along; and
with very many annotators each pair is so improbable that little is learned of any.

Reference: H. Wei et al., Deep learning from multiple noisy annotators as a union, IEEE TNNLS 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from crowdwise.core.checks import check_choice
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.head import Head
from crowdwise.learners.joint_confusions import identity
from crowdwise.learners.layers_crowd_layer import summed
from crowdwise.learners.learner import Learner
from crowdwise.learners.vote_edges import Batch, log_softmax

VARIANTS = ("A", "B")
BLOCK = 2**20
"""The most numbers of items x annotators x labels that variant A holds at once."""


class Union(Head):
    """T[m, k, l]: who says what, given the class, as one distribution over all pairs of annotator and label.

    A: softmax over the pairs of sum_k p[k] T[:, k, :].    B: sum_k p[k] softmax over the pairs of T[:, k, :].

    Only the loss asks who votes at all. Of a vote that was given, the label's probability is that of the pair over the
    sum of its annotator's pairs.
    """

    def __init__(self, n_annotators: int, n_classes: int, variant: str = "B") -> None:
        super().__init__(n_annotators, n_classes)
        self.variant = variant
        self.T = nn.Parameter(identity(n_classes).expand(n_annotators, n_classes, n_classes).clone())

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
            return summed(batch, log_total(batch.log_f.exp(), self.T)[batch.row] - pair)
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
        K = T.shape[1]
        cell = (batch.annotator * (K * K) + batch.label)[:, None] + torch.arange(0, K * K, K, device=T.device)
        grad.put_(cell, r, accumulate=True)
        return losses.known(
            (c * log_p).sum(), (batch.logits, at - f.exp() * at.sum(dim=1, keepdim=True)), (self.T, grad)
        )

    def vote_log_probs(self, batch: Batch) -> Tensor:
        pairs = self.pairs(batch, batch.annotator.clamp_max(self.n_annotators - 1))
        found = log_softmax(pairs, dim=1).gather(1, batch.label[:, None])[:, 0]
        strangers = batch.annotator >= self.n_annotators
        if bool(strangers.any()):
            found = torch.where(strangers, super().vote_log_probs(batch), found)
        return found


def log_total(p: Tensor, T: Tensor, block: int = BLOCK) -> Tensor:
    """B: log of the sum over all pairs of exp( sum_k p[k] T[m, k, l] ), some annotators at a time."""

    def part(p: Tensor, some: Tensor) -> Tensor:
        return torch.logsumexp(torch.einsum("bk,mkl->bml", p, some), dim=(1, 2))

    parts = torch.split(T, max(1, block // max(1, len(p) * T.shape[2])))
    if len(parts) == 1:
        return part(p, T)
    # What a part holds is made again on the way back, or all parts would be held together after all.
    return torch.logsumexp(torch.stack([checkpoint(part, p, some, use_reentrant=False) for some in parts]), dim=0)


@dataclass(kw_only=True, eq=False, repr=False)
class UnionNet(Learner):
    """All annotators as one: a vote is one of the M K pairs of annotator and label.

    Parameters
    ----------
    variant
        ``"B"``: a distribution over the pairs for each class, mixed by the network. ``"A"``: free weights, and one
        softmax over the pairs after them (its cost grows with items x annotators).
    """

    key: ClassVar[str] = "unionnet"
    variant: str = "B"

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return Union(votes.n_annotators, votes.n_classes, self.variant)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self, "variant", VARIANTS)
