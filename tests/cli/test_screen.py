"""Names are data on the screen, and output that was cut is an error."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import run
from crowdwise.cli.screen import CONTROLS, Screen
from crowdwise.cli.show_bench import show_bench

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
    done = run("aggregate", hostile, "--out", tmp_path / "out.csv")
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
    cells = [SimpleNamespace(data=name, method=method, accuracy=0.5 + n / 100) for n, name in enumerate(sets)]
    show_bench(sets, [method], cells)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    words = " ".join(lines).split()
    assert [word for word in words if word.startswith("data_set")] == sets
    assert words.count(method) == len([line for line in lines if line.startswith("accuracy %")]) > 1
    assert words[-1] == "54.0"
