"""``crowdwise rank``: files in, a leaderboard out."""

from __future__ import annotations

import itertools
import json
import re
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


def run(*words: object, columns: int = 120) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["rank", *map(str, words)], env={"COLUMNS": str(columns)})
    return result.exit_code, result.stdout, result.stderr


def test_a_leaderboard_is_written_and_drawn(pairs: Path, tmp_path: Path) -> None:
    out, people, kept = tmp_path / "board.csv", tmp_path / "people.csv", tmp_path / "kept"
    code, stdout, stderr = run(pairs, "--out", out, "--annotators", people, "--save", kept)
    assert code == 0 and stdout == ""
    board = pl.read_csv(out)
    assert board["rank"].to_list() == sorted(board["rank"].to_list()) and board.height == 30
    assert {"score", "error", "low", "high", "rank_low", "rank_high", "wins", "losses", "ties"} <= set(board.columns)
    assert "slope" in pl.read_csv(people).columns
    assert cw.Ranking.load(kept).method == "judge-bt"
    assert "judge-bt: 30 items, 20 annotators, 2,000 answers" in stderr
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
    assert facts["method"] == "judge-bt"
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


@pytest.fixture
def judgments(tmp_path: Path) -> Path:
    """Three people and two judges, one of whom likes the first answer; longer answers win more."""
    rng, scores, rows = np.random.default_rng(0), np.linspace(-1, 1, 5), []
    for prompt in range(40):
        here = scores + rng.normal(0, 0.7, 5)
        for i, j in itertools.combinations(range(5), 2):
            size = np.exp(rng.normal(5, 0.6, 2))
            for who, lean in (("ann", 0), ("bob", 0), ("eva", 0), ("gpt-4", 0.2), ("claude-3", 1.2)):
                a, b = (i, j) if rng.random() < 0.5 else (j, i)
                z = 2 * (here[a] - here[b]) + lean + 0.5 * np.log2(size[0] / size[1]) * (1 if a == i else -1)
                won = "model_a" if rng.random() < 1 / (1 + np.exp(-z)) else "model_b"
                la, lb = size if a == i else size[::-1]
                kind = "llm" if "-" in who else "human"
                rows.append((f"m{a}", f"m{b}", won, who, prompt, la, lb, ["code", "math"][prompt % 2], kind))
    file = tmp_path / "judgments.csv"
    names = ["model_a", "model_b", "winner", "judge", "prompt", "size_a", "size_b", "category", "kind"]
    pl.DataFrame(rows, schema=names, orient="row").write_csv(file)
    return file


def test_covariates_categories_two_items_and_an_anchor(judgments: Path, tmp_path: Path) -> None:
    out, plot = tmp_path / "board.csv", tmp_path / "heat.svg"
    code, _, stderr = run(judgments, "--control", "size", "--by", "category", "--versus", "m4", "m3", "--next", 2,
                          "--anchor", "m0=1000", "--scale", "elo", "--out", out, "--plot", plot)  # fmt: skip
    assert code == 0, stderr
    board = pl.read_csv(out)
    assert set(board["category"]) == {"all", "code", "math"} and board.height == 15
    assert board.filter((pl.col("item") == "m0") & (pl.col("category") == "all"))["elo"][0] == pytest.approx(1000)
    said = " ".join(stderr.split())
    assert "Effects of what was controlled for" in said and "m4 against m3" in said and "ask about" in said
    assert "Scores by category" in plot.read_text(encoding="utf-8") and "Scores by category" in said
    code, stdout, _ = run(judgments, "--control", "size", "--versus", "m4", "m0", "--json", "--people", "ann,bob,eva")
    facts = json.loads(stdout)
    assert code == 0 and facts["versus"]["more"] == 0 and facts["effects"][0]["effect"] == "size"
    assert [row["annotator"] for row in facts["judges"]] == ["claude-3", "gpt-4", "people"]
    for words, message in (
        (("--anchor", "m0"), "expected an item and a number"),
        (("--versus", "m4", "m9"), "--versus m9: there is no such item"),
        (("--control", "mood"), "There is no column 'mood'"), (("--own", "gpt-4"), "expected judge=item"),
    ):  # fmt: skip
        more = ("--judges", "gpt-4") if words[0] == "--own" else ()
        code, _, stderr = run(judgments, *words, *more)
        assert code in (1, 2) and message in " ".join(stderr.split()), stderr


def test_as_many_categories_are_beside_each_other_as_fit(judgments: Path) -> None:
    code, _, stderr = run(judgments, "--by", "judge", columns=60)
    boards = stderr.partition("Scores by category")[2]
    assert code == 0 and len(re.findall(r"^m4 +[+-]", boards, re.M)) == 2 and "…" not in boards


def test_judges_beside_people(judgments: Path, tmp_path: Path) -> None:
    out, page, panels = tmp_path / "judges.csv", tmp_path / "judges.html", tmp_path / "panels.csv"
    words = ["judges", str(judgments), "--judge-column", "kind", "--own", "gpt-4=m4", "--cost", "gpt-4=10"]
    result = CliRunner().invoke(app, [*words, "--out", str(out), "--html", str(page), "--panels", str(panels)])
    assert result.exit_code == 0, result.stderr
    table = pl.read_csv(out)
    assert table["annotator"].to_list() == ["claude-3", "gpt-4", "people"]
    assert table["position_low"][0] > 0.5 and table["position_low"][0] > table["position"][1]
    assert all(row["kappa_low"] < row["kappa"] < row["kappa_high"] for row in table.to_dicts()[:2])
    shown = page.read_text(encoding="utf-8")
    assert "agreement with people, ties left out" in shown and "has the people's verdict" in shown
    assert "Judges and people" in shown and pl.read_csv(panels)["best"].sum() == 1
    assert "Cheapest panel near the best" in result.stderr
    result = CliRunner().invoke(app, ["judges", str(judgments), "--judges", "auto", "--json"])
    assert "Taken for judges" in result.stderr and json.loads(result.stdout)["panels"]


def test_outcomes_of_report_and_aggregate(tmp_path: Path) -> None:
    file = tmp_path / "coded.csv"
    file.write_text("left,right,winner\na,b,1\nb,a,2\na,b,0\n", encoding="utf-8")
    for words in (["aggregate", str(file)], ["report", str(file), "--out", str(tmp_path / "r.html")]):
        result = CliRunner().invoke(app, [*words, "--answers", "comparisons", "--outcomes", "1=left,2=right,0=tie"])
        assert result.exit_code == 0, result.stderr


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """Scores of two judges, one of whom uses half of the scale, on three models and 12 prompts."""
    rng, rows = np.random.default_rng(0), []
    for prompt in range(12):
        for n, model in enumerate(("low", "mid", "top")):
            quality = 4 + 1.5 * n + rng.normal(0, 0.5)
            for judge, scale in (("gpt-4", 1.0), ("mini", 0.5)):
                rows.append(
                    (model, prompt, judge, round(scale * quality + rng.normal(0, 0.2), 2), ["a", "b"][prompt % 2])
                )
    file = tmp_path / "scores.csv"
    pl.DataFrame(rows, schema=["model", "prompt", "judge", "score", "kind"], orient="row").write_csv(file)
    return file


def test_scores_are_ranked(scores: Path, tmp_path: Path) -> None:
    out, plot, judges = tmp_path / "board.csv", tmp_path / "board.svg", tmp_path / "judges.csv"
    code, _, stderr = run(scores, "--by", "kind", "--versus", "top", "low", "--out", out, "--plot", plot,
                          "--annotators", judges)  # fmt: skip
    assert code == 0, stderr
    board = pl.read_csv(out)
    assert board.filter(pl.col("category") == "all")["item"].to_list() == ["top", "mid", "low"] and board.height == 9
    assert "Leaderboard: points" in stderr and "Errors allow for 12 prompts" in stderr and "They differ" in stderr
    assert "in points" in plot.read_text(encoding="utf-8")
    scale = dict(pl.read_csv(judges)["annotator", "slope"].rows())
    assert 1.7 < scale["gpt-4"] / scale["mini"] < 2.3
    code, stdout, _ = run(scores, "--json", "--anchor", "low=0")
    facts = json.loads(stdout)
    assert code == 0 and facts["unit"] == "points" and facts["groups"] == 12
    assert facts["leaderboard"][-1]["score"] == pytest.approx(0.0)
    for words, message in ((("--control", "x"), "--control is for comparisons"), (("--scale", "elo"), "--scale is for"),
                           (("--by", "mood"), "There is no column 'mood'")):  # fmt: skip
        code, _, stderr = run(scores, *words)
        assert code in (1, 2) and message in stderr


def test_pass_and_fail_are_ranked_with_gold(tmp_path: Path) -> None:
    rng, rows, gold = np.random.default_rng(0), [], []
    for model, rate in (("new", 0.8), ("old", 0.5)):
        for prompt in range(60):
            good = rng.random() < rate
            rows += [(model, prompt, f"gpt-{k}", "pass" if good == (rng.random() < 0.9) else "fail") for k in range(3)]
            gold += [(model, prompt, "pass" if good else "fail")] if rng.random() < 0.6 else []
    file, known = tmp_path / "verdicts.csv", tmp_path / "gold.csv"
    pl.DataFrame(rows, schema=["model", "prompt", "judge", "verdict"], orient="row").write_csv(file)
    pl.DataFrame(gold, schema=["model", "prompt", "label"], orient="row").write_csv(known)
    for words in ((), ("--gold", str(known))):
        code, stdout, _ = run(file, "--json", *words)
        facts = json.loads(stdout)
        assert code == 0 and facts["unit"] == "pass rate" and facts["leaderboard"][0]["item"] == "new"
        assert all(row["low"] < row["score"] <= row["high"] <= 1.0 for row in facts["leaderboard"])
    assert "gold labels" in facts["notes"][0]


def test_who_is_who_is_printed_and_votes_have_judges(judgments: Path, tmp_path: Path) -> None:
    code, _, stderr = run(judgments, "--people", "ann,bob,eva", "--out", tmp_path / "board.csv")
    assert code == 0 and "Judges: 'claude-3', 'gpt-4'; people: 'ann', 'bob', 'eva'." in stderr
    rng, file, page = np.random.default_rng(0), tmp_path / "votes.csv", tmp_path / "page.html"
    good = rng.random(120) < 0.5
    rows = [(n, who, "pass" if good[n] == (rng.random() < 0.9) else "fail") for n in range(120)
            for who in ("ann", "bob", "cem", "gpt-4", "mini")]  # fmt: skip
    pl.DataFrame(rows, schema=["item", "annotator", "label"], orient="row").write_csv(file)
    result = CliRunner().invoke(app, ["judges", str(file), "--judges", "gpt-4,mini", "--html", str(page), "--json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert [row["annotator"] for row in found["judges"]] == ["gpt-4", "mini"]
    assert all(row["may_replace_people"] is True and row["kappa"] > 0.4 for row in found["judges"])
    assert "may replace people" in page.read_text(encoding="utf-8") and "ann, bob, cem" in page.read_text(
        encoding="utf-8"
    )


def test_methods_for_comparisons_are_compared(judgments: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(judgments), "--repeats", "1"])
    assert result.exit_code == 0, result.stderr
    assert "predict held-out comparisons" in result.stdout and "judge-bt" in result.stdout
    result = CliRunner().invoke(app, ["compare", str(judgments), "--truth", str(judgments)])
    assert result.exit_code == 2 and "leave it out" in result.stderr


def test_judges_without_enough_common_items_have_no_verdict_and_scores_are_named(tmp_path: Path) -> None:
    rows = [(f"m{n % 3}", f"m{(n + 1) % 3}", judge, "ab"[n % 2], n) for n in range(40) for judge in ("ann", "bob")]
    rows += [(f"m{n % 3}", f"m{(n + 1) % 3}", "llm:x", "a", n) for n in range(12)]
    path = tmp_path / "battles.csv"
    pl.DataFrame(rows, ["model_a", "model_b", "judge", "winner", "prompt"], orient="row").write_csv(path)
    facts = json.loads(command_line.run("judges", path, "--people", "ann,bob", "--json").stdout)
    (row,) = (row for row in facts["judges"] if row["annotator"] == "llm:x")
    assert row["may_replace_people"] is None and "no annotator has 30 items" in facts["alternative_test"][0]
    assert "may replace" not in command_line.run("judges", path, "--people", "ann,bob").stderr
    scores = tmp_path / "scores.csv"
    scores.write_text("model,prompt,judge,score\nx,1,j,3\ny,1,j,4\n")
    done = command_line.run("judges", scores)
    assert done.returncode == 1 and "holds scores. Of scores make a leaderboard: crowdwise rank" in done.stderr
