"""How much votes count beside what networks say: labels with and without the power and the temperature by kappa.

    python benchmarks/vote_power.py --inputs FOLDER [--only labelme,mig-low-copied] [--seeds 0] [--out results.jsonl]

FOLDER is that of default_learner.py. Every line has a set and a seed: how many labels are right, and the log loss after
the correction for dependent votes, of ``max-mig`` cross-fitted in five folds. ``before``: the power is 1, and the
temperature, of four, that under which single votes are most likely. ``low-patches`` and ``copied-patches`` are experts
of low quality on 10,000 images of CIFAR-10 (CROWDWISE_IMAGES). The truth only measures.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import default_learner as sets
import numpy as np

import crowdwise as cw
from crowdwise.core.dependence import correct, votes_per_item
from crowdwise.core.vote_parts import VoteParts, resolve
from crowdwise.learners import ensemble
from crowdwise.learners import held_out_votes as held

SETS = (
    "labelme", "music_genre", "digits", "sentiment", "mig-low-independent", "mig-low-copied", "low-patches",
    "copied-patches", "cifar10n", "tanno-one",
)  # fmt: skip
BEFORE = (1.0, 0.67, 1.5, 2.25)
PATCHES = {"epochs": 15, "network": "herde"}


def load(inputs, data, seed):
    """Inputs and votes."""
    if not data.endswith("-patches"):
        return sets.load(inputs, data, seed)[:2]
    x, people, _, _ = sets.load(inputs, "cifar10n", seed)
    truth, rng = np.asarray(people.truth), np.random.default_rng(seed)
    shape = (len(truth), 10)
    wrong = (truth[:, None] + rng.integers(1, 10, shape)) % 10
    label = np.where(rng.random(shape) < 0.2, truth[:, None], wrong)
    if data.startswith("copied"):
        label = np.hstack([label, label[:, [0, 2]]])
    N, M = label.shape
    return x, cw.Votes.from_codes(
        np.repeat(np.arange(N), M), np.tile(np.arange(M), N), label.ravel(), items=np.arange(N),
        annotators=np.arange(M), classes=np.arange(10), truth=truth,
    )  # fmt: skip


def predictions(x, votes, seed, settings):
    """What networks say of items that they have not seen, as they say it; the folds."""
    kept = []
    scored = ensemble.scored

    def keep(p, judges, fold):
        kept.append((p, fold))
        return scored(p, judges, fold)

    ensemble.scored = keep
    try:
        cw.Ensemble(candidates=("max-mig",), rounds=0, random_state=seed, **settings).cross_fit(x, votes)
    finally:
        ensemble.scored = scored
    return kept[0]


def figures(p, truth):
    return {
        "right": round(100 * cw.metrics.accuracy(p, truth).value, 1),
        "log_loss": round(cw.metrics.log_loss(p, truth, floor=1e-9).value, 3),
    }


def measured(p, strength, base, power, votes):
    """Labels right, in percent, and the log loss of corrected probabilities."""
    rows, truth = held.VoteList.of(votes), np.asarray(votes.truth)
    q = held.posterior(p, held.vote_confusions(p, rows, strength, base), rows, power)
    parts = VoteParts.whole(votes, None, np.log(np.maximum(p, held.FLOOR)))
    found = resolve("auto", parts, lambda _: q, shared_prior=True)
    corrected = correct(q, power * votes_per_item(votes), found)
    return figures(corrected, truth)


def compared(inputs, data, seed):
    x, votes = load(inputs, data, seed)
    p, fold = predictions(x, votes, seed, PATCHES if data.endswith("-patches") else {})
    judges = held.VoteList.of(votes).judges(votes.n_classes)
    now = held.scored(p, judges, fold)
    score = {t: held.Trial.of(held.sharpened(p, t), judges, fold, now.strength).score for t in BEFORE}
    before = max(BEFORE, key=lambda t: score[t])
    return {
        "set": data, "seed": seed, "temperature": now.temperature, "power": now.power, "temperature_before": before,
        "base": now.base, "strength": now.strength,
        "before": measured(held.sharpened(p, before), now.strength, "crowd", 1.0, votes),
        "now": measured(now.p, now.strength, now.base, now.power, votes),
    }  # fmt: skip


def main(compared=compared, description=__doc__) -> None:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--only", default=",".join(SETS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for seed in map(int, given.seeds.split(",")):
        for data in given.only.split(","):
            line = json.dumps(compared(given.inputs, data, seed))
            print(line, flush=True)
            if given.out:
                with given.out.open("a") as out:
                    out.write(line + "\n")


if __name__ == "__main__":
    main()
