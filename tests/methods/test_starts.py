"""Where a fit begins: the votes, a method of moments, a posterior, or an earlier consensus."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.core import starts
from crowdwise.core.em import Part
from crowdwise.errors import ConvergenceWarning, ParameterError
from crowdwise.methods import MOMENT_STARTS

KEYS = [key for key, entry in registry.METHODS.items() if "start" in entry.load().parameters()]
PASSES = {"max_iter": 2}


@pytest.fixture(scope="module")
def crowd():
    return cw.simulate.dirichlet(400, n_annotators=12, n_classes=3, votes_per_item=6, random_state=3)


def test_every_iterated_model_of_the_truth_takes_a_start():
    wanted = {"dawid-skene", "one-coin", "confusion-vector", "fast-dawid-skene", "anchored", "zencrowd", "glad", "irt"}
    assert wanted | {"ibcc", "ebcc", "cbcc", "mace", "mf", "minimax"} <= set(KEYS)


@pytest.mark.parametrize("name", MOMENT_STARTS)
def test_a_method_of_moments_says_more_of_a_crowd_than_its_votes(name, crowd):
    votes = crowd.votes
    q = starts.initial_posterior(name, Part.of(votes), votes, None, 0)
    assert q.shape == (400, 3)
    np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-9)
    right = q[np.arange(400), crowd.truth].mean()
    assert right > starts.gold_weighted(votes, None)[np.arange(400), crowd.truth].mean()


@pytest.mark.parametrize("key", KEYS)
def test_the_start_is_where_the_fit_begins(key, crowd):
    """After two passes the fit still shows where it came from."""
    short = {name: value for name, value in PASSES.items() if name in registry.find(key).load().parameters()}
    found = []
    for start in ("votes", "multispa"):
        model = registry.create(key, start=start, random_state=0, **short)
        with pytest.warns(ConvergenceWarning) if short else pytest.MonkeyPatch.context():
            found.append(model.fit(crowd.votes).consensus_.posterior)
    assert np.isfinite(found[1]).all()
    assert not np.allclose(found[0], found[1], atol=1e-6)


@pytest.mark.parametrize("key", KEYS)
def test_an_unknown_start_is_refused_with_a_suggestion(key, crowd):
    with pytest.raises(ParameterError, match=r"start='spectralds'.*Did you mean 'spectral-ds'"):
        registry.create(key, start="spectralds").fit(crowd.votes)


def test_known_truth_stays_in_force(crowd):
    gold = np.full(400, -1, dtype=np.int32)
    gold[:50] = crowd.truth[:50]
    q = starts.initial_posterior("cnmf", Part.of(crowd.votes, gold), crowd.votes, gold, 0)
    assert (q[np.arange(50), crowd.truth[:50]] == 1.0).all()


@pytest.mark.parametrize("start", ["spectral-ds", "cnmf"])
def test_em_from_moments_finds_the_same_optimum(start, crowd):
    fits = [cw.DawidSkene(start=s, random_state=0).fit(crowd.votes).consensus_ for s in ("votes", start)]
    assert fits[0].objective == pytest.approx(fits[1].objective, abs=0.05)
    assert (fits[0].labels == fits[1].labels).mean() > 0.99


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.full((3, 3), 1 / 3), r"found shape \(3, 3\)"),
        (np.full((400, 3), np.nan), "found a row"),
        (np.full((400, 3), -1 / 3), "found a row"),
        (np.zeros((400, 3)), "found a row"),
    ],
)
def test_errors_about_probabilities_of_items_say_what_is_wrong(values, problem, crowd):
    with pytest.raises(ParameterError, match=rf"400 x 3 probabilities \(items x classes\); {problem}"):
        cw.DawidSkene().fit(crowd.votes, item_prior=values)
    with pytest.raises(ParameterError, match=f"400 x 3 whose rows sum to one; {problem}"):
        cw.DawidSkene(start=values).fit(crowd.votes)
