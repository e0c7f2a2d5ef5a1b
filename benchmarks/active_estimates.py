"""Estimates of accuracy without truth, on simulated crowds.

    python benchmarks/active_estimates.py [seeds]

The estimated accuracy of a stream (``estimate_accuracy``: on items with votes) beside the real one, on crowds of
several kinds, asked at random or by the default strategy, after so many votes per item. Votes on an item are
independent in these crowds, and taken to be (``dependence="none"``): real ones are in benchmarks/active_stops.py.
Everything in ``crowdwise.active.accuracy_estimate`` was chosen on such crowds with seeds from 100 on; these are seeds
from 0 on.

Writes benchmarks/results/active_estimates.json.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise import registry
from crowdwise.active.state import AskablePairs, State
from crowdwise.active.stopping import estimate_accuracy
from crowdwise.active.strategies import DEFAULT, find_strategy

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("one-coin", "dawid-skene")
KINDS = {
    "one coin": lambda s: cw.simulate.one_coin(400, n_annotators=30, n_classes=3, random_state=s),
    "confusion matrices": lambda s: cw.simulate.dirichlet(400, n_annotators=30, n_classes=4, random_state=s),
    "two kinds of errors": lambda s: cw.simulate.two_coin(400, n_annotators=30, random_state=s),
    "spammers": lambda s: cw.simulate.hammer_spammer(400, n_annotators=30, accuracy=0.85, random_state=s),
    "hard items": lambda s: cw.simulate.difficulty(400, n_annotators=30, random_state=s),
}
STAGES = (1, 2, 3, 4, 6, 8)
"""Votes per item."""


def estimates(task: tuple[str, str, str, int]) -> list[dict[str, Any]]:
    """The estimate and the real accuracy, at each stage."""
    kind, method, name, seed = task
    made = KINDS[kind](seed)
    votes, rule, rng = made.votes, find_strategy(name), np.random.default_rng(seed)
    N, M = len(votes), votes.n_annotators
    online = rule.stream(registry.create(method), votes.classes.tolist())
    online.declare(votes.items.tolist(), votes.annotators.tolist())
    asked, rows = np.zeros(votes.n_votes, dtype=bool), []
    for stage in np.arange(1, 2 * STAGES[-1] + 1) / 2:
        left = np.flatnonzero(~asked)
        seen = State.of(online, possible=AskablePairs.of(votes.item[left], votes.annotator[left], N))
        some = rule.propose(seen, N // 2, rng)
        chosen = np.zeros(votes.n_votes, dtype=bool)
        chosen[np.searchsorted(votes.item * M + votes.annotator, some.item * M + some.annotator)] = True
        asked |= chosen
        new = votes.select(chosen)
        online.partial_fit(new[np.flatnonzero(np.diff(new.indptr) > 0)])
        if stage in STAGES:
            found = estimate_accuracy(online, dependence="none")
            q, _ = online.e_step()
            right = q.argmax(axis=1) == made.truth[online.store.items.codes]
            rows.append({
                "kind": kind, "method": method, "strategy": name, "stage": int(stage), "estimate": found.accuracy,
                "real": float(right.mean()), "posterior": float(q.max(axis=1).mean()),
                "inside": bool(found.low <= right.mean() <= found.high), "width": found.high - found.low,
                "known": found.known,
            })  # fmt: skip
    return rows


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kind, way of asking, stage -> mean error of the estimate (and of the plain posterior), how often it is inside."""
    out = []
    for kind in KINDS:
        for how in ("random", DEFAULT):
            for stage in STAGES:
                some = [r for r in rows if (r["kind"], r["strategy"], r["stage"]) == (kind, how, stage)]
                off = np.array([r["estimate"] - r["real"] for r in some])
                out.append({
                    "kind": kind, "strategy": how, "stage": stage, "bias": float(off.mean()),
                    "off": float(np.abs(off).mean()), "inside": float(np.mean([r["inside"] for r in some])),
                    "width": float(np.mean([r["width"] for r in some])),
                    "posterior": float(np.mean([r["posterior"] - r["real"] for r in some])),
                    "real": float(np.mean([r["real"] for r in some])),
                })  # fmt: skip
    return out


def main(seeds: int) -> None:
    tasks = [(k, m, h, s) for k in KINDS for m in METHODS for h in ("random", DEFAULT) for s in range(seeds)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = [r for some in pool.map(estimates, tasks) for r in some]
    facts = {"seeds": seeds, "estimates": summary(found)}
    path = ROOT / "benchmarks" / "results" / "active_estimates.json"
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for row in facts["estimates"]:
        sys.stdout.write(
            f"{row['kind']:22s}{row['strategy']:8s}{row['stage']} real {100 * row['real']:5.1f} "
            f"bias {100 * row['bias']:5.1f} off {100 * row['off']:4.1f} inside {100 * row['inside']:3.0f} "
            f"width {100 * row['width']:4.1f} plain posterior {100 * row['posterior']:5.1f}\n"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
