"""Regressors from inputs and ratings (references: docs/answers-ratings.md).

``raykar-regression``: a data model and a precision for each annotator, by expectation and maximisation. The number of
an item depends on its features through a data model f (linear, or any regressor of scikit-learn's), and annotator m
reports it with noise of precision p[m]:

    z[n] ~ N(f(x_n), g)           rating of m ~ N(z[n], 1 / p[m])

=============  ===============  =====  ==========================================================================
symbol         code             shape  equation
=============  ===============  =====  ==========================================================================
z[n], v[n]     ``z``, ``v``     N      1/v = 1/g + sum w p;  z = v (f/g + sum w p x)
y[n], P[n]     ``pooled``       N      sum w p x / P, P = sum w p: the ratings pooled, with variance 1 / P
f              ``model_``              weighted least squares of y on x, weights 1 / (g + 1 / P), ridge prior
p[m]           ``precision``    M      (n[m] + 2 a) / (sum w ((x - z)^2 + v) + 2 b), a = 1, b = 1/2 in standard units
g              ``gap_``         1      mean of (z - f)^2 + v
=============  ===============  =====  ==========================================================================

f maximises the likelihood with z integrated out; p and g are EM's. With the linear model every step raises the trace,

    sum_n log N(y[n]; f, g + 1 / P[n]) + [ratings around y[n]] + log priors of p and of the weights of f.

Where z is left out of the model and each rating is Normal around f by itself, this is the paper's algorithm; with z two
ratings of one item count as two measurements of the same number.

``crowd-regression``: the network f predicts the number of an input; annotator m's rating follows from it by a layer of
their own, s[m] f(x) (``"S"``), f(x) + b[m] (``"B"``), s[m] f(x) + b[m] (``"S+B"``) or s[m] (f(x) + b[m]) (``"B+S"``).
All are trained together on the squared error of the ratings (``noise="equal"``), or on their Normal likelihood with a
precision for each annotator (``noise="own"``). Afterwards f and the layers are re-centred together, which changes no
prediction of a rating: the mean bias over annotators is 0 and the mean scale 1 (of the parameters that a layer has).

=================  ===============  =====  =============================================================================
symbol             code             shape  equation
=================  ===============  =====  =============================================================================
a[m], o[m]         slope, offset    M      a rating is a f(x) + o: what the layer comes to
p[m]               ``precision``    M      1 / mean squared residual (one residual of the crowd's added)
g                  ``gap``          1      variance of the truth around f, from residuals of one item that agree
z[n]               ``values``       N      (f / g + sum p a (x - o)) / (1 / g + sum p a^2): from input and ratings
=================  ===============  =====  =============================================================================
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import RegressorMixin
from torch import Tensor, nn

from crowdwise.core.constraints import Check, Count, NonNegative, Positive, declared
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.result import Estimates, Result
from crowdwise.data import encoding
from crowdwise.data.ratings import Ratings
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, OutputError
from crowdwise.learners.devices import as_array, as_tensors
from crowdwise.learners.estimator import Estimator
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import CONSTANT, Inputs
from crowdwise.learners.named_inputs import answers_in, one_each
from crowdwise.learners.network_estimator import NetworkEstimator
from crowdwise.learners.tabular import fitted_copy, unwritable
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training_settings import Callback, EpochRounds
from crowdwise.learners.vote_edges import Batch


def as_ratings(y: Any) -> Ratings:
    """Ratings from ratings, a data frame, an items x annotators array, or one number per item."""
    table: Ratings | None = y if isinstance(y, Ratings) else answers_in(y, Ratings, "value")
    if table is not None:
        return table
    if y is None:
        raise InputError("fit requires y to be passed, but the target y is None: give the ratings of the rows of X.")
    rows, items = one_each(y)
    try:
        numbers = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"Expected ratings and found {type(y).__name__}: give Ratings or numbers.") from None
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1:
        return Ratings.from_dense(numbers, items=items)
    if not np.isfinite(numbers).all():
        raise InputError("The numbers hold NaN or infinity: leave those rows out.")
    return Ratings.from_dense(numbers[:, None], annotators=["values"], items=items)


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

    def predict(self, X: Any, ratings: Ratings | None = None, *, items: Any = None) -> Floats:
        """The number of each input; with ``ratings``, from inputs and ratings together.

        Ratings are found by the names of rows, which ``items`` are where X does not hold them.
        """
        self._fitted()
        if ratings is None:
            return self._values(self._new_inputs(X))
        inputs, place = self._with_answers(X, ratings, items)
        f = self._values(inputs)
        return np.asarray(combine(in_codes_of(ratings, self.annotators_), f, *self._lines(), self.gap_)[0][place])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, items: Any = None) -> float:
        """R^2 for true numbers; those in a mapping or in a Series with an index are found by the names of the rows."""
        from sklearn.metrics import r2_score

        self._fitted()
        predicted, true, weight = self._paired(X, y, sample_weight, items)
        return float(r2_score(true, predicted, sample_weight=weight))


LEAST = 1e-6
PRIOR = 1.0


class Ridge:
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


class SklearnRegressor:
    """A regressor of scikit-learn's: every fit trains a new copy of it."""

    fitted: Any = None

    def __init__(self, regressor: Any, seed: int) -> None:
        self.regressor, self.seed = regressor, seed

    def fit(self, x: Floats, y: Floats, weight: Floats) -> None:
        self.fitted = fitted_copy(self.regressor, self.seed, x, y, weight)

    def predict(self, x: Floats) -> Floats:
        return np.asarray(self.fitted.predict(x), dtype=np.float64).ravel()

    def log_prior(self) -> float:
        return 0.0


Regressor = Annotated[
    Any, Check(lambda value: hasattr(value, "fit") and hasattr(value, "predict"), "an object with fit and predict")
]


@declared
class RaykarRegression(RatingsRegressor):
    """A linear model (or any regressor) and precisions of annotators learned together, by EM.

    Parameters
    ----------
    regressor
        ``"linear"``: ridge regression; or a regressor of scikit-learn's, copied before training.
    spread
        Of ``"linear"``: the prior standard deviation of its predictions, in units of the ratings' (a larger one fits
        more freely).
    max_iter, tol
        Stop after so many rounds, or when the objective gains less than ``tol`` per rating.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(300, n_annotators=10, bias=0.0, n_features=5, votes_per_item=2, random_state=0)
    >>> model = RaykarRegression().fit(crowd.features["x_train"], crowd.ratings)
    >>> model.consensus_.score(crowd.truth) > cw.aggregate(crowd.ratings, "gaussian").score(crowd.truth)
    True
    """

    key: ClassVar[str] = "raykar-regression"
    saved: ClassVar[tuple[str, ...]] = ("unit_", "gap_")

    regressor: Literal["linear"] | Regressor = "linear"
    spread: Positive = 1.0
    max_iter: Count = 200
    tol: NonNegative = 1e-6
    model_: Ridge | SklearnRegressor = field(init=False)
    precision_: Floats = field(init=False)
    unit_: tuple[float, float] = field(init=False)
    """Mean and standard deviation of the ratings."""

    def _learn(self, inputs: Inputs, answers: Ratings, gold: Ints | None, callback: Callback | None) -> Any:
        if len(inputs.shape) != 1:
            raise InputError(f"{self.key} takes one row of features per item, not inputs of shape {inputs.shape}.")
        x = rows_of(inputs)
        mean, deviation = (x.mean(axis=0), x.std(axis=0)) if self.scale else (np.zeros(1), np.ones(1))
        self.scale_ = mean, np.where(deviation > CONSTANT * np.abs(mean), deviation, 1.0)
        self.unit_ = centre, unit = standard_unit(answers)
        return self._run_em(self._scaled(x), answers, (answers.value - centre) / unit, callback)

    def _run_em(self, x: Floats, ratings: Ratings, y: Floats, callback: Callback | None) -> Any:
        """z, v, p, f, g in standard units, and the rounds."""
        N, M, m, n, w = len(ratings.items), ratings.n_annotators, ratings.annotator, ratings.item, ratings.weights
        count = np.bincount(m, weights=w, minlength=M)
        linear = isinstance(self.regressor, str)
        ridge = x.shape[1] / self.spread**2
        model = self.model_ = Ridge(ridge) if linear else SklearnRegressor(self.regressor, self.seed_)
        b, p, gap = 0.5 * PRIOR, np.full(M, 2.0), 0.5
        used = np.diff(ratings.indptr) > 0
        rounds = EpochRounds(self.max_iter, float(w.sum()), self.history_, callback)
        for _ in rounds:
            P = np.bincount(n, weights=w * p[m], minlength=N)
            pooled = np.bincount(n, weights=w * p[m] * y, minlength=N) / np.maximum(P, LEAST)
            weight = 1.0 / (gap + 1.0 / np.maximum(P, LEAST))
            model.fit(x[used], pooled[used], weight[used])
            f = model.predict(x)
            v = np.asarray(1.0 / (1.0 / gap + P), dtype=np.float64)
            z = v * (f / gap + P * pooled)
            # The likelihood with z integrated out: ratings around their pooled value, and that around f.
            inside = 0.5 * float((w * (np.log(p[m]) - np.log(2.0 * np.pi))).sum())
            inside -= 0.5 * float((w * p[m] * (y - pooled[n]) ** 2).sum())
            outside = 0.5 * float((np.log(v / gap) - weight * (pooled - f) ** 2)[used].sum())
            prior = float((PRIOR * np.log(p) - b * p).sum()) + model.log_prior()
            rounds.reached_within(inside + outside + prior, self.tol if linear else max(self.tol, 1e-3))
            if not rounds.converged:
                square = np.bincount(m, weights=w * ((y - z[n]) ** 2 + v[n]), minlength=M)
                p = (count + 2.0 * PRIOR) / (square + 2.0 * b)
                gap = max(float(((z - f) ** 2 + v)[used].mean()), LEAST)
        return z, v, p, f, gap, rounds

    def _result(self, learned: Any, answers: Ratings, gold: Ints | None, began: float) -> Estimates:
        z, v, p, f, gap, rounds = learned
        ratings, (centre, unit) = answers, self.unit_
        self.precision_, self.gap_ = p / unit**2, gap * unit**2
        n = np.bincount(ratings.annotator, weights=ratings.weights, minlength=ratings.n_annotators)
        explained = np.bincount(ratings.annotator, weights=ratings.weights * v[ratings.item], minlength=len(p))
        share = explained / np.maximum(n, 1.0)
        free = n * (1.0 - np.clip(p * share, 0.0, 1.0)) ** 2
        trace = np.array(rounds.trace) - ratings.weights.sum() * np.log(unit)
        converged = rounds.converged or not isinstance(self.model_, Ridge)
        return Estimates.of(
            self, ratings, seconds=time.perf_counter() - began, seed=self.seed_, values=centre + unit * z,
            deviations=unit * np.sqrt(v), precision=self.precision_, precision_shape=PRIOR + free / 2.0,
            mean=centre + unit * float(z.mean()), spread=unit * float(z.std()), centre=centre,
            item_columns={"predicted": centre + unit * f},
            **rounds.outcome | {"trace": trace, "converged": converged},
        )  # fmt: skip

    def _values(self, inputs: Inputs) -> Floats:
        return np.asarray(self.unit_[0] + self.unit_[1] * self.model_.predict(self._scaled(rows_of(inputs))))

    def _lines(self) -> tuple[Floats, Floats, Floats]:
        return np.ones_like(self.precision_), np.zeros_like(self.precision_), self.precision_

    def _scaled(self, x: Floats) -> Floats:
        return np.asarray((x - self.scale_[0]) / self.scale_[1])

    def _tensors(self) -> dict[str, Tensor]:
        if not isinstance(self.model_, Ridge):
            raise OutputError(unwritable(self.regressor, "regressor", "linear"))
        arrays = {"coef": self.model_.coef, "mean": self.scale_[0], "deviation": self.scale_[1]}
        return as_tensors(arrays | {"precision": self.precision_})

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        arrays = {name: as_array(tensor) for name, tensor in tensors.items()}
        self.precision_, self.scale_ = arrays["precision"], (arrays["mean"], arrays["deviation"])
        model = self.model_ = Ridge(self.n_features_in_ / self.spread**2)
        model.coef = arrays["coef"]


def rows_of(inputs: Inputs) -> Floats:
    """N x D features."""
    return np.asarray(inputs.rows(np.arange(len(inputs))).double().numpy())


class RatingHead(Head):
    """The layer of each annotator, and the loss."""

    def __init__(self, n_annotators: int, layer: str, own: bool) -> None:
        super().__init__(n_annotators, 1)
        self.layer, self.own = layer, own
        self.stretch = nn.Parameter(torch.ones(n_annotators), requires_grad="S" in layer)
        self.shift = nn.Parameter(torch.zeros(n_annotators), requires_grad="B" in layer)
        self.log_precision = nn.Parameter(torch.zeros(n_annotators), requires_grad=own)

    def lines(self) -> tuple[Tensor, Tensor]:
        """a and o of every annotator: a rating is a f + o."""
        return self.stretch, self.shift * self.stretch if self.layer == "B+S" else self.shift

    def misfit(self, batch: Batch) -> Tensor:
        """E: the squared error of each rating; with own precisions, twice minus its log density (up to a constant)."""
        slope, offset = self.lines()
        f = batch.logits[batch.row, 0]
        gap = batch.label - slope[batch.annotator] * f - offset[batch.annotator]
        if not self.own:
            return gap * gap
        log_p = self.log_precision[batch.annotator].clamp(-10.0, 10.0)
        return torch.exp(log_p) * gap * gap - log_p

    def loss(self, batch: Batch) -> Tensor:
        misfit = self.misfit(batch)
        return batch.mean(0.5 * misfit if self.own else misfit)

    def vote_log_probs(self, batch: Batch) -> Tensor:
        """E: the log density of each rating in standard units; the precision is 1 where it is not learned."""
        return -0.5 * (self.misfit(batch) + math.log(2.0 * math.pi))

    def slow_parameters(self) -> list[nn.Parameter]:
        """Scales: at the annotators' rate they would outrun the network while its outputs are small."""
        return [self.stretch]

    def predict_log_probs(self, batch: Batch) -> Tensor:
        """B x 1: the network's number (there are no probabilities here)."""
        return batch.logits

    def finish(self, log_f: Tensor, edges: Any) -> None:
        """Nothing is counted: the layers are the result."""


def residual_parts(ratings: Ratings, f: Floats, slope: Floats, offset: Floats) -> tuple[Floats, float]:
    """Precisions of annotators, and the variance of the truth around f: what residuals of one item have in common.

    The product of two residuals on an item, each over its slope, has the mean ``gap``; their squares have that and the
    noise.
    """
    m, n, w = ratings.annotator, ratings.item, ratings.weights
    N, M = len(ratings.items), ratings.n_annotators
    r = ratings.value - slope[m] * f[n] - offset[m]
    e = r / np.where(np.abs(slope[m]) > 0.1, slope[m], 1.0)
    total, square = np.bincount(n, weights=e, minlength=N), np.bincount(n, weights=e * e, minlength=N)
    count = np.bincount(n, minlength=N).astype(np.float64)
    pairs = float((count * (count - 1.0)).sum())
    whole = float((w * r * r).sum() / w.sum()) + 1e-12
    gap = float((total**2 - square).sum()) / pairs if pairs else 0.5 * whole
    gap = float(np.clip(gap, 1e-3 * whole, 0.95 * whole))
    each = np.bincount(m, weights=w * r * r, minlength=M)
    own = (each + whole) / (np.bincount(m, weights=w, minlength=M) + 1.0) - slope**2 * gap
    return 1.0 / np.maximum(own, 0.05 * whole), gap


@declared
class CrowdRegression(NetworkEstimator, RatingsRegressor):
    """A network for numbers, with a scale and a bias for each annotator.

    Parameters
    ----------
    layer
        ``"S"``, ``"B"``, ``"S+B"`` or ``"B+S"``: how an annotator's rating follows from the network's number.
    noise
        ``"equal"``: squared errors, as in the paper; ``"own"``: a precision for each annotator is learned as well.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(400, n_annotators=8, bias=1.0, n_features=5, votes_per_item=3, random_state=0)
    >>> model = CrowdRegression(network="linear", epochs=30, random_state=0)
    >>> model = model.fit(crowd.features["x_train"], crowd.ratings)
    >>> bool(np.corrcoef(model.consensus_.bias, crowd.parameters["bias"])[0, 1] > 0.9)
    True
    """

    key: ClassVar[str] = "crowd-regression"
    saved: ClassVar[tuple[str, ...]] = ("line_", "gap_")

    layer: Literal["S", "B", "S+B", "B+S"] = "B"
    noise: Literal["equal", "own"] = "equal"
    select: Literal["last", "votes"] = "last"
    line_: tuple[float, float] = field(init=False)
    """(a, b): the predicted number is a + b f."""

    def _head(self, votes: Votes, hidden: int) -> Head:
        return RatingHead(votes.n_annotators, self.layer, self.noise == "own")

    def _n_outputs(self, votes: Votes) -> int:
        return 1

    def _choices(self) -> Any:
        return [0]

    def _training_data(self, inputs: Inputs, answers: Ratings) -> tuple[Inputs, Ratings]:
        centre, unit = standard_unit(answers)
        return inputs, replace(answers, value=(answers.value - centre) / unit)

    def _result(self, trainer: Trainer, answers: Ratings, gold: Ints | None, began: float) -> Estimates:
        """Re-centre f and the layers together, back in the ratings' unit; then the estimates."""
        ratings, (centre, unit) = answers, standard_unit(answers)
        slope, offset = (as_array(t) for t in self._fitted_head.lines())
        voted = np.bincount(ratings.annotator, minlength=len(slope)) > 0
        stretch = float(slope[voted].mean()) if "S" in self.layer else 1.0
        stretch = stretch if abs(stretch) > 1e-3 else 1.0
        shift = float(offset[voted].mean()) if "B" in self.layer else 0.0
        # f' = stretch f + shift, in the unit of the ratings: centre + unit f'
        self.line_ = (centre + unit * shift, unit * stretch)
        slope = slope / stretch
        # x = centre + unit (a f + o), with f = (z - centre - unit shift) / (unit stretch)
        offset = centre + unit * offset - slope * (centre + unit * shift)
        f = self._values(trainer.inputs)
        precision, self.gap_ = residual_parts(ratings, f, slope, offset)
        z, var = combine(ratings, f, slope, offset, precision, self.gap_)
        n = np.bincount(ratings.annotator, weights=ratings.weights, minlength=len(slope))
        middle, more = float(np.mean(f)), self._trace()
        with np.errstate(divide="ignore"):
            sd = np.sqrt((1.0 / precision + slope**2 * self.gap_) / n)
        if "B" in self.layer:
            bias = offset + (slope - 1.0) * middle
            more |= {"bias": bias, "bias_sd": np.sqrt(sd**2 + np.var(bias) / len(bias))}
        if "S" in self.layer:
            more |= {"scale": slope, "scale_sd": sd / max(float(np.std(f)), 1e-9)}
        return Estimates.of(
            self, ratings, seconds=time.perf_counter() - began, seed=self.seed_, values=z, deviations=np.sqrt(var),
            precision=precision, precision_shape=np.maximum(n, 1.0) / 2.0, mean=middle, spread=float(np.std(z)),
            centre=middle, item_columns={"predicted": f}, annotator_columns={"slope": slope, "offset": offset}, **more,
        )  # fmt: skip

    def _values(self, inputs: Inputs) -> Floats:
        f = as_array(self._trainer.log_probs(inputs))[:, 0]
        return np.asarray(self.line_[0] + self.line_[1] * f)

    def _lines(self) -> tuple[Floats, Floats, Floats]:
        columns = self.consensus_.annotator_columns
        return columns["slope"], columns["offset"], self.consensus_.precision
