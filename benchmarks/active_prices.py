"""Prices, and estimates of accuracy without truth, on simulated crowds.

    python benchmarks/active_prices.py [seeds]

**Prices.** Experts cost five times as much as ordinary annotators, spammers next to nothing, and everybody is there for
everything: what it costs to reach an accuracy by value per price, and by asking anybody about the most uncertain items.
Where it is not reached with 40 % of all votes, what these cost is counted.

**Estimates.** What a stream believes of its accuracy (``estimate_accuracy``: on items with votes) beside what it is,
on crowds of several kinds, chosen at random or by the default strategy, after so many votes per item.

Writes benchmarks/results/active_prices.json.
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
from crowdwise.active.beliefs import Beliefs, Pairs, Roster
from crowdwise.active.replay import replay
from crowdwise.active.stop import estimate_accuracy
from crowdwise.active.strategy import DEFAULT, strategy
from crowdwise.data.crowds import answer, one_coin_confusion

ROOT = Path(__file__).resolve().parents[1]
CROWDS: dict[str, dict[str, tuple[int, float, float]]] = {  # how many, how often right, price of a vote
    "experts and spammers": {"expert": (6, 0.95, 5.0), "ordinary": (12, 0.8, 1.0), "spammer": (12, 0.5, 0.5)},
    "mostly spammers": {"expert": (4, 0.95, 5.0), "ordinary": (10, 0.8, 1.0), "spammer": (26, 0.5, 0.5)},
    "spammers nearly free": {"expert": (6, 0.95, 5.0), "ordinary": (12, 0.75, 1.0), "spammer": (12, 0.5, 0.2)},
}
TARGETS = (0.9, 0.95, 0.98)
METHODS = ("one-coin", "dawid-skene")
RULES = ("random", "entropy-random", "information", "value")


def priced(crowd: str, seed: int, n_items: int = 600) -> tuple[cw.Votes, Any]:
    """Everybody's vote on every item of two classes, and what a vote of each costs."""
    rng = np.random.default_rng(seed)
    kinds = CROWDS[crowd]
    kind = rng.permutation([name for name, (many, _, _) in kinds.items() for _ in range(many)])
    theta = one_coin_confusion(np.array([kinds[k][1] for k in kind]), 2)
    truth, M = rng.integers(0, 2, n_items), len(kind)
    item, who = np.repeat(np.arange(n_items), M), np.tile(np.arange(M), n_items)
    votes = cw.Votes.from_codes(
        item, who, answer(theta, who, truth[item], rng), items=np.arange(n_items), annotators=np.arange(M),
        classes=[0, 1], truth=truth,
    )  # fmt: skip
    return votes, np.array([kinds[k][2] for k in kind])


def money(task: tuple[str, str, int]) -> list[dict[str, Any]]:
    crowd, method, seed = task
    votes, price = priced(crowd, seed)
    rows = []
    for how in RULES:
        curve = replay(
            votes, votes.truth, lambda: registry.create(method), how, price=price, batch=0.01, budget=0.4,
            random_state=seed,
        )  # fmt: skip
        cost = {str(t): min(curve.first_at(t, "cost"), float(curve.cost[-1])) for t in TARGETS}
        missed = {str(t): bool(curve.first_at(t) == np.inf) for t in TARGETS}
        rows.append({"crowd": crowd, "method": method, "seed": seed, "strategy": how, "cost": cost, "missed": missed})
    return rows


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
    """What is believed and what is, at each stage."""
    kind, method, how, seed = task
    made = KINDS[kind](seed)
    votes, rule, rng = made.votes, strategy(how), np.random.default_rng(seed)
    N, M = len(votes), votes.n_annotators
    online = rule.stream(registry.create(method), votes.classes.tolist())
    items, people = Roster(votes.items.tolist(), "items"), Roster(votes.annotators.tolist(), "annotators")
    asked, rows = np.zeros(votes.n_votes, dtype=bool), []
    for stage in np.arange(1, 2 * STAGES[-1] + 1) / 2:
        left = np.flatnonzero(~asked)
        seen = Beliefs.of(
            online, items=items, annotators=people, possible=Pairs.of(votes.item[left], votes.annotator[left], N)
        )
        some = rule.propose(seen, N // 2, rng)
        chosen = np.zeros(votes.n_votes, dtype=bool)
        chosen[np.searchsorted(votes.item * M + votes.annotator, some.item * M + some.annotator)] = True
        asked |= chosen
        new = votes.select(chosen)
        online.partial_fit(new[np.flatnonzero(np.diff(new.indptr) > 0)])
        if stage in STAGES:
            found = estimate_accuracy(online)
            q, _ = online.opinions()
            right = q.argmax(axis=1) == made.truth[items.place(online.ledger.items)]
            rows.append({
                "kind": kind, "method": method, "strategy": how, "stage": int(stage), "estimate": found.accuracy,
                "real": float(right.mean()), "posterior": float(q.max(axis=1).mean()),
                "inside": bool(found.low <= right.mean() <= found.high),
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
                    "posterior": float(np.mean([r["posterior"] - r["real"] for r in some])),
                    "real": float(np.mean([r["real"] for r in some])),
                })  # fmt: skip
    return out


def main(seeds: int) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        jobs = [(c, m, s) for c in CROWDS for m in METHODS for s in range(seeds)]
        paid = [r for some in pool.map(money, jobs) for r in some]
        tasks = [(k, m, h, s) for k in KINDS for m in METHODS for h in ("random", DEFAULT) for s in range(seeds)]
        found = [r for some in pool.map(estimates, tasks) for r in some]
    cost: dict[str, Any] = {}
    for crowd in CROWDS:
        for method in METHODS:
            for how in RULES:
                some = [r for r in paid if (r["crowd"], r["method"], r["strategy"]) == (crowd, method, how)]
                cost.setdefault(f"{crowd}, {method}", {})[how] = {
                    t: {
                        "cost": float(np.mean([r["cost"][t] for r in some])),
                        "missed": sum(r["missed"][t] for r in some),
                    }
                    for t in map(str, TARGETS)
                }
    facts = {"seeds": seeds, "cost": cost, "estimates": summary(found)}
    path = ROOT / "benchmarks" / "results" / "active_prices.json"
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for name, by in cost.items():
        for how, cells in by.items():
            shown = " ".join(f"{c['cost']:7.0f} ({c['missed']})" for c in cells.values())
            sys.stdout.write(f"{name:36s}{how:16s}{shown}\n")
    for row in facts["estimates"]:
        sys.stdout.write(
            f"{row['kind']:22s}{row['strategy']:8s}{row['stage']} real {100 * row['real']:5.1f} "
            f"bias {100 * row['bias']:5.1f} off {100 * row['off']:4.1f} inside {100 * row['inside']:3.0f} "
            f"plain posterior {100 * row['posterior']:5.1f}\n"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
