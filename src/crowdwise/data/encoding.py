"""From columns of names to integer codes, and back.

A column (a polars Series) becomes ``codes`` (int32, -1 where the value is missing) and a
``vocabulary`` (a numpy array: ``vocabulary[codes]`` is the column again). Integers and booleans
come out in sorted order, text in order of first appearance.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.heavy import pl
from crowdwise.errors import InputError, LabelError, Option, Remedy, listing

Codes = npt.NDArray[np.int32]
Vocabulary = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

CLASSES = Option("classes", python="[...]", command="A,B,C")
"""The list of all classes, in remedies."""
NATIVE_ROWS = sys.maxsize if os.environ.get("CROWDWISE_ENGINE") == "reference" else 1_000_000
"""From this many rows on, text is coded by the compiled hash table: below it, loading it costs more."""


LOOKED_AT = 2**16
"""The first rows, which show whether there are many names."""
KEPT_ROWS = 8
"""From so many rows per name on, names are copied: they would keep the text of all rows in memory."""


class TextNames:
    """Distinct texts, kept as a polars column until Python strings are asked for."""

    dtype: Any = np.dtype(object)

    def __init__(self, column: pl.Series) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    @cached_property
    def array(self) -> Vocabulary:
        """The names as a frozen array of Python strings."""
        names = self.column.to_numpy(writable=True)
        names.setflags(write=False)
        return names


def to_vocabulary(values: Any) -> Vocabulary:
    """An array of distinct names: integers, booleans or text (as objects, so that nothing is cut off).

    Integers beyond 64 bits are kept as text, as they are in files; whole floats become integers. The
    array is a new one, unless it is a frozen array of objects, which cannot change.
    """
    if isinstance(values, np.ndarray) and values.dtype == object and not values.flags.writeable:
        return values  # a vocabulary already: they are frozen when they are made
    if isinstance(values, TextNames):
        return values  # type: ignore[return-value]  # as names of a table, which are an array once they are asked for
    if isinstance(values, np.ndarray) and values.dtype.kind in "bi":
        return values.astype(np.int64 if values.dtype.kind == "i" else bool)
    plain = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if set(map(type, plain)) - {str}:
        plain = [v.item() if isinstance(v, np.generic) else v for v in plain]
    if plain and all(isinstance(v, bool) for v in plain):
        return np.array(plain, dtype=bool)
    if plain and all(isinstance(v, float) and v.is_integer() for v in plain):
        plain = [int(v) for v in plain]
    if plain and all(isinstance(v, int) and not isinstance(v, bool) for v in plain):
        if -(2**63) <= min(plain) and max(plain) < 2**63:
            return np.array(plain, dtype=np.int64)
        plain = [str(v) for v in plain]
    out = np.empty(len(plain), dtype=object)
    out[:] = plain
    return out


def encode(column: pl.Series) -> tuple[Codes, Vocabulary]:
    """Codes and vocabulary of a column; missing values are coded -1."""
    codes, names = encode_lazily(column)
    return codes, names.array if isinstance(names, TextNames) else names


def encode_lazily(column: pl.Series) -> tuple[Codes, Vocabulary | TextNames]:
    """The same; of a large column of text, the vocabulary is :class:`TextNames`."""
    dtype = column.dtype
    if dtype == pl.Categorical or dtype == pl.Enum:
        column, dtype = column.cast(pl.String), pl.String()
    if dtype.is_float():
        column = _whole(column)
        dtype = column.dtype
    if dtype == pl.Boolean:
        return _encode_booleans(column)
    if dtype.is_integer():
        for narrow in (pl.Int32, pl.Int64):
            values = column if dtype == narrow else column.cast(narrow, strict=False)
            if values.null_count() == column.null_count():
                return _encode_integers(values)
        column, dtype = column.cast(pl.String), pl.String()  # beyond 64 bits: kept as text, as in files
    if dtype == pl.String:
        return _encode_text(column)
    if dtype == pl.Null:
        return np.full(len(column), -1, dtype=np.int32), to_vocabulary([])
    raise InputError(
        f"Column {column.name!r} holds {dtype}: names and labels must be text, integers, booleans or "
        "categories. Convert the column first."
    )


def integers_in_text(codes: Codes, vocabulary: Any) -> tuple[Codes, Any]:
    """Text that is nothing but integers, written the usual way, becomes integers (in sorted order). ``'007'`` or
    ``'+7'`` keep the whole column text: a name must come back as it was written."""
    if vocabulary.dtype != object:
        return codes, vocabulary
    try:
        if isinstance(vocabulary, TextNames):
            int(vocabulary.column[0])  # most often a text: the others are not needed
            vocabulary = vocabulary.array
        numbers = np.array([int(v) for v in vocabulary], dtype=np.int64)
    except (ValueError, OverflowError):
        return codes, vocabulary
    if len(numbers) == 0 or any(str(n) != v for n, v in zip(numbers.tolist(), vocabulary.tolist(), strict=True)):
        return codes, vocabulary
    order = np.argsort(numbers)
    return recode(codes, invert(order)), numbers[order]


def booleans_in_text(codes: Codes, vocabulary: Vocabulary) -> tuple[Codes, Vocabulary]:
    """``true``/``false`` become booleans, in the order False, True. ``TRUE`` and ``FALSE`` alone, as spreadsheets write
    them, stay text: a name must come back as it was written."""
    if vocabulary.dtype == object and all(str(v).isupper() for v in vocabulary.tolist()):
        return codes, vocabulary
    words = [str(v).lower() for v in vocabulary.tolist()]
    if not words or vocabulary.dtype != object or set(words) - {"true", "false"}:
        return codes, vocabulary
    values = np.array([w == "true" for w in words])
    present = np.unique(values)
    return recode(codes, np.searchsorted(present, values)), present


def sort_vocabulary(codes: Codes, vocabulary: Vocabulary) -> tuple[Codes, Vocabulary]:
    """The same column with its vocabulary in sorted order (so that row order cannot matter)."""
    if vocabulary.dtype != object and (np.diff(vocabulary.astype(np.int64)) > 0).all():
        return codes, vocabulary
    try:
        order = np.array(sorted(range(len(vocabulary)), key=vocabulary.tolist().__getitem__), dtype=np.int64)
    except TypeError:
        raise LabelError(
            f"The labels {listing(vocabulary)} are of different kinds and have no order.",
            remedy=Remedy("Convert them to text, or declare {}.", CLASSES),
        ) from None
    return recode(codes, invert(order)), vocabulary[order]


def locate(values: Vocabulary, vocabulary: Vocabulary) -> Codes:
    """The code of each value in a vocabulary, -1 where it is not there. Where one side is text and the other integers
    (a mapping with keys ``0, 1`` against names ``'0', '1'``) they are compared as text."""
    position: dict[Any, int] = {v: i for i, v in enumerate(vocabulary.tolist())}
    codes = np.array([position.get(v, -1) for v in values.tolist()], dtype=np.int32)
    if len(codes) and (codes < 0).any() and (values.dtype == object) != (vocabulary.dtype == object):
        position = {str(v): i for i, v in enumerate(vocabulary.tolist())}
        codes = np.array([position.get(str(v), -1) for v in values.tolist()], dtype=np.int32)
    return codes


def recode(codes: Codes, new_of_old: npt.NDArray[Any]) -> Codes:
    """Send every code through a table, leaving -1 where it is."""
    if len(new_of_old) == 0:
        return codes
    table = np.append(new_of_old, -1).astype(np.int32)
    return table[codes]


def invert(order: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The inverse of a permutation."""
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order))
    return out


def by_size(code: npt.NDArray[Any], size: int) -> Codes:
    """Groups renumbered from the largest on; equally large ones in the order of their first members."""
    first = np.full(size, len(code))
    np.minimum.at(first, code, np.arange(len(code)))
    order = np.lexsort((first, -np.bincount(code, minlength=size)))
    return np.asarray(invert(order)[code], dtype=np.int32)


def check_distinct(vocabulary: Vocabulary, what: str) -> None:
    """A declared list (of classes, of annotators) must not name anything twice."""
    seen: set[Any] = set()
    twice = [v for v in vocabulary.tolist() if v in seen or seen.add(v)]  # type: ignore[func-returns-value]
    if twice:
        raise LabelError(f"The list of {what} names {listing(twice)} more than once. Give each name once.")


def _whole(column: pl.Series) -> pl.Series:
    """Floats that are whole numbers (integers that once shared a column with missing values)."""
    column = column.fill_nan(None)
    rest = column.drop_nulls()
    if len(rest) and not bool((rest == rest.round()).all()):
        example = rest.filter(rest != rest.round())[0]
        raise LabelError(
            f"Column {column.name!r} holds fractions such as {example}: classes and names must be "
            "whole numbers, text or booleans. "
            "If these are measurements, they are not class labels; if they are codes, round them first."
        )
    huge = rest.filter(rest.abs() >= 2.0**63)
    if len(huge):
        raise LabelError(
            f"Column {column.name!r} holds {huge[0]}, which is not a class or name: expected whole "
            "numbers of at most 64 bits, text or booleans."
        )
    return column.cast(pl.Int64)


def _encode_booleans(column: pl.Series) -> tuple[Codes, Vocabulary]:
    values = column.cast(pl.Int8).fill_null(-1).to_numpy().astype(np.int32)
    present = np.array([bool((values == 0).any()), bool((values == 1).any())])
    codes = recode(values, np.cumsum(present) - 1)
    return codes, np.array([False, True])[present]


def _encode_integers(column: pl.Series) -> tuple[Codes, Vocabulary]:
    missing = column.null_count() > 0
    values = (column.fill_null(column.min() or 0) if missing else column).to_numpy()
    if len(values) == 0:
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    low, high = int(values.min()), int(values.max())
    if high - low < 4 * len(values) + 1024:
        codes, vocabulary = _code_range(values, low, high)
    else:
        vocabulary, inverse = np.unique(values, return_inverse=True)
        codes = inverse.astype(np.int32)
    vocabulary = vocabulary.astype(np.int64)
    if missing:
        codes = np.where(column.is_null().to_numpy(), np.int32(-1), codes)
        if not (codes == 0).any():
            codes, vocabulary = np.where(codes > 0, codes - 1, codes).astype(np.int32), vocabulary[1:]
    return codes, vocabulary


def _code_range(values: npt.NDArray[Any], low: int, high: int) -> tuple[Codes, npt.NDArray[np.int64]]:
    """Codes of integers that lie close together, by a table of those that occur."""
    seen = np.zeros(high - low + 1, dtype=bool)
    if len(values) >= NATIVE_ROWS:
        from crowdwise.kernels import table_sort

        table_sort.mark(values, low, seen)
    else:
        seen[values - np.int64(low)] = True
    vocabulary = np.flatnonzero(seen) + low
    if low == 0 and len(vocabulary) == len(seen):
        return values.astype(np.int32, copy=False), vocabulary
    rank = (np.cumsum(seen) - 1).astype(np.int32)
    return rank[values - np.int64(low)], vocabulary


def _encode_text(column: pl.Series) -> tuple[Codes, Vocabulary | TextNames]:
    if len(column) >= NATIVE_ROWS:
        codes, first = _code_text(column)
        names = column.gather(first)
        if column.null_count():
            empty = names.is_null().to_numpy()
            codes = recode(codes, np.where(empty, -1, np.cumsum(~empty) - 1))
            names = names.drop_nulls()
        return codes, TextNames(names + "" if len(names) * KEPT_ROWS < len(column) else names)  # a copy
    names = column.drop_nulls().unique(maintain_order=True)
    codes = column.cast(pl.Enum(names)).to_physical().cast(pl.Int32).fill_null(-1).to_numpy()
    return codes, to_vocabulary(names.to_list())


def _code_text(column: pl.Series) -> tuple[Codes, npt.NDArray[Any]]:
    """Codes, and the rows where each first appears. The few names of one small table do not share 64 bits of a hash; of
    many 64 bits of one hash and 32 of another are looked at: the odds that two of ten million share both are 1e-15."""
    from crowdwise.kernels import table_sort

    few = None
    if column.head(LOOKED_AT).n_unique() <= LOOKED_AT // 8:
        few = table_sort.code_few(column.hash(seed=1).to_numpy())

    def hashes(which: int, a: int, b: int) -> npt.NDArray[np.uint64]:
        return column.slice(a, b - a).hash(seed=1 + which).to_numpy()

    return few or table_sort.code(len(column), hashes)
