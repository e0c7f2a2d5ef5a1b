"""Log lines: one JSON object each for machines, text for people at a terminal."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}

FORMATS = ("auto", "json", "text")


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    """What a record says beside its message."""
    return {name: value for name, value in vars(record).items() if name not in PLAIN}


class JsonLines(logging.Formatter):
    """One JSON object a line, whatever the message holds."""

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage(),
        }  # fmt: skip
        facts |= _facts(record)
        if record.exc_info:
            facts["error"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=str)


class TextLines(logging.Formatter):
    """The local time, the message and what else is known, in one line; where there was an error, its trace below."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        facts = " ".join(f"{name}={_plain(value)}" for name, value in _facts(record).items())
        line = f"{clock} {level}{_escaped(record.getMessage())} {facts}"
        return "\n".join(filter(None, (line.rstrip(), record.exc_info and self.formatException(record.exc_info))))


def _escaped(text: str) -> str:
    """Text without line ends or codes of terminals."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _plain(value: Any) -> str:
    """A value in a line of text; with quotes where it has blanks or letters that cannot be printed."""
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)


def configure_logs(kind: str) -> None:
    """Send log lines to standard error, once; ``auto``: text where that is a terminal, else JSON."""
    handler = logging.StreamHandler(sys.stderr)
    text = kind == "text" or (kind == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextLines() if text else JsonLines())
    for name in ("crowdwise.server", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
