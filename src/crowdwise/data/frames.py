"""Any dataframe in, the same kind out.

The rest of crowdwise never asks which dataframe library the user likes: columns come in as polars
Series and go out as a dict of arrays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from crowdwise.data.heavy import pl
from crowdwise.errors import InputError, ParameterError

KINDS = ("polars", "pandas", "pyarrow", "dict")


def kind_of(frame: Any) -> str:
    """``polars``, ``pandas`` or ``pyarrow``: what a result computed from this frame should come back as."""
    root = type(frame).__module__.partition(".")[0]
    if root == "narwhals":
        return kind_of(frame.to_native())
    return root if root in KINDS else "polars"


def native(table: Any) -> Any:
    """What is inside a narwhals table, a lazy one collected, and a pyarrow one as polars; anything else as it is."""
    root = type(table).__module__.partition(".")[0]
    if root == "narwhals":
        return native(table.to_native())
    if root == "polars" and hasattr(table, "collect"):
        return table.collect()
    if root == "pyarrow" and hasattr(table, "column_names"):
        return pl.DataFrame(table)
    return table


def is_pandas(table: Any) -> bool:
    """Whether it has rows with an index, as a table or a Series of pandas."""
    return type(table).__module__.partition(".")[0] == "pandas" and hasattr(table, "index")


def is_frame(table: Any) -> bool:
    """Whether it is a table of pandas or polars (see :func:`native`)."""
    root = type(table).__module__.partition(".")[0]
    return root in ("pandas", "polars") and hasattr(table, "columns")


def is_series(column: Any) -> bool:
    """Whether it is a column of pandas or polars."""
    root = type(column).__module__.partition(".")[0]
    return root in ("pandas", "polars") and type(column).__name__ == "Series"


def categories(frame: Any, name: str | None) -> list[Any] | None:
    """The categories that a pandas column declares, used or not; ``None`` for any other column."""
    if kind_of(frame) != "pandas" or not hasattr(frame, "dtypes"):
        return None
    declared = getattr(frame.dtypes.get(name), "categories", None)
    return None if declared is None else list(declared.tolist())


def to_polars(frame: Any) -> pl.DataFrame:
    """A polars frame from pandas, polars, pyarrow, a dict of columns, or whatever narwhals or Arrow streams take."""
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, dict):
        return _from_columns(frame)
    if isinstance(frame, (str, os.PathLike)):
        raise InputError(f"Expected a table and found the text {str(frame)[:80]!r}. If it is a file, read that first.")
    import narwhals as nw

    try:
        if kind_of(frame) != "pandas" and hasattr(frame, "__arrow_c_stream__"):
            return pl.DataFrame(frame)
        if type(frame).__name__.endswith("GroupBy"):
            raise TypeError
        is_pandas = kind_of(frame) == "pandas" and getattr(frame, "ndim", 0) == 2
        if is_pandas and not all(isinstance(name, str) for name in frame.columns):
            frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        table = nw.from_native(frame)
    except (pl.exceptions.PolarsError, nw.exceptions.NarwhalsError, ValueError) as error:
        raise InputError(
            f"This {type(frame).__name__} is not a table that can be read: {' '.join(str(error).split())}"
        ) from error
    except TypeError:
        raise InputError(
            f"Expected a table and found {type(frame).__name__}. Pass a pandas, polars or pyarrow table or a "
            "dict of columns; use from_dense for an array and from_records for an iterable of rows."
        ) from None
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    return pl.DataFrame([_column(table[name]) for name in table.columns])


def _from_columns(columns: dict[Any, Any]) -> pl.DataFrame:
    """A polars frame from a dict of columns, checked to be equally long."""
    for name, values in columns.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
            raise InputError(f"Column {name!r} is {values!r}: expected a list or an array with one value for each row.")
        if isinstance(values, (Mapping, set, frozenset)):
            raise InputError(
                f"Column {name!r} is a {type(values).__name__}: expected a list or an array with one value for each "
                "row. Of a pandas table, to_dict('list') gives these; of {item: {annotator: label}}, pass the rows "
                "(item, annotator, label) to Votes.from_records."
            )
    series = [
        v if isinstance(v, pl.Series) else _series(str(name), v if isinstance(v, np.ndarray) else list(v))
        for name, v in columns.items()
    ]
    if len({len(s) for s in series}) > 1:
        lengths = ", ".join(f"{name!r} {len(s)}" for name, s in zip(columns, series, strict=True))
        raise InputError(f"The columns must be equally long and hold different numbers of values: {lengths}.")
    return pl.DataFrame([s.alias(str(name)) for name, s in zip(columns, series, strict=True)])


def make_frame(columns: dict[str, Any], kind: str = "polars") -> Any:
    """A table of the wanted kind from a dict of equally long arrays."""
    if kind == "dict":
        return columns
    if kind == "polars":
        return pl.DataFrame([_series(name, values) for name, values in columns.items()])
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame({name: pd.Series(_plain(values)) for name, values in columns.items()})
    if kind == "pyarrow":
        import pyarrow as pa

        return pa.table({name: pa.array(_plain(values)) for name, values in columns.items()})
    raise ParameterError(f"Unknown kind of table {kind!r}: expected one of {', '.join(KINDS)}.")


HTML_ROWS = 5
"""Rows of a table that a notebook shows."""


def to_html(title: str, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """What notebooks show of tables, by name: a title, and the first rows of each. All text is escaped."""

    def cells(values: Sequence[Any], tag: str) -> str:
        shown = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in values)
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in shown) + "</tr>"

    parts = [f"<p>{escape(title)}</p>"]
    for name, columns in tables.items():
        rows = zip(*(np.asarray(values)[:HTML_ROWS].tolist() for values in columns.values()), strict=True)
        n = len(next(iter(columns.values()), ()))
        more = f" (the first {HTML_ROWS} of {n:,} rows)" if n > HTML_ROWS else ""
        body = "".join(cells(row, "td") for row in rows)
        parts.append(f"<table><caption>{escape(name)}{more}</caption>{cells(list(columns), 'th')}{body}</table>")
    return "\n".join(parts)


def _column(column: Any) -> pl.Series:
    """One narwhals column, by the cheapest road that loses nothing."""
    import narwhals as nw

    if column.dtype == nw.Categorical or column.dtype == nw.Enum:
        values = _series(column.name, column.to_list())
        declared = getattr(getattr(column.to_native(), "dtype", None), "categories", None)
        if declared is not None and len(declared) and all(isinstance(c, str) for c in declared):
            return values.cast(pl.Enum(declared.tolist()))  # declares the classes, used or not
        return values
    if column.dtype.is_integer() and column.null_count():  # as floats, large ones would lose their last digits
        empty = pl.Series(column.is_null().to_numpy())
        return pl.Series(column.name, column.fill_null(0).to_numpy()).set(empty, None)
    if column.dtype.is_numeric() or column.dtype == nw.Boolean or column.dtype.is_temporal():
        values = column.to_numpy()
        if values.dtype != object:
            return pl.Series(column.name, values)
    return _series(column.name, column.to_list())


def _series(name: str, values: Any) -> pl.Series:
    """A Series from an array or list, with a clear word when one column mixes text and numbers."""
    if "numpy.ma" in sys.modules and isinstance(values, np.ma.MaskedArray):  # else there can be none
        values = values.tolist()
    if isinstance(values, np.ndarray) and values.dtype != object:
        return pl.Series(name, values)
    plain = [None if is_missing(v) else v for v in _plain(values)]
    if not plain:
        return pl.Series(name, plain, dtype=pl.String)
    kinds = {type(v.item() if isinstance(v, np.generic) else v) for v in plain if v is not None}
    if len(kinds) > 1 and kinds & {str, bool}:
        names = " and ".join(sorted(k.__name__ for k in kinds))
        raise InputError(f"Column {name!r} mixes {names}: expected one kind of value. Convert it to text first.")
    try:
        mixed = kinds == {int, float}
        return pl.Series(name, plain, dtype=pl.Float64, strict=False) if mixed else pl.Series(name, plain)
    except UnicodeEncodeError as error:
        raise InputError(f"Column {name!r} holds text that is no Unicode: {error.reason}. Correct it first.") from None
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        found = " and ".join(sorted(k.__name__ for k in kinds))
        raise InputError(
            f"Column {name!r} holds {found} values: expected text, numbers or booleans. Convert it to text first."
        ) from None


def is_missing(value: Any) -> bool:
    """``None``, NaN, or pandas' words for them."""
    empty = value is None or (isinstance(value, float) and value != value)
    return empty or type(value).__name__ in ("NAType", "NaTType")


def _plain(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) and values.dtype == object else values
