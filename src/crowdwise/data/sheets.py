"""Tables in spreadsheets: Excel (``.xlsx``, ``.xlsm``, ``.xlsb``, ``.xls``) and OpenDocument (``.ods``).

How many cells a spreadsheet spans, before it is loaded: a reader takes memory for all of them, filled or not.

A single cell at XFD1048576 spans 17 billion. The parts of the archive are looked through for the places of cells:

===================  ===============================================================================================
``.xlsx``, ``.xlsm`` ``row`` and ``c`` elements with a place (``r="C7"``), or after the one before
``.ods``             ``table-row`` and ``table-cell`` elements, repeated as often as they say; the empty ones at the end
                     of a row, and the empty rows at the end of a sheet, span nothing
``.xlsb``            binary records of rows and cells
``.xls``             at most 65,536 x 256: not looked at
===================  ===============================================================================================

A spreadsheet runs a cell of a CSV file that begins as formulas do: with ``=``, ``+``, ``-`` or ``@`` (in some
languages also in their wide forms), or with a tab or a line end before that. With an apostrophe before it, it is text.

>>> safe_cell("=HYPERLINK(...)"), safe_cell("cat"), safe_cell(-1.5)
("'=HYPERLINK(...)", 'cat', -1.5)
"""

from __future__ import annotations

import datetime
import io
import logging
import math
import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import numpy.typing as npt

from crowdwise.data.columns import ALIASES, HEADER_ROWS, header_at, in_one_row, normal
from crowdwise.data.encoding import Counts
from crowdwise.data.heavy import pl
from crowdwise.data.plain_files import check_archive, check_cells, checked_skip
from crowdwise.errors import Option, ReadError, Remedy, listing, suggestion, warn

FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""The last four are the wide forms, which spreadsheets in some languages take for the others."""


def safe_cell(value: Any) -> Any:
    """A cell that no spreadsheet runs; numbers are as they are."""
    return f"'{value}" if isinstance(value, str) and value[:1] and value[0] in FORMULA else value


def safe_table(table: pl.DataFrame) -> pl.DataFrame:
    """A table whose text, and names of columns, no spreadsheet runs."""
    text = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String)
    safe = pl.when(text.str.contains(f"^[{re.escape(FORMULA)}]")).then("'" + text).otherwise(text)
    return table.with_columns(safe.name.keep()).rename({name: safe_cell(name) for name in table.columns})


DRAWN = "drawn"
"""The column of a sheet of gold items that says how many were drawn, so that rows that are gone are noticed."""
UNNAMED = "__UNNAMED__"
"""How columns without a name in the first row are called."""


class Merged(NamedTuple):
    """A range of merged cells, counted from 0; its value stands in the first cell."""

    top: int
    left: int
    bottom: int
    right: int


class Sheet(NamedTuple):
    """A table, the sheet that it was read from, and how many rows stand above the names of its columns."""

    table: pl.DataFrame
    name: str
    above: int
    filled: dict[str, int]
    """The columns with merged cells -> how many were filled with the value above."""
    wide: int
    """Merged cells below the names that span several columns."""
    rows: Counts
    """The row of the sheet behind each row of the table, as the spreadsheet numbers them."""


def read_sheet(
    path: Path, content: bytes, sheet: str | None, null_values: Sequence[str], n_rows: int | None,
    skip_rows: int | None = None,
) -> Sheet:  # fmt: skip
    """A sheet as a table: the one that was asked for, else the first with columns of answers, else the first with any
    rows (which is said)."""
    import fastexcel

    logging.getLogger("fastexcel").addHandler(logging.NullHandler())  # it tells of every empty column
    merged = check_sheets(path, content)
    book = fastexcel.read_excel(content)
    names = book.sheet_names
    if sheet is not None and sheet not in names:
        raise ReadError(f"{path} has no sheet {sheet!r}: it has {listing(names, 12)}.{suggestion(sheet, names)}")
    tables = {
        name: _cells(book, name, null_values, n_rows, skip_rows, merged.get(name, []))
        for name in (names if sheet is None else [sheet])
    }
    named = [name for name, sheet_of in tables.items() if sheet_of.table.width]
    filled = [name for name in named if tables[name].table.height]
    if not named:
        raise ReadError(f"{path} has no cells: expected a table with named columns.")
    best = next((name for name in filled if _has_answers(tables[name].table.columns)), (filled or named)[0])
    alike = [name for name in filled if tables[name].table.columns == tables[best].table.columns]
    joined = _joined({name: tables[name].table for name in alike}) if len(alike) > 1 else None
    if n_rows is None:
        _say_merged(path, [tables[name] for name in (alike if joined is not None else [best])])
    if joined is not None:
        if n_rows is None:
            what = "each is an annotator" if joined.width > tables[best].table.width else "as one table"
            which = Remedy("For one of them, say {}.", Option("sheet", python="'...'"))
            warn(f"{path.name}: sheets {listing(alike, 12)} have the same columns and were read, {what}.", remedy=which)
        rows = np.concatenate([tables[name].rows for name in alike])
        return tables[best]._replace(table=joined, name=", ".join(alike), rows=rows)
    if len(filled) > 1 and n_rows is None:
        which = Remedy("For another, say {}.", Option("sheet", python="'...'"))
        others = [name for name in filled if name != best]
        warn(f"{path.name}: sheet {best!r} was read, and not {listing(others)}.", remedy=which)
    return tables[best]


def _joined(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """Sheets with the same columns as one table: parts of it, or one for each annotator, where no column names them
    and most items stand on all sheets. ``None`` where neither is clear: copies of a sheet have rows in common."""
    first = next(iter(tables.values()))
    known = {part: [c for c in first.columns if normal(c) in ALIASES[part]] for part in ("item", "annotator", "label")}
    if not known["item"] or not _has_answers(first.columns):
        return None
    texts = {name: table.cast(pl.String) for name, table in tables.items()}
    items = [set(table[known["item"][0]].drop_nulls().to_list()) for table in texts.values()]
    if known["label"] and not known["annotator"]:
        if 2 * len(set.intersection(*items)) < max(map(len, items)):
            return None
        texts = {name: table.with_columns(pl.lit(name).alias("annotator")) for name, table in texts.items()}
    whole = pl.concat(list(texts.values()))
    return None if bool(whole.is_duplicated().any()) else whole


def _has_answers(names: Sequence[str]) -> bool:
    """Whether the columns of a sheet look like those of answers: an item with an annotator or label, or in a wide
    table of its own."""
    known = {normal(name) for name in names}
    item, others = known.intersection(ALIASES["item"]), (*ALIASES["annotator"], *ALIASES["label"])
    return bool(item and (known.intersection(others) or len(names) > 3))


def _say_merged(path: Path, sheets: Sequence[Sheet]) -> None:
    """Which cells were filled because they are merged with the one above, and which merged cells were not."""
    filled = sum((Counter(sheet.filled) for sheet in sheets), Counter[str]())
    which = ", ".join(f"{count:,} of column {column!r}" for column, count in filled.items() if count)
    if which:
        warn(f"{path.name}: merged cells were filled with the value in the first of them: {which}.")
    wide = sum(sheet.wide for sheet in sheets)
    if wide:
        one = wide == 1
        warn(
            f"{path.name}: {wide:,} merged cell{'' if one else 's'} below the names of columns "
            f"{'spans' if one else 'span'} several columns, and {'counts' if one else 'count'} for the first of them."
        )


def _cells(
    book: Any, name: str, null_values: Sequence[str], n_rows: int | None, skip_rows: int | None,
    merged: Sequence[Merged],
) -> Sheet:  # fmt: skip
    """The cells of a sheet below its titles, with whole numbers as integers, merged cells filled down, without empty
    rows and columns."""
    begin = book.load_sheet(name, header_row=None, skip_rows=0, dtypes="string", n_rows=HEADER_ROWS)
    places = begin.available_columns()
    left = places[0].absolute_index if places else 0
    rows = in_one_row(_with_headings([list(row) for row in begin.to_polars().rows()] if places else [], merged, left))
    above = checked_skip(skip_rows) if skip_rows is not None else header_at(rows) if rows else 0
    header = {"header_row": above} if above else {}
    text = pl.col(pl.String)  # null for blanks and for the words that stand for an empty cell
    text = pl.when(~text.str.strip_chars().is_in([*null_values, ""])).then(text)
    table = book.load_sheet(name, n_rows=n_rows, schema_sample_rows=None, **header).to_polars().with_columns(text)
    at = above or next((n for n, row in enumerate(rows) if any(cell is not None for cell in row)), 0)
    named = dict(zip(table.columns, rows[at] if at < len(rows) else [], strict=False))
    new = {c: text for c, text in named.items() if c.startswith(UNNAMED) and text and text not in table.columns}
    table = table.rename(new)
    kept = table.select(~pl.all_horizontal(pl.all().is_null())).to_series() if table.width else None
    values = _filled_down(table, merged, at + 1, left)
    empty = [c for c in table.columns if c.startswith(UNNAMED) and table[c].null_count() == table.height]
    wide = sum(cell.top > at and cell.right > cell.left for cell in merged)
    if kept is None or len(empty) == table.width:
        return Sheet(table.drop(empty), name, above, {}, wide, np.zeros(0, dtype=np.int64))
    missing = table.filter(kept).null_count().row(0, named=True)
    table = table.with_columns(values).drop(empty).filter(kept)
    filled = {c.name: missing[c.name] - table[c.name].null_count() for c in values}
    whole = table.with_columns(table[c].cast(pl.Int64, strict=False) for c in table.columns if _whole(table[c]))
    return Sheet(whole, name, above, filled, wide, kept.arg_true().to_numpy().astype(np.int64) + at + 2)


def _with_headings(rows: list[list[Any]], merged: Sequence[Merged], left: int) -> list[list[Any]]:
    """The first rows of a sheet, in which cells that are merged down stand in their last row, beside the names below,
    and of a row with cells that are merged across (headings of groups of columns) only the first such."""
    grouped: set[int] = set()
    for cell in merged:
        at = cell.left - left
        if not (0 <= cell.top < len(rows) and 0 <= at < len(rows[cell.top])):
            continue
        if cell.bottom > cell.top:
            text, rows[cell.top][at] = rows[cell.top][at], None
            if cell.bottom < len(rows):
                rows[cell.bottom][at] = text
        elif cell.top in grouped:
            rows[cell.top][at] = None
        grouped.add(cell.top) if cell.right > cell.left else None
    return rows


def _filled_down(table: pl.DataFrame, merged: Sequence[Merged], first: int, left: int) -> list[pl.Series]:
    """The columns of a table with merged cells, with their value in each row; the table's first row and column are
    those of the sheet."""
    source: dict[int, npt.NDArray[np.int64]] = {}
    end: dict[int, int] = {}
    for cell in sorted(merged):
        at, top, bottom = cell.left - left, cell.top - first, min(cell.bottom - first, table.height - 1)
        if 0 <= at < table.width and bottom > top > end.get(at, -1):
            source.setdefault(at, np.arange(table.height))[top : bottom + 1] = top
            end[at] = bottom
    return [table.to_series(at)[rows] for at, rows in source.items()]


def _whole(column: pl.Series) -> bool:
    """Whether a column of numbers holds whole ones alone."""
    filled = column.drop_nulls()
    return column.dtype.is_float() and bool((filled == filled.round()).all() and (filled.abs() < 2**53).all())


ZIPPED = (".xlsx", ".xlsm", ".xlsb", ".ods")
CELL = 64
"""Bytes that a cell takes while a sheet is loaded."""
FEW = 2**16
"""Cells from which on they are compared with the limit, whenever there are a sixteenth more."""
CHUNK = 2**16
PLACE = re.compile(r"([A-Za-z]{1,3})(\d{1,7})")
MOST_REPEATED = 2**40


def check_sheets(path: Path, content: bytes) -> dict[str, list[Merged]]:
    """An error where a sheet spans more cells than there is room for; the merged cells of each sheet (not of
    ``.xlsb`` and ``.xls``)."""
    if path.suffix.lower() not in ZIPPED:
        return {}
    check_archive(path, content)
    parts: dict[str, _Elements] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            with archive.open(info) as content_of:
                start = content_of.read(CHUNK)
                if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<":
                    parts[info.filename] = _Elements(path)
                    parts[info.filename].read(start, content_of)
                elif info.filename.endswith(".bin"):
                    _records(path, start + content_of.read())
    merged: dict[str, list[Merged]] = {}
    for name, part in parts.items():
        folder, _, file = name.rpartition("/")
        links = parts.get(f"{folder}/_rels/{file}.rels")
        for sheet, link in part.sheets.items():
            target = "" if links is None else links.targets.get(link, "")
            page = parts.get(target[1:] if target.startswith("/") else f"{folder}/{target}")
            merged[sheet] = page.merged.get("", []) if page is not None else []
        merged |= {sheet: cells for sheet, cells in part.merged.items() if sheet}
    return merged


class _Elements:
    """The extent of the sheets in a part of XML, whatever the part is called, and the merged cells of each; parts of
    ``.xlsx`` do not name their sheet, but link it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sheet = ""
        self.merged: dict[str, list[Merged]] = {}
        self.sheets: dict[str, str] = {}
        self.targets: dict[str, str] = {}
        self.row = self.column = self.width = 0
        self.repeated, self.most = 1, FEW

    def read(self, start: bytes, part: IO[bytes]) -> None:
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._begin
        try:
            while start:
                parser.Parse(start, False)
                start = part.read(CHUNK)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise ReadError(f"{self.path} is damaged: {error}.") from error

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        if ":" in name:
            name = name.rpartition(":")[2]
        match name:
            case "c":
                place_of = PLACE.fullmatch(attributes.get("r", ""))
                self.column += 1
                if place_of is not None:
                    letters, row = place_of.groups()
                    self.column, self.row = _column(letters), max(self.row, int(row))
                self._filled(self.column)
            case "row" if (place := attributes.get("r", "")).isdigit() or not place:
                self.row, self.column = int(place) if place else self.row + 1, 0
            case "mergeCell":
                ends = [PLACE.fullmatch(end) for end in attributes.get("ref", "").split(":")]
                if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
                    (left, top), (right, bottom) = ends[0].groups(), ends[1].groups()
                    self._merge(int(top) - 1, _column(left) - 1, int(bottom) - 1, _column(right) - 1)
            case "sheet":
                self.sheets[attributes.get("name", "")] = _value(attributes, "id")
            case "Relationship":
                self.targets[attributes.get("Id", "")] = attributes.get("Target", "")
            case "table":
                self.row = self.width = 0
                self.repeated = 1
                self.sheet = _value(attributes, "name")
            case "table-row":
                self.row += self.repeated
                self.column, self.repeated = 0, _times(attributes, "number-rows-repeated")
            case "table-cell" | "covered-table-cell":
                self.column += _times(attributes, "number-columns-repeated")
                down, across = _times(attributes, "number-rows-spanned"), _times(attributes, "number-columns-spanned")
                if down > 1 or across > 1:
                    self._merge(self.row - 1, self.column - 1, self.row + down - 2, self.column + across - 2)
                if any(key.rpartition(":")[2] in ("value-type", "formula") for key in attributes):
                    self._filled(self.column, self.repeated)

    def _merge(self, *ends: int) -> None:
        self.merged.setdefault(self.sheet, []).append(Merged(*ends))

    def _filled(self, column: int, rows: int = 0) -> None:
        self.width = max(self.width, column)
        cells = (self.row + rows) * self.width
        if cells > self.most:
            check_cells(self.path, cells, CELL)
            self.most = cells + cells // 16


@cache
def _column(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = 26 * number + ord(letter) - 64
    return number


def _value(attributes: dict[str, str], name: str, default: str = "") -> str:
    """An attribute of an element, whatever namespace it has."""
    return next((value for key, value in attributes.items() if key.rpartition(":")[2] == name), default)


def _times(attributes: dict[str, str], name: str) -> int:
    count = _value(attributes, name, "1")
    return min(int(count), MOST_REPEATED) if count.isdecimal() and len(count) < 20 else MOST_REPEATED


def _records(path: Path, content: bytes) -> None:
    """The cells of a part of ``.xlsb``: records with a type and a length in up to 2 and 4 bytes of 7 bits."""
    at, row, width, most = 0, 0, 0, FEW
    while at < len(content):
        kind = content[at]
        at += 1
        if kind > 127 and at < len(content):
            kind, at = kind & 127 | content[at] << 7, at + 1
        size = shift = 0
        while at < len(content) and shift < 28:
            byte, at = content[at], at + 1
            size, shift = size | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        number = int.from_bytes(content[at : at + 4], "little")
        if kind == 0:  # a row
            row = number
        elif 1 <= kind <= 11:  # a cell of it
            width = max(width, number + 1)
            if (row + 1) * width > most:
                check_cells(path, (row + 1) * width, CELL)
                most = (row + 1) * width * 17 // 16
        at += size


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STYLES = "application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
XML_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Signs that XML cannot hold."""


def write_xlsx(path: str | Path, sheets: Mapping[str, Sequence[Sequence[Any]]]) -> Path:
    """Write sheets of text, numbers, booleans, dates and empty cells (``None``). Text is never run as a formula."""
    numbers = range(1, len(sheets) + 1)
    pages = [f"<sheet name={quoteattr(n)} sheetId='{i}' r:id='s{i}'/>" for i, n in zip(numbers, sheets, strict=True)]
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
    rels = "application/vnd.openxmlformats-package.relationships+xml"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(
            "[Content_Types].xml",
            f"<Types xmlns='{PACKAGE}/content-types'><Default Extension='rels' ContentType='{rels}'/><Default "
            "Extension='xml' ContentType='application/xml'/><Override PartName='/xl/workbook.xml' "
            f"ContentType='{kind}'/><Override PartName='/xl/styles.xml' ContentType='{STYLES}'/></Types>",
        )
        book.writestr("_rels/.rels", _relations([("r1", "officeDocument", "xl/workbook.xml")]))
        book.writestr(
            "xl/workbook.xml",
            f"<workbook xmlns='{MAIN}' xmlns:r='{RELATIONS}'><sheets>{''.join(pages)}</sheets></workbook>",
        )
        formats = "<xf numFmtId='0'/><xf numFmtId='14' applyNumberFormat='1'/>"
        book.writestr(
            "xl/styles.xml", f"<styleSheet xmlns='{MAIN}'><cellXfs count='2'>{formats}</cellXfs></styleSheet>"
        )
        targets = [("st", "styles", "styles.xml")]
        targets += [(f"s{i}", "worksheet", f"worksheets/s{i}.xml") for i in numbers]
        book.writestr("xl/_rels/workbook.xml.rels", _relations(targets))
        for i, rows in zip(numbers, sheets.values(), strict=True):
            lines = [f"<row r='{r}'>{_xml_cells(row, r)}</row>" for r, row in enumerate(rows, 1)]
            page = f"<worksheet xmlns='{MAIN}'><sheetData>{''.join(lines)}</sheetData></worksheet>"
            book.writestr(f"xl/worksheets/s{i}.xml", page)
    return Path(path)


def _relations(links: Sequence[tuple[str, str, str]]) -> str:
    parts = [f"<Relationship Id='{i}' Type='{RELATIONS}/{kind}' Target='{to}'/>" for i, kind, to in links]
    return f"<Relationships xmlns='{PACKAGE}/relationships'>{''.join(parts)}</Relationships>"


def _xml_cells(row: Sequence[Any], r: int) -> str:
    out = []
    for c, value in enumerate(row):
        place = f"{_letters(c)}{r}"
        if isinstance(value, datetime.date):
            days = (value - datetime.date(1899, 12, 30)).days
            out.append(f"<c r='{place}' s='1'><v>{days}</v></c>")
        elif isinstance(value, bool):
            out.append(f"<c r='{place}' t='b'><v>{int(value)}</v></c>")
        elif isinstance(value, (int, float)):
            out.append(f"<c r='{place}'><v>{value!r}</v></c>" if math.isfinite(value) else "")
        elif value is not None:
            text = escape(XML_FORBIDDEN.sub("", str(value)))
            out.append(f"<c r='{place}' t='inlineStr'><is><t xml:space='preserve'>{text}</t></is></c>")
    return "".join(out)


def _letters(c: int) -> str:
    """The name of a column by its number, from 0 on: A, ..., Z, AA, ...

    >>> [_letters(c) for c in (0, 25, 26, 702)]
    ['A', 'Z', 'AA', 'AAA']
    """
    before, last = divmod(c, 26)
    return (_letters(before - 1) if before else "") + chr(65 + last)
