"""Agreement of two annotators on the items both labelled, and of every pair (docs/reliability-agreement.md).

p[k, l] is the share of common items on which the first says k and the second l, r and c its margins, d[k, l] how far
two labels differ: kappa is 1 - sum d p / sum d r c', and Scott's pi the same with both margins replaced by their mean.

When it fails: with few common items intervals are wide, and rough; kappa falls when one class dominates.

References: Cohen 1960, 1968; Scott 1955; Fleiss, Cohen and Everitt 1969.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.core.collusion import paired_votes
from crowdwise.core.constraints import Count, Fraction, checked
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.metrics.bootstrap import CHUNK, Bootstrap, Estimate, Options
from crowdwise.trust.agreement_coefficients import (
    Weights,
    check_unweighted,
    common_cells,
    one_minus_ratio,
    ratio,
    weights_of,
)
from crowdwise.trust.evidence import annotator_codes
from crowdwise.trust.result_tables import Tables


def kappa_of(tables: Floats, d: Floats, pooled: bool = False) -> Floats:
    """1 - sum d p / sum d r c of B x K x K tables of counts; ``pooled``: Scott's pi."""
    p = tables / tables.sum(axis=(1, 2), keepdims=True)
    r, c = p.sum(axis=2), p.sum(axis=1)
    if pooled:
        r = c = (r + c) / 2.0
    return one_minus_ratio(np.einsum("bkl,kl->b", p, d), np.einsum("bk,kl,bl->b", r, d, c))


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


@checked
def cohen_kappa(
    votes: Votes | Comparisons, first: Any = None, second: Any = None, *, weights: Weights = None, values: Any = None,
    **options: Unpack[Options],
) -> Estimate:  # fmt: skip
    """Cohen's kappa of two annotators on the items both labelled.

    Parameters
    ----------
    votes
        The votes; weights of votes are refused. Comparisons count as votes on every two items (and question),
        in either order.
    first, second
        The names of the two; may be left out where there are just two.
    weights
        ``None``, ``"linear"`` or ``"quadratic"``: how a disagreement counts by the distance of the classes.
    values, **options
        As in :func:`percent_agreement`.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0]] * 20 + [[0, 1]] * 5 + [[1, 0]] * 10 + [[1, 1]] * 15)
    >>> round(cw.trust.cohen_kappa(votes).value, 3)
    0.4
    """
    return _of_two(votes, first, second, weights, values, False, Bootstrap(**options))


@checked
def scott_pi(
    votes: Votes, first: Any = None, second: Any = None, *, weights: Weights = None, values: Any = None,
    **options: Unpack[Options],
) -> Estimate:  # fmt: skip
    """Scott's pi of two annotators: Cohen's kappa with one label distribution for both. Parameters as there.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0]] * 20 + [[0, 1]] * 5 + [[1, 0]] * 10 + [[1, 1]] * 15)
    >>> round(cw.trust.scott_pi(votes).value, 3)
    0.394
    """
    return _of_two(votes, first, second, weights, values, True, Bootstrap(**options))


def _of_two(
    votes: Votes | Comparisons, first: Any, second: Any, weights: Weights, values: Any, pooled: bool, by: Bootstrap
) -> Estimate:
    mirrored, votes = isinstance(votes, Comparisons), votes.votes() if isinstance(votes, Comparisons) else votes
    d, K = 1.0 - weights_of(votes, weights, values), votes.n_classes
    a, b = _two_codes(votes, first, second)
    some = votes.select((votes.annotator == a) | (votes.annotator == b))
    one, two = _annotator_pairs(some)
    if not len(one):
        raise InputError(
            f"{listing(votes.annotators[[a]])} and {listing(votes.annotators[[b]])} have no item in common: there is "
            "nothing to compare."
        )
    one, two = (one, two) if a < b else (two, one)
    times = np.bincount(some.label[one] * K + some.label[two], minlength=K * K)
    used = np.flatnonzero(times)
    table = np.eye(K * K)[used]
    if mirrored:  # which of two items is called the first means nothing
        turn = np.array([1, 0, 2])
        table = 0.5 * (table + np.eye(K * K)[turn[used // K] * K + turn[used % K]])
    return by.of_sums(table, times[used], lambda s: kappa_of(s.reshape(-1, K, K), d, pooled), int(times.sum()))


def _annotator_pairs(votes: Votes) -> tuple[Ints, Ints]:
    """All pairs of votes on an item by two annotators, as rows: that of the annotator with the smaller code first."""
    one, two = paired_votes(votes.indptr, np.arange(len(votes)))
    apart = votes.annotator[one] != votes.annotator[two]
    turn = votes.annotator[one] > votes.annotator[two]
    return np.where(turn, two, one)[apart], np.where(turn, one, two)[apart]


def _two_codes(votes: Votes, first: Any, second: Any) -> tuple[int, int]:
    if first is None and second is None and votes.n_annotators == 2:
        return 0, 1
    if first is None or second is None:
        raise ParameterError(
            f"There are {votes.n_annotators} annotators: name two of them, or use fleiss_kappa or pairwise_agreement."
        )
    a, b = annotator_codes(votes, [first, second]).tolist()
    if a == b:
        raise ParameterError(f"first and second are both {first!r}: expected two different annotators.")
    return a, b


def light_kappa(votes: Votes, *, weights: Weights = None, values: Any = None, **options: Unpack[Options]) -> Estimate:
    """Light's kappa: the mean of Cohen's kappa over all pairs of annotators with common items.

    Parameters as in :func:`cohen_kappa`. The work goes with the square of the annotators: for a few of them.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0, 0]] * 20 + [[0, 1, 0]] * 5 + [[1, 0, 1]] * 10 + [[1, 1, 1]] * 15)
    >>> round(cw.trust.light_kappa(votes).value, 3)
    0.6
    """
    from scipy.sparse import csr_matrix

    check_unweighted(votes)
    d, K, M = 1.0 - weights_of(votes, weights, values), votes.n_classes, votes.n_annotators
    one, two = _annotator_pairs(votes)
    if not len(one):
        raise InputError("No two annotators have an item in common: there is nothing to compare.")
    key = votes.annotator[one].astype(np.int64) * M + votes.annotator[two]
    pairs, pair = np.unique(key, return_inverse=True)
    cell = (pair * K + votes.label[one]) * K + votes.label[two]
    items, row = np.unique(votes.item[one], return_inverse=True)
    table = csr_matrix((np.ones(len(cell)), (row, cell)), shape=(len(items), len(pairs) * K * K))

    def statistic(s: Floats) -> Floats:
        with np.errstate(invalid="ignore"):  # pairs without a common item in a resample
            by_pair = kappa_of(s.reshape(-1, K, K), d).reshape(len(s), -1)
        there = np.isfinite(by_pair)
        return ratio(np.where(there, by_pair, 0.0).sum(axis=1), there.sum(axis=1).astype(np.float64))

    return Bootstrap(**options).of_sums(table, np.ones(len(items), dtype=np.int64), statistic, len(items))


@dataclass(frozen=True, repr=False)
class PairwiseAgreement(Tables):
    """All pairs of annotators with common items: who, how many items, agreement, kappa and its interval."""

    TABLES = ("pairs",)
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

    def __repr__(self) -> str:
        known = self.kappa[np.isfinite(self.kappa)]
        middle = f", median kappa {np.median(known):.3f}" if len(known) else ""
        return f"PairwiseAgreement({len(self):,} pairs of annotators{middle})"

    def _columns(self, table: str) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in ("first", "second", "common", "agreement", "kappa")}
        return {**named, "kappa_low": self.low, "kappa_high": self.high}


@checked
def pairwise_agreement(
    votes: Votes, *, weights: Weights = None, values: Any = None, min_common: Count = 1, level: Fraction = 0.95
) -> PairwiseAgreement:
    """Cohen's kappa of every pair of annotators with at least ``min_common`` common items.

    Intervals are by the delta method (Fleiss, Cohen and Everitt 1969) with one item more that agrees as by chance, so
    that a few items without a disagreement prove nothing, and held between -1 and 1; all of that range where kappa
    does not exist (nan) or a pair has a single item in common.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(200, n_annotators=6, n_classes=3, votes_per_item=3, random_state=0)
    >>> cw.trust.pairwise_agreement(crowd.votes).to_frame().shape
    (15, 7)
    """
    from scipy.special import stdtrit

    check_unweighted(votes)
    K = votes.n_classes
    w = weights_of(votes, weights, values)
    too_many = "to list. Look at some of the annotators or items: votes.only([...]), votes[:10000]."
    row, col, count = common_cells(votes, np.empty(0), too_many)
    one, two = row // K, col // K
    keep = one < two
    pair, place = np.unique(one[keep].astype(np.int64) * votes.n_annotators + two[keep], return_inverse=True)
    cell = place * (K * K) + (row[keep] % K) * K + col[keep] % K
    n = np.bincount(place, weights=count[keep], minlength=len(pair))
    enough = np.flatnonzero(n >= min_common - 1e-9)
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
        votes.annotators[pair[enough] // votes.n_annotators], votes.annotators[pair[enough] % votes.n_annotators],
        np.rint(n[enough]).astype(np.int64), agree, kappa, np.clip(middle - reach, -1.0, 1.0),
        np.clip(middle + reach, -1.0, 1.0), level, votes.kind,
    )  # fmt: skip
