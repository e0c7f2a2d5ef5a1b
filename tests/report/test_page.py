"""The page: one file, escaped, small, whole; for votes and for every other answer type."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.errors import OutputError
from crowdwise.report import page as page_module
from crowdwise.report import votes
from crowdwise.report.page import ends, num, page, pct, safe_json
from report.made import TYPES

SECTIONS = {"hostile": ("annotators", "groups", "items", "classes", "agreement", "fairness")}


class Reader(HTMLParser):
    """Tags with their attributes, and the text of scripts by id."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._open = dict(attrs)
            self.scripts.append((self._open, ""))

    def handle_data(self, data):
        if self._open is not None:
            self.scripts[-1] = (self._open, self.scripts[-1][1] + data)

    def handle_endtag(self, tag):
        if tag == "script":
            self._open = None


@pytest.fixture(params=["hostile", *TYPES], name="one")
def _one(request, made):
    """Name, dict, page, and what is in it."""
    report, text = made(request.param)
    return request.param, report, text, Reader(text)


def test_names_that_are_markup_do_nothing(one):
    _, _, text, found = one
    running = [(a, body) for a, body in found.scripts if a.get("type") not in ("application/json", "text/plain")]
    assert len(running) == 1
    assert "alert" not in running[0][1]
    assert not [tag for tag, attrs in found.tags if any(name.startswith("on") for name in attrs)]
    assert not [tag for tag, attrs in found.tags if tag == "img" and not attrs["src"].startswith("data:")]
    assert "{{ 7*7 }}" in text and ">49<" not in text
    assert "&lt;script&gt;" in text


def test_only_its_own_script_may_run_and_nothing_is_loaded(one):
    _, _, text, found = one
    policy = next(a["content"] for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    script = next(body for a, body in found.scripts if "type" not in a)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    for _, attrs in found.tags:
        for name in ("src", "href", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:"))
    bare = re.sub(r'<script type="text/plain".*?</script>', "", text, flags=re.S)
    assert not re.findall(r"(?:url\(|@import|https?://)", bare)


def test_headings_tables_and_landmarks(one):
    name, report, _, found = one
    tags = [tag for tag, _ in found.tags]
    assert tags.count("h1") == tags.count("main") == tags.count("nav") == 1
    assert all("scope" in attrs for tag, attrs in found.tags if tag == "th")
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all(a["href"][1:] in ids for tag, a in found.tags if tag == "a" and a.get("href", "").startswith("#"))
    own = SECTIONS.get(name) or [t["key"] for t in report["tables"]]
    assert set(ids) >= {"summary", "data", "method", "download", *own}


def test_a_dict_read_back_from_json_gives_the_same_page(one):
    _, report, text, _ = one
    assert page(report) == text


def test_the_files_in_the_page_are_the_tables(one):
    name, report, _, found = one
    scripts = {a["id"]: body for a, body in found.scripts if "id" in a}
    files = {a["data-name"]: a["data-file"] for _, a in found.tags if "data-name" in a}
    agreement = {"agreement.csv"} if report["agreement"] else set()
    assert set(files) - {"groups.csv", "objects.csv"} == {"annotators.csv", "items.csv", "report.json"} | agreement
    unpacked = {file: gzip.decompress(base64.b64decode(scripts[key])).decode() for file, key in files.items()}
    people = list(csv.DictReader(io.StringIO(unpacked["annotators.csv"])))
    rows = report.get("annotators") or [{"annotator": a} for a in report["annotator_table"]["annotator"]]
    assert [row["annotator"] for row in people] == [row["annotator"] for row in rows]
    items = list(csv.DictReader(io.StringIO(unpacked["items.csv"])))
    assert list(items[0]) == list(report["item_table"]) and len(items) == len(report["item_table"]["item"])
    assert json.loads(unpacked["report.json"]) == {k: v for k, v in report.items() if not k.endswith("_table")}
    if name == "hostile":
        assert set(json.loads(scripts["confusions"])["annotators"]) == {row["annotator"] for row in rows}


def test_intervals_are_written_in_one_way(made):
    for name in ("digits", "ratings"):
        _, text = made(name)
        shown = re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.S)
        assert re.search(r"95% CI \d+\.?\d*-\d+\.?\d*", shown)
        assert not re.search(r"95.{0,7}% from|% interval", shown)


# -------------------------------------------------------------------- the pieces


def test_json_inside_a_script_cannot_end_it():
    text = safe_json(["</script><!--", "\u2028", "&"])
    assert not set("<>&\u2028") & set(text)
    assert json.loads(str(text)) == ["</script><!--", "\u2028", "&"]


def test_numbers():
    assert [pct(x) for x in (None, 0.0, 0.001, 0.934, 0.9999, 1.0)] == ["–", "0%", "<1%", "93%", ">99%", "100%"]
    assert [num(x) for x in (None, -0.001, -1.5, 2.0)] == ["–", "0.00", "\u22121.50", "2.00"]
    assert [ends(x, 1) for x in ((0.1, 0.25), (-0.1, 0.2), (None, 1.0))] == ["0.1-0.2", "\u22120.1 to 0.2", "–"]


@pytest.mark.parametrize("sampled", [False, True])
def test_a_table_that_is_too_large_keeps_what_to_review_first(monkeypatch, sampled):
    table = {
        "item": [f"i{n}" for n in range(2000)],
        "rank": [2000 - n if n >= 1000 else None for n in range(2000)],
        "noise": np.random.default_rng(0).random(2000).tolist(),
    }
    monkeypatch.setattr(page_module, "MOST_TABLE", 10_000)
    if sampled:
        monkeypatch.setattr(page_module, "SAMPLE", 200)
    packed, file_of = [], page_module._file
    monkeypatch.setattr(page_module, "_file", lambda *a: packed.append(a) or file_of(*a))
    file = page_module._item_file(table, "items to review first")
    assert len(file["packed"]) < 12_000
    assert ("All items" in [words for _, words, _ in packed]) == (not sampled)  # a sample shows that all are too many
    assert re.fullmatch(r"The [\d,]+ items to review first, of 2,000", file["words"])
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(base64.b64decode(file["packed"])).decode())))
    kept = {int(row["rank"]) for row in rows}
    assert kept == set(range(1, len(rows) + 1))


def test_large_crowds_are_cut_where_it_says():
    crowd = cw.simulate.one_coin(800, n_annotators=510, n_classes=2, votes_per_item=5, random_state=0)
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "majority"))
    text = page(report)
    assert len(report["annotators"]) == 510
    assert "The 300 that matter most are listed here, of 510" in text
    assert text.count("<tr data-verdict=") == 300


def test_writing(tmp_path):
    crowd = cw.simulate.one_coin(100, n_annotators=8, random_state=0)
    consensus = cw.aggregate(crowd.votes, "one-coin")
    file = cw.write_report(crowd.votes, consensus, tmp_path / "report.html", title="Mine")
    assert file == tmp_path / "report.html"
    assert "<title>Mine – reliability</title>" in file.read_text(encoding="utf-8")
    assert cw.write_report(crowd.votes, None, tmp_path / "other.html").is_file()
    with pytest.raises(OutputError, match="could not be written"):
        cw.write_report(crowd.votes, consensus, tmp_path / "missing" / "report.html")
    with pytest.raises(OutputError, match=r"report\.pdf: a report is an HTML page"):
        cw.write_report(crowd.votes, consensus, tmp_path / "report.pdf")
    assert {child.name for child in tmp_path.iterdir()} == {"report.html", "other.html"}


def test_truth_and_gold_have_one_meaning_each(tmp_path):
    """The truth only measures: with it or without, annotators are judged alike; gold judges, and is not measured."""
    crowd = cw.simulate.one_coin(80, n_annotators=6, votes_per_item=4, random_state=0)
    votes = crowd.votes.with_truth(None)
    truth = dict(zip(votes.items.tolist(), votes.classes[crowd.truth].tolist(), strict=True))
    consensus = cw.aggregate(votes, "one-coin")
    bare, measured = (cw.build_report(votes, consensus, truth=t) for t in (None, truth))
    assert bare["truth"] is None and measured["truth"]["accuracy"]["n"] == 80
    judged = [[(row["annotator"], row["accuracy"]) for row in report["annotators"]] for report in (bare, measured)]
    assert judged[0] == judged[1]
    gold = {n: truth[n] for n in votes.items[:30].tolist()}
    assert cw.build_report(votes, truth=truth, gold=gold)["truth"]["accuracy"]["n"] == 50


def test_without_jinja_it_says_what_to_install_and_diagnose_still_works():
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "import importlib.util as u; old = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'jinja2' else old(n, *a)\n"
        "import crowdwise as cw\n"
        "votes = cw.simulate.one_coin(60, n_annotators=5, random_state=0).votes\n"
        "cw.diagnose(votes)\n"
        "try:\n    cw.write_report(votes, None, 'x.html')\n"
        "except cw.errors.ExtraError as error:\n    sys.stdout.write(str(error))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "A report needs jinja2, not installed here: pip install 'crowdwise[report]'."


@pytest.mark.slow
def test_two_hundred_thousand_items_fit_in_five_megabytes():
    crowd = cw.simulate.one_coin(200_000, n_annotators=2000, n_classes=4, votes_per_item=2, random_state=0)
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "majority"), all_items=True)
    assert 2e6 < len(page(report).encode()) < 5e6


def test_a_hundred_findings_of_one_kind_are_one_line():
    crowd = cw.simulate.hammer_spammer(
        700, n_annotators=90, n_classes=3, share=0.05, accuracy=0.9, votes_per_item=15, random_state=0
    )
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene", gold=crowd.truth))
    spammers = report["summary"]["found"]["spammer"]
    (action,) = [a for a in report["summary"]["actions"] if a["kind"] == "spammer"]
    assert len(action["lines"]) == 1 and spammers > 60
    assert f"({spammers} annotators): " in page(report) and f" and {spammers - 12} more." in action["lines"][0]


def test_numbers_are_never_shown_as_bare_names():
    """Of annotators, classes and items that are called 0, 1, 2..."""
    crowd = cw.simulate.hammer_spammer(
        150, n_annotators=12, n_classes=3, share=0.6, accuracy=0.8, votes_per_item=5, random_state=0
    )
    votes = cw.Votes.from_codes(
        crowd.votes.item, crowd.votes.annotator, crowd.votes.label, items=range(150), annotators=range(12),
        classes=range(3),
    )  # fmt: skip
    text = re.sub(
        r"<(script|style).*?</\1>", "", page(cw.build_report(votes, cw.aggregate(votes, "one-coin"))), flags=re.S
    )
    heads = re.findall(r'<th scope="row"[^>]*>(.*?)</th>', text, flags=re.S)
    names = [re.sub(r"<[^>]+>", "", head).strip() for head in heads]
    ranges = re.findall(r'<table class="bars"><caption>Votes per.*?</table>', text, flags=re.S)
    counts = [re.sub(r"<[^>]+>", "", x) for t in ranges for x in re.findall(r'<th scope="row"[^>]*>(.*?)</th>', t)]
    bare = [name for name in names if re.fullmatch(r"[\d.]+", name)]
    assert sorted(bare) == sorted(x for x in counts if x.isdigit())
    assert {"annotator 3", "class 0"} <= set(names) and re.search(r"item \d+</span>", text)
    assert re.search(r"class \d</bdi> × \d", text) and re.search(r"<dd dir=\"auto\">annotators? \d", text)


def test_every_column_has_a_heading_a_tooltip_and_where_it_has_one_a_unit(one):
    _, _, text, found = one
    heads = [attrs for tag, attrs in found.tags if tag == "th" and attrs.get("scope") == "col"]
    assert heads and all(attrs.get("title") for attrs in heads)
    assert not re.search(r'<th scope="col"[^>]*></th>', text)


def test_few_votes_never_stands_beside_a_verdict(made):
    for name in ("digits", "hostile", "many"):
        report, text = made(name)
        judged = [row for row in report["annotators"] if row["verdict"] != "unclear"]
        assert judged and all("few votes" not in row["flags"] for row in judged)
        rows = re.findall(r"<tr data-verdict.*?</tr>", text, flags=re.S)
        for row in rows:
            chip = re.search(r'<span class="chip v-\w+">([^<]+)</span>', row)[1]
            seen = re.search(r'<td class="said"[^>]*>(.*?)</td>', row, flags=re.S)[1]
            assert "few votes" not in seen and (chip == "few votes" or chip in ("drop", "look", "keep", "unclear"))


def test_the_labels_are_in_the_page_as_a_link_unless_they_are_too_many(made, monkeypatch):
    report, text = made("digits")
    link = re.search(r'download="consensus.csv" href="data:text/csv;charset=utf-8;base64,([^"]+)"', text)
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(link[1]).decode())))
    assert [row["label"] for row in rows] == report["item_table"]["label"]
    assert list(rows[0]) == ["item", "label", "probability"]
    monkeypatch.setattr(page_module, "MOST_LINK", 100)
    assert "take-labels" not in page(report).split("<style>")[0] and 'id="take-labels"' not in page(report)


@pytest.mark.parametrize(
    ("kind", "columns"),
    [("boxes", ("item", "label", "x1", "y2")), ("masks", ("item", "mask", "height", "width")),
     ("spans", ("item", "label", "start", "end")), ("texts", ("item", "text"))],
)  # fmt: skip
def test_what_is_taken_from_the_page_is_what_was_found(kind, columns):
    crowd = getattr(cw.simulate, kind)(3, random_state=0)
    found = cw.aggregate(crowd.answers)
    text = page(cw.build_report(crowd.answers, found, all_items=True))
    link = re.search(r'download="consensus.csv" href="data:text/csv;charset=utf-8;base64,([^"]+)"', text)
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(link[1]).decode())))
    assert set(columns) <= set(rows[0])
    known = found.to_frame("objects" if "objects" in found.TABLES else "items", kind="dict")
    for name in columns:
        for row, one in zip(rows, known[name].tolist(), strict=True):
            assert (
                row[name] == str(one)
                if not isinstance(one, float)
                else float(row[name]) == pytest.approx(one, abs=1e-4)
            )
    units = {
        head["name"]: head["unit"] for t in cw.build_report(crowd.answers, found)["tables"] for head in t["columns"]
    }
    wrong = {"x1", "spread", "detection_rate", "word_accuracy", "expected_dice", "offset", "boundary_noise"}
    assert not [name for name, unit in units.items() if unit == "count" and name in wrong]


def test_texts_from_right_to_left_are_drawn_so():
    words = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd"
    texts = cw.Texts.from_records([("i", who, words) for who in "ab"])
    spans = cw.Spans.from_records([("i", who, "X", 0, 4) for who in "ab"]).within({"i": words})
    for answers in (texts, spans):
        report = cw.build_report(answers, cw.aggregate(answers), texts={"i": words})
        assert page(report).count(' dir="rtl"') == 1
    assert ' dir="rtl"' not in page(cw.build_report(spans, cw.aggregate(spans), texts={"i": "plain text"}))


def test_the_first_picture_counts_all_labels_and_the_majority_is_the_votes(made):
    report, _ = made("digits")
    summary = report["summary"]
    assert sum(bar["count"] for bar in summary["picture"]["bars"]) == summary["items"]
    crowd = cw.simulate.hammer_spammer(200, n_annotators=9, share=0.5, votes_per_item=5, random_state=0)
    found = cw.aggregate(crowd.votes, "one-coin")
    plain = cw.aggregate(crowd.votes, "majority")
    says = cw.build_report(crowd.votes, found)["summary"]["majority"]
    right = says.pop("right"), says.pop("majority_right")
    assert 0 < right[1] < right[0] < 1 and sum(right) == pytest.approx(1.0, abs=1e-3)
    assert says == {
        "differs": int((found.labels != plain.labels).sum()), "ties": 0, "items": 200,
        "share": round(float((found.labels != plain.labels).mean()), 4),
    }  # fmt: skip
    even = cw.Votes.from_records([("x", "a", "0"), ("x", "b", "1"), ("y", "a", "0"), ("y", "b", "0")])
    assert cw.build_report(even, cw.aggregate(even, "majority"))["summary"]["majority"]["ties"] == 1


def test_the_reliability_diagram_has_a_point_for_each_group_with_its_interval(made):
    from crowdwise.report.page import BOX, reliability_diagram

    report, text = made("digits")
    table = report["truth"]["reliability"]
    drawn = reliability_diagram(report["truth"])
    assert text.count('class="dot"') == len(table["items"]) == len(drawn["points"])
    for point, low, right, high in zip(drawn["points"], table["low"], table["accuracy"], table["high"], strict=True):
        assert low <= right <= high and point["high"] <= point["y"] <= point["low"]
        assert 0.0 <= point["x"] <= BOX and -0.1 <= point["high"] and point["low"] <= BOX + 0.1
    assert reliability_diagram(None) is None


def test_a_figure_is_the_same_wherever_it_stands():
    """Rounded once: 0.907 is 91% in the tile and in the sentence."""
    crowd = cw.simulate.dirichlet(100, n_annotators=8, votes_per_item=4, random_state=0)
    consensus = cw.aggregate(crowd.votes, "majority")
    report, found = cw.build_report(crowd.votes, consensus), cw.diagnose(crowd.votes, consensus)
    assert abs(report["summary"]["expected"] - found.expected) < 1e-6
    bare = cw.build_report(crowd.votes.with_truth(None))
    value, (low, high) = bare["summary"]["expected"], bare["summary"]["expected_interval"]
    assert low < value < high and f"{pct(value)}, {pct(low)} to {pct(high)}<small>" in page(bare)
    assert found.expected_words in " ".join(report["summary"]["sure"])


def test_of_very_many_annotators_those_that_matter_most_are_listed(monkeypatch):
    crowd = cw.simulate.one_coin(60, n_annotators=20, n_classes=2, votes_per_item=5, random_state=0)
    monkeypatch.setattr(votes, "MOST_LISTED", 8)
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "majority"))
    assert len(report["annotators"]) == 8
    assert "Annotators: the 8 that matter most are listed, of 20." in report["notes"]
    assert [f["words"] for f in page_module._files(report) if f["name"] == "annotators.csv"] == [
        "The 8 annotators that matter most"
    ]


def test_few_items_have_no_intervals_on_the_page():
    votes = cw.Votes.from_dense([[0, 0, 1], [1, 1, 1], [0, 1, 1]])
    report = cw.build_report(votes, cw.aggregate(votes, "majority"), truth={0: 0, 1: 1, 2: 0})
    assert all(row["low"] is row["high"] is None and row["words"] == "" for row in report["agreement"])
    assert any(note.startswith("Agreement: No confidence intervals: it takes 10 items") for note in report["notes"])
    assert report["truth"]["accuracy"]["low"] is None
    text = page(report)
    assert text.count("no 95% CI: fewer than 10</td>") == len(report["agreement"])
    assert "measured on 3 items, no 95% CI: fewer than 10</small>" in text and "alpha, too few to say more" in text
