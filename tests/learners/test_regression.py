"""Regression from ratings and inputs: planted annotators are found, and scikit-learn's protocol holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict

import crowdwise as cw
from crowdwise.data.folders import seal
from crowdwise.errors import InputError, ParameterError, ReadError
from crowdwise.learners.ratings_regressor import CrowdRegression, RaykarRegression, combine, residual_parts

QUICK = {"network": "linear", "epochs": 30, "lr": 2e-3, "random_state": 0, "device": "cpu"}


def crowd(seed=0, **given):
    given = {"n_items": 400, "n_annotators": 10, "bias": 1.0, "n_features": 5, "votes_per_item": 3} | given
    made = cw.simulate.ratings(random_state=seed, **given)
    return made.features["x_train"], made


def test_the_unit_of_features_does_not_matter():
    X, made = crowd()
    found, tiny = (RaykarRegression().fit(x, made.ratings).predict(x) for x in (X, X * 1e-12))
    np.testing.assert_allclose(tiny, found, rtol=1e-4)


@pytest.mark.parametrize("layer", ["S", "B", "S+B", "B+S"])
def test_layers_learn_and_are_centred(layer):
    X, made = crowd(scale=0.2)
    model = CrowdRegression(layer=layer, **QUICK).fit(X, made.ratings)
    found = model.consensus_
    assert found.score(made.truth) > cw.aggregate(made.ratings, "mean").score(made.truth)
    if "B" in layer:
        gap = found.bias - (made.parameters["bias"] - made.parameters["bias"].mean())
        assert np.abs(gap).mean() < 0.2
        assert np.corrcoef(found.bias, made.parameters["bias"])[0, 1] > 0.95
        assert abs(found.bias.mean()) < 0.1
    else:
        assert found.bias is None
    if "S" in layer:
        assert abs(found.scale.mean() - 1.0) < 1e-6
    else:
        assert found.scale is None
    # a rating is predicted by slope and offset as by the network and its layer
    slope, offset = found.annotator_columns["slope"], found.annotator_columns["offset"]
    r, f = made.ratings, model.predict(X)
    told = slope[r.annotator] * f[r.item] + offset[r.annotator]
    assert np.mean((r.value - told) ** 2) < 1.1 * np.var(r.value)
    assert np.allclose(found.item_columns["predicted"], f)


def test_biases_help_where_annotators_see_different_items():
    """With B the network beats one trained as if nobody had a bias (a single annotator who gives the item means)."""
    X, made = crowd(bias=3.0, votes_per_item=1)
    r = made.ratings
    model = CrowdRegression(**QUICK).fit(X, r)
    blind = CrowdRegression(**QUICK).fit(X, cw.aggregate(r, "mean").values)
    error = [np.std(m.predict(X) - made.truth) for m in (model, blind)]
    assert error[0] < error[1]


def test_own_noise_finds_precisions():
    X, made = crowd(bias=0.5, shape=1.0, votes_per_item=6)
    found = CrowdRegression(noise="own", **QUICK).fit(X, made.ratings).consensus_
    assert np.corrcoef(np.log(found.precision), np.log(made.parameters["precision"]))[0, 1] > 0.6


def test_protocol(tmp_path):
    X, made = crowd(n_items=120)
    model = CrowdRegression(**QUICK | {"epochs": 5})
    assert is_regressor(model) and clone(model).get_params() == model.get_params()
    first, second = (clone(model).fit(X, made.ratings).predict(X) for _ in range(2))
    assert np.array_equal(first, second)
    assert cross_val_predict(model, X, made.ratings, cv=3).shape == (120,)
    model.fit(X, made.ratings)
    assert np.isfinite(model.score(X, made.truth))
    with_ratings = model.predict(X, made.ratings)
    assert np.allclose(with_ratings, model.consensus_.values, atol=1e-4)
    strangers = cw.Ratings.from_dense(np.ones((120, 1)), annotators=["new"])
    assert np.allclose(model.predict(X, strangers), model.predict(X))
    model.save(tmp_path / "kept")
    back = CrowdRegression.load(tmp_path / "kept", device="cpu")
    assert np.allclose(back.predict(X, made.ratings), with_ratings)
    with pytest.raises(ReadError):
        CrowdRegression.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="rows"):
        model.fit(X[:5], made.ratings)
    with pytest.raises(InputError, match="expecting 5 features"):
        model.predict(X[:, :2])
    with pytest.raises(ParameterError, match="layer='C'"):
        CrowdRegression(layer="C").fit(X, made.ratings)
    with pytest.raises(ParameterError, match="noise="):
        CrowdRegression(noise="none").fit(X, made.ratings)
    with pytest.raises(AttributeError, match="not been fitted"):
        CrowdRegression().predict(X)
    dense = np.full((120, 2), np.nan)
    dense[:, 0] = made.truth
    dense[:60, 1] = made.truth[:60]
    assert CrowdRegression(**QUICK | {"epochs": 2}).fit(X, dense).consensus_.n_answers == 180


def test_held_out_ratings_choose_the_epoch_and_a_run_can_be_resumed(tmp_path):
    X, made = crowd(n_items=120)
    settings = QUICK | {"epochs": 6, "lr": 0.05, "select": "votes", "holdout": 0.3}
    model = CrowdRegression(**settings).fit(X, made.ratings)
    scores = [epoch.held_out for epoch in model.history_]
    assert all(score is not None and score < 0 for score in scores)
    resumed = CrowdRegression(**settings, checkpoint=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        resumed.fit(X, made.ratings, callback=interrupt)
    assert np.array_equal(resumed.fit(X, made.ratings).predict(X), model.predict(X))


def interrupt(epoch):
    if epoch.epoch == 3:
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", [CrowdRegression, RaykarRegression])
def test_gold_is_refused_and_every_round_is_reported(kind):
    X, made = crowd(n_items=60)
    with pytest.raises(ParameterError, match="cannot use gold"):
        kind().fit(X, made.ratings, made.truth)
    reported = []
    model = kind(**({"epochs": 3} if kind is CrowdRegression else {"tol": 0.5}))
    model.fit(X, made.ratings, callback=reported.append)
    assert reported == model.history_ and [epoch.epoch for epoch in reported] == list(range(1, len(reported) + 1))


def test_combine_is_the_posterior_of_a_normal():
    ratings = cw.Ratings.from_records([(0, 0, 1.0), (0, 1, 3.0), (1, 1, 2.0)])
    z, var = combine(
        ratings, np.array([0.5, 1.0]), np.array([1.0, 2.0]), np.array([0.0, 1.0]), np.array([4.0, 1.0]), 0.5
    )
    h = np.array([2.0 + 4.0 + 4.0, 2.0 + 4.0])
    assert np.allclose(var, 1 / h)
    assert np.allclose(z, [(0.5 * 2 + 4 * 1.0 + 2 * (3.0 - 1.0)) / h[0], (1.0 * 2 + 2 * (2.0 - 1.0)) / h[1]])


def test_residuals_that_agree_are_the_gap():
    _, made = crowd(n_items=4000, bias=0.0, shape=50.0)
    known = made.parameters
    f = np.zeros(4000)
    precision, gap = residual_parts(made.ratings, f, np.ones(10), np.zeros(10))
    assert abs(gap - np.var(made.truth)) < 0.15
    assert np.allclose(precision, known["precision"], rtol=0.35)


def test_raykar_regression_climbs_and_uses_both():
    X, made = crowd(n_items=600, bias=0.0, votes_per_item=2, shape=1.0)
    model = RaykarRegression().fit(X, made.ratings)
    found = model.consensus_
    assert found.converged and (np.diff(found.trace) > -1e-6 * made.ratings.n_answers).all()
    rmse = cw.metrics.rmse(found, made.truth).value
    assert rmse < 0.85 * cw.metrics.rmse(cw.aggregate(made.ratings, "mean"), made.truth).value
    assert rmse < np.sqrt(np.mean((model.predict(X) - made.truth) ** 2))
    assert np.allclose(model.predict(X, made.ratings), found.values)
    assert np.corrcoef(np.log(found.precision), np.log(made.parameters["precision"]))[0, 1] > 0.8
    low, high = found.interval()
    assert 0.9 < ((low < made.truth) & (made.truth < high)).mean() < 0.99
    least = LinearRegression().fit(X, made.truth)
    assert np.corrcoef(model.predict(X), least.predict(X))[0, 1] > 0.98


def test_raykar_regression_trace_is_the_marginal_likelihood():
    from scipy.stats import multivariate_normal

    X, made = crowd(n_items=6, n_annotators=3, votes_per_item=2, n_features=2)
    model = RaykarRegression(tol=0.0, max_iter=7)
    with pytest.warns(UserWarning, match="before it converged"):
        model.fit(X, made.ratings)
    found, r = model.consensus_, made.ratings
    total = 0.0
    for n in range(6):
        own = r.item == n
        cov = model.gap_ + np.diag(1.0 / model.precision_[r.annotator[own]])
        total += multivariate_normal(np.full(own.sum(), found.item_columns["predicted"][n]), cov).logpdf(r.value[own])
    unit = model.unit_[1]
    p = model.precision_ * unit**2
    total += float((np.log(p) - 0.5 * p).sum()) + model.model_.log_prior()
    # p and gap of the last round belong to the last entry of the trace only up to that round's update
    assert np.isclose(total, found.trace[-1], rtol=0.02)


def test_two_ratings_of_raykar_regression_count_as_one_of_weight_two():
    crowd = cw.simulate.ratings(120, n_annotators=8, n_features=5, votes_per_item=3, random_state=0)
    ratings, names = crowd.ratings, {"items": crowd.ratings.items, "annotators": crowd.ratings.annotators}
    rows = (ratings.item, ratings.annotator, ratings.value)
    twice = cw.Ratings.from_codes(*(np.repeat(row, 2) for row in rows), on_duplicate="all", **names)
    heavy = cw.Ratings.from_codes(*rows, weight=np.full(len(ratings.value), 2.0), **names)
    one, other = (RaykarRegression().fit(crowd.features["x_train"], table).consensus_ for table in (twice, heavy))
    for name in ("values", "deviations", "precision", "precision_shape"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)


def test_raykar_regression_with_any_regressor_and_bad_parameters():
    from sklearn.ensemble import RandomForestRegressor

    X, made = crowd(n_items=150, bias=0.0)
    forest = RandomForestRegressor(20, min_samples_leaf=10)
    model = RaykarRegression(regressor=forest, max_iter=5, random_state=0).fit(X, made.ratings)
    assert np.array_equal(model.predict(X), clone(model).fit(X, made.ratings).predict(X))
    assert not hasattr(forest, "estimators_")
    for params in ({"regressor": "cubic"}, {"regressor": 3}, {"spread": 0.0}, {"max_iter": 0}, {"tol": -1.0}):
        with pytest.raises(ParameterError, match=next(iter(params))):
            RaykarRegression(**params).fit(X, made.ratings)
    with pytest.raises(InputError, match="expecting 5 features"):
        model.predict(X[:, :3])
    with pytest.raises(AttributeError, match="not been fitted"):
        RaykarRegression().predict(X)


def test_raykar_regression_is_kept_and_read_back(tmp_path):
    from sklearn.tree import DecisionTreeRegressor

    from crowdwise.errors import OutputError, ReadError

    X, made = crowd(n_items=150, bias=0.0)
    for scale in (True, False):
        model = RaykarRegression(spread=2.0, scale=scale, random_state=3).fit(X, made.ratings)
        folder = model.save(tmp_path / f"kept-{scale}")
        again = cw.load_learner(folder)
        assert isinstance(again, RaykarRegression) and again.get_params() == model.get_params()
        assert np.array_equal(again.predict(X), model.predict(X))
        assert np.array_equal(again.predict(X, made.ratings), model.predict(X, made.ratings))
        assert np.array_equal(again.consensus_.values, model.consensus_.values)
        assert again.annotators_.tolist() == model.annotators_.tolist() and again.gap_ == model.gap_
        assert again.model_.log_prior() == model.model_.log_prior()
        with pytest.raises(InputError, match="expecting 5 features"):
            again.predict(X[:, :2])
    model.save(folder)  # an earlier one is replaced

    with pytest.raises(AttributeError, match="not been fitted"):
        RaykarRegression().save(tmp_path / "none")
    tree = RaykarRegression(regressor=DecisionTreeRegressor(max_depth=2), max_iter=3).fit(X, made.ratings)
    with pytest.raises(OutputError, match="DecisionTreeRegressor cannot be written without pickle"):
        tree.save(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ParameterError, match="has no network"):
        RaykarRegression.load(folder, network="mlp")
    with pytest.raises(ReadError, match="There is no learner in"):
        cw.load_learner(tmp_path)
    for lost in ("params", "method"):
        facts = json.loads((folder / "learner.json").read_text())
        (folder / "learner.json").write_text(json.dumps({k: v for k, v in facts.items() if k != lost}))
        seal(folder, "learner")
        with pytest.raises(ReadError, match=f"lack(s|) '{lost}'"):
            cw.load_learner(folder)
    model.save(folder)
    (folder / "weights.safetensors").write_bytes((folder / "weights.safetensors").read_bytes()[:40])
    with pytest.raises(ReadError, match="does not hold a readable learner"):
        cw.load_learner(folder)
