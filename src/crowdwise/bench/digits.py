"""The demonstration: handwritten digits labelled by a crowd of really trained weak classifiers, no download needed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crowdwise import metrics, registry
from crowdwise.api import aggregate
from crowdwise.core.consensus import Consensus
from crowdwise.simulate import SCENARIOS, Simulated

MACHINES, SPAMMERS, COPIERS, GOLD = 12, 2, 3, 60
SHOWN = (
    "auto", "anchored", "majority", "gold-weighted", "dawid-skene", "one-coin", "confusion-vector", "fast-dawid-skene",
)  # fmt: skip
"""The methods that are compared: the common ones, all of them quick."""
LEARNERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("two-stage", {"aggregator": "majority"}),
    ("two-stage", {"aggregator": registry.DEFAULT}),
    ("aggnet", {}),
    ("max-mig", {}),
)
"""The learners that are compared, with what is not their default."""


class MethodRow(NamedTuple):
    """A method on the digits."""

    key: str
    needs_gold: bool
    consensus: Consensus
    accuracy: metrics.Estimate
    log_loss: float
    calibration_error: float


class LearnerRow(NamedTuple):
    """A learner: its accuracy on digits that nobody labelled, and that of its consensus."""

    name: str
    unseen: float
    labelled: float
    seconds: float


def digits_crowd(seed: int = 0) -> Simulated:
    """Digits with four votes each by weak classifiers, spammers and copiers; a fifth of all digits is held out."""
    return SCENARIOS["machine"](
        n_annotators=MACHINES,
        n_spammers=SPAMMERS,
        n_copiers=COPIERS,
        test_share=0.2,
        votes_per_item=4,
        random_state=seed,
    )


def compare_methods(crowd: Simulated) -> list[MethodRow]:
    """The common methods on the crowd, the best first.

    Those that need gold get it for a few items, which are then left out of the accuracy of all methods.
    """
    gold = np.where(np.arange(len(crowd.truth)) < GOLD, crowd.truth, -1).astype(np.int32)
    hidden = np.where(gold >= 0, -1, crowd.truth)
    rows = []
    for key in SHOWN:
        needs_gold = registry.find(key).load().needs_gold
        found = aggregate(crowd.votes, key, gold=gold if needs_gold else None)
        loss, calibration = float(metrics.log_loss(found, hidden)), float(metrics.calibration_error(found, hidden))
        rows.append(MethodRow(key, needs_gold, found, metrics.accuracy(found, hidden), loss, calibration))
    return sorted(rows, key=lambda row: -row.accuracy.value)


def compare_learners(crowd: Simulated) -> list[LearnerRow]:
    """Learners on pixels and votes."""
    from crowdwise.learners.devices import one_torch_thread

    rows = []
    for key, settings in LEARNERS:
        learner = registry.find(key, inputs=True).create(random_state=0, **settings)
        with one_torch_thread():
            learner.fit(crowd.features["x_train"], crowd.votes)
        right = learner.predict(crowd.features["x_test"]) == crowd.features["y_test"]
        found = learner.consensus_
        name = ", ".join([key, *settings.values()])
        rows.append(LearnerRow(name, float(np.mean(right)), found.score(crowd.truth), found.seconds))
    return rows
