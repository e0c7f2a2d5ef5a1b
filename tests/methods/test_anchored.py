"""``anchored``: its objective, its two ends, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core import em, priors
from crowdwise.core.em import Part, statistics
from crowdwise.core.vote_parts import VoteParts

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def crowd(seed=0, **options):
    options = {"n_annotators": 60, "n_classes": 8, "votes_per_item": 2, **options}
    return cw.simulate.dirichlet(800, random_state=seed, **options)


def test_without_an_anchor_it_is_dawid_skene_under_the_hierarchical_prior():
    votes = crowd().votes
    anchored = cw.aggregate(votes, "anchored", anchor=0.0)
    plain = cw.aggregate(votes, "dawid-skene", prior="hierarchical")
    assert np.allclose(anchored.posterior, plain.posterior, atol=1e-3)
    assert abs(anchored.objective - plain.objective) < 1e-6


def test_with_nothing_but_the_anchor_matrices_are_read_off_the_vote_shares():
    votes = crowd().votes
    model = cw.Anchored(anchor=1.0).fit(votes)
    held = statistics(Part.of(votes), votes.shares())
    table = held.table() + priors.pseudo_counts("hierarchical", None, votes)
    found = np.exp(model.anchored_params_.log_score).reshape(-1, 8, 8)
    assert np.allclose(found, table / table.sum(axis=1, keepdims=True))
    assert np.allclose(np.exp(model.anchored_params_.log_prior[0]), held.mass / held.mass.sum())


def test_the_last_step_is_taken_without_the_anchor():
    votes = crowd().votes
    model = cw.Anchored(prior=0.7).fit(votes)
    stats, _ = em.expect(Part.of(votes), model.anchored_params_)
    table = stats.table() + 0.7 / 8
    found = model.consensus_.confusion.transpose(0, 2, 1)
    assert np.allclose(found, table / table.sum(axis=1, keepdims=True))


def test_that_step_makes_its_probabilities_honest():
    sim = cw.simulate.dirichlet(20_000, n_annotators=50, n_classes=4, votes_per_item=5, random_state=0)
    model = cw.Anchored().fit(sim.votes)
    _, diluted = em.expect(Part.of(sim.votes), model.anchored_params_, posterior=True)
    error = cw.metrics.calibration_error
    assert error(model.consensus_, sim.truth, resamples=1).value < 0.02
    assert error(diluted, sim.truth, resamples=1).value > 0.02


def test_one_step_mixes_the_counts_of_the_posterior_and_of_the_votes():
    sim = crowd()
    votes, a = sim.votes, 0.3
    model = cw.Anchored(anchor=a, prior=0.7)
    part = Part.of(votes)
    held = statistics(part, votes.shares())
    q = np.random.default_rng(0).dirichlet(np.ones(8), len(votes))
    step = model._family_of(VoteParts.whole(votes)).maximise(em.statistics(part, q))
    mixed = (1 - a) * statistics(part, q).table() + a * held.table() + 0.7 / 8
    assert np.allclose(np.exp(step.log_score).reshape(-1, 8, 8), mixed / mixed.sum(axis=1, keepdims=True))
    mass = (1 - a) * q.sum(axis=0) + a * held.mass
    assert np.allclose(np.exp(step.log_prior[0]), mass / mass.sum())


def test_it_holds_where_plain_em_drifts():
    """One or two votes per item and many classes: the likelihood rises while the labels lose their meaning."""
    gain, over = [], []
    for seed in range(6):
        sim = crowd(seed)
        found, plain, majority = (
            cw.aggregate(sim.votes, key).score(sim.truth) for key in ("anchored", "dawid-skene", "majority")
        )
        gain.append(found - plain)
        over.append(found - majority)
    assert np.mean(gain) > 0.03
    assert min(over) > -0.02
    assert np.mean(over) > -0.005


def test_plain_dawid_skene_is_better_with_many_votes_and_adversaries():
    """What the docs say against it: a crowd half of which answers the wrong way round."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 1500)
    right = np.array([0.95] * 5 + [0.15] * 6)
    label = np.where(rng.random((1500, 11)) < right, truth[:, None], 1 - truth[:, None])
    votes = cw.Votes.from_dense(label, truth=truth.astype(np.int32))
    start = np.where(np.arange(11) < 5, 0.8, 0.4)  # a start that leans the right way, for both
    weight = np.log(start / (1 - start))
    logit = (np.where(label == 1, 1, -1) * weight).sum(axis=1)
    q = np.stack([1 / (1 + np.exp(logit)), 1 / (1 + np.exp(-logit))], axis=1)
    plain = cw.aggregate(votes, "dawid-skene", start=q).score(votes.truth)
    anchored = cw.aggregate(votes, "anchored", start=q).score(votes.truth)
    assert plain > 0.99
    assert plain > anchored


def test_known_truth_moves_the_anchor():
    sim = crowd(n_classes=3, votes_per_item=3)
    gold = np.where(np.arange(800) < 400, sim.truth, -1).astype(np.int32)
    hidden = np.where(gold >= 0, -1, sim.truth).astype(np.int32)
    helped = cw.aggregate(sim.votes, "anchored", gold=gold)
    alone = cw.aggregate(sim.votes, "anchored")
    assert helped.score(hidden) > alone.score(hidden)
    true = sim.parameters["confusion"]
    assert cw.metrics.confusion_error(helped, true).value < cw.metrics.confusion_error(alone, true).value
