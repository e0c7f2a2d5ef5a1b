"""The form of all networks, a trunk and a head, and what they ask of the shape of an input."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core.constraints import is_count
from crowdwise.errors import InputError, ParameterError

Shape = tuple[int, ...]
"""Of one input, without the batch: (D,) for features, (C, H, W) for images."""


class Network(nn.Module):
    """A classifier in two parts: ``trunk`` makes a vector of ``width`` numbers of an input, ``head`` K logits of it.

    ``last`` is the type of the last layer: another one where it is also the first, and takes sparse rows.

    >>> import torch
    >>> network = Network(nn.Linear(20, 128), 128, 3)
    >>> x = torch.zeros(5, 20)
    >>> network.trunk(x).shape, network(x).shape
    (torch.Size([5, 128]), torch.Size([5, 3]))
    """

    trunk: nn.Module
    head: nn.Linear

    def __init__(self, trunk: nn.Module, width: int, n_classes: int, last: type[nn.Linear] = nn.Linear) -> None:
        super().__init__()
        if not is_count(n_classes) or n_classes < 1:
            raise ParameterError(f"n_classes={n_classes!r}: expected a whole number of at least 1.")
        self.trunk, self.head = trunk, last(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.trunk(x))
        return logits


class QuickDropout(nn.Dropout):
    """Dropout whose random numbers have eight bits on a CPU: torch's own, of 64, take longer than a small network."""

    def forward(self, x: Tensor) -> Tensor:
        least = self.p * 256.0
        usual = not self.training or x.device.type != "cpu" or torch.compiler.is_compiling()
        if usual or not least or least != int(least):
            return super().forward(x)
        n = x.numel()
        drawn = torch.empty((n + 7) // 8, dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)[:n]
        return x * (drawn.view(x.shape) >= int(least)).to(x.dtype).mul_(1.0 / (1.0 - self.p))


def input_size(shape: Shape) -> int:
    """How many numbers an input has."""
    if not shape or min(shape) < 1:
        raise InputError(f"expected inputs with at least one number each, got the shape {tuple(shape)} of one input.")
    return int(np.prod(shape))


def image_shape(name: str, shape: Shape, least: int, instead: str = "") -> tuple[int, int, int]:
    """Channels, height and width, if the network can take them."""
    if len(shape) != 3:
        hint = " Use 'mlp' or 'linear' for features." if len(shape) == 1 else ""
        hint = " Add the axis of channels: (1, height, width)." if len(shape) == 2 else hint
        raise InputError(
            f"network {name!r}: expected images (channels, height, width), got inputs of shape {tuple(shape)}.{hint}"
        )
    input_size(shape)
    channels, height, width = shape
    if min(height, width) < least:
        raise InputError(
            f"network {name!r}: expected images of at least {least} x {least} pixels, got {height} x {width} "
            f"(of the shape (channels, height, width) = {tuple(shape)}).{' ' * bool(instead)}{instead}"
        )
    return channels, height, width
