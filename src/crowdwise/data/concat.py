"""Several tables of votes made one, matched by the names of items, annotators and classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding
from crowdwise.data.encoding import Vocabulary
from crowdwise.errors import ColumnError, InputError, LabelError, listing


def joined(tables: Sequence[Any]) -> dict[str, Any]:
    """The arguments of ``Votes.from_codes`` for all rows of several tables: see :meth:`crowdwise.Votes.concat`."""
    if not tables:
        raise InputError("Nothing to concatenate: the list of votes is empty.")
    classes = _union([t.classes for t in tables])
    if all(t.classes.tolist() == sorted(t.classes.tolist()) for t in tables):  # the order of the tables must not matter
        classes = classes[np.argsort(classes)]
    items, annotators = _union([t.items for t in tables]), _union([t.annotators for t in tables])
    truth = np.full(len(items), -1, dtype=np.int32)
    for t in tables:
        if t.truth is not None:
            known = t.truth >= 0
            where = encoding.locate(t.items, items)[known]
            codes = encoding.recode(t.truth, encoding.locate(t.classes, classes))[known]
            clash = (truth[where] >= 0) & (truth[where] != codes)
            if clash.any():
                raise LabelError(
                    f"The tables disagree about the truth of {listing(items[where[clash]])}. "
                    "Mend one of them, or drop it: votes.with_truth(None)."
                )
            truth[where] = codes

    def every(name: str) -> npt.NDArray[Any] | None:
        if all(getattr(t, name) is None for t in tables):
            return None
        if name == "timestamp" and any(t.timestamp is None for t in tables):
            raise InputError(
                "Some of the tables have timestamps and some do not. Give all of them timestamps, or none."
            )
        if name == "timestamp" and len({t.timestamp.dtype.kind for t in tables if t.timestamp is not None}) > 1:
            raise InputError(
                "The timestamps are dates in some of the tables and numbers in others. Convert one of them first."
            )
        return np.concatenate([t.weights if name == "weight" else getattr(t, name) for t in tables])

    return {
        "item": np.concatenate([encoding.locate(t.items, items)[t.item] for t in tables]),
        "annotator": np.concatenate(
            [encoding.recode(t.annotator, encoding.locate(t.annotators, annotators)) for t in tables]
        ),
        "label": np.concatenate([encoding.recode(t.label, encoding.locate(t.classes, classes)) for t in tables]),
        "items": items, "annotators": annotators, "classes": classes, "weight": every("weight"),
        "timestamp": every("timestamp"), "truth": truth if any(t.truth is not None for t in tables) else None,
        "kind": tables[0].kind,
    }  # fmt: skip


def _union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    if len({v.dtype.kind for v in vocabularies if len(v)}) > 1:
        raise ColumnError(
            "The tables cannot be joined: a name is text in one and a number or a boolean in "
            "another. Convert one of them first."
        )
    return encoding.to_vocabulary(list(dict.fromkeys(name for v in vocabularies for name in v.tolist())))
