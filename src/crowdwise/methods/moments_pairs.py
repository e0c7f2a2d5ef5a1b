"""Confusion matrices from pairs of annotators: how often one says l where another says l'.

Given the truth, two annotators answer independently, so the joint distribution of their labels is

    R[m, m'] = A_m D A_m'      with A_m[l, k] = theta[m, k, l] and D = diag(pi),

and every pair with common items gives one such equation. Pairs need far fewer votes than triples to be
counted well.

============  ====================================================================================================
``multispa``  Column l' of R[m, m'], normalised, has the labels of m where m' says l': a mixture of the columns of A_m.
              An annotator who says l' only when the class is k shows column k itself. So the columns of A_m are
              the corners of the cloud of these distributions, and successive projection picks them: the longest
              point, then the longest of what is left orthogonal to it, K times. One pass, no optimisation.
``cnmf``      All pairs at once: the A and D whose pair probabilities are nearest to the observed ones in
              Kullback-Leibler divergence, starting from ``multispa``. Corners need not have been observed.
``symnmf``    The blocks as one symmetric matrix of rank K, some of them never seen: see below.
============  ====================================================================================================

===============  ==========  ===========  ============================================================================
symbol           code        shape        equation
===============  ==========  ===========  ============================================================================
A[m, l, k]       ``table``   M x K x K    theta[m, k, l], with the label first as in counts c[m, l, k]
d[k]             ``d``       K            the class prior pi
R[ml, m'l']      ``pairs``   MK x MK      items on which m said l and m' said l'; sparse, m = m' left out
n[m, m']         ``total``   as R         common items of m and m', R summed over l and l'
S[ml, m'l']      ``model``   as R         sum_k d_k A[m, l, k] A[m', l', k]
w[m, m']                                  1 (``weighting="counts"``), or 1 / n (``"blocks"``, as in the paper)
b[m, l, k]       ``base``    M x K x K    the matrices of the counts, of which s pairs are added (``prior_strength``)
objective        ``trace``                - sum over pairs m < m' of w R log (R / (n S)) + s sum b log A
===============  ==========  ===========  ============================================================================

Which corner is which class is decided by the votes: the pairing under which m's counts against the vote shares are
most probable. For ``multispa``, annotators without more than K usable columns (of blocks of full rank) get the matrix
of those counts. Gold labels are one more annotator, who is never wrong.

``symnmf``: stacked over annotators, the pair probabilities are

    X = H H^T      with block X[m, m'] = R[m, m'] = A_m D A_m'^T  and  H_m = A_m D^(1/2) >= 0.

Its column space is found first and turned into something non-negative afterwards:

1. U (MK x K) such that U_m U_m'^T is near R[m, m'] on the blocks that were seen; the others are free. Distances, not
   squares, are summed, so that outlying blocks count less; that is iteratively reweighted least squares, one annotator
   after the other,

       U_m <- ( sum over m' of w R[m, m'] U_m' + ridge B_m ) ( sum over m' of w U_m'^T U_m' + ridge I )^-1,
       w[m, m'] = n[m, m'] / ( n[m, m'] |R[m, m'] - U_m U_m'^T|^2 + eps )^(1/2)

   which lowers F = sum over pairs of ( n |R - U_m U_m'^T|^2 + eps )^(1/2) + ridge |U - B|^2 / 2 at every
   step. B is the start, from the counts: annotators who share few items with others stay near it.

2. U is H up to a rotation Q. H <- max(U Q, 0) and Q <- the rotation that takes U nearest to H, in turns (Procrustes):
   |H - U Q| never rises, and where A is scattered enough the answer is unique.

===========  ===========  =============  ==================================================================
symbol       code         shape          equation
===========  ===========  =============  ==================================================================
R[m, m']     ``blocks``   P x K x K      joint label shares of a pair with common items, both ways round
n[m, m']     ``common``   P              their number of common items
B            ``start``    M x K x K      A_m D^(1/2) of the counts against the vote shares
U, Q         the same                    factors of step 1, from B; the rotation, from the identity
A[m, l, k]   ``table``    M x K x K      H_m with its columns set to sum one
d[k]         ``d``        K              square of the median column sum of H_m, normalised
===========  ===========  =============  ==================================================================

S. Ibrahim, X. Fu, N. Kargas and K. Huang, Crowdsourcing via pairwise co-occurrences: identifiability and algorithms,
NeurIPS 2019 (there KL is lowered by mirror descent with a line search; here by sweeps that need none). S. Ibrahim and
X. Fu, Crowdsourcing via annotator co-occurrence imputation and provable symmetric nonnegative matrix factorization,
ICML 2021: its robust stage one and its stage two. Weights by common items, the start and the ridge towards it are ours;
without the ridge, sparse crowds with many or rare classes are rotated wrongly.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from crowdwise import kernels
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.loop import check_cost
from crowdwise.core.model import Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.methods import moments_shared as shared

ADVICE = "Leave out annotators with few votes (votes.without), merge rare classes, or use dawid-skene."

COUNTED = 8
"""Numbers held for each non-zero while the pairs are counted: rows, columns and values, with their copies."""
COUNT_STEPS = 20
"""Steps of arithmetic for each pair of votes that is counted."""
SMOOTHING = 3.0
"""Pseudo-counts of a column that give the least error of the corners on simulated crowds."""


def pair_counts(votes: Votes, gold: Ints | None) -> csr_matrix:
    """R[m * K + l, m' * K + l'] for different annotators with enough votes; gold labels are annotator M."""
    M, K = votes.n_annotators, votes.n_classes
    item, cell, weight = shared.with_gold(votes, gold, shared.enough(votes), np.arange(M))
    size = np.bincount(item, minlength=len(votes)).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(size)])
    C = (M + 1) * K
    check_pairs(size, C)
    rows, columns, values = kernels.cooccurrence(indptr, cell, weight, C)
    row = np.repeat(np.arange(C), np.diff(rows))
    other = row // K != columns // K  # an annotator who answered an item twice is not a pair
    return csr_matrix((values[other], (row[other], columns[other])), shape=(C, C))


def check_pairs(size: Ints, C: int) -> None:
    """Refuse a table of pairs of C cells, from items with so many votes, that is too large or too long to count."""
    steps = float((size.astype(np.float64) ** 2).sum())
    cells = min(steps, float(C) ** 2)
    what = f"There are {steps:.0e} pairs of votes on the same item, for up to {cells:.0e} counts of pairs"
    check_cost(what, 8.0 * COUNTED * cells, COUNT_STEPS * steps, ADVICE)


def partners(pairs: csr_matrix, m: int, K: int, rank: int) -> Floats:
    """The blocks R[m, m'] of full rank, side by side: K x (K times their number), without empty columns."""
    slab = pairs[m * K : (m + 1) * K].tocoo()
    others, place = np.unique(slab.col // K, return_inverse=True)
    blocks = np.zeros((len(others), K, K))
    blocks[place, slab.row, slab.col % K] = slab.data
    if len(others):
        blocks = blocks[np.linalg.matrix_rank(blocks, tol=1e-9) == rank]
    columns = blocks.transpose(1, 0, 2).reshape(K, -1)
    return np.asarray(columns[:, columns.sum(axis=0) > 0])


def corners(blocks: Floats, smoothing: float, rank: int) -> Floats:
    """Successive projection: the columns that span the cloud of the labels of m given those of another.

    Each column, counts of m's labels, becomes a distribution with ``smoothing`` pseudo-counts of m's own marginal: a
    column of three votes is not a corner, however pure. Equally long columns: the one with more votes, then the one
    with the likelier labels, so that their order does not matter."""
    mass = blocks.sum(axis=0)
    marginal = blocks.sum(axis=1) / mass.sum()
    points = (blocks + smoothing * marginal[:, None]) / (mass + smoothing)
    rest, chosen = points.copy(), []
    for _ in range(rank):
        length = (rest * rest).sum(axis=0)
        long = np.flatnonzero(length >= length.max() - 1e-10)
        best = long[np.lexsort((marginal @ points[:, long], mass[long]))[-1]]
        chosen.append(best)
        direction = rest[:, best] / np.sqrt(max(length[best], 1e-300))
        rest = rest - np.outer(direction, direction @ rest)
    return np.asarray(points[:, chosen])


def solve_corners(pairs: csr_matrix, counts: Floats, smoothing: float) -> shared.MomentSolution:
    """``multispa``."""
    K = counts.shape[2]
    rank = int((counts.sum(axis=(0, 2)) > 0).sum())  # a class without votes has no column to be found
    table, solved = shared.vote_table(counts), np.zeros(len(counts), dtype=bool)
    for m in range(len(counts)):
        blocks = partners(pairs, m, K, rank)
        if blocks.shape[1] > rank:
            columns = shared.proper(corners(blocks, smoothing, rank))
            classes, places = shared.match(columns, counts[m])
            table[m][:, classes] = columns[:, places]
            solved[m] = True
    return shared.MomentSolution(table, shared.marginal_prior(counts, table), solved)


def solve_coupled(
    votes: Votes, gold: Ints | None, strength: float, weighting: shared.Weighting, rounds: Rounds, tol: float
) -> shared.MomentSolution:
    """``cnmf``: the KL fit of all pairs, from the corners."""
    M, K = votes.n_annotators, votes.n_classes
    counts, pairs = shared.vote_counts(votes, gold), pair_counts(votes, gold)
    check_cost(f"cnmf fits {pairs.nnz:,} counts of pairs at once", 8.0 * (3 * K + 8) * pairs.nnz, 0.0, ADVICE)
    first = solve_corners(pairs, counts, SMOOTHING)
    paired = np.diff(pairs.indptr).reshape(-1, K).sum(axis=1)[:M] > 0
    if not paired.any():
        return first
    table, d = fit_pairs(pairs, first.table, first.d, shared.vote_table(counts), strength, weighting, rounds, tol)
    table[~paired] = first.table[~paired]
    return shared.MomentSolution(table, d, paired, **rounds.outcome)


def fit_pairs(
    pairs: csr_matrix, table: Floats, d: Floats, base: Floats, strength: float, weighting: shared.Weighting,
    rounds: Rounds, tol: float,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Lower sum w KL(R || A d A') - strength sum base log A by multiplicative sweeps from A and d.

    Returns A and d; the trace of ``rounds`` is the negated objective. Take each pair of votes to be drawn with its own
    latent class: then the fit is a mixture, whose EM step is

        A[m, l, k]  <-  A[m, l, k] d[k] sum over (m', l') of (w R / S)[ml, m'l'] A[m', l', k]  +  strength base[m, l, k]
        d[k]        <-  d[k] sum over both of (w R / S) A A

    with columns of A, and d, then set to sum one. So the objective never falls, there is no step size, and zeros of R
    cost nothing. The annotator after the last, the gold labels, keeps the identity.
    """
    M, K, _ = table.shape
    C = M * K
    # A zero would stay zero for ever: the start is moved a little into the simplex.
    A = np.concatenate([0.99 * table + 0.01 / K, np.eye(K)[None]]).reshape(-1, K)
    row, column = np.repeat(np.arange(len(A)), np.diff(pairs.indptr)), pairs.indices
    _, block = np.unique((row // K) * (M + 1) + column // K, return_inverse=True)
    total = np.bincount(block, weights=pairs.data)[block]
    value = pairs.data / total if weighting == "blocks" else pairs.data
    mass, entropy = value.sum(), float(value @ np.log(pairs.data / total))
    paired = np.diff(pairs.indptr)[:C].reshape(M, K).sum(axis=1) > 0
    added = np.where(paired, strength, 0.0)[:, None, None] * base
    for _ in rounds:
        model = np.maximum(((A[row] * d) * A[column]).sum(axis=1), 1e-300)
        fit = (float(value @ np.log(model)) - entropy) / 2.0  # every pair stands in R twice
        rounds.reached(fit + float((added.reshape(C, K) * safe_log(A[:C])).sum()), below=tol * mass / 2.0)
        if rounds.converged:
            break
        push = d * A * (csr_matrix((value / model, column, pairs.indptr), shape=pairs.shape) @ A)
        d = normalise(push.sum(axis=0), axis=0)
        new = push[:C].reshape(M, K, K) + added
        sums = new.sum(axis=1, keepdims=True)
        A[:C] = np.where(sums > 0, new / np.maximum(sums, 1e-300), A[:C].reshape(M, K, K)).reshape(C, K)
    return A[:C].reshape(M, K, K), d


@declared
class MultiSPA(shared.MomentModel):
    """Corners of the labels of each annotator given those of another, by successive projection, then EM.

    Parameters
    ----------
    smoothing
        Pseudo-counts of an annotator's own marginal added to each column before corners are looked for, so that a
        column of a few votes is not a corner. 0: the paper's method.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=6, random_state=0)
    >>> bool(cw.aggregate(crowd.votes, "multispa").score(crowd.truth) > 0.9)
    True
    """

    key = "multispa"

    smoothing: NonNegative = SMOOTHING

    def _solutions(self, votes: Votes, gold: Ints | None) -> list[shared.MomentSolution]:
        return [solve_corners(pair_counts(votes, gold), shared.vote_counts(votes, gold), self.smoothing)]


@declared
class CNMF(shared.WeightedMomentModel):
    """All pairs of annotators fitted at once in Kullback-Leibler divergence, from ``multispa``, then EM.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=6, random_state=0)
    >>> confusion = cw.CNMF(refine=False).fit(crowd.votes).consensus_.confusion
    >>> bool(abs(confusion - crowd.parameters["confusion"]).mean() < 0.06)
    True
    """

    key = "cnmf"

    max_sweeps: Count = 1000
    sweep_tol: NonNegative = 1e-7

    def _solutions(self, votes: Votes, gold: Ints | None) -> list[shared.MomentSolution]:
        rounds = Rounds(self.max_sweeps, 1.0)
        return [solve_coupled(votes, gold, self.prior_strength, self.weighting, rounds, self.sweep_tol)]


EPS = 1e-6


def blocks_of(pairs: csr_matrix, K: int) -> tuple[Ints, Ints, Floats, Floats]:
    """First and second annotator of each pair seen, its joint label shares, and its number of common items."""
    entries = pairs.tocoo()
    C = pairs.shape[0] // K
    key, place = np.unique((entries.row // K).astype(np.int64) * C + entries.col // K, return_inverse=True)
    what = f"{len(key):,} pairs of annotators with common items, over {K:,} classes"
    check_cost(what, 8.0 * 5 * len(key) * K * K, 0.0, ADVICE)  # blocks, two factors, their product, a difference
    blocks = np.zeros((len(key), K, K))
    blocks[place, entries.row % K, entries.col % K] = entries.data
    common = blocks.sum(axis=(1, 2))
    return key // C, key % C, blocks / common[:, None, None], common


def residual(blocks: Floats, left: Floats, right: Floats) -> Floats:
    """|R[m, m'] - U_m U_m'^T|^2 of each pair."""
    return np.asarray(((blocks - left @ right.transpose(0, 2, 1)) ** 2).sum(axis=(1, 2)))


def column_space(
    first: Ints, second: Ints, blocks: Floats, common: Floats, start: Floats, order: Ints, ridge: float,
    rounds: Rounds, tol: float,
) -> Floats:  # fmt: skip
    """Step 1: U, which lowers F one annotator at a time; the trace of ``rounds`` is that of -F.

    The annotator after the last, the gold labels, is not in the order and stays as it is.
    """
    U = start.copy()
    at = np.searchsorted(first, np.arange(len(U) + 1))
    for _ in rounds:
        for m in order[at[order] < at[order + 1]]:
            rows = slice(at[m], at[m + 1])
            V, R, n = U[second[rows]], blocks[rows], common[rows]
            w = n / np.sqrt(n * residual(R, U[m], V) + EPS)
            left = np.einsum("p,pij,pjk->ik", w, R, V) + ridge * start[m]
            right = np.einsum("p,pji,pjk->ik", w, V, V) + ridge * np.eye(U.shape[2])
            # Without the ridge a partner's factors may leave directions open: those of the least norm are taken.
            U[m] = (np.linalg.solve(right, left.T) if ridge > 0 else np.linalg.lstsq(right, left.T)[0]).T
        off = np.sqrt(common * residual(blocks, U[first], U[second]) + EPS).sum() / 2.0  # every pair is there twice
        rounds.reached(-float(off + ridge / 2.0 * ((U - start) ** 2).sum()), below=tol * len(first) / 2.0)
    return U


def rotate(U: Floats, max_turns: int = 500) -> Floats:
    """Step 2: the non-negative H nearest to a rotation of U (rows stacked, MK x K)."""
    Q, height = np.eye(U.shape[1]), np.inf
    for _ in range(max_turns):
        H = np.maximum(U @ Q, 0.0)
        left, _, right = np.linalg.svd(U.T @ H)
        Q = left @ right
        new = float(((H - U @ Q) ** 2).sum())
        if height - new < 1e-12 * max(height, 1e-300):
            break
        height = new
    return np.asarray(np.maximum(U @ Q, 0.0))


def solve_symmetric(votes: Votes, gold: Ints | None, ridge: float, rounds: Rounds, tol: float) -> shared.MomentSolution:
    """``symnmf``."""
    M, K = votes.n_annotators, votes.n_classes
    counts = shared.vote_counts(votes, gold)
    guess = shared.vote_solution(counts)
    first, second, blocks, common = blocks_of(pair_counts(votes, gold), K)
    if not len(first):
        return guess
    used = np.flatnonzero(counts.sum(axis=(0, 2)) > 0)  # a class without votes has no column to be found
    start = (np.concatenate([guess.table, np.eye(K)[None]]) * np.sqrt(guess.d))[:, :, used]
    U = column_space(first, second, blocks, common, start, shared.ranking(votes), ridge, rounds, tol)
    solved = np.bincount(first, minlength=M + 1)[:M] > 0
    H = rotate(U[:M][solved].reshape(-1, len(used))).reshape(-1, K, len(used))
    sums = H.sum(axis=1)
    columns = shared.proper(H / np.maximum(sums, shared.FLOOR)[:, None])
    classes, places = shared.match(columns.reshape(-1, len(used)), counts[solved].reshape(-1, K))
    return guess.replaced(solved, classes, columns[:, :, places], np.median(sums[:, places], axis=0) ** 2, rounds)


@declared
class SymNMF(shared.SweptMomentModel):
    """A symmetric factorisation of all pairwise statistics, rotated to be non-negative, then EM.

    Parameters
    ----------
    ridge
        How strongly factors are shrunk towards those of the counts. The ridge is worth a fixed number of common items,
        so it gives way as votes come in.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=6, random_state=0)
    >>> bool(abs(cw.SymNMF().initial_confusion(crowd.votes) - crowd.parameters["confusion"]).mean() < 0.06)
    True
    """

    key = "symnmf"

    ridge: NonNegative = 30.0

    def _solutions(self, votes: Votes, gold: Ints | None) -> list[shared.MomentSolution]:
        return [solve_symmetric(votes, gold, self.ridge, Rounds(self.max_sweeps, 1.0), self.sweep_tol)]
