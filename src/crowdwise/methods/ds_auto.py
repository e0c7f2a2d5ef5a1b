"""The method that looks at the votes before it decides how to explain them: crowdwise's default.

Shapes of confusion matrices (:mod:`crowdwise.methods.ds_confusion_models`), from one number per annotator to all of
them, are each fitted to a part of the items and asked to foretell the votes on the others
(:func:`crowdwise.core.predictive.leave_one_out_scores`):

    p[j, v] = sum_k q[n, k] theta[m, k, l]

with theta and pi of shape j from the items of other folds, and q from what the *other* annotators say of the item. The
answer is an average of the shapes, weighted so that together they foretell best (stacking):

=============  ==================  ===========  ====================================================================
symbol         code                shape        equation
=============  ==================  ===========  ====================================================================
p[j, v]        exp ``log_p``       J x V        probability of what was left out of pair v (item, annotator)
w[j]           ``weights_``        J            towards argmax sum_v log sum_j w[j] p[j, v]; 0 where under ``LEAST``
q[n, k]        posterior           N x K        sum_j w[j] q_j[n, k], each shape fitted to all votes; q_1[n, k]
                                                where a single annotator voted
=============  ==================  ===========  ====================================================================

The weights solve a concave problem, by EM: w[j] <- mean over v of w[j] p[j, v] / sum_i w[i] p[i, v]. It begins with
equal weights and takes ``PASSES`` steps, so that shapes which foretell about equally well keep about equal weights.
Averaging is for the usual case that no shape is right: where two foretell equally well and disagree about a class,
each has bent it in its own direction.

Foretelling votes is not knowing the truth. A class that stands for something else than its label can foretell votes
well, and users want the label's meaning. Three guards: every shape is anchored to vote shares as ``anchored`` is (to
those of the annotators who tell most); no vote is foretold by parameters that have seen its item; and where a single
annotator voted on an item, so that nothing could be foretold there and the weights say nothing about it, the simplest
shape decides: the vote stands, unless its annotator is worse than chance.

When it fails: copiers, hard items and other things that make annotators err together are outside all shapes;
``crowdwise compare`` shows whether votes hang together in ways the consensus does not explain.

The weights are those of D. Wolpert, Stacked generalization, Neural Networks 5 (1992), for densities: P. Smyth and D.
Wolpert, Linearly combining density estimators via stacking, Machine Learning 36 (1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from crowdwise.core import em, predictive, priors
from crowdwise.core.checks import check_number
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.em import Params, Part
from crowdwise.core.loop import Callback
from crowdwise.core.model import Model, Outcome, check_memory
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.methods.ds_confusion_models import SHAPES, Fitted, Shape, fit_shape, with_strangers

ENOUGH = 20_000
"""So many foretold votes tell shapes apart: further folds are not fitted."""
LEAST = 0.1
"""A shape with less weight is left out: it would not change the answer, and need not be fitted."""
PASSES = 100
"""Of EM for the weights: enough where shapes differ. A number, no tolerance, so that rounding cannot move the end."""


# -------------------------------------------------------------------- the maths


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
    w = np.where(w < min(LEAST, float(w.max())), 0.0, w)
    return np.asarray(w / w.sum())


def mixed_score(log_p: Floats, weight: Floats, w: Floats) -> float:
    """What the average scores, per vote."""
    top = log_p.max(axis=0)
    return float((np.log(w @ np.exp(log_p - top)) + top).sum() / weight.sum())


def sampled(votes: Votes, most: int) -> Ints:
    """The items to compare shapes on: all, or as many as have ``most`` votes, by the checksums of their names."""
    if votes.n_votes <= most:
        return np.arange(len(votes))
    order = np.argsort(predictive.item_folds(votes, 2**32), kind="stable")
    return np.sort(order[: np.searchsorted(np.cumsum(np.diff(votes.indptr)[order]), most, side="right")])


def lone(votes: Votes) -> Ints:
    """Which items (a mask) have votes, and all of one annotator."""
    size = np.diff(votes.indptr)
    voted = np.flatnonzero(size > 0)
    first = np.zeros(len(votes), dtype=np.int64)
    first[voted] = votes.annotator[votes.indptr[voted]]
    others = np.bincount(votes.item[votes.annotator != first[votes.item]], minlength=len(votes))
    return np.asarray((size > 0) & (others == 0))


def explain(w: Floats, scores: Floats, together: float, candidates: Sequence[type[Shape]]) -> str:
    """The decision in a sentence."""
    order = [j for j in np.argsort(-w, kind="stable").tolist() if w[j] > 0]
    first = candidates[order[0]].words
    if not np.isfinite(together):
        return f"Took {first}, the simplest model: no item has votes of two annotators to foretell one by the other."
    best = int(np.argmax(scores))
    if len(order) == 1:
        others = [j for j in range(len(candidates)) if j != order[0]]
        second = max(others, key=lambda j: float(scores[j]))
        return (
            f"Took {first}: of {len(candidates)} models it foretells left-out votes best "
            f"({scores[order[0]]:.3f} per vote; {candidates[second].words}: {scores[second]:.3f})."
        )
    parts = " and ".join(f"{candidates[j].words} ({w[j]:.2f})" for j in order)
    return (
        f"Averaged {parts}, weighted by how they foretell left-out votes "
        f"({together:.3f} per vote together; the best alone, {candidates[best].words}: {scores[best]:.3f})."
    )


# -------------------------------------------------------------------- the class


@declared
class Auto(Model):
    """An average of models, weighted by how they foretell left-out votes; ``consensus.notes`` says which, and why.

    Parameters
    ----------
    anchor
        The share of the counts that weighted vote shares hold, from 0 to 1 (see ``anchored``).
    history
        Past performance, which stays in force: annotator -> K x K counts (truth, label), or a Consensus.
    class_prior
        ``"learned"``, ``"uniform"``, or the probability of each class.
    folds
        Into how many parts the items are split; each is foretold from the others (at least 2).
    sample
        With more votes than this, weights come from so many votes (of whole items); what has weight is fitted to all.
    max_iter, tol
        Stop a fit after so many passes over the votes, or when a pass gains less than ``tol`` per vote.
    ties, random_state
        Equally probable classes: the one with the higher ``"prior"``, then the first; or ``"random"``, seeded.
        Nothing else is random.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(600, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "auto")
    >>> consensus.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    >>> "full confusion matrix" in consensus.notes[0]
    True
    """

    key = "auto"
    takes_item_prior = True

    anchor: float = 0.25
    history: Any = None
    class_prior: Any = "learned"
    folds: int = 5
    sample: int = 200_000
    max_iter: Count = 200
    tol: NonNegative = 1e-6
    scores_: dict[str, float] = field(init=False)
    """Score per left-out vote of each model (NaN where nothing could be foretold)."""
    weights_: dict[str, float] = field(init=False)
    """The weight of each model in the average."""
    _simplest: Fitted = field(init=False)
    _kept: list[tuple[float, Fitted]] = field(init=False)

    def _check_together(self) -> None:
        super()._check_together()
        if not (isinstance(self.anchor, (int, float)) and 0.0 <= self.anchor <= 1.0):
            raise ParameterError(f"anchor={self.anchor!r}: expected a number from 0 to 1.")
        for name, low in (("folds", 2), ("sample", 1), ("max_iter", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < low:
                raise ParameterError(f"{name}={value!r}: expected a whole number of at least {low}.")
        check_number(self, "tol", least=0.0, what="a number of at least 0, the gain per vote under which a fit stops")

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        w, note = self._weigh(votes, gold, item_prior, callback)
        alone = lone(votes)
        fits = {0: self._fit_one(SHAPES[0], votes, gold, item_prior, callback, 0)}
        for j in range(1, len(SHAPES)):
            if w[j] > 0:
                fits[j] = self._fit_one(SHAPES[j], votes, gold, item_prior, callback, 0)
        self._simplest, self._kept = fits[0], [(float(w[j]), fit) for j, fit in fits.items() if w[j] > 0]
        q = np.asarray(sum(u * fit.posterior for u, fit in self._kept))
        q[alone] = self._simplest.posterior[alone]
        if alone.any() and w[0] < 1.0:
            note += f" Where a single annotator voted ({alone.sum():,} items): {SHAPES[0].words}."
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
        """The weights, and the sentence; the scores are kept for whoever asks."""
        log_p, weight = self._foretold(votes, gold, item_prior, callback)
        if weight.sum() > 0:
            w = kept(stacked(log_p))
            scores, together = log_p.sum(axis=1) / weight.sum(), mixed_score(log_p, weight, w)
        else:
            w = np.eye(len(SHAPES))[0]
            scores, together = np.full(len(SHAPES), np.nan), float("nan")
        names = [shape.name for shape in SHAPES]
        self.scores_ = dict(zip(names, scores.tolist(), strict=True))
        self.weights_ = dict(zip(names, w.tolist(), strict=True))
        return w, explain(w, scores, together, SHAPES)

    def _foretold(
        self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None
    ) -> tuple[Floats, Floats]:
        """log p[j, v] and u[v]: every fold foretold from the others, until there are enough votes."""
        items = sampled(votes, self.sample)
        fold = predictive.item_folds(votes, self.folds)[items]
        log_p, weight = [np.zeros((len(SHAPES), 0))], [np.zeros(0)]
        for f in range(self.folds):
            here, there = items[fold == f], items[fold != f]
            if len(here) and len(there):
                known = _rows(here, gold, item_prior)
                fits = [self._fit_one(c, votes, gold, item_prior, callback, f + 1, there) for c in SHAPES]
                found = [predictive.leave_one_out_scores(fit.params, votes[here], *known) for fit in fits]
                log_p.append(np.stack([x.log_p for x in found]))
                weight.append(found[0].weight)
            if sum(map(np.sum, weight)) >= ENOUGH:
                break
        return np.concatenate(log_p, axis=1), np.concatenate(weight)

    def _fit_one(
        self,
        shape: type[Shape],
        votes: Votes,
        gold: Ints | None,
        item_prior: Floats | None,
        callback: Callback | None,
        restart: int,
        items: Ints | None = None,
    ) -> Fitted:
        """A model fitted to all items, or to some."""
        pi = priors.class_prior_counts(self.class_prior, votes)
        past = None if self.history is None else priors.pseudo_counts(0.0, self.history, votes)
        if items is not None:
            votes, (gold, item_prior) = votes[items], _rows(items, gold, item_prior)
        return fit_shape(
            shape, votes, gold, item_prior, anchor=float(self.anchor), class_prior=pi, past=past,
            max_iter=self.max_iter, tol=float(self.tol), callback=callback, restart=restart,
        )  # fmt: skip

    def _predict(self, votes: Votes) -> Floats:
        part = Part.of(votes)

        def posterior(fit: Fitted) -> Floats:
            score = with_strangers(fit, votes.n_annotators)
            return em.expect(part, Params(score, fit.params.log_prior), posterior=True)[1]

        out = np.asarray(sum(u * posterior(fit) for u, fit in self._kept))
        alone = lone(votes)
        if alone.any():
            out[alone] = posterior(self._simplest)[alone]
        return out


def _rows(items: Ints, gold: Ints | None, item_prior: Floats | None) -> tuple[Ints | None, Floats | None]:
    """What is known of some items."""
    return None if gold is None else gold[items], None if item_prior is None else item_prior[items]
