"""``kill -9`` at random moments while votes are added to a campaign: nothing acknowledged is lost or counted twice.

    python benchmarks/kill9.py [kills]

A process adds votes, one transaction each, and writes down what was acknowledged. It is killed, another goes on, a
thousand times. After every kill the journal must open, hold all that was acknowledged, no vote twice, and at most one
that was written and not yet acknowledged. At the end the model must have seen every vote.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import crowdwise as cw
from crowdwise.active.journal import Journal

ITEMS = 1_000_000
WRITER = """
import sys
import crowdwise as cw
folder, first, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
campaign = cw.Campaign.open(folder, cw.OneCoin())
with open(log, "a", buffering=1) as acknowledged:
    for n in range(first, 1_000_000):
        campaign.add([(n, "ann", n % 2)])
        acknowledged.write(f"{n}\\n")
"""


def numbers(log: Path) -> list[int]:
    return [int(n) for n in log.read_text(encoding="utf-8").split("\n")[:-1]]  # the last line may be torn


def main(kills: int) -> None:
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        folder, log = Path(place) / "campaign", Path(place) / "log"
        log.touch()
        cw.Campaign.create(
            folder, cw.OneCoin(), classes=[0, 1], items=range(20_000), annotators=["ann"], unknown="add"
        ).close()
        between = 0
        for kill in range(kills):
            done = numbers(log)
            first = done[-1] + 1 if done else 0
            process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(first), str(log)])
            while len(numbers(log)) == len(done) and process.poll() is None:
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.05))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            acknowledged = set(numbers(log))
            journal = Journal.open(folder / "campaign.db")
            rows = journal.read("SELECT CAST(i.name AS INTEGER) FROM votes v JOIN items i ON i.id = v.item")
            there = [n for (n,) in rows]
            journal.close()
            if (
                len(there) != len(set(there))
                or not acknowledged <= set(there)
                or len(there) > len(acknowledged) + 1 + between
            ):
                raise SystemExit(
                    f"After {kill + 1} kills: {len(acknowledged)} acknowledged, {len(there)} in the journal."
                )
            between = len(set(there) - acknowledged)
            if (kill + 1) % 50 == 0:
                sys.stdout.write(f"{kill + 1} kills, {len(there)} votes, {between} written and not acknowledged\n")
                sys.stdout.flush()
        with cw.Campaign.open(folder, cw.OneCoin()) as campaign:
            assert campaign.votes().n_votes == len(there)
            assert campaign.consensus().n_answers == len(there)
    sys.stdout.write(f"{kills} kills: nothing lost, nothing twice.\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
