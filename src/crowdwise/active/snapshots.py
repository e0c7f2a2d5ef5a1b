"""Snapshots of a campaign's stream: folders ``model-N``, N the number of the last vote that the stream has seen.

They only save time: a stream is the same without them, once it has learned from all votes of the journal. They hold
codes and no names, which are those of the journal.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from crowdwise.core.model import EMModel
from crowdwise.errors import CrowdwiseError
from crowdwise.online.stream import Online

KEPT = 2
"""How many of the latest are left on the disk."""

__all__ = ["Snapshots"]


class Snapshots:
    """The snapshots in the folder of a campaign."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def numbers(self) -> list[int]:
        names = (path.name.removeprefix("model-") for path in self.folder.glob("model-*"))
        return sorted(int(name) for name in names if name.isdigit())

    def latest(self, model: EMModel, last: int) -> tuple[Online, int] | None:
        """The latest that can be read and has seen no vote after the last one, and its number."""
        for number in reversed([n for n in self.numbers() if n <= last]):
            try:
                return Online.load(self.folder / f"model-{number}", model), number
            except CrowdwiseError:  # a damaged snapshot costs time, no votes
                continue
        return None

    def save(self, online: Online, number: int) -> None:
        online.save(self.folder / f"model-{number}", names=False)
        for old in self.numbers()[:-KEPT]:
            shutil.rmtree(self.folder / f"model-{old}", ignore_errors=True)
