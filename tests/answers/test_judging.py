"""Leaderboards as those who compare models need them: errors by prompt, reliability and position at once, judges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import crowdwise as cw
from crowdwise.answers.comparisons_bradley_terry import positions_known
from crowdwise.answers.comparisons_likelihood import Likelihood, MatchObjective
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import maximise, schur, separated
from crowdwise.errors import InputError


def prompts(
    n_prompts: int, effect: float, seed: int, n_items: int = 5, n_judges: int = 3, tie: float | None = None
) -> cw.Comparisons:
    """Every pair of models on every prompt; on a prompt some models are better than they are on the whole."""
    rng = np.random.default_rng(seed)
    scores = np.linspace(-1.0, 1.0, n_items)
    here = scores + effect * rng.standard_normal((n_prompts, n_items))
    i, j = np.triu_indices(n_items, 1)
    prompt, pair, judge = (
        a.ravel() for a in np.meshgrid(*map(np.arange, (n_prompts, len(i), n_judges)), indexing="ij")
    )
    turned = rng.random(len(pair)) < 0.5
    left, right = np.where(turned, j[pair], i[pair]), np.where(turned, i[pair], j[pair])
    z = here[prompt, left] - here[prompt, right]
    logit = np.stack([z / 2.0, -z / 2.0, np.full(len(z), -np.inf if tie is None else tie)], axis=1)
    p = np.exp(logit - logit.max(axis=1, keepdims=True))
    said = (rng.random(len(z))[:, None] > np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)[:, :2]).sum(axis=1)
    return cw.Comparisons.from_codes(
        left, right, judge, said, items=np.arange(n_items), annotators=np.arange(n_judges), question=prompt,
        questions=np.arange(n_prompts),
    )  # fmt: skip


def fit(table: cw.Comparisons, method: str = "bradley-terry", **params: Any) -> cw.Ranking:
    return cw.aggregate(table, method, **params)


# -- errors by prompt --------------------------------------------------------------------------------------------------


def test_intervals_cover_what_many_prompts_would_give() -> None:
    limit = fit(prompts(6000, 1.0, seed=1), errors="independent").scores
    inside = {"auto": [], "independent": []}
    for seed in range(60):
        table = prompts(40, 1.0, seed=100 + seed)
        for errors, found in inside.items():
            ranking = fit(table, errors=errors)
            found.append(np.abs(ranking.scores - limit) < 1.96 * ranking.errors)
    assert 0.90 < np.mean(inside["auto"]) < 0.99
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
    [("bradley-terry", {}), ("crowd-bt", {"position": False}), ("crowd-bt", {}), ("position-bt", {})],
)
def test_they_are_those_of_a_bootstrap_of_prompts(method: str, params: dict[str, Any]) -> None:
    table = prompts(60, 0.8, seed=0, tie=-0.5)
    ranking = fit(table, method, **params)
    rng, draws = np.random.default_rng(0), []
    for _ in range(50):
        times = np.bincount(rng.integers(0, 60, 60), minlength=60)[table.question].astype(float)
        some = replace(table.select(times > 0), weight=times[times > 0])
        draws.append(fit(some, method, errors="independent", **params).scores)
    ratio = ranking.errors / np.std(draws, axis=0)
    assert 0.75 < ratio.mean() < 1.25
    assert np.allclose(ranking.draws.std(axis=0), ranking.errors, rtol=0.08)
    assert any("Errors allow for 60 questions" in note for note in ranking.notes)


def test_few_prompts_or_items_on_few_of_them() -> None:
    few = fit(prompts(12, 1.0, seed=0))
    assert few.n_groups == 0 and any("there are 12, and 20 are needed" in note for note in few.notes)
    with pytest.raises(InputError, match="cannot be clustered by question: there are 12"):
        fit(prompts(12, 1.0, seed=0), errors="clustered")
    with pytest.raises(InputError, match="needs groups of comparisons"):
        fit(replace(prompts(30, 1.0, seed=0), question=None, questions=None), errors="clustered")
    table = prompts(40, 1.0, seed=0)
    rare = table.select((table.question < 5) | ((table.left != 0) & (table.right != 0)))  # item 0 on five prompts
    ranking = fit(rare)
    assert ranking.independent_errors is not None and ranking.n_groups == 40
    assert ranking.errors[0] >= ranking.independent_errors[0] * (1.0 - 1e-9)
    nested = replace(table, left=table.left + 5 * table.question, right=table.right + 5 * table.question,
                     items=np.arange(200))  # fmt: skip
    with pytest.warns(UserWarning, match="parts"):
        assert any("most items are in fewer than 10" in note for note in fit(nested).notes)


def test_names_and_order_of_rows_do_not_matter() -> None:
    table = prompts(30, 1.0, seed=3)
    mixed = table.to_frame("polars").sample(fraction=1.0, shuffle=True, seed=1)
    again = cw.Comparisons.from_frame(mixed.with_columns(question=mixed["question"].cast(str) + "?"))
    one, other = fit(table, "crowd-bt"), fit(again, "crowd-bt")
    assert np.allclose(one.errors, other.errors, rtol=1e-6) and np.allclose(one.scores, other.scores, atol=1e-6)


def test_saved_rankings_keep_them(tmp_path: Any) -> None:
    ranking = fit(prompts(30, 1.0, seed=3))
    ranking.save(tmp_path / "r")
    again = cw.Ranking.load(tmp_path / "r")
    assert again.n_groups == 30 and np.array_equal(again.independent_errors, ranking.independent_errors)


# -- reliability and position at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tie", [None, -1.0])
def test_derivatives_of_both(tie: float | None) -> None:
    crowd = cw.simulate.comparisons(5, n_annotators=3, n_comparisons=300, honest=(8.0, 2.0), tie=tie, random_state=0)
    matches = Matches.of(crowd.comparisons)
    objective = MatchObjective(matches, Likelihood("both", tie is not None, 1.0, beta=(9.5, 0.5), spread=0.7))
    n = 5 + int(tie is not None) + 1
    found = maximise(objective, np.zeros(n), np.zeros(6), max_iter=50, tol=1e-8)
    v = np.append(found.x, found.theta) + 0.05 * np.random.default_rng(0).normal(size=n + 6)

    def gradient(at: Any) -> Any:
        d = objective.at(at[:n], at[n:]).derivatives(True)
        return np.append(d.g, d.g_theta)

    assert np.allclose(gradient(v), approx_fprime(v, lambda at: objective.at(at[:n], at[n:]).value, 1e-6), atol=1e-3)
    d = objective.at(v[:n], v[n:]).derivatives(True)
    H = np.block([[d.H, d.C], [d.C.T, np.diag(d.D)]])
    H[n + np.arange(3), n + 3 + np.arange(3)] = H[n + 3 + np.arange(3), n + np.arange(3)] = d.cross
    numeric = np.array([(gradient(v + 1e-5 * e) - gradient(v - 1e-5 * e)) / 2e-5 for e in np.eye(len(v))])
    assert np.allclose(H, -numeric, atol=1e-6)
    inverse = np.linalg.inv(schur(separated(d)[0], False))  # annotators eliminated two by two, or the whole inverse
    assert np.allclose(inverse, np.linalg.inv(H)[:n, :n], atol=1e-8)


@pytest.fixture(scope="module")
def leaning_crowd() -> Any:
    return cw.simulate.comparisons(
        10, n_annotators=20, n_comparisons=6000, honest=(8.0, 2.0), position=0.8, position_spread=0.5, random_state=0
    )


def test_both_are_recovered(leaning_crowd: Any) -> None:
    crowd = leaning_crowd
    error = {
        name: float(np.sqrt(((fit(crowd.comparisons, method, **params).scores - crowd.scores) ** 2).mean()))
        for name, method, params in (
            ("reliability", "crowd-bt", {"position": False}), ("position", "position-bt", {}), ("both", "crowd-bt", {}),
        )
    }  # fmt: skip
    assert error["both"] < 0.7 * min(error["reliability"], error["position"])
    ranking = fit(crowd.comparisons, "crowd-bt")
    assert np.corrcoef(ranking.position, crowd.position)[0, 1] > 0.85
    assert np.corrcoef(ranking.reliability, crowd.reliability)[0, 1] > 0.8
    z = np.abs(ranking.position - crowd.position) / ranking.position_error
    assert (z < 2.5).mean() > 0.9
    people = ranking.to_frame("annotators", kind="dict")
    assert {"reliability", "reliability_low", "position", "position_low", "first_rate"} <= set(people)


def test_positions_are_estimated_where_they_can_be(leaning_crowd: Any) -> None:
    table = leaning_crowd.comparisons
    assert positions_known(table)
    assert not positions_known(replace(table, placed=False))
    assert not positions_known(table.select(np.arange(table.n_answers) < 300))  # 15 for each annotator
    better_first = table.select(leaning_crowd.scores[table.left] > leaning_crowd.scores[table.right])
    assert not positions_known(better_first)  # order and scores say the same
    assert fit(better_first, "crowd-bt").position is None
    with pytest.raises(InputError, match="position=True needs to know which item was shown first"):
        fit(replace(table, placed=False), "crowd-bt", position=True)


def test_no_position_costs_little() -> None:
    crowd = cw.simulate.comparisons(12, n_annotators=10, n_comparisons=3000, honest=(8.0, 2.0), random_state=5)
    without, both = (fit(crowd.comparisons, "crowd-bt", position=p) for p in (False, "auto"))
    assert both.position is not None and np.abs(both.position).max() < 0.3
    assert np.abs(both.scores - without.scores).max() < 0.1
    assert (both.errors < 1.1 * without.errors).all()


# -- who leans to one side ---------------------------------------------------------------------------------------------


def test_a_judge_who_leans_is_named(leaning_crowd: Any) -> None:
    note = fit(leaning_crowd.comparisons, "bradley-terry").notes[-1]
    assert note.startswith("Leaning to one side: annotator 13 chose the item shown first in 75% of 312 decided answers")
    assert "and 4 more. The scores do not allow for it" in note
    assert "The scores allow for it." in fit(leaning_crowd.comparisons, "crowd-bt").notes[-1]
    assert not any("Leaning" in n for n in fit(replace(leaning_crowd.comparisons, placed=False)).notes)
    fair = cw.simulate.comparisons(10, n_annotators=20, n_comparisons=6000, random_state=1).comparisons
    assert not any("Leaning" in n for n in fit(fair).notes)
    scores = fit(fair).scores
    better_first = fair.select(scores[fair.left] > scores[fair.right] + 1.0)
    assert not any("Leaning" in n for n in fit(better_first).notes)  # they are right to choose the first
