"""What is done with a project, against a real server or against its recorded answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ls_server as rs

from crowdwise.errors import InputError
from crowdwise.label_studio.ls_client import LabelStudioClient
from crowdwise.label_studio.ls_project import Project
from crowdwise.label_studio.ls_round import OVERLAP, fit, next_tasks, pull, push


def run(client: LabelStudioClient, folder: Path, wait: Callable[[float], None]) -> dict[str, Any]:
    """Fill a project; pull, push, annotate, pull again, push again, ask what is next, remove things, pull."""
    made = rs.fill(client)
    number, people = made["project"], made["people"]
    project, seen = Project(client, number), {"project": number}
    control = project.control()

    seen["first pull"] = pull(client, number, folder)
    seen["pushed"] = push(project, fit(folder, control))
    tasks = list(client.tasks(number))
    seen["tasks"] = tasks

    wait(OVERLAP + 2)
    pull(client, number, folder)
    wait(OVERLAP + 2)
    seen["nothing new"] = pull(client, number, folder)
    unseen = [task["id"] for task in tasks if not task["annotations"]]
    for who in ("ann", "bob"):
        body = {"result": rs.answer("Positive"), "completed_by": people[who], "lead_time": 4.5}
        client.send("POST", f"/api/tasks/{unseen[0]}/annotations/", body)
    first = tasks[0]["annotations"][0]
    client.send("PATCH", f"/api/annotations/{first['id']}/", {"result": rs.answer("Neutral")})
    gone = tasks[1]["annotations"][0]["id"]
    client.send("DELETE", f"/api/annotations/{gone}/")
    client.send("POST", f"/api/projects/{number}/import", [{"data": {"text": "One more"}}])
    seen["only what is new"] = pull(client, number, folder)

    consensus = fit(folder, control, "majority")
    seen["pushed again"] = push(project, consensus)
    seen["versions"] = project.versions()
    seen["next"] = next_tasks(consensus, 5)
    seen["tab"] = project.show_next([task.task for task in seen["next"]])
    seen["same tab"] = project.show_next([task.task for task in seen["next"]])
    chosen = {"selectedItems": {"all": False, "included": [task.task for task in seen["next"]]}}
    seen["given"] = client.send("POST", "/api/dm/actions", chosen, id="next_task", project=number)["id"]

    client.send("DELETE", f"/api/tasks/{tasks[2]['id']}/")
    seen["task removed"] = pull(client, number, folder)

    other = client.send("POST", "/api/projects/", {"title": "Boxes", "label_config": rs.BOXES})["id"]
    try:
        Project(client, other).control()
    except InputError as error:
        seen["without choices"] = str(error)
    return seen
