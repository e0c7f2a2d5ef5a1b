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

from __future__ import annotations

from typing import Any

from crowdwise.importers.collect import Collector, seconds
from crowdwise.importers.export_files import ExportFiles, Peek

KEPT = ("APPROVED", "ACCEPTED", "SUBMITTED")


def recognises(peek: Peek) -> bool:
    """Columns in the manner of Toloka."""
    known = {name.partition(":")[0] for name in peek.columns if ":" in name}
    return {"OUTPUT", "ASSIGNMENT"} <= known and "ASSIGNMENT:worker_id" in peek.columns


def read(files: ExportFiles, into: Collector) -> None:
    """Read one task per row."""
    table = files.rows(files.names[0])
    questions = [name.partition(":")[2] for name in table.columns if name.startswith("OUTPUT:")]
    inputs = [name for name in table.columns if name.startswith("INPUT:")]
    for row in table:
        item = row.get("INPUT:id") or row.get("ASSIGNMENT:task_id") or " | ".join(str(row[n]) for n in inputs)
        who = row.get("ASSIGNMENT:worker_id")
        if who is None and not any(row.values()):
            continue  # an empty line between suites
        into.about_item(item, **{name.partition(":")[2]: row[name] for name in inputs if name != "INPUT:id"})
        _read_gold(row, questions, item, into)
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


def _read_gold(row: dict[str, Any], questions: list[str], item: Any, into: Collector) -> None:
    for name in questions:
        if row.get(f"GOLDEN:{name}") is not None:
            into.gold(name, item, [row[f"GOLDEN:{name}"]])
