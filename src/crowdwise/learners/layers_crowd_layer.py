"""A layer for each annotator after the network: the crowd layer, kept to probabilities, and with a common one.

The network says p = f(x), K class probabilities; the annotator's layer makes of them what this annotator would answer.
Where :mod:`crowdwise.learners.joint_confusions` multiplies p by probabilities, most layers here multiply it by free
weights and take a softmax after that, so their parameters are no confusion matrices.

=============== ==================================================================================================
``crowd-layer`` P(m says . | x) = softmax_l( sum_k p[k] W[m, k, l] ), or a vector of weights or biases instead of W
``conal``       the same with W[n, m] = w C + (1 - w) C[m]: a common C, own ones, and a gate w(x, m) between them
``crowd-ar``    the crowd layer with blurred votes, in :mod:`crowdwise.learners.layers_crowd_ar`
``unionnet``    all annotators as one, in :mod:`crowdwise.learners.layers_unionnet`
``speelfc``     P(m says l | x) = sum_k p[k] theta[m, k, l], theta a row-softmax: probabilities again
=============== ==================================================================================================

==================  ===================  ============  ==========================================================
symbol              code                 shape         equation
==================  ===================  ============  ==========================================================
p                   ``log_f``            B x K         softmax of the network
W[m, k, l]          ``W``                M x K x K     starts as the identity (twice the identity in ``conal``)
w[m, k], b[m, l]    ``w``, ``b``         M x K         start as 1 and 0
C[k, l]             ``common``           K x K         starts as twice the identity
w(x, m)             ``gate``             one per vote  sigmoid of the cosine between embeddings of x and m
==================  ===================  ============  ==========================================================

Free weights are turned into tables of probabilities where those are asked for: row k of an annotator's confusion
matrix is what the layer answers when the network is certain of class k, that is the softmax over labels of W[m, k, :].
Since p never leaves the simplex, these rows are as sharp as the weights are large, and the identity at the start says
only e : 1 for the diagonal.

When they fail: with free weights and many classes or few votes per annotator the layers can exchange classes among
themselves (the network's class 3 is then the votes' class 5); and where annotators err together the network learns
their common error, which only ``conal`` has a place for.

References: F. Rodrigues and F. Pereira, Deep learning from crowds, AAAI 2018. Z. Chen et al., Structured probabilistic
end-to-end learning from crowds, IJCAI 2020. Z. Chu, J. Ma and H. Wang, Learning from crowds by modeling common
confusions, AAAI 2021.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.checks import check_choice, check_count, check_number
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.head import Census, Head, Predict
from crowdwise.learners.joint_confusions import Confusions, identity
from crowdwise.learners.learner import Learner
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch, log_softmax

KINDS = ("MW", "VW", "VB", "VW+B")
WIDTH = 128
"""Of the one hidden layer between the network's hidden vector and an embedding or a difficulty, as in the papers."""


# -------------------------------------------------------------------- free weights


class Layer(Head):
    """Free weights from classes to labels, and a softmax over the labels after them."""

    @abstractmethod
    def weights(self, batch: Batch, annotator: Tensor) -> Tensor:
        """E x K x K: what each class adds to each label, for every vote of the batch."""

    @abstractmethod
    def table(self) -> Tensor:
        """M x K x K: the weights of every annotator, where no particular input is looked at."""

    def confusion(self) -> Tensor:
        """What the layers answer where the network is certain: a softmax over labels of each class's weights."""
        return log_softmax(self.table(), dim=2).exp()

    def answers(self, batch: Batch) -> Tensor:
        """E x K: log probabilities of all labels that the annotator of each vote could have given."""
        known = batch.annotator.clamp_max(self.n_annotators - 1)
        return log_softmax(self.mixed(batch, batch.log_f.exp(), known), dim=1)

    def mixed(self, batch: Batch, p: Tensor, annotator: Tensor) -> Tensor:
        """E x K: sum_k p[k] W[k, l] with the weights of each vote."""
        return torch.einsum("ek,ekl->el", p.index_select(0, batch.row), self.weights(batch, annotator))

    def vote_log_probs(self, batch: Batch) -> Tensor:
        found = self.answers(batch).gather(1, batch.label[:, None])[:, 0]
        strangers = batch.annotator >= self.n_annotators
        if bool(strangers.any()):  # they answer as the crowd
            found = torch.where(strangers, super().vote_log_probs(batch), found)
        return found

    def loss(self, batch: Batch) -> Tensor:
        return summed(batch, -self.vote_log_probs(batch))


def summed(batch: Batch, value: Tensor) -> Tensor:
    """One number per vote, summed over an item's votes and averaged over the items."""
    return (batch.weight * value).sum() / len(batch)


class CrowdWeights(Layer):
    """The weights of each annotator: a matrix (MW), a vector (VW), a bias (VB) or the last two (VW+B)."""

    def __init__(self, n_annotators: int, n_classes: int, kind: str = "MW") -> None:
        super().__init__(n_annotators, n_classes)
        self.kind = kind
        M, K = n_annotators, n_classes
        self.W = nn.Parameter(identity(K).expand(M, K, K).clone()) if kind == "MW" else None
        self.w = nn.Parameter(torch.ones(M, K)) if kind.startswith("VW") else None
        self.b = nn.Parameter(torch.zeros(M, K)) if kind.endswith("B") else None

    def weights(self, batch: Batch, annotator: Tensor) -> Tensor:
        return self._weights(annotator)

    def table(self) -> Tensor:
        return self._weights(slice(None))

    def mixed(self, batch: Batch, p: Tensor, annotator: Tensor) -> Tensor:
        if self.W is None:
            return super().mixed(batch, p, annotator)
        return losses.mixed(p, self.W, batch.row, annotator)

    def loss(self, batch: Batch) -> Tensor:
        if self.W is None:
            return super().loss(batch)
        fit = losses.layer(batch, self.W, len(batch))
        W = losses.Rows(fit.rows, batch.annotator, self.W.shape)
        return losses.known(fit.value, (batch.logits, fit.logits), (self.W, W))

    def _weights(self, annotator: Tensor | slice) -> Tensor:
        if self.W is not None:
            return self.W[annotator]
        # p + b is linear in p as well, because p sums to one: b is added to the weights of every class.
        if self.w is None:
            assert self.b is not None
            b = self.b[annotator]
            return torch.eye(self.n_classes, dtype=b.dtype, device=b.device) + b[:, None, :]
        table = torch.diag_embed(self.w[annotator])
        return table if self.b is None else table + self.b[annotator][:, None, :]


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdLayer(Learner):
    """The crowd layer: free weights for each annotator after the network, and a softmax after them.

    ``confusion_`` is the table of probabilities that the weights imply: the softmax over labels of W[m, k, :], which is
    what the layer answers where the network is certain of class k. The weights themselves are no probabilities.

    Parameters
    ----------
    kind
        What an annotator has: ``"MW"`` a K x K matrix, ``"VW"`` a weight per class, ``"VB"`` a bias per label,
        ``"VW+B"`` both of these.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=5, n_items=300, votes_per_item=3, random_state=0)
    >>> learner = CrowdLayer(epochs=10, random_state=0).fit(crowd.features["x_train"], crowd.votes)
    >>> learner.confusion_.shape
    (5, 10, 10)
    """

    key: ClassVar[str] = "crowd-layer"
    kind: str = "MW"

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return CrowdWeights(votes.n_annotators, votes.n_classes, self.kind)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self, "kind", KINDS)


# -------------------------------------------------------------------- probabilities


class Transitions(Confusions):
    """Confusion matrices trained by the likelihood of the votes, summed over an item's votes as in the crowd layer."""

    def norm(self, batch: Batch) -> Tensor | float:
        return float(len(batch))


@dataclass(kw_only=True, eq=False, repr=False)
class SpeeLFC(Learner):
    """The crowd layer kept to probabilities: its matrices are the row-softmax of free numbers, from their own start.

    Parameters
    ----------
    diagonal
        Where the free numbers of the diagonal start; those off it start at 1. 1 says nothing, 2 is where ``ccem``
        starts, and the larger it is the more the annotators are trusted at first.
    """

    key: ClassVar[str] = "speelfc"
    diagonal: float = 3.0

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return Transitions(votes.n_annotators, votes.n_classes, identity(votes.n_classes, self.diagonal, 1.0))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self, "diagonal", above=1.0)


# -------------------------------------------------------------------- common noise


class CommonNoise(Census, Layer):
    """Weights common to all, weights of each annotator, and for every vote a gate between the two.

    The gate looks at the network's hidden vector without training the network by it. Its mean over an annotator's
    votes in the last epoch is kept: it says how much of the common noise is in the annotator's confusion matrix.
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

    def begin(self, epoch: int, predict: Predict) -> None:
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
        """The mixture of what either table answers, which is the answer of the mixed table."""
        own = losses.mixed(p, self.W, batch.row, annotator)
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
        found = losses.Answers.of(batch, self.W)
        shared = found.mine @ common
        said, p = losses.log_probs(torch.lerp(found.z, shared, w[:, None]), batch.label)
        c = batch.weight / -float(len(batch))
        g = losses.less(c, p, batch.label)
        through = w[:, None] * g
        fit = found.fit((c * said).sum(), g - through, batch.total(through @ common.T))
        at_gate = ((shared - found.z) * g).sum(dim=1)
        # The reward for being apart, whose gradient stays finite where all are alike, as at the start.
        apart = (found.rows if self.many else self.W.detach()) - common
        norm = ((apart * apart).sum(dim=(1, 2)) + 1e-12).sqrt()
        share = -self.weight * (self.stands_for(batch) if self.many else torch.ones_like(norm))
        grad = apart * (share / norm)[:, None, None]
        own: Tensor | losses.Rows = losses.Rows(
            fit.rows + grad if self.many else fit.rows, batch.annotator, self.W.shape
        )
        if isinstance(own, losses.Rows) and not self.many:
            own = own.dense() + grad
        return losses.known(
            fit.value + (share * norm).sum(),
            (batch.logits, fit.logits),
            (self.W, own),
            (self.common, found.mine.T @ through - grad.sum(dim=0)),
            (gate, at_gate),
        )

    def _log_columns(self, batch: Batch) -> Tensor:
        rows = log_softmax(self.weights(batch, batch.annotator.clamp_max(self.n_annotators - 1)), dim=2)
        columns = rows.gather(2, batch.label[:, None, None].expand(-1, self.n_classes, 1))[:, :, 0]
        strangers = batch.annotator >= self.n_annotators
        if bool(strangers.any()):
            columns = torch.where(strangers[:, None], super()._log_columns(batch), columns)
        return columns


@dataclass(kw_only=True, eq=False, repr=False)
class CoNAL(Learner):
    """Noise that is common to all annotators and noise of their own, mixed for each vote by a gate.

    ``confusion_`` mixes the two for each annotator as the gate does on average over their votes; forecasts use the gate
    of the very vote. The consensus has the annotator column ``common``, that average.

    Parameters
    ----------
    embedding
        Dimensions in which items and annotators meet: the gate is the sigmoid of their cosine.
    weight
        Of the reward for matrices that differ from the common one: the sum of the Frobenius norms.
    """

    key: ClassVar[str] = "conal"
    embedding: int = 20
    weight: float = 1e-5

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return CommonNoise(votes.n_annotators, votes.n_classes, hidden, self.embedding, self.weight)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count(self, "embedding")
        check_number(self, "weight", least=0.0)

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        assert isinstance(trainer.head, CommonNoise)
        return {"annotator_columns": {"common": trainer.head.mean_gate().double().cpu().numpy()}}
