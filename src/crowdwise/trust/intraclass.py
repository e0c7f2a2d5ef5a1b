"""Intraclass correlations: the share of the variance of votes that is between items.

a, b and e are the variances of items, annotators and error, by Henderson's first method from sums of squares, so that
the table need not be complete.

================  ==========================  ==========================================================
form              value                       of
================  ==========================  ==========================================================
``one-way``       a / (a + e / k)             who voted is not looked at; e is all that is not between items
``agreement``     a / (a + (b + e) / k)       levels of annotators count as error
``consistency``   a / (a + e / k)             levels of annotators do not count
================  ==========================  ==========================================================

When it fails: with a handful of annotators b is guesswork; the interval is over items, annotators held.

References: Shrout and Fleiss 1979, McGraw and Wong 1996, Henderson 1953.
"""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from crowdwise.core.constraints import Count, checked
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.ratings import Ratings
from crowdwise.data.votes import Votes
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options
from crowdwise.trust.agreement_counts import Patterns, check_unweighted, numbers, one_minus_ratio, ratio

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
