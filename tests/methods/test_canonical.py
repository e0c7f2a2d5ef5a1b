"""Votes in an order of their own: whatever they are called and however they come, they end up the same."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core import predictive
from crowdwise.core.vote_order import Canonical


def shuffled(votes, rng, gold=None):
    """The same votes under other codes; returns the new ones, the new gold, and the maps of items and classes."""
    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    items, annotators, classes = rng.permutation(N), rng.permutation(M), rng.permutation(K)
    rows = rng.permutation(votes.n_votes)
    new = cw.Votes.from_codes(
        items[votes.item][rows], annotators[votes.annotator][rows], classes[votes.label][rows],
        items=range(N), annotators=range(M), classes=list(range(K)),
    )  # fmt: skip
    told = np.full(N, -1)
    if gold is not None:
        told[items] = np.where(gold >= 0, classes[np.maximum(gold, 0)], -1)
    return new, told, items, classes


def test_the_form_does_not_depend_on_codes():
    rng = np.random.default_rng(0)
    sim = cw.simulate.dirichlet(60, n_annotators=9, n_classes=4, votes_per_item=4, random_state=0)
    gold = np.where(np.arange(60) < 10, sim.truth, -1)
    first = Canonical.of(sim.votes, gold)
    for _ in range(5):
        votes, told, items, classes = shuffled(sim.votes, rng, gold)
        other = Canonical.of(votes, told)
        for name in ("item", "annotator", "label", "weight", "gold"):
            assert np.array_equal(getattr(first, name), getattr(other, name)), name
        q = rng.random((60, 4))
        assert np.array_equal(first.restore_items(q), other.restore_items(q)[np.ix_(items, classes)])


def test_repeated_votes_become_one_and_unused_classes_go():
    votes = cw.Votes.from_codes(
        [0, 0, 0, 1], [0, 0, 1, 1], [2, 2, 0, 0], items=range(3), annotators=range(2), classes=list("abc"),
        on_duplicate="all",
    )  # fmt: skip
    v = Canonical.of(votes)
    assert v.shape == (3, 2, 2)
    assert sorted(v.weight.tolist()) == [1.0, 1.0, 2.0]
    assert set(v.class_order.tolist()) == {0, 2}
    assert v.restore_items(np.full((3, 2), 0.5)).tolist() == [[0.5, 0.0, 0.5]] * 3
    assert v.restore_annotators(np.full((2, 2, 2), 0.5), 1 / 3)[0].tolist() == [
        [0.5, 0, 0.5],
        [1 / 3] * 3,
        [0.5, 0, 0.5],
    ]
    assert Canonical.of(votes, every_class=True).shape == (3, 2, 3)
    assert Canonical.of(votes, np.array([-1, -1, 1])).shape == (3, 2, 3)
    assert v.back(v.item_order, v.item_order.astype(float)).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("key", ["auto", "stacked", "ebcc", "mace"])
@pytest.mark.parametrize("crowd", ["dirichlet", "one-coin", "copies", "rte"])
def test_labels_do_not_depend_on_names_and_order_of_items(key, crowd, real):
    """Folds and random starts went by the names of items: labels flipped when they were renamed."""
    if crowd == "rte":
        votes = cw.read_dataset(real("rte")).votes
    elif crowd == "copies":  # many items with equal votes, more than one fold can hold
        few = cw.simulate.one_coin(30, n_annotators=5, n_classes=2, votes_per_item=3, random_state=1).votes
        votes = few[np.repeat(np.arange(30), 12)]
    else:
        make = cw.simulate.dirichlet if crowd == "dirichlet" else cw.simulate.one_coin
        votes = make(300, n_annotators=12, n_classes=3, votes_per_item=3, random_state=4).votes
    params = {"restarts": 2} if key in ("ebcc", "mace") else {}
    first = cw.aggregate(votes, key, **params)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        place, rows = rng.permutation(len(votes)), rng.permutation(votes.n_votes)
        names = [f"n{i}" for i in range(len(votes))]
        other = cw.Votes.from_codes(
            place[votes.item][rows], votes.annotator[rows], votes.label[rows], items=names,
            annotators=votes.annotators, label_names=votes.classes, classes=votes.classes.tolist(), on_duplicate="all",
        )  # fmt: skip
        found = cw.aggregate(other, key, **params)
        assert np.array_equal(found.labels[place], first.labels)


def test_items_with_equal_votes_go_to_all_folds():
    votes = cw.Votes.from_dense(np.repeat([[0, 0, 1], [1, 1, 1]], 10, axis=0))
    fold = predictive.item_folds(votes, 5)
    assert np.bincount(fold).tolist() == [4] * 5
    assert all(len(set(fold[part].tolist())) == 5 for part in (slice(0, 10), slice(10, 20)))


def test_samples_are_spread_over_all_items():
    votes = cw.Votes.from_dense(np.repeat([[0, 0, 1], [1, 1, 1]], 100, axis=0))
    fold = predictive.item_folds(votes, 5, max_votes=150)
    assert (fold[:100] >= 0).sum() == (fold[100:] >= 0).sum() == 25 and set(fold.tolist()) == {-1, 0, 1, 2, 3, 4}
