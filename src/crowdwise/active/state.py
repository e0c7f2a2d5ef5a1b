"""What is known at a moment, as a strategy sees it: how sure each item is, how good each annotator, who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.online.stream import Online
from crowdwise.online.vote_store import Names

__all__ = ["Beliefs", "Pairs", "Roster"]


@dataclass(frozen=True)
class Pairs:
    """Some (item, annotator) pairs: the annotators of item n are ``annotator[indptr[n]:indptr[n + 1]]``."""

    indptr: Ints
    annotator: Ints

    @classmethod
    def of(cls, item: Ints, annotator: Ints, n_items: int) -> Pairs:
        order = np.argsort(item, kind="stable")
        return cls(np.concatenate([[0], np.cumsum(np.bincount(item, minlength=n_items))]), annotator[order])

    def among(self, items: Ints) -> tuple[Ints, Ints]:
        """For some items: the place of the item in ``items``, and the annotator, of each of their pairs."""
        size = self.indptr[items + 1] - self.indptr[items]
        place = np.repeat(np.arange(len(items)), size)
        offset = np.arange(len(place)) - np.repeat(np.cumsum(size) - size, size)
        return place, self.annotator[self.indptr[items][place] + offset]


class Roster:
    """All names, and where those of a stream stand among them.

    What was looked up once is not looked up again: a stream that grows costs what is new in it.
    """

    def __init__(self, names: Sequence[Any] = (), what: str = "names") -> None:
        self.names: list[Any] = []
        self.what = what
        self._code: dict[Any, int] = {}
        self._array: npt.NDArray[Any] = np.empty(0, dtype=object)
        self._followed: Names | None = None
        self._place = np.empty(0, dtype=np.int64)
        self.extend(names)

    def __len__(self) -> int:
        return len(self.names)

    def extend(self, names: Sequence[Any]) -> None:
        """More names, after those that are there."""
        self._code.update(zip(names, range(len(self.names), len(self.names) + len(names)), strict=True))
        self.names.extend(names)

    def array(self) -> npt.NDArray[Any]:
        """All names."""
        if len(self._array) != len(self.names):
            self._array = np.empty(len(self.names), dtype=object)
            self._array[:] = self.names
        return self._array

    def place(self, seen: Names) -> Ints:
        """Where the names of a stream stand, in the order of its codes."""
        if seen is not self._followed:  # another stream, or one that forgot some of its items
            self._followed, self._place = seen, np.empty(0, dtype=np.int64)
        new = seen.names[len(self._place) :]
        if new:
            codes = [self._code.get(name, -1) for name in new]
            if min(codes) < 0:
                missing = [name for name, code in zip(new, codes, strict=True) if code < 0]
                raise InputError(f"The stream has {self.what} that are not among those named: {listing(missing)}.")
            self._place = np.concatenate([self._place, np.array(codes, dtype=np.int64)])
        return self._place


@dataclass(frozen=True, eq=False)
class Beliefs:
    """A picture of a crowd at work. Nothing in it changes.

    Attributes
    ----------
    posterior
        N x K.
    dirichlet
        M x K x K: parameters of the Dirichlet of each row of a confusion matrix, axis 1 the truth.
    votes_per_item
        N.
    done
        Who has voted on what: nobody is asked twice.
    possible
        The only pairs that can be asked, where that is limited (votes that are replayed); ``None``: all.
    price, available, load
        M each: what a vote costs, who is there, how many more votes each may give (``inf``: any number).
    closed
        N: items that need no more votes.
    gold
        N: whether the truth of the item is known, so that a vote on it tests its annotator.
    group
        N names or codes of groups of items between which errors should not differ (-1: of none), or ``None``.
    weight
        N numbers above 0 by which the worth of a vote on the item is multiplied, or ``None``.
    steps
        How many votes there were.
    """

    item_names: npt.NDArray[Any]
    annotator_names: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    posterior: Floats
    dirichlet: Floats
    votes_per_item: Ints
    done: Pairs
    price: Floats
    available: npt.NDArray[np.bool_]
    load: Floats
    closed: npt.NDArray[np.bool_]
    gold: npt.NDArray[np.bool_]
    possible: Pairs | None = None
    group: Ints | None = None
    weight: Floats | None = None
    steps: int = 0

    def __post_init__(self) -> None:
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
        items: Sequence[Any] | Roster | None = None,
        annotators: Sequence[Any] | Roster | None = None,
        price: Any = 1.0,
        available: Any = None,
        load: Any = None,
        closed: Any = None,
        group: Any = None,
        possible: Pairs | None = None,
        posterior: Floats | None = None,
    ) -> Self:
        """The beliefs of a stream.

        Parameters
        ----------
        online
            The stream.
        items, annotators
            All names, where some have no vote yet; those of the stream must be among them. A :class:`Roster` that is
            handed over again and again is searched for new names only.
        price, available, load, closed, group
            As in :class:`Beliefs`, in the order of ``items`` and ``annotators``; a single price holds for everybody.
        possible
            In codes of ``items`` and ``annotators``.
        posterior
            Of the stream's items in its own codes, where there is a newer one than the stream holds
            (``online.opinions()``).
        """
        ledger = online.ledger
        item_names, item = _placed(ledger.items, items, "items")
        names, who = _placed(ledger.annotators, annotators, "annotators")
        N, M, K = len(item_names), len(names), len(ledger.classes)
        if K < 2:
            raise InputError(
                f"Choosing needs two classes at least, and {K} came so far: declare them, Online(classes=...)."
            )
        prior = normalise(online.mass + 1.0, axis=0)
        q = np.tile(prior, (N, 1))
        q[item] = online.posterior[: len(item)] if posterior is None else posterior
        dirichlet = np.tile(max(online.shrink, 1.0) * online.crowd().T, (M, 1, 1))
        dirichlet[who] = online.dirichlet()
        indptr, rows = ledger.gather(np.arange(len(item)))
        per_item = np.zeros(N, dtype=np.int64)
        per_item[item] = np.diff(indptr)
        gold = np.zeros(N, dtype=bool)
        gold[item] = ledger.per_item["truth"][: len(item)] >= 0
        voted = Pairs.of(np.repeat(item, np.diff(indptr)), who[ledger.rows["annotator"][rows]], N)
        prices = np.broadcast_to(np.asarray(price, dtype=np.float64), (M,)).copy()
        if not (np.isfinite(prices).all() and (prices > 0).all()):
            raise ParameterError("price: expected a number above 0 for every annotator.")
        return cls(
            item_names, names, ledger.classes.array(), q, dirichlet, per_item, voted,
            price=prices,
            available=np.ones(M, dtype=bool) if available is None else np.array(available, dtype=bool),
            load=np.full(M, np.inf) if load is None else np.array(load, dtype=np.float64),
            closed=np.zeros(N, dtype=bool) if closed is None else np.array(closed, dtype=bool),
            gold=gold,
            possible=possible,
            group=None if group is None else np.asarray(group),
            steps=int(online.given.sum()),
        )  # fmt: skip

    @property
    def prior(self) -> Floats:
        """K: the class distribution, as the items so far have it."""
        return normalise(self.posterior.sum(axis=0), axis=0)

    def having(self, **changes: Any) -> Beliefs:
        """The beliefs with something else in the place of some attributes."""
        return replace(self, **changes)

    def with_learner(self, probabilities: Any, weight: float = 1.0) -> Beliefs:
        """The beliefs with what a classifier says of the items: q proportional to q (p / prior)^weight.

        That is Bayes' rule where the classifier is one more annotator, independent of the others given the truth;
        a weight under 1 trusts it less.
        """
        p = np.asarray(probabilities, dtype=np.float64)
        if p.shape != self.posterior.shape or not (np.isfinite(p).all() and (p >= 0).all()):
            raise ParameterError(
                f"probabilities: expected {self.posterior.shape[0]} x {self.posterior.shape[1]} probabilities "
                f"(items x classes) and found shape {p.shape}."
            )
        if not (isinstance(weight, (int, float)) and 0.0 <= weight < np.inf):
            raise ParameterError(f"weight={weight!r}: expected a number of at least 0.")
        logit = np.log(np.maximum(self.posterior, 1e-300))
        logit = logit + weight * (np.log(np.maximum(p, 1e-12)) - np.log(self.prior))
        q = np.exp(logit - logit.max(axis=1, keepdims=True))
        return self.having(posterior=q / q.sum(axis=1, keepdims=True))


def _placed(seen: Names, names: Sequence[Any] | Roster | None, what: str) -> tuple[npt.NDArray[Any], Ints]:
    """All names, and where those seen stand among them."""
    if names is None:
        return seen.array(), np.arange(len(seen))
    roster = names if isinstance(names, Roster) else Roster(list(names), what)
    return roster.array(), roster.place(seen)
