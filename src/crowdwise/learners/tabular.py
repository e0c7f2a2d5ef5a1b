"""Learners without a network: a data model on features (softmax regression, or a classifier of scikit-learn's).

A :class:`Tabular` learner is used like any other: ``fit(X, votes)``, ``predict_proba(X)`` from inputs alone and
``predict_proba(X, votes)`` from both, ``score``, ``save`` and ``load``. A subclass says how it learns (``_learn``) and
has a data model (:mod:`crowdwise.learners.tabular_models`), which turns features into class probabilities and is
trained on soft labels. What it finds out about annotators is ``theta_``, M x K x K: P(m says l, given truth k).
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from crowdwise.core import em
from crowdwise.core.checks import check_flag, check_number
from crowdwise.core.consensus import Consensus, build_consensus
from crowdwise.core.em import Params, Part
from crowdwise.core.model import Outcome, recode
from crowdwise.core.numerics import Floats, Ints, decide, safe_log
from crowdwise.core.result import plain
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, OutputError, ParameterError
from crowdwise.learners.inputs import ArrayInputs, Inputs, Scale, as_inputs
from crowdwise.learners.learner import UnfittedError, learner_tags, seed_of
from crowdwise.learners.saving import read_arrays, write_arrays
from crowdwise.learners.tabular_models import DataModel, Foreign, Softmax
from crowdwise.learners.targets import as_votes, check_together
from crowdwise.learners.training import Callback, Epoch

CHUNK = 4096
# -------------------------------------------------------------------- the base


@dataclass(kw_only=True, eq=False, repr=False)
class Tabular(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What learners without a network share.

    Parameters
    ----------
    classifier
        The data model: ``"logistic"``, or a classifier of scikit-learn's make with ``predict_proba``.
    spread
        Of ``"logistic"``: the deviation of its logits before anything is learned (a larger one fits more freely).
    scale
        Bring inputs to mean 0 and deviation 1 first.
    random_state
        Seed of everything random; a fresh one by default, kept as ``seed_``.
    """

    key: ClassVar[str]

    classifier: Any = "logistic"
    spread: float = 1.0
    scale: bool = True
    random_state: int | None = None

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The names of the parameters and their defaults."""
        return {f.name: f.default for f in fields(cls)}

    # ---------------------------------------------------------------- for subclasses

    @abstractmethod
    def _learn(self, x: Any, votes: Votes, gold: Ints | None, tell: Callable[[int, int, float], bool]) -> Outcome:
        """Learn from N x D features and the votes on them: set ``model_`` and ``theta_``.

        ``tell(round, rounds, loss)`` notes a round in the history; it returns True where the callback asks to stop.
        """

    def _forecast(self, log_f: Floats, votes: Votes) -> Floats:
        """N x K class probabilities from those of the inputs (their log) and votes in the codes of the fit.

        Annotators with codes from M on were not there: they answer like the crowd.
        """
        part = Part.of(votes, item_prior=log_f)
        _, q = em.expect(part, Params(score_table(self._theta(votes)), np.zeros((1, log_f.shape[1]))), posterior=True)
        return q

    def _vote_log_probs(self, log_f: Floats, votes: Votes) -> Floats:
        """E: log P(an annotator says what they said, given the input)."""
        column = self._theta(votes)[votes.annotator, :, votes.label]
        return safe_log((np.exp(log_f)[votes.item] * column).sum(axis=1))

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What ``save`` keeps besides the consensus and the scale; subclasses add their own."""
        if not isinstance(self.model_, Softmax):
            raise OutputError(
                f"A {type(self.classifier).__name__} cannot be written without pickle, which runs code when read: "
                "use classifier='logistic', or keep the fitted classifier (learner.model_.fitted) by your own means."
            )
        return {"coef": self.model_.coef, "theta": self.theta_}

    def _restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take back what ``_arrays`` gave."""
        D, K = arrays["coef"].shape
        self.theta_ = arrays["theta"]
        self.model_ = self._data_model(D - 1, K)
        assert isinstance(self.model_, Softmax)
        self.model_.coef = arrays["coef"]

    def _check_parameters(self) -> None:
        """Complain of parameters out of range; subclasses add their own."""
        if isinstance(self.classifier, str):
            if self.classifier != "logistic":
                raise ParameterError(f"classifier={self.classifier!r}: expected 'logistic', or a classifier itself.")
        elif not all(hasattr(self.classifier, name) for name in ("fit", "predict_proba", "get_params")):
            raise ParameterError(
                f"classifier={self.classifier!r}: expected 'logistic', or a classifier of scikit-learn's make "
                "with fit, predict_proba and get_params (an SVC has predict_proba with probability=True)."
            )
        check_number(self, "spread", above=0.0)
        check_flag(self, "scale")
        if self.random_state is not None and not (
            isinstance(self.random_state, (int, np.integer)) and self.random_state >= 0
        ):
            raise ParameterError(f"random_state={self.random_state!r}: expected a non-negative integer or None.")

    def _data_model(self, D: int, K: int) -> DataModel:
        """A fresh data model for D features and K classes."""
        if isinstance(self.classifier, str):
            return Softmax(D, K, D / self.spread**2)
        return Foreign(self.classifier, K, self.seed_)

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, gold: Any = None, *, callback: Callback | None = None) -> Self:
        """Learn from inputs and votes.

        Parameters
        ----------
        X
            One input per item of the votes, in their order: an array, sparse matrix or tensor (images are taken as
            rows of pixels).
        y
            :class:`~crowdwise.Votes`; or an N x M array of labels with NaN where there is none; or N labels, as
            those of a single annotator.
        gold
            The class of items where it is known (a mapping from item to class, or N codes with -1).
        callback
            Called with a :class:`crowdwise.learners.trainer.Epoch` after every round; the fit stops where it returns
            True.
        """
        began = last = time.perf_counter()
        self._check_parameters()
        votes = as_votes(y)
        inputs = as_inputs(X, votes.items)
        check_together(inputs, votes)
        known = None if gold is None else votes.encode_truth(gold)
        self.seed_ = seed_of(self.random_state)
        self.classes_, self.annotators_ = votes.classes, votes.annotators
        self.shape_ = inputs.shape
        if len(inputs.shape) == 1:
            self.n_features_in_ = inputs.shape[0]
        scale = Scale.of(inputs) if self.scale else Scale.identity(inputs.shape)
        self.mean_, self.deviation_ = (
            np.broadcast_to(t.double().numpy(), inputs.shape).ravel().copy() for t in (scale.mean, scale.deviation)
        )
        self.history_: list[Epoch] = []

        def tell(done: int, rounds: int, loss: float) -> bool:
            nonlocal last
            now = time.perf_counter()
            self.history_.append(Epoch(done, rounds, loss, None, None, 0.0, now - last))
            last = now
            return callback is not None and callback(self.history_[-1]) is True

        outcome = self._learn(self._features(inputs), votes, known, tell)
        self.consensus_ = build_consensus(
            self.key,
            {name: plain(value) for name, value in self.get_params(deep=False).items()},
            votes,
            outcome,
            labels=decide(outcome.posterior, outcome.prior, "prior", np.random.default_rng(self.seed_)),
            seed=self.seed_,
            seconds=time.perf_counter() - began,
            gold=known,
        )
        return self

    def _features(self, inputs: Inputs) -> Any:
        """N x D, scaled: a sparse matrix stays one."""
        if isinstance(inputs, ArrayInputs) and inputs.sparse:
            for lo in range(0, len(inputs), CHUNK):  # complains of NaN and infinity
                inputs.rows(np.arange(lo, min(lo + CHUNK, len(inputs))))
            factor = (1.0 / 255.0 if inputs.byte else 1.0) / self.deviation_
            sparse = inputs.array.astype(np.float64).multiply(factor[None]).tocsr()
            return sparse - self.mean_ if self.mean_.any() else sparse  # fitted with dense inputs
        parts = [
            inputs.rows(np.arange(lo, min(lo + CHUNK, len(inputs)))).numpy().reshape(-1, len(self.mean_))
            for lo in range(0, len(inputs), CHUNK)
        ]
        return (np.concatenate(parts).astype(np.float64) - self.mean_) / self.deviation_

    def _theta(self, votes: Votes) -> Floats:
        """theta of everybody in some votes; strangers answer as the crowd does."""
        strangers = votes.n_annotators - len(self.theta_)
        if strangers <= 0:
            return self.theta_
        return np.concatenate([self.theta_, np.tile(self.theta_.mean(axis=0), (strangers, 1, 1))])

    # ---------------------------------------------------------------- using it

    @property
    def confusion_(self) -> Floats:
        """M x K x K: P(annotator m says l, given truth k), in the order of ``annotators_`` and ``classes_``."""
        self._fitted()
        return self.theta_

    def predict_proba(self, X: Any, votes: Votes | None = None) -> Floats:
        """N x K class probabilities from the inputs; with ``votes``, from inputs and votes together."""
        self._fitted()
        log_f, known = self._look(X, votes)
        q = np.exp(log_f) if known is None else self._forecast(log_f, known)
        return np.asarray(q / q.sum(axis=1, keepdims=True))

    def predict(self, X: Any, votes: Votes | None = None) -> npt.NDArray[Any]:
        """The most probable class of each input."""
        q = self.predict_proba(X, votes)
        return np.asarray(self.classes_[q.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy, for true labels; for votes their mean log likelihood, the truth of votes being unknown."""
        if isinstance(y, Votes):
            self._fitted()
            log_f, known = self._look(X, y)
            assert known is not None
            return float((y.weights * self._vote_log_probs(log_f, known)).sum() / y.weights.sum())
        return float(super().score(X, y, sample_weight))

    def _look(self, X: Any, votes: Votes | None) -> tuple[Floats, Votes | None]:
        """log f of inputs, and the votes on them in the codes of the fit."""
        if votes is not None and not isinstance(votes, Votes):
            raise InputError(f"Expected votes as Votes and found {type(votes).__name__}.")
        inputs = as_inputs(X, None if votes is None else votes.items)
        if inputs.shape != self.shape_:
            if len(self.shape_) == 1 and len(inputs.shape) == 1:
                raise InputError(
                    f"X has {inputs.shape[0]} features, but {type(self).__name__} is expecting {self.shape_[0]} "
                    "features as input."
                )
            raise InputError(f"An input has the shape {inputs.shape}; the learner was fitted with {self.shape_}.")
        if votes is not None:
            check_together(inputs, votes)
            votes = recode(votes, self.consensus_)
        return self.model_.log_probs(self._features(inputs)), votes

    def _fitted(self) -> None:
        if not hasattr(self, "consensus_"):
            raise UnfittedError(f"This {type(self).__name__} has not been fitted: call fit(X, votes) first.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "consensus_")

    def __sklearn_tags__(self) -> Any:
        return learner_tags(super().__sklearn_tags__())

    @property
    def n_iter_(self) -> int:
        """How many rounds the fit took."""
        return len(self.history_)

    # ---------------------------------------------------------------- keeping it

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the learner to a folder (JSON, numpy arrays and its consensus), all or nothing."""
        self._fitted()
        arrays = {"mean": self.mean_, "deviation": self.deviation_, **self._arrays()}
        history = [asdict(epoch) for epoch in self.history_]
        return write_arrays(folder, self, arrays, shape=list(self.shape_), seed=self.seed_, history=history)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, network: Any = None, device: str = "auto") -> Self:
        """Read what :meth:`save` wrote. There is no network to hand over; ``device`` makes no difference here."""
        folder = Path(folder)
        facts, arrays = read_arrays(folder, cls.key, network)
        learner = cls(**facts["params"])
        found = learner.consensus_ = Consensus.load(folder / "consensus")
        learner.classes_, learner.annotators_ = found.classes, found.annotator_names
        learner.seed_, learner.shape_ = facts["seed"], tuple(facts["shape"])
        if len(learner.shape_) == 1:
            learner.n_features_in_ = learner.shape_[0]
        learner.history_ = [Epoch(**epoch) for epoch in facts["history"]]
        learner.mean_, learner.deviation_ = arrays.pop("mean"), arrays.pop("deviation")
        learner._restore(arrays)
        return learner


def score_table(theta: Floats) -> Floats:
    """log theta as the kernels take it: (m * K + l) x K."""
    return np.ascontiguousarray(safe_log(theta.transpose(0, 2, 1)).reshape(-1, theta.shape[1]))
