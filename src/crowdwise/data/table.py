"""The base of all tables of answers: a frozen table that reads frames, records and files by its declared columns.

A subclass declares ``columns`` and ``options`` (:mod:`crowdwise.data.schema`), its arrays as dataclass fields, how a
frame that was read becomes codes (``_from_source``) and how some of its rows are kept (``_kept``). Everything that
tables share is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, columns, files, frames, schema, truth
from crowdwise.data.assemble import Repeats
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.files import PathLike
from crowdwise.data.frozen import Frozen
from crowdwise.data.rows import blocks, checked_mask, columns_of, positions, spread
from crowdwise.data.schema import Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.errors import ColumnError, ReadError, listing

__all__ = ["ByItem", "Table"]

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Reader = TypeVar("Reader", bound=Callable[..., Any])


class Readable(Frozen):
    """What is made from frames, records and files by a declaration of its columns."""

    columns: ClassVar[tuple[Col, ...]]
    options: ClassVar[tuple[Opt, ...]] = ()
    _reading: ClassVar[tuple[Opt, ...]] = ()
    """Further options of the file reader."""
    _rows: ClassVar[str] = "answers"
    """What rows are called in messages."""
    _record: ClassVar[tuple[str, ...]] = ()
    """The columns of a record that is a tuple; the needed ones by default."""
    _forms: ClassVar[str] = ""
    """What a frame may look like, for ``help()``."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "columns" not in cls.__dict__:
            return
        any_frame = "pandas, polars, pyarrow, a dict of columns, anything narwhals or the Arrow stream protocol takes"
        tuples = ", ".join(cls._record or cls._needed())
        made = {
            "from_frame": ("frame", (), f"{cls.__name__} from a table: {any_frame}.\n\n{cls._forms}".strip()),
            "from_records": (
                "records", (), f"{cls.__name__} from rows: tuples ({tuples}), with a weight or without, or dicts.",
            ),
            "read": ("path", (*cls._reading, *schema.FILE), f"{cls.__name__} from a file. {FORMATS}"),
        }  # fmt: skip
        for name, (first, further, summary) in made.items():
            if name in cls.__dict__:
                continue  # it has a signature of its own
            function = _own(cls, name)
            schema.documented(function, first, cls.columns, (*cls.options, *further), summary)
            setattr(cls, name, classmethod(function))
        if "from_codes" in cls.__dict__:
            repeated = next((o.default for o in cls.options if o.name == "on_duplicate"), "all")
            schema.spelled_out(cls.__dict__["from_codes"].__func__, repeated)

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_frame(cls, frame: Any, **options: Any) -> Self:
        """From any dataframe; see ``help()`` of a table's own method for its columns and options."""
        given, values = schema.sort_out(options, cls.columns, cls.options, f"{cls.__name__}.from_frame")
        return cls._from_source(Source(frame, given, cls._rows), **values)

    @classmethod
    def from_records(cls, records: Iterable[Any], **options: Any) -> Self:
        """From rows: tuples of the needed columns, or dicts."""
        optional = ["weight"] if any(column.name == "weight" for column in cls.columns) else []
        return cls.from_frame(
            columns_of(records, cls._record or cls._needed(), cls._rows, optional=optional), **options
        )

    @classmethod
    def read(cls, path: PathLike, **options: Any) -> Self:
        """From a file."""
        every = (*cls.options, *cls._reading, *schema.FILE)
        given, values = schema.sort_out(options, cls.columns, every, f"{cls.__name__}.read")
        return cls._from_file(cls._opened(path, given, values), values)

    @classmethod
    def _opened(cls, path: PathLike, given: dict[str, Any], values: dict[str, Any]) -> Source:
        """A file and where its columns are."""
        found: dict[str, str | None] = {}
        wide = values.get("form") == "wide"

        def choose(names: list[str]) -> list[str] | None:
            found.update(columns.resolve(names, given))
            clear = all(found[part] is not None for part in cls._needed()) and not wide
            return [name for name in names if name in found.values()] if clear else None

        how = {option.name: values[option.name] for option in schema.FILE}
        table, from_text = files.read_table(path, choose, wide=wide, **how)
        if table.height == 0:
            raise ReadError(
                f"{path} has no {cls._rows}: it names the columns {listing(table.columns, 12)} and has no rows."
            )
        return Source(table, given, cls._rows, from_text=from_text, parts=found or None)

    @classmethod
    def _from_file(cls, source: Source, values: dict[str, Any]) -> Self:
        """A table from a file that was opened, and all options of the reader."""
        return cls._from_source(source, **{option.name: values[option.name] for option in cls.options})

    @classmethod
    @abstractmethod
    def _from_source(cls, source: Source, **options: Any) -> Self:
        """A table from a frame whose columns were found."""

    @classmethod
    def _needed(cls) -> tuple[str, ...]:
        return tuple(column.name for column in cls.columns if column.needed)


class Table(Readable, ABC):
    """A frozen table in which every row is by an annotator; its length is the number of items."""

    answer_type: ClassVar[str]
    """The name of such answers in the registry, on the command line and in files."""
    _reading: ClassVar[tuple[Opt, ...]] = (schema.TRUTH_PATH,)
    _act: ClassVar[str] = "answers about"
    """What an annotator does to an item, in messages."""
    _truths: ClassVar[tuple[str, ...]] = ("truth", "label")
    """The columns that may hold the truth in a file of truths: the first that is there."""
    _truth_in: ClassVar[Callable[[Source, str, Codes, Vocabulary], dict[Any, Any]]] = staticmethod(truth.classes_in)
    """What reads such a column, item by item."""
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

    # ---------------------------------------------------------------- what is in it

    def __len__(self) -> int:
        return len(self.items)

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
        return len(self.annotators)

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
            "items": len(self),
            "annotators": self.n_annotators,
            self._rows: self.n_answers,
            f"{self._rows}_per_item": spread(self._per_item()),
            f"{self._rows}_per_annotator": spread(per_annotator),
            **self._counted(),
            "weighted": self.weight is not None,
            "timestamps": self.timestamp is not None,
            **self._known(),
        }

    @abstractmethod
    def _per_item(self) -> npt.NDArray[Any]:
        """The number of rows about each item."""

    def _counted(self) -> dict[str, Any]:
        """The counts that are particular to a table."""
        return {}

    def _known(self) -> dict[str, Any]:
        """Of how many items the truth is known."""
        known = getattr(self, "truth", None)
        return {"items_with_truth": 0 if known is None else int((known >= 0).sum())}

    # ---------------------------------------------------------------- selecting

    def __getitem__(self, index: Any) -> Self:
        """The answers on some items: an integer, a slice, an array of positions or a mask. Annotators keep their codes.

        Where an answer is about several items, it stays if all of them do.
        """
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

    # ---------------------------------------------------------------- truth

    @classmethod
    def read_truth(cls, path: PathLike, **named: str | None) -> dict[Any, Any]:
        """Item -> what is true of it, from a file with an item column and one of the answers (or of the truth).

        ``item=`` and the name of the answer, such as ``label=``, name the columns where they are called otherwise.
        """
        table, from_text = files.read_table(path)
        answer = cls._truths[-1]
        given = {**dict.fromkeys(("item", *cls._truths)), **named}
        if named.get(answer) is not None:
            given |= {cls._truths[0]: named[answer], answer: None}
        parts = columns.resolve(table.columns, given)
        value = next((part for part in cls._truths if parts[part] is not None), None)
        if parts["item"] is None or value is None:
            raise ColumnError(
                f"A truth table needs an item column and a {answer} column: found {listing(table.columns, 12)}."
            )
        rows = table.filter(table[str(parts["item"])].is_not_null())
        found = {}
        if rows.height:
            source = Source(rows, given, "truths", from_text=from_text, parts=parts)
            found = cls._truth_in(source, value, *source.coded("item"))
        if not found:
            raise ReadError(f"{path} names no true {answer}: every row is empty.")
        return found

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

    # ---------------------------------------------------------------- out again

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
                values = values[self.item] if column.per == "item" else values  # type: ignore[attr-defined]
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

    def _of_items(self, items: Counts) -> Self:
        indptr, take = blocks(self.indptr, items)
        per_item = {
            c.name: array[items]
            for c in self.columns
            if c.per == "item" and (array := getattr(self, c.name)) is not None
        }
        return replace(self._taken(take), indptr=indptr, items=self.items[items], **per_item)

    def _kept(self, mask: Mask) -> Self:
        return replace(self._taken(np.flatnonzero(mask)), indptr=assemble.boundaries(self.item[mask], len(self)))

    def _taken(self, rows: Counts) -> Self:
        """Some rows, by position; where items begin is for the caller to mend."""
        return replace(self, **self._at(rows))


# -------------------------------------------------------------------- the pieces

FORMATS = (
    "It may be ``.csv``, ``.tsv`` or ``.txt`` (also ``.gz``, ``.zst``; the separator is found), ``.jsonl``, "
    "``.parquet``, ``.arrow`` or ``.feather``."
)


def named(codes: npt.NDArray[Any], names: Any) -> npt.NDArray[Any]:
    """The names behind codes, ``None`` where a code is -1."""
    known = np.asarray(names)
    if len(codes) == 0 or codes.min() >= 0:
        return np.asarray(known[codes])
    return np.asarray(np.array([*known.tolist(), None], dtype=object)[codes])


def _own(cls: type[Readable], name: str) -> Callable[..., Any]:
    """A function for this class alone that does what the classmethod of this name does."""

    def call(cls: type[Readable], given: Any, **options: Any) -> Any:
        return getattr(Readable, name).__func__(cls, given, **options)

    call.__name__, call.__qualname__, call.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
    return call


def reads(cls: type[Readable]) -> Callable[[Reader], Reader]:
    """Give a reader of files (``read_votes``) the signature and documentation of its table's ``read``."""

    def decorate(function: Reader) -> Reader:
        summary = (function.__doc__ or "").strip()
        schema.documented(
            function, "path", cls.columns, (*cls.options, *cls._reading, *schema.FILE), f"{summary} {FORMATS}"
        )
        return function

    return decorate
