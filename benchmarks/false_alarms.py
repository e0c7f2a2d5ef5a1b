"""False alarms of every detector on simulated honest crowds of varied size, sparsity and difficulty.

    python benchmarks/false_alarms.py [crowds]

Two kinds of detectors, two kinds of crowds, one level (0.05):

- detectors of dependence (groups, rings, shared mistakes) and the flags of annotators say how probable it is that
  *anybody* is flagged: a crowd counts as one trial, and it fails where somebody is flagged who should not be;
- detectors of spammers say how probable it is for *one* annotator at or above the bar: a trial is one such annotator,
  drawn at random from each crowd, so that trials are independent. The share among all of them is given beside it.

The p-value is that of the binomial test that the rate is no higher than the level.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from scipy.stats import binomtest

import crowdwise as cw
from crowdwise.simulate.crowds import dirichlet_confusion, one_coin_confusion
from crowdwise.trust import find_colluders, shared_mistakes
from crowdwise.trust.annotators import assess_annotators
from crowdwise.trust.dependent_groups import find_groups
from crowdwise.trust.spammers import (
    capacity_spammers,
    channel_capacity,
    covariance_spammers,
    one_coin_capacity,
    raykar_yu_score,
    raykar_yu_spammers,
)

LEVEL = 0.05
SKILL = 0.2


def independent_crowd(seed: int) -> cw.simulate.Simulated:
    """Nobody depends on anybody: one of eight kinds, with size, classes and sparsity drawn."""
    rng = np.random.default_rng([seed, 7])
    N, M, K = int(rng.integers(150, 1500)), int(rng.integers(5, 31)), int(rng.integers(2, 5))
    r = None if rng.random() < 0.5 else int(rng.integers(4, 11))
    common = {"n_annotators": M, "votes_per_item": None if r is None or r > M else r, "random_state": seed}
    kinds = [
        lambda: cw.simulate.dirichlet(N, n_classes=K, **common),
        lambda: cw.simulate.dirichlet(N, n_classes=K, diagonal=12.0, prior=rng.dirichlet(np.full(K, 4.0)), **common),
        lambda: cw.simulate.one_coin(N, n_classes=K, **common),
        lambda: cw.simulate.two_coin(N, **common),
        lambda: cw.simulate.hammer_spammer(N, n_classes=K, accuracy=0.9, **common),
        lambda: cw.simulate.difficulty(N, n_classes=2, **common),
        lambda: cw.simulate.difficulty(N, n_classes=K, ability=(2.0, 0.5), **common),
        lambda: cw.simulate.outliers(N, n_classes=K, share=0.05, **common),
    ]
    return kinds[seed % len(kinds)]()


def informed_crowd(seed: int) -> tuple[cw.Votes, Any]:
    """Annotators around and above the bar, and their matrices: 2 to 5 classes, 4 to 50 annotators, 40 to 500 items."""
    rng = np.random.default_rng([5, seed])
    K, M, N = int(rng.integers(2, 6)), int(rng.integers(4, 51)), int(10 ** rng.uniform(1.6, 2.7))
    r = int(rng.integers(2, min(M, 10) + 1))
    prior = rng.dirichlet(np.full(K, 5.0)) if seed % 4 else np.r_[0.85, np.full(K - 1, 0.15 / (K - 1))]
    if seed % 2:
        theta = dirichlet_confusion(M, K, 5.0, 1.0, rng)
    else:  # a third of them right at the bar
        skill = np.where(rng.random(M) < 1 / 3, SKILL, rng.uniform(SKILL, 0.95, M))
        theta = one_coin_confusion(skill + (1 - skill) / K, K)
    truth = rng.choice(K, size=N, p=prior)
    label = (rng.random((N, M, 1)) > theta.cumsum(axis=2)[np.arange(M)[None], truth[:, None]]).sum(axis=2)
    label = label.clip(0, K - 1)
    label[np.arange(N)[:, None], np.argsort(rng.random((N, M)), axis=1)[:, r:]] = -1
    return cw.Votes.from_dense(label, missing=-1, classes=range(K)), theta


def dependence_alarms(seed: int) -> dict[str, bool]:
    """Whether each detector of dependence flags anybody in an independent crowd."""
    votes = independent_crowd(seed).votes
    consensus = cw.aggregate(votes, "dawid-skene")
    return {
        "groups (find_groups)": bool(find_groups(votes, level=LEVEL).flagged.any()),
        "rings (find_colluders)": bool(find_colluders(votes, level=LEVEL).flagged.any()),
        "shared mistakes (shared_mistakes)": bool(shared_mistakes(votes, consensus, level=LEVEL).flagged.any()),
    }


def flag_alarms(seed: int) -> dict[str, bool]:
    """Whether each kind of flag is raised on anybody who does not deserve it, in a crowd of one-coin annotators."""
    rng = np.random.default_rng([seed, 11])
    K, M = int(rng.integers(2, 6)), int(rng.integers(8, 60))
    N, r = int(rng.integers(100, 500)), int(rng.integers(3, 9))
    sim = cw.simulate.one_coin(
        N, n_annotators=M, n_classes=K, a=12, b=4, votes_per_item=min(r, M), random_state=int(rng.integers(2**31))
    )
    v = sim.votes
    votes = cw.Votes.from_codes(
        v.item, v.annotator, v.label, items=v.items, annotators=v.annotators, classes=v.classes,
        timestamp=rng.random(v.n_votes),
    )  # fmt: skip
    report = assess_annotators(votes, cw.aggregate(votes, ["anchored", "dawid-skene", "majority"][seed % 3]))
    w = sim.parameters["accuracy"]
    clears = {"random": (K * w - 1) / (K - 1) >= SKILL, "confusion": (1 - w) / (K - 1) <= SKILL}
    return {
        f"flag: {kind}": bool(((p.reshape(M, -1).min(axis=1) <= LEVEL) & clears.get(kind, True)).any())
        for kind, p in report.p_values.items()
    }


def spammer_alarms(seed: int) -> dict[str, Any]:
    """For each detector of spammers: who is called one although at or above the bar, of how many such."""
    votes, theta = informed_crowd(seed)
    K = votes.n_classes
    apart = raykar_yu_score(theta) >= SKILL**2 - 1e-9
    telling = channel_capacity(theta) >= one_coin_capacity(SKILL, K) - 1e-6
    consensus = cw.aggregate(votes, "dawid-skene")
    spem = cw.SpEM().fit(votes).consensus_
    found = {
        "capacity": (capacity_spammers(votes, consensus, level=LEVEL, skill=SKILL, draws=100).spammer, telling),
        "raykar-yu": (raykar_yu_spammers(votes, consensus, level=LEVEL, skill=SKILL, draws=100).spammer, apart),
        "covariance, rule test": (covariance_spammers(votes, level=LEVEL, skill=SKILL).spammer, apart),
        "covariance, rule clusters": (
            covariance_spammers(votes, rule="clusters", level=LEVEL, skill=SKILL).spammer,
            apart,
        ),
        "spem, pruned": (spem.annotator_columns["pruned"], apart),
        "raykar-yu on spem's consensus": (
            raykar_yu_spammers(votes, spem, level=LEVEL, skill=SKILL, draws=100).spammer,
            apart,
        ),
    }
    draw = np.random.default_rng([seed, 13])
    out = {}
    for name, (spammer, honest) in found.items():
        at = np.flatnonzero(honest)
        one = bool(spammer[draw.choice(at)]) if len(at) else None
        out[name] = (one, int((spammer & honest).sum()), len(at))
    return out


def rows(crowds: int) -> list[dict[str, Any]]:
    """One row per detector: trials, alarms, and the binomial test."""
    warnings.simplefilter("ignore", cw.errors.ConvergenceWarning)
    out = []
    for measure in (dependence_alarms, flag_alarms):
        found = [measure(seed) for seed in range(crowds)]
        for name in found[0]:
            out.append(_row(name, "crowd", sum(f[name] for f in found), crowds))
    spam = [spammer_alarms(seed) for seed in range(crowds)]
    for name in spam[0]:
        drawn = [f[name][0] for f in spam if f[name][0] is not None]
        row = _row(name, "annotator", sum(drawn), len(drawn))
        row |= {"all": sum(f[name][1] for f in spam), "of": sum(f[name][2] for f in spam)}
        out.append(row)
    return out


def _row(name: str, unit: str, alarms: int, trials: int) -> dict[str, Any]:
    p = float(binomtest(alarms, trials, LEVEL, alternative="greater").pvalue)
    return {"detector": name, "unit": unit, "alarms": int(alarms), "trials": int(trials), "p": p}


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 200):
        beside = f"; {row['all']} of all {row['of']:,}" if "all" in row else ""
        sys.stdout.write(
            f"{row['detector']}: {row['alarms']} of {row['trials']} (binomial p = {row['p']:.2f}){beside}\n"
        )
