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

from __future__ import annotations

from crowdwise.importers.collect import Collector, seconds
from crowdwise.importers.export_files import ExportFiles, Peek

NEEDED = {"_unit_id", "_worker_id", "_created_at", "_trust"}
GOLD = "_gold"


def recognises(peek: Peek) -> bool:
    """The columns that a full report has."""
    return set(peek.columns) >= NEEDED


def read(files: ExportFiles, into: Collector) -> None:
    """Read one judgement per row."""
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
