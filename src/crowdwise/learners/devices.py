"""Where torch computes: the device, and its random state and threads left as they were.

Small operations on tensors and arrays that several modules of this package share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crowdwise.core.numerics import Floats
from crowdwise.errors import ParameterError, Remedy, Setting
from crowdwise.learners.distributed import local_device

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
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


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


def columns(rows: Tensor, label: Tensor) -> Tensor:
    """E x K: of E matrices, K x K each, the column of each label."""
    return rows.gather(2, label[:, None, None].expand(-1, rows.shape[1], 1))[:, :, 0]


def score_table(scores: Floats) -> Floats:
    """M x K x K scores (annotator, truth, label) as the kernels take them: (m * K + l) x K."""
    return np.ascontiguousarray(scores.transpose(0, 2, 1)).reshape(-1, scores.shape[1])
