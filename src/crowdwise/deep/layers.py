"""A layer for each annotator after the network: from the crowd layer to gates, unions and reliabilities.

The network says p = f(x), K class probabilities; the annotator's layer makes of them what this annotator would answer.
Where :mod:`crowdwise.deep.joint` multiplies p by probabilities, most layers here multiply it by free weights and
take a softmax after that, so their parameters are no confusion matrices.

=============== ==================================================================================================
``crowd-layer`` P(m says . | x) = softmax_l( sum_k p[k] W[m, k, l] ), or a vector of weights or biases instead of W
``conal``       the same with W[n, m] = w C + (1 - w) C[m]: a common C, own ones, and a gate w(x, m) between them
``crowd-ar``    the crowd layer, fitted to votes that are blurred as far as their reliability r(x, m) is low
``unionnet``    the M K possible (annotator, label) pairs as the classes of one softmax
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
T[m, k, l]          ``T``                M x K x K     starts as the identity
d(x), e[m]          ``difficulty``       K each        sigmoid( V2 sigmoid(V1 h) ) of the hidden vector h, free
r(x, m)             ``reliability``      one per vote  sigmoid( v'[(sigmoid(e[m]) - d(x)) p] + c ), v >= 0
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
confusions, AAAI 2021. H. Wei et al., Deep learning from multiple noisy annotators as a union, IEEE TNNLS 2022.
Z. Cao et al., Learning from crowds with annotation reliability, SIGIR 2023.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from crowdwise.data.votes import Votes
from crowdwise.deep.edges import Batch, log_softmax
from crowdwise.deep.head import Head, Predict
from crowdwise.deep.joint import Confusions, identity
from crowdwise.deep.learner import Learner, check_choice, check_count, check_number
from crowdwise.deep.trainer import Trainer
from crowdwise.errors import ParameterError

KINDS = ("MW", "VW", "VB", "VW+B")
VARIANTS = ("A", "B")
WIDTH = 128
"""Of the one hidden layer between the network's hidden vector and an embedding or a difficulty, as in the papers."""
BLOCK = 2**20
"""The most numbers of items x annotators x labels that UnionNet-A holds at once."""


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
        weights = self.weights(batch, batch.annotator.clamp_max(self.n_annotators - 1))
        p = batch.log_f.exp()[batch.row]
        return log_softmax(torch.einsum("ek,ekl->el", p, weights), dim=1)

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

    def loss(self, batch: Batch) -> Tensor:
        return summed(batch, -self.vote_log_probs(batch))


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


class CommonNoise(Layer):
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
        u = functional.normalize(self.annotators, dim=1)
        return torch.sigmoid((v[batch.row] * u[annotator]).sum(dim=1))

    def weights(self, batch: Batch, annotator: Tensor) -> Tensor:
        gate = self.gate(batch, annotator)
        if self.training:
            with torch.no_grad():
                self.opened.index_add_(0, annotator, batch.weight * gate)
                self.votes.index_add_(0, annotator, batch.weight)
        return torch.lerp(self.W[annotator], self.common, gate[:, None, None])

    def mean_gate(self) -> Tensor:
        """M: the mean gate of each annotator's votes, with one vote more at one half."""
        return (self.opened + 0.5) / (self.votes + 1.0)

    def table(self) -> Tensor:
        return torch.lerp(self.W, self.common, self.mean_gate()[:, None, None])

    def loss(self, batch: Batch) -> Tensor:
        apart = ((self.W - self.common) ** 2).sum(dim=(1, 2))
        norm = (apart + 1e-12).sqrt().sum()  # whose gradient stays finite where all are alike, as at the start
        return super().loss(batch) - self.weight * norm

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


# -------------------------------------------------------------------- union


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
        log_f = batch.log_f - torch.logsumexp(self.T, dim=(0, 2))
        return summed(batch, -torch.logsumexp(log_f[batch.row] + self.T[batch.annotator, :, batch.label], dim=1))

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


# -------------------------------------------------------------------- reliability


class Reliable(CrowdWeights):
    """The crowd layer fitted to r * (the vote) + (1 - r) * (uniform), and a reliability r learned for every vote.

    Where r comes from, the network is looked at (its hidden vector and p) and not trained.
    """

    needs_hidden: ClassVar[bool] = True

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, share: float) -> None:
        super().__init__(n_annotators, n_classes, "MW")
        self.share = share
        self.expertise = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_annotators, n_classes)))
        self.difficult = nn.Sequential(
            nn.Linear(hidden, WIDTH), nn.Sigmoid(), nn.Linear(WIDTH, n_classes), nn.Sigmoid()
        )  # fmt: skip
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
        found: Tensor = self.difficult(batch.hidden.detach())
        return found

    def logit(self, batch: Batch) -> Tensor:
        """E: of the reliability of each vote; strangers are as able as the mean annotator."""
        known = batch.annotator.clamp_max(self.n_annotators - 1)
        ability = torch.sigmoid(self.expertise)
        strangers = (batch.annotator >= self.n_annotators)[:, None]
        able = torch.where(strangers, ability.mean(dim=0), ability[known])
        p = batch.log_f.exp().detach()
        return ((able - self.difficulty(batch)[batch.row]) * p[batch.row]) @ self.v + self.c

    def reliability(self, batch: Batch) -> Tensor:
        """E: from 0 to 1."""
        return torch.sigmoid(self.logit(batch))

    def loss(self, batch: Batch) -> Tensor:
        logit = self.logit(batch)
        r = torch.sigmoid(logit)
        answers = self.answers(batch)
        said = answers.gather(1, batch.label[:, None])[:, 0]
        blurred = -(r * said + (1.0 - r) * answers.mean(dim=1))
        agrees = (batch.label == batch.logits.argmax(dim=1)[batch.row]).to(logit.dtype)
        judged = functional.binary_cross_entropy_with_logits(logit, agrees, reduction="none")
        return batch.mean(self.share * blurred + (1.0 - self.share) * judged)

    def forecast(self, batch: Batch) -> Tensor:
        """Votes count as far as they are reliable."""
        weight = batch.weight * self.reliability(batch)
        return torch.log_softmax(batch.log_f + batch.total(weight[:, None] * self._log_columns(batch)), dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdAR(Learner):
    """A crowd layer for votes whose reliability is learned from the item's difficulty and the annotator's expertise.

    The consensus has the annotator column ``reliability`` (the mean over their votes; NaN without any) and the item
    column ``difficulty`` (from 0 to 1, for the class the network takes it for).

    Parameters
    ----------
    share
        Of the loss of the blurred votes; the rest judges reliabilities by whether the network's class was voted for.
    """

    key: ClassVar[str] = "crowd-ar"
    share: float = 0.9

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return Reliable(votes.n_annotators, votes.n_classes, hidden, self.share)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self, "share", above=0.0)
        if self.share > 1.0:
            raise ParameterError(f"share={self.share!r}: expected a number above 0 and of at most 1.")

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        head = trainer.head
        assert isinstance(head, Reliable)
        total, count = torch.zeros((2, head.n_annotators), dtype=torch.float64, device=trainer.device)
        difficulty = []
        for batch in trainer.batches(trainer.edges):
            weight = batch.weight.double()
            total.index_add_(0, batch.annotator, weight * head.reliability(batch))
            count.index_add_(0, batch.annotator, weight)
            difficulty.append((batch.log_f.exp() * head.difficulty(batch)).sum(dim=1))
        return {
            "annotator_columns": {"reliability": (total / count).cpu().numpy()},
            "item_columns": {"difficulty": torch.cat(difficulty).double().cpu().numpy()},
        }
