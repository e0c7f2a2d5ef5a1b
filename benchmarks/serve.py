"""Load on ``crowdwise serve``: votes in bulks, single votes beside questions, memory; beside a bare FastAPI + SQLite.

    python benchmarks/serve.py [--seconds 20] [--votes 0] [--items 20000] [--stores sqlite:1,postgresql:2] [--rounds 1]
                               [--out serve.json]

``--stores``: ``sqlite:1`` is SQLite with one worker, ``postgresql:2`` a PostgreSQL from a wheel with two; with
``--rounds`` they take turns. The generator runs on the same machine. ``upload``: all items. ``after gold``, ``after
settings``: the next question while the model learns again. ``status``, ``export``: the campaign with its votes.
``cpu_ms``: processor time of the server and its database for a request. ``bulk``: four connections send 50 votes at a
time, as fast as they can.
``single``: 50 annotators, who each have their first question, send 200 single votes a second and ask for 200 questions
a second, each on time whether the last was answered or not. ``floor``: the same votes into an application that inserts
a row and does nothing else. ``--votes 1e6`` sends so many in bulks and samples the memory of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "attack"))
from server_kills import Postgres, Server, children, free_port

BULK = 50
CONNECTIONS = 4
N_ANNOTATORS = 50
RATE = 200.0
SETTLE = 5.0
"""Seconds between the phases, in which the model catches up with the bulks."""
FLOOR = """
import sqlite3
from fastapi import FastAPI, Request
app = FastAPI()
conn = sqlite3.connect("floor.db", check_same_thread=False, isolation_level=None)
conn.execute("PRAGMA journal_mode=WAL")
conn.execute("CREATE TABLE votes (item TEXT, annotator TEXT, label TEXT)")

@app.post("/votes")
async def add(request: Request):
    given = await request.json()
    rows = given.get("votes", [given])
    conn.execute("BEGIN IMMEDIATE")
    conn.executemany("INSERT INTO votes VALUES (:item, :annotator, :label)", rows)
    conn.execute("COMMIT")
    return {"added": len(rows)}

@app.get("/readyz")
async def ready():
    return {}
"""


@dataclass
class Connection:
    """A connection that is kept, and opened again where it was closed."""

    port: int
    secret: str = ""
    pipe: Any = None

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, bytes, float]:
        """Status, body and seconds of a request."""
        sent = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.secret}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        )
        began = time.perf_counter()
        while True:
            kept = self.pipe is not None
            if not kept:
                self.pipe = await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = self.pipe
            try:
                writer.write(head.encode() + sent)
                answer = await reader.readuntil(b"\r\n\r\n")
                break
            except (asyncio.IncompleteReadError, ConnectionError):  # it was idle for too long: a new one
                self.pipe = None
                if not kept:
                    raise
        fields = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:] if b": " in line)
        text = await reader.readexactly(int(fields[b"content-length"]))
        return int(answer.split(b" ", 2)[1]), text, time.perf_counter() - began


@dataclass
class Times:
    """Seconds of the requests that were answered as hoped, and the others."""

    name: str
    seconds: list[float] = field(default_factory=list)
    others: list[int] = field(default_factory=list)

    def note(self, status: int, seconds: float) -> None:
        if status < 300:
            self.seconds.append(seconds)
        else:
            self.others.append(status)

    def row(self, took: float) -> dict[str, Any]:
        found = sorted(self.seconds) or [float("nan")]
        at = {f"p{p}_ms": round(1000 * found[min(len(found) - 1, int(len(found) * p / 100))], 1) for p in (50, 99)}
        return {
            "what": self.name,
            "per_second": round(len(self.seconds) / took, 1),
            **at,
            "not_answered": len(self.others),
        }


class Pairs:
    """(item, annotator) pairs, each once."""

    def __init__(self, n_items: int, begin: int = 0) -> None:
        self.n_items, self.at = n_items, begin

    def take(self, n: int) -> list[dict[str, str]]:
        some = range(self.at, self.at + n)
        self.at += n
        return [
            {"item": f"i{i % self.n_items}", "annotator": f"p{i // self.n_items}", "label": "ab"[i % 3 == 0]}
            for i in some
        ]


async def bulks(port: int, secret: str, path: str, pairs: Pairs, seconds: float, most: float = 1e18) -> dict[str, Any]:
    """Bulks as fast as they are answered."""
    times, sent, began = Times("bulk"), 0, time.perf_counter()

    async def one() -> None:
        nonlocal sent
        connection = Connection(port, secret)
        while time.perf_counter() < began + seconds and sent < most:
            sent += BULK
            status, _, took = await connection.call("POST", path, {"votes": pairs.take(BULK)})
            times.note(status, took)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    took = time.perf_counter() - began
    row = times.row(took)
    return row | {"votes_per_second": round(row["per_second"] * BULK)}


async def on_time(rate: float, seconds: float, work: Callable[[int], Awaitable[None]]) -> None:
    """Start work at a rate, whether the last has ended or not."""
    began, tasks = time.perf_counter(), []
    for i in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + i / rate - time.perf_counter()))
        tasks.append(asyncio.ensure_future(work(i)))
    await asyncio.gather(*tasks)


async def singles(port: int, secret: str, base: str, pairs: Pairs, seconds: float, ask: bool) -> list[dict[str, Any]]:
    """Single votes, and questions beside them."""
    votes, questions = Times("single vote"), Times("next question")
    free: list[Connection] = []

    async def call(times: Times, method: str, path: str, body: Any = None) -> None:
        connection = free.pop() if free else Connection(port, secret)
        status, text, took = await connection.call(method, path, body)
        free.append(connection)
        if times is questions and status == 200:
            assert json.loads(text)["questions"], "there is nothing left to ask: take more items"
        times.note(status, took)

    began = time.perf_counter()
    load = [on_time(RATE, seconds, lambda i: call(votes, "POST", f"{base}/votes", pairs.take(1)[0]))]
    if ask:
        load.append(
            on_time(RATE, seconds, lambda i: call(questions, "GET", f"{base}/next?annotator=q{i % N_ANNOTATORS}"))
        )
    await asyncio.gather(*load)
    took = time.perf_counter() - began
    return [times.row(took) for times in (votes, questions) if times.seconds or times.others]


def memory(pid: int) -> float:
    """Megabytes of a process and those it started."""
    total = 0.0
    for one in (pid, *children(pid)):
        for line in Path(f"/proc/{one}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                total += int(line.split()[1]) / 1000.0
    return round(total)


def processor(*pids: int) -> float:
    """Seconds of processor time of some processes and those they started, also of those that ended."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + processor(*children(pid))
    return total


async def campaign(server: Server, n_items: int) -> str:
    """The path of a new campaign with items and annotators."""
    connection = Connection(server.port, server.secret)
    settings = {"name": "load", "classes": ["a", "b"], "unknown": "add", "patience": 60.0}
    status, text, _ = await connection.call("POST", "/api/v1/campaigns", settings)
    assert status == 201, text
    base = f"/api/v1/campaigns/{json.loads(text)['id']}"
    for at in range(0, n_items, 10_000):
        items = [{"item": f"i{i}", "payload": {"text": f"item {i}"}} for i in range(at, min(at + 10_000, n_items))]
        status, text, _ = await connection.call("POST", f"{base}/items", items)
        assert status == 201, text
    people = [{"annotator": f"q{m}"} for m in range(N_ANNOTATORS)]
    status, text, _ = await connection.call("POST", f"{base}/annotators", people)
    assert status == 201, text
    return base


async def timed(connection: Connection, what: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """A request by itself."""
    status, text, took = await connection.call(method, path, body)
    assert status < 300, text[:500]
    return {"what": what, "ms": round(1000 * took, 1), "bytes": len(text)}


async def measured(server: Server, given: argparse.Namespace, *pids: int) -> list[dict[str, Any]]:
    pids = (server.process.pid, *pids)
    began = time.perf_counter()
    base, pairs = await campaign(server, given.items), Pairs(given.items)
    out = [{"what": "upload", "items": given.items, "seconds": round(time.perf_counter() - began, 1)}]
    before = processor(*pids)
    out.append(await bulks(server.port, server.secret, f"{base}/votes", pairs, given.seconds))
    out[-1]["cpu_ms"] = round(1000 * (processor(*pids) - before) / (pairs.at / BULK), 2)
    connection = Connection(server.port, server.secret)
    for what, path, body in (
        ("after gold", "/items", {"items": ["i0", "i1"], "gold": "a"}),
        ("after settings", "", {"min_votes": 2}),
    ):
        for m in range(N_ANNOTATORS):  # people who label when it changes
            await connection.call("GET", f"{base}/next?annotator=q{m}")
        await connection.call("PATCH", f"{base}{path}", body)
        asked = [Connection(server.port, server.secret) for _ in range(20)]
        found = Times(f"next {what}")
        for m, one in enumerate(asked):
            status, _, took = await one.call("GET", f"{base}/next?annotator=q{m}")
            found.note(status, took)
            await asyncio.sleep(0.1)
        out.append(found.row(1.0) | {"worst_ms": round(1000 * max(found.seconds), 1)})
    for what in ("status", "consensus?format=csv"):
        out.append(await timed(connection, what, "GET", f"{base}/{what}"))
    other = await campaign(server, given.items)  # with questions left
    await asyncio.sleep(SETTLE)
    for m in range(N_ANNOTATORS):  # the first question of each, which is chosen then
        await connection.call("GET", f"{other}/next?annotator=q{m}")
    before = processor(*pids)
    out += await singles(server.port, server.secret, other, Pairs(given.items), given.seconds, ask=True)
    out[-1]["cpu_ms"] = round(1000 * (processor(*pids) - before) / (2 * RATE * given.seconds), 2)
    while pairs.at < given.votes:
        out.append({"what": "memory", "votes": pairs.at, "megabytes": memory(server.process.pid)})
        sys.stderr.write(f"\r{pairs.at:,} votes, {out[-1]['megabytes']:.0f} MB ")
        await bulks(server.port, server.secret, f"{base}/votes", pairs, 1e9, given.votes / 10)
    return [*out, {"what": "memory", "votes": pairs.at, "megabytes": memory(server.process.pid)}]


def of_store(store: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A server over a new store, measured."""
    kind, workers = store.split(":")
    with tempfile.TemporaryDirectory(prefix="crowdwise-load-", ignore_cleanup_errors=True) as folder:
        database = Postgres(Path(folder)) if kind == "postgresql" else None
        server = Server(Path(folder), database.address if database else "", int(workers))
        server.start()
        more = [] if database is None else [int((database.folder / "postmaster.pid").read_text().split()[0])]
        try:
            rows = asyncio.run(measured(server, given, *more))
        finally:
            os.killpg(server.process.pid, signal.SIGTERM)
            server.process.wait()
            if database is not None:
                database.close()
    return [{"store": store} | row for row in rows]


async def floor(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The bare application."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "floor.py").write_text(FLOOR)
        port = free_port()
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "floor:app",
            "--port",
            str(port),
            "--no-access-log",
            "--log-level",
            "error",
        ]
        process = subprocess.Popen(command, cwd=folder)
        try:
            for _ in range(300):
                try:
                    await Connection(port).call("GET", "/readyz")
                    break
                except OSError:
                    await asyncio.sleep(0.1)
            pairs = Pairs(given.items)
            found = [await bulks(port, "", "/votes", pairs, given.seconds)]
            found += await singles(port, "", "", pairs, given.seconds, ask=False)
        finally:
            process.terminate()
            process.wait()
    return [row | {"what": f"floor: {row['what']}"} for row in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--votes", type=float, default=0.0, help="send so many in all, and sample memory")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--stores", default="sqlite:1,postgresql:2")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out")
    given = parser.parse_args()
    rows = [row for _ in range(given.rounds) for store in given.stores.split(",") for row in of_store(store, given)]
    rows += asyncio.run(floor(given))
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")
    if given.out:
        Path(given.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
