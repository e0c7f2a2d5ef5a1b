"""What known answers bring: accuracy and log loss of ``auto`` by the number of gold labels, on real crowds.

    python benchmarks/gold.py [--draws 3] [--data DIR] [--jobs N]    docs/benchmarks/gold.md, in an hour of one core

Items are drawn evenly, or as ``crowdwise gold`` draws them, and the others measure. The prior odds of the model against
a regression (``CAUTION`` of :mod:`crowdwise.core.gold_regression`) are a choice among ``GRID``; each set is measured
with the choice that is best for the *other* sets (leave one set out), and with the one that the package has.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import tables

import crowdwise as cw
from crowdwise.active.curve_drawing import Line, draw
from crowdwise.bench import runs
from crowdwise.core import dependence, gold_regression

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs" / "benchmarks" / "gold.md", ROOT / "docs" / "assets" / "gold.svg"
NUMBERS = (5, 10, 20, 50, 100)
SHOWN = 50
"""Set by set, with twice the draws."""
FLOOR = 1e-6
MOST_VOTES = 30_000
"""Of larger sets the items with truth alone are taken."""
GRID = (1.0, 3.0, 10.0, 30.0)
CHOSEN = gold_regression.CAUTION
JUDGES, OWN = "llmbar_judges", "LLMBar/"
EVENLY, ASKED = "evenly", "as `crowdwise gold` asks"
Rows = dict[tuple[str, int], dict[str, list[dict[str, Any]]]]


def figures(q: Any, truth: Any) -> Any:
    """Accuracy in percent (ties split), and log loss."""
    at, tied = np.arange(len(q)), q >= q.max(axis=1, keepdims=True) - 1e-9
    right = 100.0 * (tied[at, truth] / tied.sum(axis=1)).mean()
    return np.array([right, -np.log(np.maximum(q[at, truth], FLOOR)).mean()])


def off(q: Any, truth: Any) -> float:
    """By how many points the expected accuracy is off."""
    return float(abs(100.0 * q.max(axis=1).mean() - figures(q, truth)[0]))


def measured(votes: cw.Votes, truth: Any, known: Any, items: Any, before: Any) -> dict[str, Any]:
    """With gold labels of some items: changes of accuracy and log loss on the others by choice, and over all items."""
    gold = np.full(len(votes), -1, dtype=np.int32)
    gold[items] = truth[items]
    seen: dict[str, Any] = {}

    def spy(*of_items: Any) -> Any:
        seen["of items"] = of_items
        return gold_regression.regress(*of_items)

    dependence.regress = spy
    try:
        found = cw.aggregate(votes, gold=gold)
    finally:
        dependence.regress = gold_regression.regress
    rest = np.setdiff1d(known, items)
    base = figures(before[rest], truth[rest])
    by_choice = [figures(found.posterior[rest], truth[rest]) - base] * len(GRID)
    if seen and len(items) >= gold_regression.MIN_LABELS:
        by_choice = []
        for gold_regression.CAUTION in GRID:
            fit = gold_regression.regress(*seen["of items"])
            other = replace(found.dependence, power=fit.power, bias=fit.bias, weights=fit.weights)
            q = dependence.corrected(found.independent_posterior[rest], votes[rest], other)
            by_choice.append(figures(q, truth[rest]) - base)
        gold_regression.CAUTION = CHOSEN
    return {
        "choices": np.array(by_choice),
        "others": figures(found.posterior[rest], truth[rest]) - base,
        "base": base,
        "share": found.dependence.share,
        "off": off(found.posterior[rest], truth[rest]),
        "off before": off(before[rest], truth[rest]),
        "all": figures(found.posterior[known], truth[known]) - figures(before[known], truth[known]),
        "base of all": figures(before[known], truth[known]),
    }


def of_set(data: Path, draws: int, name: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """(Way of drawing, number of labels) -> a row per draw, of one set; nothing of a set without truth."""
    warnings.simplefilter("ignore")
    votes = cw.read_dataset(data / name, on_duplicate="all").votes
    out: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    if votes.n_classes < 2 or votes.truth is None:
        return out
    truth = np.asarray(votes.truth)
    known = np.flatnonzero((truth >= 0) & (np.diff(votes.indptr) > 0))
    if votes.n_votes > MOST_VOTES:
        votes, truth, known = votes[known], truth[known], np.arange(len(known))
    alone = cw.aggregate(votes)
    part = cw.aggregate(votes[known])
    place = {item: n for n, item in enumerate(votes.items.tolist())}
    for g, seed in product(NUMBERS, range(2 * draws)):
        if g > 0.6 * len(known) or (seed >= draws and g != SHOWN):
            continue
        evenly = np.random.default_rng(1000 * seed + g).choice(known, g, replace=False)
        out[EVENLY, g].append(measured(votes, truth, known, evenly, alone.posterior))
        if g >= gold_regression.MIN_LABELS and seed < draws:
            asked = cw.trust.ask_for_gold(part, g, random_state=seed).items.tolist()
            items = np.array([place[item] for item in asked])
            out[ASKED, g].append(measured(votes, truth, known, items, alone.posterior))
    print(name, flush=True)
    return out


def run(data: Path, draws: int, jobs: int) -> Rows:
    """(Way of drawing, number of labels) -> set -> a row per draw."""
    out: Rows = defaultdict(dict)
    names = runs.find_sets(data)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:  # polars and fork do not go together
        for name, found in zip(names, pool.map(partial(of_set, data, draws), names), strict=True):
            for key, rows in found.items():
                out[key][name] = rows
    return out


def judges(data: Path, draws: int) -> list[list[str]]:
    """Fifty labels of a panel: the rows of the table, measured on LLMBar's own pairs without gold labels."""
    votes = cw.read_dataset(data / JUDGES, on_duplicate="all").votes
    truth, own = np.asarray(votes.truth), np.array([str(name).startswith(OWN) for name in votes.items])
    rows = []
    for words, some, pool in (
        ("these pairs alone", votes[own], np.arange(own.sum())),
        ("all pairs, labels of these", votes, np.flatnonzero(own)),
        ("all pairs, labels of all", votes, np.arange(len(votes))),
    ):
        y, mine = (truth[own], np.ones(own.sum(), dtype=bool)) if len(some) < len(votes) else (truth, own)
        results: dict[str, list[Any]] = defaultdict(list)
        for seed in range(draws):
            at = np.random.default_rng(seed).choice(pool, 50, replace=False)
            gold = np.full(len(y), -1, dtype=np.int32)
            gold[at] = y[at]
            rest = np.flatnonzero((gold < 0) & mine)
            found = cw.aggregate(some, gold=gold)
            bare = replace(found.dependence, weights=None, bias=(0.0,) * some.n_classes)
            model = dependence.corrected(found.independent_posterior[rest], some[rest], bare)
            for name, q in (
                ("without gold", cw.aggregate(some).posterior[rest]), ("the model alone", model),
                ("with the regression", found.posterior[rest]), ("best judge by gold", best_judge(some, gold)[rest]),
            ):  # fmt: skip
                results[name].append(figures(q, y[rest]))
        for name, values in results.items():
            right, loss = np.mean(values, axis=0)
            rows.append([words, name, f"{right:.1f}", "" if "judge" in name else f"{loss:.2f}"])
    return rows


def best_judge(votes: cw.Votes, gold: Any) -> Any:
    """The shares of the answers of the annotator who is most often right on gold items."""
    known = gold[votes.item] >= 0
    right = np.bincount(votes.annotator[known], weights=votes.label[known] == gold[votes.item[known]])
    mine = votes.annotator == (right / np.maximum(np.bincount(votes.annotator[known]), 1)).argmax()
    q = np.zeros((len(votes), votes.n_classes))
    np.add.at(q, (votes.item[mine], votes.label[mine]), 1.0)
    return q


def left_out(rows: Rows, names: list[str]) -> dict[str, int]:
    """For each set, the choice with the least log loss on the others, over all numbers of labels drawn evenly."""
    loss = {}
    for name in names:
        some = [rows[EVENLY, g][name] for g in NUMBERS if name in rows[EVENLY, g] and g >= gold_regression.MIN_LABELS]
        loss[name] = np.mean([np.mean([r["choices"][:, 1] for r in of], axis=0) for of in some], axis=0)
    return {name: int(np.mean([loss[other] for other in names if other != name], axis=0).argmin()) for name in names}


def page(rows: Rows, panel: list[list[str]], draws: int, draws_of_judges: int) -> str:
    names = list(rows[EVENLY, 20])
    choice = left_out(rows, names)
    table, curves = [], {}
    for way in (EVENLY, ASKED):
        xs, ys = [0], [0.0]
        for g in NUMBERS:
            some = {name: of for name, of in rows[way, g].items() if name in choice}
            if not some:
                continue
            means = {name: {key: np.mean([r[key] for r in of], axis=0) for key in of[0]} for name, of in some.items()}
            others = np.array([m["choices"][choice[name]] for name, m in means.items()])
            package = np.array([m["others"] for m in means.values()])
            base = np.mean([m["base"][1] for m in means.values()])
            everything = np.mean([m["all"] for m in means.values()], axis=0)
            whole = np.mean([m["base of all"][1] for m in means.values()])
            table.append([
                way, str(g), str(len(means)), f"{others[:, 0].mean():+.2f}", f"{others[:, 0].min():+.2f}",
                f"{100 * others[:, 1].mean() / base:+.1f} %", f"{package[:, 0].mean():+.2f}",
                f"{100 * package[:, 1].mean() / base:+.1f} %", f"{package[:, 1].max():+.3f}", f"{everything[0]:+.2f}",
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
    fifty = rows[EVENLY, SHOWN]
    per_set, worse = [], []
    for name, of in fifty.items():
        m = {key: np.mean([r[key] for r in of], axis=0) for key in of[0]}
        change = m["others"]
        error, spread = np.std([r["others"] for r in of], axis=0, ddof=1) / np.sqrt(len(of))
        if change[0] < -2.0 * error or change[1] > 2.0 * spread:
            worse.append(f"{name} ({change[0]:+.2f} points, {change[1]:+.3f})")
        per_set.append([
            name, f"{m['base'][0]:.1f}", f"{change[0]:+.2f} ± {error:.2f}", f"{m['base'][1]:.3f}",
            f"{change[1]:+.3f} ± {spread:.3f}", f"{m['share']:.2f}", f"{m['all'][0]:+.2f}", f"{m['all'][1]:+.3f}",
        ])  # fmt: skip
    header = [
        "drawn", "labels", "sets", "accuracy of the others, left out", "worst set", "log loss of the others, left out",
        "accuracy, package", "log loss, package", "worst set", "accuracy over all items", "log loss over all items",
        "expected accuracy of the others off by, without gold", "with gold",
    ]  # fmt: skip
    columns = [
        "data", "accuracy without", "change, others", "log loss without", "change, others", "weight of the regression",
        "accuracy, all items", "log loss, all items",
    ]  # fmt: skip
    return f"""# Gold labels

Written by `benchmarks/gold.py`: what known answers bring to [`auto`](../methods.md#auto) (`gold=`, `--gold`), {draws}
draws for every number of labels, means over the draws and then over the sets. Changes against `auto` without gold: of
accuracy in points, of log loss (probabilities held above {FLOOR:g}) in percent of its mean. "The others" are the items
without gold labels. "All items" has those with gold labels, which are right from then on. The last columns have the
mean over sets and draws of the distance between expected and real accuracy, in points.

## What was looked at, and when

The sets with truth are a development collection. Gold labels give the odds a power, shrunk towards 1 (twice: a
Gaussian around 1, and the prior odds below, so that few labels do no harm: before these, the worst set lost .053 with 5
labels and .021 with 50, and 5 labels brought 3.5 % on average), and with
{gold_regression.MIN_LABELS} labels or more a regression on the votes (`crowdwise/core/gold_regression.py`). The prior
odds of the model against power and regression are a choice among {len(GRID)}: "left out" has, for each set, the one
that is best for the *other* sets, "package" the one in the package, {CHOSEN:g}. Left out in turn, the sets took
{", ".join(f"{x:g}" for x in sorted({GRID[i] for i in choice.values()}))}. The package takes {CHOSEN:g}, which
costs 0.1 points and half a percent of log loss here: on simulated crowds of independent annotators 20 labels cost 0.7
points with 1, 0.2 with 3 and 0.1 with {CHOSEN:g}.
Also looked at on these sets: five other forms of the choice and of the regression, none of them better.

**No harm.** A regression is left out where the model has more than two thirds of the weight, and the model is fitted
without gold labels. (A fit with them, where a hundred or more are ten times as probable under it, was tried: with
it 150 labels bring .03 points less and take .2 % more off the log loss, 400 labels bring .08 points less and take .1 %
less off it (28 and 20 sets, 3 draws). The rows of 100 labels below are still with it.) Before, averages with a
weight of a tenth moved labels in doubt, and fifty labels that were put into the fit cost `weather_amt` .6 points.
Twelve forms of these two rules were compared on these sets with fifty labels; asking besides that held-out gold labels
are no less often right costs .03 points on average and takes half of the loss from `rules_trec`, but loses more with
many labels.

## A panel that errs together

Fifty gold labels of `{JUDGES}`, 65 LLM judges that answer every pair in both orders; the {draws_of_judges} draws are
measured on LLMBar's own pairs without gold labels. "The model alone" has the power of gold labels and no regression.

{tables.markdown(["fitted to", "probabilities", "accuracy", "log loss"], panel)}

## By the number of labels

Sets with fewer than {NUMBERS[-1] / 0.6:.0f} known items are missing from the larger numbers. Of sets with more than
{MOST_VOTES:,} votes the items with truth alone are taken.

{tables.markdown(header, table)}

![Change of log loss by the number of gold labels](../assets/gold.svg)

## Fifty labels, drawn evenly

{2 * draws} draws. Worse with gold than without by more than two standard errors: {"; ".join(worse) or "no set"}.

{tables.markdown(columns, per_set)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=runs.data_folder())
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    panel = judges(given.data, 7 * given.draws)
    PAGE.write_text(
        page(run(given.data, given.draws, given.jobs), panel, given.draws, 7 * given.draws), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
