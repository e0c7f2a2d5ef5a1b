"""Methods that estimate skills from pairs, on crowds in which many annotators share few items.

Ten votes on each item in sheets of ten, a few annotators with most votes, some with a favourite label. Two who always
give the same label agree perfectly, and a method built on agreement takes them for perfect.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.methods import skills_precision
from crowdwise.methods.skills_precision import FallsBack, label_evidence

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
KEYS = [key for key, entry in registry.METHODS.items() if entry.family in ("skills", "spectral", "moments")]
PAIRS = [key for key in KEYS if issubclass(registry.METHODS[key].load(), FallsBack)]


@functools.cache
def unequal(seed, N=300, M=60, r=10, sheet=10):
    """Two classes, votes per annotator like 1 / rank^2, a quarter of the annotators with a favourite label."""
    rng = np.random.default_rng(seed)
    busy = 1.0 / (1.0 + rng.permutation(M)) ** 2
    right = rng.beta(9.0, 2.0, (M, 2))
    favourite = rng.random(M) < 0.25
    right[favourite] = np.where(rng.random((M, 1)) < 0.5, [0.97, 0.03], [0.03, 0.97])[favourite]
    truth = (rng.random(N) < 0.56).astype(np.int32)
    who = np.array([rng.choice(M, r, replace=False, p=busy / busy.sum()) for _ in range(N // sheet)])
    annotator = np.repeat(who, sheet, axis=0).ravel()
    item = np.repeat(np.arange(N), r)
    label = np.where(rng.random(N * r) < right[annotator, truth[item]], truth[item], 1 - truth[item])
    _, annotator = np.unique(annotator, return_inverse=True)
    names = [f"w{m}" for m in range(annotator.max() + 1)]
    return cw.Votes.from_codes(item, annotator, label, items=range(N), annotators=names, classes=range(2)), truth


SEEDS = (0, 3, 9)


def accuracy(key, seed, **params):
    votes, truth = unequal(seed)
    return float((cw.aggregate(votes, key, **params).label_codes == truth).mean())


@pytest.mark.parametrize("key", KEYS)
def test_no_method_is_far_under_the_majority(key):
    for seed in SEEDS:
        assert accuracy(key, seed) > accuracy("majority", seed) - 0.03


@pytest.mark.parametrize("key", PAIRS)
def test_the_fallback_counts_all_alike_and_says_so(key, monkeypatch):
    votes, _ = unequal(3)
    monkeypatch.setattr(skills_precision, "worse_than_majority", lambda *_: True)
    model = registry.create(key).fit(votes)
    found = model.consensus_
    majority = cw.aggregate(votes, "majority")
    tie = majority.posterior.max(axis=1) < 0.5 + 1e-9
    assert (found.label_codes == majority.label_codes)[~tie].all()
    assert found.notes == [skills_precision.NOTE]
    columns = found.annotator_table.to_dict()
    name = next(name for name in ("skill", "balanced_accuracy", "weight") if name in columns)
    assert np.ptp(np.asarray(columns[name], dtype=float)) < 1e-12
    assert np.allclose(model.predict_proba(votes), found.posterior)


@pytest.mark.parametrize("key", PAIRS)
def test_without_the_fallback_some_are_lost(key):
    """What the fallback is for: seed 3 of these crowds, with .95 for the majority (sml and kos-svd hold)."""
    raw = accuracy(key, 3, fall_back=False)
    assert (raw > 0.9) == (key in ("sml", "kos-svd"))
    assert (cw.aggregate(unequal(3)[0], key).notes != []) == (key not in ("sml", "kos-svd"))


def test_crowds_with_enough_common_items_keep_their_skills():
    crowd = cw.simulate.one_coin(400, n_annotators=15, votes_per_item=8, random_state=0)
    for key in PAIRS:
        assert cw.aggregate(crowd.votes, key).notes == []


def test_the_evidence_of_labels_is_the_integral_over_confusion_matrices():
    """Against a Monte Carlo mean over matrices and shares drawn from their priors."""
    votes = cw.Votes.from_records([(0, "a", 0), (0, "b", 0), (1, "a", 1), (1, "b", 0), (2, "a", 1)])
    label, rng, draws = np.array([0, 1, 1]), np.random.default_rng(0), 400_000
    total = np.ones(draws)
    share = rng.dirichlet(np.ones(2), draws)
    for k in label:
        total *= share[:, k]
    for m in range(2):
        rows = np.stack([rng.dirichlet(1.0 + np.eye(2)[k], draws) for k in range(2)], axis=1)
        for n, said in zip(votes.item[votes.annotator == m], votes.label[votes.annotator == m], strict=True):
            total *= rows[:, label[n], said]
    assert label_evidence(votes, label) == pytest.approx(np.log(total.mean()), abs=0.02)
