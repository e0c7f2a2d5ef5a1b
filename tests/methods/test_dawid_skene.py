"""The Dawid-Skene family: against enumeration, against crowd-kit, on crowds with known parameters."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crowdwise as cw
from brute import enumerate_truths, objective, rows_of
from crowdwise import registry
from crowdwise.core.em import Part, statistics
from crowdwise.core.numerics import dirichlet_multinomial, maximise_smooth
from crowdwise.core.priors import pseudo_counts
from crowdwise.core.shrinkage import learned_prior, strength
from crowdwise.core.starts import gold_weighted, majority
from crowdwise.errors import ConvergenceWarning, ParameterError
from crowdwise.methods.ds_dawid_skene import full, one_coin, per_class

pytestmark = pytest.mark.filterwarnings("ignore::Warning:crowdkit")
FAMILY = ["dawid-skene", "one-coin", "confusion-vector", "fast-dawid-skene", "anchored"]
TIES = {"dawid-skene": full, "one-coin": one_coin, "confusion-vector": per_class}


def tiny(seed, weighted=False, N=5, M=3, K=3):
    rng = np.random.default_rng(seed)
    present = rng.random((N, M)) < 0.7
    present[0] = True
    item, annotator = np.nonzero(present)
    weight = rng.gamma(2.0, 0.5, len(item)) + 0.05 if weighted else None
    label = rng.integers(0, K, len(item))
    names = {"items": range(N), "annotators": [f"a{m}" for m in range(M)], "classes": range(K)}
    return cw.Votes.from_codes(item, annotator, label, weight=weight, **names)


def fit(votes, key="dawid-skene", **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cw.aggregate(votes, key, **params)


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([0.3, "crowd", "hierarchical"]))
def test_posterior_and_likelihood_equal_enumeration(seed, weighted, gold, prior):
    """Under the fitted parameters, sum over all 3^5 truths: with missing votes, weights, known truths and priors."""
    votes = tiny(seed, weighted)
    truth = np.array([2, -1, -1, 0, -1], dtype=np.int32) if gold else None
    for key in FAMILY:
        found = fit(votes, key, gold=truth, prior=prior, max_iter=8)
        q, log_likelihood = enumerate_truths(rows_of(votes), found.confusion, found.prior, 5, truth)
        assert np.allclose(found.posterior, q, atol=1e-10)
        assert abs(found.log_likelihood - log_likelihood) < 1e-9


@given(st.integers(0, 10**6))
def test_a_prior_per_item_equals_enumeration(seed):
    votes = tiny(seed)
    item_prior = np.random.default_rng(seed).dirichlet(np.ones(3), 5)
    model = cw.DawidSkene(prior=0.5, max_iter=6, tol=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = model.fit(votes, item_prior=item_prior).consensus_
    q, log_likelihood = enumerate_truths(rows_of(votes), found.confusion, found.prior, 5, None, item_prior)
    assert np.allclose(found.posterior, q, atol=1e-10)
    assert abs(found.log_likelihood - log_likelihood) < 1e-9


@pytest.mark.parametrize("key", TIES)
def test_the_maximisation_step_finds_the_maximum(key):
    """No other table of the same shape has a higher expected log-likelihood, however it is nudged."""
    rng = np.random.default_rng(0)
    counts = rng.gamma(1.0, 3.0, (2, 3, 3))
    best = TIES[key](counts)
    assert np.allclose(best.sum(axis=1), 1.0)
    value = (counts * np.log(best)).sum()
    for _ in range(300):
        other = TIES[key](counts * np.exp(rng.normal(0, 0.3, counts.shape)))
        assert (counts * np.log(other)).sum() <= value + 1e-9


@pytest.mark.parametrize("key", TIES)
def test_annotators_without_counts_are_at_chance(key):
    assert np.allclose(TIES[key](np.zeros((1, 4, 4))), 0.25)


def crowdkit_frame(votes):
    table = votes.to_frame("dict")
    return pd.DataFrame({"task": table["item"], "worker": table["annotator"], "label": table["label"]})


@pytest.mark.parametrize("seed", range(3))
def test_equals_crowd_kit_pass_by_pass(seed):
    """Their common setting: soft majority start, no prior, class prior learned, a fixed number of passes."""
    from crowdkit.aggregation import DawidSkene as CrowdKit

    sim = cw.simulate.dirichlet(200, n_annotators=12, n_classes=3, votes_per_item=6, diagonal=3, random_state=seed)
    frame = crowdkit_frame(sim.votes)
    for passes in (1, 3, 10):
        theirs = CrowdKit(n_iter=passes, tol=0).fit(frame)
        ours = fit(sim.votes, prior=1e-12, accelerate=False, max_iter=passes, tol=0.0)
        assert np.allclose(ours.posterior, theirs.probas_.loc[sim.votes.items, sim.votes.classes].to_numpy(), atol=1e-6)
    # Their matrices come from one more maximisation step, so compare with one more pass of ours.
    later = fit(sim.votes, prior=1e-12, accelerate=False, max_iter=11, tol=0.0)
    errors = theirs.errors_
    for m, k, label in itertools.product(range(12), range(3), range(3)):
        assert abs(later.confusion[m, k, label] - errors.loc[(sim.votes.annotators[m], label), k]) < 1e-6


def test_one_coin_reaches_the_optimum_crowd_kit_reaches():
    """crowd-kit normalises its one-coin step differently on the way; both must end at the same fixed point."""
    from crowdkit.aggregation import OneCoinDawidSkene

    sim = cw.simulate.one_coin(150, n_annotators=8, n_classes=3, votes_per_item=6, random_state=1)
    theirs = OneCoinDawidSkene(n_iter=200, tol=1e-12).fit(crowdkit_frame(sim.votes))
    ours = fit(sim.votes, "one-coin", prior=1e-12, tol=1e-12, class_prior="uniform")
    learned = fit(sim.votes, "one-coin", prior=1e-12, tol=1e-12)
    skills = theirs.skills_.loc[sim.votes.annotators].to_numpy()
    gap = min(np.abs(c.confusion[:, 0, 0] - skills).max() for c in (ours, learned))
    assert gap < 0.02


@pytest.mark.parametrize("key", FAMILY)
def test_the_fit_ends_at_a_stationary_point(key):
    """Nudging the parameters of a converged fit cannot raise its objective to first order."""
    sim = cw.simulate.dirichlet(80, n_annotators=8, n_classes=3, votes_per_item=5, random_state=2)
    votes = sim.votes
    model = registry.create(key, prior=0.5, tol=1e-12, max_iter=5000).fit(votes)
    params = model.anchored_params_ if key == "anchored" else model.params_
    theta, pi = np.exp(params.log_score).reshape(8, 3, 3).transpose(0, 2, 1), np.exp(params.log_prior[0])
    pseudo = np.full((8, 3, 3), 0.5 / 3)
    anchored = {"anchor": 0.5, "shares": votes.shares()} if key == "anchored" else {}
    hard = key == "fast-dawid-skene"
    top = objective(votes, theta, pi, pseudo, hard=hard, **anchored)
    tie = TIES.get(key, full)
    rng = np.random.default_rng(0)
    for _ in range(25):
        noise = tie((theta * np.exp(rng.normal(0, 1e-3, (8, 3, 3)))).transpose(0, 2, 1)).transpose(0, 2, 1)
        assert objective(votes, noise, pi, pseudo, hard=hard, **anchored) < top + 1e-6


@pytest.mark.parametrize("key", ["dawid-skene", "one-coin", "confusion-vector"])
def test_parameters_are_recovered_the_better_the_more_data(key):
    make = cw.simulate.one_coin if key == "one-coin" else cw.simulate.dirichlet
    errors = []
    for n in (200, 2000, 20_000):
        sim = make(n, n_annotators=10, n_classes=3, votes_per_item=5, random_state=0)
        found = fit(sim.votes, key)
        errors.append(cw.metrics.confusion_error(found, sim.parameters["confusion"]).value)
    if key == "confusion-vector":  # its errors are spread evenly, the simulated ones are not: compare the diagonals
        assert np.abs(np.einsum("mkk->mk", found.confusion - sim.parameters["confusion"])).mean() < 0.05
    else:
        slope = np.polyfit(np.log([200, 2000, 20_000]), np.log(errors), 1)[0]
        assert slope < -0.7  # squared error falls like 1 / n
        assert errors[-1] < 2e-3


def test_adversaries_are_turned_round_by_confusion_matrices():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 600)
    right = np.array([0.9] * 6 + [0.1] * 4)
    label = np.where(rng.random((600, 10)) < right, truth[:, None], 1 - truth[:, None])
    votes = cw.Votes.from_dense(label, truth=truth.astype(np.int32))
    assert fit(votes).score(votes.truth) > 0.99
    assert np.abs(np.einsum("mkk->m", fit(votes).confusion) / 2 - right).max() < 0.05


# -------------------------------------------------------------------- priors


def test_history_stays_in_force_through_the_whole_fit():
    """The peers' bug: past error matrices used for the first step only. A million past votes must not be forgotten."""
    sim = cw.simulate.one_coin(300, n_annotators=8, n_classes=2, votes_per_item=5, a=8, b=2, random_state=0)
    flips = {"a3": np.array([[0.0, 1e6], [1e6, 0.0]])}
    found = fit(sim.votes, history=flips)
    assert found.confusion[3, 0, 1] > 0.999
    assert found.confusion[3, 1, 0] > 0.999
    said, q = sim.votes.label, found.posterior[sim.votes.item]
    theirs = sim.votes.annotator == 3
    assert (q[theirs, 1 - said[theirs]] > 0.99).all()  # and so the truth is taken to be the other class


def test_history_from_an_earlier_consensus_is_matched_by_name():
    sim = cw.simulate.dirichlet(2000, n_annotators=15, n_classes=3, votes_per_item=4, random_state=3)
    past = fit(sim.votes[:1900])
    today = sim.votes[1900:]
    alone, helped = fit(today), fit(today, history=past)
    true = sim.parameters["confusion"]
    gap = cw.metrics.confusion_error
    assert gap(helped, true).value < 0.2 * gap(alone, true).value
    newcomer = cw.Votes.from_records(
        [("x", "a3", 0), ("x", "new", 1), ("y", "new", 2), ("y", "a4", 2)], classes=[0, 1, 2]
    )
    assert np.isfinite(fit(newcomer, history=past).confusion).all()


def test_pseudo_counts_are_added_as_they_are_given():
    votes = tiny(0)
    table = np.arange(9.0).reshape(3, 3)
    assert np.array_equal(pseudo_counts(table, None, votes)[0], table.T)
    assert np.array_equal(pseudo_counts(np.stack([table] * 3), None, votes)[2], table.T)
    assert np.allclose(pseudo_counts(0.6, None, votes), 0.2)
    both = pseudo_counts(0.6, {"a1": table}, votes)
    assert np.allclose(both[1], 0.2 + table.T)
    assert np.allclose(both[0], 0.2)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"prior": "crwd"}, "Did you mean 'crowd'"),
        ({"prior": np.ones((2, 2))}, "expected a number, 3 x 3"),
        ({"history": {"a0": np.ones((2, 2))}}, "history of annotator 'a0'"),
        ({"class_prior": [0.5, 0.5]}, "expected 3 probabilities"),
        ({"class_prior": {0: 0.5, 7: 0.5}}, "for each of the classes"),
    ],
)
def test_wrong_priors_are_explained(params, text):
    with pytest.raises(ParameterError, match=text):
        cw.aggregate(tiny(0), "dawid-skene", **params)


def test_the_class_prior_is_fixed_uniform_or_learned():
    sim = cw.simulate.dirichlet(
        3000, n_annotators=20, n_classes=3, votes_per_item=5, prior=[0.6, 0.3, 0.1], random_state=0
    )
    assert np.allclose(fit(sim.votes, class_prior="uniform").prior, 1 / 3)
    assert np.allclose(fit(sim.votes, class_prior={0: 6, 1: 3, 2: 1}).prior, [0.6, 0.3, 0.1])
    assert np.abs(fit(sim.votes).prior - [0.6, 0.3, 0.1]).max() < 0.05


def test_the_strength_of_a_learned_prior_recovers_the_spread_of_a_crowd():
    """Rows drawn from Dirichlet(strength * base): the marginal likelihood finds the strength again."""
    rng = np.random.default_rng(0)
    base = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]])
    for true in (3.0, 30.0):
        theta = np.stack([rng.dirichlet(true * row, 300) for row in base], axis=1)
        counts = np.stack([[rng.multinomial(40, row) for row in m] for m in theta]).transpose(0, 2, 1).astype(float)
        table = np.broadcast_to(base.T, counts.shape)
        exact = strength(counts, table)
        assert abs(np.log(exact / true)) < 0.15

        def evidence(t, counts=counts, table=table):
            return dirichlet_multinomial(counts.transpose(0, 2, 1), np.exp(t) * table.transpose(0, 2, 1))

        at = np.log(exact)
        assert evidence(at) >= max(evidence(at - 0.01), evidence(at + 0.01))
        assert abs(np.log(strength(counts, table, quick=True) / exact)) < 0.05


def test_a_smooth_function_is_maximised_in_few_evaluations():
    for top in (-2.9, 0.3, 4.0, 8.7):
        calls = []

        def f(x, top=top, calls=calls):
            calls.append(x)
            return -np.log(np.cosh((x - top) / 2))

        assert maximise_smooth(f, -5.0, 10.0, width=1.0) == pytest.approx(top, abs=0.03)
        assert len(calls) <= 8
    assert maximise_smooth(lambda x: -x, 0.0, 1.0, width=0.1) < 0.1
    assert maximise_smooth(lambda x: -x * x, -1.0, 1.0, width=0.5) == pytest.approx(0.0, abs=1e-12)


def test_like_minded_annotators_are_shrunk_hard_and_mixed_ones_hardly():
    sim = cw.simulate.dirichlet(
        2000, n_annotators=40, n_classes=3, votes_per_item=5, diagonal=60, rest=12, random_state=0
    )
    mixed = cw.simulate.hammer_spammer(2000, n_annotators=40, n_classes=3, votes_per_item=5, random_state=0)
    weight = [
        learned_prior(statistics(Part.of(s.votes), majority(s.votes, None)).table(), "crowd")[0].sum()
        for s in (sim, mixed)
    ]
    assert weight[0] > 3 * weight[1]


def test_smoothing_of_one_vote_per_cell_ruins_sparse_many_class_data_and_the_default_does_not():
    scores = {"default": [], "add one": []}
    for seed in range(4):
        sim = cw.simulate.one_coin(700, n_annotators=44, n_classes=10, a=5, b=3, votes_per_item=4, random_state=seed)
        scores["default"].append(fit(sim.votes).score(sim.truth))
        scores["add one"].append(fit(sim.votes, prior=10.0).score(sim.truth))
    assert np.mean(scores["default"]) > np.mean(scores["add one"]) + 0.03


def test_shrinking_to_the_crowd_helps_where_annotators_have_few_votes():
    plain, crowd, hierarchical = [], [], []
    for seed in range(5):
        sim = cw.simulate.dirichlet(500, n_annotators=100, n_classes=4, votes_per_item=4, random_state=seed)
        for scores, prior in ((plain, 0.01), (crowd, "crowd"), (hierarchical, "hierarchical")):
            scores.append(fit(sim.votes, prior=prior).score(sim.truth))
    assert np.mean(crowd) > np.mean(plain)
    assert np.mean(hierarchical) > np.mean(plain)


def test_history_is_not_drowned_by_a_learned_prior():
    """The strength of the prior is learned from old and new votes: few new ones must not shout down many old."""
    loss = {False: 0.0, True: 0.0}
    for seed in (5, 6, 7):
        sim = cw.simulate.dirichlet(1500, n_annotators=40, n_classes=4, votes_per_item=3, random_state=seed)
        past, today = fit(sim.votes[:1400]), sim.votes[1400:]
        for helped in loss:
            found = fit(today, "anchored", history=past if helped else None)
            loss[helped] += cw.metrics.log_loss(found, today.truth, resamples=1).value
    assert loss[True] < 0.85 * loss[False]


# -------------------------------------------------------------------- known truth


def wrong_way_round(n=1500):
    """Six in ten annotators nearly always name the other class."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, n).astype(np.int32)
    right = np.array([0.9] * 4 + [0.1] * 6)
    label = np.where(rng.random((n, 10)) < right, truth[:, None], 1 - truth[:, None])
    return cw.Votes.from_dense(label), truth


def test_known_truths_turn_a_crowd_that_is_mostly_wrong():
    votes, truth = wrong_way_round()
    gold = np.where(np.arange(1500) < 100, truth, -1).astype(np.int32)
    hidden = np.where(gold >= 0, -1, truth).astype(np.int32)
    assert fit(votes).score(truth) < 0.1
    assert fit(votes, gold=gold).score(hidden) > 0.95


def test_a_single_known_item_turns_nobody():
    sim = cw.simulate.one_coin(300, n_annotators=10, n_classes=3, votes_per_item=5, a=8, b=2, random_state=0)
    gold = np.full(300, -1, dtype=np.int32)
    gold[0] = (sim.truth[0] + 1) % 3  # and a wrong one at that
    agreement = (gold_weighted(sim.votes, gold).argmax(axis=1) == sim.votes.shares().argmax(axis=1)).mean()
    assert agreement > 0.95


# -------------------------------------------------------------------- hard EM, calibration, scale


def test_hard_em_settles_in_a_few_passes():
    sim = cw.simulate.dirichlet(2000, n_annotators=30, n_classes=4, votes_per_item=5, random_state=0)
    hard, soft = fit(sim.votes, "fast-dawid-skene"), fit(sim.votes, accelerate=False)
    assert hard.iterations < soft.iterations
    assert abs(hard.score(sim.truth) - soft.score(sim.truth)) < 0.03


@pytest.mark.parametrize("key", ["dawid-skene", "one-coin", "confusion-vector", "anchored"])
def test_probabilities_are_calibrated_on_simulated_data(key):
    sim = cw.simulate.one_coin(20_000, n_annotators=50, n_classes=3, votes_per_item=5, random_state=0)
    assert cw.metrics.calibration_error(fit(sim.votes, key), sim.truth, resamples=50).value < 0.02


@pytest.mark.parametrize("key", FAMILY)
def test_very_many_annotators_with_one_vote_each(key):
    rng = np.random.default_rng(0)
    N = 20_000
    truth = rng.integers(0, 2, N)
    item = np.repeat(np.arange(N), 5)
    label = np.where(rng.random(5 * N) < 0.7, truth[item], 1 - truth[item])
    votes = cw.Votes.from_codes(item, np.arange(5 * N), label, items=range(N), annotators=range(5 * N), classes=[0, 1])
    assert np.isfinite(fit(votes, key, max_iter=20).posterior).all()
    # One vote tells nothing about an annotator: full matrices need the crowd's to lean on.
    found = fit(votes, key, max_iter=20, prior="crowd")
    assert found.score(truth.astype(np.int32)) > 0.8
