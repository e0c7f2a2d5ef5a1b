"""Scale: tasks with one consolidated answer each.

There are no annotators in these exports: answers are by ``scale``. Categories are read; boxes and other geometries are
left alone.
"""

from __future__ import annotations

from typing import Any

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

WHO = "scale"


def recognises(peek: Peek) -> bool:
    """A list ``docs`` of tasks with an id and a response."""
    docs = peek.whole("docs").get("docs")
    first = docs[0] if isinstance(docs, list) and docs else None
    return isinstance(first, dict) and {"task_id", "response", "params"} <= set(first)


def read(files: ExportFiles, into: Collector) -> None:
    """Read one task after the other."""
    into.note("Scale exports one consolidated answer per task, without annotators: nobody's reliability is in it.")
    for task in files.whole(files.names[0]).get("docs") or []:
        if not isinstance(task, dict):
            continue
        meta = task.get("metadata")
        own = meta.get("id") if isinstance(meta, dict) else None
        item = own if isinstance(own, (str, int)) else task.get("task_id")
        if task.get("status") != "completed":
            into.leave_out("not completed")
            continue
        _read_response(task.get("response"), item, task.get("completed_at"), into)


def _read_response(response: Any, item: Any, when: Any, into: Collector) -> None:
    if not isinstance(response, dict):
        into.leave_out("without an answer")
        return
    if "category" in response:
        found = response["category"]
        into.choices("category", item, WHO, found if isinstance(found, list) else [found], when)
    taxonomies = response.get("taxonomies")
    for name, value in taxonomies.items() if isinstance(taxonomies, dict) else ():
        into.choices(str(name), item, WHO, value if isinstance(value, list) else [value], when)
    for made in response.get("annotations") or []:
        if isinstance(made, dict):
            into.other("annotations", f"geometries of type {made.get('type')}")
