"""Comparisons: speed beside evalica, order among unreliable annotators, errors that cover, and two real sets.

    python benchmarks/pairs.py speed
    python benchmarks/pairs.py simulated
    python benchmarks/pairs.py real --data DIR

Each prints tables in Markdown (those of docs/answers-comparisons.md) and writes its figures to
benchmarks/results/pairs.json. Nothing is chosen by these figures: defaults were fixed before the real sets were run.
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
KEYS = ("bradley-terry", "crowd-bt", "position-bt")


def table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


# -------------------------------------------------------------------- speed


def speed(n: int = 1_000_000, n_items: int = 1000, n_annotators: int = 1000, rounds: int = 3) -> dict[str, Any]:
    import evalica

    pairs = cw.simulate.comparisons(
        n_items, n_annotators=n_annotators, n_comparisons=n, reversed_=0.3, random_state=0
    ).comparisons  # fmt: skip
    left, right = pairs.left.tolist(), pairs.right.tolist()
    winners = [evalica.Winner.X if y == 0 else evalica.Winner.Y for y in pairs.outcome.tolist()]
    work: dict[str, Callable[[], Any]] = {"evalica": lambda: evalica.bradley_terry(left, right, winners)}
    for key in KEYS:
        work[key] = lambda key=key: cw.aggregate(pairs, key)
    for run in list(work.values())[1:]:
        run()  # load and compile
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            found[name].append(timed(run))
    best = {name: [min(t[k] for t in times) for k in (0, 1)] for name, times in found.items()}
    rows = [
        [f"`{name}`", f"{clock:.2f}", f"{processor:.2f}", f"{processor / best['evalica'][1]:.2f}"]
        for name, (clock, processor) in best.items()
    ]
    print(table(["", "seconds", "of the processor", "times evalica"], rows))
    return {"comparisons": n, "items": n_items, "annotators": n_annotators, "seconds": best}


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


# -------------------------------------------------------------------- real sets


def real(data: Path) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cw.errors.ConnectionWarning)  # the 32 topics are not joined
        return {"mtbench": mtbench(data / "mtbench_judgments"), "convarg": convarg(data / "convarg_pairs")}


def mtbench(folder: Path) -> dict[str, Any]:
    frame = pl.read_csv(folder / "labels.csv").with_columns(
        question=pl.format("{} turn {}", "question_id", "turn")
    )  # fmt: skip
    pairs = cw.Comparisons.from_frame(
        frame, left="model_a", right="model_b", outcome="label", annotator="worker", question="question"
    )
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["speed", "simulated", "real"])
    parser.add_argument("--data", type=Path, help="the folder of data sets, for real")
    given = parser.parse_args()
    if given.part == "real" and given.data is None:
        parser.error("real needs --data")
    found = {"speed": speed, "simulated": simulated}[given.part]() if given.part != "real" else real(given.data)
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**kept, given.part: found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
