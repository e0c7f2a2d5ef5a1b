"""Tables of accuracies, a row for each method and a column for each data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from crowdwise.cli.show import console, new_table, strong


def show_bench(sets: list[str], methods: list[str], cells: Iterable[Any]) -> None:
    """Accuracy in percent, a row for each method and a column for each data set, the best of a column in bold."""
    found = {(cell.data, cell.method): cell.accuracy for cell in cells}
    best = {s: max((found[s, m] for m in methods if found[s, m] is not None), default=None) for s in sets}
    rows = {}
    for method in methods:
        row = [found[s, method] for s in sets]
        there = [x for x in row if x is not None]
        shown = ["" if x is None else f"{100 * x:.1f}" for x in row]
        marks = [
            strong(text) if x is not None and x == best[s] else text
            for x, s, text in zip(row, sets, shown, strict=True)
        ]
        rows[method] = [*marks, f"{100 * float(np.mean(there)):.1f}" if len(there) == len(sets) else ""]
    _print_tables("accuracy %", [*sets, "mean"], rows)


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


def show_learner_bench(
    sets: list[str], methods: list[str], cells: dict[tuple[str, str], dict[str, tuple[float, float]]]
) -> None:
    """Test accuracy in percent, last epoch and (after the slash) the epoch that held-out votes chose."""
    rows = {}
    for method in methods:
        row = []
        for s in sets:
            found = cells.get((s, method), {})
            both = [found.get("accuracy_last"), found.get("accuracy_selected")]
            row.append(" / ".join("–" if x is None else f"{100 * x[0]:.1f}" for x in both) if any(both) else "")
        rows[method] = row
    _print_tables("last / selected", sets, rows)


@contextmanager
def cells_done(cells: Sequence[Any], done: Mapping[str, Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A callback for each finished cell, which writes a line about it: how many are done, its figures and seconds."""
    names = {cell.name for cell in cells}
    count = len(names & set(done))
    screen = console()
    screen.print(f"{count} of {len(names)} cells are done.")

    def told(row: dict[str, Any]) -> None:
        nonlocal count
        count += row.get("problem") is None
        screen.print(
            f"{count}/{len(names)} {row['cell']}: {cell_line(row)}", markup=False, highlight=False, soft_wrap=True
        )

    yield told


def cell_line(row: Mapping[str, Any]) -> str:
    """The figures of one cell, in percent."""
    if row.get("problem") is not None:
        return str(row["problem"])
    shown = []
    for name, value in (("last", row["accuracy_last"]), ("selected", row["accuracy_selected"]),
                        ("with votes", row["accuracy_votes"])):  # fmt: skip
        shown += [] if value is None else [f"{name} {100 * value:.2f}"]
    return ", ".join((*shown, f"{row['seconds']:.0f} s ({row['epoch_seconds']:.2f} s per epoch)"))
