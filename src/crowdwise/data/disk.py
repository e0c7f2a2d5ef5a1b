"""What writing all or nothing needs of the system: flushed files, temporaries that can be told from live ones, a swap.

A temporary is a file or folder ``.crowdwise-NAME-TOKEN`` beside (or inside) the place that it is for; NAME is a digest
of the name of that place. Whoever writes it holds a lock on it, which ends with the process: a temporary that can be
locked belongs to nobody and is removed by the next who writes to the same place.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

PREFIX = ".crowdwise-"
OLD = 86_400.0
"""Where there are no locks, a temporary that was not changed for so many seconds belongs to nobody."""
EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
HERE = -100
"""AT_FDCWD."""
NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES)
"""What a system or a file system says that cannot swap two folders (or not these)."""

done: list[Path] = []
"""Files and folders that this process has written, and that are in place."""

__all__ = ["PREFIX", "clean_temporaries", "done", "exchange", "sync_file", "sync_folder", "sync_tree", "temporary"]


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
        except (BlockingIOError, FileNotFoundError):  # taken for one that belongs to nobody, before it was locked
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
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:
        os.close(handle)
        return None
    return handle


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:12]


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, so that both names always show one; whether that is possible here."""
    swap = getattr(_library(), "renameat2", None)
    if swap is None:
        return False
    if swap(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None, use_errno=True)
    except (OSError, TypeError):  # Windows
        return None


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
