"""The scripts of benchmarks/ keep up with the package: no name of ours that they use is gone."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import ROOT

FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.py"))


def missing(path: Path) -> list[str]:
    """Names below crowdwise that a script imports or reaches through a module, and that are not there."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules: dict[str, Any] = {}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "crowdwise":
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                try:
                    value = getattr(module, alias.name, None) or importlib.import_module(f"{node.module}.{alias.name}")
                except ImportError:
                    found.append(f"line {node.lineno}: {node.module}.{alias.name}")
                else:
                    if isinstance(value, ModuleType):
                        modules[alias.asname or alias.name] = value
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "crowdwise":
                    modules[alias.asname or "crowdwise"] = importlib.import_module(alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and not hasattr(module, node.attr):
                found.append(f"line {node.lineno}: {node.value.id}.{node.attr}")
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_name_that_a_script_uses_is_gone(script: str) -> None:
    assert not missing(FOLDER / script)


def test_a_name_that_is_gone_is_found(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import crowdwise as cw\nfrom crowdwise.core import em\ncw.Votes, cw.nothing, em.nowhere\n")
    assert missing(path) == ["line 3: cw.nothing", "line 3: em.nowhere"]


def test_no_script_hides_a_folder_of_tests_that_others_import_from() -> None:
    """Both folders are on the path of the tests, and a module comes before a folder of that name."""
    helpers = {path.parent.name for path in (ROOT / "tests").glob("*/*.py") if not path.name.startswith("test_")}
    assert {path.stem for path in FOLDER.glob("*.py")} & (helpers - {"conftest"}) == set()
