"""The progress of long fits, drawn with rich: a bar in terminals and notebooks, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crowdwise.core.loop import Progress

if TYPE_CHECKING:
    from rich.console import Console


LINE_EVERY = 0.1
"""Where there is no bar: the share of a fit after which a line is written."""


@contextmanager
def drawn_bar(
    screen: Console, title: str, words: str, patience: float = 0.0, **fields: Any
) -> Iterator[Callable[..., None]]:
    """A function that draws a bar, with some words beside it, once the work has taken so many seconds.

    The bar disappears at the end, and never shows when piped.
    """
    if not _draws(screen):
        yield lambda **state: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    described, beside = (TextColumn(text, markup=False) for text in ("{task.description}", words))
    columns = (described, BarColumn(), beside, TimeElapsedColumn())
    drawn = Progress(*columns, console=screen, transient=True)
    task = drawn.add_task(title, total=1, **fields)
    began = time.perf_counter()

    def update(**state: Any) -> None:
        if time.perf_counter() - began > patience and not drawn.live.is_started:
            drawn.start()
        drawn.update(task, **state)

    try:
        yield update
    finally:
        drawn.stop()


def _draws(screen: Console) -> bool:
    """Whether bars can be drawn: in a terminal or a notebook."""
    return screen.is_terminal or screen.is_jupyter


def stated(step: Any) -> tuple[float, float, str]:
    """How far a round, an epoch or a stage is, of how much at most, and what it has reached."""
    if isinstance(step, Stage):
        return step.share, 1.0, step.words
    if hasattr(step, "epoch"):
        held = "" if step.held_out is None else f", held-out votes {step.held_out:.4f}"
        return step.epoch, step.epochs, f"epoch {step.epoch} of {step.epochs}, loss {step.loss:.4f}{held}"
    words = f"pass {step.iteration} of at most {step.max_iter}, {step.change:+.1e} per vote"
    return step.iteration, step.max_iter, words


@contextmanager
def step_bar(
    screen: Console, title: str, patience: float = 0.0, lines: bool = False,
    callback: Callable[[Any], Any] | None = None,
) -> Iterator[Callable[[Any], Any]]:  # fmt: skip
    """A callback that draws the steps of a fit or the stages of a work, and calls another one. Where no bar can be
    drawn (in a log file, say), ``lines`` are written, of the first and the last step in any case."""
    due = 0.0 if lines and not _draws(screen) else math.inf
    with drawn_bar(screen, title, "{task.fields[state]}", patience, state="") as update:

        def report(step: Any) -> Any:
            nonlocal due
            name = f"{title}, restart {step.restart}" if getattr(step, "restart", 0) else title
            done, total, words = stated(step)
            update(description=name, completed=done, total=total, state=words)
            if min(due, total) <= done and due < math.inf:
                due = done + LINE_EVERY * total
                screen.print(f"{title}: {words}", soft_wrap=True)
            return None if callback is None else callback(step)

        yield report


@contextmanager
def shown(title: str, verbose: bool, callback: Callable[[Any], Any] | None) -> Iterator[Callable[[Any], Any] | None]:
    """The callback of a fit, which also shows how far it is where ``verbose`` asks for that."""
    if not verbose:
        yield callback
        return
    from rich.console import Console

    screen = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with step_bar(screen, title, lines=True, callback=callback) as report:
        yield report


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
