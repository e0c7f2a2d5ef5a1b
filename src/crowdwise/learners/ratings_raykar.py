"""Learning a regression from crowds: a data model and a precision for each annotator, by expectation and maximisation.

The number of an item depends on its features through a data model f (linear, or any regressor of scikit-learn's), and
annotator m reports it with noise of precision p[m]:

    z[n] ~ N(f(x_n), g)           rating of m ~ N(z[n], 1 / p[m])

=============  ===============  =====  ==========================================================================
symbol         code             shape  equation
=============  ===============  =====  ==========================================================================
z[n], v[n]     ``z``, ``v``     N      1/v = 1/g + sum w p;  z = v (f/g + sum w p x)
y[n], P[n]     ``pooled``       N      sum w p x / P, P = sum w p: what the ratings say, of variance 1 / P
f              ``model_``              weighted least squares of y on x, weights 1 / (g + 1 / P), ridge prior
p[m]           ``precision``    M      (n[m] + 2 a) / (sum w ((x - z)^2 + v) + 2 b), a = 1, b = 1/2 in standard units
g              ``gap_``         1      mean of (z - f)^2 + v
=============  ===============  =====  ==========================================================================

f maximises the likelihood with z integrated out; p and g are EM's. With the linear model every step raises

    sum_n log N(y[n]; f, g + 1 / P[n]) + [ratings around y[n]] + log priors of p and of the weights of f,

which is the trace. Where z is left out of the model and each rating is Normal around f by itself, this is the paper's
algorithm; with z two ratings of one item count as two looks at the same number.

When it fails: annotators with a bias (``crowd-regression`` has them); a regressor that fits everything (a full-grown
tree): then g becomes 0 and the ratings confirm what was fitted to them.

Reference: V. C. Raykar et al., Learning from crowds, Journal of Machine Learning Research 11 (2010), section 5.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone

from crowdwise.core.checks import check_count, check_flag, check_number
from crowdwise.core.estimates import Estimates
from crowdwise.core.loop import Callback, Progress
from crowdwise.core.numerics import Floats
from crowdwise.data.ratings import Ratings
from crowdwise.errors import ConvergenceWarning, InputError, OutputError, ParameterError
from crowdwise.learners.inputs import as_inputs
from crowdwise.learners.learner import UnfittedError
from crowdwise.learners.ratings_network import combine
from crowdwise.learners.saving import read_arrays, write_arrays
from crowdwise.learners.tabular_models import takes_weights
from crowdwise.learners.targets import as_ratings, check_pair, in_codes_of

LEAST = 1e-6
PRIOR = 1.0


class Line:
    """Ridge regression with weights; the intercept is free."""

    def __init__(self, ridge: float) -> None:
        self.ridge = ridge
        self.coef: Floats = np.zeros(1)

    def fit(self, x: Floats, y: Floats, weight: Floats) -> None:
        one = np.column_stack([x, np.ones(len(x))])
        A = (one * weight[:, None]).T @ one
        A[np.arange(x.shape[1]), np.arange(x.shape[1])] += self.ridge
        A[-1, -1] += 1e-9
        self.coef = np.asarray(np.linalg.solve(A, (one * weight[:, None]).T @ y))

    def predict(self, x: Floats) -> Floats:
        return np.asarray(x @ self.coef[:-1] + self.coef[-1])

    def log_prior(self) -> float:
        return -0.5 * self.ridge * float((self.coef[:-1] ** 2).sum()) - 0.5e-9 * float(self.coef[-1] ** 2)


class Foreign:
    """A regressor of scikit-learn's make: a copy of it is trained anew at every fit."""

    def __init__(self, regressor: Any, seed: int | None) -> None:
        self.regressor, self.seed = regressor, seed
        self.weights = takes_weights(regressor)
        self.fitted: Any = None

    def fit(self, x: Floats, y: Floats, weight: Floats) -> None:
        fresh = clone(self.regressor)
        if (
            self.seed is not None
            and "random_state" in fresh.get_params()
            and fresh.get_params()["random_state"] is None
        ):
            fresh.set_params(random_state=self.seed)
        self.fitted = fresh.fit(x, y, **({} if self.weights is None else {self.weights: weight}))

    def predict(self, x: Floats) -> Floats:
        return np.asarray(self.fitted.predict(x), dtype=np.float64).ravel()

    def log_prior(self) -> float:
        return 0.0


@dataclass(kw_only=True, eq=False, repr=False)
class RaykarRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A linear model (or any regressor) and precisions of annotators learned together, by EM.

    Parameters
    ----------
    regressor
        ``"linear"``: ridge regression; or a regressor of scikit-learn's make, copied before training.
    spread
        Of ``"linear"``: the deviation of its predictions before anything is learned, in units of the ratings' (a larger
        one fits more freely).
    scale
        Bring inputs to mean 0 and deviation 1 first.
    max_iter, tol
        Stop after so many rounds, or when the objective gains less than ``tol`` per rating.
    random_state
        Seed of the regressor, where it takes one.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(300, n_annotators=10, bias=0.0, features=5, votes_per_item=2, random_state=0)
    >>> model = RaykarRegression().fit(crowd.features["x_train"], crowd.ratings)
    >>> model.consensus_.score(crowd.truth) > cw.aggregate(crowd.ratings, "gaussian").score(crowd.truth)
    True
    """

    key: ClassVar[str] = "raykar-regression"
    table: ClassVar[type] = Ratings

    regressor: Any = "linear"
    spread: float = 1.0
    scale: bool = True
    max_iter: int = 200
    tol: float = 1e-6
    random_state: int | None = None

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The names of the parameters and their defaults."""
        return {f.name: f.default for f in fields(cls)}

    def fit(self, X: Any, y: Any, *, callback: Callback | None = None) -> Self:
        """Learn from one row of features per item, and ratings (or an N x M array with NaN, or N numbers)."""
        began = time.perf_counter()
        self._check_parameters()
        ratings = as_ratings(y)
        x = self._features(X, first=True)
        check_pair(x, ratings)
        centre = float(np.average(ratings.value, weights=ratings.weights))
        unit = float(np.sqrt(np.average((ratings.value - centre) ** 2, weights=ratings.weights))) or 1.0
        self.unit_ = (centre, unit)
        found = self._climb(x, ratings, (ratings.value - centre) / unit, callback)
        z, v, p, f, gap, trace, converged = found
        if not converged:
            warnings.warn(
                f"{self.key} stopped after {len(trace)} rounds before it settled: raise max_iter, or tol if that is "
                "close enough.",
                ConvergenceWarning,
                stacklevel=2,
            )
        n = np.bincount(ratings.annotator, weights=ratings.weights, minlength=ratings.n_annotators)
        self.annotators_, self.precision_, self.gap_ = ratings.annotators, p / unit**2, gap * unit**2
        share = np.bincount(ratings.annotator, weights=v[ratings.item], minlength=len(p)) / np.maximum(n, 1.0)
        free = n * (1.0 - np.clip(p * share, 0.0, 1.0)) ** 2
        self.consensus_: Estimates = Estimates.of(
            self, ratings, seconds=time.perf_counter() - began,
            values=centre + unit * z, deviations=unit * np.sqrt(v), precision=self.precision_,
            precision_shape=PRIOR + free / 2.0, mean=centre + unit * float(z.mean()), spread=unit * float(z.std()),
            centre=centre, trace=np.array(trace) - ratings.weights.sum() * np.log(unit), iterations=len(trace),
            converged=converged, item_columns={"predicted": centre + unit * f},
        )  # fmt: skip
        return self

    def _climb(self, x: Floats, ratings: Ratings, y: Floats, callback: Callback | None) -> tuple[Any, ...]:
        N, M, m, n, w = len(ratings), ratings.n_annotators, ratings.annotator, ratings.item, ratings.weights
        total = float(w.sum())
        count = np.bincount(m, weights=w, minlength=M)
        model = self.model_ = (
            Line(x.shape[1] / self.spread**2)
            if isinstance(self.regressor, str)
            else Foreign(self.regressor, self.random_state)
        )  # fmt: skip
        b = 0.5 * PRIOR
        p, gap = np.full(M, 2.0), 0.5
        used = np.diff(ratings.indptr) > 0
        trace: list[float] = []
        converged = False
        for done in range(1, self.max_iter + 1):
            P = np.bincount(n, weights=w * p[m], minlength=N)
            pooled = np.bincount(n, weights=w * p[m] * y, minlength=N) / np.maximum(P, LEAST)
            weight = 1.0 / (gap + 1.0 / np.maximum(P, LEAST))
            model.fit(x[used], pooled[used], weight[used])
            f = model.predict(x)
            v = 1.0 / (1.0 / gap + P)
            z = v * (f / gap + P * pooled)
            # The likelihood with z integrated out: ratings around their pooled value, and that around f.
            inside = 0.5 * float((w * (np.log(p[m]) - np.log(2.0 * np.pi))).sum())
            inside -= 0.5 * float((w * p[m] * (y - pooled[n]) ** 2).sum())
            outside = 0.5 * float((np.log(v / gap) - weight * (pooled - f) ** 2)[used].sum())
            prior = float((PRIOR * np.log(p) - b * p).sum()) + model.log_prior()
            trace.append(inside + outside + prior)
            gain = (trace[-1] - trace[-2]) / total if done > 1 else np.inf
            if callback is not None:
                callback(Progress(done, self.max_iter, trace[-1], float(gain)))
            if abs(gain) < self.tol or (not isinstance(model, Line) and done > 1 and abs(gain) < 1e-3):
                converged = True
                break
            square = np.bincount(m, weights=w * ((y - z[n]) ** 2 + v[n]), minlength=M)
            p = (count + 2.0 * PRIOR) / (square + 2.0 * b)
            gap = max(float(((z - f) ** 2 + v)[used].mean()), LEAST)
        return z, v, p, f, gap, trace, converged or not isinstance(model, Line)

    def predict(self, X: Any, ratings: Ratings | None = None) -> Floats:
        """The number of each input; with ``ratings``, from features and ratings together."""
        self._fitted()
        x = self._features(X)
        f = self.unit_[0] + self.unit_[1] * self.model_.predict(x)
        if ratings is None:
            return np.asarray(f)
        check_pair(x, ratings)
        M = len(self.precision_)
        known = in_codes_of(ratings, self.annotators_)
        return combine(known, f, np.ones(M), np.zeros(M), self.precision_, self.gap_)[0]

    def _features(self, X: Any, first: bool = False) -> Floats:
        inputs = as_inputs(X)
        if len(inputs.shape) != 1:
            raise InputError(
                f"{self.key} takes one row of features per item, and found inputs of shape {inputs.shape}."
            )
        x = inputs.rows(np.arange(len(inputs))).double().numpy()
        if first:
            self.n_features_in_ = x.shape[1]
            deviation = x.std(axis=0)
            self.scale_ = (
                (x.mean(axis=0), np.where(deviation > 1e-9, deviation, 1.0))
                if self.scale
                else (np.zeros(1), np.ones(1))
            )
        if x.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input."
            )
        return np.asarray((x - self.scale_[0]) / self.scale_[1])

    def _fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise UnfittedError(f"This {type(self).__name__} has not been fitted: call fit(X, ratings) first.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_parameters(self) -> None:
        if isinstance(self.regressor, str):
            if self.regressor != "linear":
                raise ParameterError(
                    f"regressor={self.regressor!r}: expected 'linear' or a regressor of scikit-learn's."
                )
        elif not (hasattr(self.regressor, "fit") and hasattr(self.regressor, "predict")):
            raise ParameterError(f"regressor={self.regressor!r}: expected 'linear', or something with fit and predict.")
        check_number(self, "spread", above=0.0)
        check_flag(self, "scale")
        check_count(self, "max_iter")
        check_number(self, "tol", least=0.0)
        if self.random_state is not None and not (
            isinstance(self.random_state, (int, np.integer)) and self.random_state >= 0
        ):
            raise ParameterError(f"random_state={self.random_state!r}: expected a non-negative integer or None.")

    # ---------------------------------------------------------------- keeping it

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the learner to a folder (JSON, numpy arrays and its estimates), all or nothing."""
        self._fitted()
        if not isinstance(self.model_, Line):
            raise OutputError(
                f"A {type(self.regressor).__name__} cannot be written without pickle, which runs code when read: "
                "use regressor='linear', or keep the fitted regressor (learner.model_.fitted) by your own means."
            )
        arrays = {"coef": self.model_.coef, "mean": self.scale_[0], "deviation": self.scale_[1]}
        arrays["precision"] = self.precision_
        return write_arrays(folder, self, arrays, unit=list(self.unit_), gap=self.gap_, features=self.n_features_in_)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, network: Any = None, device: str = "auto") -> Self:
        """Read what :meth:`save` wrote. There is no network to hand over; ``device`` makes no difference here."""
        folder = Path(folder)
        facts, arrays = read_arrays(folder, cls.key, network)
        learner = cls(**facts["params"])
        learner.consensus_ = Estimates.load(folder / "consensus")
        learner.annotators_ = learner.consensus_.annotator_names
        learner.unit_, learner.gap_ = (facts["unit"][0], facts["unit"][1]), facts["gap"]
        learner.n_features_in_ = facts["features"]
        learner.precision_, learner.scale_ = arrays["precision"], (arrays["mean"], arrays["deviation"])
        line = learner.model_ = Line(learner.n_features_in_ / learner.spread**2)
        line.coef = arrays["coef"]
        return learner
