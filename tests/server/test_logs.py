"""Log lines: JSON for machines, text for people."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest

from crowdwise.server.structured_logs import JsonLines, TextLines, configure_logs
from server_site import Site


def record(message: str, level: int = logging.INFO, error: BaseException | None = None, **facts: object):
    info = None if error is None else (type(error), error, None)
    made = logging.LogRecord("crowdwise.server", level, "file.py", 1, message, None, info)
    vars(made).update(facts)
    return made


def test_both_formats_say_what_a_record_knows() -> None:
    one = record("request", method="GET", route="/api/v1/campaigns/{id}", status=200, seconds=0.0123)
    found = json.loads(JsonLines().format(one))
    assert (found["message"], found["status"], found["level"]) == ("request", 200, "info")
    assert TextLines().format(one)[9:] == "request method=GET route=/api/v1/campaigns/{id} status=200 seconds=0.0123"


def test_text_stays_in_its_line_and_shows_errors() -> None:
    odd = record("bad \x1b[31m\nname", logging.WARNING, path="/a b\n", error=ValueError("no"))
    first, *rest = TextLines().format(odd).split("\n")
    assert first[9:] == 'warning: bad \\x1b[31m\\nname path="/a b\\n"'
    assert rest == ["ValueError: no"]


@pytest.mark.parametrize(
    ("kind", "terminal", "expected"),
    [("auto", True, TextLines), ("auto", False, JsonLines), ("json", True, JsonLines), ("text", False, TextLines)],
)
def test_text_is_for_terminals(kind: str, terminal: bool, expected: type, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("crowdwise.server", "uvicorn", "uvicorn.error", "uvicorn.access")
    for logger in map(logging.getLogger, names):
        for part in ("handlers", "propagate", "level"):
            monkeypatch.setattr(logger, part, getattr(logger, part))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    configure_logs(kind)
    assert [type(handler.formatter) for handler in logging.getLogger("crowdwise.server").handlers] == [expected]


def test_the_dashboard_asks_for_measures_that_there_are(site: Site) -> None:
    """Every measure and route of the Grafana dashboard is one that the server gives."""
    site.votes(site.campaign(1), ("p0", "ann", "wren"))
    site.call("GET", f"/campaigns/{site.campaign(1)}/next?annotator=ann")
    there = site.client.get("/metrics").text
    board = json.loads((Path(__file__).parents[2] / "deploy" / "grafana.json").read_text())
    asked = " ".join(one["expr"] for panel in board["panels"] for one in panel["targets"])
    assert {name for name in re.findall(r"crowdwise_\w+", asked) if name not in there} == set()
    assert {route for route in re.findall(r'route="([^"]+)"', asked) if f'route="{route}"' not in there} == set()
