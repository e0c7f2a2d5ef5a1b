"""What must have come of the scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ls_server as rs

import crowdwise as cw


def check(seen: dict[str, Any], folder: Path) -> None:
    """Everything that was promised of a round trip."""
    first = seen["first pull"]
    assert (first.tasks, first.new, first.changed, first.removed) == (60, 150, 0, 0)
    assert (first.known_tasks, first.known_annotations) == (60, 150)

    pushed = seen["pushed"]
    assert (pushed.version, pushed.predictions, pushed.removed) == ("crowdwise-auto-1", 50, ())
    with_answers = [task for task in seen["tasks"] if task["annotations"]]
    assert len(with_answers) == 50
    for task in seen["tasks"]:
        assert len(task["predictions"]) == bool(task["annotations"])
    right = 0
    for task, (true, _) in zip(with_answers, rs.crowd(), strict=False):
        (prediction,) = task["predictions"]
        assert prediction["model_version"] == "crowdwise-auto-1"
        assert 1 / 3 < prediction["score"] <= 1
        (result,) = prediction["result"]
        assert (result["from_name"], result["to_name"], result["type"]) == ("sentiment", "review", "choices")
        right += result["value"]["choices"] == [true]
    assert right >= 44  # ann alone is right 95 times of 100

    assert not seen["nothing new"].any and seen["nothing new"].tasks == 0
    new = seen["only what is new"]
    assert (new.new, new.changed, new.removed) == (2, 1, 1)
    assert new.tasks == 4  # annotated, edited, an annotation removed, and the task that was added
    assert (new.known_tasks, new.known_annotations) == (61, 151)

    assert (seen["pushed again"].version, seen["pushed again"].removed) == (
        "crowdwise-majority-2",
        ("crowdwise-auto-1",),
    )
    assert seen["versions"] == {"crowdwise-majority-2": 51}
    uncertain = [task.uncertainty for task in seen["next"]]
    assert len(uncertain) == 5 and uncertain == sorted(uncertain, reverse=True)
    assert seen["tab"] == seen["same tab"]
    assert seen["given"] in [task.task for task in seen["next"]]

    whole = seen["task removed"]
    assert (whole.known_tasks, whole.removed) == (60, 3) and whole.tasks == 60
    assert "RectangleLabels" in seen["without choices"]

    state = json.loads((folder / "pulled.json").read_text())
    assert state["project"] == seen["project"] and state["tasks"] == 60
    export = cw.read_export(folder)
    assert export.tool == "label-studio"
    votes = export.table()
    assert votes.n_votes == whole.known_annotations == 148
    assert sorted(votes.annotators.tolist()) == [f"{who}@example.com" for who in rs.PEOPLE]
    assert len(cw.aggregate(folder, "majority").labels) == 50
