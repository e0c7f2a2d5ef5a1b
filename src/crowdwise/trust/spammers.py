"""Spammers: annotators whose answers do not depend on the item, found in three ways.

All three ask how much an annotator knows and compare it with one and the same bar: somebody who knows the answer
with probability ``skill`` and guesses evenly otherwise. Below the bar is a spammer; constant labellers are, too, and
people who answer backwards are not (their votes tell as much as right ones).

=======================  ======================================================  ==================================
detector                 what it measures, from                                  value at the bar (skill s)
=======================  ======================================================  ==================================
``capacity_spammers``    bits per vote, from the counts of a consensus           log2 K - H(p, (1-p)/(K-1), ...)
``raykar_yu_spammers``   1/(K(K-1)) sum_c<c' |theta[c] - theta[c']|^2, the same  s^2
``covariance_spammers``  covariance with the other annotators, from votes        s
=======================  ======================================================  ==================================

Here p = s + (1 - s) / K. Each gives every annotator a ``score`` between 0 and 1, the probability of being below the
bar, and the verdict ``spammer`` where the score is at least 1 - ``level``: somebody at or above the bar is called a
spammer with a probability of at most ``level``. Without the evidence for it there is no such verdict: with few votes
it is ``unclear``.

Capacity and Raykar-Yu. theta[m, k] is drawn from its posterior Dirichlet(c[m, k] + 1/2), with counts reduced to as
many as they are worth with their truth in doubt (Louis' principle, as in the intervals of confusion matrices). Both
measures are convex, so that noise raises them, once in the counts and once more in the draws; the mean rise of
the draws is taken off twice.

Covariance. x[m] is the one-hot vote less its mean over m's votes. For independent annotators
E <x[m], x[j]> = <G_m, G_j> with G_m = theta[m] less its mean row, weighted with the root of the class shares: 0 for
a spammer, and s times one and the same matrix for one-coin annotators. So the covariances have low rank beside the
diagonal, and the rows v[m] of the factor are near 0 for spammers.

- ``rule="test"``: v of rank one, by least squares weighted with the number of common items; s = v / sqrt(1 - sum
  pi^2), with the standard error that the own votes leave, compared with the bar.
- ``rule="clusters"``: the published algorithm. C = V V' + D by principal factors, two clusters of the rows of V, the
  one nearer 0 goes. Published with rank K, it has a trap: a factor settles on a single annotator whose D would
  have to be negative (a Heywood case), and all others look like spammers. So D is held non-negative, and the rank is
  the largest up to K at which D is positive for everybody, the usual sign that there are no factors too many; at
  most what M annotators identify (Ledermann's bound (M - r)^2 >= M + r), and at least one. **It always splits the
  crowd**, an honest one too, and states no false-positive rate: it is for crowds known to hold many spammers.

When they fail: the first two believe the consensus; where that is wrong about most items, so are they. Covariances
need common items, take annotators who copy each other for skilled, and see no knowledge that nobody shares.

References: Raykar and Yu 2012; Traganitis and Giannakis 2021 (ICASSP); Blahut 1972 and Arimoto 1972.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import kernels
from crowdwise.core.consensus import Consensus
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.data.frames import make_frame
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError

__all__ = [
    "Spammers",
    "capacity_spammers",
    "channel_capacity",
    "covariance_spammers",
    "raykar_yu_score",
    "raykar_yu_spammers",
]

JEFFREYS = 0.5
DRAWN = 1e-4
"""How exact the capacity of a draw is, in bits: far less than draws differ."""
CHUNK = 2**22
MOST_PAIRS = 3e8
"""The most pairs of votes on common items that covariances are made from."""
HEYWOOD = 1e-3
"""D below this share of the variance counts as none."""
MOST_DENSE = 1500
"""The most annotators whose covariances are decomposed as a dense matrix."""

# -------------------------------------------------------------------- the maths: what one annotator knows


def channel_capacity(theta: Floats, tol: float = 1e-7, max_iter: int = 2000) -> Floats:
    """The capacity in bits of B x K x L channels, by Blahut's and Arimoto's iteration.

    p[k] <- p[k] 2^(a D[k]) / Z with D[k] = sum_l theta[k, l] log2( theta[k, l] / sum_k p theta ). The capacity is
    between sum p D and max D, and a channel is done when they are ``tol`` apart. a = 1 never lowers sum p D; longer
    steps, which channels of small capacity need, are taken as long as they raise it.

    Examples
    --------
    >>> import numpy as np
    >>> channel_capacity(np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.3, 0.7], [0.3, 0.7]]])).round(3).tolist()
    [0.531, 0.0]
    """
    B, K, _ = theta.shape
    own = (theta * np.log2(np.maximum(theta, 1e-300))).sum(axis=2)
    found, left = np.zeros(B), np.arange(B)

    def gains(p: Floats) -> Floats:
        mixed = np.matmul(p[:, None, :], theta)[:, 0]
        return np.asarray(own - np.matmul(theta, np.log2(np.maximum(mixed, 1e-300))[:, :, None])[:, :, 0])

    p, step = np.full((B, K), 1.0 / K), np.ones(B)
    D = gains(p)
    value = (p * D).sum(axis=1)
    for _ in range(max_iter):
        top = D.max(axis=1)
        going = top - value > tol
        found[left] = value
        if not going.any():
            break
        if going.sum() < 0.8 * len(left):
            theta, own, left, p, step = theta[going], own[going], left[going], p[going], step[going]
            D, value, top = D[going], value[going], top[going]
        tried = p * np.exp2(step[:, None] * (D - top[:, None]))
        tried /= tried.sum(axis=1, keepdims=True)
        D_tried = gains(tried)
        value_tried = (tried * D_tried).sum(axis=1)
        good = (value_tried >= value) | (step <= 1.0)
        p, D = np.where(good[:, None], tried, p), np.where(good[:, None], D_tried, D)
        value = np.where(good, value_tried, value)
        step = np.where(good, 1.5 * step, np.maximum(step / 4.0, 1.0))
    found[left] = value
    return np.maximum(found, 0.0)


def raykar_yu_score(theta: Floats) -> Floats:
    """1/(K(K-1)) sum_{c<c'} sum_l (theta[c, l] - theta[c', l])^2 of B x K x K matrices: 0 a spammer, 1 perfect.

    Two classes: (sensitivity + specificity - 1)^2. It equals sum_c |theta[c] - mean row|^2 / (K - 1).

    Examples
    --------
    >>> import numpy as np
    >>> float(raykar_yu_score(np.array([[[0.9, 0.1], [0.3, 0.7]]]))[0].round(3))
    0.36
    """
    K = theta.shape[1]
    return np.asarray(((theta - theta.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2)) / (K - 1.0))


def one_coin_capacity(skill: float, K: int) -> float:
    """Bits of somebody who knows the answer with probability ``skill`` and guesses evenly otherwise."""
    theta = skill * np.eye(K) + (1.0 - skill) / K
    return float(channel_capacity(theta[None])[0])


def effective_counts(counts: Floats, spread: Floats) -> Floats:
    """c[m, k, l] times the share of each row (m, k) that is worth a known truth.

    For a share p the missing information is Var(sum 1[truth = k] (1[label = l] - p)) / p(1-p); a row takes the sum
    over l of both, so n_eff = n - sum_l Var / sum_l p(1-p).
    """
    total = counts.sum(axis=2, keepdims=True)
    K = counts.shape[2]
    p = (counts + 1.0 / K) / (total + 1.0)
    rest = spread.sum(axis=2, keepdims=True) - spread
    missing = ((1.0 - p) ** 2 * spread + p**2 * rest).sum(axis=2, keepdims=True)
    room = np.maximum((p * (1.0 - p)).sum(axis=2, keepdims=True), 1e-12)
    worth = np.clip(total - missing / room, 0.0, total)
    return np.asarray(counts * np.divide(worth, total, out=np.zeros_like(total), where=total > 0))


def posterior_of(
    measure: Callable[[Floats], Floats], counts: Floats, top: float, draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """A measure of each annotator's matrix and ``draws`` of it (M x draws), the rise by noise taken off."""
    M, K, _ = counts.shape
    alpha = counts + JEFFREYS
    value = measure(normalise(alpha, axis=2))
    drawn = np.empty((M, draws))
    step = max(1, CHUNK // (draws * K * K))
    for at in range(0, M, step):
        part = alpha[at : at + step]
        # As float32 would do, but gamma draws of small shapes need the range.
        theta = rng.standard_gamma(np.broadcast_to(part[:, None], (len(part), draws, K, K)))
        theta /= np.maximum(theta.sum(axis=3, keepdims=True), 1e-300)
        drawn[at : at + step] = measure(theta.reshape(-1, K, K)).reshape(len(part), draws)
    return value, drawn


# -------------------------------------------------------------------- the maths: covariances


@dataclass(frozen=True)
class Covariances:
    """n and c over pairs with common items, as M x M sparse matrices without a diagonal; means and variances."""

    n: Any
    c: Any
    mean: Floats
    variance: Floats


def covariances(votes: Votes) -> Covariances:
    """c[m, j] = sum over common items of <x[m], x[j]> / n[m, j], x the one-hot vote less its mean."""
    from scipy.sparse import csr_matrix

    M, K = votes.n_annotators, votes.n_classes
    size = np.diff(votes.indptr).astype(np.float64)
    if (size**2).sum() > MOST_PAIRS:
        raise InputError(
            f"There are {(size**2).sum() / 2:,.0f} pairs of votes on common items, too many for covariances. "
            "Use some of the items, votes[:10000], or a detector that is handed a consensus."
        )
    part = Part.of(votes)
    mean = normalise(
        np.bincount(part.cell, weights=votes.weight, minlength=M * K).reshape(M, K).astype(np.float64), axis=1
    )
    rows, col, value = kernels.cooccurrence(votes.indptr, part.cell, part.weight, M * K)
    row = np.repeat(np.arange(M * K), np.diff(rows))
    m, j, k, h = row // K, col // K, row % K, col % K
    keep = m != j
    m, j, k, h, value = m[keep], j[keep], k[keep], h[keep], value[keep]
    pair, place = np.unique(m.astype(np.int64) * M + j, return_inverse=True)
    m_of, j_of = pair // M, pair % M
    both = np.einsum("pk,pk->p", mean[m_of], mean[j_of])
    n = np.bincount(place, weights=value, minlength=len(pair))
    total = np.bincount(place, weights=value * ((k == h) - mean[m, h] - mean[j, k]), minlength=len(pair)) + both * n
    shape = (M, M)
    return Covariances(
        csr_matrix((n, (m_of, j_of)), shape=shape),
        csr_matrix((np.divide(total, n, out=np.zeros_like(n), where=n > 0), (m_of, j_of)), shape=shape),
        mean,
        1.0 - (mean**2).sum(axis=1),
    )


def rank_one(found: Covariances, max_iter: int = 500, tol: float = 1e-10) -> Floats:
    """v with v_m v_j = c_mj off the diagonal, by least squares weighted with n, and v_m^2 <= the variance of m.

    Annotators in groups without common items are solved together; the sign of each group is the one in which most
    of its votes are of positive v.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    n, bound = found.n, np.sqrt(found.variance)
    nc = csr_matrix((n.data * found.c.data, n.indices, n.indptr), shape=n.shape)
    degree = np.sqrt(np.maximum(np.asarray(n.sum(axis=1)).ravel(), 1e-12))
    groups, group = connected_components(n, directed=False)
    e = degree.copy()
    for _ in range(200):  # the top eigenvector of the scaled covariances of each group, from everybody alike
        e = (nc @ (e / degree)) / degree + e
        e /= np.sqrt(np.maximum(np.bincount(group, weights=e**2, minlength=groups), 1e-300))[group]
    v = e / degree
    top = np.bincount(group, weights=v * (nc @ v), minlength=groups)
    low = np.bincount(group, weights=v**2 * (n @ v**2), minlength=groups)
    v = np.clip(v * np.sqrt(np.maximum(top, 0.0) / np.maximum(low, 1e-300))[group], -bound, bound)

    def half(v: Floats) -> Floats:
        above, below = nc @ v, n @ v**2
        return np.asarray(
            np.clip(np.divide(above, below, out=np.zeros_like(above), where=below > 1e-12), -bound, bound)
        )

    u = v
    for _ in range(max_iter):
        before = v
        u = half(v)
        v = half(u)
        if np.abs(v - before).max() <= tol:
            break
    v = np.sign(u + v) * np.sqrt(np.maximum(u * v, 0.0))
    support = np.bincount(group, weights=v * degree**2, minlength=groups)
    return np.asarray(v * np.where(support >= 0.0, 1.0, -1.0)[group])


def skill_of(votes: Votes, found: Covariances, v: Floats, prior: Floats | None) -> tuple[Floats, Floats]:
    """s = v / sqrt(1 - sum pi^2) and its standard error, the other annotators held; nan and inf where unknown.

    v_m is a ratio of sums over m's votes: the own centred vote times what the others say, over the sum of their v^2.
    A mean over few own votes takes a part 1/n of the covariance away, which is put back. The variance is the larger
    of the one observed and that of somebody who answers at random, whose label shares are their own and one vote of
    the crowd's, on items like all others: a few identical votes are no proof of anything.
    """
    M, K = votes.n_annotators, votes.n_classes
    item, who, w = votes.item, votes.annotator, votes.weights
    x = -found.mean[who]
    x[np.arange(len(x)), votes.label] += 1.0
    vw = v[who] * w
    said = np.stack([np.bincount(item, weights=vw * x[:, k], minlength=len(votes)) for k in range(K)], axis=1)
    squares = np.bincount(item, weights=v[who] ** 2 * w, minlength=len(votes))
    others, rest = said[item] - vw[:, None] * x, squares[item] - v[who] ** 2 * w
    product, loud = np.einsum("sk,sk->s", x, others), (others**2).sum(axis=1)

    def total(z: Floats) -> Floats:
        return np.bincount(who, weights=z, minlength=M).astype(np.float64)

    below = np.maximum(total(w * rest), 1e-12)
    own = total(w * product) / below
    n = total((rest > 0).astype(np.float64))
    seen = total((w * (product - own[who] * rest)) ** 2)
    share = normalise(np.bincount(votes.label, weights=votes.weight, minlength=K).astype(np.float64), axis=0)
    counted = total(w)
    smooth = (found.mean * counted[:, None] + share) / (counted[:, None] + 1.0)
    guessing = (1.0 - (smooth**2).sum(axis=1)) / max(K - 1.0, 1.0)
    typical = float(np.average(loud, weights=w)) if len(loud) else 0.0
    random = guessing * np.maximum(total(w**2 * loud), typical * total(w**2))
    back = np.divide(n, n - 1.0, out=np.full(M, np.nan), where=n > 1.5)
    if prior is None:
        named = np.bincount(item * K + votes.label, weights=np.maximum(vw, 0.0), minlength=len(votes) * K)
        label = named.reshape(-1, K)[np.diff(votes.indptr) > 0].argmax(axis=1)
        prior = normalise(np.bincount(label, minlength=K).astype(np.float64), axis=0)
    scale = np.sqrt(max(1.0 - float((prior**2).sum()), 1e-6))
    skill = own * back / scale
    error = np.sqrt(np.maximum(seen * np.where(n > 1.5, back, 1.0), random)) * back / below / scale
    known = (n > 1.5) & (below > 1e-9)
    return np.where(known, skill, np.nan), np.where(known, error, np.inf)


def principal_factors(found: Covariances, rank: int, max_iter: int = 500, tol: float = 1e-9) -> Floats:
    """V (M x rank) with C = V V' + D, 0 <= D <= the variances; pairs without common items have covariance 0."""
    from scipy.sparse import diags

    M = len(found.variance)
    dense = M <= MOST_DENSE or rank >= M - 1
    C = found.c.toarray() if dense else found.c
    common = found.variance / 2.0
    V = np.zeros((M, rank))
    for _ in range(max_iter):
        if dense:
            C[np.diag_indices(M)] = common
            value, vector = np.linalg.eigh(C)
            value, vector = value[-rank:], vector[:, -rank:]
        else:
            from scipy.sparse.linalg import eigsh

            value, vector = eigsh(C + diags(common), k=rank, which="LA", v0=np.sqrt(found.variance + 1e-9))
        V = vector * np.sqrt(np.maximum(value, 0.0))
        size = (V**2).sum(axis=1)
        new = np.minimum(size, found.variance)
        done = np.abs(new - common).max() <= tol
        common = new
        if done:
            break
    size = (V**2).sum(axis=1)
    return np.asarray(
        V * np.sqrt(np.divide(common, size, out=np.zeros_like(size), where=size > 1e-300))[:, None], dtype=np.float64
    )


def proper_factors(found: Covariances, rank: int) -> Floats:
    """The principal factors of the largest rank, from ``rank`` down to one, that leaves everybody a positive D."""
    for r in range(rank, 0, -1):
        V = principal_factors(found, r)
        if ((V**2).sum(axis=1) < (1.0 - HEYWOOD) * found.variance)[found.variance > 1e-9].all():
            break
    return V


def nearer_zero(V: Floats, starts: int = 20, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Two-means of the rows: who is in the cluster whose centre is nearer 0. Best of several starts.

    The first start is 0 and the longest row, the others pairs of rows.
    """
    M = len(V)
    rng = np.random.default_rng(seed)
    begin = [np.stack([np.zeros(V.shape[1]), V[(V**2).sum(axis=1).argmax()]])]
    begin += [V[rng.choice(M, 2, replace=False)] for _ in range(starts)]
    best, kept = np.inf, np.zeros(M, dtype=bool)
    for centre in begin:
        for _ in range(200):
            far = ((V[:, None] - centre[None]) ** 2).sum(axis=2)
            side = far[:, 1] < far[:, 0]
            if side.all() or not side.any():
                break
            new = np.stack([V[~side].mean(axis=0), V[side].mean(axis=0)])
            if np.array_equal(new, centre):
                break
            centre = new
        loss = float(far.min(axis=1).sum())
        if loss < best - 1e-12:
            near = int((centre**2).sum(axis=1).argmin())
            best, kept = loss, side == bool(near)
    return kept


def identified_rank(M: int, K: int) -> int:
    """K, or the most factors that the covariances of M annotators identify: (M - r)^2 >= M + r (Ledermann)."""
    r = 1
    while r < K and (M - r - 1) ** 2 >= M + r + 1 and r + 1 < M:
        r += 1
    return r


# -------------------------------------------------------------------- the result


@dataclass(frozen=True)
class Spammers:
    """What a detector says of every annotator.

    Attributes
    ----------
    detector, rule
        How it was found.
    annotators, votes
        Names, and numbers of votes.
    score
        M: the probability of knowing less than the bar, from 0 to 1.
    verdict
        M: ``"spammer"`` (score at least 1 - ``level``), ``"honest"`` (at most ``level``) or ``"unclear"``.
    level
        The probability, at most, with which somebody at or above the bar is called a spammer; ``None`` for
        ``rule="clusters"``, which states none.
    skill
        The bar: the skill under which somebody is a spammer.
    columns
        The measure with its interval (``NAME``, ``NAME_low``, ``NAME_high``).
    """

    detector: str
    rule: str
    annotators: npt.NDArray[Any]
    votes: Ints
    score: Floats
    verdict: npt.NDArray[Any]
    level: float | None
    skill: float
    columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    kind: str = "polars"

    @property
    def spammer(self) -> npt.NDArray[np.bool_]:
        """M: who is called a spammer."""
        return np.asarray(self.verdict == "spammer", dtype=bool)

    @property
    def names(self) -> list[Any]:
        """The spammers by name."""
        return list(self.annotators[self.spammer].tolist())

    def prune(self, votes: Votes) -> Votes:
        """The votes without those of the spammers."""
        there = set(votes.annotators.tolist())
        gone = [name for name in self.names if name in there]
        if len(gone) == votes.n_annotators:
            raise InputError("All annotators are spammers by this verdict: nobody would be left.")
        return votes.without(gone) if gone else votes

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per annotator: annotator, votes, score, verdict, and the measure with its interval."""
        columns = {"annotator": self.annotators, "votes": self.votes, "score": self.score, "verdict": self.verdict}
        return make_frame(columns | self.columns, kind or self.kind)

    def __repr__(self) -> str:
        found = f"{int(self.spammer.sum())} of {len(self.annotators)} annotators are spammers"
        rate = "no stated rate" if self.level is None else f"false-positive rate {self.level:g}"
        return f"Spammers({self.detector}, {self.rule}: {found}; {rate})"


# -------------------------------------------------------------------- the detectors


def capacity_spammers(
    consensus: Consensus, *, skill: float = 0.2, level: float = 0.05, draws: int = 200, random_state: int = 0
) -> Spammers:
    """Spammers by channel capacity: how many bits of the truth one vote of theirs can carry.

    Parameters
    ----------
    consensus
        The result of a fit with a posterior that can be believed (confusion matrices, say; not vote shares).
    skill
        The bar: somebody is a spammer who tells less than a person who knows the answer with this probability and
        guesses otherwise. The default, one in five, is an accuracy of 0.6 on two classes and 0.4 on four.
    level
        The probability, at most, with which somebody at or above the bar is called a spammer.
    draws, random_state
        How many draws of every confusion matrix, and their seed.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.spammers import capacity_spammers
    >>> crowd = cw.simulate.hammer_spammer(600, n_annotators=10, n_classes=3, accuracy=0.8, random_state=0)
    >>> found = capacity_spammers(cw.aggregate(crowd.votes, "dawid-skene"))
    >>> bool((found.spammer == crowd.parameters["spammers"]).all())
    True
    """
    K = len(consensus.classes)
    bar = one_coin_capacity(_checked(skill, level, draws), K)

    def bits(theta: Floats) -> Floats:
        return channel_capacity(theta, tol=DRAWN, max_iter=300)  # within log2(K) / 300 at the very worst

    return _by_posterior(consensus, "capacity", bits, bar, float(np.log2(K)), skill, level, draws, random_state)


def raykar_yu_spammers(
    consensus: Consensus, *, skill: float = 0.2, level: float = 0.05, draws: int = 200, random_state: int = 0
) -> Spammers:
    """Spammers by Raykar's and Yu's score: how far the rows of the confusion matrix are apart.

    The column ``informativeness`` is their score, 0 for a spammer and 1 for somebody perfect (or perfectly wrong);
    skill^2 for a one-coin annotator. Parameters as in :func:`capacity_spammers`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.spammers import raykar_yu_spammers
    >>> crowd = cw.simulate.hammer_spammer(600, n_annotators=10, n_classes=3, accuracy=0.8, random_state=0)
    >>> found = raykar_yu_spammers(cw.aggregate(crowd.votes, "dawid-skene"))
    >>> found.prune(crowd.votes).n_annotators
    5
    """
    bar = _checked(skill, level, draws) ** 2
    return _by_posterior(consensus, "informativeness", raykar_yu_score, bar, 1.0, skill, level, draws, random_state)


def _by_posterior(
    consensus: Consensus, name: str, measure: Callable[[Floats], Floats], bar: float, top: float,
    skill: float, level: float, draws: int, random_state: int,
) -> Spammers:  # fmt: skip
    if not isinstance(consensus, Consensus):
        raise InputError(f"Expected a Consensus and found {type(consensus).__name__}: pass aggregate(votes, ...).")
    counts, spread = consensus._evidence()
    rng = np.random.default_rng(random_state)
    value, drawn = posterior_of(measure, effective_counts(counts, spread), top, draws, rng)
    rise = np.maximum(drawn.mean(axis=1) - value, 0.0)
    low, high = np.maximum(np.quantile(drawn, 0.025, axis=1) - 2.0 * rise, 0.0), np.quantile(drawn, 0.975, axis=1)
    value = np.maximum(value - rise, 0.0)
    score = (np.count_nonzero(drawn < bar, axis=1) + 0.5) / (draws + 1.0)
    return Spammers(
        name, "test", consensus.annotator_names, consensus.votes_per_annotator, score, _verdicts(score, level), level,
        skill, {name: value, f"{name}_low": np.minimum(low, value), f"{name}_high": np.maximum(high, value)},
        consensus.kind,
    )  # fmt: skip


def covariance_spammers(
    votes: Votes,
    *,
    rule: str = "test",
    skill: float = 0.2,
    level: float = 0.05,
    rank: int | None = None,
    prior: Any = None,
    random_state: int = 0,
) -> Spammers:
    """Spammers by the covariances of votes: whose votes do not go with anybody's.

    Parameters
    ----------
    votes
        The votes. No consensus is needed, and no start can go wrong.
    rule
        ``"test"``: below the bar, at the false-positive rate ``level``. ``"clusters"``: the published two-means, which
        always splits the crowd and states no rate.
    skill, level
        As in :func:`capacity_spammers`; with ``rule="clusters"`` they enter the score alone.
    rank
        With ``rule="clusters"``: the number of factors; by default the largest, up to K, without a Heywood case.
    prior
        The share of each class, which sets the scale of skills; by default that of the votes weighted by v.
    random_state
        The seed of the starts of two-means.

    Notes
    -----
    Columns: ``skill`` with its 95 % interval; with ``rule="clusters"`` also ``length``, that of the row of V over
    the standard deviation of the votes (1 is the most possible).

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.spammers import covariance_spammers
    >>> crowd = cw.simulate.hammer_spammer(800, n_annotators=12, n_classes=3, accuracy=0.8, random_state=1)
    >>> found = covariance_spammers(crowd.votes)
    >>> bool((found.spammer == crowd.parameters["spammers"]).all())
    True
    """
    from scipy.special import stdtr, stdtrit

    if rule not in ("test", "clusters"):
        raise ParameterError(f"rule={rule!r}: expected 'test' or 'clusters'.")
    _checked(skill, level, 1)
    if not isinstance(votes, Votes):
        raise InputError(f"Expected Votes and found {type(votes).__name__}: make them with Votes.from_frame.")
    M, K = votes.n_annotators, votes.n_classes
    if M < 3 or K < 2:
        raise InputError(
            f"There are {M} annotators and {K} classes: covariances need at least three annotators and two classes."
        )
    if rank is not None and not (isinstance(rank, (int, np.integer)) and 1 <= rank < M):
        raise ParameterError(f"rank={rank!r}: expected a whole number from 1 to {M - 1}.")
    found = covariances(votes)
    v = rank_one(found)
    value, error = skill_of(votes, found, v, _prior(prior, votes))
    count = np.bincount(votes.annotator, minlength=M)
    freedom = np.maximum(count - 1.0, 1.0)
    known = np.isfinite(value)
    s, e = np.where(known, value, 0.0), np.where(known, np.maximum(error, 1e-12), 1.0)
    inside = stdtr(freedom, (skill - s) / e) - stdtr(freedom, (-skill - s) / e)
    score = np.where(known, inside, 0.5)
    reach = np.where(known, stdtrit(freedom, 0.975) * e, np.inf)
    s = np.clip(s, -1.0, 1.0)
    columns: dict[str, npt.NDArray[Any]] = {
        "skill": s,
        "skill_low": np.clip(s - reach, -1.0, 1.0),
        "skill_high": np.clip(s + reach, -1.0, 1.0),
    }
    if rule == "test":
        verdict = _verdicts(score, level)
    else:
        V = proper_factors(found, identified_rank(M, K)) if rank is None else principal_factors(found, int(rank))
        low = nearer_zero(V, seed=random_state)
        verdict = np.where(low, "spammer", "honest").astype(object)
        spread = np.sqrt(np.maximum(found.variance, 1e-12))
        columns["length"] = np.sqrt((V**2).sum(axis=1)) / spread
    return Spammers(
        "covariance", rule, votes.annotators, count, score, verdict, level if rule == "test" else None, skill, columns,
        votes.kind,
    )  # fmt: skip


def _verdicts(score: Floats, level: float) -> npt.NDArray[Any]:
    out = np.full(len(score), "unclear", dtype=object)
    out[score >= 1.0 - level] = "spammer"
    out[score <= level] = "honest"
    return out


def _prior(prior: Any, votes: Votes) -> Floats | None:
    if prior is None:
        return None
    p = np.asarray(prior, dtype=np.float64)
    if p.shape != (votes.n_classes,) or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        raise ParameterError(f"prior={prior!r}: expected {votes.n_classes} probabilities, one for each class.")
    return np.asarray(p / p.sum())


def _checked(skill: float, level: float, draws: int) -> float:
    for name, value in (("skill", skill), ("level", level)):
        if not isinstance(value, (int, float, np.floating)) or not 0.0 < value < 1.0:
            raise ParameterError(f"{name}={value!r}: expected a number between 0 and 1.")
    if draws < 1:
        raise ParameterError(f"draws={draws!r}: expected at least 1.")
    if level >= 0.5:
        raise ParameterError(f"level={level!r}: expected less than 0.5.")
    return float(skill)
