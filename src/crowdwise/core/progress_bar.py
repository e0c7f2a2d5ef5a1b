"""The progress of long fits, drawn with rich: a bar in terminals and notebooks, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from crowdwise.core.timetable import Stage

LINE_EVERY = 0.1
"""Where there is no bar: the share of a fit after which a line is written."""


@contextmanager
def drawn_bar(
    screen: Console, title: str, words: str, patience: float = 0.0, **fields: Any
) -> Iterator[Callable[..., None]]:
    """A function that draws a bar, with some words beside it, once the work has taken so many seconds.

    The bar disappears at the end, and never shows when piped.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    described, beside = (TextColumn(text, markup=False) for text in ("{task.description}", words))
    columns = (described, BarColumn(), beside, TimeElapsedColumn())
    drawn = Progress(*columns, console=screen, transient=True, disable=not _draws(screen))
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


def stated(step: Any) -> tuple[int, int, str]:
    """The number of a round or epoch, how many there are at most, and what it has reached."""
    if hasattr(step, "epoch"):
        held = "" if step.held_out is None else f", held-out votes {step.held_out:.4f}"
        return step.epoch, step.epochs, f"epoch {step.epoch} of {step.epochs}, loss {step.loss:.4f}{held}"
    words = f"pass {step.iteration} of at most {step.max_iter}, {step.change:+.1e} per vote"
    return step.iteration, step.max_iter, words


@contextmanager
def shown(title: str, verbose: bool, callback: Callable[[Any], Any] | None) -> Iterator[Callable[[Any], Any] | None]:
    """The callback of a fit, which also shows how far it is where ``verbose`` asks for that."""
    if not verbose:
        yield callback
        return
    from rich.console import Console

    screen = Console(stderr=True, highlight=False, markup=False, emoji=False)
    lines = Lines(screen, title)
    with drawn_bar(screen, title, "{task.fields[state]}", state="") as update:

        def report(step: Any) -> Any:
            done, total, words = stated(step)
            update(completed=done, total=total, state=words)
            lines.add(done, total, words)
            return None if callback is None else callback(step)

        yield report


@contextmanager
def shown_stages(
    title: str, verbose: bool, progress: Callable[[Stage], None] | None
) -> Iterator[Callable[[Stage], None] | None]:
    """The same for a work in stages, with an estimate of the time it still takes."""
    if not verbose:
        yield progress
        return
    from rich.console import Console

    screen = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with stage_bar(screen, title) as report:

        def both(stage: Stage) -> None:
            report(stage)
            if progress is not None:
                progress(stage)

        yield both


@contextmanager
def stage_bar(screen: Console, title: str, patience: float = 0.0, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """A function that draws the stage of a work; where no bar can be drawn, lines, unless they are to be ``quiet``."""
    lines = Lines(screen, title)
    with drawn_bar(screen, title, "{task.fields[state]}", patience, state="") as update:

        def report(stage: Stage) -> None:
            update(completed=stage.share, total=1.0, state=stage.words)
            if not quiet:
                lines.add(stage.share, 1.0, stage.words)

        yield report


class Lines:
    """Lines where no bar can be drawn: in a log file, say. The first and the last step always have one."""

    def __init__(self, screen: Console, title: str, every: float = LINE_EVERY) -> None:
        self.screen, self.title, self.every, self.next = screen, title, every, 0.0
        self.silent = _draws(screen)

    def add(self, done: float, total: float, words: str) -> None:
        if self.silent or (done < self.next and done < total):
            return
        self.next = done + self.every * total
        self.screen.print(f"{self.title}: {words}", soft_wrap=True)
