"""Would the model have given votes like these? Posterior predictive checks of a consensus.

Votes are drawn again on the same (item, annotator) pairs from what a fit says: the class of each item from its
posterior, then each label from its annotator's confusion matrix. A statistic of the votes (docs/compare.md has the
four) that lies far out among those of the drawn ones is something the model does not explain.

Expectations are under the fit: P(i and j agree on n) = sum_k q[n, k] sum_l theta[i, k, l] theta[j, k, l]. p-values
count the R drawn sets of votes: (1 + as far out) / (1 + R), on both sides (twice the smaller one) for
``disagreement``, on the upper side for the others. The same votes that are checked made the fit, so p-values are too
large rather than too small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise.core.collusion import paired_votes
from crowdwise.core.numerics import Floats, Ints, sample_items
from crowdwise.data.votes import Votes

MOST_PAIRS = 50_000
"""Pairs of votes that are looked at; with more, a sample of the items."""
LEAST = 5
"""Common items that a pair of annotators needs."""
CHECKS = ("disagreement", "uneven", "marginals", "dependence")


@dataclass(frozen=True)
class PosteriorCheck:
    """One statistic: what was seen, what the fit leads to expect (mean of the drawn ones), and the p-value."""

    name: str
    observed: float
    expected: float
    p_value: float


def predictive_checks(
    votes: Votes, q: Floats, theta: Floats, *, replicates: int, rng: np.random.Generator
) -> tuple[PosteriorCheck, ...]:
    """All four checks. ``theta[m, l, k]`` and the posterior q are the fit's."""
    votes, q = _sample(votes, q, rng)
    state = _State.of(votes, q, theta)
    seen = state.statistics(votes.label)
    drawn = np.array([state.statistics(state.draw(rng)) for _ in range(replicates)])
    return tuple(
        PosteriorCheck(name, float(x), float(d.mean()), _p_value(x, d, both=name == "disagreement"))
        for name, x, d in zip(CHECKS, seen, drawn.T, strict=True)
    )


def _p_value(seen: float, drawn: Floats, both: bool) -> float:
    if not np.isfinite(seen):
        return float("nan")
    slack = 1e-9 * max(abs(seen), 1e-12)  # equal statistics count as far out, whatever the rounding
    upper = (1.0 + (drawn >= seen - slack).sum()) / (1.0 + len(drawn))
    lower = (1.0 + (drawn <= seen + slack).sum()) / (1.0 + len(drawn))
    return float(min(1.0, 2.0 * min(upper, lower)) if both else upper)


def _sample(votes: Votes, q: Floats, rng: np.random.Generator) -> tuple[Votes, Floats]:
    """Items in random order until they have ``MOST_PAIRS`` pairs of votes (at least one item)."""
    size = np.diff(votes.indptr)
    items = sample_items(size * (size - 1) // 2, MOST_PAIRS, rng, "right")
    return (votes, q) if len(items) == len(votes) else (votes[items], q[items])


@dataclass(frozen=True)
class _State:
    """What every drawn set of votes shares: pairs, expectations, tables to draw from."""

    votes: Votes
    q: Floats
    cumulative: Floats
    """M x K x L: P(label up to l, truth k)."""
    left: Ints
    right: Ints
    pair_item: Ints
    expected_differ: Floats
    expected_labels: Floats
    pair: Ints
    """Which pair of annotators a pair of votes belongs to; -1 where they have too few items in common."""
    pair_agree: Floats
    pair_variance: Floats

    @classmethod
    def of(cls, votes: Votes, q: Floats, theta: Floats) -> _State:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        left, right = paired_votes(votes.indptr, np.arange(N))
        # Two votes of one annotator on an item are not a pair of annotators.
        apart = votes.annotator[left] != votes.annotator[right]
        left, right = left[apart], right[apart]
        item = votes.item[left]
        agree = np.empty(len(left))
        step = max(1, 2_000_000 // (K * K))
        for lo in range(0, len(left), step):  # M x K x K rows of each pair, a few at a time
            at = slice(lo, lo + step)
            a, b = theta[votes.annotator[left[at]]], theta[votes.annotator[right[at]]]
            agree[at] = (np.einsum("plk,plk->pk", a, b) * q[item[at]]).sum(axis=1)
        first, second = np.sort(np.stack([votes.annotator[left], votes.annotator[right]]), axis=0).astype(np.int64)
        _, pair, common = np.unique(first * M + second, return_inverse=True, return_counts=True)
        enough = common >= LEAST
        number = np.where(enough, np.cumsum(enough) - 1, -1)[pair]
        kept = number >= 0
        P = int(enough.sum())
        expected = np.einsum("slk,sk->sl", theta[votes.annotator], q[votes.item])
        return cls(
            votes, q, np.cumsum(theta.transpose(0, 2, 1), axis=2), left, right, item,
            np.bincount(item, weights=1.0 - agree, minlength=N).astype(np.float64),
            np.stack([np.bincount(votes.annotator, weights=e, minlength=M) for e in expected.T], axis=1), number,
            np.bincount(number[kept], weights=agree[kept], minlength=P).astype(np.float64),
            np.bincount(number[kept], weights=(agree * (1.0 - agree))[kept], minlength=P).astype(np.float64),
        )  # fmt: skip

    def draw(self, rng: np.random.Generator) -> Ints:
        """Labels drawn again: classes from the posterior, answers from the confusion matrices."""
        K = self.q.shape[1]
        edge = np.cumsum(self.q, axis=1)
        z = np.minimum((rng.random(len(edge))[:, None] * edge[:, -1:] >= edge).sum(axis=1), K - 1)
        rows = self.cumulative[self.votes.annotator, z[self.votes.item]]
        u = rng.random(len(rows))[:, None] * rows[:, -1:]
        return np.asarray(np.minimum((u >= rows).sum(axis=1), K - 1))

    def statistics(self, label: Ints) -> tuple[float, float, float, float]:
        """T of each check, in the order of ``CHECKS``; NaN where there is nothing to look at."""
        nothing = float("nan")
        M, K = self.votes.n_annotators, self.votes.n_classes
        seen = np.bincount(self.votes.annotator.astype(np.int64) * K + label, minlength=M * K).reshape(M, K)
        marginals = float(((seen - self.expected_labels) ** 2 / (self.expected_labels + 0.5)).sum())
        if not len(self.left):
            return nothing, nothing, marginals, nothing
        differ = (label[self.left] != label[self.right]).astype(np.float64)
        by_item = np.bincount(self.pair_item, weights=differ, minlength=len(self.votes))
        uneven = float(((by_item - self.expected_differ) ** 2).sum())
        dependence = nothing
        if len(self.pair_agree):
            kept = self.pair >= 0
            agree = np.bincount(self.pair[kept], weights=1.0 - differ[kept], minlength=len(self.pair_agree))
            dependence = float(((agree - self.pair_agree) ** 2 / np.maximum(self.pair_variance, 1e-6)).mean())
        return float(differ.mean()), uneven, marginals, dependence
