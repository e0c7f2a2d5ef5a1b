"""What every test may use: the real data sets, where they are, and repeatable property tests.

Real data is looked for in the folder named by ``CROWDWISE_DATA``, else in ``shared/data`` beside the repository; each
data set is a folder there (``rte``, ``web``, ...). Without it the tests that need it are skipped, and the header says
so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

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
        f"no real data: CROWDWISE_DATA={named} is not a folder"
        if named
        else "no real data: set CROWDWISE_DATA to a folder of data sets"
    )


def real(name: str) -> Path:
    """The folder of one real data set; skips the test where it is absent."""
    folder = data_folder()
    if folder is None:
        pytest.skip(missing())
    if not (folder / name).is_dir():
        pytest.skip(f"no real data set {name!r} in {folder}")
    return folder / name


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
