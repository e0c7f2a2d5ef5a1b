"""Confusion matrices from triples of annotators, by the eigenvectors of a tensor.

``spectral-ds``: annotators are divided into three groups. The vote shares Z_a, Z_b, Z_c of the groups on an item are
independent given its class. Two of them are turned into further views of the third, after which

    E[Z_a' Z_b'] = sum_k d_k c_k c_k        E[Z_a' Z_b' Z_c] = sum_k d_k c_k c_k c_k

with c_k the k-th column of the group's mean confusion. Whitened by the first, the second is a sum of K orthogonal
rank-one tensors, found one by one by the tensor power method. Each annotator's matrix follows by regression of
their votes on the shares of the two groups they are not in.

=============  ===========  ===========  =========================================================================
symbol         code         shape        equation
=============  ===========  ===========  =========================================================================
A[m, l, k]     ``table``    M x K x K    theta[m, k, l], with the label first; E[z_m Z_g'] = A_m D C_g'
d[k]           ``d``        K            the class prior pi
Z_g[n, l]      ``Z``        3 x N x K    share of l among the votes of group g on item n
C_g            ``means``    3 x K x K    mean confusion of group g, columns c_k
W              ``whiten``   K x r        U s^(-1/2), of E[Z_a' Z_b'] = U s U'
T              ``T``        r x r x r    E[W'Z_a' W'Z_b' W'Z_c] = sum_k d_k^(-1/2) v_k v_k v_k
c_k                                      d_k^(-1/2) U s^(1/2) v_k
=============  ===========  ===========  =========================================================================

Several splits into groups are tried, and the one that makes the votes most probable is kept. Where no item has votes of
all three groups, the solution is that of the counts.

Y. Zhang, X. Chen, D. Zhou and M. I. Jordan, Spectral methods meet EM: a provably optimal algorithm for
crowdsourcing, JMLR 17 (2016). A. Anandkumar et al., Tensor decompositions for learning latent variable models,
JMLR 15 (2014), for the power method.
"""

from __future__ import annotations

import numpy as np

from crowdwise import kernels
from crowdwise.core.constraints import Count, NonNegative, RandomState
from crowdwise.core.loop import check_cost
from crowdwise.core.model import Part, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.core.vote_sums import per_annotator
from crowdwise.methods import moments_shared as shared

RCOND = 1e-4
"""Directions under this share of the largest are not inverted."""
ROUNDS = 30
"""Rounds of the power method after which the strongest start goes on alone."""


def three_groups(votes: Votes, splits: int, rng: np.random.Generator) -> list[Ints]:
    """Groups 0, 1, 2 of annotators, several times: first by rank in turn, then with each three in the ranking shuffled.

    Three neighbours in the ranking always go to three groups, so the groups stay alike.
    """
    M, place = votes.n_annotators, np.argsort(shared.ranking(votes))
    first = np.tile(np.arange(3), (-(-M // 3), 1))
    return [(rng.permuted(first, axis=1) if split else first).ravel()[place] for split in range(splits)]


def group_shares(votes: Votes, group: Ints) -> Floats:
    """Z[g, n, l]: the share of l among the votes of group g on item n; a zero row where it has none."""
    N, K = len(votes), votes.n_classes
    place = (group[votes.annotator] * N + votes.item) * K + votes.label
    Z = np.bincount(place, weights=votes.weights, minlength=3 * N * K).reshape(3, N, K)
    total = Z.sum(axis=2, keepdims=True)
    return np.asarray(np.divide(Z, total, out=np.zeros_like(Z), where=total > 0))


def tensor_power(T: Floats, starts: Floats) -> tuple[Floats, Floats]:
    """The rank-one parts l v v v of a nearly orthogonal symmetric tensor, strongest first: eigenvalues, vectors (rows).

    v <- T(., v, v), normalised, from every start at once; the one that is strongest after a few rounds (they converge
    quadratically) goes on alone until it converges, and its part is subtracted.
    """
    T = T.copy()
    values, vectors = [], []
    for _ in range(len(T)):
        v = power_rounds(T, starts, ROUNDS)
        strength = np.einsum("til,ti,tl->t", np.tensordot(v, T, axes=1), v, v)
        v = power_rounds(T, v[[int(strength.argmax())]], 10 * ROUNDS)[0]
        values.append(float(np.tensordot(v, T, axes=1) @ v @ v))
        vectors.append(v)
        T -= values[-1] * np.multiply.outer(np.outer(v, v), v)
    return np.array(values), np.array(vectors)


def power_rounds(T: Floats, v: Floats, rounds: int) -> Floats:
    """v <- T(., v, v), normalised, for each row of v."""
    v = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)
    for _ in range(rounds):
        new = np.einsum("til,tl->ti", np.tensordot(v, T, axes=1), v)
        new /= np.maximum(np.linalg.norm(new, axis=1, keepdims=True), 1e-300)
        moved = np.abs(new - v).max()
        v = new
        if moved < 1e-14:
            break
    return np.asarray(v)


def solve_view(Z: Floats, view: int) -> tuple[Floats, Floats] | None:
    """Mean confusion of one group (columns in no order) and the class prior, from the moments of all three groups.

    The other two groups are turned into further views of this one, Z_a' = E[Z_c Z_b] E[Z_a Z_b]^-1 Z_a, after which
    E[Z_a' Z_b'] = sum d c c and E[Z_a' Z_b' Z_c] = sum d c c c. ``None`` where no item has votes of all three.
    """
    c, a, b = Z[view], Z[(view + 1) % 3], Z[(view + 2) % 3]
    everywhere = (c.sum(axis=1) > 0) & (a.sum(axis=1) > 0) & (b.sum(axis=1) > 0)
    n = int(everywhere.sum())
    if n == 0:
        return None
    ca, cb, ab = (x.T @ y / max(1, int((x.any(axis=1) & y.any(axis=1)).sum())) for x, y in ((c, a), (c, b), (a, b)))
    to_a, to_b = cb @ np.linalg.pinv(ab, rcond=RCOND), ca @ np.linalg.pinv(ab.T, rcond=RCOND)
    second = to_a @ ab @ to_b.T
    size, U = np.linalg.eigh((second + second.T) / 2.0)
    if size[-1] <= 0:
        return None
    U, size = U[:, size > RCOND * size[-1]], size[size > RCOND * size[-1]]
    whiten, colour = U / np.sqrt(size), U * np.sqrt(size)
    x, y, z = a[everywhere] @ (to_a.T @ whiten), b[everywhere] @ (to_b.T @ whiten), c[everywhere] @ whiten
    T = np.stack([(x[:, i, None] * y).T @ z for i in range(len(size))]) / n
    T = sum((T.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))), 0.0 * T) / 6.0
    strength, vectors = tensor_power(T, whiten)  # from the direction of each label
    good = strength > 1e-6
    if not good.any():
        return None
    strength, vectors = strength[good], vectors[good]
    return shared.proper(colour @ (vectors * strength[:, None]).T), strength**-2.0


def solve_groups(
    votes: Votes, gold: Ints | None, smoothing: float, splits: int, random_state: RandomState
) -> list[shared.MomentSolution]:
    """``spectral-ds``: a solution for each split into groups that has one; that of the counts where none has."""
    check_triples(len(votes), votes.n_classes, splits)
    rng = np.random.default_rng(random_state)
    counts = shared.vote_counts(votes, gold)
    solutions = (solve_split(votes, counts, group, smoothing) for group in three_groups(votes, splits, rng))
    return [solution for solution in solutions if solution is not None] or [shared.vote_solution(counts)]


def check_triples(N: int, K: int, splits: int) -> None:
    """Refuse shares of three groups (with their working copies) and tensors that are too large."""
    need, steps = 8.0 * (9.0 * N * K + 9.0 * K**3), 3.0 * splits * ROUNDS * float(K) ** 5
    advice = "Merge rare classes, ask for fewer splits, or use cnmf, which needs no tensor."
    check_cost(f"spectral-ds solves for a tensor of {K:,} x {K:,} x {K:,} over {N:,} items", need, steps, advice)


def solve_split(votes: Votes, counts: Floats, group: Ints, smoothing: float) -> shared.MomentSolution | None:
    """The three groups' mean confusion and the prior, then every annotator by regression on the other two groups."""
    K = votes.n_classes
    Z = group_shares(votes, group)
    means, d = np.empty((3, K, K)), np.zeros(K)
    for g in range(3):
        view = solve_view(Z, g)
        if view is None:
            return None
        pooled = counts[group == g].sum(axis=0)
        classes, places = shared.match(view[0], pooled)
        means[g], share = normalise(pooled + shared.FLOOR, axis=0), normalise(pooled.sum(axis=0) + shared.FLOOR, axis=0)
        means[g][:, classes], share[classes] = view[0][:, places], view[1][places]
        d += normalise(share, axis=0) / 3.0
    d = normalise(np.maximum(d, shared.FLOOR), axis=0)
    table, solved = regress(votes, Z, group, means, d, smoothing)
    table[~solved] = shared.vote_table(counts)[~solved]
    return shared.MomentSolution(table, d, solved)


def regress(votes: Votes, Z: Floats, group: Ints, means: Floats, d: Floats, smoothing: float) -> tuple[Floats, Ints]:
    """A_m by least squares from E[z_m Z_g'] = A_m D C_g', g the groups m is not in, each weighted by common items.

    Returns A and which annotators have common items with another group at all.

    ``smoothing`` votes for each class, distributed like those of m's group, are added: with few votes a least-squares
    cell at zero is no evidence that it cannot happen.
    """
    M, K, part = votes.n_annotators, votes.n_classes, Part.of(votes)
    left, right = np.zeros((M, K, K)), np.zeros((M, K, K))
    for g in range(3):
        H = d[:, None] * means[g].T
        joint = kernels.scatter(part.indptr, part.cell, part.weight, Z[g], part.n_cells).reshape(M, K, K)
        joint[group == g] = 0.0
        left += joint @ H.T
        right += joint.sum(axis=(1, 2))[:, None, None] * (H @ H.T)
    estimate = shared.proper(left @ np.linalg.pinv(right, rcond=RCOND, hermitian=True))
    seen = per_annotator(votes)[:, None] * d
    table = (seen[:, None] * estimate + smoothing * means[group]) / np.maximum(seen + smoothing, shared.FLOOR)[:, None]
    return table, np.asarray(right.any(axis=(1, 2)))


@declared
class SpectralDS(shared.MomentModel):
    """Third moments of three groups of annotators, solved by the tensor power method, then EM.

    Parameters
    ----------
    splits
        How many ways of dividing annotators into groups are tried; the one that makes the votes most probable is kept.
        The first is by rank, the others are seeded.
    smoothing
        Votes for each class, distributed like those of an annotator's group, added to their regression.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=6, random_state=0)
    >>> model = cw.SpectralDS(refine=False).fit(crowd.votes)
    >>> bool(abs(model.consensus_.confusion - crowd.parameters["confusion"]).mean() < 0.1)
    True
    """

    key = "spectral-ds"

    splits: Count = 10
    smoothing: NonNegative = 10.0

    def _solutions(self, votes: Votes, gold: Ints | None) -> list[shared.MomentSolution]:
        return solve_groups(votes, gold, self.smoothing, self.splits, self.random_state)
