"""Argilla: records as JSON, flat (``QUESTION.responses``) or nested (``responses: {QUESTION: [...]}``).

=============  ==============================================================================================
item           ``id``
annotator      ``user_id``; ``QUESTION.responses.users`` (ids: only the server knows names)
question       labels, several labels, ratings, rankings, spans, texts
left out       drafts and discarded responses; suggestions of models (unless they are asked for)
=============  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

RESPONSES, USERS, STATUS, SUGGESTION = ".responses", ".responses.users", ".responses.status", ".suggestion"


def recognises(peek: Peek) -> bool:
    """Columns that end in ``.responses.users``, or responses with a user id."""
    first = peek.first
    if any(key.endswith(USERS) for key in first) and "id" in first:
        return True
    return isinstance(first.get("fields"), dict) and isinstance(first.get("responses"), dict) and "id" in first


def read(files: ExportFiles, into: Collector) -> None:
    """Read one record after the other."""
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
    for question, found in record["responses"].items():
        for response in found if isinstance(found, list) else []:
            if isinstance(response, dict):
                yield question, response.get("user_id"), response.get("value"), response.get("status")


def _suggestions(record: Mapping[str, Any], nested: bool) -> Iterator[tuple[str, Any, Any]]:
    if nested:
        for question, found in (record.get("suggestions") or {}).items():
            if isinstance(found, dict):
                yield question, found.get("agent"), found.get("value")
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
