"""What was pulled from a project: ``tasks.jsonl`` (an export that every command reads) and ``pulled.json``.

Tasks are written first, then ``pulled.json`` with the time up to which they are known: whoever is killed in between
pulls some tasks once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise.data.boundary import reading
from crowdwise.data.folders import write_text, write_whole
from crowdwise.errors import OutputError, ParameterError, ReadError
from crowdwise.importers.export_files import json_objects
from crowdwise.importers.label_studio import TASKS
from crowdwise.label_studio.ls_project import PREFIX

PULLED = "pulled.json"
OF_TASK = ("id", "inner_id", "project", "data", "created_at", "updated_at", "is_labeled", "overlap")
OF_ANNOTATION = (
    "id", "result", "completed_by", "was_cancelled", "ground_truth", "created_at", "updated_at", "lead_time",
)  # fmt: skip
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


def objects(found: Any) -> list[Mapping[str, Any]]:
    """The objects of a JSON list that have a number or a name, or none."""
    listed = found if isinstance(found, list) else []
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
            found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not isinstance(found.get("since"), str):
            raise ReadError(f"{file} is not as it was written. Remove it and tasks.jsonl to pull everything again.")
        return found

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
        newer = {task["id"]: task for task in tasks}
        looked_at = len(newer)
        counts = {"new": 0, "changed": 0, "removed": 0, "known_tasks": 0, "known_annotations": 0}
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(lambda file: self._write(Path(file), dict(newer), whole, counts), self.path / TASKS)
        write_text(json.dumps({**state, "tasks": counts["known_tasks"]}, indent=1) + "\n", self.path / PULLED)
        return Pulled(looked_at, **counts)

    def _write(self, file: Path, newer: dict[Any, Any], whole: bool, counts: dict[str, int]) -> None:
        with file.open("w", encoding="utf-8") as out:
            for old in self.tasks():
                new = newer.pop(old["id"], None if whole else old)
                _count(old, new, counts)
                if new is not None:
                    out.write(json.dumps(new, ensure_ascii=False) + "\n")
            for new in newer.values():
                _count(None, new, counts)
                out.write(json.dumps(new, ensure_ascii=False) + "\n")


def _count(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, counts: dict[str, int]) -> None:
    """Count the annotations that are new, other than before, or gone."""
    before, now = ({a["id"]: a.get("updated_at") for a in (task or {}).get("annotations", [])} for task in (old, new))
    counts["new"] += len(now.keys() - before.keys())
    counts["removed"] += len(before.keys() - now.keys())
    counts["changed"] += sum(before[key] != now[key] for key in now.keys() & before.keys())
    counts["known_annotations"] += len(now)
    counts["known_tasks"] += new is not None
