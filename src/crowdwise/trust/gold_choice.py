"""Which items to label by hand, so that a few known answers bring the most.

A gold label does two things: its item is right from then on, which pays where the label is in doubt; and it shows
whether the crowd as a whole is too sure or biased (:mod:`crowdwise.core.gold_regression`), for which the items must
not all be of one kind. So items are drawn at random without replacement, each the more often the more it is in doubt:

    P(n is drawn next) ∝ 1 - max_k q'[n, k] + ``LEAST``

with q' the corrected posterior. On real crowds fifty of these raise the accuracy over all items by half as much again
as fifty drawn evenly, and are as good for the other items; the fifty most doubtful make the others' probabilities worse
(docs/benchmarks/gold.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, RandomState, checked
from crowdwise.core.numerics import Floats
from crowdwise.errors import InputError
from crowdwise.trust.result_tables import Tables

LEAST = 1e-4
"""Every item can be drawn."""


@dataclass(frozen=True, eq=False, repr=False)
class GoldItems(Tables):
    """The items to label, the most doubtful first; see :func:`ask_for_gold`."""

    TABLES = ("items",)
    items: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    right: Floats
    """The probability that the label is right."""
    votes: npt.NDArray[Any]
    kind: str = field(default="polars")

    def __repr__(self) -> str:
        return f"GoldItems({len(self.items):,} items, {self.expected_wrong:.1f} of their labels expected to be wrong)"

    @property
    def expected_wrong(self) -> float:
        """How many of the labels are expected to be wrong."""
        return float((1.0 - self.right).sum())

    def _columns(self, table: str) -> dict[str, Any]:
        return {"item": self.items, "label": self.labels, "right": self.right, "votes": self.votes}


@checked
def ask_for_gold(consensus: Consensus, n: Count = 50, random_state: RandomState = 0) -> GoldItems:
    """The items whose truth would help most.

    Parameters
    ----------
    consensus
        Of the votes; items with gold labels are not asked for again.
    n
        How many items, or all that there are.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=20, votes_per_item=3, random_state=0)
    >>> found = cw.trust.ask_for_gold(cw.aggregate(crowd.votes), 40)
    >>> len(found.items), bool(found.expected_wrong > 4)
    (40, True)
    """
    q, known = consensus.corrected_posterior, consensus.gold
    open_ = np.arange(len(q)) if known is None else np.flatnonzero(known < 0)
    if not len(open_):
        raise InputError("Every item has a gold label: there is nothing to ask for.")
    doubt = 1.0 - q[open_].max(axis=1) + LEAST
    # The n largest of u^(1/w) are such a draw (Efraimidis and Spirakis 2006).
    key = np.log(np.random.default_rng(random_state).random(len(open_))) / doubt
    chosen = open_[np.argsort(-key, kind="stable")[: min(n, len(open_))]]
    right = q[chosen, consensus.label_codes[chosen]]
    chosen = chosen[np.argsort(right, kind="stable")]
    return GoldItems(
        consensus.items[chosen], consensus.labels[chosen], np.sort(right), consensus.votes_per_item[chosen],
        consensus.kind,
    )  # fmt: skip
