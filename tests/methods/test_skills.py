"""One skill per annotator from pairs: against brute force, other optimisers and crowd-kit; with adversaries."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import crowdwise as cw
from crowdwise.core.loop import Rounds
from crowdwise.core.starts import log_odds
from crowdwise.errors import ConvergenceWarning
from crowdwise.methods.skills_agreement import (
    best_triangles,
    bounds,
    buckets,
    descend,
    graph_signs,
    misfit,
    ratio_weights,
    subsequence,
    triangle_signs,
    trimmed,
)
from crowdwise.methods.skills_graph import AgreementPairs, on_pattern, pairs

KEYS = ["eigenratio", "pgd", "m-msr", "triangular"]


def votes_of(folder):
    return cw.read_dataset(folder, on_duplicate="all").votes


def exact(s, linked=None, n=20.0):
    """Pairs without noise: c = s s^T where annotators are linked."""
    from scipy.sparse import csr_matrix

    M = len(s)
    linked = ~np.eye(M, dtype=bool) if linked is None else linked
    count = csr_matrix(np.where(linked, n, 0.0))
    count.sort_indices()
    row = np.repeat(np.arange(M), np.diff(count.indptr))
    return AgreementPairs(count, csr_matrix((s[row] * s[count.indices], count.indices, count.indptr), shape=(M, M)))


def ring_of_links(rng, M, share):
    linked = np.triu(rng.random((M, M)) < share, 1)
    for k in (1, 2):
        linked[np.arange(M), (np.arange(M) + k) % M] = True
    linked = linked | linked.T
    np.fill_diagonal(linked, False)
    return linked


# -------------------------------------------------------------------- pairs


@pytest.mark.parametrize("K", [2, 3])
def test_pairs_count_common_items_and_agreement(K):
    sim = cw.simulate.one_coin(40, n_annotators=7, n_classes=K, votes_per_item=3, random_state=K)
    rng = np.random.default_rng(0)
    votes = cw.Votes.from_codes(
        sim.votes.item, sim.votes.annotator, sim.votes.label, weight=rng.gamma(2.0, 0.5, sim.votes.n_votes),
        items=range(40), annotators=range(7), classes=range(K),
    )  # fmt: skip
    gold = np.where(np.arange(40) < 10, sim.truth, -1)
    found = pairs(votes, gold)
    said = {(n, m): (k, w) for n, m, k, w in zip(votes.item, votes.annotator, votes.label, votes.weights, strict=True)}
    said |= {(n, 7): (k, 1.0) for n, k in enumerate(gold) if k >= 0}
    for i, j in itertools.permutations(range(8), 2):
        both = [(said[n, i], said[n, j]) for n in range(40) if (n, i) in said and (n, j) in said]
        n = sum(a[1] * b[1] for a, b in both)
        assert found.n[i, j] == pytest.approx(n)
        if n:
            share = sum(a[1] * b[1] for a, b in both if a[0] == b[0]) / n
            assert found.c[i, j] == pytest.approx((K * share - 1) / (K - 1))
    assert not found.n.diagonal().any()


def test_values_are_looked_up_where_a_pattern_has_places():
    from scipy.sparse import csr_matrix

    pattern, values = csr_matrix([[0.0, 1.0], [1.0, 0.0]]), csr_matrix([[5.0, 0.0], [7.0, 0.0]])
    assert on_pattern(values, pattern).tolist() == [0.0, 7.0]
    assert len(on_pattern(values, csr_matrix((2, 2)))) == 0


def test_bounds_keep_weights_finite_even_on_one_item():
    for N, K in itertools.product((1, 2, 4, 100), (2, 3, 10)):
        low, high = bounds(N, K)
        assert -1 / (K - 1) < low < high < 1
    assert bounds(100, 2) == pytest.approx((-0.9, 0.9))
    assert bounds(100, 3) == pytest.approx((-0.4, 0.9))


@pytest.mark.parametrize("key", ["pgd", "m-msr", "triangular"])
def test_posterior_is_the_vote_weighted_by_log_odds_of_the_reported_skill(key):
    sim = cw.simulate.one_coin(100, n_annotators=10, n_classes=3, votes_per_item=6, random_state=0)
    c = cw.aggregate(sim.votes, key)
    skill = c.annotator_table["skill"].to_numpy()
    weight = log_odds((1 + 2 * skill) / 3, 3)
    assert np.allclose(weight, c.annotator_table["weight"].to_numpy())
    logit = np.zeros((100, 3))
    np.add.at(logit, (sim.votes.item, sim.votes.label), weight[sim.votes.annotator])
    q = np.exp(logit - logit.max(axis=1, keepdims=True))
    assert np.allclose(c.posterior, q / q.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("key", KEYS)
def test_skills_are_recovered_the_better_the_more_items(key):
    error = []
    for n in (200, 2000, 20000):
        sim = cw.simulate.one_coin(n, n_annotators=15, n_classes=3, a=6.0, b=3.0, votes_per_item=10, random_state=1)
        true = (3 * sim.parameters["confusion"][:, 0, 0] - 1) / 2
        error.append(np.abs(cw.aggregate(sim.votes, key).annotator_table["skill"].to_numpy() - true).mean())
    assert error[0] > error[1] > error[2]
    # eigenratio takes the diagonal of agreement to be 1, which flattens skills a little; m-msr averages |c|
    assert error[2] < (0.06 if key == "eigenratio" else 0.03)


@pytest.mark.parametrize("key", KEYS)
def test_lopsided_classes_do_not_look_like_skill(key):
    sim = cw.simulate.one_coin(4000, n_annotators=15, prior=[0.9, 0.1], votes_per_item=8, random_state=3)
    c = cw.aggregate(sim.votes, key)
    true = 2 * sim.parameters["confusion"][:, 0, 0] - 1
    assert np.corrcoef(c.annotator_table["skill"].to_numpy(), true)[0, 1] > 0.97


@pytest.mark.parametrize("key", KEYS)
def test_known_truths_turn_a_crowd_that_is_mostly_wrong(key):
    sim = cw.simulate.hammer_spammer(300, n_annotators=12, skill=0.25, votes_per_item=10, random_state=0)
    assert cw.aggregate(sim.votes, key).score(sim.truth) < 0.2
    gold = {n: int(sim.truth[n]) for n in range(25)}
    assert cw.aggregate(sim.votes, key, gold=gold).score(sim.truth) > 0.8


@pytest.mark.parametrize("key", KEYS)
def test_somebody_who_shares_no_item_is_taken_for_average(key):
    sim = cw.simulate.one_coin(100, n_annotators=8, votes_per_item=5, random_state=0)
    votes = cw.Votes.from_codes(
        np.append(sim.votes.item, [100, 101]),
        np.append(sim.votes.annotator, [8, 8]),
        np.append(sim.votes.label, [1, 0]),
        items=range(102),
        annotators=range(9),
        classes=range(2),
    )
    c = cw.aggregate(votes, key)
    assert c.label_codes[100:].tolist() == [1, 0]
    assert np.allclose(c.posterior[:100], cw.aggregate(sim.votes, key).posterior, atol=0.03)


# -------------------------------------------------------------------- eigenratio


@pytest.mark.parametrize("seed", range(4))
def test_eigenratio_is_that_of_a_dense_decomposition(seed):
    votes = cw.simulate.two_coin(150, n_annotators=20, votes_per_item=5, random_state=seed).votes
    A = np.zeros((150, 20))
    A[votes.item, votes.annotator] = np.where(votes.label == 1, 1.0, -1.0)
    G = np.abs(A)
    v1 = np.linalg.svd((A.T @ A) / (G.T @ G + 1e-8))[0][:, 0]
    v2 = np.linalg.svd((G.T @ G > 0).astype(float))[0][:, 0]
    u = A @ (v1 / v2)
    u = u if u @ A.sum(axis=1) >= 0 else -u
    assert np.array_equal(cw.aggregate(votes, "eigenratio").label_codes, (u > 0).astype(int))


def test_eigenratio_comes_near_exact_skills_as_the_diagonal_of_ones_weighs_less():
    errors = []
    for M in (5, 20, 80):
        s = np.tile([0.9, 0.5, 0.7, 0.3, 0.8], M // 5)
        errors.append(np.abs(np.abs(ratio_weights(exact(s))[1]) - s).max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


# -------------------------------------------------------------------- projected gradient


def test_gradient_is_that_of_the_misfit():
    rng = np.random.default_rng(0)
    found = exact(rng.uniform(-0.5, 0.9, 6))
    found.c.data[:] += 0.1
    nc = found.c.copy()
    nc.data = found.n.data * found.c.data
    total = float((found.n.data * found.c.data**2).sum())
    x = rng.uniform(-0.5, 0.9, 6)
    f, gradient = misfit(x, found.n, nc, total)
    direct = sum(found.n[i, j] * (found.c[i, j] - x[i] * x[j]) ** 2 / 2 for i, j in itertools.combinations(range(6), 2))
    assert f == pytest.approx(direct)
    for i in range(6):
        step = 1e-6 * np.eye(6)[i]
        slope = (misfit(x + step, found.n, nc, total)[0] - misfit(x - step, found.n, nc, total)[0]) / 2e-6
        assert gradient[i] == pytest.approx(slope, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_descent_reaches_skills_exactly_without_diagonal_and_unobserved_pairs(seed):
    """The released script counts the diagonal and the zeros of pairs without common items: then it cannot."""
    rng = np.random.default_rng(seed)
    s = rng.uniform(0.1, 0.9, 12)
    found = exact(s, ring_of_links(rng, 12, 0.3), rng.integers(1, 40))
    x = descend(found, np.full(12, 0.5), np.full(12, -0.95), np.full(12, 0.95), Rounds(20000, 1.0), 1e-12)
    assert np.allclose(x, s, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_descent_ends_where_another_optimiser_does(seed):
    from scipy.optimize import minimize

    sim = cw.simulate.one_coin(300, n_annotators=14, n_classes=3, votes_per_item=5, random_state=seed)
    found = pairs(sim.votes, None)
    low, high = bounds(300, 3)
    c = cw.aggregate(sim.votes, "pgd", max_iter=20000, tol=1e-11)
    nc = found.c.copy()
    nc.data = found.n.data * found.c.data
    total = float((found.n.data * found.c.data**2).sum())
    best = minimize(
        lambda x: misfit(x, found.n, nc, total), np.full(14, 0.5), jac=True, method="L-BFGS-B",
        bounds=[(low, high)] * 14, options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000},
    )  # fmt: skip
    assert np.allclose(c.annotator_table["skill"].to_numpy(), best.x, atol=1e-4)
    assert (np.diff(c.trace) >= 0).all()


def test_too_few_steps_are_reported():
    sim = cw.simulate.one_coin(100, n_annotators=10, votes_per_item=4, random_state=0)
    for key in ("pgd", "m-msr"):
        with pytest.warns(ConvergenceWarning, match="max_iter"):
            assert not cw.aggregate(sim.votes, key, max_iter=2, tol=0.0).converged


# -------------------------------------------------------------------- trimmed means


def trim_by_hand(values, current, F):
    below, above = sorted(v for v in values if v < current), sorted(v for v in values if v > current)
    kept = below[min(F, len(below)) :] + [v for v in values if v == current] + above[: len(above) - min(F, len(above))]
    return np.mean(kept) if kept else current


@pytest.mark.parametrize("trim", [0, 1, 3, 50])
def test_trimmed_means(trim):
    rng = np.random.default_rng(trim)
    size = rng.integers(0, 20, 30)
    indptr = np.concatenate([[0], np.cumsum(size)])
    value, current = rng.gamma(2.0, 1.0, size.sum()).round(1), rng.gamma(2.0, 1.0, 30).round(1)
    found = trimmed(value, current, list(buckets(indptr)), trim)
    expected = [
        trim_by_hand(value[a:b].tolist(), c, trim) for a, b, c in zip(indptr[:-1], indptr[1:], current, strict=True)
    ]
    assert np.allclose(found, expected)


def test_subsequence_finds_exact_skills_with_corrupted_entries():
    """Two of fourteen say anything: their rows of |c| are noise. Trimmed, the others come out right."""
    rng = np.random.default_rng(1)
    s = rng.uniform(0.3, 0.9, 14)
    found = exact(s)
    bad = np.isin(np.repeat(np.arange(14), 13), [12, 13]) | np.isin(found.n.indices, [12, 13])
    found.c.data[bad] = rng.random(bad.sum())
    robust = subsequence(found, 2, 1e-3, 14, Rounds(5000, 1.0), 1e-12)
    plain = subsequence(found, 0, 1e-3, 14, Rounds(5000, 1.0), 1e-12)
    assert np.abs(robust[:12] - s[:12]).max() < 0.5 * np.abs(plain[:12] - s[:12]).max()
    assert np.abs(subsequence(exact(s), 2, 1e-3, 14, Rounds(5000, 1.0), 1e-12) - s).max() < 1e-6


def test_signs_of_the_graph():
    s = np.array([0.8, 0.6, -0.5, 0.7, -0.4, 0.9])
    assert graph_signs(exact(s), 6).tolist() == np.sign(s).tolist()
    assert (
        graph_signs(exact(-s), 6).tolist() == np.sign(s).tolist()
    )  # most annotators are taken to be better than chance


def under_attack(seed=0, N=600, H=24, bad=8, K=3):
    """Honest annotators label a third of the items; adversaries label all, and nine times in ten one wrong label."""
    rng = np.random.default_rng(seed)
    truth, p = rng.integers(0, K, N), rng.uniform(0.55, 0.85, H)
    wrong = (truth + rng.integers(1, K, N)) % K
    other = (truth[:, None] + rng.integers(1, K, (N, H))) % K
    label = np.where(rng.random((N, H)) < p, truth[:, None], other)
    label[rng.random((N, H)) > 0.35] = -1
    ring = np.where(rng.random((N, bad)) < 0.9, wrong[:, None], truth[:, None])
    return cw.Votes.from_dense(np.column_stack([label, ring]), missing=-1, classes=range(K)), truth


@pytest.mark.parametrize("seed", range(3))
def test_m_msr_survives_adversaries_who_mislead_the_others(seed):
    votes, truth = under_attack(seed)
    assert cw.aggregate(votes, "majority").score(truth) < 0.5
    assert cw.aggregate(votes, "pgd").score(truth) < 0.1
    c = cw.aggregate(votes, "m-msr")
    assert c.score(truth) > 0.9
    skill = c.annotator_table["skill"].to_numpy()
    assert (skill[24:] < 0).all()
    assert (skill[:24] > 0).all()
    assert c.score(truth) > cw.aggregate(votes, "m-msr", trim=0).score(truth) + 0.02


def test_a_thousand_annotators_fit_in_a_gigabyte():
    sim = cw.simulate.one_coin(1200, n_annotators=1000, n_classes=3, votes_per_item=25, random_state=0)
    tracemalloc.start()
    c = cw.aggregate(sim.votes, "m-msr", max_iter=50)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e9
    assert c.score(sim.truth) > 0.95


@pytest.mark.filterwarnings("ignore::Warning:crowdkit")
def test_m_msr_agrees_with_crowd_kit():
    from crowdkit.aggregation import MMSR

    sim = cw.simulate.one_coin(400, n_annotators=12, n_classes=3, a=8.0, b=3.0, random_state=2)
    table = pd.DataFrame({"task": sim.votes.item, "worker": sim.votes.annotator, "label": sim.votes.label})
    theirs = MMSR(n_iter=10000, random_state=0).fit(table)
    c = cw.aggregate(sim.votes, "m-msr")
    # their start is random, and trimming remembers it: weights agree closely, not to rounding
    assert np.corrcoef(theirs.skills_.sort_index().to_numpy(), c.annotator_table["weight"].to_numpy())[0, 1] > 0.99
    assert (theirs.predict(table).sort_index().to_numpy() == c.label_codes).mean() > 0.98


# -------------------------------------------------------------------- triangles


@pytest.mark.parametrize("seed", range(4))
def test_triangles_are_exact_without_noise(seed):
    rng = np.random.default_rng(seed)
    s = rng.uniform(-0.4, 0.9, 15)
    s[0] = 0.95
    found = exact(s, ring_of_links(rng, 15, 0.5))
    size = np.sqrt(best_triangles(found, 64)[0])
    assert np.allclose(size, np.abs(s))
    assert np.allclose(size * triangle_signs(found, size), s * np.sign(s.sum()), atol=1e-9)


def test_the_best_triangle_is_taken_and_equals_are_averaged():
    sim = cw.simulate.one_coin(60, n_annotators=7, votes_per_item=4, random_state=1)
    found = pairs(sim.votes, None)
    n, c = found.n.toarray(), np.abs(found.c.toarray())
    square = best_triangles(found, 64)[0]
    for k in range(7):
        options = []
        for i, j in itertools.combinations([m for m in range(7) if m != k and n[k, m]], 2):
            if n[i, j] and c[i, j]:
                score = c[i, j] * np.sqrt(min(n[i, j], n[i, k], n[j, k]))
                options.append((score, c[i, k] * c[j, k] / c[i, j]))
        best = max(score for score, _ in options)
        assert square[k] == pytest.approx(np.mean([v for score, v in options if np.isclose(score, best, rtol=1e-9)]))


def test_no_triangle_no_estimate():
    linked = np.zeros((4, 4), dtype=bool)
    linked[[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]] = True
    assert np.isnan(best_triangles(exact(np.full(4, 0.5), linked), 64)[0]).all()


def test_fewer_partners_give_nearly_the_same():
    sim = cw.simulate.one_coin(2000, n_annotators=40, votes_per_item=15, random_state=1)
    wide, narrow = (cw.aggregate(sim.votes, "triangular", max_partners=w) for w in (64, 10))
    assert np.abs(wide.annotator_table["skill"].to_numpy() - narrow.annotator_table["skill"].to_numpy()).mean() < 0.05


# -------------------------------------------------------------------- real data

# Re-computed figures for eigenratio and pgd. For m-msr and triangular there are none: ours are kept so that a change
# shows; crowd-kit reports 93.6 (d_product) for m-msr from a random start.
ACCURACY = {
    ("eigenratio", "bluebird"): (72.22, 0.006), ("eigenratio", "rte"): (91.00, 0.006),
    ("eigenratio", "d_product"): (92.76, 0.006), ("eigenratio", "d_sentiment"): (94.20, 0.006),
    ("eigenratio", "dog"): (82.78, 0.006),
    ("pgd", "bluebird"): (72.22, 0.006), ("pgd", "rte"): (92.75, 0.006), ("pgd", "dog"): (83.15, 0.15),
    ("pgd", "web"): (82.59, 0.15), ("pgd", "d_product"): (92.70, 0.05), ("pgd", "d_sentiment"): (94.70, 0.1),
    ("pgd", "face"): (63.01, 0.2), ("pgd", "s_adult"): (75.98, 0.3), ("pgd", "labelme"): (77.10, 0.2),
    ("pgd", "music_genre"): (79.71, 0.5), ("pgd", "wsd"): (99.44, 0.01),
    ("m-msr", "bluebird"): (71.30, 1.0), ("m-msr", "rte"): (92.12, 0.3), ("m-msr", "d_product"): (92.63, 0.3),
    ("m-msr", "music_genre"): (79.57, 0.5),
    ("triangular", "d_product"): (92.23, 0.3), ("triangular", "d_sentiment"): (95.10, 0.3),
    ("triangular", "web"): (84.06, 0.5),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("key", "name"), list(ACCURACY))
def test_accuracy_on_real_crowds(key, name, real):
    votes = votes_of(real(name))
    accuracy, tolerance = ACCURACY[key, name]
    assert 100 * cw.aggregate(votes, key, fall_back=False).score(votes.truth) == pytest.approx(accuracy, abs=tolerance)


@pytest.mark.slow
def test_the_published_eigenratio_on_trec_is_the_share_of_the_larger_class(real):
    """56.04 is what 'relevant' for every item scores. Two annotators there share no item with anybody: v1 / v2 is 0 / 0
    for them, and in a dense product one such weight makes the score of every item NaN. Solved group by group, the
    method is right on 61.3 %."""
    votes = votes_of(real("trec2010_binary"))
    known = votes.truth >= 0
    assert 100 * (votes.truth[known] == 1).mean() == pytest.approx(56.04, abs=0.01)
    assert (np.diff(pairs(votes, None).n.indptr) == 0).sum() == 2
    assert 100 * cw.aggregate(votes, "eigenratio").score(votes.truth) == pytest.approx(61.3, abs=0.1)
