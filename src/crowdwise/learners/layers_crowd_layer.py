"""A layer for each annotator after the network: the crowd layer, and one whose weights are probabilities.

The network predicts p = f(x), K class probabilities; the annotator's layer turns them into probabilities of labels.
Where :mod:`crowdwise.learners.joint_confusions` multiplies p by probabilities, most layers here multiply it by free
weights and take a softmax after that, so their parameters are no confusion matrices.

=============== ==================================================================================================
``crowd-layer`` P(m says . | x) = softmax_l( sum_k p[k] W[m, k, l] ), or a vector of weights or biases instead of W
``conal``       the same with common and own weights, in :mod:`crowdwise.learners.layers_conal`
``crowd-ar``    the crowd layer with blurred votes, in :mod:`crowdwise.learners.layers_crowd_ar`
``unionnet``    all annotators as one, in :mod:`crowdwise.learners.layers_unionnet`
``speelfc``     P(m says l | x) = sum_k p[k] theta[m, k, l], theta a row-softmax: probabilities again
=============== ==================================================================================================

==================  ===================  ============  ==========================================================
symbol              code                 shape         equation
==================  ===================  ============  ==========================================================
p                   ``log_f``            B x K         softmax of the network
W[m, k, l]          ``W``                M x K x K     starts as ``diagonal`` times the identity
w[m, k], b[m, l]    ``w``, ``b``         M x K         start as ``diagonal`` and 0
==================  ===================  ============  ==========================================================

Confusion matrices follow from free weights: row k of an annotator's matrix is the layer's output where the network is
certain of class k, the softmax over labels of W[m, k, :]. Since p never leaves the simplex, these rows are as sharp as
the weights are large: at the start of a diagonal of 1 the right label has only e : 1 against each of the others.

References: F. Rodrigues and F. Pereira, Deep learning from crowds, AAAI 2018. Z. Chen et al., Structured probabilistic
end-to-end learning from crowds, IJCAI 2020.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from crowdwise.core.constraints import Bounds, Positive
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.head import Head
from crowdwise.learners.joint_confusions import DIAGONAL, Confusions, first_diagonal, identity
from crowdwise.learners.learner import Learner
from crowdwise.learners.tensors import log_softmax
from crowdwise.learners.vote_edges import Batch

Kind = Literal["MW", "VW", "VB", "VW+B"]


class Layer(Head):
    """Free weights from classes to labels, and a softmax over the labels after them."""

    @abstractmethod
    def weights(self, batch: Batch, annotator: Tensor) -> Tensor:
        """E x K x K: what each class adds to each label, for every vote of the batch."""

    @abstractmethod
    def table(self) -> Tensor:
        """M x K x K: the weights of every annotator, where no particular input is looked at."""

    def confusion(self) -> Tensor:
        """The layers' output where the network is certain: a softmax over labels of each class's weights."""
        return log_softmax(self.table(), dim=2).exp()

    def label_log_probs(self, batch: Batch) -> Tensor:
        """E x K: log probabilities of all labels that the annotator of each vote could have given."""
        return log_softmax(self.mixed(batch, batch.log_f.exp(), self.known_codes(batch)), dim=1)

    def mixed(self, batch: Batch, p: Tensor, annotator: Tensor) -> Tensor:
        """E x K: sum_k p[k] W[k, l] with the weights of each vote."""
        return torch.einsum("ek,ekl->el", p.index_select(0, batch.row), self.weights(batch, annotator))

    def vote_log_probs(self, batch: Batch) -> Tensor:
        found = self.label_log_probs(batch).gather(1, batch.label[:, None])[:, 0]
        return self.or_unseen(batch, found, lambda: super(Layer, self).vote_log_probs(batch))

    def loss(self, batch: Batch) -> Tensor:
        return batch.item_mean(-self.vote_log_probs(batch))


class CrowdWeights(Layer):
    """The weights of each annotator: a matrix (MW), a vector (VW), a bias (VB) or the last two (VW+B)."""

    def __init__(self, n_annotators: int, n_classes: int, kind: str = "MW", diagonal: float = DIAGONAL) -> None:
        super().__init__(n_annotators, n_classes)
        self.kind, self.diagonal = kind, diagonal
        M, K = n_annotators, n_classes
        self.W = nn.Parameter(identity(K, diagonal).expand(M, K, K).clone()) if kind == "MW" else None
        self.w = nn.Parameter(torch.full((M, K), diagonal)) if kind.startswith("VW") else None
        self.b = nn.Parameter(torch.zeros(M, K)) if kind.endswith("B") else None

    def weights(self, batch: Batch, annotator: Tensor) -> Tensor:
        return self._weights(annotator)

    def table(self) -> Tensor:
        return self._weights(slice(None))

    def mixed(self, batch: Batch, p: Tensor, annotator: Tensor) -> Tensor:
        if self.W is None:
            return super().mixed(batch, p, annotator)
        return losses.mix(p.index_select(0, batch.row), self.W.index_select(0, annotator))

    def loss(self, batch: Batch) -> Tensor:
        if self.W is None:
            return super().loss(batch)
        return losses.annotator_loss(batch, losses.layer(batch, self.W, len(batch)), self.W)

    def _weights(self, annotator: Tensor | slice) -> Tensor:
        if self.W is not None:
            return self.W[annotator]
        # p + b is linear in p as well, because p sums to one: b is added to the weights of every class.
        if self.w is None:
            assert self.b is not None
            b = self.b[annotator]
            return self.diagonal * torch.eye(self.n_classes, dtype=b.dtype, device=b.device) + b[:, None, :]
        table = torch.diag_embed(self.w[annotator])
        return table if self.b is None else table + self.b[annotator][:, None, :]


@declared
class CrowdLayer(Learner):
    """The crowd layer: free weights for each annotator after the network, and a softmax after them.

    ``confusion_`` is the table of probabilities that the weights imply: the softmax over labels of W[m, k, :], the
    layer's output where the network is certain of class k. The weights themselves are no probabilities.

    Parameters
    ----------
    kind
        What an annotator has: ``"MW"`` a K x K matrix, ``"VW"`` a weight per class, ``"VB"`` a bias per label,
        ``"VW+B"`` both of these.
    diagonal
        Where the weights from a class to the label of that class start; all others start at 0. By default where an
        annotator is right with probability 0.9: at 4.4 in ten classes. At 1, the default of vectors and biases, it is
        0.23 there. Of biases alone it never changes.
    """

    key: ClassVar[str] = "crowd-layer"
    kind: Kind = "MW"
    diagonal: Positive | None = None

    def _head(self, votes: Votes, hidden: int) -> Head:
        given = DIAGONAL if self.diagonal is None and self.kind != "MW" else self.diagonal
        diagonal = first_diagonal(given, votes.n_classes)
        return CrowdWeights(votes.n_annotators, votes.n_classes, self.kind, diagonal)


class Transitions(Confusions):
    """Confusion matrices trained by the likelihood of the votes, summed over an item's votes as in the crowd layer."""

    def norm(self, batch: Batch) -> Tensor | float:
        return float(len(batch))


@declared
class SpeeLFC(Learner):
    """The crowd layer with probabilities as weights: its matrices are the row-softmax of free numbers.

    Parameters
    ----------
    diagonal
        Where the free numbers of the diagonal start; those off it start at 1. At 1 all labels start equally probable;
        the larger it is the more accurate the annotators are at first.
    """

    key: ClassVar[str] = "speelfc"
    diagonal: Annotated[float, Bounds(above=1)] = 3.0

    def _head(self, votes: Votes, hidden: int) -> Head:
        return Transitions(votes.n_annotators, votes.n_classes, identity(votes.n_classes, self.diagonal, 1.0))
