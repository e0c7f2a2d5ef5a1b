"""The files that other services read: workflows, hooks and templates are whole, and agree with the project."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / ".github").rglob("*.yml"))
WORKFLOWS = [name for name in FILES if "workflows" in name]


def read(name: str) -> dict:
    return dict(yaml.safe_load((ROOT / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [*FILES, ".pre-commit-config.yaml"])
def test_it_is_yaml(name: str) -> None:
    assert read(name)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_a_workflow_runs_is_there(name: str) -> None:
    flow = read(name)
    assert flow["permissions"] == {"contents": "read"}  # a job that writes asks for it
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    for job in flow["jobs"].values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            for word in step.get("run", "").split():
                if word.startswith((".ci/", "tests/")):
                    assert (ROOT / word).exists(), word
            assert set(re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))) <= targets


def test_every_python_that_the_package_names_is_tested() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert read(".github/workflows/tests.yml")["jobs"]["linux"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_hooks_run_the_ruff_of_ci() -> None:
    hooks = {repo["repo"]: repo.get("rev") for repo in read(".pre-commit-config.yaml")["repos"]}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert f"ruff=={hooks['https://github.com/astral-sh/ruff-pre-commit'].removeprefix('v')}\n" in pins


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml"])
def test_forms_of_issues_have_what_they_need(name: str) -> None:
    form = read(f".github/ISSUE_TEMPLATE/{name}")
    assert form["name"] and form["description"] and form["body"]
    assert all(part["attributes"]["label"] for part in form["body"])
    assert len({part["id"] for part in form["body"]}) == len(form["body"])
