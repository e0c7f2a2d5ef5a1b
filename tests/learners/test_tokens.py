"""The crowd layer on tokens: windows, learning, decoding, and keeping it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

import crowdwise as cw
from crowdwise.errors import InputError, NotFittedError, ParameterError
from crowdwise.learners.tags_crowd_layer import WindowInputs


@pytest.fixture(scope="module")
def crowd():
    """Tags by two annotators per sequence, and features in which a token's tag is half hidden."""
    made = cw.simulate.bio_tags(100, n_annotators=8, types=("LOC", "PER"), annotators_per_sequence=2, random_state=0)
    rng = np.random.default_rng(0)
    features = np.eye(5)[made.truth] * 1.5 + rng.normal(size=(made.tags.n_tokens, 5))
    return features, made.tags


@pytest.fixture(scope="module")
def learner(crowd):
    return cw.CrowdLayerTags(epochs=15, lr=5e-3, random_state=0).fit(*crowd)


def listed(X, tags):
    return [X[lo:hi] for lo, hi in zip(tags.starts[:-1], tags.starts[1:], strict=True)]


def test_windows_end_with_their_sequence():
    windows = WindowInputs(np.arange(1.0, 6.0)[:, None], np.array([0, 3, 5]), 1)
    assert windows.shape == (2, 3)
    rows = windows.rows(np.array([0, 1, 2, 3])).numpy()
    assert rows[:, 0].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 0], [0, 4, 5]]
    assert rows[:, 1].tolist() == [[0, 1, 1], [1, 1, 1], [1, 1, 0], [0, 1, 1]]


def test_it_learns_and_its_consensus_beats_majority(crowd, learner):
    X, tags = crowd
    f1 = lambda c: float(cw.metrics.span_scores(c, tags, resamples=1)["f1"])  # noqa: E731
    assert f1(learner.consensus_) > f1(cw.aggregate(tags.votes, "majority")) + 0.05
    assert learner.score(X, tags.classes[tags.truth], starts=tags.starts) > 0.85
    assert isinstance(learner.consensus_, cw.TagConsensus) and learner.consensus_.scheme == "bio"
    np.testing.assert_allclose(learner.confusion_.sum(axis=2), 1.0, atol=1e-6)


def test_taggings_are_valid(crowd, learner):
    X, tags = crowd
    for labels in (learner.predict(X, starts=tags.starts), learner.consensus_.labels):
        code = np.array([tags.classes.tolist().index(name) for name in labels])
        first = tags.starts[:-1]
        follows = np.setdiff1d(np.arange(1, len(code)), first)
        assert tags.allowed()[0][code[first]].all()
        assert tags.allowed()[1:][code[follows - 1], code[follows]].all()


def test_lists_arrays_and_tags_agree(crowd, learner):
    X, tags = crowd
    flat = learner.predict_proba(X, starts=tags.starts)
    np.testing.assert_allclose(learner.predict_proba(listed(X, tags)), flat, atol=1e-6)
    both = learner.predict_proba(X, tags)
    np.testing.assert_allclose(both, learner.consensus_.posterior, atol=1e-5)
    assert learner.predict(X, tags).tolist() == learner.consensus_.labels.tolist()
    assert learner.score(listed(X, tags), tags) < 0.0
    truth = tags.classes[tags.truth]
    nested = [truth[lo:hi].tolist() for lo, hi in zip(tags.starts[:-1], tags.starts[1:], strict=True)]
    assert learner.score(listed(X, tags), nested) == learner.score(X, truth, starts=tags.starts)


def test_seeds_repeat_and_clones_are_alike(crowd):
    X, tags = crowd
    one, two = (cw.CrowdLayerTags(epochs=2, window=1, random_state=3).fit(X, tags) for _ in range(2))
    np.testing.assert_array_equal(one.consensus_.posterior, two.consensus_.posterior)
    assert clone(one).get_params() == one.get_params()


def test_saved_and_loaded(crowd, learner, tmp_path):
    X, tags = crowd
    learner.save(tmp_path / "kept")
    for again in (cw.CrowdLayerTags.load(tmp_path / "kept"), cw.load_learner(tmp_path / "kept")):
        np.testing.assert_allclose(
            again.predict_proba(X, starts=tags.starts), learner.predict_proba(X, starts=tags.starts), atol=1e-6
        )
        assert again.predict(X, starts=tags.starts).tolist() == learner.predict(X, starts=tags.starts).tolist()


def test_known_truth_a_network_of_ones_own_and_held_out_votes(crowd):
    X, tags = crowd

    def conv(shape, n_classes):
        return torch.nn.Sequential(
            torch.nn.Conv1d(shape[0], 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Linear(16 * shape[1], n_classes),
        )  # fmt: skip

    made = cw.CrowdLayerTags(network=conv, epochs=8, lr=1e-2, select="votes", kind="VW+B", warm_up=1, random_state=0)
    made.fit(X, tags, gold=tags.truth)
    assert made.history_[-1].held_out is not None
    assert made.score(X, tags.classes[tags.truth], starts=tags.starts) > 0.85


def test_what_does_not_fit(crowd, learner):
    X, tags = crowd
    with pytest.raises(NotFittedError):
        cw.CrowdLayerTags().predict(X, starts=tags.starts)
    with pytest.raises(InputError, match="expects Tags and found Votes"):
        cw.CrowdLayerTags().fit(X, tags.votes)
    with pytest.raises(InputError, match="expected the same sequences"):
        cw.CrowdLayerTags().fit(listed(X, tags)[::-1], tags)
    with pytest.raises(InputError, match="where sequences begin"):
        learner.predict(X)
    with pytest.raises(InputError, match=r"Sequence 0 of X has the shape \(\), and the first \(\): expected tokens x"):
        cw.CrowdLayerTags().fit([1.0] * len(tags), tags)
    with pytest.raises(InputError, match="Sequence 1 of X"):
        learner.predict([X[:3], X[:3, :2]])
    with pytest.raises(InputError, match="NaN or infinity"):
        learner.predict(np.full_like(X, np.nan), starts=tags.starts)
    for bad in ({"window": -1}, {"warm_up": 0.5}, {"kind": "X"}):
        with pytest.raises(ParameterError, match=f"{next(iter(bad))}="):
            cw.CrowdLayerTags(**bad).fit(X, tags)
