"""The kernels: the plain version against enumeration, the compiled one against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brute import enumerate_truths
from conftest import need_module
from crowdwise import kernels
from crowdwise.kernels import cuda, native, reference
from crowdwise.kernels.compiler import threads_for

NONE, NO_TRUTH = np.empty(0), np.empty(0, dtype=np.int32)


def problem(seed, N=30, M=6, K=3, mean=4.0, weighted=False, gold=0.0, per_item=False, sharp=1.0):
    """Random votes and scores; some items have no votes."""
    rng = np.random.default_rng(seed)
    size = rng.poisson(mean, N)
    indptr = np.concatenate([[0], np.cumsum(size)])
    S = indptr[-1]
    cell = rng.integers(0, M * K, S).astype(np.int32)
    weight = rng.gamma(2.0, 0.5, S) if weighted else NONE
    log_score = sharp * np.log(rng.dirichlet(np.ones(K), M * K))
    log_prior = np.log(rng.dirichlet(np.ones(K), N if per_item else 1))
    truth = np.where(rng.random(N) < gold, rng.integers(0, K, N), -1).astype(np.int32) if gold else NO_TRUTH
    return indptr, cell, weight, log_score, log_prior, truth


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.booleans())
def test_expect_equals_enumeration(seed, weighted, gold, per_item):
    N, M, K = 5, 3, 3
    indptr, cell, weight, log_score, log_prior, truth = problem(
        seed, N, M, K, 2.0, weighted, 0.4 if gold else 0.0, per_item
    )
    theta = np.exp(log_score).reshape(M, K, K).transpose(0, 2, 1)
    pi = np.exp(log_prior)
    item = np.repeat(np.arange(N), np.diff(indptr))
    w = weight if weighted else np.ones(len(cell))
    rows = [(int(n), int(c) // K, int(c) % K, float(x)) for n, c, x in zip(item, cell, w, strict=True)]
    q, log_likelihood = enumerate_truths(
        rows, theta, [1.0] * K if per_item else pi[0], N, truth if gold else None, pi if per_item else None
    )
    counts, mass, found, posterior = reference.expect(indptr, cell, weight, log_score, log_prior, truth)
    expected = np.zeros((M * K, K))
    for (n, _, _, x), c in zip(rows, cell, strict=True):
        expected[c] += x * q[n]
    assert np.allclose(posterior, q, atol=1e-10)
    assert abs(found - log_likelihood) < 1e-10
    assert np.allclose(counts, expected, atol=1e-10)
    assert np.allclose(mass, q.sum(axis=0), atol=1e-10)


CASES = {
    "plain": {},
    "weighted": {"weighted": True},
    "gold": {"gold": 0.3},
    "prior per item": {"per_item": True},
    "everything": {"weighted": True, "gold": 0.2, "per_item": True},
    "many classes": {"K": 23, "M": 4},
    "two classes": {"K": 2},
    "one vote each": {"mean": 1.0},
    "mostly empty": {"mean": 0.05, "N": 50},
    "sharp scores": {"sharp": 200.0},
    "one item": {"N": 1, "mean": 500.0},
    "no votes": {"N": 4, "mean": 0.0},
}


@pytest.mark.parametrize("name", CASES)
def test_native_equals_reference(name):
    for seed in range(5):
        arguments = problem(seed, **CASES[name])
        plain = reference.expect(*arguments)
        for threads in (1, 2, 5):
            compiled = native.expect(*arguments, threads=threads)
            for a, b in zip(plain, compiled, strict=True):
                assert np.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.fixture(params=["embedding_bag", "triton"])
def sums_of_torch(request, monkeypatch):
    """How torch sums; Triton's kernel is interpreted (``TRITON_INTERPRET``, see conftest.py)."""
    if request.param == "triton":
        need_module("triton")
        monkeypatch.setattr(cuda, "triton_works", lambda device: cuda.bag_sums.works(device))


@pytest.mark.parametrize("name", CASES)
def test_torch_equals_reference(name, sums_of_torch, monkeypatch):
    monkeypatch.setattr(cuda, "PIECE", 3)  # bags are cut into pieces, and pieces of pieces
    for seed in range(3):
        arguments = problem(seed, **CASES[name])
        plain = reference.expect(*arguments)
        for _ in range(2):  # moved to the device, and there already
            for a, b in zip(plain, cuda.expect(*arguments, device="cpu"), strict=True):
                assert np.allclose(a, b, rtol=1e-10, atol=1e-10)
    bare = cuda.expect(*arguments, posterior=False, device="cpu")
    assert bare[3].shape == (0, plain[3].shape[1])
    assert len(cuda._resident) <= cuda.KEPT
    cuda.release()


@pytest.mark.parametrize("module", ["native", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_sums_over_votes_equal_the_reference(name, module, monkeypatch):
    monkeypatch.setattr(cuda, "PIECE", 3)
    given = {"device": "cpu"} if module == "cuda" else {"threads": 3}
    other = {"native": native, "cuda": cuda}[module]
    for seed in range(3):
        arguments = problem(seed, **CASES[name])
        C, q = len(arguments[3]), reference.expect(*arguments)[3]
        expected, found = reference.scatter(*arguments[:3], q, C), other.scatter(*arguments[:3], q, C, **given)
        assert expected.shape == found.shape
        assert np.allclose(expected, found, rtol=1e-10, atol=1e-10)
    cuda.release()


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 5))
def test_top_class_and_agreements_equal_the_reference(seed, N, K):
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 3, (N, K)) / 4.0  # ties are frequent
    for a, b in zip(reference.top_class(q, 1e-9), native.top_class(q, 1e-9), strict=True):
        assert np.array_equal(a, b)
    indptr = np.concatenate([[0], np.cumsum(rng.poisson(2.0, N))])
    who, label = rng.integers(0, 4, indptr[-1]), rng.integers(0, K, indptr[-1])
    decided = rng.integers(0, K, N)
    for a, b in zip(
        reference.agreements(indptr, who, label, decided, 5), native.agreements(indptr, who, label, decided, 5),
        strict=True,
    ):  # fmt: skip
        assert np.array_equal(a, b)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 5, 31, 33, 70]), st.sampled_from([0.3, 4.0, 90.0]), st.booleans())
def test_sums_of_triton_equal_the_plain_ones(seed, K, mean, weighted):
    need_module("triton")
    rng = np.random.default_rng(seed)
    size = rng.poisson(mean, rng.integers(1, 20))
    ends = np.concatenate([[0], np.cumsum(size)])
    rows = rng.integers(0, 7, ends[-1])
    table, weight = rng.normal(size=(7, K)), rng.gamma(2.0, 0.5, len(rows))
    expected = np.zeros((len(size), K))
    np.add.at(expected, np.repeat(np.arange(len(size)), size), table[rows] * (weight[:, None] if weighted else 1.0))
    given = [torch.from_numpy(part) for part in (rows.astype(np.int32), table, ends)]
    found = cuda.bag_sums.bag_sums(*given, torch.from_numpy(weight) if weighted else None)
    assert np.allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_without_a_compiler_torch_sums_and_says_so(monkeypatch):
    need_module("triton")

    def fails(*_):
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(cuda.bag_sums, "bag_sums", fails)
    cuda.bag_sums.works.cache_clear()
    with pytest.warns(RuntimeWarning, match="Triton does not work here .*C compiler"):
        assert not cuda.bag_sums.works(torch.device("cpu"))
    cuda.bag_sums.works.cache_clear()
    assert not cuda.triton_works(torch.device("cpu"))  # no kernel of Triton's but on a GPU


def test_torch_follows_the_arrays_it_is_given():
    first, second = problem(0), problem(1)
    for arguments in (first, second, first):
        got = cuda.expect(*arguments, device="cpu")
        assert np.allclose(got[0], reference.expect(*arguments)[0])
    cuda.release()


def test_native_gives_exact_zeros_where_numpy_does():
    log_score = np.array([[-1.0, -1200.0], [-1200.0, -1.0]])
    for engine in (reference, native):
        _, _, _, q = engine.expect(
            np.array([0, 1, 2]), np.array([0, 1], dtype=np.int32), NONE, log_score, np.zeros((1, 2)), NO_TRUTH
        )
        assert q.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_native_leaves_out_the_posterior_when_not_asked():
    arguments = problem(0)
    full, bare = native.expect(*arguments), native.expect(*arguments, posterior=False)
    assert bare[3].shape == (0, 3)
    assert np.array_equal(full[0], bare[0])


@pytest.mark.parametrize("engine", [reference, native])
def test_a_hundred_thousand_votes_on_one_item_do_not_underflow(engine):
    S, M, K = 100_000, 50, 3
    rng = np.random.default_rng(0)
    theta = np.full((M, K, K), 0.3) + 0.1 * np.eye(K)
    cell = (np.arange(S) % M * K + rng.choice(K, S, p=[0.3, 0.4, 0.3])).astype(np.int32)
    log_score = np.log(theta.transpose(0, 2, 1)).reshape(-1, K)
    counts, mass, log_likelihood, q = engine.expect(
        np.array([0, S]), cell, NONE, log_score, np.log(np.full((1, K), 1 / K)), NO_TRUTH
    )
    assert q[0].argmax() == 1
    assert np.isfinite(q).all()
    assert abs(q.sum() - 1.0) < 1e-12
    assert np.isfinite(log_likelihood)
    assert abs(counts.sum() - S) < 1e-6


@pytest.mark.parametrize("weighted", [False, True])
def test_scatter_equals_its_definition(weighted):
    indptr, cell, weight, log_score, _, _ = problem(3, weighted=weighted)
    q = np.random.default_rng(0).dirichlet(np.ones(3), len(indptr) - 1)
    expected = np.zeros((len(log_score), 3))
    for n in range(len(indptr) - 1):
        for s in range(indptr[n], indptr[n + 1]):
            expected[cell[s]] += (weight[s] if weighted else 1.0) * q[n]
    assert np.allclose(reference.scatter(indptr, cell, weight, q, len(log_score)), expected)
    assert np.allclose(native.scatter(indptr, cell, weight, q, len(log_score), threads=3), expected)


@given(st.integers(0, 10**6), st.booleans())
def test_cooccurrence_equals_a_dense_product(seed, weighted):
    indptr, cell, weight, log_score, _, _ = problem(seed, N=12, M=3, K=2, mean=3.0, weighted=weighted)
    C = len(log_score)
    w = weight if weighted else np.ones(len(cell))
    dense = np.zeros((C, C))
    for n in range(len(indptr) - 1):
        votes = range(indptr[n], indptr[n + 1])
        for s in votes:
            for t in votes:
                if s != t:
                    dense[cell[s], cell[t]] += w[s] * w[t]
    for engine in (reference, native):
        rows, indices, values = engine.cooccurrence(indptr, cell, weight, C)
        found = np.zeros((C, C))
        for c in range(C):
            assert (np.diff(indices[rows[c] : rows[c + 1]]) > 0).all()
            found[c, indices[rows[c] : rows[c + 1]]] = values[rows[c] : rows[c + 1]]
        assert np.allclose(found, dense)
        assert len(values) == (dense > 0).sum()


def test_the_path_is_chosen_by_the_amount_of_work(monkeypatch):
    with kernels.using("native"):
        assert kernels.choose(1000) is native
    with kernels.using("reference"):
        assert kernels.choose(10**9) is reference
    assert kernels.choose(10**9) is native
    assert kernels.choose(1000) is reference
    monkeypatch.setenv("CROWDWISE_ENGINE", "native")
    assert kernels.choose(10) is native


def test_threads_are_few_where_their_tables_would_cost_more_than_the_votes(monkeypatch):
    monkeypatch.setenv("CROWDWISE_THREADS", "8")
    assert threads_for(10_000_000, 1000) == 8
    assert threads_for(1_000_000, 2_000_000) == 1
    assert threads_for(1000, 10) == 1
