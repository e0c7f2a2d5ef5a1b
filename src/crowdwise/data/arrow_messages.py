"""Whether the lengths that an Arrow file or stream claims lie inside it.

As :mod:`crowdwise.data.parquet_footer` for Parquet: the reader takes memory for what a file claims. Messages and the
footer are FlatBuffers: a table has an offset for each of its fields, by way of a list of them (its vtable).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAGIC = b"ARROW1"
MOST_ROWS = 2**31
DICTIONARY, RECORD = 2, 3
"""The types of messages that hold data."""


class _Flat:
    """FlatBuffers within some bytes; whatever points outside of them is a ``ValueError``."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def number(self, form: str, at: int) -> int:
        if at < 0:
            raise ValueError("a message points outside of itself")
        try:
            return int(struct.unpack_from(form, self.content, at)[0])
        except struct.error as error:
            raise ValueError("a message points outside of itself") from error

    def table(self, at: int) -> int:
        """Where a table is that is pointed to from here."""
        return at + self.number("<I", at)

    def field(self, table: int, n: int) -> int | None:
        """Where field n of a table is; ``None`` where it has its default."""
        vtable = table - self.number("<i", table)
        place = 4 + 2 * n
        offset = self.number("<H", vtable + place) if place < self.number("<H", vtable) else 0
        return table + offset if offset else None

    def integer(self, table: int, n: int, form: str = "<q") -> int:
        at = self.field(table, n)
        return 0 if at is None else self.number(form, at)

    def structs(self, table: int, n: int, size: int) -> list[int]:
        """Where the structs of a vector are."""
        at = self.field(table, n)
        if at is None:
            return []
        start = self.table(at)
        count = self.number("<I", start)
        if count * size > len(self.content):
            raise ValueError("a list is longer than its message")
        return [start + 4 + size * i for i in range(count)]


def check_arrow(path: Path) -> None:
    """Raise a ``ValueError`` where lengths do not agree with the file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for metadata, body, end in _footed(content) if content[:6] == MAGIC else _streamed(content):
            _check_message(content, metadata, body, end)


def _streamed(content: Any) -> Iterator[tuple[bytes, int, int]]:
    """The messages of a stream: metadata, where the body begins, and how far it may go."""
    at, size = 0, len(content)
    while at + 8 <= size:
        marker, length = struct.unpack_from("<Ii", content, at)
        start = at + 8
        if marker != 0xFFFFFFFF:  # before version 0.15
            length, start = struct.unpack_from("<i", content, at)[0], at + 4
        if length == 0:
            return
        if not 0 < length <= size - start:
            raise ValueError("a message is longer than the file")
        yield content[start : start + length], start + length, size
        flat = _Flat(content[start : start + length])
        at = start + length + _length(flat.integer(flat.table(0), 3), size)


def _footed(content: Any) -> Iterator[tuple[bytes, int, int]]:
    """The messages that the footer of a file lists."""
    size = len(content)
    if size < 18 or content[-6:] != MAGIC:
        raise ValueError("it does not end as such files do")
    (length,) = struct.unpack("<i", content[-10:-6])
    end = size - 10 - length
    if length <= 0 or end < 8:
        raise ValueError("its footer is longer than the file")
    footer = _Flat(content[end : end + length])
    root = footer.table(0)
    for at in (*footer.structs(root, 2, 24), *footer.structs(root, 3, 24)):
        offset, long, body = footer.number("<q", at), footer.number("<i", at + 8), footer.number("<q", at + 16)
        if not (8 <= offset and 8 <= long and 0 <= body and offset + long + body <= end):
            raise ValueError("a block lies outside the file")
        head = 8 if content[offset : offset + 4] == b"\xff\xff\xff\xff" else 4
        yield content[offset + head : offset + long], offset + long, offset + long + body


def _check_message(content: Any, metadata: bytes, body: int, end: int) -> None:
    flat = _Flat(metadata)
    root = flat.table(0)
    kind, header = flat.integer(root, 1, "<B"), flat.field(root, 2)
    long = _length(flat.integer(root, 3), end - body)
    if header is None or kind not in (DICTIONARY, RECORD):
        return
    batch = flat.table(header)
    if kind == DICTIONARY:
        inner = flat.field(batch, 1)
        if inner is None:
            return
        batch = flat.table(inner)
    _length(flat.integer(batch, 0), MOST_ROWS)
    for node in flat.structs(batch, 1, 16):
        rows = _length(flat.number("<q", node), MOST_ROWS)
        _length(flat.number("<q", node + 8), rows)
    packed = flat.field(batch, 3) is not None
    for buffer in flat.structs(batch, 2, 16):
        offset = _length(flat.number("<q", buffer), long)
        size = _length(flat.number("<q", buffer + 8), long - offset)
        if packed and size >= 8:
            (unpacked,) = struct.unpack_from("<q", content, body + offset)
            _length(max(unpacked, 0), 16 * MOST_ROWS)


def _length(value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise ValueError(f"it claims a length of {value}, and {most} is the most that can be")
    return value
