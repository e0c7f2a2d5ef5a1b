"""The planner: the crowd that votes is the crowd that was given, and what is best is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.active.budget_plan import LearningInputs, Plan, PlanRow, make_plan
from crowdwise.errors import InputError, ParameterError
from crowdwise.simulate import FittedCrowd


def crowd(accuracy: Any = (0.9, 0.8, 0.7, 0.6, 0.55), K: int = 2, activity: Any = None) -> FittedCrowd:
    w = np.asarray(accuracy)[:, None, None]
    theta = np.where(np.eye(K, dtype=bool), w, (1 - w) / (K - 1))
    M = len(theta)
    given = np.full(M, 1 / M) if activity is None else np.asarray(activity)
    return FittedCrowd([f"c{k}" for k in range(K)], theta, np.full(K, 1 / K), given)


def test_the_crowd_votes_as_it_did() -> None:
    made = crowd(K=3, activity=[0.5, 0.2, 0.15, 0.1, 0.05])
    truth = np.arange(40_000) % 3
    votes = made.vote(truth, 1, np.random.default_rng(0))
    share = np.bincount(votes.annotator, minlength=5) / votes.n_votes
    np.testing.assert_allclose(share, made.activity, atol=0.01)
    for m in range(5):
        here = votes.annotator == m
        right = (votes.label[here] == truth[votes.item[here]]).mean()
        assert right == pytest.approx(made.confusion[m, 0, 0], abs=0.03)


@pytest.mark.parametrize("each", [1, 2, 5])
def test_nobody_votes_twice_on_an_item(each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowdwise.simulate.crowds.CHUNK", 50)
    votes = crowd().vote(np.zeros(300, np.int64), each, np.random.default_rng(0))
    assert (np.diff(votes.indptr) == each).all()
    pairs = votes.item * 5 + votes.annotator
    assert len(np.unique(pairs)) == len(pairs) == 300 * each


def test_a_fit_gives_a_crowd() -> None:
    simulated = cw.simulate.dirichlet(800, n_annotators=10, n_classes=3, votes_per_item=5, random_state=0)
    fit = cw.aggregate(simulated.votes, "dawid-skene")
    made = FittedCrowd.of(simulated.votes, fit.confusion, fit.prior)
    assert np.abs(made.confusion - simulated.parameters["confusion"]).mean() < 0.06
    assert made.activity.sum() == pytest.approx(1.0)
    with pytest.raises(ParameterError, match="no confusion matrices"):
        FittedCrowd.of(simulated.votes, None, fit.prior)


def test_more_votes_make_fewer_and_better_labels() -> None:
    plan = make_plan(crowd([0.75] * 12), 900, cw.MajorityVote, votes_per_item=[9, 1, 3], n_seeds=4)
    assert plan.choices == [1, 3, 9]
    assert [plan.items(c) for c in plan.choices] == [900, 300, 100]
    accuracy = [mean for mean, _, _ in plan.summary("accuracy")]
    # The majority of l voters who are right with probability .75: .75, .844, .951.
    np.testing.assert_allclose(accuracy, [0.75, 0.84375, 0.951], atol=0.03)
    assert plan.best("accuracy") == 9
    assert plan.best("right") == 1
    mean, low, high = plan.summary("right")[0]
    assert low <= mean <= high
    assert mean == pytest.approx(900 * accuracy[0])
    with pytest.raises(ParameterError, match="No classifier"):
        plan.summary("test")
    with pytest.raises(ParameterError, match="measure"):
        plan.summary("speed")


class Nearest:
    """A learner for tests: the nearest mean of the inputs that most votes give to a class."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: Any, votes: cw.Votes) -> Nearest:
        labels = cw.aggregate(votes, "majority").posterior.argmax(axis=1)
        self.means = np.array([X[labels == k].mean(axis=0) if (labels == k).any() else X[0] for k in range(2)])
        return self

    def predict_proba(self, X: Any) -> Any:
        far = ((X[:, None] - self.means) ** 2).sum(axis=2)
        return np.exp(-far) / np.exp(-far).sum(axis=1, keepdims=True)


def test_a_learner_gains_from_many_items() -> None:
    rng = np.random.default_rng(0)
    k = rng.integers(0, 2, 1_200)
    X = rng.normal(size=(1_200, 30)) + 0.35 * np.where(k == 1, 1.0, -1.0)[:, None]
    inputs = LearningInputs(X[:900], k[:900], X[900:], k[900:])
    plan = make_plan(
        crowd([0.7] * 12), 300, cw.MajorityVote, votes_per_item=[1, 11], n_seeds=6, learner=Nearest, inputs=inputs
    )
    (sparse, _, _), (dense, _, _) = plan.summary("test")
    assert sparse > dense + 0.01
    assert plan.best("test") == 1
    assert plan.best("accuracy") == 11
    all_used = make_plan(crowd(), 3_000, cw.MajorityVote, votes_per_item=[1], n_seeds=1, learner=Nearest, inputs=inputs)
    assert all_used.items(1) == 900  # there are no more


def test_the_seed_decides_and_crowds_may_vote_in_other_processes() -> None:
    done: list[str] = []
    one = make_plan(crowd(), 60, cw.OneCoin, votes_per_item=[2, 3], n_seeds=2, progress=done.append)
    two = make_plan(crowd(), 60, cw.OneCoin, votes_per_item=[2, 3], n_seeds=2, n_jobs=2)
    assert one.rows == two.rows
    assert len({row.accuracy for row in one.rows}) > 1
    assert done == ["2 votes per item"] * 2 + ["3 votes per item"] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget=0"),
        ({"budget": 2.5}, "budget=2.5"),
        ({"votes_per_item": []}, "votes_per_item"),
        ({"votes_per_item": [0]}, "from 1 to 5"),
        ({"votes_per_item": [6]}, "5 annotators"),
        ({"budget": 3, "votes_per_item": [4]}, "from 1 to 3"),
        ({"n_seeds": 0}, "n_seeds=0"),
        ({"learner": Nearest}, "go together"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"budget": 50, "votes_per_item": [1]} | options
    with pytest.raises(ParameterError, match=message):
        make_plan(crowd(), given.pop("budget"), cw.MajorityVote, **given)


def test_inputs_without_classes() -> None:
    with pytest.raises(InputError, match="X_test"):
        LearningInputs(np.zeros((3, 2)), np.zeros(3, int), np.zeros((0, 2)), np.zeros(0, int))


def test_of_two_that_are_alike_the_smaller() -> None:
    rows = [PlanRow(c, 10, 0, 0.8, 8.0) for c in (3, 1)]
    assert Plan(30, rows).best("accuracy") == 1


def test_inputs_are_split() -> None:
    X, classes = np.arange(20).reshape(10, 2), np.arange(10)
    made = LearningInputs.split(X, classes, random_state=3)
    assert len(made.classes_test) == 2
    assert sorted([*made.classes, *made.classes_test]) == list(range(10))
    assert np.array_equal(X[made.classes_test], made.X_test)
    assert np.array_equal(X[made.classes], made.X)
