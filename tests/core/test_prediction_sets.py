"""Prediction sets: the coverage is the exact one, for small samples, by class and with a confidence."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core.prediction_sets import conformal_rank, conformal_thresholds, members
from crowdwise.errors import InputError

DRAWS = 10_000


@pytest.mark.parametrize(("n", "coverage"), [(12, 0.9), (37, 0.9), (60, 0.95)])
def test_coverage_is_exact_in_small_samples(n: int, coverage: float) -> None:
    rng = np.random.default_rng(n)
    strange = rng.random((DRAWS, n + 1))  # of n gold items and another one
    rank = conformal_rank(n, coverage)
    assert rank / (n + 1) >= coverage
    held = strange[:, -1] <= np.sort(strange[:, :n], axis=1)[:, rank - 1]
    exact = rank / (n + 1)
    assert held.mean() == pytest.approx(exact, abs=2 * np.sqrt(exact * (1 - exact) / DRAWS))


def test_sets_hold_the_truth_of_each_class_as_often_as_promised() -> None:
    rng, K, n = np.random.default_rng(0), 3, 80
    held = np.zeros((2, 2000, K))
    for i in range(2000):
        y = rng.choice(K, n + 30, p=[0.6, 0.3, 0.1])
        q = rng.dirichlet(np.ones(K), n + 30) + np.array([2.0, 0.5, 0.1])[y, None] * np.eye(K)[y]  # class 2 is hard
        q /= q.sum(axis=1, keepdims=True)
        for by_class in (False, True):
            least, _ = conformal_thresholds(q[:n], y[:n], 0.8, by_class)
            right = members(q[n:], least)[np.arange(30), y[n:]]
            held[int(by_class), i] = [right[y[n:] == k].mean() if (y[n:] == k).any() else np.nan for k in range(K)]
    plain, each = np.nanmean(held, axis=1)
    assert plain[2] < 0.75 < 0.79 < each.min()


def test_with_a_confidence_these_items_are_held() -> None:
    rng, n, others = np.random.default_rng(1), 60, 140
    rank = conformal_rank(n, 0.9, 0.9, others)
    strange = rng.random((DRAWS, n + others))
    share = (strange[:, n:] <= np.sort(strange[:, :n], axis=1)[:, [rank - 1]]).mean(axis=1)
    assert (share >= 0.9).mean() >= 0.9 - 2 * np.sqrt(0.09 / DRAWS)
    assert rank > conformal_rank(n, 0.9) and conformal_rank(5, 0.95) == 6 == conformal_rank(5, 0.9, 0.9, others)


def test_sets_of_a_consensus() -> None:
    crowd = cw.simulate.dirichlet(1200, n_annotators=20, n_classes=4, votes_per_item=3, random_state=0)
    consensus = cw.aggregate(crowd.votes)
    gold = {item: crowd.votes.classes[crowd.truth[item]] for item in cw.draw_for_gold(consensus, 120).tolist()}
    sets = consensus.sets(0.9, gold=gold)
    free = np.array([item not in gold for item in range(1200)])
    held = sets.member[np.arange(1200), crowd.truth]
    assert held[~free].all() and (sets.size[~free] == 1).all() and 0.85 < held[free].mean() < 0.99
    assert 1.0 < sets.size.mean() < 4.0 and sets.coverage == pytest.approx(109 / 121) and len(sets) == 1200
    row = int(np.flatnonzero(sets.size > 1)[0])
    assert sets.to_frame("polars")["set"][row] == "|".join(map(str, sets[row])) and "4 classes on average" in repr(sets)
    assert (consensus.sets(0.9, gold=gold, confidence=0.95).size >= sets.size).all()
    assert consensus.sets(0.99, gold=dict(list(gold.items())[:20])).member[free].all()
    with pytest.raises(InputError, match="fitted with some of these gold labels"):
        cw.aggregate(crowd.votes, gold=gold).sets(gold=gold)
    with pytest.raises(InputError, match="no item has a gold label"):
        consensus.sets(gold={})


def test_sets_of_a_classifier() -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    truth = (X[:, 0] + 0.7 * rng.normal(size=400) > 0).astype(int)
    votes = np.where(rng.random((200, 3)) < 0.85, truth[:200, None], 1 - truth[:200, None])
    model = cw.CrowdClassifier("raykar").fit(X[:200], votes)
    sets = model.predict_set(X[300:], 0.9, gold=(X[200:300], truth[200:300]))
    assert sets.member[np.arange(100), truth[300:]].mean() > 0.8 and 1.0 <= sets.size.mean() < 2.0
    with pytest.raises(InputError, match="expected inputs and their classes"):
        model.predict_set(X, gold=(X[:2], ["cat", "dog"]))
