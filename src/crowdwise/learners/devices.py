"""Where torch computes: the device, and its random state and threads left as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from crowdwise.errors import ParameterError
from crowdwise.learners.distributed import local_device


def find_device(name: str | torch.device) -> torch.device:
    """``auto`` is CUDA, else MPS, else the CPU; of several processes that train together each has its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(local_device(str(name)))
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ParameterError(f"device={name!r} cannot be used here: {reason}. Leave it at 'auto', or 'cpu'.") from None
    return device


@contextmanager
def seeded(device: torch.device) -> Iterator[None]:
    """Leave torch's own random state as it was."""
    devices = [torch.cuda.current_device() if device.index is None else device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def tuned(device: torch.device) -> Iterator[None]:
    """On a GPU, let the library try which convolution is fastest for the sizes at hand."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or device.type == "cuda"
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: networks this small gain nothing by more, and lose much where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
