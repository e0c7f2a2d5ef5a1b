"""The result of a fit to votes in parts: parameters, and the consensus of each part when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import probability_columns
from crowdwise.core.crowd_kind import rates
from crowdwise.core.dependence import Dependence, copied_note, corrected
from crowdwise.core.em import Params
from crowdwise.core.leave_one_out import accuracy_with_interval, matrices_fit, moved_classes, refined, scored
from crowdwise.core.numerics import Floats, clamp, decide, entropy
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.vote_parts import Posterior, VotePart, VoteParts, resolve, usual
from crowdwise.core.vote_sums import per_annotator, single_annotator_items
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
    dependence: Dependence
    confusion: Floats | None = None
    log_likelihood: float | None = None
    trace: Floats = field(default_factory=lambda: np.empty(0))
    iterations: int = 0
    converged: bool = True
    notes: list[str] = field(default_factory=list)
    annotator_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, parts: VoteParts, found: dict[str, Any]) -> FittedParts:
        """The result of a model that was fitted, with the stage of dependence that its parameters ask for."""
        by_votes = found.pop("gold_by_votes", None)
        dependence = resolve(
            model.dependence, parts, found["independent"], shares=model.vote_shares, gold_by_votes=by_votes
        )
        why = [] if dependence.source == "none" else [dependence.reason]
        notes = found.pop("notes", []) + why + copied_note(parts.agreeing)
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
            q = corrected(q, part.votes, self.dependence, gold=part.gold)
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


def accuracies_in_parts(fitted: FittedParts, agreement: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Each annotator's accuracy and the ends of its 95 % interval; ``None`` where matrices would be too large.

    ``agreement``: the share of each annotator's votes that say what the label says.
    """
    parts, names = fitted.parts, fitted.parts.names
    if not matrices_fit(names):
        return None
    shown = fitted.dependence
    if shown.source in ("none", "shares"):
        shown = usual(parts, fitted.independent)

    def first(part: VotePart) -> Floats:
        return clamp(fitted.independent(part), part.gold)

    def moved(params: Params) -> Floats:
        zero = np.zeros((names.n_classes, names.n_classes))
        return np.asarray(parts.total(lambda part: moved_classes(first(part), part.posterior(params)), zero))

    stats = parts.statistics(first)
    if parts.kind == "rules":
        params = rates(stats)
    else:
        stats = refined(stats, parts.expect, moved)
        params = scored(stats, np.asarray(learned_prior(stats.table())))
    sums = parts.total(lambda part: _sums(part, params, shown), np.zeros((4, names.n_annotators)))
    right, unsure, taught, single = sums
    mean = (right + 0.5) / (taught + 1.0)
    unsure = unsure + mean * (1.0 - mean) * single
    return accuracy_with_interval(right + mean * single, taught + single, unsure, agreement, int(parts.sizes[2]))


def _sums(part: VotePart, params: Params, dependence: Dependence) -> Floats:
    """4 x M: the expected right votes, their variance and their weight, without the only votes on items; the weight of
    these."""
    votes = part.votes
    q = corrected(part.posterior(params), votes, dependence, gold=part.gold)
    single = single_annotator_items(votes)
    if part.gold is not None:
        single &= part.gold < 0
    alone, p = single[votes.item], q[votes.item, votes.label]
    p = np.where(alone, 0.0, p)
    return np.stack([per_annotator(votes, x) for x in (p, p * (1.0 - p), ~alone, alone)])
