"""The real crowds: figures that must hold, and do not depend on a seed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import crowdwise as cw

pytestmark = pytest.mark.slow

SETS = [
    "bluebird", "d_product", "d_sentiment", "dog", "face", "imagenet15n", "labelme", "music_genre", "rte", "s_adult",
    "sentiment_polarity", "trec2010_binary", "web", "wsd",
]  # fmt: skip
AT_LEAST = {
    "bluebird": 0.888, "rte": 0.925, "dog": 0.838, "web": 0.82, "d_product": 0.937, "d_sentiment": 0.958,
    "labelme": 0.785, "music_genre": 0.765, "s_adult": 0.73, "trec2010_binary": 0.69,
}  # fmt: skip


def votes_of(folder):
    return cw.read_dataset(folder, on_duplicate="all").votes


@pytest.mark.parametrize("name", [*SETS, "convarg_pairs"])
def test_majority_with_ties_split_equals_the_published_figure(name, real):
    votes = votes_of(real(name))
    published = json.loads((real(name) / "meta.json").read_text())["stats"]["mv_acc"]
    assert round(cw.aggregate(votes, "majority").score(votes.truth), 4) == published


def test_majority_on_cifar10n(real):
    with np.load(real("cifar10n") / "cifar10n.npz") as data:
        votes = cw.Votes.from_dense(np.stack([data[f"worker{i}"] for i in (1, 2, 3)], axis=1))
        truth = data["clean"].astype(np.int32)
    assert round(cw.aggregate(votes, "majority").score(truth), 4) == 0.9118
    assert cw.aggregate(votes, "dawid-skene").score(truth) > 0.905


@pytest.mark.parametrize("name", AT_LEAST)
def test_dawid_skene_reaches(name, real):
    votes = votes_of(real(name))
    assert cw.aggregate(votes, "dawid-skene").score(votes.truth) >= AT_LEAST[name]


def test_anchored_is_good_on_average_and_nowhere_far_under_the_majority(real):
    scores = []
    for name in SETS:
        votes = votes_of(real(name))
        anchored, majority = (cw.aggregate(votes, key).score(votes.truth) for key in ("anchored", "majority"))
        assert anchored > majority - 0.005, name
        scores.append(anchored)
    assert np.mean(scores) >= 0.82


def test_sparse_many_class_votes_do_not_collapse_under_the_anchor(real):
    votes = votes_of(real("imagenet15n"))
    assert cw.aggregate(votes, "anchored").score(votes.truth) > 0.565
    assert cw.aggregate(votes, "dawid-skene").score(votes.truth) < 0.45


def test_the_anaesthetists_of_dawid_and_skene(real):
    """The example of 1979: 45 patients, class shares near .40 .42 .11 .07 in the published solution."""
    votes = votes_of(real("anesthesia"))
    found = cw.aggregate(votes, "dawid-skene", prior=0.0, tol=1e-10)
    assert np.abs(found.prior - [0.40, 0.42, 0.11, 0.07]).max() < 0.01


def test_acceleration_saves_passes_and_ends_no_lower(real):
    ratios = []
    for name in ("web", "labelme", "music_genre", "d_product"):
        votes = votes_of(real(name))
        plain = cw.aggregate(votes, "dawid-skene", accelerate=False, tol=1e-8, max_iter=3000)
        fast = cw.aggregate(votes, "dawid-skene", tol=1e-8, max_iter=3000)
        assert fast.objective > plain.objective - 1e-6 * votes.n_votes
        ratios.append(plain.iterations / fast.iterations)
    assert min(ratios) > 1.5
    assert np.mean(ratios) > 2.0
