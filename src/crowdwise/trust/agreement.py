"""How much annotators agree beyond chance, each coefficient with a bootstrap interval over items.

This is the door: the coefficients of a whole crowd are in ``coefficients``, intraclass correlations in
``correlations``, those of two annotators in ``pairs``, their intervals in ``bootstrap``. Nothing here needs a complete
table: items may have different numbers of votes, from different annotators.

When it fails: chance-corrected coefficients fall when one class dominates, however good the annotators are. Agreement
is not accuracy: a crowd can agree on a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from crowdwise.data.frames import make_frame
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.metrics import Estimate
from crowdwise.trust.agreement_coefficients import (
    SCALES,
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    krippendorff_alpha,
    percent_agreement,
)
from crowdwise.trust.intraclass import icc
from crowdwise.trust.item_bootstrap import Options
from crowdwise.trust.pairwise_agreement import PairwiseAgreement, cohen_kappa, pairwise_agreement, scott_pi

__all__ = [
    "Agreement",
    "PairwiseAgreement",
    "agreement",
    "cohen_kappa",
    "fleiss_kappa",
    "gwet_ac1",
    "gwet_ac2",
    "icc",
    "krippendorff_alpha",
    "pairwise_agreement",
    "percent_agreement",
    "scott_pi",
]


@dataclass(frozen=True)
class Agreement:
    """Several coefficients of the same votes, by name."""

    estimates: dict[str, Estimate]
    kind: str = "polars"

    def __getitem__(self, name: str) -> Estimate:
        return self.estimates[name]

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per coefficient: coefficient, value, low, high, items."""
        found = list(self.estimates.values())
        columns = {
            "coefficient": np.array(list(self.estimates), dtype=object),
            "value": np.array([e.value for e in found]),
            "low": np.array([e.low for e in found]),
            "high": np.array([e.high for e in found]),
            "items": np.array([e.n for e in found], dtype=np.int64),
        }
        return make_frame(columns, kind or self.kind)


def agreement(
    votes: Votes,
    *,
    scale: str = "nominal",
    values: Any = None,
    **how: Unpack[Options],
) -> Agreement:
    """The coefficients that suit a scale, side by side.

    Nominal: percentage, Fleiss' kappa, AC1, alpha. Ordinal: the same with quadratic weights (AC2) and ordinal alpha.
    Interval and ratio: alpha and the one-way intraclass correlation of one vote.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import agreement
    >>> crowd = cw.simulate.one_coin(300, n_annotators=9, n_classes=3, votes_per_item=4, random_state=0)
    >>> agreement(crowd.votes).to_frame()["coefficient"].to_list()
    ['percent', 'fleiss kappa', 'gwet ac1', 'krippendorff alpha']
    """
    if scale not in SCALES:
        raise ParameterError(f"scale={scale!r}: expected one of {', '.join(map(repr, SCALES))}.")
    found: dict[str, Estimate] = {"percent": percent_agreement(votes, **how)}
    if scale == "nominal":
        found |= {"fleiss kappa": fleiss_kappa(votes, **how), "gwet ac1": gwet_ac1(votes, **how)}
    elif scale == "ordinal":
        found |= {"fleiss kappa": fleiss_kappa(votes, weights="quadratic", **how), "gwet ac2": gwet_ac2(votes, **how)}
    found["krippendorff alpha"] = krippendorff_alpha(votes, scale=scale, values=values, **how)
    if scale in ("interval", "ratio"):
        found["icc"] = icc(votes, values=values, **how)
    return Agreement(found, votes.kind)
