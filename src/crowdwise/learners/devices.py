"""Where torch computes: the device, its random state and threads, several processes; small operations.

Several processes train one network: ``torchrun --nproc-per-node N -m crowdwise learn ...``, one for each GPU. Every
process draws the same random numbers and makes the same batches. It passes its part of a batch through the network and
receives the logits of the others, so that every process computes the loss of the *whole* batch: volumes and pairs of
items do not decompose into parts. Back from the loss each process follows its own part, and the gradients of the
network are added up; those of the head are the same in all processes. Dropout draws for the whole batch, and batch
normalisation has its mean and variance. Predictions for E-steps and for held-out votes are shared out and gathered as
well. The result is that of one process, to rounding.

The first process alone writes checkpoints. Outside of training every process works on its own.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdwise.core.numerics import Floats
from crowdwise.data.boundary import reason
from crowdwise.errors import ParameterError, Remedy, Setting

GPUS = {"cuda": "CUDA GPU", "mps": "Apple GPU (MPS)"}
LEAVE = Remedy("Leave it out, or take {}.", Setting("device", "cpu"))


def find_device(name: str | torch.device) -> torch.device:
    """``auto`` is CUDA, else MPS, else the CPU; ``gpu`` one of the first two. Of several processes that train together
    each has its own GPU."""
    asked, gpu = name, "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else None
    if name in ("auto", "gpu"):
        name = gpu or ("cpu" if name == "auto" else "cuda")
    try:
        device = torch.device(local_device(str(name)))
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        why = _why("gpu" if asked == "gpu" else str(name), error)
        raise ParameterError(f"cannot be used here: {why}.", about=Setting("device", asked), remedy=LEAVE) from None
    return device


def _why(name: str, error: BaseException) -> str:
    """Why a device cannot be used, in a few words."""
    kind = name.partition(":")[0]
    if kind == "gpu":
        return "torch finds no GPU on this machine"
    if kind in GPUS and not (torch.cuda if kind == "cuda" else torch.backends.mps).is_available():
        return f"torch finds no {GPUS[kind]} on this machine"
    if kind == "cuda":
        return f"torch finds {torch.cuda.device_count()} CUDA GPUs on this machine, counted from 0"
    if kind not in ("cpu", *GPUS):
        return "expected auto, cpu, gpu, cuda, cuda:1, ... or mps"
    return reason(error)


@contextmanager
def seeded(device: torch.device) -> Iterator[None]:
    """Leave torch's own random state as it was."""
    devices = [torch.cuda.current_device() if device.index is None else device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def tuned(device: torch.device, same_sizes: bool = True) -> Iterator[None]:
    """On a GPU, let the library try which convolution is fastest for the sizes at hand, unless these change often."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or (device.type == "cuda" and same_sizes)
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch on one thread: small networks gain nothing by more, and lose much where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def as_array(tensor: Tensor) -> Floats:
    """A tensor as numpy array of float64, wherever it is."""
    return np.asarray(tensor.detach().cpu().double().numpy())


def as_tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Arrays as tensors of the same type, by name."""
    return {name: torch.as_tensor(np.array(value)) for name, value in arrays.items()}


def probabilities(log_q: Tensor) -> Floats:
    """Rows of probabilities from rows of log probabilities."""
    q = log_q.double().exp().cpu().numpy()
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def log_softmax(x: Tensor, dim: int) -> Tensor:
    """As torch's own, which on a CPU takes ten times as long where rows are as short as there are classes."""
    return x - torch.logsumexp(x, dim=dim, keepdim=True)


def entries(rows: Tensor, label: Tensor) -> Tensor:
    """E: of E rows, K numbers each, the one of each label."""
    return rows.gather(1, label[:, None])[:, 0]


def columns(rows: Tensor, label: Tensor) -> Tensor:
    """E x K: of E matrices, K x K each, the column of each label."""
    return rows.gather(2, label[:, None, None].expand(-1, rows.shape[1], 1))[:, :, 0]


def score_table(scores: Floats) -> Floats:
    """M x K x K scores (annotator, truth, label) as the kernels take them: (m * K + l) x K."""
    return np.ascontiguousarray(scores.transpose(0, 2, 1)).reshape(-1, scores.shape[1])


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
        out: Tensor = value if self.size == 1 else _Summed.apply(value)  # type: ignore[no-untyped-call]
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

    def __call__(self, x: Tensor) -> Any:
        rows = self.group.rows
        if not self.layer.training or rows is None or len(x) != rows[1] - rows[0]:
            return self.usual(self.layer, x)
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
        filled = mine.new_zeros((max(b - a for a, b in pairwise(cuts)), *mine.shape[1:]))
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
