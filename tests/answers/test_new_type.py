"""A new answer type is one record and what it names: registered here while the tests run, it works everywhere."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import crowdwise as cw
from answers import throw_away_type as own
from crowdwise import registry
from crowdwise.cli.main import app


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(registry.ANSWER_TYPES, "texts", own.RECORD)
    monkeypatch.setitem(registry.ANSWER_METHODS, "medoid", own.METHOD)


@pytest.fixture
def file(tmp_path):
    crowd = own.texts()
    crowd.answers.with_truth(None).to_frame("polars").write_csv(tmp_path / "texts.csv")
    return tmp_path / "texts.csv"


def test_python(file, tmp_path):
    crowd = own.texts()
    found = cw.aggregate(file)
    assert found.method == "medoid" and found.answer_type == "texts" and found.score(crowd.parameters["truth"]) > 0.8
    assert cw.aggregate(crowd.answers, "medoid", answer_type="transcriptions").texts.tolist() == found.texts.tolist()
    assert cw.load(found.save(tmp_path / "saved")).texts.tolist() == found.texts.tolist()
    assert cw.metrics.measure("texts", crowd.answers, found)["exact_match"].value > 0.8
    assert 0.8 < cw.agreement(crowd.answers)["likeness"].value < 1.0
    diagnosis = cw.diagnose(crowd.answers, found)
    assert len(diagnosis.verdicts) == 5 and {finding.kind for finding in diagnosis.findings} <= {"items"}
    report = cw.build_report(crowd.answers, found)
    assert report["says"] == "a text" and report["summary"]["headline"].startswith("60 texts")
    assert report["measured"]["exact_match"]["name"] == "Exact match"
    page = cw.write_report(crowd.answers, found, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "How sure the texts are" in page and "Likeness" in page


@pytest.mark.parametrize("command", ["aggregate", "diagnose", "report", "agreement", "describe"])
def test_command_line(file, command):
    facts = json.loads(run(command, file, "--json").stdout)
    assert facts["answer_type"] == "texts"
    done = run(command, file, *(["--out", file.with_suffix(".html")] if command == "report" else []))
    assert done.exit_code == 0, done.stderr


def test_methods_are_listed(file):
    listed = json.loads(run("methods", "--answers", "texts", "--json").stdout)
    assert [entry["key"] for entry in listed["answer_methods"]] == ["medoid"]
    assert (
        "medoid is for texts (a text), not for votes"
        in run("aggregate", file, "--method", "medoid", "--answers", "votes").stderr
    )
