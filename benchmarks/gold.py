"""What known answers bring: accuracy and log loss of ``auto`` by the number of gold labels, on real crowds.

    python benchmarks/gold.py [--draws 10] [--data DIR]     docs/benchmarks/gold.md and its picture, in a few minutes

Items are drawn evenly, or as ``crowdwise gold`` draws them, and the others measure. The numbers of the calibration
(:mod:`crowdwise.core.gold_calibration`) are a choice among ``GRID``; each set is measured with the choice that is best
for the *other* sets (leave one set out), and with the one that the package has.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise.active.curve_drawing import Line, draw
from crowdwise.bench import label_methods, tables
from crowdwise.core import dependence, gold_calibration
from crowdwise.core.numerics import safe_log, softmax

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs" / "benchmarks" / "gold.md", ROOT / "docs" / "assets" / "gold.svg"
NUMBERS = (10, 20, 50, 100, 200)
FLOOR = 1e-6
Choice = tuple[float, float]
GRID: tuple[Choice, ...] = tuple(product((0.25, 0.4, 0.6), (1.0, 3.0, 9.0)))
"""The standard deviation of the power, and the weight of the smallest bias."""
CHOSEN: Choice = (gold_calibration.POWER_SD, gold_calibration.BIAS_WEIGHT[0])
EVENLY, ASKED = "evenly", "as `crowdwise gold` asks"


def figures(q: Any, truth: Any) -> Any:
    """Accuracy in percent (ties split), and log loss."""
    at, tied = np.arange(len(q)), q >= q.max(axis=1, keepdims=True) - 1e-9
    right = 100.0 * (tied[at, truth] / tied.sum(axis=1)).mean()
    return np.array([right, -np.log(np.maximum(q[at, truth], FLOOR)).mean()])


def off(q: Any, truth: Any) -> float:
    """By how many points the expected accuracy is off."""
    return float(abs(100.0 * q.max(axis=1).mean() - figures(q, truth)[0]))


def with_choice(choice: Choice, logit: Any, gold: Any) -> tuple[float, tuple[float, ...]]:
    """The calibration with other numbers."""
    kept = gold_calibration.POWER_SD, gold_calibration.BIAS_WEIGHT
    gold_calibration.POWER_SD = choice[0]
    gold_calibration.BIAS_WEIGHT = (choice[1], *kept[1][1:])
    try:
        return gold_calibration.calibrate(logit, gold)
    finally:
        gold_calibration.POWER_SD, gold_calibration.BIAS_WEIGHT = kept


def measured(votes: cw.Votes, truth: Any, known: Any, items: Any, before: Any) -> dict[str, Any]:
    """With gold labels of some items: changes of accuracy and log loss on the others by choice, and over all items."""
    gold = np.full(len(votes), -1, dtype=np.int32)
    gold[items] = truth[items]
    seen: dict[str, Any] = {}

    def spy(logit: Any, classes: Any) -> tuple[float, tuple[float, ...]]:
        seen["logit"], seen["gold"] = logit, classes
        return gold_calibration.calibrate(logit, classes)

    original, dependence.calibrate = dependence.calibrate, spy
    try:
        found = cw.aggregate(votes, gold=gold)
    finally:
        dependence.calibrate = original
    rest = np.setdiff1d(known, items)
    base = figures(before[rest], truth[rest])
    n = votes_per_item(votes)[rest]
    plain = replace(found.dependence, source="votes")
    logit = dependence.corrected_logit(safe_log(found.independent_posterior[rest]), n, plain)
    by_choice = []
    for choice in GRID:
        power, bias = with_choice(choice, seen["logit"], seen["gold"])
        by_choice.append(figures(softmax(power * logit + np.array(bias)), truth[rest]) - base)
    everything = figures(found.posterior[known], truth[known]) - figures(before[known], truth[known])
    return {
        "choices": np.array(by_choice),
        "others": figures(found.posterior[rest], truth[rest]) - base,
        "base": base,
        "off": off(found.posterior[rest], truth[rest]),
        "off before": off(before[rest], truth[rest]),
        "all": everything,
        "base of all": figures(before[known], truth[known]),
    }


def votes_per_item(votes: cw.Votes) -> Any:
    return np.asarray(dependence.votes_per_item(votes))


def run(data: Path, draws: int) -> dict[tuple[str, int], dict[str, list[dict[str, Any]]]]:
    """(Way of drawing, number of labels) -> set -> a row per draw."""
    out: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for name in label_methods.find_sets(data):
        votes = cw.read_dataset(data / name, on_duplicate="all").votes
        truth = np.asarray(votes.truth)
        known = np.flatnonzero((truth >= 0) & (np.diff(votes.indptr) > 0))
        alone = cw.aggregate(votes)
        part = cw.aggregate(votes[known])
        for g, seed in product(NUMBERS, range(draws)):
            if g > 0.6 * len(known):
                continue
            evenly = np.random.default_rng(1000 * seed + g).choice(known, g, replace=False)
            asked = cw.trust.ask_for_gold(part, g, random_state=seed).items
            place = {item: n for n, item in enumerate(votes.items.tolist())}
            for way, items in ((EVENLY, evenly), (ASKED, np.array([place[item] for item in asked.tolist()]))):
                out[way, g][name].append(measured(votes, truth, known, items, alone.posterior))
        print(name, flush=True)
    return out


def left_out(rows: dict[tuple[str, int], dict[str, list[dict[str, Any]]]], names: list[str]) -> dict[str, int]:
    """For each set, the choice with the least log loss on the others, over all numbers of labels drawn evenly."""
    loss = {}
    for name in names:
        some = [rows[EVENLY, g][name] for g in NUMBERS if name in rows[EVENLY, g]]
        loss[name] = np.mean([np.mean([r["choices"][:, 1] for r in of], axis=0) for of in some], axis=0)
    return {name: int(np.mean([loss[other] for other in names if other != name], axis=0).argmin()) for name in names}


def page(rows: dict[tuple[str, int], dict[str, list[dict[str, Any]]]], draws: int) -> str:
    names = list(dict.fromkeys(name for some in rows.values() for name in some))
    choice = left_out(rows, names)
    table, curves = [], {}
    for way in (EVENLY, ASKED):
        xs, ys = [0], [0.0]
        for g in NUMBERS:
            some = rows[way, g]
            means = {name: {key: np.mean([r[key] for r in of], axis=0) for key in of[0]} for name, of in some.items()}
            others = np.array([m["choices"][choice[name]] for name, m in means.items()])
            package = np.array([m["others"] for m in means.values()])
            base = np.mean([m["base"][1] for m in means.values()])
            everything = np.mean([m["all"] for m in means.values()], axis=0)
            whole = np.mean([m["base of all"][1] for m in means.values()])
            table.append([
                way, str(g), str(len(means)), f"{others[:, 0].mean():+.2f}", f"{others[:, 0].min():+.2f}",
                f"{100 * others[:, 1].mean() / base:+.1f} %", f"{package[:, 0].mean():+.2f}",
                f"{100 * package[:, 1].mean() / base:+.1f} %", f"{everything[0]:+.2f}",
                f"{100 * everything[1] / whole:+.1f} %",
                *(f"{np.mean([m[key] for m in means.values()]):.1f}" for key in ("off before", "off")),
            ])  # fmt: skip
            xs.append(g)
            ys.append(float(100 * package[:, 1].mean() / base) / 100)
        curves[way] = (xs, ys)
    PICTURE.write_text(
        draw(
            [Line("by crowdwise gold" if way == ASKED else way, x, y) for way, (x, y) in curves.items()],
            title="auto: change of log loss on the other items", x_label="gold labels", y_label="change of log loss",
            description="Two curves over the number of gold labels, drawn evenly and as crowdwise gold asks.",
        ),
        encoding="utf-8",
    )  # fmt: skip
    fifty = rows[EVENLY, 50]
    per_set = []
    for name, of in fifty.items():
        m = {key: np.mean([r[key] for r in of], axis=0) for key in of[0]}
        change = m["choices"][choice[name]]
        per_set.append([
            name, f"{m['base'][0]:.1f}", f"{change[0]:+.2f}", f"{m['base'][1]:.3f}", f"{change[1]:+.3f}",
            f"{m['all'][0]:+.2f}", f"{m['all'][1]:+.3f}",
        ])  # fmt: skip
    header = [
        "drawn", "labels", "sets", "accuracy of the others, left out", "worst set", "log loss of the others, left out",
        "accuracy, package", "log loss, package", "accuracy over all items", "log loss over all items",
        "expected accuracy of the others off by, without gold", "with gold",
    ]  # fmt: skip
    columns = [
        "data", "accuracy without", "change, others", "log loss without", "change, others", "accuracy, all items",
        "log loss, all items",
    ]  # fmt: skip
    return f"""# Gold labels

Written by `benchmarks/gold.py`: what known answers bring to [`auto`](../methods.md#auto) (`gold=`, `--gold`), {draws}
draws for every number of labels, means over the draws and then over the sets. Changes against `auto` without gold: of
accuracy in points, of log loss (probabilities held above {FLOOR:g}) in percent of its mean. "The others" are the items
without gold labels. "All items" has those with gold labels, which are right from then on. The last columns have the
mean over sets and draws of the distance between expected and real accuracy, in points.

## What was looked at, and when

The sets with truth are a development collection. The two numbers of the calibration (standard deviation of the power,
weight of the smallest bias) are a choice among {len(GRID)}: "left out" has, for each set, the one that is best for the
*other* sets, "package" the one in the package, {CHOSEN[0]:g} and {CHOSEN[1]:g}. Left out in turn, the sets took
{len(set(choice.values()))} of them. That votes on gold items count once (three or five times was tried) and that
gold does not move rho were found on the same sets, as was the way to draw items (evenly, in proportion to doubt, half
and half, the most doubtful), that fewer than 20 labels give no bias (with one, ten labels cost a set 1.0 points), and
that gold items are judged under a prior that they did not teach (before, fifty
labels brought 6.4 % of log loss; folds of gold items left out of the whole fit are as good). Tried without gain: vote
shares as a second feature, other priors of the power (log-normal), one size of bias for all sets, three votes for one
on gold items. With a power and biases fitted to all of the truth, log loss falls by 15 %: fifty labels find half of it.

## By the number of labels

Sets with fewer than {NUMBERS[-1] / 0.6:.0f} known items are missing from the larger numbers.

{tables.markdown(header, table)}

![Change of log loss by the number of gold labels](../assets/gold.svg)

## Fifty labels, drawn evenly

{tables.markdown(columns, per_set)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=tables.data_folder())
    parser.add_argument("--draws", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    PAGE.write_text(page(run(given.data, given.draws), given.draws), encoding="utf-8")


if __name__ == "__main__":
    main()
