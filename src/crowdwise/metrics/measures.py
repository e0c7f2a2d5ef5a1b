"""What is measured of each answer type where the truth is known, every figure with its interval.

**Clusters** against classes, however clusters are numbered. With n[k, c] items in cluster k and class c:

    accuracy = max over matchings of clusters to classes of sum n[k, match(k)] / N
    NMI      = I(cluster; class) / ((H(cluster) + H(class)) / 2)
    ARI      = (S - E) / (M - E),  S pairs together in both, E = together in clusters * together in classes / all pairs,
               M the mean of the two

They take a :class:`~crowdwise.Clustering` and a mapping from item to class, or N cluster codes and N class codes.

**Label sets** by label, by item, and as whole sets. A label is taken where its probability is over one half.

    precision = right labels / labels taken       recall = right labels / true labels       F1 = 2 P R / (P + R)

They take a :class:`~crowdwise.LabelSetConsensus` and a mapping from item to labels, or N x L probabilities (or
booleans) and N x L booleans. ``average="micro"`` counts labels over all items; ``"macro"`` is the mean over labels of
each one's own figure. Where nothing was taken (or nothing is true) a figure is 0, as in scikit-learn; the Jaccard index
of two empty sets is 1.

**Spans of tags** that are exactly right, in place and in type. Counts are summed over sequences first (micro averages),
and the bootstrap draws whole sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise import metrics, registry  # the names of metrics are imported when they are used
from crowdwise.core import result as results
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, Fraction, checked
from crowdwise.core.numerics import TIE, Floats, Ints
from crowdwise.core.result import Estimates, kendall_tau, some_known
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError, listing
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options

if TYPE_CHECKING:
    from crowdwise.data.tags import Tags


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
    for each in (estimated, true):
        table = each.confusion if isinstance(each, Consensus) else each
        if table is None:
            raise InputError(f"A {each.method} consensus has no confusion matrices to compare.")
        tables.append(np.asarray(table, dtype=np.float64))
    _check_alike(estimated, true, "annotators")
    a, b = tables
    if a.shape != b.shape or a.ndim != 3 or a.shape[1] != a.shape[2]:
        raise InputError(f"Expected two M x K x K arrays of the same shape and found {a.shape} and {b.shape}.")
    return Bootstrap(**options).mean(((a - b) ** 2).sum(axis=(1, 2)) / a.shape[1])


def _check_alike(result: Any, other: Any, *names: str) -> None:
    """Refuse two that name different items, annotators or classes: arrays of one shape would be compared all the
    same."""
    for name in (*names, "classes"):
        if hasattr(result, name) and hasattr(other, name):
            one, two = getattr(result, name), getattr(other, name)
            if not np.array_equal(one, two):
                raise InputError(f"Expected both with the same {name} and found {listing(one)}, and {listing(two)}.")


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
    predicted = np.asarray(classifier.predict(X))
    known = votes.truth >= 0
    return float((predicted[known] == votes.classes[votes.truth[known]]).mean())


@checked
def log_loss(result: Any, truth: Any, *, floor: Fraction = 1e-15, **options: Unpack[Options]) -> Estimate:
    """The mean of -log P(true class), with probabilities held above ``floor``."""
    q, y = known_items(result, truth)
    return Bootstrap(**options).mean(-np.log(np.maximum(q[np.arange(len(y)), y], floor)))


def brier(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The mean of sum_k (q_k - 1[truth = k])^2: 0 is perfect, 2 certain and wrong."""
    q, y = known_items(result, truth)
    return Bootstrap(**options).mean((q * q).sum(axis=1) - 2.0 * q[np.arange(len(y)), y] + 1.0)


def manhattan(result: Any, votes: Any, **options: Unpack[Options]) -> Estimate:
    """The mean over items of sum_k |q_k - p_k|, p the shares of the item's votes: 0 to 2."""
    q, p = soft_labels(result, votes)
    return Bootstrap(**options).mean(np.abs(q - p).sum(axis=1))


def wasserstein(result: Any, votes: Any, **options: Unpack[Options]) -> Estimate:
    """The mean over items of the distance that probability must be moved, classes counting in their order.

    That is the sum over k of |Q_k - P_k| of the two cumulative distributions: a neighbouring class is one away.
    """
    q, p = soft_labels(result, votes)
    return Bootstrap(**options).mean(np.abs(np.cumsum(q - p, axis=1)[:, :-1]).sum(axis=1))


@checked
def cross_entropy(result: Any, votes: Any, *, floor: Fraction = 1e-15, **options: Unpack[Options]) -> Estimate:
    """The mean over items of - sum_k p_k log q_k, p the shares of the item's votes."""
    q, p = soft_labels(result, votes)
    return Bootstrap(**options).mean(-(p * np.log(np.maximum(q, floor))).sum(axis=1))


def soft_labels(result: Any, votes: Any) -> tuple[Floats, Floats]:
    """Probabilities and shares of votes of the items that have votes; both with the same items and classes."""
    q = result.posterior if isinstance(result, Consensus) else np.asarray(result, dtype=np.float64)
    p = votes.shares() if isinstance(votes, Votes) else np.asarray(votes, dtype=np.float64)
    if q.ndim != 2 or q.shape != p.shape:
        raise InputError(
            f"Expected N x K probabilities and the votes on the N items, and found {q.shape} and {p.shape}."
        )
    _check_alike(result, votes, "items")
    voted = some_known(
        np.diff(votes.indptr) > 0 if isinstance(votes, Votes) else np.atleast_1d(np.isfinite(p).all(axis=1))
    )
    if not np.allclose(p[voted].sum(axis=1), 1.0, atol=1e-6):
        raise InputError("The shares of the votes on an item must sum to one.")
    return q[voted], p[voted]


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


def mae(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Mean absolute error: of numbers in their unit, of grades in grades."""
    x, y = _numbers(result, truth)
    return Bootstrap(**options).mean(np.abs(x - y))


def rmse(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Root mean square error."""
    x, y = _numbers(result, truth)
    square = (x - y) ** 2
    return Bootstrap(**options).of_weights(lambda w: float(np.sqrt(w @ square / w.sum())), len(x))


def quadratic_kappa(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Cohen's kappa with squared distances between grades as weights: 1 is perfect, 0 chance.

    = 1 - mean (x - y)^2 / (var x + var y + (mean x - mean y)^2): its denominator is the mean square of independent
    pairs.
    """
    x, y = _numbers(result, truth)

    def statistic(w: Floats) -> float:
        total = w.sum()
        a, b = w @ x / total, w @ y / total
        chance = w @ (x - a) ** 2 / total + w @ (y - b) ** 2 / total + (a - b) ** 2
        return 1.0 if chance == 0.0 else float(1.0 - w @ (x - y) ** 2 / total / chance)

    return Bootstrap(**options).of_weights(statistic, len(x))


def spearman(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Spearman's rank correlation, ties at their mean rank; 0 where one side is constant."""
    from scipy.stats import rankdata

    def statistic(x: Floats, y: Floats) -> float:
        a, b = (rankdata(v) - (len(v) + 1) / 2.0 for v in (x, y))
        size = np.sqrt((a @ a) * (b @ b))
        return float(a @ b / size) if size > 0 else 0.0

    return _resampled(statistic, result, truth, **options)


def kendall(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Kendall's rank correlation tau-b, which allows for ties; 0 where one side is constant. 200 resamples."""
    return _resampled(kendall_tau, result, truth, **({"resamples": 200} | options))


def _resampled(
    statistic: Callable[[Floats, Floats], float], result: Any, truth: Any, **options: Unpack[Options]
) -> Estimate:
    """A statistic of pairs, with items drawn again for the interval."""
    x, y = _numbers(result, truth)

    def weighted(w: Floats) -> float:
        take = np.repeat(np.arange(len(x)), w.astype(np.int64))
        return statistic(x[take], y[take])

    return Bootstrap(**options).of_weights(weighted, len(x))


def _numbers(result: Any, truth: Any) -> tuple[Floats, Floats]:
    """Found and true numbers (or places of grades, in the order that the fit was given) of items with known truth."""
    if isinstance(result, Estimates):
        x, y = result.values, result.truth_values(truth)
    elif isinstance(result, Consensus):
        codes, order = result.truth_codes(truth), result.params.get("order") or result.classes.tolist()
        place = encoding.locate(result.classes, encoding.to_vocabulary(list(order))).astype(np.float64)
        x, y = place[result.label_codes], np.where(codes >= 0, place[codes], np.nan)
    else:
        x, y = np.asarray(result, dtype=np.float64), np.asarray(truth, dtype=np.float64)
        if x.ndim != 1 or x.shape != y.shape:
            raise InputError(
                "Expected Estimates, a Consensus, or two arrays with a number for each item, and found shapes "
                f"{x.shape} and {y.shape}."
            )
    known = some_known(~(np.isnan(x) | np.isnan(y)))
    return x[known], y[known]


def cluster_accuracy(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The share of items whose cluster is their class, under the best one-to-one matching of clusters to classes."""
    from scipy.optimize import linear_sum_assignment

    k, c = _known_clusters(result, truth)

    def statistic(weight: Floats) -> float:
        table = _table(k, c, weight)
        rows, columns = linear_sum_assignment(-table)
        return float(table[rows, columns].sum() / weight.sum())

    return Bootstrap(**options).of_weights(statistic, len(k))


def mutual_information(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """Normalised mutual information of clusters and classes (by the mean of their entropies): 1 is a perfect match."""
    k, c = _known_clusters(result, truth)

    def statistic(weight: Floats) -> float:
        p = _table(k, c, weight) / weight.sum()
        rows, columns = _bits(p.sum(axis=1)), _bits(p.sum(axis=0))
        if rows + columns == 0.0:  # one cluster and one class
            return 1.0
        return min(1.0, max(0.0, 2.0 * (rows + columns - _bits(p)) / (rows + columns)))

    return Bootstrap(**options).of_weights(statistic, len(k))


def adjusted_rand(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The adjusted Rand index: 1 is a perfect match, 0 what random clusters of these sizes come to.

    In resamples an item is never paired with itself.
    """
    k, c = _known_clusters(result, truth)
    return Bootstrap(**options).of_weights(lambda weight: results.adjusted_rand(k, c, weight), len(k))


def _table(k: Ints, c: Ints, weight: Floats) -> Floats:
    K, C = int(k.max()) + 1, int(c.max()) + 1
    return np.asarray(np.bincount(k * C + c, weights=weight, minlength=K * C).reshape(K, C), dtype=np.float64)


def _bits(p: Floats) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def _known_clusters(result: Any, truth: Any) -> tuple[Ints, Ints]:
    """Cluster and class codes, from 0 on, of the items whose class is known."""
    if hasattr(result, "cluster_codes"):
        cluster, true = result.cluster_codes, result.truth_codes(truth)
    else:
        cluster, true = np.asarray(result), np.asarray(truth)
        if cluster.ndim != 1 or cluster.shape != true.shape or true.dtype.kind not in "iu":
            raise InputError(
                "Expected a Clustering with a mapping from item to class, or N clusters with N integer class codes, "
                f"and found shapes {cluster.shape} and {true.shape} ({true.dtype})."
            )
    known = some_known(true >= 0)
    return tuple(np.unique(x[known], return_inverse=True)[1] for x in (cluster, true))  # type: ignore[return-value]


Table = npt.NDArray[np.bool_]
Average = Literal["micro", "macro"]


@checked
def set_precision(result: Any, truth: Any, *, average: Average = "micro", **options: Unpack[Options]) -> Estimate:
    """The share of labels taken that are right."""
    return _averaged(result, truth, "precision", average, options)


@checked
def set_recall(result: Any, truth: Any, *, average: Average = "micro", **options: Unpack[Options]) -> Estimate:
    """The share of true labels that were taken."""
    return _averaged(result, truth, "recall", average, options)


@checked
def set_f1(result: Any, truth: Any, *, average: Average = "micro", **options: Unpack[Options]) -> Estimate:
    """The harmonic mean of precision and recall."""
    return _averaged(result, truth, "f1", average, options)


def label_scores(result: Any, truth: Any) -> dict[str, npt.NDArray[Any]]:
    """Precision, recall and F1 of each label, with how many items truly have it."""
    q, true = _known(result, truth)
    names = result.labels if hasattr(result, "labels") else np.arange(q.shape[1])
    return {"label": names, "items": true.sum(axis=0), **_figures(q > 0.5, true, np.ones(len(q)))}


def subset_accuracy(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The share of items whose set is right as a whole."""
    q, true = _known(result, truth)
    return Bootstrap(**options).share(((q > 0.5) == true).all(axis=1).astype(np.float64))


def jaccard(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The mean over items of |taken and true| / |taken or true|; 1 where both are empty."""
    q, true = _known(result, truth)
    both, either = ((q > 0.5) & true).sum(axis=1), ((q > 0.5) | true).sum(axis=1)
    return Bootstrap(**options).share(np.divide(both, either, out=np.ones(len(q)), where=either > 0))


def hamming_loss(result: Any, truth: Any, **options: Unpack[Options]) -> Estimate:
    """The share of all (item, label) pairs that are decided wrongly."""
    q, true = _known(result, truth)
    return Bootstrap(**options).share(((q > 0.5) != true).mean(axis=1))


def top_k_with_gold_count(result: Any, truth: Any) -> dict[str, npt.NDArray[Any]]:
    """Accuracy and F1 of each label when it is given to the k items with its highest probabilities, k being the
    **true number** of items that have it.

    This is how Li, Huang and Chen (2021) evaluate BayesDGC. It uses the gold count, which is unknown in practice: it
    compares rankings, and says nothing of how well the number of items was judged. Items tied at the boundary share
    what is left of k. The last row is the mean over labels.
    """
    q, true = _known(result, truth)
    N, L = q.shape
    names = result.labels if hasattr(result, "labels") else np.arange(L)
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


def _averaged(result: Any, truth: Any, which: str, average: Average, options: Options) -> Estimate:
    q, true = _known(result, truth)
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


def _known(result: Any, truth: Any) -> tuple[Floats, Table]:
    """Probabilities and true sets of the items whose set is known."""
    if hasattr(result, "truth_table"):
        q = result.posterior
        true, known = result.truth_table(truth)
    else:
        q, true = np.asarray(result, dtype=np.float64), np.asarray(truth)
        if q.ndim != 2 or true.shape != q.shape or true.dtype != bool:
            raise InputError(
                "Expected a LabelSetConsensus with a mapping from item to labels, or N x L probabilities with N x L "
                f"booleans, and found shapes {q.shape} and {true.shape} ({true.dtype})."
            )
        known = np.ones(len(q), dtype=bool)
    return q[some_known(known)], true[known]


def span_scores(result: Any, tags: Tags, truth: Any = None, **options: Unpack[Options]) -> dict[str, Estimate]:
    """Precision, recall and F1 of exact spans.

    Parameters
    ----------
    result
        A consensus over the tokens of ``tags`` (of any method), or one tag for every token, by name.
    tags
        The sequences. Those all of whose tokens have a known truth are counted.
    truth
        The true tags, as :meth:`crowdwise.Tags.encode_truth` takes them; by default those that lie with ``tags``.
    **options
        Of the intervals: see :class:`~crowdwise.metrics.bootstrap.Options`.
    """
    counts, whole = _span_counts(result, tags, truth)
    return _scores(sum(counts.values(), np.zeros((whole, 3))), options)


def span_scores_per_type(
    result: Any, tags: Tags, truth: Any = None, **options: Unpack[Options]
) -> dict[str, dict[str, Estimate]]:
    """As :func:`span_scores`, for each type of spans that was found or is true."""
    counts, _ = _span_counts(result, tags, truth)
    return {name: _scores(table, options) for name, table in counts.items() if table.sum() > 0}


def _scores(counts: Floats, options: Options) -> dict[str, Estimate]:
    def score(weight: Floats, name: str) -> float:
        right, marked, true = weight @ counts
        size = {"precision": marked, "recall": true, "f1": (marked + true) / 2.0}[name]
        return float(right / size) if size > 0 else float(right == marked == true)

    by = Bootstrap(**options)
    return {name: by.of_weights(partial(score, name=name), len(counts)) for name in ("precision", "recall", "f1")}


def _span_counts(result: Any, tags: Tags, truth: Any) -> tuple[dict[str, Floats], int]:
    """For each type G x 3, the right, marked and true spans of each sequence whose truth is known throughout; and G."""
    code = _codes(result, tags)
    true = tags.truth if truth is None else tags.encode_truth(truth)
    if true is None:
        raise InputError("The tags have no truth: pass truth=..., or make them with one.")
    whole = np.add.reduceat(true < 0, tags.starts[:-1]) == 0
    if not whole.any():
        raise InputError("No sequence has a known truth for all of its tokens: there is nothing to measure.")
    outside = encoding.locate(encoding.to_vocabulary(["O"]), tags.classes)[0]
    both = [tags.spans(codes) for codes in (code, np.where(true < 0, max(outside, 0), true))]
    marked, there = (
        set(zip(s.type.tolist(), s.sequence.tolist(), s.start.tolist(), s.end.tolist(), strict=True)) for s in both
    )
    counts = {name: np.zeros((len(whole), 3)) for name in sorted({span[0] for span in marked | there})}
    for column, spans in enumerate((marked & there, marked, there)):
        for name, sequence, *_ in spans:
            counts[name][sequence, column] += 1.0
    return {name: table[whole] for name, table in counts.items()}, int(whole.sum())


def _codes(result: Any, tags: Tags) -> npt.NDArray[Any]:
    if isinstance(result, Consensus):
        if not np.array_equal(result.items, tags.votes.items):
            raise InputError("The consensus is over other tokens than those of the tags.")
        names = result.labels
    else:
        names = encoding.to_vocabulary(list(result))
        if len(names) != tags.n_tokens:
            raise InputError(f"Expected a tag for each of the {tags.n_tokens} tokens and found {len(names)}.")
    kinds, place = np.unique(names.astype(str), return_inverse=True)
    known = encoding.locate(encoding.to_vocabulary(kinds.tolist()), tags.classes)
    if (known < 0).any():
        raise LabelError(f"Tags {listing(kinds[known < 0])} are not among {listing(tags.classes, 10)}.")
    return known[place]


MEASURES = {
    "accuracy": "Right against the known truth", "calibration_error": "Calibration error", "mae": "Mean absolute error",
    "rmse": "Root mean square error", "kendall": "Kendall’s tau", "f1": "F1 of the labels", "jaccard": "Jaccard index",
    "subset_accuracy": "Sets that are right", "span_f1": "F1 of the spans", "adjusted_rand": "Adjusted Rand index",
    "mutual_information": "Mutual information", "quadratic_kappa": "Quadratic kappa",
    "span_precision": "Precision of the spans", "span_recall": "Recall of the spans",
    "word_error_rate": "Word error rate", "character_error_rate": "Character error rate", "chrf": "chrF",
    "exact_match": "Exact match", "dice": "Dice", "iou": "IoU", "hausdorff": "Hausdorff distance (pixels)",
    "edge_distance": "Mean distance of the edges (pixels)", "f1_50": "F1 at IoU 0.5", "f1_75": "F1 at IoU 0.75",
    "f1_mean": "Mean F1, IoU 0.5 to 0.95", "precision_50": "Precision at IoU 0.5", "recall_50": "Recall at IoU 0.5",
    "mean_iou": "Mean IoU of matches", "count_ratio": "Objects per true object", "f1_exact": "F1 of exact spans",
    "f1_overlap": "F1 of spans by overlap", "precision_overlap": "Precision of spans by overlap",
    "recall_overlap": "Recall of spans by overlap", "f1_characters": "F1 of characters",
}  # fmt: skip
"""What each figure is called; others by their name."""


def measure(answer_type: str, answers: Any, result: Any, truth: Any = None) -> dict[str, Estimate]:
    """Figures with intervals against known truth, by name; none where nothing is known.

    Items whose class the method was given (gold) are left out.

    Parameters
    ----------
    answer_type
        A key of ``crowdwise.ANSWER_TYPES``.
    answers, result
        A table of answers, and the result of a fit to them.
    truth
        By default that of the answers; of comparisons, which know true outcomes, the true score of each item.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(50, n_annotators=6, random_state=0)
    >>> sorted(cw.metrics.measure("ratings", crowd.answers, cw.aggregate(crowd.answers)))
    ['mae', 'rmse']
    """
    rules = registry.ANSWER_TYPES[answer_type].rules
    truth = rules.truth(answers) if truth is None else truth
    return {} if truth is None else rules.measures(answers, result, truth)


def measure_classes(result: Any, truth: Any) -> dict[str, Estimate]:
    """What is measured of votes: a consensus or N x K class probabilities, against N class codes."""
    return {"accuracy": metrics.accuracy(result, truth), "calibration_error": metrics.calibration_error(result, truth)}


MOST_ITEMS = 1_000_000
"""Items with truth that are kept."""


class MeasuredParts:
    """The class probabilities of items whose truth is known, and what they show."""

    def __init__(self) -> None:
        self.rows: list[tuple[Floats, Ints]] = []
        self.n_items = 0

    def add(self, q: Floats, truth: Ints | None) -> None:
        """The items of a part: N x K class probabilities and N class codes, -1 where the truth is unknown.

        Which items a part holds is chance, so that those of the first parts are as good as any.
        """
        if truth is not None and self.n_items < MOST_ITEMS:
            known = np.flatnonzero(truth >= 0)[: MOST_ITEMS - self.n_items]
            self.rows.append((q[known], truth[known]))
            self.n_items += len(known)

    def measured(self) -> dict[str, Estimate]:
        """Figures by name, as :func:`crowdwise.metrics.measure` gives them for votes; none where nothing is known."""
        if not self.n_items:
            return {}
        q, y = (np.concatenate(arrays) for arrays in zip(*self.rows, strict=True))
        return measure_classes(q, y)
