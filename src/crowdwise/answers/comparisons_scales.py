"""The scales on which scores can be read.

===============  ======================================================================================
``score``        s, on the scale of log odds: P(i beats j) = sigmoid(s_i - s_j); the mean item has 0
``elo``          1000 + 400 / ln(10) s: 400 points are odds of ten to one; the mean item has 1000
``probability``  sigmoid(s): the probability of being found better than the mean item, ties left aside
===============  ======================================================================================

All are monotone in s, so that intervals are those of s, carried over end by end.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from crowdwise.core.numerics import Floats

Scale = Literal["score", "elo", "probability"]
ELO_MEAN, ELO_UNIT = 1000.0, 400.0 / float(np.log(10.0))
MEANINGS: dict[str, str] = {
    "score": "score, in log odds",
    "elo": "Elo points",
    "probability": "probability of beating the mean item",
}
"""What an axis says."""


def to_scale(scores: Floats, scale: Scale) -> Floats:
    """Scores on another scale."""
    if scale == "elo":
        return ELO_MEAN + ELO_UNIT * scores
    if scale == "probability":
        return 1.0 / (1.0 + np.exp(-np.clip(scores, -500, 500)))
    return scores
