"""From codes to the sorted, checked arrays of :class:`~crowdwise.data.votes.Votes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding
from crowdwise.data.encoding import Codes, Counts, Mask, Vocabulary
from crowdwise.data.places import Rows, row_label
from crowdwise.errors import DuplicateError, InputError, LabelError, Option, ParameterError, Remedy, either, listing

MAX_WEIGHT = 1e12
"""The largest weight; the smallest is one over it. What is beyond counts for everything, or nothing."""


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
            f"{listing(declared, 10)}.",
            remedy=Remedy("Add the name to {}, or leave those rows out.", encoding.CLASSES),
        )
    return encoding.recode(label, place), declared


def equally_long(what: str, **columns: npt.NDArray[Any]) -> int:
    """The number of rows of columns that must have the same, and some."""
    sizes = [len(column) for column in columns.values()]
    if len(set(sizes)) > 1:
        raise InputError(f"{_and(columns)} must be equally long and have {_and(map(str, sizes))} entries.")
    if sizes[0] == 0:
        raise InputError(f"No {what}: the table is empty.")
    return sizes[0]


def _and(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}"


def checked_beside(
    weight: npt.ArrayLike | None, timestamp: Any, S: int, rows: Rows, what: str
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[Any] | None]:
    """The weights and timestamps of S rows, checked; ``rows`` are their numbers in messages, ``what`` their name."""
    w = None if weight is None else np.asarray(weight, dtype=np.float64)
    when = None if timestamp is None else np.asarray(timestamp)
    for name, array in (("weight", w), ("timestamp", when)):
        if array is not None and array.shape != (S,):
            raise InputError(
                f"Expected one {name} for each of the {S} {what} and found an array of shape {array.shape}."
            )
    if w is not None:
        check_weights(w, lambda at: f"in {row_label(at, rows, counted='')}", f"the {what}")
    return w, when


def check_weights(weight: npt.NDArray[np.float64], where: Callable[[int], str], what: str) -> None:
    """Weights must be positive numbers, and such that sums and products of them are numbers too."""
    bad = np.flatnonzero(~((weight >= 1 / MAX_WEIGHT) & (weight <= MAX_WEIGHT)))
    if len(bad) == 0:
        return
    odd = weight[bad[0]]
    rule, advice = "Weights must be positive numbers", f"Leave out {what} that should not count."
    if 0 < odd < np.inf:
        rule, advice = f"Weights must lie between {1 / MAX_WEIGHT:g} and {MAX_WEIGHT:g}", "Divide them all by the same."
    raise InputError(f"{rule}: found {odd} {where(int(bad[0]))}. {advice}")


@dataclass(frozen=True)
class Repeats:
    """What to do with rows that an annotator gave twice, and what to call them.

    ``allowed`` are the choices of ``on_duplicate``; ``act`` is what was done twice, such as "labels item"; ``rows`` are
    the numbers of rows in messages.
    """

    on_duplicate: str
    allowed: Sequence[str]
    what: str
    act: str
    rows: Rows = None
    answers: Sequence[npt.NDArray[Any]] = ()
    """What the rows say: rows that say the same are identical."""

    def __post_init__(self) -> None:
        if self.on_duplicate not in self.allowed:
            expected = either([repr(choice) for choice in self.allowed])
            raise ParameterError(f"on_duplicate={self.on_duplicate!r}: expected {expected}.")

    def resolved(
        self, order: npt.NDArray[Any], same: Mask, named: Callable[[int], tuple[str, str]]
    ) -> npt.NDArray[Any]:
        """The order of rows with repeats left out, or an error; ``same[t]``: row t + 1 of the order repeats row t.
        ``said`` gives the annotator of a row, and what it is about."""
        if self.on_duplicate == "error":
            pair = order[(at := int(np.flatnonzero(same)[0])) : at + 2]
            (who, about), count = named(int(pair[0])), int(same.sum())
            where = row_label(pair.tolist(), self.rows, " and ", " (rows counted from 0)")
            choices = [Option("on_duplicate", "first", "last")]
            choices += [Option("on_duplicate", "all")] if "all" in self.allowed else []
            counts = self._identical(order, same)
            error = DuplicateError(
                f"{count:,} duplicated {self.what if count > 1 else self.what[:-1]}: annotator {who} {self.act} "
                f"{about} in {where}."
                f"{_alike(*counts) if counts else ''}",
                remedy=Remedy("Keep one with {}" + ", or count every row with {}" * (len(choices) - 1) + ".", *choices),
            )
            error.identical, error.conflicting = counts or (None, None)
            raise error
        keep = np.ones(len(order), dtype=bool)
        keep[slice(1, None) if self.on_duplicate == "first" else slice(None, -1)] = ~same
        return order[keep]

    def _identical(self, order: npt.NDArray[Any], same: Mask) -> tuple[int, int] | None:
        """How many repeated rows say what the one before says, and how many do not; ``None`` where it is unknown."""
        if not self.answers:
            return None
        at = np.flatnonzero(same)
        alike = np.ones(len(at), dtype=bool)
        for answer in self.answers:
            alike &= answer[order[at]] == answer[order[at + 1]]
        return int(alike.sum()), int((~alike).sum())


def _alike(identical: int, conflicting: int) -> str:
    every = "All" if identical + conflicting > 1 else "Both rows"
    if not conflicting:
        return f" {every} are identical."
    return f" {identical:,} identical, {conflicting:,} conflicting." if identical else f" {every} conflict."


def arrange(
    item: Codes, annotator: Codes, items: Vocabulary, annotators: Vocabulary, repeats: Repeats
) -> tuple[npt.NDArray[Any] | None, Counts, Codes]:
    """The order of rows by item, annotator, then as they came, without repeats.

    Further the item boundaries, and the annotators in that order.

    An order of ``None`` is the order they have.
    """
    order, indptr, who, repeated = _sorted(item, annotator, len(items))
    if repeated == 0 or repeats.on_duplicate == "all":
        return order, indptr, who
    place = np.arange(len(item)) if order is None else order
    place = repeats.resolved(
        place,
        (np.diff(who) == 0) & (np.diff(item[place]) == 0),
        lambda row: (listing(annotators[annotator[[row]]]), listing(items[item[[row]]])),
    )
    return place, boundaries(item[place], len(items)), annotator[place]


def _sorted(item: Codes, annotator: Codes, n_items: int) -> tuple[npt.NDArray[Any] | None, Counts, Codes, int]:
    """Order, item boundaries, annotators and the number of repeated rows (see ``kernels.table_sort.arrange``)."""
    if len(item) >= encoding.NATIVE_ROWS:
        from crowdwise.kernels import table_sort

        return table_sort.arrange(item, annotator, n_items)[:4]
    order: npt.NDArray[Any] = np.lexsort((annotator, item))
    what, who = item[order], annotator[order]
    again = (np.diff(what) == 0) & (np.diff(who) == 0)
    return order, boundaries(what, n_items), who, int(again.sum())


def boundaries(item: npt.NDArray[np.integer[Any]], n_items: int) -> Counts:
    """indptr of votes sorted by item."""
    indptr = np.zeros(n_items + 1, dtype=np.int64)
    np.cumsum(np.bincount(item, minlength=n_items), out=indptr[1:])
    return indptr


def in_order(array: npt.NDArray[Any], order: npt.NDArray[Any] | None, dtype: Any = None) -> npt.NDArray[Any]:
    """The rows in this order, always in a new array: what the caller does to his must not reach the votes."""
    if order is None:
        return array.astype(dtype or array.dtype)
    if len(order) >= encoding.NATIVE_ROWS and array.dtype.kind in "if":
        from crowdwise.kernels import table_sort

        return table_sort.take(array, order, dtype)
    return np.asarray(array[order], dtype=dtype)


def chosen_annotators(names: Any, annotators: Vocabulary, what: str = "answers") -> Mask:
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
