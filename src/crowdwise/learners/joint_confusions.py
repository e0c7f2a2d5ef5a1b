"""Network and annotators learned together, by the likelihood of the votes.

The network predicts f(x), a distribution over the classes; annotator m turns it into a distribution over labels with
a confusion matrix, and both are trained to maximise the likelihood of the votes:

    P(m says l | x) = sum_k f(x)[k] theta[m, k, l]          loss = - mean over votes of log P(l | x, m)

Many pairs (f, theta) explain the votes equally well; the methods differ in which of them they prefer (references:
docs/learners-joint.md).

================  =====================================================================================
``ccem``          none: what training finds from where theta starts
``trace``         the theta with the smallest trace, so that f is as sharp as the votes allow
``geocrowdnet-f`` the f whose predictions span the largest volume over the items: - weight * log det F'F
``geocrowdnet-w`` the theta that span the largest volume over the annotators: - weight * log det W'W
``coinnet``       that of ``geocrowdnet-f``, and votes that no matrix explains have a vector of their own
================  =====================================================================================

==================  ===========  ===========  ======================================================================
symbol              code         shape        equation
==================  ===========  ===========  ======================================================================
f(x)                ``log_f``    B x K        softmax of the network
theta[m, k, l]      ``rho``      M x K x K    row-softmax (or row-normalised softplus) of rho
F'F                              K x K        mean over items of f f'
W'W                              K x K        mean over annotators of theta[m] theta[m]'
e[n, m, :]          ``e``        S x K        coinnet: a row for every *observed* vote, less its mean: sums to zero
s[n]                ``scores``   N            coinnet: the item's outlier score, sum over its votes of |e[n, m, :]|^2
==================  ===========  ===========  ======================================================================

On some items (an image upside down, two objects in one) votes do not follow the matrices. In ``coinnet`` the vector of
a vote is added to its distribution, and a sparse penalty limits the vectors to the items that need them:

    q = sum_k f(x_n)[k] theta[m, k, :] + e[n, m, :],   clipped to probabilities
    loss = - mean over votes of log q[l]  +  outliers * mean over items of ( s[n] + 1e-10 )^(power / 2)
           - weight * log det F'F
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.constraints import Bounds, NonNegative, Positive, declared
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.devices import as_array, columns, entries, log_softmax
from crowdwise.learners.head import FLOOR, AnnotatorTerms, Head
from crowdwise.learners.learner import Learner
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch, rows_of, used_items, vote_places

DIAGONAL = 1.0
"""Where the free numbers on the diagonal of an annotator's matrix start in a plain head; those off it start at 0."""

RIGHT = 0.9
"""The probability of a right label with which learners let annotators start. At a diagonal of 1, which is 0.23 in ten
classes, the network learns the confusions of the crowd instead of the classes."""

RIDGE = 1e-3
"""Added to the K x K matrix whose volume is taken, in units of that of a perfect crowd: keeps its gradient finite."""

REACH = 1.0
"""The largest gradient of the volume, in units of that of the votes."""

WAIT, GROW = 0.2, 0.6
"""The volume is left out for the first fifth of training and has its full weight from three fifths on."""


class Confusions(AnnotatorTerms):
    """theta[m, k, l] as free parameters, trained by the likelihood of the votes."""

    def __init__(self, n_annotators: int, n_classes: int, rho: Tensor, softplus: bool = False) -> None:
        super().__init__(n_annotators, n_classes)
        self.softplus, self.first = softplus, float(rho.flatten()[0])
        self.rho = nn.Parameter(rho.expand(n_annotators, n_classes, n_classes).clone())

    def log_theta(self, rho: Tensor) -> Tensor:
        """Rows of log probabilities from rows of free numbers."""
        if not self.softplus:
            return log_softmax(rho, dim=2)
        positive = functional.softplus(rho)
        return positive.log() - positive.sum(dim=2, keepdim=True).log()

    def confusion(self) -> Tensor:
        return self.log_theta(self.rho).exp()

    def vote_log_probs(self, batch: Batch) -> Tensor:
        if bool((batch.annotator >= self.n_annotators).any()):  # unseen annotators answer like the crowd
            return super().vote_log_probs(batch)
        column = columns(self.log_theta(self.rho.index_select(0, batch.annotator)), batch.label)
        return torch.logsumexp(batch.log_f.index_select(0, batch.row) + column, dim=1)

    def loss(self, batch: Batch) -> Tensor:
        fit = losses.mixture(batch, self.vote_rho(batch), self.norm(batch), softplus=self.softplus)
        return losses.annotator_loss(batch, fit, self.rho)

    def vote_rho(self, batch: Batch) -> Tensor:
        """E x K x K: rho of each vote's annotator."""
        return self.rho.detach().index_select(0, batch.annotator)

    def norm(self, batch: Batch) -> Tensor | float:
        """What the sum over the batch's votes is divided by."""
        return batch.total_weight


def identity(n_classes: int, high: float = 1.0, low: float = 0.0) -> Tensor:
    """1 x K x K: where theta starts, ``high`` on the diagonal and ``low`` off it."""
    return (torch.eye(n_classes) * (high - low) + low)[None]


def first_diagonal(diagonal: float | None, n_classes: int) -> float:
    """The setting, or where an annotator is right with probability ``RIGHT``."""
    return math.log(RIGHT * (n_classes - 1) / (1.0 - RIGHT)) if diagonal is None else diagonal


@declared
class CCEM(Learner):
    """Coupled cross-entropy: a confusion matrix per annotator after the network.

    Parameters
    ----------
    diagonal
        Where the free numbers on the diagonal of an annotator's matrix start; those off it start at 0. By default where
        an annotator is right with probability 0.9: at 4.4 in ten classes. At 1 it is 0.23 there.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=5, n_items=300, votes_per_item=3, random_state=0)
    >>> learner = CCEM(epochs=10, random_state=0).fit(crowd.features["x_train"], crowd.votes)
    >>> learner.confusion_.shape
    (5, 10, 10)
    """

    key: ClassVar[str] = "ccem"
    diagonal: Positive | None = None

    def _head(self, votes: Votes, hidden: int) -> Head:
        K = votes.n_classes
        return Confusions(votes.n_annotators, K, identity(K, first_diagonal(self.diagonal, K)))


class Traced(Confusions):
    """The likelihood plus ``weight`` times the traces.

    The paper adds the traces to the sum of the cross-entropies of an item's votes. The loss here has their mean, so the
    traces are divided by the number of votes per item as well.
    """

    def __init__(self, n_annotators: int, n_classes: int, weight: float, reduce: str) -> None:
        super().__init__(n_annotators, n_classes, identity(n_classes, 1.0, -5.0), softplus=True)
        self.weight, self.reduce, self.votes_per_item = weight, reduce, 1.0

    def start(self, votes: Votes) -> None:
        super().start(votes)
        self.votes_per_item = votes.weights.sum() / max(int(used_items(votes).sum()), 1)

    def loss(self, batch: Batch) -> Tensor:
        each = self.weight / self.votes_per_item / (1.0 if self.reduce == "sum" else self.n_annotators)
        if self.many:
            trace = each * self.term_weights(batch)
            fit = losses.mixture(batch, self.vote_rho(batch), self.norm(batch), softplus=True, trace=trace)
            return losses.annotator_loss(batch, fit, self.rho)
        positive = functional.softplus(self.rho)
        return super().loss(batch) + each * (positive.diagonal(dim1=1, dim2=2) / positive.sum(dim=2)).sum()


@declared
class TraceRegularised(Learner):
    """Confusion matrices with the smallest trace that explain the votes.

    Parameters
    ----------
    weight
        The weight of the trace beside the cross-entropy of an item's votes, summed.
    reduce
        ``"mean"`` or ``"sum"`` of the annotators' traces. The paper writes the sum, its code takes the mean; with
        many annotators the sum dominates the likelihood.
    """

    key: ClassVar[str] = "trace"
    weight: NonNegative = 0.01
    reduce: Literal["mean", "sum"] = "mean"

    def _head(self, votes: Votes, hidden: int) -> Head:
        return Traced(votes.n_annotators, votes.n_classes, self.weight, self.reduce)


class Volume(Confusions):
    """The likelihood minus ``weight`` times the log-volume of the network's predictions, or of the confusion matrices.

    The volume chooses among solutions that explain the votes equally well, so it must neither act before the votes nor
    outweigh them: while the network's predictions are still nearly uniform, the volume is smallest, its gradient the
    largest, and the classes it would spread the items over have no meaning yet. With a ``guard`` its weight is zero at
    first and then grows (``WAIT``, ``GROW``), and its gradient at the logits (or at rho) is limited to ``REACH`` times
    that of the votes. ``steps`` counts the steps with a volume, ``limited`` those in which its gradient was limited.
    """

    def __init__(
        self, n_annotators: int, n_classes: int, weight: float, of: str, guard: bool, diagonal: float = DIAGONAL
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes, identity(n_classes, diagonal))
        self.weight, self.of, self.guard = weight, of, guard
        self.steps = 0
        self.limited: Tensor | int = 0

    def loss(self, batch: Batch) -> Tensor:
        strength = self.weight
        if self.guard:
            strength *= min(1.0, max(0.0, (self.progress - WAIT) / (GROW - WAIT)))
        fit = self.fit(batch, keep=strength > 0.0 and self.of == "annotators" and self.many)
        rows = losses.GradientRows(fit.rows, batch.annotator, self.rho.shape)
        rho: Tensor | losses.GradientRows = rows
        if strength > 0.0:
            volume, of_volume = self.log_volume(batch, fit)
            of_votes = fit.logits
            if self.of == "annotators":
                of_votes = rho = rows.dense()
            share: Tensor | float = strength
            if self.guard:
                most = REACH * of_votes.norm() / of_volume.norm().clamp_min(1e-20)
                self.steps, self.limited = self.steps + 1, self.limited + (most < strength)
                share = most.clamp_max(strength)
            fit.value = fit.value - share * volume
            of_votes.sub_(share * of_volume)
        return losses.with_gradients(fit.value, (batch.logits, fit.logits), (self.rho, rho), *self.more_gradients())

    def fit(self, batch: Batch, keep: bool) -> losses.VoteLoss:
        """The likelihood of the votes, with its gradients."""
        return losses.mixture(batch, self.vote_rho(batch), self.norm(batch), keep=keep)

    def more_gradients(self) -> list[tuple[Tensor, Tensor]]:
        """At further parameters, from the last :meth:`fit`."""
        return []

    def log_volume(self, batch: Batch, fit: losses.VoteLoss) -> tuple[Tensor, Tensor]:
        """log det of the K x K matrix, which is 0 for certain predictions and equally frequent classes.

        The second is its gradient, at the logits or at rho. Of a large crowd the matrix is that of the batch's votes,
        with equal weight for each annotator.
        """
        K = self.n_classes
        if self.of == "network":
            size = (K / len(fit.f)) ** 0.5
            volume, grad = losses.log_volume(size * fit.f, RIDGE)
            return volume, losses.through_softmax(fit.f, size * grad)
        if fit.theta is None:
            theta, share = torch.softmax(self.rho.detach(), dim=2), self.rho.new_full((1, 1, 1), 1 / self.n_annotators)
        else:
            theta, share = fit.theta, self.term_weights(batch)[:, None, None]
            share = share / share.sum().clamp_min(1e-12)
        size = share.sqrt()
        # Columns of all matrices, n K x K: their outer products add up to those of the matrices with themselves.
        volume, grad = losses.log_volume((size * theta).transpose(1, 2).reshape(-1, K), RIDGE)
        grad = size * grad.reshape(-1, K, K).transpose(1, 2)
        inner = theta * grad
        grad = inner - theta * inner.sum(dim=2, keepdim=True)
        return volume, grad if fit.theta is None else losses.GradientRows(grad, batch.annotator, self.rho.shape).dense()


@declared
class GeoCrowdNetF(Learner):
    """Coupled cross-entropy with the network's predictions spread as widely as the votes allow.

    Parameters
    ----------
    weight
        The weight of the log-volume.
    guard
        Phase the volume in after the votes, and limit its gradient to theirs. Without it a weight of 0.03 ruins sparse
        ten-class data.
    weight_decay
        Of the network: the volume also makes it more confident of what it has memorised.
    diagonal
        Where the free numbers on the diagonal of an annotator's matrix start, as in ``ccem``.
    """

    key: ClassVar[str] = "geocrowdnet-f"
    weight_decay: NonNegative = 1e-2
    weight: NonNegative = 0.03
    guard: bool = True
    diagonal: Positive | None = None
    _of: ClassVar[str] = "network"

    def _head(self, votes: Votes, hidden: int) -> Head:
        diagonal = first_diagonal(self.diagonal, votes.n_classes)
        return Volume(votes.n_annotators, votes.n_classes, self.weight, self._of, self.guard, diagonal)


@declared
class GeoCrowdNetW(GeoCrowdNetF):
    """Coupled cross-entropy with confusion matrices spread as widely as the votes allow."""

    key: ClassVar[str] = "geocrowdnet-w"
    weight_decay: NonNegative = 1e-4
    weight: NonNegative = 0.01
    _of: ClassVar[str] = "annotators"


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
        return entries(q, batch.label).log() - q.sum(dim=1).log()

    def fit(self, batch: Batch, keep: bool) -> losses.VoteLoss:
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
        at_label, sums, c = q[vote, batch.label], q.sum(dim=1), batch.weight / -self.norm(batch)
        g = (-c / sums)[:, None].repeat(1, q.shape[1])
        g[vote, batch.label] += c / at_label
        g *= q == free
        back = losses.unmix(theta, g)
        squares, power = batch.weight * (e * e).sum(dim=1), 0.5 * self.power
        scores = squares.new_zeros(len(batch)).index_add_(0, batch.row, squares) + FLOOR
        value = (c * (at_label / sums).log()).sum() + self.outliers * (scores**power).mean()
        slope = 2.0 * self.outliers * power / len(batch) * scores ** (power - 1.0)
        own = g + (slope[batch.row] * batch.weight)[:, None] * e
        self._own = at, own - own.mean(dim=1, keepdim=True)
        rows = theta * mine[:, :, None] * (g[:, None, :] - back[:, :, None])
        return losses.VoteLoss(value, losses.through_softmax(f, batch.total(back)), rows, f)

    def more_gradients(self) -> list[tuple[Tensor, Tensor]]:
        """At the vectors of the batch's votes."""
        return [(self.e, torch.zeros_like(self.e, requires_grad=False).index_copy_(0, *self._own))]

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
        head = self._fitted_head
        return {"item_columns": {"outlier": as_array(head.scores(trainer.edges.weight.to(head.e.dtype)))}}
