"""Gold labels and the crowd as a whole: the maximum, items that do not vouch for themselves, a shared bias, no harm."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import crowdwise as cw
from crowdwise.core import em
from crowdwise.core.dependence import Dependence, corrected
from crowdwise.core.em import Part
from crowdwise.core.gold_regression import calibrated_power, without_own
from crowdwise.core.numerics import softmax
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full


def some_items(seed: int, g: int, K: int, power: float, bias: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Log-posteriors, and truths drawn after a power and a bias."""
    rng = np.random.default_rng(seed)
    logit = np.log(rng.dirichlet(np.full(K, 0.4), g) + 1e-6)
    return logit, np.array([rng.choice(K, p=p) for p in softmax(power * logit + np.array(bias))])


def test_the_power_is_that_of_a_general_optimiser() -> None:
    logit, y = some_items(0, 400, 3, 0.4, [0.0, 0.0, 0.0])

    def loss(p: np.ndarray) -> float:
        return float(-np.log(softmax(p[0] * logit)[np.arange(400), y]).sum() + (p[0] - 1) ** 2 / (2 * 0.4**2))

    best = float(minimize(loss, np.array([1.0]), tol=1e-10).x[0])
    plain = [float(np.log(softmax(a * logit)[np.arange(400), y]).sum()) for a in (1.0, best)]
    back = 1.0 + (best - 1.0) / (1.0 + 10.0 * np.exp(plain[0] - plain[1] + 0.5))
    assert calibrated_power(logit, y) == pytest.approx(back, abs=1e-3) and abs(back - best) < 0.02


def test_labels_that_fit_the_probabilities_leave_the_power_near_one() -> None:
    """A free power is drawn to chance: over crowds whose probabilities are right, its errors shrink to a third."""
    found = [calibrated_power(*some_items(seed, 50, 2, 1.0, [0.0, 0.0])) for seed in range(30)]
    assert np.sqrt(np.mean((np.array(found) - 1.0) ** 2)) < 0.08


def test_a_gold_item_does_not_vouch_for_itself() -> None:
    """As a fit of the counts without the item, one at a time."""
    sim = cw.simulate.dirichlet(40, n_annotators=8, n_classes=3, votes_per_item=4, random_state=0)
    pseudo, pi = np.full((8, 3, 3), 0.5), np.array([0.5, 0.3, 0.2])
    family = ConfusionFamily(full, pseudo, pi)
    q = np.eye(3)[sim.truth]
    stats = em.statistics(Part.of(sim.votes), q)
    table = stats.table() + pseudo
    known = np.array([3, 7, 30])
    found = without_own(sim.votes[known], sim.truth[known], family.maximise(stats), table.sum(axis=1), pseudo)
    for row, n in zip(found, known.tolist(), strict=True):
        others = np.setdiff1d(np.arange(40), n)
        params = family.maximise(em.statistics(Part.of(sim.votes[others]), q[others]))
        assert np.allclose(row, em.expect(Part.of(sim.votes[[n]]), params, posterior=True)[1][0])


def test_nor_does_it_through_the_prior() -> None:
    """One vote an item: only gold items teach, so that the prior is made of them. Expected accuracy is not too high.

    As if votes were independent it is right, and the correction takes little from a single vote.
    """
    for seed in (0, 2, 3):
        sim = cw.simulate.dirichlet(
            1200, n_annotators=60, n_classes=8, diagonal=4.0, rest=0.3, votes_per_item=1, random_state=seed
        )
        gold = np.where(np.arange(1200) < 60, sim.truth, -1).astype(np.int32)
        found, rest = cw.aggregate(sim.votes, gold=gold), slice(60, None)
        assert found.dependence.power < 1.15  # 1.35 with the prior of all labels
        real = (found.label_codes[rest] == sim.truth[rest]).mean()
        assert real > (sim.votes.label[rest] == sim.truth[rest]).mean() - 0.01
        assert -0.05 < found.independent_posterior[rest].max(axis=1).mean() - real < 0.08
        assert -0.05 < found.posterior[rest].max(axis=1).mean() - real < 0.08


def biased(seed: int, share: float) -> tuple[cw.Votes, np.ndarray]:
    """Independent votes, and a share of the items of class 0 that everybody takes for class 1."""
    sim = cw.simulate.one_coin(600, n_annotators=25, n_classes=2, votes_per_item=5, random_state=seed)
    rng = np.random.default_rng(seed)
    return sim.votes, np.where((sim.truth == 1) & (rng.random(600) < share), 0, sim.truth)


def test_a_bias_of_the_whole_crowd_is_found_and_taken_out() -> None:
    gain = []
    for seed in range(3):
        votes, truth = biased(seed, 0.6)
        gold = np.where(np.arange(600) < 100, truth, -1).astype(np.int32)
        alone, helped = cw.aggregate(votes), cw.aggregate(votes, gold=gold)
        bias = helped.dependence.bias
        assert bias[0] - bias[1] > 0.5 and "shifted by class" in helped.dependence.reason
        hidden = np.where(np.arange(600) < 100, -1, truth)
        gain.append(helped.score(hidden) - alone.score(hidden))
        assert np.array_equal(helped.label_codes[100:], helped.posterior[100:].argmax(axis=1))
    assert np.mean(gain) > 0.03 and min(gain) > 0.0


def test_gold_of_an_honest_crowd_does_no_harm() -> None:
    change, loss = [], []
    for seed in range(4):
        votes, truth = biased(seed, 0.0)
        gold = np.where(np.arange(600) < 20, truth, -1).astype(np.int32)
        hidden = np.where(np.arange(600) < 20, -1, truth)
        alone, helped = cw.aggregate(votes), cw.aggregate(votes, gold=gold)
        change.append(helped.score(hidden) - alone.score(hidden))
        p = [np.log(np.maximum(c.posterior[np.arange(20, 600), truth[20:]], 1e-6)).mean() for c in (alone, helped)]
        loss.append(p[0] - p[1])
    assert np.mean(change) > -0.005 and np.mean(loss) < 0.01


def test_methods_of_papers_are_calibrated_too_where_something_is_stated() -> None:
    votes, truth = biased(0, 0.6)
    gold = np.where(np.arange(600) < 100, truth, -1).astype(np.int32)
    found = cw.aggregate(votes, "dawid-skene", gold=gold)
    assert found.dependence.source == "none" and found.shown_dependence.source == "gold"
    real = found.score(np.where(gold < 0, truth, -1))
    at = np.arange(100, 600)
    stated, sure = (q[at, found.label_codes[100:]].mean() for q in (found.corrected_posterior, found.posterior))
    assert abs(stated - real) < 0.1 < sure - real


def test_it_is_saved_and_applied_to_new_items(tmp_path) -> None:
    votes, truth = biased(1, 0.6)
    gold = np.where(np.arange(600) < 100, truth, -1).astype(np.int32)
    model = cw.Auto().fit(votes, gold)
    found = model.consensus_
    again = cw.Consensus.load(found.save(tmp_path / "kept"))
    assert again.dependence == found.dependence and isinstance(again.dependence, Dependence)
    assert np.allclose(model.predict_proba(votes)[100:], found.posterior[100:])
    q = corrected(found.independent_posterior, votes, found.dependence)
    assert np.allclose(q[100:], found.posterior[100:])
