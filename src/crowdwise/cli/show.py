"""What people see in a terminal: lines, tables, bars, progress.

Pages that were asked for (the methods, the shape of a file) go to standard output; everything said beside a result
(summaries, notes, progress, errors) goes to standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from crowdwise.core.progress_bar import drawn_bar, stage_bar, stated

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from crowdwise.core.loop import Callback, Progress
    from crowdwise.metrics import Estimate

BLOCKS = " ▏▎▍▌▋▊▉█"
SMALL, LARGE = 0.01, 10_000.0
"""Numbers have three places; under the first, three digits (they would be 0.000); from the second on, none."""
PATIENCE = 0.7
"""Seconds before a fit shows its progress: quick ones stay quiet."""


def console(stderr: bool = True) -> Console:
    """Standard error (or output), as rich sees it: plain text when piped."""

    return Screen(stderr=stderr)


def strong(words: str, rest: str = "", style: str = "bold") -> Text:
    """Some words in bold, and what follows them."""
    from rich.text import Text

    return Text.assemble((words, style), rest)


def written(screen: Console, paths: Sequence[Any]) -> None:
    """Where results went, if anywhere."""
    if paths:
        screen.print()
        screen.print("written: " + ", ".join(map(str, paths)), soft_wrap=True)


def measures(screen: Console, measured: dict[str, Estimate], of: str = "") -> None:
    """A line for each figure against the truth."""
    for name, e in measured.items():
        screen.print(
            f"{name.replace('_', ' ')}{of} on {e.n:,} items with truth:",
            strong(f"{e.value:.4f}", f" ({e.interval('{:.4f}'.format)})"),
        )


@contextmanager
def progress(title: str) -> Iterator[Callback]:
    """A callback that draws a bar once a fit has taken a while."""
    with drawn_bar(console(), title, "{task.fields[state]}", PATIENCE, state="") as update:

        def callback(step: Progress) -> None:
            name = f"{title}, restart {step.restart}" if getattr(step, "restart", 0) else title
            done, total, words = stated(step)
            update(description=name, completed=done, total=total, state=words)

        yield callback


@contextmanager
def stages(title: str) -> Iterator[Callable[..., None]]:
    """A callback for a work in stages: a bar with the time that it still takes; nothing when piped."""
    with stage_bar(console(), title, PATIENCE, quiet=True) as report:
        yield report


@contextmanager
def epochs(title: str, verbose: bool = False) -> Iterator[Callable[[Any], None]]:
    """The same for learners: the bar shows the loss, and how probable held-out votes are. ``verbose``: a line for every
    epoch."""
    screen = console()
    with drawn_bar(screen, title, "{task.fields[state]}", PATIENCE, state="") as update:

        def callback(step: Any) -> None:
            done, total, words = stated(step)
            update(completed=done, total=total, state=words)
            if verbose:
                screen.print(f"{title}: {words}, {step.seconds:.2f} s", soft_wrap=True)

        yield callback


@contextmanager
def steps(total: int) -> Iterator[Callable[..., None]]:
    """A callback that says which of many steps is being done, with a bar; nothing when piped."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console()
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda *words: bar.update(task, advance=1, description=": ".join(words))


def new_table(*columns: str | Drawing, title: str | None = None, header: bool = True, **more: Any) -> Table:
    """A plain table. A column whose name begins with ``>`` (set to the right) or ``|`` (to the left) never wraps."""
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", show_header=header, **more
    )
    for name in columns:
        mark = name[:1] if isinstance(name, str) and name.startswith((">", "|")) else ""
        head = name.removeprefix(mark) if isinstance(name, str) else name
        table.add_column(head, justify="right" if mark == ">" else "left", no_wrap=bool(mark))
    return table


def frame_table(title: str, frame: Any, limit: int = 8) -> Table:
    """The first rows of a result's table, numbers to three places (three digits where they are small, whole where they
    are large); of many columns, without the ends of intervals."""
    if len(frame.columns) > 8:
        frame = frame.select([name for name in frame.columns if not name.endswith(("_low", "_high"))])
    numeric = [frame[name].dtype.is_numeric() for name in frame.columns]
    names = [f">{name}" if right else name for name, right in zip(frame.columns, numeric, strict=True)]
    table = new_table(*names, title=title)
    for row in frame.head(limit).iter_rows():
        table.add_row(*map(_shown, row))
    if frame.height > limit:
        table.add_row(f"... {frame.height - limit:,} more")
    return table


def _shown(value: Any) -> str:
    from crowdwise.trust.wording import figure

    if not isinstance(value, float):
        return str(value)
    if value and not SMALL <= abs(value) < LARGE:
        return figure(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) >= 2 else f"{value:.3f}"


def histogram(title: str, counts: Any) -> Table:
    """Counts in at most ten bins (whole numbers, or powers of two when they spread far)."""
    low, high = int(counts.min()), int(counts.max())
    if high - low < 10:
        edges = np.arange(low, high + 2)
    else:
        edges = np.unique(
            np.concatenate([[low], 2 ** np.arange(int(np.log2(max(low, 1))) + 1, int(np.log2(high)) + 2)])
        )
    heights, _ = np.histogram(counts, bins=edges)
    table = new_table(title=title, header=False)
    for height, a, b in zip(heights.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        last = min(b - 1, high)
        share = bar_cell(height / max(heights.max(), 1))
        table.add_row(f"{a:,}" if a == last else f"{a:,} to {last:,}", f"{height:,}", share)
    return table


def bar(share: float, width: int) -> str:
    """A horizontal bar, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")


def bar_cell(share: float, width: int = 30) -> Drawing:
    """A bar in a table, shorter where the table has little room."""

    return Drawing(lambda room: bar(share, room), width)


def ends_cell(first: str, last: str, width: int) -> Drawing:
    """The heading of a column of intervals: where their scale begins and ends."""

    least = len(first) + len(last) + 1
    return Drawing(lambda room: f"{first}{last:>{max(room - len(first), len(last) + 1)}}", width, least)


def whisker_cell(
    low: float, middle: float, high: float, width: int, start: float = 0.0, end: float = 1.0, blank: str = " "
) -> Drawing:
    """An interval in a table, as :func:`whisker` draws it."""

    return Drawing(lambda room: whisker(low, middle, high, room, start, end, blank), width)


def whisker(
    low: float, middle: float, high: float, width: int, start: float = 0.0, end: float = 1.0, blank: str = " "
) -> str:
    """An interval with its middle, on a line from ``start`` to ``end``, with a mark at zero where that lies inside."""
    if not np.isfinite([low, middle, high]).all() or end < start:
        return (blank * width).rstrip()
    scale = (width - 1) / max(end - start, 1e-12)
    a, m, b = (int(np.clip(round((x - start) * scale), 0, width - 1)) for x in (low, middle, high))
    line = [blank] * width
    if start < 0.0 < end:
        line[round(-start * scale)] = "┊"
    line[a : b + 1] = ["━"] * (b + 1 - a)
    line[m] = "●"
    return "".join(line).rstrip()


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that steer a terminal -> how they are shown."""
CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""... and those that turn the direction of text."""


class Screen(Console):
    """A console that prints what it is given: ``[b]`` is three characters, and escape is shown as a backslash and x1b.

    Styles come as :class:`rich.text.Text`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else text.translate(CONTROLS), style, control)


class Drawing:
    """A bar, an interval or the ends of a scale, drawn as wide as there is room for: none is cut.

    ``draw`` takes a number of characters, at least ``least`` and at most ``most``.
    """

    def __init__(self, draw: Callable[[int], str], most: int, least: int = 8) -> None:
        self.draw, self.most, self.least = draw, most, least

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        yield Text(self.draw(max(1, min(self.most, options.max_width))), no_wrap=True, overflow="crop")

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        width = min(self.most, options.max_width)
        return Measurement(min(self.least, width), width)
