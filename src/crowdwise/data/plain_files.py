"""The bytes of files, as plain ones: a table out of a zip archive, unpacked text, text in another encoding as UTF-8.

Text that is not UTF-8 is taken for UTF-16 where its first bytes show that, for GB 18030 where its signs are usual ones
of Chinese, else for Latin-1 (Windows-1252), and that is said.

How large a file is once it is read: a small one can hold more than the machine has room for.

Text may take up to ``MOST`` bytes unpacked, and up to half of the machine's memory. For ``.gz`` the text is counted
while it is unpacked; for ``.zst`` the blocks are counted first, of which none holds more than 128 kB. Tables are
counted in cells: an empty one takes as much as a filled one.
"""

from __future__ import annotations

import codecs
import gzip
import io
import mmap
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from crowdwise.data.boundary import reading
from crowdwise.data.heavy import pl
from crowdwise.errors import Option, ParameterError, ReadError, Remedy, SizeError, listing, warn

MOST = 2**34
BEST_RATIO = 1032
BLOCK = 2**17
CHUNK = 2**20


def machine_memory() -> float:
    """Bytes of the machine; infinite where the system does not give the figure."""
    if sys.platform != "win32":
        with suppress(ValueError, OSError):
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return float("inf")


_ROOM: ContextVar[float] = ContextVar("room", default=float("inf"))


@contextmanager
def room(most: float) -> Iterator[None]:
    """What is read inside may take so many bytes of memory at most."""
    before = _ROOM.set(most)
    try:
        yield
    finally:
        _ROOM.reset(before)


def limit() -> float:
    """The most bytes that text may take."""
    return min(MOST, _ROOM.get(), machine_memory() / 2)


def check_cells(path: Path, cells: int, each: int = 16) -> None:
    """An error where a table has more cells than there is room for, at so many bytes each, filled or not."""
    most = int(limit() / each)
    if cells > most:
        raise SizeError(
            f"{path} spans {cells:,} cells, empty ones among them, and at most {most:,} are read: delete what is far "
            "from the table, or split it."
        )


def check_zst(path: Path, content: bytes) -> None:
    """An error where a Zstandard file holds more than there is room for."""
    most, seen = limit(), 0
    for size in _zstd_sizes(content):
        seen += size
        if seen > most:
            raise _too_large(path, most)


def read_within_limit(source: IO[bytes] | gzip.GzipFile, path: Path) -> bytes:
    """What unpacks from a file; an error where that is more than there is room for."""
    most, unpacked_bytes = limit(), io.BytesIO()
    while chunk := source.read(CHUNK):
        unpacked_bytes.write(chunk)
        if unpacked_bytes.tell() > most:
            raise _too_large(path, most)
    return unpacked_bytes.getvalue()


def check_archive(path: Path, content: bytes) -> None:
    """An error where the parts of a zip archive (an Excel file, say) hold, or claim, more than there is room for.

    What an archive says of its parts may be false: where they could hold more, they are unpacked and counted.
    """
    most = limit()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        every = archive.infolist()
        if sum(info.file_size for info in every) > most:
            raise _too_large(path, most)
        if len(content) * BEST_RATIO <= most:
            return
        seen = 0
        for info in every:
            info.file_size = int(most) + 1  # else no more than what is claimed would be unpacked
            info.CRC = None  # type: ignore[assignment]
            with archive.open(info) as file:
                while chunk := file.read(CHUNK):
                    seen += len(chunk)
                    if seen > most:
                        raise _too_large(path, most)


def _too_large(path: Path, most: float) -> SizeError:
    return SizeError(
        f"{path} unpacks to more than {most / 2**30:,.1f} GB, the most that is read: split it, or unpack it and read "
        "it as it is."
    )


def _zstd_sizes(content: bytes) -> Iterator[int]:
    """The most that each block of each frame can hold; what is damaged is for the reader to find."""
    at = 0
    while at + 5 <= len(content):
        magic, descriptor = int.from_bytes(content[at : at + 4], "little"), content[at + 4]
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # a frame to be skipped
            at += 8 + int.from_bytes(content[at + 4 : at + 8], "little")
            continue
        if magic != 0xFD2FB528:
            return
        single = descriptor >> 5 & 1
        at += 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + ((1 if single else 0), 2, 4, 8)[descriptor >> 6]
        last = 0
        while not last and at + 3 <= len(content):
            head = int.from_bytes(content[at : at + 3], "little")
            last, kind, size = head & 1, head >> 1 & 3, head >> 3
            yield BLOCK if kind == 2 else size
            at += 3 + (1 if kind == 1 else size)
        at += 4 if descriptor >> 2 & 1 else 0


LARGE = 2**23
"""Larger files are mapped into memory, not read."""
HEAD = 4096
BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
LATIN, CHINESE = "cp1252", "gb18030"
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


class MappedFile(io.RawIOBase):
    """A file that is mapped into memory, as a file of its own."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.at = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: len(self.content)}[whence]
        if self.at < 0:
            raise OSError(f"there is no place {self.at}")
        return self.at

    def readinto(self, buffer: Any) -> int:
        part = self.content[self.at : self.at + len(buffer)]
        buffer[: len(part)] = part
        self.at += len(part)
        return len(part)


def stream(content: Content) -> IO[bytes]:
    """The content as a file."""
    return io.BytesIO(content) if isinstance(content, bytes) else io.BufferedReader(MappedFile(content))


def blocks(content: Content, size: int = CHUNK) -> Iterator[bytes]:
    """The content in pieces."""
    return (content[at : at + size] for at in range(0, len(content), size))


def table_in(path: Path, content: Content, endings: tuple[str, ...]) -> tuple[Path, bytes]:
    """The name and the bytes of the one table in a zip archive; ``endings`` are those of tables."""
    with reading(path, "a zip archive"), stream(content) as file, zipfile.ZipFile(file) as archive:
        every = [info for info in archive.infolist() if not info.is_dir()]
        parts = {info.filename: Path(info.filename).parts for info in every}
        own = [i for i in every if not any(p.lower().startswith(SKIPPED) for p in parts[i.filename])]
        tables = [info for info in own if info.filename.lower().endswith(endings)]
        if len(tables) != 1:
            names = [info.filename for info in (tables or own)]
            what = f"{len(tables)} tables" if tables else "no table"
            raise ReadError(
                f"{path} holds {what} ({listing(names) or 'it is empty'}): expected one. "
                + ("Unpack it and name one." if tables else f"Tables end in {', '.join(endings)}.")
            )
        with archive.open(tables[0]) as source:
            return path / Path(tables[0].filename).name, read_within_limit(source, path)


def unpacked(path: Path, content: Content) -> Content:
    """The text in a compressed file; that of any other as it is."""
    ending = path.suffix.lower()
    if ending not in COMPRESSED:
        return content
    with reading(path):
        if ending == ".gz":
            with stream(content) as file, gzip.open(file) as source:
                return read_within_limit(source, path)
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


def looks_chinese(content: Content) -> bool:
    """Whether text that is not UTF-8 is Chinese in GB 18030: nearly all of its signs are among the usual ones."""
    try:
        text = codecs.getincrementaldecoder(CHINESE)().decode(bytes(content[:CHUNK]))
    except UnicodeDecodeError:
        return False
    signs = {sign for sign in text if not sign.isascii()}
    known = [sign.encode("gb2312", "ignore")[:1] for sign in signs]
    words = [lead for lead in known if lead >= b"\xb0"]
    usual = sum(lead <= b"\xd7" for lead in words)
    return len(words) > 1 and known.count(b"") < 0.1 * len(signs) and usual > 0.8 * len(words)


def say_encoding(path: Path, encoding: str) -> None:
    """A line about text that is not in UTF-8."""
    name = "Latin-1 (Windows-1252)" if encoding == LATIN else encoding.upper()
    warn(f"{path.name} is not in UTF-8 and was read as {name}.", remedy=ENCODING)


def checked_skip(rows: Any) -> int:
    """A number of rows to leave out."""
    if isinstance(rows, str) and rows.strip().isdecimal():
        rows = int(rows)
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise ParameterError(f"skip_rows={rows!r}: expected a number of rows from 0 on.")
    return rows
