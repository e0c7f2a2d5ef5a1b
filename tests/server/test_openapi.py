"""Requests made up from the description of the interface: no answer is a 5xx, and none is undocumented."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from conftest import need_module
from crowdwise.server.configuration import load_configuration
from server_site import CLASSES, bearer, listening

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
EXAMPLES = 4
"""Requests per route in the last phase; ``benchmarks/attack/server_requests.py`` makes hundreds."""


@pytest.mark.slow
def test_answers_are_those_of_the_description(tmp_path):
    need_module("schemathesis")
    given = {"data": str(tmp_path / "data"), "rate_limit": 0.0, "login_limit": 0.0}
    with listening(load_configuration(given, environment={})) as (url, secret, _):
        site = httpx.Client(base_url=f"{url}/api/v1", headers=bearer(secret), timeout=120.0)
        campaign = site.post("/campaigns", json={"name": "birds", "classes": CLASSES}).json()["id"]
        site.post(f"/campaigns/{campaign}/items", json=[{"item": f"p{i}"} for i in range(20)]).raise_for_status()
        site.post(f"/campaigns/{campaign}/annotators", json=[{"annotator": "ann"}]).raise_for_status()
        known = {"path.campaign": campaign, "path.item": "p1", "path.annotator": "ann"}
        lines = ["[parameters]", *(f'"{name}" = "{value}"' for name, value in known.items())]
        (tmp_path / "schemathesis.toml").write_text("\n".join(lines))
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/v1/openapi.json", "-H",
            f"Authorization: Bearer {secret}", "--max-examples", str(EXAMPLES), "--seed", "1", "--checks", CHECKS,
            "--exclude-path-regex", "events$|/state$", "--exclude-method", "DELETE", "--phases",
            "examples,coverage,fuzzing", "--no-color", "--request-timeout", "20", "--generation-database", "none",
        ]  # fmt: skip
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
        assert "Tested: " in found.stdout
        assert site.get(f"/campaigns/{campaign}/status").status_code == 200
