"""Annotators who were not seen in the fit: what is assumed of them when a fitted model meets their votes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats

__all__ = ["with_unseen"]


def with_unseen(known: Floats, n_annotators: int, unseen: npt.ArrayLike) -> Floats:
    """What was learned of the annotators of the fit, a row each, and the row ``unseen`` for each further one.

    >>> with_unseen(np.array([1.0, 3.0]), 4, 2.0).tolist()
    [1.0, 3.0, 2.0, 2.0]
    """
    more = n_annotators - len(known)
    if more == 0:
        return known
    row = np.broadcast_to(np.asarray(unseen, dtype=known.dtype), known.shape[1:])
    return np.concatenate([known, np.broadcast_to(row, (more, *row.shape))])
