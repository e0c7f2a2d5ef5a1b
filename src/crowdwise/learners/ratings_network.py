"""A network that learns numbers from ratings, with a scale and a bias for each annotator.

The network f predicts the number of an input; annotator m's rating follows from it by a layer of their own:

==========  ============================  ==================
``layer``   rating of m                   parameters each
==========  ============================  ==================
``"S"``     s[m] f(x)                     1
``"B"``     f(x) + b[m]                   1
``"S+B"``   s[m] f(x) + b[m]              2
``"B+S"``   s[m] (f(x) + b[m])            2
==========  ============================  ==================

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

Reference: F. Rodrigues and F. Pereira, Deep learning from crowds, AAAI (2018).
"""

from __future__ import annotations

import math
import time
from dataclasses import field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.parameters import declared
from crowdwise.core.result import Estimates
from crowdwise.data.ratings import Ratings
from crowdwise.data.votes import Votes
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.network_estimator import NetworkEstimator
from crowdwise.learners.ratings_regressor import RatingsRegressor, combine, standard_unit
from crowdwise.learners.tensors import as_array
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch


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

    def _result(self, found: Trainer, answers: Ratings, gold: Ints | None, began: float) -> Estimates:
        """Re-centre f and the layers together, back in the ratings' unit; then the estimates."""
        ratings, (centre, unit) = answers, standard_unit(answers)
        slope, offset = (as_array(t) for t in self._head_as(RatingHead).lines())
        voted = np.bincount(ratings.annotator, minlength=len(slope)) > 0
        stretch = float(slope[voted].mean()) if "S" in self.layer else 1.0
        stretch = stretch if abs(stretch) > 1e-3 else 1.0
        shift = float(offset[voted].mean()) if "B" in self.layer else 0.0
        # f' = stretch f + shift, in the unit of the ratings: centre + unit f'
        self.line_ = (centre + unit * shift, unit * stretch)
        slope = slope / stretch
        # x = centre + unit (a f + o), with f = (z - centre - unit shift) / (unit stretch)
        offset = centre + unit * offset - slope * (centre + unit * shift)
        f = self._values(found.inputs)
        precision, self.gap_ = residual_parts(ratings, f, slope, offset)
        z, var = combine(ratings, f, slope, offset, precision, self.gap_)
        n = np.bincount(ratings.annotator, weights=ratings.weights, minlength=len(slope))
        middle = float(np.mean(f))
        more: dict[str, Any] = {}
        noise = 1.0 / precision + slope**2 * self.gap_
        with np.errstate(divide="ignore"):
            sd = np.sqrt(noise / n)
        if "B" in self.layer:
            bias = offset + (slope - 1.0) * middle
            more |= {"bias": bias, "bias_sd": np.sqrt(sd**2 + np.var(bias) / len(bias))}
        if "S" in self.layer:
            more |= {"scale": slope, "scale_sd": sd / max(float(np.std(f)), 1e-9)}
        return Estimates.of(
            self, ratings, seconds=time.perf_counter() - began, seed=self.seed_, values=z, deviations=np.sqrt(var),
            precision=precision, precision_shape=np.maximum(n, 1.0) / 2.0, mean=middle, spread=float(np.std(z)),
            centre=middle, item_columns={"predicted": f}, annotator_columns={"slope": slope, "offset": offset},
            **self._trace(), **more,
        )  # fmt: skip

    def _values(self, inputs: Inputs) -> Floats:
        f = as_array(self._trainer.log_probs(inputs))[:, 0]
        return np.asarray(self.line_[0] + self.line_[1] * f)

    def _lines(self) -> tuple[Floats, Floats, Floats]:
        columns = self.consensus_.annotator_columns
        return columns["slope"], columns["offset"], self.consensus_.precision
