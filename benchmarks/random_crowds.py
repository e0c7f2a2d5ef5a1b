"""Methods on crowds drawn at random: how many items, annotators, classes and votes, and what kinds of annotators.

    python benchmarks/random_crowds.py [--crowds 600] [--jobs 2] [--out benchmarks/results/random_crowds.json]
    python benchmarks/random_crowds.py --crowds 240 --votes-per-item 1 --out benchmarks/results/single_votes.json

No crowd is chosen: sizes are drawn evenly on a logarithmic scale, everything else as :func:`crowd` says. What is
written is the mean over the crowds of each size; ``benchmarks/calibration.py`` puts it on its page.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

import crowdwise as cw

OUT = Path(__file__).resolve().parent / "results" / "random_crowds.json"
METHODS = ("auto", "anchored", "stacked", "majority", "one-coin", "dawid-skene")
KINDS = {"usual": 0.70, "random": 0.10, "one answer": 0.05, "adversary": 0.02, "biased": 0.08, "copies": 0.05}
SIZES = ((12, 30), (30, 100), (100, 400), (400, 1500))
FLOOR = 1e-6


def crowd(seed: int) -> tuple[cw.Votes, Any]:
    """Votes and classes. In 30 % of the crowds all annotators are usual ones; on a hard item six votes in ten are for
    one and the same wrong class; one who copies gives the first answer that others gave to the item."""
    rng = np.random.default_rng(seed)
    K = int(rng.choice([2, 2, 3, 4, 5, 8, 12]))
    N, M = (int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in ((12, 1500), (3, 150)))
    truth = rng.choice(K, N, p=rng.dirichlet(np.full(K, rng.choice([0.5, 2.0, 20.0]))))
    per_item = rng.uniform(1, 7)
    busy = rng.pareto(1.2, M) + 0.05 if rng.random() < 0.6 else np.ones(M)
    kinds = rng.choice(list(KINDS), M, p=list(KINDS.values())) if rng.random() < 0.7 else np.full(M, "usual")
    mean, votes_known = rng.choice([0.5, 0.65, 0.75, 0.85, 0.93]), rng.choice([3, 10, 40])
    theta = np.stack([matrix(kind, mean, votes_known, K, rng) for kind in kinds])
    hard, wrong = rng.random(N) < rng.choice([0.0, 0.0, 0.1, 0.3]), (truth + 1 + rng.integers(0, K - 1, N)) % K
    rows = []
    for n in range(N):
        said: list[int] = []
        count = min(M, 1 + rng.poisson(per_item - 1))
        for m in rng.choice(M, count, replace=False, p=busy / busy.sum()):
            misled = hard[n] and rng.random() < 0.6
            answer = int(wrong[n] if misled else rng.choice(K, p=theta[m, truth[n]]))
            said.append(said[0] if said and kinds[m] == "copies" else answer)
            rows.append((n, int(m), said[-1]))
    item, who, label = np.array(rows).T
    return cw.Votes.from_codes(item, who, label, items=range(N), annotators=range(M), classes=range(K)), truth


def matrix(kind: str, mean: float, known: float, K: int, rng: np.random.Generator) -> Any:
    """K x K, truth by answer."""
    right = max(1.0 / K, rng.beta(mean * known, (1.0 - mean) * known))
    theta = right * np.eye(K) + (1.0 - right) * rng.dirichlet(np.ones(K), size=K)
    if kind == "random":
        theta[:] = rng.dirichlet(np.ones(K))
    elif kind == "one answer":
        theta[:] = np.eye(K)[rng.integers(K)]
    elif kind == "adversary":
        theta = np.roll(0.8 * np.eye(K) + 0.2 / K, 1, axis=1)
    elif kind == "biased":
        theta = 0.6 * theta + 0.4 * np.eye(K)[rng.integers(K)]
    return theta / theta.sum(axis=1, keepdims=True)


def few_votes(votes: cw.Votes, most: int, seed: int) -> cw.Votes:
    """At most so many votes of each item, drawn at random."""
    order = np.random.default_rng(seed).permutation(votes.n_votes)
    order = order[np.argsort(votes.item[order], kind="stable")]
    place = np.arange(votes.n_votes) - votes.indptr[votes.item[order]]
    return votes.select(np.isin(np.arange(votes.n_votes), order[place < most]))


def figures(seed: int, most: int | None = None) -> dict[str, Any]:
    """Accuracy, log loss, and what the probabilities expect beyond the accuracy, of each method."""
    votes, truth = crowd(seed)
    votes = votes if most is None else few_votes(votes, most, seed)
    row: dict[str, Any] = {"items": len(votes)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key in METHODS:
            found = cw.aggregate(votes, key)
            q, right = found.posterior, float((found.label_codes == truth).mean())
            loss = -np.log(np.maximum(q[np.arange(len(truth)), truth], FLOOR)).mean()
            row[key] = [right, float(loss), float(q.max(axis=1).mean()) - right]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--crowds", type=int, default=600)
    parser.add_argument("--votes-per-item", type=int, help="Keep at most so many votes of each item.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    rows, work = [], partial(figures, most=given.votes_per_item)
    with get_context("spawn").Pool(given.jobs) as pool:
        for row in pool.imap_unordered(work, range(given.crowds), chunksize=4):
            rows.append(row)
            if len(rows) % 50 == 0:
                print(len(rows), "crowds", flush=True)
    sizes = []
    for low, high in (*SIZES, (SIZES[0][0], SIZES[-1][1])):
        some = [row for row in rows if low <= row["items"] < high]
        means = {key: np.mean([row[key] for row in some], axis=0).round(4).tolist() for key in METHODS}
        sizes.append({"items": [low, high], "crowds": len(some), **means})
    given.out.write_text(json.dumps(sizes, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
