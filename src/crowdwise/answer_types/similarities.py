"""Similarities: whether two items are alike. Findings: those of :func:`~crowdwise.answer_types.base.wrong_rates`, and
items in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from crowdwise.answer_types.base import RATES, AnswerRules, Figures, Frame, wrong_rates
from crowdwise.answer_types.votes import VoteRules
from crowdwise.data.similarities import Similarities
from crowdwise.metrics.bootstrap import Options
from crowdwise.trust.flags import Finding
from crowdwise.trust.wording import IN_DOUBT, counted


class SimilarityRules(AnswerRules):
    """Similarities: items in clusters."""

    answer = "cluster"
    unit = "pairs of items"
    measured: ClassVar = {
        "accuracy": "cluster_accuracy", "mutual_information": "mutual_information", "adjusted_rand": "adjusted_rand",
    }  # fmt: skip
    kinds: ClassVar = RATES | {"items": IN_DOUBT}

    def agreement(self, answers: Similarities, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """As votes for "same" and "different" on pairs of items."""
        return VoteRules().agreement(answers.votes, options)

    def truth(self, answers: Similarities) -> Any:
        if answers.truth is None or answers.classes is None:
            return None
        known = np.flatnonzero(answers.truth >= 0)
        names = answers.classes[answers.truth[known]].tolist()
        return dict(zip(answers.items[known].tolist(), names, strict=True)) or None

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        yield from wrong_rates(frames["annotators"], "Splits what belongs together", "Over-merges")
        yield from super().findings(frames)

    def headline(self, result: Any) -> str:
        clusters = counted(len(np.unique(result.clusters)), "cluster")
        return f"{counted(len(result.items), 'item')} in {clusters}, {self.unsure(result)}."
