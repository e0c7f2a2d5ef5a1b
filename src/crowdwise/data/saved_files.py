"""Reading what was saved: every file is compared with the manifest before anything is made of it.

Sizes come first: a file that is longer than it was written is not read, and an array whose header claims more than its
file can hold takes no memory.
"""

from __future__ import annotations

import io
import json
import math
import os
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import folders
from crowdwise.data.folders import NEW, Manifest, read_regular, sha256, whole_manifest
from crowdwise.errors import CrowdwiseError, ReadError

TRIES = 20
"""How often a folder is read again that another process is replacing meanwhile."""
RATIO = 1_040
"""Deflate makes nothing more than so many times smaller."""


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(facts), encoding="utf-8")


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], *, compressed: bool = True) -> None:
    """Write an ``.npz`` file."""
    write = np.savez_compressed if compressed else np.savez
    write(path, allow_pickle=False, **arrays)


@dataclass(frozen=True)
class SavedFiles:
    """The contents of a saved folder, as they were written."""

    folder: Path
    kind: str
    files: dict[str, bytes]

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object."""
        with self.reading():
            found = json.loads(self.files[name])
            if not isinstance(found, dict):
                raise ValueError(f"{name} is no JSON object")
            return found

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of an ``.npz`` file."""
        with self.reading(), zipfile.ZipFile(io.BytesIO(self.files[name])) as archive:
            return {info.filename.removesuffix(".npy"): _array(archive, info) for info in archive.infolist()}

    def below(self, name: str, kind: str) -> SavedFiles:
        """What is in a folder inside."""
        inside = {path.removeprefix(f"{name}/"): c for path, c in self.files.items() if path.startswith(f"{name}/")}
        return SavedFiles(self.folder / name, kind, inside)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What goes wrong while something is made of the files, as an error about the folder."""
        try:
            yield
        except CrowdwiseError:
            raise
        except KeyError as error:
            raise ReadError(f"{self.folder} does not hold a readable {self.kind}: it lacks {error}.") from error
        except (
            ValueError, TypeError, IndexError, AttributeError, OSError, EOFError, ArithmeticError, MemoryError,
            RecursionError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error,
        ) as error:  # fmt: skip
            raise ReadError(f"{self.folder} does not hold a readable {self.kind}: {error}.") from error


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """One array, where the size that its header claims is that of its file."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = read(file)
        size = file.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or size != info.file_size or size > RATIO * (info.compress_size + 1):
        raise ValueError(f"the array {info.filename} claims {size} bytes, and its file does not hold them")
    with archive.open(info) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


SIMPLE: dict[str, Any] = {
    "str": str, "bool": bool, "int": int, "float": (int, float), "list[str]": list,
    "tuple[float, ...]": (list, tuple), "Dependence": dict,
}  # fmt: skip
"""What a field that is declared so may hold in a file; any other field is an array, or arrays by name."""
NUMBERS = {"Floats": "f", "Ints": "iu", "npt.NDArray[np.bool_]": "b", "npt.NDArray[np.int32]": "iu"}


def check_types(cls: type, values: Mapping[str, Any]) -> None:
    """A ValueError where a value is not what the field of a dataclass is declared to hold: files can be forged."""
    for one in fields(cls):
        declared, optional = str(one.type).removesuffix(" | None"), str(one.type).endswith(" | None")
        value = values.get(one.name)
        if one.name not in values or (value is None and optional):
            continue
        right = isinstance(value, dict if "[str, " in declared else SIMPLE.get(declared, np.ndarray))
        if isinstance(value, np.ndarray) and declared in NUMBERS:
            right = value.dtype.kind in NUMBERS[declared]
        if isinstance(value, (list, tuple)):
            right = right and all(isinstance(part, str if declared == "list[str]" else float) for part in value)
        if not right:
            raise ValueError(f"{one.name} is not what it is declared to be, {declared}")


def check_shapes(values: Mapping[str, Any], shapes: Mapping[str, str], sizes: dict[str, int]) -> None:
    """A ValueError where an array has another shape than its letters say, or holds codes beyond ``sizes``.

    ``"NK"``: N rows and K columns; a letter without a size gets that of the first array with it. ``"N<K"``: N codes
    below K, or -1. All arrays of a dict have its shape.
    """
    for name, letters in shapes.items():
        value = values.get(name)
        for array in value.values() if isinstance(value, dict) else () if value is None else (value,):
            axes, _, below = letters.partition("<")
            right = array.ndim == len(axes) and all(
                n == (int(axis) if axis.isdecimal() else sizes.setdefault(axis, n))
                for axis, n in zip(axes, array.shape, strict=True)
            )
            if right and below and array.size:
                right = array.dtype.kind in "iu" and array.min() >= -1 and array.max() < sizes[below]
            if not right:
                raise ValueError(f"{name} does not fit what lies beside it: its shape is {array.shape}")


def kind_of(folder: str | os.PathLike[str]) -> str | None:
    """What a folder holds, by its manifest; ``None`` where it has none."""
    try:
        found = whole_manifest(Path(folder))
    except OSError as error:
        raise ReadError(f"{folder} cannot be read: {error.strerror or error}.") from error
    return None if found is None else found.kind


def read_saved(folder: str | os.PathLike[str], kind: str, *, by_size: str | None = None) -> SavedFiles:
    """All files of a saved folder, each compared with its size and SHA-256 in the manifest.

    Those whose names begin with ``by_size`` may be larger than memory: they are compared by size, and are not read.
    """
    folder = Path(folder)
    for again in reversed(range(TRIES)):
        manifest = None
        try:
            manifest = whole_manifest(folder)
            if manifest is None:
                raise _missing(folder, kind)
            if manifest.kind != kind:
                raise ReadError(f"{folder} holds a saved {manifest.kind}, not a {kind}: use crowdwise.load.")
            large = {name for name in manifest.files if by_size is not None and name.startswith(by_size)}
            for name in large:
                _check_size(folder, name, manifest, kind)
            read = (name for name in manifest.files if name not in large)
            return SavedFiles(folder, kind, {name: _content(folder, name, manifest, kind) for name in read})
        except OSError as error:
            raise ReadError(f"{folder} does not hold a readable {kind}: {error.strerror or error}.") from error
        except ReadError:
            if not again or _same(folder, manifest):
                raise
            time.sleep(0.01)  # it is being replaced: look at the new one
    raise AssertionError("the last try returns or raises")


def _same(folder: Path, manifest: Manifest | None) -> bool:
    """Whether a folder still has this manifest."""
    try:
        return whole_manifest(folder) == manifest
    except (OSError, ReadError):
        return True


def _missing(folder: Path, kind: str) -> ReadError:
    if not folder.is_dir():
        return ReadError(f"There is no {kind} in {folder}: it is {'a file' if folder.exists() else 'not there'}.")
    return ReadError(
        f"There is no {kind} in {folder}: it has no {folders.NAME}, which every saved {kind} has. It was written by "
        "something else or another version of crowdwise, or a part is missing."
    )


def _check_size(folder: Path, name: str, manifest: Manifest, kind: str) -> None:
    try:
        found = (folder / name).stat().st_size
    except FileNotFoundError:
        raise ReadError(f"{folder} does not hold a readable {kind}: {name} is missing.") from None
    if found != manifest.files[name][0]:
        raise ReadError(f"{folder} does not hold a readable {kind}: {name} is damaged, it is not as it was saved.")


def _content(folder: Path, name: str, manifest: Manifest, kind: str) -> bytes:
    """A file, which may be moving up from a new version."""
    size, digest = manifest.files[name]
    new = folder / NEW / folders.NAME
    for path in (folder / NEW / name, folder / name) if new.exists() else (folder / name,):
        try:
            content = read_regular(path, size)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if content is None or len(content) != size or sha256(content) != digest:
            raise ReadError(f"{folder} does not hold a readable {kind}: {name} is damaged, it is not as it was saved.")
        return content
    raise ReadError(f"{folder} does not hold a readable {kind}: {name} is missing.")
