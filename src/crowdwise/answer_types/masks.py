"""Masks. Findings: ``large`` and ``small``, annotators who draw outside or inside of the others by over half a pixel;
``inexact``, those whose edges scatter more than half of the others'; ``items``, masks whose expected Dice is under
``DOUBTFUL``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from crowdwise import metrics  # its names are imported when they are used
from crowdwise.answer_types.base import AnswerRules, Figures, Frame, line, where
from crowdwise.data.masks import Masks
from crowdwise.metrics.bootstrap import Bootstrap, Options
from crowdwise.trust.agreement_coefficients import ratio
from crowdwise.trust.flags import Finding, FindingWords, Verdict
from crowdwise.trust.wording import IN_DOUBT, INEXACT, counted

DOUBTFUL = 0.9
VISIBLE = 0.5
"""The least offset that is worth a word, in pixels."""
EXAMPLES = "Show them where the edge lies, on examples."


class MaskRules(AnswerRules):
    """Masks: one for each item."""

    answer = "mask"
    kinds: ClassVar = {
        "large": FindingWords("Annotators who draw too large", EXAMPLES, Verdict.LOOK),
        "small": FindingWords("Annotators who draw too small", EXAMPLES, Verdict.LOOK),
        "inexact": INEXACT, "items": IN_DOUBT,
    }  # fmt: skip
    headings: ClassVar = {"agreement": "Dice with the consensus", "offset": "Offset (pixels)", "scatter": "Scatter"}

    def agreement(self, answers: Masks, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """The mean Dice coefficient of two masks of an item, over all pairs."""
        sums = []
        for lo, hi in zip(answers.indptr[:-1].tolist(), answers.indptr[1:].tolist(), strict=True):
            masks = [np.frombuffer(mask, dtype=np.uint8) for mask in answers.mask[lo:hi].tolist()]
            size = [int(np.bitwise_count(mask).sum()) for mask in masks]
            pairs = [
                2.0 * int(np.bitwise_count(masks[a] & masks[b]).sum()) / (size[a] + size[b])
                if size[a] + size[b]
                else 1.0
                for a, b in combinations(range(len(masks)), 2)
            ]
            sums.append((sum(pairs), len(pairs)))
        table = np.array(sums, dtype=float)
        by, once = Bootstrap(**options), np.ones(len(table), dtype=np.int64)
        n = int((table[:, 1] > 0).sum())
        return {"dice": by.of_sums(table, once, lambda s: ratio(s[:, 0], s[:, 1]), n)}

    def truth(self, answers: Masks) -> Any:
        known = answers.truth is not None and any(true is not None for true in answers.truth.tolist())
        return answers.truth if known else None

    def measures(self, answers: Any, result: Any, truth: Any) -> Figures:
        return dict(metrics.mask_scores(result, truth))

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people, items = frames["annotators"], frames["items"]
        names = people["annotator"]
        if "offset" in people:
            for kind, words, sign, end in (("large", "outside", 1.0, "low"), ("small", "inside", -1.0, "high")):
                some = where(sign * people[f"offset_{end}"] > VISIBLE, sign * people["offset"])
                figures = [f"by {abs(people['offset'][m]):.1f} pixels" for m in some]
                yield from line(kind, f"Draw {words} of the others", "annotator", names[some], figures)
            middle = float(np.median(people["scatter"]))
            some = where(people["scatter_low"] > middle, people["scatter"])
            figures = [f"{people['scatter'][m]:.1f} pixels, the median is {middle:.1f}" for m in some]
        else:
            middle = float(np.nanmedian(people["agreement"]))
            some = where(people["agreement_high"] < middle, -people["agreement"])
            figures = [f"Dice {people['agreement'][m]:.2f}, the median is {middle:.2f}" for m in some]
        yield from line(
            "inexact", "Edges less exact than those of half of the others", "annotator", names[some], figures
        )
        doubt = where(items["expected_dice"] < DOUBTFUL, -items["expected_dice"])
        figures = [f"expected Dice {items['expected_dice'][n]:.2f}" for n in doubt]
        yield from line("items", "Edges in doubt", self.noun, items["item"][doubt], figures)

    def unsure(self, result: Any, noun: str = "") -> str:
        doubt = int((result.expected_dice < DOUBTFUL).sum())
        return f"expected Dice {float(np.mean(result.expected_dice)):.2f}, {counted(doubt, noun or 'mask')} in doubt"

    def picture(self, result: Any, tables: list[dict[str, Any]]) -> dict[str, Any]:
        from crowdwise.report.section_summary import sureness

        shown = sureness(np.asarray(result.expected_dice), self.answer)
        words = shown["words"].replace("a probability", "an expected Dice")
        return shown | {"title": "How exact the masks are", "unit": "expected Dice", "words": words}
