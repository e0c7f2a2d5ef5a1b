"""Confusion matrices from triples of annotators, all triples at once: a coupled tensor decomposition.

Given the truth annotators answer independently, so what one, two and three of them say has the probabilities

    p[m] = A_m d        R[m, a] = A_m D A_a'        T[m, a, b] = sum_k d_k A_m[:, k] o A_a[:, k] o A_b[:, k]

with A_m[l, k] = theta[m, k, l] and D = diag(d). Every triple is a tensor of rank K that shares its factors with the
others, and three annotators with matrices of full rank determine them, up to the names of the classes. ``tensor``
takes the factors, probabilities all, whose moments are nearest to the observed ones in weighted least squares,

    F = 1/2 sum over m of w |p - A_m d|^2  +  1/2 sum over pairs of w |R - A_m D A_a'|^2
        + 1/2 sum over triples of w |T - [[A_m D, A_a, A_b]]|^2  +  s / 2 sum over m of |A_m - B_m|^2,

and lowers F in one factor at a time: in A_m alone, or d alone, it is a convex quadratic over a product of simplices,
which ADMM solves in a few steps of K x K arithmetic from where it stood (alternating optimisation with inner ADMM). A
step that would raise F is not taken, so F never rises.

============  ===========  ============  ===========================================================================
symbol        code         shape         equation
============  ===========  ============  ===========================================================================
cell          c                          annotator * K + label
A[m, l, k]    ``A``        M x K x K     theta[m, k, l], with the label first; columns on the simplex
d[k]          ``d``        K             the class prior pi, on the simplex
w p, R, T     ``first``,   sparse        w times the joint label shares of one, two and three annotators on their
              ``pairs``,                 common items; w is the number of these (``weighting="counts"``: a plain count,
              ``triples``                the inverse variance of a share up to a constant), or 1 (``"blocks"``)
B[m, l, k]    ``base``     M x K x K     the matrices of the counts: the start of A, towards which it is shrunk
G_a           ``G``        M x K K       A_a' A_a
Gram                       K x K         D ( sum w G_a * G_b + sum w G_a + w 1 1' ) D + s I, s = ``prior_strength``
target                     K x K         D ( sum w T [A_a * A_b] + sum w R A_a + w p 1' )' + s B_m'
X, V, U       same         K x K         X = (Gram + rho I)^-1 (target + rho (V + U)), V = simplex(X - U), U += V - X
rho                                      trace(Gram) / K
============  ===========  ============  ===========================================================================

A ``*`` is taken cell by cell. Gold labels are one more annotator, who is never wrong. Where no three annotators share
an item, the solution is that of the counts. Only triples of cells that were seen are kept: with r_n votes on item n, at
most the sum over items of r_n (r_n - 1) (r_n - 2) / 6, and at most K^3 for each three annotators (``check_size``). An
annotator is never paired with themselves, and a vote of weight w counts as w votes.

P. A. Traganitis, A. Pages-Zamora and G. B. Giannakis, Blind multiclass ensemble classification, IEEE Transactions on
Signal Processing 66 (2018). K. Huang, N. D. Sidiropoulos and A. P. Liavas, A flexible and efficient algorithmic
framework for constrained matrix and tensor factorization, same journal 64 (2016), for the inner ADMM and its rho.
Weights by common items, the start at the votes (the paper's is random) and the shrinkage are ours.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.model import Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.errors import InputError
from crowdwise.methods import moments_shared as shared

VOTE_TRIPLES = 30_000_000
"""The most triples of votes on a common item that are counted: some ten seconds."""
CELLS = 5_000_000
"""The most different triples of (annotator, label) that are held: under a gigabyte, and seconds for each sweep."""
PIECE = 2_000_000
"""Triples of votes that are enumerated at a time."""


@dataclass(frozen=True, eq=False)
class Slab:
    """Some triples: values by rows of two parts (lead, cell) and a column for the third, and weights likewise.

    Of one annotator's slab the lead is the label l. Of all triples, each once, it is the first cell, and the first
    annotator in the weights.
    """

    value: csr_matrix
    lead: Ints
    cell: Ints
    weight: csr_matrix
    weight_lead: Ints
    other: Ints
    leads: tuple[Ints, Ints]
    """The different leads and the first row of each, for rows are in their order."""

    @classmethod
    def of(cls, parts: tuple[Ints, Ints, Ints, Floats], who: tuple[Ints, Ints, Ints, Floats], C: int, J: int) -> Slab:
        lead, cell, third, value = parts
        V, rows = _rows(lead * C + cell, third, value, C)
        first, second, last, w = who
        W, by = _rows(first * J + second, last, w, J)
        return cls(V, rows // C, rows % C, W, by // J, by % J, np.unique(rows // C, return_index=True))

    def meet(self, flat: Floats) -> Floats:
        """Row by row, sum over the third part of w T A * A."""
        return np.asarray(flat[self.cell] * (self.value @ flat))

    def squares(self, G: Floats) -> Floats:
        """Row by row, sum over the third annotator of w G * G (G flat, one row for each annotator)."""
        return np.asarray(G[self.other] * (self.weight @ G))


@dataclass(frozen=True, eq=False)
class Moments:
    """The first three moments of J annotators (the last, the gold labels) over C = J K cells, times their weights."""

    first: Floats
    first_weight: Floats
    pairs: list[csr_matrix]
    """K x C for each annotator."""
    pair_weight: list[tuple[Ints, Floats]]
    """For each annotator the others with common items, and w."""
    own: list[Slab]
    """For each annotator all of their triples."""
    triples: Slab
    """Every triple once."""
    size: float
    """sum w |moment|^2."""


def check_size(per_item: Ints, J: int, K: int) -> None:
    """Refuse more triples than can be counted or held."""
    r = per_item.astype(np.float64)
    votes = float((r * (r - 1.0) * (r - 2.0)).sum() / 6.0)
    cells = min(votes, J * (J - 1.0) * (J - 2.0) / 6.0 * K**3)
    if votes > VOTE_TRIPLES or cells > CELLS:
        raise InputError(
            f"{J:,} annotators have votes enough to take part, with {votes:,.0f} triples of votes on common items and "
            f"up to {cells:,.0f} different ones; tensor counts up to {VOTE_TRIPLES:,} and holds up to {CELLS:,}. "
            "Use cnmf (pairs alone) or spectral-ds (triples of groups), or raise min_votes so that fewer take part."
        )


def vote_triples(indptr: Ints, cell: Ints, weight: Floats, C: int, K: int) -> tuple[Ints, Floats]:
    """Triples of cells of three annotators on one item: keys (c0 C + c1) C + c2, sorted, and the sums of w0 w1 w2.

    Votes are in order of annotators within an item, so c0 < c1 < c2. Items with as many votes are taken together, and
    all triples that begin with their i-th vote, so there is no loop over votes.
    """
    keys: list[Ints] = [np.empty(0, dtype=np.int64)]
    sums: list[Floats] = [np.empty(0)]
    size = np.diff(indptr)
    for r in np.unique(size[size > 2]):
        begin = indptr[:-1][size == r]
        for i in range(r - 2):
            j, k = np.triu_indices(r - 1 - i, 1)
            step = max(1, PIECE // len(j))
            for lo in range(0, len(begin), step):
                at = begin[lo : lo + step, None]
                one, two, three = (cell[at + i + place] for place in (np.zeros_like(j), j + 1, k + 1))
                apart = (one // K != two // K) & (two // K != three // K)
                w = weight[at + i] * weight[at + i + 1 + j] * weight[at + i + 1 + k]
                key, place = np.unique(((one * C + two) * C + three)[apart], return_inverse=True)
                keys.append(key)
                sums.append(np.bincount(place, weights=w[apart], minlength=len(key)).astype(np.float64))
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    return key, np.bincount(place, weights=np.concatenate(sums), minlength=len(key)).astype(np.float64)


def statistics(
    item: Ints, cell: Ints, weight: Floats, n_items: int, J: int, K: int, weighting: str = "counts"
) -> Moments:
    """All three moments of votes that are sorted by item and annotator; cell = annotator * K + label."""
    C = J * K
    indptr = np.concatenate([[0], np.cumsum(np.bincount(item, minlength=n_items))])
    by_label = np.bincount(cell, weights=weight, minlength=C).astype(np.float64).reshape(J, K)
    X = csr_matrix((weight, (item, cell)), shape=(n_items, C))
    met = (X.T @ X).tocoo()
    other = met.row // K != met.col // K
    key, count = vote_triples(indptr, cell, weight, C, K)
    cells = np.stack([key // C // C, key // C % C, key % C])
    return moments_of(by_label, (met.row[other], met.col[other], met.data[other]), cells, count, weighting)


def moments_of(
    by_label: Floats, met: tuple[Ints, Ints, Floats], cells: Ints, count: Floats, weighting: str = "counts"
) -> Moments:
    """Counts of labels (J x K), of pairs of cells (both ways round) and of triples of cells (3 x T, ascending)."""
    J, K = by_label.shape
    C = J * K
    row, column, pair = met
    who = cells // K
    pair_key, pair_place = np.unique(row.astype(np.int64) // K * J + column // K, return_inverse=True)
    key, place = np.unique((who[0] * J + who[1]) * J + who[2], return_inverse=True)
    trio = np.stack([key // J // J, key // J % J, key % J])
    by_label, w1, size1 = _weighted(by_label.ravel(), np.repeat(np.arange(J), K), J, weighting)
    pair, w2, size2 = _weighted(pair, pair_place, len(pair_key), weighting)
    count, w3, size3 = _weighted(count, place, len(key), weighting)
    R = csr_matrix((pair, (row, column)), shape=(C, C))
    at = np.searchsorted(pair_key, np.arange(J + 1) * J)
    own = []
    for m in range(J):
        mine, a, b, value = _around(m, who, cells, count)
        own.append(Slab.of((mine % K, a, b, value), _around(m, trio, trio, w3), C, J))
    return Moments(
        by_label.reshape(J, K), w1, [R[m * K : (m + 1) * K] for m in range(J)],
        [(pair_key[lo:hi] % J, w2[lo:hi]) for lo, hi in itertools.pairwise(at)], own,
        Slab.of((*cells, count), (*trio, w3), C, J), size1 + size2 / 2.0 + size3,
    )  # fmt: skip


def _weighted(count: Floats, block: Ints, B: int, weighting: str) -> tuple[Floats, Floats, float]:
    """w times the shares of each block, w, and sum w share^2."""
    n = np.bincount(block, weights=count, minlength=B).astype(np.float64)
    w = n if weighting == "counts" else (n > 0).astype(np.float64)
    share = count / np.maximum(n, 1e-300)[block]
    return w[block] * share, w, float(w[block] @ share**2)


def _rows(row: Ints, column: Ints, value: Floats, width: int) -> tuple[csr_matrix, Ints]:
    """A sparse matrix with a row for each different ``row``, and what those were."""
    names, place = np.unique(row, return_inverse=True)
    return csr_matrix((value, (place, column)), shape=(len(names), width)), names


def _around(m: int, who: Ints, parts: Ints, value: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    """The triples that m is in: m's part, the other two in order, and the value."""
    places = [(np.flatnonzero(who[i] == m), i, *others) for i, others in enumerate(((1, 2), (0, 2), (0, 1)))]
    own, a, b = (np.concatenate([parts[f[place]][f[0]] for f in places]) for place in (1, 2, 3))
    return own, a, b, np.concatenate([value[f[0]] for f in places])


def simplex(Y: Floats, axis: int) -> Floats:
    """The nearest point on the probability simplex, along an axis."""
    Y = np.moveaxis(Y, axis, -1)
    high = -np.sort(-Y, axis=-1)
    excess = np.cumsum(high, axis=-1) - 1.0
    number = (high * np.arange(1, Y.shape[-1] + 1) > excess).sum(axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, number - 1, axis=-1) / number
    return np.moveaxis(np.maximum(Y - shift, 0.0), -1, axis)


def admm(
    gram: Floats, target: Floats, V: Floats, U: Floats, axis: int, steps: int, tol: float = 1e-14
) -> tuple[Floats, Floats]:
    """Lower tr(V' gram V) / 2 - tr(target' V) over V whose slices along ``axis`` are probabilities, from V and dual U.

    At most ``steps`` steps, unless the value would be above that of the start: then on until it is not. ``tol`` bounds
    the squared residuals, relative to V.
    """
    K = len(gram)
    rho = max(float(np.trace(gram)) / K, 1e-300)
    inverse = np.linalg.inv(gram + rho * np.eye(K))

    def height(V: Floats) -> float:
        return float((V * (0.5 * (gram @ V) - target)).sum())

    new, ceiling = V, height(V) + 1e-15 * float(np.abs(V * target).sum())  # up to rounding
    for step in range(100 * steps):
        before = new
        X = inverse @ (target + rho * (new + U))
        new = simplex(X - U, axis)
        U = U + new - X
        moved, apart = ((new - before) ** 2).sum(), ((new - X) ** 2).sum()
        converged = max(moved, apart) <= tol * (new**2).sum()
        if (converged or step + 1 >= steps) and height(new) <= ceiling:
            return new, U
        if max(moved, apart) < 1e-30:
            break
    return V, U


def annotator_quadratic(data: Moments, m: int, A: Floats, G: Floats, d: Floats) -> tuple[Floats, Floats]:
    """Gram and target (class x label) of F, without the shrinkage, as a function of A_m' alone."""
    J, K, R = A.shape
    flat, slab = A.reshape(J * K, R), data.own[m]
    cross = data.pairs[m] @ flat + data.first[m][:, None]
    if len(slab.lead):
        labels, first = slab.leads
        cross[labels] += np.add.reduceat(slab.meet(flat), first, axis=0)
    others, weight = data.pair_weight[m]
    gram = slab.squares(G).sum(axis=0) + weight @ G[others] + data.first_weight[m]
    return gram.reshape(R, R) * np.outer(d, d), (cross * d).T


def prior_quadratic(data: Moments, A: Floats, G: Floats) -> tuple[Floats, Floats]:
    """Gram and target of F as a function of d alone."""
    J, K, R = A.shape
    flat = A.reshape(J * K, R)
    every = data.triples
    target = np.einsum("jk,jkr->r", data.first, A)
    target += (flat[every.lead] * every.meet(flat)).sum(axis=0)
    gram = data.first_weight @ G + (G[every.weight_lead] * every.squares(G)).sum(axis=0)
    for m, (others, weight) in enumerate(data.pair_weight):  # every pair is there twice
        target += (A[m] * (data.pairs[m] @ flat)).sum(axis=0) / 2.0
        gram += G[m] * (weight @ G[others]) / 2.0
    return gram.reshape(R, R), target[:, None]


def fit_moments(
    data: Moments, table: Floats, d: Floats, base: Floats, strength: float, order: Ints, inner: int, rounds: Rounds,
    tol: float,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Lower F from A and d, one annotator of the ``order`` after the other, then d; others stay as they are.

    Returns A and d; the trace of ``rounds`` is that of -F. It ends where a sweep gains less than ``tol`` of the
    moments' own size.
    """
    J, K, R = table.shape
    A = table.copy()
    G = np.einsum("mlk,mlr->mkr", A, A).reshape(J, R * R)
    U, u = np.zeros((J, R, K)), np.zeros((R, 1))
    ridge = strength * np.eye(R)
    for _ in rounds:
        for m in order:
            gram, target = annotator_quadratic(data, int(m), A, G, d)
            V, U[m] = admm(gram + ridge, target + strength * base[m].T, A[m].T, U[m], 1, inner)
            A[m] = V.T
            G[m] = (A[m].T @ A[m]).ravel()
        gram, target = prior_quadratic(data, A, G)
        V, u = admm(gram, target, d[:, None], u, 0, inner)
        d = V[:, 0]
        fit = 0.5 * (data.size + d @ gram @ d) - float(target[:, 0] @ d)
        shrinkage = strength / 2.0 * ((A[order] - base[order]) ** 2).sum()
        rounds.reached(-float(fit + shrinkage), below=tol * data.size)
    return A, d


def solve_tensor(
    votes: Votes, gold: Ints | None, min_votes: float | None, weighting: shared.Weighting, strength: float, inner: int,
    rounds: Rounds, tol: float,
) -> shared.MomentSolution:  # fmt: skip
    """``tensor``: the fit of all moments, from the matrices of the counts."""
    K = votes.n_classes
    counts, able = shared.vote_counts(votes, gold), shared.enough(votes, min_votes)
    guess = shared.vote_solution(counts)
    local = np.cumsum(able) - 1
    J = int(able.sum()) + 1  # the last: the gold labels
    item, cell, weight = shared.with_gold(votes, gold, able, local)
    check_size(np.bincount(item, minlength=len(votes)), J - (gold is None), K)
    data = statistics(item, cell, weight, len(votes), J, K, weighting)
    paired = np.array([len(others) > 0 for others, _ in data.pair_weight[:-1]], dtype=bool)
    if not data.triples.value.nnz or not paired.any():
        return guess
    # A class without votes has no column to be found.
    classes = np.flatnonzero(data.first.sum(axis=0) > 0)
    start = np.concatenate([guess.table[able], np.eye(K)[None]])[:, :, classes]
    rank = shared.ranking(votes)
    order = local[rank[able[rank]]]
    first = normalise(guess.d[classes], axis=0)
    A, d = fit_moments(data, start, first, start, strength, order[paired[order]], inner, rounds, tol)
    solved = able.copy()
    solved[able] = paired
    factors = A[:-1][paired]
    columns, places = shared.match(
        factors.reshape(-1, len(classes)), counts[solved][:, :, classes].reshape(-1, len(classes))
    )
    return guess.replaced(solved, classes[columns], shared.proper(factors)[:, :, places], d[places], rounds)


@declared
class TensorDS(shared.WeightedMomentModel):
    """All triples of annotators fitted at once, a coupled tensor decomposition by alternating ADMM, then EM.

    Parameters
    ----------
    inner_iter
        Steps of ADMM for each annotator in a sweep.
    min_votes
        Annotators with fewer votes get the matrix of their counts; by default two for each class. A higher number
        brings large crowds under the limit on triples.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=6, random_state=0)
    >>> gap = cw.TensorDS(refine=False).fit(crowd.votes).consensus_.confusion - crowd.parameters["confusion"]
    >>> bool(abs(gap).mean() < 0.06)
    True
    """

    key = "tensor"

    inner_iter: Count = 10
    min_votes: NonNegative | None = None

    def _solutions(self, votes: Votes, gold: Ints | None) -> list[shared.MomentSolution]:
        how = self.min_votes, self.weighting, self.prior_strength, self.inner_iter
        return [solve_tensor(votes, gold, *how, Rounds(self.max_sweeps, 1.0), self.sweep_tol)]
