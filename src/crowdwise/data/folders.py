"""Folders and files that are written all or nothing.

A folder is written as a new one beside the old one, with a manifest of its files (:mod:`crowdwise.data.manifests`),
flushed to the disk, and then the two are swapped in one step: whoever looks at the name sees the old one or the new
one, whole, whenever the process is killed. Then the files of the old manifest are removed, and nothing else.

Where two folders cannot be swapped (a file system without it, a mounted folder, the folder one stands in), the new one
moves into the old one as ``.crowdwise-new``, which is the step that decides, and its files move up one by one, the
manifest last. :func:`crowdwise.data.saved_files.read_saved` reads a folder at any point of that, and the next save ends
what was begun.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crowdwise.data import disk, manifests
from crowdwise.data.manifests import Manifest, files_below, seal
from crowdwise.errors import OutputError, ReadError, listing

NEW = f"{disk.PREFIX}new"
"""Inside a folder: a whole new version, whose files are moving up."""

__all__ = ["NEW", "check_target", "replacing", "whole_manifest", "write_text", "write_whole"]


@contextmanager
def replacing(folder: str | os.PathLike[str], kind: str, *, manifest: bool = True) -> Iterator[Path]:
    """A temporary folder to write into, which takes the place of ``folder`` at the end.

    Only a folder that is empty, or holds an earlier one of this kind and nothing else, is replaced. Where anything goes
    wrong, the earlier one stays. Without a manifest only an empty folder is.
    """
    target = Path(os.path.realpath(folder))
    check_target(folder, kind if manifest else None)
    made: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _finish(target)
        inside = target.is_dir() and _stays(target)
        parent = target if inside else target.parent
        disk.clean_temporaries(parent, target.name, lambda left: _discard(left, target))
        with disk.temporary(parent, target.name, folder=True) as made:
            yield made
            if manifest:
                seal(made, kind)
            if target.is_dir() and not inside:
                shutil.copymode(target, made)
            disk.sync_tree(made)
            check_target(folder, kind if manifest else None)
            _publish(made, target, inside)
            disk.done.append(Path(folder))
            made = None
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"The {kind} could not be written to {folder}: {error.strerror or error}.") from error
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


def check_target(folder: str | os.PathLike[str] | None, kind: str | None) -> None:
    """Raise an error where something of a kind cannot be saved to a folder: it holds something else, or more.

    ``None``: there is nothing that may be replaced.
    """
    target = Path(os.path.realpath(folder)) if folder is not None else None
    if target is None or not os.path.lexists(target):
        return
    if not target.is_dir():
        raise OutputError(f"{folder} is a file, not a folder. Choose another name.")
    try:
        if not any(not name.startswith(disk.PREFIX) for name in os.listdir(target)) and not (target / NEW).exists():
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
    mine = set(earlier.files) | earlier.folders() | {manifests.NAME} | older
    others = sorted(name for name in (files | folders) - mine if not name.startswith(disk.PREFIX))
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
    earlier = Manifest.read(folder) if (folder / NEW / manifests.NAME).exists() else None
    return set() if earlier is None else set(earlier.files) | earlier.folders()


def _stays(folder: Path) -> bool:
    """Whether a folder itself cannot be replaced, only what is in it."""
    mounted = os.path.ismount(folder)
    with suppress(OSError):
        mounted = mounted or os.path.samefile(folder, os.curdir)
    return mounted or not os.access(folder.parent, os.W_OK)


def _publish(made: Path, target: Path, inside: bool) -> None:
    """Let a whole folder take its place."""
    if not inside:
        for _ in range(100):
            try:
                made.rename(target)  # where there is none, or an empty one
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EBUSY):
                    raise
            else:
                disk.sync_folder(target.parent)
                return
            try:
                if disk.exchange(made, target):
                    disk.sync_folder(target.parent)
                    _discard(made, target)
                    return
            except FileNotFoundError:  # another process has moved it: there is room now
                continue
            break
    _finish(target)
    made.rename(target / NEW)
    disk.sync_folder(target)
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
    for name in (*listed.files, manifests.NAME):
        (old / name).unlink(missing_ok=True)
    for name in sorted(files_below(old)[0]):
        if not name.startswith(disk.PREFIX) and not os.path.lexists(target / name):
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
    if (new / manifests.NAME).exists():
        listed, older = whole_manifest(target), _older(target)
        assert listed is not None
        for name in older - set(listed.files) - listed.folders():
            with suppress(OSError):
                (target / name).unlink()
        names = [*sorted(listed.files), manifests.NAME]
    else:  # a folder without a manifest, or the last step of one with it
        names = sorted(files_below(new)[0])
    for name in names:
        if (new / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(new / name, target / name)
    _remove_empty(new)
    new.rmdir()
    _remove_empty(target)
    disk.sync_folder(target)


def write_whole(write: Callable[[str], Any], path: str | os.PathLike[str]) -> None:
    """Let ``write`` fill a temporary file beside the place, then move it there: an earlier one stays where anything
    goes wrong."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise OutputError(f"{path} is a folder: name a file in it.")
    made: Path | None = None
    try:
        disk.clean_temporaries(target.parent, target.name, Path.unlink)
        with disk.temporary(target.parent, target.name, folder=False) as made:
            write(str(made))
            if target.exists():
                shutil.copymode(target, made)
            disk.sync_file(made)
            os.replace(made, target)
            disk.done.append(Path(path))
            disk.sync_folder(target.parent)
    except OutputError:
        raise
    except OSError as error:
        before = " The file that was there is as it was." if target.exists() else ""
        raise OutputError(f"{path} could not be written: {error.strerror or error}.{before}") from error
    finally:
        if made is not None:
            made.unlink(missing_ok=True)


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a text, whole or not at all."""
    write_whole(lambda name: Path(name).write_text(text, encoding="utf-8"), path)
