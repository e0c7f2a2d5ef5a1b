"""Grades: ordered confusion matrices by brute force, consistency of thresholds, and recovery of what was planted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

import crowdwise as cw
from crowdwise.answers import ordinal_dawid_skene
from crowdwise.answers.ordinal_dawid_skene import falling, grades_of
from crowdwise.errors import InputError, LabelError, ParameterError
from crowdwise.simulate import answer_crowds

KEYS = ("ordinal-dawid-skene", "ordinal-raykar")


def crowd(seed=0, **given):
    given = {"n_items": 300, "n_annotators": 30, "votes_per_item": 4} | given
    return cw.simulate.ordinal(random_state=seed, **given)


def prior(K=4, link="logistic"):
    return ordinal_dawid_skene.OrdinalPrior(0.5, np.log(0.8), 0.4, ordinal_dawid_skene.even_cuts(K), 0.02, link)


# -------------------------------------------------------------------- the maths


@pytest.mark.parametrize("link", ["normal", "logistic"])
def test_tables_are_probabilities_with_the_right_slopes(link):
    rng = np.random.default_rng(0)
    d, t = rng.normal(size=5), rng.normal(size=5)
    theta, dd, dt = ordinal_dawid_skene.ordered(d, t, prior(link=link), slopes=True)
    assert theta.shape == (5, 4, 4) and np.allclose(theta.sum(axis=2), 1.0)
    for slope, step in ((dd, (1e-6, 0.0)), (dt, (0.0, 1e-6))):
        up = ordinal_dawid_skene.ordered(d + step[0], t + step[1], prior(link=link))[0]
        down = ordinal_dawid_skene.ordered(d - step[0], t - step[1], prior(link=link))[0]
        assert np.allclose(slope, (up - down) / 2e-6, atol=1e-6)
    if link == "normal":
        made = answer_crowds.ordered_confusion(d, np.exp(t), 4)
        assert np.allclose(theta, 0.98 * made + 0.005)


def test_scoring_finds_what_a_general_optimiser_finds():
    rng = np.random.default_rng(1)
    counts = rng.gamma(0.5, 4.0, size=(6, 4, 4)) + 8.0 * np.eye(4)
    counts[5] = 0.0  # somebody without votes is as the crowd
    crowd_ = prior()
    d, t = ordinal_dawid_skene.scoring(counts, crowd_)
    for m in range(6):
        found = minimize(
            lambda x, m=m: -ordinal_dawid_skene.penalised(counts[m : m + 1], x[:1], x[1:], crowd_)[0], [0.0, 0.0],
            method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10},
        )  # fmt: skip
        assert np.allclose([d[m], t[m]], found.x, atol=2e-3)
    assert abs(d[5]) < 1e-6 and abs(t[5] - np.log(0.8)) < 1e-6
    again = ordinal_dawid_skene.scoring(counts, crowd_, (d + 0.5, t - 0.3))
    assert np.allclose(again[0], d, atol=2e-3)


def test_the_prior_is_ordered_where_the_crowd_is_and_gives_way_where_it_is_not():
    made = crowd(n_items=1000, n_annotators=20, n_classes=4, votes_per_item=6)
    swap = {0: 3, 1: 0, 2: 1, 3: 2}  # the same votes, on a scale that has its best grade at the wrong end
    table = made.votes.to_frame("dict")
    table["label"] = [swap[k] for k in table["label"]]
    table.pop("truth", None)
    odd = cw.Votes.from_frame(table, classes=range(4))
    strengths, right = [], []
    for votes, truth in ((made.votes, made.truth), (odd, np.array([swap[k] for k in made.truth]))):
        model = cw.OrdinalDawidSkene().fit(votes)
        strengths.append(float(np.median(np.sum(model.fitted_.prior, axis=2))))
        right.append(model.consensus_.score(truth))
    assert strengths[0] > 3.0 * strengths[1]
    assert right[1] > cw.aggregate(made.votes, "auto").score(made.truth) - 0.02 and right[0] > right[1]


@pytest.mark.parametrize("params", [{}, {"link": "normal"}, {"class_prior": "uniform"}])
def test_the_objective_never_falls(params):
    for seed in range(2):
        trace = cw.aggregate(crowd(seed).votes, "ordinal-dawid-skene", **params).trace
        assert (np.diff(trace) > -1e-4).all() and len(trace) > 1


def test_falling_is_isotonic_regression():
    rng = np.random.default_rng(0)
    above = rng.random((50, 5))
    expected = [IsotonicRegression(increasing=False).fit_transform(np.arange(5), row) for row in above]
    assert np.allclose(falling(above), expected)
    q = grades_of(above)
    assert q.shape == (50, 6) and np.allclose(q.sum(axis=1), 1.0) and (q >= 0).all()
    steady = np.sort(above, axis=1)[:, ::-1]
    assert np.allclose(falling(steady), steady)


# -------------------------------------------------------------------- what they find


def test_ordered_methods_beat_their_unordered_twins_on_sparse_grades():
    score = {key: [] for key in (*KEYS, "majority", "dawid-skene")}
    for seed in range(5):
        made = crowd(seed, n_items=400, n_annotators=40, votes_per_item=3)
        for key, found in score.items():
            consensus = cw.aggregate(made.votes, key)
            found.append((consensus.score(made.truth), float(cw.metrics.mae(consensus, made.truth, resamples=1))))
    mean = {key: np.mean(found, axis=0) for key, found in score.items()}
    for key in KEYS:
        assert mean[key][0] > mean["dawid-skene"][0] + 0.04 and mean[key][1] < mean["dawid-skene"][1] - 0.05
        assert mean[key][0] > mean["majority"][0] + 0.04


@pytest.mark.slow
def test_locations_and_spreads_are_recovered_with_intervals():
    held = {"location": [], "spread": []}
    for seed in range(12):
        made = crowd(seed, n_items=1000, n_annotators=30, votes_per_item=5)
        table = cw.aggregate(made.votes, "ordinal-dawid-skene", link="normal").to_frame("annotators", kind="dict")
        assert np.corrcoef(table["location"], made.parameters["location"])[0, 1] > 0.9
        assert np.corrcoef(table["spread"], made.parameters["spread"])[0, 1] > 0.85
        for name, found in held.items():
            value = made.parameters[name]
            found.append((table[f"{name}_low"] <= value) & (value <= table[f"{name}_high"]))
    share = {name: float(np.mean(found)) for name, found in held.items()}
    assert all(0.88 <= value <= 0.99 for value in share.values()), share


@pytest.mark.parametrize("key", KEYS)
def test_order_of_rows_names_and_classes_do_not_matter(key):
    votes = crowd(n_items=120).votes
    base = cw.aggregate(votes, key)
    table = votes.to_frame("dict")
    order = np.random.default_rng(0).permutation(votes.n_votes)
    shuffled = cw.Votes.from_frame(
        {name: [table[name][s] for s in order] for name in ("item", "annotator", "label")}, classes=[3, 1, 0, 4, 2]
    )
    other = cw.aggregate(shuffled, key)
    rows = [other.items.tolist().index(n) for n in base.items.tolist()]
    assert np.allclose(other.posterior[rows][:, [2, 1, 4, 0, 3]], base.posterior, atol=1e-4)


@pytest.mark.parametrize("key", KEYS)
def test_the_order_of_grades(key):
    made = crowd(n_items=150, n_classes=3)
    names = np.array(["fair", "good", "poor"])  # alphabetical: not the order of the grades
    rename = {0: "poor", 1: "fair", 2: "good"}
    table = made.votes.to_frame("dict")
    table["label"] = [rename[k] for k in table["label"]]
    table.pop("truth", None)
    votes = cw.Votes.from_frame(table)
    assert votes.classes.tolist() == names.tolist()
    with pytest.warns(UserWarning, match="fair < good < poor"):
        cw.aggregate(votes, key)
    given = cw.aggregate(votes, key, order=["poor", "fair", "good"])
    plain = cw.aggregate(made.votes, key)
    assert np.allclose(given.posterior[:, [2, 0, 1]], plain.posterior, atol=1e-6)
    for order in (["poor", "fair"], ["poor", "poor", "fair"], ["poor", "fair", "great"]):
        with pytest.raises(ParameterError, match=r"expected each of the classes"):
            cw.aggregate(votes, key, order=order)


@pytest.mark.parametrize("key", KEYS)
def test_known_truth_new_items_and_odd_tables(key, tmp_path):
    made = crowd()
    gold = np.where(np.arange(300) < 60, made.truth, -1).astype(np.int32)
    given = cw.aggregate(made.votes, key, gold=gold)
    assert np.array_equal(given.label_codes[:60], made.truth[:60]) and np.allclose(
        given.posterior[:60].max(axis=1), 1.0
    )
    model = cw.registry.create(key, "ordinal").fit(made.votes[:200])
    q = model.predict_proba(made.votes[200:])
    assert q.shape == (100, 5) and np.allclose(q.sum(axis=1), 1.0)
    assert np.allclose(model.predict_proba(made.votes[:200]), model.consensus_.posterior, atol=1e-8)
    model.consensus_.save(tmp_path / key)
    assert cw.Consensus.load(tmp_path / key).method == key
    with pytest.raises(LabelError, match="declare them"):
        cw.aggregate(cw.Votes.from_records([("a", 1, 3), ("a", 2, 3)]), key)
    with pytest.raises(InputError, match="single annotator"):
        cw.aggregate(cw.Votes.from_records([(n, "ann", n % 3) for n in range(9)]), key)
    wider = cw.Votes.from_codes(
        made.votes.item, made.votes.annotator, made.votes.label, items=made.votes.items,
        annotators=made.votes.annotators, classes=range(6),
    )  # fmt: skip
    assert not (cw.aggregate(wider, key).label_codes == 5).any()


@pytest.mark.parametrize(
    ("key", "params"),
    [
        ("ordinal-dawid-skene", {"link": "probit"}), ("ordinal-dawid-skene", {"lapse": 0.0}),
        ("ordinal-dawid-skene", {"max_iter": 0}),
        ("ordinal-raykar", {"prior": -1.0}), ("ordinal-raykar", {"max_iter": 0}), ("ordinal-raykar", {"ties": "first"}),
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_named(key, params):
    with pytest.raises(ParameterError, match=f"{next(iter(params))}="):
        cw.aggregate(crowd(n_items=20).votes, key, **params)


def test_grade_metrics_against_scipy_and_sklearn():
    from scipy.stats import kendalltau, spearmanr
    from sklearn.metrics import cohen_kappa_score, mean_absolute_error, root_mean_squared_error

    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 200), rng.integers(0, 5, 200)
    y = np.where(rng.random(200) < 0.6, x, y)
    m = cw.metrics
    assert np.isclose(float(m.mae(x, y)), mean_absolute_error(y, x))
    assert np.isclose(float(m.rmse(x, y)), root_mean_squared_error(y, x))
    assert np.isclose(float(m.quadratic_kappa(x, y)), cohen_kappa_score(y, x, weights="quadratic"))
    assert np.isclose(float(m.spearman(x, y, resamples=50)), spearmanr(x, y).statistic)
    found = m.kendall(x, y, resamples=50)
    assert np.isclose(found.value, kendalltau(x, y).statistic) and found.low < found.value < found.high
    made = crowd(n_items=100)
    consensus = cw.aggregate(made.votes, "majority")
    expected = np.abs(consensus.label_codes - made.truth).mean()
    assert np.isclose(float(m.mae(consensus, made.truth)), expected)
    assert float(m.spearman([1.0, 1.0], [1.0, 2.0], resamples=5)) == 0.0
    assert float(m.quadratic_kappa([2, 2], [2, 2], resamples=5)) == 1.0
    known = m.rmse([1.0, 2.0, 3.0], [1.0, np.nan, 5.0], resamples=5)
    assert known.n == 2 and np.isclose(known.value, np.sqrt(2.0))
    with pytest.raises(InputError, match="two arrays"):
        m.mae([1.0, 2.0], [1.0])
    with pytest.raises(InputError, match="known truth"):
        m.mae([1.0], [np.nan])


@pytest.mark.parametrize("crowd", ["middle", "ends", "skipped", "one grade"])
def test_annotators_who_use_part_of_the_scale_do_not_make_it_worse_than_the_median(crowd):
    won = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        item, who = np.repeat(np.arange(200), 5), np.concatenate([rng.choice(25, 5, replace=False) for _ in range(200)])
        truth = rng.integers(0, 5, 200)
        if crowd == "one grade":
            truth[rng.random(200) < 0.95] = 4
        vote = np.clip(np.round(truth[item] + 0.7 * rng.normal(size=1000)), 0, 4).astype(int)
        few = who < 12
        if crowd == "middle":
            vote = np.where(few, np.clip(vote, 1, 3), vote)
        if crowd == "ends":
            vote = np.where(few, np.where(vote + 0.1 * rng.normal(size=1000) > 2.0, 4, 0), vote)
        if crowd == "skipped":
            vote = np.where(few, 2 * np.round(vote / 2).astype(int), vote)
        votes = cw.Votes.from_codes(item, who, vote, items=range(200), annotators=range(25), classes=range(5))
        labels = np.asarray(cw.aggregate(votes, "ordinal-dawid-skene").labels, dtype=int)
        median = np.median(vote.reshape(200, 5), axis=1).astype(int)
        won.append(np.abs(median - truth).mean() - np.abs(labels - truth).mean())
    assert np.mean(won) > -0.02
