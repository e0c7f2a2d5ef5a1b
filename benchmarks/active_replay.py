"""Strategies on real votes: how many of them each needs, and the curves.

    python benchmarks/active_replay.py

A data set is played back to each strategy (only pairs that were voted on can be asked), 2 % of the votes at a time,
with the model ``dawid-skene``. What counts is the share of votes at which the accuracy first reaches that of a batch
fit of all votes less half a point; and, since a stream can end elsewhere than a batch fit, that at which it first
reaches where its own curve ends, less half a point. Where it never does, all votes are counted. Everything was chosen
on simulated crowds (benchmarks/active_battery.py) before this was run. Writes benchmarks/results/active_replay.json;
``python benchmarks/active_pages.py`` draws it.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise.active.replays import Curve, replay
from crowdwise.bench.runs import data_folder

ROOT = Path(__file__).resolve().parents[1]
SETS = {"dog": 20, "web": 20, "rte": 20, "bluebird": 20, "trec2010_binary": 20}
"""Data set -> seeds."""
RULES = ("random", "entropy-random", "tutorial", "information", "value")
BATCH = 0.02


@cache
def votes_of(name: str) -> cw.Votes:
    return cw.read_dataset(data_folder() / name, on_duplicate="first").votes


def play(task: tuple[str, str, int]) -> Curve:
    name, rule, seed = task
    votes = votes_of(name)
    return replay(votes, votes.truth, cw.DawidSkene, rule, batch=BATCH, random_state=seed)


def main() -> None:
    facts: dict[str, Any] = {"batch": BATCH, "model": "dawid-skene", "sets": {}}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for name, seeds in SETS.items():
            began = time.perf_counter()
            votes = votes_of(name)
            S = votes.n_votes
            whole = cw.aggregate(votes, "dawid-skene").score(votes.truth)
            at = np.linspace(BATCH, 1.0, 50) * S
            row: dict[str, Any] = {"votes": S, "seeds": seeds, "batch fit": whole, "strategies": {}}
            for rule in RULES:
                curves = list(pool.map(play, [(name, rule, seed) for seed in range(seeds)]))
                accuracy = np.array([np.interp(at, c.votes, c.accuracy) for c in curves])
                expected = np.array([np.interp(at, c.votes, c.expected) for c in curves])
                share = [min(c.first_at(whole - 0.005) / S, 1.0) for c in curves]
                own = [c.first_at(c.accuracy[-1] - 0.005) / S for c in curves]
                row["strategies"][rule] = {
                    "share": float(np.mean(share)), "share_sd": float(np.std(share)),
                    "never": int(sum(c.first_at(whole - 0.005) > S for c in curves)),
                    "own": float(np.mean(own)), "own_sd": float(np.std(own)),
                    "end": float(np.mean([c.accuracy[-1] for c in curves])),
                    "accuracy": accuracy.mean(axis=0).round(5).tolist(),
                    "low": np.quantile(accuracy, 0.1, axis=0).round(5).tolist(),
                    "high": np.quantile(accuracy, 0.9, axis=0).round(5).tolist(),
                    "expected": expected.mean(axis=0).round(5).tolist(),
                }  # fmt: skip
            row["at"] = (at / S).round(5).tolist()
            facts["sets"][name] = row
            sys.stdout.write(f"{name} {time.perf_counter() - began:.0f} s\n")
            sys.stdout.flush()
            path = ROOT / "benchmarks" / "results" / "active_replay.json"
            path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
