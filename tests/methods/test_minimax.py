"""Minimax conditional entropy: its gradients, its optimum, what it is for, and the published figures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

import crowdwise as cw
from crowdwise.core.numerics import posterior_and_evidence
from crowdwise.core.vote_order import Canonical
from crowdwise.errors import InputError
from crowdwise.methods import entropy_minimax as mm


def edges_of(sim):
    c = Canonical.of(sim.votes)
    N, M, K = c.shape
    return c, mm.VoteEdges(c.item, c.annotator, c.label, c.weight, N, M), (N, M, K)


def small(seed=0, n=6, M=4, K=3):
    return cw.simulate.dirichlet(n, n_annotators=M, n_classes=K, votes_per_item=3, random_state=seed)


def unpack(x, M, N, K):
    cut = M * K * K
    return x[:cut].reshape(M, K, K), x[cut:].reshape(N, K, K)


def plain_loss(x, c, q, a, b):
    """The loss of the parameters, written vote by vote."""
    N, M, K = c.shape
    sigma, tau = unpack(x, M, N, K)
    value = 0.5 * a * (sigma**2).sum() + 0.5 * b * (tau**2).sum()
    for n, m, label, w in zip(c.item, c.annotator, c.label, c.weight, strict=True):
        for k in range(K):
            z = sigma[m, k] + tau[n, k]
            value -= w * q[n, k] * (z[label] - np.log(np.exp(z).sum()))
    return value


def test_the_loss_is_the_formula_and_its_gradient_is_right():
    c, e, (N, M, K) = edges_of(small())
    rng = np.random.default_rng(1)
    q = rng.dirichlet(np.ones(K), N)
    x = rng.normal(size=(N + M) * K * K)

    def value(x):
        return mm.loss(e, q, *unpack(x, M, N, K), 0.7, 1.3)[0]

    def gradient(x):
        _, d_sigma, d_tau = mm.loss(e, q, *unpack(x, M, N, K), 0.7, 1.3)
        return np.concatenate([d_sigma.ravel(), d_tau.ravel()])

    assert np.isclose(value(x), plain_loss(x, c, q, 0.7, 1.3))
    assert check_grad(value, gradient, x) < 1e-4


def test_the_concave_step_finds_what_a_generic_solver_finds():
    c, e, (N, M, K) = edges_of(small(1, n=5, M=3, K=2))
    q = np.random.default_rng(0).dirichlet(np.ones(K), N)
    sigma, tau = mm.fit_terms(e, q, np.zeros((M, K, K)), np.zeros((N, K, K)), 0.5, 0.8, 500, 1e-12)
    generic = minimize(plain_loss, np.zeros((N + M) * K * K), args=(c, q, 0.5, 0.8), method="BFGS")
    assert np.isclose(mm.loss(e, q, sigma, tau, 0.5, 0.8)[0], generic.fun, atol=1e-6)
    assert np.allclose(np.concatenate([sigma.ravel(), tau.ravel()]), generic.x, atol=1e-3)


def test_at_the_optimum_the_moments_agree_but_for_the_penalty():
    """Primal feasibility: observed less expected counts of an annotator (an item) are penalty times sigma (tau)."""
    _, e, (N, M, K) = edges_of(small(2, n=20, M=6))
    q = np.random.default_rng(0).dirichlet(np.ones(K), N)
    sigma, tau = mm.fit_terms(e, q, np.zeros((M, K, K)), np.zeros((N, K, K)), 0.5, 0.8, 500, 1e-14)
    for k in range(K):
        p, _ = mm.answers(e, sigma, tau, k)
        for label in range(K):
            gap = e.weight * q[e.item, k] * ((e.label == label) - p[label])
            assert np.allclose(e.per_annotator(gap), 0.5 * sigma[:, k, label], atol=1e-4)
            assert np.allclose(e.per_item(gap), 0.8 * tau[:, k, label], atol=1e-4)


@pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
def test_the_objective_is_the_penalised_likelihood_and_never_falls():
    sim = cw.simulate.dirichlet(80, n_annotators=10, n_classes=3, votes_per_item=4, random_state=3)
    consensus = cw.aggregate(sim.votes, "minimax", tol=0.0, max_iter=15)
    assert (np.diff(consensus.trace) >= -1e-7).all()
    c, e, (N, M, K) = edges_of(sim)
    sigma, tau = np.random.default_rng(0).normal(size=(2, 1, K, K))
    sigma, tau = np.tile(sigma, (M, 1, 1)), np.tile(tau, (N, 1, 1))
    _, evidence = posterior_and_evidence(mm.logits(e, sigma, tau, np.full((N, K), -np.log(K))), c.gold)
    direct = 0.0
    theta = np.exp(sigma[0] + tau[0])
    theta /= theta.sum(axis=1, keepdims=True)
    for n in range(N):
        direct += np.log(np.prod(theta[:, c.label[c.item == n]], axis=1).mean())
    assert np.isclose(evidence.sum(), direct)


def test_the_terms_of_items_are_a_fixed_point():
    """Given the annotators, an item's terms minimise its own loss under its own truth distribution."""
    sim = cw.simulate.dirichlet(30, n_annotators=8, n_classes=3, votes_per_item=6, random_state=0)
    c, e, (N, M, K) = edges_of(sim)
    sigma = np.random.default_rng(0).normal(size=(M, K, K)) + 2.0 * np.eye(K)
    log_prior = np.full((N, K), -np.log(K))
    q, tau = mm.item_terms(e, sigma, log_prior, c.gold, 2.0)
    again, _ = posterior_and_evidence(mm.logits(e, sigma, tau, log_prior), c.gold)
    assert np.allclose(q, again, atol=1e-7)
    assert np.abs(mm.loss(e, q, sigma, tau, 1.0, 2.0)[2]).max() < 1e-6


def test_a_heavy_item_penalty_takes_the_items_out():
    sim = cw.simulate.dirichlet(100, n_annotators=10, n_classes=3, votes_per_item=5, random_state=0)
    model = cw.Minimax(item_penalty=1e9).fit(sim.votes)
    assert np.abs(model.tau_).max() < 1e-6
    q = posterior_and_evidence(sum_log(sim.votes, model.consensus_.confusion), np.full(len(sim.votes), -1))[0]
    assert np.allclose(q, model.consensus_.posterior, atol=1e-5)


def sum_log(votes, theta):
    out = np.zeros((len(votes), votes.n_classes))
    np.add.at(out, votes.item, np.log(theta[votes.annotator, :, votes.label]))
    return out


def test_penalties_are_those_of_the_paper():
    sim = cw.simulate.dirichlet(120, n_annotators=10, n_classes=3, votes_per_item=5, random_state=0)
    usual = cw.aggregate(sim.votes, "minimax")
    ratio = sim.votes.n_votes / 10 / 5
    given = cw.aggregate(sim.votes, "minimax", annotator_penalty=9 / 4, item_penalty=9 / 4 * ratio)
    assert np.allclose(usual.posterior, given.posterior, atol=1e-9)


def hard_and_easy(n, seed=0):
    """A quarter of the items are a coin toss for everybody, whoever is asked."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    hard = np.arange(n) < n // 4
    right = np.where(hard, 0.5, 0.9)
    label = np.where(rng.random((n, 20)) < right[:, None], truth[:, None], 1 - truth[:, None])
    return cw.Votes.from_dense(label), hard


def test_difficulty_tells_hard_items_from_easy_ones():
    votes, hard = hard_and_easy(200)
    difficulty = cw.aggregate(votes, "minimax").item_columns["difficulty"]
    assert difficulty[hard].mean() > difficulty[~hard].mean() + 0.1
    assert np.mean(difficulty[hard][:, None] > difficulty[~hard][None]) > 0.85


def test_error_falls_as_votes_grow():
    wrong = []
    for r in (2, 5, 12):
        sim = cw.simulate.dirichlet(400, n_annotators=20, n_classes=3, votes_per_item=r, random_state=0)
        wrong.append(1 - cw.aggregate(sim.votes, "minimax").score(sim.truth))
    assert wrong[0] > wrong[1] > wrong[2]
    assert wrong[2] < 0.03


def test_known_truth_turns_a_crowd_of_which_most_are_wrong():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200)
    right = np.array([0.9, 0.9, 0.9, 0.2, 0.2, 0.2, 0.2, 0.2])
    votes = cw.Votes.from_dense(np.where(rng.random((200, 8)) < right, truth[:, None], 1 - truth[:, None]))
    gold = np.where(np.arange(200) < 40, truth, -1).astype(np.int32)
    rest = np.where(np.arange(200) < 40, -1, truth).astype(np.int32)
    assert cw.aggregate(votes, "minimax").score(rest) < 0.2
    assert cw.aggregate(votes, "minimax", gold=gold).score(rest) > 0.95


@pytest.mark.parametrize("limit", ["MAX_NUMBERS", "MAX_WORK"])
def test_what_is_too_large_is_refused_with_advice(monkeypatch, limit):
    monkeypatch.setattr(mm, limit, 100)
    with pytest.raises(InputError, match="Use anchored or dawid-skene"):
        cw.aggregate(cw.simulate.dirichlet(100, random_state=0).votes, "minimax")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error", "tolerance"),
    # Published: bluebird 8.33, web 11.10, rte 7.50, sentiment 4.20. TREC is reported to fail (91.6): it does not here.
    [("bluebird", 8.33, 0.95), ("web", 10.93, 0.4), ("rte", 7.38, 0.3), ("d_sentiment", 4.2, 0.2)],
)
def test_published_figures(name, error, tolerance, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    assert abs(100 - 100 * cw.aggregate(votes, "minimax").score(votes.truth) - error) <= tolerance


@pytest.mark.slow
def test_trec_does_not_collapse(real):
    votes = cw.read_dataset(real("trec2010_binary"), on_duplicate="all").votes
    assert 100 - 100 * cw.aggregate(votes, "minimax").score(votes.truth) < 31.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
def test_many_classes_and_few_votes_are_where_it_fails(real):
    """The penalty K^2 / 4 flattens the rows of rare classes, as add-one smoothing does to Dawid-Skene (54 %)."""
    votes = cw.read_dataset(real("music_genre"), on_duplicate="all").votes
    usual, light = (
        cw.aggregate(votes, "minimax", annotator_penalty=a, max_iter=8).score(votes.truth) for a in (None, 1.0)
    )
    assert usual < 0.6
    assert light > usual + 0.1
