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

Items and annotators have a code, which is stable and belongs to whoever keeps the names, and a place in these arrays:
the order in which they first came (:class:`Index`). Adding b votes costs O(b) and what their items hold already,
however many votes there are on others. Arrays double when they grow, so that growing costs O(1) a vote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

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
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return distinct[order], place[inverse]


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

    def first_repeat(self, batch: CodedBatch) -> tuple[int, int, int] | None:
        """Where annotators vote on an item again: the codes of the first such item and annotator, and how many do."""
        repeat, _ = self.repeats(batch)
        if not repeat.any():
            return None
        row = int(np.flatnonzero(repeat)[0])
        return int(batch.items[batch.item[row]]), int(batch.annotators[batch.annotator[row]]), int(repeat.sum())

    def add(self, batch: CodedBatch, on_duplicate: OnDuplicate = "all") -> tuple[Ints, Ints]:
        """Add votes; the places of their items (each once, in order) and the new rows.

        A second vote of an annotator on an item: the ``"first"`` stays, the ``"last"`` replaces it, or ``"all"`` count.
        """
        new, earlier = np.ones(len(batch.label), dtype=bool), NO_CODES
        if on_duplicate in ("first", "last"):
            repeat, earlier = self.repeats(batch)
            new = ~repeat
        item = self.items.enter(batch.items)[batch.item]
        who = self.annotators.enter(batch.annotators)[batch.annotator]
        label, weight = batch.label, np.ones(len(item)) if batch.weight is None else batch.weight
        if on_duplicate == "last":
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
        return touched, rows

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
        given = names.tolist() if isinstance(names, np.ndarray) else list(names)
        codes = np.array([self._code.get(name, -1) for name in given], dtype=np.int64)
        new = np.flatnonzero(codes < 0)
        codes[new] = len(self.names) + np.arange(len(new))
        return codes, [given[place] for place in new.tolist()]

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
