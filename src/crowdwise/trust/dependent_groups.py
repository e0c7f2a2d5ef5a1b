"""Groups of annotators who depend on each other, found in how often pairs agree; no consensus is needed.

The mathematics is in :mod:`crowdwise.core.annotator_groups`: covariances of answers have a factor that all pairs share
(the truth), and pairs of one group agree more than that. This is what ``grouped-dawid-skene`` groups by, with a
verdict.

==============  ============  =====  ================================================================================
symbol          code          shape  equation
==============  ============  =====  ================================================================================
rho[i, j]       ``excess``    P      tr E_ij / (K - 1): correlation that the truth does not explain, with interval
z[i, j]         ``surprise``  P      sqrt(n (K - 1)) rho, relative to the middle of all pairs
score[m]        ``score``     M      max(rho, 0) (1 - min(P p, 1)) of the pair that stands out most
==============  ============  =====  ================================================================================

The verdict: there are groups if at least one pair inside them still stands out when all annotators may share one more
factor beyond the truth (how hard items are). So where there are none, the probability of finding any is at most
``level``, hard items or not.

When it fails: with two groups their opinions look like the truth; pairs need at least 20 common items; members who
answer the opposite of their group agree less, not more, and are not found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from crowdwise.core.annotator_groups import MIN_COMMON, PairDependence, dependence, spectral_groups
from crowdwise.core.constraints import Bounds, Count, Fraction, checked
from crowdwise.core.intervals import Z
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.trust.result_tables import AnnotatorPairs

AtLeastTwo = Annotated[int, Bounds(minimum=2)]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DependentGroups(AnnotatorPairs):
    """Groups of dependent annotators.

    Attributes
    ----------
    names, group, score, flagged
        Per annotator: the name, the group (0 is the largest; everybody has one, of one member if need be), from 0 to
        1 how much they agree beyond the truth with the annotator where it stands out most, and whether they are in
        a group with others.
    left, right, items, excess, low, high, p_value
        Per pair with enough common items: the annotators (positions in ``names``), common items, the correlation
        beyond the truth with its 95 % interval, and the p-value (of one pair, not corrected for there being many).
    """

    excess: Floats

    @property
    def n_groups(self) -> int:
        """How many groups there are, annotators on their own counted."""
        return int(self.group.max()) + 1

    @property
    def edges(self) -> list[tuple[Any, Any, float]]:
        """The pairs inside groups, as (annotator, annotator, excess): the graph to draw."""
        return self._edges(self.group[self.left] == self.group[self.right], self.excess)

    def _columns(self, table: str) -> dict[str, Any]:
        if table == "annotators":
            return {**self._of_annotators(), "group_size": np.bincount(self.group)[self.group]}
        order, columns = self._of_pairs(self.excess, "items", "excess", "low", "high", "p_value")
        return {**columns, "same_group": self.group[self.left[order]] == self.group[self.right[order]]}


@checked
def find_groups(
    votes: Votes, *, n_groups: Count | None = None, level: Fraction = 0.05, min_common: AtLeastTwo = MIN_COMMON
) -> DependentGroups:
    """Groups of dependent annotators, from second-order statistics of their votes.

    Parameters
    ----------
    votes
        The votes.
    n_groups
        How many groups there are (spectral clustering then finds them, whatever the test says); by default as many as
        the data shows.
    level
        The probability of finding any group where there is none.
    min_common
        The fewest common items of two annotators that are looked at.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.groups(1000, n_annotators=20, n_groups=4, random_state=0)
    >>> found = find_groups(crowd.votes)
    >>> found.n_groups, [len(members) for members in found.groups]
    (4, [5, 5, 5, 5])
    """
    from scipy.special import ndtr

    found = dependence(votes, level=level, min_common=min_common)
    group = found.group
    if n_groups is not None:
        group = spectral_groups(found, int(n_groups))
    elif int(group.max(initial=-1)) + 1 < votes.n_annotators:
        group = _confirmed(found, dependence(votes, level=level, extra=1, pairs=found.pairs))
    pairs, M, K = found.pairs, votes.n_annotators, votes.n_classes
    rho = np.einsum("pkk->p", found.rest) / (K - 1.0)
    reach = Z / np.sqrt(pairs.common * (K - 1.0))
    p = np.asarray(ndtr(-found.surprise))
    worth = np.clip(rho, 0.0, 1.0) * (1.0 - np.minimum(len(p) * p, 1.0))
    score = np.zeros(M)
    for side in (pairs.i, pairs.j):
        np.maximum.at(score, side, worth)
    return DependentGroups(
        names=votes.annotators, score=score, flagged=np.bincount(group)[group] > 1, group=group, left=pairs.i,
        right=pairs.j, items=pairs.common.astype(np.int64), excess=np.clip(rho, -1.0, 1.0),
        low=np.clip(rho - reach, -1.0, 1.0), high=np.clip(rho + reach, -1.0, 1.0), p_value=p, level=float(level),
        kind=votes.kind,
    )  # fmt: skip


def _confirmed(found: PairDependence, beyond: PairDependence) -> Ints:
    """The groups, if any pair inside one stands out beyond one more shared factor; else everybody is on their own."""
    i, j = found.pairs.i, found.pairs.j
    sure = (found.group[i] == found.group[j]) & (beyond.surprise > beyond.threshold)
    return found.group if sure.any() else np.arange(len(found.group))
