"""Several trainings one after another."""

from __future__ import annotations

import os
from dataclasses import replace

from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training_settings import Callback, Epoch


class Stages:
    """Several trainings one after another, reported as one: epochs are numbered through, a callback may end all."""

    def __init__(self, epochs: int, callback: Callback | None) -> None:
        self.epochs, self.callback = epochs, callback
        self.history: list[Epoch] = []
        self.ended = False

    def run(self, trainer: Trainer, checkpoint: str | os.PathLike[str] | None = None) -> None:
        """One more training."""
        before = len(self.history)

        def numbered(epoch: Epoch) -> Epoch:
            return replace(epoch, epoch=before + epoch.epoch, epochs=self.epochs)

        def report(epoch: Epoch) -> bool:
            self.ended = self.callback is not None and self.callback(numbered(epoch)) is True
            return self.ended

        self.history += [numbered(epoch) for epoch in trainer.run(report, checkpoint)]
