"""Tables in spreadsheets: Excel (``.xlsx``, ``.xlsm``, ``.xlsb``, ``.xls``) and OpenDocument (``.ods``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise.data.unpacking import check_archive
from crowdwise.errors import Option, ReadError, Remedy, listing, warn

if TYPE_CHECKING:
    import polars as pl

ZIPPED = (".xlsx", ".xlsm", ".xlsb", ".ods")
UNNAMED = "__UNNAMED__"
"""How columns without a name in the first row are called."""


def read_sheet(path: Path, sheet: str | None, null_values: Sequence[str], n_rows: int | None) -> pl.DataFrame:
    """A sheet as a table: the one that was asked for, else the first with any cells (which is said)."""
    import fastexcel

    if path.suffix.lower() in ZIPPED:
        check_archive(path)
    book = fastexcel.read_excel(path)
    names = book.sheet_names
    if sheet is not None and sheet not in names:
        raise ReadError(f"{path} has no sheet {sheet!r}: it has {listing(names, 12)}.")
    tables: dict[str, pl.DataFrame] = {}
    for name in names if sheet is None else [sheet]:
        tables[name] = _cells(book, name, null_values, n_rows)
        if n_rows is not None and tables[name].height:
            break
    named = [name for name, table in tables.items() if table.width]
    filled = [name for name in named if tables[name].height]
    if not named:
        raise ReadError(f"{path} has no cells: expected a table with named columns.")
    if len(filled) > 1:
        which = Remedy("For another, say {}.", Option("sheet", python="'...'"))
        warn(f"{path.name}: sheet {filled[0]!r} was read, and not {listing(filled[1:])}.", remedy=which)
    return tables[(filled or named)[0]]


def sheet_rows(path: Path, sheet: str | None, null_values: Sequence[str]) -> list[int]:
    """The rows of the sheet, as the spreadsheet numbers them, that :func:`read_sheet` makes a table of."""
    import fastexcel

    book = fastexcel.read_excel(path)
    found: list[int] = []
    for name in book.sheet_names if sheet is None else [sheet]:
        cells = book.load_sheet(name, header_row=None, skip_rows=0, dtypes="string").to_polars()
        if cells.width:
            filled = _nulled(cells, null_values).select(_filled_rows()).to_series()
            found = [row + 1 for row in filled.arg_true()][1:]
        if found:
            break
    return found


def _cells(book: Any, name: str, null_values: Sequence[str], n_rows: int | None) -> pl.DataFrame:
    """The cells of a sheet, with whole numbers as integers, without empty rows and columns."""
    import polars as pl

    table = _nulled(book.load_sheet(name, n_rows=n_rows, schema_sample_rows=None).to_polars(), null_values)
    empty = [c for c in table.columns if c.startswith(UNNAMED) and table[c].null_count() == table.height]
    table = table.drop(empty)
    if table.width == 0:
        return table
    table = table.filter(_filled_rows())
    return table.with_columns(table[c].cast(pl.Int64, strict=False) for c in table.columns if _whole(table[c]))


def _nulled(table: pl.DataFrame, null_values: Sequence[str]) -> pl.DataFrame:
    """The table with null for blanks and for the words that stand for an empty cell, blanks around them or not."""
    import polars as pl

    text = pl.col(pl.String)
    return table.with_columns(pl.when(~text.str.strip_chars().is_in([*null_values, ""])).then(text))


def _filled_rows() -> pl.Expr:
    """Whether a row has any cell that is not null; the others are not part of the table."""
    import polars as pl

    return ~pl.all_horizontal(pl.all().is_null())


def _whole(column: pl.Series) -> bool:
    """Whether a column of numbers holds whole ones alone."""
    filled = column.drop_nulls()
    return column.dtype.is_float() and bool((filled == filled.round()).all() and (filled.abs() < 2**53).all())
