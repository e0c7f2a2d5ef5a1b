"""A network that learns numbers from the ratings of many: an annotator's own stretch and shift after its answer.

The network f says what the number of an input is; annotator m's rating is what their layer makes of it:

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

When it fails: a bias that all annotators share goes into f; scales are weakly told where f varies little; where inputs
say nothing of the number, f is its mean and only ratings count.

Reference: F. Rodrigues and F. Pereira, Deep learning from crowds, AAAI (2018).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from torch import Tensor, nn

from crowdwise.core.checks import check_choice, check_count, check_flag, check_number
from crowdwise.core.estimates import Estimates
from crowdwise.core.numerics import Floats
from crowdwise.data.ratings import Ratings
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners import networks
from crowdwise.learners.devices import find_device, seeded
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import Inputs, Scale, as_inputs
from crowdwise.learners.learner import UnfittedError, learner_tags, seed_of
from crowdwise.learners.saving import read_learner, write_learner
from crowdwise.learners.targets import as_ratings, check_pair, in_codes_of
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training import OPTIMISERS, SCHEDULES, Callback, Epoch, Plan
from crowdwise.learners.vote_edges import Batch

LAYERS = ("S", "B", "S+B", "B+S")


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

    def loss(self, batch: Batch) -> Tensor:
        slope, offset = self.lines()
        f = batch.logits[batch.row, 0]
        gap = batch.label - slope[batch.annotator] * f - offset[batch.annotator]
        if not self.own:
            return batch.mean(gap * gap)
        log_p = self.log_precision[batch.annotator].clamp(-10.0, 10.0)
        return batch.mean(0.5 * (torch.exp(log_p) * gap * gap - log_p))

    def slow_parameters(self) -> list[nn.Parameter]:
        """Scales move with the network: at the annotators' rate they would outrun it while its answers are small."""
        return [self.stretch]

    def predict_log_probs(self, batch: Batch) -> Tensor:
        """B x 1: the network's number (there are no probabilities here)."""
        return batch.logits

    def settle(self, log_f: Tensor, edges: Any) -> None:
        """Nothing to count: the layers are the result."""


@dataclass(frozen=True)
class Ratable:
    """Ratings in the shape the trainer takes votes in: numbers in the place of labels."""

    indptr: Any
    annotator: Any
    label: Any
    weights: Any
    n_annotators: int
    n_classes: int = 1

    @classmethod
    def of(cls, ratings: Ratings, y: Floats) -> Ratable:
        return cls(ratings.indptr, ratings.annotator, y, ratings.weights, ratings.n_annotators)


def combine(
    ratings: Ratings, f: Floats, slope: Floats, offset: Floats, precision: Floats, gap: float
) -> tuple[Floats, Floats]:
    """z and its variance, from what the inputs say (f, variance gap) and the ratings; strangers count nothing."""
    N, m, w, x = len(ratings), ratings.annotator, ratings.weights, ratings.value
    known = m < len(slope)
    m = np.minimum(m, len(slope) - 1)
    told = np.where(known, w * precision[m] * slope[m] ** 2, 0.0)
    said = np.where(known, w * precision[m] * slope[m] * (x - offset[m]), 0.0)
    h = 1.0 / gap + np.bincount(ratings.item, weights=told, minlength=N).astype(np.float64)
    return np.asarray((f / gap + np.bincount(ratings.item, weights=said, minlength=N)) / h), np.asarray(1.0 / h)


def residual_parts(ratings: Ratings, f: Floats, slope: Floats, offset: Floats) -> tuple[Floats, float]:
    """Precisions of annotators, and the variance of the truth around f: what residuals of one item have in common.

    The product of two residuals on an item, each over its slope, has the mean ``gap``; their squares have that and the
    noise.
    """
    m, n, w = ratings.annotator, ratings.item, ratings.weights
    N, M = len(ratings), ratings.n_annotators
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


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A network for numbers, with a stretch and a shift for each annotator.

    Parameters
    ----------
    layer
        ``"S"``, ``"B"``, ``"S+B"`` or ``"B+S"``: what each annotator makes of the network's number.
    noise
        ``"equal"``: squared errors, as in the paper; ``"own"``: a precision for each annotator is learned as well.
    network
        ``"mlp"``, ``"linear"``, ``"cnn"``... (see :mod:`crowdwise.learners.networks`), a torch module with one output,
        or a function of (shape of an input, 1) that makes one.
    epochs, batch_size, optimiser, schedule, weight_decay, clip
        Of training, as in all learners.
    lr, crowd_lr
        Learning rates of the network, and of what is learned about annotators.
    scale
        Bring inputs to mean 0 and deviation 1 first (ratings always are).
    device, precision
        ``"auto"``: CUDA, else MPS, else the CPU; bfloat16 for the network where CUDA has it, else float32.
    random_state
        Seed of everything random; a fresh one by default, kept as ``seed_``.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(400, n_annotators=8, bias=1.0, features=5, votes_per_item=3, random_state=0)
    >>> model = CrowdRegression(network="linear", epochs=30, random_state=0)
    >>> model = model.fit(crowd.features["x_train"], crowd.ratings)
    >>> bool(np.corrcoef(model.consensus_.bias, crowd.parameters["bias"])[0, 1] > 0.9)
    True
    """

    key: ClassVar[str] = "crowd-regression"
    table: ClassVar[type] = Ratings

    layer: str = "B"
    noise: str = "equal"
    network: Any = "mlp"
    epochs: int = 50
    batch_size: int = 64
    lr: float = 1e-3
    crowd_lr: float = 1e-2
    weight_decay: float = 1e-4
    optimiser: str = "adam"
    schedule: str = "constant"
    clip: float | None = None
    scale: bool = True
    device: str = "auto"
    precision: str = "auto"
    random_state: int | None = None

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The names of the parameters and their defaults."""
        return {f.name: f.default for f in fields(cls)}

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, *, callback: Callback | None = None) -> Self:
        """Learn from inputs and ratings.

        Parameters
        ----------
        X
            One input per item of the ratings, in their order.
        y
            :class:`~crowdwise.Ratings`; or an N x M array of numbers with NaN where there is none; or N numbers, as
            those of a single annotator.
        callback
            Called with a :class:`crowdwise.learners.trainer.Epoch` after every epoch; training stops where it returns
            True.
        """
        began = time.perf_counter()
        self._check_parameters()
        ratings = as_ratings(y)
        inputs = as_inputs(X, ratings.items)
        check_pair(inputs, ratings)
        self.seed_ = seed_of(self.random_state)
        self.annotators_, self.shape_ = ratings.annotators, inputs.shape
        if len(inputs.shape) == 1:
            self.n_features_in_ = inputs.shape[0]
        centre = float(np.average(ratings.value, weights=ratings.weights))
        unit = float(np.sqrt(np.average((ratings.value - centre) ** 2, weights=ratings.weights))) or 1.0
        ratable = Ratable.of(ratings, (ratings.value - centre) / unit)
        device = find_device(self.device)
        with seeded(device):
            torch.manual_seed(self.seed_)
            self._trainer = self._make(inputs, ratable, Scale.of(inputs) if self.scale else None, device)
        self.history_: list[Epoch] = self._trainer.run(callback)
        self._settle(ratings, centre, unit, began)
        return self

    def _make(self, inputs: Inputs, ratable: Any, scale: Scale | None, device: Any) -> Trainer:
        body = networks.build(self.network, inputs.shape, 1)
        network = nn.Sequential(Scale.identity(inputs.shape) if scale is None else scale, body)
        head = RatingHead(ratable.n_annotators, self.layer, self.noise == "own")
        given = {f.name: getattr(self, f.name) for f in fields(Plan) if hasattr(self, f.name)}
        return Trainer(network, head, inputs, ratable, Plan(seed=self.seed_, **given), device=device)

    def _settle(self, ratings: Ratings, centre: float, unit: float, began: float) -> None:
        """Re-centre f and the layers together, back in the ratings' unit; then the result."""
        trainer = self._trainer
        assert isinstance(trainer.head, RatingHead)
        with torch.no_grad():
            slope, offset = (t.double().cpu().numpy() for t in trainer.head.lines())
        voted = np.bincount(ratings.annotator, minlength=len(slope)) > 0
        stretch = float(slope[voted].mean()) if "S" in self.layer else 1.0
        stretch = stretch if abs(stretch) > 1e-3 else 1.0
        shift = float(offset[voted].mean()) if "B" in self.layer else 0.0
        # f' = stretch f + shift, in the unit of the ratings: centre + unit f'
        self.line_ = (centre + unit * shift, unit * stretch)
        slope = slope / stretch
        # x = centre + unit (a f + o), with f = (z - centre - unit shift) / (unit stretch)
        offset = centre + unit * offset - slope * (centre + unit * shift)
        f = self._values(trainer.log_probs())
        precision, gap = residual_parts(ratings, f, slope, offset)
        z, var = combine(ratings, f, slope, offset, precision, gap)
        n = np.bincount(ratings.annotator, weights=ratings.weights, minlength=len(slope))
        middle = float(np.mean(f))
        found: dict[str, Any] = {}
        noise = 1.0 / precision + slope**2 * gap
        with np.errstate(divide="ignore"):
            sd = np.sqrt(noise / n)
        if "B" in self.layer:
            bias = offset + (slope - 1.0) * middle
            found |= {"bias": bias, "bias_sd": np.sqrt(sd**2 + np.var(bias) / len(bias))}
        if "S" in self.layer:
            found |= {"scale": slope, "scale_sd": sd / max(float(np.std(f)), 1e-9)}
        self.consensus_: Estimates = Estimates.of(
            self, ratings, seconds=time.perf_counter() - began, seed=self.seed_, values=z,
            deviations=np.sqrt(var), precision=precision,
            precision_shape=np.maximum(n, 1.0) / 2.0, mean=middle, spread=float(np.std(z)), centre=middle,
            trace=-np.array([epoch.loss for epoch in self.history_]), iterations=self.history_[-1].epoch,
            item_columns={"predicted": f}, annotator_columns={"slope": slope, "offset": offset}, **found,
        )  # fmt: skip
        self.gap_ = gap

    # ---------------------------------------------------------------- using it

    def predict(self, X: Any, ratings: Ratings | None = None) -> Floats:
        """The number of each input; with ``ratings``, from inputs and ratings together."""
        self._fitted()
        inputs = as_inputs(X, None if ratings is None else ratings.items)
        if inputs.shape != self.shape_:
            raise InputError(f"An input has the shape {inputs.shape}; the learner was fitted with {self.shape_}.")
        f = self._values(self._trainer.log_probs(inputs))
        if ratings is None:
            return f
        check_pair(inputs, ratings)
        found = self.consensus_
        known = in_codes_of(ratings, self.annotators_)
        columns = found.annotator_columns
        assert found.precision is not None
        return combine(known, f, columns["slope"], columns["offset"], found.precision, self.gap_)[0]

    def _values(self, out: Tensor) -> Floats:
        f = out.double().cpu().numpy()[:, 0]
        return np.asarray(self.line_[0] + self.line_[1] * f)

    def _fitted(self) -> None:
        if not hasattr(self, "_trainer"):
            raise UnfittedError(f"This {type(self).__name__} has not been fitted: call fit(X, ratings) first.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trainer")

    def __sklearn_tags__(self) -> Any:
        return learner_tags(super().__sklearn_tags__())

    def _check_parameters(self) -> None:
        check_choice(self, "layer", LAYERS)
        check_choice(self, "noise", ("equal", "own"))
        check_count(self, "epochs")
        check_count(self, "batch_size")
        check_number(self, "lr", above=0.0)
        check_number(self, "crowd_lr", above=0.0)
        check_number(self, "weight_decay", least=0.0)
        if self.clip is not None:
            check_number(self, "clip", above=0.0)
        check_flag(self, "scale")
        check_choice(self, "optimiser", OPTIMISERS)
        check_choice(self, "schedule", tuple(SCHEDULES))
        check_choice(self, "precision", ("auto", "float32", "bfloat16"))
        if self.random_state is not None and not (
            isinstance(self.random_state, (int, np.integer)) and self.random_state >= 0
        ):
            raise ParameterError(f"random_state={self.random_state!r}: expected a non-negative integer or None.")

    # ---------------------------------------------------------------- keeping it

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the learner to a folder (JSON, safetensors and its estimates), all or nothing."""
        self._fitted()
        return write_learner(folder, self, line=list(self.line_), gap=self.gap_)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, network: Any = None, device: str = "auto") -> Self:
        """Read what :meth:`save` wrote. A network that was not named but handed over must be handed over again."""
        folder = Path(folder)
        facts, tensors = read_learner(folder, cls.key, network)
        params = facts["params"] | {"device": device} | ({} if network is None else {"network": network})
        learner = cls(**params)
        learner.consensus_ = Estimates.load(folder / "consensus")
        learner.annotators_ = learner.consensus_.annotator_names
        learner.seed_, learner.shape_ = facts["seed"], tuple(facts["shape"])
        if len(learner.shape_) == 1:
            learner.n_features_in_ = learner.shape_[0]
        learner.line_, learner.gap_ = (facts["line"][0], facts["line"][1]), facts["gap"]
        learner.history_ = [Epoch(**epoch) for epoch in facts["history"]]
        M = len(learner.annotators_)
        blank = Ratable(np.array([0, M]), np.arange(M, dtype=np.int32), np.zeros(M), np.ones(M), M)
        inputs = as_inputs(np.zeros((1, *learner.shape_), dtype=np.float32))
        learner._trainer = learner._make(inputs, blank, None, find_device(device))
        learner._trainer._restore({name: t.to(learner._trainer.device) for name, t in tensors.items()})
        return learner
