"""The network's passes in training: over inputs in memory or read batch by batch, compiled or recorded, and shared by
processes that train together."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.learners import network_passes
from crowdwise.learners.devices import seeded
from crowdwise.learners.distributed import Processes
from crowdwise.learners.head import Head
from crowdwise.learners.images import Images, augmented
from crowdwise.learners.inference import Inference
from crowdwise.learners.inputs import ArrayInputs, Index, Inputs, SparseRows, prepare
from crowdwise.learners.training_settings import TrainingSettings
from crowdwise.learners.vote_edges import Edges

RESIDENT = 2**30
"""The most bytes of inputs that stay whole, as float32, in the memory of the CPU."""


class TrainingPasses(Inference):
    """A network and a head with the inputs that they are trained on."""

    def __init__(
        self, network: nn.Module, head: Head, inputs: Inputs, settings: TrainingSettings, device: str | torch.device
    ) -> None:  # fmt: skip
        super().__init__(network, head, settings, device)
        self.inputs = inputs
        if self.takes_sparse and isinstance(inputs, ArrayInputs) and inputs.sparse:
            prepare(network)
        self.resident = resident(inputs, self.device)
        self.faster: network_passes.Forward | None = None
        self.hastened = False
        self.group = Processes()

    @property
    def sizes_vary(self) -> bool:
        """Whether the size of a batch is not that of the settings."""
        return False

    def _hasten(self, order: Index) -> None:
        """Compile or record the network's passes over a batch, where that is asked for; tried once."""
        settings, hidden, varies = self.settings, self.head.needs_hidden, self.sizes_vary
        asked = settings.compile or (settings.cuda_graphs and self.device.type == "cuda")
        if self.hastened or self.head.network_frozen or not asked:
            return
        self.hastened = True
        first = order[: settings.batch_size]
        self._set_modes(len(first))
        with seeded(self.device):
            sample = self._augmented(first, torch.as_tensor(first, device=self.device))
            sparse = not isinstance(sample, Tensor)
            why = network_passes.hindrance(
                settings, len(order), sparse=sparse, processes=self.group.size, only_compiled=hidden or varies
            )
            if why or not isinstance(sample, Tensor):
                warnings.warn(f"The network is called as it is, neither compiled nor recorded: {why}.", stacklevel=2)
                return
            self.faster = network_passes.hastened(
                self.network, sample, settings, self.autocast, hidden=hidden, any_size=varies
            )

    def forward(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor | None]:
        fits = self.sizes_vary or len(x) == self.settings.batch_size
        if self.faster is not None and self.network.training and fits:
            assert isinstance(x, Tensor)
            logits, hidden = self.faster(x)
            return logits.float(), None if hidden is None else hidden.float()
        n, part = len(x), self.group.part(len(x)) if self.network.training else None
        self.group.rows = None if part is None else (*part, n)
        if part is None:
            return super().forward(x)
        logits, hidden = super().forward(x[slice(*part)])
        return self.group.gathered(logits, n), None if hidden is None else self.group.gathered(hidden, n)

    def log_probs(self, inputs: Inputs, index: Index | None = None) -> Tensor:
        index = np.arange(len(inputs)) if index is None else index
        part = self.group.part(len(index))
        if part is None:
            return super().log_probs(inputs, index)
        return self.group.gathered(super().log_probs(inputs, index[slice(*part)]), len(index))

    def vote_log_likelihood(self, edges: Edges, inputs: Inputs, index: Index | None = None) -> float:
        index = np.arange(len(inputs)) if index is None else index
        part = self.group.part(len(index))
        total = super().vote_log_likelihood(edges, inputs, index if part is None else index[slice(*part)])
        whole = torch.tensor(total, dtype=torch.float64, device=self.device)
        return total if part is None else float(self.group.summed(whole))

    def _augmented(self, index: Index, at: Tensor) -> Tensor | SparseRows:
        """Inputs to train on."""
        if isinstance(self.resident, Images):
            return self.resident.read(at, self.settings.augment)
        x = self.read(self.inputs, index) if self.resident is None else self.resident[at]
        return augmented(x, self.settings.augment) if isinstance(x, Tensor) else x

    def _set_modes(self, size: int) -> None:
        self.network.train(not self.head.network_frozen)
        self.head.train()
        if size == 1:  # a batch of one has no deviation to normalise by
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def read(self, inputs: Inputs, index: Index) -> Tensor | SparseRows:
        if inputs is not self.inputs or self.resident is None:
            return super().read(inputs, index)
        at = torch.as_tensor(index, device=self.device)
        return self.resident.read(at) if isinstance(self.resident, Images) else self.resident[at]


def resident(inputs: Inputs, device: torch.device) -> Tensor | Images | None:
    """The inputs on the device, where they fit there whole with room to spare; images of bytes as bytes."""
    if not isinstance(inputs, ArrayInputs) or inputs.sparse or isinstance(inputs.array, np.memmap):
        return None
    room = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else RESIDENT
    images = inputs.byte and len(inputs.shape) == 3
    if len(inputs) * math.prod(inputs.shape) * (1 if images else 4) > room:
        return None
    if images:
        return Images.of(inputs.array, inputs.last, device)
    return inputs.rows(np.arange(len(inputs))).to(device)
