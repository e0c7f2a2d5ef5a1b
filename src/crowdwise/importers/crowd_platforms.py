"""Exports of crowdsourcing and survey platforms.

Each has ``read_TOOL``, whose docstring says where things are in the export.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crowdwise.data.columns import nearly_distinct
from crowdwise.importers.collect import TURNED, Collector, as_object, number, objects_in, seconds, upright
from crowdwise.importers.export_files import ExportFiles, Peek

TASK_ANSWERS = "Answer.taskAnswers"


def read_mturk(files: ExportFiles, into: Collector) -> None:
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
    cells = {name.removeprefix("Answer."): value for name, value in row.items() if name.startswith("Answer.")}
    forms = cells.pop(TASK_ANSWERS.removeprefix("Answer."), None)
    if forms:
        cells |= _form(forms)
    ticked: dict[str, list[str]] = {}
    for name, value in cells.items():
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
        form = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    fields = form[0] if isinstance(form, list) and form else form
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


KEPT = ("APPROVED", "ACCEPTED", "SUBMITTED")


def recognises_toloka(peek: Peek) -> bool:
    """Columns in the manner of Toloka."""
    known = {name.partition(":")[0] for name in peek.columns if ":" in name}
    return {"OUTPUT", "ASSIGNMENT"} <= known and "ASSIGNMENT:worker_id" in peek.columns


def read_toloka(files: ExportFiles, into: Collector) -> None:
    """Toloka: assignments as TSV.

    =============  ==============================================================================================
    item           ``INPUT:id`` where it is there, else ``ASSIGNMENT:task_id``
    annotator      ``ASSIGNMENT:worker_id``
    question       ``OUTPUT:*``
    time           ``ASSIGNMENT:submitted``
    duration       submitted - started, of the whole page of tasks
    left out       rejected, skipped, expired and active assignments
    gold           ``GOLDEN:*``
    =============  ==============================================================================================
    """
    table = files.rows(files.names[0])
    questions = [name.partition(":")[2] for name in table.columns if name.startswith("OUTPUT:")]
    inputs = [name for name in table.columns if name.startswith("INPUT:")]
    for row in table:
        item = row.get("INPUT:id") or row.get("ASSIGNMENT:task_id") or " | ".join(str(row[n]) for n in inputs)
        who = row.get("ASSIGNMENT:worker_id")
        if who is None and not any(row.values()):
            continue  # an empty line between suites
        into.about_item(item, **{name.partition(":")[2]: row[name] for name in inputs if name != "INPUT:id"})
        for name in questions:
            if row.get(f"GOLDEN:{name}") is not None:
                into.gold(name, item, [row[f"GOLDEN:{name}"]])
        status = str(row.get("ASSIGNMENT:status") or "APPROVED").upper()
        if status not in KEPT:
            into.leave_out(f"{status.lower()} assignments")
            continue
        end, start = seconds(row.get("ASSIGNMENT:submitted")), seconds(row.get("ASSIGNMENT:started"))
        took = None if end is None or start is None else end - start
        for name in questions:
            value = row[f"OUTPUT:{name}"]
            if value is None:
                into.leave_out("without an answer")
            else:
                into.choices(name, item, who, [value], time=end, duration=took)


GOLD = "_gold"


def read_appen(files: ExportFiles, into: Collector) -> None:
    """Appen (Figure Eight, CrowdFlower): the full report.

    =============  ==============================================================================================
    item           ``_unit_id``
    annotator      ``_worker_id``
    question       every column with a ``_gold`` beside it; several answers are on lines of their own
    time           ``_created_at``
    duration       ``_created_at - _started_at``, of the whole page
    left out       tainted judgements
    gold           ``QUESTION_gold`` of test questions
    =============  ==============================================================================================
    """
    table = files.rows(files.names[0])
    names = [c for c in table.columns if not c.startswith("_")]
    questions = [c for c in names if f"{c}{GOLD}" in table.columns]
    others = [c for c in names if c not in questions and not c.endswith((GOLD, "_gold_reason", "orig__golden"))]
    for row in table:
        item = row["_unit_id"]
        into.about_item(item, **{name: row[name] for name in others})
        for question in questions:
            if row[f"{question}{GOLD}"] is not None:
                into.gold(question, item, str(row[f"{question}{GOLD}"]).split("\n"))
        if str(row.get("_tainted")).lower() == "true":
            into.leave_out("tainted judgements")
            continue
        end, start = seconds(row["_created_at"]), seconds(row.get("_started_at"))
        took = None if end is None or start is None else end - start
        for question in questions:
            value = row[question]
            if value is None:
                into.leave_out("without an answer")
            else:
                into.choices(question, item, row["_worker_id"], str(value).split("\n"), time=end, duration=took)


RESPONSES, REQUESTS = "worker-response", "consolidation-request"


def recognises_sagemaker(peek: Peek) -> bool:
    """Files of worker responses; a list of objects with the annotations of workers."""
    if peek.files.single:
        first = peek.first
        return "datasetObjectId" in first and isinstance(first.get("annotations"), list)
    return any(part in name for name in peek.ending(".json") for part in (RESPONSES, REQUESTS))


def read_sagemaker(files: ExportFiles, into: Collector) -> None:
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
    requests = [n for n in files.names if files.single or (REQUESTS in n and n.endswith(".json"))]
    responses = [n for n in files.names if RESPONSES in n and n.endswith(".json")]
    for name in requests:
        for row in files.objects(name):
            _read_request(row, into, answers=not responses)
    for name in responses:
        item = PurePath(name).parent.name
        for row in files.objects(name):
            for answer in objects_in(row.get("answers")):
                when = {"time": answer.get("submissionTime"), "duration": answer.get("timeSpentInSeconds")}
                _read_content(answer.get("answerContent"), item, answer.get("workerId"), when, into)


def _read_request(row: Mapping[str, Any], into: Collector, *, answers: bool) -> None:
    item, about = row.get("datasetObjectId"), row.get("dataObject")
    if isinstance(about, dict):
        into.about_item(item, source=about.get("content") or about.get("s3Uri"))
    for annotation in objects_in(row.get("annotations")):
        data = annotation.get("annotationData")
        if answers and isinstance(data, dict):
            try:
                content = json.loads(str(data.get("content")))
            except (ValueError, RecursionError):
                into.leave_out("of another form")
                continue
            _read_content(content, item, annotation.get("workerId"), {}, into)


def _read_content(content: Any, item: Any, who: Any, when: Mapping[str, Any], into: Collector) -> None:
    for question, chosen in _questions(content):
        boxes = as_object(content[question]).get("boundingBoxes")
        if isinstance(boxes, list):
            into.looks(item, who, **when)
            for box in objects_in(boxes):
                ends = (box.get(part) for part in ("left", "top", "width", "height"))
                into.rectangle(question, item, who, box.get("label"), *ends, **when)
        elif chosen is None:
            into.other(question, "answers of another form (boxes, masks, texts)")
        else:
            into.choices(question, item, who, chosen, **when)


def _questions(content: Any) -> Iterator[tuple[str, list[Any] | None]]:
    """Elements of a template and what was chosen; ``None`` where it is not a class."""
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


WHO = "scale"


def recognises_scale(peek: Peek) -> bool:
    """A list ``docs`` of tasks with an id and a response."""
    docs = peek.whole("docs").get("docs")
    first = docs[0] if isinstance(docs, list) and docs else None
    return isinstance(first, dict) and {"task_id", "response", "params"} <= set(first)


def read_scale(files: ExportFiles, into: Collector) -> None:
    """Scale: tasks with one consolidated answer each.

    There are no annotators in these exports: answers are by ``scale``. Categories and boxes are read; other geometries
    are left alone.
    """
    into.note("Scale exports one consolidated answer per task, without annotators: reliability cannot be measured.")
    for task in objects_in(files.whole(files.names[0]).get("docs")):
        own = as_object(task.get("metadata")).get("id")
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
        category = response["category"]
        into.choices("category", item, WHO, category if isinstance(category, list) else [category], time=when)
    for name, value in as_object(response.get("taxonomies")).items():
        into.choices(str(name), item, WHO, value if isinstance(value, list) else [value], time=when)
    for annotation in objects_in(response.get("annotations")):
        if annotation.get("type") == "box":
            ends = (annotation.get(part) for part in ("left", "top", "width", "height"))
            into.rectangle("boxes", item, WHO, annotation.get("label"), *ends, time=when)
        else:
            into.other("annotations", f"geometries of type {annotation.get('type')}")


def read_zooniverse(files: ExportFiles, into: Collector) -> None:
    """Zooniverse: the CSV of classifications.

    =============  ==============================================================================================
    item           ``subject_ids``; the frames of a subject with marks on several
    annotator      ``user_name`` (``not-logged-in-...`` for visitors)
    question       ``task`` of an annotation, with the workflow in front of it where there are several; rectangles and
                   points, other marks are left alone
    looked         who was given a task with marks: one without says that nothing is there
    time           ``created_at``
    duration       ``finished_at - started_at`` of the metadata
    left out       subjects that the volunteer had seen before
    =============  ==============================================================================================
    """
    table = files.rows(files.names[0])
    several = len({row["workflow_id"] for row in table}) > 1
    frames: dict[Any, int] = {}
    for row in table:
        for annotation in objects_in(_parsed(row["annotations"], [])):
            for mark in _marks(annotation.get("value")):
                at = mark.get("frame")
                frames[row["subject_ids"]] = max(frames.get(row["subject_ids"], 0), at if isinstance(at, int) else 0)
    asked: list[tuple[str, Any, Any, dict[str, Any], bool]] = []
    for row in table:
        meta, item = _parsed(row.get("metadata"), {}), row["subject_ids"]
        if as_object(meta.get("subject_selection_state")).get("already_seen"):
            into.leave_out("seen before by the same volunteer")
            continue
        start, end = seconds(meta.get("started_at")), seconds(meta.get("finished_at"))
        when = {"time": row["created_at"], "duration": None if start is None or end is None else end - start}
        for annotation in objects_in(_parsed(row["annotations"], [])):
            task = str(annotation.get("task"))
            name = f"{row.get('workflow_name') or row['workflow_id']}: {task}" if several else task
            marks = _marks(annotation.get("value"))
            if marks or annotation.get("value") in (None, "", []):
                asked.append((name, item, row["user_name"], when, bool(marks)))
            if marks:
                _read_marks(name, marks, item, frames[item], row["user_name"], when, into)
            elif annotation.get("value") not in (None, "", []):
                _read_value(name, annotation["value"], item, row["user_name"], when, into)
    for name, item, who, when, drew in asked:
        if any(f"{name} {kind}" in into.questions for kind in ("boxes", "points")):
            last = frames.get(item, 0)
            for frame in range(last + 1):
                into.looks(_frame(item, frame, last), who, **when)
        elif not drew:
            into.leave_out("without an answer")


def _marks(value: Any) -> list[dict[str, Any]]:
    """The marks of a drawing task; none of other answers."""
    marks = value if isinstance(value, list) else []
    return marks if all(isinstance(v, dict) and "choice" not in v for v in marks) else []


def _frame(item: Any, frame: Any, last: int) -> Any:
    return f"{item} (frame {frame + 1 if isinstance(frame, int) else 1})" if last else item


def _read_marks(
    name: str, value: list[dict[str, Any]], item: Any, last: int, who: Any, when: Mapping[str, Any], into: Collector
) -> None:
    """Rectangles and points; of a subject with several frames each is an item."""
    for v in value:
        place, label = _frame(item, v.get("frame"), last), v.get("tool_label") or v.get("tool") or "object"
        if {"x", "y", "width", "height"} <= set(v):
            ends = [number(v[part]) for part in ("x", "y", "width", "height")]
            known, turn = [end for end in ends if end is not None], number(v.get("angle"))
            if turn and len(known) == 4:
                into.note(TURNED)
                x, y, w, h = known
                x1, y1, x2, y2 = upright((x, y, x + w, y + h), turn, (x + w / 2.0, y + h / 2.0))
                ends[:] = x1, y1, x2 - x1, y2 - y1
            into.rectangle(f"{name} boxes", place, who, label, *ends, **when)
        elif {"x", "y"} <= set(v) and not {"r", "rx"} & set(v):
            into.shape(f"{name} points", place, who, label, v["x"], v["y"], **when)
        else:
            into.other(name, "drawings")


def _read_value(name: str, value: Any, item: Any, who: Any, when: dict[str, Any], into: Collector) -> None:
    if isinstance(value, list) and all(isinstance(v, dict) and "choice" in v for v in value):
        into.choices(name, item, who, [v["choice"] for v in value], **when)
    elif isinstance(value, list):
        into.choices(name, item, who, [v for v in value if isinstance(v, (str, int))], **when)
    elif isinstance(value, (str, int)):
        into.choices(name, item, who, [value], **when)
    else:
        into.other(name, "answers of another form")


def _parsed(text: Any, otherwise: Any) -> Any:
    """JSON in a cell, where it is of the kind that is expected."""
    try:
        parsed = json.loads(str(text))
    except (ValueError, RecursionError):
        return otherwise
    return parsed if isinstance(parsed, type(otherwise)) else otherwise


QUALTRICS_NEEDED = {"StartDate", "EndDate", "ResponseId", "Finished", "RecordedDate"}
USUAL = QUALTRICS_NEEDED | {
    "Status", "IPAddress", "Progress", "Duration (in seconds)", "RecipientLastName", "RecipientFirstName",
    "RecipientEmail", "ExternalReference", "LocationLatitude", "LocationLongitude", "DistributionChannel",
    "UserLanguage", "PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "Q_RecaptchaScore",
}  # fmt: skip
LOOP = re.compile(r"^(\d+)_(.+)$")
PID = "PROLIFIC_PID"
PARTICIPANT = "Participant id"
GONE = ("RETURNED", "REJECTED", "TIMED-OUT", "TIMED OUT")
"""What Prolific calls submissions that do not count."""


def recognises_qualtrics(peek: Peek) -> bool:
    """The columns that every survey has; in a folder, of one of its files."""
    if peek.files.single:
        return set(peek.columns) >= QUALTRICS_NEEDED and "ImportId" in peek.head
    lines = (peek.files.text(name, 4096).partition("\n")[0] for name in peek.ending(".csv")[:20])
    return any({cell.strip().strip('"') for cell in line.split(",")} >= QUALTRICS_NEEDED for line in lines)


def read_qualtrics(files: ExportFiles, into: Collector) -> None:
    """Qualtrics (also behind Prolific): the CSV of a survey; with the demographics of Prolific in the same folder.

    =============  ==============================================================================================
    item           the number of a loop (``1_Q1``), else the column of the question
    annotator      ``PROLIFIC_PID`` where it is filled, else ``ResponseId``
    question       ``Q1`` of a loop; ``answers`` for all questions that are not in a loop
    time           ``RecordedDate``
    left out       unfinished responses, previews, participants listed by Prolific as rejected, returned or timed out
    =============  ==============================================================================================

    The second and third row of the file are headers too: the words of the questions, and ids.
    """
    tables = [files.table(name) for name in files.names if files.single or name.lower().endswith(".csv")]
    gone: set[Any] = set()
    for table in tables:
        if PARTICIPANT in table.columns and not QUALTRICS_NEEDED <= set(table.columns):
            for row in table.iter_rows(named=True):
                known = {key: value for key, value in row.items() if key != PARTICIPANT}
                into.about_annotator(row[PARTICIPANT], **known)
                if str(row.get("Status")).upper() in GONE:
                    gone.add(row[PARTICIPANT])
    for table in tables:
        if QUALTRICS_NEEDED <= set(table.columns):
            _read_survey(table, gone, into)


def _read_survey(table: Any, gone: set[Any], into: Collector) -> None:
    first: list[dict[str, Any]] = list(table.head(2).iter_rows(named=True))
    words, ids = [*first, {}, {}][:2]
    headers = "ImportId" in str(ids.get("StartDate"))
    rows = table.slice(2 if headers else 0)
    questions = [c for c in table.columns if c not in USUAL and not c.endswith(("_TEXT", "_DO", "_Page Submit"))]
    for column in questions:
        loop = LOOP.match(column)
        item, question = (loop.group(1), loop.group(2)) if loop else (column, "answers")
        if nearly_distinct(rows[column]):
            into.other(column, "free texts")
            continue
        into.about_item(item, text=words.get(column) if headers else None)
        for row in rows.iter_rows(named=True):
            if _kept(row) and row.get(PID) not in gone and row[column] is not None:
                who = row.get(PID) or row["ResponseId"]
                into.choices(question, item, who, [row[column]], time=row["RecordedDate"])
    every = list(rows.iter_rows(named=True))
    into.leave_out("unfinished responses and previews", sum(not _kept(row) for row in every))
    into.leave_out("responses of participants who were rejected", sum(row.get(PID) in gone for row in every))


def _kept(row: dict[str, Any]) -> bool:
    preview = "preview" in str(row.get("Status")).lower() or str(row.get("Status")) == "1"
    return str(row["Finished"]).lower() in ("true", "1") and not preview
