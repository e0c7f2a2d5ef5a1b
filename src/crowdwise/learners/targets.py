"""Votes and ratings from the forms that people have them in: tables, arrays, one label or number per item."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.data.ratings import Ratings
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError


def as_votes(y: Any) -> Votes:
    """Votes from votes, from an items x annotators array, or from one label per item."""
    if isinstance(y, Votes):
        votes = y
    elif y is None:
        raise InputError("fit requires y to be passed, but the target y is None: give the votes on the rows of X.")
    else:
        labels = np.asarray(y)
        if labels.ndim == 0:
            raise InputError(f"Expected votes and found {y!r}. Make them with Votes.from_frame or read_votes.")
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.dtype.kind == "c":
            raise InputError("Complex data not supported: labels must be numbers or text.")
        if labels.ndim == 1 and labels.dtype.kind == "f":
            if not np.isfinite(labels).all():
                raise InputError("The labels hold NaN or infinity: leave those rows out.")
            if (labels != np.round(labels)).any():
                raise InputError("Unknown label type: continuous. Labels must be classes: whole numbers or text.")
        dense = labels[:, None] if labels.ndim == 1 else labels
        votes = Votes.from_dense(dense, annotators=["labels"] if labels.ndim == 1 else None)
    if votes.n_classes < 2:
        raise LabelError(
            f"All votes say {votes.classes[0]!r}: with one class there is nothing to learn. "
            "If there are other classes that nobody chose, declare them: classes=[...]."
        )
    return votes


def as_ratings(y: Any) -> Ratings:
    """Ratings from ratings, from an items x annotators array, or from one number per item."""
    if isinstance(y, Ratings):
        return y
    if y is None:
        raise InputError("fit requires y to be passed, but the target y is None: give the ratings of the rows of X.")
    try:
        numbers = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"Expected ratings and found {type(y).__name__}: give Ratings or numbers.") from None
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim == 1:
        if not np.isfinite(numbers).all():
            raise InputError("The numbers hold NaN or infinity: leave those rows out.")
        return Ratings.from_dense(numbers[:, None], annotators=["values"])
    return Ratings.from_dense(numbers)
