"""SuperAnnotate: ``annotations.json`` (a file, or one in the folder of each annotator), or a JSON file per item.

=============  ==============================================================================================
item           ``metadata.name``
annotator      ``createdBy.email`` of an instance, else ``metadata.annotatorEmail``
question       ``tag`` (``className`` of tags); boxes and other shapes are left alone
time           ``createdAt``
left out       pre-annotations
=============  ==============================================================================================
"""

from __future__ import annotations

from typing import Any

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek


def recognises(peek: Peek) -> bool:
    """Items with ``metadata`` and ``instances``."""
    names = peek.ending(".json")
    if not names:
        return False
    first = peek.first if peek.files.single else peek.first_in(names[0])
    return _is_item(first)


def _is_item(row: dict[str, Any]) -> bool:
    meta = row.get("metadata")
    return isinstance(meta, dict) and isinstance(row.get("instances"), list) and "name" in meta


def read(files: ExportFiles, into: Collector) -> None:
    """Read items and their instances."""
    for name in files.names:
        if not name.lower().endswith(".json"):
            continue
        for row in files.objects(name):
            if _is_item(row):
                _read_item(row, into)


def _read_item(row: dict[str, Any], into: Collector) -> None:
    meta = row["metadata"]
    item = meta["name"]
    into.about_item(item, url=meta.get("url"), status=meta.get("status"))
    said: dict[Any, tuple[list[Any], Any]] = {}
    for instance in row["instances"]:
        if not isinstance(instance, dict):
            continue
        if str(instance.get("creationType")).lower() in ("preannotation", "prediction") and not into.predictions:
            into.leave_out("pre-annotations")
            continue
        by = instance.get("createdBy")
        who = by.get("email") if isinstance(by, dict) else None
        who = who if isinstance(who, str) else meta.get("annotatorEmail")
        if instance.get("type") == "tag":
            labels, _ = said.setdefault(str(who) if who is not None else None, ([], instance.get("createdAt")))
            labels.append(instance.get("className"))
        else:
            into.other("instances", f"instances of type {instance.get('type')}")
    for who, (labels, when) in said.items():
        into.choices("tag", item, who, labels, when)
