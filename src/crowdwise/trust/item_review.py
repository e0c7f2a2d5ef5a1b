"""Which items are in doubt, which are odd, and which classes are taken for one another.

Annotators are known by their confusion matrices theta, the crowd by the matrix C of all of its votes, and q[n] is the
posterior under those matrices (:mod:`crowdwise.trust.evidence`). So the shares of a majority vote, which are no
probabilities, and the certainty of maximum likelihood do not enter. docs/reliability.md has the columns:

    excess   sum_k q[k] P( sum_votes Bernoulli(1 - theta[m, k, k]) >= votes that are not k ), exactly
    flip     sum_l P(l) 1[ max_k q_k C[k, l] is not the label's ],  P(l) = sum_k q_k C[k, l]
    gain     sum_l max_k q_k C[k, l] - max_k q_k

``excess`` compares the votes with the truth, not with each other (Gelman, Meng and Stern's realised discrepancy), and
averages over what the truth may be. It is on the safe side: an item's own votes had a say in q. Items are called odd at
a false discovery rate of ``level`` over all items.

Pairs of classes: of the wrong votes on items of two classes A and B, the share that go to the other one of the two,
against what would go there if nothing bound A to B (quasi-independence: wrong votes = a[truth] b[label] off the
diagonal; with three classes, evenly spread mistakes; with two there is nothing to compare with). Each vote counts as
much as its annotator has skill, so that those who always say the same, or the opposite, join no classes together. The
error is over items, since the votes of one item go together.

When it fails: a posterior that is too sure (annotators who copy each other) makes ``flip`` and ``gain`` too small. A
class pair that most annotators cannot distinguish may be merged in the consensus itself.

Items to label by hand (:func:`ask_for_gold`): a gold label makes its item right, which pays where the label is in
doubt; and it shows whether the crowd as a whole is too sure or biased (:mod:`crowdwise.core.gold_regression`), for
which the items must not all be of one kind. So items are drawn at random without replacement, each the more often the
more it is in doubt (docs/benchmarks/gold.md): P(n is drawn next) ∝ 1 - max_k q'[n, k] + ``LEAST``, q' the corrected
posterior.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, Fraction, RandomState, checked
from crowdwise.core.leave_one_out import LeaveOneOut
from crowdwise.core.numerics import Floats, Ints, entropy, normalise
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.trust.annotator_measures import slopes
from crowdwise.trust.evidence import adjusted, read_evidence
from crowdwise.trust.flags import ItemReason
from crowdwise.trust.result_tables import Tables
from crowdwise.trust.wording import item_reasons, pair_words

NEGLIGIBLE = 1e-3
"""Classes less probable than this are left out of an item's p-value (the rest is scaled up)."""
EXACT = 256
"""Items with more votes get the Normal approximation, with continuity correction."""
MOST_PAIRS = 64
"""The pairs of classes looked at closely, by the number of votes that take one for the other."""
HELD, FEW = 0.5, 20
"""The share of the expected errors that the suggested items hold, and how many are suggested whatever they hold."""
CHUNK = 2**22


@dataclass(frozen=True)
class ClassPair:
    """Two classes that are taken for each other, and how often."""

    classes: tuple[Any, Any]
    rate: float
    """Of the votes on items of the two that name either, the share that name the wrong one."""
    low: float
    high: float
    share: float
    """Of the wrong votes on items of the two, the share that go to the other."""
    expected: float
    """The same, if nothing bound the two together; NaN with two classes."""
    p_value: float
    """Adjusted for the number of pairs; NaN with two classes."""
    items: int
    """Items on which the two most probable classes are these and the second has a probability of 0.1 or more."""
    ambiguous: bool

    @property
    def numbers(self) -> dict[str, float]:
        """All but the classes."""
        return {name: value for name, value in vars(self).items() if name != "classes"}

    def __str__(self) -> str:
        return pair_words(self.classes, self.numbers)


@dataclass(frozen=True, eq=False, repr=False)
class ItemReport(Tables):
    """One row per item, and the pairs of classes; see :func:`assess_items`."""

    TABLES = ("items", "pairs")
    names: npt.NDArray[Any]
    columns: dict[str, npt.NDArray[Any]]
    pairs: tuple[ClassPair, ...]
    """The most confused first."""
    level: float
    limit: float
    """The probability of being wrong from which a label is in doubt: the level, above the doubt that any label has."""
    reasons: Ints
    """N: the :class:`~crowdwise.trust.flags.ItemReason` that hold (bits)."""
    runner_up: npt.NDArray[Any]
    kind: str = field(default="polars")

    def __repr__(self) -> str:
        n, odd = int(self.columns["suggested"].sum()), int(self.columns["odd"].sum())
        return f"ItemReport({len(self.names):,} items, {n:,} suggested for review, {odd:,} odd at level {self.level})"

    @property
    def held(self) -> float:
        """The share of the expected errors that the suggested items hold; NaN where none are expected."""
        wrong = 1.0 - self.columns["right"]
        return float(wrong[self.columns["suggested"]].sum() / wrong.sum()) if wrong.sum() > 0.0 else float("nan")

    def _columns(self, table: str) -> dict[str, Any]:
        if table == "pairs":
            names = ("rate", "low", "high", "share", "expected", "p_value", "items", "ambiguous")
            columns: dict[str, Any] = {
                side: np.array([str(p.classes[i]) for p in self.pairs], dtype=object)
                for i, side in enumerate(("first", "second"))
            }
            return columns | {name: np.array([getattr(p, name) for p in self.pairs]) for name in names}
        order = self.order()
        columns = {"item": self.names[order], **{name: value[order] for name, value in self.columns.items()}}
        return columns | {"why": self.why(order)}

    def order(self, *, suggested: bool = False) -> Ints:
        """The items in the order of review, by position; only those suggested for it."""
        order = np.argsort(self.columns["rank"], kind="stable")
        return order[self.columns["suggested"][order]] if suggested else order

    def why(self, rows: Ints) -> npt.NDArray[Any]:
        """Words about some items, by position."""
        parts = (self.reasons, self.columns["label"], self.runner_up)
        keys = list(zip(*(part[rows].tolist() for part in parts), strict=True))
        words = {key: item_reasons(ItemReason(int(key[0])), *key[1:]) for key in set(keys)}
        return np.array([words[key] for key in keys], dtype=object)

    def doubt(self, n: int) -> tuple[ItemReason, Any, Any]:
        """Why an item is in doubt, its label, and its rival."""
        return ItemReason(int(self.reasons[n])), self.columns["label"][n], self.runner_up[n]

    def ambiguous(self) -> list[ClassPair]:
        """The pairs of classes confused beyond chance, at the report's level."""
        return [pair for pair in self.pairs if pair.ambiguous]


@checked
def assess_items(
    votes: Votes, consensus: Consensus, *, gold: Any = None, level: Fraction = 0.05, evidence: LeaveOneOut | None = None
) -> ItemReport:
    """A table of the items, ranked for review, and the pairs of classes that are taken for one another.

    Parameters
    ----------
    votes, consensus, gold, evidence
        As in :func:`~crowdwise.trust.annotators.assess_annotators`.
    level
        The false discovery rate at which items and pairs are called out, and the probability of being wrong from which
        a label is in doubt. Of those, the fewest that hold half of the expected errors are suggested for review.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.difficulty(300, n_annotators=20, votes_per_item=7, random_state=0)
    >>> report = cw.trust.assess_items(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    >>> wrong = report.columns["label"] != crowd.votes.classes[crowd.truth]
    >>> bool(report.columns["review"][wrong].mean() > 2 * report.columns["review"][~wrong].mean())
    True
    """
    evidence = evidence or read_evidence(votes, consensus, gold)
    q = evidence.posterior()
    N, K = q.shape
    known = evidence.gold >= 0
    label = np.where(known, evidence.gold, consensus.label_codes)
    right = q[np.arange(N), label]
    masked = q.copy()
    masked[np.arange(N), label] = -1.0
    runner = masked.argmax(axis=1)
    second = masked[np.arange(N), runner]
    size = np.diff(votes.indptr)
    agree = np.bincount(votes.item, weights=votes.label == label[votes.item], minlength=N)
    excess = disagreement(evidence, q)
    corrected = np.ones(N)
    corrected[size > 0] = adjusted(excess[size > 0])
    flip, gain = one_more_vote(q, label, crowd_matrix(evidence))
    odd, limit = corrected <= level, level + evidence.dependence.doubt
    review = 1.0 - right * corrected
    columns: dict[str, npt.NDArray[Any]] = {
        "label": votes.classes[label],
        "probability": np.where(known, 1.0, consensus.corrected_posterior[np.arange(N), label]),
        "right": right, "entropy": entropy(q), "votes": size,
        "against": np.divide(size - agree, size, out=np.zeros(N), where=size > 0), "excess": excess,
        "excess_adjusted": corrected, "odd": odd, "flip": flip, "gain": gain, "review": review,
        "rank": _rank(review, right, flip), "suggested": odd | (_first(1.0 - right) & (1.0 - right > limit)),
    }  # fmt: skip
    for name in ("difficulty", "difficulty_low", "difficulty_high"):
        if name in consensus.item_columns:
            columns[name] = consensus.item_columns[name]
    voted, beaten = size > 0, second > 2.0 * right
    close = (1.0 - right > limit) & (second >= 0.1) & voted & ~beaten
    changes = (flip > level) & voted & ~beaten
    holds = {
        ItemReason.NO_VOTES: ~voted, ItemReason.SINGLE_VOTE: size == 1, ItemReason.DISAGREEMENT: odd,
        ItemReason.UNDECIDED: close, ItemReason.MAY_FLIP: changes, ItemReason.OVERRULED: beaten,
    }  # fmt: skip
    reasons = np.sum([reason.value * mask for reason, mask in holds.items()], axis=0)
    pairs = class_pairs(evidence, q, label, runner, second, level)
    return ItemReport(votes.items, columns, pairs, level, limit, reasons, votes.classes[runner], votes.kind)


def _rank(review: Floats, right: Floats, flip: Floats) -> Ints:
    """1 for the first to look at; ties by doubt, then by what a vote may change, then as they come."""
    order = np.lexsort((-flip, right, -review))
    out = np.empty(len(review), dtype=np.int64)
    out[order] = np.arange(1, len(review) + 1)
    return out


def _first(wrong: Floats) -> npt.NDArray[np.bool_]:
    """The fewest items that hold ``HELD`` of the expected errors, or ``FEW`` where that is more."""
    order = np.argsort(-wrong, kind="stable")
    total = np.cumsum(wrong[order])
    size = int(np.searchsorted(total, HELD * total[-1])) + 1 if len(order) else 0
    out = np.zeros(len(order), dtype=bool)
    out[order[: max(size, FEW)]] = True
    return out


def crowd_matrix(evidence: LeaveOneOut) -> Floats:
    """C[k, l]: how the crowd as a whole answers, by the others' judgement."""
    K = evidence.votes.n_classes
    return normalise(evidence.counts.sum(axis=0) + 1.0 / K, axis=1)


def disagreement(evidence: LeaveOneOut, q: Floats) -> Floats:
    """P(as many votes against the truth or more), averaged over the truth; 1 where there are no votes."""
    votes = evidence.votes
    size = np.diff(votes.indptr)
    likely = np.where(q >= NEGLIGIBLE, q, 0.0)
    likely /= likely.sum(axis=1, keepdims=True)
    own = np.einsum("mkk->mk", evidence.theta)
    out = np.where(size > 0, 0.0, 1.0)
    item, klass = np.nonzero(likely * (size > 0)[:, None])
    order = np.argsort(size[item], kind="stable")
    item, klass = item[order], klass[order]
    # Items of like size together, so that little is padded; as many as fit.
    start = 0
    while start < len(item):
        r = int(size[item[start]])
        stop = start + int(np.searchsorted(size[item[start:]], r, side="right"))
        stop = min(stop, start + max(1, CHUNK // (r + 1)))
        n, k = item[start:stop], klass[start:stop]
        rows = votes.indptr[n][:, None] + np.arange(r)
        wrong = 1.0 - own[votes.annotator[rows], k[:, None]]
        seen = (votes.label[rows] != k[:, None]).sum(axis=1)
        p = poisson_binomial_tail(wrong, seen) if r <= EXACT else _normal_tail(wrong, seen)
        out += np.bincount(n, weights=likely[n, k] * p, minlength=len(out))
        start = stop
    return np.minimum(out, 1.0)


def poisson_binomial_tail(p: Floats, x: Ints) -> Floats:
    """P(X >= x), X the number of successes among independent trials with the probabilities of a row of p."""
    B, r = p.shape
    mass = np.zeros((r + 1, B))
    mass[0] = 1.0
    for j in range(r):
        hit = p[:, j]
        mass[1 : j + 2] = mass[1 : j + 2] * (1.0 - hit) + mass[: j + 1] * hit
        mass[0] *= 1.0 - hit
    return np.asarray(np.where(np.arange(r + 1)[:, None] >= x, mass, 0.0).sum(axis=0))


def _normal_tail(p: Floats, x: Ints) -> Floats:
    from scipy.special import ndtr

    spread = np.sqrt(np.maximum((p * (1.0 - p)).sum(axis=1), 1e-12))
    return np.asarray(ndtr(-(x - 0.5 - p.sum(axis=1)) / spread))


def one_more_vote(q: Floats, label: Ints, crowd: Floats) -> tuple[Floats, Floats]:
    """The probability that a vote by an average annotator changes the label, and its expected gain; N each."""
    N, K = q.shape
    flip, gain = np.zeros(N), np.zeros(N)
    # To overtake, the runner-up needs a vote that favours it by the ratio of the two; most items are out of reach.
    favour = (crowd[None] / np.maximum(crowd[:, None], 1e-300)).max(axis=2)  # [k, j]: of j over k
    at = np.arange(N)
    rows = np.flatnonzero(((q * favour[label]) > q[at, label][:, None] * (1.0 + 1e-12)).any(axis=1))
    if len(rows) == 0:
        return flip, gain
    some, best = q[rows], label[rows]
    own, most = some[np.arange(len(rows)), best], np.zeros(len(rows))
    changed = np.zeros(len(rows))
    for said in range(K):
        joint = some * crowd[:, said]
        top = joint.max(axis=1)
        most += top
        changed += np.where(top > own * crowd[best, said] * (1.0 + 1e-12), joint.sum(axis=1), 0.0)
    flip[rows], gain[rows] = changed, np.maximum(most - some.max(axis=1), 0.0)
    return flip, gain


def quasi_independent(counts: Floats, rounds: int = 200) -> Floats:
    """a[k] b[l] off the diagonal with the row and column sums of the counts there (iterative proportional fitting)."""
    K = len(counts)
    wrong = np.where(np.eye(K, dtype=bool), 0.0, counts) + 1e-9 * (1.0 - np.eye(K))
    fit = 1.0 - np.eye(K)
    for _ in range(rounds):
        fit *= (wrong.sum(axis=1) / fit.sum(axis=1))[:, None]
        fit *= wrong.sum(axis=0) / fit.sum(axis=0)
    return fit


def class_pairs(
    evidence: LeaveOneOut, q: Floats, label: Ints, runner: Ints, second: Floats, level: float
) -> tuple[ClassPair, ...]:
    """The pairs of classes, the most confused first (see the module)."""
    from scipy.special import ndtr

    votes = evidence.votes
    N, K = q.shape
    skill = np.clip(slopes(evidence).value, 0.0, 1.0)
    crowd = np.einsum("m,mkl->kl", skill, evidence.counts)
    weight = skill[votes.annotator]
    expected = quasi_independent(crowd) if K > 3 else 1.0 - np.eye(K)
    if K <= 3:
        expected *= ((crowd.sum(axis=1) - np.diag(crowd)) / max(K - 1, 1))[:, None]
    first, other = np.triu_indices(K, 1)
    taken = crowd[first, other] + crowd[other, first]
    close = np.argsort(-taken, kind="stable")[:MOST_PAIRS]
    size = np.bincount(votes.item, weights=weight, minlength=N)
    p_values, found = np.ones(len(first)), []
    for i in close.tolist():
        a, b = int(first[i]), int(other[i])
        va, vb = _named(votes, weight, a), _named(votes, weight, b)
        x = q[:, a] * vb + q[:, b] * va
        wrong = q[:, a] * (size - va) + q[:, b] * (size - vb)
        either = q[:, a] * (va + vb) + q[:, b] * (va + vb)
        rate, error = _ratio(x, either)
        share, spread = _ratio(x, wrong)
        out = expected[a].sum() + expected[b].sum()
        usual = float((expected[a, b] + expected[b, a]) / out) if K > 2 and out > 0 else float("nan")
        if K > 2 and spread > 0 and out > 0:
            p_values[i] = float(ndtr(-(share - usual) / spread))
        undecided = int((((label == a) & (runner == b)) | ((label == b) & (runner == a)))[second >= 0.1].sum())
        found.append((i, (a, b), rate, error, share, usual, undecided))
    corrected, classes = adjusted(p_values), votes.classes.tolist()
    pairs = [
        ClassPair(
            (classes[a], classes[b]), rate, max(rate - 1.96 * error, 0.0), min(rate + 1.96 * error, 1.0), share, usual,
            float(corrected[i]) if K > 2 else float("nan"), undecided, bool(K > 2 and corrected[i] <= level),
        )
        for i, (a, b), rate, error, share, usual, undecided in found
    ]  # fmt: skip
    return tuple(sorted(pairs, key=lambda pair: (not pair.ambiguous, -pair.rate)))


def _named(votes: Votes, weight: Floats, k: int) -> Floats:
    """The weight of the votes of each item that name a class."""
    mine = votes.label == k
    return np.bincount(votes.item[mine], weights=weight[mine], minlength=len(votes)).astype(np.float64)


def _ratio(x: Floats, total: Floats) -> tuple[float, float]:
    """sum x / sum total with its standard error over items; 0 and 0 where there is nothing."""
    whole = float(total.sum())
    if whole <= 1e-9:
        return 0.0, 0.0
    ratio = float(x.sum()) / whole
    return ratio, float(np.sqrt(((x - ratio * total) ** 2).sum())) / whole


LEAST = 1e-4
"""Every item can be drawn."""


@dataclass(frozen=True, eq=False, repr=False)
class GoldItems(Tables):
    """The items to label, the most doubtful first; see :func:`ask_for_gold`."""

    TABLES = ("items",)
    items: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    right: Floats
    """The probability that the label is right."""
    votes: npt.NDArray[Any]
    kind: str = field(default="polars")

    def __repr__(self) -> str:
        return f"GoldItems({len(self.items):,} items, {self.expected_wrong:.1f} of their labels expected to be wrong)"

    @property
    def expected_wrong(self) -> float:
        """How many of the labels are expected to be wrong."""
        return float((1.0 - self.right).sum())

    def _columns(self, table: str) -> dict[str, Any]:
        return {"item": self.items, "label": self.labels, "right": self.right, "votes": self.votes}


@checked
def ask_for_gold(consensus: Consensus, n: Count = 50, random_state: RandomState = 0) -> GoldItems:
    """The items whose truth would help most.

    Parameters
    ----------
    consensus
        Of the votes; items with gold labels are not asked for again.
    n
        How many items, or all that there are.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=20, votes_per_item=3, random_state=0)
    >>> found = cw.trust.ask_for_gold(cw.aggregate(crowd.votes), 40)
    >>> len(found.items), bool(found.expected_wrong > 4)
    (40, True)
    """
    q, known = consensus.corrected_posterior, consensus.gold
    open_ = np.arange(len(q)) if known is None else np.flatnonzero(known < 0)
    if not len(open_):
        raise InputError("Every item has a gold label: there is nothing to ask for.")
    doubt = 1.0 - q[open_].max(axis=1) + LEAST
    # The n largest of u^(1/w) are such a draw (Efraimidis and Spirakis 2006).
    key = np.log(np.random.default_rng(random_state).random(len(open_))) / doubt
    chosen = open_[np.argsort(-key, kind="stable")[: min(n, len(open_))]]
    right = q[chosen, consensus.label_codes[chosen]]
    chosen = chosen[np.argsort(right, kind="stable")]
    return GoldItems(
        consensus.items[chosen], consensus.labels[chosen], np.sort(right), consensus.votes_per_item[chosen],
        consensus.kind,
    )  # fmt: skip
