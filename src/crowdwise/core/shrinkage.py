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

A crowd of annotators who answer alike is shrunk hard, a mixed one hardly. The counts are of labels, not of vote shares:
fractions vary less than counts do, so that any crowd would look alike, and the prior would not give way as votes come
in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, dirichlet_multinomial, maximise_1d, normalise

STRENGTH = (1e-2, 1e4)
"""The range in which the strength of a learned prior is looked for."""


def learned_prior(counts: Floats, towards: str = "hierarchical", tol: float = 1e-3) -> Floats:
    """b[m, l, k] = strength * base[m, l, k], with the base and its strength taken from the counts c[m, l, k].

    ``tol`` is that of the logarithm of the strength.
    """
    M, K, _ = counts.shape
    crowd = normalise(counts.sum(axis=0) + 1e-2, axis=0)
    if towards == "accuracy":
        base = ability_table(counts, crowd, tol)
    else:
        base = np.broadcast_to(crowd, counts.shape)
        if towards == "hierarchical":
            base = 0.5 * base + 0.5 * one_coin_table(own_accuracy(counts), K)
    return strength(counts, base, tol) * base


def ability_table(counts: Floats, crowd: Floats, tol: float) -> Floats:
    """base[m, l, k] of annotators with one ability each, on classes as hard as the crowd's matrix[l, k] says."""
    K = len(crowd)
    right, total = np.einsum("mkk->m", counts), counts.sum(axis=(1, 2))
    mean = float(np.clip(right.sum() / max(total.sum(), 1.0), 0.01, 0.99))
    # Two "labels", right and wrong, of one "class": the same search for the strength of a prior.
    pairs, prior = np.stack([right, total - right], axis=1)[:, :, None], np.array([mean, 1.0 - mean])[None, :, None]
    s = strength(pairs, np.broadcast_to(prior, pairs.shape), tol)
    ability = logit(np.clip((right + s * mean) / (total + s), 1e-3, 1.0 - 1e-3)) - logit(mean)
    a = np.clip(expit(ability[:, None] + logit(np.clip(np.diag(crowd), 0.01, 0.99))), 1e-3, 1.0 - 1e-3)
    wrong = crowd * (1.0 - np.eye(K))
    base = (wrong / wrong.sum(axis=0))[None] * (1.0 - a)[:, None, :]
    base[:, np.arange(K), np.arange(K)] = a
    return np.asarray(base)


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
    w = accuracy.reshape(len(accuracy), -1)
    out = np.broadcast_to(((1.0 - w) / (K - 1.0))[:, None, :], (len(w), K, K)).copy()
    out[:, np.arange(K), np.arange(K)] = w
    return out


def strength(counts: Floats, base: Floats, tol: float = 1e-3) -> float:
    """The number of pseudo-votes per row under which the counts are most probable.

    An annotator with a single vote says nothing about how much annotators differ, and is left out;
    where nobody has two, everybody is taken to be alike.
    """
    several = counts.sum(axis=(1, 2)) > 1.0 + 1e-9
    if not several.any():
        return STRENGTH[1]
    c, b = counts[several].transpose(0, 2, 1), base[several].transpose(0, 2, 1)
    low, high = np.log(STRENGTH)
    return float(np.exp(maximise_1d(lambda t: dirichlet_multinomial(c, np.exp(t) * b), low, high, tol)))
