"""The evidence in votes and their consensus that annotators and items are judged by, and the tests they share.

The mathematics is in :mod:`crowdwise.core.leave_one_out`: every vote is judged by the other votes on its item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.leave_one_out import MAX_CELLS, LeaveOneOut
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import encoding
from crowdwise.data.frames import is_missing
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError, ParameterError, listing

MOST_GROUPS = 200


def read_evidence(votes: Votes, consensus: Consensus, gold: Any = None) -> LeaveOneOut:
    """Every vote judged by the others on its item; ``gold`` (as in ``fit``) overrules the consensus where given.

    A consensus keeps the evidence in its own votes, so that it is computed once.
    """
    check_match(votes, consensus)
    M, K = votes.n_annotators, votes.n_classes
    if M * K * K > MAX_CELLS:
        raise InputError(
            f"{M:,} annotators x {K:,}² classes are too many confusion matrices to judge. "
            "Merge rare classes, or look at fewer annotators: votes.only([...]) and its own consensus."
        )
    known = known_classes(votes, consensus, gold)
    if votes is consensus.votes and known is consensus.gold:
        return consensus.leave_one_out
    return LeaveOneOut.of(votes, consensus.independent_posterior, known, consensus.item_prior)


def known_classes(votes: Votes, consensus: Consensus, gold: Any = None) -> Ints | None:
    """The classes that a consensus was fitted with, and those that are given besides; ``None`` where there are none."""
    before = consensus.gold
    if gold is None:
        return before
    given = votes.encode_truth(gold)
    if before is None:
        return given
    together = np.where(given >= 0, given, before)
    return before if np.array_equal(together, before) else together


def check_match(votes: Votes, consensus: Consensus) -> None:
    """The consensus is one of these votes."""
    if not isinstance(votes, Votes) or not isinstance(consensus, Consensus):
        raise InputError(
            f"Expected Votes and a Consensus, and found {type(votes).__name__} and {type(consensus).__name__}."
        )
    for what, a, b in (
        ("items", votes.items, consensus.items),
        ("annotators", votes.annotators, consensus.annotators),
        ("classes", votes.classes, consensus.classes),
    ):
        if not np.array_equal(a, b):
            raise InputError(
                f"The {what} of the votes are not those of the consensus ({len(a):,} and {len(b):,}): "
                "give the votes that the consensus was made from."
            )
    if votes.n_classes < 2:
        raise InputError("There is a single class: nothing can be said about annotators or items.")


def annotator_codes(votes: Votes, names: list[Any]) -> Ints:
    """The codes of annotators by name."""
    codes = encoding.locate(encoding.to_vocabulary(names), votes.annotators)
    if (codes < 0).any():
        missing = [name for name, code in zip(names, codes.tolist(), strict=True) if code < 0]
        raise InputError(f"No annotator named {listing(missing)}: the votes have {listing(votes.annotators)}.")
    return codes


def adjusted(p: Floats) -> Floats:
    """Benjamini and Hochberg's adjusted p-values: those up to a level have a false discovery rate of that level."""
    from scipy.stats import false_discovery_control

    p = np.clip(np.asarray(p, dtype=np.float64), 0.0, 1.0)
    return np.asarray(false_discovery_control(p.ravel()).reshape(p.shape)) if p.size else p


@dataclass(frozen=True, eq=False)
class Groups:
    """A group for each item or annotator: codes (-1: none given) and names."""

    code: Ints
    names: npt.NDArray[Any]


def read_groups(groups: Any, owners: npt.NDArray[Any], what: str, min_groups: int = 2) -> Groups:
    """Groups from a mapping of owners to groups, or from one value for each owner."""
    if isinstance(groups, Mapping):
        values = [groups.get(name) for name in owners.tolist()]
        if len(owners) and all(is_missing(v) for v in values):
            raise InputError(f"groups names none of the {what}s: it has {listing(groups)}, they are {listing(owners)}.")
    else:
        if isinstance(groups, str) or not hasattr(groups, "__len__") or len(groups) != len(owners):
            raise ParameterError(f"groups: expected a mapping from {what} to group, or one group for each {what}.")
        values = list(groups.tolist() if hasattr(groups, "tolist") else groups)
    names = sorted({v for v in values if not is_missing(v)}, key=lambda v: (str(type(v)), v))
    if not min_groups <= len(names) <= MOST_GROUPS:
        expected = f"expected {min_groups} to {MOST_GROUPS}. Merge or leave out some."
        raise InputError(f"There are {len(names)} groups of {what}s: {expected}")
    place = {name: i for i, name in enumerate(names)}
    out = np.empty(len(names), dtype=object)
    out[:] = names
    return Groups(np.array([place.get(v, -1) for v in values], dtype=np.int64), out)


def positive_code(classes: npt.NDArray[Any], positive: Any) -> int:
    """The code of the positive class: the one named, or the second of two."""
    if positive is None:
        if len(classes) != 2:
            raise ParameterError(
                f"There are {len(classes)} classes: name the positive one, positive={listing(classes[:1])} say."
            )
        return 1
    found = [k for k, name in enumerate(classes.tolist()) if name == positive]
    if not found:
        raise LabelError(f"positive={positive!r} is not a class: they are {listing(classes, 10)}.")
    return found[0]
