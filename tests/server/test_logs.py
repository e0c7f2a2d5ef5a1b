"""Log lines: JSON for machines, text for people."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from crowdwise.server.structured_logs import JsonLines, TextLines, configure_logs


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
