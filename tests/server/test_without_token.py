"""Who has no token costs next to nothing: their bodies are not read, and answers are not piled up."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from crowdwise.server import running as server_running
from crowdwise.server.configuration import load_configuration
from server_site import Site, bearer, listening, running


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    given = {"data": str(tmp_path_factory.mktemp("server")), "rate_limit": 0.0}
    with listening(load_configuration(given, environment={})) as (url, _, _):
        yield int(url.rpartition(":")[2])


def test_requests_that_do_not_wait_for_answers_are_cut_off(port: int) -> None:
    one = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as pipe:
        pipe.sendall(one * 8)  # a few are answered in their order
        answer, until = b"", time.monotonic() + 60
        while answer.count(b'{"status":"ok"}') < 8 and time.monotonic() < until:
            answer += pipe.recv(65536)
        assert answer.count(b"HTTP/1.1 200") == 8
    with socket.create_connection(("127.0.0.1", port), timeout=60) as pipe:
        pipe.sendall(one * 1_000)  # none of which waits for the answer to the one before
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := pipe.recv(65536):
                answer += part
        assert answer.count(b"HTTP/1.1 200") < 1_000


def test_a_client_that_reads_no_answer_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_running, "UNREAD_SECONDS", 0.5)
    with listening(load_configuration({"data": str(tmp_path), "rate_limit": 0.0}, environment={})) as (url, secret, _):
        head = f"GET /api/v1/openapi.json HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n\r\n".encode()
        with socket.socket() as pipe:
            pipe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            pipe.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            until, gone = time.monotonic() + 120, False
            while not gone and time.monotonic() < until:
                try:
                    pipe.sendall(head)
                    time.sleep(0.05)
                except OSError:
                    gone = True
            assert gone


@pytest.mark.parametrize("path", ["/api/v1/campaigns", "/label-studio/predict", "/api/v1/nowhere"])
def test_the_answer_comes_before_the_body(port: int, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 8000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as pipe:
        pipe.sendall(head.encode() + b"[")  # the rest never comes
        assert pipe.recv(4096).startswith(b"HTTP/1.1 401")


def test_a_large_login_is_refused(port: int) -> None:
    head = b"POST /login HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as pipe:
        pipe.sendall(head + b"content-length: 20000\r\n\r\n")
        assert pipe.recv(4096).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as pipe:  # no length is announced
        pipe.sendall(head + b"transfer-encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        assert pipe.recv(4096).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))


@pytest.mark.usefixtures("frozen_rates")
def test_blanks_before_a_token_do_not_give_it_another_rate(tmp_path: Path) -> None:
    with running(load_configuration({"data": str(tmp_path), "rate_limit": 5.0}, environment={})) as site:
        codes = [
            site.client.get(
                "/api/v1/campaigns", headers={"Authorization": f"Bearer {' ' * i}{site.secret}"}
            ).status_code
            for i in range(1, 30)
        ]
        assert codes == [200] * 10 + [429] * 19


@pytest.mark.parametrize(("proxies", "address"), [("", "127.0.0.1"), ("127.0.0.1", "203.0.113.7")])
def test_only_a_named_proxy_says_where_a_request_comes_from(tmp_path: Path, proxies: str, address: str) -> None:
    given = {"data": str(tmp_path), "trusted_proxies": proxies}
    with listening(load_configuration(given, environment={})) as (url, secret, _):
        headers = {**bearer(secret), "X-Forwarded-For": "203.0.113.7"}
        made = {"name": "birds", "classes": ["wren", "robin"]}
        httpx.post(f"{url}/api/v1/campaigns", json=made, headers=headers).raise_for_status()
        assert httpx.get(f"{url}/api/v1/audit", headers=headers).json()[0]["address"] == address


def test_a_page_of_another_site_is_refused_before_its_body_is_read(site: Site) -> None:
    browser, _ = site.browser(site.campaign())
    assert browser.post("/api/v1/campaigns", content=b"[" * 100_000).status_code == 403
    assert site.client.post("/api/v1/campaigns", content=b"[", headers=bearer("cw_forged")).status_code == 401


def test_memory_stays_flat_under_the_attack_tool(tmp_path: Path) -> None:
    tool = Path(__file__).parents[2] / "benchmarks" / "attack" / "without_token.py"
    run = subprocess.run(
        [sys.executable, str(tool), "--seconds", "3", "--connections", "10", "--slowest", "60"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr
