"""``crowdwise compare``, as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise import registry
from crowdwise.cli.main import app
from crowdwise.cli.show import whisker


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "crowd"
    cw.simulate.dirichlet(120, n_annotators=10, n_classes=3, votes_per_item=4, random_state=0).save(path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="crowdwise", env={"COLUMNS": "120"})


def test_json_is_one_object(folder):
    done = run("compare", folder / "labels.csv", "--methods", "majority,dawid-skene", "--truth", folder / "truth.csv",
               "--repeats", 2, "--replicates", 9, "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert [row["method"] for row in facts["methods"]] == ["dawid-skene", "majority"]
    assert facts["best"] == "dawid-skene" and facts["repeats"] == 2 and facts["votes"] == 480
    assert 0.5 < facts["methods"][0]["accuracy"] <= 1.0
    assert {row["check"] for row in facts["checks"]} == {"disagreement", "uneven", "marginals", "dependence"}
    again = run("compare", folder / "labels.csv", "--methods", "majority,dawid-skene", "--repeats", 2,
                "--replicates", 9, "--json")  # fmt: skip
    other = json.loads(again.stdout)
    assert "accuracy" not in other["methods"][0]
    assert other["methods"][0]["score"] == facts["methods"][0]["score"]


def test_the_terminal_shows_the_table_the_agreement_and_the_checks(folder, tmp_path):
    out = tmp_path / "table.csv"
    done = run("compare", folder / "labels.csv", "-m", "auto, majority ,wawa", "--repeats", 1, "--replicates", 9,
               "--seed", 3, "--out", out)  # fmt: skip
    assert done.exit_code == 0, done.output
    for words in ("3 methods", "held out in each", "behind", "predicts votes best", "Items labelled alike",
                  "would have drawn them", "pairs of votes on an item that differ"):  # fmt: skip
        assert words in done.output
    table = pl.read_csv(out)
    assert set(table["method"]) == {"auto", "majority", "wawa"}
    lone = run("compare", folder / "labels.csv", "-m", "majority", "--repeats", 1, "--replicates", 0)
    assert "Items labelled alike" not in lone.output and "drawn" not in lone.output


def test_names_of_methods_are_whole_in_a_narrow_terminal(folder):
    words = ("compare", folder / "labels.csv", "-m", "dawid-skene,group-conditional,majority", "--truth",
             folder / "truth.csv", "--repeats", "1", "--replicates", "0")  # fmt: skip
    done = CliRunner().invoke(app, [str(word) for word in words], prog_name="crowdwise", env={"COLUMNS": "80"})
    table = done.output.partition("Items labelled alike")[0].splitlines()
    for name in ("dawid-skene", "group-conditional", "majority"):
        assert any(line.startswith(f"{name} ") for line in table), done.output
    assert max(map(len, table[2:6])) <= 80


def test_mistakes_are_said(folder, tmp_path):
    assert run("compare", folder / "labels.csv", "-m", "majorit").exit_code == 2
    done = run("compare", folder / "labels.csv", "-m", "gold-weighted")
    assert done.exit_code == 2 and "needs gold" in done.output
    assert run("compare", folder / "labels.csv", "--share", "1.5").exit_code == 2
    assert run("compare", folder / "nothing.csv").exit_code == 1
    single = tmp_path / "single.csv"
    single.write_text("item,annotator,label\na,x,1\nb,y,0\n")
    done = run("compare", single, "-m", "majority")
    assert done.exit_code == 1 and "no item has votes of two annotators" in done.output


def test_without_methods_the_stated_ones_are_compared(folder):
    done = run("compare", folder / "labels.csv", "--repeats", 1, "--replicates", 0, "--json")
    assert {row["method"] for row in json.loads(done.stdout)["methods"]} == set(registry.COMPARED)


def test_piped_it_draws_no_progress(folder):
    done = subprocess.run(
        [sys.executable, "-m", "crowdwise", "compare", str(folder / "labels.csv"), "-m", "majority,wawa",
         "--repeats", "1", "--replicates", "0"], capture_output=True, text=True, timeout=600,
        check=False, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""
    assert "majority" in done.stdout


def test_aggregate_says_what_auto_did(folder):
    done = run("aggregate", folder / "labels.csv", "--json")
    facts = json.loads(done.stdout)
    assert facts["method"] == "auto" and "Votes on an item err together" in facts["notes"][0]
    words = ("aggregate", folder / "labels.csv", "--out", folder / "consensus.csv")
    assert facts["notes"][0] in run(*words, "--verbose").output and facts["notes"][0] not in run(*words).output


def test_whiskers():
    assert whisker(0.0, 0.5, 1.0, 22).count("●") == 1
    assert len(whisker(0.0, 1.0, 1.0, 22)) == 22
    assert whisker(float("nan"), 0.0, 0.0, 22) == ""
