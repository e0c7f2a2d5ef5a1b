"""``stacked``: confusion models averaged by how well they predict held-out votes.

Confusion models, from one number per annotator to a full matrix, are each fitted to a part of the items and predict the
votes on the others (:func:`crowdwise.core.predictive.leave_one_out_scores`):

    p[j, v] = sum_k q[n, k] theta[m, k, l]

with theta and pi of model j from the items of other folds, and q from the votes of the *other* annotators on the item.
The answer is an average of the models, weighted so that together they predict best (stacking):

=============  ==================  ===========  ====================================================================
symbol         code                shape        equation
=============  ==================  ===========  ====================================================================
p[j, v]        exp ``log_p``       J x V        probability of the held-out votes of pair v (item, annotator)
w[j]           ``weights_``        J            towards argmax sum_v log sum_j w[j] p[j, v]; 0 under ``MIN_WEIGHT``
q[n, k]        posterior           N x K        sum_j w[j] q_j[n, k], each model fitted to all votes; q_1[n, k]
                                                where a single annotator voted
=============  ==================  ===========  ====================================================================

The weights solve a concave problem, by EM: w[j] <- mean over v of w[j] p[j, v] / sum_i w[i] p[i, v]. It starts with
equal weights and takes ``PASSES`` steps, so that models which predict about equally well keep about equal weights.

Three guards keep the meaning of labels: every model is anchored to vote shares as ``anchored`` is (to those of
the most informative annotators); no vote is predicted by parameters that have seen its item; and on single-annotator
items, where nothing could be predicted and the weights carry no information, the simplest model decides: the vote
stands, unless its annotator is worse than chance.

The weights are those of D. Wolpert, Stacked generalization, Neural Networks 5 (1992), for densities: P. Smyth and D.
Wolpert, Linearly combining density estimators via stacking, Machine Learning 36 (1999).

The models, each with a prior learned from the votes, differ in what may differ between two annotators:

=============  ==================================================  ==================  ================================
model          theta[m, k, l] = P(m says l, truth k)               own numbers         wrong answers
=============  ==================================================  ==================  ================================
``Coin``       w[m] if l = k, else (1 - w[m]) / (K - 1)            1                   spread evenly
``Vector``     w[m, k] if l = k, else (1 - w[m, k]) / (K - 1)      K                   spread evenly
``Habit``      t[m] [l = k] + (1 - t[m]) x[m, l]                   K                   the annotator's favourite labels
``Full``       anything                                            K (K - 1)           which class is taken for which
=============  ==================================================  ==================  ================================

All are fitted as ``anchored`` is (:mod:`crowdwise.methods.ds_dawid_skene`): a share ``anchor`` of the counts is that
of vote shares, so that no class drifts from what its label means, and a last step without it gives the matrices that
the votes support.

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

The strength of a prior is the one under which counts are most probable (Dirichlet-multinomial). Priors
and vote weights are learned ``ROUNDS`` times, each time from the labels of the fit before. Strengths are taken from
a grid of steps of 10^(1/4), so that rounding cannot move them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Protocol, Self

import numpy as np

from crowdwise.core import em, predictive, priors, starts
from crowdwise.core.constraints import Bounds, Count, NonNegative, Share
from crowdwise.core.em import Family, Params, Part, Stats
from crowdwise.core.loop import Callback, check_memory
from crowdwise.core.model import Model, Outcome, declared
from crowdwise.core.numerics import Floats, Ints, clamp, dirichlet_multinomial, normalise, safe_log, winners
from crowdwise.core.shrinkage import one_coin_table, own_accuracy
from crowdwise.core.unseen import scores_with_unseen
from crowdwise.core.vote_sums import single_annotator_items, tally
from crowdwise.data.votes import Votes
from crowdwise.methods.ds_dawid_skene import Anchor

ENOUGH = 20_000
"""So many predicted votes distinguish the models: further folds are not fitted."""
MIN_WEIGHT = 0.1
"""A model with less weight is left out: it would not change the answer, and need not be fitted."""
PASSES = 100
"""Of EM for the weights: enough where models differ. A number, no tolerance, so that rounding cannot move the end."""


def stacked(log_p: Floats) -> Floats:
    """w[j] from equal weights towards the maximum of sum_v log sum_j w[j] p[j, v], by EM."""
    J, V = log_p.shape
    p = np.exp(log_p - log_p.max(axis=0))
    w = np.full(J, 1.0 / J)
    for _ in range(PASSES):
        w = w * (p @ (1.0 / (w @ p))) / V
    return np.asarray(w / w.sum())


def kept(w: Floats) -> Floats:
    """The weights without the small ones."""
    w = np.where(w < min(MIN_WEIGHT, float(w.max())), 0.0, w)
    return np.asarray(w / w.sum())


def mixed_score(log_p: Floats, weight: Floats, w: Floats) -> float:
    """The score of the average, per vote."""
    top = log_p.max(axis=0)
    return float((np.log(w @ np.exp(log_p - top)) + top).sum() / weight.sum())


def explain(w: Floats, scores: Floats, average: float) -> str:
    """The decision in a sentence."""
    words = [model.words for model in CONFUSION_MODELS]
    order = [j for j in np.argsort(-w, kind="stable").tolist() if w[j] > 0]
    first = order[0]
    if not np.isfinite(average):
        return f"Took {words[first]}, the simplest model: no item has votes of two annotators."
    if len(order) == 1:
        second = max((j for j in range(len(words)) if j != first), key=lambda j: float(scores[j]))
        return (
            f"Took {words[first]}: of {len(words)} models it predicts held-out votes best "
            f"({scores[first]:.3f} per vote; {words[second]}: {scores[second]:.3f})."
        )
    best, parts = int(np.argmax(scores)), " and ".join(f"{words[j]} ({w[j]:.2f})" for j in order)
    return (
        f"Averaged {parts}, weighted by how they predict held-out votes "
        f"({average:.3f} per vote; the best alone, {words[best]}: {scores[best]:.3f})."
    )


@declared
class Stacked(Model):
    """An average of models, weighted by how they predict held-out votes; ``consensus.notes`` says which, and why.

    Parameters
    ----------
    anchor
        The share of the counts that is that of weighted vote shares, from 0 to 1 (see ``anchored``).
    history, class_prior
        As in :class:`DawidSkene`.
    folds
        Into how many parts the items are split; the votes of each are predicted from the others.
    max_votes
        With more votes than this, weights come from so many votes (of whole items); models with weight are fitted to
        all.
    max_iter, tol
        Stop a fit after so many passes over the votes, or when a pass gains less than ``tol`` per vote.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(600, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "stacked")
    >>> consensus.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    >>> "full confusion matrix" in consensus.notes[0]
    True
    """

    key = "stacked"
    takes_item_prior = True
    single_votes = "certain"

    anchor: Share = 0.25
    history: priors.History = None
    class_prior: priors.ClassPrior = "learned"
    folds: Annotated[int, Bounds(minimum=2)] = 5
    max_votes: Count = 200_000
    max_iter: Count = 200
    tol: NonNegative = 1e-6
    scores_: dict[str, float] = field(init=False)
    """The score per held-out vote of each model (NaN where nothing could be predicted)."""
    weights_: dict[str, float] = field(init=False)
    """The weight of each model in the average."""
    _simplest: FittedConfusion = field(init=False)
    _kept: list[tuple[float, FittedConfusion]] = field(init=False)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        w, note = self._weigh(votes, gold, item_prior, callback)
        single = single_annotator_items(votes)
        fits = {
            j: self._fit_one(model, votes, gold, item_prior, callback, 0)
            for j, model in enumerate(CONFUSION_MODELS)
            if j == 0 or w[j] > 0
        }
        self._simplest, self._kept = fits[0], [(float(w[j]), fit) for j, fit in fits.items() if w[j] > 0]
        q = np.asarray(sum(u * fit.posterior for u, fit in self._kept))
        q[single] = self._simplest.posterior[single]
        if single.any() and w[0] < 1.0:
            note += f" Where a single annotator voted ({single.sum():,} items): {CONFUSION_MODELS[0].words}."
        K = votes.n_classes
        theta = np.asarray(sum(u * np.exp(fit.params.log_score) for u, fit in self._kept))
        return Outcome(
            posterior=q,
            prior=np.asarray(sum(u * np.exp(fit.params.log_prior[0]) for u, fit in self._kept)),
            confusion=theta.reshape(-1, K, K).transpose(0, 2, 1).copy(),
            iterations=sum(fit.iterations for fit in fits.values()),
            converged=all(fit.converged for fit in fits.values()),
            notes=[note],
        )

    def _weigh(
        self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None
    ) -> tuple[Floats, str]:
        """The weights, and the sentence about them."""
        log_p, weight = self._predicted(votes, gold, item_prior, callback)
        if weight.sum() > 0:
            w = kept(stacked(log_p))
            scores, average = log_p.sum(axis=1) / weight.sum(), mixed_score(log_p, weight, w)
        else:
            w = np.eye(len(CONFUSION_MODELS))[0]
            scores, average = np.full(len(CONFUSION_MODELS), np.nan), float("nan")
        names = [model.name for model in CONFUSION_MODELS]
        self.scores_ = dict(zip(names, scores.tolist(), strict=True))
        self.weights_ = dict(zip(names, w.tolist(), strict=True))
        return w, explain(w, scores, average)

    def _predicted(
        self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None
    ) -> tuple[Floats, Floats]:
        """log p[j, v] and the weight of v: every fold predicted from the others, until there are enough votes."""
        fold = predictive.item_folds(votes, self.folds, gold, max_votes=self.max_votes)
        if (fold < 0).any():  # go on with the items that were chosen, and the annotators who voted on them
            chosen = np.flatnonzero(fold >= 0)
            fold, votes, (gold, item_prior) = fold[chosen], votes[chosen], _rows(chosen, gold, item_prior)
            votes = votes.only(
                votes.annotators[np.bincount(votes.annotator, minlength=votes.n_annotators) > 0].tolist()
            )
        log_p, weight = [np.zeros((len(CONFUSION_MODELS), 0))], [np.zeros(0)]
        for f in range(self.folds):
            here, there = np.flatnonzero(fold == f), np.flatnonzero(fold != f)
            if len(here) and len(there):
                known = _rows(here, gold, item_prior)
                fits = [self._fit_one(c, votes, gold, item_prior, callback, f + 1, there) for c in CONFUSION_MODELS]
                found = [predictive.leave_one_out_scores(fit.params, votes[here], *known) for fit in fits]
                log_p.append(np.stack([x.log_p for x in found]))
                weight.append(found[0].weight)
            if sum(map(np.sum, weight)) >= ENOUGH:
                break
        return np.concatenate(log_p, axis=1), np.concatenate(weight)

    def _fit_one(
        self, model: type[ConfusionModel], votes: Votes, gold: Ints | None, item_prior: Floats | None,
        callback: Callback | None, restart: int, items: Ints | None = None,
    ) -> FittedConfusion:  # fmt: skip
        """A model fitted to all items, or to some."""
        pi = priors.class_prior_counts(self.class_prior, votes)
        past = None if self.history is None else priors.pseudo_counts(0.0, self.history, votes)
        if items is not None:
            votes, (gold, item_prior) = votes[items], _rows(items, gold, item_prior)
        return fit_confusion_model(
            model, votes, gold, item_prior, anchor=float(self.anchor), class_prior=pi, past=past,
            max_iter=self.max_iter, tol=float(self.tol), callback=callback, restart=restart,
        )  # fmt: skip

    def _predict(self, votes: Votes) -> Floats:
        part, single = Part.of(votes), single_annotator_items(votes)
        out = np.asarray(sum(u * fit.predict(part) for u, fit in self._kept))
        if single.any():
            out[single] = self._simplest.predict(part)[single]
        return out


def _rows(items: Ints, gold: Ints | None, item_prior: Floats | None) -> tuple[Ints | None, Floats | None]:
    """The gold labels and priors of some items."""
    return None if gold is None else gold[items], None if item_prior is None else item_prior[items]


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
        # Half a vote of each kind at the start, so that a single vote is not certainty.
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
class FittedConfusion:
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
) -> FittedConfusion:  # fmt: skip
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
    return FittedConfusion(family.model, params, stats, q, passes, fit.converged)
