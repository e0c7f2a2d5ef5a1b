"""Coefficients of agreement of a whole crowd, on items with any number of votes, and intraclass correlations.

docs/reliability-agreement.md has their equations. n[i, k] is the number of votes for class k on item i, n[i] all its
votes, w[k, l] how far two labels agree (1 the same, 0 not at all), d[k, l] how far they differ. Intraclass correlations
are the share of the variance of votes that is between items, of variances by Henderson's first method from sums of
squares, so that the table need not be complete.

When it fails: chance-corrected coefficients fall when one class dominates, however good the annotators are (look at
the percentage beside them; AC1 is made for this). With a handful of annotators their variance is guesswork; the
interval is over items, annotators held.

References: Fleiss 1971; Krippendorff 2011 (Computing Krippendorff's alpha-reliability); Gwet 2008, 2014 (also the
treatment of missing votes in Fleiss' kappa); Shrout and Fleiss 1979, McGraw and Wong 1996, Henderson 1953.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np

from crowdwise import kernels
from crowdwise.core.constraints import Count, checked
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.ratings import Ratings
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options, Statistic


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


def _ordinal_statistic(s: Floats) -> Floats:
    K = int(np.sqrt(s.shape[1]))
    o = s.reshape(-1, K, K)
    mass = o.sum(axis=2)
    total = mass.sum(axis=1)
    rank = np.cumsum(mass, axis=-1) - mass / 2.0  # d[k, l] is the squared difference of two of them
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


Form = Literal["one-way", "agreement", "consistency"]


def variance_components(n: Floats, A: Floats, B: Floats, T: Floats) -> tuple[Floats, Floats, Floats]:
    """Henderson's first method: items, annotators and error from four sums of squares.

    ``n`` has columns votes, items, annotators, sum of squared votes per item, the same per annotator; T = (all
    squares, squared total / votes), A and B the squared totals of items and annotators over their numbers of votes.
    Expectations, less votes times the squared mean: with a, b, e the three variances,
    E T0 = S (a + b + e), E A = S a + N b + N e, E B = M a + S b + M e, E T1 = a sum n_i^2 / S + b sum n_m^2 / S + e.
    """
    S, N, M, ii, mm = (n[:, j] for j in range(5))
    left = np.empty((len(n), 3, 3))
    left[:, 0] = np.stack([S - ii / S, S - mm / S, S - 1.0], axis=1)
    left[:, 1] = np.stack([S - ii / S, N - mm / S, N - 1.0], axis=1)
    left[:, 2] = np.stack([M - ii / S, S - mm / S, M - 1.0], axis=1)
    right = np.stack([T[:, 0] - T[:, 1], A - T[:, 1], B - T[:, 1]], axis=1)
    good = np.abs(np.linalg.det(left / S[:, None, None])) > 1e-12
    out = np.full((len(n), 3), np.nan)
    out[good] = np.linalg.solve(left[good], right[good][:, :, None])[:, :, 0]
    return out[:, 0], out[:, 1], out[:, 2]


def _one_way(s: Floats, k: int) -> Floats:
    """sigma_a^2 / (sigma_a^2 + sigma_e^2 / k) from sums of 1, n, n^2, y, y^2 / n and squares over items."""
    N, S, nn, y, between, squares = (s[:, j] for j in range(6))
    centre = y**2 / S
    within = ratio(squares - between, S - N)
    typical = (S - nn / S) / np.maximum(N - 1.0, 1.0)
    a = ratio((between - centre) / np.maximum(N - 1.0, 1.0) - within, typical)
    return ratio(a, a + within / k)


def interval_alpha(ratings: Ratings, **options: Unpack[Options]) -> Estimate:
    """Krippendorff's alpha of numbers: 1 - mean squared difference within items / that of all pairs.

    Over the ordered pairs of n numbers, sum (x - y)^2 = 2 (n sum x^2 - (sum x)^2).
    """
    size, total, squares = (x[np.diff(ratings.indptr) > 1] for x in _sums(ratings.indptr, ratings.value))
    table = np.column_stack([2.0 * (size * squares - total**2) / (size - 1.0), size, total, squares])

    def statistic(s: Floats) -> Floats:
        seen, n, y, yy = s.T
        return one_minus_ratio(seen / n, 2.0 * (n * yy - y**2) / (n * np.maximum(n - 1.0, 1.0)))

    return Bootstrap(**options).of_sums(table, np.ones(len(size), dtype=np.int64), statistic, len(size))


def _sums(indptr: Ints, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Of every item: how many numbers, their sum, and that of their squares."""
    item, N = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), len(indptr) - 1
    total, squares = (np.bincount(item, weights=z, minlength=N).astype(np.float64) for z in (y, y**2))
    return np.diff(indptr).astype(np.float64), total, squares


def _two_way_table(answers: Votes | Ratings, y: Floats) -> Any:
    """Per item: 1, n, n^2, y^2 / n, squares, then the answers' values and the answers by annotator; sparse."""
    from scipy.sparse import csr_matrix, hstack

    N, M = len(answers), answers.n_annotators
    size, total, squares = _sums(answers.indptr, y)
    own, one = (csr_matrix((z, answers.annotator, answers.indptr), shape=(N, M)) for z in (y, np.ones(len(y))))
    facts = np.column_stack([np.ones(N), size, size**2, total**2 / np.maximum(size, 1.0), squares])
    return hstack([csr_matrix(facts), own, one]).tocsr()[np.flatnonzero(size > 0)]


@checked
def icc(
    answers: Votes | Ratings, *, form: Form = "one-way", average_of: Count = 1, values: Any = None,
    **options: Unpack[Options],
) -> Estimate:  # fmt: skip
    """An intraclass correlation: the share of the variance of answers that is between items.

    Parameters
    ----------
    answers
        Votes or ratings; weights are refused.
    form
        ``"one-way"``: who voted is not looked at, ICC(1, k) of Shrout and Fleiss. ``"agreement"``: annotators are a
        random sample and their levels count as error, ICC(2, k) or ICC(A, k). ``"consistency"``: differences in level
        between annotators do not count, ICC(3, k) or ICC(C, k). The two-way forms are from Henderson's first method;
        on a complete table they are the usual ones.
    average_of
        k: 1 for the reliability of a single answer, more for that of the mean of so many.
    values
        A number for each class; by default the classes themselves, where they are numbers.
    **options
        As in :func:`percent_agreement`. The interval is over items; annotators are held as they are.

    >>> import crowdwise as cw
    >>> table = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    >>> votes = cw.Votes.from_dense(table)
    >>> [round(cw.trust.icc(votes, form=f).value, 2) for f in ("one-way", "agreement", "consistency")]
    [0.17, 0.29, 0.71]
    """
    by = Bootstrap(**options)
    check_unweighted(answers)
    if isinstance(answers, Ratings):
        y, times = answers.value, np.ones(int((np.diff(answers.indptr) > 0).sum()), dtype=np.int64)
        n = int((np.diff(answers.indptr) > 1).sum())
        size, total, squares = (x[np.diff(answers.indptr) > 0] for x in _sums(answers.indptr, y))
    else:
        x = numbers(answers, values)
        found = Patterns.of_votes(answers)
        y, times, n = x[answers.label], found.times, found.n
        size, total, squares = found.counts.sum(axis=1), found.counts @ x, found.counts @ x**2
    if form == "one-way":
        table = np.column_stack([np.ones(len(size)), size, size**2, total, total**2 / size, squares])
        return by.of_sums(table, times, lambda s: _one_way(s, average_of), n)
    table = _two_way_table(answers, y)
    M = answers.n_annotators

    def statistic(s: Floats) -> Floats:
        own, votes_of = s[:, 5 : 5 + M], s[:, 5 + M :]
        squares = np.divide(own**2, votes_of, out=np.zeros_like(own), where=votes_of > 0)
        facts = np.column_stack([s[:, 1], s[:, 0], (votes_of > 0).sum(axis=1), s[:, 2], (votes_of**2).sum(axis=1)])
        a, b, e = variance_components(
            facts, s[:, 3], squares.sum(axis=1), np.column_stack([s[:, 4], own.sum(axis=1) ** 2 / s[:, 1]])
        )
        noise = e if form == "consistency" else b + e
        return ratio(a, a + noise / average_of)

    return by.of_sums(table, np.ones(table.shape[0], dtype=np.int64), statistic, n)


Weights = Literal["linear", "quadratic"] | None
Scale = Literal["nominal", "ordinal", "interval", "ratio"]


@dataclass(frozen=True, eq=False)
class Patterns:
    """The different rows of n[i, k] among items with labels, and which items have each."""

    counts: Floats
    """P x K."""
    times: Ints
    """P: how many items have it."""
    pattern: Ints
    """The pattern of every item, -1 where it has none."""
    n: int
    """Items with two labels or more."""

    @classmethod
    def of(cls, indptr: Ints, label: Ints, K: int) -> Patterns:
        """The patterns of items whose labels lie between ``indptr``.

        Rows are kept apart by the sum of a random 64-bit number per label, drawn once.
        """
        size = np.diff(indptr)
        if not (size > 1).any():
            raise InputError("No item has two answers: there is nothing to agree on. Collect several on some items.")
        code = np.random.default_rng(20).integers(0, 2**63, size=K, dtype=np.uint64)
        total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(code[label], dtype=np.uint64)])
        there = np.flatnonzero(size > 0)
        sums = (total[indptr[1:]] - total[indptr[:-1]])[there]
        _, first, inverse, times = np.unique(sums, return_index=True, return_inverse=True, return_counts=True)
        pattern = np.full(len(size), -1, dtype=np.int64)
        pattern[there] = inverse
        items = there[first]
        length = size[items]
        ends = np.cumsum(length)
        take = np.arange(ends[-1]) + np.repeat(indptr[items] - (ends - length), length)
        row = np.repeat(np.arange(len(items)), length)
        counts = np.bincount(row * K + label[take], minlength=len(items) * K).reshape(-1, K).astype(np.float64)
        return cls(counts, times, pattern, int(times[length > 1].sum()))

    @classmethod
    def of_votes(cls, votes: Votes) -> Patterns:
        check_unweighted(votes)
        return cls.of(votes.indptr, votes.label, votes.n_classes)

    def estimate(self, coefficient: Coefficient, groups: Ints | None = None, **options: Unpack[Options]) -> Estimate:
        """A coefficient with its interval; items of one group (a sequence, say) are drawn together."""
        by, used = Bootstrap(**options), coefficient.used
        if groups is None:
            return by.of_sums(coefficient.table, self.times[used], coefficient.statistic, self.n)
        from scipy.sparse import csr_matrix

        row = np.full(len(self.times), -1, dtype=np.int64)
        row[used] = np.arange(int(used.sum()))
        at = np.flatnonzero(self.pattern >= 0)
        at = at[row[self.pattern[at]] >= 0]
        names, group = np.unique(groups[at], return_inverse=True)
        adds = csr_matrix((np.ones(len(at)), (group, row[self.pattern[at]])), shape=(len(names), int(used.sum())))
        once = np.ones(len(names), dtype=np.int64)
        return by.of_sums(adds @ coefficient.table, once, coefficient.statistic, len(names))


@dataclass(frozen=True, eq=False)
class Coefficient:
    """A function of sums over items: what an item of each pattern in use adds, and the function."""

    used: Any
    """P: which patterns count."""
    table: Any
    statistic: Statistic


MOST_PAIRS = 3e8
"""The most pairs of votes on common items that are listed."""


def common_cells(votes: Votes, weight: Floats, too_many: str) -> tuple[Ints, Ints, Floats]:
    """For every two (annotator, label) on common items: the two as m * K + l, and how many items (or their weight)."""
    pairs = (np.diff(votes.indptr).astype(np.float64) ** 2).sum()
    if pairs > MOST_PAIRS:
        raise InputError(f"There are {pairs / 2:,.0f} pairs of votes on common items, too many {too_many}")
    cells = votes.n_annotators * votes.n_classes
    rows, col, value = kernels.cooccurrence(votes.indptr, Part.of(votes).cell, weight, cells)
    return np.repeat(np.arange(cells), np.diff(rows)), col, value


def chance_corrected(observed: Floats, expected: Floats) -> Floats:
    """(p_a - p_e) / (1 - p_e); nan where chance alone agrees always."""
    room = 1.0 - expected
    return np.asarray(np.divide(observed - expected, room, out=np.full_like(room, np.nan), where=room > 1e-12))


def one_minus_ratio(observed: Floats, expected: Floats) -> Floats:
    """1 - D_o / D_e; nan where nothing could differ."""
    return 1.0 - ratio(observed, expected)


def ratio(top: Floats, bottom: Floats) -> Floats:
    """top / bottom; nan where that is not positive."""
    return np.asarray(np.divide(top, bottom, out=np.full_like(bottom, np.nan), where=bottom > 0.0))


def check_unweighted(answers: Any) -> None:
    """Refuse what is not a table of answers, and answers with weights."""
    if not hasattr(answers, "annotators"):
        raise InputError(f"Expected Votes and found {type(answers).__name__}: make them with Votes.from_frame.")
    if answers.weight is not None and not np.allclose(answers.weight, 1.0):
        raise InputError(
            "The answers have weights, and coefficients of agreement count answers. "
            "Leave them out: dataclasses.replace(answers, weight=None)."
        )


def weights_of(votes: Votes, weights: Weights, values: Any) -> Floats:
    """w[k, l]: identity, 1 - |x - y| / range, or 1 - (x - y)^2 / range^2, of the classes' places or values."""
    if weights is None:
        return np.eye(votes.n_classes)
    x = np.arange(votes.n_classes, dtype=np.float64) if values is None else numbers(votes, values)
    gap = np.abs(x[:, None] - x[None]) / max(float(np.ptp(x)), 1e-300)
    return np.asarray(1.0 - (gap if weights == "linear" else gap**2))


def numbers(votes: Votes, values: Any) -> Floats:
    """A number for each class: given, or the classes themselves."""
    names = votes.classes.tolist()
    if hasattr(values, "keys"):
        unknown = [name for name in names if name not in values]
        if unknown:
            raise ParameterError(f"values lacks a number for {listing(unknown)}.")
        values = [values[name] for name in names]
    if values is None and votes.classes.dtype.kind not in "iufb":
        raise InputError(
            f"The classes {listing(names)} are not numbers: give one for each, values={{class: number}}, "
            "or use a nominal or ordinal coefficient."
        )
    x = np.asarray(names if values is None else values, dtype=np.float64)
    if x.shape != (len(names),) or not np.isfinite(x).all():
        raise ParameterError(f"values={values!r}: expected a finite number for each of the {len(names)} classes.")
    return x
