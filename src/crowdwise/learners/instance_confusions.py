"""Annotators who err differently from item to item: a confusion matrix for each vote of a batch.

    P(m says l | x) = sum_k f(x)[k] T_m(x)[k, l]

**By features of the input**, h(x) being the input of the network's last layer:

    T_m(x)[k] = softmax_l( shared[k, l] + own[m, k, l] + sum_r tanh( (P h(x))[r] + e[m, r] ) V[r, k, l] )

``shared`` starts at matrices whose diagonal is ``accuracy``; ``own``, e and V start at zero, so that at first all
annotators answer alike, on all inputs, and an annotator without votes (or an unseen one) continues to answer like the
crowd.

================  =============================================================================================
``trace-x``       all at once, by the likelihood of the votes plus a penalty on the traces of T, after a warm-up in
                  which T is fixed
``transition-x``  in stages: the network on the votes; T on the items the network is most confident of; labels
                  corrected with T; the network on those. A label is corrected where the two likeliest classes are
                  far enough apart: if their probabilities under q have at least the ratio ``ratio``, the target is
                  the likelier one alone; else it is q itself
================  =============================================================================================

**By embeddings** of annotator and input, a = e[m] and v = A h(x):

    T_m(x)[k] = softmax_l( (V u(x, m))[k, l] + c[k, l] ),   c starts at ``accuracy`` on the diagonal

=============  ========================================================================================================
``madl``       u = relu( a + F2 relu( F1 [a, v, o] ) ),  o[p] = (a + v)' O[p] (a + v);  votes are weighted by how
               isolated their annotator is: w[m] ~ 1 / sum_j exp( - gamma |e[m] - e[j]|^2 ), with mean one over the
               annotators, so that many who answer alike count for less. gamma is learned, with a Gamma prior:
               loss = - mean over votes of w[m] log P(l | x, m) - log Gamma( gamma; shape, rate )
``annot-mix``  u = relu( F dropout[a, v] );  votes are mixed in pairs, with a share s ~ Beta(mixup, mixup) for each:
               x~ = s x + (1 - s) x',  a~ = s e[m] + (1 - s) e[m'],
               loss = - mean over pairs of s log P(l | x~, a~) + (1 - s) log P(l' | x~, a~)
=============  ========================================================================================================

F, F1 and F2 are followed by batch normalisation over the votes. Network and annotators learn at one rate, ``lr``.

======================  ===============  ===========  ==========================================================
symbol                  code             shape        equation
======================  ===============  ===========  ==========================================================
f(x)                    ``log_f``        B x K        softmax of the network
h(x)                    ``hidden``       B x H        the input of its last layer
log T_m(x)              ``log_rows``     E x K x K    above, one for each vote
q[n, k]                 ``target``       N x K        f(x_n)[k] prod over votes of T_m(x_n)[k, l], normalised
e[m]                    ``e``            M x Q        free; an unseen annotator has the mean
v                       ``items``        B x Q        A h(x); of ``annot-mix`` without training the network
======================  ===============  ===========  ==========================================================

The penalty of ``trace-x`` and the stages of ``transition-x`` are those of the papers (docs/learners-instance.md); T is
an ordinary layer on top of the network where that of Guo et al. is a separate Bayesian network.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.constraints import Bounds, Count, CountFromZero, Fraction, NonNegative, Positive, declared
from crowdwise.core.numerics import Floats
from crowdwise.core.unseen import recode
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners import losses
from crowdwise.learners.devices import as_array, columns, entries, log_softmax
from crowdwise.learners.head import AnnotatorTerms, Head, MixesVotes, Predict, cross_entropy
from crowdwise.learners.learner import Learner
from crowdwise.learners.trainer import Stages, Trainer, TrainingData
from crowdwise.learners.training_settings import Callback, Schedule
from crowdwise.learners.vote_edges import Batch


def first_shared(accuracy: float, K: int) -> Tensor:
    """K x K free numbers: before the softmax over labels, matrices whose diagonal is ``accuracy``."""
    return math.log(accuracy * (K - 1) / (1.0 - accuracy)) * torch.eye(K)


class InstanceConfusions(Head):
    """T_m(x), made for the votes of a batch."""

    needs_hidden: ClassVar[bool] = True

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, rank: int, accuracy: float) -> None:
        super().__init__(n_annotators, n_classes)
        M, K = n_annotators, n_classes
        bound = 1.0 / math.sqrt(hidden)
        self.shared = nn.Parameter(first_shared(accuracy, K))
        self.own = nn.Parameter(torch.zeros(M, K, K))
        self.P = nn.Parameter(torch.empty(hidden, rank).uniform_(-bound, bound))
        self.e = nn.Parameter(torch.zeros(M, rank))
        self.V = nn.Parameter(torch.zeros(rank, K, K))

    def slow_parameters(self) -> list[nn.Parameter]:
        return [self.P]

    def log_rows(self, batch: Batch, attached: bool = True) -> Tensor:
        """E x K x K: log T of each vote's annotator and item; unseen annotators have no own part."""
        return log_softmax(self.rows(batch, attached), dim=2)

    def rows(self, batch: Batch, attached: bool = True) -> Tensor:
        """The same before the softmax."""
        assert batch.hidden is not None
        hidden = batch.hidden if attached else batch.hidden.detach()
        known, zero = self.known_codes(batch), hidden.new_zeros(())
        own, e = (self.or_unseen(batch, t.index_select(0, known), lambda: zero) for t in (self.own, self.e))
        part = torch.tanh((hidden @ self.P).index_select(0, batch.row) + e)
        K = self.n_classes
        return own + torch.addmm(self.shared.reshape(-1), part, self.V.reshape(-1, K * K)).reshape(-1, K, K)

    def _log_columns(self, batch: Batch, attached: bool = True) -> Tensor:
        return columns(self.log_rows(batch, attached), batch.label)


class TracedInstances(InstanceConfusions):
    """The likelihood of the votes plus ``weight`` times the mean trace of their matrices."""

    def __init__(
        self, n_annotators: int, n_classes: int, hidden: int, rank: int, accuracy: float, weight: float, warm_up: int
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes, hidden, rank, accuracy)
        self.weight, self.warm_up, self.warm = weight, warm_up, False

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        self.warm = epoch < self.warm_up

    def loss(self, batch: Batch) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.warm):
            rows = self.rows(batch)
        norm = batch.total_weight
        fit = losses.mixture(batch, rows.detach(), norm, trace=self.weight * batch.weight / norm)
        at_rows = [(rows, fit.rows)] if rows.requires_grad else []
        return losses.with_gradients(fit.value, (batch.logits, fit.logits), *at_rows)


@declared
class InstanceLearner(Learner):
    """What learners with a matrix for every vote share.

    Parameters
    ----------
    accuracy
        The probability of a right vote, at first.
    """

    accuracy: Fraction = 0.8

    def _start(self, votes: Votes) -> float:
        """The diagonal T starts with, which must identify the classes."""
        if self.accuracy * votes.n_classes <= 1.0:
            raise ParameterError(
                f"accuracy={self.accuracy!r}: with {votes.n_classes} classes, annotators who start at chance or below "
                f"do not identify the classes. Give more than {1.0 / votes.n_classes:.3g}."
            )
        return self.accuracy

    def vote_confusion(self, X: Any, votes: Votes) -> Floats:
        """S x K x K: T_m(x) for each of some votes, in their order, given their items' inputs."""
        head, inputs = self._fitted_head, self._new_inputs(X, votes)
        edges = self._edges(recode(votes, self.consensus_))
        rows = [head.log_rows(batch) for batch in self._trainer.batches(edges, inputs)]
        return as_array(torch.cat(rows).double().exp())


@declared
class TraceX(InstanceLearner):
    """Confusion matrices that depend on the input, of small trace.

    Parameters
    ----------
    rank
        How many features of the input annotators' errors may depend on.
    weight
        The weight of the mean trace.
    warm_up
        So many epochs train the network alone.
    """

    key: ClassVar[str] = "trace-x"
    rank: Count = 8
    weight: NonNegative = 0.01
    warm_up: CountFromZero = 10

    def _head(self, votes: Votes, hidden: int) -> Head:
        return TracedInstances(
            votes.n_annotators, votes.n_classes, hidden, self.rank, self._start(votes), self.weight, self.warm_up
        )


class Corrected(InstanceConfusions):
    """The three losses of ``transition-x``, one for each stage."""

    confident: Tensor
    target: Tensor

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, rank: int, accuracy: float) -> None:
        super().__init__(n_annotators, n_classes, hidden, rank, accuracy)
        self.stage = "votes"
        self.register_buffer("confident", torch.zeros(0, dtype=torch.int64), persistent=False)
        self.register_buffer("target", torch.zeros(0), persistent=False)

    def loss(self, batch: Batch) -> Tensor:
        if self.stage == "votes":
            return -batch.mean(batch.log_f[batch.row, batch.label])
        if self.stage == "transitions":
            return self.misfit(batch)
        # T depends on the network's hidden vector, so it is trained along with the network.
        return cross_entropy(self.target[batch.index].to(batch.logits.dtype), batch.logits) + self.misfit(batch)

    def misfit(self, batch: Batch) -> Tensor:
        """- mean log T over the votes on confident items, given their predicted class."""
        truth = self.confident[batch.index][batch.row]
        log_t = entries(self._log_columns(batch, attached=False), truth.clamp_min(0))
        return -replace(batch, weight=batch.weight * (truth >= 0)).mean(log_t)


def most_confident(log_f: Tensor, voted: Tensor, share: float) -> Tensor:
    """N: the class of the items the network is most confident of, a share of each predicted class; -1 for others."""
    best, guess = log_f.max(dim=1)
    label = torch.full_like(guess, -1)
    for k in range(log_f.shape[1]):
        mine = torch.nonzero((guess == k) & voted)[:, 0]
        order = torch.sort(best[mine], descending=True, stable=True).indices
        label[mine[order[: math.ceil(share * len(mine))]]] = k
    return label


def correct(log_q: Tensor, ratio: float) -> Tensor:
    """N x K targets: the likelier class where it is ``ratio`` times as probable as any other, else the posterior."""
    top = log_q.topk(2, dim=1)
    decided = top.values[:, 0] - top.values[:, 1] >= math.log(ratio)
    hard = torch.zeros_like(log_q).scatter_(1, top.indices[:, :1], 1.0)
    return torch.where(decided[:, None], hard, log_q.exp())


@declared
class TransitionX(InstanceLearner):
    """Confusion matrices that depend on the input, learned from confident items, then labels corrected with them.

    Parameters
    ----------
    rank
        How many features of the input annotators' errors may depend on.
    share
        Of the items of each predicted class, the share the network is most confident of: T is learned from their votes
        (and from those on gold items).
    warm_up
        So many epochs train the network on the votes.
    transition_epochs
        So many epochs train T, with the network fixed. ``epochs`` of training on the corrected labels follow.
    ratio
        A corrected label is hard where the likeliest class is so many times as probable as any other, else soft.
    """

    key: ClassVar[str] = "transition-x"
    rank: Count = 8
    warm_up: Count = 10
    share: Annotated[float, Bounds(above=0, maximum=1)] = 0.5
    transition_epochs: Count = 20
    ratio: Annotated[float, Bounds(minimum=1)] = 10.0

    def _head(self, votes: Votes, hidden: int) -> Head:
        return Corrected(votes.n_annotators, votes.n_classes, hidden, self.rank, self._start(votes))

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        stages = Stages(self.warm_up + self.transition_epochs + self.epochs, callback)
        trainer = self._prepare(data)
        head, network = trainer.head, trainer.network
        assert isinstance(head, Corrected)
        gold = torch.full((len(data.votes.items),), -1, device=trainer.device)
        if trainer.gold is not None and self.select != "gold":
            gold = trainer.gold
        voted = trainer.edges.indptr[1:] > trainer.edges.indptr[:-1]
        stages.run(trainer.again(self.warm_up))
        if not stages.ended:
            log_f = trainer.log_probs(trainer.inputs)
            head.confident = torch.where(gold >= 0, gold, most_confident(log_f, voted, self.share))
            head.stage, head.network_frozen = "transitions", True
            network.requires_grad_(False)
            stages.run(trainer.again(self.transition_epochs))
            network.requires_grad_(True)
        if not stages.ended:
            target = correct(trainer.posterior(trainer.edges, trainer.inputs), self.ratio)
            known = functional.one_hot(gold.clamp_min(0), head.n_classes).to(target.dtype)
            head.target = torch.where((gold >= 0)[:, None], known, target)
            head.stage, head.network_frozen = "corrected", False
            stages.run(trainer, self.checkpoint)
        self.history_ = stages.history
        return trainer


WIDTH = 128
"""Of the hidden layer of ``madl``, as in the paper."""


class EmbeddedConfusions(AnnotatorTerms):
    """T_m(x) from embeddings, made for the votes of a batch."""

    needs_hidden: ClassVar[bool] = True
    items_train_network: ClassVar[bool] = True
    """Whether the embeddings of inputs train the network."""

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, embedding: int, accuracy: float) -> None:
        super().__init__(n_annotators, n_classes)
        K, bound = n_classes, 1.0 / math.sqrt(n_annotators)
        self.e = nn.Parameter(torch.empty(n_annotators, embedding).uniform_(-bound, bound))
        self.items = nn.Linear(hidden, embedding)
        self.output = nn.Linear(embedding, K * K)
        with torch.no_grad():
            self.output.bias.copy_(first_shared(accuracy, K).reshape(-1))

    def slow_parameters(self) -> list[nn.Parameter]:
        return list(self.parameters())  # one rate for network and annotators, as in the papers

    @abstractmethod
    def combined(self, a: Tensor, v: Tensor) -> Tensor:
        """E x Q: u, from the embeddings of annotators and of inputs."""

    def item_embeddings(self, batch: Batch) -> Any:
        """B x Q."""
        assert batch.hidden is not None
        return self.items(batch.hidden if self.items_train_network else batch.hidden.detach())

    def annotator_embeddings(self, batch: Batch) -> Tensor:
        """E x Q."""
        known = self.e.index_select(0, self.known_codes(batch))
        return self.or_unseen(batch, known, lambda: self.e.mean(dim=0))

    def log_rows(self, batch: Batch) -> Tensor:
        """E x K x K: log T of each vote's annotator and item."""
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
        log_p = self.vote_log_probs(batch)
        return -batch.mean(self.vote_weights(batch) * log_p) - self.log_prior()

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

    items_train_network: ClassVar[bool] = False

    def __init__(
        self, n_annotators: int, n_classes: int, hidden: int, embedding: int, accuracy: float,
        votes_per_item: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes, hidden, embedding, accuracy)
        Q, self.votes_per_item = embedding, votes_per_item
        self.between = nn.Sequential(nn.Dropout(0.5), nn.Linear(2 * Q, Q), nn.BatchNorm1d(Q), nn.ReLU())

    def combined(self, a: Tensor, v: Tensor) -> Any:
        return self.between(torch.cat([v, a], dim=1))

    def loss(self, batch: Batch) -> Tensor:
        return -batch.mean(self.vote_log_probs(batch))

    def mixed_loss(self, batch: Batch, other: Batch, share: Tensor) -> Tensor:
        e = torch.lerp(self.annotator_embeddings(other), self.annotator_embeddings(batch), share[:, None])
        log_t = self.log_confusions(e, self.item_embeddings(batch))
        log_p = torch.logsumexp(batch.log_f[:, :, None] + log_t, dim=1)
        one, rest = share * batch.weight, (1.0 - share) * other.weight
        fit = (one * entries(log_p, batch.label)).sum() + (rest * entries(log_p, other.label)).sum()
        return -fit / (one.sum() + rest.sum()).clamp_min(1e-12)


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
        return {"annotator_columns": {"weight": as_array(self._fitted_head.weights())}}


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
