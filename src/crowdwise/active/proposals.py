"""A batch of (item, annotator) pairs to be asked, and which pairs may still be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crowdwise.active.state import State
from crowdwise.core.numerics import Floats, Ints

__all__ = ["Proposal", "allowed", "askable", "joined", "load_left", "n_pairs"]


@dataclass(frozen=True)
class Proposal:
    """Pairs to be asked, best first, in the codes of the state."""

    item: Ints
    annotator: Ints
    value: Floats
    """The expected value of each vote, in the strategy's own units."""
    price: Floats

    def __len__(self) -> int:
        return len(self.item)

    def __getitem__(self, pairs: slice) -> Proposal:
        return Proposal(self.item[pairs], self.annotator[pairs], self.value[pairs], self.price[pairs])


def joined(parts: Sequence[Proposal]) -> Proposal:
    """One proposal from several."""
    if not parts:
        return Proposal(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))
    return Proposal(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("item", "annotator", "value", "price")))


def n_pairs(parts: Sequence[Proposal]) -> int:
    return sum(len(p) for p in parts)


def load_left(load: Floats, taken: Sequence[Proposal]) -> Floats:
    """M: how many more votes each annotator may give."""
    load = load.copy()
    for p in taken:
        np.subtract.at(load, p.annotator, 1.0)
    return load


def allowed(state: State, items: Ints, people: Ints, taken: Sequence[Proposal]) -> npt.NDArray[np.bool_]:
    """C x A: which pairs may be asked."""
    place, column = _asked(state, items, people, taken)
    out = np.ones((len(items), len(people)), dtype=bool)
    out[place, column] = False
    return out


def askable(state: State, items: Ints, people: Ints, taken: Sequence[Proposal]) -> tuple[Ints, Ints]:
    """Where only some pairs are possible, those that may be asked: the places of the item and of the annotator."""
    assert state.possible is not None
    A = len(people)
    place, column = _columns(*state.possible.among(items), people, len(state.annotator_names))
    before, asked = _asked(state, items, people, taken)
    keep = ~np.isin(place * A + column, before * A + asked)
    return place[keep], column[keep]


def _asked(state: State, items: Ints, people: Ints, taken: Sequence[Proposal]) -> tuple[Ints, Ints]:
    """The pairs that must not be asked again: the places of the item and of the annotator."""
    parts = [state.voted.among(items)]
    if taken:
        where = np.full(len(state.item_names), -1)
        where[items] = np.arange(len(items))
        asked = where[np.concatenate([p.item for p in taken])]
        parts.append((asked[asked >= 0], np.concatenate([p.annotator for p in taken])[asked >= 0]))
    place, who = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _columns(place, who, people, len(state.annotator_names))


def _columns(place: Ints, who: Ints, people: Ints, M: int) -> tuple[Ints, Ints]:
    """The pairs whose annotators are among some people, by the places of these."""
    column = np.full(M, -1)
    column[people] = np.arange(len(people))
    column = column[who]
    return place[column >= 0], column[column >= 0]
