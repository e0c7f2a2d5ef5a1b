"""How far a work in stages is, and how much longer it takes: from what its stages cost, and from the time so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crowdwise.core.loop import Progress


@dataclass(frozen=True)
class Stage:
    """Where a work is."""

    name: str
    share: float
    """The share of all work that is done."""
    remaining: float
    """An estimate of the seconds to go; NaN at the start."""

    @property
    def words(self) -> str:
        """As a line."""
        left = "" if math.isnan(self.remaining) else f", about {_duration(self.remaining)} left"
        return f"{self.name}{left}"


class Timetable:
    """The stages of a work in their order, each with a cost in any unit that all share.

    >>> seen = []
    >>> clock = iter([0.0, 3.0, 9.0]).__next__
    >>> stages = Timetable({"read": 1.0, "fit": 3.0}, seen.append, clock=clock)
    >>> stages.at("read", 1.0)
    >>> stages.at("fit", 2 / 3)
    >>> [(stage.name, stage.share, stage.remaining) for stage in seen]
    [('read', 0.25, 9.0), ('fit', 0.75, 3.0)]
    """

    def __init__(
        self, costs: Mapping[str, float], report: Callable[[Stage], None] | None = None, *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self.costs, self.report, self.clock = dict(costs), report, clock
        self.began = clock()

    def at(self, name: str, share: float) -> None:
        """Report that a share of a stage is done, and all stages before it."""
        if self.report is None:
            return
        names = list(self.costs)
        done = sum(self.costs[before] for before in names[: names.index(name)]) + share * self.costs[name]
        total, elapsed = sum(self.costs.values()), self.clock() - self.began
        remaining = elapsed * (total - done) / done if done > 0.0 else math.nan
        self.report(Stage(name, done / total, remaining))


class Passes:
    """A callback for the passes of a fit, which are a stage: their number is estimated by how the gain falls."""

    def __init__(self, timetable: Timetable, stage: str, cost: float, expected: int, tol: float) -> None:
        self.timetable, self.stage, self.cost, self.expected, self.tol = timetable, stage, cost, expected, tol
        self.before, self.seen, self.gain = 0, 0, math.inf

    def __call__(self, step: Progress) -> None:
        """After each pass."""
        if step.iteration <= self.seen:  # another run of the same fit
            self.before, self.gain = self.before + self.seen, math.inf
        self.seen = step.iteration
        left = passes_left(self.gain, step.change, self.tol)
        self.gain = step.change
        left = self.expected - step.iteration if left is None else left
        left = max(1.0, min(left, step.max_iter - step.iteration))
        done = self.before + step.iteration
        self.timetable.costs[self.stage] = self.cost * (done + left)
        self.timetable.at(self.stage, done / (done + left))


def passes_left(before: float, gain: float, tol: float) -> float | None:
    """How many passes a fit still makes that converges as in the last two; ``None`` where these do not say.

    >>> passes_left(1e-3, 1e-4, 1e-7)
    3.0
    """
    if not (0.0 < gain < before < math.inf) or tol <= 0.0:
        return None
    return round(math.log(tol / gain) / math.log(gain / before), 9) if gain > tol else 0.0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
