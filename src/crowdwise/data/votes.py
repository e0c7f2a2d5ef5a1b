"""The sparse table of votes: who said what about which item.

=============  ==========================  =====================================================
field          shape                       meaning
=============  ==========================  =====================================================
``indptr``     N + 1                       votes of item n are rows ``indptr[n]:indptr[n + 1]``
``annotator``  S                           code of the annotator, sorted within an item
``label``      S                           code of the class the annotator chose
``weight``     S or ``None``               how much a vote counts (1 where absent)
``timestamp``  S or ``None``               when it was given
``truth``      N or ``None``               code of the true class, -1 where unknown
``items``, ``annotators``, ``classes``     the names behind the codes
=============  ==========================  =====================================================

``truth`` is there to measure with. No method looks at it unless it is handed over explicitly
(``fit(votes, truth=...)``).
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
from crowdwise.errors import InputError, LabelError, ParameterError, listing

OnMissing = Literal["error", "drop"]

__all__ = ["Votes"]


@dataclass(frozen=True, eq=False, repr=False)
class Votes(ByItem):
    """A frozen, validated table of votes. Make one with a ``from_...`` method or :func:`crowdwise.read_votes`.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_records([("a", "ann", "cat"), ("a", "bob", "dog"), ("b", "ann", "dog")])
    >>> votes
    Votes(3 votes: 2 items x 2 annotators x 2 classes)
    >>> votes[[1]].to_frame("dict")["label"].tolist()
    ['dog']
    """

    answer_type: ClassVar[str] = "votes"
    _rows: ClassVar[str] = "votes"

    indptr: npt.NDArray[np.int64]
    annotator: Codes
    label: Codes
    items: Vocabulary
    annotators: Vocabulary
    classes: Vocabulary
    weight: npt.NDArray[np.float64] | None = None
    timestamp: npt.NDArray[Any] | None = None
    truth: Codes | None = None
    kind: str = "polars"

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        item: str | None = None,
        annotator: str | None = None,
        label: str | None = None,
        weight: str | None = None,
        timestamp: str | None = None,
        truth: str | None = None,
        classes: Sequence[Any] | None = None,
        form: Literal["auto", "long", "wide"] = "auto",
        on_duplicate: OnDuplicate = "error",
        on_missing: OnMissing = "error",
    ) -> Votes:
        """Votes from a table.

        pandas, polars, pyarrow, a dict of columns, anything narwhals or the Arrow stream protocol takes.

        Parameters
        ----------
        frame
            Long form (one row per vote) or wide form (one column per annotator).
        item, annotator, label, weight, timestamp, truth
            The columns, where their names are not among the usual ones (item/task/unit...,
            annotator/worker/rater..., label/answer/response...).
        classes
            All classes, in order. May hold classes nobody used; a label outside it is an error. By
            default the labels that occur, sorted; a pandas ``category`` or polars ``Enum`` column of
            labels declares its own.
        form
            ``"wide"``: every column that plays no other part is an annotator; a weight or timestamp
            holds for all votes of its row. ``"auto"`` takes the long form wherever its columns are
            found.
        on_duplicate
            What to do when an annotator labelled an item twice: ``"error"``, keep the ``"first"`` or
            ``"last"`` row, or count ``"all"`` of them.
        on_missing
            ``"drop"`` leaves out rows without a label instead of raising.
        """
        from crowdwise.data.tables import votes_from_table

        given = {
            "item": item,
            "annotator": annotator,
            "label": label,
            "weight": weight,
            "timestamp": timestamp,
            "truth": truth,
        }
        return votes_from_table(
            frame, given, classes=classes, form=form, on_duplicate=on_duplicate, on_missing=on_missing
        )

    @classmethod
    def from_dense(
        cls,
        labels: Any,
        *,
        missing: Any = None,
        items: Sequence[Any] | None = None,
        annotators: Sequence[Any] | None = None,
        classes: Sequence[Any] | None = None,
        truth: Any = None,
    ) -> Votes:
        """Votes from an N x M array, one row per item and one column per annotator.

        A cell is missing where the array is masked, NaN or ``None``, or equals ``missing``.

        >>> import numpy as np
        >>> Votes.from_dense(np.array([[0, 1, -1], [1, 1, 0]]), missing=-1)
        Votes(5 votes: 2 items x 3 annotators x 2 classes)
        """
        from crowdwise.data.frames import is_missing

        mask = np.ma.getmaskarray(labels) if isinstance(labels, np.ma.MaskedArray) else None
        # As objects a list keeps what it holds: numpy would make text of a NaN beside text.
        table = (
            np.array(labels, dtype=object) if isinstance(labels, (list, tuple)) else np.asarray(np.ma.getdata(labels))
        )
        if table.ndim != 2:
            raise InputError(
                "Expected an items x annotators array with 2 dimensions, every row equally long, and "
                f"found {table.ndim}. "
                "Use from_frame for a table in long form."
            )
        present = ~mask if mask is not None else np.ones(table.shape, dtype=bool)
        if table.dtype.kind == "f":
            present &= ~np.isnan(table)
        if table.dtype == object:
            present &= np.array([[not is_missing(v) for v in row] for row in table], dtype=bool).reshape(table.shape)
        if missing is not None:
            present &= table != missing
        N, M = table.shape
        check_named(N, M, items, annotators)
        item, annotator = np.nonzero(present)
        code, vocabulary = _encode_values(table[present], "label")
        return cls.from_codes(
            item, annotator, code,
            items=range(N) if items is None else items,
            annotators=range(M) if annotators is None else annotators,
            classes=classes, label_names=vocabulary, truth=truth,
        )  # fmt: skip

    @classmethod
    def from_records(
        cls,
        records: Iterable[Any],
        *,
        classes: Sequence[Any] | None = None,
        on_duplicate: OnDuplicate = "error",
        on_missing: OnMissing = "error",
    ) -> Votes:
        """Votes from rows: ``(item, annotator, label)`` or ``(item, annotator, label, weight)`` tuples, or dicts
        (keys as in ``from_frame``)."""
        names = ("item", "annotator", "label")
        columns = columns_of(records, names, "votes", optional=["weight"])
        return cls.from_frame(columns, classes=classes, on_duplicate=on_duplicate, on_missing=on_missing)

    @classmethod
    def from_codes(
        cls,
        item: npt.ArrayLike,
        annotator: npt.ArrayLike,
        label: npt.ArrayLike,
        *,
        items: Any,
        annotators: Any,
        classes: Any = None,
        label_names: Any = None,
        weight: npt.ArrayLike | None = None,
        timestamp: npt.NDArray[Any] | None = None,
        truth: Any = None,
        on_duplicate: OnDuplicate = "error",
        kind: str = "polars",
        rows: npt.NDArray[np.int64] | None = None,
    ) -> Votes:
        """Votes from three arrays of codes and the names behind them (what every other way of making one ends in).

        ``label`` holds codes into ``label_names`` where given, else into ``classes``. ``truth`` is
        an array of N class codes (-1 unknown) or a mapping from item to class. ``rows`` are the numbers
        by which messages call the votes, where those are not simply their positions.
        """
        if label_names is None and classes is None:
            raise ParameterError("Votes.from_codes needs classes, or label_names to sort them from.")
        items, annotators = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        names = encoding.to_vocabulary(classes if label_names is None else label_names)
        item, annotator, label = (
            assemble.checked_codes(item, items, "item"),
            assemble.checked_codes(annotator, annotators, "annotator"),
            assemble.checked_codes(label, names, "label"),
        )
        S = len(item)
        if not (len(annotator) == len(label) == S):
            raise InputError(
                f"item, annotator and label must be equally long and have {S}, {len(annotator)} and "
                f"{len(label)} entries."
            )
        if S == 0:
            raise InputError("No votes: the table is empty.")
        label, classes = assemble.declare(label, names, names if label_names is None else classes)
        w, when = beside(weight, timestamp, S, rows, "votes")
        order, indptr, annotator = assemble.arrange(item, annotator, on_duplicate, items, annotators, rows)
        small = np.int8 if len(classes) < 128 else np.int32  # stays in the cache while it is sorted
        said, w, when = assemble.all_in_order(order, label.astype(small), w, when)
        votes = cls(indptr, annotator, said.astype(np.int32), items, annotators, classes, w, when, None, kind)
        return votes if truth is None else votes.with_truth(truth)

    # ---------------------------------------------------------------- what is in it

    @property
    def n_answers(self) -> int:
        """The number of answers: rows of the long table."""
        return len(self.label)

    @property
    def n_votes(self) -> int:
        """S, the number of votes (``len(votes)`` is the number of items)."""
        return len(self.label)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def item(self) -> npt.NDArray[np.int64]:
        """The item code of every vote."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def __repr__(self) -> str:
        M, K = self.n_annotators, self.n_classes
        return f"Votes({self.n_votes:,} votes: {len(self):,} items x {M:,} annotators x {K:,} classes)"

    def shares(self) -> npt.NDArray[np.float64]:
        """N x K: the (weighted) share of each class among an item's votes; uniform where an item has none."""
        from crowdwise import kernels

        weight = np.empty(0) if self.weight is None else self.weight
        return kernels.shares(self.indptr, self.label, weight, self.n_classes)

    # ---------------------------------------------------------------- selecting and joining

    def __getitem__(self, index: Any) -> Votes:
        """The votes on some items: an integer, a slice, an array of positions or a mask.

        Annotators and classes keep their codes.
        """
        rows = item_rows(index, len(self), "Votes")
        indptr, take = blocks(self.indptr, rows)
        truth = None if self.truth is None else self.truth[rows]
        return replace(self, indptr=indptr, items=self.items[rows], truth=truth, **self._at(take, "label"))

    def select(self, rows: npt.ArrayLike) -> Votes:
        """Some of the votes, by a mask over their rows. Items and annotators keep their codes, even without votes.

        >>> votes = Votes.from_records([("a", "ann", "cat"), ("a", "bob", "dog"), ("b", "ann", "dog")])
        >>> votes.select(votes.label == 1)
        Votes(2 votes: 2 items x 2 annotators x 2 classes)
        """
        mask = checked_mask(rows, self.n_votes, "votes")
        return replace(self, indptr=assemble.boundaries(self.item[mask], len(self)), **self._at(mask, "label"))

    def _kept(self, mask: npt.NDArray[np.bool_]) -> Votes:
        return self.select(mask)

    def with_truth(self, truth: Any) -> Votes:
        """The same votes with the true classes: N class codes (-1 unknown), a mapping from item to class, or
        ``None``."""
        return replace(self, truth=None if truth is None else self.encode_truth(truth))

    def encode_truth(self, truth: Any) -> Codes:
        """N class codes (-1 unknown) from such codes or from a mapping of items to classes.

        Items the votes do not have are left out.
        """
        from crowdwise.data.frames import is_missing

        if isinstance(truth, (np.ndarray, list, tuple)):
            codes = np.asarray(truth)
            fits = codes.shape == (len(self),) and (codes.dtype.kind in "iu" or len(codes) == 0)
            if not fits or (len(codes) and (codes.min() < -1 or codes.max() >= self.n_classes)):
                raise InputError(
                    "As an array, truth must hold one class code from -1 (unknown) to "
                    f"{self.n_classes - 1} for each of the {len(self)} items. "
                    "To give class names, pass a mapping from item to class."
                )
            return codes.astype(np.int32)
        if not hasattr(truth, "keys"):
            raise InputError(
                f"truth must be an array of class codes or a mapping from item to class, and is {type(truth).__name__}."
            )
        pairs = {name: value for name, value in dict(truth).items() if not is_missing(value)}
        names, values = encoding.to_vocabulary(list(pairs)), encoding.to_vocabulary(list(pairs.values()))
        codes = encoding.locate(values, self.classes)
        if (codes < 0).any():
            unknown = list(dict.fromkeys(values[codes < 0].tolist()))
            raise LabelError(
                f"The truth names {listing(unknown)}, which no annotator used and no class list declares: "
                f"the classes are {listing(self.classes, 10)}. "
                "If the name is right, declare every class when the votes are made: classes=[...]."
            )
        rows = encoding.locate(self.items, names)
        if len(names) and len(self) and (rows < 0).all():
            raise InputError(
                f"None of the {len(names)} items with truth has votes: truth names "
                f"{listing(names, 3)}, the votes {listing(self.items, 3)}. "
                "Check that both name the items alike."
            )
        return encoding.recode(rows, codes)

    @staticmethod
    def concat(tables: Sequence[Votes], *, on_duplicate: OnDuplicate = "error") -> Votes:
        """One table from several, matched by the names of items, annotators and classes."""
        from crowdwise.data.concat import join

        return join(tables, on_duplicate)

    # ---------------------------------------------------------------- out again

    def to_frame(self, kind: str | None = None) -> Any:
        """The long table again, one row per vote.

        As ``"pandas"``, ``"polars"``, ``"pyarrow"`` or a ``"dict"`` of arrays.

        By default as it came; polars for votes from files, dicts, records and arrays.
        """
        from crowdwise.data.frames import make_frame

        item = self.item
        columns: dict[str, Any] = {
            "item": self.items[item],
            "annotator": self.annotators[self.annotator],
            "label": self.classes[self.label],
        }
        if self.weight is not None:
            columns["weight"] = self.weight
        if self.timestamp is not None:
            columns["timestamp"] = self.timestamp
        if self.truth is not None:
            names = np.array([*self.classes.tolist(), None], dtype=object)
            columns["truth"] = names[self.truth[item]]
        return make_frame(columns, kind or self.kind)

    def describe(self) -> dict[str, Any]:
        """Counts that show the shape of the data, as a plain dict (``crowdwise describe`` draws it)."""
        per_item, per_annotator = np.diff(self.indptr), np.bincount(self.annotator, minlength=self.n_annotators)
        use = np.bincount(self.label, minlength=self.n_classes)
        paired = per_item >= 2
        counts = np.bincount(self.item * self.n_classes + self.label, minlength=len(self) * self.n_classes).reshape(
            len(self), self.n_classes
        )
        return {
            "items": len(self),
            "annotators": self.n_annotators,
            "classes": self.classes.tolist(),
            "votes": self.n_votes,
            "votes_per_item": spread(per_item),
            "votes_per_annotator": spread(per_annotator),
            "votes_per_class": dict(zip(map(str, self.classes.tolist()), use.tolist(), strict=True)),
            "items_without_votes": int((per_item == 0).sum()),
            "items_with_one_vote": int((per_item == 1).sum()),
            "unanimous": float((counts.max(axis=1) == per_item)[paired].mean()) if paired.any() else None,
            "density": self.n_votes / max(1, len(self) * self.n_annotators),
            "weighted": self.weight is not None,
            "timestamps": self.timestamp is not None,
            "items_with_truth": 0 if self.truth is None else int((self.truth >= 0).sum()),
        }


# -------------------------------------------------------------------- the pieces


def _encode_values(values: npt.NDArray[Any], name: str) -> tuple[Codes, Vocabulary]:
    """Codes of a flat array of any kind of label."""
    from crowdwise.data.frames import make_frame

    return encoding.encode(make_frame({name: values})[name])
