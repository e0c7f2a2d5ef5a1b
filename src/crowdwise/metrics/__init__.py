"""How good a result is where the truth is known, every figure with a bootstrap interval.

Metrics of labels take a :class:`~crowdwise.Consensus` (or an N x K array of probabilities) and the truth: a mapping
from item to class, or N class codes with -1 for unknown. Items without truth are left out. Those of ratings and ordinal
classes (``mae``, ``rmse``, ``quadratic_kappa``, ``spearman``, ``kendall``) take :class:`~crowdwise.Estimates` and true
numbers, a Consensus over ordinal classes (its labels count by their place in the ``order`` of the fit, by default that
of the classes) and true classes, or two arrays. ``measure`` has what suits an answer type.

All take ``level``, ``resamples`` and ``random_state`` of the interval (:class:`~crowdwise.metrics.bootstrap.Options`).

>>> import crowdwise as cw
>>> crowd = cw.simulate.one_coin(200, n_annotators=10, n_classes=2, votes_per_item=5, random_state=0)
>>> cw.metrics.accuracy(cw.aggregate(crowd.votes, "one-coin"), crowd.truth)
Estimate(0.745, 95% CI 0.680-0.810, n=200)
"""

from __future__ import annotations

from crowdwise.core.lazy import lazily

_WHERE = {
    "bootstrap": ("Estimate",),
    "measures": (
        "accuracy", "accuracy_on_truth", "accuracy_per_class", "adjusted_rand", "brier", "calibration_error",
        "cluster_accuracy", "confusion_error", "cross_entropy", "hamming_loss", "jaccard", "kendall", "label_scores",
        "log_loss", "mae", "manhattan", "measure", "mutual_information", "quadratic_kappa", "reliability", "rmse",
        "set_f1", "set_precision", "set_recall", "span_scores", "span_scores_per_type", "spearman", "subset_accuracy",
        "top_k_with_gold_count", "wasserstein",
    ),
    "structures": ("box_scores", "mask_scores", "span_set_scores", "text_scores"),
}  # fmt: skip
__all__, __getattr__, __dir__ = lazily(__name__, _WHERE)
