"""What rows are called in messages: by their numbers, by the lines of a text file as an editor counts them, or by the
rows of a sheet as the spreadsheet counts them.

The header is line 1; blank lines and line breaks inside quotes are lines, too. Lines are counted when a message needs
them, and checked against the table that was read: where they do not fit, messages give row numbers.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.encoding import Counts
from crowdwise.data.files import PathLike, TableFile
from crowdwise.errors import listing


@dataclass(frozen=True, eq=False)
class Lines:
    """Where the rows of a text file or a sheet begin. ``header`` are the columns that were read, ``height`` their rows;
    JSON lines have no header."""

    file: TableFile
    header: Sequence[str] | None
    height: int

    @classmethod
    def of(cls, file: TableFile, table: Any) -> Lines | None:
        """Those of a table that was read from a file; ``None`` where the file is neither plain text nor a sheet."""
        zipped = file.path.suffix.lower() == ".zip" and file.kind != "sheet"
        if file.kind not in ("csv", "jsonl", "sheet") or zipped:
            return None
        return cls(file, table.columns if file.kind == "csv" else None, table.height)

    @cached_property
    def first(self) -> Counts | None:
        """The first line (or the row of the sheet) of each row; ``None`` where that is not known."""
        if self.file.kind == "sheet":
            return self.file.sheet_rows
        with contextlib.suppress(OSError, EOFError, csv.Error, StopIteration):
            text = enumerate(self._text(), 1)
            begun = [(n, False) for n, line in text if line.strip()] if self.header is None else list(self._records())
            for kept in (begun, [(line, blank) for line, blank in begun if not blank]):
                if len(kept) == self.height:
                    return np.array([line for line, _ in kept], dtype=np.int64)
        return None

    def _text(self) -> Iterator[str]:
        return (line.decode("utf-8-sig" if n == 0 else "utf-8", "replace") for n, line in enumerate(self.file.lines()))

    def _records(self) -> Iterator[tuple[int, bool]]:
        """The first line of each record below the header, and whether all columns that were read are empty."""
        records, nulls = csv.reader(self._text(), delimiter=self.file.found_separator), (*self.file.null_values, "")
        names = next(record for record in records if record)
        at = [names.index(name) for name in self.header or () if name in names]
        before = records.line_num
        for record in records:
            yield self.file.skipped + before + 1, all(n >= len(record) or record[n] in nulls for n in at)
            before = records.line_num


@dataclass(frozen=True, eq=False)
class FileRows:
    """The rows of a file behind those of a table: their numbers (``None``: the same), and their lines."""

    rows: Counts | None
    lines: Lines

    def __getitem__(self, index: Any) -> Any:
        rows = np.asarray(index) if self.rows is None else self.rows[index]
        return replace(self, rows=np.asarray(rows)) if np.ndim(rows) else int(rows)

    def line(self, at: int) -> int | None:
        first = self.lines.first
        return None if first is None else int(first[self[at]])


Rows = FileRows | npt.NDArray[Any] | None


def row_label(at: int | Iterable[int], rows: Rows, join: str | None = None, counted: str = " (counted from 0)") -> str:
    """What one or several rows are called: ``row 3 (counted from 0)``, ``lines 2 and 7``, ``sheet row 5``. ``join`` is
    put between them, instead of a list, and ``counted`` behind those that are no lines."""
    several = [int(n) for n in at] if isinstance(at, Iterable) else [int(at)]
    numbers: list[Any] = several if rows is None else [rows[n] for n in several]
    word = "row"
    if isinstance(rows, FileRows) and rows.lines.first is not None:
        numbers, counted = [rows.line(n) for n in several], ""
        word = "sheet row" if rows.lines.file.kind == "sheet" else "line"
    if isinstance(at, Iterable) and join is None:
        numbers = sorted(set(numbers))
    shown = listing(numbers) if join is None else join.join(map(str, numbers))
    return f"{word}{'s' if len(numbers) > 1 else ''} {shown}{counted}"


def place_in(path: PathLike, table: Any, at: int) -> str:
    """What a row of a table that was read from a file is called."""
    lines = Lines.of(TableFile.of(path), table)
    return row_label(at, None if lines is None else FileRows(None, lines))
