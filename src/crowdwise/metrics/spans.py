"""How good spans are where the truth is known.

F1 = 2 pairs / (spans found + true spans), summed over items first. A pair has the same label, and each span is in one
pair at most. ``exact``: start and end are equal. ``overlap``: the two share half of their union or more. Of characters,
every character with its label counts by itself.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from crowdwise.core.result import some_known
from crowdwise.core.span_overlap import HALF, matches, shared_characters
from crowdwise.data.spans import encode_spans
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options


def span_set_scores(
    result: Any, truth: Any, *, overlap: float = HALF, **options: Unpack[Options]
) -> dict[str, Estimate]:
    """F1 of exact spans, F1 by overlap with its precision and recall, and F1 of characters.

    ``result`` is a :class:`~crowdwise.SpanConsensus`; ``truth`` a mapping from item to (label, start, end), or N lists
    of such, ``None`` for unknown. ``overlap`` is the share of their union that two spans must have in common.
    """
    true = encode_spans(truth, result.items)
    known = np.flatnonzero(some_known(np.array([spans is not None for spans in true])))
    found = result.spans()
    table = np.array([
        (matches(found[n], true[n], 1.0), matches(found[n], true[n], overlap), len(found[n]), len(true[n]),
         *shared_characters(found[n], true[n]))
        for n in known.tolist()
    ], dtype=float)  # fmt: skip
    by, once = Bootstrap(**options), np.ones(len(known), dtype=np.int64)

    def share(part: int, *whole: int) -> Estimate:
        def ratio(sums: Any) -> Any:
            total = sums[:, list(whole)].sum(axis=1)
            return np.where(total > 0, len(whole) * sums[:, part] / np.maximum(total, 1.0), 1.0)

        return by.of_sums(table, once, ratio, len(known))

    return {
        "f1_exact": share(0, 2, 3), "f1_overlap": share(1, 2, 3), "precision_overlap": share(1, 2),
        "recall_overlap": share(1, 3), "f1_characters": share(4, 5, 6),
    }  # fmt: skip
