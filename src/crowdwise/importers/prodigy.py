"""Prodigy: JSON lines of ``choice``, binary, ``ner`` and comparing interfaces.

=============  ==============================================================================================
item           ``meta.id`` where there is one, else ``_input_hash`` (``_task_hash`` of binary answers)
annotator      ``_annotator_id``, else ``_session_id``, without the name of the data set in front of it
question       ``choice``, ``label`` (accepted or rejected), ``spans``, ``compare``
time           ``_timestamp``
left out       ignored tasks; rejected ones, where the answer is not accept or reject itself
=============  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crowdwise.data.source import EVERYONE
from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek


def recognises(peek: Peek) -> bool:
    """An answer (accept, reject, ignore) and the hashes of Prodigy."""
    return {"_input_hash", "_task_hash", "answer"} <= set(peek.first)


def read(files: ExportFiles, into: Collector) -> None:
    """Read one answer per line."""
    names = _names(_session(row) for row in files.objects(files.names[0]))
    for row in files.objects(files.names[0]):
        _read_row(row, names[_session(row)], into)


def _read_row(row: dict[str, Any], who: str, into: Collector) -> None:
    answer = row.get("answer")
    meta = row.get("meta")
    own = meta.get("id") if isinstance(meta, dict) else None
    item = own if isinstance(own, (str, int)) else row.get("_input_hash")
    when = {"time": row.get("_timestamp")}
    into.about_item(item, text=row.get("text"), image=row.get("image"), html=row.get("html"))
    if answer == "ignore":
        into.leave_out("ignored")
    elif isinstance(row.get("options"), list) and "accept" in row:
        _read_choice(row, answer, item, who, when, into)
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
        into.other("spans", "boxes and polygons")
    else:
        into.leave_out("of another interface")


def _read_choice(row: dict[str, Any], answer: Any, item: Any, who: Any, when: dict[str, Any], into: Collector) -> None:
    """One or several options; of the ``compare`` interfaces, which of two texts."""
    if answer == "reject":
        into.leave_out("rejected")
        return
    chosen = row.get("accept")
    into.choices("choice", item, who, chosen if isinstance(chosen, list) else [chosen], **when)


def _read_spans(row: dict[str, Any], item: Any, who: Any, when: dict[str, Any], into: Collector) -> None:
    spans = [s for s in row.get("spans") or [] if isinstance(s, dict) and {"start", "end", "label"} <= set(s)]
    tokens = [t for t in row.get("tokens") or [] if isinstance(t, dict) and {"start", "end"} <= set(t)]
    places = [(t["start"], t["end"]) for t in tokens] or None
    found = [(s["start"], s["end"], s["label"]) for s in spans]
    into.spans("spans", item, who, row["text"], found, **when, tokens=places)


def _session(row: dict[str, Any]) -> str:
    found = row.get("_annotator_id") or row.get("_session_id")
    return EVERYONE if found is None else str(found)


def _names(sessions: Iterable[str]) -> dict[str, str]:
    """Sessions without the data set in front, which all of them share: ``reviews-ann`` is ``ann``."""
    known = sorted(set(sessions) - {EVERYONE})
    first, last = (known[0], known[-1]) if known else ("", "")
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    prefix = first[: first.rfind("-", 0, same) + 1]
    return {name: name.removeprefix(prefix) or name for name in known} | {EVERYONE: EVERYONE}
