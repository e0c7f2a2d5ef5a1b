"""How sure the networks of ``ensemble`` are on new items: at temperature 1, and at the one that votes chose.

    python benchmarks/network_temperature.py --inputs FOLDER [--only labelme,digits] [--seeds 0,1] [--out results.jsonl]

FOLDER is that of default_learner.py, the sets are those of vote_power.py and Max-MIG's experts on digits. The learner
is fitted to 70 % of the items. Every line has a set and a seed, and for the other items how many are right and the log
loss: of the networks alone (``before``: temperature 1; ``best``: the temperature with the smallest log loss, chosen
with the truth), and of networks and votes. The truth only measures.
"""

from __future__ import annotations

import warnings

import default_learner as sets
import numpy as np
import vote_power
from vote_power import figures

import crowdwise as cw
from crowdwise.learners.held_out_votes import sharpened

TEMPERATURES = (0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 2.25, 3.4, 5.0, 7.5, 11.0)


def compared(inputs, data, seed):
    x, votes = vote_power.load(inputs, data, seed)
    truth, mine = np.asarray(votes.truth), np.random.default_rng([seed, 3]).random(len(votes)) < 0.7
    settings = vote_power.PATCHES if data.endswith("-patches") or data in sets.IMAGES else {}
    settings = settings | ({"scale": False} if data.endswith("-grams") else {})
    learner = cw.Ensemble(random_state=seed, **settings)
    part = votes[np.flatnonzero(mine)]
    learner.fit(x[mine], part, items=part.items)
    others = votes[np.flatnonzero(~mine)]
    network = learner._trainer.network
    found = {"set": data, "seed": seed, "temperature": learner.temperature_, "power": learner.vote_power_}
    for name, temperature in (("before", 1.0), ("now", learner.temperature_)):
        network.temperature = temperature
        alone, both = learner.predict_proba(x[~mine]), learner.predict_proba(x[~mine], others)
        found[name] = figures(alone, truth[~mine]) | {"with_votes": figures(both, truth[~mine])}
    raw = sharpened(alone, 1.0 / learner.temperature_)
    each = {t: figures(sharpened(raw, t), truth[~mine])["log_loss"] for t in TEMPERATURES}
    best = min(each, key=lambda t: each[t])
    return found | {"best": {"temperature": best, "log_loss": each[best]}}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    vote_power.main(compared, __doc__)
