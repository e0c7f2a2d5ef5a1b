"""Labelbox: NDJSON of an export with ``label_details``.

=============  ==============================================================================================
item           ``data_row.global_key``, else ``data_row.id``
annotator      ``label_details.created_by``
question       ``classifications[].name``: radio and checklist answers; texts and objects are left alone
time           ``label_details.created_at``
duration       ``performance_details.seconds_to_create``
left out       benchmarks (which become gold), skipped rows
=============  ==============================================================================================
"""

from __future__ import annotations

from typing import Any

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek


def recognises(peek: Peek) -> bool:
    """Rows with a ``data_row`` and the labels of projects."""
    return isinstance(peek.first.get("data_row"), dict) and isinstance(peek.first.get("projects"), dict)


def read(files: ExportFiles, into: Collector) -> None:
    """Read one data row per line."""
    for row in files.objects(files.names[0]):
        data = _object(row.get("data_row"))
        item = data.get("global_key") or data.get("id")
        into.about_item(item, row_data=data.get("row_data"), external_id=data.get("external_id"))
        for project in _object(row.get("projects")).values():
            for label in _list(_object(project).get("labels")):
                _read_label(label, item, into)


def _read_label(label: dict[str, Any], item: Any, into: Collector) -> None:
    details = _object(label.get("label_details"))
    if details.get("is_outdated") or label.get("skipped") or details.get("skipped"):
        into.leave_out("skipped")
        return
    found = _object(label.get("annotations"))
    gold = str(label.get("label_kind")).lower() == "benchmark" or details.get("benchmark_label") is True
    who = details.get("created_by")
    if who is None and not gold:
        into.note("Labels do not say who made them: export with label_details.")
    took = _object(label.get("performance_details")).get("seconds_to_create")
    if _list(found.get("objects")):
        into.other("objects", "boxes and other objects")
    for answer in _list(found.get("classifications")):
        name, chosen = str(answer.get("name") or answer.get("value")), _chosen(answer)
        if chosen is None:
            into.other(name, "texts")
        elif gold:
            into.gold(name, item, chosen)
            into.leave_out("benchmarks, which are gold")
        elif not chosen:
            into.leave_out("without an answer")
        else:
            into.choices(name, item, who, chosen, details.get("created_at"), took)


def _chosen(answer: dict[str, Any]) -> list[Any] | None:
    """The names that were chosen; ``None`` of a text."""
    if "radio_answer" in answer:
        name = _object(answer["radio_answer"]).get("name")
        return [] if name is None else [name]
    if "checklist_answers" in answer:
        return [option.get("name") for option in _list(answer["checklist_answers"])]
    return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
