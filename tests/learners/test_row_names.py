"""Rows and items that line up: by name where there are names, by position only where nothing speaks against it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crowdwise as cw
from crowdwise.data.features import read_features
from crowdwise.errors import AlignmentWarning, InputError
from learners.crowd import small

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
N = 90
FEATURES = [f"f{d}" for d in range(6)]


def model(**more):
    return cw.Raykar(max_iter=15, **more)


@pytest.fixture(scope="module")
def crowd():
    """A table of features with the items' names as index, a long table of votes in another order, and the truth."""
    X, votes, truth = small(n=N, votes_per_item=2)
    names = np.array([f"t{n:03d}" for n in range(N)])
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(X, columns=FEATURES, index=pd.Index(names, name="task"))
    table = votes.to_frame("dict")
    long = pd.DataFrame({"task": names[table["item"]], "worker": table["annotator"], "label": table["label"]})
    long = long.sample(frac=1.0, random_state=3).reset_index(drop=True)
    return frame.iloc[rng.permutation(N)], long, dict(zip(names.tolist(), truth.tolist(), strict=True))


@pytest.fixture(scope="module")
def votes(crowd):
    return cw.Votes.from_frame(crowd[1])


@pytest.fixture(scope="module")
def right(crowd, votes):
    """Predictions by name, of a fit whose rows were put in order by hand."""
    X = crowd[0]
    learner = model().fit(X.loc[votes.items.tolist()].to_numpy(), votes, items=votes.items)
    return dict(zip(X.index, learner.predict(X.to_numpy()).tolist(), strict=True))


def predicted(learner, X, names):
    return dict(zip(names, learner.predict(X).tolist(), strict=True))


# -------------------------------------------------------------------- names align


def test_the_names_are_worth_having(crowd, right):
    truth = crowd[2]
    assert np.mean([right[name] == truth[name] for name in truth]) > 0.8


def test_an_index_finds_the_rows(crowd, votes, right):
    X = crowd[0]
    learner = model().fit(X, votes)
    assert predicted(learner, X, X.index) == right
    assert learner.feature_names_in_.tolist() == FEATURES
    assert learner.n_features_in_ == 6
    assert not any("row n of X" in note for note in learner.consensus_.notes)


@pytest.mark.parametrize("name", ["task", "id", "doc_id", "Unnamed: 0"])
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_column_of_names_finds_the_rows_and_is_no_feature(crowd, votes, right, name, kind):
    X = crowd[0].rename_axis(name).reset_index()
    given = X if kind == "pandas" else pl.from_pandas(X) if kind == "polars" else pl.from_pandas(X).to_arrow()
    learner = model().fit(given, votes)
    assert predicted(learner, given, crowd[0].index) == right
    assert learner.feature_names_in_.tolist() == FEATURES
    without = X[FEATURES] if kind == "pandas" else pl.from_pandas(X[FEATURES])
    assert predicted(learner, without, crowd[0].index) == right


def test_numbers_as_names_in_a_column(crowd, right):
    """Whole numbers called id are names, not a feature."""
    X, long, _ = crowd
    number = {name: 1000 + 7 * n for n, name in enumerate(sorted(X.index))}
    votes = cw.Votes.from_frame(long.assign(task=long.task.map(number)))
    frame = X.reset_index(drop=True).assign(id=[number[name] for name in X.index])
    learner = model().fit(frame, votes)
    assert learner.feature_names_in_.tolist() == FEATURES
    assert predicted(learner, frame, X.index) == right


def test_items_names_the_rows_of_anything(crowd, votes, right):
    X = crowd[0]
    for form in (X.to_numpy(), csr_matrix(X.to_numpy()), X.to_numpy()[:, None, :]):
        learner = model(scale=False).fit(form, votes, items=X.index)
        same = model(scale=False).fit(X if form.ndim == 2 else form, votes, items=X.index)
        assert predicted(learner, form, X.index) == predicted(same, form, X.index)
    assert predicted(model().fit(X.to_numpy(), votes, items=list(X.index)), X.to_numpy(), X.index) == right


def test_a_long_table_is_read_as_one(crowd, right):
    X, long, _ = crowd
    learner = model().fit(X, long)
    assert predicted(learner, X, X.index) == right
    assert len(learner.annotators_) == 8
    assert predicted(model().fit(X, pl.from_pandas(long)), X, X.index) == right


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("form", ["index", "column", "plain pivot"])
def test_a_wide_table_is_read_as_one(crowd, right, shuffle, form):
    X, long, _ = crowd
    wide = long.pivot(index="task", columns="worker", **({} if form == "plain pivot" else {"values": "label"}))
    wide = wide.sample(frac=1.0, random_state=4) if shuffle else wide
    learner = model().fit(X, wide.reset_index() if form == "column" else wide)
    assert len(learner.annotators_) == 8
    assert predicted(learner, X, X.index) == right


def test_one_label_each_by_name(crowd):
    X, _, truth = crowd
    labels = pd.Series(truth).sample(frac=1.0, random_state=5)
    learner = model().fit(X, labels)
    same = model().fit(X.loc[labels.index].to_numpy(), labels.to_numpy())
    assert learner.predict(X).tolist() == same.predict(X.to_numpy()).tolist()
    assert learner.score(X, labels) == same.score(X.loc[labels.index].to_numpy(), labels.to_numpy())


def test_more_rows_than_items_are_fine_where_they_have_names(crowd, votes, right):
    X = crowd[0]
    more = pd.concat([X.set_axis([f"new{n}" for n in range(N)]), X])
    learner = model().fit(more, votes)
    assert predicted(learner, X, X.index) == right


def test_votes_at_prediction_are_put_in_the_order_of_the_rows(crowd, votes):
    X = crowd[0]
    learner = model().fit(X, votes)
    q = learner.predict_proba(X, votes)
    by_hand = learner.predict_proba(X.loc[votes.items.tolist()].to_numpy(), votes, items=votes.items)
    at = pd.Series(range(N), index=votes.items.tolist())[X.index].to_numpy()
    assert np.allclose(q, by_hand[at], atol=1e-9)
    assert learner.score(X, votes) == pytest.approx(learner.score(X.loc[votes.items.tolist()], votes))


def test_truth_in_any_order_scores_the_same(crowd, votes):
    X, _, truth = crowd
    learner = model().fit(X, votes)
    mean = np.mean([p == truth[name] for name, p in predicted(learner, X, X.index).items()])
    series = pd.Series(truth)
    weights = pd.Series(np.linspace(1, 2, N), index=series.index)
    assert learner.score(X, series) == mean
    assert learner.score(X, series[::-1]) == mean
    assert learner.score(X, truth) == mean
    assert learner.score(X.to_numpy(), [truth[name] for name in X.index]) == mean
    assert learner.score(X, series, weights) == pytest.approx(learner.score(X, series[::-1], weights[::-1]))
    assert learner.score(X, {name: truth[name] for name in list(truth)[:10]}) == np.mean(
        [predicted(learner, X, X.index)[name] == truth[name] for name in list(truth)[:10]]
    )
    part = X.iloc[:30]
    assert learner.score(part, series) == learner.score(part, truth) == learner.score(part, series[part.index])
    assert learner.score(part, series, weights) == learner.score(part, series[part.index], weights[part.index])
    frame = series.rename_axis("task").rename("label").reset_index()
    assert learner.score(X, frame) == learner.score(X, pl.from_pandas(frame)) == mean
    assert learner.consensus_.score(series[::-1]) == learner.consensus_.score(truth)


def test_gold_is_found_by_name(crowd, votes):
    X, _, truth = crowd
    some = pd.Series(truth).sample(30, random_state=0)
    a, b = model().fit(X, votes, some), model().fit(X, votes, dict(sorted(some.items())))
    assert a.consensus_.gold.tolist() == b.consensus_.gold.tolist()
    frame = some.rename_axis("task").rename("label").reset_index()
    for known in (frame, pl.from_pandas(frame), frame.set_index("task")):
        assert model().fit(X, votes, known).consensus_.gold.tolist() == a.consensus_.gold.tolist()


def test_regressors_and_networks_line_up_too(crowd):
    X, long, _ = crowd
    ratings = cw.Ratings.from_frame(long.rename(columns={"label": "value"}))
    a = cw.RaykarRegression(max_iter=20).fit(X, ratings)
    b = cw.RaykarRegression(max_iter=20).fit(X.loc[ratings.items.tolist()].to_numpy(), ratings, items=ratings.items)
    assert np.allclose(a.predict(X), b.predict(X.to_numpy()))
    wide = long.pivot(index="task", columns="worker", values="label").sample(frac=1.0, random_state=1)
    c = cw.RaykarRegression(max_iter=20).fit(X, wide)
    assert np.allclose(a.predict(X), c.predict(X), atol=1e-4)
    assert a.score(X, pd.Series(crowd[2])) == a.score(X, pd.Series(crowd[2])[::-1])
    votes = cw.Votes.from_frame(long)
    for key in ("two-stage", "ccem"):
        given_settings = {"epochs": 2, "network": "linear", "random_state": 0}
        one = cw.CrowdClassifier(key, **given_settings).fit(X, votes)
        two = cw.CrowdClassifier(key, **given_settings).fit(X.loc[votes.items.tolist()], votes)
        assert np.array_equal(one.predict_proba(X), two.predict_proba(X))
        assert one.feature_names_in_.tolist() == FEATURES


# -------------------------------------------------------------------- columns


def test_columns_are_checked_as_scikit_learn_does(crowd, votes, tmp_path):
    X = crowd[0]
    learner = model().fit(X, votes)
    learner.save(tmp_path / "model")
    for one in (learner, cw.load_learner(tmp_path / "model")):
        assert one.feature_names_in_.tolist() == FEATURES
        with pytest.raises(InputError, match="same order as they were in fit"):
            one.predict(X[FEATURES[::-1]])
        with pytest.raises(InputError, match=r"(?s)unseen at fit time.*new.*seen at fit time, yet now missing.*f5"):
            one.predict(X.rename(columns={"f5": "new"}))
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            one.predict(X.to_numpy())
        with pytest.raises(InputError, match="same order"):
            one.predict(pl.from_pandas(X[FEATURES[::-1]]))
    plain = model().fit(X.loc[votes.items.tolist()].to_numpy(), votes, items=votes.items)
    assert not hasattr(plain, "feature_names_in_")
    with pytest.warns(UserWarning, match="fitted without feature names"):
        plain.predict(X)


def test_a_loaded_learner_leaves_out_the_same_column(crowd, votes, right, tmp_path):
    X = crowd[0].rename_axis("photo").reset_index()
    model().fit(X, votes).save(tmp_path / "model")
    learner = cw.load_learner(tmp_path / "model")
    assert predicted(learner, X, crowd[0].index) == right


# -------------------------------------------------------------------- positions, and what is ambiguous


def test_positions_that_cannot_be_checked_are_an_error(crowd, votes):
    X = crowd[0].loc[votes.items.tolist()]
    numbered = replace(votes, items=1000 + 7 * np.arange(N))
    for form in (X.to_numpy(), X.reset_index(drop=True), pl.from_pandas(X), csr_matrix(X.to_numpy())):
        for answers in (votes, votes.to_frame(), numbered):
            with pytest.raises(InputError, match=r"which row belongs to which item cannot be.*items=votes\.items"):
                model().fit(form, answers)
    learner = model().fit(X.to_numpy(), votes, items=votes.items)
    with pytest.raises(InputError, match="cannot be checked"):
        learner.predict_proba(X.to_numpy(), votes)


def test_positions_are_used_where_items_are_called_as_rows_are(crowd, votes):
    X = crowd[0].loc[votes.items.tolist()]
    with warnings.catch_warnings():
        warnings.simplefilter("error", AlignmentWarning)
        model().fit(X.to_numpy(), votes, items=votes.items)
        numbered = small(n=N, votes_per_item=2)[1]
        by_number = model().fit(X.to_numpy(), numbered).consensus_  # items 0, 1, 2... are row numbers
        assert not any("taken for item n" in note for note in by_number.notes)
        assert "taken for item n" in model().fit(X.to_numpy()[5:], numbered[5:]).consensus_.notes[-1]
        assert numbered[5:][::2].has_row_numbers and not votes.has_row_numbers


def test_scikit_learns_folds_keep_their_rows(crowd, votes):
    X = crowd[0].loc[votes.items.tolist()]
    folds = KFold(3, shuffle=True, random_state=0)
    by_name = cross_val_score(model(), X, votes, cv=folds)
    with sklearn.config_context(enable_metadata_routing=True):
        place = model().set_fit_request(items=True).set_score_request(items=True)
        by_place = cross_val_score(place, X.to_numpy(), votes, cv=folds, params={"items": votes.items})
    assert np.allclose(by_name, by_place)
    with pytest.raises(ValueError, match="cannot be checked"):
        cross_val_score(model(), X.to_numpy(), votes, cv=folds)


@pytest.mark.parametrize("names", [range(N), range(1000, 1000 + 7 * N, 7), [f"t{n}" for n in range(N)]])
def test_a_pipeline_that_drops_the_index(names):
    X, votes, truth = small(n=N, votes_per_item=2)
    votes = replace(votes, items=pd.Index(names).to_numpy())
    X = pd.DataFrame(X, index=pd.Index(names)).iloc[np.random.default_rng(0).permutation(N)]
    truth = pd.Series(truth, index=names)[X.index]
    with pytest.raises(InputError, match=r"dropped its index.*set_output\(transform='pandas'\).*items=X\.index"):
        make_pipeline(StandardScaler(), model()).fit(X, votes)
    kept = make_pipeline(StandardScaler(), model()).set_output(transform="pandas").fit(X, votes)
    named = make_pipeline(StandardScaler(), model()).fit(X, votes, raykar__items=X.index)
    assert kept.predict(X).tolist() == named.predict(X).tolist() and (kept.predict(X) == truth).mean() > 0.9


def lost(X):
    return X.rename(index={X.index[0]: "nobody"})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lost, ["1 of the 90 items", "the index"]),
        (lambda X: X.reset_index(drop=True).sample(frac=1.0, random_state=0), ["the index", "reset_index(drop=True)"]),
        (lambda X: X.set_axis([*X.index[:-1], X.index[0]]), ["more than once"]),
        (lambda X: X.iloc[:-1].to_numpy(), ["89 rows", "90 items", "items="]),
        (lambda X: X.reset_index(drop=True).assign(id=range(500, 500 + N)), ["column 'id'", "drop"]),
        (lambda X: X.assign(id=range(500, 500 + N)), ["column 'id'", "drop"]),
        (lambda X: X.assign(task=np.roll(X.index, 1)), ["the index", "column 'task'", "differ"]),
        (lambda X: X.assign(city="Rome"), ["column 'city'", "text"]),
    ],
)
def test_what_is_ambiguous_is_an_error_that_names_the_way_out(crowd, votes, spoil, words):
    with pytest.raises(InputError) as caught:
        model().fit(spoil(crowd[0]), votes)
    assert all(word.lower() in str(caught.value).lower() for word in words), str(caught.value)


def test_names_at_prediction_must_cover(crowd, votes):
    X, _, truth = crowd
    learner = model().fit(X, votes)
    with pytest.raises(InputError, match="no row for 1 of the 90 items"):
        learner.predict(lost(X), votes)
    with pytest.raises(InputError, match="rows without votes"):
        learner.predict(pd.concat([X, X.iloc[:1].set_axis(["new"])]), votes)
    with pytest.raises(InputError, match="no value for 5 of the 90 rows of X"):
        learner.score(X, pd.Series(truth).drop(X.index[:5]))
    with pytest.raises(InputError, match="no value for 90"):
        learner.score(X, {f"other{n}": 0 for n in range(N)})
    with pytest.raises(InputError, match="have no names"):
        learner.score(X.to_numpy(), truth)


def test_rows_in_another_order_than_their_numbers_are_ambiguous():
    X, votes, _ = small(n=N, votes_per_item=2)
    order = np.random.default_rng(0).permutation(N)
    frame = pd.DataFrame(X, columns=FEATURES)
    by_name = model().fit(frame.iloc[order], votes)  # the index holds the numbers of items
    assert by_name.predict(frame).tolist() == model().fit(frame, votes).predict(frame).tolist()
    with pytest.raises(InputError, match="numbers of rows in another order"):
        model().fit(frame.iloc[order].reset_index(drop=True), votes[order])


def test_a_feature_that_is_called_like_an_item_is_a_feature():
    X, votes, _ = small(n=N, votes_per_item=2)
    frame = pd.DataFrame(X, columns=["unit", *FEATURES[1:]])
    assert model().fit(frame, votes).feature_names_in_.tolist() == ["unit", *FEATURES[1:]]
    binary = frame.assign(unit=np.arange(N) % 2)
    assert model().fit(binary, votes).feature_names_in_.tolist() == ["unit", *FEATURES[1:]]


# -------------------------------------------------------------------- any order


@settings(max_examples=10)
@given(
    rows=st.permutations(range(30)), answers=st.permutations(range(60)), form=st.sampled_from(["index", "id", "wide"])
)
def test_no_order_of_rows_or_votes_matters(rows, answers, form):
    X, votes, _ = small(n=30, votes_per_item=2)
    names = [f"t{n}" for n in range(30)]
    frame = pd.DataFrame(X, columns=FEATURES, index=names)
    table = votes.to_frame("dict")
    task = [names[n] for n in table["item"]]
    long = pd.DataFrame({"task": task, "worker": table["annotator"], "label": table["label"]})
    expected = model(spread=0.5).fit(frame, long).predict_proba(frame)
    given_rows = frame.iloc[rows]
    X_given = given_rows if form != "id" else pl.from_pandas(given_rows.rename_axis("id").reset_index())
    y_given = long.iloc[answers] if form != "wide" else long.pivot(index="task", columns="worker", values="label")
    if form == "wide":
        y_given = y_given.iloc[[n for n in answers if n < 30]]
    found = model(spread=0.5).fit(X_given, y_given).predict_proba(frame)
    assert np.allclose(found, expected, atol=1e-4)


# -------------------------------------------------------------------- files


@pytest.mark.parametrize("key", ["task", "item", "id_train", "items", "names"])
def test_names_in_an_archive(crowd, votes, right, tmp_path, key):
    X = crowd[0]
    np.savez(tmp_path / "features.npz", x=X.to_numpy(), **{key: X.index.to_numpy().astype(str)})
    learner = model().fit(read_features(tmp_path / "features.npz"), votes)
    assert predicted(learner, X.to_numpy(), X.index) == right


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_in_a_table_of_features(crowd, votes, right, tmp_path, ending):
    X = crowd[0].rename_axis("id").reset_index()
    file = tmp_path / f"features.{ending}"
    X.to_csv(file, index=False) if ending == "csv" else X.to_parquet(file, index=False)
    found = read_features(file)
    learner = model().fit(found, votes)
    assert learner.feature_names_in_.tolist() == FEATURES
    assert predicted(learner, found, crowd[0].index) == right


def test_features_that_single_precision_blurs_are_named(crowd, votes):
    X = crowd[0].astype("float64").assign(f2=lambda table: table.f2 + 1e9)
    with pytest.warns(cw.errors.InputWarning, match="columns 'f2' of X differ"):
        model().fit(X, votes)
    plain = [crowd[0], crowd[0].assign(f2=1e9), crowd[0].astype("float32"), crowd[0].assign(f2=0.1 + 0.2)]
    for X in plain:
        with warnings.catch_warnings():
            warnings.simplefilter("error", cw.errors.InputWarning)
            model().fit(X, votes)


def test_no_inputs_are_an_error_in_words(votes):
    with pytest.raises(InputError, match="X is None"):
        model().fit(None, votes)
