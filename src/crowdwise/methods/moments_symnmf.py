"""Confusion matrices from pairs of annotators, by a symmetric factorisation that fills in the pairs never seen.

Stacked over annotators, the pair probabilities are one symmetric matrix of rank K,

    X = H H^T      with block X[m, m'] = R[m, m'] = A_m D A_m'^T  and  H_m = A_m D^(1/2) >= 0.

``symnmf`` finds its column space first and turns it into something non-negative afterwards:

1. U (MK x K) such that U_m U_m'^T is near R[m, m'] on the blocks that were seen. Own blocks (m = m') and those of pairs
   without common items are free: the factorisation fills them in. Distances, not squares, are summed, so that
   outlying blocks count less; that is iteratively reweighted least squares, one annotator after the other,

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
U            ``U``        M x K x K      factors of step 1, from B
Q            ``Q``        K x K          rotation, from the identity
A[m, l, k]   ``table``    M x K x K      H_m with its columns set to sum one
d[k]         ``d``        K              square of the median column sum of H_m, normalised
===========  ===========  =============  ==================================================================

S. Ibrahim and X. Fu, Crowdsourcing via annotator co-occurrence imputation and provable symmetric nonnegative matrix
factorization, ICML 2021: its robust stage one and its stage two. Weights by common items, the start and the
ridge towards it are ours; without the ridge, sparse crowds with many or rare classes are rotated wrongly.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from crowdwise.core.constraints import NonNegative
from crowdwise.core.loop import check_cost
from crowdwise.core.model import Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints
from crowdwise.methods import moments_shared as shared
from crowdwise.methods.moments_pairs import ADVICE, pair_counts

EPS = 1e-6


def blocks_of(pairs: csr_matrix, K: int) -> tuple[Ints, Ints, Floats, Floats]:
    """First and second annotator of each pair seen, its joint label shares, and its number of common items."""
    found = pairs.tocoo()
    C = pairs.shape[0] // K
    key, place = np.unique((found.row // K).astype(np.int64) * C + found.col // K, return_inverse=True)
    what = f"{len(key):,} pairs of annotators with common items, over {K:,} classes"
    check_cost(what, 8.0 * 5 * len(key) * K * K, 0.0, ADVICE)  # blocks, two factors, their product, a difference
    blocks = np.zeros((len(key), K, K))
    blocks[place, found.row % K, found.col % K] = found.data
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
    used = np.flatnonzero(counts.sum(axis=(0, 2)) > 0)  # a class that nobody names has no column to be found
    start = (np.concatenate([guess.table, np.eye(K)[None]]) * np.sqrt(guess.d))[:, :, used]
    U = column_space(first, second, blocks, common, start, shared.ranking(votes), ridge, rounds, tol)
    solved = np.bincount(first, minlength=M + 1)[:M] > 0
    H = rotate(U[:M][solved].reshape(-1, len(used))).reshape(-1, K, len(used))
    sums = H.sum(axis=1)
    found = shared.proper(H / np.maximum(sums, shared.FLOOR)[:, None])
    classes, places = shared.match(found.reshape(-1, len(used)), counts[solved].reshape(-1, K))
    return guess.replaced(solved, classes, found[:, :, places], np.median(sums[:, places], axis=0) ** 2, rounds)


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
