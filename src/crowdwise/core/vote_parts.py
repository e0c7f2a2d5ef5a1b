"""Votes in parts: what a fit needs of them before, in and after its loop, as sums over parts.

A part holds some items with all of their votes. Parts share the names of annotators and classes, and are loaded one at
a time (from memory-mapped files, say), so that no fit needs all votes at once: its start, priors that are learned, the
anchor, each pass of EM and gold labels are sums over parts, which agree with those of all votes in one piece up to
rounding, whatever the split.

Two functions go over the parts: :meth:`VoteParts.total` sums what a function gives of each part, and
:meth:`VoteParts.map` lists it. A method that uses these, and no loop of its own over parts, runs wherever the parts
are: in this process, or on the machines of a cluster (:mod:`crowdwise.spark`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import islice
from operator import add
from typing import Any

import numpy as np

from crowdwise.core import dependence, em
from crowdwise.core.crowd_kind import CrowdKind, agreeing_votes, crowd_sums, kind_of
from crowdwise.core.dependence import Dependence
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.gold_regression import by_other_items
from crowdwise.core.numerics import Floats, Ints, clamp
from crowdwise.core.vote_sums import right_votes
from crowdwise.data.encoding import Vocabulary
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError


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
    _last: list[tuple[Params, Stats, Floats]] = field(default_factory=list, init=False, repr=False)
    """The latest posterior, with its parameters and statistics."""

    @cached_property
    def part(self) -> Part:
        """As raw arrays."""
        return Part.of(self.votes, self.gold, self.item_prior, cell=self.cell)

    @property
    def n_votes(self) -> float:
        return self.part.n_votes

    def expect(self, params: Params) -> Stats:
        """The statistics of the votes under some parameters; no pass where the posterior was computed last."""
        if self._last and self._last[0][0] is params:
            return self._last[0][1]
        self._last.clear()
        return self.part.expect(params)

    def posterior(self, params: Params) -> Floats:
        """N x K."""
        if not self._last or self._last[0][0] is not params:
            self._last[:] = [(params, *em.expect(self.part, params, posterior=True))]
        return self._last[0][2]

    def statistics(self, posterior: Posterior) -> Stats:
        """The statistics that go with a posterior of each item."""
        return em.statistics(self.part, posterior(self))

    def select(self, items: Any) -> VotePart:
        """Some of the items, by mask or position."""
        rows = np.flatnonzero(items) if np.asarray(items).dtype == bool else np.asarray(items)
        gold, before = (None if of_items is None else of_items[rows] for of_items in (self.gold, self.item_prior))
        return VotePart(self.votes[rows], gold, item_prior=before)


Posterior = Callable[[VotePart], Floats]
"""N x K class probabilities of the items of a part."""


def _as_part(votes: VotePart | Votes) -> VotePart:
    return votes if isinstance(votes, VotePart) else VotePart(votes)


class VoteParts:
    """Votes in parts, each loaded when it is its turn and forgotten afterwards. An engine.

    ``load`` has one function per part, which gives a :class:`VotePart` (or :class:`~crowdwise.Votes`). No item is in
    two parts, and the names behind the codes of annotators and classes are the same in all.
    """

    def __init__(
        self, load: Sequence[Callable[[], VotePart | Votes]], annotators: Vocabulary, classes: Vocabulary
    ) -> None:
        self.load = list(load)
        self.names = Votes.none(annotators, classes)
        self.held: list[VotePart] = []
        """The parts, where they are in memory."""

    @classmethod
    def of(cls, parts: Sequence[VotePart | Votes]) -> VoteParts:
        """Parts that are in memory."""
        if not parts:
            raise InputError("No parts: there are no votes to fit to.")
        held = list(map(_as_part, parts))
        out = cls([partial(_as_part, part) for part in held], held[0].votes.annotators, held[0].votes.classes)
        out.held = held
        return out

    @classmethod
    def whole(cls, votes: Votes, gold: Ints | None = None, item_prior: Floats | None = None) -> VoteParts:
        """All votes as one part."""
        return cls.of([VotePart(votes, gold, item_prior=item_prior)])

    @property
    def only(self) -> VotePart:
        """The one part that all votes are in."""
        if len(self.held) != 1:
            raise InputError("The votes are in parts: this needs all of them at once.")
        return self.held[0]

    @property
    def has_item_prior(self) -> bool:
        """Whether something is known of items before any vote."""
        return any(part.item_prior is not None for part in self.held)

    def __iter__(self) -> Iterator[VotePart]:
        """The parts that have items, one after the other."""
        for load in self.load:
            part = _as_part(load())
            if part.votes.n_annotators != self.names.n_annotators or part.votes.n_classes != self.names.n_classes:
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
        return np.asarray(self.total(lambda part: dependence.agreeing_items(part.votes), np.zeros(2)))

    @cached_property
    def crowd_sums(self) -> Floats:
        """:func:`crowdwise.core.crowd_kind.crowd_sums` of all parts."""
        zero = np.zeros(self.names.n_annotators * self.names.n_classes + 2)
        return np.asarray(self.total(lambda part: crowd_sums(part.votes), zero))

    @cached_property
    def kind(self) -> CrowdKind:
        """The kind of the crowd (:mod:`crowdwise.core.crowd_kind`)."""
        K = self.names.n_classes
        return kind_of(
            self.crowd_sums,
            K,
            lambda members: self.total(lambda part: agreeing_votes(part.votes, members), np.zeros((2, K))),
        )

    @property
    def n_items(self) -> int:
        """The number of items of all parts."""
        return int(self.sizes[0])

    @property
    def n_votes(self) -> float:
        """The total weight of the votes of all parts."""
        return float(self.sizes[1])

    def expect(self, params: Params) -> Stats:
        """The statistics of all parts under some parameters."""
        return self.summed(lambda part: part.expect(params))

    def statistics(self, posterior: Posterior) -> Stats:
        """The statistics that go with a posterior of each item."""
        return self.summed(lambda part: part.statistics(posterior))

    def summed(self, make: Callable[[VotePart], Stats]) -> Stats:
        """The sum of the statistics that a function gives of each part."""
        K, cells = self.names.n_classes, self.names.n_annotators * self.names.n_classes
        stats: Stats = self.total(make, Stats(np.zeros((cells, K)), np.zeros(K)))
        return stats

    def total(self, make: Callable[[VotePart], Any], zero: Any) -> Any:
        """The sum of what a function gives of each part, an array or statistics; ``zero`` where there is no part."""
        first = list(islice(each := self.map(make), 1))
        return reduce(add, each, first[0]) if first else zero

    def map(self, make: Callable[..., Any], values: Sequence[Any] | None = None) -> Iterator[Any]:
        """What a function gives of each part that has items, in their order: ``make(part)``, or
        ``make(part, given[i])`` where something is given for each."""
        for i, part in enumerate(self):
            yield make(part) if values is None else make(part, values[i])

    def without_gold(self) -> VoteParts:
        """The same votes, with no label known."""
        return self._each(lambda part: replace(part, gold=None))

    def where(self, keep: Callable[[VotePart], Any]) -> VoteParts:
        """The items for which a mask, made part by part, is true."""

        def kept_items(part: VotePart) -> VotePart:
            kept = np.asarray(keep(part), dtype=bool)
            return part if kept.all() else part.select(kept)

        return self._each(kept_items)

    def reweighed(self, change: Callable[[Votes], Votes]) -> VoteParts:
        """The same votes with other weights."""
        return self._each(lambda part: replace(part, votes=change(part.votes)))

    def sample(self, most: int) -> Votes:
        """A table of all votes, or of about so many, on items drawn from every part."""
        share = min(most / max(self.n_votes, 1.0), 1.0)
        if len(self.held) == 1:
            return _drawn(share, self.only)
        return joined([self.names, *self.map(partial(_drawn, share))])

    def _each(self, change: Callable[[VotePart], VotePart]) -> VoteParts:
        """The parts changed by a function: at once where they are in memory, else whenever one is loaded."""
        if self.held:
            return VoteParts.of([change(part) for part in self.held])

        def changed(load: Callable[[], VotePart | Votes]) -> VotePart:
            return change(_as_part(load()))

        return VoteParts([partial(changed, load) for load in self.load], self.names.annotators, self.names.classes)


def _drawn(share: float, part: VotePart) -> Votes:
    """A share of the items of a part, at random."""
    if share >= 1.0:
        return part.votes
    return part.votes[np.flatnonzero(np.random.default_rng(0).random(len(part.votes)) < share)]


def right_sums(parts: VoteParts, params: Params) -> Floats:
    """3 x M: :func:`crowdwise.core.vote_sums.right_votes` of all parts."""
    zero = np.zeros((3, parts.names.n_annotators))
    return np.asarray(parts.total(lambda part: np.stack(right_votes(part.votes, part.posterior(params))), zero))


def _size(part: VotePart) -> Floats:
    known = 0 if part.gold is None else int((part.gold >= 0).sum())
    return np.array([len(part.votes), part.n_votes, known], dtype=np.float64)


def _gold_items(part: VotePart) -> VotePart | None:
    """The items with gold labels, where there are any."""
    known = np.empty(0) if part.gold is None else np.flatnonzero(part.gold >= 0)
    return part.select(known) if len(known) else None


def resolve(
    setting: Any, parts: VoteParts, posterior: Posterior, *, shares: bool = False,
    gold_by_votes: Posterior | None = None, shared_prior: bool = False, kind: str | None = None,
) -> Dependence:  # fmt: skip
    """What the parameter ``dependence`` of a method asks for; ``shares``: its posterior is vote shares; ``kind``: of
    the crowd, where the method knows it."""
    if setting == "auto" and not shares:
        return usual(parts, posterior, gold_by_votes, shared_prior, kind, regression=True)
    copied = dependence.look_copied(parts.agreeing)
    if setting == "auto":
        return replace(dependence.SHARES, copied=copied, kind=kind)
    rho, source = (0.0, "none") if setting == "none" else (float(setting), "given")
    return Dependence(rho, source, shared_prior=shared_prior, copied=copied, kind=kind)


def usual(
    parts: VoteParts, posterior: Posterior, gold_by_votes: Posterior | None = None, shared_prior: bool = False,
    kind: str | None = None, regression: bool = False,
) -> Dependence:  # fmt: skip
    """As in real crowds, with the power and the bias by gold labels where there are some.

    ``gold_by_votes``: the posterior of gold items by their votes and what other items teach, where the method has it.
    ``regression``: whether gold labels may also correct what votes say.
    """
    kind = kind or parts.kind
    known, pairs = parts.gold_items(), bool(parts.agreeing[0])
    estimate = replace(
        dependence.USUAL, rho=0.0 if kind == "rules" else dependence.RHO, kind=kind, shared_prior=shared_prior,
        doubt=dependence.DOUBT if pairs or known or parts.has_item_prior else dependence.DOUBT_ALONE,
        pairs=pairs, copied=dependence.look_copied(parts.agreeing),
    )  # fmt: skip
    M, K = parts.names.n_annotators, parts.names.n_classes
    if gold_by_votes is None and known and estimate.pairs and 2 <= K and M * K**2 <= dependence.MAX_CELLS:
        stats = parts.statistics(lambda part: clamp(posterior(part), part.gold))
        gold_by_votes = partial(_by_other_items, stats)
    if gold_by_votes is None or not known:
        return estimate
    easier = _easier(parts, known)
    if easier > dependence.EASIER:
        return replace(estimate, easier=easier)
    free = np.concatenate([gold_by_votes(part) for part in known])
    gold = np.concatenate([part.gold for part in known if part.gold is not None])
    before = [part.item_prior for part in known if part.item_prior is not None]
    votes, log_prior = joined([part.votes for part in known]), np.concatenate(before) if before else None
    return dependence.with_gold(estimate, free, votes, gold, log_prior, regression)


def _easier(parts: VoteParts, known: list[VotePart]) -> float:
    """The share of the items on which votes agree more than on nine tenths of the gold items."""
    gold = np.concatenate([dependence.clearness(part.votes) for part in known])
    if len(gold) < dependence.LEAST_GOLD:
        return 0.0
    most = np.quantile(gold, 0.9, method="higher") + 1e-9

    def count(part: VotePart) -> Floats:
        clear = dependence.clearness(part.votes)
        return np.array([(clear > most).sum(), (clear > 0.0).sum()], dtype=np.float64)

    above, voted = parts.total(count, np.zeros(2))
    return float(above / max(voted, 1.0))


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
    times = [votes.timestamp for votes in parts if votes.timestamp is not None]
    time = np.concatenate(times) if sum(map(len, times)) == ends[-1] > 0 else None
    return Votes(indptr, column("annotator"), column("label"), *names, weight, time)


def _by_other_items(stats: Stats, part: VotePart) -> Floats:
    assert part.gold is not None
    return by_other_items(stats, part.votes, part.gold, part.item_prior)
