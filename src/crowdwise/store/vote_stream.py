"""The model of a campaign follows its journal.

**Its state is a function of the journal**: of the votes in their order, and of the gold that is known now. Who asked
when, and whether the campaign was closed meanwhile, does not matter to the last bit. A stream depends on how votes are
cut into batches, so the cuts are fixed: the model learns from whole blocks of ``BLOCK`` votes for good, and from the
votes after the last whole block as one more batch, on a copy, which is thrown away when more votes come. Where gold
comes for an item that was learned from without it, the model learns again from the first vote.

Snapshots are taken of whole blocks: folders ``model-N``, N the number of the last vote that the stream has seen. They
only save time: a stream is the same without them, once it has learned from all votes of the campaign. They hold codes
and no names, which are those of the campaign. A snapshot carries notes on the votes that it has seen (whose they
are, and a digest): where those of the campaign are others now, it is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.core.model import EMModel
from crowdwise.core.numerics import Ints
from crowdwise.data import folders
from crowdwise.errors import CrowdwiseError, OutputError
from crowdwise.online import stream_files
from crowdwise.online.stream import Online
from crowdwise.online.vote_store import Batch
from crowdwise.store.journal import Journal
from crowdwise.store.roster import Roster

BLOCK = 1_000
"""The votes that the model learns from at once."""
SNAPSHOT = 20_000
"""After so many votes a new snapshot of the model is saved."""


class JournalStream:
    """A stream of the votes in a journal."""

    def __init__(self, journal: Journal, roster: Roster, snapshots: Snapshots, make: Callable[[], Online]) -> None:
        self.journal, self.roster, self.snapshots, self.make = journal, roster, snapshots, make
        with journal.reading():
            found = snapshots.latest(lambda number: self._notes(journal.chain(number)), remove=not journal.read_only)
            self._start(*(found or (make(), 0)))
        self.saved = self.last

    def _start(self, base: Online, last: int, chain: str | None = None) -> None:
        base.item_names, base.annotator_names = self.roster.items, self.roster.annotators
        self.base, self.last = base, last
        """What was learned from whole blocks, and the number of their last vote."""
        self.chain = (self.journal.chain(last) or "") if chain is None else chain
        """The digest of these votes."""
        self.online, self.seen = base, last
        """What was learned from all votes, and the number of the last."""

    def follow(self) -> Online:
        """The stream after all votes of the journal."""
        with self.journal.reading():
            self.roster.refresh()
            gold = self._gold()
            if not self._is_known(self.base, gold):
                self._start(self.make(), 0)
            rows, _, chain = self.roster.votes_after(self.last, self.chain, BLOCK)
            while len(rows) == BLOCK:
                self._learn(self.base, rows, gold)
                self._start(self.base, int(rows[-1, 0]), chain)
                if self.last - self.saved >= SNAPSHOT:
                    self.save()
                rows, _, chain = self.roster.votes_after(self.last, self.chain, BLOCK)
            last = int(rows[-1, 0]) if len(rows) else self.last
            if last != self.seen or not self._is_known(self.online, gold):
                self.online, self.seen = self.base, self.last
                if len(rows):
                    self.online, self.seen = self.base.copy(), last
                    self._learn(self.online, rows, gold)
        return self.online

    def save(self) -> None:
        """Save a snapshot of whole blocks, where there are more of them than in the last one."""
        if self.last > self.saved and not self.journal.read_only:
            self.snapshots.save(self.base, self.last, self._notes(self.chain))
            self.saved = self.last

    def _notes(self, chain: str | None) -> dict[str, Any]:
        """What a snapshot says of the votes that it has seen."""
        return {"journal": self.journal.facts()["identity"], "chain": chain, "block": BLOCK}

    def _gold(self) -> dict[int, int]:
        """Item -> class, in codes."""
        gold = self.roster.items_with("gold")
        K, N = len(self.base.class_names), len(self.roster.items)
        with self.journal.decoding():
            if any(not 0 <= k < K or not 0 <= n < N for n, k in gold.items()):
                raise ValueError("a known class is none of the classes")
        return gold

    @staticmethod
    def _learn(online: Online, rows: Ints, gold: dict[int, int]) -> None:
        _, item, annotator, label = rows.T
        online.learn(Batch.of(item, annotator, label, gold=gold))

    @staticmethod
    def _is_known(online: Online, gold: dict[int, int]) -> bool:
        """Whether a stream has learned with the gold that is known now."""
        store = online.store
        codes = np.fromiter(gold, dtype=np.int64, count=len(gold))
        place = store.items.find(codes)
        now = np.full(len(store.items), -1)
        now[place[place >= 0]] = np.fromiter(gold.values(), dtype=np.int64, count=len(gold))[place >= 0]
        return bool(np.array_equal(now, store.truth))


KEPT = 2
"""How many of the latest are left on the disk."""


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
            for name in (stream_files.FACTS, stream_files.ARRAYS, folders.NAME):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
