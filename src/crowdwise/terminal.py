"""What people see in a terminal: tables, bars, a progress line.

Pages that were asked for (the methods, the shape of a file) go to standard output; everything said
beside a result (summaries, notes, progress, errors) goes to standard error.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.em import Callback, Progress
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, suggestion
from crowdwise.metrics import Estimate, accuracy
from crowdwise.registry import ANSWERS, DEFAULT_LEARNER, Entry

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
def progress(title: str) -> Iterator[Callback]:
    """A callback that draws a bar once a fit has taken a while.

    It disappears at the end, and never shows when piped.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    screen = console()
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("pass {task.completed} of at most {task.total}, {task.fields[gain]} per vote"),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    task = bar.add_task(title, total=1, gain="")
    began = time.perf_counter()

    def callback(step: Progress) -> None:
        if time.perf_counter() - began > PATIENCE and not bar.live.is_started:
            bar.start()
        name = f"{title}, restart {step.restart}" if step.restart else title
        bar.update(task, description=name, completed=step.iteration, total=step.max_iter, gain=f"{step.change:+.1e}")

    try:
        yield callback
    finally:
        bar.stop()


@contextmanager
def epochs(title: str) -> Iterator[Callable[[Any], None]]:
    """The same for learners: a callback that is told every epoch, and shows the loss and how probable held-out votes
    are."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    screen = console()
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("epoch {task.completed} of {task.total}, {task.fields[state]}"),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    task = bar.add_task(title, total=1, state="")
    began = time.perf_counter()

    def callback(step: Any) -> None:
        if time.perf_counter() - began > PATIENCE and not bar.live.is_started:
            bar.start()
        held = "" if step.held_out is None else f", held-out votes {step.held_out:.4f}"
        bar.update(task, completed=step.epoch, total=step.epochs, state=f"loss {step.loss:.4f}{held}")

    try:
        yield callback
    finally:
        bar.stop()


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
        "votes": consensus.n_votes,
        "iterations": consensus.iterations,
        "converged": consensus.converged,
        "objective": consensus.objective,
        "seconds": round(consensus.seconds, 4),
        "note": consensus.note,
    }
    if measured is not None:
        out |= {"accuracy": measured.value, "accuracy_low": measured.low, "accuracy_high": measured.high}
    return out


def learned(learner: Any, measured: Estimate | None, tested: tuple[float, int] | None) -> dict[str, Any]:
    """The JSON object of ``crowdwise learn --json``."""
    found: Consensus = learner.consensus_
    history = learner.history_
    held = [step.held_out for step in history if step.held_out is not None]
    out: dict[str, Any] = {
        "method": found.method,
        "items": len(found.item_names),
        "annotators": len(found.annotator_names),
        "classes": len(found.classes),
        "votes": found.n_votes,
        "seed": learner.seed_,
        "seconds": round(found.seconds, 4),
        "history": {
            "epochs": len(history),
            "loss_first": history[0].loss,
            "loss_last": history[-1].loss,
            "held_out_last": held[-1] if held else None,
            "held_out_best": max(held) if held else None,
            "held_out_best_epoch": history[int(np.argmax(held))].epoch if held else None,
        },
    }
    if measured is not None:
        out |= {"accuracy": measured.value, "accuracy_low": measured.low, "accuracy_high": measured.high}
    if tested is not None:
        out |= {"accuracy_test": tested[0], "items_test": tested[1]}
    return out


def predictions(names: Any, classes: Any, q: Any, probabilities: bool) -> dict[str, Any]:
    """The columns of a table of predictions."""
    columns = {"item": names, "label": classes[q.argmax(axis=1)], "probability": q.max(axis=1)}
    return columns | ({f"p({name})": q[:, k] for k, name in enumerate(classes)} if probabilities else {})


def predicted(learner: Any, votes: Votes | None, items: int, tested: tuple[float, int] | None) -> dict[str, Any]:
    """The JSON object of ``crowdwise predict --json``."""
    out: dict[str, Any] = {
        "method": learner.key,
        "items": items,
        "classes": len(learner.classes_),
        "votes": 0 if votes is None else votes.n_votes,
    }
    return out if tested is None else out | {"accuracy_test": tested[0], "items_test": tested[1]}


# -------------------------------------------------------------------- pages


def show_consensus(consensus: Consensus, measured: Estimate | None, written: list[Any]) -> None:
    screen = console()
    screen.print()
    screen.print(
        f"[bold]{consensus.method}[/bold]: {len(consensus.item_names):,} items, "
        f"{len(consensus.annotator_names):,} annotators, {len(consensus.classes)} classes, {consensus.n_votes:,} votes"
    )
    screen.print(f"{consensus.iterations} passes, {consensus.seconds:.2f} s")
    if consensus.note:
        screen.print(consensus.note, markup=False, soft_wrap=True)
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


def show_learned(learner: Any, measured: Estimate | None, tested: tuple[float, int] | None, out: Any) -> None:
    screen = console()
    found: Consensus = learner.consensus_
    facts_ = learned(learner, measured, tested)["history"]
    screen.print()
    screen.print(
        f"[bold]{found.method}[/bold]: {len(found.item_names):,} items, {len(found.annotator_names):,} annotators, "
        f"{len(found.classes)} classes, {found.n_votes:,} votes"
    )
    held = "" if facts_["held_out_last"] is None else f", held-out votes {facts_['held_out_last']:.4f}"
    screen.print(f"{facts_['epochs']} epochs, loss {facts_['loss_last']:.4f}{held}, {found.seconds:.2f} s")
    if measured is not None:
        screen.print(
            f"accuracy of the consensus on {measured.n:,} items with truth: [bold]{measured.value:.4f}[/bold] "
            f"(95% from {measured.low:.4f} to {measured.high:.4f})"
        )
    if tested is not None:
        screen.print(f"accuracy on {tested[1]:,} items nobody voted on: [bold]{tested[0]:.4f}[/bold]")
    screen.print()
    screen.print(class_table(found))
    screen.print(annotator_table(found))
    screen.print(
        "nothing was kept: --out DIR keeps the classifier" if out is None else f"written: {out}",
        markup=False,
        soft_wrap=True,
    )


def show_predicted(learner: Any, table: Any, tested: tuple[float, int] | None, out: Any) -> None:
    screen = console()
    sure = float(table["probability"].mean())
    screen.print(f"{learner.key}: {table.height:,} items labelled, with a probability of {sure:.3f} on average")
    if tested is not None:
        screen.print(f"accuracy on {tested[1]:,} items whose class is known: [bold]{tested[0]:.4f}[/bold]")
    if out is not None:
        screen.print(f"written: {out}", markup=False, soft_wrap=True)


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


def show_bench(sets: list[str], methods: list[str], cells: Iterable[Any]) -> None:
    """Accuracy in percent, a row for each method and a column for each data set, the best of a column in bold."""
    from rich.table import Table

    found = {(cell.data, cell.method): cell.accuracy for cell in cells}
    best = {s: max((found[s, m] for m in methods if found[s, m] is not None), default=None) for s in sets}
    table = Table(box=None, pad_edge=False)
    table.add_column("accuracy %")
    for name in [*sets, "mean"]:
        table.add_column(name, justify="right", no_wrap=True)
    for method in methods:
        row = [found[s, method] for s in sets]
        there = [x for x in row if x is not None]
        shown = ["" if x is None else f"{100 * x:.1f}" for x in row]
        marks = [
            f"[bold]{text}[/bold]" if x is not None and x == best[s] else text
            for x, s, text in zip(row, sets, shown, strict=True)
        ]
        table.add_row(method, *marks, f"{100 * float(np.mean(there)):.1f}" if len(there) == len(sets) else "")
    console(stderr=False).print(table)


def show_learner_bench(
    sets: list[str], methods: list[str], cells: dict[tuple[str, str], dict[str, tuple[float, float]]]
) -> None:
    """Test accuracy in percent, last epoch and (after the slash) the epoch that held-out votes chose."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("last / selected")
    for name in sets:
        table.add_column(name, justify="right", no_wrap=True)
    for method in methods:
        row = []
        for s in sets:
            found = cells.get((s, method), {})
            both = [found.get("accuracy_last"), found.get("accuracy_selected")]
            row.append(" / ".join("–" if x is None else f"{100 * x[0]:.1f}" for x in both) if any(both) else "")
        table.add_row(method, *row)
    console(stderr=False).print(table)


def show_methods(entries: Iterable[Entry], learners: Iterable[Entry] = (), beyond: Iterable[Entry] = ()) -> None:
    """The methods; family, then reference are left out where the terminal is too narrow for them."""
    from rich.table import Table

    screen = console(stderr=False)
    endless = screen.options.update(max_width=1000)
    header = ("method", "what it does", "reference", "family")
    kinds: dict[str, list[Entry]] = {}
    for entry in beyond:
        kinds.setdefault(entry.family, []).append(entry)
    groups: list[tuple[str, Iterable[Entry]]] = [
        ("From votes alone: aggregate", entries),
        ("From inputs and votes: learn", learners),
        *(
            (f"{kind.capitalize()}, {ANSWERS[kind][1]}: aggregate --answers {kind}", some)
            for kind, some in kinds.items()
        ),
    ]
    defaults = {DEFAULT_LEARNER, *(default for default, _ in ANSWERS.values())}
    parts = [(title, [(e.key, e.summary, e.reference, e.family) for e in some]) for title, some in groups]
    parts = [(title, rows) for title, rows in parts if rows]
    for columns in (4, 3, 2):
        tables = []
        for title, rows in parts:
            table = Table(
                box=None, pad_edge=False, title=title if len(parts) > 1 else None, title_justify="left",
                title_style="bold",
            )  # fmt: skip
            for name in header[:columns]:
                table.add_column(name)
            for row in rows:
                table.add_row(*row[:columns], style="bold" if row[0] in defaults else None)
            tables.append(table)
        if all(screen.measure(table, options=endless).maximum <= screen.width for table in tables):
            break
    for n, table in enumerate(tables):
        if n:
            screen.print()
        screen.print(table)


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


def show_scenarios(scenarios: dict[str, Callable[..., Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("scenario")
    table.add_column("what it makes, and its parameters (--set)")
    for name, function in scenarios.items():
        parameters = [p for p in inspect.signature(function).parameters if p != "random_state"]
        first = (inspect.getdoc(function) or "").partition("\n")[0].replace("``", "")
        table.add_row(name, f"{first}\n[dim]{', '.join(parameters)}[/dim]")
    console(stderr=False).print(table)


def check_arguments(name: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Unknown or lacking arguments of a scenario, said before it runs."""
    parameters = {p: v for p, v in inspect.signature(function).parameters.items() if p != "random_state"}
    for argument in given:
        if argument not in parameters:
            raise ParameterError(
                f"{name} has no parameter {argument!r}: it has "
                f"{', '.join(parameters)}.{suggestion(argument, list(parameters))}"
            )
    lacking = [p for p, v in parameters.items() if v.default is inspect.Parameter.empty and p not in given]
    if lacking:
        raise ParameterError(f"{name} needs {', '.join(lacking)}: give --set {lacking[0]}=...")


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
