"""Skills from triangles of annotators: of three agreements, two products make a square.

With c[i, j] = s_i s_j (see :mod:`crowdwise.methods.skills_agreement`) any two partners i, j of k give
s_k^2 = |c_ik c_jk / c_ij|. The estimate is as good as c_ij is far from zero, so the best pair is taken.

=========  ===================  ======  ==============================================================================
symbol     code                 shape   equation
=========  ===================  ======  ==============================================================================
abs(s)     ``triangles``        M       root of |c_ik c_jk / c_ij|, (i, j) of greatest |c_ij| sqrt(min of the n)
k*         ``triangle_signs``   1       argmax over k of |s_k^2 + sum over i of c_ik|, whose sign is that of this sum
sign(s)    ``triangle_signs``   M       that of c[k, k*] times that of k*
=========  ===================  ======  ==============================================================================

When it fails: each skill rests on three numbers, so with few common items per pair it is noisier than a fit to all
pairs (``pgd``).

Reference: Bonald and Combes 2017.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.methods.skills_agreement import Found, PairSkills
from crowdwise.methods.skills_graph import Pairs, groups_of, like
from crowdwise.methods.skills_precision import triangle_variance


def triangles(found: Pairs, width: int) -> Floats:
    """s_k^2 of every annotator k; see :func:`best_triangles`."""
    return best_triangles(found, width)[0]


def best_triangles(found: Pairs, width: int) -> tuple[Floats, Ints, Ints]:
    """s_k^2 from the best pair of partners (i, j) of each k: greatest |c_ij| sqrt(min(n_ij, n_ik, n_jk)).

    That is |c_ij| where all share equally many items. Pairs that are equally good are averaged. NaN: no triangle.
    Also the two partners (of the first of equals; -1 for no triangle).
    ``width``: partners looked at, those first with whom most is shared and who agree most with others.
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
    """The surest annotator k* is given the sign of s^2 + sum of c; others go with their c[k, k*].

    Those who share nothing with k* go with the ones who have a sign already. In the end every sign is put to the
    vote of all partners once, as c[k, k*] may rest on a single item.
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
        pull = nc @ (sign * np.where(np.isin(np.arange(M), star), 1.0, size))
        new = (sign == 0.0) & (pull != 0.0)
        if not new.any():
            break
        sign[new] = np.sign(pull[new])
    pull = nc @ (sign * size)
    return np.where(pull != 0.0, np.sign(pull), np.where(sign == 0.0, 1.0, sign))


@declared
class Triangular(PairSkills):
    """Skills from triangles: c_ik c_jk / c_ij = s_k^2.

    Of all pairs of partners the most informative one is taken for each annotator, which attains the minimax rate
    with two classes and full overlap. No iteration, no start. The authors' rule (greatest |c_ij|) is for equal
    overlap; here a pair counts by its common items too.

    Parameters
    ----------
    width
        How many partners of each annotator are looked at, at most.
    ties, random_state
        As in :class:`MajorityVote`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(500, n_annotators=20, n_classes=3, votes_per_item=10, random_state=0)
    >>> cw.aggregate(crowd.votes, "triangular").score(crowd.truth) > 0.9
    True
    """

    key = "triangular"

    width: int = 64
    _partners: list[Ints] = field(init=False)

    def _check_together(self) -> None:
        super()._check_together()
        if not isinstance(self.width, (int, np.integer)) or isinstance(self.width, bool) or self.width < 2:
            raise ParameterError(f"width={self.width!r}: expected a whole number of at least 2 partners.")

    def _skills(self, found: Pairs, votes: Votes, gold: Ints | None, low: float, high: float) -> Found:
        M = votes.n_annotators
        square, *self._partners = best_triangles(found, self.width)
        size = np.sqrt(np.minimum(square, high**2))
        size[M:] = 1.0
        open_ = np.isnan(size)
        if open_.any():  # part of no triangle: the strength of an average pair
            size[open_] = np.sqrt(np.abs(np.average(found.c.data, weights=found.n.data))) if found.n.nnz else 0.5
        return Found(size * triangle_signs(found, size))

    def _variance(self, found: Pairs, votes: Votes, gold: Ints | None, skill: Floats) -> Floats:
        return triangle_variance(votes, gold, found, np.abs(skill), *self._partners)
