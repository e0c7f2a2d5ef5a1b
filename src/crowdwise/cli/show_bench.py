"""Table of accuracies, a row for each method and a column for each data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crowdwise.cli.show import console, new_table, strong


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
            screen.print(f"{cell.method} on {cell.data}: {cell.problem}", markup=False, highlight=False, soft_wrap=True)


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
