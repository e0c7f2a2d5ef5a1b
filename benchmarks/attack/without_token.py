"""What a client without a token can make the server hold: pipelined requests, unfinished bodies, unread answers.

    python benchmarks/attack/without_token.py --seconds 20 --connections 50

It starts a server of its own on 127.0.0.1, attacks it from this process, and prints the bytes sent, by how much the
memory of the server grew, and the slowest answer that another client got meanwhile. It fails where memory grows by more
than ``MOST_MB`` or where an answer takes longer than ``--slowest`` says.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

MOST_MB = 200
GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
POST = (
    b"POST /api/v1/campaigns HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 8000000\r\n\r\n"
)
ATTACKS = {"pipelined requests": (b"", GET * 1_000), "unfinished bodies": (POST, b"[" * 65_536)}


def memory(pid: int) -> float:
    """Megabytes that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def attack(port: int, first: bytes, more: bytes, until: float, sent: list[int]) -> None:
    """Send on one connection after the other, and read nothing."""
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as pipe:
                pipe.sendall(first)
                size = 0
                while time.monotonic() < until and size < 7_000_000:
                    size += pipe.send(more)
                    sent.append(len(more))
                while time.monotonic() < until and first:
                    time.sleep(0.1)  # the body never ends
        except OSError:
            time.sleep(0.01)


def slowest(port: int, until: float) -> float:
    """The longest time that somebody else waits for an answer."""
    worst = 0.0
    while time.monotonic() < until:
        began = time.monotonic()
        with contextlib.suppress(urllib.error.HTTPError):  # too many requests from this address: an answer, too
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60).read()
        worst = max(worst, time.monotonic() - began)
        time.sleep(0.05)
    return worst


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--connections", type=int, default=50)
    options.add_argument("--slowest", type=float, default=1.0, help="seconds for the answer to another client")
    given = options.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "crowdwise", "serve", "--data", folder, "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1)
                    break
                except OSError:
                    time.sleep(0.1)
            for name, (first, more) in ATTACKS.items():
                before, sent, until = memory(server.pid), list[int](), time.monotonic() + given.seconds
                threads = [
                    threading.Thread(target=attack, args=(port, first, more, until, sent), daemon=True)
                    for _ in range(given.connections)
                ]
                for thread in threads:
                    thread.start()
                worst = slowest(port, until)
                grown = memory(server.pid) - before
                for thread in threads:
                    thread.join(5)
                print(f"{name}: {sum(sent) / 1e6:,.0f} MB sent, memory +{grown:.0f} MB, slowest answer {worst:.2f} s")
                bad |= grown > MOST_MB or worst > given.slowest
        finally:
            server.terminate()
            server.wait(30)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
