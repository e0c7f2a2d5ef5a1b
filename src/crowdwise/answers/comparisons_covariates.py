"""Covariates of comparisons: what the left answer has more of than the right one.

A name stands for a pair of columns, one for each answer (``length_a`` and ``length_b``, ``left_style`` and
``right_style``, ``words_1`` and ``words_2``...), or for one column that holds the difference already. Numbers are
subtracted; lengths (by their name) as log2, so that an effect is that of an answer twice as long; of other values there
is an effect for each but the most frequent. A cell that is empty counts as no difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats
from crowdwise.data.comparisons import Comparisons, pair_of
from crowdwise.errors import InputError, listing

LENGTH = re.compile(r"length|token|words?$|chars|characters")
"""Names of lengths."""
MOST_VALUES = 12
"""Values that a column may have which is not a number."""


def design(table: Comparisons, names: Sequence[str], by_judge: bool = False) -> tuple[list[str], Floats]:
    """The names of the effects, and S x K: what the left answer has more of."""
    labels, columns = list[str](), list[Floats]()
    for name in names:
        for label, values in _effects(table, name):
            if not values.any():
                raise InputError(
                    f"The two answers never differ in {label!r}: it has no effect that could be estimated."
                )
            labels.append(label)
            columns.append(values)
    X = np.stack(columns, axis=1)
    if by_judge:
        own = np.eye(table.n_annotators)[table.annotator]
        X = (X[:, :, None] * own[:, None, :]).reshape(len(X), -1)
        labels = [f"{label}, {judge}" for label in labels for judge in table.annotators.tolist()]
        kept = np.abs(X).sum(axis=0) > 0.0
        X, labels = X[:, kept], [label for label, keep in zip(labels, kept, strict=True) if keep]
    return labels, X


def _effects(table: Comparisons, name: str) -> list[tuple[str, Floats]]:
    if name == "length" and table.left_length is not None and table.right_length is not None:
        return [(name, _log_ratio(table.left_length, table.right_length))]
    both = pair_of(name, table.extra_names)
    if not both:
        raise InputError(
            f"There is no column for the covariate {name!r}: expected {name}_a and {name}_b (or left and right, 1 and "
            f"2), or one column of differences, kept with keep=; kept are {listing(table.extra_names)}."
        )
    values = [table.kept(column) for column in both]
    numbers = [found for column in values if (found := _numbers(column)) is not None]
    if len(numbers) == len(values):
        if len(both) == 1:
            return [(name, np.nan_to_num(numbers[0]))]
        left, right = numbers
        if LENGTH.search(name.lower()) and not (np.minimum(left, right) < 0).any():
            return [(name, _log_ratio(left, right))]
        return [(name, np.nan_to_num(left - right))]
    if len(both) == 1:
        raise InputError(f"Column {name!r} holds no numbers: of values there must be a column for each answer.")
    words, count = np.unique([str(v) for column in values for v in column if v is not None], return_counts=True)
    if len(words) > MOST_VALUES:
        raise InputError(f"The columns of {name!r} have {len(words)} values, and {MOST_VALUES} are allowed.")
    text = [np.array([None if v is None else str(v) for v in column], dtype=object) for column in values]
    other = [word for word in words.tolist() if word != words[count.argmax()]]
    return [(f"{name}={word}", (text[0] == word).astype(float) - (text[1] == word)) for word in other]


def _log_ratio(left: Any, right: Any) -> Floats:
    return np.asarray(np.nan_to_num(np.log2(np.maximum(left, 1.0) / np.maximum(right, 1.0))))


def _numbers(column: Any) -> Floats | None:
    try:
        return np.array([np.nan if v is None or v == "" else float(v) for v in column], dtype=np.float64)
    except (TypeError, ValueError):
        return None
