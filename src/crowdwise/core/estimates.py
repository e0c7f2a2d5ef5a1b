"""The result of a fit to numbers: a value with an interval for each item, and what was learned about everybody.

What is known of an item is a Normal (or Student t) distribution, of an annotator's bias and scale a Normal, and of
their precision (1 / variance of the noise) a Gamma distribution. Intervals of any level are read off these.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import RandomState, seed_of
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.result import Result
from crowdwise.data.ratings import Ratings, locate_truth
from crowdwise.errors import InputError

__all__ = ["Estimates"]


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(Result):
    """What a fit to ratings found out. Frozen; saves to and loads from a plain folder.

    Attributes
    ----------
    method, params, seed
        How it was made.
    values, deviations
        N: the estimated number of each item, and its standard deviation (in the order of ``item_names``).
    freedom
        N or ``None``: the degrees of freedom of the items' t distributions; ``None`` where they are Normal.
    bias, bias_sd, scale, scale_sd
        M or ``None``: an annotator says ``centre + bias + scale * (truth - centre)``, and how sure that is.
    precision, precision_shape
        M or ``None``: 1 / variance of an annotator's noise, and the shape of its Gamma distribution.
    mean, spread, centre
        The mean and deviation of the true numbers over items; the number around which scales stretch.
    share
        Of the model in the values, the rest being plain means of the ratings (methods with ``hedge``).
    items, annotators
        Tables, in the kind of dataframe the ratings came from (see :meth:`to_frame`).
    objective, trace, log_likelihood, iterations, converged, seconds
        How the fit went. ``trace`` is the objective after every accepted pass.
    """

    method: str
    params: dict[str, Any]
    item_names: npt.NDArray[Any]
    annotator_names: npt.NDArray[Any]
    values: Floats
    deviations: Floats
    ratings_per_item: Ints
    ratings_per_annotator: Ints
    freedom: Floats | None = None
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
    trace: Floats = field(default_factory=lambda: np.empty(0))
    iterations: int = 0
    converged: bool = True
    seconds: float = 0.0
    seed: int | None = None
    n_votes: int = 0
    annotator_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    item_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    kind: str = "polars"

    def __repr__(self) -> str:
        unsure = float(self.deviations.mean()) if len(self.deviations) else float("nan")
        return (
            f"Estimates({self.method}: {len(self.item_names):,} items, {len(self.annotator_names):,} annotators; "
            f"mean deviation {unsure:.3g}, {self.iterations} iterations)"
        )

    # ---------------------------------------------------------------- reading it

    @property
    def objective(self) -> float | None:
        """What was maximised, at the end; ``None`` for methods that maximise nothing."""
        return float(self.trace[-1]) if len(self.trace) else None

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """N low and N high ends: the true number of an item lies between them with probability ``level``."""
        self._check_table("items", level)
        reach = quantile(self.freedom, level) * self.deviations
        return self.values - reach, self.values + reach

    def score(self, truth: Any) -> dict[str, float]:
        """Mean absolute error and root mean square error against known truth.

        ``truth`` is a mapping from item to number, or N numbers with NaN for unknown. For bootstrap intervals see
        :func:`crowdwise.metrics.mae` and :func:`crowdwise.metrics.rmse`.
        """
        gap = self.values - self.truth_values(truth)
        gap = gap[~np.isnan(gap)]
        if len(gap) == 0:
            raise InputError("No item has a known truth: there is nothing to measure.")
        return {"mae": float(np.abs(gap).mean()), "rmse": float(np.sqrt((gap * gap).mean()))}

    def truth_values(self, truth: Any) -> Floats:
        """N true numbers (NaN unknown) in the order of ``item_names``."""
        return locate_truth(truth, self.item_names)

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
                reach = quantile(None, level) * sd
                out |= {name: value, f"{name}_low": value - reach, f"{name}_high": value + reach}
        if self.precision is not None and self.precision_shape is not None:
            low, high = gamma_interval(self.precision, self.precision_shape, level)
            out |= {"precision": self.precision, "precision_low": low, "precision_high": high}
            with np.errstate(divide="ignore"):
                noise = [1.0 / np.sqrt(p) for p in (self.precision, high, low)]
            out |= {"noise": noise[0], "noise_low": noise[1], "noise_high": noise[2]}
        return out | self.annotator_columns


def quantile(freedom: Floats | None, level: float) -> Any:
    """How many standard deviations hold the middle ``level`` of a Normal or t distribution (of that deviation)."""
    from scipy.special import ndtri, stdtrit

    if freedom is None:
        return float(ndtri((1.0 + level) / 2.0))
    return stdtrit(freedom, (1.0 + level) / 2.0)


def gamma_interval(mean: Floats, shape: Floats, level: float) -> tuple[Floats, Floats]:
    """The central interval of Gamma distributions with these means and shapes."""
    from scipy.special import gammaincinv

    tail = (1.0 - level) / 2.0
    low, high = (np.asarray(mean * gammaincinv(shape, p) / shape) for p in (tail, 1.0 - tail))
    return np.minimum(low, mean), np.maximum(high, mean)


def build_estimates(
    method: str, params: dict[str, Any], ratings: Ratings, *, began: float, seed: RandomState, **found: Any
) -> Estimates:
    """The result of a fit that began at ``began`` (of ``time.perf_counter``)."""
    return Estimates(
        method=method,
        params=params,
        item_names=ratings.items,
        annotator_names=ratings.annotators,
        ratings_per_item=np.diff(ratings.indptr),
        ratings_per_annotator=np.bincount(ratings.annotator, minlength=ratings.n_annotators),
        seconds=time.perf_counter() - began,
        seed=seed_of(seed),
        n_votes=ratings.n_ratings,
        kind=ratings.kind,
        **found,
    )
