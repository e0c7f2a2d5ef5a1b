"""Prices on simulated crowds.

    python benchmarks/active_prices.py [seeds]

Experts cost five times as much as ordinary annotators, spammers next to nothing, and everybody is there for
everything: what it costs to reach an accuracy by value per price, and by asking anybody about the most uncertain items;
and what it would cost by value per price if all confusion matrices were known (``KNOWN``: only the choice knows them;
the stream still has to learn). Where it is not reached with 40 % of all votes, what these cost is counted, and how
often that was so. Writes benchmarks/results/active_prices.json.
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
from crowdwise.active.acquisition import AnnotatorRule
from crowdwise.active.replays import replay
from crowdwise.active.state import Proposal, State
from crowdwise.active.strategies import Strategy
from crowdwise.core.constraints import declared
from crowdwise.simulate.crowds import answer, one_coin_confusion

ROOT = Path(__file__).resolve().parents[1]
CROWDS: dict[str, dict[str, tuple[int, float, float]]] = {  # how many, how often right, price of a vote
    "experts and spammers": {"expert": (6, 0.95, 5.0), "ordinary": (12, 0.8, 1.0), "spammer": (12, 0.5, 0.5)},
    "mostly spammers": {"expert": (4, 0.95, 5.0), "ordinary": (10, 0.8, 1.0), "spammer": (26, 0.5, 0.5)},
    "spammers nearly free": {"expert": (6, 0.95, 5.0), "ordinary": (12, 0.75, 1.0), "spammer": (12, 0.5, 0.2)},
    "four classes": {"expert": (6, 0.95, 5.0), "ordinary": (12, 0.7, 1.0), "spammer": (12, 0.25, 0.5)},
}
CLASSES = {"four classes": 4}
"""Others have two."""
TARGETS = (0.9, 0.95, 0.98)
METHODS = ("one-coin", "dawid-skene")
KNOWN = "matrices known"
RULES = ("random", "entropy-random", "information", "value", KNOWN)


@declared
class Known(Strategy):
    """Value per price where all confusion matrices are known."""

    theta: Any = None
    annotators: AnnotatorRule = "greedy"
    trial_votes: float = 0.0
    spread: float = 0.0

    def propose(self, state: State, n: int, random_state: Any = 0) -> Proposal:
        return super().propose(state.replace(dirichlet=1e6 * self.theta + 1e-3), n, random_state)


def priced(crowd: str, seed: int, n_items: int = 600) -> tuple[cw.Votes, Any, Any]:
    """Everybody's vote on every item, what a vote of each costs, and the confusion matrices."""
    rng, K = np.random.default_rng(seed), CLASSES.get(crowd, 2)
    kinds = CROWDS[crowd]
    kind = rng.permutation([name for name, (many, _, _) in kinds.items() for _ in range(many)])
    theta = one_coin_confusion(np.array([kinds[k][1] for k in kind]), K)
    truth, M = rng.integers(0, K, n_items), len(kind)
    item, who = np.repeat(np.arange(n_items), M), np.tile(np.arange(M), n_items)
    votes = cw.Votes.from_codes(
        item, who, answer(theta, who, truth[item], rng), items=np.arange(n_items), annotators=np.arange(M),
        classes=list(range(K)), truth=truth,
    )  # fmt: skip
    return votes, np.array([kinds[k][2] for k in kind]), theta


def money(task: tuple[str, str, int]) -> list[dict[str, Any]]:
    crowd, method, seed = task
    votes, price, theta = priced(crowd, seed)
    rows = []
    for how in RULES:
        curve = replay(
            votes, votes.truth, lambda: registry.create(method), Known(theta=theta) if how == KNOWN else how,
            price=price, batch=0.01, share=0.4, random_state=seed,
        )  # fmt: skip
        cost = {str(t): min(curve.first_at(t, "cost"), float(curve.cost[-1])) for t in TARGETS}
        missed = {str(t): bool(curve.first_at(t) == np.inf) for t in TARGETS}
        rows.append({"crowd": crowd, "method": method, "seed": seed, "strategy": how, "cost": cost, "missed": missed})
    return rows


def costs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Crowd and stream -> strategy -> accuracy -> mean cost, and how often it was not reached."""
    out: dict[str, Any] = {}
    for crowd in CROWDS:
        for method in METHODS:
            for how in RULES:
                some = [r for r in rows if (r["crowd"], r["method"], r["strategy"]) == (crowd, method, how)]
                out.setdefault(f"{crowd}, {method}", {})[how] = {
                    t: {
                        "cost": float(np.mean([r["cost"][t] for r in some])),
                        "missed": sum(r["missed"][t] for r in some),
                    }
                    for t in map(str, TARGETS)
                }
    return out


def main(seeds: int) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        jobs = [(c, m, s) for c in CROWDS for m in METHODS for s in range(seeds)]
        facts = {"seeds": seeds, "cost": costs([r for some in pool.map(money, jobs) for r in some])}
    path = ROOT / "benchmarks" / "results" / "active_prices.json"
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for name, by in facts["cost"].items():
        for how, cells in by.items():
            shown = " ".join(f"{c['cost']:7.0f} ({c['missed']})" for c in cells.values())
            sys.stdout.write(f"{name:36s}{how:16s}{shown}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
