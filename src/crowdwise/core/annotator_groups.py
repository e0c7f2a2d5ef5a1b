"""Which annotators depend on each other: groups from second-order statistics of the votes.

Given the truth y, annotators of different groups answer independently, so how often m says l where m' says l' has a
covariance of rank K - 1 whose factors are shared by *all* pairs. Members of one group share a hidden opinion
z, which adds a term of its own to their pairs and to no others:

    Cov(m, m') = U_m U_m'^T                      in different groups
    Cov(m, m') = U_m U_m'^T + W_m W_m'^T         in the same group (W is what z varies by when y is held)

So the shared factor is fitted to all pairs, robustly, and the residuals show which annotators form groups.

=============  =============  ==========  =============================================================================
symbol         code           shape       equation
=============  =============  ==========  =============================================================================
n[i, j]        ``common``     P           items that both labelled (P pairs of annotators with ``min_common``)
T[i, j]        ``block``      P x K x K   (joint share - product of shares) / sqrt((mu_i + 5/n) (mu_j + 5/n)), by label
U[m]           ``factor``     M x K x r   argmin sum w n |T_ij - U_i U_j^T|^2, w = 1 / (1 + n |E_ij|^2 / ((K - 1)^2 c))
E[i, j]        ``rest``       P x K x K   T_ij - U_i U_j^T
z[i, j]        ``surprise``   P           (sqrt(n / (K - 1)) tr E_ij - shift) / spread: agreement beyond the truth
shift, spread  the same       1           median before, at least 0; 1.48 median |z - median|, at least 1
=============  =============  ==========  =============================================================================

T is scaled as in Pearson's chi-squared test, so that without dependence z is about Normal. Shift and spread account for
what all pairs have in common beyond the truth (hard items, above all): groups are pairs with more than that. They grow
by joining the two whose pairs have the highest mean z, as long as their sum is more than chance allows: the probability
of finding any group where there is none is at most ``level``. A given number of groups is found by spectral clustering
of the positive z.

A. Jaffe, E. Fetaya, B. Nadler, T. Jiang and Y. Kluger, Unsupervised ensemble learning with dependent classifiers,
AISTATS 2016, for two classes; P. A. Traganitis and G. B. Giannakis, Identifying dependent annotators in crowdsourcing,
Asilomar 2022, for any number. The robust factor and the threshold are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError

MIN_COMMON = 20
"""Pairs with fewer common items are not used: the chi-squared distribution needs some."""
PSEUDO_ITEMS = 5.0
"""Items added to each share in the scale of T: the usual least expected count of a chi-squared test."""
TAIL = 4.0
"""c: a pair whose residual is so many times that expected by chance counts a fifth in the shared factor."""
MAX_NUMBERS = 2e8
"""The most numbers held for pairs of votes or of annotators."""
MAX_BLOCK = 1e7
"""The most products of two votes on an item that are held at once: 10,000 annotators of one item make 1e8 pairs."""
MAX_GROUPED = 1500
"""The most annotators whose table of pairs is held for joining groups."""
SHARE = 0.3
"""Groups are joined where the pairs across have this share of the mean z of the pairs within."""


@dataclass(frozen=True)
class PairBlocks:
    """Pairs of annotators (i < j) with enough common items, and T of each."""

    i: Ints
    j: Ints
    common: Floats
    block: Floats
    n_annotators: int


@dataclass(frozen=True)
class PairDependence:
    """The residuals of the pairs once the truth is accounted for, and the groups in them."""

    pairs: PairBlocks
    rest: Floats
    surprise: Floats
    threshold: float
    """The z from which a pair is dependent, at the level asked for over all pairs."""
    group: Ints
    """The group of each annotator; 0 is the largest, and the last ones are groups of one."""


def answers(votes: Votes) -> Any:
    """X (N x MK, sparse): 1 where m said l on n; two answers of an annotator to one item are split by weight."""
    from scipy.sparse import csr_matrix

    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    item, who = votes.item, votes.annotator.astype(np.int64)
    size = csr_matrix((votes.weights, (item, who)), shape=(N, M))
    X = csr_matrix((votes.weights, (item, who * K + votes.label)), shape=(N, M * K))
    X.sum_duplicates()
    size.sum_duplicates()
    row = np.repeat(np.arange(N), np.diff(X.indptr))
    key = np.repeat(np.arange(N), np.diff(size.indptr)) * np.int64(M) + size.indices
    total = size.data[np.searchsorted(key, row * np.int64(M) + X.indices // K)] if len(key) else np.empty(0)
    X.data = np.divide(X.data, total, out=np.zeros_like(X.data), where=total > 0)
    X.eliminate_zeros()
    return X


def _products(X: Any) -> Iterator[tuple[Ints, Ints, Floats]]:
    """The entries of X^T X (row, column, value), as many rows at a time as need at most ``MAX_BLOCK`` products."""
    cost = np.cumsum(np.asarray(X.T @ np.diff(X.indptr).astype(np.float64)))
    turned, start = X.T.tocsr(), 0
    while start < len(cost):
        before = cost[start - 1] if start else 0.0
        stop = max(int(np.searchsorted(cost, before + MAX_BLOCK, side="right")), start + 1)
        part = (turned[start:stop] @ X).tocoo()
        yield part.row.astype(np.int64) + start, part.col.astype(np.int64), np.asarray(part.data, dtype=np.float64)
        start = stop


def common_items(X: Any, M: int, K: int, min_common: int = MIN_COMMON) -> tuple[Ints, Ints, Floats]:
    """The pairs i < j of annotators with at least ``min_common`` common items, and how many these are."""
    from scipy.sparse import csr_matrix

    seen = csr_matrix((np.ones(len(X.data)), X.indices // K, X.indptr.copy()), shape=(X.shape[0], M))
    seen.sum_duplicates()
    seen.data[:] = 1.0
    busy = np.flatnonzero(np.bincount(seen.indices, minlength=M) >= min_common)  # no other has so many in common
    seen = seen[:, busy]
    size = np.diff(seen.indptr).astype(np.float64)
    if float((size**2).sum()) > 20 * MAX_NUMBERS:
        raise InputError(
            f"There are {(size**2).sum():.0e} pairs of votes on the same items, too many to look at. "
            "Take a sample of the items (votes[rows]), or leave out annotators with few votes (votes.without)."
        )
    kept = [np.zeros((0, 3), dtype=np.int64)]
    for row, col, count in _products(seen):
        keep = (row < col) & (count >= min_common)
        kept.append(np.stack([busy[row[keep]], busy[col[keep]], count[keep].astype(np.int64)], axis=1))
    pairs = np.concatenate(kept)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    return pairs[:, 0], pairs[:, 1], pairs[:, 2].astype(np.float64)


def pair_blocks(votes: Votes, min_common: int = MIN_COMMON) -> PairBlocks:
    """T of all pairs of annotators with at least ``min_common`` common items."""
    M, K = votes.n_annotators, votes.n_classes
    X = answers(votes)
    i, j, common = common_items(X, M, K, min_common)
    if len(i) * float(K * K) > MAX_NUMBERS:
        raise InputError(
            f"{len(i):,} pairs of annotators have {min_common} common items or more: with {K} classes their tables are "
            "too large. Ask for more common items, merge rare classes, or leave out annotators with few votes."
        )
    block = np.zeros((len(i), K, K))
    if len(i):
        paired = np.union1d(i, j)
        cells = (paired[:, None] * K + np.arange(K)).ravel()
        key = i * M + j
        for row, col, count in _products(X[:, cells]):
            a, b = paired[row // K], paired[col // K]
            place = np.minimum(np.searchsorted(key, a * M + b), len(key) - 1)
            hit = key[place] == a * M + b
            block[place[hit], row[hit] % K, col[hit] % K] = count[hit]
    n_ = common[:, None, None]
    left, right = block.sum(axis=2, keepdims=True) / n_, block.sum(axis=1, keepdims=True) / n_
    scale = np.sqrt((left + PSEUDO_ITEMS / n_) * (right + PSEUDO_ITEMS / n_))
    return PairBlocks(i, j, common, (block / n_ - left * right) / scale, M)


def fit_factor(pairs: PairBlocks, rank: int, max_iter: int = 500, tol: float = 1e-9) -> Floats:
    """U, by damped alternating least squares with weights that fall with the residual; all annotators at once.

    Nothing depends on their order: every update uses the state before it.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import LinearOperator, eigsh

    P, K, _ = pairs.block.shape
    M, df = pairs.n_annotators, (K - 1.0) ** 2
    U = np.zeros((M, K, rank))
    if not P:
        return U
    both = np.concatenate([pairs.i, pairs.j]), np.concatenate([pairs.j, pairs.i])
    T = np.concatenate([pairs.block, pairs.block.transpose(0, 2, 1)])
    n = np.concatenate([pairs.common, pairs.common])
    onto = csr_matrix((np.ones(2 * P), (both[0], np.arange(2 * P))), shape=(M, 2 * P))
    degree = np.maximum(np.asarray(onto @ n).ravel(), 1.0)
    length = np.sqrt((T**2).sum(axis=(1, 2)))
    # No pair counts more than the typical one at the start: a few copies must not be taken for the truth.
    capped = T * np.minimum(1.0, np.median(length) / np.maximum(length, 1e-300))[:, None, None]

    def apply(x: Floats) -> Floats:
        """The weighted T, without its diagonal, on a vector; scaled so that busy annotators do not dominate."""
        y = (x.reshape(M, K) / np.sqrt(degree)[:, None])[both[1]]
        out = onto @ (n[:, None] * np.einsum("pkl,pl->pk", capped, y))
        return np.asarray((out / np.sqrt(degree)[:, None]).ravel() + 2.0 * x)  # + 2 x: the top, not the bottom

    size = M * K
    if size <= 600:
        full = np.column_stack([apply(e) for e in np.eye(size)])
        value, vector = np.linalg.eigh((full + full.T) / 2.0)
        value, vector = value[-rank:], vector[:, -rank:]
    else:
        v0 = np.random.default_rng(0).standard_normal(size)
        value, vector = eigsh(LinearOperator((size, size), matvec=apply, dtype=np.float64), k=rank, which="LA", v0=v0)
    start = vector * np.sqrt(np.maximum(value - 2.0, 1e-6))
    U = start.reshape(M, K, rank) / np.sqrt(degree)[:, None, None] * np.sqrt(degree.max())
    S = np.einsum("pkr,plr->pkl", U[both[0]], U[both[1]])
    near, square = (float((n * (x * S).sum(axis=(1, 2))).sum()) for x in (capped, S))
    U *= np.sqrt(max(near / max(square, 1e-300), 1e-6))  # U U^T nearest to T
    for _ in range(max_iter):
        other = U[both[1]]
        E = T - np.einsum("pkr,plr->pkl", U[both[0]], other)
        w = n / (1.0 + n * (E**2).sum(axis=(1, 2)) / (df * TAIL))
        top = onto @ (w[:, None, None] * np.einsum("pkl,plr->pkr", T, other)).reshape(2 * P, -1)
        bottom = onto @ (w[:, None, None] * np.einsum("pkr,pks->prs", other, other)).reshape(2 * P, -1)
        total = np.asarray(onto @ w).ravel()
        A = bottom.reshape(M, rank, rank) + (1e-6 * total + 1e-12)[:, None, None] * np.eye(rank)
        new = np.linalg.solve(A, top.reshape(M, K, rank).transpose(0, 2, 1)).transpose(0, 2, 1)
        size_of = np.sqrt((new**2).sum(axis=(1, 2), keepdims=True))
        new = new * np.minimum(1.0, np.sqrt(K) / np.maximum(size_of, 1e-300))  # a share of what can be explained
        before, U = U, (U + new) / 2.0
        if float(np.abs(U - before).max()) < tol:
            break
    return np.asarray(U)


def dependence(
    votes: Votes, *, level: float = 0.05, min_common: int = MIN_COMMON, extra: int = 0, pairs: PairBlocks | None = None
) -> PairDependence:
    """The dependent groups of annotators, as many as the test at ``level`` finds.

    ``pairs``: what :func:`pair_blocks` gave for the votes, where it has been called already.

    ``extra``: how many factors all annotators may share beside the truth (r = K - 1 + extra). Hard items are one: they
    make everybody err together, which does not make a group. It costs some power where data is small.
    """
    from scipy.special import ndtri

    K, M = votes.n_classes, votes.n_annotators
    pairs = pairs or pair_blocks(votes, min_common)
    factor = fit_factor(pairs, K - 1 + extra)
    rest = pairs.block - np.einsum("pkr,plr->pkl", factor[pairs.i], factor[pairs.j])
    z = np.sqrt(pairs.common / (K - 1.0)) * np.einsum("pkk->p", rest)
    middle = float(np.median(z)) if len(z) else 0.0
    spread = max(1.0, 1.4826 * float(np.median(np.abs(z - middle)))) if len(z) else 1.0
    z = (z - max(middle, 0.0)) / spread
    threshold = float(-ndtri(level / max(len(z), 1)))
    group = cut(tree(pairs, z, threshold), M, 1) if (z > threshold).any() else np.arange(M)
    return PairDependence(pairs, rest, z, threshold, group)


def tree(pairs: PairBlocks, z: Floats, threshold: float | None = None) -> list[tuple[int, int]]:
    """The joins, in turn: always of the two groups whose pairs have the highest mean z (average linkage).

    With a ``threshold``, only where the sum of z over the pairs across, divided by the root of their number, passes it
    and their mean is at least ``SHARE`` of that inside either group.
    """
    candidate = candidates(pairs, z, threshold)
    C = len(candidate)
    total, count = affinity(pairs, z, candidate)
    held, within = np.zeros(C), np.zeros(C)  # sum of z, and pairs, inside each group
    mean = np.where(count > 0, total, -np.inf)
    np.fill_diagonal(mean, -np.inf)
    done: list[tuple[int, int]] = []
    while len(done) < C - 1:
        allowed = mean
        if threshold is not None:
            bond = np.divide(held, within, out=np.zeros(C), where=within > 0)
            enough = (total > threshold * np.sqrt(count)) & (mean >= SHARE * np.maximum.outer(bond, bond))
            allowed = np.where(enough, mean, -np.inf)
        a, b = (int(x) for x in np.unravel_index(int(allowed.argmax()), allowed.shape))
        if allowed[a, b] == -np.inf:
            break
        held[a] += held[b] + total[a, b]
        within[a] += within[b] + count[a, b]
        for table in (total, count):
            table[a] += table[b]
            table[:, a] += table[:, b]
            table[b] = table[:, b] = table[a, a] = 0.0
        mean[a] = mean[:, a] = np.divide(total[a], count[a], out=np.full(C, -np.inf), where=count[a] > 0)
        mean[b] = mean[:, b] = -np.inf
        done.append((int(candidate[a]), int(candidate[b])))
    return done


def candidates(pairs: PairBlocks, z: Floats, threshold: float | None) -> Ints:
    """The annotators to be put in groups; of very many, those in a pair that is significant by itself."""
    M = pairs.n_annotators
    if M <= MAX_GROUPED:
        return np.arange(M)
    strong = z > (4.5 if threshold is None else threshold)
    dependent = np.unique(np.concatenate([pairs.i[strong], pairs.j[strong]]))
    if len(dependent) > MAX_GROUPED:
        raise InputError(
            f"{len(dependent):,} annotators seem to depend on others: at most {MAX_GROUPED:,} can be put in groups. "
            "Look at fewer of them (votes.only), or give the groups."
        )
    return dependent


def affinity(pairs: PairBlocks, z: Floats, candidate: Ints) -> tuple[Floats, Floats]:
    """Two symmetric tables over the candidates: z, and 1 where there is any."""
    C = len(candidate)
    place = np.full(pairs.n_annotators, -1)
    place[candidate] = np.arange(C)
    inside = (place[pairs.i] >= 0) & (place[pairs.j] >= 0)
    i, j = place[pairs.i[inside]], place[pairs.j[inside]]
    total, count = np.zeros((C, C)), np.zeros((C, C))
    total[i, j] = total[j, i] = z[inside]
    count[i, j] = count[j, i] = 1.0
    return total, count


def spectral_groups(residuals: PairDependence, groups: int, max_iter: int = 100) -> Ints:
    """So many groups: the directions of the top eigenvectors of the scaled positive z, clustered by angle.

    The first centre is the annotator with most ties, each next one the annotator farthest from those before: nothing
    is drawn, and only angles enter, so neither order nor the signs of eigenvectors matter.
    """
    M = residuals.pairs.n_annotators
    candidate = candidates(residuals.pairs, residuals.surprise, None)
    W = np.maximum(affinity(residuals.pairs, residuals.surprise, candidate)[0], 0.0)
    group = np.arange(M) + M
    if len(candidate) and W.any():
        degree = W.sum(axis=1) + W.sum() / len(W)  # plus the mean: those with few ties do not dominate
        value, vector = np.linalg.eigh(W / np.sqrt(np.outer(degree, degree)))
        J = min(groups, len(W))
        X = vector[:, value > max(float(np.sort(value)[-J]) - 1e-12, 1e-9)]
        X = X / np.maximum(np.sqrt((X**2).sum(axis=1, keepdims=True)), 1e-12)
        chosen = [int(degree.argmax())]
        far = 1.0 - X @ X[chosen[0]]
        while len(chosen) < J:
            chosen.append(int(far.argmax()))
            far = np.minimum(far, 1.0 - X @ X[chosen[-1]])
        centre, label = X[chosen], np.zeros(len(X), dtype=np.int64)
        for step in range(max_iter):
            new = (X @ centre.T).argmax(axis=1)
            if step and np.array_equal(new, label):
                break
            label = new
            total = np.zeros_like(centre)
            np.add.at(total, label, X)
            size = np.sqrt((total**2).sum(axis=1, keepdims=True))
            centre = np.where(size > 1e-12, total / np.maximum(size, 1e-12), centre)
        group[candidate] = label
    return renumbered(group)


def cut(merges: list[tuple[int, int]], M: int, groups: int) -> Ints:
    """The groups when so many are left (or as few as there are links for)."""
    label = np.arange(M)
    for a, b in merges[: max(M - groups, 0)]:
        label[label == b] = a
    return renumbered(label)


def renumbered(group: Ints) -> Ints:
    """Groups numbered by size, the largest first; equals in the order of their first member."""
    _, first, code, size = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(size), dtype=np.int64)
    rank[np.lexsort((first, -size))] = np.arange(len(size))
    return np.asarray(rank[code])
