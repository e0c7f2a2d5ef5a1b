"""What is known at a moment, as a strategy sees it: posteriors of items, confusion matrices, who may be asked what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import registry
from crowdwise.core.constraints import NonNegative, checked
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, softmax
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.online.stream import Online


@dataclass(frozen=True)
class AskablePairs:
    """Some (item, annotator) pairs: the annotators of item n are ``annotator[indptr[n]:indptr[n + 1]]``."""

    indptr: Ints
    annotator: Ints

    @classmethod
    def of(cls, item: Ints, annotator: Ints, n_items: int) -> AskablePairs:
        order = np.argsort(item, kind="stable")
        return cls(np.concatenate([[0], np.cumsum(np.bincount(item, minlength=n_items))]), annotator[order])

    @property
    def item(self) -> Ints:
        """The item of each pair."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def among(self, items: Ints) -> tuple[Ints, Ints]:
        """For some items: the place of the item in ``items``, and the annotator, of each of their pairs."""
        size = self.indptr[items + 1] - self.indptr[items]
        place = np.repeat(np.arange(len(items)), size)
        offset = np.arange(len(place)) - np.repeat(np.cumsum(size) - size, size)
        return place, self.annotator[self.indptr[items][place] + offset]


@dataclass(frozen=True, eq=False)
class State:
    """The state of a stream or campaign at a moment. Nothing in it changes.

    Attributes
    ----------
    posterior
        N x K.
    dirichlet
        M x K x K: parameters of the Dirichlet of each row of a confusion matrix, axis 1 the truth.
    votes_per_item
        N.
    voted
        Who has voted on what: no annotator is asked twice about an item.
    possible
        The only pairs that can be asked, where that is limited (votes that are replayed); ``None``: all.
    price, available, load
        M each: the price of a vote, who is there, how many more votes each may give (``inf``: any number).
    closed
        N: items that need no more votes.
    gold
        N: whether the class of the item is known, so that a vote on it tests its annotator.
    group
        N names or codes of groups of items between which errors should not differ (-1: of none), or ``None``.
    group_dirichlet
        G x M x K x K: as ``dirichlet``, on the items of each group (sorted by name); ``None``: the same on all.
    weight
        N numbers above 0 by which the value of a vote on the item is multiplied, or ``None``.
    n_votes
        How many votes there were.
    corrected
        N x K: the posterior that allows for votes that err together, by which stop rules decide; by default the same.
    """

    item_names: npt.NDArray[Any]
    annotator_names: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    posterior: Floats
    dirichlet: Floats
    votes_per_item: Ints
    voted: AskablePairs
    price: Floats
    available: npt.NDArray[np.bool_]
    load: Floats
    closed: npt.NDArray[np.bool_]
    gold: npt.NDArray[np.bool_]
    possible: AskablePairs | None = None
    group: Ints | None = None
    weight: Floats | None = None
    n_votes: int = 0
    corrected: Floats = field(default_factory=lambda: np.empty((0, 0)))
    group_dirichlet: Floats | None = None

    def __post_init__(self) -> None:
        if not self.corrected.size:
            object.__setattr__(self, "corrected", self.posterior)
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        if self.weight is not None:
            right = self.weight.shape == (len(self.posterior),) and np.isfinite(self.weight).all()
            if not right or (self.weight <= 0.0).any():
                raise ParameterError(f"weight: expected a number above 0 for each of the {len(self.posterior)} items.")

    @classmethod
    def of(
        cls,
        online: Online,
        *,
        price: Any = 1.0,
        available: Any = None,
        load: Any = None,
        closed: Any = None,
        group: Any = None,
        possible: AskablePairs | None = None,
        posterior: Floats | None = None,
    ) -> State:
        """The state of a stream, in its codes: of all items and annotators that it has seen or that were declared.

        Parameters
        ----------
        price, available, load, closed, group, possible
            As in :class:`State`; a single price holds for all annotators.
        posterior
            Of the items in the stream's store, where there is a newer one than the stream holds (``online.e_step()``).
        """
        store, item, who = online.store, online.store.items.codes, online.store.annotators.codes
        N, M, K = len(online.item_names), len(online.annotator_names), len(online.class_names)
        if K < 2:
            raise InputError(f"A choice needs two classes or more, and {K} came: declare them, Online(classes=...).")
        q = np.tile(normalise(online.tables.mass + 1.0, axis=0), (N, 1))
        q[item] = online.posterior[: len(item)] if posterior is None else posterior
        corrected = q.copy()
        if len(item):
            corrected[item] = online.corrected(q[item])
        dirichlet = np.tile(max(online.shrinkage, 1.0) * online.crowd().T, (M, 1, 1))
        dirichlet[who] = online.dirichlet()
        indptr, annotator, _, _ = store.votes()
        voted = AskablePairs.of(np.repeat(item, np.diff(indptr)), who[annotator], N)
        gold = np.zeros(N, dtype=bool)
        gold[item] = store.truth >= 0
        prices = np.broadcast_to(np.asarray(price, dtype=np.float64), (M,)).copy()
        if not (np.isfinite(prices).all() and (prices > 0).all()):
            raise ParameterError("price: expected a number above 0 for every annotator.")
        state = cls(
            online.item_names.array(), online.annotator_names.array(), online.class_names.array(), q, dirichlet,
            np.diff(voted.indptr), voted,
            price=prices,
            available=np.ones(M, dtype=bool) if available is None else np.array(available, dtype=bool),
            load=np.full(M, np.inf) if load is None else np.array(load, dtype=np.float64),
            closed=np.zeros(N, dtype=bool) if closed is None else np.array(closed, dtype=bool),
            gold=gold,
            possible=possible,
            group=None if group is None else np.asarray(group),
            n_votes=int(online.tables.given.sum()),
            corrected=corrected,
        )  # fmt: skip
        return state if group is None else state.by_group(online)

    def by_group(self, online: Online) -> State:
        """The state with each annotator's confusion on each group of items, and the posteriors under it.

        Posteriors are those of ``group-conditional``, fitted to the stream's votes. With c the counts of an annotator's
        row in one group and d those in all others, n of them, the Dirichlet of the row is
        c + d s / (s + n) + a crowd[z]: s is the fit's pooling (infinite: all votes count alike), and the crowd's matrix
        in the group is worth a = ``shrinkage`` votes.
        """
        code, names = self.groups
        store, item = online.store, online.store.items.codes
        if len(names) < 2 or len(np.unique(code[item])) < 2:
            return self
        M, K, G = len(self.annotator_names), len(self.classes), len(names) + 1  # the last: items of no group
        indptr, annotator, label, weight = store.votes()
        votes = Votes.from_codes(
            np.repeat(np.arange(len(item)), np.diff(indptr)), store.annotators.codes[annotator], label,
            items=range(len(item)), annotators=range(M), classes=online.class_names.names,
            weight=weight if len(weight) else None, on_duplicate="all",
        )  # fmt: skip
        group = code[item] % G
        model = registry.create(registry.BY_GROUP, groups=group, tol=1e-5).fit(votes, gold=store.truth)
        q = model.consensus_.posterior
        cell = (votes.annotator.astype(np.int64) * G + group[votes.item]) * K + votes.label
        counts = np.stack(
            [np.bincount(cell, weights=votes.weights * q[votes.item, k], minlength=M * G * K) for k in range(K)], axis=1
        ).reshape(M, G, K, K)  # annotator, group, label, truth
        other = counts.sum(axis=1, keepdims=True) - counts
        crowd = normalise(counts.sum(axis=0) + online.prior_strength * online.crowd(), axis=1)
        n, a = other.sum(axis=2, keepdims=True), max(online.shrinkage, 1.0)
        table = counts + other / (1.0 + n / max(model.pooling_, 1.0)) + a * crowd
        prior = np.full((G, K), 1.0 / K)
        prior[model.groups_.astype(np.int64)] = model.group_prior_
        posterior = np.where((self.votes_per_item == 0)[:, None], prior[code % G], self.posterior)
        posterior[item] = q
        return self.replace(posterior=posterior, group_dirichlet=table[:, :-1].transpose(1, 0, 3, 2))

    @cached_property
    def groups(self) -> tuple[Ints, npt.NDArray[Any]]:
        """N codes of groups (-1: of none), and the names of the groups."""
        if self.group is None:
            raise InputError("There are no groups of items: give them to the state, State.of(online, group=...).")
        given = np.asarray(self.group)
        if given.shape != (len(self.posterior),):
            raise InputError(
                f"group: expected one for each of the {len(self.posterior)} items and found {given.shape}."
            )
        none = np.array([g is None or (not isinstance(g, str) and g == -1) for g in given.tolist()], dtype=bool)
        names, code = np.unique(given[~none], return_inverse=True)
        out = np.full(len(given), -1)
        out[~none] = code
        return out, names

    def dirichlet_of(self, item: Ints, annotator: Ints) -> Floats:
        """P x K x K: the Dirichlets of some annotators on some items, pair by pair."""
        if self.group_dirichlet is None:
            return np.asarray(self.dirichlet[annotator])
        code = self.groups[0][item]
        return np.where((code < 0)[:, None, None], self.dirichlet[annotator], self.group_dirichlet[code, annotator])

    @property
    def prior(self) -> Floats:
        """K: the class distribution of the items so far."""
        return normalise(self.posterior.sum(axis=0), axis=0)

    def replace(self, **changes: Any) -> State:
        """The state with other values of some attributes."""
        if "posterior" in changes:
            changes = {"corrected": changes["posterior"]} | changes
        return replace(self, **changes)

    @checked
    def with_learner(self, probabilities: Any, weight: NonNegative = 1.0) -> State:
        """The state with a classifier's probabilities of the items: q proportional to q (p / prior)^weight.

        That is Bayes' rule where the classifier is one more annotator, independent of the others given the truth;
        under a weight below 1 it counts less.
        """
        p = np.asarray(probabilities, dtype=np.float64)
        if p.shape != self.posterior.shape or not (np.isfinite(p).all() and (p >= 0).all()):
            N, K = self.posterior.shape
            raise ParameterError(f"probabilities: expected {N} x {K} (items x classes) and found shape {p.shape}.")
        more = weight * (np.log(np.maximum(p, 1e-12)) - np.log(self.prior))
        return self.replace(
            posterior=softmax(safe_log(self.posterior) + more), corrected=softmax(safe_log(self.corrected) + more)
        )


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
