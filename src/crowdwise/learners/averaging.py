"""Moving averages of a network's weights: with noisy labels they predict better than the last weights alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """average = decay * average + (1 - decay) * weights, after every step.

    In the first steps the decay is smaller, (1 + step) / (10 + step), or the average would stay near the first weights.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.own = {name: value for name, value in network.state_dict().items() if value.is_floating_point()}
        self.average = {name: value.detach().clone() for name, value in self.own.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step."""
        decay = min(self.decay, (1.0 + self.steps) / (10.0 + self.steps))
        self.steps += 1
        torch._foreach_lerp_(list(self.average.values()), list(self.own.values()), 1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Predict with the average, then train on with the weights."""
        kept = {name: value.clone() for name, value in self.own.items()}
        self.load()
        try:
            yield
        finally:
            self._set(kept)

    def load(self) -> None:
        """Give the network the average for its weights."""
        self._set(self.average)

    @torch.no_grad()
    def _set(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self.own[name].copy_(value)

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {"steps": torch.tensor(self.steps)} | self.average

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.steps = int(state["steps"])
        for name, value in self.average.items():
            value.copy_(state[name])
