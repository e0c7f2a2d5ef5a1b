"""The base of models for other answer types than votes: parameters stored as given, ``fit``, and one frozen result."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, ClassVar, Generic, Self, TypeVar

from crowdwise.core.constraints import Parameterised, RandomState, declared
from crowdwise.core.loop import Callback
from crowdwise.core.progress_bar import shown
from crowdwise.core.result import Result, warn_unconverged
from crowdwise.data.boundary import guarded
from crowdwise.data.table import Table
from crowdwise.errors import InputError, NotFittedError

Answers = TypeVar("Answers", bound=Table)
Found = TypeVar("Found", bound=Result)


@declared
class AnswerModel(Parameterised, ABC, Generic[Answers, Found]):
    """The base of models for one type of answers. A subclass names its table and its result, and gives ``_fit``.

    Parameters
    ----------
    random_state
        Seed of what a method draws; most draw nothing.
    """

    key: ClassVar[str]
    table: ClassVar[type]
    """What it is fitted to, such as :class:`crowdwise.Ratings`."""
    result: ClassVar[type[Result]]
    """What it gives, such as :class:`crowdwise.Estimates`."""
    random_state: RandomState = 0
    consensus_: Found = field(init=False)

    @guarded
    def fit(self, answers: Answers, *, callback: Callback | None = None, verbose: bool = False) -> Self:
        """Learn from answers.

        Parameters
        ----------
        answers
            A table of the type the model is for. Its ``truth`` is not used.
        callback
            Called with a :class:`crowdwise.core.loop.Progress` after every pass over the answers.
        verbose
            Show the progress.
        """
        self.check_parameters()
        if not isinstance(answers, self.table):
            raise InputError(f"{self.key} expects {self.table.__name__} and found {type(answers).__name__}.")
        if answers.n_answers == 0:
            raise InputError(f"No {answers.answer_type}: the table has items and annotators, and no row is left.")
        self._point_out(answers)
        began = time.perf_counter()
        with shown(self.key, verbose, callback) as report:
            fields = self._fit(answers, report)
        self.consensus_ = self.result.of(self, answers, seconds=time.perf_counter() - began, **fields)  # type: ignore[assignment]
        warn_unconverged(self.consensus_)
        return self

    def _point_out(self, answers: Answers) -> None:
        """Warn of what the answers themselves show to be wrong."""

    @abstractmethod
    def _fit(self, answers: Answers, callback: Callback | None) -> dict[str, Any]:
        """What was found: the fields of the result, save those that say how it was made."""

    def _fitted(self) -> Found:
        try:
            return self.consensus_
        except AttributeError:
            raise NotFittedError(f"This {type(self).__name__} has not been fitted: call fit first.") from None
