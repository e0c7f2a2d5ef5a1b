"""What is too much for a machine: fits that would not end, or not fit into its memory, are refused with advice."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from crowdwise.data.plain_files import machine_memory
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, SizeError

TABLES = 10
"""How many M x K x K tables a fit holds at once, with acceleration and what the result keeps."""
MAX_STEPS = 1e13
"""Steps of arithmetic from which a fit is refused: hours, at 10^9 a second."""


def free_memory() -> float:
    """Bytes that can still be taken: what the system says is available, within the limit of a container."""
    free = [machine_memory()]
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free.append(1024.0 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):  # "max" where there is no limit
        group = Path("/sys/fs/cgroup")
        limit, used = (float((group / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        free.append(max(limit - used, 0.0))
    return min(free)


def check_cost(what: str, need: float, steps: float, advice: str) -> None:
    """Refuse what needs more memory than there is (``need`` bytes) or hours of computing (``steps``), with advice."""
    there = free_memory()
    if need > there:
        raise SizeError(f"{what}: that takes {need / 2**30:,.1f} GB, and {there / 2**30:,.1f} are free. {advice}")
    if steps > MAX_STEPS:
        raise InputError(f"{what}: that takes {steps:.0e} steps, hours of computing. {advice}")


def check_memory(votes: Votes, tables: int = 1) -> None:
    """Refuse confusion matrices (``tables`` of each annotator) that do not fit into memory, before it swaps."""
    M, K = votes.n_annotators, votes.n_classes
    need, there = TABLES * 8 * M * K * K * tables, free_memory()
    if need > there:
        raise SizeError(
            f"The confusion matrices of {M:,} annotators over {K:,} classes need {need / 2**30:,.0f} GB, "
            f"and {there / 2**30:,.1f} are free. "
            "Use auto or a majority vote, merge rare classes, or leave out annotators with few votes."
        )
