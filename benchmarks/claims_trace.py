"""The claims of trace regularisation, on MNIST with annotators who flip classes.

    python benchmarks/claims_trace.py MNIST.npz [--items 10000] --out FILE.jsonl
        [--seeds 0,1,2] [--epochs 50] [--crowd apart,random]

Five annotators name the right class with probability ``p`` and else, each for each class, one other class, no two of
them the same; every image has one label, of a random annotator. At ``p = 0.35`` nobody is right most of the time, but
on average over the annotators the right class is named most often (the mean confusion matrix is diagonally dominant).
``--crowd alike`` breaks that: the five flip to the same class; in ``--crowd random`` each flips to a class drawn at
random, so that some mistakes are shared. Last epoch, default settings but for those that the name says, the paper's
small convolutional network. The error of confusion matrices is the paper's: the mean squared distance of rows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from crowdwise import registry
from crowdwise.data.votes import Votes

LEARNERS = {
    "trace": ("trace", {}),
    "trace, weight 0": ("trace", {"weight": 0.0}),
    "trace, weight 0.1": ("trace", {"weight": 0.1}),
    "ccem": ("ccem", {}),
    "ccem, diagonal 1": ("ccem", {"diagonal": 1.0}),
    "aggnet": ("aggnet", {}),
    "aggnet, 5 epochs a round": ("aggnet", {"round_epochs": 5}),
    "aggnet, 15 epochs a round": ("aggnet", {"round_epochs": 15}),
    "max-mig": ("max-mig", {}),
    "mbem": ("mbem", {}),
    "two-stage": ("two-stage", {}),
}
CROWDS = ("apart", "random", "alike")


def flippers(truth, p, crowd, rng, n_annotators=5):
    """M x K x K, and one vote for each item."""
    K = 10
    theta = np.zeros((n_annotators, K, K))
    target = np.empty((n_annotators, K), dtype=int)
    for k in range(K):
        others = rng.permutation([j for j in range(K) if j != k])  # nobody shares another's mistake on a class
        target[:, k] = {
            "apart": others[:n_annotators], "alike": others[0], "random": rng.choice(others, n_annotators)
        }[crowd]  # fmt: skip
    for m in range(n_annotators):
        for k in range(K):
            right = np.clip(p + rng.normal(0.0, 0.01), 0.0, 1.0)
            theta[m, k, k], theta[m, k, target[m, k]] = right, 1.0 - right
    who = rng.integers(n_annotators, size=len(truth))
    right = rng.random(len(truth)) < theta[who, truth, truth]
    label = np.where(right, truth, target[who, truth])
    votes = Votes.from_codes(
        np.arange(len(truth)), who, label, items=range(len(truth)), annotators=range(n_annotators), classes=range(K)
    )
    return theta, votes


def one(data, name, p, crowd, seed, items, epochs, device):
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(data["x_train"]))[:items]
    X, truth = data["x_train"][rows], data["y_train"][rows].astype(np.int64)
    theta, votes = flippers(truth, p, crowd, rng)
    began = time.perf_counter()
    key, own = LEARNERS[name]
    settings = {"network": "tanno", "epochs": epochs, "random_state": seed, "device": device, "cuda_graphs": True}
    learner = registry.find(key, inputs=True).create(**settings | own).fit(X, votes)
    found = learner.predict_proba(data["x_test"]).argmax(axis=1)
    error = float(((learner.confusion_ - theta) ** 2).sum(axis=2).mean())
    accuracy = 100.0 * float((found == data["y_test"]).mean())
    return {"learner": name, "p": p, "crowd": crowd, "seed": seed, "accuracy": accuracy, "error": error,
            "seconds": time.perf_counter() - began}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mnist", type=Path)
    parser.add_argument("--items", type=int, default=10000)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--learners", default=";".join(LEARNERS), help="names, with semicolons between")
    parser.add_argument("--p", default="0.35,0.65")
    parser.add_argument("--crowd", default="apart", help="apart, random or alike, with commas between")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--out", type=Path, required=True, help="a file with a line for each run; what is there is kept"
    )
    given = parser.parse_args()
    with np.load(given.mnist) as stored:
        data = {name: stored[name] for name in stored.files}
    done = set()
    if given.out.is_file():
        done = {key_of(json.loads(line)) for line in given.out.read_text(encoding="utf-8").splitlines()}
    for seed in map(int, given.seeds.split(",")):
        for crowd in given.crowd.split(","):
            for p in map(float, given.p.split(",")):
                for name in given.learners.split(";"):
                    if (name, p, crowd, seed) in done:
                        continue
                    row = one(data, name, p, crowd, seed, given.items, given.epochs, given.device)
                    print(json.dumps(row), flush=True)
                    with given.out.open("a", encoding="utf-8") as out:
                        out.write(json.dumps(row) + "\n")


def key_of(row):
    return row["learner"], row["p"], row["crowd"], row["seed"]


if __name__ == "__main__":
    main()
