"""deep-bt: scores from features, also of items nobody compared, seen through annotators."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from torch import nn

import crowdwise as cw
from crowdwise.errors import InputError, NotFittedError, ParameterError
from crowdwise.learners.comparisons_deep_bt import Siamese, as_pairs
from crowdwise.learners.inputs import PairInputs, as_inputs


@cache
def crowd(n_items: int = 60, n: int = 2000, reversed_: int = 0, ties: bool = False, seed: int = 0) -> Any:
    """Features, comparisons of the items by ten annotators, the first few of whom turn answers round, and scores."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_items, 6))
    s = 1.5 * np.tanh(x @ np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0])) + 0.5 * x[:, 3]
    i = rng.integers(0, n_items, n)
    j = (i + rng.integers(1, n_items, n)) % n_items
    who = rng.integers(0, 10, n)
    z = s[i] - s[j]
    logit = np.stack([z / 2, -z / 2, np.full(n, -0.5 if ties else -np.inf)], axis=1)
    p = np.exp(logit) / np.exp(logit).sum(axis=1, keepdims=True)
    y = (rng.random(n)[:, None] > p.cumsum(axis=1)[:, :2]).sum(axis=1)
    y = np.where((who < reversed_) & (y < 2), 1 - y, y)
    return x, cw.Comparisons.from_codes(i, j, who, y, items=range(n_items), annotators=range(10)), s


def learner(**more: Any) -> Any:
    return cw.DeepBT(**{"epochs": 12, "lr": 1e-2, "batch_size": 128, "random_state": 0, "device": "cpu"} | more)


def test_scores_of_items_nobody_compared() -> None:
    x, table, s = crowd(n=3000, reversed_=3, ties=True)
    seen, new = x[:45], x[45:]
    inside = (table.left < 45) & (table.right < 45)
    some = cw.Comparisons.from_codes(
        table.left[inside], table.right[inside], table.annotator[inside], table.outcome[inside], items=range(45),
        annotators=range(10),
    )  # fmt: skip
    more = {"epochs": 12, "lr": 2e-2, "crowd_lr": 5e-2}
    model = learner(**more).fit(seen, some)
    assert np.corrcoef(model.predict(new), s[45:])[0, 1] > 0.85
    eta = model.consensus_.reliability
    assert (eta[:3] < 0.4).all() and (eta[3:] > 0.7).all()
    plain = learner(annotators=False, **more).fit(seen, some)
    assert plain.consensus_.reliability is None
    assert np.corrcoef(model.predict(new), s[45:])[0, 1] > np.corrcoef(plain.predict(new), s[45:])[0, 1]


def test_the_result_is_a_ranking() -> None:
    x, table, s = crowd()
    model = learner().fit(x, table)
    ranking = model.consensus_
    assert isinstance(ranking, cw.Ranking) and abs(ranking.scores.mean()) < 1e-9 and ranking.method == "deep-bt"
    board = ranking.to_frame("leaderboard", kind="dict")
    assert (np.diff(board["score"]) <= 0).all() and (board["error"] > 0).all()
    # The errors are of the right order: about those of crowd-bt or less, since items share what makes them better.
    assert 0.1 < ranking.errors.mean() / cw.aggregate(table, "crowd-bt").errors.mean() < 1.2
    p = model.predict_proba(x, table)
    assert p.shape == (table.n_answers, 2) and np.allclose(p.sum(axis=1), 1)
    z = model.predict(x)
    assert np.allclose(p[:, 0], 1 / (1 + np.exp(z[table.right] - z[table.left])))
    assert model.score(x, table) == pytest.approx(float(np.log(p[np.arange(len(p)), table.outcome]).mean()))
    again = learner().fit(x, table)
    assert (again.consensus_.scores == ranking.scores).all()


def test_saved_and_loaded(tmp_path: Path) -> None:
    for ties in (False, True):
        x, table, _ = crowd(20, 400, ties=ties)
        model = learner(epochs=2, network="linear").fit(x, table)
        model.save(tmp_path / f"kept{ties}")
        again = cw.DeepBT.load(tmp_path / f"kept{ties}", device="cpu")
        assert np.allclose(again.predict(x), model.predict(x))
        assert np.allclose(again.predict_proba(x, table), model.predict_proba(x, table))
        assert again.consensus_.to_frame("annotators", kind="dict")["reliability"] == pytest.approx(
            model.consensus_.reliability
        )


def test_pairs_as_inputs() -> None:
    x, table, _ = crowd(8, 100)
    inputs, votes = as_pairs(as_inputs(x), table)
    assert votes.n_votes == 100 and votes.n_classes == 2 and inputs.shape == (2, 6)
    rows = inputs.rows(np.array([3, 0]))
    assert np.allclose(rows[0, 0], x[inputs.left[3]]) and np.allclose(rows[1, 1], x[inputs.right[0]])
    network = Siamese(nn.Identity(), nn.Linear(6, 1), True)  # type: ignore[arg-type]
    with torch.no_grad():
        one, other = network(rows), network(rows.flip(1))
    assert torch.allclose(one[:, 0], other[:, 1]) and torch.allclose(
        one[:, 2], other[:, 2]
    )  # swapping sides swaps them
    assert isinstance(inputs, PairInputs) and len(inputs) == len(votes)


def test_habits_of_estimators() -> None:
    model = learner(select="votes", patience=3)
    assert clone(model).get_params() == model.get_params() and not is_classifier(model)
    x, table, _ = crowd(15, 300)
    fitted = clone(model).fit(x, table)
    assert fitted.history_[0].held_out is not None
    with pytest.raises(NotFittedError):
        model.predict(x)


def test_wrong_use() -> None:
    x, table, _ = crowd(10, 100)
    with pytest.raises(InputError, match=r"fit\(X, comparisons\)"):
        learner().fit(table)
    with pytest.raises(InputError, match="9 rows and the comparisons are on 10 items"):
        learner().fit(x[:9], table)
    with pytest.raises(ParameterError, match="cannot use gold"):
        learner().fit(x, table, gold={})
    with pytest.raises(ParameterError, match="reliability"):
        learner(reliability=(1.0, 3.0)).fit(x, table)
    with pytest.raises(ParameterError, match="annotators=3"):
        learner(annotators=3).fit(x, table)
    with pytest.raises(ParameterError, match="select='gold': expected 'last' or 'votes'"):
        learner(select="gold").fit(x, table)
    with pytest.raises(ParameterError, match="one score for each"):
        learner(network=nn.Linear(6, 2)).fit(x, table)
    fitted = learner(epochs=1).fit(x, table)
    with pytest.raises(InputError, match="which rows of X to compare"):
        fitted.predict_proba(x)
    with pytest.raises(InputError, match="leave the comparisons out"):
        fitted.predict(x, table)
    tied = cw.Comparisons.from_codes([0], [1], [0], [2], items=range(10), annotators=range(1))
    with pytest.raises(InputError, match="fitted without"):
        fitted.score(x, tied)


def test_two_groups_have_a_reward_model_each():
    """Half of the annotators go by the first feature, half by the second, the other way round."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    i, who = rng.integers(0, 40, 1500), rng.integers(0, 12, 1500)
    j = (i + rng.integers(1, 40, 1500)) % 40
    group = np.arange(12) % 2
    z = ((x[i] - x[j]) * np.array([[2.0, 0.0, 0.0], [0.0, -2.0, 0.0]])[group[who]]).sum(axis=1)
    lost = (rng.random(1500) > 1 / (1 + np.exp(-z))).astype(int)
    names: Any = {"items": range(40), "annotators": range(12)}
    train = cw.Comparisons.from_codes(i[:1000], j[:1000], who[:1000], lost[:1000], **names)
    test = cw.Comparisons.from_codes(i[1000:], j[1000:], who[1000:], lost[1000:], **names)
    settings: Any = {"network": "linear", "epochs": 6, "lr": 0.1, "batch_size": 200, "device": "cpu"}
    models, member = cw.reward_groups(x, train, rounds=1, **settings)
    same = member.argmax(axis=1) == group
    assert same.all() or not same.any()
    place = np.arange(len(test.outcome)), test.outcome
    p = (member[test.annotator] * np.stack([m.predict_proba(x, test)[place] for m in models], axis=1)).sum(axis=1)
    one = learner(annotators=False, **settings).fit(x, train)
    assert np.log(p).mean() > one.score(x, test) + 0.1
    with pytest.raises(InputError, match="12 annotators"):
        cw.reward_groups(x, train, 13, **settings)
    with pytest.raises(ParameterError, match="rounds=0"):
        cw.reward_groups(x, train, rounds=0, **settings)
