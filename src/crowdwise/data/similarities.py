"""The sparse table of similarities: who found which two items the same, or different.

==============  ==========================  =========================================================
field           shape                       meaning
==============  ==========================  =========================================================
``pairs``       P x 2                       codes of two items, the smaller one first, pairs in order
``indptr``      P + 1                       answers on pair p are rows ``indptr[p]:indptr[p + 1]``
``annotator``   S                           code of the annotator, sorted within a pair
``same``        S                           whether the annotator found the two the same
``weight``      S or ``None``               how much an answer counts (1 where absent)
``timestamp``   S or ``None``               when it was given
``truth``       N or ``None``               code of the true class of each item, -1 where unknown
``items``, ``annotators``, ``classes``      the names behind the codes; classes are those of the truth
==============  ==========================  =========================================================

A pair has no order: (a, b) and (b, a) are the same pair. Names are sorted, so the order of rows never matters. Items
in no pair may be declared (``items=[...]``): learners look at their inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, columns, encoding, schema
from crowdwise.data.columns import DIFFERENT, SAME
from crowdwise.data.encoding import Codes, Counts, Mask, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.data.places import row_label
from crowdwise.data.schema import ANNOTATOR, CHOICES, COMMON, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import CodedTable, blocks, reader, renumbered, spread
from crowdwise.data.truth import encode_partition
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError, Option, Remedy, listing


@dataclass(frozen=True, eq=False, repr=False)
class Similarities(CodedTable):
    """A frozen, validated table of same-or-different answers. Make one with a ``from_...`` method or a reader.

    >>> answers = Similarities.from_records([("x", "y", "ann", "same"), ("z", "y", "ann", "different")])
    >>> answers
    Similarities(2 answers on 2 pairs: 3 items x 1 annotators, 50% same)
    >>> answers.to_frame("dict")["same"].tolist()
    [True, False]
    """

    answer_type: ClassVar[str] = "similarities"
    columns: ClassVar[tuple[Col, ...]] = (
        Col("item_a", "items", needed=True), Col("item_b", "items", needed=True), ANNOTATOR, Col("same", needed=True),
        *COMMON,
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        schema.declared("items", "items"), schema.on_duplicate("judged a pair", *CHOICES),
        schema.on_missing("an answer"),
    )  # fmt: skip
    _act: ClassVar[str] = "judges pair"
    _distinct: ClassVar[bool] = True
    _forms: ClassVar[str] = (
        "One row per answer: true/false, 1/0, yes/no, same/different or their like; a column ``label`` or ``answer`` "
        "that holds such words will do."
    )

    pairs: npt.NDArray[np.int32]
    indptr: Counts
    same: Mask
    classes: Vocabulary | None = None

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Similarities:
        if "same" not in source:  # a column of labels does, if it holds the words for the two answers
            source.parts["same"] = columns.find(columns.left_over(source.table.columns, source.parts), "label")
        source.require(cls._needed())
        source.complete(cls._needed(), options["on_missing"])
        code, items = source.coded("item_a", "item_b")
        if options["items"] is None:
            code, items = encoding.sort_vocabulary(code, items)
        else:
            code, items = _declared(code, items, encoding.to_vocabulary(list(options["items"])))
        who, annotators = encoding.sort_vocabulary(*source.coded("annotator"))
        a, b = np.split(code, 2)
        return cls.from_codes(
            a, b, who, _answers(source), items=items, annotators=annotators,
            **source.beside(options),
        )  # fmt: skip

    @classmethod
    def from_codes(
        cls, item_a: npt.ArrayLike, item_b: npt.ArrayLike, annotator: npt.ArrayLike, same: npt.ArrayLike, *,
        items: Any, annotators: Any, **beside: Unpack[Beside],
    ) -> Similarities:  # fmt: skip
        """Similarities from arrays of codes and the names behind them (what every other way of making one ends in)."""
        items, annotators = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        encoding.check_distinct(items, "items")
        a, b = (assemble.checked_codes(codes, items, "item") for codes in (item_a, item_b))
        who = assemble.checked_codes(annotator, annotators, "annotator")
        answer, rows = np.asarray(same), beside.get("rows")
        assemble.equally_long(cls._rows, item_a=a, item_b=b, annotator=who, same=answer)
        if answer.dtype != bool:
            raise InputError(f"same must hold true or false for each answer, and holds {answer.dtype} values.")
        loop = np.flatnonzero(a == b)
        if len(loop):
            where = row_label(int(loop[0]), rows).capitalize()
            raise InputError(
                f"{where} compares item {listing(items[a[loop[:1]]])} with itself, which says "
                "nothing about kinds of items. Leave such rows out."
            )
        first, second = np.minimum(a, b).astype(np.int64), np.maximum(a, b).astype(np.int64)
        key, pair = np.unique(first * len(items) + second, return_inverse=True)
        pairs = np.column_stack([key // len(items), key % len(items)]).astype(np.int32)

        def answers(order: npt.NDArray[Any] | None) -> dict[str, Any]:
            return {"pairs": pairs, "same": assemble.in_order(answer, order), "items": items}

        return cls._arranged(pair.astype(np.int32), who, _PairNames(pairs, items), annotators, answers, beside)

    @property
    def n_pairs(self) -> int:
        """P, the number of judged pairs."""
        return len(self.pairs)

    @property
    def pair(self) -> Counts:
        """The pair of every answer."""
        return np.repeat(np.arange(self.n_pairs), np.diff(self.indptr))

    @property
    def item_a(self) -> npt.NDArray[np.int32]:
        """The first item of every answer."""
        return np.asarray(self.pairs[self.pair, 0])

    @property
    def item_b(self) -> npt.NDArray[np.int32]:
        """The second item of every answer."""
        return np.asarray(self.pairs[self.pair, 1])

    @property
    def votes(self) -> Votes:
        """The answers as votes on pairs, with the classes False and True: for what is known of votes."""
        truth = None
        if self.truth is not None:
            a, b = self.truth[self.pairs].T
            truth = np.where((a < 0) | (b < 0), -1, a == b).astype(np.int32)
        return Votes(
            self.indptr, self.annotator, self.same.astype(np.int32), np.arange(self.n_pairs), self.annotators,
            np.array([False, True]), self.weight, self.timestamp, truth, self.kind,
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"Similarities({self.n_answers:,} answers on {self.n_pairs:,} pairs: {len(self):,} items x "
            f"{self.n_annotators:,} annotators, {self.same.mean() if self.n_answers else 0.0:.0%} same)"
        )

    def with_truth(self, truth: Any) -> Self:
        """The same answers with the true class of items: a mapping from item to class, N labels, or ``None``."""
        codes, classes = (None, None) if truth is None else self.encode_truth(truth)
        return replace(self, truth=codes, classes=classes)

    def encode_truth(self, truth: Any) -> tuple[Codes, Vocabulary]:
        """N codes (-1 unknown) and the classes behind them, from a mapping of items to classes or N classes."""
        return encode_partition(truth, self.items)

    def components(self) -> Codes:
        """N: the connected part of the graph of pairs that each item is in, the largest numbered 0."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        N = len(self)
        graph = coo_array((np.ones(self.n_pairs), (self.pairs[:, 0], self.pairs[:, 1])), shape=(N, N))
        count, part = connected_components(graph, directed=False)
        return encoding.by_size(part, count)

    def _of_items(self, items: Counts) -> Self:
        place = renumbered(items, len(self))
        kept = self._kept(np.asarray((place[self.pairs] >= 0).all(axis=1))[self.pair])
        pairs = place[kept.pairs]
        order = np.lexsort((pairs.max(axis=1), pairs.min(axis=1))) if len(pairs) else np.zeros(0, dtype=np.int64)
        indptr, take = blocks(kept.indptr, order)
        pairs = np.sort(pairs[order], axis=1)
        return replace(kept, pairs=pairs, indptr=indptr, **kept._at(take), **self._about(items))

    def _kept(self, mask: Mask) -> Self:
        count = np.bincount(self.pair[mask], minlength=self.n_pairs)
        indptr = np.concatenate([[0], np.cumsum(count[count > 0])]).astype(np.int64)
        return replace(self, pairs=self.pairs[count > 0], indptr=indptr, **self._at(mask))

    def _per_item(self) -> npt.NDArray[Any]:
        return np.bincount(self.pairs[self.pair].ravel(), minlength=len(self))

    def _counted(self) -> dict[str, Any]:
        per_pair = np.diff(self.indptr)
        alike = np.bincount(self.pair, weights=self.same, minlength=self.n_pairs)
        paired = per_pair >= 2
        return {
            "pairs": self.n_pairs,
            "same": float(self.same.mean()) if self.n_answers else None,
            "answers_per_pair": spread(per_pair),
            "pairs_per_item": spread(np.bincount(self.pairs.ravel(), minlength=len(self))),
            "unanimous": float(((alike == 0) | (alike == per_pair))[paired].mean()) if paired.any() else None,
            "density": self.n_pairs / max(1, len(self) * (len(self) - 1) // 2),
            "connected_parts": int(self.components().max(initial=-1)) + 1,
        }


read_similarities = reader(Similarities, "read_similarities")


class _PairNames:
    """The names of pairs, made only for those that a message asks for."""

    def __init__(self, pairs: npt.NDArray[np.int32], items: Vocabulary) -> None:
        self.pairs, self.items = pairs, items

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: npt.NDArray[Any]) -> list[tuple[Any, ...]]:
        return [tuple(self.items[pair].tolist()) for pair in self.pairs[index]]


def _declared(code: Codes, items: Vocabulary, declared: Vocabulary) -> tuple[Codes, Vocabulary]:
    encoding.check_distinct(declared, "items")
    place = encoding.locate(items, declared)
    if (place < 0).any():
        raise LabelError(
            f"The pairs name {listing(items[place < 0])}, which the declared items do not have.",
            remedy=Remedy("Add the name to {}, or leave those rows out.", Option("items", python="[...]")),
        )
    return encoding.recode(code, place), declared


def _answers(source: Source) -> Mask:
    """True for the same, False for different, from whatever words stand for them."""
    column = source.flat("same", "a word for the same or for different")
    if column.dtype == pl.Boolean:
        return column.to_numpy().astype(bool)
    words = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    same, different = words.is_in(list(SAME)), words.is_in(list(DIFFERENT))
    odd = (~(same | different)).arg_true()
    if len(odd):
        words_for = f"{listing(SAME[:4])}... for the same, or {listing(DIFFERENT[:4])}... for different"
        raise source.odd("same", int(odd[0]), words_for)
    return same.to_numpy().astype(bool)
