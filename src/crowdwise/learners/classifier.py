"""Any learner by its key, and learners from the folders they were saved to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from crowdwise import registry
from crowdwise.core.numerics import Floats
from crowdwise.core.prediction_sets import PredictionSets
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.checkpoints import read_learner
from crowdwise.learners.estimator import UnfittedError
from crowdwise.learners.learner import Learner, VotesClassifier
from crowdwise.learners.training_settings import Callback


class CrowdClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier from inputs and votes, by the method of a key.

    Parameters
    ----------
    method
        A key of ``crowdwise methods --learners``: ``"max-mig"``, ``"geocrowdnet-f"``, ``"two-stage"``...
    **settings
        Parameters of the method's own class (``network``, ``epochs``, ``lr``, ``random_state``...); the others have
        their defaults.

    Attributes
    ----------
    model_
        The fitted learner of the method's own class.
    classes_, annotators_, confusion_, consensus_, history_
        As there.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=3, random_state=0)
    >>> learner = CrowdClassifier(method="ccem", epochs=10, random_state=0)
    >>> learner.fit(crowd.features["x_train"], crowd.votes).predict(crowd.features["x_train"]).shape
    (400,)
    """

    def __init__(self, method: str = registry.DEFAULT_LEARNER, **settings: Any) -> None:
        self.method = method
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and "_settings" in self.__dict__:
            if name in self._settings:
                return self._settings[name]
            if name.endswith("_") and name != "model_":
                return getattr(self._fitted(), name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        names = dir(self.model_) if self.__sklearn_is_fitted__() else []
        return sorted({*super().__dir__(), *self._settings, *(n for n in names if n[:1] != "_" and n.endswith("_"))})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The method, and the settings that were given."""
        return {"method": self.method, **self._settings}

    def set_params(self, **params: Any) -> Self:
        """Change the method or its settings; the next fit uses them."""
        if "method" in params:
            self.method = params.pop("method")
        known = registry.find(self.method, inputs=True).load().parameters()
        for name in params:
            if name not in known:
                raise ParameterError(f"{self.method} has no parameter {name!r}: it has {', '.join(known)}.")
        self._settings.update(params)
        return self

    def fit(
        self, X: Any, y: Any, gold: Any = None, *, items: Any = None, sample_weight: Any = None,
        callback: Callback | None = None, verbose: bool = False,
    ) -> Self:  # fmt: skip
        """Learn from inputs and votes, as :meth:`crowdwise.learners.estimator.Estimator.fit` does."""
        more: dict[str, Any] = {"sample_weight": sample_weight, "callback": callback, "verbose": verbose}
        learner = registry.find(self.method, inputs=True).create(**self._settings)
        self.model_: VotesClassifier = learner.fit(X, y, gold, items=items, **more)
        return self

    def predict_proba(self, X: Any, votes: Votes | None = None, *, items: Any = None) -> Floats:
        """N x K class probabilities from the inputs; with ``votes``, from inputs and votes together."""
        return self._fitted().predict_proba(X, votes, items=items)

    def predict(self, X: Any, votes: Votes | None = None, *, items: Any = None) -> npt.NDArray[Any]:
        """The most probable class of each input."""
        return self._fitted().predict(X, votes, items=items)

    def predict_annotators(self, X: Any, who: Any = None) -> Floats:
        """N x A x K: the probability of each label that an annotator would give to an input."""
        return self._fitted().predict_annotators(X, who)

    def predict_set(
        self, X: Any, coverage: float = 0.95, *, gold: tuple[Any, Any], by_class: bool = False
    ) -> PredictionSets:
        """For each input the classes that hold its true one with this probability; ``gold``: inputs drawn at random
        that were not learned from, and their classes."""
        return self._fitted().predict_set(X, coverage, gold=gold, by_class=by_class)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, items: Any = None) -> float:
        """The accuracy, for true labels; for votes their mean log-likelihood."""
        return float(self._fitted().score(X, y, sample_weight, items=items))

    def export_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write what predicts to an ONNX file: from ``inputs`` to ``probabilities``, classes in the order of
        ``classes_``."""
        model = self._fitted()
        if not isinstance(model, Learner):
            raise ParameterError(f"{self.method} has no network to export: take a learner with one, or save it.")
        return model.export_onnx(path)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the fitted learner to a folder; :func:`crowdwise.load_learner` reads it."""
        return self._fitted().save(folder)

    def _fitted(self) -> VotesClassifier:
        if not self.__sklearn_is_fitted__():
            raise UnfittedError("This CrowdClassifier has not been fitted: call fit(X, votes) first.")
        return self.model_

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.three_d_array = True
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({params})"[:N_CHAR_MAX]


def load_learner(
    folder: str | os.PathLike[str], *, network: Any = None, device: str = "auto", embed: Any = None
) -> Any:  # fmt: skip
    """A learner of any method, from the folder it was saved to.

    ``network`` must be given where the learner was fitted with a module or a function instead of a name, ``embed``
    where texts were embedded by an object.
    """
    saved, facts = read_learner(folder)
    entry = registry.ANSWER_METHODS.get(facts["method"]) or registry.find(facts["method"], inputs=True)
    return entry.load().of_files(saved, facts, network, device, embed)
