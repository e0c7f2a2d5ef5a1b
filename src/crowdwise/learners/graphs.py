"""CUDA graphs: the passes through a network are recorded once and replayed, for networks bound by launching kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

Forward = Callable[[Tensor], Tensor]


def record(network: nn.Module, sample: Tensor, autocast: bool) -> Forward | None:
    """The network's forward pass in training as graphs of both directions, for batches of the sample's shape.

    None where the network cannot be recorded; it is then called as it is. Weights and statistics are left as they were.
    """
    kept = {name: value.clone() for name, value in network.state_dict().items()}
    training = network.training
    network.train()
    try:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast, cache_enabled=False):
            torch.cuda.make_graphed_callables(network, (sample.clone(),))
        forward: Forward = network.__dict__.pop("forward")
    except RuntimeError as error:
        network.__dict__.pop("forward", None)
        warnings.warn(f"The network is not recorded as a CUDA graph: {str(error).splitlines()[0]}", stacklevel=2)
        return None
    finally:
        network.load_state_dict(kept)
        network.zero_grad(set_to_none=True)
        network.train(training)
    return forward
