"""Annotators as points in a space: confusion matrices made from an embedding of the annotator and one of the input.

    P(m says l | x) = sum_k f(x)[k] T_m(x)[k, l],      T_m(x)[k] = softmax_l( (V u(x, m))[k, l] + c[k, l] )

c starts at ``accuracy`` on the diagonal. What the two methods make of the annotator's embedding a = e[m] and of the
input's v = A h(x), and how they train:

=============  ========================================================================================================
``madl``       u = relu( a + F2 relu( F1 [a, v, o] ) ),  o[p] = (a + v)' O[p] (a + v);  votes are weighted by how
               isolated their annotator is: w[m] ~ 1 / sum_j exp( - gamma |e[m] - e[j]|^2 ), with mean one over the
               annotators, so that many who answer alike count for less. gamma is learned, with a Gamma prior:
               loss = - mean over votes of w[m] log P(l | x, m) - log Gamma( gamma; shape, rate )
``annot-mix``  u = relu( F dropout[a, v] );  votes are mixed in pairs, with a share s ~ Beta(mixup, mixup) for each:
               x~ = s x + (1 - s) x',  a~ = s e[m] + (1 - s) e[m'],
               loss = - mean over pairs of s log P(l | x~, a~) + (1 - s) log P(l' | x~, a~)
=============  ========================================================================================================

==================  ============  ===========  ============================================================
symbol              code          shape        equation
==================  ============  ===========  ============================================================
f(x)                ``log_f``     B x K        softmax of the network
h(x)                ``hidden``    B x H        the input of its last layer
e[m]                ``e``         M x Q        free; an unseen annotator has the mean
v                   ``items``     B x Q        A h(x); of ``annot-mix`` without training the network
T_m(x)              ``log_rows``  E x K x K    above, one for each vote
==================  ============  ===========  ============================================================

F, F1 and F2 are followed by batch normalisation over the votes. Network and annotators learn at one rate, ``lr``.

References: M. Herde, D. Huseljic and B. Sick, Multi-annotator deep learning: a probabilistic framework for
classification, Transactions on Machine Learning Research, 2023. M. Herde, L. Lührs, D. Huseljic and B. Sick, Annot-mix:
learning with noisy class labels from multiple annotators via a mixup extension, ECAI 2024.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from crowdwise.core.constraints import Count, Fraction, NonNegative, Positive, declared
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.devices import as_array, columns, log_softmax
from crowdwise.learners.head import AnnotatorTerms, Head, MixesVotes
from crowdwise.learners.instance_confusions import InstanceHead, InstanceLearner
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training_settings import Schedule
from crowdwise.learners.vote_edges import Batch

WIDTH = 128
"""Of the hidden layer of ``madl``, as in the paper."""


class EmbeddedConfusions(AnnotatorTerms, InstanceHead):
    """T_m(x) from embeddings, made for the votes of a batch."""

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, embedding: int, accuracy: float) -> None:
        super().__init__(n_annotators, n_classes)
        K, bound = n_classes, 1.0 / math.sqrt(n_annotators)
        self.e = nn.Parameter(torch.empty(n_annotators, embedding).uniform_(-bound, bound))
        self.items = nn.Linear(hidden, embedding)
        self.output = nn.Linear(embedding, K * K)
        with torch.no_grad():
            self.output.bias.copy_((math.log(accuracy * (K - 1) / (1.0 - accuracy)) * torch.eye(K)).reshape(-1))

    def slow_parameters(self) -> list[nn.Parameter]:
        return list(self.parameters())  # one rate for network and annotators, as in the papers

    @abstractmethod
    def combined(self, a: Tensor, v: Tensor) -> Tensor:
        """E x Q: u, from the embeddings of annotators and of inputs."""

    def item_embeddings(self, batch: Batch) -> Tensor:
        """B x Q."""
        assert batch.hidden is not None
        found: Tensor = self.items(batch.hidden)
        return found

    def annotator_embeddings(self, batch: Batch) -> Tensor:
        """E x Q."""
        known = self.e.index_select(0, self.known_codes(batch))
        return self.or_unseen(batch, known, lambda: self.e.mean(dim=0))

    def log_rows(self, batch: Batch) -> Tensor:
        return self.log_confusions(self.annotator_embeddings(batch), self.item_embeddings(batch)[batch.row])

    def log_confusions(self, a: Tensor, v: Tensor) -> Tensor:
        """E x K x K: log T from the embeddings of each vote's annotator and input."""
        K = self.n_classes
        for module in self.modules():
            if isinstance(module, nn.BatchNorm1d):  # one vote has no deviation to normalise by
                module.train(self.training and len(a) > 1)
        return log_softmax(self.output(self.combined(a, v)).reshape(-1, K, K), dim=2)

    def _log_columns(self, batch: Batch) -> Tensor:
        return columns(self.log_rows(batch), batch.label)


class Weighted(EmbeddedConfusions):
    """``madl``: votes weighted by how isolated their annotator is."""

    def __init__(
        self, n_annotators: int, n_classes: int, hidden: int, embedding: int, accuracy: float, shape: float, rate: float
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes, hidden, embedding, accuracy)
        Q = embedding
        self.shape, self.rate = shape, rate
        self.gamma = nn.Parameter(torch.tensor(max(1e-3, (shape - 1.0) / rate)))
        self.outer = nn.Parameter(nn.init.xavier_uniform_(torch.empty(Q, Q, Q)))
        self.between = nn.Sequential(
            nn.Linear(3 * Q, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, Q), nn.BatchNorm1d(Q)
        )

    def combined(self, a: Tensor, v: Tensor) -> Tensor:
        both = a + v
        product = torch.einsum("ei,pij,ej->ep", both, self.outer, both)
        return torch.relu(a + self.between(torch.cat([a, v, product], dim=1)))

    def after_step(self) -> None:
        with torch.no_grad():
            self.gamma.clamp_(min=1e-3)

    def weights(self) -> Tensor:
        """M: 1 / density, with mean one."""
        e = self.e.detach()
        isolation = 1.0 / kernel(e, e, self.gamma).sum(dim=1)
        return isolation / isolation.mean()

    def vote_weights(self, batch: Batch) -> Tensor:
        """E: those of the votes' annotators; of a large crowd they are estimated from the batch."""
        if not self.many:
            return self.weights().index_select(0, batch.annotator)
        e, share = self.e.detach().index_select(0, batch.annotator), self.term_weights(batch)
        isolation = 1.0 / (kernel(e, e, self.gamma) @ share)
        return isolation * self.n_annotators / (share * isolation).sum()

    def loss(self, batch: Batch) -> Tensor:
        said = self.vote_log_probs(batch)
        return -batch.mean(self.vote_weights(batch) * said) - self.log_prior()

    def log_prior(self) -> Tensor:
        """log Gamma( gamma; shape, rate )."""
        a, b = self.shape, self.rate
        return a * math.log(b) + (a - 1.0) * torch.log(self.gamma) - b * self.gamma - math.lgamma(a)


def kernel(a: Tensor, b: Tensor, gamma: Tensor) -> Tensor:
    """exp( - gamma |a - b|^2 ) of all pairs."""
    squares = (a * a).sum(dim=1)[:, None] + (b * b).sum(dim=1)[None, :] - 2.0 * a @ b.T
    return torch.exp(-gamma * squares.clamp_min(0.0))


class Mixed(EmbeddedConfusions, MixesVotes):
    """``annot-mix``: votes mixed in pairs."""

    def __init__(
        self, n_annotators: int, n_classes: int, hidden: int, embedding: int, accuracy: float,
        votes_per_item: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes, hidden, embedding, accuracy)
        Q, self.votes_per_item = embedding, votes_per_item
        self.between = nn.Sequential(nn.Dropout(0.5), nn.Linear(2 * Q, Q), nn.BatchNorm1d(Q), nn.ReLU())

    def combined(self, a: Tensor, v: Tensor) -> Tensor:
        found: Tensor = self.between(torch.cat([v, a], dim=1))
        return found

    def item_embeddings(self, batch: Batch) -> Tensor:
        assert batch.hidden is not None
        found: Tensor = self.items(batch.hidden.detach())
        return found

    def loss(self, batch: Batch) -> Tensor:
        return -batch.mean(self.vote_log_probs(batch))

    def mixed_loss(self, batch: Batch, other: Batch, share: Tensor) -> Tensor:
        e = torch.lerp(self.annotator_embeddings(other), self.annotator_embeddings(batch), share[:, None])
        log_t = self.log_confusions(e, self.item_embeddings(batch))
        said = torch.logsumexp(batch.log_f[:, :, None] + log_t, dim=1)
        parts = [(share * batch.weight, batch.label), ((1.0 - share) * other.weight, other.label)]
        fit = torch.stack([(w * said.gather(1, label[:, None])[:, 0]).sum() for w, label in parts]).sum()
        return -fit / torch.stack([w.sum() for w, _ in parts]).sum().clamp_min(1e-12)


@declared
class MaDL(InstanceLearner):
    """Confusion matrices from embeddings of annotator and input; annotators who answer alike share their weight.

    The consensus has the annotator column ``weight``, w[m]: below one for those who have many like them.

    Parameters
    ----------
    embedding
        Dimensions of the embeddings of annotators and inputs.
    shape, rate
        Of the Gamma prior of the kernel's gamma, which starts at its mode, (shape - 1) / rate.
    lr, schedule
        Those of the authors' runs on features; they train networks on images with 0.001.
    """

    key: ClassVar[str] = "madl"
    lr: Positive = 1e-2
    schedule: Schedule = "cosine"
    embedding: Count = 16
    shape: Positive = 1.25
    rate: Positive = 0.25

    def _head(self, votes: Votes, hidden: int) -> Head:
        M, K, start = votes.n_annotators, votes.n_classes, self._start(votes)
        return Weighted(M, K, hidden, self.embedding, start, self.shape, self.rate)

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        return {"annotator_columns": {"weight": as_array(self._head_as(Weighted).weights())}}


@declared
class AnnotMix(InstanceLearner):
    """Confusion matrices from embeddings of annotator and input, trained on mixtures of votes.

    A mixture is of two inputs, two annotators and two labels; sparse inputs are not mixed. Each vote of a batch passes
    through the network as an input of its own, so that an epoch costs as many times more as there are votes per item;
    with ``votes_per_item=1`` it costs as much as that of other learners.

    Parameters
    ----------
    embedding
        Dimensions of the embeddings of annotators and inputs.
    mixup
        The share of the first vote in a mixture is drawn from Beta(mixup, mixup); 0 for no mixtures.
    votes_per_item
        How many of the votes on an item, drawn at random in every epoch, are trained on; all of them by default. Needs
        mixtures.
    lr, schedule
        Those of the authors' runs on features; they train networks on images with 0.001.
    """

    key: ClassVar[str] = "annot-mix"
    lr: Positive = 1e-2
    schedule: Schedule = "cosine"
    accuracy: Fraction = 0.9
    embedding: Count = 128
    mixup: NonNegative = 1.0
    votes_per_item: Count | None = None

    def _check_together(self) -> None:
        super()._check_together()
        if self.votes_per_item is not None and not self.mixup:
            raise ParameterError(
                f"votes_per_item={self.votes_per_item} is for mixtures of votes, and mixup=0 makes none. Leave one out."
            )

    def _head(self, votes: Votes, hidden: int) -> Head:
        M, K, start = votes.n_annotators, votes.n_classes, self._start(votes)
        return Mixed(M, K, hidden, self.embedding, start, self.votes_per_item)
