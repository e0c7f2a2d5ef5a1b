"""Crowdwise as an ML backend of Label Studio: requests as the real server sends them, answers as it takes them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import conftest
from crowdwise.errors import ParameterError, ReadError
from crowdwise.label_studio.ls_backend import Backend, parse_config

CONFIG = (
    '<View><Text name="t" value="$text"/><Choices name="q" toName="t" choice="single"><Choice value="yes"/>'
    '<Choice value="no" alias="n"/></Choices></View>'
)


def annotation(number: int, task: int, who: int, label: str) -> dict[str, Any]:
    result = [{"from_name": "q", "to_name": "t", "type": "choices", "value": {"choices": [label]}}]
    return {"id": number, "task": task, "completed_by": who, "result": result, "was_cancelled": False}


def request() -> dict[str, Any]:
    tasks = [
        {"id": n, "project": 1, "data": {"text": f"t{n}"},
         "annotations": [annotation(10 * n + who, n, who, "yes") for who in range(n)]}
        for n in (0, 2, 3)
    ]  # fmt: skip
    return {"tasks": tasks, "label_config": CONFIG, "project": "1.123", "params": {}}


def labels(answer: dict[str, Any]) -> list[Any]:
    return [r["result"][0]["value"]["choices"] if r["result"] else None for r in answer["results"]]


def test_predictions_are_the_consensus_of_what_was_seen() -> None:
    backend = Backend("majority")
    assert backend.health() == {"status": "UP", "model_class": "crowdwise"}
    assert backend.setup({"schema": CONFIG, "project": "1.123"}) == {"model_version": "crowdwise-majority-0"}
    answer = backend.predict(request())
    assert labels(answer) == [None, ["yes"], ["yes"]]
    assert answer["results"][1]["score"] == 1.0
    assert {r["model_version"] for r in answer["results"]} == {"crowdwise-majority-1"}
    assert backend.predict(request()) == answer  # nothing changed: nothing was refitted


def test_webhooks_bring_annotations() -> None:
    backend = Backend("majority")
    backend.predict(request())
    project = {"id": 1, "label_config": CONFIG}
    for who in (7, 8):
        made = annotation(70 + who, 0, who, "n")
        answer = backend.webhook({"action": "ANNOTATION_CREATED", "annotation": made, "project": project})
        assert answer["status"] == "ok"
    alone = {"tasks": [{"id": 0, "data": {"text": "t0"}, "annotations": [annotation(77, 0, 7, "n")]}]}
    assert labels(backend.predict({"tasks": [], "label_config": CONFIG})) == []
    assert labels(backend.predict(alone)) == [["n"]]
    backend.webhook({"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 77}], "project": project})
    gone = {"tasks": [{"id": 0, "data": {"text": "t0"}, "annotations": []}]}
    assert labels(backend.predict(gone)) == [None]


def test_a_webhook_about_a_task_that_was_not_seen_brings_it() -> None:
    backend = Backend("majority")
    task = {"id": 5, "data": {"text": "t5"}}
    body = {"action": "ANNOTATION_CREATED", "annotation": annotation(1, 5, 1, "yes"), "task": task}
    backend.webhook({**body, "project": {"label_config": CONFIG}})
    backend.webhook({**body, "annotation": annotation(2, 6, 1, "yes"), "task": None})  # which task? left alone
    assert backend.tasks.keys() == {5} and len(backend.tasks[5]["annotations"]) == 1
    backend.webhook({"action": "TASKS_DELETED", "tasks": [{"id": 5}]})
    assert backend.tasks == {}


def test_a_request_is_not_changed_and_may_be_odd() -> None:
    body = request()
    before = copy.deepcopy(body)
    backend = Backend("majority")
    backend.predict(body)
    assert body == before
    assert backend.predict({}) == {"results": []}
    assert backend.predict({"tasks": [None, 3, {"id": None}, {"id": 9, "data": None}]})["results"][0]["result"] == []
    assert backend.webhook({"action": None, "annotations": [None], "project": 3})["status"] == "ok"


def test_a_project_without_choices_gets_no_predictions() -> None:
    config = '<View><RectangleLabels name="b" toName="i"><Label value="c"/></RectangleLabels></View>'
    assert labels(Backend().predict({**request(), "label_config": config})) == [None, None, None]


def test_a_question_that_is_not_there_and_a_broken_configuration() -> None:
    with pytest.raises(ParameterError, match="no question 'x'"):
        Backend(question="x").predict(request())
    with pytest.raises(ReadError, match="labelling configuration is truncated or damaged XML"):
        Backend().setup({"schema": "<View>"})


def test_the_configuration_is_read_as_label_studio_reads_it() -> None:
    assert parse_config(CONFIG) == {"q": {"type": "Choices", "to_name": ["t"], "labels": ["yes", "n"]}}


def test_requests_of_the_real_server(real_data: Path) -> None:
    sample = real_data.parent / "exports" / "labelstudio"
    if not (sample / "ml_predict_request.json").exists():
        pytest.skip(f"{conftest.NO_DATA}: no recorded requests beside {real_data}")
    asked = json.loads((sample / "ml_predict_request.json").read_text())
    backend = Backend("majority")
    answer = backend.predict(asked)
    assert (
        len(answer["results"]) == len(asked["tasks"]) and answer["results"][0]["result"][0]["from_name"] == "sentiment"
    )
    hook = json.loads((sample / "webhook_annotation_created.json").read_text())
    assert backend.webhook(hook)["status"] == "ok"
