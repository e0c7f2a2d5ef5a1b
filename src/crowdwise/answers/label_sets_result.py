"""The result of a fit to label sets: the set of each item with probabilities, and the rates of the annotators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.core.intervals import row_interval, with_interval
from crowdwise.core.numerics import Floats, Ints, entropy
from crowdwise.core.result import Result
from crowdwise.core.truth_scores import some_known
from crowdwise.data.truth import encode_sets


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

    NAMES: ClassVar[tuple[str, ...]] = ("item_names", "annotator_names", "labels")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators", "labels", "cells", "rates")

    answer_type: str = "label-sets"
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
        return (
            f"LabelSetConsensus({self.method}: {len(self.item_names):,} items, {len(self.annotator_names):,} "
            f"annotators, {len(self.labels)} labels; {self.member.sum(axis=1).mean():.2f} labels per item)"
        )

    @property
    def sets(self) -> list[list[Any]]:
        return [self.labels[row].tolist() for row in self.member]

    def truth_table(self, truth: Any) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """N x L booleans and for which items they are known, from a mapping of items to labels or such an array."""
        return encode_sets(truth, self.item_names, self.labels)

    def score(self, truth: Any) -> float:
        """The share of items whose set is right as a whole (subset accuracy). ``truth`` is a mapping from item to
        labels, or N x L booleans."""
        true, known = self.truth_table(truth)
        return float((self.member == true).all(axis=1)[some_known(known)].mean())

    def _rates(self, counts: Floats, spread: Floats, level: float) -> dict[str, Floats]:
        out: dict[str, Floats] = {}
        for t, name in ((1, "sensitivity"), (0, "specificity")):
            value, low, high = (x.ravel() for x in row_interval(counts, spread, t, level))
            out |= with_interval(name, value, low, high)
        return out

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        q, (N, L) = self.posterior, self.posterior.shape
        if table == "items":
            sure = np.where(self.member, q, 1.0 - q)
            both = np.stack([q, 1.0 - q], axis=2).reshape(-1, 2)
            return {
                "item": self.item_names,
                "labels": np.array(["|".join(map(str, some)) for some in self.sets], dtype=object),
                "size": self.member.sum(axis=1), "probability": np.exp(np.log(np.maximum(sure, 1e-300)).sum(axis=1)),
                "entropy": entropy(both).reshape(N, L).sum(axis=1), "answers": self.answers_per_item,
            }  # fmt: skip
        if table == "labels":
            return {
                "label": self.labels, "items": self.member.sum(axis=0), "share": q.mean(axis=0),
                **self._rates(self.counts.sum(axis=0), self.spread.sum(axis=0), level),
            }  # fmt: skip
        if table == "cells":
            n, label = (a.ravel() for a in np.indices((N, L)))
            return {
                "item": self.item_names[n], "label": self.labels[label], "probability": q.ravel(),
                "member": self.member.ravel(),
            }  # fmt: skip
        if table == "rates":
            m, label = (a.ravel() for a in np.indices(self.counts.shape[:2]))
            return {
                "annotator": self.annotator_names[m], "label": self.labels[label],
                **self._rates(self.counts, self.spread, level),
            }  # fmt: skip
        return {
            "annotator": self.annotator_names, "answers": self.answers_per_annotator,
            **self._rates(self.counts.sum(axis=1), self.spread.sum(axis=1), level),
            "agreement": self.agreement, "labels_per_answer": self.labels_per_answer,
        }  # fmt: skip
