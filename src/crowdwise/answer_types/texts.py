"""Texts. Findings: ``inexact``, annotators whose words are confirmed less often than half of the others'; ``items``,
texts of which fewer than ``DOUBTFUL`` of the words are expected to be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from crowdwise import metrics  # its names are imported when they are used
from crowdwise.answer_types.base import AnswerRules, Figures, Frame, line, where
from crowdwise.core.text_distance import edit_distances
from crowdwise.data.texts import Texts, Tokens
from crowdwise.metrics.bootstrap import Bootstrap, Options
from crowdwise.trust.agreement_coefficients import ratio
from crowdwise.trust.flags import Finding
from crowdwise.trust.wording import IN_DOUBT, INEXACT, counted, percent

DOUBTFUL = 0.9


class TextRules(AnswerRules):
    """Texts: one for each item, put together or chosen."""

    answer = "text"
    kinds: ClassVar = {"inexact": INEXACT, "items": IN_DOUBT}

    def agreement(self, answers: Texts, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """The mean likeness of two texts on an item (1 - edits / words of the longer), and the share of equal ones."""
        words = Tokens().words(answers.texts.tolist())
        sums = []
        for lo, hi in zip(answers.indptr[:-1].tolist(), answers.indptr[1:].tolist(), strict=True):
            far = edit_distances([words[code] for code in answers.text[lo:hi]], True)[np.triu_indices(hi - lo, 1)]
            sums.append((len(far) - far.sum(), (far == 0.0).sum(), len(far)))
        table = np.array(sums, dtype=float)
        by, once, n = Bootstrap(**options), np.ones(len(table), dtype=np.int64), int((table[:, 2] > 0).sum())
        likeness, same = table[:, [0, 2]], table[:, [1, 2]]
        return {
            "likeness": by.of_sums(likeness, once, lambda s: ratio(s[:, 0], s[:, 1]), n),
            "percent": by.of_sums(same, once, lambda s: ratio(s[:, 0], s[:, 1]), n),
        }

    def truth(self, answers: Texts) -> Any:
        return None if answers.truth is None or not (answers.truth != "").any() else answers.truth

    def measures(self, answers: Any, result: Any, truth: Any) -> Figures:
        return dict(metrics.text_scores(result, truth))

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people, items = frames["annotators"], frames["items"]
        middle = float(np.nanmedian(people["accuracy"]))
        weak = where(people["accuracy_high"] < middle, -people["accuracy"])
        figures = [f"{percent(people['accuracy'][m])} of the words, the median is {percent(middle)}" for m in weak]
        yield from line(
            "inexact", "Confirmed less often than half of the others", "annotator", people["annotator"][weak], figures
        )
        if "word_accuracy" in items:
            doubt = where(items["word_accuracy"] < DOUBTFUL, -items["word_accuracy"])
            figures = [f"{percent(items['word_accuracy'][n])} of the words" for n in doubt]
            yield from line("items", "Words in doubt", self.noun, items["item"][doubt], figures)

    def unsure(self, result: Any, noun: str = "") -> str:
        if result.word_accuracy is None:
            return ""
        doubt = int((result.word_accuracy < DOUBTFUL).sum())
        right = percent(float(np.mean(result.word_accuracy)))
        return f"{right} of the words expected to be right, {counted(doubt, noun or 'text')} in doubt"
