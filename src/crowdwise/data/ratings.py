"""The sparse table of ratings: annotators' numbers for items.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, schema, spellings
from crowdwise.data.encoding import Counts
from crowdwise.data.places import row_label
from crowdwise.data.schema import ANNOTATOR, CHOICES, COMMON, FORM, ITEM, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import ByItem, CodedTable, cells_of, dense, reader
from crowdwise.data.truth import encode_numbers, numbers_in
from crowdwise.errors import InputError, Remedy, warn

Numbers = npt.NDArray[np.float64]
MAX_RATING = 1e50
"""The largest size of a rating: its square and the squares of sums are numbers too."""
GRADES, EACH = 11, 10
"""So many different numbers, evenly spaced and each said so often on average, are the grades of a scale."""
STATISTICS: dict[str, Any] = {"min": np.min, "mean": np.mean, "median": np.median, "max": np.max, "deviation": np.std}


@dataclass(frozen=True, eq=False, repr=False)
class Ratings(CodedTable, ByItem):
    """A frozen, validated table of ratings. Make one with a ``from_...`` method or :func:`crowdwise.read_ratings`.

    >>> import crowdwise as cw
    >>> ratings = cw.Ratings.from_records([("a", "ann", 3.5), ("a", "bob", 4.0), ("b", "ann", 1.0)])
    >>> ratings
    Ratings(3 ratings: 2 items x 2 annotators, from 1 to 4)
    >>> ratings[[1]].to_frame("dict")["value"].tolist()
    [1.0]
    """

    answer_type: ClassVar[str] = "ratings"
    columns: ClassVar[tuple[Col, ...]] = (
        ITEM, ANNOTATOR, Col("value", needed=True), *COMMON, Col("truth", per="item")
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        FORM, schema.ANNOTATOR_COLUMNS, schema.QUESTION, schema.on_duplicate("rated an item", *CHOICES),
        schema.on_missing("a number"),
    )  # fmt: skip
    _rows: ClassVar[str] = "ratings"
    _act: ClassVar[str] = "rates item"
    _forms: ClassVar[str] = "Either in long form (one row per rating) or in wide form (one column per annotator)."
    _truths: ClassVar[tuple[str, ...]] = ("truth", "value")
    _truth_in: ClassVar[Any] = staticmethod(numbers_in)

    indptr: Counts
    value: Numbers

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Ratings:
        source.lengthen(options["form"], "value", named=options["annotator_columns"])
        source.complete(cls._needed(), options["on_missing"])
        item, items = source.coded("item")
        annotator, annotators = source.coded("annotator")
        value = source.numbers("value", remedy=Remedy("If these are classes, make Votes of them."))
        if np.isin(np.abs(value), list(spellings.MISSING)).any():
            for code in spellings.missing_codes(np.unique(value).tolist()):
                warn(f"{code:g} is read as a rating. If it stands for no answer, empty these cells or leave them out.")
        ratings = cls.from_codes(item, annotator, value, items=items, annotators=annotators, **source.beside(options))
        return ratings.with_truth(numbers_in(source, "truth", item, items)) if "truth" in source else ratings

    @classmethod
    def from_dense(
        cls, values: Any, *, items: Sequence[Any] | None = None, annotators: Sequence[Any] | None = None,
        truth: Any = None,
    ) -> Ratings:  # fmt: skip
        """Ratings from an N x M array, one row per item and one column per annotator; NaN or masked where missing.

        >>> import numpy as np
        >>> Ratings.from_dense([[1.0, 2.0, np.nan], [2.5, 2.5, 0.0]])
        Ratings(5 ratings: 2 items x 3 annotators, from 0 to 2.5)
        """
        values, items, annotators = cells_of(values, items, annotators)
        try:
            table = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                "Expected an items x annotators array of numbers, every row equally long, NaN where missing."
            ) from None
        values_of, cells = dense(table, items, annotators)
        return cls.from_codes(value=values_of, truth=truth, **cells)

    @classmethod
    def from_codes(
        cls, item: npt.ArrayLike, annotator: npt.ArrayLike, value: npt.ArrayLike, *, items: Any, annotators: Any,
        **beside: Unpack[Beside],
    ) -> Ratings:  # fmt: skip
        """Ratings from codes, numbers and the names behind the codes (what every other way of making one ends in)."""
        number = np.asarray(value)
        if (number.dtype.kind not in "fiub" and len(number)) or number.ndim != 1:
            raise InputError(
                f"Ratings must be numbers in a flat array: found {number.dtype} values in {number.ndim} dimensions."
            )
        number = number.astype(np.float64)
        bad, rows = np.flatnonzero(~(np.abs(number) <= MAX_RATING)), beside.get("rows")
        if len(bad):
            where = row_label(int(bad[0]), rows)
            raise InputError(
                f"Ratings must be finite numbers, at most {MAX_RATING:g} in size: found {number[bad[0]]} in "
                f"{where}. Leave out the ratings that are missing."
            )

        def answers(order: npt.NDArray[Any] | None) -> dict[str, Any]:
            return {"value": assemble.in_order(number, order)}

        return cls._built(item, annotator, items, annotators, beside, answers, value=number)

    def __repr__(self) -> str:
        span = f", from {self.value.min():g} to {self.value.max():g}" if self.n_answers else ""
        return f"Ratings({self.n_answers:,} ratings: {len(self):,} items x {self.n_annotators:,} annotators{span})"

    def ends(self) -> Numbers:
        """The lowest and the highest number of the scale; infinite where the ratings show no end.

        A few evenly spaced numbers are grades, which have both. Other scales have an end where ratings pile up: one in
        a hundred or more is the last number, and fewer are the one before.
        """
        number, often = np.unique(self.value, return_counts=True)
        if len(number) < 2:
            return np.array([-np.inf, np.inf])
        steps = (number - number[0]) / np.diff(number).min()
        if steps[-1] < GRADES and often.sum() >= EACH * len(number) and np.allclose(steps, np.round(steps)):
            return number[[0, -1]]
        piled = (often[[0, -1]] > often[[1, -2]]) & (often[[0, -1]] >= max(3.0, often.sum() / 100.0))
        return np.where(piled, number[[0, -1]], [-np.inf, np.inf])

    def encode_truth(self, truth: Any) -> Numbers:
        """N numbers (NaN unknown) from such an array or from a mapping of items to numbers."""
        return encode_numbers(truth, self.items, self._rows)

    def _counted(self) -> dict[str, Any]:
        per_item = np.diff(self.indptr)
        total = np.bincount(self.item, weights=self.value, minlength=len(self))
        square = np.bincount(self.item, weights=self.value**2, minlength=len(self))
        rated, paired = per_item > 0, per_item > 1
        mean = total[rated] / per_item[rated]
        within = np.maximum(square[paired] - total[paired] ** 2 / per_item[paired], 0.0).sum()
        return {
            "values": {name: float(of(self.value)) if self.n_answers else None for name, of in STATISTICS.items()},
            "deviation_of_item_means": float(mean.std()) if len(mean) else None,
            "deviation_within_items": float(np.sqrt(within / (per_item[paired] - 1).sum())) if paired.any() else None,
            "items_without_ratings": int((per_item == 0).sum()), "items_with_one_rating": int((per_item == 1).sum()),
            "density": self.n_answers / max(1, len(self) * self.n_annotators),
        }  # fmt: skip


read_ratings = reader(Ratings, "read_ratings")
