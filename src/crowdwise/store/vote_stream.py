"""The model of a campaign follows its votes, in a folder and on the server.

**Its state is a function of the votes that count**, in their order, and of the gold that is known now, to the last bit.
A stream depends on how votes are cut into batches, so the cuts are fixed: the model learns from whole blocks of
``BLOCK`` votes for good, and from the votes after the last whole block as one more batch, on a copy, which is thrown
away when more votes come. Where gold comes for an item that was learned from without it, the model learns again from
the first vote.

Snapshots are taken of whole blocks: folders ``model-N``, N the number of the last vote that the stream has seen. They
only save time, and hold codes without names. A snapshot carries notes on the votes that it has seen (whose they are,
and a digest): where those of the campaign are others now, it is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.core.model import EMModel
from crowdwise.core.numerics import Ints
from crowdwise.data import folders
from crowdwise.errors import CrowdwiseError, OutputError
from crowdwise.online import stream
from crowdwise.online.stream import Online
from crowdwise.online.vote_store import CodedBatch, Names
from crowdwise.store.journal import Journal
from crowdwise.store.roster import Roster

BLOCK = 1_000  # the votes that the model learns from at once
CHUNK = 20_000  # the votes that are read at once
SNAPSHOT = 20_000  # after so many votes a new snapshot of the model is saved


class VoteStream:
    """A stream that learns from the votes of a campaign: rows of (number, item, annotator, class) in codes."""

    def __init__(
        self, make: Callable[[], Online], items: Names, annotators: Names, snapshots: Snapshots | None = None
    ) -> None:
        self.make, self.names, self.snapshots = make, (items, annotators), snapshots
        self.restart()

    def restart(self, base: Online | None = None, last: int = 0) -> None:
        """Begin with a stream that has seen the votes up to a number; without one, with the first vote."""
        self.base = self.make() if base is None else base  # what was learned from whole blocks
        self.base.item_names, self.base.annotator_names = self.names
        self.pending: Ints = np.empty((0, 4), dtype=np.int64)  # the votes that count after the last whole block
        self.read = self.learned = self.saved = last
        """The numbers of the last vote that was read, of the last in ``base``, and of the last in a snapshot."""
        self.online, self.seen = self.base.copy(), last  # what was learned from all votes, and the number of the last

    def load(self, notes: Callable[[int], dict[str, Any]], *, remove: bool = True) -> None:
        """Begin with the latest snapshot, where there is one of votes that still are what they were."""
        snapshot = None if self.snapshots is None else self.snapshots.latest(notes, remove=remove)
        if snapshot is not None:
            self.restart(*snapshot)

    def knows(self, gold: dict[int, int]) -> bool:
        """Whether whole blocks were learned with the gold that is known now (item -> class, in codes)."""
        return _is_known(self.base, gold)

    def take(self, votes: Ints, last: int, gold: dict[int, int], gone: Collection[int] = ()) -> None:
        """The next votes, up to the number ``last``; those with numbers in ``gone`` were taken back."""
        self.pending, self.read = np.concatenate([self.pending, votes]), last
        if gone:
            self.pending = self.pending[~np.isin(self.pending[:, 0], list(gone))]
        while len(self.pending) >= BLOCK:
            _learn(self.base, self.pending[:BLOCK], gold)
            self.learned, self.pending = int(self.pending[BLOCK - 1, 0]), self.pending[BLOCK:]

    def now(self, gold: dict[int, int]) -> Online:
        """The stream after all votes that were read; it does not change any more."""
        if self.seen != self.read or not _is_known(self.online, gold):
            self.online, self.seen = self.base.copy(), self.read
            if len(self.pending):
                _learn(self.online, self.pending, gold)
        return self.online


def _learn(online: Online, rows: Ints, gold: dict[int, int]) -> None:
    _, item, annotator, label = rows.T
    online.learn(CodedBatch.of(item, annotator, label, gold=gold))


def _is_known(online: Online, gold: dict[int, int]) -> bool:
    """Whether a stream has learned with the gold that is known now."""
    store = online.store
    codes = np.fromiter(gold, dtype=np.int64, count=len(gold))
    place = store.items.find(codes)
    now = np.full(len(store.items), -1)
    now[place[place >= 0]] = np.fromiter(gold.values(), dtype=np.int64, count=len(gold))[place >= 0]
    return bool(np.array_equal(now, store.truth))


class JournalStream(VoteStream):
    """A stream of the votes in a journal."""

    def __init__(self, journal: Journal, roster: Roster, snapshots: Snapshots, make: Callable[[], Online]) -> None:
        super().__init__(make, roster.items, roster.annotators, snapshots)
        self.journal, self.roster = journal, roster
        with journal.reading():
            self.load(self._notes, remove=not journal.read_only)

    def follow(self) -> Online:
        """The stream after all votes of the journal."""
        with self.journal.reading():
            self.roster.refresh()
            gold = self._gold()
            if not self.knows(gold):
                self.restart()
            chain, rows = self.journal.chain(self.read) or "", None
            while rows is None or len(rows) == CHUNK:
                rows, _, chain = self.roster.votes_after(self.read, chain, CHUNK)
                if len(rows):
                    self.take(rows, int(rows[-1, 0]), gold)
                if self.learned - self.saved >= SNAPSHOT:
                    self.save()
            return self.now(gold)

    def save(self) -> None:
        """Save a snapshot of whole blocks, where there are more of them than in the last one."""
        if self.learned > self.saved and self.snapshots is not None and not self.journal.read_only:
            self.snapshots.save(self.base, self.learned, self._notes(self.learned))
            self.saved = self.learned

    def _notes(self, number: int) -> dict[str, Any]:
        """What a snapshot says of the votes that it has seen."""
        return {"journal": self.journal.facts()["identity"], "chain": self.journal.chain(number), "block": BLOCK}

    def _gold(self) -> dict[int, int]:
        """Item -> class, in codes."""
        gold = self.roster.items_with("gold")
        K, N = len(self.base.class_names), len(self.roster.items)
        with self.journal.decoding():
            if any(not 0 <= k < K or not 0 <= n < N for n, k in gold.items()):
                raise ValueError("a known class is none of the classes")
        return gold


KEPT = 2  # how many of the latest are left on the disk


class Snapshots:
    """The snapshots in the folder of a campaign."""

    def __init__(self, folder: Path, model: EMModel) -> None:
        self.folder, self.model = folder, model

    def numbers(self) -> list[int]:
        names = (path.name.removeprefix("model-") for path in self.folder.glob("model-*"))
        return sorted(int(name) for name in names if name.isdecimal() and name.isascii())

    def latest(self, expected: Callable[[int], dict[str, Any]], *, remove: bool = True) -> tuple[Online, int] | None:
        """The latest that can be read and has the notes that are expected for its number, and its number; with
        ``remove`` others are removed."""
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
            for name in (stream.FACTS, stream.ARRAYS, folders.NAME):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
