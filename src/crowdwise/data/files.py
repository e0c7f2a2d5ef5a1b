"""Tables in files: CSV/TSV, JSON and JSON lines (compressed or not), spreadsheets, Parquet, Arrow; one table in a zip.

Text files are read as text, and a column becomes integers only where that loses nothing: an item called ``007`` stays
``007``. Large files are read with the column types found in their first rows, which is faster; a column that looks
like plain integers there is read as such.

Tables in JSON: arrays of objects, objects of columns, and what is nested in them.

=====================================================  ======================================================
JSON                                                   table
=====================================================  ======================================================
``[{"item": 1, ...}, ...]``                            one row per object
``[["item", "label"], [1, "cat"], ...]``               the first row names the columns
``{"item": [1, 2], "label": [...]}``                   columns (also as pandas writes them)
``{"data": [{...}, ...], "version": 2}``               the rows of the one list of objects
``{"q1": {"ann": "yes", "bob": "no"}, ...}``           one row per item, in the wide form
``{"q1": [{"annotator": ..., "label": ...}]}``         one row per answer
``[{"id": 7, "annotations": [{"worker": 1}]}, ...]``   one row per object of the inner list, with what is around
``{"meta": {"lang": "en"}}``                           a column ``lang``, but ``annotator.id`` for an id or a name
=====================================================  ======================================================
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, frames, plain_files
from crowdwise.data.boundary import as_path, foreign, reading, reason
from crowdwise.data.heavy import pl
from crowdwise.data.plain_files import check_cells
from crowdwise.data.schema import NULLS
from crowdwise.errors import ColumnError, Option, ParameterError, ReadError, Remedy, SizeError, listing, warn

BLOCK = 2**18
FEW_VALUES = 500
FEW_CELLS = 2**20
"""So many cells at most are not counted any closer."""
FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".xlsx": "sheet", ".xlsm": "sheet", ".xlsb": "sheet", ".xls": "sheet", ".ods": "sheet",
}  # fmt: skip
TEXT = ("csv", "jsonl", "json")
ENDINGS = (
    *FORMATS,
    *(ending + packed for ending, kind in FORMATS.items() if kind in TEXT for packed in plain_files.COMPRESSED),
)
"""How the names of tables end."""
HEAD = 1024
MARKS = {
    b"\x1f\x8b": "text packed by gzip (.gz)", b"PAR1": "a Parquet file (.parquet)", b"BZh": "bzip2 (.bz2)",
    b"PK\x03\x04": "a zip archive or an Excel file (.zip, .xlsx)", b"\xd0\xcf\x11\xe0": "an old Excel file (.xls)",
    b"SQLite format 3": "an SQLite database",
}  # fmt: skip
"""The first bytes of files, and what they are."""
OWN_MARKS = {"sheet": (b"PK", b"\xd0\xcf"), "parquet": (b"PAR1",)}
BOM = b"\xef\xbb\xbf"
EXPECTED = {
    "csv": "a text table in UTF-8", "jsonl": "one JSON object on each line, in UTF-8",
    "json": "a JSON array of objects, in UTF-8", "parquet": "a Parquet file", "arrow": "an Arrow or Feather file",
    "sheet": "an Excel or OpenDocument spreadsheet",
}  # fmt: skip

PathLike = str | os.PathLike[str]


Choose = Callable[[list[str]], list[str] | None]
"""Of the columns of a text file those to read, ``None`` for all. It is not asked where they come at no cost."""


def read_table(path: PathLike, choose: Choose | None = None) -> tuple[pl.DataFrame, bool]:
    """The file as a polars table, and whether it was read as text: see :meth:`TableFile.read`."""
    return TableFile.of(path).read(choose)


ABOUT = {
    "sheet": ("sheet",), "skip_rows": ("csv", "sheet"), "null_values": ("csv", "sheet"), "separator": ("csv",),
    "encoding": TEXT,
}  # fmt: skip
"""What the user may say about a file -> the formats that it is for."""


@dataclass(eq=False)
class TableFile(os.PathLike[str]):
    """A file of a table that is opened once: its bytes are held, and what was found in them.

    A large file is mapped into memory, and opened a second time by the reader of its rows. ``separator``,
    ``null_values``, ``encoding`` and ``sheet`` are what the user says about it.
    """

    path: Path
    separator: str | None = None
    null_values: Sequence[str] = NULLS
    encoding: str | None = None
    sheet: str | None = None
    skip_rows: int | None = None
    skipped: int = field(default=0, init=False)
    """How many lines, or rows of a sheet, were left out above the names of columns."""
    found_sheet: str | None = field(default=None, init=False)
    """The sheet that was read."""
    sheet_rows: npt.NDArray[np.int64] | None = field(default=None, init=False)
    """The row of the sheet behind each row of the table, as the spreadsheet numbers them."""
    guessed: str | None = field(default=None, init=False)
    """The encoding that was taken for the file's, where it is not UTF-8."""
    columns: list[str] | None = field(default=None, init=False)
    """The names of all columns, once some of the table was read."""
    _parsed: pl.DataFrame | None = field(default=None, init=False)
    """The whole table, where the first rows were asked for and it had to be parsed for them."""

    @classmethod
    def of(cls, path: PathLike, **how: Any) -> TableFile:
        """The file at a path; one that was opened already as it is."""
        return path if isinstance(path, TableFile) else cls(as_path(path), **how)

    def __fspath__(self) -> str:
        return str(self.path)

    __str__ = __fspath__

    @cached_property
    def raw(self) -> plain_files.Content:
        """The bytes of the file as they are."""
        with reading(self.path):
            _check_there(self.path)
            return plain_files.held(self.path)

    @cached_property
    def _inside(self) -> tuple[Path, plain_files.Content]:
        """The name of the table, and its bytes: those of the file, or of the one table in a zip archive."""
        raw = self.raw
        return plain_files.table_in(self.path, raw, ENDINGS) if self.path.suffix.lower() == ".zip" else (self.path, raw)

    @property
    def name(self) -> Path:
        """The file; in a zip archive, the table in it."""
        return self._inside[0]

    @property
    def kind(self) -> str:
        """The format, as in :func:`format_of`."""
        return format_of(self.name)

    @cached_property
    def content(self) -> plain_files.Content:
        """The bytes of the table; text is unpacked, and in UTF-8."""
        name, content = self._inside
        if self.kind not in TEXT:
            return content
        content = plain_files.unpacked(name, content)
        encoding = self.encoding or plain_files.wide_encoding(content[: plain_files.HEAD])
        if encoding is not None:
            self.guessed = None if self.encoding else encoding
            content = plain_files.in_utf8(self.name, content, encoding)
        return self._below_titles(content) if self.kind == "csv" else content

    def _below_titles(self, content: plain_files.Content) -> plain_files.Content:
        """A text table without the lines above the names of its columns; those of a large one must be named."""
        if self.skip_rows is None and not isinstance(content, bytes):
            return content
        lines = [bytes(line) for line in io.BytesIO(content[: 2**18])][: self.skip_rows or columns.HEADER_ROWS]
        self.skipped = plain_files.checked_skip(self.skip_rows) if self.skip_rows is not None else _titles(self, lines)
        return content[sum(map(len, lines[: self.skipped])) :] if self.skipped else content

    @cached_property
    def found_separator(self) -> str:
        """The separator of a text table."""
        if self.separator is not None and len(self.separator.encode()) != 1:
            raise ParameterError(f"separator={self.separator!r}: expected a single character such as ',' or '\\t'.")
        return self.separator or separator_in(self.name, first_line(self.content))

    def lines(self) -> Iterator[bytes]:
        """The lines of a text file, one by one."""
        content = self.content
        if isinstance(content, bytes):
            return iter(io.BytesIO(content))
        content.seek(0)
        return iter(content.readline, b"")

    def head(self, n_rows: int) -> pl.DataFrame:
        """The first rows, as they are."""
        match self.kind:
            case "csv":
                return _as_named(self._attempt(lambda: self._first_rows)).head(n_rows)
            case "sheet":  # the whole table comes with a note on which sheet it is
                return self._attempt(lambda: self._whole(n_rows))
        if self._parsed is None:
            self._parsed = self._attempt(self._whole)
        return self._parsed.head(n_rows)

    def read(self, choose: Choose | None = None, *, wide: bool = False) -> tuple[pl.DataFrame, bool]:
        """The table, and whether it was read as text. ``choose`` picks the columns of a text file that are read. A
        ``wide`` one may have a single column, and keeps its blank rows."""
        table, self._parsed = self._parsed, None
        for name, kinds in ABOUT.items():
            if (given := getattr(self, name)) not in (None, NULLS, ()) and self.kind not in kinds:
                message = f"{self.name.name} is read as {self.kind}, which takes no {name}."
                raise ParameterError(message, remedy=Remedy("Leave out {}.", Option(name, given)))
        if table is None:
            table = self._attempt((lambda: self._read_text(choose, wide)) if self.kind == "csv" else self._whole)
        if self.guessed is not None:
            plain_files.say_encoding(self.name, self.guessed)
        if self.skipped and self.skip_rows is None:
            one, what = self.skipped == 1, "row" if self.kind == "sheet" else "line"
            warn(
                f"{self.name.name}: the names of columns were found in {what} {self.skipped + 1}, below "
                f"{self.skipped} {what}{'' if one else 's'} of titles.",
                remedy=Remedy("If that is wrong, say {}.", Option("skip_rows", 0)),
            )
        return table, self.kind in ("csv", "sheet")

    def _attempt(self, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """A table; what a library raises is an error about the file. Text that is not in UTF-8 is read as GB 18030
        or Latin-1."""
        try:
            return self._readable(read)
        except ReadError:
            plain = self.kind in TEXT and self.encoding is None and self.name.suffix.lower() != ".zst"
            chinese = plain and plain_files.looks_chinese(self.content)
            if not chinese and not (plain and plain_files.looks_latin(self.content)):
                raise
            self.guessed = plain_files.CHINESE if chinese else plain_files.LATIN
            self.content = plain_files.in_utf8(self.name, self.content, self.guessed)
            return self._readable(read)

    def _readable(self, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        try:
            table = read()
            self.columns = self.columns or table.columns
            return table
        except BaseException as error:
            if not foreign(error):
                raise
            if isinstance(error, MemoryError):
                raise SizeError(f"{self.name} does not fit into memory.") from error
            with reading(self.name):
                why, advice = _explained(self, error)
            raise ReadError(
                f"{self.name} could not be read as {self.kind}: {why}. Expected {EXPECTED[self.kind]}: {advice}."
            ) from error

    def _whole(self, n_rows: int | None = None) -> pl.DataFrame:
        """The table in a file that is no CSV, or the first rows of a sheet."""
        content, name = self.content, self.name
        match self.kind:
            case "parquet":
                from crowdwise.data.parquet_footer import check_parquet

                check_cells(name, check_parquet(content).values, 8)
                return _with_answers(pl.read_parquet(self._source, glob=False))
            case "arrow":
                from crowdwise.data.parquet_footer import check_arrow

                check_arrow(content)
                read = pl.read_ipc if content[:6] == b"ARROW1" else pl.read_ipc_stream
                # A path with [ or * would be a pattern.
                with plain_files.stream(content) as file:
                    return _with_answers(read(file))
            case "sheet":
                from crowdwise.data.sheets import read_sheet

                sheet = read_sheet(name, bytes(content), self.sheet, self.null_values, n_rows, self.skip_rows)
                self.found_sheet, self.skipped, self.sheet_rows = sheet.name, sheet.above, sheet.rows
                return sheet.table
        return self._json()

    def _json(self) -> pl.DataFrame:
        """The table in JSON or JSON lines: what is in the file decides, not its name."""
        content = bytes(self.content).removeprefix(BOM)
        one = content.lstrip()[:1] == b"["
        if one or self.kind == "json":
            try:
                return table_of(json.loads(content), self.name.name)
            except json.JSONDecodeError as error:
                if one or error.msg != "Extra data":  # objects one after the other: JSON lines
                    raise
        lines = content.count(b"\n") + 1
        names = content.count(b'":')
        if lines * names > FEW_CELLS:
            names = len(pl.scan_ndjson(content, infer_schema_length=None).collect_schema())
        check_cells(self.name, lines * names)
        table = pl.read_ndjson(content, infer_schema_length=None)
        inner = [dtype.inner if isinstance(dtype, pl.List) else dtype for dtype in table.dtypes]
        if not any(isinstance(dtype, pl.Struct) for dtype in inner):
            return table
        return table_of([json.loads(line) for line in content.splitlines() if line.strip()], self.name.name)

    @cached_property
    def _first_rows(self) -> pl.DataFrame:
        """The first rows of a text table, as text."""
        content, path = self.content, self.name
        line = first_line(content)
        if b"\0" in line or (b"\r" in line.strip() and b"\0" in bytes(content[:HEAD])):
            raise ReadError(
                f"{path} holds {_inside(bytes(content[:HEAD])) or 'binary data or another encoding'}: expected "
                f"{EXPECTED['csv']}. Save it as UTF-8, or give it the ending of what it is."
            )
        if b"\r" in line.strip():
            raise ReadError(
                f"{path} ends its lines with a carriage return alone, as old spreadsheets do: expected line feeds. "
                "Save it again as CSV UTF-8."
            )
        table = None
        if not isinstance(content, bytes):
            with contextlib.suppress(pl.exceptions.PolarsError):  # quotes may be cut in two
                table = pl.read_csv(content[: 256 * 1024].rpartition(b"\n")[0], infer_schema=False, **self._options)
        if table is None:
            table = pl.read_csv(self._source, n_rows=10_000, infer_schema=False, **self._options)
        if any("\ufffd" in name for name in table.columns):  # polars takes any bytes in names
            codecs.getincrementaldecoder("utf-8")().decode(bytes(content[:1_000_000]))
        return table

    @property
    def _options(self) -> dict[str, Any]:
        return {"separator": self.found_separator, "null_values": list(self.null_values), "glob": False}

    @property
    def _source(self) -> bytes | Path:
        return self.content if isinstance(self.content, bytes) else self.path

    def _read_text(self, choose: Choose | None, wide: bool) -> pl.DataFrame:
        head = self._first_rows
        names = {unescaped(name): name for name in head.columns}
        self.columns = _as_named(head).columns
        if head.width == 1 and choose is not None and not wide:
            raise ReadError(
                f"{self.name} has a single column, {head.columns[0][:80]!r}: expected items, annotators and "
                "labels separated by ',', ';', '|' or a tab."
            )
        needed = None if choose is None else choose(list(names))
        if choose is not None:
            _check_header(list(names), needed)
        needed = None if needed is None else [names[name] for name in needed]
        self._check_rows(head.width if needed is None else len(needed))
        if isinstance(self.content, bytes):
            table = pl.read_csv(self._source, infer_schema=False, columns=needed, **self._options)
        else:
            table = self._read_large(head, needed)
        if not wide and all(table.null_count().row(0)):  # blank lines between the others
            table = table.filter(~pl.all_horizontal(pl.all().is_null()))
        return _as_named(table)

    def _check_rows(self, columns: int) -> None:
        """An error where the cells are too many: rows that break off are filled up with empty ones."""
        code = np.frombuffer(self.content, np.uint8)
        lines = 1 + sum(int(np.count_nonzero(code[at : at + BLOCK] == 10)) for at in range(0, len(code), BLOCK))
        try:
            check_cells(self.name, lines * columns)
        except SizeError:  # lines inside quotes are not rows
            text = (line.decode("utf-8", errors="replace") for line in self.lines())
            check_cells(self.name, columns * sum(1 for _ in csv.reader(text, delimiter=self.found_separator)))

    def _read_large(self, head: pl.DataFrame, needed: list[str] | None) -> pl.DataFrame:
        """A large file with the column types its first rows show, the quickest reading first, text where nothing else
        fits."""
        columns = needed or head.columns
        integers = {c for c in columns if _plain_integers(head[c])}
        attempts: list[tuple[Any, dict[str, Any]]] = [(pl.Int64, self._options)]
        if len(integers) == len(columns):  # a word for "missing" would be no integer: none to look for
            attempts.insert(0, (pl.Int32, {**self._options, "null_values": None}))
        else:  # few different ones, such as labels, are as quickly read as text
            integers = {c for c in integers if head[c].n_unique() > FEW_VALUES}
        for whole, options in attempts if integers and not self._odd_integers() else ():
            schema = {c: whole if c in integers else pl.String for c in head.columns}
            with contextlib.suppress(pl.exceptions.ComputeError):  # something that is no such integer further down
                return pl.read_csv(self.path, schema_overrides=schema, columns=needed, **options)
        return pl.read_csv(self.path, infer_schema=False, columns=needed, **self._options)

    def _odd_integers(self) -> bool:
        """Whether a field starts as an integer that is not in its plain form, such as 007, +7 or -0: a name, then."""
        tail = b"\n"
        for block in plain_files.blocks(self.content, 1 << 24):
            code = np.frombuffer(tail + block + b"\n\n\n", np.uint8)
            start = np.flatnonzero((code[:-3] == ord(self.found_separator)) | (code[:-3] == ord("\n"))) + 1
            start += code[start] == ord('"')
            first, second = code[start], code[start + 1]
            digit = (second >= ord("0")) & (second <= ord("9"))
            odd = (first == ord("+")) | (first == ord(" ")) | (first == ord("0")) & digit
            if (odd | (first == ord("-")) & (second == ord("0"))).any():
                return True
            tail = block[-3:]
        return False


def _with_answers(table: pl.DataFrame) -> pl.DataFrame:
    """A row for each answer, where a column holds lists of objects with an annotator and a label."""
    for name, dtype in table.schema.items():
        inner = dtype.inner if isinstance(dtype, pl.List) else None
        fields = [one.name for one in inner.fields] if isinstance(inner, pl.Struct) else []
        who = columns.find(fields, "annotator")
        if who is not None and columns.find([one for one in fields if one != who], "label") is not None:
            around = {other: f"outer.{other}" for other in table.columns if other in fields and other != name}
            return table.rename(around).explode(name).unnest(name)
    return table


def _check_there(path: Path) -> None:
    if not path.exists():
        near = sorted(p.name for p in path.parent.glob("*") if p.suffix in FORMATS)[:5] if path.parent.is_dir() else []
        loop = f"{path} is a link that leads to nothing." if path.is_symlink() else f"There is no file {path}."
        raise ReadError(loop + (f" The folder holds {', '.join(near)}." if near else ""))
    if path.is_dir():
        raise ReadError(f"{path} is a folder: name the file inside it (in Python, read_dataset reads a whole folder).")
    if not path.is_file():
        raise ReadError(f"{path} is a pipe or a device, which can be read once: write what it gives to a file first.")
    if path.stat().st_size == 0:
        raise ReadError(f"{path} is empty (0 bytes): expected a table with named columns.")


def _explained(file: TableFile, error: BaseException) -> tuple[str, str]:
    """Why a file cannot be read, with the line where that is known, and what to do."""
    if "more fields" in str(error):
        above = b"sep=" in (line := first_line(file.content)) or line.count(file.found_separator.encode()) < 2
        title = "delete what stands above the names of the columns, or " if above else ""
        return _ragged(file), f"{title}put text that holds the separator in double quotes"
    if file.kind == "csv" and "utf-8" in str(error).lower():
        return _not_utf8(file), "save it as UTF-8 (in a spreadsheet: CSV UTF-8)"
    inside = _inside(bytes(file.content[:HEAD])) if file.kind not in TEXT else ""
    if inside and not file.content[:4].startswith(OWN_MARKS.get(file.kind, ())):
        return f"it holds {inside}", "save it as what its name says, or give it the ending of what it is"
    where = _odd_line(file) if file.kind == "jsonl" else ""
    return where or reason(error), "check the file, its encoding and the ending of its name"


def _inside(head: bytes) -> str:
    """What a file holds, by its first bytes; nothing where they do not say."""
    for mark, what in MARKS.items():
        if head.startswith(mark):
            return what
    start = head.removeprefix(BOM).lstrip()[:20].lower()
    return "a web page" if start.startswith((b"<html", b"<!doctype html", b"<table", b"<meta")) else ""


def _odd_line(file: TableFile) -> str:
    """Where the first line that is no JSON object is, in words; nothing where all are."""
    for n, line in enumerate(file.lines(), 1):
        try:
            value = json.loads(line.removeprefix(BOM)) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            return f"line {n} is no JSON ({reason(error)})"
        if not isinstance(value, dict):
            return f"line {n} holds {type(value).__name__} and no JSON object"
    return ""


def format_of(path: Path) -> str:
    """``csv``, ``json``, ``jsonl``, ``sheet``, ``parquet`` or ``arrow``, by the ending of the name."""
    endings = [s.lower() for s in path.suffixes if s.lower() not in plain_files.COMPRESSED]
    kind = FORMATS.get(endings[-1] if endings else "")
    if kind is None and endings and endings[-1] == ".numbers":
        raise ReadError(f"{path.name} is a spreadsheet of Numbers, which is not read: export it as Excel or CSV.")
    if kind is None:
        raise ReadError(
            f"{path.name} is of an unknown format: expected a name ending in {', '.join(FORMATS)} or .zip (text also "
            "with .gz or .zst)."
        )
    if kind not in TEXT and path.suffix.lower() in plain_files.COMPRESSED:
        raise ReadError(
            f"{path.name} is compressed, which only text tables (.csv.gz, .tsv.zst, .json.gz) may be. Unpack it first."
        )
    return kind


def unescaped(name: str) -> str:
    """The name of a column without the second of two quotes, which polars leaves in names alone."""
    return name.replace('""', '"')


def _as_named(table: pl.DataFrame) -> pl.DataFrame:
    """A text table with the names that its file says, without columns that have neither a name nor a value."""
    bare = [c.name for c in table if re.fullmatch(r"(_duplicated_\d+)?", c.name) and c.null_count() == len(c)]
    table = table.drop(bare) if len(bare) < table.width else table
    return table.rename({name: unescaped(name) for name in table.columns if '""' in name})


def _check_header(names: list[str], needed: list[str] | None) -> None:
    """No two columns that matter may have the same name (polars numbers the second)."""
    stems = [re.sub(r"_duplicated_\d+$", "", name) for name in names]
    twice = [
        stem
        for stem, name in zip(stems, names, strict=True)
        if stem and stem != name and stem in names and (needed is None or stem in needed)
    ]
    if twice:
        raise ColumnError(
            f"The file has more than one column {listing(dict.fromkeys(twice))}. Give every column a name of its own."
        )


def _plain_integers(column: pl.Series) -> bool:
    numbers = column.cast(pl.Int64, strict=False)
    return column.null_count() < len(column) and bool((numbers.cast(pl.String).eq_missing(column)).all())


def first_line(content: plain_files.Content) -> bytes:
    """The first line that is not blank."""
    return next((line for line in io.BytesIO(content[:1_000_000]) if line.strip()), b"")


def _ragged(file: TableFile) -> str:
    """Where the first row with more fields than the header is, in words."""
    with contextlib.suppress(csv.Error):
        text = (line.decode("utf-8", errors="replace") for line in file.lines())
        rows = csv.reader(text, delimiter=file.found_separator)
        header, before = next(row for row in rows if row), rows.line_num
        for row in rows:
            if len(row) > len(header):
                return f"line {before + 1} has {len(row)} fields and the header {len(header)}"
            before = rows.line_num
    return "some rows have more fields than the header"


def _not_utf8(file: TableFile) -> str:
    """Where the first bytes that are no UTF-8 are, in words."""
    for n, line in enumerate(file.lines(), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            shown = line[max(error.start - 12, 0) : error.end + 12].strip().decode("latin-1")
            codes = " ".join(f"{byte:02x}" for byte in line[error.start : error.end])
            return f"line {n} holds the byte {codes}, which is no UTF-8 (read as Latin-1: {shown!r})"
    return "it is not in UTF-8"


def _titles(file: TableFile, lines: list[bytes]) -> int:
    """How many of the first lines of a text table stand above the names of its columns: ``sep=;``, titles."""
    filled = [line for line in lines if line.strip()]
    if len(filled) < 2:
        return 0

    def split(line: bytes) -> tuple[list[list[str]], list[int]]:
        """The first rows by the separator of one of them, and the lines at which they begin."""
        sign = separator_in(file.name, line) if file.separator is None else file.separator
        records = csv.reader((text.decode("utf-8-sig", "replace") for text in lines), delimiter=sign)
        rows, starts = [], [0]
        for row in records:
            rows.append(row)
            starts.append(records.line_num)
        return rows, starts

    with contextlib.suppress(csv.Error, TypeError):
        rows, _ = split(filled[0])
        whole = [row for row in rows if row]
        names = [name for name in whole[0] if name.strip()]
        one = columns.in_one_row(whole)[0] == [name if name.strip() else None for name in whole[0]]
        if one and len(names) > 1 and (columns.is_known(names) or len({len(row) for row in whole}) == 1):
            return 0
        rows, starts = split(max(filled, key=lambda line: max(map(line.count, (b",", b";", b"\t", b"|")))))
        return starts[columns.header_at(columns.in_one_row(rows))]
    return 0


def separator_in(path: Path, line: bytes) -> str:
    """The separator that splits the first line into most columns, quoted text left out (a tab for ``.tsv``)."""
    bare = re.sub(rb'"[^"]*"', b"", line)
    if ".tsv" in [s.lower() for s in path.suffixes] and b"\t" in bare:
        return "\t"
    counts = {c: bare.count(c.encode()) for c in (",", "\t", ";", "|")}
    return max(counts, key=counts.__getitem__)


SAY_LITTLE = frozenset(("id", "name", "value", "key", "uuid", "email", "username", "type", "title"))
"""Keys that say nothing without the object that they are in."""
USUAL = ("data", "rows", "records", "votes", "annotations", "answers", "labels", "judgments", "results", "examples")
"""Keys of the list that matters, where there are several."""
LOOKED_AT = 200
"""Objects that are looked at to see how they are nested."""


def table_of(found: Any, name: str) -> pl.DataFrame:
    """A table from what JSON holds."""
    rows = _records(found, name)
    inner = _inner_list(rows)
    flat = [_flat(row) for row in (_spread(_with_items(rows, inner), inner) if inner else rows)]
    keys = list(dict.fromkeys(key for row in flat for key in row))
    check_cells(Path(name), len(flat) * len(keys))
    lists = {key for row in flat for key, value in row.items() if _objects(value)}  # in no table: spans, tokens...
    return frames.to_polars({key: [row.get(key) for row in flat] for key in keys if key not in lists})


def _records(value: Any, name: str) -> list[Mapping[str, Any]]:
    """The rows of a table, as objects."""
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        header, *rows = value
        if all(isinstance(cell, str) for cell in header) and all(len(row) == len(header) for row in rows):
            return [dict(zip(header, row, strict=True)) for row in rows]
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return list(value)
    if isinstance(value, dict) and value:
        return _in_object(value, name)
    what = type(value).__name__ if not isinstance(value, list) else "a list of other values"
    raise ReadError(f"{name} holds {what}: expected a JSON array of objects, one for each row.")


def _in_object(found: dict[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The rows of one object: its columns, its list of objects, or an entry for each item."""
    values = list(found.values())
    if set(found) >= {"columns", "data"} and _is_list(found["data"], list):  # pandas, orient="split"
        return [dict(zip(found["columns"], row, strict=True)) for row in found["data"]]
    known = any(columns.find([key], part) for key in found for part in ("item", "annotator", "label"))
    if known and _is_list(values, list) and len({len(v) for v in values}) == 1 and not any(map(_objects, values)):
        return [dict(zip(found, row, strict=True)) for row in zip(*values, strict=True)]
    if known and _is_list(values, dict) and len({tuple(v) for v in values}) == 1:  # pandas, orient="columns"
        return [{key: column[place] for key, column in found.items()} for place in values[0]]
    lists = [key for key, value in found.items() if _objects(value)]
    usual = [key for key in USUAL if key in lists]
    if len(lists) == len(found) > 1 and not known and not usual:
        return [{"item": key, **row} for key, rows in found.items() for row in rows]
    if lists:
        if len(lists) > 1 and not usual:
            raise ReadError(f"{name} holds several lists of objects ({listing(lists)}): keep the one with the answers.")
        return list(found[(usual or lists)[0]])
    if not known and _is_list(values, dict) and len(found) > 1:
        return [{"item": key, **row} for key, row in found.items()]
    return [found]


def _is_list(values: Any, kind: type) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, kind) for value in values)


def _objects(value: Any) -> bool:
    return _is_list(value, dict)


def _inner_list(rows: Iterable[Mapping[str, Any]]) -> str:
    """The key of the lists that hold the answers about each item, where objects are nested like that."""
    outer: set[str] = set()
    inner: dict[str, set[str]] = {}
    for row in list(rows)[:LOOKED_AT]:
        for key, value in row.items():
            if _objects(value):
                inner.setdefault(key, set()).update(*value)
            elif value != []:
                outer.add(key)
    if columns.find(_first_of_each(outer), "annotator"):
        return ""
    for part in ("annotator", "label"):
        keys_of = [key for key, keys in inner.items() if columns.find(_first_of_each(keys), part)]
        if keys_of:
            return next((key for key in USUAL if key in keys_of), keys_of[0])
    return ""


def _first_of_each(names: Iterable[str]) -> list[str]:
    """Names of which no two are the same in their normal form."""
    return list({columns.normal(name): name for name in sorted(names)}.values())


def _with_items(rows: Iterable[Mapping[str, Any]], inner: str) -> list[Mapping[str, Any]]:
    """Objects with lists of answers are items: their ``id`` names them, else their place."""
    rows = list(rows)
    keys = {key for row in rows for key in row} - {inner}
    if columns.find(_first_of_each(keys), "item"):
        return rows
    own = next((key for key in ("id", "_id", "uuid") if all(key in row for row in rows)), None)
    return [{"item": n if own is None else row[own], **row} for n, row in enumerate(rows)]


def _spread(rows: Iterable[Mapping[str, Any]], inner: str) -> list[dict[str, Any]]:
    """One row for each object of an inner list, with what is around it."""
    out, empty, total = [], 0, 0
    for row in rows:
        total += 1
        around = {key: value for key, value in row.items() if key != inner}
        answers = row.get(inner) or []
        empty += not answers
        for answer in answers if isinstance(answers, list) else []:
            own = answer if isinstance(answer, dict) else {inner: answer}
            out.append({**{key if key not in own else f"outer.{key}": value for key, value in around.items()}, **own})
    if empty:
        warn(f"Left out {empty:,} of {total:,} objects: {inner!r} is empty.")
    return out


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """An object without objects in it."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        if not isinstance(value, dict):
            out[key] = value
            continue
        for name, inside in _flat(value).items():
            alone = name.lower() in SAY_LITTLE or name in row or name in out
            out[f"{key}.{name}" if alone else name] = inside
    return out
