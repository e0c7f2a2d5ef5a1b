"""Votes from files: CSV/TSV (compressed or not), JSON lines, Parquet, Arrow.

Text files are read as text, and a column becomes integers only where that loses nothing: an item
called ``007`` stays ``007``. Files over ``LARGE`` bytes are read with the column types found in
their first rows, which is faster; a column that looks like plain integers there is read as such.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.columns import resolve
from crowdwise.data.tables import Form, truth_from_table, votes_from_table
from crowdwise.data.votes import OnMissing, Votes
from crowdwise.errors import ColumnError, ParameterError, ReadError, listing

if TYPE_CHECKING:
    import polars as pl

LARGE = 32 * 2**20
NULLS = ["", "NA", "NaN", "nan", "null"]
FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
COMPRESSED = (".gz", ".zst")
SHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
BOM = b"\xef\xbb\xbf"
EXPECTED = {
    "csv": "a text table in UTF-8", "jsonl": "one JSON object on each line, in UTF-8",
    "parquet": "a Parquet file", "arrow": "an Arrow or Feather file",
}  # fmt: skip

PathLike = str | os.PathLike[str]


def read_votes(
    path: PathLike,
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    timestamp: str | None = None,
    truth: str | None = None,
    truth_path: PathLike | None = None,
    classes: Sequence[Any] | None = None,
    form: Form = "auto",
    on_duplicate: OnDuplicate = "error",
    on_missing: OnMissing = "error",
    separator: str | None = None,
    null_values: Sequence[str] = NULLS,
) -> Votes:
    """Votes from a file.

    Parameters
    ----------
    path
        ``.csv``, ``.tsv`` or ``.txt`` (also ``.gz``, ``.zst``; the separator is found), ``.jsonl``,
        ``.parquet``, ``.arrow``/``.feather``.
    item, annotator, label, weight, timestamp, truth, classes, form, on_duplicate, on_missing
        As in :meth:`crowdwise.Votes.from_frame`.
    truth_path
        A second file with the true class of some items.
    separator
        The column separator of a text file, where it should not be guessed.
    null_values
        What counts as an empty cell in a text file.
    """
    given = {
        "item": item,
        "annotator": annotator,
        "label": label,
        "weight": weight,
        "timestamp": timestamp,
        "truth": truth,
    }
    table, from_text = read_table(path, given, separator=separator, null_values=null_values, wide=form == "wide")
    if table.height == 0:
        raise ReadError(f"{path} has no votes: it names the columns {listing(table.columns, 12)} and has no rows.")
    votes = votes_from_table(
        table, given, classes=classes, form=form, on_duplicate=on_duplicate, on_missing=on_missing, from_text=from_text
    )
    return votes if truth_path is None else votes.with_truth(read_truth(truth_path))


def read_truth(path: PathLike, *, item: str | None = None, label: str | None = None) -> dict[Any, Any]:
    """Item -> true class from a file with an item column and a label (or truth) column."""
    table, from_text = read_table(path, {})
    truth = truth_from_table(table, item=item, label=label, from_text=from_text)
    if not truth:
        raise ReadError(f"{path} names no true class: every row is empty.")
    return truth


def read_table(
    path: PathLike,
    given: dict[str, str | None],
    *,
    separator: str | None = None,
    null_values: Sequence[str] = NULLS,
    wide: bool = False,
) -> tuple[pl.DataFrame, bool]:
    """The file as a polars table (of the needed columns only, where they can be told), and whether it was read as
    text."""
    import polars as pl

    path = Path(path)
    if not path.exists():
        near = sorted(p.name for p in path.parent.glob("*") if p.suffix in FORMATS)[:5] if path.parent.is_dir() else []
        raise ReadError(f"There is no file {path}." + (f" The folder holds {', '.join(near)}." if near else ""))
    if path.is_dir():
        raise ReadError(f"{path} is a folder: name the file inside it (in Python, read_dataset reads a whole folder).")
    if path.stat().st_size == 0:
        raise ReadError(f"{path} is empty (0 bytes): expected a table with named columns.")
    kind = format_of(path)
    try:
        if kind == "parquet":
            return pl.read_parquet(path), False
        if kind == "arrow":
            return pl.read_ipc(path) if _starts(path, b"ARROW1") else pl.read_ipc_stream(path), False
        if kind == "jsonl":
            source = io.BytesIO(path.read_bytes()[3:]) if _starts(path, BOM) else path
            return pl.read_ndjson(source, infer_schema_length=None), False
        return _read_text(path, given, separator, null_values, wide)
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        UnicodeDecodeError,
        OSError,
        EOFError,
        zlib.error,
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        advice = "check the file, its encoding and the ending of its name"
        if "more fields" in str(error):
            reason, advice = _ragged(path, separator), "put text that holds the separator in double quotes"
        elif kind == "csv" and "utf-8" in reason.lower():
            reason, advice = _not_utf8(path), "save it as UTF-8 (in a spreadsheet: CSV UTF-8)"
        raise ReadError(
            f"{path} could not be read as {kind}: {reason}. Expected {EXPECTED[kind]}: {advice}."
        ) from error


def format_of(path: Path) -> str:
    """``csv``, ``jsonl``, ``parquet`` or ``arrow``, by the ending of the name."""
    endings = [s.lower() for s in path.suffixes if s.lower() not in COMPRESSED]
    kind = FORMATS.get(endings[-1] if endings else "")
    if kind is None and endings and endings[-1] in SHEETS:
        raise ReadError(
            f"{path.name} is a spreadsheet, which is not read: save the sheet with the votes as CSV (UTF-8)."
        )
    if kind is None:
        raise ReadError(
            f"Cannot tell what {path.name} is: expected a name ending in {', '.join(FORMATS)} (CSV "
            "also with .gz or .zst)."
        )
    if kind != "csv" and path.suffix.lower() in COMPRESSED:
        raise ReadError(
            f"{path.name} is compressed, which only text tables (.csv.gz, .tsv.zst) may be. Unpack it first."
        )
    return kind


def _read_text(
    path: Path, given: dict[str, str | None], separator: str | None, null_values: Sequence[str], wide: bool
) -> tuple[pl.DataFrame, bool]:
    import polars as pl

    if separator is not None and len(separator.encode()) != 1:
        raise ParameterError(f"separator={separator!r}: expected a single character such as ',' or '\\t'.")
    line = _first_line(path)
    if b"\0" in line or line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ReadError(
            f"{path} holds binary data or another encoding: expected {EXPECTED['csv']}. Save it as "
            "UTF-8, or give it the ending of what it is."
        )
    separator = separator or _separator(path, line)
    options: dict[str, Any] = {"separator": separator, "null_values": list(null_values)}
    head = _head(path, options)
    if head.width == 1 and given and not wide:
        raise ReadError(
            f"{path} has a single column, {head.columns[0][:80]!r}: expected items, annotators and "
            "labels separated by ',', ';', '|' or a tab."
        )
    needed = _needed(head.columns, given) if given and not wide else None
    if given:
        _check_header(head.columns, needed)
    if path.stat().st_size < LARGE or path.suffix.lower() in COMPRESSED:
        table = pl.read_csv(path, infer_schema=False, columns=needed, **options)
    else:
        table = _read_large(path, head, needed, options)
    if not wide and all(table.null_count().row(0)):  # blank lines between the others
        table = table.filter(~pl.all_horizontal(pl.all().is_null()))
    return table, True


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
    for whole, given in attempts:
        schema = {c: whole if c in integers else pl.String for c in head.columns}
        with contextlib.suppress(pl.exceptions.ComputeError):  # something that is no such integer further down
            return pl.read_csv(path, schema_overrides=schema, columns=needed, **given)
    return pl.read_csv(path, infer_schema=False, columns=needed, **options)


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


def _needed(names: list[str], given: dict[str, str | None]) -> list[str] | None:
    """The columns of the long form that play a part, in file order; ``None`` (all of them) where the form is not
    clear."""
    parts = resolve(names, given)
    if any(parts.get(part) is None for part in ("item", "annotator", "label")):
        return None
    return [name for name in names if name in parts.values()]


def _plain_integers(column: pl.Series) -> bool:
    import polars as pl

    numbers = column.cast(pl.Int64, strict=False)
    return (
        len(column) > 0
        and column.null_count() < len(column)
        and bool((numbers.cast(pl.String).eq_missing(column)).all())
    )


def _starts(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _first_line(path: Path) -> bytes:
    """The first line that is not blank, unpacked."""
    import polars as pl

    if path.suffix.lower() == ".zst":
        table = pl.read_csv(path, n_rows=1, has_header=False, separator="\x1f", quote_char=None, infer_schema=False)
        return str(table[0, 0]).encode()
    with _open(path) as file:
        line = file.readline(1_000_000)
        while line and not line.strip():
            line = file.readline(1_000_000)
    return line


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def _ragged(path: Path, separator: str | None) -> str:
    """Where the first row with more fields than the header is, in words."""
    import csv

    if path.suffix.lower() == ".zst":
        return "some rows have more fields than the header"
    with (
        io.TextIOWrapper(_open(path), encoding="utf-8-sig", errors="replace", newline="") as file,
        contextlib.suppress(csv.Error),
    ):
        rows = (row for row in csv.reader(file, delimiter=separator or _separator(path, _first_line(path))) if row)
        header = next(rows)
        for n, row in enumerate(rows):
            if len(row) > len(header):
                return f"row {n} (counted from 0) has {len(row)} fields and the header {len(header)}"
    return "some rows have more fields than the header"


def _not_utf8(path: Path) -> str:
    """Where the first bytes that are no UTF-8 are, in words."""
    if path.suffix.lower() == ".zst":
        return "it is not in UTF-8"
    with _open(path) as file:
        for n, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                shown = line[max(error.start - 12, 0) : error.end + 12].strip().decode("latin-1")
                found = " ".join(f"{byte:02x}" for byte in line[error.start : error.end])
                return f"line {n} holds the byte {found}, which is no UTF-8 (read as Latin-1: {shown!r})"
    return "it is not in UTF-8"


def _separator(path: Path, line: bytes) -> str:
    """The separator that splits the first line into most columns, quoted text left out (a tab for ``.tsv``)."""
    bare = re.sub(rb'"[^"]*"', b"", line)
    if ".tsv" in [s.lower() for s in path.suffixes] and b"\t" in bare:
        return "\t"
    counts = {c: bare.count(c.encode()) for c in (",", "\t", ";", "|")}
    return max(counts, key=counts.__getitem__)
