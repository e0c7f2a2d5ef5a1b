"""Votes in files that are larger than memory: the same consensus as in memory, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.data import packing
from crowdwise.errors import CrowdwiseError, DuplicateError, LabelError, OutputError, ParameterError, ReadError


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
    found = cw.aggregate_files(pattern, out, method, gold=gold, rows_per_part=500, **params, **options)
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
        cw.aggregate_files(pattern, tmp_path / "d.parquet")
    holes = frame.drop("weight").with_columns(
        pl.when(pl.int_range(pl.len()) % 9 == 0).then(None).otherwise(pl.col("label")).alias("label")
    )
    for kind in ("parquet", "csv"):
        pattern = written(tmp_path / f"holes-{kind}", holes, kind)
        with pytest.raises(LabelError, match="178 without a label"):
            cw.aggregate_files(pattern, tmp_path / "d.parquet")
        with pytest.warns(UserWarning, match="Left out 178 of 1,600 rows"):
            compare(pattern, holes, tmp_path / "c.parquet", "majority", on_missing="drop")
    assert not (tmp_path / "d.parquet").exists()


def test_columns_classes_folders_and_one_part(tmp_path):
    frame = table().rename({"item": "photo", "label": "seen"})
    written(tmp_path / "votes", frame)
    names = {"item": "photo", "label": "seen", "classes": ["owl", "dog", "cat", "eel"]}
    compare(tmp_path / "votes", frame, tmp_path / "c.parquet", "majority", **names)
    found = cw.aggregate_files([tmp_path / "votes"], tmp_path / "parts", "majority", rows_per_part=600, **names)
    rows = [pl.read_parquet(file) for file in sorted((tmp_path / "parts").glob("part-*.parquet"))]
    assert len(rows) == 3 and sum(len(r) for r in rows) == found.n_items == 400
    cw.aggregate_files([tmp_path / "votes"], tmp_path / "parts", "majority", rows_per_part=10**6, **names)
    assert len(list((tmp_path / "parts").glob("part-*.parquet"))) == 1


def test_what_cannot_be_done_is_said_before_the_work(tmp_path):
    pattern = written(tmp_path / "votes", table())
    with pytest.raises(ParameterError, match="glad needs all votes at once"):
        cw.aggregate_files(pattern, tmp_path / "c.parquet", "glad")
    with pytest.raises(ReadError, match="no Parquet or CSV file"):
        cw.aggregate_files(tmp_path / "none*.parquet", tmp_path / "c.parquet")
    with pytest.raises(ReadError, match="No column for"):
        cw.aggregate_files(written(tmp_path / "x", table().drop("label")), tmp_path / "c.parquet")
    with pytest.raises(ReadError, match="all of one kind"):
        cw.aggregate_files([pattern, written(tmp_path / "y", table(), "csv")], tmp_path / "c.parquet")
    with pytest.raises(ParameterError, match="is no folder"):
        cw.aggregate_files(pattern, tmp_path / "c.parquet", scratch=tmp_path / "nowhere")
    with pytest.raises(ParameterError, match="rows_per_part=0"):
        cw.aggregate_files(pattern, tmp_path / "c.parquet", rows_per_part=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(OutputError):
        cw.aggregate_files(pattern, tmp_path / "mine")
    with pytest.raises(CrowdwiseError):
        cw.aggregate_files(pattern, tmp_path / "c.parquet", classes=["cat"])
    assert not (tmp_path / "c.parquet").exists()


def test_scratch_is_removed_and_so_is_what_the_dead_left(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = scratch / f"{packing.SCRATCH}{int(gone.stdout)}-abc"
    alive = scratch / f"{packing.SCRATCH}{os.getpid()}-other"
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "rows.npy").write_bytes(b"x")
    pattern = written(tmp_path / "votes", table())
    cw.aggregate_files(pattern, tmp_path / "c.parquet", "majority", scratch=scratch)
    assert [p.name for p in scratch.iterdir()] == [alive.name]
    with pytest.raises(ZeroDivisionError):
        cw.aggregate_files(pattern, tmp_path / "c.parquet", scratch=scratch, callback=lambda _: 1 // 0)
    assert [p.name for p in scratch.iterdir()] == [alive.name]
