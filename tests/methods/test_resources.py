"""More classes and annotators than tables over all of them have room for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core import dependence, loop, sparse_coin, vote_sums
from crowdwise.core.loop import Rounds
from crowdwise.data.plain_files import machine_memory
from crowdwise.errors import SizeError
from crowdwise.methods import ds_auto

MANY = """
import numpy as np, crowdwise as cw
rng = np.random.default_rng(0)
N, K = 4_000, 2_000
truth, item = rng.integers(0, K, N), np.repeat(np.arange(N), 5)
label = np.where(rng.random(5 * N) < 0.6, truth[item], rng.integers(0, K, 5 * N))
who = np.concatenate([rng.choice(50, 5, replace=False) for _ in range(N)])
names = {"items": range(N), "annotators": range(50), "label_names": range(K), "classes": range(K)}
votes = cw.Votes.from_codes(item, who, label, **names)
found = cw.aggregate(votes)
found.to_frame(kind="dict"), found.to_frame("annotators", kind="dict")
print(found.score(truth), found.notes[0])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_thousands_of_classes_take_no_gigabytes() -> None:
    """2,000 classes and 20,000 votes took 17 GB."""
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    said, memory = done.stdout.strip().splitlines()
    score, _, note = said.partition(" ")
    assert float(score) > 0.9 and "one accuracy per annotator" in note and "2,000 classes" in note
    assert int(memory) / 1024 < 1_000


def crowd(seed: int = 0) -> cw.simulate.Simulated:
    return cw.simulate.one_coin(300, n_annotators=12, n_classes=5, votes_per_item=4, random_state=seed)


@pytest.fixture
def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ds_auto, "MAX_CELLS", 10)


@pytest.mark.usefixtures("few_cells")
def test_the_sparse_model_is_nearly_as_good_as_one_coin() -> None:
    gap = []
    for seed in range(5):
        sim = crowd(seed)
        model = cw.Auto().fit(sim.votes)
        found = model.consensus_
        assert found.converged and found.confusion is None and "12 annotators over 5 classes" in found.notes[0]
        assert np.allclose(found.posterior.sum(axis=1), 1.0)
        assert np.allclose(model.predict_proba(sim.votes), found.posterior, atol=1e-6)
        gap.append(found.score(sim.truth) - cw.aggregate(sim.votes, "one-coin").score(sim.truth))
    assert np.mean(gap) > -0.01


@pytest.mark.usefixtures("few_cells")
def test_a_large_posterior_is_corrected_in_its_place_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = crowd()
    small = cw.aggregate(sim.votes)
    monkeypatch.setattr(dependence, "MAX_DENSE", 10)
    monkeypatch.setattr(dependence, "MAX_TABLE", 100)
    large = cw.aggregate(sim.votes)
    assert large.uncorrected is None and small.uncorrected is not None
    said = large.posterior > 0.0  # what the doubt gives to classes that nobody said is not written
    assert 0.2 < said.mean() < 0.8 and np.allclose(large.posterior[said], small.posterior[said], atol=1e-6)
    assert np.allclose(large.independent_posterior, small.independent_posterior, atol=1e-6)
    assert np.allclose(large.expected_accuracy(), small.expected_accuracy(), atol=1e-6)
    assert large.score(sim.truth) == small.score(sim.truth) and large.notes == small.notes


@pytest.mark.parametrize("shared", [False, True])
def test_what_inputs_say_counts_as_a_vote_in_a_large_posterior_too(shared, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    q, n = rng.dirichlet(np.ones(4), size=50), rng.integers(0, 6, 50).astype(float)
    found = dependence.Dependence(0.3, "gold", 0.04, power=0.8, bias=(0.2, 0.0, -0.3, 0.1), shared_prior=shared)
    small = dependence.correct(q, n, found)
    monkeypatch.setattr(dependence, "MAX_DENSE", 10)
    large = dependence.correct(q, n, found)
    np.testing.assert_allclose(large, small, atol=1e-9)
    np.testing.assert_allclose(dependence.correct_in_place(large, n, found, back=True), q, atol=1e-9)


def test_items_whose_label_is_outvoted_with_and_without_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = cw.simulate.one_coin(200, n_annotators=9, n_classes=4, votes_per_item=4, random_state=1)
    votes = sim.votes.select(sim.votes.item % 7 > 0)
    differs, favourite = vote_sums.outvoted(votes, sim.truth)
    share = votes.shares()
    by_hand = np.flatnonzero((share[np.arange(200), sim.truth] < share.max(axis=1)) & (np.arange(200) % 7 > 0))
    assert differs.tolist() == by_hand.tolist() and len(differs) > 10
    assert favourite.tolist() == share[by_hand].argmax(axis=1).tolist()
    monkeypatch.setattr(vote_sums, "MAX_TALLY", 10)
    again = vote_sums.outvoted(votes, sim.truth)
    assert np.array_equal(again[0], differs) and np.array_equal(again[1], favourite)


@pytest.mark.usefixtures("few_cells")
def test_gold_and_weights_count() -> None:
    sim = crowd()
    gold = np.where(np.arange(300) < 50, (sim.truth + 1) % 5, -1)
    assert (cw.aggregate(sim.votes, gold=gold).label_codes[:50] == gold[:50]).all()
    records = [("a", "x", "p", 9.0), ("a", "y", "q", 1.0), ("b", "x", "p", 1.0), ("b", "y", "p", 1.0)]
    votes = cw.Votes.from_records(records)
    assert cw.aggregate(votes, "auto").labels.tolist() == ["p", "p"]


@pytest.mark.usefixtures("few_cells")
def test_items_without_votes_are_open() -> None:
    sim = crowd()
    found = cw.aggregate(sim.votes.select(sim.votes.item > 0))
    assert np.allclose(found.posterior[0], 0.2)


@pytest.mark.usefixtures("few_cells")
def test_options_that_need_tables_are_not_passed_over() -> None:
    sim = crowd()
    fixed = cw.aggregate(sim.votes, class_prior=[0.2] * 5)
    assert fixed.confusion is not None and np.allclose(fixed.prior, 0.2)


def test_votes_are_judged_by_the_others_as_by_hand() -> None:
    votes = cw.Votes.from_dense([[0, 0, 1], [1, 1, 1]], classes=[0, 1, 2])
    fit = sparse_coin.SparseCoin.fit(votes, None, Rounds(50, votes.n_votes), 0.0)
    b = np.log(fit.skill * 2.0) - np.log1p(-fit.skill)
    others = np.exp([b[1], b[2], 0.0])  # without the first vote on the first item
    assert np.isclose(fit.right[0], others[0] / others.sum())
    z = np.exp([b[0] + b[1], b[2]])
    assert np.allclose(fit.q[:2], z / z.sum())


def test_confusion_matrices_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "free_memory", lambda: 10_000.0)
    for key in ("dawid-skene", "ibcc", "mace"):
        with pytest.raises(SizeError, match="12 annotators over 5 classes"):
            cw.aggregate(crowd().votes, key)


def test_free_memory_is_a_number_below_that_of_the_machine() -> None:
    assert 0 < loop.free_memory() <= machine_memory()


def test_annotators_outside_the_sample_are_left_out_of_the_weighing() -> None:
    """Of a million annotators with a vote each, those of the sample are enough: numbers are the same."""
    sim = cw.simulate.dirichlet(600, n_annotators=500, n_classes=3, votes_per_item=5, random_state=0)
    found = cw.Stacked(max_votes=500).fit(sim.votes)
    assert np.isfinite(list(found.scores_.values())).all() and found.consensus_.score(sim.truth) > 0.4
