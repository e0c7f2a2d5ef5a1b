"""The plain averages of ratings.

=============  ==============================================================================================
``mean``       the weighted mean of an item's ratings
``median``     their weighted median: half of the weight on either side; the middle of two where it is met exactly
=============  ==============================================================================================

Both report how far an annotator's ratings lie from the items' values on average (bias), and how much they scatter
around that (precision), with the degrees of freedom that the items use up taken off. An item's deviation is that of a
mean (times sqrt(pi / 2) for a median of more than two) of ratings that all scatter like the crowd's, with a t
distribution.

When they fail: a careless annotator counts as much as a careful one, and the bias of the annotators who happened to
rate an item goes into its value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.answers.ratings_shared import RatingModel, scatter, weighted_mean, weighted_median
from crowdwise.core.loop import Callback
from crowdwise.data.ratings import Ratings


class MeanRating(RatingModel):
    """The mean of each item's ratings, weighted where ratings have weights.

    >>> import crowdwise as cw
    >>> ratings = cw.Ratings.from_dense([[1.0, 2.0, 6.0], [2.0, 2.0, 2.0]])
    >>> [cw.aggregate(ratings, key).values.tolist() for key in ("mean", "median")]
    [[3.0, 2.0], [2.0, 2.0]]
    """

    key = "mean"

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        z = weighted_mean(answers.item, answers.weights, answers.value, len(answers))
        return {"values": z, "iterations": 1, **scatter(answers, z)}


class MedianRating(RatingModel):
    """The median of each item's ratings, weighted where ratings have weights.

    >>> import crowdwise as cw
    >>> cw.aggregate(cw.Ratings.from_dense([[1.0, 2.0, 6.0]]), "median").values.tolist()
    [2.0]
    """

    key = "median"

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        z = weighted_median(answers.item, answers.weights, answers.value, len(answers))
        found = scatter(answers, z)
        found["deviations"] = found["deviations"] * np.where(np.diff(answers.indptr) > 2, np.sqrt(np.pi / 2.0), 1.0)
        return {"values": z, "iterations": 1, **found}
