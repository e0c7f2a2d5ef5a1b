"""Votes in codes as they come in: a store that grows, where the votes of an item are found without reading the others.

=============  =====  ==================================================================
array          size   meaning
=============  =====  ==================================================================
``annotator``  S      who gave the vote
``label``      S      the class it gave
``weight``     S      how much it counts
``before``     S      the vote on the same item that came before it, -1 for the first
``last``       N      the last vote on an item
``truth``      N      the known class of an item, -1 elsewhere
=============  =====  ==================================================================

Items and annotators have a code, which is stable and belongs to the owner of the names, and a place in these arrays:
the order in which they first came (:class:`Index`). Adding b votes costs O(b) and what their items hold already,
however many votes there are on others. Arrays double when they grow, so that growing costs O(1) a vote.

What a stream has counted: a table of each annotator, that of the crowd, and how many items each class has.

``step=None``: exact counts c[m, l, k]. A number: decayed averages a[m] of a vote, which move by steps t^-step towards
what the annotator's votes say under the latest posteriors, a <- (1 - g) a + g c, and their average over times, weighted
towards the late ones (Polyak and Ruppert). t counts the annotator's own votes: those who have not voted for a while
keep their tables. With steps 1/t these would be plain averages; larger steps forget counts under poor parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from crowdwise.core.em import Stats
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import InputError

OnDuplicate = Literal["error", "first", "last", "all"]
ROWS = {"annotator": np.int32, "label": np.int32, "weight": np.float64, "before": np.int64}
ITEMS = {"last": np.int64, "truth": np.int32}
NO_CODES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class CodedBatch:
    """Votes in codes, sorted by item and annotator."""

    items: Ints
    """The codes of the items, each once, in the order in which new ones enter the store."""
    annotators: Ints
    """The codes of the annotators, likewise."""
    item: Ints
    """S: the place of the vote's item in ``items``."""
    annotator: Ints
    label: Ints
    """S: class codes."""
    weight: Floats | None = None
    gold: Ints | None = None
    """The known class of each of ``items``, -1 where there is none."""

    @classmethod
    def of(cls, item: Ints, annotator: Ints, label: Ints, *, gold: Mapping[int, int] | None = None) -> Self:
        """A batch of votes in codes, in the order in which they came; ``gold``: item -> class, where it is known."""
        items, item = _by_first(item)
        annotators, annotator = _by_first(annotator)
        order = np.lexsort((annotator, item))
        known = np.array([gold.get(code, -1) for code in items.tolist()]) if gold else None
        return cls(items, annotators, item[order], annotator[order], label[order], gold=known)


def _by_first(codes: Ints) -> tuple[Ints, Ints]:
    """The distinct codes by their first appearance, and the place of each code among them."""
    distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return distinct[order], np.argsort(order)[inverse]


class Index:
    """Codes in the order in which they first came, and the place of each."""

    def __init__(self, codes: Ints = NO_CODES) -> None:
        self._size, self._codes, self._place = 0, NO_CODES, NO_CODES
        self.enter(np.asarray(codes, dtype=np.int64))

    def __len__(self) -> int:
        return self._size

    @property
    def codes(self) -> Ints:
        return self._codes[: self._size]

    def find(self, codes: Ints) -> Ints:
        """The places of some codes, -1 of those that have not come."""
        out = np.full(len(codes), -1)
        known = codes < len(self._place)
        out[known] = self._place[codes[known]]
        return out

    def enter(self, codes: Ints) -> Ints:
        """The places of distinct codes; new ones get the next."""
        place = self.find(codes)
        new = codes[place < 0]
        place[place < 0] = np.arange(self._size, self._size + len(new))
        self._codes = grown(self._codes, self._size + len(new))
        self._codes[self._size : self._size + len(new)] = new
        self._place = grown(self._place, int(new.max(initial=-1)) + 1, -1)
        self._place[codes] = place
        self._size += len(new)
        return place


def grown(array: npt.NDArray[Any], size: int, fill: Any = 0) -> npt.NDArray[Any]:
    """The array, or a copy at least twice as long where it holds fewer than ``size`` rows."""
    if size <= len(array):
        return array
    out = np.full((max(size, 2 * len(array), 64), *array.shape[1:]), fill, dtype=array.dtype)
    out[: len(array)] = array
    return out


class VoteStore:
    """The votes so far, in codes."""

    def __init__(self) -> None:
        self.items, self.annotators = Index(), Index()
        self.n_votes = 0
        self.rows: dict[str, npt.NDArray[Any]] = {name: np.empty(0, dtype) for name, dtype in ROWS.items()}
        self.per_item: dict[str, npt.NDArray[Any]] = {name: np.empty(0, dtype) for name, dtype in ITEMS.items()}

    @property
    def truth(self) -> Ints:
        """N: the known class of each item, -1 where there is none."""
        return self.per_item["truth"][: len(self.items)]

    def repeats(self, batch: CodedBatch) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Which votes of a batch are of annotators who voted on the item before, and the rows of those earlier votes.

        Nothing is added.
        """
        place, who = self.items.find(batch.items), self.annotators.find(batch.annotators)[batch.annotator]
        there = np.flatnonzero(place >= 0)
        indptr, old = self.gather(place[there])
        M = len(self.annotators) + 1
        held = np.repeat(there, np.diff(indptr)) * M + self.rows["annotator"][old]
        key = batch.item * M + who
        order = np.argsort(held, kind="stable")
        at = np.searchsorted(held[order], key)
        repeat = (at < len(held)) & (who >= 0)
        repeat[repeat] = held[order[at[repeat]]] == key[repeat]
        return repeat, old[order[at[repeat]]]

    def add(self, batch: CodedBatch, on_duplicate: OnDuplicate = "all") -> tuple[Ints, Ints, Floats]:
        """Add votes; the places of their items (each once, in order), and for each vote that of its annotator and by
        how much the weight of the annotator's votes grew.

        A second vote of an annotator on an item: the ``"first"`` stays, the ``"last"`` replaces it, or ``"all"`` count.
        """
        new, earlier = np.ones(len(batch.label), dtype=bool), NO_CODES
        if on_duplicate in ("first", "last"):
            repeat, earlier = self.repeats(batch)
            new = ~repeat
        item = self.items.enter(batch.items)[batch.item]
        who = self.annotators.enter(batch.annotators)[batch.annotator]
        label, weight = batch.label, np.ones(len(item)) if batch.weight is None else batch.weight
        growth = np.where(new, weight, 0.0)
        if on_duplicate == "last":
            growth[~new] = weight[~new] - self.rows["weight"][earlier]
            self.rows["label"][earlier], self.rows["weight"][earlier] = label[~new], weight[~new]
        for name in ITEMS:
            self.per_item[name] = grown(self.per_item[name], len(self.items), -1)
        touched = np.unique(item)
        item = item[new]
        rows = np.arange(self.n_votes, self.n_votes + len(item))
        self.n_votes += len(item)
        for name, values in (("annotator", who[new]), ("label", label[new]), ("weight", weight[new]), ("before", -1)):
            self.rows[name] = grown(self.rows[name], self.n_votes)
            self.rows[name][rows] = values
        # A vote follows the one before it on the same item in the batch, and the first of them the last one so far.
        order = np.argsort(item, kind="stable")
        item, row = item[order], rows[order]
        first = np.ones(len(row), dtype=bool)
        first[1:] = item[1:] != item[:-1]
        self.rows["before"][row[~first]] = row[np.flatnonzero(~first) - 1]
        self.rows["before"][row[first]] = self.per_item["last"][item[first]]
        final = np.ones(len(row), dtype=bool)
        final[:-1] = first[1:]
        self.per_item["last"][item[final]] = row[final]
        return touched, who, growth

    def set_truth(self, items: Ints, truth: Ints) -> None:
        """Keep the classes of some items (codes) that were voted on; -1 leaves an item as it is."""
        known = truth >= 0
        self.per_item["truth"][self.items.find(items[known])] = truth[known]

    def gather(self, items: Ints) -> tuple[Ints, Ints]:
        """The rows of the votes on the items at some places, item after item: ``(indptr, rows)``."""
        places, rows = [], []
        place, row = np.arange(len(items)), self.per_item["last"][items]
        while len(row := row[keep := row >= 0]):
            place = place[keep]
            places.append(place)
            rows.append(row)
            row = self.rows["before"][row]
        if not rows:
            return np.zeros(len(items) + 1, dtype=np.int64), NO_CODES
        where, row = np.concatenate(places), np.concatenate(rows)
        order = np.lexsort((row, where))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=len(items)))])
        return indptr, row[order]

    def votes(self, items: Ints | None = None) -> tuple[Ints, Ints, Ints, Floats]:
        """``(indptr, annotator, label, weight)`` of the votes on the items at some places, or on all; the weight is
        empty where every vote counts 1."""
        indptr, rows = self.gather(np.arange(len(self.items)) if items is None else items)
        weight = self.rows["weight"][rows]
        weight = weight if (weight != 1.0).any() else np.empty(0)
        return indptr, self.rows["annotator"][rows], self.rows["label"][rows], weight

    def retain(self, n: int) -> Ints:
        """Retain the n items voted on last; their earlier places."""
        N = len(self.items)
        items = np.sort(np.argsort(self.per_item["last"][:N], kind="stable")[N - n :])
        rows = np.sort(self.gather(items)[1])
        code = np.full(self.n_votes + 1, -1)  # the last place is that of -1, no vote
        code[rows] = np.arange(len(rows))
        self.rows = {name: values[rows] for name, values in self.rows.items()}
        self.rows["before"] = code[self.rows["before"]]
        self.per_item = {name: values[items] for name, values in self.per_item.items()}
        self.per_item["last"] = code[self.per_item["last"]]
        self.items, self.n_votes = Index(self.items.codes[items]), len(rows)
        return items


class Names:
    """Names in the order in which they were added; the code of a name is its place and never changes.

    >>> names = Names(["ann", "bob"])
    >>> codes, new = names.encode(["bob", "cem"])
    >>> codes.tolist(), new
    ([1, 2], ['cem'])
    >>> names.extend(new)
    >>> names.array()[codes].tolist()
    ['bob', 'cem']
    """

    def __init__(self, names: Iterable[Any] = ()) -> None:
        self.names: list[Any] = []
        self._code: dict[Any, int] = {}
        self._array: npt.NDArray[Any] = np.empty(0, dtype=object)
        self.extend(names)

    def __len__(self) -> int:
        return len(self.names)

    def extend(self, names: Iterable[Any]) -> None:
        """Add names that are new."""
        size = len(self.names)
        self.names.extend(names)
        self._code.update(zip(self.names[size:], range(size, len(self.names)), strict=True))

    def encode(self, names: Iterable[Any]) -> tuple[Ints, list[Any]]:
        """The codes of distinct names, and the names among them that are new: those get the next codes once they are
        passed to :meth:`extend`. Nothing is added here."""
        listed = names.tolist() if isinstance(names, np.ndarray) else list(names)
        codes = np.array([self._code.get(name, -1) for name in listed], dtype=np.int64)
        new = np.flatnonzero(codes < 0)
        codes[new] = len(self.names) + np.arange(len(new))
        return codes, [listed[place] for place in new.tolist()]

    def check_kind(self, new: Iterable[Any], what: str) -> None:
        """Raise an error where new names are of another kind than those that are here: text and integers do not mix."""
        for name in new if self.names else ():
            if type(name) is not type(self.names[0]):
                raise InputError(
                    f"Names of {what} are of one kind: {self.names[0]!r} came before, and {name!r} is of another. Give "
                    "all as text, or all as integers. Nothing was added."
                )

    def array(self) -> npt.NDArray[Any]:
        """All names: ``array()[codes]`` are the names behind some codes."""
        if len(self._array) != len(self.names):
            self._array = np.empty(len(self.names), dtype=object)
            self._array[:] = self.names
        return self._array


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
    i = np.arange(2.0, np.ceil((t + b).max(initial=0.0)) + 1.0)
    total = np.concatenate([[0.0, 0.0], np.cumsum(np.log1p(-(i**-step)))])
    first, end = np.round(t).astype(np.int64), np.maximum(np.round(t + b).astype(np.int64), 1)
    left = np.exp(total[np.minimum(end, len(total) - 1)] - total[np.minimum(first, len(total) - 1)])
    return np.where(first == 0, 0.0, left)
