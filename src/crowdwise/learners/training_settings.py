"""How a network is trained: the settings, and what every epoch reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from crowdwise.core.constraints import Count, NonNegative, Positive
from crowdwise.core.parameters import Parameterised, declared

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "cosine": lambda t: 0.5 * (1.0 + math.cos(math.pi * t)),
    "step": lambda t: 10.0 ** -math.floor(4.0 * t),
    "one-cycle": lambda t: 0.04 + 0.96 * t / 0.3 if t < 0.3 else 0.5 * (1.0 + math.cos(math.pi * (t - 0.3) / 0.7)),
}
"""The factor of the learning rate at a share t of training: ``step`` divides by ten at each quarter."""


@declared
class TrainingSettings(Parameterised):
    """The parameters of a training run. They are described in
    :class:`crowdwise.learners.network_estimator.NetworkEstimator`, which has them all."""

    epochs: Count = 50
    batch_size: Count = 64
    lr: Positive = 1e-3
    crowd_lr: Positive = 1e-2
    weight_decay: NonNegative = 1e-4
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    schedule: Literal["constant", "cosine", "step", "one-cycle"] = "constant"
    clip: Positive | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    select: Literal["last", "votes", "gold"] = "last"
    patience: Count | None = None


@dataclass(frozen=True)
class Epoch:
    """The result of one epoch. The history of a fit is a list of these, and callbacks get each."""

    epoch: int
    """Counted from 1."""
    epochs: int
    loss: float
    held_out: float | None
    """Mean log-likelihood of the held-out answers, per answer."""
    accuracy: float | None
    """On the gold items, where they select the epoch."""
    lr: float
    seconds: float


Callback = Callable[[Epoch], Any]
"""Called after every epoch; training stops where it returns True."""
