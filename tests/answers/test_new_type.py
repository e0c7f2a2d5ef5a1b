"""A new answer type is one record and what it names: registered here while the tests run, it works everywhere."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import crowdwise as cw
from answers import throw_away_type as own
from crowdwise import registry
from crowdwise.cli.main import app
from crowdwise.importers.collect import Collector
from crowdwise.importers.export import build


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(registry.ANSWER_TYPES, "phrases", own.RECORD)
    monkeypatch.setitem(registry.ANSWER_METHODS, "nearest", own.METHOD)


@pytest.fixture
def file(tmp_path):
    crowd = own.phrases()
    crowd.answers.with_truth(None).to_frame("polars").write_csv(tmp_path / "phrases.csv")
    return tmp_path / "phrases.csv"


def test_python(file, tmp_path):
    crowd = own.phrases()
    found = cw.aggregate(file)
    assert found.method == "nearest" and found.answer_type == "phrases" and found.score(crowd.parameters["truth"]) > 0.8
    assert cw.aggregate(crowd.answers, "nearest", answer_type="sayings").phrases.tolist() == found.phrases.tolist()
    assert cw.load(found.save(tmp_path / "saved")).phrases.tolist() == found.phrases.tolist()
    assert cw.metrics.measure("phrases", crowd.answers, found)["exact_match"].value > 0.8
    assert 0.8 < cw.agreement(crowd.answers)["likeness"].value < 1.0
    diagnosis = cw.diagnose(crowd.answers, found)
    assert len(diagnosis.verdicts) == 5 and {finding.kind for finding in diagnosis.findings} <= {"items"}
    report = cw.build_report(crowd.answers, found)
    assert report["says"] == "a phrase" and report["summary"]["headline"].startswith("60 phrases")
    assert report["measured"]["exact_match"]["name"] == "Exact match"
    page = cw.write_report(crowd.answers, found, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "How sure the phrases are" in page and "Likeness" in page


@pytest.mark.parametrize("command", ["aggregate", "diagnose", "report", "agreement", "describe"])
def test_command_line(file, command):
    facts = json.loads(run(command, file, "--json").stdout)
    assert facts["answer_type"] == "phrases"
    done = run(command, file, *(["--out", file.with_suffix(".html")] if command == "report" else []))
    assert done.exit_code == 0, done.stderr


def test_simulated(tmp_path):
    assert "letters" in run("simulate").stdout
    done = run("simulate", "phrases", "--out", tmp_path / "crowd", "--set", "n_items=12", "--json")
    assert json.loads(done.stdout) | {"out": ""} == {
        "scenario": "phrases", "answer_type": "phrases", "items": 12, "annotators": 5, "answers": 60, "out": "",
    }  # fmt: skip
    facts = json.loads(run("aggregate", tmp_path / "crowd", "--json").stdout)
    assert facts["answer_type"] == "phrases" and facts["exact_match"] > 0.8


def test_imported(tmp_path):
    into = Collector()
    for who, text in (("ann", "a red bird"), ("bob", "a red bird"), ("cem", "a bird")):
        into.answer("phrases", "caption", "picture 1", who, text)
    into.gold("caption", "picture 1", "a red bird", "phrases")
    export = build(into, "label-studio", tmp_path)
    assert type(export.table("caption")) is own.Phrases and export.table("caption").truth.tolist() == ["a red bird"]
    (folder,) = export.save(tmp_path / "imported")
    facts = json.loads(run("aggregate", folder, "--json").stdout)
    assert (facts["answer_type"], facts["answers"], facts["exact_match"]) == ("phrases", 3, 1.0)


def test_methods_are_listed(file):
    listed = json.loads(run("methods", "--answers", "phrases", "--json").stdout)
    assert [entry["key"] for entry in listed["answer_methods"]] == ["nearest"]
    assert (
        "nearest is for phrases (a phrase), not for votes"
        in run("aggregate", file, "--method", "nearest", "--answers", "votes").stderr
    )
