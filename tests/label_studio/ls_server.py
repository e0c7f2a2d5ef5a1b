"""A Label Studio server of our own: started, filled with a project, and stopped."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdwise.label_studio.ls_client import LabelStudioClient

TOKEN = "0123456789abcdef0123456789abcdef01234567"
PEOPLE = {"ann": 0.95, "bob": 0.85, "cem": 0.65}
"""Annotators, and how often they are right."""
CLASSES = ("Positive", "Negative", "Neutral")
TASKS = 60
CONFIG = """<View><Text name="review" value="$text"/><Choices name="sentiment" toName="review" choice="single">
<Choice value="Positive"/><Choice value="Negative"/><Choice value="Neutral"/></Choices></View>"""
BOXES = """<View><Image name="photo" value="$image"/><RectangleLabels name="box" toName="photo"><Label value="Cat"/>
</RectangleLabels></View>"""


@contextmanager
def running(program: str, folder: Path, patience: float = 600.0) -> Iterator[str]:
    """Start a server with its data below a folder; its address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings = {
        "LABEL_STUDIO_USERNAME": "admin@example.com", "LABEL_STUDIO_PASSWORD": "a-password-for-tests",
        "LABEL_STUDIO_USER_TOKEN": TOKEN, "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "SSRF_PROTECTION_ENABLED": "false", "USE_DEFAULT_BANNED_SUBNETS": "false", "COLLECT_ANALYTICS": "false",
        "LATEST_VERSION_CHECK": "false",
    }  # fmt: skip
    command = [program, "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", str(folder)], env={**os.environ, **settings}, stdout=log, stderr=log
        )
        try:
            _wait(process, address, time.monotonic() + patience, folder / "server.log")
            yield address
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, end: float, log: Path) -> None:
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/api/version", timeout=10):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(1)
    raise RuntimeError(f"Label Studio did not start. Its log ends with:\n{log.read_text(errors='replace')[-2000:]}")


def answer(label: str) -> list[dict[str, Any]]:
    """The result of an annotation."""
    return [{"from_name": "sentiment", "to_name": "review", "type": "choices", "value": {"choices": [label]}}]


def crowd() -> list[tuple[str, dict[str, str]]]:
    """What is true of each task, and what each annotator says."""
    draw = random.Random(0)
    made = []
    for _ in range(TASKS):
        true = draw.choice(CLASSES)
        said = {}
        for who, right in PEOPLE.items():
            said[who] = true if draw.random() < right else draw.choice([c for c in CLASSES if c != true])
        made.append((true, said))
    return made


def fill(client: LabelStudioClient) -> dict[str, Any]:
    """A project with 60 tasks that three annotators answered, save the last ten, which nobody saw."""
    known = {user["email"]: user["id"] for user in client.get("/api/users/")}
    people = {}
    for who in PEOPLE:
        email = f"{who}@example.com"
        if email not in known:
            body = {"email": email, "username": who, "password": "a-password-for-tests"}
            known[email] = client.send("POST", "/api/users/", body)["id"]
        people[who] = known[email]
    project = client.send("POST", "/api/projects/", {
        "title": "Reviews", "label_config": CONFIG, "maximum_annotations": 4,
    })["id"]  # fmt: skip
    tasks = []
    for number, (_, said) in enumerate(crowd()):
        made = [{"result": answer(label), "completed_by": people[who]} for who, label in said.items()]
        tasks.append({"data": {"text": f"Review {number}"}, "annotations": made if number < TASKS - 10 else []})
    client.send("POST", f"/api/projects/{project}/import", tasks)
    return {"project": project, "people": people}
