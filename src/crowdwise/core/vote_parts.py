"""Votes in parts: what a fit needs of them before, in and after its loop, as sums over parts.

A part holds some items with all of their votes. Parts share the names of annotators and classes, and are loaded one at
a time (from memory-mapped files, say), so that no fit needs all votes at once:

====================================  ==================================================================
start                                 the statistics of vote shares, or of votes weighted by gold labels
priors that are learned               the counts against the majority's labels
the anchor                            the statistics of vote shares
a pass of EM                          expected counts, mass and log-likelihood
gold labels                           the statistics of the posterior, and the gold items of each part
====================================  ==================================================================

The sums agree with those of all votes in one piece up to rounding, whatever the split.

Two functions go over the parts: :meth:`VoteParts.total` sums what a function gives of each part, and
:meth:`VoteParts.map` lists it. A method that uses these, and no loop of its own over parts, runs wherever the parts
are: in this process, or on the machines of a cluster (:mod:`crowdwise.spark`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, Protocol

import numpy as np

from crowdwise.core import dependence, em, starts
from crowdwise.core.crowd_kind import CrowdKind, crowd_sums, kind_of
from crowdwise.core.dependence import Dependence
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.gold_regression import by_other_items
from crowdwise.core.numerics import Floats, Ints, clamp
from crowdwise.data.encoding import Vocabulary
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError

IN_PARTS = (
    "auto", "anchored", "dawid-skene", "one-coin", "confusion-vector", "fast-dawid-skene", "ibcc", "cbcc",
    "worker-cluster", "mace", "zencrowd", "mf", "majority", "wawa", "zero-based-skill", "iwmv", "pm", "catd",
    "gold-weighted",
)  # fmt: skip
"""The methods whose classes say ``in_parts``, for messages."""


@dataclass(frozen=True, eq=False)
class VotePart:
    """Some items with all of their votes, and the codes of their gold labels (-1 unknown). An engine of its own.

    ``cell`` (annotator * K + label of each vote) may be given where it is at hand.
    """

    votes: Votes
    gold: Ints | None = None
    cell: Ints | None = None
    item_prior: Floats | None = None
    """N x K: log P(class of item n) before any vote."""

    @cached_property
    def part(self) -> Part:
        """As raw arrays."""
        return Part.of(self.votes, self.gold, self.item_prior, cell=self.cell)

    @property
    def names(self) -> Votes:
        """Votes with the names of annotators and classes."""
        return self.votes

    @property
    def n_votes(self) -> float:
        """The total weight of the votes."""
        return self.part.n_votes

    def expect(self, params: Params, *, hard: bool = False, engine: str = "auto") -> Stats:
        """The statistics of the votes under some parameters."""
        return self.part.expect(params, hard=hard, engine=engine)

    def posterior(self, params: Params) -> Floats:
        """N x K."""
        return em.expect(self.part, params, posterior=True)[1]

    def statistics(self, posterior: Posterior) -> Stats:
        """The statistics that go with a posterior of each item."""
        return em.statistics(self.part, posterior(self))

    def select(self, items: Any) -> VotePart:
        """Some of the items, by mask or position."""
        rows = np.flatnonzero(items) if np.asarray(items).dtype == bool else np.asarray(items)
        return VotePart(self.votes[rows], None if self.gold is None else self.gold[rows])


Posterior = Callable[[VotePart], Floats]
"""N x K class probabilities of the items of a part."""


class Totals(Protocol):
    """Votes that know their names and the sums over them: one part, or many."""

    @property
    def names(self) -> Votes:
        """Votes (or none) with the names of annotators and classes."""
        ...

    def statistics(self, posterior: Posterior) -> Stats:
        """The statistics that go with a posterior of each item."""
        ...


def _same(part: VotePart | Votes) -> VotePart | Votes:
    return part


class VoteParts:
    """Votes in parts, each loaded when it is its turn and forgotten afterwards. An engine.

    Parameters
    ----------
    load
        One function per part, which gives a :class:`VotePart` (or :class:`~crowdwise.Votes`). No item is in two parts.
    annotators, classes
        The names behind the codes, the same in all parts.
    """

    def __init__(
        self, load: Sequence[Callable[[], VotePart | Votes]], annotators: Vocabulary, classes: Vocabulary
    ) -> None:
        self.load = list(load)
        self.names = Votes.none(annotators, classes)

    @classmethod
    def of(cls, parts: Sequence[VotePart | Votes]) -> VoteParts:
        """Parts that are in memory."""
        if not parts:
            raise InputError("No parts: there are no votes to fit to.")
        first = parts[0].votes if isinstance(parts[0], VotePart) else parts[0]
        return cls([partial(_same, part) for part in parts], first.annotators, first.classes)

    def __iter__(self) -> Iterator[VotePart]:
        """The parts that have items, one after the other."""
        for load in self.load:
            found = load()
            part = found if isinstance(found, VotePart) else VotePart(found)
            same = len(part.votes.annotators) == self.names.n_annotators and len(part.votes.classes) == (
                self.names.n_classes
            )
            if not same:
                raise InputError(
                    f"A part has {part.votes.n_annotators:,} annotators and {part.votes.n_classes:,} classes where "
                    f"the others have {self.names.n_annotators:,} and {self.names.n_classes:,}: parts share the names."
                )
            if len(part.votes):
                yield part

    def gold_items(self) -> list[VotePart]:
        """Of each part its items with gold labels, where it has any."""
        return [part for part in self.map(_gold_items) if part is not None] if self.sizes[2] else []

    @cached_property
    def sizes(self) -> Floats:
        """Items, votes (their weight), and items with a gold label."""
        return np.asarray(self.total(_size, np.zeros(3)))

    @cached_property
    def agreeing(self) -> Floats:
        """:func:`crowdwise.core.dependence.agreeing_items` of all parts."""
        return np.asarray(self.total(_agreeing, np.zeros(2)))

    @cached_property
    def kind(self) -> CrowdKind:
        """The kind of the crowd (:mod:`crowdwise.core.crowd_kind`)."""
        K = self.names.n_classes
        return kind_of(self.total(_crowd_sums, np.zeros(self.names.n_annotators * K + 2)), K)

    @property
    def n_items(self) -> int:
        """The number of items of all parts."""
        return int(self.sizes[0])

    @property
    def n_votes(self) -> float:
        """The total weight of the votes of all parts."""
        return float(self.sizes[1])

    def expect(self, params: Params, *, hard: bool = False, engine: str = "auto") -> Stats:
        """The statistics of all parts under some parameters."""
        return self.summed(lambda part: part.expect(params, hard=hard, engine=engine))

    def statistics(self, posterior: Posterior) -> Stats:
        """The statistics that go with a posterior of each item."""
        return self.summed(lambda part: part.statistics(posterior))

    def summed(self, make: Callable[[VotePart], Stats]) -> Stats:
        """The sum of the statistics that a function gives of each part."""
        K, cells = self.names.n_classes, self.names.n_annotators * self.names.n_classes
        found: Stats = self.total(make, Stats(np.zeros((cells, K)), np.zeros(K)))
        return found

    def total(self, make: Callable[[VotePart], Any], zero: Any) -> Any:
        """``zero`` plus what a function gives of each part: an array, or statistics."""
        return reduce(add, self.map(make), zero)

    def map(self, make: Callable[..., Any], given: Sequence[Any] | None = None) -> Iterator[Any]:
        """What a function gives of each part that has items, in their order: ``make(part)``, or
        ``make(part, given[i])`` where something is given for each."""
        for i, part in enumerate(self):
            yield make(part) if given is None else make(part, given[i])

    def without_gold(self) -> VoteParts:
        """The same votes, with no label known."""

        def unknown(load: Callable[[], VotePart | Votes]) -> VotePart:
            found = load()
            return replace(found, gold=None) if isinstance(found, VotePart) else VotePart(found)

        return VoteParts([partial(unknown, load) for load in self.load], self.names.annotators, self.names.classes)

    def where(self, keep: Callable[[VotePart], Any]) -> VoteParts:
        """The items for which a mask, made part by part, is true."""

        def some(load: Callable[[], VotePart | Votes]) -> VotePart:
            found = load()
            part = found if isinstance(found, VotePart) else VotePart(found)
            kept = np.asarray(keep(part), dtype=bool)
            return part if kept.all() else part.select(kept)

        load = [partial(some, load) for load in self.load]
        return VoteParts(load, self.names.annotators, self.names.classes)


def _size(part: VotePart) -> Floats:
    known = 0 if part.gold is None else int((part.gold >= 0).sum())
    return np.array([len(part.votes), part.n_votes, known], dtype=np.float64)


def _agreeing(part: VotePart) -> Floats:
    return dependence.agreeing_items(part.votes)


def _crowd_sums(part: VotePart) -> Floats:
    return crowd_sums(part.votes)


def _gold_items(part: VotePart) -> VotePart | None:
    """The items with gold labels, where there are any."""
    known = np.empty(0) if part.gold is None else np.flatnonzero(part.gold >= 0)
    return part.select(known) if len(known) else None


def start_statistics(parts: VoteParts) -> Stats:
    """The statistics of :func:`crowdwise.core.starts.gold_weighted`: two passes where there are gold labels."""
    if not parts.sizes[2]:
        return parts.statistics(lambda part: starts.shares(part.votes, part.gold))
    sums = parts.total(_agreement_sums, np.zeros((4, parts.names.n_annotators)))
    weight = starts.log_odds(starts.accuracy_of(sums), parts.names.n_classes)
    return parts.statistics(lambda part: clamp(starts.weighted_posterior(part.votes, weight), part.gold))


def _agreement_sums(part: VotePart) -> Floats:
    gold = np.full(len(part.votes), -1, dtype=np.int32) if part.gold is None else part.gold
    return starts.agreement_sums(part.votes, gold)


def shown_dependence(
    parts: VoteParts, posterior: Posterior, gold_by_votes: Posterior | None = None, regression: bool = False
) -> Dependence:
    """As :func:`crowdwise.core.dependence.usual`, from all parts.

    ``gold_by_votes``: the posterior of gold items by their votes and what other items teach, where the method has it.
    """
    found = replace(dependence.usual_for(parts.kind), pairs=bool(parts.agreeing[0]))
    known = parts.gold_items()
    if gold_by_votes is None and known and dependence.can_teach(parts.names, found):
        stats = parts.statistics(lambda part: clamp(posterior(part), part.gold))
        gold_by_votes = partial(_by_other_items, stats)
    if gold_by_votes is None or not known:
        return found
    free = np.concatenate([gold_by_votes(part) for part in known])
    gold = np.concatenate([part.gold for part in known if part.gold is not None])
    return dependence.with_gold(found, free, joined([part.votes for part in known]), gold, regression=regression)


def joined(parts: Sequence[Votes]) -> Votes:
    """One table from parts that share the names of annotators and classes, item after item."""
    first = parts[0]
    ends = np.cumsum([0, *(votes.n_votes for votes in parts)])
    indptr = np.concatenate([[0], *(votes.indptr[1:] + end for votes, end in zip(parts, ends, strict=False))])
    weight = None
    if any(votes.weight is not None for votes in parts):
        weight = np.concatenate([votes.weights for votes in parts])

    def column(name: str) -> Any:
        return np.concatenate([getattr(votes, name) for votes in parts])

    names = (column("items"), first.annotators, first.classes)
    return Votes(indptr, column("annotator"), column("label"), *names, weight)


def _by_other_items(stats: Stats, part: VotePart) -> Floats:
    assert part.gold is not None
    return by_other_items(stats, part.votes, part.gold)
