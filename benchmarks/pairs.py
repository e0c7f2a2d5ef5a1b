"""Comparisons: speed beside evalica, order among unreliable annotators, errors that cover, and two real sets.

    python benchmarks/pairs.py speed
    python benchmarks/pairs.py simulated
    python benchmarks/pairs.py judges
    python benchmarks/pairs.py lengths
    python benchmarks/pairs.py rings
    python benchmarks/pairs.py heldout --data DIR
    python benchmarks/pairs.py real --data DIR
    python benchmarks/pairs.py page

Each prints tables in Markdown (those of docs/answers-comparisons.md) and writes its figures to
benchmarks/results/pairs.json; the last writes docs/benchmarks/judges.md from these. Nothing is chosen by these
figures but the usual spread of judges, by ``judges``: defaults were fixed before the real sets were run.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import crowdwise as cw

RESULTS = Path(__file__).parent / "results" / "pairs.json"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "judges.md"
ORDER = ("bradley-terry", "position-bt", "crowd-bt", "judge-bt")
KEYS = ("bradley-terry", "crowd-bt", "position-bt", "judge-bt")
SIZES = ((10_000, 20, 5, 9), (300_000, 100, 8, 5), (1_000_000, 1000, 1000, 2))


def table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


# -------------------------------------------------------------------- speed


def speed() -> list[dict[str, Any]]:
    import evalica

    out = []
    for n, n_items, n_annotators, rounds in SIZES:
        pairs = cw.simulate.comparisons(
            n_items, n_annotators=n_annotators, n_comparisons=n, slopes=np.linspace(0.5, 1.5, n_annotators),
            position=0.5, position_spread=0.3, random_state=0,
        ).comparisons  # fmt: skip
        left, right = pairs.left.tolist(), pairs.right.tolist()
        winners = [evalica.Winner.X if y == 0 else evalica.Winner.Y for y in pairs.outcome.tolist()]
        work: dict[str, Callable[[], Any]] = {
            "evalica": lambda left=left, right=right, winners=winners: evalica.bradley_terry(left, right, winners)
        }
        for key in KEYS:
            work[key] = lambda key=key, pairs=pairs: cw.aggregate(pairs, key)
        for run in list(work.values())[1:]:
            run()  # load and compile
        best = {name: min(timed(run)[1] for _ in range(rounds)) for name, run in work.items()}
        rows = [[f"`{name}`", f"{t:.4f}", f"{t / best['evalica']:.2f}"] for name, t in best.items()]
        print(table([f"{n:,}, {n_items:,} items, {n_annotators:,} annotators", "seconds", "times evalica"], rows))
        out.append({"comparisons": n, "items": n_items, "annotators": n_annotators, "seconds": best})
    return out


# -------------------------------------------------------------------- simulated


def simulated(seeds: int = 20) -> dict[str, Any]:
    crowds: dict[str, dict[str, Any]] = {
        "all honest": {},
        "all right in 90 %": {"honest": 0.9},
        "30 % by chance": {"spammers": 0.3},
        "30 % the other way round": {"reversed_": 0.3},
        "20 % by chance, 20 % the other way round": {"spammers": 0.2, "reversed_": 0.2},
    }
    tau: dict[str, Any] = {}
    for n in (2000, 6000):
        for name, more in crowds.items():
            each = []
            for seed in range(seeds):
                crowd = cw.simulate.comparisons(30, n_annotators=40, n_comparisons=n, random_state=seed, **more)
                fits = [cw.aggregate(crowd.comparisons, key) for key in KEYS[:2]]
                fits.append(cw.aggregate(crowd.comparisons, "crowd-bt", reliability="learned"))
                each.append([crowd.tau(ranking) for ranking in fits])
            tau[f"{name}, {n} comparisons"] = np.mean(each, axis=0).tolist()
    rows = [[name, *(f"{value:.3f}" for value in values)] for name, values in tau.items()]
    print(table(["30 items, 40 annotators", "`bradley-terry`", "`crowd-bt`", '`reliability="learned"`'], rows))
    cover = {
        "`bradley-terry`": coverage("bradley-terry", {}),
        "`bradley-terry`, with ties": coverage("bradley-terry", {"tie": 0.0}),
        "`position-bt`": coverage("position-bt", {"position": 0.7}),
        "`crowd-bt`, reliabilities Beta(10, 1)": coverage("crowd-bt", {"honest": (10.0, 1.0)}),
        "`crowd-bt`, 30 % by chance": coverage("crowd-bt", {"spammers": 0.3, "honest": 0.9}),
        "`plackett-luce`": coverage_of_rankings(),
    }
    print(table(["scores within their 95 % interval", "share"], [[k, f"{v:.3f}"] for k, v in cover.items()]))
    return {"seeds": seeds, "tau": tau, "coverage": cover}


def coverage(key: str, more: dict[str, Any], seeds: int = 200) -> float:
    inside = 0.0
    for seed in range(seeds):
        crowd = cw.simulate.comparisons(10, n_annotators=12, n_comparisons=3000, random_state=seed, **more)
        ranking = cw.aggregate(crowd.comparisons, key)
        inside += float((np.abs(ranking.scores - crowd.scores) < 1.96 * ranking.errors).mean())
    return inside / seeds


def coverage_of_rankings(seeds: int = 200) -> float:
    inside = 0.0
    for seed in range(seeds):
        crowd = cw.simulate.rankings(10, n_rankings=300, size=4, random_state=seed)
        ranking = cw.aggregate(crowd.rankings)
        inside += float((np.abs(ranking.scores - crowd.scores) < 1.96 * ranking.errors).mean())
    return inside / seeds


# -------------------------------------------------------------------- judges

UNEQUAL, FIVE = (1.4, 1.2, 1.0, 0.8, 0.6), np.linspace(-1.0, 1.0, 5)
FEW: dict[str, Any] = {"n_items": 5, "judges": 3, "scores": FIVE}
CROWDS: dict[str, dict[str, Any]] = {
    "plain, 1,200": {"n": 1200},
    "plain, 4,000": {"n": 4000},
    "ties, 3,000": {"n": 3000, "tie": 0.0},
    "ties, some judges more (± 0.7), 3,000": {"tie": 0.0, "tie_spread": 0.7, "n": 3000},
    "ties, unequal in ties and slopes, 3,000": {"tie": 0.0, "tie_spread": 0.7, "slopes": UNEQUAL, "n": 3000},
    "position 0.5": {"position": 0.5},
    "position 1": {"position": 1.0},
    "position 1.5": {"position": 1.5},
    "positions 0.5 ± 0.5": {"position": 0.5, "position_spread": 0.5},
    "judges 1.4, 1.2, 1, .8, .6": {"slopes": UNEQUAL, "n": 3000},
    "4 judges 1, .6, .3, .1, position 1.25, 4,000": {
        "judges": 4, "slopes": (1, 0.6, 0.3, 0.1), "position": 1.25, "n": 4000,
    },
    "8 judges 1.5 to .2, positions 0.5 ± 0.5, 15 models, 4,000": {
        "n_items": 15, "judges": 8, "slopes": (1.5, 1.3, 1, 1, 1, 0.8, 0.6, 0.2), "position": 0.5,
        "position_spread": 0.5, "n": 4000,
    },
    "judges 1.15 to .85, positions ± 0.12, 3,000": {
        "slopes": (1.15, 1.07, 1, 0.93, 0.85), "position_spread": 0.12, "n": 3000,
    },
    "sparse: 30 models, 60 pairs, 1,500": {"n_items": 30, "pairs": 60, "n": 1500},
    "sparse: 100 models, 250 pairs, 6,000": {"n_items": 100, "pairs": 250, "n": 6000},
    "sparse: 30 models, unequal judges, positions 0.5 ± 0.3": {
        "n_items": 30, "pairs": 60, "n": 1500, "slopes": UNEQUAL, "position": 0.5, "position_spread": 0.3,
    },
    **{f"{n} prompts, 5 models, 3 judges": FEW | {"prompts": n} for n in (5, 10, 20, 80)},
    "5 prompts, models that do not differ by prompt": FEW | {"prompts": 5, "effect": 0.0},
    "10 prompts, ties": FEW | {"prompts": 10, "tie": 0.0},
    "10 prompts, ties, some judges more (± 0.7)": FEW | {"prompts": 10, "tie": 0.0, "tie_spread": 0.7},
    "10 prompts, position 1.5": FEW | {"prompts": 10, "position": 1.5},
    "10 prompts, 8 judges": FEW | {"prompts": 10, "judges": 8},
    "20 prompts, 4 judges 1.5 to .5": {
        "n_items": 5, "prompts": 20, "judges": 4, "scores": FIVE, "slopes": (1.5, 1.2, 0.8, 0.5), "effect": 0.7,
    },
}  # fmt: skip
"""5 judges, 10 models and 2,000 comparisons where nothing else is said."""


def court(
    seed: int, n_items: int = 10, judges: int = 5, n: int = 2000, tie: float | None = None, position: float = 0.0,
    position_spread: float = 0.0, slopes: Any = None, pairs: int = 0, prompts: int = 0, effect: float = 1.0,
    scores: Any = None, tie_spread: float = 0.0,
) -> tuple[cw.Comparisons, dict[str, Any]]:  # fmt: skip
    """Verdicts of judges, and what is true; on a prompt models differ from their scores by ``effect``."""
    rng = np.random.default_rng(seed)
    s = rng.normal(0.0, 1.0, n_items) if scores is None else np.asarray(scores)
    s = s - s.mean()
    a = np.ones(judges) if slopes is None else np.asarray(slopes, dtype=float)
    b = position + position_spread * rng.standard_normal(judges)
    if prompts:
        every = np.stack(np.triu_indices(n_items, 1), axis=1)
        grid = np.meshgrid(np.arange(prompts), np.arange(len(every)), np.arange(judges), indexing="ij")
        question, at, m = (x.ravel() for x in grid)
        pair = every[at]
        here = (s + effect * rng.standard_normal((prompts, n_items)))[question]
    else:
        m, question = rng.integers(0, judges, n), None
        one = rng.integers(0, n_items, max(n, pairs))
        every = np.stack([one, (one + rng.integers(1, n_items, len(one))) % n_items], axis=1)
        if pairs:  # a circle, and pairs at random
            ring = np.stack([np.arange(n_items), (np.arange(n_items) + 1) % n_items], axis=1)
            every = np.concatenate([ring, every])[:pairs][rng.integers(0, pairs, n)]
        pair, here = every[:n], np.broadcast_to(s, (n, n_items))
    pair = np.where((rng.random(len(m)) < 0.5)[:, None], pair, pair[:, ::-1])
    gap = here[np.arange(len(m)), pair[:, 0]] - here[np.arange(len(m)), pair[:, 1]]
    z = a[m] * gap + b[m]
    own = 0.0 if tie is None or not tie_spread else tie_spread * rng.standard_normal(judges)[m]
    logit = np.stack([z / 2.0, -z / 2.0, np.full(len(z), -np.inf if tie is None else tie) + own], axis=1)
    p = np.exp(logit - logit.max(axis=1, keepdims=True))
    said = (rng.random(len(z))[:, None] > np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)[:, :2]).sum(axis=1)
    table = cw.Comparisons.from_codes(
        pair[:, 0], pair[:, 1], m, said, items=np.arange(n_items), annotators=np.arange(judges), question=question,
        questions=np.arange(prompts) if prompts else None,
    )  # fmt: skip
    unit = np.abs(a).mean()
    return table, {"scores": s * unit, "slope": a / unit, "position": b}


def judges(seeds: int = 500) -> dict[str, Any]:
    """The slope of estimated on true scores, and how often 95 % intervals hold the truth."""
    found = {}
    for name, about in CROWDS.items():
        spread, inside, limit = [], {"scores": [], "position": [], "slope": []}, {}
        if "prompts" in about:  # what many prompts would give
            many = cw.aggregate(court(10**6, **about | {"prompts": 20_000})[0], errors="independent")
            limit = {"scores": many.scores, "slope": many.slope, "position": many.position}
        for seed in range(seeds if about.get("n_items", 10) < 100 else seeds // 4):
            pairs, true = court(seed, **about)
            true |= limit
            ranking = cw.aggregate(pairs)
            items, who = (ranking.to_frame(part, kind="dict") for part in ("items", "annotators"))
            spread.append(float(ranking.scores @ true["scores"] / (true["scores"] @ true["scores"])))
            inside["scores"].append(((items["low"] <= true["scores"]) & (true["scores"] <= items["high"])).mean())
            for part in ("slope", "position"):
                if part in who:
                    low, high = who[f"{part}_low"], who[f"{part}_high"]
                    inside[part].append(((low <= true[part]) & (true[part] <= high))[np.isfinite(low)].mean())
        found[name] = {"spread": float(np.mean(spread))} | {k: float(np.mean(v)) for k, v in inside.items() if v}
        print(name, found[name], flush=True)
    return found


RINGS: dict[str, dict[str, Any]] = {
    "8 of 20 by one false ranking": {"ring": 8},
    "8 of 20, a tenth of their verdicts otherwise": {"ring": 8, "slips": 0.1},
    "8 of 20, 60 verdicts each": {"ring": 8, "each": 60},
    "8 of 20 say the opposite": {"ring": 8, "reverse": True},
    "4 of 20": {"ring": 4},
    "3 of 20, 100 verdicts each": {"ring": 3, "each": 100},
}
HONEST: dict[str, dict[str, Any]] = {
    "8 judges": {"judges": 8, "n": 3000},
    "40 judges, 30 models": {"judges": 40, "n_items": 30, "n": 6000},
    "positions 0.5 ± 0.5": {"judges": 12, "position": 0.5, "position_spread": 0.5, "n": 4000},
    "positions 0 ± 1.5": {"judges": 20, "position_spread": 1.5, "n": 4000},
    "slopes 2 to .1": {"judges": 12, "slopes": np.linspace(2.0, 0.1, 12), "n": 4000},
    "4 know, 16 guess": {"judges": 20, "slopes": [3.0] * 4 + [0.1] * 16, "n": 6000},
    "5 never err, 15 are fair": {"judges": 20, "slopes": [8.0] * 5 + [1.0] * 15, "n": 6000},
    "ties, some judges more": {"judges": 12, "tie": 1.5, "tie_spread": 1.5, "n": 4000},
    "10 prompts": FEW | {"prompts": 10, "judges": 8},
    "40 prompts on which models differ much": FEW | {"prompts": 40, "judges": 12, "effect": 3.0},
}


def with_ring(
    seed: int, ring: int, each: int = 150, slips: float = 0.0, reverse: bool = False
) -> tuple[cw.Comparisons, Any]:
    """Verdicts of 20 judges on 20 models, of whom the first ``ring`` follow one false ranking (or turn the true one)
    and the others see the true one with noise; the true scores."""
    rng = np.random.default_rng(seed)
    true, false = rng.normal(0.0, 1.2, (2, 20))
    left, m = rng.integers(0, 20, 20 * each), np.repeat(np.arange(20), each)
    right = (left + rng.integers(1, 20, len(left))) % 20
    honest = rng.random(len(left)) > 1.0 / (1.0 + np.exp(true[right] - true[left]))
    led = (true[left] > true[right]) if reverse else (false[left] < false[right]) ^ (rng.random(len(left)) < slips)
    said = np.where(m < ring, led, honest).astype(int)
    return cw.Comparisons.from_codes(left, right, m, said, items=range(20), annotators=range(20)), true


def rings(seeds: int = 20) -> dict[str, Any]:
    """Kendall's tau with rings: as they are, counted as one, and left out; members found, and others accused."""
    planted, honest = {}, {}
    for name, about in RINGS.items():
        rows = []
        for seed in range(seeds):
            table, true = with_ring(seed, **about)
            found, k = cw.aggregate(table), about["ring"]
            member = found.annotator_counts.get("ring", np.zeros(20)) > 0
            fits = (cw.aggregate(table, collusion="ignore"), found, cw.aggregate(table.without(list(range(k)))))
            rows.append([*(fit.score(true) for fit in fits), member[:k].mean(), member[k:].sum()])
        planted[name] = np.mean(rows, axis=0).tolist()
        print(name, planted[name], flush=True)
    for name, about in HONEST.items():
        tables = (court(seed, **about)[0] for seed in range(seeds))
        honest[name] = sum("ring" in cw.aggregate(table, errors="independent").annotator_counts for table in tables)
        print(name, honest[name], flush=True)
    return {"seeds": seeds, "planted": planted, "honest": honest}


def lengths(seeds: int = 500) -> dict[str, float]:
    """How often 95 % intervals hold the planted effect of an answer twice as long (0.5), and of style (0.8)."""
    inside = []
    for seed in range(seeds):
        rng, scores, n = np.random.default_rng(seed), np.linspace(-1.0, 1.0, 6), 1500
        a = rng.integers(0, 6, n)
        b = (a + rng.integers(1, 6, n)) % 6
        words, style = np.exp(rng.normal(5 + 0.4 * scores[np.stack([a, b])], 0.5)), rng.random((2, n)) < 0.3
        z = scores[a] - scores[b] + 0.5 * np.log2(words[0] / words[1]) + 0.8 * (style[0] * 1.0 - style[1])
        named = np.where(style, "markdown", "plain")
        frame = {"left": a, "right": b, "winner": np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "left", "right"),
                 "judge": rng.integers(0, 3, n), "prompt": rng.integers(0, 60, n), "words_a": words[0],
                 "words_b": words[1], "style_a": named[0], "style_b": named[1]}  # fmt: skip
        pairs = cw.Comparisons.from_frame(frame, keep=["words", "style"])
        found = cw.aggregate(pairs, control=["words", "style"]).to_frame("effects", kind="dict")
        inside.append((found["log_odds_low"] <= [0.5, 0.8]) & ([0.5, 0.8] <= found["log_odds_high"]))
    share = dict(zip(("length", "style"), np.mean(inside, axis=0).tolist(), strict=True))
    print(share)
    return share


def heldout(data: Path, splits: int = 2) -> dict[str, Any]:
    """The mean log loss of a fifth of the verdicts, held out."""
    found: dict[str, Any] = {}
    for name, pairs in tables_of(data).items():
        for key in KEYS:
            losses = []
            for split in range(splits if name != "llmbar_judges" else 1):
                held = np.random.default_rng(split).random(pairs.n_answers) < 0.2
                test = pairs.select(held)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", cw.errors.ConnectionWarning)
                    p = cw.aggregate(pairs.select(~held), key, errors="independent").predict(test)
                losses.append(float(-np.log(np.maximum(p[np.arange(len(p)), test.outcome], 1e-12)).mean()))
            found.setdefault(name, {})[key] = losses
            print(name, key, losses, flush=True)
    return found


def tables_of(data: Path) -> dict[str, cw.Comparisons]:
    frame = pl.read_csv(data / "convarg_pairs" / "labels.csv").with_columns(
        left=pl.col("task").str.split("_").list.first(), right=pl.col("task").str.split("_").list.last()
    )
    bar = pl.read_csv(data / "llmbar_judges" / "labels.csv", schema_overrides={"label": pl.String})
    one, two, turned = pl.format("{}#1", "task"), pl.format("{}#2", "task"), pl.col("swapped") == 1
    bar = bar.filter(pl.col("label").is_in(["1", "2"])).with_columns(
        left=pl.when(turned).then(two).otherwise(one), right=pl.when(turned).then(one).otherwise(two),
        winner=pl.when(pl.col("label") == "1").then(one).otherwise(two),
    )  # fmt: skip
    return {
        "mtbench_judgments": mtbench_pairs(data / "mtbench_judgments")[1],
        "convarg_pairs": cw.Comparisons.from_frame(frame, annotator="worker", outcome="label"),
        "llmbar_judges": cw.Comparisons.from_frame(
            bar, left="left", right="right", outcome="winner", annotator="worker"
        ),
    }  # fmt: skip


# -------------------------------------------------------------------- real sets


def real(data: Path) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cw.errors.ConnectionWarning)  # the 32 topics are not joined
        return {"mtbench": mtbench(data / "mtbench_judgments"), "convarg": convarg(data / "convarg_pairs")}


def mtbench_pairs(folder: Path) -> tuple[pl.DataFrame, cw.Comparisons]:
    frame = pl.read_csv(folder / "labels.csv").with_columns(
        question=pl.format("{} turn {}", "question_id", "turn")
    )  # fmt: skip
    return frame, cw.Comparisons.from_frame(
        frame, left="model_a", right="model_b", outcome="label", annotator="worker", question="question"
    )


def mtbench(folder: Path) -> dict[str, Any]:
    frame, pairs = mtbench_pairs(folder)
    judge = "gpt4_pair"
    fits = {
        "people": cw.aggregate(pairs.without([judge]), "bradley-terry"),
        "GPT-4": cw.aggregate(pairs.only([judge]), "bradley-terry"),
        "all, `crowd-bt`": cw.aggregate(pairs, "crowd-bt"),
    }
    order = np.argsort(-fits["people"].scores)
    rows = []
    for n in order.tolist():
        row: list[Any] = [fits["people"].items[n]]
        for ranking in fits.values():
            low, high = ranking.rank_interval()
            row += [f"{ranking.scores[n]:+.2f} ± {1.96 * ranking.errors[n]:.2f}", f"{low[n]}–{high[n]}"]
        rows.append(row)
    print(table(["model", *(cell for name in fits for cell in (name, "ranks"))], rows))

    said = frame.with_columns(
        flip=pl.col("model_a") > pl.col("model_b"),
        pair=pl.format("{} {} {}", "question", pl.min_horizontal("model_a", "model_b"),
                       pl.max_horizontal("model_a", "model_b")),
    ).with_columns(
        first=pl.when(pl.col("label").str.starts_with("tie")).then(None)
        .otherwise((pl.col("label") == "model_a") != pl.col("flip"))
    )  # fmt: skip
    people, gpt = said.filter(pl.col("worker") != judge), said.filter(pl.col("worker") == judge)
    both = people.join(gpt.select("pair", judged="first", verdict="label"), on="pair")
    decided = both.drop_nulls(["first", "judged"])
    agree = float((decided["first"] == decided["judged"]).mean())  # type: ignore[arg-type]
    human = people.join(people, on="pair", suffix="_other").filter(pl.col("worker") < pl.col("worker_other"))
    human = human.drop_nulls(["first", "first_other"])
    among = float((human["first"] == human["first_other"]).mean())  # type: ignore[arg-type]
    turned = float((gpt["label"] == "tie_inconsistent").mean())  # type: ignore[arg-type]
    position = cw.aggregate(pairs.without([judge]), "position-bt").to_frame("annotators", kind="dict")
    far = (position["position_low"] > 0) | (position["position_high"] < 0)
    united = (
        decided.group_by("pair", "judged")
        .agg(votes=pl.len(), share=pl.col("first").mean())
        .filter(pl.col("votes") >= 2, pl.col("share").is_in([0.0, 1.0]))
        .with_columns(against=(pl.col("share") == 1.0) != pl.col("judged"))
    )
    against = united.filter("against").sort(["votes", "pair"], descending=[True, False])
    facts = {
        "agreement": agree, "agreement_pairs": decided.height, "agreement_people": among, "people_pairs": human.height,
        "verdicts_turned": turned, "verdicts": gpt.height,
        "position_mean_people": float(np.average(position["position"], weights=position["comparisons"])),
        "people_with_position": int(far.sum()), "people": len(far),
        "united": united.height, "united_against": against.height,
        "reliability_judge": float(fits["all, `crowd-bt`"].reliability[pairs.annotators.tolist().index(judge)]),
        "ties_people": float((people["label"] == "tie").mean()), "ties_judge": float((gpt["label"] == "tie").mean()),  # type: ignore[arg-type]
    }  # fmt: skip
    print(json.dumps(facts, indent=1))
    print(table(["pair on which people agree and GPT-4 does not", "people"], against["pair", "votes"].head(5).rows()))
    a, b = fits["people"], fits["GPT-4"]
    names = a.items.tolist()
    gaps = sorted(
        ((abs(a.probability(i, j) - b.probability(i, j)), i, j) for k, i in enumerate(names) for j in names[k + 1 :]),
        reverse=True,
    )
    rows = [[f"{i} beats {j}", f"{a.probability(i, j):.2f}", f"{b.probability(i, j):.2f}"] for _, i, j in gaps[:4]]
    print(table(["", "people", "GPT-4"], rows))
    return facts


def convarg(folder: Path) -> dict[str, Any]:
    frame = pl.read_csv(folder / "labels.csv").with_columns(
        left=pl.col("task").str.split("_").list.first(), right=pl.col("task").str.split("_").list.last()
    )
    pairs = cw.Comparisons.from_frame(frame, annotator="worker", outcome="label")
    truth = pl.read_csv(folder / "truth.csv").filter(pl.col("label") != "equal")
    items = pl.read_csv(folder / "items.csv")
    facts: dict[str, Any] = {"comparisons": pairs.n_answers, "items": pairs.n_items, "annotators": pairs.n_annotators}
    boards = {}
    for key in KEYS[:2]:
        ranking = cw.aggregate(pairs, key)
        boards[key] = ranking
        score = dict(zip(ranking.items.tolist(), ranking.scores.tolist(), strict=True))
        first = np.array([score[a] > score[b] for a, b in truth["arg1", "arg2"].rows()])
        facts[key] = {
            "components": int(ranking.components.max()) + 1,
            "seconds": round(ranking.seconds, 2),
            "agreement_with_released": float((first == (truth["label"] == "a1").to_numpy()).mean()),
        }
    vote = frame.filter(pl.col("label") != "equal").group_by("task").agg(share=(pl.col("label") == "a1").mean())
    joined = truth.join(vote, on="task", how="left").with_columns(pl.col("share").fill_null(0.5))
    right = np.where(joined["share"] == 0.5, 0.5, (joined["share"] > 0.5) == (joined["label"] == "a1"))
    facts["majority"] = {"agreement_with_released": float(right.mean()), "pairs": truth.height}
    eta = boards["crowd-bt"].reliability
    facts["reliability"] = {f"below {t}": int((eta < t).sum()) for t in (0.5, 0.7, 0.9)}
    print(json.dumps(facts, indent=1))
    topic = dict(items["id", "topic"].rows())
    ranking = boards["crowd-bt"]
    board = ranking.to_frame("leaderboard", kind="polars").with_columns(
        topic=pl.col("item").map_elements(topic.get, return_dtype=pl.String)
    )
    one = board.filter(pl.col("topic") == board["topic"].drop_nulls().sort()[0])
    rows = [
        [r["item"], f"{r['score']:+.2f} ± {1.96 * r['error']:.2f}", int(r["wins"]), int(r["losses"]), int(r["ties"])]
        for r in [*one.head(3).to_dicts(), *one.tail(2).to_dicts()]
    ]
    print(table([f"{one['topic'][0]} ({one.height} arguments)", "score", "won", "lost", "tied"], rows))
    return facts


def page() -> str:
    """docs/benchmarks/judges.md, from the figures that are kept."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = [
        [name, f"{row['spread']:.2f}", *(f"{row[k]:.1%}" if k in row else "" for k in ("scores", "position", "slope"))]
        for name, row in kept["judges"].items()
    ]
    parts = ["# Judges and leaderboards\n"]
    parts.append(
        "Figures behind [comparisons](../answers-comparisons.md). `python benchmarks/pairs.py judges` (and `lengths`, "
        "`heldout`, `speed`) computes them, `page` writes this page. `judge-bt`, the default, with its defaults.\n"
    )
    parts.append(
        "## Simulated judges\n\nThe slope of estimated on true scores (1 is right), and how often 95 % intervals hold "
        "the true score of a model, position of a judge and slope (reliability) of a judge: 500 tables each, 125 of "
        "100 models; 5 judges, 10 models and 2,000 comparisons where nothing else is said. With prompts, the truth is "
        "what 20,000 prompts give; models differ by prompt with a standard deviation of 1.\n"
    )
    parts.append(table(["", "slope of scores", "scores", "positions", "slopes of judges"], rows))
    parts.append(
        "The usual spread of judges (0.7, worth one judge) was chosen on these simulations: with 0.3 intervals of "
        "judges who do not differ hold the truth in 97 to 99 %, with 0.1 those of judges who differ a little in 89 %. "
        "Scores do not depend on it. With 5 prompts and 3 judges, slopes stay too wide: they are drawn towards each "
        "other, and Student's t with 4 degrees of freedom does not know it.\n"
    )
    share = kept["lengths"]
    parts.append(
        "## A planted effect\n\n`control`: of 500 tables of 1,500 comparisons on 60 prompts, in which better models "
        f"write more, 95 % intervals hold the effect of an answer twice as long in {share['length']:.1%}, of its style "
        f"in {share['style']:.1%}.\n"
    )
    rows = [[name, *(f"{np.mean(row[key]):.4f}" for key in ORDER)] for name, row in kept["heldout"].items()]
    parts.append(
        "## Held-out verdicts\n\nMean log loss of a fifth of the verdicts (two splits, one of `llmbar_judges`).\n"
    )
    parts.append(table(["", *(f"`{key}`" for key in ORDER)], rows))
    parts.append(
        "Ties make most of the difference on the first two: in `judge-bt` each judge has a habit of tying, in the "
        "others all tie alike. Without it `judge-bt` has 0.7851 and 0.8507: those who tie often passed for judges who "
        "see little. The habit was added with `convarg_pairs` in view; its spread has the prior of slopes and "
        "positions.\n"
    )
    about = kept["rings"]
    parts.append(
        "## Rings\n\n20 judges compare 20 models, 150 verdicts each where nothing else is said; some are a ring. "
        f"Kendall's tau of the scores with the true ones, mean of {about['seeds']} tables. No other was accused.\n"
    )
    assert not any(row[4] for row in about["planted"].values()) and not any(about["honest"].values())
    rows = [[name, f"{row[3]:.0%}", *(f"{value:.2f}" for value in row[:3])] for name, row in about["planted"].items()]
    parts.append(table(["", "members found", 'all count, `collusion="ignore"`', "default", "without the ring"], rows))
    parts.append(
        f"No judge is accused in {about['seeds']} tables of each of these without a ring: "
        f"{'; '.join(about['honest'])}. Nor in the three real sets above, nor in 60 random parts of them (8 to 400 "
        "judges). The detector is that of votes, as it was.\n"
    )
    parts.append(
        "## Speed\n\nSeconds of the processor in one run, the fastest of several rounds; evalica fits no annotators.\n"
    )
    rows = []
    for run in kept["speed"]:
        first, *others = (run["seconds"][key] for key in ("evalica", *ORDER))
        what = f"{run['comparisons']:,} comparisons, {run['items']:,} models, {run['annotators']:,} judges"
        rows.append([what, f"{first:.4f}", *(f"{seconds / first:.1f} times" for seconds in others)])
    parts.append(table(["", "evalica", *(f"`{key}`" for key in ORDER)], rows))
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["speed", "simulated", "judges", "lengths", "rings", "real", "heldout", "page"])
    parser.add_argument("--data", type=Path, help="the folder of data sets, for real and heldout")
    given = parser.parse_args()
    if given.part == "page":
        PAGE.write_text(page(), encoding="utf-8")
        return
    with_data: dict[str, Callable[[Path], Any]] = {"real": real, "heldout": heldout}
    if given.part in with_data and given.data is None:
        parser.error(f"{given.part} needs --data")
    without: dict[str, Callable[[], Any]] = {
        "speed": speed,
        "simulated": simulated,
        "judges": judges,
        "lengths": lengths,
        "rings": rings,
    }
    found = with_data[given.part](given.data) if given.part in with_data else without[given.part]()
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**kept, given.part: found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
