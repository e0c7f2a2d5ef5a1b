"""Graded verdicts and probabilities of judges, in comparisons and votes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.errors import ConnectionWarning, CrowdwiseError, InputError, InputWarning, ParameterError
from crowdwise.out_of_core import aggregate_files


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
    one = cw.aggregate(soft, "bradley-terry").scores
    many = cw.aggregate(cw.Comparisons.from_records([(*row, 0.1) for row in hard]), "bradley-terry")
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
    ranking = cw.aggregate(table)
    bold, fair, shy = ranking.slope.tolist()
    assert bold > 1.3 * fair > 1.3 * 1.3 * shy
    assert np.corrcoef(ranking.scores, scores)[0, 1] > 0.99
    hard = replace(table, left_probability=None)
    error = [np.abs(r.scores / r.scores.std() - scores / scores.std()).mean() for r in (ranking, cw.aggregate(hard))]
    assert error[0] < error[1] * 1.1


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


def test_probabilities_that_say_something_else_are_pointed_out() -> None:
    base = {"left": ["m1", "m2"] * 30, "right": ["m2", "m1"] * 30, "judge": ["j"] * 60}
    for more in ({"left_probability": [0.1, 0.9] * 30}, {"probability": [0.3] * 60}):
        with pytest.warns(InputWarning, match="In 60 of 60 rows the verdict is the less probable"):
            cw.Comparisons.from_frame(base | {"winner": ["left", "right"] * 30} | more)
    with pytest.raises(InputError, match="2 rows have no left_probability"):  # they were wins of the left
        cw.Comparisons.from_frame(base | {"left_probability": [None, None, *[0.7] * 58]})
    log = base | {"left_logprob": [-0.1] * 60}
    for right, why in ((0.5, "0 or less"), (None, "no right_logprob")):
        with pytest.raises(InputError, match=why):
            cw.Comparisons.from_frame(log | {"right_logprob": [right] + [-2.0] * 59})
    with pytest.raises(InputError, match="No column found for: outcome"):
        cw.Comparisons.from_frame(log)
    with pytest.raises(InputError, match="finite for one of the two"):
        cw.Comparisons.from_frame(base | {f"{side}_logprob": [-np.inf] * 60 for side in ("left", "right")})
    with pytest.warns(InputWarning, match="taken for names of items, not sides"):
        cw.Comparisons.from_frame({"left": ["a", "b"], "right": ["b", "a"], "winner": ["a", "a"]})
    with pytest.warns(InputWarning, match="taken for names of items, not sides"):
        cw.Comparisons.from_frame({"left": ["1", "2"], "right": ["2", "1"], "winner": ["1", "1"]})


def test_judges_who_contradict_each_other_on_parts_have_a_board() -> None:
    """The matrix of the default was not positive definite there."""
    rows = {"left": ["a", "a", "c", "c"] * 10, "right": ["b", "b", "d", "d"] * 10, "judge": ["j", "k"] * 20}
    with pytest.warns(ConnectionWarning):
        ranking = cw.aggregate(rows | {"winner": ["left", "right", "left", "left"] * 10})
    assert np.allclose(ranking.scores[:2], 0.0, atol=1e-6) and ranking.scores[2] > 1.0 and (ranking.errors > 0.5).all()
