"""Every estimate of an annotator has an interval, and it holds the truth about as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, chi2

import crowdwise as cw
from crowdwise import registry
from crowdwise.core.intervals import around, gamma_interval, rate_interval
from crowdwise.core.vote_sums import right_votes
from crowdwise.methods.skills_agreement import best_triangles
from crowdwise.methods.skills_graph import pairs
from crowdwise.methods.skills_precision import knowing_information, pair_variance, triangle_variance

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def estimates(key, columns):
    ends = {name for name in columns if name.endswith(("_low", "_high"))}
    return set(columns) - ends - set(registry.find(key).load().columns_without_interval)


def inside(columns, name, true):
    return (columns[f"{name}_low"] <= true) & (true <= columns[f"{name}_high"])


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("key", registry.METHODS)
def test_every_estimate_of_an_annotator_has_an_interval_around_it(key, K):
    sim = cw.simulate.dirichlet(120, n_annotators=10, n_classes=K, votes_per_item=4, random_state=1)
    gold = np.where(np.arange(120) < 24, sim.truth, -1).astype(np.int32)
    for truth in (None, gold):
        if truth is None and registry.find(key).load().needs_gold:
            continue
        c = cw.aggregate(sim.votes, key, gold=truth, **({"restarts": 0} if key == "ebcc" else {}))
        if c.confusion is not None:
            low, high = c.confusion_interval()
            assert low.shape == high.shape == c.confusion.shape
            assert ((low >= 0) & (low <= high) & (high <= 1)).all()
        columns = c.annotator_columns
        for name in estimates(key, columns):
            value, low, high = columns[name], columns[f"{name}_low"], columns[f"{name}_high"]
            assert ((low <= value) & (value <= high)).all(), name
            assert (low < high).all(), name
        for name in ("difficulty",) if key in ("glad", "irt") else ():
            items = c.item_columns
            assert ((items[f"{name}_low"] <= items[name]) & (items[name] <= items[f"{name}_high"])).all()


@pytest.mark.parametrize("key", [k for k in registry.METHODS if k not in ("majority", "minimax", "bp", "ebcc")])
def test_intervals_narrow_with_more_votes(key):
    widths = []
    for N in (100, 1600):
        sim = cw.simulate.one_coin(N, n_annotators=10, n_classes=3, a=6.0, b=3.0, votes_per_item=6, random_state=2)
        gold = np.where(np.arange(N) < N // 5, sim.truth, -1).astype(np.int32)
        c = cw.aggregate(sim.votes, key, gold=gold if key == "gold-weighted" else None)
        _, low, high = c.accuracy()
        found = {"accuracy": (high - low).mean()}
        for name in estimates(key, c.annotator_columns):
            # Weights of annotators differ in scale, and that of vectors of length 1 or by losses with the votes.
            size = np.abs(c.annotator_columns[name]).mean()
            found[name] = ((c.annotator_columns[f"{name}_high"] - c.annotator_columns[f"{name}_low"]) / size).mean()
        widths.append(found)
    for name in widths[0]:
        # A root of 16 is 4; where labels are taken for known, a quarter, and less where they become clear. The error
        # of the crowd stays in accuracies.
        assert widths[1][name] < (0.9 if name == "accuracy" else 0.6) * widths[0][name], (name, widths)


def test_no_votes_no_information():
    """Somebody without votes has the widest interval there is, and nothing breaks."""
    sim = cw.simulate.one_coin(60, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0)
    v = sim.votes
    votes = cw.Votes.from_codes(
        v.item, v.annotator, v.label, items=v.items, annotators=[*v.annotators, "absent"], classes=v.classes
    )
    for key in registry.METHODS:
        gold = np.where(np.arange(60) < 20, sim.truth, -1).astype(np.int32)
        c = cw.aggregate(votes, key, gold=gold if key == "gold-weighted" else None)
        for name in estimates(key, c.annotator_columns):
            width = c.annotator_columns[f"{name}_high"] - c.annotator_columns[f"{name}_low"]
            assert not np.isnan(width).any()
            if key not in ("pm", "bwa", "catd", "mace"):  # on scales that depend on the votes, or with a strong prior
                assert width[6] >= 0.95 * width[:6].max(), (key, name, width)


# -------------------------------------------------------------------- the arithmetic


def test_rates_have_the_interval_of_jeffreys_and_chi_squared_that_of_scipy():
    low, high = rate_interval(np.array([0.0, 7.0, 20.0]), np.full(3, 20.0))
    assert np.allclose(low, beta.ppf(0.025, [0.5, 7.5, 20.5], [20.5, 13.5, 0.5]))
    assert np.allclose(high, beta.ppf(0.975, [0.5, 7.5, 20.5], [20.5, 13.5, 0.5]))
    low, high = gamma_interval(np.ones(2), np.array([1.0, 12.5]) / 2.0)
    assert np.allclose(low, chi2.ppf(0.025, [1.0, 12.5]) / [1.0, 12.5])
    assert np.allclose(high, chi2.ppf(0.975, [1.0, 12.5]) / [1.0, 12.5])
    low, high = around(np.array([0.5, 0.5]), np.array([0.01, np.inf]), 0.0, 1.0)
    assert np.allclose([low, high], [[0.304, 0.0], [0.696, 1.0]], atol=1e-3)


def test_right_votes_are_counted_with_their_weights():
    names = {"items": range(2), "annotators": range(2), "classes": range(2)}
    votes = cw.Votes.from_codes(
        np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0, 1, 1]), weight=np.array([1.0, 2.0, 3.0]), **names
    )
    right, total, unsure = right_votes(votes, np.array([[0.9, 0.1], [0.4, 0.6]]))
    assert np.allclose(right, [0.9 + 3 * 0.6, 0.2])
    assert np.allclose(total, [4.0, 2.0])
    assert np.allclose(unsure, [0.09 + 3 * 0.24, 0.18])


def test_the_variance_from_pairs_equals_plain_loops():
    """With truths known for some items, and somebody who answered an item twice."""
    rng = np.random.default_rng(0)
    item, who = rng.integers(0, 12, 50), rng.integers(0, 5, 50)
    label, K = rng.integers(0, 3, 50), 3
    votes = cw.Votes.from_codes(
        item, who, label, items=range(12), annotators=range(5), classes=range(3), on_duplicate="all"
    )
    gold = np.where(np.arange(12) < 4, rng.integers(0, 3, 12), -1).astype(np.int32)
    s = np.append(rng.uniform(-0.2, 0.9, 5), 1.0)
    rows = [*zip(votes.item, votes.annotator, votes.label, strict=True), *((n, 5, gold[n]) for n in range(4))]
    found = pair_variance(votes, gold, s)
    for m in range(6):
        top = bottom = 0.0
        for n in range(12):
            gap = 0.0
            for i, a, x in rows:
                for j, b, y in rows:
                    if i == j == n and a == m and b != m:
                        gap += s[b] * ((K * (x == y) - 1.0) / (K - 1.0) - s[m] * s[b])
                        bottom += s[b] ** 2
            top += gap**2
        assert np.isclose(found[m], top / bottom**2)


def test_the_variance_from_a_triangle_equals_plain_loops():
    rng = np.random.default_rng(1)
    label, K = rng.integers(0, 3, (30, 4)), 3
    label[:, 1:][rng.random((30, 3)) < 0.7] = 0
    label[rng.random((30, 4)) < 0.2] = -1
    votes = cw.Votes.from_dense(label, missing=-1, classes=range(3))
    found = pairs(votes, None)
    square, first, second = best_triangles(found, 64)
    size = np.sqrt(square)
    c = found.c.toarray()
    got = triangle_variance(votes, None, found, size, first, second)
    for k in range(4):
        (a, b), psi = (first[k], second[k]), np.zeros(30)
        for x, y, slope in ((a, k, c[b, k]), (b, k, c[a, k]), (a, b, -c[a, k] * c[b, k] / c[a, b])):
            both = (label[:, x] >= 0) & (label[:, y] >= 0)
            e = (K * (label[:, x] == label[:, y]) - 1.0) / (K - 1.0)
            psi += slope / c[a, b] * np.where(both, (e - c[x, y]) / both.sum(), 0.0)
        V = (psi**2).sum()
        assert np.isclose(got[k], min(V / (4.0 * max(size[k], 1e-9) ** 2), np.sqrt(V) / 1.959964))


def test_information_about_knowing_is_that_of_the_whole_fisher_matrix():
    rng = np.random.default_rng(2)
    K, theta, xi, n = 4, 0.6, rng.dirichlet(np.ones(4)), rng.uniform(5.0, 30.0, 4)
    fisher = np.zeros((K + 1, K + 1))
    for k in range(K):
        for label in range(K):
            slope = np.zeros(K + 1)
            slope[0] = theta * (1.0 - theta) * ((label == k) - xi[label])
            slope[1 + label] = 1.0 - theta
            p = theta * (label == k) + (1.0 - theta) * xi[label]
            fisher += n[k] * np.outer(slope, slope) / p
    fisher[1:, 1:] += np.diag(2.0 / xi**2)
    # Free directions of xi: those whose sum is zero.
    basis = np.zeros((K + 1, K))
    basis[0, 0] = 1.0
    basis[1:, 1:] = np.linalg.svd(np.ones((1, K)))[2][1:].T
    variance = np.linalg.inv(basis.T @ fisher @ basis)[0, 0]
    found = knowing_information(np.array([theta]), xi[None], n[None], np.full((1, K), 2.0))
    assert np.isclose(found[0], 1.0 / variance)


# -------------------------------------------------------------------- coverage
# Nominal 95 %. Seven to twelve crowds of twenty annotators with about 150 to 500 votes each: 140 to 240 intervals, so
# that a share of 95 % is seen as 92 to 98.

SKILLS = {
    "pgd": ("skill", 0.9), "m-msr": ("skill", 0.9), "triangular": ("skill", 0.88), "eigenratio": ("skill", 0.88),
    "zencrowd": ("reliability", 0.9),
}  # fmt: skip


@pytest.mark.parametrize("key", SKILLS)
def test_skills_of_one_coin_annotators_are_covered(key):
    name, least = SKILLS[key]
    found = []
    for seed in range(12):
        sim = cw.simulate.one_coin(
            500, n_annotators=20, n_classes=3, a=6.0, b=3.0, votes_per_item=10, random_state=seed
        )
        true = (3.0 * sim.parameters["accuracy"] - 1.0) / 2.0
        columns = cw.aggregate(sim.votes, key).annotator_columns
        found.append(inside(columns, name, np.maximum(true, 0.0) if key == "zencrowd" else true))
    assert least < np.mean(found) < 0.99


@pytest.mark.parametrize(
    ("key", "name", "true"),
    [
        ("wawa", "skill", lambda p, K: p),
        ("zero-based-skill", "skill", lambda p, K: p),
        ("iwmv", "weight", lambda p, K: K * p - 1.0),
        ("gold-weighted", "weight", lambda p, K: np.log(p * (K - 1.0) / (1.0 - p))),
    ],
)
def test_agreement_with_clear_labels_is_covered(key, name, true):
    """Where ten votes of four classes make labels right, agreement with them is accuracy; with the gold ones anyway."""
    found = []
    for seed in range(8):
        sim = cw.simulate.one_coin(
            600, n_annotators=20, n_classes=4, a=6.0, b=3.0, votes_per_item=10, random_state=seed
        )
        gold = np.where(np.arange(600) < 200, sim.truth, -1) if key == "gold-weighted" else None
        columns = cw.aggregate(sim.votes, key, gold=gold).annotator_columns
        found.append(inside(columns, name, true(sim.parameters["accuracy"], 4)))
    assert 0.88 < np.mean(found) < 0.99


def test_pm_and_catd_cover_what_their_weights_stand_for():
    pm, catd = [], []
    for seed in range(8):
        sim = cw.simulate.one_coin(500, n_annotators=20, n_classes=4, a=6.0, b=3.0, random_state=seed)
        wrong = 1.0 - sim.parameters["accuracy"]
        pm.append(inside(cw.aggregate(sim.votes, "pm").annotator_columns, "weight", -np.log(wrong / wrong.sum())))
        catd.append(inside(cw.aggregate(sim.votes, "catd").annotator_columns, "weight", 1.0 / wrong))
    assert 0.88 < np.mean(pm) <= 1.0
    # The chi-squared distribution is that of squared Gaussian errors, and wide for counts of rare ones.
    assert 0.88 < np.mean(catd) <= 1.0


@pytest.mark.parametrize("key", ["ghosh", "kos-svd", "kos"])
def test_weights_of_two_classes_are_covered_up_to_scale(key):
    found = []
    for seed in range(10):
        sim = cw.simulate.one_coin(400, n_annotators=20, a=6.0, b=3.0, random_state=seed)
        skill = 2.0 * sim.parameters["accuracy"] - 1.0
        columns = cw.aggregate(sim.votes, key).annotator_columns
        found.append(inside(columns, "weight", skill * (skill @ columns["weight"]) / (skill @ skill)))
    assert 0.88 < np.mean(found) < 0.99


def test_both_coins_of_sml_are_covered():
    found = []
    for seed in range(8):
        sim = cw.simulate.two_coin(600, n_annotators=20, votes_per_item=10, prior=[0.6, 0.4], random_state=seed)
        columns = cw.aggregate(sim.votes, "sml").annotator_columns
        both = (sim.parameters["sensitivity"] + sim.parameters["specificity"]) / 2.0
        found += [inside(columns, name, sim.parameters[name]) for name in ("sensitivity", "specificity")]
        found.append(inside(columns, "balanced_accuracy", both))
    assert 0.9 < np.mean(found) < 0.99


def guessers(seed, N, M, K, r, sd):
    """Annotators who know, or answer from habit; how probable knowing is depends on the item where sd > 0."""
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(0.7, 1.2, M), rng.normal(0.0, sd, N)
    habit, truth = rng.dirichlet(np.full(K, 3.0), M), rng.integers(0, K, N)
    item, who = cw.simulate.assign(N, M, r, random_state=rng)
    guess = (rng.random(len(item))[:, None] > np.cumsum(habit, axis=1)[who]).sum(axis=1).clip(0, K - 1)
    label = np.where(rng.random(len(item)) < 1 / (1 + np.exp(difficulty[item] - ability[who])), truth[item], guess)
    votes = cw.Votes.from_codes(item, who, label, items=range(N), annotators=range(M), classes=range(K))
    return votes, ability, difficulty, habit


@pytest.mark.parametrize("inference", ["variational", "em"])
def test_competence_of_mace_is_covered(inference):
    """With 160 votes each."""
    found = []
    for seed in range(10):
        votes, ability, _, _ = guessers(seed, 400, 20, 3, 8, 0.0)
        columns = cw.aggregate(votes, "mace", inference=inference).annotator_columns
        found.append(inside(columns, "competence", 1.0 / (1.0 + np.exp(-ability))))
    assert 0.9 < np.mean(found) < 0.99


def test_ability_and_difficulty_of_irt_are_covered():
    """With 125 votes per annotator and 10 per item."""
    able, hard = [], []
    for seed in range(7):
        votes, ability, difficulty, _ = guessers(seed, 250, 20, 3, 10, 0.5)
        c = cw.aggregate(votes, "irt")
        able.append(inside(c.annotator_columns, "ability", ability))
        hard.append(inside(c.item_columns, "difficulty", difficulty))
    assert 0.9 < np.mean(able) < 0.995
    assert 0.9 < np.mean(hard) < 0.99


def test_ability_and_difficulty_of_glad_are_covered():
    """With 125 votes per annotator and 10 per item, and with 500 per annotator: the width follows."""
    widths = []
    for N in (500, 1000):
        able, hard, width = [], [], []
        M = 40 if N == 500 else 20
        for seed in range(6):
            sim = cw.simulate.difficulty(
                N, n_annotators=M, votes_per_item=10, ability=(1, 1), log_inverse_difficulty=(1, 1), random_state=seed
            )
            c = cw.aggregate(sim.votes, "glad")
            able.append(inside(c.annotator_columns, "ability", sim.parameters["ability"]))
            hard.append(inside(c.item_columns, "difficulty", np.exp(-sim.parameters["log_inverse_difficulty"])))
            width.append(c.annotator_columns["ability_high"] - c.annotator_columns["ability_low"])
        assert 0.88 < np.mean(able) < 0.99
        assert 0.9 < np.mean(hard) < 0.99
        widths.append(np.mean(width))
    assert 0.4 < widths[1] / widths[0] < 0.65


def test_point_estimates_of_difficulty_alone_would_not_cover():
    """Why they are integrated out: as if the other half of the model were known, 95 % would be 60."""
    found = []
    for seed in range(6):
        sim = cw.simulate.difficulty(
            1000, n_annotators=20, votes_per_item=10, ability=(1, 1), log_inverse_difficulty=(1, 1), random_state=seed
        )
        c = cw.aggregate(sim.votes, "glad")
        ease = 1.0 / c.item_columns["difficulty"][sim.votes.item]
        p = 1.0 / (1.0 + np.exp(-c.annotator_columns["ability"][sim.votes.annotator] * ease))
        information = np.bincount(sim.votes.annotator, weights=ease**2 * p * (1.0 - p)) + 1.0
        found.append(np.abs(c.annotator_columns["ability"] - sim.parameters["ability"]) < 1.96 / np.sqrt(information))
    assert np.mean(found) < 0.75
