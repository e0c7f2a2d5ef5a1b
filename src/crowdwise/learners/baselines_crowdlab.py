"""CROWDLAB: any classifier and the votes as one weighted ensemble, with weights from agreement.

A classifier is trained on majority votes, where a tie counts for all its classes evenly, and predicts items it has not
seen (cross-validation). Its prediction and the votes of an item's annotators are averaged:

    q[n] = ( w_0 f(x_n) + sum over votes of w_m g(l) ) / ( w_0 + sum over votes of w_m )
    g(l)[k] = P where k = l, (1 - P) / (K - 1) elsewhere

Everything is estimated from the items with more than one vote. With y the majority labels (ties go to the class that
the classifier finds more probable):

==============  ============  =======  =========================================================================
symbol          code          shape    equation
==============  ============  =======  =========================================================================
f(x)            ``f``         N x K    out-of-sample class probabilities
P               ``P``                  mean over items of the share of their votes that agree with y
s_m             ``s``         M        share of the other votes on m's items that agree with m's
A                                      share of items where the classifier's class is y
B                                      share of items where the most frequent class is y: the baseline
w_m             ``w``         M        1 - (1 - s_m) / (1 - B)
w_0             ``w0``                 ( 1 - (1 - A) / (1 - B) ) sqrt( mean number of votes per item )
==============  ============  =======  =========================================================================

The consensus label is the likeliest class under q, and the classifier that predicts new inputs is trained on those.
With votes, ``predict_proba`` uses the same ensemble; items of the fit (the same name and input) keep their
out-of-sample prediction in it, since the classifier has since learned from their votes.

Reference: H. Goh, U. Tkachenko and J. Mueller, CROWDLAB: supervised learning to infer consensus labels and quality
scores for data with multiple annotators, 2022.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.core import em
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import Bounds, Positive, declared
from crowdwise.core.dependence import Setting
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints, clamp, decide, normalise, safe_log, winners
from crowdwise.core.unseen import with_unseen
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.learners.tabular import Tabular
from crowdwise.learners.training_settings import Callback, EpochRounds

SPREADS = (1.0, 3.0)
"""Of the logits of softmax regression: texts ask for the first, a few good features for the second."""
LEAST = 1e-6
"""The smallest weight: an annotator no better than the most frequent class has it, and counts only where all do."""


class Weights(NamedTuple):
    """The weights of the ensemble."""

    annotators: Floats
    classifier: float
    agreement: float
    """P, the probability that a vote is right."""


def weigh(f: Floats, votes: Votes, y: npt.NDArray[np.integer[Any]]) -> Weights:
    """P, w_m and w_0 from out-of-sample probabilities, votes and majority labels.

    Annotators who share no item with others get the mean agreement of those who do. Where no two annotators share an
    item, all weights are the same, and P is the agreement with the classifier.
    """
    M, K = votes.n_annotators, votes.n_classes
    item, label, v = votes.item, votes.label, votes.weights
    total = np.bincount(item, weights=v, minlength=len(votes))
    several = np.diff(votes.indptr) > 1
    best = f.argmax(axis=1)
    if not several.any():
        P = float((v * (best[item] == label)).sum() / max(v.sum(), LEAST))
        return Weights(np.ones(M), 1.0, max(P, 1.0 / K))
    counts = np.zeros((len(votes), K))
    np.add.at(counts, (item, label), v)
    P = float((counts[several, y[several]] / total[several]).mean())
    agree = np.bincount(votes.annotator, weights=v * (counts[item, label] - v), minlength=M)
    others = np.bincount(votes.annotator, weights=v * (total[item] - v), minlength=M)
    s = np.divide(agree, others, out=np.full(M, agree.sum() / others.sum()), where=others > 0.0)
    common = np.bincount(label, weights=v, minlength=K).argmax()
    A, B = float((best == y)[several].mean()), float((y == common)[several].mean())
    baseline = max(1.0 - B, LEAST)
    w = np.maximum(1.0 - (1.0 - s) / baseline, LEAST)
    w0 = max((1.0 - (1.0 - A) / baseline) * float(np.sqrt(total[several].mean())), LEAST)
    return Weights(w, w0, P)


def combine(f: Floats, votes: Votes, weights: Weights) -> Floats:
    """q: N x K. Unseen annotators have the mean weight."""
    N, K = f.shape
    w = with_unseen(weights.annotators, votes.n_annotators, weights.annotators.mean())
    v = votes.weights * w[votes.annotator]
    P, other = weights.agreement, (1.0 - weights.agreement) / (K - 1)
    q = weights.classifier * f
    np.add.at(q, (votes.item, votes.label), v * (P - other))
    q += other * np.bincount(votes.item, weights=v, minlength=N)[:, None]
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def deal(y: npt.NDArray[np.integer[Any]], used: npt.NDArray[np.bool_], folds: int, rng: np.random.Generator) -> Ints:
    """N: the fold of each item, with every class spread evenly over the folds."""
    order = rng.permutation(len(y))
    order = order[np.lexsort((y[order], ~used[order]))]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % max(folds, 1)
    return fold


@declared
class Crowdlab(Tabular):
    """A classifier's out-of-sample predictions and the votes, averaged with weights from agreement.

    Parameters
    ----------
    dependence
        As for every learner; not by default, since averages of votes are not products.
    spread
        Of ``"logistic"``: the prior standard deviation of its logits (a larger one fits more freely). By default the
        one of 1 and 3 whose out-of-sample predictions make the labels more likely.
    n_folds
        Of the cross-validation: each item is predicted by a classifier that has not seen its fold.

    Attributes
    ----------
    weights_
        M: weights of the annotators in the ensemble.
    classifier_weight_
        The weight of the classifier.
    agreement_
        P, the probability that a vote is right.
    spread_
        The spread that was used.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=2, random_state=0)
    >>> learner = Crowdlab(random_state=0).fit(crowd.features["x_train"], crowd.votes)
    >>> bool(learner.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth))
    True
    """

    key: ClassVar[str] = "crowdlab"
    saved: ClassVar[tuple[str, ...]] = ("spread_",)
    dependence: Setting = "none"
    spread: Positive | None = None
    spread_: float = field(init=False)
    n_folds: Annotated[int, Bounds(minimum=2)] = 5

    def _fit_model(self, x: Any, votes: Votes, gold: Ints | None, callback: Callback | None) -> Outcome:
        K = votes.n_classes
        rng = np.random.default_rng(self.seed_)
        shares = clamp(votes.shares(), gold)
        used = np.diff(votes.indptr) > 0
        if gold is not None:
            used = used | (gold >= 0)
        votes_for = np.bincount(votes.label, weights=votes.weights, minlength=K).astype(np.float64)
        tied = winners(shares)
        fold = deal(tied.argmax(axis=1), used, min(self.n_folds, int(used.sum())), rng)
        if self.spread is None and isinstance(self.classifier, str):
            each = {one: self._out_of_sample(x, tied, used, fold, one) for one in SPREADS}
            self.spread_ = max(each, key=lambda one: float((tied * safe_log(each[one]))[used].sum()))
            f = each[self.spread_]
        else:
            self.spread_ = self.spread or SPREADS[0]
            f = self._out_of_sample(x, tied, used, fold, self.spread_)
        y = np.where(tied > 0.0, f, -1.0).argmax(axis=1)
        self.weights_, self.classifier_weight_, self.agreement_ = weigh(f, votes, y)
        q = clamp(combine(f, votes, self._weights()), gold)
        label = decide(q, votes_for)
        self.model_ = self._data_model(x.shape[1], K, self.spread_)
        self.model_.fit(x, np.eye(K)[label] * used[:, None])
        self._unseen, self._seen = f, self.model_.log_probs(x)
        self.theta_ = count(q, votes)
        rounds = EpochRounds(1, 1.0, self.history_, callback)
        for _ in rounds:
            rounds.reached(float(np.log(np.maximum(f[used, label[used]], 1e-300)).mean()), converged=True)
        return Outcome(
            posterior=q, prior=q.mean(axis=0), confusion=self.theta_, annotator_columns={"weight": self.weights_},
            item_prior=safe_log(f), **rounds.outcome,
        )  # fmt: skip

    def _out_of_sample(self, x: Any, t: Floats, used: npt.NDArray[np.bool_], fold: Ints, spread: float) -> Floats:
        """N x K: each item predicted by a classifier trained on the labels t of the other folds."""
        N, K = t.shape
        f = np.full((N, K), 1.0 / K)
        if fold.max(initial=0) == 0:  # only the item itself to learn from
            return f
        for k in range(fold.max() + 1):
            model = self._data_model(x.shape[1], K, spread)
            model.fit(x, t * (used & (fold != k))[:, None])
            f[fold == k] = np.exp(model.log_probs(x[fold == k]))
        return np.asarray(f / f.sum(axis=1, keepdims=True))

    def _weights(self) -> Weights:
        return Weights(self.weights_, self.classifier_weight_, self.agreement_)

    def _posterior(self, log_f: Floats, votes: Votes) -> Floats:
        # The classifier has learned from the votes on items of the fit: they keep their out-of-sample prediction.
        at = encoding.locate(votes.items, self.consensus_.items)
        same = (at >= 0) & np.isclose(log_f, self._seen[at], rtol=1e-6, atol=1e-9).all(axis=1)
        return combine(np.where(same[:, None], self._unseen[at], np.exp(log_f)), votes, self._weights())

    def _arrays(self) -> dict[str, Floats]:
        ensemble = np.append(self.weights_, [self.classifier_weight_, self.agreement_])
        return super()._arrays() | {"ensemble": ensemble, "seen": self._seen, "unseen": self._unseen}

    def _restore_arrays(self, arrays: dict[str, Floats]) -> None:
        ensemble = arrays["ensemble"]
        self.weights_ = ensemble[:-2]
        self.classifier_weight_, self.agreement_ = float(ensemble[-2]), float(ensemble[-1])
        self._seen, self._unseen = arrays["seen"], arrays["unseen"]
        super()._restore_arrays(arrays)


def count(q: Floats, votes: Votes) -> Floats:
    """M x K x K confusion matrices against a posterior, each row with one pseudo-vote distributed like the crowd's."""
    table = em.statistics(Part.of(votes), q).table().transpose(0, 2, 1)
    crowd = table.sum(axis=0) + 1.0 / votes.n_classes
    return normalise(table + crowd / crowd.sum(axis=1, keepdims=True), axis=2)
