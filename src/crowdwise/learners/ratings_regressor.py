"""Regressors from inputs and ratings: ``fit(X, ratings)``, and ``predict`` from inputs, or from inputs and ratings."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from crowdwise.core.estimates import Estimates
from crowdwise.core.numerics import Floats
from crowdwise.core.parameters import declared
from crowdwise.core.result import Result
from crowdwise.data import encoding
from crowdwise.data.ratings import Ratings
from crowdwise.learners.estimator import Estimator
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.targets import as_ratings


def standard_unit(ratings: Ratings) -> tuple[float, float]:
    """The mean and the standard deviation of ratings (1 where all are the same)."""
    centre = float(np.average(ratings.value, weights=ratings.weights))
    unit = float(np.sqrt(np.average((ratings.value - centre) ** 2, weights=ratings.weights)))
    return centre, unit or 1.0


def combine(
    ratings: Ratings, f: Floats, slope: Floats, offset: Floats, precision: Floats, gap: float
) -> tuple[Floats, Floats]:
    """z and its variance, from the predictions (f, variance gap) and the ratings, each Normal around slope z + offset.

    Ratings of unseen annotators (codes past the last) have no weight.
    """
    N, m, w, x = len(ratings.items), ratings.annotator, ratings.weights, ratings.value
    known = m < len(slope)
    m = np.minimum(m, len(slope) - 1)
    information = np.where(known, w * precision[m] * slope[m] ** 2, 0.0)
    weighted = np.where(known, w * precision[m] * slope[m] * (x - offset[m]), 0.0)
    h = 1.0 / gap + np.bincount(ratings.item, weights=information, minlength=N).astype(np.float64)
    return np.asarray((f / gap + np.bincount(ratings.item, weights=weighted, minlength=N)) / h), np.asarray(1.0 / h)


def in_codes_of(ratings: Ratings, annotators: npt.NDArray[Any]) -> Ratings:
    """Ratings whose annotators have the codes of a fit; unseen annotators get the code after the last."""
    place = encoding.locate(ratings.annotators, annotators)
    place = np.where(place < 0, len(annotators), place).astype(np.int32)
    return replace(ratings, annotator=place[ratings.annotator])


@declared
class RatingsRegressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """The base of regressors from ratings. A subclass gives the numbers that it predicts and its annotators' lines."""

    table: ClassVar[type] = Ratings
    result: ClassVar[type[Result]] = Estimates
    gap_: float = field(init=False)
    """The variance of the truth around the prediction from inputs."""

    @abstractmethod
    def _values(self, inputs: Inputs) -> Floats:
        """N numbers from inputs alone."""

    @abstractmethod
    def _lines(self) -> tuple[Floats, Floats, Floats]:
        """Slope, offset and precision of every annotator."""

    def _answers(self, y: Any) -> Ratings:
        return as_ratings(y)

    def predict(self, X: Any, ratings: Ratings | None = None) -> Floats:
        """The number of each input; with ``ratings``, from inputs and ratings together."""
        self._fitted()
        f = self._values(self._new_inputs(X, ratings))
        if ratings is None:
            return f
        return combine(in_codes_of(ratings, self.annotators_), f, *self._lines(), self.gap_)[0]
