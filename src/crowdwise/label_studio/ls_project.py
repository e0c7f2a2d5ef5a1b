"""A project of Label Studio: what it asks, who annotates, its predictions, and the tab of what to label next.

What was pulled: ``tasks.jsonl`` (an export that every command reads), then ``pulled.json`` with the time up to which
they are known. A process killed in between pulls some tasks once more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise.data.boundary import reading
from crowdwise.data.folders import write_text, write_whole
from crowdwise.errors import InputError, OutputError, ParameterError, ReadError, ServiceError, listing
from crowdwise.importers.export_files import json_objects
from crowdwise.importers.label_studio import TASKS
from crowdwise.label_studio.ls_client import LabelStudioClient

ANSWERED = {"Choices": "choices", "Taxonomy": "taxonomy", "Rating": "rating", "Number": "number"}
"""Controls whose consensus can be a prediction -> the type of their results."""
PREFIX = "crowdwise"  # how the versions of our predictions begin
TAB = "crowdwise: label next"
BATCH = 500


@dataclass(frozen=True)
class Control:
    """A question of a project: its name (``from_name``), what it is about (``to_name``), its type and its labels."""

    name: str
    to_name: str
    kind: str
    labels: tuple[str, ...] = ()

    def result(self, labels: Sequence[Any]) -> list[dict[str, Any]]:
        """Some labels, or one number, as a result; nothing where there are none."""
        if not labels:
            return []
        value: Any = [str(label) for label in labels]
        if self.kind == "taxonomy":
            value = [label.split(" > ") for label in value]
        elif self.kind != "choices":
            value = round(float(labels[0])) if self.kind == "rating" else float(labels[0])
        return [{"from_name": self.name, "to_name": self.to_name, "type": self.kind, "value": {self.kind: value}}]


def find_control(config: Mapping[str, Any], question: str | None = None) -> Control:
    """The question of a project (``parsed_label_config``): by its name, or the only one that consensus can answer."""
    known = {name: about for name, about in config.items() if isinstance(about, Mapping)}
    fit = [name for name, about in known.items() if about.get("type") in ANSWERED]
    if question is not None and question not in known:
        raise ParameterError(f"The project has no question {question!r}: it has {listing(known, 12) or 'none'}.")
    if not fit or (question is not None and question not in fit):
        kinds = ", ".join(f"{name} ({about.get('type')})" for name, about in known.items()) or "none"
        raise InputError(
            f"Consensus can be a prediction for {', '.join(ANSWERED)}; the project asks something else: {kinds}."
        )
    if question is None and len(fit) > 1:
        raise ParameterError(f"The project has several questions: {', '.join(fit)}. Choose one of them by its name.")
    name = question or fit[0]
    about = known[name]
    to = about.get("to_name") or [""]
    return Control(name, str(to[0]), ANSWERED[str(about["type"])], tuple(map(str, about.get("labels") or ())))


class Project:
    """A project on a server."""

    def __init__(self, client: LabelStudioClient, number: int) -> None:
        self.client, self.number = client, number
        self.path = f"/api/projects/{number}"

    def about(self) -> dict[str, Any]:
        """Title, labelling configuration and counts."""
        about = self.client.get(f"{self.path}/")
        if not isinstance(about, dict) or "title" not in about:
            raise ServiceError(f"{self.client.url}{self.path}/ did not answer with a project.")
        return about

    def control(self, question: str | None = None) -> Control:
        """The question that consensus answers."""
        return find_control(self.about().get("parsed_label_config") or {}, question)

    def annotators(self) -> dict[int, dict[str, Any]]:
        """Number -> e-mail address and name of those who annotated; nothing where the token may not know."""
        people = None
        with suppress(ServiceError):
            people = self.client.get(f"{self.path}/annotators/")
        return {who["id"]: {key: who.get(key) for key in OF_PERSON} for who in objects(people)}

    def versions(self) -> dict[str, int]:
        """The versions of models with predictions, and how many."""
        counts = self.client.get(f"{self.path}/model-versions/")
        return {str(name): int(count) for name, count in counts.items()} if isinstance(counts, dict) else {}

    def add_predictions(self, rows: Sequence[Mapping[str, Any]], version: str) -> int:
        """Import predictions of a version that is new, all or none; then make it the version of the project."""
        if version in self.versions():
            raise ParameterError(f"The project has predictions of {version!r} already: choose another version.")
        try:
            for start in range(0, len(rows), BATCH):
                batch = [{**row, "model_version": version} for row in rows[start : start + BATCH]]
                self.client.send("POST", f"{self.path}/import/predictions", batch)
            there = self.versions().get(version, 0)
            if there != len(rows):
                raise ServiceError(f"{self.client.url} took {there:,} predictions of {len(rows):,}.")
        except ServiceError:
            self.remove_predictions([version])
            raise
        self.client.send("PATCH", f"{self.path}/", {"model_version": version})
        return len(rows)

    def remove_predictions(self, versions: Iterable[str]) -> None:
        """Remove the predictions of some versions, where they are there."""
        for version in versions:
            self.client.send("DELETE", f"{self.path}/model-versions/", {"model_version": version})

    def show_next(self, tasks: Sequence[int]) -> int:
        """Make a tab of the data manager that selects these tasks, uncertain ones first; its number."""
        data = {
            "title": TAB, "ordering": ["tasks:predictions_score"],
            "filters": {"conjunction": "and", "items": []},
            "selectedItems": {"all": False, "included": list(tasks)},
        }  # fmt: skip
        views = self.client.get("/api/dm/views/", project=self.number)
        ours = [v for v in views if isinstance(v, dict) and (v.get("data") or {}).get("title") == TAB]
        how = ("PATCH", f"/api/dm/views/{ours[0]['id']}/") if ours else ("POST", "/api/dm/views/")
        return int(self.client.send(*how, {"data": data, "project": self.number})["id"])

    def ask_for(self, annotations: int) -> None:
        """How many annotators each task is given to, at most."""
        self.client.send("PATCH", f"{self.path}/", {"maximum_annotations": annotations})


PULLED = "pulled.json"
OF_TASK = ("id", "inner_id", "project", "data", "created_at", "updated_at", "is_labeled", "overlap")
OF_ANNOTATION = (
    "id", "result", "completed_by", "was_cancelled", "ground_truth", "created_at", "updated_at", "lead_time",
)  # fmt: skip
OF_PERSON = ("id", "email", "first_name", "last_name")
OF_PREDICTION = ("id", "result", "model_version", "score", "created_at")


@dataclass(frozen=True)
class Pulled:
    """What a pull brought. ``new``, ``changed`` and ``removed`` count annotations; ``tasks`` are those looked at."""

    tasks: int = 0
    new: int = 0
    changed: int = 0
    removed: int = 0
    known_tasks: int = 0
    known_annotations: int = 0

    @property
    def any(self) -> bool:
        """Whether annotations are other than before."""
        return bool(self.new or self.changed or self.removed)


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a JSON list that have a number or a name, or none."""
    listed = value if isinstance(value, list) else []
    return [one for one in listed if isinstance(one, Mapping) and isinstance(one.get("id"), (int, str))]


def kept(task: Mapping[str, Any], people: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """A task as it is kept: without our own predictions, and with annotators written out as snapshots have them."""
    annotations = [{key: a.get(key) for key in OF_ANNOTATION} for a in objects(task.get("annotations"))]
    for annotation in annotations:
        who = annotation["completed_by"]
        annotation["completed_by"] = people.get(who, who) if isinstance(who, int) else who
    others = [
        {key: p.get(key) for key in OF_PREDICTION}
        for p in objects(task.get("predictions"))
        if not str(p.get("model_version")).startswith(PREFIX)
    ]
    drafts = [{"id": draft.get("id")} for draft in objects(task.get("drafts"))]
    about = {key: task.get(key) for key in OF_TASK}
    return {**about, "annotations": annotations, "predictions": others, "drafts": drafts}


class Folder:
    """A folder with what was pulled from one project."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def state(self) -> dict[str, Any]:
        """What was pulled so far; empty where nothing was."""
        file = self.path / PULLED
        if not file.exists():
            return {}
        with reading(file, "JSON", "Remove it and tasks.jsonl to pull everything again."):
            state = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(state, dict) or not isinstance(state.get("since"), str):
            raise ReadError(f"{file} is not as it was written. Remove it and tasks.jsonl to pull everything again.")
        return state

    def check(self, url: str, project: int) -> None:
        """Before a pull: is this the folder of another project, or of something else?"""
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path} is a file, not a folder. Choose another name.")
        state = self.state()
        if state and (state.get("url"), state.get("project")) != (url, project):
            raise ParameterError(
                f"{self.path} holds project {state.get('project')} of {state.get('url')}: choose another folder for "
                f"project {project} of {url}."
            )
        if not state and (self.path / TASKS).exists():
            raise ParameterError(f"{self.path / TASKS} exists already. Choose another folder, or move it away.")

    def tasks(self) -> Iterator[dict[str, Any]]:
        """The tasks, one by one."""
        file = self.path / TASKS
        if not file.exists():
            return
        with reading(file), file.open(encoding="utf-8") as content:
            yield from json_objects(content, str(file))

    def merge(self, tasks: Iterable[Mapping[str, Any]], state: Mapping[str, Any], *, whole: bool = False) -> Pulled:
        """Put newer tasks in the place of older ones. ``whole``: these are all tasks there are."""
        newer: dict[Any, Any] = {task["id"]: task for task in tasks}
        counts = Counter(tasks=len(newer))

        def before_and_now() -> Iterator[tuple[Any, Any]]:
            for old in self.tasks():
                yield old, newer.pop(old["id"], None if whole else old)
            yield from ((None, new) for new in newer.values())

        def write(file: str) -> None:
            with open(file, "w", encoding="utf-8") as out:
                for old, new in before_and_now():
                    counts.update(_counts(old, new))
                    if new is not None:
                        out.write(json.dumps(new, ensure_ascii=False) + "\n")

        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(write, self.path / TASKS)
        write_text(json.dumps({**state, "tasks": counts["known_tasks"]}, indent=1) + "\n", self.path / PULLED)
        return Pulled(**counts)


def _counts(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, int]:
    """How many annotations of a task are new, other than before, or gone."""
    before, now = ({a["id"]: a.get("updated_at") for a in (task or {}).get("annotations", [])} for task in (old, new))
    return {
        "new": len(now.keys() - before.keys()), "removed": len(before.keys() - now.keys()),
        "changed": sum(before[key] != now[key] for key in now.keys() & before.keys()),
        "known_annotations": len(now), "known_tasks": int(new is not None),
    }  # fmt: skip
