"""What gold labels say about the crowd as a whole: whether its probabilities are too sure, and which class it favours.

No vote reveals an error that the whole crowd shares. Gold labels do, and a few dozen are enough for two things that
hold for all items: a power of the odds, and a bias towards each class,

    q''[n, k] ∝ q'[n, k] ^ a * exp(b[k])

with q' the corrected posterior (:mod:`crowdwise.core.dependence`) that the votes alone give a gold item. Few labels
must do no harm, so both are shrunk towards nothing, a = 1 and b = 0. They maximise

    sum_gold log q''[n, y_n] - (a - 1)² / (2 ``POWER_SD``²) - sum_k b[k]² / (2 t²)

and how strongly biases are shrunk is learned: t is one of ``BIAS_SD``, and a and b are the means of the maxima under
each t, weighted by ``BIAS_WEIGHT`` times the evidence for t (Laplace's approximation: the maximum - log det H / 2 + the
log of the prior's precisions / 2, H the second derivatives). Most crowds have hardly a bias, some have a large one, and
fifty labels say which. Fewer than ``MIN_LABELS`` cannot, nor can those of one class, where all errors go the same way:
from those there is no bias, and no label changes.

**A gold item must not vouch for itself.** Its votes taught the matrices what its annotators do, so its posterior under
these is too good. Its own votes are taken out again, one item at a time: with T[m, k] the counts and pseudo-counts of
annotator m on class k, and w the weight of the vote in them,

    theta'[m, l, y] = ( theta[m, l, y] T[m, y] - w ) / ( T[m, y] - w )

Nor must the prior that annotators are shrunk towards: where single votes teach only on gold items, it is made of these.
``auto`` therefore judges gold items under the prior that the labels of the other items give. (With the prior of all
labels, fifty gold labels brought 6.4 % of log loss on the public sets, without it 7.7 %, as much as refits without a
fifth of the gold labels at a time.)

The numbers were chosen on the 15 public sets with truth, each set measured with the numbers that are best for the other
fourteen (docs/benchmarks/gold.md).

When it fails: gold items that are not like the others (the easy ones, the ones that were disputed) speak for their
like. The power and the bias are those of the whole crowd, on all items. With single votes over many classes the
expected accuracy stays too low (by 11 points with eight): the correction doubts the odds of every single vote, and
where only gold items teach, there are no others to judge them by.
"""

from __future__ import annotations

import numpy as np

from crowdwise.core.em import Params
from crowdwise.core.numerics import Floats, Ints, safe_log, softmax
from crowdwise.core.vote_sums import sum_rows
from crowdwise.data.votes import Votes

POWER_SD = 0.4
BIAS_SD = (0.05, 0.2, 0.5, 1.0)
BIAS_WEIGHT = (3.0, 1.0, 1.0, 1.0)
MIN_LABELS = 20
NO_BIAS = 1e-3
"""A standard deviation of biases that leaves none."""
STEPS = 30
"""The most steps of Newton's method."""


def calibrate(logit: Floats, gold: Ints) -> tuple[float, tuple[float, ...]]:
    """The power a and the biases b[k], from log q' (g x K) and the classes of g gold items."""
    x = logit - logit.mean(axis=1, keepdims=True)
    if len(gold) < MIN_LABELS or (gold == gold[0]).all():
        return max(float(_maximum(x, gold, NO_BIAS)[0][0]), 0.05), (0.0,) * x.shape[1]
    found = [_maximum(x, gold, sd) for sd in BIAS_SD]
    log_weight = np.array([evidence for _, evidence in found]) + np.log(BIAS_WEIGHT)
    weight = softmax(log_weight[None])[0]
    mean = sum(w * p for w, (p, _) in zip(weight, found, strict=True))
    a, b = max(float(mean[0]), 0.05), mean[1:] - mean[1:].mean()
    return a, tuple(b.tolist())


def _maximum(x: Floats, gold: Ints, sd: float) -> tuple[Floats, float]:
    """(a, b[0], ..., b[K-1]) at the maximum, by Newton's method, and the log evidence for a bias of this size."""
    K, at = x.shape[1], np.arange(len(x))
    mean = np.concatenate([[1.0], np.zeros(K)])
    precision = np.concatenate([[POWER_SD**-2.0], np.full(K, sd**-2.0)])
    target = np.eye(K)[gold]

    def loss(p: Floats) -> tuple[float, Floats]:
        q = softmax(p[0] * x + p[1:])
        return float(0.5 * (precision * (p - mean) ** 2).sum() - safe_log(q[at, gold]).sum()), q

    p = mean
    value, q = loss(p)
    for _ in range(STEPS):
        qx, own = q * x, (q * x).sum(axis=1, keepdims=True)
        slope = np.concatenate([[((q - target) * x).sum()], (q - target).sum(axis=0)]) + precision * (p - mean)
        H = np.diag(precision)
        H[0, 0] += (qx * x).sum() - (own**2).sum()
        H[0, 1:] += (qx - q * own).sum(axis=0)
        H[1:, 0] = H[0, 1:]
        H[1:, 1:] += np.diag(q.sum(axis=0)) - q.T @ q
        step, size = np.linalg.solve(H, slope), 1.0
        new, q = loss(p - step)
        while new > value + 1e-9 and size > 1e-3:
            size /= 2.0
            new, q = loss(p - size * step)
        p, value = p - size * step, new
        if np.abs(step).max() < 1e-6:
            break
    return p, float(-value + 0.5 * np.log(precision).sum() - 0.5 * np.linalg.slogdet(H)[1])


def without_own(
    votes: Votes, gold: Ints, params: Params, total: Floats, pseudo: Floats, weight: float | Floats = 1.0,
    log_prior: Floats | None = None,
) -> Floats:  # fmt: skip
    """The posterior of items from their votes alone, g x K, by what the other items teach about their annotators.

    Parameters
    ----------
    votes, gold, log_prior
        Of the gold items alone, in the codes of the fit.
    total
        M x K: T[m, k], counts and pseudo-counts.
    pseudo
        M x L x K: the pseudo-counts, less than which no count can be.
    weight
        How often each vote on a gold item was counted in the totals.
    """
    K, m, label, y = votes.n_classes, votes.annotator, votes.label, gold[votes.item]
    score = params.log_score.reshape(-1, K, K)[m, label].copy()
    own, T, least = weight * votes.weights, total[m, y], np.broadcast_to(pseudo, (len(total), K, K))[m, label, y]
    rest = np.maximum(np.exp(score[np.arange(len(m)), y]) * T - own, least)
    score[np.arange(len(m)), y] = safe_log(rest / np.maximum(T - own, rest))
    logit = sum_rows(score * votes.weights[:, None], votes.item, len(votes)) + params.log_prior
    return softmax(logit if log_prior is None else logit + log_prior)
