"""VolMaxDCC: its likelihood and volume, what it adds over the noiseless likelihood, saving and loading."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits

import crowdwise as cw
from crowdwise import metrics
from crowdwise.data.folders import seal
from crowdwise.errors import InputError, NotFittedError, ParameterError, ReadError
from crowdwise.learners.inputs import PairInputs, as_inputs
from crowdwise.learners.networks import mlp
from crowdwise.learners.similarities_volmaxdcc import PairHead, Twins
from crowdwise.learners.vote_edges import Batch

SMALL = functools.partial(mlp, hidden=(32,), dropout=0.0)


def blobs(n=240, K=3, flip=0.1, seed=0, spread=0.7, pairs_per_item=10):
    rng = np.random.default_rng(seed)
    truth = rng.integers(K, size=n)
    X = np.random.default_rng(99).normal(size=(K, 6))[truth] * 2.0 + rng.normal(size=(n, 6)) * spread
    rate = (40 * (1 - flip), 40 * flip)
    crowd = cw.simulate.similarities(
        n, truth=truth, n_annotators=6, pairs_per_item=pairs_per_item, sensitivity=rate, specificity=rate,
        random_state=seed,
    )  # fmt: skip
    return X.astype(np.float32), crowd.answers, truth


def make(**given):
    return cw.VolMaxDCC(**({"n_clusters": 3, "epochs": 15, "network": SMALL, "random_state": 0} | given))


@pytest.fixture(scope="module")
def fitted():
    X, answers, truth = blobs()
    return make().fit(X, answers), X, answers, truth


@pytest.mark.parametrize("confusion", ["shared", "own", "none"])
def test_the_likelihood_is_the_sum_over_all_pairs_of_kinds(confusion):
    torch.manual_seed(0)
    head = PairHead(3, 4, confusion, 0.0, 8)
    if confusion != "none":
        torch.nn.init.normal_(head.R)
    if confusion == "own":
        torch.nn.init.normal_(head.D)
    logits = torch.randn(5, 8)
    row, who, said = (
        torch.tensor([0, 1, 2, 3, 4, 0]),
        torch.tensor([0, 1, 2, 0, 1, 2]),
        torch.tensor([0, 1, 0, 1, 1, 1]),
    )
    found = head.vote_log_probs(Batch(torch.arange(5), logits, None, row, who, said, torch.ones(6))).detach()
    B = head.matrices().detach()
    assert torch.allclose(B, B.transpose(1, 2))  # a pair has no order
    for e in range(6):
        f, g = (torch.softmax(part, dim=0) for part in logits[row[e]].reshape(2, 4))
        matrix = B[who[e]] if confusion == "own" else B[0]
        same = sum(f[k] * matrix[k, j] * g[j] for k in range(4) for j in range(4))
        assert float(found[e].exp()) == pytest.approx(float(same if said[e] else 1 - same), abs=1e-6)


def test_the_volume_is_largest_for_certain_even_answers():
    inputs = as_inputs(np.eye(3, dtype=np.float32).repeat(4, axis=0))
    head = PairHead(1, 3, "shared", 1.0, 100)
    volumes = []
    for scale in (0.0, 1.0, 30.0):
        network = torch.nn.Linear(3, 3, bias=False)
        torch.nn.init.zeros_(network.weight)
        network.weight.data += scale * torch.eye(3)
        head.watch(network, inputs, torch.device("cpu"), 1)
        volumes.append(float(head.log_volume().detach()))
    assert volumes[0] < volumes[1] < volumes[2] == pytest.approx(0.0, abs=0.01)


def test_pairs_of_inputs_go_through_one_network():
    inputs = as_inputs(np.arange(12, dtype=np.float32).reshape(4, 3))
    pairs = PairInputs(inputs, np.array([0, 3]), np.array([2, 1]))
    assert pairs.rows(np.array([1]))[0].tolist() == [[9, 10, 11], [3, 4, 5]]
    network = torch.nn.Linear(3, 5)
    out = Twins(network)(pairs.rows(np.array([0, 1])))
    assert torch.allclose(out[0, 5:], network(inputs.rows(np.array([2])))[0])


def test_it_recovers_planted_clusters_and_says_so_in_names(fitted):
    model, X, answers, truth = fitted
    assert metrics.adjusted_rand(model.consensus_, truth, resamples=2).value > 0.9
    assert np.array_equal(model.predict(X), model.consensus_.clusters)
    assert np.allclose(model.predict_proba(X), model.consensus_.posterior, atol=1e-6)
    B = model.confusion_
    assert B.shape == (3, 3) and np.diag(B).min() > 0.7 and B[~np.eye(3, dtype=bool)].max() < 0.35
    sizes = np.bincount(model.consensus_.cluster_codes)
    assert (np.diff(sizes) <= 0).all()
    assert model.score(X, truth) > 0.9
    assert model.score(X, answers) > np.log(0.5)
    assert repr(model.consensus_).startswith("Clustering(volmaxdcc")


def test_own_matrices_tell_a_spammer_from_the_others():
    X, answers, truth = blobs(n=100, pairs_per_item=30, seed=2)
    same = answers.same.copy()
    spam = answers.annotator == 0
    same[spam] = np.random.default_rng(0).random(spam.sum()) < 0.5
    a, b = answers.pairs[answers.pair].T
    spoilt = cw.Similarities.from_codes(
        a, b, answers.annotator, same, items=answers.items, annotators=answers.annotators
    )
    model = make(confusion="own", epochs=25).fit(X, spoilt)
    assert metrics.adjusted_rand(model.consensus_, truth, resamples=2).value > 0.9
    contrast = [np.diag(B).mean() - B[~np.eye(3, dtype=bool)].mean() for B in model.confusion_]
    assert np.argmin(contrast) == 0 and contrast[0] < 0.5 * np.median(contrast)


@pytest.mark.slow
def test_on_digits_the_matrix_and_the_volume_beat_the_noiseless_likelihood():
    """Line for line as in the docs: ten kinds, 20 % of the answers flipped."""
    X, y = (part[:600] for part in load_digits(return_X_y=True))
    crowd = cw.simulate.similarities(
        len(X), truth=y, n_annotators=10, pairs_per_item=12, sensitivity=(32, 8), specificity=(32, 8), random_state=0
    )
    net = functools.partial(mlp, hidden=(64,), dropout=0.0)
    shared = {"n_clusters": 10, "epochs": 12, "network": net, "volume_sample": 256, "random_state": 0}
    found = {
        name: metrics.adjusted_rand(
            cw.VolMaxDCC(**shared, **more).fit(X, crowd.answers).consensus_, y, resamples=2
        ).value
        for name, more in (("volmaxdcc", {}), ("noiseless", {"confusion": "none", "weight": 0.0}))
    }
    assert found["volmaxdcc"] > found["noiseless"] + 0.15


def test_seeds_repeat_and_clones_are_alike(fitted):
    model, X, answers, _ = fitted
    again = clone(model).fit(X, answers)
    assert np.array_equal(again.consensus_.posterior, model.consensus_.posterior)
    assert again.get_params()["n_clusters"] == 3


def test_it_is_saved_and_loaded(fitted, tmp_path):
    model, X, answers, _ = fitted
    model.save(tmp_path / "kept")
    back = cw.VolMaxDCC.load(tmp_path / "kept", network=SMALL)
    assert np.allclose(back.predict_proba(X), model.predict_proba(X), atol=1e-6)
    assert back.consensus_.item_table.equals(model.consensus_.item_table)
    assert np.allclose(back.confusion_, model.confusion_)
    assert isinstance(cw.load_learner(tmp_path / "kept", network=SMALL), cw.VolMaxDCC)
    facts = json.loads((tmp_path / "kept" / "learner.json").read_text())
    (tmp_path / "kept" / "learner.json").write_text(json.dumps(facts | {"format": 1}))
    seal(tmp_path / "kept", "learner")
    with pytest.raises(ReadError, match="another version"):
        cw.VolMaxDCC.load(tmp_path / "kept", network=SMALL)
    (tmp_path / "kept" / "learner.json").write_text(json.dumps(facts))
    seal(tmp_path / "kept", "learner")
    with pytest.raises(ReadError, match="network of your own"):
        cw.VolMaxDCC.load(tmp_path / "kept")
    with pytest.raises(ReadError, match="There is no learner"):
        cw.VolMaxDCC.load(tmp_path)


def test_held_out_answers_choose_the_epoch():
    X, answers, _ = blobs(n=120)
    model = make(epochs=4, select="votes").fit(X, answers)
    assert all(epoch.held_out is not None for epoch in model.history_)


def test_wrong_input_is_explained():
    X, answers, truth = blobs(n=60)
    with pytest.raises(InputError, match="expects Similarities and found ndarray"):
        make().fit(X, truth)
    with pytest.raises(InputError, match="59 rows"):
        make().fit(X[:59], answers)
    with pytest.raises(ParameterError, match="cannot use gold"):
        make().fit(X, answers, truth)
    with pytest.raises(NotFittedError):
        make().predict(X)
    with pytest.raises(ParameterError, match="inputs as well"):
        cw.aggregate(answers, "volmaxdcc")
    for wrong in (
        {"n_clusters": 1},
        {"confusion": "some"},
        {"weight": -1.0},
        {"volume_sample": 1},
        {"select": "gold"},
    ):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            make(**wrong).fit(X, answers)
