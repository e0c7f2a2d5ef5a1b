"""ibcc: the bound against plain loops and the exact evidence, draws against enumeration, real crowds."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, gammaln

import crowdwise as cw
from brute import rows_of
from crowdwise.errors import ConvergenceWarning, ParameterError
from crowdwise.methods.bayes_ibcc import divergence, draw_log_dirichlet, drawn, expected_log


def tiny(seed, weighted=False, N=5, M=3, K=2):
    rng = np.random.default_rng(seed)
    present = rng.random((N, M)) < 0.8
    present[0] = True
    item, annotator = np.nonzero(present)
    weight = rng.gamma(2.0, 0.5, len(item)) + 0.05 if weighted else None
    names = {"items": range(N), "annotators": [f"a{m}" for m in range(M)], "classes": range(K)}
    return cw.Votes.from_codes(item, annotator, rng.integers(0, K, len(item)), weight=weight, **names)


def fit(votes, truth=None, item_prior=None, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cw.IBCC(**params).fit(votes, truth, item_prior=item_prior).consensus_


def log_beta(a):
    return sum(gammaln(x) for x in a) - gammaln(sum(a))


def plain_loop(votes, b0, a0, passes, gold=None, item_prior=None):
    """Variational Bayes from its definition, one number at a time: q, and the ELBO with entropies written out."""
    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    rows = rows_of(votes)
    q = votes.shares()
    known = [] if gold is None else [n for n in range(N) if gold[n] >= 0]
    for n in known:
        q[n] = np.eye(K)[gold[n]]
    for _ in range(passes):
        a = [a0 + sum(q[n, k] for n in range(N)) for k in range(K)]
        b = [[[float(b0[k][j]) for j in range(K)] for k in range(K)] for m in range(M)]
        for n, m, label, w in rows:
            for k in range(K):
                b[m][k][label] += w * q[n, k]
        log_pi = [digamma(a[k]) - digamma(sum(a)) for k in range(K)]
        log_theta = [[[digamma(x) - digamma(sum(row)) for x in row] for row in matrix] for matrix in b]
        logit = [
            [log_pi[k] + (math.log(item_prior[n][k]) if item_prior is not None else 0.0) for k in range(K)]
            for n in range(N)
        ]
        for n, m, label, w in rows:
            for k in range(K):
                logit[n][k] += w * log_theta[m][k][label]
        for n in range(N):
            p = [math.exp(x - max(logit[n])) for x in logit[n]]
            q[n] = np.array(p) / sum(p)
        for n in known:
            q[n] = np.eye(K)[gold[n]]
    # E log p(votes, z, pi, theta) - E log q(z, pi, theta)
    elbo = sum(q[n, k] * (logit[n][k] - math.log(q[n, k])) for n in range(N) for k in range(K) if q[n, k] > 0)
    elbo += sum((a0 - a[k]) * log_pi[k] for k in range(K)) - log_beta([a0] * K) + log_beta(a)
    for m in range(M):
        for k in range(K):
            elbo += sum((b0[k][j] - b[m][k][j]) * log_theta[m][k][j] for j in range(K))
            elbo += log_beta(b[m][k]) - log_beta(b0[k])
    return q, elbo


def exact(votes, b0, a0, gold=None):
    """log p(votes) and P(z_n | votes), over all truths, with parameters integrated out (Dirichlet-multinomials)."""
    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    rows = rows_of(votes)
    logs, truths = [], []
    for z in itertools.product(*(range(K) if gold is None or gold[n] < 0 else [gold[n]] for n in range(N))):
        value = log_beta([a0 + z.count(k) for k in range(K)]) - log_beta([a0] * K)
        counts = np.zeros((M, K, K))
        for n, m, label, w in rows:
            counts[m, z[n], label] += w
        for m in range(M):
            value += sum(log_beta(b0[k] + counts[m, k]) - log_beta(b0[k]) for k in range(K))
        logs.append(value)
        truths.append(z)
    top = max(logs)
    p = np.exp(np.array(logs) - top)
    q = np.array([[p[[t[n] == k for t in truths]].sum() for k in range(K)] for n in range(N)]) / p.sum()
    return top + math.log(p.sum()), q


PRIOR = np.array([[4.0, 1.0, 1.5], [1.0, 4.0, 0.5], [2.0, 1.0, 3.0]])


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_bound_and_posterior_equal_a_plain_loop_pass_by_pass(seed, weighted, informed):
    votes = tiny(seed, weighted, K=3)
    item_prior = np.random.default_rng(seed).dirichlet(np.ones(3), 5) if informed else None
    for passes in (1, 3):
        found = fit(votes, None, item_prior, prior=PRIOR, class_alpha=0.7, max_iter=passes, tol=0.0, accelerate=False)
        q, elbo = plain_loop(votes, PRIOR, 0.7, passes, None, item_prior)
        assert np.allclose(found.posterior, q, atol=1e-10)
        assert abs(found.objective - elbo) < 1e-8


def test_known_truths_enter_the_bound_as_in_a_plain_loop():
    votes, gold = tiny(3, K=3), np.array([2, -1, 0, -1, -1], dtype=np.int32)
    begin = votes.shares()
    begin[[0, 2]] = np.eye(3)[[2, 0]]
    found = fit(votes, gold, prior=PRIOR, start=begin, max_iter=4, tol=0.0, accelerate=False)
    q, elbo = plain_loop(votes, PRIOR, 1.0, 4, gold)
    assert np.allclose(found.posterior, q, atol=1e-10)
    assert abs(found.objective - elbo) < 1e-8


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans())
def test_bound_is_below_the_exact_evidence_and_rises(seed, known):
    votes = tiny(seed)
    gold = np.array([1, -1, -1, 0, -1], dtype=np.int32) if known else None
    found = fit(votes, gold, tol=1e-12)
    evidence, _ = exact(votes, np.array([[4.0, 1.0], [1.0, 4.0]]), 1.0, gold)
    assert found.objective <= evidence + 1e-9
    assert found.objective > evidence - 5.0
    assert (np.diff(found.trace) >= -1e-9).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_gibbs_draws_from_the_exact_posterior(weighted, known):
    votes = tiny(11, weighted)
    gold = np.array([1, -1, -1, -1, -1], dtype=np.int32) if known else None
    found = fit(votes, gold, inference="gibbs", burn_in=200, samples=4000, class_alpha=1.5, random_state=1)
    _, q = exact(votes, np.array([[4.0, 1.0], [1.0, 4.0]]), 1.5, gold)
    error = found.item_columns["simulation_error"]
    assert np.abs(found.posterior - q).max() < 0.03
    assert (np.abs(found.posterior - q).max(axis=1) < 5.0 * error + 1e-3).all()
    assert found.objective is None
    # The variational answer is the same opinion, held more firmly.
    assert np.abs(fit(votes, gold, class_alpha=1.5).posterior - q).max() < 0.3


def test_gibbs_repeats_by_seed_and_agrees_with_another_within_its_error():
    sim = cw.simulate.dirichlet(150, n_annotators=12, n_classes=3, votes_per_item=4, random_state=2)
    seen = []
    model = cw.IBCC(inference="gibbs", burn_in=30, samples=200, random_state=1)
    a = model.fit(sim.votes, callback=seen.append).consensus_
    b = fit(sim.votes, inference="gibbs", burn_in=30, samples=200, random_state=1)
    c = fit(sim.votes, inference="gibbs", burn_in=30, samples=200, random_state=2)
    assert np.array_equal(a.posterior, b.posterior)
    assert not np.array_equal(a.posterior, c.posterior)
    gap = np.abs(a.posterior - c.posterior).max(axis=1)
    assert gap.mean() < 4.0 * a.item_columns["simulation_error"].mean() + 0.01
    assert seen[-1].iteration == seen[-1].max_iter == a.iterations
    assert np.allclose(a.confusion.sum(axis=2), 1.0)
    assert (model.predict(sim.votes) == a.labels).mean() > 0.97


def test_a_longer_chain_has_less_simulation_error():
    sim = cw.simulate.dirichlet(100, n_annotators=8, n_classes=2, votes_per_item=3, random_state=0)
    short, long = (
        fit(sim.votes, inference="gibbs", burn_in=50, samples=n, random_state=3).item_columns["simulation_error"].mean()
        for n in (100, 1600)
    )
    assert long < 0.5 * short


def test_draws_have_the_moments_of_a_dirichlet_however_small_its_parameters():
    rng = np.random.default_rng(0)
    a = np.array([0.5, 2.0, 4.5])
    draws = np.exp(draw_log_dirichlet(np.tile(a, (40_000, 1)), 1, rng))
    assert np.allclose(draws.mean(axis=0), a / 7.0, atol=0.01)
    assert np.allclose(draws.var(axis=0), a / 7.0 * (1 - a / 7.0) / 8.0, atol=0.005)
    tiny_ones = draw_log_dirichlet(np.full((1000, 3), 1e-3), 1, rng)
    assert np.isfinite(tiny_ones).all()
    assert np.allclose(np.exp(tiny_ones).sum(axis=1), 1.0)


def test_divergence_is_that_of_draws():
    a, a0 = np.array([[3.0, 1.5, 0.8]]), np.array([[1.0, 2.0, 1.0]])
    log_p = draw_log_dirichlet(np.tile(a, (200_000, 1)), 1, np.random.default_rng(1))
    density = [((x - 1.0) * log_p).sum(axis=1) - log_beta(x[0]) for x in (a, a0)]
    assert abs(divergence(a, a0, expected_log(a, 1), 1) - (density[0] - density[1]).mean()) < 0.02
    assert divergence(a, a, expected_log(a, 1), 1) == pytest.approx(0.0, abs=1e-12)


def test_the_ways_to_give_a_prior_agree():
    sim = cw.simulate.dirichlet(100, n_annotators=6, n_classes=3, votes_per_item=3, random_state=1)
    square = np.full((3, 3), 2.0) + 3.0 * np.eye(3)
    base = fit(sim.votes, prior=(5, 2), class_alpha=1.1).posterior
    assert np.array_equal(base, fit(sim.votes, prior=square, class_alpha=[1.1] * 3).posterior)
    assert np.array_equal(base, fit(sim.votes, prior=np.tile(square, (6, 1, 1)), class_alpha=1.1).posterior)
    assert np.array_equal(fit(sim.votes).posterior, fit(sim.votes, prior=(4.0, 1.0)).posterior)
    assert not np.allclose(base, fit(sim.votes).posterior)


def test_history_stays_in_force_through_the_fit():
    """Somebody with a long record of saying the opposite is read backwards, whatever the others say at first."""
    sim = cw.simulate.one_coin(60, n_annotators=5, n_classes=2, votes_per_item=3, random_state=0)
    past = {"a0": [[1, 1e6], [1e6, 1]]}
    found = fit(sim.votes, history=past)
    assert found.confusion[0, 0, 1] > 0.99
    own = sim.votes.annotator == 0
    agrees = (found.label_codes[sim.votes.item[own]] == sim.votes.label[own]).mean()
    assert agrees < 0.2
    assert found.confusion[1, 0, 0] != fit(sim.votes).confusion[1, 0, 0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prior": np.ones((2, 3))}, r"prior has shape \(2, 3\): expected a number"),
        ({"class_alpha": [1.0, 2.0]}, r"class_alpha=\[1.0, 2.0\]: expected a number above 0, or 3"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(params, message):
    sim = cw.simulate.dirichlet(30, n_annotators=5, n_classes=3, votes_per_item=3, random_state=0)
    with pytest.raises(ParameterError, match=message):
        cw.IBCC(**params).fit(sim.votes)


def test_confusion_is_recovered_as_votes_grow():
    gaps = []
    for n in (100, 400, 3000):
        sim = cw.simulate.dirichlet(n, n_annotators=10, n_classes=3, votes_per_item=8, random_state=5)
        gaps.append(np.abs(fit(sim.votes).confusion - sim.parameters["confusion"]).mean())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02


def test_sparse_votes_are_answered_with_less_overconfidence_than_by_dawid_skene():
    losses = {"ibcc": 0.0, "dawid-skene": 0.0}
    for seed in range(3):
        sim = cw.simulate.dirichlet(300, n_annotators=60, n_classes=4, votes_per_item=3, random_state=seed)
        for key in losses:
            losses[key] += float(cw.metrics.log_loss(cw.aggregate(sim.votes, key), sim.truth))
    assert losses["ibcc"] < 0.7 * losses["dawid-skene"]


def test_noise_is_tied_neither_to_names_nor_to_rows():
    records = [("x", "a", "u"), ("y", "a", "v"), ("z", "b", "u"), ("x", "b", "v"), ("y", "c", "u"), ("x", "c", "u")]
    one, other = cw.Votes.from_records(records), cw.Votes.from_records(records[::-1], classes=["v", "u"])
    a, b = (drawn(v, None, np.random.default_rng(0), 2) for v in (one, other))
    rows = [one.items.tolist().index(i) for i in other.items.tolist()]
    assert np.array_equal(a[rows][:, ::-1], b)


PUBLISHED = {
    "bluebird": 88.89, "dog": 83.89, "rte": 92.75, "trec2010_binary": 70.55, "d_product": 93.83, "d_sentiment": 96.00,
    "face": 64.04, "music_genre": 79.00, "web": 75.08, "s_adult": 74.47,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_reaches_the_published_accuracy(name, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    assert abs(100.0 * cw.aggregate(votes, "ibcc").score(votes.truth) - PUBLISHED[name]) < 0.05


@pytest.mark.slow
def test_gibbs_on_real_crowds(real):
    for name, least in (("bluebird", 0.87), ("rte", 0.92), ("d_sentiment", 0.955)):
        votes = cw.read_dataset(real(name), on_duplicate="all").votes
        found = cw.aggregate(votes, "ibcc", inference="gibbs", burn_in=50, samples=150)
        assert found.score(votes.truth) >= least
