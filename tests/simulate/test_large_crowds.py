"""Crowds that are written to files some items at a time."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from command_line import run
from crowdwise.errors import OutputError, ParameterError


def test_files_hold_one_crowd(tmp_path):
    folder, seen = tmp_path / "crowd", []
    more = {"n_annotators": 30, "n_classes": 3, "votes_per_item": 5, "progress": lambda *step: seen.append(step)}
    total = cw.simulate.write_large("dirichlet", folder, 2500, items_per_file=1000, random_state=3, **more)
    votes = pl.read_parquet(folder / "votes" / "*.parquet")
    truth = pl.read_parquet(folder / "truth" / "*.parquet")
    assert total == votes.height == 12_500 and truth["item"].to_list() == list(range(2500))
    assert seen == [(1, 3), (2, 3), (3, 3)] and json.loads((folder / "meta.json").read_text())["votes"] == total
    assert votes.group_by("item").len()["len"].unique().to_list() == [5]
    assert votes.select(pl.struct("item", "annotator").is_unique().all()).item()
    theta = np.load(folder / "parameters.npz")["confusion"]
    said = votes.join(truth, on="item").filter(pl.col("annotator") == "a7")
    for k, rows in said.group_by("truth"):
        shares = np.bincount(rows["label"], minlength=3) / rows.height
        assert np.abs(shares - theta[7, k[0]]).max() < 0.15, "each annotator has one matrix in all files"
    again = tmp_path / "again"
    cw.simulate.write_large("dirichlet", again, 2500, items_per_file=1000, random_state=3, **more)
    assert pl.read_parquet(again / "votes" / "*.parquet").equals(votes)
    assert not votes.head(1000)["item"].is_sorted()


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(ParameterError, match="difficulty is not made in pieces"):
        cw.simulate.write_large("difficulty", tmp_path / "c", 100)
    with pytest.raises(ParameterError, match="items_per_file=0"):
        cw.simulate.write_large("one-coin", tmp_path / "c", 100, items_per_file=0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(OutputError):
        cw.simulate.write_large("one-coin", tmp_path / "full", 100)


def test_on_the_command_line(tmp_path):
    words = ("simulate", "one-coin", "--out", tmp_path / "c", "--set", "n_items=300", "--set", "votes_per_item=3")
    done = run(*words, "--items-per-file", "100", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["votes"] == 900
    assert len(list((tmp_path / "c" / "votes").iterdir())) == 3
    out = tmp_path / "consensus.csv"
    assert run("aggregate", tmp_path / "c" / "votes", "--out", out).returncode == 0
    assert pl.read_csv(out).height == 300
