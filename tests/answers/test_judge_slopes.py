"""The default of comparisons: slopes, positions and ties of judges, covariates, who leans to one side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import crowdwise as cw
from crowdwise.answers.comparisons_bradley_terry import design
from crowdwise.answers.comparisons_connectivity import positions_known
from crowdwise.answers.comparisons_likelihood import Likelihood, MatchObjective
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import maximise, schur, separated
from crowdwise.errors import InputError


def fit(table: cw.Comparisons, method: str = "bradley-terry", **params: Any) -> cw.Ranking:
    return cw.aggregate(table, method, **params)


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


def test_graded_verdicts_lean_by_their_grades(leaning_crowd: Any) -> None:
    """The first of two is always a, with a probability near .75: every verdict is for the first, as scores expect."""
    rng, names = np.random.default_rng(0), np.array(["b", "c", "d"])
    others = rng.integers(0, 3, 240)
    p = 1 / (1 + np.exp(-(np.array([1.3, 1.0, 0.7])[others] + rng.normal(0, 0.3, 240))))
    table = cw.Comparisons.from_frame(
        {"left": ["a"] * 240, "right": names[others], "judge": ["j"] * 240, "probability_a": p, "probability_b": 1 - p}
    )
    assert (table.outcome == 0).mean() > 0.95
    assert not any("Leaning" in n for n in fit(table, "judge-bt").notes)
    note = fit(leaning_crowd.comparisons, "judge-bt", position=False).notes[-1]
    assert note.startswith("Leaning") and note.endswith("The scores do not allow for it.")


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


def test_an_empty_cell_of_a_covariate_is_no_difference() -> None:
    frame = {"left": list("abcd"), "right": list("bcda"), "winner": ["left", "right"] * 2, "judge": ["x"] * 4}
    styles = {"style_a": ["md", None, "plain", "plain"], "style_b": ["plain", "md", "", "plain"]}
    table = cw.Comparisons.from_frame(frame | styles, keep="style")
    labels, X = design(table, ["style"])
    assert labels in (["style=md"], ["style=plain"]) and np.abs(X[:, 0]).tolist() == [1.0, 0.0, 0.0, 0.0]
    alike = cw.Comparisons.from_frame(
        frame | {"style_a": ["md"] * 4, "style_b": ["md", None, "md", "md"]}, keep="style"
    )
    with pytest.raises(InputError, match="never differ in 'style'"):
        fit(alike, "judge-bt", control="style")


def test_judges_tie_as_often_as_they_do_whatever_their_slopes() -> None:
    rng, n = np.random.default_rng(0), 6000
    scores, slope, habit = np.linspace(-1.5, 1.5, 8), np.array([1.4, 1.2, 0.8, 0.6]), np.array([1.0, -1.0, 1.0, -1.0])
    left, judge = rng.integers(0, 8, n), rng.integers(0, 4, n)
    right = (left + rng.integers(1, 8, n)) % 8
    z = slope[judge] * (scores[left] - scores[right])
    logit = np.stack([z / 2.0, -z / 2.0, habit[judge] - 0.3], axis=1) + rng.gumbel(size=(n, 3))
    table = cw.Comparisons.from_codes(left, right, judge, logit.argmax(axis=1), items=range(8), annotators=range(4))
    ranking = cw.aggregate(table)
    assert np.abs(ranking.slope - slope).max() < 0.15 and np.abs(ranking.tie_habit - habit).max() < 0.2
    assert np.isclose(ranking.tie, -0.3, atol=0.2) and np.abs(ranking.scores - scores).max() < 0.2
    tied = ranking.predict(table)[:, 2]  # each judge is expected to tie as often as they did
    for m in range(4):
        assert np.isclose(
            tied[table.annotator == m].mean(), (table.outcome == 2)[table.annotator == m].mean(), atol=0.02
        )
    assert cw.aggregate(table, slopes=0.0).tie_habit is None
