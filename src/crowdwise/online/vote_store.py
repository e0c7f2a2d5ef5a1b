"""Votes as they come in: a store that grows, where the votes of an item are found without looking at the others.

=============  =====  ==================================================================
array          size   meaning
=============  =====  ==================================================================
``annotator``  S      who gave the vote
``label``      S      what it said
``weight``     S      how much it counts
``before``     S      the vote on the same item that came before it, -1 for the first
``last``       N      the last vote on an item
``truth``      N      the class of an item where it is known, -1 elsewhere
=============  =====  ==================================================================

Adding b votes costs O(b) and what their items hold already, however many votes there are on others. Arrays are kept
twice as large as they need to be when they grow, so that growing costs O(1) a vote.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import DuplicateError

OnDuplicate = Literal["error", "first", "last", "all"]
ROWS = {"annotator": np.int32, "label": np.int32, "weight": np.float64, "before": np.int64}
ITEMS = {"last": np.int64, "truth": np.int32}


class Names:
    """Names and their codes, in the order in which they were first seen."""

    def __init__(self, names: Any = ()) -> None:
        self.names: list[Any] = list(names)
        self._code = {name: code for code, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def codes(self, names: npt.NDArray[Any]) -> Ints:
        """The codes of some names; new ones get the next."""
        out = np.empty(len(names), dtype=np.int64)
        for place, name in enumerate(names.tolist()):
            code = self._code.get(name)
            if code is None:
                code = self._code[name] = len(self.names)
                self.names.append(name)
            out[place] = code
        return out

    def find(self, names: npt.NDArray[Any]) -> tuple[Ints, Ints]:
        """Which of some names are there, and their codes."""
        codes = np.array([self._code.get(name, -1) for name in names.tolist()], dtype=np.int64)
        there = np.flatnonzero(codes >= 0)
        return there, codes[there]

    def array(self, codes: Ints | None = None) -> npt.NDArray[Any]:
        """The names behind some codes, or all of them."""
        names = self.names if codes is None else [self.names[code] for code in codes.tolist()]
        out = np.empty(len(names), dtype=object)
        out[:] = names
        return out


def grown(array: npt.NDArray[Any], size: int, fill: Any = 0) -> npt.NDArray[Any]:
    """The array, or a copy at least twice as long where it holds fewer than ``size`` rows."""
    if size <= len(array):
        return array
    out = np.full((max(size, 2 * len(array), 64), *array.shape[1:]), fill, dtype=array.dtype)
    out[: len(array)] = array
    return out


class Ledger:
    """The votes so far, with names."""

    def __init__(self, classes: Any = ()) -> None:
        self.items, self.annotators, self.classes = Names(), Names(), Names(classes)
        self.declared = len(self.classes) > 0
        self.n_votes = 0
        self.rows: dict[str, npt.NDArray[Any]] = {name: np.empty(0, dtype) for name, dtype in ROWS.items()}
        self.per_item: dict[str, npt.NDArray[Any]] = {name: np.empty(0, dtype) for name, dtype in ITEMS.items()}

    def repeats(self, votes: Votes) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Which of some new votes are of annotators who voted on the item before, and the rows of those earlier votes.

        Nothing is added.
        """
        place, code = self.items.find(votes.items)
        who = np.full(votes.n_annotators, -1)
        known, codes = self.annotators.find(votes.annotators)
        who[known] = codes
        indptr, old = self.gather(code)
        M = len(self.annotators) + 1
        held = np.repeat(place, np.diff(indptr)) * M + self.rows["annotator"][old]
        key = votes.item * M + who[votes.annotator]
        order = np.argsort(held, kind="stable")
        at = np.searchsorted(held[order], key)
        repeat = (at < len(held)) & (who[votes.annotator] >= 0)
        repeat[repeat] = held[order[at[repeat]]] == key[repeat]
        return repeat, old[order[at[repeat]]]

    def check(self, votes: Votes, on_duplicate: OnDuplicate) -> None:
        """Complain of second votes where they are errors, before anything is changed."""
        repeat, _ = self.repeats(votes) if on_duplicate == "error" else (np.empty(0, bool), None)
        if repeat.any():
            row = int(np.flatnonzero(repeat)[0])
            who, item = votes.annotators[votes.annotator[row]], votes.items[votes.item[row]]
            raise DuplicateError(
                f"{who!r} has voted on {item!r} before ({int(repeat.sum())} such votes). "
                "Say what should count: on_duplicate='first', 'last' or 'all'."
            )

    def add(self, votes: Votes, on_duplicate: OnDuplicate) -> tuple[Ints, Ints]:
        """Add votes; the codes of their items (each once, in order) and the new rows."""
        self.check(votes, on_duplicate)
        new = np.ones(votes.n_votes, dtype=bool)
        earlier = np.empty(0, dtype=np.int64)
        if on_duplicate in ("first", "last"):
            repeat, earlier = self.repeats(votes)
            new = ~repeat
        item = self.items.codes(votes.items)[votes.item]
        who = self.annotators.codes(votes.annotators)[votes.annotator]
        label = self.classes.codes(votes.classes)[votes.label]
        if on_duplicate == "last":
            self.rows["label"][earlier], self.rows["weight"][earlier] = label[~new], votes.weights[~new]
        for name in ITEMS:
            self.per_item[name] = grown(self.per_item[name], len(self.items), -1)
        touched = np.unique(item)
        item, who, label, weight = item[new], who[new], label[new], votes.weights[new]
        rows = np.arange(self.n_votes, self.n_votes + len(item))
        self.n_votes += len(item)
        for name, values in (("annotator", who), ("label", label), ("weight", weight), ("before", -1)):
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

    def gather(self, items: Ints) -> tuple[Ints, Ints]:
        """The rows of some items' votes, item after item: ``(indptr, rows)``."""
        places, rows = [], []
        place, row = np.arange(len(items)), self.per_item["last"][items]
        while len(row := row[keep := row >= 0]):
            place = place[keep]
            places.append(place)
            rows.append(row)
            row = self.rows["before"][row]
        if not rows:
            return np.zeros(len(items) + 1, dtype=np.int64), np.empty(0, dtype=np.int64)
        where, row = np.concatenate(places), np.concatenate(rows)
        order = np.lexsort((row, where))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=len(items)))])
        return indptr, row[order]

    def votes(self) -> Votes:
        """All votes so far as a table. Classes stand as they were declared, or else in the usual order."""
        indptr, rows = self.gather(np.arange(len(self.items)))
        weight = self.rows["weight"][rows]
        names: dict[str, Any] = {"classes" if self.declared else "label_names": self.classes.names}
        return Votes.from_codes(
            np.repeat(np.arange(len(self.items)), np.diff(indptr)), self.rows["annotator"][rows],
            self.rows["label"][rows], items=self.items.names, annotators=self.annotators.names,
            weight=None if (weight == 1.0).all() else weight, truth=self.truth() or None, on_duplicate="all", **names,
        )  # fmt: skip

    def keep(self, n: int) -> Ints:
        """Keep the n items voted on last; their earlier codes."""
        N = len(self.items)
        items = np.sort(np.argsort(self.per_item["last"][:N], kind="stable")[N - n :])
        rows = np.sort(self.gather(items)[1])
        code = np.full(self.n_votes + 1, -1)  # the last place is that of -1, no vote
        code[rows] = np.arange(len(rows))
        self.rows = {name: values[rows] for name, values in self.rows.items()}
        self.rows["before"] = code[self.rows["before"]]
        self.per_item = {name: values[items] for name, values in self.per_item.items()}
        self.per_item["last"] = code[self.per_item["last"]]
        self.items, self.n_votes = Names(self.items.array(items)), len(rows)
        return items

    def truth(self) -> dict[Any, Any]:
        """Item -> class, where it is known."""
        known = self.per_item["truth"][: len(self.items)]
        return {self.items.names[n]: self.classes.names[known[n]] for n in np.flatnonzero(known >= 0).tolist()}

    def know(self, votes: Votes, gold: Ints) -> None:
        """Take note of the truth of the items of some votes that were added (-1 unknown)."""
        known = gold >= 0
        items = self.items.codes(votes.items)[known]
        self.per_item["truth"][items] = self.classes.codes(votes.classes)[gold[known]]
