"""Exports of tools for texts.

Each has ``read_TOOL``, whose docstring says where things are in the export.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any

from crowdwise.data import columns
from crowdwise.data.source import EVERYONE
from crowdwise.errors import InputError
from crowdwise.importers import collect, export_files
from crowdwise.importers.collect import Collector, Span, as_object, objects_in
from crowdwise.importers.export_files import ExportFiles, Peek


def read_prodigy(files: ExportFiles, into: Collector) -> None:
    """Prodigy: JSON lines of ``choice``, binary, ``ner`` and comparing interfaces.

    =============  ==============================================================================================
    item           ``meta.id`` where there is one, else ``_input_hash`` (``_task_hash`` of binary answers)
    annotator      ``_annotator_id``, else ``_session_id``, without the name of the data set in front of it
    question       ``choice``, ``label`` (accepted or rejected), ``spans``, ``compare``
    time           ``_timestamp``
    left out       ignored tasks; rejected ones, where the answer is not accept or reject itself
    =============  ==============================================================================================
    """
    names = _names(_session(row) for row in files.objects(files.names[0]))
    for row in files.objects(files.names[0]):
        _prodigy_read_row(row, names[_session(row)], into)


def _prodigy_read_row(row: dict[str, Any], who: str, into: Collector) -> None:
    answer = row.get("answer")
    own = as_object(row.get("meta")).get("id")
    item = own if isinstance(own, (str, int)) else row.get("_input_hash")
    when = {"time": row.get("_timestamp")}
    into.about_item(item, text=row.get("text"), image=row.get("image"), html=row.get("html"))
    if answer == "ignore":
        into.leave_out("ignored")
    elif isinstance(row.get("options"), list) and "accept" in row:
        chosen = row.get("accept")
        if answer == "reject":
            into.leave_out("rejected")
        else:
            into.choices("choice", item, who, chosen if isinstance(chosen, list) else [chosen], **when)
    elif isinstance(row.get("label"), str) and "spans" not in row:
        task = item if own is None else own
        about = f"{task}: {row['label']}" if own is not None else row.get("_task_hash")
        into.about_item(about, text=row.get("text"), label=row["label"])
        into.choices("label", about, who, [str(answer)], **when)
    elif answer != "accept":
        into.leave_out("rejected")
    elif isinstance(row.get("text"), str) and ("spans" in row or "tokens" in row):
        _read_spans(row, item, who, when, into)
    elif "image" in row and "spans" in row:
        into.looks(item, who, **when)
        for shape in objects_in(row["spans"]):
            corners = shape.get("points")
            if isinstance(corners, list) and shape.get("type") == "polygon":
                size = (row.get("height"), row.get("width"))
                into.polygon("masks", item, who, shape.get("label"), corners, *size, **when)
            else:
                ends = (shape.get(part) for part in ("x", "y", "width", "height"))
                into.rectangle("boxes", item, who, shape.get("label"), *ends, **when)
    else:
        into.leave_out("of another interface")


def _read_spans(row: dict[str, Any], item: Any, who: Any, when: dict[str, Any], into: Collector) -> None:
    spans = [s for s in objects_in(row.get("spans")) if {"start", "end", "label"} <= set(s)]
    tokens = [t for t in objects_in(row.get("tokens")) if {"start", "end"} <= set(t)]
    places = [(t["start"], t["end"]) for t in tokens] or None
    places_of = [(s["start"], s["end"], s["label"]) for s in spans]
    into.spans("spans", item, who, row["text"], places_of, **when, tokens=places)


def _session(row: dict[str, Any]) -> str:
    session = row.get("_annotator_id") or row.get("_session_id")
    return EVERYONE if session is None else str(session)


def _names(sessions: Iterable[str]) -> dict[str, str]:
    """Sessions without the data set in front, which all of them share: ``reviews-ann`` is ``ann``."""
    known = sorted(set(sessions) - {EVERYONE})
    first, last = (known[0], known[-1]) if known else ("", "")
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    prefix = first[: first.rfind("-", 0, same) + 1]
    return {name: name.removeprefix(prefix) or name for name in known} | {EVERYONE: EVERYONE}


SHARED = ("all", "unknown")


def recognises_doccano(peek: Peek) -> bool:
    """Objects with an id, a text (or an image), labels and the ``Comments`` that doccano writes."""
    names = peek.ending(".jsonl", ".json")
    if not names or len(names) < len(peek.names):
        return False
    return _is_row(peek.first if peek.files.single else peek.first_in(names[0]))


def _is_row(row: dict[str, Any]) -> bool:
    subject = "text" in row or "filename" in row
    return "id" in row and subject and "Comments" in row and ("label" in row or "entities" in row)


def read_doccano(files: ExportFiles, into: Collector) -> None:
    """doccano: JSON lines, one file per annotator in a zip archive or a folder.

    =============  ==============================================================================================
    item           ``id``
    annotator      ``username`` or ``annotator``, else the name of the file; ``all.jsonl`` of a shared project does not
                   say who annotated
    question       ``label`` (classes, spans), ``entities`` (spans), ``cats``
    =============  ==============================================================================================
    """
    for name in files.names:
        who = PurePath(name).stem
        if who in SHARED:
            into.note(f"{name} is of a shared project, which does not say who annotated: all answers are by {who!r}.")
        for row in files.objects(name):
            if _is_row(row):
                _doccano_read_row(row, str(row.get("username") or row.get("annotator") or who), into)
            else:
                into.leave_out("of another form")


def _doccano_read_row(row: dict[str, Any], who: str, into: Collector) -> None:
    item, text = row["id"], row.get("text")
    into.about_item(item, text=text, filename=row.get("filename"))
    labels = row["entities"] if "entities" in row else row["label"]
    spans = [_span(span) for span in (labels if isinstance(labels, list) else ())]
    if isinstance(text, str) and ("entities" in row or (spans and None not in spans)):
        into.spans("entities" if "entities" in row else "label", item, who, text, [s for s in spans if s is not None])
    elif isinstance(labels, list):
        if labels and isinstance(labels[0], (dict, list)):
            into.other("label", "boxes and polygons")
        elif labels:
            into.choices("label", item, who, labels)
        else:
            into.leave_out("without an answer")
    elif labels is not None:
        into.choices("label", item, who, [labels])


def _span(span: Any) -> tuple[int, int, str] | None:
    """``[start, end, label]``, or an object with these."""
    if isinstance(span, dict) and {"start_offset", "end_offset", "label"} <= set(span):
        span = [span["start_offset"], span["end_offset"], span["label"]]
    whole = isinstance(span, list) and len(span) == 3 and all(isinstance(place, int) for place in span[:2])
    return (span[0], span[1], str(span[2])) if whole else None


RESPONSES, USERS, STATUS, SUGGESTION = ".responses", ".responses.users", ".responses.status", ".suggestion"


def recognises_argilla(peek: Peek) -> bool:
    """Columns that end in ``.responses.users``, or responses with a user id."""
    first = peek.first
    if any(key.endswith(USERS) for key in first) and "id" in first:
        return True
    return isinstance(first.get("fields"), dict) and isinstance(first.get("responses"), dict) and "id" in first


def read_argilla(files: ExportFiles, into: Collector) -> None:
    """Argilla: records as JSON, flat (``QUESTION.responses``) or nested (``responses: {QUESTION: [...]}``).

    =============  ==============================================================================================
    item           ``id``
    annotator      ``user_id``; ``QUESTION.responses.users`` (ids: only the server knows names)
    question       labels, several labels, ratings, rankings, spans, texts
    left out       drafts and discarded responses; suggestions of models (unless they are asked for)
    =============  ==============================================================================================
    """
    for record in files.objects(files.names[0]):
        item = record.get("id")
        nested = isinstance(record.get("responses"), dict)
        fields = record.get("fields") if nested else {k: v for k, v in record.items() if "." not in k}
        texts = {name: value for name, value in (fields or {}).items() if name not in ("id", "status", "_server_id")}
        into.about_item(item, **texts)
        for question, who, value, status in _nested(record) if nested else _flat(record):
            if status not in (None, "submitted"):
                into.leave_out(f"{status} responses")
            else:
                _read_value(question, item, who, value, texts, into)
        for question, agent, value in _suggestions(record, nested):
            if into.predictions:
                _read_value(question, item, f"model:{agent or 'unnamed'}", value, texts, into)
            else:
                into.leave_out("suggestions of models")


def _flat(record: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    for key in record:
        if key.endswith(RESPONSES):
            values, users = record[key] or [], record.get(f"{key}.users") or []
            status = record.get(f"{key}.status") or [None] * len(values)
            for value, who, how in zip(values, users, status, strict=False):
                yield key.removesuffix(RESPONSES), who, value, how


def _nested(record: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    for question, responses in record["responses"].items():
        for response in objects_in(responses):
            yield question, response.get("user_id"), response.get("value"), response.get("status")


def _suggestions(record: Mapping[str, Any], nested: bool) -> Iterator[tuple[str, Any, Any]]:
    if nested:
        for question, suggestion in (record.get("suggestions") or {}).items():
            if isinstance(suggestion, dict):
                yield question, suggestion.get("agent"), suggestion.get("value")
        return
    for key, value in record.items():
        if key.endswith(SUGGESTION) and value is not None:
            yield key.removesuffix(SUGGESTION), record.get(f"{key}.agent"), value


def _read_value(question: str, item: Any, who: Any, value: Any, texts: Mapping[str, Any], into: Collector) -> None:
    """An answer, by its form: a label, labels, a number, a ranking, spans or a text."""
    if value is None:
        into.leave_out("without an answer")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        into.number(question, item, who, value)
    elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        if all({"value", "rank"} <= set(v) for v in value):
            ranked = sorted((v for v in value if isinstance(v["rank"], int)), key=lambda v: v["rank"])
            into.ranking(question, item, who, [v["value"] for v in ranked])
        elif all({"start", "end", "label"} <= set(v) for v in value):
            last = max(int(v["end"]) for v in value)
            text = next((t for t in texts.values() if isinstance(t, str) and len(t) >= last), "")
            into.spans(question, item, who, text, [(v["start"], v["end"], v["label"]) for v in value])
        else:
            into.other(question, "answers of another form")
    elif isinstance(value, list):
        into.choices(question, item, who, value)
    else:
        into.choices(question, item, who, [value])


OTHERS = {"R": "relations", "E": "events", "A": "attributes", "M": "attributes", "*": "relations"}


def recognises_brat(peek: Peek) -> bool:
    """Files that end in ``.ann``, each beside its text."""
    names = peek.ending(".ann")
    return bool(names) and all(f"{name[:-4]}.txt" in peek.names for name in names[:20])


def read_brat(files: ExportFiles, into: Collector) -> None:
    """brat: standoff files, in a folder (or an archive) with a folder for each annotator.

    =============  ==============================================================================================
    item           the name of the file
    annotator      the folder that it is in; the one above all others, where these have files of one name
    question       ``entities``: ``T`` lines; relations, events, attributes and notes are left alone
    left out       entities in several pieces, but for those that a line break parts
    =============  ==============================================================================================
    """
    names = [name for name in files.names if name.lower().endswith(".ann") and f"{name[:-4]}.txt" in files.names]
    for name, (who, item) in export_files.people(names).items():
        text, spans = files.text(f"{name[:-4]}.txt"), []
        for line in files.text(name).split("\n"):
            key, _, rest = line.partition("\t")
            if key[:1] != "T":
                if key[:1] in OTHERS:
                    into.other(OTHERS[key[:1]], OTHERS[key[:1]])
                continue
            place, _, words = rest.partition("\t")
            label, _, pieces = place.strip().partition(" ")
            ends = [int(end) if end.isdigit() else -1 for end in pieces.replace(";", " ").split()]
            apart = any(text[one:two].strip() for one, two in zip(ends[1:-1:2], ends[2::2], strict=False))
            if len(ends) < 2 or len(ends) % 2 or -1 in ends or apart:
                into.leave_out("entities in several pieces")
            else:
                spans.append((ends[0], ends[-1], label, words))
        into.about_item(item, text=text)
        into.spans("entities", item, who, text, spans)


FORMAT = "#FORMAT=WebAnno TSV"
LAYERS = ("#T_SP=", "#T_CH=", "#T_RL=")
"""How layers of spans, chains and relations begin."""
GROUP = re.compile(r"^(.*?)(?:\[(\d+)\])?$", re.DOTALL)
MEANT = re.compile(r"\\(.)")


def recognises_webanno(peek: Peek) -> bool:
    """The first line of WebAnno TSV."""
    if peek.files.single:
        return peek.head.startswith(FORMAT)
    names = peek.ending(".tsv")
    return bool(names) and peek.files.text(names[0], 100).startswith(FORMAT)


def read_webanno(files: ExportFiles, into: Collector) -> None:
    """INCEpTION and WebAnno: the project's folder (or archive) with WebAnno TSV 3 of each annotator.

    =============  ==============================================================================================
    item           the folder of the document
    annotator      the name of the file; ``curation/`` is the truth
    question       each layer of spans, by its last name; of its features ``value``, or each other one that is used
                   (``layer.feature``)
    left out       ``INITIAL_CAS``; relations and chains are left alone
    =============  ==============================================================================================
    """
    read: list[tuple[str, str, bool, str, list[Place], dict[str, list[Span]]]] = []
    for name in files.names:
        place = PurePath(name)
        if not name.lower().endswith(".tsv"):
            continue
        if place.stem == "INITIAL_CAS":
            into.leave_out("documents as they were before annotation")
            continue
        text, tokens, layers = _parsed(files.text(name), into)
        if text:
            read.append((place.parent.name or place.stem, place.stem, "curation" in place.parts, text, tokens, layers))
        else:
            into.leave_out("empty documents")
    used = {layer for *_, layers in read for layer, spans in layers.items() if spans}
    for item, who, curated, text, tokens, layers in read:
        into.about_item(item, text=text)
        for layer, spans in layers.items():
            if "." in layer and layer not in used:  # a feature beside others that no annotator used
                continue
            if curated:
                into.gold(layer, item, spans, collect.SPANS)
            else:
                into.spans(layer, item, who, text, spans, tokens=tokens)


Place = tuple[int, int]


def _parsed(content: str, into: Collector) -> tuple[str, list[Place], dict[str, list[Span]]]:
    """The text of a document, its tokens, and the spans of each question. Offsets are by characters: the
    file has those of UTF-16."""
    columns: list[str | None] = []
    text, tokens, places, rows, begun, ended = "", list[Place](), list[Place](), list[list[str]](), 0, 0
    for line in content.split("\n"):
        if line.startswith(LAYERS):
            columns += _questions(line.rstrip("\r"))
        elif not line.startswith("#") and line.count("\t") >= 2:
            cells = line.rstrip("\r").split("\t")
            first, dash, last = cells[1].partition("-")
            if not (dash and first.isdigit() and last.isdigit()):
                continue
            start, end = int(first), int(last)
            if "." not in cells[0]:
                text += " " * (start - ended)
                tokens.append((len(text), len(text) + len(cells[2])))
                text, begun, ended = text + cells[2], start, end
                places.append(tokens[-1])
            elif tokens:  # a part of the token before
                at = tokens[-1][0] + start - begun
                places.append((at, at + len(cells[2])))
            else:
                continue
            rows.append(cells[3:])
    found: dict[str, list[Span]] = {}
    for n, name in enumerate(columns):
        cells = [row[n] if len(row) > n else "_" for row in rows]
        if name is not None:
            found[name] = _webanno_spans(cells, places, name, into)
        elif set(cells) - {"_", "*", ""}:
            into.other("relations and chains", "columns of relations and chains")
    return text, tokens, found


def _questions(line: str) -> list[str | None]:
    """The question of each column of a layer; ``None`` of relations, chains and links."""
    layer, *features = line.partition("=")[2].split("|")
    name, features = layer.rpartition(".")[2], [one for one in features if one]
    if not line.startswith(LAYERS[0]):
        return [None] * max(1, len(features))
    if len(features) < 2:
        return [name]
    links = {n for n, one in enumerate(features) if one.startswith("ROLE_")}
    links |= {n + 1 for n in links}
    return [None if n in links else name if one == "value" else f"{name}.{one}" for n, one in enumerate(features)]


def _webanno_spans(cells: list[str], places: list[Place], question: str, into: Collector) -> list[Span]:
    """Spans from the cells of tokens and their parts: ``PER[1]`` on several tokens is one span."""
    out: list[Span] = []
    groups: dict[tuple[str, str], list[int]] = {}
    for (start, end), cell in zip(places, cells, strict=True):
        for value in re.split(r"(?<!\\)\|", cell):
            match = GROUP.match(value)
            if match is None or match.group(1) in ("_", ""):
                continue
            label, group = MEANT.sub(r"\1", match.group(1)), match.group(2)
            if match.group(1) == "*":  # an annotation of which this is not said
                if "." in question:
                    continue
                label = question
            if group is None:
                out.append((start, end, label))
            else:
                groups.setdefault((label, group), []).extend((start, end))
    return out + [(min(ends), max(ends), label) for (label, _), ends in groups.items()]


LOOK = 200
"""Rows by which columns are told apart."""


def recognises_huggingface(peek: Peek) -> bool:
    """Rows with a list of annotators beside a list of labels. (Lists of objects are ordinary JSON, read elsewhere.)"""
    first = peek.first
    who = _annotators(first)
    return who is not None and any(name != who and _as_long(first, name, who) for name in first)


def read_huggingface(files: ExportFiles, into: Collector) -> None:
    """Hugging Face datasets and their like: a row for each item, with lists of annotators and of what they said.

    =============  ==============================================================================================
    item           ``id`` or another column of items; else the number of the row
    annotator      a column of lists: ``annotators``, ``worker_ids``, ``raters``...
    question       every column of lists that is as long, in every row; ``ClassLabel`` as names, floats as ratings,
                   lists in lists as label sets
                   or one column of lists of objects, each with annotator and label (``annotations``)
    gold           a column ``gold`` or ``truth``, where there is one question
    =============  ==============================================================================================

    A loaded ``datasets.Dataset``, or the same rows as JSON lines.
    """
    name = files.names[0]
    head = list(islice(files.objects(name), LOOK))
    if not head:
        return
    who = next((found for row in head if (found := _annotators(row)) is not None), None)
    nested = next((found for row in head if (found := _objects_column(row)) is not None), None)
    if who is None and nested is None:
        _read_long(files, name, list(head[0]), into)
        return
    lists = [n for n in head[0] if who and n != who and all(_as_long(r, n, who) for r in head if r.get(who))]
    plain = [n for n in head[0] if n != who and not any(isinstance(row.get(n), (list, dict)) for row in head)]
    item = columns.find(plain, "item") or next((n for n in plain if n.lower() in ("id", "uid", "idx")), None)
    true = columns.find(plain, "truth")
    for number, row in enumerate(files.objects(name)):
        key = number if item is None else row.get(item)
        into.about_item(key, **{n: row.get(n) for n in plain if n not in (item, true)})
        answers = _parallel(row, who, lists) if who is not None else _in_objects(row, str(nested))
        for question, annotator, label in answers:
            _add(question, key, annotator, label, into)
        if true is not None and row.get(true) is not None and len(into.questions) == 1:
            (only,) = into.questions
            kind = into.questions[only].kind
            into.gold(only, key, row[true] if kind == collect.NUMBERS else [row[true]], kind)


def _read_long(files: ExportFiles, name: str, known: list[str], into: Collector) -> None:
    """Rows with one answer each."""
    item, who = columns.find(known, "item"), columns.find(known, "annotator")
    label = columns.find([n for n in known if n not in (item, who)], "label")
    if item is None or who is None or label is None:
        raise InputError(
            f"{files.path} has neither lists of annotators and labels nor columns of item, annotator and label: it has "
            f"{', '.join(known)}. Lists of labels alone do not say who gave them."
        )
    for row in files.objects(name):
        others = {n: row.get(n) for n in known if n not in (item, who, label)}
        into.about_item(row.get(item), **others)
        _add(label, row.get(item), row.get(who), row.get(label), into)


def _parallel(row: Mapping[str, Any], who: str, lists: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    people = row.get(who) or []
    for name in lists:
        for annotator, label in zip(people, row.get(name) or [], strict=False):
            yield name, annotator, label


def _in_objects(row: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any, Any]]:
    for entry in row.get(name) or []:
        if isinstance(entry, Mapping):
            who = columns.find(list(entry), "annotator")
            label = columns.find([n for n in entry if n != who], "label")
            yield name, entry.get(who) if who else None, entry.get(label) if label else None


def _add(question: str, item: Any, annotator: Any, label: Any, into: Collector) -> None:
    if label is None or label == "":
        into.leave_out(collect.EMPTY)
    elif isinstance(label, float):
        into.number(question, item, annotator, label)
    elif isinstance(label, list):
        into.several(question)
        into.choices(question, item, annotator, label)
    elif isinstance(label, (str, int)):
        into.choices(question, item, annotator, [label])
    else:
        into.other(question, "answers of another kind")


def _annotators(row: Mapping[str, Any]) -> str | None:
    """The column of lists of annotators, by its name in the singular."""
    lists = [n for n, v in row.items() if isinstance(v, list) and all(isinstance(w, (str, int)) for w in v)]
    named = {name[:-1] if name.lower().endswith("s") else name: name for name in lists}
    found = columns.find(list(named), "annotator")
    return None if found is None else named[found]


def _objects_column(row: Mapping[str, Any]) -> str | None:
    """The column of lists of objects that have an annotator and a label."""
    for name, value in row.items():
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            who = columns.find(list(value[0]), "annotator")
            if who is not None and columns.find([n for n in value[0] if n != who], "label") is not None:
                return name
    return None


def _as_long(row: Mapping[str, Any], name: str, who: str) -> bool:
    return isinstance(row.get(name), list) and len(row[name]) == len(row.get(who) or [])
