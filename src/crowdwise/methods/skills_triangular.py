"""Skills from triangles of annotators: of three agreements, two products make a square.

With c[i, j] = s_i s_j (see :mod:`crowdwise.methods.skills_agreement`) any two partners i, j of k give
s_k^2 = |c_ik c_jk / c_ij|. The estimate is as good as c_ij is far from zero, so the best pair is taken.

=========  ===================  ======  ==============================================================================
symbol     code                 shape   equation
=========  ===================  ======  ==============================================================================
abs(s)     ``best_triangles``   M       root of |c_ik c_jk / c_ij|, (i, j) of greatest |c_ij| sqrt(min of the n)
k*         ``triangle_signs``   1       argmax over k of |s_k^2 + sum over i of c_ik|, whose sign is that of this sum
sign(s)    ``triangle_signs``   M       that of c[k, k*] times that of k*
=========  ===================  ======  ==============================================================================

Reference: Bonald and Combes 2017.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

import numpy as np

from crowdwise.core.constraints import Bounds
from crowdwise.core.model import Floats, Ints, Rounds, Votes, declared
from crowdwise.methods.skills_agreement import PairSkills
from crowdwise.methods.skills_graph import Pairs, groups_of, like
from crowdwise.methods.skills_precision import triangle_variance


def best_triangles(found: Pairs, width: int) -> tuple[Floats, Ints, Ints]:
    """s_k^2 from the best pair of partners (i, j) of each k: greatest |c_ij| sqrt(min(n_ij, n_ik, n_jk)).

    That is |c_ij| where all share equally many items. Pairs that are equally good are averaged. NaN: no triangle.
    Also the two partners (of the first of equals; -1 for no triangle).
    ``width``: how many partners are used, those with most common items and most agreement with others first.
    """
    M, indptr, indices = found.n.shape[0], found.n.indptr, found.n.indices
    n, c = found.n.data, np.abs(found.c.data)
    keys = np.repeat(np.arange(M, dtype=np.int64), np.diff(indptr)) * M + indices
    total = np.asarray(found.n.sum(axis=1)).ravel()
    strength = np.asarray(like(found.n, n * c).sum(axis=1)).ravel() / np.maximum(total, 1e-300)
    square, one, two = np.full(M, np.nan), np.full(M, -1), np.full(M, -1)
    for k in range(M):
        own = np.arange(indptr[k], indptr[k + 1])
        if len(own) > width:
            own = own[np.argsort(-np.sqrt(n[own]) * strength[indices[own]], kind="stable")[:width]]
        if len(own) < 2:
            continue
        partner = indices[own].astype(np.int64)
        first, second = np.triu_indices(len(own), 1)
        key = partner[first] * M + partner[second]
        place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        good = (keys[place] == key) & (c[place] > 0)
        if not good.any():
            continue
        first, second, place = own[first[good]], own[second[good]], place[good]
        score = c[place] * np.sqrt(np.minimum(np.minimum(n[place], n[first]), n[second]))
        best = score >= score.max() * (1.0 - 1e-9)
        square[k] = float((c[first] * c[second] / c[place])[best].mean())
        one[k], two[k] = indices[first[best][0]], indices[second[best][0]]
    return square, one, two


def triangle_signs(found: Pairs, size: Floats) -> Floats:
    """The annotator k* with most evidence gets the sign of s^2 + sum of c; others that of their c[k, k*].

    Those who share nothing with k* get it from the ones who have a sign already. In the end every sign is decided once
    more by all partners, as c[k, k*] may rest on a single item.
    """
    M = len(size)
    nc = like(found.n, found.n.data * found.c.data)
    mean_n = np.asarray(found.n.sum(axis=1)).ravel() / np.maximum(np.diff(found.n.indptr), 1)
    sure = mean_n * size**2 + np.asarray(nc.sum(axis=1)).ravel()
    sign, group = np.zeros(M), groups_of(found.n)
    order = np.lexsort((-np.abs(sure), group))
    star = order[np.unique(group[order], return_index=True)[1]]
    sign[star] = np.where(sure[star] >= 0.0, 1.0, -1.0)
    while True:
        support = nc @ (sign * np.where(np.isin(np.arange(M), star), 1.0, size))
        new = (sign == 0.0) & (support != 0.0)
        if not new.any():
            break
        sign[new] = np.sign(support[new])
    support = nc @ (sign * size)
    return np.where(support != 0.0, np.sign(support), np.where(sign == 0.0, 1.0, sign))


@declared
class Triangular(PairSkills):
    """Skills from triangles: c_ik c_jk / c_ij = s_k^2.

    Of all pairs of partners the most informative one is taken for each annotator, which attains the minimax rate
    with two classes and full overlap. No iteration, no start. The authors' rule (greatest |c_ij|) is for equal
    overlap; here a pair counts by its common items too.

    Parameters
    ----------
    max_partners
        How many partners of each annotator are used, at most.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(500, n_annotators=20, n_classes=3, votes_per_item=10, random_state=0)
    >>> cw.aggregate(crowd.votes, "triangular").score(crowd.truth) > 0.9
    True
    """

    key = "triangular"

    max_partners: Annotated[int, Bounds(minimum=2)] = 64
    _partners: list[Ints] = field(init=False)

    def _skills(self, found: Pairs, votes: Votes, gold: Ints | None, low: float, high: float, rounds: Rounds) -> Floats:
        M = votes.n_annotators
        square, *self._partners = best_triangles(found, self.max_partners)
        size = np.sqrt(np.minimum(square, high**2))
        size[M:] = 1.0
        unknown = np.isnan(size)
        if unknown.any():  # part of no triangle: the strength of an average pair
            size[unknown] = np.sqrt(np.abs(np.average(found.c.data, weights=found.n.data))) if found.n.nnz else 0.5
        return size * triangle_signs(found, size)

    def _variance(self, found: Pairs, votes: Votes, gold: Ints | None, skill: Floats) -> Floats:
        return triangle_variance(votes, gold, found, np.abs(skill), *self._partners)
