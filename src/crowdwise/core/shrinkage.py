"""Shrinking confusion matrices towards the crowd: pseudo-counts learned from counts.

=============  ===================  ==========  ====================================================================
symbol         code                 shape       equation
=============  ===================  ==========  ====================================================================
c[m, l, k]     ``counts``           M x L x K   how often annotator m said l where the label is k
base           ``base``             M x L x K   the crowd's pooled matrix; hierarchical: half that, half the
                                                annotator's own one-coin matrix
s              ``strength``         1           argmax of sum log DM(c | s base), the Dirichlet-multinomial likelihood
b[m, l, k]     ``learned_prior``    M x L x K   s base
=============  ===================  ==========  ====================================================================

A crowd of annotators who answer alike is shrunk hard, a mixed one hardly. The counts are of labels, not of vote shares:
fractions vary less than counts do, so that any crowd would look alike, and the prior would not give way as votes come
in.
"""

from __future__ import annotations

import numpy as np

from crowdwise.core.numerics import Floats, dirichlet_multinomial, maximise_1d, normalise

STRENGTH = (1e-2, 1e4)
"""The range in which the strength of a learned prior is looked for."""


def learned_prior(counts: Floats, hierarchical: bool) -> Floats:
    """b[m, l, k] = strength * base[m, l, k], with the base and its strength taken from the counts c[m, l, k]."""
    M, K, _ = counts.shape
    base = np.broadcast_to(normalise(counts.sum(axis=0) + 1e-2, axis=0), counts.shape)
    if hierarchical:
        base = 0.5 * base + 0.5 * one_coin_table(own_accuracy(counts), K)
    return strength(counts, base) * base


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


def strength(counts: Floats, base: Floats) -> float:
    """The number of pseudo-votes per row under which the counts are most probable.

    An annotator with a single vote says nothing about how much annotators differ, and is left out;
    where nobody has two, everybody is taken to be alike.
    """
    several = counts.sum(axis=(1, 2)) > 1.0 + 1e-9
    if not several.any():
        return STRENGTH[1]
    c, b = counts[several].transpose(0, 2, 1), base[several].transpose(0, 2, 1)
    low, high = np.log(STRENGTH)
    return float(np.exp(maximise_1d(lambda t: dirichlet_multinomial(c, np.exp(t) * b), low, high, tol=1e-3)))
