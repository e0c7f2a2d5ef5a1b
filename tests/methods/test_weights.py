"""One weight per annotator: by hand, against plain loops and crowd-kit, on simulated and on real crowds."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crowdwise as cw
from brute import enumerate_truths, rows_of
from crowdwise.core.loop import Progress
from crowdwise.errors import ConvergenceWarning
from crowdwise.methods.weights_agreement import reliability

pytestmark = pytest.mark.filterwarnings("ignore::Warning:crowdkit")
KEYS = ["wawa", "zero-based-skill", "iwmv", "zencrowd"]


def fit(votes, key, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cw.aggregate(votes, key, **params)


def tiny(seed, N=7, M=5, K=3, weighted=False):
    rng = np.random.default_rng(seed)
    present = rng.random((N, M)) < 0.8
    present[0] = True
    item, annotator = np.nonzero(present)
    weight = rng.gamma(2.0, 0.5, len(item)) + 0.05 if weighted else None
    names = {"items": range(N), "annotators": [f"a{m}" for m in range(M)], "classes": range(K)}
    return cw.Votes.from_codes(item, annotator, rng.integers(0, K, len(item)), weight=weight, **names)


def coins(accuracy, N, K, r, seed):
    """Votes of r annotators on each item, who are right with these probabilities, and the truth."""
    rng = np.random.default_rng(seed)
    M, truth = len(accuracy), rng.integers(0, K, N).astype(np.int32)
    annotator = rng.permuted(np.tile(np.arange(M), (N, 1)), axis=1)[:, :r].ravel()
    item = np.repeat(np.arange(N), r)
    wrong = (truth[item] + rng.integers(1, K, N * r)) % K
    label = np.where(rng.random(N * r) < np.asarray(accuracy)[annotator], truth[item], wrong)
    return cw.Votes.from_codes(item, annotator, label, items=range(N), annotators=range(M), classes=range(K)), truth


# ---------------------------------------------------------------- plain loops


def count(votes, weight):
    out = [[0.0] * votes.n_classes for _ in range(len(votes))]
    for n, m, label, w in rows_of(votes):
        out[n][label] += w * weight[m]
    return out


def winners(scores, gold=None):
    """Each item's winning classes with their share."""
    out = []
    for n, row in enumerate(scores):
        top = max(row)
        tied = [k for k, x in enumerate(row) if x >= top - 1e-9 * max(1.0, abs(top))]
        out.append({int(gold[n]): 1.0} if gold is not None and gold[n] >= 0 else {k: 1.0 / len(tied) for k in tied})
    return out


def agreement(votes, h):
    right, total = [0.0] * votes.n_annotators, [0.0] * votes.n_annotators
    for n, m, label, w in rows_of(votes):
        right[m] += w * h[n].get(label, 0.0)
        total[m] += w
    return [r / t for r, t in zip(right, total, strict=True)]


def as_shares(scores):
    return np.array([[x / sum(row) if sum(row) > 0 else 1.0 / len(row) for x in row] for row in scores])


def plain_iwmv(votes, gold=None, first=False, rounds=60):
    """Li and Yu's loop; ``first``: tied items go to the class that stands first."""
    K, weight = votes.n_classes, [1.0] * votes.n_annotators
    for _ in range(rounds):
        h = winners(count(votes, weight), gold)
        if first:
            h = [{min(one): 1.0} for one in h]
        weight = [K * w - 1.0 for w in agreement(votes, h)]
    return np.array(count(votes, weight)), weight


# ---------------------------------------------------------------- wawa


def test_wawa_by_hand():
    """Majority a: x, b: y, c: tied x/y; then ann agrees on 2.5 of 3, bob on 2.5 of 3, cat on 0 of 2."""
    rows = [("a", "ann", "x"), ("a", "bob", "x"), ("a", "cat", "y")]
    rows += [("b", "ann", "y"), ("b", "bob", "y"), ("b", "cat", "x"), ("c", "ann", "x"), ("c", "bob", "y")]
    c = cw.aggregate(cw.Votes.from_records(rows), "wawa")
    assert np.allclose(c.annotator_columns["skill"], [2.5 / 3, 2.5 / 3, 0.0])
    assert np.allclose(c.posterior, [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])


def test_wawa_with_shares_by_hand():
    rows = [(n, m, 1 if (n, m) in {(0, "p"), (1, "q")} else 0) for n in range(4) for m in "pqr"]
    c = cw.aggregate(cw.Votes.from_records(rows), "wawa")  # the majority says 0 of everything
    assert np.allclose(c.annotator_columns["skill"], [3 / 4, 3 / 4, 1.0])
    assert np.allclose(c.posterior[0], [(3 / 4 + 1) / (10 / 4), (3 / 4) / (10 / 4)])


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_wawa_equals_plain_loops(seed, weighted, told):
    votes = tiny(seed, weighted=weighted)
    gold = np.array([0, -1, 2, -1, -1, -1, -1], dtype=np.int32) if told else None
    skill = agreement(votes, winners(as_shares(count(votes, [1.0] * 5)).tolist(), gold))
    found = fit(votes, "wawa", gold=gold)
    assert np.allclose(found.annotator_columns["skill"], skill)
    q = as_shares(count(votes, skill))
    free = slice(None) if gold is None else gold < 0
    assert np.allclose(found.posterior[free], q[free])


def crowd_kit_table(votes):
    return pd.DataFrame({"task": votes.item, "worker": votes.annotator, "label": votes.label})


@pytest.mark.parametrize("seed", range(3))
def test_skills_equal_those_of_crowd_kit_where_nothing_is_tied(seed):
    """Its predict fails on current scikit-learn, its skills and its weighted majority do not."""
    from crowdkit.aggregation import MajorityVote, Wawa, ZeroBasedSkill

    votes = cw.simulate.one_coin(60, n_annotators=9, n_classes=2, votes_per_item=5, random_state=seed).votes
    table = crowd_kit_table(votes)
    for key, peer in (("wawa", Wawa()), ("zero-based-skill", ZeroBasedSkill())):
        found, skills = fit(votes, key), peer.fit(table).skills_.sort_index()
        assert np.allclose(found.annotator_columns["skill"], skills.to_numpy(), atol=1e-6)
        theirs = MajorityVote().fit_predict_proba(table, skills=skills).sort_index()
        assert np.allclose(found.posterior, theirs.to_numpy(), atol=1e-6)


# ---------------------------------------------------------------- zero-based skill


@given(st.integers(0, 10**6))
def test_one_whole_step_of_zero_based_skill_is_wawa(seed):
    votes = tiny(seed)
    assert np.allclose(fit(votes, "zero-based-skill", max_iter=1).posterior, fit(votes, "wawa").posterior)


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_zero_based_skill_keeps_its_schedule(seed, steps):
    votes = tiny(seed)
    skill, rate = np.full(5, 1 / 3 + 1e-5), 0.6
    for t in range(1, steps + 1):
        if t % 3 == 0:
            rate *= 0.25
        skill = skill + rate * (np.array(agreement(votes, winners(as_shares(count(votes, skill)).tolist()))) - skill)
    options = {"rate": 0.6, "rate_factor": 0.25, "rate_steps": 3, "max_iter": steps, "tol": 0.0}
    assert np.allclose(fit(votes, "zero-based-skill", **options).annotator_columns["skill"], skill)


def test_zero_based_skill_stops_where_skills_are_agreements():
    votes = cw.simulate.one_coin(200, n_annotators=12, n_classes=3, votes_per_item=5, random_state=2).votes
    c = cw.aggregate(votes, "zero-based-skill")
    skill = c.annotator_columns["skill"]
    assert c.converged and c.iterations < 100
    assert np.allclose(skill, agreement(votes, winners(as_shares(count(votes, skill)).tolist())), atol=1e-5)


# ---------------------------------------------------------------- iwmv


@given(st.integers(0, 10**6), st.booleans(), st.integers(2, 4))
def test_iwmv_equals_plain_loops(seed, told, K):
    votes = tiny(seed, K=K)
    gold = np.array([0, -1, 1, -1, -1, -1, -1], dtype=np.int32) if told else None
    found = fit(votes, "iwmv", gold=gold, max_iter=60)
    scores, weight = plain_iwmv(votes, gold)
    if found.converged:  # else the labels go round in circles, and where they are cut off is arbitrary
        assert np.allclose(found.annotator_columns["weight"], weight)
        logit = K / (K - 1) * scores
        q = np.exp(logit) / np.exp(logit).sum(axis=1, keepdims=True)
        free = slice(None) if gold is None else gold < 0
        assert np.allclose(found.posterior[free], q[free])


def test_iwmv_weights_are_log_odds_to_first_order():
    for K in (2, 3, 7):
        w = 1 / K + 1e-4
        assert math.isclose(math.log(w * (K - 1) / (1 - w)), K / (K - 1) * (K * w - 1), rel_tol=2e-3)


def test_iwmv_reads_those_below_chance_backwards_and_zencrowd_ignores_them():
    votes, truth = coins([0.85] * 6 + [0.1] * 3, 400, 2, 7, seed=0)
    iwmv, zen, coin = (fit(votes, key) for key in ("iwmv", "zencrowd", "one-coin"))
    assert (iwmv.annotator_columns["weight"][6:] < -0.6).all()
    assert (zen.annotator_columns["reliability"][6:] < 0.02).all()
    assert np.allclose(zen.confusion[6:], 0.5, atol=0.02)  # an unreliable answer says nothing
    assert (coin.confusion[6:, 0, 0] < 0.2).all()  # one-coin reads the same people backwards
    assert iwmv.score(truth) > 0.95 and coin.score(truth) > zen.score(truth) > 0.9


# ---------------------------------------------------------------- zencrowd


@given(st.floats(0, 50), st.floats(0, 50), st.floats(0, 5), st.floats(0, 5), st.integers(2, 6))
def test_the_reliability_is_the_maximum(right, wrong, a, b, K):
    right, wrong, a, b = (0.0 if x < 1e-6 else x for x in (right, wrong, a, b))
    w = reliability(np.array([right]), np.array([wrong]), a, b, K)[0]

    def value(x):
        parts = ((right, x + (1 - x) / K), (wrong, (1 - x) / K), (a, x), (b, 1 - x))
        return sum(n * np.log(np.maximum(p, 1e-300)) for n, p in parts if n > 0)

    assert 0.0 <= w <= 1.0
    if right + wrong + a + b > 0:
        assert value(w) >= value(np.linspace(0.0, 1.0, 2001)).max() - 1e-9


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_zencrowd_equals_enumeration_and_its_objective_its_definition(seed, weighted, told):
    votes = tiny(seed, N=5, M=3, weighted=weighted)
    gold = np.array([2, -1, -1, 0, -1], dtype=np.int32) if told else None
    found = fit(votes, "zencrowd", gold=gold, reliability=0.7, prior_strength=3.0, max_iter=8)
    w = found.annotator_columns["reliability"]
    theta = np.array([x * np.eye(3) + (1 - x) / 3 for x in w])
    q, log_likelihood = enumerate_truths(rows_of(votes), theta, [1 / 3] * 3, 5, gold)
    assert np.allclose(found.confusion, theta)
    assert np.allclose(found.posterior, q, atol=1e-10)
    assert abs(found.log_likelihood - log_likelihood) < 1e-9
    assert abs(found.objective - log_likelihood - (2.1 * np.log(w) + 0.9 * np.log(1 - w)).sum()) < 1e-8
    assert (np.diff(found.trace) >= -1e-9).all()


def test_zencrowd_without_prior_is_one_coin_held_above_chance():
    """With everybody better than chance the two likelihoods have the same maximum; the prior and the floor differ."""
    votes, _ = coins([0.7] * 9, 600, 3, 6, seed=1)
    bare = fit(votes, "zencrowd", prior_strength=0.0, tol=1e-10)
    coin = fit(votes, "one-coin", prior=0.0, class_prior="uniform", tol=1e-10)
    assert np.allclose(bare.confusion, coin.confusion, atol=1e-3)
    assert abs(bare.log_likelihood - coin.log_likelihood) < 1e-3


def test_the_prior_on_reliability_stays_in_force():
    sim = cw.simulate.one_coin(100, n_annotators=40, n_classes=3, votes_per_item=3, random_state=3)
    strong = fit(sim.votes, "zencrowd", reliability=0.6, prior_strength=1e5)
    assert np.allclose(strong.annotator_columns["reliability"], 0.6, atol=1e-3)
    weak, free = (fit(sim.votes, "zencrowd", prior_strength=s).annotator_columns["reliability"] for s in (5.0, 0.0))
    assert weak.std() < free.std()
    assert (weak > 0).all() and (weak < 1).all()


def test_zencrowd_takes_the_class_prior_it_is_given():
    sim = cw.simulate.one_coin(300, n_annotators=9, n_classes=2, votes_per_item=3, prior=[0.9, 0.1], random_state=0)
    assert np.allclose(fit(sim.votes, "zencrowd").prior, 0.5)
    assert fit(sim.votes, "zencrowd", class_prior="learned").prior[0] > 0.8


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("key", KEYS)
def test_the_error_falls_as_votes_come_in(key):
    errors = []
    for r in (3, 7, 15):
        sim = cw.simulate.one_coin(1500, n_annotators=30, n_classes=4, votes_per_item=r, random_state=5)
        errors.append(1.0 - fit(sim.votes, key).score(sim.truth))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


@pytest.mark.parametrize("key", KEYS)
def test_accuracies_are_recovered(key):
    sim = cw.simulate.one_coin(4000, n_annotators=12, n_classes=3, votes_per_item=9, random_state=7)
    columns, accuracy = fit(sim.votes, key).annotator_columns, sim.parameters["accuracy"]
    found = {
        "wawa": lambda: columns["skill"],
        "zero-based-skill": lambda: columns["skill"],
        "iwmv": lambda: (columns["weight"] + 1) / 3,
        "zencrowd": lambda: columns["reliability"] + (1 - columns["reliability"]) / 3,
    }[key]()
    assert np.abs(found - accuracy).max() < 0.06


@pytest.mark.parametrize("key", KEYS)
def test_weights_beat_the_majority_where_skill_differs(key):
    gains = []
    for seed in range(5):
        votes, truth = coins([0.9] * 5 + [0.4] * 10, 600, 3, 6, seed)
        gains.append(fit(votes, key).score(truth) - cw.aggregate(votes, "majority").score(truth))
    assert min(gains) > 0.02


@pytest.mark.parametrize("key", KEYS)
def test_known_truth_teaches_who_is_right(key):
    """Three colluders outvote two honest annotators until some truths are told."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300).astype(np.int32)
    table = np.stack(
        [truth, np.where(rng.random(300) < 0.95, truth, 1 - truth)] + [rng.integers(0, 2, 300)] * 3, axis=1
    )
    votes = cw.Votes.from_dense(table)
    told = np.where(np.arange(300) < 200, truth, -1).astype(np.int32)
    rest = np.where(np.arange(300) < 200, -1, truth)
    assert fit(votes, key).score(rest) < 0.75
    weights = next(iter(fit(votes, key, gold=told).annotator_columns.values()))
    assert weights[:2].min() > weights[2:].max()


@pytest.mark.parametrize("key", ["zero-based-skill", "iwmv", "zencrowd"])
def test_a_callback_hears_of_every_round(key):
    heard: list[Progress] = []
    votes = cw.simulate.one_coin(200, n_annotators=12, n_classes=3, votes_per_item=4, random_state=2).votes
    c = cw.aggregate(votes, key, callback=heard.append)
    assert heard[-1].iteration <= c.iterations and len(heard) >= 2


def test_a_loop_that_is_cut_off_says_so():
    votes = cw.simulate.one_coin(300, n_annotators=30, n_classes=3, votes_per_item=4, random_state=2).votes
    for key in ("iwmv", "zero-based-skill"):
        with pytest.warns(ConvergenceWarning, match="stopped after 1 iterations"):
            assert not cw.aggregate(votes, key, max_iter=1).converged


# ---------------------------------------------------------------- real crowds


def votes_of(folder):
    return cw.read_dataset(folder, on_duplicate="all").votes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "accuracy"),
    [("bluebird", 72.22), ("web", 84.43), ("rte", 92.88), ("dog", 83.02), ("d_product", 92.74), ("music_genre", 80.00)],
)
def test_iwmv_on_real_crowds(name, accuracy, real):
    votes = votes_of(real(name))
    assert abs(100 * fit(votes, "iwmv").score(votes.truth) - accuracy) < 0.02


@pytest.mark.slow
def test_the_published_errors_of_iwmv_are_those_with_ties_to_the_first_class(real):
    """15.04 % on web and 27.78 % on bluebird in the M3V paper; with ties split, as here, web has 15.57 %."""
    for name, error in (("web", 15.04), ("bluebird", 27.78)):
        votes = votes_of(real(name))
        scores, _ = plain_iwmv(votes, first=True, rounds=25)
        known = votes.truth >= 0
        right = scores[known].argmax(axis=1) == votes.truth[known]
        assert abs(100 * (1 - right.mean()) - error) < 0.02


@pytest.mark.slow
def test_zencrowd_on_real_crowds(real):
    """Published for D_Product: 92.80, of an implementation that is one-coin with a uniform class prior."""
    votes = votes_of(real("d_product"))
    assert abs(100 * fit(votes, "zencrowd").score(votes.truth) - 92.80) < 1.0
    assert abs(100 * fit(votes, "one-coin", class_prior="uniform").score(votes.truth) - 92.80) < 0.05
    votes = votes_of(real("d_sentiment"))
    assert abs(100 * fit(votes, "zencrowd").score(votes.truth) - 95.10) < 0.5
    votes = votes_of(real("bluebird"))  # where one-coin follows the majority's mistakes to 72.2 (58.3 with its prior)
    assert 100 * fit(votes, "zencrowd").score(votes.truth) > 76.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wawa", "zero"), [("d_product", 89.7, 89.7), ("d_sentiment", 95.1, 95.4), ("s_adult", 76.6, 76.6)]
)
def test_wawa_on_real_crowds(name, wawa, zero, real):
    """Published by Crowd-Kit for wawa: .897, .951, .766."""
    votes = votes_of(real(name))
    assert abs(100 * fit(votes, "wawa").score(votes.truth) - wawa) < 1.0
    assert abs(100 * fit(votes, "zero-based-skill").score(votes.truth) - zero) < 1.0
