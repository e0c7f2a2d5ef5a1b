"""Numbers and grades, measured: methods on simulated crowds, on real ratings, and on real grades.

    python benchmarks/ratings.py DATA [--seeds 20] [--only numbers] [--docs]

DATA is the folder of data sets. Writes ``benchmarks/results/numbers.json``; with ``--docs`` the tables in
``docs/answers-ratings.md`` and ``docs/answers-ordinal.md`` as well. ``--only`` measures numbers or grades, and keeps
the rest as it was. The two numbers of ``gaussian`` that come from real sets, ``shrink`` and ``shared_error``, are
chosen for each set on the others (leave-one-set-out). Where there is no truth (and where there is),
grades are judged by votes that were left out: a fifth of them, the mean of log P(what was said), the same split for
all methods.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np

import crowdwise as cw
from crowdwise import metrics
from crowdwise.core.numerics import normalise
from crowdwise.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ("mean", "median", "gaussian", "bayes-iterative", "covariance", "pm-numeric", "catd-numeric")
GRADES = ("majority", "one-coin", "dawid-skene", "anchored", "ordinal-raykar", "ordinal-dawid-skene")
DEVELOPED = ("snow_anger", "snow_disgust", "snow_fear", "snow_wordsim", "web", "s_adult")
"""The sets on which ``gaussian`` was developed: four of ratings, and two of grades that are taken as numbers."""
ASIDE = {f"n_emotion {low}-{low + 99}": low for low in (301, 401, 501, 601)}
"""Parts of n_emotion that are in no other set, measured when the rest was decided."""
SHRINK, SHARED = (0.0, 0.25, 0.5, 0.75, 1.0), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
ADULT = {"adult3": ["G", "P", "R", "X"]}
CROWDS = {
    "precisions differ": {"n_items": 300, "n_annotators": 20, "bias": 0.0, "votes_per_item": 5},
    "and biases": {"n_items": 300, "n_annotators": 20, "bias": 0.5, "votes_per_item": 5},
    "and scales": {"n_items": 300, "n_annotators": 20, "bias": 0.5, "scale": 0.3, "votes_per_item": 5},
    "5 % outliers": {"n_items": 300, "n_annotators": 20, "bias": 0.5, "outliers": 0.05, "votes_per_item": 5},
    "five copiers": {"n_items": 500, "n_annotators": 12, "n_copiers": 5, "votes_per_item": 8},
    "shared errors": {"n_items": 300, "n_annotators": 20, "shape": 20.0, "shared_noise": 0.63, "votes_per_item": 8},
    "2 ratings per item": {"n_items": 300, "n_annotators": 100, "votes_per_item": 2},
}
GRADERS = {
    "3 votes, 40 annotators": {"n_items": 400, "n_annotators": 40, "votes_per_item": 3},
    "3 votes, 100 annotators, rare grades": {
        "n_items": 400, "n_annotators": 100, "votes_per_item": 3, "prior": [0.4, 0.3, 0.15, 0.1, 0.05],
    },
    "5 votes, 30 annotators": {"n_items": 1000, "n_annotators": 30, "votes_per_item": 5},
}  # fmt: skip


def oracle(crowd):
    """The posterior mean with bias, scale and precision of every annotator known."""
    r, known = crowd.ratings, crowd.parameters
    a, b, p, mu = known["scale"], known["bias"], known["precision"], known["mean"]
    h = 1.0 / known["spread"] ** 2 + np.bincount(r.item, weights=(p * a * a)[r.annotator], minlength=len(r))
    y = r.value - mu - b[r.annotator]
    return mu + np.bincount(r.item, weights=(p * a)[r.annotator] * y, minlength=len(r)) / h


def covered(table, known, name):
    if f"{name}_low" not in table:
        return None
    return float(((table[f"{name}_low"] <= known[name]) & (known[name] <= table[f"{name}_high"])).mean())


def simulated_numbers(seeds):
    out = []
    for name, given in CROWDS.items():
        rows = {}
        for seed in range(seeds):
            crowd = cw.simulate.ratings(random_state=seed, **given)
            best = float(np.sqrt(((oracle(crowd) - crowd.truth) ** 2).mean()))
            rows.setdefault("oracle", []).append({"rmse": best})
            kinds = {key: (key, {}) for key in NUMBERS}
            kinds |= {"gaussian, scale": ("gaussian", {"scale": True})}
            kinds |= {"gaussian, no shared error": ("gaussian", {"shared_error": 0.0})}
            for label, (key, params) in kinds.items():
                try:
                    found = cw.aggregate(crowd.ratings, key, **params)
                except InputError:  # covariance, of annotators who share few items
                    continue
                low, high = found.interval()
                table = found.to_frame("annotators", kind="dict")
                row = {"rmse": cw.metrics.rmse(found, crowd.truth).value}
                row["items"] = float(((low <= crowd.truth) & (crowd.truth <= high)).mean())
                row |= {what: covered(table, crowd.parameters, what) for what in ("bias", "precision")}
                rows.setdefault(label, []).append(row)
        for key, found in rows.items():
            mean = {what: np.mean([row[what] for row in found]) for what in found[0] if found[0][what] is not None}
            out.append({"crowd": name, "method": key} | {what: float(value) for what, value in mean.items()})
    return out


def rated(data, name):
    """The ratings of a data set, with the truth on their scale."""
    if name in ASIDE:
        whole = rated(data, "n_emotion")
        number = np.array([int(item) for item in whole.items])
        return whole[np.flatnonzero((number >= ASIDE[name]) & (number < ASIDE[name] + 100))]
    if name in ("web", "s_adult"):
        votes = cw.read_votes(data / name / "labels.csv", on_duplicate="last", truth_path=data / name / "truth.csv")
        grade = np.array([float(c) for c in votes.classes])
        truth = np.where(votes.truth >= 0, grade[votes.truth], np.nan)
        names = {"items": votes.items, "annotators": votes.annotators}
        return cw.Ratings.from_codes(votes.item, votes.annotator, grade[votes.label], truth=truth, **names)
    ratings = cw.read_ratings(data / name / "labels.csv", truth_path=data / name / "truth.csv")
    # Pairs of words are rated from 0 to 10, and their truth lies between 0 and 4.
    return ratings.with_truth(2.5 * ratings.truth) if name == "snow_wordsim" else ratings


def measured(ratings, key, **params):
    """Errors, and the shares of true values within the intervals of 95 and 80 %."""
    from scipy.stats import t as student

    found = cw.aggregate(ratings, key, **params)
    known = ~np.isnan(ratings.truth)
    truth = ratings.truth[known]
    row = {"rmse": cw.metrics.rmse(found, ratings.truth).value, "mae": cw.metrics.mae(found, ratings.truth).value}
    for level in (0.95, 0.8):
        low, high = (end[known] for end in found.interval(level))
        row[f"covered {level}"] = float(((low <= truth) & (truth <= high)).mean())
    freedom = np.inf if found.freedom is None else found.freedom[known]
    each = student.logpdf(truth, freedom, found.values[known], found.deviations[known])
    return row | {"share": found.share, "density": float(each.mean())}


def real_numbers(data):
    out = []
    for name in ("n_emotion", *DEVELOPED, *ASIDE):
        ratings = rated(data, name)
        base = cw.metrics.rmse(cw.aggregate(ratings, "mean"), ratings.truth).value
        kinds = {key: (key, {}) for key in NUMBERS} | {"gaussian, scale": ("gaussian", {"scale": True})}
        for label, (key, params) in kinds.items():
            try:
                row = measured(ratings, key, **params)
            except InputError:  # covariance, likewise
                continue
            out.append({"data": name, "method": label, **row, "ratio": row["rmse"] / base})
    return out


def development(data):
    """Ratios of ``gaussian`` to the mean by ``shrink``, and densities of the truth by ``shared_error``."""
    out = []
    for name in DEVELOPED:
        ratings = rated(data, name)
        base = cw.metrics.rmse(cw.aggregate(ratings, "mean"), ratings.truth).value
        for value in SHRINK:
            row = measured(ratings, "gaussian", shrink=value)
            out.append({"data": name, "number": "shrink", "value": value, "ratio": row["rmse"] / base})
        for value in SHARED:
            row = measured(ratings, "gaussian", shared_error=value)
            out.append({"data": name, "number": "shared_error", "value": value, **row})
    return out


def simulated_grades(seeds):
    out = []
    for name, given in GRADERS.items():
        for key in GRADES:
            rows = []
            for seed in range(seeds):
                crowd = cw.simulate.ordinal(random_state=seed, **given)
                rows.append(measures(cw.aggregate(crowd.votes, key), crowd.truth))
            out.append({"crowd": name, "method": key} | {k: float(np.mean([r[k] for r in rows])) for k in rows[0]})
    return out


def measures(consensus, truth):
    kinds = {"accuracy": metrics.accuracy, "mae": metrics.mae, "kappa": metrics.quadratic_kappa}
    return {name: float(measure(consensus, truth, resamples=20)) for name, measure in kinds.items()}


def graded(data, name):
    """The votes of a data set of grades, one per item and annotator; of adult3 those on its scale (B is not)."""
    folder = data / name
    truth = folder / "truth.csv"
    if name in ADULT:
        import polars as pl

        table = pl.read_csv(folder / "labels.csv").filter(pl.col("label").is_in(ADULT[name]))
        return cw.Votes.from_frame(table, on_duplicate="last", classes=ADULT[name])
    return cw.read_votes(
        folder / "labels.csv", on_duplicate="last", truth_path=truth if truth.is_file() else None
    )  # fmt: skip


def left_out(votes, key, seed, **params):
    """The mean log probability of a fifth of the votes, from the rest."""
    held = np.random.default_rng(seed).random(votes.n_votes) < 0.2
    train, test = votes.select(~held), votes.select(held)
    consensus = cw.aggregate(train, key, **params)
    theta = consensus.confusion
    if theta is None:  # counted, with one vote of the crowd's on each row
        crowd = consensus.counts.sum(axis=0) + 1.0 / votes.n_classes
        theta = normalise(consensus.counts + crowd / crowd.sum(axis=1, keepdims=True), axis=2)
    p = (consensus.posterior[test.item] * theta[test.annotator, :, test.label]).sum(axis=1)
    return float(np.log(np.maximum(p, 1e-12)).mean())


def real_grades(data, seeds):
    out = []
    for name in ("web", "s_adult", "adult3", "popquorn_offensiveness"):
        votes = graded(data, name)
        for key in GRADES:
            row = {"data": name, "method": key}
            row["left_out"] = None if key == "majority" else np.mean([left_out(votes, key, s) for s in range(seeds)])
            if votes.truth is not None:
                row |= measures(cw.aggregate(votes, key), votes.truth)
            out.append(row)
    return out


# -------------------------------------------------------------------- tables


def table(rows, across, figures, digits=3):
    """One line per method, one column per crowd or data set and figure."""
    places, methods = list(dict.fromkeys(r[across] for r in rows)), list(dict.fromkeys(r["method"] for r in rows))
    cell = {(r[across], r["method"]): r for r in rows}
    head = [f"{place}: {words}" for place in places for words in figures.values()]
    lines = [["method", *head], ["---"] * (len(head) + 1)]
    for method in methods:
        line = [f"`{method}`" if " " not in method and method != "oracle" else method]
        for place in places:
            for figure in figures:
                value = cell.get((place, method), {}).get(figure)
                line.append("" if value is None else f"{value:.{digits}f}")
        if any(line[1:]):
            lines.append(line)
    keep = [i for i in range(len(lines[0])) if any(line[i] for line in lines[2:])]
    return "\n".join("| " + " | ".join(line[i] for i in keep) + " |" for line in lines)


def real_table(rows):
    """One line per set: the mean's error, the others' relative to it, and the coverage of intervals."""
    cell = {(r["data"], r["method"]): r for r in rows}
    methods = [m for m in dict.fromkeys(r["method"] for r in rows) if m != "mean"]
    lines = [["data", "`mean`", *(f"`{m}`" if " " not in m else m for m in methods), "covered: `mean`", "`gaussian`"]]
    lines.append(["---"] * len(lines[0]))
    for name in dict.fromkeys(r["data"] for r in rows):
        line = [name, f"{cell[name, 'mean']['rmse']:.2f}"]
        line += [f"{cell[name, m]['ratio']:.3f}" if (name, m) in cell else "" for m in methods]
        lines.append(line + [f"{cell[name, m]['covered 0.95']:.2f}" for m in ("mean", "gaussian")])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fill(page, blocks):
    path = ROOT / "docs" / page
    text = path.read_text(encoding="utf-8")
    for name, block in blocks.items():
        before, _, rest = text.partition(f"<!-- {name}:begin -->")
        _, _, after = rest.partition(f"<!-- {name}:end -->")
        text = f"{before}<!-- {name}:begin -->\n\n{block}\n\n<!-- {name}:end -->{after}"
    path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", choices=("numbers", "grades"))
    parser.add_argument("--docs", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # not settled; the order of grades said aloud
    path = ROOT / "benchmarks/results/numbers.json"
    found = json.loads(path.read_text(encoding="utf-8")) if given.only else {}
    if given.only != "grades":
        found |= {
            "simulated_numbers": simulated_numbers(given.seeds),
            "real_numbers": real_numbers(given.data),
            "development": development(given.data),
        }
    if given.only != "numbers":
        found |= {
            "simulated_grades": simulated_grades(given.seeds),
            "real_grades": real_grades(given.data, 3),
        }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.docs and given.only != "grades":
        rmse = [r for r in found["simulated_numbers"] if r["method"] != "gaussian, no shared error"]
        fill("answers-ratings.md", {
            "simulated": table(rmse, "crowd", {"rmse": "RMSE"}),
            "real": real_table(found["real_numbers"]),
        })  # fmt: skip
    if given.docs and given.only != "numbers":
        fill("answers-ordinal.md", {
            "simulated": table(found["simulated_grades"], "crowd", {"accuracy": "accuracy", "mae": "MAE"}),
            "real": table(found["real_grades"], "data", {"accuracy": "accuracy", "mae": "MAE", "kappa": "kappa"}),
            "left out": table(found["real_grades"], "data", {"left_out": "log P"}),
        })  # fmt: skip


if __name__ == "__main__":
    main()
