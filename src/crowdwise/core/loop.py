"""The rounds of an iterative fit: progress, trace and convergence, in one place.

::

    rounds = Rounds(self.max_iter, n_votes, callback)
    for _ in rounds:
        ...  # one round
        rounds.reached(objective, converged=moved <= self.tol)
    return Outcome(..., **rounds.outcome)

The loop ends after ``max_iter`` rounds, or with the round that was reported as the last (``converged=True``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats


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
