"""What the tables of answers do with rows: take them as they are given, check what lies beside them, choose some.

``what`` is what the rows are called in messages: votes, ratings, comparisons, answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding
from crowdwise.errors import InputError

Counts = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]


def columns_of(
    records: Iterable[Any],
    names: Sequence[str],
    what: str,
    *,
    optional: Sequence[str] = (),
    shown: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Records, all tuples of one length or all dicts, as columns.

    ``names`` are the columns of tuples, which ``optional`` ones may follow; ``shown`` is what a message calls the
    former.
    """
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
            said = list(names if shown is None else shown)
            forms = [f"({', '.join([*said, *optional[:more]])})" for more in range(len(optional) + 1)]
            raise InputError(
                f"Expected {' or '.join(forms)} in every record, or a dict in every one: found {row!r} in row {at}."
            )
    return dict(zip([*names, *optional][:width], zip(*rows, strict=True), strict=True))


def beside(
    weight: npt.ArrayLike | None, timestamp: Any, S: int, rows: Counts | None, what: str
) -> tuple[Weights | None, npt.NDArray[Any] | None]:
    """The weights and timestamps of S rows, checked; ``rows`` are their numbers in messages about weights."""
    w = None if weight is None else assemble.checked_weight(np.asarray(weight, dtype=np.float64), S, rows)
    when = None if timestamp is None else np.asarray(timestamp)
    if when is not None and when.shape != (S,):
        raise InputError(f"Expected one timestamp for each of the {S} {what} and found an array of shape {when.shape}.")
    return w, when


def check_named(N: int, M: int, items: Sequence[Any] | None, annotators: Sequence[Any] | None) -> None:
    """The names of an items x annotators array: as many as it has rows and columns, no two alike."""
    for names, size, what in ((items, N, "items"), (annotators, M, "annotators")):
        if names is not None:
            if len(names) != size:
                raise InputError(
                    f"The array has {N} rows (items) and {M} columns (annotators), and {len(names)} {what} are named."
                )
            encoding.check_distinct(encoding.to_vocabulary(names), what)


# -------------------------------------------------------------------- choosing


def item_rows(index: Any, N: int, table: str) -> Counts:
    """The items that an index into a table chooses, one by one."""
    if isinstance(index, tuple):  # scikit-learn asks for votes[index, ...]
        if len(index) != 2 or not (index[1] is Ellipsis or index[1] == slice(None)):
            raise IndexError(
                f"{table} are indexed by item alone and were asked for {index}. Choose annotators with only(...) or "
                "without(...)."
            )
        index = index[0]
    rows = np.atleast_1d(np.arange(N)[index])
    if rows.ndim != 1:
        raise IndexError(
            f"{table} are indexed by item alone: expected an integer, a slice or a flat array and "
            f"found {rows.ndim} dimensions."
        )
    return rows


def blocks(indptr: Counts, chosen: Counts) -> tuple[Counts, Counts]:
    """Where the chosen blocks begin once they stand one after the other, and the rows in them."""
    count = np.diff(indptr)[chosen]
    new = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    return new, np.arange(new[-1]) + np.repeat(indptr[:-1][chosen] - new[:-1], count)


def checked_mask(mask: npt.ArrayLike, S: int, what: str) -> npt.NDArray[np.bool_]:
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
        "min": int(counts.min()),
        "median": float(np.median(counts)),
        "mean": float(counts.mean()),
        "max": int(counts.max()),
    }
