"""doccano: JSON lines, one file per annotator in a zip archive or a folder.

=============  ==============================================================================================
item           ``id``
annotator      the name of the file; ``all.jsonl`` of a shared project does not say who annotated
question       ``label`` (classes, spans), ``entities`` (spans), ``cats``
=============  ==============================================================================================
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

SHARED = ("all", "unknown")


def recognises(peek: Peek) -> bool:
    """Objects with an id, a text (or an image), labels and the ``Comments`` that doccano writes."""
    names = peek.ending(".jsonl", ".json")
    if not names or len(names) < len(peek.names):
        return False
    return _is_row(peek.first if peek.files.single else peek.first_in(names[0]))


def _is_row(row: dict[str, Any]) -> bool:
    subject = "text" in row or "filename" in row
    return "id" in row and subject and "Comments" in row and ("label" in row or "entities" in row)


def read(files: ExportFiles, into: Collector) -> None:
    """Read one file per annotator."""
    for name in files.names:
        who = PurePath(name).stem
        if who in SHARED:
            into.note(f"{name} is of a shared project, which does not say who annotated: all answers are by {who!r}.")
        for row in files.objects(name):
            if _is_row(row):
                _read_row(row, who, into)
            else:
                into.leave_out("of another form")


def _read_row(row: dict[str, Any], who: str, into: Collector) -> None:
    item, text = row["id"], row.get("text")
    into.about_item(item, text=text, filename=row.get("filename"))
    found = row["entities"] if "entities" in row else row["label"]
    if isinstance(text, str) and ("entities" in row or _spans(found)):
        spans = [_span(span) for span in found or []]
        into.spans("entities" if "entities" in row else "label", item, who, text, [s for s in spans if s is not None])
    elif isinstance(found, list):
        if found and isinstance(found[0], (dict, list)):
            into.other("label", "boxes and polygons")
        elif found:
            into.choices("label", item, who, found)
        else:
            into.leave_out("without an answer")
    elif found is not None:
        into.choices("label", item, who, [found])


def _spans(found: Any) -> bool:
    return isinstance(found, list) and bool(found) and all(_span(span) is not None for span in found)


def _span(span: Any) -> tuple[int, int, str] | None:
    """``[start, end, label]``, or an object with these."""
    if isinstance(span, dict) and {"start_offset", "end_offset", "label"} <= set(span):
        span = [span["start_offset"], span["end_offset"], span["label"]]
    whole = isinstance(span, list) and len(span) == 3 and all(isinstance(place, int) for place in span[:2])
    return (span[0], span[1], str(span[2])) if whole else None
