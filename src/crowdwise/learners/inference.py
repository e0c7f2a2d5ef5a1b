"""A network and a head at work: inputs are read, batches are made, and predictions come out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import ParameterError
from crowdwise.learners.devices import find_device
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import ArrayInputs, Index, Inputs, SparseRows, first_layer
from crowdwise.learners.networks import Probe, hidden_layer
from crowdwise.learners.tensors import as_array
from crowdwise.learners.training_settings import TrainingSettings
from crowdwise.learners.vote_edges import Batch, Edges

LABELS = 2**18
"""How many possible labels of annotators are evaluated at once."""


class Inference:
    """A network and a head on a device, and how inputs and votes pass through them.

    ``settings`` gives the batch size and the precision. Training (:class:`crowdwise.learners.trainer.Trainer`) makes
    its batches here, too.
    """

    def __init__(
        self, network: nn.Module, head: Head, settings: TrainingSettings, device: str | torch.device = "auto"
    ) -> None:  # fmt: skip
        self.device = find_device(device)
        self.network, self.head = network.to(self.device), head.to(self.device)
        if self.device.type == "cuda":
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.settings = settings
        self.autocast = self.device.type == "cuda" and (
            settings.precision == "bfloat16" or (settings.precision == "auto" and torch.cuda.is_bf16_supported())
        )
        # Of a network that is one layer, a head that needs that layer's input gets it dense.
        first = first_layer(network)
        self.takes_sparse = first is not None and not (head.needs_hidden and hidden_layer(network) is first)

    def read(self, inputs: Inputs, index: Index) -> Tensor | SparseRows:
        """Some inputs on the device, as the network takes them."""
        if self.takes_sparse and isinstance(inputs, ArrayInputs) and inputs.sparse:
            return inputs.sparse_rows(index).to(self.device, non_blocking=True)
        return inputs.rows(index).to(self.device, non_blocking=True)

    def batch(self, edges: Edges | None, index: Index, x: Tensor | SparseRows) -> Batch:
        """The one place where a batch is made: what the network says of some inputs, and the votes on them."""
        at = torch.as_tensor(index, device=self.device)
        logits, hidden = self.forward(x)
        if edges is None:
            none = at.new_zeros(0)
            return Batch(at, logits, hidden, none, none, none, logits.new_zeros(0))
        return edges.batch(at, logits, hidden)

    def forward(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor | None]:
        """Logits and, for heads that need them, the hidden vectors."""
        with (
            Probe(self.network) if self.head.needs_hidden else nullcontext() as probe,
            torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast),
        ):
            logits = self.network(x)
        if logits.shape != (len(x), self.head.n_classes):
            raise ParameterError(
                f"The network gave {tuple(logits.shape)} for {len(x)} inputs: "
                f"expected one row per input and one column for each of the {self.head.n_classes} classes."
            )
        return logits.float(), None if probe is None else probe.hidden.float()

    def batches(self, edges: Edges | None, inputs: Inputs, index: Index | None = None) -> Iterator[Batch]:
        """Inputs in their order (all, or some), with the network in evaluation mode, and the votes on them."""
        index = np.arange(len(inputs)) if index is None else index
        size = max(self.settings.batch_size, 512 if self.device.type == "cpu" else 2048)
        self.network.eval()
        self.head.eval()
        with torch.no_grad():
            for lo in range(0, len(index), size):
                some = index[lo : lo + size]
                yield self.batch(edges, some, self.read(inputs, some))

    def log_probs(self, inputs: Inputs, index: Index | None = None) -> Tensor:
        """N x K log class probabilities from inputs alone."""
        return torch.cat([self.head.predict_log_probs(batch) for batch in self.batches(None, inputs, index)])

    def posterior(self, edges: Edges, inputs: Inputs) -> Tensor:
        """N x K log class probabilities from inputs and votes."""
        return torch.cat([self.head.posterior_log_probs(batch) for batch in self.batches(edges, inputs)])

    def vote_log_likelihood(self, edges: Edges, inputs: Inputs, index: Index | None = None) -> float:
        """The log-likelihood of votes, each times its weight."""
        batches = self.batches(edges, inputs, index)
        return sum(float((batch.weight * self.head.vote_log_probs(batch)).sum()) for batch in batches)

    def vote_probabilities(self, inputs: Inputs, codes: Ints) -> Floats:
        """N x A x K: the probability of each label, by annotators of these codes."""
        out, K = [], self.head.n_classes
        who, said = (
            torch.as_tensor(a, device=self.device).reshape(-1) for a in np.meshgrid(codes, np.arange(K), indexing="ij")
        )
        for batch in self.batches(None, inputs):
            size, parts = max(LABELS // len(who), 1), []
            for lo in range(0, len(batch), size):
                row = torch.arange(lo, min(lo + size, len(batch)), device=self.device)
                n = len(row)
                votes = replace(
                    batch, row=row.repeat_interleave(len(who)), annotator=who.repeat(n), label=said.repeat(n),
                    weight=batch.logits.new_ones(n * len(who)),
                )  # fmt: skip
                with torch.no_grad():
                    parts.append(self.head.vote_log_probs(votes).double().exp().reshape(n, len(codes), K))
            out.append(torch.cat(parts))
        q = torch.cat(out)
        return as_array(q / q.sum(dim=2, keepdim=True))

    def state(self) -> dict[str, Tensor]:
        """The tensors of the network and of the head, by name."""
        return {
            f"{part}.{name}": value.detach()
            for part, module in (("network", self.network), ("head", self.head))
            for name, value in module.state_dict().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` gave. A head's tensors may have other sizes, which depend on the votes."""
        for part, module in (("network.", self.network), ("head.", self.head)):
            own = {name.removeprefix(part): value for name, value in state.items() if name.startswith(part)}
            for name, value in own.items():
                place, _, leaf = name.rpartition(".")
                owner = module.get_submodule(place)
                if module is self.head and getattr(owner, leaf).shape != value.shape:
                    value = value.to(self.device)
                    setattr(owner, leaf, nn.Parameter(value) if leaf in owner._parameters else value)
            module.load_state_dict(own)
