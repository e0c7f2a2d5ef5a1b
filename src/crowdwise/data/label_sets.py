"""The sparse table of label sets: which labels each annotator chose for an item, none to all of those on offer.

==================  ======================  ==========================================================
field               shape                   meaning
==================  ======================  ==========================================================
``indptr``          N + 1                   answers on item n are rows ``indptr[n]:indptr[n + 1]``
``annotator``       R                       code of the annotator, sorted within an item
``set_indptr``      R + 1                   labels chosen in answer r: ``chosen[set_indptr[r]:set_indptr[r + 1]]``
``chosen``          C                       codes of labels, sorted within an answer
``offered_indptr``  N + 1 or ``None``       labels on offer for item n, in the same manner; ``None``: all of them
``offered``         O or ``None``
``weight``          R or ``None``           how much an answer counts (1 where absent)
``truth``           N x L or ``None``       whether label l is truly in the set of item n; all False where unknown
``known``           N or ``None``           for which items the truth is known
``items``, ``annotators``, ``labels``       the names behind the codes
==================  ======================  ==========================================================

**What "not chosen" means.** A label that was on offer and was not chosen was rejected: it counts as the answer "no".
A label that was not on offer was not asked about, and says nothing. An empty set is an answer too: "none of these".
Where people type labels freely, so that leaving one out says little, this table is the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding, frames
from crowdwise.data.answers import ByItem
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.rows import blocks, spread
from crowdwise.data.votes import OnMissing, Votes
from crowdwise.errors import InputError, LabelError, ParameterError, listing

__all__ = ["LabelSets"]

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class LabelSets(ByItem):
    """A frozen, validated table of label sets. Make one with a ``from_...`` method or :func:`read_label_sets`.

    >>> answers = LabelSets.from_records([("a", "ann", ["cat", "dog"]), ("a", "bob", []), ("b", "ann", ["dog"])])
    >>> answers
    LabelSets(3 answers: 2 items x 2 annotators x 2 labels, 1.0 chosen on average)
    >>> answers.votes_of("cat").to_frame("dict")["label"].tolist()
    [True, False, False]
    """

    answer_type: ClassVar[str] = "label-sets"

    indptr: Counts
    annotator: Codes
    set_indptr: Counts
    chosen: Codes
    items: Vocabulary
    annotators: Vocabulary
    labels: Vocabulary
    offered_indptr: Counts | None = None
    offered: Codes | None = None
    weight: npt.NDArray[np.float64] | None = None
    timestamp: npt.NDArray[Any] | None = None
    truth: npt.NDArray[np.bool_] | None = None
    known: npt.NDArray[np.bool_] | None = None
    kind: str = "polars"

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        item: str | None = None,
        annotator: str | None = None,
        labels: str | None = None,
        label: str | None = None,
        offered: str | None = None,
        weight: str | None = None,
        timestamp: str | None = None,
        classes: Sequence[Any] | None = None,
        delimiter: str | None = None,
        on_duplicate: OnDuplicate = "error",
        on_missing: OnMissing = "error",
    ) -> LabelSets:
        """Label sets from a table in one of two forms.

        Parameters
        ----------
        frame
            One row per answer, with a column of sets (lists, or text such as ``cat|dog``); or one row per chosen
            label, with an empty cell where somebody chose none.
        item, annotator, labels, weight, timestamp
            The columns, where their names are not among the usual ones.
        label
            The column of single labels, in the second form.
        offered
            A column with the labels that were on offer for the item, written like the sets; else all labels were.
        classes
            All labels, in order; may hold some nobody chose. By default those that occur, sorted.
        delimiter
            What stands between the labels of a cell; by default the first of ``|``, ``;`` and ``,`` that occurs.
        on_duplicate
            With one row per answer, what to do when an annotator answered twice about an item: ``"error"``, or keep
            the ``"first"`` or ``"last"`` row.
        on_missing
            Rows without item or annotator: ``"error"``, or ``"drop"``. An empty cell of labels is the empty set.
        """
        given = {
            "item": item, "annotator": annotator, "labels": labels, "label": label, "offered": offered,
            "weight": weight, "timestamp": timestamp,
        }  # fmt: skip
        from crowdwise.data.readers_sets import label_sets_from_table

        return label_sets_from_table(frame, given, classes, delimiter, on_duplicate, on_missing)

    @classmethod
    def from_records(
        cls,
        records: Iterable[tuple[Any, Any, Iterable[Any]]],
        *,
        classes: Sequence[Any] | None = None,
        offered: Mapping[Any, Iterable[Any]] | None = None,
        on_duplicate: OnDuplicate = "error",
    ) -> LabelSets:
        """Label sets from rows ``(item, annotator, labels)``; ``offered`` maps items to the labels on offer."""
        rows = list(records)
        if not rows:
            raise InputError("No answers: the records are empty.")
        for n, row in enumerate(rows):
            if isinstance(row, (str, Mapping)) or len(row) != 3 or isinstance(row[2], str):
                raise InputError(
                    f"Expected (item, annotator, labels) in every record, with a list or set of labels: found {row!r} "
                    f"in row {n}."
                )
        sets = [list(dict.fromkeys(row[2])) for row in rows]
        first, second = ([row[i] for row in rows] for i in (0, 1))
        code, items = _encoded(first, "item")
        who, annotators = _encoded(second, "annotator")
        return cls._from_sets(code, who, sets, items, annotators, classes, offered=offered, on_duplicate=on_duplicate)

    @classmethod
    def _from_sets(
        cls,
        item: Codes,
        annotator: Codes,
        sets: list[list[Any]],
        items: Vocabulary,
        annotators: Vocabulary,
        classes: Sequence[Any] | None,
        *,
        offered: Mapping[Any, Iterable[Any]] | None = None,
        weight: npt.NDArray[np.float64] | None = None,
        timestamp: npt.NDArray[Any] | None = None,
        on_duplicate: OnDuplicate = "error",
        kind: str = "polars",
        rows: npt.NDArray[np.int64] | None = None,
    ) -> LabelSets:
        if on_duplicate == "all":
            raise ParameterError(
                "on_duplicate='all': an annotator has one set for an item. Expected error, first, last."
            )
        count = np.array([len(s) for s in sets], dtype=np.int64)
        flat = [label for s in sets for label in s]
        lists = {} if offered is None else {name: list(dict.fromkeys(some)) for name, some in offered.items()}
        everything = encoding.to_vocabulary([*flat, *(label for some in lists.values() for label in some)])
        names = encoding.to_vocabulary(list(dict.fromkeys(everything.tolist())))
        if len(names) == 0 and classes is None:
            raise LabelError("Nobody chose any label. Declare those that were on offer: classes=[...].")
        _, labels = assemble.declare(np.arange(len(names), dtype=np.int32), names, classes)
        place = {name: k for k, name in enumerate(labels.tolist())}
        lost = [name for name in names.tolist() if name not in place]
        if lost:
            raise LabelError(f"The labels {listing(lost)} are not among the declared classes {listing(labels, 10)}.")
        if weight is not None:
            weight = assemble.checked_weight(weight, len(item), rows)
        order, indptr, who = assemble.arrange(item, annotator, on_duplicate, items, annotators, rows)
        order = np.arange(len(item)) if order is None else order
        codes = np.array([place[v] for v in everything[: len(flat)].tolist()], dtype=np.int32)
        set_indptr, take = blocks(np.concatenate([[0], np.cumsum(count)]), order)
        chosen = codes[take]
        answer = np.repeat(np.arange(len(order)), np.diff(set_indptr))
        chosen = chosen[np.lexsort((chosen, answer))]
        made = cls(
            indptr, who, set_indptr, chosen, items, annotators, labels,
            weight=weight if weight is None else weight[order],
            timestamp=timestamp if timestamp is None else timestamp[order], kind=kind,
        )  # fmt: skip
        return made if offered is None else made._offering(lists, place)

    def _offering(self, lists: dict[Any, list[Any]], place: dict[Any, int]) -> LabelSets:
        """With the labels on offer; an item that is not named was offered all."""
        L = len(self.labels)
        table = np.ones((len(self), L), dtype=bool) if len(self) * L <= 2**26 else None
        if table is None:
            raise InputError(
                "Labels on offer can be given for at most 67 million (item, label) pairs: offer all labels."
            )
        where = {name: n for n, name in enumerate(self.items.tolist())}
        for name, some in lists.items():
            if name in where:
                table[where[name]] = False
                table[where[name], [place[label] for label in some]] = True
        bad = np.flatnonzero(~table[self.item[self.answer], self.chosen])
        if len(bad):
            item, label = self.items[self.item[self.answer[bad[:1]]]], self.labels[self.chosen[bad[:1]]]
            raise LabelError(
                f"Label {listing(label)} was chosen for item {listing(item)} and was not on offer for it. "
                "Add it to the labels on offer, or leave the answer out."
            )
        count = table.sum(axis=1)
        indptr = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        return replace(self, offered_indptr=indptr, offered=np.nonzero(table)[1].astype(np.int32))

    # ---------------------------------------------------------------- what is in it

    @property
    def n_answers(self) -> int:
        """R, the number of answers (``len`` is the number of items)."""
        return len(self.annotator)

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    @property
    def item(self) -> Counts:
        """The item of every answer."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    @property
    def answer(self) -> Counts:
        """The answer behind every chosen label."""
        return np.repeat(np.arange(self.n_answers), np.diff(self.set_indptr))

    def __repr__(self) -> str:
        mean = len(self.chosen) / max(self.n_answers, 1)
        return (
            f"LabelSets({self.n_answers:,} answers: {len(self):,} items x {self.n_annotators:,} annotators x "
            f"{self.n_labels:,} labels, {mean:.1f} chosen on average)"
        )

    def votes_of(self, label: Any) -> Votes:
        """The answers about one label as votes, True where it was chosen; items for which it was not on offer are out.

        Annotators keep their codes.
        """
        at = encoding.locate(encoding.to_vocabulary([label]), self.labels)[0]
        if at < 0:
            raise LabelError(f"There is no label {label!r}: there are {listing(self.labels, 10)}.")
        said = np.zeros(self.n_answers, dtype=np.int32)
        said[self.answer[self.chosen == at]] = 1
        votes = Votes(
            self.indptr, self.annotator, said, self.items, self.annotators, np.array([False, True]), self.weight,
            self.timestamp, None if self.truth is None or self.known is None
            else np.where(self.known, self.truth[:, at], -1).astype(np.int32), self.kind,
        )  # fmt: skip
        return votes if self.offered is None else votes[self.offering(at)]

    def offering(self, label: int) -> npt.NDArray[np.int64]:
        """The items for which a label, by its code, was on offer."""
        if self.offered is None or self.offered_indptr is None:
            return np.arange(len(self))
        return np.asarray(np.repeat(np.arange(len(self)), np.diff(self.offered_indptr))[self.offered == label])

    # ---------------------------------------------------------------- selecting

    def __getitem__(self, index: Any) -> LabelSets:
        """The answers on some items: an integer, a slice, an array of positions or a mask."""
        if isinstance(index, tuple):  # scikit-learn asks for answers[index, ...]
            index = index[0]
        rows = np.atleast_1d(np.arange(len(self))[index])
        indptr, take = blocks(self.indptr, rows)
        made = replace(self._answers(take), indptr=indptr, items=self.items[rows])
        if self.offered is not None and self.offered_indptr is not None:
            start, at = blocks(self.offered_indptr, rows)
            made = replace(made, offered_indptr=start, offered=self.offered[at])
        if self.truth is not None and self.known is not None:
            made = replace(made, truth=self.truth[rows], known=self.known[rows])
        return made

    def _answers(self, take: npt.NDArray[np.int64]) -> LabelSets:
        """Some of the answers, by row; where items begin is for the caller to mend."""
        start, at = blocks(self.set_indptr, take)
        return replace(self, set_indptr=start, chosen=self.chosen[at], **self._at(take))

    def _kept(self, mask: npt.NDArray[np.bool_]) -> LabelSets:
        rows = np.flatnonzero(mask)
        return replace(self._answers(rows), indptr=assemble.boundaries(self.item[rows], len(self)))

    def with_truth(self, truth: Any) -> LabelSets:
        """The same answers with the true sets: a mapping from item to labels, an N x L array of booleans, or None."""
        if truth is None:
            return replace(self, truth=None, known=None)
        table, known = self.encode_truth(truth)
        return replace(self, truth=table, known=known)

    def encode_truth(self, truth: Any) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """N x L booleans and for which items they are known, from a mapping of items to labels or such an array."""
        return encode_sets(truth, self.items, self.labels)

    # ---------------------------------------------------------------- out again

    def to_frame(self, kind: str | None = None, *, delimiter: str = "|") -> Any:
        """One row per answer, the labels of a set written with a delimiter between them (nothing: the empty set)."""
        words = self.labels[self.chosen].astype(str).tolist()
        bounds = self.set_indptr.tolist()
        table: dict[str, Any] = {
            "item": self.items[self.item],
            "annotator": self.annotators[self.annotator],
            "labels": np.array([delimiter.join(words[a:b]) for a, b in pairwise(bounds)], object),
        }
        if self.offered is not None and self.offered_indptr is not None:
            some, ends = self.labels[self.offered].astype(str).tolist(), self.offered_indptr.tolist()
            text = np.array([delimiter.join(some[a:b]) for a, b in pairwise(ends)], object)
            table["offered"] = text[self.item]
        if self.weight is not None:
            table["weight"] = self.weight
        if self.timestamp is not None:
            table["timestamp"] = self.timestamp
        return frames.make_frame(table, kind or self.kind)

    def describe(self) -> dict[str, Any]:
        """Counts that show the shape of the data, as a plain dict."""
        use = np.bincount(self.chosen, minlength=self.n_labels)
        return {
            "items": len(self),
            "annotators": self.n_annotators,
            "labels": self.labels.tolist(),
            "answers": self.n_answers,
            "answers_per_item": spread(np.diff(self.indptr)),
            "answers_per_annotator": spread(np.bincount(self.annotator, minlength=self.n_annotators)),
            "labels_per_answer": spread(np.diff(self.set_indptr)),
            "empty_answers": int((np.diff(self.set_indptr) == 0).sum()),
            "chosen_per_label": dict(zip(map(str, self.labels.tolist()), use.tolist(), strict=True)),
            "all_offered": self.offered is None,
            "weighted": self.weight is not None,
            "timestamps": self.timestamp is not None,
            "items_with_truth": 0 if self.known is None else int(self.known.sum()),
        }


# -------------------------------------------------------------------- the pieces


def encode_sets(
    truth: Any, items: Vocabulary, labels: Vocabulary
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """N x L booleans and for which items they are known, from a mapping of items to labels or such an array."""
    N, L = len(items), len(labels)
    if not isinstance(truth, Mapping):
        table = np.asarray(truth)
        if table.shape != (N, L) or table.dtype != bool:
            raise InputError(
                f"Expected the true sets as a mapping from item to labels, or as {N} x {L} booleans, and found "
                f"{table.dtype} values of shape {table.shape}."
            )
        return table.copy(), np.ones(N, dtype=bool)
    place = {name: k for k, name in enumerate(labels.tolist())}
    where = encoding.locate(encoding.to_vocabulary(list(truth)), items)
    if len(truth) and N and (where < 0).all():
        raise InputError(
            f"None of the {len(truth)} items with truth has answers: truth names {listing(truth, 3)}, the answers "
            f"{listing(items, 3)}. Check that both name the items alike."
        )
    table, known = np.zeros((N, L), dtype=bool), np.zeros(N, dtype=bool)
    for n, some in zip(where.tolist(), truth.values(), strict=True):
        lost = [label for label in some if label not in place]
        if lost:
            raise LabelError(
                f"The truth names {listing(lost)}, which nobody chose and no list declares: the labels are "
                f"{listing(labels, 10)}. If the name is right, declare every label: classes=[...]."
            )
        if n >= 0:
            known[n] = True
            table[n, [place[label] for label in some]] = True
    return table, known


def _encoded(values: list[Any], name: str) -> tuple[Codes, Vocabulary]:
    code, names = encoding.encode(frames.make_frame({name: np.array(values, dtype=object)})[name])
    if (code < 0).any():
        raise LabelError(f"Record {int(np.flatnonzero(code < 0)[0])} has no {name}.")
    return encoding.sort_vocabulary(code, names)
