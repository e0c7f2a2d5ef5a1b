"""Annotators who share mistakes: excess agreement on what a consensus says is wrong, pair by pair.

Mistakes are shared for three innocent reasons: items are hard, wrong labels have favourites, and the consensus itself
errs. The null hypothesis is a model that has all three: item n has a truth k and an ease tau (a few values, whose
shares are learned), and annotator m says l with p_m(l | k, tau) proportional to exp(tau beta[m, k, l]), independently
of all others. For a pair (i, j) truth and ease are inferred from the *other* annotators' votes alone, so neither a hard
item nor a wrong consensus counts against them.

===============  ==============  ==============  ======================================================================
symbol           code            shape           equation
===============  ==============  ==============  ======================================================================
r[n, k, tau]     ``r``           N x K x D       q[n, k] softmax_tau( log w_tau + sum_votes log p_m(l | k, tau) )
beta, w                                          under which the counts that r gives are most probable
rho[k, tau]      ``rho``         per pair, item  P(k, tau | votes on n without those of i and j)
X                ``x``           per pair, item  1[i and j both say l] (1 - rho[k = l]): both wrong, and alike
T, mean, var     ``shared``...   pairs           sums over common items of X, of E X and of Var X under the model
===============  ==============  ==============  ======================================================================

The p-value is the tail of a scaled Poisson distribution with that mean and variance. Where there are at least ``MANY``
pairs they are shifted and scaled so that their middle is no wider than it should be (Efron 2004). Groups grow from the
pairs found by average linkage, so that one chance link does not join two.

When it fails: with two votes per item a hard item looks like collusion. A ring that has captured the consensus makes
the honest look like the ring (``captured`` says when to suspect it): run
:func:`~crowdwise.trust.dependent_groups.find_colluders` first, and hand over the consensus without the ring.

References: J. Whitehill et al., NIPS 2009 (GLAD), for ease as a factor on log-odds; docs/reliability-colluders.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.core.annotator_groups import PairBlocks, cut, tree
from crowdwise.core.collusion import paired_votes
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, Fraction, RandomState, checked
from crowdwise.core.intervals import Z
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, sample_items
from crowdwise.core.shrinkage import learned_prior
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.kernels import reference
from crowdwise.trust.evidence import adjusted
from crowdwise.trust.result_tables import AnnotatorPairs

GROUPS = 10
"""The most groups that are set apart, one after the other."""
MANY = 50
"""Pairs of annotators from which on their middle shows how wide the null is."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SharedMistakes(AnnotatorPairs):
    """Which annotators make the same mistakes, more than chance, hard items and favourite wrong labels explain.

    Attributes
    ----------
    names, score, flagged, group, partner
        Per annotator: the name; from 0 to 1 how much of their mistakes they share with the partner that stands out
        most, times one minus its adjusted p-value; whether any pair was found; the group (-1: none); that partner.
    left, right
        The two annotators of each pair with common items (positions in ``names``).
    items, shared, expected
        Per pair: common items, mistakes in common, and how many the model expects.
    strength, low, high
        (shared - expected) / (mean number of mistakes - expected), with its 95 % interval: 1 if all are in common.
    p_value, q_value
        Per pair: the p-value, and adjusted by Benjamini and Hochberg's procedure.
    captured
        Whether a group found has half of the annotators or more: then the consensus may be that of the others.
    """

    partner: Ints
    shared: Floats
    expected: Floats
    strength: Floats
    q_value: Floats

    @property
    def captured(self) -> bool:
        return any(2 * len(members) >= len(self.names) for members in self.groups)

    @property
    def edges(self) -> list[tuple[Any, Any, float]]:
        """The pairs found, as (annotator, annotator, strength): the graph to draw."""
        return self._edges(self.q_value <= self.level, self.strength)

    def _columns(self, table: str) -> dict[str, Any]:
        if table == "annotators":
            names = self.names.astype(object)
            partner = np.array([names[p] if p >= 0 else None for p in self.partner.tolist()], dtype=object)
            columns = self._of_annotators()
            at = _most_surprising(len(self.names), self.left, self.right, self.p_value)
            for name in ("strength", "low", "high", "q_value"):
                columns[name] = np.where(at >= 0, getattr(self, name)[at], np.nan) if len(self.left) else at * np.nan
            return {**columns, "partner": partner}
        named = ("items", "shared", "expected", "strength", "low", "high", "p_value", "q_value")
        _, columns = self._of_pairs(self.strength, *named)
        return {**columns, "found": columns["q_value"] <= self.level}


def _most_surprising(M: int, left: Ints, right: Ints, p: Floats) -> Ints:
    """Per annotator the pair with the smallest p-value, -1 for an annotator without pairs."""
    best = np.full(M, -1, dtype=np.int64)
    if not len(p):
        return best
    order = np.argsort(-p, kind="stable")
    best[left[order]] = order
    other = np.full(M, -1, dtype=np.int64)
    other[right[order]] = order
    pick = (other >= 0) & ((best < 0) | (np.where(other >= 0, p[other], 2.0) < np.where(best >= 0, p[best], 2.0)))
    return np.where(pick, other, best)


@checked
def shared_mistakes(
    votes: Votes, consensus: Any, *, level: Fraction = 0.05, max_pairs: Count = 2_000_000, random_state: RandomState = 0
) -> SharedMistakes:
    """Pairs and groups of annotators who make the same mistakes more often than chance and hard items explain.

    Parameters
    ----------
    votes
        The votes. Their weights are not looked at: a vote is a vote.
    consensus
        Of these votes; or its N x K posterior.
    level
        The false discovery rate: the expected share of false ones among the pairs found. In a crowd where no annotator
        depends on anybody, the probability of finding any.
    max_pairs
        With more pairs of votes than this, a sample of the items is looked at.
    random_state
        The seed of that sample.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.colluders(500, n_annotators=15, share=0.2, p_corr=0.5, random_state=0)
    >>> found = shared_mistakes(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    >>> bool((found.flagged == crowd.parameters["colluders"]).all())
    True
    """
    q = consensus.independent_posterior if isinstance(consensus, Consensus) else np.asarray(consensus, dtype=np.float64)
    if q.shape != (len(votes), votes.n_classes):
        raise InputError(
            f"The consensus has {q.shape[0] if q.ndim else 0:,} items and the votes {len(votes):,}, or other classes: "
            "hand over the consensus of these very votes."
        )
    M, size = votes.n_annotators, np.diff(votes.indptr)
    rows = sample_items(size * (size - 1) // 2, max_pairs, random_state)
    apart = np.full(M, -1, dtype=np.int64)  # groups found so far: their members count as one
    for step in range(GROUPS + 1):
        weight = np.ones(M)
        weight[apart >= 0] = 1.0 / np.bincount(apart[apart >= 0])[apart[apart >= 0]] if (apart >= 0).any() else 1.0
        log_p, _, logit = null_model(votes, q, weight)
        found = moments(votes, log_p, logit, weight, rows)
        i, j = found["left"].astype(np.int64), found["right"].astype(np.int64)
        p, surprise = _p_values(found["shared"], found["expected"], found["variance"])
        adjusted_p = adjusted(p)
        edge = adjusted_p <= level
        flagged, group = _groups(M, i, j, surprise, edge)
        at = np.flatnonzero(edge & ~((apart[i] >= 0) & (apart[i] == apart[j])))
        if not len(at) or step == GROUPS:
            break
        top = at[np.argmax(surprise[at])]  # the group around the pair that stands out most, of those not set apart
        together = group[i[top]] >= 0 and group[i[top]] == group[j[top]]
        apart[(group == group[i[top]]) & together] = step
        apart[[i[top], j[top]]] = step
    T, mean, variance = found["shared"], found["expected"], found["variance"]
    room = np.maximum(found["mistakes"] / 2.0 - mean, 1e-9)
    strength, reach = (T - mean) / room, Z * np.sqrt(variance) / room
    best = _most_surprising(M, i, j, p)
    some = best >= 0
    score, partner = np.zeros(M), np.full(M, -1, dtype=np.int64)
    score[some] = ((1.0 - adjusted_p) * np.clip(strength, 0.0, 1.0))[best[some]]
    partner[some] = (i + j)[best[some]] - np.flatnonzero(some)
    return SharedMistakes(
        names=votes.annotators, score=score, flagged=flagged, group=group, partner=partner, left=i, right=j,
        items=found["items"].astype(np.int64), shared=T, expected=mean, strength=np.clip(strength, -1.0, 1.0),
        low=np.clip(strength - reach, -1.0, 1.0), high=np.clip(strength + reach, -1.0, 1.0), p_value=p,
        q_value=adjusted_p, level=float(level), kind=votes.kind,
    )  # fmt: skip


def _p_values(T: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """p-values and how far each pair stands out (a Normal quantile), with many pairs relative to their middle."""
    from scipy.special import ndtr, ndtri

    p = tail(T, mean, variance)
    surprise = -ndtri(np.clip(p, 1e-300, 1.0 - 1e-12))
    if len(p) < MANY:
        return p, surprise
    middle = float(np.median(surprise))
    spread = max(1.0, 1.4826 * float(np.median(np.abs(surprise - middle))))
    surprise = (surprise - max(middle, 0.0)) / spread
    return np.asarray(ndtr(-surprise)), surprise


def _groups(M: int, i: Ints, j: Ints, surprise: Floats, edge: Any) -> tuple[Any, Ints]:
    """Who is in a pair found, and groups of those by average linkage of how much pairs stand out; -1 for the others."""
    flagged, group = np.zeros(M, dtype=bool), np.full(M, -1, dtype=np.int64)
    flagged[i[edge]] = flagged[j[edge]] = True
    if edge.any():
        inside = flagged[i] & flagged[j]
        pairs = PairBlocks(i[inside], j[inside], np.ones(int(inside.sum())), np.zeros((int(inside.sum()), 1, 1)), M)
        found = cut(tree(pairs, surprise[inside], float(surprise[edge].min()) - 1e-9), M, 1)
        group[flagged] = np.where((np.bincount(found) > 1)[found[flagged]], found[flagged], -1)
    return flagged, group


EASE = np.array([0.1, 0.35, 0.7, 1.1, 1.8, 3.0])
"""tau: from items on which everybody guesses to items on which hardly anybody errs."""
ROUNDS, HELD = 25, 10
"""Steps of EM, and how many of them hold the truths at the consensus while ease and tendencies converge."""
CHUNK = 30_000
"""Pairs of votes worked on at once, where the table of one (labels x states) is small..."""
CELLS = 2**22
"""...and else as many as have so many cells together: with K classes there are K x 6 K for each pair."""


def null_model(votes: Votes, q: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """log p[m * K + l, (k, tau)], the log shares of (k, tau), and what its votes say of each item (N x (k, tau)).

    EM from the truths of a consensus, which are held for the first ``HELD`` rounds. ``weight`` is what a vote of each
    annotator counts for the truth of an item: members of a group that was found count as one.
    """
    M, K, D = votes.n_annotators, votes.n_classes, len(EASE)
    cell, w = votes.annotator.astype(np.int64) * K + votes.label, weight[votes.annotator]
    counts = reference.scatter(votes.indptr, cell, np.empty(0), q, M * K).reshape(M, K, K)
    pseudo = learned_prior(counts)  # [m, l, k]
    beta = safe_log(normalise(counts + pseudo, axis=1))
    share = np.outer(normalise(q.sum(axis=0) + 1.0 / K, axis=0), np.full(D, 1.0 / D))
    for step in range(ROUNDS):
        logit = reference.logits(votes.indptr, cell, w, tempered(beta), np.log(share).reshape(1, -1))
        r = np.exp(logit - logit.max(axis=1, keepdims=True)).reshape(-1, K, D)
        if step < HELD:
            r *= np.divide(q, r.sum(axis=2), out=np.zeros_like(q), where=r.sum(axis=2) > 0)[:, :, None]
        r /= np.maximum(r.sum(axis=(1, 2), keepdims=True), 1e-300)
        mass = r.sum(axis=0) + 1.0 / (K * D)
        share = mass / mass.sum()
        c = reference.scatter(votes.indptr, cell, np.empty(0), r.reshape(-1, K * D), M * K).reshape(M, K, K, D)
        beta = ascended(beta, c, pseudo)
    log_p, log_share = tempered(beta), np.log(share).ravel()
    return log_p, log_share, reference.logits(votes.indptr, cell, w, log_p, log_share[None])


def tempered(beta: Floats) -> Floats:
    """log p[m * K + l, (k, tau)] = tau beta[m, l, k] - log sum_l exp( tau beta[m, l, k] )."""
    M, K, _ = beta.shape
    x = beta[:, :, :, None] * EASE
    top = x.max(axis=1, keepdims=True)
    x = x - top - np.log(np.exp(x - top).sum(axis=1, keepdims=True))
    return np.asarray(x.reshape(M * K, K * len(EASE)))


def ascended(beta: Floats, c: Floats, pseudo: Floats, steps: int = 3) -> Floats:
    """beta with a higher sum c log p + pseudo log p(tau = 1); Boehning's bound makes every step safe."""
    n, b = c.sum(axis=1, keepdims=True), pseudo.sum(axis=1, keepdims=True)
    bound = 0.5 * ((n * EASE**2).sum(axis=3) + b)
    for _ in range(steps):
        p = np.exp(tempered(beta)).reshape(c.shape)
        top = beta.max(axis=1, keepdims=True)
        p1 = np.exp(beta - top)
        p1 /= p1.sum(axis=1, keepdims=True)
        slope = (EASE * (c - n * p)).sum(axis=3) + pseudo - b * p1
        beta = beta + slope / np.maximum(bound, 1e-9)
        beta = (
            beta
            - np.log(np.exp(beta - beta.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
            - beta.max(axis=1, keepdims=True)
        )
    return beta


def moments(votes: Votes, log_p: Floats, logit: Floats, weight: Floats, rows: Ints) -> dict[str, Floats]:
    """Sums over common items for every pair of annotators: X, its mean and variance, items and mistakes of both."""
    M, K = votes.n_annotators, votes.n_classes
    S = log_p.shape[1]
    cell = votes.annotator.astype(np.int64) * K + votes.label
    of = weight[votes.annotator]
    p = np.exp(log_p).reshape(M, K, S)
    first, second = paired_votes(votes.indptr, rows)
    item = votes.item
    keys, sums, waiting = [], [], 0
    step = min(CHUNK, max(CELLS // (K * S), 1))
    for lo in range(0, len(first), step):
        a, b = first[lo : lo + step], second[lo : lo + step]
        different = votes.annotator[a] != votes.annotator[b]
        a, b = a[different], b[different]
        rho = logit[item[a]] - of[a, None] * log_p[cell[a]] - of[b, None] * log_p[cell[b]]
        rho = np.exp(rho - rho.max(axis=1, keepdims=True))
        rho /= rho.sum(axis=1, keepdims=True)
        wrong = 1.0 - rho.reshape(len(a), K, -1).sum(axis=2)
        i, j = votes.annotator[a].astype(np.int64), votes.annotator[b].astype(np.int64)
        both = np.einsum("bls,bls,bs->bl", p[i], p[j], rho)
        at = np.arange(len(a))
        of_a, of_b = wrong[at, votes.label[a]], wrong[at, votes.label[b]]
        x = np.where(votes.label[a] == votes.label[b], of_a, 0.0)
        mean = (both * wrong).sum(axis=1)
        var = (both * wrong**2).sum(axis=1) - mean**2
        keys.append(np.minimum(i, j) * M + np.maximum(i, j))
        sums.append(np.stack([x, mean, np.maximum(var, 0.0), np.ones(len(a)), of_a + of_b], axis=1))
        waiting += len(a)
        if waiting > 50 * CHUNK:  # fold what has been seen so far, so that memory grows with pairs of annotators
            keys, sums = _folded(keys, sums)
            waiting = 0
    keys, sums = _folded(keys, sums)
    names = ("shared", "expected", "variance", "items", "mistakes")
    out: dict[str, Floats] = {name: sums[0][:, c] for c, name in enumerate(names)}
    return {"left": keys[0] // M, "right": keys[0] % M, **out}


def _folded(keys: list[Any], sums: list[Any]) -> tuple[list[Any], list[Any]]:
    if not keys:
        return [np.empty(0, dtype=np.int64)], [np.empty((0, 5))]
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    table = np.concatenate(sums)
    total = np.column_stack([np.bincount(place, weights=column, minlength=len(key)) for column in table.T])
    return [key], [total]


def tail(shared: Floats, mean: Floats, variance: Floats) -> Floats:
    """P(a scaled Poisson variable with this mean and variance is at least so large)."""
    from scipy.special import gammainc

    scale = np.divide(variance, mean, out=np.ones_like(mean), where=mean > 0)
    scale = np.maximum(scale, 1e-12)
    p = np.asarray(gammainc(np.maximum(shared / scale, 1e-300), np.maximum(mean / scale, 1e-300)))
    return np.where((shared <= 0) | (variance <= 0), 1.0, p)
