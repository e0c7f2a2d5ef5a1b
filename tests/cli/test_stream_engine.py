"""``crowdwise aggregate --engine stream``: files to files, larger than memory."""

from __future__ import annotations

import json

import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.cli.main import app


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words], prog_name="crowdwise")


@pytest.fixture
def votes(tmp_path):
    crowd = cw.simulate.dirichlet(120, n_annotators=10, n_classes=3, votes_per_item=4, random_state=0)
    frame = crowd.votes.with_truth(None).to_frame("polars").rename({"item": "photo"})
    for i in range(2):
        frame[240 * i : 240 * (i + 1)].write_parquet(tmp_path / f"votes{i}.parquet")
    gold = {"item": list(range(20)), "label": crowd.truth[:20]}
    pl.DataFrame(gold).write_csv(tmp_path / "gold.csv")
    return tmp_path, frame, dict(zip(gold["item"], gold["label"].tolist(), strict=True))


def test_the_labels_are_those_of_memory(votes):
    folder, frame, gold = votes
    out = folder / "consensus.parquet"
    done = run(
        "aggregate", folder / "votes*.parquet", "--engine", "stream", "--out", out, "--item", "photo", "--method",
        "anchored", "--gold", folder / "gold.csv", "--set", "prior=crowd", "--scratch", folder, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    whole = cw.aggregate(frame, "anchored", gold=gold, item="photo", prior="crowd")
    table = pl.read_parquet(out).sort("item")
    assert table["label"].to_list() == whole.labels.tolist() and facts["items"] == 120 and facts["votes"] == 480
    assert facts["method"] == "anchored" and facts["iterations"] == whole.iterations
    again = run("aggregate", folder / "votes*.parquet", "--engine", "stream", "--out", out, "--item", "photo")
    assert again.exit_code == 0 and "480 votes on 120 items" in again.output and "Wrote" in again.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "stream"], "give --out"),
        (["--engine", "stream", "--out", "c.parquet", "--report", "r.html"], "--report: not with --engine stream"),
        (["--engine", "stream", "--out", "c.parquet", "--form", "wide"], "--form: not with --engine stream"),
        (["--engine", "stream", "--out", "c.parquet", "--method", "glad"], "needs all votes at once"),
        (["--scratch", "."], "--scratch is for --engine stream"),
        (["--engine", "spark", "--out", "c.parquet"], "spark"),
    ],
)
def test_what_does_not_go_with_it_is_said(votes, words, message):
    folder = votes[0]
    done = run("aggregate", folder / "votes0.parquet", "--item", "photo", *words)
    assert done.exit_code != 0 and message in done.output
