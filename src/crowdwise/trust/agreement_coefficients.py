"""Coefficients of agreement of a whole crowd, on items with any number of votes.

n[i, k] is the number of votes for class k on item i, n[i] all its votes, w[k, l] how far two labels agree (1 the
same, 0 not at all), d[k, l] how far they differ.

==========================  ===================================================================================
function                    value
==========================  ===================================================================================
``percent_agreement``       p_a = mean over items with two votes or more of the share of their pairs that agree
``fleiss_kappa``            (p_a - p_e) / (1 - p_e), p_e = sum_kl w[k, l] pi[k] pi[l], pi = mean of n[i, k] / n[i]
``gwet_ac1``, ``gwet_ac2``  the same with p_e = sum_kl w[k, l] / (K (K - 1)) sum_k pi[k] (1 - pi[k])
``krippendorff_alpha``      1 - D_o / D_e, observed and expected d over pairs of votes within items and overall
==========================  ===================================================================================

When it fails: chance-corrected coefficients fall when one class dominates, however good the annotators are (look at
the percentage beside them; AC1 is made for this).

References: Fleiss 1971; Krippendorff 2011 (Computing Krippendorff's alpha-reliability); Gwet 2008, 2014 (also the
treatment of missing votes in Fleiss' kappa).
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from crowdwise.core.constraints import checked
from crowdwise.core.numerics import Floats
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.metrics.bootstrap import Estimate, Options, Statistic
from crowdwise.trust.agreement_counts import (
    Coefficient,
    Patterns,
    Scale,
    Weights,
    chance_corrected,
    numbers,
    one_minus_ratio,
    ratio,
    weights_of,
)


def percent(found: Patterns, w: Floats) -> Coefficient:
    """p_a."""
    return _of_shares(found, w, lambda s: ratio(s[:, 1], s[:, 0]))


def fleiss(found: Patterns, w: Floats) -> Coefficient:
    """Fleiss' kappa."""

    def statistic(s: Floats) -> Floats:
        pi = s[:, 3:] / s[:, 2:3]
        return chance_corrected(ratio(s[:, 1], s[:, 0]), np.einsum("bk,kl,bl->b", pi, w, pi))

    return _of_shares(found, w, statistic)


def gwet(found: Patterns, w: Floats) -> Coefficient:
    """AC1, or AC2 with weights."""
    K = len(w)

    def statistic(s: Floats) -> Floats:
        pi = s[:, 3:] / s[:, 2:3]
        expected = w.sum() / (K * (K - 1.0)) * (pi * (1.0 - pi)).sum(axis=1)
        return chance_corrected(ratio(s[:, 1], s[:, 0]), expected)

    return _of_shares(found, w, statistic)


def _of_shares(found: Patterns, w: Floats, statistic: Statistic) -> Coefficient:
    """Per pattern: has it pairs, the share of them that agree, 1, and the vote shares."""
    counts = found.counts
    size = counts.sum(axis=1)
    paired = size > 1.0
    same = np.einsum("pk,pk->p", counts @ w, counts) - counts @ np.diag(w)
    share = np.divide(same, size * (size - 1.0), out=np.zeros_like(size), where=paired)
    table = np.column_stack([paired, share, np.ones(len(size)), counts / size[:, None]])
    return Coefficient(np.ones(len(size), dtype=bool), table, statistic)


def alpha(found: Patterns, d: Floats, mirrored: bool = False) -> Coefficient:
    """Krippendorff's alpha from distances; ``mirrored``: class k and class K - 1 - k are one, seen from two sides."""
    used = found.counts.sum(axis=1) > 1.5
    counts = found.counts[used]
    size = counts.sum(axis=1)

    def statistic(s: Floats) -> Floats:
        mass = (s[:, 1:] + s[:, :0:-1]) / 2.0 if mirrored else s[:, 1:]
        total = mass.sum(axis=1)
        return one_minus_ratio(
            s[:, 0] / total, np.einsum("bk,bk->b", mass @ d, mass) / (total * np.maximum(total - 1.0, 1.0))
        )

    table = np.column_stack([np.einsum("pk,pk->p", counts @ d, counts) / (size - 1.0), counts])
    return Coefficient(used, table, statistic)


def distances(scale: Scale, values: Floats) -> Floats:
    """d[k, l] of Krippendorff's alpha on a nominal, interval or ratio scale."""
    x, y = values[:, None], values[None]
    if scale == "nominal":
        return np.asarray(1.0 - np.eye(len(values)))
    if scale == "interval":
        return np.asarray((x - y) ** 2)
    return np.asarray(np.divide(x - y, x + y, out=np.zeros((len(values), len(values))), where=(x + y) != 0.0) ** 2)


def ordinal_alpha(found: Patterns) -> Coefficient:
    """Krippendorff's alpha with the squared difference of mid-ranks, which the votes themselves make."""
    used = found.counts.sum(axis=1) > 1.5
    return Coefficient(used, _coincidences(found.counts[used]), _ordinal_statistic)


def _coincidences(counts: Floats) -> Any:
    """P x K^2, sparse: o[k, l] = n[k] (n[l] - [k = l]) / (n - 1) of each pattern."""
    from scipy.sparse import csr_matrix

    P, K = counts.shape
    row, col = np.nonzero(counts)
    length = np.bincount(row, minlength=P)
    first = np.concatenate([[0], np.cumsum(length)])[:-1]
    # All pairs of classes that a pattern has.
    left = np.repeat(np.arange(len(row)), length[row])
    ends = np.cumsum(length[row])
    right = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - length[row], length[row]) + first[row[left]]
    p, k, m = row[left], col[left], col[right]
    value = counts[p, k] * (counts[p, m] - (k == m)) / (counts.sum(axis=1)[p] - 1.0)
    return csr_matrix((value, (p, k * K + m)), shape=(P, K * K))


def mid_ranks(share: Floats) -> Floats:
    """The mean rank of each class: d[k, l] of the ordinal scale is the squared difference of two of them."""
    return np.asarray(np.cumsum(share, axis=-1) - share / 2.0)


def _ordinal_statistic(s: Floats) -> Floats:
    K = int(np.sqrt(s.shape[1]))
    o = s.reshape(-1, K, K)
    mass = o.sum(axis=2)
    total = mass.sum(axis=1)
    rank = mid_ranks(mass)
    # sum o (R_k - R_l)^2 = 2 sum_k mass_k R_k^2 - 2 sum o R_k R_l, and the same with o = mass mass' / (total - 1).
    square = 2.0 * (mass * rank**2).sum(axis=1)
    seen = square - 2.0 * np.einsum("bkl,bk,bl->b", o, rank, rank)
    chance = square * total - 2.0 * (mass * rank).sum(axis=1) ** 2
    chance[chance < 1e-12 * square * total] = 0.0  # a single class, but for rounding
    return one_minus_ratio(seen / total, chance / (total * np.maximum(total - 1.0, 1.0)))


@checked
def percent_agreement(
    votes: Votes, *, weights: Weights = None, values: Any = None, **options: Unpack[Options]
) -> Estimate:
    """The share of pairs of votes that agree, averaged over items with two votes or more.

    Parameters
    ----------
    votes
        The votes; weights of votes are refused.
    weights
        ``None``: labels agree or not. ``"linear"`` and ``"quadratic"``: neighbours in the order of the classes agree
        in part.
    values
        With ``weights``: a number for each class, as a sequence or a mapping, where their order is not enough.
    **options
        Of the interval: see :class:`~crowdwise.metrics.bootstrap.Bootstrap`.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0, 0], [0, 1, 1], [1, 1, 1], [1, 1, 0]])
    >>> round(cw.trust.percent_agreement(votes).value, 3)
    0.667
    """
    found = Patterns.of_votes(votes)
    return found.estimate(percent(found, weights_of(votes, weights, values)), **options)


@checked
def fleiss_kappa(votes: Votes, *, weights: Weights = None, values: Any = None, **options: Unpack[Options]) -> Estimate:
    """Fleiss' kappa, items with any number of votes; with two votes each it is Scott's pi of the whole crowd.

    Chance agreement comes from the mean over items of their vote shares (Gwet 2014). Parameters as in
    :func:`percent_agreement`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=9, n_classes=3, votes_per_item=4, random_state=0)
    >>> found = cw.trust.fleiss_kappa(crowd.votes)
    >>> found.low < found.value < found.high
    True
    """
    found = Patterns.of_votes(votes)
    return found.estimate(fleiss(found, weights_of(votes, weights, values)), **options)


def gwet_ac1(votes: Votes, **options: Unpack[Options]) -> Estimate:
    """Gwet's AC1: chance agreement is that on items hard enough to be guessed, so that a dominant class does no harm.

    Parameters as in :func:`percent_agreement`.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0]] * 95 + [[0, 1]] * 5)
    >>> round(cw.trust.gwet_ac1(votes).value, 2), round(cw.trust.fleiss_kappa(votes).value, 2)
    (0.95, -0.03)
    """
    return gwet_ac2(votes, weights=None, **options)


@checked
def gwet_ac2(
    votes: Votes, *, weights: Weights = "quadratic", values: Any = None, **options: Unpack[Options]
) -> Estimate:
    """Gwet's AC2: AC1 with partial agreement between neighbouring classes. Parameters as in :func:`percent_agreement`.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[1, 1, 2], [3, 3, 3], [1, 2, 2], [3, 2, 3]])
    >>> cw.trust.gwet_ac2(votes).value > cw.trust.gwet_ac1(votes).value
    True
    """
    found = Patterns.of_votes(votes)
    return found.estimate(gwet(found, weights_of(votes, weights, values)), **options)


@checked
def krippendorff_alpha(
    votes: Votes, *, scale: Scale = "nominal", values: Any = None, **options: Unpack[Options]
) -> Estimate:
    """Krippendorff's alpha: 1 - observed / expected disagreement of pairs of votes.

    Parameters
    ----------
    votes
        The votes; items with a single vote are left out. Weights of votes are refused.
    scale
        ``"nominal"``: labels differ or not. ``"ordinal"``: by the ranks between them (the order of the classes).
        ``"interval"``: by the squared difference, ``"ratio"``: by the squared relative difference, of ``values``.
    values
        A number for each class, as a sequence or a mapping; by default the classes themselves, where they are numbers.
    **options
        As in :func:`percent_agreement`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=9, n_classes=3, votes_per_item=4, random_state=0)
    >>> found = cw.trust.krippendorff_alpha(crowd.votes)
    >>> 0.0 < found.low < found.value < found.high < 1.0
    True
    """
    found = Patterns.of_votes(votes)
    if scale == "ordinal":
        return found.estimate(ordinal_alpha(found), **options)
    x = np.arange(votes.n_classes, dtype=np.float64) if scale == "nominal" else numbers(votes, values)
    if scale == "ratio" and (x < 0).any():
        raise ParameterError("scale='ratio': the values of the classes must not be negative.")
    return found.estimate(alpha(found, distances(scale, x)), **options)
