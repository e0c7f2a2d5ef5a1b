"""Everything that ``crowdwise.trust`` can say about some votes and their consensus, run once.

Each detector runs at the same ``level`` (its own stated error rate, see its module). One that cannot run on the votes
at hand, because there is a single class, say, or one vote per item, leaves a sentence in ``notes`` and nothing else.

=================  ================================================  ===================================================
field              from                                              says
=================  ================================================  ===================================================
``people``         ``trust.annotators.assess_annotators``            accuracy, skill, weight, drift, flags in words
``bits``           ``trust.spammers.capacity_spammers``              how much a vote can tell, with interval and verdict
``items``          ``trust.items.assess_items``                      what to look at again, which classes are confused
``shared``         ``trust.colluders.shared_mistakes``               who makes the same mistakes
``rings``          ``trust.colluders.find_colluders``                who agrees more than honesty allows
``dependent``      ``trust.groups.find_groups``                      who depends on whom, guilty or not
``counts``         ``trust.evidence.read_evidence``                  confusion counts, every vote judged by the others
=================  ================================================  ===================================================

Large crowds: shared mistakes are looked for in a sample of the items (votes x classes up to ``MOST_WORK``), rings among
at most 500 annotators, shared mistakes and groups with at most ``MANY`` classes, and capacities are left out, or go
without intervals, where annotators x classes² are too many. ``notes`` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Floats
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.trust.annotators import AnnotatorReport, assess_annotators
from crowdwise.trust.colluders import Colluders, SharedMistakes, find_colluders, shared_mistakes
from crowdwise.trust.dependent_groups import DependentGroups, find_groups
from crowdwise.trust.item_review import ItemReport, assess_items
from crowdwise.trust.judged_votes import check_level, check_match, read_evidence
from crowdwise.trust.spammers import Spammers, capacity_spammers, channel_capacity

__all__ = ["Inspection", "inspect"]

MOST_WORK = 800_000
"""Votes x classes among which shared mistakes are looked for; a sample of the items where there are more."""
MOST_FLOPS = 4e9
"""Pairs of votes x classes² x 6 degrees of ease in that search: fewer pairs where there are many classes."""
MANY = 20
"""Classes up to which pairs of annotators are looked at label by label: the work goes with their square."""
MOST_DRAWN, MOST_CELLS = 20_000, 1_000_000
"""Annotators x classes² up to which capacities get intervals (200 draws of every matrix), and are worked out at all."""
STEPS = ("annotators", "capacity", "items", "shared mistakes", "rings", "groups", "confusions")
Told = Callable[[str], None]
"""Called with the name of each step before it begins."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """What the detectors found; ``None`` where one could not run (see the module)."""

    votes: Votes
    consensus: Consensus
    level: float
    people: AnnotatorReport | None = None
    bits: Spammers | None = None
    items: ItemReport | None = None
    shared: SharedMistakes | None = None
    rings: Colluders | None = None
    dependent: DependentGroups | None = None
    counts: Floats | None = None
    """M x K x K (annotator, truth, label)."""
    notes: dict[str, str] = field(default_factory=dict)
    """Step -> why it was left out, or what it looked at."""

    @property
    def captured(self) -> bool:
        """Whether those who repeat each other may have made the consensus theirs, so that it convicts the others.

        A group of half of the annotators or more; or a ring that most of the others look random, or worse, beside.
        """
        M = self.votes.n_annotators
        if any(2 * len(members) >= M for members, _ in self.groups):
            return True
        ring = set(self.rings.annotators) if self.rings is not None else set()
        if not ring or self.people is None:
            return False
        bad = {*self.people.flagged("worse than chance"), *self.people.flagged("answers at random")} - ring
        return 2 * len(bad) > M - len(ring)

    @property
    def groups(self) -> list[tuple[list[Any], str]]:
        """Annotators who repeat each other, the largest group first: members, and what shows it.

        Groups that share mistakes; rings join the group they overlap, or stand for themselves.
        """
        found: list[tuple[set[Any], set[str]]] = []
        if self.shared is not None:
            found = [(set(members), {"mistakes"}) for members in self.shared.groups if len(members) > 1]
        for ring in self.rings.groups if self.rings is not None else []:
            touched = [entry for entry in found if entry[0] & set(ring)]
            members, why = set(ring), {"agreement"}
            for entry in touched:
                members |= entry[0]
                why |= entry[1]
                found.remove(entry)
            if len(members) > 1:
                found.append((members, why))
        place = {name: m for m, name in enumerate(self.votes.annotators.tolist())}
        ordered = [(sorted(members, key=place.__getitem__), " and ".join(sorted(why))) for members, why in found]
        return sorted(ordered, key=lambda entry: (-len(entry[0]), place[entry[0][0]]))


def inspect(
    votes: Votes, consensus: Consensus, *, gold: Any = None, level: float = 0.05, told: Told | None = None
) -> Inspection:
    """Run every detector that the votes allow.

    Parameters
    ----------
    votes, consensus
        The votes and a consensus of them.
    gold
        True classes to judge by where they are known: a mapping from item to class, or N codes with -1 for unknown.
    level
        The error rate of each detector, as its own module states it.
    told
        Called with the name of each step (``STEPS``) before it begins.
    """
    check_level(level)
    notes: dict[str, str] = {}
    found: dict[str, Any] = {}
    if votes.n_classes >= 2:
        check_match(votes, consensus)
    known = None if gold is None else votes.encode_truth(gold)
    M, K = votes.n_annotators, votes.n_classes

    def attempt(step: str, field_: str, work: Callable[[], Any]) -> None:
        if told is not None:
            told(step)
        try:
            found[field_] = work()
        except InputError as error:
            notes[step] = str(error)

    capacity = _capacity if M * K * K <= MOST_CELLS else None
    attempt(
        "annotators", "people",
        lambda: assess_annotators(votes, consensus, truth=known, level=level, capacity=capacity),
    )  # fmt: skip
    if M * K * K <= MOST_DRAWN and K >= 2:
        attempt("capacity", "bits", lambda: capacity_spammers(consensus, level=level))
    elif K >= 2:
        without = "capacities have no intervals" if capacity is not None else "capacities were not worked out"
        notes["capacity"] = f"{M:,} annotators x {K:,}² classes: {without}."
    attempt("items", "items", lambda: assess_items(votes, consensus, truth=known, level=level))
    rows = _sample(votes)
    if rows is None:
        attempt("shared mistakes", "shared", lambda: _shared(votes, consensus.posterior, level))
    else:
        notes["shared mistakes"] = f"Looked for in {len(rows):,} of {len(votes):,} items, drawn at random."
        attempt("shared mistakes", "shared", lambda: _shared(votes[rows], consensus.posterior[rows], level))
    attempt("rings", "rings", lambda: _rings(votes, level))
    attempt("groups", "dependent", lambda: _dependent(votes, level))
    attempt("confusions", "counts", lambda: read_evidence(votes, consensus, known).counts)
    return Inspection(votes, consensus, level, notes=notes, **found)


def _capacity(theta: Floats) -> Floats:
    return channel_capacity(theta, tol=1e-3, max_iter=300)


def _sample(votes: Votes) -> Any:
    """Items with ``MOST_WORK`` / K votes between them, by a fixed draw; ``None`` where that is all of them."""
    most = MOST_WORK // max(votes.n_classes, 1)
    if votes.n_votes <= most:
        return None
    order = np.random.default_rng(0).permutation(len(votes))
    size = np.diff(votes.indptr)[order]
    return np.sort(order[: max(int(np.searchsorted(np.cumsum(size), most)), 1)])


def _needs(votes: Votes, annotators: int) -> None:
    if votes.n_classes < 2:
        raise InputError("There is a single class: nothing tells annotators apart.")
    if votes.n_annotators < annotators:
        raise InputError(f"There are {votes.n_annotators} annotators: it takes {annotators} to see who goes with whom.")
    if not (np.diff(votes.indptr) > 1).any():
        raise InputError("No item has two votes: nothing shows who goes with whom.")


def _few_classes(votes: Votes) -> None:
    if votes.n_classes > MANY:
        raise InputError(
            f"There are {votes.n_classes} classes: with more than {MANY}, pairs are not compared this way."
        )


def _shared(votes: Votes, posterior: Floats, level: float) -> SharedMistakes:
    _needs(votes, 3)
    _few_classes(votes)
    most = int(MOST_FLOPS / (6 * votes.n_classes**2))
    return shared_mistakes(votes, posterior, level=level, most_pairs=min(max(most, 200_000), 2_000_000))


def _rings(votes: Votes, level: float) -> Colluders:
    _needs(votes, 3)
    return find_colluders(votes, level=level)


def _dependent(votes: Votes, level: float) -> DependentGroups:
    _needs(votes, 3)
    _few_classes(votes)
    return find_groups(votes, level=level)
