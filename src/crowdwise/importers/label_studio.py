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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from crowdwise.data.masks import ellipse_mask, from_brush
from crowdwise.errors import LabelError
from crowdwise.importers import collect
from crowdwise.importers.collect import Collector, as_object, objects_in, upright
from crowdwise.importers.export_files import ExportFiles, Peek

TASKS = "tasks.jsonl"
"""The file of tasks in a folder that ``crowdwise label-studio pull`` writes."""
FLAT = {"annotation_id", "annotator", "created_at", "updated_at", "lead_time"}
"""The columns that JSON_MIN and CSV add."""
SHAPES = ("rectangle", "ellipse", "polygon", "brush", "keypoint")
"""Kinds of shapes; with ``labels`` behind them where they have classes."""
OTHERS = {
    "bitmasklabels": "bitmasks", "datetime": "dates", "videorectangle": "boxes in videos",
    "paragraphlabels": "spans of dialogues", "relation": "relations",
}  # fmt: skip
"""Kinds of results that there is no table for."""
STRETCHES = ("labels", "hypertextlabels", "timeserieslabels", "paragraphlabels")
ABOUT = "about a region"
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
    annotations = first["annotations"]
    return not annotations or (isinstance(annotations[0], dict) and "result" in annotations[0])


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
        number = as_object(task["data"]).get("id")
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
    """An annotation that was submitted, and the questions that it answers; with the number of pages of its task."""

    item: Any
    pages: int
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
            for page in range(made.pages) if made.pages else (None,):
                into.looks(_page(made.item, page), made.who, made.time, made.duration)
        elif not tagged and not made.questions:
            into.leave_out(collect.EMPTY)


def _page(item: Any, page: Any) -> Any:
    """The item of a page of a task with several images."""
    return item if page is None else f"{item} (page {page + 1})"


def _named(files: ExportFiles) -> Iterator[dict[str, Any]]:
    """Tasks without what is not looked at."""
    wanted = ("id", "data", "annotations", "completions", "predictions", "drafts")
    for task in files.objects(TASKS if TASKS in files.names else files.names[0]):
        yield {key: task.get(key) for key in wanted} | {"data": task.get("data") or {}}


def _annotations(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    return objects_in(task.get("annotations") or task.get("completions"))


def _is_true(annotation: Mapping[str, Any]) -> bool:
    return bool(annotation.get("ground_truth")) and not annotation.get("was_cancelled")


def _n_true(task: Mapping[str, Any]) -> int:
    return sum(map(_is_true, _annotations(task)))


def _n_pages(task: Mapping[str, Any], data: Mapping[str, Any]) -> int:
    """How many images a task has whose results say which they are on; 0 of other tasks."""
    pages = [
        result.get("item_index") for annotation in _annotations(task) for result in _results(annotation.get("result"))
    ]
    last = max((page for page in pages if isinstance(page, int)), default=-1)
    return max(last + 1, *(len(value) for value in data.values() if isinstance(value, list)), 0) if last >= 0 else 0


def _results(results: Any) -> list[dict[str, Any]]:
    """Results that say something, with the classes of shapes that have them in a result of their own. What is said of a
    region alone is ``about``."""
    whole = [dict(one) for one in objects_in(results)]
    whole = [one for one in whole if isinstance(one.get("value"), dict) or one.get("type") == "relation"]
    regions = {one["id"]: one for one in whole if one.get("id") is not None and _is_region(one)}
    out = []
    for one in whole:
        of = regions.get(one.get("id"))
        if of is None or of is one or _is_region(one):
            out.append(one)
        elif str(one.get("type")).endswith("labels"):
            name = f"{str(of.get('type')).removesuffix('labels')}labels"
            of["value"] = {**of["value"], name: one["value"].get(str(one["type"]))}
        else:
            out.append({**one, "type": ABOUT})
    return out


def _is_region(result: Mapping[str, Any]) -> bool:
    kind, value = str(result.get("type")), result.get("value")
    ends = isinstance(value, dict) and "start" in value and "end" in value
    return kind.removesuffix("labels") in SHAPES or (kind in STRETCHES and ends)


def _read_task(
    task: Mapping[str, Any], item: Any, into: Collector, submitted: list[Submitted],
    alike: dict[frozenset[str], frozenset[str]],
) -> None:  # fmt: skip
    data = as_object(task["data"])
    about = {name: value for name, value in data.items() if name != "id"}
    into.about_item(item, **{**about, "task_id": task.get("id")})
    drafts = task.get("drafts")
    into.leave_out("drafts", len(drafts) if isinstance(drafts, list) else 0)
    single = _n_true(task) == 1
    texts = [value for value in data.values() if isinstance(value, str)]
    text = data["text"] if isinstance(data.get("text"), str) else max(texts, key=len, default=None)
    pages = _n_pages(task, data)
    for page in range(pages):
        own = {name: value[page] if isinstance(value, list) else value for name, value in about.items()
               if not isinstance(value, list) or page < len(value)}  # fmt: skip
        into.about_item(_page(item, page), **own)
    for annotation in _annotations(task):
        results = annotation.get("result")
        if annotation.get("was_cancelled") or annotation.get("skipped"):
            into.leave_out("skipped")
        else:
            results = results if isinstance(results, list) else []
            who = _person(annotation.get("completed_by"), into)
            when = {"time": annotation.get("created_at"), "duration": annotation.get("lead_time")}
            _read_results(results, data, item, who, when, single and _is_true(annotation), into)
            questions = frozenset(str(result.get("from_name")) for result in results if isinstance(result, dict))
            questions = alike.setdefault(questions, questions)
            submitted.append(Submitted(item, pages, who, when["time"], when["duration"], text, questions))
    for guess in task.get("predictions") or []:
        if not into.predictions or not isinstance(guess, dict) or not isinstance(guess.get("result"), list):
            into.leave_out("predictions of models")
            continue
        who = f"model:{guess.get('model_version') or 'unnamed'}"
        _read_results(guess["result"], data, item, who, {"time": guess.get("created_at")}, False, into)


def _person(by: Any, into: Collector) -> Any:
    """The name of an annotator."""
    if not isinstance(by, dict):
        return by
    name = by.get("email") or by.get("username") or by.get("id")
    into.about_annotator(name, id=by.get("id"), first_name=by.get("first_name"), last_name=by.get("last_name"))
    return name


def _read_results(
    results: list[Any], data: Mapping[str, Any], item: Any, who: Any, when: Mapping[str, Any], true: bool,
    into: Collector,
) -> None:  # fmt: skip
    """The results of one annotation, by question."""
    by_question: dict[str, list[dict[str, Any]]] = {}
    for result in _results(results):
        if result.get("type") == "relation":
            into.other("relations", "relations")
        elif result["type"] == ABOUT:
            into.other(str(result.get("from_name")), "answers about single regions")
        else:
            by_question.setdefault(str(result.get("from_name")), []).append(result)
    for question, same in by_question.items():
        _read_question(question, same, data, item, who, when, true, into)


def _read_question(
    question: str, results: list[dict[str, Any]], data: Mapping[str, Any], item: Any, who: Any, when: Mapping[str, Any],
    true: bool, into: Collector,
) -> None:  # fmt: skip
    kind, values = str(results[0].get("type")), [result["value"] for result in results]
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
        whole = all(isinstance(v[end], int) for v in values for end in ("start", "end"))
        spoken = any("channel" in v for v in values) or not (whole or any("text" in v for v in values))
        spans = [(v["start"], v["end"], name, v.get("text")) for v in values for name in v.get("labels") or ["span"]]
        text = _text_of(data, str(results[0].get("to_name")), spans) if whole else None
        if kind == "labels" and spoken:
            _read_events(question, values, item, who, when, true, into)
        elif kind == "labels" and text is not None:
            into.spans(question, item, who, text, spans, **when, true=true)
        else:
            into.other(question, "spans of something else than plain text in the export")
    elif kind == "timeserieslabels":
        _read_events(question, values, item, who, when, true, into)
    elif kind == "timelinelabels":  # frames, the first of them 1, both ends in it
        ranges = [(v, r) for v in values for r in objects_in(v.get("ranges"))]
        frames = [(collect.number(r.get("start")), r.get("end"), v.get(kind)) for v, r in ranges]
        stretches = [{"start": s and s - 1.0, "end": end, "labels": names} for s, end, names in frames]
        _read_events(question, stretches, item, who, when, true, into)
    elif kind == "textarea":
        said = " ".join(str(line) for v in values for line in (v.get("text") or []) if isinstance(v.get("text"), list))
        if said.strip():
            into.answer(collect.TEXTS, question, item, who, collect.clean(said), **when)
            if true:
                into.gold(question, item, collect.clean(said), collect.TEXTS)
        else:
            into.leave_out(collect.EMPTY)
    elif kind.removesuffix("labels") in SHAPES:
        for result in results:
            page = result.get("item_index")
            place = _page(item, page if isinstance(page, int) else None)
            _read_shape(question, kind, result, place, who, when, into)
            if true:
                into.true_shapes(question, place, who)
    else:
        into.other(question, OTHERS.get(kind, f"results of type {kind}"))


def _text_of(data: Mapping[str, Any], to: str, spans: Sequence[tuple[Any, ...]]) -> str | None:
    """The text of spans: the field of that name or ``text``, else the one that has the words of the spans."""
    named = [data[name] for name in (to, "text") if isinstance(data.get(name), str)]
    words_of = [words for *_, words in spans if words]
    if not words_of:
        return named[0] if named else None
    texts = {text: None for text in (*named, *data.values()) if isinstance(text, str)}
    lost = {text: len(collect.placed(text, spans)[1]) for text in texts}
    best = min(texts, key=lost.__getitem__, default=None)
    return best if best is not None and lost[best] < len(words_of) else None


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
    shares = {name: collect.number(value.get(name)) for name in unit}
    at = {name: np.nan if share is None else share * unit[name] / 100.0 for name, share in shares.items()}
    turn = collect.number(value.get("rotation")) or 0.0
    box = [at["x"], at["y"], at["x"] + at["width"], at["y"] + at["height"]]
    if turn and form == "rectangle":
        into.note(collect.TURNED)
        box = upright(box, turn, box[:2])
    for label in value.get(f"{form}labels") or ["object"]:
        about = (question, item, who, label)
        if form == "rectangle":
            into.shape(*about, *box, **when)
        elif form == "keypoint":
            into.shape(*about, at["x"], at["y"], **when)
        elif form == "polygon":
            points = value.get("points") if isinstance(value.get("points"), list) else []
            ends = [[collect.number(end) for end in point] for point in points if isinstance(point, list)]
            known = all(None not in point for point in ends)
            corners = (np.array(ends) * (width, height) / 100.0).tolist() if known and ends else ends
            into.polygon(*about, corners, height, width, **when)
        elif form == "ellipse" and min(at["radiusX"], at["radiusY"]) > 0.0:
            disc = ellipse_mask((at["x"], at["y"]), (at["radiusX"], at["radiusY"]), int(height), int(width), turn)
            into.mask(*about, disc, **when)
        elif form == "brush" and isinstance(value.get("rle"), list):
            try:
                into.mask(*about, from_brush(value["rle"], int(height), int(width)), **when)
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
    pairs = []
    for name in data:
        match = ONE_OF_TWO.match(name)
        if match is not None:
            other = name[: match.start(2)] + OTHER.get(match.group(2), OTHER.get(match.group(2).lower(), ""))
            if other in data and isinstance(data[name], (str, int)) and isinstance(data[other], (str, int)):
                pairs.append((not match.group(1).lower().startswith(("model", "system")), name, other))
    if not pairs:
        return f"{item}: left", f"{item}: right"
    _, name, other = min(pairs, key=lambda pair: pair[0])
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
    every = list(rows)
    seen: dict[str, dict[Any, Any]] = {}
    answers: set[str] = set()
    for row in every:
        for name in row.keys() - FLAT - {"id"}:
            value = row[name]
            key = json.dumps(value, sort_keys=True, default=str)
            if seen.setdefault(name, {}).setdefault(row.get("id"), key) != key or _is_result(value):
                answers.add(name)
    for row in every:
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
