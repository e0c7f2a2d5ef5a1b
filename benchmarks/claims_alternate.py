"""What the papers behind the alternating learners claim, measured: prints tables, writes results/claims_alternate.json.

    python benchmarks/claims_alternate.py                       all of it (some 30 minutes on one core)
    python benchmarks/claims_alternate.py --quick               two seeds, few epochs: does it run?
    python benchmarks/claims_alternate.py spammers --seeds 5    one part
    python benchmarks/claims_alternate.py share --data FOLDER   where the folder holds labelme (else digits alone)

====================  ===================================================================================
``priors``            belief propagation is at least mean field where annotators are all or nothing (a < 1)
``spammers``          two annotators who answer everything at random, and a prior that trusts too much: mean
                      field falls, belief propagation does not
``slow``              the same with the paper's training, where all items are one batch and votes speak first
``noise``             with inputs that say nothing, ``max_probability`` bounds the harm
``speed``             one E-step of belief propagation over 3,000 votes
``share``             Bayesian learning with inputs from a tenth to a third of the votes
====================  ===================================================================================

The inputs are scikit-learn's digits, odd or even (1,000 to learn from, 797 to test). Votes are simulated on a graph
where every item has 3 annotators and every annotator 4 items. Settings are the papers'; nothing was tuned on results.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import crowdwise as cw
from crowdwise import registry

HERE = Path(__file__).resolve().parent


def odd_or_even(truth: Any, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Digits for items with these classes (without repeats), and the rest of the digits with their classes."""
    x, y = load_digits(return_X_y=True)
    pool = [list(rng.permutation(np.flatnonzero(y % 2 == k))) for k in (0, 1)]
    chosen = [pool[k].pop() for k in truth]
    rest = np.array(pool[0] + pool[1])
    return x[chosen], x[rest], y[rest] % 2


def measure(key: str, x: Any, crowd: Any, x_test: Any, y_test: Any, seed: int, **given: Any) -> dict[str, float]:
    began = time.perf_counter()
    learner = registry.find(key, inputs=True).create(random_state=seed, **given).fit(x, crowd.votes)
    return {
        "labels": 100 * learner.consensus_.score(crowd.truth),
        "test": 100 * float((learner.predict(x_test).astype(int) == y_test).mean()),
        "seconds": time.perf_counter() - began,
    }


def mean_of(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(float(np.mean([run[name] for run in runs])), 2) for name in runs[0]}


def sparse_graph(seeds: int, epochs: int, model_prior: Any, given: dict[str, Any], **crowd_of: Any) -> dict[str, Any]:
    """deep-bp, deep-mf and their kin without inputs, on the same crowds."""
    runs: dict[str, list[dict[str, float]]] = {"deep-bp": [], "deep-mf": [], "bp": [], "mf": [], "majority": []}
    for seed in range(seeds):
        crowd = cw.simulate.regular(1000, l=3, r=4, random_state=seed, **crowd_of)
        inputs = odd_or_even(crowd.truth, np.random.default_rng(seed))
        for key in ("deep-bp", "deep-mf"):
            runs[key].append(
                measure(key, inputs[0], crowd, *inputs[1:], seed, prior=model_prior, epochs=epochs, **given)
            )
        for key in ("bp", "mf", "majority"):
            plain = {} if key == "majority" else {"prior": model_prior}
            runs[key].append({"labels": 100 * cw.aggregate(crowd.votes, key, **plain).score(crowd.truth)})
    return {key: mean_of(found) for key, found in runs.items()}


# -------------------------------------------------------------------- the claims


def priors(seeds: int, epochs: int) -> dict[str, Any]:
    return {
        f"Beta({a:g}, {a / 2:g})": sparse_graph(seeds, epochs, (a, a / 2), {}, a=a, b=a / 2)
        for a in (0.2, 0.5, 1.0, 2.0)
    }


def spammers(seeds: int, epochs: int) -> dict[str, Any]:
    return {
        f"model Dir(2, {b:g}), {n} spammers": sparse_graph(
            seeds, epochs, (2.0, b), {}, a=2.0, b=1.0, n_extreme_spammers=n
        )
        for b in (1.0, 1.2, 1.6)
        for n in (0, 2)
    }


def slow(seeds: int, epochs: int) -> dict[str, Any]:
    """The prior of the paper's figure 3 (c, d), and its training: all items in one batch, a rate of 1e-4."""
    given = {"batch_size": 1000, "lr": 1e-4}
    return {
        f"model Dir(2, 1.4), {n} spammers": sparse_graph(
            seeds, 4 * epochs, (2.0, 1.4), given, a=2.0, b=1.0, n_extreme_spammers=n
        )
        for n in (0, 2)
    }


def noise(seeds: int, epochs: int) -> dict[str, Any]:
    """Inputs without information: how far the labels fall below those of the votes alone."""
    out: dict[str, Any] = {}
    for trust in (0.55, 0.7, 0.9, 1.0):
        runs: dict[str, list[dict[str, float]]] = {"deep-bp": [], "deep-mf": [], "bp": []}
        for seed in range(seeds):
            crowd = cw.simulate.regular(1000, l=3, r=4, a=1.0, b=0.5, random_state=seed)
            x = np.random.default_rng(seed).normal(size=(1000, 64))
            for key in ("deep-bp", "deep-mf"):
                learner = registry.find(key, inputs=True).create(
                    prior=(1.0, 0.5), max_probability=trust, epochs=epochs, random_state=seed
                )
                runs[key].append({"labels": 100 * learner.fit(x, crowd.votes).consensus_.score(crowd.truth)})
            found = cw.aggregate(crowd.votes, "bp", prior=(1.0, 0.5)).score(crowd.truth)
            runs["bp"].append({"labels": 100 * found})
        out[f"trust {trust:g}"] = {key: mean_of(found) for key, found in runs.items()}
    return out


def speed(seeds: int, epochs: int) -> dict[str, Any]:
    from crowdwise.learners.alternating_deep_bp import BeliefGraph
    from crowdwise.methods.messages_bp import BeliefPropagation

    crowd = cw.simulate.regular(1000, l=3, r=4, random_state=0)
    out: dict[str, Any] = {}
    for name, given in (("exact", {}), ("400 draws", {"integral": "sampled"})):
        began = time.perf_counter()
        problem = BeliefGraph(BeliefPropagation(max_iter=100, tol=1e-3, **given), crowd.votes, None)
        flat = np.zeros((1000, 2))
        problem.solve(flat, crowd.votes.shares(), np.zeros((crowd.votes.n_votes, 2)), cold=True)
        out[name] = {"E-step of 3,000 votes": {"seconds": round(time.perf_counter() - began, 3)}}
    return out


def share(seeds: int, epochs: int, data: Path | None) -> dict[str, Any]:
    """A part of the votes; labels are judged on all items, also those that have lost their votes."""
    out: dict[str, Any] = {}
    sets: list[tuple[str, Any]] = [("digits", None)]
    if data is not None and (data / "labelme").is_dir():
        sets.append(("labelme", cw.read_dataset(data / "labelme", on_duplicate="all")))
    for name, stored in sets:
        for part in (0.1, 0.2, 0.3, 1.0):
            runs: dict[str, list[dict[str, float]]] = {}
            for seed in range(seeds):
                votes, truth, x, x_test, y_test = shared_crowd(stored, seed)
                keep = np.random.default_rng(seed).random(votes.n_votes) < part
                some = votes.select(keep)
                voted = np.diff(some.indptr) > 0
                for key in ("dawid-skene", "ibcc", "raykar", "bayes-dgc"):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        if key in registry.LEARNERS:
                            more = {"epochs": epochs} if key == "bayes-dgc" else {}
                            learner = registry.find(key, inputs=True).create(random_state=seed, **more).fit(x, some)
                            found = learner.consensus_
                        else:
                            learner, found = None, cw.aggregate(some, key)
                    right = found.label_codes == truth
                    row = {"all items": 100 * float(right.mean()), "voted": 100 * float(right[voted].mean())}
                    if learner is not None:
                        row["test"] = 100 * float((learner.predict(x_test).astype(int) == y_test).mean())
                    runs.setdefault(key, []).append(row)
            out[f"{name}, {100 * part:g} %"] = {key: mean_of(found) for key, found in runs.items()}
    return out


def shared_crowd(stored: Any, seed: int) -> tuple[Any, Any, Any, Any, Any]:
    """Votes, truth, their inputs, and a test set."""
    if stored is not None:
        votes, f = stored.votes, stored.features
        return votes, votes.truth, f["x_train"][np.asarray(votes.items, dtype=int)], f["x_test"], f["y_test"]
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = order[:1000], order[1000:]
    theta = cw.simulate.dirichlet(10, n_annotators=30, n_classes=10, diagonal=5.0, rest=0.5, random_state=seed)
    rng = np.random.default_rng([seed, 1])
    item, who = np.repeat(np.arange(1000), 3), rng.integers(30, size=3000)
    cells = theta.parameters["confusion"][who, y[train][item]]
    label = (rng.random((3000, 1)) > np.cumsum(cells, axis=1)).sum(axis=1).clip(max=9)
    votes = cw.Votes.from_codes(
        item, who, label, items=range(1000), annotators=range(30), classes=range(10), on_duplicate="first"
    )  # fmt: skip
    return votes, y[train], x[train], x[test], y[test]


# -------------------------------------------------------------------- showing it


def table(title: str, found: dict[str, Any]) -> str:
    lines = [f"\n{title}"]
    for case, methods in found.items():
        lines.append(f"  {case}")
        for key, row in methods.items():
            lines.append(f"    {key:12s} " + "  ".join(f"{name} {value:g}" for name, value in row.items()))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="The claims of the papers behind the alternating learners.")
    parser.add_argument("parts", nargs="*", choices=["priors", "spammers", "slow", "noise", "speed", "share", []])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--data", type=Path, default=None, help="folder of data sets, for labelme")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "claims_alternate.json")
    given = parser.parse_args()
    seeds, epochs = (2, 5) if given.quick else (given.seeds, given.epochs)
    torch.set_num_threads(1)
    every: dict[str, Any] = {
        "priors": priors, "spammers": spammers, "slow": slow, "noise": noise, "speed": speed, "share": share,
    }  # fmt: skip
    results = json.loads(given.out.read_text()) if given.out.exists() and not given.quick else {}
    for name in given.parts or every:
        found = share(seeds, epochs, given.data) if name == "share" else every[name](seeds, epochs)
        print(table(f"{name} ({seeds} seeds, {epochs} epochs)", found), flush=True)
        results[name] = {"seeds": seeds, "epochs": epochs, "found": found}
        if not given.quick:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
