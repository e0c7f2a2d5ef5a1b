"""Label sets by binary relevance: each label is decided by a method for votes, with annotators shared between labels.

Every label is a question of its own: is it in the item's set or not? The answers are votes (chosen: yes; on offer and
not chosen: no), and any method of the registry turns them into a probability. The same annotators answer all questions:
where the method takes past performance (``history``), their rates on the other labels count as such, as far as labels
are alike.

====================  ===============  ============  =========================================================
symbol                code             shape         equation
====================  ===============  ============  =========================================================
q[n, l]               ``posterior``    N x L         P(label l is in the set of n), from the method
c[m, l, t, s]         ``met``          M x L x 2 x 2 answers s of m where q > 1/2 (t = 1) or not
rest                  ``rest``         M x L x 2 x 2 sum of c over the other labels
mu                    ``mean``                       (rest + crowd) / (n + 1), n answers: m's habits elsewhere
strength[t]           ``strength``     2             the s under which the counts against decided labels are
                                                     most probable, sum over m, l of log DM(c[m, l, t] | h mu)
h                                                    1 / (1 / s + 1 / n): how many answers mu is worth on label l
history               h mu             M x L x 2 x 2 what the method is handed for label l
====================  ===============  ============  =========================================================

Fit, count, learn the strength, and fit again with the histories until the probabilities converge. Counts are against
decided labels: probabilities of a method may leave a doubt on every item, which outweighs the items of a rare label. DM
is the Dirichlet-multinomial distribution; the mean of the *other* labels keeps an answer from counting twice. Labels
with the very same answers are fitted once: a few answers that choose among thousands of labels need few fits.

Reference: M. R. Boutell et al., Learning multi-label scene classification, Pattern Recognition 37 (2004), for binary
relevance; the sharing is crowdwise's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise import registry
from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.constraints import Check, Count, MethodKey, NonNegative, declared, fixed_seed
from crowdwise.core.intervals import row_interval, with_interval
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.model import check_several
from crowdwise.core.numerics import Floats, Ints, dirichlet_multinomial, entropy, maximise_1d
from crowdwise.core.result import Result, some_known
from crowdwise.data.label_sets import LabelSets
from crowdwise.data.truth import encode_sets
from crowdwise.errors import InputError, ParameterError


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelSetConsensus(Result):
    """The set of each item, with the probability of every label. Frozen; saves to and loads from a plain folder.

    Attributes
    ----------
    posterior
        N x L: P(label l is in the set of item n); 0 where the label was not on offer.
    member
        N x L: whether it is taken to be (a probability over one half).
    sets
        The labels of each item, as a list of lists.
    counts, spread
        M x L x 2 x 2 expected answers (annotator, label, truth, answer), and their posterior variance.
    strength
        How many answers an annotator's habits on other labels are worth at most: on items without the label, and on
        items with it; empty where nothing was shared.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("items", "annotators", "labels")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators", "labels", "cells", "rates")
    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "posterior": "NK", "member": "NK", "counts": "MK22", "spread": "MK22", "answers_per_item": "N",
        "answers_per_annotator": "M", "labels_per_answer": "M", "agreement": "M",
    }  # fmt: skip

    answer_type: str = "label-sets"
    items: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    posterior: Floats
    member: npt.NDArray[np.bool_]
    counts: Floats
    spread: Floats
    answers_per_item: Ints
    answers_per_annotator: Ints
    labels_per_answer: Floats
    agreement: Floats
    """The share of each annotator's yes and no that the sets confirm."""
    strength: Floats = field(default_factory=lambda: np.empty(0))

    def __repr__(self) -> str:
        size = f"{len(self.items):,} items, {len(self.annotators):,} annotators, {len(self.labels)} labels"
        return f"LabelSetConsensus({self.method}: {size}; {self.member.sum(axis=1).mean():.2f} labels per item)"

    @property
    def sets(self) -> list[list[Any]]:
        return [self.labels[row].tolist() for row in self.member]

    def truth_table(self, truth: Any) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """N x L booleans and for which items they are known, from a mapping of items to labels or such an array."""
        return encode_sets(truth, self.items, self.labels)

    def score(self, truth: Any) -> float:
        """The share of items whose set is right as a whole (subset accuracy). ``truth`` is a mapping from item to
        labels, or N x L booleans."""
        true, known = self.truth_table(truth)
        return float((self.member == true).all(axis=1)[some_known(known)].mean())

    def _rates(self, counts: Floats, spread: Floats, level: float) -> dict[str, Floats]:
        yes, no = ([x.ravel() for x in row_interval(counts, spread, t, level)] for t in (1, 0))
        return with_interval("sensitivity", *yes) | with_interval("specificity", *no)

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        q, (N, L) = self.posterior, self.posterior.shape
        if table == "items":
            sure = np.where(self.member, q, 1.0 - q)
            both = np.stack([q, 1.0 - q], axis=2).reshape(-1, 2)
            return {
                "item": self.items,
                "labels": np.array(["|".join(map(str, names)) for names in self.sets], dtype=object),
                "size": self.member.sum(axis=1), "probability": np.exp(np.log(np.maximum(sure, 1e-300)).sum(axis=1)),
                "entropy": entropy(both).reshape(N, L).sum(axis=1), "answers": self.answers_per_item,
            }  # fmt: skip
        if table == "labels":
            return {
                "label": self.labels, "items": self.member.sum(axis=0), "share": q.mean(axis=0),
                **self._rates(self.counts.sum(axis=0), self.spread.sum(axis=0), level),
            }  # fmt: skip
        if table == "cells":
            of = {"item": np.repeat(self.items, L), "label": np.tile(self.labels, N)}
            return of | {"probability": q.ravel(), "member": self.member.ravel()}
        if table == "rates":
            of = {"annotator": np.repeat(self.annotators, L), "label": np.tile(self.labels, len(self.annotators))}
            return of | self._rates(self.counts, self.spread, level)
        return {
            "annotator": self.annotators, "answers": self.answers_per_annotator,
            **self._rates(self.counts.sum(axis=1), self.spread.sum(axis=1), level),
            "agreement": self.agreement, "labels_per_answer": self.labels_per_answer,
        }  # fmt: skip


STRENGTH = (1e-2, 1e4)
"""The range of the strength of sharing."""


def habits(counts: Floats) -> tuple[Floats, Floats]:
    """mu and n: each annotator's habits on the other labels (M x L x 2 x 2), and how many answers they rest on."""
    rest = counts.sum(axis=1, keepdims=True) - counts
    crowd = rest.sum(axis=0, keepdims=True) + 0.5
    crowd = crowd / crowd.sum(axis=3, keepdims=True)
    n = rest.sum(axis=3, keepdims=True)
    return (rest + crowd) / (n + 1.0), n


def worth(strength: Floats, n: Floats) -> Floats:
    """h = 1 / (1 / s + 1 / n): habits differ between labels (1 / s), and are themselves known from n answers only."""
    s = strength[None, None, :, None]
    return np.asarray(s * n / (s + n))


def decided(answers: LabelSets, q: Floats) -> Floats:
    """The counts c[m, l, t, s] if every label is given to the items that probably have it."""
    M, L = answers.n_annotators, answers.n_labels
    out = np.empty((M, L, 2, 2))
    for labels in answers.alike():
        votes, k = answers.votes_at(labels[0]), labels[0]
        true = np.repeat(q[answers.offering(k), k] > 0.5, np.diff(votes.indptr))
        cell = votes.annotator.astype(np.int64) * 4 + true * 2 + votes.label
        out[:, labels] = np.bincount(cell, weights=votes.weight, minlength=4 * M).reshape(M, 1, 2, 2)
    return out


def learn_strength(counts: Floats) -> Floats:
    """For each truth, the s that makes the counts of all annotators and labels most probable. These are counts against
    decided labels: expected ones are fractions, which vary less, so that all labels would look alike."""
    mean, n = habits(counts)
    out = np.empty(2)
    low, high = np.log(STRENGTH)
    for t in (0, 1):
        met = (n[:, :, t, 0] > 0) & (counts[:, :, t].sum(axis=2) > 0)
        c, mu, size = counts[:, :, t][met], mean[:, :, t][met], n[:, :, t][met]

        def fit(log_s: float, c: Floats = c, mu: Floats = mu, size: Floats = size) -> float:
            s = np.exp(log_s)
            return dirichlet_multinomial(c, mu * (s * size / (s + size)))

        out[t] = np.exp(maximise_1d(fit, float(low), float(high), tol=1e-2)) if met.any() else STRENGTH[0]
    return out


@declared
class BinaryRelevance(AnswerModel[LabelSets, LabelSetConsensus]):
    """Each label by a method for votes, with what is learned of annotators shared between labels.

    Parameters
    ----------
    base, base_params
        The method, a key of ``crowdwise methods``, and its parameters as a dict.
    share
        Use annotators' rates on other labels as past performance: ``None``, where the method takes it (its parameter
        ``history``); ``True``, with an error where it does not; ``False``, never.
    max_iter, tol
        Stop after so many rounds of sharing, or when probabilities change by less than ``tol`` on average.
    random_state
        Seed of the method, where it has one.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.label_sets(100, n_labels=5, n_annotators=12, answers_per_item=4, random_state=0)
    >>> found = cw.aggregate(crowd.answers, "binary-relevance")
    >>> cw.metrics.hamming_loss(found, crowd.truth).value < 0.15
    True
    """

    key: ClassVar[str] = "binary-relevance"
    table: ClassVar[type] = LabelSets
    result: ClassVar[type] = LabelSetConsensus

    base: MethodKey = registry.DEFAULT
    base_params: Annotated[Any, Check(lambda v: isinstance(v, dict), "a dict of parameters of the base")] | None = None
    share: bool | None = None
    max_iter: Count = 20
    tol: NonNegative = 1e-3

    def _check_together(self) -> None:
        super()._check_together()
        method, params = registry.find(self.base).load(), self.base_params or {}
        if method.needs_gold:
            raise ParameterError(f"base={self.base!r} needs gold labels, which cannot be given for label sets.")
        registry.create(self.base, **params)
        if self.share and "history" not in method.parameters():
            raise ParameterError(
                f"share=True: {self.base} takes no past performance. Use a method with a parameter history, such as "
                f"{registry.DEFAULT} or dawid-skene, or share=False."
            )
        if params.get("history") is not None and self.share is not False:
            raise ParameterError("base_params has a history of its own: give share=False, so that it is not replaced.")

    def _fit(self, answers: LabelSets, callback: Callback | None) -> dict[str, Any]:
        if answers.n_labels < 1:
            raise InputError("There are no labels.")
        if not registry.create(self.base, **(self.base_params or {})).single_annotator:
            check_several(answers, self.key, "Give base='majority', which takes the sets as they are.")
        takes = "history" in registry.find(self.base).load().parameters()
        shares = answers.n_labels > 1 and (takes if self.share is None else self.share)
        seed = fixed_seed(self.random_state)
        rounds, strength, history = Rounds(self.max_iter, answers.n_answers, callback), np.empty(0), None
        q, met = np.full((len(answers), answers.n_labels), np.inf), np.empty(0)
        for _ in rounds:
            before = q
            q, counts, spread = self._round(answers, history, seed)
            change = float(np.abs(q - before).mean())
            rounds.reached(moved=change, converged=not shares or change <= self.tol)
            if rounds.another():
                now = decided(answers, q)
                met = now if history is None else 0.5 * (met + now)  # else decisions may go round in circles
                strength, (mean, n) = learn_strength(met), habits(met)
                history = worth(strength, n) * mean
        estimates = {"posterior": q, "counts": counts, "spread": spread, "strength": strength}
        return estimates | rounds.outcome | described(answers, q > 0.5)

    def _round(self, answers: LabelSets, history: Floats | None, seed: int) -> tuple[Floats, Floats, Floats]:
        """Every label once: probabilities, counts and their variance."""
        N, M, L = len(answers), answers.n_annotators, answers.n_labels
        q, counts, spread = np.zeros((N, L)), np.zeros((M, L, 2, 2)), np.zeros((M, L, 2, 2))
        names = answers.annotators.tolist()
        known = registry.find(self.base).load().parameters()
        for labels in answers.alike():  # the same answers give the same result: they are fitted once
            votes, k = answers.votes_at(labels[0]), labels[0]
            if votes.n_votes == 0:
                continue
            params = dict(self.base_params or {})
            if "random_state" in known:
                params.setdefault("random_state", seed)
            if history is not None:
                params["history"] = dict(zip(names, history[:, k], strict=True))
                if isinstance(known.get("prior"), str):  # learned from smooth histories, it would be too strong:
                    params.setdefault("prior", 2.0)  # two votes for each truth, spread evenly
            consensus = registry.create(self.base, **params).fit(votes).consensus_
            q[np.ix_(answers.offering(k), labels)] = consensus.posterior[:, 1:]
            counts[:, labels], spread[:, labels] = consensus.counts[:, None], consensus.spread[:, None]
        return q, counts, spread


def described(answers: LabelSets, member: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """The fields of a result that follow from the answers and the sets."""
    M = answers.n_annotators
    per_annotator = np.bincount(answers.annotator, minlength=M)
    size = np.bincount(answers.annotator, weights=np.diff(answers.set_indptr), minlength=M)
    asked, agrees = np.zeros(M), np.zeros(M)
    for labels in answers.alike():
        votes, k, times = answers.votes_at(labels[0]), labels[0], len(labels)
        right = votes.label == np.repeat(member[answers.offering(k), k], np.diff(votes.indptr))
        agrees += times * np.bincount(votes.annotator, weights=right, minlength=M)
        asked += times * np.bincount(votes.annotator, minlength=M)
    return {
        "labels": answers.labels, "member": member, "answers_per_item": np.diff(answers.indptr),
        "answers_per_annotator": per_annotator,
        "labels_per_answer": np.divide(size, per_annotator, out=np.full(M, np.nan), where=per_annotator > 0),
        "agreement": np.divide(agrees, asked, out=np.full(M, np.nan), where=asked > 0),
    }  # fmt: skip
