"""Margins: the convex step against a generic solver, the sampler against enumeration, and the published figures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import invgauss, kstest

import crowdwise as cw
from crowdwise import registry
from crowdwise.core.vote_order import Canonical
from crowdwise.errors import InputError
from crowdwise.methods import entropy_crowd_svm as svm
from crowdwise.methods import entropy_m3v as mg


def recoded(sim):
    v = Canonical.of(sim.votes)
    N, _, K = v.shape
    return v, mg.scores(v.item, v.label, v.weight, N, K).argmax(axis=1)


def small(seed=0, n=12, M=5, K=3, r=4):
    return cw.simulate.dirichlet(n, n_annotators=M, n_classes=K, votes_per_item=r, random_state=seed)


def quadratic_programme(v, y, c):
    """The same problem with slack variables and one linear constraint per item and rival, by SLSQP."""
    N, M, K = v.shape
    V = np.zeros((N, K, M))
    np.add.at(V, (v.item, v.label, v.annotator), v.weight)
    rows = [(n, V[n, y[n]] - V[n, d]) for n in range(N) for d in range(K) if d != y[n]]
    G = np.array([np.concatenate([g, np.eye(N)[n]]) for n, g in rows])
    found = minimize(
        lambda x: 0.5 * x[:M] @ x[:M] + c * x[M:].sum(),
        np.concatenate([np.zeros(M), np.ones(N)]),
        jac=lambda x: np.concatenate([x[:M], np.full(N, c)]),
        constraints=[{"type": "ineq", "fun": lambda x: G @ x - 1.0, "jac": lambda x: G}],
        bounds=[(None, None)] * M + [(0, None)] * N,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return found.fun, found.x[:M]


@pytest.mark.parametrize("c", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("K", [2, 4])
def test_the_largest_margin_is_that_of_a_generic_solver(c, K):
    v, y = recoded(small(K=K))
    N, M, _ = v.shape
    omega = np.zeros((N, K))
    eta, value, bound = mg.largest_margin(v, y, c, omega, np.zeros(M), 1e-9)
    objective, weights = quadratic_programme(v, y, c)
    assert np.isclose(value, objective, rtol=1e-6)
    assert np.allclose(eta, weights, atol=1e-3)
    assert bound <= value + 1e-12
    assert np.allclose(eta, mg.weights_from(v, y, omega))
    assert (omega >= 0).all() and (omega.sum(axis=1) <= c + 1e-12).all()
    assert (omega[np.arange(N), y] == 0).all()


def test_a_bound_is_a_bound_however_early():
    v, y = recoded(small(1, n=40, M=8))
    N, M, K = v.shape
    _, best, _ = mg.largest_margin(v, y, 0.3, np.zeros((N, K)), np.zeros(M), 1e-9)
    _, value, bound = mg.largest_margin(v, y, 0.3, np.zeros((N, K)), np.zeros(M), 1e-12, limit=10)
    assert bound <= best <= value + 1e-9


def test_the_objective_never_falls_and_is_the_formula():
    sim = cw.simulate.one_coin(300, n_annotators=20, n_classes=4, votes_per_item=4, random_state=0)
    for cost in (1 / 256, 1 / 32, 1 / 4):
        consensus = cw.aggregate(sim.votes, "m3v", cost=cost)
        assert (np.diff(consensus.trace) >= 0).all()
    s = np.array([[2.0, 0.5, 0.0], [0.1, 0.3, 0.0]])
    assert np.allclose(mg.margins(s), [[1.5, -1.5, -2.0], [-0.2, 0.2, -0.3]])
    assert np.isclose(mg.primal(np.array([1.0, 2.0]), s, np.array([0, 0]), 0.5), 2.5 + 0.5 * (0.0 + 1.2))
    assert np.allclose(mg.margins(np.array([[1.0, 1.0]])), 0.0)


def test_the_smallest_costs_give_weights_in_one_direction():
    """Under some cost no margin is reached: then omega is c everywhere and eta is c times a vector."""
    sim = cw.simulate.one_coin(300, n_annotators=20, n_classes=2, votes_per_item=5, random_state=0)
    one, other = (cw.aggregate(sim.votes, "m3v", cost=c) for c in (1e-4, 1e-5))
    assert (one.labels == other.labels).all()
    assert np.allclose(one.annotator_columns["weight"], other.annotator_columns["weight"], rtol=1e-2)


def test_the_cost_is_the_one_whose_classes_make_the_votes_likeliest():
    picked = set()
    for seed in range(4):
        sim = cw.simulate.dirichlet(200, n_annotators=20, n_classes=4, votes_per_item=5, diagonal=2, random_state=seed)
        model = registry.create("m3v").fit(sim.votes)
        v = Canonical.of(sim.votes)
        start = sim.votes.shares()[np.ix_(v.item_order, v.class_order)]
        y = mg.decide(start, start.sum(axis=0))
        found = {}
        for cost in mg.COSTS:
            _, classes, _ = registry.create("m3v", cost=cost)._fit_cost(v, y, cost, 0, None)
            counts = np.zeros((20, 4, 4))
            np.add.at(counts, (v.annotator, classes[v.item], v.label), 1.0)
            phi = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1.0)
            found[cost] = np.log(phi[v.annotator, classes[v.item], v.label]).sum()
            assert np.isclose(found[cost], mg.vote_likelihood(v, classes))
        assert np.isclose(found[model.cost_], max(found.values()))
        picked.add(model.cost_)
    assert len(picked) > 1  # it is a choice


def test_weights_follow_skill_and_spammers_weigh_nothing():
    sim = cw.simulate.one_coin(600, n_annotators=15, n_classes=3, votes_per_item=6, random_state=2)
    consensus = cw.aggregate(sim.votes, "m3v")
    skill = sim.parameters["accuracy"]
    assert np.corrcoef(consensus.annotator_columns["weight"], skill)[0, 1] > 0.85


def test_the_scale_is_the_likeliest():
    v, _ = recoded(small(0, n=60, M=6, r=5))
    N, M, K = v.shape
    eta = np.random.default_rng(0).uniform(0.1, 1.0, M)
    s = mg.scores(v.item, v.label, v.weight * eta[v.annotator], N, K)

    def likelihood(beta):
        right = np.exp(beta * eta) / (np.exp(beta * eta) + K - 1)
        total = 0.0
        for n in range(N):
            on = v.item == n
            p = [
                np.prod(np.where(v.label[on] == k, right[v.annotator[on]], (1 - right[v.annotator[on]]) / (K - 1)))
                for k in range(K)
            ]
            total += np.log(np.mean(p))
        return total

    beta = mg.fit_scale(v, eta, s)
    assert likelihood(beta) >= max(likelihood(beta * 0.98), likelihood(beta * 1.02))


@pytest.mark.parametrize("key", ["m3v", "crowd-svm"])
def test_error_falls_as_votes_grow(key):
    """With more votes per item errors fall geometrically: the logarithm has a slope well under nought."""
    votes, wrong = (2, 4, 8, 12), []
    for r in votes:
        sim = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=r, random_state=0)
        wrong.append(1 - cw.aggregate(sim.votes, key).score(sim.truth))
    assert (np.diff(wrong) < 0).all()
    assert wrong[-1] < 0.05
    assert np.polyfit(votes, np.log(wrong), 1)[0] < -0.15


def test_confusion_is_recovered_at_the_rate_of_the_square_root():
    error = []
    for n in (200, 800, 3200):
        sim = cw.simulate.dirichlet(n, n_annotators=10, n_classes=3, votes_per_item=6, random_state=1)
        consensus = cw.aggregate(sim.votes, "crowd-svm", cost=0.25, samples=30)
        error.append(np.abs(consensus.confusion - sim.parameters["confusion"]).mean())
    slope = np.polyfit(np.log([200, 800, 3200]), np.log(error), 1)[0]
    assert -0.75 < slope < -0.3


@pytest.mark.parametrize("key", ["m3v", "crowd-svm"])
def test_known_truth_turns_a_crowd_of_which_most_are_wrong(key):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200)
    right = np.array([0.9, 0.9, 0.9, 0.2, 0.2, 0.2, 0.2, 0.2])
    votes = cw.Votes.from_dense(np.where(rng.random((200, 8)) < right, truth[:, None], 1 - truth[:, None]))
    gold = np.where(np.arange(200) < 40, truth, -1).astype(np.int32)
    rest = np.where(np.arange(200) < 40, -1, truth).astype(np.int32)
    assert cw.aggregate(votes, key, gold=gold).score(rest) > 0.9


# -------------------------------------------------------------------- the sampler


@pytest.mark.parametrize("mean", [1e-3, 0.5, 3.0, 1e5])
def test_inverse_gaussian_draws(mean):
    x = svm.inverse_gaussian(np.full(4000, mean), np.random.default_rng(0))
    assert (x > 0).all()
    assert kstest(x, invgauss(mean).cdf).pvalue > 0.01


def test_the_mixture_of_normals_is_the_hinge():
    """exp(-2 c max(0, z)) is the integral over lambda of exp(-(lambda + c z)^2 / 2 lambda) / sqrt(2 pi lambda)."""
    from scipy.integrate import quad

    for z, c in itertools.product((-1.5, 0.3, 2.0), (0.25, 1.0)):
        # lambda = u^2 takes the pole at nought away
        found = quad(lambda u, z=z, c=c: 2 * np.exp(-((u * u + c * z) ** 2) / (2 * u * u)) / np.sqrt(2 * np.pi), 0, 40)
        assert np.isclose(found[0], np.exp(-2 * c * max(0.0, z)), rtol=1e-6)


def test_normal_draws_have_the_right_moments():
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    B, at, target = rng.normal(size=(7, 3)), rng.uniform(0.1, 2.0, 7), rng.normal(size=7)
    draws = np.array([svm.draw_normal(csr_array(B), at, target, rng) for _ in range(2000)])
    precision = np.eye(3) + B.T @ np.diag(at) @ B
    assert np.allclose(draws.mean(axis=0), np.linalg.solve(precision, B.T @ target), atol=0.05)
    assert np.allclose(np.cov(draws.T), np.linalg.inv(precision), atol=0.04)


@pytest.mark.parametrize(("c", "zeta"), [(0.25, 1.7), (1.0, -0.6), (0.5, 0.05)])
def test_the_auxiliary_variable_has_its_conditional(c, zeta):
    """p(lambda | zeta) ~ exp(-(lambda + c zeta)^2 / 2 lambda) / sqrt(lambda), summed numerically."""
    draws = 1.0 / svm.inverse_gaussian(np.full(4000, 1.0 / (c * abs(zeta))), np.random.default_rng(1))
    u = np.linspace(1e-5, 8.0, 200_001)  # u = sqrt(lambda) takes the pole away
    mass = np.cumsum(np.exp(-((u * u + c * zeta) ** 2) / (2 * u * u)))
    assert kstest(draws, lambda x: np.interp(np.sqrt(x), u, mass / mass[-1])).pvalue > 0.01


def test_the_conditional_of_the_classes_by_enumeration():
    sim = small(3, n=7, M=4, K=3, r=3)
    votes = sim.votes
    rng = np.random.default_rng(0)
    phi, eta, c, margin = rng.dirichlet(np.ones(3), size=(4, 3)), rng.normal(size=4), 0.7, 1.3
    table = (votes.item, votes.annotator, votes.label, votes.weights)
    q = svm.truth_given(np.log(phi), eta, table, (7, 3), c, margin)
    for n in range(7):
        on = np.flatnonzero(votes.item == n)
        s = [sum(eta[votes.annotator[r]] for r in on if votes.label[r] == k) for k in range(3)]
        p = []
        for k in range(3):
            zeta = max(margin - s[k] + s[d] for d in range(3) if d != k)
            likelihood = np.prod([phi[votes.annotator[r], k, votes.label[r]] for r in on])
            p.append(likelihood * np.exp(-2 * c * max(0.0, zeta)))
        assert np.allclose(q[n], np.array(p) / sum(p))


def enumerated(votes, alpha, c, margin, rng, draws=20_000):
    """Posterior of the classes by summing over all of them, phi summed out exactly and eta by plain Monte Carlo."""
    from scipy.special import gammaln

    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    said = np.zeros((N, K, M))
    said[votes.item, votes.label, votes.annotator] = 1.0
    s = np.einsum("nkm,tm->nkt", said, rng.normal(size=(draws, M)))  # scores under the prior of eta
    rest = np.stack([np.delete(s, k, axis=1).max(axis=1) for k in range(K)], axis=1)
    hinge = np.maximum(0.0, margin - s + rest)
    worlds = np.array(list(itertools.product(range(K), repeat=N)))
    log_p = np.empty(len(worlds))
    for w, y in enumerate(worlds):
        counts = np.zeros((M, K, K))
        np.add.at(counts, (votes.annotator, y[votes.item], votes.label), 1.0)
        phi = gammaln(counts + alpha).sum() - gammaln((counts + alpha).sum(axis=2)).sum()
        log_p[w] = phi + np.log(np.exp(-2 * c * hinge[np.arange(N), y].sum(axis=0)).mean())
    p = np.exp(log_p - log_p.max())
    return np.stack([(p / p.sum()) @ (worlds == k) for k in range(K)], axis=1)


def test_the_sampler_agrees_with_enumeration():
    votes = cw.Votes.from_dense(np.array([[0, 0, 1], [1, 1, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0]]))
    exact = enumerated(votes, 1.0, 0.5, 1.0, np.random.default_rng(3))
    consensus = cw.aggregate(votes, "crowd-svm", cost=0.5, margin=1.0, samples=2500, burn_in=100, random_state=0)
    assert np.allclose(consensus.posterior, exact, atol=0.04)


def test_with_three_classes_the_fixed_rival_makes_it_too_sure_but_not_wrong():
    votes = cw.Votes.from_dense(np.array([[0, 0, 1], [1, 1, 1], [2, 2, 0], [1, 2, 2], [0, 0, 0]]))
    exact = enumerated(votes, 1.0, 0.5, 1.0, np.random.default_rng(3))
    consensus = cw.aggregate(votes, "crowd-svm", cost=0.5, margin=1.0, samples=2000, burn_in=100, random_state=0)
    assert np.allclose(consensus.posterior, exact, atol=0.16)
    assert (consensus.label_codes == exact.argmax(axis=1)).all()
    assert 0.0 < (consensus.posterior.max(axis=1) - exact.max(axis=1)).mean() < 0.13


def test_without_margins_it_is_dawid_skene():
    sim = cw.simulate.dirichlet(400, n_annotators=12, n_classes=3, votes_per_item=6, random_state=0)
    gibbs = cw.aggregate(sim.votes, "crowd-svm", cost=0.0, samples=100)
    em = cw.aggregate(sim.votes, "dawid-skene", prior=1.0)
    assert (gibbs.labels == em.labels).mean() > 0.98
    assert np.abs(gibbs.confusion - em.confusion).mean() < 0.03


def test_seeds_matter_a_little_and_repeat():
    sim = small(n=80, M=10)
    one, other = (cw.aggregate(sim.votes, "crowd-svm", cost=0.25, random_state=s).posterior for s in (1, 2))
    assert not np.array_equal(one, other)
    assert np.abs(one - other).mean() < 0.05
    chosen, again, third = (cw.aggregate(sim.votes, "crowd-svm", random_state=s) for s in (1, 1, 2))
    assert np.array_equal(chosen.posterior, again.posterior)
    assert (chosen.labels == third.labels).mean() > 0.9


def test_every_parameter_of_the_sampler_does_something():
    sim = small(n=60, M=8)
    usual = cw.aggregate(sim.votes, "crowd-svm").posterior
    for name, value in {"alpha": 3.0, "cost": 0.05, "margin": 2.0, "burn_in": 3, "samples": 9}.items():
        assert not np.allclose(usual, cw.aggregate(sim.votes, "crowd-svm", **{name: value}).posterior)


def test_the_sampler_picks_the_cost_under_which_the_votes_are_likeliest():
    picked = set()
    for seed in range(3):
        sim = cw.simulate.dirichlet(120, n_annotators=15, n_classes=3, votes_per_item=4, random_state=seed)
        found = {}
        for cost in svm.COSTS:
            c = cw.aggregate(sim.votes, "crowd-svm", cost=cost)
            y = c.label_codes
            found[cost] = np.log(c.confusion[sim.votes.annotator, y[sim.votes.item], sim.votes.label]).sum()
        model = registry.create("crowd-svm").fit(sim.votes)
        assert model.cost_ == max(found, key=found.get)
        picked.add(model.cost_)
        fixed = cw.aggregate(sim.votes, "crowd-svm", cost=model.cost_)
        assert np.array_equal(fixed.posterior, model.consensus_.posterior)
    assert len(picked) > 1


def test_too_many_draws_are_refused_with_advice(monkeypatch):
    monkeypatch.setattr(svm, "MAX_NUMBERS", 1000)
    with pytest.raises(InputError, match="fewer samples"):
        cw.aggregate(small().votes, "crowd-svm")


# -------------------------------------------------------------------- real data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error"),
    # Published: bluebird 20.37, web 12.74. The usual costs were chosen on simulated crowds, not on these.
    [("bluebird", 21.30), ("web", 10.67), ("rte", 8.25), ("dog", 17.60)],
)
def test_m3v_figures(name, error, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    assert abs(100 - 100 * cw.aggregate(votes, "m3v").score(votes.truth) - error) <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error"),
    # Published: bluebird 10.37 with a standard deviation of 0.41, web 7.99 with 0.26, c and l chosen for each.
    [("bluebird", 10.19), ("web", 9.65), ("dog", 15.49)],
)
def test_gibbs_crowd_svm_figures(name, error, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    assert abs(100 - 100 * cw.aggregate(votes, "crowd-svm").score(votes.truth) - error) <= 0.95
