"""The benchmark of learners (benchmarks/learner_runs.py): its data, its facts, its page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import learner_runs as bench
import learners_page as pages
import numpy as np
import pytest
import tables

import crowdwise as cw
from crowdwise.bench import runs
from crowdwise.errors import InputError, ParameterError, ReadError

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED, RESULTS = ROOT / "benchmarks" / "published_learners.csv", ROOT / "benchmarks" / "results" / "learners.json"
PAGE = ROOT / "docs" / "benchmarks" / "learners.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a set that has inputs, one that has texts, and one that has neither."""
    place = tmp_path_factory.mktemp("sets")
    made = cw.simulate.machine(150, n_annotators=5, test_share=0.1, votes_per_item=3, random_state=0)
    made.save(place / "numbers")
    cw.simulate.one_coin(20, n_annotators=4, random_state=0).save(place / "bare")
    rng = np.random.default_rng(0)
    words = {"good": ["fine", "great", "lovely"], "bad": ["dull", "awful", "poor"]}
    text = lambda truth: " ".join(rng.choice([*words[truth], "film", "the"], size=8))  # noqa: E731
    said = place / "words"
    said.mkdir()
    truth = [("good", "bad")[n % 2] for n in range(60)]
    votes = [(n, m, t if rng.random() < 0.9 else "bad") for n, t in enumerate(truth) for m in range(3)]
    (said / "labels.csv").write_text("task,worker,label\n" + "".join(f"{n},{m},{t}\n" for n, m, t in votes))
    (said / "truth.csv").write_text("task,label\n" + "".join(f"{n},{t}\n" for n, t in enumerate(truth)))
    (said / "texts.csv").write_text("task,text\n" + "".join(f"{n},{text(truth[n])}\n" for n in reversed(range(60))))
    (said / "test.csv").write_text("label,text\n" + "".join(f"{t},{text(t)}\n" for t in truth[:20]))
    return place


# -------------------------------------------------------------------- the data


def test_texts_become_axes_of_the_training_texts_in_the_order_of_the_votes(folder):
    task = runs.load_task(folder, "words")
    assert bench.shape(task) == {"items": 60, "annotators": 3, "votes": 180, "classes": 2, "test": 20}
    assert task.x.shape[1] == task.x_test.shape[1] <= 60 and task.settings == {"scale": False}
    good = task.votes.classes.tolist().index("good")
    # Items alternate between good and bad, so words of one kind are found on every other row.
    learner = cw.CrowdClassifier("two-stage", epochs=20, random_state=0).fit(task.x, task.votes)
    assert (learner.predict_proba(task.x).argmax(axis=1) == task.votes.truth).mean() > 0.9
    assert (task.y_test == np.where(np.arange(20) % 2 == 0, good, 1 - good)).all()


def test_digits_to_test_on_are_no_digits_to_learn_from():
    task = runs.load_task(Path("nowhere"), "digits")
    assert bench.shape(task) == {"items": 899, "annotators": 17, "votes": 3596, "classes": 10, "test": 359}


def test_sets_that_cannot_be_used(folder):
    with pytest.raises(InputError, match=r"features\.npz with x_train"):
        runs.load_task(folder, "bare")
    with pytest.raises(ReadError, match="no data set called none"):
        bench.find_sets(folder, ["none"])
    assert bench.find_sets(folder, None) == ["digits"]


def test_an_item_without_text_is_named(folder, tmp_path):
    shutil.copytree(folder / "words", tmp_path / "words")
    file = tmp_path / "words" / "texts.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputError, match=r"words has no text for 1 of its items: 0\. Add them"):
        runs.load_task(tmp_path, "words")


def test_without_a_folder_there_are_the_digits_alone(monkeypatch):
    monkeypatch.delenv("CROWDWISE_DATA", raising=False)
    assert bench.plan(methods=["ccem"]).sets == ["digits"]
    with pytest.raises(ReadError, match="set CROWDWISE_DATA"):
        bench.plan(sets=["labelme"], methods=["ccem"])


# -------------------------------------------------------------------- measuring


def test_a_cell_is_what_the_learner_gives(folder):
    task = runs.load_task(folder, "numbers")
    cell = bench.measure(task, "numbers", "ccem", 3, epochs=6)
    last = cw.CrowdClassifier("ccem", random_state=3, epochs=6).fit(task.x, task.votes)
    chosen = cw.CrowdClassifier("ccem", random_state=3, epochs=6, select="votes").fit(task.x, task.votes)
    right = task.votes.classes[task.y_test]
    assert cell.accuracy_last == last.score(task.x_test, right)
    assert cell.accuracy_selected == chosen.score(task.x_test, right)
    held = [step.held_out for step in chosen.history_]
    assert cell.epoch_selected == int(np.argmax(held)) + 1
    assert cell.accuracy_consensus == last.consensus_.score(task.votes.truth)
    q = last.predict_proba(task.x_test)
    assert cell.log_loss == pytest.approx(-np.log(q[np.arange(len(q)), task.y_test]).mean())


def test_learners_without_epochs_and_first_stages(folder):
    task = runs.load_task(folder, "numbers")
    cell = bench.measure(task, "numbers", "crowdlab", 0, epochs=1)
    assert cell.accuracy_last > 0.5 and cell.accuracy_selected is None and cell.epoch_selected is None
    assert bench.create("two-stage:dawid-skene", 1, None).aggregator == "dawid-skene"
    assert {"two-stage", "two-stage:dawid-skene", "two-stage:anchored"} <= set(bench.all_methods())
    for wrong in ("ccem:majority", "two-stage:max-mig", "nothing"):
        with pytest.raises(ParameterError):
            bench.create(wrong, 0, None)


def test_a_problem_leaves_a_gap():
    task = runs.load_task(Path("nowhere"), "digits")
    flat = runs.Task(np.full((len(task.votes), 3), np.nan), task.votes, task.x_test[:, :3], task.y_test)
    cell = bench.measure(flat, "digits", "ccem", 0, epochs=1)
    assert cell.problem.startswith("Row 0 of X holds NaN") and cell.accuracy_last is None


def test_processes_give_the_same_as_one(folder):
    plan = bench.plan(folder, ["numbers"], ["ccem"], seeds=2, epochs=2)
    told = []
    alone = bench.measure_all(plan, jobs=1)
    several = bench.measure_all(plan, jobs=2, progress=lambda *words: told.append(words))
    assert told == [("numbers", "ccem")] * 2
    for a, b in zip(alone["cells"], several["cells"], strict=True):
        assert {k: v for k, v in a.items() if k != "seconds"} == {k: v for k, v in b.items() if k != "seconds"}


# -------------------------------------------------------------------- the page


def test_a_page_is_written_and_can_be_written_again_without_the_data(folder, tmp_path):
    figures = tmp_path / "figures.csv"
    figures.write_text(
        "method,data,value,source,reason\nccem,numbers,1.0,a paper,It was a joke.\ntwo-stage,words,2,another,\n"
        "ccem,elsewhere,50,a third,\n"
    )
    page, again, kept = tmp_path / "page.md", tmp_path / "again.md", tmp_path / "run.json"
    words = ["--data", folder, "--sets", "numbers,words", "--methods", "ccem,two-stage,crowdlab", "--seeds", 2]
    words += ["--epochs", 2, "--jobs", 1, "--page", page, "--published", figures, "--out", kept]
    bench.main([str(word) for word in words])
    text, facts = page.read_text(encoding="utf-8"), json.loads(kept.read_text(encoding="utf-8"))
    values = [c["accuracy_last"] for c in facts["cells"] if (c["data"], c["method"]) == ("numbers", "ccem")]
    mean, sd = 100 * np.mean(values), 100 * np.std(values, ddof=1)
    assert f"{mean:.1f}" in text and (sd < 0.05 or f" ± {sd:.1f}" in text)
    assert "A trial: all learners had 2 epochs only." in text and "standard deviation over 2 seeds" in text
    assert "| numbers | 150 | 5 | 450 | 10 | 180 |" in text
    assert "(1.0); a paper: It was a joke.\n" in text and "(2.0); another: not known.\n" in text
    assert "elsewhere" not in text
    bench.main(["--from", str(kept), "--page", str(again), "--published", str(figures)])
    assert again.read_text(encoding="utf-8") == text


def test_means_and_gaps():
    cells = [
        {"data": "x", "method": m, "seed": s, **dict.fromkeys(pages.MEASURES), "accuracy_last": a}
        for m, s, a in (("a", 0, 0.5), ("a", 1, 0.7), ("b", 0, 0.6), ("c", 0, None))
    ]
    shape = {"items": 4, "annotators": 2, "votes": 8, "classes": 2, "test": 4}
    facts = {
        "seeds": 2,
        "epochs": None,
        "methods": ["a", "b", "c"],
        "data": ["x"],
        "sets": {"x": shape},
        "cells": cells,
    }
    found = pages.means(facts)
    assert found["x", "a"]["accuracy_last"] == (pytest.approx(0.6), pytest.approx(np.sqrt(0.02)))
    assert "log_loss" not in found["x", "a"] and ("x", "c") not in found
    text = pages.page(facts)
    assert "| `a` | **60.0** ± 14.1 |" in text and "| `b` | **60.0** |" in text
    assert "`c`" not in text and "published" not in text and "A trial" not in text


def test_what_cannot_be_done_is_said_before_the_work(folder, tmp_path):
    (tmp_path / "odd.json").write_text('{"cells": []}')
    (tmp_path / "odd.csv").write_text("method,data\nx,y\n")
    for words, part in (
        (("--from", tmp_path / "odd.json"), "lacks seeds, epochs, methods, data, sets"),
        (("--from", tmp_path / "none.json"), "none.json"),
        (("--page", tmp_path / "p.md", "--published", tmp_path / "odd.csv"), "no column 'value'"),
        (("--data", folder, "--sets", "nothing"), "nothing"),
        (("--data", folder, "--methods", "majority"), "crowdwise.aggregate"),
    ):
        with pytest.raises((ReadError, ParameterError), match=part):
            bench.main([str(word) for word in words])


# -------------------------------------------------------------------- figures of others


def test_published_figures_are_percentages_of_known_learners_and_sets_and_said_once():
    rows = tables.read_published(PUBLISHED, "value")
    assert all(1.0 < r.accuracy <= 100.0 and r.source and r.reason.endswith(".") for r in rows)
    assert {r.data for r in rows} <= set(bench.SETS)
    assert {r.method for r in rows} <= set(bench.all_methods())
    assert len({(r.data, r.method, r.source) for r in rows}) == len(rows)


def test_the_page_is_the_one_its_results_give():
    facts, published = tables.read_facts(RESULTS, "learners"), tables.read_published(PUBLISHED, "value")
    assert facts["seeds"] >= 5 and facts["epochs"] is None
    assert PAGE.read_text(encoding="utf-8") == pages.page(facts, published)


# -------------------------------------------------------------------- what an epoch costs


def test_the_yardstick_of_epochs_is_measured_on_five_different_votes_per_item():
    import runpy

    epochs = runpy.run_path(str(ROOT / "benchmarks" / "epochs.py"), run_name="epochs")
    X, votes = epochs["crowd"](40, 12, 3, (6,))
    assert X.shape == (40, 6) and (np.diff(votes.indptr) == 5).all() and votes.n_annotators == 12
    assert epochs["keys"]()[0] == "two-stage" and {"ccem", "max-mig"} <= set(epochs["keys"]())
    assert epochs["epoch_seconds"]("ccem", "mlp", X, votes, 3) > 0.0
    facts = {"network": "mlp", "learners": {"two-stage": {"ratio": 1.0}, "ccem": {"ratio": 1.5}}}
    assert "over 1.3 with mlp: ccem" in epochs["table"]({"ratios": [facts]})
