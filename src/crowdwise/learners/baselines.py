"""Simple ways to learn from votes, the baselines of all other learners (references: docs/learners-baselines.md).

=======================  ==========================================================================================
``two-stage``            aggregate the votes first, with any method; then train on the labels:
                         loss = - mean_n sum_k t[n, k] log f(x_n)[k]
``soft-bootstrap``       the same, with targets that the network itself may correct:
                         loss = - mean_n sum_k ( beta t[n, k] + (1 - beta) f(x_n)[k] ) log f(x_n)[k]
``single-confusion``     one confusion matrix for all annotators, after the network:
                         loss = - mean over votes of log sum_k f(x)[k] theta[k, l]  +  weight * trace(theta)
``doctor-net``           a last layer for each annotator, which predicts their votes; the prediction is mean_m g_m(x):
                         loss = - mean over votes of log g_m(x)[l]
``weighted-doctor-net``  the same with weights, learned with all g_m fixed; the prediction is sum_m w_m g_m(x):
                         loss = - mean_n sum_l share[n, l] log( mean of g_m(x_n)[l] over the annotators m of n, by w_m )
=======================  ==========================================================================================

====================  ==============  ===========  ============================================================
symbol                code            shape        equation
====================  ==============  ===========  ============================================================
f(x)                  ``log_f``       B x K        softmax of the network
t[n, k]               ``target``      N x K        the label (or the posterior) of the first stage
theta[k, l]           ``rho``         K x K        row-normalised softplus of rho: P(any annotator says l | k)
g_m(x)                ``votes_log``   E x K        softmax( W_m h(x) + b_m ), h the network without its last layer
w_m                   ``weights``     M            softmax of ``score`` over annotators with votes
====================  ==============  ===========  ============================================================

CROWDLAB: a classifier is trained on majority votes, where a tie counts for all its classes evenly, and predicts items
that it has not seen (cross-validation). Its prediction and the votes of an item's annotators are averaged:

    q[n] = ( w_0 f(x_n) + sum over votes of w_m g(l) ) / ( w_0 + sum over votes of w_m )
    g(l)[k] = P where k = l, (1 - P) / (K - 1) elsewhere

Everything is estimated from the items with more than one vote. With y the majority labels (ties go to the class that
the classifier finds more probable):

==============  ============  =======  =========================================================================
symbol          code          shape    equation
==============  ============  =======  =========================================================================
f(x)            ``f``         N x K    out-of-sample class probabilities
P               ``P``                  mean over items of the share of their votes that agree with y
s_m             ``s``         M        share of the other votes on m's items that agree with m's
A                                      share of items where the classifier's class is y
B                                      share of items where the most frequent class is y: the baseline
w_m             ``w``         M        1 - (1 - s_m) / (1 - B)
w_0             ``w0``                 ( 1 - (1 - A) / (1 - B) ) sqrt( mean number of votes per item )
==============  ============  =======  =========================================================================

The consensus label is the likeliest class under q, and the classifier that predicts new inputs is trained on those.
With votes, ``predict_proba`` uses the same ensemble; items of the fit (the same name and input) keep their
out-of-sample prediction in it, since the classifier has since learned from their votes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise import registry
from crowdwise.core import em, starts
from crowdwise.core.consensus import Consensus, Outcome
from crowdwise.core.constraints import Bounds, Check, Count, MethodKey, NonNegative, Positive, declared
from crowdwise.core.dependence import Setting
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints, clamp, decide, normalise, safe_log, winners
from crowdwise.core.unseen import with_unseen
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.devices import as_array, entries, log_softmax
from crowdwise.learners.head import FLOOR, Head, count_confusion, cross_entropy
from crowdwise.learners.learner import Learner
from crowdwise.learners.tabular import Tabular
from crowdwise.learners.trainer import Stages, Trainer, TrainingData
from crowdwise.learners.training_settings import Callback, EpochRounds
from crowdwise.learners.vote_edges import Batch, Edges, used_items


class FixedTargets(Head):
    """The labels of a first stage as targets, and its confusion matrices where it has any.

    Below 1, ``beta`` is their share in the targets; the rest is the network's prediction, whose entropy is then part of
    the loss.
    """

    target: Tensor

    def __init__(
        self, n_annotators: int, n_classes: int, target: Tensor, confusion: Tensor | None = None, beta: float = 1.0
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes)
        self.register_buffer("target", target, persistent=False)
        self.has_confusion, self.beta = confusion is not None, beta
        if confusion is not None:
            self.counted = confusion

    def loss(self, batch: Batch) -> Tensor:
        target = self.target[batch.index].to(batch.logits.dtype)
        if self.beta < 1.0:
            target = self.beta * target + (1.0 - self.beta) * batch.log_f.exp()
        return cross_entropy(target, batch.logits)

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        if not self.has_confusion:
            super().finish(log_f, edges)


@declared
class TwoStage(Learner):
    """Aggregate the votes with any method for votes, then train on its labels.

    Held-out votes are held out of both stages, and gold is used by both.

    Parameters
    ----------
    aggregator
        The key of the first stage: ``"majority"``, ``"dawid-skene"``... (``crowdwise methods`` lists them).
    labels
        Train on the ``"hard"`` consensus labels, where a tie counts for all its classes evenly, or on the ``"soft"``
        posterior.
    settings
        Parameters of the first stage's method, by name.

    Attributes
    ----------
    first_stage_
        The consensus of the first stage (not saved).

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=3, random_state=0)
    >>> learner = TwoStage(aggregator="dawid-skene", settings={"max_iter": 50}, epochs=20, random_state=0)
    >>> learner = learner.fit(crowd.features["x_train"], crowd.votes)
    >>> bool((learner.predict(crowd.features["x_train"]) == crowd.truth).mean() > 0.8)
    True
    """

    key: ClassVar[str] = "two-stage"
    aggregator: MethodKey = "majority"
    labels: Literal["hard", "soft"] = "hard"
    settings: Annotated[Any, Check(lambda value: isinstance(value, Mapping), "parameters by name")] | None = None

    def _check_together(self) -> None:
        super()._check_together()
        self._model().check_parameters()

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        gold = None if self.select == "gold" else data.gold
        self.first_stage_: Consensus = self._model().fit(data.votes, gold).consensus_
        return super()._train(data, callback)

    def _model(self) -> Any:
        """The first stage, with the learner's seed unless its settings name another."""
        return registry.create(self.aggregator, **{"random_state": getattr(self, "seed_", 0), **(self.settings or {})})

    def _head(self, votes: Votes, hidden: int) -> Head:
        M, K, beta = votes.n_annotators, votes.n_classes, getattr(self, "beta", 1.0)
        stage = getattr(self, "first_stage_", None)
        if stage is None:  # of a loaded learner, which needs none
            return FixedTargets(M, K, torch.full((len(votes), K), 1.0 / K), None, beta)
        q = stage.posterior if self.labels == "soft" else winners(stage.posterior)
        theta = None if stage.confusion is None else torch.tensor(np.array(stage.confusion), dtype=torch.float32)
        return FixedTargets(M, K, torch.tensor(np.array(q), dtype=torch.float32), theta, beta)


@declared
class SoftBootstrap(TwoStage):
    """Train on aggregated labels mixed with the network's own predictions.

    Parameters
    ----------
    beta
        The share of the label in the target; the rest is the network's current prediction.
    """

    key: ClassVar[str] = "soft-bootstrap"
    beta: Annotated[float, Bounds(above=0, maximum=1)] = 0.95


class SharedConfusion(Head):
    """theta[k, l] of the whole crowd, of all its votes or of its majorities."""

    majority: Tensor

    def __init__(self, n_annotators: int, n_classes: int, weight: float, per_vote: bool) -> None:
        super().__init__(n_annotators, n_classes)
        self.weight, self.per_vote = weight, per_vote
        self.rho = nn.Parameter(6.0 * torch.eye(n_classes) - 5.0)
        self.register_buffer("majority", torch.zeros(0, dtype=torch.int64), persistent=False)

    def start(self, votes: Votes) -> None:
        q = votes.shares()
        prior = np.bincount(votes.label, weights=votes.weights, minlength=votes.n_classes).astype(np.float64)
        self.majority = torch.as_tensor(decide(q, prior), dtype=torch.int64)

    @property
    def theta(self) -> Tensor:
        positive = functional.softplus(self.rho)
        return positive / positive.sum(dim=1, keepdim=True)

    def confusion(self) -> Tensor:
        # Of majorities, theta holds the errors of majorities, not of annotators.
        return self.theta.expand(self.n_annotators, -1, -1) if self.per_vote else self.counted

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        if not self.per_vote:
            self.counted = count_confusion(log_f.exp(), edges)

    def loss(self, batch: Batch) -> Tensor:
        theta = self.theta
        f, table = torch.softmax(batch.logits.detach(), dim=1), theta.detach().clamp_min(FLOOR)
        p = (f @ table).clamp_min(FLOOR)
        if self.per_vote:
            cell, c = batch.row * self.n_classes + batch.label, batch.weight / -batch.total_weight
        else:
            first = torch.arange(0, p.numel(), self.n_classes, device=p.device)
            cell, c = first + self.majority[batch.index], p.new_full((len(p),), -1.0 / len(p))
        at_label = p.take(cell)
        g = torch.zeros_like(p).put_(cell, c / at_label, accumulate=True)
        at_theta = (f.T @ g).add_(torch.eye(len(table), dtype=p.dtype, device=p.device), alpha=self.weight)
        value = (c * at_label.log()).sum() + self.weight * theta.detach().trace()
        return losses.with_gradients(value, (batch.logits, losses.through_softmax(f, g @ table.T)), (theta, at_theta))


@declared
class SingleConfusion(Learner):
    """One confusion matrix, of small trace, for the whole crowd.

    Parameters
    ----------
    weight
        The weight of the trace.
    labels
        What the matrix explains: all ``"votes"``, or, as in Tanno's paper, the ``"majority"`` of each item (then it
        holds the errors of majorities, and the annotators' matrices are counted against the network's predictions).

    Attributes
    ----------
    shared_confusion_
        K x K: P(label l, given truth k), the same for all annotators.
    """

    key: ClassVar[str] = "single-confusion"
    weight: NonNegative = 0.01
    labels: Literal["votes", "majority"] = "votes"

    @property
    def shared_confusion_(self) -> Floats:
        return as_array(self._fitted_head.theta)

    def _head(self, votes: Votes, hidden: int) -> Head:
        return SharedConfusion(votes.n_annotators, votes.n_classes, self.weight, self.labels == "votes")


CELLS = 2**22
"""How many probabilities (items x annotators x classes) are in memory together where all layers are averaged."""


class Doctors(Head):
    """A last layer for each annotator, all with the same first weights; those without votes are not averaged.

    Training takes W and b of the votes of a batch only; the average over all annotators is summed in blocks.
    """

    needs_hidden: ClassVar[bool] = True
    voted: Tensor

    def __init__(self, n_annotators: int, n_classes: int, hidden: int, average: str) -> None:
        super().__init__(n_annotators, n_classes)
        self.average = average
        bound = 1.0 / math.sqrt(hidden)
        first = torch.empty(n_classes, hidden).uniform_(-bound, bound)
        self.W = nn.Parameter(first.expand(n_annotators, -1, -1).clone())
        self.b = nn.Parameter(torch.zeros(n_annotators, n_classes))
        self.score = nn.Parameter(torch.zeros(n_annotators), requires_grad=False)
        self.register_buffer("voted", torch.ones(n_annotators, dtype=torch.bool))

    def start(self, votes: Votes) -> None:
        self.voted = torch.as_tensor(np.bincount(votes.annotator, minlength=self.n_annotators) > 0)

    def slow_parameters(self) -> list[nn.Parameter]:
        return [self.W, self.b]

    @property
    def log_weights(self) -> Tensor:
        """M: log of the weights in the average, which sum to one over the annotators with votes."""
        return torch.log_softmax(self.score.masked_fill(~self.voted, -math.inf), dim=0)

    def votes_log(self, batch: Batch) -> Tensor:
        """E x K: log g of each vote's annotator for the vote's item; annotators must be of the fit."""
        assert batch.hidden is not None
        logits = torch.bmm(self.W[batch.annotator], batch.hidden[batch.row][:, :, None])[:, :, 0]
        return log_softmax(logits + self.b[batch.annotator], dim=1)

    def loss(self, batch: Batch) -> Tensor:
        return -batch.mean(entries(self.votes_log(batch), batch.label))

    def predict_log_probs(self, batch: Batch) -> Tensor:
        assert batch.hidden is not None
        voted = torch.nonzero(self.voted)[:, 0]
        weight = self.log_weights[voted].exp()
        size = max(1, CELLS // max(1, len(batch) * self.n_classes))
        # By additions, not by the number of rows, which an export would fix.
        total = torch.zeros_like(batch.hidden[:, :1]) + batch.hidden.new_zeros(self.n_classes)
        for lo in range(0, len(voted), size):
            block = voted[lo : lo + size]
            logits = torch.einsum("bh,akh->bak", batch.hidden, self.W[block]) + self.b[block]
            log_g = log_softmax(logits, dim=2)
            value = log_g if self.average == "log-probabilities" else log_g.exp()
            total = total + torch.einsum("a,bak->bk", weight[lo : lo + size], value)
        if self.average == "log-probabilities":
            return torch.log_softmax(total, dim=1)
        return (total / total.sum(dim=1, keepdim=True)).clamp_min(FLOOR).log()

    def vote_log_probs(self, batch: Batch) -> Tensor:
        """By the annotator's own layer; unseen annotators, and those without votes, as in :class:`Head`."""
        known = self.known_codes(batch)
        own = (batch.annotator < self.n_annotators) & self.voted[known]
        log_p = entries(self.votes_log(replace(batch, annotator=known)), batch.label)
        return log_p if bool(own.all()) else torch.where(own, log_p, super().vote_log_probs(batch))


class WeightedDoctors(Doctors):
    """Doctors whose weights are learned in a second stage, with the layers fixed."""

    def train_weights(self, network: nn.Module) -> None:
        """From now on, train the weights alone."""
        for module in (network, self):
            module.requires_grad_(False)
        self.score.requires_grad_(True)
        self.network_frozen = True

    def loss(self, batch: Batch) -> Tensor:
        if not self.network_frozen:
            return super().loss(batch)
        log_g = self.votes_log(batch)
        # Each item's weights are normalised over its own annotators.
        weight = batch.weight * (self.score - self.score.detach().max()).exp()[batch.annotator]
        norm = batch.total(weight[:, None])
        voted = norm[:, 0] > 0.0
        weight = weight[:, None] / norm.clamp_min(FLOOR)[batch.row]
        if self.average == "log-probabilities":
            log_p = torch.log_softmax(batch.total(weight * log_g), dim=1)
        else:
            log_p = batch.total(weight * log_g.exp()).clamp_min(FLOOR).log()
        share = batch.total(batch.weight[:, None] * functional.one_hot(batch.label, self.n_classes))
        share = share / share.sum(dim=1, keepdim=True).clamp_min(FLOOR)
        return -(share * log_p).sum() / voted.sum().clamp_min(1)


@declared
class DoctorNet(Learner):
    """A last layer for each annotator, trained on their votes; the prediction is the average of all.

    Parameters
    ----------
    average
        Of the annotators' ``"probabilities"``, or of their ``"log-probabilities"`` (then normalised).

    Attributes
    ----------
    weights_
        M: each annotator's weight in the average; they sum to one, are equal unless learned, and zero without votes.
    """

    key: ClassVar[str] = "doctor-net"
    average: Literal["probabilities", "log-probabilities"] = "probabilities"

    @property
    def weights_(self) -> Floats:
        return as_array(self._fitted_head.log_weights.exp())

    def _head(self, votes: Votes, hidden: int) -> Head:
        return Doctors(votes.n_annotators, votes.n_classes, hidden, self.average)

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        return {"annotator_columns": {"weight": self.weights_}}


@declared
class WeightedDoctorNet(DoctorNet):
    """Annotators' last layers, averaged with weights that a second stage learns.

    Parameters
    ----------
    crowd_lr
        Learning rate of the weights.
    weight_epochs
        Epochs of the second stage, after ``epochs`` of the first; ``select`` and ``patience`` act in the first.
    """

    key: ClassVar[str] = "weighted-doctor-net"
    crowd_lr: Positive = 3e-2
    weight_epochs: Count = 10

    def _head(self, votes: Votes, hidden: int) -> Head:
        return WeightedDoctors(votes.n_annotators, votes.n_classes, hidden, self.average)

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        stages = Stages(self.epochs + self.weight_epochs, callback)
        trainer = self._prepare(data)
        stages.run(trainer, self.checkpoint)
        head = trainer.head
        assert isinstance(head, WeightedDoctors)
        if not stages.ended:
            head.train_weights(trainer.network)
            stages.run(trainer.again(self.weight_epochs))
        self.history_ = stages.history
        return trainer


SPREADS = (1.0, 3.0)
"""Of the logits of softmax regression: texts ask for the first, a few good features for the second."""
LEAST = 1e-6
"""The smallest weight: an annotator no better than the most frequent class has it, and counts only where all do."""


class Weights(NamedTuple):
    """The weights of the ensemble."""

    annotators: Floats
    classifier: float
    agreement: float
    """P, the probability that a vote is right."""


def weigh(f: Floats, votes: Votes, y: npt.NDArray[np.integer[Any]]) -> Weights:
    """P, w_m and w_0 from out-of-sample probabilities, votes and majority labels.

    Annotators who share no item with others get the mean agreement of those who do. Where no two annotators share an
    item, all weights are the same, and P is the agreement with the classifier.
    """
    M, K = votes.n_annotators, votes.n_classes
    item, label, v = votes.item, votes.label, votes.weights
    total = np.bincount(item, weights=v, minlength=len(votes))
    several = np.diff(votes.indptr) > 1
    best = f.argmax(axis=1)
    if not several.any():
        P = float((v * (best[item] == label)).sum() / max(v.sum(), LEAST))
        return Weights(np.ones(M), 1.0, max(P, 1.0 / K))
    counts = np.zeros((len(votes), K))
    np.add.at(counts, (item, label), v)
    P = float((counts[several, y[several]] / total[several]).mean())
    agree = np.bincount(votes.annotator, weights=v * (counts[item, label] - v), minlength=M)
    others = np.bincount(votes.annotator, weights=v * (total[item] - v), minlength=M)
    s = np.divide(agree, others, out=np.full(M, agree.sum() / others.sum()), where=others > 0.0)
    common = np.bincount(label, weights=v, minlength=K).argmax()
    A, B = float((best == y)[several].mean()), float((y == common)[several].mean())
    baseline = max(1.0 - B, LEAST)
    w = np.maximum(1.0 - (1.0 - s) / baseline, LEAST)
    w0 = max((1.0 - (1.0 - A) / baseline) * float(np.sqrt(total[several].mean())), LEAST)
    return Weights(w, w0, P)


def combine(f: Floats, votes: Votes, weights: Weights) -> Floats:
    """q: N x K. Unseen annotators have the mean weight."""
    N, K = f.shape
    w = with_unseen(weights.annotators, votes.n_annotators, weights.annotators.mean())
    v = votes.weights * w[votes.annotator]
    P, other = weights.agreement, (1.0 - weights.agreement) / (K - 1)
    q = weights.classifier * f
    np.add.at(q, (votes.item, votes.label), v * (P - other))
    q += other * np.bincount(votes.item, weights=v, minlength=N)[:, None]
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def deal(y: npt.NDArray[np.integer[Any]], used: npt.NDArray[np.bool_], folds: int, rng: np.random.Generator) -> Ints:
    """N: the fold of each item, with every class spread evenly over the folds."""
    order = rng.permutation(len(y))
    order = order[np.lexsort((y[order], ~used[order]))]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % max(folds, 1)
    return fold


@declared
class Crowdlab(Tabular):
    """A classifier's out-of-sample predictions and the votes, averaged with weights from agreement.

    Parameters
    ----------
    dependence
        As for every learner; not by default, since averages of votes are not products.
    spread
        Of ``"logistic"``: the prior standard deviation of its logits (a larger one fits more freely). By default the
        one of 1 and 3 whose out-of-sample predictions make the labels more likely.
    n_folds
        Of the cross-validation: each item is predicted by a classifier that has not seen its fold.

    Attributes
    ----------
    weights_
        M: weights of the annotators in the ensemble.
    classifier_weight_
        The weight of the classifier.
    agreement_
        P, the probability that a vote is right.
    spread_
        The spread that was used.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=2, random_state=0)
    >>> learner = Crowdlab(random_state=0).fit(crowd.features["x_train"], crowd.votes)
    >>> bool(learner.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth))
    True
    """

    key: ClassVar[str] = "crowdlab"
    saved: ClassVar[tuple[str, ...]] = ("spread_",)
    dependence: Setting = "none"
    spread: Positive | None = None
    spread_: float = field(init=False)
    n_folds: Annotated[int, Bounds(minimum=2)] = 5

    def _fit_model(self, x: Any, votes: Votes, gold: Ints | None, callback: Callback | None) -> Outcome:
        K = votes.n_classes
        rng = np.random.default_rng(self.seed_)
        used = used_items(votes, gold)
        votes_for = np.bincount(votes.label, weights=votes.weights, minlength=K).astype(np.float64)
        tied = starts.majority(votes, gold)
        fold = deal(tied.argmax(axis=1), used, min(self.n_folds, int(used.sum())), rng)
        if self.spread is None and isinstance(self.classifier, str):
            each = {one: self._out_of_sample(x, tied, used, fold, one) for one in SPREADS}
            self.spread_ = max(each, key=lambda one: float((tied * safe_log(each[one]))[used].sum()))
            f = each[self.spread_]
        else:
            self.spread_ = self.spread or SPREADS[0]
            f = self._out_of_sample(x, tied, used, fold, self.spread_)
        y = np.where(tied > 0.0, f, -1.0).argmax(axis=1)
        self.weights_, self.classifier_weight_, self.agreement_ = weigh(f, votes, y)
        q = clamp(combine(f, votes, self._weights()), gold)
        label = decide(q, votes_for)
        self.model_ = self._data_model(x.shape[1], K, self.spread_)
        self.model_.fit(x, np.eye(K)[label] * self._mass(used))
        self._unseen, self._seen = f, self.model_.log_probs(x)
        self.theta_ = count(q, votes)
        rounds = EpochRounds(1, 1.0, self.history_, callback)
        for _ in rounds:
            rounds.reached(float(np.log(np.maximum(f[used, label[used]], 1e-300)).mean()), converged=True)
        return Outcome(
            posterior=q, prior=q.mean(axis=0), confusion=self.theta_, annotator_columns={"weight": self.weights_},
            item_prior=safe_log(f), **rounds.outcome,
        )  # fmt: skip

    def _out_of_sample(self, x: Any, t: Floats, used: npt.NDArray[np.bool_], fold: Ints, spread: float) -> Floats:
        """N x K: each item predicted by a classifier trained on the labels t of the other folds."""
        N, K = t.shape
        f = np.full((N, K), 1.0 / K)
        if fold.max(initial=0) == 0:  # only the item itself to learn from
            return f
        for k in range(fold.max() + 1):
            model = self._data_model(x.shape[1], K, spread)
            model.fit(x, t * self._mass(used & (fold != k)))
            f[fold == k] = np.exp(model.log_probs(x[fold == k]))
        return np.asarray(f / f.sum(axis=1, keepdims=True))

    def _weights(self) -> Weights:
        return Weights(self.weights_, self.classifier_weight_, self.agreement_)

    def _posterior(self, log_f: Floats, votes: Votes) -> Floats:
        # The classifier has learned from the votes on items of the fit: they keep their out-of-sample prediction.
        at = encoding.locate(votes.items, self.consensus_.items)
        same = (at >= 0) & np.isclose(log_f, self._seen[at], rtol=1e-6, atol=1e-9).all(axis=1)
        return combine(np.where(same[:, None], self._unseen[at], np.exp(log_f)), votes, self._weights())

    def _arrays(self) -> dict[str, Floats]:
        ensemble = np.append(self.weights_, [self.classifier_weight_, self.agreement_])
        return super()._arrays() | {"ensemble": ensemble, "seen": self._seen, "unseen": self._unseen}

    def _restore_arrays(self, arrays: dict[str, Floats]) -> None:
        ensemble = arrays["ensemble"]
        self.weights_ = ensemble[:-2]
        self.classifier_weight_, self.agreement_ = float(ensemble[-2]), float(ensemble[-1])
        self._seen, self._unseen = arrays["seen"], arrays["unseen"]
        super()._restore_arrays(arrays)


def count(q: Floats, votes: Votes) -> Floats:
    """M x K x K confusion matrices against a posterior, each row with one pseudo-vote distributed like the crowd's."""
    table = em.statistics(Part.of(votes), q).table().transpose(0, 2, 1)
    crowd = table.sum(axis=0) + 1.0 / votes.n_classes
    return normalise(table + crowd / crowd.sum(axis=1, keepdims=True), axis=2)
