"""Agreement on spans: gamma, and the mean F1 of two annotators.

**Gamma** aligns the spans of all n annotators of an item at once and compares the disorder with that of shuffled spans.
Two spans u, v differ by

    d(u, v) = alpha ((|start u - start v| + |end u - end v|) / (length u + length v))^2 + beta [labels differ].

A unitary alignment holds at most one span of each annotator; a pair in which one or both are missing costs 1. Its
disorder is the mean over the n (n - 1) / 2 pairs. An alignment puts every span into one unitary alignment; its disorder
is the sum over them, divided by the mean number of spans of an annotator. With k spans u a unitary alignment costs

    1 + sum over pairs of its spans (d - 1) / (n (n - 1) / 2),

so one that costs more than its k spans each by themselves is never of use, and spans that only such ones join can be
aligned apart. Those left are enumerated, and the best choice is an integer program: the result is exact. Where an item
has more than ``COLUMNS`` of them, spans are joined greedily instead, for the answers and the shuffles alike.

Chance: the spans of a random annotator of the item, shifted by a random distance around the stretch from the first to
the last span, for each of n annotators. The distances are half a mean length apart, as far as there is room.
gamma = 1 - disorder / mean disorder of shuffles. Over items, disorders are summed, each times its spans per annotator.

Reference: Y. Mathet, A. Widlocher and J.-P. Metivier, The unified and holistic method gamma for inter-annotator
agreement, Computational Linguistics 41 (2015).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.span_overlap import HALF, matches
from crowdwise.data.spans import Spans

COLUMNS = 3_000
"""So many unitary alignments are weighed against each other at most."""
SHUFFLES = 30
"""Shuffles of an item; of many items, so many that there are 300 in all."""


def dissimilarity(start: Ints, end: Ints, label: Ints, alpha: float = 1.0, beta: float = 1.0) -> Floats:
    """d of all pairs of some spans."""
    far = np.abs(start[:, None] - start) + np.abs(end[:, None] - end)
    length = end - start
    other = label[:, None] != label
    return np.asarray(alpha * (far / np.maximum(length[:, None] + length, 1e-12)) ** 2 + beta * other)


def best_alignment(d: Floats, who: Ints, n: int) -> tuple[float, Ints]:
    """The least total of unitary disorders, and the unitary alignment of each span, for spans of annotators ``who``
    (codes from 0) of n annotators.

    >>> d = dissimilarity(*map(np.array, ([0, 1, 50], [9, 9, 60], [0, 0, 0])))
    >>> total, group = best_alignment(d, np.array([0, 1, 1]), 2)
    >>> round(total, 4), group.tolist()
    (1.0035, [0, 0, 1])
    """
    group = np.arange(len(who))
    pairs = n * (n - 1) / 2.0
    # Spans further apart than this only meet in unitary alignments that cost more than their spans one by one.
    near = (d < 1.0 + pairs) & (who[:, None] != who)
    total, todo = 0.0, np.ones(len(who), dtype=bool)
    for first in range(len(who)):
        if todo[first]:
            part = np.zeros(len(who), dtype=bool)
            part[first] = True
            while (more := part | near[part].any(axis=0)).sum() > part.sum():
                part = more
            todo &= ~part
            some = np.flatnonzero(part)
            cost, own = _aligned_part(d[np.ix_(some, some)], who[some], pairs)
            total += cost
            group[some] = some[own]
    return total, np.unique(group, return_inverse=True)[1].reshape(-1)


def _aligned_part(d: Floats, who: Ints, pairs: float) -> tuple[float, Ints]:
    """:func:`best_alignment` of spans that hang together: its cost, and the first span beside each."""
    S = len(who)
    if S == 1:
        return 1.0, np.zeros(1, dtype=np.int64)
    if len(np.unique(who)) == 2:
        return _aligned_two(d, who, pairs)
    columns = _unitary(d, who, pairs)
    return _greedy(d, who, pairs) if columns is None else _chosen(*columns, S)


def _aligned_two(d: Floats, who: Ints, pairs: float) -> tuple[float, Ints]:
    """Of two annotators the best alignment is an assignment."""
    from scipy.optimize import linear_sum_assignment

    one, two = (np.flatnonzero(who == m) for m in np.unique(who))
    gain = np.maximum(1.0 - (d[np.ix_(one, two)] - 1.0) / pairs, 0.0)
    row, column = linear_sum_assignment(gain, maximize=True)
    kept = gain[row, column] > 0.0
    own = np.arange(len(who))
    own[two[column[kept]]] = one[row[kept]]
    return float(len(who) - gain[row, column].sum()), own


def _unitary(d: Floats, who: Ints, pairs: float) -> tuple[Any, Floats] | None:
    """Unitary alignments (rows of span numbers, -1 for none) that cost no more than their spans one by one, and their
    costs; ``None`` where there are too many."""
    S, people = len(who), np.unique(who)
    found, cost, size = np.full((1, 0), -1), np.zeros(1), np.zeros(1, dtype=np.int64)
    wide = np.pad(d - 1.0, ((0, 1), (0, 1)))
    for left, m in zip(range(len(people) - 1, -1, -1), people, strict=True):
        new = np.append(np.flatnonzero(who == m), -1)
        more = cost[:, None] + wide[found[:, :, None], new].sum(axis=1)
        found = np.column_stack([np.repeat(found, len(new), axis=0), np.tile(new, len(found))])
        cost, size = more.ravel(), (size[:, None] + (new >= 0)).ravel()
        # At best each further span costs nothing and lowers the sum by one for every pair.
        most = size + left
        bound = 1.0 + (cost - (most * (most - 1) - size * (size - 1)) / 2.0) / pairs
        kept = bound <= most
        found, cost, size = found[kept], cost[kept], size[kept]
        if len(found) > COLUMNS * 10:
            return None
    total = 1.0 + cost / pairs
    kept = (size == 1) | ((size > 1) & (total < size))
    if kept.sum() > COLUMNS:
        return None
    member = np.zeros((int(kept.sum()), S + 1), dtype=bool)
    member[np.arange(len(member))[:, None], found[kept]] = True
    return member[:, :S], total[kept]


def _chosen(member: Any, cost: Floats, S: int) -> tuple[float, Ints]:
    """The cheapest unitary alignments that hold every span once."""
    from scipy.optimize import LinearConstraint, linprog, milp
    from scipy.sparse import csc_matrix

    once = csc_matrix(member.T.astype(np.float64))
    x = linprog(cost, A_eq=once, b_eq=np.ones(S), method="highs-ds").x  # most often whole numbers already
    if np.abs(x - x.round()).max() > 1e-6:
        x = milp(cost, constraints=LinearConstraint(once, 1.0, 1.0), integrality=np.ones(len(cost))).x
    taken = np.flatnonzero(x > 0.5)
    return float(cost[taken].sum()), np.asarray(member[taken].argmax(axis=1)[member[taken].argmax(axis=0)])


def _greedy(d: Floats, who: Ints, pairs: float) -> tuple[float, Ints]:
    """Join the two groups that lower the cost most, as long as some do."""
    S = len(who)
    gain, clash, group = 1.0 - (d - 1.0) / pairs, who[:, None] == who, np.arange(S)
    total = float(S)
    while True:
        value = np.where(clash, -np.inf, gain)
        i, j = sorted(divmod(int(value.argmax()), S))
        if value[i, j] <= 0.0:
            return total, group
        total -= float(value[i, j])
        gain[i] += gain[j] - 1.0
        gain[:, i] = gain[i]
        clash[i] |= clash[j]
        clash[:, i] = clash[i]
        clash[j] = clash[:, j] = True
        group[group == j] = i


def shuffled(start: Ints, end: Ints, who: Ints, n: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """The rows, starts and annotators of spans that lie by chance (see the top of this module)."""
    low, high, apart = int(start.min()), int(end.max()), float((end - start).mean()) / 2.0
    free = np.arange(high - low)
    rows, begins, people = [], [], []
    for m in range(n):
        mine = np.flatnonzero(who == rng.integers(n))
        shift = int(rng.choice(free)) if len(free) else int(rng.integers(high - low))
        free = free[np.abs(free - shift) > apart]
        rows.append(mine)
        begins.append(low + (start[mine] - low + shift) % (high - low))
        people.append(np.full(len(mine), m))
    return np.concatenate(rows), np.concatenate(begins), np.concatenate(people)


def disorders(
    answers: Spans, shuffles: int | None = None, random_state: Any = 0, alpha: float = 1.0, beta: float = 1.0
) -> Floats:
    """N x 2: the disorder of each item times its spans per annotator, as marked and by chance. Items of a single
    annotator, or without spans, are 0."""
    out = np.zeros((len(answers), 2))
    shuffles = shuffles or min(SHUFFLES, 10 * SHUFFLES // max(len(answers), 1) + 1)
    for n in range(len(answers)):
        at = np.arange(answers.indptr[n], answers.indptr[n + 1])
        people, who = np.unique(answers.annotator[at], return_inverse=True)
        M, marked = len(people), answers.label[at] >= 0
        if M < 2 or not marked.any():
            continue
        start, end, label, code = (a[marked] for a in (answers.start[at], answers.end[at], answers.label[at], who))
        out[n, 0] = best_alignment(dissimilarity(start, end, label, alpha, beta), code, M)[0]
        rng = np.random.default_rng([0 if random_state is None else int(random_state), n])
        drawn: list[float] = []
        while len(drawn) < shuffles:
            rows, begin, whose = shuffled(start, end, code, M, rng)
            if len(rows):
                d = dissimilarity(begin, begin + (end - start)[rows], label[rows], alpha, beta)
                drawn.append(best_alignment(d, whose, M)[0] * len(start) / len(rows))
        out[n, 1] = np.mean(drawn)
    return out


def gamma(answers: Spans, shuffles: int | None = None, random_state: Any = 0) -> float:
    """Gamma of all items: 1 is perfect agreement, 0 chance.

    >>> rows = [("doc", m, "PER", start, start + 9) for m in ("ann", "bob") for start in (5, 60, 300)]
    >>> gamma(Spans.from_records(rows))
    1.0
    """
    table = disorders(answers, shuffles, random_state).sum(axis=0)
    return float(1.0 - table[0] / table[1]) if table[1] > 0 else float("nan")


def pair_sums(answers: Spans) -> Floats:
    """N x 3: over pairs of annotators of each item the exact matches, those by overlap, and the mean spans of two."""
    out = np.zeros((len(answers), 3))
    for n in range(len(answers)):
        spans: dict[int, list[tuple[int, int, int]]] = {}
        for row in range(int(answers.indptr[n]), int(answers.indptr[n + 1])):
            own = spans.setdefault(int(answers.annotator[row]), [])
            if answers.label[row] >= 0:
                own.append((int(answers.label[row]), int(answers.start[row]), int(answers.end[row])))
        sets = list(spans.values())
        for i, one in enumerate(sets):
            for two in sets[:i]:
                out[n] += (len(set(one) & set(two)), matches(one, two, HALF), (len(one) + len(two)) / 2.0)
    return out
