"""The server as an ML backend of Label Studio."""

from __future__ import annotations

from typing import Any

import pytest

from crowdwise.label_studio import ls_backend
from crowdwise.server import routes_label_studio
from server_site import Site

CONFIG = (
    '<View><Text name="t" value="$text"/><Choices name="q" toName="t"><Choice value="yes"/><Choice value="no"/>'
    "</Choices></View>"
)


def task(number: int, *labels: str) -> dict[str, Any]:
    annotations = [
        {"id": 100 * number + who, "task": number, "completed_by": who, "was_cancelled": False,
         "result": [{"from_name": "q", "to_name": "t", "type": "choices", "value": {"choices": [label]}}]}
        for who, label in enumerate(labels)
    ]  # fmt: skip
    return {"id": number, "project": 1, "data": {"text": f"t{number}"}, "annotations": annotations}


def ask(site: Site, path: str, body: Any = None, code: int = 200, auth: Any = None) -> Any:
    method = "GET" if body is None else "POST"
    answer = site.client.request(method, f"/label-studio{path}", json=body, auth=auth or ("crowdwise", site.secret))
    assert answer.status_code == code, answer.text
    return answer.json()


def test_label_studio_gets_predictions(site: Site) -> None:
    assert ask(site, "/health")["status"] == "UP"
    assert ask(site, "/setup", {"project": "1.17", "schema": CONFIG})["model_version"].startswith("crowdwise-")
    tasks = [task(1, "yes", "yes", "no"), task(2), task(3, "no", "no")]
    found = ask(site, "/predict", {"project": "1.17", "label_config": CONFIG, "tasks": tasks})["results"]
    assert [r["result"][0]["value"]["choices"] if r["result"] else None for r in found] == [["yes"], None, ["no"]]
    assert 0.5 < found[0]["score"] < 1
    new = {**task(2, "no")["annotations"][0], "id": 7}
    body = {"action": "ANNOTATION_CREATED", "annotation": new, "project": {"id": 1, "label_config": CONFIG}}
    assert ask(site, "/webhook", body)["status"] == "ok"


def test_projects_are_apart(site: Site) -> None:
    ask(site, "/predict", {"project": "5.1", "label_config": CONFIG, "tasks": [task(1, "yes", "no"), task(4, "no")]})
    other = {"project": "6.1", "label_config": CONFIG, "tasks": [task(1)]}
    assert ask(site, "/predict", other)["results"][0]["result"] == []


def test_what_is_kept_has_a_size(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ls_backend, "MOST_BYTES", 5_000)
    monkeypatch.setattr(routes_label_studio, "MOST_BYTES", 8_000)
    long = [{**task(number, "yes"), "data": {"text": "x" * 900}} for number in range(1, 8)]
    for number in (21, 22, 23):
        body = {"project": f"{number}.1", "label_config": CONFIG, "tasks": long[:3]}
        ask(site, "/predict", body)
    kept = site.client.app.state.label_studio
    assert sum(one.size for one in kept.values()) < 12_000 and [key[1] for key in kept][-1] == "23"
    refused = ask(site, "/predict", {"project": "23.1", "label_config": CONFIG, "tasks": long}, code=413)
    assert "label-studio watch" in refused["detail"]
    ask(site, "/webhook", {"action": "TASKS_DELETED", "tasks": long, "project": {"id": 23}})
    assert next(reversed(kept.values())).size == 0


def test_who_may_ask(site: Site) -> None:
    ask(site, "/health", code=401, auth=("crowdwise", "cw_nobody"))
    assert site.client.get("/label-studio/health").status_code == 401
    assert site.client.get("/label-studio/health", headers={"Authorization": "Basic %%%"}).status_code == 401
    assert site.client.get("/label-studio/health", headers=site.admin).status_code == 401  # not by bearer
    reader = site.token("reader", site.campaign())["Authorization"].removeprefix("Bearer ")
    ask(site, "/health", code=403, auth=("x", reader))


def test_odd_requests_are_answered(site: Site) -> None:
    odd: dict[str, Any] = {"tasks": [None, {"id": [1]}, {"id": 1, "data": {}, "annotations": 5}]}
    assert len(ask(site, "/predict", odd)["results"]) == 3
    assert ask(site, "/predict", {"tasks": 3}) == ask(site, "/predict", {}) == {"results": []}
    ask(site, "/setup", {"schema": "<View>"}, code=422)
    ask(site, "/webhook", {"action": "ANNOTATIONS_DELETED", "annotations": 3, "project": []})
    ask(site, "/predict", [], code=422)
