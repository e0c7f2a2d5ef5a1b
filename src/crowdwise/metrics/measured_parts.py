"""What a consensus that comes part by part measures against the truth."""

from __future__ import annotations

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.metrics.bootstrap import Estimate
from crowdwise.metrics.measures import measure_classes

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
