"""Folders and files that are written all or nothing.

A folder is written as a new one beside the old one, with a manifest of its files, flushed to the disk, and then the two
are swapped in one step: the name is that of the old one or of the new one, whole, whenever the process is killed. Then
the files of the old manifest are removed, and nothing else.

Where two folders cannot be swapped (a file system without it, a mounted folder, the folder one stands in), the new one
moves into the old one as ``.crowdwise-new``, which is the step that decides, and its files move up one by one, the
manifest last. :func:`read_saved` reads a folder at any point of that, and the next save ends
what was begun.

A temporary is a file or folder ``.crowdwise-NAME-TOKEN`` beside (or inside) the place that it is for; NAME is a digest
of the name of that place. The writer holds a lock on it, which ends with the process: a temporary that can be
locked has no writer and is removed by the next one to the same place.

``manifest.json`` says what a folder holds (``kind``) and lists the files that were written with it, their sizes and
SHA-256. It carries its own digest: a manifest that was changed by a single bit is not a manifest.

Reading what was saved: every file is compared with the manifest before anything is made of it.

Sizes come first: a file that is longer than it was written is not read, and an array whose header claims more than its
file can hold takes no memory.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import io
import json
import math
import os
import secrets
import shutil
import stat
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.errors import CrowdwiseError, OutputError, ReadError, listing

PREFIX = ".crowdwise-"
OLD = 86_400.0
"""Where there are no locks, a temporary that was not changed for so many seconds has no writer."""
EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
HERE = -100
"""AT_FDCWD."""
NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES)
"""What a system or a file system says that cannot swap two folders (or not these)."""
NEW = f"{PREFIX}new"
"""Inside a folder: a whole new version, whose files are moving up."""

done: list[Path] = []
"""Files and folders that this process has written, and that are in place."""


@contextmanager
def replacing(folder: str | os.PathLike[str], kind: str, *, manifest: bool = True) -> Iterator[Path]:
    """A temporary folder to write into, which takes the place of ``folder`` at the end.

    Only a folder that is empty, or holds an earlier one of this kind and nothing else, is replaced. Where anything goes
    wrong, the earlier one stays. Without a manifest only an empty folder is.
    """
    target = Path(os.path.realpath(folder))
    check_target(folder, kind if manifest else None)
    new: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _finish(target)
        inside = target.is_dir() and _stays(target)
        parent = target if inside else target.parent
        clean_temporaries(parent, target.name, lambda left: _discard(left, target))
        with temporary(parent, target.name, folder=True) as new:
            yield new
            if manifest:
                seal(new, kind)
            if target.is_dir() and not inside:
                shutil.copymode(target, new)
            sync_tree(new)
            check_target(folder, kind if manifest else None)
            _publish(new, target, inside)
            done.append(Path(folder))
            new = None
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"The {kind} could not be written to {folder}: {error.strerror or error}.") from error
    finally:
        if new is not None:
            shutil.rmtree(new, ignore_errors=True)


def check_target(folder: str | os.PathLike[str] | None, kind: str | None) -> None:
    """Raise an error where something of a kind cannot be saved to a folder: it holds something else, or more.

    ``None``: there is nothing that may be replaced.
    """
    target = Path(os.path.realpath(folder)) if folder is not None else None
    if target is None or not os.path.lexists(target):
        return
    if not target.is_dir():
        raise OutputError(f"{folder} is a file, not a folder. Choose another name.")
    if not os.access(target, os.W_OK | os.X_OK):  # it could be swapped for a new one, and then not be removed
        raise OutputError(f"{folder} may not be changed by you: Permission denied. Choose another folder.")
    try:
        if not any(not name.startswith(PREFIX) for name in os.listdir(target)) and not (target / NEW).exists():
            return
        if kind is None:
            raise OutputError(f"{folder} exists already and is not an empty folder. Choose another folder.")
        earlier, older = whole_manifest(target), _older(target)
        files, folders = files_below(target)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{folder} cannot be looked into: {error.strerror or error}.") from error
    except ReadError as error:
        raise OutputError(f"{error.message} It is not replaced: remove it, or choose another folder.") from error
    if earlier is None or earlier.kind != kind:
        raise OutputError(
            f"{folder} exists already and holds something else than a saved {kind}"
            f"{'' if earlier is None else f' (a saved {earlier.kind})'}. Choose another folder. Nothing was touched."
        )
    mine = set(earlier.files) | earlier.folders() | {NAME} | older
    others = sorted(name for name in (files | folders) - mine if not name.startswith(PREFIX))
    if others:
        raise OutputError(
            f"{folder} holds more than a saved {kind}: {listing(others)}. Choose another folder, or move them away. "
            "Nothing was touched."
        )


def whole_manifest(folder: Path) -> Manifest | None:
    """The manifest of what a folder holds, which may be moving up; ``None`` where it has none."""
    return Manifest.read(folder / NEW) or Manifest.read(folder)


def _older(folder: Path) -> set[str]:
    """What the manifest before it lists, while a new one is moving up."""
    earlier = Manifest.read(folder) if (folder / NEW / NAME).exists() else None
    return set() if earlier is None else set(earlier.files) | earlier.folders()


def _stays(folder: Path) -> bool:
    """Whether a folder itself cannot be replaced, only what is in it."""
    mounted = os.path.ismount(folder)
    with suppress(OSError):
        mounted = mounted or os.path.samefile(folder, os.curdir)
    return mounted or not os.access(folder.parent, os.W_OK)


def _publish(new: Path, target: Path, inside: bool) -> None:
    """Let a whole folder take its place."""
    if not inside:
        for _ in range(100):
            try:
                new.rename(target)  # where there is none, or an empty one
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EBUSY):
                    raise
            else:
                sync_folder(target.parent)
                return
            try:
                if exchange(new, target):
                    sync_folder(target.parent)
                    _discard(new, target)
                    return
            except FileNotFoundError:  # another process has moved it: there is room now
                continue
            break
    _finish(target)
    new.rename(target / NEW)
    sync_folder(target)
    _finish(target)


def _discard(old: Path, target: Path) -> None:
    """Remove an old folder or a temporary: the files that its manifest lists, or, of one that was never whole, all.

    What came into the old folder after it was looked at goes on in the new one.
    """
    try:
        listed = whole_manifest(old)
    except ReadError:  # its own writer was killed over the manifest
        listed = None
    if listed is None:
        shutil.rmtree(old, ignore_errors=True)
        return
    for name in (*listed.files, NAME):
        (old / name).unlink(missing_ok=True)
    for name in sorted(files_below(old)[0]):
        if not name.startswith(PREFIX) and not os.path.lexists(target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (old / name).rename(target / name)
    _remove_empty(old)
    with suppress(OSError):
        old.rmdir()


def _remove_empty(folder: Path) -> None:
    """Remove the empty folders below a folder."""
    for name in sorted(files_below(folder)[1], reverse=True):
        with suppress(OSError):
            (folder / name).rmdir()


def _finish(target: Path) -> None:
    """Let the files of a whole new version inside a folder move up, the manifest last."""
    new = target / NEW
    if not new.is_dir():
        return
    if (new / NAME).exists():
        listed, older = whole_manifest(target), _older(target)
        assert listed is not None
        for name in older - set(listed.files) - listed.folders():
            with suppress(OSError):
                (target / name).unlink()
        names = [*sorted(listed.files), NAME]
    else:  # a folder without a manifest, or the last step of one with it
        names = sorted(files_below(new)[0])
    for name in names:
        if (new / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(new / name, target / name)
    _remove_empty(new)
    new.rmdir()
    _remove_empty(target)
    sync_folder(target)


def write_whole(write: Callable[[str], Any], path: str | os.PathLike[str], *, private: bool = False) -> None:
    """Let ``write`` fill a temporary file beside the place, then move it there: an earlier one stays where anything
    goes wrong. ``private``: no other user of the machine may read it."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise OutputError(f"{path} is a folder: name a file in it.")
    new: Path | None = None
    try:
        clean_temporaries(target.parent, target.name, Path.unlink)
        with temporary(target.parent, target.name, folder=False) as new:
            if private:
                new.chmod(0o600)
            write(str(new))
            if target.exists() and not private:
                shutil.copymode(target, new)
            sync_file(new)
            os.replace(new, target)
            done.append(Path(path))
            sync_folder(target.parent)
    except OutputError:
        raise
    except OSError as error:
        before = " The file that was there is as it was." if target.exists() else ""
        raise OutputError(f"{path} could not be written: {error.strerror or error}.{before}") from error
    finally:
        if new is not None:
            new.unlink(missing_ok=True)


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a text, whole or not at all."""
    write_whole(lambda name: Path(name).write_text(text, encoding="utf-8"), path)


@contextmanager
def temporary(parent: Path, name: str, *, folder: bool) -> Iterator[Path]:
    """A new temporary file or folder for the place ``name``, locked; its permissions follow the umask.

    It is not removed at the end.
    """
    while True:
        path = parent / f"{PREFIX}{_digest(name)}-{secrets.token_hex(6)}"
        if folder:
            path.mkdir()
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            held = _lock(path)
            break
        except (BlockingIOError, FileNotFoundError):  # taken for one without a writer, before it was locked
            continue
    try:
        yield path
    finally:
        if held is not None:
            os.close(held)


def clean_temporaries(parent: Path, name: str, remove: Callable[[Path], None]) -> None:
    """Remove what killed processes left behind of the place ``name``."""
    for path in parent.glob(f"{PREFIX}{_digest(name)}-*"):
        held = None
        try:
            held = _lock(path)
            if held is not None or time.time() - path.stat().st_mtime > OLD:
                remove(path)
        except OSError:  # a live one, or gone already
            continue
        finally:
            if held is not None:
                os.close(held)


def _lock(path: Path) -> int | None:
    """An open descriptor that holds the lock of a temporary; ``None`` where the system has no locks.

    An error where another process holds it, or it is gone.
    """
    if sys.platform == "win32":
        return None
    else:
        import fcntl

        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise
        except OSError:
            os.close(handle)
            return None
        try:  # between opening and locking, another process may have removed it
            same = os.path.samestat(os.fstat(handle), path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            os.close(handle)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return handle


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:12]


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, so that both names always show one; whether that is possible here."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, TypeError, AttributeError):  # Windows, or a system without it
        return False
    if swap(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(other))


def sync_file(path: Path) -> None:
    """Wait until a file is on the disk."""
    _sync(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    with suppress(OSError):
        _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Wait until all files below a folder are on the disk."""
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            sync_file(Path(place) / name)
        sync_folder(Path(place))


NAME = "manifest.json"
FORMAT = 1
LONGEST = 2**24
"""Bytes: a longer manifest is none of ours."""


@dataclass(frozen=True)
class Manifest:
    """What was written: the kind of thing, and file (relative, with slashes) -> (size, SHA-256)."""

    kind: str
    files: dict[str, tuple[int, str]]

    def text(self) -> str:
        body = {"crowdwise": FORMAT, "kind": self.kind, "files": {k: list(v) for k, v in sorted(self.files.items())}}
        return json.dumps(body | {"sha256": sha256(json.dumps(body).encode())}, indent=1) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of a folder; ``None`` where it has none."""
        try:
            content = read_regular(folder / NAME, LONGEST)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return cls.parse(b"" if content is None else content, folder)

    @classmethod
    def parse(cls, content: bytes, where: Path) -> Manifest:
        """The manifest that a file holds."""
        try:
            parsed: Any = json.loads(content)
            manifest = cls(
                parsed["kind"], {k: (int(size), str(digest)) for k, (size, digest) in parsed["files"].items()}
            )
            whole = manifest.text().encode() == content
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            whole = False
        if not whole or not all(_inside(name) for name in manifest.files):
            raise ReadError(f"{where / NAME} is damaged: it is not as it was written.")
        return manifest

    def folders(self) -> set[str]:
        """The folders that its files are in."""
        parents = (str(parent) for name in self.files for parent in PurePosixPath(name).parents)
        return {parent for parent in parents if parent != "."}


def _inside(name: str) -> bool:
    """Whether a name stays in the folder."""
    path = PurePosixPath(name)
    return (
        name == str(path)
        and not path.is_absolute()
        and ".." not in path.parts
        and "\\" not in name
        and name not in (NAME, ".")
    )


def read_regular(path: Path, most: int) -> bytes | None:
    """The content of a plain file; ``None`` where it holds more than so many bytes, or is not a plain file."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        return None
    with path.open("rb") as file:
        return file.read(most + 1)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def files_below(folder: Path) -> tuple[set[str], set[str]]:
    """All files and all folders below a folder, relative and with slashes; links and the like count as files."""
    files, folders = set[str](), set[str]()
    for place, names, others in os.walk(folder):
        for name in (*names, *others):
            path = Path(place) / name
            real = name in names and not path.is_symlink()
            (folders if real else files).add(path.relative_to(folder).as_posix())
    return files, folders


def seal(folder: Path, kind: str) -> None:
    """Write the manifest of all files in a folder."""
    listed = {}
    for name in files_below(folder)[0] - {NAME}:
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        listed[name] = ((folder / name).stat().st_size, digest)
    (folder / NAME).write_text(Manifest(kind, listed).text(), encoding="utf-8")


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
            value = json.loads(self.files[name])
            if not isinstance(value, dict):
                raise ValueError(f"{name} is no JSON object")
            return value

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
        manifest = whole_manifest(Path(folder))
    except OSError as error:
        raise ReadError(f"{folder} cannot be read: {error.strerror or error}.") from error
    return None if manifest is None else manifest.kind


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
        f"There is no {kind} in {folder}: it has no {NAME}, which every saved {kind} has. It was written by "
        "something else or another version of crowdwise, or a part is missing."
    )


def _check_size(folder: Path, name: str, manifest: Manifest, kind: str) -> None:
    try:
        size = (folder / name).stat().st_size
    except FileNotFoundError:
        raise ReadError(f"{folder} does not hold a readable {kind}: {name} is missing.") from None
    if size != manifest.files[name][0]:
        raise ReadError(f"{folder} does not hold a readable {kind}: {name} is damaged, it is not as it was saved.")


def _content(folder: Path, name: str, manifest: Manifest, kind: str) -> bytes:
    """A file, which may be moving up from a new version."""
    size, digest = manifest.files[name]
    new = folder / NEW / NAME
    for path in (folder / NEW / name, folder / name) if new.exists() else (folder / name,):
        try:
            content = read_regular(path, size)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if content is None or len(content) != size or sha256(content) != digest:
            raise ReadError(f"{folder} does not hold a readable {kind}: {name} is damaged, it is not as it was saved.")
        return content
    raise ReadError(f"{folder} does not hold a readable {kind}: {name} is missing.")
