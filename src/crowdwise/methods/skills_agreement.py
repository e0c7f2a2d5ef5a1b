"""One skill per annotator, from how often each pair agrees.

Annotator m is right with probability p_m and errs evenly over the other classes. With the skill
s_m = (K p_m - 1) / (K - 1), 1 for the perfect and 0 for those at chance, the agreement of two annotators on their
common items, corrected for chance, is in expectation c[i, j] = s_i s_j for i != j, whatever the shares of the
classes. The methods differ in how they take a rank-one matrix apart that is noisy, full of holes and without a
diagonal. Once skills are there, a vote weighs its log-odds, log( p (K - 1) / (1 - p) ), and q is the softmax
(``eigenratio``: K s, the first-order log-odds, as its rule is linear).

==============  ==================================================================================================
method          s
==============  ==================================================================================================
``eigenratio``  v1 / v2 * sqrt(l1 / l2): top eigenpairs of c and of the 0/1 graph of common items, ones on diagonals
``pgd``         argmin of sum over i < j of n_ij (c_ij - s_i s_j)^2 within bounds, by projected gradient steps
``m-msr``       trimmed means of |c_ij| / s_i: see :mod:`crowdwise.methods.skills_mmsr`
``triangular``  s_k^2 = |c_ik c_jk / c_ij|: see :mod:`crowdwise.methods.skills_triangular`
==============  ==================================================================================================

=========  ===============  ======  ==================================================================================
symbol     code             shape   equation
=========  ===============  ======  ==================================================================================
n, c       ``pairs``        M x M   sparse: common items; agreement above chance
s          ``skill``        M       within [-1/(K-1) + e, 1 - e], e = 1/sqrt(N): no weight is infinite
p          accuracy         M       (1 + (K - 1) s) / K
=========  ===============  ======  ==================================================================================

Gold labels are one more annotator, whose skill is 1.

References: Dalvi, Dasgupta, Kumar and Rastogi 2013 (eigenratio); Ma, Olshevsky, Saligrama and Szepesvari 2018 (pgd).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any

import numpy as np

from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.model import Callback, Outcome, Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, normalise
from crowdwise.core.starts import GOLD_WEIGHT, log_odds, tested_and_right
from crowdwise.core.vote_sums import per_annotator, tally
from crowdwise.methods import skills_fallback as fallback
from crowdwise.methods import skills_graph as graph
from crowdwise.methods.skills_graph import Pairs
from crowdwise.methods.skills_precision import pair_variance


def ratio_weights(found: Pairs) -> tuple[Floats, Floats]:
    """v1 / v2 and the skills it stands for, group by group (up to sign).

    c = s s^T on the graph G of common items (both with ones on the diagonal); if G is about l2 v2 v2^T, then
    v1 = s v2 sqrt(l2 / l1).
    """
    linked = graph.like(found.n, np.ones(found.n.nnz))
    scale = np.ones(found.n.shape[0])

    def solve(members: Ints) -> Floats:
        c, g = found.c[members][:, members], linked[members][:, members]
        l1, v1 = graph.leading(lambda x: c @ x + x, len(members))
        l2, v2 = graph.leading(lambda x: g @ x + x, len(members))
        scale[members] = np.sqrt(abs(l1) / l2)
        return v1 / np.abs(v2)

    weight = graph.by_group(graph.groups_of(linked), solve)
    return weight, weight * scale


def pair_scale(found: Pairs, skill: Floats) -> Floats:
    """The factor, one for each group, by which skills fit the agreement of pairs best.

    The ones on the diagonal, in the place of s^2, make skills too large as a whole.
    """
    group = graph.groups_of(found.n)
    agreed = np.bincount(group, weights=skill * (graph.like(found.n, found.n.data * found.c.data) @ skill))
    squared = np.bincount(group, weights=skill**2 * (found.n @ skill**2))
    return np.asarray(np.sqrt(np.clip(agreed / np.maximum(squared, 1e-300), 0.0, 1.0))[group])


@declared
class EigenRatio(fallback.FallsBack):
    """Weights v1 / v2: the top eigenvector of agreement rates over that of the graph of common items.

    Dividing by v2 takes out how busy and well connected an annotator is. Agreement is corrected for chance, so there
    may be any number of classes; with two it is the authors' product of +-1 votes.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(400, n_annotators=30, n_classes=4, votes_per_item=6, random_state=0)
    >>> cw.aggregate(crowd.votes, "eigenratio").score(crowd.truth) > 0.85
    True
    """

    key = "eigenratio"

    skill_: Floats = field(init=False)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        M, K = votes.n_annotators, votes.n_classes
        found = graph.pairs(votes, gold)
        weight, skill = ratio_weights(found)
        group = graph.groups_of(found.n)
        sign = np.where(np.bincount(group, weights=_vote_support(votes, weight))[group] >= 0.0, 1.0, -1.0)
        self.used_, self.skill_ = graph.used_classes(votes, gold), (sign * skill)[:M]
        if graph.contradicted(self._predict(votes), gold):
            sign[group == group[-1]] *= -1.0  # the group with the gold labels, the last annotator
            self.skill_ = (sign * skill)[:M]
        q = clamp(self._predict(votes), gold)
        ends = -1.0 / (K - 1.0), 1.0
        if self._unusable(votes, gold, q):
            return self._alike(votes, gold, found, *bounds(len(votes), K))
        turned = sign * skill
        variance = pair_variance(votes, gold, np.where(np.arange(len(turned)) < M, np.clip(turned, *ends), 1.0))[:M]
        per_skill = np.divide(weight, skill, out=np.ones_like(skill), where=skill != 0.0)[:M]
        columns = with_interval("weight", (sign * weight)[:M], *around((sign * weight)[:M], per_skill**2 * variance))
        at = np.clip(self.skill_, *ends)
        columns |= with_interval("skill", at, *around(at * pair_scale(found, turned)[:M], variance, *ends))
        return Outcome(posterior=q, prior=normalise(q.sum(axis=0), axis=0), annotator_columns=columns)

    def _alike(self, votes: Votes, gold: Ints | None, found: Pairs, low: float, high: float) -> Outcome:
        """The outcome with one weight for all annotators."""
        skill, unknown = equal_skills(found, votes.n_annotators, high)
        self.skill_ = skill
        q = clamp(self._predict(votes), gold)
        columns = with_interval("weight", np.ones_like(skill), *around(np.ones_like(skill), unknown))
        columns |= with_interval("skill", skill, *around(skill, unknown, low, high))
        return Outcome(
            posterior=q, prior=normalise(q.sum(axis=0), axis=0), annotator_columns=columns, notes=[fallback.NOTE]
        )

    def _predict(self, votes: Votes) -> Floats:
        skill = graph.at_mean(self.skill_, votes.n_annotators)
        return graph.weighted(votes, votes.n_classes * skill, self.used_)


def _vote_support(votes: Votes, weight: Floats) -> Floats:
    """How far the weighted votes of each item agree with the plain ones, attributed to one annotator per item."""
    plain, score = tally(votes, np.ones(votes.n_annotators)), tally(votes, weight)
    along = ((score - score.mean(axis=1, keepdims=True)) * plain).sum(axis=1)
    return graph.by_first(votes.indptr, votes.annotator, along, len(weight))


def bounds(N: int, K: int) -> tuple[float, float]:
    """The least and the greatest skill, 1/sqrt(N) away from the ends (but never beyond 0.45 of the range)."""
    edge = min(1.0 / np.sqrt(max(N, 1)), 0.45 * K / (K - 1.0))
    return -1.0 / (K - 1.0) + edge, 1.0 - edge


def equal_skills(found: Pairs, M: int, high: float) -> tuple[Floats, Floats]:
    """One skill for all annotators, and a variance that says that nothing is known of each."""
    return np.full(M, fallback.equal_skill(found.n.data, found.c.data, 1.0 - high, high)), np.full(M, np.inf)


@declared
class PairSkills(fallback.FallsBack, ABC):
    """Skills from pairs, votes weighted by their log-odds. A subclass gives ``_skills``."""

    skill_: Floats = field(init=False)
    used_: Ints = field(init=False)

    @abstractmethod
    def _skills(self, found: Pairs, votes: Votes, gold: Ints | None, low: float, high: float, rounds: Rounds) -> Floats:
        """The skills of the annotators (and of the gold labels, where they are one of them)."""

    def _rounds(self, votes: Votes, callback: Callback | None) -> Rounds:
        """None, where skills are solved for at once."""
        rounds = Rounds(0, votes.n_votes)
        rounds.converged = True
        return rounds

    def _variance(self, found: Pairs, votes: Votes, gold: Ints | None, skill: Floats) -> Floats:
        """The variance of the skills (and of that of the gold labels, where they are one of the annotators)."""
        return pair_variance(votes, gold, skill)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        M, K = votes.n_annotators, votes.n_classes
        low, high = bounds(int((np.diff(votes.indptr) > 0).sum()), K)
        found = graph.pairs(votes, gold)
        rounds = self._rounds(votes, callback)
        skill, paired = self._skills(found, votes, gold, low, high, rounds)[:M], np.diff(found.n.indptr)[:M] > 0
        if not paired.all():  # no others to compare with: the average
            skill, size = skill.copy(), per_annotator(votes)
            skill[~paired] = np.average(skill[paired], weights=size[paired]) if size[paired].sum() > 0 else 0.5
        self.used_, self.skill_ = graph.used_classes(votes, gold), np.clip(skill, low, high)
        if graph.contradicted(self._predict(votes), gold):
            group = graph.groups_of(found.n)
            turn = np.where((group == group[-1])[:M], -1.0, 1.0)
            self.skill_ = np.clip(turn * skill, low, high)
        q, notes = clamp(self._predict(votes), gold), []
        if self._unusable(votes, gold, q):
            self.skill_, variance = equal_skills(found, M, high)
            q, notes = clamp(self._predict(votes), gold), [fallback.NOTE]
        else:
            known = np.append(self.skill_, np.ones(found.n.shape[0] - M))
            variance = self._variance(found, votes, gold, known)[:M]
        skills = with_interval("skill", self.skill_, *around(self.skill_, variance, low, high))
        weights = (log_odds((1.0 + (K - 1.0) * s) / K, K) for s in skills.values())
        return Outcome(
            posterior=q,
            prior=normalise(q.sum(axis=0), axis=0),
            annotator_columns=skills | with_interval("weight", *weights),
            notes=notes,
            **rounds.outcome,
        )

    def _predict(self, votes: Votes) -> Floats:
        K, skill = votes.n_classes, graph.at_mean(self.skill_, votes.n_annotators)
        return graph.weighted(votes, log_odds((1.0 + (K - 1.0) * skill) / K, K), self.used_)


@declared
class IteratedSkills(PairSkills, ABC):
    """Skills that are found in rounds.

    Parameters
    ----------
    max_iter
        At most this many rounds.
    tol
        The largest change of a skill in a round under which the fit stops.
    """

    max_iter: Count = 2000
    tol: NonNegative = 1e-6

    def _rounds(self, votes: Votes, callback: Callback | None) -> Rounds:
        return Rounds(self.max_iter, votes.n_votes, callback)


def misfit(x: Floats, n: Any, nc: Any, ncc: float) -> tuple[float, Floats]:
    """f = sum over i < j of n_ij (c_ij - x_i x_j)^2 / 2, and its gradient. ncc = sum of n c^2 over all i, j."""
    across, square = nc @ x, n @ x**2
    return float(ncc - 2.0 * (x @ across) + x**2 @ square) / 4.0, x * square - across


def descend(found: Pairs, x: Floats, low: Floats, high: Floats, rounds: Rounds, tol: float) -> Floats:
    """Projected gradient steps, each coordinate on the scale of its annotator's common items.

    A step that does not lower f enough is halved, so f never rises; the next one begins twice as long.
    """
    n = graph.like(found.n, found.n.data / max(float(found.n.data.mean()), 1e-300)) if found.n.nnz else found.n
    nc = graph.like(n, n.data * found.c.data)
    ncc = float((n.data * found.c.data**2).sum())
    degree = np.maximum(np.asarray(n.sum(axis=1)).ravel(), 1e-12)
    f, gradient = misfit(x, n, nc, ncc)
    step = 1.0
    for _ in rounds:
        while True:
            new = np.clip(x - step * gradient / degree, low, high)
            move = new - x
            f_new, gradient_new = misfit(new, n, nc, ncc)
            if f_new <= f - 0.1 * float((degree * move**2).sum()) / step or step < 1e-12:
                break
            step /= 2.0
        if f_new > f:  # within rounding there is no lower value
            rounds.iterations, rounds.converged = max(len(rounds.trace), 1), True
            rounds.trace = rounds.trace or [-f]
            break
        x, f, gradient = new, f_new, gradient_new
        rounds.reached(-f, converged=bool(np.abs(move).max() <= tol * min(step, 1.0)))
        step = min(2.0 * step, 1e3)
    return x


@declared
class PGD(IteratedSkills):
    """Skills by projected gradient descent on the agreement of pairs.

    Every pair counts by its common items, and only pairs that have some: the diagonal and holes are left out.
    Everybody starts with skill 0.5, so of the two mirrored solutions the one is found in which most are better
    than chance. ``trace`` is minus the weighted squared misfit.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(500, n_annotators=30, n_classes=4, votes_per_item=5, random_state=0)
    >>> cw.aggregate(crowd.votes, "pgd").score(crowd.truth) > 0.85
    True
    """

    key = "pgd"

    def _skills(self, found: Pairs, votes: Votes, gold: Ints | None, low: float, high: float, rounds: Rounds) -> Floats:
        M, K = votes.n_annotators, votes.n_classes
        size = found.n.shape[0]
        x, lows, highs = np.full(size, 0.5), np.full(size, low), np.full(size, high)
        if size > M and gold is not None:  # gold labels are the last annotator
            tested, right = tested_and_right(votes, gold)
            p = (right + GOLD_WEIGHT * (1.0 + (K - 1.0) * 0.5) / K) / (tested + GOLD_WEIGHT)
            x[:M] = (K * p - 1.0) / (K - 1.0)
            x[M], lows[M], highs[M] = 1.0, 1.0, 1.0
        return descend(found, np.clip(x, lows, highs), lows, highs, rounds, self.tol)
