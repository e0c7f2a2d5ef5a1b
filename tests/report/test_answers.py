"""The page of answers beyond classes: every kind, whole, escaped, and true to the tables of the result."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import re

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.errors import InputError, ParameterError
from crowdwise.report.answer_words import MEASURES
from crowdwise.report.other_answers import answers_report, measures
from crowdwise.report.page import page
from report.answers import KINDS, answer_pages, crowds
from report.test_page import Reader


@pytest.fixture(params=KINDS, name="made")
def _made(request):
    return request.param, *answer_pages()[request.param]


def test_every_kind_with_a_table_of_its_own_has_a_page():
    assert set(KINDS) == set(registry.ANSWER_TYPES) - {"votes", "ordinal", "graph"}  # those are votes


def test_names_that_are_markup_do_nothing_and_nothing_is_loaded(made):
    _, _, text = made
    found = Reader(text)
    running = [body for a, body in found.scripts if a.get("type") not in ("application/json", "text/plain")]
    assert len(running) == 1 and "alert" not in running[0]
    assert not [tag for tag, attrs in found.tags if any(name.startswith("on") for name in attrs)]
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert "{{ 7*7 }}" in text and ">49<" not in text and "&lt;b&gt;" in text
    digest = base64.b64encode(hashlib.sha256(running[0].encode()).digest()).decode()
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert f"script-src 'sha256-{digest}'" in policy and policy.startswith("default-src 'none'")
    for _, attrs in found.tags:
        for name in ("src", "href", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:"))
    bare = re.sub(r'<script type="text/plain".*?</script>', "", text, flags=re.S)
    assert not re.findall(r"(?:url\(|@import|https?://)", bare)


def test_headings_tables_and_landmarks(made):
    _, report, text = made
    tags = Reader(text).tags
    names = [tag for tag, _ in tags]
    assert names.count("h1") == names.count("main") == names.count("nav") == 1
    assert all("scope" in attrs for tag, attrs in tags if tag == "th")
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all(a["href"][1:] in ids for tag, a in tags if tag == "a" and a.get("href", "").startswith("#"))
    for section in ("summary", "annotators", "data", "method", "download", *(t["key"] for t in report["tables"])):
        assert section in ids
    for table in report["tables"]:
        assert table["words"] and len(table["rows"]) == min(table["total"], len(table["rows"])) > 0
        assert sum("header" in column for column in table["columns"]) == 1


def test_the_dict_is_plain_and_gives_the_same_page(made):
    _, report, text = made
    assert page(json.loads(json.dumps(report, allow_nan=False))) == text


def test_the_files_in_the_page_are_the_tables(made):
    _, report, text = made
    scripts = {a["id"]: body for a, body in Reader(text).scripts if "id" in a}
    files = {a["data-name"]: a["data-file"] for _, a in Reader(text).tags if "data-name" in a}
    assert set(files) == {"annotators.csv", "items.csv", "report.json"}
    unpacked = {name: gzip.decompress(base64.b64decode(scripts[key])).decode() for name, key in files.items()}
    for name, key in (("annotators.csv", "annotator_table"), ("items.csv", "item_table")):
        rows = list(csv.DictReader(io.StringIO(unpacked[name])))
        assert list(rows[0]) == list(report[key]) and len(rows) == len(next(iter(report[key].values())))
    whole = json.loads(unpacked["report.json"])
    assert whole == {k: v for k, v in report.items() if not k.endswith("_table")}


def test_drawn_intervals_hold_their_estimates(made):
    _, report, _ = made
    drawn = [cell for t in report["tables"] for row in t["rows"] for cell in row if "at" in cell]
    assert drawn
    for cell in drawn:
        low, middle, high = cell["at"]
        assert 0.0 <= low <= middle <= high <= 100.0
        assert cell["low"] <= cell["v"] <= cell["high"]
    people = next(t for t in report["tables"] if t["key"] == "annotators")
    assert any("scale" in column for column in people["columns"])


def test_what_is_least_sure_comes_first():
    def column(kind, table, name):
        report = answer_pages()[kind][0]
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


def test_headlines():
    says = {kind: report["summary"]["headline"] for kind, (report, _) in answer_pages().items()}
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
    for kind, crowd in crowds().items():
        result = cw.aggregate(crowd.answers, **({"n_clusters": 3, "restarts": 1} if kind == "similarities" else {}))
        found = measures(kind, crowd.answers, result)
        assert set(found) == expected[kind] <= set(MEASURES)
        if kind == "ratings":
            assert float(found["mae"]) == pytest.approx(float(cw.metrics.mae(result, crowd.truth)))
        if kind == "comparisons":
            scores = dict(zip(crowd.answers.items.tolist(), crowd.scores.tolist(), strict=True))
            tau = measures(kind, crowd.answers, result, scores)["kendall"]
            assert float(tau) == pytest.approx(crowd.tau(result))
        assert answers_report(crowd.answers, result)["measured"].keys() == found.keys()


def test_where_no_truth_is_known_nothing_is_measured():
    ratings = crowds()["ratings"].answers
    assert measures("ratings", ratings.with_truth(np.full(len(ratings), np.nan)), cw.aggregate(ratings, "mean")) == {}
    similar = crowds()["similarities"].answers
    assert (
        measures("similarities", similar.with_truth({}), None)
        == measures("similarities", similar.with_truth(None), None)
        == {}
    )
    sets = crowds()["label-sets"].answers
    assert measures("label-sets", sets.with_truth({}), None) == {}


def test_grades_are_measured_as_such_and_without_what_was_told():
    crowd = cw.simulate.ordinal(60, n_annotators=8, votes_per_item=4, random_state=0)
    result = cw.aggregate(crowd.votes, "ordinal-dawid-skene")
    found = measures("ordinal", crowd.votes, result)
    assert set(found) == {"accuracy", "mae", "quadratic_kappa"} and found["mae"].n == 60
    told = np.where(np.arange(60) < 10, crowd.truth, -1)
    assert measures("ordinal", crowd.votes, result, used=told)["accuracy"].n == 50
    assert measures("ordinal", crowd.votes, result, used=crowd.truth) == {}


def test_texts_are_shown_and_what_does_not_apply_is_refused(tmp_path):
    ratings = cw.Ratings.from_records([("x", "ann", 1.0), ("x", "bob", 2.0), ("y", "ann", 3.0), ("y", "bob", 3.5)])
    found = cw.aggregate(ratings, "mean")
    text = page(cw.build_report(ratings, found, texts={"x": "a <long> text"}))
    assert "a &lt;long&gt; text" in text and "nothing step by step" in text
    file = cw.write_report(ratings, found, tmp_path / "numbers.html", title="Mine")
    assert "<title>Mine – a number on a scale</title>" in file.read_text(encoding="utf-8")
    many = cw.simulate.ratings(30, n_annotators=5, random_state=0).answers
    assert "gaussian" in cw.write_report(many, None, tmp_path / "default.html").read_text(encoding="utf-8")
    with pytest.raises(ParameterError, match="does not apply to a report on ratings"):
        cw.build_report(ratings, found, gold={"x": 1.0})
    with pytest.raises(InputError, match="result of a fit"):
        cw.build_report(ratings, {"x": 1.0})
    with pytest.raises(InputError, match="table of answers"):
        answers_report([1, 2])


def test_one_item_and_one_annotator():
    ratings = cw.Ratings.from_records([("only", "ann", 1.0)])
    assert "only" in page(cw.build_report(ratings, cw.aggregate(ratings, "mean")))
    pairs = cw.Comparisons.from_records([("a", "b", "ann", "left")])
    assert "is ahead, but not surely" in page(cw.build_report(pairs, cw.aggregate(pairs, "bradley-terry")))
