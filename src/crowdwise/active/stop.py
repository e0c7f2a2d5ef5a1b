"""When to stop: an item that needs no more votes, a campaign that is good enough.

**An item** is settled when its best class has a probability of at least a threshold, or when no vote is worth its
price: a vote of m on n is worth ``stake`` times its expected error reduction, the stake being what a right label is
worth in the currency of the prices.

**A campaign** stops when the budget is spent, or when the labels are as accurate as they should be. The accuracy is
estimated without truth, as the mean probability of the chosen classes. The posterior of a fit is too sure of itself
for that: the votes on an item helped to make its annotators look good on it. So for each item its annotators are judged
by their *other* items alone (their counts less what the item gave to them):

=====================  ===========================================================================
a[m, k, l]             the Dirichlet of row k of annotator m's confusion matrix
theta[m, k, l], no n   (a[m, k, l] - q[n, k]) / (a[m, k] - q[n, k]), the counts without item n
p[n]                   P(the chosen class of n | its votes, theta without n)
estimate               the mean of p; its interval has the error of the sample of items, p (1 - p) each, and that of
                       the confusion matrices, from draws of them
=====================  ===========================================================================

On simulated crowds the estimate is within two points of the truth from about six votes per item on, a little nearer
than the plain posterior. With one or two votes per item nobody can be judged, and it is up to twenty points too high;
with items of different difficulty it stays two to three points too high (see the page on stopping).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crowdwise.active import select
from crowdwise.active.beliefs import Beliefs
from crowdwise.core.numerics import Floats, normalise
from crowdwise.core.online import Online
from crowdwise.errors import NotFittedError, ParameterError

DRAWS = 20

__all__ = ["AccuracyEstimate", "StopRule", "estimate_accuracy", "settled"]


@dataclass(frozen=True)
class AccuracyEstimate:
    """How accurate the labels are believed to be, without truth."""

    accuracy: float
    low: float
    high: float
    items: int
    """How many items have votes: the estimate is about these."""


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

    def why_stop(self, spent: float, cheapest: float, online: Online) -> str | None:
        """Why the campaign should stop, in words; ``None`` where it should go on."""
        if self.budget is not None and spent + cheapest > self.budget * (1.0 + 1e-12):
            return f"the budget is spent: {spent:g} of {self.budget:g}, and a vote costs {cheapest:g} at least"
        if self.target is not None and online.ledger.n_votes:
            found = estimate_accuracy(online)
            if found.low >= self.target:
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
    theta = select.mean(beliefs.dirichlet[people])
    out = np.zeros(len(beliefs.posterior), dtype=bool)
    column = np.full(len(beliefs.annotator_names), -1)
    column[people] = np.arange(len(people))
    step = max(1, 1_000_000 // max(len(people), 1))
    for lo in range(0, len(out), step):
        items = np.arange(lo, min(lo + step, len(out)))
        gain = stake * select.pair_values(beliefs.posterior[items], theta, "error-reduction") - beliefs.price[people]
        place, who = beliefs.done.among(items)
        here = column[who] >= 0
        gain[place[here], column[who[here]]] = -np.inf
        out[items] = (gain > 0.0).any(axis=1)
    return out


def estimate_accuracy(online: Online, level: float = 0.95, random_state: int = 0) -> AccuracyEstimate:
    """How accurate the labels of a stream are, without truth, with an interval (see the top of this file)."""
    if not 0.0 < level < 1.0:
        raise ParameterError(f"level={level!r}: expected a number between 0 and 1, such as 0.95.")
    if online.ledger.n_votes == 0:
        raise NotFittedError("No votes have come in yet: there are no labels to be accurate.")
    from scipy.stats import norm

    chosen, a, b, item, log_prior = _without_themselves(online)
    N = len(chosen)

    def right(theta: Floats) -> Floats:
        by_class = [np.bincount(item, weights=np.log(theta[:, k]), minlength=N) for k in range(theta.shape[1])]
        logit = np.stack(by_class, axis=1) + log_prior
        q = np.exp(logit - logit.max(axis=1, keepdims=True))
        return np.asarray((q / q.sum(axis=1, keepdims=True))[np.arange(N), chosen])

    p = right(a / (a + b))
    # A draw of every annotator's matrix shifts all of that annotator's votes together: one quantile for each.
    rng = np.random.default_rng(random_state)
    who = online.ledger.rows["annotator"][online.ledger.gather(np.arange(N))[1]]
    total = a + b
    mean, sd = a / total, np.sqrt(a * b / (total * total * (total + 1.0)))
    drawn = []
    for _ in range(DRAWS):
        z = rng.standard_normal((len(online.ledger.annotators), a.shape[1]))[who]
        drawn.append(right(np.clip(mean + z * sd, 1e-6, 1.0 - 1e-6)).mean())
    error = np.sqrt((p * (1.0 - p)).sum() / N**2 + np.var(drawn))
    half = float(norm.ppf(0.5 + level / 2.0) * error)
    estimate = float(p.mean())
    return AccuracyEstimate(estimate, max(0.0, estimate - half), min(1.0, estimate + half), N)


def _without_themselves(online: Online) -> tuple[npt.NDArray[np.int64], Floats, Floats, npt.NDArray[np.int64], Floats]:
    """The chosen classes; for each vote (item, annotator, label) and class k the two parameters of the Beta of
    theta[m, k, label] without what the item itself gave; the item of each vote; the log prior of the classes."""
    ledger = online.ledger
    N = len(ledger.items)
    indptr, rows = ledger.gather(np.arange(N))
    item = np.repeat(np.arange(N), np.diff(indptr))
    m, label = ledger.rows["annotator"][rows], ledger.rows["label"][rows]
    q = online.posterior[:N]
    dirichlet = online.dirichlet()
    least = max(online.shrink, 1.0) * online.crowd()[label]  # what is believed of a stranger
    a = np.maximum(dirichlet[m, :, label] - ledger.rows["weight"][rows][:, None] * q[item], least)
    b = np.maximum(dirichlet[m].sum(axis=2) - dirichlet[m, :, label], 1e-3)
    return q.argmax(axis=1), a, b, item, np.log(normalise(online.mass + 1.0, axis=0))
