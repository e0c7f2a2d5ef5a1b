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
A[m, l, k]    ``A``        M x K x K     theta[m, k, l], with the label first; columns on the simplex
d[k]          ``d``        K             the class prior pi, on the simplex
w p, R, T     ``first``,   sparse        items on which m said l, (m, a) said (l, l'), (m, a, b) said (l, l', l''); w is
              ``pairs``,                 the number of common items (``weighting="counts"``), which is the inverse
              ``triples``                variance of a share up to a constant, or 1 (``"blocks"``, as in the paper)
B[m, l, k]    ``base``     M x K x K     the matrices of the counts: the start of A, towards which it is shrunk
G_a           ``G``        M x K K       A_a' A_a
Gram                       K x K         D ( sum w G_a * G_b + sum w G_a + w 1 1' ) D + s I, s = ``prior_strength``
target                     K x K         D ( sum w T [A_a * A_b] + sum w R A_a + w p 1' )' + s B_m'
X, V, U       same         K x K         X = (Gram + rho I)^-1 (target + rho (V + U)), V = simplex(X - U), U += V - X
rho                                      trace(Gram) / K
============  ===========  ============  ===========================================================================

A ``*`` is taken cell by cell. The moments, and the limit on their number, are in ``moments_counts``. Gold labels are
one more annotator, who is never wrong. Where no three annotators share an item, the solution is that of the counts.

P. A. Traganitis, A. Pages-Zamora and G. B. Giannakis, Blind multiclass ensemble classification, IEEE Transactions on
Signal Processing 66 (2018). K. Huang, N. D. Sidiropoulos and A. P. Liavas, A flexible and efficient algorithmic
framework for constrained matrix and tensor factorization, same journal 64 (2016), for the inner ADMM and its rho.
Weights by common items, the start at the votes (the paper's is random) and the shrinkage are ours.
"""

from __future__ import annotations

import numpy as np

from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.model import Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.methods import moments_shared as shared
from crowdwise.methods.moments_counts import Moments, check_size, statistics


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
    # A class that nobody names has no column to be found.
    classes = np.flatnonzero(data.first.sum(axis=0) > 0)
    start = np.concatenate([guess.table[able], np.eye(K)[None]])[:, :, classes]
    rank = shared.ranking(votes)
    order = local[rank[able[rank]]]
    first = normalise(guess.d[classes], axis=0)
    A, d = fit_moments(data, start, first, start, strength, order[paired[order]], inner, rounds, tol)
    solved = able.copy()
    solved[able] = paired
    found = A[:-1][paired]
    columns, places = shared.match(
        found.reshape(-1, len(classes)), counts[solved][:, :, classes].reshape(-1, len(classes))
    )
    return guess.replaced(solved, classes[columns], shared.proper(found)[:, :, places], d[places], rounds)


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
