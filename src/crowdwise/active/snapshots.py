"""Snapshots of a campaign's stream: folders ``model-N``, N the number of the last vote that the stream has seen.

They only save time: a stream is the same without them, once it has learned from all votes of the campaign. They hold
codes and no names, which are those of the campaign. A snapshot carries notes on the votes that it has seen (whose they
are, and a digest): where those of the campaign are others now, it is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from crowdwise.core.model import EMModel
from crowdwise.data import manifests
from crowdwise.errors import CrowdwiseError, OutputError
from crowdwise.online import stream_files
from crowdwise.online.stream import Online

KEPT = 2
"""How many of the latest are left on the disk."""

__all__ = ["Snapshots"]


class Snapshots:
    """The snapshots in the folder of a campaign."""

    def __init__(self, folder: Path, model: EMModel) -> None:
        self.folder, self.model = folder, model

    def numbers(self) -> list[int]:
        names = (path.name.removeprefix("model-") for path in self.folder.glob("model-*"))
        return sorted(int(name) for name in names if name.isdecimal() and name.isascii())

    def latest(self, expected: Callable[[int], dict[str, Any]], *, remove: bool = True) -> tuple[Online, int] | None:
        """The latest that can be read and whose notes are those that are expected for its number, and its number.

        ``remove``: others are removed.
        """
        for number in reversed(self.numbers()):
            try:
                online = Online.load(self.folder / f"model-{number}", self.model)
            except CrowdwiseError:  # a damaged snapshot costs time, no votes
                continue
            if online.notes == expected(number):
                return online, number
            if remove:
                self._remove(number)
        return None

    def save(self, online: Online, number: int, notes: dict[str, Any]) -> None:
        """Write one, where the disk allows that; nothing depends on it."""
        with suppress(OutputError):
            online.save(self.folder / f"model-{number}", names=False, notes=notes)
        for old in self.numbers()[:-KEPT]:
            self._remove(old)

    def _remove(self, number: int) -> None:
        """Remove the files of a snapshot, and its folder where nothing else is in it."""
        folder = self.folder / f"model-{number}"
        with suppress(OSError):
            for name in (stream_files.FACTS, stream_files.ARRAYS, manifests.NAME):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
