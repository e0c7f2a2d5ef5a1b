"""What the inputs of items say of their classes, for a method that counts votes: learned, checked, then used or not.

1. A learner (``LEARNER``) is trained five times, each time without the votes on a fifth of the items, and predicts
   their classes from their inputs: p[n, k] (:meth:`crowdwise.learners.ensemble.Ensemble.cross_fit`).
2. Held-out votes decide whether p is used. The method is fitted to the votes on the other four fifths, with p as the
   prior of items and without it, and each vote on the fifth is predicted from the *other* votes on its item:

       P(m says l) = sum_k r[k] theta[m, k, l],      r ∝ prior[n, k] prod over the other votes theta[m', k, l']

   with theta read from the posterior alike for both (:func:`crowdwise.core.predictive.read_out`) and r corrected for
   dependent votes. p is used where the votes become more likely by ``CLEARLY`` standard errors (over items).
3. Where it is used, it is the prior of the items in the fit to all votes. The learner shares the errors of the same
   annotators, so the correction counts it as one more vote (``shared_prior``). p holds the shares of classes, so the
   method learns none of its own.

A learner that has learned an error all annotators share predicts their votes better and the truth worse: that a
held-out vote cannot show.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.core.dependence import Dependence, corrected_logit
from crowdwise.core.model import Model
from crowdwise.core.numerics import Floats, Ints, safe_log, softmax
from crowdwise.core.predictive import paired, read_out
from crowdwise.core.vote_sums import sum_rows
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, CrowdwiseError
from crowdwise.learners.ensemble import Ensemble
from crowdwise.learners.training_settings import Epoch
from crowdwise.learners.vote_edges import used_items

LEARNER = "max-mig"
FOLDS = 5
EPOCHS, MIN_EPOCHS, MAX_ROWS = 50, 10, 250_000
"""Epochs of a training: fewer where they would read more than so many rows."""
CLEARLY = 3.0
"""By how many standard errors held-out votes must become more likely."""
LEAST = 3
"""Epochs of each training for which the time must suffice."""
MIN_ITEMS = 50
MAX_CELLS = 2**24
"""The most cells (annotators x classes x classes) with which it is tried."""


@dataclass(frozen=True)
class Forecast:
    """What came of the inputs."""

    p: Floats | None
    """N x K: the class probabilities of items from their inputs; ``None`` where they are not used."""
    notes: list[str]


class TimeUp(CrowdwiseError):
    """The training takes too long, or was ended by its callback."""


class Watch:
    """A callback that says, after two epochs, how long all of it takes, and ends what cannot do with the time."""

    def __init__(
        self, max_seconds: float, callback: Callable[[Any], Any] | None, progress: Callable[[str], None] | None,
        what: str,
    ) -> None:  # fmt: skip
        self.max_seconds, self.callback, self.progress, self.what = max_seconds, callback, progress, what
        self.began, self.last = time.perf_counter(), float("inf")

    def __call__(self, epoch: Epoch) -> None:
        elapsed = time.perf_counter() - self.began
        if epoch.epoch in (1, 2):
            self.last = min(self.last, epoch.seconds)
            total = elapsed + (epoch.epochs - epoch.epoch) * self.last
            least, limit = elapsed + (FOLDS * LEAST - epoch.epoch) * self.last, spoken(self.max_seconds)
            if least > self.max_seconds and (epoch.epoch == 2 or self.last > self.max_seconds / 10):
                raise TimeUp(
                    f"{LEAST} epochs of each training would take about {spoken(least)}, more than the limit of {limit}"
                )
            if epoch.epoch == 2 and self.progress is not None:
                cut = ": each ends after its share of that" if total > self.max_seconds else ""
                self.progress(f"{self.what}: {FOLDS} trainings, about {spoken(total)}, at most {limit}{cut}.")
        if elapsed > 2 * self.max_seconds:
            raise TimeUp(f"it took longer than twice the limit of {spoken(self.max_seconds)}")
        if self.callback is not None and self.callback(epoch) is True:
            raise TimeUp("it was ended")


def spoken(seconds: float) -> str:
    """A duration, rounded: "40 s", "12 min".

    >>> spoken(3.2), spoken(41), spoken(700)
    ('4 s', '41 s', '12 min')
    """
    return f"{np.ceil(seconds):.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def forecast(
    model: Model, X: Any, votes: Votes, gold: Ints | None, *, max_seconds: float, seed: int,
    callback: Callable[[Any], Any] | None = None, progress: Callable[[str], None] | None = None,
) -> Forecast:  # fmt: skip
    """Learn from inputs, and decide by held-out votes whether a method for votes is to use what they say."""
    M, K, used = votes.n_annotators, votes.n_classes, int(used_items(votes).sum())
    if used < MIN_ITEMS:
        return _unused(f"{used} items with votes are too few to learn from, {MIN_ITEMS} the least")
    if M * K * K > MAX_CELLS:
        return _unused(f"{M:,} annotators x {K:,}² classes are too many")
    epochs = int(np.clip(MAX_ROWS // used, MIN_EPOCHS, EPOCHS))
    learner = Ensemble(
        candidates=(LEARNER,), plain=False, folds=FOLDS, rounds=0, epochs=epochs, budget=max_seconds, random_state=seed
    )
    what = f"Learning from the inputs of {used:,} items"
    if progress is not None:
        progress(f"{what}, for {spoken(max_seconds)} at most.")
    watch = Watch(max_seconds, callback, progress, what)
    try:
        p, fold, notes = learner.cross_fit(X, votes, gold, callback=watch)
    except TimeUp as over:
        return _unused(str(over))
    alone, with_inputs = held_out(model, votes, gold, fold), held_out(model, votes, gold, fold, p)
    w = votes.weights
    by_item = sum_rows(np.stack([w * (with_inputs - alone), w], axis=1), votes.item, len(votes))
    gain, error = paired(by_item[:, 0], by_item[:, 1])
    figures = (
        f"the mean log-likelihood of a held-out vote is {np.average(with_inputs, weights=w):.3f} with what a learner "
        f"({LEARNER}) says of inputs and {np.average(alone, weights=w):.3f} by votes alone (difference {gain:+.3f}, "
        f"standard error {error:.3f})"
    )
    if gain > CLEARLY * error:
        return Forecast(p, [f"Inputs were used: {figures}.", *notes])
    return _unused(figures)


def _unused(why: str) -> Forecast:
    return Forecast(None, [f"Inputs were not used: {why}. The labels are those of votes alone."])


def fitted_with(model: Model, votes: Votes, gold: Ints | None, p: Floats | None, callback: Any = None) -> Model:
    """The model fitted to votes, with p as the prior of items where there is one."""
    prior = getattr(model, "class_prior", None)
    if p is not None and isinstance(prior, str) and prior == "learned":  # p holds it already
        model.set_params(class_prior="uniform")
    try:
        return model.fit(votes, gold, item_prior=p, shared_prior=p is not None, callback=callback)
    finally:
        if prior is not None:
            model.set_params(class_prior=prior)


def held_out(model: Model, votes: Votes, gold: Ints | None, fold: Ints, p: Floats | None = None) -> Floats:
    """log P of each vote, by the other votes on its item (and p), and by a fit to the items of other folds."""
    log_p = np.zeros(votes.n_votes)
    for j in range(int(fold.max()) + 1):
        own = fold[votes.item] == j
        rest, known = votes.select(~own), None if gold is None else np.where(fold == j, -1, gold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            consensus = fitted_with(type(model)(**model.get_params()), rest, known, p).consensus_
        theta = read_out(rest, consensus.independent_posterior)
        prior = safe_log(consensus.prior)[None] if p is None else safe_log(p)
        log_p[own] = leave_one_out(votes.select(own), theta, prior, consensus.shown_dependence)
    return log_p


def leave_one_out(votes: Votes, theta: Floats, log_prior: Floats, dependence: Dependence) -> Floats:
    """log P of each vote from the other votes on its item; theta[m, l, k], the prior N x K or 1 x K."""
    item, w = votes.item, votes.weights
    score = theta[votes.annotator, votes.label]
    each = w[:, None] * safe_log(score)
    logit = (sum_rows(each, item, len(votes)) + log_prior)[item] - each
    others = np.bincount(item, weights=w, minlength=len(votes))[item] - w
    r = softmax(corrected_logit(logit, others, dependence))
    return np.asarray(safe_log((r * score).sum(axis=1)))
