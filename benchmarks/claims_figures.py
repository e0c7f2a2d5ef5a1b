"""Figures of the papers that need no images: BayesDGC 3 and 4, deepBP 4, 8 and 10.

    python benchmarks/claims_figures.py --data FOLDER --out FILE.json [--jobs 8] [--minutes 9] [--only binary]

==================  ==================================================================================================
``binary``          BayesDGC 3, 4: each class of LabelMe and of music genres against the rest, 18 problems, with a part
                    of the votes. The k items that a method ranks first are positive, where k is the true number
``overconfidence``  deepBP 4: mean field and belief propagation with one extreme spammer and a wrong prior
``samples``         deepBP 8: belief propagation by the number of samples, beside the exact integral
``spammers``        deepBP 10: the annotators of temp and rte who label the most
``bandit``          the tutorial's choice of annotators as a bandit: the regret of 900 votes of 20 annotators, each vote
                    counting by how much the best annotator is more accurate than the one who was asked
==================  ==================================================================================================

A line of the file is one task (a crowd, a share of its votes, a seed); what is there is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from papers_runs import append
from tables import markdown

import crowdwise as cw
from crowdwise import registry
from crowdwise.data.votes import Votes
from crowdwise.errors import CrowdwiseError

SHARES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
METHODS = ("majority", "dawid-skene", "minimax", "ibcc")
LEARNERS = ("raykar", "bayes-dgc")
PRIORS = ((2.0, 1.0), (1.0, 0.5), (0.5, 0.25))
BANDITS = ("random", "entropy-random", "tutorial", "ucb", "thompson")
SAMPLES = (10, 25, 50, 100, 200, 400)


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def against_rest(data: Path, name: str, label: str) -> tuple[Any, Votes]:
    """Features, and the votes as one class against all others."""
    said = rows(data / name / "labels.csv")
    truth = {row["task"]: row["label"] for row in rows(data / name / "truth.csv")}
    with np.load(data / name / "features.npz") as stored:
        x = stored["x_train"]
        items = [str(i) for i in stored["id_train"]] if "id_train" in stored else [str(i) for i in range(len(x))]
    who = sorted({row["worker"] for row in said})
    place, person = {item: n for n, item in enumerate(items)}, {worker: m for m, worker in enumerate(who)}
    votes = Votes.from_codes(
        np.array([place[row["task"]] for row in said]), np.array([person[row["worker"]] for row in said]),
        np.array([int(row["label"] == label) for row in said]), items=items, annotators=who, classes=["rest", label],
        truth=np.array([int(truth[item] == label) for item in items], dtype=np.int32), on_duplicate="last",
    )  # fmt: skip
    return x, votes


def ranked(q: Any, truth: Any) -> dict[str, float]:
    """Accuracy and F1 where the k most probable items are positive, k the true number; ties by position."""
    k = int(truth.sum())
    found = np.zeros(len(truth), dtype=bool)
    found[np.argsort(-q, kind="stable")[:k]] = True
    return {"accuracy": float((found == truth).mean()), "f1": float((found & (truth == 1)).sum() / k)}


def binary(data: Path, name: str, label: str, share: float, seed: int) -> dict[str, Any]:
    x, votes = against_rest(data, name, label)
    rng = np.random.default_rng(seed)
    truth = np.asarray(votes.truth)
    part = votes.select(rng.permutation(votes.n_answers) < round(share * votes.n_answers))
    shuffle = rng.permutation(len(truth))  # ties are broken at random, the same way for all methods
    found: dict[str, Any] = {"positives": float(truth.mean())}
    for key in METHODS:
        q = cw.aggregate(part, key).posterior[:, 1]
        found[key] = ranked(q[shuffle], truth[shuffle])
    for key in LEARNERS:
        more = {"device": "cpu"} if key == "bayes-dgc" else {}
        learner = registry.find(key, inputs=True).create(random_state=seed, **more).fit(x, part)
        found[key] = ranked(learner.consensus_.posterior[:, 1][shuffle], truth[shuffle])
    return found


def overconfidence(seed: int) -> dict[str, Any]:
    crowd = cw.simulate.regular(
        1000, l=3, r=4, workers="dirichlet", a=2.0, b=1.0, n_extreme_spammers=1, random_state=seed
    )
    found: dict[str, Any] = {}
    for key in ("bp", "mf"):
        result = cw.aggregate(crowd.votes, key, prior=(2.0, 1.4))
        edges = np.histogram(result.posterior[:, 1], bins=20, range=(0.0, 1.0))[0]
        found[key] = {
            "accuracy": result.score(crowd.truth), "marginals": edges.tolist(),
            "spammer": np.diagonal(result.confusion[-1]).tolist(),
        }  # fmt: skip
    return found


class Drawn:
    """A Dirichlet prior of two-class matrices that is drawn from: the messages are then sampled."""

    def __init__(self, right: float, wrong: float) -> None:
        self.right, self.wrong = right, wrong

    def __call__(self, rng: np.random.Generator, size: int) -> Any:
        w = rng.beta(self.right, self.wrong, size=(size, 2))
        return np.stack([np.stack([w[:, 0], 1 - w[:, 0]], axis=1), np.stack([1 - w[:, 1], w[:, 1]], axis=1)], axis=1)


def samples(right: float, wrong: float, seed: int) -> dict[str, Any]:
    crowd = cw.simulate.regular(1000, l=3, r=4, workers="dirichlet", a=right, b=wrong, random_state=seed)
    exact = cw.aggregate(crowd.votes, "bp", prior=(right, wrong)).score(crowd.truth)
    drawn = Drawn(right, wrong)
    by = {
        S: cw.aggregate(crowd.votes, "bp", prior=drawn, samples=S, random_state=seed).score(crowd.truth)
        for S in SAMPLES
    }
    return {"exact": exact, "sampled": by}


def spammers(data: Path, name: str) -> dict[str, Any]:
    said = rows(data / name / "labels.csv")
    truth = {row["task"]: row["label"] for row in rows(data / name / "truth.csv")}
    count: dict[str, list[bool]] = {}
    for row in said:
        count.setdefault(row["worker"], []).append(truth[row["task"]] == row["label"])
    most = sorted(count.values(), key=len, reverse=True)
    return {"votes": [len(one) for one in most], "accuracy": [float(np.mean(one)) for one in most[:8]]}


def bandit(strategy: str, seed: int) -> dict[str, Any]:
    from crowdwise.active.replays import replay

    crowd = cw.simulate.one_coin(300, n_annotators=20, n_classes=2, a=4.0, b=2.0, random_state=seed)
    w = crowd.parameters["accuracy"]
    price = w.max() - w + 1e-9  # these strategies do not look at prices, so the cost of votes is their regret
    curve = replay(crowd.votes, crowd.truth, lambda: registry.create("one-coin"), strategy, price=price, batch=0.01,
                   share=0.15, random_state=seed)  # fmt: skip
    return {"votes": curve.votes.tolist(), "regret": curve.cost.tolist(), "accuracy": curve.accuracy.tolist()}


def tasks(data: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Name and arguments of all tasks, in the order in which they are run."""
    for name in ("temp", "rte"):
        yield f"spammers/{name}", (data, name)
    for seed in range(3):
        for name in ("labelme", "music_genre"):
            for label in sorted({row["label"] for row in rows(data / name / "truth.csv")}):
                for share in SHARES:
                    yield f"binary/{name}/{label}/{share:g}/{seed}", (data, name, label, share, seed)
    for seed in range(10):
        for strategy in BANDITS:
            yield f"bandit/{strategy}/{seed}", (strategy, seed)
    for seed in range(100):
        yield f"overconfidence/{seed}", (seed,)
    for seed in range(20):
        for right, wrong in PRIORS:
            yield f"samples/{right:g}/{seed}", (right, wrong, seed)


PARTS = {"bandit": bandit, "binary": binary, "overconfidence": overconfidence, "samples": samples, "spammers": spammers}


def work(given: tuple[str, tuple[Any, ...], float]) -> dict[str, Any] | None:
    """The line of a task; None where time is up."""
    name, arguments, deadline = given
    if time.time() > deadline:
        return None
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = PARTS[name.partition("/")[0]](*arguments)  # type: ignore[operator]
        except CrowdwiseError as error:
            return {"task": name, "problem": str(error)}
    return {"task": name, **found, "seconds": round(time.perf_counter() - began, 2)}


def tables(found: list[dict[str, Any]]) -> Iterator[str]:
    """The figures as Markdown."""
    part: dict[str, list[dict[str, Any]]] = {name: [] for name in PARTS}
    for row in found:
        if "problem" not in row:
            part[row["task"].partition("/")[0]].append(row)
    for measure in ("accuracy", "f1"):
        lines = []
        for key in (*METHODS, *LEARNERS):
            line = [f"`{key}`"]
            for share in SHARES:
                some = [r[key][measure] for r in part["binary"] if r["task"].split("/")[3] == f"{share:g}"]
                line.append(f"{100 * np.mean(some):.1f}" if some else "")
            lines.append(line)
        yield f"{measure}, {len(part['binary'])} runs"
        yield markdown(["", *(f"{100 * s:g} %" for s in SHARES)], lines)
    lines = []
    for key in ("bp", "mf") if part["overconfidence"] else ():
        runs = [r[key] for r in part["overconfidence"]]
        score = 100 * np.sort([r["accuracy"] for r in runs])
        q = np.sum([r["marginals"] for r in runs], axis=0)
        failed = [0.5 + abs(np.mean(r["spammer"]) - 0.5) for r in runs if r["accuracy"] < 0.6]
        figures = [score.mean(), score[0], np.quantile(score, 0.1), np.median(score)]
        lines.append([
            f"`{key}`", *(f"{x:.1f}" for x in figures), f"{100 * (q[0] + q[-1]) / q.sum():.0f} %", str(len(failed)),
            f"{np.median(failed):.2f}" if failed else "",
        ])  # fmt: skip
    yield f"overconfidence, {len(part['overconfidence'])} crowds"
    heads = ["", "mean", "worst", "worst tenth", "median", "marginals beyond .05 and .95", "crowds under 60 %"]
    yield markdown([*heads, "the spammer there"], lines)
    lines = []
    for right, wrong in PRIORS:
        some = [r for r in part["samples"] if r["task"].startswith(f"samples/{right:g}/")]
        if some:
            means = [100 * np.mean([r["sampled"][str(S)] for r in some]) for S in SAMPLES]
            exact = 100 * np.mean([r["exact"] for r in some])
            lines.append([f"Dir({right:g}, {wrong:g})", *(f"{m:.1f}" for m in means), f"{exact:.1f}", str(len(some))])
    yield "samples"
    yield markdown(["", *map(str, SAMPLES), "exact", "crowds"], lines)
    for r in part["spammers"]:
        most = ", ".join(f"{n} ({100 * a:.0f} %)" for n, a in zip(r["votes"][:6], r["accuracy"], strict=False))
        yield f"{r['task']}: {most}; median {np.median(r['votes']):g}"
    lines = []
    for strategy in BANDITS:
        some = [r for r in part["bandit"] if r["task"].startswith(f"bandit/{strategy}/")]
        if some:
            at = [np.mean([np.interp(v, r["votes"], r["regret"]) for r in some]) for v in (100, 300, 900)]
            right = 100 * np.mean([r["accuracy"][-1] for r in some])
            lines.append([f"`{strategy}`", *(f"{x:.1f}" for x in at), f"{right:.1f}", str(len(some))])
    yield "bandit"
    yield markdown(["", "100 votes", "300", "900", "labels right", "crowds"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="the folder of data sets")
    parser.add_argument("--out", type=Path, required=True, help="a line for each task (.jsonl)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--only", default="", help="how the names of tasks begin, comma-separated")
    parser.add_argument("--show", action="store_true", help="run nothing: print the tables")
    given = parser.parse_args()
    if given.show:
        found = [json.loads(line) for line in given.out.read_text(encoding="utf-8").splitlines()]
        print("\n\n".join(tables(found)))
        return
    done = set()
    if given.out.is_file():
        done = {json.loads(line)["task"] for line in given.out.read_text(encoding="utf-8").splitlines()}
    deadline, begins = time.time() + 60.0 * given.minutes, tuple(given.only.split(","))
    left = [(name, args, deadline) for name, args in tasks(given.data) if name not in done and name.startswith(begins)]
    with get_context("spawn").Pool(given.jobs) as pool:
        for row in pool.imap_unordered(work, left):
            if row is not None:
                append(given.out, row)


if __name__ == "__main__":
    main()
