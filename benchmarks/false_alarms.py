"""False alarms of the detectors of dependence on simulated honest crowds of varied size, sparsity and difficulty.

    python benchmarks/false_alarms.py [crowds]

Prints, for each detector, in how many crowds anybody was flagged at level 0.05, and the p-value of the binomial test
that the rate is no higher.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.stats import binomtest

import crowdwise as cw
from crowdwise.trust.colluders import find_colluders, shared_mistakes
from crowdwise.trust.groups import find_groups

LEVEL = 0.05


def honest_crowd(seed: int) -> cw.simulate.Simulated:
    """An honest crowd: one of eight kinds, with size, classes and sparsity drawn."""
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


def alarms(seed: int) -> dict[str, bool]:
    """Whether each detector flags anybody in an honest crowd."""
    votes = honest_crowd(seed).votes
    consensus = cw.aggregate(votes, "dawid-skene")
    return {
        "find_groups": bool(find_groups(votes, level=LEVEL).flagged.any()),
        "find_colluders": bool(find_colluders(votes, level=LEVEL).flagged.any()),
        "shared_mistakes": bool(shared_mistakes(votes, consensus, level=LEVEL).flagged.any()),
    }


def main(crowds: int) -> None:
    found = [alarms(seed) for seed in range(crowds)]
    for name in found[0]:
        count = sum(f[name] for f in found)
        which = [seed for seed, f in enumerate(found) if f[name]]
        p = binomtest(count, crowds, LEVEL, alternative="greater").pvalue
        sys.stdout.write(f"{name}: {count} of {crowds} (binomial p = {p:.2f}) {which}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
