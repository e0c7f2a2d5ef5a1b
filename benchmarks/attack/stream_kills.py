"""``kill -9`` at random moments of a fit out of core: the next run gives the same result, and nothing is left behind.

    python benchmarks/attack/stream_kills.py [--rounds 10] [--seed 0] [--items 100000] [--method auto]

Each round starts ``crowdwise aggregate`` on a folder of Parquet files, kills it at a moment drawn from the time that a
whole run takes, looks at what is there (the earlier result, or the new one, whole), and runs it again to the end.
Counts go to standard output as JSON; the exit status is 1 where anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

import crowdwise as cw


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--method", default="auto")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = attack(Path(place), given.rounds, given.seed, given.items, given.method)
    print(json.dumps(found))
    return 0 if found["held"] else 1


def attack(place: Path, rounds: int, seed: int, items: int, method: str) -> dict[str, object]:
    """Kill a run at random moments; what was seen."""
    crowd = cw.simulate.dirichlet(items, n_annotators=200, n_classes=4, votes_per_item=5, random_state=seed)
    frame = crowd.votes.with_truth(None).to_frame("polars").sample(fraction=1.0, shuffle=True, seed=seed)
    (place / "votes").mkdir()
    for i in range(4):
        frame[i * frame.height // 4 : (i + 1) * frame.height // 4].write_parquet(place / "votes" / f"{i}.parquet")
    for name in ("scratch", "out"):
        (place / name).mkdir()
    out, scratch = place / "out" / "consensus.parquet", place / "scratch"
    command = [
        sys.executable, "-m", "crowdwise", "aggregate", str(place / "votes" / "*.parquet"), "--method", method,
        "--memory", "350MB", "--scratch", str(scratch), "--out", str(out),
    ]  # fmt: skip
    run = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    began = time.perf_counter()
    subprocess.run(command, check=True, **run)
    whole, rng = time.perf_counter() - began, random.Random(seed)
    first = pl.read_parquet(out)
    counts = {"kills": 0, "in_time": 0, "left_by_kill": 0, "left_after": 0, "different": 0, "not_whole": 0}
    while counts["kills"] < rounds:
        process = subprocess.Popen(command, **run)
        try:
            process.wait(timeout=rng.uniform(0.1, 0.95) * whole)
            counts["in_time"] += 1
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            counts["kills"] += 1
        counts["left_by_kill"] += bool(left(scratch, out))
        counts["not_whole"] += not same(out, first)
        subprocess.run(command, check=True, **run)
        counts["different"] += not same(out, first)
        counts["left_after"] += bool(left(scratch, out))
    held = counts["left_after"] == counts["different"] == counts["not_whole"] == 0
    return {"held": held, "seconds": round(whole, 1), **counts}


def left(scratch: Path, out: Path) -> list[str]:
    """What lies there that is not a result."""
    return [p.name for folder in (scratch, out.parent) for p in folder.iterdir() if p != out]


def same(out: Path, first: pl.DataFrame) -> bool:
    """Whether the result is that of the first run."""
    found = pl.read_parquet(out)
    exact = ["item", "label", "votes"]
    close = (found["probability"] - first["probability"]).abs().max()
    return found.select(exact).equals(first.select(exact)) and float(str(close)) < 1e-8


if __name__ == "__main__":
    sys.exit(main())
