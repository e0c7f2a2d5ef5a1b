"""Message passing between items and annotators (Karger, Oh and Shah): an iterative way to a leading direction.

The votes are the matrix A of :mod:`crowdwise.methods.spectral_vectors`, +1 and -1, or one such matrix per class. Every
vote carries two messages, of the item to the annotator and back:

    x[n>m] = sum_{m' != m} A[n, m'] y[m'>n]        y[m>n] = sum_{n' != n} A[n', m] x[n'>m]

from random y around 1, and the score of an item is t[n] = sum_m A[n, m] y[m>n], whose sign is the label. Without
their own vote, annotators do not agree with themselves; on a sparse random graph, which has few short cycles, that
makes the messages nearly independent.

Reference: Karger, Oh and Shah 2011.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from crowdwise.core.constraints import Count
from crowdwise.core.model import Callback, Floats, Ints, Outcome, Votes, declared
from crowdwise.data import encoding
from crowdwise.methods.skills_graph import groups_through, signed
from crowdwise.methods.spectral_vectors import OneVsRest, Question, centred


def first_messages(A: Any, rng: np.random.Generator) -> Floats:
    """Normal(1, 1) draws, one per stored entry of A, in an order that does not depend on names.

    Entries are ranked by a number made from the answers alone (three rounds of power iteration, even in A), so the
    same draws go to the same votes whatever annotators, items and classes are called.
    """
    size = np.bincount(A.indices, weights=np.abs(A.data), minlength=A.shape[1])
    a = 1.0 / (1.0 + size)
    for _ in range(3):
        a = A.T @ (A @ a)
        a = a / max(float(np.abs(a).max()), 1e-300) + 1.0 / (1.0 + size)
    total = A @ a
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    rank = np.argsort(A.data * total[row] * np.sqrt(2.0) + a[A.indices], kind="stable")
    y = np.empty(A.nnz)
    y[rank] = rng.normal(1.0, 1.0, A.nnz)
    return y


def pass_messages(A: Any, y: Floats, rounds: int) -> tuple[Floats, Floats]:
    """After some rounds: y[m>n] per stored entry of A, and y[m] with no item left out.

    The sums over all but one are sums over all, minus one. Messages are scaled to a root mean square of 1 in every
    group and round: only their ratios matter, and they would overflow after some hundred rounds.
    """
    N, M = A.shape
    row, col, a = np.repeat(np.arange(N), np.diff(A.indptr)), A.indices, A.data
    group = groups_through(A)
    count = np.maximum(np.bincount(group[col], minlength=group.max() + 1), 1)
    total: Floats = np.zeros(M)
    for _ in range(rounds):
        x, _ = all_but_own(a * y, row, N)
        y, total = all_but_own(a * x, col, M)
        rms = np.sqrt(np.bincount(group[col], weights=y**2, minlength=len(count)) / count)
        rms[rms == 0.0] = 1.0
        y, total = y / rms[group[col]], total / rms[group]
    return y, total


def all_but_own(value: Floats, at: Ints, size: int) -> tuple[Floats, Floats]:
    """The sums at each place without the own value, and with it.

    Differences within rounding are 0, or scaling would turn them into messages.
    """
    total = np.bincount(at, weights=value, minlength=size).astype(np.float64)
    scale = np.bincount(at, weights=np.abs(value), minlength=size)
    rest = total[at] - value
    return np.where(np.abs(rest) > 1e-13 * scale[at], rest, 0.0), total


@declared
class KOS(OneVsRest):
    """Iterative message passing between items and annotators.

    Made for random sparse assignments (l annotators per item, r items per annotator), where it is order-optimal.
    Probabilities as in :class:`Ghosh`. Items of the fit are predicted with the messages that leave them out, new ones
    with the annotators' whole weights.

    Parameters
    ----------
    rounds
        How many times messages go back and forth; the first are drawn from Normal(1, 1), seeded.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(600, n_annotators=60, share=0.4, votes_per_item=9, random_state=0)
    >>> messages, plain = (cw.aggregate(crowd.votes, key).score(crowd.truth) for key in ("kos", "majority"))
    >>> messages > plain + 0.02
    True
    """

    key = "kos"
    single_votes = "open"

    rounds: Count = 10
    edges_: tuple[Any, Ints] = field(init=False)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        A = signed(votes, 0)
        row = np.repeat(np.arange(len(votes), dtype=np.int64), np.diff(A.indptr))
        self.edges_ = (votes.items, row * votes.n_annotators + A.indices)
        return super()._fit(votes, gold, item_prior, callback)

    def _rounds(self) -> int:
        return int(self.rounds)

    def _learn(self, A: Any, k: int) -> Question:
        rng = np.random.default_rng(self.random_state)
        edge, total = pass_messages(A, first_messages(A, rng), self.rounds)
        return Question(k, total, np.zeros(A.shape[1]), centred(A, total[A.indices] - edge), edge=edge)

    def _edge_weight(self, A: Any, votes: Votes, question: Question) -> Floats:
        if question.edge is None:
            return super()._edge_weight(A, votes, question)
        items, keys = self.edges_
        M = len(self.questions_[0].weight)
        at = encoding.locate(votes.items, items).astype(np.int64)[np.repeat(np.arange(len(votes)), np.diff(A.indptr))]
        key = np.where((at >= 0) & (A.indices < M), at * M + A.indices, -1)
        place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return np.where(keys[place] == key, question.edge[place], question.weight[A.indices])
