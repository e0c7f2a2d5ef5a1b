"""Qualtrics (also behind Prolific): the CSV of a survey; with the demographics of Prolific in the same folder.

=============  ==============================================================================================
item           the number of a loop (``1_Q1``), else the column of the question
annotator      ``PROLIFIC_PID`` where it is filled, else ``ResponseId``
question       ``Q1`` of a loop; ``answers`` for all questions that are not in a loop
time           ``RecordedDate``
left out       unfinished responses, previews, participants whom Prolific lists as rejected, returned or timed out
=============  ==============================================================================================

The second and third row of the file are headers too: the words of the questions, and ids.
"""

from __future__ import annotations

import re
from typing import Any

from crowdwise.data.columns import nearly_distinct
from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

NEEDED = {"StartDate", "EndDate", "ResponseId", "Finished", "RecordedDate"}
USUAL = NEEDED | {
    "Status", "IPAddress", "Progress", "Duration (in seconds)", "RecipientLastName", "RecipientFirstName",
    "RecipientEmail", "ExternalReference", "LocationLatitude", "LocationLongitude", "DistributionChannel",
    "UserLanguage", "PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "Q_RecaptchaScore",
}  # fmt: skip
LOOP = re.compile(r"^(\d+)_(.+)$")
PID = "PROLIFIC_PID"
PARTICIPANT = "Participant id"
GONE = ("RETURNED", "REJECTED", "TIMED-OUT", "TIMED OUT")
"""What Prolific calls submissions that do not count."""


def recognises(peek: Peek) -> bool:
    """The columns that every survey has; in a folder, of one of its files."""
    if peek.files.single:
        return set(peek.columns) >= NEEDED and "ImportId" in peek.head
    return any(_header(peek.files, name) >= NEEDED for name in peek.ending(".csv")[:20])


def _header(files: ExportFiles, name: str) -> set[str]:
    line = files.text(name, 4096).partition("\n")[0]
    return {cell.strip().strip('"') for cell in line.split(",")}


def read(files: ExportFiles, into: Collector) -> None:
    """Read surveys, and what Prolific knows of their participants."""
    tables = [files.table(name) for name in files.names if files.single or name.lower().endswith(".csv")]
    gone: set[Any] = set()
    for table in tables:
        if PARTICIPANT in table.columns and not NEEDED <= set(table.columns):
            for row in table.iter_rows(named=True):
                known = {key: value for key, value in row.items() if key != PARTICIPANT}
                into.about_annotator(row[PARTICIPANT], **known)
                if str(row.get("Status")).upper() in GONE:
                    gone.add(row[PARTICIPANT])
    for table in tables:
        if NEEDED <= set(table.columns):
            _read_survey(table, gone, into)


def _read_survey(table: Any, gone: set[Any], into: Collector) -> None:
    first: list[dict[str, Any]] = list(table.head(2).iter_rows(named=True))
    words, ids = [*first, {}, {}][:2]
    headers = "ImportId" in str(ids.get("StartDate"))
    rows = table.slice(2 if headers else 0)
    questions = [c for c in table.columns if c not in USUAL and not c.endswith(("_TEXT", "_DO", "_Page Submit"))]
    for column in questions:
        loop = LOOP.match(column)
        item, question = (loop.group(1), loop.group(2)) if loop else (column, "answers")
        if nearly_distinct(rows[column]):
            into.other(column, "free texts")
            continue
        into.about_item(item, text=words.get(column) if headers else None)
        for row in rows.iter_rows(named=True):
            if _kept(row) and row.get(PID) not in gone and row[column] is not None:
                into.choices(question, item, row.get(PID) or row["ResponseId"], [row[column]], row["RecordedDate"])
    every = list(rows.iter_rows(named=True))
    into.leave_out("unfinished responses and previews", sum(not _kept(row) for row in every))
    into.leave_out("responses of participants who were rejected", sum(row.get(PID) in gone for row in every))


def _kept(row: dict[str, Any]) -> bool:
    preview = "preview" in str(row.get("Status")).lower() or str(row.get("Status")) == "1"
    return str(row["Finished"]).lower() in ("true", "1") and not preview
