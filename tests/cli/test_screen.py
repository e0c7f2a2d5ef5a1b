"""Names are data on the screen, and output that was cut is an error."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crowdwise as cw
from command_line import run
from crowdwise.bench.runs import Cell
from crowdwise.cli.show import CONTROLS, Screen, histogram_table, method_table, show_bench
from crowdwise.cli.show_aggregate import annotator_table, class_table, leaderboard
from crowdwise.report.page import page

HOSTILE = "task,worker,label\n1,[/INST],[unk]\n1,b,[unk]\n2,[/INST],[/b]\n2,\x1b[31mred,é[bold]\n2,b,é[bold]\n"
FULL = Path("/dev/full")


def process(*words: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "crowdwise", *map(str, words)]
    return subprocess.run(command, **({"capture_output": True} | options), check=False)  # type: ignore[call-overload]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "[b]votes[unk].csv"
    path.write_text(HOSTILE, encoding="utf-8")
    return path


@given(st.text())
def test_what_is_printed_is_what_was_given(text: str) -> None:
    screen = Screen(file=io.StringIO(), width=10_000, force_terminal=False)
    screen.print(text, soft_wrap=True, end="")
    shown = screen.file.getvalue()
    assert not set(map(ord, shown)) & set(CONTROLS)
    plain = text.translate({ord("\t"): None, ord("\n"): None})
    if plain.isprintable():
        assert shown.replace("\n", "").replace(" ", "") == plain.replace(" ", "")


def test_hostile_names_are_shown_as_they_are(hostile: Path, tmp_path: Path) -> None:
    for command in ("describe", "diagnose", "agreement", "compare"):
        done = run(command, hostile)
        assert "\x1b" not in done.stdout + done.stderr
    done = run("aggregate", hostile, "--out", tmp_path / "out.csv", "--verbose")
    for name in ("[/INST]", "[unk]", "é[bold]", "\\x1b[31m"):
        assert name in done.stderr


def test_results_are_utf_8_whatever_the_terminal_is(hostile: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert "é[bold]" in process("aggregate", hostile, env=environment).stdout.decode("utf-8")
    done = process("describe", hostile, env=environment)
    assert done.returncode == 0 and b"\\xe9[bold]" in done.stdout


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["aggregate FILE", "aggregate FILE --json", "describe FILE", "methods"])
def test_output_that_was_cut_is_an_error(words: str, hostile: Path) -> None:
    arguments = [hostile if word == "FILE" else word for word in words.split()]
    with FULL.open("wb") as full:
        done = process(*arguments, stdout=full, capture_output=False, stderr=subprocess.PIPE)
    assert done.returncode == 1
    message = done.stderr.decode()
    assert "No space left on device" in message and "Traceback" not in message


def test_tables_of_benchmarks_are_split_where_the_terminal_is_narrow(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    sets = [f"data_set_{n}" for n in range(9)]
    method = "grouped-dawid-skene"
    cells = [Cell(data=name, method=method, accuracy=0.5 + n / 100) for n, name in enumerate(sets)]
    show_bench(sets, [method], cells)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    words = " ".join(lines).split()
    assert [word for word in words if word.startswith("data_set")] == sets
    assert words.count(method) == len([line for line in lines if line.startswith("accuracy %")]) > 1
    assert words[-1] == "54.0"


def shown(table: object, width: int) -> str:
    screen = Screen(file=io.StringIO(), width=width, force_terminal=False)
    screen.print(table)
    return screen.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_drawings_are_scaled_to_the_room_they_have(width: int) -> None:
    """A bar or an interval that is cut says something else: the longest looks like all others, an estimate is gone."""
    long = "annotator with a name that takes most of the line"
    accuracy = (np.array([0.9, 0.5]), np.array([0.8, 0.3]), np.array([0.95, 0.7]))
    people = shown(annotator_table([long, "b"], np.array([12, 7]), accuracy), width)
    assert people.count("●") == 2 and "…" not in people and "100%" in people
    classes = shown(class_table([long, "b"], np.array([30, 15])), width)
    blocks = [line.count("█") for line in classes.splitlines() if "█" in line]
    assert blocks[0] // 2 == blocks[1] > 3 and "…" not in classes
    counts = shown(histogram_table("Votes per item", np.array([2, 2, 3])), width)
    assert "…" not in counts
    ranking = cw.aggregate(cw.simulate.comparisons(5, n_comparisons=200, random_state=0).comparisons, "bradley-terry")
    board = shown(leaderboard(ranking), width)
    assert board.count("●") == 5 and "…" not in board
    assert all(str(name) in board for name in ranking.items)


def test_compared_methods_keep_their_names_on_a_narrow_screen() -> None:
    votes = cw.simulate.one_coin(60, n_annotators=5, random_state=0).votes
    table = shown(method_table(cw.compare(votes, ["majority", "dawid-skene"], repeats=1), 40), 40)
    assert "majority" in table and "dawid-skene" in table and "…" not in table


def test_the_last_bin_of_a_histogram_ends_where_the_counts_do() -> None:
    assert "512 to 800" in shown(histogram_table("Votes", np.array([20, 600, 800])), 80)


def test_what_is_so_or_not_is_said_by_yes_and_no(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("left,right,annotator,winner\na,b,x,left\nb,c,x,right\n", encoding="utf-8")
    assert "weighted: no" in run("describe", path).stdout


def test_one_is_singular(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("item,annotator,label\ni,ann,yes\ni,bob,no\n", encoding="utf-8")
    assert run("describe", path).stdout.startswith("2 votes by 2 annotators on 1 item, 2 classes\n")
    shown = run("aggregate", path).stderr
    assert "1 label from 2 votes by 2 annotators, 2 classes (auto)" in shown
    assert "Ties: 1 of 1 label; another class is as probable." in shown
    diagnosis = run("diagnose", path).stdout
    assert (
        "2 votes by 2 annotators on 1 item, 2 classes;" in diagnosis
        and "1 of 1 item (100%) holds 100% of the expected errors" in diagnosis
    )
    text = page(cw.build_report(cw.read_votes(path)))
    assert "0 of 1 label has a probability" in text and "A single one." in text and "The first 1" not in text
