"""The report on other answer types: true to the tables of the result, the least sure first, measured by type."""

from __future__ import annotations

import re

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.errors import InputError, ParameterError
from crowdwise.metrics.measures import MEASURES, measure
from crowdwise.report.page import page
from report.made import TYPES, crowd_of, fitted


def test_every_type_with_a_table_of_its_own_has_a_page(made):
    assert set(TYPES) == set(registry.ANSWER_TYPES) - {"votes", "ordinal", "graph"}  # those are votes
    for name in TYPES:
        for table in made(name)[0]["tables"]:
            assert table["words"] and len(table["rows"]) == min(table["total"], len(table["rows"])) > 0
            assert sum("header" in column for column in table["columns"]) == 1


@pytest.mark.parametrize("name", TYPES)
def test_drawn_intervals_hold_their_estimates(made, name):
    report, _ = made(name)
    drawn = [cell for t in report["tables"] for row in t["rows"] for cell in row if "at" in cell]
    assert drawn
    for cell in drawn:
        low, middle, high = cell["at"]
        assert 0.0 <= low <= middle <= high <= 100.0
        assert cell["low"] <= cell["v"] <= cell["high"]
    people = next(t for t in report["tables"] if t["key"] == "annotators")
    assert any("scale" in column for column in people["columns"])


def test_what_is_least_sure_comes_first(made):
    def column(kind, table, name):
        report, _ = made(kind)
        found = next(t for t in report["tables"] if t["key"] == table)
        at = [c["name"] for c in found["columns"]].index(name)
        return [row[at]["v"] for row in found["rows"]]

    assert column("ratings", "items", "deviation") == sorted(column("ratings", "items", "deviation"), reverse=True)
    assert column("label-sets", "items", "probability") == sorted(column("label-sets", "items", "probability"))
    assert column("comparisons", "leaderboard", "rank") == sorted(column("comparisons", "leaderboard", "rank"))
    assert column("comparisons", "annotators", "reliability") == sorted(
        column("comparisons", "annotators", "reliability")
    )
    assert column("ratings", "annotators", "noise") == sorted(column("ratings", "annotators", "noise"), reverse=True)


def test_headlines(made):
    says = {kind: made(kind)[0]["summary"]["headline"] for kind in TYPES}
    assert re.fullmatch(r"70 numbers from 8 annotators, each known to ± [\d.]+ on average\.", says["ratings"])
    assert re.search(r"(leads|is ahead, but not surely): better than <b>\d</b> with a prob", says["comparisons"])
    assert says["similarities"].startswith("40 items in 3 clusters")
    assert re.match(r"\d+ spans in \d+ tokens, ", says["tags"])


def test_figures_against_known_truth():
    expected = {
        "ratings": {"mae", "rmse"}, "comparisons": set(), "rankings": set(),
        "similarities": {"accuracy", "mutual_information", "adjusted_rand"},
        "label-sets": {"f1", "jaccard", "subset_accuracy"},
        "tags": {"accuracy", "span_f1", "span_precision", "span_recall"},
    }  # fmt: skip
    for kind in TYPES:
        crowd = crowd_of(kind)
        result = fitted(kind, crowd.answers)
        found = measure(kind, crowd.answers, result)
        assert set(found) == expected[kind] <= set(MEASURES)
        if kind == "ratings":
            assert float(found["mae"]) == pytest.approx(float(cw.metrics.mae(result, crowd.truth)))
        if kind == "comparisons":
            scores = dict(zip(crowd.answers.items.tolist(), crowd.scores.tolist(), strict=True))
            tau = measure(kind, crowd.answers, result, scores)["kendall"]
            shown = cw.build_report(crowd.answers, result, truth=scores)["measured"]["kendall"]
            assert shown["value"] == pytest.approx(tau.value, abs=1e-4)
            assert float(tau) == pytest.approx(crowd.tau(result))
        assert cw.build_report(crowd.answers, result)["measured"].keys() == found.keys()


def test_where_no_truth_is_known_nothing_is_measured():
    ratings = crowd_of("ratings").answers
    assert measure("ratings", ratings.with_truth(np.full(len(ratings), np.nan)), cw.aggregate(ratings, "mean")) == {}
    similar = crowd_of("similarities").answers
    assert (
        measure("similarities", similar.with_truth({}), None)
        == measure("similarities", similar.with_truth(None), None)
        == {}
    )
    sets = crowd_of("label-sets").answers
    assert measure("label-sets", sets.with_truth({}), None) == {}


def test_grades_are_measured_as_such_and_without_what_was_told():
    crowd = cw.simulate.ordinal(60, n_annotators=8, votes_per_item=4, random_state=0)
    result = cw.aggregate(crowd.votes, "ordinal-dawid-skene")
    found = measure("ordinal", crowd.votes, result)
    assert set(found) == {"accuracy", "mae", "quadratic_kappa"} and found["mae"].n == 60
    told = np.where(np.arange(60) < 10, crowd.truth, -1)
    assert measure("ordinal", crowd.votes, result, gold=told)["accuracy"].n == 50
    assert measure("ordinal", crowd.votes, result, gold=crowd.truth) == {}


def test_texts_are_shown_and_what_does_not_apply_is_refused(tmp_path):
    ratings = cw.Ratings.from_records([("x", "ann", 1.0), ("x", "bob", 2.0), ("y", "ann", 3.0), ("y", "bob", 3.5)])
    found = cw.aggregate(ratings, "mean")
    text = page(cw.build_report(ratings, found, texts={"x": "a <long> text"}))
    assert "a &lt;long&gt; text" in text and "No convergence trace" in text
    file = cw.write_report(ratings, found, tmp_path / "numbers.html", title="Mine")
    assert "<title>Mine – a number on a scale</title>" in file.read_text(encoding="utf-8")
    many = cw.simulate.ratings(30, n_annotators=5, random_state=0).answers
    assert "gaussian" in cw.write_report(many, None, tmp_path / "default.html").read_text(encoding="utf-8")
    with pytest.raises(ParameterError, match="does not apply to a report on ratings"):
        cw.build_report(ratings, found, gold={"x": 1.0})
    with pytest.raises(InputError, match="the result of a fit to ratings and found dict"):
        cw.build_report(ratings, {"x": 1.0})
    with pytest.raises(InputError, match="a table of answers and found list"):
        cw.build_report([1, 2])


def test_one_item_and_one_annotator():
    ratings = cw.Ratings.from_records([("only", "ann", 1.0)])
    assert "only" in page(cw.build_report(ratings, cw.aggregate(ratings, "mean")))
    pairs = cw.Comparisons.from_records([("a", "b", "ann", "left")])
    assert "is ahead, but not surely" in page(cw.build_report(pairs, cw.aggregate(pairs, "bradley-terry")))
