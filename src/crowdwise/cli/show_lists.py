"""Lists of what there is to choose from: methods, learners, scenarios."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crowdwise.cli.show import console, new_table
from crowdwise.registry import ANSWER_TYPES, DEFAULT_LEARNER, Entry, Plugin


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


def show_scenarios(scenarios: dict[str, Callable[..., Any]]) -> None:
    from rich.text import Text

    table = new_table("scenario", "what it makes, and its parameters (--set)")
    for name, function in scenarios.items():
        parameters = [p for p in inspect.signature(function).parameters if p != "random_state"]
        first = (inspect.getdoc(function) or "").partition("\n")[0].replace("``", "")
        table.add_row(name, Text.assemble(f"{first}\n", (", ".join(parameters), "dim")))
    console(stderr=False).print(table)
