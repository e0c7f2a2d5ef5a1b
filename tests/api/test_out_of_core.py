"""Votes in files that are larger than memory: the same consensus as in memory, and nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from crowdwise import out_of_core
from crowdwise.data import packing, vote_files
from crowdwise.data.vote_files import several
from crowdwise.errors import (
    CrowdwiseError,
    DuplicateError,
    InputError,
    LabelError,
    OutputError,
    ParameterError,
    ReadError,
    SizeError,
)  # fmt: skip


def table(text=True, weights=False, seed=0):
    """Shuffled votes with names."""
    crowd = cw.simulate.dirichlet(400, n_annotators=15, n_classes=3, votes_per_item=4, random_state=seed)
    frame = crowd.votes.with_truth(None).to_frame("polars")
    if text:
        words = pl.Series(["cat", "dog", "owl"])
        frame = frame.with_columns(
            item="photo " + pl.col("item").cast(pl.String), annotator="w" + pl.col("annotator").cast(pl.String),
            label=pl.Series(words[frame["label"].to_list()]),
        )  # fmt: skip
    if weights:
        frame = frame.with_columns(weight=pl.Series(np.random.default_rng(1).uniform(0.5, 2.0, frame.height)))
    return frame.sample(fraction=1.0, shuffle=True, seed=seed)


def written(folder, frame, kind="parquet", files=3):
    """The table as several files."""
    folder.mkdir(exist_ok=True)
    for i in range(files):
        part = frame[i * frame.height // files : (i + 1) * frame.height // files]
        (part.write_parquet if kind == "parquet" else part.write_csv)(folder / f"votes{i}.{kind}")
    return str(folder / f"*.{kind}")


def compare(pattern, frame, out, method, gold=None, **options):
    params = {} if method == "majority" else {"max_iter": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = cw.aggregate(frame, method, gold=gold, **params, **options)
    found = cw.aggregate(pattern, method, out=out, gold=gold, rows_per_part=500, **params, **options)
    a, b = pl.read_parquet(out).sort("item"), whole.to_frame("items", kind="polars").sort("item")
    assert a.columns == b.columns and a["item"].equals(b["item"]) and a["label"].equals(b["label"])
    for name in ("probability", "entropy"):
        assert np.abs(a[name].to_numpy() - b[name].to_numpy()).max() < 1e-8
    assert a["votes"].to_list() == b["votes"].to_list()
    people = whole.to_frame("annotators", kind="dict")
    order = [people["annotator"].tolist().index(name) for name in found.annotators.tolist()]
    assert np.allclose(found.agreement, people["agreement"][order], equal_nan=True)
    assert found.votes_per_annotator.tolist() == people["votes"][order].tolist()
    assert found.n_items == a.height and found.classes.tolist() == whole.classes.tolist()
    return found


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("text", [True, False])
def test_files_give_the_consensus_of_memory(tmp_path, kind, text):
    frame = table(text)
    pattern = written(tmp_path / "votes", frame, kind)
    compare(pattern, frame, tmp_path / "consensus.parquet", "auto")
    gold = dict(zip(frame["item"][:40].to_list(), frame["label"][:40].to_list(), strict=True))
    compare(pattern, frame, tmp_path / "consensus.parquet", "dawid-skene", gold=gold)
    compare(pattern, frame, tmp_path / "consensus.parquet", "majority")


def test_weights_duplicates_and_empty_cells_are_those_of_memory(tmp_path):
    frame = table(weights=True)
    compare(written(tmp_path / "weights", frame), frame, tmp_path / "c.parquet", "anchored")
    other = pl.when(pl.col("label") == "cat").then(pl.lit("dog")).otherwise(pl.lit("cat")).alias("label")
    double = pl.concat([frame, frame[:50].with_columns(other)]).drop("weight")
    pattern = written(tmp_path / "double", double)
    for choice in ("first", "last", "all"):
        compare(pattern, double, tmp_path / "c.parquet", "one-coin", on_duplicate=choice)
    with pytest.raises(DuplicateError, match="50 duplicated votes"):
        cw.aggregate(pattern, out=tmp_path / "d.parquet")
    holes = (
        frame.drop("weight")
        .with_columns(pl.when(pl.int_range(pl.len()) % 9 == 0).then(None).otherwise(pl.col("label")).alias("label"))
        .with_columns(
            pl.when(pl.int_range(pl.len()) % 18 == 0).then(pl.lit(" ")).otherwise(pl.col("label")).alias("label")
        )
    )
    for kind in ("parquet", "csv"):
        pattern = written(tmp_path / f"holes-{kind}", holes, kind)
        with pytest.raises(LabelError, match="178 without a label"):
            cw.aggregate(pattern, out=tmp_path / "d.parquet")
        with pytest.warns(UserWarning, match="Left out 178 of 1,600 rows"):
            compare(pattern, holes, tmp_path / "c.parquet", "majority", on_missing="drop")
    assert not (tmp_path / "d.parquet").exists()


def test_columns_classes_folders_and_one_part(tmp_path):
    frame = table().rename({"item": "photo", "label": "seen"})
    written(tmp_path / "votes", frame)
    names = {"item": "photo", "label": "seen", "classes": ["owl", "dog", "cat", "eel"]}
    compare(tmp_path / "votes", frame, tmp_path / "c.parquet", "majority", **names)
    found = cw.aggregate([tmp_path / "votes"], "majority", out=tmp_path / "parts", rows_per_part=600, **names)
    rows = [pl.read_parquet(file) for file in sorted((tmp_path / "parts" / "items").glob("part-*.parquet"))]
    assert len(rows) == 3 and sum(len(r) for r in rows) == found.n_items == 400
    cw.aggregate([tmp_path / "votes"], "majority", out=tmp_path / "parts", rows_per_part=10**6, **names)
    assert len(list((tmp_path / "parts" / "items").glob("part-*.parquet"))) == 1


def test_what_cannot_be_done_is_said_before_the_work(tmp_path):
    pattern = written(tmp_path / "votes", table())
    with pytest.raises(ParameterError, match="glad needs all votes at once"):
        cw.aggregate(pattern, "glad", out=tmp_path / "c.parquet")
    with pytest.raises(ReadError, match="no Parquet or CSV file"):
        cw.aggregate(tmp_path / "none*.parquet", out=tmp_path / "c.parquet")
    with pytest.raises(ReadError, match="No column for"):
        cw.aggregate(written(tmp_path / "x", table().drop("label")), out=tmp_path / "c.parquet")
    with pytest.raises(ReadError, match="all of one kind"):
        cw.aggregate([pattern, written(tmp_path / "y", table(), "csv")], out=tmp_path / "c.parquet")
    with pytest.raises(ParameterError, match="is not a folder"):
        cw.aggregate(pattern, out=tmp_path / "c.parquet", scratch=tmp_path / "nowhere")
    with pytest.raises(ParameterError, match="rows_per_part=0"):
        cw.aggregate(pattern, out=tmp_path / "c.parquet", rows_per_part=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(OutputError):
        cw.aggregate(pattern, out=tmp_path / "mine")
    with pytest.raises(CrowdwiseError):
        cw.aggregate(pattern, out=tmp_path / "c.parquet", classes=["cat"])
    assert not (tmp_path / "c.parquet").exists()


def test_scratch_is_removed_and_so_is_what_the_dead_left(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    pattern = written(tmp_path / "votes", table())
    with packing.scratch_folder(scratch) as alive:
        (alive / "rows.npy").write_bytes(b"x")
        cw.aggregate(pattern, "majority", out=tmp_path / "c.parquet", scratch=scratch)
        with pytest.raises(ZeroDivisionError):
            cw.aggregate(pattern, out=tmp_path / "c.parquet", scratch=scratch, callback=lambda _: 1 // 0)
        assert list(scratch.iterdir()) == [alive]
    assert list(scratch.iterdir()) == []


KILLED = """
import os, signal, sys
from crowdwise.out_of_core import aggregate_files

def watch(stage):
    if stage.name == sys.argv[4] and stage.share > 0.1:
        os.kill(os.getpid(), signal.SIGKILL)

aggregate_files(sys.argv[1], sys.argv[2], "dawid-skene", scratch=sys.argv[3], rows_per_part=500, progress=watch)
"""


def test_a_killed_run_leaves_nothing_to_the_next(tmp_path):
    pattern = written(tmp_path / "votes", table())
    (tmp_path / "scratch").mkdir()
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "c.parquet"

    def run():
        cw.aggregate(pattern, "dawid-skene", out=out, scratch=tmp_path / "scratch", rows_per_part=500)
        assert list((tmp_path / "scratch").iterdir()) == [] and list(out.parent.iterdir()) == [out]
        return pl.read_parquet(out)

    first = run()
    for stage in ("packing parts", "writing"):
        command = [sys.executable, "-c", KILLED, pattern, str(out), str(tmp_path / "scratch"), stage]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert len(list((tmp_path / "scratch").iterdir())) == 1
        assert pl.read_parquet(out).equals(first)
        assert run().equals(first)


def test_the_engine_is_chosen_by_out_and_by_size(tmp_path, monkeypatch):
    pattern = written(tmp_path / "votes", table())
    one = tmp_path / "votes" / "votes0.parquet"
    out = tmp_path / "c.csv"
    found = cw.aggregate(pattern, "majority", out=out, max_memory="400MB", rows_per_part=None)
    assert (
        isinstance(found, cw.ConsensusInParts) and found.item_table.collect().height == pl.read_csv(out).height == 400
    )
    assert (
        found.annotator_table.columns == ["annotator", "votes", "agreement"]
        and found.annotator_table["votes"].sum() == 1600
    )
    assert isinstance(cw.aggregate(one, "majority", engine="memory"), cw.Consensus)
    for given, said in (
        ({"engine": "stream"}, "Say where: out"), ({"engine": "spark"}, "expected auto"),
        ({"max_memory": "4GB"}, "only engine"),
        ({"engine": "memory", "out": out}, "only engine"), ({"out": out, "graph": [(1, 2)]}, "graph"),
        ({"out": out, "answer_type": "ratings"}, "votes alone"), ({"out": out, "max_memory": "1MB"}, "too little"),
        ({"out": out, "max_memory": "much"}, "such as '4GB'"),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=said):
            cw.aggregate(one, "majority", **given)
    with pytest.raises(ParameterError, match="Say where: out"):
        cw.aggregate(pattern)
    with pytest.raises(ParameterError, match="take files"):
        cw.aggregate(table(), out=out)
    with pytest.raises(OutputError, match="ends in"):
        cw.aggregate(pattern, out=tmp_path / "c.xlsx")
    monkeypatch.setattr(vote_files, "SMALL_FILE", 0)
    monkeypatch.setattr(vote_files, "SMALL_FILE", 0)
    monkeypatch.setattr(out_of_core, "free_memory", lambda: 1000.0)
    with pytest.raises(SizeError, match=r"would take about 0.0 GB.*out='consensus.parquet'"):
        cw.aggregate(one, "majority")


def test_folders_of_parquet_files_are_many_files_and_others_are_not(tmp_path):
    written(tmp_path / "parquet", table())
    written(tmp_path / "csv", table(), "csv")
    assert several(tmp_path / "parquet") and not several(tmp_path / "csv") and several(tmp_path / "csv" / "*.csv")
    table().write_parquet(tmp_path / "parquet" / "labels.parquet")
    assert not several(tmp_path / "parquet"), "a dataset folder"
    cw.aggregate(str(tmp_path / "csv" / "*.csv"), "majority", out=tmp_path / "consensus")
    assert not several(tmp_path / "consensus") and several([tmp_path / "a", tmp_path / "b"]) and not several([1, 2])


def test_hive_folders_are_columns(tmp_path):
    frame = table()
    for kind in ("parquet", "csv"):
        for name, rows in frame.group_by("label"):
            place = tmp_path / kind / f"label={name[0]}" / "day=2024-01-01"
            place.mkdir(parents=True)
            (rows.drop("label").write_parquet if kind == "parquet" else rows.drop("label").write_csv)(
                place / f"0.{kind}"
            )
        compare(tmp_path / kind, frame, tmp_path / f"{kind}.parquet", "one-coin")


def test_labels_that_are_no_classes_are_refused_as_in_memory(tmp_path):
    frame = table(text=False)
    texts = frame.with_columns(label="text " + pl.int_range(pl.len()).cast(pl.String))
    with pytest.raises(InputError, match="1,600 different labels in 1,600 votes"):
        cw.aggregate(written(tmp_path / "texts", texts), out=tmp_path / "c.parquet")
    numbers = frame.with_columns(label=(pl.col("item") * 7 % 97 + pl.int_range(pl.len()) % 5))
    pattern = written(tmp_path / "numbers", numbers)
    with pytest.raises(InputError, match=r"ratings\?"):
        cw.aggregate(pattern, out=tmp_path / "c.parquet")
    found = cw.aggregate(pattern, "majority", answer_type="votes", out=tmp_path / "c.parquet")
    assert len(found.classes) > 90


def test_progress_names_the_stages_and_the_time_left(tmp_path, capsys):
    seen = []
    pattern = written(tmp_path / "votes", table())
    cw.aggregate(pattern, out=tmp_path / "c.parquet", rows_per_part=500, progress=seen.append, verbose=True)
    names = list(dict.fromkeys(stage.name for stage in seen))
    assert names == ["finding names", "sorting rows", "packing parts", "fitting", "writing"]
    assert seen[-1].share == 1.0 and seen[-1].remaining == 0.0 and all(stage.remaining > 0 for stage in seen[1:-1])
    assert "auto: writing, about" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["majority", "dawid-skene", "wawa"])
def test_one_item_with_a_hundred_thousand_votes_over_all_files(tmp_path, method):
    rng, many = np.random.default_rng(0), 100_000
    item = np.concatenate([np.full(many, 7), np.repeat(np.arange(100, 400), 3)])
    who = np.concatenate([np.arange(many), (np.arange(900) * 7) % 50])
    rows = {"item": item, "annotator": who, "label": rng.choice(3, len(item), p=[0.5, 0.3, 0.2])}
    frame = pl.DataFrame(rows).sample(fraction=1.0, shuffle=True, seed=1)
    pattern = written(tmp_path / "votes", frame, files=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        params = {"max_iter": 4} if method == "dawid-skene" else {}
        whole = cw.aggregate(frame, method, **params).to_frame("items", kind="polars").sort("item")
        cw.aggregate(pattern, method, out=tmp_path / "c.parquet", rows_per_part=20_000, **params)
    found = pl.read_parquet(tmp_path / "c.parquet").sort("item")
    assert found["votes"][0] == many and found["label"].equals(whole["label"])
    assert (found["probability"] - whole["probability"]).abs().max() < 1e-8


def test_gold_labels_need_not_be_in_every_part(tmp_path):
    frame = table()
    pattern = written(tmp_path / "votes", frame)
    compare(pattern, frame, tmp_path / "c.parquet", "dawid-skene", gold={"photo 3": "owl"})
    with pytest.raises(InputError, match="None of the 1 items with gold has votes: gold names 'nowhere'"):
        cw.aggregate(pattern, "dawid-skene", out=tmp_path / "d.parquet", gold={"nowhere": "owl"})


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("text", [True, False])
def test_a_column_of_true_classes_measures_as_in_memory(tmp_path, kind, text):
    frame = table(text)
    names = np.unique(frame["item"].to_numpy())
    rng, classes = np.random.default_rng(2), ["cat", "dog", "owl"] if text else [0, 1, 2]
    true = {item: classes[k] for item, k in zip(names.tolist(), rng.integers(0, 3, len(names)), strict=True)}
    del true[names[5]], true[names[9]]
    frame = frame.with_columns(truth=pl.Series([true.get(item) for item in frame["item"]]))
    gold = {item: true[item] for item in names[20:60].tolist()}
    pattern = written(tmp_path / "in", frame, kind)
    found = cw.aggregate(pattern, "majority", out=tmp_path / "o.parquet", gold=gold, rows_per_part=500)
    whole = cw.aggregate(frame, "majority", gold=gold)
    hidden = {item: k for item, k in true.items() if item not in gold}
    assert found.measured["accuracy"].value == pytest.approx(cw.metrics.accuracy(whole, hidden).value, abs=1e-12)
    other = cw.aggregate(pattern, "majority", out=tmp_path / "o.parquet", truth={names[3]: true[names[3]]})
    assert other.measured["accuracy"].value in (0.0, 0.5, 1.0)  # what is given is taken in place of the column


def test_a_column_of_true_classes_is_checked_as_in_memory(tmp_path):
    frame, out = table(), tmp_path / "o.parquet"
    empty = frame.with_columns(truth=pl.lit(None, pl.String))
    assert cw.aggregate(written(tmp_path / "a", empty), "majority", out=out).measured == {}
    out.unlink()
    cases = {
        "which no annotator used": frame.with_columns(truth=pl.lit("emu")),
        "Two rows give different true classes for item": frame.with_columns(truth=pl.col("label")),
    }
    for words, odd in cases.items():
        for source in (odd, written(tmp_path / "b", odd)):
            with pytest.raises(LabelError, match=words):
                cw.aggregate(source, "majority", **({} if source is odd else {"out": out}))
        assert not out.exists()


@pytest.mark.parametrize("text", [True, False])
def test_a_folder_is_opened_by_load(tmp_path, text):
    frame = table(text=text)
    truth = {name: "cat" if text else 0 for name in frame["item"].unique().sort()[:30].to_list()}
    found = cw.aggregate(
        written(tmp_path / "votes", frame), "anchored", out=tmp_path / "c.parquet", save=tmp_path / "kept",
        rows_per_part=500, truth=truth, annotator_accuracy=True,
    )  # fmt: skip
    again = cw.load(tmp_path / "kept")
    assert isinstance(again, cw.ConsensusInParts) and again.out == tmp_path / "kept"
    assert again.about() == found.about() and again.measured == found.measured and len(found.measured) == 2
    assert again.dependence == found.dependence and again.items_per_class.sum() == found.n_items == 400
    for name in ("annotators", "votes_per_annotator", "agreement", "classes", "prior", "confusion", "judged", "total"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name), err_msg=name)
        assert np.asarray(getattr(again, name)).dtype.kind == np.asarray(getattr(found, name)).dtype.kind
    assert again.item_table.sort("item").collect().equals(found.item_table.sort("item").collect())
    assert again.annotator_table.equals(found.annotator_table)
    folder = cw.aggregate(str(tmp_path / "votes" / "*.parquet"), "majority", out=tmp_path / "folder").out
    assert cw.load(folder).confusion is None and cw.load(folder).measured == {}


def test_a_saved_folder_that_was_changed_is_said(tmp_path):
    pattern, kept = written(tmp_path / "votes", table()), tmp_path / "kept"
    cw.aggregate(pattern, "majority", engine="stream", save=kept, rows_per_part=500)
    part = sorted((kept / "items").iterdir())[1]
    content = part.read_bytes()
    part.write_bytes(content[:-1])
    with pytest.raises(ReadError, match=r"readable consensus in parts: items/part-00001.parquet is damaged"):
        cw.load(kept)
    part.unlink()
    with pytest.raises(ReadError, match=r"items/part-00001.parquet is missing"):
        cw.load(kept)
    part.write_bytes(content)
    assert cw.load(kept).n_items == 400
    about = kept / "about" / "about.json"
    about.write_text(about.read_text().replace("majority", "minority"))
    with pytest.raises(ReadError, match=r"about/about.json is damaged"):
        cw.load(kept)


def test_places_that_do_not_go_together(tmp_path):
    pattern = written(tmp_path / "votes", table())
    with pytest.raises(ParameterError, match="two folders that would hold the same: leave one"):
        cw.aggregate(pattern, out=tmp_path / "a", save=tmp_path / "b")
    with pytest.raises(ParameterError, match="need names of their own"):
        cw.aggregate(pattern, out=tmp_path / "a.csv", save=tmp_path / "a.csv")
    with pytest.raises(ParameterError, match="Say where: out="):
        cw.aggregate(pattern)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(OutputError, match="something else than a saved consensus in parts"):
        cw.aggregate(pattern, out=tmp_path / "a.csv", save=tmp_path / "full")
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(
    ("items", "labels"),
    [
        (["007", "08", "1.0"], ["01", "02"]),
        ([*map(str, range(150)), "x1"], ["1", "x"]),
        (["a", "b", "c"], [True, False]),
        ([7, 8, 10], [1, 2]),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_names_in_a_file_of_labels_are_those_of_the_votes(tmp_path, items, labels, ending):
    N = len(items)
    label = [labels[n % 2] for n in range(N) for _ in range(3)]
    frame = pl.DataFrame({"item": np.repeat(items, 3), "annotator": ["a", "b", "c"] * N, "label": label})
    frame.write_parquet(tmp_path / "votes.parquet")
    files = cw.aggregate(str(tmp_path / "votes.parquet"), "majority", out=tmp_path / f"labels.{ending}")
    truth = {item: labels[n % 2] for n, item in enumerate(items)}
    assert dict(zip(files.items.tolist(), files.labels.tolist(), strict=True)) == truth
    assert files.score(truth) == 1.0
