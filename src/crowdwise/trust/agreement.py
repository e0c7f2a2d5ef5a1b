"""How much annotators agree beyond chance, each coefficient with a bootstrap interval over items.

n[i, k] is the number of votes for class k on item i, n[i] all its votes, w[k, l] how far two labels agree (1 the
same, 0 not at all), d[k, l] how far they differ.

==========================  ===================================================================================
function                    value
==========================  ===================================================================================
``percent_agreement``       p_a = mean over items with two votes or more of the share of their pairs that agree
``fleiss_kappa``            (p_a - p_e) / (1 - p_e), p_e = sum_kl w[k, l] pi[k] pi[l], pi = mean of n[i, k] / n[i]
``gwet_ac1``, ``gwet_ac2``  the same with p_e = sum_kl w[k, l] / (K (K - 1)) sum_k pi[k] (1 - pi[k])
``krippendorff_alpha``      1 - D_o / D_e, observed and expected d over pairs of votes within items and overall
``cohen_kappa``             1 - sum d p / sum d r c' of two annotators with shares r and c on common items
``scott_pi``                the same with both shares replaced by their mean
``icc``                     the share of the variance that is between items, of one vote or of a mean of several
==========================  ===================================================================================

Nothing here needs a complete table: items may have different numbers of votes, from different annotators.

Intervals are bias-corrected and accelerated bootstrap intervals (Efron 1987) over items, annotators held. Items
with the same counts are one pattern; a resample is a draw of how often each pattern came, and a coefficient is a
function of sums over patterns, so votes are read once.

When it fails: chance-corrected coefficients fall when one class dominates, however good the annotators are (look at
the percentage beside them; AC1 is made for this). Agreement is not accuracy: a crowd can agree on a mistake. With
fewer than about 20 items intervals are rough. Items are taken to be independent draws; two items that are near
copies count twice.

References: Cohen 1960, 1968; Scott 1955; Fleiss 1971; Krippendorff 2011 (Computing Krippendorff's alpha-
reliability); Gwet 2008, 2014 (also the treatment of missing votes in Fleiss' kappa); Shrout and Fleiss 1979, McGraw
and Wong 1996 and Henderson 1953 for the intraclass correlations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import kernels
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import coding
from crowdwise.data.frames import make_frame
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.metrics import WORK, Estimate

__all__ = [
    "Agreement",
    "PairwiseAgreement",
    "agreement",
    "cohen_kappa",
    "fleiss_kappa",
    "gwet_ac1",
    "gwet_ac2",
    "icc",
    "krippendorff_alpha",
    "pairwise_agreement",
    "percent_agreement",
    "scott_pi",
]

SCALES = ("nominal", "ordinal", "interval", "ratio")
WEIGHTS = (None, "linear", "quadratic")
FORMS = ("one-way", "agreement", "consistency")
CHUNK = 2**22
"""How many numbers a piece of the bootstrap holds at once."""
MOST_PAIRS = 3e8
"""The most pairs of votes on common items that are listed."""

# -------------------------------------------------------------------- the maths


def patterns(votes: Votes) -> tuple[Floats, Ints]:
    """The different rows of n[i, k] among items with votes (P x K), and how many items have each.

    Rows are told apart by the sum of a random 64-bit number per label, drawn once.
    """
    K = votes.n_classes
    size = np.diff(votes.indptr)
    code = np.random.default_rng(20).integers(0, 2**63, size=K, dtype=np.uint64)
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(code[votes.label], dtype=np.uint64)])
    sums = (total[votes.indptr[1:]] - total[votes.indptr[:-1]])[size > 0]
    _, first, times = np.unique(sums, return_index=True, return_counts=True)
    items = np.flatnonzero(size > 0)[first]
    start, length = votes.indptr[items], size[items]
    ends = np.cumsum(length)
    take = np.arange(ends[-1] if len(ends) else 0) + np.repeat(start - (ends - length), length)
    row = np.repeat(np.arange(len(items)), length)
    counts = np.bincount(row * K + votes.label[take], minlength=len(items) * K).reshape(-1, K)
    return counts.astype(np.float64), times


def agreement_weights(K: int, weights: str | None, values: Floats | None = None) -> Floats:
    """w[k, l]: identity, 1 - |x - y| / range, or 1 - (x - y)^2 / range^2, of the classes' places or values."""
    if weights is None:
        return np.eye(K)
    x = np.arange(K, dtype=np.float64) if values is None else values
    gap = np.abs(x[:, None] - x[None]) / max(float(np.ptp(x)), 1e-300)
    return np.asarray(1.0 - (gap if weights == "linear" else gap**2))


def distances(scale: str, values: Floats) -> Floats:
    """d[k, l] of Krippendorff's alpha on a nominal, interval or ratio scale."""
    x, y = values[:, None], values[None]
    if scale == "nominal":
        return np.asarray(1.0 - np.eye(len(values)))
    if scale == "interval":
        return np.asarray((x - y) ** 2)
    return np.asarray(np.divide(x - y, x + y, out=np.zeros((len(values), len(values))), where=(x + y) != 0.0) ** 2)


def mid_ranks(share: Floats) -> Floats:
    """The mean rank of each class: d[k, l] of the ordinal scale is the squared difference of two of them."""
    return np.asarray(np.cumsum(share, axis=-1) - share / 2.0)


def chance_corrected(observed: Floats, expected: Floats) -> Floats:
    """(p_a - p_e) / (1 - p_e); nan where chance alone agrees always."""
    room = 1.0 - expected
    return np.asarray(np.divide(observed - expected, room, out=np.full_like(room, np.nan), where=room > 1e-12))


def one_minus_ratio(observed: Floats, expected: Floats) -> Floats:
    """1 - D_o / D_e; nan where nothing could differ."""
    return np.asarray(1.0 - np.divide(observed, expected, out=np.full_like(expected, np.nan), where=expected > 0.0))


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


# -------------------------------------------------------------------- the bootstrap

Statistic = Callable[[Floats], Floats]
"""From B x D sums over items to B values."""


def bootstrap(
    table: Any, times: Ints, statistic: Statistic, *, n: int, level: float, resamples: int, random_state: int
) -> Estimate:
    """A function of sums over items, with its interval.

    ``table`` (P x D, dense or sparse) holds what an item of each pattern adds, ``times`` how many items have it.
    """
    N, P = int(times.sum()), len(times)
    rng = np.random.default_rng(random_state)
    rounds = int(min(resamples, max(200, WORK // max(min(N, 20 * P), 1))))
    value = float(statistic(_dense(times.astype(np.float64)[None] @ table))[0])
    draws = []
    step = max(1, CHUNK // max(P, table.shape[1]))
    for at in range(0, rounds, step):
        size = min(step, rounds - at)
        if 20 * P < N:  # a binomial draw for every pattern costs about as much as twenty items
            weight = rng.multinomial(N, times / N, size=size).astype(np.float64)
        else:
            who = np.repeat(np.arange(P), times)
            weight = np.stack(
                [np.bincount(who[rng.integers(0, N, N)], minlength=P).astype(np.float64) for _ in range(size)]
            )
        draws.append(statistic(_dense(weight @ table)))
    low, high = bca(value, np.concatenate(draws), *_jackknife(table, times, statistic), level)
    return Estimate(value, low, high, n, level)


def bca(value: float, draws: Floats, gone: Floats, times: Floats, level: float) -> tuple[float, float]:
    """The bias-corrected and accelerated interval, from bootstrap draws and leave-one-item-out values.

    Draws in which the coefficient does not exist are left out.
    """
    from scipy.special import ndtr, ndtri

    draws = draws[np.isfinite(draws)]
    if not np.isfinite(value) or len(draws) == 0:
        return float("nan"), float("nan")
    if np.ptp(draws) < 1e-12:
        return value, value
    B = len(draws)
    below = (np.count_nonzero(draws < value - 1e-12) + np.count_nonzero(np.abs(draws - value) <= 1e-12) / 2.0) / B
    bias = ndtri(np.clip(below, 1.0 / (B + 1), B / (B + 1)))
    ok = np.isfinite(gone)
    pull = np.average(gone[ok], weights=times[ok]) - gone[ok] if ok.any() else np.zeros(1)
    times = times[ok] if ok.any() else np.ones(1)
    spread = float((times * pull**2).sum())
    skew = float((times * pull**3).sum()) / (6.0 * spread**1.5) if spread > 0.0 else 0.0
    N = max(float(times.sum()), 2.0)
    z = _reach(level, N)
    at = []
    for sign in (-1.0, 1.0):
        shifted = bias + sign * z
        at.append(float(ndtr(bias + shifted / max(1.0 - skew * shifted, 1e-3))))
    low, high = np.quantile(draws, np.clip(at, 0.0, 1.0))
    return float(min(low, value)), float(max(high, value))


def _reach(level: float, N: float) -> float:
    """Normal quantile, widened for few items: a bootstrap spread is short by (N - 1) / N, and a t has longer tails."""
    from scipy.special import ndtri, stdtrit

    tail = (1.0 + level) / 2.0
    return float(stdtrit(N - 1.0, tail) * np.sqrt(N / (N - 1.0))) if N < 1e5 else float(ndtri(tail))


def _jackknife(table: Any, times: Ints, statistic: Statistic) -> tuple[Floats, Floats]:
    """The value without one item of each pattern, and how many items that stands for."""
    P, D = table.shape
    total = _dense(times.astype(np.float64)[None] @ table)
    step = max(1, CHUNK // D)
    gone = [statistic(total - _dense(table[at : at + step])) for at in range(0, P, step)]
    return np.concatenate(gone), times.astype(np.float64)


def _dense(x: Any) -> Floats:
    return np.asarray(x.todense() if hasattr(x, "todense") else x, dtype=np.float64)


# -------------------------------------------------------------------- everybody at once


def percent_agreement(
    votes: Votes,
    *,
    weights: str | None = None,
    values: Any = None,
    level: float = 0.95,
    resamples: int = 1000,
    random_state: int = 0,
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
    level, resamples, random_state
        Of the interval: its level, the number of bootstrap resamples (fewer where N is very large, never under 200)
        and the seed.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import percent_agreement
    >>> votes = cw.Votes.from_dense([[0, 0, 0], [0, 1, 1], [1, 1, 1], [1, 1, 0]])
    >>> round(percent_agreement(votes).value, 3)
    0.667
    """
    table, times, n = _gwet_table(votes, weights, values)
    return bootstrap(table, times, lambda s: _ratio(s[:, 1], s[:, 0]), n=n, **_checked(level, resamples, random_state))


def fleiss_kappa(
    votes: Votes,
    *,
    weights: str | None = None,
    values: Any = None,
    level: float = 0.95,
    resamples: int = 1000,
    random_state: int = 0,
) -> Estimate:
    """Fleiss' kappa, items with any number of votes; with two votes each it is Scott's pi of the whole crowd.

    Chance agreement comes from the mean over items of their vote shares (Gwet 2014). Parameters as in
    :func:`percent_agreement`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import fleiss_kappa
    >>> crowd = cw.simulate.one_coin(300, n_annotators=9, n_classes=3, votes_per_item=4, random_state=0)
    >>> found = fleiss_kappa(crowd.votes)
    >>> found.low < found.value < found.high
    True
    """
    w = _weights_of(votes, weights, values)
    table, times, n = _gwet_table(votes, weights, values)

    def statistic(s: Floats) -> Floats:
        pi = s[:, 3:] / s[:, 2:3]
        return chance_corrected(_ratio(s[:, 1], s[:, 0]), np.einsum("bk,kl,bl->b", pi, w, pi))

    return bootstrap(table, times, statistic, n=n, **_checked(level, resamples, random_state))


def gwet_ac1(votes: Votes, *, level: float = 0.95, resamples: int = 1000, random_state: int = 0) -> Estimate:
    """Gwet's AC1: chance agreement is that on items hard enough to be guessed, so that a dominant class does no harm.

    Parameters as in :func:`percent_agreement`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import fleiss_kappa, gwet_ac1
    >>> votes = cw.Votes.from_dense([[0, 0]] * 95 + [[0, 1]] * 5)
    >>> round(gwet_ac1(votes).value, 2), round(fleiss_kappa(votes).value, 2)
    (0.95, -0.03)
    """
    return gwet_ac2(votes, weights=None, level=level, resamples=resamples, random_state=random_state)


def gwet_ac2(
    votes: Votes,
    *,
    weights: str | None = "quadratic",
    values: Any = None,
    level: float = 0.95,
    resamples: int = 1000,
    random_state: int = 0,
) -> Estimate:
    """Gwet's AC2: AC1 with partial agreement between neighbouring classes. Parameters as in :func:`percent_agreement`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import gwet_ac1, gwet_ac2
    >>> votes = cw.Votes.from_dense([[1, 1, 2], [3, 3, 3], [1, 2, 2], [3, 2, 3]])
    >>> gwet_ac2(votes).value > gwet_ac1(votes).value
    True
    """
    w = _weights_of(votes, weights, values)
    table, times, n = _gwet_table(votes, weights, values)
    K = votes.n_classes

    def statistic(s: Floats) -> Floats:
        pi = s[:, 3:] / s[:, 2:3]
        expected = w.sum() / (K * (K - 1.0)) * (pi * (1.0 - pi)).sum(axis=1)
        return chance_corrected(_ratio(s[:, 1], s[:, 0]), expected)

    return bootstrap(table, times, statistic, n=n, **_checked(level, resamples, random_state))


def krippendorff_alpha(
    votes: Votes,
    *,
    scale: str = "nominal",
    values: Any = None,
    level: float = 0.95,
    resamples: int = 1000,
    random_state: int = 0,
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
    level, resamples, random_state
        As in :func:`percent_agreement`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import krippendorff_alpha
    >>> crowd = cw.simulate.one_coin(300, n_annotators=9, n_classes=3, votes_per_item=4, random_state=0)
    >>> found = krippendorff_alpha(crowd.votes)
    >>> 0.0 < found.low < found.value < found.high < 1.0
    True
    """
    if scale not in SCALES:
        raise ParameterError(f"scale={scale!r}: expected one of {', '.join(map(repr, SCALES))}.")
    counts, times, n = _pairable(votes)
    K = votes.n_classes
    numbers = np.arange(K, dtype=np.float64) if scale in ("nominal", "ordinal") else _numbers(votes, values)
    if scale == "ratio" and (numbers < 0).any():
        raise ParameterError("scale='ratio': the values of the classes must not be negative.")
    if scale == "ordinal":
        table, statistic = _coincidences(counts), _ordinal_alpha
    else:
        d = distances(scale, numbers)
        size = counts.sum(axis=1)
        table = np.column_stack([np.einsum("pk,pk->p", counts @ d, counts) / (size - 1.0), counts])

        def statistic(s: Floats) -> Floats:
            mass = s[:, 1:]
            total = mass.sum(axis=1)
            return one_minus_ratio(
                s[:, 0] / total, np.einsum("bk,bk->b", mass @ d, mass) / (total * np.maximum(total - 1.0, 1.0))
            )

    return bootstrap(table, times, statistic, n=n, **_checked(level, resamples, random_state))


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


def _ordinal_alpha(s: Floats) -> Floats:
    K = int(np.sqrt(s.shape[1]))
    o = s.reshape(-1, K, K)
    mass = o.sum(axis=2)
    total = mass.sum(axis=1)
    rank = mid_ranks(mass)
    # sum o (R_k - R_l)^2 = 2 sum_k mass_k R_k^2 - 2 sum o R_k R_l, and the same with o = mass mass' / (total - 1).
    square = 2.0 * (mass * rank**2).sum(axis=1)
    seen = square - 2.0 * np.einsum("bkl,bk,bl->b", o, rank, rank)
    chance = square * total - 2.0 * (mass * rank).sum(axis=1) ** 2
    chance[chance < 1e-12 * square * total] = 0.0  # one class alone, but for rounding
    return one_minus_ratio(seen / total, chance / (total * np.maximum(total - 1.0, 1.0)))


def icc(
    votes: Votes,
    *,
    form: str = "one-way",
    average_of: int = 1,
    values: Any = None,
    level: float = 0.95,
    resamples: int = 1000,
    random_state: int = 0,
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
    checked = _checked(level, resamples, random_state)
    x = _numbers(votes, values)
    if form == "one-way":
        counts, times, n = _pairable(votes, at_least=1)
        size, total = counts.sum(axis=1), counts @ x
        table = np.column_stack([np.ones(len(size)), size, size**2, total, total**2 / size, counts @ x**2])
        return bootstrap(table, times, lambda s: _one_way(s, average_of), n=n, **checked)
    _, _, n = _pairable(votes)
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
        return _ratio(a, a + noise / average_of)

    return bootstrap(table, np.ones(table.shape[0], dtype=np.int64), statistic, n=n, **checked)


def _one_way(s: Floats, k: int) -> Floats:
    """sigma_a^2 / (sigma_a^2 + sigma_e^2 / k) from sums of 1, n, n^2, y, y^2 / n and squares over items."""
    N, S, nn, y, between, squares = (s[:, j] for j in range(6))
    centre = y**2 / S
    within = _ratio(squares - between, S - N)
    typical = (S - nn / S) / np.maximum(N - 1.0, 1.0)
    a = ((between - centre) / np.maximum(N - 1.0, 1.0) - within) / typical
    return _ratio(a, a + within / k)


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


# -------------------------------------------------------------------- two annotators


def cohen_kappa(
    votes: Votes,
    first: Any = None,
    second: Any = None,
    *,
    weights: str | None = None,
    values: Any = None,
    level: float = 0.95,
    resamples: int = 1000,
    random_state: int = 0,
) -> Estimate:
    """Cohen's kappa of two annotators on the items both labelled.

    Parameters
    ----------
    votes
        The votes; weights of votes are refused.
    first, second
        The names of the two; may be left out where there are just two.
    weights
        ``None``, ``"linear"`` or ``"quadratic"``: how a disagreement counts by the distance of the classes.
    values, level, resamples, random_state
        As in :func:`percent_agreement`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import cohen_kappa
    >>> votes = cw.Votes.from_dense([[0, 0]] * 20 + [[0, 1]] * 5 + [[1, 0]] * 10 + [[1, 1]] * 15)
    >>> round(cohen_kappa(votes).value, 3)
    0.4
    """
    return _of_two(votes, first, second, weights, values, False, _checked(level, resamples, random_state))


def scott_pi(
    votes: Votes,
    first: Any = None,
    second: Any = None,
    *,
    weights: str | None = None,
    values: Any = None,
    level: float = 0.95,
    resamples: int = 1000,
    random_state: int = 0,
) -> Estimate:
    """Scott's pi of two annotators: Cohen's kappa with one label distribution for both. Parameters as there.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import scott_pi
    >>> votes = cw.Votes.from_dense([[0, 0]] * 20 + [[0, 1]] * 5 + [[1, 0]] * 10 + [[1, 1]] * 15)
    >>> round(scott_pi(votes).value, 3)
    0.394
    """
    return _of_two(votes, first, second, weights, values, True, _checked(level, resamples, random_state))


def _of_two(
    votes: Votes, first: Any, second: Any, weights: str | None, values: Any, pooled: bool, checked: dict[str, Any]
) -> Estimate:
    d = 1.0 - _weights_of(votes, weights, values)
    K = votes.n_classes
    a, b = _two_codes(votes, first, second)
    item = votes.item
    left, right = votes.annotator == a, votes.annotator == b
    start = np.searchsorted(item[right], item[left], side="left")
    length = np.searchsorted(item[right], item[left], side="right") - start
    if length.sum() == 0:
        raise InputError(
            f"{votes.annotators[a]!r} and {votes.annotators[b]!r} have no item in common: there is nothing to compare."
        )
    ends = np.cumsum(length)
    partner = np.arange(ends[-1]) + np.repeat(start - (ends - length), length)
    cell = np.repeat(votes.label[left], length) * K + votes.label[right][partner]
    times = np.bincount(cell, minlength=K * K)

    def statistic(s: Floats) -> Floats:
        return kappa_of(s.reshape(-1, K, K), d, pooled)

    used = np.flatnonzero(times)
    table = np.zeros((len(used), K * K))
    table[np.arange(len(used)), used] = 1.0
    return bootstrap(table, times[used], statistic, n=int(times.sum()), **checked)


def kappa_of(tables: Floats, d: Floats, pooled: bool = False) -> Floats:
    """1 - sum d p / sum d r c of B x K x K tables of counts; ``pooled``: Scott's pi."""
    p = tables / tables.sum(axis=(1, 2), keepdims=True)
    r, c = p.sum(axis=2), p.sum(axis=1)
    if pooled:
        r = c = (r + c) / 2.0
    return one_minus_ratio(np.einsum("bkl,kl->b", p, d), np.einsum("bk,kl,bl->b", r, d, c))


def _two_codes(votes: Votes, first: Any, second: Any) -> tuple[int, int]:
    if first is None and second is None and votes.n_annotators == 2:
        return 0, 1
    if first is None or second is None:
        raise ParameterError(
            f"There are {votes.n_annotators} annotators: name two of them, or use fleiss_kappa or pairwise_agreement."
        )
    codes = coding.locate(coding.to_vocabulary([first, second]), votes.annotators)
    if (codes < 0).any():
        missing = [name for name, code in zip((first, second), codes.tolist(), strict=True) if code < 0]
        raise InputError(f"No annotator named {listing(missing)}: the votes have {listing(votes.annotators)}.")
    if codes[0] == codes[1]:
        raise ParameterError(f"first and second are both {first!r}: expected two different annotators.")
    return int(codes[0]), int(codes[1])


@dataclass(frozen=True)
class PairwiseAgreement:
    """All pairs of annotators with common items: who, how many items, agreement, kappa and its interval."""

    first: npt.NDArray[Any]
    second: npt.NDArray[Any]
    common: Ints
    agreement: Floats
    kappa: Floats
    low: Floats
    high: Floats
    level: float
    kind: str = "polars"

    def __len__(self) -> int:
        return len(self.common)

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per pair: first, second, common, agreement, kappa, kappa_low, kappa_high."""
        columns = {
            "first": self.first,
            "second": self.second,
            "common": self.common,
            "agreement": self.agreement,
            "kappa": self.kappa,
            "kappa_low": self.low,
            "kappa_high": self.high,
        }
        return make_frame(columns, kind or self.kind)


def pairwise_agreement(
    votes: Votes, *, weights: str | None = None, values: Any = None, least: int = 1, level: float = 0.95
) -> PairwiseAgreement:
    """Cohen's kappa of every pair of annotators with at least ``least`` common items.

    Intervals are by the delta method (Fleiss, Cohen and Everitt 1969) with one item more that agrees as by chance, so
    that a few items without a disagreement prove nothing, and held between -1 and 1; all of that range where kappa
    does not exist (nan) or a pair has a single item in common.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import pairwise_agreement
    >>> crowd = cw.simulate.one_coin(200, n_annotators=6, n_classes=3, votes_per_item=3, random_state=0)
    >>> pairwise_agreement(crowd.votes).to_frame().shape
    (15, 7)
    """
    from scipy.special import stdtrit

    _check_unweighted(votes)
    _checked(level, 1, 0)
    if not isinstance(least, (int, np.integer)) or least < 1:
        raise ParameterError(f"least={least!r}: expected a whole number of at least 1.")
    K = votes.n_classes
    w = _weights_of(votes, weights, values)
    size = np.diff(votes.indptr).astype(np.float64)
    if (size**2).sum() > MOST_PAIRS:
        raise InputError(
            f"There are {(size**2).sum() / 2:,.0f} pairs of votes on common items, too many to list. "
            "Look at some of the annotators or items: votes.only([...]), votes[:10000]."
        )
    rows, col, count = kernels.cooccurrence(votes.indptr, Part.of(votes).cell, np.empty(0), votes.n_annotators * K)
    row = np.repeat(np.arange(votes.n_annotators * K), np.diff(rows))
    one, two = row // K, col // K
    keep = one < two
    pair, place = np.unique(one[keep].astype(np.int64) * votes.n_annotators + two[keep], return_inverse=True)
    cell = place * (K * K) + (row[keep] % K) * K + col[keep] % K
    n = np.bincount(place, weights=count[keep], minlength=len(pair))
    enough = np.flatnonzero(n >= least - 1e-9)
    out = np.empty((len(pair), 3))
    order = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[order], np.arange(len(pair) + 1))
    step = max(1, CHUNK // (K * K))
    for at in range(0, len(pair), step):
        here = order[edges[at] : edges[min(at + step, len(pair))]]
        size_of = min(step, len(pair) - at)
        tables = np.bincount(cell[here] - at * K * K, weights=count[keep][here], minlength=size_of * K * K)
        out[at : at + size_of] = _kappa_and_variance(tables.astype(np.float64).reshape(-1, K, K), w)
    agree, kappa, variance = out[enough].T
    z = stdtrit(np.maximum(n[enough] - 1.0, 1.0), (1.0 + level) / 2.0)
    reach = np.where((n[enough] > 1.5) & np.isfinite(kappa), z * np.sqrt(np.maximum(variance, 0.0)), np.inf)
    middle = np.where(np.isfinite(kappa), kappa, 0.0)
    return PairwiseAgreement(
        votes.annotators[pair[enough] // votes.n_annotators],
        votes.annotators[pair[enough] % votes.n_annotators],
        np.rint(n[enough]).astype(np.int64),
        agree,
        kappa,
        np.clip(middle - reach, -1.0, 1.0),
        np.clip(middle + reach, -1.0, 1.0),
        level,
        votes.kind,
    )


def _kappa_and_variance(tables: Floats, w: Floats) -> Floats:
    """Agreement, kappa and its variance of B x K x K counts.

    The variance is that of the table with one item more, spread as chance would have it: three items without a
    disagreement are no proof that there never is one.
    """
    d = 1.0 - w
    n = tables.sum(axis=(1, 2))
    p = tables / n[:, None, None]
    chance = p.sum(axis=2)[:, :, None] * p.sum(axis=1)[:, None, :]
    return np.column_stack(
        [1.0 - np.einsum("bkl,kl->b", p, d), kappa_of(tables, d), kappa_variance(tables + chance, d) * (n + 1.0) / n]
    )


def kappa_variance(tables: Floats, d: Floats) -> Floats:
    """The delta method over the cells of B x K x K counts; nan where nothing could differ."""
    n = tables.sum(axis=(1, 2))
    p = tables / n[:, None, None]
    r, c = p.sum(axis=2), p.sum(axis=1)
    seen, chance = np.einsum("bkl,kl->b", p, d), np.einsum("bk,kl,bl->b", r, d, c)
    ok = chance > 1e-12
    safe = np.where(ok, chance, 1.0)[:, None, None]
    pull = -d[None] / safe + seen[:, None, None] / safe**2 * ((c @ d.T)[:, :, None] + (r @ d)[:, None, :])
    variance = ((p * pull**2).sum(axis=(1, 2)) - (p * pull).sum(axis=(1, 2)) ** 2) / n
    return np.where(ok, variance, np.nan)


# -------------------------------------------------------------------- all of them


@dataclass(frozen=True)
class Agreement:
    """Several coefficients of the same votes, by name."""

    estimates: dict[str, Estimate]
    kind: str = "polars"

    def __getitem__(self, name: str) -> Estimate:
        return self.estimates[name]

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per coefficient: coefficient, value, low, high, items."""
        found = list(self.estimates.values())
        columns = {
            "coefficient": np.array(list(self.estimates), dtype=object),
            "value": np.array([e.value for e in found]),
            "low": np.array([e.low for e in found]),
            "high": np.array([e.high for e in found]),
            "items": np.array([e.n for e in found], dtype=np.int64),
        }
        return make_frame(columns, kind or self.kind)


def agreement(
    votes: Votes,
    *,
    scale: str = "nominal",
    values: Any = None,
    level: float = 0.95,
    resamples: int = 1000,
    random_state: int = 0,
) -> Agreement:
    """The coefficients that suit a scale, side by side.

    Nominal: percentage, Fleiss' kappa, AC1, alpha. Ordinal: the same with quadratic weights (AC2) and ordinal alpha.
    Interval and ratio: alpha and the one-way intraclass correlation of one vote.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.agreement import agreement
    >>> crowd = cw.simulate.one_coin(300, n_annotators=9, n_classes=3, votes_per_item=4, random_state=0)
    >>> agreement(crowd.votes).to_frame()["coefficient"].to_list()
    ['percent', 'fleiss kappa', 'gwet ac1', 'krippendorff alpha']
    """
    if scale not in SCALES:
        raise ParameterError(f"scale={scale!r}: expected one of {', '.join(map(repr, SCALES))}.")
    how: dict[str, Any] = {"level": level, "resamples": resamples, "random_state": random_state}
    found: dict[str, Estimate] = {"percent": percent_agreement(votes, **how)}
    if scale == "nominal":
        found |= {"fleiss kappa": fleiss_kappa(votes, **how), "gwet ac1": gwet_ac1(votes, **how)}
    elif scale == "ordinal":
        found |= {"fleiss kappa": fleiss_kappa(votes, weights="quadratic", **how), "gwet ac2": gwet_ac2(votes, **how)}
    found["krippendorff alpha"] = krippendorff_alpha(votes, scale=scale, values=values, **how)
    if scale in ("interval", "ratio"):
        found["icc"] = icc(votes, values=values, **how)
    return Agreement(found, votes.kind)


# -------------------------------------------------------------------- the pieces


def _gwet_table(votes: Votes, weights: str | None, values: Any) -> tuple[Floats, Ints, int]:
    """Per pattern: has it pairs, the share of them that agree, 1, and the vote shares."""
    w = _weights_of(votes, weights, values)
    counts, times, n = _pairable(votes, at_least=1)
    size = counts.sum(axis=1)
    paired = size > 1.0
    same = np.einsum("pk,pk->p", counts @ w, counts) - counts @ np.diag(w)
    share = np.divide(same, size * (size - 1.0), out=np.zeros_like(size), where=paired)
    return np.column_stack([paired, share, np.ones(len(size)), counts / size[:, None]]), times, n


def _pairable(votes: Votes, at_least: int = 2) -> tuple[Floats, Ints, int]:
    """Patterns with so many votes, their times, and the number of items with two votes or more."""
    _check_unweighted(votes)
    counts, times = patterns(votes)
    size = counts.sum(axis=1)
    n = int(times[size > 1.5].sum())
    if n == 0:
        raise InputError("No item has two votes: there is nothing to agree on. Collect several votes on some items.")
    keep = size > at_least - 0.5
    return counts[keep], times[keep], n


def _check_unweighted(votes: Votes) -> None:
    if not isinstance(votes, Votes):
        raise InputError(f"Expected Votes and found {type(votes).__name__}: make them with Votes.from_frame.")
    if votes.weight is not None and not np.allclose(votes.weight, 1.0):
        raise InputError(
            "The votes have weights, and coefficients of agreement count votes. "
            "Leave them out: dataclasses.replace(votes, weight=None)."
        )


def _weights_of(votes: Votes, weights: str | None, values: Any) -> Floats:
    if weights not in WEIGHTS:
        raise ParameterError(f"weights={weights!r}: expected None, 'linear' or 'quadratic'.")
    return agreement_weights(votes.n_classes, weights, None if values is None else _numbers(votes, values))


def _numbers(votes: Votes, values: Any) -> Floats:
    """A number for each class: given, or the classes themselves."""
    names = votes.classes.tolist()
    if hasattr(values, "keys"):
        unknown = [name for name in names if name not in values]
        if unknown:
            raise ParameterError(f"values lacks a number for {listing(unknown)}.")
        values = [values[name] for name in names]
    if values is None and votes.classes.dtype.kind not in "iufb":
        raise InputError(
            f"The classes {listing(names)} are no numbers: give one for each, values={{class: number}}, "
            "or use a nominal or ordinal coefficient."
        )
    x = np.asarray(names if values is None else values, dtype=np.float64)
    if x.shape != (len(names),) or not np.isfinite(x).all():
        raise ParameterError(f"values={values!r}: expected a finite number for each of the {len(names)} classes.")
    return x


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.asarray(np.divide(top, bottom, out=np.full_like(bottom, np.nan), where=bottom > 0.0))


def _checked(level: float, resamples: int, random_state: int) -> dict[str, Any]:
    if not 0.0 < level < 1.0:
        raise ParameterError(f"level={level!r}: expected a number between 0 and 1, such as 0.95.")
    if resamples < 1:
        raise ParameterError(f"resamples={resamples!r}: expected at least 1.")
    return {"level": level, "resamples": resamples, "random_state": random_state}
