"""Comparison without truth: what wins on whose data, figures by other means, checks that find what is there."""

from __future__ import annotations

import json

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core import predictive
from crowdwise.errors import InputError, ParameterError
from crowdwise.trust import method_comparison
from crowdwise.trust import posterior_checks as predictive_checks
from crowdwise.trust.method_comparison import calibration_error, compare, reliability_sums, shares_of

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def crowd(seed=0, n=400, K=3, M=15, r=5):
    return cw.simulate.dirichlet(n, n_annotators=M, n_classes=K, votes_per_item=r, random_state=seed)


@pytest.fixture(scope="module")
def found():
    sim = crowd()
    return cw.compare(sim.votes, ["majority", "one-coin", "dawid-skene"], truth=sim.truth, repeats=3), sim


# -------------------------------------------------------------------- the table


def test_the_best_comes_first_and_the_rest_behind_it(found):
    result, _ = found
    assert set(result.methods) == {"majority", "one-coin", "dawid-skene"}
    assert result.methods[0] == "dawid-skene" and result.methods[-1] == "majority"
    assert (np.diff(result.score) <= 0).all()
    assert np.allclose(result.behind, result.score[0] - result.score)
    assert result.behind[0] == result.low[0] == result.high[0] == 0.0
    assert (result.low[1:] < result.behind[1:]).all() and (result.behind[1:] < result.high[1:]).all()
    assert "dawid-skene" in result.close and "majority" not in result.close


def test_scores_by_hand():
    """The same splits, fitted and read out here, one vote at a time."""
    sim = crowd(n=80)
    votes = sim.votes
    result = compare(votes, {"a": cw.DawidSkene()}, repeats=2, share=0.3, replicates=0, random_state=5)
    rng = np.random.default_rng(5)
    total, count = 0.0, 0
    for _ in range(2):
        mask = predictive.split_pairs(votes, 0.3, rng)
        seen = votes.select(~mask)
        q = cw.DawidSkene().fit(seen).consensus_.posterior
        theta = predictive.read_out(seen, q)
        for s in np.flatnonzero(mask).tolist():
            n, m, label = votes.item[s], votes.annotator[s], votes.label[s]
            total += np.log(sum(q[n, k] * theta[m, label, k] for k in range(3)))
            count += 1
    assert np.isclose(result.score[0], total / count)
    assert result.n_held_out == count / 2


def test_agreement_and_accuracy_are_those_of_the_whole_fits(found):
    result, sim = found
    labels = {key: cw.aggregate(sim.votes, key, random_state=0).label_codes for key in result.methods}
    for i, a in enumerate(result.methods):
        for j, b in enumerate(result.methods):
            assert np.isclose(result.agreement[i, j], (labels[a] == labels[b]).mean())
    expected = [cw.aggregate(sim.votes, key, random_state=0).score(sim.truth) for key in result.methods]
    assert np.allclose(result.accuracy, expected)


def test_truth_changes_nothing_but_its_column():
    sim = crowd(n=100)
    told = cw.compare(sim.votes, ["majority", "wawa"], truth=sim.truth, repeats=2, replicates=5)
    bare = cw.compare(sim.votes.with_truth(None), ["majority", "wawa"], repeats=2, replicates=5)
    assert bare.accuracy is None and "accuracy" not in bare.to_frame().columns
    assert np.array_equal(told.score, bare.score)
    assert told.checks == bare.checks


def test_a_model_wins_on_its_own_data():
    wins = 0
    for seed in range(3):
        sim = cw.simulate.one_coin(
            600, n_annotators=150, n_classes=5, a=3.0, b=2.0, votes_per_item=4, random_state=seed
        )
        result = cw.compare(sim.votes, ["one-coin", "dawid-skene", "majority"], repeats=2, replicates=0)
        wins += result.methods[0] == "one-coin"
    assert wins == 3


def test_the_order_of_methods_and_models_as_handed_over_do_not_matter():
    sim = crowd(n=100)
    model = cw.OneCoin()
    a = compare(sim.votes, {"x": model, "y": cw.MajorityVote()}, repeats=2, replicates=0)
    b = compare(sim.votes, {"y": cw.MajorityVote(), "x": model}, repeats=2, replicates=0)
    assert a.methods == b.methods and np.array_equal(a.score, b.score)
    assert not hasattr(model, "consensus_"), "models are copied, not fitted"


def test_intervals_hold_what_more_items_say():
    """The difference on many items lies in the interval from a quarter of them, about 19 times in 20."""
    held = 0
    for seed in range(12):
        sim = cw.simulate.dirichlet(1200, n_annotators=12, n_classes=3, votes_per_item=5, random_state=seed)
        big = cw.compare(sim.votes, ["majority", "one-coin"], repeats=2, replicates=0)
        small = cw.compare(sim.votes[:300], ["majority", "one-coin"], repeats=2, replicates=0)
        at = small.methods.index("majority"), big.methods.index("majority")
        spread = np.hypot(small.high[at[0]] - small.behind[at[0]], big.high[at[1]] - big.behind[at[1]])
        held += abs(small.behind[at[0]] - big.behind[at[1]]) < 1.25 * spread  # fewer votes also make poorer matrices
    assert held >= 10


def test_frames_and_json(found):
    result, _ = found
    table = result.to_frame("methods", kind="polars")
    assert table.columns == ["method", "score", "behind", "behind_low", "behind_high", "calibration_error", "seconds",
                             "score_error", "accuracy"]  # fmt: skip
    assert result.to_frame("agreement", kind="polars").shape == (3, 4)
    assert result.to_frame("reliability", kind="polars").shape == (30, 6)
    assert result.to_frame("checks", kind="polars").shape == (12, 5)
    with pytest.raises(ParameterError, match="'methods', 'agreement'"):
        result.to_frame("people")
    facts = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert facts["best"] == "dawid-skene" and len(facts["checks"]) == 12
    assert repr(result).startswith("Comparison(dawid-skene -0.")


# -------------------------------------------------------------------- calibration


def test_reliability_by_hand():
    p = np.array([[0.55, 0.45], [0.58, 0.42], [0.1, 0.9], [0.0, 1.0]])
    table = shares_of(reliability_sums(p, np.array([0, 1, 1, 1]), np.array([1.0, 1.0, 2.0, 1.0])))
    assert table[5].tolist() == pytest.approx([2.0, 0.565, 0.5])
    assert table[9].tolist() == pytest.approx([3.0, (1.8 + 1.0) / 3, 1.0])
    assert np.isnan(table[0, 1])
    assert np.isclose(calibration_error(table), (2 * 0.065 + 3 * (1 - 2.8 / 3)) / 5)


def test_a_right_model_is_calibrated():
    sim = cw.simulate.dirichlet(3000, n_annotators=12, n_classes=3, votes_per_item=6, random_state=0)
    result = cw.compare(sim.votes, ["dawid-skene", "majority"], repeats=2, replicates=0)
    error = dict(zip(result.methods, result.calibration, strict=True))
    assert error["dawid-skene"] < 0.02
    assert error["majority"] > error["dawid-skene"]


# -------------------------------------------------------------------- checks


def p_values(votes, key, replicates=99):
    result = cw.compare(votes, [key], repeats=1, replicates=replicates)
    return {check.name: check.p_value for check in result.checks[0]}


def test_statistics_by_loops():
    sim = crowd(n=30, M=6, r=4)
    votes, c = sim.votes, cw.aggregate(sim.votes, "dawid-skene")
    q, theta = c.posterior, c.confusion.transpose(0, 2, 1)
    state = predictive_checks._State.of(votes, q, theta)
    found = dict(zip(predictive_checks.CHECKS, state.statistics(votes.label), strict=True))
    differ, uneven, agree, expected, variance, common = [], 0.0, {}, {}, {}, {}
    for n in range(30):
        rows = range(votes.indptr[n], votes.indptr[n + 1])
        seen = hoped = 0.0
        for a in rows:
            for b in rows:
                if a < b:
                    i, j = sorted((int(votes.annotator[a]), int(votes.annotator[b])))
                    same = votes.label[a] == votes.label[b]
                    p = sum(q[n, k] * theta[i, l, k] * theta[j, l, k] for k in range(3) for l in range(3))  # noqa: E741
                    differ.append(not same)
                    seen, hoped = seen + (not same), hoped + 1 - p
                    agree[i, j] = agree.get((i, j), 0) + same
                    expected[i, j] = expected.get((i, j), 0) + p
                    variance[i, j] = variance.get((i, j), 0) + p * (1 - p)
                    common[i, j] = common.get((i, j), 0) + 1
        uneven += (seen - hoped) ** 2
    enough = [pair for pair in common if common[pair] >= predictive_checks.LEAST]
    assert np.isclose(found["disagreement"], np.mean(differ))
    assert np.isclose(found["uneven"], uneven)
    z = [(agree[pair] - expected[pair]) ** 2 / variance[pair] for pair in enough]
    assert np.isclose(found["dependence"], np.mean(z))
    labels = np.zeros((6, 3))
    hoped = np.zeros((6, 3))
    for n, m, label in zip(votes.item, votes.annotator, votes.label, strict=True):
        labels[m, label] += 1
        hoped[m] += theta[m] @ q[n]
    assert np.isclose(found["marginals"], ((labels - hoped) ** 2 / (hoped + 0.5)).sum())


def test_a_right_model_passes():
    low = 0
    for seed in range(10):
        p = p_values(crowd(seed, n=300, M=10, r=5).votes, "dawid-skene", replicates=39)
        low += min(p.values()) < 0.05
    assert low <= 3


def test_copiers_are_dependence():
    rng = np.random.default_rng(0)
    sim = crowd(n=400, M=8, r=8)
    label = sim.votes.label.reshape(400, 8).copy()
    same = rng.random(400) < 0.8
    label[same, 1] = label[same, 0]
    p = p_values(cw.Votes.from_dense(label), "dawid-skene")
    assert p["dependence"] <= 0.02


def test_hard_items_are_uneven():
    sim = cw.simulate.difficulty(600, n_annotators=25, n_classes=2, votes_per_item=8,
                                 log_inverse_difficulty=(0.0, 2.0), random_state=0)  # fmt: skip
    assert p_values(sim.votes, "one-coin")["uneven"] <= 0.02


def test_favourite_labels_are_marginals_that_one_coin_misses():
    """Half of the annotators say yes too often, half no: one accuracy fits them all, and their habits not at all."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 400)
    right = np.where((truth[:, None] == 1) == (np.arange(8) < 4), 0.97, 0.65)
    votes = cw.Votes.from_dense(np.where(rng.random((400, 8)) < right, truth[:, None], 1 - truth[:, None]))
    assert p_values(votes, "one-coin")["marginals"] <= 0.02
    assert p_values(votes, "dawid-skene")["marginals"] > 0.5


def test_many_pairs_of_votes_are_sampled(monkeypatch):
    monkeypatch.setattr(predictive_checks, "MOST_PAIRS", 500)
    sim = crowd(n=200)
    votes, q = predictive_checks._sample(sim.votes, np.ones((200, 3)), np.random.default_rng(0))
    assert len(votes) == len(q) == 50
    assert set(p_values(sim.votes, "majority")) == set(predictive_checks.CHECKS)


# -------------------------------------------------------------------- what is refused


def test_what_cannot_be_compared_is_said():
    sim = crowd(n=30)
    with pytest.raises(InputError, match="no item has votes of two annotators"):
        cw.compare(cw.Votes.from_records([(n, n % 3, n % 2) for n in range(9)]), ["majority"])
    with pytest.raises(ParameterError, match="gold-weighted needs gold"):
        cw.compare(sim.votes, ["gold-weighted"])
    with pytest.raises(ParameterError, match="Did you mean 'majority'"):
        cw.compare(sim.votes, ["majorit"])
    with pytest.raises(ParameterError, match="models is empty"):
        cw.compare(sim.votes, [])
    for name, value in (("repeats", 0), ("share", 1.0), ("replicates", -1), ("random_state", -3)):
        with pytest.raises(ParameterError, match=name):
            compare(sim.votes, {"x": cw.MajorityVote()}, **{name: value})
    with pytest.raises(InputError, match="Expected Votes"):
        compare([[0, 1]], {"x": cw.MajorityVote()})


def test_a_method_that_refuses_the_data_is_left_out_with_its_reason():
    votes = crowd(n=60).votes
    result = compare(votes, {"wrong": cw.DawidSkene(prior=-1.0), "right": cw.MajorityVote()}, replicates=0)
    assert result.methods == ("right",)
    assert "prior" in result.problems["wrong"]
    with pytest.raises(InputError, match="None of the methods"):
        compare(votes, {"wrong": cw.DawidSkene(prior=-1.0)}, replicates=0)


def test_all_are_those_that_need_no_truth():
    from crowdwise.api import compared

    assert "gold-weighted" not in compared("all") and len(compared("all")) > 30
    assert compared(["majority", "majority"]) == ["majority"] == compared("majority")


# -------------------------------------------------------------------- many votes


def test_many_votes_need_fewer_splits(monkeypatch):
    votes = crowd(n=100).votes
    assert [method_comparison.how_many(votes, asked) for asked in (None, 1, 9)] == [5, 1, 9]
    monkeypatch.setattr(method_comparison, "MOST_HELD", 1_100)
    assert method_comparison.how_many(votes, None) == 2 and method_comparison.how_many(votes, None, max_votes=100) == 5
    assert compare(votes, {"a": cw.MajorityVote()}, replicates=0).repeats == 2


def test_a_sample_of_the_items_says_how_far_it_may_be_off():
    sim = crowd(n=3000, M=10)
    keys = ["majority", "one-coin"]
    whole = cw.compare(sim.votes, keys, repeats=2, replicates=0)
    assert (whole.n_items, whole.of_items) == (3000, 3000)
    some = [
        cw.compare(sim.votes, keys, truth=sim.truth, repeats=2, replicates=0, max_votes=3000, random_state=seed)
        for seed in range(8)
    ]
    near = 0
    for found in some:
        assert 590 <= found.n_items <= 600 and found.of_items == 3000 and found.n_votes <= 3000
        assert (found.error > 1.5 * whole.error).all() and found.to_dict()["items"] == found.n_items
        near += abs(found.score[0] - whole.score[0]) <= found.error[0]
        near += found.low[1] <= whole.behind[1] <= found.high[1]
    assert near >= 13  # of 16, at a level of 95%
    with pytest.raises(InputError, match="raise max_votes"):
        cw.compare(sim.votes, keys, truth={sim.votes.items[0]: 0}, repeats=1, replicates=0, max_votes=50)
