"""Whether labels are classes: numbers on a scale, free texts and ids are not.

Numbers. Annotators who choose among classes often choose the same one; annotators who give a number from 0 to 100
rarely do. Labels look like numbers where all of them are, there are many, annotators rarely give the same one (the most
common one left out, which is often "none"), and they have what codes of classes lack: gaps, round numbers, or answers
to one item that lie close together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.column_content import numbers_in
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, Option, Remedy

MANY = 10
"""Up to so many different numbers are taken for classes."""
SAME = 0.3
"""Above this rate of equal answers to an item, numbers are codes of classes."""
PAIRS = 30
"""Pairs of answers to the same item from which on their agreement says something."""
ROUND, CLOSE = 0.4, 0.75
"""Above this share of multiples of five, below this ratio of distances, numbers are on a scale."""
ROWS = 20_000
"""Votes that are looked at."""
CLASSES_PER_VOTE, ENOUGH = 0.7, 50
"""From so many votes on, labels are no classes where there are more classes per vote than this."""


AS_CLASSES = Option("answer_type", "votes")
AS_NUMBERS = Remedy("Say {} for numbers on a scale, or {} for classes.", Option("answer_type", "ratings"), AS_CLASSES)


@dataclass(frozen=True)
class NumberScale:
    """What numbers among labels look like; ``certain`` where the answers of different annotators were compared."""

    words: str
    certain: bool


def scale_of(votes: Votes) -> NumberScale | None:
    """What speaks for numbers on a scale in the labels of some votes; ``None`` where nothing does."""
    values = numbers_of(votes.classes.tolist())
    used = np.unique(votes.label)
    if values is None or len(used) <= MANY:
        return None
    used_values = values[used]
    whole = bool((used_values == used_values.round()).all())
    span = f"{used_values.min():.12g} to {used_values.max():.12g}"
    kind = "different whole numbers" if whole else "different numbers, some with fractions,"
    words = f"the labels are {len(used):,} {kind} from {span}"
    gaps = not whole or used_values.max() - used_values.min() >= len(used)
    first, second = _paired(votes)
    common = np.bincount(votes.label).argmax()
    apart = (first != common) | (second != common)
    if apart.sum() < PAIRS:
        return NumberScale(words, certain=not whole) if gaps else None
    same = float((first == second)[apart].mean())
    scaled = gaps or _round(values[votes.label[votes.label != common]]) > ROUND or _closeness(values, votes) < CLOSE
    if same >= SAME or not scaled:
        return None
    return NumberScale(f"{words}, and two annotators rarely give the same ({same:.0%} of the time)", certain=True)


def numbers_of(names: Iterable[Any]) -> npt.NDArray[np.float64] | None:
    """Names as numbers; ``None`` where one is none."""
    found = numbers_in(np.nan if isinstance(name, bool) else name for name in names)
    values = np.array(found if found is not None else [np.nan])
    return values if np.isfinite(values).all() else None


def _paired(votes: Votes) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Labels that different annotators gave to the same item, of neighbours in the order of annotators."""
    label, item = votes.label[:ROWS], votes.item[:ROWS]
    near = np.flatnonzero((np.diff(item) == 0) & (np.diff(votes.annotator[:ROWS]) != 0))
    return label[near], label[near + 1]


def _round(values: npt.NDArray[np.float64]) -> float:
    """The share of multiples of five, where there are numbers enough for them to be rare."""
    return float((values % 5 == 0).mean()) if len(np.unique(values)) > 2 * MANY else 0.0


def _closeness(values: npt.NDArray[np.float64], votes: Votes) -> float:
    """How far apart different answers to one item lie, beside answers to different items."""
    first, second = (values[label] for label in _paired(votes))
    every = values[votes.label[:ROWS]]
    half = len(every) // 2
    random = np.abs(every[:half] - every[half : 2 * half])
    if not (first != second).any() or not random.any():
        return 1.0
    return float(np.abs(first - second)[first != second].mean() / random[random > 0].mean())


def too_many_classes(votes: Votes, n_votes: int | None = None) -> bool:
    """Whether there are about as many classes as votes: texts or ids rather than classes.

    Where the votes are some of ``n_votes``, all classes are used in these.
    """
    used = len(np.unique(votes.label)) if n_votes is None else votes.n_classes
    total = votes.n_votes if n_votes is None else n_votes
    return total >= ENOUGH and used > CLASSES_PER_VOTE * total


def check_classes(votes: Votes, named: bool = False, n_votes: int | None = None) -> None:
    """An error where labels are texts or ids rather than classes; ``named``: the user named their column."""
    if too_many_classes(votes, n_votes):
        used = len(np.unique(votes.label)) if n_votes is None else votes.n_classes
        raise InputError(
            f"There are {used:,} different labels in {n_votes or votes.n_votes:,} votes, such as "
            f"{str(votes.classes[votes.label[0]])[:60]!r}: they are texts or ids rather than classes.",
            remedy=[
                *([] if named else [Remedy("Name the column of the labels with {}.", Option("label"))]),
                Remedy("If they are classes, say {}.", AS_CLASSES),
            ],
        )
