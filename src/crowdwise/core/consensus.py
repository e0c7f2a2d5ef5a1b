"""The result of a fit to votes: labels with probabilities, and what was learned about annotators."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import checked
from crowdwise.core.dependence import (
    NONE,
    SHARES,
    USUAL,
    Dependence,
    accuracy_interval,
    correct,
    correct_in_place,
    corrected,
    is_large,
    row_blocks,
    votes_per_item,
)
from crowdwise.core.em import Part, count_moments
from crowdwise.core.gold_regression import by_votes_alone
from crowdwise.core.leave_one_out import LeaveOneOut, accuracies, accuracy_with_interval, is_sparse, matrices_fit
from crowdwise.core.numerics import TIE, Floats, Ints, clamp, entropy, normalise, share_interval
from crowdwise.core.prediction_sets import Inside, PredictionSets, check_random, conformal_thresholds, members
from crowdwise.core.result import Result, some_known
from crowdwise.core.vote_parts import Posterior, VoteParts, usual
from crowdwise.core.vote_sums import agreement_counts
from crowdwise.data.frames import make_frame
from crowdwise.data.truth import check_drawn, encode_classes
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError

MAX_CELLS = 2**27
"""The most cells (annotators x classes x classes) whose counts a consensus keeps: a gigabyte a table."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class VoteResult(Result):
    """What every result of votes says about the crowd, wherever the items are: in memory (:class:`Consensus`), or in
    files and on a cluster (:class:`~crowdwise.core.consensus_in_parts.ConsensusInParts`)."""

    NAMES: ClassVar[tuple[str, ...]] = ("items", "annotators", "classes")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators", "confusion")
    UNIT: ClassVar[str] = "items"

    answer_type: str = "votes"
    classes: npt.NDArray[Any]
    prior: Floats
    total: Floats
    """The number (weight) of each annotator's votes."""
    agreement: Floats
    """The share of each annotator's votes that say what the consensus says."""
    votes_per_annotator: Ints
    confusion: Floats | None = None
    log_likelihood: float | None = None
    dependence: Dependence = NONE
    judged: Floats | None = None
    """2 x M: :attr:`right` and :attr:`unsure`, where they have been computed."""
    expected_right: float | None = None
    """The mean probability that labels of items without a gold label are right, where it has been computed."""
    annotator_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.method}: {self.n_items:,} {self.UNIT}, {len(self.annotators):,} annotators, "
            f"{len(self.classes)} classes; {self.iterations} iterations)"
        )

    @property
    @abstractmethod
    def n_items(self) -> int:
        """The number of items."""

    @property
    @abstractmethod
    def n_gold(self) -> int:
        """The number of gold labels."""

    @property
    def n_votes(self) -> int:
        """The number of votes."""
        return self.n_answers

    @property
    def note(self) -> str:
        """The notes, one per line."""
        return "\n".join(self.notes)

    def expected_accuracy(self, level: float = 0.95) -> tuple[float, float, float]:
        """The share of labels that are expected to be right, and an interval for it. Labels that were given as gold are
        left out; NaN without others.

        It goes by the method's own probabilities, corrected for votes that err together; where these are shares of
        votes, by matrices read off the votes (:mod:`crowdwise.core.leave_one_out`). The interval is as wide as crowds
        differ (see :mod:`crowdwise.core.dependence`), and narrower with gold labels.
        """
        return accuracy_interval(self._expected_right, self.n_gold, level, self.dependence.copied)

    @cached_property
    def _expected_right(self) -> float:
        return float("nan") if self.expected_right is None else self.expected_right

    @abstractmethod
    def _judge(self) -> tuple[Floats, Floats]:
        """:attr:`right` and :attr:`unsure`, where the fit did not leave them."""

    @cached_property
    def _judged(self) -> Floats:
        return np.stack(self._judge()) if self.judged is None else self.judged

    @property
    def right(self) -> Floats:
        """M: the expected number (weight) of each annotator's right votes, by the corrected posterior."""
        return np.asarray(self._judged[0])

    @property
    def unsure(self) -> Floats:
        """M: the posterior variance of ``right``."""
        return np.asarray(self._judged[1])

    def accuracy(self, level: float = 0.95) -> tuple[Floats, Floats, Floats]:
        """Each annotator's accuracy and the ends of its interval, by the corrected posterior.

        The interval allows for the error that the crowd has in common (:mod:`crowdwise.core.leave_one_out`).
        """
        copied = self.dependence.copied
        return accuracy_with_interval(self.right, self.total, self.unsure, self.agreement, self.n_gold, level, copied)

    def _accuracy_columns(self, level: float) -> dict[str, Any]:
        return dict(zip(("accuracy", "accuracy_low", "accuracy_high"), self.accuracy(level), strict=True))

    def _annotator_table(self, level: float) -> dict[str, Any]:
        own = {"annotator": self.annotators, "votes": self.votes_per_annotator}
        return own | self._accuracy_columns(level) | {"agreement": self.agreement} | self.annotator_columns


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Consensus(VoteResult):
    """What a fit to votes found out. Frozen; saves to and loads from a plain folder.

    The fields that all results have are those of :class:`~crowdwise.core.result.Result`.

    Attributes
    ----------
    posterior
        N x K: P(truth of item n is class k, given all), corrected for dependent votes where the method does that.
    dependence
        The correlation of votes on an item that the posterior allows for, where it comes from, and ``reason``, a
        sentence (:class:`~crowdwise.core.dependence.Dependence`).
    labels
        The class of each item, by name (in the order of ``items``).
    prior
        K: the class distribution.
    confusion
        M x K x K: P(annotator m says l, given truth k), axis 1 the truth; ``None`` where the method has none.
    counts
        M x K x K expected counts (annotator, truth, label): the evidence; ``None`` where there are too many to keep.
    log_likelihood
        Of the votes, at the end.
    """

    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "posterior": "NK", "prior": "K", "label_codes": "N<K", "total": "M", "agreement": "M", "counts": "MKK",
        "spread": "MKK", "votes_per_item": "N", "votes_per_annotator": "M", "weight_per_item": "N", "confusion": "MKK",
        "gold": "N<K", "item_prior": "NK", "uncorrected": "NK", "judged": "2M", "annotator_columns": "M",
        "item_columns": "N",
    }  # fmt: skip

    items: npt.NDArray[Any]
    posterior: Floats
    label_codes: npt.NDArray[np.int32]
    counts: Floats | None = None
    spread: Floats | None = None
    """The posterior variance of the counts."""
    votes_per_item: Ints
    weight_per_item: Floats | None = None
    """The weight of the votes on each item, where votes have weights."""
    gold: Ints | None = None
    """N class codes of the items whose truth was given, -1 for the others; ``None`` where none was."""
    item_prior: Floats | None = None
    """N x K: log P(class of item n) before any vote, where a classifier or the user gave one."""
    uncorrected: Floats | None = None
    """N x K: the posterior before the correction; ``None`` where there was none, or too little room to keep both."""
    vote_shares: bool = False
    """Whether the posterior is vote shares, not the product of what votes say."""
    measured: Dependence | None = None
    """The dependence with what gold labels say, where the posterior was not corrected by it."""
    votes: Votes | None = field(default=None, repr=False)
    """The votes that they are computed from; not saved."""
    item_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        sure = float(self.posterior.max(axis=1).mean()) if len(self.posterior) else float("nan")
        return (
            f"{type(self).__name__}({self.method}: {len(self.items):,} {self.UNIT}, {len(self.annotators):,} "
            f"annotators, {len(self.classes)} classes; mean probability {sure:.3f}, {self.iterations} iterations)"
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dependence", "measured"):  # as a saved one has it
            if isinstance(value := getattr(self, name), dict):
                object.__setattr__(self, name, Dependence.of(value))

    @property
    def independent_posterior(self) -> Floats:
        """N x K: the posterior of the method as if votes on an item were independent given its class."""
        if self.uncorrected is not None:
            return self.uncorrected
        if self.dependence.source == "none":
            return self.posterior
        return correct_in_place(self.posterior.copy(), self._weight_per_item(), self.dependence, back=True)

    def _weight_per_item(self) -> Floats:
        return self.votes_per_item.astype(np.float64) if self.weight_per_item is None else self.weight_per_item

    @cached_property
    def corrected_posterior(self) -> Floats:
        """N x K: the posterior that allows for dependent votes, whether the method was asked for it or not.

        What is stated or decided (expected accuracy, items to review, thresholds) goes by it.
        """
        if self.dependence.source != "none":
            return self.posterior
        dependence = SHARES if self.vote_shares else self.shown_dependence
        return clamp(correct(self.posterior, self._weight_per_item(), dependence, self.item_prior), self.gold)

    @cached_property
    def shown_dependence(self) -> Dependence:
        """The dependence that the posterior was corrected by; where it was not, the usual one, with gold labels."""
        if self.dependence.source not in ("none", "shares"):
            return self.dependence
        if self.measured is not None:
            return self.measured
        if self.votes is None:
            return USUAL
        parts, known = VoteParts.whole(self.votes, self.gold, self.item_prior), self.dependence
        return usual(parts, lambda _: self.independent_posterior, shared_prior=known.shared_prior, kind=known.kind)

    @cached_property
    def _expected_right(self) -> float:
        if self.expected_right is not None:
            return self.expected_right
        q = self.stated_posterior
        rows = np.arange(len(q)) if self.gold is None else np.flatnonzero(self.gold < 0)
        return float(q[rows, self.label_codes[rows]].mean()) if len(rows) else float("nan")

    @property
    def stated_posterior(self) -> Floats:
        """N x K: the posterior by which the expected accuracy is stated."""
        by_votes = self.vote_shares and self.votes is not None and matrices_fit(self.votes)
        return self.leave_one_out.posterior() if by_votes else self.corrected_posterior

    @cached_property
    def leave_one_out(self) -> LeaveOneOut:
        """The posterior of each vote's item without that vote: computed when first asked for, then kept."""
        q = self.independent_posterior
        return LeaveOneOut.of(self._own_votes(), q, self.gold, self.item_prior, self.shown_dependence)

    def _judge(self) -> tuple[Floats, Floats]:
        # Computed when first asked for: it costs as much as twenty passes over the votes.
        if "leave_one_out" in vars(self):
            return self.leave_one_out.expected_right()
        votes = self._own_votes()
        q = self.posterior if is_sparse(votes, self.item_prior) else self.independent_posterior
        return accuracies(votes, q, self.gold, self.item_prior, self.shown_dependence)

    def _own_votes(self) -> Votes:
        if self.votes is None:
            raise InputError("This consensus has neither its votes nor its annotators' right votes: fit it again.")
        return self.votes

    @property
    def labels(self) -> npt.NDArray[Any]:
        return self.classes[self.label_codes]

    @property
    def item_table(self) -> Any:
        """One row per item: item, label, probability, entropy (bits), votes, and what the method adds."""
        return self.to_frame("items")

    @property
    def annotator_table(self) -> Any:
        """One row per annotator.

        Columns: annotator, votes, accuracy with its 95 % interval, agreement with the consensus, and what the method
        adds, with 95 % intervals (``NAME_low``, ``NAME_high``).
        """
        return self.to_frame("annotators")

    def to_frame(
        self, table: str = "items", *, kind: str | None = None, probabilities: bool = False, level: float = 0.95
    ) -> Any:
        """A table of the result.

        Parameters
        ----------
        table
            ``"items"``, ``"annotators"`` or ``"confusion"`` (one row per annotator, truth and label).
        kind
            ``"pandas"``, ``"polars"``, ``"pyarrow"`` or ``"dict"``; by default what the votes came from.
        probabilities
            With ``"items"``: also the probability of every class, in columns ``p(class)``.
        level
            The level of the intervals of accuracies and confusions; those of what the method adds are at 95 %.
        """
        self._check_table(table, level)
        more = probability_columns(self.classes, self.posterior) if probabilities and table == "items" else {}
        return make_frame(self._columns(table, level) | more, kind or self.kind)

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table == "items":
            return self._item_table()
        return self._annotator_table(level) if table == "annotators" else self._confusion_table(level)

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.items)

    @property
    def items_per_class(self) -> Ints:
        """K: how many items have each label."""
        return np.bincount(self.label_codes, minlength=len(self.classes))

    @property
    def n_gold(self) -> int:
        """The number of gold labels."""
        return 0 if self.gold is None else int((self.gold >= 0).sum())

    def confusion_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """The two ends of an interval for every entry of every annotator's confusion matrix (M x K x K each)."""
        counts, spread = self.expected_counts()
        total = np.broadcast_to(counts.sum(axis=2, keepdims=True), counts.shape)
        p = (counts + 0.5) / (total + 1.0)
        # Var of sum over votes of 1[truth = k] (1[label = l] - p): (1-p)^2 from votes for l, p^2 from the others.
        rest = spread.sum(axis=2, keepdims=True) - spread
        return share_interval(counts, total, (1.0 - p) ** 2 * spread + p**2 * rest, level)

    def crowd_confusion(self) -> Floats:
        """K x K: how the crowd as a whole answers, given the truth."""
        K = len(self.classes)
        return normalise(self.expected_counts()[0].sum(axis=0) + 1.0 / K, axis=1)

    def expected_counts(self) -> tuple[Floats, Floats]:
        """M x K x K (annotator, truth, label) each: expected counts of votes, and their posterior variance."""
        if self.counts is None or self.spread is None:
            M, K = len(self.annotators), len(self.classes)
            raise InputError(
                f"No counts were kept: {M:,} annotators x {K:,} x {K:,} classes are too many. "
                "Merge rare classes, or look at fewer annotators: votes.only([...])."
            )
        return self.counts, self.spread

    def score(self, truth: Any) -> float:
        """Accuracy on items with known truth, ties split.

        The truth is a mapping from item to class, or N class codes with -1 for unknown.
        """
        codes = self.truth_codes(truth)
        known = np.flatnonzero(some_known(codes >= 0))
        right = 0.0
        for rows in row_blocks(self.posterior):
            at = known[np.searchsorted(known, rows.start) : np.searchsorted(known, rows.stop)]
            q = self.posterior[at]
            tied = q >= q.max(axis=1, keepdims=True) - TIE
            right += float((tied[np.arange(len(at)), codes[at]] / tied.sum(axis=1)).sum())
        return right / len(known)

    def truth_codes(self, truth: Any) -> Ints:
        """N class codes (-1 unknown) from such codes or from a mapping of items to classes.

        Items with gold are unknown here: their labels were given, so that they say nothing of the others.
        """
        codes = encode_classes(truth, self.items, self.classes)
        return codes if self.gold is None else np.where(self.gold >= 0, -1, codes)

    @checked
    def sets(
        self, coverage: Inside = 0.95, *, gold: Any, by_class: bool = False, confidence: Inside | None = None
    ) -> PredictionSets:
        """For each item the classes that hold its true one with this probability, whatever the crowd.

        ``gold`` are labels of items drawn at random (:func:`crowdwise.draw_for_gold`) that the fit has not seen. With
        ``by_class`` it holds for the items of each class; with a ``confidence``, for this share of these very items
        (:mod:`crowdwise.core.prediction_sets`).
        """
        check_drawn(gold, self.items)
        known = np.asarray(encode_classes(gold, self.items, self.classes))
        drawn, q = known >= 0, self.corrected_posterior
        if not drawn.any():
            raise InputError("sets: no item has a gold label. Draw some at random: crowdwise certify --ask 100.")
        if self.gold is not None and ((self.gold >= 0) & drawn).any():
            raise InputError("sets: the consensus was fitted with some of these gold labels: fit it without them.")
        check_random(q.max(axis=1), drawn)
        others = int((~drawn).sum())
        least, exact = conformal_thresholds(q[drawn], known[drawn], coverage, by_class, confidence, others)
        member = members(q, least)
        member[drawn] = np.arange(len(self.classes)) == known[drawn, None]
        return PredictionSets(self.items, self.classes, member, exact, least, self.kind)

    @cached_property
    def gold_by_votes(self) -> tuple[Floats, Ints] | None:
        """The posterior of the gold items by their votes and what the other items teach, and their true classes.

        What gold measures goes by it. ``None`` where there is no gold, or where the votes were not kept.
        """
        if self.gold is None or self.votes is None:
            return None
        known = np.flatnonzero(self.gold >= 0)
        dependence = replace(self.shown_dependence, source="shares" if self.vote_shares else "votes")
        if self.vote_shares or len(self.annotators) * len(self.classes) ** 2 > MAX_CELLS:
            q = self.votes[known].shares()
        else:
            q = by_votes_alone(self.votes, self.independent_posterior, self.gold)
        return correct(q, self._weight_per_item()[known], dependence), self.gold[known]

    def _item_table(self) -> dict[str, Any]:
        votes = self.votes_per_item
        return item_columns(self.items, self.classes, self.label_codes, self.posterior, votes) | self.item_columns

    def _confusion_table(self, level: float) -> dict[str, Any]:
        if self.confusion is None:
            raise ParameterError(
                f"{self.method} estimates no confusion matrices. Use a method that does, or the table 'annotators'."
            )
        M, K, _ = self.confusion.shape
        low, high = self.confusion_interval(level)
        m, k, label = (a.ravel() for a in np.indices((M, K, K)))
        return {
            "annotator": self.annotators[m], "truth": self.classes[k], "label": self.classes[label],
            "probability": self.confusion.ravel(), "low": np.minimum(low, self.confusion).ravel(),
            "high": np.maximum(high, self.confusion).ravel(), "count": self.expected_counts()[0].ravel(),
        }  # fmt: skip

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write it to a folder, all or nothing (see :meth:`Result.save <crowdwise.core.result.Result.save>`)."""
        measured = self.shown_dependence if self.dependence.source in ("none", "shares") else None
        known: dict[str, Any] = {"judged": self._judged, "measured": measured, "expected_right": self._expected_right}
        return Result.save(replace(self, **known, votes=None), folder)


@dataclass(frozen=True)
class Outcome:
    """What a fit returns, before it becomes a consensus."""

    posterior: Floats
    prior: Floats
    confusion: Floats | None = None
    log_likelihood: float | None = None
    trace: Floats = field(default_factory=lambda: np.empty(0))
    iterations: int = 0
    converged: bool = True
    annotator_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    item_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    item_prior: Floats | None = None
    """N x K: log P(class of item n) without votes, where the method has a classifier."""
    gold_by_votes: Posterior | None = None
    """The posterior of the gold items by their votes and what the other items teach: :mod:`core.gold_regression`."""
    notes: list[str] = field(default_factory=list)
    """Sentences on what was decided and why."""
    kind: str | None = None
    """The kind of the crowd, where the method looked at it, or was told."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the result, where that is a subclass of :class:`Consensus`."""


def probability_columns(classes: npt.NDArray[Any], q: Floats) -> dict[str, Floats]:
    """A column for each class of an N x K posterior."""
    return {f"p({name})": q[:, k] for k, name in enumerate(classes.tolist())}


def item_columns(items: Any, classes: Any, codes: npt.NDArray[np.int32], q: Floats, votes: Ints) -> dict[str, Any]:
    """The table of items, from their class codes, posterior and numbers of votes."""
    p = q[np.arange(len(codes)), codes]
    return {"item": items, "label": classes[codes], "probability": p, "entropy": entropy(q), "votes": votes}


def consensus_fields(
    votes: Votes, outcome: Outcome, labels: npt.NDArray[np.int32], gold: Ints | None = None,
    item_prior: Floats | None = None, dependence: Dependence = NONE,
) -> dict[str, Any]:  # fmt: skip
    """What a consensus holds besides the names and how it was made."""
    M, K = votes.n_annotators, votes.n_classes
    before = item_prior if outcome.item_prior is None else outcome.item_prior
    q = sure = outcome.posterior
    uncorrected = counts = spread = None
    if dependence.source not in ("none", "shares") and is_large(q, before) and dependence.weights is None:
        correct_in_place(q, votes_per_item(votes), dependence)
    elif dependence.source != "none":
        # The doubt would make most of the counts of a rare class, which it has on every item.
        uncorrected = q
        sure = corrected(uncorrected, votes, replace(dependence, doubt=0.0), before, gold)
        q = corrected(uncorrected, votes, dependence, before, gold) if dependence.doubt else sure
    if M * K * K <= MAX_CELLS:
        counts, spread = count_moments(Part.of(votes), sure)
    per_annotator, agrees = agreement_counts(votes, labels)
    fitted = {
        f.name: getattr(outcome, f.name) for f in fields(outcome) if f.name not in ("more", "gold_by_votes", "kind")
    }
    return fitted | outcome.more | {
        "posterior": q, "uncorrected": uncorrected, "dependence": dependence,
        "classes": votes.classes, "label_codes": labels, "votes": votes, "counts": counts, "spread": spread,
        "total": per_annotator.astype(np.float64) if votes.weight is None else np.bincount(
            votes.annotator, weights=votes.weight, minlength=M
        ),
        "item_prior": before,
        "gold": None if gold is None or not (gold >= 0).any() else gold,
        "weight_per_item": None if votes.weight is None else votes_per_item(votes),
        "votes_per_item": np.diff(votes.indptr), "votes_per_annotator": per_annotator,
        "agreement": np.divide(agrees, per_annotator, out=np.full(M, np.nan), where=per_annotator > 0),
    }  # fmt: skip
