"""Requests to a server that refuses, fails, redirects, is slow, or is not there."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from crowdwise.errors import ParameterError, ServiceError
from crowdwise.label_studio.ls_client import LabelStudioClient


class Server:
    """Answers that were prepared, one after the other; what was asked is kept."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any, dict[str, str]]] = []
        self.asked: list[tuple[str, str, str | None, bytes]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.asked.append((self.command, self.path, self.headers.get("Authorization"), body))
                status, said, headers = server.answers.pop(0)
                content = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_PATCH = _answer

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def client_of(server: Server, token: str = "abc123", **options: Any) -> tuple[LabelStudioClient, list[float]]:
    waited: list[float] = []
    return LabelStudioClient(server.url, token, sleep=waited.append, **options), waited


def growing(waited: list[float]) -> int:
    """How many pauses there were: of about 1, 2, 4... seconds, not the same for all."""
    assert all(0.5 * 2**n <= pause < 1.5 * 2**n for n, pause in enumerate(waited))
    return len(waited)


def test_an_answer_and_the_token(server: Server) -> None:
    server.answers = [(200, {"title": "x"}, {}), (204, b"", {})]
    client, _ = client_of(server)
    assert client.get("/api/projects/1/", a="b c") == {"title": "x"}
    assert client.send("DELETE", "/api/x/", {"y": 1}) is None
    assert server.asked[0][:3] == ("GET", "/api/projects/1/?a=b+c", "Token abc123")
    assert server.asked[1] == ("DELETE", "/api/x/", "Token abc123", b'{"y": 1}')
    assert client.clock is not None


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (401, {"detail": "Invalid token."}, r"LABEL_STUDIO_API_KEY was refused \(401\). It says: Invalid token."),
        (403, {}, r"may not do this \(403\)"),
        (404, {"detail": "No Project matches."}, r"not found \(404\). It says: No Project matches."),
        (400, {"detail": "x", "validation_errors": {"title": ["too short"]}}, "too short"),
        (500, b"<html>", r"an error of the server \(500\)"),
        (302, b"", r"redirects to https://example.org/login \(302\)"),
    ],
)
def test_a_refusal_says_why(server: Server, status: int, said: Any, words: str) -> None:
    server.answers = [(status, said, {"Location": "https://example.org/login"})]
    with pytest.raises(ServiceError, match=words):
        client_of(server)[0].get("/api/x/")
    assert len(server.asked) == 1


def test_not_now_is_tried_again(server: Server) -> None:
    server.answers = [(503, b"", {}), (429, b"", {}), (200, [1], {})]
    client, waited = client_of(server)
    assert client.get("/api/x/") == [1]
    assert growing(waited) == 2


@pytest.mark.parametrize("status", [502, 504])
def test_a_change_is_not_made_twice_where_a_proxy_gave_up_waiting(server: Server, status: int) -> None:
    server.answers = [(status, b"", {}), (200, [1], {})] * 2
    client, _ = client_of(server)
    with pytest.raises(ServiceError, match=rf"an error of the server \({status}\)"):
        client.send("POST", "/api/x/", {})
    assert len(server.asked) == 1 and server.answers.pop(0)[0] == 200
    assert client.get("/api/x/") == [1]
    server.answers = [(503, b"", {}), (429, b"", {}), (200, [1], {})]
    assert client.send("POST", "/api/x/", {}) == [1]


def test_not_now_for_ever_is_an_error(server: Server) -> None:
    server.answers = [(503, b"", {})] * 3
    client, waited = client_of(server, patience=2)
    with pytest.raises(ServiceError, match=r"an error of the server \(503\)"):
        client.get("/api/x/")
    assert growing(waited) == 2


def test_a_server_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    waited: list[float] = []
    client = LabelStudioClient(f"http://127.0.0.1:{port}", "abc123", sleep=waited.append, patience=3)
    with pytest.raises(ServiceError, match=r"does not answer: .*Connection refused \(4 attempts\)"):
        client.send("POST", "/api/x/", {})  # nothing was sent: it may be tried again
    assert growing(waited) == 3


def test_what_may_have_been_done_is_not_done_twice() -> None:
    asked: list[str] = []

    def lost(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        raise httpx.ReadTimeout("timed out")

    transport = httpx.MockTransport(lost)
    client = LabelStudioClient("http://localhost", "abc", transport=transport, sleep=lambda _: None, patience=2)
    with pytest.raises(ServiceError, match="does not answer: timed out"):
        client.send("POST", "/x", {})
    with pytest.raises(ServiceError, match="3 attempts"):
        client.get("/x")
    assert asked == ["POST", "GET", "GET", "GET"]


def test_something_else_than_label_studio(server: Server) -> None:
    server.answers = [(200, b"<html>Welcome</html>", {}), (200, {"hello": 1}, {})]
    client, _ = client_of(server)
    with pytest.raises(ServiceError, match="did not answer with JSON: is this the address of a Label Studio server"):
        client.get("/api/x/")
    with pytest.raises(ServiceError, match="did not answer with tasks"):
        list(client.tasks(1))


def test_pages(server: Server) -> None:
    pages = [[{"id": 1}, {"id": 2}], [{"id": 3}]]
    server.answers = [(200, {"tasks": page, "total": 3}, {}) for page in pages]
    client, _ = client_of(server)
    assert [task["id"] for task in client.tasks(7)] == [1, 2, 3]
    assert [path.rpartition("page=")[2] for _, path, _, _ in server.asked] == ["1", "2"]


def test_fewer_tasks_than_were_announced_end(server: Server) -> None:
    server.answers = [(200, {"tasks": [{"id": 1}], "total": 9}, {}), (200, {"tasks": [], "total": 9}, {})]
    assert len(list(client_of(server)[0].tasks(7))) == 1


def test_a_personal_token_gives_access_and_is_renewed(server: Server) -> None:
    server.answers = [
        (200, {"access": "first"}, {}), (200, [1], {}), (401, {}, {}), (200, {"access": "second"}, {}), (200, [2], {}),
    ]  # fmt: skip
    client, _ = client_of(server, "aa.bb.cc")
    assert client.get("/api/x/") == [1]
    assert client.get("/api/x/") == [2]
    assert [(path, who) for _, path, who, _ in server.asked] == [
        ("/api/token/refresh/", None), ("/api/x/", "Bearer first"), ("/api/x/", "Bearer first"),
        ("/api/token/refresh/", None), ("/api/x/", "Bearer second"),
    ]  # fmt: skip


def test_a_personal_token_that_is_refused(server: Server) -> None:
    server.answers = [(401, {"detail": "Token is blacklisted"}, {})]
    with pytest.raises(ServiceError, match="Token is blacklisted"):
        client_of(server, "aa.bb.cc")[0].get("/api/x/")


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://x", "http://", "http://a:b@host", "file:///etc/passwd", "http://host:99999"]
)
def test_a_wrong_address(url: str) -> None:
    with pytest.raises(ParameterError, match="is not a server URL"):
        LabelStudioClient(url, "abc")


def test_no_token_or_a_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABEL_STUDIO_API_KEY", raising=False)
    with pytest.raises(ParameterError, match="set LABEL_STUDIO_API_KEY"):
        LabelStudioClient("http://localhost")
    with pytest.raises(ParameterError, match="something else than a token"):
        LabelStudioClient("http://localhost", "abc\r\nX: y")
