"""The files of an export: a file, those in a zip archive, or those below a folder; and what can be seen at a glance.

JSON arrays and JSON lines are read object by object, large text tables row by row: an export of any
size takes the memory of its answers, not of its text.

Objects and data sets (``datasets.Dataset``) in memory, read as if they were a file of JSON lines, without a copy.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import json
import os
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any

from crowdwise.data import plain_files
from crowdwise.data.boundary import reading, reason
from crowdwise.data.files import PathLike, TableFile, first_line, separator_in, unescaped
from crowdwise.data.heavy import pl
from crowdwise.data.schema import NULLS
from crowdwise.data.source import EVERYONE
from crowdwise.errors import InputError, ReadError

CHUNK = 2**20
HEAD, LARGE_HEAD, MOST_WHOLE = 2**16, 2**21, 2**28
MOST_FILES = 200_000
LARGE = 2**25
TEXT = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".xml", ".manifest", ".gz")


class ExportFiles(contextlib.ExitStack):
    """The files of an export by name, as UTF-8 text; open it with ``with``."""

    def __init__(self, source: PathLike) -> None:
        super().__init__()
        self.file = TableFile.of(source)
        self.path = path = self.file.path
        self._archive: zipfile.ZipFile | None = None
        if not path.exists():
            raise ReadError(f"There is no file {path}.")
        with reading(path):
            if path.is_dir():
                below = (p for p in path.rglob("*") if p.is_file())
                self.names = sorted(p.relative_to(path).as_posix() for p in islice(below, MOST_FILES))
            elif path.suffix.lower() == ".zip" and zipfile.is_zipfile(
                file := self.enter_context(plain_files.stream(self.file.raw))
            ):
                self._archive = self.enter_context(zipfile.ZipFile(file))
                self.names = sorted(info.filename for info in self._archive.infolist() if not info.is_dir())
            else:
                self.names = [path.name]
        self.names = [n for n in self.names if not any(part.startswith((".", "__MACOSX")) for part in Path(n).parts)]

    @property
    def single(self) -> bool:
        """Whether it is a plain file."""
        return self._archive is None and not self.path.is_dir()

    @cached_property
    def content(self) -> plain_files.Content:
        """The bytes of a plain file, unpacked and in UTF-8."""
        content = plain_files.unpacked(self.path, self.file.raw)
        encoding = plain_files.wide_encoding(content[: plain_files.HEAD]) or (
            plain_files.LATIN if plain_files.looks_latin(content) else None
        )
        if encoding is None:
            return content
        plain_files.say_encoding(self.path, encoding)
        return plain_files.in_utf8(self.path, content, encoding)

    def head(self, size: int) -> str:
        """The first characters of a plain file, without a look at the rest; nothing of other files."""
        if not self.single or not self.names or self.path.suffix.lower() == ".zst":
            return ""
        with reading(self.path):
            content = self.file.raw[:size]
            if self.path.suffix.lower() == ".gz":
                with gzip.open(io.BytesIO(self.file.raw)) as unzipped:
                    content = unzipped.read(size)
        wide = plain_files.wide_encoding(content[: plain_files.HEAD])
        if wide is None and b"\0" in content[:1024]:
            return ""
        return content.decode(wide or "utf-8", errors="replace").removeprefix("\ufeff")

    def open_text(self) -> IO[str]:
        """The text of a plain file. A large one is not held whole."""
        return io.TextIOWrapper(plain_files.stream(self.content), "utf-8-sig", errors="replace", newline="")

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[str]]:
        """The text of a file."""
        if self.single:
            with self.open_text() as file:
                yield file
            return
        with reading(f"{self.path}/{name}"):
            content = self._bytes(name)
        yield io.StringIO(_decoded(content), newline="")

    def _bytes(self, name: str) -> bytes:
        if self._archive is None:
            return (self.path / name).read_bytes()
        with self._archive.open(name) as source:
            return plain_files.read_within_limit(source, self.path / name)

    def text(self, name: str, most: int = -1) -> str:
        """The text of a file, or its first characters."""
        with reading(f"{self.path}/{name}"), self.open(name) as file:
            return file.read(most)

    def objects(self, name: str) -> Iterator[dict[str, Any]]:
        """The objects of a JSON array or of JSON lines, one by one; the one object of other JSON."""
        with self.open(name) as file:
            yield from json_objects(file, f"{self.path}" if self.single else f"{self.path}/{name}")

    def whole(self, name: str) -> Any:
        """All of a JSON file."""
        with reading(f"{self.path}/{name}", "JSON"):
            return json.loads(self.text(name))

    def rows(self, name: str) -> CellRows:
        """The rows of a text table, which may be gone over more than once; a large one is not held whole."""
        packed = self.path.suffix.lower() in (".gz", ".zst")
        if self.single and self.path.suffix.lower() in TEXT and (packed or self.path.stat().st_size > LARGE):
            return CellRows(self)
        return CellRows(self.table(name))

    def table(self, name: str) -> pl.DataFrame:
        """A text table, every cell as text."""
        if self.single:
            return self.file.read()[0]
        with reading(f"{self.path}/{name}"):
            table = pl.read_csv(self.text(name).encode(), infer_schema=False, null_values=[""])
        return table.rename(unescaped)


def people(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """File -> its annotator, which is its folder, and its item, which is its name. Where two files of a name are in
    folders of a name, annotators are the folders above all others.

    >>> people(["ann/1.json", "bob/1.json"]), people(["ann/a/1.json", "bob/a/1.json"])["bob/a/1.json"]
    ({'ann/1.json': ('ann', '1'), 'bob/1.json': ('bob', '1')}, ('bob', 'a/1'))
    """
    files = {name: PurePosixPath(name) for name in names}
    out = {name: (file.parent.name or EVERYONE, file.stem) for name, file in files.items()}
    if len(set(out.values())) == len(out):
        return out
    depth = len(PurePosixPath(os.path.commonpath([file.parent for file in files.values()])).parts)
    return {
        name: (file.parts[depth], PurePosixPath(*file.parts[depth + 1 :]).with_suffix("").as_posix())
        if len(file.parts) > depth + 1 else out[name] for name, file in files.items()
    }  # fmt: skip


class CellRows:
    """The rows of a table, every cell as text, with empty ones as ``None``; blank rows are left out."""

    def __init__(self, source: pl.DataFrame | ExportFiles) -> None:
        self._source = source
        self.columns = next(self._lines(source), []) if isinstance(source, ExportFiles) else source.columns

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not isinstance(self._source, ExportFiles):
            yield from (row for row in self._source.iter_rows(named=True) if any(v is not None for v in row.values()))
            return
        names, width = self.columns, len(self.columns)
        for number, cells in enumerate(islice(self._lines(self._source), 1, None), 2):
            if len(cells) > width:
                raise ReadError(
                    f"{self._source.path}: row {number:,} has {len(cells)} cells, and there are {width} columns."
                )
            values = [None if cell in NULLS else cell for cell in cells]
            if any(value is not None for value in values):
                yield dict(zip(names, values + [None] * (width - len(values)), strict=True))

    def _lines(self, files: ExportFiles) -> Iterator[list[str]]:
        """Rows as lists of cells, one by one."""
        before = csv.field_size_limit(MOST_WHOLE)
        try:
            separator = separator_in(files.path, first_line(files.content))
            with files.open_text() as file:
                yield from csv.reader((line.replace("\0", "") for line in file), delimiter=separator)
        except csv.Error as error:
            raise ReadError(f"{files.path} is not a readable table: {error}.") from error
        finally:
            csv.field_size_limit(before)


def _decoded(content: bytes) -> str:
    """Bytes as text: by their mark, as UTF-8, else as Latin-1."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def json_objects(file: IO[str], name: str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON array, of JSON lines, or of objects one after the other, as they are read."""
    decoder, buffer, at, count, size = json.JSONDecoder(), "", 0, 0, CHUNK
    array = closed = done = False
    while True:
        while at < len(buffer) and (buffer[at].isspace() or buffer[at] in (",]" if array else "[")):
            closed, array = buffer[at] == "]" or (closed and buffer[at] != ","), array or buffer[at] == "["
            at += 1
        if at < len(buffer):
            try:
                value, at = decoder.raw_decode(buffer, at)
            except RecursionError:
                raise ReadError(f"{name} is nested too deeply to be read as JSON.") from None
            except json.JSONDecodeError as error:
                if done or buffer[at] != "{":
                    why = f"it breaks off or is wrong after {count:,} objects ({reason(error)})"
                    raise ReadError(f"{name} is truncated JSON: {why}.") from error
            else:
                if not isinstance(value, dict) or closed:
                    raise ReadError(f"{name} holds something else than JSON objects after {count:,} of them.")
                count, size = count + 1, CHUNK
                yield value
                continue
        elif done:
            if array and not closed:
                raise ReadError(f"{name} is truncated JSON: it breaks off after {count:,} objects.")
            return
        with reading(name):
            more = file.read(size)
        size, done = 2 * size, not more
        buffer, at = buffer[at:] + more, 0


def _first_object(text: str) -> dict[str, Any]:
    with contextlib.suppress(ReadError):
        return next(json_objects(io.StringIO(text), ""), {})
    return {}


class Peek:
    """What can be seen of an export at a glance."""

    def __init__(self, files: ExportFiles) -> None:
        self.files, self.names = files, files.names

    @cached_property
    def head(self) -> str:
        """The first characters of a plain file; nothing of others."""
        return self.files.head(HEAD)

    @cached_property
    def first(self) -> dict[str, Any]:
        """The first object of JSON, or of loaded data, empty where there is none."""
        if isinstance(self.files, LoadedObjects):
            return next(self.files.objects(self.names[0]), {})
        if self.head.lstrip()[:1] not in ("{", "["):
            return {}
        return _first_object(self.head) or _first_object(self.files.head(LARGE_HEAD))

    def first_in(self, name: str) -> dict[str, Any]:
        """The first object of JSON in one of several files, empty where there is none."""
        return _first_object(self.files.text(name, LARGE_HEAD))

    @cached_property
    def columns(self) -> list[str]:
        """The columns of a text table, empty where it is none."""
        if not self.head or self.head.lstrip()[:1] in ("{", "[", "<"):
            return []
        line = next((line for line in self.head.splitlines() if line.strip()), "")
        separator = max(",\t;", key=line.count)
        try:
            return [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
        except csv.Error:
            return []

    def whole(self, *words: str) -> dict[str, Any]:
        """The one object that a JSON file holds, empty where it is no JSON of that kind or very large. It is parsed
        only where one of these words is in the beginning."""
        head = self.head.lstrip()
        if not head.startswith("{") or not any(f'"{word}"' in head for word in words):
            return {}
        try:
            if json.JSONDecoder().raw_decode(head)[1] < len(head.rstrip()):
                return {}  # JSON lines
        except (ValueError, RecursionError):
            pass  # an object larger than the beginning of the file
        if self.files.path.stat().st_size > MOST_WHOLE:
            return {}
        try:
            whole = json.loads(self.files.head(MOST_WHOLE))
        except (ValueError, RecursionError):
            return {}
        return whole if isinstance(whole, dict) else {}

    def ending(self, *endings: str) -> list[str]:
        """The files whose names end like that."""
        return [name for name in self.names if name.lower().endswith(endings)]


def root_of(files: ExportFiles, name: str) -> ElementTree.Element:
    """The root element of a file, with the names of elements without their namespace."""
    return parse_xml(files.text(name), f"{files.path}: {name}")


def parse_xml(text: str, name: str) -> ElementTree.Element:
    """The root element of a text, with the names of elements without their namespace."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ReadError(f"{name} declares a document type, which exports do not.")
    try:
        root = ElementTree.fromstring(text.encode(errors="replace"))
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise ReadError(f"{name} is truncated or damaged XML ({error}).") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def is_dataset(source: Any) -> bool:
    """Whether something is a ``datasets.Dataset`` or one of its relatives, without importing them."""
    return any(kind.__module__.partition(".")[0] == "datasets" for kind in type(source).__mro__)


class LoadedObjects(ExportFiles):
    """Objects in the place of a file of JSON lines."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], called: str = "objects") -> None:
        super(ExportFiles, self).__init__()
        self.loaded, self.path, self.names = rows, Path(called), [called]

    @property
    def single(self) -> bool:
        return False

    def objects(self, name: str) -> Iterator[dict[str, Any]]:
        yield from map(dict, self.loaded)

    def text(self, name: str, most: int = -1) -> str:
        raise InputError("Data that was loaded is not text.")


def parquet_rows(path: PathLike, most: int | None = None) -> LoadedObjects:
    """The rows of a parquet file, or the first of them, as objects; conversations are left out, which are most of
    it."""
    file = TableFile.of(path)
    frame = file.read()[0] if most is None else file.head(most)
    heavy = [name for name in frame.columns if "conversation" in name]
    light = frame.drop(heavy)
    rows = [row | dict.fromkeys(heavy) for row in light.iter_rows(named=True)]
    objects = LoadedObjects(rows)
    objects.path = Path(path)
    return objects


class LoadedDataset(LoadedObjects):
    """The rows of a data set. Classes (``ClassLabel``) are written out."""

    def __init__(self, dataset: Any) -> None:
        if isinstance(dataset, Mapping):
            splits = ", ".join(map(repr, dataset))
            raise InputError(f"This is a dictionary of data sets: choose one of {splits}.")
        if not hasattr(dataset, "features"):
            raise InputError(f"A datasets.Dataset is needed, not {type(dataset).__name__}.")
        self.dataset = dataset.with_format(None) if hasattr(dataset, "with_format") else dataset
        super().__init__(self.dataset, "dataset")
        self._named: dict[str, Callable[[Any], Any]] = {
            name: written
            for name, feature in (dataset.features or {}).items()
            if (written := _written(feature)) is not None
        }

    def objects(self, name: str) -> Iterator[dict[str, Any]]:
        for row in self.dataset:
            yield {key: self._named[key](value) if key in self._named else value for key, value in row.items()}

    def table(self, name: str) -> Any:
        return self.dataset.to_polars()


def _written(feature: Any) -> Callable[[Any], Any] | None:
    """What turns the codes of a feature into the names of classes; ``None`` where it has none."""
    if hasattr(feature, "int2str") and getattr(feature, "names", None):
        names = list(feature.names)
        return lambda code: names[code] if isinstance(code, int) and 0 <= code < len(names) else None
    inner = feature[0] if isinstance(feature, list) and len(feature) == 1 else getattr(feature, "feature", None)
    if isinstance(inner, Mapping):
        of = {name: inside for name, one in inner.items() if (inside := _written(one)) is not None}
        return _each(lambda row: _replaced(row, of)) if of else None
    if isinstance(feature, Mapping):
        of = {name: inside for name, one in feature.items() if (inside := _written(one)) is not None}
        return (lambda row: _replaced(row, of)) if of else None
    inside = None if inner is None else _written(inner)
    return None if inside is None else _each(inside)


def _each(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [write(value) for value in values] if isinstance(values, list) else values


def _replaced(row: Any, of: Mapping[str, Callable[[Any], Any]]) -> Any:
    return {n: of[n](v) if n in of else v for n, v in row.items()} if isinstance(row, Mapping) else row
