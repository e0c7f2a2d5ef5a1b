"""Boxes. Findings: ``misses``, annotators who find fewer objects than half of the others, their interval below that
median; ``draws``, whose false alarms per item are above twice the median; ``imprecise``, whose spread is above it;
``items``, images with an object in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from crowdwise.answer_types.base import AnswerRules, Figures, Frame, f1_loss, line, shown_image, where
from crowdwise.core.numerics import Floats
from crowdwise.data.boxes import Boxes, encode_boxes, iou, matched
from crowdwise.metrics.bootstrap import Bootstrap, Options
from crowdwise.trust.flags import Finding, FindingWords, Verdict
from crowdwise.trust.wording import IN_DOUBT, INEXACT, counted, percent

WIDE = 420.0
"""The width of a drawing."""
SURE = 0.9
"""A candidate between 1 - this and this probability is in doubt."""


class BoxRules(AnswerRules):
    """Boxes: any number of objects on each item."""

    answer = "object"
    measured = "box_scores"
    drawn = "Thin: what annotators drew. Thick: what was found, with its probability; dashed: not accepted."
    units: ClassVar = {
        "label_probability": "%", "detection_rate": "%", "false_alarms": "per item", "expected_objects": "count",
    }  # fmt: skip
    kinds: ClassVar = {
        "misses": FindingWords("Annotators who miss much", "Show them objects that they missed.", Verdict.LOOK),
        "draws": FindingWords("Annotators who draw too much", "Show them what is not an object.", Verdict.LOOK),
        "imprecise": INEXACT, "items": IN_DOUBT,
    }  # fmt: skip

    def agreement(self, answers: Boxes, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """The F1 of two annotators on an item, with matches of an IoU of 0.5 (``f1``; ``labelled``: of the same label),
        over all pairs; and the mean IoU of the matches."""
        edges, sums = answers.edges, np.zeros((len(answers), 4))
        for n, (lo, hi) in enumerate(pairwise(answers.indptr.tolist())):
            who = answers.annotator[lo:hi]
            own = [lo + np.flatnonzero((who == m) & (answers.label[lo:hi] >= 0)) for m in np.unique(who)]
            for a, one in enumerate(own):
                for two in own[a + 1 :]:
                    overlap = iou(edges[one], edges[two])
                    same = answers.label[one][:, None] == answers.label[two][None]
                    pairs, named = matched(overlap, 0.5), matched(overlap * same, 0.5)
                    total = overlap[pairs[:, 0], pairs[:, 1]].sum()
                    sums[n] += 2.0 * len(pairs), 2.0 * len(named), len(one) + len(two), 2.0 * total
        by, n, (both, labelled, drawn, shared) = Bootstrap(**options), int((sums[:, 2] > 0).sum()), sums.T
        parts = {"f1": (both, drawn), "labelled": (labelled, drawn), "mean_iou": (shared, both)}
        return {name: by.ratio(*part, n) for name, part in parts.items()}

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people = frames["annotators"]
        names, rate, alarms = people["annotator"], people["detection_rate"], people["false_alarms"]
        middle = float(np.nanmedian(rate)) if np.isfinite(rate).any() else np.nan
        weak = where(people["detection_rate_high"] < middle, -rate)
        figures = [f"finds {percent(rate[m])}, the median is {percent(middle)}" for m in weak]
        yield from line("misses", "Find fewer objects than half of the others", "annotator", names[weak], figures)
        most = max(2.0 * float(np.median(alarms)), 0.1)
        many = where(people["false_alarms_low"] > most, alarms)
        figures = [f"{alarms[m]:.1f} boxes around nothing per item" for m in many]
        yield from line("draws", "Draw too much", "annotator", names[many], figures)
        if "spread" in people:
            spread = people["spread"]
            rough = where(people["spread_low"] > np.median(spread), spread)
            figures = [f"edges off by {percent(spread[m])} of the size" for m in rough]
            yield from line("imprecise", "Imprecise edges", "annotator", names[rough], figures)
        if "candidates" in frames:
            one = frames["candidates"]
            doubt = np.abs(one["probability"] - 0.5) < SURE - 0.5
            items, count = np.unique(one["item"][doubt], return_counts=True)
            order = np.argsort(-count, kind="stable")
            figures = [counted(int(count[n]), "object") for n in order]
            yield from line("items", "Objects in doubt", self.noun, items[order], figures)

    def doubts(self, result: Any) -> Floats:
        return f1_loss(result.box_item, result.probability, result.accepted, len(result.items))

    def losses(self, result: Any, truth: Any) -> Floats:
        """1 - F1 at an IoU of 0.5."""
        true = encode_boxes(truth, result.items, result.boxes.shape[1], result.point_size)
        out = np.full(len(true), np.nan)
        right, drawn, there = result.matches(true, (0.5,))[0][:, :3].T
        f1 = np.divide(2 * right, drawn + there, np.ones(len(right)), where=drawn + there > 0)
        out[[objects is not None for objects in true]] = 1.0 - f1
        return out

    def drawing(self, answers: Boxes, result: Any, n: int, about: Any) -> dict[str, Any]:
        """Boxes of annotators, and the objects; of events a row for each annotator; volumes from above."""
        rows = np.arange(answers.indptr[n], answers.indptr[n + 1])
        rows = rows[answers.label[rows] >= 0]
        mine = np.flatnonzero((result.box_item == n) & ((result.probability > 1.0 - SURE) | result.accepted))
        D = result.boxes.shape[1] // 2
        order, level = np.unique(answers.annotator[rows], return_inverse=True)

        def flat(edges: Floats, at: Any) -> Floats:
            """x, y, width and height."""
            if D > 1:
                return np.hstack([edges[:, :2], edges[:, D : D + 2] - edges[:, :2]])
            return np.column_stack([edges[:, 0], at, edges[:, 1] - edges[:, 0], np.full(len(edges), 0.8)])

        drawn, objects = flat(answers.edges[rows], level + 1.0), flat(result.boxes[mine], np.zeros(len(mine)))
        every = np.vstack([drawn, objects])
        corners = np.vstack([every[:, :2], every[:, :2] + every[:, 2:]]) if len(every) else np.eye(2)
        low, high = corners.min(axis=0), corners.max(axis=0)
        picture = shown_image(about) if about is not None and D == 2 else None
        if picture is not None:
            low, high = np.zeros(2), np.maximum(picture["size"], high)
        else:
            low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
        across = WIDE / max(float(high[0] - low[0]), 1e-9)
        scale = np.array([across, across if D > 1 else 18.0])
        boxes = (every - np.append(low, [0.0, 0.0])) * np.tile(scale, 2)
        named, yes = result.classes[result.box_label[mine]].tolist(), result.accepted
        return {
            "kind": "boxes", "width": WIDE, "height": float((high - low)[1] * scale[1]),
            "round": bool(result.point_size),
            "image": picture and picture | {"size": (np.array(picture["size"]) * scale).tolist()},
            "drawn": [
                {"at": box, "who": str(answers.annotators[m])}
                for box, m in zip(boxes[: len(drawn)].round(1).tolist(), answers.annotator[rows].tolist(), strict=True)
            ],
            "found": [
                {"at": box, "label": str(name), "probability": float(result.probability[c]), "yes": bool(yes[c])}
                for box, name, c in zip(boxes[len(drawn) :].round(1).tolist(), named, mine.tolist(), strict=True)
            ],
            "words": f"{len(rows)} by {counted(len(order), 'annotator')}, {int(yes[mine].sum())} found",
        }  # fmt: skip

    def headline(self, result: Any) -> str:
        objects = counted(int(result.accepted.sum()), self.answer)
        return f"{objects} on {counted(len(result.items), 'item')}, {self.unsure(result)}."

    def unsure(self, result: Any, noun: str = "") -> str:
        doubt = int((np.abs(result.probability - 0.5) < SURE - 0.5).sum())
        return f"{counted(doubt, noun or 'candidate')} in doubt" if doubt else "none in doubt"

    def picture(self, result: Any, tables: list[dict[str, Any]]) -> dict[str, Any]:
        from crowdwise.report.section_summary import sureness

        return sureness(result.probability, self.answer, "candidate")
