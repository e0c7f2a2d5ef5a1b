"""Fair assignment: questions such that no group of items is left with a much higher expected error than another.

=====================  ==============================================================================================
e[n]                   1 - max_k q[n, k], the expected error on item n now
e'[n]                  1 - sum over the possible votes of a batch on n of max_k q[n, k] prod theta[m, k, l]: the
                       expected error when they are in
E[g], E'[g]            their means over the items of group g; the gap is the largest less the smallest
w[g]                   the weight of a vote on an item of group g
=====================  ==============================================================================================

A strategy proposes a batch under weights w; where the gap of E' is over the bound, groups with a larger expected error
than the mean get a larger weight, those with a smaller one a smaller weight (multiplicative weights, the multipliers of
the constraints "E'[g] - E'[h] is at most the bound"), and the strategy proposes again under the same random numbers. No
vote is expected to make a label worse, so a gap is never closed at the cost of the better group, only by votes that the
worse one gets in its stead.

**It fails** where the estimates do: a crowd that errs together on one group has confusion matrices that do not show it
(see the page on fairness for what does); where no vote that can be asked helps the worse group; and where the batch is
too small. The result says which.

Reference: N. Goel and B. Faltings, Crowdsourcing with fairness, diversity and budget constraints, AIES 2019, for
assignment under a bound on the gap; here groups are of items, and the bound is on expected errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from crowdwise.active import acquisition
from crowdwise.active.state import Proposal, State
from crowdwise.active.strategies import DEFAULT, Strategy, find_strategy
from crowdwise.core.constraints import Bounds, Count, RandomState, checked
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import InputError

ROUNDS = 25
STEP = 4.0
"""The ratio of two groups' weights in the first round; its logarithm is halved whenever another group is worst."""
GRAIN = 0.1
"""Weights of items of a group differ by so much at random, so that of items that are all alike some can be taken."""
MAX_WEIGHT = 1e4

Gap = Annotated[float, Bounds(minimum=0, below=1)]
"""A difference of shares of wrong labels."""


@dataclass(frozen=True, eq=False)
class FairProposal:
    """Questions, and the expected gap between groups before and after them."""

    proposal: Proposal
    groups: npt.NDArray[Any]
    """The names of the groups."""
    before: Floats
    """The expected error of each group now."""
    after: Floats
    """The same when the answers are in."""
    weight: Floats
    """The weight of a vote on an item of each group."""
    bound: float
    why: str
    """Why the bound is not met, in words; empty where it is."""

    @property
    def gap_before(self) -> float:
        return float(np.ptp(self.before))

    @property
    def gap_after(self) -> float:
        return float(np.ptp(self.after))

    @property
    def met(self) -> bool:
        """Whether the gap is expected to be at most the bound."""
        return self.gap_after <= self.bound


@checked
def propose_fairly(
    state: State,
    n: Count,
    bound: Gap,
    strategy: str | Strategy = DEFAULT,
    *,
    random_state: RandomState = 0,
    max_rounds: Count = ROUNDS,
) -> FairProposal:
    """The questions of a strategy, with more of them about groups that would else be left with more errors.

    Parameters
    ----------
    state
        With the ``group`` of each item.
    n
        How many questions.
    bound
        The largest gap between the expected errors of any two groups.
    strategy
        The strategy, or its name.
    max_rounds
        How often the weights are changed at most.
    """
    if state.group is None:
        raise InputError("There are no groups of items: give them to the state, State.of(online, group=...).")
    group, names = _groups(state)
    size = np.bincount(group[group >= 0], minlength=len(names))
    rule, seed = find_strategy(strategy), np.random.default_rng(random_state).integers(2**63)

    def of_groups(error: Floats) -> Floats:
        return np.bincount(group[group >= 0], weights=error[group >= 0], minlength=len(names)) / size

    before = of_groups(1.0 - state.posterior.max(axis=1))
    weight, best, step, worst = np.ones(len(names)), None, np.log(STEP), -1
    grain = np.exp(GRAIN * np.random.default_rng(seed).random(len(group)))
    for round_ in range(max_rounds):
        each = np.append(weight, 1.0)[group] * (grain if round_ else 1.0)  # of items of no group: 1, the last
        proposal = rule.propose(state.replace(weight=each), n, np.random.default_rng(seed))
        after = of_groups(expected_errors(state, proposal))
        found = FairProposal(proposal, names, before, after, weight.copy(), bound, "")
        if best is None or found.gap_after < best.gap_after - 1e-12:
            best = found
        if best.met:
            return best
        step, worst = step / (2.0 if worst not in (-1, after.argmax()) else 1.0), int(after.argmax())
        weight = weight * np.exp(step * (after - after.mean()) / np.ptp(after))
        weight = np.clip(weight / weight.min(), 1.0, MAX_WEIGHT)
    assert best is not None
    return FairProposal(best.proposal, names, before, best.after, best.weight, bound, _why(state, best, group))


def expected_errors(state: State, proposal: Proposal) -> Floats:
    """N: the expected error of each label when the answers are in."""
    q = np.array(state.posterior)
    error = 1.0 - q.max(axis=1)
    if len(proposal) == 0:
        return np.asarray(error)
    theta = acquisition.mean(state.dirichlet)
    items, place = np.unique(proposal.item, return_inverse=True)
    order = np.argsort(place, kind="stable")
    rank = np.arange(len(order)) - np.searchsorted(place[order], place[order])
    table = q[items][:, :, None]  # I x K x (possible votes so far): the joint probability
    for r in range(int(rank.max()) + 1):
        here = order[rank == r]
        vote = np.ones((len(items), table.shape[1], table.shape[1])) / table.shape[1]  # a vote that is not there
        vote[place[here]] = theta[proposal.annotator[here]]
        table = (table[:, :, :, None] * vote[:, :, None, :]).reshape(len(items), table.shape[1], -1)
    error[items] = 1.0 - table.max(axis=1).sum(axis=1)
    return np.asarray(np.maximum(error, 0.0))


def _groups(state: State) -> tuple[Ints, npt.NDArray[Any]]:
    """N codes (-1: of no group), and the names of the groups."""
    given = np.asarray(state.group)
    if given.shape != (len(state.posterior),):
        raise InputError(f"group: expected one for each of the {len(state.posterior)} items and found {given.shape}.")
    none = np.array([g is None or (not isinstance(g, str) and g == -1) for g in given.tolist()])
    names, code = np.unique(given[~none], return_inverse=True)
    if len(names) < 2:
        raise InputError(f"A gap needs two groups of items at least, and {len(names)} came.")
    out = np.full(len(given), -1)
    out[~none] = code
    return out, names


def _why(state: State, best: FairProposal, group: Ints) -> str:
    """Why the gap stays over the bound."""
    worst = int(best.after.argmax())
    name, asked = best.groups[worst], group[best.proposal.item] == worst
    there = (group == worst) & ~state.closed & ~state.gold
    if not there.any():
        return f"no item of {name} is open"
    if not asked.any():
        return f"nobody who is available can be asked about an item of {name}"
    if best.before[worst] - best.after[worst] < 1e-9:
        return f"no vote that can be asked is expected to change a label of {name}"
    if asked.all():
        return f"all {len(asked)} questions are about {name} and are not enough: ask for more"
    if int(asked.sum()) >= int(there.sum()):
        return f"each of the {int(there.sum())} open items of {name} is asked about already: more votes must follow"
    return (
        f"the bound is out of reach of these annotators: the best that was found leaves a gap of {best.gap_after:.3f}"
    )
