"""A server in the process of a test, and what tests do with it."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import uvicorn
from fastapi.testclient import TestClient

from crowdwise.server.access_tokens import make_token
from crowdwise.server.app import create_app
from crowdwise.server.configuration import Configuration
from crowdwise.server.running import uvicorn_options
from crowdwise.server.service import Service

CLASSES = ["wren", "robin"]


@dataclass
class Site:
    """A running server and its admin."""

    client: TestClient
    service: Service
    secret: str

    @property
    def admin(self) -> dict[str, str]:
        return bearer(self.secret)

    def call(self, method: str, path: str, code: int = 200, headers: Any = None, **more: Any) -> Any:
        """A request of the admin (or with other headers), which must be answered with this status."""
        answer = self.client.request(method, f"/api/v1{path}", headers=headers or self.admin, **more)
        assert answer.status_code == code, (method, path, answer.status_code, answer.text)
        return answer.json()

    def campaign(self, n_items: int = 6, annotators: Any = ("ann", "bob"), **settings: Any) -> str:
        """A new campaign with items p0, p1, ... and annotators; its id."""
        given = {"name": "birds", "classes": CLASSES, **settings}
        made: str = self.call("POST", "/campaigns", 201, json=given)["id"]
        items = [{"item": f"p{i}", "payload": {"text": f"bird {i}"}} for i in range(n_items)]
        self.call("POST", f"/campaigns/{made}/items", 201, json=items)
        if annotators:
            self.call("POST", f"/campaigns/{made}/annotators", 201, json=[{"annotator": name} for name in annotators])
        return made

    def token(self, role: str, campaign: str | None, **more: Any) -> dict[str, str]:
        """The headers of a new token."""
        given = {"role": role, "name": role, "campaign": campaign, **more}
        return bearer(self.call("POST", "/tokens", 201, json=given)["secret"])

    def votes(self, campaign: str, *votes: tuple[Any, Any, Any], code: int = 201) -> Any:
        rows = [{"item": n, "annotator": m, "label": k} for n, m, k in votes]
        return self.call("POST", f"/campaigns/{campaign}/votes", code, json={"votes": rows})

    def browser(self, campaign: str, annotator: str = "ann") -> tuple[TestClient, dict[str, str]]:
        """A browser that followed an invitation, and the headers of its page."""
        link = self.call("POST", f"/campaigns/{campaign}/invitations", 201, json={"annotator": annotator})["link"]
        browser = TestClient(self.client.app)
        page = browser.get("/join/" + link.rsplit("/", 1)[1])
        assert page.status_code == 200, page.text
        found = re.search('name="csrf" content="([^"]+)"', page.text)
        assert found is not None
        return browser, {"x-csrf-token": found[1]}


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@contextmanager
def running(configuration: Configuration) -> Iterator[Site]:
    """A server in this process."""
    app = create_app(configuration)
    with TestClient(app) as client:
        secret = app.state.service.first_token()
        if secret is None:  # a store that was there
            secret = app.state.service.write(lambda conn: make_token(conn, "admin", "test")[0])
        yield Site(client, app.state.service, secret)


@contextmanager
def listening(configuration: Configuration) -> Iterator[tuple[str, str, Service]]:
    """A server in a thread on a port of its own: its address, the secret of an admin, and its service."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    configuration = replace(configuration, port=port)
    app = create_app(configuration)
    server = uvicorn.Server(uvicorn.Config(app, **uvicorn_options(configuration) | {"timeout_graceful_shutdown": 1}))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}", app.state.service.first_token(), app.state.service
    finally:
        server.should_exit = True
        thread.join(20)
