"""Which items can be compared at all: the graph of comparisons.

Scores of Bradley and Terry's model are finite and unique exactly where every set of items has won, somewhere, against
one outside it (Ford 1957): the graph with an arrow from each winner to the loser is strongly connected. With
Davidson's ties the same holds with ties as arrows both ways, as long as some items have beaten each other round a
circle; without a circle scores and ties can grow without bound together, which a linear programme finds out.

Where no comparison joins two parts of the items, the prior alone decides how the parts stand to each other.

Whether a preference for the item shown first can be separated from the scores: it depends on the order of the items.

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
import numpy.typing as npt

from crowdwise.answers import comparisons_matches as tables
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import conjugate_gradients
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.encoding import Mask, by_size
from crowdwise.errors import InputError, listing


def components(left: Ints, right: Ints, N: int, strong: bool = False) -> npt.NDArray[np.int32]:
    """The part of every item, the largest part 0, then by its first item; ``strong``: joined in both directions."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left)), (left, right)), shape=(N, N))
    count, part = connected_components(graph, directed=strong, connection="strong")
    return by_size(part, count)


def strong_components(matches: Matches, ties: bool = True) -> npt.NDArray[np.int32]:
    """Sets in which each has beaten (or, with ``ties``, tied with) each other, directly or through others."""
    i, j, d, N = matches.winner, matches.loser, matches.decided, matches.n_items
    if not ties:
        return components(i[:d], j[:d], N, strong=True)
    return components(np.append(i, j[d:]), np.append(j, i[d:]), N, strong=True)


def notes(part: npt.NDArray[np.int32], matches: Matches, names: npt.NDArray[np.object_]) -> list[str]:
    """Sentences on what rests on the prior."""
    out = []
    K = int(part.max()) + 1
    if K > 1:
        apart = names[part == 1]
        out.append(
            f"The items fall into {K} parts that no comparison joins (one is {listing(apart, 3)}): how the parts stand "
            "to each other is up to the prior. Compare items within a part (column component)."
        )
    if matches.decided == 0 and matches.n_ties:
        out.append("Every comparison is a tie: all items have the same score.")
        return out
    d, N = matches.decided, matches.n_items
    loses, wins = (np.bincount(side[:d], matches.weight[:d], N) for side in (matches.loser, matches.winner))
    tied = np.bincount(np.append(matches.winner[d:], matches.loser[d:]), minlength=N)
    for which, word in ((loses, "lost"), (wins, "won")):
        never = names[(which == 0) & (tied == 0) & (wins + loses > 0)]
        if len(never):
            out.append(f"Never {word}: {listing(never, 5)}. How far ahead or behind they are is up to the prior.")
    if matches.n_ties and not _ties_held(matches):
        out.append("No items have beaten each other round a circle: how far apart all scores are is up to the prior.")
    idle = names[(wins + loses + tied) == 0]
    if len(idle):
        out.append(f"Never compared: {listing(idle, 5)}. Their scores are the prior's.")
    return out


def check_identifiable(matches: Matches, names: npt.NDArray[np.object_]) -> None:
    """Without a prior: an error where scores are not finite and unique."""
    part = strong_components(matches)
    if int(part.max()) > 0:
        # Some set has never lost to the others, or is not joined to them at all.
        winner, loser = (part[side[: matches.decided]] for side in (matches.winner, matches.loser))
        top = int(np.setdiff1d(part, loser[winner != loser])[-1])
        raise InputError(
            f"Without a prior the scores are not finite: {listing(names[part == top])} never lost to the other items "
            f"({int(part.max()) + 1} such sets). Leave prior at its default, or collect comparisons that join them."
        )
    if matches.n_ties and not _ties_held(matches):
        raise InputError(
            "Without a prior the scores are not finite: no items have beaten each other round a circle, so scores and "
            "ties grow without end. Leave prior at its default, or use ties='half'."
        )


def _ties_held(matches: Matches) -> bool:
    """Whether scores and tau cannot grow without bound together (see the module's docstring)."""
    if matches.decided == 0:
        return False
    if np.bincount(strong_components(matches, ties=False)).max() > 1:
        return True
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    # A direction (scores, tau) in which no outcome that was seen becomes less probable, other than all scores alike:
    # won: d >= 0 and d / 2 >= tau; tied: tau >= |d| / 2. The one that goes furthest is looked for.
    N, d = matches.n_items, matches.decided
    i, j = matches.winner, matches.loser
    won, tied = np.arange(d), np.arange(d, len(i))

    kinds = ((won, -0.5, 0.0), (won, -0.5, 1.0), (tied, 0.5, -1.0), (tied, -0.5, -1.0))
    columns = np.concatenate([np.stack([i[rows], j[rows], np.full(len(rows), N)], axis=1) for rows, _, _ in kinds])
    values = np.concatenate([np.tile([sign, -sign, tau], len(rows)) for rows, sign, tau in kinds])
    lines = np.repeat(np.arange(len(columns)), 3)
    A = coo_array((values, (lines, columns.ravel())), shape=(len(columns), N + 1)).tocsr()
    goal = np.asarray(A.sum(axis=0)).ravel()  # the sum of all slacks, to be as negative as can be
    optimum = linprog(goal, A_ub=A, b_ub=np.zeros(A.shape[0]), bounds=[(-1.0, 1.0)] * (N + 1))
    return bool(optimum.status == 0 and optimum.fun > -1e-7)


MIN_PLACED = 20
"""So many comparisons by an annotator are enough for a position."""
CONFOUNDED = 0.5
"""The largest share of positions that scores may stand for."""


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
    """M: whether repeated pairs are (nearly) always in one order: where 20 or more comparisons are of such pairs, a
    fifth of them must be balanced by the other order."""
    N, a, b = table.n_items, table.left.astype(np.int64), table.right.astype(np.int64)
    cell = (who * N + np.minimum(a, b)) * N + np.maximum(a, b)
    pair, at = np.unique(cell, return_inverse=True)
    size, first = np.bincount(at), np.bincount(at, a < b)
    owner, again = pair // (N * N), size > 1
    repeated = np.bincount(owner, np.where(again, size, 0), M)
    balanced = np.bincount(owner, np.where(again, 2.0 * np.minimum(first, size - first), 0.0), M)
    return (repeated >= 20) & (balanced < 0.2 * repeated)


def _stood_for(table: Comparisons, rows: Mask) -> float:
    """R^2: the share of a constant preference that scores can stand for."""
    w, N = table.weights[rows], table.n_items
    left, right = table.left[rows].astype(np.int64), table.right[rows].astype(np.int64)
    n = float(w.sum())
    d: Floats = tables.total(left, w, N) - tables.total(right, w, N)
    L = tables.add_diagonal(tables.laplacian(tables.pair_table(left, right, w, N)), np.full(N, 1e-9 * n))
    potential = conjugate_gradients(lambda u: np.asarray(L @ u), d, np.asarray(L.diagonal()))
    return 1.0 if potential is None else float(d @ potential) / n
