"""Compiled passes through a network give what the network gives, for every kind of head; where they cannot be had, that
is said."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest

import crowdwise as cw

torch = pytest.importorskip("torch")

from crowdwise import registry  # noqa: E402
from crowdwise.learners.networks import build, compiled, mlp, why_not_compiled  # noqa: E402  # noqa: E402
from crowdwise.learners.training_settings import TrainingSettings  # noqa: E402


@pytest.fixture(scope="module")
def crowd():
    return cw.simulate.machine(n_annotators=4, n_items=90, votes_per_item=2, random_state=3)


def fitted(key, crowd, **settings):
    learner = registry.find(key, inputs=True).create(
        network=partial(mlp, hidden=(16,), dropout=0.0),
        epochs=2,
        batch_size=40,
        random_state=0,
        device="cpu",
        **settings,
    )
    return learner.fit(crowd.features["x_train"], crowd.votes)


# The batches of max-mig have one size, doctor-net needs hidden vectors, annot-mix has a row for every vote. The same
# passes are captured for every backend; C++ is written for one of them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "backend"), [("max-mig", "aot_eager"), ("doctor-net", "aot_eager"), ("annot-mix", "inductor")]
)
def test_a_compiled_network_learns_the_same(crowd, key, backend, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        plain, fast = (fitted(key, crowd, compile=value) for value in (False, True))
    assert plain._trainer.faster is None and fast._trainer.faster is not None
    losses = [[epoch.loss for epoch in learner.history_] for learner in (plain, fast)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    X = crowd.features["x_train"]
    np.testing.assert_allclose(fast.predict_proba(X), plain.predict_proba(X), atol=1e-3)


@pytest.mark.slow
def test_compiling_leaves_the_network_as_it_was():
    torch.manual_seed(0)
    network = build("herde", (20,), 3).eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    forward = compiled(network, torch.randn(8, 20), autocast=False, hidden=True)
    assert forward is not None
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network.training and all(p.grad is None for p in network.parameters())
    logits, hidden = forward(torch.randn(8, 20))
    np.testing.assert_allclose(network.head(hidden).detach(), logits.detach(), atol=1e-5)


def test_what_cannot_be_compiled_is_said_once(crowd):
    with pytest.warns(UserWarning, match="there are 90 items, fewer than batch_size=200") as told:
        learner = registry.find("max-mig", inputs=True).create(epochs=2, batch_size=200, compile=True, random_state=0)
        learner.fit(crowd.features["x_train"], crowd.votes)
    assert len([w for w in told if "neither compiled" in str(w.message)]) == 1


def test_hidden_vectors_of_another_module_are_not_compiled():
    module = torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.Linear(8, 3))
    with pytest.warns(UserWarning, match="one of crowdwise's networks"):
        assert compiled(module, torch.randn(8, 20), autocast=False, hidden=True) is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"processes": 2}, "several processes"),
        ({"sparse": True}, "sparse"),
        ({"n_items": 63}, "63 items, fewer than batch_size=64"),
        ({"only_compiled": True}, "Use compile=True"),
    ],
)
def test_every_hindrance_is_named(changed, why):
    given = {"n_items": 64, "sparse": False, "processes": 1, "only_compiled": False} | changed
    found = why_not_compiled(TrainingSettings(cuda_graphs=True), **given)
    assert why in found and bool(found) == bool(why)
    if "only_compiled" in changed:
        assert not why_not_compiled(TrainingSettings(compile=True), **given)
