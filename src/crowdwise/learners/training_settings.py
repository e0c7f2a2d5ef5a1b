"""How learners are trained: the settings, and the epochs that a fit reports."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from crowdwise.core.constraints import Bounds, Count, NonNegative, Parameterised, Positive, declared
from crowdwise.core.loop import Progress, Rounds
from crowdwise.learners.inputs import Augment

Schedule = Literal["constant", "cosine", "step", "one-cycle"]
SCHEDULES: dict[Schedule, Callable[[float], float]] = {
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
    backbone_lr: NonNegative | None = None
    weight_decay: NonNegative = 1e-4
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    schedule: Schedule = "constant"
    clip: Positive | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    select: Literal["last", "votes", "gold"] = "last"
    patience: Count | None = None
    measure_every: Count = 1
    checkpoint_every: Count = 1
    augment: Augment = "none"
    mixup: NonNegative = 0.0
    label_smoothing: Annotated[float, Bounds(minimum=0, below=1)] = 0.0
    ema: Annotated[float, Bounds(minimum=0, below=1)] = 0.0
    cuda_graphs: bool = False
    compile: bool = False


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


class EpochRounds(Rounds):
    """Rounds that become epochs of a history, with minus the objective per answer as loss.

    The fit stops where the callback returns True.
    """

    def __init__(self, max_iter: int, n_answers: float, history: list[Epoch], callback: Callback | None) -> None:
        super().__init__(max_iter, n_answers, self._report)
        self.history, self.on_epoch = history, callback
        self._last = time.perf_counter()

    def reached_within(self, objective: float, tol: float) -> None:
        """Report a round; it is the last where the objective changed by less than ``tol`` per answer, either way."""
        change = abs(objective - self.trace[-1]) / self.n_votes if self.trace else float("inf")
        self.reached(objective, converged=change < tol)

    def _report(self, step: Progress) -> None:
        began, self._last = self._last, time.perf_counter()
        loss = -step.objective / self.n_votes
        self.history.append(Epoch(step.iteration, step.max_iter, loss, None, None, 0.0, self._last - began))
        if self.on_epoch is not None and self.on_epoch(self.history[-1]) is True:
            self.max_iter = self.iterations
