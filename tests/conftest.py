"""What every test may use: the real data sets, where they are, and repeatable property tests.

Real data is looked for in the folder named by ``CROWDWISE_DATA``, else in ``shared/data`` beside the repository; each
data set is a folder there (``rte``, ``web``, ...). Tests that ask for it (the fixtures ``real`` and ``real_data``) are
marked ``collection``; without it they are skipped. The end of a run says how many were skipped, and why.

With ``CI=true`` a part of the system that is missing (a browser, a package) fails the tests that need it, so that a run
that says "passed" has run them, and so does missing data in a test that is not marked ``collection``.
"""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
NO_DATA = "no real data"
"""How the reason of a test begins that was skipped for lack of data."""
os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels for a GPU run here, slowly, in numpy

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("thorough", parent=settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def data_folder() -> Path | None:
    """The folder of real data sets, or None where there is none."""
    named = os.environ.get("CROWDWISE_DATA")
    folder = Path(named).expanduser() if named else ROOT.parent / "shared" / "data"
    return folder.resolve() if folder.is_dir() else None


def missing() -> str:
    """Why there is no real data, and what to do about it."""
    named = os.environ.get("CROWDWISE_DATA")
    return (
        f"{NO_DATA}: CROWDWISE_DATA={named} is not a folder"
        if named
        else f"{NO_DATA}: set CROWDWISE_DATA to a folder of data sets"
    )


def real(name: str) -> Path:
    """The folder of one real data set; skips the test where it is absent."""
    folder = data_folder()
    if folder is None:
        pytest.skip(missing())
    if not (folder / name).is_dir():
        pytest.skip(f"{NO_DATA}: no data set {name!r} in {folder}")
    return folder / name


# -------------------------------------------------------------------- parts of the system


def pytest_runtest_setup() -> None:
    """Bars are drawn in the terminals of tests, whatever the real one is called or a library has made of its name."""
    os.environ["TERM"] = "xterm"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three processes for two cores: many tests wait for servers, browsers and other processes."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


def in_ci() -> bool:
    """Whether what is missing is a failure."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def lacking(reason: str) -> None:
    """Skip the test, where CI=true fail it."""
    if in_ci():
        pytest.fail(f"{reason} (with CI=true a missing part is a failure)", pytrace=False)
    pytest.skip(reason)


def need_module(name: str) -> Any:
    """A module that the test cannot do without."""
    try:
        return importlib.import_module(name)
    except ImportError:
        lacking(f"{name.partition('.')[0]} is not installed")


def need_program(*names: str) -> str:
    """The path of a program, the first of these names that is there."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        lacking(f"no {names[0]} on the path")
    return str(found)


def need_browser() -> str:
    """The path of Chromium, which playwright drives; both have to be there. ``make test`` installs both."""
    need_module("playwright.sync_api")
    return need_program("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; where it is missing, the test is skipped, with CI=true failed."""
    program = need_browser()
    with need_module("playwright.sync_api").sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """``once("site", make)`` is a folder that ``make`` has filled: once in a run, whichever process comes first."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base

    def folder_of(name: str, make: Callable[[Path], None]) -> Path:
        folder, done, lock = base / name, base / f"{name}.done", base / f"{name}.lock"
        while not done.exists():
            try:
                lock.mkdir()
            except FileExistsError:  # another process makes it
                time.sleep(0.1)
                continue
            try:
                if not done.exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    make(folder)
                    done.touch()
            finally:
                lock.rmdir()
        return folder

    return folder_of


# -------------------------------------------------------------------- real data


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of all real data sets; skips the test where it is absent."""
    folder = data_folder()
    if folder is None:
        pytest.skip(missing())
    return folder


@pytest.fixture(scope="session", name="real")
def real_fixture() -> Callable[[str], Path]:
    """:func:`real` as a fixture: ``real("rte")`` is the folder of that data set."""
    return real


def pytest_report_header() -> str:
    folder = data_folder()
    if folder is None:
        return f"{missing()}; the tests that need it are skipped"
    count = sum(1 for child in folder.iterdir() if child.is_dir())
    return f"real data: {count} data sets in {folder}"


# -------------------------------------------------------------------- what was skipped, and why


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that ask for real data."""
    for item in items:
        if {"real", "real_data"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.collection)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    """With CI=true, fail a test that lacks data without being marked as needing the large collection."""
    report = yield
    if report.skipped and in_ci() and item.get_closest_marker("collection") is None and NO_DATA in skip_reason(report):
        report.outcome = "failed"
        report.longrepr = f"{skip_reason(report)} (with CI=true a failure, but for tests marked collection)"
    return report


def skip_reason(report: Any) -> str:
    """Why a test was skipped."""
    where = report.longrepr
    return str(where[2] if isinstance(where, tuple) else where).removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many tests were skipped, and why."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons = Counter(
        "they need the large collection of real data" if NO_DATA in (why := skip_reason(report)) else why
        for report in skipped
    )
    terminalreporter.write_line(f"{len(skipped)} tests were skipped:")
    for why, count in reasons.most_common():
        terminalreporter.write_line(f"  {count:4d}  {why}")
