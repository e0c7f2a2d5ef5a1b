"""What people see in a terminal: tables, bars, a progress line.

Pages that were asked for (the methods, the shape of a file) go to standard output; everything said
beside a result (summaries, notes, progress, errors) goes to standard error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.loop import Callback, Progress
from crowdwise.data.votes import Votes
from crowdwise.metrics import Estimate, accuracy

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BLOCKS = " ▏▎▍▌▋▊▉█"
PATIENCE = 0.7
"""Seconds before a fit shows its progress: quick ones stay quiet."""


def console(stderr: bool = True) -> Console:
    """Standard error (or output), as rich sees it: plain text when piped."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def note(text: str) -> None:
    """A line for people, unwrapped so that it can be searched for."""
    console().print(text, markup=False, soft_wrap=True)


@contextmanager
def _bar(title: str, words: str, **fields: Any) -> Iterator[Callable[..., None]]:
    """What draws a bar, with some words beside it, once things have taken a while; it is told how far they are.

    It disappears at the end, and never shows when piped.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    screen = console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(words), TimeElapsedColumn())
    bar = Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal)
    task = bar.add_task(title, total=1, **fields)
    began = time.perf_counter()

    def update(**state: Any) -> None:
        if time.perf_counter() - began > PATIENCE and not bar.live.is_started:
            bar.start()
        bar.update(task, **state)

    try:
        yield update
    finally:
        bar.stop()


@contextmanager
def progress(title: str) -> Iterator[Callback]:
    """A callback that draws a bar once a fit has taken a while."""
    with _bar(title, "pass {task.completed} of at most {task.total}, {task.fields[gain]} per vote", gain="") as update:

        def callback(step: Progress) -> None:
            name = f"{title}, restart {step.restart}" if step.restart else title
            update(description=name, completed=step.iteration, total=step.max_iter, gain=f"{step.change:+.1e}")

        yield callback


@contextmanager
def epochs(title: str) -> Iterator[Callable[[Any], None]]:
    """The same for learners: a callback that is told every epoch, and shows the loss and how probable held-out votes
    are."""
    with _bar(title, "epoch {task.completed} of {task.total}, {task.fields[state]}", state="") as update:

        def callback(step: Any) -> None:
            held = "" if step.held_out is None else f", held-out votes {step.held_out:.4f}"
            update(completed=step.epoch, total=step.epochs, state=f"loss {step.loss:.4f}{held}")

        yield callback


@contextmanager
def steps(total: int) -> Iterator[Callable[[str, str], None]]:
    """A callback that says which of many things is being done, with a bar; nothing when piped."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    screen = console()
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda data, method: bar.update(task, advance=1, description=f"{data}: {method}")


def measure(consensus: Consensus, truth: Any, used: Any) -> Estimate | None:
    """Accuracy on the items whose truth is known and was not given to the method."""
    if truth is None:
        return None
    hidden = truth if used is None else np.where(used >= 0, -1, truth)
    return accuracy(consensus, hidden) if (hidden >= 0).any() else None


def facts(consensus: Consensus, measured: Estimate | None) -> dict[str, Any]:
    """The JSON object of ``crowdwise aggregate --json``."""
    out: dict[str, Any] = {
        "method": consensus.method,
        "items": len(consensus.item_names),
        "annotators": len(consensus.annotator_names),
        "classes": len(consensus.classes),
        "votes": consensus.n_answers,
        "iterations": consensus.iterations,
        "converged": consensus.converged,
        "objective": consensus.objective,
        "seconds": round(consensus.seconds, 4),
        "note": " ".join(consensus.notes),
    }
    if measured is not None:
        out |= {"accuracy": measured.value, "accuracy_low": measured.low, "accuracy_high": measured.high}
    return out


# -------------------------------------------------------------------- pages


def show_consensus(consensus: Consensus, measured: Estimate | None, written: list[Any]) -> None:
    screen = console()
    screen.print()
    screen.print(
        f"[bold]{consensus.method}[/bold]: {len(consensus.item_names):,} items, {len(consensus.annotator_names):,} "
        f"annotators, {len(consensus.classes)} classes, {consensus.n_answers:,} votes"
    )
    screen.print(f"{consensus.iterations} passes, {consensus.seconds:.2f} s")
    for told in consensus.notes:
        screen.print(told, markup=False, soft_wrap=True)
    if measured is not None:
        screen.print(
            f"accuracy on {measured.n:,} items with truth: [bold]{measured.value:.4f}[/bold] "
            f"(95% from {measured.low:.4f} to {measured.high:.4f})"
        )
    screen.print()
    screen.print(class_table(consensus))
    screen.print(annotator_table(consensus))
    unsure = np.argsort(consensus.posterior.max(axis=1), kind="stable")[:5]
    screen.print("[bold]Least sure[/bold]")
    for n in unsure.tolist():
        q = consensus.posterior[n]
        first, second = np.argsort(-q, kind="stable")[:2]
        screen.print(
            f"  {consensus.item_names[n]}: {consensus.classes[first]} {q[first]:.2f}, "
            f"{consensus.classes[second]} {q[second]:.2f}",
            markup=False,
        )
    if written:
        screen.print()
        screen.print("written: " + ", ".join(str(p) for p in written), markup=False, soft_wrap=True)


def class_table(consensus: Consensus, limit: int = 12) -> Table:
    from rich.table import Table

    table = Table(box=None, title="Labels", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("class")
    table.add_column("items", justify="right")
    table.add_column("share")
    count = np.bincount(consensus.label_codes, minlength=len(consensus.classes))
    for k in np.argsort(-count, kind="stable")[:limit].tolist():
        table.add_row(str(consensus.classes[k]), f"{count[k]:,}", bar(count[k] / max(count.max(), 1), 30))
    if len(count) > limit:
        table.add_row(f"... {len(count) - limit} more", "", "")
    return table


def annotator_table(consensus: Consensus, limit: int = 6) -> Table:
    """The best and the worst annotators, by the end of their interval that would have to be wrong."""
    from rich.table import Table

    accuracy_, low, high = consensus.accuracy()
    order = np.argsort(-np.nan_to_num(low, nan=-1.0), kind="stable")
    if len(order) > 2 * limit:
        worst = np.argsort(np.nan_to_num(high, nan=2.0), kind="stable")[:limit][::-1]
        order = np.concatenate([order[:limit], [-1], worst])
    table = Table(
        box=None,
        title="Annotators: how often they are right, with a 95% interval",
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    table.add_column("annotator")
    table.add_column("votes", justify="right")
    table.add_column("accuracy", justify="right")
    table.add_column("0%" + " " * 34 + "100%")
    for m in order.tolist():
        if m < 0:
            table.add_row("...", "", "", "")
        else:
            table.add_row(
                str(consensus.annotator_names[m]),
                f"{consensus.votes_per_annotator[m]:,}",
                f"{accuracy_[m]:.3f}",
                whisker(low[m], accuracy_[m], high[m], 40),
            )
    return table


def show_description(votes: Votes) -> None:
    from rich.table import Table

    d = votes.describe()
    screen = console(stderr=False)
    screen.print(
        f"[bold]{d['votes']:,} votes[/bold] by {d['annotators']:,} annotators on {d['items']:,} items, "
        f"{len(d['classes'])} classes"
    )
    facts_ = [f"{d['density']:.2%} of all (item, annotator) pairs"]
    if d["unanimous"] is not None:
        facts_.append(f"{d['unanimous']:.1%} of the items with two votes or more are unanimous")
    facts_.append(f"truth known for {d['items_with_truth']:,} items" if d["items_with_truth"] else "no truth")
    facts_ += [word for word, there in (("weighted", d["weighted"]), ("with timestamps", d["timestamps"])) if there]
    for fact in facts_:
        screen.print(fact)
    screen.print()
    table = Table(box=None, pad_edge=False)
    for name in ("", "min", "median", "mean", "max"):
        table.add_column(name, justify="left" if name == "" else "right")
    for name in ("votes_per_item", "votes_per_annotator"):
        s = d[name]
        table.add_row(name.replace("_", " "), f"{s['min']:,}", f"{s['median']:g}", f"{s['mean']:.1f}", f"{s['max']:,}")
    screen.print(table)
    screen.print()
    screen.print(histogram("Votes per item", np.diff(votes.indptr)))
    screen.print(histogram("Votes per annotator", np.bincount(votes.annotator, minlength=votes.n_annotators)))
    shares = Table(
        box=None, title="Votes per class", title_justify="left", title_style="bold", pad_edge=False, show_header=False
    )
    top = max(d["votes_per_class"].values())
    for name, count in list(d["votes_per_class"].items())[:20]:
        shares.add_row(str(name), f"{count:,}", bar(count / max(top, 1), 30), "" if count else "nobody used it")
    screen.print(shares)


def histogram(title: str, counts: Any) -> Table:
    """Counts in at most ten bins (whole numbers, or powers of two when they spread far)."""
    from rich.table import Table

    low, high = int(counts.min()), int(counts.max())
    if high - low < 10:
        edges = np.arange(low, high + 2)
    else:
        edges = np.unique(
            np.concatenate([[low], 2 ** np.arange(int(np.log2(max(low, 1))) + 1, int(np.log2(high)) + 2)])
        )
    heights, _ = np.histogram(counts, bins=edges)
    table = Table(box=None, title=title, title_justify="left", title_style="bold", pad_edge=False, show_header=False)
    for height, a, b in zip(heights.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        table.add_row(
            f"{a:,}" if b - a == 1 else f"{a:,} to {b - 1:,}", f"{height:,}", bar(height / max(heights.max(), 1), 30)
        )
    return table


def frame_table(title: str, frame: Any, limit: int = 8) -> Table:
    """The first rows of a result's table, numbers to three places; of many columns, without the ends of intervals."""
    from rich.table import Table

    if len(frame.columns) > 8:
        frame = frame.select([name for name in frame.columns if not name.endswith(("_low", "_high"))])

    table = Table(box=None, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for name in frame.columns:
        table.add_column(name, justify="right" if frame[name].dtype.is_numeric() else "left")
    for row in frame.head(limit).iter_rows():
        table.add_row(*map(_shown, row))
    if frame.height > limit:
        table.add_row(f"... {frame.height - limit:,} more")
    return table


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) >= 2 else f"{value:.3f}"


# -------------------------------------------------------------------- drawing


def bar(share: float, width: int) -> str:
    """A horizontal bar, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")


def whisker(low: float, middle: float, high: float, width: int) -> str:
    """An interval with its middle, on a line from 0 to 1."""
    if not np.isfinite([low, middle, high]).all():
        return "·" * width
    a, m, b = (min(width - 1, int(x * width)) for x in (low, middle, high))
    line = ["·"] * width
    line[a : b + 1] = ["━"] * (b + 1 - a)
    line[m] = "●"
    return "".join(line)
