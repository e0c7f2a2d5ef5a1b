"""Scores from rankings: the Plackett-Luce model.

A ranking is made by choosing the best item, then the best of those left, and so on, each with
probability proportional to e^(s_i):

    P(i_1, i_2, ..., i_k) = prod over t of  e^(s of i_t) / sum over u >= t of e^(s of i_u)

For two items it is Bradley-Terry. The log likelihood is concave; with p the probabilities of a choice, it adds
e_chosen - p to the gradient and diag(p) - p p' to the negative Hessian.

**Both ends.** In this model the first places are the noisiest, as all items compete for them, and the last ones say the
most. Real rankings are not so: their ends are clearer than their middle. By default (``ends="both"``) a ranking is read
from the bottom, too, as choices of the worst with scores -s, and the log likelihood is the mean of both. Where rankings
are made from the top, it orders items nearly as well, and scores are a little nearer to each other.

=======  ============  =======  =====================================================
symbol   code          shape    meaning
=======  ============  =======  =====================================================
s_i      ``scores``    N        score, on the scale of log odds; they sum to zero
v_i      ``v``         R x k    s_i of the items of a ranking, -s_i from the bottom
=======  ============  =======  =====================================================

The prior of scores is that of ``bradley-terry``: ``prior`` pseudo-comparisons of every item with one of score zero.
Fails where preferences are circular, and where many rankings are by careless annotators: all annotators count alike.

References: R. Plackett, The analysis of permutations, Applied Statistics 1975. D. Luce, Individual choice behavior,
1959.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from crowdwise.answers import comparisons_connectivity, comparisons_matches
from crowdwise.answers.comparisons_base import ScoreModel
from crowdwise.answers.comparisons_likelihood import Likelihood, log_prior, score_prior
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import Derivatives, Objective, Point, maximise
from crowdwise.core.constraints import declared
from crowdwise.core.loop import Callback
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.rankings import Rankings

Blocks = list[tuple[Ints, Floats, Ints]]
"""Rankings of one length together: R x k items, R weights, R annotators."""
Ends = Literal["both", "top"]


def blocks(table: Rankings) -> Blocks:
    """The rankings by length."""
    size = np.diff(table.indptr)
    out: Blocks = []
    for k in np.unique(size).tolist():
        which = np.flatnonzero(size == k)
        items = table.item[table.indptr[which][:, None] + np.arange(k)].astype(np.int64)
        out.append((items, table.weights[which], table.annotator[which]))
    return out


def choices(rankings: Blocks, s: Floats, ends: Ends) -> Iterator[tuple[float, Ints, Floats, Floats, Floats]]:
    """Some rankings at a time, from each end: the sign of s in v, the items in the order in which they are chosen,
    weights, v, and the log of the sum of e^v over the items left at each choice."""
    for item, w, _ in rankings:
        step = max(1, 2**21 // item.shape[1] ** 2)  # so many numbers are computed at once
        for lo in range(0, len(item), step):
            for sign in (1.0, -1.0) if ends == "both" else (1.0,):
                order = item[lo : lo + step, :: int(sign)]
                v = sign * s[order]
                left = np.logaddexp.accumulate(v[:, ::-1], axis=1)[:, :0:-1]
                yield sign, order, w[lo : lo + step] * (0.5 if ends == "both" else 1.0), v, left


def log_likelihood(rankings: Blocks, s: Floats, ends: Ends = "top") -> float:
    """log P of all rankings; of both ends, their mean."""
    return sum(float(w @ (v[:, :-1] - left).sum(axis=1)) for _, _, w, v, left in choices(rankings, s, ends))


def derivatives(rankings: Blocks, s: Floats, prior: float, ends: Ends = "top") -> Derivatives:
    """Gradient and negative Hessian of log likelihood and prior. Item i of a ranking is among those left at the choices
    up to its own. So the sum over choices of p_i is e^(v_i) times a running sum of 1 / sum e^v, and that of p_i p_j is
    e^(v_i + v_j) times the running sum of their squares up to the earlier of both."""
    from scipy.sparse import coo_array, diags_array

    N = len(s)
    g, H = np.zeros(N), coo_array((N, N)).tocsr()
    for sign, item, w, v, left in choices(rankings, s, ends):
        k = item.shape[1]
        last = np.minimum(np.arange(k), k - 2)
        p = w[:, None] * np.exp(v + np.logaddexp.accumulate(-left, axis=1)[:, last])
        won = np.repeat(w, k - 1)
        g += sign * (np.bincount(item[:, :-1].ravel(), won, N) - np.bincount(item.ravel(), p.ravel(), N))
        squares = np.logaddexp.accumulate(-2.0 * left, axis=1)[:, np.minimum.outer(last, last)]
        outer = w[:, None, None] * np.exp(v[:, :, None] + v[:, None, :] + squares)
        at = (np.repeat(item, k, axis=1).ravel(), np.tile(item, (1, k)).ravel())
        H = H + diags_array(np.bincount(item.ravel(), p.ravel(), N)) - coo_array((outer.ravel(), at), (N, N)).tocsr()
    slope, curvature = score_prior(s, prior)
    H = (H + diags_array(curvature)).tocsr()
    return Derivatives(g + slope, np.asarray(H.todense()) if N <= comparisons_matches.DENSE else H)


class RankingObjective(Objective):
    """Log likelihood and log prior of rankings."""

    def __init__(self, rankings: Blocks, prior: float, ends: Ends) -> None:
        self.blocks, self.prior, self.ends, self.free = rankings, prior, ends, prior == 0.0
        self.weight = float(sum(w.sum() * (item.shape[1] - 1) for item, w, _ in rankings))

    def at(self, x: Floats, theta: Floats) -> Point:
        prior = log_prior(Likelihood("plain", False, self.prior), x, theta, len(x))
        value = log_likelihood(self.blocks, x, self.ends) + prior
        return Point(value, lambda exact: derivatives(self.blocks, x, self.prior, self.ends))


@declared
class PlackettLuce(ScoreModel[Rankings]):
    """The maximum of the (penalised) likelihood of the Plackett-Luce model, by Newton's method.

    Parameters
    ----------
    ends
        ``"both"``: rankings are read as choices of the best of the items left and as choices of the worst, half each;
        ``"top"``: of the best alone, as in Plackett's and Luce's model.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.rankings(6, n_rankings=400)
    >>> PlackettLuce().fit(crowd.rankings).consensus_.leaderboard["item"].to_list()
    [2, 5, 0, 3, 1, 4]
    >>> (-crowd.scores).argsort().tolist()
    [2, 5, 0, 3, 1, 4]
    """

    key: ClassVar[str] = "plackett-luce"
    table: ClassVar[type] = Rankings

    ends: Ends = "both"

    def _fit(self, answers: Rankings, callback: Callback | None) -> dict[str, Any]:
        N, M = answers.n_items, answers.n_annotators
        rankings = blocks(answers)
        matches = neighbours(rankings, N, M)
        if self.prior == 0.0:
            comparisons_connectivity.check_identifiable(matches, answers.items)
        objective = RankingObjective(rankings, float(self.prior), self.ends)
        fit = maximise(objective, np.zeros(N), max_iter=self.max_iter, tol=self.tol, callback=callback)
        out = self._scored(fit, N, Likelihood("plain", False, float(self.prior)))
        part = comparisons_connectivity.components(matches.winner, matches.loser, N)
        return out | self._connected(answers.items, matches, part) | {
            "answer_type": "rankings", "counts": item_counts(rankings, N),
            "annotator_counts": annotator_counts(rankings, out["scores"], M),
        }  # fmt: skip


def neighbours(rankings: Blocks, N: int, M: int) -> Matches:
    """Each item of a ranking beats the next: all that the graph of comparisons needs."""
    i = np.concatenate([item[:, :-1].ravel() for item, _, _ in rankings])
    j = np.concatenate([item[:, 1:].ravel() for item, _, _ in rankings])
    w = np.concatenate([np.repeat(w, item.shape[1] - 1) for item, w, _ in rankings])
    m = np.concatenate([np.repeat(who, item.shape[1] - 1) for item, _, who in rankings])
    return Matches(i, j, m.astype(np.int64), np.ones(len(i)), w, len(i), N, M)


def item_counts(rankings: Blocks, N: int) -> dict[str, Floats]:
    """In how many rankings every item is, first and last."""
    names = (("rankings", slice(None)), ("first", slice(0, 1)), ("last", slice(-1, None)))
    out = {name: np.zeros(N) for name, _ in names}
    for item, w, _ in rankings:
        for name, cut in names:
            at = item[:, cut]
            out[name] += np.bincount(at.ravel(), np.repeat(w, at.shape[1]), N)
    return out


def annotator_counts(rankings: Blocks, s: Floats, M: int) -> dict[str, Floats]:
    """How many rankings everybody made, and how many pairs of items in them stand as the scores have them."""
    out = {name: np.zeros(M) for name in ("comparisons", "decided", "agreed")}
    for item, w, who in rankings:
        k = item.shape[1]
        i, j = np.triu_indices(k, 1)
        right = np.sign(s[item[:, i]] - s[item[:, j]])
        out["comparisons"] += np.bincount(who, w, M)
        out["decided"] += np.bincount(who, w * len(i), M)
        out["agreed"] += np.bincount(who, w * ((1.0 + right) / 2.0).sum(axis=1), M)
    return out
