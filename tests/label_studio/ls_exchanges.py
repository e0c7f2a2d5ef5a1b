"""Requests and answers of a real server, recorded and replayed.

A replay answers only what was asked while recording, in the same order: whoever asks otherwise fails.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

FILE = Path(__file__).with_name("exchanges.jsonl.gz")
ADDRESS = "http://label-studio.example"


def asked_by(request: httpx.Request) -> list[Any]:
    """Method, address and JSON of a request."""
    return [request.method, str(request.url), json.loads(request.content) if request.content else None]


class Recorder(httpx.HTTPTransport):
    """A transport that writes down what is said. The address of the server is replaced, tokens are left out."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.said = address, []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked = asked_by(request)
        request.url = httpx.URL(str(request.url).replace(ADDRESS, self.address))
        reply = super().handle_request(request)
        reply.read()
        date = {"Date": reply.headers["Date"]} if "Date" in reply.headers else {}
        self.said.append(
            {"asked": asked, "status": reply.status_code, "headers": date, "answer": reply.content.decode()}
        )
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


class Replay(httpx.BaseTransport):
    """A transport that answers as the server did."""

    def __init__(self) -> None:
        lines = gzip.decompress(FILE.read_bytes()).decode().splitlines()
        self.about, *self.said = map(json.loads, lines)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"].startswith("Token ")
        expected = self.said.pop(0)
        assert without_numbers(asked_by(request)) == without_numbers(expected["asked"])
        return httpx.Response(expected["status"], content=expected["answer"].encode(), headers=expected["headers"])
