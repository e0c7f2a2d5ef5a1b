"""What is too much for a machine: fits that would not end, or not fit into its memory, are refused with advice."""

from __future__ import annotations

import os

from crowdwise.data.votes import Votes
from crowdwise.errors import InputError

TABLES = 6
"""How many M x K x K tables a fit holds at once, with acceleration."""
MAX_STEPS = 1e13
"""Steps of arithmetic from which a fit is refused: hours, at 10^9 a second."""


def machine_memory() -> float:
    """Bytes of the machine; infinite where the system does not give the figure."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def check_cost(what: str, need: float, steps: float, advice: str) -> None:
    """Refuse what needs more memory than there is (``need`` bytes) or hours of computing (``steps``), with advice."""
    there = machine_memory()
    if need > there:
        raise InputError(
            f"{what}: that takes {need / 2**30:,.0f} GB, and the machine has {there / 2**30:,.0f}. {advice}"
        )
    if steps > MAX_STEPS:
        raise InputError(f"{what}: that takes {steps:.0e} steps, hours of computing. {advice}")


def check_memory(votes: Votes, tables: int = 1) -> None:
    """Refuse confusion matrices (``tables`` of each annotator) that do not fit into memory, before it swaps."""
    M, K = votes.n_annotators, votes.n_classes
    need, there = TABLES * 8 * M * K * K * tables, machine_memory()
    if need > there:
        raise InputError(
            f"The confusion matrices of {M:,} annotators over {K:,} classes need {need / 2**30:,.0f} GB, "
            f"and the machine has {there / 2**30:,.0f}. "
            "Use a majority vote, merge rare classes, or leave out annotators with few votes."
        )
