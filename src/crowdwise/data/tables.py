"""A table with columns becomes :class:`~crowdwise.data.votes.Votes`: the one road for frames and files alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding, frames
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.votes import OnMissing, Votes
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, listing

if TYPE_CHECKING:
    import polars as pl

Form = Literal["auto", "long", "wide"]


def votes_from_table(
    frame: Any,
    given: dict[str, str | None],
    *,
    classes: Sequence[Any] | None,
    form: Form,
    on_duplicate: OnDuplicate,
    on_missing: OnMissing,
    from_text: bool = False,
) -> Votes:
    """Votes from a frame. ``from_text``: the columns were read as text, so look for integers and booleans in them."""
    if form not in ("auto", "long", "wide"):
        raise ParameterError(f"form={form!r}: expected 'auto', 'long' or 'wide'.")
    if on_missing not in ("error", "drop"):
        raise ParameterError(f"on_missing={on_missing!r}: expected 'error' or 'drop'.")
    table = frames.to_polars(frame)
    if table.width == 0 or table.height == 0:
        raise InputError(f"No votes: the table has {table.height} rows and {table.width} columns.")
    parts = columns.resolve(table.columns, given)
    if form == "wide" or (form == "auto" and columns.is_wide(table.columns, parts) and _same_labels(table, parts)):
        table, parts = _lengthen(table, parts)
        categories = None
    else:
        columns.require_long(table.columns, parts)
        categories = frames.categories(frame, parts["label"])
    table, parts = _without_missing(table, parts, on_missing)

    tidy: Callable[[Codes, Vocabulary], tuple[Codes, Vocabulary]] = (
        encoding.integers_in_text if from_text else lambda c, v: (c, v)
    )
    given_label = table[str(parts["label"])]
    coded = (tidy(*encoding.encode(table[str(parts[part])])) for part in columns.NEEDED)
    (item, items), (annotator, annotators), (label, names) = coded
    if from_text:
        label, names = encoding.booleans_in_text(label, names)
    votes = Votes.from_codes(
        item, annotator, label,
        items=items, annotators=annotators,
        label_names=names, classes=_declared(classes, names, given_label, categories),
        weight=_weight(table, parts), timestamp=_timestamp(table, parts),
        on_duplicate=on_duplicate, kind=frames.kind_of(frame), rows=_rows(table, parts),
    )  # fmt: skip
    return (
        votes
        if parts["truth"] is None
        else votes.with_truth(_one_per_item(item, items, table[parts["truth"]], from_text))
    )


def truth_from_table(
    frame: Any, item: str | None = None, label: str | None = None, from_text: bool = False
) -> dict[Any, Any]:
    """Item -> true class, from a table with an item column and a label (or truth) column; rows without a class
    are unknown."""
    table = frames.to_polars(frame)
    parts = columns.resolve(table.columns, {"item": item, "truth": label, "label": None})
    value = parts["truth"] or parts["label"]
    if parts["item"] is None or value is None:
        raise ColumnError(f"A truth table needs an item column and a label column: found {listing(table.columns, 12)}.")
    table = table.select(parts["item"], value).drop_nulls()
    code, items = encoding.encode(table[parts["item"]])
    if from_text:
        code, items = encoding.integers_in_text(code, items)
    return _one_per_item(code, items, table[value], from_text)


def _same_labels(table: pl.DataFrame, parts: dict[str, str | None]) -> bool:
    """Whether columns look like annotators at the same task: some label stands in two of them (not so ``color``
    and ``size``)."""
    found = [table[c].drop_nulls().unique().to_list() for c in columns.annotator_columns(table.columns, parts)]
    return len({label for column in found for label in column}) < sum(map(len, found))


def _declared(
    classes: Sequence[Any] | None, names: Vocabulary, column: pl.Series, categories: Sequence[Any] | None
) -> Any:
    """The declared classes: the caller's, brought to the type of the labels, or the categories of the column."""
    import polars as pl

    if classes is None:
        return column.dtype.categories.to_list() if isinstance(column.dtype, pl.Enum) else categories
    declared = encoding.to_vocabulary(list(classes))
    if names.dtype != object and declared.dtype == object and all(isinstance(c, str) for c in declared):
        # Classes given as text (on a command line) for labels that turned out to be integers or booleans.
        words = [c.lower() for c in declared.tolist()]
        if names.dtype == bool and set(words) <= {"true", "false"}:
            declared = encoding.to_vocabulary([w == "true" for w in words])
        elif (
            names.dtype.kind == "i"
            and encoding.integers_in_text(np.arange(len(declared), dtype=np.int32), declared)[1].dtype.kind == "i"
        ):
            declared = encoding.to_vocabulary([int(w) for w in words])
    elif names.dtype != object and declared.dtype != object and names.dtype != declared.dtype:
        raise LabelError(
            f"The labels are {names.dtype} values and the declared classes {declared.dtype}: give the "
            f"classes as {names.dtype} values."
        )
    return declared


def _lengthen(table: pl.DataFrame, parts: dict[str, str | None]) -> tuple[pl.DataFrame, dict[str, str | None]]:
    """Wide to long: one row per cell that holds a label."""
    import polars as pl

    if {"annotator", "label"} <= {columns.normal(name) for name in table.columns}:
        raise ColumnError(
            f"The table has the columns {listing(table.columns, 12)}: with an annotator and a label in each row it is "
            "in the long form. Leave out form='wide'."
        )
    answers = columns.annotator_columns(table.columns, {**parts, "annotator": None, "label": None})
    if len(answers) == 0:
        raise ColumnError(
            "In the wide form every annotator has a column, and none is left: the table has "
            f"{listing(table.columns, 12)}."
        )
    if parts["item"] is None:
        parts = {**parts, "item": "item"}
        table = table.with_row_index("item")
    kinds = {table[c].dtype for c in answers} - {pl.Null()}
    if len(kinds) > 1:
        if all(kind.is_numeric() for kind in kinds):
            table = table.with_columns(
                pl.col(answers).cast(pl.Int128 if all(kind.is_integer() for kind in kinds) else pl.Float64)
            )
        elif all(kind in (pl.String, pl.Categorical, pl.Enum) for kind in kinds):
            table = table.with_columns(pl.col(answers).cast(pl.String))
        else:
            raise ColumnError(
                f"The annotator columns {listing(answers)} hold different kinds of labels. Convert "
                "them to text, or name the item and truth columns."
            )
    row = _free("row", table.columns)
    table = table.with_row_index(row)
    keep = [c for c in (parts["item"], parts["truth"], parts["weight"], parts["timestamp"], row) if c is not None]
    names = {part: _free(part, [*keep, *answers]) for part in ("annotator", "label")}
    long = table.unpivot(on=answers, index=keep, variable_name=names["annotator"], value_name=names["label"])
    value = pl.col(names["label"])
    long = long.filter(
        value.is_not_null() & value.is_not_nan() if long[names["label"]].dtype.is_float() else value.is_not_null()
    )
    if long.height == 0:
        raise InputError("No votes: every cell of the annotator columns is empty.")
    return long, {**parts, **names, "row": row}


def _free(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else _free(name + "_", taken)


def _rows(table: pl.DataFrame, parts: dict[str, str | None]) -> npt.NDArray[np.int64] | None:
    """The row of the user's table behind each row of this one; ``None`` where they are the same."""
    row = parts.get("row")
    return None if row is None else table[row].to_numpy().astype(np.int64)


def _row(table: pl.DataFrame, parts: dict[str, str | None], at: int) -> int:
    rows = _rows(table, parts)
    return at if rows is None else int(rows[at])


def _without_missing(
    table: pl.DataFrame, parts: dict[str, str | None], on_missing: OnMissing, needed: Sequence[str] = columns.NEEDED
) -> tuple[pl.DataFrame, dict[str, str | None]]:
    """Rows without an item, annotator or label: an error that names them, or left out."""
    for part in needed:
        column = table[str(parts[part])]
        empty = column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()
        if not bool(empty.any()):
            continue
        if on_missing == "error":
            at, origin = empty.arg_true().to_numpy(), _rows(table, parts)
            rows = np.unique(at if origin is None else origin[at]).tolist()
            raise LabelError(
                f"{len(rows):,} {'rows have' if len(rows) > 1 else 'row has'} no {part} (column {column.name!r}): "
                f"{'rows' if len(rows) > 1 else 'row'} {listing(rows)}, counted from 0. "
                "Fill them in, or leave them out with on_missing='drop'."
            )
        if parts.get("row") is None:
            row = _free("row", table.columns)
            table, parts = table.with_row_index(row), {**parts, "row": row}
        table = table.filter(~empty)
    if table.height == 0:
        lacking = "an item, an annotator and a label" if needed is columns.NEEDED else " and ".join(needed)
        raise InputError(f"No votes: no row has {lacking}.")
    return table, parts


def _weight(table: pl.DataFrame, parts: dict[str, str | None]) -> npt.NDArray[np.float64] | None:
    import polars as pl

    if (column := parts["weight"]) is None:
        return None
    given = table[column]
    if not (given.dtype.is_numeric() or given.dtype in (pl.String, pl.Boolean, pl.Null)):
        raise InputError(f"The weights in column {column!r} are {given.dtype} values: expected positive numbers.")
    values = given.cast(pl.Float64, strict=False)
    if values.null_count():
        at = int(values.is_null().arg_true()[0])
        raise InputError(
            f"The weight in row {_row(table, parts, at)} (column {column!r}) is {given[at]!r}: "
            "expected a positive number."
        )
    return values.to_numpy()


def _timestamp(table: pl.DataFrame, parts: dict[str, str | None]) -> npt.NDArray[Any] | None:
    """Times as datetimes (UTC where they name a zone) or plain numbers, whichever they are."""
    import polars as pl

    if (column := parts["timestamp"]) is None:
        return None
    values = table[column]
    if values.dtype == pl.String:
        numbers = values.cast(pl.Float64, strict=False)
        if numbers.null_count() == values.null_count():
            return numbers.to_numpy()
        try:
            return values.str.to_datetime(time_unit="us", strict=True).cast(pl.Datetime("us")).to_numpy()
        except pl.exceptions.PolarsError:
            at = _first_unreadable(values)
            raise InputError(
                f"The timestamp in row {_row(table, parts, at)} (column {column!r}) is "
                f"{values[at]!r}, which is no date like the others: "
                "expected ISO dates such as 2026-01-31T12:00:00, or numbers."
            ) from None
    if values.dtype in (pl.Date, pl.Datetime):
        return values.cast(pl.Datetime("us")).to_numpy()
    if not (values.dtype.is_numeric() or values.dtype == pl.Null):
        raise InputError(
            f"The timestamps in column {column!r} are {values.dtype} values: expected datetimes, ISO "
            "dates such as 2026-01-31T12:00:00, or numbers."
        )
    return values.cast(pl.Float64).to_numpy()


def _first_unreadable(values: pl.Series) -> int:
    """The first text that cannot be read as a date in the way of the column (the first at all, where none can)."""
    import polars as pl

    try:
        bad = values.str.to_datetime(time_unit="us", strict=False).is_null() & values.is_not_null()
    except pl.exceptions.PolarsError:
        bad = values.is_not_null()
    return int(bad.arg_true()[0]) if bool(bad.any()) else 0


def _one_per_item(item: Codes, items: Vocabulary, values: pl.Series, from_text: bool) -> dict[Any, Any]:
    """Item -> class, with an error where two rows disagree about an item; rows without a class are left out."""
    code, names = encoding.encode(values)
    if from_text:
        code, names = encoding.booleans_in_text(*encoding.integers_in_text(code, names))
    known = (code >= 0) & (item >= 0)
    item, code = item[known], code[known]
    out = np.full(len(items), -1, dtype=np.int32)
    out[item] = code
    clash = np.flatnonzero(out[item] != code)
    if len(clash):
        at = item[clash[0]]
        classes = names[[code[clash[0]], out[at]]]
        raise LabelError(
            f"Two rows give different true classes for item {listing(items[[at]])}: "
            f"{listing(classes)}. Keep one of them."
        )
    filled = np.flatnonzero(out >= 0)
    return dict(zip(items[filled].tolist(), names[out[filled]].tolist(), strict=True))
