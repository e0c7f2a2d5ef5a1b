"""The result of a fit to votes in parts: parameters, and the consensus of each part when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import probability_columns
from crowdwise.core.dependence import NONE, SHARES, Dependence, correct, votes_per_item
from crowdwise.core.numerics import Floats, clamp, decide, entropy
from crowdwise.core.vote_parts import Posterior, VotePart, VoteParts, shown_dependence
from crowdwise.data.votes import Votes


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedParts:
    """What a fit to votes in parts found out. The posterior is computed part by part, and never kept.

    Attributes
    ----------
    method, prior, confusion, dependence, trace, iterations, converged, notes
        As in :class:`~crowdwise.Consensus`.
    model, parts
        The model that was fitted, and the votes.
    """

    method: str
    model: Any
    parts: VoteParts
    independent: Posterior
    """The posterior of a part as if votes on an item were independent given its class."""
    prior: Floats
    ties: str
    random_state: Any
    confusion: Floats | None
    dependence: Dependence
    trace: Floats = field(default_factory=lambda: np.empty(0))
    iterations: int = 0
    converged: bool = True
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, model: Any, parts: VoteParts, found: dict[str, Any]) -> FittedParts:
        """The result of a model that was fitted, with the stage of dependence that its parameters ask for."""
        dependence, by_votes = NONE, found.pop("gold_by_votes", None)
        if model.dependence == "auto":
            dependence = SHARES if model.vote_shares else shown_dependence(parts, found["independent"], by_votes)
        elif model.dependence != "none":
            dependence = Dependence(float(model.dependence), "given", weight=0.0)
        notes = found.pop("notes", []) + ([] if dependence.source == "none" else [dependence.reason])
        return cls(
            method=model.key, model=model, parts=parts, ties=model.ties, random_state=model.random_state,
            dependence=dependence, notes=notes, **found,
        )  # fmt: skip

    def consensus(self) -> Iterator[tuple[VotePart, npt.NDArray[np.int32], Floats]]:
        """Each part with the class codes of its items, and their (corrected) N x K posterior."""
        rng = np.random.default_rng(self.random_state)
        for part in self.parts:
            yield part, *self.decided(part, self.independent(part), rng)

    def decided(
        self, part: VotePart, independent: Floats, rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.int32], Floats]:
        """The class codes of the items of a part, and their corrected posterior, from that of independent votes."""
        first = q = independent
        if self.dependence.source != "none":
            q = clamp(correct(q, votes_per_item(part.votes), self.dependence), part.gold)
        return decide(q if self.dependence.bias else first, self.prior, self.ties, rng), q

    def predictor(self) -> Callable[[Votes], Floats]:
        """The posterior of new votes in the codes of the fit (unseen annotators have codes after the last one), as if
        votes on an item were independent; a pass over the parts where it needs the expected counts."""
        if hasattr(self.model, "params_"):
            self.model.stats_ = self.parts.expect(self.model.params_)
        return cast("Callable[[Votes], Floats]", self.model._predict)

    def tables(self) -> Iterator[dict[str, Any]]:
        """The table of items, part by part: item, label, probability, entropy (bits), votes."""
        for part, codes, q in self.consensus():
            yield self.table(part.votes, codes, q)

    @staticmethod
    def table(votes: Votes, codes: npt.NDArray[np.int32], q: Floats, probabilities: bool = False) -> dict[str, Any]:
        """The columns of the items of some votes, from their class codes and posterior (all of it where asked for)."""
        columns = {
            "item": votes.items, "label": votes.classes[codes], "probability": q[np.arange(len(codes)), codes],
            "entropy": entropy(q), "votes": np.diff(votes.indptr),
        }  # fmt: skip
        return columns | (probability_columns(votes.classes, q) if probabilities else {})
