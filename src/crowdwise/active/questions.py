"""Questions that were handed out and are not answered yet: nobody else is sent them, until their time is over."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crowdwise.active.journal import Journal
from crowdwise.active.proposals import Proposal
from crowdwise.core.numerics import Floats, Ints

TICK = 1e-6
"""Seconds between the questions of one batch, so that they keep their order."""

__all__ = ["OpenQuestions", "Question"]


@dataclass(frozen=True)
class Question:
    """An annotator to be asked about an item."""

    item: Any
    annotator: Any
    price: float
    value: float
    """The expected value of the vote, in the strategy's own units."""


class OpenQuestions:
    """The open questions of a campaign. Methods that change something belong inside :meth:`Journal.writing`."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def __len__(self) -> int:
        return self.journal.count("asked")

    def pairs(self, table: Literal["asked", "skipped"] = "asked") -> tuple[Ints, Ints]:
        """The codes of the items and annotators of open questions, or of those that were skipped."""
        rows = self.journal.read(f"SELECT item - 1, annotator - 1 FROM {table}")
        item, annotator = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        return item, annotator

    def rows(self, annotator: int | None = None) -> tuple[Ints, Ints, Floats]:
        """Items, annotators and prices of open questions, of all or of one annotator (a code), the oldest first."""
        query = "SELECT item - 1, annotator - 1, price FROM asked WHERE annotator = coalesce(?, annotator)"
        found = self.journal.read(f"{query} ORDER BY time, item", (None if annotator is None else annotator + 1,))
        item, who, price = np.array(found, dtype=np.float64).reshape(-1, 3).T
        return item.astype(np.int64), who.astype(np.int64), price

    def price(self) -> float:
        """The price of all of them."""
        return float(self.journal.read("SELECT coalesce(sum(price), 0) FROM asked")[0][0])

    def expire(self, patience: float) -> None:
        """Forget those that are older than so many seconds. Where the clock was set back, their time begins now."""
        now = time.time()
        self.journal.write("UPDATE asked SET time = ? WHERE time > ?", [(now, now)])
        self.journal.write("DELETE FROM asked WHERE time < ?", [(now - patience,)])

    def renew(self, annotator: int) -> None:
        """The time of an annotator's open questions begins again: the annotator is there."""
        last = "(SELECT max(time) FROM asked WHERE annotator = ?)"  # their order stays
        row = (time.time(), annotator + 1, annotator + 1)
        self.journal.write(f"UPDATE asked SET time = time + ? - {last} WHERE annotator = ?", [row])

    def hand_out(self, proposal: Proposal) -> None:
        """Note the pairs of a proposal: the best is the oldest."""
        when = time.time() - TICK * np.arange(len(proposal))[::-1]
        columns = (proposal.item + 1, proposal.annotator + 1, when, proposal.price)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        self.journal.write("INSERT INTO asked (item, annotator, time, price) VALUES (?, ?, ?, ?)", rows)

    def release(self, items: Iterable[int] | None, annotator: int | None) -> int:
        """Take back open questions about some items (codes), of an annotator, or both; how many there were."""
        before = len(self)
        if items is None:
            self.journal.write("DELETE FROM asked WHERE annotator = ?", [((annotator or 0) + 1,)])
        elif annotator is None:
            self.journal.write("DELETE FROM asked WHERE item = ?", [(n + 1,) for n in items])
        else:
            pairs = [(n + 1, annotator + 1) for n in items]
            self.journal.write("DELETE FROM asked WHERE item = ? AND annotator = ?", pairs)
        return before - len(self)

    def skip(self, items: Iterable[int], annotator: int, skipped: bool) -> None:
        """Ask an annotator no more about some items (codes), or ask again."""
        pairs = [(n + 1, annotator + 1) for n in items]
        if skipped:
            rows = [(*pair, time.time()) for pair in pairs]
            self.journal.write("INSERT OR IGNORE INTO skipped (item, annotator, time) VALUES (?, ?, ?)", rows)
            self.journal.write("DELETE FROM asked WHERE item = ? AND annotator = ?", pairs)
        else:
            self.journal.write("DELETE FROM skipped WHERE item = ? AND annotator = ?", pairs)
