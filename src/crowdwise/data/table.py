"""The base of all tables of answers: a frozen table that reads frames, records and files by its declared columns.

A subclass declares ``columns`` and ``options`` (:mod:`crowdwise.data.schema`), its arrays as dataclass fields, how a
frame that was read becomes codes (``_from_source``) and how some of its rows are kept (``_kept``). Everything that
tables share is here. ``what`` is what the rows are called in messages: votes, ratings, comparisons, answers.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import Field, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, columns, encoding, files, frames, schema, truth
from crowdwise.data.alignment import wide_parts
from crowdwise.data.assemble import Repeats
from crowdwise.data.boundary import guarded
from crowdwise.data.columns import named_like_an_id
from crowdwise.data.encoding import Codes, Counts, Mask, TextNames, Vocabulary
from crowdwise.data.figures import Figure, draw_rows
from crowdwise.data.files import PathLike
from crowdwise.data.frames import is_frame, is_missing, native
from crowdwise.data.places import Lines
from crowdwise.data.schema import Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.errors import ColumnError, InputError, ReadError, SelectionError, listing


def columns_of(
    records: Iterable[Any], names: Sequence[str], what: str, *, optional: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Records, all tuples of one length or all dicts, as columns. ``names`` are the columns of tuples, which
    ``optional`` ones may follow."""
    rows = list(records)
    if not rows:
        raise InputError(f"No {what}: the records are empty.")
    if all(isinstance(row, Mapping) for row in rows):
        keys = list(dict.fromkeys(name for row in rows for name in row))
        return {name: [row.get(name) for row in rows] for name in keys}
    widths = range(len(names), len(names) + len(optional) + 1)
    width = len(rows[0]) if isinstance(rows[0], Sized) else 0
    for at, row in enumerate(rows):
        flat = isinstance(row, Sized) and not isinstance(row, (str, Mapping))
        if not flat or len(row) != width or width not in widths:
            forms = [f"({', '.join([*names, *optional[:more]])})" for more in range(len(optional) + 1)]
            raise InputError(
                f"Expected {' or '.join(forms)} in every record, or a dict in every one: found {row!r} in row {at}."
            )
    return dict(zip([*names, *optional][:width], zip(*rows, strict=True), strict=True))


def cells_of(
    values: Any, items: Sequence[Any] | None, annotators: Sequence[Any] | None
) -> tuple[Any, Sequence[Any] | None, Sequence[Any] | None]:
    """The cells of a table, and the names of its rows and columns where none are given; an array as it is."""
    values = native(values)
    if not is_frame(values):
        return values, items, annotators
    names, columns, cells = wide_parts(values)
    own = None if names is None else names.values.tolist()
    return cells, own if items is None else items, columns if annotators is None else annotators


def dense(
    values: Any, items: Sequence[Any] | None, annotators: Sequence[Any] | None, missing: Any = None
) -> tuple[npt.NDArray[Any], dict[str, Any]]:
    """The cells of an items x annotators array that hold an answer, and their codes and names for ``from_codes``. A
    cell holds none where the array is masked, NaN, ``None`` or blank, or equals ``missing``. A table names its rows and
    columns itself."""
    values, items, annotators = cells_of(values, items, annotators)
    # As objects a list keeps what it holds: numpy would make text of a NaN beside text.
    as_is = isinstance(values, np.ndarray)
    try:
        table = np.asarray(np.ma.getdata(values)) if as_is else np.array(values, dtype=object)
    except ValueError:
        table = np.zeros(0)
    if table.ndim != 2:
        raise InputError(
            "Expected an items x annotators array with 2 dimensions, every row equally long, and "
            f"found {table.ndim}. Use from_frame for a table in long form."
        )
    N, M = table.shape
    for names, size, what in ((items, N, "items"), (annotators, M, "annotators")):
        if names is not None and len(names) != size:
            raise InputError(
                f"The array has {N} rows (items) and {M} columns (annotators), and {len(names)} {what} are named."
            )
        encoding.check_distinct(encoding.to_vocabulary([] if names is None else names), what)
    present = ~np.ma.getmaskarray(values) if as_is else np.ones(table.shape, dtype=bool)
    if table.dtype.kind == "f":
        present &= ~np.isnan(table)
    if table.dtype.kind in "OU":
        filled = [not is_missing(v) and not (isinstance(v, str) and not v.strip()) for v in table.ravel().tolist()]
        present &= np.array(filled, dtype=bool).reshape(table.shape)
    if missing is not None:
        present &= table != missing
    item, annotator = np.nonzero(present)
    return table[present], {
        "item": item, "annotator": annotator, "items": range(N) if items is None else items,
        "annotators": range(M) if annotators is None else annotators,
    }  # fmt: skip


def positions(index: Any, N: int, table: str, *, distinct: bool = False) -> Counts:
    """The items that an index into a table chooses, one by one."""
    if isinstance(index, tuple):  # scikit-learn asks for votes[index, ...]
        if len(index) != 2 or not (index[1] is Ellipsis or (isinstance(index[1], slice) and index[1] == slice(None))):
            raise SelectionError(
                f"{table} are indexed by item alone and were asked for {index}. Choose annotators with only(...) or "
                "without(...), rows with select(mask)."
            )
        index = index[0]
    try:
        rows = np.atleast_1d(np.arange(N)[index])
    except (IndexError, TypeError, ValueError) as error:
        raise SelectionError(
            f"{table} have {N} items, and none of them is chosen by {_shown(index)}: {error}. Expected an integer, a "
            "slice, positions or a mask over the items."
        ) from None
    if rows.ndim != 1:
        raise SelectionError(
            f"{table} are indexed by item alone: expected an integer, a slice or a flat array and "
            f"found {rows.ndim} dimensions."
        )
    if distinct and len(np.unique(rows)) < len(rows):
        raise SelectionError(f"{table} are indexed by different items: {_shown(index)} names some more than once.")
    return rows


def _shown(index: Any) -> str:
    text = repr(index)
    return text if len(text) <= 60 else f"{text[:57]}..."


def renumbered(chosen: Counts, N: int) -> npt.NDArray[np.int32]:
    """The place of each of N items among those chosen, -1 where it is none."""
    place = np.full(N, -1, dtype=np.int32)
    place[chosen] = np.arange(len(chosen))
    return place


def blocks(indptr: Counts, chosen: Counts) -> tuple[Counts, Counts]:
    """Where the chosen blocks begin once they stand one after the other, and the rows in them."""
    count = np.diff(indptr)[chosen]
    new = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    return new, np.arange(new[-1]) + np.repeat(indptr[:-1][chosen] - new[:-1], count)


def spread(counts: npt.NDArray[Any]) -> dict[str, float]:
    """The least, middle, mean and greatest of some counts."""
    if len(counts) == 0:
        return {"min": 0, "median": 0, "mean": 0, "max": 0}
    return {
        "min": int(counts.min()), "median": float(np.median(counts)), "mean": float(counts.mean()),
        "max": int(counts.max()),
    }  # fmt: skip


BINS = 10


def histogram(counts: Any) -> list[dict[str, int]]:
    """From, to and how many: whole numbers, even steps, or powers of two when they spread far."""
    low, high = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    if high - low < BINS:
        edges = np.arange(low, high + 2)
    elif high < 8 * max(low, 1):
        edges = np.unique(np.linspace(low, high + 1, BINS + 1).astype(int))
    else:
        powers = 2 ** np.arange(int(np.log2(max(low, 1))) + 1, int(np.log2(high)) + 1)
        edges = np.unique(np.concatenate([[low], powers[(powers > low) & (powers <= high)], [high + 1]]))
    heights, _ = np.histogram(counts, bins=edges)
    return [
        {"from": int(a), "to": int(b) - 1, "count": int(n)}
        for a, b, n in zip(edges[:-1].tolist(), edges[1:].tolist(), heights.tolist(), strict=True)
    ]


MOST_SHOWN = 1_000_000
"""Above so many answers a notebook shows no rows: tables are made as a whole."""


class Frozen:
    """The base of frozen dataclasses that hold arrays. Names that were read as text become an array of Python strings
    when they are first asked for."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = self.__dict__.get(field.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            elif isinstance(value, TextNames):
                self.__dict__[f"lazy {field.name}"] = self.__dict__.pop(field.name)

    def __getattr__(self, name: str) -> Any:
        lazy = self.__dict__.pop(f"lazy {name}", None)
        if lazy is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        self.__dict__[name] = lazy.array
        return lazy.array

    def _size(self, name: str) -> int:
        """The length of an array, without a look at what is in it."""
        return len(self.__dict__.get(f"lazy {name}") or getattr(self, name))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Frozen.__post_init__(self)  # a copy is as frozen as the original


FRAMES = "pandas, polars, pyarrow, a dict of columns, anything narwhals or the Arrow stream protocol takes."
FORMATS = (
    "``.csv``, ``.tsv`` or ``.txt`` (the separator is found), ``.jsonl`` or ``.json`` (all of these also ``.gz``, "
    "``.zst``), ``.xlsx`` and other spreadsheets, ``.parquet``, ``.arrow`` or ``.feather``; a ``.zip`` with one such."
)


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
        for name, own in list(cls.__dict__.items()):
            if name.startswith("from_") and isinstance(own, classmethod):
                setattr(cls, name, classmethod(guarded(own.__func__)))
        tuples = f"Tuples ({', '.join(cls._record or cls._needed())}), with a weight or without, or dicts."
        made = {
            "from_frame": ("a table", ("frame", f"{FRAMES} {cls._forms}".strip()), ()),
            "from_records": ("rows", ("records", tuples), ()),
            "read": ("a file", ("path", FORMATS), (*cls._reading, *schema.FILE)),
        }
        for name in made.keys() - cls.__dict__.keys():  # what a table defines itself has a signature of its own
            summary, first, further = made[name]
            method = _own(cls, name)
            options = (*cls.options, *further)
            schema.documented(method, f"{cls.__name__} from {summary}.", first, cls.columns, options)
            setattr(cls, name, classmethod(method))
        if "from_codes" in cls.__dict__:
            repeated = next((o.default for o in cls.options if o.name == "on_duplicate"), "all")
            schema.spelled_out(cls.__dict__["from_codes"].__func__, repeated)

    @classmethod
    @guarded
    def from_frame(cls, frame: Any, **options: Any) -> Self:
        """From any dataframe; see ``help()`` of a table's own method for its columns and options."""
        given, values = schema.sort_out(options, cls.columns, cls.options, f"{cls.__name__}.from_frame")
        return cls._of(Source(frame, given, cls._rows), values)

    @classmethod
    def _of(cls, source: Source, values: dict[str, Any]) -> Self:
        """A table from a frame whose columns were found: of one question, where a column says which."""
        try:
            if "question" in values:
                source.pick_question(values["question"])
            return cls._from_source(source, **{option.name: values[option.name] for option in cls.options})
        finally:
            source.tell_roles()

    @classmethod
    @guarded
    def from_records(cls, records: Iterable[Any], **options: Any) -> Self:
        """From rows: tuples of the needed columns, or dicts."""
        optional = ["weight"] if any(column.name == "weight" for column in cls.columns) else []
        frame = columns_of(records, cls._record or cls._needed(), cls._rows, optional=optional)
        return cls.from_frame(frame, **options)

    @classmethod
    @guarded
    def read(cls, path: PathLike, **options: Any) -> Self:
        """From a file."""
        every = (*cls.options, *cls._reading, *schema.FILE)
        given, values = schema.sort_out(options, cls.columns, every, f"{cls.__name__}.read")
        return cls._from_file(cls._opened(path, given, values), values)

    @classmethod
    def _opened(cls, path: PathLike, given: dict[str, Any], values: dict[str, Any]) -> Source:
        """A file and where its columns are."""
        parts: dict[str, str | None] = {}
        wide = values.get("form") == "wide"

        def choose(names: list[str]) -> list[str] | None:
            parts.update(columns.resolve(names, given))
            clear = all(parts[part] is not None for part in cls._needed()) and not wide
            clear = clear and not values.get("keep") and not values.get("annotator_columns")  # further ones are needed
            answer = parts.get("label")
            if answer is not None and given.get("label") is None and named_like_an_id(answer):
                clear = False  # the values decide whether it is one, and then another column may hold the labels
            asks = columns.question_column(names, parts) if "question" in values else None
            return [name for name in names if name in parts.values() or name == asks] if clear else None

        how = {option.name: values[option.name] for option in schema.FILE}
        file = files.TableFile.of(path, **how)
        table, from_text = file.read(choose, wide=wide)
        if table.height == 0:
            raise ReadError(f"{path} has no {cls._rows}: it names {listing(table.columns, 12)} and has no rows.")
        return Source(table, given, cls._rows, from_text=from_text, parts=parts or None, lines=Lines.of(file, table))

    @classmethod
    def _from_file(cls, source: Source, values: dict[str, Any]) -> Self:
        """A table from a file that was opened, and all options of the reader."""
        return cls._of(source, values)

    @classmethod
    @abstractmethod
    def _from_source(cls, source: Source, **options: Any) -> Self:
        """A table from a frame whose columns were found."""

    @classmethod
    def reader_options(cls) -> list[str]:
        """The keywords that say how a frame or a file is read: the names of columns, and options."""
        options = (*cls.options, *cls._reading, *schema.FILE)
        return [column.name for column in cls.columns] + [option.name for option in options]

    @classmethod
    def _needed(cls) -> tuple[str, ...]:
        return tuple(column.name for column in cls.columns if column.needed)


def _own(cls: type[Readable], name: str) -> Callable[..., Any]:
    """A function for this class alone that does what the classmethod of this name does."""

    def method(cls: type[Readable], given: Any, **options: Any) -> Any:
        return getattr(Readable, name).__func__(cls, given, **options)

    method.__name__, method.__qualname__, method.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
    return method


T = TypeVar("T", bound=Readable)


def reader(cls: type[T], name: str) -> Callable[..., T]:
    """The function that reads such a table from a file, with a signature and documentation of its own."""

    def read(path: PathLike, **options: Any) -> T:
        return cls.read(path, **options)

    every = (*cls.options, *cls._reading, *schema.FILE)
    schema.documented(read, f"{cls.__name__} from a file.", ("path", FORMATS), cls.columns, every)
    read.__name__, read.__qualname__, read.__module__ = name, name, cls.__module__
    return read


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
        said: Sequence[npt.NDArray[Any]] = (),
    ) -> Self:  # fmt: skip
        """A table whose rows are sorted by a group (their item, their pair) and the annotator.

        ``groups`` are the names of the groups; ``answers`` gives the further fields, with rows in the order it is given
        (``None``: as they are). ``said`` are arrays of what the rows say.
        """
        fields, repeats = cls._beside(beside, len(group))
        repeats = replace(repeats, answers=tuple(said))
        order, indptr, who = assemble.arrange(group, annotator, groups, annotators, repeats)
        for name in ("weight", "timestamp"):
            fields[name] = None if fields[name] is None else assemble.in_order(fields[name], order)
        fields |= {"indptr": indptr, "annotator": who, "annotators": annotators, **answers(order)}
        table = cls(**fields)
        truth = beside.get("truth")
        return table if truth is None else table.with_truth(truth)

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

    def _sizes(self, *more: tuple[int, str]) -> str:
        """How many items, annotators and others there are, for a short description."""
        counts = ((len(self), "item"), (self.n_annotators, "annotator"), *more)
        return " x ".join(f"{n:,} {word}{('es' if word == 'class' else 's') * (n != 1)}" for n, word in counts)

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
        return {"items_with_truth": int(self.known_truth.sum())}

    @property
    def known_truth(self) -> Mask:
        """Of which items the truth is known; empty where none is."""
        true = getattr(self, "truth", None)
        if isinstance(true, np.ndarray) and true.dtype.kind in "iuf":
            return ~np.isnan(true) if true.dtype.kind == "f" else true >= 0
        each = () if true is None else true
        return np.array([one is not None and not (isinstance(one, str) and not one) for one in each], dtype=bool)

    def __getitem__(self, index: Any) -> Self:
        """The answers on some items: an integer, a slice, an array of positions or a mask. Annotators keep their codes.
        Where an answer is about several items, it stays if all of them do."""
        part = self._of_items(positions(index, len(self), type(self).__name__, distinct=self._distinct))
        if self.has_row_numbers:
            object.__setattr__(part, "_row_numbers", True)
        return part

    @property
    def has_row_numbers(self) -> bool:
        """Whether items are called 0, 1, 2... or 1, 2, 3..., as rows are, or are some of those of such a table."""
        return truth.numbered(self.items) or getattr(self, "_row_numbers", False)

    def select(self, rows: npt.ArrayLike) -> Self:
        """Some of the rows, by a mask. Items and annotators keep their codes, even without any."""
        mask, S = np.asarray(rows), self.n_answers
        if mask.dtype != bool or mask.shape != (S,):
            raise InputError(
                f"Expected a mask with one true or false for each of the {S} {self._rows}, "
                f"and found an array of {mask.dtype} of shape {mask.shape}."
            )
        return self._kept(mask)

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
        parts = columns.resolve(table.columns, given)
        there = [answer] if named.get(answer) is not None else [part for part in cls._truths if parts[part] is not None]
        value = there[0] if there else answer
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
        truths: dict[Any, Any] = {}
        if table.height:
            source = Source(table, given, "truths", from_text=from_text, parts=parts, lines=Lines.of(file, table))
            whole = np.flatnonzero(~np.any([source[key].is_null().to_numpy() for key in cls._keys], axis=0))
            source.keep(whole)  # its rows: those that repeat the names of the columns are gone
            truths = cls._truth_in(source, value, *cls._keyed(source)) if len(whole) else {}
        if not truths:
            raise ReadError(f"{path} names no true {answer}: every row is empty.")
        return truths

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
        table_read = super()._from_file(source, values)
        return table_read if path is None else table_read.with_truth(cls.read_truth(path))

    @classmethod
    def answer_columns(cls, answers: Sequence[Any]) -> dict[str, list[Any]]:
        """Columns from answers as importers collect them: ``item``, ``annotator``, ``said``, ``time``, ``duration``."""
        answer = next(name for name in cls._needed() if name not in ("item", "annotator"))
        parts = {"item": "item", "annotator": "annotator", answer: "said", "timestamp": "time", "duration": "duration"}
        return {name: [getattr(a, part) for a in answers] for name, part in parts.items()}

    def usable_gold(self, gold: Mapping[Any, Any]) -> dict[Any, Any]:
        """The truths of an export (item -> what is true of it) that this table can hold."""
        return dict(gold)

    def truth_frame(self) -> Any:
        """Items and what is true of them, as ``read_truth`` takes it; ``None`` where nothing is known."""
        true = getattr(self, "truth", None)
        if true is None:
            return None
        known = self.known_truth
        values = true[known] if true.dtype.kind not in "iu" else np.asarray(self.classes)[true[known]]
        return frames.make_frame({"item": self.items[known], self._truths[-1]: values})

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

    def _repr_html_(self) -> str:
        return frames.to_html(repr(self), {} if self.n_answers > MOST_SHOWN else {self.answer_type: self._columns()})

    def plot(self) -> Figure:
        """A figure of the answers: how often each class was chosen, of votes; else how many each annotator gave."""
        of = "label" if hasattr(self, "classes") and hasattr(self, "label") else "annotator"
        names = self.classes if of == "label" else self.annotators
        count = np.bincount(getattr(self, of), minlength=len(names))
        order = np.argsort(-count, kind="stable")
        title = f"{self.answer_type.capitalize()} by {'class' if of == 'label' else 'annotator'}"
        return draw_rows(title, names[order].tolist(), count[order])

    def _columns(self) -> dict[str, Any]:
        """The columns of the long table, with names for codes."""
        out = {}
        for column in self.columns:
            values = getattr(self, column.name, None) if column.per else None
            if values is not None:
                values = values[self.item] if column.per == "item" else values
                out[column.name] = named(values, getattr(self, column.of)) if column.of else values
        return out


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CodedTable(Table, ABC):
    """What tables hold beside their answers: the codes of annotators, the names behind the codes, weights and times."""

    annotator: Codes
    items: Vocabulary
    annotators: Vocabulary
    weight: npt.NDArray[np.float64] | None = None
    timestamp: npt.NDArray[Any] | None = None
    truth: npt.NDArray[Any] | None = None
    kind: str = "polars"


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
        return cls._arranged(
            item, annotator, items, annotators, lambda o: {"items": items, **answers(o)}, beside, [*said.values()]
        )

    def _true_objects(self, *names: str) -> Any:
        """A row for each true object (its label, and what else it has), and one for an item that has none."""
        truth, none = getattr(self, "truth", None), (None,) * (1 + len(names))
        known = [] if truth is None else zip(self.items.tolist(), truth, strict=True)
        rows = [(item, *one) for item, objects in known if objects is not None for one in (objects or (none,))]
        columns = {name: [row[n] for row in rows] for n, name in enumerate(("item", "label", *names))}
        return None if truth is None else frames.make_frame(columns)

    def _of_items(self, items: Counts) -> Self:
        indptr, take = blocks(self.indptr, items)
        return replace(self._taken(take), indptr=indptr, **self._about(items))

    def _kept(self, mask: Mask) -> Self:
        return replace(self._taken(mask), indptr=assemble.boundaries(self.item[mask], len(self)))

    def _taken(self, rows: npt.NDArray[Any]) -> Self:
        """Some rows, by position or mask; where items begin is for the caller to fix."""
        return replace(self, **self._at(rows))


def alike(names: list[Any]) -> list[Any]:
    """Names of one kind: text, where some are text and some numbers. ``None`` stays."""
    kinds = {type(name) for name in names if name is not None}
    return names if len(kinds) <= 1 else [None if name is None else str(name) for name in names]


def named(codes: npt.NDArray[Any], names: Any) -> npt.NDArray[Any]:
    """The names behind codes, ``None`` where a code is -1."""
    known = np.asarray(names)
    if len(codes) == 0 or codes.min() >= 0:
        return np.asarray(known[codes])
    return np.asarray(np.array([*known.tolist(), None], dtype=object)[codes])
