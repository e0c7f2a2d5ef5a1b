"""Files as they come, as plain ones: a table out of a zip archive, unpacked JSON, text in another encoding as UTF-8.

What is made lies in a temporary folder for as long as it is read. Text that is not UTF-8 is taken for UTF-16 where its
first bytes show that, else for Latin-1 (Windows-1252), and that is said.
"""

from __future__ import annotations

import codecs
import gzip
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from crowdwise.data.boundary import reading
from crowdwise.data.unpacking import check_unpacked, copy_within_limit
from crowdwise.errors import Option, ParameterError, ReadError, Remedy, listing, warn

CHUNK = 2**20
HEAD = 4096
BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
LATIN = "cp1252"
CONTROLS = bytes(c for c in range(32) if c not in b"\t\n\r\f\x1b")
"""Characters that text does not have."""
ENCODING = Remedy("If that is wrong, name it: {}.", Option("encoding", python="'...'"))
SKIPPED = ("__macosx", ".")
"""How the names of files begin that systems add to archives."""


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked where it is gzip."""
    return cast("IO[bytes]", gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


@contextmanager
def from_archive(path: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """The one table in a zip archive, unpacked; ``endings`` are those of tables."""
    with tempfile.TemporaryDirectory(prefix="crowdwise-") as folder:
        with reading(path, "a zip archive"), zipfile.ZipFile(path) as archive:
            every = [info for info in archive.infolist() if not info.is_dir()]
            parts = {info.filename: Path(info.filename).parts for info in every}
            own = [i for i in every if not any(p.lower().startswith(SKIPPED) for p in parts[i.filename])]
            found = [info for info in own if info.filename.lower().endswith(endings)]
            if len(found) != 1:
                names = [info.filename for info in (found or own)]
                what = f"{len(found)} tables" if found else "no table"
                raise ReadError(
                    f"{path} holds {what} ({listing(names) or 'it is empty'}): expected one. "
                    + ("Unpack it and name one." if found else f"Tables end in {', '.join(endings)}.")
                )
            target = Path(folder) / path.name / Path(found[0].filename).name
            target.parent.mkdir()
            with archive.open(found[0]) as source:
                copy_within_limit(source, target, path)
        yield target


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A compressed text file as a plain one."""
    check_unpacked(path)
    with tempfile.TemporaryDirectory(prefix="crowdwise-") as folder:
        target = Path(folder) / path.stem
        if path.suffix.lower() == ".gz":
            with gzip.open(path) as source:
                copy_within_limit(cast("IO[bytes]", source), target, path)
        else:
            _unpack_zst(path, target)
        yield target


def _unpack_zst(path: Path, target: Path) -> None:
    """Zstandard text, by the reader of polars: a table of one column, its lines."""
    import polars as pl

    lines = pl.read_csv(
        path, has_header=False, separator="\x1f", quote_char=None, infer_schema=False, glob=False,
        truncate_ragged_lines=True,
    )  # fmt: skip
    target.write_text("\n".join(line or "" for line in lines.to_series(0).to_list()), encoding="utf-8")


@contextmanager
def in_utf8(path: Path, encoding: str) -> Iterator[Path]:
    """A text file in another encoding, as UTF-8."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise ParameterError(
            "there is no such encoding; others are utf-16, latin-1, cp1251, shift_jis, gbk.",
            about=Option("encoding", encoding),
        ) from None
    with tempfile.TemporaryDirectory(prefix="crowdwise-") as folder:
        target = Path(folder) / path.name.removesuffix(".gz")
        with reading(path, f"text in {encoding}"):
            if path.suffix.lower() == ".gz":
                check_unpacked(path)
            source = codecs.getreader(encoding)(opened(path))
            with target.open("w", encoding="utf-8", newline="") as plain:
                shutil.copyfileobj(source, plain, CHUNK)
        yield target


def wide_encoding(path: Path) -> str | None:
    """UTF-16 or UTF-32 where the first bytes of a file are such text, with or without their mark."""
    with reading(path), opened(path) as file:
        head = file.read(HEAD)
    for mark, name in BOMS:
        if head.startswith(mark):
            return name
    zeros = [head[side::2].count(0) for side in (0, 1)]
    for side, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if zeros[1 - side] == 0 and zeros[side] > len(head) / 4:
            return name
    return None


def looks_latin(path: Path) -> bool:
    """Whether a file that is not UTF-8 is text in Latin-1: no control characters, and nothing that it leaves open."""
    valid, decoder = True, codecs.getincrementaldecoder("utf-8")()
    with reading(path), opened(path) as file:
        while block := file.read(CHUNK):
            if valid:
                try:
                    decoder.decode(block)
                except UnicodeDecodeError:
                    valid = False
            if block.translate(None, CONTROLS) != block:
                return False
            try:
                block.decode(LATIN)
            except UnicodeDecodeError:
                return False
    if valid:
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            valid = False
    return not valid


def say_encoding(path: Path, encoding: str) -> None:
    """A line about text that is not in UTF-8."""
    name = "Latin-1 (Windows-1252)" if encoding == LATIN else encoding.upper()
    warn(f"{path.name} is not in UTF-8 and was read as {name}.", remedy=ENCODING)
