"""Fair assignment: questions such that no group of items is left with a much higher expected error than another.

A strategy proposes a batch under weights of the groups and matrices by group (the equations: ``docs/active.md``). Where
the gap of expected errors is over the bound, groups with more than the mean get a larger weight, the others a smaller
one (multiplicative weights), and the strategy proposes again under the same random numbers.

Votes that one group gets are not given to another. So no group may end more than ``tolerance`` above the expected error
and entropy that it has without weights, by the same strategy, with or without matrices by group (the higher of both).
The error alone is not a guard: a vote that cannot change a label by itself leaves it, and five of them do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from crowdwise.active import acquisition
from crowdwise.active.state import Proposal, State
from crowdwise.active.strategies import DEFAULT, Strategy, find_strategy
from crowdwise.core.constraints import Bounds, Count, RandomState, checked
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import InputError

ROUNDS = 10
STEP = 4.0
"""The ratio of two groups' weights in the first round; its logarithm is halved whenever another group is worst."""
GRAIN = 0.1
"""Weights of items of a group differ by so much at random, so that of items that are all alike some can be taken."""
MAX_WEIGHT = np.log(1e4)
"""The logarithm of the largest ratio of two weights."""

TOLERANCE = 0.003
"""Per batch; over a campaign it adds up."""

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
    tolerance: Gap = TOLERANCE,
    random_state: RandomState = 0,
    max_rounds: Count = ROUNDS,
) -> FairProposal:
    """The questions of a strategy, with more of them about groups that would else be left with more errors.

    Parameters
    ----------
    state
        With the ``group`` of each item; ``State.of(online, group=...)`` has the matrices by group.
    n
        How many questions.
    bound
        The largest gap between the expected errors of any two groups.
    strategy
        The strategy, or its name.
    tolerance
        By how much a group's expected error and entropy (bits) may be above those that the strategy alone would leave.
    max_rounds
        How often the weights are changed at most.
    """
    group, names = state.groups
    if len(names) < 2:
        raise InputError(f"A gap needs two groups of items at least, and {len(names)} came.")
    size = np.bincount(group[group >= 0], minlength=len(names))
    rule, seed = find_strategy(strategy), np.random.default_rng(random_state).integers(2**63)
    grain = np.exp(GRAIN * np.random.default_rng(seed).random(len(group)))

    def of_groups(error: Floats) -> Floats:
        return np.bincount(group[group >= 0], weights=error[group >= 0], minlength=len(names)) / size

    def asked(log_weight: Floats, grain: Any, known: State = state) -> tuple[FairProposal, Floats]:
        """A proposal under weights of groups, and the expected errors and entropies of the groups after it."""
        each = np.append(np.exp(log_weight), 1.0)[group] * grain  # of items of no group: 1, the last
        proposal = rule.propose(known.replace(weight=each), n, np.random.default_rng(seed))
        after = np.stack([of_groups(x) for x in _expected(state, proposal)])
        return FairProposal(proposal, names, before, after[0], np.exp(log_weight), bound, ""), after

    before = of_groups(1.0 - state.posterior.max(axis=1))
    weight = np.zeros(len(names))
    best, after = asked(weight, 1.0)
    most = after if state.group_dirichlet is None else asked(weight, 1.0, state.replace(group_dirichlet=None))[1]
    most = np.maximum(most, after) + tolerance
    fine, step, worst, dear = weight, np.log(STEP), -1, False
    for _ in range(max_rounds - 1):
        if best.met:
            return best
        if (after <= most).all():
            fine, error = weight, after[0]
            step, worst = step / (2.0 if worst not in (-1, error.argmax()) else 1.0), int(error.argmax())
            weight = weight + step * (error - error.mean()) / np.ptp(error)
            weight = np.clip(weight - weight.min(), 0.0, MAX_WEIGHT)
        else:  # some group pays more than it may: half way back
            step, weight = step / 2.0, 0.5 * (fine + weight)
        found, after = asked(weight, grain)
        if found.gap_after < best.gap_after - 1e-12:
            dear |= not (after <= most).all()
            best = found if (after <= most).all() else best
    if best.met:
        return best
    cost = f"a smaller gap would leave a group with an error or entropy more than {tolerance:g} above that without it"
    return replace(best, why=cost if dear else _why(state, best, group))


def expected_errors(state: State, proposal: Proposal) -> Floats:
    """N: the expected error of each label when the answers are in."""
    return _expected(state, proposal)[0]


def _expected(state: State, proposal: Proposal) -> tuple[Floats, Floats]:
    """N each: the expected error and the expected entropy, in bits, of each item when the answers are in."""
    q = np.array(state.posterior)
    error, doubt = 1.0 - q.max(axis=1), acquisition.bits(q).sum(axis=1)
    if len(proposal) == 0:
        return error, doubt
    theta = acquisition.mean(state.dirichlet_of(proposal.item, proposal.annotator))
    items, place = np.unique(proposal.item, return_inverse=True)
    order = np.argsort(place, kind="stable")
    rank = np.arange(len(order)) - np.searchsorted(place[order], place[order])
    table = q[items][:, :, None]  # I x K x (possible votes so far): the joint probability
    for r in range(int(rank.max()) + 1):
        here = order[rank == r]
        vote = np.ones((len(items), table.shape[1], table.shape[1])) / table.shape[1]  # a vote that is not there
        vote[place[here]] = theta[here]
        table = (table[:, :, :, None] * vote[:, :, None, :]).reshape(len(items), table.shape[1], -1)
    error[items] = np.maximum(1.0 - table.max(axis=1).sum(axis=1), 0.0)
    doubt[items] = acquisition.bits(table).sum(axis=(1, 2)) - acquisition.bits(table.sum(axis=1)).sum(axis=1)
    return error, doubt


def _why(state: State, best: FairProposal, group: Ints) -> str:
    """Why the gap stays over the bound."""
    worst = int(best.after.argmax())
    name, asked = best.groups[worst], group[best.proposal.item] == worst
    there = (group == worst) & ~state.closed & ~state.gold
    if not there.any():
        return f"no item of {name} is open"
    if not asked.any():
        return f"no available annotator can be asked about an item of {name}"
    if best.before[worst] - best.after[worst] < 1e-9:
        return f"no vote that can be asked is expected to change a label of {name}"
    if asked.all():
        return f"all {len(asked)} questions are about {name} and are not enough: ask for more"
    if int(asked.sum()) >= int(there.sum()):
        return f"each of the {int(there.sum())} open items of {name} is asked about already: more votes must follow"
    return (
        f"the bound is out of reach of these annotators: the best that was found leaves a gap of {best.gap_after:.3f}"
    )
