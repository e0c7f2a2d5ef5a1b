"""Votes as compact bytes: blocks that travel between machines, each with some items and all of their votes.

=============  ===========================================================================
``sizes``      the number of votes of each item
``annotator``  the code of the annotator of each vote, items one after the other
``label``      the code of the class of each vote
``weight``     the weight of each vote (8 bytes), or ``None``
``gold``       the code of the gold label of each item plus one (0: unknown), or ``None``
=============  ===========================================================================

Numbers take 1, 2, 4 or 8 bytes, as few as hold them: a vote of one of 2,000 annotators on 5 classes takes three bytes.
Their width is the length of the bytes over the number of items or votes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.truth import by_name, encode_classes
from crowdwise.data.votes import Votes
from crowdwise.errors import DuplicateError, InputError, Option, Remedy, listing

ROWS = 2_000_000
"""How many votes go into a block, on average."""
KEEP_ONE = Remedy(
    "Keep one with {}, or count every row with {}.",
    Option("on_duplicate", "first", "last"),
    Option("on_duplicate", "all"),
)


@dataclass(frozen=True)
class KnownClasses:
    """Known classes of items, whichever block they are in: gold labels, or the truth that measures."""

    names: Vocabulary
    codes: Codes
    what: str = "gold"

    @classmethod
    def of(cls, gold: Any, classes: Vocabulary, what: str = "gold") -> KnownClasses | None:
        """From a mapping of items to classes, a table or a Series; ``None`` where there is none."""
        gold = by_name(gold)
        if gold is None:
            return None
        if not isinstance(gold, Mapping):
            raise InputError(f"{what} must be a mapping from item to class, or a table; found {type(gold).__name__}.")
        names = encoding.to_vocabulary(list(gold))
        return cls(names, encode_classes(gold, names, classes), what)

    def of_items(self, items: Vocabulary) -> Codes:
        """A code for each item, -1 where its class is not known."""
        return encoding.recode(encoding.locate(items, self.names), self.codes)

    def check(self, found: int) -> None:
        """An error where classes are known, and none of their items was found."""
        if len(self.names) and not found:
            raise InputError(
                f"None of the {len(self.names):,} items with {self.what} has votes: {self.what} names "
                f"{listing(self.names, 3)}. Check that both name the items alike."
            )


def narrow(numbers: npt.NDArray[Any]) -> bytes:
    """The bytes of integers from 0 on, as few as hold them."""
    top = int(numbers.max()) if len(numbers) else 0
    width = next(width for width in (1, 2, 4, 8) if top < 2 ** (8 * width))
    return numbers.astype(f"<u{width}").tobytes()


def wide(data: Any, n: int, dtype: Any = np.int32) -> npt.NDArray[Any]:
    """The n integers that :func:`narrow` wrote."""
    return np.frombuffer(data, dtype=f"<u{len(memoryview(data)) // max(n, 1) or 1}").astype(dtype)


def packed(votes: Votes, gold: Codes | None = None) -> dict[str, bytes | None]:
    """The bytes of votes, and of the codes of gold labels."""
    return {
        "sizes": narrow(np.diff(votes.indptr)),
        "annotator": narrow(votes.annotator),
        "label": narrow(votes.label),
        "weight": None if votes.weight is None else votes.weight.astype("<f8").tobytes(),
        "gold": None if gold is None else narrow(gold + 1),
    }


def unpacked(
    block: Mapping[str, Any], n_items: int, n_votes: int, annotators: Vocabulary, classes: Vocabulary,
    items: Vocabulary | None = None,
) -> tuple[Votes, Codes | None]:  # fmt: skip
    """Votes and gold codes from their bytes; items are numbers unless their names are given."""
    indptr = np.zeros(n_items + 1, dtype=np.int64)
    np.cumsum(wide(block["sizes"], n_items), out=indptr[1:])
    weight = None if block["weight"] is None else np.frombuffer(block["weight"], dtype="<f8")
    votes = Votes(
        indptr, wide(block["annotator"], n_votes), wide(block["label"], n_votes),
        np.arange(n_items) if items is None else items, annotators, classes, weight,
    )  # fmt: skip
    return votes, None if block["gold"] is None else wide(block["gold"], n_items) - np.int32(1)


@dataclass(frozen=True)
class Repeated:
    """Rows of a block that an annotator gave twice: how many, and one of them in words."""

    count: int = 0
    example: str = ""

    @classmethod
    def of(cls, votes: Votes, annotators: Vocabulary | None = None) -> Repeated:
        """Votes in which every row was kept; names of annotators where the votes hold numbers in their place."""
        again = (np.diff(votes.annotator) == 0) & (np.diff(votes.item) == 0)
        if not again.any():
            return cls()
        at = int(np.flatnonzero(again)[0])
        who = (votes.annotators if annotators is None else annotators)[votes.annotator[[at]]]
        return cls(int(again.sum()), f"annotator {listing(who)} labels item {listing(votes.items[votes.item[[at]]])}")

    @staticmethod
    def check(found: list[Repeated]) -> None:
        """An error where blocks have such rows."""
        count = sum(one.count for one in found)
        if count:
            example = next(one.example for one in found if one.count)
            raise DuplicateError(
                f"{count:,} duplicated vote{'s' if count > 1 else ''}: {example} more than once.", remedy=KEEP_ONE
            )
