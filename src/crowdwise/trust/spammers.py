"""Spammers: annotators whose answers do not depend on the item, found in three ways.

All three (docs/reliability-spammers.md) ask how much an annotator knows and compare it with one and the same bar: an
annotator who knows the answer with probability ``skill`` = s and guesses evenly otherwise, p = s + (1 - s) / K.

=======================  ==================================================  ========================================
detector                 what it measures, from                              value at the bar
=======================  ==================================================  ========================================
``capacity_spammers``    max over p of I(truth; label), counts of consensus  log2 K - H(p, (1-p)/(K-1), ...)
``raykar_yu_spammers``   1/(K(K-1)) sum_c<c' |theta[c] - theta[c']|^2, same  s^2
``covariance_spammers``  covariance with other annotators, from votes        s (``annotator_covariance``)
=======================  ==================================================  ========================================

theta[m, k] is drawn from its posterior Dirichlet(c[m, k] + 1/2), with counts reduced to as many as they are worth with
their truth in doubt (Louis' principle, as in the intervals of confusion matrices). The first two measures are convex,
so that noise raises them, once in the counts and once more in the draws.

In a crowd of rules (:mod:`crowdwise.core.crowd_kind`) annotators who name one class or nothing are ``unclear``: what
they know is in their choice of items, which none of the three looks at.

When they fail: the first two rest on the consensus; where that is wrong about most items, so are they. Covariances
need common items, take annotators who copy each other for skilled, and see no knowledge that is not shared.

References: Raykar and Yu 2012; Traganitis and Giannakis 2021 (ICASSP); Blahut 1972 and Arimoto 1972.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Bounds, Count, Fraction, RandomState, checked, fixed_seed
from crowdwise.core.crowd_kind import rules_in
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.trust import annotator_covariance as covariance
from crowdwise.trust.evidence import check_match
from crowdwise.trust.result_tables import Tables

Level = Annotated[float, Bounds(above=0, below=0.5)]
DRAWN = 1e-4
"""How exact the capacity of a draw is, in bits: far less than draws differ."""


@dataclass(frozen=True)
class Spammers(Tables):
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
        M: ``"spammer"`` (score at least 1 - ``level``), ``"honest"`` (at most ``level``) or ``"unclear"``. With
        ``rule="clusters"``: in the cluster nearer 0 and score at least 1 - ``level``, in the other cluster, or in the
        cluster nearer 0 without that score.
    level
        The probability, at most, with which an annotator at or above the bar is called a spammer.
    skill
        The bar: the skill under which an annotator is a spammer.
    columns
        The measure with its interval (``NAME``, ``NAME_low``, ``NAME_high``).
    """

    detector: str
    rule: str
    annotators: npt.NDArray[Any]
    votes: Ints
    score: Floats
    verdict: npt.NDArray[Any]
    level: float
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

    def prune(self, votes: Votes, *, unclear: bool = False) -> Votes:
        """The votes without those of the spammers; with ``unclear``, of all who are not called honest."""
        there = set(votes.annotators.tolist())
        out = self.verdict != "honest" if unclear else self.spammer
        gone = [name for name in self.annotators[out].tolist() if name in there]
        if len(gone) == votes.n_annotators:
            raise InputError(
                "No annotator is called honest: none would be left. Prune the spammers alone, or collect more votes."
                if unclear
                else "All annotators are spammers by this verdict: none would be left."
            )
        return votes.without(gone) if gone else votes

    def _columns(self, table: str) -> dict[str, Any]:
        columns = {"annotator": self.annotators, "votes": self.votes, "score": self.score, "verdict": self.verdict}
        return columns | self.columns

    def __repr__(self) -> str:
        found = f"{int(self.spammer.sum())} of {len(self.annotators)} annotators are spammers"
        return f"Spammers({self.detector}, {self.rule}: {found}; false-positive rate {self.level:g})"


@checked
def capacity_spammers(
    votes: Votes, consensus: Consensus, *, skill: Fraction = 0.2, level: Level = 0.05, draws: Count = 200,
    random_state: RandomState = 0,
) -> Spammers:  # fmt: skip
    """Spammers by channel capacity: how many bits of the truth one vote of theirs can carry.

    Parameters
    ----------
    votes, consensus
        The votes, and a consensus of them whose posterior is calibrated (confusion matrices, say; not vote shares).
    skill
        The bar: a spammer has less information than a person who knows the answer with this probability and
        guesses otherwise. The default, one in five, is an accuracy of 0.6 on two classes and 0.4 on four.
    level
        The probability, at most, with which an annotator at or above the bar is called a spammer.
    draws, random_state
        How many draws of every confusion matrix, and their seed.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(600, n_annotators=10, n_classes=3, accuracy=0.8, random_state=0)
    >>> found = cw.trust.capacity_spammers(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    >>> bool((found.spammer == crowd.parameters["spammers"]).all())
    True
    """
    bar = one_coin_capacity(skill, len(consensus.classes))
    bits = partial(channel_capacity, tol=DRAWN, max_iter=300)  # within log2(K) / 300 at the very worst
    return _by_posterior(votes, consensus, "capacity", bits, bar, skill, level, draws, random_state)


@checked
def raykar_yu_spammers(
    votes: Votes, consensus: Consensus, *, skill: Fraction = 0.2, level: Level = 0.05, draws: Count = 200,
    random_state: RandomState = 0,
) -> Spammers:  # fmt: skip
    """Spammers by Raykar's and Yu's score: how far the rows of the confusion matrix are apart.

    The column ``informativeness`` is their score, 0 for a spammer and 1 for a perfect one (or perfectly wrong);
    skill^2 for a one-coin annotator. Parameters as in :func:`capacity_spammers`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(600, n_annotators=10, n_classes=3, accuracy=0.8, random_state=0)
    >>> found = cw.trust.raykar_yu_spammers(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    >>> found.prune(crowd.votes).n_annotators
    5
    """
    return _by_posterior(
        votes, consensus, "informativeness", raykar_yu_score, skill**2, skill, level, draws, random_state
    )


def _by_posterior(
    votes: Votes, consensus: Consensus, name: str, measure: Callable[[Floats], Floats], bar: float,
    skill: float, level: float, draws: int, random_state: RandomState,
) -> Spammers:  # fmt: skip
    check_match(votes, consensus)
    counts, spread = consensus.expected_counts()
    rng = np.random.default_rng(random_state)
    value, drawn = posterior_of(measure, effective_counts(counts, spread), draws, rng)
    rise = np.maximum(drawn.mean(axis=1) - value, 0.0)
    low, high = np.maximum(np.quantile(drawn, 0.025, axis=1) - 2.0 * rise, 0.0), np.quantile(drawn, 0.975, axis=1)
    value = np.maximum(value - rise, 0.0)
    score = (np.count_nonzero(drawn < bar, axis=1) + 0.5) / (draws + 1.0)
    return Spammers(
        name, "test", consensus.annotators, consensus.votes_per_annotator, *_verdicts(votes, score, level), level,
        skill, {name: value, f"{name}_low": np.minimum(low, value), f"{name}_high": np.maximum(high, value)},
        consensus.kind,
    )  # fmt: skip


@checked
def covariance_spammers(
    votes: Votes, *, rule: Literal["test", "clusters"] = "test", skill: Fraction = 0.2, level: Level = 0.05,
    rank: Count | None = None, prior: Any = None, random_state: RandomState = 0,
) -> Spammers:  # fmt: skip
    """Spammers by the covariances of votes: whose votes do not go with anybody's.

    Parameters
    ----------
    votes
        The votes. No consensus is needed, and no start can go wrong.
    rule
        ``"test"``: below the bar, at the false-positive rate ``level``. ``"clusters"``: and also in the cluster
        nearer 0 of the published two-means, whose other members are *unclear* (see the module).
    skill, level
        As in :func:`capacity_spammers`.
    rank
        With ``rule="clusters"``: the number of factors; by default as many, up to K, as stand out from shuffled votes
        (:mod:`crowdwise.trust.annotator_covariance`).
    prior
        The share of each class, which sets the scale of skills; by default that of the votes weighted by v.
    random_state
        With ``rule="clusters"``: the seed of the shuffled votes and of the starts of two-means.

    Notes
    -----
    Columns: ``skill`` with its 95 % interval; with ``rule="clusters"`` also ``length``, that of the row of V over
    the standard deviation of the votes (1 is the most possible), and ``near_zero``, the cluster.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(800, n_annotators=12, n_classes=3, accuracy=0.8, random_state=1)
    >>> found = cw.trust.covariance_spammers(crowd.votes)
    >>> bool((found.spammer == crowd.parameters["spammers"]).all())
    True
    """
    from scipy.special import stdtr, stdtrit

    if not isinstance(votes, Votes):
        raise InputError(f"Expected Votes and found {type(votes).__name__}: make them with Votes.from_frame.")
    M, K = votes.n_annotators, votes.n_classes
    if M < 3 or K < 2:
        raise InputError(
            f"There are {M} annotators and {K} classes: covariances need at least three annotators and two classes."
        )
    if rank is not None and rank >= M:
        raise ParameterError(f"rank={rank!r}: expected a whole number from 1 to {M - 1}.")
    found = covariance.covariances(votes)
    v = covariance.rank_one(found)
    value, error = covariance.skill_of(votes, found, v, _prior(prior, votes))
    count = np.bincount(votes.annotator, minlength=M)
    freedom = np.maximum(count - 1.0, 1.0)
    known = np.isfinite(value)
    s, e = np.where(known, value, 0.0), np.where(known, np.maximum(error, 1e-12), 1.0)
    inside = stdtr(freedom, (skill - s) / e) - stdtr(freedom, (-skill - s) / e)
    score = np.where(known, inside, 0.5)
    reach = np.where(known, stdtrit(freedom, 0.975) * e, np.inf)
    s = np.clip(s, -1.0, 1.0)
    columns: dict[str, npt.NDArray[Any]] = {
        "skill": s, "skill_low": np.clip(s - reach, -1.0, 1.0), "skill_high": np.clip(s + reach, -1.0, 1.0),
    }  # fmt: skip
    score, verdict = _verdicts(votes, score, level)
    if rule == "clusters":
        V = (
            covariance.parallel_factors(votes, found, covariance.identified_rank(M, K), fixed_seed(random_state))
            if rank is None
            else covariance.principal_factors(found, int(rank))
        )
        near = covariance.nearer_zero(V, seed=fixed_seed(random_state))
        verdict = np.where(near, np.where(score >= 1.0 - level, "spammer", "unclear"), "honest").astype(object)
        spread = np.sqrt(np.maximum(found.variance, 1e-12))
        columns |= {"length": np.sqrt((V**2).sum(axis=1)) / spread, "near_zero": near}
    return Spammers("covariance", rule, votes.annotators, count, score, verdict, level, skill, columns, votes.kind)


def _verdicts(votes: Votes, score: Floats, level: float) -> tuple[Floats, npt.NDArray[Any]]:
    """Scores, those of rules unknown, and the verdicts by them."""
    score = np.where(rules_in(votes), 0.5, score)
    out = np.full(len(score), "unclear", dtype=object)
    out[score >= 1.0 - level] = "spammer"
    out[score <= level] = "honest"
    return score, out


def _prior(prior: Any, votes: Votes) -> Floats | None:
    if prior is None:
        return None
    p = np.asarray(prior, dtype=np.float64)
    if p.shape != (votes.n_classes,) or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        raise ParameterError(f"prior={prior!r}: expected {votes.n_classes} probabilities, one for each class.")
    return np.asarray(p / p.sum())


JEFFREYS = 0.5
CHUNK = 2**22
"""How many numbers a piece of the draws holds at once."""


def channel_capacity(theta: Floats, tol: float = 1e-7, max_iter: int = 2000) -> Floats:
    """The capacity in bits of B x K x L channels, by Blahut's and Arimoto's iteration.

    p[k] <- p[k] 2^(a D[k]) / Z with D[k] = sum_l theta[k, l] log2( theta[k, l] / sum_k p theta ). The capacity is
    between sum p D and max D, and a channel is done when they are ``tol`` apart. a = 1 never lowers sum p D; longer
    steps, which channels of small capacity need, are taken as long as they raise it.

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

    >>> import numpy as np
    >>> float(raykar_yu_score(np.array([[[0.9, 0.1], [0.3, 0.7]]]))[0].round(3))
    0.36
    """
    K = theta.shape[1]
    return np.asarray(((theta - theta.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2)) / (K - 1.0))


def one_coin_capacity(skill: float, K: int) -> float:
    """Bits of an annotator who knows the answer with probability ``skill`` and guesses evenly otherwise."""
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
    measure: Callable[[Floats], Floats], counts: Floats, draws: int, rng: np.random.Generator
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
