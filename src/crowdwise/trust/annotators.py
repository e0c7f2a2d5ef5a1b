"""Who the annotators are: one row each, with intervals, and flags in words.

Every vote is judged by the other votes on its item (:mod:`crowdwise.trust.judged_votes`), so nobody is their own
witness.

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
from crowdwise.core.leave_one_out import LeaveOneOut, expected_right
from crowdwise.core.numerics import Floats, share_with_interval
from crowdwise.data.frames import make_frame
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.trust.annotator_measures import (
    agreement,
    class_bias,
    confusion_p,
    constant_p,
    information,
    skills,
    weights,
)
from crowdwise.trust.judged_votes import adjusted, check_level, read_evidence
from crowdwise.trust.vote_times import drift, seconds, speed

__all__ = ["AnnotatorReport", "assess_annotators"]

FEW = 0.4
"""The width of the interval of the accuracy from which on there are few votes."""
AGAINST = ("worse than chance", "answers at random", "always says", "confuses")
"""The kinds of flags that make an annotator suspect, beside getting worse."""


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
    accuracy, low, high = _accuracy(evidence, consensus, truth is not None, interval)
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
    against = [p[name].reshape(M, -1).min(axis=1) for name in AGAINST]
    if "drift" in p:
        against.append(np.where(columns["drift"] < 0, p["drift"], 1.0))
    columns["suspicion"] = 1.0 - np.minimum.reduce(against)
    return AnnotatorReport(votes.annotators, columns, flags, p, level, votes.kind)


# -------------------------------------------------------------------- the pieces


def _accuracy(evidence: LeaveOneOut, consensus: Consensus, anew: bool, level: float) -> tuple[Floats, Floats, Floats]:
    """That of the consensus; worked out anew where more truths are known than it was told."""
    if not anew:
        return consensus.accuracy(level)
    right, unsure = expected_right(evidence.votes, evidence.right, evidence.gold, consensus.item_prior is not None)
    return share_with_interval(right, consensus.total, unsure, level)


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2.0))


def _words(
    evidence: LeaveOneOut, p: dict[str, Floats], columns: dict[str, Any], level: float
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
    m: int, p: dict[str, Floats], columns: dict[str, Any], level: float, classes: list[str], evidence: LeaveOneOut
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
