"""What the tables of answers do with rows: take them as they are given, choose some, count them.

``what`` is what the rows are called in messages: votes, ratings, comparisons, answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding
from crowdwise.data.answer_frames import wide_parts
from crowdwise.data.encoding import Counts, Mask
from crowdwise.data.frames import is_frame, is_missing, native
from crowdwise.errors import InputError, SelectionError


def columns_of(
    records: Iterable[Any], names: Sequence[str], what: str, *, optional: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Records, all tuples of one length or all dicts, as columns. ``names`` are the columns of tuples, which
    ``optional`` ones may follow."""
    rows = list(records)
    if not rows:
        raise InputError(f"No {what}: the records are empty.")
    if all(isinstance(row, Mapping) for row in rows):
        keys = list(dict.fromkeys(name for row in rows for name in row))
        return {name: [row.get(name) for row in rows] for name in keys}
    widths = range(len(names), len(names) + len(optional) + 1)
    width = len(rows[0]) if isinstance(rows[0], Sized) else 0
    for at, row in enumerate(rows):
        flat = isinstance(row, Sized) and not isinstance(row, (str, Mapping))
        if not flat or len(row) != width or width not in widths:
            forms = [f"({', '.join([*names, *optional[:more]])})" for more in range(len(optional) + 1)]
            raise InputError(
                f"Expected {' or '.join(forms)} in every record, or a dict in every one: found {row!r} in row {at}."
            )
    return dict(zip([*names, *optional][:width], zip(*rows, strict=True), strict=True))


def cells_of(
    values: Any, items: Sequence[Any] | None, annotators: Sequence[Any] | None
) -> tuple[Any, Sequence[Any] | None, Sequence[Any] | None]:
    """The cells of a table, and the names of its rows and columns where none are given; an array as it is."""
    values = native(values)
    if not is_frame(values):
        return values, items, annotators
    names, columns, cells = wide_parts(values)
    own = None if names is None else names.values.tolist()
    return cells, own if items is None else items, columns if annotators is None else annotators


def dense(
    values: Any, items: Sequence[Any] | None, annotators: Sequence[Any] | None, missing: Any = None
) -> tuple[npt.NDArray[Any], dict[str, Any]]:
    """The cells of an items x annotators array that hold an answer, and their codes and names for ``from_codes``. A
    cell holds none where the array is masked, NaN, ``None`` or blank, or equals ``missing``. A table names its rows and
    columns itself."""
    values, items, annotators = cells_of(values, items, annotators)
    # As objects a list keeps what it holds: numpy would make text of a NaN beside text.
    as_is = isinstance(values, np.ndarray)
    try:
        table = np.asarray(np.ma.getdata(values)) if as_is else np.array(values, dtype=object)
    except ValueError:
        table = np.zeros(0)
    if table.ndim != 2:
        raise InputError(
            "Expected an items x annotators array with 2 dimensions, every row equally long, and "
            f"found {table.ndim}. Use from_frame for a table in long form."
        )
    N, M = table.shape
    for names, size, what in ((items, N, "items"), (annotators, M, "annotators")):
        if names is not None and len(names) != size:
            raise InputError(
                f"The array has {N} rows (items) and {M} columns (annotators), and {len(names)} {what} are named."
            )
        encoding.check_distinct(encoding.to_vocabulary([] if names is None else names), what)
    present = ~np.ma.getmaskarray(values) if as_is else np.ones(table.shape, dtype=bool)
    if table.dtype.kind == "f":
        present &= ~np.isnan(table)
    if table.dtype.kind in "OU":
        filled = [not is_missing(v) and not (isinstance(v, str) and not v.strip()) for v in table.ravel().tolist()]
        present &= np.array(filled, dtype=bool).reshape(table.shape)
    if missing is not None:
        present &= table != missing
    item, annotator = np.nonzero(present)
    return table[present], {
        "item": item, "annotator": annotator, "items": range(N) if items is None else items,
        "annotators": range(M) if annotators is None else annotators,
    }  # fmt: skip


def positions(index: Any, N: int, table: str, *, distinct: bool = False) -> Counts:
    """The items that an index into a table chooses, one by one."""
    if isinstance(index, tuple):  # scikit-learn asks for votes[index, ...]
        if len(index) != 2 or not (index[1] is Ellipsis or (isinstance(index[1], slice) and index[1] == slice(None))):
            raise SelectionError(
                f"{table} are indexed by item alone and were asked for {index}. Choose annotators with only(...) or "
                "without(...), rows with select(mask)."
            )
        index = index[0]
    try:
        rows = np.atleast_1d(np.arange(N)[index])
    except (IndexError, TypeError, ValueError) as error:
        raise SelectionError(
            f"{table} have {N} items, and none of them is chosen by {_shown(index)}: {error}. Expected an integer, a "
            "slice, positions or a mask over the items."
        ) from None
    if rows.ndim != 1:
        raise SelectionError(
            f"{table} are indexed by item alone: expected an integer, a slice or a flat array and "
            f"found {rows.ndim} dimensions."
        )
    if distinct and len(np.unique(rows)) < len(rows):
        raise SelectionError(f"{table} are indexed by different items: {_shown(index)} names some more than once.")
    return rows


def _shown(index: Any) -> str:
    text = repr(index)
    return text if len(text) <= 60 else f"{text[:57]}..."


def renumbered(chosen: Counts, N: int) -> npt.NDArray[np.int32]:
    """The place of each of N items among those chosen, -1 where it is none."""
    place = np.full(N, -1, dtype=np.int32)
    place[chosen] = np.arange(len(chosen))
    return place


def blocks(indptr: Counts, chosen: Counts) -> tuple[Counts, Counts]:
    """Where the chosen blocks begin once they stand one after the other, and the rows in them."""
    count = np.diff(indptr)[chosen]
    new = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    return new, np.arange(new[-1]) + np.repeat(indptr[:-1][chosen] - new[:-1], count)


def checked_mask(mask: npt.ArrayLike, S: int, what: str) -> Mask:
    """A mask over S rows."""
    found = np.asarray(mask)
    if found.dtype != bool or found.shape != (S,):
        raise InputError(
            f"Expected a mask with one true or false for each of the {S} {what}, "
            f"and found an array of {found.dtype} of shape {found.shape}."
        )
    return found


def spread(counts: npt.NDArray[Any]) -> dict[str, float]:
    """The least, middle, mean and greatest of some counts."""
    if len(counts) == 0:
        return {"min": 0, "median": 0, "mean": 0, "max": 0}
    return {
        "min": int(counts.min()), "median": float(np.median(counts)), "mean": float(counts.mean()),
        "max": int(counts.max()),
    }  # fmt: skip
