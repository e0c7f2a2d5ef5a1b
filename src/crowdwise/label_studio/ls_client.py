"""Requests to a Label Studio server, with the standard library alone.

Requests that got no answer, or were answered by "not now" (429, 502, 503, 504), are repeated after 1, 2, 4... seconds.
A request that changes something is repeated only where it cannot have been carried out.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from crowdwise.errors import ParameterError, ServiceError

TOKEN = "LABEL_STUDIO_API_KEY"
"""The environment variable with the token."""
NOT_NOW = (429, 502, 503, 504)
PAGE = 100


@dataclass(frozen=True)
class Reply:
    """The answer of a server."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Unreached(Exception):
    """No answer came. ``sent``: whether the request may have been carried out all the same."""

    def __init__(self, why: str, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


Transport = Callable[[str, str, Mapping[str, str], bytes | None, float], Reply]
"""Method, address, headers, body and seconds to wait -> the answer; or :class:`Unreached`."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Redirects are answers: a token is not sent to wherever they point."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(_Stay)


def over_http(method: str, address: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> Reply:
    """Send a request with :mod:`urllib`."""
    request = urllib.request.Request(address, body, dict(headers), method=method)
    try:
        with OPENER.open(request, timeout=timeout) as found:
            return Reply(found.status, found.read(), dict(found.headers))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.read(), dict(error.headers))
    except urllib.error.URLError as error:
        refused = isinstance(error.reason, (ConnectionRefusedError, OSError)) and not isinstance(
            error.reason, (TimeoutError, ConnectionResetError)
        )
        raise Unreached(str(getattr(error.reason, "strerror", None) or error.reason), not refused) from error
    except (OSError, http.client.HTTPException) as error:
        raise Unreached(str(error) or type(error).__name__, True) from error


class LabelStudioClient:
    """A Label Studio server.

    Parameters
    ----------
    url
        Its address, with the path below which it lives, where there is one.
    token
        An access token: a personal one or one of the old kind. By default that of ``LABEL_STUDIO_API_KEY``.
    patience
        How many times a request without an answer is repeated.
    timeout
        Seconds to wait for an answer.
    transport, sleep
        Who sends requests, and who waits: others in tests.
    """

    def __init__(
        self, url: str, token: str | None = None, *, patience: int = 4, timeout: float = 60.0,
        transport: Transport = over_http, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.url = checked_url(url)
        self._token = checked_token(os.environ.get(TOKEN, "") if token is None else token)
        self._access: str | None = None
        self.patience, self.timeout, self.transport, self.sleep = patience, timeout, transport, sleep
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
            found = self.get("/api/tasks", **asked, page=page)
            tasks = found.get("tasks") if isinstance(found, dict) else None
            if not isinstance(tasks, list):
                raise ServiceError(f"{self.url} did not answer with tasks: is it Label Studio 1.4 or newer?")
            yield from (task for task in tasks if isinstance(task, dict))
            page, seen = page + 1, seen + len(tasks)
            if not tasks or seen >= int(found.get("total", 0)):
                return

    def _json(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        reply = self._reply(method, path, body, query)
        if reply.status == 401 and self._access is not None:  # a personal token gives access for some minutes
            self._access = None
            reply = self._reply(method, path, body, query)
        if not 200 <= reply.status < 300:
            raise ServiceError(f"{self.url}{path}: {_refusal(reply)}")
        if not reply.body.strip():
            return None
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError) as error:
            raise ServiceError(
                f"{self.url}{path} did not answer with JSON: is this the address of a Label Studio server?"
            ) from error

    def _reply(self, method: str, path: str, body: Any, query: Mapping[str, Any] | None) -> Reply:
        address = self.url + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        return self._sent(method, address, self._authorised(), body)

    def _sent(self, method: str, address: str, headers: Mapping[str, str], body: Any) -> Reply:
        """The answer to a request, which is repeated while there is none."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json", **headers}
        for attempt in range(self.patience + 1):
            try:
                reply = self.transport(method, address, headers, content, self.timeout)
            except Unreached as error:
                if attempt == self.patience or (error.sent and method != "GET"):
                    tried = f" ({attempt + 1} attempts)" if attempt else ""
                    raise ServiceError(f"{self.url} does not answer: {error}{tried}.") from error
            else:
                self.clock = self.clock or _time_of(reply)
                if reply.status not in NOT_NOW or attempt == self.patience:
                    return reply
            self.sleep(min(2.0**attempt, 60.0))
        raise AssertionError("unreachable")

    def _authorised(self) -> dict[str, str]:
        """The header of the token: as it is, or access that a personal token gives."""
        if self._token.count(".") != 2:
            return {"Authorization": f"Token {self._token}"}
        if self._access is None:
            reply = self._sent("POST", f"{self.url}/api/token/refresh/", {}, {"refresh": self._token})
            if reply.status != 200:
                raise ServiceError(f"{self.url}: {_refusal(reply)}")
            try:
                self._access = str(json.loads(reply.body)["access"])
            except (ValueError, KeyError, TypeError) as error:
                raise ServiceError(f"{self.url} gave no access for the token in {TOKEN}.") from error
        return {"Authorization": f"Bearer {self._access}"}


def checked_url(url: str) -> str:
    """The address of a server, without a slash at its end."""
    parts = urllib.parse.urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ParameterError(f"url={url!r}: expected the address of a server, such as http://localhost:8080.")
    return url.strip().rstrip("/")


def checked_token(token: str) -> str:
    """A token that can be a header."""
    token = token.strip()
    if not token:
        raise ParameterError(f"No token: set {TOKEN} to an access token of Label Studio (Account & Settings there).")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ParameterError(f"{TOKEN} holds something else than a token: letters, digits, dots and dashes.")
    return token


def _time_of(reply: Reply) -> float | None:
    found = next((value for name, value in reply.headers.items() if name.lower() == "date"), None)
    try:
        return None if found is None else parsedate_to_datetime(found).timestamp()
    except ValueError:
        return None


def _refusal(reply: Reply) -> str:
    """Why a server refused, in words."""
    try:
        said = json.loads(reply.body)
    except (ValueError, RecursionError):
        said = None
    detail = said.get("validation_errors") or said.get("detail") if isinstance(said, dict) else said
    detail = f" It says: {str(detail)[:300]}" if detail else ""
    match reply.status:
        case 401:
            return f"the token in {TOKEN} was refused (401).{detail}"
        case 403:
            return f"the user of the token in {TOKEN} may not do this (403).{detail}"
        case 404:
            return f"not found (404).{detail}"
        case status if 300 <= status < 400:
            to = next((value for name, value in reply.headers.items() if name.lower() == "location"), "elsewhere")
            return f"the server redirects to {to[:200]} ({status}). Give the address that it redirects to."
        case status if status >= 500:
            return f"an error of the server ({status})."
        case status:
            return f"refused ({status}).{detail}"
