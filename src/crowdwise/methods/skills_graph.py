"""The graph of annotators with common items, as sparse matrices, for the methods that are built on it.

=========  ===============  ==========  =============================================================================
symbol     code             shape       equation
=========  ===============  ==========  =============================================================================
A[n, m]    ``signed``       N x M       sum of weights of m's votes on n, + for the class asked about, - for others
n[i, j]    ``Pairs.n``      M x M       sum over items of the products of both annotators' vote weights; 0 for i = j
c[i, j]    ``Pairs.c``      M x M       (K * share of common items on which they agree - 1) / (K - 1)
=========  ===============  ==========  =============================================================================

Annotators who share items, directly or through others, form a group. Groups that share none carry no information on
each other, and everything here is solved group by group: the top eigenvector of all would be zero on all groups but
one. All votes on an item belong to one group. Memory grows with the votes and with the pairs of annotators who
share an item; nothing is items x annotators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from crowdwise.core.numerics import Floats, Ints, softmax
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_sums import tally
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError

DENSE = 200
"""Up to this size an eigenvector is found by a dense solver, beyond it by Lanczos iteration."""
MAX_PAIRS = 50_000_000
"""More pairs of annotators are refused: this many take some gigabytes (7,000 annotators who all share items)."""
MAX_MEETINGS = 20_000_000_000
"""More pairs of votes on the same item are refused: counting this many takes minutes."""
CONTRADICTIONS = 3
"""Gold labels turn a sign round when they contradict it this many times more often than they confirm it."""


def signed(votes: Votes, k: int) -> Any:
    """A[n, m]: the weight of m's votes for class k on item n minus that of their votes for others (sparse, CSR)."""
    from scipy.sparse import csr_matrix

    value = np.where(votes.label == k, 1.0, -1.0) * votes.weights
    A = csr_matrix((value, votes.annotator, votes.indptr), shape=(len(votes), votes.n_annotators), copy=True)
    A.sum_duplicates()
    return A


class AgreementPairs(NamedTuple):
    """Pairs of annotators: n, the common (weighted) items, and c, the agreement above chance (sparse, CSR)."""

    n: Any
    c: Any


def with_gold(votes: Votes, gold: Ints | None) -> tuple[Ints, Ints, Ints, Floats, int]:
    """Item, annotator, label and weight of every vote, and how many annotators: gold labels are one more, the last."""
    item, who, label, w, M = votes.item, votes.annotator, votes.label, votes.weights, votes.n_annotators
    if gold is not None and (gold >= 0).any():
        known = np.flatnonzero(gold >= 0)
        item, who = np.append(item, known), np.append(who, np.full(len(known), M))
        label, w = np.append(label, gold[known]), np.append(w, np.ones(len(known)))
        M += 1
    return item, who, label, w, M


def pairs(votes: Votes, gold: Ints | None) -> AgreementPairs:
    """c[i, j] = (K * agreement - 1) / (K - 1) over common items, without the diagonal.

    In expectation it is s_i s_j for annotators of one accuracy, s = (K p - 1) / (K - 1). Gold labels
    are one more annotator, the last.
    """
    from scipy.sparse import csr_matrix

    N, K = len(votes), votes.n_classes
    item, who, label, w, M = with_gold(votes, gold)
    n = common(csr_matrix((w, (item, who)), shape=(N, M)))
    cells = csr_matrix((w, (item * K + label, who)), shape=(N * K, M))
    share = on_pattern(cells.T @ cells, n) / n.data
    return AgreementPairs(n, like(n, (K * share - 1.0) / (K - 1.0)))


def common(size: Any) -> Any:
    """n[i, j], the common items of two annotators, off the diagonal, from the N x M sizes of their votes (CSR)."""
    check_pairs(np.diff(size.indptr), size.shape[1])
    n = (size.T @ size).tocsr()
    n.setdiag(0.0)
    n.eliminate_zeros()
    n.sort_indices()
    return n


def check_pairs(votes_on: Ints, M: int) -> None:
    """Refuse crowds with too many pairs of annotators to go through, before the machine starts to swap.

    ``votes_on``: how many annotators each item has. No more pairs can share an item than there are, nor than meet.
    """
    d = np.asarray(votes_on, dtype=np.float64)
    meetings = float((d * (d - 1.0)).sum())
    pairs = min(meetings, M * (M - 1.0))
    if pairs > MAX_PAIRS or meetings > MAX_MEETINGS:
        raise InputError(
            f"{M:,} annotators, up to {d.max():,.0f} of them on an item, may be {pairs:,.0f} pairs that share an item "
            f"(at most {MAX_PAIRS:,}) and meet {meetings:,.0f} times (at most {MAX_MEETINGS:,}): "
            "too many for methods that use every pair. Use anchored, dawid-skene or one-coin, "
            "whose cost grows with the votes alone, or leave out annotators with few votes."
        )


def on_pattern(values: Any, pattern: Any) -> Floats:
    """The entries of a sparse M x M matrix where another has some, 0 where it has none itself."""
    values = values.tocsr()
    values.sum_duplicates()  # sorted, which is searched quickly
    return entries(values, np.repeat(np.arange(len(pattern.indptr) - 1), np.diff(pattern.indptr)), pattern.indices)


def entries(values: Any, row: Ints, column: Ints) -> Floats:
    """Entries of a sparse matrix, 0 where it has none."""
    return np.asarray(values[row, column], dtype=np.float64).ravel() if len(row) else np.zeros(0)


def like(pattern: Any, data: Ints) -> Any:
    """A sparse matrix with the places of another and new entries (zeros are kept)."""
    from scipy.sparse import csr_matrix

    return csr_matrix((data, pattern.indices, pattern.indptr), shape=pattern.shape)


def groups_of(graph: Any) -> Ints:
    """The group of each annotator: the components connected through common items."""
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(graph, directed=False)[1])


def share_items(A: Any) -> Ints:
    """Which annotators share an item with another (A: N x M, sparse, CSR)."""
    size = np.diff(A.indptr)
    shared = np.repeat(size > 1, size)
    return np.asarray(np.bincount(A.indices[shared], minlength=A.shape[1]) > 0)


def groups_through(A: Any) -> Ints:
    """The group of each annotator, from the N x M votes (CSR) themselves: as cheap as the votes, whatever the pairs."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    N, M = A.shape
    item = np.repeat(np.arange(N), np.diff(A.indptr))
    links = csr_matrix((np.ones(len(item)), (A.indices, M + item)), shape=(M + N, M + N))
    return np.asarray(connected_components(links, directed=False)[1][:M])


def leading(apply: Callable[[Floats], Floats], size: int) -> tuple[float, Floats]:
    """The eigenvalue of largest modulus of a symmetric operator on vectors of a size, and its unit eigenvector."""
    if size <= DENSE:
        full = np.column_stack([apply(e) for e in np.eye(size)])
        values, vectors = np.linalg.eigh((full + full.T) / 2.0)
        top = int(np.where(values > 0.0, values, -values * (1.0 - 1e-9)).argmax())  # of two opposite ones the positive
        same = vectors[:, np.abs(values - values[top]) <= 1e-9 * abs(values[top])]
        if same.shape[1] == 1:
            return float(values[top]), vectors[:, top]
        even = same @ same.sum(axis=0)  # of several, what they have of all annotators alike: no order decides
        norm = float(np.linalg.norm(even))
        return float(values[top]), even / norm if norm > 1e-6 else np.zeros(size)
    from scipy.sparse.linalg import LinearOperator, eigsh

    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)
    v0 = np.random.default_rng(0).standard_normal(size)  # fixed: the result repeats, and no symmetry cancels it
    values, vectors = eigsh(operator, k=1, which="LM", v0=v0, tol=0.0)
    return float(values[0]), vectors[:, 0]


def by_group(group: Ints, solve: Callable[[Ints], Floats]) -> Floats:
    """A vector over annotators, solved group by group; 1 for annotators who share no items."""
    out = np.ones(len(group))
    order = np.argsort(group, kind="stable")
    for members in np.split(order, np.cumsum(np.bincount(group))[:-1]):
        if len(members) > 1:
            out[members] = solve(members)
    return out


def near_zero(x: Floats, otherwise: float = 0.0) -> Floats:
    """The numbers, with another one where they are 0 up to rounding."""
    return np.where(np.abs(x) > 1e-9 * max(float(np.abs(x).max(initial=0.0)), 1e-3), x, otherwise)


def supported(group: Ints, support: Floats, v: Floats) -> Floats:
    """M: the sign of each annotator's group, by the support that is summed over it, else by the sum of v; 0 where
    neither decides, so that nothing depends on the order of rows."""
    out = np.zeros(len(group))
    for value in (support, v):
        total = np.bincount(group, weights=value)[group]
        size = np.bincount(group, weights=np.abs(value))[group]
        out = np.where((out == 0.0) & (np.abs(total) > 1e-9 * size), np.sign(total), out)
    return out


def by_first(indptr: Ints, annotator: Ints, value: Floats, M: int) -> Floats:
    """M: values of items, each attributed to the first of its annotators, to be summed over groups."""
    voted = np.diff(indptr) > 0
    return np.bincount(annotator[indptr[:-1][voted]], weights=value[voted], minlength=M).astype(np.float64)


def at_mean(value: Floats, M: int) -> Floats:
    """Values of M annotators, those not seen in the fit at the mean of the others."""
    return with_unseen(value, M, value.mean())


def softmax_used(logits: Floats, used: Ints) -> Floats:
    """The softmax over the classes in use."""
    return softmax(np.where(used, logits, -np.inf))


def used_classes(votes: Votes, gold: Ints | None) -> Ints:
    """Which classes have a vote or a gold label."""
    used = np.bincount(votes.label, minlength=votes.n_classes) > 0
    if gold is not None:
        used[gold[gold >= 0]] = True
    return np.asarray(used)


def weighted(votes: Votes, weight: Floats, used: Ints) -> Floats:
    """softmax_k of the summed weights of the annotators who said k, over the classes in use."""
    return softmax_used(tally(votes, weight), used)


def contradicted(q: Floats, gold: Ints | None) -> bool:
    """Whether gold labels contradict a posterior often enough to turn it round."""
    if gold is None:
        return False
    known = np.flatnonzero(gold >= 0)
    return float(np.sign(1.0 / q.shape[1] - q[known, gold[known]]).sum()) >= CONTRADICTIONS
