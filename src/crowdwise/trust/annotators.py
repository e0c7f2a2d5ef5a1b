"""The reliability of annotators: one row each, with intervals, and flags.

Every vote is judged by the other votes on its item (:mod:`crowdwise.trust.evidence`), so that no vote is evidence for
itself. docs/reliability.md has the columns, and the hypothesis that each flag rejects; ``annotator_measures`` computes
them.

A flag is the rejection of a hypothesis that would clear the annotator, at a false discovery rate of ``level`` over all
annotators (Benjamini and Hochberg, for each kind of flag on its own). In a crowd of which the hypotheses hold, an
annotator is flagged with probability ``level`` at most, for each kind.

In a crowd of rules (:mod:`crowdwise.core.crowd_kind`), annotators who name one class or nothing are neither constant
nor biased. Gold items alone show whether they know: skill is then how far their precision lies above the share of their
class, and without gold they have no flags.

When it fails: where most of a crowd errs in the same way, the others are no evidence; copies of a bad annotator vouch
for it. With timestamps that go with the difficulty of items (a queue from easy to hard) everybody gets worse over time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Fraction, checked
from crowdwise.core.crowd_kind import rules_in
from crowdwise.core.intervals import with_interval
from crowdwise.core.leave_one_out import LeaveOneOut, accuracy_with_interval
from crowdwise.core.numerics import Floats, share_interval, share_with_interval
from crowdwise.data.frames import make_frame
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.trust import annotator_measures as measures
from crowdwise.trust.evidence import adjusted, read_evidence
from crowdwise.trust.flags import Flag, FlagKind
from crowdwise.trust.result_tables import Tables
from crowdwise.trust.wording import flag_words, flags_sentence

FEW = 0.4
"""The width of the interval of the accuracy, without the error of the crowd, from which on there are few votes."""
AGAINST = (FlagKind.WORSE_THAN_CHANCE, FlagKind.RANDOM, FlagKind.CONSTANT, FlagKind.CONFUSION)
"""The flags that make an annotator suspect, beside getting worse."""


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorReport(Tables):
    """One row per annotator; see :func:`assess_annotators`."""

    names: npt.NDArray[Any]
    columns: dict[str, npt.NDArray[Any]]
    flags: tuple[tuple[Flag, ...], ...]
    """The flags of each annotator."""
    p_values: dict[FlagKind, Floats]
    """Adjusted p-values of each kind of flag (M, or M x K, M x K x K); of drift only with timestamps."""
    level: float
    kind: str = field(default="polars")

    def __repr__(self) -> str:
        flagged = sum(1 for flags in self.flags if flags)
        return f"AnnotatorReport({len(self.names):,} annotators, {flagged:,} flagged at level {self.level})"

    def _columns(self, table: str) -> dict[str, Any]:
        words = np.array(["; ".join(map(flag_words, flags)) for flags in self.flags], dtype=object)
        return {"annotator": self.names, **self.columns, "flags": words}

    def flagged(self, kind: FlagKind | str | None = None) -> list[Any]:
        """The annotators with a flag of this kind; where none is given, with any but ``FEW_VOTES``."""
        return [
            name
            for name, flags in zip(self.names.tolist(), self.flags, strict=True)
            if any(flag.kind == kind if kind else flag.kind is not FlagKind.FEW_VOTES for flag in flags)
        ]

    def sentences(self) -> list[str]:
        """One sentence per flagged annotator, the most suspect first."""
        order = np.argsort(-self.columns["suspicion"], kind="stable")
        return [flags_sentence(self.names[m], self.flags[m]) for m in order.tolist() if self.flags[m]]


@checked
def assess_annotators(
    votes: Votes, consensus: Consensus, *, gold: Any = None, level: Fraction = 0.05, interval: Fraction = 0.95,
    useful: Fraction = 0.2, confusion: Fraction = 0.2, capacity: Callable[[Floats], Floats] | None = None,
    evidence: LeaveOneOut | None = None,
) -> AnnotatorReport:  # fmt: skip
    """A table of the annotators, with intervals and flags.

    Parameters
    ----------
    votes, consensus
        The votes and a consensus of them, by whatever method.
    gold
        True classes to judge by, where they are known: a mapping from item to class, or N codes with -1 for unknown.
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
    evidence
        What :func:`~crowdwise.trust.evidence.read_evidence` gave for the same votes, consensus and gold.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(400, n_annotators=12, share=0.8, votes_per_item=6, random_state=0)
    >>> report = cw.trust.assess_annotators(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    >>> sorted(report.flagged("random")) == sorted(crowd.votes.annotators[crowd.parameters["spammers"]].tolist())
    True
    """
    from scipy.special import ndtri

    evidence = evidence or read_evidence(votes, consensus, gold)
    M = votes.n_annotators
    n = np.bincount(votes.annotator, minlength=M)
    same = evidence is vars(consensus).get("leave_one_out")  # its own table of annotators then says the same
    right, unsure = (consensus.right, consensus.unsure) if same else evidence.expected_right()
    known = int((evidence.gold >= 0).sum())
    copied = evidence.dependence.copied
    # where the fit discounted a ring, these votes have other weights
    total = consensus.total if same else evidence.per_annotator(votes.weights.astype(np.float64))
    accuracy = accuracy_with_interval(right, total, unsure, consensus.agreement, known, interval, copied)
    low, high = share_interval(right, total, unsure, interval)
    skill, rules = measures.skills(evidence, useful), rules_in(votes)
    if rules.any():
        own = measures.rule_skills(evidence, useful)
        skill = measures.Skills(*(np.where(rules, *pair) for pair in zip(astuple(own), astuple(skill), strict=True)))
    p: dict[FlagKind, Floats] = {FlagKind.WORSE_THAN_CHANCE: skill.p_worse, FlagKind.RANDOM: skill.p_random}
    p[FlagKind.CONSTANT] = measures.constant_p(evidence)
    bias, bias_error, p[FlagKind.BIAS] = measures.class_bias(evidence)
    p[FlagKind.CONFUSION] = measures.confusion_p(evidence, confusion)
    for kind in (FlagKind.CONSTANT, FlagKind.BIAS, FlagKind.CONFUSION):
        p[kind][rules] = 1.0
    times = None if votes.timestamp is None else measures.seconds(votes.timestamp)
    reach = float(ndtri(0.5 + interval / 2.0))
    columns: dict[str, npt.NDArray[Any]] = {
        "votes": n, **with_interval("accuracy", *accuracy),
        **with_interval("skill", skill.value, skill.value - reach * skill.error, skill.value + reach * skill.error),
        **measures.agreement(votes, interval), **measures.weights(evidence, reach),
        **measures.information(evidence, reach),
    }  # fmt: skip
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
        columns["speed"] = measures.speed(votes, times)
        found_drift, p[FlagKind.DRIFT] = measures.drift(evidence, times, interval)
        columns |= found_drift
    p = {kind: adjusted(value) for kind, value in p.items()}
    flags = _flags(evidence, p, columns, level, np.where(rules, 0.0, high - low))
    against = [p[kind].reshape(M, -1).min(axis=1) for kind in AGAINST]
    if FlagKind.DRIFT in p:
        against.append(np.where(columns["drift"] < 0, p[FlagKind.DRIFT], 1.0))
    columns["suspicion"] = 1.0 - np.minimum.reduce(against)
    return AnnotatorReport(votes.annotators, columns, flags, p, level, votes.kind)


def _flags(
    evidence: LeaveOneOut, p: dict[FlagKind, Floats], columns: dict[str, Any], level: float, width: Floats
) -> tuple[tuple[Flag, ...], ...]:
    """The flags of each annotator. A plainer one silences those that follow from it.

    ``width``: of the interval of the accuracy by the votes alone, without the error of the crowd; 0 for rules.
    """
    least = np.minimum.reduce([value.reshape(len(width), -1).min(axis=1) for value in p.values()])
    few = (Flag(FlagKind.FEW_VOTES),)
    return tuple(
        (_tested(m, p, columns, level, evidence) if least[m] <= level else ()) + (() if width[m] <= FEW else few)
        for m in range(len(width))
    )


def _tested(
    m: int, p: dict[FlagKind, Floats], columns: dict[str, Any], level: float, evidence: LeaveOneOut
) -> tuple[Flag, ...]:
    """The flags of one annotator that rest on a test."""
    classes = evidence.votes.classes.tolist()
    out = []
    constant = int(p[FlagKind.CONSTANT][m].argmin())
    if p[FlagKind.CONSTANT][m, constant] <= level:
        out.append(Flag(FlagKind.CONSTANT, (classes[constant],)))
    else:
        worse = p[FlagKind.WORSE_THAN_CHANCE][m] <= level
        if worse or p[FlagKind.RANDOM][m] <= level:
            out.append(Flag(FlagKind.WORSE_THAN_CHANCE if worse else FlagKind.RANDOM))
        if worse or not out:
            pairs = np.argwhere(p[FlagKind.CONFUSION][m] <= level).tolist()
            pairs = sorted(pairs, key=lambda pair: -evidence.counts[m][pair[0], pair[1]])[:3]  # the most votes first
            out += [Flag(FlagKind.CONFUSION, (classes[k], classes[label])) for k, label in pairs]
        often = int(p[FlagKind.BIAS][m].argmin())
        if p[FlagKind.BIAS][m, often] <= level:
            out.append(Flag(FlagKind.BIAS, (classes[often],)))
    if FlagKind.DRIFT in p and p[FlagKind.DRIFT][m] <= level:
        out.append(Flag(FlagKind.DRIFT, change=float(columns["drift"][m])))
    return tuple(out)


@checked
def coverage_table(votes: Votes, truth: Any = None, *, level: Fraction = 0.95, kind: str | None = None) -> Any:
    """Coverage, overlap and conflict of each annotator, and accuracy where the truth is known.

    Parameters
    ----------
    votes
        Votes of rules, models with a reject option, or any annotators who abstain.
    truth
        True classes: a mapping from item to class, or N codes with -1 for unknown; by default that of the votes.
    level
        The level of the interval of the accuracy.
    kind
        ``"pandas"``, ``"polars"``, ``"pyarrow"`` or ``"dict"``; by default what the votes came from.

    Returns
    -------
    Columns ``annotator``, ``labels`` (the classes that they name), ``votes``; as shares of all items, ``coverage``
    (they name a class), ``overlap`` (another annotator does, too) and ``conflict`` (another one names another class).
    With truth also ``known`` (votes on items whose truth is known), ``accuracy`` and its ends.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[1, 1, -1], [1, 0, -1], [-1, -1, 0], [-1, 0, -1]], missing=-1)
    >>> cw.coverage_table(votes, kind="dict")["conflict"].tolist()
    [0.25, 0.25, 0.0]
    """
    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    m, n = votes.annotator, votes.item
    on_item = np.diff(votes.indptr)[n]
    same = np.bincount(n * K + votes.label, minlength=N * K)[n * K + votes.label]

    def counted(votes_with: Any) -> Any:
        return np.bincount(m, weights=votes_with, minlength=M)

    use = np.bincount(votes.cells(), minlength=M * K).reshape(M, K) > 0
    labels = [", ".join(map(str, votes.classes[row].tolist())) for row in use]
    columns: dict[str, Any] = {
        "annotator": votes.annotators, "labels": np.array(labels, dtype=object),
        "votes": np.bincount(m, minlength=M), "coverage": counted(np.ones(len(m))) / N,
        "overlap": counted(on_item > 1) / N, "conflict": counted(on_item > same) / N,
    }  # fmt: skip
    true = votes.truth if truth is None else votes.encode_truth(votes.truth_of(truth))
    if true is not None:
        known = true[n] >= 0
        right, total = counted(known & (votes.label == true[n])), counted(known)
        columns["known"] = total.astype(np.int64)
        columns |= with_interval("accuracy", *share_with_interval(right, total, np.zeros(M), level))
    return make_frame(columns, kind or votes.kind)


def less_accurate(accuracy: Floats, votes: Floats, margin: float = 0.0) -> npt.NDArray[np.int64]:
    """The annotators whose accuracy is, with its interval, under the median less a margin; the least accurate first.

    The interval is that of their votes alone: the error of the crowd is the same for all.
    """
    _, high = share_interval(np.nan_to_num(accuracy) * votes, votes, np.zeros(len(votes)))
    places = np.flatnonzero(high < np.nanmedian(accuracy) - margin)
    return places[np.argsort(accuracy[places], kind="stable")]
