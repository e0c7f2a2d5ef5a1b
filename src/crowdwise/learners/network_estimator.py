"""Learners with a network: a head (what the method adds to a network), the training settings and the device."""

from __future__ import annotations

import os
from abc import abstractmethod
from copy import copy
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core.constraints import Bounds, Check, declared
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, ReadError
from crowdwise.learners import networks
from crowdwise.learners.devices import as_array, find_device, seeded
from crowdwise.learners.estimator import Estimator
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import Inputs, InputScale
from crowdwise.learners.trainer import Inference, Trainer, TrainingData
from crowdwise.learners.training_settings import Callback, TrainingSettings
from crowdwise.learners.vote_edges import split

HOLDOUT = 0.1
"""The share of answers held out where something is chosen by them and no share is given."""

NetworkChoice = Annotated[
    Any,
    Check(
        lambda value: isinstance(value, str) or callable(value),
        "the name of a network, a torch module, or a function of (shape, n_classes) that makes one",
        ("mlp",),
        (3, None),
    ),
]
FilePath = Annotated[Any, Check(lambda value: isinstance(value, (str, os.PathLike)), "a file", ("a.pt",), (3,))]


@declared
class NetworkEstimator(TrainingSettings, Estimator):
    """What all learners with a network share.

    Parameters
    ----------
    network
        ``"mlp"``, ``"linear"``, ``"cnn"``, ``"resnet18"``... (see :mod:`crowdwise.learners.networks`), a torch module
        (copied before training), or a function of (shape of an input, number of outputs) that makes one.
    epochs, batch_size, optimiser, schedule, weight_decay, clip
        Of training: ``"adam"``, ``"adamw"`` or ``"sgd"``; a learning rate that is ``"constant"``, or follows
        ``"cosine"``, ``"step"`` or ``"one-cycle"``; gradients are clipped to the norm ``clip`` where it is given.
    lr, crowd_lr
        Learning rates of the network, and of what is learned about annotators.
    backbone_lr
        The learning rate of all layers of the network but the last linear one, for a pretrained ``network``: 0 leaves
        them as they are, ``None`` (the default) is ``lr``. A module that does not give one number per class, such as a
        backbone without its classifier, gets a linear layer behind it.
    holdout
        Share of the answers held out of training to measure every epoch by; by default a tenth where ``select`` or
        ``patience`` needs them, else none.
    select
        Which epoch is selected: the ``"last"``, the best by held-out answers (``"votes"``), or, for classifiers, the
        best by the ``"gold"`` that was passed to ``fit`` (which is then not trained on).
    patience
        Stop after so many epochs without a better score on what was held out.
    measure_every
        Held-out answers are measured after every so many epochs, and after the last.
    augment
        Of images, in training: ``"flip"`` (mirrored), ``"crop"`` (moved and mirrored) or ``"cutout"`` (a square left
        out as well); see :mod:`crowdwise.learners.inputs`.
    mixup
        Train on mixtures of two inputs, whose shares are drawn from Beta(mixup, mixup), and of the losses of their
        votes; 0 for none.
    label_smoothing
        The share of the loss that is the cross-entropy against uniform labels.
    ema
        Predict with a moving average of the network's weights that decays by this factor at every step (0.999...);
        0 for the weights themselves.
    cuda_graphs
        Record the passes through the network once and replay them: for networks bound by launching kernels.
    compile
        Compile the network with ``torch.compile`` for batches of ``batch_size``: for long trainings on images, on a
        GPU; needs a C compiler.
    device, precision
        ``"auto"``: CUDA, else MPS, else the CPU; bfloat16 for the network where CUDA has it, else float32. Also
        ``"gpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"`` and ``"cpu"``.
    checkpoint, checkpoint_every
        A file to write after every so many epochs and after the last, and to continue from where it exists.
    """

    selects_epoch: ClassVar[bool] = True
    """Whether ``select="votes"`` can choose an epoch: not where several networks are averaged."""
    network: NetworkChoice = "mlp"
    holdout: Annotated[float, Bounds(minimum=0, below=1)] | None = None
    device: str = "auto"
    checkpoint: FilePath | None = None
    _trainer: Inference = field(init=False)

    def _check_together(self) -> None:
        super()._check_together()
        if self.holdout == 0.0 and self._needs_held_out():
            raise ParameterError("holdout=0.0 leaves no answers to select or stop by: leave it out, or give a share.")

    @abstractmethod
    def _head(self, votes: Votes, hidden: int) -> Head:
        """The head, for these votes (without those held out) and ``hidden`` inputs of the last layer."""

    @abstractmethod
    def _training_data(self, inputs: Inputs, answers: Any) -> tuple[Inputs, Any]:
        """Inputs and answers in the form of items and votes that the trainer takes."""

    def _build(self, votes: Votes, shape: tuple[int, ...], scale: InputScale) -> tuple[nn.Module, Head]:
        """Network and head, with their first weights."""
        body = networks.build(self.network, shape, self._n_outputs(votes))
        if not isinstance(self.network, str):
            if self.backbone_lr is not None:
                body = networks.with_classifier(body, shape, self._n_outputs(votes))
            networks.tried(body, shape, self._n_outputs(votes))
        head = self._head(votes, networks.hidden_layer(body).in_features)
        return self._whole_network(scale, body, votes), head

    def _rebuild(self, votes: Votes, shape: tuple[int, ...], scale: InputScale) -> tuple[nn.Module, Head]:
        """Network and head of a saved learner, whose tensors are read next."""
        return self._build(votes, shape, scale)

    @property
    def network_(self) -> nn.Module:
        """The fitted network, a torch module from inputs as they are (it standardises them) to logits."""
        self._fitted()
        return self._trainer.network

    def export_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write what predicts to an ONNX file: from ``inputs``, as they are, to ``probabilities`` (N x classes).

        The order of the classes is that of ``classes_``. Any number of inputs can be given at once. Needs ``onnx``.
        """
        self._fitted()
        if hasattr(self, "text_features_") and self.embed is None:
            raise ParameterError(
                "A learner of words cannot be exported: ONNX would lack the step from texts to numbers. Fit it to "
                "embeddings (embed=...), or save it."
            )
        return networks.write_onnx(_Predicts(self._trainer), self.shape_, path)

    def _n_outputs(self, votes: Votes) -> int:
        """How many numbers the network gives for an input."""
        return votes.n_classes

    def _whole_network(self, scale: InputScale, body: nn.Module, votes: Votes) -> nn.Module:
        """The network from raw inputs to logits."""
        return nn.Sequential(scale, body)

    def _choices(self) -> Any:
        """The labels that an annotator could choose from, in the votes that the trainer takes."""
        return self.classes_

    def _learn(self, inputs: Inputs, answers: Any, gold: Ints | None, callback: Callback | None) -> Trainer:
        find_device(self.device)  # before anything else is done
        inputs, votes = self._training_data(inputs, answers)
        train, held_out = self._split(votes)
        self._trainer = trainer = self._train(TrainingData(inputs, train, held_out, gold), callback)
        return trainer

    def _needs_held_out(self) -> bool:
        """Whether something is chosen by answers that were not trained on."""
        return self.select == "votes" or (self.patience is not None and self.select == "last")

    def _split(self, votes: Any) -> tuple[Any, Any]:
        """Votes to train on, and votes held out."""
        share = self.holdout if self.holdout is not None else HOLDOUT if self._needs_held_out() else 0.0
        if share == 0.0:
            return votes, None
        train, held_out = split(votes, share, np.random.default_rng(self.seed_))
        if held_out.n_answers == 0 or train.n_answers == 0:
            raise InputError(f"holdout={share:g} of {votes.n_answers} answers leaves one side empty: give more.")
        return train, held_out

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        """Train a network and set ``history_``; methods with several trainings do so in their own way."""
        trainer = self._prepare(data)
        self.history_ = trainer.run(callback, self.checkpoint)
        return trainer

    def _checkpoint_of(self, training: str) -> Path | None:
        """The checkpoint of one of several trainings, which is called after it."""
        if self.checkpoint is None:
            return None
        file = Path(self.checkpoint)
        return file.with_name(f"{file.stem}-{training}{file.suffix}")

    def _prepare(self, data: TrainingData) -> Trainer:
        """Network, head and loop, before the first epoch."""
        device = find_device(self.device)
        with seeded(device):
            torch.manual_seed(self.seed_)
            scale = InputScale.of(data.inputs, device) if self.scale else InputScale.identity(self.shape_)
            network, head = self._build(data.votes, self.shape_, scale)
            data = replace(data, weight=self._item_weight)
            self._trainer = trainer = Trainer(network, head, data, self._settings(), seed=self.seed_, device=device)
            return trainer

    def _settings(self) -> TrainingSettings:
        return TrainingSettings(**{name: getattr(self, name) for name in TrainingSettings.parameters()})

    @property
    def _fitted_head(self) -> Any:
        self._fitted()
        return self._trainer.head

    def _trace(self) -> dict[str, Any]:
        """Trace and number of epochs, for the result."""
        return {"trace": -np.array([epoch.loss for epoch in self.history_]), "iterations": self.history_[-1].epoch}

    def _confusions(self) -> Floats:
        """M x K x K: P(annotator m says l, given truth k)."""
        theta = as_array(self._fitted_head.confusion())
        return np.asarray(theta / theta.sum(axis=2, keepdims=True))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trainer")

    @classmethod
    def _loaded_params(cls, folder: Path, params: dict[str, Any], network: Any, device: str) -> dict[str, Any]:
        if params["network"] not in networks.NETWORKS and network is None:
            raise ReadError(
                f"The learner in {folder} has a network of your own: pass it again, load(..., network=...)."
            )
        return params | {"device": device, "checkpoint": None} | ({} if network is None else {"network": network})

    def _tensors(self) -> dict[str, Tensor]:
        return self._trainer.state()

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        # One vote by each annotator is enough to make a head of the right size; its tensors are read.
        M = len(self.annotators_)
        zeros = np.zeros(M, dtype=np.int32)
        votes = Votes.from_codes(
            zeros, np.arange(M), zeros, items=[0], annotators=self.annotators_, classes=self._choices()
        )
        network, head = self._rebuild(votes, self.shape_, InputScale.identity(self.shape_))
        self._trainer = Inference(network, head, self._settings(), self.device)
        self._trainer.load_state(tensors)


class _Predicts(nn.Module):
    """From inputs to class probabilities, by a network and its head."""

    def __init__(self, fitted: Inference) -> None:
        super().__init__()
        self.fitted, self.network, self.head = copy(fitted), fitted.network, fitted.head
        self.fitted.autocast = False

    def forward(self, x: Tensor) -> Tensor:
        batch = self.fitted.batch(None, torch.arange(len(x), device=x.device), x)
        return torch.softmax(self.head.predict_log_probs(batch), dim=1)
