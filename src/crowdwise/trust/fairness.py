"""Whether the items of every group are labelled alike: by the consensus and by each annotator.

docs/reliability-fairness.md has the rates of one class, the *positive* one, in each group, and the gaps between groups.

Where no truth is given, counts are expected ones under the posterior (``basis`` says so), for an annotator under the
posterior given *the others'* votes (:mod:`crowdwise.trust.evidence`). Under a posterior that shares the crowd's
prejudice a prejudiced consensus looks fair. So intervals of the consensus then allow for true classes other than those
expected on a share ``hidden`` of each group's items, wherever that moves a rate most: with the shares TP, FP, FN, TN of
a group, the true positive rate may be as low as the lesser of (TP - h) / (TP - h + FN) and TP / (TP + FN + h).

Intervals are by bootstrap: items are drawn with replacement and, without truth, their classes from the posterior. All
differences between groups are covered at once with the level asked for: with a difference's bootstrap error s the
half-width is c s, c the quantile of the largest standardised deviation of any pair (for annotators, Sidak's bound of
it). So a gap, the largest difference, has the interval

    [ max over pairs of (|difference| - c s)+,  max over pairs of (|difference| + c s) ],

which may begin at 0: no difference shown. Without truth the distances between the ranges that ``hidden`` allows take
the place of |difference|, the least below and the largest above.

When it fails: groups with few items have wide intervals, and no finding there means little. Rates among positives rest
on the positives alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, Fraction, RandomState, Share, checked
from crowdwise.core.intervals import interval_text
from crowdwise.core.leave_one_out import LeaveOneOut
from crowdwise.core.numerics import Floats, Ints, clamp, normalise
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Estimate
from crowdwise.trust.evidence import Groups, check_match, known_classes, positive_code, read_evidence, read_groups
from crowdwise.trust.result_tables import Tables
from crowdwise.trust.wording import fairness_sentences

RATES = ("selection", "true_positive", "false_positive", "accuracy")
GAPS = {"demographic parity": (0,), "equal opportunity": (1,), "equalised odds": (1, 2), "accuracy": (3,)}
"""Criterion -> which of the rates it is about."""
HIDDEN = 0.2
"""The share of a group's items on which, unseen, true classes may not be those that the votes lead to expect."""
WORK = 2e8
"""Five resamples times items or votes: above it fewer are drawn (at least 200; 60 for annotators, where only errors
are asked)."""


@dataclass(frozen=True, eq=False, repr=False)
class FairnessReport(Tables):
    """Rates by group and the gaps between groups; see :func:`assess_fairness`."""

    TABLES = ("groups", "gaps", "annotators")
    groups: npt.NDArray[Any]
    positive: Any
    basis: str
    """``"truth"``, or ``"posterior"`` where expected counts stand in for it."""
    items: Ints
    """G: how many items each group has."""
    rates: dict[str, dict[Any, Estimate]]
    """Of the consensus: rate -> group -> estimate."""
    gaps: dict[str, Estimate]
    """Of the consensus: criterion -> the largest difference between groups."""
    differs: dict[str, bool]
    """Whether the interval of a gap stays clear of 0."""
    confusion: Floats
    """G x K x K: P(consensus says l | truth k) in each group."""
    judge_annotators: Callable[[], dict[str, npt.NDArray[Any]]] = field(repr=False)
    """Makes :attr:`annotator_table`."""
    level: float = 0.95
    kind: str = "polars"

    def __repr__(self) -> str:
        gap = self.gaps["demographic parity"]
        found = f"demographic parity gap {gap.value:.3f}, {interval_text(gap.low, gap.high, level=gap.level)}"
        return f"FairnessReport({len(self.groups)} groups by {self.basis}; {found})"

    @cached_property
    def annotator_table(self) -> dict[str, npt.NDArray[Any]]:
        """The gaps of each annotator with intervals, by column; computed when first asked for."""
        return self.judge_annotators()

    def _columns(self, table: str) -> dict[str, Any]:
        if table == "annotators":
            return dict(self.annotator_table)
        if table == "gaps":
            columns: dict[str, Any] = {"criterion": np.array(list(self.gaps), dtype=object)}
            columns |= _estimates("gap", list(self.gaps.values()), "")
            return columns | {"differs": np.array([self.differs[c] for c in self.gaps])}
        columns = {"group": np.array([str(g) for g in self.groups], dtype=object), "items": self.items}
        for rate, by in self.rates.items():
            columns |= _estimates(rate, list(by.values()), f"{rate}_")
        return columns

    def sentences(self) -> list[str]:
        """What was found, in words."""
        return fairness_sentences(self.basis, self.rates, self.gaps, self.differs)


def _estimates(name: str, found: list[Estimate], prefix: str) -> dict[str, Any]:
    fields_of = {name: "value", f"{prefix}low": "low", f"{prefix}high": "high"}
    return {column: np.array([getattr(e, what) for e in found]) for column, what in fields_of.items()}


@checked
def assess_fairness(
    votes: Votes, consensus: Consensus, groups: Any, *, positive: Any = None, truth: Any = None, level: Fraction = 0.95,
    hidden: Share = HIDDEN, resamples: Count = 1000, random_state: RandomState = 0,
) -> FairnessReport:  # fmt: skip
    """How the consensus and each annotator treat the items of different groups.

    Parameters
    ----------
    votes, consensus
        The votes and a consensus of them.
    groups
        The group of every item: a mapping from item to group, or N values; ``None`` for items to leave out.
    positive
        The class whose rates are compared; the second of two by default.
    truth
        True classes, where they are known: a mapping from item to class, or N codes with -1 for unknown. Items without
        are then left out of the rates of the consensus, and judged by the posterior for annotators.
    hidden
        Without truth: the share of each group's items whose true classes may, unseen, not be the expected ones. 0: the
        posterior is taken at its word.
    level, resamples, random_state
        The level of the intervals, and the bootstrap behind them (fewer resamples where there are very many votes).

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(400, n_annotators=10, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "one-coin")
    >>> report = cw.trust.assess_fairness(crowd.votes, consensus, ["a", "b"] * 200, truth=crowd.truth)
    >>> report.differs["demographic parity"]
    False
    """
    check_match(votes, consensus)
    known = known_classes(votes, consensus, truth)
    by = read_groups(groups, votes.items, "item")
    k = positive_code(votes.classes, positive)
    rng = np.random.default_rng(random_state)
    G = len(by.names)
    sure = known is not None and bool((known >= 0).any())
    q = clamp(consensus.corrected_posterior, known)
    use = (by.code >= 0) & (known >= 0) if known is not None and sure else by.code >= 0
    rows = np.flatnonzero(use)
    z, d = by.code[rows], consensus.label_codes[rows] == k
    if len(np.unique(z)) < 2:
        raise InputError("Fewer than two groups have items that can be judged: give the truth of items of each group.")
    y = q[rows, k]
    hit = q[rows, consensus.label_codes[rows]]

    def table(w: Floats, positives: Floats, right: Floats) -> Floats:
        """G x 4 rates of weighted items."""
        return rates_of(*(_sums(z, w * x, G) for x in _terms(d, positives, right)))

    value = table(np.ones(len(rows)), y, hit)
    rounds = int(min(resamples, max(200, WORK // (5 * len(rows)))))
    draws = np.empty((rounds, G, 4))
    for b in range(rounds):
        w = np.bincount(rng.integers(0, len(rows), len(rows)), minlength=len(rows)).astype(np.float64)
        if sure:
            draws[b] = table(w, y, hit)
        else:
            u = rng.random(len(rows))  # one draw of the truth serves both: it is the decision, or positive, or neither
            right = u < hit
            drawn = np.where(d, right, (u >= hit) & (u < hit + y)).astype(np.float64)
            draws[b] = table(w, drawn, right.astype(np.float64))
    rates, gaps, differs = {}, {}, {}
    counts = np.bincount(z, minlength=G)
    low, high = np.nanquantile(draws, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    least, most = (value, value) if sure else possible_rates(value, z, d, y, hidden)
    low, high = np.minimum(low - value, 0.0) + least, np.maximum(high - value, 0.0) + most
    for j, rate in enumerate(RATES):
        rates[rate] = {
            name: Estimate(x, max(float(low[g, j]), 0.0), min(float(high[g, j]), 1.0), int(counts[g]), level)
            for g, (name, x) in enumerate(zip(by.names.tolist(), value[:, j].tolist(), strict=True))
        }
    for criterion, columns in GAPS.items():
        ends = least[:, columns], most[:, columns]
        e = gap_estimate(value[:, columns], draws[:, :, columns], level, len(rows), ends)
        gaps[criterion], differs[criterion] = e, e.low > 0.0
    K = votes.n_classes
    joint = np.zeros((G, K, K))
    for truth_class in range(K):
        np.add.at(joint[:, truth_class], (z, consensus.label_codes[rows]), q[rows, truth_class])

    def judge_annotators() -> dict[str, npt.NDArray[Any]]:
        return annotator_gaps(read_evidence(votes, consensus, truth), by, k, level, resamples, rng)

    return FairnessReport(
        by.names, votes.classes.tolist()[k], "truth" if sure else "posterior", counts, rates, gaps, differs,
        normalise(joint, axis=2), judge_annotators, level, votes.kind,
    )  # fmt: skip


def _terms(d: npt.NDArray[Any], y: Floats, right: Floats) -> tuple[Floats, ...]:
    """What rates are sums of: one, decided positive, positive, both, right."""
    d = d.astype(np.float64)
    return np.ones_like(y), d, y, d * y, right


def _sums(where: Ints, weight: Floats, size: int) -> Floats:
    return np.bincount(where, weights=weight, minlength=size).astype(np.float64)


def rates_of(n: Floats, d: Floats, y: Floats, dy: Floats, right: Floats) -> Floats:
    """The four rates (last axis) from sums of: one, decided positive, positive, both, right; NaN without items."""

    def share(a: Floats, b: Floats) -> Floats:
        return np.asarray(np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 1e-9))

    return np.stack([share(d, n), share(dy, y), share(d - dy, n - y), share(right, n)], axis=-1)


def possible_rates(value: Floats, z: Ints, d: npt.NDArray[Any], y: Floats, hidden: float) -> tuple[Floats, Floats]:
    """The least and the largest rates (G x 4) where a share of each group's items may have other true classes."""
    G = len(value)
    n, chosen, positives, both, _ = (
        _sums(z, x, G) / np.maximum(np.bincount(z, minlength=G), 1) for x in _terms(d, y, y)
    )
    least, most = value.copy(), value.copy()
    # The rate of a cell among two: it shrinks where items leave it, or join the other; and grows the other way round.
    for j, own, rest, own_source, rest_source in (
        (1, both, positives - both, chosen - both, n - chosen - positives + both),
        (2, chosen - both, n - chosen - positives + both, both, positives - both),
    ):
        leave, grow = np.minimum(hidden, own), np.minimum(hidden, rest_source)
        join, shrink = np.minimum(hidden, own_source), np.minimum(hidden, rest)
        with np.errstate(divide="ignore", invalid="ignore"):
            lower = np.stack([(own - leave) / (own - leave + rest), own / (own + rest + grow)])
            upper = np.stack([(own + join) / (own + join + rest), own / (own + rest - shrink)])
        least[:, j], most[:, j] = np.nanmin([*lower, value[:, j]], axis=0), np.nanmax([*upper, value[:, j]], axis=0)
    least[:, 3], most[:, 3] = np.maximum(value[:, 3] - hidden, 0.0), np.minimum(value[:, 3] + hidden, 1.0)
    return least, most


def gap_estimate(
    value: Floats, draws: Floats, level: float, n: int, ends: tuple[Floats, Floats] | None = None
) -> Estimate:
    """The largest difference between groups in any of the columns, with a simultaneous interval (see the module).

    ``value`` is G x C, ``draws`` B x G x C; ``ends``: the least and the largest values that are possible.
    """
    i, j = np.triu_indices(len(value), 1)
    least, most = (value, value) if ends is None else ends
    d = (value[i] - value[j]).ravel()
    drawn_apart = (draws[:, i] - draws[:, j]).reshape(len(draws), -1)
    good = np.isfinite(d) & (np.isfinite(drawn_apart).mean(axis=0) > 0.5)
    if not good.any():
        return Estimate(float("nan"), 0.0, 1.0, n, level)
    above, below = (least[i] - most[j]).ravel()[good], (least[j] - most[i]).ravel()[good]
    d, drawn_apart = d[good], drawn_apart[:, good]
    error = np.maximum(np.nanstd(drawn_apart, axis=0), 1e-12)
    c = float(np.nanquantile(np.nanmax(np.abs(drawn_apart - d) / error, axis=1), level))
    low = np.maximum(np.maximum(above, below) - c * error, 0.0).max()
    high = min((c * error - np.minimum(above, below)).max(), 1.0)
    return Estimate(float(np.abs(d).max()), float(low), float(high), n, level)


def annotator_gaps(
    evidence: LeaveOneOut, by: Groups, k: int, level: float, resamples: int, rng: np.random.Generator
) -> dict[str, npt.NDArray[Any]]:
    """The gaps of each annotator between the groups of items they saw, with intervals; NaN where they saw one group.

    The bootstrap draws votes (one item each) with Poisson weights, all annotators at once.
    """
    votes = evidence.votes
    M, G = votes.n_annotators, len(by.names)
    rows = np.flatnonzero(by.code[votes.item] >= 0)
    cell = votes.annotator[rows].astype(np.int64) * G + by.code[votes.item[rows]]
    y, hit, d = evidence.others(k)[rows], evidence.right[rows], votes.label[rows] == k
    rounds = int(min(resamples, max(60, WORK // max(5 * len(rows), 1))))
    certain = evidence.gold[votes.item[rows]] >= 0

    def table(w: Floats, positives: Floats, right: Floats) -> Floats:
        return rates_of(*(_sums(cell, w * x, M * G).reshape(M, G) for x in _terms(d, positives, right)))

    value = table(np.ones(len(rows)), y, hit)
    i, j = np.triu_indices(G, 1)
    total = np.zeros((M, len(i), 4))
    square, seen = np.zeros_like(total), np.zeros_like(total)
    base = value[:, i] - value[:, j]
    for _ in range(rounds):
        w = rng.poisson(1.0, len(rows)).astype(np.float64)
        u = rng.random(len(rows))
        right = np.where(certain, hit, u < hit)
        drawn = np.where(certain, y, np.where(d, u < hit, (u >= hit) & (u < hit + y)))
        drawn_apart = table(w, drawn, right)
        apart = drawn_apart[:, i] - drawn_apart[:, j] - base
        ok = np.isfinite(apart)
        apart = np.where(ok, apart, 0.0)
        total, square, seen = total + apart, square + apart * apart, seen + ok
    spread = np.sqrt(np.maximum(square / np.maximum(seen, 1.0) - (total / np.maximum(seen, 1.0)) ** 2, 0.0))
    # A group of two or three votes that all agree does not vary under resampling: one more vote either way does.
    n = np.bincount(cell, minlength=M * G).reshape(M, G).astype(np.float64)
    least = 1.0 / (n + 2.0) / np.sqrt(n + 3.0)
    spread = np.maximum(spread, np.sqrt(least[:, i] ** 2 + least[:, j] ** 2)[:, :, None])
    columns = {"annotator": votes.annotators, "votes": np.bincount(votes.annotator, minlength=M)}
    for criterion, used in GAPS.items():
        c = _simultaneous(level, len(i) * len(used), np.minimum(n[:, i], n[:, j]))[:, :, None]
        size = np.abs(base[:, :, used]).reshape(M, -1)
        reach = (c * spread[:, :, used]).reshape(M, -1)
        ok = np.isfinite(size)
        any_ok = ok.any(axis=1)
        name = criterion.replace(" ", "_")
        top = np.where(ok, size, -1.0).max(axis=1)
        columns[name] = np.where(any_ok, top, np.nan)
        columns[f"{name}_low"] = np.where(any_ok, np.maximum(np.where(ok, size - reach, 0.0), 0.0).max(axis=1), np.nan)
        columns[f"{name}_high"] = np.where(any_ok, np.minimum(np.where(ok, size + reach, 0.0).max(axis=1), 1.0), np.nan)
    return columns


def _simultaneous(level: float, m: int, n: Floats) -> Floats:
    """Sidak's half-width for m differences at once, in errors (Student's, by the votes of the smaller group)."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(np.maximum(n - 1.0, 1.0), 0.5 + 0.5 * level ** (1.0 / m)))
