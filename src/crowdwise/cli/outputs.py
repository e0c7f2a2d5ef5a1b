"""What the commands share on the way out: checks before the work is done, files, and lines for people.

``-`` is standard input, which is written to a file: commands may look at answers more than once.
"""

from __future__ import annotations

import atexit
import gzip
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from crowdwise.errors import OutputError, ParameterError, either

TABLES = (".csv", ".xlsx", ".jsonl", ".parquet")
WRITERS = {".jsonl": "write_ndjson", ".ndjson": "write_ndjson", ".parquet": "write_parquet"}
"""Ending -> the polars method that writes such a file."""
spreadsheet_safe: ContextVar[bool] = ContextVar("spreadsheet_safe", default=False)
"""Whether cells of CSV that spreadsheets would run are made text (``--spreadsheet-safe``)."""
decimal_comma: ContextVar[bool] = ContextVar("decimal_comma", default=False)
"""Whether CSV has ``;`` between cells and a comma in numbers (``--decimal-comma``)."""


def check_outputs(*paths: Path | None, endings: Sequence[str] = TABLES) -> None:
    """Before the work is done: can the results be written where they should go?"""
    for path in paths:
        if path is None:
            continue
        if path.suffix.lower().replace(".ndjson", ".jsonl") not in endings:
            raise ParameterError(f"Cannot tell how to write {path}: expected a name ending in {either(endings)}.")
        if path.is_dir():
            raise OutputError(f"{path} is a folder: name a file in it.")
        if not path.parent.is_dir():
            raise OutputError(f"There is no folder {path.parent} to write {path.name} to.")
        if not os.access(path.parent, os.W_OK):
            raise OutputError(f"The folder {path.parent} cannot be written to.")


def check_apart(inputs: Sequence[Path | None], outputs: Sequence[Path | None]) -> None:
    """Before the work is done: does every result have a place of its own, and none the place of what is read?"""
    from crowdwise.data.dataset import find_table

    taken: dict[str, str] = {}
    for path in inputs:
        parts = (path,) if path is None or not path.is_dir() else (find_table(path, "votes"), find_table(path, "truth"))
        taken |= {
            os.path.realpath(part): "is what the answers or the truth are read from"
            for part in parts
            if part is not None
        }
    for path in outputs:
        if path is not None and os.path.realpath(path) in taken:
            raise ParameterError(f"{path} {taken[os.path.realpath(path)]}: choose another name for this result.")
        if path is not None:
            taken[os.path.realpath(path)] = "is named for two results, and can hold one"


def write_table(table: Any, path: Path) -> None:
    """Write a table, whole or not at all."""
    from crowdwise.data.folders import write_whole

    match path.suffix.lower():
        case ".csv":
            write_whole(lambda place: _checked(table).write_csv(place, **_signs()), path)
        case ".xlsx":
            from crowdwise.data.sheets import write_xlsx

            write_whole(lambda place: write_xlsx(place, {path.stem[:31]: [table.columns, *table.iter_rows()]}), path)
        case ending:
            write_whole(getattr(table, WRITERS[ending]), path)


def emit_table(table: Any) -> None:
    """A table as CSV, to standard output."""
    emit(_checked(table).write_csv(**_signs()), end="")


def _signs() -> dict[str, Any]:
    """How CSV is written."""
    return {"separator": ";", "decimal_comma": True} if decimal_comma.get() else {}


def _checked(table: Any) -> Any:
    """The table as it is to be written as CSV."""
    if not spreadsheet_safe.get():
        return table
    from crowdwise.data.sheets import safe_table

    return safe_table(table)


def write_results(
    table: Any, result: Any, out: Path | None, annotators: Path | None, save: Path | None, as_json: bool
) -> list[Path]:
    """Write what was asked for, and say where it is. Without ``out`` the table goes down the pipe, if there is one."""
    if out is not None:
        write_table(table, out)
    elif not as_json and not sys.stdout.isatty():
        emit_table(table)
    if annotators is not None:
        write_table(result.to_frame("annotators", kind="polars"), annotators)
    if save is not None:
        result.save(save)
    return [path for path in (out, annotators, save) if path is not None]


def say(text: str) -> None:
    """A line for people, to standard error, unwrapped so that it can be searched for."""
    from crowdwise.cli import show

    show.console().print(text, soft_wrap=True)


def emit(text: str, end: str = "\n") -> None:
    """Results, to standard output: always UTF-8, and all of it or an error."""
    if not isinstance(sys.stdout, io.TextIOWrapper):  # a notebook, a test
        sys.stdout.write(text + end)
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write((text + end).encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"Standard output was cut off, and is not whole: {error.strerror}.") from error


HEAD = 65536
"""How many bytes are looked at, to tell what they are."""
FOLDER, NAME = "crowdwise-", "standard-input"
MAGIC = ((b"PAR1", ".parquet"), (b"ARROW1", ".arrow"), (b"\x28\xb5\x2f\xfd", ".csv.zst"))


def piped(path: Path) -> Path:
    """A file with what comes through a pipe; any other path as it is. The file is removed when the process ends."""
    if str(path) == "-":
        source = sys.stdin.buffer
    elif path.is_fifo() or path.parts[:2] == ("/", "dev"):
        source = path.open("rb")
    else:
        return path
    with source:
        head = source.read(HEAD)
        folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with (folder / (NAME + ending_of(head))).open("wb") as target:
            target.write(head)
            shutil.copyfileobj(source, target)
    return Path(target.name)


def as_typed(message: str) -> str:
    """A message that says standard input where it names the file that was written.

    >>> as_typed("/tmp/crowdwise-a1_b2/standard-input.csv.gz is empty")
    'Standard input is empty'
    """
    typed = re.sub(rf"\S*{FOLDER}\w+[/\\]{NAME}(\.\w+)*", "standard input", message)
    return typed if typed == message else typed[:1].upper() + typed[1:]


def ending_of(head: bytes) -> str:
    """The ending of the name that a file with such a beginning would have.

    >>> ending_of(b"task,worker,label"), ending_of(b'[{"task": 1}]'), ending_of(b'{"task": 1}'), ending_of(b"PAR1")
    ('.csv', '.json', '.jsonl', '.parquet')
    """
    for magic, ending in MAGIC:
        if head.startswith(magic):
            return ending
    if head.startswith(b"PK\x03\x04"):
        return ".xlsx" if b"[Content_Types].xml" in head else ".zip"
    if head.startswith(b"\x1f\x8b"):
        with gzip.open(io.BytesIO(head)) as inside:
            return ending_of(inside.read1(HEAD)) + ".gz"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith((b"[", b"{")):
        return ".csv"
    try:
        return ".jsonl" if text.startswith(b"{") and isinstance(json.loads(text.splitlines()[0]), dict) else ".json"
    except ValueError:
        return ".json"
