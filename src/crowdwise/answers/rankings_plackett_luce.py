"""Scores from rankings: the Plackett-Luce model.

A ranking is made by choosing the best item, then the best of those left, and so on, each with
probability proportional to e^(s_i):

    P(i_1, i_2, ..., i_k) = prod over t of  e^(s of i_t) / sum over u >= t of e^(s of i_u)

For two items it is Bradley-Terry. The log likelihood is concave; with p the probabilities of a choice, it adds
e_chosen - p to the gradient and diag(p) - p p' to the negative Hessian.

=======  ============  =======  =====================================================
symbol   code          shape    meaning
=======  ============  =======  =====================================================
s_i      ``scores``    N        score, on the scale of log odds; they sum to zero
p        ``p``         R x k    probabilities of the items left, by choice
=======  ============  =======  =====================================================

The prior of scores is that of ``bradley-terry``: ``prior`` pseudo-comparisons of every item with one of score zero.
Fails where annotators rank from the bottom up, where preferences are circular, and where many rankings are by careless
annotators: all annotators count alike.

References: R. Plackett, The analysis of permutations, Applied Statistics 1975. D. Luce, Individual choice behavior,
1959.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from crowdwise.answers import comparisons_connectivity, comparisons_matrices
from crowdwise.answers.comparisons_base import ScoreModel
from crowdwise.answers.comparisons_likelihood import Likelihood, log_prior, score_prior
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import Derivatives, Objective, Point, maximise
from crowdwise.core.loop import Callback
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.rankings import Rankings

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
        left = np.logaddexp.accumulate(v[:, ::-1], axis=1)[:, ::-1]  # log of the sum over the items left
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
    slope, curvature = score_prior(s, prior)
    g += slope
    diagonal += curvature
    if N <= comparisons_matrices.DENSE:
        H = -np.asarray(outer.todense())
        H[np.arange(N), np.arange(N)] += diagonal
        return Derivatives(g, H)
    from scipy.sparse import diags_array

    return Derivatives(g, (diags_array(diagonal) - outer).tocsr())


class RankingObjective(Objective):
    """Log likelihood and log prior of rankings."""

    def __init__(self, some: Blocks, prior: float) -> None:
        self.blocks, self.prior, self.free = some, prior, prior == 0.0
        self.weight = float(sum(w.sum() * (item.shape[1] - 1) for item, w, _ in some))

    def at(self, x: Floats, theta: Floats) -> Point:
        value = log_likelihood(self.blocks, x) + log_prior(Likelihood("plain", False, self.prior), x, theta, len(x))
        return Point(value, lambda exact: derivatives(self.blocks, x, self.prior))


class PlackettLuce(ScoreModel[Rankings]):
    """The maximum of the (penalised) likelihood of the Plackett-Luce model, by Newton's method.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.rankings(6, n_rankings=400)
    >>> PlackettLuce().fit(crowd.rankings).consensus_.leaderboard["item"].to_list()
    [2, 5, 0, 3, 1, 4]
    >>> (-crowd.scores).argsort().tolist()
    [2, 5, 0, 3, 1, 4]
    """

    key: ClassVar[str] = "plackett-luce"
    table: ClassVar[type] = Rankings

    def _fit(self, answers: Rankings, callback: Callback | None) -> dict[str, Any]:
        N, M = answers.n_items, answers.n_annotators
        some = blocks(answers)
        matches = neighbours(some, N, M)
        if self.prior == 0.0:
            comparisons_connectivity.check_identifiable(matches, answers.items)
        objective = RankingObjective(some, float(self.prior))
        found = maximise(objective, np.zeros(N), max_iter=self.max_iter, tol=self.tol, callback=callback)
        out = self._scored(found, N, Likelihood("plain", False, float(self.prior)))
        part = comparisons_connectivity.components(matches.winner, matches.loser, N)
        return out | self._connected(answers.items, matches, part) | {
            "answer_type": "rankings", "counts": item_counts(some, N),
            "annotator_counts": annotator_counts(some, out["scores"], M),
        }  # fmt: skip


def neighbours(some: Blocks, N: int, M: int) -> Matches:
    """Each item of a ranking beats the next: all that the graph of comparisons needs."""
    i = np.concatenate([item[:, :-1].ravel() for item, _, _ in some])
    j = np.concatenate([item[:, 1:].ravel() for item, _, _ in some])
    w = np.concatenate([np.repeat(w, item.shape[1] - 1) for item, w, _ in some])
    m = np.concatenate([np.repeat(who, item.shape[1] - 1) for item, _, who in some])
    return Matches(i, j, m.astype(np.int64), np.ones(len(i)), w, len(i), N, M)


def item_counts(some: Blocks, N: int) -> dict[str, Floats]:
    """In how many rankings every item is, first and last."""
    names = (("rankings", slice(None)), ("first", slice(0, 1)), ("last", slice(-1, None)))
    out = {name: np.zeros(N) for name, _ in names}
    for item, w, _ in some:
        for name, cut in names:
            at = item[:, cut]
            out[name] += np.bincount(at.ravel(), np.repeat(w, at.shape[1]), N)
    return out


def annotator_counts(some: Blocks, s: Floats, M: int) -> dict[str, Floats]:
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
