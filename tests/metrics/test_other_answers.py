"""Metrics of clusters and label sets: against scikit-learn, by hand, and in degenerate cases."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as theirs

from crowdwise import metrics
from crowdwise.errors import InputError, ParameterError


def clusters(seed, n=200, K=4, C=5):
    rng = np.random.default_rng(seed)
    true = rng.integers(C, size=n)
    return np.where(rng.random(n) < 0.6, true % K, rng.integers(K, size=n)), true


@pytest.mark.parametrize("seed", range(5))
def test_clusters_equal_scikit_learn(seed):
    found, true = clusters(seed)
    assert metrics.adjusted_rand(found, true, resamples=1).value == pytest.approx(
        theirs.adjusted_rand_score(true, found)
    )
    assert metrics.mutual_information(found, true, resamples=1).value == pytest.approx(
        theirs.normalized_mutual_info_score(true, found)
    )


def test_hungarian_accuracy_is_the_best_over_all_matchings():
    from itertools import permutations

    found, true = clusters(1, K=4, C=4)
    best = max((np.array(p)[found] == true).mean() for p in permutations(range(4)))
    assert metrics.cluster_accuracy(found, true, resamples=1).value == pytest.approx(best)


def test_numbers_of_clusters_do_not_matter_and_perfect_is_one():
    true = np.array([0, 0, 1, 1, 2, 2])
    for metric in (metrics.adjusted_rand, metrics.mutual_information, metrics.cluster_accuracy):
        assert metric(np.array([7, 7, 3, 3, 5, 5]), true, resamples=5).value == pytest.approx(1.0)
        assert metric(np.zeros(3, int), np.zeros(3, int), resamples=5).value == 1.0
    assert metrics.adjusted_rand(np.array([0, 1, 0]), np.array([0, 1, -1]), resamples=2).n == 2


def test_intervals_hold_the_value_and_are_not_biased_by_repeats():
    found, true = clusters(2, n=400)
    estimate = metrics.adjusted_rand(found, true)
    assert estimate.low < estimate.value < estimate.high
    assert abs((estimate.low + estimate.high) / 2 - estimate.value) < 0.02


def sets(seed, n=120, L=6):
    rng = np.random.default_rng(seed)
    true = rng.random((n, L)) < 0.35
    return np.clip(true * 0.5 + rng.random((n, L)) * 0.6, 0, 1), true


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_sets_equal_scikit_learn(average):
    q, true = sets(0)
    taken = q > 0.5
    options = {"average": average, "zero_division": 0}
    for ours, other in (
        (metrics.set_precision, theirs.precision_score),
        (metrics.set_recall, theirs.recall_score),
        (metrics.set_f1, theirs.f1_score),
    ):
        assert ours(q, true, average=average, resamples=1).value == pytest.approx(other(true, taken, **options))


def test_whole_sets_equal_scikit_learn():
    q, true = sets(1)
    taken = q > 0.5
    assert metrics.subset_accuracy(q, true).value == pytest.approx(theirs.accuracy_score(true, taken))
    assert metrics.hamming_loss(q, true).value == pytest.approx(theirs.hamming_loss(true, taken))
    assert metrics.jaccard(q, true).value == pytest.approx(
        theirs.jaccard_score(true, taken, average="samples", zero_division=1)
    )
    each = metrics.label_scores(q, true)
    assert each["f1"] == pytest.approx(theirs.f1_score(true, taken, average=None))
    assert each["items"].tolist() == true.sum(axis=0).tolist()


def test_top_k_with_the_gold_count_by_hand():
    q = np.array([[0.9], [0.8], [0.3], [0.2], [0.1]])
    true = np.array([[True], [False], [True], [False], [False]])
    found = metrics.top_k_with_gold_count(q, true)
    assert found["gold_count"].tolist() == [2, 2]
    assert found["accuracy"][0] == pytest.approx(3 / 5)  # the first two are taken: one right, one wrong, one missed
    assert found["f1"][0] == pytest.approx(0.5)
    assert metrics.top_k_with_gold_count(np.full((5, 1), 0.5), true)["f1"][0] == pytest.approx(2 / 5)  # ties by share
    assert "gold count" in metrics.top_k_with_gold_count.__doc__


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: metrics.adjusted_rand([0, 1], [0]), InputError, "Clustering"),
        (lambda: metrics.adjusted_rand(np.array([0]), np.array([-1])), InputError, "nothing to measure"),
        (lambda: metrics.set_f1(np.zeros((2, 2)), np.zeros((2, 2))), InputError, "booleans"),
        (lambda: metrics.set_f1(*sets(0), average="all"), ParameterError, "micro"),
    ],
)
def test_wrong_arguments_are_explained(call, error, text):
    with pytest.raises(error, match=text):
        call()
