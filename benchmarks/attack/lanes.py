"""One campaign is abused while annotators of another go on: how long they wait for an answer, and the memory it takes.

    python benchmarks/attack/lanes.py [--seconds 10] [--items 200000] [--slowest 1.0] [--only quiet,upload,...]

It starts a server of its own on 127.0.0.1. The abuses are those of a lead with a token: uploads of many items, a broken
one, previews of small files that grow (Parquet with few values, empty cells), large recordings, reports all at once,
event streams, a webhook whose receiver never answers, and votes as fast as they go. ``quiet`` is the wait without any.
Waits in seconds and the megabytes that the server grew by at its peak go to standard output as JSON; the exit status is
1 where a request of the other campaign failed or took longer than ``--slowest`` says, or where memory grew by more than
``--memory``.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from server_kills import Server, call
from targets import conclude, options

N_ANNOTATORS = 4


class Annotators:
    """People of the other campaign, who ask and vote; the time that each request takes."""

    def __init__(self, server: Server, campaign: str) -> None:
        self.server, self.campaign, self.waits, self.failed = server, campaign, list[float](), list[Any]()
        self.end = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(f"p{m}",)) for m in range(N_ANNOTATORS)]

    def run(self, name: str) -> None:
        while not self.end.is_set():
            asked = self.timed("GET", f"next?annotator={name}", None)
            for question in (asked or {}).get("questions", []):
                self.timed("POST", "votes", {"item": question["item"], "annotator": name, "label": "a"})
            self.end.wait(0.05)

    def timed(self, method: str, path: str, body: Any) -> Any:
        began = time.monotonic()
        try:
            code, answer = call(
                self.server.port, method, f"/api/v1/campaigns/{self.campaign}/{path}", body, self.server.secret, 120.0
            )
        except (OSError, http.client.HTTPException) as error:
            code, answer = 0, str(error)
        self.waits.append(time.monotonic() - began)
        if code >= 300 or not code:
            self.failed.append((code, answer))
            return None
        return answer


def abuse(name: str, server: Server, campaign: str, items: int, end: threading.Event) -> list[Callable[[], Any]]:
    """What threads do, again and again, until the end."""
    path = f"/api/v1/campaigns/{campaign}"

    def post(what: str, body: Any, kind: str = "application/json") -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
        headers = {"Authorization": f"Bearer {server.secret}", "Content-Type": kind}
        connection.request("POST", f"{path}/{what}", body, headers)
        connection.getresponse().read()
        connection.close()

    payload = {"text": "t" * 60, "more": [1, 2, 3]}
    if name == "upload":
        body = json.dumps([{"item": f"x{i}", "payload": payload} for i in range(items)])
        return [lambda: post("items", body)]
    if name == "broken upload":
        broken = json.dumps([{"item": f"y{i}", "payload": payload} for i in range(items)])[:-1] + ', {"item": [}'
        return [lambda: post("items", broken)]
    if name == "csv":
        table = "item,text\n" + "".join(f"z{i},{'t' * 60}\n" for i in range(items))
        return [lambda: post("items", table, "text/csv")]
    if name == "previews":
        few = pl.select(pl.repeat(7, 100 * items).alias(name) for name in ("item", "annotator", "label"))
        few.write_parquet(packed := io.BytesIO(), statistics=False)
        empty = b"item" + b",a" * 400 + b"\n" * (items // 4)
        return [
            lambda: post("items?preview=true", packed.getvalue(), "application/vnd.apache.parquet"),
            lambda: post("items?preview=true", empty, "text/csv"),
        ] * 3
    if name == "media":
        head = b'--x\r\ncontent-disposition: form-data; name="file"; filename="%d.wav"\r\n\r\n'
        body = bytes(1000 * items)
        return [
            lambda n=n: post("media", head % n + body + b"\r\n--x--\r\n", "multipart/form-data; boundary=x")
            for n in range(3)
        ]
    if name == "reports":
        paths = ("report", "consensus", "status", "flags")
        return [lambda n=n: call(server.port, "GET", f"{path}/{paths[n % 4]}", None, server.secret, 300.0)
                for n in range(12)]  # fmt: skip
    if name == "events":

        def stream() -> None:
            with socket.create_connection(("127.0.0.1", server.port), timeout=1) as pipe:
                lines = (
                    f"GET {path}/events?after=0 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.secret}\r\n\r\n"
                )
                pipe.sendall(lines.encode())
                while not end.is_set():
                    try:
                        if not pipe.recv(65_536):
                            return
                    except TimeoutError:
                        continue

        return [stream for _ in range(40)]
    if name == "votes":
        votes = [{"item": f"x{i}", "annotator": "robot", "label": "a"} for i in range(500)]
        return [lambda: call(server.port, "POST", f"{path}/votes", {"votes": votes}, server.secret, 60.0)] * 4
    if name == "webhook":
        hung = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{hung.getsockname()[1]}/"
        call(server.port, "POST", f"{path}/webhooks", {"url": url}, server.secret)
        return [lambda: post("items", json.dumps([{"item": "x0", "payload": {"now": time.time()}}]))]
    return []


ABUSES = ("quiet", "upload", "broken upload", "csv", "previews", "media", "reports", "events", "votes", "webhook")


def again(work: Callable[[], Any], end: threading.Event) -> None:
    while not end.is_set():
        try:
            work()
        except (OSError, http.client.HTTPException):
            end.wait(0.2)


def megabytes(server: Server, what: str) -> float:
    """What a server holds (``VmRSS``), or held at most (``VmHWM``)."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def attack(name: str, server: Server, seconds: float, items: int) -> dict[str, Any]:
    settings = {"name": name, "classes": ["a", "b"], "unknown": "add"}
    abused, other = (call(server.port, "POST", "/api/v1/campaigns", settings, server.secret)[1]["id"] for _ in "ab")
    some = [{"item": f"x{i}"} for i in range(500)]
    for campaign in (abused, other):
        call(server.port, "POST", f"/api/v1/campaigns/{campaign}/items", some, server.secret, 60.0)
    votes = [{"item": f"x{i}", "annotator": f"a{m}", "label": "ab"[i % 2]} for i in range(500) for m in range(3)]
    call(server.port, "POST", f"/api/v1/campaigns/{abused}/votes", {"votes": votes}, server.secret, 60.0)
    people, end = Annotators(server, other), threading.Event()
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the peak begins anew
    before = megabytes(server, "VmRSS")
    threads = [threading.Thread(target=again, args=(one, end)) for one in abuse(name, server, abused, items, end)]
    for thread in (*people.threads, *threads):
        thread.start()
    time.sleep(seconds)
    people.end.set()
    for thread in people.threads:
        thread.join()
    end.set()
    for thread in threads:
        thread.join()
    waits = sorted(people.waits)
    return {
        "requests": len(waits), "failed": people.failed[:3], "median": round(waits[len(waits) // 2], 3),
        "slowest": round(waits[-1], 3), "memory": round(megabytes(server, "VmHWM") - before),
    }  # fmt: skip


def main() -> int:
    parser = options(__doc__, ABUSES)
    parser.set_defaults(seconds=10.0)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--slowest", type=float, default=1.0)
    parser.add_argument("--memory", type=float, default=1500.0, help="megabytes")
    given = parser.parse_args()
    out = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder), "", 1)
        server.start()
        try:
            for name in given.only.split(","):
                out[name] = attack(name, server, given.seconds, given.items)
        finally:
            server.kill()
    bad = sum(
        bool(one["failed"]) + (one["slowest"] > given.slowest) + (one["memory"] > given.memory) for one in out.values()
    )
    return conclude(given.seed, out, bad)


if __name__ == "__main__":
    sys.exit(main())
