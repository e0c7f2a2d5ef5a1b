"""ebcc: the bound against plain loops and the exact evidence, correlated errors, restarts, real crowds."""

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
from crowdwise.errors import ConvergenceWarning
from crowdwise.methods.bayes_ibcc import drawn


def tiny(seed, weighted=False, N=4, M=3, K=2):
    rng = np.random.default_rng(seed)
    item, annotator = np.nonzero(np.ones((N, M)))
    weight = rng.gamma(2.0, 0.5, len(item)) + 0.05 if weighted else None
    names = {"items": range(N), "annotators": [f"a{m}" for m in range(M)], "classes": range(K)}
    return cw.Votes.from_codes(item, annotator, rng.integers(0, K, len(item)), weight=weight, **names)


def fit(votes, truth=None, item_prior=None, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cw.EBCC(**params).fit(votes, truth, item_prior=item_prior).consensus_


def log_beta(a):
    return sum(gammaln(x) for x in a) - gammaln(sum(a))


def plain_loop(votes, q, G, a_pi, a0, b0, passes):
    """Variational Bayes over (class, subtype) from its definition; ``q[n, k, g]`` is the start."""
    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    rows, pairs = rows_of(votes), list(itertools.product(range(K), range(G)))
    for _ in range(passes):
        a = [a0[k] + q[:, k].sum() for k in range(K)]
        p = [[a_pi / G + q[:, k, g].sum() for g in range(G)] for k in range(K)]
        b = {(m, k, g): list(b0[k]) for m in range(M) for k, g in pairs}
        for n, m, label, w in rows:
            for k, g in pairs:
                b[m, k, g][label] += w * q[n, k, g]
        log_tau = [digamma(x) - digamma(sum(a)) for x in a]
        log_pi = [[digamma(x) - digamma(sum(row)) for x in row] for row in p]
        log_v = {key: [digamma(x) - digamma(sum(row)) for x in row] for key, row in b.items()}
        logit = np.array([[[log_tau[k] + log_pi[k][g] for g in range(G)] for k in range(K)] for _ in range(N)])
        for n, m, label, w in rows:
            for k, g in pairs:
                logit[n, k, g] += w * log_v[m, k, g][label]
        q = np.exp(logit - logit.max(axis=(1, 2), keepdims=True))
        q /= q.sum(axis=(1, 2), keepdims=True)
    elbo = sum(q[n, k, g] * (logit[n, k, g] - math.log(q[n, k, g])) for n in range(N) for k, g in pairs if q[n, k, g])
    elbo += sum((a0[k] - a[k]) * log_tau[k] for k in range(K)) - log_beta(a0) + log_beta(a)
    for k in range(K):
        elbo += sum((a_pi / G - p[k][g]) * log_pi[k][g] for g in range(G)) - log_beta([a_pi / G] * G) + log_beta(p[k])
    for (m, k, g), row in b.items():
        elbo += sum((b0[k][j] - row[j]) * log_v[m, k, g][j] for j in range(K)) - log_beta(b0[k]) + log_beta(row)
    return q, elbo


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans())
def test_bound_and_posterior_equal_a_plain_loop_pass_by_pass(seed, weighted):
    votes, G = tiny(seed, weighted, K=3), 2
    noise = drawn(votes, None, np.random.default_rng(seed), G)
    begin = votes.shares()[:, :, None] * noise / noise.sum(axis=2, keepdims=True)
    for passes in (1, 3):
        found = fit(
            votes, n_subtypes=G, concentration=0.6, class_alpha=[0.5, 1.0, 2.0], prior=(3.0, 0.5), restarts=0,
            max_iter=passes, tol=0.0, accelerate=False, random_state=seed,
        )  # fmt: skip
        prior = np.full((3, 3), 0.5) + 2.5 * np.eye(3)
        q, elbo = plain_loop(votes, begin, G, 0.6, [0.5, 1.0, 2.0], prior, passes)
        assert np.allclose(found.posterior, q.sum(axis=2), atol=1e-9)
        assert abs(found.objective - elbo) < 1e-7


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_bound_is_below_the_exact_evidence(seed):
    """The evidence by enumeration of all classes and subtypes, parameters integrated out."""
    votes, G, K = tiny(seed), 2, 2
    pairs, rows, b0 = list(itertools.product(range(K), range(G))), rows_of(votes), [[4.0, 1.0], [1.0, 4.0]]
    logs = []
    for z in itertools.product(pairs, repeat=4):
        value = log_beta([1.0 + sum(k == c for c, _ in z) for k in range(K)]) - log_beta([1.0] * K)
        for k in range(K):
            value += log_beta([0.25 + z.count((k, g)) for g in range(G)]) - log_beta([0.25] * G)
        counts = np.zeros((3, K, G, K))
        for n, m, label, w in rows:
            counts[(m, *z[n], label)] += w
        for m, k, g in itertools.product(range(3), range(K), range(G)):
            value += log_beta(b0[k] + counts[m, k, g]) - log_beta(b0[k])
        logs.append(value)
    evidence = max(logs) + math.log(np.exp(np.array(logs) - max(logs)).sum())
    found = fit(votes, n_subtypes=G, concentration=0.5, class_alpha=1.0, restarts=3, tol=1e-12)
    assert found.objective <= evidence + 1e-9
    assert found.objective > evidence - 6.0
    assert (np.diff(found.trace) >= -1e-9).all()


def test_with_one_subtype_it_is_ibcc():
    sim = cw.simulate.dirichlet(200, n_annotators=10, n_classes=3, votes_per_item=4, random_state=1)
    gold = np.where(np.arange(200) < 30, sim.truth, -1).astype(np.int32)
    rng = np.random.default_rng(0)
    opinion = rng.dirichlet(np.ones(3), 200)
    for truth, item_prior in ((None, None), (gold, None), (gold, opinion)):
        one = fit(sim.votes, truth, item_prior, n_subtypes=1, class_alpha=1.0, restarts=0, tol=1e-9)
        same = cw.IBCC(tol=1e-9).fit(sim.votes, truth, item_prior=item_prior).consensus_
        assert np.allclose(one.posterior, same.posterior, atol=1e-8)
        assert np.allclose(one.confusion, same.confusion, atol=1e-8)
        assert np.allclose(one.prior, same.prior, atol=1e-8)


def correlated(seed, N=600, M=15, misled=6):
    """Two classes; on a third of the items of class 1, the same annotators are misled together."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, N).astype(np.int32)
    hard = (truth == 1) & (rng.random(N) < 0.35)
    right = np.where(hard[:, None] & (np.arange(M) < misled), 0.2, 0.8)
    label = np.where(rng.random((N, M)) < right, truth[:, None], 1 - truth[:, None])
    return cw.Votes.from_dense(label), truth, hard


def test_errors_made_together_are_seen_through():
    loss = {"ebcc": 0.0, "ibcc": 0.0}
    for seed in range(3):
        votes, truth, _ = correlated(seed)
        found = {"ebcc": fit(votes, restarts=3), "ibcc": cw.aggregate(votes, "ibcc")}
        assert found["ebcc"].score(truth) > found["ibcc"].score(truth)
        for key in loss:
            loss[key] += float(cw.metrics.log_loss(found[key], truth))
    assert loss["ebcc"] < 0.8 * loss["ibcc"]


def test_hard_items_end_up_in_a_subtype_of_their_own():
    votes, truth, hard = correlated(0)
    found = fit(votes, restarts=9)
    kind, sure = found.item_columns["subtype"], found.item_columns["subtype_probability"]
    ones = (truth == 1) & (found.label_codes == 1)
    assert (kind[ones & ~hard] == 0).mean() > 0.8  # the most common one comes first
    assert (kind[ones & hard] == 1).mean() > 0.8
    assert ((sure > 0) & (sure <= 1.0 + 1e-12)).all()
    theta = found.confusion[0]  # mixed over subtypes: right in 0.65 * 0.8 + 0.35 * 0.2 of the cases
    assert abs(theta[1, 1] - 0.59) < 0.07
    assert abs(theta[0, 0] - 0.8) < 0.05


def test_restarts_differ_and_the_highest_bound_is_kept():
    sim = cw.simulate.difficulty(100, n_annotators=25, votes_per_item=25, random_state=0)
    ends = {}

    def note(progress):
        ends[progress.restart] = progress.objective

    found = cw.EBCC(restarts=5).fit(sim.votes, callback=note).consensus_
    assert len(ends) == 6
    assert len({round(x, 3) for x in ends.values()}) > 1
    assert found.objective >= max(ends.values()) - 1e-6 * sim.votes.n_votes
    assert found.objective >= fit(sim.votes, restarts=0).objective


def test_known_truth_says_whose_subtype_it_is_where_most_are_misled():
    votes, truth, _ = correlated(1, misled=10)
    gold = np.where(np.arange(600) < 200, truth, -1).astype(np.int32)
    told, untold = fit(votes, gold, restarts=2), fit(votes, restarts=2)
    assert np.allclose(told.posterior[:200], np.eye(2)[truth[:200]], atol=1e-12)
    rest = np.where(gold >= 0, -1, truth)
    assert told.score(rest) > untold.score(rest) + 0.05


def test_history_stays_in_force():
    sim = cw.simulate.one_coin(60, n_annotators=5, n_classes=2, votes_per_item=3, random_state=0)
    found = fit(sim.votes, history={"a0": [[1, 1e6], [1e6, 1]]}, restarts=1)
    assert found.confusion[0, 0, 1] > 0.99


PUBLISHED = {
    "dog": (84.01, 9), "rte": (93.13, 9), "face": (63.53, 9), "music_genre": (78.71, 9), "d_sentiment": (96.10, 4),
    "d_product": (93.49, 1), "trec2010_binary": (70.37, 1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_reaches_the_published_accuracy(name, real):
    published, restarts = PUBLISHED[name]
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    assert abs(100.0 * cw.aggregate(votes, "ebcc", restarts=restarts).score(votes.truth) - published) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed", "bound", "published"), [("bluebird", 3, -2068.366, 86.11), ("web", 376, -20137.33, 76.86)]
)
def test_the_optimum_of_the_published_figure_is_found_but_from_few_starts(name, seed, bound, published, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    found = cw.aggregate(votes, "ebcc", restarts=0, random_state=seed)
    assert abs(found.objective - bound) < 0.05
    assert abs(100.0 * found.score(votes.truth) - published) < 0.1


@pytest.mark.slow
def test_bluebird_has_an_optimum_above_the_published_one(real):
    """One start in a hundred finds a bound 0.08 higher than that of the published 86.11, at which accuracy is 89.81."""
    votes = cw.read_dataset(real("bluebird"), on_duplicate="all").votes
    found = cw.aggregate(votes, "ebcc", restarts=0, random_state=201)
    assert abs(found.objective - -2068.2856) < 0.001
    assert round(100.0 * found.score(votes.truth), 2) == 89.81
