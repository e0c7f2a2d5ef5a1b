"""The command line for answers beyond classes."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise import registry
from crowdwise.cli import app

FAST = ["--set", "n_clusters=2", "--set", "restarts=0"]


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words], prog_name="crowdwise")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("answers")
    crowd = cw.simulate.same_or_different(30, n_clusters=2, n_annotators=5, random_state=0)
    crowd.answers.to_frame("polars").write_csv(path / "same.csv")
    pl.DataFrame({"item": crowd.answers.items, "label": crowd.truth}).write_csv(path / "kinds.csv")
    sets = cw.simulate.label_sets(30, n_labels=3, n_annotators=8, random_state=0)
    sets.answers.to_frame("polars").write_csv(path / "sets.csv")
    true = ["|".join(sets.answers.labels[row]) for row in sets.truth]
    pl.DataFrame({"item": sets.answers.items, "labels": true}).write_csv(path / "true.csv")
    votes = cw.simulate.one_coin(40, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0)
    votes.votes.to_frame("polars").write_csv(path / "votes.csv")
    return path


def test_the_kind_is_guessed_and_said_aloud_and_all_is_written(folder, tmp_path):
    out, people, kept = tmp_path / "clusters.csv", tmp_path / "people.csv", tmp_path / "kept"
    done = run("aggregate", folder / "same.csv", *FAST, "--out", out, "--annotators", people, "--save", kept)
    assert done.exit_code == 0, done.output
    assert "read as similar, since 'item_a' and 'item_b' are two items" in done.stderr
    assert pl.read_csv(out).columns[:3] == ["item", "cluster", "probability"]
    assert "sensitivity_low" in pl.read_csv(people).columns
    assert cw.Clustering.load(kept).method == "crowd-clustering"
    assert "written:" in done.stderr


def test_figures_against_truth_as_json(folder):
    done = run(
        "aggregate", folder / "same.csv", "--answers", "similar", *FAST, "--truth", folder / "kinds.csv", "--json"
    )
    facts = json.loads(done.stdout)
    assert facts["answers"] == "similar" and facts["adjusted_rand"] > 0.8
    assert facts["accuracy_low"] <= facts["accuracy"] <= facts["accuracy_high"]
    done = run("aggregate", folder / "sets.csv", "--truth", folder / "true.csv", "--json", "--set", "share=false")
    facts = json.loads(done.stdout)
    assert facts["method"] == "binary-relevance" and facts["f1"] > 0.5 and 0 <= facts["subset_accuracy"] <= 1


def test_sets_go_to_standard_output(folder):
    done = run("aggregate", folder / "sets.csv", "--answers", "sets", "--set", "base=majority")
    table = pl.read_csv(done.stdout.encode())
    assert table.columns == ["item", "labels", "size", "probability", "entropy", "answers"]
    assert "read as" not in done.stderr  # what was asked for need not be said


def test_columns_may_be_named(folder, tmp_path):
    table = pl.read_csv(folder / "same.csv").rename({"item_a": "uno", "item_b": "due", "annotator": "who"})
    table.write_csv(tmp_path / "odd.csv")
    words = ["aggregate", tmp_path / "odd.csv", "--answers", "similar", "--json", "--annotator", "who", *FAST]
    assert run(*words).exit_code == 1
    assert run(*words, "--column", "item_a=uno", "--column", "item_b=due").exit_code == 0


def test_a_method_says_the_kind(folder):
    done = run("aggregate", folder / "same.csv", "--method", "crowd-clustering", "--json", *FAST)
    assert json.loads(done.stdout)["answers"] == "similar"


def test_classes_stay_what_they_were(folder):
    done = run("aggregate", folder / "votes.csv", "--json")
    assert json.loads(done.stdout)["method"] == registry.DEFAULT and "read as" not in done.stderr
    same = run("aggregate", folder / "votes.csv", "--answers", "classes", "--json", "--method", "majority")
    assert json.loads(same.stdout)["method"] == "majority"


def test_grades_are_votes_for_a_method_of_theirs(folder, monkeypatch):
    entry = registry.Entry("graded", "grades", "one_coin_for_grades:Graded", "A stand-in", "")
    monkeypatch.setattr(registry.Entry, "load", lambda self: cw.OneCoin if self.key == "graded" else LOAD(self))
    monkeypatch.setitem(registry.BEYOND, "graded", entry)
    words = ["aggregate", folder / "votes.csv", "--answers", "grades", "--method", "graded"]
    truth = cw.simulate.one_coin(40, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0).truth
    pl.DataFrame({"item": np.arange(40), "label": truth}).write_csv(folder / "grades.csv")
    done = run(*words, "--truth", folder / "grades.csv", "--json")
    assert json.loads(done.stdout)["answers"] == "grades" and json.loads(done.stdout)["accuracy"] > 0.5
    assert "p(0)" in run(*words, "--probabilities").stdout.splitlines()[0]
    assert run(*words, "--gold", folder / "grades.csv", "--json").exit_code == 0


LOAD = registry.Entry.load


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["same.csv", "--method", "volmaxdcc"], 2, "inputs as well"),
        (["same.csv", "--answers", "similar", "--method", "binary-relevance"], 2, "is for sets"),
        (["same.csv", "--answers", "similar", "--label", "x"], 2, "label does not apply to similar"),
        (["same.csv", "--column", "item_a"], 2, "expected part=name"),
        (["same.csv", "--gold", "kinds.csv"], 2, "no use for known truth"),
        (["same.csv", "--probabilities", *FAST], 2, "--probabilities"),
        (["same.csv", "--set", "clusters=2"], 2, "Did you mean 'n_clusters'"),
        (["votes.csv", "--column", "item=x"], 2, "other answers than classes"),
        (["votes.csv", "--answers", "sets"], 0, ""),
        (["votes.csv", "--answers", "similar"], 1, "item_a"),
        (["votes.csv", "--answers", "opinions"], 2, ""),
    ],
)
def test_mistakes_are_explained(folder, words, code, text):
    done = run("aggregate", folder / words[0], *[folder / w if str(w).endswith(".csv") else w for w in words[1:]])
    assert done.exit_code == code, done.output
    assert text in done.stderr


def test_methods_are_listed_by_kind():
    done = run("methods", "--answers", "similar")
    assert "crowd-clustering" in done.stdout and "binary-relevance" not in done.stdout
    everything = run("methods").stdout
    assert all(key in everything for key in registry.BEYOND)
    facts = json.loads(run("methods", "--json").stdout)
    assert {entry["key"] for entry in facts["beyond"]} == set(registry.BEYOND)
    assert set(facts) == {"default", "methods", "default_learner", "learners", "beyond", "answers"}
    assert set(json.loads(run("methods", "--answers", "sets", "--json").stdout)) == {"beyond", "answers"}
    assert run("methods", "--answers", "opinions").exit_code == 2
