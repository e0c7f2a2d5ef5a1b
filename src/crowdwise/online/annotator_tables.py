"""What a stream has counted: a table of each annotator, that of the crowd, and how many items each class has.

``step=None``: exact counts c[m, l, k]. A number: decayed averages a[m] of a vote, which move by steps t^-step towards
what the annotator's votes say under the latest posteriors, a <- (1 - g) a + g c, and their average over times, weighted
towards the late ones (Polyak and Ruppert). t counts the annotator's own votes: those who have not voted for a while
keep their tables. With steps 1/t these would be plain averages; larger steps forget counts under poor parameters.
"""

from __future__ import annotations

import numpy as np

from crowdwise.core.em import Stats
from crowdwise.core.numerics import Floats, Ints
from crowdwise.online.vote_store import grown

LATE = 2.0
"""The average over an annotator's votes gives the t-th a weight of about t to this power."""


class AnnotatorTables:
    """Counts of annotators, in the places of a :class:`~crowdwise.online.vote_store.VoteStore`."""

    def __init__(self, n_classes: int, step: float | None) -> None:
        K, self.step = n_classes, step
        self.clock = np.zeros(0)
        """M: how often (by weight) the votes of each annotator were counted so far."""
        self.given = np.zeros(0)
        """M: the number (weight) of votes of each annotator so far."""
        self.moving = np.zeros((0, K, K))
        """M x L x K: decayed tables a[m] of a vote."""
        self.counts = np.zeros((0, K, K))
        """M x L x K: averaged tables of a vote; with exact statistics, counts."""
        self.mass = np.zeros(K)
        self.pooled = np.zeros((K, K))
        """L x K: the counts of all annotators."""

    def make_room(self, M: int, K: int) -> None:
        """Room for new annotators and classes."""
        more = K - len(self.mass)
        if more:
            self.mass = np.pad(self.mass, (0, more))
            self.pooled = np.pad(self.pooled, ((0, more), (0, more)))
            self.moving, self.counts = (np.pad(a, ((0, 0), (0, more), (0, more))) for a in (self.moving, self.counts))
        self.clock, self.counts, self.given = grown(self.clock, M), grown(self.counts, M), grown(self.given, M)
        self.moving = grown(self.moving, 0 if self.step is None else M)

    def add(self, who: Ints, stats: Stats) -> None:
        """Exact statistics: add a change; rounding must not leave less than nothing."""
        table = stats.table()
        self.counts[who] = np.maximum(self.counts[who] + table, 0.0)
        self.pooled = np.maximum(self.pooled + table.sum(axis=0), 0.0)
        self.mass = np.maximum(self.mass + stats.mass, 0.0)

    def move(self, who: Ints, stats: Stats, step: float) -> None:
        """Decayed statistics: move the tables of some annotators towards the counts of some votes of theirs."""
        c = stats.table()
        t, b = self.clock[who], c.sum(axis=(1, 2))
        g, share = 1.0 - remaining_share(t, b, step), c / np.maximum(b, 1e-300)[:, None, None]
        self.moving[who] += g[:, None, None] * (share - self.moving[who])
        late = np.minimum(1.0, (1.0 + LATE) * b / (t + b + LATE))
        self.counts[who] += late[:, None, None] * (self.moving[who] - self.counts[who])
        self.clock[who] = t + b
        self.pooled += c.sum(axis=0)

    def replace(self, stats: Stats) -> None:
        """Take the statistics of all votes in place of those there are."""
        table = stats.table()
        M, self.mass, self.pooled = len(table), stats.mass, table.sum(axis=0)
        if self.step is None:
            self.counts[:M] = table
        else:
            self.clock[:M] = table.sum(axis=(1, 2))
            self.counts[:M] = self.moving[:M] = table / np.maximum(self.clock[:M], 1e-300)[:, None, None]

    def votes(self, who: Ints | slice) -> Floats:
        """The tables of some annotators, in votes."""
        return self.counts[who] if self.step is None else self.counts[who] * self.given[who][:, None, None]

    def crowd(self, prior_strength: float) -> Floats:
        """L x K: P(label | truth) of the crowd as a whole, with so many extra right answers for each class."""
        counts = self.pooled + prior_strength * np.eye(len(self.pooled)) + 1.0
        return np.asarray(counts / counts.sum(axis=0))


def remaining_share(t: Floats, b: Floats, step: float) -> Floats:
    """The share of an average that is left after b more votes, the steps being t^-step: the product of
    1 - (t + i)^-step for i = 1..b, from differences of a running sum of logarithms."""
    last = int(np.ceil((t + b).max())) if len(t) else 0
    i = np.arange(2, last + 1, dtype=np.float64)
    total = np.concatenate([[0.0, 0.0], np.cumsum(np.log1p(-(i**-step)))])
    first, end = np.round(t).astype(np.int64), np.maximum(np.round(t + b).astype(np.int64), 1)
    left = np.exp(total[np.minimum(end, len(total) - 1)] - total[np.minimum(first, len(total) - 1)])
    return np.where(first == 0, 0.0, left)
