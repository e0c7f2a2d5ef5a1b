"""Whether the counts and sizes that a Parquet or Arrow file claims agree with each other and with the file.

The reader takes memory for whatever number of rows a file claims, and where there is not that much, the process ends.
So damaged claims are found here, before it sees them. The footer and the headers of pages of Parquet are structs in
Thrift's compact protocol: fields with a number and a type, integers in as many bytes as they need. Messages and the
footer of Arrow are FlatBuffers: a table has an offset for each of its fields, by way of a list of them (its vtable).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

MAGIC = b"PAR1"
MOST_ROWS = 2**31
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Fields = dict[int, Any]
DEEPEST = 100
"""Levels of structs and lists in a schema: the reader goes into them by recursion."""


class Claims(NamedTuple):
    """What a table will take once it is read."""

    rows: int
    columns: int
    values: int
    unpacked: int
    """Bytes of all pages."""


class _Thrift:
    """Values of a file from some place on."""

    def __init__(self, content: Any, at: int, depth: int = 0) -> None:
        self.content, self.at, self.depth = content, at, depth

    def length(self) -> int:
        """How many values, or bytes, follow: no more than the file has bytes."""
        length = self.unsigned()
        if length > len(self.content) - self.at:
            raise ValueError("a list is longer than the file")
        return length

    def byte(self) -> int:
        self.at += 1
        return int(self.content[self.at - 1])

    def unsigned(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("an integer has no end")

    def signed(self) -> int:
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def struct(self) -> Fields:
        """The fields of a struct by number."""
        fields: Fields = {}
        number = 0
        while (head := self.byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self.signed()
            fields[number] = self.value(head & 0x0F)
        return fields

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self.byte()
        if kind in (I16, I32, I64):
            return self.signed()
        if kind == DOUBLE:
            self.at += 8
            return None
        if kind == BINARY:
            length = self.length()
            self.at += length
            return None
        if self.depth > 30:
            raise ValueError("structs lie too deep in each other")
        self.depth += 1
        value = self.collection(kind)
        self.depth -= 1
        return value

    def collection(self, kind: int) -> Any:
        if kind == STRUCT:
            return self.struct()
        if kind == MAP:
            size = self.length()
            kinds = self.byte() if size else 0
            return [(self.inside(kinds >> 4), self.inside(kinds & 0x0F)) for _ in range(size)]
        if kind not in (LIST, SET):
            raise ValueError(f"there is no type {kind}")
        head = self.byte()
        size = head >> 4 if head >> 4 < 15 else self.length()
        return [self.inside(head & 0x0F) for _ in range(size)]

    def inside(self, kind: int) -> Any:
        """A value in a list or a map: there, true and false take a byte, too."""
        return self.byte() == TRUE if kind in (TRUE, FALSE) else self.value(kind)


def check_parquet(content: bytes | mmap.mmap) -> Claims:
    """What a file holds; a ``ValueError`` (or an ``IndexError``, at the end of the file) where claims do not agree."""
    size = len(content)
    if size < 12 or content[:4] != MAGIC or content[-4:] != MAGIC:
        raise ValueError("it does not begin and end as such files do")
    (length,) = struct.unpack("<I", content[-8:-4])
    if length > size - 12:
        raise ValueError("its footer is longer than the file")
    footer = _Thrift(content, size - 8 - length).struct()
    rows = _count(footer[3], "rows")
    if rows != sum(_count(group[3], "rows") for group in footer[4]):
        raise ValueError("its row groups do not have as many rows as it claims")
    _check_depth(footer[2])
    columns = [_check_column(content, size, one[3], group[3]) for group in footer[4] for one in group[1]]
    values, unpacked = (sum(pair[i] for pair in columns) for i in (0, 1))
    return Claims(rows, len(footer[2]) - 1, values, unpacked)


def _check_depth(schema: list[Fields]) -> None:
    """The elements of a schema come one after the other; each says how many of the next are inside it."""
    left: list[int] = []
    for element in schema:
        while left and not left[-1]:
            left.pop()
        if left:
            left[-1] -= 1
        left.append(element.get(5, 0))
        if len(left) > DEEPEST:
            raise ValueError(f"its columns lie more than {DEEPEST} levels deep in each other")


def _check_column(content: Any, size: int, column: Fields, rows: int) -> tuple[int, int]:
    """The number of values and the bytes of their pages; ``column`` is the ColumnMetaData of some rows."""
    values, unpacked, packed = (_count(column[n], "values", most=2**40) for n in (5, 6, 7))
    start = column[11] if 0 < column.get(11, 0) < column[9] else column[9]
    if values < rows or not 4 <= start <= start + packed <= size:
        raise ValueError("a column lies outside the file, or has fewer values than rows")
    seen = taken = 0
    for page in _pages(content, start, start + packed):
        taken += page[2]
        if not 0 <= page[2] <= unpacked + 64:
            raise ValueError("a page is larger than its column")
        for header in (page[n] for n in (5, 8) if n in page):
            seen += _count(header[1], "values")
        if 7 in page:
            _count(page[7][1], "values", most=max(page[2], 1) * 8)
    if seen != values:
        raise ValueError("the pages of a column do not have as many values as it claims")
    return values, taken


def _pages(content: Any, at: int, end: int) -> Iterator[Fields]:
    while at < end:
        thrift = _Thrift(content, at)
        page = thrift.struct()
        if not 0 <= page[3] <= end - thrift.at:
            raise ValueError("a page lies outside its column")
        yield page
        at = thrift.at + page[3]


def _count(value: int, what: str, most: int = MOST_ROWS) -> int:
    if not 0 <= value <= most:
        raise ValueError(f"it claims {value} {what}")
    return value


ARROW_MAGIC = b"ARROW1"
MOST_ARROW_ROWS = 2**31
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


def check_arrow(content: bytes | mmap.mmap) -> None:
    """Raise a ``ValueError`` where lengths do not agree with the file."""
    for metadata, body, end in _footed(content) if content[:6] == ARROW_MAGIC else _streamed(content):
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
    if size < 18 or content[-6:] != ARROW_MAGIC:
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
    _length(flat.integer(batch, 0), MOST_ARROW_ROWS)
    for node in flat.structs(batch, 1, 16):
        rows = _length(flat.number("<q", node), MOST_ARROW_ROWS)
        _length(flat.number("<q", node + 8), rows)
    packed = flat.field(batch, 3) is not None
    for buffer in flat.structs(batch, 2, 16):
        offset = _length(flat.number("<q", buffer), long)
        size = _length(flat.number("<q", buffer + 8), long - offset)
        if packed and size >= 8:
            (unpacked,) = struct.unpack_from("<q", content, body + offset)
            _length(max(unpacked, 0), 16 * MOST_ARROW_ROWS)


def _length(value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise ValueError(f"it claims a length of {value}, and {most} is the most that can be")
    return value
