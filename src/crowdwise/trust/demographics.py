"""Which groups of annotators label differently, on the same items (docs/reliability-fairness.md has the regression).

Its error is clustered by annotators and by items (Cameron, Gelbach and Miller 2011), since the votes of one person go
together. P-values are from permutations of the annotators' groups: the sum over a group's votes of y minus its item's
mean is a sum over people, so a shuffle of the people gives its distribution. Many groups make for much adjusting, so an
attribute as a whole has a test of its own, under the same shuffles: the sum over groups and outcomes of squared sums
per person, in units of their variance. Where classes are numbers their mean is an outcome, too; a numeric attribute
with many values (age) is cut into four ranges.

When it fails: groups of few people have wide intervals, and no finding there means little. The permutation test
supposes that which items people were given has nothing to do with their group. A group that differs is not thereby
wrong: where people disagree about what a label means, ``(right)`` is agreement with everybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Bounds, Count, Fraction, RandomState, checked
from crowdwise.core.leave_one_out import LeaveOneOut
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.data.frames import is_missing
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.trust.evidence import Groups, adjusted, read_evidence, read_groups
from crowdwise.trust.result_tables import Tables
from crowdwise.trust.wording import demographic_sentences

COLUMNS = ("attribute", "group", "outcome", "annotators", "votes", "rate", "difference", "low", "high", "p_value")
MANY, RANGES = 12, 4
"""An attribute with more different numbers than this is cut into so many ranges."""


@dataclass(frozen=True, eq=False, repr=False)
class DemographicReport(Tables):
    """One row per group of annotators and outcome; see :func:`compare_demographics`."""

    TABLES = ("groups",)
    columns: dict[str, npt.NDArray[Any]]
    attributes: dict[str, float]
    """attribute -> p-value of "it makes no difference", over all its groups and outcomes; adjusted over attributes."""
    confusion: dict[str, dict[Any, Floats]]
    """attribute -> group -> K x K: P(the group says l | truth k), the truth by everybody else."""
    level: float
    kind: str = "polars"

    def __repr__(self) -> str:
        n = int(self.columns["differs"].sum())
        return f"DemographicReport({len(self.columns['group']):,} comparisons, {n:,} differ at level {self.level})"

    def _columns(self, table: str) -> dict[str, Any]:
        return self.columns

    def sentences(self) -> list[str]:
        """The differences found, in words: attributes that matter, then groups, the largest difference first."""
        c = self.columns
        rows = np.flatnonzero(c["differs"])
        order = rows[np.argsort(-np.abs(c["difference"][rows]), kind="stable")]
        found = [{name: c[name][i] for name in COLUMNS} for i in order.tolist()]
        overall = {name: p for name, p in self.attributes.items() if p <= self.level}
        return demographic_sentences(overall, found, self.level)


@checked
def compare_demographics(
    votes: Votes, consensus: Consensus, demographics: Any, *, attributes: list[str] | None = None, gold: Any = None,
    min_annotators: Count = 5, level: Fraction = 0.05, permutations: Annotated[int, Bounds(minimum=99)] = 4999,
    random_state: RandomState = 0, evidence: LeaveOneOut | None = None,
) -> DemographicReport:  # fmt: skip
    """Which groups of annotators label differently from all others on the same items.

    Parameters
    ----------
    votes, consensus
        The votes and a consensus of them (for ``(right)`` and the confusion matrices; what is said needs none).
    demographics
        A mapping from annotator to group; or a table (a dict of columns or any dataframe) with a column of annotators,
        first or named ``annotator`` or ``worker``, and others of attributes.
    attributes
        The columns of a table to look at; all by default.
    gold
        True classes to judge by where they are known.
    min_annotators
        Groups of fewer annotators are left out.
    level
        The false discovery rate over all groups and outcomes; intervals are at 1 - ``level``.
    permutations, random_state
        Of the test.
    evidence
        As in :func:`~crowdwise.trust.annotators.assess_annotators`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(200, n_annotators=20, votes_per_item=6, random_state=0)
    >>> who = {name: "young" if i % 2 else "old" for i, name in enumerate(crowd.votes.annotators.tolist())}
    >>> cw.trust.compare_demographics(crowd.votes, cw.aggregate(crowd.votes, "one-coin"), who).sentences()
    []
    """
    from scipy.special import stdtrit

    evidence = evidence or read_evidence(votes, consensus, gold)
    tables = _attributes(demographics, votes.annotators, attributes)
    M = votes.n_annotators
    outcomes = _outcomes(evidence)
    rng = np.random.default_rng(random_state)
    rows: list[tuple[Any, ...]] = []
    overall: dict[str, float] = {}
    confusion: dict[str, dict[Any, Floats]] = {}
    voted = np.bincount(votes.annotator, minlength=M) > 0
    for attribute, by in tables.items():
        code = np.where(voted, by.code, -1)
        people = np.bincount(code[code >= 0], minlength=len(by.names))
        kept = [g for g in range(len(by.names)) if min(people[g], people.sum() - people[g]) >= min_annotators]
        if not kept:
            continue
        inside = code[votes.annotator] >= 0
        some = votes.select(inside)
        order = _shuffles(code, permutations, rng)
        confusion[attribute] = {
            by.names[g]: normalise(evidence.counts[code == g].sum(axis=0) + 1e-9, axis=1) for g in kept
        }
        distances = np.zeros(1 + len(order[1]))
        for outcome, y in outcomes:
            centred = _within(some, y[inside])
            total = np.bincount(some.annotator, weights=centred, minlength=M).astype(np.float64)
            for g in kept:
                mine = code[some.annotator] == g
                d, error, free = within_items(some, mine.astype(np.float64), centred)
                reach = float(stdtrit(free, 0.5 + (1.0 - level) / 2.0)) * error
                rate = float(y[inside][mine].mean()) if mine.any() else float("nan")
                sums = shuffled_sums(total, code, g, order)
                distances += sums**2 / people[g] / max(float(total.var()), 1e-12)
                p = float((np.abs(sums) >= abs(sums[0]) - 1e-9).mean())
                rows.append(
                    (attribute, str(by.names[g]), outcome, people[g], mine.sum(), rate, d, d - reach, d + reach, p)
                )
        overall[attribute] = float((distances >= distances[0] * (1.0 - 1e-9)).mean())
    if not rows:
        raise InputError(
            f"No attribute has two groups of {min_annotators} annotators: lower min_annotators, or merge groups."
        )
    columns = {
        name: np.array(v, dtype=object if name in COLUMNS[:3] else None)
        for name, v in zip(COLUMNS, zip(*rows, strict=True), strict=True)
    }
    columns["adjusted"] = adjusted(columns["p_value"])
    columns["differs"] = columns["adjusted"] <= level
    whole = dict(zip(overall, adjusted(np.array(list(overall.values()))).tolist(), strict=True))
    return DemographicReport(columns, whole, confusion, level, votes.kind)


def _outcomes(evidence: LeaveOneOut) -> list[tuple[str, Floats]]:
    """What is compared: each class, the mean where classes are numbers, and being right by the others."""
    votes = evidence.votes
    out = [(str(c), (votes.label == k).astype(np.float64)) for k, c in enumerate(votes.classes)]
    if votes.n_classes == 2:
        out = out[1:]  # the other one is its mirror image
    elif votes.classes.dtype.kind in "if":
        out.append(("(mean)", votes.classes.astype(np.float64)[votes.label]))
    return [*out, ("(right)", evidence.right)]


def _attributes(demographics: Any, annotators: npt.NDArray[Any], wanted: list[str] | None) -> dict[str, Groups]:
    """Groups by attribute, from a mapping or from a table."""
    names = set(annotators.tolist())
    if isinstance(demographics, Mapping) and any(key in names for key in demographics):
        return {"group": read_groups(demographics, annotators, "annotator")}
    from crowdwise.data.frames import to_polars

    table = to_polars(dict(demographics) if isinstance(demographics, Mapping) else demographics)
    who = next((c for c in ("annotator", "worker") if c in table.columns), table.columns[0])
    chosen = [c for c in table.columns if c != who] if wanted is None else wanted
    missing = [c for c in chosen if c not in table.columns]
    if missing:
        raise ParameterError(f"attributes names {listing(missing)}: the table has {listing(table.columns, 10)}.")
    keys = table[who].to_list()
    out = {}
    for column in chosen:
        values = dict(zip(keys, table[column].to_list(), strict=True))
        if not any(name in values for name in annotators.tolist()):
            values = {str(key): v for key, v in values.items()}  # a number in one table, text in the other
            values = {name: values.get(str(name)) for name in annotators.tolist()}
        out[column] = read_groups(_ranges(values), annotators, "annotator", min_groups=1)
    return out


def _ranges(values: dict[Any, Any]) -> dict[Any, Any]:
    """Many different numbers (ages, say) cut into ``RANGES`` groups of about the same size, named by their ends."""
    numbers = {}
    for key, value in values.items():
        try:
            numbers[key] = float(value)
        except (TypeError, ValueError):
            if not is_missing(value):
                return values
    found = np.array([x for x in numbers.values() if np.isfinite(x)])
    if len(np.unique(found)) <= MANY:
        return values
    edges = np.unique(np.quantile(found, np.linspace(0.0, 1.0, RANGES + 1)[1:-1], method="lower"))
    place = {key: int(np.searchsorted(edges, x, side="left")) for key, x in numbers.items() if np.isfinite(x)}
    ends = {g: [x for key, x in numbers.items() if place.get(key) == g] for g in set(place.values())}
    return {key: f"{min(ends[g]):g} to {max(ends[g]):g}" for key, g in place.items()}


def _within(votes: Votes, y: Floats) -> Floats:
    """y minus its mean over the votes of the item."""
    size = np.maximum(np.diff(votes.indptr), 1)
    return np.asarray(y - (np.bincount(votes.item, weights=y, minlength=len(votes)) / size)[votes.item])


def within_items(votes: Votes, g: Floats, centred: Floats) -> tuple[float, float, float]:
    """delta of the regression with an intercept per item, its two-way clustered error, and degrees of freedom."""
    x = _within(votes, g)
    xx = float(x @ x)
    if xx <= 1e-9:
        return float("nan"), float("nan"), 1.0
    delta = float(x @ centred) / xx
    score = x * (centred - delta * x)
    by_annotator = np.bincount(votes.annotator, weights=score)
    by_item = np.bincount(votes.item, weights=score)
    one, two, both = (float(s @ s) for s in (by_annotator, by_item, score))
    people = len(np.unique(votes.annotator[g > 0]))
    rest = len(np.unique(votes.annotator[g <= 0]))
    few = min(people, rest)
    variance = max(one + two - both, one) * (people + rest) / max(people + rest - 1.0, 1.0)
    return delta, float(np.sqrt(variance)) / xx, float(max(few - 1, 1))


def _shuffles(code: Ints, permutations: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The annotators with a group, and ``permutations`` rows of their codes shuffled."""
    people = np.flatnonzero(code >= 0)
    rounds = int(min(permutations, max(199, 5e7 // max(len(people), 1))))
    return people, rng.permuted(np.tile(code[people].astype(np.int16), (rounds, 1)), axis=1)


def shuffled_sums(total: Floats, code: Ints, g: int, order: tuple[Ints, Ints]) -> Floats:
    """A group's sum of the annotators' totals, as it is (first) and under every shuffle, about its mean.

    A total is the sum over an annotator's votes of y minus its item's mean, so shuffling needs no pass over the votes.
    """
    people, shuffled = order
    x = total[people] - total[people].mean()
    return np.concatenate([[float(x[code[people] == g].sum())], (shuffled == g) @ x])
