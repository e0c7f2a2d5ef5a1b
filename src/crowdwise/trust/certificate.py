"""Labels with a proven error rate: the most labels that random gold labels vouch for.

No model of votes knows how often a whole crowd is wrong. A few gold labels of items **drawn at random** prove it, for
any crowd and any method, and nothing else is assumed.

**What is proven.** N items have a label and a score; n of them, drawn at random without replacement, have gold labels.
Released are the items with a score of at least t, and all gold items, whose labels are then the gold ones. With
probability ``confidence`` over the draw, at most ``max_error`` of the released labels are wrong.

**One set.** Of the N_t items with a score of at least t, n_t were drawn and e of these labels are wrong. With D wrong
ones among the N_t, e is hypergeometric, and D - e stay in the released set, of u = N_t - n_t + n labels. The promise is
broken where D - e > c, c = floor(max_error u). So

    p(e) = max over D > c of P( E <= min(e, D - c - 1) ),        E ~ Hypergeometric(N_t, D, n_t)

is the largest probability of e or fewer wrong ones beside a broken promise, and p(e) <= 1 - confidence proves it. It
is exact for any N: where half of the items have gold labels, that is used.

**Which set.** ``SETS`` sets are laid out by the scores before any gold label is looked at, and tested from the most
promising one on to larger ones, each at the full level, until one fails (a fixed sequence: the first false promise
would have to be among those that were tested, and each has the level). The first one is where the share of released
labels times the chance to pass is largest, by the scores as probabilities, give or take what crowds differ
(:data:`crowdwise.core.dependence.CROWD_SD`). Where scores are worthless, less is released; the promise still holds.

**Gold that was not drawn at random** proves nothing. What can be seen is checked: gold items whose scores are far from
those of the others are an error. Nor may the labels have been fitted with this gold.

When it fails: it does not; it releases too little where scores do not tell right labels from wrong ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Bounds, Count, RandomState, checked
from crowdwise.core.dependence import CROWD_SD
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.truth import encode_classes
from crowdwise.errors import InputError
from crowdwise.trust.result_tables import Tables

SETS = 25
NOT_RANDOM = 1e-4
"""Gold items of which so few random draws are as far from the others are refused."""
SHIFTS = np.linspace(-1.8, 1.8, 7)
"""How far crowds lie from their expected accuracy, in standard deviations."""
DRAWS = 40
"""Simulated draws of gold labels, for what more of them would bring."""

Inside = Annotated[float, Bounds(above=0.0, below=1.0)]


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Tables):
    """What is proven of some labels; see :func:`certify`."""

    TABLES = ("items",)
    items: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    """The gold label where there is one, else the consensus."""
    score: Floats
    gold: npt.NDArray[np.bool_]
    released: npt.NDArray[np.bool_]
    max_error: float
    confidence: float
    wrong: int
    """How many of the consensus labels the gold labels contradict."""
    wrong_rate: tuple[float, float, float]
    """The share of wrong labels in the whole consensus, and an interval at this confidence."""
    group: npt.NDArray[Any] | None = None
    kind: str = field(default="polars")

    def __repr__(self) -> str:
        return f"Certificate({self.sentence})"

    @property
    def share(self) -> float:
        """The share of items whose labels are released."""
        return float(self.released.mean())

    @property
    def to_check(self) -> npt.NDArray[Any]:
        """The items that are not released, for an expert, the most doubtful first."""
        left = np.flatnonzero(~self.released)
        return self.items[left[np.argsort(self.score[left], kind="stable")]]

    @property
    def sentence(self) -> str:
        """What is proven, in a sentence."""
        n, groups = int(self.gold.sum()), "" if self.group is None else " of every group"
        if self.gold.all():
            return f"All {n:,} labels are gold labels ({self.wrong:,} contradict the consensus)"
        if not (self.released & ~self.gold).any():
            return (
                f"{n:,} gold labels ({self.wrong:,} contradict the consensus) do not prove that any of the other "
                f"{len(self.items) - n:,} labels are at most {self.max_error:.0%} wrong"
            )
        return (
            f"{int(self.released.sum()):,} of {len(self.items):,} labels ({self.share:.0%}): at most "
            f"{self.max_error:.0%}{groups} are wrong, with {self.confidence:.0%} confidence, by {n:,} random gold "
            "labels"
        )

    def with_more(self, n: int, random_state: int = 0) -> float:
        """The share of items that would be released with n gold labels in all, on average over simulated draws.

        Labels are taken to be as wrong as the gold labels say, each in proportion to 1 - score.
        """
        N, known = len(self.items), np.flatnonzero(self.gold)
        ratio = (self.wrong + 0.5) / ((1.0 - self.score[known]).sum() + 0.5)
        rng, n, shares = np.random.default_rng(random_state), min(n, N), []
        for _ in range(DRAWS):
            wrong = rng.random(N) < np.clip(ratio * (1.0 - self.score), 0.0, 1.0)
            drawn = np.zeros(N, dtype=bool)
            drawn[rng.choice(N, n, replace=False)] = True
            shares.append(released(self.score, drawn, wrong & drawn, self.max_error, self.confidence).mean())
        return float(np.mean(shares))

    def _columns(self, table: str) -> dict[str, Any]:
        group = {} if self.group is None else {"group": self.group}
        columns = {"item": self.items, "label": self.labels, "probability": self.score, "released": self.released}
        return columns | {"gold": self.gold} | group


@checked
def certify(
    consensus: Consensus, gold: Any, max_error: Inside = 0.05, confidence: Inside = 0.95, *, by: Any = None,
    score: Any = None,
) -> Certificate:  # fmt: skip
    """The most labels of which at most ``max_error`` are wrong, proven by gold labels of items drawn at random.

    Parameters
    ----------
    consensus
        Labels of votes, fitted without this gold.
    gold
        The truth of some items: a mapping from item to class, or N class codes with -1 for unknown. The items must have
        been drawn at random from all (:func:`draw_for_gold`).
    max_error
        The share of released labels that may be wrong.
    confidence
        The probability, over the draw of the gold items, that this holds.
    by
        ``"label"``: the promise holds for each class of labels, all at once. Or a mapping from item to group.
    score
        N numbers by which labels are released, the largest first; by default their probability.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(2000, n_annotators=30, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes)
    >>> items = cw.draw_for_gold(consensus, 150)
    >>> gold = {item: crowd.votes.classes[crowd.truth[item]] for item in items.tolist()}
    >>> certificate = cw.certify(consensus, gold, max_error=0.1)
    >>> bool(certificate.share > 0.5)
    True
    """
    known = np.asarray(encode_classes(gold, consensus.items, consensus.classes))
    drawn = known >= 0
    if consensus.gold is not None and ((consensus.gold >= 0) & drawn).any():
        raise InputError(
            "The consensus was fitted with some of these gold labels, so they prove nothing of it: fit it without them."
        )
    score = consensus.corrected_posterior.max(axis=1) if score is None else np.asarray(score, dtype=np.float64)
    if score.shape != (len(drawn),) or not np.isfinite(score).all():
        raise InputError(f"score: expected {len(drawn):,} finite numbers, one per item.")
    if not drawn.any():
        raise InputError("No item of the consensus has a gold label. Draw some at random: crowdwise certify --ask 100.")
    check_random(score, drawn)
    wrong = drawn & (consensus.label_codes != known)
    group, codes = _groups(consensus, by)
    keep = np.zeros(len(drawn), dtype=bool)
    numbers = np.unique(codes)
    for number in numbers:
        at = codes == number
        keep[at] = released(score[at], drawn[at], wrong[at], max_error, 1.0 - (1.0 - confidence) / len(numbers))
    labels = consensus.labels.copy()
    labels[drawn] = consensus.classes[known[drawn]]
    rate = finite_rate(int(wrong.sum()), int(drawn.sum()), len(drawn), confidence)
    return Certificate(
        consensus.items, labels, score, drawn, keep, float(max_error), float(confidence), int(wrong.sum()), rate, group,
        consensus.kind,
    )  # fmt: skip


@checked
def draw_for_gold(consensus: Consensus, n: Count = 100, random_state: RandomState = 0) -> npt.NDArray[Any]:
    """Items drawn at random, each as likely as any other, whose gold labels :func:`certify` can use."""
    N = len(consensus.items)
    return np.asarray(consensus.items[np.random.default_rng(random_state).choice(N, min(n, N), replace=False)])


def released(
    score: Floats, drawn: npt.NDArray[np.bool_], wrong: npt.NDArray[np.bool_], max_error: float, confidence: float
) -> npt.NDArray[np.bool_]:
    """Which of N labels are released: those of the largest set that is proven, and the drawn ones.

    The labels may be of anything: boxes, texts, predictions. ``wrong`` says which drawn ones are, by any rule.
    """
    level, N, n = 1.0 - confidence, len(score), int(drawn.sum())
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    size = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True)) + 1  # where a set can end, ties together
    size = size[np.unique(np.linspace(0, len(size) - 1, SETS).round().astype(int))]
    seen, errors = (np.append(0, np.cumsum(x[order]))[size] for x in (drawn, wrong))
    best = 0
    for i in range(_first(np.cumsum(1.0 - ranked)[size - 1] / size, size, N, n, max_error, level), len(size)):
        allowed = int(np.floor(max_error * (size[i] - seen[i] + n) + 1e-9))
        if p_value(int(errors[i]), int(seen[i]), int(size[i]), allowed) > level:
            break
        best = int(size[i])
    out = drawn.copy()
    out[order[:best]] = True
    return out


def _first(expected: Floats, size: Ints, N: int, n: int, max_error: float, level: float) -> int:
    """The set to begin with, by the expected share of wrong labels in each; no gold label is looked at."""
    from scipy.stats import binom

    count = np.maximum(np.round(n * size / N), 0.0)
    others = np.maximum(size - count, 1e-9)
    rate = np.minimum(max_error * (size - count + n) / others, 1.0)
    most = binom.ppf(level, count, rate) - 1.0  # the most wrong ones with which a set passes
    odds = np.log(np.clip(expected, 1e-4, 1.0 - 1e-4)) - np.log1p(-np.clip(expected, 1e-4, 1.0 - 1e-4))
    weight = np.exp(-0.5 * SHIFTS**2)
    rates = 1.0 / (1.0 + np.exp(-odds - CROWD_SD * SHIFTS[:, None]))
    passes = weight @ binom.cdf(most, count, rates)
    return int(np.argmax(np.where(most >= 0.0, passes, 0.0) * (size - count + n)))


def p_value(wrong: int, drawn: int, size: int, allowed: int) -> float:
    """The largest probability of so few wrong labels among those drawn of a set, and more than ``allowed`` left."""
    from scipy.stats import hypergeom

    left = np.arange(wrong + 1)  # D - allowed - 1: the most wrong ones drawn with which the promise is broken
    D = allowed + 1 + left
    possible = (D - left <= size - drawn) & (D <= size)
    if not possible.any():
        return 0.0
    return float(hypergeom.cdf(left[possible], size, D[possible], drawn).max())


def finite_rate(wrong: int, drawn: int, size: int, confidence: float) -> tuple[float, float, float]:
    """The share of wrong labels among ``size``, of which ``drawn`` were looked at, with an exact interval."""
    from scipy.stats import hypergeom

    tail = (1.0 - confidence) / 2.0
    D = np.arange(wrong, size - drawn + wrong + 1)
    low = D[int(np.argmax(hypergeom.sf(wrong - 1, size, D, drawn) > tail))]
    high = D[len(D) - 1 - int(np.argmax((hypergeom.cdf(wrong, size, D, drawn) > tail)[::-1]))]
    return wrong / drawn, low / size, high / size


def check_random(score: Floats, drawn: npt.NDArray[np.bool_]) -> None:
    """Raise an error where gold items cannot be a random draw, by their scores (the rank-sum test)."""
    from scipy.stats import mannwhitneyu

    if drawn.all() or mannwhitneyu(score[drawn], score[~drawn]).pvalue >= NOT_RANDOM:
        return
    side = "surer" if np.median(score[drawn]) > np.median(score[~drawn]) else "more doubtful"
    raise InputError(
        f"The {int(drawn.sum()):,} gold items are {side} than the others (median score {np.median(score[drawn]):.3f}, "
        f"of the others {np.median(score[~drawn]):.3f}): they were not drawn at random, and prove nothing about the "
        "others. Draw items with crowdwise certify --ask 100, and give their labels alone."
    )


def _groups(consensus: Consensus, by: Any) -> tuple[npt.NDArray[Any] | None, Ints]:
    """The group of each item by name and by number; one for all where none is asked for."""
    if by is None:
        return None, np.zeros(len(consensus.items), dtype=np.int64)
    if isinstance(by, str) and by == "label":
        return consensus.labels, np.asarray(consensus.label_codes)
    if not isinstance(by, Mapping):
        raise InputError("by: expected 'label', or a mapping from item to group.")
    lacking = [item for item in consensus.items.tolist() if item not in by]
    if lacking:
        raise InputError(f"by: {len(lacking):,} items have no group, such as {lacking[0]!r}.")
    group = np.array([by[item] for item in consensus.items.tolist()])
    return group, np.unique(group, return_inverse=True)[1]
