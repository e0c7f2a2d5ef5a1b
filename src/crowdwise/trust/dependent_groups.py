"""Annotators who depend on each other: rings, groups, and how many independent ones a panel is worth.

**Rings** agree with each other and not with the rest. The search is in :mod:`crowdwise.core.collusion`, which is also
what ``auto`` discounts rings by. Copies that agree with the rest are not a ring: they do no harm, and their annotators
are not flagged.

**Groups** share opinions. The mathematics is in :mod:`crowdwise.core.annotator_groups`: covariances of answers have a
factor that all pairs share (the truth), and pairs of one group agree more than that. There are groups if at least one
pair inside them still stands out when all annotators may share one more factor beyond the truth (how hard items are).
So where there are none, the probability of finding any is at most ``level``, hard items or not. It fails with two
groups, whose opinions look like the truth; pairs need at least 20 common items; members who answer the opposite of
their group agree less, not more, and are not found.

A **panel** of n annotators whose errors correlate is worth n / (1 + (n - 1) rho) independent ones (Kish's design
effect). With r[n, m] = 1 where m is right about item n, a[m] how often m is right and e = r - a,

    rho = sum_n sum_{m != m'} e[n, m] e[n, m'] / sum_n (n_n - 1) sum_m e[n, m]^2,    n_n annotators on item n.

With ``MIN_GOLD`` gold labels or more, these items alone are counted. Where the truth is not known, both sums are
expectations under the posterior of independent votes (of methods that have vote shares in its place, the labels). It
takes most common errors for another class, so that n_eff is then the most that the panel can be worth: of independent
annotators it is their number, of real panels up to 2.4 times what truth shows (docs/reliability-colluders.md).

==============  ============  =======  ================================================================================
symbol          code          shape    equation
==============  ============  =======  ================================================================================
score[m]        ``score``     M        ring: agreement beyond chance with it (the one where it is largest), in [0, 1]
first[m]        ``first``     M        ring: share of the votes in common with other members that m gave before them
rho[i, j]       ``excess``    P        group: tr E_ij / (K - 1), correlation that the truth does not explain
z[i, j]         ``surprise``  P        group: sqrt(n (K - 1)) rho, relative to the middle of all pairs
score[m]        ``score``     M        group: max(rho, 0) (1 - min(P p, 1)) of the pair that stands out most
x               ``X``         N x MK   panel: share of m's answers to n that say k; sparse
a[m]            ``right``     M        panel: sum_n,k q[n, k] x[n, m, k] / items of m
==============  ============  =======  ================================================================================

L. Kish, Survey Sampling (1965), for the design effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from crowdwise.core.annotator_groups import MIN_COMMON, answers, dependence, spectral_groups
from crowdwise.core.collusion import PairAgreement, Ring, find_voices, paired_votes, since
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Bounds, Count, Fraction, checked
from crowdwise.core.intervals import Z
from crowdwise.core.numerics import Floats, Ints, clamp
from crowdwise.data.votes import Votes
from crowdwise.trust.evidence import annotator_codes, check_match
from crowdwise.trust.result_tables import AnnotatorGroups, AnnotatorPairs

AtLeastTwo = Annotated[int, Bounds(minimum=2)]
MIN_GOLD = 20


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
    copies
        Groups of annotators who always give the same answers and agree with the rest, in the same form: no ring.
    """

    low: Floats
    high: Floats
    first: Floats
    rings: list[Ring]
    copies: list[Ring]

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
    mask = None
    if trusted is not None:
        names = [trusted] if isinstance(trusted, str) or not isinstance(trusted, Sequence) else list(trusted)
        mask = np.isin(np.arange(M), annotator_codes(votes, names))
    voices = find_voices(votes, trusted=mask, level=level)
    rings, copies = ([voice for voice in voices if voice.kind == kind] for kind in ("ring", "copies"))
    group: Ints = np.full(M, -1, dtype=np.int64)
    for r, ring in enumerate(rings):
        group[ring.members] = r
    score, low, high = (np.zeros(M) for _ in range(3))
    for r, ring in enumerate(rings):
        pairs = PairAgreement.of(since(votes, ring))
        own = group[pairs.annotator]
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
        first=_first(votes, group), rings=rings, copies=copies, level=float(level), kind=votes.kind,
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
        beyond = dependence(votes, level=level, extra=1, pairs=found.pairs)
        together = group[found.pairs.i] == group[found.pairs.j]
        if not (together & (beyond.surprise > beyond.threshold)).any():  # none stands out beyond one more shared factor
            group = np.arange(votes.n_annotators)
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


@dataclass(frozen=True)
class EffectiveVotes:
    """How many independent annotators the answers to an item are worth.

    Attributes
    ----------
    annotators
        The mean number of annotators who answer an item.
    rho
        The correlation of being right, over pairs of annotators on an item.
    gold
        The number of gold labels that it was measured on; 0 where there were too few, and ``effective`` is an upper
        bound.
    """

    annotators: float
    rho: float
    gold: int

    @property
    def effective(self) -> float:
        """n / (1 + (n - 1) rho)."""
        return self.annotators / (1.0 + (self.annotators - 1.0) * self.rho)


def effective_votes(votes: Votes, consensus: Consensus) -> EffectiveVotes:
    """How many independent annotators a panel is worth.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(500, n_annotators=10, votes_per_item=10, random_state=0)
    >>> found = effective_votes(crowd.votes, cw.aggregate(crowd.votes, gold=crowd.truth))
    >>> found.annotators, round(found.effective)
    (10.0, 10)
    """
    check_match(votes, consensus)
    q, gold, known = consensus.independent_posterior, consensus.gold, 0
    if consensus.vote_shares:
        q = np.eye(votes.n_classes)[consensus.label_codes]
    rows = np.diff(votes.indptr) > 0
    if gold is not None:
        q, known = clamp(q, gold), int(((gold >= 0) & rows).sum())
        rows = rows & (gold >= 0) if known >= MIN_GOLD else rows
    at = np.flatnonzero(rows)
    size, rho = correlation(votes[at], q[at])
    return EffectiveVotes(size, rho, known if known >= MIN_GOLD else 0)


def correlation(votes: Votes, q: Floats) -> tuple[float, float]:
    """n and rho of items with such a posterior."""
    from scipy.sparse import csr_matrix, identity, kron

    M, K = votes.n_annotators, votes.n_classes
    X, each = answers(votes), csr_matrix(np.ones((M, 1)))
    voters = X @ kron(identity(M), np.ones((K, 1)))  # N x M: 1 where m answers n
    size = np.asarray(voters.sum(axis=1)).ravel()
    right = np.asarray(sum((X[:, k::K].T @ q[:, k] for k in range(K)), np.zeros(M)))
    right /= np.maximum(np.asarray(voters.sum(axis=0)).ravel(), 1.0)
    together = squares = 0.0
    for k in range(K):
        said = X[:, k::K]
        total = (said @ each).toarray().ravel() - voters @ right
        own = (said.power(2) @ each).toarray().ravel() - 2.0 * (said @ right) + voters @ right**2
        together += float(q[:, k] @ (total**2 - own))
        squares += float(q[:, k] @ ((size - 1.0) * own))
    return float(size.mean()) if len(size) else 0.0, min(max(together / squares, 0.0), 1.0) if squares > 0.0 else 0.0
