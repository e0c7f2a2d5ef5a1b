"""What every learner is: a scikit-learn estimator with declared parameters and one way to fit, to save and to load.

::

    Estimator                       parameters and their checks, seed, fit, save, load
    ├── NetworkEstimator            a network, its training settings and its device
    │   ├── Learner                 ... from votes: every method with a network
    │   │   └── CrowdLayerTags      ... from tags
    │   ├── CrowdRegression         ... from ratings
    │   ├── DeepBT                  ... from comparisons
    │   └── VolMaxDCC               ... from similarities
    ├── VotesClassifier             a classifier from votes: Learner, and
    │   └── Tabular                 ... without a network: Raykar, Crowdlab
    └── RatingsRegressor            a regressor from ratings: CrowdRegression, RaykarRegression
"""

from __future__ import annotations

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from torch import Tensor

from crowdwise.core.constraints import Parameterised, RandomState, declared, fixed_seed, seed_of
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.progress_bar import shown
from crowdwise.core.result import Result, plain
from crowdwise.data.boundary import guarded
from crowdwise.data.folders import SavedFiles
from crowdwise.errors import ConvergenceWarning, InputError, NotFittedError, ParameterError
from crowdwise.learners.checkpoints import RESULT, below, read_learner, read_tensors, write_learner
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.named_inputs import NamedInputs
from crowdwise.learners.text_features import EmbeddingModel, restore_texts
from crowdwise.learners.training_settings import Callback, Epoch

TEXTS = "texts."
"""How the names of tensors begin that texts are compared with."""


class UnfittedError(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]
    """A result was asked of a learner that has not been fitted. scikit-learn's name for it catches it as well."""


@declared
class Estimator(NamedInputs, BaseEstimator, Parameterised, ABC):  # type: ignore[misc]
    """The base of all learners. A subclass names its table of answers and says how it learns from them.

    Parameters
    ----------
    scale
        Standardise the inputs to mean 0 and deviation 1 (learned from the training data, saved with the learner).
    random_state
        The seed of everything random, a numpy generator, or None for another result each time. The seed that was used
        is ``seed_``.
    embed
        Of texts: the model that turns them into numbers, instead of TF-IDF: a model of sentence-transformers by its
        name, its folder or the package that holds it, or anything with ``encode(texts)``.
    """

    key: ClassVar[str]
    result: ClassVar[type[Result]]
    """The class of ``consensus_``."""
    takes_gold: ClassVar[bool] = False
    saved: ClassVar[tuple[str, ...]] = ()
    """Attributes that a fit sets and that are saved as JSON beside the tensors."""

    scale: bool = True
    random_state: RandomState = 0
    embed: EmbeddingModel | None = None
    _item_weight: Floats | None = field(init=False, default=None)
    consensus_: Any = field(init=False)
    history_: list[Epoch] = field(init=False)
    seed_: int = field(init=False)
    annotators_: npt.NDArray[Any] = field(init=False)
    classes_: npt.NDArray[Any] = field(init=False)
    shape_: tuple[int, ...] = field(init=False)

    @guarded
    def fit(
        self, X: Any, y: Any = None, gold: Any = None, *, items: Any = None, sample_weight: Any = None,
        callback: Callback | None = None, verbose: bool = False,
    ) -> Self:  # fmt: skip
        """Learn from inputs and the answers of annotators.

        Parameters
        ----------
        X
            One input per item of the answers: a data frame, an array, sparse matrix, tensor, torch ``Dataset``, or a
            folder of images named like the items. Rows of a data frame are found by its index or by a column of names
            (``task``, ``id``...); rows without names are taken in the order of the items (``y.items``), and a note in
            ``consensus_.notes`` says so.
        y
            The answers, a table of the class that the learner names as ``table``, or a data frame in long or wide form.
            Classifiers also take an N x M array of labels with NaN where there is none, or N labels, as those of a
            single annotator; regressors take numbers in the same forms.
        gold
            Classifiers only: the class of items where it is known (a mapping from item to class, or N codes with -1).
            It is trained on as a vote that is always right; with ``select="gold"`` it chooses the epoch instead.
        items
            The names of the rows of X, where X does not hold them.
        sample_weight
            Classifiers only: how much each row of X counts in learning from inputs, from 0 on, in the order of the
            rows; or a mapping from item to weight (1 where there is none). Votes keep their own weights.
        callback
            Called with an :class:`~crowdwise.learners.training_settings.Epoch` after every epoch (or round, without a
            network); the fit stops where it returns True.
        verbose
            Show the progress: a bar in a terminal or a notebook, lines elsewhere.
        """
        began = time.perf_counter()
        self.check_parameters()
        answers = self._answers(y)
        inputs, answers, at = self._beside(X, answers, items, y)
        known = self._gold(answers, gold)
        self._item_weight = self._weighed(answers, known, sample_weight, at)
        self.seed_ = fixed_seed(self.random_state)
        self._describe(answers.annotators, getattr(answers, "classes", None), inputs.shape)
        self.history_ = []
        with shown(self.key, verbose, callback) as report:
            learned = self._learn(inputs, answers, known, report)
        self.consensus_ = self._result(learned, answers, known, began)
        self.consensus_.notes.extend(self._notes)
        if not getattr(self.consensus_, "converged", True):
            warnings.warn(
                f"{self.key} stopped after {len(self.history_)} rounds before it converged: "
                "raise max_iter, or tol if that is close enough.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _answers(self, y: Any) -> Any:
        """The answers as the table that the learner takes."""
        if not isinstance(y, self.table):
            raise InputError(
                f"{self.key} expects {self.table.__name__} and found {type(y).__name__}: call fit(X, {self._noun})."
            )
        return y

    def _gold(self, answers: Any, gold: Any) -> Ints | None:
        """The known classes as codes."""
        if gold is not None and not self.takes_gold:
            raise ParameterError(f"{self.key} cannot use gold: it learns from {self._noun} alone. Leave it out.")
        return None if gold is None else answers.encode_truth(gold)

    def _weighed(self, answers: Any, gold: Ints | None, sample_weight: Any, at: Ints | None) -> Floats | None:
        """N: how much each item counts in learning from inputs; ``None``: all alike."""
        if sample_weight is not None:
            raise ParameterError(f"{self.key} cannot use sample_weight: classifiers from votes can. Leave it out.")
        return None

    def _describe(self, annotators: npt.NDArray[Any], classes: npt.NDArray[Any] | None, shape: tuple[int, ...]) -> None:
        """Note what the learner is fitted to: in a fit, and when it is loaded."""
        self.annotators_, self.shape_ = annotators, shape
        if classes is not None:
            self.classes_ = classes
        if len(shape) == 1:
            self.n_features_in_ = shape[0]

    @abstractmethod
    def _learn(self, inputs: Inputs, answers: Any, gold: Ints | None, callback: Callback | None) -> Any:
        """Learn, and note every epoch in ``history_``; what is returned is for :meth:`_result`."""

    @abstractmethod
    def _result(self, learned: Any, answers: Any, gold: Ints | None, began: float) -> Result:
        """``consensus_``, from what was learned in a fit that began at ``began``."""

    def _fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise UnfittedError(f"This {type(self).__name__} has not been fitted: call fit(X, {self._noun}) first.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "consensus_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.three_d_array = True
        return tags

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the learner to a folder (JSON, safetensors and its result), all or nothing."""
        self._fitted()
        params = self.get_params(deep=False) | {"random_state": seed_of(self.random_state)}
        if isinstance(params.get("class_weight"), Mapping):  # as pairs: keys of JSON are text
            params["class_weight"] = list(params["class_weight"].items())
        features = getattr(self, "text_features_", None)
        facts = {
            "method": self.key,
            "params": {name: plain(value) for name, value in params.items()},
            "shape": list(self.shape_),
            "bytes": self.bytes_,
            "features": plain(getattr(self, "feature_names_in_", None)),
            "item_column": self.item_column_,
            "text_column": self.text_column_,
            "texts": None if features is None else features.state(),
            "seed": self.seed_,
            "history": [asdict(epoch) for epoch in self.history_],
            "learned": {name: plain(getattr(self, name)) for name in self.saved},
        }
        arrays = {} if features is None else features.arrays()
        texts = {TEXTS + name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        return write_learner(folder, facts, self._tensors() | texts, self.consensus_)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, network: Any = None, device: str = "auto", embed: Any = None
    ) -> Self:  # fmt: skip
        """Read what :meth:`save` wrote. A network or a model of texts that was passed as an object must be passed
        again."""
        return cls.of_files(*read_learner(folder, cls.key), network, device, embed)

    @classmethod
    def of_files(cls, saved: SavedFiles, facts: dict[str, Any], network: Any, device: str, embed: Any) -> Self:
        """The learner in saved files, and their JSON part (:func:`crowdwise.learners.checkpoints.read_learner`)."""
        with saved.reading():
            learner = cls(**cls._loaded_params(saved.folder, facts["params"], network, device))
            learner.embed = embed or learner.embed
            if isinstance(getattr(learner, "class_weight", None), list):
                learner.set_params(class_weight=dict(learner.class_weight))
            learner.check_parameters()
            consensus: Any = cls.result.of_files(saved.below(RESULT, "consensus"))
            learner.consensus_ = consensus
            learner.seed_, learner.history_ = facts["seed"], [Epoch(**epoch) for epoch in facts["history"]]
            for name in cls.saved:
                setattr(learner, name, facts["learned"][name])
            learner.bytes_ = facts.get("bytes", False)
            learner._remember(facts["features"], facts["item_column"], facts["text_column"])
            tensors = read_tensors(saved)
            if facts["texts"] is not None:
                arrays = {name: tensor.numpy() for name, tensor in below(TEXTS, tensors).items()}
                learner.text_features_ = restore_texts(facts["texts"], arrays, embed)
            learner._describe(consensus.annotators, getattr(consensus, "classes", None), tuple(facts["shape"]))
            learner._restore({name: tensor for name, tensor in tensors.items() if not name.startswith(TEXTS)})
        return learner

    @classmethod
    def _loaded_params(cls, folder: Path, params: dict[str, Any], network: Any, device: str) -> dict[str, Any]:
        """The saved parameters, with those that the reader chooses."""
        if network is not None:
            raise ParameterError(f"{cls.key} has no network: leave network out.")
        return params

    @abstractmethod
    def _tensors(self) -> dict[str, Tensor]:
        """The numbers that the learner predicts with, by name."""

    @abstractmethod
    def _restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what :meth:`_tensors` gave."""
