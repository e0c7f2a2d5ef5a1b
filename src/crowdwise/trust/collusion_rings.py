"""Rings of colluding annotators, with a score and an interval of everybody; no consensus is needed.

The search and its mathematics are in :mod:`crowdwise.core.collusion`, which is also what ``auto`` discounts rings by.

==============  ==========  =====  ====================================================================================
symbol          code        shape  equation
==============  ==========  =====  ====================================================================================
score[m]        ``score``   M      agreement beyond chance with the ring (of the one where it is largest), in [0, 1]
first[m]        ``first``   M      share of the votes in common with other members that m gave before them
==============  ==========  =====  ====================================================================================

Copies that agree with the rest are not a ring: they do no harm, and their annotators are not flagged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.collusion import PairAgreement, Ring, find_rings, paired_votes
from crowdwise.core.constraints import Fraction, checked
from crowdwise.core.intervals import Z
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, listing
from crowdwise.trust.result_tables import AnnotatorGroups


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Colluders(AnnotatorGroups):
    """Rings, and how much each annotator agrees with them.

    Attributes
    ----------
    names, score, low, high
        Per annotator: the name, and agreement beyond chance with the ring, from 0 to 1, with its 95 % interval.
    flagged, group
        Who is in a ring, and in which one; -1 for none.
    first
        Where votes have timestamps, for members: the share of the votes in common with others of the ring that were
        given before those. Near 1: the others copied from this annotator. NaN otherwise.
    rings
        For each ring the agreement inside and with the others, its share of the votes, and the p-value.
    """

    low: Floats
    high: Floats
    first: Floats
    rings: list[Ring]

    @property
    def p_values(self) -> Floats:
        """The p-value of each ring, corrected for the number of pairs."""
        return np.array([ring.p_value for ring in self.rings])

    def _columns(self, table: str) -> dict[str, Any]:
        columns = {"annotator": self.names, "score": self.score, "score_low": self.low, "score_high": self.high}
        return {**columns, "flagged": self.flagged, "group": self.group, "first": self.first}


@checked
def find_colluders(votes: Votes, *, trusted: Any = None, level: Fraction = 0.05) -> Colluders:
    """Rings of annotators who agree with each other and not with the rest; no consensus is needed.

    Parameters
    ----------
    votes
        The votes. Of more than 500 annotators, those with the most votes are looked at.
    trusted
        The name of an annotator known to be honest, or several. Without, those who agree with a ring are taken to be a
        minority.
    level
        The probability of flagging anybody where there is no ring.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.colluders(1000, n_annotators=30, share=0.3, random_state=0)
    >>> found = find_colluders(crowd.votes)
    >>> bool((found.flagged == crowd.parameters["colluders"]).all())
    True
    """
    M = votes.n_annotators
    rings = find_rings(votes, trusted=_trusted_mask(votes, trusted), level=level)
    group: Ints = np.full(M, -1, dtype=np.int64)
    for r, ring in enumerate(rings):
        group[ring.members] = r
    score, low, high = (np.zeros(M) for _ in range(3))
    if rings:
        pairs = PairAgreement.of(votes)
        own = group[pairs.annotator]
        for r in range(len(rings)):
            members = np.flatnonzero(own == r)
            kappa = np.clip(pairs.kappa(members), 0.0, 1.0)
            items = np.maximum(pairs.common[:, members].max(axis=1), 1.0)
            chance = np.average(pairs.chance[:, members], axis=1)
            p = chance + (1.0 - chance) * kappa
            reach = Z * np.sqrt((p * (1.0 - p) + 0.25 / items) / items) / np.maximum(1.0 - chance, 1e-9)
            at = np.flatnonzero((own == r) | ((own < 0) & (kappa > score[pairs.annotator])))
            who = pairs.annotator[at]
            score[who] = kappa[at]
            low[who], high[who] = (np.clip(kappa[at] + side * reach[at], 0.0, 1.0) for side in (-1.0, 1.0))
    return Colluders(
        names=votes.annotators, score=score, low=low, high=high, flagged=group >= 0, group=group,
        first=_first(votes, group), rings=rings, level=float(level), kind=votes.kind,
    )  # fmt: skip


def _first(votes: Votes, group: Ints) -> Floats:
    """M: of the votes in common with others of the same ring, the share given before theirs."""
    M = votes.n_annotators
    if votes.timestamp is None or not (group >= 0).any():
        return np.full(M, np.nan)
    inside = group[votes.annotator] >= 0
    size = np.bincount(votes.item[inside], minlength=len(votes))
    a, b = paired_votes(np.append(0, np.cumsum(size)), np.arange(len(votes)))
    who, time = votes.annotator[inside], np.asarray(votes.timestamp)[inside]
    same = (group[who[a]] == group[who[b]]) & (who[a] != who[b])
    a, b = a[same], b[same]
    earlier = 0.5 + 0.5 * np.sign((time[b] - time[a]).astype(np.float64))
    both = np.append(who[a], who[b])
    before = np.bincount(both, weights=np.append(earlier, 1.0 - earlier), minlength=M)
    total = np.bincount(both, minlength=M)
    return np.asarray(np.divide(before, total, out=np.full(M, np.nan), where=total > 0))


def _trusted_mask(votes: Votes, trusted: Any) -> npt.NDArray[np.bool_] | None:
    if trusted is None:
        return None
    names = [trusted] if isinstance(trusted, str) or not isinstance(trusted, Sequence) else list(trusted)
    place = encoding.locate(encoding.to_vocabulary(names), votes.annotators)
    if (place < 0).any():
        raise InputError(f"No annotator named {listing(names)}: the votes have {listing(votes.annotators)}.")
    mask = np.zeros(votes.n_annotators, dtype=bool)
    mask[place] = True
    return mask
