"""Annotators who were not seen in the fit: what is assumed of them when a fitted model meets their votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError

if TYPE_CHECKING:
    from crowdwise.core.consensus import Consensus


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


def recode(votes: Votes, fitted: Consensus) -> Votes:
    """New votes in the codes of the fit; annotators not seen there get codes after the last one."""
    if not isinstance(votes, Votes):
        raise InputError(f"Expected Votes and found {type(votes).__name__}.")
    place = encoding.locate(votes.classes, fitted.classes)
    used = np.bincount(votes.label, minlength=votes.n_classes) > 0
    if (place[used] < 0).any():
        raise LabelError(
            f"The new votes use {votes.classes[used & (place < 0)].tolist()}: "
            f"the model was fitted with the classes {fitted.classes.tolist()}."
        )
    who = encoding.locate(votes.annotators, fitted.annotators)
    new = who < 0
    who = np.where(new, len(fitted.annotators) + np.cumsum(new) - 1, who)
    names = np.concatenate([fitted.annotators.astype(object), votes.annotators[new].astype(object)])
    who, label = who[votes.annotator].astype(np.int32), encoding.recode(votes.label, place)
    known = (votes.items, names, fitted.classes, votes.weight)
    return Votes(votes.indptr, who, label, *known, n_options=votes.n_options)
