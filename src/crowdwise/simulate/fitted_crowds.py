"""A crowd like one that was fitted: it votes on new items as often, and as well, as the annotators at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.simulate.crowds import Array, RandomState, answer, as_generator

CHUNK = 1_000_000
"""The most cells (items x annotators) of the table by which votes are dealt out that are held at once."""


@dataclass(frozen=True, eq=False)
class FittedCrowd:
    """The parameters of a crowd that can vote again."""

    classes: Sequence[Any]
    confusion: Array
    """M x K x K, axis 1 the truth."""
    prior: Array
    activity: Array
    """M: the probability of each annotator to give the next vote."""

    @classmethod
    def of(cls, votes: Votes, confusion: Array | None, prior: Array) -> FittedCrowd:
        """The crowd of a fit: its confusion matrices, prior, and the share of votes of each annotator."""
        if confusion is None:
            raise ParameterError("The method has no confusion matrices to make a crowd from: take dawid-skene, say.")
        given = np.bincount(votes.annotator, minlength=votes.n_annotators)
        return cls(votes.classes.tolist(), np.asarray(confusion), np.asarray(prior), given / given.sum())

    @property
    def n_annotators(self) -> int:
        return len(self.confusion)

    def vote(self, truth: npt.NDArray[Any], votes_per_item: int, random_state: RandomState = 0) -> Votes:
        """So many votes on each of some items, by annotators drawn by their activity without replacement."""
        M, N, rng = self.n_annotators, len(truth), as_generator(random_state)
        if votes_per_item > M:
            raise ParameterError(f"votes_per_item={votes_per_item}: the crowd has {M} annotators, who vote once each.")
        log_activity = np.log(np.maximum(self.activity, 1e-12))
        step = max(1, CHUNK // M)
        dealt = [  # the largest of log p + Gumbel are a draw without replacement
            np.argpartition(-(log_activity + rng.gumbel(size=(min(step, N - lo), M))), votes_per_item - 1, axis=1)
            for lo in range(0, N, step)
        ]
        who = np.concatenate([d[:, :votes_per_item] for d in dealt]).ravel()
        item = np.repeat(np.arange(N), votes_per_item)
        return Votes.from_codes(
            item, who, answer(self.confusion, who, truth[item], rng), items=np.arange(N),
            annotators=np.arange(M), classes=list(self.classes), truth=truth,
        )  # fmt: skip
