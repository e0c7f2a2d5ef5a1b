"""Sparse inputs: the columns of a batch stand for the whole of it."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.learners import networks
from crowdwise.learners.classifier import load_learner
from crowdwise.learners.inputs import InputScale, SparseRows, as_inputs, first_layer, prepare
from crowdwise.learners.joint_confusions import CCEM
from crowdwise.learners.layers import CoNAL
from learners.crowd import confusions, vote


def words(n=200, width=60, seed=0):
    """Rows with a few words each, some of which tell the class; the classes."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    said = rng.random((n, width)) < 0.05
    said[np.arange(n), 3 * rng.integers(6, size=n) + truth] = True
    return sp.csr_matrix(said * rng.random((n, width))).astype(np.float32), truth


class TestRows:
    def test_only_the_columns_that_occur(self):
        X, _ = words()
        index = np.array([7, 0, 7])
        rows = as_inputs(X).sparse_rows(index)
        assert len(rows) == 3 and rows.width == 60
        assert rows.columns.tolist() == sorted(set(X[index].indices.tolist()))
        np.testing.assert_array_equal(rows.dense().numpy(), X[index].toarray())

    def test_entries_given_twice_are_added_and_rows_may_be_empty(self):
        X = sp.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 2, 3])), shape=(3, 3))
        assert SparseRows.of(X).dense().tolist() == [[0, 3, 0], [0, 0, 0], [4, 0, 0]]
        none = SparseRows.of(sp.csr_matrix((2, 3), dtype=np.float32))
        assert none.values.shape == (2, 0) and none.dense().shape == (2, 3)

    def test_small_whole_numbers_are_what_other_whole_numbers_are(self):
        X = sp.csr_matrix(np.array([[0, 51, 255]], dtype=np.uint8))
        np.testing.assert_allclose(as_inputs(X).sparse_rows(np.array([0])).dense(), [[0.0, 51.0, 255.0]], atol=1e-7)

    @pytest.mark.parametrize("call", ["rows", "scale"])
    def test_a_row_that_is_not_finite_is_named(self, call):
        X = words()[0]
        X.data[X.indptr[7]] = np.nan
        with pytest.raises(InputError, match="Row 7 of X holds NaN"):
            as_inputs(X).sparse_rows(np.array([3, 7])) if call == "rows" else InputScale.of(as_inputs(X))

    def test_scaling(self):
        X, _ = words()
        scale, index = InputScale.of(as_inputs(X)), np.arange(5)
        thin = as_inputs(X).sparse_rows(index)
        np.testing.assert_allclose(scale(thin).dense(), scale(as_inputs(X).rows(index)), rtol=1e-6)
        moved = InputScale(torch.full((60,), 0.5), torch.full((60,), 2.0))  # of dense inputs, whose mean is taken out
        np.testing.assert_allclose(moved(thin), moved(as_inputs(X).rows(index)), rtol=1e-6)


@pytest.mark.parametrize("build", [networks.linear, networks.mlp, functools.partial(networks.mlp, hidden=())])
def test_answers_and_gradients_are_those_of_dense_rows(build):
    X, _ = words()
    torch.manual_seed(0)
    network = build((60,), 3).eval()
    index = np.arange(10)
    answer, grads = [], []
    for x in (as_inputs(X).rows(index), as_inputs(X).sparse_rows(index)):
        network.zero_grad()
        answer.append(network(x))
        answer[-1].square().sum().backward()
        grads.append([p.grad.clone() for p in network.parameters()])
        prepare(network)
    torch.testing.assert_close(answer[0], answer[1])
    for dense, sparse in zip(*grads, strict=True):
        torch.testing.assert_close(dense, sparse)


def test_laying_out_weights_changes_no_weight():
    network = networks.mlp((20,), 3)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    prepare(network)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert first_layer(network).weight.t().is_contiguous()
    assert first_layer(networks.lenet5((1, 28, 28), 3)) is None


def crowd():
    X, truth = words(n=300)
    return X, vote(truth, confusions(6, 3), votes_per_item=3), truth


@pytest.mark.parametrize("network", ["mlp", "linear"])
def test_a_fit_is_that_of_dense_inputs(network):
    """Scaled alike: sparse data are stretched only, so the dense ones are handed over stretched."""
    X, votes, truth = crowd()
    given = {"network": network, "epochs": 8, "lr": 1e-2, "random_state": 0}
    sparse = CCEM(**given).fit(X, votes)
    size = np.sqrt((X.data.astype(np.float64) ** 2).sum() / X.shape[0] / X.shape[1])
    dense = CCEM(scale=False, **given).fit((X.toarray() / size).astype(np.float32), votes)
    np.testing.assert_allclose(sparse.predict_proba(X), dense.predict_proba(X.toarray() / size), atol=2e-3)
    np.testing.assert_allclose(sparse.predict_proba(X), sparse.predict_proba(X.toarray()), atol=1e-5)
    assert (sparse.predict(X) == truth).mean() > 0.7


def test_heads_that_ask_for_the_hidden_vector_get_one():
    X, votes, _ = crowd()
    for network in ("linear", "mlp"):
        q = CoNAL(network=network, epochs=2, random_state=0).fit(X, votes).predict_proba(X, votes)
        assert np.isfinite(q).all()


def test_a_module_of_another_build_gets_dense_rows():
    X, votes, _ = crowd()
    seen = []

    class Own(torch.nn.Module):
        def __init__(self, shape, n_classes):
            super().__init__()
            self.last = torch.nn.Linear(shape[0], n_classes)

        def forward(self, x):
            seen.append(type(x))
            return self.last(x)

    CCEM(network=Own, epochs=1, random_state=0).fit(X, votes)
    assert set(seen) == {torch.Tensor}


def test_saving_checkpoints_and_going_on(tmp_path):
    X, votes, _ = crowd()
    whole = CCEM(epochs=4, random_state=0).fit(X, votes)
    given = {"epochs": 4, "random_state": 0, "checkpoint": tmp_path / "c.safetensors"}
    CCEM(**given).fit(X, votes, callback=lambda epoch: epoch.epoch == 2)
    on = CCEM(**given).fit(X, votes)
    assert np.array_equal(on.predict_proba(X), whole.predict_proba(X))
    on.save(tmp_path / "learner")
    np.testing.assert_allclose(load_learner(tmp_path / "learner").predict_proba(X), whole.predict_proba(X), atol=1e-6)


def test_votes_named_in_another_order():
    """Rows of X go with items of the votes, whatever these are called."""
    X, votes, _ = crowd()
    named = Votes.from_codes(
        votes.item, votes.annotator, votes.label, items=[f"t{n}" for n in range(300)], annotators=range(6),
        classes=range(3),
    )  # fmt: skip
    a, b = (CCEM(epochs=2, random_state=0).fit(X, v, items=v.items).predict_proba(X) for v in (votes, named))
    assert np.array_equal(a, b)
