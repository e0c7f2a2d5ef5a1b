"""Errors of scores by prompt: comparisons on one prompt hang together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from answers.prompted import prompts
from crowdwise.errors import InputError


def fit(table: cw.Comparisons, method: str = "bradley-terry", **params: Any) -> cw.Ranking:
    return cw.aggregate(table, method, **params)


def test_intervals_cover_what_many_prompts_would_give() -> None:
    limit = fit(prompts(3000, 1.0, seed=1), errors="independent").scores
    inside = {"auto": [], "independent": []}
    for seed in range(40):
        table = prompts(40, 1.0, seed=100 + seed)
        for errors, found in inside.items():
            ranking = fit(table, errors=errors)
            found.append(np.abs(ranking.scores - limit) < 1.96 * ranking.errors)
    assert 0.88 < np.mean(inside["auto"]) < 0.99
    assert np.mean(inside["independent"]) < 0.80


def test_independent_comparisons_have_the_same_errors() -> None:
    ratio = []
    for seed in range(8):
        ranking = fit(prompts(80, 0.0, seed=seed, tie=-0.5), "bradley-terry")
        assert ranking.n_groups == 80 and ranking.independent_errors is not None
        ratio.append(ranking.errors / ranking.independent_errors)
    assert abs(np.mean(ratio) - 1.0) < 0.05


@pytest.mark.parametrize(
    ("method", "params"),
    [("bradley-terry", {}), ("crowd-bt", {}), ("judge-bt", {}), ("judge-bt", {"slopes": 0.0}), ("position-bt", {})],
)
def test_they_are_those_of_a_bootstrap_of_prompts(method: str, params: dict[str, Any]) -> None:
    table = prompts(40, 0.8, seed=0, tie=-0.5)
    ranking = fit(table, method, **params)
    rng, draws = np.random.default_rng(0), []
    for _ in range(30):
        times = np.bincount(rng.integers(0, 40, 40), minlength=40)[table.question].astype(float)
        some = replace(table.select(times > 0), weight=times[times > 0])
        draws.append(fit(some, method, errors="independent", **params).scores)
    ratio = ranking.errors / np.std(draws, axis=0)
    assert 0.7 < ratio.mean() < 1.3
    assert np.allclose(ranking.draws.std(axis=0), ranking.errors, rtol=0.15)
    assert any("Errors allow for 40 questions" in note for note in ranking.notes)


def test_a_judge_of_whom_nothing_is_known_is_no_better_known_by_questions() -> None:
    """One who always takes the first, and one who saw four questions."""
    table = prompts(30, 1.0, seed=0)
    rows = table.annotator != 1
    rows |= table.question < 4
    stuck = replace(table, outcome=np.where(table.annotator == 0, 0, table.outcome).astype(np.int8)).select(rows)
    found = [fit(stuck, "judge-bt", errors=how).to_frame("annotators", kind="dict")
             for how in ("clustered", "independent")]  # fmt: skip
    for part in ("slope", "position"):
        grouped, independent = (table[f"{part}_high"] - table[f"{part}_low"] for table in found)
        assert (grouped[:2] >= independent[:2] * 0.999).all(), part


def test_an_item_that_never_lost_is_no_better_known_by_questions() -> None:
    """Its gradients vanish: with them an error by question would, and the error of all others about the mean."""
    rng = np.random.default_rng(0)
    rows = []
    for q in range(180):
        a, b = rng.permutation(4)[:2].tolist()
        won = "left" if a == 0 or (b != 0 and rng.random() < 0.5) else "right"
        rows.append({"left": a, "right": b, "annotator": "judge", "outcome": won, "question": q // 3})
    table = cw.Comparisons.from_records(rows)
    grouped, independent = (fit(table, errors=how) for how in ("clustered", "independent"))
    best = int(np.argmax(independent.scores))
    assert grouped.errors[best] >= independent.errors[best] * 0.999
    assert (grouped.errors > 0.7 * independent.errors).all()


@pytest.mark.parametrize("method", ["bradley-terry", "judge-bt"])
@pytest.mark.parametrize("n_prompts", [5, 10, 20])
def test_few_prompts(method: str, n_prompts: int) -> None:
    limit = fit(prompts(3000, 1.0, seed=1), method, errors="independent").scores
    inside, independent, judges = [], [], {"slope": [], "position": []}
    for seed in range(60):
        ranking = fit(prompts(n_prompts, 1.0, seed=100 + seed), method)
        items = ranking.to_frame("items", kind="dict")
        inside.append((items["low"] <= limit) & (limit <= items["high"]))
        independent.append(np.abs(ranking.scores - limit) < 1.96 * ranking.independent_errors)
        if method == "judge-bt":
            people = ranking.to_frame("annotators", kind="dict")
            judges["slope"].append((people["slope_low"] <= 1.0) & (people["slope_high"] >= 1.0))
            judges["position"].append((people["position_low"] <= 0.0) & (people["position_high"] >= 0.0))
    assert 0.92 <= np.mean(inside) <= 0.98 and np.mean(independent) < 0.85
    if method == "judge-bt":
        assert 0.91 <= np.mean(judges["position"]) <= 0.985 and 0.92 <= np.mean(judges["slope"])
        assert np.mean(judges["slope"]) <= 0.985 or n_prompts == 5


def test_the_correction_is_that_of_plain_arithmetic() -> None:
    """Without ties and a prior: psi_c = (X'WX)^-1 X_c' W^1/2 (1 - H_cc)^-1/2 W^-1/2 (y - p), by the rows themselves."""
    table = prompts(6, 1.0, seed=4, n_judges=2)
    ranking = fit(table, prior=0.0)
    X = np.zeros((table.n_answers, table.n_items))
    X[np.arange(len(X)), table.left], X[np.arange(len(X)), table.right] = 1.0, -1.0
    p = 1.0 / (1.0 + np.exp(-X @ ranking.scores))
    root = np.sqrt(p * (1.0 - p))
    B = np.linalg.pinv((X * root[:, None] ** 2).T @ X)
    V = np.zeros_like(B)
    for c in range(6):
        rows = table.question == c
        Xw = X[rows] * root[rows, None]
        value, Q = np.linalg.eigh(np.eye(rows.sum()) - Xw @ B @ Xw.T)
        psi = B @ Xw.T @ (Q / np.sqrt(value)) @ Q.T @ (((table.outcome == 0) - p)[rows] / root[rows])
        V += np.outer(psi, psi)
    wide = np.sqrt(np.diagonal(V)) > ranking.independent_errors
    assert wide.any() and np.allclose(ranking.errors[wide], np.sqrt(np.diagonal(V))[wide], rtol=1e-6)


def test_too_few_prompts_or_items_on_few_of_them(tmp_path: Any) -> None:
    few = fit(prompts(4, 1.0, seed=0))
    assert few.n_groups == 0 and "there are 4, and 5 are needed" in few.caveat and few.caveat in few.notes
    assert set(few.to_frame("leaderboard", kind="dict")["caveat"]) == {few.caveat} and few.caveat in few.plot().svg
    few.save(tmp_path / "few")
    assert cw.Ranking.load(tmp_path / "few").caveat == few.caveat
    assert "caveat" not in fit(prompts(5, 1.0, seed=0)).leaderboard.columns
    with pytest.raises(InputError, match="cannot be clustered by question: there are 4"):
        fit(prompts(4, 1.0, seed=0), errors="clustered")
    with pytest.raises(InputError, match="needs groups of comparisons"):
        fit(replace(prompts(30, 1.0, seed=0), question=None, questions=None), errors="clustered")
    table = prompts(40, 1.0, seed=0)
    rare = table.select((table.question < 4) | ((table.left != 0) & (table.right != 0)))  # item 0 on four prompts
    ranking = fit(rare)
    assert ranking.independent_errors is not None and ranking.n_groups == 40
    assert ranking.errors[0] >= ranking.independent_errors[0] * (1.0 - 1e-9)
    nested = replace(table, left=table.left + 5 * table.question, right=table.right + 5 * table.question,
                     items=np.arange(200))  # fmt: skip
    with pytest.warns(UserWarning, match="parts"):
        assert any("most items are in fewer than 5" in note for note in fit(nested).notes)


def test_names_and_order_of_rows_do_not_matter() -> None:
    table = prompts(30, 1.0, seed=3)
    mixed = table.to_frame("polars").sample(fraction=1.0, shuffle=True, seed=1)
    again = cw.Comparisons.from_frame(mixed.with_columns(question=mixed["question"].cast(str) + "?"))
    one, other = fit(table, "judge-bt"), fit(again, "judge-bt")
    assert np.allclose(one.errors, other.errors, rtol=1e-6) and np.allclose(one.scores, other.scores, atol=1e-6)


def test_saved_rankings_keep_them(tmp_path: Any) -> None:
    ranking = fit(prompts(30, 1.0, seed=3))
    ranking.save(tmp_path / "r")
    again = cw.Ranking.load(tmp_path / "r")
    assert again.n_groups == 30 and np.array_equal(again.independent_errors, ranking.independent_errors)
