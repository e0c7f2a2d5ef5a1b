"""Annotators who were not seen in the fit: what is assumed of them when a fitted model meets their votes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats


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


def crowd_table(counts: Floats) -> Floats:
    """theta[l, k] of the crowd as a whole, from the counts c[m, l, k] of its members."""
    pooled = counts.sum(axis=0) + 1.0 / counts.shape[1]
    return np.asarray(pooled / pooled.sum(axis=0))


def scores_with_unseen(log_score: Floats, counts: Floats, n_annotators: int, n_labels: int) -> Floats:
    """log s[m * L + l, k]: those of the fit, and those of the crowd as a whole for each unseen annotator.

    ``counts`` are the expected counts of the fit, in the same layout.
    """
    shape = (-1, n_labels, log_score.shape[1])
    unseen = np.log(crowd_table(counts.reshape(shape)))
    return with_unseen(log_score.reshape(shape), n_annotators, unseen).reshape(-1, shape[2])
