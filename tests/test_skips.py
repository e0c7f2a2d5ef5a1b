"""What a run does about missing data: skipped and counted, failed with CI=true; and no test ends without a word."""

from __future__ import annotations

import ast

import pytest

from conftest import ROOT

pytest_plugins = ["pytester"]
TESTS = """
import pytest
from conftest import NO_DATA

def test_collection(real):
    real("rte")

def test_other():
    pytest.skip(f"{NO_DATA}: no rows")

def test_system():
    pytest.skip("there is no device")
"""


@pytest.mark.parametrize(("ci", "outcomes"), [("", {"skipped": 3}), ("true", {"skipped": 2, "failed": 1})])
def test_missing_data(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, outcomes: dict[str, int]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("CROWDWISE_DATA", str(pytester.path / "none"))
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers =\n    collection: needs data\n")
    pytester.makepyfile(TESTS)
    run = pytester.runpytest_subprocess("--strict-markers")
    run.assert_outcomes(**outcomes)
    large = 1 if ci else 2
    run.stdout.fnmatch_lines([
        f"{outcomes['skipped']} tests were skipped:", f"*{large}  they need the large collection of real data",
    ])  # fmt: skip
    run.stdout.fnmatch_lines(["*1  there is no device"])
    if ci:
        run.stdout.fnmatch_lines(["*no real data: no rows (with CI=true a failure, but for tests marked collection)"])


def silent_ends(source: str) -> list[str]:
    """Tests with a branch that returns without an assertion, a skip or a ``with`` (which may expect an error)."""
    found = []
    for test in ast.walk(ast.parse(source)):
        if not (isinstance(test, ast.FunctionDef) and test.name.startswith("test")):
            continue
        for branch in (node for node in ast.walk(test) if isinstance(node, ast.If)):
            for body in (branch.body, branch.orelse):
                ends = bool(body) and isinstance(body[-1], ast.Return) and body[-1].value is None
                if ends and not any(isinstance(n, (ast.Assert, ast.With)) for part in body for n in ast.walk(part)):
                    found.append(f"{test.name}, line {body[-1].lineno}")
    return found


def test_no_test_returns_in_silence() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    found = {path.name: ends for path in files if (ends := silent_ends(path.read_text(encoding="utf-8")))}
    assert found == {}


def test_a_silent_return_is_found() -> None:
    source = "def test_x(key):\n    if key:\n        return\n    assert key\n"
    assert silent_ends(source) == ["test_x, line 3"]
    assert silent_ends(source.replace("        return", "        assert key\n        return")) == []
