"""Everything that ``crowdwise.trust`` says about some votes and their consensus, run once.

Each detector runs at the same ``level`` (its own stated error rate, see its module). One that cannot run on the votes
at hand, because there is a single class, say, or one vote per item, leaves a sentence in ``notes`` and nothing else.

=============  ===================================================  ==================================================
field          from                                                 holds
=============  ===================================================  ==================================================
``evidence``   ``trust.evidence.read_evidence``                     every vote judged by the others on its item: made
                                                                    once, handed to all who need it
``people``     ``trust.annotators.assess_annotators``               accuracy, skill, weight, drift, flags
``bits``       ``trust.spammers.capacity_spammers``                 information per vote, with interval and verdict
``items``      ``trust.item_review.assess_items``                   items to look at again, classes that are confused
``shared``     ``trust.colluders.shared_mistakes``                  annotators who make the same mistakes
``rings``      ``trust.collusion_rings.find_colluders``             annotators who agree more than honesty allows
``dependent``  ``trust.dependent_groups.find_groups``               annotators who depend on one another
=============  ===================================================  ==================================================

Large crowds: shared mistakes are looked for in a sample of the items (votes x classes up to ``MOST_WORK``), rings among
the 500 annotators with the most votes, groups also (pairs x classes³ up to ``MOST_PAIRED``), shared mistakes and groups
with at most ``MANY`` classes, and capacities are left out, or go without intervals, where annotators x
classes² are too many. ``notes`` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdwise.core.annotator_groups import answers, common_items
from crowdwise.core.collusion import discounted
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Fraction, checked
from crowdwise.core.leave_one_out import LeaveOneOut
from crowdwise.core.numerics import Floats
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.trust.annotators import AnnotatorReport, assess_annotators
from crowdwise.trust.colluders import SharedMistakes, shared_mistakes
from crowdwise.trust.collusion_rings import Colluders, find_colluders
from crowdwise.trust.dependent_groups import DependentGroups, find_groups
from crowdwise.trust.evidence import check_match, read_evidence, sample_items
from crowdwise.trust.item_review import ItemReport, assess_items
from crowdwise.trust.spammers import Spammers, capacity_spammers, channel_capacity

MOST_WORK = 800_000
"""Votes x classes among which shared mistakes are looked for; a sample of the items where there are more."""
MOST_FLOPS = 4e9
"""Pairs of votes x classes² x 6 degrees of ease in that search: fewer pairs where there are many classes."""
MANY = 20
"""Classes up to which pairs of annotators are looked at label by label: the work goes with their square."""
MOST_PAIRED = 3e6
"""Pairs of annotators x classes³ up to which groups are looked for among all; else among those with the most votes."""
MOST_DRAWN, MOST_CELLS = 20_000, 1_000_000
"""Annotators x classes² up to which capacities get intervals (200 draws of every matrix), and are worked out at all."""
STEPS = ("evidence", "annotators", "capacity", "items", "shared mistakes", "rings", "groups")
Progress = Callable[[str], None]
"""Called with the name of each step before it begins."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """What the detectors found; ``None`` where one could not run (see the module)."""

    votes: Votes
    consensus: Consensus
    level: float
    evidence: LeaveOneOut | None = None
    people: AnnotatorReport | None = None
    bits: Spammers | None = None
    items: ItemReport | None = None
    shared: SharedMistakes | None = None
    rings: Colluders | None = None
    dependent: DependentGroups | None = None
    with_gold: bool = False
    """Whether gold labels were given."""
    notes: dict[str, str] = field(default_factory=dict)
    """Step -> why it was left out, or what it looked at."""

    @property
    def ring(self) -> set[Any]:
        """The members of rings."""
        return set(self.rings.annotators) if self.rings is not None else set()

    @property
    def captured(self) -> bool:
        """Whether those who repeat each other may have decided the consensus, so that it convicts the others.

        A group of half of the annotators or more; or a ring whose votes are the labels more often than those of the
        others are.
        """
        if any(2 * len(members) >= self.votes.n_annotators for members in self.groups):
            return True
        if self.rings is None or not self.rings.flagged.any() or self.with_gold:
            return False
        agrees = self.votes.label == self.consensus.label_codes[self.votes.item]
        inside = self.rings.flagged[self.votes.annotator]
        return bool(agrees[inside].mean() >= agrees[~inside].mean())

    @property
    def groups(self) -> list[list[Any]]:
        """Annotators who repeat each other, the largest group first: rings, and those who share mistakes."""
        out = [*(self.rings.groups if self.rings is not None else [])]
        out += [members for members in (self.shared.groups if self.shared is not None else []) if len(members) > 1]
        place = {name: m for m, name in enumerate(self.votes.annotators.tolist())}
        return sorted(out, key=lambda members: (-len(members), place[members[0]]))


@checked
def inspect(
    votes: Votes, consensus: Consensus, *, gold: Any = None, level: Fraction = 0.05, progress: Progress | None = None
) -> Inspection:
    """Run every detector that the votes allow; parameters as in :func:`crowdwise.diagnose`, steps are ``STEPS``."""
    notes: dict[str, str] = {}
    M, K = votes.n_annotators, votes.n_classes
    if K >= 2:
        check_match(votes, consensus)

    def attempt(step: str, work: Callable[[], Any]) -> Any:
        if progress is not None:
            progress(step)
        try:
            return work()
        except InputError as error:
            notes[step] = str(error)
            return None

    rings = attempt("rings", lambda: _rings(votes, level))
    every = votes
    if rings is not None and rings.rings:  # a ring is one voice where votes judge each other
        votes = discounted(votes, rings.rings)
    evidence = attempt("evidence", lambda: read_evidence(votes, consensus, gold))
    found: dict[str, Any] = {"evidence": evidence, "rings": rings, "with_gold": gold is not None}
    if evidence is not None:
        judge = {"level": level, "evidence": evidence}
        capacity = _capacity if M * K * K <= MOST_CELLS else None
        found["people"] = attempt("annotators", lambda: assess_annotators(votes, consensus, capacity=capacity, **judge))
        found["items"] = attempt("items", lambda: assess_items(votes, consensus, **judge))
    if M * K * K <= MOST_DRAWN and K >= 2:
        found["bits"] = attempt("capacity", lambda: capacity_spammers(votes, consensus, level=level))
    elif K >= 2:
        without = "have no intervals" if M * K * K <= MOST_CELLS else "were not computed"
        notes["capacity"] = f"{M:,} annotators x {K:,}² classes: capacities {without}."
    rows = sample_items(np.diff(votes.indptr), MOST_WORK // max(K, 1), 0)
    all_items, posterior = len(rows) == len(votes), consensus.independent_posterior
    some, q = (votes, posterior) if all_items else (votes[rows], posterior[rows])
    if not all_items:
        notes["shared mistakes"] = f"Looked for in {len(rows):,} of {len(votes):,} items, drawn at random."
    if rings is not None and rings.rings:  # their mistakes in common are known
        some = some.select(~rings.flagged[some.annotator])
    found["shared"] = attempt("shared mistakes", lambda: _shared(some, q, level))
    found["dependent"] = attempt("groups", lambda: _dependent(every, level, notes))
    return Inspection(every, consensus, level, notes=notes, **found)


def _capacity(theta: Floats) -> Floats:
    return channel_capacity(theta, tol=1e-3, max_iter=300)


def _needs(votes: Votes, annotators: int, few_classes: bool = False) -> None:
    M, K = votes.n_annotators, votes.n_classes
    if K < 2:
        raise InputError("There is a single class: annotators cannot be compared.")
    if M < annotators:
        raise InputError(f"There are {M} annotators: pairs are compared from {annotators} on.")
    if not (np.diff(votes.indptr) > 1).any():
        raise InputError("No item has two votes: pairs of annotators cannot be compared.")
    if (np.bincount(votes.annotator) > 1).sum() < 2:
        raise InputError("Hardly anybody has voted twice: pairs of annotators have one item in common at most.")
    if few_classes and K > MANY:
        raise InputError(f"There are {K} classes: with more than {MANY}, pairs are not compared this way.")


def _shared(votes: Votes, posterior: Floats, level: float) -> SharedMistakes:
    _needs(votes, 3, few_classes=True)
    most = int(MOST_FLOPS / (6 * votes.n_classes**2))
    return shared_mistakes(votes, posterior, level=level, max_pairs=min(max(most, 200_000), 2_000_000))


def _rings(votes: Votes, level: float) -> Colluders:
    _needs(votes, 3)
    return find_colluders(votes, level=level)


def _dependent(votes: Votes, level: float, notes: dict[str, str]) -> DependentGroups:
    _needs(votes, 3, few_classes=True)
    M, K = votes.n_annotators, votes.n_classes
    if M * M / 2.0 * K**3 > MOST_PAIRED and len(common_items(answers(votes), M, K)[0]) * K**3 > MOST_PAIRED:
        most = max(int(np.sqrt(2.0 * MOST_PAIRED / K**3)), 3)
        busiest = np.argsort(-np.bincount(votes.annotator, minlength=M), kind="stable")[:most]
        votes = votes.only(votes.annotators[np.sort(busiest)].tolist())
        notes["groups"] = f"Looked for among the {most:,} annotators with the most votes, of {M:,}."
    return find_groups(votes, level=level)
