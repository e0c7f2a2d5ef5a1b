"""Ratings from tables and files: a column of numbers instead of one of labels, everything else as for votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.data import columns, encoding, frames, tables
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.files import NULLS, PathLike, read_table
from crowdwise.data.ratings import Numbers, Ratings
from crowdwise.data.tables import Form
from crowdwise.data.votes import OnMissing
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, ReadError, listing

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ratings_from_table", "read_numbers", "read_ratings"]


def read_ratings(
    path: PathLike,
    *,
    item: str | None = None,
    annotator: str | None = None,
    value: str | None = None,
    weight: str | None = None,
    timestamp: str | None = None,
    truth: str | None = None,
    truth_path: PathLike | None = None,
    form: Form = "auto",
    on_duplicate: OnDuplicate = "error",
    on_missing: OnMissing = "error",
    separator: str | None = None,
    null_values: Sequence[str] = NULLS,
) -> Ratings:
    """Ratings from a file; the parameters are those of :func:`crowdwise.read_votes`, ``value`` in place of ``label``.

    Parameters
    ----------
    path
        ``.csv``, ``.tsv`` or ``.txt`` (also ``.gz``, ``.zst``), ``.jsonl``, ``.parquet``, ``.arrow``/``.feather``.
    item, annotator, value, weight, timestamp, truth, form, on_duplicate, on_missing
        As in :meth:`crowdwise.Ratings.from_frame`.
    truth_path
        A second file with the true number of some items.
    separator, null_values
        Of text files: the column separator, where it should not be guessed, and what counts as an empty cell.
    """
    given = {"item": item, "annotator": annotator, "value": value}
    given |= {"weight": weight, "timestamp": timestamp, "truth": truth}
    table, from_text = read_table(path, given, separator=separator, null_values=null_values, wide=form == "wide")
    if table.height == 0:
        raise ReadError(f"{path} has no ratings: it names the columns {listing(table.columns, 12)} and has no rows.")
    ratings = ratings_from_table(
        table, given, form=form, on_duplicate=on_duplicate, on_missing=on_missing, from_text=from_text
    )
    return ratings if truth_path is None else ratings.with_truth(read_numbers(truth_path))


def read_numbers(path: PathLike, *, item: str | None = None, value: str | None = None) -> dict[Any, float]:
    """Item -> true number from a file with an item column and a value (or truth) column."""
    table, from_text = read_table(path, {})
    parts = columns.resolve(table.columns, {"item": item, "truth": value, "value": None})
    column = parts["truth"] or parts["value"]
    if parts["item"] is None or column is None:
        raise ColumnError(f"A truth table needs an item column and a value column: found {listing(table.columns, 12)}.")
    table = table.select(parts["item"], column).drop_nulls()
    if table.height == 0:
        raise ReadError(f"{path} names no true number: every row is empty.")
    code, items = encoding.encode(table[parts["item"]])
    if from_text:
        code, items = encoding.integers_in_text(code, items)
    return _one_per_item(code, items, _numbers(table[column], None))


def ratings_from_table(
    frame: Any,
    given: dict[str, str | None],
    *,
    form: Form,
    on_duplicate: OnDuplicate,
    on_missing: OnMissing,
    from_text: bool = False,
) -> Ratings:
    """Ratings from a frame. ``from_text``: the columns were read as text, so look for integers in the names."""
    if form not in ("auto", "long", "wide"):
        raise ParameterError(f"form={form!r}: expected 'auto', 'long' or 'wide'.")
    if on_missing not in ("error", "drop"):
        raise ParameterError(f"on_missing={on_missing!r}: expected 'error' or 'drop'.")
    table = frames.to_polars(frame)
    if table.width == 0 or table.height == 0:
        raise InputError(f"No ratings: the table has {table.height} rows and {table.width} columns.")
    parts = columns.resolve(table.columns, given)
    parts["label"] = parts.pop("value")  # what the shared pieces call the answer
    if form == "wide" or (form == "auto" and columns.is_wide(table.columns, parts)):
        table, parts = tables._lengthen(table, parts)
    else:
        _require(table.columns, parts)
    table, parts = tables._without_missing(table, parts, on_missing)
    value = _numbers(table[str(parts["label"])], tables._rows(table, parts))
    coded = [encoding.encode(table[str(parts[part])]) for part in ("item", "annotator")]
    if from_text:
        coded = [encoding.integers_in_text(*pair) for pair in coded]
    (item, items), (annotator, annotators) = coded
    ratings = Ratings.from_codes(
        item, annotator, value,
        items=items, annotators=annotators,
        weight=tables._weight(table, parts), timestamp=tables._timestamp(table, parts),
        on_duplicate=on_duplicate, kind=frames.kind_of(frame), rows=tables._rows(table, parts),
    )  # fmt: skip
    if parts["truth"] is None:
        return ratings
    known = table[parts["truth"]].is_not_null().to_numpy()
    truth = _numbers(table[parts["truth"]].filter(known), np.flatnonzero(known))
    told = ~np.isnan(truth)
    return ratings.with_truth(_one_per_item(item[known][told], items, truth[told]))


def _require(names: Sequence[str], parts: dict[str, str | None]) -> None:
    """The long form needs an item, an annotator and a value column."""
    missing = [part for part in ("item", "annotator", "label") if parts[part] is None]
    if missing:
        words = ["value" if part == "label" else part for part in missing]
        told = "; ".join(f"{part} (also {', '.join(columns.ALIASES[part][1:5])}, ...)" for part in words)
        raise ColumnError(
            f"No column found for: {told}. The table has {listing(names, 12)}. "
            f"Name the columns, e.g. {words[0]}='...', or pass form='wide' if each annotator has a column."
        )


def _numbers(column: pl.Series, rows: Any) -> Numbers:
    """A column as numbers; text that is none is an error that names its row."""
    import polars as pl

    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean)):
        raise LabelError(f"Column {column.name!r} holds {column.dtype} values: expected numbers.")
    values = column.cast(pl.Float64, strict=False)
    bad = (values.is_null() & column.is_not_null()).arg_true()
    if len(bad):
        at = int(bad[0])
        row = at if rows is None else int(rows[at])
        raise LabelError(
            f"Column {column.name!r} holds {column[at]!r} in row {row} (counted from 0): expected a number. "
            "If these are classes, make Votes of them."
        )
    return values.fill_null(float("nan")).to_numpy().astype(np.float64)


def _one_per_item(item: Any, items: Any, value: Numbers) -> dict[Any, float]:
    """Item -> number, with an error where two rows disagree about an item."""
    out = np.full(len(items), np.nan)
    out[item] = value
    clash = np.flatnonzero(out[item] != value)
    if len(clash):
        at = item[clash[0]]
        raise LabelError(
            f"Two rows give different true numbers for item {listing(items[[at]])}: {value[clash[0]]:g} and "
            f"{out[at]:g}. Keep one of them."
        )
    filled = np.flatnonzero(~np.isnan(out))
    return dict(zip(items[filled].tolist(), out[filled].tolist(), strict=True))
