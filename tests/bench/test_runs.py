"""``crowdwise bench``: its facts and table; the page of benchmarks/ and the figures of others it is held against."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import labels_page
import pytest
import tables
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.bench import runs
from crowdwise.cli.main import app
from crowdwise.errors import ReadError

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED, RESULTS = ROOT / "benchmarks" / "published.csv", ROOT / "benchmarks" / "results" / "labels.json"
PAGE = ROOT / "docs" / "benchmarks" / "labels.md"


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def beside():
    return labels_page.compare(tables.read_facts(RESULTS, "labels"), tables.read_published(PUBLISHED))


# -------------------------------------------------------------------- the page of the documentation


def test_every_large_difference_from_a_published_figure_has_its_reason(beside):
    assert len(beside) > 100
    silent = [(r.published.method, r.published.data, r.published.source) for r in beside if r.large]
    silent = [
        key
        for key, r in zip(silent, [r for r in beside if r.large], strict=True)
        if not (r.published.reason.endswith(".") and len(r.published.reason.split()) >= 6)
    ]
    assert silent == []


def test_no_reason_is_left_from_a_difference_that_is_gone(beside):
    assert [(r.published.method, r.published.data) for r in beside if r.published.reason and not r.large] == []


def test_the_page_is_the_one_its_results_give():
    assert PAGE.read_text(encoding="utf-8") == labels_page.page(
        tables.read_facts(RESULTS, "labels"), tables.read_published(PUBLISHED)
    )


def test_the_page_has_every_method_that_the_results_have():
    facts, text = tables.read_facts(RESULTS, "labels"), PAGE.read_text(encoding="utf-8")
    for key in facts["methods"]:
        if not cw.METHODS[key].load().needs_gold:
            assert text.count(f"\n| `{key}` | ") == 1, key


def test_published_figures_are_percentages_of_known_sets_and_said_once():
    rows = tables.read_published(PUBLISHED)
    assert all(0.0 < r.accuracy <= 100.0 and r.source for r in rows)
    assert {r.data for r in rows} <= set(tables.read_facts(RESULTS, "labels")["data"])
    assert len({(r.data, r.method, r.source) for r in rows}) == len(rows)


# -------------------------------------------------------------------- any page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    for seed, name in enumerate(("first", "second")):
        cw.simulate.dirichlet(60, n_annotators=8, n_classes=3, votes_per_item=4, random_state=seed).save(folder / name)
    return folder


def published(path: Path, *rows) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([("data", "method", "accuracy", "source", "reason"), *rows])
    return path


def test_a_page_is_made_from_the_facts_of_a_run(folder, tmp_path):
    facts = runs.measure_all(folder, ["first", "second"], ["majority", "dawid-skene", "gold-weighted"])
    right = 100.0 * facts["cells"][0]["accuracy"]
    figures = published(
        tmp_path / "figures.csv",
        ("first", "majority", f"{right:.2f}", "a paper", ""),
        ("second", "majority", "1.00", "a paper", "It was a joke."),
        ("second", "dawid-skene", "2.00", "another", ""),
        ("third", "majority", "50", "elsewhere", ""),
    )
    kept = tmp_path / "run.json"
    done = run("bench", "--data", folder, "--methods", "majority,dawid-skene,gold-weighted", "--out", kept)
    assert done.exit_code == 0, done.output
    assert "gold-weighted on second: needs known truth" in done.output
    told = tables.read_facts(kept, "labels")
    assert {c["accuracy"] for c in told["cells"]} == {c["accuracy"] for c in facts["cells"]}
    text = labels_page.page(told, tables.read_published(figures))
    assert "| `gold-weighted` |" not in text
    assert "| first | 60 | 8 | 240 | 3 | 60 |" in text
    said = " ".join(text.split())
    assert "has 3 figures" in said and ". 1 of them are within" in said and "`majority`, first" not in text
    assert "(1.00); a paper: It was a joke.\n" in text and "(2.00); another: not known.\n" in text
    assert "third" not in text


def test_learners_are_measured_beside_methods(tmp_path):
    made = cw.simulate.machine(150, n_annotators=5, test_share=0.1, votes_per_item=3, random_state=0)
    made.save(tmp_path / "numbers")
    cw.simulate.one_coin(20, n_annotators=4, random_state=0).save(tmp_path / "bare")
    done = run("bench", "--data", tmp_path, "--methods", "majority,raykar", "--json")
    assert done.exit_code == 0, done.output
    cells = {(c["data"], c["method"]): c for c in json.loads(done.stdout)["cells"]}
    task = runs.load_task(tmp_path, "numbers")
    learner = cw.Raykar(random_state=0).fit(task.x, task.votes)
    cell = cells["numbers", "raykar"]
    assert cell["accuracy_test"] == learner.score(task.x_test, task.votes.classes[task.y_test])
    assert cell["accuracy"] == learner.consensus_.score(task.votes.truth)
    assert cells["numbers", "majority"]["accuracy_test"] is None
    assert (
        "features.npz with x_train" in cells["bare", "raykar"]["problem"] + str(task)
        or cells["bare", "raykar"]["problem"]
    )
    shown = run("bench", "--data", tmp_path, "--methods", "majority,raykar").output
    assert "numbers, test" in shown and "bare, test" not in shown and "raykar on bare: " in shown


def test_a_page_without_published_figures_has_none(folder, tmp_path):
    facts = runs.measure_all(folder, ["first"], ["majority"], seeds=2)
    assert "published" not in labels_page.page(facts)
    assert "the mean of 2 seeds" in labels_page.page(facts)


def test_a_method_that_refuses_a_set_leaves_a_gap_and_no_mean():
    cells = [
        {"data": d, "method": m, "accuracy": a, "log_loss": a, "seconds": a}
        for d, m, a in (("x", "a", 0.5), ("y", "a", None), ("x", "b", 0.25), ("y", "b", 0.75))
    ]
    shape = {"items": 4, "annotators": 2, "votes": 8, "classes": 2, "items_with_truth": 4}
    facts = {"seeds": 1, "methods": ["a", "b"], "data": ["x", "y"], "sets": {"x": shape, "y": shape}, "cells": cells}
    text = labels_page.page(facts)
    assert "| `a` | **50.0** |  |  |  |  |" in text
    assert "| `b` | 25.0 | **75.0** | 50.0 | 0.50 | 0.50 |" in text


def test_what_cannot_be_done_is_said_before_the_work(folder, tmp_path):
    for words, part in (
        (("--out", tmp_path / "page.md"), ".json"),
        (("--sets", "third"), "called third"),
        (("--methods", "nothing"), "Unknown method"),
        (("--methods", "gaussian"), "is for ratings"),
    ):
        done = run("bench", "--data", folder, *words)
        assert done.exit_code != 0 and part in done.output, (words, done.output)
    (tmp_path / "odd.json").write_text('{"cells": []}')
    with pytest.raises(ReadError, match="it lacks seeds, methods, data, sets"):
        tables.read_facts(tmp_path / "odd.json", "labels")
    (tmp_path / "odd.csv").write_text("data,method\nx,majority\n")
    with pytest.raises(ReadError, match="no column 'accuracy'"):
        tables.read_published(tmp_path / "odd.csv")


def test_a_folder_without_data_sets(tmp_path, monkeypatch):
    monkeypatch.delenv("CROWDWISE_DATA", raising=False)
    assert "set CROWDWISE_DATA" in run("bench").output
    (tmp_path / "one").mkdir()
    with pytest.raises(ReadError, match="holds no data sets: expected a folder for each"):
        runs.find_sets(tmp_path)
