"""Reports on a consensus in files, without its votes."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from command_line import run
from crowdwise.core.numerics import share_interval
from crowdwise.data.vote_files import find_consensus
from crowdwise.errors import ReadError
from crowdwise.report.build import written_report


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A crowd in a folder of consensus, and the same in memory."""
    folder = tmp_path_factory.mktemp("written")
    crowd = cw.simulate.hammer_spammer(
        400, n_annotators=20, n_classes=3, accuracy=0.9, votes_per_item=5, random_state=0
    )
    votes = crowd.votes.with_truth(None)
    votes.to_frame("polars").write_parquet(folder / "votes.parquet")
    out, whole = folder / "consensus", cw.aggregate(votes, "auto")
    found = cw.aggregate(folder / "votes.parquet", "auto", out=out, rows_per_part=600, annotator_accuracy=True)
    return folder, out, found, whole


def test_the_folder_holds_items_annotators_and_the_fit(written):
    _, out, found, whole = written
    files = find_consensus(out)
    assert files is not None and files.annotator_table is not None
    assert files.item_table.collect().height == 400 and found.item_table.collect().height == 400
    people = whole.to_frame("annotators", kind="polars").select(files.annotator_table.columns).sort("annotator")
    mine = files.annotator_table.sort("annotator")
    assert mine.select("annotator", "votes").equals(people.select("annotator", "votes"))
    for name in ("accuracy", "accuracy_low", "accuracy_high", "agreement"):
        assert np.allclose(mine[name], people[name], atol=1e-8)
    assert files.about["method"] == "auto" and files.about["n_votes"] == 2000
    assert np.allclose(files.about["prior"], whole.prior)


def test_the_report_says_what_the_files_say(written):
    folder, out, _, whole = written
    done = run("report", out, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    p = whole.item_table["probability"].to_numpy()
    assert sum(bar["count"] for bar in facts["summary"]["picture"]["bars"]) == 400
    assert facts["summary"]["headline"].endswith(f"{int((p < 0.9).sum())} with a probability under 90%.")
    review, labels, people = facts["tables"]
    assert review["total"] == 400 and review["rows"][0][0]["v"] == str(whole.items[p.argmin()])
    counts = {row[0]["v"]: row[1]["v"] for row in labels["rows"]}
    assert counts == {str(k): int(n) for k, n in enumerate(np.bincount(whole.label_codes))}
    assert len(people["rows"]) == 20 and facts["method"]["iterations"] == whole.iterations
    accuracy, n = whole.accuracy()[0], whole.total
    _, high = share_interval(accuracy * n, n, np.zeros(20))  # by the votes alone: the error of the crowd is common
    low = whole.annotators[high < np.median(accuracy) - 0.1]
    assert len(low) > 3 and {w["annotator"] for w in facts["summary"]["to_look_at"]} == set(low)


def test_a_page_from_a_folder_or_a_file_of_items(written):
    folder, out, found, _ = written
    done = run("report", out, "--out", folder / "a.html")
    assert done.returncode == 0 and "expected to be right" in done.stderr
    page = (folder / "a.html").read_text(encoding="utf-8")
    assert "Items to review" in page and "without the votes" not in page and "annotators.csv" in page
    found.item_table.collect().write_parquet(folder / "items.parquet")
    assert run("report", folder / "items.parquet", "--out", folder / "b.html").returncode == 0
    alone = written_report(find_consensus(folder / "items.parquet"))
    assert [t["key"] for t in alone["tables"]] == ["review", "labels"] and alone["method"]["key"] == "unknown"
    assert find_consensus(folder / "votes.parquet") is None and find_consensus(folder / "nothing") is None
    refused = run("report", out, "--method", "majority")
    assert refused.returncode != 0 and "--method" in refused.stderr


def test_figures_that_were_stored_are_shown(written):
    folder, _, _, whole = written
    truth = dict(zip(whole.items.tolist()[:50], whole.labels.tolist(), strict=False))
    found = cw.aggregate(folder / "votes.parquet", "majority", out=folder / "measured", truth=truth)
    facts = json.loads(run("report", folder / "measured", "--json").stdout)
    assert facts["measured"]["accuracy"]["value"] == round(found.measured["accuracy"].value, 4)
    assert facts["measured"]["accuracy"]["n"] == 50
    assert facts["summary"]["figures"][0]["name"] == "Right against the known truth"


def test_a_folder_as_spark_writes_it(written, tmp_path):
    """No manifest, parts of any name, confusion matrices in the table of annotators."""
    _, out, found, _ = written
    for name in ("items", "annotators", "about"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_SUCCESS").touch()
    for n, part in enumerate(sorted((out / "items").iterdir())):
        (tmp_path / "items" / f"part-{n}-c000.snappy.parquet").write_bytes(part.read_bytes())
    people = found.annotator_table.with_columns(confusion=pl.Series(found.confusion.tolist()))
    people.write_parquet(tmp_path / "annotators" / "part-0.snappy.parquet")
    about = {k: v for k, v in found.about().items() if k not in ("format", "measured", "items_per_class")}
    (tmp_path / "about" / "part-0.txt").write_text(json.dumps(about), encoding="utf-8")
    again = cw.load(tmp_path)
    assert isinstance(again, cw.ConsensusInParts) and again.item_table.collect().height == 400 and again.measured == {}
    assert (again.confusion == found.confusion).all() and (again.items_per_class == found.items_per_class).all()
    assert run("report", tmp_path, "--json").returncode == 0
    next((tmp_path / "items").glob("*.parquet")).unlink()
    with pytest.raises(ReadError, match=r"of the 400 items that Spark has labelled: copy the whole folder"):
        cw.load(tmp_path)
    with pytest.raises(ReadError, match="is an address: copy the folder"):
        cw.load("s3://bucket/run-1")


def test_items_without_a_probability_are_refused(tmp_path):
    for name in ("items", "about"):
        (tmp_path / name).mkdir()
    (tmp_path / "about" / "about.json").write_text("{}", encoding="utf-8")
    pl.DataFrame({"item": [1], "label": [2]}).write_parquet(tmp_path / "items" / "0.parquet")
    with pytest.raises(ReadError, match="no column probability"):
        find_consensus(tmp_path)
