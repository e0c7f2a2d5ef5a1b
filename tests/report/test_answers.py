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
    assert column("comparisons", "annotators", "slope") == sorted(column("comparisons", "annotators", "slope"))
    assert column("ratings", "annotators", "noise") == sorted(column("ratings", "annotators", "noise"), reverse=True)


def test_headlines(made):
    says = {kind: made(kind)[0]["summary"]["headline"] for kind in TYPES}
    assert re.fullmatch(r"70 values from 8 annotators, each known to ± [\d.]+ on average\.", says["ratings"])
    assert re.search(r"(leads|is ahead, but not surely): better than <b>\d</b> with a prob", says["comparisons"])
    assert says["similarities"].startswith("40 items in 3 clusters")
    assert re.match(r"\d+ spans in \d+ tokens, \d+ tokens? in doubt\.", says["tags"])  # not spans
    assert says["label-sets"].startswith("40 label sets, ")
    assert "Label sets (any number of classes), aggregated by" in page(made("label-sets")[0])


def actions(answers, **params):
    """Kind -> action, of the default method."""
    report = cw.build_report(answers, cw.aggregate(answers, **params))
    return {action["kind"]: action for action in report["summary"]["actions"]}, report["summary"]


def test_ratings_have_findings():
    rng = np.random.default_rng(0)
    true = rng.normal(0.0, 2.0, 60)
    rows = []
    for m in range(8):
        for n in range(60):
            value = {5: true[n] + 1.5, 6: 3.0 * rng.normal(), 7: true[n] + 3.0 * rng.normal()}.get(m, true[n])
            rows.append((n, m, value + 0.3 * rng.normal()))
    ratings = cw.Ratings.from_records(rows)
    assert actions(ratings)[0]["noise"]["names"] == ["annotator 6", "annotator 7"]
    slips = cw.Ratings.from_records([(n, m, 100.0 if (n, m) in ((3, 1), (9, 1), (9, 2)) else x) for n, m, x in rows])
    assert actions(slips)[0]["typo"]["lines"] == [
        "Far from all others on the item (2 annotators): annotator 1 (2 ratings) and annotator 2 (1 rating)."
    ]
    found, summary = actions(ratings, scale=True)
    assert found["bias"]["names"] == ["annotator 5"] and found["bias"]["lines"][0].startswith("Rates too high: ann")
    assert found["scale"]["names"] == ["annotator 6"]
    assert "annotator 7" in found["noise"]["names"]
    assert summary["to_look_at"][0] == {"annotator": "annotator 6", "verdict": "drop"}
    assert sum(bar["count"] for bar in summary["picture"]["bars"]) == 60


def test_comparisons_have_findings():
    crowd = cw.simulate.comparisons(9, n_annotators=12, n_comparisons=2400, reversed_=0.2, random_state=3)
    found, summary = actions(crowd.answers)
    assert set(found["reversed"]["names"]) == {"annotator 3", "annotator 10"}
    assert found["reversed"]["lines"][0].startswith("Answers the other way round (2 annotators): annotator 3 (with")
    assert summary["picture"]["rows"][0]["rank"]["v"] == 1 and len(summary["picture"]["rows"]) == 8
    rng = np.random.default_rng(0)
    pairs = [(f"i{a}", f"i{b}") for a, b in rng.integers(0, 4, (800, 2)) if a != b]
    lean = cw.Comparisons.from_records(
        [(a, b, f"j{n % 3}", "left" if n % 3 == 0 and n % 10 < 9 else rng.choice(["left", "right"]))
         for n, (a, b) in enumerate(pairs)]
    )  # fmt: skip
    found, _ = actions(lean)
    assert found["position"]["names"] == ["j0"] and "Prefers the first of two: j0 (9" in found["position"]["lines"][0]
    assert len(found["open"]["names"]) > 1
    said = []
    for m in range(6):
        for a, b in rng.integers(0, 8, (150, 2)).tolist():
            right = rng.random() < (0.9 if m < 5 else 0.5)
            said += [(a, b, m, "left" if (a < b) == right else "right")] if a != b else []
    found, _ = actions(cw.Comparisons.from_records(said))
    assert found["guessing"]["names"] == ["annotator 5"]


def test_similarities_label_sets_and_tags_have_findings():
    rng = np.random.default_rng(0)
    cluster = np.arange(30) % 3
    rows = []
    for a, b in rng.integers(0, 30, (900, 2)):
        if a != b:
            m = int(rng.integers(5))
            same = cluster[a] == cluster[b] if rng.random() < 0.95 else cluster[a] != cluster[b]
            rows.append((f"i{a}", f"i{b}", f"j{m}", bool(rng.random() < 0.5) if m == 4 else bool(same)))
    found, summary = actions(cw.Similarities.from_records(rows, on_duplicate="first"), n_clusters=3, restarts=1)
    assert found["guessing"]["names"] == ["j4"] and summary["to_look_at"] == [{"annotator": "j4", "verdict": "drop"}]
    found, _ = actions(crowd_of("label-sets").answers)
    assert {"l0", "l1"} == set(found["missed"]["names"]) and "in doubt" in found["items"]["title"].lower()
    found, _ = actions(crowd_of("tags").answers)
    assert set(found["inexact"]["names"]) == {"annotator 3", "annotator 5"}
    assert found["confused"]["lines"][0].startswith("B-ORG is tagged O in ")
    assert all(action["advice"] and action["lines"] for action in found.values())


def test_names_that_are_numbers_and_columns_in_the_tables_of_other_types():
    crowd = crowd_of("ratings")
    text = page(cw.build_report(crowd.answers, cw.aggregate(crowd.answers)))
    assert "<span>item 3</span>" in text and "<span>annotator 4</span>" in text
    assert re.search(r'title="How much more than the truth[^"]*">Bias <small>on the scale</small>', text)


def test_plain_tags_have_a_report_without_spans():
    crowd = cw.simulate.tag_chain(20, n_annotators=5, random_state=0)
    consensus = cw.aggregate(crowd.tags)
    report = cw.build_report(crowd.tags, consensus)
    assert report["summary"]["headline"].startswith(f"{crowd.tags.n_tokens} tokens, ")
    assert "spans" not in {table["key"] for table in report["tables"]} | set(consensus.TABLES)
    with pytest.raises(cw.errors.LabelError, match="Spans are spelled out by BIO tags"):
        consensus.spans  # noqa: B018


def test_figures_against_known_truth():
    expected = {
        "ratings": {"mae", "rmse"}, "comparisons": set(), "rankings": {"kendall"},
        "similarities": {"accuracy", "mutual_information", "adjusted_rand"},
        "label-sets": {"f1", "jaccard", "subset_accuracy"},
        "tags": {"accuracy", "span_f1", "span_precision", "span_recall"},
        "boxes": {"f1_50", "f1_75", "f1_mean", "precision_50", "recall_50", "mean_iou", "count_ratio"},
        "texts": {"word_error_rate", "character_error_rate", "chrf", "exact_match"},
        "spans": {"f1_exact", "f1_overlap", "precision_overlap", "recall_overlap", "f1_characters"},
        "masks": {"dice", "iou", "hausdorff", "edge_distance"},
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
    for known, left in ((10, 50), (60, 0)):
        told = np.where(np.arange(60) < known, crowd.truth, -1)
        found = measure("ordinal", crowd.votes, cw.aggregate(crowd.votes, "ordinal-dawid-skene", gold=told))
        assert (found["accuracy"].n if found else 0) == left


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
    with pytest.raises(InputError, match="a table and found list"):
        cw.build_report([1, 2])


def test_one_item_and_one_annotator():
    ratings = cw.Ratings.from_records([("only", "ann", 1.0)])
    assert "only" in page(cw.build_report(ratings, cw.aggregate(ratings, "mean")))
    pairs = cw.Comparisons.from_records([("a", "b", "ann", "left")])
    assert "is ahead, but not surely" in page(cw.build_report(pairs, cw.aggregate(pairs, "bradley-terry")))


def test_numbers_are_written_as_people_write_them():
    rng = np.random.default_rng(0)
    true = rng.normal(4e7, 9e6, 40)
    bias = np.array([1e7, 0.0, 0.0, 0.0, 0.0, 0.0])
    prices = cw.Ratings.from_records(
        [(f"house-{n}", f"a{m}", true[n] + bias[m] + rng.normal(0, 5e5)) for n in range(40) for m in range(6)]
    )
    report = cw.build_report(prices, cw.aggregate(prices))
    assert re.search(r"known to ± \d{1,3}(,\d{3})+ on average", report["summary"]["headline"])
    assert re.search(r"a0 \(by \d{1,3}(,\d{3})+\)", report["summary"]["actions"][0]["lines"][0])
    assert all(re.fullmatch(r"± [\d,]+-[\d,]+", bar["range"]) for bar in report["summary"]["picture"]["bars"])
    shown = re.sub(r"<script.*?</script>", "", page(report), flags=re.DOTALL)
    assert "e+0" not in shown and not re.search(r">\d{8}<", shown)


def test_counts_are_whole_numbers_under_the_name_of_what_is_counted():
    def column(answers, table, name):
        found = next(t for t in cw.build_report(answers, cw.aggregate(answers))["tables"] if t["key"] == table)
        at = [c["name"] for c in found["columns"]].index(name)
        return found["columns"][at]

    decided = cw.Comparisons.from_records(
        [("x", "y", f"j{n}", "left" if n % 3 else "right") for n in range(9)]
        + [("y", "z", f"j{n}", "left" if n % 4 else "right") for n in range(9)]
    )
    assert column(decided, "leaderboard", "ties")["digits"] == 0  # 0, not 0.0000
    assert column(decided, "annotators", "comparisons")["title"] == "Comparisons"
    once = cw.Rankings.from_records([(f"r{m}", "q", ["a", "b", "c"] if m % 3 else ["b", "c", "a"]) for m in range(8)])
    counted = column(once, "annotators", "comparisons")
    assert counted["digits"] == 0 and counted["title"] == "Rankings" and counted["tip"] == "How many rankings"


@pytest.mark.parametrize("name", TYPES)
def test_a_diagnosis_has_the_findings_of_the_report(name):
    answers = crowd_of(name).answers
    result = fitted(name, answers)
    report, found = cw.build_report(answers, result), cw.diagnose(answers, result)
    assert {action["kind"] for action in report["summary"]["actions"]} == {finding.kind for finding in found.findings}
    lines = [line for action in report["summary"]["actions"] for line in action["lines"]]
    assert sorted(lines) == sorted(found.sentences()) and all(line in str(found) for line in lines)
    assert list(found.verdicts) == result.annotators.tolist()
    pressing = [who for who, verdict in found.verdicts.items() if verdict in ("drop", "look")]
    assert len(report["summary"]["to_look_at"]) == len(pressing)
    assert np.isnan(found.expected)
    with pytest.raises(InputError, match="The detectors are for votes, and these are"):
        _ = found.inspection


DRAWN = {
    "boxes": ("box-majority", {"annotators_per_item": 3}), "masks": ("mask-majority", {"size": 32}),
    "texts": ("rover", {}), "spans": ("span-majority", {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", DRAWN)
def test_items_in_most_doubt_are_drawn(kind):
    method, options = DRAWN[kind]
    crowd = getattr(cw.simulate, kind)(12, n_annotators=5, random_state=0, **options)
    answers, result = crowd.answers, cw.aggregate(crowd.answers, method)
    report = cw.build_report(answers, result)
    first = report["drawings"][0]
    assert len(report["drawings"]) == 8
    assert first["item"] == str(cw.active.next_items(result, 1)[0])
    losses = [drawing["loss"] for drawing in report["drawings"]]
    assert losses == sorted(losses, reverse=True) and 0 <= losses[-1] <= losses[0] <= 1
    html = page(report)
    shape = {"boxes": 'class="thin"', "masks": "data:image/png;base64", "texts": "aligned", "spans": 'class="bars"'}
    assert html.count("<figure>") >= 8 and shape[kind] in html
    n = result.items.tolist().index(int(first["item"]))
    if kind == "boxes":
        rows = slice(*answers.indptr[n : n + 2])
        assert len(first["drawn"]) == int((answers.label[rows] >= 0).sum())
        assert sum(one["yes"] for one in first["found"]) == int(result.accepted[result.box_item == n].sum())
    elif kind == "texts":
        assert [w["word"] for w in first["first"] if w["word"]] == result.texts[n].split()
        for row in first["rows"]:
            assert all(w["same"] == (w["word"] == f["word"]) for w, f in zip(row["words"], first["first"], strict=True))
    elif kind == "spans":
        assert [(p["label"], p["start"], p["end"]) for p in first["found"]] == result.spans()[n]


def test_boxes_are_drawn_over_the_picture_and_spans_under_the_text():
    boxes = cw.Boxes.from_records([("i", m, "cat", 10, 20, 60, 50) for m in "ab"])
    drawing = cw.build_report(boxes, images={"i": np.zeros((100, 200), dtype=np.uint8)})["drawings"][0]
    assert drawing["image"]["src"].startswith("data:image/png") and drawing["image"]["size"] == [420.0, 210.0]
    assert drawing["drawn"][0]["at"] == [21.0, 42.0, 105.0, 63.0]
    text = "Ada met Bob."
    spans = cw.Spans.from_records([("d", m, "PER", 0, 3) for m in "ab"])
    parts = cw.build_report(spans, cw.aggregate(spans, "span-majority"), texts={"d": text})["drawings"][0]["parts"]
    assert parts == [{"text": "Ada", "labels": ["PER"]}, {"text": " met Bob.", "labels": []}]


def test_certificates_of_other_answers_hold():
    crowd = cw.simulate.masks(120, size=32, random_state=3)
    result = cw.aggregate(crowd.answers, "mask-majority")
    true = {name: crowd.answers.true_mask(n) for n, name in enumerate(crowd.answers.items.tolist())}
    loss = np.array([1 - 2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in result.against(true)])
    found = cw.certify(result, {name: true[name] for name in cw.draw_for_gold(result, 60).tolist()}, max_error=0.2)
    assert found.share > 0.5 and loss[found.released & ~found.gold].sum() / found.released.sum() <= 0.2
    assert found.wrong == pytest.approx(loss[found.gold].sum())


def test_tables_of_comparisons_say_yes_and_no_and_units():
    crowd = cw.simulate.comparisons(5, n_annotators=4, n_comparisons=240, random_state=0)
    report = cw.build_report(crowd.comparisons)
    people = next(table for table in report["tables"] if table["key"] == "annotators")
    heads = [head["name"] for head in people["columns"]]
    assert {row[heads.index("leans")]["v"] for row in people["rows"]} <= {"yes", "no"}
    assert people["columns"][heads.index("slope")]["unit"] == "1 is usual"
    assert ("Known which was shown first", "yes") in {(fact["name"], fact["value"]) for fact in report["data"]}
