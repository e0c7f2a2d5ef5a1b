"""Replays: a strategy at work on votes that are there already, and its accuracy after so many of them.

Only pairs that were voted on can be asked, and asking reveals the vote. Simulated crowds in which everybody votes on
everything let a strategy ask any annotator. The truth only measures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np

from crowdwise.active.state import AskablePairs, State
from crowdwise.active.strategies import Strategy, find_strategy
from crowdwise.core.constraints import Bounds, Count, RandomState, checked
from crowdwise.core.model import EMModel
from crowdwise.core.numerics import TIE, Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.online.stream import Online
from crowdwise.online.vote_store import CodedBatch

SLACK = 0.005
"""How far below the accuracy of a batch fit of all votes counts as reaching it."""
BAND = (0.1, 0.9)
"""The quantiles of a band: four of five curves lie in it."""

ShareOfVotes = Annotated[float, Bounds(above=0, maximum=1, meaning="a share of the votes")]


@dataclass(frozen=True)
class Curve:
    """The accuracy after so many votes."""

    votes: Ints
    cost: Floats
    accuracy: Floats
    """On items with known truth; those without a vote count with the class that they would get."""
    expected: Floats
    """The accuracy that the model itself expects: the mean of the largest probabilities."""

    def votes_to(self, accuracy: float) -> float:
        """The fewest votes from which on the accuracy stays at or above that; ``inf`` where it never does."""
        below = np.flatnonzero(self.accuracy < accuracy)
        after = 0 if len(below) == 0 else int(below[-1]) + 1
        return float(self.votes[after]) if after < len(self.votes) else float("inf")

    def first_at(self, accuracy: float, by: str = "votes") -> float:
        """The fewest votes (or the least ``"cost"``) at which the accuracy is reached; ``inf`` where it never is."""
        there = np.flatnonzero(self.accuracy >= accuracy)
        return float(getattr(self, by)[there[0]]) if len(there) else float("inf")


@checked
def replay(
    votes: Votes,
    truth: Any,
    model: Callable[[], EMModel],
    strategy: str | Strategy,
    *,
    price: Any = 1.0,
    batch: ShareOfVotes = 0.01,
    share: ShareOfVotes = 1.0,
    random_state: RandomState = 0,
    progress: Callable[[float], None] | None = None,
    watch: Callable[[Online], None] | None = None,
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
    strategy
        A strategy or its name; it decides about the statistics of the stream, too.
    price
        Of a vote, for each annotator or for all.
    batch
        The share of all votes that is asked for at once; one vote at least.
    share
        The share of all votes to spend.
    progress
        Called after every batch with the share of the votes that is spent.
    watch
        Called after every batch with the stream, which it must not change.
    """
    codes = votes.encode_truth(truth)
    measured = np.flatnonzero(codes >= 0)
    if len(measured) == 0:
        raise InputError("No item has a known truth: a replay has nothing to measure with.")
    rule, rng = find_strategy(strategy), np.random.default_rng(random_state)
    size, most = max(1, round(batch * votes.n_votes)), round(share * votes.n_votes)
    online = rule.stream(model(), votes.classes.tolist())
    online.declare(votes.items.tolist(), votes.annotators.tolist())  # codes are those of the votes
    item, M = votes.item, votes.n_annotators
    asked = np.zeros(votes.n_votes, dtype=bool)
    rows: list[tuple[float, ...]] = []
    cost, q, key = 0.0, None, item * M + votes.annotator
    while (spent := int(asked.sum())) < most:
        left = np.flatnonzero(~asked)
        possible = AskablePairs.of(item[left], votes.annotator[left], len(votes))
        state = State.of(online, price=price, possible=possible, posterior=q)
        proposal = rule.propose(state, min(size, most - spent), rng)
        if len(proposal) == 0:
            break
        chosen = np.sort(np.searchsorted(key, proposal.item * M + proposal.annotator))
        asked[chosen] = True
        cost += float(proposal.price.sum())
        items, place = np.unique(item[chosen], return_inverse=True)
        weight = None if votes.weight is None else votes.weight[chosen]
        online.learn(CodedBatch(items, np.arange(M), place, votes.annotator[chosen], votes.label[chosen], weight))
        q, prior = online.e_step()
        every = np.tile(prior, (len(votes), 1))
        every[online.store.items.codes] = q
        rows.append((spent + len(chosen), cost, *_measured(every[measured], codes[measured])))
        if progress is not None:
            progress(rows[-1][0] / most)
        if watch is not None:
            watch(online)
    columns = list(zip(*rows, strict=True))
    return Curve(np.array(columns[0]), *(np.array(c, dtype=np.float64) for c in columns[1:]))


def _measured(q: Floats, codes: Ints) -> tuple[float, float]:
    """The accuracy on items with known truth (ties split), and the accuracy that the model expects there."""
    best = q >= q.max(axis=1, keepdims=True) - TIE
    right = best[np.arange(len(q)), codes] / best.sum(axis=1)
    return float(right.mean()), float(q.max(axis=1).mean())


@checked
def replay_strategies(
    votes: Votes,
    truth: Any,
    model: Callable[[], EMModel],
    strategies: Sequence[str],
    *,
    n_seeds: Count = 20,
    n_jobs: Jobs = 1,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, list[Curve]]:
    """Strategy -> its curves under the seeds 0 to n_seeds - 1; ``options`` are those of :func:`replay`."""
    names = [name for name in strategies for _ in range(n_seeds)]
    tasks = [
        partial(replay, votes, truth, model, name, random_state=i % n_seeds, **options) for i, name in enumerate(names)
    ]
    curves = run_tasks(tasks, names, n_jobs, progress)
    return {name: curves[i * n_seeds : (i + 1) * n_seeds] for i, name in enumerate(strategies)}


def summary(curves: Sequence[Curve], accuracy: float, n_votes: int) -> dict[str, Any]:
    """Several curves of a strategy in figures; ``share`` is that of the votes at which the accuracy is first reached,
    less half a point (all of them where it never is)."""
    first = [c.first_at(accuracy - SLACK) / n_votes for c in curves]
    return {
        "share": float(np.mean(np.minimum(first, 1.0))), "share_sd": float(np.std(np.minimum(first, 1.0))),
        "never": int(np.isinf(first).sum()), "accuracy": float(np.mean([c.accuracy[-1] for c in curves])),
        "cost": float(np.mean([c.cost[-1] for c in curves])),
        "calibration": float(np.mean([np.abs(c.expected - c.accuracy).mean() for c in curves])),
    }  # fmt: skip


def bands(curves: Mapping[str, Sequence[Curve]], by: str = "votes", points: int = 50) -> dict[str, dict[str, Any]]:
    """Strategy -> ``x`` (votes, or ``"cost"``, which all curves cover), and the mean accuracy ``y`` with a band from
    ``low`` to ``high`` there."""
    along = [getattr(c, by) for some in curves.values() for c in some]
    at = np.linspace(max(x[0] for x in along), min(x[-1] for x in along), points)
    out = {}
    for name, some in curves.items():
        found = np.array([np.interp(at, getattr(c, by), c.accuracy) for c in some])
        low, high = np.quantile(found, BAND, axis=0)
        values = {"x": at, "y": found.mean(axis=0), "low": low, "high": high}
        out[name] = {key: value.tolist() for key, value in values.items()}
    return out


T = TypeVar("T")
Jobs = Annotated[int, Bounds(minimum=1)] | None
"""How many processes at a time; ``None``: as many as there are cores."""
Progress = Callable[[str], None]
"""Called with the name of each task when it is done."""


def run_tasks(
    tasks: Sequence[Callable[[], T]], names: Sequence[str], n_jobs: Jobs = 1, progress: Progress | None = None
) -> list[T]:
    """The results of some calls, in order. With several processes, the calls and their results are pickled."""
    out = []
    for name, result in zip(names, _results(tasks, min(n_jobs or os.cpu_count() or 1, len(tasks))), strict=True):
        out.append(result)
        if progress is not None:
            progress(name)
    return out


def _results(tasks: Sequence[Callable[[], T]], n_jobs: int) -> Iterator[T]:
    if n_jobs <= 1:
        yield from (task() for task in tasks)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Fresh processes: a fork of one in which other libraries have threads can hang.
    with ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(task) for task in tasks]
        try:
            yield from (future.result() for future in waiting)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
