"""Label sets: any number of classes. Findings: those of :func:`~crowdwise.answer_types.base.wrong_rates`, items in
doubt, and ``missed``: a label whose sensitivity is under one half."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from crowdwise.answer_types.base import RATES, AnswerRules, Figures, Frame, estimates, line, where, wrong_rates
from crowdwise.core.numerics import Floats
from crowdwise.data.label_sets import LabelSets
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Options
from crowdwise.trust import agreement_coefficients as coefficients
from crowdwise.trust.agreement_coefficients import Patterns, check_unweighted
from crowdwise.trust.flags import Finding, FindingWords
from crowdwise.trust.wording import IN_DOUBT, percent

MOST_SETS = 2000
"""The most different label sets that are compared with each other."""


class LabelSetRules(AnswerRules):
    """Label sets: a set of labels for each item."""

    answer = "label set"
    measured: ClassVar = {"f1": "set_f1", "jaccard": "jaccard", "subset_accuracy": "subset_accuracy"}
    kinds: ClassVar = RATES | {
        "missed": FindingWords("Labels that are often left out", "Say in the guideline when they apply."),
        "items": IN_DOUBT,
    }

    def agreement(self, answers: LabelSets, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """The share of equal sets, the mean Jaccard index, and alpha with the MASI distance (Passonneau 2006)."""
        check_unweighted(answers)
        chosen = np.zeros((answers.n_answers, answers.n_labels), dtype=bool)
        chosen[answers.answer, answers.chosen] = True
        different, label = np.unique(chosen, axis=0, return_inverse=True)
        if len(different) > MOST_SETS:
            raise InputError(
                f"There are {len(different):,} different sets, too many to compare. Look at some items: [:500]."
            )
        patterns = Patterns.of(answers.indptr, label, len(different))
        jaccard, masi = set_similarities(different.astype(np.float64))
        return estimates(patterns, {
            "percent": coefficients.percent(patterns, np.eye(len(different))),
            "jaccard": coefficients.percent(patterns, jaccard),
            "krippendorff alpha": coefficients.alpha(patterns, 1.0 - masi),
        }, options)  # fmt: skip

    def truth(self, answers: LabelSets) -> Any:
        if answers.truth is None or answers.known is None:
            return None
        known = np.flatnonzero(answers.known)
        names = answers.items[known].tolist()
        return {name: answers.labels[answers.truth[n]].tolist() for name, n in zip(names, known, strict=True)} or None

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        yield from wrong_rates(frames["annotators"], "Leaves out labels that apply", "Adds labels that do not apply")
        labels = frames["labels"]
        missed = where(labels["sensitivity"] < 0.5, -labels["sensitivity"])
        figures = [f"in {percent(1.0 - labels['sensitivity'][k])} of the cases" for k in missed]
        yield from line("missed", "Left out where they apply", "label", labels["label"][missed], figures)
        yield from super().findings(frames)


def set_similarities(sets: Floats) -> tuple[Floats, Floats]:
    """The Jaccard index of every two sets (1 of two empty ones), and MASI: the same times 1, 2/3, 1/3 or 0.

    The second factor is 1 for equal sets, 2/3 where one holds the other, 1/3 where they overlap, 0 where they do not.
    """
    both, size = sets @ sets.T, sets.sum(axis=1)
    either = size[:, None] + size[None] - both
    jaccard = np.divide(both, either, out=np.ones_like(both), where=either > 0)
    nested = (both == size[:, None]) | (both == size[None])
    kind = np.where(jaccard == 1.0, 1.0, np.where(nested, 2.0 / 3.0, 1.0 / 3.0))
    return jaccard, jaccard * kind
