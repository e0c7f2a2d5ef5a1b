"""Gold of a stream: known classes count whenever they come, before the votes on their items or after them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from crowdwise.core.numerics import Ints
from crowdwise.data.encoding import to_vocabulary
from crowdwise.data.frames import is_missing
from crowdwise.data.truth import unknown_class
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.online.names import Names
from crowdwise.online.stream_files import SavedStream

__all__ = ["StreamWithGold"]


class StreamWithGold(SavedStream):
    """A stream that keeps the known classes of items, and uses each from the moment its item has votes."""

    item_names: Names
    class_names: Names

    def add_gold(self, gold: Any) -> Self:
        """Give the classes of some items, item -> class: items that were voted on are visited again, others wait."""
        return self._keep(self._known(gold, self.item_names.names[:1], self.class_names.names))

    def _known(self, gold: Any, items: Any, classes: list[Any], votes: Votes | None = None) -> dict[Any, Any]:
        """Item -> class, with names as they are here; an array has a class code for each item of some votes."""
        if votes is not None and isinstance(gold, (np.ndarray, list, tuple)):
            codes = votes.encode_truth(gold)
            at = np.flatnonzero(codes >= 0)
            return dict(zip(votes.items[at].tolist(), votes.classes[codes[at]].tolist(), strict=True))
        if not hasattr(gold, "keys"):
            raise InputError(f"gold must be a mapping from item to class, and is {type(gold).__name__}.")
        given = {name: value for name, value in dict(gold).items() if not is_missing(value)}
        names, values = (to_vocabulary(list(some)).tolist() for some in (given, given.values()))
        known = {_like(name, items): _like(value, classes) for name, value in zip(names, values, strict=True)}
        odd = [value for value in known.values() if value not in classes]
        if odd:
            raise unknown_class(dict.fromkeys(odd), np.array(classes, dtype=object))
        return known

    def _keep(self, known: dict[Any, Any]) -> Self:
        """Take known classes; those of items in the store count at once."""
        self.waiting |= known
        codes, _ = self.item_names.encode(known)
        there = codes[codes < len(self.item_names)]
        items = self._set_waiting(there[self.store.items.find(there) >= 0])
        if len(items):
            self.converged = False
            self._visit(items)
        return self

    def _set_waiting(self, codes: Ints) -> Ints:
        """Set the known classes of some items (codes) in the store; their places."""
        if not self.waiting:
            return codes[:0]
        found = [code for code in codes.tolist() if self.item_names.names[code] in self.waiting]
        items = np.array(found, dtype=np.int64)
        classes = [self.waiting.pop(self.item_names.names[code]) for code in found]
        self.store.set_truth(items, self.class_names.encode(classes)[0])
        return np.sort(self.store.items.find(items))

    @abstractmethod
    def _visit(self, items: Ints) -> None:
        """Learn from some items in the store again."""


def _like(name: Any, others: Any) -> Any:
    """A name as the others are: numbers where these are numbers, text where these are text."""
    first = next(iter(others), name)
    if isinstance(first, str) and isinstance(name, int):
        return str(name)
    if isinstance(first, int) and isinstance(name, str) and name.lstrip("-").isdecimal() and str(int(name)) == name:
        return int(name)
    return name
