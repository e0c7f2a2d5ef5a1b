"""Trials: annotators who are new are tried on few items together, where what is learned of them pays for itself.

A vote on an item that nobody else voted on carries no information about its annotator. A strategy that takes the most
informative votes gives every item its first vote first, and so spends much of the budget on annotators of unknown
accuracy; the cheap ones look best for their price, and their single votes confirm the prior. New annotators are
therefore tried together on few items, before other items get their first vote.

==================  ==============================================================================================
I[m]                H(pi) - H(pi | vote of m): information gain of a vote of m on an item without votes, in bits
r[m] = I[m] / p[m]  the same per price p[m] of a vote
R                   the going rate: r of the last of those annotators who, best r first, have an information gain of
                    H(pi) together, as many as one item needs. The price of a new annotator counts as the mean price
                    here, since it is not known yet what it is paid for
N                   sum_n H(q[n]) / H(pi): how many items' worth of uncertainty is left
T                   trial_votes * sqrt(N / M) votes, M annotators: after so many on items that others voted on, too, an
                    annotator is not new any more
EI[m]               E max(0, r[m] - R) over draws of the confusion matrix of m: the expected improvement on R
==================  ==============================================================================================

**Who.** New annotators with N EI[m] / R > T: asked about all that is left, m may save N p[m] EI[m] / R, and the trial
costs T p[m]. Nobody is tried who could not be worth the price even when always right, so experts whose votes cost five
times as much are left out where those who cost a fifth of it are found to do.

**How long.** After t votes the share t / (t + t0) of what can be learned of an annotator is learned, where t0 is the
strength of the prior in votes. Each of M annotators can do a share of the work, N / M; so the trial is worth
a N / M * t / (t + t0) - t, which is largest at t = sqrt(a t0 N / M) - t0: trials grow with the square root of the items
there are for each annotator.

**It fails** where the annotators on trial are spammers who agree, or nearly all are spammers (where all good annotators
cost much more than the others, the cheap are tried in vain), and where an item's truth is not what most of those on
trial say. Annotators who look bad after the trial are not asked again, so a trial that goes wrong is not repeated.
"""

from __future__ import annotations

import numpy as np

from crowdwise.active import acquisition
from crowdwise.active.state import State
from crowdwise.core.numerics import Floats, Ints

MAX_VOTES = 24
"""How many votes an item of a trial gets at most."""
DRAWS = 32
"""Draws of the confusion matrices for an expected improvement."""

__all__ = ["MAX_VOTES", "expected_improvement", "going_rate", "trial_items", "votes_needed"]


def going_rate(gain: Floats, price: Floats, whole: float) -> float:
    """The gain per price of the last of those annotators who, best first, gain ``whole`` together (or of all).

    >>> import numpy as np
    >>> going_rate(np.array([0.5, 0.6, 0.5, 0.1]), np.array([1.0, 2.0, 1.0, 1.0]), 1.2)
    0.3
    """
    rate = gain / price
    order = np.argsort(-rate, kind="stable")
    last = min(int(np.searchsorted(np.cumsum(gain[order]), whole)), len(order) - 1)
    return float(rate[order[last]])


def expected_improvement(
    dirichlet: Floats, price: Floats, prior: Floats, rate: float, rng: np.random.Generator
) -> Floats:
    """M: the expectation of max(0, gain per price - rate) of a vote."""
    out = np.zeros(len(price))
    for _ in range(DRAWS):
        gain = acquisition.pair_values(prior[None], acquisition.draw(dirichlet, rng), "information")[0]
        out += np.maximum(gain / price - rate, 0.0)
    return out / DRAWS


def votes_needed(state: State, trial_votes: float, rng: np.random.Generator) -> Floats:
    """M: how many more votes each annotator should give on trial; 0 for those who are known or not worth a trial."""
    need = np.zeros(len(state.price))
    people = np.flatnonzero(state.available & (state.load >= 1.0))
    prior = state.prior
    whole = float(acquisition.bits(prior).sum())
    left = float(acquisition.bits(state.posterior[~state.closed]).sum()) / max(whole, 1e-9)
    enough = float(np.ceil(trial_votes * np.sqrt(left / max(len(people), 1))))
    size = np.diff(state.voted.indptr)
    shared = np.bincount(state.voted.annotator[np.repeat(size > 1, size)], minlength=len(need))[people]
    new = np.flatnonzero(shared < enough)
    if len(new) == 0:
        return need
    price = state.price[people]
    gain = acquisition.pair_values(prior[None], acquisition.mean(state.dirichlet[people]), "information")[0]
    rate = going_rate(gain, (shared * price + enough * price.mean()) / (shared + enough), whole)
    improvement = expected_improvement(state.dirichlet[people[new]], price[new], prior, rate, rng)
    new = new[left * improvement > enough * rate]
    need[people[new]] = enough - shared[new]
    return need


def trial_items(state: State, items: Ints, need: Floats, n: int, rng: np.random.Generator) -> Ints:
    """The items for n votes on trial, best first: those with most votes, while there is room for another."""
    votes = state.votes_per_item[items]
    room = MAX_VOTES - votes
    if state.possible is not None:
        place, who = state.possible.among(items)
        room = np.minimum(room, np.bincount(place[need[who] > 0], minlength=len(items)))
    weight = np.ones(len(items)) if state.weight is None else state.weight[items]
    order = np.lexsort((rng.random(len(items)), -weight, -votes))
    order = order[room[order] > 0]
    # Room for all the votes, and as many items as the annotator who needs most of them.
    enough = int(np.searchsorted(np.cumsum(room[order]), n)) + 1
    return np.asarray(items[order[: max(enough, int(need.max(initial=0.0)))]])
