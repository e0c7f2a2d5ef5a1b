"""The base of what is read by a declaration of its columns: from frames, from records and from files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import Field, fields
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from crowdwise.data import columns, files, schema
from crowdwise.data.boundary import guarded
from crowdwise.data.column_content import named_like_an_id
from crowdwise.data.encoding import TextNames
from crowdwise.data.files import PathLike
from crowdwise.data.places import Lines
from crowdwise.data.rows import columns_of
from crowdwise.data.schema import Col, Opt
from crowdwise.data.source import Source
from crowdwise.errors import ReadError, listing


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
        return cls._from_source(Source(frame, given, cls._rows), **values)

    @classmethod
    @guarded
    def from_records(cls, records: Iterable[Any], **options: Any) -> Self:
        """From rows: tuples of the needed columns, or dicts."""
        optional = ["weight"] if any(column.name == "weight" for column in cls.columns) else []
        found = columns_of(records, cls._record or cls._needed(), cls._rows, optional=optional)
        return cls.from_frame(found, **options)

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
        found: dict[str, str | None] = {}
        wide = values.get("form") == "wide"

        def choose(names: list[str]) -> list[str] | None:
            found.update(columns.resolve(names, given))
            clear = all(found[part] is not None for part in cls._needed()) and not wide
            answer = found.get("label")
            if answer is not None and given.get("label") is None and named_like_an_id(answer):
                clear = False  # the values decide whether it is one, and then another column may hold the labels
            return [name for name in names if name in found.values()] if clear else None

        how = {option.name: values[option.name] for option in schema.FILE}
        file = files.TableFile.of(path, **how)
        table, from_text = file.read(choose, wide=wide)
        if table.height == 0:
            raise ReadError(f"{path} has no {cls._rows}: it names {listing(table.columns, 12)} and has no rows.")
        return Source(table, given, cls._rows, from_text=from_text, parts=found or None, lines=Lines.of(file, table))

    @classmethod
    def _from_file(cls, source: Source, values: dict[str, Any]) -> Self:
        """A table from a file that was opened, and all options of the reader."""
        return cls._from_source(source, **{option.name: values[option.name] for option in cls.options})

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
