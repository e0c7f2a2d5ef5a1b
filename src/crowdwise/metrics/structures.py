"""How good texts, spans, boxes and masks are where the truth is known.

An error rate is the number of edits over the length of the true texts, summed over items first.

F1 = 2 pairs / (spans found + true spans), summed over items first. A pair has the same label, and each span is in one
pair at most. ``exact``: start and end are equal. ``overlap``: the two share half of their union or more. Of characters,
every character with its label counts by itself.

An object matches a true box of the same label; each is in one match at most, and as many as possible are made. F1 is
2 matches / (objects + true boxes), summed over items first.

Edges are the pixels of a mask that have a neighbour outside, left, right, above or below, or lie on the border. The
distance of an empty mask to another is the diagonal of the image, and 0 to an empty one.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from crowdwise.core.result import some_known
from crowdwise.core.span_overlap import HALF, matches, shared_characters
from crowdwise.core.text_distance import chrf as chrf_of
from crowdwise.core.text_distance import edit_distance
from crowdwise.data.masks import Pixels
from crowdwise.data.spans import encode_spans
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
    written, right = cut.words(result.texts[known].tolist()), cut.words(true[known].tolist())
    plain = [(" ".join(a), " ".join(b)) for a, b in zip(written, right, strict=True)]
    words = np.array([(edit_distance(a, b), len(b)) for a, b in zip(written, right, strict=True)], dtype=float)
    letters = np.array([(edit_distance(a, b), len(b)) for a, b in plain], dtype=float)
    by = Bootstrap(**options)
    return {
        "word_error_rate": by.ratio(*words.T, empty=0.0), "character_error_rate": by.ratio(*letters.T, empty=0.0),
        "chrf": by.mean(np.array([chrf_of([a], [b])[0, 0] for a, b in plain])),
        "exact_match": by.share(np.array([a == b for a, b in plain], dtype=float)),
    }  # fmt: skip


def span_set_scores(
    result: Any, truth: Any, *, overlap: float = HALF, **options: Unpack[Options]
) -> dict[str, Estimate]:
    """F1 of exact spans, F1 by overlap with its precision and recall, and F1 of characters.

    ``result`` is a :class:`~crowdwise.SpanConsensus`; ``truth`` a mapping from item to (label, start, end), or N lists
    of such, ``None`` for unknown. ``overlap`` is the share of their union that two spans must have in common.
    """
    true = encode_spans(truth, result.items)
    known = np.flatnonzero(some_known(np.array([spans is not None for spans in true])))
    spans = result.spans()
    exact, near, mine, theirs, shared, own, right = np.array([
        (matches(spans[n], true[n], 1.0), matches(spans[n], true[n], overlap), len(spans[n]), len(true[n]),
         *shared_characters(spans[n], true[n]))
        for n in known.tolist()
    ], dtype=float).T  # fmt: skip
    shares = {
        "f1_exact": (2.0 * exact, mine + theirs), "f1_overlap": (2.0 * near, mine + theirs),
        "precision_overlap": (near, mine), "recall_overlap": (near, theirs),
        "f1_characters": (2.0 * shared, own + right),
    }  # fmt: skip
    return {name: Bootstrap(**options).ratio(*share, empty=1.0) for name, share in shares.items()}


THRESHOLDS = tuple((0.5 + 0.05 * np.arange(10)).round(2).tolist())


def box_scores(result: Any, truth: Any, **options: Unpack[Options]) -> dict[str, Estimate]:
    """Figures of a :class:`~crowdwise.BoxConsensus`: ``f1_50``, ``f1_75`` and ``f1_mean`` (IoU of 0.5 to 0.95),
    ``precision_50``, ``recall_50``, the ``mean_iou`` of matches at 0.5, and objects over true boxes (``count_ratio``).

    ``truth`` is a mapping from item to a list of (label, x1, y1, x2, y2), N such lists (``None``: unknown), or a table.
    """
    tables = result.matches(truth, THRESHOLDS)
    right, drawn, true, overlap = tables[0].T
    twice = [2.0 * table[:, 0] for table in tables]
    shares = {
        "f1_50": (twice[0], drawn + true), "f1_75": (twice[THRESHOLDS.index(0.75)], drawn + true),
        "f1_mean": (np.mean(twice, axis=0), drawn + true), "precision_50": (right, drawn),
        "recall_50": (right, true), "mean_iou": (overlap, right), "count_ratio": (drawn, true),
    }  # fmt: skip
    return {name: Bootstrap(**options).ratio(*share, empty=0.0) for name, share in shares.items()}


def mask_scores(result: Any, truth: Any, **options: Unpack[Options]) -> dict[str, Estimate]:
    """Means over items of Dice, IoU, Hausdorff distance and mean distance of edges (pixels), with intervals over items.

    ``result`` is a :class:`~crowdwise.MaskConsensus`; ``truth`` a mapping from item to mask, or N masks (``None`` for
    unknown).
    """
    rows: list[tuple[float, ...]] = []
    for mask, true in result.against(truth):
        both, size = int(np.count_nonzero(mask & true)), int(np.count_nonzero(mask)) + int(np.count_nonzero(true))
        overlap = (2.0 * both / size, both / (size - both)) if size else (1.0, 1.0)
        rows.append((*overlap, *edge_distances(mask, true)))
    by, table = Bootstrap(**options), np.array(rows)
    names = ("dice", "iou", "hausdorff", "edge_distance")
    return {name: by.mean(column) for name, column in zip(names, table.T, strict=True)}


def edge_distances(one: Pixels, two: Pixels) -> tuple[float, float]:
    """The Hausdorff distance of two edges, and the mean distance of a pixel of either edge to the other edge."""
    from scipy.spatial import cKDTree

    first, second = (np.argwhere(edge(mask)).astype(np.float64) for mask in (one, two))
    if not len(first) or not len(second):
        far = float(np.hypot(*one.shape)) if len(first) or len(second) else 0.0
        return far, far
    there, back = cKDTree(second).query(first)[0], cKDTree(first).query(second)[0]
    every = np.concatenate([there, back])
    return float(every.max()), float(every.mean())


def edge(mask: Pixels) -> Pixels:
    """The pixels on the edge of a mask."""
    wide = np.pad(mask, 1)
    core = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.asarray(mask & ~core)
