"""Inputs beside votes: the default method with and without them, and learners with votes corrected or not.

    python benchmarks/inputs.py [--only labelme,music_genre] [--seeds 0,1] [--out results.jsonl]

Every line has a set and a seed: accuracy, log loss (probabilities floored at 1e-6) and expected accuracy by votes alone
and with inputs, what held-out votes said, and seconds of processor time. ``--learners``: predict_proba(X, votes) of
three learners on 30 % of the items that they were not fitted to, as the product of network and votes (``textbook``),
with the votes corrected and the network not (``votes``), and with both corrected (``both``, which is what they do). The
truth only measures.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

SETS = ("labelme", "music_genre", "rte", "sentiment_polarity", "digits", "labelme:noise", "music_genre:noise")
LEARNERS = ("max-mig", "aggnet", "crowd-layer")


def load(name, seed):
    """Inputs in the order of the items, and votes with truth."""
    import crowdwise as cw

    if name == "digits":
        from crowdwise.bench.runs import digits_crowd

        crowd = digits_crowd(seed)
        return crowd.features["x_train"], crowd.votes.with_truth(crowd.truth)
    folder, _, noise = name.partition(":")
    data = cw.read_dataset(Path(os.environ["CROWDWISE_DATA"]) / folder)
    x = np.random.default_rng(seed).normal(size=(len(data.votes), 50)) if noise else data.own_inputs().x
    return x, data.votes


def figures(q, truth):
    known = truth >= 0
    own = np.maximum(q[known, truth[known]], 1e-6)
    right = float((q.argmax(axis=1) == truth)[known].mean())
    return {"accuracy": round(100 * right, 1), "log_loss": round(float(-np.log(own).mean()), 3)}


def with_inputs(name, seed):
    import crowdwise as cw
    from crowdwise.data.alignment import Rows

    x, votes = load(name, seed)
    x = Rows(x, votes.items)
    began = time.process_time()
    alone = cw.aggregate(votes.with_truth(None))
    middle = time.process_time()
    found = cw.aggregate(votes.with_truth(None), inputs=x, max_seconds=1e5, random_state=seed)
    row = {"set": name, "seed": seed, "used": found.item_prior is not None, "note": found.notes[0]}
    for part, one in (("votes", alone), ("inputs", found)):
        row[part] = figures(one.posterior, votes.truth) | {"expected": round(100 * one.expected_accuracy()[0], 1)}
    return row | {"seconds": [round(middle - began, 2), round(time.process_time() - middle, 1)]}


def learners(name, seed):
    from crowdwise import registry
    from crowdwise.core.dependence import correct, votes_per_item
    from crowdwise.core.numerics import safe_log
    from crowdwise.data.alignment import Rows

    x, votes = load(name, seed)
    order = np.random.default_rng(seed).permutation(len(votes))
    fit, new = np.sort(order[: 7 * len(votes) // 10]), np.sort(order[7 * len(votes) // 10 :])
    rows = [Rows(x[part], votes.items[part]) for part in (fit, new)]
    for key in LEARNERS:
        learner = registry.find(key, inputs=True).create(random_state=seed).fit(rows[0], votes[fit])
        both, network = learner.predict_proba(rows[1], votes[new]), learner.predict_proba(rows[1])
        textbook = learner.set_params(dependence="none").predict_proba(rows[1], votes[new])
        apart = replace(learner.consensus_.shown_dependence, shared_prior=False)
        alone = correct(textbook, votes_per_item(votes[new]), apart, safe_log(network))
        parts = {"network": network, "textbook": textbook, "votes": alone, "both": both}
        truth = votes.truth[new]
        yield {"set": name, "seed": seed, "learner": key} | {part: figures(q, truth) for part, q in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(SETS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--learners", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for seed in map(int, given.seeds.split(",")):
        for name in given.only.split(","):
            for row in learners(name, seed) if given.learners else [with_inputs(name, seed)]:
                print(json.dumps(row), flush=True)
                if given.out is not None:
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
