"""Votes in cross-validation with scikit-learn: splits by item; scores by likelihood, or against the truth of votes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import crowdwise as cw
from crowdwise.errors import InputError
from learners.crowd import small

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


@pytest.fixture(scope="module")
def crowd():
    X, votes, truth = small(n=150)
    return X, votes.with_truth(truth), truth


def scores(crowd, votes, **more):
    return cross_val_score(cw.Raykar(max_iter=10), crowd[0], votes, cv=3, error_score="raise", **more)


def test_a_number_of_folds_is_enough(crowd):
    X, votes, _ = crowd
    assert np.allclose(
        scores(crowd, votes.with_truth(None)), cross_val_score(cw.Raykar(max_iter=10), X, votes, cv=KFold(3))
    )


def test_scores_against_the_truth_that_votes_carry(crowd):
    X, votes, truth = crowd
    by_hand = [
        cw.Raykar(max_iter=10).fit(X[train], votes[train]).score(X[test], truth[test])
        for train, test in KFold(3).split(X)
    ]
    assert np.allclose(scores(crowd, votes, scoring="accuracy"), by_hand)
    assert np.allclose(scores(crowd, votes, scoring=cw.metrics.accuracy_on_truth), by_hand)
    some = np.where(np.arange(150) % 3 == 0, -1, truth)
    assert (scores(crowd, votes.with_truth(some), scoring=cw.metrics.accuracy_on_truth) > 0.7).all()
    search = GridSearchCV(cw.Raykar(max_iter=10), {"spread": [0.5, 1.0]}, cv=3, scoring="accuracy").fit(X, votes)
    assert search.best_score_ > 0.7


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", cw.metrics.accuracy_on_truth])
def test_without_truth_it_says_what_to_do(crowd, scoring):
    with pytest.raises(InputError, match=r"votes\.with_truth\(truth\)"):
        scores(crowd, crowd[1].with_truth(None), scoring=scoring)


@pytest.mark.parametrize("cv", [3, KFold(3)])
def test_scores_without_truth_are_one_error_and_not_nan(crowd, cv):
    X, votes = crowd[0], crowd[1].with_truth(None)
    with warnings.catch_warnings(), pytest.raises(ValueError, match=r"votes\.with_truth\(truth\)"):
        warnings.simplefilter("error")
        cross_val_score(cw.CrowdClassifier("raykar", max_iter=10), X, votes, cv=cv, scoring="f1_macro")
    with pytest.raises(ValueError, match=r"votes\.with_truth\(truth\)"):
        GridSearchCV(cw.Raykar(), {"spread": [0.5, 1.0]}, cv=cv, scoring="accuracy").fit(X, votes)


def test_half_of_the_truth_is_not_enough_for_scikit_learns_own_scorers(crowd):
    some = np.where(np.arange(150) % 3 == 0, -1, crowd[2])
    with pytest.raises(InputError, match="accuracy_on_truth"):
        scores(crowd, crowd[1].with_truth(some), scoring="accuracy")


def test_a_classifier_of_scikit_learns_cannot_be_trained_on_votes_by_mistake(crowd):
    with pytest.raises(ValueError, match="Unknown label type"):
        LogisticRegression().fit(crowd[0], crowd[1])


def test_votes_as_an_array_are_the_votes_on_each_item():
    votes = cw.Votes.from_records([("a", "u", "x"), ("a", "v", "y"), ("b", "u", "y")])
    assert np.asarray(votes).tolist() == [{"u": "x", "v": "y"}, {"u": "y"}]
