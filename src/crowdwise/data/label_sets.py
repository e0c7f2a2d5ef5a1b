"""The sparse table of label sets: which labels each annotator chose for an item, none to all of those on offer.

==================  ======================  ==========================================================
field               shape                   meaning
==================  ======================  ==========================================================
``indptr``          N + 1                   answers on item n are rows ``indptr[n]:indptr[n + 1]``
``annotator``       R                       code of the annotator, sorted within an item
``set_indptr``      R + 1                   labels chosen in answer r: ``chosen[set_indptr[r]:set_indptr[r + 1]]``
``chosen``          C                       codes of labels, sorted within an answer
``offered``         N x L or ``None``       whether label l was on offer for item n; ``None``: all of them
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
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, columns, encoding, frames, schema, spellings
from crowdwise.data.encoding import Codes, Counts, Mask, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.data.schema import ANNOTATOR, COMMON, ITEM, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import ByItem, CodedTable, blocks, columns_of, reader, spread
from crowdwise.data.truth import encode_sets
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError, ParameterError, Remedy, listing

EMPTY = ("", "none", "nothing", "[]", "{}", "-")
"""Cells that stand for the empty set."""
PARTS = ("item", "annotator", "labels")
Sets = list[list[Any]]


def _sets(source: Source, part: str, delimiter: str | None) -> Sets:
    """The labels of each cell: of lists, or of text with a delimiter."""
    cells = source[part]
    if isinstance(cells.dtype, pl.List) and not cells.explode().dtype.is_nested():
        return [[] if cell is None else list(dict.fromkeys(cell)) for cell in cells.to_list()]
    text = source.flat(part, "text, or a list of labels").cast(pl.String).fill_null("")
    written = None if delimiter else columns.lists_in(text)
    if written is not None:
        return [list(dict.fromkeys(some)) for some in written]
    sign = delimiter or next((d for d in columns.DELIMITERS if bool(text.str.contains(d, literal=True).any())), "|")
    out = []
    for cell in text.to_list():
        words = [] if cell.strip().lower() in EMPTY else [w.strip() for w in cell.split(sign)]
        out.append(list(dict.fromkeys(w for w in words if w)))
    return out


def _sets_in(source: Source, part: str, item: Codes, items: Vocabulary) -> dict[Any, list[Any]]:
    """Item -> its labels, from a column of sets (or of one label per row)."""
    out: dict[Any, list[Any]] = {}
    for n, some in zip(item.tolist(), _sets(source, part, None), strict=True):
        out.setdefault(items[n : n + 1].tolist()[0], []).extend(some)
    return out


@dataclass(frozen=True, eq=False, repr=False)
class LabelSets(CodedTable, ByItem):
    """A frozen, validated table of label sets. Make one with a ``from_...`` method or
    :func:`crowdwise.read_label_sets`.

    >>> answers = LabelSets.from_records([("a", "ann", ["cat", "dog"]), ("a", "bob", []), ("b", "ann", ["dog"])])
    >>> answers
    LabelSets(3 answers: 2 items x 2 annotators x 2 labels, 1.0 chosen on average)
    >>> answers.votes_of("cat").to_frame("dict")["label"].tolist()
    [True, False, False]
    """

    answer_type: ClassVar[str] = "label-sets"
    columns: ClassVar[tuple[Col, ...]] = (
        ITEM, ANNOTATOR, Col("labels", needed=True, per=""), Col("label", per=""), Col("offered", per=""), *COMMON
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        schema.declared("classes", "labels", " By default those that occur, sorted."),
        Opt("delimiter", None,
            "What stands between the labels of a cell; by default the first of ``|``, ``;`` and ``,`` that occurs.",
            str | None),
        schema.QUESTION,
        schema.on_duplicate("answered about an item, with one row per answer,", "error", "first", "last"),
        schema.on_missing("an item or annotator (an empty cell of labels is the empty set)"), spellings.NORMALISE,
        spellings.LABEL_MAP,
    )  # fmt: skip
    _forms: ClassVar[str] = (
        "Either one row per answer, with a column of sets (``labels``: lists, or text such as ``cat|dog`` or "
        "``['cat', 'dog']``); or one row per chosen label (``label``), with an empty cell where none was chosen. "
        "``offered`` is a column with the labels that were on offer for the item, written like the sets; without it "
        "all labels were."
    )
    _by_item: ClassVar[tuple[str, ...]] = ("truth", "known", "offered")
    _truths: ClassVar[tuple[str, ...]] = ("labels", "truth", "label")
    _truth_in: ClassVar[Any] = staticmethod(_sets_in)

    indptr: Counts
    set_indptr: Counts
    chosen: Codes
    labels: Vocabulary
    offered: Mask | None = None
    known: Mask | None = None

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> LabelSets:
        delimiter = options["delimiter"]
        if delimiter is not None and (not isinstance(delimiter, str) or not delimiter):
            raise ParameterError(f"delimiter={delimiter!r}: expected a text such as '|'.")
        single = source.given["label"] is not None or ("labels" not in source and "label" in source)
        value = "label" if single else "labels"
        source.require((*PARTS[:2], value))
        source.complete(PARTS[:2], options["on_missing"])
        item, who, items, annotators = _coded(source)
        beside = source.beside(options)
        long = value == "label" and not isinstance(source[value].dtype, pl.List)
        if long and delimiter is None:
            cells = source.flat(value, "a label").to_list()
            delimiter = columns.joined_by(cells)
            long = columns.lists_in(cells) is None
        if long and delimiter is None:
            sets = [[] if cell is None or str(cell).strip().lower() in EMPTY else [cell] for cell in cells]
        else:
            sets = _sets(source, value, delimiter)
        if options["label_map"] is not None:
            stands = spellings.as_label_map(options["label_map"])
            sets = [list(dict.fromkeys(stands.get(str(label).strip(), label) for label in some)) for some in sets]
        sets = spellings.in_sets(sets, options["normalise_labels"], options["classes"])
        offered: dict[Any, list[Any]] | None = None
        if "offered" in source:
            offered = {}
            for n, some in zip(items[item].tolist(), _sets(source, "offered", delimiter), strict=True):
                if set(offered.setdefault(n, some)) != set(some):
                    raise LabelError(f"Two rows name different labels on offer for item {n!r}. Correct one of them.")
        if long:
            key = item.astype(np.int64) * len(annotators) + who
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            whole: Sets = [[] for _ in range(len(first))]  # all labels of an annotator on an item
            for answer, labels in zip(inverse.tolist(), sets, strict=True):
                whole[answer] += [label for label in labels if label not in whole[answer]]
            sets = whole
            item, who = item[first], who[first]
            for name in ("weight", "timestamp"):
                beside[name] = None if beside[name] is None else beside[name][first]
            beside["rows"] = first if source.places is None else source.places[first]
        return cls._from_sets(item, who, items, annotators, sets, options["classes"], offered, **beside)

    @classmethod
    def from_records(  # type: ignore[override]
        cls, records: Iterable[Any], *, classes: Sequence[Any] | None = None,
        offered: Mapping[Any, Iterable[Any]] | None = None, on_duplicate: schema.OnDuplicate = "error",
    ) -> LabelSets:  # fmt: skip
        """Label sets from rows: tuples or dicts of item, annotator and labels; ``offered`` maps items to the labels on
        offer."""
        table = columns_of(records, PARTS, cls._rows)
        sets = list(table.get("labels", [None]))
        odd = next((n for n, some in enumerate(sets) if isinstance(some, str) or not isinstance(some, Iterable)), None)
        if odd is not None:
            raise InputError(
                f"Expected (item, annotator, labels) in every record, with a list or set of labels: found "
                f"{sets[odd]!r} for them in row {odd}."
            )
        source = Source({part: table.get(part, []) for part in PARTS[:2]}, dict.fromkeys(PARTS[:2]), cls._rows)
        source.complete(PARTS[:2], "error")
        sets = [list(dict.fromkeys(some)) for some in sets]
        return cls._from_sets(*_coded(source), sets, classes, offered, on_duplicate=on_duplicate)

    @classmethod
    def _from_sets(
        cls, item: Codes, annotator: Codes, items: Vocabulary, annotators: Vocabulary, sets: Sets,
        classes: Sequence[Any] | None, offered: Mapping[Any, Iterable[Any]] | None, **more: Any,
    ) -> LabelSets:  # fmt: skip
        """Label sets from the names of labels; the labels are those declared, or those that occur, sorted."""
        flat = [label for some in sets for label in some]
        asked = [] if offered is None else [label for some in offered.values() for label in some]
        names = encoding.to_vocabulary(list(dict.fromkeys(encoding.to_vocabulary([*flat, *asked]).tolist())))
        if len(names) == 0 and classes is None:
            declare = Remedy("Declare those that were on offer: {}.", encoding.CLASSES)
            raise LabelError("No label was chosen.", remedy=declare)
        code = encoding.locate(encoding.to_vocabulary(flat), names)
        code, labels = assemble.declare(code, names, classes)
        ends = np.concatenate([[0], np.cumsum([len(some) for some in sets])])
        more |= {"items": items, "annotators": annotators, "labels": labels, "offered": offered}
        return cls.from_codes(item, annotator, ends, code, **more)

    @classmethod
    def from_codes(
        cls, item: npt.ArrayLike, annotator: npt.ArrayLike, set_indptr: npt.ArrayLike, chosen: npt.ArrayLike, *,
        items: Any, annotators: Any, labels: Any, offered: Mapping[Any, Iterable[Any]] | None = None,
        **beside: Unpack[Beside],
    ) -> LabelSets:  # fmt: skip
        """Label sets from arrays of codes and the names behind them (what every other way of making one ends in).

        Answer r chose the labels ``chosen[set_indptr[r]:set_indptr[r + 1]]``; ``offered`` maps items to the labels on
        offer, by name.
        """
        names = encoding.to_vocabulary(labels)
        encoding.check_distinct(names, "labels")
        code, ends = assemble.checked_codes(chosen, names, "label"), np.asarray(set_indptr, dtype=np.int64)
        if ends[0] != 0 or ends[-1] != len(code) or (np.diff(ends) < 0).any():
            raise InputError(f"set_indptr must rise from 0 to {len(code)} chosen labels: found {ends[:5].tolist()}...")

        def answers(order: npt.NDArray[Any] | None) -> dict[str, Any]:
            starts, take = blocks(ends, np.arange(len(ends) - 1) if order is None else order)
            labels_of = code[take]
            labels_of = labels_of[np.lexsort((labels_of, np.repeat(np.arange(len(starts) - 1), np.diff(starts))))]
            return {"set_indptr": starts, "chosen": labels_of, "labels": names}

        table = cls._built(item, annotator, items, annotators, beside, answers, sets=ends[1:])
        return table if offered is None else table._offering(offered)

    def _offering(self, lists: Mapping[Any, Iterable[Any]]) -> Self:
        """With the labels on offer; an item that is not named was offered all."""
        if len(self) * self.n_labels > 2**26:
            raise InputError("Labels on offer can be given for at most 67 million (item, label) pairs: offer all.")
        table = np.ones((len(self), self.n_labels), dtype=bool)
        where = {name: n for n, name in enumerate(self.items.tolist())}
        for name, some in lists.items():
            if name in where:
                codes = encoding.locate(encoding.to_vocabulary(list(some)), self.labels)
                table[where[name]] = np.isin(np.arange(self.n_labels), codes)
        bad = np.flatnonzero(~table[self.item[self.answer], self.chosen])
        if len(bad):
            item, label = self.items[self.item[self.answer[bad[:1]]]], self.labels[self.chosen[bad[:1]]]
            raise LabelError(
                f"Label {listing(label)} was chosen for item {listing(item)} and was not on offer for it. "
                "Add it to the labels on offer, or leave the answer out."
            )
        return replace(self, offered=table)

    @property
    def n_labels(self) -> int:
        """L, the number of labels."""
        return len(self.labels)

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
        Annotators keep their codes."""
        at = int(encoding.locate(encoding.to_vocabulary([label]), self.labels)[0])
        if at < 0:
            raise LabelError(f"There is no label {label!r}: there are {listing(self.labels, 10)}.")
        return self.votes_at(at)

    def votes_at(self, at: int) -> Votes:
        """:meth:`votes_of` a label by its code."""
        chosen = np.zeros(self.n_answers, dtype=np.int32)
        chosen[self.answer[self.chosen == at]] = 1
        votes = Votes(
            self.indptr, self.annotator, chosen, self.items, self.annotators, np.array([False, True]), self.weight,
            self.timestamp, None if self.truth is None or self.known is None
            else np.where(self.known, self.truth[:, at], -1).astype(np.int32), self.kind,
        )  # fmt: skip
        return votes if self.offered is None else votes[self.offering(at)]

    def alike(self) -> list[Counts]:
        """The labels by their codes, those with the very same answers (and offers) together; the first ones first."""
        order = np.lexsort((self.answer, self.chosen))
        start = np.searchsorted(self.chosen[order], np.arange(self.n_labels + 1))
        answers = np.asarray(self.answer[order], dtype=np.int64)
        found: dict[bytes, list[int]] = {}
        for at in range(self.n_labels):
            offered = b"" if self.offered is None else np.packbits(self.offered[:, at]).tobytes()
            found.setdefault(offered + answers[start[at] : start[at + 1]].tobytes(), []).append(at)
        return [np.array(labels) for labels in found.values()]

    def offering(self, label: int) -> Counts:
        """The items for which a label, by its code, was on offer."""
        return np.arange(len(self)) if self.offered is None else np.flatnonzero(self.offered[:, label])

    def with_truth(self, truth: Any) -> Self:
        """The same answers with the true sets: a mapping from item to labels, an N x L array of booleans, or None."""
        table, known = (None, None) if truth is None else self.encode_truth(truth)
        return replace(self, truth=table, known=known)

    @classmethod
    def answer_columns(cls, answers: Sequence[Any]) -> dict[str, list[Any]]:
        found = super().answer_columns(answers)
        return found | {"labels": [list(map(str, said)) for said in found["labels"]]}

    def usable_gold(self, gold: Mapping[Any, Any]) -> dict[Any, Any]:
        labels = set(self.labels.tolist())
        sets = {item: [str(label) for label in said] for item, said in gold.items()}
        return {item: said for item, said in sets.items() if labels.issuperset(said)}

    def truth_frame(self) -> Any:
        if self.truth is None:
            return None
        known = self.known_truth.nonzero()[0]
        sets = [self.labels[self.truth[n]].tolist() for n in known.tolist()]
        return frames.make_frame({"item": self.items[known], "labels": sets})

    def encode_truth(self, truth: Any) -> tuple[Mask, Mask]:
        """N x L booleans and for which items they are known, from a mapping of items to labels or such an array."""
        return encode_sets(truth, self.items, self.labels)

    def _taken(self, rows: npt.NDArray[Any]) -> Self:
        start, at = blocks(self.set_indptr, np.arange(self.n_answers)[rows])
        return replace(super()._taken(rows), set_indptr=start, chosen=self.chosen[at])

    def _counted(self) -> dict[str, Any]:
        use, size = np.bincount(self.chosen, minlength=self.n_labels), np.diff(self.set_indptr)
        return {
            "labels": self.labels.tolist(),
            "labels_per_answer": spread(size),
            "empty_answers": int((size == 0).sum()),
            "chosen_per_label": dict(zip(map(str, self.labels.tolist()), use.tolist(), strict=True)),
            "all_offered": self.offered is None,
        }

    @property
    def known_truth(self) -> Mask:
        return np.zeros(0, dtype=bool) if self.known is None else self.known

    def to_frame(self, kind: str | None = None, *, delimiter: str = "|") -> Any:
        """One row per answer, the labels of a set written with a delimiter between them (nothing: the empty set)."""

        def written(codes: npt.NDArray[Any], ends: Counts) -> npt.NDArray[Any]:
            words = self.labels[codes].astype(str).tolist()
            return np.array([delimiter.join(words[a:b]) for a, b in pairwise(ends.tolist())], object)

        table = self._columns()
        out = {"item": table.pop("item"), "annotator": table.pop("annotator")}
        out["labels"] = written(self.chosen, self.set_indptr)
        if self.offered is not None:
            ends = np.append(0, np.cumsum(self.offered.sum(axis=1)))
            out["offered"] = written(np.nonzero(self.offered)[1], ends)[self.item]
        return frames.make_frame({**out, **table}, kind or self.kind)


read_label_sets = reader(LabelSets, "read_label_sets")


def _coded(source: Source) -> tuple[Codes, Codes, Vocabulary, Vocabulary]:
    """Items and annotators, both sorted."""
    item, items = encoding.sort_vocabulary(*source.coded("item"))
    who, annotators = encoding.sort_vocabulary(*source.coded("annotator"))
    return item, who, items, annotators
