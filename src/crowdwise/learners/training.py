"""What a training is to do, and what it tells of every epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "cosine": lambda t: 0.5 * (1.0 + math.cos(math.pi * t)),
    "step": lambda t: 10.0 ** -math.floor(4.0 * t),
    "one-cycle": lambda t: 0.04 + 0.96 * t / 0.3 if t < 0.3 else 0.5 * (1.0 + math.cos(math.pi * (t - 0.3) / 0.7)),
}
"""The factor of the learning rate at a share t of the way: ``step`` divides by ten at each quarter."""

OPTIMISERS = ("adam", "adamw", "sgd")
SELECT = ("last", "votes", "gold")


@dataclass(frozen=True)
class Plan:
    """How to train."""

    epochs: int = 50
    batch_size: int = 64
    lr: float = 1e-3
    crowd_lr: float = 1e-2
    weight_decay: float = 1e-4
    optimiser: str = "adam"
    schedule: str = "constant"
    clip: float | None = None
    precision: str = "auto"
    select: str = "last"
    patience: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Epoch:
    """What an epoch came to; the history is a list of these, and callbacks are told each."""

    epoch: int
    """Counted from 1."""
    epochs: int
    loss: float
    held_out: float | None
    """Mean log likelihood of the votes held out, per vote."""
    accuracy: float | None
    """On the items whose truth was handed in for selection."""
    lr: float
    seconds: float


Callback = Callable[[Epoch], Any]
"""Told every epoch; training stops where it returns True."""
