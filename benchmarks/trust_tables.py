"""The tables of trust, measured -> results/trust.json -> docs/benchmarks/trust.md.

    python benchmarks/trust_tables.py [part ...] [--page]

Parts: spammers, real, colluders, groups, bluebird, alarms, accuracy, agreement, few, effect, attacked, ensembles,
unfair, drift, assignment, blind, corrections; by default all. ``--page`` writes the page from the results alone.
The real sets are looked for where `crowdwise bench` does.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import false_alarms
import interval_coverage
import numpy as np
import trust_tutorial
from sklearn.metrics import adjusted_rand_score

import crowdwise as cw
from crowdwise.bench.runs import data_folder
from crowdwise.simulate.crowds import dirichlet_confusion
from crowdwise.trust import find_colluders
from crowdwise.trust.dependent_groups import find_groups
from crowdwise.trust.spammers import capacity_spammers, covariance_spammers, raykar_yu_spammers

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "trust.json"
PAGE = HERE.parent / "docs" / "benchmarks" / "trust.md"

# -------------------------------------------------------------------- simulated


def crowd_with_spammers(share: float, seed: int, N: int = 10_000, M: int = 20, K: int = 4) -> tuple[cw.Votes, Any]:
    """Honest annotators with Dirichlet rows, none under the bar, and spammers who answer from habit."""
    rng = np.random.default_rng([seed, int(100 * share)])
    theta = dirichlet_confusion(20 * M, K, 5.0, 1.0, rng)
    theta = theta[np.einsum("mkk->m", theta) / K >= 0.2 + 0.8 / K][:M]
    spam = np.zeros(M, dtype=bool)
    spam[rng.permutation(M)[: round(share * M)]] = True
    theta[spam] = rng.dirichlet(np.ones(K), size=int(spam.sum()))[:, None]
    truth = rng.choice(K, size=N)
    label = (rng.random((N, M, 1)) > theta.cumsum(axis=2)[np.arange(M)[None], truth[:, None]]).sum(axis=2)
    return cw.Votes.from_dense(label.clip(0, K - 1), classes=range(K)), spam


def spammers(shares: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5, 0.6), seeds: int = 2) -> list[dict[str, Any]]:
    """N = 10,000, K = 4, M = 20: spammers found and honest annotators flagged, by every detector."""
    out = []
    for share in shares:
        count: dict[str, Any] = {}
        for seed in range(seeds):
            votes, spam = crowd_with_spammers(share, seed)
            consensus = cw.aggregate(votes, "dawid-skene")
            verdicts = {
                "capacity": capacity_spammers(votes, consensus).spammer,
                "raykar-yu": raykar_yu_spammers(votes, consensus).spammer,
                "covariance, test": covariance_spammers(votes).spammer,
                "covariance, clusters": covariance_spammers(votes, rule="clusters").spammer,
                "spem": cw.SpEM().fit(votes).consensus_.annotator_columns["pruned"],
            }
            for name, found in verdicts.items():
                sums = count.setdefault(name, [0, 0, 0, 0])
                for i, n in enumerate(((found & spam).sum(), spam.sum(), (found & ~spam).sum(), (~spam).sum())):
                    sums[i] += int(n)
        out.append({"share": share, "crowds": seeds, "found": count})
    return out


def colluders(shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4), seeds: int = 2) -> list[dict[str, Any]]:
    """N = 5,000, M = 60, K = 3, p_corr = 0.9: rings found, and the consensus without them."""
    out = []
    for share in shares:
        rows = []
        for seed in range(seeds):
            sim = cw.simulate.colluders(
                5000, n_annotators=60, n_classes=3, share=share, p_corr=0.9, random_state=100 * seed + int(10 * share)
            )
            ring, votes = sim.parameters["colluders"], sim.votes
            found = find_colluders(votes)
            left = votes.without(found.annotators) if found.annotators else votes
            honest = votes.without(votes.annotators[ring].tolist())
            rows.append(
                [
                    found.flagged[ring].mean(),
                    1.0 - found.flagged[~ring].mean(),
                    *(cw.aggregate(v, "dawid-skene").score(sim.truth) for v in (votes, left, honest)),
                ]
            )
        names = ("sensitivity", "specificity", "all", "pruned", "honest")
        table = np.array(rows, dtype=np.float64)
        row = {"share": share, "crowds": seeds, **dict(zip(names, table.mean(axis=0).tolist(), strict=True))}
        out.append(
            {**row, "apart": float(np.abs(table[:, 3] - table[:, 4]).max()), "worst": table[:, :2].min(axis=0).tolist()}
        )
    return out


def groups(seeds: int = 4) -> list[dict[str, Any]]:
    """N = 5,000, M = 40, K = 3, J = 5: groups recovered, and the two-level model beside the plain one."""
    out = []
    for seed in range(seeds):
        sim = cw.simulate.groups(5000, n_annotators=40, n_classes=3, n_groups=5, random_state=seed)
        found, model = find_groups(sim.votes), cw.aggregate(sim.votes, "grouped-dawid-skene")
        row = {
            "seed": seed,
            "found": found.n_groups,
            "rand": float(adjusted_rand_score(sim.parameters["group"], found.group)),
            "model_rand": float(adjusted_rand_score(sim.parameters["group"], model.annotator_columns["group"])),
            "grouped": model.score(sim.truth),
        }
        for key in ("dawid-skene", "majority", "grouped-majority"):
            row[key] = cw.aggregate(sim.votes, key).score(sim.truth)
        out.append(row)
    return out


# -------------------------------------------------------------------- real


def data(name: str) -> cw.Votes:
    """The votes of a real set, repeated answers all kept."""
    return cw.read_dataset(data_folder() / name, on_duplicate="all").votes


def real() -> list[dict[str, Any]]:
    """bluebird, dog and web: the published pruning (all who are near 0), and the verdicts at level 0.05."""
    out = []
    for name in ("bluebird", "dog", "web"):
        votes = data(name)
        found = covariance_spammers(votes, rule="clusters")
        row: dict[str, Any] = {"set": name, "annotators": votes.n_annotators, "items": len(votes)}
        row["near"], row["spammers"] = int(found.columns["near_zero"].sum()), int(found.spammer.sum())
        for what, left in (
            ("before", votes),
            ("near", found.prune(votes, unclear=True)),
            ("spammers", found.prune(votes)),
        ):
            for key in ("majority", "dawid-skene"):
                row[f"{key} {what}"] = cw.aggregate(left, key).score(votes.truth)
        out.append(row)
    return out


def bluebird(seeds: int = 20) -> dict[str, Any]:
    """grouped-dawid-skene on bluebird, and on simulated crowds of its size with seven groups that are known."""
    votes = data("bluebird")
    found = find_groups(votes)
    out: dict[str, Any] = {"pairs": len(found.p_value), "least_p": float(found.p_value.min()), "groups": found.n_groups}
    for key, options in (
        ("majority", {}),
        ("dawid-skene", {}),
        ("grouped-majority", {"groups": 7}),
        ("grouped-dawid-skene", {}),
        ("grouped-dawid-skene", {"groups": 7}),
    ):
        c = cw.aggregate(votes, key, **options)
        out[f"{key}{', 7 groups' if options else ''}"] = {
            "accuracy": c.score(votes.truth),
            "right": round(c.score(votes.truth) * len(votes), 1),
            "log_likelihood": c.log_likelihood,
        }
    rows = []
    for seed in range(seeds):
        sim = cw.simulate.groups(
            108, n_annotators=39, n_classes=2, n_groups=7, group_diagonal=3.0, member_diagonal=4.0, random_state=seed
        )
        rows.append(
            [
                cw.aggregate(sim.votes, "dawid-skene").score(sim.truth),
                cw.aggregate(sim.votes, "grouped-dawid-skene").score(sim.truth),
                cw.aggregate(sim.votes, "grouped-dawid-skene", groups=7).score(sim.truth),
                cw.aggregate(sim.votes, "grouped-dawid-skene", groups=sim.parameters["group"]).score(sim.truth),
            ]
        )
    table = np.array(rows)
    out["simulated"] = {"crowds": seeds, "mean": table.mean(axis=0).tolist()}
    out["simulated"]["error"] = (table - table[:, :1]).std(axis=0, ddof=1).tolist()
    hard = []
    for seed in range(seeds):
        sim = cw.simulate.difficulty(108, n_annotators=39, n_classes=2, random_state=seed)
        alone, seven = (cw.aggregate(sim.votes, "grouped-dawid-skene", groups=g) for g in (list(range(39)), 7))
        gain = (seven.log_likelihood or 0.0) - (alone.log_likelihood or 0.0)
        hard.append([alone.score(sim.truth), seven.score(sim.truth), gain])
    out["hard"] = np.mean(hard, axis=0).tolist()
    return out


PARTS: dict[str, Callable[[], Any]] = {
    "spammers": spammers,
    "real": real,
    "colluders": colluders,
    "groups": groups,
    "bluebird": bluebird,
    "alarms": lambda: false_alarms.rows(200),
    "accuracy": lambda: interval_coverage.accuracy_rows(6),
    "agreement": lambda: interval_coverage.agreement_rows(200),
    "few": lambda: interval_coverage.few_rows(200),
    **trust_tutorial.PARTS,
}


def main(arguments: list[str]) -> None:
    from trust_page import write

    warnings.simplefilter("ignore", cw.errors.ConvergenceWarning)
    asked = [a for a in arguments if a != "--page"]
    unknown = [a for a in asked if a not in PARTS]
    if unknown:
        raise SystemExit(f"No part named {', '.join(unknown)}: there are {', '.join(PARTS)}.")
    for part in asked or ([] if "--page" in arguments else PARTS):
        measured = PARTS[part]()
        found = {**_kept(), part: measured}  # read again: another part may have been measured meanwhile
        RESULTS.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    write(_kept(), PAGE)


def _kept() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


if __name__ == "__main__":
    main(sys.argv[1:])
