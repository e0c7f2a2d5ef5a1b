"""How many independent annotators a panel is worth: its design effect, from errors that are made together.

Say r[n, m] is 1 where annotator m is right about item n, a[m] how often m is right, and e = r - a. The mean of n
variables of equal variance s² with correlation rho has the variance s² (1 + (n - 1) rho) / n, that of

    n_eff = n / (1 + (n - 1) rho)

independent ones. rho is the correlation of e over all pairs of annotators on an item, pooled over items,

    rho = sum_n sum_{m != m'} e[n, m] e[n, m'] / sum_n (n_n - 1) sum_m e[n, m]²

with n_n annotators on item n. With ``MIN_GOLD`` gold labels or more, these items alone are counted. Where the truth is
not known, both sums are expectations under the posterior of independent votes (of methods that have vote shares in its
place, the labels). It takes most common errors for another class, so that n_eff is then the most that the panel can be
worth: of independent annotators it is their number, of real panels up to 2.4 times what truth shows
(docs/reliability-colluders.md). Two answers of an annotator to one item are half an answer each.

=========  ===============  ======  ===============================================
symbol     code             shape   equation
=========  ===============  ======  ===============================================
x          ``X``            N x MK  share of m's answers to n that say k; sparse
a[m]       ``right``        M       sum_n,k q[n, k] x[n, m, k] / items of m
n          ``annotators``   1       mean number of annotators on an item
rho        ``rho``          1       as above, held between 0 and 1
=========  ===============  ======  ===============================================

When it fails: without gold labels, errors that all make together are seen by nobody.

L. Kish, Survey Sampling (1965), for the design effect.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise.core.annotator_groups import answers
from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Floats, clamp
from crowdwise.data.votes import Votes
from crowdwise.trust.evidence import check_match

MIN_GOLD = 20


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
