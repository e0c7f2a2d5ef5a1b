"""Watch a project: a round whenever Label Studio says that annotations changed, and from time to time in any case.
What changed is pulled, so calls that are lost, doubled or forged do no harm.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from crowdwise.errors import CrowdwiseError, InternalError, OutputError, ParameterError, ServiceError
from crowdwise.label_studio.ls_project import Project, Pulled

ACTIONS = [
    "ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED", "TASKS_CREATED",
    "TASKS_DELETED",
]  # fmt: skip
SECRET = "X-Crowdwise-Secret"
LONGEST = 2**24


class Listener:
    """A small HTTP server that notes when Label Studio calls. Calls without the secret are refused."""

    def __init__(self, host: str, port: int) -> None:
        self.secret = secrets.token_urlsafe(24)
        self.called = threading.Event()
        self.calls = 0
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler())
        except (OSError, OverflowError) as error:
            raise OutputError(f"Cannot listen on {host}:{port}: {error}.") from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length", "0")
                if not hmac.compare_digest(self.headers.get(SECRET, "").encode(), listener.secret.encode()):
                    self._answer(403)
                elif not length.isdecimal() or int(length) > LONGEST:
                    self._answer(413)
                else:
                    self.rfile.read(int(length))
                    listener.calls += 1
                    listener.called.set()
                    self._answer(200)

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Nothing: standard error is for people."""

        return Handler


@contextmanager
def webhook(project: Project, address: str, secret: str) -> Iterator[int]:
    """A webhook of the project, while it is needed; an earlier one with the same address is replaced."""
    client = project.client
    known = client.get("/api/webhooks/", project=project.number)
    for hook in known if isinstance(known, list) else []:
        if isinstance(hook, dict) and hook.get("url") == address:
            client.send("DELETE", f"/api/webhooks/{hook['id']}/")
    ours = client.send("POST", "/api/webhooks/", {
        "url": address, "project": project.number, "send_payload": False, "send_for_all_actions": False,
        "is_active": True, "headers": {SECRET: secret}, "actions": ACTIONS,
    })  # fmt: skip
    try:
        yield int(ours["id"])
    finally:
        with suppress(ServiceError):
            client.send("DELETE", f"/api/webhooks/{ours['id']}/")


def watch(
    step: Callable[[], None], complain: Callable[[str], None], *, every: float, quiet: float = 2.0,
    called: threading.Event | None = None, rounds: int | None = None,
) -> None:  # fmt: skip
    """Take a step at once, then after each webhook call (``called``) once there was none for ``quiet`` seconds, and
    ``every`` so many seconds without one; ``rounds`` times, or for ever. Errors go to ``complain``, and end nothing."""
    called = called or threading.Event()
    for done in count(1):
        called.clear()
        try:
            step()
        except (InternalError, ParameterError):
            raise
        except CrowdwiseError as error:
            complain(f"{error} The next attempt follows.")
        if rounds is not None and done >= rounds:
            return
        if called.wait(every):
            while called.is_set():  # until there was no call for a while
                called.clear()
                called.wait(quiet)


def when_changed(pull: Callable[[], Pulled], work: Callable[[], None]) -> Callable[[], None]:
    """A step that pulls, and works where annotations changed since the work was last done to its end."""
    pending = True

    def step() -> None:
        nonlocal pending
        pulled = pull()
        pending = pending or pulled.any
        if pending and pulled.known_annotations:
            work()
            pending = False

    return step


def listening_at(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:8090`` or ``:8090``."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ParameterError(f"listen={text!r}: expected a host and a port, such as 127.0.0.1:8090.")
    return host.strip("[]") or "127.0.0.1", int(port)
