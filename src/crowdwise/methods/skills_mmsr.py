"""Skills that a few adversaries cannot move: alternating means of ratios, the extremes left out.

The agreement of annotators is c[i, j] = s_i s_j (see :mod:`crowdwise.methods.skills_agreement`), so every partner i of
j gives an estimate of the skill of j, |c_ij| / s_i. An adversary can give any value. Of the estimates above the current
value the F greatest are left out, of those below it the F smallest, and the rest is averaged.

=========  ================  ======  =================================================================================
symbol     code              shape   equation
=========  ================  ======  =================================================================================
u, v       ``u``, ``v``      M       v_j = trimmed mean over i of |c_ij| / u_i, and u likewise from v
F          ``trim``          1       floor(fewest partners of an annotator / 2) - 1
abs(s)     ``skill``         M       sqrt(u v)
sign(s)    ``graph_signs``   M       top eigenvector of D^-1/2 (n c) D^-1/2, D the degrees; + for most annotators
=========  ================  ======  =================================================================================

Reference: Ma and Olshevsky 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crowdwise.core.constraints import Count, CountFromZero, NonNegative
from crowdwise.core.model import Floats, Ints, Rounds, Votes, declared
from crowdwise.methods.skills_agreement import IteratedSkills
from crowdwise.methods.skills_graph import Pairs, by_group, groups_of, leading, like


def buckets(indptr: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Rows of a sparse matrix in sheets of about equal length: rows, places of their entries, which are real.

    Sheets are at most half padding, and each is sorted at once.
    """
    degree = np.diff(indptr)
    sheet = np.ceil(np.log2(np.maximum(degree, 1))).astype(np.int64)
    for exponent in np.unique(sheet[degree > 0]):
        rows = np.flatnonzero((sheet == exponent) & (degree > 0))
        place = indptr[rows, None] + np.arange(degree[rows].max())
        real = place < indptr[rows + 1, None]
        yield rows, np.where(real, place, 0), real


def trimmed(value: Floats, current: Floats, sheets: list[tuple[Ints, Ints, Ints]], trim: int) -> Floats:
    """Per row the mean without the ``trim`` largest of those above its current value and smallest of those below."""
    out = current.copy()
    for rows, place, real in sheets:
        table = np.sort(np.where(real, value[place], np.inf), axis=1)
        degree, at = real.sum(axis=1), current[rows, None]
        first = np.minimum((table < at).sum(axis=1), trim)
        last = degree - np.minimum(degree - (table <= at).sum(axis=1), trim)
        position = np.arange(table.shape[1])
        kept = (position >= first[:, None]) & (position < last[:, None])
        count = kept.sum(axis=1)
        total = np.where(kept, table, 0.0).sum(axis=1)
        out[rows[count > 0]] = (total / np.maximum(count, 1))[count > 0]
    return out


def subsequence(found: Pairs, trim: int, floor: float, fixed: int, rounds: Rounds, tol: float) -> Floats:
    """|s| by alternating trimmed means (M-MSR); from ``fixed`` on, annotators have skill 1.

    No skill falls under ``floor`` while others are divided by it: 1/sqrt(N), which is not distinguishable from 0.
    """
    sheets = list(buckets(found.n.indptr))
    size, col = np.abs(found.c.data), found.n.indices
    u = np.full(found.n.shape[0], max(float(np.sqrt(size.mean())), floor) if len(size) else 0.5)
    u[fixed:] = 1.0
    v, skill = u, u
    for _ in rounds:
        v = np.maximum(trimmed(size / u[col], v, sheets, trim), floor)
        v[fixed:] = 1.0
        u = np.maximum(trimmed(size / v[col], u, sheets, trim), floor)
        u[fixed:] = 1.0
        before, skill = skill, np.sqrt(u * v)
        moved = float(np.abs(skill - before).max())
        rounds.reached(moved=moved, converged=moved <= tol)
        scale = np.sqrt(np.linalg.norm(u) / np.linalg.norm(v)) if fixed == len(u) else 1.0
        u, v = u / scale, v * scale
    return skill


def graph_signs(found: Pairs, fixed: int) -> Floats:
    """Signs that explain who agrees and who disagrees: the top eigenvector of n c, degrees taken out.

    In every group most annotators are given the sign +, however many votes the others have.
    """
    nc = like(found.n, found.n.data * found.c.data)

    def solve(members: Ints) -> Floats:
        part = nc[members][:, members]
        degree = np.sqrt(np.asarray(abs(found.n[members][:, members]).sum(axis=1)).ravel())
        e = leading(lambda x: (part @ (x / degree)) / degree + x, len(members))[1]
        return np.where(e * np.sign(np.sign(e) @ (members < fixed) or 1.0) >= 0.0, 1.0, -1.0)

    return by_group(groups_of(found.n), solve)


@declared
class MMSR(IteratedSkills):
    """Skills by alternating trimmed means: some annotators may be adversaries.

    With F values trimmed on either side, an annotator's skill stands between values given by honest partners as long
    as at most F of the partners are corrupted. Only pairs with common items are kept in memory. Two departures from
    the authors' script: the start is the same for all (theirs is random, so that names would matter), and the signs
    come from an eigenvector of a matrix over annotators instead of one over annotators and pairs.

    Parameters
    ----------
    trim
        F, the values left out on either side. None: half of the fewest partners of an annotator, less one.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(500, n_annotators=30, n_classes=3, votes_per_item=8, random_state=0)
    >>> cw.aggregate(crowd.votes, "m-msr").score(crowd.truth) > 0.85
    True
    """

    key = "m-msr"

    trim: CountFromZero | None = None
    max_iter: Count = 1000
    tol: NonNegative = 1e-10

    def _skills(self, found: Pairs, votes: Votes, gold: Ints | None, low: float, high: float, rounds: Rounds) -> Floats:
        M = votes.n_annotators
        degree = np.diff(found.n.indptr)[:M]
        fewest = int(degree[degree > 0].min()) if (degree > 0).any() else 0
        trim = max(fewest // 2 - 1, 0) if self.trim is None else int(self.trim)
        return subsequence(found, trim, 1.0 - high, M, rounds, self.tol) * graph_signs(found, M)

    def _variance(self, found: Pairs, votes: Votes, gold: Ints | None, skill: Floats) -> Floats:
        # The trimmed mean is near the median of the estimates, whose variance is pi / 2 of their mean's.
        return 0.5 * np.pi * super()._variance(found, votes, gold, skill)
