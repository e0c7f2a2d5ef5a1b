"""The pages that tests look at, made once in a run."""

from __future__ import annotations

import json

import pytest

from report.made import make


@pytest.fixture(scope="session")
def pages(once):
    """The folder of pages (``report.made.PAGES``) and the dicts behind them."""
    return once("report-pages", make)


@pytest.fixture(scope="session")
def made(pages):
    """``made("hostile")`` is the dict of a report and its page."""

    def read(name):
        report = json.loads((pages / f"{name}.json").read_text(encoding="utf-8"))
        return report, (pages / f"{name}.html").read_text(encoding="utf-8")

    return read
