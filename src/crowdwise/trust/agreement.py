"""How much annotators agree beyond chance: the coefficients that suit some answers, each with a bootstrap interval.

Nothing here needs a complete table: items may have different numbers of answers, from different annotators. Which
coefficients there are for which answers is in ``answer_types``.

When it fails: chance-corrected coefficients fall when one class dominates, however good the annotators are. Agreement
is not accuracy: a crowd can agree on a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from crowdwise import registry
from crowdwise.core.constraints import checked
from crowdwise.data.dataset import Dataset
from crowdwise.data.table import Table
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.metrics.bootstrap import MIN_ITEMS, Estimate, Options
from crowdwise.trust.agreement_coefficients import Scale
from crowdwise.trust.result_tables import Tables
from crowdwise.trust.wording import percent

TITLES = {
    "percent": "Pairs of answers that agree",
    "fleiss kappa": "Fleiss’ kappa",
    "gwet ac1": "Gwet’s AC1",
    "gwet ac2": "Gwet’s AC2",
    "krippendorff alpha": "Krippendorff’s alpha",
    "cohen kappa": "Cohen’s kappa",
    "light kappa": "Light’s kappa: Cohen’s, averaged over pairs of annotators",
    "icc": "Intraclass correlation, one-way",
    "icc agreement": "Intraclass correlation, agreement",
    "icc consistency": "Intraclass correlation, consistency",
    "kendall tau": "Kendall’s tau, averaged over pairs of rankings",
    "jaccard": "Jaccard index, averaged over pairs of sets",
    "span f1": "F1 of spans, averaged over pairs of annotators",
    "likeness": "Likeness, averaged over pairs of texts",
}
"""What each coefficient is called on a page."""
STRENGTHS = ((0.0, "poor"), (0.2, "slight"), (0.4, "fair"), (0.6, "moderate"), (0.8, "substantial"))
"""Landis and Koch's words for coefficients up to each value; above, "almost perfect"."""
UNCORRECTED = ("percent", "jaccard", "span f1", "likeness", "dice")
"""Coefficients in which chance has a part: they have no such word."""


@dataclass(frozen=True, repr=False)
class Agreement(Tables):
    """Several coefficients of the same answers, by name."""

    TABLES = ("coefficients",)
    answer_type: str
    estimates: dict[str, Estimate]
    unit: str = "items"
    """What intervals are over, and what ``n`` counts."""
    kind: str = "polars"

    def __getitem__(self, name: str) -> Estimate:
        return self.estimates[name]

    @property
    def summary(self) -> str:
        """One sentence: the coefficient to report, its interval, and the usual word for it."""
        usual = ("krippendorff alpha", "kendall tau")
        name = next((name for name in usual if name in self.estimates), next(iter(self.estimates)))
        e = self.estimates[name]
        if not np.isfinite(e.value):
            return f"{name.capitalize()} does not exist: one class alone was used on {self._counted(e.n)}."
        if e.too_few:
            return f"{name.capitalize()} is {e.value:.3f} on {self._counted(e.n)}, too few to say more."
        word = strength(name, e)
        return f"{name.capitalize()} is {e.value:.3f} ({e.interval()}, {e.n:,} {self.unit}): {word} agreement."

    @property
    def notes(self) -> list[str]:
        """Sentences on the coefficients that have no interval: why, and what to do."""
        missing = {name: e for name, e in self.estimates.items() if np.isfinite(e.value) and not e.has_interval}
        out = []
        if few := {name: e.n for name, e in missing.items() if e.too_few}:
            shared = self.unit if self.unit == "rankings" else f"{self.unit} with two answers or more"
            there = f"there is {n}" if (n := max(few.values())) == 1 else f"there are {n}"
            out.append(
                f"{self._without(few)}: it takes {MIN_ITEMS} {shared}, and {there}. "
                f"Collect more; until then values describe these {self.unit} alone."
            )
        if alike := [name for name, e in missing.items() if not e.too_few]:
            n = min(missing[name].n for name in alike)
            out.append(
                f"{self._without(alike)}: all {n:,} {self.unit} give the same value, and resampling shows no spread. "
                f"Up to {percent(3.0 / n, 1)} of others may still differ (3 / {n:,}, the rule of three)."
            )
        return out

    def _without(self, names: Iterable[str]) -> str:
        whole = set(names) == {name for name, e in self.estimates.items() if np.isfinite(e.value)}
        return "No confidence intervals" if whole else f"No confidence interval of {', '.join(names)}"

    def _counted(self, n: int) -> str:
        one = "pair of items" if self.unit == "pairs of items" else self.unit.removesuffix("s")
        return f"{n:,} {one if n == 1 else self.unit}"

    def __repr__(self) -> str:
        rows = [
            (name, f"{e.value:.3f}", e.interval().partition(" CI ")[2] if e.has_interval else "–")
            for name, e in self.estimates.items()
        ]
        first = next(iter(self.estimates.values()))
        rows = [(f"{self.answer_type}, {self._counted(first.n)}", "value", f"{100 * first.level:.6g}% CI"), *rows]
        wide = max(len(row[0]) for row in rows)
        return "\n".join(f"{name:<{wide}}  {value:>7}  {ends}" for name, value, ends in rows)

    def _columns(self, table: str) -> dict[str, Any]:
        found = list(self.estimates.values())
        return {
            "coefficient": np.array(list(self.estimates), dtype=object),
            **{name: np.array([getattr(e, name) for e in found]) for name in ("value", "low", "high", "n")},
        }


def strength(name: str, found: Estimate) -> str:
    """Landis and Koch's word for a coefficient; none for a percentage, in which chance has a part, nor of few items."""
    if name in UNCORRECTED or not np.isfinite(found.value) or found.too_few:
        return ""
    return next((word for top, word in STRENGTHS if found.value <= top), "almost perfect")


@checked
def agreement(answers: Any, *, scale: Scale | None = None, values: Any = None, **options: Unpack[Options]) -> Agreement:
    """How much annotators agree: all coefficients that suit the answers, with bootstrap intervals.

    A coefficient of fewer than 10 items has no interval (NaN), and ``notes`` of the result says so.

    Parameters
    ----------
    answers
        Votes (or a table that :meth:`~crowdwise.Votes.from_frame` takes, or a data set), or a table of other answers.
        Weights are refused.
    scale
        Of votes: ``"nominal"`` by default; ``"ordinal"`` for classes in order, ``"interval"`` or ``"ratio"`` for
        numbers.
    values
        A number for each class, as a sequence or a mapping; by default the classes themselves, where they are numbers.
    **options
        ``level``, ``resamples`` and ``random_state`` of the intervals: see
        :class:`~crowdwise.metrics.bootstrap.Bootstrap`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=9, n_classes=3, votes_per_item=4, random_state=0)
    >>> found = cw.agreement(crowd.votes)
    >>> found.to_frame()["coefficient"].to_list()
    ['percent', 'fleiss kappa', 'gwet ac1', 'krippendorff alpha', 'light kappa']
    """
    given: Any = answers.votes if isinstance(answers, Dataset) else answers
    table = given if isinstance(given, Table) else Votes.from_frame(given)
    name, rules = table.answer_type, registry.ANSWER_TYPES[table.answer_type].rules
    if rules.scale is None and (scale is not None or values is not None):
        raise ParameterError(f"scale and values are for votes, and these are {name}: leave them out.")
    return Agreement(name, rules.agreement(table, options, scale, values), rules.unit, table.kind)
