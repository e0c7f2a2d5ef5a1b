"""Sums over taggings: against enumeration, and against sums of logarithms term by term."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from crowdwise.kernels import chains, reference

NONE = np.empty(0)


def problem(seed, G=4, M=3, K=3, mean=1.5, longest=4, weighted=False, gold=False, sharp=1.0):
    """Random sequences, votes, scores and a chain in which some steps are impossible."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, longest + 1, G))])
    T = starts[-1]
    indptr = np.concatenate([[0], np.cumsum(rng.poisson(mean, T))])
    S = indptr[-1]
    cell = rng.integers(0, M * K, S).astype(np.int32)
    weight = rng.gamma(2.0, 0.5, S) if weighted else NONE
    log_score = sharp * np.log(rng.dirichlet(np.ones(K), M * K))
    P = rng.dirichlet(np.ones(K), K + 1)
    P[0, K - 1] = P[1, K - 1] = 0.0
    truth = np.empty(0, np.int32)
    if gold:  # of the two classes between which every step is possible
        truth = np.where(rng.random(T) < 0.3, rng.integers(0, K - 1, T), -1).astype(np.int32)
    with np.errstate(divide="ignore"):
        log_prior = np.log(P / P.sum(axis=1, keepdims=True))
    return indptr, cell, weight, log_score, log_prior, truth, starts


def enumerate_taggings(indptr, cell, weight, log_score, log_prior, truth, starts):
    """Posterior, chain counts, log-likelihood and the best tagging, one tagging after another."""
    K, T = log_score.shape[1], starts[-1]
    P = np.exp(log_prior)
    q, chain, total, best_path = np.zeros((T, K)), np.zeros((K + 1, K)), 0.0, []
    for lo, hi in itertools.pairwise(starts):
        z, part, steps, best = 0.0, np.zeros((hi - lo, K)), np.zeros((K + 1, K)), (-1.0, ())
        for y in itertools.product(range(K), repeat=int(hi - lo)):
            if len(truth) and any(truth[lo + t] not in (-1, k) for t, k in enumerate(y)):
                continue
            p = P[0, y[0]] * np.prod([P[j + 1, k] for j, k in itertools.pairwise(y)])
            for t, k in enumerate(y):
                for s in range(indptr[lo + t], indptr[lo + t + 1]):
                    p *= np.exp((weight[s] if len(weight) else 1.0) * log_score[cell[s], k])
            z += p
            best = max(best, (p, y))
            for t, k in enumerate(y):
                part[t, k] += p
            steps[0, y[0]] += p
            for j, k in itertools.pairwise(y):
                steps[j + 1, k] += p
        q[lo:hi] = part / z
        chain += steps / z
        total += np.log(z)
        best_path += best[1]
    return q, chain, total, best_path


def term_by_term(indptr, cell, weight, log_score, log_prior, truth, starts):
    """As :func:`chains.expect`, sequence by sequence, with no product that could vanish."""
    e, log_A = chains.emissions(indptr, cell, weight, log_score, truth), log_prior[1:]
    a, b, total, chain = np.empty_like(e), np.zeros_like(e), 0.0, np.zeros_like(log_prior)
    with np.errstate(divide="ignore"):
        for lo, hi in itertools.pairwise(starts):
            a[lo] = log_prior[0] + e[lo]
            for t in range(lo + 1, hi):
                a[t] = np.logaddexp.reduce(a[t - 1][:, None] + log_A, axis=0) + e[t]
            for t in range(hi - 1, lo, -1):
                b[t - 1] = np.logaddexp.reduce(log_A + e[t] + b[t], axis=1)
            evidence = np.logaddexp.reduce(a[hi - 1])
            for t in range(lo + 1, hi):
                chain[1:] += np.exp(a[t - 1][:, None] + log_A + e[t] + b[t] - evidence)
            a[lo:hi] -= evidence
            total += evidence
    q = np.exp(a + b)
    q /= q.sum(axis=1, keepdims=True)
    chain[0] = q[starts[:-1]].sum(axis=0)
    return reference.scatter(indptr, cell, weight, q, len(log_score)), chain, total, q


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gold", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_everything_equals_enumeration(seed, weighted, gold):
    given = problem(seed, weighted=weighted, gold=gold)
    indptr, cell, weight, log_score, log_prior, truth, starts = given
    q, chain, total, best = enumerate_taggings(*given)
    counts, found_chain, found_total, found = chains.expect(*given)
    np.testing.assert_allclose(found, q, atol=1e-10)
    np.testing.assert_allclose(found_chain, chain, atol=1e-10)
    assert found_total == pytest.approx(total, abs=1e-10)
    expected = np.zeros_like(log_score)
    token = np.repeat(np.arange(len(q)), np.diff(indptr))
    np.add.at(expected, cell, (weight if weighted else np.ones(len(cell)))[:, None] * q[token])
    np.testing.assert_allclose(counts, expected, atol=1e-10)
    e = chains.emissions(indptr, cell, weight, log_score, truth)
    assert chains.viterbi(e, log_prior, starts).tolist() == best


@pytest.mark.parametrize("sharp", [1.0, 300.0, 5000.0])
def test_probabilities_that_vanish_are_summed_term_by_term(sharp):
    given = problem(7, G=60, M=5, K=4, mean=6.0, longest=30, sharp=sharp)
    for a, b in zip(term_by_term(*given), chains.expect(*given), strict=True):
        assert np.isfinite(b).all()
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-7)


def test_statistics_of_parts_add_up():
    indptr, cell, weight, log_score, log_prior, truth, starts = problem(5, G=10)
    whole = chains.expect(indptr, cell, weight, log_score, log_prior, truth, starts)
    cut = starts[4]
    first = chains.expect(indptr[: cut + 1], cell[: indptr[cut]], weight, log_score, log_prior, truth, starts[:5])
    second = chains.expect(
        indptr[cut:] - indptr[cut], cell[indptr[cut] :], weight, log_score, log_prior, truth, starts[4:] - cut
    )
    for n in range(3):
        np.testing.assert_allclose(whole[n], first[n] + second[n], atol=1e-9)


def test_ties_go_to_the_first_class():
    assert chains.viterbi(np.zeros((3, 2)), np.zeros((3, 2)), np.array([0, 3])).tolist() == [0, 0, 0]
