"""COINNet: confusion matrices for most votes, and a vector for each of the few votes that they cannot explain.

Annotators confuse classes by their matrices, but on some items (an image upside down, two objects in one) votes do not
follow the matrices. Every vote has a vector that is added to its distribution, and a sparse penalty limits the vectors
to the items that need them:

    q = sum_k f(x_n)[k] theta[m, k, :] + e[n, m, :],   clipped to probabilities
    loss = - mean over votes of log q[l]  +  outliers * mean over items of ( s[n] + 1e-10 )^(power / 2)
           - weight * log det F'F,            s[n] = sum over votes of the item of |e[n, m, :]|^2

==================  ===========  ===========  ======================================================================
symbol              code         shape        equation
==================  ===========  ===========  ======================================================================
f(x)                ``log_f``    B x K        softmax of the network
theta[m, k, l]      ``rho``      M x K x K    row-softmax of rho, which starts with a large diagonal
e[n, m, :]          ``e``        S x K        a row for every *observed* vote, taken minus its mean: sums to zero
s[n]                ``scores``   N            the item's outlier score
F'F                              K x K        mean over items of f f', as in ``geocrowdnet-f``
==================  ===========  ===========  ======================================================================

Reference: T. Nguyen, S. Ibrahim and X. Fu, Noisy label learning with instance-dependent outliers: identifiability via
crowd wisdom, NeurIPS 2024.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core.constraints import Bounds, NonNegative
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.head import FLOOR, Head
from crowdwise.learners.joint_confusions import DIAGONAL, GeoCrowdNetF, Volume, first_diagonal
from crowdwise.learners.tensors import as_array, log_softmax
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch, rows_of, vote_places


class Outliers(Volume):
    """Confusion matrices, a volume, and a vector for every vote that is trained on.

    Like dropout, the vectors act in training only: held-out votes have none, so their likelihood and the posterior
    follow from the matrices alone.
    """

    indptr: Tensor
    _own: tuple[Tensor, Tensor]
    """Which votes those of the last batch are, and the gradient at their vectors."""

    def __init__(
        self, votes: Votes, weight: float, guard: bool, outliers: float, power: float, diagonal: float = DIAGONAL
    ) -> None:
        super().__init__(votes.n_annotators, votes.n_classes, weight, "network", guard, diagonal)
        self.outliers, self.power = outliers, power
        self.e = nn.Parameter(torch.zeros(votes.n_votes, votes.n_classes))
        self.register_buffer("indptr", torch.as_tensor(np.array(votes.indptr), dtype=torch.int64))

    def slow_parameters(self) -> list[nn.Parameter]:
        return [self.e]  # vectors that learn faster than the network explain the votes before it does

    def places(self, batch: Batch) -> Tensor:
        """E: which of all votes trained on those of a training batch are."""
        return vote_places(self.indptr, batch.index, len(batch.row))[1]

    def vectors(self, at: Tensor | slice = slice(None)) -> Tensor:
        """The vectors of some votes, each of which sums to zero."""
        e = self.e[at]
        return e - e.mean(dim=1, keepdim=True)

    def vote_log_probs(self, batch: Batch) -> Tensor:
        if not self.training:
            return super().vote_log_probs(batch)
        theta = self.log_theta(self.rho.index_select(0, batch.annotator)).exp()
        q = torch.einsum("ek,ekl->el", batch.log_f.exp()[batch.row], theta) + self.vectors(self.places(batch))
        q = q.clamp(FLOOR, 1.0 - FLOOR)
        said = q.gather(1, batch.label[:, None])[:, 0]
        return said.log() - q.sum(dim=1).log()

    def fit(self, batch: Batch, keep: bool) -> losses.Mixture:
        """Likelihood and penalty of a batch, with their gradients, as in :mod:`crowdwise.learners.losses`.

        With g the gradient at q (zero where q was clipped), that at f[k] is theta[k] . g, that at rho[k, l] is
        f[k] theta[k, l] ( g[l] - theta[k] . g ), and that at a vector is g and the penalty's share, less their mean.
        """
        at = self.places(batch)
        e = self.vectors(at).detach()
        theta = losses.softmax_rows(self.vote_rho(batch))
        f = log_softmax(batch.logits.detach(), dim=1).exp_()
        mine = f.index_select(0, batch.row)
        free = losses.mix(mine, theta) + e
        q = free.clamp(FLOOR, 1.0 - FLOOR)
        vote = torch.arange(len(batch.row), device=q.device)
        said, sums, c = q[vote, batch.label], q.sum(dim=1), batch.weight / -self.norm(batch)
        g = (-c / sums)[:, None].repeat(1, q.shape[1])
        g[vote, batch.label] += c / said
        g *= q == free
        back = losses.unmix(theta, g)
        squares, power = batch.weight * (e * e).sum(dim=1), 0.5 * self.power
        scores = squares.new_zeros(len(batch)).index_add_(0, batch.row, squares) + FLOOR
        value = (c * (said / sums).log()).sum() + self.outliers * (scores**power).mean()
        slope = 2.0 * self.outliers * power / len(batch) * scores ** (power - 1.0)
        own = g + (slope[batch.row] * batch.weight)[:, None] * e
        self._own = at, own - own.mean(dim=1, keepdim=True)
        rows = theta * mine[:, :, None] * (g[:, None, :] - back[:, :, None])
        return losses.Mixture(value, losses.through_softmax(f, batch.total(back)), rows, f)

    def total(self, fit: losses.Mixture, *gradients: tuple[Tensor, Tensor | losses.GradientRows]) -> Tensor:
        """The loss, with the volume and the gradient at the vectors of the batch's votes in it."""
        e = torch.zeros_like(self.e, requires_grad=False).index_copy_(0, *self._own)
        return losses.with_gradients(fit.value, *gradients, (self.e, e))

    def scores(self, weight: Tensor) -> Tensor:
        """N: the sum over each item's votes of the squared length of their vectors, each times the vote's weight."""
        e = self.vectors().detach()
        item = rows_of(self.indptr[1:] - self.indptr[:-1])
        return e.new_zeros(len(self.indptr) - 1).index_add(0, item, weight * (e * e).sum(dim=1))


@declared
class COINNet(GeoCrowdNetF):
    """Confusion matrices, and a sparse term for votes that no matrix explains, which ranks the items with such votes.

    The consensus has the item column ``outlier``, s[n]: sort by it, largest first, to find problems in the data.

    Parameters
    ----------
    outliers
        The weight of the penalty on the votes' vectors.
    power
        An item's penalty is the length of its vectors to this power; the lower, the sparser the outliers.
    weight_decay
        Of the network.
    vector_decay
        The weight decay of the votes' vectors; by default that of the network.
    """

    key: ClassVar[str] = "coinnet"
    weight_decay: NonNegative = 1e-4
    outliers: NonNegative = 0.01
    power: Annotated[float, Bounds(above=0, maximum=2)] = 0.4
    vector_decay: NonNegative | None = None

    def _head(self, votes: Votes, hidden: int) -> Head:
        diagonal = first_diagonal(self.diagonal, votes.n_classes)
        head = Outliers(votes, self.weight, self.guard, self.outliers, self.power, diagonal)
        head.slow_weight_decay = self.vector_decay
        return head

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        head = self._head_as(Outliers)
        scores = head.scores(trainer.edges.weight.to(head.e.dtype))
        return {"item_columns": {"outlier": as_array(scores)}}
