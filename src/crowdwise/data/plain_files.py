"""The bytes of files, as plain ones: a table out of a zip archive, unpacked text, text in another encoding as UTF-8.

Text that is not UTF-8 is taken for UTF-16 where its first bytes show that, else for Latin-1 (Windows-1252), and that is
said.
"""

from __future__ import annotations

import codecs
import gzip
import io
import mmap
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from crowdwise.data.boundary import reading
from crowdwise.data.unpacking import check_zst, read_within_limit
from crowdwise.errors import Option, ParameterError, ReadError, Remedy, listing, warn

LARGE = 2**23
"""Larger files are mapped into memory, not read."""
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


COMPRESSED = (".gz", ".zst")
Content = bytes | mmap.mmap


def held(path: Path) -> Content:
    """The bytes of a file; a large one is mapped into memory."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < LARGE:
            return file.read()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def stream(path: Path, content: Content) -> IO[bytes]:
    """The content as a file; one that is mapped is opened again."""
    return io.BytesIO(content) if isinstance(content, bytes) else path.open("rb")


def blocks(content: Content, size: int = CHUNK) -> Iterator[bytes]:
    """The content in pieces."""
    return (content[at : at + size] for at in range(0, len(content), size))


def table_in(path: Path, content: Content, endings: tuple[str, ...]) -> tuple[Path, bytes]:
    """The name and the bytes of the one table in a zip archive; ``endings`` are those of tables."""
    with reading(path, "a zip archive"), stream(path, content) as file, zipfile.ZipFile(file) as archive:
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
        with archive.open(found[0]) as source:
            return path / Path(found[0].filename).name, read_within_limit(source, path)


def unpacked(path: Path, content: Content) -> Content:
    """The text in a compressed file; that of any other as it is."""
    ending = path.suffix.lower()
    if ending not in COMPRESSED:
        return content
    with reading(path):
        if ending == ".gz":
            with stream(path, content) as file, gzip.open(file) as source:
                return read_within_limit(source, path)
        import polars as pl

        check_zst(path, bytes(content))
        table = pl.read_csv(  # all of it as one cell
            bytes(content), has_header=False, separator="\x1f", eol_char="\x1e", quote_char=None, infer_schema=False
        )
        return str(table[0, 0]).encode()


def in_utf8(path: Path, content: Content, encoding: str) -> bytes:
    """Text in another encoding, as UTF-8."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise ParameterError(
            "there is no such encoding; others are utf-16, latin-1, cp1251, shift_jis, gbk.",
            about=Option("encoding", encoding),
        ) from None
    with reading(path, f"text in {encoding}"):
        decoder, plain = codecs.getincrementaldecoder(encoding)(), io.BytesIO()
        for block in blocks(content):
            plain.write(decoder.decode(block).encode())
        plain.write(decoder.decode(b"", final=True).encode())
    return plain.getvalue()


def wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 where the first bytes of a file are such text, with or without their mark."""
    for mark, name in BOMS:
        if head.startswith(mark):
            return name
    zeros = [head[side::2].count(0) for side in (0, 1)]
    for side, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if zeros[1 - side] == 0 and zeros[side] > len(head) / 4:
            return name
    return None


def looks_latin(content: Content) -> bool:
    """Whether text that is not UTF-8 is Latin-1: no control characters, and nothing that it leaves open."""
    valid, decoder = True, codecs.getincrementaldecoder("utf-8")()
    for block in blocks(content):
        try:
            valid = valid and decoder.decode(block) is not None
        except UnicodeDecodeError:
            valid = False
        try:
            block.decode(LATIN)
        except UnicodeDecodeError:
            return False
        if block.translate(None, CONTROLS) != block:
            return False
    return not valid or bool(decoder.getstate()[0])


def say_encoding(path: Path, encoding: str) -> None:
    """A line about text that is not in UTF-8."""
    name = "Latin-1 (Windows-1252)" if encoding == LATIN else encoding.upper()
    warn(f"{path.name} is not in UTF-8 and was read as {name}.", remedy=ENCODING)
