"""The manifest of a saved folder: which files were written, of what size, with what SHA-256.

``manifest.json`` says what a folder holds (``kind``) and lists the files that were written with it. It carries its own
digest: a manifest that was changed by a single bit is no manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from crowdwise.errors import ReadError

NAME = "manifest.json"
FORMAT = 1
LONGEST = 2**24
"""Bytes: a longer manifest is none of ours."""

__all__ = ["NAME", "Manifest", "files_below", "read_regular", "seal", "sha256"]


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
            given: Any = json.loads(content)
            manifest = cls(given["kind"], {k: (int(size), str(digest)) for k, (size, digest) in given["files"].items()})
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
    """The content of a plain file; ``None`` where it holds more than so many bytes, or is no plain file."""
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
