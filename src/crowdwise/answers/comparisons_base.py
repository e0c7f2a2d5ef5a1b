"""What the models of scores share, whether from comparisons or from rankings: parameters, and the result."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from crowdwise.answers import comparisons_connectivity, comparisons_uncertainty
from crowdwise.answers.answer_model import AnswerModel
from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.answers.comparisons_likelihood import Likelihood, split
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import NewtonSolution
from crowdwise.answers.comparisons_uncertainty import Spread
from crowdwise.core.collusion import FEWEST, find_voices
from crowdwise.core.constraints import Count, NonNegative, Positive, declared
from crowdwise.core.loop import Callback
from crowdwise.core.numerics import Floats, Ints, one_algebra_thread
from crowdwise.data.comparisons import TIE, Comparisons
from crowdwise.data.table import Table
from crowdwise.errors import ConnectionWarning, listing

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

    def fit(self, answers: Answers, *, callback: Callback | None = None, verbose: bool = False) -> Self:
        with one_algebra_thread():
            return super().fit(answers, callback=callback, verbose=verbose)

    fit.__doc__ = AnswerModel.fit.__doc__

    def _spread(self, fit: NewtonSolution, scores: Floats, slope: Floats | None = None) -> Spread:
        """Standard errors where all comparisons are independent."""
        rng = np.random.default_rng(self.random_state)
        return comparisons_uncertainty.covariance(fit.end, scores, free=self.prior == 0.0, rng=rng, slope=slope)

    def _scored(
        self, fit: NewtonSolution, N: int, likelihood: Likelihood, spread: Spread | None = None
    ) -> dict[str, Any]:  # fmt: skip
        """Scores, centred, and what else was estimated, with standard errors."""
        s = fit.x[:N] - fit.x[:N].mean()
        spread = self._spread(fit, s) if spread is None else spread
        out = fit.rounds.outcome | {"scores": s, "errors": spread.scores, "draws": spread.draws}
        own, position = split(likelihood, fit.theta)
        if likelihood.reliable:
            out |= {"reliability": 1.0 / (1.0 + np.exp(-own)), "reliability_error": spread.theta}
        if likelihood.sloped:
            out |= {"slope": own, "slope_error": spread.theta[: len(own)]}
        if likelihood.placed:
            out |= {"position": position, "position_error": spread.theta[len(own) :]}
        if likelihood.ties:
            out |= {"tie": float(fit.x[N]), "tie_error": float(spread.shared[0])}
        if likelihood.covariates:
            K = likelihood.covariates
            out |= {"effects": fit.x[-K:], "effect_errors": spread.shared[-K:]}
            out |= {} if spread.freedom is None else {"effect_freedom": spread.freedom[len(fit.x) - K : len(fit.x)]}
        if spread.freedom is not None:
            M, first = len(position) or len(own), len(fit.x)
            out["freedom"] = spread.freedom[:N]
            out |= {f"{name}_freedom": spread.freedom[at : at + M]
                    for name, at in (("slope", first), ("position", first + len(own))) if name in out}  # fmt: skip
        return out

    def _connected(self, items: Any, matches: Matches, part: Any, notes: Sequence[str] = ()) -> dict[str, Any]:
        """Which items can be compared, in the result and in its notes; a warning where some cannot."""
        sentences = comparisons_connectivity.notes(part, matches, items)
        if int(part.max()) > 0:
            warnings.warn(sentences[0], ConnectionWarning, stacklevel=5)
        return {"components": part, "notes": [*sentences, *notes]}


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
    columns = {
        "comparisons": w, "ties": w * ~decided, "decided": w * decided, "agreed": w * decided * (1.0 + gap) / 2.0,
        "first": w * (table.outcome == 0),
    }  # fmt: skip
    return {name: np.bincount(m, value, M).astype(np.float64) for name, value in columns.items()}


LEANS, MIN_DECIDED, SURE = 0.1, 20, 3.3
"""An annotator leans to one side whose share of answers for it is so far above one half and above what the scores
expect, in so many decided answers at least, and by so many standard errors."""


def leaning(table: Comparisons, scores: Floats) -> dict[str, Any]:
    """Of every annotator: ``decided`` answers, the share for the item shown first (``first``), and the share that the
    scores ``expected``; ``leans`` is true where they differ."""
    M, d = table.n_annotators, table.outcome != TIE
    m, w, first_wins = table.annotator[d], table.weights[d], table.outcome[d] == 0.0
    if table.left_probability is not None:  # a graded verdict counts in part for either side, as in the scores
        graded = table.left_probability[d]
        first_wins = np.where(np.isfinite(graded), graded, first_wins)
    p = 1.0 / (1.0 + np.exp(-np.clip(scores[table.left[d]] - scores[table.right[d]], -500, 500)))
    n, first, expected, noise = (
        np.bincount(m, value, M) for value in (w, w * first_wins, w * p, w * w * p * (1.0 - p))
    )
    size = np.maximum(n, 1e-300)
    leans = n >= MIN_DECIDED
    squares = np.bincount(m, w * w, M)
    for gap, variance in ((first - expected, noise), (first - 0.5 * n, 0.25 * squares)):
        leans &= (np.abs(gap) >= LEANS * size) & (np.abs(gap) >= SURE * np.sqrt(variance))
    leans &= np.sign(first - expected) == np.sign(first - 0.5 * n)
    return {"decided": n, "first": first / size, "expected": expected / size, "leans": leans}


def leaning_note(
    table: Comparisons, lean: dict[str, Any], allowed_for: bool, sloped: bool, limit: int = 3
) -> list[str]:
    """A sentence about annotators who lean to one side (``lean`` by :func:`leaning`), where there are some."""
    who = np.flatnonzero(lean["leans"])
    if len(who) == 0:
        return []
    who = who[np.argsort(-np.abs(lean["first"] - lean["expected"])[who], kind="stable")]
    parts = []
    for m in who[:limit].tolist():
        side, share, fair = "first", lean["first"][m], lean["expected"][m]
        if share < fair:
            side, share, fair = "second", 1.0 - share, 1.0 - fair
        parts.append(
            f"annotator {table.annotators[m]} chose the item shown {side} in {share:.0%} of {lean['decided'][m]:,.0f} "
            f"decided answers, where the scores expect {fair:.0%}"
        )
    more = f"; and {len(who) - limit} more" if len(who) > limit else ""
    end = "The scores do not allow for it." if sloped else "The scores do not allow for it: judge-bt does."
    end = "The scores allow for it." if allowed_for else end
    return [f"Leaning to one side: {'; '.join(parts)}{more}. {end}"]


def with_rings_as_one(table: Comparisons) -> tuple[Comparisons, Ints, Ints, list[str]]:
    """The comparisons in which each ring (:mod:`crowdwise.core.collusion`; annotators vote on two items and a question)
    is one annotator with one vote on each; M: their code there; M: the number of the ring, 0 for none; and a sentence
    on each."""
    voices = find_voices(table.votes(named=False)) if table.n_annotators >= FEWEST else []
    rings = [voice for voice in voices if voice.kind != "alike"]
    number, code, notes = np.zeros(table.n_annotators, np.int64), np.arange(table.n_annotators), list[str]()
    for r, ring in enumerate(rings, 1):
        number[ring.members], code[ring.members] = r, ring.members[0]
        against = "mostly against" if ring.outside < 0.0 else "hardly with"
        how = f"agree with each other, and {against} the others"
        how = "always give the same answers" if ring.kind == "copies" else how
        names, share = listing(table.annotators[ring.members]), float((number == r)[table.annotator].mean())
        notes.append(
            f"{len(ring.members)} annotators with {share:.0%} of the answers {how} ({names}): they count as one. "
            "They may work together, or prefer other things (mixture-bt); collusion='ignore' counts every answer."
        )
    if not rings:
        return table, code, number, notes
    kept, code = np.unique(code, return_inverse=True)
    at = code[table.annotator]
    _, cell, size = np.unique(table.asked * len(kept) + at, return_inverse=True, return_counts=True)
    weight = table.weights / np.where(number[table.annotator] > 0, size[cell], 1)
    one = replace(table, annotator=at.astype(np.int32), annotators=table.annotators[kept], weight=weight)
    return one, code, number, notes
