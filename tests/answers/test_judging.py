"""Leaderboards as those who compare models need them: errors by prompt, reliability and position at once, judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from scipy.optimize import approx_fprime

import crowdwise as cw
from crowdwise.answers.comparisons_connectivity import positions_known
from crowdwise.answers.comparisons_judges import who_judges
from crowdwise.answers.comparisons_likelihood import Likelihood, MatchObjective
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import maximise, schur, separated
from crowdwise.errors import CrowdwiseError, InputError, InputWarning, ParameterError
from crowdwise.out_of_core import aggregate_files


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


# -- slopes and positions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tie", [None, -1.0])
def test_derivatives_of_both(tie: float | None) -> None:
    crowd = cw.simulate.comparisons(5, n_annotators=3, n_comparisons=300, honest=(8.0, 2.0), tie=tie, random_state=0)
    extra = np.random.default_rng(1).normal(size=(300, 2))
    matches = Matches.of(crowd.comparisons, covariates=extra)
    doubt = 0.1 * np.ones(300)
    model = Likelihood("judges", tie is not None, 1.0, slopes=(0.9, 0.5), spread=0.7, covariates=2, doubt=doubt)
    objective = MatchObjective(matches, model)
    n = 5 + int(tie is not None) + 3
    found = maximise(objective, np.zeros(n), np.ones(6), max_iter=50, tol=1e-8)
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


def test_both_are_recovered() -> None:
    """A judge of position 1.25 is seen as such, however much of the differences it sees; scores keep their scale."""
    slopes = np.array([1.0, 0.6, 0.3, 0.1])
    inside, spread, seen = {"scores": [], "slope": [], "position": []}, [], []
    for seed in range(40):
        crowd = cw.simulate.comparisons(
            10, n_annotators=4, n_comparisons=4000, slopes=slopes, position=1.25, random_state=seed
        )
        ranking = fit(crowd.comparisons, "judge-bt")
        true = {"scores": crowd.scores * slopes.mean(), "slope": slopes / slopes.mean(), "position": crowd.position}
        errors = {"scores": ranking.errors, "slope": ranking.slope_error, "position": ranking.position_error}
        for name, value in true.items():
            inside[name].append(np.abs(getattr(ranking, name) - value) < 1.96 * errors[name])
        spread.append(float(ranking.scores @ true["scores"] / (true["scores"] @ true["scores"])))
        seen.append(ranking.position)
    assert {name: 0.92 <= np.mean(held) <= 0.98 for name, held in inside.items()} == dict.fromkeys(inside, True)
    assert 0.97 <= np.mean(spread) <= 1.03 and np.abs(np.mean(seen, axis=0) - 1.25).max() < 0.03
    people = ranking.to_frame("annotators", kind="dict")
    assert {"slope", "slope_low", "position", "position_low", "first_rate", "leans"} <= set(people)


@pytest.mark.parametrize("more", [{}, {"tie": 0.0}, {"position": 0.8}])
def test_honest_judges_have_the_scores_of_bradley_terry(more: dict[str, Any]) -> None:
    spread = []
    for seed in range(30):
        crowd = cw.simulate.comparisons(10, n_annotators=5, n_comparisons=1200, random_state=seed, **more)
        ranking = fit(crowd.comparisons, "judge-bt")
        spread.append(float(ranking.scores @ crowd.scores / (crowd.scores @ crowd.scores)))
        assert ranking.converged and abs(np.abs(ranking.slope).mean() - 1.0) < 1e-9
    assert 0.97 <= np.mean(spread) <= 1.03


def test_annotators_who_reverse_have_slopes_below_0() -> None:
    crowd = cw.simulate.comparisons(20, n_annotators=10, n_comparisons=4000, slopes=[1.0] * 7 + [-1.0, -1.0, 0.0])
    ranking = fit(crowd.comparisons, "judge-bt")
    people = ranking.to_frame("annotators", kind="dict")
    assert (people["slope_high"] < 0).nonzero()[0].tolist() == [7, 8] and people["slope_low"][9] < 0 < people[
        "slope_high"
    ][9]
    assert crowd.tau(ranking) >= crowd.tau(fit(crowd.comparisons)) and ranking.scores @ crowd.scores > 0
    kinds = {finding.kind: finding.annotators for finding in cw.diagnose(crowd.comparisons).findings}
    assert set(kinds["reversed"]) == {7, 8} and kinds["guessing"] == (9,)


def test_predictions_allow_for_annotators() -> None:
    crowd = cw.simulate.comparisons(
        8, n_annotators=4, n_comparisons=4000, slopes=(1.8, 1.4, 0.6, 0.2), position=0.8, tie=-0.5
    )
    held = np.arange(4000) % 5 == 0
    test = crowd.comparisons.select(held)

    def loss(method: str) -> float:
        p = fit(crowd.comparisons.select(~held), method).predict(test)
        assert np.allclose(p.sum(axis=1), 1.0)
        return -float(np.log(p[np.arange(len(p)), test.outcome]).mean())

    losses = [loss(method) for method in ("judge-bt", "position-bt", "bradley-terry")]
    assert losses[0] < losses[1] < losses[2]
    ranking = fit(crowd.comparisons, "judge-bt")
    new = cw.Comparisons.from_records([(0, 1, "new", "left")], annotator="annotator")
    assert ranking.predict(new)[0, 0] > 0.0
    with pytest.raises(InputError, match="no score for 99"):
        ranking.predict(cw.Comparisons.from_records([(99, 1, "new", "left")]))


def test_positions_are_estimated_where_they_can_be(leaning_crowd: Any) -> None:
    table = leaning_crowd.comparisons
    assert positions_known(table).all()
    assert not positions_known(replace(table, placed=False)).any()
    assert not positions_known(table.select(np.arange(table.n_answers) % 40 == 0)).any()  # 8 for each annotator
    better_first = table.select(leaning_crowd.scores[table.left] > leaning_crowd.scores[table.right])
    assert not positions_known(better_first).any()  # order and scores say the same
    one_order = table.select((table.annotator != 3) | (table.left < table.right))
    assert (~positions_known(one_order)).nonzero()[0].tolist() == [3]
    mixed = fit(one_order, "judge-bt")
    assert np.isnan(mixed.position).nonzero()[0].tolist() == [3]
    assert np.isfinite(mixed.slope).all() and np.isfinite(mixed.errors).all()
    assert fit(better_first, "judge-bt").position is None
    with pytest.raises(InputError, match="position=True needs to know which item was shown first"):
        fit(replace(table, placed=False), "judge-bt", position=True)


@pytest.mark.parametrize("method", ["bradley-terry", "judge-bt", "crowd-bt", "position-bt"])
def test_an_order_that_depends_on_the_items_is_pointed_out(method: str) -> None:
    """The new model is always shown first: whether it is better, or its place, cannot be told."""
    rng, said = np.random.default_rng(0), "of a preference for the first place cannot be told from scores"
    rows = [("new", "old", f"j{n % 3}", "new" if won else "old") for n, won in enumerate(rng.random(60) < 0.7)]
    assert f"100% {said}" in " ".join(fit(cw.Comparisons.from_records(rows), method).notes)
    both = [row if n % 2 else (row[1], row[0], *row[2:]) for n, row in enumerate(rows)]
    assert said not in " ".join(fit(cw.Comparisons.from_records(both), method).notes)
    if method != "position-bt":
        assert said not in " ".join(fit(cw.Comparisons.from_records(rows, placed=False), method).notes)


def test_no_position_costs_little() -> None:
    crowd = cw.simulate.comparisons(12, n_annotators=10, n_comparisons=3000, honest=(8.0, 2.0), random_state=5)
    without, both = (fit(crowd.comparisons, "judge-bt", position=p) for p in (False, "auto"))
    assert both.position is not None and np.abs(both.position).max() < 0.3
    assert np.abs(both.scores - without.scores).max() < 0.1
    assert (both.errors < 1.1 * without.errors).all()


# -- who leans to one side ---------------------------------------------------------------------------------------------


def test_a_judge_who_leans_is_named(leaning_crowd: Any) -> None:
    note = fit(leaning_crowd.comparisons, "bradley-terry").notes[-1]
    assert note.startswith("Leaning to one side: annotator 13 chose the item shown first in 75% of 312 decided answers")
    assert "and 4 more. The scores do not allow for it" in note
    assert "The scores allow for it." in fit(leaning_crowd.comparisons, "judge-bt").notes[-1]
    assert not any("Leaning" in n for n in fit(replace(leaning_crowd.comparisons, placed=False)).notes)
    fair = cw.simulate.comparisons(10, n_annotators=20, n_comparisons=6000, random_state=1).comparisons
    assert not any("Leaning" in n for n in fit(fair).notes)
    scores = fit(fair).scores
    better_first = fair.select(scores[fair.left] > scores[fair.right] + 1.0)
    assert not any("Leaning" in n for n in fit(better_first).notes)  # they are right to choose the first


# -- scales, matrices, figures -----------------------------------------------------------------------------------------


def test_scales_are_one_score() -> None:
    ranking = fit(prompts(30, 0.5, seed=0))
    elo, chance = (ranking.on_scale(scale, kind="dict", table="items") for scale in ("elo", "probability"))
    assert (
        np.allclose(elo["elo"], 1000.0 + 400.0 * ranking.scores / np.log(10.0)) and abs(elo["elo"].mean() - 1000) < 1e-9
    )
    assert np.allclose(chance["probability"], 1.0 / (1.0 + np.exp(-ranking.scores)))
    for rows, name in ((elo, "elo"), (chance, "probability")):
        assert (rows[f"{name}_low"] < rows[name]).all() and (rows[name] < rows[f"{name}_high"]).all()
    i, j = 4, 0
    assert np.isclose(ranking.probability(i, j), 1.0 / (1.0 + 10.0 ** ((elo["elo"][j] - elo["elo"][i]) / 400.0)))
    with pytest.raises(ParameterError, match="scale='points'"):
        ranking.on_scale("points")


def test_win_rates_are_counted() -> None:
    rows = [("a", "b", "m", "left"), ("b", "a", "m", "left"), ("a", "b", "n", "tie"), ("a", "b", "n", "left"),
            ("b", "c", "n", "right")]  # fmt: skip
    table = cw.Comparisons.from_records(rows)
    rates = table.win_rates("dict")
    assert rates["item"].tolist() == ["a", "b", "c"]
    found = np.stack([rates[name] for name in "abc"], axis=1)
    assert found[0, 1] == 2.5 / 4.0 and found[1, 0] == 1.5 / 4.0 and found[2, 1] == 1.0 and found[1, 2] == 0.0
    assert np.isnan(found[0, 2]) and np.isnan(np.diag(found)).all()
    matrix = fit(table).win_probabilities("dict")
    assert matrix["item"].tolist() == ["c", "a", "b"]
    assert np.isclose(matrix["a"][0] + matrix["c"][1], 1.0) and matrix["a"][1] == 0.5


def test_a_leaderboard_is_drawn(tmp_path: Any) -> None:
    ranking = fit(prompts(30, 0.5, seed=0))
    named = replace(ranking, items=np.array(["a & b", "<c>", "d", "e", "a name that is much too long to be shown"]))
    figure = named.plot(tmp_path / "board.svg", scale="elo", limit=4)
    svg = (tmp_path / "board.svg").read_text(encoding="utf-8")
    assert svg == figure.svg == figure._repr_svg_()
    tree = ElementTree.fromstring(svg)
    texts = ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "a name that is much too long …" in texts and "<c>" in texts and "1 more items are not shown" in texts
    circles = [float(node.get("cx")) for node in tree.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles == sorted(circles, reverse=True) and len(circles) == 4
    named.plot(tmp_path / "board.png")
    assert (tmp_path / "board.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ParameterError, match=r"\.svg or \.png"):
        named.plot(tmp_path / "board.pdf")


# -- judges and people -------------------------------------------------------------------------------------------------


def court(seed: int = 0, bias: float = 1.0) -> cw.Comparisons:
    """People who judge by quality, and a judge, gpt-9, who also favours the first, the longer and its own answers."""
    rng = np.random.default_rng(seed)
    names = np.array(["gpt-9", "owl", "rook", "wren"])
    quality = np.array([0.5, 0.8, -0.4, -0.9])
    rows = []
    for prompt in range(150):
        length = np.exp(rng.normal(5.0, 0.6, 4))
        for who in ("ann", "bob", "gpt-9-judge"):
            for i, j in zip(*np.triu_indices(4, 1), strict=True):
                a, b = (i, j) if rng.random() < 0.5 else (j, i)
                z = 1.5 * (quality[a] - quality[b])
                if who == "gpt-9-judge":
                    z += bias * (0.8 + 0.7 * np.log2(length[a] / length[b]) + 0.9 * (int(a == 0) - int(b == 0)))
                won = "left" if rng.random() < 1.0 / (1.0 + np.exp(-z)) else "right"
                rows.append((names[a], names[b], who, won, prompt, length[a], length[b]))
    columns = ("left", "right", "judge", "outcome", "prompt", "length_a", "length_b")
    return cw.Comparisons.from_frame(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


def test_biases_of_a_judge_are_found() -> None:
    table = cw.judge_table(court(), kind="dict")
    assert table["annotator"].tolist() == ["gpt-9-judge", "people"]
    for name, true in (("position", 0.8), ("verbosity", 0.7), ("self_preference", 0.9)):
        z = []
        for seed in range(4):
            found = table if seed == 0 else cw.judge_table(court(seed), kind="dict")
            z.append((found[name][0] - true) / ((found[f"{name}_high"][0] - found[name][0]) / 1.96))
        assert np.abs(z).max() < 3.0 and abs(np.mean(z)) < 1.5
        assert table[f"{name}_low"][0] > 0.2
    assert table["position_low"][1] < 0.0 < table["position_high"][1]
    assert table["verbosity_low"][1] < 0.0 < table["verbosity_high"][1]
    assert np.isnan(table["self_preference"][1])
    assert table["pairs"].tolist() == [1800, 900]
    assert (table["agreement_low"] > 0.6).all() and (table["agreement_high"] < 0.75).all()
    fair = cw.judge_table(court(seed=1, bias=0.0), ["gpt-9-judge"], kind="dict")
    for name in ("position", "verbosity", "self_preference"):
        assert abs(fair[name][0]) < 3.0 * (fair[f"{name}_high"][0] - fair[name][0]) / 1.96


def test_what_the_columns_do_not_allow_is_empty() -> None:
    table = replace(court(), left_length=None, right_length=None, placed=False)
    row = {name: values[0] for name, values in cw.judge_table(table, own={}, kind="dict").items()}
    assert all(np.isnan(row[name]) for name in ("verbosity", "self_preference", "position", "first_rate", "flip_rate"))
    alone = cw.judge_table(table.only(["gpt-9-judge"]), kind="dict")
    assert alone["annotator"].tolist() == ["gpt-9-judge"] and np.isnan(alone["agreement"][0]) and alone["pairs"][0] == 0
    named = cw.judge_table(court(), own={"gpt-9-judge": ["owl", "gpt-9"]}, kind="dict")
    assert np.isfinite(named["self_preference"][0])
    with pytest.raises(InputError, match="No annotator has the name of a language model"):
        cw.judge_table(table.only(["ann", "bob"]))
    with pytest.raises(InputError, match="There is no annotator 'zoe'"):
        cw.judge_table(table, ["zoe"])
    with pytest.raises(InputError, match="own names 'raven'"):
        cw.judge_table(table, own={"gpt-9-judge": "raven"})


def test_both_orders_show_flips() -> None:
    rows = [("a", "b", "llm", "left", 1), ("b", "a", "llm", "left", 1), ("a", "b", "llm", "left", 2),
            ("b", "a", "llm", "right", 2), ("a", "b", "llm", "tie", 3), ("b", "a", "llm", "left", 3)]  # fmt: skip
    columns = dict(
        zip(("left", "right", "judge", "outcome", "prompt"), map(list, zip(*rows, strict=True)), strict=True)
    )
    assert cw.judge_table(cw.Comparisons.from_frame(columns), kind="dict")["flip_rate"].tolist() == [0.5]


def test_lengths_are_read_kept_and_checked() -> None:
    table = court()
    assert table.left_length is not None and table[:2].left_length is not None
    assert table.only(["ann"]).right_length.shape == (900,)
    again = cw.Comparisons.from_frame(table.to_frame("polars"))
    assert np.array_equal(again.left_length, table.left_length)
    with pytest.raises(InputError, match="a number of 0 or more"):
        cw.Comparisons.from_codes([0], [1], [0], [0], items=["a", "b"], annotators=["m"], left_length=[-1.0])


# -- who judges, covariates, panels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "is_judge"),
    [(name, True) for name in ("gpt-4", "pandalm-7b", "prometheus-2", "auto-j", "nova-pro", "kimi-k2", "glm-4.5",
                               "yi-large", "claude-3", "o3-mini", "ChatGPT-0301|CoT", "gpt4_pair", "llm:mini",
                               "sonnet-4", "claude opus", "Nova Pro", "claude instant", "Claude 3")]
    + [(name, False) for name in ("claude", "Gemma", "nova", "philip", "yi", "Claude Dupont", "gemma.smith",
                                  "expert_17", "author_2", "ann")],
)  # fmt: skip
def test_who_is_taken_for_a_judge(name: str, is_judge: bool) -> None:
    table = cw.Comparisons.from_records(
        [("a", "b", name, "left"), ("a", "b", "gpt-9", "left"), ("a", "b", "ann x", "left")]
    )
    with pytest.warns(UserWarning, match="Taken for judges, by their names"):
        judges, people = who_judges(table, None)
    at = table.annotators.tolist().index(name)
    assert bool(judges[at]) is is_judge and bool(people[at]) is not is_judge


def test_judges_and_people_are_named() -> None:
    rows = [("a", "b", who, "left", kind) for who, kind in (("x", "human"), ("y", "LLM"), ("z", "expert"))]
    frame = dict(
        zip(("left", "right", "annotator", "outcome", "kind"), map(list, zip(*rows, strict=True)), strict=True)
    )
    table = cw.Comparisons.from_frame(frame, keep="kind")
    for named in ({"judges": ["y"]}, {"judges": None, "people": ["x", "z"]}, {"judges": None, "column": "kind"}):
        judges, people = who_judges(table, **named)
        assert judges.tolist() == [False, True, False] and (people == ~judges).all()
    judges, people = who_judges(table, ["y"], ["x"])
    assert people.tolist() == [True, False, False]
    with pytest.raises(InputError, match="Both a judge and a person: 'x'"):
        who_judges(table, ["x"], ["x"])
    with pytest.raises(InputError, match="No annotator has the name of a language model"):
        who_judges(table, None)
    with pytest.raises(InputError, match="no column 'sort'"):
        who_judges(table, None, column="sort")


def with_lengths(seed: int, n: int = 1500) -> tuple[Any, dict[str, Any]]:
    """Six models; an answer twice as long has log odds of 0.5 more, one in markdown 0.8."""
    rng, scores = np.random.default_rng(seed), np.linspace(-1.0, 1.0, 6)
    a = rng.integers(0, 6, n)
    b = (a + rng.integers(1, 6, n)) % 6
    tokens = np.exp(rng.normal(5 + 0.4 * scores[np.stack([a, b])], 0.5))
    style = rng.random((2, n)) < 0.3
    z = scores[a] - scores[b] + 0.5 * np.log2(tokens[0] / tokens[1]) + 0.8 * (style[0] * 1.0 - style[1])
    words = np.array(["plain", "markdown"], dtype=object)
    frame = {
        "left": a, "right": b, "winner": np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "left", "right"),
        "judge": rng.integers(0, 3, n), "prompt": rng.integers(0, 60, n), "size_a": tokens[0], "size_b": tokens[1],
        "tokens_a": tokens[0], "tokens_b": tokens[1], "style_a": words[style[0] * 1], "style_b": words[style[1] * 1],
    }  # fmt: skip
    return scores, frame


def test_effects_of_covariates_are_recovered() -> None:
    inside, held = [], []
    for seed in range(25):
        scores, frame = with_lengths(seed)
        ranking = fit(
            cw.Comparisons.from_frame(frame, keep=["tokens", "style"]), "judge-bt", control=["tokens", "style"]
        )
        effects = ranking.to_frame("effects", kind="dict")
        assert effects["effect"].tolist() == ["tokens", "style=markdown"]
        inside.append((effects["log_odds_low"] < [0.5, 0.8]) & (effects["log_odds_high"] > [0.5, 0.8]))
        items = ranking.to_frame("items", kind="dict")
        held.append((items["low"] < scores) & (scores < items["high"]))
    assert np.mean(inside) >= 0.86 and 0.9 <= np.mean(held) <= 0.99
    table = cw.Comparisons.from_frame(frame, keep="tokens,style,size")
    plain = fit(table, "judge-bt")
    assert np.abs(plain.scores).sum() > np.abs(ranking.scores).sum()  # better models write more here
    each = fit(table, "judge-bt", control="tokens", control_by_judge=True).to_frame("effects", kind="dict")
    assert each["effect"].tolist() == [f"tokens, {n}" for n in range(3)]
    raw = fit(table, "judge-bt", control="size").to_frame("effects", kind="dict")
    assert raw["log_odds"][0] < 0.02  # for one token more
    with pytest.raises(InputError, match="no column for the covariate 'mood'"):
        fit(table, "judge-bt", control="mood")
    assert len(plain.to_frame("effects")) == 0


def test_two_items_an_anchor_and_what_to_ask_next() -> None:
    crowd = cw.simulate.comparisons(6, n_annotators=3, n_comparisons=300, random_state=0)
    ranking = fit(crowd.comparisons, "judge-bt")
    order = ranking.leaderboard["item"].to_list()
    first = ranking.next_pairs(3, kind="dict")
    assert first["gain"][0] >= first["gain"][-1] > 0 and (first["sure"] < 0.98).all()
    a, b = first["left"][0], first["right"][0]
    far, near = ranking.versus(order[0], order[-1]), ranking.versus(a, b)
    assert far["low"] > 0.0 and far["more"] == 0.0 and far["sure"] > 0.99
    assert near["difference"] == pytest.approx(-ranking.versus(b, a)["difference"])
    assert near["low"] < 0.0 < near["high"] and near["more"] >= 1.0
    few = [((a, b) if n % 2 else (b, a)) + (n % 3, a if n % 100 < 100 * near["probability"] else b) for n in range(100)]
    more = cw.Comparisons.from_records(few * max(1, round(2 * near["more"] / 100)))
    names = ["left", "right", "annotator", "outcome"]
    both = [table.to_frame("polars").select(names) for table in (crowd.comparisons, more)]
    table = cw.Comparisons.from_frame(both[0].vstack(both[1]))
    assert fit(table, "judge-bt").versus(a, b)["more"] == 0.0
    elo = ranking.on_scale("elo", anchor={order[-1]: 1000}, kind="dict")
    assert elo["elo"][-1] == pytest.approx(1000) and elo["elo"][0] > 1100 and elo["elo_low"][-1] < 1000
    with pytest.raises(ParameterError, match="An anchor is one item"):
        ranking.on_scale("probability", anchor={order[0]: 1})


def test_verdicts_as_votes_and_kappa() -> None:
    rows = [("a", "b", "x", "left", 1), ("b", "a", "x", "right", 1), ("b", "a", "y", "left", 1),
            ("a", "b", "y", "tie", 2),
            ("a", "b", "x", "left", 2), ("b", "a", "x", "left", 2)]  # fmt: skip
    names = ("left", "right", "annotator", "outcome", "question")
    table = cw.Comparisons.from_frame(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    votes = table.votes().to_frame("dict")
    said = {(i, m): v for i, m, v in zip(votes["item"], votes["annotator"], votes["label"], strict=True)}
    assert said == {
        ("1: a | b", "x"): "first",
        ("1: a | b", "y"): "second",
        ("2: a | b", "x"): "tie",
        ("2: a | b", "y"): "tie",
    }
    crowd = prompts(40, 1.0, seed=0).votes()
    assert cw.trust.cohen_kappa(prompts(40, 1.0, seed=0), 0, 1).value == pytest.approx(
        cw.trust.cohen_kappa(crowd, 0, 1).value
    )


def test_panels() -> None:
    table = court()
    panels = cw.judge_panels(table, people=[n for n in table.annotators.tolist() if "gpt" not in n], kind="dict")
    assert panels["best"].sum() == 1 and (np.diff(panels["agreement"]) <= 0).all() and panels["units"].min() >= 20
    found = cw.judge_table(table, people=[n for n in table.annotators.tolist() if "gpt" not in n], kind="dict")
    assert found["kappa_low"][0] < found["kappa"][0] < found["kappa_high"][0]


# -- graded verdicts and probabilities ---------------------------------------------------------------------------------


def verdicts(words: list[Any], name: str = "winner", **more: Any) -> cw.Comparisons:
    n = len(words)
    return cw.Comparisons.from_frame({"left": ["a"] * n, "right": ["b"] * n, "judge": range(n), name: words}, **more)


def test_graded_verdicts_are_read() -> None:
    """Grades lie at equal distances between a tie and a certain verdict; the strongest is a plain one."""
    for words in (["A>>B", "A>B", "B>A", "A=B"], ["[[A>>B]]", "[[A>B]]", "[[B>A]]", "[[A=B]]"],
                  ["model_a is much better", "A slightly better", "response_b is slightly better", "tie"]):  # fmt: skip
        table = verdicts(words)
        assert table.outcome.tolist() == [0, 0, 1, 2]
        assert np.array_equal(table.left_probability, [np.nan, 0.75, 0.25, np.nan], equal_nan=True)
    table = verdicts([1.23, 2, 1.5, 1], "preference", outcomes="1=left,2=right")
    assert table.outcome.tolist() == [0, 1, 2, 0]
    assert np.allclose(table.left_probability, [0.77, np.nan, np.nan, np.nan], equal_nan=True)
    assert verdicts(["left", "b", "tie"]).left_probability is None
    with pytest.raises(InputError, match="expected one of the outcomes that were given"):
        verdicts([1.5, 3], outcomes="1=left,2=right")


def test_probabilities_of_verdicts_are_read() -> None:
    table = verdicts([0.2, 0.9, 0.5], "probability_a")
    assert table.outcome.tolist() == [1, 0, 2] and table.placed
    names = {"left": ["a", "a"], "right": ["b", "b"], "judge": ["m", "n"]}
    logs = cw.Comparisons.from_frame(names | {"logprob_a": [-0.1, -3.0], "logprob_b": [-2.4, -0.05]})
    assert np.allclose(logs.left_probability, 1 / (1 + np.exp([-2.3, 2.95])))
    both = cw.Comparisons.from_frame(names | {"probability_a": [0.6, 0.1], "probability_b": [0.2, 0.7]})
    assert np.allclose(both.left_probability, [0.7, 0.2])  # what is missing to 1 is a tie
    with pytest.warns(UserWarning, match="probability of each verdict"):
        sure = cw.Comparisons.from_frame(names | {"winner": ["a", "b"], "probability": [0.9, 0.8]})
    assert np.allclose(sure.left_probability, [0.9, 0.2])
    again = cw.Comparisons.from_frame(sure.to_frame("polars"))
    assert np.array_equal(again.left_probability, sure.left_probability)
    with pytest.raises(InputError, match="a probability, from 0 to 1"):
        verdicts([0.2, 1.9], "probability_a")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_battles_of_named_models_are_left_out_aloud(tmp_path: Path, suffix: str) -> None:
    rows = {
        "question_id": range(6), "model_a": list("xyxyxy"), "model_b": list("yxyxyx"), "judge": list("mnmnmn"),
        "winner": ["model_a"] * 6, "anony": [True, False, True, True, False, True],
    }  # fmt: skip
    file = tmp_path / f"battles.{suffix}"
    getattr(pl.DataFrame(rows), f"write_{suffix}")(file)
    with pytest.warns(UserWarning, match="Left out 2 of 6 rows: battles that were not anonymous"):
        table = cw.read_comparisons(file)
    assert table.n_answers == 4
    assert cw.Comparisons.from_frame({**rows, "anony": [True] * 6}).n_answers == 6


def test_a_probability_counts_as_so_many_verdicts() -> None:
    """Of ten verdicts seven for the left one are as much as ten with a probability of .7."""
    rng = np.random.default_rng(0)
    rows = []
    for a, b in (("x", "y"), ("y", "z"), ("x", "z")):
        rows += [(a, b, "m", float(p)) for p in rng.choice([0.3, 0.7, 0.9], 20)]
    soft = cw.Comparisons.from_frame(
        dict(zip(("left", "right", "judge", "left_probability"), zip(*rows, strict=True), strict=True))
    )
    hard = [(a, b, m, "left" if n < 10 * p else "right") for a, b, m, p in rows for n in range(10)]
    one = fit(soft).scores
    many = fit(cw.Comparisons.from_records([(*row, 0.1) for row in hard]))
    assert np.allclose(one, many.scores, atol=1e-6)


def sure_judges(seed: int, n: int = 3000) -> tuple[Any, cw.Comparisons]:
    """Judges who say how probable the left one is, by log-odds that are too large, right, or too small."""
    rng, scores = np.random.default_rng(seed), np.linspace(-1.0, 1.0, 6)
    a = rng.integers(0, 6, n)
    b, m = (a + rng.integers(1, 6, n)) % 6, rng.integers(0, 3, n)
    z = np.array([2.0, 1.0, 0.5])[m] * (scores[a] - scores[b] + rng.normal(0, 1.0, n))
    names, p = ["bold", "fair", "shy"], 1 / (1 + np.exp(-z))
    return scores, cw.Comparisons.from_codes(
        a, b, m, (z < 0).astype(int), items=range(6), annotators=names, left_probability=p
    )


def test_judges_have_a_scale_of_probabilities() -> None:
    scores, table = sure_judges(0)
    ranking = fit(table, "judge-bt")
    bold, fair, shy = ranking.slope.tolist()
    assert bold > 1.3 * fair > 1.3 * 1.3 * shy
    assert np.corrcoef(ranking.scores, scores)[0, 1] > 0.99
    hard = replace(table, left_probability=None)
    error = [np.abs(r.scores / r.scores.std() - scores / scores.std()).mean() for r in (ranking, fit(hard, "judge-bt"))]
    assert error[0] < error[1] * 1.1


# -- scores and pass rates ---------------------------------------------------------------------------------------------

SCALES = (1.4, 1.0, 0.6)


def scored(seed: int, n_prompts: int, missing: float = 0.0) -> tuple[Any, dict[str, Any]]:
    """Three judges with levels and scales of their own on five models; prompts differ in difficulty."""
    rng, s = np.random.default_rng(seed), np.linspace(-1.0, 1.0, 5)
    hard, here = rng.normal(0, 1.5, n_prompts), s + rng.standard_normal((n_prompts, 5))
    p, i, j = (x.ravel() for x in np.meshgrid(np.arange(n_prompts), np.arange(5), np.arange(3), indexing="ij"))
    y = 5 + 0.7 * j + np.array(SCALES)[j] * (hard[p] + here[p, i]) + 0.8 * rng.standard_normal(len(p))
    kept = rng.random(len(p)) >= missing
    names = [f"m{k}" for k in range(5)]
    return s, {
        "model": [names[k] for k in i[kept]],
        "prompt": p[kept],
        "judge": [f"j{k}" for k in j[kept]],
        "score": y[kept],
    }


@pytest.mark.parametrize(("n_prompts", "missing"), [(5, 0.0), (10, 0.3), (20, 0.0)])
def test_scores_make_a_board_with_scales_of_judges(n_prompts: int, missing: float) -> None:
    inside, scale, spread = [], [], []
    for seed in range(30):
        s, frame = scored(seed, n_prompts, missing)
        board = cw.score_board(frame)
        rows, judges = board.to_frame("items", kind="dict"), board.to_frame("annotators", kind="dict")
        mean = rows["score"].mean()
        inside.append((rows["low"] - mean <= s) & (s <= rows["high"] - mean))
        scale.append((judges["slope_low"] <= SCALES) & (judges["slope_high"] >= SCALES))
        spread.append((rows["score"] - mean) @ s / (s @ s))
    assert 0.88 <= np.mean(inside) <= 0.995 and np.mean(scale) >= 0.87 and 0.9 < np.mean(spread) < 1.1
    assert board.unit == "points" and board.n_groups == n_prompts and np.allclose(board.slope.mean(), 1.0)
    two = board.versus("m4", "m0")
    assert two["low"] > 0.0 and two["more"] == 0.0 and "probability" not in two
    with pytest.raises(InputError, match="scores are in points"):
        board.on_scale("elo")
    with pytest.raises(InputError, match="scores are in points"):
        board.probability("m4", "m0")


def test_few_prompts_of_scores_have_a_caveat(tmp_path: Any) -> None:
    _, frame = scored(0, 4)
    board = cw.score_board(frame)
    assert "there are 4 prompts, and 5 are needed" in board.caveat and "caveat" in board.leaderboard.columns
    board.save(tmp_path / "board")
    again = cw.Ranking.load(tmp_path / "board")
    assert again.unit == "points" and np.array_equal(again.scores, board.scores)
    assert "points" in board.plot().svg and "log odds" not in board.plot().svg


def graded(seed: int, n_prompts: int = 60) -> tuple[Any, dict[Any, str], dict[str, Any]]:
    """Three models that pass in 80, 70 and 50 %; judges who let bad answers of the last one pass."""
    rng, rows, truth = np.random.default_rng(seed), [], {}
    for i, rate in enumerate((0.8, 0.7, 0.5)):
        for p in range(n_prompts):
            good = rng.random() < rate
            truth[f"m{i}", p] = "pass" if good else "fail"
            fooled = good or (i == 2 and rng.random() < 0.5)
            rows += [(f"m{i}", p, f"j{k}", "pass" if fooled == (rng.random() < 0.9) else "fail") for k in range(3)]
    shares = np.array([np.mean([truth[f"m{i}", p] == "pass" for p in range(n_prompts)]) for i in range(3)])
    return shares, truth, dict(zip(("model", "prompt", "judge", "verdict"), zip(*rows, strict=True), strict=True))


def test_pass_and_fail_make_pass_rates() -> None:
    fooled, right = [], []
    for seed in range(6):
        shares, truth, frame = graded(seed)
        board = cw.score_board(frame)
        rows = board.to_frame("items", kind="dict")
        assert board.unit == "pass rate" and np.isfinite(rows["error"]).all()
        assert ((rows["low"][:2] <= shares[:2]) & (shares[:2] <= rows["high"][:2])).all()
        fooled.append(rows["score"][2] - shares[2])
        drawn = np.random.default_rng(seed).permutation(len(truth))[:90]
        keys = list(truth)
        gold = cw.score_board(frame, gold={keys[k]: truth[keys[k]] for k in drawn}).to_frame("items", kind="dict")
        right.append((gold["low"] <= shares) & (shares <= gold["high"]))
    assert np.mean(fooled) > 0.1 and np.mean(right) >= 0.85  # gold takes off what judges let pass
    with pytest.raises(ParameterError, match="gold is for pass and fail"):
        cw.score_board(scored(0, 5)[1], gold={("m0", 0): "pass"})
    with pytest.raises(InputError, match="no column of the score"):
        cw.score_board({"model": ["a", "b"], "prompt": [1, 1]})


def panel_of_judges(seed: int, K: int = 2, sure: Sequence[float] = (3.0, 1.0, 0.4), items: int = 300) -> Any:
    """Probabilities of six judges, some too sure and some too shy, with a column for each class; and the truth."""
    rng, rows = np.random.default_rng(seed), []
    truth = rng.integers(0, K, items)
    for j, skill in enumerate((0.8, 1.2, 1.5, 1.0, 0.5, 1.3)):
        x = skill * np.eye(K)[truth] + rng.standard_normal((items, K))
        p = np.exp(sure[j % len(sure)] * skill * x)
        p /= p.sum(axis=1, keepdims=True)
        rows += [(n, f"j{j}", *line) for n, line in enumerate(p.tolist())]
    names = [f"p_{name}" for name in "abcdef"[:K]]
    return pl.DataFrame(rows, schema=["item", "judge", *names], orient="row"), np.array(list("abcdef"))[truth]


def log_loss(votes: cw.Votes, truth: Any, method: str) -> tuple[float, float]:
    found = cw.aggregate(votes, method)
    q = found.posterior[np.arange(len(truth)), np.searchsorted(found.classes.astype(str), truth)]
    return float(-np.log(np.maximum(q, 1e-12)).mean()), float((found.labels == truth).mean())


@pytest.mark.parametrize(("K", "sure"), [(2, (3.0, 1.0, 0.4)), (2, (4.0,)), (2, (0.3,)), (4, (3.0, 1.0, 0.4))])
def test_probabilities_of_judges_weigh_as_log_odds(K: int, sure: tuple[float, ...]) -> None:
    """Judges too sure, right or too shy: better than their labels, by every method."""
    found = {"labels": [], "probabilities": []}
    for seed in range(2):
        frame, truth = panel_of_judges(seed, K, sure)
        names = np.array([column[2:] for column in frame.columns[2:]])
        best = pl.Series(names[frame.drop("item", "judge").to_numpy().argmax(axis=1)])
        for name, votes in (
            ("labels", cw.Votes.from_frame(frame.select("item", "judge", label=best))),
            ("probabilities", cw.Votes.from_frame(frame, probability="p")),
        ):
            found[name].append([log_loss(votes, truth, method) for method in ("auto", "dawid-skene", "majority")])
    labels, probabilities = (np.mean(found[name], axis=0) for name in ("labels", "probabilities"))
    assert (probabilities[:, 0] < 0.9 * labels[:, 0]).all() and (probabilities[:, 1] > labels[:, 1] + 0.015).all()


def test_log_odds_are_on_the_scale_of_their_judge() -> None:
    frame, _ = panel_of_judges(0)
    votes = cw.Votes.from_frame(frame, probability="p")
    for m in range(6):  # as many votes of equal weight as have their information
        w = votes.weight[votes.annotator == m]
        assert w.sum() == pytest.approx((w**2).sum())
    logit = pl.col("p_a").log() - pl.col("p_b").log()
    many = panel_of_judges(0, items=12_000)[0]  # so that nothing is cut off
    bold = many.with_columns(p_a=1 / (1 + (-0.5 * logit).exp()), p_b=1 / (1 + (0.5 * logit).exp()))
    one, other = (cw.Votes.from_frame(f.filter(judge="j1"), probability="p").weight for f in (many, bold))
    assert np.abs(one - other).max() < 0.2 and np.corrcoef(one, other)[0, 1] > 0.999
    again = cw.Votes.from_frame(frame.with_columns(pl.col("^p_.*$").log()), probability="p")
    assert np.allclose(again.weight, votes.weight)


def test_what_is_no_table_of_probabilities() -> None:
    long = pl.DataFrame({"item": ["a", "b"], "judge": ["m", "m"], "label": ["yes", "no"], "p": [0.8, 0.3]})
    found = cw.Votes.from_frame(long, probability="p").to_frame("dict")
    assert found["label"].tolist() == ["yes", "yes"] and found["weight"][0] > found["weight"][1] > 0.0
    sure = cw.Votes.from_frame(long.with_columns(p=pl.Series([0.5, 0.9])), probability="p")
    assert sure.n_votes == 2 and sure.weight.min() < 1e-5 < sure.weight.max()  # a half says nothing, no item is lost
    for frame, error in (
        (long.with_columns(p=pl.Series([0.5, 1.2])), "The largest probability is 1.2"),
        (long.with_columns(p=pl.Series([0.5, None])), "The probability in row 1"),
        (pl.concat([long, long]), "Class 'yes' of item 'a' by annotator 'm' has several probabilities"),
        (long.with_columns(weight=2.0), "Column 'weight' holds weights"),
    ):
        with pytest.raises(CrowdwiseError, match=error):
            cw.Votes.from_frame(frame, probability="p")
    with pytest.raises(InputError, match="There is no column 'chance'"):
        cw.Votes.from_frame(long, probability="chance")


@pytest.mark.parametrize("method", ["auto", "dawid-skene"])
def test_probabilities_in_parts_are_those_in_memory(method: str, tmp_path: Path) -> None:
    frame, _ = panel_of_judges(1, 3, items=120)
    whole = cw.aggregate(cw.Votes.from_frame(frame, probability="p"), method)
    for name, write in (("votes.csv", frame.write_csv), ("votes.parquet", frame.write_parquet)):
        write(tmp_path / name)
        aggregate_files(tmp_path / name, tmp_path / "out.parquet", method, annotator="judge", probability="p",
                        rows_per_part=300, probabilities=True)  # fmt: skip
        out = pl.read_parquet(tmp_path / "out.parquet").sort("item")
        assert np.abs(out.select("^p\\(.*$").to_numpy() - whole.posterior).max() < 1e-9
    with pytest.raises(ParameterError, match="holds weights"):
        frame.with_columns(weight=1.0).write_csv(tmp_path / "votes.csv")
        aggregate_files(tmp_path / "votes.csv", tmp_path / "o.csv", method, annotator="judge", probability="p")


def test_judges_beside_people_in_votes_and_with_probabilities() -> None:
    rng, rows = np.random.default_rng(0), []
    good = rng.random(200) < 0.6
    for who, skill in (("ann", 0.9), ("bob", 0.85), ("gpt-x", 0.88), ("gpt-y", 0.6)):
        rows += [(n, who, "pass" if good[n] == (rng.random() < skill) else "fail") for n in range(200)]
    votes = cw.Votes.from_records(rows)
    table = cw.judge_table(votes, people=["ann", "bob"], kind="dict")
    assert table["annotator"].tolist() == ["gpt-x", "gpt-y"] and (table["kappa_low"] < table["kappa_high"]).all()
    assert table["alpha"][0] > 0.4 > table["alpha"][1] and table["pairs"].tolist() == [200, 200]
    alpha = cw.trust.krippendorff_alpha(votes.only(["gpt-x", "ann"])).value
    one = cw.judge_table(votes, ["gpt-x"], people=["ann"], kind="dict")
    assert one["alpha"][0] == pytest.approx(alpha, abs=1e-9)
    panels = cw.judge_panels(votes, people=["ann", "bob"], kind="dict")
    assert panels["panel"][0] == "gpt-x" and len(panels["panel"]) == 3
    scores, sure = sure_judges(0)
    people = cw.Comparisons.from_codes(
        sure.left, sure.right, np.zeros(sure.n_answers, int),
        (rng.random(sure.n_answers) > 1 / (1 + np.exp(scores[sure.right] - scores[sure.left]))).astype(int),
        items=range(6), annotators=["ann"],
    )  # fmt: skip
    frames = [t.to_frame("polars").with_row_index("question") for t in (sure, people)]
    both = cw.Comparisons.from_frame(pl.concat(frames, how="diagonal"))
    found = cw.judge_table(both, people=["ann"], kind="dict")
    slope = dict(zip(found["annotator"].tolist(), found["calibration"].tolist(), strict=True))
    assert slope["bold"] < slope["fair"] < slope["shy"] and slope["bold"] < 0.5
    assert np.isnan(slope["people"])


def test_methods_for_comparisons_are_compared() -> None:
    crowd = cw.simulate.comparisons(8, n_annotators=4, n_comparisons=1500, position=1.0, random_state=0)
    found = cw.compare(crowd.comparisons, repeats=2)
    assert set(found.methods) == {"judge-bt", "bradley-terry", "position-bt", "crowd-bt"}
    assert found.methods[-1] != "judge-bt" and found.low[found.methods.index("bradley-terry")] > 0.0
    assert found.agreement.shape == (4, 4) and (found.score < 0).all()
    with pytest.raises(ParameterError, match="is for"):
        cw.compare(crowd.comparisons, ["majority"])


def test_boards_of_logs_with_brackets_odd_names_and_words_for_no_score() -> None:
    rows = [(f"p{n % 8}", "a", "b", ("x", "y")[n % 2], ("[[A]]", "[[B]]", "[[C]]", "[[A]]")[n % 4]) for n in range(40)]
    names = ("prompt", "model_1", "model_2", "judge", "verdict")
    table = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    told = cw.Comparisons.from_frame(table)
    assert np.bincount(told.outcome).tolist() == [20, 10, 10]
    graded = table | {"verdict": [(-3, 1, 2, 3)[n % 4] for n in range(40)]}
    with pytest.raises(InputError, match=r"is -3: .*If these are grades, say which end means which"):
        cw.Comparisons.from_frame(graded)
    chosen = cw.Comparisons.from_frame(
        {"chosen_model": list("abc"), "rejected_model": list("bca"), "judge": list("xyx")}
    )
    assert chosen.n_answers == 3

    said = [(f"t{n // 6}", "abc"[n % 3], "xy"[n // 3 % 2], "N/A" if n == 7 else 4 + n % 3 + n % 2) for n in range(60)]
    scores = pl.DataFrame(said, schema=["test_case", "model", "judge", "score"], orient="row", strict=False)
    scores = scores.with_columns(pl.Series("score", [str(row[3]) for row in said]))
    with pytest.warns(InputWarning, match="Left out 1 rows without a score: 'N/A'"):
        board = cw.score_board(scores)
    assert board.n_answers == 59 and "Errors allow for 10 prompts" in " ".join(board.notes)


def test_what_rests_on_the_prior_or_on_the_judges_disagreement_is_said() -> None:
    never = {"a": ["x", "x", "x", "x"] * 5, "b": ["y", "z", "y", "z"] * 5, "winner": ["a", "a", "tie", "tie"] * 5}
    ranking = cw.aggregate(cw.Comparisons.from_frame(never, left="a", right="b", outcome="winner"))
    assert any("beaten each other round a circle" in note for note in ranking.notes)

    random = np.random.default_rng(0)
    rates = {"a": 0.38, "b": 0.68, "c": 0.92}
    rows = [(f"t{q}", m, j, bool(random.random() < rates[m])) for q in range(60) for m in rates for j in ("gpt", "ann")]
    table = dict(zip(("test_id", "model", "judge", "passed"), map(list, zip(*rows, strict=True)), strict=True))
    board = cw.score_board(table)
    assert any(note.startswith("The judges pass 6") and "gold decides it" in note for note in board.notes)
