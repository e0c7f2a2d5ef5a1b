"""Truth discovery for numbers: values and the weights of annotators from one balance of losses, PM and CATD.

Both alternate between values, weighted means (or medians) of the ratings, and weights, from each annotator's loss:

=================  ==================================  ======================================================
method             weight v[m]                         loss d[m]
=================  ==================================  ======================================================
``pm-numeric``     -log( d[m] / sum of all d )         sum of (x - z)^2 / deviation of the item's ratings
``catd-numeric``   chi2(alpha / 2; n[m]) / d[m]        sum of (x - z)^2
=================  ==================================  ======================================================

``pm-numeric`` with totals lowers sum_m v[m] d[m] under sum_m exp(-v[m]) = 1 in both steps, so that sum never rises (the
trace is its negative). With ``per_rating`` the loss is the mean over an annotator's ratings, which the authors advise
where annotators rate different items; no sum is lowered then, and there is no trace. ``chi2(p; n)`` is the
p-quantile of the chi-squared distribution with n degrees of freedom: those who rated little get little weight.

An item's deviation is that of a weighted mean whose ratings scatter as their annotators do around the values found; the
values being fitted to the same ratings, it is a little small.

When they fail: biases are not taken out; in ``pm-numeric`` nobody's weight differs much from anybody else's (logs); in
``catd-numeric`` somebody who is always close to the values decides them.

Q. Li et al., Resolving conflicts in heterogeneous data by truth discovery and source reliability estimation, SIGMOD
(2014), for PM (CRH). Q. Li et al., A confidence-aware approach for truth discovery on long-tail data, PVLDB 8 (2014),
for CATD.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np

from crowdwise.answers.ratings_shared import RatingModel, counts, scatter, standardise, weighted_mean, weighted_median
from crowdwise.core.constraints import Bounds, Count, NonNegative, declared
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats
from crowdwise.data.ratings import Ratings
from crowdwise.methods.weights_truth_discovery import chi_squared_quantile, loss_weights

MIN_LOSS = 1e-6
"""A pseudo-loss for everybody, in standard units: it bounds the weight of an annotator who always agrees."""


@declared
class Discovery(RatingModel):
    """Values and weights in turn.

    Parameters
    ----------
    max_iter, tol
        Stop after so many rounds, or when no value moves by more than ``tol`` of the ratings' deviation.
    """

    max_iter: Count = 200
    tol: NonNegative = 1e-4

    def _alternate(
        self, ratings: Ratings, callback: Callback | None, losses: Callable[[Floats], Floats],
        weigh: Callable[[Floats], Floats], locate: Callable[..., Floats] = weighted_mean, has_objective: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """``losses`` of annotators from residuals, ``weigh``ts from losses, and values by ``locate``; the result."""
        y, centre, unit = standardise(ratings)
        item, w, N = ratings.item, ratings.weights, len(ratings)
        z, rounds = locate(item, w, y, N), Rounds(self.max_iter, ratings.n_answers, callback)
        for _ in rounds:
            d = losses(y - z[item])
            v = weigh(d)
            new = locate(item, w * v[ratings.annotator], y, N)
            change = float(np.abs(new - z).max())
            z = new
            rounds.reached(-float(v @ d) if has_objective else None, moved=change, converged=change < self.tol)
        z = centre + unit * z
        found = scatter(ratings, z)
        w = w * v[ratings.annotator]
        total, noise = counts(item, w, N), counts(item, w * w / found["precision"][ratings.annotator], N)
        unrated = np.full(N, float(np.var(ratings.value)))
        found["deviations"] = np.sqrt(np.divide(noise, total**2, out=unrated, where=total > 0))
        return {"values": z, "annotator_columns": {"weight": v}, **rounds.outcome, **found}


@declared
class PMNumeric(Discovery):
    """Values and weights that together minimise the weighted loss (PM, also called CRH).

    Parameters
    ----------
    loss
        ``"squared"``: values are weighted means; ``"absolute"``: weighted medians.
    per_rating
        Judge annotators by their mean loss, not by its sum.

    >>> import crowdwise as cw
    >>> ratings = cw.simulate.ratings(300, bias=0.0, votes_per_item=5).ratings
    >>> found = cw.PMNumeric().fit(ratings).consensus_
    >>> bool(found.score(ratings.truth) > cw.aggregate(ratings, "mean").score(ratings.truth))
    True
    """

    key = "pm-numeric"

    loss: Literal["squared", "absolute"] = "squared"
    per_rating: bool = True

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        y, _, _ = standardise(answers)
        item, m, w, N, M = answers.item, answers.annotator, answers.weights, len(answers), answers.n_annotators
        mean = weighted_mean(item, w, y, N)
        total = counts(item, w, N)
        square = counts(item, w * (y - mean[item]) ** 2, N)
        deviation = np.sqrt(np.divide(square, total, out=np.zeros(N), where=total > 0)) + MIN_LOSS
        n = counts(m, w, M)

        def losses(gap: Floats) -> Floats:
            each = np.abs(gap) if self.loss == "absolute" else gap * gap
            d = counts(m, w * each / deviation[item], M)
            return np.asarray(np.divide(d, n, out=np.full(M, 1.0), where=n > 0) if self.per_rating else d) + MIN_LOSS

        def weigh(d: Floats) -> Floats:
            # A single annotator has all of the loss, and all of the weight.
            return loss_weights(d, "sum") if M > 1 else np.ones(M)

        locate = weighted_median if self.loss == "absolute" else weighted_mean
        return self._alternate(answers, callback, losses, weigh, locate, has_objective=not self.per_rating)


@declared
class CATDNumeric(Discovery):
    """Weights from an upper bound of each annotator's variance, so that those who rated little count little.

    Parameters
    ----------
    alpha
        The bound holds with probability 1 - alpha / 2.

    >>> import crowdwise as cw
    >>> ratings = cw.simulate.ratings(300, bias=0.0, votes_per_item=5).ratings
    >>> [round(cw.aggregate(ratings, key).score(ratings.truth), 2) for key in ("mean", "catd-numeric")]
    [0.74, 0.77]
    """

    key = "catd-numeric"

    alpha: Annotated[float, Bounds(above=0, maximum=1)] = 0.05

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        m, w, M = answers.annotator, answers.weights, answers.n_annotators
        n = counts(m, w, M)
        quantile = chi_squared_quantile(self.alpha / 2.0, n)

        def losses(gap: Floats) -> Floats:
            return counts(m, w * gap * gap, M) + MIN_LOSS

        def weigh(d: Floats) -> Floats:
            v = np.asarray(quantile / d)
            return v / v.max() if v.max() > 0 else np.ones(M)  # weights so small that nothing is known of anybody

        return self._alternate(answers, callback, losses, weigh)
