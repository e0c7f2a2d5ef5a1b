"""Several processes train one network: ``torchrun --nproc-per-node N -m crowdwise learn ...``, one for each GPU.

Every process draws the same random numbers and makes the same batches. It passes its part of a batch through the
network and receives the logits of the others, so that every process computes the loss of the *whole* batch: volumes and
pairs of items do not decompose into parts. Back from the loss each process follows its own part, and the gradients of
the network are added up; those of the head are the same in all processes. Predictions for E-steps and for held-out
votes are shared out and gathered as well. The result is that of one process, to rounding:

===================  ===============================================================================================
dropout              draws for the whole batch, and takes its part
batch normalisation  mean and variance of the whole batch: sums are added up forward, and their gradients backward
===================  ===============================================================================================

The first process alone writes checkpoints. Outside of training every process works on its own.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def world() -> tuple[int, int]:
    """The number of this process, from 0, and how many there are, as torchrun says it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ.get("RANK", "0")), size) if size > 1 else (0, 1)


def local_device(name: str) -> str:
    """The GPU of this process, where several train together."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" and world()[1] > 1 else name


@dataclass
class Processes:
    """Those that train together, and the part of this one."""

    rank: int = 0
    size: int = 1
    rows: tuple[int, int, int] | None = None
    """First and last row of this process's part of the batch in work, and the number of all rows; None for no parts."""

    @classmethod
    def joined(cls, device: torch.device) -> Processes:
        """All that torchrun has started; this one alone where it was not used."""
        rank, size = world()
        if size > 1 and not torch.distributed.is_initialized():
            if device.type == "cuda":
                torch.cuda.set_device(device)
            torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
            atexit.register(torch.distributed.destroy_process_group)
        return cls(rank, size)

    def part(self, n: int) -> tuple[int, int] | None:
        """First and last of this process's share of n rows; None where they are too few to be shared."""
        if self.size == 1 or n < 2 * self.size:
            return None
        return n * self.rank // self.size, n * (self.rank + 1) // self.size

    def gathered(self, mine: Tensor, n: int) -> Tensor:
        """n rows from the parts of all, in order; the gradient goes back to the own part."""
        out: Tensor = _Gathered.apply(mine, n, self)  # type: ignore[no-untyped-call]
        return out

    def summed(self, value: Tensor) -> Tensor:
        """The sum of what all have; its gradient is the sum of all gradients."""
        if self.size == 1:
            return value
        out: Tensor = _Summed.apply(value)  # type: ignore[no-untyped-call]
        return out

    def any(self, flag: bool) -> bool:
        """Whether one of them says so."""
        if self.size == 1:
            return flag
        votes = torch.tensor(float(flag), device="cuda" if torch.distributed.get_backend() == "nccl" else "cpu")
        return bool(self.summed(votes) > 0)

    def add_gradients(self, network: Sequence[nn.Parameter], head: Sequence[nn.Parameter]) -> None:
        """After the way back: the network's gradients are added up, where each has followed a part; else averaged."""
        share = 1.0 / self.size
        scaled = [(p, 1.0 if self.rows is not None else share) for p in network] + [(p, share) for p in head]
        there = [(p.grad, scale) for p, scale in scaled if p.grad is not None]
        if not there:
            return
        flat = torch.cat([(grad * scale).reshape(-1) for grad, scale in there])
        torch.distributed.all_reduce(flat)
        at = 0
        for grad, _ in there:
            grad.copy_(flat[at : at + grad.numel()].reshape(grad.shape))
            at += grad.numel()

    @contextmanager
    def layers(self, network: nn.Module) -> Iterator[None]:
        """Dropout and batch normalisation of the network as over whole batches."""
        changed = []
        for layer in network.modules() if self.size > 1 else ():
            if isinstance(layer, (nn.Dropout, nn.modules.batchnorm._BatchNorm)):
                layer.forward = _WholeBatch(layer, self)  # type: ignore[method-assign, assignment]
                changed.append(layer)
        try:
            yield
        finally:
            for layer in changed:
                del layer.forward


class _WholeBatch:
    """The forward pass of a layer that looks at the whole batch."""

    def __init__(self, layer: Any, group: Processes) -> None:
        self.layer, self.group, self.usual = layer, group, type(layer).forward

    def __call__(self, x: Tensor) -> Tensor:
        rows = self.group.rows
        if not self.layer.training or rows is None or len(x) != rows[1] - rows[0]:
            found: Tensor = self.usual(self.layer, x)
            return found
        if isinstance(self.layer, nn.Dropout):
            ones = torch.ones(rows[2], *x.shape[1:], dtype=x.dtype, device=x.device)
            return x * functional.dropout(ones, self.layer.p)[rows[0] : rows[1]]
        return self.normalised(x, rows[2] * x[0, 0].numel())

    def normalised(self, x: Tensor, n: int) -> Tensor:
        """Less the mean of n values of each channel, over their deviation."""
        layer, dims = self.layer, [0, *range(2, x.dim())]
        shape = (1, -1, *(1 for _ in dims[1:]))
        y = x.float()
        mean = self.group.summed(y.sum(dim=dims)) / n
        y = y - mean.reshape(shape)
        var = self.group.summed((y * y).sum(dim=dims)) / n
        if layer.track_running_stats:
            with torch.no_grad():
                layer.num_batches_tracked.add_(1)
                rate = layer.momentum if layer.momentum is not None else 1.0 / float(layer.num_batches_tracked)
                layer.running_mean.lerp_(mean, rate)
                layer.running_var.lerp_(var * n / max(n - 1, 1), rate)
        y = y * torch.rsqrt(var + layer.eps).reshape(shape)
        y = y if layer.weight is None else y * layer.weight.reshape(shape) + layer.bias.reshape(shape)
        return y.to(x.dtype)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mine: Tensor, n: int, group: Processes) -> Tensor:
        cuts = [n * rank // group.size for rank in range(group.size + 1)]
        ctx.rows = cuts[group.rank], cuts[group.rank + 1]
        most = max(b - a for a, b in pairwise(cuts))
        filled = mine.new_zeros((most, *mine.shape[1:]))
        filled[: len(mine)] = mine
        parts = [torch.empty_like(filled) for _ in range(group.size)]
        torch.distributed.all_gather(parts, filled)
        return torch.cat([part[: b - a] for part, (a, b) in zip(parts, pairwise(cuts), strict=True)])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        return upstream[ctx.rows[0] : ctx.rows[1]].contiguous(), None, None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        total = upstream.contiguous().clone()
        torch.distributed.all_reduce(total)
        return total
