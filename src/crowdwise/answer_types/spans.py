"""Spans: stretches of a text with labels.

============  =======================================================================================================
finding       condition
============  =======================================================================================================
``misses``    the whole interval of an annotator's detection rate is under half of the median
``invents``   the whole interval of the false spans per item is over twice the median, and over one in ten items
``loose``     the whole interval of the boundary noise is over twice the median
``items``     spans in doubt
============  =======================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from crowdwise.answer_types.base import DOUBT, MISSES, AnswerRules, Figures, Frame, f1_loss, line, right_to_left, where
from crowdwise.core.numerics import Floats
from crowdwise.core.span_overlap import matches
from crowdwise.data.spans import Spans, encode_spans
from crowdwise.metrics.bootstrap import Bootstrap, Options
from crowdwise.trust.flags import Finding, FindingWords, Verdict
from crowdwise.trust.span_agreement import disorders, pair_sums
from crowdwise.trust.wording import IN_DOUBT, counted, percent

SHOWN = 2000
"""Characters of a text that are drawn."""


class SpanRules(AnswerRules):
    """Spans: any number for an item."""

    answer = "span"
    measured = "span_set_scores"
    drawn = "Underlined: the spans that were found. Below, where each annotator marked something."
    units: ClassVar = {
        "start": "place", "end": "place", "detection": "%", "label_accuracy": "%", "false_alarms": "per item",
        "boundary_noise": "places",
    }  # fmt: skip
    kinds: ClassVar = {
        "misses": MISSES,
        "invents": FindingWords(
            "Annotators who mark too much", "Show them examples of what does not belong.", Verdict.LOOK
        ),
        "loose": FindingWords("Annotators with loose boundaries", "Show them where spans begin and end.", Verdict.LOOK),
        "items": IN_DOUBT,
    }  # fmt: skip

    def agreement(self, answers: Spans, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """Gamma; the F1 of exact spans and of spans by overlap, averaged over pairs of annotators."""
        by, shared = Bootstrap(**options), int((np.diff(answers.indptr) > 1).sum())
        marked, chance = disorders(answers, random_state=options.get("random_state", 0)).T
        exact, overlap, size = pair_sums(answers).T
        return {
            "gamma": by.ratio(chance - marked, chance, int((chance > 0).sum())),
            "span f1": by.ratio(exact, size, shared), "overlap f1": by.ratio(overlap, size, shared),
        }  # fmt: skip

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people, items = frames["annotators"], frames["items"]

        def median(name: str) -> float:
            known = people[name][np.isfinite(people[name])]
            return float(np.median(known)) if len(known) else np.nan

        detected, false, noise = (median(name) for name in ("detection", "false_alarms", "boundary_noise"))
        checks: tuple[tuple[Any, ...], ...] = (
            ("misses", "Misses much", "detection", people["detection_high"] < detected / 2.0, -1.0,
             lambda x: f"marks {percent(x)}, the median is {percent(detected)}"),
            ("invents", "Marks too much", "false_alarms", people["false_alarms_low"] > max(2.0 * false, 0.1), 1.0,
             lambda x: f"{x:.1f} false spans per item, the median is {false:.1f}"),
            ("loose", "Loose boundaries", "boundary_noise", people["boundary_noise_low"] > 2.0 * noise, 1.0,
             lambda x: f"off by {x:.1f}, the median is {noise:.1f}"),
        )  # fmt: skip
        for kind, words, name, flagged, sign, written in checks:
            value = people[name]
            who = where(flagged & np.isfinite(value), sign * np.nan_to_num(value))
            yield from line(kind, words, "annotator", people["annotator"][who], [written(value[m]) for m in who])
        span = np.array([label is not None for label in items["label"]])
        doubt = where(span & (items["probability"] < DOUBT), -items["probability"])
        figures = [f"{items['start'][c]} to {items['end'][c]}, {percent(items['probability'][c])}" for c in doubt]
        yield from line("items", "Spans in doubt", self.noun, items["item"][doubt], figures)

    def doubts(self, result: Any) -> Floats:
        return f1_loss(result.item, result.probability, result.probability > 0.5, len(result.items))

    def losses(self, result: Any, truth: Any) -> Floats:
        """1 - F1 by overlap."""
        out = np.full(len(result.items), np.nan)
        for n, (mine, true) in enumerate(zip(result.spans(), encode_spans(truth, result.items).tolist(), strict=True)):
            if true is not None:
                size = len(mine) + len(true)
                out[n] = 1.0 - 2.0 * matches(mine, true) / size if size else 0.0
        return out

    def drawing(self, answers: Spans, result: Any, n: int, about: Any) -> dict[str, Any]:
        """The text with the spans that were found underlined, and a row of marks for each annotator."""
        rows = np.arange(answers.indptr[n], answers.indptr[n + 1])
        rows = rows[answers.label[rows] >= 0]
        mine = np.flatnonzero(result.item == n)
        length = -1 if answers.length is None else int(answers.length[n])
        text = about if isinstance(about, str) and length in (-1, len(about)) else None
        size = length if text is None else len(text)
        size = max([size, *answers.end[rows].tolist(), *result.end[mine].tolist(), 1])

        def bar(start: int, end: int) -> list[float]:
            return [round(100.0 * start / size, 2), round(100.0 * (end - start) / size, 2)]

        shown: list[dict[str, Any]] = [
            {
                "at": bar(result.start[c], result.end[c]), "label": str(result.labels[result.label[c]]),
                "start": int(result.start[c]), "end": int(result.end[c]), "probability": float(result.probability[c]),
            }
            for c in mine.tolist()
            if result.probability[c] > 0.5
        ]  # fmt: skip
        parts: list[dict[str, Any]] = []
        if text is not None:
            cuts = sorted({0, min(size, SHOWN), *(min(p[end], SHOWN) for p in shown for end in ("start", "end"))})
            parts = [
                {"text": text[a:b], "labels": [p["label"] for p in shown if p["start"] <= a and p["end"] >= b]}
                for a, b in pairwise(cuts)
            ]
        who = np.unique(answers.annotator[answers.indptr[n] : answers.indptr[n + 1]]).tolist()
        marks = [
            {
                "who": str(answers.annotators[m]),
                "bars": [
                    {"at": bar(answers.start[r], answers.end[r]), "label": str(answers.labels[answers.label[r]])}
                    for r in rows[answers.annotator[rows] == m].tolist()
                ],
            }
            for m in who
        ]
        words = f"{counted(len(who), 'annotator')}, {counted(len(shown), 'span')} found"
        return {
            "kind": "spans", "parts": parts, "cut": size > SHOWN, "found": shown, "rows": marks, "words": words,
            "rtl": right_to_left(text or ""),
        }  # fmt: skip

    def headline(self, result: Any) -> str:
        return f"{counted(len(result.chosen), 'span')} in {counted(len(result.items), 'item')}, {self.unsure(result)}."

    def unsure(self, result: Any, noun: str = "") -> str:
        doubt = int((result.probability[result.chosen] < DOUBT).sum())
        return f"{counted(doubt, noun or 'span')} in doubt"
