"""Methods of other packages: the package of CONTRIBUTING.md, built, installed and used; packages that are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import crowdwise as cw
from conftest import ROOT
from crowdwise import registry
from crowdwise.errors import InputWarning, ParameterError


def block(language: str, words: str) -> str:
    """The block of CONTRIBUTING.md with such words."""
    parts = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split(f"```{language}\n")[1:]
    return next(text for text in (part.partition("```")[0] for part in parts) if words in text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, its source beside it."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    method = block("python", "class TwoThirds(Model)").replace("cw.TwoThirds()", "TwoThirds()")
    for name, text in {
        "pyproject.toml": block("toml", "crowdwise.methods"),
        "src/crowd_extras/__init__.py": method,
        "tests/test_contract.py": block("python", "import crowd_extras"),
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(folder / "site"), str(source)], check=True)
    return folder / "site"


def with_plugin(site: Path, *words: str, cwd: Path | None = None) -> str:
    """What a new process with the package installed prints."""
    path = os.pathsep.join([str(site), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, *words]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_every_command_knows_it(site: Path, tmp_path: Path) -> None:
    crowd = tmp_path / "sets" / "crowd"
    cw.simulate.one_coin(60, n_annotators=6, votes_per_item=4, random_state=0).save(crowd)
    labels = str(crowd / "labels.csv")
    listed = json.loads(with_plugin(site, "-m", "crowdwise", "methods", "--labels", "--json"))["methods"][-1]
    assert (listed["key"], listed["reference"], listed["family"]) == ("two-thirds", "crowd-extras 1.0", "plugin")
    assert listed["summary"] == "The share of votes, with a column ``decided`` in the table of items"
    assert listed["docs"] == "https://example.org/crowd-extras" and listed["parameters"]["min_votes"] == 2
    shown = with_plugin(site, "-m", "crowdwise", "methods")
    assert "of other packages" in shown and "two-thirds" in shown
    table = with_plugin(site, "-m", "crowdwise", "aggregate", labels, "--method", "two-thirds", "--set", "min_votes=3")
    assert "decided" in table.splitlines()[0]
    two = "majority,two-thirds"
    compared = json.loads(with_plugin(site, "-m", "crowdwise", "compare", labels, "-m", two, "--json"))
    assert "two-thirds" in str(compared)
    words = ("bench", "--data", str(crowd.parent), "--methods", two, "--json")
    cells = json.loads(with_plugin(site, "-m", "crowdwise", *words))["cells"]
    assert [c["method"] for c in cells] == ["majority", "two-thirds"]
    assert cells[0]["accuracy"] == cells[1]["accuracy"]


def test_python_knows_it_and_importing_crowdwise_looks_for_no_package(site: Path, tmp_path: Path) -> None:
    code = """
import sys, crowdwise as cw
assert "importlib.metadata" not in sys.modules
crowd = cw.simulate.one_coin(60, n_annotators=6, votes_per_item=4, random_state=0)
cw.aggregate(crowd.votes, "majority")
assert "crowd_extras" not in sys.modules
found = cw.aggregate(crowd.votes, "two-thirds", threshold=0.75)
found.save("kept")
assert cw.Consensus.load("kept").method == "two-thirds"
cw.write_report(crowd.votes, found, "report.html")
assert "crowd-extras 1.0" in open("report.html", encoding="utf-8").read()
from crowdwise.api import compared
assert "two-thirds" in compared("all")
sys.stdout.write("done")
"""
    assert with_plugin(site, "-c", code, cwd=tmp_path) == "done"


def test_its_own_tests_pass(site: Path) -> None:
    source = site.parent / "source"
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--doctest-modules", "--rootdir", str(source))
    assert "passed" in with_plugin(site, *words, str(source), cwd=source)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Install entry points and a module, without pip."""

    def install(points: str, code: str = "") -> None:
        folder = tmp_path / "odd_methods-0.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-methods\nVersion: 0.1\n")
        (folder / "entry_points.txt").write_text(f"[crowdwise.methods]\n{points}\n")
        (tmp_path / "odd_methods.py").write_text(code)
        monkeypatch.syspath_prepend(str(tmp_path))
        registry.plugins.cache_clear()

    yield install
    sys.modules.pop("odd_methods", None)
    registry.plugins.cache_clear()


def test_a_key_of_ours_is_never_replaced(installed) -> None:
    installed("majority = odd_methods:Mine")
    with pytest.warns(InputWarning, match=r"odd-methods 0\.1 has a method 'majority', a key that is taken"):
        assert registry.plugins() == {}
    assert registry.find("majority").load() is cw.MajorityVote


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1", "AttributeError: module 'odd_methods' has no attribute 'Mine'"),
        ("class Mine:\n    key = 'yours'", "its class has the key 'yours'"),
    ],
)
def test_a_broken_package_is_named_and_stops_nothing_else(installed, code: str, why: str) -> None:
    installed("mine = odd_methods:Mine", code)
    with pytest.raises(ParameterError, match=r"The method mine of odd-methods 0\.1 cannot be loaded") as caught:
        cw.aggregate(cw.Votes.from_dense([[0, 1], [1, 1]]), "mine")
    assert why in str(caught.value)
    assert why in registry.plugins()["mine"].summary
    crowd = cw.simulate.one_coin(40, n_annotators=5, random_state=0)
    assert cw.compare(crowd.votes, ["majority", "wawa"], repeats=1, replicates=0).methods
