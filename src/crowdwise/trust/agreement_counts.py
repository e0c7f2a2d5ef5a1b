"""What coefficients of agreement count: patterns of labels, weights between classes, numbers for classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np

from crowdwise import kernels
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options, Statistic

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


def agreement_weights(K: int, weights: Weights, values: Floats | None = None) -> Floats:
    """w[k, l]: identity, 1 - |x - y| / range, or 1 - (x - y)^2 / range^2, of the classes' places or values."""
    if weights is None:
        return np.eye(K)
    x = np.arange(K, dtype=np.float64) if values is None else values
    gap = np.abs(x[:, None] - x[None]) / max(float(np.ptp(x)), 1e-300)
    return np.asarray(1.0 - (gap if weights == "linear" else gap**2))


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
    """Refuse what is no table of answers, and answers with weights."""
    if not hasattr(answers, "annotators"):
        raise InputError(f"Expected Votes and found {type(answers).__name__}: make them with Votes.from_frame.")
    if answers.weight is not None and not np.allclose(answers.weight, 1.0):
        raise InputError(
            "The answers have weights, and coefficients of agreement count answers. "
            "Leave them out: dataclasses.replace(answers, weight=None)."
        )


def weights_of(votes: Votes, weights: Weights, values: Any) -> Floats:
    return agreement_weights(votes.n_classes, weights, None if values is None else numbers(votes, values))


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
            f"The classes {listing(names)} are no numbers: give one for each, values={{class: number}}, "
            "or use a nominal or ordinal coefficient."
        )
    x = np.asarray(names if values is None else values, dtype=np.float64)
    if x.shape != (len(names),) or not np.isfinite(x).all():
        raise ParameterError(f"values={values!r}: expected a finite number for each of the {len(names)} classes.")
    return x
