"""The accuracy that labels would have with fewer or more votes, beginning from what is stated of them now.

A plan from simulated crowds promises too much: votes of real crowds err together, and hard items stay hard. So every
figure is anchored in the posterior q that the report goes by; ``docs/active-plan.md`` has what fewer and more votes do
to it. The interval is that of the report, as wide as crowds differ, and wider away from the present number of votes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, RandomState, checked
from crowdwise.core.dependence import CROWD_SD, crowd_spread, more_votes
from crowdwise.core.numerics import Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError

AHEAD = 0.3
"""How much less is known, in log-odds, at twice or half as many votes; chosen with the replays in view."""
MOST = 1_000
"""With more votes per item nothing changes any more."""


@dataclass(frozen=True)
class Promise:
    """The accuracy to expect with a number of votes per item, and its 95 % interval."""

    votes_per_item: float
    accuracy: float
    low: float
    high: float


@checked
def promise_accuracy(
    consensus: Consensus, model: Callable[[], Any], votes_per_item: Sequence[int], *, n_seeds: Count = 1,
    random_state: RandomState = 0,
) -> list[Promise]:  # fmt: skip
    """The accuracy of labels of such items with each of some numbers of votes per item.

    ``model`` makes the model that turns votes into labels, as in :func:`make_plan`; ``n_seeds``: how often fewer votes
    are drawn.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=20, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes)
    >>> one, now, more = promise_accuracy(consensus, cw.Anchored, [1, 5, 9])
    >>> one.accuracy < now.accuracy < more.accuracy, now.accuracy == consensus.expected_accuracy()[0]
    (True, True)
    """
    votes, rng = _votes(consensus), np.random.default_rng(random_state)
    q, n, free = consensus.stated_posterior, consensus.votes_per_item, _free(consensus)
    out = []
    for each in votes_per_item:
        right = more_votes(q, n, np.maximum(n, each), consensus.crowd_confusion(), consensus.shown_dependence, rng)
        many = np.flatnonzero(n > each)
        for turn in range(n_seeds if len(many) else 0):
            labels = model().fit(fewer_votes(votes, each, rng)).consensus_.label_codes
            right[many] = (turn * right[many] if turn else 0.0) + q[many, labels[many]]
            right[many] /= turn + 1.0
        same = n == each
        right[same] = q[same, consensus.label_codes[same]]
        out.append(_promise(consensus, float(each), float(right[free].mean())))
    return out


def present(consensus: Consensus) -> Promise:
    """What the report says of the labels as they are."""
    return _promise(consensus, float(consensus.votes_per_item.mean()), None)


def votes_for(consensus: Consensus, target: float, random_state: int = 0) -> tuple[int | None, float]:
    """The least number of votes per item with which so many labels are expected to be right (``None``: no number), and
    the accuracy with very many."""
    q, n, free = consensus.stated_posterior, consensus.votes_per_item, _free(consensus)
    C, found = consensus.crowd_confusion(), consensus.shown_dependence

    def accuracy(each: int) -> float:
        rng = np.random.default_rng(random_state)
        return float(more_votes(q, n, np.maximum(n, each), C, found, rng)[free].mean())

    most = accuracy(MOST)
    if most < target:
        return None, most
    low, high = int(n.min()), MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if accuracy(middle) >= target else (middle, high)
    return high, most


def gold_for(consensus: Consensus, target: float) -> int:
    """How many gold labels, of the most doubtful items, make so many labels right in expectation."""
    free = _free(consensus)
    q = consensus.stated_posterior[free, consensus.label_codes[free]]
    gain = np.append(0.0, np.cumsum(np.sort(1.0 - q)[::-1]))
    return int(np.argmax(q.sum() + gain >= target * len(q) - 1e-9))


def fewer_votes(votes: Votes, each: int, rng: Any) -> Votes:
    """At most so many of the votes of each item, drawn at random."""
    order = np.lexsort((rng.random(votes.n_votes), votes.item))
    place = np.arange(votes.n_votes) - votes.indptr[votes.item[order]]
    keep = np.sort(order[place < each])
    weight: dict[str, Any] = {} if votes.weight is None else {"weight": votes.weight[keep]}
    return Votes.from_codes(
        votes.item[keep], votes.annotator[keep], votes.label[keep], items=votes.items, annotators=votes.annotators,
        classes=votes.classes, on_duplicate="all", **weight,
    )  # fmt: skip


def _promise(consensus: Consensus, each: float, accuracy: float | None) -> Promise:
    """With the report's interval at the present number of votes; else wider, by the items and the way to that number:

    s^2 = (that of crowds)^2 + 1 / (N p (1 - p)) + (AHEAD log2(votes / present votes))^2
    """
    now, N = float(consensus.votes_per_item.mean()), len(_free(consensus))
    if accuracy is None or (consensus.votes_per_item == each).all():
        return Promise(each, *consensus.expected_accuracy())
    p = min(max(accuracy, 1e-6), 1.0 - 1e-6)
    variance = crowd_spread(CROWD_SD, p, consensus.n_gold) ** 2 + 1.0 / (N * p * (1.0 - p))
    s = 1.96 * np.sqrt(variance + (AHEAD * np.log2(each / max(now, 1.0))) ** 2)
    low, high = (1.0 / (1.0 + np.exp(np.log((1.0 - p) / p) + np.array([s, -s])))).tolist()
    return Promise(each, accuracy, float(np.floor(N * low) / N), min(1.0, float(np.ceil(N * high) / N)))


def _free(consensus: Consensus) -> Ints:
    """Rows of items whose labels were not given."""
    return np.arange(len(consensus.items)) if consensus.gold is None else np.flatnonzero(consensus.gold < 0)


def _votes(consensus: Consensus) -> Votes:
    if consensus.votes is None:
        raise InputError("A plan needs the votes, and this consensus was saved without them: fit it again.")
    return consensus.votes
