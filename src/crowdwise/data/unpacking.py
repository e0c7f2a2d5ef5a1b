"""How large a file is once it is read: a small one can hold more than the machine has room for.

Text may take up to ``MOST`` bytes unpacked, and up to half of the machine's memory. For ``.gz`` the text is counted
while it is unpacked; for ``.zst`` the blocks are counted first, of which none holds more than 128 kB. Tables are
counted in cells: an empty one takes as much as a filled one.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from crowdwise.errors import SizeError

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


def limit() -> float:
    """The most bytes that text may take."""
    return min(MOST, machine_memory() / 2)


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
    most, found = limit(), io.BytesIO()
    while chunk := source.read(CHUNK):
        found.write(chunk)
        if found.tell() > most:
            raise _too_large(path, most)
    return found.getvalue()


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
