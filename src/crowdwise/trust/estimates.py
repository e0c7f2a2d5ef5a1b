"""Figures one can publish: shares of classes, means, pass rates, differences and coefficients, with honest intervals.

Where the figure comes from is said beside it (``basis``):

==================  ==================================================================================================
``gold``            predictions for all items, their error measured on gold items drawn at random or with known
                    probabilities (:mod:`crowdwise.metrics.rectified`): holds whatever the annotators' bias
``error rates``     counts of labels, turned back by error rates that were measured elsewhere (Rogan and Gladen): holds
                    where the labels here have those error rates
``model``           the mean prediction: nothing holds it where annotators lean to one side, so it has no interval
==================  ==================================================================================================

Predictions are the posterior of a consensus that was fitted without these gold labels, or with those of other folds:
a gold label never serves both to fit and to correct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Fraction, checked
from crowdwise.core.intervals import quantile
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.prediction_sets import check_random
from crowdwise.core.result import Estimates
from crowdwise.data.truth import check_drawn, encode_classes, encode_numbers
from crowdwise.errors import InputError, Option, ParameterError, Remedy, listing
from crowdwise.metrics.bootstrap import Estimate
from crowdwise.metrics.rectified import Rectified, Sample, difference, figure, inverted, linear, logistic, slope_of
from crowdwise.trust.evidence import Groups, positive_code, read_groups
from crowdwise.trust.result_tables import Tables

What = Literal["share", "mean", "difference", "ols", "logistic"]
REGRESSIONS = {"ols": linear, "logistic": logistic}
FEW = 30
"""Gold labels under which the interval is said to be rough."""
INTERCEPT = "(intercept)"
FAR = 5.0
"""Standard deviations by which draws may differ from their probabilities."""


@dataclass(frozen=True)
class Row:
    """A figure of a group, and of a class or a covariate."""

    figure: Rectified
    group: Any = None
    other: Any = None
    """Of differences: the group that is taken off."""
    of: Any = None
    """The class, or the covariate."""


@dataclass(frozen=True, eq=False, repr=False)
class PopulationEstimates(Tables):
    """Figures of all items; see :func:`estimate`."""

    TABLES = ("estimates",)
    what: str
    basis: str
    rows: tuple[Row, ...]
    beyond: bool
    level: float
    percent: bool
    """Whether figures are shares."""
    notes: list[str] = field(default_factory=list)
    kind: str = "polars"

    def __repr__(self) -> str:
        return f"PopulationEstimates({self.what} by {self.basis}: {'; '.join(self.sentences())})"

    def __getitem__(self, name: Any) -> Estimate:
        """The estimate of a group, a class or a covariate; of a pair (group, class) or (group, other) of them."""
        parts = name if isinstance(name, tuple) else (name,)
        fits = [
            row
            for row in self.rows
            if all(any(part == own for own in (row.group, row.other, row.of)) for part in parts)
        ]
        if len(fits) != 1:
            raise ParameterError(
                f"{name!r}: {len(fits)} figures have this name, of {listing(map(self._name, self.rows))}."
            )
        return fits[0].figure.estimate

    @property
    def narrower(self) -> float:
        """The mean ratio of widths: of the intervals, to those of the gold labels alone."""
        found = [
            (row.figure.estimate.high - row.figure.estimate.low) / (row.figure.gold.high - row.figure.gold.low)
            for row in self.rows if row.figure.gold.high > row.figure.gold.low
        ]  # fmt: skip
        return float(np.mean(found)) if found else np.nan

    @property
    def n_gold(self) -> int:
        """How many gold labels were used."""
        return sum({(row.group, row.other): row.figure.gold.n for row in self.rows}.values())

    def sentences(self) -> list[str]:
        """Every figure in a sentence."""
        form = "{:.1%}".format if self.percent else "{:.4g}".format
        out = []
        for row in self.rows:
            found, gold = row.figure.estimate, row.figure.gold
            text = f"{self._name(row)}: {form(found.value)}"
            if np.isfinite(found.low):
                text += f" ({found.interval(form)}"
                text += (
                    f"; gold alone {gold.interval(form)})" if np.isfinite(gold.low) and self.basis == "gold" else ")"
                )
            out.append(text)
        return out

    def _name(self, row: Row) -> str:
        group = "" if row.group is None else f"{row.group}" if row.other is None else f"{row.group} - {row.other}"
        of = "" if row.of is None else f"{row.of}"
        return ", ".join(part for part in (group, of) if part) or self.what

    def _columns(self, table: str) -> dict[str, Any]:
        named = {
            "group": [row.group for row in self.rows], "other": [row.other for row in self.rows],
            "covariate" if self.what in REGRESSIONS else "class": [row.of for row in self.rows],
        }  # fmt: skip
        columns: dict[str, Any] = {
            name: np.array(values, dtype=object)
            for name, values in named.items()
            if any(value is not None for value in values)
        }
        figures = [row.figure for row in self.rows]
        for name, found in (("", [f.estimate for f in figures]), ("gold_", [f.gold for f in figures])):
            columns |= {
                f"{name}{end}": np.array([getattr(e, part) for e in found])
                for end, part in (("estimate", "value"), ("low", "low"), ("high", "high"))
            }
        return columns | {
            "model": np.array([f.model for f in figures]), "weight": np.array([f.weight for f in figures]),
            "items": np.array([f.items for f in figures]), "gold": np.array([f.gold.n for f in figures]),
        }  # fmt: skip


@checked
def estimate(
    result: Any, what: What = "share", *, gold: Any = None, by: Any = None, positive: Any = None,
    probability: Any = None, covariates: Any = None, error_rates: Any = None, beyond: bool = False,
    level: Fraction = 0.95, prediction: Any = None,
) -> PopulationEstimates:  # fmt: skip
    """Figures of all items of a consensus or of estimated ratings; see :func:`crowdwise.estimate`.

    ``prediction``: N x K probabilities (or N numbers) in the place of those of ``result``, whose fits did not see the
    gold labels that they are corrected by.
    """
    target = _Target.of(result, what, gold, positive, prediction)
    if target.known.any() and error_rates is not None:
        raise ParameterError("error_rates: not with gold, which measures them. Leave one of them out.")
    if what == "difference" and by is None:
        raise ParameterError("by: a difference is between groups. Give a mapping from item to group.")
    groups = None if by is None else read_groups(by, result.items, "item", 2 if what == "difference" else 1)
    notes = [] if groups is None or (groups.code >= 0).all() else [
        f"{int((groups.code < 0).sum()):,} items have no group, and are left out."
    ]  # fmt: skip
    p = _probabilities(probability, result, target)
    common = {"what": what, "beyond": beyond or what in REGRESSIONS, "level": level, "kind": result.kind}
    if what in REGRESSIONS:
        if groups is not None or error_rates is not None:
            raise ParameterError(f"{what}: by and error_rates are not for regressions. Give groups as covariates.")
        rows = _regression(what, target, _design(covariates, result.items), p, level)
        return PopulationEstimates(basis="gold", rows=tuple(rows), percent=False, notes=notes, **common)
    if covariates is not None:
        raise ParameterError("covariates: only regressions have them (what='ols' or 'logistic').")
    if error_rates is not None:
        basis, rows = "error rates", _by_error_rates(result, target, error_rates, groups, level)
    elif target.known.any():
        basis, rows = "gold", _by_gold(target, groups, p, beyond, level)
        few = min(row.figure.gold.n for row in rows)
        if few < FEW:
            notes.append(f"The smallest group has {few} gold labels: below {FEW} the interval is rough.")
        if any(np.isfinite(row.figure.estimate.value) and np.isnan(row.figure.estimate.low) for row in rows):
            notes.append("Gold numbers that are all alike do not show how far others may be: there is no interval.")
    else:
        basis, rows = "model", _by_model(target, groups, level)
        notes.append(
            "No gold labels: the mean of the model's predictions, which is wrong where annotators lean to one side. It "
            "has no interval. Draw items with crowdwise certify --ask 100, and give their labels as gold."
        )
    if what == "difference":
        rows = _differences(rows)
    return PopulationEstimates(basis=basis, rows=tuple(rows), percent=target.share, notes=notes, **common)


@dataclass(frozen=True)
class _Target:
    """What is asked for of every item: predictions and (NaN where unknown) truths, N x K, of named classes."""

    names: tuple[Any, ...]
    f: Floats
    y: Floats
    share: bool
    codes: Ints
    """The columns' classes."""

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        return ~np.isnan(self.y[:, 0])

    @classmethod
    def of(cls, result: Any, what: str, gold: Any, positive: Any, prediction: Any) -> _Target:
        if not isinstance(result, (Consensus, Estimates)):
            name = type(result).__name__
            raise InputError(f"Expected votes or ratings (Consensus, Estimates) to estimate figures of, not {name}.")
        check_drawn(gold, result.items)
        fitted_with = getattr(result, "gold", None)
        if prediction is None and gold is not None and fitted_with is not None and (fitted_with >= 0).any():
            raise InputError(
                "The consensus was fitted with gold labels, which cannot correct it as well: fit it without them, or "
                "give votes and folds=5, so that each label corrects a fit that did not see it."
            )
        if isinstance(result, Estimates):
            if what in ("share", "logistic") or positive is not None:
                numeric = Option("what", "mean", "difference", "ols")
                raise ParameterError(f"{what}: ratings have no classes.", remedy=Remedy("Take {}.", numeric))
            y = np.full(len(result.items), np.nan) if gold is None else encode_numbers(gold, result.items)
            f = result.values if prediction is None else np.asarray(prediction, dtype=np.float64)
            return cls((None,), f[:, None], y[:, None], False, np.zeros(1, dtype=np.int64))
        q = result.corrected_posterior if prediction is None else np.asarray(prediction, dtype=np.float64)
        known = encode_classes(gold, result.items, result.classes) if gold is not None else np.full(len(q), -1)
        if what == "mean" or (what == "ols" and positive is None and _are_numbers(result.classes)):
            if not _are_numbers(result.classes):
                raise ParameterError(f"mean: the classes are not numbers ({listing(result.classes, 3)}). Take 'share'.")
            values = result.classes.astype(np.float64)
            y = np.where(known >= 0, values[known], np.nan)
            return cls((None,), (q @ values)[:, None], y[:, None], False, np.zeros(1, dtype=np.int64))
        one = positive is not None or what in REGRESSIONS or (what == "difference" and len(result.classes) == 2)
        codes = np.array([positive_code(result.classes, positive)]) if one else np.arange(len(result.classes))
        y = np.where((known >= 0)[:, None], known[:, None] == codes, np.nan)
        return cls(tuple(result.classes[codes].tolist()), q[:, codes], y, True, codes)


def _are_numbers(classes: npt.NDArray[Any]) -> bool:
    return classes.dtype.kind in "if"


def _probabilities(given: Any, result: Any, target: _Target) -> Floats | None:
    """N: with which probability each item was drawn for gold (NaN: not said); ``None``: at random, which is checked."""
    known = target.known
    if given is None:
        if known.any():
            score = result.corrected_posterior.max(axis=1) if isinstance(result, Consensus) else result.values
            try:
                check_random(score, known)
            except InputError as error:
                raise InputError(
                    f"{error} Where the probabilities of the draw are known, give them: probability."
                ) from None
        return None
    if not known.any():
        raise ParameterError("probability: there are no gold labels that were drawn with it.")
    p = encode_numbers(given, result.items)
    if not ((p[known] > 0.0) & (p[known] <= 1.0)).all():
        raise InputError("probability: every gold item needs the probability of being drawn, above 0 and at most 1.")
    q, whole = p[known], bool(np.isfinite(p).all())
    if whole:
        what, found, expected, sd = "gold items", len(q), float(p.sum()), float(np.sqrt((p * (1.0 - p)).sum())) + 1.0
    else:
        what, found, expected = "items", len(p), float((1.0 / q).sum())
        sd = float(np.sqrt(((1.0 - q) / q**2).sum()) + 1.0 / q.min())
    if abs(found - expected) > FAR * sd:
        raise InputError(
            f"probability: by these probabilities there would be about {expected:,.0f} {what}, not {found:,}. Give "
            " the probability with which each item was drawn: n / N where n of N were drawn at random."
        )
    return p


def _parts(target: _Target, groups: Groups | None) -> list[tuple[Any, npt.NDArray[np.bool_]]]:
    if groups is None:
        return [(None, np.ones(len(target.f), dtype=bool))]
    return [(name, groups.code == g) for g, name in enumerate(groups.names.tolist())]


def _by_gold(target: _Target, groups: Groups | None, p: Floats | None, beyond: bool, level: float) -> list[Row]:
    known, parts = target.known, _parts(target, groups)
    rows = []
    used = known if groups is None else known & (groups.code >= 0)
    w = np.ones(int(used.sum())) if p is None else 1.0 / p[used]
    for k, name in enumerate(target.names):
        y, f = target.y[:, k], target.f[:, k]
        slope = None if groups is None else slope_of(y[used], f[used], w, groups.code[used])
        for group, inside in parts:
            drawn = inside & known
            chances = None if p is None else p[drawn]
            found = figure(
                y[drawn], f[drawn], f[inside], chances, share=target.share, beyond=beyond, level=level, slope=slope
            )
            rows.append(Row(found, group, None, name))
    return rows


def _by_model(target: _Target, groups: Groups | None, level: float) -> list[Row]:
    rows = []
    for k, name in enumerate(target.names):
        for group, inside in _parts(target, groups):
            mean = float(target.f[inside, k].mean())
            none, own = (Estimate(value, np.nan, np.nan, 0, level) for value in (np.nan, mean))
            rows.append(Row(Rectified(own, none, mean, 1.0, int(inside.sum())), group, None, name))
    return rows


def _by_error_rates(result: Any, target: _Target, errors: Any, groups: Groups | None, level: float) -> list[Row]:
    if not isinstance(result, Consensus) or not target.share:
        raise ParameterError("error_rates: only shares of classes can be corrected by them.")
    K = len(result.classes)
    table = np.asarray(errors, dtype=np.float64)
    if table.shape != (K, K) or not np.isfinite(table).all() or (table < 0).any() or (table.sum(axis=1) <= 0).any():
        raise ParameterError(
            f"error_rates: expected {K} x {K} numbers, a row for each true class ({listing(result.classes)}) and a "
            "column for each label: counts, or rates of sum 1."
        )
    rates = table / table.sum(axis=1, keepdims=True)
    if np.linalg.cond(rates) > 1e6:
        raise InputError("error_rates: labels that do not depend on the truth say nothing of it.")
    rows = []
    for group, inside in _parts(target, groups):
        counts = np.bincount(result.label_codes[inside], minlength=K).astype(np.float64)
        found = inverted(counts, table, level)
        none = Estimate(np.nan, np.nan, np.nan, 0, level)
        for name, k in zip(target.names, target.codes.tolist(), strict=True):
            rows.append(
                Row(Rectified(found[k], none, counts[k] / counts.sum(), 1.0, int(counts.sum())), group, None, name)
            )
    return rows


def _differences(rows: Sequence[Row]) -> list[Row]:
    """Each pair of groups, by class."""
    out = []
    for of in dict.fromkeys(row.of for row in rows):
        for a, b in combinations([row for row in rows if row.of == of], 2):
            made = Rectified(
                difference(a.figure.estimate, b.figure.estimate), difference(a.figure.gold, b.figure.gold),
                a.figure.model - b.figure.model, (a.figure.weight + b.figure.weight) / 2.0,
                a.figure.items + b.figure.items,
            )  # fmt: skip
            out.append(Row(made, a.group, b.group, of))
    return out


def _design(covariates: Any, items: npt.NDArray[Any]) -> tuple[list[str], Floats]:
    """Names and columns, an intercept first; those that are not numbers become one column per value but the first."""
    if not isinstance(covariates, Mapping) or not covariates:
        raise ParameterError("covariates: expected a mapping from name to values: one per item, or a mapping of items.")
    names, columns = [INTERCEPT], [np.ones(len(items))]
    for name, given in covariates.items():
        values = [given.get(item) for item in items.tolist()] if isinstance(given, Mapping) else list(given)
        if len(values) != len(items) or any(value is None or value != value for value in values):
            raise InputError(f"covariates: {name!r} must have a value for each of the {len(items):,} items.")
        array = np.array(values)
        if array.dtype.kind in "bif":
            names.append(str(name))
            columns.append(array.astype(np.float64))
            continue
        levels = sorted({str(value) for value in values})
        if len(levels) > max(2, len(items) // 10):
            raise InputError(f"covariates: {name!r} has {len(levels):,} different values that are not numbers.")
        names += [f"{name}={one}" for one in levels[1:]]
        columns += [(array.astype(str) == one).astype(np.float64) for one in levels[1:]]
    X = np.column_stack(columns)
    if np.linalg.matrix_rank(X) < X.shape[1]:
        raise InputError("covariates: some are combinations of others (or constant). Leave them out.")
    return names, X


def _regression(
    what: str, target: _Target, design: tuple[list[str], Floats], p: Floats | None, level: float
) -> list[Row]:
    names, X = design
    known = target.known
    y, f = target.y[:, 0], target.f[:, 0]
    n, d = int(known.sum()), X.shape[1]
    if n < d + 2 or np.linalg.matrix_rank(X[known]) < d:
        raise InputError(f"{what}: {n} gold labels are too few for {d} coefficients.")
    if known.all():
        raise InputError(f"{what}: all items have gold labels. Regress these, there is nothing to predict.")
    if p is not None and not np.isfinite(p).all():
        raise InputError(f"{what}: probability must be given for all items, those without gold labels as well.")
    w = (None, None) if p is None else (1.0 / p[known], 1.0 / np.maximum(1.0 - p[~known], 1e-9))
    gold, others = Sample.of(X[known], f[known], w[0]), Sample.of(X[~known], f[~known], w[1])
    solve = REGRESSIONS[what]
    found, alone, model = solve(y[known], gold, others), solve(y[known], gold, others, 0.0), None
    model = solve(f, Sample.of(X, f), Sample.of(X, f), 0.0).value
    reach = float(quantile(level, np.array(float(n - d))))
    rows = []
    for j, name in enumerate(names):
        ends = [
            Estimate(v, v - reach * s, v + reach * s, n, level)
            for v, s in ((float(c.value[j]), float(np.sqrt(c.covariance[j, j]))) for c in (found, alone))
        ]
        rows.append(Row(Rectified(ends[0], ends[1], float(model[j]), found.weight, len(f)), None, None, name))
    return rows
