"""The rounds of fits without a network, reported like the epochs of a training."""

from __future__ import annotations

import time

from crowdwise.core.loop import Progress, Rounds
from crowdwise.learners.training_settings import Callback, Epoch


class EpochRounds(Rounds):
    """Rounds that become epochs of a history, with minus the objective per answer as loss.

    The fit stops where the callback returns True.
    """

    def __init__(self, max_iter: int, n_answers: float, history: list[Epoch], callback: Callback | None) -> None:
        super().__init__(max_iter, n_answers, self._report)
        self.history, self.on_epoch = history, callback
        self._last = time.perf_counter()

    def reached_within(self, objective: float, tol: float) -> None:
        """Report a round; it is the last where the objective changed by less than ``tol`` per answer, either way."""
        change = abs(objective - self.trace[-1]) / self.n_votes if self.trace else float("inf")
        self.reached(objective, converged=change < tol)

    def _report(self, step: Progress) -> None:
        began, self._last = self._last, time.perf_counter()
        loss = -step.objective / self.n_votes
        self.history.append(Epoch(step.iteration, step.max_iter, loss, None, None, 0.0, self._last - began))
        if self.on_epoch is not None and self.on_epoch(self.history[-1]) is True:
            self.max_iter = self.iterations
