"""The package as people get it: a wheel, installed into an environment of its own, away from the source tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import crowdwise
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
Once = Callable[[str, Callable[[Path], None]], Path]


def run(*words: str | Path, cwd: Path, **env: str) -> str:
    """What a command prints; it knows nothing of the source tree."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(w) for w in words], cwd=cwd, env={**clean, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(once: Once) -> Path:
    """A folder with the wheel and the source archive."""

    def build(folder: Path) -> None:
        folder.mkdir()
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder, cwd=ROOT)

    return once("built", build)


@pytest.fixture(scope="module")
def installed(built: Path, once: Once) -> Path:
    """The programs of a new environment that has the wheel; the packages that it needs are those of this one."""

    def install(folder: Path) -> None:
        venv.create(folder, symlinks=True)
        python = folder / "bin" / "python"
        (wheel,) = built.glob("*.whl")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        run(*pip, "install", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
        site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
        (site / "needs.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")

    return once("installed", install) / "bin"


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = [archive.read(n).decode() for n in archive.namelist() if n.endswith("METADATA")]
    ours = {path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert names == {path.relative_to(ROOT / "src").as_posix() for path in ours}
    assert set(re.findall(r"^Provides-Extra: (\S+)", metadata, flags=re.M)) == set(
        PROJECT["project"]["optional-dependencies"]
    )


def test_the_source_archive_has_what_tests_and_documentation_need(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as found:
        names = {name.partition("/")[2] for name in found.getnames()}
    needed = ["Makefile", "constraints.txt", "mkdocs.yml", "CITATION.cff", "CHANGELOG.md", "LICENSE", ".ci/run"]
    needed += ["tests/conftest.py", "docs/index.md", "examples/gold_questions.py", "src/crowdwise/py.typed"]
    assert [name for name in needed if name not in names] == []
    patterns = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [pattern for pattern in patterns if not list(ROOT.glob(pattern.lstrip("/")))] == []


def test_the_environment_has_the_wheel_and_not_the_source_tree(installed: Path, tmp_path: Path) -> None:
    code = "import crowdwise; print(crowdwise.__file__, crowdwise.__version__)"
    file, version = run(installed / "python", "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(installed.parent) and version == crowdwise.__version__
    code = "from importlib.metadata import version; print(version('crowdwise'))"
    assert run(installed / "python", "-c", code, cwd=tmp_path).strip() == crowdwise.__version__


@pytest.mark.slow
def test_the_demonstration_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    said = run(installed / "crowdwise", "demo", cwd=tmp_path)
    assert "dawid-skene" in said and (tmp_path / "crowdwise-demo-report.html").stat().st_size > 50_000


@pytest.mark.slow
def test_an_example_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "gold_questions.py", tmp_path)
    assert run(installed / "python", "gold_questions.py", cwd=tmp_path)


def test_every_extra_has_code_behind_it() -> None:
    """What an extra installs is imported somewhere, in src or by the tools that it is for."""
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == {"deep", "report", "serve", "spark", "docs", "dev"}
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    modules = {
        "pillow": "PIL", "psycopg": "sqlalchemy", "python-multipart": "fastapi",  # the last ones: what uses them
        "httptools": "uvicorn", "uvloop": "uvicorn",
    }  # fmt: skip
    for requirement in [*extras["deep"], *extras["report"], *extras["serve"], *extras["spark"]]:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert re.search(rf"(import|from) {modules.get(name, name)}\b", source), name


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == crowdwise.__version__
    assert cited["license"] == PROJECT["project"]["license"] and cited["keywords"] == PROJECT["project"]["keywords"]
    assert len(cited["references"]) == 5 and all(text["authors"] and text["year"] for text in cited["references"])


def test_pins_are_exact_and_cover_what_is_asked_for() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in lines}
    project = PROJECT["project"]
    asked = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=\[]", r)[0]).lower() for r in asked} - {"crowdwise"}
    assert names - pinned == set()
