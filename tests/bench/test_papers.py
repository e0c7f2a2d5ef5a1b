"""The papers' tables: the plan, cells that stop and continue, the file of results, the page."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import numpy as np
import papers
import papers_data
import papers_page
import papers_plan
import papers_runs
import pytest

from crowdwise import simulate
from crowdwise.errors import ParameterError, ReadError

PLAN = """
[tables.small]
network = "tanno"
crowds = ["tiny"]
learners = ["max-mig", "two-stage:majority"]
seeds = 2
[tables.small.settings]
epochs = 4
batch_size = 25
augment = "crop"
measure_every = 2
[tables.small.own.max-mig]
crowd_lr = 0.05
[tables.small.published.accuracy_last]
max-mig = [1.0]
"""


def tiny(folder, data, seed):
    """Images whose upper or lower half is bright."""
    crowd = simulate.one_coin(120, n_annotators=5, a=9.0, b=1.0, random_state=seed)
    rng = np.random.default_rng(seed)
    X = rng.integers(100, size=(120, 8, 8, 3), dtype=np.uint8)
    for n, k in enumerate(crowd.truth):
        X[n, 4 * k : 4 * k + 4] += 120
    votes, some, rest = crowd.votes, np.arange(100), np.arange(100, 120)
    return papers_data.ImageTask(
        X[:100], votes[some], X[100:], crowd.truth[100:], votes[rest], crowd.parameters["confusion"]
    )


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setitem(papers_data.CROWDS, "tiny", tiny)
    monkeypatch.setattr(papers_runs, "decode", lambda folder: None)
    monkeypatch.setattr(papers_runs, "CHECKPOINT_EVERY", 1)
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    return papers_plan.read_plan(file)


def setup(tmp_path, **more):
    return papers_runs.Setup(tmp_path, None, tmp_path / "work", device="cpu", **more)


def figures(row):
    return {name: value for name, value in row.items() if "seconds" not in name}


class TestPlan:
    def test_cells(self, plan):
        cells = plan[0].cells
        assert [cell.name for cell in cells] == [
            "small/tiny/max-mig/0", "small/tiny/two-stage:majority/0", "small/tiny/max-mig/1",
            "small/tiny/two-stage:majority/1",
        ]  # fmt: skip
        assert cells[0].settings["crowd_lr"] == 0.05 and "crowd_lr" not in cells[1].settings

    def test_some_of_them(self, plan):
        assert len(papers_plan.chosen(plan, ["small"], [1])) == 2
        assert len(papers_plan.chosen(plan, ["*/max-mig/*"], None)) == 2
        ordered = papers_plan.chosen(plan, ["*/two-stage*", "small"], None)
        assert [cell.name[11:] for cell in ordered] == [
            "two-stage:majority/0", "two-stage:majority/1", "max-mig/0", "max-mig/1"
        ]  # fmt: skip
        with pytest.raises(ParameterError, match="No cell"):
            papers_plan.chosen(plan, ["other"], None)

    def test_other_settings(self, plan, tmp_path):
        changed = papers_plan.read_plan(tmp_path / "plan.toml", ["epochs=2", 'schedule="cosine"'])
        assert changed[0].cells[0].settings | {"epochs": 2, "schedule": "cosine"} == changed[0].cells[0].settings
        with pytest.raises(ParameterError, match="KEY=VALUE"):
            papers_plan.read_plan(tmp_path / "plan.toml", ["schedule=cosine"])

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ('"tiny"', '"nobody"', "no crowd 'nobody'"),
            ("epochs = 4", "epoch = 4", "no setting 'epoch'"),
            ("network =", "net =", "net unknown"),
            ('learners = ["max-mig", "two-stage:majority"]', "", "lacks learners"),
        ],
    )
    def test_mistakes_are_named(self, plan, tmp_path, old, new, words):
        (tmp_path / "plan.toml").write_text(PLAN.replace(old, new))
        with pytest.raises(ReadError, match=words):
            papers_plan.read_plan(tmp_path / "plan.toml")

    def test_the_shipped_plan_is_one(self, pytestconfig):
        tables = papers_plan.read_plan(pytestconfig.rootpath / "benchmarks" / "papers.toml")
        assert {"max-mig-cifar10", "cifar10n", "tanno-cifar10"} <= {table.name for table in tables}

    def test_columns_are_crowds_with_settings_for_those_who_have_them(self, plan, tmp_path):
        more = '[tables.small.columns]\nlow = { crowd = "tiny", clip = 0.5, prior = 3.0 }\nhigh = { crowd = "tiny" }\n'
        text = PLAN.replace('crowds = ["tiny"]', "").replace('"max-mig", ', '"deep-mf", ').replace("own.max", "own.no")
        (tmp_path / "plan.toml").write_text(text.replace("max-mig = [1.0]", "") + more)
        (table,) = papers_plan.read_plan(tmp_path / "plan.toml")
        assert table.crowds == ["low", "high"]
        first, second, third, *_ = table.cells
        assert (first.name, first.data) == ("small/low/deep-mf/0", "tiny")
        assert (first.settings["prior"], first.settings["clip"]) == (3.0, 0.5)
        assert "prior" not in second.settings and second.settings["clip"] == 0.5
        assert not {"prior", "clip"} & set(third.settings)
        with_error = (tmp_path / "plan.toml").read_text().replace("prior = 3.0", "height = 3.0")
        (tmp_path / "plan.toml").write_text(with_error)
        with pytest.raises(ReadError, match="none of its learners has the setting 'height'"):
            papers_plan.read_plan(tmp_path / "plan.toml")

    def test_a_learner_by_another_name_and_its_curve(self, plan, tmp_path):
        text = PLAN.replace('"max-mig", "two-stage:majority"', '"soft"').replace("max-mig = [1.0]", "")
        text = text.replace(
            "own.max-mig]\ncrowd_lr = 0.05", 'own.soft]\nlearner = "soft-bootstrap:majority"\nbeta = 0.9'
        )
        (tmp_path / "plan.toml").write_text(text.replace("seeds = 2", "seeds = 1\ncurves = true"))
        (table,) = papers_plan.read_plan(tmp_path / "plan.toml")
        (cell,) = table.cells
        assert (cell.name, cell.key) == ("small/tiny/soft/0", "soft-bootstrap:majority")
        learner = papers_runs.create(cell, setup(tmp_path), tmp_path / "none")
        assert (learner.key, learner.aggregator, learner.beta) == ("soft-bootstrap", "majority", 0.9)
        assert papers_runs.run([cell], setup(tmp_path), tmp_path / "rows.jsonl") == 0
        (row,) = papers_runs.finished(tmp_path / "rows.jsonl").values()
        assert len(row["accuracy_each"]) == 4 and row["accuracy_each"][-1] == row["accuracy_last"]
        assert 0.0 <= row["balanced_last"] <= 1.0


class TestRuns:
    def test_stopped_and_continued_is_as_in_one_go(self, plan, tmp_path, monkeypatch):
        cells = papers_plan.chosen(plan, ["*/max-mig/0"], None)
        whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
        assert papers_runs.run(cells, setup(tmp_path), whole) == 0
        checks = iter([False, False, True] + [False] * 9)
        monkeypatch.setattr(papers_runs.Setup, "over", lambda self: next(checks))
        assert papers_runs.run(cells, setup(tmp_path), parts) == 1
        assert not papers_runs.finished(parts)
        assert len(list((tmp_path / "work").glob("*.safetensors"))) == 1
        assert papers_runs.run(cells, setup(tmp_path), parts) == 0
        assert not list((tmp_path / "work").iterdir())
        (one,), (two,) = papers_runs.finished(whole).values(), papers_runs.finished(parts).values()
        assert figures(one) == figures(two)
        assert -2.0 < one["held_out"] < 0.0
        assert one["accuracy_last"] > 0.8 and one["accuracy_votes"] > 0.8 and one["accuracy_selected"] > 0.8

    def test_an_ensemble_stops_and_goes_on_from_its_members(self, plan, tmp_path, monkeypatch):
        text = PLAN.replace('"max-mig", "two-stage:majority"', '"ensemble"').replace("own.max-mig", "own.ensemble")
        text = text.replace(
            "crowd_lr = 0.05", 'folds = 2\nfold_epochs = 2\nrounds = 0\nn_networks = 1\ncandidates = ["ccem"]'
        )
        (tmp_path / "plan.toml").write_text(text.replace("max-mig = [1.0]", ""))
        (table,) = papers_plan.read_plan(tmp_path / "plan.toml")
        whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
        assert papers_runs.run(table.cells[:1], setup(tmp_path), whole) == 0
        checks = iter([False] * 6 + [True] + [False] * 9)  # two folds of two epochs, then the last network
        monkeypatch.setattr(papers_runs.Setup, "over", lambda self: next(checks))
        assert papers_runs.run(table.cells[:1], setup(tmp_path), parts) == 1
        work = tmp_path / "work"
        assert sorted(file.name.split("-0-")[1] for file in work.glob("*.safetensors")) == [
            "ccem-0.safetensors", "ccem-1.safetensors", "network-0.safetensors"
        ]  # fmt: skip
        assert papers_runs.run(table.cells[:1], setup(tmp_path), parts) == 0 and not list(work.iterdir())
        (one,), (two,) = papers_runs.finished(whole).values(), papers_runs.finished(parts).values()
        assert figures(one) == figures(two)
        assert one["accuracy_last"] > 0.8 and -2.0 < one["held_out"] < 0.0 and one["accuracy_selected"] > 0.8
        assert papers_page.training_seconds(one) == one["training_seconds"] > 0.0

    def test_nothing_is_begun_when_time_is_up(self, plan, tmp_path):
        cells, file = plan[0].cells, tmp_path / "r.jsonl"
        assert papers_runs.run(cells, setup(tmp_path, deadline=time.time() - 1.0), file) == len(cells)
        assert not file.exists()

    def test_what_is_done_is_not_done_again_and_a_cut_line_is_skipped(self, plan, tmp_path):
        file, cells = tmp_path / "r.jsonl", plan[0].cells
        papers_runs.append(file, {"cell": cells[0].name, "problem": None})
        papers_runs.append(file, {"cell": cells[1].name, "problem": "RuntimeError: no memory"})
        with file.open("a") as out:
            out.write('{"cell": "small/tiny/max')
        papers_runs.append(file, {"cell": cells[2].name, "problem": None})
        assert set(papers_runs.finished(file)) == {cells[0].name, cells[2].name}
        seen = []
        left = papers_runs.run(cells[:3], setup(tmp_path), file, progress=lambda row: seen.append(row["cell"]))
        assert (left, seen) == (0, [cells[1].name])
        assert json.loads(file.read_text().splitlines()[-1])["cell"] == cells[1].name

    def test_a_problem_is_noted_and_counts_as_missing(self, plan, tmp_path, monkeypatch):
        def broken(cell, task, setup):
            raise RuntimeError("no memory")

        monkeypatch.setattr(papers_runs, "train", broken)
        assert papers_runs.run(plan[0].cells[:1], setup(tmp_path), tmp_path / "r.jsonl") == 1
        assert "no memory" in (tmp_path / "r.jsonl").read_text()

    def test_the_error_of_matrices(self):
        true = np.eye(2)[None].repeat(3, axis=0)
        found = true.copy()
        found[0] = [[0.5, 0.5], [0.0, 1.0]]
        assert papers_runs.matrix_error(found, true) == pytest.approx(0.5 / 6)


def result(accuracy):
    return {
        "accuracy_last": accuracy, "accuracy_votes": None, "epoch_seconds": 0.75, "settings": {"epochs": 4},
        "device": "cpu",
    }  # fmt: skip


def test_the_page_shows_what_is_missing(plan):
    found = {"small/tiny/max-mig/0": result(0.5), "small/tiny/max-mig/1": result(0.52)}
    text = papers_page.page(plan, found)
    assert "2 of 4 cells are missing" in text
    assert "| `max-mig` | **51.00** ± 1.41 |" in text
    assert "| `two-stage:majority` | – |" in text
    assert "| *max-mig, published* | 1.00 |" in text
    assert "Images and votes" not in text
    assert "Behind" not in text
    assert "51.00 ± 1.41" in papers_page.text(plan, found)
    del found["small/tiny/max-mig/1"]
    assert "| `max-mig` | **50.00** (1) |" in papers_page.page(plan, found)


def test_a_learner_on_one_crowd_alone_has_a_row_where_it_has_a_figure(plan, tmp_path):
    alone = PLAN.replace("seeds = 2", 'seeds = 1\nalone = ["tiny/ccem"]')
    (tmp_path / "plan.toml").write_text(alone + "[tables.small.published.accuracy_votes]\nmax-mig = [1.0]\n")
    tables = papers_plan.read_plan(tmp_path / "plan.toml")
    found = {f"small/tiny/{key}/0": result(0.5) for key in ("max-mig", "ccem")}
    found["small/tiny/max-mig/0"]["accuracy_votes"] = 0.6
    images, votes = papers_page.page(tables, found).split("### Images and votes")
    assert "| `ccem` on tiny | 50.00 |" in images and "ccem" not in votes and "**60.00**" in votes


def test_held_out_votes_choose_a_learner_seed_by_seed(plan):
    found = {
        "small/tiny/max-mig/0": result(0.5) | {"held_out": -1.0},
        "small/tiny/two-stage:majority/0": result(0.7) | {"held_out": -1.2},
        "small/tiny/max-mig/1": result(0.6) | {"held_out": -1.1},
        "small/tiny/two-stage:majority/1": result(0.9) | {"held_out": -1.0},
    }
    assert papers_page.chosen(plan[0], found, "tiny", "accuracy_last") == [50.0, 90.0]
    assert "| *chosen by held-out votes* | 70.00 ± 28.28 |" in papers_page.page(plan, found)
    del found["small/tiny/max-mig/1"]
    assert papers_page.chosen(plan[0], found, "tiny", "accuracy_last") == [50.0]
    found["small/tiny/max-mig/0"]["held_out"] = None
    assert papers_page.chosen(plan[0], found, "tiny", "accuracy_last") == []


def test_a_cell_behind_has_a_sentence(plan, tmp_path):
    more = '[tables.small.reasons]\n"max-mig/tiny" = "It is a small network."\n'
    (tmp_path / "plan.toml").write_text(PLAN.replace("[1.0]", "[60.0]") + more)
    (table,) = papers_plan.read_plan(tmp_path / "plan.toml")
    assert papers_page.behind(table, {"small/tiny/max-mig/0": result(0.591)}) == []
    (words,) = papers_page.behind(table, {"small/tiny/max-mig/0": result(0.5)})
    assert "has 50.00, published 60.00. It is a small network." in words


def test_a_figure_has_a_curve_for_each_learner_that_is_done(plan, tmp_path):
    more = '[tables.small.figures.all]\ntitle = "Tiny"\ncrowds = { tiny = "a small crowd" }\n'
    (tmp_path / "plan.toml").write_text(PLAN + more)
    tables = papers_plan.read_plan(tmp_path / "plan.toml")
    assert papers_page.figures(tables, {}) == {}
    found = {"small/tiny/max-mig/0": result(0.5)}
    svg = papers_page.figures(tables, found)["small-all.svg"]
    assert "a small crowd" in svg and "max-mig, published" in svg and "two-stage" not in svg
    assert "![Tiny](small-all.svg)" in papers_page.page(tables, found)
    (tmp_path / "plan.toml").write_text(PLAN + more.replace("tiny =", "nobody ="))
    with pytest.raises(ReadError, match="figure all: 'nobody'"):
        papers_plan.read_plan(tmp_path / "plan.toml")


def test_counts_are_weighted_votes_of_one_annotator(tmp_path, monkeypatch):
    x, y = np.zeros((12, 32, 32, 3), dtype=np.uint8), np.arange(12, dtype=np.int32) % 10
    monkeypatch.setattr(papers_data, "cifar10", lambda folder: (x, y))
    with pytest.raises(ReadError, match="CIFAR-10H"):
        papers_data.load_crowd("counts", tmp_path, tmp_path, 0)
    table = np.zeros((2, 10), dtype=np.uint8)
    table[0, [0, 3]], table[1, 1] = [40, 11], 51
    (tmp_path / "cifar10h").mkdir()
    np.savez(tmp_path / "cifar10h" / "cifar10h.npz", counts=table)
    task = papers_data.load_crowd("counts", tmp_path, tmp_path, 0)
    assert (len(task.x), len(task.x_test), task.votes.n_votes) == (2, 10, 3)
    assert task.votes.weights.tolist() == [40.0, 11.0, 51.0] and task.votes.label.tolist() == [0, 3, 1]
    assert task.votes.truth.tolist() == [0, 1]


def test_pixels_are_decoded_once(tmp_path):
    rng = np.random.default_rng(0)
    rgb = rng.integers(256, size=(6, 32, 32, 3), dtype=np.uint8)
    for at, name in enumerate(("train0", "train1", "test")):
        some = rgb[2 * at : 2 * at + 2]
        g = some[..., 1]
        planes = np.stack([g, some[..., 0] - g, some[..., 2] - g], axis=1)
        delta = np.diff(planes, axis=-1, prepend=np.zeros_like(planes[..., :1]))
        np.savez(tmp_path / f"{name}.npz", delta=delta, label=np.array([at, at + 1], dtype=np.uint8))
    papers_data.decode(tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "cifar10.npy"), rgb)
    assert np.load(tmp_path / "cifar10-labels.npy").tolist() == [0, 1, 1, 2, 2, 3]
    with pytest.raises(ReadError, match="cannot be read as images"):
        papers_data.decoded(tmp_path / "none.npz")


def test_lines_that_are_no_cells_are_skipped(tmp_path):
    file = tmp_path / "rows.jsonl"
    lines = ['{"cell": ["x"]}', '{"cell": {"a": 1}}', "[1]", "null", '{"cell": "kept"}', '{"cell": "cut']
    file.write_text("\n".join(lines), encoding="utf-8")
    assert list(papers_runs.finished(file)) == ["kept"]


def test_the_script_trains_what_is_missing_and_shows_what_there_is(plan, tmp_path, capsys):
    file, page = tmp_path / "r.jsonl", tmp_path / "page.md"
    words = [str(tmp_path / "plan.toml"), "--out", str(file), "--only", "*/max-mig/0", "--device", "cpu"]
    papers.main([*words, "--images", str(tmp_path)])
    assert "1/1 small/tiny/max-mig/0: last " in capsys.readouterr().err
    papers.main([*words, "--show", "--page", str(page)])
    assert "small (last / with votes)" in capsys.readouterr().out and "3 of 4 cells are missing" in page.read_text()


NUMBERED = {
    "max-mig": {"figure": 4, "table": 3},
    "trace": {"figure": 11, "table": 1, "algorithm": 3},
    "deep-bp": {"figure": 10, "table": 2, "algorithm": 2},
    "bayes-dgc": {"figure": 4, "algorithm": 1},
}
KINDS = {"figure", "table", "algorithm"}


class TestListOfFigures:
    """Every table, figure and algorithm of the five texts is on the list, once."""

    def test_none_is_missing_and_none_twice(self):
        rows = papers_page.listed()
        items = [(row["text"], row["item"]) for row in rows]
        assert len(set(items)) == len(items)
        for text, kinds in NUMBERED.items():
            listed = {item.partition(":")[0] for name, item in items if name == text and item.split()[0] in KINDS}
            assert listed == {f"{kind} {n}" for kind, count in kinds.items() for n in range(1, count + 1)}
        assert {text for text, _ in items} == set(papers_page.TEXTS)
        assert {row["status"] for row in rows} == {"reproduced", "replaced", "not to be had", "drawing"}
        assert all(None not in row and row["shown"] for row in rows if row["status"] != "drawing")

    def test_the_counts_are_those_of_the_texts(self):
        """Captions of the texts, where they lie beside the data sets; slides of the tutorial have no numbers."""
        folder = Path(os.environ.get("CROWDWISE_DATA", "none")).parent / "papers"
        for text, kinds in NUMBERED.items():
            file = folder / f"{text}.txt"
            if file.is_file():
                captions = re.findall(r"(?m)^\W*(Figure|Table|Algorithm) (\d+)\b", file.read_text(encoding="utf-8"))
                found = {(kind.lower(), int(n)) for kind, n in captions}
                assert found == {(kind, n) for kind, count in kinds.items() for n in range(1, count + 1)}

    def test_tables_that_are_named_are_in_the_plan(self, pytestconfig):
        tables = papers_plan.read_plan(pytestconfig.rootpath / "benchmarks" / "papers.toml")
        shown = " ".join(row["shown"] for row in papers_page.listed())
        named = set(re.findall(r"(?<!#)\b(?:max-mig|tanno|deep-bp|geocrowdnet)-[a-z0-9-]+", shown))
        assert named <= {table.name for table in tables} | {"geocrowdnet-f", "max-mig-cifar10"}
        assert {table.name for table in tables} - named == {"cifar10n", "cifar10n-worst", "cifar10h"}
        text = papers_page.figure_list(tables)
        assert "[max-mig-dogs](#max-migs-experts-on-cats-and-dogs" in text
