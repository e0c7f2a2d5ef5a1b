"""Classifiers from inputs and votes: ``fit(X, votes)``, and then they work like any classifier of scikit-learn's."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin

from crowdwise.core.consensus import Consensus, Outcome, consensus_fields
from crowdwise.core.model import recode
from crowdwise.core.numerics import Floats, Ints, decide
from crowdwise.core.parameters import declared
from crowdwise.core.result import Result
from crowdwise.data.votes import Votes
from crowdwise.learners.estimator import Estimator
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.targets import as_votes


@declared
class VotesClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """The base of classifiers from votes, with a network (:class:`~crowdwise.learners.learner.Learner`) or without."""

    table: ClassVar[type] = Votes
    result: ClassVar[type[Result]] = Consensus
    takes_gold: ClassVar[bool] = True

    # ---------------------------------------------------------------- for subclasses

    def _outcome(self, found: Any, votes: Votes) -> Outcome:
        """What the fit has found, for the consensus."""
        outcome: Outcome = found
        return outcome

    @abstractmethod
    def _probabilities(self, inputs: Inputs, votes: Votes | None) -> Floats:
        """N x K class probabilities from inputs, or from inputs and votes (in the codes of the fit).

        Annotators with codes from M on were not in the fit.
        """

    @abstractmethod
    def _log_likelihood(self, inputs: Inputs, votes: Votes) -> float:
        """The log-likelihood of votes, each times its weight."""

    # ---------------------------------------------------------------- fitting

    def _answers(self, y: Any) -> Votes:
        return as_votes(y)

    def _result(self, found: Any, answers: Any, gold: Ints | None, began: float) -> Result:
        votes = self._votes_of(answers)
        outcome = self._outcome(found, votes)
        facts = consensus_fields(votes, outcome, self._labels(outcome, answers), gold)
        return self.result.of(self, answers, seconds=time.perf_counter() - began, seed=self.seed_, **facts)

    def _votes_of(self, answers: Any) -> Votes:
        """The answers as votes."""
        votes: Votes = answers
        return votes

    def _labels(self, outcome: Outcome, answers: Any) -> npt.NDArray[np.int32]:
        """The codes of the consensus labels."""
        return decide(outcome.posterior, outcome.prior, "prior", np.random.default_rng(self.seed_))

    # ---------------------------------------------------------------- after the fit

    def predict_proba(self, X: Any, votes: Votes | None = None) -> Floats:
        """N x K class probabilities from the inputs; with ``votes``, from inputs and votes together."""
        self._fitted()
        return self._probabilities(self._new_inputs(X, votes), self._recoded(votes))

    def predict(self, X: Any, votes: Votes | None = None) -> npt.NDArray[Any]:
        """The most probable class of each input."""
        q = self.predict_proba(X, votes)
        return np.asarray(self.classes_[q.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy, for true labels; for votes, whose truth is unknown, their mean log-likelihood."""
        if not isinstance(y, Votes):
            return float(super().score(X, y, sample_weight))
        self._fitted()
        return self._log_likelihood(self._new_inputs(X, y), self._recoded(y)) / float(y.weights.sum())

    def _recoded(self, votes: Any) -> Any:
        """Votes in the codes of the fit."""
        return None if votes is None else recode(votes, self.consensus_)
