"""Classifiers from votes without a network: a data model on features (softmax regression, or one of scikit-learn's).

A subclass says how it learns (``_fit_model``) and has a data model (:mod:`crowdwise.learners.tabular_models`), which
turns features into class probabilities and is trained on soft labels. What it learns about annotators is ``theta_``,
M x K x K: P(m says l, given truth k).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field
from typing import Annotated, Any, Literal

import numpy as np
from torch import Tensor

from crowdwise.core import em
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import Check, Positive
from crowdwise.core.em import Params, Part
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.core.parameters import declared
from crowdwise.core.unseen import with_unseen
from crowdwise.data.votes import Votes
from crowdwise.errors import OutputError
from crowdwise.learners.inputs import ArrayInputs, Inputs, Scale, chunks
from crowdwise.learners.learner import VotesClassifier
from crowdwise.learners.tabular_models import DataModel, SklearnClassifier, Softmax, unwritable
from crowdwise.learners.tensors import as_array, as_tensors, score_table
from crowdwise.learners.training_settings import Callback


def is_classifier(value: Any) -> bool:
    """Whether it has what a classifier of scikit-learn's has."""
    return all(hasattr(value, name) for name in ("fit", "predict_proba", "get_params"))


NEEDED = "a classifier with fit, predict_proba and get_params (an SVC has predict_proba with probability=True)"
Classifier = Annotated[Any, Check(is_classifier, NEEDED)]


@declared
class Tabular(VotesClassifier):
    """What classifiers without a network share.

    Parameters
    ----------
    classifier
        The data model: ``"logistic"``, or a classifier of scikit-learn's with ``predict_proba``.
    spread
        Of ``"logistic"``: the prior standard deviation of its logits (a larger one fits more freely).
    """

    classifier: Literal["logistic"] | Classifier = "logistic"
    spread: Positive = 1.0
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
        self.theta_ = arrays["theta"]
        model = Softmax(D - 1, K, (D - 1) / self.spread**2)
        self.model_, model.coef = model, arrays["coef"]

    def _data_model(self, D: int, K: int) -> DataModel:
        """A new data model for D features and K classes."""
        if isinstance(self.classifier, str):
            return Softmax(D, K, D / self.spread**2)
        return SklearnClassifier(self.classifier, K, self.seed_)

    def _learn(self, inputs: Inputs, answers: Any, gold: Ints | None, callback: Callback | None) -> Outcome:
        scale = Scale.of(inputs) if self.scale else Scale.identity(inputs.shape)
        self.mean_, self.deviation_ = (
            np.broadcast_to(t.double().numpy(), inputs.shape).ravel().copy() for t in (scale.mean, scale.deviation)
        )
        return self._fit_model(self._features(inputs), answers, gold, callback)

    def _features(self, inputs: Inputs) -> Any:
        """N x D, scaled: a sparse matrix stays one. Images become rows of pixels."""
        if isinstance(inputs, ArrayInputs) and inputs.sparse:
            for index in chunks(inputs):
                inputs.rows(index)  # refuses NaN and infinity
            factor = (1.0 / 255.0 if inputs.byte else 1.0) / self.deviation_
            sparse = inputs.array.astype(np.float64).multiply(factor[None]).tocsr()
            return sparse - self.mean_ if self.mean_.any() else sparse  # fitted with dense inputs
        parts = [inputs.rows(index).numpy().reshape(-1, len(self.mean_)) for index in chunks(inputs)]
        return (np.concatenate(parts).astype(np.float64) - self.mean_) / self.deviation_

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
        log_f = self.model_.log_probs(self._features(inputs))
        q = np.exp(log_f) if votes is None else self._posterior(log_f, votes)
        return np.asarray(q / q.sum(axis=1, keepdims=True))

    def _log_likelihood(self, inputs: Inputs, votes: Votes) -> float:
        f = np.exp(self.model_.log_probs(self._features(inputs)))
        column = self._confusions_of(votes)[votes.annotator, :, votes.label]
        return float((votes.weights * safe_log((f[votes.item] * column).sum(axis=1))).sum())

    def _tensors(self) -> dict[str, Tensor]:
        return as_tensors({"mean": self.mean_, "deviation": self.deviation_, **self._arrays()})

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        arrays = {name: as_array(tensor) for name, tensor in tensors.items()}
        self.mean_, self.deviation_ = arrays["mean"], arrays["deviation"]
        self._restore_arrays(arrays)
