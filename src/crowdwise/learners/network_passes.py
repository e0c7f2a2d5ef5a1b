"""Faster passes through a network in training: recorded once as CUDA graphs and replayed, or compiled.

Graphs save the launching of kernels, which binds small batches. The compiler merges the steps between convolutions
(batch norm, ReLU, sums), which are bound by memory, and so pays with large batches too; it takes up to a minute first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from crowdwise.learners.networks import Network
from crowdwise.learners.training_settings import TrainingSettings

Forward = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""From a batch to logits and, where they were asked for, hidden vectors."""


class LogitsAndHidden(nn.Module):
    """A network, after what prepares its inputs, that gives its hidden vectors beside the logits."""

    def __init__(self, before: nn.Module, network: Network) -> None:
        super().__init__()
        self.before, self.network = before, network

    @classmethod
    def of(cls, whole: nn.Module) -> LogitsAndHidden | None:
        """None where the whole does not end in one of our networks."""
        if isinstance(whole, Network):
            return cls(nn.Identity(), whole)
        if isinstance(whole, nn.Sequential) and isinstance(whole[-1], Network):
            return cls(whole[:-1], whole[-1])
        return None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.network.trunk(self.before(x))
        return self.network.head(hidden), hidden


def why_not_compiled(
    settings: TrainingSettings, n_items: int, *, sparse: bool, processes: int, only_compiled: bool
) -> str:
    """Why the passes of a training can be neither compiled nor recorded; empty where they can be.

    ``only_compiled``: they give hidden vectors or have batches of different sizes, which cannot be recorded.
    """
    if processes > 1:
        return "several processes train it together"
    if sparse:
        return "its inputs are sparse"
    if n_items < settings.batch_size:
        return f"there are {n_items} items, fewer than batch_size={settings.batch_size}"
    if only_compiled and not settings.compile:
        return "this learner's passes cannot be recorded. Use compile=True"
    return ""


def faster_passes(
    network: nn.Module, sample: Tensor, settings: TrainingSettings, autocast: bool, *, hidden: bool, any_size: bool
) -> Forward | None:  # fmt: skip
    """The network's passes as the settings ask for them: compiled, recorded, or both."""
    graphs = settings.cuda_graphs and sample.is_cuda
    if not settings.compile:
        return record(network, sample, autocast)
    if graphs and any_size:
        warnings.warn("The network is compiled and not recorded: batches have different sizes.", stacklevel=2)
    return compiled(network, sample, autocast, hidden=hidden, any_size=any_size, graphs=graphs and not any_size)


def record(network: nn.Module, sample: Tensor, autocast: bool) -> Forward | None:
    """The network's passes in training as graphs of both directions, for batches of the sample's shape: logits alone.

    None where the network cannot be recorded; it is then called as it is. Weights and statistics are left as they were.
    """
    try:
        with unchanged(network), torch.autocast("cuda", torch.bfloat16, enabled=autocast, cache_enabled=False):
            torch.cuda.make_graphed_callables(network, (sample.clone(),))
        replayed = network.__dict__.pop("forward")
    except RuntimeError as error:
        network.__dict__.pop("forward", None)
        warnings.warn(f"The network is not recorded as a CUDA graph: {first_line(error)}", stacklevel=2)
        return None
    return lambda x: (replayed(x), None)


def compiled(
    network: nn.Module, sample: Tensor, autocast: bool, *, hidden: bool = False, any_size: bool = False,
    graphs: bool = False,
) -> Forward | None:  # fmt: skip
    """The network's passes in training compiled for batches of the sample's shape, or of any size.

    With ``hidden`` they give the hidden vectors, too; with ``graphs`` they are replayed as CUDA graphs. None where the
    network cannot be compiled; it is then called as it is. Weights and statistics are left as they were.
    """
    module = LogitsAndHidden.of(network) if hidden else network
    if module is None:
        warnings.warn("The network is not compiled: that takes one of crowdwise's networks here.", stacklevel=2)
        return None
    passes = torch.compile(module, dynamic=None if any_size else False, mode="reduce-overhead" if graphs else None)

    def forward(x: Tensor) -> tuple[Tensor, Tensor | None]:
        if any_size:
            torch._dynamo.maybe_mark_dynamic(x, 0)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
            found = passes(x)
        return found if hidden else (found, None)

    try:
        with unchanged(network):
            forward(sample)[0].float().sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        warnings.warn(f"The network is not compiled: {first_line(error)}", stacklevel=2)
        return None
    return forward


@contextmanager
def unchanged(network: nn.Module) -> Iterator[None]:
    """The network in training mode; afterwards with the weights, statistics and mode that it had, and no gradients."""
    kept = {name: value.clone() for name, value in network.state_dict().items()}
    training = network.training
    network.train()
    try:
        yield
    finally:
        network.load_state_dict(kept)
        network.zero_grad(set_to_none=True)
        network.train(training)


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
