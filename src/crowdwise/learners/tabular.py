"""Classifiers from votes without a network: a data model on features, trained on soft labels.

A subclass says how it learns (``_fit_model``). What it learns about annotators is ``theta_``, M x K x K: P(m says l,
given truth k). The data model f is

==================  ====================================================================================
``"logistic"``      softmax( x W + b ), x standardised where ``scale``, W ~ N(0, 1 / ridge), ridge = D / spread^2:
                    logits have the standard deviation ``spread``, whatever the number D of features
a classifier        of scikit-learn's, copied before training. Soft labels become one row per item and class,
                    weighted by the label; where a classifier takes no weights, one row per item, with its most
                    probable class
==================  ====================================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from torch import Tensor

from crowdwise.core import em
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import Check, declared
from crowdwise.core.em import Params, Part
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.core.unseen import with_unseen
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, OutputError, ParameterError
from crowdwise.learners.devices import as_array, as_tensors, score_table
from crowdwise.learners.inputs import ArrayInputs, Inputs, InputScale, chunks
from crowdwise.learners.learner import VotesClassifier
from crowdwise.learners.training_settings import Callback

DOUBT = 1e-3
"""How far probabilities of scikit-learn's classifiers stay from 0: a tree's are often 0, and would overrule votes."""
WEAK = 1e-3
"""The precision of the intercepts: a class without items stays at a finite distance."""


def log_softmax(logit: Floats) -> Floats:
    top = logit - logit.max(axis=-1, keepdims=True)
    return np.asarray(top - np.log(np.exp(top).sum(axis=-1, keepdims=True)))


def softmax_loss(coef: Floats, x: Any, q: Floats, ridge: float) -> tuple[float, Floats]:
    """- sum over rows and classes of q log f, plus the Gaussian prior; and its gradient ((D + 1) x K).

    Several regressions on the same rows at once have N x G x K labels, and (D + 1) x GK weights.
    """
    log_f = log_softmax((x @ coef[:-1].astype(x.dtype, copy=False) + coef[-1]).reshape(q.shape))
    precision = np.append(np.full(len(coef) - 1, ridge), WEAK)[:, None]
    gap = (q.sum(axis=-1, keepdims=True) * np.exp(log_f) - q).reshape(len(q), -1)
    gradient = precision * coef
    gradient[:-1] += x.T @ gap.astype(x.dtype, copy=False)
    gradient[-1] += gap.sum(axis=0)
    return float(-(q * log_f).sum() + 0.5 * (precision * coef**2).sum()), gradient


def flat_scale(scale: InputScale, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Mean and deviation of every number of an input."""
    mean, deviation = (np.broadcast_to(t.double().numpy(), shape).ravel().copy() for t in (scale.mean, scale.deviation))
    return mean, deviation


def scaled_rows(inputs: Inputs, mean: Floats, deviation: Floats) -> Any:
    """N x D, scaled: a sparse matrix stays one. Images become rows of pixels."""
    if isinstance(inputs, ArrayInputs) and inputs.sparse:
        for index in chunks(inputs):
            inputs.rows(index)  # refuses NaN and infinity
        sparse = inputs.array.astype(np.float64).multiply(1.0 / deviation[None]).tocsr()
        return sparse - mean if mean.any() else sparse  # fitted with dense inputs
    parts = [inputs.rows(index).numpy().reshape(-1, len(mean)) for index in chunks(inputs)]
    return (np.concatenate(parts).astype(np.float64) - mean) / deviation


class Softmax:
    """Softmax regression with a Gaussian prior, by L-BFGS; a second fit starts from the first.

    ``n_classes`` are those of all regressions, where labels of several are fitted at once.
    """

    def __init__(self, n_features: int, n_classes: int, ridge: float, max_iter: int = 200) -> None:
        self.coef: Floats = np.zeros((n_features + 1, n_classes))
        self.ridge, self.max_iter = ridge, max_iter

    def fit(self, x: Any, q: Floats) -> None:
        """Learn from N rows and N x K weights of their classes; a row of zeros takes no part."""
        from scipy.optimize import minimize

        used = np.flatnonzero(q.reshape(len(q), -1).any(axis=1))
        x, q, shape = x[used], q[used], self.coef.shape
        ftol = 1e-10 if x.dtype == np.float64 else 1e-8

        def loss(flat: Floats) -> tuple[float, Floats]:
            value, gradient = softmax_loss(flat.reshape(shape), x, q, self.ridge)
            return value, gradient.ravel()

        options = {"maxiter": self.max_iter, "maxcor": 20, "ftol": ftol, "gtol": 1e-5}
        optimum = minimize(loss, self.coef.ravel(), jac=True, method="L-BFGS-B", options=options)
        self.coef = np.asarray(optimum.x).reshape(shape)

    def log_probs(self, x: Any) -> Floats:
        return log_softmax(np.asarray(x @ self.coef[:-1] + self.coef[-1]))

    def log_prior(self) -> float:
        return -0.5 * (self.ridge * float((self.coef[:-1] ** 2).sum()) + WEAK * float((self.coef[-1] ** 2).sum()))


class SklearnClassifier:
    """A classifier of scikit-learn's as a data model: every fit trains a new copy of it."""

    fitted: Any = None

    def __init__(self, classifier: Any, n_classes: int, seed: int) -> None:
        self.classifier, self.n_classes, self.seed = classifier, n_classes, seed

    def fit(self, x: Any, q: Floats) -> None:
        row, label = np.nonzero(q > 1e-6)
        if takes_weights(self.classifier) is None:
            row = np.flatnonzero(q.sum(axis=1) > 0.0)
            label = q[row].argmax(axis=1)
        if (label == label[0]).all():
            raise InputError(
                "All items have the same majority class, so there is nothing to classify: "
                "use classifier='logistic', or give more votes."
            )
        self.fitted = fitted_copy(self.classifier, self.seed, x[row], label, q[row, label])

    def log_probs(self, x: Any) -> Floats:
        f = np.zeros((x.shape[0], self.n_classes))
        f[:, np.asarray(self.fitted.classes_, dtype=np.int64)] = self.fitted.predict_proba(x)
        return np.log((1.0 - DOUBT) * f + DOUBT / self.n_classes)

    def log_prior(self) -> float:
        """Of the weights, which the fit maximises besides the likelihood: not known."""
        return 0.0


DataModel = Softmax | SklearnClassifier


def fitted_copy(model: Any, seed: int, x: Any, y: Any, weight: Floats) -> Any:
    """A fitted copy of a model of scikit-learn's, with the seed wherever it has none, and weights if it takes any."""
    fresh, name = clone(model), takes_weights(model)
    unset = [parameter for parameter, value in fresh.get_params().items() if value is None]
    fresh.set_params(**{parameter: seed for parameter in unset if parameter.rpartition("__")[2] == "random_state"})
    return fresh.fit(x, y, **({} if name is None else {name: weight}))


def takes_weights(model: Any) -> str | None:
    """What ``fit`` calls the weights of rows: ``sample_weight``, that of a pipeline's last step, or nothing."""
    from sklearn.utils.validation import has_fit_parameter

    prefix, last = (f"{model.steps[-1][0]}__", model.steps[-1][1]) if hasattr(model, "steps") else ("", model)
    return f"{prefix}sample_weight" if has_fit_parameter(last, "sample_weight") else None


def unwritable(model: Any, parameter: str, instead: str) -> str:
    """Why a learner with a model of scikit-learn's cannot be saved."""
    return (
        f"A {type(model).__name__} cannot be written without pickle, which runs code when read: use "
        f"{parameter}={instead!r}, or save the fitted {parameter} (learner.model_.fitted) yourself."
    )


Classifier = Annotated[
    Any,
    Check(
        lambda value: all(hasattr(value, name) for name in ("fit", "predict_proba", "get_params")),
        "a classifier with fit, predict_proba and get_params (an SVC has predict_proba with probability=True)",
    ),
]


@declared
class Tabular(VotesClassifier):
    """What classifiers without a network share.

    Parameters
    ----------
    classifier
        The data model: ``"logistic"``, or a classifier of scikit-learn's with ``predict_proba``.
    """

    classifier: Literal["logistic"] | Classifier = "logistic"
    model_: DataModel = field(init=False)
    theta_: Floats = field(init=False)

    @abstractmethod
    def _fit_model(self, x: Any, votes: Votes, gold: Ints | None, callback: Callback | None) -> Outcome:
        """Learn from N x D features and the votes on them: set ``model_`` and ``theta_``."""

    def _posterior(self, log_f: Floats, votes: Votes) -> Floats:
        """N x K class probabilities from those of the inputs (their log) and votes in the codes of the fit.

        Unseen annotators answer like the crowd.
        """
        part = Part.of(votes, item_prior=log_f)
        score = score_table(safe_log(self._confusions_of(votes)))
        return em.expect(part, Params(score, np.zeros((1, log_f.shape[1]))), posterior=True)[1]

    def _arrays(self) -> dict[str, Floats]:
        """What ``save`` writes besides the scale; subclasses add their own."""
        if not isinstance(self.model_, Softmax):
            raise OutputError(unwritable(self.classifier, "classifier", "logistic"))
        return {"coef": self.model_.coef, "theta": self.theta_}

    def _restore_arrays(self, arrays: dict[str, Floats]) -> None:
        """Take back what ``_arrays`` gave."""
        D, K = arrays["coef"].shape
        self.theta_, model = arrays["theta"], Softmax(D - 1, K, 1.0)
        self.model_, model.coef = model, arrays["coef"]

    def _data_model(self, D: int, K: int, spread: float) -> DataModel:
        """A new data model for D features and K classes."""
        if isinstance(self.classifier, str):
            return Softmax(D, K, D / spread**2)
        return SklearnClassifier(self.classifier, K, self.seed_)

    def _learn(self, inputs: Inputs, answers: Any, gold: Ints | None, callback: Callback | None) -> Outcome:
        scale = InputScale.of(inputs) if self.scale else InputScale.identity(inputs.shape)
        self.mean_, self.deviation_ = flat_scale(scale, inputs.shape)
        return self._fit_model(scaled_rows(inputs, self.mean_, self.deviation_), answers, gold, callback)

    def _mass(self, used: npt.NDArray[np.bool_]) -> Floats:
        """N x 1: how much items count for the data model, none where they are not used."""
        if self._item_weight is None:
            return used[:, None].astype(np.float64)
        if isinstance(self.classifier, str) or takes_weights(self.classifier):
            return (used * self._item_weight)[:, None]
        raise ParameterError(
            f"A {type(self.classifier).__name__} takes no weights of rows: leave sample_weight and class_weight out, "
            "or use another classifier."
        )

    def _log_f(self, inputs: Inputs) -> Floats:
        return self.model_.log_probs(scaled_rows(inputs, self.mean_, self.deviation_))

    @property
    def confusion_(self) -> Floats:
        """M x K x K: P(annotator m says l, given truth k), in the order of ``annotators_`` and ``classes_``."""
        self._fitted()
        return self.theta_

    @property
    def n_iter_(self) -> int:
        """How many rounds the fit took."""
        return len(self.history_)

    def _confusions_of(self, votes: Votes) -> Floats:
        """theta of all annotators of some votes; unseen annotators answer like the crowd."""
        return with_unseen(self.theta_, votes.n_annotators, self.theta_.mean(axis=0))

    def _probabilities(self, inputs: Inputs, votes: Votes | None) -> Floats:
        log_f = self._log_f(inputs)
        q = np.exp(log_f) if votes is None else self._posterior(log_f, votes)
        return np.asarray(q / q.sum(axis=1, keepdims=True))

    def _log_likelihood(self, inputs: Inputs, votes: Votes) -> float:
        f = np.exp(self._log_f(inputs))
        column = self._confusions_of(votes)[votes.annotator, :, votes.label]
        return float((votes.weights * safe_log((f[votes.item] * column).sum(axis=1))).sum())

    def _tensors(self) -> dict[str, Tensor]:
        return as_tensors({"mean": self.mean_, "deviation": self.deviation_, **self._arrays()})

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        arrays = {name: as_array(tensor) for name, tensor in tensors.items()}
        self.mean_, self.deviation_ = arrays["mean"], arrays["deviation"]
        self._restore_arrays(arrays)
