"""Objects and data sets (``datasets.Dataset``) in memory, read as if they were a file of JSON lines, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crowdwise.errors import InputError
from crowdwise.importers.export_files import ExportFiles, Peek


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
        raise InputError("Data that was loaded is no text.")


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


class LoadedPeek(Peek):
    """What can be seen of loaded data at a glance."""

    def __init__(self, files: LoadedObjects) -> None:
        super().__init__(files)
        self.__dict__.update(head="", columns=[], first=next(files.objects(self.names[0]), {}))

    def first_in(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.first
        return found

    def whole(self, *words: str) -> dict[str, Any]:
        return {}


def _written(feature: Any) -> Callable[[Any], Any] | None:
    """What turns the codes of a feature into the names of classes; ``None`` where it has none."""
    if hasattr(feature, "int2str") and getattr(feature, "names", None):
        names = list(feature.names)
        return lambda code: names[code] if isinstance(code, int) and 0 <= code < len(names) else None
    inner = feature[0] if isinstance(feature, list) and len(feature) == 1 else getattr(feature, "feature", None)
    if isinstance(inner, Mapping):
        of = {name: made for name, one in inner.items() if (made := _written(one)) is not None}
        return _each(lambda row: _replaced(row, of)) if of else None
    if isinstance(feature, Mapping):
        of = {name: made for name, one in feature.items() if (made := _written(one)) is not None}
        return (lambda row: _replaced(row, of)) if of else None
    made = None if inner is None else _written(inner)
    return None if made is None else _each(made)


def _each(made: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [made(value) for value in values] if isinstance(values, list) else values


def _replaced(row: Any, of: Mapping[str, Callable[[Any], Any]]) -> Any:
    return {n: of[n](v) if n in of else v for n, v in row.items()} if isinstance(row, Mapping) else row
