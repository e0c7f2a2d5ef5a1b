"""The sparse table of ratings: which number whom gave to which item.

=============  ==========================  =====================================================
field          shape                       meaning
=============  ==========================  =====================================================
``indptr``     N + 1                       ratings of item n are rows ``indptr[n]:indptr[n + 1]``
``annotator``  S                           code of the annotator, sorted within an item
``value``      S                           the number the annotator gave, finite
``weight``     S or ``None``               how much a rating counts (1 where absent)
``timestamp``  S or ``None``               when it was given
``truth``      N or ``None``               the true number, NaN where unknown
``items``, ``annotators``                  the names behind the codes
=============  ==========================  =====================================================

It shares the habits of :class:`~crowdwise.Votes`: frozen, validated once, the order of rows does not matter, and no
method looks at ``truth``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding
from crowdwise.data.answers import ByItem
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.rows import beside, blocks, check_named, checked_mask, columns_of, item_rows, spread
from crowdwise.data.votes import OnMissing
from crowdwise.errors import InputError, listing

Numbers = npt.NDArray[np.float64]

__all__ = ["Ratings"]


@dataclass(frozen=True, eq=False, repr=False)
class Ratings(ByItem):
    """A frozen, validated table of ratings. Make one with a ``from_...`` method or :func:`crowdwise.read_ratings`.

    >>> import crowdwise as cw
    >>> ratings = cw.Ratings.from_records([("a", "ann", 3.5), ("a", "bob", 4.0), ("b", "ann", 1.0)])
    >>> ratings
    Ratings(3 ratings: 2 items x 2 annotators, from 1 to 4)
    >>> ratings[[1]].to_frame("dict")["value"].tolist()
    [1.0]
    """

    answer_type: ClassVar[str] = "ratings"
    _rows: ClassVar[str] = "ratings"

    indptr: npt.NDArray[np.int64]
    annotator: Codes
    value: Numbers
    items: Vocabulary
    annotators: Vocabulary
    weight: Numbers | None = None
    timestamp: npt.NDArray[Any] | None = None
    truth: Numbers | None = None
    kind: str = "polars"

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        item: str | None = None,
        annotator: str | None = None,
        value: str | None = None,
        weight: str | None = None,
        timestamp: str | None = None,
        truth: str | None = None,
        form: Literal["auto", "long", "wide"] = "auto",
        on_duplicate: OnDuplicate = "error",
        on_missing: OnMissing = "error",
    ) -> Ratings:
        """Ratings from a table: pandas, polars, pyarrow, a dict of columns, anything narwhals or Arrow streams take.

        Parameters
        ----------
        frame
            Long form (one row per rating) or wide form (one column per annotator).
        item, annotator, value, weight, timestamp, truth
            The columns, where their names are not among the usual ones (item/task/unit...,
            annotator/worker/rater..., value/rating/score...).
        form
            ``"wide"``: every column that plays no other part is an annotator. ``"auto"`` takes the long form wherever
            its columns are found.
        on_duplicate
            What to do when an annotator rated an item twice: ``"error"``, keep the ``"first"`` or ``"last"`` row, or
            count ``"all"`` of them.
        on_missing
            ``"drop"`` leaves out rows without a number instead of raising.
        """
        from crowdwise.data.readers_numbers import ratings_from_table

        given = {"item": item, "annotator": annotator, "value": value}
        given |= {"weight": weight, "timestamp": timestamp, "truth": truth}
        return ratings_from_table(frame, given, form=form, on_duplicate=on_duplicate, on_missing=on_missing)

    @classmethod
    def from_records(
        cls, records: Iterable[Any], *, on_duplicate: OnDuplicate = "error", on_missing: OnMissing = "error"
    ) -> Ratings:
        """Ratings from rows: ``(item, annotator, value)`` or ``(item, annotator, value, weight)`` tuples, or dicts
        (keys as in ``from_frame``)."""
        columns = columns_of(records, ("item", "annotator", "value"), "ratings", optional=["weight"])
        return cls.from_frame(columns, form="long", on_duplicate=on_duplicate, on_missing=on_missing)

    @classmethod
    def from_dense(
        cls,
        values: Any,
        *,
        items: Sequence[Any] | None = None,
        annotators: Sequence[Any] | None = None,
        truth: Any = None,
    ) -> Ratings:
        """Ratings from an N x M array, one row per item and one column per annotator; NaN or masked where missing.

        >>> import numpy as np
        >>> Ratings.from_dense([[1.0, 2.0, np.nan], [2.5, 2.5, 0.0]])
        Ratings(5 ratings: 2 items x 3 annotators, from 0 to 2.5)
        """
        mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
        try:
            table = np.asarray(np.ma.getdata(values), dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                "Expected an items x annotators array of numbers, every row equally long, NaN where missing."
            ) from None
        if table.ndim != 2:
            raise InputError(f"Expected an items x annotators array with 2 dimensions and found {table.ndim}.")
        present = ~np.isnan(table) if mask is None else ~np.isnan(table) & ~mask
        N, M = table.shape
        check_named(N, M, items, annotators)
        item, annotator = np.nonzero(present)
        return cls.from_codes(
            item, annotator, table[present],
            items=range(N) if items is None else items,
            annotators=range(M) if annotators is None else annotators,
            truth=truth,
        )  # fmt: skip

    @classmethod
    def from_codes(
        cls,
        item: npt.ArrayLike,
        annotator: npt.ArrayLike,
        value: npt.ArrayLike,
        *,
        items: Any,
        annotators: Any,
        weight: npt.ArrayLike | None = None,
        timestamp: npt.NDArray[Any] | None = None,
        truth: Any = None,
        on_duplicate: OnDuplicate = "error",
        kind: str = "polars",
        rows: npt.NDArray[np.int64] | None = None,
    ) -> Ratings:
        """Ratings from codes, numbers and the names behind the codes (what every other way of making one ends in).

        ``truth`` is an array of N numbers (NaN unknown) or a mapping from item to number. ``rows`` are the numbers by
        which messages call the ratings, where those are not simply their positions.
        """
        items, annotators = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        item = assemble.checked_codes(item, items, "item")
        annotator = assemble.checked_codes(annotator, annotators, "annotator")
        number = np.asarray(value)
        if number.dtype.kind not in "fiub" and len(number):
            raise InputError(f"Ratings must be numbers: found values of type {number.dtype}.")
        number, S = number.astype(np.float64), len(item)
        if not (len(annotator) == len(number) == S) or number.ndim != 1:
            raise InputError(
                f"item, annotator and value must be flat and equally long and have {S}, {len(annotator)} and "
                f"{len(number)} entries."
            )
        if S == 0:
            raise InputError("No ratings: the table is empty.")
        bad = np.flatnonzero(~np.isfinite(number))
        if len(bad):
            row = int(bad[0]) if rows is None else int(rows[bad[0]])
            raise InputError(
                f"Ratings must be finite numbers: found {number[bad[0]]} in row {row} (counted from 0). "
                "Leave out the ratings that are missing."
            )
        w, when = beside(weight, timestamp, S, rows, "ratings")
        order, indptr, annotator = assemble.arrange(item, annotator, on_duplicate, items, annotators, rows)
        number, w, when = assemble.all_in_order(order, number, w, when)
        ratings = cls(indptr, annotator, number, items, annotators, w, when, None, kind)
        return ratings if truth is None else ratings.with_truth(truth)

    # ---------------------------------------------------------------- what is in it

    @property
    def n_answers(self) -> int:
        """The number of answers: rows of the long table."""
        return len(self.value)

    @property
    def n_ratings(self) -> int:
        """S, the number of ratings (``len(ratings)`` is the number of items)."""
        return len(self.value)

    @property
    def item(self) -> npt.NDArray[np.int64]:
        """The item code of every rating."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def __repr__(self) -> str:
        span = f", from {self.value.min():g} to {self.value.max():g}" if self.n_ratings else ""
        return f"Ratings({self.n_ratings:,} ratings: {len(self):,} items x {self.n_annotators:,} annotators{span})"

    # ---------------------------------------------------------------- selecting

    def __getitem__(self, index: Any) -> Ratings:
        """The ratings of some items: an integer, a slice, an array of positions or a mask. Annotators keep their
        codes."""
        rows = item_rows(index, len(self), "Ratings")
        indptr, take = blocks(self.indptr, rows)
        truth = None if self.truth is None else self.truth[rows]
        return replace(self, indptr=indptr, items=self.items[rows], truth=truth, **self._at(take, "value"))

    def select(self, rows: npt.ArrayLike) -> Ratings:
        """Some of the ratings, by a mask over their rows. Items and annotators keep their codes, even without any."""
        mask = checked_mask(rows, self.n_ratings, "ratings")
        return replace(self, indptr=assemble.boundaries(self.item[mask], len(self)), **self._at(mask, "value"))

    def _kept(self, mask: npt.NDArray[np.bool_]) -> Ratings:
        return self.select(mask)

    def with_truth(self, truth: Any) -> Ratings:
        """The same ratings with the true numbers: N of them (NaN unknown), a mapping from item to number, or
        ``None``."""
        return replace(self, truth=None if truth is None else self.encode_truth(truth))

    def encode_truth(self, truth: Any) -> Numbers:
        """N numbers (NaN unknown) from such an array or from a mapping of items to numbers."""
        return locate_truth(truth, self.items)

    # ---------------------------------------------------------------- out again

    def to_frame(self, kind: str | None = None) -> Any:
        """The long table again, one row per rating: ``"pandas"``, ``"polars"``, ``"pyarrow"`` or a ``"dict"``."""
        from crowdwise.data.frames import make_frame

        item = self.item
        columns: dict[str, Any] = {
            "item": self.items[item],
            "annotator": self.annotators[self.annotator],
            "value": self.value,
        }
        for name in ("weight", "timestamp"):
            if getattr(self, name) is not None:
                columns[name] = getattr(self, name)
        if self.truth is not None:
            columns["truth"] = self.truth[item]
        return make_frame(columns, kind or self.kind)

    def describe(self) -> dict[str, Any]:
        """Counts and moments that show the shape of the data, as a plain dict."""
        per_item, per_annotator = np.diff(self.indptr), np.bincount(self.annotator, minlength=self.n_annotators)
        total = np.bincount(self.item, weights=self.value, minlength=len(self))
        square = np.bincount(self.item, weights=self.value**2, minlength=len(self))
        rated, paired = per_item > 0, per_item > 1
        mean = total[rated] / per_item[rated]
        within = np.maximum(square[paired] - total[paired] ** 2 / per_item[paired], 0.0).sum()
        return {
            "items": len(self),
            "annotators": self.n_annotators,
            "ratings": self.n_ratings,
            "ratings_per_item": spread(per_item),
            "ratings_per_annotator": spread(per_annotator),
            "values": {
                "min": float(self.value.min()), "mean": float(self.value.mean()),
                "median": float(np.median(self.value)), "max": float(self.value.max()), "deviation":
                float(self.value.std()),
            },
            "deviation_of_item_means": float(mean.std()),
            "deviation_within_items": float(np.sqrt(within / (per_item[paired] - 1).sum())) if paired.any() else None,
            "items_without_ratings": int((per_item == 0).sum()),
            "items_with_one_rating": int((per_item == 1).sum()),
            "density": self.n_ratings / max(1, len(self) * self.n_annotators),
            "weighted": self.weight is not None,
            "timestamps": self.timestamp is not None,
            "items_with_truth": 0 if self.truth is None else int((~np.isnan(self.truth)).sum()),
        }  # fmt: skip


def locate_truth(truth: Any, items: Vocabulary) -> Numbers:
    """N numbers (NaN unknown), in the order of some items, from such an array or from a mapping of item to number."""
    from crowdwise.data.frames import is_missing

    if isinstance(truth, (np.ndarray, list, tuple)):
        try:
            array = np.asarray(truth, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != (len(items),) or np.isinf(array).any():
            raise InputError(
                f"As an array, truth must hold a finite number (NaN where unknown) for each of the {len(items)} items."
            )
        return array.copy()
    if not hasattr(truth, "keys"):
        raise InputError(f"truth must be an array of numbers or a mapping from item, and is {type(truth).__name__}.")
    pairs = {name: value for name, value in dict(truth).items() if not is_missing(value)}
    try:
        values = np.array([float(value) for value in pairs.values()], dtype=np.float64)
    except (TypeError, ValueError):
        odd = next(v for v in pairs.values() if not isinstance(v, (int, float, np.number)))
        raise InputError(f"The truth holds {odd!r}: expected numbers.") from None
    if not np.isfinite(values).all():
        raise InputError("The truth holds an infinite number: expected finite ones.")
    names = encoding.to_vocabulary(list(pairs))
    rows = encoding.locate(items, names)
    if len(names) and len(items) and (rows < 0).all():
        raise InputError(
            f"None of the {len(names)} items with truth has ratings: truth names {listing(names, 3)}, the ratings "
            f"{listing(items, 3)}. Check that both name the items alike."
        )
    return np.append(values, np.nan)[rows]
