"""Which strategy is the default: simulated crowds alone decide.

    python benchmarks/active_battery.py [seeds]

Eight kinds of crowds, half of them votes that are replayed (only some pairs can be asked), half with everybody there
for everything; two streams; with prices, where experts cost five times as much as others, and without. And crowds like
those of five real sets: the same people are asked about the same items, with class shares and confusion matrices fitted
to the votes (``anchored``), but the truth and all answers are drawn anew; the real truth is not looked at. For each
strategy the mean share of the votes (with prices: of the money that all votes cost) at which its accuracy first
reaches that of a batch fit of all votes less half a point, and the mean accuracy over the first half of the money.
Writes benchmarks/results/active_battery.json.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise import registry
from crowdwise.active.replays import replay
from crowdwise.active.strategies import Strategy
from crowdwise.bench.runs import data_folder
from crowdwise.simulate.crowds import answer

ROOT = Path(__file__).resolve().parents[1]
RULES: dict[str, Strategy | str] = {
    "random": "random",
    "entropy-random": "entropy-random",
    "tutorial": "tutorial",
    "thompson": "thompson",
    "information": "information",
    "information, drawn": Strategy(annotators="thompson", per_price=False, trial_votes=0.0, spread=0.0),
    "information per price": Strategy(annotators="greedy", trial_votes=0.0, spread=0.0),
    "information per price, drawn": Strategy(annotators="thompson", trial_votes=0.0, spread=0.0),
    "error reduction": Strategy(
        annotators="greedy", value="error-reduction", per_price=False, trial_votes=0.0, spread=0.0
    ),
    "value": "value",
}
METHODS = ("dawid-skene", "one-coin")


def crowd(kind: str, seed: int) -> cw.simulate.Simulated:
    """A crowd; names that begin with ``all`` have every vote."""
    s: dict[str, Any] = {"random_state": seed}
    kinds = {
        "four classes": lambda: cw.simulate.dirichlet(500, n_annotators=50, n_classes=4, votes_per_item=8, **s),
        "two kinds of errors": lambda: cw.simulate.two_coin(500, n_annotators=60, votes_per_item=8, **s),
        "spammers": lambda: cw.simulate.hammer_spammer(500, n_annotators=40, accuracy=0.85, votes_per_item=8, **s),
        "hard items": lambda: cw.simulate.difficulty(500, n_annotators=40, votes_per_item=8, **s),
        "all, four classes": lambda: cw.simulate.dirichlet(150, n_annotators=25, n_classes=4, **s),
        "all, two kinds of errors": lambda: cw.simulate.two_coin(150, n_annotators=25, **s),
        "all, spammers": lambda: cw.simulate.hammer_spammer(150, n_annotators=25, accuracy=0.85, **s),
        "all, hard items": lambda: cw.simulate.difficulty(150, n_annotators=25, **s),
    }
    return kinds[kind]()


def like(name: str, seed: int) -> cw.simulate.Simulated:
    """A crowd like that of a real set of votes."""
    votes, fit = fitted(name)
    rng, pi, theta = np.random.default_rng([seed, 7]), np.asarray(fit.prior), np.asarray(fit.confusion)
    truth = rng.choice(len(pi), size=len(votes), p=pi / pi.sum())
    drawn = cw.Votes.from_codes(
        votes.item, votes.annotator, answer(theta, votes.annotator, truth[votes.item], rng), items=votes.items,
        annotators=votes.annotators, classes=votes.classes, truth=truth,
    )  # fmt: skip
    return cw.simulate.Simulated(f"like {name}", drawn, {"prior": pi, "confusion": theta})


@cache
def fitted(name: str) -> tuple[cw.Votes, cw.Consensus]:
    votes = cw.read_dataset(data_folder() / name, on_duplicate="first").votes
    return votes, cw.aggregate(votes, "anchored")


LIKE = ("dog", "web", "rte", "bluebird", "trec2010_binary")
KINDS = (
    "four classes", "two kinds of errors", "spammers", "hard items",
    "all, four classes", "all, two kinds of errors", "all, spammers", "all, hard items",
)  # fmt: skip


def prices(made: cw.simulate.Simulated) -> Any:
    """The best fifth of the annotators cost 5, others 1."""
    w = made.parameters["accuracy"]
    return np.where(w >= np.quantile(w, 0.8), 5.0, 1.0)


def measure(task: tuple[str, str, bool, int]) -> list[dict[str, Any]]:
    kind, method, priced, seed = task
    made = like(kind.removeprefix("like "), seed) if kind.startswith("like ") else crowd(kind, seed)
    price = prices(made) if priced else np.ones(made.votes.n_annotators)
    whole = float(price[made.votes.annotator].sum())
    target = cw.aggregate(made.votes, method).score(made.truth) - 0.005
    rows = []
    for name, rule in RULES.items():
        curve = replay(
            made.votes, made.truth, lambda: registry.create(method), rule, price=price, batch=0.02, random_state=seed
        )
        at = np.linspace(0.02, 0.5, 25) * whole
        rows.append({
            "kind": kind, "method": method, "priced": priced, "seed": seed, "strategy": name,
            "share": min(curve.first_at(target, "cost") / whole, 1.0),
            "accuracy": float(np.interp(at, curve.cost, curve.accuracy).mean()),
        })  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]], what: str) -> dict[str, dict[str, float]]:
    """Strategy -> replayed, all there, the same with prices, like real sets, and the mean of these -> mean."""
    out: dict[str, dict[str, float]] = {}
    for name in RULES:
        parts: dict[str, list[float]] = {}
        for r in (r for r in rows if r["strategy"] == name):
            part = "all there" if r["kind"].startswith("all") else "replayed"
            part = "like real sets" if r["kind"].startswith("like") else part + ", prices" * r["priced"]
            parts.setdefault(part, []).append(r[what])
        out[name] = {part: float(np.mean(values)) for part, values in parts.items()}
        out[name]["mean"] = float(np.mean(list(out[name].values())))
    return out


def main(seeds: int) -> None:
    tasks = [(k, m, p, s) for p in (False, True) for s in range(seeds) for k in KINDS for m in METHODS]
    tasks += [(f"like {name}", "dawid-skene", False, s) for s in range(seeds) for name in LIKE]
    with ProcessPoolExecutor(2) as pool:
        rows = [row for some in pool.map(measure, tasks) for row in some]
    facts = {"seeds": seeds, "share": table(rows, "share"), "accuracy": table(rows, "accuracy")}
    path = ROOT / "benchmarks" / "results" / "active_battery.json"
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for what in ("share", "accuracy"):
        sys.stdout.write(f"{what}\n")
        for name, cells in facts[what].items():
            sys.stdout.write(f"  {name:30s} " + " ".join(f"{100 * v:6.1f}" for v in cells.values()) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
