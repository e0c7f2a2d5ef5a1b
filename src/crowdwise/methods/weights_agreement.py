"""One weight per annotator, earned by agreeing with the consensus: wawa, zero-based skill, IWMV; and ZenCrowd.

The first three count weighted votes. Given the labels h, an annotator's right votes r[m] are those that agree with h;
given the right votes, a rule makes weights v[m]; given the weights, the votes are counted again.

====================  ================================================  ======================================
method                weight v[m] of a vote                             rounds
====================  ================================================  ======================================
``wawa``              r[m] / n[m]                                       one, from the majority
``zero-based-skill``  s[m], moved by a rate towards r[m] / n[m]         many, with a falling rate
``iwmv``              K r[m] / n[m] - 1                                 until the labels stay
====================  ================================================  ======================================

=========  ===============  ======  ==========================================================================
symbol     code             shape   equation
=========  ===============  ======  ==========================================================================
t[n, k]    ``tally``        N x K   sum over the votes for k on n of v[m]
q[n, k]    ``_count``       N x K   t[n, k] / sum_k t[n, k]; of ``iwmv``: softmax_k( K / (K - 1) t[n, k] )
h[n, k]    ``winners``      N x K   1 where q[n, k] is the largest, tied classes evenly; gold label if any
n[m]       ``total``        M       the weight of the votes of m
r[m]       ``agreement``    M       sum over the votes of m of h[n, label]
=========  ===============  ======  ==========================================================================

The weights of ``iwmv`` are the log-odds log( w (K - 1) / (1 - w) ) to first order around chance, w = 1 / K, up to the
factor K / (K - 1); its posterior uses just that.

``zencrowd``: each answer of annotator m comes, with probability w[m], from a reliable state that says the truth, else
from an unreliable one that says any of the K labels alike:

    theta[m, k, l] = w[m] 1[l = k] + (1 - w[m]) / K

with a Beta prior on w[m] (a and b pseudo-answers of either state) and a uniform prior on the classes. EM maximises
log-likelihood + sum_m ( a log w[m] + b log(1 - w[m]) ). With c = 1 / (K - 1), R right and W wrong expected votes, the
maximisation step is the root in [0, 1] of a quadratic,

    (R + W + a + b) w^2 - (R + a (1 - c) - (W + b) c) w - a c = 0.

Unlike in ``one-coin`` an unreliable answer carries no information, so no vote counts against its label.

``wawa`` and ``zero-based-skill`` are those of the Crowd-Kit library. H. Li and B. Yu, Error rate bounds and iterative
weighted majority voting for crowdsourcing (2014). G. Demartini, D. E. Difallah and P. Cudre-Mauroux, ZenCrowd:
leveraging probabilistic reasoning and crowdsourcing techniques for large-scale entity linking, WWW (2012).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from crowdwise.core import priors
from crowdwise.core.constraints import Bounds, Count, NonNegative, Share
from crowdwise.core.em import Params, Stats
from crowdwise.core.intervals import rate_interval, with_interval
from crowdwise.core.model import Callback, EMFit, EMModel, Family, Model, Rounds, SingleVotes, Votes, declared
from crowdwise.core.numerics import TIE, Floats, clamp, normalise, safe_log, share_interval, softmax, winners
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_parts import VotePart, VoteParts, right_sums
from crowdwise.core.vote_sums import per_annotator, tally


def agreement(votes: Votes, h: Floats) -> Floats:
    """r[m]: the weight of an annotator's votes that agree with h."""
    return per_annotator(votes, h[votes.item, votes.label])


def rate_of(right: Floats, total: Floats) -> Floats:
    """r[m] / n[m], and the pooled rate for annotators without votes."""
    pooled = right.sum() / max(total.sum(), 1e-300)
    return np.asarray(np.divide(right, total, out=np.full_like(total, pooled), where=total > 0))


CountVotes = Callable[[Votes, Floats], Floats]
"""The posterior of votes, each with the weight of its annotator."""


def labelled(part: VotePart, count: CountVotes, weight: Floats | None) -> Floats:
    """N x K: the labels of items by votes with some weights; by default those of the majority."""
    q = part.votes.shares() if weight is None else count(part.votes, weight)
    return clamp(winners(q), part.gold)


def agreements(parts: VoteParts, count: CountVotes, weight: Floats | None = None) -> Floats:
    """These sums of all parts, with :func:`labelled`."""
    zero = np.zeros(parts.names.n_annotators)
    return np.asarray(parts.total(lambda part: agreement(part.votes, labelled(part, count, weight)), zero))


def votes_of(parts: VoteParts) -> Floats:
    """n[m]: the weight of an annotator's votes."""
    return np.asarray(parts.total(lambda part: per_annotator(part.votes), np.zeros(parts.names.n_annotators)))


def alternate(
    parts: VoteParts, weigh: Callable[[Floats, Floats], Floats], count: CountVotes, max_iter: int,
    callback: Callback | None, value: Callable[[Floats, Floats, Floats], float] | None = None,
) -> tuple[Floats, Rounds]:  # fmt: skip
    """Weights from labels, labels from weights, from the majority until the labels stay.

    ``weigh(right, total)`` makes the weights, ``count(votes, weight)`` the posterior; ``value(weight, right, total)``
    is the objective after a round, where the method has one. Labels are not kept between rounds, but made again.
    """
    total, M = votes_of(parts), parts.names.n_annotators
    right = agreements(parts, count)
    rounds, before = Rounds(max_iter, float(total.sum()), callback), None
    for _ in rounds:
        weight = weigh(right, total)

        def compared(part: VotePart, weight: Floats = weight, before: Floats | None = before) -> Floats:
            new, old = labelled(part, count, weight), labelled(part, count, before)
            moved = (np.abs(new - old).max(axis=1, initial=0.0) > TIE).sum()
            return np.append(agreement(part.votes, new), moved)

        sums = parts.total(compared, np.zeros(M + 1))
        right, moved, before = sums[:M], float(sums[M] / max(parts.n_items, 1)), weight
        reached = None if value is None else value(weight, right, total)
        rounds.reached(reached, moved=moved, converged=moved == 0.0)
    return weight, rounds


@declared
class WeightedVote(Model, ABC):
    """The base of methods that count votes with one weight per annotator. A subclass gives ``_weights``.

    The vote of an unseen annotator weighs as much as the average vote of the fit.
    """

    in_parts = True
    reads_backwards = False
    single_votes: ClassVar[SingleVotes] = "certain"

    weight_: Floats = field(init=False)

    @abstractmethod
    def _weights(self, parts: VoteParts, callback: Callback | None) -> tuple[Floats, Rounds]: ...

    def _count(self, votes: Votes, weight: Floats) -> Floats:
        return normalise(tally(votes, weight), axis=1)

    def _columns(self, weight: Floats, right: Floats, total: Floats) -> dict[str, Any]:
        """The weights with their intervals, from the votes that agree with the labels."""
        return with_interval("skill", weight, *rate_interval(weight * total, total))

    def _fit_in_parts(self, parts: VoteParts, callback: Callback | None) -> dict[str, Any]:
        self.weight_, rounds = self._weights(parts, callback)
        weight, M, total = self.weight_, parts.names.n_annotators, votes_of(parts)
        self._unseen = float(weight @ total / max(total.sum(), 1e-300))

        def posterior(part: VotePart) -> Floats:
            return clamp(self._count(part.votes, weight), part.gold)

        def sums(part: VotePart) -> Floats:
            q = posterior(part)
            return np.append(agreement(part.votes, winners(q)), q.sum(axis=0))

        right, mass = np.split(parts.total(sums, np.zeros(M + parts.names.n_classes)), [M])
        fields = {"independent": posterior, "prior": normalise(mass, axis=0)}
        return fields | {"annotator_columns": self._columns(weight, right, total)} | rounds.outcome

    def _predict(self, votes: Votes) -> Floats:
        return self._count(votes, with_unseen(self.weight_, votes.n_annotators, self._unseen))


@declared
class AlternatingWeights(WeightedVote):
    """The base of methods that alternate between labels and weights, with :func:`alternate`.

    Parameters
    ----------
    max_iter
        The most rounds; the fit stops when no label changes.
    """

    max_iter: Count = 100


class Wawa(WeightedVote):
    """Worker agreement with the aggregate: a vote weighs how often its annotator agrees with the majority.

    One round: the majority, the agreement with it, the weighted votes. Gold labels replace the majority's.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=5, random_state=0)
    >>> cw.aggregate(crowd.votes, "wawa").score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "wawa"
    vote_shares = True

    def _weights(self, parts: VoteParts, callback: Callback | None) -> tuple[Floats, Rounds]:
        right = agreements(parts, self._count)
        rounds = Rounds(1, parts.n_votes)
        for _ in rounds:
            rounds.reached(converged=True)
        return rate_of(right, votes_of(parts)), rounds


@declared
class ZeroBasedSkill(WeightedVote):
    """Skills that move, step by step, towards the agreement with the labels they lead to.

    All skills start just above chance, 1/K. In each step the votes are counted with the skills as weights, and every
    skill moves by ``rate`` of the way to its annotator's agreement with the outcome: a gradient step on half the
    squared difference of the two. The rate is multiplied by ``rate_factor`` at every ``rate_steps``-th step, so that
    labels stop oscillating.

    Parameters
    ----------
    rate, rate_factor, rate_steps
        The learning rate, over 0 and at most 1, and its schedule.
    max_iter, tol
        The fit stops when no skill is further than ``tol`` from its agreement, or after ``max_iter`` steps.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=5, random_state=0)
    >>> skill = cw.aggregate(crowd.votes, "zero-based-skill").annotator_columns["skill"]
    >>> bool(abs(skill - crowd.parameters["accuracy"]).max() < 0.15)
    True
    """

    key = "zero-based-skill"
    vote_shares = True

    rate: Annotated[float, Bounds(above=0, maximum=1)] = 1.0
    rate_factor: Annotated[float, Bounds(above=0, maximum=1)] = 0.5
    rate_steps: Count = 20
    max_iter: Count = 100
    tol: NonNegative = 1e-5

    def _weights(self, parts: VoteParts, callback: Callback | None) -> tuple[Floats, Rounds]:
        total = votes_of(parts)
        skill = np.full(parts.names.n_annotators, 1.0 / parts.names.n_classes + 1e-5)
        rate, rounds = self.rate, Rounds(self.max_iter, parts.n_votes, callback)
        for iteration in rounds:
            if iteration % self.rate_steps == 0:
                rate *= self.rate_factor
            aim = rate_of(agreements(parts, self._count, skill), total)
            gap = float(np.abs(aim - skill).max(initial=0.0))
            rounds.reached(moved=gap, converged=gap <= self.tol)
            if not rounds.converged:
                skill = skill + rate * (aim - skill)
        return skill, rounds


class IWMV(AlternatingWeights):
    """Iterative weighted majority voting: a vote weighs K w - 1, with w the rate of agreement with the outcome.

    Votes of annotators at chance count nothing, votes of those below it count against their label.

    >>> import crowdwise as cw
    >>> votes = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=5, random_state=0).votes
    >>> cw.aggregate(votes, "iwmv").score(votes.truth) > cw.aggregate(votes, "majority").score(votes.truth)
    True
    """

    key = "iwmv"
    single_votes = "doubted"

    def _count(self, votes: Votes, weight: Floats) -> Floats:
        K = votes.n_classes
        return softmax(K / (K - 1.0) * tally(votes, weight))

    def _weights(self, parts: VoteParts, callback: Callback | None) -> tuple[Floats, Rounds]:
        self._classes = K = parts.names.n_classes

        def weigh(right: Floats, total: Floats) -> Floats:
            return K * rate_of(right, total) - 1.0

        return alternate(parts, weigh, self._count, self.max_iter, callback)

    def _columns(self, weight: Floats, right: Floats, total: Floats) -> dict[str, Any]:
        low, high = rate_interval(right, total)
        return with_interval("weight", weight, self._classes * low - 1.0, self._classes * high - 1.0)


def reliability(right: Floats, wrong: Floats, a: float, b: float, K: int) -> Floats:
    """The w in [0, 1] that maximises R log(w + (1-w)/K) + W log((1-w)/K) + a log w + b log(1-w).

    The derivative has the sign of -A w^2 + B w + a c with A, B as below and c = 1 / (K - 1). Of the two ways to write
    the positive root the one that does not subtract nearly equal numbers is taken.
    Without votes and prior: w = 0, chance.
    """
    c = 1.0 / (K - 1.0)
    A = right + wrong + a + b
    B = right + a * (1.0 - c) - (wrong + b) * c
    root = np.sqrt(B * B + 4.0 * A * a * c)
    high = np.divide(B + root, 2.0 * A, out=np.zeros_like(A), where=A > 0)
    low = np.divide(2.0 * a * c, root - B, out=np.zeros_like(A), where=root - B > 0)
    return np.asarray(np.clip(np.where(B > 0, high, low), 0.0, 1.0))


@dataclass(frozen=True)
class ReliableFamily(Family):
    """The maximisation step and the objective of ``zencrowd``."""

    a: float
    b: float
    class_prior: Floats | None

    def maximise(self, stats: Stats) -> Params:
        counts = stats.table()
        K = counts.shape[1]
        right = np.einsum("mkk->m", counts)
        wrong = np.maximum(counts.sum(axis=(1, 2)) - right, 0.0)
        w = reliability(right, wrong, self.a, self.b, K)
        return stats.params(((1.0 - w) / K)[:, None, None] + w[:, None, None] * np.eye(K), self.class_prior)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """log-likelihood + sum_m ( a log w + b log(1 - w) )."""
        w = reliabilities(params)
        return log_likelihood + float((self.a * safe_log(w) + self.b * safe_log(1.0 - w)).sum())


def reliabilities(params: Params) -> Floats:
    """w[m] back from the scores: theta right minus theta wrong."""
    K = params.log_score.shape[1]
    table = params.log_score.reshape(-1, K, K)
    return np.asarray(np.exp(table[:, 0, 0]) - np.exp(table[:, 1, 0]))


@declared
class ZenCrowd(EMModel):
    """Annotators who are reliable in a share of their answers and say anything in the others, by EM.

    Parameters
    ----------
    reliability, prior_strength
        The Beta prior on the share of reliable answers: ``prior_strength`` pseudo-answers, of which a share
        ``reliability`` is reliable. It stays in force through the fit. Strength 0: no prior.
    class_prior
        ``"uniform"``, ``"learned"``, or the probability of each class.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "zencrowd")
    >>> accuracy = crowd.parameters["accuracy"]
    >>> bool(abs(consensus.annotator_columns["reliability"] - (4 * accuracy - 1) / 3).max() < 0.2)
    True
    """

    key = "zencrowd"
    in_parts = True
    reads_backwards = False

    reliability: Share = 0.8
    prior_strength: NonNegative = 1.0
    class_prior: priors.ClassPrior = "uniform"

    def _family_of(self, parts: VoteParts) -> ReliableFamily:
        a, b = self.prior_strength * self.reliability, self.prior_strength * (1.0 - self.reliability)
        return ReliableFamily(a, b, priors.class_prior_counts(self.class_prior, parts.names))

    def _run(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit, dict[str, Any]]:
        params, fit, _ = super()._run(parts, callback)
        K, ends = parts.names.n_classes, share_interval(*right_sums(parts, params))
        low, high = (np.maximum((K * p - 1.0) / (K - 1.0), 0.0) for p in ends)
        return params, fit, {"annotator_columns": with_interval("reliability", reliabilities(params), low, high)}
