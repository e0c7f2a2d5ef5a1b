"""Singular vectors: the leading direction of the matrix of votes.

Two classes become +1 and -1, and the votes a sparse items x annotators matrix A (0: no vote; weights and repeated
votes of one annotator on one item add up). If every annotator has one accuracy, A is a rank-one matrix y s^T, truth
times skill, seen through noise and holes; each method takes a leading direction of it.

===========  =========================================================================================================
method       weights v of the annotators, and the score t[n] whose sign is the label
===========  =========================================================================================================
``ghosh``    v: top right singular vector of A; t = A v; the sign that goes with the vote totals
``kos-svd``  the same of B = A minus its column means; t = B v; the sign in which v has most of its mass on v >= 0
``kos``      messages between items and annotators, t[n] = sum_m A[n, m] y[m>n]:
             x[n>m] = sum_{m' != m} A[n, m'] y[m'>n]        y[m>n] = sum_{n' != n} A[n', m] x[n'>m]
             from random y around 1. Without their own vote, annotators do not agree with themselves; on a sparse
             random graph, which has few short cycles, that makes the messages nearly independent
===========  =========================================================================================================

=========  ==================  ======  ===============================================================================
symbol     code                shape   equation
=========  ==================  ======  ===============================================================================
A[n, m]    ``signed``          N x M   sum of weights of m's votes on n, + for the class asked about, - for others
z, g       ``evidence``        N       t / |A v|_2 and |A v|_1 / |A v|_2 over the votes of an item
s          ``mean_log_odds``   1       root of sum(z^2 - 1) / sum(g^2 - 1): the mean skill
log-odds   posterior           N       2 artanh(s) z g: g^2 effective votes, each worth as much
=========  ==================  ======  ===============================================================================

The methods give signs, not probabilities; the last three lines turn their scores into probabilities, item by item, so
that an item whose annotators all have tiny weights is not uncertain for that reason. Labels are the methods' own.

More than two classes: one question per class, "k or not k?", and q[n, k] proportional to the odds of k, which is the
posterior given that exactly one answer is yes. Gold labels decide the sign of the vector where they contradict the
method's rule clearly.

References: Zhang, Chen, Zhou and Jordan 2016 (kos-svd, as they ran it under the name of kos); Ghosh, Kale and McAfee
2011 (ghosh); Karger, Oh and Shah 2011 (kos).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crowdwise.core.constraints import Count
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.model import Callback, Outcome, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, normalise
from crowdwise.data import encoding
from crowdwise.methods import skills_graph as graph
from crowdwise.methods import skills_precision as fallback
from crowdwise.methods.skills_graph import groups_through, signed


def evidence(A: Any, y: Floats, offset: Floats) -> tuple[Floats, Floats]:
    """Scores made comparable between items: z = t / |Ay|_2 and g = |Ay|_1 / |Ay|_2, zero without votes; y a weight per
    stored entry of A.

    g^2 is the effective number of votes (that many equal ones spread alike), so z g is a difference of votes.
    """
    Ay = A.data * y
    t, length, square = (np.asarray(graph.like(A, x).sum(axis=1)).ravel() for x in (Ay, np.abs(Ay), Ay**2))
    norm = np.sqrt(square)
    z, g = (np.divide(x, norm, out=np.zeros_like(x), where=norm > 0) for x in (t - offset, length))
    return z, g


def mean_log_odds(z: Floats, g: Floats) -> float:
    """2 artanh(s): the log-odds of one effective vote. With skill s for all, E z^2 = 1 + s^2 (g^2 - 1)."""
    excess, room = float((z**2 - (g > 0)).sum()), float(np.maximum(g**2 - 1.0, 0.0).sum())
    return float(2.0 * np.arctanh(np.sqrt(np.clip(excess / room if room > 0 else 0.0, 0.01, 0.9))))


@dataclass(frozen=True)
class ClassQuestion:
    """The question "class k or not?": weights and offsets of annotators, and the log-odds of an effective vote."""

    k: int
    weight: Floats
    offset: Floats
    influence: Floats
    """How far each vote moves the weight of its annotator, the other annotators fixed, less the mean of that."""
    worth: float = 1.0
    edge: Floats | None = None
    sign: float = 1.0


def alike(A: Any, k: int) -> ClassQuestion:
    """The question with one weight for all annotators."""
    M = A.shape[1]
    return ClassQuestion(k, np.ones(M), np.zeros(M), np.zeros(A.nnz))


class OneVsRest(fallback.FallsBack, ABC):
    """Methods for yes-or-no questions: one for two classes, else one per class. A subclass gives ``_learn``."""

    questions_: list[ClassQuestion]
    used_: Ints

    @abstractmethod
    def _learn(self, A: Any, k: int) -> ClassQuestion:
        """The weights of the annotators, with the sign that the method gives them."""

    def _edge_weight(self, A: Any, votes: Votes, question: ClassQuestion) -> Floats:
        return np.asarray(question.weight[A.indices])

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        self.used_ = graph.used_classes(votes, gold)
        q, A = self._ask(votes, gold, self._learn)
        notes = [fallback.NOTE] if self._unusable(votes, gold, q) else []
        if notes:
            q, A = self._ask(votes, gold, alike, common=True)
        weight = np.mean([question.sign * question.weight for question in self.questions_], axis=0)
        # A vote answers all questions at once: its influences are summed before they are squared.
        influence = np.mean([question.sign * question.influence for question in self.questions_], axis=0)
        variance = influence_variance(A, influence)
        variance[(weight == 0.0) | bool(notes)] = np.inf
        columns, rounds = with_interval("weight", weight, *around(weight, variance)), getattr(self, "rounds", 0)
        prior = normalise(q.sum(axis=0), axis=0)
        return Outcome(posterior=q, prior=prior, iterations=rounds, annotator_columns=columns, notes=notes)

    def _ask(
        self, votes: Votes, gold: Ints | None, learn: Callable[[Any, int], ClassQuestion], common: bool = False
    ) -> tuple[Floats, Any]:
        """The posterior from all questions, which are kept, and the matrix of the last one.

        ``common``: a vote has the same log-odds in all questions, so that equal weights give the majority.
        """
        K, asked, scores = votes.n_classes, [], []
        for k in [1] if K == 2 else range(K):
            A = graph.signed(votes, k)
            question = learn(A, k)
            edges = question.weight[A.indices] if question.edge is None else question.edge
            z, g = evidence(A, edges, _item_offset(A, question.offset))
            if gold is not None:
                signs, true = np.sign(z[gold >= 0]), np.where(gold[gold >= 0] == k, 1.0, -1.0)
                if -(signs * true).sum() >= graph.CONTRADICTIONS:
                    question, z = replace(question, sign=-question.sign), -z
            asked.append(replace(question, worth=mean_log_odds(z, g)))
            scores.append(z * g)
        if common:
            worth = float(np.mean([question.worth for question in asked]))
            asked = [replace(question, worth=worth) for question in asked]
        self.questions_ = asked
        logits = [question.worth * score for question, score in zip(asked, scores, strict=True)]
        return clamp(posterior(np.column_stack(logits), self.used_), gold), A

    def _predict(self, votes: Votes) -> Floats:
        logits = []
        for question in self.questions_:
            A = graph.signed(votes, question.k)
            weight, offset = (graph.at_mean(x, votes.n_annotators) for x in (question.weight, question.offset))
            whole = replace(question, weight=weight, offset=offset)
            z, g = evidence(A, self._edge_weight(A, votes, whole), _item_offset(A, whole.offset))
            logits.append(question.sign * question.worth * z * g)
        return posterior(np.column_stack(logits), self.used_)


def influence_variance(A: Any, influence: Floats) -> Floats:
    """M: the variance of estimates, from the influence of each stored entry of A; infinite without common items."""
    variance = np.bincount(A.indices, weights=influence**2, minlength=A.shape[1]).astype(np.float64)
    variance[~graph.share_items(A)] = np.inf
    return variance


def _item_offset(A: Any, offset: Floats) -> Floats:
    """The offset of each item: that of its annotators (who are all of one group, unless the item is new)."""
    if not offset.any():
        return np.zeros(A.shape[0])
    size = abs(A)
    total = np.asarray(size.sum(axis=1)).ravel()
    return np.asarray(np.divide(size @ offset, total, out=np.zeros_like(total), where=total > 0))


def posterior(logits: Floats, used: Ints) -> Floats:
    """Probabilities from the log-odds of the questions; a class without votes gets none."""
    if logits.shape[1] == 1:
        logits = np.column_stack([-logits[:, 0] / 2.0, logits[:, 0] / 2.0])
    return graph.softmax_used(logits, used)


def top_right(A: Any, centre: bool) -> tuple[Floats, Floats, Ints]:
    """Top right singular vector of A (of A minus its column means over the group's items), group by group.

    Also the column means times the vector, summed over the group: the difference between A v and t.
    """
    M = A.shape[1]
    by_annotator = A.tocsc()
    group = graph.groups_through(A)
    offset = np.zeros(M)

    def solve(members: Ints) -> Floats:
        part = by_annotator[:, members]
        part = part.tocsr()[np.flatnonzero(np.diff(part.tocsr().indptr))]
        N = part.shape[0]
        mean = np.asarray(part.mean(axis=0)).ravel() if centre else np.zeros(len(members))
        _, v = graph.leading(lambda x: part.T @ (part @ x) - N * mean * (mean @ x), len(members))
        offset[members] = mean @ v
        return v

    return graph.by_group(group, solve), offset, group


def orient(v: Floats, offset: Floats, group: Ints, support: Floats) -> tuple[Floats, Floats]:
    """Turn v (and the offset) in the groups where the support, summed over the group, is negative; 0 without any."""
    sign = graph.supported(group, support, v)
    return v * sign, offset * sign


def centred(A: Any, value: Floats) -> Floats:
    """Values of stored entries of A, less the mean of their annotator's."""
    n = np.maximum(np.bincount(A.indices, minlength=A.shape[1]), 1)
    return np.asarray(value - (np.bincount(A.indices, weights=value, minlength=A.shape[1]) / n)[A.indices])


def influences(A: Any, v: Floats, offset: Floats, group: Ints) -> Floats:
    """How far each vote moves v[m], less the mean of that: v[m] is a sum over m's items of A times the others' votes.

    With t = A v and l the eigenvalue, l v[m] = sum_n A[n, m] t[n], of which sum_n A[n, m]^2 v[m] is m's own part and
    does not vary; so v[m] = sum_n A[n, m] (t[n] - A[n, m] v[m]) / (l - sum_n A[n, m]^2).
    """
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    t = A @ v - _item_offset(A, offset)
    voted = np.diff(A.indptr) > 0
    owner = group[A.indices[A.indptr[:-1][voted]]]
    top = np.bincount(owner, weights=t[voted] ** 2, minlength=int(group.max()) + 1)[group]
    own = np.bincount(A.indices, weights=A.data**2, minlength=A.shape[1])
    term = A.data * (t[row] - A.data * v[A.indices])
    return centred(A, term / np.maximum(top - own, 1e-12)[A.indices])


class Ghosh(OneVsRest):
    """Weights from the top singular vector of the +-1 matrix of votes.

    Labels are the signs of the left singular vector, turned so that they agree with the vote totals. Probabilities
    come from the effective number of votes on each item times the mean log-odds of a vote: see :func:`evidence`. Three
    or more classes: one question per class.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=12, votes_per_item=8, random_state=0)
    >>> weighted, plain = (cw.aggregate(crowd.votes, key).score(crowd.truth) for key in ("ghosh", "majority"))
    >>> weighted > plain + 0.1
    True
    """

    key = "ghosh"

    def _learn(self, A: Any, k: int) -> ClassQuestion:
        v, offset, group = top_right(A, centre=False)
        t = A @ v
        support = np.where(np.abs(t) > 1e-9, np.sign(t), 0.0) * np.asarray(A.sum(axis=1)).ravel()
        v, offset = orient(v, offset, group, graph.by_first(A.indptr, A.indices, support, A.shape[1]))
        return ClassQuestion(k, v, offset, influences(A, v, np.zeros(A.shape[1]), group))


class KOSSVD(OneVsRest):
    """Weights from the top singular vector of the column-centred +-1 matrix of votes.

    The method that Zhang et al. ran under the name of Karger, Oh and Shah. Without each annotator's mean it does not
    depend on how lopsided classes are; the sign of the vector is that with most of its mass on v >= 0. Probabilities as
    in :class:`Ghosh`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.two_coin(300, n_annotators=12, random_state=1)
    >>> cw.aggregate(crowd.votes, "kos-svd").score(crowd.truth) > 0.9
    True
    """

    key = "kos-svd"

    def _learn(self, A: Any, k: int) -> ClassQuestion:
        v, offset, group = top_right(A, centre=True)
        v, offset = orient(v, offset, group, np.where(v >= 0.0, v**2, -(v**2)))
        return ClassQuestion(k, v, offset, influences(A, v, offset, group))


def first_messages(A: Any, rng: np.random.Generator) -> Floats:
    """Normal(1, 1) draws, one per stored entry of A, in an order that does not depend on names.

    Entries are ranked by a number made from the answers alone (three rounds of power iteration, even in A), so the
    same draws go to the same votes whatever annotators, items and classes are called. Entries with the same number are
    exchangeable, and get the same draw.
    """
    size = np.bincount(A.indices, weights=np.abs(A.data), minlength=A.shape[1])
    a = 1.0 / (1.0 + size)
    for _ in range(3):
        a = A.T @ (A @ a)
        a = a / max(float(np.abs(a).max()), 1e-300) + 1.0 / (1.0 + size)
    total = A @ a
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    number = A.data * total[row] * np.sqrt(2.0) + a[A.indices]
    order = np.argsort(number)
    new = np.diff(number[order], prepend=-np.inf) > 1e-9 * np.abs(number).max(initial=1e-300)
    y = np.empty(A.nnz)
    y[order] = rng.normal(1.0, 1.0, A.nnz)[np.cumsum(new) - 1]
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
        y, total = (y / rms[group[col]]).round(10), total / rms[group]  # rounding errors must not grow to messages
    return y, total


def all_but_own(value: Floats, at: Ints, size: int) -> tuple[Floats, Floats]:
    """The sums at each place without the own value, and with it.

    Differences within rounding are 0, or scaling would turn them into messages.
    """
    total = np.bincount(at, weights=value, minlength=size).astype(np.float64)
    scale = np.bincount(at, weights=np.abs(value), minlength=size)
    rest = total[at] - value
    return np.where(np.abs(rest) > 1e-11 * scale[at], rest, 0.0), total


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

    def _learn(self, A: Any, k: int) -> ClassQuestion:
        rng = np.random.default_rng(self.random_state)
        edge, total = pass_messages(A, first_messages(A, rng), self.rounds)
        return ClassQuestion(k, total, np.zeros(A.shape[1]), centred(A, total[A.indices] - edge), edge=edge)

    def _edge_weight(self, A: Any, votes: Votes, question: ClassQuestion) -> Floats:
        if question.edge is None:
            return super()._edge_weight(A, votes, question)
        items, keys = self.edges_
        M = len(self.questions_[0].weight)
        at = encoding.locate(votes.items, items).astype(np.int64)[np.repeat(np.arange(len(votes)), np.diff(A.indptr))]
        key = np.where((at >= 0) & (A.indices < M), at * M + A.indices, -1)
        place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return np.where(keys[place] == key, question.edge[place], question.weight[A.indices])
