"""Who the annotators are: one row each, with intervals, and flags in words.

Every vote is judged by the other votes on its item (:mod:`crowdwise.trust.evidence`), so nobody is their own witness.

=================  ==================================================================================================
column             meaning
=================  ==================================================================================================
votes              how many
accuracy           w[m]: the probability of being right, the truth being known by the other votes only; with interval
skill              sum_l Cov(said l, P(truth is l)) / sum_l Var(P(truth is l)): 1 knows everything, 0 answers without
                   looking (at random, or always the same), below 0 is worse than that; with interval
agreement          the share of the others' votes on the same items that say the same; with interval
weight             by how much (log-odds) a vote of theirs moves the consensus towards what they say, on average; with
                   interval
information        bits about the truth in a vote, I(truth; label) at the class prior; with interval
capacity           the same at the most telling prior, where a function for it is handed in
bias, bias_class   the class named too often, and by how much of the votes: said l minus P(truth is l); with interval
speed              votes per hour while working (pauses of more than half an hour left out), where there are timestamps
drift              change of accuracy from the first vote to the last, at equal class; with interval
suspicion          0 to 1: one minus the smallest adjusted p-value of the flags that speak against them
flags              words
=================  ==================================================================================================

A flag is the rejection of a hypothesis that would clear the annotator, at a false discovery rate of ``level`` over all
annotators (Benjamini and Hochberg, for each kind of flag on its own). In a crowd of which the hypotheses hold, somebody
is flagged with probability ``level`` at most, for each kind.

=========================  ==========================================================================================
flag                       hypothesis rejected
=========================  ==========================================================================================
worse than chance          skill >= 0
answers at random          skill >= ``useful``
always says X              P(says X | truth is not X) <= 1/2; and X is 90 % of the votes or more
names X too often          says X for others no more often than others for X, or than the rest of the crowd does
                           (a sign test)
confuses A with B          P(says B | truth is A) <= the larger of ``confusion`` and the rate of all others
got worse / better ...     accuracy does not change with the order of the votes
few votes                  (no test) the interval of the accuracy is wider than 0.4
=========================  ==========================================================================================

When it fails: where most of a crowd errs in the same way, the others are no witnesses; copies of a bad annotator vouch
for it. With timestamps that go with the difficulty of items (a queue from easy to hard) everybody gets worse over time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.intervals import with_interval
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.data.frames import make_frame
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.trust.evidence import Evidence, adjusted, binomial_tail, check_level, read_evidence

__all__ = ["AnnotatorReport", "assess_annotators"]

FEW = 0.4
MOSTLY = 0.9
PAUSE = 1800.0
"""Seconds without a vote after which an annotator is taken to have paused."""
LEAST_FOR_DRIFT = 10
AGAINST = ("worse than chance", "answers at random", "always says", "confuses", "got worse")
"""The kinds of flags that make an annotator suspect."""


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorReport:
    """One row per annotator; see :func:`assess_annotators`."""

    names: npt.NDArray[Any]
    columns: dict[str, npt.NDArray[Any]]
    flags: tuple[tuple[str, ...], ...]
    """The words about each annotator."""
    p_values: dict[str, Floats]
    """Adjusted p-values of each kind of flag (M, or M x K, M x K x K); ``"drift"`` only with timestamps."""
    level: float
    kind: str = field(default="polars")

    def __repr__(self) -> str:
        flagged = sum(1 for words in self.flags if words)
        return f"AnnotatorReport({len(self.names):,} annotators, {flagged:,} flagged at level {self.level})"

    def to_frame(self, kind: str | None = None) -> Any:
        """The table, as ``"polars"``, ``"pandas"``, ``"pyarrow"`` or a ``"dict"`` of arrays."""
        words = np.array(["; ".join(w) for w in self.flags], dtype=object)
        return make_frame({"annotator": self.names, **self.columns, "flags": words}, kind or self.kind)

    def flagged(self, what: str = "") -> list[Any]:
        """The annotators with a flag that holds these words; where none are given, with any but ``few votes``."""
        return [
            name
            for name, words in zip(self.names.tolist(), self.flags, strict=True)
            if any((what in w) if what else w != "few votes" for w in words)
        ]

    def sentences(self) -> list[str]:
        """One sentence per flagged annotator, the most suspect first."""
        order = np.argsort(-self.columns["suspicion"], kind="stable")
        return [f"{self.names[m]} {_sentence(self.flags[m])}." for m in order.tolist() if self.flags[m]]


def _sentence(words: tuple[str, ...]) -> str:
    said = [
        "is worse than chance" if w == "worse than chance" else "has few votes" if w == "few votes" else w
        for w in words
    ]
    return said[0] if len(said) == 1 else ", ".join(said[:-1]) + " and " + said[-1]


def assess_annotators(
    votes: Votes,
    consensus: Consensus,
    *,
    truth: Any = None,
    level: float = 0.05,
    interval: float = 0.95,
    useful: float = 0.2,
    confusion: float = 0.2,
    capacity: Callable[[Floats], Floats] | None = None,
) -> AnnotatorReport:
    """A table of the annotators, with intervals and with flags in words.

    Parameters
    ----------
    votes, consensus
        The votes and a consensus of them, by whatever method.
    truth
        True classes to go by where they are known: a mapping from item to class, or N codes with -1 for unknown.
    level
        The false discovery rate of each kind of flag (see the module).
    interval
        The level of the intervals.
    useful
        The skill from which an annotator is not called random. 0.2 is where Landis and Koch (1977) end "slight"
        agreement.
    confusion
        The share of a class' items that may be taken for one other class without comment.
    capacity
        A function from M x K x K confusion matrices (annotator, truth, label) to M numbers, for a column ``capacity``.

    Examples
    --------
    >>> import crowdwise as cw
    >>> from crowdwise.trust.annotators import assess_annotators
    >>> crowd = cw.simulate.hammer_spammer(400, n_annotators=12, share=0.8, votes_per_item=6, random_state=0)
    >>> report = assess_annotators(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    >>> sorted(report.flagged("random")) == sorted(crowd.votes.annotators[crowd.parameters["spammers"]].tolist())
    True
    """
    for name, value in (("level", level), ("interval", interval), ("useful", useful), ("confusion", confusion)):
        check_level(value, name)
    evidence = read_evidence(votes, consensus, truth)
    M = votes.n_annotators
    n = np.bincount(votes.annotator, minlength=M)
    accuracy, low, high = evidence.accuracy(interval)
    skill = skills(evidence, useful)
    p: dict[str, Floats] = {"worse than chance": skill.p_worse, "answers at random": skill.p_random}
    p["always says"] = constant_p(evidence)
    bias, bias_error, p["names too often"] = class_bias(evidence)
    p["confuses"] = confusion_p(evidence, confusion)
    times = None if votes.timestamp is None else seconds(votes.timestamp)
    reach = _quantile(interval)
    columns: dict[str, npt.NDArray[Any]] = {
        "votes": n,
        **with_interval("accuracy", accuracy, low, high),
        **with_interval("skill", skill.value, skill.value - reach * skill.error, skill.value + reach * skill.error),
        **agreement(votes, interval),
        **weights(evidence, reach),
        **information(evidence, reach),
    }
    if capacity is not None:
        found = np.asarray(capacity(evidence.theta), dtype=np.float64)
        if found.shape != (M,):
            raise ParameterError(
                f"capacity gave an array of shape {found.shape}: expected one number per annotator ({M})."
            )
        columns["capacity"] = found
    worst = bias.argmax(axis=1)
    top, error = bias[np.arange(M), worst], bias_error[np.arange(M), worst]
    columns |= with_interval("bias", top, np.maximum(top - reach * error, -1.0), np.minimum(top + reach * error, 1.0))
    columns["bias_class"] = votes.classes[worst]
    if times is not None:
        columns["speed"] = speed(votes, times)
        found_drift, p["drift"] = drift(evidence, times, interval)
        columns |= found_drift
    p = {name: adjusted(value) for name, value in p.items()}
    flags = _words(evidence, p, columns, level)
    against = [
        p[name].reshape(M, -1).min(axis=1)
        for name in ("worse than chance", "answers at random", "always says", "confuses")
    ]
    if "drift" in p:
        against.append(np.where(columns["drift"] < 0, p["drift"], 1.0))
    columns["suspicion"] = 1.0 - np.minimum.reduce(against)
    return AnnotatorReport(votes.annotators, columns, flags, p, level, votes.kind)


# -------------------------------------------------------------------- the pieces


@dataclass(frozen=True)
class Skills:
    """Skill, its standard error, and p-values of the two hypotheses about it; M each."""

    value: Floats
    error: Floats
    p_worse: Floats
    p_random: Floats


def skills(evidence: Evidence, useful: float) -> Skills:
    """The pooled regression of "said l" on r[s, l], the probability that l is true by the other votes.

    If somebody knows the answer with probability g and else answers from habit h, P(says l) = g r_l + (1 - g) h_l, the
    slope is g. Tests are score tests with the variance under that model at g = 0 and at g = ``useful``, h taken from
    the labels they use; the interval's error is the usual robust one.
    """
    from scipy.special import ndtr

    votes = evidence.votes
    M, K, m = votes.n_annotators, votes.n_classes, votes.annotator
    n = np.maximum(np.bincount(m, minlength=M), 1).astype(np.float64)
    said = np.bincount(evidence.cell, minlength=M * K).reshape(M, K) / n[:, None]
    mean = evidence.counts.sum(axis=2) / n[:, None]
    square, both = np.zeros(M), evidence.per_annotator(evidence.right) / n
    for k in range(K):
        square += evidence.per_annotator(evidence.others(k) ** 2) / n
    spread = square - (mean * mean).sum(axis=1)
    shared = both - (said * mean).sum(axis=1)
    known = spread > 1e-9
    g = np.divide(shared, spread, out=np.zeros(M), where=known)
    levels = (0.0, useful)
    habits = [normalise(np.maximum(said - v * mean, 0.0) + 1e-12, axis=1) for v in levels]
    moments = [[np.zeros(votes.n_votes) for _ in range(2)] for _ in levels]
    robust = np.zeros(votes.n_votes)
    for k in range(K):
        r = evidence.others(k)
        apart = r - mean[m, k]
        for v, h, (first, second) in zip(levels, habits, moments, strict=True):
            p = v * r + (1.0 - v) * h[m, k]
            first += p * apart
            second += p * apart * apart
        robust += ((votes.label == k) - said[m, k] - g[m] * apart) * apart
    p_values = []
    for v, (first, second) in zip(levels, moments, strict=True):
        variance = evidence.per_annotator(second - first * first)
        z = np.divide((g - v) * spread * n, np.sqrt(variance), out=np.zeros(M), where=known & (variance > 1e-12))
        p_values.append(np.where(known, ndtr(z), 1.0))
    error = np.sqrt(evidence.per_annotator(robust * robust))
    se = np.divide(error, spread * n, out=np.full(M, np.inf), where=known)
    # No residual at all (somebody who always says the same) is not certainty: the error under g = 0 stands in.
    null = np.sqrt(evidence.per_annotator(moments[1][1] - moments[1][0] ** 2))
    se = np.where(
        known,
        np.maximum(se, np.where(error < 1e-9, np.divide(null, spread * n, out=np.ones(M), where=known), 0.0)),
        np.inf,
    )
    return Skills(np.where(known, g, np.nan), np.where(known, se, np.nan), p_values[0], p_values[1])


def constant_p(evidence: Evidence) -> Floats:
    """M x K: p-values against P(says l | truth is not l) <= 1/2; 1 where l is under ``MOSTLY`` of the votes."""
    x = evidence.counts
    use, total = x.sum(axis=1), x.sum(axis=(1, 2))[:, None]
    wrong = use - np.einsum("mkk->mk", x)  # said l, is not l
    not_l = total - x.sum(axis=2)
    return np.where(use >= MOSTLY * np.maximum(total, 1.0), binomial_tail(wrong, not_l, 0.5), 1.0)


def class_bias(evidence: Evidence) -> tuple[Floats, Floats, Floats]:
    """M x K: (said l) - P(truth is l) as a share of the votes, its standard error, and p-values.

    Said l for another class, and another for l: a sign test between the two kinds of mistakes, against a half, or
    against the share that the rest of the crowd has where that is more. The expected numbers under r vary less than
    numbers do, so test and error are on the safe side.
    """
    x = evidence.counts
    hit = np.einsum("mkk->mk", x)
    over, under = x.sum(axis=1) - hit, x.sum(axis=2) - hit
    n = np.maximum(x.sum(axis=(1, 2)), 1.0)[:, None]
    rest, missed = over.sum(axis=0) - over, under.sum(axis=0) - under
    usual = np.clip((rest + 0.5) / (rest + missed + 1.0), 0.5, 1.0 - 1e-9)
    error = np.sqrt(np.maximum(over + under, 1.0)) / n
    return (over - under) / n, error, binomial_tail(over, over + under, usual)


def confusion_p(evidence: Evidence, least: float) -> Floats:
    """M x K x K (annotator, truth, label): p-values against P(l | truth k) <= max(least, the rate of all others)."""
    x = evidence.counts
    M, K, _ = x.shape
    rest = x.sum(axis=0)[None] - x
    rate = normalise(rest + 1e-9, axis=2)
    n = np.broadcast_to(x.sum(axis=2, keepdims=True), x.shape)
    p = binomial_tail(x, n, np.clip(np.maximum(rate, least), 0.0, 1.0 - 1e-9))
    p[:, np.arange(K), np.arange(K)] = 1.0
    return p


def agreement(votes: Votes, level: float) -> dict[str, npt.NDArray[Any]]:
    """The mean share of an item's other votes that say the same, over items with any."""
    from scipy.special import betaincinv

    K, M = votes.n_classes, votes.n_annotators
    item = votes.item
    same = np.bincount(item * K + votes.label, minlength=len(votes) * K)[item * K + votes.label] - 1.0
    others = np.diff(votes.indptr)[item] - 1.0
    seen = others > 0
    x, m = same[seen] / others[seen], votes.annotator[seen]
    n, total, square = (np.bincount(m, weights=w, minlength=M).astype(np.float64) for w in (np.ones_like(x), x, x * x))
    mean = np.divide(total, n, out=np.full(M, np.nan), where=n > 0)
    gentle = (total + 0.5) / (n + 1.0)
    # Shares vary less than yes and no do: as many votes as would vary as much.
    variance = np.maximum(np.divide(square, n, out=np.zeros(M), where=n > 0) - np.nan_to_num(mean) ** 2, 1e-12)
    worth = np.where(n > 1, n * np.clip(gentle * (1.0 - gentle) / variance, 1.0, 10.0), n)
    a, b = np.nan_to_num(mean, nan=0.5) * worth + 0.5, (1.0 - np.nan_to_num(mean, nan=0.5)) * worth + 0.5
    tail = (1.0 - level) / 2.0
    return with_interval("agreement", mean, betaincinv(a, b, tail), betaincinv(a, b, 1.0 - tail))


def weights(evidence: Evidence, reach: float) -> dict[str, npt.NDArray[Any]]:
    """log theta[l, l] - log of the mean of theta[k, l] over the other classes k (by prior), averaged over their votes.

    Var log theta = psi'(a) - psi'(A) for a Dirichlet; that of the mean by the delta method; rows are independent.
    """
    from scipy.special import polygamma

    theta, pi = evidence.theta, evidence.prior
    M, K, _ = theta.shape
    alpha = evidence.counts + evidence.pseudo
    total = alpha.sum(axis=2, keepdims=True)
    own = np.einsum("mkk->mk", theta)
    rest = np.maximum(np.einsum("k,mkl->ml", pi, theta) - pi * own, 1e-300) / np.maximum(1.0 - pi, 1e-12)
    value = np.log(np.maximum(own, 1e-300)) - np.log(rest)
    diagonal = np.einsum("mkk->mk", alpha)
    variance = polygamma(1, np.maximum(diagonal, 1e-6)) - polygamma(1, np.maximum(total[:, :, 0], 1e-6))
    spread = pi[None, :, None] ** 2 * theta * (1.0 - theta) / (total + 1.0)
    spread[:, np.arange(K), np.arange(K)] = 0.0
    variance = variance + spread.sum(axis=1) / ((1.0 - pi) * rest) ** 2
    use = normalise(np.bincount(evidence.cell, minlength=M * K).reshape(M, K).astype(np.float64), axis=1)
    mean, error = (use * value).sum(axis=1), np.sqrt((use * use * np.maximum(variance, 0.0)).sum(axis=1))
    return with_interval("weight", mean, mean - reach * error, mean + reach * error)


def information(evidence: Evidence, reach: float) -> dict[str, npt.NDArray[Any]]:
    """I(truth; label) in bits, with the delta method's error, held between 0 and the entropy of the classes."""
    theta, pi = evidence.theta, evidence.prior
    label = np.einsum("k,mkl->ml", pi, theta)
    ratio = np.log2(np.maximum(theta, 1e-300) / np.maximum(label, 1e-300)[:, None])
    mean = (theta * ratio).sum(axis=2)
    within = (theta * ratio * ratio).sum(axis=2) - mean * mean
    total = (evidence.counts + evidence.pseudo).sum(axis=2)
    value = np.maximum(mean @ pi, 0.0)
    error = np.sqrt((pi * pi * np.maximum(within, 0.0) / (total + 1.0)).sum(axis=1))
    most = float(-(pi * np.log2(np.maximum(pi, 1e-300))).sum())
    return with_interval(
        "information", value, np.clip(value - reach * error, 0.0, most), np.clip(value + reach * error, 0.0, most)
    )


def seconds(timestamp: npt.NDArray[Any]) -> Floats:
    """Timestamps in seconds: dates as such, numbers as they are, NaN where missing."""
    if timestamp.dtype.kind == "M":
        out = timestamp.astype("datetime64[ms]").astype(np.float64) / 1000.0
        return np.asarray(np.where(np.isnat(timestamp), np.nan, out))
    if timestamp.dtype.kind == "m":
        return np.asarray(timestamp / np.timedelta64(1, "ms") / 1000.0, dtype=np.float64)
    if timestamp.dtype.kind in "iuf":
        return np.asarray(timestamp.astype(np.float64))
    try:
        dates = [np.datetime64("NaT") if t is None else t for t in timestamp.tolist()]
        return seconds(np.array(dates, dtype="datetime64[ms]"))
    except (TypeError, ValueError):
        raise InputError(
            "The timestamps are neither dates nor numbers of seconds. Convert them before the votes are made."
        ) from None


def _in_time(votes: Votes, times: Floats) -> Ints:
    """The votes with a time, by annotator, then time (then as they came)."""
    order = np.lexsort((times, votes.annotator))
    return np.asarray(order[np.isfinite(times[order])])


def speed(votes: Votes, times: Floats) -> Floats:
    """Votes per hour: one over the mean time between votes, pauses left out; NaN without two votes in a row."""
    order = _in_time(votes, times)
    m, t = votes.annotator[order], times[order]
    gap, same = np.diff(t), m[1:] == m[:-1]
    working = same & (gap <= PAUSE)
    M = votes.n_annotators
    count = np.bincount(m[1:][working], minlength=M).astype(np.float64)
    spent = np.bincount(m[1:][working], weights=gap[working], minlength=M).astype(np.float64)
    return np.asarray(np.divide(3600.0 * count, spent, out=np.full(M, np.nan), where=spent > 0))


def drift(evidence: Evidence, times: Floats, level: float) -> tuple[dict[str, npt.NDArray[Any]], Floats]:
    """The slope of being right on the order of the votes (0 to 1), its interval, and two-sided p-values.

    Being right is taken against what the annotator's own matrix expects for the class:
    a[s] - sum_k r[s, k] theta[m, k, k]. The test is that of a correlation (Student's t, n - 2).
    """
    from scipy.special import stdtr, stdtrit

    votes = evidence.votes
    M = votes.n_annotators
    x = evidence.right.copy()
    for k in range(votes.n_classes):
        x -= evidence.others(k) * evidence.theta[:, k, k][votes.annotator]
    order = _in_time(votes, times)
    m, x, t = votes.annotator[order], x[order], times[order]
    n = np.bincount(m, minlength=M).astype(np.float64)
    first = np.concatenate([[0.0], np.cumsum(n)[:-1]])
    # Votes of the same instant share their mean place.
    place = np.arange(len(m), dtype=np.float64)
    run = np.concatenate([[0], np.cumsum((m[1:] != m[:-1]) | (t[1:] != t[:-1]))]) if len(m) else np.empty(0, np.int64)
    if len(m):
        place = (np.bincount(run, weights=place) / np.bincount(run))[run]
    u = (place - first[m]) / np.maximum(n[m] - 1.0, 1.0)

    def total(value: Floats) -> Floats:
        return np.bincount(m, weights=value, minlength=M).astype(np.float64)

    one = np.maximum(n, 1.0)
    u, x = u - (total(u) / one)[m], x - (total(x) / one)[m]
    uu, ux, xx = total(u * u), total(u * x), total(x * x)
    enough = (n >= LEAST_FOR_DRIFT) & (uu > 1e-9) & (xx > 1e-12)
    slope = np.divide(ux, uu, out=np.full(M, np.nan), where=enough)
    free = np.maximum(n - 2.0, 1.0)
    residual = np.maximum(xx - np.divide(ux * ux, uu, out=np.zeros(M), where=enough), 1e-12)
    error = np.sqrt(np.divide(residual / free, uu, out=np.full(M, np.nan), where=enough))
    p = np.where(enough, 2.0 * stdtr(free, -np.abs(np.nan_to_num(slope / error))), 1.0)
    reach = stdtrit(free, 0.5 + level / 2.0) * error
    return with_interval("drift", slope, np.maximum(slope - reach, -1.0), np.minimum(slope + reach, 1.0)), p


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2.0))


def _words(
    evidence: Evidence, p: dict[str, Floats], columns: dict[str, Any], level: float
) -> tuple[tuple[str, ...], ...]:
    """The flags of each annotator. A plainer word silences those that follow from it."""
    classes = [str(c) for c in evidence.votes.classes.tolist()]
    width = columns["accuracy_high"] - columns["accuracy_low"]
    out: list[tuple[str, ...]] = []
    asked = np.flatnonzero(
        np.minimum.reduce([value.reshape(len(width), -1).min(axis=1) for value in p.values()]) <= level
    )
    flagged = {int(m): _words_of(m, p, columns, level, classes, evidence) for m in asked.tolist()}
    for m in range(len(width)):
        words = flagged.get(m, [])
        out.append(tuple([*words, "few votes"] if not width[m] <= FEW else words))
    return tuple(out)


def _words_of(
    m: int, p: dict[str, Floats], columns: dict[str, Any], level: float, classes: list[str], evidence: Evidence
) -> list[str]:
    words = []
    constant = int(p["always says"][m].argmin())
    if p["always says"][m, constant] <= level:
        words.append(f"always says {classes[constant]}")
    else:
        if p["worse than chance"][m] <= level:
            words.append("worse than chance")
        elif p["answers at random"][m] <= level:
            words.append("answers at random")
        if "answers at random" not in words:
            for k, label in _worst_pairs(evidence.counts[m], p["confuses"][m], level):
                words.append(f"confuses {classes[k]} with {classes[label]}")
        often = int(p["names too often"][m].argmin())
        if p["names too often"][m, often] <= level:
            words.append(f"names {classes[often]} too often")
    if "drift" in p and p["drift"][m] <= level:
        words.append("got worse over time" if columns["drift"][m] < 0 else "got better over time")
    return words


def _worst_pairs(counts: Floats, p: Floats, level: float) -> list[tuple[int, int]]:
    """The confusions found, at most three, the most votes first."""
    pairs = np.argwhere(p <= level)
    order = np.argsort([-counts[k, label] for k, label in pairs], kind="stable")
    return [(int(pairs[i][0]), int(pairs[i][1])) for i in order[:3]]
