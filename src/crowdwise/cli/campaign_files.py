"""What the commands about campaigns share: the campaign in a folder, files of items and annotators, what is said."""

from __future__ import annotations

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.outputs import emit, say
from crowdwise.errors import ColumnError, InputError

server: ContextVar[str | None] = ContextVar("server", default=None)
"""The address of the server whose campaigns are meant (``campaign --server``), or nothing for folders."""
FolderArgument = Annotated[
    Path, typer.Argument(help="The folder of the campaign; with --server its name or id.", show_default=False)
]


def opened(folder: Path) -> Any:
    """The campaign in a folder, or of that name on a server."""
    address = server.get()
    if address is not None:
        from crowdwise.cli.remote_campaign import open_remote

        return open_remote(address, str(folder))
    from crowdwise.active.campaign import Campaign

    return Campaign.open(folder)


def read_items(path: Path) -> tuple[list[Any], dict[Any, Any], dict[Any, Any]]:
    """The items of a table, and their truth and group where there are columns of these."""
    from crowdwise.data.columns import find, normal
    from crowdwise.data.files import read_table
    from crowdwise.data.places import place_in

    table, _ = read_table(path)
    item, truth = find(table.columns, "item"), find(table.columns, "truth")
    if item is None:
        raise ColumnError(f"{path} has no item column: it has {', '.join(table.columns)}.")
    names = table[item].to_list()
    if any(name is None for name in names):
        raise InputError(f"{path}: {place_in(path, table, names.index(None))} names no item.")
    group = next((c for c in table.columns if normal(c) == "group"), None)
    known, groups = (
        {} if column is None else {n: x for n, x in zip(names, table[column].to_list(), strict=True) if x is not None}
        for column in (truth, group)
    )
    return names, known, groups


def read_annotators(path: Path, price: float) -> dict[Any, float]:
    """Annotators and what a vote of theirs costs."""
    from crowdwise.data.columns import find, normal
    from crowdwise.data.files import read_table
    from crowdwise.data.places import place_in

    table, _ = read_table(path)
    who = find(table.columns, "annotator")
    if who is None:
        raise ColumnError(f"{path} has no annotator column: it has {', '.join(table.columns)}.")
    costs = next((c for c in table.columns if normal(c) in ("price", "cost")), None)
    out: dict[Any, float] = {}
    for row, name in enumerate(table[who].to_list()):
        if name is None:
            raise InputError(f"{path}: {place_in(path, table, row)} names no annotator.")
        given = None if costs is None else table[costs][row]
        try:
            out[name] = price if given is None else float(given)
        except ValueError:
            raise InputError(
                f"{path}: {place_in(path, table, row)} has the price {given!r}: expected a number."
            ) from None
    return out


def counted(n: int, what: str) -> str:
    """``1 question``, ``2 questions``."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def report(facts: dict[str, Any], as_json: bool, line: str) -> None:
    if as_json:
        emit(json.dumps(facts))
    else:
        say(f"{line}.")
