"""``crowdwise report``, ``crowdwise diagnose`` and ``aggregate --report``, as a user meets them."""

from __future__ import annotations

import json

import pytest

import crowdwise as cw
from command_line import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("crowd") / "digits"
    crowd = cw.simulate.machine(300, n_annotators=8, n_spammers=1, votes_per_item=6, random_state=0)
    crowd.save(place)
    return place


def test_a_report_is_written_and_the_headline_said(folder, tmp_path):
    done = run("report", folder, "--out", tmp_path / "page.html", "--title", "Digits & more")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "of 9 annotators" in done.stderr and "written: " in done.stderr
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>Digits &amp; more – reliability</title>" in text
    assert "Measured on 300 items with known truth" in text


def test_what_was_noticed_in_the_file_reaches_the_page(tmp_path):
    file = tmp_path / "votes.csv"
    rows = [f"{i},{a},{'Cat' if a == 'bob' else 'cat'}" for i in range(4) for a in ("ann", "bob", "cem")]
    file.write_text("\n".join(["item,annotator,label", *rows, "4,ann,"]) + "\n", encoding="utf-8")
    done = run("report", file, "--on-missing", "drop", "--json", "--out", tmp_path / "page.html")
    notes = json.loads(done.stdout)["reading_notes"]
    assert any("1 of 13 rows" in note for note in notes) and any("'cat', 'Cat'" in note for note in notes)
    assert all(f"Note: {note}" in done.stderr for note in notes)
    page = tmp_path / "page.html"
    text = page.read_text(encoding="utf-8")
    assert "Noticed while reading" in text and "1 of 13 rows" in text
    cased = [row.replace(",bob,", ",Bob,") for row in rows] + ["9,bob,cat", "9,ann,"]
    file.write_text("\n".join(["item,annotator,label", *cased]) + "\n", encoding="utf-8")
    done = run("report", file, "--on-missing", "drop", "--pseudonymise", tmp_path / "key.csv", "--json", "--out", page)
    assert "'bob', 'Bob'" in done.stderr or "'Bob', 'bob'" in done.stderr
    notes = json.loads(done.stdout)["reading_notes"]
    assert notes and not any("bob" in note.lower() for note in notes)
    file.write_text("\n".join(["item,annotator,label", *rows]) + "\n", encoding="utf-8")
    with pytest.warns(cw.errors.InputWarning, match="case"):
        assert any("'cat', 'Cat'" in note for note in cw.build_report(file)["reading_notes"])


def test_without_out_it_goes_to_report_html(folder, tmp_path):
    assert run("report", folder / "labels.csv", "--method", "majority", cwd=tmp_path).returncode == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "labels by <strong>majority</strong>" in text
    assert "Labels expected to be right" in text  # a file of votes alone has no truth to measure with


def test_json_is_what_the_page_shows(folder, tmp_path):
    done = run("report", folder, "--json", "--method", "dawid-skene", "--set", "tol=1e-5", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    facts = json.loads(done.stdout)
    assert facts["method"]["key"] == "dawid-skene"
    assert facts["method"]["parameters"]["tol"] == 1e-5
    assert facts["title"] == "digits"
    assert "item_table" not in facts
    assert not (tmp_path / "report.html").exists()
    assert run("report", folder, "--out", tmp_path / "facts.json", "--method", "dawid-skene").returncode == 0
    written = json.loads((tmp_path / "facts.json").read_text(encoding="utf-8"))
    assert (
        written["annotators"] == json.loads(run("report", folder, "--json", "-m", "dawid-skene").stdout)["annotators"]
    )


def test_truth_and_gold(folder, tmp_path):
    gold = tmp_path / "gold.csv"
    lines = (folder / "truth.csv").read_text().splitlines()
    gold.write_text("\n".join(lines[:101]) + "\n")
    facts = json.loads(
        run("report", folder / "labels.csv", "--truth", folder / "truth.csv", "--gold", gold, "--json").stdout
    )
    assert facts["truth"]["accuracy"]["n"] == 200


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--out", "page.pdf"), 2, "expected a name ending in .html or .json"),
        (("--out", "missing/page.html"), 1, "There is no folder missing"),
        (("--method", "dawid-sken"), 2, "Did you mean 'dawid-skene'?"),
        (("--attribute", "colour"), 2, "There is no attribute 'colour' of items"),
        (("--level", "3"), 2, "--level 3"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(folder, tmp_path, arguments, code, words):
    done = run("report", folder, *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_aggregate_writes_a_report_beside_its_labels(folder, tmp_path):
    page = tmp_path / "page.html"
    done = run("aggregate", folder, "--out", tmp_path / "labels.csv", "--report", page)
    assert done.returncode == 0, done.stderr
    assert "written: " in done.stderr and "page.html" in done.stderr
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run("aggregate", folder, "--report", tmp_path / "page.txt").returncode == 2


def test_diagnose_speaks_in_sentences_on_standard_output(folder):
    done = run("diagnose", folder)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Drop 1") and "of 9 annotators" in lines[0]
    assert lines[1].startswith("1,800 votes by 9 annotators on 300 items, 10 classes; labels by ")
    assert "Spammers" in lines
    assert any(line.startswith("  a8 is no better than guessing at their label rates: right on ") for line in lines)
    assert "\x1b" not in done.stdout


def test_diagnose_as_json(folder):
    found = json.loads(run("diagnose", folder, "--json", "--method", "dawid-skene").stdout)
    assert list(found) == [
        "headline", "answer_type", "method", "findings", "verdicts", "expected", "expected_interval", "level", "notes",
        "accuracy",
        "accuracy_low", "accuracy_high", "calibration_error", "calibration_error_low", "calibration_error_high",
    ]  # fmt: skip
    assert found["verdicts"]["a8"] == "drop"
    assert [f["names"] for f in found["findings"] if f["kind"] == "spammer"] == [["a8"]]


def test_on_a_terminal_names_are_no_markup(capsys):
    from rich.console import Console

    from crowdwise.cli.show_report import show_diagnosis

    base = cw.simulate.hammer_spammer(300, n_annotators=8, votes_per_item=6, random_state=0)
    names = [f"[red]{m}[/red]" for m in range(8)]
    votes = cw.Votes.from_codes(
        base.votes.item, base.votes.annotator, base.votes.label, items=range(300), annotators=names, classes=[0, 1]
    )
    screen = Console(force_terminal=True, width=60, record=True)
    show_diagnosis(cw.diagnose(votes), screen=screen)
    text = screen.export_text()
    assert "[red]" in text
    assert all(len(line) <= 60 for line in text.splitlines())


def test_an_honest_crowd_gets_a_quiet_page(tmp_path):
    cw.simulate.one_coin(300, n_annotators=8, n_classes=3, a=30, b=2, random_state=0).save(tmp_path / "crowd")
    said = run("diagnose", tmp_path / "crowd").stdout
    assert "Nothing speaks against any annotator, and no label is in doubt." in said
    assert "Nothing was found" in said
