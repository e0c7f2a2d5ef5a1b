"""Scores from comparisons: Bradley-Terry, with reliabilities of annotators, with a liking for the item shown first.

=================  ===================================================================================
``bradley-terry``  P(i beats j) = sigmoid(s_i - s_j)                                       Bradley, Terry 1952
``crowd-bt``       P_m(i beats j) = eta_m sigmoid(s_i - s_j) + (1 - eta_m) sigmoid(s_j - s_i)   Chen et al. 2013
``position-bt``    P_m(i beats j) = sigmoid(s_i - s_j + b_m) where i is shown first
=================  ===================================================================================

Ties are an outcome of their own (Davidson 1970), whose probability is the same for (s_i, s_j) and (s_j, s_i):

    P(i better), P(j better), P(tie)  proportional to  e^(s_i), e^(s_j), nu e^((s_i + s_j)/2)

============  ==============  ======  ==========================================================
symbol        code            shape   meaning
============  ==============  ======  ==========================================================
s_i           ``scores``      N       score, on the scale of log odds; they sum to zero
eta_m         ``reliability`` M       1 an expert, 1/2 answers by chance, 0 the other way round
b_m           ``position``    M       log odds in favour of the item shown first
log nu        ``tie``                 two equal items tie with probability nu / (2 + nu)
============  ==============  ======  ==========================================================

Every item is taken to have been compared ``prior`` times with one of score zero, half of them won: with one such
comparison the prior of beating it is Jeffreys' Beta(1/2, 1/2). It holds scores finite where an item never lost, or
where no comparison joins two parts of the items, and the result says so.

They fail where tastes differ (then there is no one order; ``mixture-bt``), where likings go in circles, and
``crowd-bt`` where most annotators answer the other way round: then it finds the reverse order, as anybody would.

References: R. Bradley and M. Terry, Rank analysis of incomplete block designs, Biometrika 1952. R. Davidson, On
extending the Bradley-Terry model to accommodate ties, JASA 1970. X. Chen, P. Bennett, K. Collins-Thompson and
E. Horvitz, Pairwise ranking aggregation in a crowdsourced setting, WSDM 2013.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from crowdwise.answers import comparisons_connectivity, comparisons_newton
from crowdwise.answers.answer_model import AnswerModel
from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.answers.comparisons_likelihood import DENSE, Games, Model
from crowdwise.answers.comparisons_newton import Solution
from crowdwise.core.checks import check_choice, check_count, check_number, is_number
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.loop import Callback
from crowdwise.core.numerics import Floats
from crowdwise.core.parameters import declared
from crowdwise.data.comparisons import TIE, Comparisons
from crowdwise.errors import ConnectionWarning, InputError, ParameterError

__all__ = ["BradleyTerry", "CrowdBT", "PositionBT"]

TIES = ("davidson", "half", "drop")
SURE = 3.0
"""No reliability is taken to be surer than this, in log odds, to begin with."""
LEARNED = ((2.0, 1.0), (4.0, 1.0), (10.0, 1.0), (20.0, 1.0), (50.0, 1.0))
"""The spreads of reliabilities among which ``reliability="learned"`` chooses."""


@declared
class PairModel(AnswerModel[Comparisons, Ranking]):
    """What models of comparisons share: parameters, the graph, counts, the result."""

    table: ClassVar[type] = Comparisons
    result: ClassVar[type] = Ranking
    prior: float = 1.0
    ties: str = "davidson"
    max_iter: Count = 100
    tol: NonNegative = 1e-10

    def _check_together(self) -> None:
        super()._check_together()
        check_number(self, "prior", least=0.0)
        check_choice(self, "ties", TIES)
        check_count(self, "max_iter")
        check_number(self, "tol", above=0.0)

    def _games(self, table: Comparisons, *, by_annotator: bool, placed: bool) -> Games:
        if len(table) == 0:
            raise InputError("No comparisons: the table has items and annotators, and no row is left.")
        games = Games.of(table, ties=self.ties, by_annotator=by_annotator, placed=placed)
        if len(games.winner) == 0:
            raise InputError("No comparison is left: all are ties, which ties='drop' leaves out. Use ties='davidson'.")
        if self.prior == 0.0:
            comparisons_connectivity.check_identifiable(games, table.items)
        return games

    def _start(self, games: Games, model: Model) -> Floats:
        """Where to begin: all scores equal, and ties as often as they are."""
        x = np.zeros(games.n_items + model.n_shared)
        if model.ties:
            tied = float(games.weight[games.decided :].sum())
            x[games.n_items] = np.log(2.0 * (tied + 0.5) / (float(games.weight.sum()) - tied + 0.5))
        return x

    def _result(
        self, table: Comparisons, games: Games, model: Model, found: Solution, **more: Any
    ) -> dict[str, Any]:  # fmt: skip
        N = table.n_items
        s = found.x[:N] - found.x[:N].mean()
        spread = comparisons_newton.covariance(
            found.end, s, free=self.prior == 0.0, rng=np.random.default_rng(self.random_state)
        )  # fmt: skip
        if model.kind == "reliable":
            eta = 1.0 / (1.0 + np.exp(-found.theta))
            more |= {"reliability": eta, "reliability_error": spread.theta}
        if model.kind == "position":
            more |= {"position": found.theta, "position_error": spread.theta}
        if model.ties:
            more |= {"tie": float(found.x[N]), "tie_error": float(spread.shared[0])}
        return ranked(
            table, games, s, spread.scores, spread.draws,
            trace=found.trace, iterations=found.iterations, converged=found.converged, **more,
        )  # fmt: skip


def ranked(
    table: Comparisons, games: Games, scores: Floats, errors: Floats, draws: Any, *, notes: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """The fields of the result, with all that is counted; a warning where items are not joined by comparisons."""
    part = comparisons_connectivity.components(table.left, table.right, table.n_items)
    found = comparisons_connectivity.notes(part, games, table.items)
    if int(part.max()) > 0:
        warnings.warn(found[0], ConnectionWarning, stacklevel=5)
    return more | {
        "scores": scores, "errors": errors, "draws": draws, "components": part, "counts": item_counts(table),
        "annotator_counts": annotator_counts(table, scores), "placed": table.placed, "notes": [*found, *notes],
    }  # fmt: skip


def item_counts(table: Comparisons) -> dict[str, Floats]:
    """How often every item was compared, won, lost and tied, by weight."""
    N, w = table.n_items, table.weights
    left, right = (
        np.bincount(table.outcome * np.int64(N) + side, w, 3 * N).reshape(3, N) for side in (table.left, table.right)
    )
    wins, losses, ties = left[0] + right[1], left[1] + right[0], left[2] + right[2]
    return {"comparisons": wins + losses + ties, "wins": wins, "losses": losses, "ties": ties}


def annotator_counts(table: Comparisons, scores: Floats) -> dict[str, Floats]:
    """How often every annotator compared, tied, sided with the higher score, and chose the item shown first."""
    M, m, w = table.n_annotators, table.annotator, table.weights
    gap = np.sign(np.where(table.outcome == 0, 1.0, -1.0) * (scores[table.left] - scores[table.right]))
    decided = table.outcome != TIE
    said = [("comparisons", w), ("ties", w * ~decided), ("decided", w * decided),
            ("agreed", w * decided * (1.0 + gap) / 2.0), ("first", w * (table.outcome == 0))]  # fmt: skip
    return {name: np.bincount(m, value, M).astype(np.float64) for name, value in said}


# -------------------------------------------------------------------- the models


class BradleyTerry(PairModel):
    """The maximum of the (penalised) likelihood of Bradley and Terry's model, by Newton's method.

    Parameters
    ----------
    prior
        So many comparisons with an average item, half of them won, are added to every item's; 0: none, and an error
        where scores would not be finite.
    ties
        ``"davidson"``: an outcome of their own; ``"half"`` a win for both; or ``"drop"`` them.
    max_iter, tol
        Stop after so many steps, or when a step gains less than ``tol`` per comparison.
    random_state
        Seed of the draws behind the intervals of ranks; ``None`` for fresh ones.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(8, n_comparisons=2000, random_state=0)
    >>> ranking = BradleyTerry().fit(crowd.comparisons).consensus_
    >>> round(crowd.tau(ranking), 2)
    1.0
    """

    key: ClassVar[str] = "bradley-terry"

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        games = self._games(answers, by_annotator=False, placed=False)
        model = Model("plain", games.n_ties > 0, float(self.prior))
        found = comparisons_newton.maximise(
            games, model, self._start(games, model), np.empty(0), max_iter=self.max_iter, tol=self.tol,
            callback=callback,
        )  # fmt: skip
        return self._result(answers, games, model, found)


@declared
class CrowdBT(PairModel):
    """Bradley-Terry seen through annotators who answer straight, by chance, or the other way round.

    The likelihood is the same for (s, eta) and (-s, 1 - eta). The start is that of plain Bradley-Terry with everybody
    as reliable as the prior says, and the prior of reliabilities leans to the straight side; should the end lie on the
    other side nevertheless, it is turned round.

    What is maximised is the posterior density of reliabilities on the scale of arcsin(sqrt(eta)), where a share is as
    sure everywhere: eta^(a - 1/2) (1 - eta)^(b - 1/2). The mode of eta itself lies too near to 0 and 1, that of its
    logit too far from them, and scores are then drawn in or out to make up for it.

    Parameters
    ----------
    reliability
        (a, b), above 1/2: reliabilities are taken to be spread like Beta(a, b), before anything is seen.
        ``"learned"``: the most probable of a few such distributions, by Laplace's approximation to the probability of
        all answers.
    prior, ties, max_iter, tol, random_state
        As in :class:`BradleyTerry`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(20, n_annotators=40, n_comparisons=3000, reversed_=0.3, random_state=0)
    >>> [round(crowd.tau(cw.aggregate(crowd.comparisons, key)), 2) for key in ("bradley-terry", "crowd-bt")]
    [0.73, 0.86]
    """

    key: ClassVar[str] = "crowd-bt"

    reliability: tuple[float, float] | str = (10.0, 1.0)
    prior: float = 1.0
    ties: str = "davidson"
    max_iter: Count = 200
    tol: NonNegative = 1e-7

    def _check_together(self) -> None:
        super()._check_together()
        value = self.reliability
        if value == "learned":
            return
        if (
            not isinstance(value, (tuple, list))
            or len(value) != 2
            or not all(is_number(v) and v > 0.5 for v in value)
            or value[0] <= value[1]
        ):
            raise ParameterError(
                f"reliability={value!r}: expected 'learned', or two numbers (a, b) above 1/2 of a Beta distribution, "
                "the first the larger: else nothing tells an order from its reverse."
            )

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        games = self._games(answers, by_annotator=True, placed=False)
        simple = Model("plain", games.n_ties > 0, float(self.prior))
        start = self._start_crowd(answers, games, simple)
        if isinstance(self.reliability, str) and answers.n_items > DENSE:
            raise InputError(
                f"reliability='learned' is for up to {DENSE:,} items and there are {answers.n_items:,}: give (a, b)."
            )
        choices = LEARNED if isinstance(self.reliability, str) else [self.reliability]
        best: tuple[float, Model, Solution] | None = None
        for a, b in choices:
            model = Model("reliable", simple.ties, simple.prior, beta=(float(a) - 0.5, float(b) - 0.5))
            found = self._climb(games, model, *start, callback)
            value = comparisons_newton.evidence(found, model) if len(choices) > 1 else 0.0
            if best is None or value > best[0]:
                best = value, model, found
        assert best is not None
        notes = []
        if games.n_annotators == 1:
            notes.append(
                "One annotator: how reliable they are and how far scores are spread cannot be told apart but by the "
                "prior. bradley-terry takes them to answer straight."
            )
        if len(choices) > 1:
            a, b = best[1].beta
            notes.append(f"Reliabilities were taken to be spread like Beta({a + 0.5:g}, {b + 0.5:g}).")
        return self._result(answers, games, best[1], best[2], notes=notes)

    def _start_crowd(self, table: Comparisons, games: Games, model: Model) -> tuple[Floats, Floats]:
        """Scores and reliabilities to begin with: plain Bradley-Terry, then once more with every annotator counted by
        how far they agree with it, the other way round where they contradict it."""
        alone = Games.of(table, ties=self.ties, by_annotator=False, placed=False)
        first = comparisons_newton.maximise(alone, model, self._start(alone, model), np.empty(0), max_iter=3, tol=1e-3)
        x, N = first.x, games.n_items
        eta = agreement(games, x)
        lone = Model("plain", False, max(model.prior, 1.0))
        again = games.turned(2.0 * eta - 1.0)
        if float(again.weight.sum()) > 0.0:
            x[:N] = comparisons_newton.maximise(again, lone, x[:N], np.empty(0), max_iter=2, tol=1e-3).x
        return x, agreement(games, x)

    def _climb(
        self, games: Games, model: Model, x: Floats, eta: Floats, callback: Callback | None
    ) -> Solution:  # fmt: skip
        settings: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol, "callback": callback}
        a, b = model.beta
        d = slice(0, games.decided)
        said = np.bincount(games.annotator[d], games.weight[d], games.n_annotators)
        theta = np.log(said * eta + a) - np.log(said * (1.0 - eta) + b)
        theta = np.clip(theta, -SURE, SURE)  # from too near to 0 or 1 the way back is long
        found = comparisons_newton.maximise(games, model, x, theta, **settings)
        if float(np.tanh(found.theta / 2.0).sum()) < 0.0:  # the mirror has the same likelihood: most answer straight
            turned = found.x.copy()
            turned[: games.n_items] *= -1.0
            found = comparisons_newton.maximise(games, model, turned, -found.theta, **settings)
        return found


def agreement(games: Games, x: Floats) -> Floats:
    """Reliabilities by moments: the share of answers that side with the scores is eta p + (1 - eta)(1 - p), with p the
    mean probability of the likelier answer; between 0 and 1, and 1/2 where nothing is known."""
    d = slice(0, games.decided)
    z = x[games.winner[d]] - x[games.loser[d]]
    w, m, M = games.weight[d], games.annotator[d], games.n_annotators
    said, sided, sure = (
        np.bincount(m, value, M) for value in (w, w * (z > 0.0) + 0.5 * w * (z == 0.0), w * np.tanh(np.abs(z) / 2.0))
    )
    known = sure > 0.0  # sure / said = 2 p - 1
    ratio = (2.0 * sided - said) / np.where(known, sure, 1.0)
    return np.where(known, np.clip(0.5 + 0.5 * ratio, 0.0, 1.0), 0.5)


@declared
class PositionBT(PairModel):
    """Bradley-Terry with a liking, of each annotator's own, for the item shown first.

    Parameters
    ----------
    spread
        Standard deviation of the annotators' log odds around their common mean, which is learned.
    prior, ties, max_iter, tol, random_state
        As in :class:`BradleyTerry`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(10, n_annotators=4, n_comparisons=8000, position=0.8, random_state=0)
    >>> ranking = PositionBT().fit(crowd.comparisons).consensus_
    >>> bool(abs(ranking.position - crowd.position).max() < 0.3)
    True
    """

    key: ClassVar[str] = "position-bt"

    spread: float = 1.0
    prior: float = 1.0
    ties: str = "davidson"
    max_iter: Count = 200

    def _check_together(self) -> None:
        super()._check_together()
        check_number(self, "spread", above=0.0)

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        if not answers.placed:
            raise InputError(
                "Which item was shown first is not known of these comparisons (placed=False), so position-bt has "
                "nothing to go by. Use bradley-terry or crowd-bt, or make the table with left the item shown first."
            )
        games = self._games(answers, by_annotator=True, placed=True)
        model = Model("position", games.n_ties > 0, float(self.prior), spread=float(self.spread))
        found = comparisons_newton.maximise(
            games, model, self._start(games, model), np.zeros(games.n_annotators), max_iter=self.max_iter, tol=self.tol,
            callback=callback,
        )  # fmt: skip
        return self._result(answers, games, model, found)
