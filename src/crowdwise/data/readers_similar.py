"""Similarities from tables and files: two columns of items, and one of answers in any of the words for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding, frames, tables
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.files import NULLS, PathLike, read_table
from crowdwise.data.similarities import Similarities
from crowdwise.data.votes import OnMissing
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, ReadError, listing

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_similarities", "similarities_from_table"]

NEEDED = ("item_a", "item_b", "annotator", "same")
SAME = ("same", "yes", "y", "true", "t", "1", "1.0", "similar", "match", "must-link", "must link")
DIFFERENT = ("different", "no", "n", "false", "f", "0", "0.0", "dissimilar", "mismatch", "cannot-link", "cannot link")
"""The words for the two answers; case does not matter."""


def read_similarities(
    path: PathLike,
    *,
    item_a: str | None = None,
    item_b: str | None = None,
    annotator: str | None = None,
    same: str | None = None,
    weight: str | None = None,
    timestamp: str | None = None,
    items: Sequence[Any] | None = None,
    on_duplicate: OnDuplicate = "error",
    on_missing: OnMissing = "error",
    separator: str | None = None,
    null_values: Sequence[str] = NULLS,
) -> Similarities:
    """Similarities from a file of the kinds that :func:`crowdwise.read_votes` reads.

    The parameters are those of :meth:`Similarities.from_frame`, and ``separator`` and ``null_values`` of text files.
    """
    given = {
        "item_a": item_a, "item_b": item_b, "annotator": annotator, "same": same, "weight": weight,
        "timestamp": timestamp,
    }  # fmt: skip
    table, from_text = read_table(path, given, separator=separator, null_values=null_values)
    if table.height == 0:
        raise ReadError(f"{path} has no answers: it names the columns {listing(table.columns, 12)} and has no rows.")
    return similarities_from_table(table, given, items, on_duplicate, on_missing, from_text)


def similarities_from_table(
    frame: Any,
    given: dict[str, str | None],
    declared: Sequence[Any] | None,
    on_duplicate: OnDuplicate,
    on_missing: OnMissing,
    from_text: bool = False,
) -> Similarities:
    """Similarities from a frame. ``from_text``: the columns were read as text, so look for integers in the names."""
    if on_missing not in ("error", "drop"):
        raise ParameterError(f"on_missing={on_missing!r}: expected 'error' or 'drop'.")
    table = frames.to_polars(frame)
    if table.width == 0 or table.height == 0:
        raise InputError(f"No answers: the table has {table.height} rows and {table.width} columns.")
    parts = columns.resolve(table.columns, given)
    if parts["same"] is None:  # a column of labels does, if it holds the words for the two answers
        parts["same"] = columns.find([c for c in table.columns if c not in parts.values()], "label")
    missing = [part for part in NEEDED if parts[part] is None]
    if missing:
        known = "; ".join(f"{part} (also {', '.join(columns.ALIASES[part][1:5])}, ...)" for part in missing)
        raise ColumnError(
            f"No column found for: {known}. The table has {listing(table.columns, 12)}. "
            f"Name the columns, e.g. {missing[0]}='...'."
        )
    table, parts = tables._without_missing(table, parts, on_missing, NEEDED)
    rows = tables._rows(table, parts)
    both = _stacked(table, str(parts["item_a"]), str(parts["item_b"]))
    code, items = encoding.encode(both)
    who, annotators = encoding.encode(table[str(parts["annotator"])])
    if from_text:
        code, items = encoding.integers_in_text(code, items)
        who, annotators = encoding.integers_in_text(who, annotators)
    if declared is None:
        code, items = encoding.sort_vocabulary(code, items)
    else:
        code, items = _placed(code, items, encoding.to_vocabulary(list(declared)))
    who, annotators = encoding.sort_vocabulary(who, annotators)
    return Similarities.from_codes(
        code[: table.height], code[table.height :], who, _answers(table[str(parts["same"])], rows),
        items=items, annotators=annotators, weight=tables._weight(table, parts),
        timestamp=tables._timestamp(table, parts), on_duplicate=on_duplicate, kind=frames.kind_of(frame), rows=rows,
    )  # fmt: skip


# -------------------------------------------------------------------- the pieces


def _stacked(table: pl.DataFrame, a: str, b: str) -> pl.Series:
    """The two columns of items below each other; text and numbers do not mix."""
    import polars as pl

    one, two = table[a], table[b]
    if one.dtype != two.dtype:
        if one.dtype.is_numeric() and two.dtype.is_numeric():
            return pl.concat([one.cast(pl.Int64), two.cast(pl.Int64).alias(a)])
        one, two = one.cast(pl.String), two.cast(pl.String)
    return pl.concat([one, two.alias(a)])


def _placed(code: Codes, items: Vocabulary, declared: Vocabulary) -> tuple[Codes, Vocabulary]:
    encoding.check_distinct(declared, "items")
    place = encoding.locate(items, declared)
    if (place < 0).any():
        raise LabelError(
            f"The pairs name {listing(items[place < 0])}, which the declared items do not have. "
            "Add the name to items=[...], or leave those rows out."
        )
    return encoding.recode(code, place), declared


def _answers(column: pl.Series, rows: npt.NDArray[np.int64] | None) -> npt.NDArray[np.bool_]:
    """True for the same, False for different, from whatever words stand for them."""
    import polars as pl

    if column.dtype == pl.Boolean:
        return column.to_numpy().astype(bool)
    words = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    same, different = words.is_in(list(SAME)), words.is_in(list(DIFFERENT))
    odd = (~(same | different)).arg_true()
    if len(odd):
        at = int(odd[0])
        row = at if rows is None else int(rows[at])
        raise LabelError(
            f"The answer in row {row} (column {column.name!r}, counted from 0) is {column[at]!r}: expected "
            f"{listing(SAME[:4])}... for the same, or {listing(DIFFERENT[:4])}... for different."
        )
    return same.to_numpy().astype(bool)
