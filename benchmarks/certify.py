"""Certificates on real crowds: are promises kept, and how many labels do they release?

    python benchmarks/certify.py --prepare certify.npz [--data DIR]    scores of `auto`, and which labels are right
    python benchmarks/certify.py certify.npz --jobs 16 --out results.json
    python benchmarks/certify.py --page --out results.json             the tables of docs/guarantees.md

Gold labels are drawn at random from the known truth, in one draw or in two (a third first). Beside the package there is
the plain prototype on the same labels and draws: a fixed sequence of Clopper-Pearson bounds over 20 thresholds of the
posterior, from the surest label down until one fails, beginning with the first that could pass.

*Bounds* are no methods: they take the largest set that passes its own test at the full level, though that many tests
break promises, for gold drawn from all items, and from the region that the truth chooses. *Told* are valid sequences
that the truth tells where to begin, and where gold is drawn. *Possible* is the largest set that keeps the promise, with
all of the truth known.
"""

from __future__ import annotations

import argparse
import json
from functools import lru_cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.trust.certificate import Design, _sequence, p_value, trust_order

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs" / "guarantees.md", ROOT / "benchmarks" / "results" / "certify.json"
GOLD, ERRORS, CONFIDENCES = (50, 100, 200), (0.05, 0.1), (0.9, 0.95)
THRESHOLDS = 20
BOUND_DRAWS = 100
"""Draws over which bounds are averaged."""
STARTS = (-1, 0, 1, 2, 3, 4, 5, 7, 9, 12)
"""Wrong labels that the first set of a sequence may have, where the truth chooses; -1: begin with the smallest."""
proves = lru_cache(maxsize=None)(p_value)
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
    sums = dict.fromkeys(("share", "broken", "two_share", "two_broken", "plain_share", "plain_broken", "possible"), 0.0)
    at_all, regions = designs[0], [N]
    if (n, confidence) == (100, 0.9):
        regions += [z for z in at_all.size[at_all.ends[:-1]].tolist() if z > n]
    limits = np.zeros((len(regions), 1 + len(STARTS)))
    for turn in range(draws):
        order = rng.permutation(N)
        if turn < BOUND_DRAWS:
            limits += np.array([bounds(at_all, wrong, order, z) for z in regions]) / min(draws, BOUND_DRAWS)
            sums["possible"] += possible(at_all, wrong, order[:n]) / min(draws, BOUND_DRAWS)
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
        "bound": float(limits[0, 0]), "told_start": float(limits[0, 1:].max()),
        **({"region_bound": float(limits[:, 0].max()), "told": float(limits[:, 1:].max())} if len(regions) > 1 else {}),
    }  # fmt: skip


def bounds(design: Design, wrong: Any, order: Any, region: int) -> list[float]:
    """Shares released by the largest set that passes by itself, and by sequences that begin with each of ``STARTS``,
    with n labels drawn from the first ``region`` ones."""
    n, N, size = design.n_first, len(wrong), design.size[design.size <= region]
    drawn = np.zeros(N, dtype=bool)
    drawn[order[order < region][:n]] = True
    e, m = np.cumsum(drawn & wrong[design.order])[size - 1], np.cumsum(drawn)[size - 1]
    limit, allowed = design._limits_at(m, n), design._allowed(size, m, n)

    def passes(k: int, far: int = 3) -> bool:
        near = limit[k] < e[k] <= limit[k] + far
        return bool(
            e[k] <= limit[k] or (near and proves(int(e[k]), int(m[k]), int(size[k]), int(allowed[k])) <= design.level)
        )

    def released(k: int) -> float:
        return float((size[k] + n - m[k]) / N) if k >= 0 else n / N

    out = [released(next((k for k in range(len(size) - 1, -1, -1) if passes(k)), -1))]
    sequence = _sequence(limit)
    rises = np.flatnonzero(np.diff(limit[sequence], prepend=-1) > 0)
    for start in STARTS:
        begin = [0] if start < 0 else rises[limit[sequence][rises] >= start]
        at = sequence[begin[0] :].tolist() if len(begin) else []
        fails = next((i for i, k in enumerate(at) if e[k] > limit[k]), len(at))
        last = at[fails] if fails < len(at) and passes(at[fails], len(wrong)) else at[fails - 1] if fails else -1
        out.append(released(last))
    return out


def possible(design: Design, wrong: Any, gold: Any) -> float:
    """The share of the largest set that keeps the promise, gold labels being right."""
    N, drawn = len(wrong), np.zeros(len(wrong), dtype=bool)
    drawn[gold] = True
    hit = drawn[design.order]
    released = np.arange(1, N + 1) + len(gold) - np.cumsum(hit)
    kept = np.flatnonzero(np.cumsum(wrong[design.order] & ~hit) <= design.max_error * released + 1e-9)
    return float(released[kept[-1]] / N) if len(kept) else len(gold) / N


def page(results: list[dict[str, Any]]) -> str:
    import calibration
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
    own_kind = {max_error: [r for r in results if (r["gold"], r["max_error"], r["confidence"]) == (100, max_error, 0.9)]
                for max_error in ERRORS}  # fmt: skip
    columns = ("share", "two_share", "told_start", "told", "bound", "region_bound", "possible")
    limits = [
        [name, str(len(part)), f"{max_error:.0%}",
         *(f"{np.mean([r[key] for r in part]):.3f}" for key in columns)]
        for name, people in (("all", False), ("crowds of people", True)) for max_error in ERRORS
        for part in [[r for r in own_kind[max_error] if not people or r["data"] in calibration.PEOPLE]]
    ]  # fmt: skip
    limited = ["sets", "number", "allowed error", "one draw", "two draws", "start told by the truth",
               "start and region told", "bound, one draw", "bound, region told",
               "possible with all of the truth"]  # fmt: skip
    return (
        tables.markdown(header, rows)
        + "\n\nWith 100 gold labels and 90% confidence, beside what no such test can exceed:\n\n"
        + tables.markdown(limited, limits)
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
