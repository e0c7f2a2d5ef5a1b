"""Answers from a pipe: ``-`` is standard input. Commands look at a file more than once, so it is written to one."""

from __future__ import annotations

import atexit
import gzip
import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

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
    said = re.sub(rf"\S*{FOLDER}\w+[/\\]{NAME}(\.\w+)*", "standard input", message)
    return said if said == message else said[:1].upper() + said[1:]


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
