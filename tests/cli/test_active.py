"""``crowdwise active``: what is written, what is said, and that nothing is left half-written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.cli.main import app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cw.simulate.two_coin(60, n_annotators=8, votes_per_item=4, random_state=0).save(tmp_path / "crowd")
    return tmp_path


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def replay(folder: Path, *more: Any) -> Any:
    out = folder / "out"
    options = ("--strategies", "random,value", "--seeds", 2, "--batch", 0.1, "--jobs", 1, "--out", out)
    return run("active", "replay", folder / "crowd", *options, *more)


def test_a_replay_is_written_whole(folder: Path) -> None:
    result = replay(folder)
    assert result.exit_code == 0, result.output
    assert "votes needed" in result.stdout
    out = folder / "out"
    names = {"table.csv", "curves.svg", "curves.html", "facts.json", "manifest.json"}
    assert names <= {p.name for p in out.iterdir()} <= names | {"curves.png"}
    table = pl.read_csv(out / "table.csv")
    assert table.columns == ["strategy", "seed", "votes", "cost", "accuracy", "expected"]
    assert set(table["strategy"]) == {"random", "value"}
    assert table.group_by("strategy", "seed").agg(pl.col("votes").max())["votes"].to_list() == [240] * 4
    facts = json.loads((out / "facts.json").read_text())
    assert set(facts["strategies"]) == {"random", "value"}
    assert 0.0 < facts["strategies"]["value"]["share"] <= 1.0
    assert "<svg" in (out / "curves.html").read_text()
    assert replay(folder).exit_code == 0  # an earlier replay is replaced


def test_jobs_change_nothing(folder: Path) -> None:
    one = json.loads(replay(folder, "--json").stdout)
    two = json.loads(replay(folder, "--json", "--jobs", 2).stdout)
    assert one == two


def test_prices_are_paid(folder: Path) -> None:
    people = [f"a{m}" for m in range(8)]
    pl.DataFrame({"annotator": people, "price": [5.0] + [1.0] * 7}).write_csv(folder / "prices.csv")
    facts = json.loads(replay(folder, "--prices", folder / "prices.csv", "--json").stdout)
    votes = cw.read_dataset(folder / "crowd").votes
    dear = int((votes.annotator == votes.annotators.tolist().index("a0")).sum())
    assert facts["strategies"]["random"]["cost"] == 240 + 4 * dear
    pl.DataFrame({"annotator": people[:3], "price": [1.0] * 3}).write_csv(folder / "few.csv")
    assert "has no price for" in replay(folder, "--prices", folder / "few.csv").stderr


def test_a_folder_with_something_else_is_left_alone(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "letter.txt").write_text("dear")
    result = replay(folder)
    assert result.exit_code != 0
    assert [p.name for p in (folder / "out").iterdir()] == ["letter.txt"]


def test_without_what_draws_a_png(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = replay(folder)
    assert result.exit_code == 0
    assert "no PNG was written" in result.stderr
    assert not (folder / "out" / "curves.png").exists()
    assert (folder / "out" / "curves.svg").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--strategies", "magic"), "Unknown strategy 'magic'"),
        (("--batch", "0"), "--batch 0.0"),
        (("--share", "2"), "--share 2"),
        (("--method", "anchored"), "cannot follow a stream"),
    ],
)
def test_replays_that_cannot_be(folder: Path, options: tuple[str, str], message: str) -> None:
    result = replay(folder, *options)
    assert result.exit_code != 0
    assert message in result.stderr
    assert not (folder / "out").exists()


def test_votes_without_truth(folder: Path) -> None:
    result = run("active", "replay", folder / "crowd" / "labels.csv", "--out", folder / "out")
    assert "no truth to measure with" in result.stderr


def plan(folder: Path, *more: Any) -> Any:
    options = ("--budget", 120, "--votes-per-item", "1,3", "--seeds", 2, "--jobs", 1, "--out", folder / "plan")
    return run("active", "plan", folder / "crowd", *options, *more)


def test_a_plan_is_written_whole(folder: Path) -> None:
    result = plan(folder)
    assert result.exit_code == 0, result.output
    assert "right labels" in result.stdout
    out = folder / "plan"
    assert {"table.csv", "curves.svg", "curves-2.svg", "curves.html", "facts.json"} <= {p.name for p in out.iterdir()}
    facts = json.loads((out / "facts.json").read_text())
    assert facts["items"] == [120, 40]
    assert facts["best"]["right"] in (1, 3)
    assert len(pl.read_csv(out / "table.csv")) == 2 and "At present" in result.stdout
    half, most = facts["proof"]["gold"].values()
    assert 0 < half <= most and f"about {half} random gold labels" in " ".join(result.stdout.split())
    assert facts["accuracy"][0]["low"] < facts["accuracy"][0]["mean"] < facts["accuracy"][0]["high"]
    for i, items in enumerate(facts["items"]):
        assert facts["right"][i]["mean"] == pytest.approx(items * facts["accuracy"][i]["mean"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--votes-per-item", "1,x"), "expected whole numbers"),
        (("--votes-per-item", "9"), "8 annotators"),
        (("--budget", "0"), "--budget 0"),
        (("--max-error", "0"), "--max-error 0"),
        (("--epochs", "3"), "for a learner"),
    ],
)
def test_plans_that_cannot_be(folder: Path, options: tuple[str, str], message: str) -> None:
    result = plan(folder, *options)
    assert result.exit_code != 0
    assert message in result.stderr
    assert not (folder / "plan").exists()


def test_a_plan_with_a_learner(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    cw.simulate.machine(200, n_annotators=6, votes_per_item=3, test_share=0.2, random_state=0).save(tmp_path / "crowd")
    more = ("--learner", "two-stage", "--epochs", 3, "--json")
    result = plan(tmp_path, *more)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert len(facts["test"]) == 2
    assert all(0.0 <= row["mean"] <= 1.0 for row in facts["test"])
    assert np.isfinite(pl.read_csv(tmp_path / "plan" / "table.csv")["test"].to_numpy()).all()
