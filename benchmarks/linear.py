"""Every registered method at 5 M votes: nanoseconds per vote and iteration, memory, iterations.

Each method has a process of its own, on one thread, so that its memory is its own; time is processor time. An
iteration is the difference between fits of two and of five of them, so that what is done once is left out; it is in
the time of the whole fit of five. The first fit, which fills the memory, is not timed. A method that would take longer
than ``BUDGET`` at this size, by its time at a fiftieth of it, is measured on a tenth (or a hundredth) of the items.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise.errors import CrowdwiseError
from crowdwise.methods import entropy_crowd_svm, entropy_minimax, moments_tensor, skills_graph

BUDGET = 40.0
"""Processor seconds for all fits of a method."""
FEW, MANY = 2, 5
QUICK, REPEATS = 2.0, 4
"""Fits under so many seconds are repeated, and the least time of each length counts."""
BINARY = ("kos", "kos-svd", "ghosh", "sml")
"""They answer yes-or-no questions, one per class: two classes are one question."""

PAIRS = (
    "pairs of annotators who share an item: at most M², and at most the sum of squares of the items' votes",
    f"more than {skills_graph.MAX_PAIRS:,} pairs, or {skills_graph.MAX_MEETINGS:,} meetings of two votes on an item",
)
MOMENTS = (
    "counts of pairs: the sum of squares of the items' votes, then K to K³ for each pair of annotators per sweep",
    "more than the machine's memory, or hours of computing",
)
COSTS = {
    "eigenratio": PAIRS,
    "sml": PAIRS,
    "pgd": PAIRS,
    "m-msr": PAIRS,
    "triangular": PAIRS,
    "minimax": (
        "K² numbers for every item and every annotator, and votes × K² per pass",
        f"more than {entropy_minimax.MAX_NUMBERS:,} numbers, or {entropy_minimax.MAX_WORK:,} votes times K²",
    ),
    "multispa": MOMENTS,
    "cnmf": MOMENTS,
    "symnmf": MOMENTS,
    "tensor": (
        "triples of votes on an item to count, then K for each different triple of (annotator, label) per sweep",
        f"more than {moments_tensor.VOTE_TRIPLES:,} triples of votes, or {moments_tensor.CELLS:,} different ones",
    ),
    "m3v": ("votes, and passes of the dual that grow with the crowd: 15 s for 500,000 votes", "nothing"),
    "crowd-svm": (
        "votes, and a system of M equations for each draw: 10 s for 100,000 votes",
        f"more than {entropy_crowd_svm.MAX_NUMBERS:,} kept numbers (draws × M × K²)",
    ),
}
"""What the cost grows with where it is not the votes alone, and which sizes are refused."""


def options(key: str, rounds: int) -> dict[str, Any]:
    """One start, so many iterations, no early end."""
    known = cw.METHODS[key].load().parameters()
    wanted: dict[str, Any] = {"restarts": 0, "max_iter": rounds, "rounds": rounds, "tol": 0.0, "communities": 2}
    return {name: value for name, value in wanted.items() if name in known}


def load(file: Path) -> Any:
    """Votes with numbers for names: text would be as large as the votes."""
    with np.load(file) as table:
        indptr, annotator, label = (table[name] for name in ("indptr", "annotator", "label"))
        M, K = (int(table[name]) for name in ("M", "K"))
    return cw.Votes(indptr, annotator, label, np.arange(len(indptr) - 1), np.arange(M), np.arange(K))


def save(votes: Any, file: Path) -> Path:
    M, K = votes.n_annotators, votes.n_classes
    np.savez(file, indptr=votes.indptr, annotator=votes.annotator, label=votes.label, M=M, K=K)
    return file


def measure(file: Path, key: str, memory_of: Callable[..., dict[str, float]]) -> dict[str, Any]:
    """One method, in a process of its own."""
    votes = load(file)
    small = votes[: max(len(votes) // 50, 1000)]

    def fit(data: Any, rounds: int) -> tuple[float, int]:
        began = time.process_time()
        found = cw.aggregate(data, key, **options(key, rounds))
        return time.process_time() - began, found.iterations

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit(small, FEW)  # loads compiled code
            at_small = (fit(small, FEW)[0] + fit(small, MANY)[0]) / small.n_votes
            while at_small * votes.n_votes > BUDGET:
                votes = votes[: len(votes) // 10]
            cold: list[tuple[float, int]] = []
            memory = memory_of(lambda: cold.append(fit(votes, FEW)))
            repeats = REPEATS if cold[0][0] < QUICK else 1
            few, before = min(fit(votes, FEW) for _ in range(repeats))
            many, after = min(fit(votes, MANY) for _ in range(repeats))
        except CrowdwiseError as error:
            return {"problem": str(error)}
    steps = after - before
    seconds = (many - few) / steps if steps > 0 else None
    return {
        "votes": votes.n_votes,
        "classes": votes.n_classes,
        "iterations": after,
        "fit_seconds": many,
        "fit_ns_per_vote": 1e9 * many / votes.n_votes,
        "iteration_ns_per_vote": None if seconds is None else 1e9 * seconds / votes.n_votes,
        "fit_mb": memory["fit_mb"],
    }


def linear(scale: float, script: Path) -> dict[str, Any]:
    """A row for every method that needs no truth."""
    S, M = int(5_000_000 * scale), 2000
    rows: dict[str, Any] = {}
    alone = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CROWDWISE_THREADS")}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for K in (2, 5):
            crowd = cw.simulate.dirichlet(
                S // 5, n_annotators=M, n_classes=K, diagonal=3, votes_per_item=5, random_state=0
            )
            files[K] = save(crowd.votes, Path(folder) / f"{K}.npz")
            del crowd
        for key, entry in cw.METHODS.items():
            if entry.load().needs_gold:
                continue
            done = subprocess.run(
                [sys.executable, str(script), "--job", f"linear:{key}", str(files[2 if key in BINARY else 5])],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, **alone},
            )
            if done.returncode != 0:
                raise RuntimeError(f"{key} failed: {done.stderr[-2000:]}")
            rows[key] = json.loads(done.stdout.splitlines()[-1])
    return {"votes": S, "annotators": M, "rows": rows}
