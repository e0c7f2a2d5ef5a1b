"""Where votes are fitted, and what it costs: all at once in memory, part by part from files (engine stream), on a GPU.

    python benchmarks/engines.py [--votes 1e6,1e7] [--engines memory,stream,cuda] [--methods dawid-skene,auto]
                                 [--place DIR] [--page]

Each run is a process of its own: its time from files to files, its processor time, its peak memory, its passes. Crowds
are simulated into DIR (kept there, and used again; by default a temporary folder): 5 votes per item, 2,000 annotators,
5 classes. Results go to results/engines.json, in the place of those of the same size, engine and method. ``--page``:
nothing is run, the tables of docs/scale.md are written from there. Figures of the GPU alone are in gpu_pass.py.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import crowdwise as cw

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "engines.json"
PAGE = HERE.parent / "docs" / "scale.md"
CROWD = {"n_annotators": 2000, "n_classes": 5, "votes_per_item": 5}
FAR = (1e9,)
"""Sizes that are extrapolated."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", default="1e6,1e7")
    parser.add_argument("--engines", default="memory,stream")
    parser.add_argument("--methods", default="dawid-skene,auto")
    parser.add_argument("--place", type=Path)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(one(*given.child)))
        return
    if not given.page:
        with tempfile.TemporaryDirectory() as temporary:
            place = given.place or Path(temporary)
            for votes in map(int, map(float, given.votes.split(","))):
                measure(votes, given.engines.split(","), given.methods.split(","), place)
    write_page()


def measure(votes: int, engines: list[str], methods: list[str], place: Path) -> None:
    """Every engine and method on a crowd of some size, one after the other."""
    folder, items = place / f"crowd-{votes}", votes // CROWD["votes_per_item"]
    if not folder.exists():
        pieces = min(items, 1_000_000) if engines == ["stream"] else items
        cw.simulate.write_large("dirichlet", folder, items, items_per_file=pieces, **CROWD)
    for engine in engines:
        for method in methods:
            out = place / "consensus.parquet"
            command = [sys.executable, __file__, "--child", engine, method, str(folder / "votes"), str(out)]
            load = os.getloadavg()[0]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = {"votes": votes, "items": items, **json.loads(done.stdout), "load": round(load, 1)}
            print(json.dumps(found))
            keep(found)
            out.unlink(missing_ok=True)


def one(engine: str, method: str, source: str, out: str) -> dict[str, Any]:
    """One fit, from files to a file."""
    began, stages = time.perf_counter(), {}

    def seen(stage: Any) -> None:
        stages.setdefault(stage.name, round(used(), 2))

    if engine == "stream":
        found = cw.aggregate(f"{source}/*.parquet", method, out=out, scratch=Path(out).parent, progress=seen)
    else:
        (file,) = Path(source).glob("*.parquet")
        found = cw.aggregate(file, method, engine=engine)
        found.to_frame("items", kind="polars").write_parquet(out)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {
        "engine": engine, "method": method, "seconds": round(time.perf_counter() - began, 1),
        "processor": round(used(), 1), "peak_gb": round(peak, 2), "passes": found.iterations, "begun_at": stages,
    }  # fmt: skip


def used() -> float:
    """Processor seconds of this process."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime


def known() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []


def keep(found: dict[str, Any]) -> None:
    """Put a result in the place of an earlier one of its kind."""
    key = ("votes", "engine", "method")
    rest = [old for old in known() if [old[name] for name in key] != [found[name] for name in key]]
    rows = sorted([*rest, found], key=lambda row: [row[name] for name in key])
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def write_page() -> None:
    """The tables of the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("engines", measured_lines()), ("growth", growth_lines())):
        begin, end = f"<!-- figures {name}:begin -->", f"<!-- figures {name}:end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{rest.split(end)[1]}"
    PAGE.write_text(text, encoding="utf-8")


def measured_lines() -> list[str]:
    """What was measured, a line for each run."""
    lines = ["| votes | engine | method | passes | processor time, s | time, s | peak memory, GB |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in known():
        lines.append(
            f"| {row['votes']:,} | {row['engine']} | `{row['method']}` | {row['passes']} | {row['processor']:.0f} | "
            f"{row['seconds']:.0f} (load {row['load']:.0f}) | {row['peak_gb']:.2f} |"
        )
    return lines


def growth_lines() -> list[str]:
    """The largest run of each method as a stream, per vote, and what that makes of more votes."""
    lines = ["| method | measured at | µs per vote, no passes | µs per vote and pass | 1e9 votes, min | disk, GB |"]
    lines.append("|---|---|---|---|---|---|")
    runs = {row["method"]: row for row in known() if row["engine"] == "stream"}  # the largest of each comes last
    for method, row in runs.items():
        begun = row["begun_at"]
        passes = begun["writing"] - begun["fitting"]
        rest, each = row["processor"] - passes, passes / max(row["passes"], 1)
        per_vote, per_pass = 1e6 * rest / row["votes"], 1e6 * each / row["votes"]
        for votes in FAR:
            minutes = (rest + passes) / row["votes"] * votes / 60
            lines.append(
                f"| `{method}` | {row['votes']:,} | {per_vote:.2f} | {per_pass:.3f} | "
                f"{minutes:.0f} of one core, {minutes / 2:.0f} to {minutes:.0f} of two | {40 * votes / 1e9:.0f} |"
            )
    return lines


if __name__ == "__main__":
    main()
