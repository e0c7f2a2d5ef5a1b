"""Label Studio's ML backend: what ``/health``, ``/setup``, ``/predict`` and ``/webhook`` answer, as plain functions.

Requests carry tasks with their annotations, so a backend needs no token: it learns from what it is asked about. Its
predictions are the consensus of the annotations that it has seen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from crowdwise.errors import InputError, SizeError
from crowdwise.label_studio.ls_project import PREFIX, find_control, kept, objects
from crowdwise.label_studio.ls_round import fit

REMOVED = ("ANNOTATIONS_DELETED", "TASKS_DELETED")
MOST_BYTES = 128_000_000  # the most that is kept of a project, as JSON


class Backend:
    """What was seen of one project, and its consensus (of ``question``, where it has several), which is refitted by
    ``method`` where annotations changed."""

    def __init__(self, method: str | None = None, question: str | None = None) -> None:
        self.method, self.question = method, question
        self.tasks: dict[Any, dict[str, Any]] = {}
        self._bytes: dict[Any, int] = {}
        self.size = 0  # bytes of what is kept, as JSON
        self.config: dict[str, Any] = {}
        self.version = 0
        self._stale = True
        self._predicted: dict[Any, dict[str, Any]] = {}
        self._lock = threading.Lock()

    @property
    def model_version(self) -> str:
        return f"{PREFIX}-{self.method or 'auto'}-{self.version}"

    def health(self) -> dict[str, Any]:
        """``GET /health``."""
        return {"status": "UP", "model_class": PREFIX}

    def setup(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /setup``: a project is connected, or its labelling configuration changed."""
        with self._lock:
            self._configure(body.get("schema") or body.get("label_config"))
            return {"model_version": self.model_version}

    def predict(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /predict``: a result for each task, in their order; without any where it has no annotations."""
        sent = body.get("tasks")
        tasks = sent if isinstance(sent, list) else []
        with self._lock:
            self._configure(body.get("label_config"))
            for task in objects(tasks):
                self._see(task)
            self._refit()
            none = {"result": [], "score": 0.0}
            results = [self._predicted.get(task["id"], none) if objects([task]) else none for task in tasks]
            return {"results": [{**result, "model_version": self.model_version} for result in results]}

    def webhook(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /webhook``: annotations came, changed or went."""
        action = str(body.get("action"))
        with self._lock:
            project = body.get("project")
            self._configure(project.get("label_config") if isinstance(project, Mapping) else None)
            if action in REMOVED:
                self._remove(action, body)
            else:
                for annotation in objects([body.get("annotation")]) + objects(body.get("annotations")):
                    self._annotated(annotation, body.get("task"))
            return {"status": "ok", "model_version": self.model_version}

    def _configure(self, config: Any) -> None:
        if isinstance(config, str) and config.strip():
            parsed = parse_config(config)
            self._stale = self._stale or parsed != self.config
            self.config = parsed

    def _see(self, task: Mapping[str, Any]) -> None:
        """A task as it is now."""
        if objects([task]) and isinstance(task.get("data"), Mapping):
            new = {**kept(task, {}), "predictions": [], "drafts": []}
            if self.tasks.get(new["id"]) != new:
                self._keep(new)

    def _annotated(self, annotation: Mapping[str, Any], task: Any) -> None:
        """An annotation as it is now, of a task that was seen or comes with it."""
        number = annotation.get("task")
        if not isinstance(number, (int, str)):
            return
        if number not in self.tasks and isinstance(task, Mapping):
            self._see({"project": annotation.get("project"), **task, "annotations": []})
        if number in self.tasks:
            (new,) = kept({"annotations": [annotation]}, {})["annotations"]
            others = [a for a in self.tasks[number]["annotations"] if a["id"] != new["id"]]
            self._keep(self.tasks[number] | {"annotations": [*others, new]})

    def _keep(self, task: dict[str, Any]) -> None:
        own = len(json.dumps(task))
        size = self.size - self._bytes.get(task["id"], 0) + own
        if size > MOST_BYTES:
            raise SizeError(
                f"The project has more than {MOST_BYTES:,} bytes of tasks: too much for the ML backend. Use "
                "crowdwise label-studio watch, which keeps them in a folder."
            )
        self.tasks[task["id"]], self._bytes[task["id"]], self.size, self._stale = task, own, size, True

    def _remove(self, action: str, body: Mapping[str, Any]) -> None:
        if action == "TASKS_DELETED":
            for task in objects(body.get("tasks")):
                self.tasks.pop(task["id"], None)
                self.size -= self._bytes.pop(task["id"], 0)
        else:
            gone = {annotation["id"] for annotation in objects(body.get("annotations"))}
            for kept_task in self.tasks.values():
                kept_task["annotations"] = [a for a in kept_task["annotations"] if a["id"] not in gone]
        self._stale = True

    def _refit(self) -> None:
        """The consensus of what was seen, where that changed."""
        if not self._stale:
            return
        self._stale, self._predicted = False, {}
        if not any(task["annotations"] for task in self.tasks.values()):
            return
        try:
            consensus = fit(list(self.tasks.values()), find_control(self.config, self.question), self.method)
        except InputError:  # there is no choice yet, or there is no question that consensus answers
            return
        self.version += 1
        self._predicted = {row.pop("task"): {"score": 0.0, **row} for row in consensus.predictions()}


def parse_config(config: str) -> dict[str, dict[str, Any]]:
    """The questions of a labelling configuration, as Label Studio's ``parsed_label_config`` has them.

    >>> parse_config('<View><Choices name="q" toName="t"><Choice value="yes"/></Choices></View>')
    {'q': {'type': 'Choices', 'to_name': ['t'], 'labels': ['yes']}}
    """
    from crowdwise.importers.export_files import parse_xml

    root = parse_xml(config, "The labelling configuration")
    out: dict[str, dict[str, Any]] = {}
    for tag in root.iter():
        if tag.get("name") and tag.get("toName"):
            labels = [child.get("alias") or child.get("value") for child in tag.iter() if child is not tag]
            to = str(tag.get("toName")).split(",")
            out[str(tag.get("name"))] = {"type": tag.tag, "to_name": to, "labels": [x for x in labels if x]}
    return out
