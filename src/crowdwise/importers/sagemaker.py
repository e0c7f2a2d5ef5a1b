"""SageMaker Ground Truth: the folder of worker responses, or a consolidation request.

=============  ==============================================================================================
item           the folder's number, a line of the manifest; ``datasetObjectId`` of a request
annotator      ``workerId``
question       the element of the template, such as ``crowd-classifier``
time           ``submissionTime``
duration       ``timeSpentInSeconds``
=============  ==============================================================================================

The output manifest has one consolidated answer per item and no annotators: it is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

RESPONSES, REQUESTS = "worker-response", "consolidation-request"


def recognises(peek: Peek) -> bool:
    """Files of worker responses; a list of objects with the annotations of workers."""
    if peek.files.single:
        first = peek.first
        return "datasetObjectId" in first and isinstance(first.get("annotations"), list)
    return any(part in name for name in peek.ending(".json") for part in (RESPONSES, REQUESTS))


def read(files: ExportFiles, into: Collector) -> None:
    """Read worker responses; consolidation requests where there are none, and for the texts of items."""
    requests = [n for n in files.names if files.single or (REQUESTS in n and n.endswith(".json"))]
    responses = [n for n in files.names if RESPONSES in n and n.endswith(".json")]
    for name in requests:
        for row in files.objects(name):
            _read_request(row, into, answers=not responses)
    for name in responses:
        item = PurePath(name).parent.name
        for row in files.objects(name):
            for answer in row.get("answers") or []:
                if isinstance(answer, dict):
                    when = {"time": answer.get("submissionTime"), "duration": answer.get("timeSpentInSeconds")}
                    _read_content(answer.get("answerContent"), item, answer.get("workerId"), when, into)


def _read_request(row: Mapping[str, Any], into: Collector, *, answers: bool) -> None:
    item, about = row.get("datasetObjectId"), row.get("dataObject")
    if isinstance(about, dict):
        into.about_item(item, source=about.get("content") or about.get("s3Uri"))
    for made in row.get("annotations") or []:
        data = made.get("annotationData") if isinstance(made, dict) else None
        if answers and isinstance(data, dict):
            try:
                content = json.loads(str(data.get("content")))
            except (ValueError, RecursionError):
                into.leave_out("of another form")
                continue
            _read_content(content, item, made.get("workerId"), {}, into)


def _read_content(content: Any, item: Any, who: Any, when: Mapping[str, Any], into: Collector) -> None:
    for question, chosen in _questions(content):
        if chosen is None:
            into.other(question, "answers of another form (boxes, masks, texts)")
        else:
            into.choices(question, item, who, chosen, **when)


def _questions(content: Any) -> Iterator[tuple[str, list[Any] | None]]:
    """Elements of a template and what was chosen; ``None`` where it is no class."""
    for name, value in content.items() if isinstance(content, dict) else ():
        if isinstance(value, dict) and isinstance(value.get("label"), (str, int)):
            yield name, [value["label"]]
        elif isinstance(value, dict) and isinstance(value.get("labels"), list):
            yield name, [label for label in value["labels"] if isinstance(label, (str, int))]
        elif isinstance(value, dict) and value and all(isinstance(v, bool) for v in value.values()):
            yield name, [option for option, chosen in value.items() if chosen]
        elif isinstance(value, (str, int)):
            yield name, [value]
        else:
            yield name, None
