"""The base of all tables of answers: a frozen table that reads frames, records and files by its declared columns.

A subclass declares ``columns`` and ``options`` (:mod:`crowdwise.data.schema`), its arrays as dataclass fields, how a
frame that was read becomes codes (``_from_source``) and how some of its rows are kept (``_kept``). Everything that
tables share is here.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, columns, encoding, files, frames, schema, truth
from crowdwise.data.assemble import Repeats
from crowdwise.data.boundary import guarded
from crowdwise.data.encoding import Codes, Counts, Mask, Vocabulary
from crowdwise.data.files import PathLike
from crowdwise.data.places import Lines
from crowdwise.data.readable import Readable
from crowdwise.data.rows import blocks, checked_mask, positions, spread
from crowdwise.data.schema import Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.errors import ColumnError, ReadError, listing


class Table(Readable, ABC):
    """A frozen table in which every row is by an annotator; its length is the number of items."""

    answer_type: ClassVar[str]
    """The name of such answers in the registry, on the command line and in files."""
    _reading: ClassVar[tuple[Opt, ...]] = (schema.TRUTH_PATH,)
    _act: ClassVar[str] = "answers about"
    """What an annotator does to an item, in messages."""
    _keys: ClassVar[tuple[str, ...]] = ("item",)
    _truths: ClassVar[tuple[str, ...]] = ("truth", "label")
    """The columns of a file of truths: what its rows are about, and where the truth may be, the first found."""
    _truth_in: ClassVar[Callable[[Source, str, Codes, Vocabulary], dict[Any, Any]]] = staticmethod(truth.classes_in)
    """What reads such a column, item by item."""
    _by_item: ClassVar[tuple[str, ...]] = ("truth",)
    """The arrays with an entry for each item, besides their names."""
    _distinct: ClassVar[bool] = False
    """Whether an index may name an item only once."""
    kind: str

    if TYPE_CHECKING:  # fields of every table

        @property
        def items(self) -> Vocabulary: ...

        @property
        def annotator(self) -> Codes: ...

        @property
        def annotators(self) -> Vocabulary: ...

        @property
        def weight(self) -> npt.NDArray[np.float64] | None: ...

        @property
        def timestamp(self) -> npt.NDArray[Any] | None: ...

    @classmethod
    def _beside(cls, beside: Beside, S: int) -> tuple[dict[str, Any], Repeats]:
        """What lies beside S rows, as fields, and what to do with those that are given twice."""
        rows = beside.get("rows")
        weight, timestamp = assemble.checked_beside(beside.get("weight"), beside.get("timestamp"), S, rows, cls._rows)
        options = {option.name: option for option in cls.options}
        default, choices = (o.default, o.choices) if (o := options.get("on_duplicate")) else ("all", ("all",))
        asked = beside.get("on_duplicate", default)
        repeats = asked if isinstance(asked, Repeats) else Repeats(asked, choices, cls._rows, cls._act, rows)
        return {"weight": weight, "timestamp": timestamp, "kind": beside.get("kind", "polars")}, repeats

    @classmethod
    def _arranged(
        cls, group: Codes, annotator: Codes, groups: Any, annotators: Vocabulary,
        answers: Callable[[npt.NDArray[Any] | None], dict[str, Any]], beside: Beside,
    ) -> Self:  # fmt: skip
        """A table whose rows are sorted by a group (their item, their pair) and the annotator.

        ``groups`` are the names of the groups; ``answers`` gives the further fields, with rows in the order it is given
        (``None``: as they are).
        """
        fields, repeats = cls._beside(beside, len(group))
        order, indptr, who = assemble.arrange(group, annotator, groups, annotators, repeats)
        for name in ("weight", "timestamp"):
            fields[name] = None if fields[name] is None else assemble.in_order(fields[name], order)
        fields |= {"indptr": indptr, "annotator": who, "annotators": annotators, **answers(order)}
        made = cls(**fields)
        truth = beside.get("truth")
        return made if truth is None else made.with_truth(truth)

    def __len__(self) -> int:
        return self._size("items")

    @property
    def shape(self) -> tuple[int]:
        """``(N,)``: scikit-learn's splitters index answers by item."""
        return (len(self),)

    @property
    def n_items(self) -> int:
        """N, the number of items, as ``len(table)``."""
        return len(self)

    @property
    def n_annotators(self) -> int:
        """M, the number of annotators."""
        return self._size("annotators")

    @property
    def n_answers(self) -> int:
        """S, the number of rows."""
        return len(self.annotator)

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weight of every row, ones where none were given."""
        return np.ones(self.n_answers) if self.weight is None else self.weight

    def describe(self) -> dict[str, Any]:
        """Counts that show the shape of the data, as a plain dict (``crowdwise describe`` draws it)."""
        per_annotator = np.bincount(self.annotator, minlength=self.n_annotators)
        return {
            "items": len(self), "annotators": self.n_annotators, self._rows: self.n_answers,
            f"{self._rows}_per_item": spread(self._per_item()), f"{self._rows}_per_annotator": spread(per_annotator),
            **self._counted(), "weighted": self.weight is not None, "timestamps": self.timestamp is not None,
            **self._known(),
        }  # fmt: skip

    @abstractmethod
    def _per_item(self) -> npt.NDArray[Any]:
        """The number of rows about each item."""

    def _counted(self) -> dict[str, Any]:
        """The counts that are particular to a table."""
        return {}

    def _known(self) -> dict[str, Any]:
        """Of how many items the truth is known."""
        true = getattr(self, "truth", None)
        known = np.zeros(0) if true is None else ~np.isnan(true) if true.dtype.kind == "f" else true >= 0
        return {"items_with_truth": int(known.sum())}

    def __getitem__(self, index: Any) -> Self:
        """The answers on some items: an integer, a slice, an array of positions or a mask. Annotators keep their codes.
        Where an answer is about several items, it stays if all of them do."""
        return self._of_items(positions(index, len(self), type(self).__name__, distinct=self._distinct))

    def select(self, rows: npt.ArrayLike) -> Self:
        """Some of the rows, by a mask. Items and annotators keep their codes, even without any."""
        return self._kept(checked_mask(rows, self.n_answers, self._rows))

    def only(self, annotators: Sequence[Any]) -> Self:
        """The rows of some annotators, by name. Items keep their codes, even those left without any."""
        return self._by(assemble.chosen_annotators(annotators, self.annotators, self._rows))

    def without(self, annotators: Sequence[Any]) -> Self:
        """The rows of everybody but some annotators, by name."""
        return self._by(~assemble.chosen_annotators(annotators, self.annotators, self._rows))

    def _by(self, chosen: Mask) -> Self:
        """The rows of some annotators, by a mask over them."""
        kept = self._kept(chosen[self.annotator])
        code = (np.cumsum(chosen) - 1)[kept.annotator].astype(np.int32)
        return replace(kept, annotators=self.annotators[chosen], annotator=code)

    @abstractmethod
    def _of_items(self, items: Counts) -> Self:
        """The answers on some items, by position."""

    def _kept(self, mask: Mask) -> Self:
        """The rows of a mask, with items and annotators as they are."""
        return replace(self, **self._at(mask))

    def _at(self, rows: npt.NDArray[Any]) -> dict[str, Any]:
        """Some rows of every array that has one entry for each."""
        fields = self.__dataclass_fields__
        arrays = {c.name: getattr(self, c.name) for c in self.columns if c.per == "row" and c.name in fields}
        return {name: None if array is None else array[rows] for name, array in arrays.items()}

    def _about(self, items: Counts) -> dict[str, Any]:
        """Some items of every array that has one entry for each."""
        arrays = {name: getattr(self, name) for name in ("items", *self._by_item)}
        return {name: None if array is None else array[items] for name, array in arrays.items()}

    @classmethod
    @guarded
    def read_truth(cls, path: PathLike, **named: str | None) -> dict[Any, Any]:
        """Item -> what is true of it, from a file with an item column and one of the answers (or of the truth).
        ``item=`` and the name of the answer, such as ``label=``, name the columns where they are called otherwise."""
        file = files.TableFile.of(path)
        table, from_text = file.read()
        answer = cls._truths[-1]
        known = [Col(name) for name in (*cls._keys, *cls._truths)]
        given, _ = schema.sort_out(named, known, (), f"{cls.__name__}.read_truth")
        if named.get(answer) is not None:
            given |= {cls._truths[0]: named[answer], answer: None}
        parts = columns.resolve(table.columns, given)
        value = next((part for part in cls._truths if parts[part] is not None), answer)
        needed = (*cls._keys, value)
        free = columns.left_over(table.columns, {part: parts[part] for part in needed})
        if table.width == len(needed):  # the columns that are left, in this order, whatever they are called
            parts |= zip((part for part in needed if parts[part] is None), free, strict=True)
        if any(parts[part] is None for part in needed):
            words = ", ".join(f"{'an' if key == 'item' else 'a'} {key} column" for key in cls._keys)
            raise ColumnError(
                f"A truth table needs {words} and a {answer} column: found {listing(table.columns, 12)}. Call them "
                f"{' and '.join((*cls._keys, answer))}, or leave all other columns out."
            )
        whole = np.flatnonzero(~np.any([table[str(parts[key])].is_null().to_numpy() for key in cls._keys], axis=0))
        found: dict[Any, Any] = {}
        if len(whole):
            source = Source(table, given, "truths", from_text=from_text, parts=parts, lines=Lines.of(file, table))
            source.keep(whole)
            found = cls._truth_in(source, value, *cls._keyed(source))
        if not found:
            raise ReadError(f"{path} names no true {answer}: every row is empty.")
        return found

    @classmethod
    def truth_of(cls, given: Any) -> Any:
        """Truth in any form that ``encode_truth`` takes; a file is read."""
        return cls.read_truth(given) if isinstance(given, (str, os.PathLike)) else given

    @classmethod
    def _keyed(cls, source: Source) -> tuple[npt.NDArray[Any], Vocabulary]:
        """What each row of a table of truths is about, and the names of that."""
        return source.coded("item")

    @classmethod
    def _from_file(cls, source: Source, values: dict[str, Any]) -> Self:
        path = values.get("truth_path")
        made = super()._from_file(source, values)
        return made if path is None else made.with_truth(cls.read_truth(path))

    def with_truth(self, truth: Any) -> Self:
        """The same answers with the truth, in any form that ``encode_truth`` takes, or ``None``."""
        return replace(self, truth=None if truth is None else self.encode_truth(truth))

    @abstractmethod
    def encode_truth(self, truth: Any) -> Any:
        """The truth as arrays in the order of items."""

    def to_frame(self, kind: str | None = None) -> Any:
        """The long table again, one row per answer: ``"pandas"``, ``"polars"``, ``"pyarrow"`` or a ``"dict"`` of
        arrays. By default as it came; polars where it came from a file, a dict, records or arrays."""
        return frames.make_frame(self._columns(), kind or self.kind)

    def _columns(self) -> dict[str, Any]:
        """The columns of the long table, with names for codes."""
        out = {}
        for column in self.columns:
            values = getattr(self, column.name, None) if column.per else None
            if values is not None:
                values = values[self.item] if column.per == "item" else values
                out[column.name] = named(values, getattr(self, column.of)) if column.of else values
        return out


class ByItem(Table):
    """Answers on one item each, sorted by it: those on item n are rows ``indptr[n]:indptr[n + 1]``."""

    indptr: Counts

    @property
    def item(self) -> Counts:
        """The item code of every row."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def _per_item(self) -> npt.NDArray[Any]:
        return np.diff(self.indptr)

    @classmethod
    def _built(
        cls, item: Any, annotator: Any, items: Any, annotators: Any, beside: Beside,
        answers: Callable[[npt.NDArray[Any] | None], dict[str, Any]], **said: npt.NDArray[Any],
    ) -> Self:  # fmt: skip
        """A table from codes, which are checked, and answers as in ``_arranged``; ``said`` has one entry for each."""
        items, annotators = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        item = assemble.checked_codes(item, items, "item")
        annotator = assemble.checked_codes(annotator, annotators, "annotator")
        assemble.equally_long(cls._rows, item=item, annotator=annotator, **said)
        return cls._arranged(item, annotator, items, annotators, lambda o: {"items": items, **answers(o)}, beside)

    def _of_items(self, items: Counts) -> Self:
        indptr, take = blocks(self.indptr, items)
        return replace(self._taken(take), indptr=indptr, **self._about(items))

    def _kept(self, mask: Mask) -> Self:
        return replace(self._taken(mask), indptr=assemble.boundaries(self.item[mask], len(self)))

    def _taken(self, rows: npt.NDArray[Any]) -> Self:
        """Some rows, by position or mask; where items begin is for the caller to mend."""
        return replace(self, **self._at(rows))


def named(codes: npt.NDArray[Any], names: Any) -> npt.NDArray[Any]:
    """The names behind codes, ``None`` where a code is -1."""
    known = np.asarray(names)
    if len(codes) == 0 or codes.min() >= 0:
        return np.asarray(known[codes])
    return np.asarray(np.array([*known.tolist(), None], dtype=object)[codes])
