"""Texts that lie beside answers, in a column of their file or of another table: one for each item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.data import columns, encoding
from crowdwise.data.alignment import is_name
from crowdwise.data.boundary import guarded
from crowdwise.data.features import Features
from crowdwise.data.files import PathLike, read_table
from crowdwise.errors import ColumnError, InputError, Option, ReadError, Remedy, listing, suggestion

if TYPE_CHECKING:
    import polars as pl

NAMES = (
    "text", "texts", "sentence", "content", "body", "message", "tweet", "review", "utterance", "passage", "snippet",
    "caption", "headline", "document text", "item text",
)  # fmt: skip
"""What columns of texts are called, the first found."""
TEXT = Option("text", command="COLUMN")


def text_column(names: list[str]) -> str | None:
    """The column that is called like one of texts, if there is any."""
    by_name = {columns.normal(name): name for name in reversed(names)}
    return next((by_name[name] for name in NAMES if name in by_name), None)


@guarded
def read_texts(path: PathLike, column: str | None = None, item: str | None = None) -> Features:
    """The text of each item, as inputs of a learner, from a table with a row for each item, or for each answer.

    Parameters
    ----------
    path
        The file.
    column, item
        The columns of texts and items, where their names are not among the usual ones. Without a column of items, rows
        are numbered from 0.
    """
    table, from_text = read_table(path)
    if table.height == 0:
        raise ReadError(f"{path} has no rows: expected a text for each item.")
    for name, part in ((column, "text"), (item, "item")):
        if name is not None and name not in table.columns:
            near = suggestion(name, table.columns)
            has = listing(table.columns, 12)
            raise ColumnError(f"{path} has no column {name!r} for the {part}: it has {has}.{near}")
    found = column or text_column(table.columns)
    if found is None:
        has = listing(table.columns, 12)
        raise ColumnError(f"{path} has no column of texts: it has {has}.", remedy=Remedy("Name it: {}.", TEXT))
    rest = [name for name in table.columns if name != found]
    key = item or columns.find(rest, "item") or next((name for name in rest if is_name(name)), None)
    texts, names = _one_each(table, key, found, from_text, str(path))
    return Features(str(path), np.array(texts, dtype=object), names, columns=(found,))


def _one_each(table: pl.DataFrame, key: str | None, column: str, from_text: bool, path: str) -> tuple[list[Any], Any]:
    """Texts and the names of their items; an item that has two different texts is an error."""
    import polars as pl

    texts = table[column].cast(pl.String)
    if key is None:
        return texts.to_list(), None
    code, names = encoding.encode(table[key])
    if from_text:
        code, names = encoding.integers_in_text(code, names)
    pairs = pl.DataFrame({"item": code, "text": texts}).filter(pl.col("item") >= 0).drop_nulls()
    one = pairs.unique(maintain_order=True)
    twice = one.filter(pl.col("item").is_duplicated())
    if twice.height:
        name, two = names[twice["item"][0]], twice.filter(pl.col("item") == twice["item"][0])["text"].to_list()
        raise InputError(
            f"{path} has two different texts for item {listing([name])}: {listing([t[:40] for t in two], 2)}. Give "
            f"each item one, in the column {column!r} or in a table of items."
        )
    text = dict(zip(one["item"].to_list(), one["text"].to_list(), strict=True))
    return [text.get(n) for n in range(len(names))], names


def beside(path: PathLike, items: Any, item: str | None = None) -> dict[Any, str]:
    """Item -> its text, where the file of the answers has a column of texts: those of an item's first row."""
    import polars as pl

    chosen: list[str | None] = [None, None]

    def choose(names: list[str]) -> list[str] | None:
        text = text_column(names)
        key = item or columns.find([name for name in names if name != text], "item")
        chosen[:] = [text, key]
        return [name for name in names if name in chosen] if None not in chosen else names[:1]

    table, from_text = read_table(path, choose, wide=True)
    if None in chosen:
        choose(table.columns)
    text, key = chosen
    if text is None or key is None or table[text].dtype != pl.String:
        return {}
    code, names = encoding.encode(table[key])
    if from_text:
        code, names = encoding.integers_in_text(code, names)
    pairs = pl.DataFrame({"item": code, "text": table[text]}).filter(pl.col("item") >= 0).drop_nulls()
    first = pairs.unique("item", keep="first", maintain_order=True)
    known = set(items.tolist())
    found = zip(names[first["item"].to_numpy()].tolist(), first["text"].to_list(), strict=True)
    return {name: text for name, text in found if name in known}
