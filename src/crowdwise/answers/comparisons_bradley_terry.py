"""Scores from comparisons: Bradley-Terry, with reliabilities of annotators, with a preference for the item shown first.

=================  ===================================================================================
``bradley-terry``  P(i beats j) = sigmoid(s_i - s_j)                                       Bradley, Terry 1952
``judge-bt``       P_m(i beats j) = sigmoid(a_m (s_i - s_j) + b_m) where i is shown first: the default
``position-bt``    P_m(i beats j) = sigmoid(s_i - s_j + b_m)
``crowd-bt``       P_m(i beats j) = eta_m sigmoid(s_i - s_j) + (1 - eta_m) sigmoid(s_j - s_i)   Chen et al. 2013
=================  ===================================================================================

Ties are an outcome of their own (Davidson 1970), whose probability is the same for (s_i, s_j) and (s_j, s_i):

    P(i better), P(j better), P(tie)  proportional to  e^(s_i), e^(s_j), nu e^((s_i + s_j)/2)

============  ==============  ======  ==========================================================
symbol        code            shape   meaning
============  ==============  ======  ==========================================================
s_i           ``scores``      N       score, on the scale of log odds; they sum to zero
a_m           ``slope``       M       how much of the differences an annotator sees: 0 none, 1 as the mean annotator
eta_m         ``reliability`` M       1 an expert, 1/2 answers at random, 0 always reverses
b_m           ``position``    M       log odds in favour of the item shown first
log nu        ``tie``                 two equal items tie with probability nu / (2 + nu)
t_m           ``tie_habit``   M       what an annotator adds to log nu, in ``judge-bt``: some tie more than others
============  ==============  ======  ==========================================================

The prior of scores is ``prior`` pseudo-comparisons of every item with one of score zero, half of them won: with one
such comparison the prior of beating it is Jeffreys' Beta(1/2, 1/2). It keeps scores finite where an item never lost,
or where no comparison joins two parts of the items, and the result says so.

References: R. Bradley and M. Terry, Rank analysis of incomplete block designs, Biometrika 1952. R. Davidson, On
extending the Bradley-Terry model to accommodate ties, JASA 1970. X. Chen, P. Bennett, K. Collins-Thompson and
E. Horvitz, Pairwise ranking aggregation in a crowdsourced setting, WSDM 2013.

Covariates are what the left answer has more of than the right one. A name stands for a pair of columns, one for each
answer (``length_a`` and ``length_b``, ``left_style`` and ``right_style``, ``words_1`` and ``words_2``...), or for one
column that holds the difference already. Numbers are subtracted; lengths (by their name) as log2, so that an effect is
that of an answer twice as long; of other values there is an effect for each but the most frequent. A cell that is empty
counts as no difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from crowdwise.answers import comparisons_connectivity, comparisons_uncertainty
from crowdwise.answers import comparisons_matches as tables
from crowdwise.answers.comparisons_base import (
    ScoreModel,
    annotator_counts,
    item_counts,
    leaning,
    leaning_note,
    with_rings_as_one,
)
from crowdwise.answers.comparisons_connectivity import order_note, positions_known
from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.answers.comparisons_likelihood import Likelihood, MatchObjective, log_likelihood, split
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import NewtonSolution, maximise, separated, step
from crowdwise.answers.comparisons_uncertainty import evidence
from crowdwise.core.constraints import Check, Count, NonNegative, Positive, declared, is_number
from crowdwise.core.loop import Callback
from crowdwise.core.numerics import Floats
from crowdwise.data.comparisons import Comparisons, pair_of
from crowdwise.errors import InputError, listing

LEARNED = ((2.0, 1.0), (4.0, 1.0), (10.0, 1.0), (20.0, 1.0), (50.0, 1.0))
"""The Beta distributions of reliabilities among which ``reliability="learned"`` chooses."""


@declared
class PairModel(ScoreModel[Comparisons]):
    """The base of models of comparisons.

    Parameters
    ----------
    ties
        ``"davidson"``: an outcome of their own; ``"half"`` a win for both; or ``"drop"`` them.
    """

    table: ClassVar[type] = Comparisons
    ties: Literal["davidson", "half", "drop"] = "davidson"

    def _matches(
        self, table: Comparisons, *, by_annotator: bool, placed: bool = False, covariates: Floats | None = None
    ) -> Matches:
        matches = Matches.of(table, ties=self.ties, by_annotator=by_annotator, placed=placed, covariates=covariates)
        if len(matches.winner) == 0:
            raise InputError("No comparison is left: all are ties, which ties='drop' leaves out. Use ties='davidson'.")
        if self.prior == 0.0:
            comparisons_connectivity.check_identifiable(matches, table.items)
        return matches

    def _likelihood(self, matches: Matches, effect: str = "plain", **more: Any) -> Likelihood:
        return Likelihood(effect, matches.n_ties > 0, float(self.prior), **more)

    def _maximum(
        self, matches: Matches, model: Likelihood, theta: Floats, callback: Callback | None, x: Floats | None = None
    ) -> NewtonSolution:
        """The optimum, by Newton's method."""
        x, objective = start(matches, model) if x is None else x, MatchObjective(matches, model)
        return maximise(objective, x, theta, max_iter=self.max_iter, tol=self.tol, callback=callback)

    def _ranked(
        self, table: Comparisons, matches: Matches, estimates: dict[str, Any], notes: list[str] | None = None
    ) -> dict[str, Any]:
        """The fields of the result: what was found, and what is counted."""
        part = comparisons_connectivity.components(table.left, table.right, table.n_items)
        notes, counts = list(notes or ()), annotator_counts(table, estimates["scores"])
        if table.placed:
            lean = leaning(table, estimates["scores"])
            notes += [*leaning_note(table, lean, "position" in estimates, "slope" in estimates), *order_note(table)]
            counts |= {"leans": lean["leans"].astype(np.float64)}
        return estimates | self._connected(table.items, matches, part, notes) | {
            "counts": item_counts(table), "annotator_counts": counts, "placed": table.placed,
        }  # fmt: skip


@declared
class GroupedPairs(PairModel):
    """The base of models of comparisons whose errors allow for comparisons that hang together.

    Parameters
    ----------
    errors
        ``"clustered"``: comparisons on one question (prompt, group) are not independent, and standard errors and
        intervals allow for that; ``"independent"``: all comparisons are. ``"auto"``: clustered, where there are
        questions and enough of them.
    """

    errors: Literal["auto", "clustered", "independent"] = "auto"

    def _board(
        self, table: Comparisons, matches: Matches, fit: NewtonSolution, model: Likelihood,
        notes: list[str] | None = None, covariates: Floats | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The fields of the result, with errors by question where there are questions."""
        if self.errors == "clustered" and table.question is None:
            raise InputError(
                "errors='clustered' needs groups of comparisons: a question, prompt or group column. Name it (--group "
                "on the command line, question= in Python), or take errors='independent'."
            )
        N, notes = table.n_items, list(notes or ())
        s = fit.x[:N] - fit.x[:N].mean()
        slope = split(model, fit.theta)[0] if model.sloped else None
        spread, extra = self._spread(fit, s, slope), dict[str, Any]()
        if table.question is not None and self.errors != "independent":
            rows = Matches.of(
                table, ties=self.ties, by_annotator=model.effect != "plain", grouped=True, covariates=covariates
            )
            unplaced = np.bincount(matches.annotator, np.abs(matches.sign), matches.n_annotators) == 0.0
            if model.placed and unplaced.any():
                rows = replace(rows, sign=np.where(unplaced[rows.annotator], 0.0, rows.sign))
            rng = np.random.default_rng(self.random_state)
            got = comparisons_uncertainty.clustered(fit, rows, model, spread, s, rng)
            if not isinstance(got, str):
                errors, alone = (np.maximum(one.scores, 1e-12) for one in (got, spread))
                G, ratio = len(np.unique(np.asarray(rows.group))), np.exp(np.log(errors / alone).mean())
                notes.append(
                    f"Errors allow for {G:,} questions: comparisons on one are not independent. They are {ratio:.2f} "
                    "times those of independent comparisons on average."
                )
                spread, extra = got, {"n_groups": G, "independent_errors": spread.scores}
            elif self.errors == "clustered":
                raise InputError(f"Errors cannot be clustered by question: {got}. Take errors='independent'.")
            else:
                caveat = f"Errors treat all comparisons as independent, which is too sure: {got} (questions)."
                notes.append(caveat)
                extra = {"caveat": caveat}
        return self._ranked(table, matches, self._scored(fit, N, model, spread) | extra, notes)


def start(matches: Matches, model: Likelihood) -> Floats:
    """All scores equal, and ties as often as they are."""
    x = np.zeros(matches.n_items + model.n_shared)
    if model.ties:
        tied = float(matches.weight[matches.decided :].sum())
        x[matches.n_items] = np.log(2.0 * (tied + 0.5) / (float(matches.weight.sum()) - tied + 0.5))
    return x


def agreement(matches: Matches, x: Floats) -> Floats:
    """Reliabilities by moments: the share of answers that agree with the scores is eta p + (1 - eta)(1 - p), with p the
    mean probability of the likelier answer; between 0 and 1, and 1/2 where nothing is known."""
    d = slice(0, matches.decided)
    z = x[matches.winner[d]] - x[matches.loser[d]]
    w, m, M = matches.weight[d], matches.annotator[d], matches.n_annotators
    each = (w, w * (z > 0.0) + 0.5 * w * (z == 0.0), w * np.tanh(np.abs(z) / 2.0))
    answered, agreed, sure = (np.bincount(m, value, M) for value in each)
    known = sure > 0.0  # sure / said = 2 p - 1
    ratio = (2.0 * agreed - answered) / np.where(known, sure, 1.0)
    return np.where(known, np.clip(0.5 + 0.5 * ratio, 0.0, 1.0), 0.5)


class BradleyTerry(GroupedPairs):
    """The maximum of the (penalised) likelihood of Bradley and Terry's model, by Newton's method.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(8, n_comparisons=2000, random_state=0)
    >>> ranking = BradleyTerry().fit(crowd.comparisons).consensus_
    >>> round(ranking.score(crowd.scores), 2)
    1.0
    """

    key: ClassVar[str] = "bradley-terry"

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        matches = self._matches(answers, by_annotator=False)
        model = self._likelihood(matches)
        fit = self._maximum(matches, model, np.empty(0), callback)
        return self._board(answers, matches, fit, model)


def _are_names(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, (tuple, list)) and all(isinstance(v, str) for v in value))


FIRST_SPREAD = 0.5
"""The spread of slopes and positions that a fit starts from."""
USUAL, USUAL_WEIGHT = 0.7, 1.0
"""The usual spread of slopes and of positions, and for how many annotators it counts."""


@declared
class JudgeBT(GroupedPairs):
    """Bradley-Terry with a slope and a position for every annotator, both drawn towards those of the crowd.

    The slope a_m multiplies the differences of scores: 1 is the mean annotator, 0 answers whatever the items are, below
    0 prefers the worse. The position b_m is added, whatever the slope. Slopes are Normal(mu, sigma²), positions
    Normal(mean, tau²); the four numbers are learned (empirical Bayes), so that an annotator of few answers is as the
    crowd is, and all are where they do not differ.

    Where there are ties, annotators differ in how often they tie, whatever they see: t_m is Normal(0, omega²), learned
    likewise. Without it, who ties often would pass for one who sees little. Errors take the t_m as known.

    Scores multiplied by c and slopes divided by it have the same likelihood. The scale is that at which the mean of the
    absolute slopes is 1. A maximum over scores and slopes would draw slopes to a point above their mean, since that has
    the smaller penalty. So the scores maximise the likelihood in which slopes are integrated out, to second order: a
    slope with the posterior variance v_m takes sum over the answers of m of p (1 - p) v_m (s_i - s_j)² / 2 off.

    Parameters
    ----------
    slopes
        ``"learned"``; or the standard deviation of slopes around 1, 0 for none.
    position
        Whether annotators have a position. ``"auto"``: those who saw the items in both orders, or enough of them in an
        order that does not depend on the items (:mod:`crowdwise.answers.comparisons_connectivity`).
    control
        Covariates: columns of the two answers (see :func:`design`) whose effect on the verdict is estimated, and is
        not in the scores.
    control_by_judge
        Whether each annotator has effects of their own.
    collusion
        ``"discount"``: annotators who agree with each other and not with the rest (a ring), or always give the same
        answers, count as one; notes name them. ``"ignore"``: all answers count.

    >>> import crowdwise as cw
    >>> slopes = (1.6, 1.2, 0.8, 0.4)
    >>> crowd = cw.simulate.comparisons(12, n_annotators=4, n_comparisons=6000, slopes=slopes, position=1.0)
    >>> ranking = JudgeBT().fit(crowd.comparisons).consensus_
    >>> [bool(abs(found - true).max() < 0.2) for found, true in ((ranking.slope, slopes), (ranking.position, 1.0))]
    [True, True]
    """

    key: ClassVar[str] = "judge-bt"

    slopes: Literal["learned"] | NonNegative = "learned"
    position: Literal["auto"] | bool = "auto"
    control: Annotated[Any, Check(_are_names, "names of covariates, a list or with commas")] = ()
    control_by_judge: bool = False
    collusion: Literal["discount", "ignore"] = "discount"
    max_iter: Count = 200
    tol: Positive = 1e-9

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        whole, ring, notes = answers, None, list[str]()
        if self.collusion == "discount":
            answers, judge, ring, notes = with_rings_as_one(whole)
        if self.position is True and not answers.placed:
            raise unplaced("position=True", "position=False")
        known = positions_known(answers) if self.position == "auto" else np.full(answers.n_annotators, self.position)
        placed, sloped = bool(known.any()), answers.n_annotators > 1 and self.slopes != 0.0
        names = [v.strip() for v in self.control.split(",")] if isinstance(self.control, str) else list(self.control)
        labels, X = design(answers, names, self.control_by_judge) if names else ([], None)
        unit = np.ones(0) if X is None else np.sqrt((X**2).mean(axis=0))
        X = None if X is None else X / unit
        matches = self._matches(answers, by_annotator=placed or sloped, placed=placed, covariates=X)
        if placed and not known.all():
            matches = replace(matches, sign=np.where(known[matches.annotator], matches.sign, 0.0))
        effect = ("judges" if placed else "slope") if sloped else "position" if placed else "plain"
        model = self._likelihood(matches, effect, spread=FIRST_SPREAD, covariates=len(labels))
        if sloped:
            model = replace(model, slopes=(1.0, FIRST_SPREAD if self.slopes == "learned" else float(self.slopes)))
        M = matches.n_annotators
        theta = np.concatenate([np.ones(M if sloped else 0), np.zeros(M if placed else 0)])
        model, fit = self._learned(matches, model, theta, known, callback)
        out = self._board(answers, matches, fit, model, notes, X)
        out |= {} if model.habit is None else {"tie_habit": model.habit}
        for name in ("position", "position_error") if placed else ():
            out[name] = np.where(known, out[name], np.nan)
        if labels:
            out |= {"effect_names": labels} | {name: out[name] / unit for name in ("effects", "effect_errors")}
        if ring is not None and ring.any():  # members are what their ring is; what they said themselves is counted
            own = [name for name, of in Ranking.SHAPES.items() if of == "M" and isinstance(out.get(name), np.ndarray)]
            out |= {name: out[name][judge] for name in own}
            own_counts = {name: value[judge] for name, value in out["annotator_counts"].items()}
            own_counts |= annotator_counts(whole, out["scores"]) | {"ring": ring.astype(np.float64)}
            out |= {"counts": item_counts(whole), "annotator_counts": own_counts}
        return out

    def _learned(
        self, matches: Matches, model: Likelihood, theta: Floats, known: Any, callback: Callback | None
    ) -> tuple[Likelihood, NewtonSolution]:
        """The optimum, with the spreads of slopes and positions."""
        x, M, N, tie_spread = start(matches, model), matches.n_annotators, matches.n_items, FIRST_SPREAD
        if model.ties and model.sloped:
            model = replace(model, habit=np.zeros(M))
        for turn in range(30 if len(theta) else 0):
            rough = maximise(MatchObjective(matches, model), x, theta, max_iter=2, tol=1e-6)
            x, theta = rough.x, rough.theta
            slope, place = split(model, theta)
            d, mix = separated(rough.end)
            variance = comparisons_uncertainty.own_variance(d.D, mix)
            new = model
            if model.sloped:
                scale = float(np.abs(slope).mean())
                scale *= 1.0 if np.clip(slope / scale, -1.0, 1.0).sum() >= 0.0 else -1.0  # as most judges see it
                x[:N], slope = x[:N] * scale, slope / scale
                v, sd = variance[:M] / scale**2, model.slopes[1] / abs(scale)
                mean = float(slope.mean()) if self.slopes == "learned" else 1.0
                sd = _spread(slope - mean, v, sd) if self.slopes == "learned" else float(self.slopes)
                theta = np.concatenate([slope, place])
                rows = log_likelihood(matches, replace(model, doubt=None), x, theta)[1]
                new = replace(new, slopes=(mean, sd), doubt=matches.weight * rows["v"] * v[matches.annotator])
                if model.ties and model.habit is not None:
                    habit, v = _tied(matches, rows["t"], model.habit, tie_spread)
                    x[N], habit = x[N] + habit.mean(), habit - habit.mean()
                    tie_spread, new = _spread(habit, v, tie_spread), replace(new, habit=habit)
            if model.placed:
                gap = (place - x[model.mean_at(N)])[known]
                new = replace(new, spread=_spread(gap, variance[-M:][known], model.spread))
            moved = [abs(np.log(new.spread / model.spread)), abs(np.log(new.slopes[1] / model.slopes[1]))]
            model = new
            if turn > 1 and max(moved) < 0.02:
                break
        fit = self._maximum(matches, model, theta, callback, x)
        if model.sloped:  # exactly on the scale, and with the curvature of the likelihood alone
            slope, place = split(model, fit.theta)
            scale = float(np.abs(slope).mean())
            fit.x[:N] *= scale
            model = replace(model, doubt=None, slopes=(model.slopes[0] / scale, model.slopes[1] / scale))
            theta = np.concatenate([slope / scale, place])
            objective = MatchObjective(matches, model)
            derivatives = objective.at(fit.x, theta).derivatives
            end = derivatives(True)
            fit = replace(fit, theta=theta, end=derivatives(False) if step(end, objective.free) is None else end)
        return model, fit


def _tied(matches: Matches, tied: Floats, habit: Floats, spread: float) -> tuple[Floats, Floats]:
    """A Newton step for the habits of tying, Normal(0, spread²), from the probability of a tie in each row, and the
    variance of each."""
    m, w, M = matches.annotator, matches.weight, matches.n_annotators
    ties = tables.total(m[matches.decided :], w[matches.decided :], M)
    sure = tables.total(m, w * tied * (1.0 - tied), M) + 1.0 / spread**2
    return habit + (ties - tables.total(m, w * tied, M) - habit / spread**2) / sure, 1.0 / sure


def _spread(gap: Floats, variance: Floats, spread: float) -> float:
    """The standard deviation of numbers from their estimates: their squares over the share of them that the answers,
    and not the prior, decide (MacKay 1992), one less for their mean; with ``USUAL`` for ``USUAL_WEIGHT`` more."""
    decided = np.clip(1.0 - variance / spread**2, 0.0, 1.0)
    free = float(decided.sum()) - float(decided.mean())
    square = (float((gap**2).sum()) + USUAL_WEIGHT * USUAL**2) / (free + USUAL_WEIGHT)
    return float(np.clip(np.sqrt(square), 0.02, 3.0))


def _is_beta(value: Any) -> bool:
    pair = isinstance(value, (tuple, list)) and len(value) == 2 and all(is_number(v) and v > 0.5 for v in value)
    return pair and value[0] > value[1]


@declared
class CrowdBT(GroupedPairs):
    """Bradley-Terry with annotators who answer reliably, at random, or in reverse.

    The likelihood is the same for (s, eta) and (-s, 1 - eta). The start is that of plain Bradley-Terry with everybody
    as reliable as the prior says, and the prior of reliabilities favours answers that are not reversed; should the
    optimum lie on the other side nevertheless, it is mirrored.

    What is maximised is the posterior density of reliabilities on the scale of arcsin(sqrt(eta)), which stabilises the
    variance of a share: eta^(a - 1/2) (1 - eta)^(b - 1/2). The mode of eta itself lies too near to 0 and 1, that of its
    logit too far from them, and scores are then too small or too large to compensate.

    Parameters
    ----------
    reliability
        (a, b), above 1/2: the prior of reliabilities is Beta(a, b). ``"learned"``: the most probable of a few such
        distributions, by Laplace's approximation to the probability of all answers.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(20, n_annotators=40, n_comparisons=3000, reversed_=0.3, random_state=0)
    >>> [round(cw.aggregate(crowd.comparisons, key).score(crowd.scores), 2) for key in ("bradley-terry", "crowd-bt")]
    [0.73, 0.86]
    """

    key: ClassVar[str] = "crowd-bt"

    reliability: Literal["learned"] | Annotated[
        Any, Check(_is_beta, "two numbers (a, b) above 1/2 of a Beta distribution, of which a is the larger")
    ] = (10.0, 1.0)  # fmt: skip
    max_iter: Count = 200
    tol: Positive = 1e-7

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        matches = self._matches(answers, by_annotator=True)
        if self.reliability == "learned" and (N := answers.n_items) > tables.DENSE:
            raise InputError(f"reliability='learned' is for up to {tables.DENSE:,} items, not {N:,}: give (a, b).")
        x, eta = self._start(answers, matches)
        choices = LEARNED if self.reliability == "learned" else [self.reliability]
        models = [self._likelihood(matches, "reliable", beta=(float(a) - 0.5, float(b) - 0.5)) for a, b in choices]
        fits = [(self._mirrored(matches, model, x, eta, callback), model) for model in models]
        fit, model = max(fits, key=lambda one: evidence(*one)) if len(fits) > 1 else fits[0]
        notes = []
        if matches.n_annotators == 1:
            notes.append(
                "One annotator: only the prior separates their reliability from the spread of the scores. "
                "bradley-terry assumes a reliable annotator."
            )
        if len(fits) > 1:
            a, b = model.beta
            notes.append(f"The prior of reliabilities was learned: Beta({a + 0.5:g}, {b + 0.5:g}).")
        return self._board(answers, matches, fit, model, notes)

    def _start(self, table: Comparisons, matches: Matches) -> tuple[Floats, Floats]:
        """Scores and reliabilities to start from: plain Bradley-Terry, then once more with every annotator weighted by
        their agreement with it, reversed where they contradict it."""
        model = self._likelihood(matches)
        pooled = Matches.of(table, ties=self.ties, by_annotator=False, placed=False)
        x = maximise(MatchObjective(pooled, model), start(pooled, model), max_iter=3, tol=1e-3).x
        N, again = matches.n_items, matches.signed(2.0 * agreement(matches, x) - 1.0)
        if float(again.weight.sum()) > 0.0:
            without_ties = Likelihood("plain", False, max(model.prior, 1.0))
            x[:N] = maximise(MatchObjective(again, without_ties), x[:N], max_iter=2, tol=1e-3).x
        return x, agreement(matches, x)

    def _mirrored(
        self, matches: Matches, model: Likelihood, x: Floats, eta: Floats, callback: Callback | None
    ) -> NewtonSolution:  # fmt: skip
        """The optimum, of the two mirror images the one in which most annotators are reliable."""
        a, b = model.beta
        d = slice(0, matches.decided)
        answered = np.bincount(matches.annotator[d], matches.weight[d], matches.n_annotators)
        theta = np.log(answered * eta + a) - np.log(answered * (1.0 - eta) + b)
        theta = np.clip(theta, -3.0, 3.0)  # near 0 or 1 the first steps would be short
        fit = self._maximum(matches, model, theta, callback, x)
        if float(np.tanh(fit.theta / 2.0).sum()) < 0.0:
            mirror = fit.x.copy()
            mirror[: matches.n_items] *= -1.0
            fit = self._maximum(matches, model, -fit.theta, callback, mirror)
        return fit


def unplaced(what: str, instead: str) -> InputError:
    return InputError(
        f"{what} needs to know which item was shown first, and these comparisons do not say (placed=False). Use "
        f"{instead}, or make the table with left the item shown first."
    )


@declared
class PositionBT(GroupedPairs):
    """Bradley-Terry with a preference, of each annotator's own, for the item shown first.

    Parameters
    ----------
    spread
        Standard deviation of the annotators' log odds around their common mean, which is learned.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(10, n_annotators=4, n_comparisons=8000, position=0.8, random_state=0)
    >>> ranking = PositionBT().fit(crowd.comparisons).consensus_
    >>> bool(abs(ranking.position - crowd.position).max() < 0.3)
    True
    """

    key: ClassVar[str] = "position-bt"

    spread: Positive = 1.0
    max_iter: Count = 200

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        if not answers.placed:
            raise unplaced("position-bt", "bradley-terry or crowd-bt")
        matches = self._matches(answers, by_annotator=True, placed=True)
        model = self._likelihood(matches, "position", spread=float(self.spread))
        fit = self._maximum(matches, model, np.zeros(matches.n_annotators), callback)
        return self._board(answers, matches, fit, model)


LENGTH = r"length|token|words?$|chars|characters"
"""Names of lengths."""
MOST_VALUES = 12
"""Values that a column may have which is not a number."""


def design(table: Comparisons, names: Sequence[str], by_judge: bool = False) -> tuple[list[str], Floats]:
    """The names of the effects, and S x K: what the left answer has more of."""
    effects = [effect for name in names for effect in _effects(table, name)]
    for label, values in effects:
        if not values.any():
            raise InputError(f"The two answers never differ in {label!r}: it has no effect that could be estimated.")
    labels, X = [label for label, _ in effects], np.stack([values for _, values in effects], axis=1)
    if by_judge:
        own = np.eye(table.n_annotators)[table.annotator]
        X = (X[:, :, None] * own[:, None, :]).reshape(len(X), -1)
        labels = [f"{label}, {judge}" for label in labels for judge in table.annotators.tolist()]
        kept = np.abs(X).sum(axis=0) > 0.0
        X, labels = X[:, kept], [label for label, keep in zip(labels, kept, strict=True) if keep]
    return labels, X


def _effects(table: Comparisons, name: str) -> list[tuple[str, Floats]]:
    if name == "length" and table.left_length is not None and table.right_length is not None:
        return [(name, _log_ratio(table.left_length, table.right_length))]
    both = pair_of(name, table.extra_names)
    if not both:
        raise InputError(
            f"There is no column for the covariate {name!r}: expected {name}_a and {name}_b (or left and right, 1 and "
            f"2), or one column of differences, kept with keep=; kept are {listing(table.extra_names)}."
        )
    values = [table.kept(column) for column in both]
    numbers = [_numbers(column) for column in values]
    if all(column is not None for column in numbers):
        if len(both) == 1:
            return [(name, np.nan_to_num(numbers[0]))]
        left, right = numbers
        if re.search(LENGTH, name.lower()) and not (np.minimum(left, right) < 0).any():
            return [(name, _log_ratio(left, right))]
        return [(name, np.nan_to_num(left - right))]
    if len(both) == 1:
        raise InputError(f"Column {name!r} holds no numbers: of values there must be a column for each answer.")
    left, right = (np.array(["" if v is None else str(v) for v in column], dtype=object) for column in values)
    left[right == ""], right[left == ""] = "", ""  # an empty cell counts as no difference
    words, count = np.unique(np.append(left, right)[np.append(left, right) != ""], return_counts=True)
    if len(words) > MOST_VALUES:
        raise InputError(f"The columns of {name!r} have {len(words)} values, and {MOST_VALUES} are allowed.")
    if len(words) < 2:
        return [(name, np.zeros(len(left)))]
    other = words[words != words[count.argmax()]].tolist()
    return [(f"{name}={word}", (left == word).astype(float) - (right == word)) for word in other]


def _log_ratio(left: Any, right: Any) -> Floats:
    return np.asarray(np.nan_to_num(np.log2(np.maximum(left, 1.0) / np.maximum(right, 1.0))))


def _numbers(column: Any) -> Any:
    """The numbers of a column, NaN where it is empty; ``None`` where it holds others."""
    try:
        return np.array([np.nan if v is None or v == "" else float(v) for v in column], dtype=np.float64)
    except (TypeError, ValueError):
        return None
