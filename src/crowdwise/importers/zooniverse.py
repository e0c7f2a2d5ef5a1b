"""Zooniverse: the CSV of classifications.

=============  ==============================================================================================
item           ``subject_ids``
annotator      ``user_name`` (``not-logged-in-...`` for visitors)
question       ``task`` of an annotation, with the workflow in front of it where there are several
time           ``created_at``
duration       ``finished_at - started_at`` of the metadata
left out       subjects that the volunteer had seen before
=============  ==============================================================================================
"""

from __future__ import annotations

import json
from typing import Any

from crowdwise.importers.collect import Collector, seconds
from crowdwise.importers.export_files import ExportFiles, Peek

NEEDED = {"classification_id", "user_name", "workflow_id", "created_at", "annotations", "subject_ids"}


def recognises(peek: Peek) -> bool:
    """The columns of classifications."""
    return set(peek.columns) >= NEEDED


def read(files: ExportFiles, into: Collector) -> None:
    """Read one classification per row."""
    table = files.rows(files.names[0])
    several = len({row["workflow_id"] for row in table}) > 1
    for row in table:
        meta, item = _parsed(row.get("metadata"), {}), row["subject_ids"]
        state = meta.get("subject_selection_state")
        if isinstance(state, dict) and state.get("already_seen"):
            into.leave_out("seen before by the same volunteer")
            continue
        start, end = seconds(meta.get("started_at")), seconds(meta.get("finished_at"))
        when = {"time": row["created_at"], "duration": None if start is None or end is None else end - start}
        for made in _parsed(row["annotations"], []):
            if isinstance(made, dict):
                task = str(made.get("task"))
                name = f"{row.get('workflow_name') or row['workflow_id']}: {task}" if several else task
                _read_value(name, made.get("value"), item, row["user_name"], when, into)


def _read_value(name: str, value: Any, item: Any, who: Any, when: dict[str, Any], into: Collector) -> None:
    if value in (None, "", []):
        into.leave_out("without an answer")
    elif isinstance(value, list) and all(isinstance(v, dict) for v in value):
        if all("choice" in v for v in value):
            into.choices(name, item, who, [v["choice"] for v in value], **when)
        else:
            into.other(name, "drawings")
    elif isinstance(value, list):
        into.choices(name, item, who, [v for v in value if isinstance(v, (str, int))], **when)
    elif isinstance(value, (str, int)):
        into.choices(name, item, who, [value], **when)
    else:
        into.other(name, "answers of another form")


def _parsed(text: Any, otherwise: Any) -> Any:
    """JSON in a cell, where it is of the kind that is expected."""
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return otherwise
    return found if isinstance(found, type(otherwise)) else otherwise
