"""What the models of scores share, whether from comparisons or from rankings: parameters, and the result."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from crowdwise.answers import comparisons_connectivity, comparisons_uncertainty
from crowdwise.answers.answer_model import AnswerModel
from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.answers.comparisons_likelihood import Likelihood
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import Solution
from crowdwise.core.constraints import Count, NonNegative, Positive
from crowdwise.core.numerics import Floats
from crowdwise.core.parameters import declared
from crowdwise.data.comparisons import TIE, Comparisons
from crowdwise.data.table import Table
from crowdwise.errors import ConnectionWarning

Answers = TypeVar("Answers", bound=Table)


@declared
class ScoreModel(AnswerModel[Answers, Ranking]):
    """The base of models that give every item a score, with standard errors.

    Parameters
    ----------
    prior
        So many comparisons with an average item, half of them won, are added to every item's; 0: none, and an error
        where scores would not be finite.
    max_iter, tol
        Stop after so many steps, or when a step gains less than ``tol`` per comparison (or choice).
    random_state
        Seed of the draws behind the intervals of ranks; ``None`` for fresh ones.
    """

    result: ClassVar[type] = Ranking
    prior: NonNegative = 1.0
    max_iter: Count = 100
    tol: Positive = 1e-10

    def _scored(self, found: Solution, N: int, likelihood: Likelihood) -> dict[str, Any]:
        """Scores, centred, and what else was estimated, with standard errors."""
        s = found.x[:N] - found.x[:N].mean()
        rng = np.random.default_rng(self.random_state)
        spread = comparisons_uncertainty.covariance(found.end, s, free=self.prior == 0.0, rng=rng)
        out = found.rounds.outcome | {"scores": s, "errors": spread.scores, "draws": spread.draws}
        if likelihood.effect == "reliable":
            out |= {"reliability": 1.0 / (1.0 + np.exp(-found.theta)), "reliability_error": spread.theta}
        if likelihood.effect == "position":
            out |= {"position": found.theta, "position_error": spread.theta}
        if likelihood.ties:
            out |= {"tie": float(found.x[N]), "tie_error": float(spread.shared[0])}
        return out

    def _connected(self, items: Any, matches: Matches, part: Any, notes: Sequence[str] = ()) -> dict[str, Any]:
        """Which items can be compared, in the result and in its notes; a warning where some cannot."""
        found = comparisons_connectivity.notes(part, matches, items)
        if int(part.max()) > 0:
            warnings.warn(found[0], ConnectionWarning, stacklevel=5)
        return {"components": part, "notes": [*found, *notes]}


def item_counts(table: Comparisons) -> dict[str, Floats]:
    """How often every item was compared, won, lost and tied, by weight."""
    N, w = table.n_items, table.weights
    cells = [table.outcome * np.int64(N) + side for side in (table.left, table.right)]
    left, right = (np.bincount(cell, w, 3 * N).reshape(3, N) for cell in cells)
    wins, losses, ties = left[0] + right[1], left[1] + right[0], left[2] + right[2]
    return {"comparisons": wins + losses + ties, "wins": wins, "losses": losses, "ties": ties}


def annotator_counts(table: Comparisons, scores: Floats) -> dict[str, Floats]:
    """How often every annotator compared, tied, agreed with the higher score, and chose the item shown first."""
    M, m, w = table.n_annotators, table.annotator, table.weights
    gap = np.sign(np.where(table.outcome == 0, 1.0, -1.0) * (scores[table.left] - scores[table.right]))
    decided = table.outcome != TIE
    said = [("comparisons", w), ("ties", w * ~decided), ("decided", w * decided),
            ("agreed", w * decided * (1.0 + gap) / 2.0), ("first", w * (table.outcome == 0))]  # fmt: skip
    return {name: np.bincount(m, value, M).astype(np.float64) for name, value in said}
