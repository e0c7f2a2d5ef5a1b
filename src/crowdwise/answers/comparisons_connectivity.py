"""Which items can be compared at all: the graph of comparisons.

Scores of Bradley and Terry's model are finite and unique exactly where every set of items has won, somewhere, against
one outside it (Ford 1957): the graph with an arrow from each winner to the loser is strongly connected. With
Davidson's ties the same holds with ties as arrows both ways, as long as some items have beaten each other round a
circle; without a circle scores and ties can grow without bound together, which a linear programme finds out.

Where no comparison joins two parts of the items, the prior alone decides how the parts stand to each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdwise.answers.comparisons_matches import Matches
from crowdwise.core.numerics import Ints
from crowdwise.data.encoding import by_size
from crowdwise.errors import InputError, listing


def components(left: Ints, right: Ints, N: int) -> npt.NDArray[np.int32]:
    """The part of every item, the largest part 0, then by its first item."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left)), (left, right)), shape=(N, N))
    count, part = connected_components(graph, directed=False)
    return by_size(part, count)


def strong_components(matches: Matches, ties: bool = True) -> npt.NDArray[np.int32]:
    """Sets in which each has beaten (or, with ``ties``, tied with) each other, directly or through others."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    d = matches.decided
    tail = [matches.winner, matches.loser[d:]] if ties else [matches.winner[:d]]
    head = [matches.loser, matches.winner[d:]] if ties else [matches.loser[:d]]
    i, j = np.concatenate(tail), np.concatenate(head)
    graph = coo_array((np.ones(len(i)), (i, j)), shape=(matches.n_items, matches.n_items))
    count, part = connected_components(graph, directed=True, connection="strong")
    return by_size(part, count)


def notes(part: npt.NDArray[np.int32], matches: Matches, names: npt.NDArray[np.object_]) -> list[str]:
    """Sentences on what rests on the prior."""
    found = []
    K = int(part.max()) + 1
    if K > 1:
        apart = names[part == 1]
        found.append(
            f"The items fall into {K} parts that no comparison joins (one is {listing(apart, 3)}): how the parts stand "
            "to each other is up to the prior. Compare items within a part (column component)."
        )
    if matches.decided == 0 and matches.n_ties:
        found.append("Every comparison is a tie: all items have the same score.")
        return found
    loses = np.bincount(matches.loser[: matches.decided], matches.weight[: matches.decided], matches.n_items)
    wins = np.bincount(matches.winner[: matches.decided], matches.weight[: matches.decided], matches.n_items)
    tied = np.bincount(np.concatenate([matches.winner[matches.decided :], matches.loser[matches.decided :]]),
                       minlength=matches.n_items)  # fmt: skip
    for which, word in ((loses, "lost"), (wins, "won")):
        never = names[(which == 0) & (tied == 0) & (wins + loses > 0)]
        if len(never):
            found.append(f"Never {word}: {listing(never, 5)}. How far ahead or behind they are is up to the prior.")
    idle = names[(wins + loses + tied) == 0]
    if len(idle):
        found.append(f"Never compared: {listing(idle, 5)}. Their scores are the prior's.")
    return found


def check_identifiable(matches: Matches, names: npt.NDArray[np.object_]) -> None:
    """Without a prior: an error where scores are not finite and unique."""
    part = strong_components(matches)
    if int(part.max()) > 0:
        # Some set has never lost to the others, or is not joined to them at all.
        d = matches.decided
        inside = part[matches.winner[:d]] != part[matches.loser[:d]]
        beaten = np.zeros(int(part.max()) + 1, dtype=bool)
        beaten[part[matches.loser[:d]][inside]] = True
        top = int(np.flatnonzero(~beaten)[-1])
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

    def lines(rows: Ints, sign: float, tau: float) -> tuple[Ints, Ints, Ints]:
        n = len(rows)
        at = np.repeat(np.arange(n), 3)
        column = np.stack([i[rows], j[rows], np.full(n, N)], axis=1).ravel()
        return at, column, np.tile([sign, -sign, tau], n)

    blocks = [lines(won, -0.5, 0.0), lines(won, -0.5, 1.0), lines(tied, 0.5, -1.0), lines(tied, -0.5, -1.0)]
    offset = np.cumsum([0, len(won), len(won), len(tied), len(tied)])
    at = np.concatenate([b[0] + o for b, o in zip(blocks, offset, strict=False)])
    A = coo_array(
        (np.concatenate([b[2] for b in blocks]), (at, np.concatenate([b[1] for b in blocks]))),
        shape=(int(offset[-1]), N + 1),
    ).tocsr()
    goal = np.asarray(A.sum(axis=0)).ravel()  # the sum of all slacks, to be as negative as can be
    found = linprog(goal, A_ub=A, b_ub=np.zeros(A.shape[0]), bounds=[(-1.0, 1.0)] * (N + 1))
    return bool(found.status == 0 and found.fun > -1e-7)
