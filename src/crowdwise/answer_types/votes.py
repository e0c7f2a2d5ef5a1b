"""Votes, grades and votes on linked items: one class of a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from crowdwise import metrics  # its names are imported when they are used
from crowdwise.answer_types.base import AnswerRules, Figures
from crowdwise.data.votes import Votes
from crowdwise.metrics.bootstrap import Options
from crowdwise.metrics.measures import measure_classes
from crowdwise.trust import agreement_coefficients as coefficients
from crowdwise.trust.agreement_coefficients import Scale, Weights, icc
from crowdwise.trust.agreement_pairs import cohen_kappa, light_kappa
from crowdwise.trust.flags import FindingWords
from crowdwise.trust.wording import FINDINGS

MOST_LIGHT, MOST_VOTE_PAIRS = 5_000, 200_000
"""Pairs of annotators x classes², and pairs of votes, up to which Light's kappa is among the coefficients."""


class VoteRules(AnswerRules):
    """Votes. Their findings come from the detectors of ``crowdwise.trust`` (:mod:`crowdwise.report.findings`)."""

    answer = "label"
    scale: ClassVar[Scale | None] = "nominal"
    kinds: ClassVar[Mapping[str, FindingWords]] = FINDINGS

    def agreement(self, answers: Any, options: Options, scale: Scale | None = None, values: Any = None) -> Figures:
        """Nominal: percentage, Fleiss, AC1, alpha, Cohen or Light. Ordinal: the same with quadratic weights (AC2).

        Interval and ratio: percentage, alpha and the one-way intraclass correlation of one vote.
        """
        votes: Votes = answers
        scale = scale or self.scale or "nominal"
        out = {"percent": coefficients.percent_agreement(votes, **options)}
        if scale == "nominal":
            out["fleiss kappa"] = coefficients.fleiss_kappa(votes, **options)
            out["gwet ac1"] = coefficients.gwet_ac1(votes, **options)
        elif scale == "ordinal":
            out["fleiss kappa"] = coefficients.fleiss_kappa(votes, weights="quadratic", **options)
            out["gwet ac2"] = coefficients.gwet_ac2(votes, **options)
        out["krippendorff alpha"] = coefficients.krippendorff_alpha(votes, scale=scale, values=values, **options)
        if scale in ("interval", "ratio"):
            out["icc"] = icc(votes, values=values, **options)
            return out
        size, M = np.diff(votes.indptr), votes.n_annotators
        cells = M * (M - 1) // 2 * votes.n_classes**2
        weights: Weights = "quadratic" if scale == "ordinal" else None
        if M == 2:
            out["cohen kappa"] = cohen_kappa(votes, weights=weights, **options)
        elif cells <= MOST_LIGHT and (size * (size - 1) // 2).sum() <= MOST_VOTE_PAIRS:
            out["light kappa"] = light_kappa(votes, weights=weights, **options)
        return out

    def measures(self, answers: Any, result: Any, truth: Any) -> Figures:
        codes = result.truth_codes(answers.encode_truth(truth))
        return self.measures_of_codes(answers, result, codes) if (codes >= 0).any() else {}

    def measures_of_codes(self, answers: Any, result: Any, codes: Any) -> Figures:
        """Figures against N true codes, -1 for unknown, some of them known."""
        return measure_classes(result, codes)


class OrdinalRules(VoteRules):
    """Classes in order: a label counts by its distance to the true one."""

    scale = "ordinal"

    def measures_of_codes(self, answers: Any, result: Any, codes: Any) -> Figures:
        measured = {name: getattr(metrics, name) for name in ("accuracy", "mae", "quadratic_kappa")}
        return {name: measured[name](result, codes) for name in measured}
