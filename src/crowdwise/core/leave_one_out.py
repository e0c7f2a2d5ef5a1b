"""Leave-one-out: the posterior of an item without the vote that is being judged, and accuracies from it.

An annotator judged by a consensus they took part in looks better than they are, the more so the fewer votes an item
has. So each vote is judged by the posterior of its item given the *other* votes. For that the posterior of any method
is turned into confusion matrices: its expected counts, shrunk towards the crowd's and the annotator's own accuracy
(:func:`crowdwise.core.shrinkage.learned_prior`), from which one vote can be taken out again. ``PASSES`` passes of EM
make matrices and posterior fit each other: shares of votes are not probabilities, and likelihood alone is too sure of
itself where votes are few. They are not made where they would rename classes (``OVERTURNED``), since the consensus
decides what the classes mean, nor in a crowd of rules, which are judged by how often each speaks
(:func:`crowdwise.core.crowd_kind.rates`).

The passes cost twenty times one look at the votes, so one :class:`LeaveOneOut` is made (``LeaveOneOut.of(votes, q)``,
or ``consensus.leave_one_out``) and passed on. A method whose own posterior is fit to judge (``judges_annotators``)
needs none of them for how often annotators are right: p below is by its own posterior.

==============  =====================  =============================================================================
symbol          code                   equation
==============  =====================  =============================================================================
theta[m,k,l]    ``theta``              (c + b) / sum_l (c + b), c the consensus' counts
pi[k]           ``prior``              mean of the posterior; or what is known of an item before any vote
r[s, k]         ``others(k)``          P(item of vote s is k | votes but s) ∝ exp( logit[n, k] - w log theta[m, k, l] )
x[m, l, k]      ``counts``             sum over m's votes for l of r[s, k]
a[s]            ``right``              r[s, l]: the probability that vote s is right, by the others
q[n, k]         ``posterior()``        softmax of logit[n], corrected for votes that depend on each other
p[s]            ``expected_right``     q[n, l]: the probability that vote s is right, by all votes
interval        see below              of sum_s p[s] right votes in n, with variance sum_s p (1 - p)
==============  =====================  =============================================================================

r and a take votes as independent given the class, and serve comparisons between annotators. How often an annotator is
right is judged by the posterior of all votes, corrected (:mod:`crowdwise.core.dependence`): under that one the expected
number of right votes has no bias, whereas others who err together confirm each other. The only vote on an item says
nothing about its annotator: p is the mean of the others, a half where there are none.

**Intervals** (:func:`accuracy_with_interval`) know two errors: that of the votes (``share_interval``), and that of the
crowd, which is in all of its annotators at once: they are measured by a consensus that is wrong where the crowd is. On
the scale of log-odds its standard deviation is ``CROWD_SD``, less with gold labels
(:func:`crowdwise.core.dependence.crowd_spread`), none where the truth of all votes is known. The squares of both are
added. An annotator's agreement with the labels is within the interval, too: that is the accuracy where all are right.

Memory grows with the votes and with annotators x classes², never with votes x classes. With more than ``MAX_CELLS``
cells of matrices, every annotator is taken to be right with one probability and wrong evenly (:func:`one_coin_right`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crowdwise import kernels
from crowdwise.core import em
from crowdwise.core.crowd_kind import crowd_kind, own_options, rates
from crowdwise.core.dependence import Dependence, corrected, crowd_spread
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.intervals import quantile
from crowdwise.core.loop import Rounds
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, safe_log, share_with_interval, softmax
from crowdwise.core.shrinkage import expit, learned_prior
from crowdwise.core.shrinkage import logit as log_odds
from crowdwise.core.sparse_coin import SparseCoin
from crowdwise.core.vote_parts import VotePart, VoteParts, usual
from crowdwise.core.vote_sums import per_annotator, single_annotator_items
from crowdwise.data.votes import Votes

MAX_CELLS = 2**25
"""The most cells (annotators x classes x classes) for which matrices are made."""
PASSES = 20
CROWD_SD = 0.6
"""The standard deviation, between crowds, of the log-odds of an annotator's real against the estimated accuracy."""
SURE, OVERTURNED = 0.9, 0.25
"""The passes are not made where classes with a quarter of the items of probability 0.9 or more would be renamed."""


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The confusion matrices behind a posterior, and the posterior without each vote in turn (see the module)."""

    votes: Votes
    theta: Floats
    pseudo: Floats
    prior: Floats
    logit: Floats
    """N x K, not normalised; a gold label has all the mass."""
    gold: Ints
    """N class codes, -1 unknown."""
    cell: Ints
    log_theta: Floats
    dependence: Dependence
    item_prior: Floats | None = None

    @classmethod
    def of(
        cls, votes: Votes, q: Floats, gold: Ints | None = None, item_prior: Floats | None = None,
        dependence: Dependence | None = None,
    ) -> LeaveOneOut:  # fmt: skip
        """From votes and a posterior; ``item_prior`` holds log P(class of n) before any vote, N x K.

        Where no dependence is given, that of real crowds is taken, and of the gold labels.
        """
        M, K, N = votes.n_annotators, votes.n_classes, len(votes)
        dependence = usual(VoteParts.whole(votes, gold, item_prior), lambda _: q) if dependence is None else dependence
        gold = np.full(N, -1, dtype=np.int32) if gold is None else gold
        part, first = Part.of(votes, gold, item_prior), clamp(q, gold)

        def moved(params: Params) -> Floats:
            return moved_classes(first, em.expect(part, params, posterior=True)[1])

        kind = dependence.kind or crowd_kind(votes)
        stats, rules = em.statistics(part, first), kind == "rules"
        if not rules:
            stats = refined(stats, part.expect, moved, item_prior is not None)
        pseudo = np.asarray(learned_prior(stats.table()))
        matrices = scored(stats, pseudo)
        params = rates(stats) if rules else matrices
        log_theta, before = params.log_score, params.log_prior if item_prior is None else item_prior
        logit = kernels.reference.logits(votes.indptr, part.cell, part.weight, log_theta, before)
        logit -= logit.max(axis=1, keepdims=True)
        return cls(
            votes=votes, theta=np.exp(matrices.log_score).reshape(M, K, K).transpose(0, 2, 1).copy(),
            pseudo=pseudo.transpose(0, 2, 1), prior=normalise(stats.mass + 1e-9, axis=0), logit=logit, gold=gold,
            cell=part.cell, log_theta=log_theta, dependence=dependence, item_prior=item_prior,
        )  # fmt: skip

    @cached_property
    def item(self) -> Ints:
        """The item of each vote."""
        return self.votes.item

    @cached_property
    def norm(self) -> Floats:
        """S: log of the sum over classes of exp(logit - log theta)."""
        norm = np.full(self.votes.n_votes, -np.inf)
        for k in range(self.votes.n_classes):
            norm = np.logaddexp(norm, self._without(k))
        return norm

    @cached_property
    def counts(self) -> Floats:
        """M x K x K (annotator, truth, label), by the others."""
        M, K, _ = self.theta.shape
        columns = [np.bincount(self.cell, weights=self.others(k), minlength=M * K) for k in range(K)]
        return np.stack(columns, axis=1, dtype=np.float64).reshape(M, K, K).transpose(0, 2, 1).copy()

    @cached_property
    def right(self) -> Floats:
        """S: the probability that the vote is right, by the others."""
        return self.others(self.votes.label)

    def others(self, k: Any) -> Floats:
        """r[s, k] for all votes, of one class or one for each vote."""
        return np.asarray(np.exp(self._without(k) - self.norm))

    def _without(self, k: Any) -> Floats:
        """logit[n, k] - w log theta[m, k, l] of every vote; minus infinity where the truth is known to be another."""
        own = self.log_theta[self.cell, k]
        column = self.logit[self.item, k] - (own if self.votes.weight is None else self.votes.weight * own)
        if (self.gold >= 0).any():
            known = self.gold[self.item]
            column = np.where(known >= 0, np.where(known == k, 0.0, -np.inf), column)
        return np.asarray(column)

    def posterior(self) -> Floats:
        """N x K, given all votes, corrected for their dependence."""
        return corrected(softmax(self.logit), self.votes, self.dependence, self.item_prior, self.gold)

    def expected_right(self) -> tuple[Floats, Floats]:
        """Each annotator's expected number (weight) of right votes, judged by all, and its variance; M each."""
        return judged(judgement_sums(VotePart(self.votes, self.gold, item_prior=self.item_prior), self.posterior()))

    def per_annotator(self, x: Floats) -> Floats:
        """The sum of a quantity over each annotator's votes."""
        return np.bincount(self.votes.annotator, weights=x, minlength=self.votes.n_annotators).astype(np.float64)


def judgement_sums(part: VotePart, q: Floats) -> Floats:
    """4 x M, by the posterior of all votes: the expected right votes, their variance and their weight, without the only
    votes on items; the weight of these."""
    votes, p = part.votes, q[part.votes.item, part.votes.label]
    single = single_annotator_items(votes) & (part.item_prior is None)
    if part.gold is not None:
        single &= part.gold < 0
    alone = single[votes.item]
    p = np.where(alone, 0.0, p)
    return np.stack([per_annotator(votes, x) for x in (p, p * (1.0 - p), ~alone, alone)])


def judged(sums: Floats) -> tuple[Floats, Floats]:
    """Each annotator's expected number (weight) of right votes, and its variance, from :func:`judgement_sums`."""
    right, unsure, taught, single = sums
    mean = (right + 0.5) / (taught + 1.0)
    return right + mean * single, unsure + mean * (1.0 - mean) * single


def refined(
    start: Stats, expect: Callable[[Params], Stats], moved: Callable[[Params], Floats], has_item_prior: bool = False
) -> Stats:
    """The statistics after some passes of EM (``expect``) from those of a posterior, unless classes would be renamed.

    ``moved``: :func:`moved_classes` from the first posterior to that of some parameters.
    """
    stats, pseudo = start, np.empty(0)
    for i in range(PASSES):
        pseudo = np.asarray(learned_prior(stats.table())) if i % 5 == 0 else pseudo
        params = scored(stats, pseudo, has_item_prior)
        stats = expect(params)
    return start if renamed_share(moved(params)) > OVERTURNED else stats


def scored(stats: Stats, pseudo: Floats, has_item_prior: bool = False) -> Params:
    """The parameters from counts and pseudo-counts; what is known of items before any vote has the class prior."""
    log_score = safe_log(normalise(stats.table() + pseudo, axis=1)).reshape(stats.counts.shape)
    pi = normalise(stats.mass + 1e-9, axis=0)
    return Params(log_score, (np.zeros_like(pi) if has_item_prior else np.log(pi))[None])


def moved_classes(first: Floats, q: Floats) -> Floats:
    """K x K: of the items that a posterior is sure of, how many went from a class to which by another posterior."""
    K = first.shape[1]
    sure = first.max(axis=1) >= SURE
    moved = np.bincount(first[sure].argmax(axis=1) * K + q[sure].argmax(axis=1), minlength=K * K)
    return moved.reshape(K, K).astype(np.float64)


def renamed_share(moved: Floats) -> float:
    """The share of them in classes of which most went to one and the same other."""
    return float(moved[moved.argmax(axis=1) != np.arange(len(moved))].sum() / max(moved.sum(), 1.0))


def accuracy_with_interval(
    right: Floats, total: Floats, unsure: Floats, agreement: Floats, known: int, level: float = 0.95,
    copied: bool = False,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Each annotator's accuracy, nan without votes, and the ends of its interval (see the module); M each.

    ``right`` of ``total`` votes are expected to be right, with variance ``unsure``; ``agreement`` is the share of votes
    that say what the label says, ``known`` the number of gold labels; ``copied``: whether all votes agree.
    """
    value, low, high = share_with_interval(right, total, unsure, level)
    with np.errstate(divide="ignore"):
        p = (right + 0.5) / (total + 1.0)
        common = quantile(level) * crowd_spread(CROWD_SD, p, known, copied)
        x, crowd = log_odds(p), np.where(unsure > 0.0, common, 0.0)
        low, high = (expit(x + side * np.hypot(x - log_odds(end), crowd)) for side, end in ((-1, low), (1, high)))
    return value, np.fmin(np.fmin(low, agreement), value), np.fmax(np.fmax(high, agreement), value)


def matrices_fit(votes: Votes) -> bool:
    """Whether there is room for the confusion matrices."""
    return votes.n_annotators * votes.n_classes**2 <= MAX_CELLS


def is_sparse(votes: Votes, item_prior: Floats | None) -> bool:
    """Whether there are too many classes for any table over them: :func:`accuracies` goes by the votes alone."""
    return not matrices_fit(votes) and item_prior is None and len(votes) * votes.n_classes > MAX_CELLS


def accuracies(
    votes: Votes, q: Floats, gold: Ints | None = None, item_prior: Floats | None = None,
    dependence: Dependence | None = None,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Each annotator's expected number (weight) of right votes, judged by all, and its variance; M each."""
    M, K = votes.n_annotators, votes.n_classes
    if K < 2:  # nothing to be wrong about
        return per_annotator(votes), np.zeros(M)
    own = own_options(votes) if item_prior is None else None
    if own is not None or is_sparse(votes, item_prior):
        coin = SparseCoin.fit(votes, gold, Rounds(PASSES, votes.n_votes), 0.0, own)
        return expected_right(votes, coin.right, gold, has_item_prior=False, n_classes=coin.options[votes.item])
    if not matrices_fit(votes):
        return expected_right(votes, one_coin_right(votes, q, gold, item_prior), gold, item_prior is not None)
    return LeaveOneOut.of(votes, q, gold, item_prior, dependence).expected_right()


def expected_right(
    votes: Votes, right: Floats, gold: Ints | None, has_item_prior: bool, n_classes: Any = None
) -> tuple[Floats, Floats]:
    """With one accuracy w per annotator: sum_s p[s] and sum_s p (1 - p), from a[s].

    w maximises sum_s log( w a + (1 - w) (1 - a) / (K - 1) ), and p is w a over that. The only vote on an item has no
    others: a = 1/K, which carries no information about w.
    """
    K, m, M = votes.n_classes if n_classes is None else n_classes, votes.annotator, votes.n_annotators
    if not has_item_prior:
        single = np.diff(votes.indptr)[votes.item] < 2
        right = np.where(single if gold is None else single & (gold[votes.item] < 0), 1.0 / K, right)
    n, wrong = per_annotator(votes), (1.0 - right) / (K - 1.0)
    w, p = np.full(M, 0.5), right
    for _ in range(100):
        own = w[m]
        p = own * right / np.maximum(own * right + (1.0 - own) * wrong, 1e-300)
        new = np.clip((per_annotator(votes, p) + 0.5) / (n + 1.0), 1e-6, 1.0 - 1e-6)
        done, w = float(np.abs(new - w).max(initial=0.0)) < 1e-5, new
        if done:
            break
    return per_annotator(votes, p), per_annotator(votes, p * (1.0 - p))


def one_coin_right(votes: Votes, q: Floats, gold: Ints | None = None, item_prior: Floats | None = None) -> Floats:
    """a[s] with one accuracy w per annotator: a vote for l adds b = log( w (K - 1) / (1 - w) ) to l.

    Memory is that of the posterior.
    """
    N, K = q.shape
    M, m, item, label, weight = votes.n_annotators, votes.annotator, votes.item, votes.label, votes.weights
    place = item.astype(np.int64) * K + label
    n = np.bincount(m, weights=weight, minlength=M)
    q = clamp(q, gold)
    for _ in range(PASSES):
        hits = np.bincount(m, weights=weight * q[item, label], minlength=M)
        mean = hits.sum() / max(float(n.sum()), 1e-300)
        w = np.clip((hits + mean) / (n + 1.0), 1e-3, 1.0 - 1e-3)
        b = (np.log(w * (K - 1.0)) - np.log1p(-w))[m] * weight
        before = np.log(normalise(q.sum(axis=0) + 1e-9, axis=0))[None] if item_prior is None else item_prior
        logit = before + np.bincount(place, weights=b, minlength=N * K).reshape(N, K)
        logit -= logit.max(axis=1, keepdims=True)
        q = clamp(softmax(logit), gold)
    e = np.exp(logit)
    own = e[item, label]
    mine, rest = np.exp(logit[item, label] - b), np.maximum(e.sum(axis=1)[item] - own, 0.0)
    a = mine / np.maximum(mine + rest, 1e-300)
    return np.asarray(a if gold is None else np.where(gold[item] >= 0, gold[item] == label, a))
