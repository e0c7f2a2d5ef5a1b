"""What coefficients of agreement count: patterns of votes, weights between classes, numbers for classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing

WEIGHTS = (None, "linear", "quadratic")


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


def chance_corrected(observed: Floats, expected: Floats) -> Floats:
    """(p_a - p_e) / (1 - p_e); nan where chance alone agrees always."""
    room = 1.0 - expected
    return np.asarray(np.divide(observed - expected, room, out=np.full_like(room, np.nan), where=room > 1e-12))


def one_minus_ratio(observed: Floats, expected: Floats) -> Floats:
    """1 - D_o / D_e; nan where nothing could differ."""
    return np.asarray(1.0 - np.divide(observed, expected, out=np.full_like(expected, np.nan), where=expected > 0.0))


def ratio(top: Floats, bottom: Floats) -> Floats:
    return np.asarray(np.divide(top, bottom, out=np.full_like(bottom, np.nan), where=bottom > 0.0))


def pairable(votes: Votes, at_least: int = 2) -> tuple[Floats, Ints, int]:
    """Patterns with so many votes, their times, and the number of items with two votes or more."""
    check_unweighted(votes)
    counts, times = patterns(votes)
    size = counts.sum(axis=1)
    n = int(times[size > 1.5].sum())
    if n == 0:
        raise InputError("No item has two votes: there is nothing to agree on. Collect several votes on some items.")
    keep = size > at_least - 0.5
    return counts[keep], times[keep], n


def check_unweighted(votes: Votes) -> None:
    if not isinstance(votes, Votes):
        raise InputError(f"Expected Votes and found {type(votes).__name__}: make them with Votes.from_frame.")
    if votes.weight is not None and not np.allclose(votes.weight, 1.0):
        raise InputError(
            "The votes have weights, and coefficients of agreement count votes. "
            "Leave them out: dataclasses.replace(votes, weight=None)."
        )


def weights_of(votes: Votes, weights: str | None, values: Any) -> Floats:
    if weights not in WEIGHTS:
        raise ParameterError(f"weights={weights!r}: expected None, 'linear' or 'quadratic'.")
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
