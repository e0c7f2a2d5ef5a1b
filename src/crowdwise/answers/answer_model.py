"""What every model for answers beyond classes is: parameters stored as given, ``fit``, and one frozen result."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import field
from typing import ClassVar, Generic, Self, TypeVar

from crowdwise.core.constraints import RandomState
from crowdwise.core.loop import Callback
from crowdwise.core.parameters import Parameterised, declared
from crowdwise.core.result import Result
from crowdwise.errors import ConvergenceWarning, InputError, NotFittedError

__all__ = ["AnswerModel"]

Answers = TypeVar("Answers")
Found = TypeVar("Found", bound=Result)


@declared
class AnswerModel(Parameterised, ABC, Generic[Answers, Found]):
    """The base of models for one kind of table. A subclass names the table and gives ``_fit``."""

    key: ClassVar[str]
    table: ClassVar[type]
    """The kind of answers it takes, such as :class:`crowdwise.Ratings`."""
    random_state: RandomState = 0
    consensus_: Found = field(init=False)

    def fit(self, answers: Answers, *, callback: Callback | None = None) -> Self:
        """Learn from answers.

        Parameters
        ----------
        answers
            A table of the right kind. Known truth that lies with it is not looked at.
        callback
            Called with a :class:`crowdwise.core.loop.Progress` after every pass over the answers.
        """
        self.check_parameters()
        if not isinstance(answers, self.table):
            raise InputError(f"{self.key} expects {self.table.__name__} and found {type(answers).__name__}.")
        began = time.perf_counter()
        self.consensus_ = self._fit(answers, callback, began)
        if not getattr(self.consensus_, "converged", True):
            warnings.warn(
                f"{self.key} stopped after {getattr(self.consensus_, 'iterations', 0)} iterations before it settled: "
                "raise max_iter, or tol if that is close enough.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    @abstractmethod
    def _fit(self, answers: Answers, callback: Callback | None, began: float) -> Found:
        """The result; ``began`` is when the fit began, for its ``seconds``."""

    def _fitted(self) -> Found:
        try:
            return self.consensus_
        except AttributeError:
            raise NotFittedError(f"This {type(self).__name__} has not been fitted: call fit first.") from None
