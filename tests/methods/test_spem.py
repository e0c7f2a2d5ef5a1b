"""SpEM: the maximisation, the evidence, and what is dropped, against independent computations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

import crowdwise as cw
from crowdwise.core import em
from crowdwise.core.em import Part
from crowdwise.errors import InputError
from crowdwise.methods.bayes_spem import SpammerFamily, noise, penalised, row, score, updated
from crowdwise.simulate.crowds import one_coin_confusion

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def random_counts(rng, M, K, size=20.0):
    return rng.gamma(1.0, size, (M, K, K)) + 0.01


def crowd_of(theta, N, rng, r=None, prior=None):
    """Independent annotators with given confusion matrices; ``r`` of them on every item, at random."""
    M, K, _ = theta.shape
    truth = rng.choice(K, size=N, p=prior)
    u = rng.random((N, M, 1))
    label = (u > theta.cumsum(axis=2)[np.arange(M)[None], truth[:, None]]).sum(axis=2).clip(0, K - 1)
    if r is not None:
        out = np.argsort(rng.random((N, M)), axis=1)[:, r:]
        label[np.arange(N)[:, None], out] = -1
    return cw.Votes.from_dense(label, missing=-1, classes=range(K)), truth.astype(np.int32)


# -------------------------------------------------------------------- the arithmetic


@pytest.mark.parametrize("K", [2, 3, 5])
def test_the_score_is_the_sum_over_pairs_of_rows(K):
    theta = np.random.default_rng(0).dirichlet(np.ones(K), size=(4, K))
    pairs = [sum(((t[c] - t[d]) ** 2).sum() for c in range(K) for d in range(c + 1, K)) / (K * (K - 1)) for t in theta]
    assert np.allclose(score(theta), pairs)
    if K == 2:
        assert np.allclose(score(theta), (theta[:, 0, 0] + theta[:, 1, 1] - 1.0) ** 2)
    assert np.allclose(score(one_coin_confusion(np.array([0.3 + 0.7 / K]), K)), 0.09)


def test_rows_equal_a_general_optimiser():
    rng = np.random.default_rng(1)
    c, s = rng.gamma(1.0, 5.0, (3, 1, 4)) + 0.1, rng.dirichlet(np.ones(4), size=3)
    for mu in (0.3, 20.0, 1e5):
        found = row(c, np.full(3, mu), s)
        assert np.allclose(found.sum(axis=2), 1.0, atol=1e-12)
        for m in range(3):
            best = minimize(
                lambda a, m=m, mu=mu: -(c[m, 0] @ np.log(a)) + mu / 2 * ((a - s[m]) ** 2).sum(),
                np.full(4, 0.25),
                jac=lambda a, m=m, mu=mu: -c[m, 0] / a + mu * (a - s[m]),
                bounds=[(1e-9, 1)] * 4,
                constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": np.ones_like},
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )
            value = -(c[m, 0] @ np.log(found[m, 0])) + mu / 2 * ((found[m, 0] - s[m]) ** 2).sum()
            assert value <= best.fun + 1e-7 * abs(best.fun)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_the_penalised_maximum_is_stationary_and_beats_its_neighbours(K):
    rng = np.random.default_rng(K)
    c, lam = random_counts(rng, 40, K), 10.0 ** rng.uniform(-2, 5, 40)
    theta = penalised(c, lam)
    assert np.allclose(theta.sum(axis=2), 1.0)
    slope = c / theta - lam[:, None, None] / (K - 1) * (theta - theta.mean(axis=1, keepdims=True))
    assert np.allclose(slope - slope.mean(axis=2, keepdims=True), 0.0, atol=1e-6 * np.abs(slope).max())

    def objective(t):
        return (c * np.log(t)).sum(axis=(1, 2)) - lam / 2 * score(t)

    for _ in range(20):
        other = theta * np.exp(0.01 * rng.normal(size=theta.shape))
        assert (objective(other / other.sum(axis=2, keepdims=True)) <= objective(theta) + 1e-9).all()


def test_the_ends_of_the_penalty_are_free_rows_and_equal_rows():
    c = random_counts(np.random.default_rng(2), 3, 3)
    free, tied, nearly = penalised(c, np.zeros(3)), penalised(c, np.full(3, np.inf)), penalised(c, np.full(3, 1e9))
    assert np.allclose(free, c / c.sum(axis=2, keepdims=True))
    pooled = c.sum(axis=1) / c.sum(axis=(1, 2))[:, None]
    assert np.allclose(tied, pooled[:, None])
    assert np.allclose(nearly, tied, atol=1e-4)
    assert np.allclose(score(tied), 0.0)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_the_noise_equals_the_trace_of_a_dense_inverse(K):
    rng = np.random.default_rng(3)
    c, lam = random_counts(rng, 5, K), np.array([0.0, 0.5, 10.0, 300.0, 1e4])
    theta = penalised(c, lam)
    Q = np.kron(np.eye(K) - 1.0 / K, np.eye(K)) / (K - 1)
    free = np.kron(np.eye(K), np.linalg.qr(np.column_stack([np.ones(K), np.eye(K)[:, 1:]]))[0][:, 1:])
    for m in range(5):
        H = np.diag((c[m] / theta[m] ** 2).ravel()) + lam[m] * Q
        dense = np.trace(free @ np.linalg.inv(free.T @ H @ free) @ free.T @ Q)
        assert noise(theta, c, lam)[m] == pytest.approx(dense, rel=1e-8)


def test_the_mean_of_the_score_under_the_prior_has_the_stated_form():
    """Two classes: the density of sensitivity + specificity - 1 is triangular. More: the two ends."""
    for lam in (0.0, 1.0, 6.0, 30.0, 200.0, 5000.0):
        weight = [
            quad(lambda x, p=p, lam=lam: (1 - x) * x**p * np.exp(-lam * x * x / 2), 0, 1, points=[0.01, 0.1, 0.3])[0]
            for p in (0, 2)
        ]
        assert weight[1] / weight[0] == pytest.approx(1.0 / (lam + 6.0), rel=0.16)
    rng = np.random.default_rng(0)
    for K in (3, 5):
        S = score(rng.dirichlet(np.ones(K), size=(40_000, K)))
        d, base = (K - 1) ** 2, (K - 1) * K * (K + 1)
        assert S.mean() == pytest.approx(d / base, rel=0.02)
        g = rng.normal(size=(20_000, K, K))  # exp(-lambda S / 2) without walls, lambda = 1: S is chi-squared with d
        g = g - g.mean(axis=1, keepdims=True)
        g = g - g.mean(axis=2, keepdims=True)
        assert (g**2).sum(axis=(1, 2)).mean() == pytest.approx(d, rel=0.02)


def test_the_fixed_point_has_the_largest_evidence():
    """Two classes, prior Normal on delta and likelihood Normal: lambda + 6 is where the marginal has its maximum."""
    information = 200.0
    for delta in (0.15, 0.3, 0.6):
        lam = np.array([1.0])
        for _ in range(500):
            # The penalised mode and noise of a Normal likelihood around delta, under the precision lambda + 6.
            mode = information * delta / (information + lam + 6.0)
            lam = updated(lam, mode**2, 1.0 / (information + lam + 6.0), 2)
        grid = np.linspace(1.0, 400.0, 400_000)
        variance = 1.0 / information + 1.0 / grid
        evidence = -0.5 * np.log(variance) - 0.5 * delta**2 / variance
        best = grid[evidence.argmax()]
        assert lam[0] + 6.0 == pytest.approx(max(best, 6.0), rel=1e-3)


def test_the_objective_is_recomputed_and_does_not_fall():
    rng = np.random.default_rng(4)
    theta = one_coin_confusion(rng.uniform(0.34, 0.9, 12), 3)
    votes, _ = crowd_of(theta, 200, rng, r=6)
    part, family = Part.of(votes), SpammerFamily(rng.uniform(0, 300, 12), 0.01 / 3, None)
    climb = em.run_em(part, family, em.statistics(part, votes.shares()), accelerate=True)
    assert (np.diff(climb.trace) >= -1e-9 * abs(climb.trace[0])).all()
    t = np.exp(climb.params.log_score).reshape(12, 3, 3).transpose(0, 2, 1)
    like = climb.params.log_prior.repeat(len(votes), axis=0)
    for n in range(len(votes)):
        for s in range(votes.indptr[n], votes.indptr[n + 1]):
            like[n] += np.log(t[votes.annotator[s], :, votes.label[s]])
    value = np.logaddexp.reduce(like, axis=1).sum() + 0.01 / 3 * np.log(t).sum() - (family.precision @ score(t)) / 2
    assert value == pytest.approx(climb.objective, rel=1e-10)


# -------------------------------------------------------------------- the method


def test_without_rounds_it_is_dawid_skene():
    sim = cw.simulate.dirichlet(300, n_annotators=12, n_classes=3, votes_per_item=5, random_state=0)
    ours = cw.SpEM(max_rounds=0).fit(sim.votes).consensus_
    assert np.allclose(ours.posterior, cw.aggregate(sim.votes, "dawid-skene").posterior, atol=1e-9)
    assert not ours.annotator_columns["pruned"].any()


@pytest.mark.parametrize(("K", "share"), [(2, 0.5), (3, 0.3), (4, 0.6)])
def test_spammers_of_every_kind_are_dropped_and_nobody_else(K, share):
    found, kept, spam, honest = 0, 0, 0, 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        theta = one_coin_confusion(rng.uniform(0.6, 0.9, 20), K)
        M = int(20 * share)
        theta[:M] = rng.dirichlet(np.ones(K), size=M)[:, None]
        theta[0] = np.eye(K)[0]  # always the first class
        votes, _ = crowd_of(theta, 600, rng, r=12)
        pruned = cw.SpEM().fit(votes).consensus_.annotator_columns["pruned"]
        found, spam = found + pruned[:M].sum(), spam + M
        kept, honest = kept + (~pruned[M:]).sum(), honest + 20 - M
    assert found >= 0.9 * spam
    assert kept == honest


def test_labels_are_as_good_as_dawid_skenes_or_better():
    ours, theirs = [], []
    for seed in range(4):
        sim = cw.simulate.hammer_spammer(
            1000, n_annotators=30, n_classes=4, share=0.3, accuracy=0.7, votes_per_item=8, random_state=seed
        )
        ours.append(cw.aggregate(sim.votes, "spem").score(sim.truth))
        theirs.append(cw.aggregate(sim.votes, "dawid-skene").score(sim.truth))
    assert np.mean(ours) > np.mean(theirs) + 0.01


def test_those_dropped_move_no_item():
    sim = cw.simulate.hammer_spammer(400, n_annotators=16, n_classes=3, accuracy=0.8, random_state=3)
    model = cw.SpEM().fit(sim.votes)
    assert len(model.pruned_) >= 7
    assert sim.parameters["spammers"][np.isinf(model.precision_)].all()
    some = sim.votes[:50]
    assert np.allclose(model.predict_proba(some), model.predict_proba(some.without(model.pruned_)), atol=1e-9)
    assert np.allclose(score(model.consensus_.confusion[np.isinf(model.precision_)]), 0.0, atol=1e-12)


def test_few_votes_prove_nothing():
    sim = cw.simulate.one_coin(100, n_annotators=150, n_classes=3, a=6, b=3, votes_per_item=4, random_state=0)
    model = cw.SpEM().fit(sim.votes)
    assert len(model.pruned_) == 0


def test_a_crowd_of_spammers_alone_still_answers():
    votes = cw.Votes.from_dense(np.random.default_rng(0).integers(0, 2, (800, 5)))
    consensus = cw.SpEM().fit(votes).consensus_
    assert np.isfinite(consensus.posterior).all()
    assert not consensus.annotator_columns["pruned"].all()


def test_the_error_of_informativeness_falls_with_the_votes_and_its_interval_covers():
    errors, inside = [], []
    for N in (200, 800, 3200):
        gap = []
        for seed in range(5):
            rng = np.random.default_rng(seed)
            theta = one_coin_confusion(rng.uniform(0.4, 0.9, 10), 3)
            votes, _ = crowd_of(theta, N, rng)
            columns = cw.SpEM().fit(votes).consensus_.annotator_columns
            true = score(theta)
            gap.append(np.abs(columns["informativeness"] - true).mean())
            inside += ((columns["informativeness_low"] <= true) & (true <= columns["informativeness_high"])).tolist()
        errors.append(np.mean(gap))
    slope = np.polyfit(np.log([200, 800, 3200]), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.35
    assert 0.9 <= np.mean(inside) <= 0.99


def test_known_truths_turn_a_crowd_of_adversaries():
    rng = np.random.default_rng(5)
    theta = one_coin_confusion(np.r_[np.full(6, 0.2), np.full(3, 0.9)], 2)
    votes, truth = crowd_of(theta, 300, rng)
    gold = np.where(np.arange(300) < 60, truth, -1).astype(np.int32)
    consensus = cw.aggregate(votes, "spem", gold=gold)
    assert consensus.score(truth) > 0.95
    assert not consensus.annotator_columns["pruned"].any()  # wrong answers tell as much as right ones


def test_one_annotator_is_refused():
    with pytest.raises(InputError, match="single annotator"):
        cw.aggregate(cw.Votes.from_records([(n, "ann", n % 2) for n in range(6)]), "spem")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("bluebird", 0.87), ("rte", 0.92), ("dog", 0.83)])
def test_real_crowds(name, least, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    assert cw.aggregate(votes, "spem").score(votes.truth) >= least
