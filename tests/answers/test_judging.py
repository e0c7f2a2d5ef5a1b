"""Leaderboards as those who compare models need them: errors by prompt, reliability and position at once, judges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import crowdwise as cw
from crowdwise.answers.comparisons_connectivity import positions_known
from crowdwise.answers.comparisons_likelihood import Likelihood, MatchObjective
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import maximise, schur, separated
from crowdwise.errors import InputError, ParameterError


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
    [("bradley-terry", {}), ("crowd-bt", {"position": False}), ("crowd-bt", {}), ("position-bt", {})],
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
    assert np.allclose(ranking.draws.std(axis=0), ranking.errors, rtol=0.08)
    assert any("Errors allow for 40 questions" in note for note in ranking.notes)


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
    assert positions_known(table).all()
    assert not positions_known(replace(table, placed=False)).any()
    assert not positions_known(table.select(np.arange(table.n_answers) % 40 == 0)).any()  # 8 for each annotator
    better_first = table.select(leaning_crowd.scores[table.left] > leaning_crowd.scores[table.right])
    assert not positions_known(better_first).any()  # order and scores say the same
    one_order = table.select((table.annotator != 3) | (table.left < table.right))
    assert (~positions_known(one_order)).nonzero()[0].tolist() == [3]
    mixed = fit(one_order, "crowd-bt")
    assert np.isnan(mixed.position).nonzero()[0].tolist() == [3]
    assert np.isfinite(mixed.reliability).all() and np.isfinite(mixed.errors).all()
    assert fit(better_first, "crowd-bt").position is None
    with pytest.raises(InputError, match="position=True needs to know which item was shown first"):
        fit(replace(table, placed=False), "crowd-bt", position=True)


@pytest.mark.parametrize("method", ["bradley-terry", "crowd-bt", "position-bt"])
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
