"""Rings of colluding annotators, from the agreement matrix; no consensus is needed.

Given the truth, honest annotators agree by accident of their confusion matrices: sigma[m, m'] = tr(A_m D A_m'^T) =
u_m . u_m' with u_m of K^2 numbers, and an adversary's agreement with an honest one is of this form too. Only *inside* a
ring it is not: they agree because they agreed to. Agreement that habits alone make (both like to say l) is taken
out first; what is left has the same form with fewer numbers, and says more of people whom the others hardly resemble.

===============  ============  =========  ==============================================================================
symbol           code          shape      equation
===============  ============  =========  ==============================================================================
chance[i, j]     ``chance``    M x M      sum_l share of l among i's votes * share of l among j's
sigma[i, j]      ``share``     M x M      share of n[i, j] common items on which i and j agree, less chance
A, H             ``node``      masks      a candidate ring (a branch of the average-linkage tree of sigma), the others
U_H              ``low_rank``  H x r      sigma[H, H] ~ U_H U_H^T off the diagonal; r <= K^2, until noise is left
edge             ``edge``      1          2 sqrt(mean over rows of the summed variances): where eigenvalues of noise end
U_A                            A x r      least squares from sigma[A, H]
margin                         1          9 * 1.1 edge / |H|: agreement that the others' noise could hide
excess[i, j]                   A x A      sigma - u_i . u_j - margin, for i, j in A
score[m]         ``score``     M          mean excess with the ring / mean (1 - u_m . u_a - margin - chance), in [0, 1]
===============  ============  =========  ==============================================================================

The candidate is chosen on one half of the items and tested on the other, its mean excess against its jackknife error,
so that the level is that of a single test. The margin makes it hold where honest annotators who are alike differ
from all others in a way that the data is too small to see. Who is honest cannot be seen from votes: the two sides of a
crowd could change roles. Either more than half are (the ring is the smaller side), or somebody is trusted.

When it fails: a ring of half the crowd or more without a trusted annotator; others who agree no more than by chance;
pairs without common items. A pact on rare items is seen better by :func:`crowdwise.trust.colluders.shared_mistakes`.

P. A. Traganitis and G. B. Giannakis, Detecting adversaries in crowdsourcing, ICDM 2021. The margin, the split and
the test are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.annotator_groups import PairBlocks, answers, tree
from crowdwise.core.constraints import Count, Fraction, RandomState, checked
from crowdwise.core.intervals import Z
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, listing
from crowdwise.trust.result_tables import AnnotatorGroups

MOST_ANNOTATORS = 500
"""The most annotators whose agreement matrix is held."""
NODES = 20
"""Branches of the tree that are looked at closely."""
ABOVE = 1.1
"""How far over the edge of the spectrum of noise an eigenvalue has to be."""
HIDDEN = 3.0
"""How much longer than the others' a ring's direction under the noise may be and still be an honest one."""
INFORMATIVE = 3.0
"""Standard errors by which the others' agreement has to pass what habits alone make of it."""
FILLS = 15
"""Rounds in which the diagonal is filled in, for each rank."""
FOLDS = 10
"""Parts of the items for the jackknife."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Colluders(AnnotatorGroups):
    """What the agreement matrix says of rings.

    Attributes
    ----------
    names
        The annotators.
    score
        How much of the room for agreement that honesty leaves open is taken up with the ring: 0 none, 1 all.
    flagged
        Who is in a ring.
    group
        Which ring, -1 for none; p_values has the p-value of each ring.
    """

    low: Floats
    high: Floats
    p_values: Floats

    def _columns(self, table: str) -> dict[str, Any]:
        columns = {"annotator": self.names, "score": self.score, "score_low": self.low, "score_high": self.high}
        return {**columns, "flagged": self.flagged, "group": self.group}


@checked
def find_colluders(
    votes: Votes, *, trusted: Any = None, level: Fraction = 0.05, max_rings: Count = 3, random_state: RandomState = 0
) -> Colluders:
    """Rings of colluding annotators, from the agreement matrix; no consensus is needed.

    Parameters
    ----------
    votes
        The votes.
    trusted
        The name of an annotator known to be honest, or several. Without, more than half of the annotators are taken to
        be honest.
    level
        The probability of flagging anybody where there is no ring.
    max_rings
        The most rings looked for.
    random_state
        The seed of the two halves of the items.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.colluders(1000, n_annotators=30, share=0.3, random_state=0)
    >>> found = find_colluders(crowd.votes)
    >>> bool((found.flagged == crowd.parameters["colluders"]).all())
    True
    """
    M = votes.n_annotators
    if M > MOST_ANNOTATORS:
        raise InputError(
            f"The agreement of {M:,} annotators is a table of {M:,} x {M:,}: at most {MOST_ANNOTATORS:,} are looked at "
            "together. Leave out those with few votes (votes.only), or use shared_mistakes, which has no such limit."
        )
    honest = _trusted_mask(votes, trusted)
    X, K = answers(votes), votes.n_classes
    rng = np.random.default_rng(random_state)
    order = rng.permutation(len(votes))
    first, second = np.array_split(order, 2)
    folds = [second[f::FOLDS] for f in range(FOLDS)]
    ring = np.full(M, -1, dtype=np.int64)
    p_values: list[float] = []
    habit = np.asarray(X.sum(axis=0)).reshape(M, K)
    habit = habit / np.maximum(habit.sum(axis=1, keepdims=True), 1e-300)
    chance = habit @ habit.T
    known = _agreement(X, chance, None)
    halves = _agreement(X, chance, first)
    parts = [_agreement(X, chance, fold) for fold in folds]
    while len(p_values) < max_rings:
        left = ring < 0
        node = _best_node(*halves, left, honest, K)
        if node is None:
            break
        p = _test(parts, node, left, K)
        if p > level:
            break
        member = _members(*known, chance, node, left, honest, K)
        if not member.any():
            break
        ring[member] = len(p_values)
        p_values.append(p)
    score, low, high = _ring_scores(*known, chance, ring, K)
    return Colluders(
        names=votes.annotators, score=score, low=low, high=high, flagged=ring >= 0, group=ring,
        p_values=np.array(p_values), level=float(level), kind=votes.kind,
    )  # fmt: skip


def _trusted_mask(votes: Votes, trusted: Any) -> npt.NDArray[np.bool_] | None:
    if trusted is None:
        return None
    names = [trusted] if isinstance(trusted, str) or not isinstance(trusted, Sequence) else list(trusted)
    place = encoding.locate(encoding.to_vocabulary(names), votes.annotators)
    if (place < 0).any():
        raise InputError(f"No annotator named {listing(names)}: the votes have {listing(votes.annotators)}.")
    mask = np.zeros(votes.n_annotators, dtype=bool)
    mask[place] = True
    return mask


def _agreement(X: Any, chance: Floats, rows: Ints | None) -> tuple[Floats, Floats]:
    """Items on which two annotators agree less those on which their habits make them, and common items (M x M)."""
    from scipy.sparse import csr_matrix

    X = X if rows is None else X[np.sort(rows)]
    M = len(chance)
    K = X.shape[1] // M
    agree = np.zeros((M, M))
    for k in range(K):
        said = X[:, k::K]
        agree += (said.T @ said).toarray()
    seen = csr_matrix((np.ones(len(X.data)), X.indices // K, X.indptr), shape=(X.shape[0], M))
    seen.sum_duplicates()
    seen.data[:] = 1.0
    common = (seen.T @ seen).toarray()
    return agree - chance * common, common


def low_rank(agree: Floats, common: Floats, most: int, fixed: int | None = None) -> tuple[Floats, float]:
    """U with U U^T nearest to the agreements off the diagonal, from eigenvalues above the noise; and that bound.

    The diagonal is filled in from the fit itself, and pairs without common items too.
    """
    M = len(agree)
    seen = (common > 0) & ~np.eye(M, dtype=bool)
    share = np.divide(agree, common, out=np.zeros_like(agree), where=seen)
    mean = float(share[seen].mean()) if seen.any() else 0.0
    noise = np.where(seen, 0.25 / np.maximum(common, 1.0), 0.0)
    edge = 2.0 * np.sqrt(max(float(noise.sum(axis=1).mean()), 1e-12))  # of the spectrum of noise alone
    fill = np.where(seen, share, mean)
    for rank in range(1, most + 1) if fixed is None else [fixed]:
        for _ in range(FILLS if fixed is None else FILLS * fixed):
            value, vector = np.linalg.eigh(fill)
            U = vector[:, -rank:] * np.sqrt(np.maximum(value[-rank:], 0.0))
            fill = np.where(seen, share, np.clip(U @ U.T, -1.0, 1.0))
        # What is left, with nothing on the diagonal: there, a direction of one annotator alone would grow by itself.
        left = np.where(seen, share - U @ U.T, 0.0)
        if rank in (M, fixed) or float(np.linalg.eigvalsh(left)[-1]) <= ABOVE * edge:
            break
    return U, ABOVE * edge


def _predicted(
    agree: Floats, common: Floats, node: Any, left: Any, K: int, fixed: int | None = None
) -> tuple[Floats, float]:
    """u of every annotator from agreement with those who are left and not in the node, and the margin.

    The margin is agreement that could be hidden from the others: a direction under their noise has a mean square of at
    most bound / |H| among them, and annotators who were chosen for being alike may be ``HIDDEN`` times as long there.
    """
    H = np.flatnonzero(left & ~node)
    U_H, bound = low_rank(agree[np.ix_(H, H)], common[np.ix_(H, H)], min(K * K, len(H)), fixed)
    r = U_H.shape[1]
    n = common[:, H].copy()
    n[H, np.arange(len(H))] = 0.0
    share = np.divide(agree[:, H], common[:, H], out=np.zeros((len(agree), len(H))), where=common[:, H] > 0)
    gram = np.einsum("mh,hr,hs->mrs", n, U_H, U_H) + 1e-9 * np.eye(r)
    U = np.linalg.solve(gram, ((n * share) @ U_H)[:, :, None])[:, :, 0]
    return U, HIDDEN**2 * bound / len(H)


def _mean_excess(
    agree: Floats, common: Floats, node: Any, left: Any, K: int, fixed: int | None = None
) -> tuple[float, int]:
    """The mean of sigma - u . u - margin over the pairs inside a node, weighted by common items, and the rank used."""
    U, margin = _predicted(agree, common, node, left, K, fixed)
    A = np.flatnonzero(node)
    n = common[np.ix_(A, A)].copy()
    np.fill_diagonal(n, 0.0)
    a = agree[np.ix_(A, A)].copy()
    np.fill_diagonal(a, 0.0)
    P = np.clip(U[A] @ U[A].T + margin, -1.0, 1.0)
    return float((a - n * P).sum() / max(float(n.sum()), 1.0)), U.shape[1]


def _informative(agree: Floats, common: Floats, node: Any, left: Any) -> bool:
    """Whether those outside a node agree more than their habits alone make them: otherwise they know no truth."""
    H = np.flatnonzero(left & ~node)
    a, n = (np.triu(table[np.ix_(H, H)], 1) for table in (agree, common))
    items = max(float(n.max()), 1.0)  # pairs on the same items are not independent: count one pair's
    return bool(a.sum() / max(float(n.sum()), 1.0) > INFORMATIVE * np.sqrt(0.25 / items))


def _nodes(agree: Floats, common: Floats, left: Any) -> list[Any]:
    """Branches of the average-linkage tree of agreement, those first that agree most above their surroundings."""
    M = len(agree)
    at = np.flatnonzero(left)
    i, j = np.triu_indices(len(at), 1)
    there = common[at[i], at[j]] > 0
    i, j = at[i[there]], at[j[there]]
    share = agree[i, j] / common[i, j]
    pairs = PairBlocks(i, j, common[i, j], np.zeros((len(i), 1, 1)), M)
    inside = [np.zeros(M, dtype=bool) for _ in range(M)]
    for m in range(M):
        inside[m][m] = True
    nodes: list[tuple[float, Any]] = []
    agree, common = agree.copy(), common.copy()
    np.fill_diagonal(agree, 0.0)
    np.fill_diagonal(common, 0.0)
    for a, b in tree(pairs, share):
        inside[a] = inside[a] | inside[b]
        A, rest = inside[a], left & ~inside[a]
        within, across = common[np.ix_(A, A)].sum(), common[np.ix_(A, rest)].sum()
        if within > 0 and across > 0:
            p, o = agree[np.ix_(A, A)].sum() / within, agree[np.ix_(A, rest)].sum() / across
            nodes.append(((p - o) * np.sqrt(float(A.sum())), A.copy()))
    return [A for _, A in sorted(nodes, key=lambda pair: -pair[0])[:NODES]]


def _best_node(agree: Floats, common: Floats, left: Any, honest: Any, K: int) -> Any:
    """The branch that may be a ring and whose members agree most, for their number, beyond what the others explain."""
    best: tuple[float, Any] | None = None
    total = int(left.sum())
    for A in _nodes(agree, common, left):
        size = int(A.sum())
        allowed = total - size > max(K, 2) and (
            size <= (len(left) - 1) // 2 if honest is None else not (A & honest).any()
        )
        if not allowed:
            continue
        excess, _ = _mean_excess(agree, common, A, left, K)
        value = excess * np.sqrt(size - 1.0)
        if excess > 0 and (best is None or value > best[0]) and _informative(agree, common, A, left):
            best = value, A
    return None if best is None else best[1]


def _test(parts: list[tuple[Floats, Floats]], node: Any, left: Any, K: int) -> float:
    """The p-value of a node's mean excess, against its jackknife error over parts of the items."""
    from scipy.special import stdtr

    agree, common = (np.sum([part[x] for part in parts], axis=0) for x in (0, 1))
    (whole, rank), F = _mean_excess(agree, common, node, left, K), len(parts)
    # The rank is kept: a jackknife of a rank that jumps measures the jumps.
    without = np.array([_mean_excess(agree - a, common - n, node, left, K, rank)[0] for a, n in parts])
    pseudo = F * whole - (F - 1) * without
    error = float(pseudo.std(ddof=1)) / np.sqrt(F)
    return float(1.0 - stdtr(F - 1, float(pseudo.mean()) / max(error, 1e-12)))


def _members(agree: Floats, common: Floats, chance: Floats, node: Any, left: Any, honest: Any, K: int) -> Any:
    """Who agrees with the ring at least half as much, beyond what honesty explains, as its members do."""
    score, low, _ = _scores(agree, common, chance, node, left, K)
    bar = float(np.median(score[node])) / 2.0
    member = left & (score >= max(bar, 1e-9)) & (low > 0.0)
    return member if honest is None else member & ~honest


def _scores(
    agree: Floats, common: Floats, chance: Floats, node: Any, left: Any, K: int
) -> tuple[Floats, Floats, Floats]:
    """Mean excess with a ring over the room there is for it, for every annotator, with a 95 % interval."""
    U, margin = _predicted(agree, common, node, left, K)
    n = common * node[None, :]
    np.fill_diagonal(n, 0.0)
    P = np.clip(U @ U.T + margin + chance, 0.0, 1.0)
    share = chance + np.divide(agree, common, out=np.zeros_like(agree), where=common > 0)
    total = np.maximum(n.sum(axis=1), 1e-300)
    room = np.maximum((n * (1.0 - P)).sum(axis=1) / total, 1e-9)
    excess = (n * (share - P)).sum(axis=1) / total
    # The votes of a ring repeat each other: as many independent items as m shares with a typical member.
    items = np.maximum(n.max(axis=1), 1.0)
    error = np.sqrt((n * P * (1.0 - P)).sum(axis=1) / total / items)
    ends = (np.clip((excess + side * Z * error) / room, 0.0, 1.0) for side in (-1.0, 1.0))
    low, high = ends
    nobody = n.sum(axis=1) == 0
    return np.where(nobody, 0.0, np.clip(excess / room, 0.0, 1.0)), np.where(nobody, 0.0, low), high


def _ring_scores(agree: Floats, common: Floats, chance: Floats, ring: Ints, K: int) -> tuple[Floats, Floats, Floats]:
    M = len(ring)
    score, low, high = np.zeros(M), np.zeros(M), np.zeros(M)
    for r in range(int(ring.max()) + 1 if M else 0):
        found = _scores(agree, common, chance, ring == r, (ring < 0) | (ring == r), K)
        better = (found[0] > score) & ((ring == r) | (ring < 0))
        better |= ring == r
        score, low, high = (np.where(better, new, old) for new, old in zip(found, (score, low, high), strict=True))
    return score, low, high
