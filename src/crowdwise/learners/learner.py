"""Classifiers learned from inputs and votes: ``fit(X, votes)``, and then they work like any of scikit-learn's.

A learner is a network, a head (what its method adds) and the one training loop. Its parameters are the fields of its
class: those listed in :class:`Learner`, and the method's own.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from torch import Tensor, nn

from crowdwise.core.checks import check_choice, check_count, check_flag, check_number
from crowdwise.core.consensus import Consensus, build_consensus
from crowdwise.core.model import Outcome, recode
from crowdwise.core.numerics import Floats, decide, safe_log
from crowdwise.core.result import Result, plain
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, NotFittedError, ParameterError
from crowdwise.learners import networks
from crowdwise.learners.devices import find_device, seeded
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import Inputs, Scale, as_inputs
from crowdwise.learners.saving import read_learner, write_learner
from crowdwise.learners.targets import as_votes, check_together
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training import OPTIMISERS, SCHEDULES, SELECT, Callback, Epoch, Plan
from crowdwise.learners.vote_edges import Edges, split

HOLDOUT = 0.1
"""The share of votes held out where something is to be chosen by them and no share is given."""


class UnfittedError(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]
    """A result was asked of a learner that has not been fitted; caught by scikit-learn's name for it, too."""


@dataclass(kw_only=True, eq=False, repr=False)
class Learner(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What all learners share.

    Parameters
    ----------
    network
        ``"mlp"``, ``"linear"``, ``"cnn"``, ``"resnet18"``... (see :mod:`crowdwise.learners.networks`), a torch module
        (copied before training), or a function of (shape of an input, number of classes) that makes one.
    epochs, batch_size, optimiser, schedule, weight_decay, clip
        Of training: ``"adam"``, ``"adamw"`` or ``"sgd"``; a learning rate that is ``"constant"``, or follows
        ``"cosine"``, ``"step"`` or ``"one-cycle"``; gradients are cut to the norm ``clip`` where it is given.
    lr, crowd_lr
        Learning rates of the network, and of what is learned about annotators.
    scale
        Bring inputs to mean 0 and deviation 1 first (learned from the training data, saved with the network).
    holdout
        Share of the votes kept out of training to be judged by; by default a tenth where ``select`` or ``patience``
        needs them, else none.
    select
        Which epoch is kept: the ``"last"``, the best by held-out ``"votes"``, or the best by the ``"gold"`` that was
        handed to ``fit`` (which is then not trained on).
    patience
        Stop after so many epochs without a better score on what was held out.
    device, precision
        ``"auto"``: CUDA, else MPS, else the CPU; bfloat16 for the network where CUDA has it, else float32.
    checkpoint
        A file to write after every epoch, and to go on from where it exists.
    random_state
        Seed of everything random; a fresh one by default, kept as ``seed_``.
    """

    key: ClassVar[str]
    result: ClassVar[type[Result]] = Consensus
    """What a fit ends in."""

    network: Any = "mlp"
    epochs: int = 50
    batch_size: int = 64
    lr: float = 1e-3
    crowd_lr: float = 1e-2
    weight_decay: float = 1e-4
    optimiser: str = "adam"
    schedule: str = "constant"
    clip: float | None = None
    scale: bool = True
    holdout: float | None = None
    select: str = "last"
    patience: int | None = None
    device: str = "auto"
    precision: str = "auto"
    checkpoint: Any = None
    random_state: int | None = None

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The names of the parameters and their defaults."""
        return {f.name: f.default for f in fields(cls)}

    # ---------------------------------------------------------------- for subclasses

    _kept: ClassVar[tuple[str, ...]] = ()
    """What a fit found out that is no tensor of network or head, and is to be saved with them."""

    @abstractmethod
    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        """The head, for these votes (without those held out), inputs of a shape and a last layer of ``hidden``."""

    def _check_parameters(self) -> None:
        """Complain of parameters out of range; subclasses add their own."""
        check_count(self, "epochs")
        check_count(self, "batch_size")
        if self.patience is not None:
            check_count(self, "patience")
        check_number(self, "lr", above=0.0)
        check_number(self, "crowd_lr", above=0.0)
        check_number(self, "weight_decay", least=0.0)
        if self.clip is not None:
            check_number(self, "clip", above=0.0)
        check_flag(self, "scale")
        check_choice(self, "optimiser", OPTIMISERS)
        check_choice(self, "schedule", tuple(SCHEDULES))
        check_choice(self, "select", SELECT)
        check_choice(self, "precision", ("auto", "float32", "bfloat16"))
        if self.holdout is not None:
            check_number(self, "holdout", least=0.0)
            if not self.holdout < 1.0:
                raise ParameterError(f"holdout={self.holdout!r}: expected a share of the votes, from 0 to under 1.")
            if self.holdout == 0.0 and self._needs_held_out():
                raise ParameterError("holdout=0.0 leaves no votes to select or stop by: leave it out, or give a share.")
        if self.random_state is not None and not (
            isinstance(self.random_state, (int, np.integer)) and self.random_state >= 0
        ):
            raise ParameterError(f"random_state={self.random_state!r}: expected a non-negative integer or None.")

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, gold: Any = None, *, callback: Callback | None = None) -> Self:
        """Learn from inputs and votes.

        Parameters
        ----------
        X
            One input per item of the votes, in their order: an array, sparse matrix, tensor, torch ``Dataset``,
            or a folder of images named like the items.
        y
            :class:`~crowdwise.Votes`; or an N x M array of labels with NaN where there is none; or N labels, as
            those of a single annotator.
        gold
            The class of items where it is known (a mapping from item to class, or N codes with -1): trained on as
            a vote that is always right, or kept to choose the epoch by with ``select="gold"``.
        callback
            Called with a :class:`crowdwise.learners.trainer.Epoch` after every epoch; training stops where it returns
            True.
        """
        began = time.perf_counter()
        self._check_parameters()
        votes = as_votes(y)
        inputs = as_inputs(X, votes.items)
        check_together(inputs, votes)
        known = None if gold is None else votes.encode_truth(gold)
        if self.select == "gold" and (known is None or not (known >= 0).any()):
            raise InputError("select='gold' chooses the epoch by known answers: give them, fit(X, votes, gold=...).")
        self.seed_ = seed_of(self.random_state)
        self.classes_, self.annotators_ = votes.classes, votes.annotators
        self.shape_ = inputs.shape
        if len(inputs.shape) == 1:
            self.n_features_in_ = inputs.shape[0]
        train, held = self._split(votes)
        self._train(inputs, train, held, known, callback)
        self.consensus_ = self._consensus(inputs, votes, known, time.perf_counter() - began)
        return self

    def _needs_held_out(self) -> bool:
        """Whether something is to be chosen by votes that were not trained on."""
        return self.select == "votes" or (self.patience is not None and self.select == "last")

    def _split(self, votes: Votes) -> tuple[Votes, Votes | None]:
        share = self.holdout if self.holdout is not None else HOLDOUT if self._needs_held_out() else 0.0
        if share == 0.0:
            return votes, None
        train, held = split(votes, share, np.random.default_rng(self.seed_))
        if held.n_votes == 0 or train.n_votes == 0:
            raise InputError(f"holdout={share:g} of {votes.n_votes} votes leaves one side empty: give more votes.")
        return train, held

    def _train(
        self, inputs: Inputs, train: Votes, held: Votes | None, gold: npt.NDArray[np.int32] | None,
        callback: Callback | None,
    ) -> None:  # fmt: skip
        self._trainer = self._prepare(inputs, train, held, gold)
        self.history_: list[Epoch] = self._trainer.run(callback, self.checkpoint)

    def _prepare(
        self, inputs: Inputs, train: Votes, held: Votes | None, gold: npt.NDArray[np.int32] | None
    ) -> Trainer:  # fmt: skip
        """Network, head and loop, before the first epoch."""
        device = find_device(self.device)
        with seeded(device):
            torch.manual_seed(self.seed_)
            network, head = self._build(train, inputs.shape, Scale.of(inputs) if self.scale else None)
            return Trainer(network, head, inputs, train, self._plan(), held=held, truth=gold, device=device)

    def _build(self, votes: Votes, shape: tuple[int, ...], scale: Scale | None) -> tuple[nn.Module, Head]:
        body = networks.build(self.network, shape, votes.n_classes)
        hidden = networks.hidden_layer(body).in_features
        network = nn.Sequential(Scale.identity(shape) if scale is None else scale, body)
        return network, self._head(votes, shape, hidden)

    def _plan(self) -> Plan:
        given = {f.name: getattr(self, f.name) for f in fields(Plan) if f.name != "seed"}
        return Plan(seed=self.seed_, **given)

    def _consensus(self, inputs: Inputs, votes: Votes, gold: npt.NDArray[np.int32] | None, seconds: float) -> Consensus:
        trainer = self._trainer
        q, f = self._posterior(trainer, votes)
        prior = f.mean(axis=0)
        last = self.history_[-1]
        outcome = Outcome(
            posterior=q,
            prior=prior,
            confusion=self.confusion_,
            trace=-np.array([epoch.loss for epoch in self.history_]),
            iterations=last.epoch,
            item_prior=safe_log(f),
            **self._columns(trainer),
        )
        return build_consensus(
            self.key,
            {name: plain(value) for name, value in self.get_params(deep=False).items()},
            votes,
            outcome,
            labels=decide(q, prior, "prior", np.random.default_rng(self.seed_)),
            seed=self.seed_,
            seconds=seconds,
            gold=gold,
        )

    def _posterior(self, trainer: Trainer, votes: Votes) -> tuple[Floats, Floats]:
        """N x K probabilities of the items of the fit, given inputs and votes; N x K, given inputs alone."""
        log_q, log_f = [], []
        for batch in trainer.batches(Edges.of(votes, trainer.device)):
            log_f.append(trainer.head.predict_log_probs(batch))
            log_q.append(trainer.head.forecast(batch))
        return probabilities(torch.cat(log_q)), probabilities(torch.cat(log_f))

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        """What else the method knows: ``annotator_columns`` and ``item_columns`` of the consensus."""
        return {}

    # ---------------------------------------------------------------- using it

    @property
    def confusion_(self) -> Floats:
        """M x K x K: P(annotator m says l, given truth k), in the order of ``annotators_`` and ``classes_``."""
        self._fitted()
        with torch.no_grad():
            theta = self._trainer.head.confusion().double().cpu().numpy()
        return np.asarray(theta / theta.sum(axis=2, keepdims=True))

    def predict_proba(self, X: Any, votes: Votes | None = None) -> Floats:
        """N x K class probabilities from the inputs; with ``votes``, from inputs and votes together."""
        self._fitted()
        inputs = self._inputs(X, None if votes is None else votes.items)
        trainer = self._trainer
        if votes is None:
            return probabilities(trainer.log_probs(inputs))
        if not isinstance(votes, Votes):
            raise InputError(f"Expected votes as Votes and found {type(votes).__name__}.")
        check_together(inputs, votes)
        edges = Edges.of(recode(votes, self.consensus_), trainer.device)
        log_q = [trainer.head.forecast(batch) for batch in trainer.batches(edges, inputs)]
        return probabilities(torch.cat(log_q))

    def predict(self, X: Any, votes: Votes | None = None) -> npt.NDArray[Any]:
        """The most probable class of each input."""
        q = self.predict_proba(X, votes)
        return np.asarray(self.classes_[q.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy, for true labels; for votes their mean log likelihood, the truth of votes being unknown."""
        if isinstance(y, Votes):
            self._fitted()
            inputs = self._inputs(X, y.items)
            check_together(inputs, y)
            edges = Edges.of(recode(y, self.consensus_), self._trainer.device)
            head = self._trainer.head
            total = sum(
                float((b.weight * head.vote_log_probs(b)).sum()) for b in self._trainer.batches(edges, inputs)
            )  # fmt: skip
            return total / float(y.weights.sum())
        return float(super().score(X, y, sample_weight))

    def _inputs(self, X: Any, names: npt.NDArray[Any] | None = None) -> Inputs:
        inputs = as_inputs(X, names)
        if inputs.shape != self.shape_:
            if len(self.shape_) == 1 and len(inputs.shape) == 1:
                raise InputError(
                    f"X has {inputs.shape[0]} features, but {type(self).__name__} is expecting {self.shape_[0]} "
                    "features as input."
                )
            raise InputError(f"An input has the shape {inputs.shape}; the learner was fitted with {self.shape_}.")
        return inputs

    def _fitted(self) -> None:
        if not hasattr(self, "_trainer"):
            raise UnfittedError(f"This {type(self).__name__} has not been fitted: call fit(X, votes) first.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trainer")

    def __sklearn_tags__(self) -> Any:
        return learner_tags(super().__sklearn_tags__())

    # ---------------------------------------------------------------- keeping it

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the learner to a folder (JSON, safetensors and its consensus), all or nothing."""
        self._fitted()
        return write_learner(folder, self, kept={name: plain(getattr(self, name)) for name in self._kept})

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, network: Any = None, device: str = "auto") -> Self:
        """Read what :meth:`save` wrote. A network that was not named but handed over must be handed over again."""
        folder = Path(folder)
        facts, tensors = read_learner(folder, cls.key, network)
        params = facts["params"] | {"device": device, "checkpoint": None}
        learner = cls(**(params if network is None else params | {"network": network}))
        learner.consensus_ = cls.result.load(folder / "consensus")  # type: ignore[assignment]
        learner._restore(facts, tensors)
        return learner

    def _classes_of(self, found: Any) -> npt.NDArray[Any]:
        """The labels that annotators had to choose from, by the result of the fit."""
        return np.asarray(found.classes)

    def _restore(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        found = self.consensus_
        self.classes_, self.annotators_ = self._classes_of(found), found.annotator_names
        self.seed_, self.shape_ = facts["seed"], tuple(facts["shape"])
        if len(self.shape_) == 1:
            self.n_features_in_ = self.shape_[0]
        self.history_ = [Epoch(**epoch) for epoch in facts["history"]]
        for name in self._kept:
            setattr(self, name, facts["kept"][name])
        # One vote by each annotator is enough to make a head of the right size; its tensors are read.
        M = len(self.annotators_)
        votes = Votes(
            np.array([0, M]), np.arange(M, dtype=np.int32), np.zeros(M, dtype=np.int32), found.item_names[:1],
            self.annotators_, self.classes_,
        )  # fmt: skip
        network, head = self._build(votes, self.shape_, None)
        self._trainer = Trainer(
            network, head, as_inputs(np.zeros((1, *self.shape_), dtype=np.float32)), votes, self._plan(),
            device=self.device,
        )  # fmt: skip
        for name, module in (("network", network), ("head", head)):
            own = {n.removeprefix(f"{name}."): t for n, t in tensors.items() if n.startswith(f"{name}.")}
            for tensor, value in own.items():  # sizes may depend on the votes trained on
                place, _, leaf = tensor.rpartition(".")
                owner, value = module.get_submodule(place), value.to(self._trainer.device)
                if leaf in owner._buffers:
                    owner._buffers[leaf] = value
                elif getattr(owner, leaf).shape != value.shape:
                    setattr(owner, leaf, nn.Parameter(value))
            module.load_state_dict(own)


# -------------------------------------------------------------------- pieces


def learner_tags(tags: Any) -> Any:
    """What scikit-learn is to know of learners: they take sparse matrices, and images."""
    tags.input_tags.sparse = tags.input_tags.three_d_array = True
    return tags


def seed_of(random_state: int | None) -> int:
    if random_state is not None:
        return int(random_state)
    return int(np.random.SeedSequence().generate_state(1)[0])


def probabilities(log_q: Tensor) -> Floats:
    q = log_q.double().exp().cpu().numpy()
    return np.asarray(q / q.sum(axis=1, keepdims=True))
