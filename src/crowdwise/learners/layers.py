"""A layer for each annotator after the network, whose parameters are mostly no confusion matrices.

The network predicts p = f(x), K class probabilities; the annotator's layer turns them into probabilities of labels.
Where :mod:`crowdwise.learners.joint_confusions` multiplies p by probabilities, most layers here multiply it by free
weights and take a softmax after that (references: docs/learners-layers.md).

=============== ==================================================================================================
``crowd-layer`` P(m says . | x) = softmax_l( sum_k p[k] W[m, k, l] ), or a vector of weights or biases instead of W
``conal``       the same with W[n, m] = w C + (1 - w) C[m]: common and own noise, mixed for each vote by a gate
``crowd-ar``    the crowd layer with votes smoothed by reliability: target of a vote = r (its label) + (1 - r) / K;
                loss: mean over votes of share * cross-entropy with the target + (1 - share) * cross-entropy of r
                with 1(label = argmax p)
``unionnet``    all annotators as one, whose vote is one of M K pairs (m, l) of annotator and label:
                A: P(m, l | x) = softmax over all pairs of sum_k p[k] T[m, k, l]
                B: P(m, l | x) = sum_k p[k] softmax over all pairs of T[:, k, :]
                loss: - sum over an item's votes of log P(m, l | x), mean of items
``speelfc``     P(m says l | x) = sum_k p[k] theta[m, k, l], theta a row-softmax: probabilities again
=============== ==================================================================================================

==================  ===================  ============  ==========================================================
symbol              code                 shape         equation
==================  ===================  ============  ==========================================================
p                   ``log_f``            B x K         softmax of the network
W[m, k, l]          ``W``                M x K x K     starts as ``diagonal`` times the identity
w[m, k], b[m, l]    ``w``, ``b``         M x K         start as ``diagonal`` and 0
C[k, l], C[m]       ``common``, ``W``    K x K each    conal: start as twice the identity
w(x, m)             ``gate``             one per vote  conal: sigmoid of the cosine between embeddings of x and m
d(x), e[m]          ``difficulty``       K each        crowd-ar: sigmoid( V2 sigmoid(V1 h) ) of hidden vector h, free
r(x, m)             ``logit``            one per vote  crowd-ar: sigmoid( v'[(sigmoid(e[m]) - d(x)) p] + c ), v >= 0
T[m, k, l]          ``T``                M x K x K     unionnet: starts as ``diagonal`` times the identity
==================  ===================  ============  ==========================================================

Confusion matrices follow from free weights: row k of an annotator's matrix is the layer's output where the network is
certain of class k, the softmax over labels of W[m, k, :]. Since p never leaves the simplex, these rows are as sharp as
the weights are large: at the start of a diagonal of 1 the right label has only e : 1 against each of the others.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from crowdwise.core.constraints import Bounds, Count, NonNegative, Positive, declared
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.devices import as_array, columns, entries, log_softmax
from crowdwise.learners.head import AnnotatorTerms, Head, Predict
from crowdwise.learners.joint_confusions import DIAGONAL, Confusions, first_diagonal, identity
from crowdwise.learners.learner import Learner
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch

Kind = Literal["MW", "VW", "VB", "VW+B"]
WIDTH = 128
"""Of the one hidden layer between the network's hidden vector and an embedding or the difficulty, as in both papers."""


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

    def mixed(self, batch: Batch, p: Tensor, annotator: Tensor) -> Tensor:
        """E x K: sum_k p[k] W[k, l] with the weights of each vote."""
        return torch.einsum("ek,ekl->el", p.index_select(0, batch.row), self.weights(batch, annotator))

    def label_log_probs(self, batch: Batch) -> Tensor:
        """E x K: log probabilities of all labels that the annotator of each vote could have given."""
        return log_softmax(self.mixed(batch, batch.log_f.exp(), self.known_codes(batch)), dim=1)

    def vote_log_probs(self, batch: Batch) -> Tensor:
        known = entries(self.label_log_probs(batch), batch.label)
        return self.or_unseen(batch, known, lambda: super(Layer, self).vote_log_probs(batch))

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
    layer's output where the network is certain of class k. The weights themselves are not probabilities.

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
        plain = self.diagonal is None and self.kind != "MW"
        diagonal = DIAGONAL if plain else first_diagonal(self.diagonal, votes.n_classes)
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
        own = losses.Predictions.of(batch, self.W)
        shared = own.mine @ common
        log_p, p = losses.log_probs(torch.lerp(own.z, shared, w[:, None]), batch.label)
        c = batch.weight / -float(len(batch))
        g = losses.label_gradient(c, p, batch.label)
        through = w[:, None] * g
        fit = own.fit((c * log_p).sum(), g - through, batch.total(through @ common.T))
        at_gate = ((shared - own.z) * g).sum(dim=1)
        # The reward for distance from the common weights; its gradient stays finite where all are equal, as at first.
        apart = (own.rows if self.many else self.W.detach()) - common
        norm = ((apart * apart).sum(dim=(1, 2)) + 1e-12).sqrt()
        share = -self.weight * (self.term_weights(batch) if self.many else torch.ones_like(norm))
        grad = apart * (share / norm)[:, None, None]
        rows = losses.GradientRows(fit.rows + grad if self.many else fit.rows, batch.annotator, self.W.shape)
        at_common = own.mine.T @ through - grad.sum(dim=0)
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
        return {"annotator_columns": {"common": as_array(self._fitted_head.mean_gate())}}


class Reliable(CrowdWeights):
    """The crowd layer fitted to r * (the vote) + (1 - r) * (uniform), and a reliability r learned for every vote.

    r depends on the network (its hidden vector and p) without training it.
    """

    needs_hidden: ClassVar[bool] = True

    def __init__(
        self, n_annotators: int, n_classes: int, hidden: int, share: float, diagonal: float = DIAGONAL
    ) -> None:
        super().__init__(n_annotators, n_classes, "MW", diagonal)
        self.share = share
        self.expertise = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_annotators, n_classes)))
        layers = nn.Linear(hidden, WIDTH), nn.Sigmoid(), nn.Linear(WIDTH, n_classes), nn.Sigmoid()
        self.difficult = nn.Sequential(*layers)
        self.v = nn.Parameter(torch.ones(n_classes))
        self.c = nn.Parameter(torch.zeros(()))

    def slow_parameters(self) -> list[nn.Parameter]:
        return list(self.difficult.parameters())

    def after_step(self) -> None:
        with torch.no_grad():
            self.v.clamp_(min=0.0)  # the more able, the more reliable

    def difficulty(self, batch: Batch) -> Tensor:
        """B x K: how hard each item would be, were it of each class."""
        assert batch.hidden is not None
        d: Tensor = self.difficult(batch.hidden.detach())
        return d

    def logit(self, batch: Batch) -> Tensor:
        """E: of the reliability of each vote; unseen annotators have the mean expertise."""
        able = torch.sigmoid(self.expertise.index_select(0, self.known_codes(batch)))
        able = self.or_unseen(batch, able, lambda: torch.sigmoid(self.expertise).mean(dim=0))
        p = torch.softmax(batch.logits.detach(), dim=1)
        # Difficulties are the same for all votes on an item, so they are weighted once an item.
        hard = (self.difficulty(batch) * p) @ self.v
        easy = (able * p.index_select(0, batch.row)) @ self.v
        return easy - hard.index_select(0, batch.row) + self.c

    def loss(self, batch: Batch) -> Tensor:
        """The mean over votes of share * smoothed + (1 - share) * judged, with gradients at z and at the logit of r."""
        assert self.W is not None
        logit = self.logit(batch)
        at = logit.detach()
        r = torch.sigmoid(at)
        own = losses.Predictions.of(batch, self.W)
        log_p, p = losses.log_probs(own.z, batch.label)
        mean = log_p - entries(own.z, batch.label) + own.z.mean(dim=1)  # of all labels' logarithms
        agrees = (batch.label == batch.logits.detach().argmax(dim=1)[batch.row]).to(at.dtype)
        judged = functional.softplus(at) - at * agrees
        smoothed = -(r * log_p + (1.0 - r) * mean)
        c = batch.weight / batch.total_weight
        value = (c * (self.share * smoothed + (1.0 - self.share) * judged)).sum()
        # - r log p[l] - (1 - r) mean log p is a cross-entropy against r * (the vote) + (1 - r) / K.
        b = self.share * c
        g = (p * b[:, None]).sub_((b * (1.0 - r) / self.n_classes)[:, None])
        fit = own.fit(value, g.scatter_add_(1, batch.label[:, None], (-b * r)[:, None]))
        slope = b * (mean - log_p) * r * (1.0 - r) + (1.0 - self.share) * c * (r - agrees)
        return losses.annotator_loss(batch, fit, self.W, (logit, slope))

    def posterior_log_probs(self, batch: Batch) -> Tensor:
        """Votes are weighted by their reliability."""
        weight = batch.weight * torch.sigmoid(self.logit(batch))
        return torch.log_softmax(batch.log_f + batch.total(weight[:, None] * self._log_columns(batch)), dim=1)


@declared
class CrowdAR(Learner):
    """A crowd layer for votes whose reliability is learned from the item's difficulty and the annotator's expertise.

    The consensus has the annotator column ``reliability`` (the mean over their votes; NaN without any) and the item
    column ``difficulty`` (from 0 to 1, for the class that the network predicts).

    Parameters
    ----------
    share
        The share of the loss of the smoothed votes; the rest fits reliabilities to whether the vote is the network's
        class.
    diagonal
        Where the weights from a class to the label of that class start; all others start at 0. By default where an
        annotator is right with probability 0.9.
    """

    key: ClassVar[str] = "crowd-ar"
    share: Annotated[float, Bounds(above=0, maximum=1)] = 0.9
    diagonal: Positive | None = None

    def _head(self, votes: Votes, hidden: int) -> Head:
        diagonal = first_diagonal(self.diagonal, votes.n_classes)
        return Reliable(votes.n_annotators, votes.n_classes, hidden, self.share, diagonal)

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        head, difficulty = self._fitted_head, []
        total, count = torch.zeros((2, head.n_annotators), dtype=torch.float64, device=trainer.device)
        for batch in trainer.batches(trainer.edges, trainer.inputs):
            weight = batch.weight.double()
            total.index_add_(0, batch.annotator, weight * torch.sigmoid(head.logit(batch)))
            count.index_add_(0, batch.annotator, weight)
            difficulty.append((batch.log_f.exp() * head.difficulty(batch)).sum(dim=1))
        reliability, difficult = as_array(total / count), as_array(torch.cat(difficulty))
        return {"annotator_columns": {"reliability": reliability}, "item_columns": {"difficulty": difficult}}


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
        """Of variant B the gradient is r at T[m, k, l], less the sum of r times the softmax of T[:, k, :]."""
        if self.variant == "A":
            pair = entries(self.pairs(batch, batch.annotator), batch.label)
            return batch.item_mean(log_total(batch.log_f.exp(), self.T)[batch.row] - pair)
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
        known = entries(log_softmax(self.pairs(batch, self.known_codes(batch)), dim=1), batch.label)
        return self.or_unseen(batch, known, lambda: super(Union, self).vote_log_probs(batch))


def log_total(p: Tensor, T: Tensor, block: int = BLOCK) -> Tensor:
    """B: log of the sum over all pairs of exp( sum_k p[k] T[m, k, l] ), some annotators at a time."""

    def part(p: Tensor, T: Tensor) -> Tensor:
        return torch.logsumexp(torch.einsum("bk,mkl->bml", p, T), dim=(1, 2))

    parts = torch.split(T, max(1, block // max(1, len(p) * T.shape[2])))
    if len(parts) == 1:
        return part(p, T)
    # A part is computed again in the backward pass, so that not all parts are in memory together.
    return torch.logsumexp(torch.stack([checkpoint(part, p, rows, use_reentrant=False) for rows in parts]), dim=0)


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
