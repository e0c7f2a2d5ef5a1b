"""Requests to a Label Studio server.

Those that got no answer, or were answered by "not now" (429, 502, 503, 504), are repeated after 1, 2, 4... seconds.
A request that changes something is repeated only where it cannot have been carried out (429, 503, no connection).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from crowdwise.client import Connection, checked_token
from crowdwise.errors import ServiceError

if TYPE_CHECKING:
    import httpx

TOKEN = "LABEL_STUDIO_API_KEY"  # the environment variable with the token
PAGE = 100


class LabelStudioClient:
    """A Label Studio server at an address, which may have a path, with an access token: a personal one or one of the
    old kind, by default that of ``LABEL_STUDIO_API_KEY``. A request without an answer within ``timeout`` seconds is
    repeated ``patience`` times (:class:`~crowdwise.client.Connection`)."""

    def __init__(
        self, url: str, token: str | None = None, *, patience: int = 4, timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._connection = Connection(url, patience, timeout, pause=1.0, most=60.0, transport=transport, sleep=sleep)
        self.url = self._connection.url
        secret = os.environ.get(TOKEN, "") if token is None else token
        self._token = checked_token(secret, TOKEN, "an access token of Label Studio (Account & Settings there)")
        self._access: str | None = None
        self.clock: float | None = None
        """The time of the server at its first answer (since this was set to ``None``), in seconds, where it said it."""

    def get(self, path: str, **query: Any) -> Any:
        """What is there, as JSON."""
        return self._json("GET", path, query=query)

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Change something; what the server says of it, as JSON."""
        return self._json(method, path, body, query)

    def tasks(self, project: int, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """The tasks of a project with their annotations and predictions, page by page."""
        asked = {"project": project, "fields": "all", "page_size": PAGE, "resolve_uri": "false"}
        if query is not None:
            asked["query"] = json.dumps(query)
        page, seen = 1, 0
        while True:
            answer = self.get("/api/tasks", **asked, page=page)
            tasks = answer.get("tasks") if isinstance(answer, dict) else None
            if not isinstance(tasks, list):
                raise ServiceError(f"{self.url} did not answer with tasks: is it Label Studio 1.4 or newer?")
            yield from (task for task in tasks if isinstance(task, dict))
            page, seen = page + 1, seen + len(tasks)
            if not tasks or seen >= int(answer.get("total", 0)):
                return

    def _json(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        reply = self._sent(method, path, self._authorised(), body, query)
        if reply.status_code == 401 and self._access is not None:  # a personal token gives access for some minutes
            self._access = None
            reply = self._sent(method, path, self._authorised(), body, query)
        if not 200 <= reply.status_code < 300:
            raise ServiceError(f"{self.url}{path}: {_refusal(reply)}")
        if not reply.content.strip():
            return None
        try:
            return json.loads(reply.content)
        except (ValueError, RecursionError) as error:
            raise ServiceError(
                f"{self.url}{path} did not answer with JSON: is this the address of a Label Studio server?"
            ) from error

    def _sent(
        self, method: str, path: str, headers: Mapping[str, str], body: Any, query: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json", **headers}
        try:
            reply = self._connection.send(method, path, headers, content, repeatable=method == "GET", query=query)
        except ConnectionError as error:
            raise ServiceError(f"{self.url} does not answer: {error}.") from error
        self.clock = self.clock or _time_of(reply)
        return reply

    def _authorised(self) -> dict[str, str]:
        """The header of the token: as it is, or access that a personal token gives."""
        if self._token.count(".") != 2:
            return {"Authorization": f"Token {self._token}"}
        if self._access is None:
            reply = self._sent("POST", "/api/token/refresh/", {}, {"refresh": self._token})
            if reply.status_code != 200:
                raise ServiceError(f"{self.url}: {_refusal(reply)}")
            try:
                self._access = str(json.loads(reply.content)["access"])
            except (ValueError, KeyError, TypeError) as error:
                raise ServiceError(f"{self.url} gave no access for the token in {TOKEN}.") from error
        return {"Authorization": f"Bearer {self._access}"}


def _time_of(reply: httpx.Response) -> float | None:
    try:
        return parsedate_to_datetime(reply.headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _refusal(reply: httpx.Response) -> str:
    """Why a server refused, in words."""
    answer = None
    with suppress(ValueError, RecursionError):
        answer = json.loads(reply.content)
    detail = answer.get("validation_errors") or answer.get("detail") if isinstance(answer, dict) else answer
    detail = f" It says: {str(detail)[:300]}" if detail else ""
    status = reply.status_code
    if 300 <= status < 400:
        to = reply.headers.get("Location", "elsewhere")
        return f"the server redirects to {to[:200]} ({status}). Give the address that it redirects to."
    if status >= 500:
        return f"an error of the server ({status})."
    refused = {
        401: f"the token in {TOKEN} was refused", 403: f"the user of the token in {TOKEN} may not do this",
        404: "not found",
    }  # fmt: skip
    return f"{refused.get(status, 'refused')} ({status}).{detail}"
