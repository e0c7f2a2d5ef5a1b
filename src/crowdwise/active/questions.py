"""Questions that were handed out and are not answered yet: nobody else is sent them, until their time is over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.active.journal import Journal
from crowdwise.active.proposals import Proposal
from crowdwise.core.numerics import Ints

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

    def pairs(self) -> tuple[Ints, Ints]:
        """The codes of their items and annotators."""
        rows = self.journal.read("SELECT item - 1, annotator - 1 FROM asked")
        item, annotator = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        return item, annotator

    def price(self) -> float:
        """The price of all of them."""
        return float(self.journal.read("SELECT coalesce(sum(price), 0) FROM asked")[0][0])

    def expire(self, patience: float) -> None:
        """Forget those that are older than so many seconds. Where the clock was set back, their time begins now."""
        now = time.time()
        self.journal.write("UPDATE asked SET time = ? WHERE time > ?", [(now, now)])
        self.journal.write("DELETE FROM asked WHERE time < ?", [(now - patience,)])

    def hand_out(self, proposal: Proposal) -> None:
        """Note the pairs of a proposal."""
        now, columns = time.time(), (proposal.item.tolist(), proposal.annotator.tolist(), proposal.price.tolist())
        rows = [(item + 1, who + 1, now, price) for item, who, price in zip(*columns, strict=True)]
        self.journal.write("INSERT INTO asked (item, annotator, time, price) VALUES (?, ?, ?, ?)", rows)
