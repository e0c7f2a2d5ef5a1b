"""Simulated items joined by a graph, in which neighbours tend to be of the same class."""

from __future__ import annotations

import numpy as np

from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import Ints, Prior, RandomState, Rng, Simulated, VotesPerItem, assign


def graph(
    n_items: int = 1000, *, n_annotators: int = 30, n_classes: int = 3, degree: float = 6.0,
    homophily: float | None = 0.8, diagonal: float = 5.0, rest: float = 1.0,
    votes_per_item: VotesPerItem = 2, single_votes: float = 0.5, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """A network of items: a share ``homophily`` of the edges joins items of one class, the others two classes.

    ``degree`` edges meet at an item on average, and both ends are drawn evenly; with ``homophily=None`` edges know
    nothing of the classes. Annotators have Dirichlet confusion matrices, as in ``dirichlet``; a share ``single_votes``
    of the items keeps only one of its votes. Parameters hold ``edges`` (E x 2 item codes, each pair once). Reference:
    Traganitis and Giannakis 2022.
    """
    pi, rng = crowds.begin(n_items, n_annotators, n_classes, prior, random_state)
    crowds.check_positive(degree=degree, diagonal=diagonal, rest=rest)
    if homophily is not None:
        crowds.check_shares(homophily=homophily)
    crowds.check_shares(single_votes=single_votes)
    theta = crowds.dirichlet_confusion(n_annotators, n_classes, diagonal, rest, rng)
    truth = crowds.draw_truth(n_items, pi, rng)
    edges = _edges(truth, round(n_items * degree / 2), homophily, rng)
    item, annotator = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    keep = np.append(True, np.diff(item) != 0) | ~crowds.some(n_items, single_votes, rng)[item]
    shuffled = rng.permutation(len(item))  # which of its votes an item keeps is drawn, not the first annotator's
    shuffled = shuffled[np.argsort(item[shuffled], kind="stable")]
    item, annotator = item[shuffled][keep], annotator[shuffled][keep]
    label = crowds.answer(theta, annotator, truth[item], rng)
    return crowds.collect("graph", (item, annotator), label, truth, pi, theta, edges=edges)


def _edges(truth: Ints, size: int, homophily: float | None, rng: Rng) -> Ints:
    """About ``size`` different edges between different items."""
    N = len(truth)
    left = rng.integers(0, N, size)
    right = rng.integers(0, N, size)
    if homophily is not None:
        order = np.argsort(truth, kind="stable")
        count = np.bincount(truth)
        first = np.cumsum(count) - count
        own = truth[left]
        same = rng.random(size) < homophily
        inside = order[first[own] + rng.integers(0, count[own])]
        # A draw from everybody else: skip over the item's own class in the sorted order.
        others = np.maximum(N - count[own], 1)
        at = rng.integers(0, others)
        outside = order[np.where(at < first[own], at, at + count[own]) % N]
        right = np.where(same | (count[own] == N), inside, outside)
    pairs = np.sort(np.column_stack([left, right]), axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).astype(np.int64)
