"""Rings planted in real crowds: what is found, who is accused, and what it does to the labels.

    python benchmarks/trust_rings.py [--data DIR] [--jobs N] [--seeds N] [--page] [--pack DIR]

Writes the part ``rings`` of results/trust.json, and docs/benchmarks/trust.md. A ring is annotators of the crowd whose
answers are replaced (conversion), or new ones who vote on the items of others (addition).
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

import crowdwise as cw
from crowdwise.bench.runs import data_folder, load_votes
from crowdwise.core.collusion import PairAgreement, find_rings, find_voices, paired_votes
from crowdwise.core.numerics import binomial_tail

CROWDS = (
    "barzan", "bluebird", "cifar10s", "d_product", "d_sentiment", "dog", "ducks", "face", "labelme", "music_genre",
    "rte", "ruters", "sentiment_polarity", "sp_amt", "temp", "weather_amt", "web", "wsd", "zencrowd_in", "zencrowd_us",
)  # fmt: skip
"""Crowds of people with at most 30,000 votes and annotators who share 20 items or more."""
CHOSEN_ON = CROWDS[::2]
"""Every second one: the constants of the search were chosen on these."""
UNTOUCHED = (
    "fact_eval", "hitspam_cf", "s_adult", "s_rel", "trec2010_binary", "trec2011", "trec2011_vuurens", "weather_cf",
    "imagenet15n", "rules_youtube", "rules_trec", "llmbar_judges", "quiz_english", "quiz_medicine",
)  # fmt: skip
"""Other crowds, looked at as they are."""
SHARES, KINDS, WAYS = (0.05, 0.1, 0.2, 0.3), ("mistakes", "random", "noisy"), ("conversion", "addition")
OTHER_KINDS = ("targeted", "drip", "truth")
"""On a fifth of the items, own answers elsewhere; own answers on the first half of the items; copies of the truth."""
SHAPES: dict[str, tuple[tuple[int, ...], int, float, float, bool]] = {
    "a ring of 2, mistakes": ((2,), 2, 0.1, 0.0, True),
    "six rings of 2, mistakes": ((2,) * 6, 2, 0.1, 0.0, True),
    "five rings of 3, random labels": ((3,) * 5, 2, 0.5, 0.0, True),
    "three rings of 4, mistakes, four classes": ((4,) * 3, 4, 0.1, 0.0, True),
    "two rings of 10, mistakes, four classes": ((10,) * 2, 4, 0.1, 0.0, True),
    "two rings of 10, mistakes, two classes": ((10,) * 2, 2, 0.1, 0.0, True),
    "5 accounts of one person, right on 80 %": ((5,), 2, 0.8, 0.0, False),
    "10 accounts of one person, right on 65 %": ((10,), 2, 0.65, 0.0, False),
    "10 accounts of one person, right on 80 %": ((10,), 2, 0.8, 0.0, False),
    "10 accounts of one person, right on 90 %": ((10,), 2, 0.9, 0.0, False),
    "10 models alike, right on 85 %": ((10,), 2, 0.85, 0.05, False),
    "10 models alike, right on 70 %": ((10,), 2, 0.7, 0.05, False),
}
"""Sizes of groups, classes, how often their common answers are right, how often a member slips, and whether these are
rings (else one of them stays where they are left out)."""
METHODS = ("majority", "dawid-skene", "mace", "glad", "wawa", "m-msr", "grouped-dawid-skene", "auto")
DAMAGED = ("bluebird", "dog", "rte", "sp_amt", "temp", "weather_amt", "wsd", "face")
P_WRONG, COPIED = 0.9, 0.9
SHARED = 30
"""Members who share so many items with another member are expected to be found."""
PARTS = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the items on which a ring colludes, its members answering for themselves elsewhere."""
SIZES, DRAWS = (100, 200, 350, 500), 10
"""Items of a sub-sample, and how often it is drawn."""


@lru_cache(maxsize=2)
def crowd(name: str, folder: str) -> cw.Votes:
    """A data set, or its codes as :func:`pack` wrote them, for a machine that cannot read tables."""
    packed = Path(folder) / f"{name}.npz"
    if not packed.exists():
        return load_votes(Path(folder), name)
    x = np.load(packed)
    N, M, K = x["size"].tolist()
    votes = cw.Votes.from_codes(
        x["item"], x["annotator"], x["label"], items=np.arange(N), annotators=np.arange(M), classes=np.arange(K),
        on_duplicate="all",
    )  # fmt: skip
    return replace(votes, truth=x["truth"])


def pack(folder: Path, out: Path) -> None:
    """The codes of all crowds."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (*CROWDS, *UNTOUCHED):
        v = load_votes(folder, name)
        size = (len(v), v.n_annotators, v.n_classes)
        np.savez_compressed(
            out / name, item=v.item, annotator=v.annotator, label=v.label, size=size,
            truth=np.full(len(v), -1) if v.truth is None else v.truth,
        )  # fmt: skip


def members_of(votes: cw.Votes, share: float, rng: np.random.Generator) -> list[int]:
    """Annotators in random order until they have the share of the votes, three at least."""
    counts = np.bincount(votes.annotator, minlength=votes.n_annotators)
    goal, chosen, total = share * votes.n_votes, list[int](), 0
    for m in rng.permutation(np.flatnonzero(counts)).tolist():
        if len(chosen) >= 3 and total >= 0.8 * goal:
            break
        if len(chosen) < 3 or total + counts[m] / 2 <= goal:
            chosen.append(m)
            total += counts[m]
    return chosen


def planted(votes: cw.Votes, kind: str, way: str, share: float, seed: int, part: float = 0.2) -> tuple[cw.Votes, Any]:
    """The votes with a ring, and the mask of its members; ``part``: of the items, where it is targeted."""
    rng = np.random.default_rng([seed, int(100 * share), KINDS.index(kind) if kind in KINDS else 9])
    N, K = len(votes), votes.n_classes
    known = votes.truth if votes.truth is not None else np.full(N, -1)
    truth = np.where(known >= 0, known, votes.shares().argmax(axis=1))
    wrong = (truth + rng.integers(1, K, N)) % K
    script = rng.integers(0, K, N) if kind == "random" else np.where(rng.random(N) < P_WRONG, wrong, truth)
    script = truth if kind == "truth" else script
    item, who, label = (x.astype(np.int64) for x in (votes.item, votes.annotator, votes.label))
    M = votes.n_annotators
    if way == "conversion":
        chosen = members_of(votes, share, rng)
        inside = np.isin(who, chosen)
        ring = np.isin(np.arange(M), chosen)
    else:
        chosen = members_of(votes, share / (1.0 - share), rng)
        of = [np.unique(item[who == m]) for m in chosen]
        item = np.concatenate([item, *of])
        who = np.concatenate([who, np.repeat(M + np.arange(len(of)), [len(x) for x in of])])
        inside = who >= M
        label = np.append(label, np.zeros(inside.sum(), dtype=np.int64))
        ring = np.arange(M + len(of)) >= M
    copied = script[item]
    if kind == "noisy":
        other = (copied + rng.integers(1, K, len(copied))) % K
        copied = np.where(rng.random(len(copied)) < COPIED, copied, other)
    if kind == "targeted":
        inside &= (rng.random(N) < part)[item]
    if kind == "drip":
        inside &= item >= N // 2
    order = np.argsort(item, kind="stable")
    label = np.where(inside, copied, label)
    attacked = cw.Votes.from_codes(
        item[order], who[order], label[order], items=np.arange(N), annotators=np.arange(len(ring)),
        classes=np.arange(K), on_duplicate="all",
    )  # fmt: skip
    time = attacked.item.astype(np.float64) if kind == "drip" else None  # items are answered in their order
    return replace(attacked, truth=None if votes.truth is None else votes.truth, timestamp=time), ring


def plain_pairs(votes: cw.Votes, labels: Any) -> Any:
    """The plain test: mistakes in common, by labels that all votes decided, beyond chance; a mask of annotators."""
    pairs = PairAgreement.of(votes)
    wrong = votes.label != labels[votes.item]
    rate = np.bincount(votes.annotator, weights=wrong, minlength=votes.n_annotators)
    rate /= np.maximum(np.bincount(votes.annotator, minlength=votes.n_annotators), 1)
    mistakes = votes.select(wrong)
    both = np.zeros((votes.n_annotators,) * 2)
    indptr = mistakes.indptr
    a, b = paired_votes(indptr, np.arange(len(votes)))
    same = mistakes.label[a] == mistakes.label[b]
    np.add.at(both, (mistakes.annotator[a[same]], mistakes.annotator[b[same]]), 1.0)
    i, j = (pairs.annotator[x] for x in pairs.pairs)
    expected = np.clip(rate[i] * rate[j] / max(votes.n_classes - 1, 1), 1e-6, 1.0)
    p = binomial_tail((both + both.T)[i, j], pairs.common[pairs.pairs], expected)
    out = np.zeros(votes.n_annotators, dtype=bool)
    hit = p <= 0.05 / max(len(i), 1)
    out[i[hit]] = out[j[hit]] = True
    return out


def shares_items(votes: cw.Votes, ring: Any) -> Any:
    """Members who share ``SHARED`` items with another member."""
    there = np.zeros((len(votes), int(ring.sum())), dtype=np.float32)
    place = np.cumsum(ring) - 1
    at = ring[votes.annotator]
    there[votes.item[at], place[votes.annotator[at]]] = 1.0
    common = there.T @ there
    np.fill_diagonal(common, 0.0)
    out = np.zeros(len(ring), dtype=bool)
    out[ring] = common.max(axis=1, initial=0.0) >= SHARED
    return out


def accuracy(consensus: Any, truth: Any, rows: Any) -> float:
    """Accuracy in percent on some items."""
    return round(100.0 * float((consensus.label_codes[rows] == truth[rows]).mean()), 3)


def one(task: tuple[str, str, str, str, float, int]) -> dict[str, Any]:
    """One run: found, accused, and accuracies with and without the ring."""
    warnings.simplefilter("ignore")
    folder, name, kind, way, share, seed = task
    votes = crowd(name, folder)
    attacked, ring = planted(votes, kind, way, share, seed)
    flagged = np.zeros(len(ring), dtype=bool)
    for found in find_rings(attacked):
        flagged[found.members] = True
    able = shares_items(attacked, ring)
    honest = attacked.select(~ring[attacked.annotator])
    rows = np.flatnonzero((votes.truth >= 0) & (np.diff(honest.indptr) > 0))
    out: dict[str, Any] = {
        "set": name, "kind": kind, "way": way, "share": share, "seed": seed, "members": int(ring.sum()),
        "able": int(able.sum()), "found": int((flagged & able).sum()), "all found": int((flagged & ring).sum()),
        "accused": int((flagged & ~ring).sum()),
    }  # fmt: skip
    captured = cw.aggregate(attacked, "dawid-skene")
    plain = plain_pairs(attacked, captured.label_codes)
    out |= {"plain": int((plain & able).sum()), "plain accused": int((plain & ~ring).sum())}
    for column, table, options in (
        ("auto", attacked, {}), ("ignored", attacked, {"collusion": "ignore"}), ("without", honest, {}),
    ):  # fmt: skip
        out[column] = accuracy(cw.aggregate(table, "auto", **options), votes.truth, rows)
    out["majority"] = accuracy(cw.aggregate(attacked, "majority"), votes.truth, rows)
    return out


def on_part(task: tuple[str, str, float, int]) -> tuple[float, int, int]:
    """Members who share enough items, and those found, of a ring that colludes on a part of the items."""
    folder, name, part, seed = task
    attacked, ring = planted(crowd(name, folder), "targeted", "conversion", 0.2, seed, part)
    able = shares_items(attacked, ring)
    return part, int(able.sum()), sum(int(able[found.members].sum()) for found in find_rings(attacked))


def damage(task: tuple[str, str, float, int]) -> dict[str, Any]:
    """Accuracy of methods with a ring of mistakes of some size."""
    warnings.simplefilter("ignore")
    folder, name, share, seed = task
    votes = crowd(name, folder)
    attacked, ring = planted(votes, "mistakes", "conversion", share, seed) if share else (votes, None)
    rows = np.flatnonzero(votes.truth >= 0)
    got = {key: accuracy(cw.aggregate(attacked, key), votes.truth, rows) for key in METHODS}
    return {"set": name, "share": share, "seed": seed, **got}


def averaged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The damage by size, mean of all crowds and seeds."""
    of = {share: [r for r in rows if r["share"] == share] for share in sorted({r["share"] for r in rows})}
    return [
        {"share": share, **{key: round(float(np.mean([r[key] for r in some])), 2) for key in METHODS}}
        for share, some in of.items()
    ]


def as_they_are(task: tuple[str, str]) -> dict[str, Any]:
    """Annotators who are accused in a crowd without a planted ring, and whether the default changes."""
    warnings.simplefilter("ignore")
    folder, name = task
    votes = crowd(name, folder)
    flagged = sum(len(ring.members) for ring in find_rings(votes))
    looked, ignored = cw.aggregate(votes, "auto"), cw.aggregate(votes, "auto", collusion="ignore")
    same = bool(np.array_equal(looked.posterior, ignored.posterior))
    return {"set": name, "annotators": votes.n_annotators, "accused": flagged, "same": same}


def parts_of(votes: cw.Votes, seed: int) -> Iterator[tuple[str, cw.Votes]]:
    """Sub-samples: random items, random items with truth where not all have it, and half of the annotators."""
    rng, all_items = np.random.default_rng(seed), np.arange(len(votes))
    known = np.flatnonzero(votes.truth >= 0)
    for name, pool in (("items", all_items), ("items with truth", known[: len(known) * (len(known) < len(votes))])):
        for size in SIZES:
            if size < len(pool):
                yield name, votes[np.sort(rng.choice(pool, size, replace=False))]
    some = rng.choice(votes.n_annotators, (votes.n_annotators + 1) // 2, replace=False)
    yield "annotators", votes.select(np.isin(votes.annotator, some))


def honest_parts(task: tuple[str, str, int]) -> list[dict[str, Any]]:
    """Sub-samples of a crowd without a planted ring: how many are accused, and what it does to the labels."""
    warnings.simplefilter("ignore")
    folder, name, seed = task
    out = []
    for kind, votes in parts_of(crowd(name, folder), seed):
        accused = sum(len(ring.members) for ring in find_rings(votes))
        row: dict[str, Any] = {"set": name, "kind": kind, "seed": seed, "items": len(votes), "accused": accused}
        rows = np.flatnonzero((votes.truth >= 0) & (np.diff(votes.indptr) > 0))
        if accused and len(rows):
            for column, key, options in (
                ("auto", "auto", {}), ("ignored", "auto", {"collusion": "ignore"}), ("majority", "majority", {})
            ):  # fmt: skip
                row[column] = accuracy(cw.aggregate(votes, key, **options), votes.truth, rows)
        out.append(row)
    return out


def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The sub-samples by kind, and each in which annotators are accused."""
    kinds = list(dict.fromkeys(r["kind"] for r in rows))
    return {
        "draws": {kind: sum(r["kind"] == kind for r in rows) for kind in kinds},
        "accused": [r for r in rows if r["accused"]],
    }


def bluebird(folder: str, seeds: int = 5) -> list[dict[str, Any]]:
    """11 of 39 annotators with identical answers to all 108 items."""
    votes = crowd("bluebird", folder)
    rows, out = np.arange(len(votes)), []
    for kind in KINDS:
        for seed in range(seeds):
            rng = np.random.default_rng([seed, KINDS.index(kind)])
            ring = np.isin(np.arange(39), rng.choice(39, 11, replace=False))
            wrong = rng.random(108) < (0.5 if kind == "random" else P_WRONG)
            script = np.where(wrong, 1 - votes.truth, votes.truth)
            slips = (rng.random(votes.n_votes) >= COPIED) & (kind == "noisy")
            copied = np.where(slips, 1 - script[votes.item], script[votes.item])
            label = np.where(ring[votes.annotator], copied, votes.label).astype(votes.label.dtype)
            attacked = replace(votes, label=label)
            flagged = np.zeros(39, dtype=bool)
            for found in find_rings(attacked):
                flagged[found.members] = True
            honest = attacked.select(~ring[attacked.annotator])
            got = {"found": int((flagged & ring).sum()), "accused": int((flagged & ~ring).sum())}
            for column, table, key, options in (
                ("auto", attacked, "auto", {}), ("ignored", attacked, "auto", {"collusion": "ignore"}),
                ("without", honest, "auto", {}), ("majority", attacked, "majority", {}),
                ("majority without", honest, "majority", {}), ("m-msr", attacked, "m-msr", {}),
                ("grouped-dawid-skene", attacked, "grouped-dawid-skene", {}),
            ):  # fmt: skip
                got[column] = accuracy(cw.aggregate(table, key, **options), votes.truth, rows)
            out.append({"kind": kind, "seed": seed, **got})
    return out


def shape(task: tuple[str, int]) -> dict[str, Any]:
    """40 annotators who are right on 65 to 90 % of 300 items, 20 votes each; some are replaced as ``SHAPES`` says."""
    warnings.simplefilter("ignore")
    name, seed = task
    groups, K, skill, slips, ring = SHAPES[name]
    rng = np.random.default_rng(seed)
    truth, p = rng.integers(0, K, 300), rng.uniform(0.65, 0.9, 40)
    who = np.concatenate([np.sort(rng.choice(40, 20, replace=False)) for _ in range(300)])
    item, first = np.repeat(np.arange(300), 20), 0
    other = (truth[item] + rng.integers(1, K, len(item))) % K
    label = np.where(rng.random(len(item)) < p[who], truth[item], other)
    for size in groups:
        own = np.where(rng.random(300) < skill, truth, (truth + rng.integers(1, K, 300)) % K)[item]
        own = np.where(rng.random(len(own)) < slips, (own + rng.integers(1, K, len(own))) % K, own)
        label = np.where((who >= first) & (who < first + size), own, label)
        first += size
    votes = cw.Votes.from_codes(item, who, label, items=range(300), annotators=range(40), classes=range(K))
    flagged = np.zeros(40, dtype=bool)
    one = 0
    for found in find_voices(votes):
        if found.kind == "copies":
            one += len(found.members)
        elif found.kind == "ring":
            flagged[found.members] = True
    rest = votes.select((who >= first) | ((who == 0) & (not ring)))
    scores = {
        key: accuracy(cw.aggregate(table, method, **options), truth, np.diff(rest.indptr) > 0)
        for key, table, method, options in (
            ("auto", votes, "auto", {}), ("ignored", votes, "auto", {"collusion": "ignore"}),
            ("majority", votes, "majority", {}), ("without", rest, "auto", {}),
        )
    }  # fmt: skip
    return {
        "shape": name, "seed": seed, "members": first, "found": int(flagged[:first].sum()),
        "accused": int(flagged[first:].sum()), "one": one, **scores,
    }  # fmt: skip


def tasks(folder: str, seed: int) -> Iterator[tuple[str, str, str, str, float, int]]:
    for name in CROWDS:
        for way in WAYS:
            yield from ((folder, name, kind, way, share, seed) for kind in KINDS for share in SHARES)
        if seed < 2:
            yield from ((folder, name, kind, "conversion", 0.2, seed) for kind in OTHER_KINDS)


CELL = ("set", "kind", "way", "share")
COUNTED = ("runs", "able", "found", "plain", "accused", "plain accused", "under without", "under majority")
SUMMED = ("without", "auto", "ignored", "majority")
"""Sums over the runs of a cell: runs, members, runs with a false accusation or a fall; accuracies in %."""


def tally(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The runs summed over seeds: columns, and a row per cell."""
    rows: dict[tuple[Any, ...], list[float]] = {}
    for r in runs:
        counts = [1, r["able"], r["found"], r["plain"], r["accused"] > 0, r["plain accused"] > 0]
        falls = [r["auto"] < r["without"] - 2.0, r["auto"] < r["majority"] - 1.0]
        values = [*map(int, [*counts, *falls]), *(r[c] for c in SUMMED)]
        before = rows.get(key := tuple(r[c] for c in CELL), [0] * len(values))
        rows[key] = [round(a + b, 2) for a, b in zip(before, values, strict=True)]
    return {"columns": [*CELL, *COUNTED, *SUMMED], "rows": [[*key, *values] for key, values in rows.items()]}


def measured(folder: str, jobs: int, seeds: int) -> Iterator[dict[str, Any]]:
    """All runs, with more of them each time."""
    sizes = [(folder, name, s, seed) for name in DAMAGED for s in (0.0, *SHARES) for seed in range(2 if s else 1)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:  # a fork of polars' threads can hang
        runs, found = list[dict[str, Any]](), dict[str, Any](bluebird=bluebird(folder))
        for seed in range(seeds):
            runs += pool.map(one, tasks(folder, seed), chunksize=6)
            found |= {"seeds": seed + 1, "cells": tally(runs)}
            if not seed:
                found["as they are"] = list(pool.map(as_they_are, [(folder, name) for name in (*CROWDS, *UNTOUCHED)]))
                parts = [(folder, name, draw) for name in (*CROWDS, *UNTOUCHED) for draw in range(DRAWS)]
                found["parts"] = counted([row for rows in pool.map(honest_parts, parts, chunksize=4) for row in rows])
                some = [(folder, name, part, draw) for name in CROWDS for part in PARTS for draw in (0, 1)]
                met = list(pool.map(on_part, some, chunksize=8))
                found["on part"] = [[p, *(sum(row[i] for row in met if row[0] == p) for i in (1, 2))] for p in PARTS]
                found["shapes"] = list(pool.map(shape, [(name, draw) for name in SHAPES for draw in range(5)]))
                found["damage"] = averaged(list(pool.map(damage, sizes, chunksize=3)))
            yield found


def main() -> None:
    from trust_page import write

    here = Path(__file__).resolve().parent
    results, page = here / "results" / "trust.json", here.parent / "docs" / "benchmarks" / "trust.md"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", help="the folder of data sets")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--page", action="store_true", help="write the page from the results alone")
    parser.add_argument("--pack", help="write the codes of all crowds to this folder, and nothing else")
    asked = parser.parse_args()
    if asked.pack:
        return pack(Path(asked.data or data_folder()), Path(asked.pack))
    if not asked.page:
        folder = asked.data or str(data_folder())
        for found in measured(folder, asked.jobs, asked.seeds):
            kept = json.loads(results.read_text()) if results.exists() else {}
            results.write_text(json.dumps({**kept, "rings": found}, separators=(",", ":")) + "\n")
    write(json.loads(results.read_text()), page)


if __name__ == "__main__":
    main()
