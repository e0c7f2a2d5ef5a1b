"""The table of comparisons: who found which of two items better.

==============  =============  =======================================================================
field           shape          meaning
==============  =============  =======================================================================
``left``        S              code of one item; the one shown first, where ``placed``
``right``       S              code of the other
``outcome``     S              0: left is better, 1: right is better, 2: a tie
``annotator``   S              code of the annotator
``question``    S or ``None``  what the two were compared on (a prompt, a topic), where that is told
``weight``      S or ``None``  how much a comparison counts (1 where absent)
``timestamp``   S or ``None``  when it was made
``truth``       S or ``None``  the true outcome, -1 where unknown; to measure with, no method looks at it
``items``, ``annotators``, ``questions``  the names behind the codes, sorted
==============  =============  =======================================================================

The same annotator may compare the same two items many times (two models on many prompts), so by default every row
counts; ``on_duplicate`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding
from crowdwise.data.answers import Answers
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.rows import beside, columns_of, spread
from crowdwise.data.votes import OnMissing
from crowdwise.errors import DuplicateError, InputError, ParameterError, listing

__all__ = ["LEFT", "OUTCOMES", "RIGHT", "TIE", "Comparisons"]

LEFT, RIGHT, TIE = 0, 1, 2
OUTCOMES = ("left", "right", "tie")
OnSelf = Literal["error", "drop"]
EVERYONE = "everyone"
"""Who compared, where a table does not name annotators."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons(Answers):
    """A frozen, validated table of comparisons. Make one with a ``from_...`` method or
    :func:`crowdwise.read_comparisons`.

    >>> import crowdwise as cw
    >>> rows = [("tea", "coffee", "ann", "left"), ("tea", "milk", "ann", "tie"), ("milk", "tea", "bob", "right")]
    >>> pairs = cw.Comparisons.from_records(rows)
    >>> pairs
    Comparisons(3 comparisons: 3 items x 2 annotators, 1 tie)
    >>> pairs.without(["bob"]).to_frame("dict")["outcome"].tolist()
    ['left', 'tie']
    """

    answer_type: ClassVar[str] = "comparisons"
    _rows: ClassVar[str] = "comparisons"

    left: Codes
    right: Codes
    annotator: Codes
    outcome: Codes
    items: Vocabulary
    annotators: Vocabulary
    question: Codes | None = None
    questions: Vocabulary | None = None
    weight: npt.NDArray[np.float64] | None = None
    timestamp: npt.NDArray[Any] | None = None
    truth: Codes | None = None
    placed: bool = True
    """Whether ``left`` is the item that was shown first."""
    kind: str = "polars"

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        left: str | None = None,
        right: str | None = None,
        outcome: str | None = None,
        annotator: str | None = None,
        question: str | None = None,
        weight: str | None = None,
        timestamp: str | None = None,
        truth: str | None = None,
        chosen: str | None = None,
        rejected: str | None = None,
        outcomes: Mapping[Any, str] | None = None,
        placed: bool = True,
        on_duplicate: OnDuplicate = "all",
        on_missing: OnMissing = "error",
        on_self: OnSelf = "error",
    ) -> Comparisons:
        """Comparisons from a table, one row each.

        Parameters
        ----------
        frame
            pandas, polars, pyarrow, a dict of columns, anything narwhals or the Arrow stream protocol takes. Either
            with two items and an outcome (left/right/winner, model_a/model_b/winner...), or with the better and the
            worse item (chosen/rejected).
        left, right, outcome, annotator, question, weight, timestamp, truth, chosen, rejected
            The columns, where their names are not among the usual ones. Without an annotator column all rows are by
            one, called ``everyone``.
        outcomes
            What the outcomes mean, such as ``{1: "left", 2: "right", 0: "tie"}``. By default the name of the better
            item, or words: left, a, model_a...; right, b, model_b...; tie, draw, equal, both...
        placed
            Whether the left item was shown first. Of chosen/rejected tables that is not known.
        on_duplicate
            When an annotator compared the same two items (in the same places, on the same question) twice: count
            ``"all"``, raise an ``"error"``, or keep the ``"first"`` or ``"last"`` row.
        on_missing
            ``"drop"`` leaves out rows without an item, annotator or outcome instead of raising.
        on_self
            ``"drop"`` leaves out rows that compare an item with itself instead of raising.
        """
        from crowdwise.data.readers_pairs import comparisons_from_table

        given = {
            "left": left, "right": right, "outcome": outcome, "annotator": annotator, "question": question,
            "weight": weight, "timestamp": timestamp, "truth": truth, "chosen": chosen, "rejected": rejected,
        }  # fmt: skip
        return comparisons_from_table(
            frame, given, outcomes=outcomes, placed=placed, on_duplicate=on_duplicate, on_missing=on_missing,
            on_self=on_self,
        )  # fmt: skip

    @classmethod
    def from_records(cls, records: Iterable[Any], **options: Any) -> Comparisons:
        """Comparisons from rows: ``(left, right, annotator, outcome)`` tuples, or dicts (keys as in ``from_frame``)."""
        return cls.from_frame(columns_of(records, ("left", "right", "annotator", "outcome"), "comparisons"), **options)

    @classmethod
    def from_codes(
        cls,
        left: npt.ArrayLike,
        right: npt.ArrayLike,
        annotator: npt.ArrayLike,
        outcome: npt.ArrayLike,
        *,
        items: Any,
        annotators: Any,
        question: npt.ArrayLike | None = None,
        questions: Any = None,
        weight: npt.ArrayLike | None = None,
        timestamp: npt.NDArray[Any] | None = None,
        truth: npt.ArrayLike | None = None,
        placed: bool = True,
        on_duplicate: OnDuplicate = "all",
        on_self: OnSelf = "error",
        kind: str = "polars",
        rows: npt.NDArray[np.int64] | None = None,
    ) -> Comparisons:
        """Comparisons from arrays of codes and the names behind them (what every other way of making one ends in)."""
        item_names, who = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        encoding.check_distinct(item_names, "items")
        encoding.check_distinct(who, "annotators")
        a, b = assemble.checked_codes(left, item_names, "left"), assemble.checked_codes(right, item_names, "right")
        m = assemble.checked_codes(annotator, who, "annotator")
        y = assemble.checked_codes(outcome, encoding.to_vocabulary(OUTCOMES), "outcome")
        q = about = None
        if question is not None:
            about = encoding.to_vocabulary([] if questions is None else questions)
            q = assemble.checked_codes(question, about, "question")
        S = len(a)
        lengths = [len(b), len(m), len(y), *([] if q is None else [len(q)])]
        if any(n != S for n in lengths):
            raise InputError(f"The columns of comparisons must be equally long and have {[S, *lengths]} entries.")
        w, when = beside(weight, timestamp, S, rows, "comparisons")
        t = None if truth is None else _checked_truth(truth, S)
        keep = _distinct_pairs(a, b, item_names, on_self, rows)
        if not keep.any():
            raise InputError("No comparisons: the table is empty, or holds only items compared with themselves.")
        a, item_names = encoding.sort_vocabulary(np.concatenate([a, b]), item_names)
        a, b = a[:S], a[S:]
        m, who = encoding.sort_vocabulary(m, who)
        if q is not None and about is not None:
            q, about = encoding.sort_vocabulary(q, about)
        order = _order(a, b, m, y, q, len(item_names), len(who), 1 if about is None else len(about))
        order = order[keep[order]]
        order = _settle(order, a, b, m, q, on_duplicate, item_names, who, rows)

        def taken(array: Any) -> Any:
            return None if array is None else array[order]

        return cls(
            a[order], b[order], m[order], y[order], item_names, who, taken(q), about, taken(w), taken(when), taken(t),
            placed, kind,
        )  # fmt: skip

    # ---------------------------------------------------------------- what is in it

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def n_answers(self) -> int:
        """The number of answers: rows of the long table."""
        return len(self.outcome)

    @property
    def n_votes(self) -> int:
        """S, the number of comparisons."""
        return len(self.outcome)

    def __len__(self) -> int:
        return len(self.outcome)

    def __repr__(self) -> str:
        ties = int((self.outcome == TIE).sum())
        return (
            f"Comparisons({len(self):,} comparisons: {self.n_items:,} items x {self.n_annotators:,} annotators, "
            f"{ties:,} {'tie' if ties == 1 else 'ties'})"
        )

    # ---------------------------------------------------------------- selecting

    def __getitem__(self, index: Any) -> Comparisons:
        """Some of the comparisons: a slice, an array of positions or a mask. Items and annotators keep their codes."""
        at = np.atleast_1d(np.arange(len(self))[index])
        if at.ndim != 1:
            raise IndexError(f"Comparisons have one dimension and were asked for {at.ndim}.")
        return replace(self, **self._at(at, "left", "right", "outcome", "question", "truth"))

    def _kept(self, mask: npt.NDArray[np.bool_]) -> Comparisons:
        return self[mask]

    # ---------------------------------------------------------------- out again

    def to_frame(self, kind: str | None = None) -> Any:
        """The table again, one row per comparison, as ``"pandas"``, ``"polars"``, ``"pyarrow"`` or a ``"dict"`` of
        arrays; by default as it came."""
        from crowdwise.data.frames import make_frame

        words = np.array([*OUTCOMES, None], dtype=object)
        columns: dict[str, Any] = {
            "left": self.items[self.left],
            "right": self.items[self.right],
            "annotator": self.annotators[self.annotator],
            "outcome": words[self.outcome],
        }
        if self.question is not None and self.questions is not None:
            columns["question"] = self.questions[self.question]
        for name in ("weight", "timestamp"):
            if getattr(self, name) is not None:
                columns[name] = getattr(self, name)
        if self.truth is not None:
            columns["truth"] = words[self.truth]
        return make_frame(columns, kind or self.kind)

    def describe(self) -> dict[str, Any]:
        """Counts that show the shape of the data, as a plain dict."""
        per_item = np.bincount(np.concatenate([self.left, self.right]), minlength=self.n_items)
        share = np.bincount(self.outcome, minlength=3) / max(1, len(self))
        pair = np.minimum(self.left, self.right).astype(np.int64) * self.n_items + np.maximum(self.left, self.right)
        return {
            "items": self.n_items,
            "annotators": self.n_annotators,
            "comparisons": len(self),
            "pairs": len(np.unique(pair)),
            "questions": 0 if self.questions is None else len(self.questions),
            "comparisons_per_item": spread(per_item),
            "comparisons_per_annotator": spread(np.bincount(self.annotator, minlength=self.n_annotators)),
            "outcomes": dict(zip(OUTCOMES, share.tolist(), strict=True)),
            "placed": self.placed,
            "weighted": self.weight is not None,
            "timestamps": self.timestamp is not None,
            "with_truth": 0 if self.truth is None else int((self.truth >= 0).sum()),
        }


# -------------------------------------------------------------------- the pieces


def _checked_truth(truth: npt.ArrayLike, S: int) -> Codes:
    codes = np.asarray(truth)
    if codes.shape != (S,) or codes.dtype.kind not in "iu" or (S and (codes.min() < -1 or codes.max() > TIE)):
        raise InputError(
            f"truth must hold, for each of the {S} comparisons, 0 (left), 1 (right), 2 (tie) or -1 (unknown)."
        )
    return codes.astype(np.int32)


def _distinct_pairs(
    a: Codes, b: Codes, items: Vocabulary, on_self: OnSelf, rows: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.bool_]:
    """Which rows compare two different items."""
    if on_self not in ("error", "drop"):
        raise ParameterError(f"on_self={on_self!r}: expected 'error' or 'drop'.")
    same = a == b
    if same.any() and on_self == "error":
        at = int(np.flatnonzero(same)[0])
        raise InputError(
            f"{int(same.sum()):,} {'rows compare' if same.sum() > 1 else 'row compares'} an item with itself: "
            f"{listing(items[a[at : at + 1]])} in row {at if rows is None else rows[at]} (counted from 0). Such a row "
            "says nothing about items: leave it out with on_self='drop'."
        )
    return np.asarray(~same)


def _order(
    a: Codes, b: Codes, m: Codes, y: Codes, q: Codes | None, N: int, M: int, Q: int
) -> npt.NDArray[np.int64]:  # fmt: skip
    """Rows by question, left, right, annotator, outcome, then as they came."""
    if Q * N * N * M * 3 < 2**62:  # one key sorts faster than five
        key = a.astype(np.int64) if q is None else q.astype(np.int64) * N + a
        for part, size in ((b, N), (m, M), (y, 3)):
            key = key * size + part
        return np.asarray(np.argsort(key, kind="stable"))
    return np.asarray(np.lexsort((y, m, b, a) if q is None else (y, m, b, a, q)))


def _settle(
    order: npt.NDArray[np.int64], a: Codes, b: Codes, m: Codes, q: Codes | None, on_duplicate: OnDuplicate,
    items: Vocabulary, annotators: Vocabulary, rows: npt.NDArray[np.int64] | None,
) -> npt.NDArray[np.int64]:  # fmt: skip
    """The order with repeated comparisons settled."""
    if on_duplicate not in ("error", "first", "last", "all"):
        raise ParameterError(f"on_duplicate={on_duplicate!r}: expected 'error', 'first', 'last' or 'all'.")
    if on_duplicate == "all":
        return order
    keys = [b, a] if q is None else [b, a, q]
    by_row = np.lexsort(np.stack([order, *(k[order] for k in [m, *keys])]))  # within a pair and annotator, as they came
    order = order[by_row]
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for key in [m, *keys]:
        same &= np.diff(key[order]) == 0
    if not same.any():
        return order
    if on_duplicate == "error":
        at = int(np.flatnonzero(same)[0])
        one = order[at : at + 2]
        found = one if rows is None else rows[one]
        raise DuplicateError(
            f"{int(same.sum()):,} repeated comparisons: annotator {listing(annotators[m[one[:1]]])} compares "
            f"{listing(items[[a[one[0]], b[one[0]]]])} in rows {found[0]} and {found[1]} (counted from 0). "
            "Keep one with on_duplicate='first' or 'last', or count every row with on_duplicate='all'."
        )
    keep = np.ones(len(order), dtype=bool)
    keep[slice(1, None) if on_duplicate == "first" else slice(None, -1)] = ~same
    return order[keep]
