"""Ratings: numbers on a scale.

=========  ==========================================================================================================
finding    condition
=========  ==========================================================================================================
``typo``   some ratings of an annotator are gross errors, which the method sets aside
``scale``  the interval of an annotator's scale contains 0
``noise``  the whole interval of the noise is above ``LOUD`` times the median
``bias``   the interval of the bias is on one side of 0, ``MATTERS`` of the spread away
``wide``   the interval of a value is ``WIDE`` times as wide as the median
=========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from crowdwise.answer_types.base import AnswerRules, Figures, Frame, line, where
from crowdwise.data.ratings import Ratings
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Options
from crowdwise.trust.agreement_coefficients import check_unweighted, icc, interval_alpha
from crowdwise.trust.flags import Finding, FindingWords, Verdict
from crowdwise.trust.wording import counted, figure

MATTERS, LOUD, WIDE = 0.1, 1.5, 2.0


class RatingRules(AnswerRules):
    """Ratings: a number for each item, with an interval."""

    answer = "value"
    measured: ClassVar = {"mae": "mae", "rmse": "rmse"}
    kinds: ClassVar = {
        "typo": FindingWords("Ratings that look like typing errors", "Correct them; the method sets them aside."),
        "scale": FindingWords(
            "Ratings that do not follow the truth", "Drop their ratings, or ask how they used the scale.", Verdict.DROP
        ),
        "noise": FindingWords(
            "Noisy annotators", "Look at their ratings; the method gives them little weight.", Verdict.LOOK
        ),
        "bias": FindingWords(
            "Annotators with a bias", "Agree on what the scale means; the method corrects for it.", Verdict.LOOK
        ),
        "wide": FindingWords("Values that are least known", "Collect more ratings on these."),
    }

    def agreement(self, answers: Ratings, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """Interval alpha and the three intraclass correlations of one rating."""
        check_unweighted(answers)
        if not (np.diff(answers.indptr) > 1).any():
            raise InputError("No item has two ratings: there is nothing to agree on. Collect several for some items.")
        return {
            "krippendorff alpha": interval_alpha(answers, **options),
            "icc": icc(answers, **options),
            "icc agreement": icc(answers, form="agreement", **options),
            "icc consistency": icc(answers, form="consistency", **options),
        }

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people, items = frames["annotators"], frames["items"]
        names, value = people["annotator"], items["value"].astype(float)
        if "set_aside" in people:
            who = where(people["set_aside"] > 0, people["set_aside"])
            figures = [counted(int(n), "rating") for n in people["set_aside"][who]]
            yield from line("typo", "Far from all others on the item", "annotator", names[who], figures)
        follows = np.ones(len(names), dtype=bool)
        if "scale" in people:
            follows = (people["scale_low"] > 0.0) | (people["scale_high"] < 0.0)
            flat = where(~follows, -people["scale"])
            figures = [f"{x:.2f} for a step of 1" for x in people["scale"][flat]]
            words = "Their ratings may not move with the truth at all"
            yield from line("scale", words, "annotator", names[flat], figures)
        if "bias" in people:
            bias, enough = people["bias"], MATTERS * float(np.std(value))
            sides = (("too high", people["bias_low"] > 0.0), ("too low", people["bias_high"] < 0.0))
            for side, sure in sides:
                who = where(sure & follows & (np.abs(bias) >= enough), np.abs(bias))
                figures = [f"by {figure(abs(x))}" for x in bias[who]]
                yield from line("bias", f"Rates {side}", "annotator", names[who], figures)
        if "noise" in people:
            noise = people["noise"]
            loud = where((people["noise_low"] > LOUD * np.median(noise)) & follows, noise)
            figures = [f"± {figure(x)}, the median is {figure(np.median(noise))}" for x in noise[loud]]
            yield from line("noise", "Scatters more than others", "annotator", names[loud], figures)
        if "low" in items:
            width = (items["high"] - items["low"]) / 2.0
            wide = where(width > WIDE * np.median(width), width)
            figures = [f"± {figure(x)}" for x in width[wide]]
            yield from line("wide", "Interval twice the median width", "item", items["item"][wide], figures)

    def headline(self, result: Any) -> str:
        low, high = result.interval()
        people, reach = counted(len(result.annotators), "annotator"), float(np.mean(high - low)) / 2.0
        return f"{counted(len(result.items), 'value')} from {people}, each known to ± {figure(reach)} on average."

    def picture(self, result: Any, tables: list[dict[str, Any]]) -> dict[str, Any]:
        items = result.to_frame("items", kind="dict")
        width = (np.asarray(items["high"]) - np.asarray(items["low"])) / 2.0
        width = width[np.isfinite(width)]
        if not len(width):
            return {"kind": "none"}
        different = len(np.unique(np.round(width / width.max(), 6))) if width.max() else 1
        height, edges = np.histogram(width, bins=min(7, different))
        most = 4 + max(0, -int(np.ceil(np.log10(max(float(edges[-1]), 1e-12)))))
        digits = min(int(np.ceil(-np.log10(max(float(edges[1] - edges[0]), 1e-12)))) + 1, most)
        typical = float(np.median(width))
        ends = [f"{round(edge, digits):,.{max(digits, 0)}f}" for edge in edges.tolist()]
        bars = [
            {"range": f"± {a}-{b}", "count": int(n), "tone": "sure" if low <= typical else "fair"}
            for (a, b), n, low in zip(pairwise(ends), height.tolist(), edges.tolist(), strict=False)
        ]
        return {
            "kind": "bars", "title": "How exactly the values are known", "unit": "half the width of the 95% CI",
            "words": f"Half of the values are known to ± {figure(typical)} or better", "bars": bars,
        }  # fmt: skip
