"""Label Studio: JSON, snapshots, JSON_MIN and CSV.

=============  ==============================================================================================
item           ``data.id`` where every task has one of its own, else the number of the task
annotator      the e-mail address where it is written out (snapshots), else the number
question       ``from_name`` of a result; a column of JSON_MIN and CSV
time           ``created_at``
duration       ``lead_time``
left out       skipped tasks, drafts, predictions (unless they are asked for)
gold           the annotation that is marked as ground truth, of tasks that have one such
=============  ==============================================================================================

JSON_MIN and CSV leave much unsaid: whether an annotation is ground truth or was skipped, and in JSON_MIN the task's own
``id`` takes the place of ``data.id``. Prefer JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from crowdwise.data.masks import ellipse_mask, from_brush
from crowdwise.errors import LabelError
from crowdwise.importers import collect
from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

TASKS = "tasks.jsonl"
"""The file of tasks in a folder that ``crowdwise label-studio pull`` writes."""
FLAT = {"annotation_id", "annotator", "created_at", "updated_at", "lead_time"}
"""The columns that JSON_MIN and CSV add."""
SHAPES = ("rectangle", "ellipse", "polygon", "brush", "keypoint")
"""Kinds of shapes; with ``labels`` behind them where they have classes."""
OTHERS = {
    "bitmasklabels": "bitmasks", "datetime": "dates", "timelinelabels": "spans of videos",
    "videorectangle": "boxes in videos", "paragraphlabels": "spans of dialogues", "relation": "relations",
}  # fmt: skip
"""Kinds of results that there is no table for."""
SIDES = {"left": "left", "right": "right", "tie": "tie", "none": "tie", "neither": "tie"}
ONE_OF_TWO = re.compile(r"^(.*?)[ _-]?(1|a|left)$", re.IGNORECASE)
OTHER = {"1": "2", "a": "b", "A": "B", "left": "right", "Left": "Right"}


def recognises_label_studio(peek: Peek) -> bool:
    """Tasks with annotations whose results have a ``from_name``; or the columns that a flat export adds."""
    if set(peek.columns) >= FLAT:
        return True
    first = peek.first_in(TASKS) if TASKS in peek.names else peek.first
    if not first:
        return False
    if set(first) >= FLAT:
        return True
    if not (isinstance(first.get("annotations"), list) and isinstance(first.get("data"), dict)):
        return False
    if not ({"project", "inner_id", "total_annotations", "predictions", "drafts"} & set(first)):
        return False
    made = first["annotations"]
    return not made or (isinstance(made[0], dict) and "result" in made[0])


def read_label_studio(files: ExportFiles, into: Collector) -> None:
    """Read tasks with annotations, or rows of a flat export."""
    peek = Peek(files)
    if peek.columns or set(peek.first) >= FLAT:
        into.note("JSON_MIN and CSV do not say which annotations are ground truth or were skipped: prefer JSON.")
        _read_flat(_rows(files, peek), into)
        return
    own: set[Any] = set()
    count = several = 0
    for task in _named(files):  # read twice, so that no more than one task is held
        number = task["data"].get("id") if isinstance(task["data"], dict) else None
        own |= {number} if isinstance(number, (str, int)) else set()
        count, several = count + 1, several + (_n_true(task) > 1)
    if several:
        into.note(
            f"{several:,} tasks have more than one annotation that is marked as ground truth (Label Studio marks those "
            "that were imported): what is true of them is not known."
        )
    submitted: list[Submitted] = []
    alike: dict[frozenset[str], frozenset[str]] = {}
    for task in _named(files):
        _read_task(task, task["data"]["id"] if len(own) == count else task.get("id"), into, submitted, alike)
    _add_empty(submitted, into)


class Submitted(NamedTuple):
    """An annotation that was submitted, and the questions that it answers."""

    item: Any
    who: Any
    time: Any
    duration: Any
    text: str | None
    questions: frozenset[str]


def _add_empty(submitted: list[Submitted], into: Collector) -> None:
    """An annotation without spans is an answer too: none found. Of other questions it says nothing."""
    tagged = [name for name, question in into.questions.items() if question.kind == collect.SPANS]
    for made in submitted:
        for name in tagged:
            text = into.texts.get(made.item, made.text)
            if name not in made.questions and isinstance(text, str):
                into.spans(name, made.item, made.who, text, [], time=made.time, duration=made.duration)
        if any(question.drawn for question in into.questions.values()):
            into.looks(made.item, made.who, made.time, made.duration)
        elif not tagged and not made.questions:
            into.leave_out(collect.EMPTY)


def _named(files: ExportFiles) -> Iterator[dict[str, Any]]:
    """Tasks without what is not looked at."""
    wanted = ("id", "data", "annotations", "completions", "predictions", "drafts")
    for task in files.objects(TASKS if TASKS in files.names else files.names[0]):
        yield {key: task.get(key) for key in wanted} | {"data": task.get("data") or {}}


def _annotations(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    made = task.get("annotations") or task.get("completions") or []
    return [annotation for annotation in made if isinstance(annotation, dict)] if isinstance(made, list) else []


def _is_true(annotation: Mapping[str, Any]) -> bool:
    return bool(annotation.get("ground_truth")) and not annotation.get("was_cancelled")


def _n_true(task: Mapping[str, Any]) -> int:
    return sum(map(_is_true, _annotations(task)))


def _read_task(
    task: Mapping[str, Any], item: Any, into: Collector, submitted: list[Submitted],
    alike: dict[frozenset[str], frozenset[str]],
) -> None:  # fmt: skip
    data = task["data"] if isinstance(task["data"], dict) else {}
    about = {name: value for name, value in data.items() if name != "id"}
    into.about_item(item, **{**about, "task_id": task.get("id")})
    drafts = task.get("drafts")
    into.leave_out("drafts", len(drafts) if isinstance(drafts, list) else 0)
    single = _n_true(task) == 1
    text = data["text"] if isinstance(data.get("text"), str) else None
    for made in _annotations(task):
        results = made.get("result")
        if made.get("was_cancelled") or made.get("skipped"):
            into.leave_out("skipped")
        else:
            results = results if isinstance(results, list) else []
            who = _person(made.get("completed_by"), into)
            when = {"time": made.get("created_at"), "duration": made.get("lead_time")}
            _read_results(results, data, item, who, when, single and _is_true(made), into)
            questions = frozenset(str(result.get("from_name")) for result in results if isinstance(result, dict))
            questions = alike.setdefault(questions, questions)
            submitted.append(Submitted(item, who, when["time"], when["duration"], text, questions))
    for guess in task.get("predictions") or []:
        if not into.predictions or not isinstance(guess, dict) or not isinstance(guess.get("result"), list):
            into.leave_out("predictions of models")
            continue
        who = f"model:{guess.get('model_version') or 'unnamed'}"
        _read_results(guess["result"], data, item, who, {"time": guess.get("created_at")}, False, into)


def _person(found: Any, into: Collector) -> Any:
    """The name of an annotator."""
    if not isinstance(found, dict):
        return found
    name = found.get("email") or found.get("username") or found.get("id")
    into.about_annotator(name, id=found.get("id"), first_name=found.get("first_name"), last_name=found.get("last_name"))
    return name


def _read_results(
    results: list[Any], data: Mapping[str, Any], item: Any, who: Any, when: Mapping[str, Any], true: bool,
    into: Collector,
) -> None:  # fmt: skip
    """The results of one annotation, by question."""
    by_question: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        if isinstance(result, dict) and isinstance(result.get("value"), dict):
            by_question.setdefault(str(result.get("from_name")), []).append(result)
        elif isinstance(result, dict) and result.get("type") == "relation":
            into.other("relations", "relations")
    for question, found in by_question.items():
        _read_question(question, found, data, item, who, when, true, into)


def _read_question(
    question: str, found: list[dict[str, Any]], data: Mapping[str, Any], item: Any, who: Any, when: Mapping[str, Any],
    true: bool, into: Collector,
) -> None:  # fmt: skip
    kind, values = str(found[0].get("type")), [result["value"] for result in found]
    if kind in ("choices", "taxonomy"):
        labels = [" > ".join(map(str, c)) if isinstance(c, list) else c for v in values for c in v.get(kind) or []]
        into.choices(question, item, who, labels, **when)
        if true:
            into.gold(question, item, labels)
    elif kind in ("rating", "number"):
        into.number(question, item, who, values[-1].get(kind), **when)
        if true:
            into.gold(question, item, values[-1].get(kind), collect.NUMBERS)
    elif kind == "pairwise":
        side = SIDES.get(str(values[-1].get("selected", "tie")).lower(), "tie")
        into.pair(question, item, who, *_compared(data, item), side, **when)
    elif kind == "ranker":
        _read_ranker(question, values[-1].get("ranker"), item, who, when, into)
    elif kind in ("labels", "hypertextlabels") and all("start" in v and "end" in v for v in values):
        to = str(found[0].get("to_name"))
        text = data.get(to) if isinstance(data.get(to), str) else data.get("text")
        if isinstance(text, str) and kind == "labels" and all(isinstance(v["start"], int) for v in values):
            spans = [(v["start"], v["end"], name) for v in values for name in v.get("labels") or []]
            into.spans(question, item, who, text, spans, **when)
        elif kind == "labels" and not isinstance(text, str):
            _read_events(question, values, item, who, when, true, into)
        else:
            into.other(question, "spans of something else than plain text")
    elif kind == "timeserieslabels":
        _read_events(question, values, item, who, when, true, into)
    elif kind == "textarea":
        said = " ".join(str(line) for v in values for line in (v.get("text") or []) if isinstance(v.get("text"), list))
        if said.strip():
            into.answer(collect.TEXTS, question, item, who, collect.clean(said), **when)
            if true:
                into.gold(question, item, collect.clean(said), collect.TEXTS)
        else:
            into.leave_out(collect.EMPTY)
    elif kind.removesuffix("labels") in SHAPES:
        for result in found:
            _read_shape(question, kind, result, item, who, when, into)
        if true:
            into.true_shapes(question, item, who)
    else:
        into.other(question, OTHERS.get(kind, f"results of type {kind}"))


def _read_events(
    question: str, values: list[dict[str, Any]], item: Any, who: Any, when: Mapping[str, Any], true: bool,
    into: Collector,
) -> None:  # fmt: skip
    """Stretches of a recording or a time series."""
    for value in values:
        for label in value.get("labels") or value.get("timeserieslabels") or ["event"]:
            into.event(question, item, who, label, value.get("start"), value.get("end"), **when)
    if true:
        into.true_shapes(question, item, who)


def _read_shape(
    question: str, kind: str, result: Mapping[str, Any], item: Any, who: Any, when: Mapping[str, Any], into: Collector
) -> None:
    """A box, a point or a mask; places are percent of the image."""
    value, form = result["value"], kind.removesuffix("labels")
    width, height = (
        collect.number(result.get(f"original_{side}") or value.get(f"original_{side}")) for side in ("width", "height")
    )
    if not width or not height or width * height > collect.MOST_PIXELS:
        into.leave_out("shapes on images of unknown size")
        return
    into.about_item(item, width=int(width), height=int(height))
    unit = {"x": width, "width": width, "radiusX": width, "y": height, "height": height, "radiusY": height}
    at = {name: (collect.number(value.get(name)) or 0.0) * size / 100.0 for name, size in unit.items()}
    if collect.number(value.get("rotation")):
        into.note("Shapes that are turned are read as if they were not.")
    for label in value.get(f"{form}labels") or ["object"]:
        given = (question, item, who, label)
        if form == "rectangle":
            into.rectangle(*given, at["x"], at["y"], at["width"], at["height"], **when)
        elif form == "keypoint":
            into.shape(*given, at["x"], at["y"], **when)
        elif form == "polygon":
            points = value.get("points") if isinstance(value.get("points"), list) else []
            corners = [[x * width / 100.0, y * height / 100.0] for x, y in points]
            into.polygon(*given, corners, height, width, **when)
        elif form == "ellipse" and min(at["radiusX"], at["radiusY"]) > 0.0:
            disc = ellipse_mask((at["x"], at["y"]), (at["radiusX"], at["radiusY"]), int(height), int(width))
            into.mask(*given, disc, **when)
        elif form == "brush" and isinstance(value.get("rle"), list):
            try:
                into.mask(*given, from_brush(value["rle"], int(height), int(width)), **when)
            except LabelError:
                into.leave_out("brushes that do not fit their image")
        else:
            into.leave_out("shapes without their places")


def _read_ranker(question: str, ranked: Any, item: Any, who: Any, when: Mapping[str, Any], into: Collector) -> None:
    """Items in order: of one list, or a list for each bucket, which is a class of its items."""
    lists = ranked if isinstance(ranked, dict) else {"rank": ranked}
    for name, items in lists.items():
        if isinstance(items, list):
            into.ranking(question if len(lists) == 1 else f"{question}.{name}", item, who, items, **when)


def _compared(data: Mapping[str, Any], item: Any) -> tuple[Any, Any]:
    """The two sides of a comparison: the names of models where the task has them, else the fields that are a pair."""
    found = []
    for name in data:
        match = ONE_OF_TWO.match(name)
        if match is not None:
            other = name[: match.start(2)] + OTHER.get(match.group(2), OTHER.get(match.group(2).lower(), ""))
            if other in data and isinstance(data[name], (str, int)) and isinstance(data[other], (str, int)):
                found.append((not match.group(1).lower().startswith(("model", "system")), name, other))
    if not found:
        return f"{item}: left", f"{item}: right"
    _, name, other = min(found, key=lambda pair: pair[0])
    return data[name], data[other]


def _rows(files: ExportFiles, peek: Peek) -> Iterator[dict[str, Any]]:
    """The rows of a flat export, with JSON in cells read."""
    if not peek.columns:
        yield from files.objects(files.names[0])
        return
    for row in files.table(files.names[0]).iter_rows(named=True):
        yield {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _read_flat(rows: Iterator[dict[str, Any]], into: Collector) -> None:
    """A row per annotation. Which columns are answers is not written: those that differ between annotations of a task,
    or hold results; the others are the task's own data."""
    found = list(rows)
    seen: dict[str, dict[Any, Any]] = {}
    answers: set[str] = set()
    for row in found:
        for name in row.keys() - FLAT - {"id"}:
            value = row[name]
            key = json.dumps(value, sort_keys=True, default=str)
            if seen.setdefault(name, {}).setdefault(row.get("id"), key) != key or _is_result(value):
                answers.add(name)
    for row in found:
        item, who = row.get("id"), row.get("annotator")
        when = {"time": row.get("created_at"), "duration": row.get("lead_time")}
        data = {name: row[name] for name in row.keys() - FLAT - answers - {"id"}}
        into.about_item(item, **data)
        for name in sorted(answers & row.keys()):
            _read_cell(name, row[name], data, item, who, when, into)


def _is_result(value: Any) -> bool:
    """Whether a cell holds results: a list of objects of a kind that is known, or choices."""
    if isinstance(value, dict):
        return set(value) == {"choices"}
    return isinstance(value, list) and any(isinstance(v, dict) and not v.keys().isdisjoint(KEYS) for v in value)


def _read_cell(
    name: str, value: Any, data: Mapping[str, Any], item: Any, who: Any, when: Mapping[str, Any], into: Collector
) -> None:
    if value is None or value == "":
        into.leave_out(collect.EMPTY)
    elif isinstance(value, dict) and "choices" in value:
        into.choices(name, item, who, value["choices"], **when)
    elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        kind = next((k for k in KEYS if k in value[0]), "")
        kind = {"selected": "pairwise", "start": "labels"}.get(kind, kind)
        results = [{"type": kind or "another kind", "value": v, "to_name": "text"} for v in value]
        _read_question(name, results, data, item, who, when, False, into)
    elif isinstance(value, list):
        into.choices(name, item, who, [" > ".join(map(str, v)) if isinstance(v, list) else v for v in value], **when)
    else:
        into.choices(name, item, who, [value], **when)


KEYS = (
    "rating", "number", "selected", "ranker", "taxonomy", "rectanglelabels", "polygonlabels", "ellipselabels",
    "keypointlabels", "brushlabels", "timeserieslabels", "start",
)  # fmt: skip
