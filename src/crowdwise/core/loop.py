"""The rounds of an iterative fit: progress, trace and convergence, in one place.

::

    rounds = Rounds(self.max_iter, n_votes, callback)
    for _ in rounds:
        ...  # one round
        rounds.reached(objective, converged=moved <= self.tol)
    return Outcome(..., **rounds.outcome)

The loop ends after ``max_iter`` rounds, or with the round that was reported as the last (``converged=True``).

What is too much for a machine: fits that would not end, or not fit into its memory, are refused with advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats
from crowdwise.data.plain_files import machine_memory
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, SizeError


@dataclass(frozen=True)
class Progress:
    """What a callback is told after each round."""

    iteration: int
    max_iter: int
    objective: float
    """What the fit maximises, or NaN where it has no objective."""
    change: float
    """The gain of this round per vote; where there is no objective, how much moved."""
    restart: int = 0


Callback = Callable[[Progress], None]


class Rounds:
    """The rounds of one fit. ``n_votes`` is what gains are divided by."""

    def __init__(self, max_iter: int, n_votes: float, callback: Callback | None = None, restart: int = 0) -> None:
        self.max_iter = max_iter
        self.iterations = 0
        self.converged = False
        self.trace: list[float] = []
        self.n_votes = max(float(n_votes), 1.0)
        self._callback = callback
        self._restart = restart

    def __iter__(self) -> Iterator[int]:
        """The number of each round, from 1."""
        while self.another():
            self.iterations += 1
            yield self.iterations

    def another(self) -> bool:
        """Whether there is another round."""
        return self.iterations < self.max_iter and not self.converged

    def resume(self) -> None:
        """Go on under a changed objective: the trace begins again, rounds are still counted."""
        self.trace, self.converged = [], False

    @property
    def gain(self) -> float:
        """What the last round gained per vote; infinite before there are two."""
        return (self.trace[-1] - self.trace[-2]) / self.n_votes if len(self.trace) > 1 else np.inf

    def reached(
        self, objective: float | None = None, *, moved: float = float("nan"), below: float | None = None,
        converged: bool = False, traced: bool = True,
    ) -> None:  # fmt: skip
        """Report a round: its objective, how much ``moved`` where nothing is maximised, and whether it is the last.

        It is the last where ``converged`` says so, or where it gained less than ``below`` per vote. ``traced=False``:
        the objective is only reported, since the fit does not maximise it.
        """
        maximised = objective is not None and traced
        if objective is not None and traced:
            self.trace.append(float(objective))
        self.converged = bool(converged) or (below is not None and self.gain < below)
        if self._callback is not None:
            value = float("nan") if objective is None else float(objective)
            change = self.gain if maximised else moved
            self._callback(Progress(self.iterations, self.max_iter, value, change, self._restart))

    @property
    def outcome(self) -> dict[str, Any]:
        """Trace, iterations and convergence, as every result has them."""
        trace: Floats = np.array(self.trace)
        return {"trace": trace, "iterations": self.iterations, "converged": self.converged}


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
