"""Labels of the items that ``ensemble`` was fitted to: by votes and networks (``consensus_``), and by its networks.

    python benchmarks/item_labels.py --data FOLDER --inputs FOLDER [--only labelme,mig-low-naive] [--seeds 0,1]
        [--out results.jsonl]

Sets are those of the page of learners (``--data``), Max-MIG's experts on digits (``mig-low-naive``) and, with features
of random patches, 10,000 images of CIFAR-10 (CROWDWISE_IMAGES; ``low-patches``, ``cifar10n``..., with three folds, no
round and one network). Every line has a set and a seed, how many labels are right and the log loss (also of
the mean of both), and the accuracy on test items where there are any. In the results, ``version`` says whether a line
is from before matrices could be drawn to annotators of their own. The truth only measures.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import default_learner
import numpy as np
import vote_power

import crowdwise as cw
from crowdwise.bench import runs

FEATURES = ("labelme", "music_genre", "digits", "sentiment_polarity")
SETS = (*FEATURES, *default_learner.EXPERTS, "low-patches", "copied-patches", "cifar10n", "tanno-one")
SMALLER = {"folds": 3, "rounds": 0, "n_networks": 1, **vote_power.PATCHES}


def measured(data, inputs, name, seed):
    test = None
    if name in FEATURES:
        task = runs.digits(seed) if name == "digits" else runs.load_task(data, name)
        x, votes, settings, test = task.x, task.votes, task.settings, (task.x_test, task.y_test)
    else:
        x, votes = vote_power.load(inputs, name, seed)
        settings = {} if name in default_learner.EXPERTS else SMALLER
    known = {key: value for key, value in settings.items() if key in cw.Ensemble.parameters()}
    learner = cw.Ensemble(random_state=seed, **known).fit(x, votes, items=votes.items)
    truth = np.asarray(votes.truth)
    found = {"set": name, "seed": seed, "chosen": learner.chosen_, "power": learner.vote_power_}
    labels, networks = learner.consensus_.posterior, learner.predict_proba(x)
    for key, q in (("labels", labels), ("networks", networks), ("mean_of_both", 0.5 * (labels + networks))):
        found[key] = vote_power.figures(q[truth >= 0], truth[truth >= 0])
    if test is not None:
        right = learner.predict_proba(test[0]).argmax(axis=1) == np.asarray(test[1])
        found["test"] = round(100 * float(right.mean()), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--inputs", type=Path, required=True, help="where features of patches are kept")
    parser.add_argument("--only", default=",".join(SETS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    for name in given.only.split(","):
        for seed in map(int, given.seeds.split(",")):
            line = json.dumps(measured(given.data, given.inputs, name, seed))
            print(line, flush=True)
            if given.out is not None:
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
