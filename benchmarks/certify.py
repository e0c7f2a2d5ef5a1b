"""Certificates on real crowds: are promises kept, and how many labels do they release?

    python benchmarks/certify.py --prepare certify.npz [--data DIR]    scores of `auto`, and which labels are right
    python benchmarks/certify.py certify.npz --jobs 16 --out results.json
    python benchmarks/certify.py --page --out results.json             the tables of docs/guarantees.md

Gold labels are drawn at random from the known truth, in one draw or in two (a third first). Beside the package there is
the plain prototype on the same labels and draws: a fixed sequence of Clopper-Pearson bounds over 20 thresholds of the
posterior, from the surest label down until one fails, beginning with the first that could pass.
"""

from __future__ import annotations

import argparse
import json
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.trust.certificate import Design, trust_order

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs" / "guarantees.md", ROOT / "benchmarks" / "results" / "certify.json"
GOLD, ERRORS, CONFIDENCES = (50, 100, 200), (0.05, 0.1), (0.9, 0.95)
THRESHOLDS = 20
LEFT = 10
"""Sets in which fewer items stay without gold are left out."""


def prepare(out: Path, data: Path) -> None:
    import warnings

    import calibration

    import crowdwise as cw

    warnings.simplefilter("ignore")
    arrays = {}
    for name in (*calibration.PEOPLE, *calibration.OTHERS):
        votes = cw.read_dataset(data / name, on_duplicate="all").votes
        case = calibration.Case.of(name, votes)
        arrays[f"{name}/probability"] = case.consensus.corrected_posterior[case.known].max(axis=1)
        arrays[f"{name}/score"] = trust_order(case.consensus)[case.known]
        arrays[f"{name}/wrong"] = case.consensus.label_codes[case.known] != case.truth
    np.savez_compressed(out, **arrays)


def plain(probability: Any, max_error: float, confidence: float, n: int) -> tuple[Any, Any]:
    """Thresholds, and the most wrong labels of 0 ... n drawn ones that pass (-1: none)."""
    from scipy.stats import beta

    thresholds = np.quantile(probability, np.linspace(0.0, 1.0, THRESHOLDS + 1)[:-1])[::-1]
    m, most = np.arange(n + 1), np.full(n + 1, -1)
    for e in range(n):
        passes = (e < m) & (beta.ppf(confidence, e + 1, np.maximum(m - e, 0.5)) <= max_error)
        if not passes.any():
            break
        most[passes] = e
    return thresholds, most


def measure(task: tuple[str, Any, Any, Any, int, float, float, int]) -> dict[str, Any]:
    name, score, probability, wrong, n, max_error, confidence, draws = task
    rng, N = np.random.default_rng([n, int(1000 * max_error), int(1000 * confidence)]), len(score)
    loss, third = wrong.astype(np.float64), n // 3
    designs = [Design(score, first, n - first, max_error, 1.0 - confidence, probability) for first in (n, third)]
    thresholds, most = plain(probability, max_error, confidence, n)
    above = probability >= thresholds[:, None]
    size, bad = above.sum(axis=1), (above & wrong).sum(axis=1)
    sums = dict.fromkeys(("share", "broken", "two_share", "two_broken", "plain_share", "plain_broken"), 0.0)
    for _ in range(draws):
        order = rng.permutation(N)
        for first, design, key in zip((n, third), designs, ("", "two_"), strict=True):
            early = np.zeros(N, dtype=bool)
            early[order[:first]] = True
            drawn = early.copy()
            if first < n:
                inside = np.zeros(N, dtype=bool)
                inside[design.order[: design.size[design.region(early, loss)[0]]]] = True
                drawn[order[first:][inside[order[first:]]][: n - first]] = True
            out = design.released(drawn, loss, early)
            sums[key + "share"] += out.mean() / draws
            sums[key + "broken"] += ((wrong & out & ~drawn).sum() > max_error * out.sum() + 1e-9) / draws
        some = order[:n]
        m, e = above[:, some].sum(axis=1), (above[:, some] & wrong[some]).sum(axis=1)
        can = most[m] >= 0
        fails = np.flatnonzero(can & (e > most[m]))
        passed = np.flatnonzero(can[: fails[0] if len(fails) else len(can)])
        if len(passed):
            sums["plain_share"] += size[passed[-1]] / N / draws
            sums["plain_broken"] += (bad[passed[-1]] > max_error * size[passed[-1]]) / draws
    return {
        "data": name, "items": N, "gold": n, "max_error": max_error, "confidence": confidence, "draws": draws,
        "wrong": float(wrong.mean()), **{key: float(value) for key, value in sums.items()},
    }  # fmt: skip


def page(results: list[dict[str, Any]]) -> str:
    import tables

    rows = []
    for n in GOLD:
        for max_error in ERRORS:
            for confidence in CONFIDENCES:
                part = [
                    r for r in results if (r["gold"], r["max_error"], r["confidence"]) == (n, max_error, confidence)
                ]
                share, two, before = (np.mean([r[key] for r in part]) for key in ("share", "two_share", "plain_share"))
                nominal = 1.0 - confidence
                limit = nominal + 2.0 * np.sqrt(nominal * confidence / part[0]["draws"])
                worst = [max(r["broken"], r["two_broken"]) for r in part]
                over = [r["data"] for r, w in zip(part, worst, strict=True) if w > limit]
                rows.append([
                    str(n), f"{max_error:.0%}", f"{confidence:.0%}", str(len(part)), f"{before:.3f}", f"{share:.3f}",
                    f"{two:.3f}", f"{np.mean([r['broken'] for r in part]):.1%}", f"{max(worst):.1%}",
                    ", ".join(over) or "none",
                ])  # fmt: skip
    header = [
        "gold labels", "allowed error", "confidence", "sets", "released, plain", "one draw", "two draws",
        "promises broken, mean", "worst set", "sets over the rate by two standard errors",
    ]  # fmt: skip
    chosen = [r for r in results if (r["gold"], r["max_error"], r["confidence"]) == (100, 0.05, 0.9)]
    by_set = [
        [r["data"], f"{r['items']:,}", f"{r['wrong']:.1%}", f"{r['plain_share']:.2f}", f"{r['share']:.2f}",
         f"{r['two_share']:.2f}", f"{max(r['broken'], r['two_broken']):.1%}"]
        for r in sorted(chosen, key=lambda r: r["data"])
    ]  # fmt: skip
    own = ["data", "items", "wrong labels", "released, plain", "one draw", "two draws", "promises broken"]
    return (
        tables.markdown(header, rows)
        + "\n\nWith 100 gold labels, 5% allowed, 90% confidence:\n\n"
        + tables.markdown(own, by_set)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, nargs="?")
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if given.prepare is not None:
        from crowdwise.bench import runs

        prepare(given.prepare, given.data or runs.data_folder())
    if given.cases is not None:
        arrays = np.load(given.cases)
        names = sorted({key.partition("/")[0] for key in arrays})
        sets = {name: tuple(arrays[f"{name}/{key}"] for key in ("score", "probability", "wrong")) for name in names}
        tasks = [
            (name, *sets[name], n, max_error, confidence, given.draws)
            for n in GOLD for max_error in ERRORS for confidence in CONFIDENCES for name in names
            if len(sets[name][0]) >= n + LEFT
        ]  # fmt: skip
        with Pool(given.jobs) as pool:
            results = list(pool.imap_unordered(measure, tasks))
        given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.page:
        text = PAGE.read_text(encoding="utf-8")
        start, end = "<!-- figures certify:begin -->", "<!-- figures certify:end -->"
        before, _, rest = text.partition(start)
        results = json.loads(given.out.read_text(encoding="utf-8"))
        PAGE.write_text(f"{before}{start}\n{page(results)}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
