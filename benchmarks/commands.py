"""What ``report``, ``diagnose`` and ``compare`` of millions of votes cost beside ``aggregate``.

    python benchmarks/commands.py [--votes 3000000] [--only wide,few,...] [--commands report,diagnose,compare]

Each command runs in a process of its own, as a user would start it, on votes that ``crowdwise simulate`` made. Seconds
are those of the CPU: other work on the machine does not change them much. ``report`` and ``diagnose`` are to stay
within five times ``aggregate``. Figures go to standard output as JSON; the exit status is 1 where one does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CROWDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "wide": ("dirichlet", {"n_annotators": 3000, "n_classes": 4}, 5),
    "few": ("dirichlet", {"n_annotators": 30, "n_classes": 3}, 5),
    "many": ("one-coin", {"n_annotators": 100_000, "n_classes": 2}, 3),
    "groups": ("colluders", {"n_annotators": 2000, "n_classes": 3, "share": 0.05}, 5),
    "classes": ("dirichlet", {"n_annotators": 1000, "n_classes": 15}, 10),
}
"""Name -> scenario, its parameters, votes per item."""
COMMANDS = {
    "aggregate": ["--out", "labels_out.csv"],
    "report": ["--out", "report.html"],
    "diagnose": ["--json"],
    "compare": ["--json"],
}  # fmt: skip
MOST = 5.0


def run(words: list[str], folder: Path) -> tuple[float, float]:
    """Seconds of CPU and peak GB of one command."""
    with (folder / "stdout.txt").open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "crowdwise", *words], cwd=folder, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"crowdwise {' '.join(words)} ended with status {status}.")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def measure(crowd: str, votes: int, commands: list[str]) -> dict[str, Any]:
    """Seconds, GB and ratios of the commands on one crowd."""
    scenario, params, per_item = CROWDS[crowd]
    params = {"n_items": votes // per_item, "votes_per_item": per_item, **params}
    found: dict[str, Any] = {"votes": votes // per_item * per_item, **params}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        settings = [word for name, value in params.items() for word in ("--set", f"{name}={value}")]
        run(["simulate", scenario, "--out", "crowd", "--seed", "7", *settings], folder)
        for command in ["aggregate", *commands]:
            seconds, peak = run([command, "crowd/labels.csv", *COMMANDS[command]], folder)
            found[command] = {"cpu_seconds": round(seconds, 1), "peak_gb": round(peak, 2)}
            found[command]["ratio"] = round(seconds / found["aggregate"]["cpu_seconds"], 2)
            print(crowd, command, found[command], file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=int, default=3_000_000)
    parser.add_argument("--only", default=",".join(CROWDS))
    parser.add_argument("--commands", default="report,diagnose")
    given = parser.parse_args()
    commands = given.commands.split(",")
    found = {crowd: measure(crowd, given.votes, commands) for crowd in given.only.split(",")}
    print(json.dumps(found, indent=1))
    judged = [facts[command]["ratio"] for facts in found.values() for command in commands if command != "compare"]
    sys.exit(any(ratio > MOST for ratio in judged))


if __name__ == "__main__":
    main()
