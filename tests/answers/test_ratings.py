"""Methods for ratings: against plain definitions, against brute force, and on crowds whose parameters are known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import crowdwise as cw
from crowdwise import registry
from crowdwise.answers import ratings_gaussian
from crowdwise.answers.ratings_gaussian import additive_part, precision_power
from crowdwise.answers.ratings_shared import (
    counts,
    gross_errors,
    hedged,
    median_of_others,
    other_scales,
    standardise,
    weighted_median,
)
from crowdwise.core.result import Estimates
from crowdwise.errors import ConvergenceWarning, InputError, InputWarning, NotFittedError, ParameterError, ReadError

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
KEYS = [key for key, entry in registry.ANSWER_METHODS.items() if entry.answer_type == "ratings" and not entry.inputs]


def crowd(seed=0, **given):
    given = {"n_items": 200, "n_annotators": 15, "votes_per_item": 5} | given
    return cw.simulate.ratings(random_state=seed, **given)


def rmse(found, made):
    return cw.metrics.rmse(found, made.truth).value


def oracle(made):
    """The posterior mean with all annotators known."""
    r, known = made.ratings, made.parameters
    a, b, p = known["scale"], known["bias"], known["precision"]
    h = 1.0 + np.bincount(r.item, weights=(p * a * a)[r.annotator], minlength=len(r))
    return np.bincount(r.item, weights=((p * a)[r.annotator] * (r.value - b[r.annotator])), minlength=len(r)) / h


# -------------------------------------------------------------------- all of them


@pytest.mark.parametrize("key", KEYS)
def test_the_result_is_well_formed_and_close_to_the_truth(key):
    made = crowd()
    found = cw.aggregate(made.ratings, key)
    assert isinstance(found, Estimates) and found.method == key
    assert found.values.shape == found.deviations.shape == (200,)
    assert np.isfinite(found.values).all() and (found.deviations > 0).all()
    room = 1.15 if key == "median" else 1.02
    assert rmse(found, made) < room * rmse(cw.aggregate(made.ratings, "mean"), made)
    low, high = found.interval()
    assert (low < found.values).all() and (found.values < high).all()
    narrow = found.interval(0.5)
    assert (narrow[0] > low).all() and (narrow[1] < high).all()
    table = found.to_frame("annotators", kind="dict")
    for name in ("bias", "scale", "precision", "noise"):
        if name in table:
            assert (table[f"{name}_low"] <= table[name]).all() and (table[name] <= table[f"{name}_high"]).all()
    assert found.item_table.columns[:6] == ["item", "value", "deviation", "low", "high", "ratings"]
    assert found.n_answers == made.ratings.n_answers
    with pytest.raises(ParameterError, match="level=2"):
        found.interval(2)


@pytest.mark.parametrize("key", KEYS)
def test_order_of_rows_and_names_do_not_matter_and_the_unit_does_not_either(key):
    made = crowd(n_items=80)
    base = cw.aggregate(made.ratings, key)
    table = made.ratings.to_frame("dict")
    order = np.random.default_rng(0).permutation(made.ratings.n_answers)
    shuffled = cw.Ratings.from_frame({
        "item": [f"i{table['item'][s]}" for s in order], "annotator": [f"x{97 - table['annotator'][s]}" for s in order],
        "value": table["value"][order],
    })  # fmt: skip
    other = cw.aggregate(shuffled, key)
    at = [other.items.tolist().index(f"i{n}") for n in range(80)]
    assert np.allclose(other.values[at], base.values, atol=1e-6)
    assert np.allclose(other.deviations[at], base.deviations, atol=1e-6)
    stretched = cw.Ratings.from_codes(
        made.ratings.item,
        made.ratings.annotator,
        100.0 + 20.0 * made.ratings.value,
        items=range(80),
        annotators=range(15),
    )
    far = cw.aggregate(stretched, key)
    assert np.allclose(far.values, 100.0 + 20.0 * base.values, atol=2e-3)
    assert np.allclose(far.deviations, 20.0 * base.deviations, rtol=1e-3)
    assert np.allclose(far.precision, base.precision / 400.0, rtol=1e-3)


@pytest.mark.parametrize("key", KEYS)
def test_the_truth_is_not_looked_at_the_input_is_left_alone_and_a_second_fit_agrees(key):
    made = crowd(n_items=60)
    before = made.ratings.value.copy()
    model = registry.create(key, "ratings")
    first = model.fit(made.ratings).consensus_
    second = model.fit(made.ratings.with_truth(None)).consensus_
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(before, made.ratings.value)


# Not bayes-iterative: its messages leave out a rating, of which there are two here.
@pytest.mark.parametrize("key", [k for k in KEYS if k not in ("covariance", "bayes-iterative")])
def test_doubling_every_rating_equals_doubling_the_weights(key):
    r = crowd(n_items=50).ratings
    names = {"items": r.items, "annotators": r.annotators}
    double = cw.Ratings.from_codes(
        np.repeat(r.item, 2), np.repeat(r.annotator, 2), np.repeat(r.value, 2), on_duplicate="all", **names
    )
    weighted = cw.Ratings.from_codes(r.item, r.annotator, r.value, weight=np.full(r.n_answers, 2.0), **names)
    params = {"hedge": False} if "hedge" in registry.ANSWER_METHODS[key].load().parameters() else {}
    a, b = (cw.aggregate(t, key, **params).values for t in (double, weighted))
    assert np.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("key", KEYS)
def test_saved_and_loaded(key, tmp_path):
    found = cw.aggregate(crowd(n_items=60).ratings, key)
    found.save(tmp_path / "kept")
    back = Estimates.load(tmp_path / "kept")
    assert np.array_equal(back.values, found.values) and back.method == key
    assert back.to_frame("annotators").equals(found.to_frame("annotators"))
    with pytest.raises(ReadError, match="Estimates"):
        cw.Consensus.load(tmp_path / "kept")


@pytest.mark.parametrize("key", KEYS)
def test_odd_tables(key):
    """Items without ratings, one rating each, everybody the same, a lone annotator: defined, or a clear refusal."""
    made = crowd(n_items=60)
    r = made.ratings
    extra = cw.Ratings.from_codes(r.item, r.annotator, r.value, items=range(61), annotators=r.annotators)
    found = cw.aggregate(extra, key)
    assert np.isfinite(found.values[60]) and np.isfinite(found.deviations[60])
    assert found.deviations[60] >= found.deviations[:60].min()
    same = cw.Ratings.from_dense(np.full((8, 4), 3.0))
    assert np.allclose(cw.aggregate(same, key).values, 3.0)
    exact = cw.Ratings.from_dense(np.repeat(np.arange(12.0)[:, None], 4, axis=1))
    assert np.allclose(cw.aggregate(exact, key).values, np.arange(12.0), atol=0.2)
    lone = cw.Ratings.from_records([(n, "ann", float(n)) for n in range(9)])
    if key in ("gaussian", "bayes-iterative", "covariance"):
        with pytest.raises(InputError, match=r"single annotator, 'ann'.*mean"):
            cw.aggregate(lone, key)
    else:
        assert np.allclose(cw.aggregate(lone, key).values, np.arange(9.0))


@pytest.mark.parametrize(
    ("key", "params", "message"),
    [
        ("gaussian", {"set_aside": "all"}, "set_aside='all'"),
        ("gaussian", {"bias": 1}, "bias=1"),
        ("gaussian", {"max_iter": 0}, "max_iter=0"),
        ("gaussian", {"tol": -1.0}, "tol=-1.0"),
        ("gaussian", {"random_state": -1}, "random_state=-1"),
        ("gaussian", {"hedge": "yes"}, "hedge='yes'"),
        ("gaussian", {"shrink": 1.5}, "shrink=1.5"),
        ("gaussian", {"shared_error": -0.1}, "shared_error=-0.1"),
        ("bayes-iterative", {"variances": [1.0, -1.0]}, "variances="),
        ("bayes-iterative", {"prior": [0.5, 0.5]}, "prior="),
        ("bayes-iterative", {"prior": "flat"}, "prior='flat'"),
        ("covariance", {"level": 0.0}, "level=0.0"),
        ("covariance", {"min_items": 1}, "min_items=1"),
        ("pm-numeric", {"loss": "cubic"}, "loss='cubic'"),
        ("catd-numeric", {"alpha": 2.0}, "alpha=2.0"),
    ],
)
def test_parameters_out_of_range_are_named(key, params, message):
    with pytest.raises(ParameterError, match=message.replace("[", r"\[")):
        cw.aggregate(crowd(n_items=20).ratings, key, **params)


def test_other_tables_are_refused_and_nothing_is_seen_before_a_fit():
    with pytest.raises(InputError, match="expects Ratings and found Votes"):
        cw.GaussianRatings().fit(cw.simulate.one_coin(20, random_state=0).votes)
    with pytest.raises(NotFittedError):
        cw.GaussianRatings()._fitted()
    with pytest.raises(
        ParameterError,
        match=r"dawid-skene is for votes .*, not for ratings: for these there are mean",
    ):
        cw.aggregate(crowd(n_items=20).ratings, "dawid-skene")


# -------------------------------------------------------------------- mean and median


@pytest.mark.parametrize("key", ["gaussian", "mean"])
@pytest.mark.parametrize("times", [20.0, 0.2])
def test_annotators_on_another_scale_are_pointed_out(key, times):
    """Percent, or shares, among stars; biased, reversed, constant and noisy ones rate on the same scale."""
    rng = np.random.default_rng(0)
    true = rng.uniform(1.0, 5.0, 30)
    said = {
        m: np.clip(np.round(true + bias + rng.normal(0.0, 0.5, 30)), 1, 5)
        for m, bias in (("a", -1), ("b", 0), ("c", 1))
    }
    same = {"back": 6 - true, "same": np.full(30, 3.0), "noisy": rng.normal(3.0, 20.0, 30)}
    slip = {"dan": np.where(np.arange(30) == 0, 20.0 * true, 3.0)}

    def fit(by):
        rows = [(n, m, float(x)) for m, values in by.items() for n, x in enumerate(values)]
        return cw.aggregate(cw.Ratings.from_records(rows), key)

    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        fit(said | same)
        rows = [(n, m, n + rng.normal()) for m in "abc" for n in range(30)] + [(n, "d", 1.0 * n) for n in range(300)]
        cw.aggregate(cw.Ratings.from_records(rows), key)  # others did not rate the items of large values
    with pytest.warns(InputWarning, match=r"typing errors: 1, such as 70.95.* by 'dan' on 0, where the .* is 3\."):
        fit(said | slip)
    with pytest.warns(InputWarning, match=r"Ratings of 'dan' seem to be on another scale: .* between 1 and 5"):
        fit(said | {"dan": times * true})


@pytest.mark.filterwarnings("ignore::crowdwise.errors.InputWarning")
def test_annotators_on_another_scale_are_set_aside_by_default():
    for seed in range(3):
        made = crowd(seed, n_items=150, n_annotators=20, noise=0.6)
        r, rng = made.ratings, np.random.default_rng(seed)
        stars = np.clip(np.round(3.0 + r.value), 1, 5)
        percent = np.clip(np.round(50.0 + 25.0 * r.value), 0, 100)

        def table(value, r=r):
            return cw.Ratings.from_codes(r.item, r.annotator, value, items=r.items, annotators=r.annotators)

        mixed, clean = table(np.where(r.annotator < 3, percent, stars)), table(stars).select(r.annotator >= 3)
        found, kept = cw.aggregate(mixed), cw.aggregate(clean)
        np.testing.assert_allclose(found.values, kept.values)
        assert (
            found.to_frame("annotators", kind="dict")["set_aside"][:3].tolist() == np.bincount(r.annotator)[:3].tolist()
        )
        low, high = found.interval()
        truth = np.clip(3.0 + made.truth, 1, 5)
        assert ((low <= truth) & (truth <= high)).mean() > 0.9
        others = np.clip(np.round(2.5 + rng.normal(size=len(stars))), 1, 5)
        always = table(np.where(r.annotator == 0, 5.0, others))
        assert not len(other_scales(always)[0])  # one of the others' values


def test_annotators_who_always_give_one_value_do_not_make_it_worse_than_the_mean():
    for seed in range(3):
        made = crowd(seed, n_items=200, n_annotators=24, noise=0.7)
        r = made.ratings
        value = np.where(r.annotator < 8, 3.0, np.clip(np.round(3.0 + 1.2 * r.value), 1, 5))
        table = cw.Ratings.from_codes(r.item, r.annotator, value, items=r.items, annotators=r.annotators)
        error = {key: cw.metrics.rmse(cw.aggregate(table, key), 3.0 + made.truth).value for key in ("mean", "gaussian")}
        assert error["gaussian"] < 1.002 * error["mean"]


def test_gross_errors_on_items_of_different_noise():
    rng = np.random.default_rng(0)
    noise = np.exp(rng.normal(-0.5, 1.0, (200, 1)))
    answers = cw.Ratings.from_dense(rng.normal(size=(200, 1)) + noise * rng.normal(size=(200, 5)))
    prices = cw.Ratings.from_dense(np.exp(rng.normal(3.0, 1.2, (200, 1)) + 0.4 * rng.normal(size=(200, 5))))
    assert gross_errors(answers).sum() <= 5 and gross_errors(prices).sum() == 0


def test_weighted_median_by_definition():
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(30), rng.integers(1, 9, 30))
    x = rng.integers(0, 6, len(item)).astype(float)
    found = weighted_median(item, np.ones(len(item)), x, 30)
    assert np.allclose(found, [np.median(x[item == n]) for n in range(30)])
    w = rng.integers(1, 4, len(item))
    again = weighted_median(item, w.astype(float), x, 30)
    assert np.allclose(again, [np.median(np.repeat(x[item == n], w[item == n])) for n in range(30)])


# -------------------------------------------------------------------- gaussian


def fitted(ratings, **params):
    y, _, _ = standardise(ratings)
    settings = ratings_gaussian.GaussianSettings(
        params.get("bias", True), params.get("scale", True), params.get("fixed", False), params.get("power", 1.0),
    )  # fmt: skip
    c = ratings_gaussian.RatingMatrices.of(ratings, y)
    return c, settings, ratings_gaussian.run_passes(c, settings, 20_000, 1e-10, None)


@pytest.mark.parametrize("fixed", [False, True])
def test_bias_only_posterior_is_that_of_the_joint_normal(fixed):
    """With p and the hyperparameters given, means and variances are those of one big Normal distribution."""
    rng = np.random.default_rng(3)
    dense = rng.normal(size=(6, 1)) + rng.normal(0, 0.5, size=(1, 4)) + 0.5 * rng.normal(size=(6, 4))
    ratings = cw.Ratings.from_dense(dense)
    c, settings, (s, rounds) = fitted(ratings, scale=False, fixed=fixed)
    assert rounds.converged and (s.tau2 == ratings_gaussian.FLAT) == fixed
    N, M = dense.shape
    # unknowns: u (N), b (M), mu (flat); precision matrix and right side of the joint posterior
    A, rhs, p = np.zeros((N + M + 1, N + M + 1)), np.zeros(N + M + 1), s.p
    for n in range(N):
        A[n, n] += 1 / s.tau2
        A[n, -1] -= 1 / s.tau2
        A[-1, n] -= 1 / s.tau2
        A[-1, -1] += 1 / s.tau2
    for m in range(M):
        A[N + m, N + m] += 1 / s.sb2
    for item, m, value in zip(c.item, c.annotator, c.y, strict=True):
        for i in (item, N + m):
            rhs[i] += p[m] * value
            for j in (item, N + m):
                A[i, j] += p[m]
    mean, var = np.linalg.solve(A, rhs), np.diag(np.linalg.inv(A))
    assert np.allclose(mean[:N], s.u, atol=1e-3) and np.allclose(mean[N:-1], s.b, atol=1e-3)
    var_u, var_b, _, shape = ratings_gaussian.variances(c, s, settings)
    r = c.y - s.b[c.annotator] - s.u[c.item]
    h = 1 / s.tau2 + p.sum()
    seen = counts(c.item, (p[c.annotator] * r / h) ** 2 / s.shape[c.annotator], N)
    assert np.allclose(var_u - seen, var[:N], rtol=1e-6) and (var_b > var[N:-1]).all()
    known = var_b - 2.0 / M * s.sb2  # 2 / (M - 3) / M, M = 4
    assert np.allclose(known / (1.0 + 1.0 / np.maximum(shape - 1.0, 1.0)), var[N:-1], rtol=1e-6)
    assert ((shape > 1.0) & (shape < s.alpha + 3.0)).all()


def test_the_bound_is_recomputed_and_stays_under_the_evidence():
    rng = np.random.default_rng(1)
    dense = rng.normal(size=(5, 1)) + rng.normal(0, 0.5, size=(1, 3)) + 0.6 * rng.normal(size=(5, 3))
    ratings = cw.Ratings.from_dense(dense)
    c, settings, (s, rounds) = fitted(ratings, scale=False)
    trace = rounds.trace
    m, n = c.annotator, c.item
    each = (c.y - s.b[m] - s.u[n]) ** 2 + s.vbb[m] + s.v[n] + c.floor
    again = ratings_gaussian.lower_bound(s, np.full(3, 5.0), counts(m, each, 3), settings)
    assert np.isclose(again, trace[-1], rtol=1e-6)
    # E_q[log p(x | p)] over q(p) is at least the bound less the divergence of q(p): with p integrated by sampling
    draws = rng.gamma(s.alpha, 1.0 / s.beta, size=(4000, 3))
    logs = []
    table = c.y.reshape(5, 3)
    base = s.tau2 * np.kron(np.eye(5), np.ones((3, 3))) + s.sb2 * np.kron(np.ones((5, 5)), np.eye(3))
    for p in draws[:600]:
        cov = base + np.kron(np.eye(5), np.diag(1.0 / np.maximum(p, 1e-9)))
        logs.append(multivariate_normal(np.full(15, s.mu), cov, allow_singular=True).logpdf(table.ravel()))
    evidence = np.logaddexp.reduce(logs) - np.log(len(logs))
    assert trace[-1] < evidence + 0.5  # sampling error of the evidence


@pytest.mark.parametrize(
    "params",
    [
        {}, {"scale": False}, {"bias": False}, {"bias": False, "scale": False},
        {"scale": False, "fixed": True, "power": 0.3},
    ],
)  # fmt: skip
def test_no_pass_lowers_the_bound(params):
    for seed in range(2):
        made = crowd(seed, n_items=120, scale=0.2, outliers=0.05)
        trace = np.array(fitted(made.ratings, **params)[2][1].trace)
        assert (np.diff(trace) > -1e-7 * made.ratings.n_answers).all()


def test_expansion_changes_no_prediction_and_centres_biases():
    made = crowd(scale=0.3)
    c, settings, (s, *_) = fitted(made.ratings)
    moved = ratings_gaussian.replace(s, u=s.u + 0.3, mu=s.mu + 0.3, b=s.b - 0.3 * s.a)
    back = ratings_gaussian.expand(moved, settings)
    assert np.allclose(back.b[c.annotator] + back.a[c.annotator] * back.u[c.item],
                       s.b[c.annotator] + s.a[c.annotator] * s.u[c.item], atol=1e-9)  # fmt: skip
    assert abs((back.a * back.b + back.vab).sum()) < 1e-6
    found = cw.aggregate(made.ratings, "gaussian", scale=True)
    assert abs(found.bias.mean()) < 0.1 and abs(found.scale.mean() - 1.0) < 0.1


def test_gaussian_is_near_the_oracle_and_far_under_the_mean():
    ratio, gain = [], []
    for seed in range(5):
        made = crowd(seed, n_items=300, n_annotators=20, scale=0.2)
        best = np.sqrt(((oracle(made) - made.truth) ** 2).mean())
        found = rmse(cw.aggregate(made.ratings, "gaussian"), made)
        ratio.append(found / best)
        gain.append(found / rmse(cw.aggregate(made.ratings, "mean"), made))
    assert np.mean(ratio) < 1.1 and np.mean(gain) < 0.75


def test_bayes_iterative_is_near_the_oracle_where_there_are_no_biases():
    ratio, gain = [], []
    for seed in range(5):
        made = crowd(seed, n_items=300, n_annotators=20, bias=0.0)
        best = np.sqrt(((oracle(made) - made.truth) ** 2).mean())
        found = rmse(cw.aggregate(made.ratings, "bayes-iterative"), made)
        ratio.append(found / best)
        gain.append(found / rmse(cw.aggregate(made.ratings, "mean"), made))
    assert np.mean(ratio) < 1.06 and np.mean(gain) < 0.75


@pytest.mark.slow
def test_intervals_cover():
    """95 % intervals of items, biases, scales and precisions hold the truth 92 to 97 times in a hundred.

    Without a shared error: that there is none in these crowds cannot be seen.
    """
    held = {"items": [], "bias": [], "scale": [], "precision": [], "messages": []}
    for seed in range(30):
        made = crowd(seed, n_items=300, n_annotators=20, scale=0.2)
        found = cw.aggregate(made.ratings, "gaussian", scale=True, shared_error=0.0)
        low, high = found.interval()
        held["items"].append((low <= made.truth) & (made.truth <= high))
        table = found.to_frame("annotators", kind="dict")
        for name in ("bias", "scale", "precision"):
            value = made.parameters[name]
            held[name].append((table[f"{name}_low"] <= value) & (value <= table[f"{name}_high"]))
        plain = crowd(seed, n_items=300, n_annotators=20, bias=0.0)
        low, high = cw.aggregate(plain.ratings, "bayes-iterative").interval()
        held["messages"].append((low <= plain.truth) & (plain.truth <= high))
    share = {name: float(np.mean(np.concatenate(rows))) for name, rows in held.items()}
    assert all(0.92 <= value <= 0.97 for value in share.values()), share


def with_slips(made, share, seed=0):
    """A tenth of its ratings on a scale around 50, some of them with a digit too many, and which."""
    r, rng = made.ratings, np.random.default_rng(seed)
    bad = rng.random(r.n_answers) < share
    value = (50.0 + 15.0 * r.value) * np.where(bad, 10.0, 1.0)
    return cw.Ratings.from_codes(r.item, r.annotator, value, items=r.items, annotators=r.annotators), bad


@pytest.mark.filterwarnings("ignore::crowdwise.errors.InputWarning")
def test_digits_too_many_cost_nothing_and_are_counted():
    for seed in range(3):
        made = crowd(seed, n_items=300, n_annotators=20, noise=0.4, bias=0.2)
        truth = 50.0 + 15.0 * made.truth
        clean, slips = with_slips(made, 0.0)[0], with_slips(made, 0.05, seed)
        before, found = cw.aggregate(clean), cw.aggregate(slips[0])
        assert "set_aside" not in before.to_frame("annotators", kind="dict")
        error = {key: cw.metrics.rmse(cw.aggregate(slips[0], key), truth).value for key in ("mean", "median")}
        assert cw.metrics.rmse(found, truth).value < 1.06 * cw.metrics.rmse(before, truth).value
        assert cw.metrics.rmse(found, truth).value < 0.9 * error["median"] < 0.2 * error["mean"]
        low, high = found.interval()
        assert ((low <= truth) & (truth <= high)).mean() > 0.95
        sent = found.to_frame("annotators", kind="dict")["set_aside"]
        assert np.array_equal(sent, np.bincount(slips[0].annotator[slips[1]], minlength=20))


def test_the_median_of_others_is_that_of_the_others():
    rng = np.random.default_rng(1)
    code, x = np.divmod(np.sort(rng.integers(0, 300, 100)), 10)
    for n, value in enumerate(median_of_others(code, x, 31)):
        rest = x[(code == code[n]) & (np.arange(100) != n)]
        assert value == np.median(rest) if len(rest) else np.isnan(value)


def test_zeros_noise_that_grows_and_two_opinions_are_no_gross_errors():
    rng = np.random.default_rng(2)
    zeros = np.where(rng.random((200, 5)) < 0.9, 0.0, rng.uniform(1.0, 100.0, (200, 5)))
    growing = np.exp(rng.normal(4.0, 1.5, (200, 1)) + rng.normal(0.0, 0.1, (200, 5)))
    wild = rng.normal(50.0, 15.0, (200, 1)) + rng.normal(0.0, [2.0, 2.0, 2.0, 2.0, 100.0], (200, 5))
    two = rng.normal(50.0, 15.0, (200, 1)) + rng.normal(0.0, 1.0, (200, 2))
    two[0] = 10.0, 90.0
    for dense in (zeros, growing, wild, two):
        assert not gross_errors(cw.Ratings.from_dense(dense)).any()
    two[0] = 50.0, 500.0
    assert np.flatnonzero(gross_errors(cw.Ratings.from_dense(two))).tolist() == [1]


def test_intervals_end_where_the_scale_does():
    rng = np.random.default_rng(3)
    true = rng.uniform(1.0, 5.0, (100, 1))
    grades = np.clip(np.round(true + rng.normal(0.0, 0.7, (100, 3))), 1.0, 5.0)
    slider = np.clip(25.0 * (true - 1.2) + rng.normal(0.0, 10.0, (100, 3)), 0.0, 100.0)
    for dense, ends in ((grades, [1.0, 5.0]), (slider, [0.0, 100.0]), (true + rng.normal(size=(100, 3)), None)):
        found = cw.aggregate(cw.Ratings.from_dense(dense))
        low, high = found.interval()
        assert found.ends.tolist() == (ends or [-np.inf, np.inf])
        assert (low <= found.values).all() and (found.values <= high).all()
        assert ends is None or (low.min(), high.max()) == tuple(ends)
    few = cw.Ratings.from_dense([[1.0, 2.0], [2.0, 3.0]])
    assert few.ends().tolist() == [-np.inf, np.inf]


def test_large_crowds_take_each_annotator_apart(monkeypatch):
    made = crowd(n_items=400, n_annotators=30)
    joint = cw.aggregate(made.ratings, "gaussian")
    monkeypatch.setattr(ratings_gaussian, "DENSE", 10)
    apart = cw.aggregate(made.ratings, "gaussian")
    assert np.array_equal(joint.values, apart.values)
    assert np.allclose(joint.deviations, apart.deviations, rtol=0.15)
    assert np.allclose(joint.bias_sd, apart.bias_sd, rtol=0.6)


def test_hedge_leaves_a_right_model_alone_and_returns_to_the_mean_from_a_wrong_one():
    made = crowd(n_items=400)
    assert cw.aggregate(made.ratings, "gaussian").share > 0.85
    r = made.ratings
    y, _, _ = standardise(r)
    z = -2.0 * made.truth
    values, share = hedged(r, y, z, z[r.item], caution=0.0)
    plain = counts(r.item, y, len(r)) / counts(r.item, np.ones(r.n_answers), len(r))
    assert share < 0.2 and np.allclose(values, share * z + (1 - share) * plain)
    assert hedged(r, y, z, z[r.item], caution=5.0)[1] == 0.0
    ones = np.arange(len(r)) * 5
    alone = r.select(np.isin(np.arange(r.n_answers), ones))
    assert hedged(alone, y[ones], z, z)[1] == 0.0


def test_the_error_of_the_hedge_is_that_of_many_crowds():
    """Shares of the better of two predictions scatter by their standard error: one in twenty is under the bound."""
    shares, bounds = [], []
    for seed in range(60):
        made = crowd(seed, n_items=150, bias=0.0, shape=1e4)
        r, truth = made.ratings, made.truth
        guess = 0.3 * truth + 0.1
        shares.append(_unclipped(r, guess, 0.0))
        bounds.append(_unclipped(r, guess, 1.645))
    error = (np.array(shares) - np.array(bounds)) / 1.645
    assert 0.8 < np.std(shares) / error.mean() < 1.25


def _unclipped(ratings, z, caution):
    """The share of a model whose prediction is half-way between z and the mean: far from both ends."""
    total, said = counts(ratings.item, ratings.weights, len(ratings)), counts(ratings.item, ratings.value, len(ratings))
    mean = (said[ratings.item] - ratings.value) / (total[ratings.item] - 1.0)
    return hedged(ratings, ratings.value, z, mean + 3.0 * (z[ratings.item] - mean), caution=caution)[1]


def test_it_says_when_it_did_not_settle():
    with pytest.warns(ConvergenceWarning, match="gaussian stopped after 2 iterations"):
        found = cw.aggregate(crowd().ratings, "gaussian", max_iter=2)
    assert not found.converged


def test_callbacks_are_seen_every_pass():
    seen = []
    found = cw.aggregate(crowd(n_items=50).ratings, "gaussian", callback=seen.append)
    assert len(seen) == found.iterations and seen[-1].objective > seen[-2].objective - 1e-6


# -------------------------------------------------------------------- gaussian: what it corrects for


def noisy(noise, seed=0, N=200, M=20):
    """Ratings with any noise: M annotators rate all items, without biases."""
    rng = np.random.default_rng(seed)
    ratings = cw.Ratings.from_dense(rng.normal(size=(N, 1)) + noise(rng, (N, M)))
    return ratings_gaussian.RatingMatrices.of(ratings, ratings.value)


def test_precision_power_is_one_for_normal_noise_and_follows_the_kurtosis():
    scale = np.random.default_rng(5).uniform(0.7, 1.5, 20)
    power = [precision_power(noisy(lambda g, shape: g.normal(size=shape) * scale, seed), True) for seed in range(6)]
    assert 0.9 < np.mean(power) <= 1.0
    # Laplace: kurtosis 6, f = 2 / 5; Normal with one in ten of ten times the variance: 8.3, f = 0.27
    power = [precision_power(noisy(lambda g, shape: g.laplace(size=shape) * scale, seed), True) for seed in range(6)]
    assert abs(np.mean(power) - 0.4) < 0.06
    wild = lambda g, shape: g.normal(size=shape) * np.where(g.random(shape) < 0.1, np.sqrt(10.0), 1.0) * scale  # noqa: E731
    assert abs(np.mean([precision_power(noisy(wild, seed), True) for seed in range(6)]) - 0.27) < 0.06


def test_biases_are_additive_unless_they_grow_with_the_item():
    rng = np.random.default_rng(0)
    truth = rng.gamma(1.0, 1.0, size=(100, 1)) * (rng.random((100, 1)) < 0.4)
    b = rng.normal(0.0, 0.5, size=20)
    noise = 0.3 * rng.normal(size=(100, 20))
    part = {}
    for name, dense in (("added", truth + b + noise), ("stretched", truth * (1.0 + b) + noise * truth)):
        ratings = cw.Ratings.from_dense(dense)
        part[name] = additive_part(ratings_gaussian.RatingMatrices.of(ratings, ratings.value))
    assert part["added"] > 0.9 and part["stretched"] < 0.75
    alone = cw.Ratings.from_records([(n, m, float(n + m)) for n in range(9) for m in (n % 3, (n + 1) % 3)])
    assert 0.0 <= additive_part(ratings_gaussian.RatingMatrices.of(alone, alone.value)) <= 1.0


def test_normal_spread_is_the_likelihood_s_best():
    rng = np.random.default_rng(2)
    V = rng.uniform(0.1, 2.0, 300)
    w = 3.0 + rng.normal(size=300) * np.sqrt(1.5 + V)
    mu, tau2 = ratings_gaussian.normal_spread(w, V)
    grid = [
        (-0.5 * (np.log(t + V) + (w - m) ** 2 / (t + V)).sum(), m, t)
        for m in np.linspace(2.5, 3.5, 51)
        for t in np.linspace(0.5, 3.0, 126)
    ]
    _, best_mu, best_tau2 = max(grid)
    assert abs(mu - best_mu) < 0.03 and abs(tau2 - best_tau2) < 0.03
    assert ratings_gaussian.normal_spread(np.full(5, 2.0), np.ones(5)) == (
        2.0,
        ratings_gaussian.MIN_VARIANCE,
    )


def test_groups_without_a_common_annotator_keep_their_levels():
    """Items of one group are 10 above those of the other; only the items can tell, and biases do not take it away."""
    rng = np.random.default_rng(4)
    dense = np.full((40, 10), np.nan)
    dense[:20, :5] = rng.normal(0.0, 1.0, size=(20, 1)) + rng.normal(size=(20, 5))
    dense[20:, 5:] = rng.normal(10.0, 1.0, size=(20, 1)) + rng.normal(size=(20, 5))
    ratings = cw.Ratings.from_dense(dense)
    found, mean = cw.aggregate(ratings, "gaussian").values, cw.aggregate(ratings, "mean").values
    assert np.allclose([found[:20].mean(), found[20:].mean()], [mean[:20].mean(), mean[20:].mean()], atol=0.1)


def test_values_have_the_level_of_the_mean_and_stay_on_the_scale():
    made = crowd(n_items=150)
    shifted = np.clip(np.round(50.0 + 30.0 * made.ratings.value), 0.0, 100.0)
    r = made.ratings
    bounded = cw.Ratings.from_codes(r.item, r.annotator, shifted, items=r.items, annotators=r.annotators)
    found = cw.aggregate(bounded, "gaussian")
    assert found.values.min() >= 0.0 and found.values.max() <= 100.0
    assert abs(found.values.mean() - cw.aggregate(bounded, "mean").values.mean()) < 0.2


def test_nobody_to_compare_with_leaves_the_mean():
    made = crowd(n_items=60, votes_per_item=1)
    found = cw.aggregate(made.ratings, "gaussian")
    assert np.array_equal(found.values, cw.aggregate(made.ratings, "mean").values)
    assert found.share == 0.0 and "No two annotators" in found.notes[0]
    some = cw.Ratings.from_records([("a", "x", 1.0), ("a", "y", 3.0), ("b", "x", 2.0), ("c", "y", 9.0)])
    assert np.isfinite(cw.aggregate(some, "gaussian").values).all()


def test_shared_errors_are_covered_and_can_be_taken_out():
    """Errors that all ratings on an item share, of 0.4 times the variance of a typical annotator's noise."""
    held = {0.0: [], 0.4: []}
    for seed in range(6):
        made = crowd(seed, n_items=300, n_annotators=20, votes_per_item=8, shape=20.0, shared_noise=np.sqrt(0.4))
        for c, rows in held.items():
            found = cw.aggregate(made.ratings, "gaussian", shared_error=c)
            low, high = found.interval()
            rows.append(np.mean((low <= made.truth) & (made.truth <= high)))
    assert np.mean(held[0.0]) < 0.85 and 0.93 < np.mean(held[0.4]) < 0.98
    assert (found.shared > 0).all() and (found.freedom > 2.0).all()
    plain = cw.aggregate(made.ratings, "gaussian", shared_error=0.0)
    assert plain.shared is None and np.array_equal(plain.values, found.values)
    assert np.allclose(plain.deviations**2 + found.shared**2, found.deviations**2)


def test_shared_errors_are_larger_where_ratings_scatter():
    rng = np.random.default_rng(6)
    ease = np.repeat([0.2, 3.0], 100)
    dense = rng.normal(size=(200, 1)) + ease[:, None] * rng.normal(size=(200, 8))
    shared = cw.aggregate(cw.Ratings.from_dense(dense), "gaussian").shared
    assert np.median(shared[100:]) > 2.0 * np.median(shared[:100])


def test_thin_ratings_are_not_worse_than_the_mean():
    for votes, annotators in ((2, 20), (2, 300), (3, 300)):
        ratio = []
        for seed in range(3):
            made = crowd(seed, n_items=300, n_annotators=annotators, votes_per_item=votes)
            ratio.append(
                rmse(cw.aggregate(made.ratings, "gaussian"), made) / rmse(cw.aggregate(made.ratings, "mean"), made)
            )
        assert max(ratio) < 0.9


# -------------------------------------------------------------------- the others


def test_messages_are_exact_on_a_single_rating_each():
    """One annotator per item and a known grid: the belief over variances is that of independent ratings."""
    rng = np.random.default_rng(0)
    grid, pi = np.array([0.5, 2.0]), np.array([0.4, 0.6])
    x = rng.normal(size=(10, 2))
    dense = np.full((20, 2), np.nan)
    dense[:10, 0], dense[10:, 1] = x[:, 0], x[:, 1]
    ratings = cw.Ratings.from_dense(dense)
    found = cw.aggregate(ratings, "bayes-iterative", variances=grid, prior=pi, hedge=False, tol=1e-10, max_iter=500)
    tau2, mu = found.spread**2, found.mean
    for m in range(2):
        log = np.log(pi) - 0.5 * (10 * np.log(grid + tau2) + ((x[:, m, None] - mu) ** 2).sum(axis=0) / (grid + tau2))
        belief = np.exp(log - np.logaddexp.reduce(log))
        assert np.isclose(found.precision[m], (belief / grid).sum(), rtol=1e-3)


def test_covariance_finds_copiers_and_nobody_else():
    alarms = seen = 0
    for seed in range(6):
        made = crowd(seed, n_items=500, n_annotators=12, n_copiers=4, votes_per_item=8)
        found = cw.aggregate(made.ratings, "covariance")
        partners = found.annotator_columns["partners"]
        if made.parameters["precision"][0] < 1.0:  # else what they share is too little to be seen, or to do harm
            assert (partners[:5] > 0).sum() >= 4
            assert rmse(found, made) < rmse(cw.aggregate(made.ratings, "gaussian"), made)
            seen += 1
        alarms += int((partners[5:] > 0).sum())
        honest = cw.aggregate(crowd(seed, n_items=300, n_annotators=12, votes_per_item=8).ratings, "covariance")
        alarms += int((honest.annotator_columns["partners"] > 0).sum())
    assert alarms <= 4 and seen >= 2


def test_covariance_equals_the_best_linear_estimate_when_dense():
    made = crowd(n_items=2000, n_annotators=8, votes_per_item=None, bias=0.3)
    found = cw.aggregate(made.ratings, "covariance").values
    # The bias that all share on average is invisible, and goes into every item alike.
    assert np.std(found - made.truth) < 1.03 * np.std(oracle(made) - made.truth)


def test_covariance_refuses_what_it_cannot_do(monkeypatch):
    from crowdwise.answers import ratings_covariance

    sparse = cw.Ratings.from_records([(n, n, 1.0 * n) for n in range(6)])
    with pytest.raises(InputError, match="three items in common"):
        cw.aggregate(sparse, "covariance")
    monkeypatch.setattr(ratings_covariance, "MAX_ANNOTATORS", 5)
    with pytest.raises(InputError, match="compares all pairs of at most 5"):
        cw.aggregate(crowd().ratings, "covariance")


def test_pm_with_totals_never_raises_its_sum():
    for loss in ("squared", "absolute"):
        found = cw.aggregate(crowd().ratings, "pm-numeric", per_rating=False, loss=loss)
        assert len(found.trace) == found.iterations and (np.diff(found.trace) > -1e-9).all()
        assert loss == "absolute" or found.iterations > 2


def test_catd_weighs_by_chi_squared_over_the_loss():
    from scipy.stats import chi2

    made = crowd()
    r = made.ratings
    found = cw.aggregate(r, "catd-numeric", tol=1e-9, max_iter=2000)
    y, centre, unit = standardise(r)
    loss = counts(r.annotator, (y - (found.values[r.item] - centre) / unit) ** 2, 15) + 1e-6
    v = chi2.ppf(0.025, found.ratings_per_annotator) / loss
    assert np.allclose(found.annotator_columns["weight"], v / v.max(), rtol=1e-3)


# -------------------------------------------------------------------- real ratings


@pytest.mark.slow
def test_real_ratings_not_worse_than_the_mean_and_covered(real):
    """At most 2 % above the mean in root mean square error on every set, below it on average; intervals cover."""
    ratio, covered = [], []
    for name in ("n_emotion", "snow_anger", "snow_disgust", "snow_fear", "snow_wordsim"):
        folder = real(name)
        ratings = cw.read_ratings(folder / "labels.csv", truth_path=folder / "truth.csv")
        if name == "snow_wordsim":
            ratings = ratings.with_truth(2.5 * ratings.truth)  # from 0 to 4, ratings from 0 to 10
        base = cw.metrics.rmse(cw.aggregate(ratings, "mean"), ratings.truth).value
        if name == "n_emotion":
            assert round(base, 1) == 17.8
        found = cw.aggregate(ratings, "gaussian")
        ratio.append(cw.metrics.rmse(found, ratings.truth).value / base)
        low, high = found.interval()
        covered.append(np.mean((low <= ratings.truth) & (ratings.truth <= high)))
    assert max(ratio) <= 1.02 and np.mean(ratio) < 0.98, ratio
    assert min(covered) > 0.85 and 0.9 < np.mean(covered) < 0.98, covered


@pytest.mark.slow
def test_many_ratings_in_seconds():
    import time

    made = cw.simulate.ratings(30_000, n_annotators=300, votes_per_item=10, random_state=0)
    began = time.process_time()
    found = cw.aggregate(made.ratings, "gaussian")
    assert time.process_time() - began < 20  # some 2 s on an idle machine
    assert rmse(found, made) < 0.75 * rmse(cw.aggregate(made.ratings, "mean"), made)


def test_a_repeated_rating_is_the_mean_of_both():
    once = {"item": [1, 1, 1, 2, 2, 2, 3, 3, 3], "annotator": list("abc") * 3, "rating": [1.5, 3, 2, 2, 3, 4, 1, 1, 2]}
    twice = {"item": [1, *once["item"]], "annotator": ["a", *once["annotator"]], "rating": [1, 2, *once["rating"][1:]]}
    tables = (cw.Ratings.from_frame(once), cw.Ratings.from_frame(twice, on_duplicate="all"))
    values = [cw.aggregate(table, "covariance").values for table in tables]
    assert np.allclose(*values, atol=0.2) and np.isfinite(values[1]).all()
