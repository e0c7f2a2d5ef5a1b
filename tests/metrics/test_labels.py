"""The metrics: against hand-computed values and scikit-learn, and their intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, recall_score

import crowdwise as cw
from crowdwise import metrics
from crowdwise.errors import InputError, ParameterError
from crowdwise.metrics.measures import hits

Q = np.array([[0.7, 0.2, 0.1], [0.5, 0.5, 0.0], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
Y = np.array([0, 1, 0, 2])


def random(n=400, K=3, seed=0):
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(K), n)
    return q, np.array([rng.choice(K, p=row) for row in q])


def test_tied_classes_share_the_point():
    assert hits(Q, Y).tolist() == [1.0, 0.5, 0.0, pytest.approx(1 / 3)]
    assert metrics.accuracy(Q, Y).value == pytest.approx((1 + 0.5 + 0 + 1 / 3) / 4)


def test_equal_scikit_learn():
    q, y = random()
    assert metrics.accuracy(q, y).value == pytest.approx(accuracy_score(y, q.argmax(axis=1)))
    assert metrics.log_loss(q, y).value == pytest.approx(log_loss(y, q))
    assert metrics.brier(q, y).value == pytest.approx(brier_score_loss(y, q, scale_by_half=False))
    recall = recall_score(y, q.argmax(axis=1), average=None)
    assert [metrics.accuracy_per_class(q, y)[k].value for k in range(3)] == pytest.approx(recall.tolist())


def test_items_without_truth_are_left_out():
    assert metrics.accuracy(Q, np.array([0, -1, -1, -1])).value == 1.0
    assert metrics.accuracy(Q, np.array([0, -1, -1, -1])).n == 1


def test_calibration_error_by_hand():
    q = np.array([[0.9, 0.1]] * 10 + [[0.4, 0.6]] * 10)
    y = np.array([0] * 7 + [1] * 3 + [1] * 6 + [0] * 4)
    assert metrics.calibration_error(q, y, bins=10).value == pytest.approx((10 * 0.2 + 10 * 0.0) / 20)
    curve = metrics.reliability(q, y, bins=10)
    assert curve["items"].tolist() == [10, 10]
    assert curve["probability"].tolist() == pytest.approx([0.6, 0.9])
    assert curve["accuracy"].tolist() == pytest.approx([0.6, 0.7])


def test_honest_probabilities_have_little_calibration_error():
    assert metrics.calibration_error(*random(20_000), resamples=20).value < 0.02
    q, y = random(20_000)
    sharp = q**4 / (q**4).sum(axis=1, keepdims=True)
    assert metrics.calibration_error(sharp, y, resamples=20).value > 0.2


def test_certainty_falls_in_the_last_bin():
    assert metrics.calibration_error(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1])).value == 0.0


def test_confusion_error_is_tannos():
    a = np.tile(np.eye(2), (3, 1, 1))
    b = np.tile(np.array([[0.9, 0.1], [0.2, 0.8]]), (3, 1, 1))
    assert metrics.confusion_error(a, b).value == pytest.approx((0.01 + 0.01 + 0.04 + 0.04) / 2)
    assert metrics.confusion_error(a, a).value == 0.0


@pytest.mark.parametrize("metric", [metrics.accuracy, metrics.log_loss, metrics.brier])
def test_bootstrap_intervals_cover(metric):
    """The value on a million items lies in the 95 % interval from 300 of them about nineteen times in twenty."""
    q, y = random(100_000, seed=1)
    true = metric(q, y, resamples=1).value
    held = []
    for start in range(0, 60_000, 300):
        e = metric(q[start : start + 300], y[start : start + 300], resamples=200)
        held.append(e.low <= true <= e.high)
    assert 0.90 < np.mean(held) < 0.985


def test_intervals_are_seeded_and_widen_with_the_level():
    q, y = random()
    a, b = metrics.accuracy(q, y), metrics.accuracy(q, y)
    assert (a.low, a.high) == (b.low, b.high)
    wide = metrics.accuracy(q, y, level=0.99)
    assert wide.low < a.low < a.value < a.high < wide.high
    assert repr(wide).startswith("Estimate(0.") and "99% CI" in repr(wide)
    assert float(a) == a.value


def test_names_and_codes_give_the_same():
    votes = cw.Votes.from_records([("x", 1, "cat"), ("x", 2, "cat"), ("y", 1, "dog"), ("y", 2, "cat"), ("y", 3, "dog")])
    c = cw.aggregate(votes, "majority")
    assert metrics.accuracy(c, {"x": "cat", "y": "cat"}).value == 0.5
    assert set(metrics.accuracy_per_class(c, {"x": "cat", "y": "dog"})) == {"cat", "dog"}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: metrics.accuracy(Q, np.array([0, 1])), InputError, "N x K probabilities"),
        (lambda: metrics.accuracy(Q, np.array([0.0, 1.0, 1.0, 1.0])), InputError, "integer class codes"),
        (lambda: metrics.accuracy(Q, np.array([0, 1, 2, 3])), InputError, "class code 3"),
        (lambda: metrics.accuracy(Q, np.full(4, -1)), InputError, "nothing to measure"),
        (lambda: metrics.accuracy(Q, Y, level=95), ParameterError, "above 0 and below 1"),
        (lambda: metrics.accuracy(Q, Y, resamples=0), ParameterError, "at least 1"),
        (lambda: metrics.log_loss(Q, Y, floor=0), ParameterError, "floor"),
        (lambda: metrics.calibration_error(Q, Y, bins=0), ParameterError, "bins"),
        (lambda: metrics.confusion_error(np.eye(2), np.eye(2)), InputError, "M x K x K"),
    ],
)
def test_wrong_arguments_are_explained(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_results_of_other_items_or_annotators_are_not_compared():
    crowds = [cw.simulate.one_coin(30, n_annotators=4, random_state=seed).votes for seed in (0, 1)]
    renamed = [replace(crowds[1], items=crowds[1].items + 30), replace(crowds[1], annotators=np.array(list("wxyz")))]
    results = [cw.aggregate(votes, "dawid-skene") for votes in (crowds[0], renamed[1])]
    for metric in (metrics.manhattan, metrics.wasserstein, metrics.cross_entropy):
        with pytest.raises(InputError, match="Expected both with the same items and found 0, 1, 2"):
            metric(results[0], renamed[0])
    with pytest.raises(InputError, match="Expected both with the same annotators and found 'a0', 'a1'"):
        metrics.confusion_error(*results)


def test_grades_count_by_the_order_that_the_fit_was_given():
    rng, grades = np.random.default_rng(0), ["low", "medium", "high"]
    truth = rng.integers(0, 3, 60)
    shift = np.where(rng.random((60, 5)) < 0.4, rng.choice([-1, 1], (60, 5)), 0)
    names = np.array(grades)[np.clip(truth[:, None] + shift, 0, 2)]
    votes = cw.Votes.from_records([(n, f"a{m}", names[n, m]) for n in range(60) for m in range(5)])
    consensus = cw.aggregate(votes, "ordinal-dawid-skene", order=grades)
    known = {n: grades[k] for n, k in enumerate(truth.tolist())}
    labels = np.array([grades.index(label) for label in consensus.labels])
    assert metrics.mae(consensus, known).value == np.abs(labels - truth).mean() > 0.0
    assert metrics.spearman(consensus, known).value == metrics.spearman(labels, truth).value


def test_fewer_than_ten_items_have_no_interval():
    q, y = random(10)
    for metric in (metrics.accuracy, metrics.log_loss, metrics.brier, metrics.calibration_error):
        assert metric(q, y).has_interval
        few = metric(q[:9], y[:9])
        assert np.isnan([few.low, few.high]).all() and not few.has_interval and few.n == 9
        assert few == metric(q[:9], y[:9])  # NaN and all
        assert "no 95% CI: fewer than 10, n=9" in repr(few)


def test_a_share_of_all_items_has_the_exact_interval():
    from scipy.stats import binomtest

    q, y = np.tile([[0.8, 0.2]], (40, 1)), np.zeros(40, dtype=int)
    for truth, right in ((y, 40), (1 - y, 0)):
        found, exact = metrics.accuracy(q, truth), binomtest(right, 40).proportion_ci(0.95)
        assert (found.value, found.low, found.high) == pytest.approx((right / 40, exact.low, exact.high))
    assert repr(metrics.brier(q, y)) == "Estimate(0.080, no 95% CI: all alike, n=40)"


class TestSoftLabels:
    def test_by_hand_and_by_scipy(self):
        from scipy.stats import wasserstein_distance

        rng = np.random.default_rng(0)
        q = rng.dirichlet(np.ones(4), size=30)
        votes = cw.simulate.one_coin(30, n_annotators=7, n_classes=4, random_state=0).votes
        p = votes.shares()
        assert cw.metrics.manhattan(q, votes).value == pytest.approx(np.abs(q - p).sum(axis=1).mean())
        assert cw.metrics.cross_entropy(q, p).value == pytest.approx(-(p * np.log(q)).sum(axis=1).mean())
        moved = [wasserstein_distance(range(4), range(4), a, b) for a, b in zip(q, p, strict=True)]
        assert cw.metrics.wasserstein(q, votes).value == pytest.approx(np.mean(moved))
        assert cw.metrics.manhattan(p, votes).value == 0.0

    def test_items_without_votes_are_left_out_and_shapes_are_checked(self):
        votes = cw.Votes.from_codes(
            [0, 0, 2], [0, 1, 0], [0, 1, 1], items=range(3), annotators=range(2), classes=range(2)
        )
        q = np.full((3, 2), 0.5)
        assert cw.metrics.manhattan(q, votes).value == pytest.approx(0.5) and cw.metrics.manhattan(q, votes).n == 2
        with pytest.raises(InputError, match="votes on the N items"):
            cw.metrics.manhattan(q[:2], votes)
        with pytest.raises(InputError, match="sum to one"):
            cw.metrics.wasserstein(q, q * 0.5)
