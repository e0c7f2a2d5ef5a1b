"""Scores from rankings: the Plackett-Luce model.

A ranking is made by choosing the best of the items at hand, then the best of those left, and so on, each with
probability proportional to e^(s_i):

    P(i_1, i_2, ..., i_k) = prod over t of  e^(s of i_t) / sum over u >= t of e^(s of i_u)

For two items it is Bradley-Terry. The log likelihood is concave; with p the probabilities of a choice, it adds
e_chosen - p to the gradient and diag(p) - p p' to the negative Hessian.

=======  ============  =======  =====================================================
symbol   code          shape    meaning
=======  ============  =======  =====================================================
s_i      ``scores``    N        score, on the scale of log odds; they sum to zero
p        ``p``         R x k    probabilities of the items still at hand, by choice
=======  ============  =======  =====================================================

Every item is taken to have been compared ``prior`` times with one of score zero, half of them won, as in
``bradley-terry``. Fails where annotators rank from the bottom up, where likings go in circles, and where rankings by
careless annotators abound: everybody counts alike.

References: R. Plackett, The analysis of permutations, Applied Statistics 1975. D. Luce, Individual choice behavior,
1959.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from crowdwise.answers import comparisons_connectivity, comparisons_newton
from crowdwise.answers import comparisons_likelihood as games_
from crowdwise.answers.answer_model import AnswerModel
from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.answers.comparisons_likelihood import Derivatives, Games, Model, log_prior
from crowdwise.core.checks import check_count, check_number
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.loop import Callback, Progress
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.parameters import declared
from crowdwise.data.rankings import Rankings
from crowdwise.errors import ConnectionWarning

__all__ = ["PlackettLuce"]

Blocks = list[tuple[Ints, Floats, Ints]]
"""Rankings of one length together: R x k items, R weights, R annotators."""


def blocks(table: Rankings) -> Blocks:
    """The rankings by length."""
    size = np.diff(table.indptr)
    out: Blocks = []
    for k in np.unique(size).tolist():
        which = np.flatnonzero(size == k)
        out.append((
            table.item[table.indptr[which][:, None] + np.arange(k)].astype(np.int64), table.weights[which],
            table.annotator[which],
        ))  # fmt: skip
    return out


def log_likelihood(some: Blocks, s: Floats) -> float:
    """log P of all rankings."""
    total = 0.0
    for item, w, _ in some:
        v = s[item]
        left = np.logaddexp.accumulate(v[:, ::-1], axis=1)[:, ::-1]  # log of the sum over what is at hand
        total += float(w @ (v - left)[:, :-1].sum(axis=1))
    return total


def derivatives(some: Blocks, s: Floats, prior: float) -> Derivatives:
    """Gradient and negative Hessian of log likelihood and prior."""
    from scipy.sparse import coo_array

    N = len(s)
    g, diagonal = np.zeros(N), np.zeros(N)
    outer: Any = None
    for item, w, _ in some:
        R, k = item.shape
        v = s[item]
        left = np.logaddexp.accumulate(v[:, ::-1], axis=1)[:, ::-1]
        g += np.bincount(item[:, :-1].ravel(), np.repeat(w, k - 1), N)
        for t in range(k - 1):
            at, p = item[:, t:], np.exp(v[:, t:] - left[:, t : t + 1])
            wp = (w[:, None] * p).ravel()
            g -= np.bincount(at.ravel(), wp, N)
            diagonal += np.bincount(at.ravel(), wp, N)
            row = np.repeat(np.arange(R), k - t)
            P = coo_array(((np.sqrt(w)[:, None] * p).ravel(), (row, at.ravel())), shape=(R, N)).tocsr()
            product = P.T @ P
            outer = product if outer is None else outer + product
    q = 1.0 / (1.0 + np.exp(-np.clip(s, -500, 500)))
    g += prior * (0.5 - q)
    diagonal += prior * q * (1.0 - q)
    if N <= games_.DENSE:
        H = -np.asarray(outer.todense())
        H[np.arange(N), np.arange(N)] += diagonal
        return Derivatives(g, np.empty(0), H, None, np.empty(0))
    from scipy.sparse import diags_array

    return Derivatives(g, np.empty(0), (diags_array(diagonal) - outer).tocsr(), None, np.empty(0))


@declared
class PlackettLuce(AnswerModel[Rankings, Ranking]):
    """The maximum of the (penalised) likelihood of the Plackett-Luce model, by Newton's method.

    Parameters
    ----------
    prior
        So many comparisons with an average item, half of them won, are added to every item's; 0: none, and an error
        where scores would not be finite.
    max_iter, tol
        Stop after so many steps, or when a step gains less than ``tol`` per choice.
    random_state
        Seed of the draws behind the intervals of ranks; ``None`` for fresh ones.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.rankings(6, n_rankings=400, random_state=0)
    >>> ranking = PlackettLuce().fit(crowd.rankings).consensus_
    >>> bool((ranking.scores.argsort() == crowd.scores.argsort()).all())
    True
    """

    key: ClassVar[str] = "plackett-luce"
    table: ClassVar[type] = Rankings
    result: ClassVar[type] = Ranking

    prior: float = 1.0
    max_iter: Count = 100
    tol: NonNegative = 1e-10

    def _check_together(self) -> None:
        super()._check_together()
        check_number(self, "prior", least=0.0)
        check_count(self, "max_iter")
        check_number(self, "tol", above=0.0)

    def _fit(self, answers: Rankings, callback: Callback | None) -> dict[str, Any]:
        N, prior = answers.n_items, float(self.prior)
        some = blocks(answers)
        neighbours = _neighbours(some, N, answers.n_annotators)
        if prior == 0.0:
            comparisons_connectivity.check_identifiable(neighbours, answers.items)
        s, trace, converged, t = np.zeros(N), [], False, 0
        n = float(sum(w.sum() * (item.shape[1] - 1) for item, w, _ in some))
        model = Model("plain", False, prior)

        def objective(s: Floats) -> float:
            return log_likelihood(some, s) + log_prior(model, s, np.empty(0), N)

        value = objective(s)
        trace.append(value)
        for t in range(1, self.max_iter + 1):
            d = derivatives(some, s, prior)
            dx, _ = comparisons_newton._sure_step(d, prior == 0.0)
            promise, length = float(d.g @ dx), 1.0
            while (new := objective(s + length * dx)) < value + 1e-4 * length * promise and length > 1e-9:
                length *= 0.5
            if new < value:  # rounding: there is nothing left to gain
                converged = promise <= 1e-9 * max(1.0, abs(value))
                break
            s, gain, value = s + length * dx, new - value, new
            trace.append(value)
            if callback is not None:
                callback(Progress(t, self.max_iter, value, gain / n))
            if 0.5 * promise <= self.tol * n:
                converged = True
                break
        end = derivatives(some, s, prior)
        s = s - s.mean()
        spread = comparisons_newton.covariance(end, s, free=prior == 0.0, rng=np.random.default_rng(self.random_state))
        part = comparisons_connectivity.components(neighbours.winner, neighbours.loser, N)
        told = comparisons_connectivity.notes(part, neighbours, answers.items)
        if int(part.max()) > 0:
            warnings.warn(told[0], ConnectionWarning, stacklevel=4)
        return {
            "answer_type": "rankings", "scores": s, "errors": spread.scores,
            "draws": spread.draws, "components": part, "counts": _item_counts(some, N),
            "annotator_counts": _annotator_counts(some, s, answers.n_annotators), "trace": np.array(trace),
            "iterations": t, "converged": converged, "notes": told,
        }  # fmt: skip


# -------------------------------------------------------------------- counting


def _neighbours(some: Blocks, N: int, M: int) -> Games:
    """Each item of a ranking before the next: all that the graph of who was above whom needs."""
    i = np.concatenate([item[:, :-1].ravel() for item, _, _ in some])
    j = np.concatenate([item[:, 1:].ravel() for item, _, _ in some])
    w = np.concatenate([np.repeat(w, item.shape[1] - 1) for item, w, _ in some])
    m = np.concatenate([np.repeat(who, item.shape[1] - 1) for item, _, who in some])
    return Games(i, j, m.astype(np.int64), np.ones(len(i)), w, len(i), N, M)


def _item_counts(some: Blocks, N: int) -> dict[str, Floats]:
    """In how many rankings every item is, first and last."""
    names = (("rankings", slice(None)), ("first", slice(0, 1)), ("last", slice(-1, None)))
    out = {name: np.zeros(N) for name, _ in names}
    for item, w, _ in some:
        for name, cut in names:
            at = item[:, cut]
            out[name] += np.bincount(at.ravel(), np.repeat(w, at.shape[1]), N)
    return out


def _annotator_counts(some: Blocks, s: Floats, M: int) -> dict[str, Floats]:
    """How many rankings everybody made, and how many pairs of items in them stand as the scores have them."""
    out = {name: np.zeros(M) for name in ("comparisons", "decided", "agreed")}
    for item, w, who in some:
        k = item.shape[1]
        i, j = np.triu_indices(k, 1)
        right = np.sign(s[item[:, i]] - s[item[:, j]])
        out["comparisons"] += np.bincount(who, w, M)
        out["decided"] += np.bincount(who, w * len(i), M)
        out["agreed"] += np.bincount(who, w * ((1.0 + right) / 2.0).sum(axis=1), M)
    return out
