"""How good texts are where the truth is known: word and character error rate, chrF, and exact matches.

An error rate is the number of edits over the length of the true texts, summed over items first.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from crowdwise.core.numerics import Floats
from crowdwise.core.result import some_known
from crowdwise.core.text_distance import chrf as chrf_of
from crowdwise.core.text_distance import edit_distance
from crowdwise.data.texts import Tokens
from crowdwise.data.truth import encode_texts
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options


def text_scores(result: Any, truth: Any, **options: Unpack[Options]) -> dict[str, Estimate]:
    """Word error rate, character error rate, chrF and exact matches of a :class:`~crowdwise.TextConsensus`.

    ``truth`` is a mapping from item to text, or N texts (empty for unknown). Texts are compared as the method did:
    without case and punctuation unless it was asked to mind them.
    """
    true = encode_texts(truth, result.items)
    known = np.flatnonzero(some_known(true != ""))
    cut = Tokens(**result.tokens)
    found, right = cut.words(result.texts[known].tolist()), cut.words(true[known].tolist())
    plain = [(" ".join(a), " ".join(b)) for a, b in zip(found, right, strict=True)]
    words = np.array([(edit_distance(a, b), len(b)) for a, b in zip(found, right, strict=True)], dtype=float)
    letters = np.array([(edit_distance(a, b), len(b)) for a, b in plain], dtype=float)
    by, once = Bootstrap(**options), np.ones(len(known), dtype=np.int64)

    def rate(table: Floats) -> Estimate:
        return by.of_sums(table, once, lambda s: s[:, 0] / np.maximum(s[:, 1], 1.0), len(known))

    return {
        "word_error_rate": rate(words), "character_error_rate": rate(letters),
        "chrf": by.mean(np.array([chrf_of([a], [b])[0, 0] for a, b in plain])),
        "exact_match": by.share(np.array([a == b for a, b in plain], dtype=float)),
    }  # fmt: skip
