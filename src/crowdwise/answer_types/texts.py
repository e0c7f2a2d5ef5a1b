"""Texts. Findings: ``inexact``, annotators whose words are confirmed less often than half of the others'; ``items``,
texts of which fewer than ``DOUBTFUL`` of the words are expected to be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from crowdwise.answer_types.base import AnswerRules, Figures, Frame, line, right_to_left, where
from crowdwise.core.numerics import Floats
from crowdwise.core.text_distance import align, edit_distance, edit_distances
from crowdwise.data.texts import Texts, Tokens
from crowdwise.data.truth import encode_texts
from crowdwise.metrics.bootstrap import Bootstrap, Options
from crowdwise.trust.flags import Finding
from crowdwise.trust.wording import IN_DOUBT, INEXACT, counted, percent

DOUBTFUL = 0.9


class TextRules(AnswerRules):
    """Texts: one for each item, put together or chosen."""

    answer = "text"
    measured = "text_scores"
    drawn = (
        "First what was found, word by word: the redder, the less sure. Below it each text; words that differ are "
        "marked."
    )
    units: ClassVar = {"word_accuracy": "%", "likeness": "%"}
    kinds: ClassVar = {"inexact": INEXACT, "items": IN_DOUBT}

    def agreement(self, answers: Texts, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """The mean likeness of two texts on an item (1 - edits / words of the longer), and the share of equal ones."""
        words = Tokens().words(answers.texts.tolist())
        sums = []
        for lo, hi in pairwise(answers.indptr.tolist()):
            far = edit_distances([words[code] for code in answers.text[lo:hi]], True)[np.triu_indices(hi - lo, 1)]
            sums.append((len(far) - far.sum(), (far == 0.0).sum(), len(far)))
        likeness, same, pairs = np.array(sums, dtype=float).T
        by, n = Bootstrap(**options), int((pairs > 0).sum())
        return {"likeness": by.ratio(likeness, pairs, n), "percent": by.ratio(same, pairs, n)}

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people, items = frames["annotators"], frames["items"]
        middle = float(np.nanmedian(people["accuracy"]))
        weak = where(people["accuracy_high"] < middle, -people["accuracy"])
        figures = [f"{percent(people['accuracy'][m])} of the words, the median is {percent(middle)}" for m in weak]
        words = "Confirmed less often than half of the others"
        yield from line("inexact", words, "annotator", people["annotator"][weak], figures)
        if "word_accuracy" in items:
            doubt = where(items["word_accuracy"] < DOUBTFUL, -items["word_accuracy"])
            figures = [f"{percent(items['word_accuracy'][n])} of the words" for n in doubt]
            yield from line("items", "Words in doubt", self.noun, items["item"][doubt], figures)

    def doubts(self, result: Any) -> Floats:
        return 1.0 - np.asarray(result.likeness if result.word_accuracy is None else result.word_accuracy)

    def losses(self, result: Any, truth: Any) -> Floats:
        """Edits over words of the truth, at most 1."""
        true, cut = encode_texts(truth, result.items), Tokens(**result.tokens)
        pairs = zip(cut.words(result.texts.tolist()), cut.words(true.tolist()), strict=True)
        rates = [min(1.0, edit_distance(a, b) / max(len(b), 1)) for a, b in pairs]
        return np.where(true == "", np.nan, rates)

    def drawing(self, answers: Texts, result: Any, n: int, about: Any) -> dict[str, Any]:
        """The words of all texts, aligned; those that differ from what was found are marked."""
        cut = Tokens(**result.tokens)
        lo, hi = int(answers.indptr[n]), int(answers.indptr[n + 1])
        texts = [str(result.texts[n])]
        written = [cut.of([text])[0] for text in texts + answers.texts[answers.text[lo:hi]].tolist()]
        place = {word: k for k, word in enumerate(sorted({word for one in written for word in one.words}))}
        slots = align([tuple(place[word] for word in one.words) for one in written], range(len(written)), len(written))
        names = list(place)
        mine = result.word_probability[result.word_item == n]
        sure = iter(mine.tolist()) if len(mine) == len(written[0].words) else iter([])
        first = [
            {"word": names[slot[0]] if slot[0] >= 0 else "", "probability": next(sure, None) if slot[0] >= 0 else None}
            for slot in slots
        ]
        rows = [
            {
                "who": str(answers.annotators[answers.annotator[lo + t]]),
                "words": [
                    {"word": names[slot[t + 1]] if slot[t + 1] >= 0 else "", "same": slot[t + 1] == slot[0]}
                    for slot in slots
                ],
            }
            for t in range(hi - lo)
        ]
        return {
            "kind": "texts", "text": texts[0], "first": first, "rows": rows, "words": counted(hi - lo, "text"),
            "rtl": right_to_left(texts[0]),
        }  # fmt: skip

    def unsure(self, result: Any, noun: str = "") -> str:
        if result.word_accuracy is None:
            return ""
        doubt = int((result.word_accuracy < DOUBTFUL).sum())
        right = percent(float(np.mean(result.word_accuracy)))
        return f"{right} of the words expected to be right, {counted(doubt, noun or 'text')} in doubt"
