"""Requests and answers of a real server, recorded and replayed.

A replay answers only what was asked while recording, in the same order: whoever asks otherwise fails.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crowdwise.label_studio.ls_client import Reply, over_http

FILE = Path(__file__).with_name("exchanges.jsonl.gz")
ADDRESS = "http://label-studio.example"


class Recorder:
    """A transport that writes down what is said. The address of the server is replaced, tokens are left out."""

    def __init__(self, address: str) -> None:
        self.address, self.said = address, []

    def __call__(
        self, method: str, address: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Reply:
        reply = over_http(method, address.replace(ADDRESS, self.address), headers, body, timeout)
        date = {name: value for name, value in reply.headers.items() if name == "Date"}
        self.said.append({
            "asked": [method, address, None if body is None else json.loads(body)], "status": reply.status,
            "headers": date, "answer": reply.body.decode(),
        })  # fmt: skip
        return reply

    def save(self, about: Mapping[str, Any]) -> None:
        lines = "\n".join(map(json.dumps, [about, *self.said])) + "\n"
        FILE.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def without_numbers(asked: list[Any]) -> list[Any]:
    """A request without the labels and scores of predictions, which are up to the method."""
    method, address, body = asked
    if not address.endswith("/import/predictions"):
        return asked
    rows = [{**row, "score": type(row["score"]), "result": [sorted(r) for r in row["result"]]} for row in body]
    return [method, address, rows]


class Replay:
    """A transport that answers as the server did."""

    def __init__(self) -> None:
        lines = gzip.decompress(FILE.read_bytes()).decode().splitlines()
        self.about, *self.said = map(json.loads, lines)

    def __call__(
        self, method: str, address: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Reply:
        assert headers["Authorization"].startswith("Token ")
        expected = self.said.pop(0)
        asked = [method, address, None if body is None else json.loads(body)]
        assert without_numbers(asked) == without_numbers(expected["asked"])
        return Reply(expected["status"], expected["answer"].encode(), expected["headers"])
