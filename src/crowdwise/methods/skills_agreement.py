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
``m-msr``       trimmed means of |c_ij| / s_i: every partner i of j gives an estimate of the skill of j, and an
                adversary any value. Of those above the current value the F greatest are left out, of those below
                it the F smallest, and the rest is averaged
``triangular``  s_k^2 = |c_ik c_jk / c_ij| for any two partners i, j of k: as good as c_ij is far from zero, so the
                best pair is taken
==============  ==================================================================================================

===============  ===================  ======  ========================================================================
symbol           code                 shape   equation
===============  ===================  ======  ========================================================================
n, c             ``pairs``            M x M   sparse: common items; agreement above chance
s                ``skill``            M       within [-1/(K-1) + e, 1 - e], e = 1/sqrt(N): no weight is infinite
p                accuracy             M       (1 + (K - 1) s) / K
``m-msr``
u, v             ``u``, ``v``         M       v_j = trimmed mean over i of |c_ij| / u_i, and u likewise from v
F                ``trim``             1       floor(fewest partners of an annotator / 2) - 1
abs(s), sign     ``graph_signs``      M       sqrt(u v); top eigenvector of D^-1/2 (n c) D^-1/2, D the degrees; + for
                                              most annotators
``triangular``
abs(s)           ``best_triangles``   M       root of |c_ik c_jk / c_ij|, (i, j) of greatest |c_ij| sqrt(min of the n)
k*               ``triangle_signs``   1       argmax over k of |s_k^2 + sum over i of c_ik|, with the sign of this sum
sign(s)          ``triangle_signs``   M       that of c[k, k*] times that of k*
===============  ===================  ======  ========================================================================

Gold labels are one more annotator, whose skill is 1.

References: Dalvi, Dasgupta, Kumar and Rastogi 2013 (eigenratio); Ma, Olshevsky, Saligrama and Szepesvari 2018 (pgd);
Ma and Olshevsky 2020 (m-msr); Bonald and Combes 2017 (triangular).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import field
from typing import Annotated, Any

import numpy as np

from crowdwise.core.constraints import Bounds, Count, CountFromZero, NonNegative
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.model import Callback, Outcome, Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, normalise
from crowdwise.core.starts import GOLD_WEIGHT, log_odds, tested_and_right
from crowdwise.core.vote_parts import VotePart
from crowdwise.core.vote_sums import per_annotator, tally
from crowdwise.methods import skills_graph as graph
from crowdwise.methods import skills_precision as fallback
from crowdwise.methods.skills_graph import AgreementPairs, by_group, groups_of, leading, like, near_zero
from crowdwise.methods.skills_precision import pair_variance, triangle_variance


def ratio_weights(pairs: AgreementPairs) -> tuple[Floats, Floats]:
    """v1 / v2 and the skills it stands for, group by group (up to sign).

    c = s s^T on the graph G of common items (both with ones on the diagonal); if G is about l2 v2 v2^T, then
    v1 = s v2 sqrt(l2 / l1).
    """
    linked = graph.like(pairs.n, np.ones(pairs.n.nnz))
    scale = np.ones(pairs.n.shape[0])

    def solve(members: Ints) -> Floats:
        c, g = pairs.c[members][:, members], linked[members][:, members]
        l1, v1 = graph.leading(lambda x: c @ x + x, len(members))
        l2, v2 = graph.leading(lambda x: g @ x + x, len(members))
        scale[members] = np.sqrt(abs(l1) / l2)
        return v1 / np.abs(v2)

    weight = graph.by_group(graph.groups_of(linked), solve)
    return weight, weight * scale


def pair_scale(pairs: AgreementPairs, skill: Floats) -> Floats:
    """The factor, one for each group, by which skills fit the agreement of pairs best.

    The ones on the diagonal, in the place of s^2, make skills too large as a whole.
    """
    group = graph.groups_of(pairs.n)
    agreed = np.bincount(group, weights=skill * (graph.like(pairs.n, pairs.n.data * pairs.c.data) @ skill))
    squared = np.bincount(group, weights=skill**2 * (pairs.n @ skill**2))
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
        pairs = graph.pairs(votes, gold)
        weight, skill = ratio_weights(pairs)
        group = graph.groups_of(pairs.n)
        sign = graph.supported(group, _vote_support(votes, weight), weight)
        self.used_, self.skill_ = graph.used_classes(votes, gold), (sign * skill)[:M]
        if graph.contradicted(self._predict(votes), gold):
            sign[group == group[-1]] *= -1.0  # the group with the gold labels, the last annotator
            self.skill_ = (sign * skill)[:M]
        q = clamp(self._predict(votes), gold)
        ends = -1.0 / (K - 1.0), 1.0
        if self._unusable(votes, gold, q):
            return self._alike(votes, gold, pairs, bounds(len(votes), K))
        turned = sign * skill
        variance = pair_variance(votes, gold, np.where(np.arange(len(turned)) < M, np.clip(turned, *ends), 1.0))[:M]
        per_skill = np.divide(weight, skill, out=np.ones_like(skill), where=skill != 0.0)[:M]
        columns = with_interval("weight", (sign * weight)[:M], *around((sign * weight)[:M], per_skill**2 * variance))
        at = np.clip(self.skill_, *ends)
        columns |= with_interval("skill", at, *around(at * pair_scale(pairs, turned)[:M], variance, *ends))
        return Outcome(posterior=q, prior=normalise(q.sum(axis=0), axis=0), annotator_columns=columns)

    def _alike(self, votes: Votes, gold: Ints | None, pairs: AgreementPairs, ends: Ends) -> Outcome:
        """The outcome with one weight for all annotators."""
        self.skill_, unknown = equal_skills(pairs, votes.n_annotators, ends[1])
        q, one = clamp(self._predict(votes), gold), np.ones_like(unknown)
        columns = with_interval("weight", one, *around(one, unknown))
        columns |= with_interval("skill", self.skill_, *around(self.skill_, unknown, *ends))
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


Ends = tuple[float, float]


def bounds(N: int, K: int) -> Ends:
    """The least and the greatest skill, 1/sqrt(N) away from the ends (but never beyond 0.45 of the range)."""
    edge = min(1.0 / np.sqrt(max(N, 1)), 0.45 * K / (K - 1.0))
    return -1.0 / (K - 1.0) + edge, 1.0 - edge


def equal_skills(pairs: AgreementPairs, M: int, high: float) -> tuple[Floats, Floats]:
    """One skill for all annotators, and a variance that says that nothing is known of each."""
    return np.full(M, fallback.equal_skill(pairs.n.data, pairs.c.data, 1.0 - high, high)), np.full(M, np.inf)


@declared
class PairSkills(fallback.FallsBack, ABC):
    """Skills from pairs, votes weighted by their log-odds. A subclass gives ``_skills``."""

    skill_: Floats = field(init=False)
    used_: Ints = field(init=False)

    @abstractmethod
    def _skills(self, pairs: AgreementPairs, votes: Votes, gold: Ints | None, ends: Ends, rounds: Rounds) -> Floats:
        """The skills of the annotators (and of the gold labels, where they are one of them)."""

    def _rounds(self, votes: Votes, callback: Callback | None) -> Rounds:
        """None, where skills are solved for at once."""
        rounds = Rounds(0, votes.n_votes)
        rounds.converged = True
        return rounds

    def _variance(self, pairs: AgreementPairs, votes: Votes, gold: Ints | None, skill: Floats) -> Floats:
        """The variance of the skills (and of that of the gold labels, where they are one of the annotators)."""
        return pair_variance(votes, gold, skill)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        M, K = votes.n_annotators, votes.n_classes
        low, high = ends = bounds(int((np.diff(votes.indptr) > 0).sum()), K)
        pairs, rounds = graph.pairs(votes, gold), self._rounds(votes, callback)
        skill, paired = self._skills(pairs, votes, gold, ends, rounds)[:M], np.diff(pairs.n.indptr)[:M] > 0
        if not paired.all():  # no others to compare with: the average
            skill, size = skill.copy(), per_annotator(votes)
            skill[~paired] = np.average(skill[paired], weights=size[paired]) if size[paired].sum() > 0 else 0.5
        self.used_, self.skill_ = graph.used_classes(votes, gold), np.clip(skill, low, high)
        if graph.contradicted(self._predict(votes), gold):
            group = graph.groups_of(pairs.n)
            turn = np.where((group == group[-1])[:M], -1.0, 1.0)
            self.skill_ = np.clip(turn * skill, low, high)
        q, notes = clamp(self._predict(votes), gold), []
        if self._unusable(votes, gold, q):
            self.skill_, variance = equal_skills(pairs, M, high)
            q, notes = clamp(self._predict(votes), gold), [fallback.NOTE]
        else:
            known = np.append(self.skill_, np.ones(pairs.n.shape[0] - M))
            variance = self._variance(pairs, votes, gold, known)[:M]
        skills = with_interval("skill", self.skill_, *around(self.skill_, variance, low, high))
        weights = (log_odds((1.0 + (K - 1.0) * s) / K, K) for s in skills.values())
        columns = skills | with_interval("weight", *weights)
        prior = normalise(q.sum(axis=0), axis=0)
        return Outcome(posterior=q, prior=prior, annotator_columns=columns, notes=notes, **rounds.outcome)

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


def descend(pairs: AgreementPairs, x: Floats, low: Floats, high: Floats, rounds: Rounds, tol: float) -> Floats:
    """Projected gradient steps, each coordinate on the scale of its annotator's common items.

    A step that does not lower f enough is halved, so f never rises; the next one begins twice as long.
    """
    n = graph.like(pairs.n, pairs.n.data / max(float(pairs.n.data.mean()), 1e-300)) if pairs.n.nnz else pairs.n
    nc = graph.like(n, n.data * pairs.c.data)
    ncc = float((n.data * pairs.c.data**2).sum())
    degree = np.maximum(np.asarray(n.sum(axis=1)).ravel(), 1e-12)
    f, gradient = misfit(x, n, nc, ncc)
    step = 1.0
    for _ in rounds:
        while True:
            new = np.clip(x - step * gradient / degree, low, high).round(12)  # rounding errors must not grow to skills
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

    def _skills(self, pairs: AgreementPairs, votes: Votes, gold: Ints | None, ends: Ends, rounds: Rounds) -> Floats:
        M, K = votes.n_annotators, votes.n_classes
        size = pairs.n.shape[0]
        x, lows, highs = (np.full(size, value) for value in (0.5, *ends))
        if size > M and gold is not None:  # gold labels are the last annotator
            tested, right = tested_and_right(VotePart(votes, gold))
            p = (right + GOLD_WEIGHT * (1.0 + (K - 1.0) * 0.5) / K) / (tested + GOLD_WEIGHT)
            x[:M] = (K * p - 1.0) / (K - 1.0)
            x[M], lows[M], highs[M] = 1.0, 1.0, 1.0
        return descend(pairs, np.clip(x, lows, highs), lows, highs, rounds, self.tol)


def buckets(indptr: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Rows of a sparse matrix in sheets of about equal length: rows, places of their entries, which are real.

    Sheets are at most half padding, and each is sorted at once.
    """
    degree = np.diff(indptr)
    sheet = np.ceil(np.log2(np.maximum(degree, 1))).astype(np.int64)
    for exponent in np.unique(sheet[degree > 0]):
        rows = np.flatnonzero((sheet == exponent) & (degree > 0))
        place = indptr[rows, None] + np.arange(degree[rows].max())
        real = place < indptr[rows + 1, None]
        yield rows, np.where(real, place, 0), real


def trimmed(value: Floats, current: Floats, sheets: list[tuple[Ints, Ints, Ints]], trim: int) -> Floats:
    """Per row the mean without the ``trim`` largest of those above its current value and smallest of those below."""
    out = current.copy()
    for rows, place, real in sheets:
        table = np.sort(np.where(real, value[place], np.inf), axis=1)
        degree, at = real.sum(axis=1), current[rows, None]
        first = np.minimum((table < at).sum(axis=1), trim)
        last = degree - np.minimum(degree - (table <= at).sum(axis=1), trim)
        position = np.arange(table.shape[1])
        kept = (position >= first[:, None]) & (position < last[:, None])
        count = kept.sum(axis=1)
        total = np.where(kept, table, 0.0).sum(axis=1)
        out[rows[count > 0]] = (total / np.maximum(count, 1))[count > 0]
    return out


def subsequence(pairs: AgreementPairs, trim: int, floor: float, fixed: int, rounds: Rounds, tol: float) -> Floats:
    """|s| by alternating trimmed means (M-MSR); from ``fixed`` on, annotators have skill 1.

    No skill falls under ``floor`` while others are divided by it: 1/sqrt(N), which is not distinguishable from 0.
    """
    sheets = list(buckets(pairs.n.indptr))
    size, col = np.abs(pairs.c.data), pairs.n.indices
    u = np.full(pairs.n.shape[0], max(float(np.sqrt(size.mean())), floor) if len(size) else 0.5)
    u[fixed:] = 1.0
    v, skill = u, u
    for _ in rounds:
        v = np.maximum(trimmed(size / u[col], v, sheets, trim), floor)
        v[fixed:] = 1.0
        u = np.maximum(trimmed(size / v[col], u, sheets, trim), floor)
        u[fixed:] = 1.0
        before, skill = skill, np.sqrt(u * v)
        moved = float(np.abs(skill - before).max())
        rounds.reached(moved=moved, converged=moved <= tol)
        scale = np.sqrt(np.linalg.norm(u) / np.linalg.norm(v)) if fixed == len(u) else 1.0
        u, v = u / scale, v * scale
    return skill


def graph_signs(pairs: AgreementPairs, fixed: int) -> Floats:
    """Signs that explain who agrees and who disagrees: the top eigenvector of n c, degrees taken out.

    In every group most annotators are given the sign +, however many votes the others have; where as many have the
    other, the eigenvector decides, and where that is even, too, all get 0: no order of rows decides.
    """
    nc = like(pairs.n, pairs.n.data * pairs.c.data)

    def solve(members: Ints) -> Floats:
        part = nc[members][:, members]
        degree = np.sqrt(np.asarray(abs(pairs.n[members][:, members]).sum(axis=1)).ravel())
        e = leading(lambda x: (part @ (x / degree)) / degree + x, len(members))[1]
        sign = near_zero(e, 1.0)
        most = (np.sign(near_zero(e)) @ (members < fixed)) or near_zero(np.array([e.sum()]))[0]
        return np.asarray(np.sign(sign) * np.sign(most))

    return by_group(groups_of(pairs.n), solve)


@declared
class MMSR(IteratedSkills):
    """Skills by alternating trimmed means: some annotators may be adversaries.

    With F values trimmed on either side, an annotator's skill stands between values given by honest partners as long
    as at most F of the partners are corrupted. Only pairs with common items are kept in memory. Two departures from
    the authors' script: the start is the same for all (theirs is random, so that names would matter), and the signs
    come from an eigenvector of a matrix over annotators instead of one over annotators and pairs.

    Parameters
    ----------
    trim
        F, the values left out on either side. None: half of the fewest partners of an annotator, less one.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(500, n_annotators=30, n_classes=3, votes_per_item=8, random_state=0)
    >>> cw.aggregate(crowd.votes, "m-msr").score(crowd.truth) > 0.85
    True
    """

    key = "m-msr"

    trim: CountFromZero | None = None
    max_iter: Count = 1000
    tol: NonNegative = 1e-10

    def _skills(self, pairs: AgreementPairs, votes: Votes, gold: Ints | None, ends: Ends, rounds: Rounds) -> Floats:
        M = votes.n_annotators
        degree = np.diff(pairs.n.indptr)[:M]
        fewest = int(degree[degree > 0].min()) if (degree > 0).any() else 0
        trim = max(fewest // 2 - 1, 0) if self.trim is None else int(self.trim)
        return subsequence(pairs, trim, 1.0 - ends[1], M, rounds, self.tol) * graph_signs(pairs, M)

    def _variance(self, pairs: AgreementPairs, votes: Votes, gold: Ints | None, skill: Floats) -> Floats:
        # The trimmed mean is near the median of the estimates, whose variance is pi / 2 of their mean's.
        return 0.5 * np.pi * super()._variance(pairs, votes, gold, skill)


def best_triangles(pairs: AgreementPairs, width: int) -> tuple[Floats, Ints, Ints]:
    """s_k^2 from the best pair of partners (i, j) of each k: greatest |c_ij| sqrt(min(n_ij, n_ik, n_jk)).

    That is |c_ij| where all share equally many items. Pairs that are equally good are averaged. NaN: no triangle.
    Also the two partners (of the first of equals; -1 for no triangle).
    ``width``: how many partners are used, those with most common items and most agreement with others first.
    """
    M, indptr, indices = pairs.n.shape[0], pairs.n.indptr, pairs.n.indices
    n, c = pairs.n.data, np.abs(pairs.c.data)
    place_of = like(pairs.n, np.arange(1, len(n) + 1))  # 1 + where a pair is
    total = np.asarray(pairs.n.sum(axis=1)).ravel()
    strength = np.asarray(like(pairs.n, n * c).sum(axis=1)).ravel() / np.maximum(total, 1e-300)
    square, one, two = np.full(M, np.nan), np.full(M, -1), np.full(M, -1)
    for k in range(M):
        own = np.arange(indptr[k], indptr[k + 1])
        if len(own) > width:
            own = own[np.argsort(-np.sqrt(n[own]) * strength[indices[own]], kind="stable")[:width]]
        if len(own) < 2:
            continue
        first, second = (own[at] for at in np.triu_indices(len(own), 1))
        place = np.asarray(place_of[indices[first], indices[second]]).ravel() - 1
        good = (place >= 0) & (c[place] > 0)
        if not good.any():
            continue
        first, second, place = first[good], second[good], place[good]
        score = c[place] * np.sqrt(np.minimum(np.minimum(n[place], n[first]), n[second]))
        best = score >= score.max() * (1.0 - 1e-9)
        square[k] = float((c[first] * c[second] / c[place])[best].mean())
        one[k], two[k] = indices[first[best][0]], indices[second[best][0]]
    return square, one, two


def triangle_signs(pairs: AgreementPairs, size: Floats) -> Floats:
    """The annotator k* with most evidence gets the sign of s^2 + sum of c; others that of their c[k, k*].

    Those who share nothing with k* get it from the ones who have a sign already. In the end every sign is decided once
    more by all partners, as c[k, k*] may rest on a single item.
    """
    M = len(size)
    nc = like(pairs.n, pairs.n.data * pairs.c.data)
    mean_n = np.asarray(pairs.n.sum(axis=1)).ravel() / np.maximum(np.diff(pairs.n.indptr), 1)
    sure = mean_n * size**2 + np.asarray(nc.sum(axis=1)).ravel()
    sign, group = np.zeros(M), groups_of(pairs.n)
    most = np.zeros(group.max(initial=0) + 1)
    np.maximum.at(most, group, np.abs(sure))
    star = np.flatnonzero(np.abs(sure) >= most[group] * (1.0 - 1e-9))  # all that are equally sure: no order decides
    sign[star] = np.where(sure[star] >= 0.0, 1.0, -1.0)
    while True:
        support = near_zero(nc @ (sign * np.where(np.isin(np.arange(M), star), 1.0, size)))
        new = (sign == 0.0) & (support != 0.0)
        if not new.any():
            break
        sign[new] = np.sign(support[new])
    support = near_zero(nc @ (sign * size))
    return np.where(support != 0.0, np.sign(support), np.where(sign == 0.0, 1.0, sign))


@declared
class Triangular(PairSkills):
    """Skills from triangles: c_ik c_jk / c_ij = s_k^2.

    Of all pairs of partners the most informative one is taken for each annotator, which attains the minimax rate
    with two classes and full overlap. No iteration, no start. The authors' rule (greatest |c_ij|) is for equal
    overlap; here a pair counts by its common items too.

    Parameters
    ----------
    max_partners
        How many partners of each annotator are used, at most.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(500, n_annotators=20, n_classes=3, votes_per_item=10, random_state=0)
    >>> cw.aggregate(crowd.votes, "triangular").score(crowd.truth) > 0.9
    True
    """

    key = "triangular"

    max_partners: Annotated[int, Bounds(minimum=2)] = 64
    _partners: list[Ints] = field(init=False)

    def _skills(self, pairs: AgreementPairs, votes: Votes, gold: Ints | None, ends: Ends, rounds: Rounds) -> Floats:
        M = votes.n_annotators
        square, *self._partners = best_triangles(pairs, self.max_partners)
        size = np.sqrt(np.minimum(square, ends[1] ** 2))
        size[M:] = 1.0
        unknown = np.isnan(size)
        if unknown.any():  # part of no triangle: the strength of an average pair
            size[unknown] = np.sqrt(np.abs(np.average(pairs.c.data, weights=pairs.n.data))) if pairs.n.nnz else 0.5
        return size * triangle_signs(pairs, size)

    def _variance(self, pairs: AgreementPairs, votes: Votes, gold: Ints | None, skill: Floats) -> Floats:
        return triangle_variance(votes, gold, pairs, np.abs(skill), *self._partners)
