"""Confusion models, from one number per annotator to a full matrix, each with a prior learned from the votes.

These are the models that ``auto`` averages. They differ in what may differ between two annotators:

=============  ==================================================  ==================  ================================
model          theta[m, k, l] = P(m says l, truth k)               own numbers         wrong answers
=============  ==================================================  ==================  ================================
``Coin``       w[m] if l = k, else (1 - w[m]) / (K - 1)            1                   spread evenly
``Vector``     w[m, k] if l = k, else (1 - w[m, k]) / (K - 1)      K                   spread evenly
``Habit``      t[m] [l = k] + (1 - t[m]) x[m, l]                   K                   the annotator's favourite labels
``Full``       anything                                            K (K - 1)           which class is taken for which
=============  ==================================================  ==================  ================================

All are fitted as ``anchored`` is (see :mod:`crowdwise.methods.ds_anchored`): a share ``anchor`` of the counts is that
of vote shares, so that no class drifts from what its label means, and a last step without it gives the matrices that
the votes support. Here the vote shares are weighted by the information in a vote. Where a few careful annotators stand
against many lenient or careless ones, plain shares would themselves change what a label means (a grade up, say).

==============  ==============  ============  ====================================================================
symbol          code            shape         equation
==============  ==============  ============  ====================================================================
q[n, k]         posterior       N x K         softmax_k( log pi_k + sum_votes log theta[m, k, l] )
t[m]            ``skill()``     M             (K w[m] - 1) / (K - 1), at least 0: agreement beyond chance
v[n, k]         ``anchor``      N x K         shares of the votes on n, each weighted by t[m]^2
c[m, l, k]      ``counts``      M x L x K     (1 - a) sum q[n, k] + a sum v[n, k], over m's votes for l
b               ``pseudo``      as the model  strength * base: the crowd's own averages, so many votes strong
theta           ``table()``     M x L x K     the model's numbers from c + b
t[m], x[m, l]   ``habits()``    M, M x L      fixed point of: knew[m, l] = c[m, l, l] t / (t + (1 - t) x[l]),
                                              t ~ sum_l knew + b, (1 - t) x[l] ~ sum_k c[m, l, k] - knew[m, l] + b
==============  ==============  ============  ====================================================================

A vote of an annotator who is right with probability w, and wrong evenly, carries information of order t^2 (the first
term of its mutual information with the truth, for a class prior that is not too uneven), hence the weights.

The strength of a prior is the one under which counts are most probable (Dirichlet-multinomial). ``anchored`` learns it
once, from counts against the majority's labels; where the majority is poor, its mistakes look like everybody's, good
and bad annotators look alike, and the prior makes them so. Here priors and vote weights are therefore learned
``ROUNDS`` times, each time from the labels of the fit before: empirical Bayes, by alternation. Strengths are taken from
a grid of steps of 10^(1/4), so that rounding cannot move them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np

from crowdwise.core import em, starts
from crowdwise.core.em import Family, Params, Part, Stats
from crowdwise.core.loop import Callback
from crowdwise.core.numerics import Floats, Ints, clamp, dirichlet_multinomial, normalise, safe_log, winners
from crowdwise.core.shrinkage import one_coin_table, own_accuracy
from crowdwise.core.unseen import scores_with_unseen
from crowdwise.core.vote_sums import tally
from crowdwise.data.votes import Votes
from crowdwise.methods.ds_anchored import Anchor

ROUNDS = 3
"""How often priors are learned, each time from the labels of the fit before."""
STRENGTHS: Floats = np.logspace(-2.0, 4.0, 25)
"""The pseudo-votes a prior can be worth."""
MIN_SKILL = 1e-3
"""The least t: where all annotators of an item are at chance, their votes count alike."""
INNER = 15
"""Passes of the fixed point for habits, from a start that is right where counts are many."""


def best_strength(counts: Floats, base: Floats, used: Ints) -> float:
    """The strength on the grid under which counts (rows on the last axis) are most probable; the largest without any.

    The likelihood has one peak in practice: every fourth strength is tried, then the neighbours of the best.
    """
    if not used.any():
        return float(STRENGTHS[-1])
    c, b = counts[used], np.broadcast_to(base, counts.shape)[used]
    found: dict[int, float] = {}

    def value(i: int) -> float:
        if i not in found:
            found[i] = dirichlet_multinomial(c, STRENGTHS[i] * b)
        return found[i]

    best = max(range(0, len(STRENGTHS), 4), key=value)
    for step in (2, 1):
        best = max((i for i in (best, best - step, best + step) if 0 <= i < len(STRENGTHS)), key=value)
    return float(STRENGTHS[best])


def several(counts: Floats) -> Ints:
    """Who has more than one vote: the others carry no information on how much annotators differ."""
    return np.asarray(counts.sum(axis=(1, 2)) > 1.0 + 1e-9)


class ConfusionModel(Protocol):
    """How theta[m, l, k] comes from counts, with a prior learned from hard counts."""

    name: ClassVar[str]
    words: ClassVar[str]

    @classmethod
    def learned(cls, counts: Floats) -> Self: ...

    def table(self, counts: Floats) -> Floats: ...

    def log_prior(self, table: Floats) -> float: ...


@dataclass(frozen=True)
class Accuracies:
    """Right votes and wrong ones, which are spread evenly over the other labels: what the first two models count."""

    pseudo: Floats
    """Right and wrong votes of the prior, on the last axis."""
    name: ClassVar[str]
    words: ClassVar[str]
    by_class: ClassVar[bool]

    @classmethod
    def right_and_wrong(cls, counts: Floats) -> Floats:
        """The right and wrong votes of each annotator, on the last axis."""
        right, said = np.einsum("mkk->mk", counts), counts.sum(axis=1)
        if not cls.by_class:
            right, said = right.sum(axis=1), said.sum(axis=1)
        return np.stack([right, said - right], axis=-1)

    @classmethod
    def learned(cls, counts: Floats) -> Self:
        seen = cls.right_and_wrong(counts)
        base = normalise(seen.sum(axis=0) + 0.01, axis=-1)
        return cls(best_strength(seen, base, several(counts)) * base)

    def accuracy(self, counts: Floats) -> Floats:
        """The share of right votes, with those of the prior."""
        return normalise(self.right_and_wrong(counts) + self.pseudo, axis=-1)[..., 0]

    def table(self, counts: Floats) -> Floats:
        return one_coin_table(self.accuracy(counts), counts.shape[1])

    def log_prior(self, table: Floats) -> float:
        k = np.arange(self.pseudo.size // 2)  # where classes share an accuracy, the first stands for all
        both = safe_log(np.stack([table[:, k, k], table[:, (k + 1) % table.shape[1], k]], axis=2)).sum(axis=0)
        return float((self.pseudo * both).sum())


class Coin(Accuracies):
    """One accuracy per annotator."""

    name = "coin"
    words = "one accuracy per annotator"
    by_class = False


class Vector(Accuracies):
    """One accuracy per annotator and class."""

    name = "vector"
    words = "an accuracy per annotator and class"
    by_class = True


@dataclass(frozen=True)
class Habit:
    """The truth, or a label drawn from the annotator's habit."""

    knowing: Floats
    """Known and habitual answers of the prior: 2."""
    strategy: Floats
    """Habitual answers of the prior by label: L."""
    name: ClassVar[str] = "habit"
    words: ClassVar[str] = "annotators who know, or answer from habit"

    @classmethod
    def learned(cls, counts: Floats) -> Self:
        K = counts.shape[1]
        # Half a vote of each kind at the start, so that a single vote is no certainty.
        weak = cls(np.full(2, 0.5), np.full(K, 0.5 / K))
        knew, spam = weak.habits(counts)[2:]
        both = np.stack([knew, spam.sum(axis=1)], axis=1)
        base, label = normalise(both.sum(axis=0) + 0.01, axis=0), normalise(spam.sum(axis=0) + 0.01, axis=0)
        knowing = best_strength(both, base, several(counts))
        strategy = best_strength(spam, label, spam.sum(axis=1) > 1.0 + 1e-9)
        return cls(knowing * base, strategy * label)

    def habits(self, counts: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """t[m], x[m, l], and the answers known (M) and from habit (M x L) that they come from."""
        right, said, given = np.einsum("mll->ml", counts), counts.sum(axis=2), counts.sum(axis=1)
        # (1 - t) x[l] is how often l is said where it is wrong.
        elsewhere = given.sum(axis=1, keepdims=True) - given
        wrong = (said - right + self.strategy) / (elsewhere + self.strategy.sum() + 1e-12)
        u = np.clip(wrong.sum(axis=1), 0.05, 0.95)
        t, x = 1.0 - u, normalise(wrong, axis=1)
        for _ in range(INNER):
            knew = right * (t[:, None] / (t[:, None] + (1.0 - t[:, None]) * x + 1e-300))
            spam = np.maximum(said - knew, 0.0)
            known = knew.sum(axis=1)
            t = np.clip((known + self.knowing[0]) / (known + spam.sum(axis=1) + self.knowing.sum()), 1e-6, 1.0 - 1e-6)
            x = normalise(spam + self.strategy, axis=1)
        return t, x, known, spam

    def table(self, counts: Floats) -> Floats:
        t, x = self.habits(counts)[:2]
        K = x.shape[1]
        out = np.repeat(((1.0 - t)[:, None] * x)[:, :, None], K, axis=2)
        out[:, np.arange(K), np.arange(K)] += t[:, None]
        return out

    def log_prior(self, table: Floats) -> float:
        """From the table alone: the labels said where they are wrong are (1 - t) x."""
        k = np.arange(table.shape[1])
        wrong = table[:, k, (k + 1) % len(k)]
        u = wrong.sum(axis=1)
        logs = safe_log(np.stack([1.0 - u, u])).sum(axis=1)
        return float(self.knowing @ logs + self.strategy @ safe_log(wrong / u[:, None]).sum(axis=0))


@dataclass(frozen=True)
class Full:
    """Anything, shrunk towards half the crowd's matrix and half the annotator's own coin."""

    pseudo: Floats
    """M x L x K pseudo-votes."""
    name: ClassVar[str] = "full"
    words: ClassVar[str] = "a full confusion matrix per annotator"

    @classmethod
    def learned(cls, counts: Floats) -> Self:
        K = counts.shape[1]
        crowd = normalise(counts.sum(axis=0) + 0.01, axis=0)
        base = 0.5 * crowd + 0.5 * one_coin_table(own_accuracy(counts), K)
        rows, around = counts.transpose(0, 2, 1), base.transpose(0, 2, 1)
        return cls(best_strength(rows, around, several(counts)) * base)

    def table(self, counts: Floats) -> Floats:
        return normalise(counts + self.pseudo, axis=1)

    def log_prior(self, table: Floats) -> float:
        return float(np.vdot(self.pseudo, safe_log(table)))


CONFUSION_MODELS: tuple[type[ConfusionModel], ...] = (Coin, Vector, Habit, Full)
"""From the simplest on."""


def skill(counts: Floats) -> Floats:
    """t[m]: how far an annotator agrees with the labels beyond chance, shrunk like a coin's accuracy."""
    K = counts.shape[1]
    w = Coin.learned(counts).accuracy(counts)
    return np.asarray(np.maximum((K * w - 1.0) / (K - 1.0), MIN_SKILL))


def weighted_shares(votes: Votes, gold: Ints | None, counts: Floats) -> Floats:
    """v[n, k]: vote shares, each vote weighted by t[m]^2; certainty where the class is known."""
    return clamp(normalise(tally(votes, skill(counts) ** 2), axis=1), gold)


@dataclass(frozen=True)
class ModelFamily(Family):
    """The maximisation step of a confusion model, with anchored counts."""

    model: ConfusionModel
    anchor: Anchor
    class_prior: Floats | None
    past: Floats | None = None
    """M x L x K counts of earlier performance."""

    def maximise(self, stats: Stats) -> Params:
        return self.free(self.anchor.mixed(stats))

    def free(self, stats: Stats) -> Params:
        """The step without the anchor."""
        counts = stats.table() if self.past is None else stats.table() + self.past
        return stats.params(self.model.table(counts), self.class_prior)

    def objective(self, log_likelihood: float, params: Params) -> float:
        K = params.log_score.shape[1]
        table = params.log_score.reshape(-1, K, K)
        prior = self.model.log_prior(np.exp(table))
        if self.past is not None:
            prior += float(np.vdot(self.past, table))
        return self.anchor.objective(log_likelihood, params) + prior


@dataclass(frozen=True)
class Fitted:
    """A confusion model, fitted."""

    model: ConfusionModel
    params: Params
    stats: Stats
    posterior: Floats
    iterations: int
    converged: bool

    def predict(self, part: Part) -> Floats:
        """The posterior of other votes, of which annotators not seen in the fit answer like the crowd as a whole."""
        score = scores_with_unseen(self.params.log_score, self.stats.counts, part.n_annotators, part.n_classes)
        return em.expect(part, Params(score, self.params.log_prior), posterior=True)[1]


def fit_confusion_model(
    model: type[ConfusionModel], votes: Votes, gold: Ints | None = None, item_prior: Floats | None = None, *,
    anchor: float, class_prior: Floats | None = None, past: Floats | None = None, max_iter: int = 200,
    tol: float = 1e-6, callback: Callback | None = None, restart: int = 0,
) -> Fitted:  # fmt: skip
    """A model with its prior and its anchor learned ``ROUNDS`` times, then one step without the anchor.

    ``past`` (M x L x K counts) is evidence like the votes: it counts for the prior, the anchor and every step.
    """
    part = Part.of(votes, gold, item_prior)
    q = starts.gold_weighted(votes, gold)
    stats, passes = em.statistics(part, q), 0
    for _ in range(ROUNDS):
        labels = em.statistics(part, winners(q)).table()
        labels = labels if past is None else labels + past
        at_votes = em.statistics(part, weighted_shares(votes, gold, labels))
        family = ModelFamily(model.learned(labels), Anchor(anchor, at_votes), class_prior, past)
        fit = em.run_em(part, family, stats, max_iter=max_iter, tol=tol, callback=callback, restart=restart)
        stats, q = em.expect(part, fit.params, posterior=True)
        passes += fit.iterations
    params = family.free(stats)
    stats, q = em.expect(part, params, posterior=True)
    return Fitted(family.model, params, stats, q, passes, fit.converged)
