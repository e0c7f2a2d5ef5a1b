"""``crowdwise rank``: files in, a leaderboard out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import command_line
import crowdwise as cw
from crowdwise.cli.main import app
from crowdwise.cli.show import whisker


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.csv"
    crowd = cw.simulate.comparisons(30, n_annotators=20, n_comparisons=2000, reversed_=0.2, tie=-1.0, random_state=0)
    crowd.comparisons.to_frame("polars").write_csv(file)
    return file


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["rank", *map(str, words)], env={"COLUMNS": "120"})
    return result.exit_code, result.stdout, result.stderr


def test_a_leaderboard_is_written_and_drawn(pairs: Path, tmp_path: Path) -> None:
    out, people, kept = tmp_path / "board.csv", tmp_path / "people.csv", tmp_path / "kept"
    code, stdout, stderr = run(pairs, "--out", out, "--annotators", people, "--save", kept)
    assert code == 0 and stdout == ""
    board = pl.read_csv(out)
    assert board["rank"].to_list() == sorted(board["rank"].to_list()) and board.height == 30
    assert {"score", "error", "low", "high", "rank_low", "rank_high", "wins", "losses", "ties"} <= set(board.columns)
    assert "reliability" in pl.read_csv(people).columns
    assert cw.Ranking.load(kept).method == "crowd-bt"
    assert "crowd-bt: 30 items, 20 annotators, 2,000 answers" in stderr
    assert "●" in stderr and "━" in stderr and "..." in stderr and "written:" in stderr


def test_json_and_pipes(pairs: Path) -> None:
    code, stdout, _ = run(pairs, "--json", "--method", "bradley-terry", "--set", "prior=2", "--seed", 3)
    facts = json.loads(stdout)
    assert code == 0 and facts["method"] == "bradley-terry" and facts["items"] == 30 and facts["converged"]
    assert [row["rank"] for row in facts["leaderboard"]] == sorted(row["rank"] for row in facts["leaderboard"])
    code, stdout, _ = run(pairs)
    assert code == 0 and stdout.startswith("rank,item,score")


def test_rankings_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "ballots.csv"
    cw.simulate.rankings(5, n_rankings=50, random_state=0).rankings.to_frame("polars").write_csv(file)
    code, stdout, _ = run(file, "--json")
    assert code == 0 and json.loads(stdout)["method"] == "plackett-luce"


def test_columns_by_name(tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    file.write_text("one,two,better,by\nx,y,x,ann\ny,x,x,bob\n", encoding="utf-8")
    code, stdout, _ = run(
        file, "--left", "one", "--right", "two", "--outcome", "better", "--annotator", "by", "--json"
    )  # fmt: skip
    assert code == 0 and json.loads(stdout)["leaderboard"][0]["item"] == "x"


def test_parts_that_nothing_joins_are_told_of(tmp_path: Path) -> None:
    file = tmp_path / "parts.csv"
    file.write_text("left,right,winner\na,b,a\nb,a,b\nc,d,c\nd,c,d\n", encoding="utf-8")
    code, stdout, stderr = run(file, "--json")
    assert "Note: " in stderr and "2 parts" in stderr
    facts = json.loads(stdout)
    assert facts["method"] == "bradley-terry"  # nobody is named: there is one annotator
    assert code == 0 and facts["components"] == 2 and "2 parts" in facts["notes"][0]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--method", "elo"], 2, "Unknown method for comparisons 'elo'"),
        (["--method", "anchored"], 2, "for these there are"),
        (["--method", "deep-bt"], 2, "looks at inputs as well"),
        (["--set", "prior=-1"], 2, "prior=-1"),
        (["--out", "board.txt"], 2, "board.txt"),
        (["--left", "nothing"], 1, "no column 'nothing'"),
    ],
)
def test_errors(pairs: Path, words: list[str], code: int, message: str) -> None:
    found, _, stderr = run(pairs, *words)
    assert found == code and message in stderr


def test_a_file_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "votes.csv"
    file.write_text("item,annotator,label\na,m,cat\n", encoding="utf-8")
    code, _, stderr = run(file)
    assert code == 1 and "No column found for: left" in stderr


def test_bars() -> None:
    assert whisker(-1.0, 0.0, 1.0, 36, -1.0, 1.0).count("●") == 1
    line = whisker(0.4, 0.5, 0.6, 36, -1.0, 1.0)
    assert "┊" in line and line.index("┊") < line.index("━") < line.index("●")


def test_verdicts_in_other_words_and_items_beside_themselves(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.csv"
    file.write_text("model_a,model_b,judge,winner\nx,y,j,1\ny,z,j,2\nx,z,k,0\nx,x,k,0\nz,x,j,2\n", encoding="utf-8")
    code, _, stderr = run(file)
    assert code == 1 and "--outcomes 1=left,2=right,0=tie" in stderr
    code, _, stderr = run(file, "--outcomes", "1=left,2=right,0=tie")
    assert code == 1 and "--on-self drop" in stderr
    code, stdout, _ = run(file, "--outcomes", "1=left, 2=right, 0=tie", "--on-self", "drop", "--json")
    facts = json.loads(stdout)
    assert code == 0 and facts["answers"] == 4 and facts["leaderboard"][0]["item"] == "x"
    code, _, stderr = run(file, "--outcomes", "1=left,2=right")
    assert code == 1 and "is '0': expected one of the outcomes that were given, '1', '2'." in stderr
    for odd in ("1", "1=up", "=left"):
        code, _, stderr = run(file, "--outcomes", odd)
        assert code == 2 and "left" in stderr
    named = ["--answers", "comparisons", "--column", "outcomes=1=left,2=right,0=tie", "--column", "on_self=drop"]
    again = command_line.run("aggregate", file, *named, "--json")
    assert json.loads(again.stdout)["answers"] == 4


@pytest.fixture
def verdicts(tmp_path: Path) -> Path:
    """Three judges on 30 prompts: one, gpt-x, takes the first answer in most cases."""
    rng = np.random.default_rng(0)
    rows = ["model_a,model_b,judge,winner,prompt"]
    for prompt in range(30):
        for who in ("ann", "bob", "gpt-x"):
            for a, b in (("x", "y"), ("y", "z"), ("z", "x"), ("y", "x"), ("z", "y"), ("x", "z")):
                p = 0.5 + 0.2 * (a < b) - 0.2 * (a > b) + (0.35 if who == "gpt-x" else 0.0)
                rows.append(f"{a},{b},{who},{a if rng.random() < p else b},p{prompt}")
    (tmp_path / "verdicts.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path / "verdicts.csv"


def test_scales_pictures_matrices_and_judges(verdicts: Path, tmp_path: Path) -> None:
    board, picture, rates = tmp_path / "board.csv", tmp_path / "board.svg", tmp_path / "rates.csv"
    code, _, stderr = run(
        verdicts, "--scale", "elo", "--out", board, "--plot", picture, "--win-rates", rates, "--judges", "auto"
    )  # fmt: skip
    assert code == 0
    assert {"score", "elo", "elo_low", "elo_high"} <= set(pl.read_csv(board).columns)
    assert picture.read_text(encoding="utf-8").startswith("<svg") and pl.read_csv(rates).columns == [
        "item",
        "x",
        "y",
        "z",
    ]
    assert "Errors allow for 30 questions" in stderr and "Elo points" in stderr
    assert "annotator gpt-x chose the item shown first in" in stderr
    assert "agreement" in stderr and "people" in stderr
    assert all(str(path) in stderr.replace("\n", "") for path in (board, picture, rates))


def test_json_has_judges_and_groups(verdicts: Path) -> None:
    code, stdout, _ = run(verdicts, "--judges", "gpt-x", "--json", "--scale", "probability")
    facts = json.loads(stdout)
    assert code == 0 and facts["groups"] == 30 and facts["leaderboard"][0]["item"] == "x"
    assert [row["annotator"] for row in facts["judges"]] == ["gpt-x", "people"]
    assert facts["judges"][0]["position_low"] > 0 and facts["judges"][0]["verbosity"] is None
    assert 0.5 < facts["leaderboard"][0]["probability"] < 1.0


def test_some_annotators_and_groups_by_name(verdicts: Path, tmp_path: Path) -> None:
    counts = {}
    for words in ((), ("--only", "ann, bob"), ("--without", "gpt-x"), ("--only", "ann,gpt-x", "--without", "gpt-x")):
        code, stdout, _ = run(verdicts, "--json", *words)
        counts[words] = json.loads(stdout)["annotators"]
        assert code == 0
    assert list(counts.values()) == [3, 2, 2, 1]
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(verdicts.read_text(encoding="utf-8").replace("prompt", "batch"), encoding="utf-8")
    assert json.loads(run(renamed, "--json")[1])["groups"] == 0
    assert json.loads(run(renamed, "--json", "--group", "batch")[1])["groups"] == 30


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--only", "zoe"), 1, "--only zoe: there is no such annotator"),
        (("--without", "ann,bob,gpt-x"), 1, "No answers are left"),
        (("--judges", "gpt"), 1, "Did you mean"),
        (("--plot", "board.pdf"), 2, ".svg or .png"),
        (("--scale", "points"), 2, "points"),
        (("--group", "judge", "--question", "prompt"), 2, "name one thing"),
        (("--group", "nothing"), 1, "no column 'nothing'"),
    ],
)
def test_options_that_do_not_fit(verdicts: Path, words: tuple[str, ...], code: int, message: str) -> None:
    found, _, stderr = run(verdicts, *words)
    assert found == code and message in stderr
