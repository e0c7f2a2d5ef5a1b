"""Groups with one opinion each, one vote per group, and a few matrices for all: checked by enumeration and recovery."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import crowdwise as cw
from crowdwise.core import em
from crowdwise.core.em import Part
from crowdwise.errors import ParameterError
from crowdwise.methods import groups_worker_cluster
from crowdwise.methods.groups_dawid_skene import Cells, Levels, expect, one_vote_each

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")

# -------------------------------------------------------------------- the two-level model


def enumerated(votes, group, theta, xi, pi, gold=None):
    """Posterior, log-likelihood, c[m, z, l] and x[j, k, z] by summing over every truth and every opinion of an item."""
    K, J = len(pi), len(xi)
    q, c, x, value = np.zeros((len(votes), K)), np.zeros(theta.shape), np.zeros(xi.shape), 0.0
    for n in range(len(votes)):
        rows = range(votes.indptr[n], votes.indptr[n + 1])
        there = sorted({int(group[votes.annotator[s]]) for s in rows})
        total, found = 0.0, []
        for k in range(K):
            if gold is not None and gold[n] >= 0 and gold[n] != k:
                continue
            for opinions in itertools.product(range(K), repeat=len(there)):
                z = dict(zip(there, opinions, strict=True))
                p = pi[k] * math.prod(xi[j, k, z[j]] for j in there)
                for s in rows:
                    m = votes.annotator[s]
                    p *= theta[m, z[group[m]], votes.label[s]] ** votes.weights[s]
                total += p
                found.append((k, z, p))
        value += math.log(total)
        for k, z, p in found:
            q[n, k] += p / total
            for j in there:
                x[j, k, z[j]] += p / total
            for s in rows:
                m = votes.annotator[s]
                c[m, z[group[m]], votes.label[s]] += votes.weights[s] * p / total
    assert J
    return q, value, c, x


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_the_expectation_step_by_enumeration(weighted, known):
    rng = np.random.default_rng(4)
    sim = cw.simulate.groups(12, n_annotators=6, n_classes=3, n_groups=3, votes_per_item=4, random_state=1)
    votes, K, M = sim.votes, 3, 6
    if weighted:
        votes = cw.Votes.from_codes(
            votes.item, votes.annotator, votes.label, items=votes.items, annotators=votes.annotators,
            classes=votes.classes, weight=rng.uniform(0.5, 2.0, votes.n_votes),
        )  # fmt: skip
    group = np.array([0, 0, 0, 1, 1, 2])
    theta, xi, pi = rng.dirichlet(np.ones(K), (M, K)), rng.dirichlet(np.ones(K), (3, K)), rng.dirichlet(np.ones(K))
    xi[2] = np.eye(K)  # alone
    gold = np.where(np.arange(12) < 3, sim.truth, -1) if known else None
    with np.errstate(divide="ignore"):
        levels = Levels(np.log(theta.transpose(0, 2, 1)).reshape(-1, K), np.log(np.maximum(xi, 1e-300)), np.log(pi))
    alone = np.array([False, False, True])
    counts, opinions, q, value = expect(Cells.of(votes, group), levels, alone, gold, None)
    q0, value0, c0, x0 = enumerated(votes, group, theta, xi, pi, gold)
    assert np.allclose(q, q0)
    assert np.isclose(value, value0)
    assert np.allclose(counts.reshape(M, K, K), c0.transpose(0, 2, 1))
    assert np.allclose(opinions[:2], x0[:2])


def test_the_objective_is_the_likelihood_with_the_pseudo_counts_and_never_falls():
    sim = cw.simulate.groups(60, n_annotators=8, n_classes=2, n_groups=3, random_state=0)
    group = sim.parameters["group"]
    model = cw.GroupedDawidSkene(groups=group, prior=0.5, group_prior=2.0, max_iter=40).fit(sim.votes)
    c = model.consensus_
    assert (np.diff(c.trace) >= -1e-9).all()
    # The last pass took its parameters from the one before; a fit one pass longer starts from the same place.
    theta, xi = model.member_confusion_, model.group_confusion_
    _, value, _, _ = enumerated(sim.votes, model.group_, theta, xi, c.prior)
    assert np.isclose(value, c.log_likelihood)
    penalty = 0.25 * np.log(theta).sum() + 2.0 * np.log(np.einsum("jkk->jk", xi)).sum()
    assert np.isclose(c.objective, value + penalty)


def test_the_two_level_model_beats_dawid_skene_on_groups():
    for seed in range(2):
        sim = cw.simulate.groups(5000, n_annotators=40, n_classes=3, n_groups=5, random_state=seed)
        found = cw.aggregate(sim.votes, "grouped-dawid-skene")
        assert adjusted_rand_score(sim.parameters["group"], found.annotator_columns["group"]) >= 0.9
        assert found.score(sim.truth) > cw.aggregate(sim.votes, "dawid-skene").score(sim.truth)


def test_matrices_are_recovered_and_better_so_with_more_items():
    def error(N):
        sim = cw.simulate.groups(N, n_annotators=20, n_classes=2, n_groups=4, random_state=5)
        model = cw.GroupedDawidSkene(groups=sim.parameters["group"]).fit(sim.votes)
        order = [model.group_[sim.parameters["group"] == g][0] for g in range(4)]
        return (
            np.abs(model.group_confusion_[order] - sim.parameters["group_confusion"]).mean(),
            np.abs(model.consensus_.confusion - sim.parameters["confusion"]).mean(),
        )

    few, many = error(200), error(20_000)
    for a, b in zip(few, many, strict=True):
        assert b < 0.03
        assert math.log(a / b) / math.log(100) > 0.3  # about N^-1/2


@pytest.mark.parametrize("groups", ["given", "evidence", "test"])
def test_copies_count_once(groups):
    sim = cw.simulate.one_coin(400, n_annotators=11, n_classes=2, a=8.0, b=3.0, random_state=2)
    label = sim.votes.label.reshape(400, 11)
    worst = int(sim.parameters["accuracy"].argmin())
    crowd = cw.Votes.from_dense(np.column_stack([label, *[label[:, worst]] * 7]))
    copies = {crowd.annotators[m]: "ring" for m in [worst, *range(11, 18)]}
    alone = cw.aggregate(sim.votes, "dawid-skene").score(sim.truth)
    assert cw.aggregate(crowd, "dawid-skene").score(sim.truth) < alone - 0.02
    found = cw.aggregate(crowd, "grouped-dawid-skene", groups=copies if groups == "given" else groups)
    assert found.score(sim.truth) > alone - 0.02
    assert found.annotator_table["group_size"].to_list()[11:] == [8] * 7
    if groups == "given":
        majority = cw.aggregate(sim.votes, "majority").posterior
        assert np.allclose(cw.aggregate(crowd, "grouped-majority", groups=copies).posterior, majority)


def test_with_everybody_alone_it_is_dawid_skene():
    sim = cw.simulate.dirichlet(300, n_annotators=12, n_classes=3, votes_per_item=6, random_state=0)
    same = cw.aggregate(sim.votes, "grouped-dawid-skene", groups=np.arange(12), prior=0.01, start="votes", tol=1e-10)
    plain = cw.aggregate(sim.votes, "dawid-skene", tol=1e-10)
    assert np.allclose(same.posterior, plain.posterior, atol=2e-3)


def test_independent_annotators_stay_alone():
    sim = cw.simulate.dirichlet(800, n_annotators=15, n_classes=3, random_state=7)
    for groups in ("evidence", "test"):
        assert cw.aggregate(sim.votes, "grouped-dawid-skene", groups=groups).annotator_table["group_size"].max() == 1


def test_so_many_groups_as_asked_for():
    sim = cw.simulate.groups(500, n_annotators=16, n_groups=4, random_state=1)
    for J in (1, 4, 6):
        found = cw.aggregate(sim.votes, "grouped-majority", groups=J).annotator_columns["group"]
        assert found.max() + 1 == J


def test_one_vote_each_by_hand():
    votes = cw.Votes.from_records(
        [("a", "p", 0), ("a", "q", 0), ("a", "r", 1), ("b", "p", 1), ("b", "q", 0), ("b", "r", 0), ("c", "r", 1)]
    )
    q = one_vote_each(votes, np.array([0, 0, 1]))
    assert np.allclose(q, [[0.5, 0.5], [0.75, 0.25], [0.0, 1.0]])


def test_groups_are_checked():
    sim = cw.simulate.groups(60, n_annotators=6, n_groups=2, random_state=0)
    for groups in ([0, 1], {"nobody": 1}):
        with pytest.raises(ParameterError, match="groups"):
            cw.aggregate(sim.votes, "grouped-dawid-skene", groups=groups)


def test_a_stranger_is_on_their_own():
    sim = cw.simulate.groups(300, n_annotators=8, n_groups=4, random_state=0)
    model = cw.GroupedDawidSkene(groups=sim.parameters["group"]).fit(sim.votes)
    new = cw.Votes.from_records([("x", "stranger", 2), ("x", "a0", 2), ("y", "stranger", 1)])
    q = model.predict_proba(new)
    assert q[0].argmax() == 2 and q[1].argmax() == 1


@pytest.mark.slow
def test_bluebird(real):
    votes = cw.read_dataset(real("bluebird")).votes
    plain = cw.aggregate(votes, "dawid-skene").score(votes.truth)
    seven = cw.aggregate(votes, "grouped-dawid-skene", groups=7)  # the tutorial's number of groups
    assert seven.annotator_columns["group"].max() == 6
    assert seven.score(votes.truth) >= plain - 1e-9
    assert cw.aggregate(votes, "grouped-dawid-skene").score(votes.truth) > 0.88


# -------------------------------------------------------------------- a few matrices for all


def planted(N=400, M=60, r=6, seed=0):
    """Three kinds of annotators with one matrix each."""
    rng = np.random.default_rng(seed)
    kinds = np.array(
        [
            [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]],
            [[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]],
            [[0.34, 0.33, 0.33], [0.34, 0.33, 0.33], [0.34, 0.33, 0.33]],
        ]
    )
    kind = np.arange(M) % 3
    truth = rng.integers(0, 3, N)
    item, who = cw.simulate.assign(N, M, r, random_state=rng)
    table = kinds[kind[who], truth[item]]
    label = (rng.random(len(item))[:, None] > table.cumsum(axis=1)).sum(axis=1)
    votes = cw.Votes.from_codes(item, who, label, items=range(N), annotators=range(M), classes=[0, 1, 2])
    return votes, truth, kind, kinds


@pytest.mark.parametrize("mixing", ["dirichlet", "process"])
def test_clusters_and_their_number_are_recovered(mixing):
    votes, truth, kind, kinds = planted(N=1500, r=8)
    model = cw.WorkerCluster(mixing=mixing).fit(votes)
    found = model.consensus_.annotator_columns["cluster"]
    J = len(model.cluster_confusion_)
    assert adjusted_rand_score(kind, found) > 0.95
    if mixing == "dirichlet":
        assert J == 3
        assert np.abs(model.cluster_confusion_ - kinds).max() < 0.05
    else:  # a Dirichlet process keeps a small cluster too many now and then
        assert 3 <= J <= 4
    assert np.isclose(model.cluster_share_.sum(), 1.0)


def test_clusters_help_where_votes_are_few():
    gains = []
    for seed in range(4):
        votes, truth, _, _ = planted(N=200, M=90, r=5, seed=seed)
        gains.append(
            cw.aggregate(votes, "worker-cluster").score(truth) - cw.aggregate(votes, "dawid-skene").score(truth)
        )
    assert np.mean(gains) > 0.01


def test_the_bound_is_under_the_evidence():
    """Two annotators, two items, one cluster or two: the ELBO against the evidence by simulation from the prior."""
    votes = cw.Votes.from_dense([[0, 0, 1], [1, 1, 1]])
    rng = np.random.default_rng(0)
    draws = 200_000
    pi = rng.dirichlet([1, 1], draws)
    prior = np.array([[4.0, 1.0], [1.0, 4.0]])
    for J in (1, 2):
        lam = rng.dirichlet(np.ones(J), draws)
        theta = np.stack([np.stack([rng.dirichlet(prior[k], draws) for k in range(2)], 1) for _ in range(J)], 1)
        total = np.zeros(draws)
        for members in itertools.product(range(J), repeat=3):
            p = np.prod([lam[:, j] for j in members], axis=0)
            for n in range(2):
                item = np.zeros(draws)
                for k in range(2):
                    said = [theta[:, j, k, votes.label[3 * n + m]] for m, j in enumerate(members)]
                    item += pi[:, k] * np.prod(said, axis=0)
                p = p * item
            total += p
        evidence = np.log(total.mean())
        bound = cw.WorkerCluster(n_clusters=J, tol=1e-10).fit(votes).consensus_.objective
        assert bound < evidence + 0.01
        assert bound > evidence - 2.5


@pytest.mark.parametrize("mixing", ["dirichlet", "process"])
def test_every_step_raises_the_bound(mixing):
    votes, _, _, _ = planted(N=150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = cw.WorkerCluster(n_clusters=5, mixing=mixing, max_iter=60, tol=0.0).fit(votes).consensus_.trace
    assert (np.diff(trace) >= -1e-8).all()


def test_sticks_are_a_distribution():
    member = np.random.default_rng(0).dirichlet(np.ones(4), 30)
    sticks = groups_worker_cluster.stick_parameters(member, 2.0)
    assert sticks.shape == (3, 2)
    assert np.allclose(sticks[0], [1 + member[:, 0].sum(), 2 + member[:, 1:].sum()])
    draws = np.random.default_rng(1).beta(sticks[:, 0], sticks[:, 1], (200_000, 3))
    lam = np.column_stack([draws, np.ones(len(draws))]) * np.column_stack(
        [np.ones(len(draws)), np.cumprod(1 - draws, 1)]
    )
    assert np.allclose(lam.sum(axis=1), 1.0)
    assert np.allclose(np.log(lam).mean(axis=0), groups_worker_cluster.stick_log_shares(sticks), atol=0.02)


def test_one_cluster_is_one_matrix():
    sim = cw.simulate.dirichlet(200, n_annotators=10, n_classes=3, votes_per_item=5, random_state=0)
    model = cw.WorkerCluster(n_clusters=1).fit(sim.votes)
    assert np.allclose(model.consensus_.confusion, model.consensus_.confusion[0])
    stats, _ = em.expect(Part.of(sim.votes), model.params_)
    pooled = stats.table().sum(axis=0) + np.where(np.eye(3, dtype=bool), 4.0, 1.0)
    assert np.allclose(model.cluster_confusion_[0], (pooled / pooled.sum(axis=0)).T, atol=1e-3)


def test_a_prior_for_each_annotator_is_refused():
    sim = cw.simulate.dirichlet(50, n_annotators=5, random_state=0)
    with pytest.raises(ParameterError, match="prior is given for each annotator"):
        cw.aggregate(sim.votes, "worker-cluster", prior=np.ones((5, 3, 3)))
