"""Shrinking confusion matrices towards the crowd: pseudo-counts learned from counts.

=============  ===================  ==========  ====================================================================
symbol         code                 shape       equation
=============  ===================  ==========  ====================================================================
c[m, l, k]     ``counts``           M x L x K   how often annotator m said l where the label is k
base           ``base``             M x L x K   ``"crowd"``: the crowd's pooled matrix
                                                ``"hierarchical"``: half that, half the annotator's own one-coin matrix
                                                ``"accuracy"``: see below
s              ``strength``         1           argmax of sum log DM(c | s base), the Dirichlet-multinomial likelihood
b[m, l, k]     ``learned_prior``    M x L x K   s base
=============  ===================  ==========  ====================================================================

``"accuracy"`` gives every annotator one ability on top of how hard the crowd finds a class, as in a Rasch model, and
the crowd's way to be wrong. With w[m] the annotator's share of right votes (shrunk towards the crowd's w by a Beta
prior, its strength from the counts too) and v[k] the crowd's on items of class k:

    a[m, k] = sigmoid( logit w[m] + logit v[k] - logit w ),     base[m, k, k] = a[m, k]
    base[m, l, k] = (1 - a[m, k]) * the crowd's share of l among wrong votes on k

A class with fewer than ``FEW`` votes says little of how hard it is: the crowd's matrix has as many votes more as are
missing, at the crowd's share of right votes (with ``FEW`` more, ``RIGHT`` of them right). Labels mean what they say
until votes show otherwise.

**Few votes** say next to nothing about how much annotators differ, and the most likely strength is then one end of the
range. For ``"accuracy"`` both strengths therefore have a prior of their own: log s is normal, with the median ``USUAL``
votes and the standard deviation ``USUAL_SD``, so that s is between 1 and 2,500 with probability .95. Some tens of
annotators with some tens of votes each outweigh it.

The counts are of labels, not of vote shares: fractions vary less than counts do, so that any crowd would look alike,
and the prior would not give way as votes come in.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, maximise_1d, maximise_smooth, normalise

STRENGTH = (1e-2, 1e4)
"""The range in which the strength of a learned prior is looked for."""
USUAL, USUAL_SD = 50.0, 2.0
"""The median of the strength under its own prior, and the standard deviation of its logarithm."""
FEW, RIGHT = 20.0, 0.75
"""Fewer votes on a class than this are made up to it; the share of right ones among those that are added, where nothing
else is known: about that of public crowds."""


def learned_prior(counts: Floats, towards: str = "hierarchical", quick: bool = False) -> Floats:
    """b[m, l, k] = strength * base[m, l, k], with the base and its strength taken from the counts c[m, l, k].

    ``quick``: the strength to a few percent, in a third of the evaluations.
    """
    K, pooled = counts.shape[1], counts.sum(axis=0)
    if towards == "accuracy":
        base = ability_table(counts, hardness(pooled), quick)
    else:
        base = np.broadcast_to(normalise(pooled + 1e-2, axis=0), counts.shape)
        if towards == "hierarchical":
            base = 0.5 * base + 0.5 * one_coin_table(own_accuracy(counts), K)
    return strength(counts, base, quick, usual=towards == "accuracy") * base


def hardness(pooled: Floats) -> Floats:
    """P(label l | class k) of the crowd, from its pooled counts[l, k]; classes with few votes are taken to be as hard
    as all. Where there are no votes, nothing is known."""
    total, K = pooled.sum(axis=0), len(pooled)
    accuracy = (np.trace(pooled) + FEW * RIGHT) / (total.sum() + FEW) if total.any() else 1.0 / K
    usual = one_coin_table(np.array([accuracy]), K)[0]
    return normalise(pooled + np.maximum(FEW - total, 0.0) * usual + 1e-2, axis=0)


def ability_table(counts: Floats, crowd: Floats, quick: bool) -> Floats:
    """base[m, l, k] of annotators with one ability each, on classes as hard as the crowd's matrix[l, k] says."""
    K = len(crowd)
    right, total = np.einsum("mkk->m", counts), counts.sum(axis=(1, 2))
    mean = float(np.clip(right.sum() / max(total.sum(), 1.0), 0.01, 0.99))
    # Two "labels", right and wrong, of one "class": the same search for the strength of a prior.
    pairs, prior = np.stack([right, total - right], axis=1)[:, :, None], np.array([mean, 1.0 - mean])[None, :, None]
    s = strength(pairs, np.broadcast_to(prior, pairs.shape), quick, usual=True)
    ability = logit(np.clip((right + s * mean) / (total + s), 1e-3, 1.0 - 1e-3)) - logit(mean)
    a = np.clip(expit(ability[:, None] + logit(np.clip(np.diag(crowd), 0.01, 0.99))), 1e-3, 1.0 - 1e-3)
    wrong = crowd * (1.0 - np.eye(K))
    return np.where(np.eye(K, dtype=bool), a[:, None], (wrong / wrong.sum(axis=0)) * (1.0 - a)[:, None])


def logit(p: Any) -> Any:
    """log p / (1 - p)."""
    return np.log(p) - np.log1p(-p)


def expit(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def own_accuracy(counts: Floats) -> Floats:
    """Each annotator's share of right votes, with one extra vote of the crowd's average."""
    right, total = np.einsum("mkk->m", counts), counts.sum(axis=(1, 2))
    mean = right.sum() / max(total.sum(), 1.0)
    return np.asarray(np.clip((right + mean) / (total + 1.0), 1e-3, 1.0 - 1e-3))


def one_coin_table(accuracy: Floats, K: int) -> Floats:
    """theta[m, l, k] of annotators who are right with one probability (M) or one per class (M x K), wrong evenly."""
    w = accuracy.reshape(len(accuracy), 1, -1)
    return np.where(np.eye(K, dtype=bool), w, (1.0 - w) / (K - 1.0))


def strength(counts: Floats, base: Floats, quick: bool = False, usual: bool = False) -> float:
    """The number of pseudo-votes per row under which the counts are most probable; with ``usual``, the most probable
    number given the counts, under its own prior.

    An annotator with a single vote says nothing about how much annotators differ, and is left out;
    where none has two, all are taken to be alike.
    """
    several = counts.sum(axis=(1, 2)) > 1.0 + 1e-9
    if not several.any():
        return STRENGTH[1]
    c, b = counts[several], base[several]
    row, cell = c.sum(axis=1) > 0.0, c > 0.0  # what was never seen adds nothing at any strength
    totals, sums, seen, shares = c.sum(axis=1)[row], b.sum(axis=1)[row], c[cell], b[cell]
    search = partial(maximise_smooth, width=1.0) if quick else partial(maximise_1d, tol=1e-3)

    def score(t: float) -> float:
        beyond = (t - np.log(USUAL)) / USUAL_SD if usual else 0.0
        return _evidence(np.exp(t), totals, sums, seen, shares) - 0.5 * beyond**2

    return float(np.exp(search(score, *np.log(STRENGTH))))


def _evidence(s: float, totals: Floats, sums: Floats, seen: Floats, shares: Floats) -> float:
    """log P(counts | s base) of Dirichlet-multinomial rows: from totals n and sums B of the base over labels, and from
    the cells alone that have counts c, with their base b. lgamma(s B) - lgamma(s B + n), lgamma(s b + c) - lgamma(s b).
    """
    from scipy.special import gammaln

    rows, cells = gammaln(s * sums) - gammaln(s * sums + totals), gammaln(s * shares + seen) - gammaln(s * shares)
    return float(rows.sum() + cells.sum())
