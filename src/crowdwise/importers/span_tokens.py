"""Spans of characters as tags of tokens: a text is cut into words, and further wherever some span begins or ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

WORD = re.compile(r"\w+|[^\w\s]")
Span = tuple[int, int, str]
"""Where a span begins, where it ends (that character not included), and its label."""


def tokens_of(text: str, spans: Iterable[Span]) -> list[tuple[int, int]]:
    """The tokens of a text, so that every span begins and ends with a token.

    >>> tokens_of("Anna saw Paris.", [(0, 2, "PER")])
    [(0, 2), (2, 4), (5, 8), (9, 14), (14, 15)]
    """
    cuts = sorted({place for start, end, _ in spans for place in (start, end)})
    out: list[tuple[int, int]] = []
    for found in WORD.finditer(text):
        inside = [cut for cut in cuts if found.start() < cut < found.end()]
        places = [found.start(), *inside, found.end()]
        out += pairwise(places)
    return out


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """The spans of one annotator; of those that overlap, the longest."""
    kept: list[Span] = []
    for start, end, label in sorted(set(spans), key=lambda span: (span[0] - span[1], span)):
        if end > start and all(end <= other[0] or start >= other[1] for other in kept):
            kept.append((start, end, label))
    return sorted(kept)


def bio(tokens: Sequence[tuple[int, int]], spans: Iterable[Span]) -> list[str]:
    """The tag of each token: ``B-label`` where a span begins, ``I-label`` in it, ``O`` elsewhere.

    >>> bio([(0, 4), (5, 8), (9, 14)], [(0, 8, "X")])
    ['B-X', 'I-X', 'O']
    """
    tags = ["O"] * len(tokens)
    for start, end, label in spans:
        begun = False
        for n, (first, last) in enumerate(tokens):
            if first < end and last > start:
                tags[n] = f"{'I' if begun else 'B'}-{label}"
                begun = True
    return tags
