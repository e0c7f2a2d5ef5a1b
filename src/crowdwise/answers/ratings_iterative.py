"""Iterative Bayesian learning for ratings: messages between items and annotators whose variances come from a prior.

The true number of an item is Normal, a rating is it plus the annotator's noise, and the variance of an annotator is one
of a few values:

    z[n] ~ N(mu, tau^2)       x ~ N(z[n], s[g] / d[n]),  g the grid value of annotator m,  P(g) = pi[g]
    d[n] ~ Gamma(kappa, kappa)

where d is the ease of an item (1 for all by default, as in the paper). Belief propagation on the graph of ratings:
what an annotator tells an item about it must not contain what the item told the annotator, so each rating has its
own message in each direction.

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

How far all this may be followed is asked of ratings that are left out, as in ``gaussian`` (``hedge``).

When it fails: annotators with a bias of their own (it goes into their variance; ``gaussian`` has biases); sparse graphs
with many short loops, where beliefs are too sure.

Reference: J. Ok, S. Oh, Y. Jang, J. Shin and Y. Yi, Iterative Bayesian learning for crowdsourced regression, AISTATS
(2019). The grid and its prior are given there; here the grid is laid around the variance within items and the prior is
learned, unless both are given; the eases are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from crowdwise.answers.ratings_averages import RatingModel, check_loop, counts, ease_prior, hedged, standardise
from crowdwise.core.checks import check_flag
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.loop import Callback, Progress
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.parameters import declared
from crowdwise.data.ratings import Ratings
from crowdwise.errors import ParameterError

CHUNK, KEPT = 50_000, 50_000_000
REACH = (1.0 / 64.0, 16.0)
"""The ends of the grid, in units of the variance within items: annotators from 8 times as exact to 4 times as noisy."""
POINTS = 11
LEAST = 1e-8


def grid_of(y: Floats, item: Ints, weight: Floats, N: int) -> Floats:
    """Variances that double from one to the next, around that within items."""
    total = counts(item, weight, N)
    mean = np.divide(counts(item, weight * y, N), total, out=np.zeros(N), where=total > 0)
    free = float(weight.sum() - (total > 0).sum())
    within = float((weight * (y - mean[item]) ** 2).sum()) / free if free > 0 else 0.5
    return np.asarray(max(within, LEAST) * np.geomspace(*REACH, POINTS))


class Graph:
    """The ratings, in standard units, and the grid."""

    def __init__(self, ratings: Ratings, y: Floats, grid: Floats) -> None:
        self.item, self.annotator, self.w, self.y, self.grid = (
            ratings.item, ratings.annotator, ratings.weights, y, grid,
        )  # fmt: skip
        self.N, self.M, self.S = len(ratings), ratings.n_annotators, ratings.n_ratings
        self.ease: Floats = np.ones(self.N)
        self.kappa = 2.0
        self.half = counts(self.item, self.w, self.N) / 2.0

    def items(self, message: Floats, mu: float, tau2: float) -> tuple[Floats, Floats]:
        """u and h."""
        h = 1.0 / tau2 + counts(self.item, self.w * message, self.N)
        return (mu / tau2 + counts(self.item, self.w * message * self.y, self.N)) / h, h

    def likelihoods(self, message: Floats, u: Floats, h: Floats) -> Iterable[tuple[slice, Floats]]:
        """Some ratings at a time: w log N(y; u', s[g] / d + v') (without the constant), for every grid value.

        Kept for the second pass where that takes no more than ``KEPT`` numbers.
        """
        made = self._likelihoods(message, u, h)
        return list(made) if self.S * len(self.grid) <= KEPT else made

    def _likelihoods(self, message: Floats, u: Floats, h: Floats) -> Iterator[tuple[slice, Floats]]:
        for lo in range(0, self.S, CHUNK):
            at = slice(lo, min(lo + CHUNK, self.S))
            n, e = self.item[at], self.w[at] * message[at]
            far = np.maximum(h[n] - e, LEAST)
            gap = self.y[at] - (u[n] * h[n] - e * self.y[at]) / far
            variance = self.grid[None, :] / self.ease[n, None] + (1.0 / far)[:, None]
            yield at, -0.5 * self.w[at, None] * (np.log(variance) + (gap * gap)[:, None] / variance)

    def beliefs(self, told: Iterable[tuple[slice, Floats]], log_pi: Floats) -> Floats:
        """M x G log beliefs, not normalised, from the likelihoods of ratings."""
        belief = np.tile(log_pi, (self.M, 1))
        for at, each in told:
            for g in range(len(self.grid)):
                belief[:, g] += np.bincount(self.annotator[at], weights=each[:, g], minlength=self.M)
        return belief

    def messages(self, told: Iterable[tuple[slice, Floats]], belief: Floats) -> Floats:
        """The next message of every rating: the mean precision under the belief without it."""
        out = np.empty(self.S)
        for at, each in told:
            out[at] = self.ease[self.item[at]] * (weights(belief[self.annotator[at]] - each) @ (1.0 / self.grid))
        return out

    def find_ease(self, belief: Floats, u: Floats, h: Floats) -> None:
        """d and kappa, given what items and annotators are believed to be."""
        p = weights(belief) @ (1.0 / self.grid)
        square = (self.y - u[self.item]) ** 2 + (1.0 / h)[self.item]
        Q = counts(self.item, self.w * p[self.annotator] * square, self.N) / 2.0
        self.kappa = ease_prior(self.half, Q, self.kappa)
        self.ease = (self.kappa + self.half) / (self.kappa + Q)


def weights(log: Floats) -> Floats:
    """Rows of probabilities from their logarithms."""
    p = np.exp(log - log.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


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
        Whether ratings scatter more on some items than on others; not where many answers are equal (see ``gaussian``).
    hedge
        Mix in the plain mean as far as ratings that were left out ask for it (``share`` of the result).
    max_iter, tol
        Stop after so many rounds of messages, or when no item moves by more than ``tol`` of the ratings' deviation.
    random_state
        Not used: nothing is random.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(300, n_annotators=20, bias=0.0, votes_per_item=5, random_state=0)
    >>> found = cw.aggregate(crowd.ratings, "bayes-iterative")
    >>> found.score(crowd.truth) > cw.aggregate(crowd.ratings, "mean").score(crowd.truth)
    True
    """

    key = "bayes-iterative"

    variances: Any = None
    prior: Any = "learned"
    difficulty: bool = False
    hedge: bool = True
    max_iter: Count = 100
    tol: NonNegative = 1e-4

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        self._check_several(answers)
        y, centre, unit = standardise(answers)
        given = self._grid()
        grid = grid_of(y, answers.item, answers.weights, len(answers)) if given is None else given / unit**2
        graph = Graph(answers, y, grid)
        G = len(grid)
        pi = np.full(G, 1.0 / G) if isinstance(self.prior, str) else self._prior(G)
        mu, tau2 = 0.0, 1.0
        message = np.full(graph.S, float(pi @ (1.0 / grid)))
        u, h = graph.items(message, mu, tau2)
        converged, done = False, 0
        for done in range(1, self.max_iter + 1):
            belief, told = self._look(graph, message, u, h, pi)
            if self.difficulty:
                graph.find_ease(belief, u, h)
                belief, told = self._look(graph, message, u, h, pi)
            message = graph.messages(told, belief)
            if isinstance(self.prior, str) and self.prior == "learned":
                pi = (weights(belief).sum(axis=0) + 1.0 / G) / (graph.M + 1.0)
            new, h = graph.items(message, mu, tau2)
            mu = float(new.mean())
            tau2 = max(float(((new - mu) ** 2 + 1.0 / h).mean()), LEAST)
            change = float(np.abs(new - u).max())
            u = new
            if callback is not None:
                callback(Progress(done, self.max_iter, float("nan"), change))
            if change < self.tol:
                converged = True
                break
        b = weights(self._look(graph, message, u, h, pi)[0])
        mean = b @ (1.0 / grid)
        # A value of the grid stands for those up to half-way to its neighbours, too.
        width = np.diff(np.log(grid)).mean() if G > 1 else 0.0
        relative = np.maximum(b @ (1.0 / grid**2) / mean**2 - 1.0, 0.0) + width**2 / 12.0
        m, n, w = graph.annotator, graph.item, graph.w
        unsure = counts(n, (w * message * (y - u[n]) / h[n]) ** 2 * relative[m], graph.N)
        var, share = 1.0 / h + unsure, 1.0
        if self.hedge:
            e = w * message
            without = (u[n] * h[n] - e * y) / np.maximum(h[n] - e, LEAST)
            u, var, share = hedged(answers, y, u, var, without)
        return dict(
            values=centre + unit * u, share=share, deviations=unit * np.sqrt(var), precision=mean / unit**2,
            precision_shape=1.0 / np.maximum(relative, 1e-6), mean=centre + unit * mu,
            spread=unit * float(np.sqrt(tau2)), centre=centre, iterations=done, converged=converged,
            item_columns={"ease": graph.ease} if self.difficulty else {},
        )  # fmt: skip

    @staticmethod
    def _look(graph: Graph, message: Floats, u: Floats, h: Floats, pi: Floats) -> tuple[Floats, Any]:
        """Beliefs about annotators, and the likelihoods they rest on (made anew where too many to keep)."""
        told = graph.likelihoods(message, u, h)
        belief = graph.beliefs(told, np.log(pi))
        return belief, told if isinstance(told, list) else graph.likelihoods(message, u, h)

    def _grid(self) -> Floats | None:
        if self.variances is None:
            return None
        grid = np.asarray(self.variances, dtype=np.float64)
        if grid.ndim != 1 or len(grid) == 0 or not (np.isfinite(grid) & (grid > 0)).all():
            raise ParameterError(f"variances={self.variances!r}: expected a list of positive numbers.")
        return np.sort(grid)

    def _prior(self, G: int) -> Floats:
        p = np.asarray(self.prior, dtype=np.float64)
        if p.shape != (G,) or not (np.isfinite(p) & (p >= 0)).all() or p.sum() <= 0:
            raise ParameterError(f"prior={self.prior!r}: expected {G} probabilities, one for each variance.")
        return np.asarray(np.maximum(p / p.sum(), 1e-300))

    def _check_together(self) -> None:
        super()._check_together()
        check_loop(self)
        check_flag(self, "difficulty")
        check_flag(self, "hedge")
        grid = self._grid()
        if isinstance(self.prior, str):
            if self.prior not in ("learned", "uniform"):
                raise ParameterError(f"prior={self.prior!r}: expected 'learned', 'uniform' or probabilities.")
        else:
            self._prior(POINTS if grid is None else len(grid))
