"""Accuracy of labels and of confusion matrices, where the truth is known."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, Fraction, checked
from crowdwise.core.numerics import TIE, Floats, Ints
from crowdwise.core.result import some_known
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options


def accuracy(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The share of items whose most probable class is the true one.

    An item with j tied classes counts 1/j if the truth is among them.
    """
    q, y = known_items(result, truth)
    return Bootstrap(**options).share(hits(q, y))


def accuracy_per_class(result: Any, truth: Any, **options: Unpack[Options]) -> dict[Any, Estimate]:
    """The accuracy on the items of each true class (recall), by class name; classes without items are left out."""
    q, y = known_items(result, truth)
    names = result.classes.tolist() if isinstance(result, Consensus) else list(range(q.shape[1]))
    right = hits(q, y)
    return {names[k]: Bootstrap(**options).share(right[y == k]) for k in np.unique(y).tolist()}


def confusion_error(estimated: Any, true: Any, **options: Unpack[Options]) -> Estimate:
    """How far estimated confusion matrices are from the true ones: the mean over annotators of |A - A'|_F^2 / K.

    Both are M x K x K (annotator, truth, label), or a Consensus that has them. Reference: Tanno et al. 2019.
    """
    tables = []
    for given in (estimated, true):
        table = given.confusion if isinstance(given, Consensus) else given
        if table is None:
            raise InputError(f"A {given.method} consensus has no confusion matrices to compare.")
        tables.append(np.asarray(table, dtype=np.float64))
    a, b = tables
    if a.shape != b.shape or a.ndim != 3 or a.shape[1] != a.shape[2]:
        raise InputError(f"Expected two M x K x K arrays of the same shape and found {a.shape} and {b.shape}.")
    return Bootstrap(**options).mean(((a - b) ** 2).sum(axis=(1, 2)) / a.shape[1])


def hits(q: Floats, y: Ints) -> Floats:
    """1 where the most probable class is the true one, 1/j where it is one of j tied ones, else 0."""
    tied = q >= q.max(axis=1, keepdims=True) - TIE
    return np.asarray(tied[np.arange(len(y)), y] / tied.sum(axis=1))


def known_items(result: Any, truth: Any) -> tuple[Floats, Ints]:
    """The probabilities and true classes of the items with known truth."""
    if isinstance(result, Consensus):
        q, y = result.posterior, result.truth_codes(truth)
    else:
        q, y = np.asarray(result, dtype=np.float64), np.asarray(truth)
        if q.ndim != 2 or y.shape != (len(q),) or y.dtype.kind not in "iu":
            raise InputError(
                "Expected N x K probabilities with N integer class codes, "
                f"and found shapes {q.shape} and {y.shape} ({y.dtype}). "
                "To give class names, pass the Consensus and a mapping from item to class."
            )
        if len(y) and y.max() >= q.shape[1]:
            raise InputError(f"The truth has class code {y.max()}, and there are {q.shape[1]} classes.")
    known = some_known(y >= 0)
    return q[known], y[known]


def accuracy_on_truth(classifier: Any, X: Any, votes: Votes) -> float:
    """The accuracy of a fitted classifier on the items whose truth the votes carry: ``scoring`` for scikit-learn.

    The classifier is fitted to votes and does not see their truth; this scorer does, and nothing else of them.

    >>> import crowdwise as cw
    >>> from sklearn.model_selection import cross_val_score
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=300, votes_per_item=3, random_state=0)
    >>> X, votes = crowd.features["x_train"], crowd.votes.with_truth(crowd.truth)
    >>> found = cross_val_score(cw.Raykar(), X, votes, cv=3, scoring=cw.metrics.accuracy_on_truth)
    >>> bool((found > 0.8).all())
    True
    """
    if not isinstance(votes, Votes) or votes.truth is None or not (votes.truth >= 0).any():
        raise InputError(
            "accuracy_on_truth measures by the truth that votes carry, and there is none: votes.with_truth(truth)."
        )
    found = np.asarray(classifier.predict(X))
    known = votes.truth >= 0
    return float((found[known] == votes.classes[votes.truth[known]]).mean())


@checked
def log_loss(result: Any, truth: Any, *, floor: Fraction = 1e-15, **options: Unpack[Options]) -> Estimate:
    """The mean of -log P(true class), with probabilities held above ``floor``."""
    q, y = known_items(result, truth)
    return Bootstrap(**options).mean(-np.log(np.maximum(q[np.arange(len(y)), y], floor)))


def brier(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The mean of sum_k (q_k - 1[truth = k])^2: 0 is perfect, 2 certain and wrong."""
    q, y = known_items(result, truth)
    score = (q * q).sum(axis=1) - 2.0 * q[np.arange(len(y)), y] + 1.0
    return Bootstrap(**options).mean(score)


@checked
def calibration_error(result: Any, truth: Any, *, bins: Count = 15, **options: Unpack[Options]) -> Estimate:
    """Expected calibration error: the mean over items of |accuracy - probability| of their bin.

    Bins are of equal width over the top probability.
    """
    q, y = known_items(result, truth)
    top, right, where = q.max(axis=1), hits(q, y), _bin(q, bins)

    def statistic(weight: Floats) -> float:
        gap = np.bincount(where, weights=weight * (right - top), minlength=bins)
        return float(np.abs(gap).sum() / weight.sum())

    return Bootstrap(**options).of_weights(statistic, len(y))


@checked
def reliability(result: Any, truth: Any, *, bins: Count = 15) -> dict[str, npt.NDArray[Any]]:
    """The calibration curve: number, mean probability and accuracy of the items in each bin of the top probability.

    Bins without items are left out.
    """
    q, y = known_items(result, truth)
    where = _bin(q, bins)
    n = np.bincount(where, minlength=bins)
    used = n > 0
    top, right = (np.bincount(where, weights=x, minlength=bins)[used] / n[used] for x in (q.max(axis=1), hits(q, y)))
    return {"items": n[used], "probability": top, "accuracy": right}


def _bin(q: Floats, bins: int) -> Ints:
    return np.asarray(np.clip(np.ceil(q.max(axis=1) * bins) - 1, 0, bins - 1), dtype=np.int64)
