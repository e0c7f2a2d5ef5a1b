"""Prediction sets: for each item, the classes that hold its true one with a stated probability (split conformal).

n items **drawn at random** have gold labels. The score of an item is the larger the less probable its true class is,
1 - q[y]. With t the k-th smallest score of the gold items, the set of an item has all classes with 1 - q <= t. Gold
items and another one are exchangeable, so the score of that one has each of n + 1 ranks with the same probability, and

    P(the set holds the true class) >= k / (n + 1),        k = ceil((n + 1) coverage),

with equality where no two are alike, whatever the crowd, the method and its probabilities: these decide how large sets
are. With k > n nothing less than all classes would do.

**With a confidence** the promise is about these items, not about the mean over draws: of the M others, those whose
score is at most t are beta-binomial (M, k, n + 1 - k), and k is the smallest one with which at least
``coverage`` of them are held with that probability.

**By class** each class has its own gold items and its own t: the sets hold the truth with that probability for items of
every class. A class with too few gold items is in every set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import Bounds
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.frames import make_frame
from crowdwise.errors import InputError

Inside = Annotated[float, Bounds(above=0.0, below=1.0)]
NOT_RANDOM = 1e-4
"""Gold items of which so few random draws are as far from the others are refused."""


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSets:
    """The classes that each item may have; see the module."""

    items: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    member: npt.NDArray[np.bool_]
    """N x K: which classes are in the set of the item."""
    coverage: float
    """The exact probability that the set of an item without a gold label holds its true class (at least; with
    ``by_class`` of the class where it is smallest)."""
    threshold: Floats
    """K: the least probability with which a class is in a set."""
    kind: str = "polars"

    def __repr__(self) -> str:
        return (
            f"PredictionSets({len(self.items):,} items, {self.size.mean():.2f} of {len(self.classes)} classes on "
            f"average; they hold the true class with probability {self.coverage:.3f})"
        )

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> list[Any]:
        """The classes of one item, by its row."""
        return list(self.classes[self.member[row]].tolist())

    @property
    def size(self) -> Ints:
        """N: how many classes each set has."""
        return np.asarray(self.member.sum(axis=1))

    def to_frame(self, kind: str | None = None) -> Any:
        """A row per item: item, set (classes separated by ``|``), and its size."""
        names = [str(name) for name in self.classes.tolist()]
        text = ["|".join(name for name, inside in zip(names, row, strict=True) if inside) for row in self.member]
        return make_frame({"item": self.items, "set": np.array(text), "size": self.size}, kind or self.kind)


def conformal_rank(n: int, coverage: float, confidence: float | None = None, others: int = 0) -> int:
    """k: which of n scores is the threshold; n + 1 where none is enough."""
    if confidence is None:
        return int(min(np.ceil((n + 1) * coverage - 1e-9), n + 1))
    from scipy.stats import betabinom

    k = np.arange(1, n + 1)
    enough = betabinom.sf(np.ceil(coverage * others - 1e-9) - 1, others, k, n + 1 - k) >= confidence
    return int(k[np.argmax(enough)]) if enough.any() else n + 1


def conformal_thresholds(
    q: Floats, gold: Ints, coverage: float, by_class: bool = False, confidence: float | None = None, others: int = 0
) -> tuple[Floats, float]:
    """K least probabilities with which classes are in sets, and the exact coverage, by gold items (n x K, n codes)."""
    if by_class and confidence is not None:
        raise InputError("sets: a confidence is about all items together: leave out by_class, or the confidence.")
    n, K = q.shape
    score = 1.0 - q[np.arange(n), gold]
    least, exact = np.zeros(K), 1.0
    for k in range(K) if by_class else (slice(None),):
        scores = np.sort(score[gold == k] if by_class else score)
        rank = conformal_rank(len(scores), coverage, confidence, others)
        if rank <= len(scores):
            least[k], exact = 1.0 - scores[rank - 1], min(exact, rank / (len(scores) + 1))
    return least, exact


def members(q: Floats, least: Floats) -> npt.NDArray[np.bool_]:
    """N x K: the classes that are probable enough, and the most probable one."""
    out = q >= least - 1e-12
    out[np.arange(len(q)), q.argmax(axis=1)] = True
    return np.asarray(out)


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
