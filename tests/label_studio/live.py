"""Against a real Label Studio server (``make test-label-studio``): the scenario, webhooks, tokens, the ML backend.

``LABEL_STUDIO_PROGRAM`` names the program that starts a server. Not collected by ``make test``: it takes minutes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import ls_scenario
import ls_server as rs
import pytest
from ls_checks import check

from command_line import run
from crowdwise.errors import ServiceError
from crowdwise.label_studio.ls_client import LabelStudioClient
from crowdwise.label_studio.ls_project import Project
from crowdwise.label_studio.ls_watch import Listener, webhook
from crowdwise.server.configuration import load_configuration
from server_site import listening


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rs.running(os.environ["LABEL_STUDIO_PROGRAM"], tmp_path_factory.mktemp("label-studio")) as found:
        yield found


@pytest.fixture
def client(address: str) -> LabelStudioClient:
    return LabelStudioClient(address, rs.TOKEN)


def test_the_round_trip(client: LabelStudioClient, tmp_path: Path) -> None:
    check(ls_scenario.run(client, tmp_path / "pulled", time.sleep), tmp_path / "pulled")


def test_the_commands(client: LabelStudioClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rs.fill(client)
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", rs.TOKEN)
    there = ["--url", client.url, "--project", made["project"], "--out", tmp_path / "pulled"]
    pulled = run("label-studio", "pull", *there, "--json")
    assert json.loads(pulled.stdout)["new"] == 150
    pushed = run("label-studio", "push", *there, "--json")
    assert json.loads(pushed.stdout) == {"version": "crowdwise-auto-1", "predictions": 50, "removed": []}
    asked = run("label-studio", "next", *there, "-n", 3, "--set-tab", "--json")
    assert len(json.loads(asked.stdout)["tasks"]) == 3 and "crowdwise: label next" in asked.stderr
    watched = run("label-studio", "watch", *there, "--rounds", 2, "--every", 1)
    assert watched.returncode == 0 and watched.stderr.count("predictions of crowdwise-auto-2") == 1


def test_a_webhook_calls(client: LabelStudioClient) -> None:
    made = rs.fill(client)
    project = Project(client, made["project"])
    task = next(iter(client.tasks(made["project"])))["id"]
    with (
        Listener("127.0.0.1", 0) as listener,
        webhook(project, f"http://127.0.0.1:{listener.port}/", listener.secret),
    ):
        client.send("POST", f"/api/tasks/{task}/annotations/", {"result": rs.answer("Positive")})
        assert listener.called.wait(20)
    hooks = client.get("/api/webhooks/", project=made["project"])
    assert hooks == []


def test_tokens(address: str, client: LabelStudioClient) -> None:
    with pytest.raises(ServiceError, match=r"was refused \(401\)"):
        LabelStudioClient(address, "nobody").get("/api/projects/")
    client.send("POST", "/api/jwt/settings", {"api_tokens_enabled": True, "legacy_api_tokens_enabled": True})
    personal = client.send("POST", "/api/token/")["token"]
    assert "results" in LabelStudioClient(address, personal).get("/api/projects/")
    with pytest.raises(ServiceError, match=r"not found \(404\)"):
        Project(client, 999_999).about()


def test_crowdwise_serve_is_an_ml_backend(client: LabelStudioClient, tmp_path: Path) -> None:
    """Label Studio connects to the server with basic authentication, and asks it for predictions."""
    made = rs.fill(client)
    with listening(load_configuration({"data": str(tmp_path), "rate_limit": 0.0}, environment={})) as (url, token, _):
        about = {"project": made["project"], "url": f"{url}/label-studio", "title": "crowdwise"}
        with pytest.raises(ServiceError, match="refused"):
            client.send("POST", "/api/ml/", about)  # without a token of the server
        signed = {"auth_method": "BASIC_AUTH", "basic_auth_user": "crowdwise", "basic_auth_pass": token}
        client.send("POST", "/api/ml/", {**about, **signed})
        chosen = {"selectedItems": {"all": True, "excluded": []}}
        client.send("POST", "/api/dm/actions", chosen, id="retrieve_tasks_predictions", project=made["project"])
        tasks = list(client.tasks(made["project"]))
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and sum(bool(t["predictions"]) for t in tasks) < 50:
            time.sleep(1)
            tasks = list(client.tasks(made["project"]))
    with_answers = [task for task in tasks if task["annotations"]]
    found = [task["predictions"][-1] for task in with_answers if task["predictions"]]
    assert len(found) == 50 and all(p["model_version"].startswith("crowdwise-auto-") for p in found)
    labels = [prediction["result"][0]["value"]["choices"][0] for prediction in found]
    assert sum(label == true for label, (true, _) in zip(labels, rs.crowd(), strict=False)) >= 44
