"""When to stop: an item that needs no more votes, a campaign that is good enough.

**An item** is finished when its best class has a probability of at least a threshold, or when no vote is worth its
price: a vote of m on n is worth ``stake`` times its expected error reduction, the stake being the value of a right
label in the currency of the prices.

**A campaign** stops when the budget is spent, or when the labels are as accurate as they should be. The accuracy is
estimated without truth, in two ways: crowds are drawn from the posterior given the votes, and in each the right labels
are counted (:mod:`crowdwise.active.accuracy_estimate`), which allows for few votes; and the posterior is corrected for
votes that err together (:mod:`crowdwise.core.dependence`), which allows for hard items. The estimate is the second, as
in reports, and the interval holds those of both. Probabilities of items are corrected ones, too. Items
with a known class teach, and their labels do not count: those were given.

Where hardly any item has two votes (or a known class), the votes carry no information about the crowd. The estimate is
then that of the prior over crowds, its interval reaches from chance to the stream's own confidence, and ``known`` is
false.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.active import accuracy_estimate as accuracy
from crowdwise.active import acquisition
from crowdwise.active.state import State, allowed
from crowdwise.core.constraints import (
    Bounds,
    Count,
    CountFromZero,
    Fraction,
    Parameterised,
    Positive,
    RandomState,
    checked,
    declared,
)
from crowdwise.core.dependence import accuracy_interval
from crowdwise.core.numerics import decide
from crowdwise.errors import NotFittedError
from crowdwise.online.stream import Online

MIN_PAIRS = 30
"""With fewer pairs of votes on the same item the rate of agreement is too uncertain to say anything about a crowd."""

Probability = Annotated[float, Bounds(above=0, maximum=1)]


@dataclass(frozen=True)
class AccuracyEstimate:
    """The accuracy of labels, estimated without truth."""

    accuracy: float
    low: float
    high: float
    items: int
    """How many items have votes and no known class: the estimate is about their labels."""
    pairs: int = 0
    """How many pairs of votes there are on the same item; votes on items with known classes count, too."""
    known: bool = True
    """Whether the votes carry information about the accuracy; if not, it is that of the prior over crowds."""
    rho: float = 0.0
    """The correlation of votes on an item that it allows for."""


@declared
class StopRule(Parameterised):
    """When a campaign, or an item of it, needs no more votes. What is ``None`` does not matter.

    Parameters
    ----------
    probability
        An item is finished when its best class is at least so probable.
    stake
        The value of a right label, in the currency of the prices: an item is finished when no vote is worth its price.
    min_votes, max_votes
        An item is not finished with fewer votes (a single one is not confirmed), and always with so many.
    budget
        The campaign stops when so much is spent.
    target
        The campaign stops when the lower end of the estimated accuracy is at least this.
    """

    probability: Probability | None = 0.9
    stake: Positive | None = None
    min_votes: CountFromZero = 2
    max_votes: Count | None = None
    budget: Positive | None = None
    target: Probability | None = None

    def __post_init__(self) -> None:
        self.check_parameters()

    def finished(self, state: State) -> npt.NDArray[np.bool_]:
        """N: which items need no more votes."""
        out = np.zeros(len(state.posterior), dtype=bool)
        if self.probability is not None:
            out |= state.corrected.max(axis=1) >= self.probability
        if self.stake is not None:
            out |= ~worth_asking(state, self.stake)
        out &= state.votes_per_item >= self.min_votes
        if self.max_votes is not None:
            out |= state.votes_per_item >= self.max_votes
        return out

    def why_stop(
        self, spent: float, cheapest: float, online: Online, found: AccuracyEstimate | None = None
    ) -> str | None:
        """Why the campaign should stop, in words; ``None`` where it should go on.

        ``found``: the accuracy, where it has been estimated already.
        """
        return self.why_spent(spent, cheapest) or self.why_enough(online, found)

    def why_spent(self, spent: float, cheapest: float) -> str | None:
        """Why no more votes can be paid, in words; ``None`` where one can be, or where there is no budget."""
        if self.budget is None or spent + cheapest <= self.budget * (1.0 + 1e-12):
            return None
        return f"the budget is spent: {spent:g} of {self.budget:g}, and a vote costs {cheapest:g} at least"

    def why_enough(self, online: Online, found: AccuracyEstimate | None = None) -> str | None:
        """Why the labels are accurate enough, in words; ``None`` where they are not, or where there is no target."""
        if self.target is None or not online.store.n_votes:
            return None
        confidence = online.posterior[: len(online.store.items)].max(axis=1).mean()
        if confidence < self.target:  # no estimate is above the model's own confidence, or hardly
            return None
        found = estimate_accuracy(online) if found is None else found
        if not (found.known and found.low >= self.target):
            return None
        return f"the labels are accurate enough: {found.low:.3f} to {found.high:.3f}, and {self.target:g} was asked"


def worth_asking(state: State, stake: float) -> npt.NDArray[np.bool_]:
    """N: whether a vote of some annotator on the item is worth its price; those who have voted on it are left out."""
    people = np.flatnonzero(state.available & (state.load >= 1.0))
    theta = acquisition.mean(state.dirichlet[people])
    out = np.zeros(len(state.posterior), dtype=bool)
    step = max(1, 1_000_000 // max(len(people), 1))
    for lo in range(0, len(out), step):
        items = np.arange(lo, min(lo + step, len(out)))
        gain = stake * acquisition.pair_values(state.corrected[items], theta, "error-reduction") - state.price[people]
        out[items] = ((gain > 0.0) & allowed(state, items, people, ())).any(axis=1)
    return out


@checked
def estimate_accuracy(
    online: Online,
    level: Fraction = 0.95,
    random_state: RandomState = 0,
    *,
    dependence: Literal["auto", "none"] = "auto",
) -> AccuracyEstimate:
    """The accuracy of the labels of a stream, estimated without truth, with an interval (see the top of this file).

    ``dependence="none"`` takes votes on an item as independent given its class: real crowds are overrated by it.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=20, votes_per_item=5, random_state=0)
    >>> online = cw.Online(cw.OneCoin(), step=None).partial_fit(crowd.votes)
    >>> found = estimate_accuracy(online)
    >>> found.low < online.consensus().score(crowd.truth) < found.high
    True
    """
    store = online.store
    if store.n_votes == 0:
        raise NotFittedError("No votes have come in yet: there are no labels to be accurate.")
    q, prior = online.e_step()
    (N, K), chosen, rng = q.shape, decide(q, prior), np.random.default_rng(random_state)
    indptr, annotator, label, weight = store.votes()
    truth, size = store.truth, np.diff(indptr)
    pairs = int((size * (size - 1) // 2).sum() + size[truth >= 0].sum())
    if K == 1:
        return AccuracyEstimate(1.0, 1.0, 1.0, N, pairs)
    free = truth < 0
    n_free = int(free.sum())
    if pairs < MIN_PAIRS or not n_free:
        confidence = float(q[np.arange(N), chosen][free].mean()) if n_free else 1.0
        mean, low, high = accuracy.prior_accuracy(K, confidence, level, rng)
        return AccuracyEstimate(mean, low, high, n_free, pairs, known=False)
    answers = accuracy.ItemVotes(
        indptr[:-1], np.repeat(np.arange(N), size), annotator.astype(np.int64), label.astype(np.int64), weight, truth,
        len(store.annotators), K,
    )  # fmt: skip
    means, variance = accuracy.accuracy_draws(answers, chosen, q, accuracy.n_draws(len(label)), rng)
    low, high = accuracy.interval(means, variance, n_free, level)
    if dependence == "none":
        return AccuracyEstimate(float(means.mean()), low, high, n_free, pairs)
    own = float(online.corrected(q)[np.arange(N), chosen][free].mean())
    mean, least, most = accuracy_interval(own, N - n_free, level)
    rho = online.shown_dependence().rho
    return AccuracyEstimate(mean, min(low, least), max(high, most), n_free, pairs, rho=rho)
