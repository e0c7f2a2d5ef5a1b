"""``crowdwise aggregate --engine stream``: files to files, larger than memory."""

from __future__ import annotations

import json

import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise import out_of_core
from crowdwise.cli.main import app
from crowdwise.core import loop
from crowdwise.data import vote_files


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
    people = folder / "people.csv"
    words = ("--item", "photo", "--out", out, "--annotators", people, "--probabilities")
    again = run("aggregate", folder / "votes*.parquet", *words)
    assert again.exit_code == 0 and "written: " in again.output
    assert "120 labels from 480 votes by 10 annotators, 3 classes (auto)" in again.output
    assert pl.read_csv(people)["votes"].sum() == 480
    table = pl.read_parquet(out)
    assert (table.select(pl.sum_horizontal("p(0)", "p(1)", "p(2)")).to_series() - 1.0).abs().max() < 1e-9


def test_truth_measures_and_a_report_is_written(votes):
    folder, frame, gold = votes
    truth, page = folder / "truth.csv", folder / "page.html"
    every = cw.simulate.dirichlet(120, n_annotators=10, n_classes=3, votes_per_item=4, random_state=0).truth
    pl.DataFrame({"item": list(range(100)), "label": every[:100]}).write_csv(truth)
    words = ("aggregate", folder / "votes*.parquet", "--item", "photo", "--gold", folder / "gold.csv", "--truth", truth)
    done = run(*words, "--out", folder / "c", "--report", page, "--annotators", folder / "people.csv", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    whole = cw.aggregate(frame, gold=gold, item="photo")
    hidden = {n: int(every[n]) for n in range(20, 100)}
    for name in ("accuracy", "calibration_error"):
        assert facts[name] == pytest.approx(getattr(cw.metrics, name)(whole, hidden).value, abs=1e-8)
    assert facts["accuracy_low"] < facts["accuracy"] < facts["accuracy_high"]
    text = page.read_text(encoding="utf-8")
    assert "measured on 80" in text and f"{facts['accuracy']:.3g}" in text
    shown = " ".join(run(*words, "--out", folder / "c", "--annotators", folder / "people.csv", "-v").output.split())
    assert "accuracy on 80 items with truth" in shown and "accuracy, with a 95% interval" in shown
    assert all(f"{k} {(whole.labels == k).sum()} ██" in shown for k in range(3))
    pl.DataFrame({"item": ["nowhere"], "label": [0]}).write_csv(truth)
    done = run(*words, "--out", folder / "d")
    assert done.exit_code == 1 and "None of the 1 items with truth has votes" in done.output
    assert not (folder / "d").exists()


def test_a_file_that_would_not_fit_is_read_part_by_part(votes, monkeypatch):
    folder = votes[0]
    monkeypatch.setattr(vote_files, "SMALL_FILE", 0)
    monkeypatch.setattr(vote_files, "SMALL_FILE", 0)
    monkeypatch.setattr(loop, "free_memory", lambda: 20_000.0)
    monkeypatch.setattr(out_of_core, "free_memory", lambda: 20_000.0)
    words = ("aggregate", folder / "votes0.parquet", "--item", "photo")
    done = run(*words, "--out", folder / "c.csv", "--method", "majority")
    assert done.exit_code == 0 and "GB of memory, and 0.0 are free: read part by part" in done.output
    assert pl.read_csv(folder / "c.csv").height == 60
    assert "Say where: --out" in " ".join(run(*words).output.split())


def test_save_writes_a_folder_that_load_opens(votes):
    folder, frame, gold = votes
    words = ("aggregate", folder / "votes*.parquet", "--item", "photo", "--method", "dawid-skene")
    done = run(*words, "--out", folder / "c.csv", "--save", folder / "kept", "--annotators", folder / "people.csv")
    assert done.exit_code == 0, done.output
    assert all(str(folder / name) in "".join(done.output.split()) for name in ("c.csv", "kept", "people.csv"))
    again, whole = cw.load(folder / "kept"), cw.aggregate(frame, "dawid-skene", item="photo")
    items = again.item_table.sort("item").collect()
    assert items["label"].to_list() == whole.labels.tolist()
    assert items.equals(pl.read_csv(folder / "c.csv").sort("item").cast(items.schema))
    assert again.annotator_table.equals(pl.read_csv(folder / "people.csv").cast(again.annotator_table.schema))
    alone = run(*words, "--save", folder / "kept", "--json")  # replaces the earlier one
    assert alone.exit_code == 0 and json.loads(alone.stdout)["out"] == str(folder / "kept")
    assert cw.load(folder / "kept").judged is None
    page = run("report", folder / "kept", "--out", folder / "page.html")
    assert page.exit_code == 0, page.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "stream"], "--out consensus.parquet"),
        (["--engine", "stream", "--out", "c", "--save", "d"], "two folders that would hold the same"),
        (["--engine", "stream", "--out", "c.parquet", "--report", "r.txt"], ".html"),
        (["--engine", "stream", "--out", "c.parquet", "--form", "wide"], "--form: not with votes"),
        (["--engine", "stream", "--out", "c.parquet", "--method", "glad"], "needs all votes at once"),
        (["--engine", "memory", "--scratch", "."], "are for --engine stream"),
        (["--engine", "spark", "--out", "c.parquet"], "spark"),
    ],
)
def test_what_does_not_go_with_it_is_said(votes, words, message):
    folder = votes[0]
    done = run("aggregate", folder / "votes0.parquet", "--item", "photo", *words)
    assert done.exit_code != 0 and message in done.output


@pytest.mark.parametrize("by", ["", "all", "a0"])
def test_a_total_below_is_read_as_in_memory(by, tmp_path):
    rows = "\n".join(f"t{n},a{m},{'xy'[(n * m) % 2]}" for n in range(20) for m in range(4))
    file, out = tmp_path / "votes.csv", tmp_path / "o.csv"
    file.write_text(f"item,annotator,label\n{rows}\nTotal,{by},80\n")
    streamed, whole = (
        run("aggregate", file, "-m", "majority", "-o", out, *more) for more in (["--engine", "stream"], [])
    )
    words = "may hold totals: read as an item" if by == "a0" else "Left out the last row, 'Total': totals and no votes."
    assert words in streamed.stderr and words in whole.stderr
    for done in (streamed, whole):
        assert done.exit_code == 0 and f"{20 + (by == 'a0')} labels" in done.stderr
