"""Certificates on real crowds: are promises kept, and how many labels do they release?

    python benchmarks/certify.py --prepare certify.npz [--data DIR]    scores of `auto`, and which labels are right
    python benchmarks/certify.py certify.npz --jobs 16 --out results.json
    python benchmarks/certify.py --page --out results.json             the tables of docs/guarantees.md

Gold labels are drawn at random from the known truth. Beside the package there is the plain way: Clopper-Pearson bounds
over thresholds from the surest label down, until one fails, where gold labels release nothing.
"""

from __future__ import annotations

import argparse
import json
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.trust.certificate import released

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs" / "guarantees.md", ROOT / "benchmarks" / "results" / "certify.json"
GOLD, ERRORS, CONFIDENCES = (50, 100, 200), (0.05, 0.1), (0.9, 0.95)
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
        q = case.consensus.corrected_posterior[case.known]
        arrays[f"{name}/score"] = q.max(axis=1)
        arrays[f"{name}/wrong"] = case.consensus.label_codes[case.known] != case.truth
    np.savez_compressed(out, **arrays)


def plain(score: Any, drawn: Any, wrong: Any, max_error: float, confidence: float) -> Any:
    from scipy.stats import beta

    order = np.flatnonzero(drawn)[np.argsort(-score[drawn], kind="stable")]
    ranked, errors, best = score[order], np.cumsum(wrong[order]), np.inf
    for n in range(1, len(order) + 1):
        if n < len(order) and ranked[n] == ranked[n - 1]:
            continue
        if beta.ppf(confidence, 1, n) > max_error:  # no set of so few can pass
            continue
        if errors[n - 1] == n or beta.ppf(confidence, errors[n - 1] + 1, n - errors[n - 1]) > max_error:
            break
        best = ranked[n - 1]
    return score >= best


def measure(task: tuple[str, Any, Any, int, float, float, int]) -> dict[str, Any]:
    name, score, wrong, n, max_error, confidence, draws = task
    rng = np.random.default_rng([n, int(1000 * max_error), int(1000 * confidence)])
    share, broken, plain_share, plain_broken = 0.0, 0, 0.0, 0
    for _ in range(draws):
        drawn = np.zeros(len(score), dtype=bool)
        drawn[rng.choice(len(score), n, replace=False)] = True
        out = released(score, drawn, wrong & drawn, max_error, confidence)
        share += out.mean() / draws
        broken += int((wrong & out & ~drawn).sum() > max_error * out.sum())
        out = plain(score, drawn, wrong & drawn, max_error, confidence)
        plain_share += out.mean() / draws
        plain_broken += int((wrong & out).sum() > max_error * out.sum())
    return {
        "data": name, "items": len(score), "gold": n, "max_error": max_error, "confidence": confidence, "draws": draws,
        "wrong": float(wrong.mean()), "share": share, "broken": broken / draws, "plain_share": plain_share,
        "plain_broken": plain_broken / draws,
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
                share, before = (np.mean([r[key] for r in part]) for key in ("share", "plain_share"))
                nominal = 1.0 - confidence
                limit = nominal + 2.0 * np.sqrt(nominal * confidence / part[0]["draws"])
                over = [r["data"] for r in part if r["broken"] > limit]
                rows.append([
                    str(n), f"{max_error:.0%}", f"{confidence:.0%}", str(len(part)), f"{before:.3f}", f"{share:.3f}",
                    f"{share / before:.2f}" if before else "–", f"{np.mean([r['broken'] for r in part]):.1%}",
                    f"{max(r['broken'] for r in part):.1%}", ", ".join(over) or "none",
                ])  # fmt: skip
    header = [
        "gold labels", "allowed error", "confidence", "sets", "released, plain", "released", "ratio",
        "promises broken, mean", "worst set", "sets over the rate by two standard errors",
    ]  # fmt: skip
    chosen = [r for r in results if (r["gold"], r["max_error"], r["confidence"]) == (100, 0.05, 0.9)]
    by_set = [
        [r["data"], f"{r['items']:,}", f"{r['wrong']:.1%}", f"{r['plain_share']:.2f}", f"{r['share']:.2f}",
         f"{r['broken']:.1%}"]
        for r in sorted(chosen, key=lambda r: r["data"])
    ]  # fmt: skip
    own = ["data", "items", "wrong labels", "released, plain", "released", "promises broken"]
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
        sets = {name: (arrays[f"{name}/score"], arrays[f"{name}/wrong"]) for name in names}
        tasks = [
            (name, *sets[name], n, max_error, confidence, given.draws)
            for n in GOLD for max_error in ERRORS for confidence in CONFIDENCES for name in names
            if len(sets[name][0]) >= n + LEFT
        ]  # fmt: skip
        with Pool(given.jobs) as pool:
            results = pool.map(measure, tasks, chunksize=1)
        given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.page:
        text = PAGE.read_text(encoding="utf-8")
        start, end = "<!-- figures certify:begin -->", "<!-- figures certify:end -->"
        before, _, rest = text.partition(start)
        results = json.loads(given.out.read_text(encoding="utf-8"))
        PAGE.write_text(f"{before}{start}\n{page(results)}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
