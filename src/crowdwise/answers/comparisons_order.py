"""Whether a preference for the item shown first can be separated from the scores: it depends on the order of the items.

Positions of an annotator are known where

- the order is known, and the annotator made ``MIN_PLACED`` comparisons or more;
- pairs that were compared again were seen in both orders: an annotator with all repeated pairs in one order (verdicts
  that were averaged over both, models in alphabetical order) holds no information about positions;
- scores cannot stand for them. A preference for the first item adds a constant to every s_left - s_right. The share of
  it that scores can stand for is R^2 = d' L^+ d / n, d how much more often each item is left than right, L the
  Laplacian of the pairs; it is 1 where the better items always come first in a fixed order.
"""

from __future__ import annotations

import numpy as np

from crowdwise.answers import comparisons_matrices as tables
from crowdwise.answers.comparisons_newton import conjugate_gradients
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.encoding import Mask

MIN_PLACED = 20
"""So many comparisons by an annotator are enough for a position."""
MIN_REPEATED, BOTH = 20, 0.2
"""Where so many comparisons are of repeated pairs, this share of them must be balanced by the other order."""
CONFOUNDED = 0.5
"""The largest share of positions that scores may stand for."""

__all__ = ["in_one_order", "order_note", "positions_known"]


def positions_known(table: Comparisons) -> Mask:
    """M: whose position can be estimated."""
    M = table.n_annotators
    none = np.zeros(M, dtype=bool)
    if not table.placed or in_one_order(table, np.zeros(table.n_answers, dtype=np.int64), 1)[0]:
        return none
    n = np.bincount(table.annotator, minlength=M)
    known = (n >= MIN_PLACED) & ~in_one_order(table, table.annotator.astype(np.int64), M)
    if not known.any():
        return none
    return known if _stood_for(table, known[table.annotator]) <= CONFOUNDED else none


def order_note(table: Comparisons) -> list[str]:
    """A sentence where scores could stand for most of a preference for the item shown first, and for much more of it
    than they could of an order drawn by lot: (N - 1) / n, as many as there are scores for n comparisons."""
    if not table.placed or table.n_answers < MIN_PLACED:
        return []
    share = min(_stood_for(table, np.ones(table.n_answers, dtype=bool)), 1.0)
    by_lot = (table.n_items - 1) / table.n_answers
    if share <= CONFOUNDED * (1.0 + by_lot):
        return []
    return [
        f"Which item comes first depends on the items. If that is the order in which they were shown, {share:.0%} of a "
        "preference for the first place cannot be told from scores: compare the pairs in both orders."
    ]


def in_one_order(table: Comparisons, who: Ints, M: int) -> Mask:
    """M: whether repeated pairs are (nearly) always in one order."""
    N, a, b = table.n_items, table.left.astype(np.int64), table.right.astype(np.int64)
    cell = (who * N + np.minimum(a, b)) * N + np.maximum(a, b)
    pair, at = np.unique(cell, return_inverse=True)
    size, first = np.bincount(at), np.bincount(at, a < b)
    owner, again = pair // (N * N), size > 1
    repeated = np.bincount(owner, np.where(again, size, 0), M)
    balanced = np.bincount(owner, np.where(again, 2.0 * np.minimum(first, size - first), 0.0), M)
    return (repeated >= MIN_REPEATED) & (balanced < BOTH * repeated)


def _stood_for(table: Comparisons, rows: Mask) -> float:
    """R^2: the share of a constant preference that scores can stand for."""
    w, N = table.weights[rows], table.n_items
    left, right = table.left[rows].astype(np.int64), table.right[rows].astype(np.int64)
    n = float(w.sum())
    d: Floats = tables.total(left, w, N) - tables.total(right, w, N)
    L = tables.add_diagonal(tables.laplacian(tables.pair_table(left, right, w, N), N, N), np.full(N, 1e-9 * n))
    potential = conjugate_gradients(lambda u: np.asarray(L @ u), d, np.asarray(L.diagonal()))
    return 1.0 if potential is None else float(d @ potential) / n
