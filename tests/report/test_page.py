"""The page: one file, escaped, small, whole."""

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
from pathlib import Path

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.errors import OutputError
from crowdwise.report import page as page_module
from crowdwise.report.page import num, page, pct, safe_json

EVIL = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '" onfocus="alert(1)',
    "'><b>",
    "{{ 7*7 }}",
]


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


@pytest.fixture(scope="module")
def hostile():
    base = cw.simulate.hammer_spammer(
        120, n_annotators=10, n_classes=3, share=0.7, votes_per_item=6, random_state=0
    ).votes
    names = [*EVIL, *(f"a{m}" for m in range(5))]
    items = [f"<img src=x onerror=alert({n})>" for n in range(120)]
    votes = cw.Votes.from_codes(
        base.item, base.annotator, base.label, items=items, annotators=names, classes=["<i>", "&amp;", "</style>"]
    )
    report = cw.build_report(
        votes, cw.aggregate(votes, "dawid-skene"), title="<script>x</script>",
        texts=dict.fromkeys(items, "<script>alert(2)</script>"), all_items=True,
    )  # fmt: skip
    return report, page(report)


def test_names_that_are_markup_do_nothing(hostile):
    _, text = hostile
    found = Reader(text)
    running = [(a, body) for a, body in found.scripts if a.get("type") not in ("application/json", "text/plain")]
    assert len(running) == 1
    assert "alert" not in running[0][1]
    assert not [tag for tag, attrs in found.tags if any(name.startswith("on") for name in attrs)]
    assert not [tag for tag, attrs in found.tags if tag == "img" and not attrs["src"].startswith("data:")]
    assert "{{ 7*7 }}" in text and ">49<" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_only_its_own_script_may_run_and_nothing_is_loaded(hostile):
    _, text = hostile
    found = Reader(text)
    policy = next(a["content"] for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    script = next(body for a, body in found.scripts if "type" not in a)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    for _, attrs in found.tags:
        for name in ("src", "href", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:"))
    assert not re.findall(
        r"(?:url\(|@import|https?://)", re.sub(r'<script type="text/plain".*?</script>', "", text, flags=re.S)
    )


def test_the_files_in_the_page_are_the_tables(hostile):
    report, text = hostile
    scripts = {a["id"]: body for a, body in Reader(text).scripts if "id" in a}
    files = {a["data-name"]: a["data-file"] for _, a in Reader(text).tags if "data-name" in a}
    assert set(files) >= {"annotators.csv", "items.csv", "agreement.csv", "report.json"}
    unpacked = {name: gzip.decompress(base64.b64decode(scripts[key])).decode() for name, key in files.items()}
    people = list(csv.DictReader(io.StringIO(unpacked["annotators.csv"])))
    assert [row["annotator"] for row in people] == [row["annotator"] for row in report["annotators"]]
    assert len(list(csv.DictReader(io.StringIO(unpacked["items.csv"])))) == 120
    whole = json.loads(unpacked["report.json"])
    assert whole == {key: value for key, value in report.items() if key != "item_table"}
    stored = json.loads(scripts["confusions"])
    assert set(stored["annotators"]) == {row["annotator"] for row in report["annotators"]}


def test_headings_tables_and_landmarks(hostile):
    _, text = hostile
    tags = Reader(text).tags
    names = [tag for tag, _ in tags]
    assert names.count("h1") == names.count("main") == names.count("nav") == 1
    assert all("scope" in attrs for tag, attrs in tags if tag == "th")
    targets = {attrs["id"] for _, attrs in tags if "id" in attrs}
    assert all(a["href"][1:] in targets for tag, a in tags if tag == "a" and a.get("href", "").startswith("#"))
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for section in ("summary", "annotators", "groups", "items", "classes", "agreement", "data", "method", "download"):
        assert section in targets


def test_a_dict_read_back_from_json_gives_the_same_page(hostile):
    report, text = hostile
    assert page(json.loads(json.dumps(report))) == text


def test_json_inside_a_script_cannot_end_it():
    text = safe_json(["</script><!--", "\u2028", "&"])
    assert not set("<>&\u2028") & set(text)
    assert json.loads(str(text)) == ["</script><!--", "\u2028", "&"]


def test_numbers():
    assert [pct(x) for x in (None, 0.0, 0.001, 0.934, 0.9999, 1.0)] == [
        "–", "0%", "<1%", "93%", ">99%", "100%",
    ]  # fmt: skip
    assert [num(x) for x in (None, -0.001, -1.5, 2.0)] == ["–", "0.00", "\u22121.50", "2.00"]


def test_a_table_that_is_too_large_keeps_what_to_review_first(monkeypatch):
    table = {
        "item": [f"i{n}" for n in range(2000)],
        "rank": [2000 - n if n >= 1000 else None for n in range(2000)],
        "noise": np.random.default_rng(0).random(2000).tolist(),
    }
    monkeypatch.setattr(page_module, "MOST_TABLE", 10_000)
    file = page_module._item_file(table)
    assert len(file["packed"]) < 12_000
    assert re.fullmatch(r"The [\d,]+ items to review first, of 2,000", file["words"])
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(base64.b64decode(file["packed"])).decode())))
    kept = {int(row["rank"]) for row in rows}
    assert kept == set(range(1, len(rows) + 1))


def test_large_crowds_are_cut_where_it_says():
    crowd = cw.simulate.one_coin(2000, n_annotators=700, n_classes=2, votes_per_item=5, random_state=0)
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "majority"))
    text = page(report)
    assert len(report["annotators"]) == 700
    assert "The 300 that matter most are listed here, of 700" in text
    assert text.count("<tr data-verdict=") == 300


def test_writing(tmp_path):
    crowd = cw.simulate.one_coin(100, n_annotators=8, random_state=0)
    consensus = cw.aggregate(crowd.votes, "one-coin")
    file = cw.write_report(crowd.votes, consensus, tmp_path / "report.html", title="Mine")
    assert file == tmp_path / "report.html"
    assert "<title>Mine – whom to believe</title>" in file.read_text(encoding="utf-8")
    assert cw.write_report(crowd.votes, None, tmp_path / "other.html").is_file()
    with pytest.raises(OutputError, match="could not be written"):
        cw.write_report(crowd.votes, consensus, tmp_path / "missing" / "report.html")


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
def test_a_million_votes_fit_in_five_megabytes():
    crowd = cw.simulate.one_coin(200_000, n_annotators=2000, n_classes=4, votes_per_item=5, random_state=0)
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "one-coin"), all_items=True)
    assert len(page(report).encode()) < 5e6


@pytest.mark.slow
def test_a_hundred_thousand_votes_fit_in_three_megabytes():
    crowd = cw.simulate.hammer_spammer(20_000, n_annotators=3000, n_classes=3, votes_per_item=5, random_state=0)
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "one-coin"), all_items=True)
    assert len(page(report).encode()) < 3e6


def test_how_many_more_counts_those_that_the_dict_leaves_out(monkeypatch):
    from crowdwise.report import build

    monkeypatch.setattr(build, "MOST_NAMES", 70)
    crowd = cw.simulate.hammer_spammer(
        1500, n_annotators=100, n_classes=3, share=0.1, votes_per_item=30, random_state=0
    )
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    spammers = report["summary"]["found"]["spammer"]
    assert sum(f["kind"] == "spammer" for f in report["findings"]) == 70 < spammers
    told = re.search(r"Also: .* and (\d+) more\.", page(report))
    assert told is not None
    assert int(told[1]) == spammers - page_module.FIRST - 60


def test_a_figure_is_the_same_wherever_it_stands():
    """Rounded once: 0.90746 is 90.7 % in the tile and in the sentence."""
    crowd = cw.simulate.dirichlet(100, n_annotators=8, votes_per_item=4, random_state=0)
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "majority"))
    found = cw.diagnose(crowd.votes, cw.aggregate(crowd.votes, "majority"))
    assert abs(report["summary"]["expected"] - found.expected) < 1e-6
    assert pct(report["summary"]["expected"], 1).replace("\u00a0", " ") in " ".join(report["summary"]["sure"])


def test_a_page_is_not_written_under_another_kind_of_name(tmp_path: Path) -> None:
    crowd = cw.simulate.one_coin(20, n_annotators=5, random_state=0)
    with pytest.raises(OutputError, match=r"report\.pdf: a report is an HTML page"):
        cw.write_report(crowd.votes, cw.aggregate(crowd.votes), tmp_path / "report.pdf")
    assert not any(tmp_path.iterdir())
