"""``stacked``: confusion models averaged by how well they predict held-out votes.

Confusion models, from one number per annotator to a full matrix, are each fitted to a part of the items and predict the
votes on the others (:func:`crowdwise.core.predictive.leave_one_out_scores`). The answer is an average of the models,
weighted so that together they predict best (stacking):

=============  ==================  ===========  ====================================================================
symbol         code                shape        equation
=============  ==================  ===========  ====================================================================
p[j, v]        exp ``log_p``       J x V        sum_k q[n, k] theta[m, k, l], the probability of the held-out votes
                                                of pair v (item, annotator): theta and pi of model j from the items
                                                of other folds, q from the votes of the *other* annotators
w[j]           ``weights_``        J            towards argmax sum_v log sum_j w[j] p[j, v]; 0 under ``MIN_WEIGHT``
q[n, k]        posterior           N x K        sum_j w[j] q_j[n, k], each model fitted to all votes; q_1[n, k]
                                                where a single annotator voted
=============  ==================  ===========  ====================================================================

The weights solve a concave problem, by EM: w[j] <- mean over v of w[j] p[j, v] / sum_i w[i] p[i, v]. It starts with
equal weights and takes ``PASSES`` steps, so that models which predict about equally well keep about equal weights.

The models differ in what may differ between two annotators, so in how matrices come from counts:

===================  =========================================  ==================  =================================
model                theta[m, k, l] = P(m says l, truth k)      own numbers         wrong answers
===================  =========================================  ==================  =================================
``one_coin``         w[m] if l = k, else (1 - w[m]) / (K - 1)   1                   spread evenly
``per_class``        the same with w[m, k]                      K                   spread evenly
``know_or_habit``    t[m] [l = k] + (1 - t[m]) x[m, l]          K                   the annotator's favourite labels
``full``             anything                                   K (K - 1)           which class is taken for which
===================  =========================================  ==================  =================================

All are fitted as ``anchored`` is (:mod:`crowdwise.methods.ds_dawid_skene`), with the hierarchical prior, but for the
anchor: the votes on an item are weighted by t[m]^2, with t[m] = (K w[m] - 1) / (K - 1) the agreement of an annotator
beyond chance. A vote of one who is right with probability w, and wrong evenly, carries information of that order (the
first term of its mutual information with the truth). Prior and vote weights are learned ``ROUNDS`` times, each time
from the labels of the fit before.

The habit's t and x are the fixed point of knew[m, l] = c[m, l, l] t / (t + (1 - t) x[l]), t ~ sum_l knew and
(1 - t) x[l] ~ sum_k c[m, l, k] - knew[m, l].

D. Wolpert, Stacked generalization, Neural Networks 5 (1992); for densities P. Smyth and D. Wolpert, Linearly combining
density estimators via stacking, Machine Learning 36 (1999).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from crowdwise.core import em, predictive, priors, starts
from crowdwise.core.constraints import Bounds, Count, NonNegative, Share
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.loop import Callback, check_memory
from crowdwise.core.model import Model, Outcome, declared
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, winners
from crowdwise.core.shrinkage import learned_prior, own_accuracy
from crowdwise.core.unseen import scores_with_unseen
from crowdwise.core.vote_parts import VotePart
from crowdwise.core.vote_sums import single_annotator_items, tally
from crowdwise.data.votes import Votes
from crowdwise.methods.ds_dawid_skene import Anchor, AnchoredFamily, Tie, full, one_coin, per_class

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
    words = list(WORDS.values())
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
        whole, single = VotePart(votes, gold, item_prior=item_prior), single_annotator_items(votes)
        w, note = self._weigh(whole, callback)
        fits = {j: self._fit_one(tie, whole, callback) for j, tie in enumerate(TIES) if j == 0 or w[j] > 0}
        self._simplest, self._kept = fits[0], [(float(w[j]), fit) for j, fit in fits.items() if w[j] > 0]
        q = np.asarray(sum(u * fit.posterior for u, fit in self._kept))
        q[single] = self._simplest.posterior[single]
        if single.any() and w[0] < 1.0:
            note += f" Where a single annotator voted ({single.sum():,} items): {WORDS['coin']}."
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

    def _weigh(self, whole: VotePart, callback: Callback | None) -> tuple[Floats, str]:
        """The weights, and the sentence about them."""
        log_p, weight = self._predicted(whole, callback)
        if weight.sum() > 0:
            w = kept(stacked(log_p))
            scores, average = log_p.sum(axis=1) / weight.sum(), mixed_score(log_p, weight, w)
        else:
            w = np.eye(len(TIES))[0]
            scores, average = np.full(len(TIES), np.nan), float("nan")
        self.scores_ = dict(zip(WORDS, scores.tolist(), strict=True))
        self.weights_ = dict(zip(WORDS, w.tolist(), strict=True))
        return w, explain(w, scores, average)

    def _predicted(self, whole: VotePart, callback: Callback | None) -> tuple[Floats, Floats]:
        """log p[j, v] and the weight of v: every fold predicted from the others, until there are enough votes."""
        fold = predictive.item_folds(whole.votes, self.folds, whole.gold, max_votes=self.max_votes)
        if (fold < 0).any():  # go on with the items that were chosen, and the annotators who voted on them
            fold, whole = fold[fold >= 0], whole.select(fold >= 0)
            voted = np.unique(whole.votes.annotator)
            whole = replace(whole, votes=whole.votes.only(whole.votes.annotators[voted].tolist()))
        log_p, weight = [np.zeros((len(TIES), 0))], [np.zeros(0)]
        for f in range(self.folds):
            here, there = whole.select(fold == f), whole.select(fold != f)
            if len(here.votes) and len(there.votes):
                fits = [self._fit_one(tie, there, callback, f + 1) for tie in TIES]
                known = here.votes, here.gold, here.item_prior
                scores = [predictive.leave_one_out_scores(fit.params, *known) for fit in fits]
                log_p.append(np.stack([x.log_p for x in scores]))
                weight.append(scores[0].weight)
            if sum(map(np.sum, weight)) >= ENOUGH:
                break
        return np.concatenate(log_p, axis=1), np.concatenate(weight)

    def _fit_one(self, tie: Tie, whole: VotePart, callback: Callback | None, restart: int = 0) -> FittedConfusion:
        """A model fitted to some items; its prior and its anchor are learned ``ROUNDS`` times.

        History is evidence like the votes: it counts for the prior, the anchor and every step.
        """
        votes, gold, part = whole.votes, whole.gold, whole.part
        pi = priors.class_prior_counts(self.class_prior, votes)
        past = 0.0 if self.history is None else priors.history_counts(self.history, votes)
        q, passes = starts.gold_weighted(votes, gold), 0
        stats = em.statistics(part, q)
        for _ in range(ROUNDS):
            labels = em.statistics(part, winners(q)).table() + past
            at_votes = em.statistics(part, weighted_shares(votes, gold, labels))
            family = AnchoredFamily(tie, learned_prior(labels) + past, pi, anchor=Anchor(float(self.anchor), at_votes))
            fit = em.run_em(
                part, family, stats, max_iter=self.max_iter, tol=float(self.tol), callback=callback, restart=restart
            )
            stats, q = em.expect(part, fit.params, posterior=True)
            passes += fit.iterations
        params = family.free.maximise(stats)
        return FittedConfusion(params, *em.expect(part, params, posterior=True), passes, fit.converged)

    def _predict(self, votes: Votes) -> Floats:
        part, single = Part.of(votes), single_annotator_items(votes)
        out = np.asarray(sum(u * fit.predict(part) for u, fit in self._kept))
        if single.any():
            out[single] = self._simplest.predict(part)[single]
        return out


ROUNDS = 3
"""How often priors are learned, each time from the labels of the fit before."""
MIN_SKILL = 1e-3
"""The least t: where all annotators of an item are at chance, their votes count alike."""
INNER = 15
"""Passes of the fixed point for habits, from a start that is right where counts are many."""


def know_or_habit(counts: Floats) -> Floats:
    """theta[m, l, k] of annotators who know the truth, or draw a label from their habit."""
    K = counts.shape[1]
    right, by_label, by_class = np.einsum("mll->ml", counts), counts.sum(axis=2), counts.sum(axis=1)
    # (1 - t) x[l] is how often l is said where it is wrong.
    wrong = (by_label - right) / (by_class.sum(axis=1, keepdims=True) - by_class + 1e-12)
    t, x = 1.0 - np.clip(wrong.sum(axis=1), 0.05, 0.95), normalise(wrong, axis=1)
    for _ in range(INNER):
        knew = right * (t[:, None] / (t[:, None] + (1.0 - t[:, None]) * x + 1e-300))
        t = np.clip(knew.sum(axis=1) / np.maximum(by_label.sum(axis=1), 1e-300), 1e-6, 1.0 - 1e-6)
        x = normalise(np.maximum(by_label - knew, 0.0), axis=1)
    return np.asarray(((1.0 - t)[:, None] * x)[:, :, None] + t[:, None, None] * np.eye(K))


TIES: tuple[Tie, ...] = (one_coin, per_class, know_or_habit, full)
"""The models, from the simplest on."""
WORDS = {
    "coin": "one accuracy per annotator",
    "vector": "an accuracy per annotator and class",
    "habit": "annotators who know, or answer from habit",
    "full": "a full confusion matrix per annotator",
}


def skill(counts: Floats) -> Floats:
    """t[m]: how far an annotator agrees with the labels beyond chance."""
    K = counts.shape[1]
    return np.asarray(np.maximum((K * own_accuracy(counts) - 1.0) / (K - 1.0), MIN_SKILL))


def weighted_shares(votes: Votes, gold: Ints | None, counts: Floats) -> Floats:
    """v[n, k]: vote shares, each vote weighted by t[m]^2; certainty where the class is known."""
    return clamp(normalise(tally(votes, skill(counts) ** 2), axis=1), gold)


@dataclass(frozen=True)
class FittedConfusion:
    """A confusion model, fitted."""

    params: Params
    stats: Stats
    posterior: Floats
    iterations: int
    converged: bool

    def predict(self, part: Part) -> Floats:
        """The posterior of other votes, of which annotators not seen in the fit answer like the crowd as a whole."""
        score = scores_with_unseen(self.params.log_score, self.stats.counts, part.n_annotators, part.n_classes)
        return em.expect(part, Params(score, self.params.log_prior), posterior=True)[1]
