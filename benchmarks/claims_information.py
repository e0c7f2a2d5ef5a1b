"""Max-MIG's claims: mistakes that are copied, a naive majority, one expert among a hundred copies of a coin.

    python benchmarks/claims_information.py [--seeds 5] [--out benchmarks/results/claims_information.json]

The experts are the paper's ten-class ones (``simulate.max_mig``, dataset ``cifar``); the images are scikit-learn's
digits, each item a digit of the class that was drawn. All annotators label every item. Last epoch, default settings.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

import crowdwise as cw
from crowdwise import registry

CASES = ("independent", "naive", "copied")
LEARNERS = ("max-mig", "aggnet", "crowd-layer", "two-stage")


def digits_crowd(case, expertise, seed, n_items=1000):
    """Inputs, votes, and inputs and truth to test on (unlabelled digits)."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    train, test = order[:1300], order[1300:]
    crowd = cw.simulate.max_mig(n_items, dataset="cifar", expertise=expertise, case=case, random_state=seed)
    pools = {k: rng.permutation(train[y[train] == k]) for k in range(10)}
    taken = dict.fromkeys(range(10), 0)
    rows = np.empty(n_items, dtype=np.int64)
    for n, k in enumerate(crowd.truth.tolist()):
        rows[n] = pools[k][taken[k] % len(pools[k])]
        taken[k] += 1
    return X[rows].astype(np.float32), crowd.votes, X[test].astype(np.float32), y[test]


def coin_crowd(seed, n_items=1000):
    """Example E.2: the input is the truth, one annotator knows it, a hundred repeat one and the same coin."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=n_items)
    X = np.column_stack([2.0 * truth - 1.0, rng.normal(size=(n_items, 4))]).astype(np.float32)
    labels = np.repeat(rng.integers(2, size=n_items)[:, None], 101, axis=1)
    labels[:, 0] = truth
    return X, cw.Votes.from_dense(labels), X, truth


def measure(X, votes, X_test, y_test, key, seed, **settings):
    learner = registry.find(key, inputs=True).create(random_state=seed, **settings).fit(X, votes)
    found = learner.predict_proba(X_test).argmax(axis=1)
    return 100.0 * float((found == y_test).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learners", default=",".join(LEARNERS))
    parser.add_argument("--settings", default="{}", help="JSON of settings for max-mig")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = json.loads(given.settings)
    table = {}
    for expertise in ("high", "low"):
        for case in CASES:
            for key in given.learners.split(","):
                began = time.perf_counter()
                more = settings if key == "max-mig" else {}
                scores = [measure(*digits_crowd(case, expertise, s), key, s, **more) for s in range(given.seeds)]
                table[f"{expertise} {case} {key}"] = scores
                print(f"{expertise:5} {case:12} {key:12} {np.mean(scores):6.2f} ± {np.std(scores):.2f}"
                      f"  ({(time.perf_counter() - began) / given.seeds:.1f} s)", flush=True)  # fmt: skip
    for key in given.learners.split(","):
        scores = [measure(*coin_crowd(s), key, s, **(settings if key == "max-mig" else {})) for s in range(given.seeds)]
        table[f"coin {key}"] = scores
        print(f"one expert, a hundred copies of a coin: {key:12} {np.mean(scores):6.2f}", flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
