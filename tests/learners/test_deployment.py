"""Learners at work elsewhere: ONNX files, weights of items and classes, pretrained backbones, embeddings, callbacks."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import crowdwise as cw
from crowdwise import registry
from crowdwise.errors import ExtraError, InputError, ParameterError, ReadError
from crowdwise.learners import networks

QUICK = {"epochs": 4, "random_state": 0}


@pytest.fixture(scope="module")
def crowd():
    return cw.simulate.machine(n_annotators=5, n_items=200, votes_per_item=3, random_state=0)


def run_onnx(file, x):
    session = pytest.importorskip("onnxruntime").InferenceSession(str(file))
    assert [one.name for one in session.get_inputs()] == ["inputs"]
    return session.run(["probabilities"], {"inputs": x.astype(np.float32)})[0]


@pytest.mark.parametrize("method", [key for key in registry.LEARNERS if key not in ("ensemble", "raykar", "crowdlab")])
def test_onnx_predicts_what_the_learner_predicts(crowd, tmp_path, method):
    x = crowd.features["x_train"]
    learner = cw.CrowdClassifier(method, **QUICK).fit(x, crowd.votes)
    file = learner.export_onnx(tmp_path / "model.onnx")
    for some in (x[:1], x[:7], x):
        np.testing.assert_allclose(run_onnx(file, some), learner.predict_proba(some), atol=1e-5)
    assert isinstance(learner.network_, nn.Module)
    assert np.array_equal(learner.predict(x), learner.classes_[run_onnx(file, x).argmax(axis=1)])


def test_onnx_of_the_default_learner_and_of_images(crowd, tmp_path):
    x = crowd.features["x_train"]
    learner = cw.CrowdClassifier("ensemble", epochs=2, folds=2, random_state=0).fit(x, crowd.votes)
    file = learner.export_onnx(tmp_path / "mean.onnx")
    np.testing.assert_allclose(run_onnx(file, x), learner.predict_proba(x), atol=1e-5)
    images = np.random.default_rng(0).random((200, 1, 8, 8)).astype(np.float32)
    learner = cw.CrowdClassifier("ccem", network="cnn", epochs=1, random_state=0).fit(images, crowd.votes)
    file = learner.export_onnx(tmp_path / "cnn.onnx")
    np.testing.assert_allclose(run_onnx(file, images), learner.predict_proba(images), atol=1e-5)


def test_onnx_says_what_cannot_be_exported(crowd, tmp_path, monkeypatch):
    plain = cw.CrowdClassifier("raykar").fit(crowd.features["x_train"], crowd.votes)
    with pytest.raises(ParameterError, match="raykar has no network to export"):
        plain.export_onnx(tmp_path / "a.onnx")
    words = [f"word{n % 7} word{n % 3}" for n in range(200)]
    texts = cw.CrowdClassifier("ccem", epochs=1, random_state=0).fit(words, crowd.votes)
    with pytest.raises(ParameterError, match="ONNX would lack the step from texts to numbers"):
        texts.export_onnx(tmp_path / "a.onnx")
    fitted = cw.CrowdClassifier("ccem", **QUICK).fit(crowd.features["x_train"], crowd.votes)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ExtraError, match="pip install onnx"):
        fitted.export_onnx(tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- weights


@pytest.fixture(scope="module")
def uneven():
    """Two classes, one in ten items of the second, which overlap."""
    rng = np.random.default_rng(1)
    truth = (rng.random(600) < 0.1).astype(int)
    x = (rng.normal(size=(600, 4)) + 0.8 * truth[:, None]).astype(np.float32)
    dense = np.where(rng.random((600, 3)) < 0.9, truth[:, None], 1 - truth[:, None])
    return x, cw.Votes.from_dense(dense), truth


@pytest.mark.parametrize("method", ["ccem", "max-mig", "two-stage", "aggnet", "raykar", "crowdlab", "ensemble"])
def test_balanced_classes_find_more_of_the_rare_one(uneven, method):
    x, votes, truth = uneven
    more = {"raykar": {}, "crowdlab": {}, "ensemble": {"folds": 2, "epochs": 10}}.get(method, {"epochs": 12})
    found = [
        cw.CrowdClassifier(method, class_weight=weight, random_state=0, **more).fit(x, votes).predict(x)
        for weight in (None, "balanced")
    ]
    recall = [(labels == 1)[truth == 1].mean() for labels in found]
    assert recall[1] > recall[0] + 0.1


def test_weights_of_classes_by_name(uneven, tmp_path):
    x, votes, _ = uneven
    share = [
        cw.CrowdClassifier("raykar", class_weight=weight).fit(x, votes).predict_proba(x)[:, 1].mean()
        for weight in ({1: 0.2}, None, {0: 1.0, 1: 5.0})
    ]
    assert share[0] < share[1] - 0.02 and share[2] > share[1] + 0.1
    cw.CrowdClassifier("raykar", class_weight={1: 5.0}).fit(x, votes).save(tmp_path / "model")
    assert cw.load_learner(tmp_path / "model").class_weight == {1: 5.0}
    with pytest.raises(ParameterError, match="there is no class 'rare'; the classes are 0, 1"):
        cw.CrowdClassifier("raykar", class_weight={"rare": 2.0}).fit(x, votes)
    with pytest.raises(ParameterError, match="class_weight"):
        cw.CrowdClassifier("raykar", class_weight={1: -2.0}).fit(x, votes)


@pytest.mark.parametrize("method", ["ccem", "raykar", "ensemble"])
def test_rows_of_weight_zero_are_not_learned_from(uneven, method):
    x, votes, truth = uneven
    wrong = np.arange(600) % 2 == 0
    dense = np.where(wrong[:, None], 1 - truth[:, None], truth[:, None]).repeat(3, axis=1)
    broken, weight = cw.Votes.from_dense(dense), np.where(wrong, 0.0, 1.0)
    more = {"raykar": {}, "ensemble": {"folds": 2, "epochs": 10}}.get(method, {"epochs": 20})
    far = x + 4.0 * truth[:, None]
    learner = cw.CrowdClassifier(method, random_state=0, **more)
    assert learner.fit(far, broken, sample_weight=weight).score(far, truth) > 0.9
    assert learner.fit(far, broken).score(far, truth) < 0.85


def test_weights_follow_their_rows(uneven):
    x, votes, _ = uneven
    weight = np.random.default_rng(2).random(600)
    frame = pd.DataFrame(x, columns=list("abcd"), index=votes.items)
    whole = cw.Raykar().fit(frame, votes, sample_weight=weight).predict_proba(frame)
    order = np.random.default_rng(3).permutation(600)
    moved = cw.Raykar().fit(frame.iloc[order], votes, sample_weight=weight[order])
    named = cw.Raykar().fit(frame, votes, sample_weight=dict(zip(votes.items.tolist(), weight, strict=True)))
    for other in (moved, named):
        np.testing.assert_allclose(other.predict_proba(frame), whole, atol=1e-6)
    twice = cw.Raykar().fit(frame, votes, sample_weight=np.ones(600))
    np.testing.assert_allclose(twice.predict_proba(frame), cw.Raykar().fit(frame, votes).predict_proba(frame))


@pytest.mark.parametrize(
    "weight, words",
    [
        (np.ones(3), "one number for each of 600 rows"),
        (np.full(600, -1.0), "at least 0"),
        (np.zeros(600), "all weights are zero"),
    ],
)
def test_odd_weights_are_refused(uneven, weight, words):
    with pytest.raises(InputError, match=words):
        cw.Raykar().fit(uneven[0], uneven[1], sample_weight=weight)


def test_weights_need_what_can_use_them(uneven):
    from sklearn.neighbors import KNeighborsClassifier

    with pytest.raises(ParameterError, match="KNeighborsClassifier takes no weights"):
        cw.Raykar(classifier=KNeighborsClassifier()).fit(uneven[0], uneven[1], sample_weight=np.ones(600))
    ratings = cw.Ratings.from_dense(np.random.default_rng(0).random((30, 3)))
    with pytest.raises(ParameterError, match="cannot use sample_weight"):
        cw.RaykarRegression().fit(np.random.default_rng(0).random((30, 2)), ratings, sample_weight=np.ones(30))


# ---------------------------------------------------------------- pretrained backbones


class Backbone(nn.Module):
    """Gives what modules of ``transformers`` give."""

    def __init__(self, width, pooled=True):
        super().__init__()
        self.layer, self.norm, self.pooled = nn.Linear(width, 6), nn.BatchNorm1d(6), pooled

    def forward(self, x):
        h = torch.relu(self.norm(self.layer(x)))
        if self.pooled:
            return types.SimpleNamespace(pooler_output=h)
        return types.SimpleNamespace(last_hidden_state=h[:, None, :].repeat(1, 3, 1))


@pytest.mark.parametrize("pooled", [True, False])
def test_a_backbone_is_frozen_or_has_its_own_rate(crowd, tmp_path, pooled):
    x = crowd.features["x_train"]
    torch.manual_seed(0)
    backbone = Backbone(x.shape[1], pooled)
    before = backbone.layer.weight.detach().clone()
    moved = {}
    for rate in (0.0, 1e-5, None):
        n = crowd.votes.n_classes
        network = backbone if rate is not None else networks.WithClassifier(backbone, (x.shape[1],), n)
        learner = cw.CrowdClassifier("ccem", network=network, backbone_lr=rate, **QUICK).fit(x, crowd.votes)
        own = next(part for part in learner.network_.modules() if isinstance(part, Backbone))
        moved[rate] = float((own.layer.weight.detach() - before).abs().max())
        if rate == 0.0:
            assert torch.equal(own.norm.running_mean, backbone.norm.running_mean)
            learner.save(tmp_path / "model")
            again = cw.load_learner(tmp_path / "model", network=backbone)
            np.testing.assert_allclose(again.predict_proba(x), learner.predict_proba(x), atol=1e-6)
            np.testing.assert_allclose(
                run_onnx(learner.export_onnx(tmp_path / "a.onnx"), x), learner.predict_proba(x), atol=1e-5
            )
    assert moved[0.0] == 0.0 < moved[1e-5] < moved[None] / 10
    assert torch.equal(backbone.layer.weight, before)


def test_a_backbone_that_does_not_fit_is_named(crowd):
    with pytest.raises(ParameterError, match="does not take the inputs"):
        cw.CrowdClassifier("ccem", network=Backbone(3), backbone_lr=0.0).fit(crowd.features["x_train"], crowd.votes)


class Refuses(torch.nn.Linear):
    """A network whose error has no words."""

    def forward(self, x):
        raise ValueError


def test_a_network_that_fails_without_words_is_named(crowd):
    with pytest.raises(ParameterError, match=r"this Refuses does not take .* each: ValueError\. Its first layer"):
        cw.CrowdClassifier("ccem", network=Refuses(3, 3)).fit(crowd.features["x_train"], crowd.votes)


# ---------------------------------------------------------------- embeddings of texts


class Letters:
    """A model of texts: how often each letter occurs."""

    def encode(self, texts):
        return np.array([[text.count(letter) for letter in "abcdefghijklmnop"] for text in texts], dtype=np.float64)


def test_texts_are_embedded_by_a_model(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=120)
    texts = ["a" * int(3 + 4 * k) + "b" * int(rng.integers(1, 4)) for k in truth]
    votes = cw.Votes.from_dense(np.where(rng.random((120, 3)) < 0.8, truth[:, None], 1 - truth[:, None]))
    learner = cw.CrowdClassifier("ccem", embed=Letters(), epochs=20, random_state=0).fit(texts, votes)
    assert learner.score(texts, truth) > 0.95 and learner.predict(["aaaaaaab"]).tolist() == [1]
    rows = Letters().encode(texts)
    np.testing.assert_allclose(
        run_onnx(learner.export_onnx(tmp_path / "a.onnx"), rows), learner.predict_proba(texts), atol=1e-5
    )
    learner.save(tmp_path / "model")
    with pytest.raises(ReadError, match="pass it again, embed="):
        cw.load_learner(tmp_path / "model")
    again = cw.load_learner(tmp_path / "model", embed=Letters())
    np.testing.assert_allclose(again.predict_proba(texts), learner.predict_proba(texts), atol=1e-6)
    one_row = types.SimpleNamespace(encode=lambda texts: np.zeros((1, 4)))
    with pytest.raises(InputError, match=r"encode gave an array of shape \(1, 4\) for 120 texts"):
        cw.CrowdClassifier("ccem", embed=one_row).fit(texts, votes)


def test_a_model_by_name_is_that_of_sentence_transformers(tmp_path, monkeypatch):
    """The package may be missing: then the error says so; where it is there, folders of packages are found."""
    texts, votes = [f"word{n % 5}" for n in range(60)], cw.Votes.from_dense(np.arange(180).reshape(60, 3) % 2)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ExtraError, match="pip install sentence-transformers"):
        cw.CrowdClassifier("ccem", embed="some-model").fit(texts, votes)

    class Here:
        def __init__(self, place, device=None):
            if not (place.endswith("model") or place == "known"):
                raise OSError(f"{place} is not a local folder")

        encode = Letters.encode

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Here))
    with pytest.raises(InputError, match="There is no model of texts 'nowhere'"):
        cw.CrowdClassifier("ccem", embed="nowhere").fit(texts, votes)
    (tmp_path / "tiny_model_package" / "model").mkdir(parents=True)
    (tmp_path / "tiny_model_package" / "__init__.py").touch()
    (tmp_path / "tiny_model_package" / "model" / "modules.json").write_text("[]")
    monkeypatch.syspath_prepend(str(tmp_path))
    learner = cw.CrowdClassifier("ccem", embed="tiny-model-package", epochs=1).fit(texts, votes)
    learner.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "learner.json").read_text())["texts"] == {"embed": "tiny-model-package"}
    assert np.array_equal(cw.load_learner(tmp_path / "saved").predict(texts), learner.predict(texts))


# ---------------------------------------------------------------- callbacks


def test_a_callback_gets_what_loggers_write(crowd):
    """The recipes for TensorBoard and MLflow in docs/learners.md log these numbers, and stop by the same word."""
    logged = []

    def log(epoch):
        logged.append({k: v for k, v in asdict(epoch).items() if v is not None})
        return epoch.epoch == 3

    learner = cw.CrowdClassifier("ccem", epochs=9, holdout=0.1, random_state=0)
    learner.fit(crowd.features["x_train"], crowd.votes, callback=log)
    assert [one["epoch"] for one in logged] == [1, 2, 3] and len(learner.history_) == 3
    assert logged == [{k: v for k, v in asdict(e).items() if v is not None} for e in learner.history_]
    assert {"loss", "held_out", "lr", "seconds"} <= set(logged[0])
