"""Skills from agreement: their variances, for the intervals in the table of annotators, and whether they can be used.

Skills are made of agreements, and agreements of items. An estimate s_m moves with item n by an influence psi[n, m];
items are independent of each other, so its variance is the sum of psi^2. The influences:

==================  ==================================================================================================
estimate            psi[n, m]
==================  ==================================================================================================
pairs, all          sum over partners j on n of s_j (e_mj - s_m s_j) / D_m, D_m the sum of s_j^2 over items and partners
triangle (i, j)     of s^2: ( c_jm (e_im - c_im) / n_im + c_im (e_jm - c_jm) / n_jm - s^2 (e_ij - c_ij) / n_ij ) / c_ij
==================  ==================================================================================================

e_ij is the agreement of two annotators on the item, corrected for chance: 1, or -1 / (K - 1). The skills of the others
are taken as they are, so with few annotators the intervals are a little narrow.

Competences (``mace``) are estimated beside a strategy xi. With P_l = theta [l = k] + (1 - theta) xi_l and n_k the votes
on items of class k, the Fisher information about logit theta when the truths are known is

    I = sum_k n_k (theta (1 - theta))^2 ( (1 - xi_k)^2 / P_k + (1 - xi_k) / (1 - theta) )

of which the part that a change of the strategy could explain is subtracted: the projection on the directions xi + t,
sum t = 0.

**Usable.** Two annotators who answer the same class to everything agree perfectly, so a method built on agreement takes
them for perfect: where votes are few and unequal, a single pair like that decides all labels. The labels themselves
show it. With confusion matrices integrated out, the probability of votes and labels together is

    p(votes, z) = p(z) prod over m, k of  B(c[m, k] + a_k) / B(a_k)

====================  ==========================  ======================================================================
symbol                code                        meaning
====================  ==========================  ======================================================================
z                     ``label``                   one label per item
c[m, k, l]            ``count``                   votes of m for l on items with z = k
a_k                   1, and 2 for l = k          pseudo-votes: a little better than chance
p(z)                  N_k! (K - 1)! / (N+K-1)!    shares of classes integrated out, N_k items of class k
====================  ==========================  ======================================================================

Labels under which this is lower than under the majority vote are not used. Constant answers explain nothing, so
favourite labels do not raise it, and few votes hardly count, so a thin graph does not either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.intervals import Z
from crowdwise.core.model import Model, declared
from crowdwise.core.numerics import Floats, Ints, clamp, decide
from crowdwise.core.vote_sums import tally
from crowdwise.data.votes import Votes
from crowdwise.methods.skills_graph import AgreementPairs, with_gold


def pair_variance(votes: Votes, gold: Ints | None, skill: Floats) -> Floats:
    """The variance of skills fitted to all pairs by common items; infinite for annotators who share none.

    ``skill`` has one entry more than there are annotators where there are gold labels.
    """
    K = votes.n_classes
    item, who, label, w, M = with_gold(votes, gold)
    s, cell = skill[who], item * K + label
    _, turn = np.unique(item * np.int64(M) + who, return_inverse=True)  # an annotator may have answered an item twice
    _, say = np.unique(cell * np.int64(M) + who, return_inverse=True)

    def others(value: Floats, at: Ints, own: Ints) -> Floats:
        """Sums over the votes at the same place that are not the annotator's own."""
        return np.asarray(np.bincount(at, weights=value)[at] - np.bincount(own, weights=value)[own])

    squares = others(w * s * s, item, turn)
    gap = w * ((K * others(w * s, cell, say) - others(w * s, item, turn)) / (K - 1.0) - s * squares)
    psi = np.bincount(turn, weights=gap)
    owner = np.zeros(len(psi), dtype=np.int64)
    owner[turn] = who
    total = np.bincount(who, weights=w * squares, minlength=M)
    top = np.bincount(owner, weights=psi * psi, minlength=M)
    return np.asarray(np.divide(top, total**2, out=np.full(M, np.inf), where=total > 1e-12))


def triangle_variance(
    votes: Votes, gold: Ints | None, pairs: AgreementPairs, size: Floats, first: Ints, second: Ints
) -> Floats:
    """The variance of skills that each rest on one pair of partners (-1: on none, infinite).

    What varies evenly is s^2, with variance V. For s it is V / 4 s^2, but near s = 0, where the interval of s^2 reaches
    down to 0 and that of s is as wide as the root of its other end.
    """
    from scipy.sparse import csr_matrix

    N, K = len(votes), votes.n_classes
    item, who, label, w, M = with_gold(votes, gold)
    there = csr_matrix((w, (who, item)), shape=(M, N))
    labels = csr_matrix((w, (who, item * K + label)), shape=(M, N * K))
    own = np.flatnonzero(first >= 0)
    i, j = first[own], second[own]

    def deviation(a: Ints, b: Ints) -> tuple[Floats, Any]:
        """c_ab, and (e_ab - c_ab) / n_ab, triangles x items."""
        common, same = there[a].multiply(there[b]).tocsr(), labels[a].multiply(labels[b]).tocsr()
        agree = csr_matrix((same.data, same.indices // K, same.indptr), shape=common.shape)
        n, c = (np.asarray(table[a, b]).ravel() for table in (pairs.n, pairs.c))
        gap = (K * agree - common) / (K - 1.0) - common.multiply(c[:, None])
        return c, gap.multiply((1.0 / n)[:, None]).tocsr()

    out = np.full(M, np.inf)
    if len(own):
        (c_i, with_i), (c_j, with_j), (c, between) = deviation(i, own), deviation(j, own), deviation(i, j)
        psi = with_i.multiply((c_j / c)[:, None]) + with_j.multiply((c_i / c)[:, None])
        psi = psi - between.multiply((c_i * c_j / c**2)[:, None])
        square = np.asarray(psi.power(2).sum(axis=1)).ravel()
        flat = np.divide(square, 4.0 * size[own] ** 2, out=np.full(len(own), np.inf), where=size[own] > 0)
        out[own] = np.where(square > 0, np.minimum(flat, np.sqrt(square) / Z), np.inf)
    return out


def knowing_information(theta: Floats, xi: Floats, truths: Floats, pseudo: Floats) -> Floats:
    """The information about logit theta, xi being estimated too; M.

    ``truths`` (M x K) is the weight of an annotator's votes on items of each class, ``pseudo`` (M x K) the pseudo-votes
    on the labels of the strategy.
    """
    xi = np.maximum(xi, 1e-12)
    slope, miss = (theta * (1.0 - theta))[:, None], (1.0 - theta)[:, None]
    P = theta[:, None] + miss * xi
    about = (truths * slope**2 * ((1.0 - xi) ** 2 / P + (1.0 - xi) / miss)).sum(axis=1)
    total = truths.sum(axis=1, keepdims=True)
    along = truths * slope * (1.0 - xi) * miss / P - (total - truths) * slope
    own = truths * miss**2 / P + (total - truths) * miss / xi + pseudo / xi**2
    return marginal_information(about, along, own)


def marginal_information(about: Floats, along: Floats, own: Floats) -> Floats:
    """The information about a parameter, less the part that a change of K shares that sum to one could explain.

    ``about`` (M) is its information, ``own`` (M x K) that of the shares, which is diagonal, ``along`` (M x K) the
    entries between them: the least of about - 2 t along + t^2 own over directions t whose sum is zero.
    """
    explained = (along**2 / own).sum(axis=1) - (along / own).sum(axis=1) ** 2 / (1.0 / own).sum(axis=1)
    return np.asarray(np.maximum(about - explained, 0.0))


MARGIN = 3.0
"""How much higher the majority's log-probability must be (a factor of 20)."""
NOTE = (
    "Agreement of pairs did not give usable skills: the votes are less probable under its labels than under the "
    "majority vote. Too few common items, or favourite labels, are the usual reasons. All annotators count alike."
)


@declared
class FallsBack(Model):
    """A method with skills from pairs, which may prove unusable.

    Parameters
    ----------
    fall_back
        Count all annotators alike, with a note, where the votes are less probable under the labels found than under
        the majority vote. ``False``: the method of the paper, whatever it gives.
    """

    fall_back: bool = True

    def _unusable(self, votes: Votes, gold: Ints | None, posterior: Floats) -> bool:
        return self.fall_back and worse_than_majority(votes, gold, posterior)


def label_evidence(votes: Votes, label: Ints) -> float:
    """log p(votes, z), see the module. Memory grows with the votes, not with annotators x classes²."""
    from scipy.special import gammaln

    K = votes.n_classes
    row = votes.annotator.astype(np.int64) * K + label[votes.item]
    diagonal = votes.label == label[votes.item]

    def sums(key: Ints) -> tuple[Ints, Floats]:
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        return first, np.bincount(place, weights=votes.weights, minlength=len(first)).astype(np.float64)

    first, count = sums(row * K + votes.label)
    a = 1.0 + diagonal[first]
    cells = float((gammaln(count + a) - gammaln(a)).sum())
    _, total = sums(row)
    rows = float((gammaln(total + K + 1.0) - gammaln(K + 1.0)).sum())
    items = np.bincount(label, minlength=K)
    return cells - rows + float(gammaln(items + 1.0).sum() - gammaln(len(label) + K) + gammaln(K))


def worse_than_majority(votes: Votes, gold: Ints | None, posterior: Floats) -> bool:
    """Whether the votes are less probable under these labels than under the majority vote."""
    total = clamp(tally(votes, np.ones(votes.n_annotators)), gold)
    most = total >= total.max(axis=1, keepdims=True) * (1.0 - 1e-9)
    even = np.zeros(posterior.shape[1])
    label, plain = decide(posterior, even), decide(np.where(most, posterior, -1.0), even)  # ties: as the method says
    if (label == plain).all():
        return False
    return label_evidence(votes, label) < label_evidence(votes, plain) - MARGIN


def equal_skill(n: Floats, c: Floats, low: float, high: float) -> float:
    """The skill that all have in common: the root of the mean agreement above chance, by common items."""
    mean = float(np.average(c, weights=n)) if n.sum() > 0 else 0.0
    return float(np.clip(np.sqrt(max(mean, 0.0)), low, high))
