"""Estimates on real crowds and panels: do intervals hold the figure of all items, and how wide are they?

    python benchmarks/estimates.py [--draws 200] [--jobs 2] [--data DIR]    measure; the tables of docs/estimates.md
    python benchmarks/estimates.py --page                                   the tables alone

Gold labels are drawn at random from the known truth; predictions are the posterior of `auto` (votes) or the values of
the default method (ratings). Panels are the LLMs of the alttest sets, their truth the majority or the mean of the
people there. The figure of all items with truth is known, so that coverage is exact but for the draws.
"""

from __future__ import annotations

import argparse
import json
import warnings
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise.metrics.rectified import difference, figure, slope_of

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs" / "estimates.md", ROOT / "benchmarks" / "results" / "estimates.json"
GOLD, PAIRED = (50, 100, 200), 100
"""How many gold labels are drawn; with the second, differences of two halves of the items are measured as well."""
RATINGS = ("n_emotion", "snow_anger", "snow_disgust", "snow_fear")
PANELS = {
    "alttest_wax": False, "alttest_lgbteen": False, "alttest_framing": False, "alttest_10k_prompts": True,
    "alttest_cebab_stars": True, "alttest_summeval": True,
}  # fmt: skip
"""Panel -> whether its answers are ratings."""
MOST_CLASSES, RARE, LEFT = 4, 0.02, 10
"""Classes per set, the share from which on one counts, and items that stay without gold at least."""

Case = tuple[str, str, Any, Any]
"""Name, kind, N x K predictions and N x K truths."""


def cases(data: Path) -> list[Case]:
    import calibration

    warnings.simplefilter("ignore")
    out: list[Case] = []
    for name in (*calibration.PEOPLE, *calibration.OTHERS):
        votes = cw.read_dataset(data / name, on_duplicate="all").votes
        case = calibration.Case.of(name, votes)
        q, truth = case.consensus.corrected_posterior[case.known], case.truth
        out.append(by_class(name, "panel" if name == "llmbar_judges" else "crowd", q, truth))
    for name in RATINGS:
        ratings = cw.read_ratings(data / name / "labels.csv", on_duplicate="all")
        truth = cw.read_truth(data / name / "truth.csv")
        y = np.array([float(truth.get(item, np.nan)) for item in ratings.items.tolist()])
        known = ~np.isnan(y)
        out.append((name, "ratings", cw.aggregate(ratings).values[known, None], y[known, None]))
    for name, are_ratings in PANELS.items():
        table = (cw.read_ratings if are_ratings else cw.read_votes)(data / name / "labels.csv")
        llms = [who for who in table.annotators.tolist() if who.startswith("llm:")]
        judges, people = table.only(llms), table.without(llms)
        both = (np.diff(judges.indptr) > 0) & (np.diff(people.indptr) > 0)
        judges, people = judges[np.flatnonzero(both)], people[np.flatnonzero(both)]
        if are_ratings:
            y = np.bincount(people.item, weights=people.value) / np.bincount(people.item)
            out.append((name, "panel", cw.aggregate(judges).values[:, None], y[:, None]))
        else:
            out.append(
                by_class(name, "panel", cw.aggregate(judges).corrected_posterior, people.shares().argmax(axis=1))
            )
    return out


def by_class(name: str, kind: str, q: Any, truth: Any) -> Case:
    share = np.bincount(truth, minlength=q.shape[1]) / len(truth)
    classes = [1] if q.shape[1] == 2 else np.flatnonzero((share >= RARE) & (share <= 1 - RARE))[:MOST_CLASSES].tolist()
    return name, kind, q[:, classes], (truth[:, None] == classes).astype(float)


def measure(task: tuple[Case, int, int]) -> dict[str, Any]:
    (name, kind, F, Y), n, draws = task
    rng, N, K = np.random.default_rng(n), *F.shape
    share = bool(np.isin(Y, (0.0, 1.0)).all())
    half = np.arange(N) % 2
    held, width, gold, held_gap, width_gap, gold_gap = np.zeros(6)
    for _ in range(draws):
        s = rng.choice(N, n, replace=False)
        for y, f in zip(Y.T, F.T, strict=True):
            found = figure(y[s], f[s], f, share=share)
            real = y.mean()
            held += found.estimate.low - 1e-12 <= real <= found.estimate.high + 1e-12
            width += found.estimate.high - found.estimate.low
            gold += found.gold.high - found.gold.low
            if n != PAIRED:
                continue
            slope = slope_of(y[s], f[s], np.ones(n), half[s])
            a, b = (
                figure(y[s][half[s] == g], f[s][half[s] == g], f[half == g], share=share, slope=slope) for g in (0, 1)
            )
            gap, alone = difference(a.estimate, b.estimate), difference(a.gold, b.gold)
            held_gap += gap.low <= y[half == 0].mean() - y[half == 1].mean() <= gap.high
            width_gap += gap.high - gap.low
            gold_gap += alone.high - alone.low
    total = draws * K
    return {
        "data": name, "kind": kind, "items": N, "gold": n, "draws": draws, "classes": K, "coverage": held / total,
        "width": width / gold,
        **({"difference_coverage": held_gap / total, "difference_width": width_gap / gold_gap} if n == PAIRED else {}),
    }  # fmt: skip


def page(results: list[dict[str, Any]]) -> str:
    import tables

    rows = []
    for what, prefix in (("share or mean", ""), ("difference of two groups", "difference_")):
        for n in GOLD if not prefix else (PAIRED,):
            part = [r for r in results if r["gold"] == n]
            cover, width = (np.array([r[f"{prefix}{key}"] for r in part]) for key in ("coverage", "width"))
            rows.append([
                what, str(n), str(len(part)), f"{cover.mean():.1%}", f"{cover.min():.1%}", f"{cover.max():.1%}",
                f"{int(((cover >= 0.93) & (cover <= 0.97)).sum())}", f"{width.mean():.2f}", f"{width.max():.2f}",
                f"{int((width <= 0.8).sum())}",
            ])  # fmt: skip
    header = [
        "figure", "gold labels", "sets", "coverage", "least", "most", "sets within 93-97%", "width / gold alone",
        "most", "sets at .80 or less",
    ]  # fmt: skip
    by_set = [
        [r["data"], r["kind"], f"{r['items']:,}", f"{r['coverage']:.1%}", f"{r['width']:.2f}"]
        for r in sorted((r for r in results if r["gold"] == 100), key=lambda r: r["data"])
    ]
    own = ["data", "kind", "items", "coverage", "width / gold alone"]
    text = tables.markdown(header, rows) + f"\n\n{results[0]['draws']} draws of each. With 100 gold labels:\n\n"
    return str(text + tables.markdown(own, by_set))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="write the page of what was measured")
    given = parser.parse_args()
    if not given.page:
        from crowdwise.bench import runs

        made = cases(given.data or runs.data_folder())
        tasks = [(case, n, given.draws) for n in GOLD for case in made if len(case[2]) >= n + LEFT]
        with Pool(given.jobs) as pool:
            results = pool.map(measure, tasks, chunksize=1)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- figures estimates:begin -->", "<!-- figures estimates:end -->"
    before, _, rest = text.partition(start)
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(f"{before}{start}\n{page(results)}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
