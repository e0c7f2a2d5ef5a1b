"""The table of rankings: several items in order, by one annotator, the best first.

==============  =============  =======================================================================
field           shape          meaning
==============  =============  =======================================================================
``indptr``      R + 1          ranking r is ``item[indptr[r]:indptr[r + 1]]``
``item``        S              codes of the items, each ranking from the best to the worst
``annotator``   R              code of the annotator
``question``    R              code of what was ranked on (a prompt, a ballot)
``weight``      R or ``None``  how much a ranking counts (1 where absent)
``items``, ``annotators``, ``questions``  the names behind the codes, sorted
==============  =============  =======================================================================

A ranking is of the items that it names: of those it leaves out it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.frozen import Frozen
from crowdwise.data.rows import blocks, spread
from crowdwise.data.votes import OnMissing
from crowdwise.errors import InputError, listing

__all__ = ["Rankings"]


@dataclass(frozen=True, eq=False, repr=False)
class Rankings(Frozen):
    """A frozen, validated table of rankings. Make one with a ``from_...`` method or :func:`crowdwise.read_rankings`.

    >>> import crowdwise as cw
    >>> rows = [("ann", "lunch", ["soup", "rice", "fish"]), ("bob", "lunch", ["rice", "soup"])]
    >>> ballots = cw.Rankings.from_records(rows)
    >>> ballots
    Rankings(2 rankings of 2 to 3 of 3 items by 2 annotators)
    >>> ballots.comparisons()
    Comparisons(4 comparisons: 3 items x 2 annotators, 0 ties)
    """

    answer_type: ClassVar[str] = "rankings"

    indptr: npt.NDArray[np.int64]
    item: Codes
    annotator: Codes
    question: Codes
    items: Vocabulary
    annotators: Vocabulary
    questions: Vocabulary
    weight: npt.NDArray[np.float64] | None = None
    kind: str = "polars"

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        item: str | None = None,
        rank: str | None = None,
        annotator: str | None = None,
        question: str | None = None,
        weight: str | None = None,
        on_missing: OnMissing = "error",
    ) -> Rankings:
        """Rankings from a table with one row for each ranked item.

        Parameters
        ----------
        frame
            Rows with an item and its rank (1, or the smallest number, is the best); those with the same annotator and
            question are one ranking.
        item, rank, annotator, question, weight
            The columns, where their names are not among the usual ones. Without an annotator column all rankings are
            by one, called ``everyone``.
        on_missing
            ``"drop"`` leaves out rows without an item or a rank instead of raising.
        """
        from crowdwise.data.readers_pairs import rankings_from_table

        given = {"item": item, "rank": rank, "annotator": annotator, "question": question, "weight": weight}
        return rankings_from_table(frame, given, on_missing=on_missing)

    @classmethod
    def from_records(cls, records: Iterable[Any]) -> Rankings:
        """Rankings from ``(annotator, question, [items, the best first])`` tuples, or dicts with such keys."""
        rows: list[Any] = [
            tuple(row.get(k) for k in ("annotator", "question", "items")) if isinstance(row, Mapping) else row
            for row in records
        ]
        if not rows:
            raise InputError("No rankings: the records are empty.")
        for n, row in enumerate(rows):
            if not isinstance(row, (tuple, list)) or len(row) != 3 or isinstance(row[2], str) or not _sequence(row[2]):
                raise InputError(f"Expected (annotator, question, [items]) in every record: found {row!r} in row {n}.")
        who, where = (list(dict.fromkeys(row[k] for row in rows)) for k in (0, 1))
        what = list(dict.fromkeys(name for row in rows for name in row[2]))
        code = [{name: n for n, name in enumerate(names)} for names in (who, where, what)]
        return cls.from_codes(
            np.concatenate([[0], np.cumsum([len(row[2]) for row in rows])]),
            np.array([code[2][name] for row in rows for name in row[2]], dtype=np.int32),
            np.array([code[0][row[0]] for row in rows], dtype=np.int32),
            items=what, annotators=who, question=np.array([code[1][row[1]] for row in rows], dtype=np.int32),
            questions=where,
        )  # fmt: skip

    @classmethod
    def from_codes(
        cls,
        indptr: npt.ArrayLike,
        item: npt.ArrayLike,
        annotator: npt.ArrayLike,
        *,
        items: Any,
        annotators: Any,
        question: npt.ArrayLike | None = None,
        questions: Any = None,
        weight: npt.ArrayLike | None = None,
        kind: str = "polars",
    ) -> Rankings:
        """Rankings from arrays of codes and the names behind them (what every other way of making one ends in)."""
        ends = np.asarray(indptr, dtype=np.int64)
        R = len(ends) - 1
        names, who = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        about = encoding.to_vocabulary(range(R) if questions is None else questions)
        code = assemble.checked_codes(item, names, "item")
        m = assemble.checked_codes(annotator, who, "annotator")
        q = assemble.checked_codes(np.arange(R) if question is None else question, about, "question")
        if R < 1 or ends[0] != 0 or ends[-1] != len(code) or (np.diff(ends) < 0).any():
            raise InputError(
                f"indptr must rise from 0 to the {len(code)} ranked items and found {ends[:5].tolist()}..."
            )
        if len(m) != R or len(q) != R:
            raise InputError(f"{R} rankings have {len(m)} annotators and {len(q)} questions: expected one for each.")
        w = None if weight is None else assemble.checked_weight(np.asarray(weight, dtype=np.float64), R, None)
        size = np.diff(ends)
        of = np.repeat(np.arange(R), size)
        by_item = np.lexsort((code, of))
        twice = np.flatnonzero((np.diff(code[by_item]) == 0) & (np.diff(of[by_item]) == 0))
        if len(twice):
            at = by_item[twice[0]]
            raise InputError(
                f"Ranking {of[at]} (counted from 0), by {listing(who[m[of[at] : of[at] + 1]])}, names "
                f"{listing(names[code[at : at + 1]])} twice. Give every item one place."
            )
        if (size < 2).all():
            raise InputError("No ranking has two items or more: there is nothing to compare.")
        code, names = encoding.sort_vocabulary(code, names)
        m, who = encoding.sort_vocabulary(m, who)
        q, about = encoding.sort_vocabulary(q, about)
        # Rows of one annotator and question are told apart by what they say, so that the order of rows cannot matter.
        said = [tuple(code[lo:hi].tolist()) for lo, hi in pairwise(ends.tolist())]
        order = np.array(sorted(range(R), key=lambda r: (q[r], m[r], said[r])), dtype=np.int64)
        order = order[size[order] >= 2]  # one item alone is in no order
        new, take = blocks(ends, order)
        return cls(new, code[take], m[order], q[order], names, who, about, None if w is None else w[order], kind)

    # ---------------------------------------------------------------- what is in it

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def n_annotators(self) -> int:
        return len(self.annotators)

    @property
    def n_answers(self) -> int:
        """The number of answers: rows of the long table."""
        return len(self.indptr) - 1

    @property
    def n_votes(self) -> int:
        """The number of rankings."""
        return len(self.annotator)

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weight of every ranking, ones where none were given."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def __len__(self) -> int:
        return len(self.annotator)

    def __repr__(self) -> str:
        size = np.diff(self.indptr)
        span = f"{size.min()}" if size.min() == size.max() else f"{size.min()} to {size.max()}"
        return (
            f"Rankings({len(self):,} rankings of {span} of {self.n_items:,} items by {self.n_annotators:,} annotators)"
        )

    def __getitem__(self, index: Any) -> Rankings:
        """Some of the rankings: a slice, an array of positions or a mask. Items and annotators keep their codes."""
        at = np.atleast_1d(np.arange(len(self))[index])
        new, take = blocks(self.indptr, at)
        return replace(
            self, indptr=new, item=self.item[take], annotator=self.annotator[at], question=self.question[at],
            weight=None if self.weight is None else self.weight[at],
        )  # fmt: skip

    def without(self, annotators: Sequence[Any]) -> Rankings:
        """The rankings of everybody but some annotators, by name."""
        keep = ~assemble.chosen_annotators(annotators, self.annotators, "rankings")
        kept = self[keep[self.annotator]]
        new = (np.cumsum(keep) - 1).astype(np.int32)
        return replace(kept, annotators=self.annotators[keep], annotator=new[kept.annotator])

    # ---------------------------------------------------------------- out again

    def comparisons(self) -> Comparisons:
        """Every two items of a ranking as one comparison (they are not independent: for other tools, or to look at)."""
        left, right, of = [], [], []
        size = np.diff(self.indptr)
        for k in np.unique(size).tolist():  # rankings of one length together
            which = np.flatnonzero(size == k)
            table = self.item[self.indptr[which][:, None] + np.arange(k)]
            i, j = np.triu_indices(k, 1)
            left.append(table[:, i].ravel())
            right.append(table[:, j].ravel())
            of.append(np.repeat(which, len(i)))
        rows = np.concatenate(of)
        return Comparisons.from_codes(
            np.concatenate(left), np.concatenate(right), self.annotator[rows], np.zeros(len(rows), np.int32),
            items=self.items, annotators=self.annotators, question=self.question[rows], questions=self.questions,
            weight=None if self.weight is None else self.weight[rows], placed=False, kind=self.kind,
        )  # fmt: skip

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per ranked item, as ``"pandas"``, ``"polars"``, ``"pyarrow"`` or a ``"dict"`` of arrays."""
        from crowdwise.data.frames import make_frame

        size = np.diff(self.indptr)
        of = np.repeat(np.arange(len(self)), size)
        columns: dict[str, Any] = {
            "annotator": self.annotators[self.annotator[of]],
            "question": self.questions[self.question[of]],
            "item": self.items[self.item],
            "rank": np.arange(len(self.item)) - self.indptr[of] + 1,
        }
        if self.weight is not None:
            columns["weight"] = self.weight[of]
        return make_frame(columns, kind or self.kind)

    def describe(self) -> dict[str, Any]:
        """Counts that show the shape of the data, as a plain dict."""
        return {
            "items": self.n_items,
            "annotators": self.n_annotators,
            "rankings": len(self),
            "questions": len(self.questions),
            "items_per_ranking": spread(np.diff(self.indptr)),
            "rankings_per_item": spread(np.bincount(self.item, minlength=self.n_items)),
            "rankings_per_annotator": spread(np.bincount(self.annotator, minlength=self.n_annotators)),
            "weighted": self.weight is not None,
        }


def _sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray))
