"""Tables in files: CSV/TSV, JSON and JSON lines (compressed or not), spreadsheets, Parquet, Arrow; one table in a zip.

Text files are read as text, and a column becomes integers only where that loses nothing: an item
called ``007`` stays ``007``. Files over ``LARGE`` bytes are read with the column types found in
their first rows, which is faster; a column that looks like plain integers there is read as such.

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

import contextlib
import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.data import columns, frames
from crowdwise.data.boundary import foreign, reading, reason
from crowdwise.data.parquet_footer import check_arrow, check_parquet
from crowdwise.data.plain_files import (
    LATIN,
    from_archive,
    in_utf8,
    looks_latin,
    opened,
    say_encoding,
    unpacked,
    wide_encoding,
)
from crowdwise.data.schema import NULLS
from crowdwise.data.sheets import read_sheet
from crowdwise.data.unpacking import check_cells, check_unpacked
from crowdwise.errors import ColumnError, ParameterError, ReadError, SizeError, listing, warn

if TYPE_CHECKING:
    import polars as pl

LARGE = 32 * 2**20
CHUNK = 2**20
FEW_CELLS = 2**20
"""So many cells at most are not counted any closer."""
FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".xlsx": "sheet", ".xlsm": "sheet", ".xlsb": "sheet", ".xls": "sheet", ".ods": "sheet",
}  # fmt: skip
TEXT = ("csv", "jsonl", "json")
COMPRESSED = (".gz", ".zst")
ENDINGS = (*FORMATS, *(ending + packed for ending, kind in FORMATS.items() if kind in TEXT for packed in COMPRESSED))
"""How the names of tables end."""
BOM = b"\xef\xbb\xbf"
EXPECTED = {
    "csv": "a text table in UTF-8", "jsonl": "one JSON object on each line, in UTF-8",
    "json": "a JSON array of objects, in UTF-8", "parquet": "a Parquet file", "arrow": "an Arrow or Feather file",
    "sheet": "an Excel or OpenDocument spreadsheet",
}  # fmt: skip

PathLike = str | os.PathLike[str]


Choose = Callable[[list[str]], list[str] | None]
"""Of the columns of a text file those to read, ``None`` for all. It is not asked where they come at no cost."""


def read_table(
    path: PathLike, choose: Choose | None = None, *, separator: str | None = None, null_values: Sequence[str] = NULLS,
    encoding: str | None = None, sheet: str | None = None, wide: bool = False, n_rows: int | None = None,
) -> tuple[pl.DataFrame, bool]:  # fmt: skip
    """The file (or its first rows) as a polars table, and whether it was read as text. ``choose`` picks the columns of
    a text file that are read. A ``wide`` one may have a single column, and keeps its blank rows."""
    path = Path(path)
    with reading(path):
        _check_there(path)
    if path.suffix.lower() == ".zip":
        with from_archive(path, ENDINGS) as inside:
            return read_table(
                inside, choose, separator=separator, null_values=null_values, encoding=encoding, sheet=sheet,
                wide=wide, n_rows=n_rows,
            )  # fmt: skip
    asked = Asked(format_of(path), choose, separator, null_values, sheet, wide, n_rows)
    if asked.kind not in TEXT:
        return asked.read(path)
    with contextlib.ExitStack() as stack:
        packed = path.suffix.lower() in COMPRESSED
        plain = path
        if packed and asked.kind != "csv":
            with reading(path):
                plain = stack.enter_context(unpacked(path))
        found = encoding if encoding is not None or plain.suffix.lower() == ".zst" else wide_encoding(plain)
        if found is not None:
            plain = stack.enter_context(in_utf8(plain, found))
        try:
            table = asked.read(plain)
        except ReadError:
            if found is not None or plain.suffix.lower() == ".zst" or not looks_latin(plain):
                raise
            found = LATIN
            table = asked.read(stack.enter_context(in_utf8(plain, found)))
        if found is not None and encoding is None:
            say_encoding(path, found)
        return table


@dataclass(frozen=True)
class Asked:
    """What was asked of a file, and how it is read."""

    kind: str
    choose: Choose | None
    separator: str | None
    null_values: Sequence[str]
    sheet: str | None
    wide: bool
    n_rows: int | None

    def read(self, path: Path) -> tuple[pl.DataFrame, bool]:
        """A table; what a library raises is an error about the file."""
        try:
            return self._read(path)
        except BaseException as error:
            if not foreign(error):
                raise
            if isinstance(error, MemoryError):
                raise SizeError(f"{path} does not fit into memory.") from error
            with reading(path):
                why, advice = _explained(path, self.kind, self.separator, error)
            expected = EXPECTED[self.kind]
            raise ReadError(
                f"{path} could not be read as {self.kind}: {why}. Expected {expected}: {advice}."
            ) from error

    def _read(self, path: Path) -> tuple[pl.DataFrame, bool]:
        import polars as pl

        match self.kind:
            case "parquet":
                check_cells(path, check_parquet(path).values, 8)
                return pl.read_parquet(path, n_rows=self.n_rows, glob=False), False
            case "arrow":
                check_arrow(path)
                read = pl.read_ipc if _starts(path, b"ARROW1") else pl.read_ipc_stream
                with path.open("rb") as file:  # opened here: a path with [ or * would be taken for a pattern
                    return read(file, n_rows=self.n_rows), False
            case "sheet":
                return read_sheet(path, self.sheet, self.null_values, self.n_rows), True
            case "json" | "jsonl":
                return _read_json(path, self.n_rows), False
        return _read_text(path, self.choose, self.separator, self.null_values, self.wide, self.n_rows)


def _read_json(path: Path, n_rows: int | None) -> pl.DataFrame:
    """JSON or JSON lines, whichever the name says: what is in the file decides."""
    import polars as pl

    content = path.read_bytes().removeprefix(BOM)
    one = content.lstrip()[:1] == b"["
    if not one and format_of(path) == "json":
        try:
            return read_json(content, path.name).head(n_rows or sys.maxsize)
        except json.JSONDecodeError as error:
            if error.msg != "Extra data":  # objects one after the other: JSON lines
                raise
    if one:
        return read_json(content, path.name).head(n_rows or sys.maxsize)
    lines = content.count(b"\n") + 1
    names = content.count(b'":')
    if lines * names > FEW_CELLS and n_rows is None:
        names = len(pl.scan_ndjson(content, infer_schema_length=None).collect_schema())
    check_cells(path, lines * names if n_rows is None else 0)
    table = pl.read_ndjson(content, infer_schema_length=None, n_rows=n_rows)
    if not any(_has_objects(dtype) for dtype in table.dtypes):
        return table
    objects = [line for line in content.splitlines() if line.strip()]
    return table_of([json.loads(line) for line in objects[:n_rows]], path.name)


def _has_objects(dtype: Any) -> bool:
    import polars as pl

    return isinstance(dtype, pl.Struct) or (isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct))


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


def _explained(path: Path, kind: str, separator: str | None, error: BaseException) -> tuple[str, str]:
    """Why a file cannot be read, with the line where that is known, and what to do."""
    if "more fields" in str(error):
        above = b"sep=" in (line := first_line(path)) or line.count(separator_in(path, line).encode()) < 2
        title = "delete what stands above the names of the columns, or " if above else ""
        return _ragged(path, separator), f"{title}put text that holds the separator in double quotes"
    if kind == "csv" and "utf-8" in str(error).lower():
        return _not_utf8(path), "save it as UTF-8 (in a spreadsheet: CSV UTF-8)"
    where = _odd_line(path) if kind == "jsonl" else ""
    return where or reason(error), "check the file, its encoding and the ending of its name"


def _odd_line(path: Path) -> str:
    """Where the first line that is no JSON object is, in words; nothing where all are."""
    with path.open("rb") as file:
        for n, line in enumerate(file, 1):
            try:
                found = json.loads(line.removeprefix(BOM)) if line.strip() else {}
            except (ValueError, RecursionError) as error:
                return f"line {n} is no JSON ({reason(error)})"
            if not isinstance(found, dict):
                return f"line {n} holds {type(found).__name__} and no JSON object"
    return ""


def format_of(path: Path) -> str:
    """``csv``, ``json``, ``jsonl``, ``sheet``, ``parquet`` or ``arrow``, by the ending of the name."""
    endings = [s.lower() for s in path.suffixes if s.lower() not in COMPRESSED]
    kind = FORMATS.get(endings[-1] if endings else "")
    if kind is None and endings and endings[-1] == ".numbers":
        raise ReadError(f"{path.name} is a spreadsheet of Numbers, which is not read: export it as Excel or CSV.")
    if kind is None:
        raise ReadError(
            f"{path.name} is of an unknown format: expected a name ending in {', '.join(FORMATS)} or .zip (text also "
            "with .gz or .zst)."
        )
    if kind not in TEXT and path.suffix.lower() in COMPRESSED:
        raise ReadError(
            f"{path.name} is compressed, which only text tables (.csv.gz, .tsv.zst, .json.gz) may be. Unpack it first."
        )
    return kind


def _read_text(
    path: Path, choose: Choose | None, separator: str | None, null_values: Sequence[str], wide: bool,
    n_rows: int | None,
) -> tuple[pl.DataFrame, bool]:  # fmt: skip
    import polars as pl

    if separator is not None and len(separator.encode()) != 1:
        raise ParameterError(f"separator={separator!r}: expected a single character such as ',' or '\\t'.")
    if path.suffix.lower() in COMPRESSED:
        check_unpacked(path)
    line = first_line(path)
    if b"\0" in line:
        raise ReadError(
            f"{path} holds binary data or another encoding: expected {EXPECTED['csv']}. Save it as "
            "UTF-8, or give it the ending of what it is."
        )
    if b"\r" in line.strip():
        raise ReadError(
            f"{path} ends its lines with a carriage return alone, as old spreadsheets do: expected line feeds. Save it "
            "again as CSV UTF-8."
        )
    separator = separator or separator_in(path, line)
    options: dict[str, Any] = {"separator": separator, "null_values": list(null_values), "glob": False}
    head = _head(path, options)
    if head.width == 1 and choose is not None and not wide:
        raise ReadError(
            f"{path} has a single column, {head.columns[0][:80]!r}: expected items, annotators and "
            "labels separated by ',', ';', '|' or a tab."
        )
    needed = None if choose is None else choose(head.columns)
    if choose is not None:
        _check_header(head.columns, needed)
    if n_rows is None:
        _check_rows(path, head.width if needed is None else len(needed), separator)
    if n_rows is not None:
        table = head.head(n_rows)
    elif path.stat().st_size < LARGE or path.suffix.lower() in COMPRESSED:
        table = pl.read_csv(path, infer_schema=False, columns=needed, **options)
    else:
        table = _read_large(path, head, needed, options)
    if not wide and all(table.null_count().row(0)):  # blank lines between the others
        table = table.filter(~pl.all_horizontal(pl.all().is_null()))
    return table, True


def _check_rows(path: Path, columns: int, separator: str) -> None:
    """An error where the cells of a text table are too many: rows that break off are filled up with empty ones."""
    if path.suffix.lower() == ".zst":
        return
    with opened(path) as file:
        lines = sum(part.count(b"\n") for part in iter(lambda: file.read(CHUNK), b"")) + 1
    try:
        check_cells(path, lines * columns)
    except SizeError:  # lines inside quotes are not rows
        with opened(path) as file, io.TextIOWrapper(file, "utf-8", errors="replace", newline="") as text:
            check_cells(path, columns * sum(1 for _ in csv.reader(text, delimiter=separator)))


def _head(path: Path, options: dict[str, Any]) -> pl.DataFrame:
    """The first rows, as text."""
    import polars as pl

    if path.stat().st_size > LARGE and path.suffix.lower() not in COMPRESSED:
        with path.open("rb") as file, contextlib.suppress(pl.exceptions.PolarsError):  # quotes may be cut in two
            return pl.read_csv(file.read(256 * 1024).rpartition(b"\n")[0], infer_schema=False, **options)
    return pl.read_csv(path, n_rows=10_000, infer_schema=False, **options)


def _read_large(path: Path, head: pl.DataFrame, needed: list[str] | None, options: dict[str, Any]) -> pl.DataFrame:
    """A large file with the column types its first rows show, the quickest reading first, text where nothing else
    fits."""
    import polars as pl

    integers = {c for c in head.columns if _plain_integers(head[c])}
    attempts: list[tuple[Any, dict[str, Any]]] = [(pl.Int64, options)]
    if integers.issuperset(needed or head.columns):  # a word for "missing" would be no integer: no need to look for it
        attempts.insert(0, (pl.Int32, {**options, "null_values": None}))
    for whole, given in attempts if not _odd_integers(path, options["separator"]) else ():
        schema = {c: whole if c in integers else pl.String for c in head.columns}
        with contextlib.suppress(pl.exceptions.ComputeError):  # something that is no such integer further down
            return pl.read_csv(path, schema_overrides=schema, columns=needed, **given)
    return pl.read_csv(path, infer_schema=False, columns=needed, **options)


def _odd_integers(path: Path, separator: str) -> bool:
    """Whether a field starts as an integer that is not in its plain form, such as 007, +7 or -0: a name, then."""
    with path.open("rb") as file:
        tail = b"\n"
        while block := file.read(1 << 24):
            code = np.frombuffer(tail + block + b"\n\n\n", np.uint8)
            start = np.flatnonzero((code[:-3] == ord(separator)) | (code[:-3] == ord("\n"))) + 1
            start += code[start] == ord('"')
            first, second = code[start], code[start + 1]
            digit = (second >= ord("0")) & (second <= ord("9"))
            odd = (first == ord("+")) | (first == ord(" ")) | (first == ord("0")) & digit
            if (odd | (first == ord("-")) & (second == ord("0"))).any():
                return True
            tail = block[-3:]
    return False


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
    import polars as pl

    numbers = column.cast(pl.Int64, strict=False)
    return column.null_count() < len(column) and bool((numbers.cast(pl.String).eq_missing(column)).all())


def _starts(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def first_line(path: Path) -> bytes:
    """The first line that is not blank, unpacked."""
    import polars as pl

    if path.suffix.lower() == ".zst":
        table = pl.read_csv(
            path, n_rows=1, has_header=False, separator="\x1f", quote_char=None, infer_schema=False, glob=False
        )
        return str(table[0, 0]).encode()
    with opened(path) as file:
        line = file.readline(1_000_000)
        while line and not line.strip():
            line = file.readline(1_000_000)
    return line


def _ragged(path: Path, separator: str | None) -> str:
    """Where the first row with more fields than the header is, in words."""
    import csv

    if path.suffix.lower() == ".zst":
        return "some rows have more fields than the header"
    with (
        io.TextIOWrapper(opened(path), encoding="utf-8-sig", errors="replace", newline="") as file,
        contextlib.suppress(csv.Error),
    ):
        rows = csv.reader(file, delimiter=separator or separator_in(path, first_line(path)))
        header, before = next(row for row in rows if row), rows.line_num
        for row in rows:
            if len(row) > len(header):
                return f"line {before + 1} has {len(row)} fields and the header {len(header)}"
            before = rows.line_num
    return "some rows have more fields than the header"


def _not_utf8(path: Path) -> str:
    """Where the first bytes that are no UTF-8 are, in words."""
    if path.suffix.lower() == ".zst":
        return "it is not in UTF-8"
    with opened(path) as file:
        for n, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                shown = line[max(error.start - 12, 0) : error.end + 12].strip().decode("latin-1")
                found = " ".join(f"{byte:02x}" for byte in line[error.start : error.end])
                return f"line {n} holds the byte {found}, which is no UTF-8 (read as Latin-1: {shown!r})"
    return "it is not in UTF-8"


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


def read_json(content: bytes, name: str) -> pl.DataFrame:
    """A table from JSON text; ``name`` is that of the file, for messages."""
    return table_of(json.loads(content), name)


def table_of(found: Any, name: str) -> pl.DataFrame:
    """A table from what JSON holds."""
    rows = _records(found, name)
    inner = _inner_list(rows)
    flat = [_flat(row) for row in (_spread(_with_items(rows, inner), inner) if inner else rows)]
    keys = list(dict.fromkeys(key for row in flat for key in row))
    check_cells(Path(name), len(flat) * len(keys))
    lists = {key for row in flat for key, value in row.items() if _objects(value)}  # in no table: spans, tokens...
    return frames.to_polars({key: [row.get(key) for row in flat] for key in keys if key not in lists})


def _records(found: Any, name: str) -> list[Mapping[str, Any]]:
    """The rows of a table, as objects."""
    if isinstance(found, list) and found and all(isinstance(row, list) for row in found):
        header, *rows = found
        if all(isinstance(cell, str) for cell in header) and all(len(row) == len(header) for row in rows):
            return [dict(zip(header, row, strict=True)) for row in rows]
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        return list(found)
    if isinstance(found, dict) and found:
        return _in_object(found, name)
    what = type(found).__name__ if not isinstance(found, list) else "a list of other values"
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
    if len(lists) == len(found) > 1 and not known:
        return [{"item": key, **row} for key, rows in found.items() for row in rows]
    if lists:
        usual = [key for key in USUAL if key in lists]
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
        found = [key for key, keys in inner.items() if columns.find(_first_of_each(keys), part)]
        if found:
            return next((key for key in USUAL if key in found), found[0])
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
        found = row.get(inner) or []
        empty += not found
        for answer in found if isinstance(found, list) else []:
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
