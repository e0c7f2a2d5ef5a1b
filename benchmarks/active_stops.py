"""Whether campaigns stop when the labels are as good as asked, on replays of real votes.

    python benchmarks/active_stops.py [seeds]

The sets and the way of replaying are those of benchmarks/active_replay.py with the default strategy, a twentieth of the
votes at a time. After every second batch the accuracy of the labels is estimated without truth
(``estimate_accuracy``), and a campaign with a target stops the first time that the lower end reaches it. It was right
to stop where the real accuracy, on the items with votes and known truth, is the target or more. Targets: 0.6 to 0.975.
``dependence="none"`` takes votes as independent given the class.

Runs that are in the results already are not made again. Writes benchmarks/results/active_stops.json and the part
"stops" of docs/active-replay.md.
"""

from __future__ import annotations

import json
import sys
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import tables

import crowdwise as cw
from crowdwise.active.replays import replay
from crowdwise.active.stopping import estimate_accuracy
from crowdwise.active.strategies import DEFAULT
from crowdwise.bench import runs

ROOT = Path(__file__).resolve().parents[1]
SETS = ("dog", "web", "rte", "bluebird", "trec2010_binary")
TARGETS = np.arange(24, 40) / 40
SETTINGS = ("none", "auto")


def watched(name: str, seed: int) -> list[dict[str, Any]]:
    """The real and the estimated accuracy after every batch."""
    votes = cw.read_dataset(runs.data_folder() / name, on_duplicate="first").votes
    rows: list[dict[str, Any]] = []
    batches = count(1)

    def watch(online: cw.Online) -> None:
        if next(batches) % 2:
            return
        q, _ = online.e_step()
        truth = np.asarray(votes.truth)[online.store.items.codes]
        right = (q.argmax(axis=1) == truth)[truth >= 0]
        found = {kind: estimate_accuracy(online, dependence=kind) for kind in SETTINGS}
        rows.append(
            {"set": name, "seed": seed, "spent": online.store.n_votes / votes.n_votes}
            | {"real": float(right.mean())}
            | {kind: [x.accuracy, x.low, x.high, x.known] for kind, x in found.items()}
        )

    replay(votes, votes.truth, cw.DawidSkene, DEFAULT, batch=0.05, random_state=seed, watch=watch)
    return rows


def stops(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """For every run and target, where the campaign stops."""
    out = []
    for key in sorted({(r["set"], r["seed"]) for r in rows}):
        run = [r for r in rows if (r["set"], r["seed"]) == key]
        for target in TARGETS.tolist():
            there = [r for r in run if r[kind][3] and r[kind][1] >= target]
            if there:
                out.append(
                    {"set": key[0], "rule": key[1], "spent": there[0]["spent"], "right": there[0]["real"] >= target}
                )
    return out


def main(seeds: int) -> None:
    path = ROOT / "benchmarks" / "results" / "active_stops.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    done = {(r["set"], r["seed"]) for r in rows}
    for name, seed in product(SETS, range(seeds)):
        if (name, seed) in done:
            continue
        rows += watched(name, seed)
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{name} {seed}\n")
        sys.stdout.flush()
    write(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """The table, into the page."""
    found = {kind: stops(rows, kind) for kind in SETTINGS}
    table = []
    names = [name for name in SETS if any(r["set"] == name for r in rows)]
    for name in (*names, "all"):
        line = [name]
        for kind in SETTINGS:
            some = [s for s in found[kind] if name in (s["set"], "all")]
            of = [r for r in rows if name in (r["set"], "all") and r[kind][3]]
            line += [
                f"{sum(s['right'] for s in some)} of {len(some)}",
                f"{100 * np.mean([r[kind][0] - r['real'] for r in of]):+.1f}",
                f"{100 * np.mean([r[kind][1] <= r['real'] <= r[kind][2] for r in of]):.0f}",
            ]
        table.append(line)
    header = ["data set"]
    for words in ("votes taken as independent", "corrected"):
        header += [f"right to stop, {words}", "estimate less real", "real is inside, %"]
    page = ROOT / "docs" / "active-replay.md"
    begin, end = "<!-- figures stops:begin -->", "<!-- figures stops:end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{tables.markdown(header, table)}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
