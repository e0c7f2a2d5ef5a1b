"""Iterative Bayesian learning for ratings: messages between items and annotators whose variances come from a prior.

The true number of an item is Normal, a rating is it plus the annotator's noise, and the variance of an annotator is one
of a few values:

    z[n] ~ N(mu, tau^2)       x ~ N(z[n], s[g] / d[n]),  g the grid value of annotator m,  P(g) = pi[g]
    d[n] ~ Gamma(kappa, kappa)

where d is the ease of an item (1 for all by default, as in the paper). Inference is belief propagation on the graph of
ratings: each rating has a message in each direction, and a message leaves out the one that came the other way.

=================  ==================  ======  ======================================================================
symbol             code                shape   equation (y in standard units, w the weight of a rating)
=================  ==================  ======  ======================================================================
e[s]               ``message``         S       d E[1/s] under B of m without this rating: from annotator to item
h[n], u[n]         ``h``, ``u``        N       h = 1/tau^2 + sum w e;  u = (mu/tau^2 + sum w e y) / h
u', v'             ``far``, ``gap``    S       the same without this rating: from item to annotator
log B[m, g]        ``belief``          M x G   log pi[g] + sum w log N(y; u', s[g] / d + v')
d[n]               ``ease``            N       (kappa + n/2) / (kappa + sum w E[1/s] E[(y - z)^2] / 2), kappa learned
mu, tau^2, pi                                  mean u;  mean (u - mu)^2 + 1/h;  mean B (one annotator's worth spread)
=================  ==================  ======  ======================================================================

On a tree of ratings the messages are exact but for one step: the item takes the annotator's mean precision, where its
message is really a mixture of Normals. Items and annotators then get their beliefs from all their messages. The
variance of an item has the part that comes of not knowing the precisions added: sum (w e r / h)^2 var(e) / e^2.

Reference: J. Ok, S. Oh, Y. Jang, J. Shin and Y. Yi, Iterative Bayesian learning for crowdsourced regression, AISTATS
(2019). The grid and its prior are given there; here the grid is laid around the variance within items and the prior is
learned, unless both are given; the eases are ours.

Truth discovery for numbers: values and the weights of annotators from one balance of losses, PM and CATD.

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

Q. Li et al., Resolving conflicts in heterogeneous data by truth discovery and source reliability estimation, SIGMOD
(2014), for PM (CRH). Q. Li et al., A confidence-aware approach for truth discovery on long-tail data, PVLDB 8 (2014),
for CATD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

import numpy as np

from crowdwise.answers.ratings_shared import (
    RatingModel,
    counts,
    ease_prior,
    hedged,
    scatter,
    standardise,
    variance_within,
    weighted_mean,
    weighted_median,
)
from crowdwise.core.constraints import Bounds, Check, Count, NonNegative, declared
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats, softmax
from crowdwise.data.ratings import Ratings
from crowdwise.errors import ParameterError
from crowdwise.methods.weights_truth_discovery import chi_squared_quantile, loss_weights

CHUNK, KEPT = 50_000, 50_000_000
POINTS = 11
MIN_VARIANCE = 1e-8


class RatingGraph:
    """The ratings, in standard units, and the grid."""

    def __init__(self, ratings: Ratings, y: Floats, grid: Floats) -> None:
        self.item, self.annotator, self.w = ratings.item, ratings.annotator, ratings.weights
        self.y, self.grid = y, grid
        self.N, self.M, self.S = len(ratings), ratings.n_annotators, ratings.n_answers
        self.ease: Floats = np.ones(self.N)
        self.kappa = 2.0
        self.half = counts(self.item, self.w, self.N) / 2.0

    def items(self, message: Floats, mu: float, tau2: float) -> tuple[Floats, Floats]:
        """u and h."""
        h = 1.0 / tau2 + counts(self.item, self.w * message, self.N)
        return (mu / tau2 + counts(self.item, self.w * message * self.y, self.N)) / h, h

    def likelihoods(self, message: Floats, u: Floats, h: Floats) -> Iterator[tuple[slice, Floats]]:
        """Some ratings at a time: w log N(y; u', s[g] / d + v') (without the constant), for every grid value."""
        for lo in range(0, self.S, CHUNK):
            at = slice(lo, min(lo + CHUNK, self.S))
            n, e = self.item[at], self.w[at] * message[at]
            far = np.maximum(h[n] - e, MIN_VARIANCE)
            gap = self.y[at] - (u[n] * h[n] - e * self.y[at]) / far
            variance = self.grid[None, :] / self.ease[n, None] + (1.0 / far)[:, None]
            yield at, -0.5 * self.w[at, None] * (np.log(variance) + (gap * gap)[:, None] / variance)

    def look(
        self, message: Floats, u: Floats, h: Floats, pi: Floats
    ) -> tuple[Floats, Iterable[tuple[slice, Floats]]]:  # fmt: skip
        """M x G log beliefs about annotators, not normalised, and the likelihoods that they rest on: kept where these
        are no more than ``KEPT`` numbers, else to be computed again."""
        few = self.S * len(self.grid) <= KEPT
        each = list(self.likelihoods(message, u, h)) if few else self.likelihoods(message, u, h)
        belief = np.tile(np.log(pi), (self.M, 1))
        for at, likelihood in each:
            for g in range(len(self.grid)):
                belief[:, g] += np.bincount(self.annotator[at], weights=likelihood[:, g], minlength=self.M)
        return belief, each if few else self.likelihoods(message, u, h)

    def messages(self, likelihoods: Iterable[tuple[slice, Floats]], belief: Floats) -> Floats:
        """The next message of every rating: the mean precision under the belief without it."""
        out = np.empty(self.S)
        for at, each in likelihoods:
            out[at] = self.ease[self.item[at]] * (softmax(belief[self.annotator[at]] - each) @ (1.0 / self.grid))
        return out

    def find_ease(self, belief: Floats, u: Floats, h: Floats) -> None:
        """d and kappa, given the beliefs about items and annotators."""
        p = softmax(belief) @ (1.0 / self.grid)
        square = (self.y - u[self.item]) ** 2 + (1.0 / h)[self.item]
        Q = counts(self.item, self.w * p[self.annotator] * square, self.N) / 2.0
        self.kappa = ease_prior(self.half, Q, self.kappa)
        self.ease = (self.kappa + self.half) / (self.kappa + Q)


def _are_weights(value: Any) -> bool:
    try:
        x = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return x.ndim == 1 and len(x) > 0 and bool((np.isfinite(x) & (x >= 0)).all()) and x.sum() > 0


@declared
class BayesIterative(RatingModel):
    """Items and the precisions of annotators by messages (belief propagation).

    Parameters
    ----------
    variances
        The variances that an annotator may have, in the square of the ratings' unit; by default eleven that double
        from one to the next around the variance within items.
    prior
        Their probabilities, ``"learned"`` or ``"uniform"``.
    difficulty
        Whether ratings scatter more on some items than on others; not where many answers are equal (zero, say).
    hedge
        Mix in the plain mean as far as held-out ratings ask for it (``share`` of the result).
    max_iter, tol
        Stop after so many rounds of messages, or when no item moves by more than ``tol`` of the ratings' deviation.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(300, bias=0.0, votes_per_item=5)
    >>> round(cw.BayesIterative().fit(crowd.ratings).consensus_.score(crowd.truth), 2)
    0.85
    """

    key = "bayes-iterative"

    variances: Annotated[Any, Check(lambda v: _are_weights(v) and min(v) > 0, "a list of positive numbers")] | None = (
        None
    )
    prior: Literal["learned", "uniform"] | Annotated[Any, Check(_are_weights, "probabilities")] = "learned"
    difficulty: bool = False
    hedge: bool = True
    max_iter: Count = 100
    tol: NonNegative = 1e-4

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        self._check_several(answers)
        y, centre, unit = standardise(answers)
        if self.variances is None:  # from annotators 8 times as exact as usual to 4 times as noisy
            within = variance_within(answers.item, answers.weights, y, len(answers), default=0.5)
            grid = max(within, MIN_VARIANCE) * np.geomspace(1.0 / 64.0, 16.0, POINTS)
        else:
            grid = np.sort(np.asarray(self.variances, dtype=np.float64)) / unit**2
        graph = RatingGraph(answers, y, grid)
        G = len(grid)
        pi = np.full(G, 1.0 / G)
        if not isinstance(self.prior, str):
            pi = np.maximum(np.asarray(self.prior, dtype=np.float64) / np.sum(self.prior), 1e-300)
        mu, tau2 = 0.0, 1.0
        message = np.full(graph.S, float(pi @ (1.0 / grid)))
        u, h = graph.items(message, mu, tau2)
        rounds = Rounds(self.max_iter, answers.n_answers, callback)
        for _ in rounds:
            belief, likelihoods = graph.look(message, u, h, pi)
            if self.difficulty:
                graph.find_ease(belief, u, h)
                belief, likelihoods = graph.look(message, u, h, pi)
            message = graph.messages(likelihoods, belief)
            if isinstance(self.prior, str) and self.prior == "learned":
                pi = (softmax(belief).sum(axis=0) + 1.0 / G) / (graph.M + 1.0)
            new, h = graph.items(message, mu, tau2)
            mu = float(new.mean())
            tau2 = max(float(((new - mu) ** 2 + 1.0 / h).mean()), MIN_VARIANCE)
            change = float(np.abs(new - u).max())
            u = new
            rounds.reached(moved=change, converged=change < self.tol)
        b = softmax(graph.look(message, u, h, pi)[0])
        mean = b @ (1.0 / grid)
        # A value of the grid stands for those up to half-way to its neighbours, too.
        width = np.diff(np.log(grid)).mean() if G > 1 else 0.0
        relative = np.maximum(b @ (1.0 / grid**2) / mean**2 - 1.0, 0.0) + width**2 / 12.0
        m, n, w = graph.annotator, graph.item, graph.w
        unsure = counts(n, (w * message * (y - u[n]) / h[n]) ** 2 * relative[m], graph.N)
        var, share = 1.0 / h + unsure, 1.0
        if self.hedge:
            e = w * message
            without = (u[n] * h[n] - e * y) / np.maximum(h[n] - e, MIN_VARIANCE)
            hedge, share = hedged(answers, y, u, without)
            u, var = hedge, var + (hedge - u) ** 2
        return rounds.outcome | {
            "values": centre + unit * u, "share": share, "deviations": unit * np.sqrt(var), "precision": mean / unit**2,
            "precision_shape": 1.0 / np.maximum(relative, 1e-6), "mean": centre + unit * mu,
            "spread": unit * float(np.sqrt(tau2)), "centre": centre,
            "item_columns": {"ease": graph.ease} if self.difficulty else {},
        }  # fmt: skip

    def _check_together(self) -> None:
        super()._check_together()
        G = POINTS if self.variances is None else len(self.variances)
        if not isinstance(self.prior, str) and len(self.prior) != G:
            raise ParameterError(f"prior={self.prior!r}: expected {G} probabilities, one for each variance.")


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
        fields = scatter(ratings, z)
        w = w * v[ratings.annotator]
        total, noise = counts(item, w, N), counts(item, w * w / fields["precision"][ratings.annotator], N)
        unrated = np.full(N, float(np.var(ratings.value)))
        fields["deviations"] = np.sqrt(np.divide(noise, total**2, out=unrated, where=total > 0))
        return {"values": z, "annotator_columns": {"weight": v}, **rounds.outcome, **fields}


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
