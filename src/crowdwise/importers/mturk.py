"""Amazon Mechanical Turk: batch results, with plain answers or the JSON of crowd-form.

=============  ==============================================================================================
item           ``Input.id`` (or the only ``Input`` column, or all of them), else ``HITId``
annotator      ``WorkerId``
question       ``Answer.*``, without ``.label``; fields of ``Answer.taskAnswers``
time           ``SubmitTime``
duration       ``WorkTimeInSeconds``
left out       rejected assignments
=============  ==============================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

NEEDED = {"HITId", "AssignmentId", "WorkerId", "AssignmentStatus"}
TASK_ANSWERS = "Answer.taskAnswers"


def recognises(peek: Peek) -> bool:
    """The columns of a batch."""
    return set(peek.columns) >= NEEDED and any(name.startswith("Answer.") for name in peek.columns)


def read(files: ExportFiles, into: Collector) -> None:
    """Read one assignment per row."""
    table = files.rows(files.names[0])
    inputs = [name for name in table.columns if name.startswith("Input.")]
    ids = [name for name in inputs if name.lower() in ("input.id", "input.item", "input.item_id", "input.task_id")]
    keys = ids[:1] or inputs
    for row in table:
        item = " | ".join(str(row[name]) for name in keys) if keys else row["HITId"]
        into.about_item(item, **{name.removeprefix("Input."): row[name] for name in inputs if name not in ids})
        if str(row["AssignmentStatus"]).lower() == "rejected":
            into.leave_out("rejected")
            continue
        when = {"time": row.get("SubmitTime"), "duration": row.get("WorkTimeInSeconds")}
        for question, value in _answers(row):
            if value in (None, "", []):
                into.leave_out("without an answer")
            else:
                into.choices(question, item, row["WorkerId"], value if isinstance(value, list) else [value], **when)


def _answers(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Questions and answers of an assignment; boxes that are ticked or not become what is ticked."""
    given = {name.removeprefix("Answer."): value for name, value in row.items() if name.startswith("Answer.")}
    forms = given.pop(TASK_ANSWERS.removeprefix("Answer."), None)
    if forms:
        given |= _form(forms)
    ticked: dict[str, list[str]] = {}
    for name, value in given.items():
        question, dot, option = name.rpartition(".")
        if dot and option != "label" and str(value).lower() in ("true", "false", "none"):
            chosen = ticked.setdefault(question, [])
            chosen += [option] if str(value).lower() == "true" else []
        else:
            yield name.removesuffix(".label"), value
    yield from ticked.items()


def _form(text: str) -> dict[str, Any]:
    """The fields of a crowd-form: a JSON list of one object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    fields = found[0] if isinstance(found, list) and found else found
    out: dict[str, Any] = {}
    for name, value in fields.items() if isinstance(fields, dict) else ():
        if isinstance(value, dict) and "label" in value:
            out[name] = value["label"]
        elif isinstance(value, dict) and "labels" in value:
            out[name] = value["labels"]
        elif isinstance(value, dict) and all(isinstance(v, bool) for v in value.values()):
            out[name] = [option for option, chosen in value.items() if chosen]
        elif isinstance(value, (str, int, float, bool, list)):
            out[name] = value
    return out
