"""How good masks are where the truth is known: Dice, IoU, Hausdorff distance and the mean distance of the edges.

Edges are the pixels of a mask that have a neighbour outside, left, right, above or below, or lie on the border. The
distance of an empty mask to another is the diagonal of the image, and 0 to an empty one.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from crowdwise.core.numerics import Floats
from crowdwise.data.masks import Pixels
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options


def mask_scores(result: Any, truth: Any, **options: Unpack[Options]) -> dict[str, Estimate]:
    """Means over items of Dice, IoU, Hausdorff distance and mean distance of edges (pixels), with intervals over items.

    ``result`` is a :class:`~crowdwise.MaskConsensus`; ``truth`` a mapping from item to mask, or N masks (``None`` for
    unknown).
    """
    rows: list[tuple[float, ...]] = []
    for found, true in result.against(truth):
        both, size = int(np.count_nonzero(found & true)), int(np.count_nonzero(found)) + int(np.count_nonzero(true))
        overlap = (2.0 * both / size, both / (size - both)) if size else (1.0, 1.0)
        rows.append((*overlap, *edge_distances(found, true)))
    by, table = Bootstrap(**options), np.array(rows)
    names = ("dice", "iou", "hausdorff", "edge_distance")
    return {name: by.mean(column) for name, column in zip(names, table.T, strict=True)}


def edge_distances(one: Pixels, two: Pixels) -> tuple[float, float]:
    """The Hausdorff distance of two edges, and the mean distance of a pixel of either edge to the other edge."""
    from scipy.spatial import cKDTree

    first, second = _edge(one), _edge(two)
    if not len(first) or not len(second):
        far = float(np.hypot(*one.shape)) if len(first) or len(second) else 0.0
        return far, far
    there, back = cKDTree(second).query(first)[0], cKDTree(first).query(second)[0]
    every = np.concatenate([there, back])
    return float(every.max()), float(every.mean())


def _edge(mask: Pixels) -> Floats:
    """The places of the pixels on the edge of a mask."""
    wide = np.pad(mask, 1)
    core = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.argwhere(mask & ~core).astype(np.float64)
