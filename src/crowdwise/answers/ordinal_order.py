"""The order of ordinal classes: numbers by their value, text as the votes list it, or as given."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from crowdwise.core.constraints import Check
from crowdwise.core.numerics import Ints
from crowdwise.data import encoding
from crowdwise.data.encoding import Vocabulary
from crowdwise.errors import ParameterError, listing


def _is_order(value: Any) -> bool:
    return value is None or (hasattr(value, "__len__") and not isinstance(value, str))


Order = Annotated[Any, Check(_is_order, "the classes, the lowest first, or None", (None,), ("low", 3))]


def ranks(classes: Vocabulary, order: Sequence[Any] | None, key: str) -> Ints:
    """The place of every class on the scale, lowest first."""
    if order is not None:
        place = encoding.locate(classes, encoding.to_vocabulary(list(order)))
        if (place < 0).any() or len(order) != len(classes) or len(set(place.tolist())) != len(classes):
            raise ParameterError(
                f"order={list(order)!r}: expected each of the classes {listing(classes, 10)} once, the lowest first."
            )
        return place.astype(np.int64)
    if classes.dtype.kind in "ib":
        return np.argsort(np.argsort(classes.astype(np.int64)))
    names = classes.tolist()
    if names == sorted(names) and len(names) > 2:
        warnings.warn(
            f"{key} orders the classes alphabetically, {' < '.join(map(str, names))}: give order=[...], the lowest "
            "first, if their order is another.",
            UserWarning,
            stacklevel=2,
        )
    return np.arange(len(classes))
