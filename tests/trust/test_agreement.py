"""Agreement coefficients against formulas by hand, published tables and other implementations."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

import crowdwise as cw
from crowdwise.answer_types.label_sets import set_similarities
from crowdwise.errors import InputError, ParameterError
from crowdwise.metrics import Estimate
from crowdwise.trust import (
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    icc,
    krippendorff_alpha,
    light_kappa,
    pairwise_agreement,
    percent_agreement,
    scott_pi,
)
from crowdwise.trust.agreement import strength
from crowdwise.trust.agreement_coefficients import Patterns
from crowdwise.trust.agreement_pairs import kappa_variance

ONCE = {"resamples": 1}

# Krippendorff 2011, example C: four observers, twelve units, missing values.
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, -1, -1, -1],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, -1, 3],
        [-1, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, -1],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, -1],
    ]
).T
# Fleiss 1971, table 1 as in the usual shorter example: ten items, fourteen votes, five classes.
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
# Shrout and Fleiss 1979, table 2.
SHROUT = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]


def krippendorffs():
    return cw.Votes.from_dense(KRIPPENDORFF, missing=-1)


def random_table(seed, missing=0.3):
    rng = np.random.default_rng(seed)
    N, M, K = rng.integers(15, 40), rng.integers(3, 7), rng.integers(2, 6)
    truth = rng.integers(0, K, N)
    label = np.where(rng.random((N, M)) < 0.6, truth[:, None], rng.integers(0, K, (N, M)))
    label[rng.random((N, M)) < missing] = -1
    return label, cw.Votes.from_dense(label, missing=-1, classes=range(K))


def pairs_of(label):
    """All ordered pairs of votes on an item, by plain loops: (item, votes on it, one label, another)."""
    for n, row in enumerate(label):
        said = row[row >= 0]
        for i, j in combinations(range(len(said)), 2):
            yield n, len(said), said[i], said[j]
            yield n, len(said), said[j], said[i]


# -------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("scale", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)]
)
def test_alpha_of_krippendorffs_example(scale, published):
    found = krippendorff_alpha(krippendorffs(), scale=scale)
    assert round(found.value, 3) == published
    assert found.low < found.value < found.high <= 1.0
    assert found.n == 11  # the unit with a single vote is left out


@pytest.mark.parametrize("seed", range(4))
def test_alpha_equals_plain_loops(seed):
    label, votes = random_table(seed)
    K = votes.n_classes
    o = np.zeros((K, K))
    for _, n, a, b in pairs_of(label):
        o[a, b] += 1.0 / (n - 1)
    mass = o.sum(axis=1)
    total = mass.sum()
    ranks = np.cumsum(mass)

    def ordinal(a, b):
        a, b = min(a, b), max(a, b)
        return (ranks[b] - (ranks[a] - mass[a]) - (mass[a] + mass[b]) / 2) ** 2 if a != b else 0.0

    distance = {
        "nominal": lambda a, b: float(a != b),
        "ordinal": ordinal,
        "interval": lambda a, b: float((a - b) ** 2),
        "ratio": lambda a, b: ((a - b) / (a + b)) ** 2 if a + b else 0.0,
    }
    for scale, d in distance.items():
        grid = np.array([[d(a, b) for b in range(K)] for a in range(K)])
        expected = 1.0 - (o * grid).sum() / total / ((np.outer(mass, mass) * grid).sum() / (total * (total - 1)))
        assert krippendorff_alpha(votes, scale=scale, **ONCE).value == pytest.approx(expected, abs=1e-10)


def test_fleiss_of_the_textbook_table():
    records = [
        (n, f"{n}-{j}", k) for n, row in enumerate(FLEISS) for j, k in enumerate(np.repeat(np.arange(5), row).tolist())
    ]
    votes = cw.Votes.from_records(records, classes=range(5))
    assert round(fleiss_kappa(votes, **ONCE).value, 3) == 0.210
    assert round(percent_agreement(votes, **ONCE).value, 3) == 0.378


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
def test_percent_fleiss_and_gwet_equal_plain_loops(seed, weights):
    label, votes = random_table(seed)
    K = votes.n_classes
    gap = np.abs(np.subtract.outer(np.arange(K), np.arange(K))) / (K - 1)
    w = {None: np.eye(K), "linear": 1 - gap, "quadratic": 1 - gap**2}[weights]
    share = {}
    for n, _, a, b in pairs_of(label):
        share.setdefault(n, []).append(w[a, b])
    p_a = np.mean([np.mean(s) for s in share.values()])
    pi = np.mean([np.bincount(row[row >= 0], minlength=K) / (row >= 0).sum() for row in label if (row >= 0).any()], 0)
    fleiss, gwet = pi @ w @ pi, w.sum() / (K * (K - 1)) * (pi * (1 - pi)).sum()
    assert percent_agreement(votes, weights=weights, **ONCE).value == pytest.approx(p_a)
    assert fleiss_kappa(votes, weights=weights, **ONCE).value == pytest.approx((p_a - fleiss) / (1 - fleiss))
    assert gwet_ac2(votes, weights=weights, **ONCE).value == pytest.approx((p_a - gwet) / (1 - gwet))
    if weights is None:
        assert gwet_ac1(votes, **ONCE).value == gwet_ac2(votes, weights=None, **ONCE).value


@pytest.mark.parametrize("seed", range(4))
def test_cohen_equals_scikit_learn(seed):
    from sklearn.metrics import cohen_kappa_score

    label, votes = random_table(seed)
    both = (label[:, 0] >= 0) & (label[:, 1] >= 0)
    table = pairwise_agreement(votes, weights="quadratic")
    for weights in (None, "linear", "quadratic"):
        theirs = cohen_kappa_score(label[both, 0], label[both, 1], weights=weights, labels=range(votes.n_classes))
        assert cohen_kappa(votes, 0, 1, weights=weights, **ONCE).value == pytest.approx(theirs)
    at = np.flatnonzero((table.first == 0) & (table.second == 1))[0]
    assert table.kappa[at] == pytest.approx(theirs)
    assert table.common[at] == both.sum()
    assert len(table) == table.to_frame().height


def test_scott_by_hand_and_as_fleiss_of_two():
    votes = cw.Votes.from_dense([[0, 0]] * 20 + [[0, 1]] * 5 + [[1, 0]] * 10 + [[1, 1]] * 15)
    p = (20 + 25 + 30 - 20 + 0) / 100  # (25 + 30) / 100: the share of label 0 over both
    expected = p**2 + (1 - p) ** 2
    assert scott_pi(votes, **ONCE).value == pytest.approx((0.7 - expected) / (1 - expected))
    assert scott_pi(votes, **ONCE).value == pytest.approx(fleiss_kappa(votes, **ONCE).value)
    assert cohen_kappa(votes, **ONCE).value == pytest.approx(0.4)


def test_icc_of_shrout_and_fleiss():
    votes = cw.Votes.from_dense(SHROUT)
    published = {"one-way": (0.17, 0.44), "agreement": (0.29, 0.62), "consistency": (0.71, 0.91)}
    for form, (single, mean) in published.items():
        assert round(icc(votes, form=form, **ONCE).value, 2) == single
        assert round(icc(votes, form=form, average_of=4, **ONCE).value, 2) == mean


def test_icc_recovers_variances_from_a_sparse_table():
    """Items, annotators and noise with known variances, a third of the cells observed."""
    rng = np.random.default_rng(0)
    N, M = 4000, 60
    y = rng.normal(0, 2.0, (N, 1)) + rng.normal(0, 1.0, (1, M)) + rng.normal(0, 1.5, (N, M))
    level = rng.normal(0, 1.0, (1, M))
    y = np.rint(y + level - level.mean()).clip(-9, 9).astype(int)
    keep = rng.random((N, M)) < 0.1
    item, who = np.nonzero(keep)
    votes = cw.Votes.from_codes(item, who, y[keep] + 9, items=range(N), annotators=range(M), classes=np.arange(-9, 10))
    full = cw.Votes.from_dense(y[:400])
    for form in ("one-way", "agreement", "consistency"):
        assert icc(votes, form=form, **ONCE).value == pytest.approx(icc(full, form=form, **ONCE).value, abs=0.06)


# -------------------------------------------------------------------- intervals


def drawn(N, theta, prior, density, rng):
    M, K, _ = theta.shape
    truth = rng.choice(K, size=N, p=prior)
    label = (rng.random((N, M, 1)) > theta.cumsum(axis=2)[np.arange(M)[None], truth[:, None]]).sum(axis=2)
    label[rng.random((N, M)) > density] = -1
    return cw.Votes.from_dense(label.clip(-1, K - 1), missing=-1, classes=range(K))


COEFFICIENTS = {
    "percent": percent_agreement,
    "fleiss": fleiss_kappa,
    "ac1": gwet_ac1,
    "ac2": gwet_ac2,
    "alpha": krippendorff_alpha,
    "ordinal": lambda v, **how: krippendorff_alpha(v, scale="ordinal", **how),
    "interval": lambda v, **how: krippendorff_alpha(v, scale="interval", **how),
    "icc": icc,
    "icc agreement": lambda v, **how: icc(v, form="agreement", **how),
    "cohen": lambda v, **how: cohen_kappa(v, 0, 1, **how),
    "scott": lambda v, **how: scott_pi(v, 0, 1, **how),
}


def test_intervals_cover():
    """120 crowds of 120 items; at a coverage of 0.95 each coefficient passes with probability 0.999."""
    rng = np.random.default_rng(7)
    theta = np.stack([rng.dirichlet(np.where(np.arange(3) == k, 5.0, 1.0), size=5) for k in range(3)], axis=1)
    prior = np.array([0.5, 0.3, 0.2])
    true = {name: f(drawn(150_000, theta, prior, 0.7, rng), **ONCE).value for name, f in COEFFICIENTS.items()}
    hits = dict.fromkeys(COEFFICIENTS, 0)
    rounds = 120
    for seed in range(rounds):
        votes = drawn(120, theta, prior, 0.7, rng)
        for name, f in COEFFICIENTS.items():
            found = f(votes, resamples=250, random_state=seed)
            hits[name] += found.low <= true[name] <= found.high
    for name, count in hits.items():
        assert binom.cdf(count, rounds, 0.95) > 0.001, (name, count)
        assert count < rounds, name
    assert 0.93 <= np.mean(list(hits.values())) / rounds <= 0.97


def test_pairwise_intervals_cover():
    rng = np.random.default_rng(3)
    theta = np.stack([rng.dirichlet(np.where(np.arange(3) == k, 6.0, 1.0), size=4) for k in range(3)], axis=1)
    prior = np.full(3, 1 / 3)
    true = pairwise_agreement(drawn(200_000, theta, prior, 1.0, rng)).kappa
    inside = []
    for _ in range(150):
        found = pairwise_agreement(drawn(150, theta, prior, 0.8, rng))
        inside += ((found.low <= true) & (true <= found.high)).tolist()
    assert 0.93 <= np.mean(inside) <= 0.97


def test_the_variance_of_kappa_is_the_published_one():
    """Fleiss, Cohen and Everitt 1969, their formula written out for the plain kappa."""
    table = np.array([[44.0, 5, 1], [7, 20, 3], [9, 5, 6]])
    n, p = table.sum(), table / table.sum()
    r, c = p.sum(axis=1), p.sum(axis=0)
    seen, chance = np.trace(p), r @ c
    kappa = (seen - chance) / (1 - chance)
    on = sum(p[k, k] * (1 - (r[k] + c[k]) * (1 - kappa)) ** 2 for k in range(3))
    off = (1 - kappa) ** 2 * sum(p[k, j] * (c[k] + r[j]) ** 2 for k in range(3) for j in range(3) if k != j)
    published = (on + off - (kappa - chance * (1 - kappa)) ** 2) / (n * (1 - chance) ** 2)
    assert kappa_variance(table[None], 1.0 - np.eye(3))[0] == pytest.approx(published)


def test_three_items_without_a_disagreement_prove_little():
    found = pairwise_agreement(cw.Votes.from_dense([[0, 0], [1, 1], [0, 0]]))
    assert found.kappa[0] == 1.0
    assert found.low[0] < 0.2


def small_answers(n):
    """The agreement of each answer type, with n units on which annotators can agree."""
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 3, (n, 3))
    yield cw.agreement(cw.Votes.from_dense(grades, classes=range(3)))
    yield cw.agreement(cw.Votes.from_dense(grades[:, :2], classes=range(3)), scale="ordinal")
    yield cw.agreement(cw.Votes.from_dense(grades, classes=range(3)), scale="interval")
    yield cw.agreement(cw.Ratings.from_dense(rng.normal(size=(n, 3))))
    pairs = [(f"i{i}", f"j{i}", who, ["left", "right"][rng.integers(2)]) for i in range(n) for who in "xyz"]
    yield cw.agreement(cw.Comparisons.from_records(pairs))
    same = [(a, b, who, said == "left") for a, b, who, said in pairs]
    yield cw.agreement(cw.Similarities.from_records(same))
    orders = [(f"w{i}", "q", rng.permutation(list("abcd")).tolist()) for i in range(n)]
    yield cw.agreement(cw.Rankings.from_records(orders))
    sets = [(f"i{i}", who, [c for c in "abc" if rng.random() < 0.5] or ["a"]) for i in range(n) for who in "xyz"]
    yield cw.agreement(cw.LabelSets.from_records(sets))
    yield cw.agreement(cw.simulate.bio_tags(n, begin=0.5, n_annotators=3, random_state=0).answers)


@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_fewer_than_ten_have_no_interval(n):
    for found in small_answers(n):
        assert all(np.isnan([e.low, e.high]).all() for e in found.estimates.values()), found
        assert found["percent" if "percent" in found.estimates else "icc"].n == n
        assert "–" in str(found) and f"on {n} {found.unit}, too few to say more" in found.summary
        (note,) = found.notes
        assert note.startswith("No confidence intervals: it takes 10 ") and f"there are {n}. Collect more" in note


def test_ten_have_intervals():
    for found in small_answers(10):
        assert all(e.low <= e.value <= e.high for e in found.estimates.values()), found
        assert found.notes == [] and "95% CI" in found.summary


def test_a_single_item_has_values_and_a_reason():
    for answers in (cw.Votes.from_dense([[0, 1, 1]]), cw.Ratings.from_dense([[1.0, 2.0, 4.0]])):
        found = cw.agreement(answers)
        assert "on 1 item, too few" in found.summary and ", and there is 1. Collect more" in found.notes[0]
        assert repr(found["krippendorff alpha"]) == "Estimate(0.000, no 95% CI: fewer than 10, n=1)"


def test_items_that_count_for_an_interval_have_two_answers():
    label = np.full((40, 2), -1)
    label[:, 0], label[:9, 1] = np.arange(40) % 2, np.arange(9) % 3 % 2
    found = percent_agreement(cw.Votes.from_dense(label, missing=-1))
    assert found.n == 9 and not found.has_interval
    label[9, 1] = 0
    assert percent_agreement(cw.Votes.from_dense(label, missing=-1)).has_interval


def test_items_that_are_all_alike_have_no_interval():
    found = cw.agreement(cw.Votes.from_dense([[0, 0], [1, 1]] * 6))
    assert not any(e.has_interval for e in found.estimates.values())
    assert "(no 95% CI: all alike, 12 items): almost perfect agreement" in found.summary
    assert found.notes == [
        "No confidence intervals: all 12 items give the same value, and resampling shows no spread. "
        "Up to 25.0% of others may still differ (3 / 12, the rule of three)."
    ]
    other = cw.agreement(cw.Votes.from_dense([[0, 1], [1, 0]] * 6))
    assert other.notes[0].startswith("No confidence interval of percent, ") and "100.0%" not in other.notes[0]


def test_seeds_repeat_and_levels_order():
    votes = random_table(1)[1]
    first, again, other = (krippendorff_alpha(votes, random_state=seed) for seed in (0, 0, 1))
    assert first == again != other
    wide, narrow = (krippendorff_alpha(votes, level=level) for level in (0.99, 0.8))
    assert wide.low < narrow.low < narrow.value == wide.value < narrow.high < wide.high


# -------------------------------------------------------------------- size and shape


def test_a_million_votes_in_a_few_seconds():
    rng = np.random.default_rng(0)
    N, r = 200_000, 5
    truth = rng.integers(0, 5, N)
    label = np.where(rng.random((N, r)) < 0.6, truth[:, None], rng.integers(0, 5, (N, r)))
    votes = cw.Votes.from_codes(
        np.repeat(np.arange(N), r), np.tile(np.arange(r), N), label.ravel(),
        items=np.arange(N), annotators=range(r), classes=range(5),
    )  # fmt: skip
    began = time.process_time()
    for scale in ("nominal", "ordinal", "interval"):
        found = krippendorff_alpha(votes, scale=scale)
        assert found.low < found.value < found.high
        assert found.high - found.low < 0.01
    assert time.process_time() - began < 10.0


def test_patterns_are_the_different_rows_of_counts():
    label, votes = random_table(2)
    counts = np.array([np.bincount(row[row >= 0], minlength=votes.n_classes) for row in label if (row >= 0).any()])
    rows, times = np.unique(counts, axis=0, return_counts=True)
    made = Patterns.of_votes(votes)
    found, often = made.counts, made.times
    assert np.array_equal(found[made.pattern[made.pattern >= 0]], counts)
    order = np.lexsort(found.T[::-1])
    assert np.array_equal(found[order], rows)
    assert np.array_equal(often[order], times)


def test_the_order_of_rows_and_classes_does_not_matter_where_it_should_not():
    label, votes = random_table(3)
    K = votes.n_classes
    shuffled = cw.Votes.from_dense(
        label[np.random.default_rng(0).permutation(len(label))], missing=-1, classes=range(K)
    )
    turned = cw.Votes.from_dense(label, missing=-1, classes=list(range(K))[::-1])
    for name, f in COEFFICIENTS.items():
        value = f(votes, **ONCE).value
        assert f(shuffled, **ONCE).value == pytest.approx(value), name
        assert f(turned, **ONCE).value == pytest.approx(value), name  # reversed: distances stay


def test_values_may_be_given_for_classes_that_are_no_numbers():
    names = {1: "bad", 2: "fair", 3: "good", 4: "great", 5: "best"}
    words = [[None if x < 0 else names[x] for x in row] for row in KRIPPENDORFF.tolist()]
    votes = cw.Votes.from_dense(words, classes=list(names.values()))
    values = {name: number for number, name in names.items()}
    for given in (values, [1, 2, 3, 4, 5]):
        found = krippendorff_alpha(votes, scale="ratio", values=given, **ONCE).value
        assert found == pytest.approx(krippendorff_alpha(krippendorffs(), scale="ratio", **ONCE).value)
    with pytest.raises(InputError, match="values="):
        krippendorff_alpha(votes, scale="interval")
    with pytest.raises(ParameterError, match="lacks a number for 'best'"):
        icc(votes, values={k: v for k, v in values.items() if k != "best"})


def test_the_coefficients_suit_the_scale():
    votes = krippendorffs()
    assert cw.agreement(votes)["krippendorff alpha"] == krippendorff_alpha(votes)
    frame = cw.agreement(votes, scale="ordinal").to_frame()
    assert frame["coefficient"].to_list() == [
        "percent",
        "fleiss kappa",
        "gwet ac2",
        "krippendorff alpha",
        "light kappa",
    ]
    assert cw.agreement(votes, scale="interval").to_frame(kind="dict")["coefficient"].tolist()[-1] == "icc"
    two = cw.agreement(cw.Votes.from_dense([[0, 0]] * 20 + [[0, 1]] * 5 + [[1, 1]] * 15))
    assert two["cohen kappa"].value == pytest.approx(0.75)


# -------------------------------------------------------------------- other answer types


def test_light_is_the_mean_of_cohen():
    label, votes = random_table(1)
    pairs = pairwise_agreement(votes, weights="quadratic")
    assert light_kappa(votes, weights="quadratic", **ONCE).value == pytest.approx(np.nanmean(pairs.kappa))


def test_ratings_have_the_alpha_and_correlations_of_votes_on_a_scale():
    label = np.where(KRIPPENDORFF < 0, np.nan, KRIPPENDORFF)
    found = cw.agreement(cw.Ratings.from_dense(label), resamples=50)
    assert round(found["krippendorff alpha"].value, 3) == 0.849
    votes = krippendorffs()
    for form in ("agreement", "consistency"):
        assert found[f"icc {form}"].value == pytest.approx(icc(votes, form=form, **ONCE).value)
    assert found["icc"].value == pytest.approx(icc(votes, **ONCE).value)


def test_comparisons_do_not_depend_on_which_item_was_shown_first():
    rows = [("a", "b", "ann", "left"), ("b", "a", "bob", "right"), ("a", "c", "ann", "tie"), ("c", "a", "bob", "left")]
    rows += [("b", "c", "ann", "right"), ("b", "c", "bob", "right"), ("c", "b", "cem", "left")]
    turned = [(b, a, who, {"left": "right", "right": "left"}.get(said, said)) for a, b, who, said in rows]
    found, other = (cw.agreement(cw.Comparisons.from_records(r)) for r in (rows, turned))
    assert found.estimates == other.estimates
    assert found["percent"].value == pytest.approx(2 / 3)  # ab and bc agree, ac does not
    # Six answers are wins (three from either side), one is a tie: D_e = 1 - (2 * 3 * 2 + 0) / (7 * 6) ...
    mass = np.array([3.0, 1.0, 3.0])
    expected = (49 - (mass**2).sum()) / 42
    assert found["krippendorff alpha"].value == pytest.approx(1 - (2 / 7) / expected)


def test_rankings_agree_by_the_mean_of_kendalls_tau():
    from scipy.stats import kendalltau

    orders = {"ann": "abcd", "bob": "abdc", "cem": "dcba", "dan": "bcad"}
    rankings = cw.Rankings.from_records([(who, "all", list(order)) for who, order in orders.items()])
    place = [[order.index(item) for item in "abcd"] for order in orders.values()]
    tau = np.mean([kendalltau(x, y).statistic for x, y in combinations(place, 2)])
    found = cw.agreement(rankings)
    assert found["kendall tau"].value == pytest.approx(tau)
    assert found["percent"].value == pytest.approx((1 + tau) / 2)


def test_of_very_many_rankings_some_are_compared():
    crowd = cw.simulate.rankings(6, n_rankings=2100, n_annotators=30, size=3, random_state=0).answers
    found, most = (cw.agreement(c, **ONCE)["kendall tau"] for c in (crowd, crowd.select(np.arange(2100) < 1900)))
    assert found.n == 2000 and found.value == pytest.approx(most.value, abs=0.03)


def test_label_sets_by_the_masi_distance():
    jaccard, masi = set_similarities(np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0.0], [0, 0, 1]]))
    assert jaccard[0].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 0, 0])
    assert masi[0].tolist() == pytest.approx([1, 1 / 3, 1 / 9, 0, 0])
    assert masi[3, 3] == 1.0
    sets = [("x", "ann", "ab"), ("x", "bob", "a"), ("y", "ann", "c"), ("y", "bob", "c")]
    found = cw.agreement(cw.LabelSets.from_records([(n, who, list(labels)) for n, who, labels in sets]))
    assert found["percent"].value == 0.5 and found["jaccard"].value == 0.75
    # Distances: ab-a 2/3, both to c 1. Observed: (2/3 + 0) / 2; expected: all ordered pairs of the four answers.
    assert found["krippendorff alpha"].value == pytest.approx(1 - (1 / 3) / ((2 * (2 / 3) + 8) / 12))


def test_tags_agree_by_tokens_and_by_spans():
    said = {"ann": ["B-P", "I-P", "O", "B-P"], "bob": ["B-P", "I-P", "O", "O"], "cem": ["B-P", "O", "O", "B-P"]}
    rows = [(s, n, who, tag) for s in "xy" for who, tags in said.items() for n, tag in enumerate(tags)]
    rows += [("z", n, "ann", tag) for n, tag in enumerate(said["ann"])]  # nobody else saw it
    tags = cw.Tags.from_records(rows)
    found = cw.agreement(tags, **ONCE)
    assert found["krippendorff alpha"].value == pytest.approx(krippendorff_alpha(tags.votes, **ONCE).value)
    # ann and bob share one of (2, 1) spans, ann and cem one of (2, 2), bob and cem none of (1, 2).
    assert found["span f1"].value == pytest.approx(2 * 2 / (3 + 4 + 3))
    assert found["span f1"].n == 2 and found.unit == "sequences"


def test_similarities_are_votes_on_pairs():
    rows = [
        ("a", "b", "ann", "same"),
        ("b", "a", "bob", "same"),
        ("a", "c", "ann", "same"),
        ("a", "c", "bob", "different"),
    ]
    assert cw.agreement(cw.Similarities.from_records(rows))["percent"].value == 0.5


def test_a_result_reads_as_a_table_and_as_a_sentence():
    found = cw.agreement(krippendorffs(), resamples=200)
    lines = repr(found).splitlines()
    assert lines[0].split() == ["votes,", "11", "items", "value", "95%", "CI"]
    assert lines[1].startswith("percent ") and len(lines) == 6
    assert found.summary.startswith("Krippendorff alpha is 0.743 (95% CI 0.") and found.summary.endswith(
        ", 11 items): substantial agreement."
    )
    nothing = cw.agreement(cw.Votes.from_dense([[0, 0]] * 6, classes=[0, 1]), resamples=20)
    assert nothing.summary == "Krippendorff alpha does not exist: one class alone was used on 6 items."
    with pytest.raises(ParameterError, match="are for votes, and these are rankings"):
        cw.agreement(cw.Rankings.from_records([("ann", "q", ["a", "b"])]), scale="ordinal")
    with pytest.raises(InputError, match="No two annotators ranked"):
        cw.agreement(cw.Rankings.from_records([("ann", "q", ["a", "b"])]))


def test_coefficients_have_landis_and_kochs_words():
    def word(name, x, n=100):
        return strength(name, Estimate(x, x, x, n))

    assert [word("fleiss kappa", x) for x in (-0.1, 0.1, 0.3, 0.5, 0.7, 0.95)] == [
        "poor", "slight", "fair", "moderate", "substantial", "almost perfect",
    ]  # fmt: skip
    assert word("percent", 0.9) == "" == word("icc", float("nan")) == word("fleiss kappa", 0.5, n=9)


def test_degenerate_tables():
    same = cw.Votes.from_dense([[0, 0]] * 6, classes=[0, 1])
    assert percent_agreement(same).value == 1.0
    for f in (krippendorff_alpha, fleiss_kappa, cohen_kappa):
        assert np.isnan(f(same).value)
    assert np.isnan(krippendorff_alpha(same, scale="ordinal").value)
    assert gwet_ac1(same).value == 1.0
    perfect = cw.Votes.from_dense([[0, 0], [1, 1], [0, 0], [1, 1]])
    assert krippendorff_alpha(perfect).value == 1.0


def test_errors_say_what_to_do():
    votes = krippendorffs()
    lone = cw.Votes.from_records([("a", 1, 0), ("b", 2, 1)])
    weighted = cw.Votes.from_records([("a", 1, 0, 2.0), ("a", 2, 1, 1.0)])
    with pytest.raises(InputError, match="No item has two answers"):
        krippendorff_alpha(lone)
    with pytest.raises(InputError, match="weight=None"):
        fleiss_kappa(weighted)
    with pytest.raises(ParameterError, match="name two of them"):
        cohen_kappa(votes)
    with pytest.raises(InputError, match="No annotator named 'zoe'"):
        cohen_kappa(votes, 0, "zoe")
    with pytest.raises(InputError, match="no item in common"):
        cohen_kappa(lone, 1, 2)
    with pytest.raises(ParameterError, match="two different"):
        cohen_kappa(votes, 0, 0)
    for wrong in ({"scale": "metric"}, {"level": 1.0}, {"resamples": 0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            krippendorff_alpha(votes, **wrong)
    for wrong in ({"form": "two-way"}, {"average_of": 0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            icc(votes, **wrong)
    with pytest.raises(ParameterError, match="weights"):
        gwet_ac2(votes, weights="cubic")


def test_shares_in_which_chance_has_a_part_have_no_word() -> None:
    assert strength("krippendorff alpha", Estimate(0.7, 0.6, 0.8, 50)) == "substantial"
    for name in ("percent", "jaccard", "span f1", "likeness", "dice"):
        assert strength(name, Estimate(0.7, 0.6, 0.8, 50)) == ""
