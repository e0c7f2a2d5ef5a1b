"""How often 95 % intervals hold the truth, on simulated crowds: accuracy of annotators, and agreement statistics.

    python benchmarks/interval_coverage.py [crowds]

Accuracy: crowds from sparse (3 votes per item, 10 per annotator) to complete, two to five classes, four kinds of
annotators, the consensus of several methods. The truth is the accuracy that the annotator was drawn with. Agreement:
the value on a crowd of 200,000 items by the same annotators; of few items, the value on all those they are drawn from.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import crowdwise as cw
from crowdwise.core.numerics import share_with_interval
from crowdwise.metrics import bootstrap
from crowdwise.trust import (
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    icc,
    krippendorff_alpha,
    pairwise_agreement,
    percent_agreement,
    scott_pi,
)

KNOWN = "truth known"
METHODS = (KNOWN, "majority", "dawid-skene", "anchored", "ibcc")
"""The first is not a method: the interval of the share of right votes, what the others cannot do better than."""
SHAPES = (
    ("3 votes per item, 10 per annotator", 300, 90, 3),
    ("3 votes per item, 30 per annotator", 300, 30, 3),
    ("5 votes per item, 33 per annotator", 1000, 150, 5),
    ("8 votes per item, 160 per annotator", 400, 20, 8),
    ("complete, 10 annotators, 500 items", 500, 10, None),
)
KINDS = ("one-coin", "dirichlet", "hammers and spammers", "skewed classes")
ONCE = {"resamples": 1}


def drawn_crowd(kind: str, K: int, N: int, M: int, r: int | None, seed: int) -> tuple[cw.Votes, Any]:
    """Votes, and the accuracy of every annotator."""
    common: dict[str, Any] = {"n_annotators": M, "n_classes": K, "votes_per_item": r, "random_state": seed}
    if kind == "hammers and spammers":
        sim = cw.simulate.hammer_spammer(N, accuracy=0.85, **common)
        return sim.votes, np.where(sim.parameters["spammers"], 1.0 / K, 0.85)
    if kind == "skewed classes":
        prior = np.r_[0.7, np.full(K - 1, 0.3 / (K - 1))]
        sim = cw.simulate.dirichlet(N, prior=prior, diagonal=8.0, **common)
        return sim.votes, np.einsum("mkk,k->m", sim.parameters["confusion"], prior)
    sim = (cw.simulate.one_coin if kind == "one-coin" else cw.simulate.dirichlet)(N, **common)
    return sim.votes, sim.parameters["accuracy"]


def known_interval(votes: cw.Votes) -> tuple[Any, Any, Any]:
    """Accuracy and interval with all truths known."""
    M, right = votes.n_annotators, votes.label == votes.truth[votes.item]
    hits, n = (np.bincount(votes.annotator, weights=w, minlength=M) for w in (right, np.ones(votes.n_votes)))
    return share_with_interval(hits, n, np.zeros(M))


def accuracy_coverage(
    method: str, kind: str, K: int, shape: tuple[str, int, int, int | None], crowds: int, seed: int = 0
) -> tuple[int, int, float]:
    """How many intervals hold the truth, of how many, and their mean width."""
    _, N, M, r = shape
    held, count, width = 0, 0, 0.0
    for n in range(crowds):
        votes, true = drawn_crowd(kind, K, N, M, r, 1000 * seed + n)
        if method == KNOWN:
            _, low, high = known_interval(votes)
        else:
            _, low, high = cw.aggregate(votes, method).accuracy()
        asked = np.bincount(votes.annotator, minlength=M) > 0
        held += int(((low <= true) & (true <= high))[asked].sum())
        count += int(asked.sum())
        width += float((high - low)[asked].sum())
    return held, count, width / max(count, 1)


# -------------------------------------------------------------------- agreement

COEFFICIENTS: dict[str, Callable[..., Any]] = {
    "percent": percent_agreement,
    "Fleiss' kappa": fleiss_kappa,
    "AC1": gwet_ac1,
    "AC2": gwet_ac2,
    "alpha, nominal": krippendorff_alpha,
    "alpha, ordinal": lambda v, **how: krippendorff_alpha(v, scale="ordinal", **how),
    "alpha, interval": lambda v, **how: krippendorff_alpha(v, scale="interval", **how),
    "ICC, one-way": icc,
    "ICC, agreement": lambda v, **how: icc(v, form="agreement", **how),
    "Cohen's kappa": lambda v, **how: cohen_kappa(v, 0, 1, **how),
    "Scott's pi": lambda v, **how: scott_pi(v, 0, 1, **how),
}


def table_of(N: int, theta: Any, prior: Any, density: float, rng: np.random.Generator) -> cw.Votes:
    """Votes of annotators with these matrices, each item seen by each of them with probability ``density``."""
    M, K, _ = theta.shape
    truth = rng.choice(K, size=N, p=prior)
    label = (rng.random((N, M, 1)) > theta.cumsum(axis=2)[np.arange(M)[None], truth[:, None]]).sum(axis=2)
    label[rng.random((N, M)) > density] = -1
    return cw.Votes.from_dense(label.clip(-1, K - 1), missing=-1, classes=range(K))


AGREEMENT_SHAPES = (
    ("60 items, 5 annotators, 2 classes", 60, 5, 2, 1.0),
    ("120 items, 5 annotators, 3 classes, 70 %", 120, 5, 3, 0.7),
    ("300 items, 12 annotators, 4 classes, 30 %", 300, 12, 4, 0.3),
    ("200 items, 8 annotators, 5 classes", 200, 8, 5, 1.0),
)


def agreement_coverage(shape: tuple[str, int, int, int, float], crowds: int, seed: int = 0) -> dict[str, float]:
    """For each coefficient, the share of crowds whose interval holds its value."""
    _, N, M, K, density = shape
    rng = np.random.default_rng([seed, N, M, K])
    theta = np.stack([rng.dirichlet(np.where(np.arange(K) == k, 5.0, 1.0), size=M) for k in range(K)], axis=1)
    prior = rng.dirichlet(np.full(K, 5.0))
    big = table_of(200_000, theta, prior, density, rng)
    true = {name: f(big, **ONCE).value for name, f in COEFFICIENTS.items()}
    pairs = pairwise_agreement(big).kappa
    held = dict.fromkeys([*COEFFICIENTS, "kappa of all pairs"], 0.0)
    for n in range(crowds):
        votes = table_of(N, theta, prior, density, rng)
        for name, f in COEFFICIENTS.items():
            found = f(votes, resamples=400, random_state=n)
            held[name] += (found.low <= true[name] <= found.high) / crowds
        found = pairwise_agreement(votes)
        held["kappa of all pairs"] += float(((found.low <= pairs) & (pairs <= found.high)).mean()) / crowds
    return held


# -------------------------------------------------------------------- few items

FEW = (2, 3, 5, 8, 10, 15, 20, 30)
"""How many items (pairs, rankings, sequences) are drawn."""


def large_crowds() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Answers on many items, from which few are drawn, and what :func:`crowdwise.agreement` takes with them."""
    s = cw.simulate
    coin: dict[str, Any] = {"n_items": 20_000, "random_state": 0}
    grades = s.ordinal(20_000, n_annotators=5, votes_per_item=4, random_state=0).votes
    return {
        "votes, 3 classes": (s.one_coin(n_annotators=5, n_classes=3, votes_per_item=3, a=70, b=30, **coin).votes, {}),
        "votes, two annotators": (s.one_coin(n_annotators=2, a=80, b=20, **coin).votes, {}),
        "votes, 95 % right": (s.one_coin(n_annotators=3, a=95, b=5, **coin).votes, {}),
        "votes, nine in ten of one class": (s.one_coin(n_annotators=4, a=90, b=10, prior=[0.9, 0.1], **coin).votes, {}),
        "grades, ordinal": (grades, {"scale": "ordinal"}),
        "grades, interval": (grades, {"scale": "interval"}),
        "ratings": (s.ratings(20_000, n_annotators=6, votes_per_item=4, random_state=0).answers, {}),
        "comparisons": (s.comparisons(60, n_comparisons=9000, honest=0.8, random_state=0).answers, {}),
        "rankings": (s.rankings(6, n_rankings=1500, n_annotators=1500, random_state=0).answers, {}),
        "label sets": (s.label_sets(4000, n_annotators=6, n_labels=5, answers_per_item=3, random_state=0).answers, {}),
        "tags": (s.bio_tags(3000, n_annotators=6, random_state=0).answers, {}),
    }


def some_units(answers: Any, n: int, rng: np.random.Generator) -> Any:
    """The answers on n units: rankings, pairs of items where answers compare two, otherwise items, sequences."""
    if isinstance(answers, cw.Rankings):
        return answers.select(rng.permutation(len(answers.annotator)) < n)
    if not isinstance(answers, cw.Comparisons):
        return answers[np.sort(rng.permutation(len(answers))[:n])]
    pair = np.minimum(answers.left, answers.right) * answers.n_items + np.maximum(answers.left, answers.right)
    names, count = np.unique(pair, return_counts=True)
    return answers.select(np.isin(pair, rng.permutation(names[count > 1])[:n]))


def few_rows(crowds: int) -> list[dict[str, Any]]:
    """One row per crowd and number of items: the share of intervals that hold the value on all items, by coefficient.

    Intervals are made whatever the number of items is; crowds whose items are all alike have none."""
    out = []
    with mock.patch.object(bootstrap, "MIN_ITEMS", 2):
        for name, (answers, given) in large_crowds().items():
            true = cw.agreement(answers, **given, **ONCE).estimates
            for n in FEW:
                rng, held = np.random.default_rng([n, len(name)]), {key: [0, 0] for key in true}
                for seed in range(crowds):
                    part = some_units(answers, n, rng)
                    found = cw.agreement(part, resamples=400, random_state=seed, **given).estimates
                    for key, e in found.items():
                        held[key][0] += e.low <= true[key].value <= e.high
                        held[key][1] += e.has_interval
                share = {key: float(h / made) for key, (h, made) in held.items() if made}
                out.append({"crowd": name, "items": n, "crowds": crowds, "held": share})
    return out


def accuracy_rows(crowds: int, methods: tuple[str, ...] = METHODS) -> list[dict[str, Any]]:
    """One row per shape, kind of crowd and number of classes."""
    warnings.simplefilter("ignore", cw.errors.ConvergenceWarning)
    out = []
    for shape in SHAPES:
        many = crowds if shape[2] >= 90 else 3 * crowds
        for kind in KINDS:
            for K in (2, 3, 5):
                found = {m: accuracy_coverage(m, kind, K, shape, many) for m in methods}
                share = {m: h / n for m, (h, n, _) in found.items()}
                n, width = found[methods[0]][1], float(np.mean([w for m, (_, _, w) in found.items() if m != KNOWN]))
                out.append(
                    {"shape": shape[0], "kind": kind, "classes": K, "intervals": n, "width": width, "held": share}
                )
    return out


def agreement_rows(crowds: int) -> list[dict[str, Any]]:
    """One row per shape."""
    return [{"shape": s[0], "crowds": crowds, "held": agreement_coverage(s, crowds)} for s in AGREEMENT_SHAPES]


if __name__ == "__main__":
    crowds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for row in accuracy_rows(crowds):
        held = " ".join(f"{m} {h:.3f}" for m, h in row["held"].items())
        sys.stdout.write(f"{row['shape']}; {row['kind']}, {row['classes']} classes ({row['intervals']}): {held}\n")
    for row in agreement_rows(10 * crowds):
        held = ", ".join(f"{name} {h:.3f}" for name, h in row["held"].items())
        sys.stdout.write(f"{row['shape']} ({row['crowds']}): {held}\n")
    for row in few_rows(5 * crowds):
        held = ", ".join(f"{name} {h:.3f}" for name, h in row["held"].items())
        sys.stdout.write(f"{row['crowd']}, {row['items']} items ({row['crowds']}): {held}\n")
