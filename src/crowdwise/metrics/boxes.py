"""How good boxes are where the objects are known: F1 by the IoU that a match needs, overlap, and counts.

An object matches a true box of the same label; each is in one match at most, and as many as possible are made. F1 is
2 matches / (objects + true boxes), summed over items first.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from crowdwise.core.numerics import Floats
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options

THRESHOLDS = tuple((0.5 + 0.05 * np.arange(10)).round(2).tolist())


def box_scores(result: Any, truth: Any, **options: Unpack[Options]) -> dict[str, Estimate]:
    """Figures of a :class:`~crowdwise.BoxConsensus`: ``f1_50``, ``f1_75`` and ``f1_mean`` (IoU of 0.5 to 0.95),
    ``precision_50``, ``recall_50``, the ``mean_iou`` of matches at 0.5, and objects over true boxes (``count_ratio``).

    ``truth`` is a mapping from item to a list of (label, x1, y1, x2, y2), N such lists (``None``: unknown), or a table.
    """
    tables = result.matches(truth, THRESHOLDS)
    n = len(tables[0])
    by, once = Bootstrap(**options), np.ones(n, dtype=np.int64)

    def ratio(table: Floats, over: int, under: list[int], times: float = 1.0) -> Estimate:
        def value(s: Floats) -> Floats:
            return np.asarray(times * s[:, over] / np.maximum(s[:, under].sum(axis=1), 1e-12))

        return by.of_sums(table, once, value, n)

    every = np.column_stack([np.mean([table[:, 0] for table in tables], axis=0), tables[0][:, 1:]])
    return {
        "f1_50": ratio(tables[0], 0, [1, 2], 2.0), "f1_75": ratio(tables[THRESHOLDS.index(0.75)], 0, [1, 2], 2.0),
        "f1_mean": ratio(every, 0, [1, 2], 2.0), "precision_50": ratio(tables[0], 0, [1]),
        "recall_50": ratio(tables[0], 0, [2]), "mean_iou": ratio(tables[0], 3, [0]),
        "count_ratio": ratio(tables[0], 1, [2]),
    }  # fmt: skip
