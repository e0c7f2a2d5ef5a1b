"""Simple ways to learn from votes, and what every other learner is compared with.

=======================  ==========================================================================================
``two-stage``            aggregate the votes first, with any method; then train on the labels
``soft-bootstrap``       the same, with targets that the network itself may correct
``single-confusion``     one confusion matrix for all annotators, after the network
=======================  ==========================================================================================

====================  ==============  ===========  ============================================================
symbol                code            shape        equation
====================  ==============  ===========  ============================================================
f(x)                  ``log_f``       B x K        softmax of the network
t[n, k]               ``target``      N x K        the label (or the posterior) of the first stage
theta[k, l]           ``rho``         K x K        row-normalised softplus of rho: P(any annotator says l | k)
====================  ==============  ===========  ============================================================

    two-stage            loss = - mean_n sum_k t[n, k] log f(x_n)[k]
    soft-bootstrap       loss = - mean_n sum_k ( beta t[n, k] + (1 - beta) f(x_n)[k] ) log f(x_n)[k]
    single-confusion     loss = - mean over votes of log sum_k f(x)[k] theta[k, l]  +  weight * trace(theta)

When they fail: the two-stage learners never correct the first stage's mistakes by what the inputs say; one confusion
matrix cannot tell good annotators from bad ones. Beside them there are the doctor nets
(:mod:`crowdwise.learners.baselines_doctor_net`).

References: S. Reed et al., Training deep neural networks on noisy labels with bootstrapping, 2014. S. Sukhbaatar et
al., Training convolutional networks with noisy labels, 2014. R. Tanno et al., Learning from noisy labels by regularized
estimation of annotator confusion, CVPR 2019, for the last one, and the doctor nets, as baselines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise import registry
from crowdwise.core.checks import check_choice, check_number
from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Floats, decide
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners import losses
from crowdwise.learners.head import FLOOR, Head, count_confusion, cross_entropy
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.learner import Learner
from crowdwise.learners.training import Callback
from crowdwise.learners.vote_edges import Batch, Edges

# -------------------------------------------------------------------- labels first


class Labelled(Head):
    """Targets that a first stage has settled, and its confusion matrices where it has any."""

    target: Tensor

    def __init__(self, n_annotators: int, n_classes: int, target: Tensor, confusion: Tensor | None = None) -> None:
        super().__init__(n_annotators, n_classes)
        self.register_buffer("target", target, persistent=False)
        self.given = confusion is not None
        if confusion is not None:
            self.counted = confusion

    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(self.target[batch.index].to(batch.logits.dtype), batch.logits)

    def settle(self, log_f: Tensor, edges: Edges) -> None:
        if not self.given:
            super().settle(log_f, edges)


class Bootstrapped(Labelled):
    """Targets mixed with what the network says: the entropy of its answer is part of the loss, gradient and all."""

    def __init__(
        self, n_annotators: int, n_classes: int, target: Tensor, confusion: Tensor | None, beta: float
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes, target, confusion)
        self.beta = beta

    def loss(self, batch: Batch) -> Tensor:
        target = self.target[batch.index].to(batch.logits.dtype)
        mixed = self.beta * target + (1.0 - self.beta) * batch.log_f.exp()
        return cross_entropy(mixed, batch.logits)


@dataclass(kw_only=True, eq=False, repr=False)
class TwoStage(Learner):
    """Aggregate the votes with any method that looks at votes alone, then train on its labels.

    Votes that are held out are held out of both stages, and known truth is used by both.

    Parameters
    ----------
    aggregator
        The key of the first stage: ``"majority"``, ``"dawid-skene"``... (``crowdwise methods`` lists them).
    labels
        Train on the ``"hard"`` consensus labels, or on the ``"soft"`` posterior.
    settings
        Parameters of the first stage's method, by name.

    Attributes
    ----------
    first_stage_
        The consensus of the first stage (not kept by ``save``).

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=3, random_state=0)
    >>> learner = TwoStage(aggregator="dawid-skene", settings={"max_iter": 50}, epochs=20, random_state=0)
    >>> learner = learner.fit(crowd.features["x_train"], crowd.votes)
    >>> bool((learner.predict(crowd.features["x_train"]) == crowd.truth).mean() > 0.8)
    True
    """

    key: ClassVar[str] = "two-stage"
    aggregator: str = "majority"
    labels: str = "hard"
    settings: Any = None

    def _train(
        self, inputs: Inputs, train: Votes, held: Votes | None, gold: npt.NDArray[np.int32] | None,
        callback: Callback | None,
    ) -> None:  # fmt: skip
        known = None if self.select == "gold" else gold
        self.first_stage_: Consensus = self._model().fit(train, known).consensus_
        super()._train(inputs, train, held, gold, callback)

    def _model(self) -> Any:
        """The first stage, with the learner's seed unless its settings name another."""
        return registry.create(
            self.aggregator, **({"random_state": getattr(self, "seed_", 0)} | dict(self.settings or {}))
        )

    def _stage(self, votes: Votes) -> tuple[Tensor, Tensor | None]:
        """Targets and confusion matrices; a learner read from its folder has no first stage any more and needs none."""
        found = getattr(self, "first_stage_", None)
        if found is None:
            return torch.full((len(votes), votes.n_classes), 1.0 / votes.n_classes), None
        q = found.posterior if self.labels == "soft" else np.eye(votes.n_classes)[found.label_codes]
        theta = None if found.confusion is None else torch.tensor(np.array(found.confusion), dtype=torch.float32)
        return torch.tensor(np.array(q), dtype=torch.float32), theta

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return Labelled(votes.n_annotators, votes.n_classes, *self._stage(votes))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self, "labels", ("hard", "soft"))
        if self.settings is not None and not isinstance(self.settings, Mapping):
            raise ParameterError(f"settings={self.settings!r}: expected parameters of {self.aggregator}, or None.")
        self._model().check_parameters()


@dataclass(kw_only=True, eq=False, repr=False)
class SoftBootstrap(TwoStage):
    """Train on aggregated labels, a little of which the network's own answer replaces.

    Parameters
    ----------
    beta
        The share of the label in the target; the rest is what the network says now.
    aggregator, labels, settings
        Of the first stage, as in :class:`TwoStage`.
    """

    key: ClassVar[str] = "soft-bootstrap"
    beta: float = 0.95

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return Bootstrapped(votes.n_annotators, votes.n_classes, *self._stage(votes), beta=self.beta)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self, "beta", above=0.0)
        if self.beta > 1.0:
            raise ParameterError(f"beta={self.beta!r}: expected a share above 0, at most 1.")


# -------------------------------------------------------------------- one confusion matrix


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
        # Of majorities theta says how those err, not how annotators do.
        return self.theta.expand(self.n_annotators, -1, -1) if self.per_vote else self.counted

    def settle(self, log_f: Tensor, edges: Edges) -> None:
        if not self.per_vote:
            self.counted = count_confusion(log_f.exp(), edges)

    def loss(self, batch: Batch) -> Tensor:
        theta = self.theta
        f, table = torch.softmax(batch.logits.detach(), dim=1), theta.detach().clamp_min(FLOOR)
        p = (f @ table).clamp_min(FLOOR)
        if self.per_vote:
            cell, c = batch.row * self.n_classes + batch.label, batch.weight / -batch.weight.sum().clamp_min(1e-12)
        else:
            first = torch.arange(0, p.numel(), self.n_classes, device=p.device)
            cell, c = first + self.majority[batch.index], p.new_full((len(p),), -1.0 / len(p))
        said = p.take(cell)
        g = torch.zeros_like(p).put_(cell, c / said, accumulate=True)
        at_theta = (f.T @ g).add_(torch.eye(len(table), dtype=p.dtype, device=p.device), alpha=self.weight)
        value = (c * said.log()).sum() + self.weight * theta.detach().trace()
        return losses.known(value, (batch.logits, losses.through_softmax(f, g @ table.T)), (theta, at_theta))


@dataclass(kw_only=True, eq=False, repr=False)
class SingleConfusion(Learner):
    """One confusion matrix, of small trace, for the whole crowd.

    Parameters
    ----------
    weight
        Of the trace.
    labels
        What the matrix explains: every one of the ``"votes"``, or the ``"majority"`` of each item's (then it says how
        majorities err, and those of the annotators are counted against the network's answers).

    Attributes
    ----------
    shared_confusion_
        K x K: P(label l, given truth k), the same for everybody.
    """

    key: ClassVar[str] = "single-confusion"
    weight: float = 0.01
    labels: str = "votes"

    @property
    def shared_confusion_(self) -> Floats:
        self._fitted()
        head = self._trainer.head
        assert isinstance(head, SharedConfusion)
        return np.asarray(head.theta.detach().double().cpu().numpy())

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return SharedConfusion(votes.n_annotators, votes.n_classes, self.weight, self.labels == "votes")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self, "weight", least=0.0)
        check_choice(self, "labels", ("votes", "majority"))
