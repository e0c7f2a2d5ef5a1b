"""How well label sets match known ones: by label, by item, and as whole sets, each with a bootstrap interval.

All take a :class:`~crowdwise.LabelSetConsensus` and the truth as a mapping from item to labels, or N x L probabilities
(or booleans) and N x L booleans. Items without truth are left out. A label is taken where its probability is over one
half.

    precision = right labels / labels taken       recall = right labels / true labels       F1 = 2 P R / (P + R)

``average="micro"`` counts labels over all items; ``"macro"`` is the mean over labels of each one's own figure. Where
nothing was taken (or nothing is true) a figure is 0, as in scikit-learn; the Jaccard index of two empty sets is 1.
"""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import checked
from crowdwise.core.numerics import Floats
from crowdwise.core.result import some_known
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options

Table = npt.NDArray[np.bool_]
Average = Literal["micro", "macro"]


@checked
def set_precision(found: Any, truth: Any, *, average: Average = "micro", **options: Unpack[Options]) -> Estimate:
    """The share of labels taken that are right."""
    return _averaged(found, truth, "precision", average, options)


@checked
def set_recall(found: Any, truth: Any, *, average: Average = "micro", **options: Unpack[Options]) -> Estimate:
    """The share of true labels that were taken."""
    return _averaged(found, truth, "recall", average, options)


@checked
def set_f1(found: Any, truth: Any, *, average: Average = "micro", **options: Unpack[Options]) -> Estimate:
    """The harmonic mean of precision and recall."""
    return _averaged(found, truth, "f1", average, options)


def label_scores(found: Any, truth: Any) -> dict[str, npt.NDArray[Any]]:
    """Precision, recall and F1 of each label, with how many items truly have it."""
    q, true = _known(found, truth)
    taken = q > 0.5
    names = found.labels if hasattr(found, "labels") else np.arange(q.shape[1])
    figures = _figures(taken, true, np.ones(len(q)))
    return {"label": names, "items": true.sum(axis=0), **figures}


def subset_accuracy(found: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The share of items whose set is right as a whole."""
    q, true = _known(found, truth)
    right = ((q > 0.5) == true).all(axis=1).astype(np.float64)
    return Bootstrap(**options).share(right)


def jaccard(found: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The mean over items of |taken and true| / |taken or true|; 1 where both are empty."""
    q, true = _known(found, truth)
    both, either = ((q > 0.5) & true).sum(axis=1), ((q > 0.5) | true).sum(axis=1)
    share = np.divide(both, either, out=np.ones(len(q)), where=either > 0)
    return Bootstrap(**options).share(share)


def hamming_loss(found: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The share of all (item, label) pairs that are decided wrongly."""
    q, true = _known(found, truth)
    wrong = ((q > 0.5) != true).mean(axis=1)
    return Bootstrap(**options).share(wrong)


def top_k_with_gold_count(found: Any, truth: Any) -> dict[str, npt.NDArray[Any]]:
    """Accuracy and F1 of each label when it is given to the k items with its highest probabilities, k being the
    **true number** of items that have it.

    This is how Li, Huang and Chen (2021) evaluate BayesDGC. It uses the gold count, which nobody has in practice: it
    compares rankings, and says nothing of how well the number of items was judged. Items tied at the boundary share
    what is left of k. The last row is the mean over labels.
    """
    q, true = _known(found, truth)
    N, L = q.shape
    names = found.labels if hasattr(found, "labels") else np.arange(L)
    accuracy, f1 = np.empty(L), np.empty(L)
    for label in range(L):
        k = int(true[:, label].sum())
        hits = _expected_hits(q[:, label], true[:, label], k)
        accuracy[label] = 1.0 - 2.0 * (k - hits) / N  # every miss is also a false alarm
        f1[label] = hits / k if k else np.nan
    mean = np.nanmean(f1) if not np.isnan(f1).all() else np.nan
    return {
        "label": np.array([*names.tolist(), "mean"], dtype=object),
        "gold_count": np.append(true.sum(axis=0), int(true.sum())),
        "accuracy": np.append(accuracy, accuracy.mean()),
        "f1": np.append(f1, mean),
    }


def _expected_hits(q: Floats, true: Table, k: int) -> float:
    """How many of the k likeliest items truly have the label, items tied at the boundary counted by share."""
    if k == 0:
        return 0.0
    edge = np.sort(q)[::-1][k - 1]
    above, tied = q > edge, q == edge
    left = k - int(above.sum())
    return float(true[above].sum() + true[tied].sum() * left / tied.sum())


def _averaged(found: Any, truth: Any, which: str, average: Average, options: Options) -> Estimate:
    q, true = _known(found, truth)
    taken = q > 0.5

    def statistic(weight: Floats) -> float:
        return float(_figures(taken, true, weight, pooled=average == "micro")[which].mean())

    return Bootstrap(**options).of_weights(statistic, len(q))


def _figures(taken: Table, true: Table, weight: Floats, pooled: bool = False) -> dict[str, Floats]:
    right, chosen, there = (weight @ table for table in (taken & true, taken, true))
    if pooled:
        right, chosen, there = (np.array([x.sum()]) for x in (right, chosen, there))

    def share(a: Floats, b: Floats) -> Floats:
        return np.divide(a, b, out=np.zeros_like(a, dtype=np.float64), where=b > 0)

    return {"precision": share(right, chosen), "recall": share(right, there), "f1": share(2.0 * right, chosen + there)}


def _known(found: Any, truth: Any) -> tuple[Floats, Table]:
    """Probabilities and true sets of the items whose set is known."""
    if hasattr(found, "truth_table"):
        q = found.posterior
        true, known = found.truth_table(truth)
    else:
        q, true = np.asarray(found, dtype=np.float64), np.asarray(truth)
        if q.ndim != 2 or true.shape != q.shape or true.dtype != bool:
            raise InputError(
                "Expected a LabelSetConsensus with a mapping from item to labels, or N x L probabilities with N x L "
                f"booleans, and found shapes {q.shape} and {true.shape} ({true.dtype})."
            )
        known = np.ones(len(q), dtype=bool)
    return q[some_known(known)], true[known]
