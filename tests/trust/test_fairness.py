"""Fairness: rates against counting, gaps that cover, thresholds against enumeration, groups of annotators."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from scipy.stats import binomtest

import crowdwise as cw
from crowdwise.errors import InputError, LabelError, ParameterError
from crowdwise.trust.demographics import compare_demographics, within_items
from crowdwise.trust.fair_thresholds import choose_thresholds, cut_curve, range_argmax
from crowdwise.trust.fairness import assess_fairness

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def crowd(seed=0, N=400, M=20, r=5, G=2, apart=0.0, harsh=0.0):
    """Items of G groups; group 1 has ``apart`` more positives, and its negatives are called positive ``harsh`` more."""
    rng = np.random.default_rng(seed)
    z = rng.integers(0, G, N)
    y = (rng.random(N) < 0.4 + apart * (z == 1)).astype(int)
    item = np.repeat(np.arange(N), r)
    who = np.concatenate([rng.choice(M, r, replace=False) for _ in range(N)])
    p = rng.beta(16, 4, M)[who] - harsh * ((z == 1) & (y == 0))[item]
    said = np.where(rng.random(N * r) < p, y[item], 1 - y[item])
    names = np.array(["no", "yes"])
    votes = cw.Votes.from_codes(item, who, said, items=range(N), annotators=range(M), classes=names.tolist(), truth=y)
    return votes, z, y


# -------------------------------------------------------------------- rates and gaps


def test_rates_are_those_of_counting():
    votes, z, y = crowd(apart=0.2)
    c = cw.aggregate(votes, "majority")
    d = c.label_codes
    report = assess_fairness(votes, c, np.where(z == 1, "b", "a"), truth=y, resamples=100)
    assert report.basis == "truth" and report.positive == "yes"
    for g, name in enumerate("ab"):
        mine = z == g
        assert np.isclose(report.rates["selection"][name].value, d[mine].mean())
        assert np.isclose(report.rates["true_positive"][name].value, d[mine & (y == 1)].mean())
        assert np.isclose(report.rates["false_positive"][name].value, d[mine & (y == 0)].mean())
        assert np.isclose(report.rates["accuracy"][name].value, (d == y)[mine].mean())
        table = np.zeros((2, 2))
        np.add.at(table, (y[mine], d[mine]), 1)
        assert np.allclose(report.confusion[g], table / table.sum(axis=1, keepdims=True))
    rate = report.rates
    assert np.isclose(
        report.gaps["demographic parity"].value, abs(rate["selection"]["a"].value - rate["selection"]["b"].value)
    )
    odds = max(abs(rate[n]["a"].value - rate[n]["b"].value) for n in ("true_positive", "false_positive"))
    assert np.isclose(report.gaps["equalised odds"].value, odds)


def test_without_truth_counts_are_expected_ones_and_it_says_so():
    votes, z, _ = crowd(apart=0.2)
    c = cw.aggregate(votes, "dawid-skene")
    report = assess_fairness(votes, c, z, resamples=100)
    assert report.basis == "posterior"
    q, d = c.corrected_posterior[:, 1], c.label_codes
    mine = z == 1
    assert np.isclose(report.rates["true_positive"][1].value, (q * d)[mine].sum() / q[mine].sum())
    assert report.sentences()[0].startswith("No truth was given")


@pytest.mark.parametrize("misled", [0.0, 0.15])
def test_blind_gaps_say_how_little_they_know(misled):
    """Intervals of gaps cover the true ones: with truth about as often as stated, without it also where the crowd
    is misled together on some items of one group."""
    covered = {"blind": 0, "naive": 0, "truth": 0}
    runs = 30
    for seed in range(runs):
        votes, z, y = crowd(seed, apart=0.1, harsh=0.2)
        other = (np.random.default_rng(seed).random(len(y)) < misled) & (z == 1)
        truth = np.where(other, 1 - y, y)  # votes follow what looks true
        c = cw.aggregate(votes, "dawid-skene")
        d, wide = c.label_codes, {}
        real = [[d[(z == g) & (truth == t)].mean() for g in (0, 1)] for t in (0, 1)]
        gap = max(abs(a - b) for a, b in real)
        for name, options in {"blind": {}, "naive": {"hidden": 0.0}, "truth": {"truth": truth}}.items():
            found = assess_fairness(votes, c, z, resamples=100, random_state=seed, **options).gaps["equalised odds"]
            covered[name] += found.low - 1e-9 <= gap <= found.high + 1e-9
            wide[name] = found.high - found.low
        assert wide["blind"] > 1.5 * wide["truth"]
    assert covered["blind"] >= 0.95 * runs
    assert covered["truth"] == runs  # the sample is the population here
    if misled:
        assert covered["naive"] < 0.6 * runs


def test_annotators_rates_are_theirs():
    votes, z, y = crowd(M=6, r=4)
    c = cw.aggregate(votes, "majority")
    report = assess_fairness(votes, c, z, truth=y, resamples=100)
    m = votes.annotator == 2
    g, said, truth = z[votes.item[m]], votes.label[m], y[votes.item[m]]
    gap = abs(said[g == 0].mean() - said[g == 1].mean())
    odds = [abs(said[(g == 0) & (truth == t)].mean() - said[(g == 1) & (truth == t)].mean()) for t in (0, 1)]
    a = report.annotator_table
    assert np.isclose(a["demographic_parity"][2], gap)
    assert np.isclose(a["equal_opportunity"][2], odds[1])
    assert np.isclose(a["equalised_odds"][2], max(odds))
    assert (a["demographic_parity_low"] <= a["demographic_parity"]).all()
    assert (a["demographic_parity"] <= a["demographic_parity_high"]).all()
    assert report.to_frame("annotators", kind="dict")["annotator"].tolist() == list(range(6))


def test_equal_groups_are_not_called_different():
    found = {name: 0 for name in ("demographic parity", "equal opportunity", "equalised odds", "accuracy")}
    people = voters = 0
    runs = 60
    for seed in range(runs):
        votes, z, y = crowd(seed, N=300, G=2 + seed % 3)
        c = cw.aggregate(votes, "dawid-skene")
        report = assess_fairness(votes, c, z, truth=y, resamples=200)
        for name in found:
            found[name] += report.differs[name]
        people += int((report.annotator_table["equalised_odds_low"] > 0).sum())
        voters += votes.n_annotators
    for name, times in found.items():
        assert binomtest(times, runs, 0.05, alternative="greater").pvalue > 0.01, (name, times)
    assert people / voters < 0.06


def test_intervals_of_a_gap_cover():
    """0.2 more positives in one group: the selection rates of perfect annotators differ by that."""
    covered = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        z, N = np.arange(300) % 2, 300
        y = (rng.random(N) < 0.4 + 0.2 * z).astype(int)
        votes = cw.Votes.from_dense(np.repeat(y[:, None], 3, axis=1))
        gap = assess_fairness(votes, cw.aggregate(votes, "majority"), z, truth=y, resamples=200).gaps[
            "demographic parity"
        ]
        covered.append(gap.low <= 0.2 <= gap.high)
    assert 0.89 <= np.mean(covered) <= 1.0


def test_a_harsh_crowd_is_found_by_a_few_true_labels():
    votes, z, y = crowd(3, N=1500, harsh=0.3)
    c = cw.aggregate(votes, "majority")
    told = np.where(np.arange(1500) % 5 == 0, y, -1)
    report = assess_fairness(votes, c, z, truth=told, resamples=300)
    assert report.differs["equalised odds"]
    assert (report.items == np.bincount(z[told >= 0])).all()
    assert report.rates["false_positive"][1].value > report.rates["false_positive"][0].value + 0.1
    assert (report.annotator_table["equalised_odds_low"] > 0).mean() > 0.5
    words = " ".join(report.sentences())
    assert "accuracy is" in words.lower() and "a gap of" in words


def test_several_classes_need_a_positive_one_and_groups_must_fit():
    sim = cw.simulate.one_coin(90, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0)
    c = cw.aggregate(sim.votes, "majority")
    z = ["a", "b", "c"] * 30
    with pytest.raises(ParameterError, match="name the positive one"):
        assess_fairness(sim.votes, c, z)
    with pytest.raises(LabelError, match="positive='x' is not a class"):
        assess_fairness(sim.votes, c, z, positive="x")
    with pytest.raises(ParameterError, match="one group for each item"):
        assess_fairness(sim.votes, c, z[:5], positive=2)
    with pytest.raises(InputError, match="1 groups of items"):
        assess_fairness(sim.votes, c, ["a"] * 90, positive=2)
    with pytest.raises(InputError, match="names none of the items"):
        assess_fairness(sim.votes, c, {"u": "a"}, positive=2)
    report = assess_fairness(sim.votes, c, dict(zip(range(60), z, strict=False)), positive=2, resamples=100)
    assert report.confusion.shape == (3, 3, 3)
    assert report.items.sum() == 60
    assert report.to_frame("gaps").height == 4 and report.to_frame().height == 3
    with pytest.raises(ParameterError, match="Unknown table"):
        report.to_frame("rates")


def test_seeds_repeat():
    votes, z, _ = crowd(N=120)
    c = cw.aggregate(votes, "majority")
    a, b = (assess_fairness(votes, c, z, resamples=50, random_state=3) for _ in range(2))
    assert a.gaps == b.gaps
    assert np.array_equal(a.annotator_table["accuracy_low"], b.annotator_table["accuracy_low"], equal_nan=True)


# -------------------------------------------------------------------- thresholds


def brute_thresholds(score, y, z, constraint, gap):
    """Every combination of cuts."""
    best = -1.0
    cuts = [np.append(np.unique(score[z == g]), np.inf) for g in range(int(z.max()) + 1)]
    for combination in itertools.product(*cuts):
        d = score >= np.array(combination)[z]
        rates = []
        for g in range(len(cuts)):
            w, m = y[z == g], d[z == g]
            if constraint == "demographic parity":
                rates.append((m.mean(),))
            elif constraint == "equal opportunity":
                rates.append(((w * m).sum() / w.sum(),))
            else:
                rates.append(((w * m).sum() / w.sum(), ((1 - w) * m).sum() / (1 - w).sum()))
        if (np.ptp(np.array(rates), axis=0) <= gap + 1e-12).all():
            best = max(best, float((d * y + (1 - d) * (1 - y)).sum() / len(y)))
    return best


@pytest.mark.parametrize("constraint", ["demographic parity", "equal opportunity", "equalised odds"])
@pytest.mark.parametrize("known", [False, True])
def test_thresholds_are_the_best_there_are(constraint, known):
    for seed in range(4):
        votes, z, y = crowd(seed, N=36, M=6, r=3, apart=0.3)
        c = cw.aggregate(votes, "dawid-skene")
        score = c.corrected_posterior[:, 1]
        for gap in (0.0, 0.1, 0.3):
            chosen = choose_thresholds(c, z, constraint=constraint, gap=gap, gold=y if known else None)
            best = brute_thresholds(score, y.astype(float) if known else score, z, constraint, gap)
            assert chosen.gap <= gap + 1e-9
            if constraint == "equalised odds":
                assert best - 0.03 <= chosen.accuracy.value <= best + 1e-9
            else:
                assert np.isclose(chosen.accuracy.value, best)
            assert chosen.basis == ("truth" if known else "posterior")


def test_a_wide_bound_leaves_the_cut_at_one_half():
    votes, z, _ = crowd(N=300, apart=0.3)
    c = cw.aggregate(votes, "dawid-skene")
    chosen = choose_thresholds(c, z, gap=1.0)
    assert np.isclose(chosen.accuracy.value, chosen.accuracy_before.value)
    assert chosen.labels.tolist() == c.labels.tolist()
    tight = choose_thresholds(c, z, gap=0.02)
    assert tight.gap <= 0.02 < tight.gap_before
    taken = [np.mean(tight.labels[z == g] == "yes") for g in (0, 1)]
    assert abs(taken[0] - taken[1]) <= 0.02
    assert tight.accuracy.low <= tight.accuracy.value <= tight.accuracy.high
    assert tight.to_frame(kind="dict")["threshold"].shape == (2,)
    assert "demographic parity gap" in repr(tight)


def test_pieces_of_the_search():
    curve = cut_curve(np.array([0.9, 0.9, 0.2]), np.array([1.0, 0.0, 0.0]))
    assert curve.threshold.tolist() == [np.inf, 0.9, 0.2]
    assert np.allclose(curve.selection, [0, 2 / 3, 1]) and curve.right.tolist() == [2.0, 2.0, 1.0]
    x = np.array([3.0, 1.0, 4.0, 1.0, 5.0])
    first, last = np.array([0, 1, 2, 3, 0]), np.array([5, 4, 2, 4, 2])
    assert range_argmax(x, first, last).tolist() == [4, 2, -1, 3, 0]


def test_thresholds_check_what_they_are_given():
    votes, z, y = crowd(N=60)
    c = cw.aggregate(votes, "majority")
    with pytest.raises(ParameterError, match="constraint='fair'"):
        choose_thresholds(c, z, constraint="fair")
    with pytest.raises(ParameterError, match="gap=2"):
        choose_thresholds(c, z, gap=2)
    with pytest.raises(InputError, match="No item to choose by"):
        choose_thresholds(c, z, gold=np.where(z == 0, y, -1))
    three = cw.simulate.one_coin(30, n_annotators=5, n_classes=3, votes_per_item=3, random_state=0)
    with pytest.raises(ParameterError, match="for two classes"):
        choose_thresholds(cw.aggregate(three.votes, "majority"), ["a", "b"] * 15)


# -------------------------------------------------------------------- groups of annotators


def people(seed, N=150, M=60, r=8, effect=0.0, share=4):
    """A logit for each item and each annotator; a quarter of the annotators have ``effect`` more."""
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(N), r)
    who = np.concatenate([rng.choice(M, r, replace=False) for _ in range(N)])
    group = np.arange(M) < M // share
    logit = rng.normal(0, 1, N)[item] + (rng.normal(0, 0.6, M) + effect * group)[who]
    said = (rng.random(N * r) < 1 / (1 + np.exp(-logit))).astype(int)
    votes = cw.Votes.from_codes(item, who, said, items=range(N), annotators=range(M), classes=[0, 1])
    return votes, {m: "few" if group[m] else "many" for m in range(M)}


def test_the_difference_is_that_of_a_regression_with_an_intercept_per_item():
    votes, who = people(0, N=30, M=12, r=5)
    g = np.array([who[m] == "few" for m in votes.annotator.tolist()]).astype(float)
    y = (votes.label == 1).astype(float)
    design = np.column_stack([g, np.eye(30)[votes.item]])
    slope = np.linalg.lstsq(design, y, rcond=None)[0][0]
    centred = y - (np.bincount(votes.item, weights=y) / 5)[votes.item]
    assert np.isclose(within_items(votes, g, centred)[0], slope)
    report = compare_demographics(votes, cw.aggregate(votes, "majority"), who, min_annotators=2, permutations=99)
    row = (report.columns["group"] == "few") & (report.columns["outcome"] == "1")
    assert np.isclose(report.columns["difference"][row][0], slope)


def test_groups_of_annotators_alike_are_not_called_different():
    wrong = whole = 0
    runs = 80
    for seed in range(runs):
        votes, who = people(seed, N=(100, 60)[seed % 2], M=(40, 120)[seed % 2], r=(6, 30)[seed % 2])
        report = compare_demographics(votes, cw.aggregate(votes, "majority"), who, permutations=399)
        wrong += bool(report.columns["differs"].any())
        whole += report.attributes["group"] <= 0.05
    for times in (wrong, whole):
        assert binomtest(times, runs, 0.05, alternative="greater").pvalue > 0.01, times


def test_a_group_that_differs_is_found_with_an_interval_that_covers():
    found, covered = [], []
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 20_000), rng.normal(0, 0.6, 20_000)
    true = np.mean(1 / (1 + np.exp(-(a + b + 0.8))) - 1 / (1 + np.exp(-(a + b))))
    for seed in range(40):
        votes, who = people(seed, effect=0.8)
        c = compare_demographics(votes, cw.aggregate(votes, "majority"), who, permutations=399)
        row = (c.columns["group"] == "few") & (c.columns["outcome"] == "1")
        found.append(bool(c.columns["differs"][row][0]))
        covered.append(bool(c.columns["low"][row][0] <= true <= c.columns["high"][row][0]))
    assert np.mean(found) > 0.7
    assert np.mean(covered) > 0.85
    words = c.sentences()
    assert words[0].startswith("group makes a difference")
    assert any("few says class 1" in w and "more often than others on the same items" in w for w in words)
    assert c.confusion["group"]["few"].shape == (2, 2)


def test_a_table_of_attributes_with_numbers_missing_values_and_names_as_text():
    votes, who = people(1, M=80)
    rng = np.random.default_rng(0)
    table = {
        "worker": [str(m) for m in range(80)],
        "side": [who[m] for m in range(80)],
        "age": rng.integers(18, 70, 80).tolist(),
        "town": [None if m % 7 == 0 else "ab"[m % 2] for m in range(80)],
    }
    report = compare_demographics(votes, cw.aggregate(votes, "majority"), table, permutations=99)
    assert set(report.attributes) == {"side", "age", "town"}
    ages = {g for a, g in zip(report.columns["attribute"], report.columns["group"], strict=True) if a == "age"}
    assert len(ages) == 4 and all(" to " in g for g in ages)
    only = compare_demographics(votes, cw.aggregate(votes, "majority"), table, attributes=["side"], permutations=99)
    assert set(only.attributes) == {"side"}
    assert report.to_frame().height == len(report.columns["group"])
    with pytest.raises(ParameterError, match="attributes names 'height'"):
        compare_demographics(votes, cw.aggregate(votes, "majority"), table, attributes=["height"])
    with pytest.raises(ParameterError, match="permutations=5"):
        compare_demographics(votes, cw.aggregate(votes, "majority"), who, permutations=5)
    with pytest.raises(InputError, match="two groups of 50 annotators"):
        compare_demographics(votes, cw.aggregate(votes, "majority"), who, min_annotators=50)


def test_numbers_as_classes_have_a_mean():
    rng = np.random.default_rng(0)
    label = np.clip(rng.integers(1, 6, 100)[:, None] + rng.integers(-1, 2, (100, 20)) + (np.arange(20) < 8), 1, 5)
    votes = cw.Votes.from_dense(label)
    who = {m: "high" if m < 8 else "low" for m in range(20)}
    report = compare_demographics(votes, cw.aggregate(votes, "majority"), who, permutations=999)
    row = (report.columns["outcome"] == "(mean)") & (report.columns["group"] == "high")
    assert report.columns["differs"][row][0] and report.columns["difference"][row][0] > 0.5
    assert any("group high answers" in w and "higher than others" in w for w in report.sentences())


# -------------------------------------------------------------------- real data


@pytest.mark.slow
def test_popquorn_race_and_age_make_a_difference(real):
    """As its authors found by a regression (Pei and Jurgens 2023); no single group stands out after adjusting."""
    data = cw.read_dataset(real("popquorn_offensiveness"))
    report = compare_demographics(data.votes, cw.aggregate(data.votes, "anchored"), data.annotator_table)
    assert {name for name, p in report.attributes.items() if p <= 0.05} == {"race", "age"}
    row = (report.columns["group"] == "Black or African American") & (report.columns["outcome"] == "(mean)")
    assert report.columns["low"][row][0] > 0


@pytest.mark.slow
def test_toxicity_no_group_differs_beyond_chance(real):
    data = cw.read_dataset(real("toxicity_demographics"))
    report = compare_demographics(data.votes, cw.aggregate(data.votes, "anchored"), data.annotator_table)
    assert min(report.attributes.values()) > 0.05
    gender = (report.columns["attribute"] == "gender") & (report.columns["outcome"] == "1")
    assert (np.abs(report.columns["difference"][gender]) < 0.03).all()


def test_gaps_are_told_in_percent_by_the_names_of_the_rates():
    votes = cw.simulate.one_coin(200, n_annotators=6, random_state=0).votes
    consensus = cw.aggregate(votes, "one-coin")
    groups = dict(zip(votes.items.tolist(), ["a", "b"] * 100, strict=True))
    said = " ".join(cw.trust.assess_fairness(votes, consensus, groups).sentences())
    rates = r"is \d+\.\d% for [ab] and \d+\.\d% for [ab], a gap of \d+\.\d points \(95% CI \d+\.\d-\d+\.\d\)"
    for name in ("Demographic parity: the selection rate", "Equal opportunity: the true positive rate"):
        assert re.search(f"{name} {rates}", said), said
