"""``stacked`` beside fixed methods: on simulated crowds, where it was made, and on real ones, where it is measured.

    python benchmarks/stacked.py measure [--data DIR] [--simulated SEEDS]    benchmarks/results/stacked.json
    python benchmarks/stacked.py page                                       docs/benchmarks/stacked.md, from that file

Figures of fixed methods on real sets come from ``benchmarks/results/labels.json`` (``crowdwise bench``); those
that it lacks are measured here, with the same call.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise import registry
from crowdwise.bench import runs

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks" / "stacked.md"
BESIDE = ("majority", "anchored", "dawid-skene", "fast-dawid-skene", "one-coin", "mace")
Votes = cw.Votes


# -------------------------------------------------------------------- simulated crowds


def collect(item: Any, who: Any, label: Any, truth: Any, M: int, K: int) -> Votes:
    names = {"items": range(len(truth)), "annotators": range(M), "classes": range(K)}
    return Votes.from_codes(item, who, label, truth=np.asarray(truth, dtype=np.int32), **names)


def assigned(N: int, M: int, r: float, rng: np.random.Generator, busy: float = 0.8) -> tuple[Any, Any]:
    """About r annotators for each item, some much busier than others: the rank's power, by Gumbel's trick."""
    size = np.floor(r + rng.random(N)).astype(int).clip(1)
    key = rng.gumbel(size=(N, M)) - busy * np.log(np.arange(1, M + 1))
    order = np.argsort(-key, axis=1)
    return np.repeat(np.arange(N), size), np.concatenate([order[n, : size[n]] for n in range(N)])


def answers(theta: Any, pi: Any, N: int, r: float, rng: np.random.Generator, kinds: Any = None) -> Votes:
    """Votes from matrices theta[m, kind, label]; ``kinds`` maps a kind of item to its class."""
    M, G, K = theta.shape
    kind = rng.choice(G, size=N, p=np.asarray(pi) / np.sum(pi))
    item, who = assigned(N, M, r, rng)
    edge = np.cumsum(theta[who, kind[item]], axis=1)
    label = (rng.random(len(item))[:, None] >= edge).sum(axis=1).clip(0, K - 1)
    return collect(item, who, label, kind if kinds is None else np.asarray(kinds)[kind], M, K)


def graded(groups: Any, cuts: Any, N: int, rng: np.random.Generator) -> Votes:
    """Items on a line, classes between cuts; annotators in groups: size, votes, leniency and spread, noise, spam."""
    x, K = rng.normal(size=N), len(cuts) + 1
    parts, first = [], 0
    for M, r, lenient, spread, noise, spam in groups:
        item, who = assigned(N, M, r, rng, 0.5)
        shift, own = rng.normal(lenient, spread, M), rng.gamma(6.0, noise / 6.0, M)
        label = np.digitize(x[item] + shift[who] + own[who] * rng.normal(size=len(item)), cuts)
        favourite = np.cumsum(rng.dirichlet(np.full(K, 0.5), M), axis=1)[who]
        habit = (rng.random(len(item))[:, None] >= favourite).sum(axis=1).clip(0, K - 1)
        label = np.where((rng.random(M) < spam)[who], habit, label)
        parts.append((item, who + first, label))
        first += M
    item, who, label = (np.concatenate(column) for column in zip(*parts, strict=True))
    return collect(item, who, label, np.digitize(x, cuts), first, K)


def matrices(M: int, alpha: Any, rng: np.random.Generator) -> Any:
    return np.stack([[rng.dirichlet(row) for row in alpha] for _ in range(M)])


def coins(w: Any, K: int) -> Any:
    return np.where(np.eye(K, dtype=bool), w[:, None, None], (1.0 - w[:, None, None]) / (K - 1))


def habits(M: int, K: int, rng: np.random.Generator, a: float = 1.0, b: float = 1.0) -> Any:
    t, x = rng.beta(a, b, M)[:, None, None], rng.dirichlet(np.full(K, 0.8), M)[:, None, :]
    return t * np.eye(K) + (1.0 - t) * x


def yes(p: Any) -> Any:
    """Two labels from the probability of the second, M x kinds."""
    return np.stack([1.0 - p, p], axis=2)


def spammed(theta: Any, share: float, rng: np.random.Generator) -> Any:
    K = theta.shape[2]
    return np.where(
        (rng.random(len(theta)) < share)[:, None, None], rng.dirichlet(np.ones(K), len(theta))[:, None], theta
    )


KINDS: dict[str, Callable[[np.random.Generator], Votes]] = {
    "one accuracy each, 2 classes": lambda r: answers(coins(r.beta(4, 2, 60), 2), [1, 1], 800, 4, r),
    "one accuracy each, 5 classes": lambda r: answers(coins(r.beta(3, 2.5, 60), 5), np.ones(5), 800, 4, r),
    "full matrices, 3 classes": lambda r: answers(matrices(40, 1 + 4 * np.eye(3), r), [3, 2, 1], 800, 5, r),
    "full matrices, 8 classes": lambda r: answers(matrices(60, 0.5 + 4 * np.eye(8), r), np.ones(8), 800, 2.5, r),
    "15 classes, 1.3 votes": lambda r: answers(matrices(100, 0.3 + 4 * np.eye(15), r), np.ones(15), 1500, 1.3, r),
    "favourite labels": lambda r: answers(habits(150, 3, r), [0.45, 0.45, 0.1], 1200, 5, r),
    "half spammers": lambda r: answers(spammed(matrices(60, 1 + 6 * np.eye(4), r), 0.5, r), np.ones(4), 800, 5, r),
    "adversaries": lambda r: answers(
        coins(np.where(np.arange(50) % 6 == 3, 0.15, r.beta(5, 2, 50)), 2), [1, 1], 800, 6, r
    ),
    "rare matches": lambda r: answers(
        yes(np.stack([r.beta(2, 20, 120), r.beta(3, 2, 120)], axis=1)), [0.88, 0.12], 2500, 3, r
    ),
    "rare matches, near misses": lambda r: answers(
        yes(np.stack([r.beta(1.5, 40, 120), r.beta(4, 6, 120), r.beta(10, 2, 120), r.beta(3, 3, 120)], axis=1)),
        [0.7, 0.18, 0.06, 0.06], 2500, 3, r, [0, 0, 1, 1],
    ),
    "grades, personal thresholds": lambda r: graded([(120, 6, 0.0, 0.5, 0.7, 0.25)], [-1, -0.4, 0.2, 0.8], 1200, r),
    "grades, few careful annotators": lambda r: graded(
        [(9, 3, 0.0, 0.1, 0.35, 0.0), (130, 3, 0.5, 0.5, 0.9, 0.3)], [-0.9, -0.3, 0.3, 0.9], 1200, r
    ),
    "a class in between, few votes each": lambda r: graded([(400, 4, 0.0, 0.4, 0.7, 0.1)], [-0.25, 0.25], 1500, r),
    "hard items": lambda r: cw.simulate.difficulty(
        800, n_annotators=50, n_classes=3, votes_per_item=5, random_state=r
    ).votes,
    "colluders": lambda r: cw.simulate.colluders(
        800, n_annotators=40, n_classes=3, share=0.25, votes_per_item=6, random_state=r
    ).votes,
    "groups": lambda r: cw.simulate.groups(800, n_annotators=40, n_classes=3, votes_per_item=8, random_state=r).votes,
}  # fmt: skip


def simulated(seeds: int) -> dict[str, dict[str, float]]:
    """Mean accuracy of each method by kind of crowd."""
    out = {}
    for name, make in KINDS.items():
        rows = []
        for seed in range(seeds):
            votes = make(np.random.default_rng([seed, len(name)]))
            rows.append([cw.aggregate(votes, key, random_state=0).score(votes.truth) for key in ("stacked", *BESIDE)])
        out[name] = dict(zip(("stacked", *BESIDE), np.mean(rows, axis=0).tolist(), strict=True))
        sys.stderr.write(f"{name}: {out[name]}\n")
    return out


# -------------------------------------------------------------------- real crowds


def measure(folder: Path, seeds: int) -> dict[str, Any]:
    earlier = json.loads((RESULTS / "labels.json").read_text(encoding="utf-8"))["result"]
    names = runs.find_sets(folder)
    cells = {(c["data"], c["method"]): c for c in earlier["cells"] if c["data"] in names}
    here = [key for key in registry.METHODS if key == "stacked" or any((name, key) not in cells for name in names)]
    notes = {}
    for cell in runs.run(folder, names, here, progress=lambda *what: sys.stderr.write(f"{what}\n")):
        cells[cell.data, cell.method] = cell.as_dict()
    for name in names:
        votes = cw.read_dataset(folder / name, on_duplicate="all").votes
        notes[name] = " ".join(cw.aggregate(votes, "stacked").notes)
    accuracy = {
        key: {name: cells[name, key]["accuracy"] for name in names}
        for key in registry.METHODS
        if key != "gold-weighted"
    }
    seconds = {name: cells[name, "stacked"]["seconds"] for name in names}
    return {"data": names, "measured_here": here, "accuracy": accuracy, "seconds": seconds, "notes": notes,
            "simulated": simulated(seeds), "seeds": seeds}  # fmt: skip


# -------------------------------------------------------------------- the page

WORDS = """# `stacked` and fixed methods

`stacked` was the default before [`auto`](calibration.md) took its place; this page was written then.

Written by `benchmarks/stacked.py`. Accuracy in percent, ties split; every method with its defaults.

Its defaults were chosen on simulated crowds and on crowds drawn from models fitted to the *votes* of real sets, with
the [table of single methods](labels.md) in view. The truth of the real sets was used four times, each time after the
defaults had been fixed: the best single model (mean 82.8) led to averages, averages (82.9) to weighted vote shares,
these (83.0) to the simplest model for items with a single annotator, and the fourth time gave the figures below. So
they are not blind: differences of a few tenths are not meaningful.
"""


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:.1f}"


def page(facts: dict[str, Any]) -> str:
    names, accuracy = facts["data"], facts["accuracy"]
    whole = {key: row for key, row in accuracy.items() if all(row[name] is not None for name in names)}
    mean = {key: float(np.mean(list(row.values()))) for key, row in whole.items()}
    ranked = sorted(mean, key=lambda key: -mean[key])
    best = next(key for key in ranked if key != "stacked")
    shown = list(dict.fromkeys(["stacked", "majority", "anchored", best]))
    rows = [
        [name, *(percent(accuracy[key][name]) for key in shown),
         f"{100 * (accuracy['stacked'][name] - accuracy['majority'][name]):+.1f}", f"{facts['seconds'][name]:.1f}"]
        for name in names
    ]  # fmt: skip
    rows.append(["**mean**", *(percent(mean[key]) for key in shown),
                 f"{100 * (mean['stacked'] - mean['majority']):+.1f}", ""])  # fmt: skip
    worst = min(names, key=lambda name: accuracy["stacked"][name] - accuracy["majority"][name])
    gap = 100 * (accuracy["stacked"][worst] - accuracy["majority"][worst])
    place = ranked.index("stacked") + 1
    said = (
        f"By mean accuracy `stacked` is number {place} of {len(ranked)} methods that take every set: "
        f"{100 * mean['stacked']:.2f}, beside {100 * mean[best]:.2f} of `{best}`, the best fixed one, and "
        f"{100 * mean['anchored']:.2f} of `anchored`. Its lowest figure relative to the majority is {gap:+.1f} "
        f"points, on {worst}. The truth of convarg_pairs is itself an "
        "estimate by `mace`, and s_adult has 333 items with truth."
    )
    made = facts["simulated"]
    keys = ["stacked", *BESIDE]
    rows_made = [[name, *(percent(made[name][key]) for key in keys)] for name in made]
    average = {key: float(np.mean([row[key] for row in made.values()])) for key in keys}
    rows_made.append(["**mean**", *(percent(average[key]) for key in keys)])
    return (
        "\n\n".join(
            [
                WORDS.strip(),
                "## Real crowds",
                said,
                table(["data", *(f"`{key}`" for key in shown), "above the majority", "seconds"], rows),
                f"## Simulated crowds\n\n{facts['seeds']} draws of each type.",
                table(["crowd", *(f"`{key}`" for key in keys)], rows_made),
            ]
        )
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["measure", "page"])
    parser.add_argument("--data", type=Path, default=runs.data_folder())
    parser.add_argument("--simulated", type=int, default=2, help="draws of each kind of simulated crowd")
    given = parser.parse_args()
    kept = RESULTS / "stacked.json"
    if given.what == "measure":
        kept.write_text(json.dumps(measure(given.data, given.simulated), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(json.loads(kept.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
