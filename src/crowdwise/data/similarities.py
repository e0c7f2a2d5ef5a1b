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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding, frames
from crowdwise.data.answers import ByItem
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.rows import beside, blocks, checked_mask, columns_of, spread
from crowdwise.data.votes import OnMissing, Votes
from crowdwise.errors import InputError, listing

__all__ = ["Similarities"]


@dataclass(frozen=True, eq=False, repr=False)
class Similarities(ByItem):
    """A frozen, validated table of same-or-different answers. Make one with a ``from_...`` method or a reader.

    >>> answers = Similarities.from_records([("x", "y", "ann", "same"), ("z", "y", "ann", "different")])
    >>> answers
    Similarities(2 answers on 2 pairs: 3 items x 1 annotators, 50% same)
    >>> answers.to_frame("dict")["same"].tolist()
    [True, False]
    """

    answer_type: ClassVar[str] = "similarities"

    pairs: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int64]
    annotator: Codes
    same: npt.NDArray[np.bool_]
    items: Vocabulary
    annotators: Vocabulary
    weight: npt.NDArray[np.float64] | None = None
    timestamp: npt.NDArray[Any] | None = None
    truth: Codes | None = None
    classes: Vocabulary | None = None
    kind: str = "polars"

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        item_a: str | None = None,
        item_b: str | None = None,
        annotator: str | None = None,
        same: str | None = None,
        weight: str | None = None,
        timestamp: str | None = None,
        items: Sequence[Any] | None = None,
        on_duplicate: OnDuplicate = "error",
        on_missing: OnMissing = "error",
    ) -> Similarities:
        """Similarities from a table with one row per answer.

        Parameters
        ----------
        frame
            pandas, polars, pyarrow, a dict of columns, anything narwhals or the Arrow stream protocol takes.
        item_a, item_b, annotator, same, weight, timestamp
            The columns, where their names are not among the usual ones. Answers may be true/false, 1/0, yes/no,
            same/different or their like; a column ``label`` or ``answer`` that holds such words will do.
        items
            All items, where some are in no pair.
        on_duplicate
            What to do when an annotator judged a pair twice: ``"error"``, keep the ``"first"`` or ``"last"`` row,
            or count ``"all"`` of them.
        on_missing
            ``"drop"`` leaves out rows without an answer instead of raising.
        """
        given = {
            "item_a": item_a, "item_b": item_b, "annotator": annotator, "same": same, "weight": weight,
            "timestamp": timestamp,
        }  # fmt: skip
        from crowdwise.data.readers_similar import similarities_from_table

        return similarities_from_table(frame, given, items, on_duplicate, on_missing)

    @classmethod
    def from_records(
        cls,
        records: Iterable[Any],
        *,
        items: Sequence[Any] | None = None,
        on_duplicate: OnDuplicate = "error",
        on_missing: OnMissing = "error",
    ) -> Similarities:
        """Similarities from rows: ``(item, item, annotator, answer)`` tuples, with a weight or without, or dicts."""
        names, shown = ("item_a", "item_b", "annotator", "same"), ("item", "item", "annotator", "answer")
        table = columns_of(records, names, "answers", optional=["weight"], shown=shown)
        return cls.from_frame(table, items=items, on_duplicate=on_duplicate, on_missing=on_missing)

    @classmethod
    def from_codes(
        cls,
        item_a: npt.ArrayLike,
        item_b: npt.ArrayLike,
        annotator: npt.ArrayLike,
        same: npt.ArrayLike,
        *,
        items: Any,
        annotators: Any,
        weight: npt.ArrayLike | None = None,
        timestamp: npt.NDArray[Any] | None = None,
        truth: Any = None,
        on_duplicate: OnDuplicate = "error",
        kind: str = "polars",
        rows: npt.NDArray[np.int64] | None = None,
    ) -> Similarities:
        """Similarities from arrays of codes and the names behind them (what every other way of making one ends in).

        ``rows`` are the numbers by which messages call the answers, where those are not simply their positions.
        """
        items, annotators = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        encoding.check_distinct(items, "items")
        a, b = (assemble.checked_codes(codes, items, "item") for codes in (item_a, item_b))
        who = assemble.checked_codes(annotator, annotators, "annotator")
        said = np.asarray(same)
        S = len(a)
        if not len(b) == len(who) == len(said) == S:
            raise InputError(
                f"item_a, item_b, annotator and same must be equally long and have {S}, {len(b)}, {len(who)} and "
                f"{len(said)} entries."
            )
        if S == 0:
            raise InputError("No answers: the table is empty.")
        if said.dtype != bool:
            raise InputError(f"same must hold true or false for each answer, and holds {said.dtype} values.")
        loop = np.flatnonzero(a == b)
        if len(loop):
            row = loop[0] if rows is None else rows[loop[0]]
            raise InputError(
                f"Row {row} (counted from 0) compares item {listing(items[a[loop[:1]]])} with itself, which says "
                "nothing about kinds of items. Leave such rows out."
            )
        first, second = np.minimum(a, b).astype(np.int64), np.maximum(a, b).astype(np.int64)
        key, pair = np.unique(first * len(items) + second, return_inverse=True)
        pairs = np.column_stack([key // len(items), key % len(items)]).astype(np.int32)
        w, when = beside(weight, timestamp, S, rows, "answers")
        names: Any = _PairNames(pairs, items)
        order, indptr, who = assemble.arrange(pair.astype(np.int32), who, on_duplicate, names, annotators, rows)
        said, w, when = assemble.all_in_order(order, said, w, when)
        made = cls(pairs, indptr, who, said, items, annotators, w, when, kind=kind)
        return made if truth is None else made.with_truth(truth)

    # ---------------------------------------------------------------- what is in it

    @property
    def n_answers(self) -> int:
        """S, the number of answers (``len`` is the number of items)."""
        return len(self.same)

    @property
    def n_pairs(self) -> int:
        return len(self.pairs)

    @property
    def pair(self) -> npt.NDArray[np.int64]:
        """The pair of every answer."""
        return np.repeat(np.arange(self.n_pairs), np.diff(self.indptr))

    @property
    def votes(self) -> Votes:
        """The answers as votes on pairs, with the classes False and True: for what is known of votes."""
        return Votes(
            self.indptr, self.annotator, self.same.astype(np.int32), np.arange(self.n_pairs), self.annotators,
            np.array([False, True]), self.weight, self.timestamp, self._pair_truth(), self.kind,
        )  # fmt: skip

    def _pair_truth(self) -> Codes | None:
        if self.truth is None:
            return None
        a, b = self.truth[self.pairs].T
        return np.where((a < 0) | (b < 0), -1, a == b).astype(np.int32)

    def __repr__(self) -> str:
        return (
            f"Similarities({self.n_answers:,} answers on {self.n_pairs:,} pairs: {len(self):,} items x "
            f"{self.n_annotators:,} annotators, {self.same.mean() if self.n_answers else 0.0:.0%} same)"
        )

    # ---------------------------------------------------------------- selecting

    def __getitem__(self, index: Any) -> Similarities:
        """The answers about some items alone, by position, slice or mask: pairs with an item left out go with it."""
        if isinstance(index, tuple):  # scikit-learn asks for answers[index, ...]
            if len(index) != 2 or not (index[1] is Ellipsis or index[1] == slice(None)):
                raise IndexError(f"Similarities are indexed by item alone and were asked for {index}.")
            index = index[0]
        chosen = np.atleast_1d(np.arange(len(self))[index])
        if chosen.ndim != 1 or len(np.unique(chosen)) < len(chosen):
            raise IndexError(
                "Similarities are indexed by different items: an integer, a slice or a flat array of them."
            )
        place = np.full(len(self), -1, dtype=np.int32)
        place[chosen] = np.arange(len(chosen))
        pairs = place[self.pairs]
        kept = self.select(np.asarray((pairs >= 0).all(axis=1))[self.pair])
        pairs = place[kept.pairs]
        order = np.lexsort((pairs.max(axis=1), pairs.min(axis=1))) if len(pairs) else np.zeros(0, dtype=np.int64)
        indptr, take = blocks(kept.indptr, order)
        return replace(
            kept, pairs=np.sort(pairs[order], axis=1), indptr=indptr, items=self.items[chosen],
            truth=None if self.truth is None else self.truth[chosen], **kept._at(take, "same"),
        )  # fmt: skip

    def select(self, rows: npt.ArrayLike) -> Similarities:
        """Some of the answers, by a mask over their rows. Items and annotators keep their codes, even without any."""
        mask = checked_mask(rows, self.n_answers, "answers")
        count = np.bincount(self.pair[mask], minlength=self.n_pairs)
        indptr = np.concatenate([[0], np.cumsum(count[count > 0])]).astype(np.int64)
        return replace(self, pairs=self.pairs[count > 0], indptr=indptr, **self._at(mask, "same"))

    def _kept(self, mask: npt.NDArray[np.bool_]) -> Similarities:
        return self.select(mask)

    def with_truth(self, truth: Any) -> Similarities:
        """The same answers with the true class of items: a mapping from item to class, N labels, or ``None``."""
        if truth is None:
            return replace(self, truth=None, classes=None)
        codes, classes = encode_classes(truth, self.items)
        return replace(self, truth=codes, classes=classes)

    # ---------------------------------------------------------------- out again

    def to_frame(self, kind: str | None = None) -> Any:
        """The long table again, one row per answer; as it came, or of another ``kind`` (as in ``Votes.to_frame``)."""
        pair = self.pair
        table: dict[str, Any] = {
            "item_a": self.items[self.pairs[pair, 0]],
            "item_b": self.items[self.pairs[pair, 1]],
            "annotator": self.annotators[self.annotator],
            "same": self.same,
        }
        if self.weight is not None:
            table["weight"] = self.weight
        if self.timestamp is not None:
            table["timestamp"] = self.timestamp
        return frames.make_frame(table, kind or self.kind)

    def components(self) -> Codes:
        """N: the connected part of the graph of pairs that each item is in, the largest numbered 0."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        N = len(self)
        graph = coo_array((np.ones(self.n_pairs), (self.pairs[:, 0], self.pairs[:, 1])), shape=(N, N))
        found, part = connected_components(graph, directed=False)
        size, first = np.bincount(part, minlength=found), np.full(found, N)
        np.minimum.at(first, part, np.arange(N))
        return np.asarray(encoding.invert(np.lexsort((first, -size)))[part], dtype=np.int32)

    def describe(self) -> dict[str, Any]:
        """Counts that show the shape of the data, as a plain dict."""
        per_pair = np.diff(self.indptr)
        said = np.bincount(self.pair, weights=self.same, minlength=self.n_pairs)
        paired = per_pair >= 2
        return {
            "items": len(self),
            "annotators": self.n_annotators,
            "pairs": self.n_pairs,
            "answers": self.n_answers,
            "same": float(self.same.mean()) if self.n_answers else None,
            "answers_per_pair": spread(per_pair),
            "answers_per_annotator": spread(np.bincount(self.annotator, minlength=self.n_annotators)),
            "pairs_per_item": spread(np.bincount(self.pairs.ravel(), minlength=len(self))),
            "unanimous": float(((said == 0) | (said == per_pair))[paired].mean()) if paired.any() else None,
            "density": self.n_pairs / max(1, len(self) * (len(self) - 1) // 2),
            "connected_parts": int(self.components().max(initial=-1)) + 1,
            "weighted": self.weight is not None,
            "timestamps": self.timestamp is not None,
            "items_with_truth": 0 if self.truth is None else int((self.truth >= 0).sum()),
        }


# -------------------------------------------------------------------- the pieces


class _PairNames:
    """The names of pairs, made only for those that a message asks for."""

    def __init__(self, pairs: npt.NDArray[np.int32], items: Vocabulary) -> None:
        self.pairs, self.items = pairs, items

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: npt.NDArray[Any]) -> list[tuple[Any, ...]]:
        return [tuple(self.items[pair].tolist()) for pair in self.pairs[index]]


def encode_classes(truth: Any, items: Vocabulary) -> tuple[Codes, Vocabulary]:
    """N codes (-1 unknown) and the classes behind them, from a mapping of items to classes or N classes in order."""
    if isinstance(truth, Mapping):
        known = {name: value for name, value in truth.items() if not frames.is_missing(value)}
        values, names = encoding.to_vocabulary(list(known.values())), encoding.to_vocabulary(list(known))
        rows = encoding.locate(items, names)
        if len(names) and len(items) and (rows < 0).all():
            raise InputError(
                f"None of the {len(names)} items with truth is among the answers: truth names {listing(names, 3)}, "
                f"the answers {listing(items, 3)}. Check that both name the items alike."
            )
    else:
        values, rows = encoding.to_vocabulary(truth), np.arange(len(items), dtype=np.int32)
        if len(values) != len(items):
            raise InputError(f"Expected a class for each of the {len(items)} items and found {len(values)}.")
    names_of, code = np.unique(values.astype(str) if values.dtype == object else values, return_inverse=True)
    classes = encoding.to_vocabulary(names_of.tolist())
    return encoding.recode(rows, code), classes
