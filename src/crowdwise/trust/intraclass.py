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

from typing import Any, Unpack

import numpy as np

from crowdwise.core.numerics import Floats
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.metrics import Estimate
from crowdwise.trust.agreement_counts import numbers, pairable, ratio
from crowdwise.trust.item_bootstrap import Bootstrap, Options

__all__ = ["icc"]

FORMS = ("one-way", "agreement", "consistency")


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
    a = ((between - centre) / np.maximum(N - 1.0, 1.0) - within) / typical
    return ratio(a, a + within / k)


def _two_way_table(votes: Votes, x: Floats) -> Any:
    """Per item: 1, n, n^2, y^2 / n, squares, then the votes' values and the votes themselves by annotator; sparse."""
    from scipy.sparse import csr_matrix, hstack

    N, M = len(votes), votes.n_annotators
    item, y = votes.item, x[votes.label]
    size = np.diff(votes.indptr).astype(np.float64)
    total, squares = (np.bincount(item, weights=z, minlength=N) for z in (y, y**2))
    own, one = (
        csr_matrix((z, votes.annotator, votes.indptr), shape=(N, M)) for z in (y, np.ones(votes.n_votes))
    )  # fmt: skip
    facts = np.column_stack([np.ones(N), size, size**2, total**2 / np.maximum(size, 1.0), squares])
    return hstack([csr_matrix(facts), own, one]).tocsr()[np.flatnonzero(size > 0)]


def icc(
    votes: Votes,
    *,
    form: str = "one-way",
    average_of: int = 1,
    values: Any = None,
    **how: Unpack[Options],
) -> Estimate:
    """An intraclass correlation: the share of the variance of votes that is between items.

    Parameters
    ----------
    votes
        The votes; weights of votes are refused.
    form
        ``"one-way"``: who voted is not looked at, ICC(1, k) of Shrout and Fleiss. ``"agreement"``: annotators are a
        random sample and their levels count as error, ICC(2, k) or ICC(A, k). ``"consistency"``: differences in level
        between annotators do not count, ICC(3, k) or ICC(C, k). The two-way forms are from Henderson's first method;
        on a complete table they are the usual ones.
    average_of
        k: 1 for the reliability of a single vote, more for that of the mean of so many.
    values
        A number for each class; by default the classes themselves, where they are numbers.
    level, resamples, random_state
        As in :func:`percent_agreement`. The interval is over items; annotators are held as they are.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import icc
    >>> table = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    >>> votes = cw.Votes.from_dense(table)
    >>> [round(icc(votes, form=f).value, 2) for f in ("one-way", "agreement", "consistency")]
    [0.17, 0.29, 0.71]
    """
    if form not in FORMS:
        raise ParameterError(f"form={form!r}: expected one of {', '.join(map(repr, FORMS))}.")
    if not isinstance(average_of, (int, np.integer)) or isinstance(average_of, bool) or average_of < 1:
        raise ParameterError(f"average_of={average_of!r}: expected a whole number of at least 1.")
    by = Bootstrap(**how)
    x = numbers(votes, values)
    if form == "one-way":
        counts, times, n = pairable(votes, at_least=1)
        size, total = counts.sum(axis=1), counts @ x
        table = np.column_stack([np.ones(len(size)), size, size**2, total, total**2 / size, counts @ x**2])
        return by.estimate(table, times, lambda s: _one_way(s, average_of), n)
    _, _, n = pairable(votes)
    table = _two_way_table(votes, x)
    M = votes.n_annotators

    def statistic(s: Floats) -> Floats:
        own, votes_of = s[:, 5 : 5 + M], s[:, 5 + M :]
        squares = np.divide(own**2, votes_of, out=np.zeros_like(own), where=votes_of > 0)
        facts = np.column_stack([s[:, 1], s[:, 0], (votes_of > 0).sum(axis=1), s[:, 2], (votes_of**2).sum(axis=1)])
        a, b, e = variance_components(
            facts, s[:, 3], squares.sum(axis=1), np.column_stack([s[:, 4], own.sum(axis=1) ** 2 / s[:, 1]])
        )
        noise = e if form == "consistency" else b + e
        return ratio(a, a + noise / average_of)

    return by.estimate(table, np.ones(table.shape[0], dtype=np.int64), statistic, n)
