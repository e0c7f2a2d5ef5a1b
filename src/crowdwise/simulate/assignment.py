"""Who labels what: the (item, annotator) pairs of a simulated crowd, sorted by item, then annotator."""

from __future__ import annotations

import numpy as np

from crowdwise.data.encoding import Codes
from crowdwise.errors import ParameterError
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import Ints, RandomState, Rng, VotesPerItem


def assign(
    n_items: int, n_annotators: int, votes_per_item: VotesPerItem = None, *, random_state: RandomState = 0
) -> tuple[Codes, Codes]:
    """The (item, annotator) pairs that get a vote, sorted.

    Parameters
    ----------
    votes_per_item
        ``None``: everybody labels everything. An integer: that many distinct annotators for each item,
        at random. A fraction between 0 and 1: each pair is kept with that probability; an item that
        would be left alone gets one annotator.
    """
    crowds.check_counts(n_items=n_items, n_annotators=n_annotators)
    rng, N, M = crowds.as_generator(random_state), n_items, n_annotators
    if votes_per_item is None:
        return np.repeat(np.arange(N, dtype=np.int32), M), np.tile(np.arange(M, dtype=np.int32), N)
    if crowds.is_integer(votes_per_item) and 1 <= votes_per_item <= M:
        r = int(votes_per_item)
        return np.repeat(np.arange(N, dtype=np.int32), r), _distinct(N, M, r, rng).ravel()
    if crowds.is_number(votes_per_item) and 0 < votes_per_item < 1:
        return _keep(N, M, float(votes_per_item), rng)
    raise ParameterError(
        f"votes_per_item={votes_per_item!r}: expected None (everybody labels everything), "
        f"an integer from 1 to the {M} annotators, or a fraction between 0 and 1 (the chance that a pair is kept)."
    )


def _distinct(N: int, M: int, r: int, rng: Rng) -> Codes:
    """N x r: r distinct annotators for each item, sorted (Floyd's sampling without replacement, all items at once)."""
    chosen = np.empty((N, r), dtype=np.int32)
    for i in range(r):
        last = M - r + i
        draw = rng.integers(last + 1, size=N, dtype=np.int32)
        taken = (chosen[:, :i] == draw[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, last, draw)
    chosen.sort(axis=1)
    return chosen


def _keep(N: int, M: int, p: float, rng: Rng) -> tuple[Codes, Codes]:
    """Each pair with probability p: the gaps between kept pairs are geometric, so only these are drawn."""
    total = N * M
    expected = int(total * p + 6 * np.sqrt(total * p) + 16)
    cell = np.empty(0, dtype=np.int64)
    while len(cell) == 0 or cell[-1] < total:
        gaps = np.minimum(rng.geometric(p, size=expected), total + 1)
        cell = np.concatenate([cell, (cell[-1] if len(cell) else -1) + np.cumsum(gaps)])
    cell = cell[cell < total]
    alone = np.flatnonzero(np.bincount(cell // M, minlength=N) == 0)
    cell = np.sort(np.concatenate([cell, alone * M + rng.integers(M, size=len(alone))]))
    return (cell // M).astype(np.int32), (cell % M).astype(np.int32)


def regular_assignment(
    n_items: int, n_annotators: int, l: int, r: int, *, random_state: RandomState = 0  # noqa: E741
) -> tuple[Codes, Codes]:  # fmt: skip
    """A random (l, r)-regular assignment: l annotators for every item, r items for every annotator, no pair twice.

    Ends of edges are matched at random (the configuration model), then pairs that came up twice swap
    annotators with random other pairs until none is left.
    """
    crowds.check_counts(n_items=n_items, n_annotators=n_annotators, l=l, r=r)
    N, M, rng = n_items, n_annotators, crowds.as_generator(random_state)
    if N * l != M * r:
        raise ParameterError(
            f"No (l={l}, r={r})-regular assignment of {N} items to {M} annotators: "
            f"expected {N} x {l} = {N * l} to equal {M} x {r} = {M * r}."
        )
    if l > M:
        raise ParameterError(f"l={l}: an item cannot have more than the {M} different annotators.")
    if 2 * l > M:  # nearly complete: choose who does not label what
        kept = np.ones((N, M), dtype=bool)
        if l < M:
            kept[regular_assignment(N, M, M - l, N - r, random_state=rng)] = False
        item, annotator = np.nonzero(kept)
        return item.astype(np.int32), annotator.astype(np.int32)
    item = np.repeat(np.arange(N, dtype=np.int64), l)
    annotator = rng.permutation(np.repeat(np.arange(M, dtype=np.int64), r))
    cell = np.sort(_part_doubles(item, annotator, M, rng))
    return (cell // M).astype(np.int32), (cell % M).astype(np.int32)


def _part_doubles(item: Ints, annotator: Ints, M: int, rng: Rng) -> Ints:
    """The cells ``item * M + annotator`` after double pairs have swapped annotators. With l <= M / 2 a swap that helps
    always exists."""
    while True:
        cell = item * M + annotator
        order = np.argsort(cell, kind="stable")
        ranked = cell[order]
        double = order[1:][ranked[1:] == ranked[:-1]]
        if len(double) == 0:
            return cell
        partner, first = np.unique(rng.integers(len(cell), size=len(double)), return_index=True)
        double = double[first]
        wanted = np.stack([item[double] * M + annotator[partner], item[partner] * M + annotator[double]])
        at = np.minimum(np.searchsorted(ranked, wanted), len(ranked) - 1)
        free = (ranked[at] != wanted).all(axis=0) & ~np.isin(partner, double)
        a, b = double[free], partner[free]
        annotator[a], annotator[b] = annotator[b], annotator[a]
