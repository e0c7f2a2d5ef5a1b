"""Folders and files that are written all or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdwise.errors import OutputError


@contextmanager
def replacing(folder: str | os.PathLike[str], marker: str, what: str) -> Iterator[Path]:
    """A temporary folder to write into, which takes the place of ``folder`` at the end.

    Only a folder that is empty or holds ``marker`` (an earlier ``what``, where there is such) is replaced. Where
    anything goes wrong, the earlier one stays.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / marker).is_file())):
        other = f"holds something else than a saved {what}" if marker else "is not an empty folder"
        raise OutputError(f"{folder} exists already and {other}. Choose another folder.")
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        yield temporary
        temporary.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"The {what} could not be written to {folder}: {error.strerror or error}.") from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)


def write_whole(write: Callable[[str], Any], path: str | os.PathLike[str]) -> None:
    """Let ``write`` fill a temporary file beside the place, then move it there: an earlier one stays where anything
    goes wrong."""
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder: name a file in it.")
    name: str | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        os.close(handle)
        write(name)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except OSError as error:
        raise OutputError(
            f"{path} could not be written: {error.strerror or error}. Nothing was left behind."
        ) from error
    finally:
        if name is not None and os.path.exists(name):
            os.unlink(name)


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a text, whole or not at all."""
    write_whole(lambda name: Path(name).write_text(text, encoding="utf-8"), path)
