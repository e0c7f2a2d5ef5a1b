"""Masks. Findings: ``large`` and ``small``, annotators who draw outside or inside of the others by over half a pixel;
``inexact``, those whose edges scatter more than half of the others'; ``items``, masks whose expected Dice is under
``DOUBTFUL``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np

from crowdwise.answer_types.base import AnswerRules, Figures, Frame, line, where
from crowdwise.core.numerics import Floats
from crowdwise.data.masks import Masks, dice, encode_masks
from crowdwise.metrics.bootstrap import Bootstrap, Options
from crowdwise.metrics.structures import edge
from crowdwise.trust.flags import Finding, FindingWords, Verdict
from crowdwise.trust.wording import IN_DOUBT, INEXACT, counted

MOST = 300
"""The longest side of a drawing, in pixels of the image."""
TEAL, ORANGE = (11, 130, 120), (235, 140, 20)
DOUBTFUL = 0.9
EXAMPLES = "Show them where the edge lies, on examples."


class MaskRules(AnswerRules):
    """Masks: one for each item."""

    answer = "mask"
    measured = "mask_scores"
    drawn = "Teal: the mask that was found. Orange: in doubt. Dark lines: the edges that annotators drew."
    kinds: ClassVar = {
        "large": FindingWords("Annotators who draw too large", EXAMPLES, Verdict.LOOK),
        "small": FindingWords("Annotators who draw too small", EXAMPLES, Verdict.LOOK),
        "inexact": INEXACT, "items": IN_DOUBT,
    }  # fmt: skip
    headings: ClassVar = {"agreement": "Dice with the consensus"}
    units: ClassVar = {
        "expected_dice": "%", **dict.fromkeys(("area", "height", "width", "offset", "scatter"), "pixels"),
    }  # fmt: skip

    def agreement(self, answers: Masks, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """The mean Dice coefficient of two masks of an item, over all pairs."""
        sums = []
        for lo, hi in pairwise(answers.indptr.tolist()):
            masks = [np.frombuffer(mask, dtype=np.uint8) for mask in answers.mask[lo:hi].tolist()]
            sized = [(mask, int(np.bitwise_count(mask).sum())) for mask in masks]
            pairs = [
                2.0 * int(np.bitwise_count(one & two).sum()) / (n_one + n_two) if n_one + n_two else 1.0
                for (one, n_one), (two, n_two) in combinations(sized, 2)
            ]
            sums.append((sum(pairs), len(pairs)))
        total, count = np.array(sums, dtype=float).T
        return {"dice": Bootstrap(**options).ratio(total, count, int((count > 0).sum()))}

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people, items = frames["annotators"], frames["items"]
        names = people["annotator"]
        if "offset" in people:
            for kind, words, sign, end in (("large", "outside", 1.0, "low"), ("small", "inside", -1.0, "high")):
                who = where(sign * people[f"offset_{end}"] > 0.5, sign * people["offset"])
                figures = [f"by {abs(people['offset'][m]):.1f} pixels" for m in who]
                yield from line(kind, f"Draw {words} of the others", "annotator", names[who], figures)
            middle = float(np.median(people["scatter"]))
            who = where(people["scatter_low"] > middle, people["scatter"])
            figures = [f"{people['scatter'][m]:.1f} pixels, the median is {middle:.1f}" for m in who]
        else:
            middle = float(np.nanmedian(people["agreement"]))
            who = where(people["agreement_high"] < middle, -people["agreement"])
            figures = [f"Dice {people['agreement'][m]:.2f}, the median is {middle:.2f}" for m in who]
        words = "Edges less exact than those of half of the others"
        yield from line("inexact", words, "annotator", names[who], figures)
        doubt = where(items["expected_dice"] < DOUBTFUL, -items["expected_dice"])
        figures = [f"expected Dice {items['expected_dice'][n]:.2f}" for n in doubt]
        yield from line("items", "Edges in doubt", self.noun, items["item"][doubt], figures)

    def doubts(self, result: Any) -> Floats:
        return 1.0 - np.asarray(result.expected_dice)

    def losses(self, result: Any, truth: Any) -> Floats:
        """1 - Dice."""
        true = encode_masks(truth, result.items, result.height, result.width)
        out = np.full(len(true), np.nan)
        out[[mask is not None for mask in true.tolist()]] = [1.0 - dice(*pair) for pair in result.against(true)]
        return out

    def drawing(self, answers: Masks, result: Any, n: int, about: Any) -> dict[str, Any]:
        """The mask in teal over the picture, what is in doubt in orange, the edges of the annotators in grey."""
        from crowdwise.report.votes import picture_of, thumbnail

        masks, inside, sure = answers.of_item(n), result.mask(n), result.probability(n) / 255.0
        every = np.any([*masks, inside], axis=0)
        box: Any = np.s_[:, :]
        if every.any():
            ends = [np.flatnonzero(every.any(axis=axis))[[0, -1]] for axis in (1, 0)]
            room = 2 + int(0.1 * max(hi - lo for lo, hi in ends))
            box = tuple(slice(max(int(lo) - room, 0), int(hi) + room + 1) for lo, hi in ends)
        step = max(1, -(-max(inside[box].shape) // MOST))
        box = tuple(slice(part.start, part.stop, step) for part in box)
        base = picture_of(about, inside.shape)
        image = np.full((*inside[box].shape, 3), 255.0) if base is None else base[box].astype(np.float64)
        doubt = np.clip(1.0 - np.abs(sure[box] - 0.5) / 0.45, 0.0, 1.0)[:, :, None]
        image += 0.45 * inside[box][:, :, None] * (np.array(TEAL) - image)
        image += 0.8 * doubt * (np.array(ORANGE) - image)
        for mask in masks:
            image[edge(mask[box])] *= 0.55
        zoom = max(1, MOST // max(image.shape[:2]) // 2)
        grown = image.round().astype(np.uint8).repeat(zoom, 0).repeat(zoom, 1)
        return {
            "kind": "mask", "src": thumbnail(grown, 2 * MOST), "width": grown.shape[1], "height": grown.shape[0],
            "words": f"{counted(len(masks), 'mask')}, expected Dice {result.expected_dice[n]:.2f}",
        }  # fmt: skip

    def unsure(self, result: Any, noun: str = "") -> str:
        doubt = int((result.expected_dice < DOUBTFUL).sum())
        return f"expected Dice {float(np.mean(result.expected_dice)):.2f}, {counted(doubt, noun or 'mask')} in doubt"

    def picture(self, result: Any, tables: list[dict[str, Any]]) -> dict[str, Any]:
        from crowdwise.report.section_summary import sureness

        shown = sureness(np.asarray(result.expected_dice), self.answer)
        words = shown["words"].replace("a probability", "an expected Dice")
        return shown | {"title": "How exact the masks are", "unit": "expected Dice", "words": words}
