"""Votes foretold: against enumeration, against loops, and what a split may and may not do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

import crowdwise as cw
from brute import enumerate_truths, rows_of
from crowdwise.core import em, predictive
from crowdwise.core.em import Params, Part
from crowdwise.core.numerics import winners


def tiny(seed=0, weighted=False):
    """Five items, four annotators, three classes, some pairs missing; and parameters."""
    rng = np.random.default_rng(seed)
    pairs = [(n, m) for n in range(5) for m in range(4) if (n + m) % 4]
    item, who = np.array(pairs).T
    votes = cw.Votes.from_codes(
        item, who, rng.integers(3, size=len(item)), items=range(5), annotators=range(4), classes=range(3),
        weight=rng.uniform(0.5, 2.0, len(item)) if weighted else None,
    )  # fmt: skip
    theta = rng.dirichlet(np.ones(3) + 2 * np.eye(3)[rng.integers(3)], size=(4, 3))
    pi = rng.dirichlet(np.full(3, 4.0))
    params = Params(np.log(theta.transpose(0, 2, 1)).reshape(-1, 3), np.log(pi)[None])
    return votes, theta, pi, params


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_vote_given_the_others_is_a_ratio_of_two_enumerations(weighted, known):
    votes, theta, pi, params = tiny(weighted=weighted)
    gold = np.array([-1, 2, -1, -1, 0], dtype=np.int32) if known else None
    found = predictive.leave_one_out_scores(params, votes, gold)
    rows = rows_of(votes)
    _, everything = enumerate_truths(rows, theta, pi, 5, gold=gold)
    expected = []
    for n, m, label, w in rows:
        if known and gold[n] >= 0:
            expected.append(w * np.log(theta[m, gold[n], label]))
            continue
        rest = [row for row in rows if row != (n, m, label, w)]
        expected.append(everything - enumerate_truths(rest, theta, pi, 5, gold=gold)[1])
    assert np.allclose(found.log_p, expected)
    assert np.allclose(found.weight, votes.weights)
    assert np.array_equal(found.item, votes.item)


def test_a_prior_per_item_counts():
    votes, theta, pi, params = tiny(3)
    prior = np.random.default_rng(1).dirichlet(np.ones(3), 5)
    found = predictive.leave_one_out_scores(params, votes, None, np.log(prior))
    rows = rows_of(votes)
    _, everything = enumerate_truths(rows, theta, pi, 5, item_prior=prior)
    _, rest = enumerate_truths(rows[1:], theta, pi, 5, item_prior=prior)
    assert np.isclose(found.log_p[0], everything - rest)


def test_all_votes_of_an_annotator_on_an_item_are_left_out_together():
    """Else a vote would be foretold by its own copy; a doubled vote and one of weight two are the same."""
    votes, _, _, params = tiny()
    double = cw.Votes.from_codes(
        np.repeat(votes.item, 2), np.repeat(votes.annotator, 2), np.repeat(votes.label, 2), items=range(5),
        annotators=range(4), classes=range(3), on_duplicate="all",
    )  # fmt: skip
    heavy = cw.Votes.from_codes(
        votes.item, votes.annotator, votes.label, items=range(5), annotators=range(4), classes=range(3),
        weight=np.full(votes.n_votes, 2.0),
    )  # fmt: skip
    a, b = predictive.leave_one_out_scores(params, double), predictive.leave_one_out_scores(params, heavy)
    assert np.allclose(a.log_p, b.log_p) and np.array_equal(a.weight, b.weight)


def test_an_item_of_one_annotator_is_not_foretold():
    votes = cw.Votes.from_records([("a", "x", 0), ("b", "x", 1), ("b", "y", 1)])
    params = Params(np.log(np.full((4, 2), 0.5)), np.log([[0.5, 0.5]]))
    assert set(votes.items[predictive.leave_one_out_scores(params, votes).item].tolist()) == {"b"}
    told = predictive.leave_one_out_scores(params, votes, np.array([0, -1], dtype=np.int32))
    assert set(votes.items[told.item].tolist()) == {"a", "b"}


def test_folds_do_not_follow_the_order_of_items():
    votes = cw.simulate.dirichlet(200, n_annotators=40, n_classes=4, votes_per_item=5, random_state=0).votes
    fold = dict(zip(votes.items.tolist(), predictive.item_folds(votes, 5).tolist(), strict=True))
    other = votes[np.random.default_rng(0).permutation(200)]
    assert fold == dict(zip(other.items.tolist(), predictive.item_folds(other, 5).tolist(), strict=True))
    assert set(np.bincount(list(fold.values())).tolist()) == {40}


def test_a_split_leaves_out_its_share_of_pairs_and_every_item_keeps_one():
    votes = cw.simulate.dirichlet(3000, n_annotators=30, votes_per_item=0.1, random_state=1).votes
    mask = predictive.split_pairs(votes, 0.2, np.random.default_rng(0))
    rest = np.bincount(votes.item[~mask], minlength=len(votes))
    assert (rest >= 1).all()
    several = np.diff(votes.indptr)[votes.item] > 1
    assert not mask[~several].any()
    assert abs(mask[several].mean() - 0.2) < 0.02
    most = predictive.split_pairs(votes, 0.95, np.random.default_rng(0))
    assert (np.bincount(votes.item[~most], minlength=len(votes)) == 1).mean() > 0.9
    double = cw.Votes.from_codes(
        np.repeat(votes.item, 2), np.repeat(votes.annotator, 2), np.repeat(votes.label, 2), on_duplicate="all",
        items=votes.items, annotators=votes.annotators, classes=votes.classes,
    )  # fmt: skip
    pairs = predictive.split_pairs(double, 0.3, np.random.default_rng(2)).reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()


def test_the_read_out_and_what_it_foretells_by_loops():
    votes = cw.simulate.dirichlet(60, n_annotators=6, votes_per_item=4, random_state=2).votes
    q = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    theta = predictive.read_out(votes, q)
    assert np.allclose(theta.sum(axis=1), 1.0)
    hard = em.statistics(Part.of(votes), winners(q)).table()
    crowd = (hard.sum(axis=0) + 0.01) / (hard.sum(axis=0) + 0.01).sum(axis=0)
    counts = np.zeros((6, 3, 3))
    for n, m, label, w in rows_of(votes):
        counts[m, label] += w * q[n]
    # theta is on the line from the counts to the crowd's matrix, the same distance for everybody, measured in votes
    total = counts.sum(axis=1, keepdims=True)
    strength = (counts - theta * total) / (theta - crowd)
    assert np.allclose(strength, np.median(strength), rtol=1e-6)
    p = predictive.predict_held_out(theta, q, votes)
    for s, (n, m, label, _) in enumerate(rows_of(votes)):
        assert np.isclose(p[s, label], sum(q[n, k] * theta[m, label, k] for k in range(3)))
    assert np.allclose(p.sum(axis=1), 1.0)


def test_paired_differences_have_the_error_they_say():
    """Items are the units: over many simulated sets, the interval holds the mean about 95 times in 100."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        weight = rng.integers(1, 5, 150).astype(float)
        common = rng.normal(0.0, 1.0, 150)  # votes on an item move together
        gain = weight * (0.3 + common) + rng.normal(0.0, 0.5, 150)
        mean, error = predictive.paired(gain, weight)
        held += abs(mean - 0.3) < 1.96 * error
    assert 360 <= held <= 394
    assert predictive.paired(np.zeros(3), np.zeros(3)) == (0.0, float("inf"))
    assert predictive.paired(np.array([1.0, 0.0]), np.array([2.0, 0.0])) == (0.5, float("inf"))


def test_long_items_do_not_underflow():
    rng = np.random.default_rng(0)
    votes = cw.Votes.from_dense(rng.integers(0, 2, (2, 3000)))
    theta = rng.dirichlet(np.ones(2), size=(3000, 2))
    params = Params(np.log(theta.transpose(0, 2, 1)).reshape(-1, 2), np.log([[0.5, 0.5]]))
    found = predictive.leave_one_out_scores(params, votes)
    assert np.isfinite(found.log_p).all()
    own = params.log_score.reshape(-1, 2, 2)[votes.annotator, votes.label]
    first = votes.item == 0
    logit = own[first].sum(axis=0) - own[0]
    expected = logsumexp(logit + own[0]) - logsumexp(logit)
    assert np.isclose(found.log_p[0], expected)
