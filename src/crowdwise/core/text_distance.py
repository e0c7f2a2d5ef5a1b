"""How far texts are from each other: edits of words or characters, and chrF, which counts n-grams of characters; and
the words of several texts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from crowdwise.core.loop import check_cost
from crowdwise.core.numerics import Floats

ORDER, BETA = 6, 2.0
"""Of chrF: n-grams of up to so many characters, and how much more recall counts than precision (Popovic 2015)."""

LONG = 2_000
"""Words of a long text."""
MANY, FEWER = 2**28, "Read fewer or shorter texts."
"""Bytes from which on memory and time are looked at first, and what to do about them."""


def edit_distance(one: Sequence[Any], two: Sequence[Any]) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein)."""
    from rapidfuzz.distance import Levenshtein

    hint = min(len(one), len(two)) // 10  # a narrow band of the table first, which is enough where texts are alike
    return int(Levenshtein.distance(one, two, score_hint=hint if hint > LONG else None))


def edit_distances(sequences: Sequence[Sequence[Any]], normalised: bool = False) -> Floats:
    """The edit distance of every two sequences; ``normalised``: over the length of the longer one."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    if (need := 8.0 * len(sequences) ** 2) > MANY:
        check_cost(f"{len(sequences):,} texts on one item are compared, each with each", need, 0.0, FEWER)
    if min(map(len, sequences), default=0) > LONG:  # pair by pair, where one takes longer than all calls
        out = np.zeros((len(sequences), len(sequences)))
        for (i, one), (j, two) in combinations(enumerate(sequences), 2):
            out[i, j] = out[j, i] = edit_distance(one, two) / (max(len(one), len(two)) if normalised else 1.0)
        return out
    measure = Levenshtein.normalized_distance if normalised else Levenshtein.distance
    return np.asarray(process.cdist(sequences, sequences, scorer=measure, dtype=np.float64))


def chrf(candidates: Sequence[str], references: Sequence[str]) -> Floats:
    """chrF of every candidate against every reference, between 0 and 1; blanks do not count.

    >>> chrf(["red house"], ["red house", "red mouse", "blue"]).round(2).tolist()
    [[1.0, 0.38, 0.07]]
    """
    texts = ["".join(text.split()) for text in (*candidates, *references)]
    cut = len(candidates)
    precision, recall = np.zeros((2, cut, len(references)))
    orders = np.zeros((cut, len(references)))
    for n in range(1, ORDER + 1):
        place: dict[str, int] = {}
        grams = [[place.setdefault(t[i : i + n], len(place)) for i in range(len(t) - n + 1)] for t in texts]
        need = 24.0 * len(texts) * len(place)
        if need > MANY:
            what = f"{len(texts) // 2:,} texts on one item are compared, each with each"
            check_cost(what, need, need * len(texts), FEWER)
        count = np.array([np.bincount(g, minlength=len(place)) for g in grams], dtype=np.float64)
        one, two = count[:cut], count[cut:]
        size_one, size_two = one.sum(axis=1)[:, None], two.sum(axis=1)[None]
        both = np.array([np.minimum(row, two).sum(axis=1) for row in one]).reshape(cut, len(references))
        precision += both / np.maximum(size_one, 1.0)
        recall += both / np.maximum(size_two, 1.0)
        orders += (size_one > 0) | (size_two > 0)
    precision, recall = precision / np.maximum(orders, 1.0), recall / np.maximum(orders, 1.0)
    total = BETA**2 * precision + recall
    score = np.divide((1.0 + BETA**2) * precision * recall, total, out=np.zeros_like(total), where=total > 0)
    return np.where(orders == 0, 1.0, score)


Slot = list[int]
"""One entry for each text: its token, or -1."""


def align(sequences: Sequence[tuple[int, ...]], texts: Sequence[int], R: int) -> list[Slot]:
    """The slots of some token sequences, those of ``texts`` among R.

    >>> align([(1, 2, 3), (1, 3), (1, 2, 4, 3)], [0, 1, 2], 3)
    [[1, 1, 1], [2, -1, 2], [-1, -1, 4], [3, 3, 3]]
    """
    from rapidfuzz.distance import Levenshtein

    distance = edit_distances(sequences) if len(sequences) > 2 else np.zeros((2, 2))  # two are equally far
    c = min(range(len(sequences)), key=lambda i: (distance[i].sum(), sequences[i]))
    centre = sequences[c]
    main = [[-1] * R for _ in centre]
    between: list[dict[int, list[int]]] = [{} for _ in range(len(centre) + 1)]
    for sequence, text in zip(sequences, texts, strict=True):
        for step in Levenshtein.opcodes(centre, sequence):
            piece = sequence[step.dest_start : step.dest_end]
            if step.tag == "insert":
                between[step.src_start].setdefault(text, []).extend(piece)
            elif step.tag != "delete":
                for slot, token in zip(main[step.src_start : step.src_end], piece, strict=True):
                    slot[text] = token
    out: list[Slot] = []
    for n, inserted in enumerate(between):
        if inserted:
            out += align([tuple(piece) for piece in inserted.values()], list(inserted), R)
        out += main[n : n + 1]
    return out
