"""Label sets from tables and files: one row per answer, with a cell of labels; or one row per chosen label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise.data import columns, encoding, frames, tables
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.files import NULLS, PathLike, read_table
from crowdwise.data.label_sets import LabelSets
from crowdwise.data.votes import OnMissing
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, ReadError, listing

__all__ = ["label_sets_from_table", "read_label_sets", "read_sets"]

DELIMITERS = ("|", ";", ",")
EMPTY = ("", "none", "nothing", "[]", "{}", "-")
"""Cells that stand for the empty set."""


def read_label_sets(
    path: PathLike,
    *,
    item: str | None = None,
    annotator: str | None = None,
    labels: str | None = None,
    label: str | None = None,
    offered: str | None = None,
    weight: str | None = None,
    timestamp: str | None = None,
    classes: Sequence[Any] | None = None,
    delimiter: str | None = None,
    on_duplicate: OnDuplicate = "error",
    on_missing: OnMissing = "error",
    separator: str | None = None,
    null_values: Sequence[str] = NULLS,
) -> LabelSets:
    """Label sets from a file of the kinds that :func:`crowdwise.read_votes` reads.

    The parameters are those of :meth:`LabelSets.from_frame`, and ``separator`` and ``null_values`` of text files.
    """
    given = {
        "item": item, "annotator": annotator, "labels": labels, "label": label, "offered": offered, "weight": weight,
        "timestamp": timestamp,
    }  # fmt: skip
    # As for the wide form, all columns are read: those of votes alone would leave out the sets.
    table, from_text = read_table(path, given, separator=separator, null_values=null_values, wide=True)
    if table.height == 0:
        raise ReadError(f"{path} has no answers: it names the columns {listing(table.columns, 12)} and has no rows.")
    return label_sets_from_table(table, given, classes, delimiter, on_duplicate, on_missing, from_text)


def read_sets(path: PathLike, *, delimiter: str | None = None) -> dict[Any, list[Any]]:
    """Item -> its true labels, from a file with an item column and a column of sets (or of one label per row)."""
    table, from_text = read_table(path, {})
    parts = columns.resolve(table.columns, {"item": None, "labels": None, "truth": None, "label": None})
    value = parts["labels"] or parts["truth"] or parts["label"]
    if parts["item"] is None or value is None:
        raise ColumnError(
            f"A table of true sets needs an item and a labels column: found {listing(table.columns, 12)}."
        )
    code, items = encoding.encode(table[parts["item"]])
    if from_text:
        code, items = encoding.integers_in_text(code, items)
    out: dict[Any, list[Any]] = {}
    for n, some in zip(code.tolist(), _sets(table[value], delimiter), strict=True):
        if n >= 0:
            out.setdefault(items[n : n + 1].tolist()[0], []).extend(some)
    return out


def label_sets_from_table(
    frame: Any,
    given: dict[str, str | None],
    classes: Sequence[Any] | None,
    delimiter: str | None,
    on_duplicate: OnDuplicate,
    on_missing: OnMissing,
    from_text: bool = False,
) -> LabelSets:
    """Label sets from a frame. ``from_text``: the columns were read as text, so look for integers in the names."""
    import polars as pl

    if on_missing not in ("error", "drop"):
        raise ParameterError(f"on_missing={on_missing!r}: expected 'error' or 'drop'.")
    if delimiter is not None and (not isinstance(delimiter, str) or not delimiter):
        raise ParameterError(f"delimiter={delimiter!r}: expected a text such as '|'.")
    table = frames.to_polars(frame)
    if table.width == 0 or table.height == 0:
        raise InputError(f"No answers: the table has {table.height} rows and {table.width} columns.")
    parts = columns.resolve(table.columns, given)
    if given["label"] is not None:
        parts["labels"] = None
    value = parts["labels"] or parts["label"]
    missing = [part for part in ("item", "annotator") if parts[part] is None] + ([] if value else ["labels"])
    if missing:
        raise ColumnError(
            f"No column found for: {', '.join(missing)}. The table has {listing(table.columns, 12)}. "
            f"Name the columns, e.g. {missing[0]}='...'."
        )
    table, parts = tables._without_missing(table, parts, on_missing, ("item", "annotator"))
    rows = tables._rows(table, parts)
    (item, items), (who, annotators) = (encoding.encode(table[str(parts[p])]) for p in ("item", "annotator"))
    if from_text:
        item, items = encoding.integers_in_text(item, items)
        who, annotators = encoding.integers_in_text(who, annotators)
    item, items = encoding.sort_vocabulary(item, items)
    who, annotators = encoding.sort_vocabulary(who, annotators)
    cells, weight = table[str(value)], tables._weight(table, parts)
    long = parts["labels"] is None and not isinstance(cells.dtype, pl.List)
    if long and delimiter is None:
        sets = [[] if cell is None or str(cell).strip().lower() in EMPTY else [cell] for cell in cells.to_list()]
    else:
        sets = _sets(cells, delimiter)
    offered: dict[Any, list[Any]] | None = None
    if parts["offered"] is not None:
        lists = _sets(table[parts["offered"]], delimiter)
        offered = {}
        for n, some in zip(items[item].tolist(), lists, strict=True):
            if set(offered.setdefault(n, some)) != set(some):
                raise LabelError(f"Two rows name different labels on offer for item {n!r}. Mend one of them.")
    timestamp = tables._timestamp(table, parts)
    if long:
        key, at, inverse = np.unique(
            item.astype(np.int64) * len(annotators) + who, return_index=True, return_inverse=True
        )
        joined: list[list[Any]] = [[] for _ in range(len(key))]
        for answer, some in zip(inverse.tolist(), sets, strict=True):
            joined[answer] += [label for label in some if label not in joined[answer]]
        item, who, sets = item[at], who[at], joined
        weight = weight if weight is None else weight[at]
        timestamp = timestamp if timestamp is None else timestamp[at]
        rows = at if rows is None else rows[at]
    return LabelSets._from_sets(
        item, who, sets, items, annotators, classes, offered=offered, weight=weight, timestamp=timestamp,
        on_duplicate=on_duplicate, kind=frames.kind_of(frame), rows=rows,
    )  # fmt: skip


# -------------------------------------------------------------------- the pieces


def _sets(cells: Any, delimiter: str | None) -> list[list[Any]]:
    """The labels of each cell: of lists, or of text with a delimiter."""
    import polars as pl

    if isinstance(cells.dtype, pl.List):
        return [[] if cell is None else list(dict.fromkeys(cell)) for cell in cells.to_list()]
    text = cells.cast(pl.String).fill_null("")
    found = delimiter or next((d for d in DELIMITERS if bool(text.str.contains(d, literal=True).any())), "|")
    out = []
    for cell in text.to_list():
        words = [] if cell.strip().lower() in EMPTY else [w.strip() for w in cell.split(found)]
        out.append(list(dict.fromkeys(w for w in words if w)))
    return out
