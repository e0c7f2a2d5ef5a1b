"""Cuts of the positive class' probability, one for each group of items, that keep the groups within a bound.

With group z sorted by probability, taking its first j items as positive has the accuracy acc_z(j) and the rate
rate_z(j): the share of positives (demographic parity), that among the truly positive (equal opportunity), or both that
and the one among the others (equalised odds). All rates must lie in a window [a, a + gap]. Every window that begins at
an attainable rate is tried, and in each the best cut of every group is found, so the optimum is exact (over cuts;
no item is decided by lot). For equalised odds there are two windows, of which 1,000 and, for each, 33 are tried.

When it fails: see docs/reliability-fairness.md. The idea of one threshold for each group, after the fact: M. Hardt, E.
Price and N. Srebro, Equality of opportunity in supervised learning, NIPS (2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Fraction, Share, checked
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.metrics.bootstrap import Estimate
from crowdwise.trust.evidence import positive_code, read_groups
from crowdwise.trust.result_tables import Tables

STARTS, WITHIN = 1000, 33
"""Windows tried for equalised odds."""
Constraint = Literal["demographic parity", "equal opportunity", "equalised odds"]


@dataclass(frozen=True, eq=False, repr=False)
class Thresholds(Tables):
    """Cuts of the positive probability, one for each group; see :func:`choose_thresholds`."""

    TABLES = ("groups",)
    groups: npt.NDArray[Any]
    thresholds: dict[Any, float]
    """Positive from this probability on; ``inf``: no item."""
    constraint: str
    gap: float
    """The largest difference between groups that the cuts have."""
    gap_before: float
    """The same with a cut at one half for all."""
    accuracy: Estimate
    accuracy_before: Estimate
    basis: str
    labels: npt.NDArray[Any]
    """The classes of all items; those without a group are cut at one half."""
    kind: str = "polars"

    def __repr__(self) -> str:
        cuts = ", ".join(f"{g}: {t:.3f}" for g, t in self.thresholds.items())
        kind = "expected accuracy" if self.basis == "posterior" else "accuracy"
        return (
            f"Thresholds({cuts}; {self.constraint} gap {self.gap_before:.3f} -> {self.gap:.3f}, "
            f"{kind} {self.accuracy_before.value:.3f} -> {self.accuracy.value:.3f})"
        )

    def _columns(self, table: str) -> dict[str, Any]:
        names = np.array([str(g) for g in self.groups], dtype=object)
        return {"group": names, "threshold": np.array(list(self.thresholds.values()))}


@checked
def choose_thresholds(
    consensus: Consensus, groups: Any, *, constraint: Constraint = "demographic parity", gap: Share = 0.05,
    positive: Any = None, gold: Any = None, level: Fraction = 0.95,
) -> Thresholds:  # fmt: skip
    """Cuts of the positive class' probability, one for each group: the least loss within a bound on the gap.

    Parameters
    ----------
    consensus
        A consensus over two classes.
    groups
        The group of every item: a mapping from item to group, or N values; items without one are left out.
    constraint
        ``"demographic parity"`` (shares of positives), ``"equal opportunity"`` (of those among the truly positive) or
        ``"equalised odds"`` (of those among the truly positive and among the others).
    gap
        The largest difference between any two groups that is allowed.
    positive
        The positive class; the second by default.
    gold
        True classes to choose by (a validation set). Without, accuracy and rates are expected ones under the posterior.
    level
        Of the intervals of the two accuracies.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(400, n_annotators=10, votes_per_item=5, random_state=0)
    >>> chosen = cw.trust.choose_thresholds(cw.aggregate(crowd.votes, "one-coin"), ["a", "b"] * 200, gap=0.01)
    >>> chosen.gap < 0.0101 and chosen.accuracy.value <= chosen.accuracy_before.value
    True
    """
    if len(consensus.classes) != 2:
        raise ParameterError(
            f"choose_thresholds is for two classes, and there are {len(consensus.classes)}: merge the others."
        )
    by = read_groups(groups, consensus.items, "item")
    k = positive_code(consensus.classes, positive)
    known = None if gold is None else consensus.truth_codes(gold)
    score = consensus.corrected_posterior[:, k]
    y = score if known is None else (known == k).astype(np.float64)
    use = (by.code >= 0) if known is None else (by.code >= 0) & (known >= 0)
    G = len(by.names)
    curves = [cut_curve(score[use & (by.code == g)], y[use & (by.code == g)]) for g in range(G)]
    if any(c.items == 0 for c in curves):
        empty = [str(name) for name, c in zip(by.names, curves, strict=True) if c.items == 0]
        raise InputError(f"No item to choose by in {listing(empty)}: leave the group out, or give truths there.")
    if constraint == "equalised odds":
        chosen = _two_windows(curves, gap)
    else:
        rates = [c.selection if constraint == "demographic parity" else c.true_positive for c in curves]
        chosen = _one_window(curves, rates, gap)
    cuts = {name: float(c.threshold[i]) for name, c, i in zip(by.names.tolist(), curves, chosen, strict=True)}
    at = np.append(np.array(list(cuts.values())), 0.5)[by.code]
    label = np.where(score >= at, k, 1 - k)
    before = [c.half for c in curves]
    n = sum(c.items for c in curves)
    p_before, p_after = (float(sum(c.right[i] for c, i in zip(curves, at, strict=True)) / n) for at in (before, chosen))
    return Thresholds(
        by.names, cuts, constraint, _gap_of(curves, chosen, constraint), _gap_of(curves, before, constraint),
        _share(p_after, n, level), _share(p_before, n, level), "posterior" if gold is None else "truth",
        consensus.classes[label], consensus.kind,
    )  # fmt: skip


def _share(p: float, n: int, level: float) -> Estimate:
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    low, high = (float(betaincinv(p * n + 0.5, (1.0 - p) * n + 0.5, t)) for t in (tail, 1.0 - tail))
    return Estimate(p, min(low, p), max(high, p), n, level)


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """What every possible cut of one group gives; position 0 takes no item as positive."""

    items: int
    threshold: Floats
    selection: Floats
    true_positive: Floats
    false_positive: Floats
    right: Floats
    half: int
    """The position of the cut at one half."""


def cut_curve(score: Floats, y: Floats) -> ThresholdCurve:
    """The cuts of a group: between distinct scores only, since equal scores are decided alike."""
    order = np.argsort(-score, kind="stable")
    s, t = score[order], y[order]
    n = len(s)
    ends = np.flatnonzero(np.append(s[1:] != s[:-1], True)) + 1 if n else np.empty(0, np.int64)
    j = np.concatenate([[0], ends])
    positives = np.concatenate([[0.0], np.cumsum(t)])[j]
    all_positive, all_else = float(t.sum()), float((1.0 - t).sum())
    return ThresholdCurve(
        n, np.concatenate([[np.inf], s[ends - 1]]), j / max(n, 1),
        positives / all_positive if all_positive > 0 else np.zeros(len(j)),
        (j - positives) / all_else if all_else > 0 else np.zeros(len(j)), positives + (all_else - (j - positives)),
        int(np.searchsorted(j, np.count_nonzero(s >= 0.5))),
    )  # fmt: skip


def _one_window(curves: list[ThresholdCurve], rates: list[Floats], gap: float) -> list[int]:
    """The best cut of each group inside the best window of rates; windows begin where some group can be."""
    starts = np.unique(np.concatenate(rates))
    return _best_cuts(curves, [_inside(rate, starts, gap) for rate in rates])


def _best_cuts(curves: list[ThresholdCurve], ranges: list[tuple[Ints, Ints]]) -> list[int]:
    """The best cut of each group in the window that is best for all together; ``ranges`` has those of a group's cuts,
    one for every window."""
    found = [range_argmax(curve.right, *inside) for curve, inside in zip(curves, ranges, strict=True)]
    total = sum(np.where(best >= 0, curve.right[best], -np.inf) for curve, best in zip(curves, found, strict=True))
    window = int(np.argmax(total))
    return [int(best[window]) for best in found]


def range_argmax(x: Floats, first: Ints, last: Ints) -> Ints:
    """The position of the largest of x[first:last] (the first of equals) for many ranges; -1 for empty ones."""
    n = len(x)
    table = [np.arange(n)]
    while 2 ** len(table) <= n:
        half, before = 2 ** (len(table) - 1), table[-1]
        a, b = before[:-half], before[half:]
        table.append(np.where(x[a] >= x[b], a, b))
    length = last - first
    out = np.full(len(first), -1, dtype=np.int64)
    level = np.floor(np.log2(np.maximum(length, 1))).astype(np.int64)
    for step in np.unique(level[length > 0]).tolist():
        rows = np.flatnonzero((level == step) & (length > 0))
        a, b = table[step][first[rows]], table[step][last[rows] - 2**step]
        out[rows] = np.where(x[a] >= x[b], a, b)
    return out


def _two_windows(curves: list[ThresholdCurve], gap: float) -> list[int]:
    """As :func:`_one_window`, with a window for the rate among the positive and one for that among the others.

    Both rates grow with the cut, so the cuts of a group inside both windows are a range again. Up to ``STARTS`` windows
    of the first kind are tried, and for each ``WITHIN`` of the second, spread over those that every group can meet.
    """
    starts = np.unique(np.concatenate([c.true_positive for c in curves]))
    if len(starts) > STARTS:
        starts = starts[np.unique(np.linspace(0, len(starts) - 1, STARTS).astype(np.int64))]
    spans = [_inside(c.true_positive, starts, gap) for c in curves]
    low, high = np.full(len(starts), -np.inf), np.full(len(starts), np.inf)
    for c, (first, last) in zip(curves, spans, strict=True):
        some = last > first
        top = len(c.false_positive) - 1
        low = np.maximum(low, np.where(some, c.false_positive[np.minimum(first, top)] - gap, np.inf))
        high = np.minimum(high, np.where(some, c.false_positive[np.maximum(last - 1, 0)], -np.inf))
    meet = low <= high + 1e-12
    second = np.linspace(low[meet], np.maximum(low, high)[meet], WITHIN).T  # windows x WITHIN
    ranges = []
    for curve, (first, last) in zip(curves, spans, strict=True):
        begin, end = _inside(curve.false_positive, second.ravel(), gap)
        begin = np.maximum(begin, np.repeat(first[meet], WITHIN))
        ranges.append((begin, np.minimum(end, np.repeat(last[meet], WITHIN))))
    return _best_cuts(curves, ranges)


def _inside(rate: Floats, starts: Floats, gap: float) -> tuple[Ints, Ints]:
    """The ranges of a rising rate that lie in the windows [start, start + gap]."""
    return np.searchsorted(rate, starts - 1e-12, side="left"), np.searchsorted(rate, starts + gap + 1e-12, side="right")


def _gap_of(curves: list[ThresholdCurve], rows: list[int], constraint: str) -> float:
    names = {"demographic parity": ("selection",), "equal opportunity": ("true_positive",)}
    used = names.get(constraint, ("true_positive", "false_positive"))
    values = [[getattr(c, name)[i] for c, i in zip(curves, rows, strict=True)] for name in used]
    return float(max(max(v) - min(v) for v in values))
