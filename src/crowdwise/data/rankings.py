"""The table of rankings: several items in order, by one annotator, the best first.

==============  =============  =======================================================================
field           shape          meaning
==============  =============  =======================================================================
``indptr``      R + 1          ranking r is ``item[indptr[r]:indptr[r + 1]]``
``item``        S              codes of the items, each ranking from the best to the worst
``annotator``   R              code of the annotator
``question``    R              code of what was ranked on (a prompt, a ballot)
``weight``      R or ``None``  how much a ranking counts (1 where absent)
``timestamp``   R or ``None``  when it was made
``truth``       N or ``None``  the true score of each item, NaN where unknown; to measure with
``items``, ``annotators``, ``questions``  the names behind the codes, sorted
==============  =============  =======================================================================

A ranking is of the items that it names: of those it leaves out it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, columns, encoding, schema
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.encoding import Codes, Counts, Mask, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.data.places import row_label
from crowdwise.data.schema import COMMON, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import CodedTable, blocks, reader, renumbered, spread
from crowdwise.data.truth import encode_numbers, numbers_in
from crowdwise.errors import InputError, LabelError, listing

BETWEEN = (">", "|", ";", ",")
"""What may stand between the items of a ranking that is written as text."""


def _orders(source: Source) -> pl.Series | None:
    """The column with the items of each ranking in order, as lists; ``None`` where it holds the rank of an item."""
    if "rank" not in source:
        return None
    column = source["rank"]
    if isinstance(column.dtype, pl.List):
        return column
    if column.dtype != pl.String or columns.numbers_in(column.drop_nulls()) is not None:
        return None
    cells = column.to_list()
    lists = columns.lists_in(cells)
    between = BETWEEN[:1] if "item" in source else BETWEEN
    sign = next((sign for sign in between if any(cell is not None and sign in cell for cell in cells)), None)
    if lists is None and sign is None:
        return None
    if lists is None:
        lists = [[word.strip() for word in (cell or "").split(str(sign)) if word.strip()] for cell in cells]
    return pl.Series(column.name, [[str(name) for name in names] or None for names in lists], dtype=pl.List(pl.String))


@dataclass(frozen=True, eq=False, repr=False)
class Rankings(CodedTable):
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
    columns: ClassVar[tuple[Col, ...]] = (
        Col("item", "items", needed=True, per=""), Col("rank", needed=True, per=""), Col("annotator", "annotators"),
        Col("question", "questions"), *COMMON,
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (schema.on_missing("an item or a rank"),)
    _rows: ClassVar[str] = "rankings"
    _distinct: ClassVar[bool] = True
    _truths: ClassVar[tuple[str, ...]] = ("truth", "value")
    _truth_in: ClassVar[Any] = staticmethod(numbers_in)
    _forms: ClassVar[str] = (
        "One row for each ranked item, with its rank (1, or the smallest number, is the best); those with the same "
        "annotator and question are one ranking. Or one row for each ranking: a column ``ranking`` with a list of its "
        "items, the best first, or text such as ``tea > milk > water``. Without an annotator column all are by one, "
        "called ``everyone``."
    )

    indptr: Counts
    item: Codes
    question: Codes
    questions: Vocabulary

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Rankings:
        orders = _orders(source)
        if orders is not None:
            return cls._from_orders(source, orders, options)
        source.require(cls._needed())
        also = [part for part in ("annotator", "question") if part in source]
        source.complete([*cls._needed(), *also], options["on_missing"])
        place = source.numbers("rank", "a number, 1 for the best")
        item, items = source.coded("item")
        annotator, annotators = source.coded_or("annotator")
        question, questions = source.coded_or("question")
        key = annotator.astype(np.int64) * len(questions) + question
        order = np.lexsort((place, key))
        _, first = np.unique(key[order], return_index=True)
        tied = np.flatnonzero((np.diff(place[order]) == 0) & (np.diff(key[order]) == 0))
        if len(tied):
            pair = order[tied[0] : tied[0] + 2]
            raise LabelError(
                f"{row_label(pair.tolist(), source.places, ' and ').capitalize()} give "
                f"{listing(items[item[pair]])} the same rank. Plackett-Luce has no ties: break them, or turn the "
                "rankings into Comparisons with ties."
            )
        beside = source.beside()
        for name in ("weight", "timestamp"):
            beside[name] = None if beside[name] is None else beside[name][order][first]
        del beside["rows"]
        return cls.from_codes(
            np.append(first, len(key)), item[order], annotator[order][first],
            items=items, annotators=annotators, question=question[order][first], questions=questions, **beside,
        )  # fmt: skip

    @classmethod
    def _from_orders(cls, source: Source, orders: pl.Series, options: Mapping[str, Any]) -> Rankings:
        """One row for each ranking. An item column beside it says what was asked, as a question does."""
        if "question" not in source:
            source.parts["question"] = source.parts["item"]
        source.table = source.table.with_columns(orders)
        also = [part for part in ("annotator", "question") if part in source]
        source.complete(["rank", *also], options["on_missing"])
        lists = source["rank"].to_list()
        item, items = encoding.encode(source["rank"].explode())
        item, items = encoding.integers_in_text(item, items)
        annotator, annotators = source.coded_or("annotator")
        question, questions = source.coded("question") if "question" in source else (None, None)
        return cls.from_codes(
            np.concatenate([[0], np.cumsum([len(order) for order in lists])]), item, annotator, items=items,
            annotators=annotators, question=question, questions=questions, **source.beside(),
        )  # fmt: skip

    @classmethod
    def from_records(cls, records: Iterable[Any]) -> Rankings:  # type: ignore[override]
        """Rankings from ``(annotator, question, [items, the best first])`` tuples, or dicts with such keys."""
        rows: list[Any] = [
            tuple(row.get(k) for k in ("annotator", "question", "items")) if isinstance(row, Mapping) else row
            for row in records
        ]
        if not rows:
            raise InputError("No rankings: the records are empty.")
        for n, row in enumerate(rows):
            if not isinstance(row, (tuple, list)) or len(row) != 3 or not isinstance(row[2], (list, tuple, np.ndarray)):
                raise InputError(f"Expected (annotator, question, [items]) in every record: found {row!r} in row {n}.")
        who, where = (list(dict.fromkeys(row[k] for row in rows)) for k in (0, 1))
        what = list(dict.fromkeys(name for row in rows for name in row[2]))
        code = [{name: n for n, name in enumerate(names)} for names in (who, where, what)]
        return cls.from_codes(
            np.concatenate([[0], np.cumsum([len(row[2]) for row in rows])]),
            np.array([code[2][name] for row in rows for name in row[2]], dtype=np.int32),
            np.array([code[0][row[0]] for row in rows], dtype=np.int32), items=what, annotators=who,
            question=np.array([code[1][row[1]] for row in rows], dtype=np.int32), questions=where,
        )  # fmt: skip

    @classmethod
    def from_codes(
        cls, indptr: npt.ArrayLike, item: npt.ArrayLike, annotator: npt.ArrayLike, *, items: Any, annotators: Any,
        question: npt.ArrayLike | None = None, questions: Any = None, **beside: Unpack[Beside],
    ) -> Rankings:  # fmt: skip
        """Rankings from arrays of codes and the names behind them (what every other way of making one ends in)."""
        ends = np.asarray(indptr, dtype=np.int64)
        R = len(ends) - 1
        names, who = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        about = encoding.to_vocabulary(range(R) if questions is None else questions)
        code = assemble.checked_codes(item, names, "item")
        m = assemble.checked_codes(annotator, who, "annotator")
        q = assemble.checked_codes(np.arange(R) if question is None else question, about, "question")
        if R < 1 or ends[0] != 0 or ends[-1] != len(code) or (np.diff(ends) < 0).any():
            raise InputError(f"indptr must rise from 0 to the {len(code)} ranked items: found {ends[:5].tolist()}...")
        if len(m) != R or len(q) != R:
            raise InputError(f"{R} rankings have {len(m)} annotators and {len(q)} questions: expected one for each.")
        fields, _ = cls._beside(beside, R)
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
        # Rows of one annotator and question are ordered by what they say, so that the order of rows cannot matter.
        orders = [tuple(code[lo:hi].tolist()) for lo, hi in pairwise(ends.tolist())]
        order = np.array(sorted(range(R), key=lambda r: (q[r], m[r], orders[r])), dtype=np.int64)
        order = order[size[order] >= 2]  # one item alone is in no order
        new, take = blocks(ends, order)
        for name in ("weight", "timestamp"):
            fields[name] = None if fields[name] is None else fields[name][order]
        rankings = cls(
            indptr=new, item=code[take], annotator=m[order], question=q[order], items=names, annotators=who,
            questions=about, **fields,
        )  # fmt: skip
        truth = beside.get("truth")
        return rankings if truth is None else rankings.with_truth(truth)

    def __repr__(self) -> str:
        size = np.diff(self.indptr)
        least, most = size.min(initial=size[0] if len(size) else 0), size.max(initial=0)
        span = f"{least}" if least == most else f"{least} to {most}"
        return (
            f"Rankings({self.n_answers:,} rankings of {span} of {self.n_items:,} items by {self.n_annotators:,} "
            "annotators)"
        )

    @classmethod
    def answer_columns(cls, answers: Sequence[Any]) -> dict[str, list[Any]]:
        every = [(a, rank, item) for a in answers for rank, item in enumerate(a.said, 1)]
        rows = [(item, rank, a.annotator, a.item, a.time, a.duration) for a, rank, item in every]
        names = ("item", "rank", "annotator", "question", "timestamp", "duration")
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))

    def usable_gold(self, gold: Mapping[Any, Any]) -> dict[Any, Any]:
        return {}  # the truth of an item is a score, which no tool knows

    def encode_truth(self, truth: Any) -> npt.NDArray[np.float64]:
        """The true score of each item (NaN unknown), from N numbers or from a mapping of items to numbers."""
        return encode_numbers(truth, self.items, self._rows)

    def _of_items(self, items: Counts) -> Self:
        """Rankings of what is left of the items, where that is two or more."""
        code = renumbered(items, len(self))[self.item]
        of = np.repeat(np.arange(self.n_answers), np.diff(self.indptr))
        size = np.bincount(of[code >= 0], minlength=self.n_answers)
        indptr = np.concatenate([[0], np.cumsum(size[size >= 2])]).astype(np.int64)
        item = code[(code >= 0) & (size >= 2)[of]]
        return replace(self, item=item, indptr=indptr, **self._at(size >= 2), **self._about(items))

    def _kept(self, mask: Mask) -> Self:
        indptr, take = blocks(self.indptr, np.flatnonzero(mask))
        return replace(self, indptr=indptr, item=self.item[take], **self._at(mask))

    def _per_item(self) -> npt.NDArray[Any]:
        return np.bincount(self.item, minlength=self.n_items)

    def _counted(self) -> dict[str, Any]:
        return {"questions": len(self.questions), "items_per_ranking": spread(np.diff(self.indptr))}

    def comparisons(self) -> Comparisons:
        """Every two items of a ranking as one comparison (they are not independent: for other tools, or to look at)."""
        left, right, of = ([np.zeros(0, dtype=kind)] for kind in (np.int32, np.int32, np.int64))
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

    def _columns(self) -> dict[str, Any]:
        of = np.repeat(np.arange(self.n_answers), np.diff(self.indptr))
        every = {name: values[of] for name, values in super()._columns().items()}
        rank = np.arange(len(self.item)) - self.indptr[of] + 1
        return {
            "annotator": every.pop("annotator"), "question": every.pop("question"),
            "item": self.items[self.item], "rank": rank, **every,
        }  # fmt: skip


read_rankings = reader(Rankings, "read_rankings")
