"""Chatbot Arena and MT-bench: battles of two models, as JSON or JSON lines.

=============  ==============================================================================================
items          ``model_a`` (left) and ``model_b`` (right)
compared on    ``question_id`` (and ``turn``), else ``id``
annotator      ``judge``, else ``evaluation_session_id`` (which is no lasting user)
outcome        ``winner``: model_a, model_b, tie, tie (bothbad), both_bad
time           ``tstamp``, ``timestamp``
left out       battles that were not anonymous
=============  ==============================================================================================
"""

from __future__ import annotations

from typing import Any

from crowdwise.data.source import EVERYONE
from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

SIDES = {"model_a": "left", "model_b": "right"}


def recognises(peek: Peek) -> bool:
    """Two models, a winner, and their conversations."""
    return {"model_a", "model_b", "winner", "conversation_a", "conversation_b"} <= set(peek.first)


def read(files: ExportFiles, into: Collector) -> None:
    """Read one battle after the other."""
    for row in files.objects(files.names[0]):
        winner = str(row.get("winner"))
        if row.get("anony") is False:
            into.leave_out("not anonymous")
            continue
        side = SIDES.get(winner, "tie" if winner.startswith("tie") or winner == "both_bad" else "")
        if not side:
            into.leave_out("without a winner")
            continue
        into.pair(
            "winner", _on(row), row.get("judge") or row.get("evaluation_session_id") or EVERYONE, row.get("model_a"),
            row.get("model_b"), side, row.get("tstamp", row.get("timestamp")),
        )  # fmt: skip


def _on(row: dict[str, Any]) -> Any:
    question, turn = row.get("question_id", row.get("id")), row.get("turn")
    return f"{question}, turn {turn}" if isinstance(turn, int) and turn > 1 else question
