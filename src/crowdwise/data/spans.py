"""The table of spans: which stretches of a text annotators marked, and as what. Spans may overlap and nest.

=============  =============  ================================================================================
field          shape          meaning
=============  =============  ================================================================================
``indptr``     N + 1          rows on item n are ``indptr[n]:indptr[n + 1]``
``annotator``  S              code of the annotator
``label``      S              code of the label, -1 in the row of an annotator who marked nothing
``start``      S              the first character (or token) of the span, -1 in such a row
``end``        S              the first one after the span, -1 in such a row
``length``     N or ``None``  how long the text of an item is
``truth``      N or ``None``  the true spans of an item, a tuple of (label, start, end); ``None`` where unknown
``items``, ``annotators``, ``labels``  the names behind the codes
=============  =============  ================================================================================

An annotator who looked at an item and found nothing there has one row, with empty label, start and end. Without that
row the annotator did not look. Rows are sorted by item, annotator, start, end and label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding, schema
from crowdwise.data.assemble import in_order
from crowdwise.data.encoding import Codes, Counts, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.data.places import row_label
from crowdwise.data.schema import ANNOTATOR, ITEM, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import ByItem, CodedTable, reader, spread
from crowdwise.data.truth import aligned
from crowdwise.errors import DuplicateError, InputError, LabelError, listing

PLACE = "a whole number from 0 on (empty, with label, start and end, for an annotator who marked nothing)"
LARGEST = 2**53

Span = tuple[Any, int, int]
"""Label, start, end."""


def _spans_in(source: Source, part: str, item: Codes, items: Vocabulary) -> dict[Any, list[Span]]:
    """Item -> its spans, from a table with a row for each; a row with an item alone says that it has none."""
    source.require(("item", "label", "start", "end"))
    label, labels, start, end = _marked(source)
    _check_rows((label < 0) & (start < 0) & (end < 0), label, start, end, source.places)
    out: dict[Any, list[Span]] = {}
    for n, k, a, b in zip(items[item].tolist(), label.tolist(), start.tolist(), end.tolist(), strict=True):
        out.setdefault(n, []).extend([(labels[k : k + 1].tolist()[0], a, b)] if k >= 0 else [])
    return out


@dataclass(frozen=True, eq=False, repr=False)
class Spans(CodedTable, ByItem):
    """A frozen, validated table of spans. Make one with a ``from_...`` method or :func:`crowdwise.read_spans`.

    >>> Spans.from_records([("doc", "ann", "PER", 0, 9), ("doc", "bob", "PER", 4, 9), ("doc", "cem", None, None, None)])
    Spans(2 spans: 1 item x 3 annotators x 1 label)
    """

    answer_type: ClassVar[str] = "spans"
    columns: ClassVar[tuple[Col, ...]] = (
        ITEM, ANNOTATOR, Col("label", "labels", needed=True), Col("start", needed=True), Col("end", needed=True),
        Col("timestamp"), Col("length", per="item"),
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (schema.on_missing("an item or annotator"),)
    _rows: ClassVar[str] = "spans"
    _act: ClassVar[str] = "marks"
    _by_item: ClassVar[tuple[str, ...]] = ("truth", "length")
    _truths: ClassVar[tuple[str, ...]] = ("start", "end", "label")
    _truth_in: ClassVar[Any] = staticmethod(_spans_in)

    indptr: Counts
    label: Codes
    start: Counts
    end: Counts
    labels: Vocabulary
    length: Counts | None = None

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Spans:
        source.require(cls._needed())
        source.complete(("item", "annotator"), options["on_missing"])
        (item, items), (annotator, annotators) = source.coded("item"), source.coded("annotator")
        label, labels, start, end = _marked(source)
        more: dict[str, Any] = {"items": items, "annotators": annotators, "labels": labels, **source.beside()}
        spans = cls.from_codes(item, annotator, label, start, end, **more)
        if "length" not in source:
            return spans
        sizes = _whole(source, "length")
        known = dict(zip(items[item].tolist(), sizes.tolist(), strict=True))
        odd = np.flatnonzero([known[name] != size for name, size in zip(items[item].tolist(), sizes, strict=True)])
        if len(odd):
            raise source.odd("length", int(odd[0]), "one length for all rows of an item", InputError)
        return spans.within({name: size for name, size in known.items() if size >= 0})

    @classmethod
    def from_codes(
        cls, item: npt.ArrayLike, annotator: npt.ArrayLike, label: npt.ArrayLike, start: npt.ArrayLike,
        end: npt.ArrayLike, *, items: Any, annotators: Any, labels: Any, **beside: Unpack[Beside],
    ) -> Spans:  # fmt: skip
        """Spans from arrays of codes and names; label, start and end are -1 where nothing was marked."""
        names, rows = encoding.to_vocabulary(labels), beside.get("rows")
        what, who = np.asarray(item, dtype=np.int64), np.asarray(annotator, dtype=np.int64)
        code, lo, hi = (np.asarray(part, dtype=np.int64) for part in (label, start, end))
        if len(code) and not -1 <= code.min() <= code.max() < len(names):
            raise InputError(f"The label codes run from {code.min()} to {code.max()}: expected -1 to {len(names) - 1}.")
        bare = (code < 0) & (lo == -1) & (hi == -1)
        _check_rows(bare, code, lo, hi, rows)
        order = np.lexsort((code, hi, lo, who, what))
        same = (np.diff(what[order]) == 0) & (np.diff(who[order]) == 0)
        twice = np.flatnonzero(same & np.all([np.diff(a[order]) == 0 for a in (code, lo, hi)], axis=0))
        both = np.flatnonzero(same & bare[order][:-1] & ~bare[order][1:])
        for odd, words in ((twice, "gives the same span"), (both, "has a row without a span beside spans")):
            if len(odd):
                where = row_label(order[odd[0] : odd[0] + 2].tolist(), rows)
                name = listing([encoding.to_vocabulary(annotators)[who[order[odd[0]]]]])
                raise DuplicateError(
                    f"Annotator {name} {words} in {where}: expected each span "
                    "once, or one row without a span. Leave one of the rows out."
                )
        kept = Beside(**{**beside, "on_duplicate": "all"})
        if (time := kept.get("timestamp")) is not None:
            kept["timestamp"] = time[order]

        def answers(then: npt.NDArray[Any] | None) -> dict[str, Any]:
            sorted_rows: dict[str, Any] = {"label": code[order].astype(np.int32), "start": lo[order], "end": hi[order]}
            return {name: in_order(array, then) for name, array in sorted_rows.items()} | {"labels": names}

        return cls._built(what[order], who[order], items, annotators, kept, answers, label=code)

    def __repr__(self) -> str:
        total = int((self.label >= 0).sum())
        return f"Spans({total:,} span{'s' * (total != 1)}: {self._sizes((len(self.labels), 'label'))})"

    def within(self, texts: Mapping[Any, Any]) -> Self:
        """The same spans with the lengths of the texts: a mapping from item to its text, its tokens or its length. A
        span that ends outside its text is an error."""
        size = {name: len(text) if isinstance(text, Sized) else int(text) for name, text in texts.items()}
        length = np.array([size.get(name, -1) for name in self.items.tolist()], dtype=np.int64)
        if len(length) and size and (length < 0).all():
            raise InputError(
                f"None of the {len(size):,} items with a text has spans: texts name {listing(size, 3)}, the spans "
                f"{listing(self.items, 3)}. Check that both name the items alike."
            )
        bad = np.flatnonzero((length[self.item] >= 0) & (self.end > length[self.item]))
        if len(bad):
            n, row = self.item[bad[0]], bad[0]
            raise InputError(
                f"The span {self.start[row]} to {self.end[row]} of annotator "
                f"{listing(self.annotators[self.annotator[[row]]])} on item {listing(self.items[[n]])} ends outside "
                f"its text, which has a length of {length[n]}: expected offsets in the same unit, characters or "
                "tokens, counted from 0. Correct the span or the text."
            )
        return replace(self, length=length)

    def encode_truth(self, truth: Any) -> npt.NDArray[Any]:
        """N tuples of (label, start, end), ``None`` where unknown: of such an array, or of a mapping of items."""
        return encode_spans(truth, self.items)

    def truth_frame(self) -> Any:
        return self._true_objects("start", "end")

    def _columns(self) -> dict[str, Any]:
        out = super()._columns()
        marked = self.label >= 0
        if not marked.all():
            for part in ("start", "end"):
                out[part] = np.where(marked, out[part].astype(object), None)
        if self.length is not None and (self.length < 0).any():
            out["length"] = np.where(out["length"] >= 0, out["length"].astype(object), None)
        return out

    def _counted(self) -> dict[str, Any]:
        marked = self.label >= 0
        use = np.bincount(self.label[marked], minlength=len(self.labels)).tolist()
        return {
            "labels": self.labels.tolist(), "length_of_spans": spread((self.end - self.start)[marked]),
            "answers_without_spans": int((~marked).sum()),
            "spans_per_label": dict(zip(map(str, self.labels.tolist()), use, strict=True)),
        }  # fmt: skip


def _whole(source: Source, part: str) -> Counts:
    """A column of offsets, -1 where it is empty."""
    values = source.numbers(part, PLACE, InputError, empty=True)
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~np.isnan(values) & ((values < 0) | (values != np.round(values)) | (values > LARGEST)))
    if len(bad):
        raise source.odd(part, int(bad[0]), PLACE, InputError)
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def _marked(source: Source) -> tuple[Codes, Vocabulary, Counts, Counts]:
    """Codes of labels (-1: none), their names, starts and ends of the rows of a table."""
    column = source.flat("label", "a label", LabelError)
    empty = column.is_null()
    if column.dtype == pl.String:
        empty = empty | column.str.strip_chars().eq("").fill_null(True)
    code, names = encoding.encode(column.filter(~empty))
    label = np.full(len(column), -1, dtype=np.int32)
    code, names = encoding.sort_vocabulary(code, names)  # the order of rows must not decide ties between labels
    label[(~empty).to_numpy()] = code
    return label, names, _whole(source, "start"), _whole(source, "end")


def _check_rows(bare: npt.NDArray[Any], label: npt.NDArray[Any], start: Counts, end: Counts, rows: Any) -> None:
    """An error where a row is neither a span nor wholly empty."""
    checks = (
        (label < 0, LabelError, "has no label", "a label with start and end, or all three empty"),
        (start < 0, InputError, "has no start from 0 on", "the offset of the first character (or token)"),
        (end < 0, InputError, "has no end", "the offset after the last character (or token)"),
        (end <= start, InputError, "ends where it starts or before", "an end after the start (the end is exclusive)"),
    )
    for wrong, error, what, expected in checks:
        bad = np.flatnonzero(wrong & ~bare)
        if len(bad):
            where, n = row_label(int(bad[0]), rows), bad[0]
            raise error(
                f"The span in {where} {what} (start {start[n]}, end {end[n]}; -1 "
                f"is empty): expected {expected}. Correct the row, or leave it out."
            )


def encode_spans(truth: Any, items: Vocabulary) -> npt.NDArray[Any]:
    """N tuples of (label, start, end), sorted by place; ``None`` where unknown."""
    rows, known = aligned(truth, items, "spans", "a mapping from item to its spans, or an array of them", "the spans")
    out = np.full(len(items), None, dtype=object)
    for n in np.flatnonzero(rows >= 0).tolist():
        spans = known[rows[n]]
        try:
            whole = {(label, int(start), int(end)) for label, start, end in spans}
        except (TypeError, ValueError):
            whole = {("", 0, 0)}
        if not all(0 <= start < end for _, start, end in whole):
            name = listing(items[[n]])
            raise InputError(f"The truth of item {name} is {spans!r}: expected (label, start, end), start < end.")
        out[n] = tuple(sorted(whole, key=lambda span: (span[1], span[2], str(span[0]))))
    return out


read_spans = reader(Spans, "read_spans")
