"""Who is put on trial, and on which items: what is learned of annotators, bought where it costs least.

A vote on an item that nobody else voted on says nothing of its annotator. A strategy that takes the most informative
votes gives every item its first vote first, and so spends a good part of the money on people of whom it knows nothing;
those who are cheap look best for their price, and what they say alone confirms what is believed of them. Strangers are
therefore tried together on few items, before others get their first vote.

==================  ==============================================================================================
I[m]                H(pi) - H(pi | vote of m): bits that a vote of m tells of an item without votes
r[m] = I[m] / p[m]  the same for the price p[m] of a vote
going rate R        r of the last of those annotators who, best r first, together tell H(pi): as many as it takes to
                    settle an item. A stranger's price counts as the mean price here, since it is not known yet what
                    it is paid for
N                   sum_n H(q[n]) / H(pi): how many items' worth of doubt is left
T                   trial * sqrt(N / M) votes, M annotators: after so many on items that others voted on, too, nobody is
                    a stranger any more
hope[m]             E max(0, r[m] - R) over draws of the confusion matrix of m: what is told for the price beyond the
                    going rate, if m turns out to be worth it
==================  ==============================================================================================

**Who.** Strangers for whom N hope[m] / R > T: asked about everything that is left, m may save N p[m] hope[m] / R, and
the trial costs T p[m]. Nobody is tried who could not be worth the price even when always right, so experts whose votes
cost five times as much are left out where those who cost a fifth of it are found to do.

**How long.** After t votes the share t / (t + t0) of what can be learned of an annotator is learned, where t0 is what
the prior is worth in votes. Each of M annotators can be of use for a share of the work, N / M; so the trial is worth
a N / M * t / (t + t0) - t, which is largest at t = sqrt(a t0 N / M) - t0: trials grow with the square root of the items
there are for each annotator.

**It fails** where the crowd on trial is one of spammers who agree, or has hardly anybody else in it (where all who are
any good cost much more than the others, the cheap are tried in vain), and where an item's truth is not what most of
those on trial say. Who looks bad after the trial is not asked again, so a trial that goes wrong is not mended.
"""

from __future__ import annotations

import numpy as np

from crowdwise.active import acquisition
from crowdwise.active.state import Beliefs
from crowdwise.core.numerics import Floats, Ints

JURY = 24
"""How many votes an item gets on which strangers are tried."""
DRAWS = 32
"""Draws of the confusion matrices by which it is judged what may be hoped of a stranger."""

__all__ = ["JURY", "going_rate", "hope", "jury", "needed"]


def going_rate(told: Floats, price: Floats, whole: float) -> float:
    """What the last of those annotators tells for the price who, best first, tell ``whole`` together (or of all).

    >>> import numpy as np
    >>> going_rate(np.array([0.5, 0.6, 0.5, 0.1]), np.array([1.0, 2.0, 1.0, 1.0]), 1.2)
    0.3
    """
    rate = told / price
    order = np.argsort(-rate, kind="stable")
    last = min(int(np.searchsorted(np.cumsum(told[order]), whole)), len(order) - 1)
    return float(rate[order[last]])


def hope(dirichlet: Floats, price: Floats, prior: Floats, rate: float, rng: np.random.Generator) -> Floats:
    """M: the expectation of what a vote tells for the price beyond a rate, and of nothing where it tells less."""
    out = np.zeros(len(price))
    for _ in range(DRAWS):
        told = acquisition.pair_values(prior[None], acquisition.draw(dirichlet, rng), "information")[0]
        out += np.maximum(told / price - rate, 0.0)
    return out / DRAWS


def needed(beliefs: Beliefs, trial: float, rng: np.random.Generator) -> Floats:
    """M: how many more votes each should give on trial; 0 for who is known or of whom nothing is hoped."""
    need = np.zeros(len(beliefs.price))
    people = np.flatnonzero(beliefs.available & (beliefs.load >= 1.0))
    prior = beliefs.prior
    whole = float(acquisition.bits(prior).sum())
    left = float(acquisition.bits(beliefs.posterior[~beliefs.closed]).sum()) / max(whole, 1e-9)
    enough = float(np.ceil(trial * np.sqrt(left / max(len(people), 1))))
    size = np.diff(beliefs.done.indptr)
    known = np.bincount(beliefs.done.annotator[np.repeat(size > 1, size)], minlength=len(need))[people]
    strange = np.flatnonzero(known < enough)
    if len(strange) == 0:
        return need
    price = beliefs.price[people]
    told = acquisition.pair_values(prior[None], acquisition.mean(beliefs.dirichlet[people]), "information")[0]
    rate = going_rate(told, (known * price + enough * price.mean()) / (known + enough), whole)
    hopes = hope(beliefs.dirichlet[people[strange]], price[strange], prior, rate, rng)
    strange = strange[left * hopes > enough * rate]
    need[people[strange]] = enough - known[strange]
    return need


def jury(beliefs: Beliefs, items: Ints, need: Floats, n: int, rng: np.random.Generator) -> Ints:
    """The items on which n votes on trial should be asked for, best first: those most have voted on, while there is
    room for another vote."""
    votes = beliefs.votes_per_item[items]
    room = JURY - votes
    if beliefs.possible is not None:
        place, who = beliefs.possible.among(items)
        room = np.minimum(room, np.bincount(place[need[who] > 0], minlength=len(items)))
    weight = np.ones(len(items)) if beliefs.weight is None else beliefs.weight[items]
    order = np.lexsort((rng.random(len(items)), -weight, -votes))
    order = order[room[order] > 0]
    # Room for all the votes, and as many items as the annotator who needs most of them.
    enough = int(np.searchsorted(np.cumsum(room[order]), n)) + 1
    return np.asarray(items[order[: max(enough, int(need.max(initial=0.0)))]])
