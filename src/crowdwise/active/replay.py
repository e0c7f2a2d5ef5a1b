"""A strategy at work on votes that are there already: what it would have known after so many of them.

Only pairs that were voted on can be asked, and asking reveals the vote. Simulated crowds in which everybody votes on
everything let a strategy ask whom it likes. The truth only measures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.active.state import Beliefs, Pairs, Roster
from crowdwise.active.strategy import Strategy, strategy
from crowdwise.core.model import EMModel
from crowdwise.core.numerics import TIE, Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError

__all__ = ["Curve", "replay"]


@dataclass(frozen=True)
class Curve:
    """What was known after so many votes."""

    votes: Ints
    cost: Floats
    accuracy: Floats
    """On items with known truth; those without a vote count with the class they would be given."""
    expected: Floats
    """The accuracy as the model itself expects it: the mean of the largest probabilities."""

    def votes_to(self, accuracy: float) -> float:
        """The fewest votes from which on the accuracy stays at or above that; ``inf`` where it never does."""
        below = np.flatnonzero(self.accuracy < accuracy)
        after = 0 if len(below) == 0 else int(below[-1]) + 1
        return float(self.votes[after]) if after < len(self.votes) else float("inf")

    def first_at(self, accuracy: float, by: str = "votes") -> float:
        """The fewest votes (or the least ``"cost"``) at which the accuracy is reached; ``inf`` where it never is."""
        there = np.flatnonzero(self.accuracy >= accuracy)
        return float(getattr(self, by)[there[0]]) if len(there) else float("inf")


def replay(
    votes: Votes,
    truth: Any,
    model: Callable[[], EMModel],
    how: str | Strategy,
    *,
    price: Any = 1.0,
    batch: float = 0.01,
    share: float = 1.0,
    random_state: int | None = None,
    told: Callable[[float], None] | None = None,
) -> Curve:
    """Ask for votes, a batch at a time, until a share of them is spent.

    Parameters
    ----------
    votes
        All votes that can be asked for.
    truth
        The class of items where it is known, to measure with.
    model
        Makes the model that follows the stream.
    how
        A strategy or its name; it says how the stream keeps its statistics, too.
    price
        Of a vote, for each annotator or for all.
    batch
        The share of all votes that is asked for at once; one vote at least.
    share
        The share of all votes to spend.
    told
        Called after every batch with the share of the votes that is spent.
    """
    for name, value in (("batch", batch), ("share", share)):
        if not (isinstance(value, (int, float)) and 0.0 < value <= 1.0):
            raise ParameterError(f"{name}={value!r}: expected a share of the votes, above 0 and at most 1.")
    codes = votes.encode_truth(truth)
    measured = np.flatnonzero(codes >= 0)
    if len(measured) == 0:
        raise InputError("No item has a known truth: a replay has nothing to measure with.")
    rule, rng = strategy(how), np.random.default_rng(random_state)
    size, most = max(1, round(batch * votes.n_votes)), round(share * votes.n_votes)
    online = rule.stream(model(), votes.classes.tolist())
    items, annotators = Roster(votes.items.tolist(), "items"), Roster(votes.annotators.tolist(), "annotators")
    asked = np.zeros(votes.n_votes, dtype=bool)
    rows: list[tuple[float, ...]] = []
    prices = np.broadcast_to(np.asarray(price, dtype=np.float64), (votes.n_annotators,))
    cost, spent = 0.0, 0
    q: Floats | None = None
    key = votes.item * votes.n_annotators + votes.annotator
    while spent < most:
        left = np.flatnonzero(~asked)
        beliefs = Beliefs.of(
            online,
            items=items,
            annotators=annotators,
            price=prices,
            possible=Pairs.of(votes.item[left], votes.annotator[left], len(votes)),
            posterior=q,
        )
        proposal = rule.propose(beliefs, min(size, most - spent), rng)
        if len(proposal) == 0:
            break
        chosen = np.searchsorted(key, proposal.item * votes.n_annotators + proposal.annotator)
        asked[chosen] = True
        spent += len(chosen)
        cost += float(proposal.price.sum())
        some = np.zeros(votes.n_votes, dtype=bool)
        some[chosen] = True
        new = votes.select(some)
        online.partial_fit(new[np.flatnonzero(np.diff(new.indptr) > 0)])
        q, prior = online.opinions()
        every = np.tile(prior, (len(votes), 1))
        every[items.place(online.ledger.items)] = q
        rows.append((spent, cost, *_measured(every[measured], codes[measured])))
        if told is not None:
            told(spent / most)
    columns = list(zip(*rows, strict=True))
    return Curve(np.array(columns[0]), *(np.array(c, dtype=np.float64) for c in columns[1:]))


def _measured(q: Floats, codes: Ints) -> tuple[float, float]:
    """The accuracy on items with known truth (ties split), and the accuracy the model expects there."""
    best = q >= q.max(axis=1, keepdims=True) - TIE
    right = best[np.arange(len(q)), codes] / best.sum(axis=1)
    return float(right.mean()), float(q.max(axis=1).mean())


def bands(curves: Sequence[Curve], at: Sequence[float], by: str = "votes") -> dict[str, Floats]:
    """Mean and standard deviation of the accuracy over several curves, at given votes (or ``"cost"``)."""
    found = np.array([np.interp(at, getattr(c, by), c.accuracy) for c in curves])
    return {"mean": found.mean(axis=0), "sd": found.std(axis=0)}
