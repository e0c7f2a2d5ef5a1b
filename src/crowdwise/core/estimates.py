"""The result of a fit to ratings: a value with an interval for each item, and what was learned about the annotators.

What is known of an item is a Normal (or Student t) distribution, of an annotator's bias and scale a Normal, and of
their precision (1 / variance of the noise) a Gamma distribution. Intervals of any level follow from these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.intervals import gamma_interval, quantile
from crowdwise.core.numerics import Floats
from crowdwise.core.result import Result
from crowdwise.core.truth_scores import r_squared, some_known
from crowdwise.data.ratings import Ratings
from crowdwise.data.truth import encode_numbers


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Estimates(Result):
    """What a fit to ratings found out. Frozen; saves to and loads from a plain folder.

    The fields that all results have are those of :class:`~crowdwise.core.result.Result`.

    Attributes
    ----------
    values, deviations
        N: the estimated number of each item, and its standard deviation (in the order of ``item_names``).
    freedom
        N or ``None``: the degrees of freedom of the items' t distributions; ``None`` where they are Normal.
    bias, bias_sd, scale, scale_sd
        M or ``None``: an annotator says ``centre + bias + scale * (truth - centre)``, and the standard deviations.
    precision, precision_shape
        M or ``None``: 1 / variance of an annotator's noise, and the shape of its Gamma distribution.
    mean, spread, centre
        The mean and deviation of the true numbers over items; the number around which scales stretch.
    shared
        N or ``None``: the standard deviation of the error that all ratings on an item share, as far as it is assumed;
        ``deviations`` include it.
    share
        The weight of the model in the values, the rest being plain means of the ratings (methods with ``hedge``).
    """

    answer_type: str = "ratings"
    values: Floats
    deviations: Floats
    ratings_per_item: npt.NDArray[Any]
    ratings_per_annotator: npt.NDArray[Any]
    freedom: Floats | None = None
    shared: Floats | None = None
    bias: Floats | None = None
    bias_sd: Floats | None = None
    scale: Floats | None = None
    scale_sd: Floats | None = None
    precision: Floats | None = None
    precision_shape: Floats | None = None
    mean: float = float("nan")
    spread: float = float("nan")
    centre: float = 0.0
    share: float = 1.0
    log_likelihood: float | None = None
    annotator_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    item_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, answers: Ratings, **found: Any) -> Estimates:
        found["ratings_per_item"] = np.diff(answers.indptr)
        found["ratings_per_annotator"] = np.bincount(answers.annotator, minlength=answers.n_annotators)
        return super().of(model, answers, **found)

    def __repr__(self) -> str:
        unsure = float(self.deviations.mean()) if len(self.deviations) else float("nan")
        return (
            f"Estimates({self.method}: {len(self.item_names):,} items, {len(self.annotator_names):,} annotators; "
            f"mean deviation {unsure:.3g}, {self.iterations} iterations)"
        )

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """N low and N high ends: the true number of an item lies between them with probability ``level``."""
        self._check_table("items", level)
        reach = quantile(level, self.freedom) * self.deviations
        return self.values - reach, self.values + reach

    def score(self, truth: Any) -> float:
        """R^2, the share of the variance of known truth that the values explain.

        ``truth`` is a mapping from item to number, or N numbers with NaN for unknown. For errors in the unit of the
        ratings see :func:`crowdwise.metrics.mae` and :func:`crowdwise.metrics.rmse`.
        """
        true = self.truth_values(truth)
        known = some_known(~np.isnan(true))
        return r_squared(self.values[known], true[known])

    def truth_values(self, truth: Any) -> Floats:
        """N true numbers (NaN unknown) in the order of ``item_names``."""
        return encode_numbers(truth, self.item_names)

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table == "items":
            low, high = self.interval(level)
            return {
                "item": self.item_names, "value": self.values, "deviation": self.deviations, "low": low, "high": high,
                "ratings": self.ratings_per_item, **self.item_columns,
            }  # fmt: skip
        out: dict[str, Any] = {"annotator": self.annotator_names, "ratings": self.ratings_per_annotator}
        for name in ("bias", "scale"):
            value, sd = getattr(self, name), getattr(self, f"{name}_sd")
            if value is not None:
                reach = quantile(level) * sd
                out |= {name: value, f"{name}_low": value - reach, f"{name}_high": value + reach}
        if self.precision is not None and self.precision_shape is not None:
            low, high = gamma_interval(self.precision, self.precision_shape, level)
            out |= {"precision": self.precision, "precision_low": low, "precision_high": high}
            with np.errstate(divide="ignore"):
                noise = [1.0 / np.sqrt(p) for p in (self.precision, high, low)]
            out |= {"noise": noise[0], "noise_low": noise[1], "noise_high": noise[2]}
        return out | self.annotator_columns
