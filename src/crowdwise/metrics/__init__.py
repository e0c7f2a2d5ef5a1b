"""How good a consensus is where the truth is known, every figure with a bootstrap interval.

All take a :class:`~crowdwise.Consensus` (or an N x K array of probabilities) and the truth: a mapping from
item to class, or N class codes with -1 for unknown. Items without truth are left out. Those for numbers and grades
(``mae``, ``rmse``, ``quadratic_kappa``, ``spearman``, ``kendall``) take :class:`~crowdwise.Estimates` and true
numbers, a Consensus over grades (its labels count by their place in the order of classes) and true classes, or two
arrays.

>>> import crowdwise as cw
>>> crowd = cw.simulate.one_coin(200, n_annotators=10, n_classes=2, votes_per_item=5, random_state=0)
>>> cw.metrics.accuracy(cw.aggregate(crowd.votes, "one-coin"), crowd.truth)
Estimate(0.745, 95% CI 0.680-0.810, n=200)
"""

from __future__ import annotations

from crowdwise.metrics.bootstrap import Estimate
from crowdwise.metrics.calibration import brier, calibration_error, log_loss, reliability
from crowdwise.metrics.clusters import adjusted_rand, cluster_accuracy, mutual_information
from crowdwise.metrics.labels import accuracy, accuracy_per_class, confusion_error
from crowdwise.metrics.ratings import kendall, mae, quadratic_kappa, rmse, spearman
from crowdwise.metrics.sets import (
    hamming_loss,
    jaccard,
    label_scores,
    set_f1,
    set_precision,
    set_recall,
    subset_accuracy,
    top_k_with_gold_count,
)
from crowdwise.metrics.spans import span_scores, span_scores_per_type

__all__ = [
    "Estimate",
    "accuracy",
    "accuracy_per_class",
    "adjusted_rand",
    "brier",
    "calibration_error",
    "cluster_accuracy",
    "confusion_error",
    "hamming_loss",
    "jaccard",
    "kendall",
    "label_scores",
    "log_loss",
    "mae",
    "mutual_information",
    "quadratic_kappa",
    "reliability",
    "rmse",
    "set_f1",
    "set_precision",
    "set_recall",
    "span_scores",
    "span_scores_per_type",
    "spearman",
    "subset_accuracy",
    "top_k_with_gold_count",
]
