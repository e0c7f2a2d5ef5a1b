"""What is measured of each answer type where the truth is known, every figure with its interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise import metrics, registry  # the names of metrics are imported when they are used
from crowdwise.core.numerics import Floats, Ints
from crowdwise.metrics.bootstrap import Estimate

MEASURES = {
    "accuracy": "Right against the known truth",
    "calibration_error": "Calibration error",
    "mae": "Mean absolute error",
    "rmse": "Root mean square error",
    "kendall": "Kendall’s tau",
    "f1": "F1 of the labels",
    "jaccard": "Jaccard index",
    "subset_accuracy": "Sets that are right",
    "span_f1": "F1 of the spans",
    "adjusted_rand": "Adjusted Rand index",
    "mutual_information": "Mutual information",
    "quadratic_kappa": "Quadratic kappa",
    "span_precision": "Precision of the spans",
    "span_recall": "Recall of the spans",
}
"""What each figure is called; others by their name."""


def measure(answer_type: str, answers: Any, result: Any, truth: Any = None) -> dict[str, Estimate]:
    """Figures with intervals against known truth, by name; none where nothing is known.

    Items whose class the method was given (gold) are left out.

    Parameters
    ----------
    answer_type
        A key of ``crowdwise.ANSWER_TYPES``.
    answers, result
        A table of answers, and the result of a fit to them.
    truth
        By default that of the answers; for comparisons and rankings, the true score of each item.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(50, n_annotators=6, random_state=0)
    >>> sorted(cw.metrics.measure("ratings", crowd.answers, cw.aggregate(crowd.answers)))
    ['mae', 'rmse']
    """
    rules = registry.ANSWER_TYPES[answer_type].rules
    truth = rules.truth(answers) if truth is None else truth
    return {} if truth is None else rules.measures(answers, result, truth)


def measure_classes(result: Any, truth: Any) -> dict[str, Estimate]:
    """What is measured of votes: a consensus or N x K class probabilities, against N class codes."""
    return {"accuracy": metrics.accuracy(result, truth), "calibration_error": metrics.calibration_error(result, truth)}


MOST_ITEMS = 1_000_000
"""Items with truth that are kept."""


class MeasuredParts:
    """The class probabilities of items whose truth is known, and what they show."""

    def __init__(self) -> None:
        self.rows: list[tuple[Floats, Ints]] = []
        self.n_items = 0

    def add(self, q: Floats, truth: Ints | None) -> None:
        """The items of a part: N x K class probabilities and N class codes, -1 where the truth is unknown.

        Which items a part holds is chance, so that those of the first parts are as good as any.
        """
        if truth is not None and self.n_items < MOST_ITEMS:
            known = np.flatnonzero(truth >= 0)[: MOST_ITEMS - self.n_items]
            self.rows.append((q[known], truth[known]))
            self.n_items += len(known)

    def measured(self) -> dict[str, Estimate]:
        """Figures by name, as :func:`crowdwise.metrics.measure` gives them for votes; none where nothing is known."""
        if not self.n_items:
            return {}
        q, y = (np.concatenate(arrays) for arrays in zip(*self.rows, strict=True))
        return measure_classes(q, y)
