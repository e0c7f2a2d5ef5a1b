"""From codes to the sorted, checked arrays of :class:`~crowdwise.data.votes.Votes`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.errors import DuplicateError, InputError, LabelError, ParameterError, listing

OnDuplicate = Literal["error", "first", "last", "all"]


def checked_codes(values: npt.ArrayLike, names: Vocabulary, what: str) -> Codes:
    """Codes as int32, checked against the names they stand for."""
    codes = np.asarray(values)
    if codes.ndim != 1 or (codes.dtype.kind not in "iu" and len(codes)):
        raise InputError(
            f"The {what} codes must be a flat array of integers: found {codes.dtype} values in {codes.ndim} dimensions."
        )
    if len(codes) and (codes.min() < 0 or codes.max() >= len(names)):
        raise InputError(f"The {what} codes run from {codes.min()} to {codes.max()}: expected 0 to {len(names) - 1}.")
    return codes.astype(np.int32, copy=False)


def declare(label: Codes, names: Vocabulary, classes: Any) -> tuple[Codes, Vocabulary]:
    """Codes into the class list: the declared one (checked), else the names that occur, sorted."""
    if classes is None:
        return encoding.sort_vocabulary(label, names)
    declared = encoding.to_vocabulary(list(classes))
    encoding.check_distinct(declared, "classes")
    if classes is names:
        return label, declared
    place = encoding.locate(names, declared)
    if (place < 0).any():
        raise LabelError(
            f"Annotators used {listing(names[place < 0])}, which the declared classes do not have: "
            f"{listing(declared, 10)}. "
            "Add the name to classes=[...], or leave those rows out."
        )
    return encoding.recode(label, place), declared


def checked_weight(
    weight: npt.NDArray[np.float64], S: int, rows: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.float64]:
    if weight.shape != (S,):
        raise InputError(f"Expected one weight for each of the {S} votes and found an array of shape {weight.shape}.")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
    if len(bad):
        row = bad[0] if rows is None else rows[bad[0]]
        raise InputError(
            f"Weights must be positive numbers: found {weight[bad[0]]} in row {row}. Leave out the "
            "votes that should not count."
        )
    return weight


def arrange(
    item: Codes,
    annotator: Codes,
    on_duplicate: OnDuplicate,
    items: Vocabulary,
    annotators: Vocabulary,
    rows: npt.NDArray[np.int64] | None,
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[np.int64], Codes]:
    """The order of rows by item, annotator, then as they came, with duplicates settled.

    Further the item boundaries, and the annotators in that order.

    An order of ``None`` is the order they have.
    """
    if on_duplicate not in ("error", "first", "last", "all"):
        raise ParameterError(f"on_duplicate={on_duplicate!r}: expected 'error', 'first', 'last' or 'all'.")
    order, indptr, who, repeats, at = _sorted(item, annotator, len(items))
    if repeats == 0 or on_duplicate == "all":
        return order, indptr, who
    place = np.arange(len(item)) if order is None else order
    if on_duplicate == "error":
        pair = place[at - 1 : at + 1]
        name, what = listing(annotators[annotator[pair[:1]]]), listing(items[item[pair[:1]]])
        first, second = pair if rows is None else rows[pair]
        raise DuplicateError(
            f"{repeats:,} duplicated {'votes' if repeats > 1 else 'vote'}: annotator {name} labels item {what} "
            f"in rows {first} and {second} (rows counted from 0). "
            "Keep one with on_duplicate='first' or 'last', or count every row with on_duplicate='all'."
        )
    same = (np.diff(who) == 0) & (np.diff(item[place]) == 0)
    keep = np.ones(len(place), dtype=bool)
    keep[slice(1, None) if on_duplicate == "first" else slice(None, -1)] = ~same
    place = place[keep]
    return place, boundaries(item[place], len(items)), annotator[place]


def _sorted(
    item: Codes, annotator: Codes, n_items: int
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[np.int64], Codes, int, int]:
    """Order, item boundaries, annotators, the number of repeated votes and where the first stands (see
    ``kernels.tables.arrange``)."""
    if len(item) >= encoding.NATIVE_ROWS:
        from crowdwise.kernels import table_sort

        return table_sort.arrange(item, annotator, n_items)
    order: npt.NDArray[Any] = np.lexsort((annotator, item))
    what, who = item[order], annotator[order]
    again = np.flatnonzero((np.diff(what) == 0) & (np.diff(who) == 0)) + 1
    return order, boundaries(what, n_items), who, len(again), int(again[0]) if len(again) else -1


def boundaries(item: npt.NDArray[np.integer[Any]], n_items: int) -> npt.NDArray[np.int64]:
    """indptr of votes sorted by item."""
    indptr = np.zeros(n_items + 1, dtype=np.int64)
    np.cumsum(np.bincount(item, minlength=n_items), out=indptr[1:])
    return indptr


def in_order(array: npt.NDArray[Any], order: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """The rows in this order, always in a new array: what the caller does to his must not reach the votes."""
    if order is None:
        return array.copy()
    if len(order) >= encoding.NATIVE_ROWS and array.dtype.kind in "if":
        from crowdwise.kernels import table_sort

        return table_sort.take(array, order)
    return np.asarray(array[order])


def all_in_order(order: npt.NDArray[Any] | None, *arrays: npt.NDArray[Any] | None) -> list[Any]:
    """Each of the arrays in this order; what is not there stays away."""
    return [None if array is None else in_order(array, order) for array in arrays]


def chosen_annotators(names: Any, annotators: Vocabulary, what: str = "answers") -> npt.NDArray[np.bool_]:
    """A mask over annotators from some of their names; ``what`` they gave is for the message."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        names = [names]
    wanted = encoding.to_vocabulary(list(names))
    codes = encoding.locate(wanted, annotators)
    if (codes < 0).any():
        raise InputError(f"No annotator named {listing(wanted[codes < 0])}: the {what} have {listing(annotators)}.")
    chosen = np.zeros(len(annotators), dtype=bool)
    chosen[codes] = True
    return chosen
