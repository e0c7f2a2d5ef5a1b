"""Figures of all items from a few gold labels: what is asked for, what is refused, and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.cli.main import app
from crowdwise.errors import InputError, ParameterError
from crowdwise.metrics.rectified import figure

SYSTEMS = {"old": (0.55, 0.25), "new": (0.7, 0.05)}
"""System -> how many of its answers are good, and how many of the bad ones the judges pass."""


@pytest.fixture(scope="module")
def panel() -> tuple[pl.DataFrame, dict[str, str]]:
    """Verdicts of three judges on 600 answers of two systems; and the truth."""
    rng, rows, truth = np.random.default_rng(0), [], {}
    for system, (good, mild) in SYSTEMS.items():
        for n in range(300):
            item, right = f"{system}{n}", rng.random() < good
            truth[item] = "pass" if right else "fail"
            fooled = rng.random() < mild
            for judge in "xyz":
                passes = (right or fooled) if rng.random() < 0.85 else rng.random() < 0.5
                rows.append((item, judge, "pass" if passes else "fail", system, float(n % 10)))
    columns = ["item", "annotator", "label", "system", "length"]
    return pl.DataFrame(rows, schema=columns, orient="row"), truth


@pytest.fixture(scope="module")
def consensus(panel: Any) -> cw.Consensus:
    return cw.aggregate(cw.Votes.from_frame(panel[0].select("item", "annotator", "label")))


def drawn(truth: dict[str, str], n: int, seed: int = 0) -> dict[str, str]:
    items = np.random.default_rng(seed).choice(list(truth), n, replace=False).tolist()
    return {item: truth[item] for item in items}


def system_of(item: str) -> str:
    return item.rstrip("0123456789")


def test_pass_rates_of_systems(panel: Any, consensus: cw.Consensus) -> None:
    truth = panel[1]
    gold, by = drawn(truth, 150), {item: system_of(item) for item in truth}
    found = cw.estimate(consensus, gold=gold, by=by, positive="pass")
    assert found.basis == "gold" and found.n_gold == 150 and found.narrower < 1.0
    for system in SYSTEMS:
        real = np.mean([t == "pass" for i, t in truth.items() if by[i] == system])
        assert found[system].low < real < found[system].high
        inside = np.array([by[i] == system for i in consensus.items.tolist()])
        known = np.array([i in gold for i in consensus.items.tolist()]) & inside
        f = consensus.corrected_posterior[:, consensus.classes.tolist().index("pass")]
        y = np.array([float(truth[i] == "pass") for i in consensus.items.tolist()])
        assert found[system] == figure(y[known], f[known], f[inside], share=True).estimate
    table = found.to_frame(kind="polars")
    assert table["items"].to_list() == [300, 300] and table["gold"].sum() == 150
    gap = cw.estimate(consensus, "difference", gold=gold, by=by)
    value = found["new"].value - found["old"].value
    assert gap["new", "old"].value == pytest.approx(value) and gap.rows[0].of == "pass"
    assert "new - old, pass" in gap.sentences()[0]
    every = cw.estimate(consensus, gold=gold)
    assert every["pass"].value + every["fail"].value == pytest.approx(1.0)


def test_ratings_have_means() -> None:
    crowd = cw.simulate.ratings(400, n_annotators=12, random_state=0)
    rng = np.random.default_rng(0)
    gold = {int(i): float(crowd.truth[i]) for i in rng.choice(400, 60, replace=False)}
    found = cw.estimate(crowd.answers, "mean", gold=gold)
    assert found.rows[0].figure.estimate.low < crowd.truth.mean() < found.rows[0].figure.estimate.high
    assert found.narrower < 0.8
    with pytest.raises(ParameterError, match="ratings have no classes"):
        cw.estimate(crowd.answers, "share", gold=gold)


def test_classes_that_are_numbers_have_a_mean_too(consensus: cw.Consensus) -> None:
    crowd = cw.simulate.one_coin(300, n_annotators=8, n_classes=3, votes_per_item=4, random_state=0)
    gold = {int(i): int(crowd.truth[i]) for i in np.random.default_rng(0).choice(300, 80, replace=False)}
    found = cw.estimate(cw.aggregate(crowd.votes), "mean", gold=gold).rows[0].figure.estimate
    assert found.low < crowd.truth.mean() < found.high
    with pytest.raises(ParameterError, match="the classes are not numbers"):
        cw.estimate(consensus, "mean")


def test_without_gold_there_is_no_interval(consensus: cw.Consensus) -> None:
    found = cw.estimate(consensus)
    assert found.basis == "model" and np.isnan(found["pass"].low) and "has no interval" in found.notes[0]
    assert found["pass"].value == pytest.approx(consensus.corrected_posterior[:, 1].mean())


def test_error_rates_from_elsewhere(consensus: cw.Consensus) -> None:
    found = cw.estimate(consensus, error_rates=[[90, 10], [20, 80]], positive="pass")
    share = (consensus.labels == "pass").mean()
    assert found.basis == "error rates" and found["pass"].value == pytest.approx((share - 0.1) / 0.7)
    with pytest.raises(ParameterError, match="expected 2 x 2 numbers"):
        cw.estimate(consensus, error_rates=[1, 2])
    with pytest.raises(InputError, match="say nothing of it"):
        cw.estimate(consensus, error_rates=[[1, 1], [1, 1]])
    with pytest.raises(ParameterError, match="not with gold"):
        cw.estimate(consensus, gold={"old0": "pass"}, error_rates=[[9, 1], [2, 8]])


def test_coefficients(panel: Any, consensus: cw.Consensus) -> None:
    truth = panel[1]
    gold = drawn(truth, 150)
    covariates = {"system": {i: system_of(i) for i in truth}, "length": [float(str(i)[-1]) for i in consensus.items]}
    found = cw.estimate(consensus, "logistic", gold=gold, covariates=covariates)
    assert [row.of for row in found.rows] == ["(intercept)", "system=old", "length"]
    assert found["system=old"].high < 0.1 and found.beyond
    line = cw.estimate(consensus, "ols", gold=gold, covariates=covariates, positive="pass")
    assert -0.4 < line["system=old"].value < 0.05
    with pytest.raises(ParameterError, match="expected a mapping from name to values"):
        cw.estimate(consensus, "ols", gold=gold)
    with pytest.raises(InputError, match="combinations of others"):
        cw.estimate(consensus, "ols", gold=gold, covariates={"a": np.ones(600)})
    with pytest.raises(InputError, match="too few for 3 coefficients"):
        cw.estimate(consensus, "ols", gold=drawn(truth, 4), covariates=covariates)
    with pytest.raises(InputError, match="'a' must have a value for each of the 600 items"):
        cw.estimate(consensus, "ols", gold=gold, covariates={"a": {"old0": 1.0}})


def test_gold_never_both_fits_and_corrects(panel: Any) -> None:
    table, truth = panel
    votes, gold = cw.Votes.from_frame(table.select("item", "annotator", "label")), drawn(truth, 60)
    with pytest.raises(InputError, match="cannot correct it as well"):
        cw.estimate(cw.aggregate(votes, gold=gold), gold=gold)
    found = cw.estimate(votes, gold=gold, folds=3, method="dawid-skene", positive="pass")
    real = np.mean([t == "pass" for t in truth.values()])
    assert found["pass"].low < real < found["pass"].high
    with pytest.raises(ParameterError, match="expected 2 to 60"):
        cw.estimate(votes, gold=gold, folds=100)
    with pytest.raises(ParameterError, match="fitted already"):
        cw.estimate(cw.aggregate(votes), gold=gold, folds=3)


def test_gold_that_was_chosen_is_refused_without_probabilities(panel: Any, consensus: cw.Consensus) -> None:
    truth = panel[1]
    sure = consensus.corrected_posterior.max(axis=1)
    chosen = {i: truth[i] for i in consensus.items[np.argsort(sure)[:150]].tolist()}
    with pytest.raises(InputError, match="Where the probabilities of the draw are known"):
        cw.estimate(consensus, gold=chosen)
    rng = np.random.default_rng(0)
    p = np.where(sure < np.median(sure), 0.4, 0.1)
    some = consensus.items[rng.random(600) < p].tolist()
    chance = dict(zip(consensus.items.tolist(), p.tolist(), strict=True))
    found = cw.estimate(consensus, gold={i: truth[i] for i in some}, probability=chance, positive="pass")
    assert found["pass"].low < np.mean([t == "pass" for t in truth.values()]) < found["pass"].high
    with pytest.raises(InputError, match="above 0 and at most 1"):
        cw.estimate(consensus, gold={i: truth[i] for i in some}, probability=dict.fromkeys(truth, 0.0))
    gold = {i: truth[i] for i in some}
    for odd in (
        dict.fromkeys(truth, 0.9),
        dict.fromkeys(truth, 1.0),
        dict.fromkeys(gold, 1.0),
        dict.fromkeys(gold, 0.001),
    ):
        with pytest.raises(InputError, match="by these probabilities there would be about"):
            cw.estimate(consensus, gold=gold, probability=odd)
    partly = cw.estimate(consensus, gold=gold, probability={i: chance[i] for i in some}, positive="pass")
    assert partly["pass"] == found["pass"]


def test_known_shares_are_exact_and_numbers_without_spread_have_no_interval(
    consensus: cw.Consensus, panel: Any
) -> None:
    truth = panel[1]
    share = float(np.mean([t == "pass" for t in truth.values()]))
    found = cw.estimate(consensus, gold=truth)["pass"]
    assert found.low == found.value == found.high == pytest.approx(share)
    first = next(iter(truth))
    gold = drawn(truth, 60) | {first: truth[first]}
    found = cw.estimate(consensus, gold=gold, by={i: "one" if i == first else "rest" for i in truth}, positive="pass")
    assert found["one"].low == found["one"].value == found["one"].high == float(truth[first] == "pass")
    ratings = cw.Ratings.from_records([(i, who, i % 7 / 2.0) for i in range(100) for who in "ab"])
    found = cw.estimate(ratings, "mean", gold=dict.fromkeys(range(0, 100, 5), 4.0))
    mean = found.rows[0].figure.estimate
    assert mean.value == 4.0 and np.isnan(mean.low) and "there is no interval" in found.notes[-1]


def test_groups_and_options_that_do_not_fit(consensus: cw.Consensus, panel: Any) -> None:
    gold = drawn(panel[1], 60)
    with pytest.raises(ParameterError, match="a difference is between groups"):
        cw.estimate(consensus, "difference", gold=gold)
    with pytest.raises(ParameterError, match="only regressions have them"):
        cw.estimate(consensus, gold=gold, covariates={"a": np.arange(600)})
    some = {item: system_of(item) for item in list(panel[1])[:450]}
    found = cw.estimate(consensus, gold=gold, by=some)
    assert "150 items have no group, and are left out." in found.notes
    with pytest.raises(InputError, match="Expected votes or ratings"):
        cw.estimate(cw.aggregate(cw.LabelSets.from_records([("a", "x", ["u"]), ("a", "y", ["u"])])))
    with pytest.raises(ParameterError, match="2 figures have this name"):
        found["old"]


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="crowdwise", env={"COLUMNS": "120"})


def test_the_command(panel: Any, tmp_path: Path) -> None:
    table, truth = panel
    table.write_csv(tmp_path / "verdicts.csv")
    gold = drawn(truth, 120)
    sheet = pl.DataFrame({"item": list(gold), "label": list(gold.values()), "chance": 0.2})
    sheet.write_csv(tmp_path / "gold.csv")
    base = ("estimate", tmp_path / "verdicts.csv", "--gold", tmp_path / "gold.csv")
    done = run(*base, "--by", "system", "--class", "pass", "--out", tmp_path / "rates.csv")
    assert done.exit_code == 0, done.output
    assert "By 120 random gold labels: the intervals hold whatever the annotators' bias." in done.stderr
    rates = pl.read_csv(tmp_path / "rates.csv")
    assert rates["group"].to_list() == ["new", "old"] and "by gold alone" in done.stdout
    facts = json.loads(run(*base, "--of", "difference", "--by", "system", "--json").stdout)
    assert facts["basis"] == "gold" and facts["estimates"][0]["other"] == "old"
    facts = json.loads(run(*base, "--of", "logistic", "--covariate", "length", "--json").stdout)
    assert [row["covariate"] for row in facts["estimates"]] == ["(intercept)", "length"]
    alike, same = (
        json.loads(run(*base, *more, "--json").stdout)["estimates"] for more in ((), ("--probability", "chance"))
    )
    assert alike[0]["estimate"] == pytest.approx(same[0]["estimate"]) and alike[0]["low"] == pytest.approx(
        same[0]["low"]
    )
    counts = pl.DataFrame(
        {"truth": ["pass", "pass", "fail", "fail"], "label": ["pass", "fail"] * 2, "count": [90, 10, 30, 70]}
    )
    counts.write_csv(tmp_path / "counts.csv")
    done = run(*base[:2], "--error-rates", tmp_path / "counts.csv", "--json")
    assert json.loads(done.stdout)["basis"] == "error rates"
    assert "By the model alone." in run(*base[:2]).stderr
    sheet.with_columns(label=pl.when(pl.int_range(pl.len()) > 2).then("label")).write_csv(tmp_path / "holes.csv")
    done = run(*base[:2], "--gold", tmp_path / "holes.csv")
    assert done.exit_code != 0 and "3 of the 120 rows of" in done.stderr
    assert run(*base, "--by", "nothing").exit_code != 0


def test_figures_that_answers_do_not_have_are_refused_in_the_words_of_the_caller(tmp_path) -> None:
    rows = [(i, a, i % 5 + k / 10) for i in range(12) for k, a in enumerate("xyz")]
    path = tmp_path / "ratings.csv"
    path.write_text("item,annotator,rating\n" + "\n".join(",".join(map(str, row)) for row in rows))
    with pytest.raises(cw.errors.ParameterError, match=r"ratings have no classes\. Take what='mean', 'difference' or"):
        cw.estimate(cw.read_ratings(path))
    done = run("estimate", path, "--answers", "ratings")
    assert done.exit_code == 2 and "Take --of mean, difference or ols." in done.stderr
    done = run("estimate", path, "--answers", "ratings", "--of", "mean", "--by", "system")
    assert done.exit_code == 1 and "has no column 'system': it has 'item'" in done.stderr
    sets = cw.LabelSets.from_records([(i, a, ["p", "q"][: 1 + i % 2]) for i in range(12) for a in "xyz"])
    with pytest.raises(cw.errors.InputError, match=r"Expected votes or ratings .* not LabelSetConsensus"):
        cw.estimate(sets)
