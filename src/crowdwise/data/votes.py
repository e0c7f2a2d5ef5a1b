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
``n_options``  N or ``None``               how many options an item has, where each has its own
``items``, ``annotators``, ``classes``     the names behind the codes
=============  ==========================  =====================================================

``truth`` is there to measure with: no method looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding, frames, schema, spellings
from crowdwise.data.alignment import spread_over
from crowdwise.data.boundary import caller_within, scored_by_sklearn
from crowdwise.data.encoding import Codes, Counts, Vocabulary
from crowdwise.data.files import PathLike
from crowdwise.data.heavy import pl
from crowdwise.data.schema import ANNOTATOR, CHOICES, COMMON, FORM, ITEM, Beside, Col, OnDuplicate, Opt
from crowdwise.data.soft_votes import NOT_BOTH, soft_votes
from crowdwise.data.source import Source
from crowdwise.data.table import ByItem, dense, reader
from crowdwise.data.truth import classes_in, encode_classes
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, listing, several_names

KIND = " By default those that occur, sorted; a pandas ``category`` or polars ``Enum`` column declares its own."


STRATIFIED = (
    "Folds are stratified by one label per item, and votes are several. Take KFold or ShuffleSplit, or stratify by "
    "consensus labels: stratify=crowdwise.aggregate(votes).labels."
)
ONE_LABEL = {
    "_make_test_folds": STRATIFIED, "split": STRATIFIED,
    "cross_val_predict":
        "Probabilities of cross_val_predict need one label per item in y, and votes are several. Take "
        "method='predict', or fit on each fold of KFold and predict_proba for the others.",
}  # fmt: skip
"""Functions of scikit-learn that make one label per item of votes -> what to do instead."""


@dataclass(frozen=True, eq=False, repr=False)
class Votes(ByItem):
    """A frozen, validated table of votes. Make one with a ``from_...`` method or :func:`crowdwise.read_votes`.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_records([("a", "ann", "cat"), ("a", "bob", "dog"), ("b", "ann", "dog")])
    >>> votes
    Votes(3 votes: 2 items x 2 annotators x 2 classes)
    >>> votes[[1]].to_frame("dict")["label"].tolist()
    ['dog']
    >>> votes.select(votes.label == 1)
    Votes(2 votes: 2 items x 2 annotators x 2 classes)
    """

    answer_type: ClassVar[str] = "votes"
    columns: ClassVar[tuple[Col, ...]] = (
        ITEM, ANNOTATOR, Col("label", "classes", needed=True), *COMMON, Col("truth", "classes", per="item"),
        Col("n_options", per="item"),
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        schema.declared("classes", "classes", KIND), FORM, schema.ANNOTATOR_COLUMNS, schema.ANONYMOUS, schema.QUESTION,
        schema.ABSTAIN,
        schema.on_duplicate("labelled an item", *CHOICES), schema.on_missing("a label"), spellings.NORMALISE,
        spellings.LABEL_MAP,
        Opt("probability", None,
            "The column of how probable annotators (judges) find their label, or the beginning of the names of such "
            "columns, one for each class (``probability`` for ``probability_yes`` and ``probability_no``); also of "
            "logarithms. Votes then weigh as their log-odds, on a scale that a fit learns for each annotator.",
            str | None),
    )  # fmt: skip
    _rows: ClassVar[str] = "votes"
    _act: ClassVar[str] = "labels item"
    _by_item: ClassVar[tuple[str, ...]] = ("truth", "n_options")
    _forms: ClassVar[str] = "Either in long form (one row per vote) or in wide form (one column per annotator)."

    indptr: Counts
    annotator: Codes
    label: Codes
    items: Vocabulary
    annotators: Vocabulary
    classes: Vocabulary
    weight: npt.NDArray[np.float64] | None = None
    timestamp: npt.NDArray[Any] | None = None
    truth: Codes | None = None
    kind: str = "polars"
    n_options: Counts | None = None

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Votes:
        abstain = options["abstain"]
        if options["anonymous"]:
            source.number_votes()
        if options["probability"] is not None:
            if abstain is not None:
                raise ParameterError("probability and abstain do not go together: leave one of them out.")
            if "weight" in source and source.parts["weight"] != options["probability"]:
                raise ParameterError(NOT_BOTH.format(source.parts["weight"]))
            source.unpivot_classes("label", options["probability"])
        wide = source.lengthen(
            options["form"], "label", alike=True, keep_empty=abstain is not None, named=options["annotator_columns"]
        )
        categories = None if wide else frames.categories(source.frame, source.parts["label"])
        if options["label_map"] is not None:
            source.map_labels(("label", "truth"), spellings.as_label_map(options["label_map"]))
        if source.from_text:
            spellings.check_dates(source["label"])
        if abstain is not None:
            source.silence("label", abstain)
        source.complete(cls._needed() if abstain is None else ("item", "annotator"), options["on_missing"])
        has_truth = "truth" in source
        item, items = source.coded("item") if has_truth else source.coded_lazily("item")
        annotator, annotators = source.coded("annotator")
        truth = classes_in(source, "truth", item, items) if has_truth else None
        n_options = _options_in(source, item, items) if "n_options" in source else None
        if abstain is not None:
            voted = source.answered("label")
            item, annotator = item[voted], annotator[voted]
        label, classes = coded_labels(source, options["classes"], options["normalise_labels"], categories, abstain)
        beside: dict[str, Any] = source.beside(options) | {"truth": truth}
        if "probability" in source:
            p = source.numbers("probability", "a probability, or its logarithm")
            soft = soft_votes(item, annotator, label, p, (items, annotators, classes))
            item, annotator, label, beside["weight"] = soft
            beside |= {"timestamp": None, "rows": None, "on_duplicate": "all"}
        source.release()
        votes = cls.from_codes(item, annotator, label, items=items, annotators=annotators, classes=classes, **beside)
        return votes if n_options is None else votes.with_options(n_options)

    @classmethod
    def from_dense(
        cls, labels: Any, *, missing: Any = None, items: Sequence[Any] | None = None,
        annotators: Sequence[Any] | None = None, classes: Sequence[Any] | None = None, truth: Any = None,
    ) -> Votes:  # fmt: skip
        """Votes from an N x M array, one row per item and one column per annotator.

        A cell is missing where the array is masked, NaN, ``None`` or blank, or equals ``missing``.

        >>> import numpy as np
        >>> Votes.from_dense(np.array([[0, 1, -1], [1, 1, 0]]), missing=-1)
        Votes(5 votes: 2 items x 3 annotators x 2 classes)
        """
        given, cells = dense(labels, items, annotators, missing)
        code, names = encoding.encode(frames.make_frame({"label": given})["label"])
        if missing is None and classes is None:
            spellings.point_out_abstentions(code, names, "missing")
        return cls.from_codes(label=code, label_names=names, classes=classes, truth=truth, **cells)

    @classmethod
    def from_codes(
        cls, item: npt.ArrayLike, annotator: npt.ArrayLike, label: npt.ArrayLike, *, items: Any, annotators: Any,
        classes: Any = None, label_names: Any = None, **beside: Unpack[Beside],
    ) -> Votes:  # fmt: skip
        """Votes from three arrays of codes and the names behind them (what every other way of making one ends in).

        ``label`` holds codes into ``label_names`` where given, else into ``classes``.
        """
        if label_names is None and classes is None:
            raise ParameterError("Votes.from_codes needs classes, or label_names to sort them from.")
        names = encoding.to_vocabulary(classes if label_names is None else label_names)
        code = assemble.checked_codes(label, names, "label")
        code, classes = assemble.declare(code, names, names if label_names is None else classes)
        small = np.int8 if len(classes) < 128 else np.int32  # stays in the cache while it is sorted

        def answers(order: npt.NDArray[Any] | None) -> dict[str, Any]:
            return {"label": assemble.in_order(code.astype(small), order, np.int32), "classes": classes}

        return cls._built(item, annotator, items, annotators, beside, answers, label=code)

    @classmethod
    def none(cls, annotators: Vocabulary, classes: Vocabulary) -> Votes:
        """No votes at all, for what looks only at the names of annotators and classes."""
        empty = np.zeros(0, dtype=np.int32)
        return cls(np.zeros(1, dtype=np.int64), empty, empty, np.empty(0, dtype=object), annotators, classes)

    @staticmethod
    def concat(tables: Sequence[Votes], *, on_duplicate: OnDuplicate = "error") -> Votes:
        """One table from several, matched by the names of items, annotators and classes."""
        options = {
            name: n for t in tables if t.n_options is not None for name, n in zip(t.items, t.n_options, strict=True)
        }
        votes = Votes.from_codes(**_joined(tables), on_duplicate=on_duplicate)
        return votes.with_options(options) if options else votes

    @property
    def n_votes(self) -> int:
        """S, the number of votes (``len(votes)`` is the number of items)."""
        return len(self.label)

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return len(self.classes)

    def __repr__(self) -> str:
        M, K = self.n_annotators, self.n_classes
        return f"Votes({self.n_votes:,} votes: {len(self):,} items x {M:,} annotators x {K:,} classes)"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """N entries, the votes on each item as a dict: what scikit-learn counts and splits.

        Its metrics take votes for true labels: they get the truth of the votes, or an error where there is none. What
        needs one label per item gets an error.
        """
        if caller_within("sklearn.metrics"):
            return self.true_labels()
        asked = caller_within("sklearn.model_selection")
        if asked == "check_cv" and scored_by_sklearn():
            self.true_labels()
        if asked in ONE_LABEL:
            raise InputError(ONE_LABEL[asked])
        out, names = np.empty(len(self), dtype=object), self.classes[self.label].tolist()
        who = self.annotators[self.annotator].tolist()
        for n in range(len(self)):
            lo, hi = self.indptr[n], self.indptr[n + 1]
            out[n] = dict(zip(who[lo:hi], names[lo:hi], strict=True))
        return out

    def true_labels(self) -> npt.NDArray[Any]:
        """The true class of every item; an error where one is not known."""
        known = None if self.truth is None else self.truth >= 0
        if known is None or not known.all():
            some = "none is known" if known is None else f"it is known of {int(known.sum())} of these {len(self)} items"
            raise InputError(
                f"scoring= measures predictions against one true label per item, and {some}. Give votes with truth, "
                "votes.with_truth(truth), and scoring=crowdwise.metrics.accuracy_on_truth, which leaves out items "
                "without; or leave scoring out, to score by the likelihood of the votes."
            )
        labels = self.classes[self.truth]
        return np.array(labels.tolist()) if labels.dtype == object else labels

    def shares(self) -> npt.NDArray[np.float64]:
        """N x K: the (weighted) share of each class among an item's votes; uniform where an item has none."""
        from crowdwise import kernels

        weight = np.empty(0) if self.weight is None else self.weight
        return kernels.shares(self.indptr, self.label, weight, self.n_classes)

    def cells(self) -> npt.NDArray[np.integer[Any]]:
        """The cell of each vote in a table of annotators and labels: annotator * K + label."""
        M, K = self.n_annotators, self.n_classes
        cell: npt.NDArray[np.integer[Any]] = self.annotator.astype(np.int64 if M * K > 2**31 - 1 else np.int32)
        cell *= K
        cell += self.label
        return cell

    def usable_gold(self, gold: Mapping[Any, Any]) -> dict[Any, Any]:
        classes = set(map(str, self.classes.tolist()))
        return {item: labels[0] for item, labels in gold.items() if len(labels) == 1 and str(labels[0]) in classes}

    def encode_truth(self, truth: Any) -> Codes:
        """N class codes (-1 unknown) from such codes or from a mapping of items to classes. Items the votes do not have
        are left out."""
        return encode_classes(truth, self.items, self.classes, self._rows)

    def with_options(self, n_options: Mapping[Any, int] | None) -> Votes:
        """The same votes on items that have options of their own, as in a quiz: item -> how many it has.

        >>> quiz = Votes.from_records([("q1", "ann", "A"), ("q1", "bob", "B"), ("q2", "ann", "A")])
        >>> quiz.with_options({"q1": 4, "q2": 2}).n_options.tolist()
        [4, 2]
        """
        if n_options is None:
            return replace(self, n_options=None)
        names = self.items.tolist()
        lost = [name for name in names if name not in n_options]
        if lost:
            raise InputError(f"The number of options is missing for {listing(lost)}. Give it for every item.")
        count = np.array([n_options[name] for name in names])
        used = np.zeros(len(self), dtype=np.int64)
        np.add.at(used, np.unique(self.item * self.n_classes + self.label) // self.n_classes, 1)
        if count.dtype.kind not in "iu" or (count < np.maximum(used, 2)).any():
            at = 0 if count.dtype.kind not in "iu" else int(np.argmax(count < np.maximum(used, 2)))
            raise InputError(
                f"Item {names[at]!r} has {count[at]} options and {used[at]} different labels: expected a whole number "
                "of options, 2 or more, and at least as many as labels. Correct the number, or the labels."
            )
        return replace(self, n_options=count.astype(np.int64))

    def with_items(self, items: Sequence[Any]) -> Votes:
        """The same votes among all of these items, in this order: those without votes have none."""
        names = encoding.to_vocabulary(several_names(items, "items"))
        encoding.check_distinct(names, "items")
        lost = self.items[encoding.locate(self.items, names) < 0]
        if len(lost):
            raise InputError(
                f"The votes are on {listing(lost)}, which the list of items does not have. Add them to it."
            )
        if self.n_options is not None and len(names) > len(self):
            raise InputError("The items have options of their own: give the number with votes on every item.")
        return spread_over(self, names)  # type: ignore[no-any-return]

    def _counted(self) -> dict[str, Any]:
        N, K, per_item = len(self), self.n_classes, np.diff(self.indptr)
        use, paired = np.bincount(self.label, minlength=K), per_item >= 2
        counts = np.bincount(self.item * K + self.label, minlength=N * K).reshape(N, K)
        return {
            "classes": self.classes.tolist(),
            "votes_per_class": dict(zip(map(str, self.classes.tolist()), use.tolist(), strict=True)),
            "items_without_votes": int((per_item == 0).sum()),
            "items_with_one_vote": int((per_item == 1).sum()),
            "unanimous": float((counts.max(axis=1) == per_item)[paired].mean()) if paired.any() else None,
            "density": self.n_votes / max(1, N * self.n_annotators),
        }


read_votes = reader(Votes, "read_votes")


def read_truth(path: PathLike, *, item: str | None = None, label: str | None = None) -> dict[Any, Any]:
    """Item -> true class from a file with an item column and a label (or truth) column."""
    return Votes.read_truth(path, item=item, label=label)


def _joined(tables: Sequence[Any]) -> dict[str, Any]:
    """The arguments of ``Votes.from_codes`` for all rows of several tables: see :meth:`crowdwise.Votes.concat`."""
    if not tables:
        raise InputError("Nothing to concatenate: the list of votes is empty.")
    classes = _union([t.classes for t in tables])
    if all(t.classes.tolist() == sorted(t.classes.tolist()) for t in tables):  # the order of the tables must not matter
        classes = classes[np.argsort(classes)]
    items, annotators = _union([t.items for t in tables]), _union([t.annotators for t in tables])
    truth = np.full(len(items), -1, dtype=np.int32)
    for t in tables:
        if t.truth is not None:
            known = t.truth >= 0
            where = encoding.locate(t.items, items)[known]
            codes = encoding.recode(t.truth, encoding.locate(t.classes, classes))[known]
            clash = (truth[where] >= 0) & (truth[where] != codes)
            if clash.any():
                raise LabelError(
                    f"The tables disagree about the truth of {listing(items[where[clash]])}. "
                    "Correct one of them, or drop it: votes.with_truth(None)."
                )
            truth[where] = codes

    def every(name: str) -> npt.NDArray[Any] | None:
        if all(getattr(t, name) is None for t in tables):
            return None
        if name == "timestamp" and any(t.timestamp is None for t in tables):
            raise InputError(
                "Some of the tables have timestamps and some do not. Give all of them timestamps, or none."
            )
        if name == "timestamp" and len({t.timestamp.dtype.kind for t in tables if t.timestamp is not None}) > 1:
            raise InputError(
                "The timestamps are dates in some of the tables and numbers in others. Convert one of them first."
            )
        return np.concatenate([t.weights if name == "weight" else getattr(t, name) for t in tables])

    return {
        "item": np.concatenate([encoding.locate(t.items, items)[t.item] for t in tables]),
        "annotator": np.concatenate([encoding.locate(t.annotators, annotators)[t.annotator] for t in tables]),
        "label": np.concatenate([encoding.recode(t.label, encoding.locate(t.classes, classes)) for t in tables]),
        "items": items, "annotators": annotators, "classes": classes, "weight": every("weight"),
        "timestamp": every("timestamp"), "truth": truth if any(t.truth is not None for t in tables) else None,
        "kind": tables[0].kind,
    }  # fmt: skip


def _options_in(source: Source, item: Codes, items: Any) -> dict[Any, int]:
    """Item -> the number of its options, from a column of numbers or of options separated by ``|``."""
    column, names = source["n_options"], np.asarray(getattr(items, "array", items))
    if column.dtype == pl.String and column.str.contains("|", literal=True).any():
        values = column.str.count_matches("|", literal=True).cast(pl.Float64).to_numpy() + 1.0
    else:
        values = source.numbers("n_options", "a whole number of options, or options separated by |", InputError)
    first = np.full(len(names), np.nan)
    first[item[::-1]] = values[::-1]
    odd = np.flatnonzero((values != first[item]) | (values != np.round(values)))
    if len(odd):
        raise source.odd("n_options", int(odd[0]), "one whole number for all rows of an item", InputError)
    return dict(zip(names.tolist(), first.astype(np.int64).tolist(), strict=True))


def _union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    if len({v.dtype.kind for v in vocabularies if len(v)}) > 1:
        raise ColumnError(
            "The tables cannot be joined: a name is text in one and a number or a boolean in "
            "another. Convert one of them first."
        )
    return encoding.to_vocabulary(list(dict.fromkeys(name for v in vocabularies for name in v.tolist())))


def coded_labels(
    source: Source, classes: Sequence[Any] | None, normalise: bool, categories: Sequence[Any] | None = None,
    abstain: Any = None,
) -> tuple[Codes, Vocabulary]:  # fmt: skip
    """The codes of the column of labels, and the classes: those declared, or the categories, or the labels, sorted; but
    for the one that stands for no answer."""
    label, names = source.coded("label")
    if source.from_text:
        label, names = encoding.booleans_in_text(label, names)
    label, names = spellings.in_codes(label, names, normalise, classes)
    if names.dtype == object and len(names) <= max(spellings.MOST_TEXTS, spellings.TEXTS * len(label)):
        spellings.point_out_proposals(spellings.counted_codes(label, names), classes)
    if source.from_text and normalise:
        label, names = encoding.integers_in_text(label, names)
    declared = _declared(classes, names, source["label"], categories)
    if abstain is not None and classes is None and declared is not None:
        declared = [name for name in declared if str(name).casefold() != str(abstain).casefold()]
    elif abstain is None and declared is None:
        spellings.point_out_abstentions(label, names, "abstain")
    return assemble.declare(label, names, declared)


def _declared(classes: Sequence[Any] | None, names: Vocabulary, column: Any, categories: Sequence[Any] | None) -> Any:
    """The declared classes: the caller's, brought to the type of the labels, or the categories of the column."""
    if classes is None:
        return column.dtype.categories.to_list() if isinstance(column.dtype, pl.Enum) else categories
    declared = encoding.to_vocabulary(list(classes))
    if names.dtype != object and declared.dtype == object and all(isinstance(c, str) for c in declared):
        # Classes given as text (on a command line) for labels that turned out to be integers or booleans.
        words = [c.lower() for c in declared.tolist()]
        if names.dtype == bool and set(words) <= {"true", "false"}:
            declared = encoding.to_vocabulary([w == "true" for w in words])
        elif (
            names.dtype.kind == "i"
            and encoding.integers_in_text(np.arange(len(declared), dtype=np.int32), declared)[1].dtype.kind == "i"
        ):
            declared = encoding.to_vocabulary([int(w) for w in words])
    elif names.dtype != object and declared.dtype != object and names.dtype != declared.dtype:
        raise LabelError(
            f"The labels are {names.dtype} values and the declared classes {declared.dtype}: give the "
            f"classes as {names.dtype} values."
        )
    return declared
