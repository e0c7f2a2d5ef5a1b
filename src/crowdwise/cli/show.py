"""What people see in a terminal: lines, tables, bars, progress.

Pages that were asked for (the methods, the shape of a file) go to standard output; everything said beside a result
(summaries, notes, progress, errors) goes to standard error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from crowdwise.core.progress_bar import stated, step_bar
from crowdwise.data.table import histogram
from crowdwise.registry import ANSWER_TYPES, DEFAULT_LEARNER, Entry, Plugin
from crowdwise.trust.wording import counted, figure

if TYPE_CHECKING:
    from rich.table import Table

    from crowdwise.metrics import Estimate
    from crowdwise.trust.method_comparison import Comparison
    from crowdwise.trust.posterior_checks import PosteriorCheck

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


def progress(title: str) -> AbstractContextManager[Callable[[Any], Any]]:
    """A callback that draws a bar once a fit, or a work in stages, has taken a while; nothing when piped."""
    return step_bar(console(), title, PATIENCE)


def epochs(title: str, verbose: bool = False) -> AbstractContextManager[Callable[[Any], Any]]:
    """The same for learners; ``verbose``: a line for every epoch."""
    screen = console()

    def line(step: Any) -> None:
        screen.print(f"{title}: {stated(step)[2]}, {step.seconds:.2f} s", soft_wrap=True)

    return step_bar(screen, title, PATIENCE, callback=line if verbose else None)


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


def show_tables(screen: Console, tables: Iterable[Table]) -> None:
    """Tables, with a blank line before each."""
    for table in tables:
        screen.print()
        screen.print(table)


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
    if not isinstance(value, float):
        return str(value)
    if value and not SMALL <= abs(value) < LARGE:
        return figure(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) >= 2 else f"{value:.3f}"


def histogram_table(title: str, counts: Any) -> Table:
    """Counts in at most ten bins."""
    bins = histogram(counts)
    most = max((row["count"] for row in bins), default=0)
    table = new_table(title=title, header=False)
    for row in bins:
        ends = [f"{row[end]:,}" for end in ("from", "to")]
        table.add_row(" to ".join(dict.fromkeys(ends)), f"{row['count']:,}", bar_cell(row["count"] / max(most, 1)))
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


def show_replay(facts: dict[str, Any]) -> None:
    """A row for each strategy: how many votes it needed."""
    table = new_table("strategy", ">votes needed", ">never", ">accuracy at the end", ">off by")
    for name, row in facts["strategies"].items():
        needed = f"{100 * row['share']:.0f} ± {100 * row['share_sd']:.0f} %"
        off = f"{100 * row['calibration']:.1f}"
        table.add_row(name, needed, str(row["never"]), f"{100 * row['accuracy']:.1f} %", off)
    screen = console(stderr=False)
    whole = f"a batch fit of all {facts['votes']:,} votes has {100 * facts['batch_accuracy']:.1f} %"
    screen.print(strong(facts["data"], f", {facts['method']}: {whole}"))
    screen.print(table)
    screen.print(
        "Votes needed: the share at which that accuracy, less half a point, is first reached. "
        "Off by: points between the accuracy that the model expected and the real one, in the mean.",
    )


def show_plan(facts: dict[str, Any]) -> None:
    """A row for each number of votes per item; the best of a column is marked."""
    words = {"accuracy": "labels right", "right": "right labels", "test": "test accuracy"}
    shown = [name for name in words if name in facts]
    table = new_table(*(f">{name}" for name in ("votes per item", "items", *(words[name] for name in shown))))
    for i, votes in enumerate(facts["votes_per_item"]):
        cells = []
        for name in shown:
            mean = facts[name][i]["mean"]
            text = f"{mean:,.0f}" if name == "right" else f"{100 * mean:.1f} %"
            cells.append(f"{text} *" if facts["best"][name] == votes else f"{text}  ")
        table.add_row(str(votes), f"{facts['items'][i]:,}", *cells)
    screen = console(stderr=False)
    screen.print(strong(facts["data"], f", {facts['method']}: {facts['budget']:,} votes"))
    screen.print(table)
    screen.print("* the best of its column")
    now, each = facts["present"], f"{facts['present']['votes_per_item']:.1f} votes per item"
    value, low, high = (f"{100 * now[key]:.1f}" for key in ("accuracy", "low", "high"))
    screen.print(f"At present {each}: {value} % of the labels are expected to be right ({low} to {high} %).")
    if "target" in facts:
        goal = facts["target"]
        votes = f"{goal['votes_per_item']} votes per item"
        if goal["votes_per_item"] is None:
            votes = f"no number of votes (at most {100 * goal['at_most']:.1f} %)"
        gold = f"{goal['gold']:,} gold labels of the most doubtful items"
        screen.print(f"{100 * goal['accuracy']:g} %: {votes}, or {gold}.")
    proof = facts["proof"]
    half, most = (f"{n:,}" for n in proof["gold"].values())
    screen.print(
        f"To prove at most {100 * proof['max_error']:g} % wrong ({100 * proof['confidence']:g} % confidence): about "
        f"{half} random gold labels for half of the labels, {most} for 90 % of them (crowdwise certify)."
    )


def show_bench(sets: list[str], methods: list[str], cells: Iterable[Any]) -> None:
    """Accuracy in percent, a row for each method and a column for each data set, the best of a column in bold.

    The accuracy of learners on test items has columns of its own; reasons for gaps are below.
    """
    screen = console(stderr=False)
    cell_of = {(cell.data, cell.method): cell for cell in cells}
    columns = {name: [cell_of[name, m].accuracy for m in methods] for name in sets}
    tested = {f"{name}, test": [cell_of[name, m].accuracy_test for m in methods] for name in sets}
    tested = {name: values for name, values in tested.items() if any(x is not None for x in values)}
    shown = [_percent(values) for values in (columns | tested).values()]
    means = []
    for row in zip(*columns.values(), strict=True):
        known = [x for x in row if x is not None]
        means.append(f"{100 * float(np.mean(known)):.1f}" if len(known) == len(sets) else "")
    shown.insert(len(sets), means)
    rows = dict(zip(methods, zip(*shown, strict=True), strict=True))
    _print_tables("accuracy %", [*sets, "mean", *tested], rows)
    for cell in cell_of.values():
        if cell.problem is not None:
            screen.print(f"{cell.method} on {cell.data}: {cell.problem}", soft_wrap=True)


def _percent(values: Sequence[float | None]) -> list[Any]:
    best = max((x for x in values if x is not None), default=None)
    texts = ["" if x is None else f"{100 * x:.1f}" for x in values]
    return [strong(text) if x is not None and x == best else text for x, text in zip(values, texts, strict=True)]


def _print_tables(corner: str, columns: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> None:
    """A table with a row for each method; as many below each other as it takes for names to be whole."""
    screen = console(stderr=False)
    room = screen.width - max(map(len, (corner, *rows)))
    widths = [2 + max(map(len, (name, *(row[i] for row in rows.values())))) for i, name in enumerate(columns)]
    first = 0
    while first < len(columns):
        last = first + 1
        while last < len(columns) and sum(widths[first : last + 1]) <= room:
            last += 1
        table = new_table(f"|{corner}", *(f">{name}" for name in columns[first:last]))
        for method, row in rows.items():
            table.add_row(method, *row[first:last])
        if first:
            screen.print()
        screen.print(table)
        first = last


WIDTH = 30


def show_status(name: str, facts: dict[str, Any]) -> None:
    """How far a campaign is, with bars for the items and the money."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    items = facts["items"]
    table.add_row("items voted on", f"{facts['voted_on']:,} of {items:,}", share_bar(facts["voted_on"], items))
    done = facts["finished"] + facts["closed"]
    table.add_row("finished", f"{done:,}", share_bar(done, items))
    table.add_row(
        "votes", f"{facts['votes']:,}", f"by {counted(facts['annotators'], 'annotator')}, {facts['asked']:,} awaited"
    )
    budget = facts["budget"]
    table.add_row(
        "spent", f"{facts['spent']:,.2f}" + ("" if budget is None else f" of {budget:,.2f}"),
        "" if budget is None else share_bar(facts["spent"], budget),
    )  # fmt: skip
    if facts["accuracy"] is not None:
        low, high = facts["accuracy_low"], facts["accuracy_high"]
        found = "not known", "too few items have two votes"
        if facts["accuracy_known"]:
            found = (
                f"{100 * facts['accuracy']:.1f} %",
                f"{100 * low:.1f} to {100 * high:.1f} %, estimated without truth",
            )
        table.add_row("accuracy", *found)
    if facts["target"] is not None:
        reachable = facts["reachable"]
        table.add_row(
            "target", f"{100 * facts['target']:.1f} %",
            "" if reachable is None else f"about {100 * reachable:.1f} % is expected with all votes of those available",
        )  # fmt: skip
    if facts["max_error"] is not None:
        proof = facts["proof"]
        gold = f"{proof['known']:,} of {proof['drawn']:,} gold labels, compared {counted(proof['looks'], 'time')}"
        so_far = "proven" if proof["proven"] else proof["missing"] or "not proven yet"
        table.add_row("errors allowed", f"{100 * facts['max_error']:.3g} %", f"{gold}; {so_far}")
    screen = console(stderr=False)
    screen.print(strong(name, f", {facts['method']}"))
    screen.print(table)
    lead = {"running": "Go on", "waiting": "Wait"}.get(facts["state"], "Stop")
    why = "" if facts["state"] == "running" else f" ({facts['state'].replace('-', ' ')}): {facts['stop']}"
    advice = "" if facts["advice"] is None else f" {facts['advice']}"
    screen.print(f"{lead}{why if lead == 'Stop' else why.replace(' (waiting)', '')}.{advice}", markup=False)


def share_bar(part: float, whole: float) -> Any:
    """A part of a whole, drawn in the room there is."""
    share = min(max(part / whole if whole else 0.0, 0.0), 1.0)
    return Drawing(lambda room: "█" * round(room * share) + "░" * (room - round(room * share)), WIDTH)


def show_methods(entries: Sequence[Entry], learners: Iterable[Entry] = (), beyond: Iterable[Entry] = ()) -> None:
    """The methods; family, then reference are left out where the terminal is too narrow for them."""
    screen = console(stderr=False)
    endless = screen.options.update(max_width=1000)
    header = ("method", "what it does", "reference", "family")
    kinds: dict[str, list[Entry]] = {}
    for entry in beyond:
        kinds.setdefault(entry.answer_type, []).append(entry)
    groups: list[tuple[str, Iterable[Entry]]] = [
        ("From votes alone: aggregate", [entry for entry in entries if not isinstance(entry, Plugin)]),
        ("From votes alone, of other packages: aggregate", [entry for entry in entries if isinstance(entry, Plugin)]),
        ("From inputs and votes: learn", learners),
        *(
            (f"{kind.capitalize()}, {ANSWER_TYPES[kind].says}: aggregate --answers {kind}", some)
            for kind, some in kinds.items()
        ),
    ]
    defaults = {DEFAULT_LEARNER, *(kind.default for kind in ANSWER_TYPES.values())}
    parts = [(title, [(e.key, e.summary, e.reference, e.family) for e in some]) for title, some in groups]
    parts = [(title, rows) for title, rows in parts if rows]
    for columns in (4, 3, 2):
        tables = []
        for title, rows in parts:
            table = new_table(*header[:columns], title=title if len(parts) > 1 else None)
            for row in rows:
                table.add_row(*row[:columns], style="bold" if row[0] in defaults else None)
            tables.append(table)
        if all(screen.measure(table, options=endless).maximum <= screen.width for table in tables):
            break
    for n, table in enumerate(tables):
        if n:
            screen.print()
        screen.print(table)


def show_scenarios(scenarios: dict[str, tuple[str, Callable[..., Any]]]) -> None:
    table = new_table("scenario", "answers", "what it makes, and its parameters (--set)")
    for name, (answer_type, function) in scenarios.items():
        parameters = [p for p in inspect.signature(function).parameters if p != "random_state"]
        first = (inspect.getdoc(function) or "").partition("\n")[0].replace("``", "")
        table.add_row(name, answer_type, Text.assemble(f"{first}\n", (", ".join(parameters), "dim")))
    console(stderr=False).print(table)


WHISKER_WIDTH, WIDE = 22, 66
"""Characters of a drawn interval, and of a screen that has room for every column."""
SMALL_P = 0.05
"""A p-value under this is pointed out."""
MEANINGS = {
    "disagreement": "pairs of votes on an item that differ",
    "uneven": "disagreement gathers on some items",
    "marginals": "labels that annotators favour",
    "dependence": "pairs of annotators who agree or differ",
}


def show_comparison(comparison: Comparison, what: str = "votes") -> None:
    """The table of methods, the agreement between them, and the checks of the best."""
    screen = console(stderr=False)
    splits = f"{comparison.repeats} split{'s' if comparison.repeats != 1 else ''}"
    held_out = f"{comparison.n_held_out:,.0f} of {comparison.n_votes:,} {what} held out in each"
    first = strong(f"{len(comparison.methods)} methods", f" predict held-out {what}: {splits}, {held_out}")
    screen.print(first, soft_wrap=True)
    screen.print()
    screen.print(method_table(comparison, screen.width))
    screen.print(verdict(comparison, what), soft_wrap=True)
    screen.print(certainty(comparison), soft_wrap=True)
    if len(comparison.methods) > 1:
        screen.print()
        screen.print(
            agreement_table(comparison, screen.width, "Items labelled" if what == "votes" else "Pairs ordered")
        )
    if comparison.checks and comparison.checks[0]:
        screen.print()
        screen.print(check_table(comparison.methods[0], comparison.checks[0]))
    for name, why in comparison.problems.items():
        screen.print(f"{name} was left out: {why}")


def verdict(comparison: Comparison, what: str = "votes") -> str:
    """The best, and the methods within noise of it, in a sentence."""
    best, *others = comparison.close
    if not others:
        return f"{best} predicts {what} best, beyond noise."
    return f"{best} predicts {what} best; within noise, so do {', '.join(others)}."


def certainty(comparison: Comparison) -> str:
    """How far the scores may be off, and what they are of."""
    words = f"Scores are within {comparison.error.max():.2g} (95%, over items)."
    if comparison.n_items < comparison.of_items:
        words += f" Compared on {comparison.n_items:,} of {comparison.of_items:,} items, drawn at random."
    return words


def method_table(comparison: Comparison, width: int) -> Table:
    """A row for each method, with the interval of how far it is behind the best drawn to scale; on a narrow screen
    without calibration and seconds."""
    reach = float(np.nanmax(comparison.high[np.isfinite(comparison.high)], initial=0.0))
    more = [">calibration", ">seconds"] if width >= WIDE else []
    names = ["|method", ">score", ">behind", *more]
    names += [] if comparison.accuracy is None else [">accuracy"]
    table = new_table(*names, f"95%, 0 to {reach:.3f}")
    for j, name in enumerate(comparison.methods):
        row = [name, f"{comparison.score[j]:.4f}", f"{comparison.behind[j]:.4f}"]
        row += [f"{comparison.calibration[j]:.3f}", f"{comparison.seconds[j]:.2f}"] if more else []
        if comparison.accuracy is not None:
            row.append(f"{comparison.accuracy[j]:.4f}")
        ends = comparison.low[j], comparison.behind[j], comparison.high[j]
        drawn = whisker_cell(*ends, WHISKER_WIDTH, 0.0, reach) if j and reach > 0.0 else "●"
        table.add_row(*row, drawn, style="bold" if j == 0 else None)
    return table


def agreement_table(comparison: Comparison, width: int, what: str = "Items labelled") -> Table:
    """Items labelled alike, in percent; as many methods as the terminal is wide enough for."""
    longest = max(map(len, comparison.methods))
    shown = max(2, min(len(comparison.methods), (width - longest - 2) // 9))
    table = new_table("", *(f">{name[:8]}" for name in comparison.methods[:shown]), title=f"{what} alike, %")
    for j, name in enumerate(comparison.methods[:shown]):
        table.add_row(name, *(f"{100 * x:.1f}" for x in comparison.agreement[j, :shown]))
    if shown < len(comparison.methods):
        table.add_row(f"... {len(comparison.methods) - shown} more")
    return table


def check_table(method: str, checks: tuple[PosteriorCheck, ...]) -> Table:
    """What was observed beside what the method would have given."""
    title = f"Votes as {method} would have drawn them"
    table = new_table("check", ">seen", ">drawn", ">p", "", title=title)
    for check in checks:
        if np.isfinite(check.observed):
            words = "not explained" if check.p_value < SMALL_P else ""
            cells = (f"{check.observed:.4g}", f"{check.expected:.4g}", f"{check.p_value:.2f}", words)
            table.add_row(MEANINGS[check.name], *cells, style="yellow" if words else None)
    return table
