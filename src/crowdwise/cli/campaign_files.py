"""What the commands about campaigns share: the campaign in a folder, files of items and annotators, what is said."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from crowdwise.cli.outputs import emit, say
from crowdwise.client import Client, RemoteCampaign
from crowdwise.errors import ColumnError, InputError, ParameterError

server: ContextVar[str | None] = ContextVar("server", default=None)
"""The address of the server whose campaigns are meant (``campaign --server``), or nothing for folders."""
FolderArgument = Annotated[
    Path, typer.Argument(help="The folder of the campaign; with --server its name or id.", show_default=False)
]


def opened(folder: Path) -> Any:
    """The campaign in a folder, or of that name on a server."""
    address = server.get()
    if address is not None:
        return open_remote(address, str(folder))
    from crowdwise.store.campaign import Campaign

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


class _Table:
    """A result with the one method of results that commands call."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self.campaign = campaign

    def to_frame(self, table: str = "items", *, kind: str = "polars", probabilities: bool = False) -> Any:
        """A table of it; on a server all are of polars."""
        if table != "polars":
            return self.campaign.consensus_frame(table, probabilities=probabilities)
        import polars as pl

        rows = list(self.campaign.votes())
        names = ("item", "annotator", "label")
        return pl.DataFrame(
            {**{name: [row[name] for row in rows] for name in names}, "timestamp": [row["time"] for row in rows]}
        )


class _Question:
    """A question as the command lists it: a server does not show its value."""

    def __init__(self, item: Any, annotator: Any, price: float | None) -> None:
        self.item, self.annotator, self.price, self.value = item, annotator, price, None


class Remote:
    """A campaign on a server behind the names that commands call."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self.campaign = campaign

    def __getattr__(self, name: str) -> Any:
        return getattr(self.campaign, name)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.campaign.client.close()

    @property
    def settings(self) -> SimpleNamespace:
        return SimpleNamespace(**self.campaign.settings)

    def propose(self, n: int) -> Any:
        raise ParameterError("A server hands questions to one annotator at a time: say whom, --annotator NAME.")

    def next_for(self, annotator: str, n: int) -> list[_Question]:
        rows = self.campaign.client.call("GET", f"/campaigns/{self.campaign.id}/annotators")
        price = {str(row["annotator"]): row["price"] for row in rows}
        return [_Question(q.item, annotator, price.get(annotator)) for q in self.campaign.next_for(annotator, n)]

    def consensus(self) -> _Table:
        return _Table(self.campaign)

    def votes(self) -> _Table:
        return _Table(self.campaign)


def open_remote(address: str, name: str) -> Remote:
    """The campaign of a name or id on a server; the token is that of the environment."""
    return Remote(Client(address).campaign(name))


def create_remote(
    address: str, name: str, classes: list[Any], items: Iterable[Any], gold: Mapping[Any, Any],
    groups: Mapping[Any, Any], annotators: Mapping[Any, float] | Iterable[Any], **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Make a campaign on a server; its status."""
    with Client(address) as client:
        made = client.create_campaign(name, classes=classes, **settings)
        made.add_items(items, gold, groups)
        made.add_annotators(annotators)
        return made.status()
