"""Run in several processes by test_distributed.py: fits learners, writes what they learned, then runs a command."""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn

from crowdwise import registry
from crowdwise.cli.main import main
from crowdwise.learners.devices import world
from learners.crowd import small

CASES = {
    "max-mig": {},
    "aggnet": {"mixup": 0.5},
    "geocrowdnet-f": {"holdout": 0.1, "select": "votes", "ema": 0.9},
    "annot-mix": {},
    "weighted-doctor-net": {"weight_epochs": 2},
}


def network(shape, n_classes):
    """With dropout and batch normalisation."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(shape[0], 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, n_classes)
    )


def fits(checkpoint=None):
    """Learner -> probabilities of all items, from inputs and votes, and the losses."""
    X, votes, _ = small(n=131)
    out = {}
    for key, more in CASES.items():
        settings = {"epochs": 3, "batch_size": 40, "network": network, "random_state": 0, "device": "cpu"} | more
        if key == "aggnet" and checkpoint is not None:
            settings["checkpoint"] = checkpoint
        learner = registry.find(key, inputs=True).create(**settings)
        learner.fit(X, votes, callback=lambda epoch, learner=learner: world()[0] == 0 and not len(learner.predict(X)))
        out[f"{key} inputs"] = learner.predict_proba(X)
        out[f"{key} votes"] = learner.predict_proba(X, votes=votes)
        out[f"{key} loss"] = np.array([epoch.loss for epoch in learner.history_])
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    name, *command = sys.argv[1:]
    np.savez(f"{name}-{world()[0]}.npz", **fits(checkpoint=f"{name}.safetensors"))
    sys.argv[1:] = command
    main()
