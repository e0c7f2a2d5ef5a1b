"""What the default costs: processor time of ``auto`` and of ``anchored`` on the same votes, in one run.

    python benchmarks/default_cost.py [most votes]     benchmarks/results/default_cost.json, in a few minutes

Simulated annotators with confusion matrices, five votes an item. The two methods take turns, and the least time of each
counts, so that what else the machine does enters neither. One thread. The table is on docs/benchmarks/calibration.md,
which benchmarks/calibration.py writes.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path

import crowdwise as cw

RESULTS = Path(__file__).resolve().parent / "results" / "default_cost.json"
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
CLASSES = (2, 4, 8)
METHODS = ("anchored", "auto")
WORK, MOST = 2_000_000, 30
"""Votes that are fitted to in all by each method, and the most fits."""


def seconds(votes: cw.Votes, method: str) -> tuple[float, int]:
    """Processor time of a fit, and its passes of EM."""
    began = time.process_time()
    passes = cw.aggregate(votes, method).iterations
    return time.process_time() - began, passes


def main(most: int) -> None:
    os.environ["CROWDWISE_THREADS"] = "1"
    warnings.simplefilter("ignore")
    rows = []
    for S in (size for size in SIZES if size <= most):
        for K in CLASSES if S < SIZES[-1] else CLASSES[1:2]:
            M = max(20, min(S // 250, 2000))
            votes = cw.simulate.dirichlet(S // 5, n_annotators=M, n_classes=K, votes_per_item=5, random_state=0).votes
            best: dict[str, tuple[float, int]] = {}
            for i in range(1 + max(1, min(MOST, WORK // S))):
                for method in METHODS:
                    found = seconds(votes, method)
                    if i and (method not in best or found < best[method]):  # the first fit loads and compiles
                        best[method] = found
            rows.append({"votes": S, "classes": K, "annotators": M} | {m: list(best[m]) for m in METHODS})
            sys.stdout.write(f"{S:,} votes, {K} classes: {best['auto'][0] / best['anchored'][0]:.2f}\n")
            sys.stdout.flush()
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SIZES[-1])
