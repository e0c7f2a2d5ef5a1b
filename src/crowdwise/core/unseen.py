"""Annotators who were not seen in the fit: what is assumed of them when a fitted model meets their votes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError

if TYPE_CHECKING:
    from crowdwise.core.consensus import Consensus, VoteResult


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
    used = np.bincount(votes.label, minlength=votes.n_classes) > 0
    class_codes, who, names = places_in(fitted, votes.classes, votes.annotators, used)
    known = (votes.items, names, fitted.classes, votes.weight)
    label = encoding.recode(votes.label, class_codes)
    return Votes(votes.indptr, who[votes.annotator], label, *known, n_options=votes.n_options)


def places_in(fitted: VoteResult, classes: Any, annotators: Any, used: Any = True) -> tuple[Ints, Ints, Any]:
    """The codes of classes and annotators in a fit, and the names of all annotators: those not seen there come last.
    ``used``: which of the classes have votes."""
    place, who = encoding.locate(classes, fitted.classes), encoding.locate(annotators, fitted.annotators)
    if (lacking := used & (place < 0)).any():
        raise LabelError(
            f"The new votes use {classes[lacking].tolist()}: the model was fitted with the classes "
            f"{fitted.classes.tolist()}."
        )
    new = who < 0
    who = np.where(new, len(fitted.annotators) + np.cumsum(new) - 1, who).astype(np.int32)
    return place, who, np.concatenate([fitted.annotators.astype(object), annotators[new].astype(object)])
