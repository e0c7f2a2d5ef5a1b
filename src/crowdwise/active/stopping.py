"""When to stop: an item that needs no more votes, a campaign that is good enough.

**An item** is settled when its best class has a probability of at least a threshold, or when no vote is worth its
price: a vote of m on n is worth ``stake`` times its expected error reduction, the stake being what a right label is
worth in the currency of the prices.

**A campaign** stops when the budget is spent, or when the labels are as accurate as they should be. That is estimated
without truth (:mod:`crowdwise.active.accuracy_estimate`): crowds are drawn that could have given the votes, and in
each it is counted how many of the labels are right.

Where hardly any item has two votes (or a known truth), nothing can be known of the crowd. The estimate is then what
crowds are like beforehand, its interval goes from what chance gives to what trust gives, and ``known`` is false.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crowdwise.active import accuracy_estimate as accuracy
from crowdwise.active import acquisition
from crowdwise.active.state import Beliefs
from crowdwise.core.numerics import decide
from crowdwise.errors import NotFittedError, ParameterError
from crowdwise.online.stream import Online

PAIRS = 30
"""With fewer pairs of votes on the same item, agreement is known to a fifth at best, and says nothing of a crowd."""

__all__ = ["AccuracyEstimate", "StopRule", "estimate_accuracy", "settled"]


@dataclass(frozen=True)
class AccuracyEstimate:
    """How accurate the labels are believed to be, without truth."""

    accuracy: float
    low: float
    high: float
    items: int
    """How many items have votes: the estimate is about these."""
    pairs: int = 0
    """How many pairs of votes there are on the same item; votes on items with known truth count, too."""
    known: bool = True
    """Whether the votes say anything of the accuracy; if not, it is what is believed of crowds beforehand."""


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When a campaign, or an item of it, needs no more votes. What is ``None`` does not matter.

    Parameters
    ----------
    probability
        An item is settled when its best class is at least so probable.
    stake
        What a right label is worth, in the currency of the prices: an item is settled when no vote is worth its price.
    least_votes, most_votes
        An item is not settled with fewer votes, and always with so many.
    budget
        The campaign stops when so much is spent.
    target
        The campaign stops when the lower end of the estimated accuracy is at least this.
    """

    probability: float | None = 0.95
    stake: float | None = None
    least_votes: int = 1
    most_votes: int | None = None
    budget: float | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        for name in ("probability", "target"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and 0.0 < value <= 1.0):
                raise ParameterError(f"{name}={value!r}: expected a probability above 0 and at most 1, or None.")
        for name in ("stake", "budget"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and 0.0 < value < np.inf):
                raise ParameterError(f"{name}={value!r}: expected an amount above 0, or None.")
        if not isinstance(self.least_votes, (int, np.integer)) or self.least_votes < 0:
            raise ParameterError(f"least_votes={self.least_votes!r}: expected a whole number of at least 0.")
        if self.most_votes is not None and (
            not isinstance(self.most_votes, (int, np.integer)) or self.most_votes < max(1, self.least_votes)
        ):
            raise ParameterError(
                f"most_votes={self.most_votes!r}: expected a whole number of at least 1 and least_votes, or None."
            )

    def settled(self, beliefs: Beliefs) -> npt.NDArray[np.bool_]:
        """N: which items need no more votes."""
        return settled(
            beliefs,
            probability=self.probability,
            stake=self.stake,
            least_votes=self.least_votes,
            most_votes=self.most_votes,
        )

    def why_stop(
        self, spent: float, cheapest: float, online: Online, found: AccuracyEstimate | None = None
    ) -> str | None:
        """Why the campaign should stop, in words; ``None`` where it should go on.

        ``found``: the accuracy, where it has been estimated already.
        """
        if self.budget is not None and spent + cheapest > self.budget * (1.0 + 1e-12):
            return f"the budget is spent: {spent:g} of {self.budget:g}, and a vote costs {cheapest:g} at least"
        if self.target is not None and online.ledger.n_votes:
            hoped = online.posterior[: len(online.ledger.items)].max(axis=1).mean()
            if found is None and hoped < self.target:  # what the model itself hopes for is hardly ever too low
                return None
            found = estimate_accuracy(online) if found is None else found
            if found.known and found.low >= self.target:
                between = f"{found.low:.3f} to {found.high:.3f}"
                return f"the labels are accurate enough: {between}, and {self.target:g} was asked"
        return None


def settled(
    beliefs: Beliefs,
    *,
    probability: float | None = 0.95,
    stake: float | None = None,
    least_votes: int = 1,
    most_votes: int | None = None,
) -> npt.NDArray[np.bool_]:
    """N: which items need no more votes (see :class:`StopRule`)."""
    done = np.zeros(len(beliefs.posterior), dtype=bool)
    if probability is not None:
        done |= beliefs.posterior.max(axis=1) >= probability
    if stake is not None:
        done |= ~worth_asking(beliefs, stake)
    done &= beliefs.votes_per_item >= least_votes
    if most_votes is not None:
        done |= beliefs.votes_per_item >= most_votes
    return done


def worth_asking(beliefs: Beliefs, stake: float) -> npt.NDArray[np.bool_]:
    """N: whether somebody's vote on the item is worth its price; people who have voted on it are left out."""
    people = np.flatnonzero(beliefs.available & (beliefs.load >= 1.0))
    theta = acquisition.mean(beliefs.dirichlet[people])
    out = np.zeros(len(beliefs.posterior), dtype=bool)
    column = np.full(len(beliefs.annotator_names), -1)
    column[people] = np.arange(len(people))
    step = max(1, 1_000_000 // max(len(people), 1))
    for lo in range(0, len(out), step):
        items = np.arange(lo, min(lo + step, len(out)))
        gain = (
            stake * acquisition.pair_values(beliefs.posterior[items], theta, "error-reduction") - beliefs.price[people]
        )
        place, who = beliefs.done.among(items)
        here = column[who] >= 0
        gain[place[here], column[who[here]]] = -np.inf
        out[items] = (gain > 0.0).any(axis=1)
    return out


def estimate_accuracy(online: Online, level: float = 0.95, random_state: int = 0) -> AccuracyEstimate:
    """How accurate the labels of a stream are, without truth, with an interval (see the top of this file).

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=20, votes_per_item=5, random_state=0)
    >>> online = cw.Online(cw.OneCoin(), step=None).partial_fit(crowd.votes)
    >>> found = estimate_accuracy(online)
    >>> found.low < online.consensus().score(crowd.truth) < found.high
    True
    """
    if not 0.0 < level < 1.0:
        raise ParameterError(f"level={level!r}: expected a number between 0 and 1, such as 0.95.")
    ledger = online.ledger
    if ledger.n_votes == 0:
        raise NotFittedError("No votes have come in yet: there are no labels to be accurate.")
    q, prior = online.opinions()
    (N, K), chosen, rng = q.shape, decide(q, prior), np.random.default_rng(random_state)
    indptr, rows = ledger.gather(np.arange(N))
    truth, size = ledger.per_item["truth"][:N], np.diff(indptr)
    pairs = int((size * (size - 1) // 2).sum() + size[truth >= 0].sum())
    if K == 1:
        return AccuracyEstimate(1.0, 1.0, 1.0, N, pairs)
    if pairs < PAIRS:
        open_share = float((truth < 0).mean())
        trusted = float(q[np.arange(N), chosen][truth < 0].mean()) if open_share else 1.0
        middle, least, most = (1.0 - open_share * (1.0 - x) for x in accuracy.beforehand(K, trusted, level, rng))
        return AccuracyEstimate(middle, least, most, N, pairs, known=False)
    weight = ledger.rows["weight"][rows]
    answers = accuracy.Answers(
        indptr[:-1], np.repeat(np.arange(N), size), ledger.rows["annotator"][rows].astype(np.int64),
        ledger.rows["label"][rows].astype(np.int64), weight if (weight != 1.0).any() else np.empty(0), truth,
        len(ledger.annotators), K,
    )  # fmt: skip
    mean, variance = accuracy.right(answers, chosen, q, accuracy.draws(len(rows)), rng)
    low, high = accuracy.interval(mean, variance, N, level)
    return AccuracyEstimate(float(mean.mean()), low, high, N, pairs)
