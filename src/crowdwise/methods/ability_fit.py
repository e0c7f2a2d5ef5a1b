"""Annotators with an ability, items with a difficulty: ``glad`` and ``irt``.

In the Dawid-Skene family an annotator errs alike on every item of a class. Here some items are harder than others:
every vote s, by annotator m on item n, has a number x_s that grows with ability and falls with difficulty, and p_s =
sigmoid(x_s) is the probability that the annotator gets it right (``glad``) or knows the answer (``irt``).

==========  ================================  ===============================================================
method      x_s                               P(m says l, given truth k)
==========  ================================  ===============================================================
``glad``    a_m exp(b_n)                      p_s if l = k, else (1 - p_s) / (K - 1)
``irt``     a_m - d_n                         p_s 1[l = k] + (1 - p_s) g[m, l]
==========  ================================  ===============================================================

Abilities and difficulties have Gaussian priors, the guesses g[m] of an annotator a Dirichlet prior. Without priors they
are not identified: an item has a handful of votes, and a scale (``glad``) or a shift (``irt``) can be moved from
abilities to difficulties.

The item response model of tests, sigmoid(a_m - d_n) with two parameters per vote, has no place for the label of a
wrong answer, and annotators who do not know the answer do not err evenly: they have a favourite label. So in ``irt``
they guess from a distribution of their own; as in MACE, a spammer is then an annotator who rarely knows, and whose
guesses are ignored. Unlike in MACE, the probability of knowing depends on the item. A guess can be right: with x_s
going to minus infinity a vote carries no information, whatever the number of classes, while in ``glad`` the hardest
items are still answered rightly half of the time.

===============  ====================  =======  ======================================================================
symbol           code                  shape    equation
===============  ====================  =======  ======================================================================
a_m              ``a``, ability        M        prior Normal(mean, sd)
b_n              ``b``, log of ease    N        ``glad``; difficulty is exp(-b_n). Prior Normal(mean, sd)
d_n              ``b``, difficulty     N        ``irt``. Prior Normal(mean, sd)
x_s              ``x``                 S        see above; slopes u_s = dx/da, v_s = dx/db
g[m, l]          ``guess``             M x K    (expected guesses + e / K) / (their sum), e = ``guess_smoothing``
z_s              ``bonus``             S        log P(l_s | truth = l_s) - log P(l_s | another truth)
q[n, k]          posterior             N x K    softmax_k( log pi_k + sum of w_s z_s over votes of n for k )
c_s              ``c``                 S        P(right) = q[n, l_s]; ``irt``: P(knew) = q[n, l_s] sigmoid(x_s - log g)
Q(a, b)          ``surrogate``         1        sum w_s ( c_s x_s - log(1 + exp x_s) ) + log priors
J                objective             1        sum_n log sum_k pi_k prod P(l_s | k)^w_s + log priors
===============  ====================  =======  ======================================================================

EM. Given (a, b) the posterior is closed, and with it c_s, the expected value of "was right" or "knew". Given c, Q is a
logistic regression with these targets, in which each vote connects one a with one b; a few safeguarded Newton steps
raise it (:mod:`crowdwise.methods.ability_regression`), so J rises too. When EM has converged, J is maximised over every
item's difficulty by itself, from a grid: an item may have two local maxima, and EM ends at the nearer one. Items that
were not in the fit get their difficulty in the same way.

J. Whitehill, P. Ruvolo, T. Wu, J. Bergsma and J. Movellan, Whose vote should count more: optimal integration of
labels from labelers of unknown expertise, NIPS 2009 (``glad``). G. Rasch, Probabilistic models for some intelligence
and attainment tests, 1960, and D. Hovy, T. Berg-Kirkpatrick, A. Vaswani and E. Hovy, Learning whom to trust with
MACE, NAACL 2013 (the two halves of ``irt``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from crowdwise.core import priors, starts
from crowdwise.core.constraints import Positive
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.model import Callback, Outcome, Part, Rounds, StartedModel, Votes, declared, leading
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, softmax
from crowdwise.core.unseen import with_unseen
from crowdwise.methods import ability_regression as regression
from crowdwise.methods.ability_regression import Gaussian, Problem, Rows

NODES = np.polynomial.hermite_e.hermegauss(9)[0]
LOG_WEIGHTS = np.log(np.polynomial.hermite_e.hermegauss(9)[1])
"""Of Gauss-Hermite quadrature, by which intervals integrate over the difficulty of an item."""


@dataclass(frozen=True)
class State:
    """The parameters of a fit: abilities, the b of every item, guesses (``irt``), class shares."""

    a: Floats
    b: Floats
    guess: Floats
    pi: Floats


@declared
class AbilityModel(StartedModel, ABC):
    """EM over abilities and difficulties: the base of ``glad`` and ``irt``."""

    _chance: ClassVar[str]
    """The column for the mean of p_s."""
    ability_mean: float = leading(default=1.0)
    ability_sd: Positive = leading(default=1.0)
    class_prior: priors.ClassPrior
    ability_: Floats = field(init=False)
    """a_m of every annotator."""
    guess_: Floats = field(init=False)
    """g[m, l] (``irt``)."""
    prior_: Floats = field(init=False)
    """pi_k."""
    _unseen: tuple[float, Floats] = field(init=False)

    @staticmethod
    @abstractmethod
    def _link(a: Floats, b: Floats, annotator: Ints, item: Ints) -> tuple[Floats, Floats | float, Floats | float]:
        """x_s of every vote, and its derivatives in a and b."""

    @abstractmethod
    def _gaussians(self) -> tuple[Gaussian, Gaussian]:
        """The priors of a and b."""

    @abstractmethod
    def _evidence(self, rows: Rows, x: Floats, guess: Floats) -> tuple[Floats, Floats]:
        """z_s and log P(l_s | another truth) of every vote."""

    @abstractmethod
    def _credit(self, rows: Rows, x: Floats, guess: Floats, q: Floats) -> Floats:
        """c_s: the probability that the vote was right, or known."""

    @abstractmethod
    def _difficulty(self, b: Floats) -> Floats:
        """The column of the table of items."""

    @abstractmethod
    def _mean_confusion(self, p: Floats, guess: Floats, K: int) -> Floats:
        """theta[m, k, l] of annotators who are right, or know, with probability p[m]."""

    def _guesses(self, rows: Rows, c: Floats) -> Floats:
        """g[m, l] from the credits; a model without guesses has an empty table."""
        return np.empty((rows.M, 0))

    def _log_guess_prior(self, guess: Floats) -> float:
        return 0.0

    def _problem(self, votes: Votes) -> Problem:
        return Problem(Rows.of(votes), self._link, *self._gaussians())

    def _pass(
        self, to: Problem, state: State, log_prior: Floats, gold: Ints | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Posterior, credits, and each item's log-likelihood."""
        x, _, _ = to.x(state.a, state.b)
        q, evidence = regression.expect(to.rows, *self._evidence(to.rows, x, state.guess), log_prior, gold)
        return q, self._credit(to.rows, x, state.guess, q), evidence

    def _objective(self, to: Problem, state: State, evidence: Floats) -> float:
        return float(evidence.sum()) + to.log_priors(state.a, state.b) + self._log_guess_prior(state.guess)

    def _height(self, to: Problem, state: State, log_prior: Floats, gold: Ints | None) -> regression.Height:
        """Each item's part of J, and its slope, as functions of the b of every item."""

        def height(b: Floats) -> tuple[Floats, Floats]:
            x, _, v = to.x(state.a, b)
            q, found = regression.expect(to.rows, *self._evidence(to.rows, x, state.guess), log_prior, gold)
            r = to.rows.weight * (self._credit(to.rows, x, state.guess, q) - regression.sigmoid(x))
            slope = to.rows.per_item(r * v) - (b - to.on_b[0]) / to.on_b[1] ** 2
            return found + regression.log_gaussian(b, to.on_b), slope

        return height

    def _with_best_b(
        self, to: Problem, state: State, log_prior: Floats, gold: Ints | None = None, evidence: Floats | None = None
    ) -> State:
        """The state with the best b of every item; its own b where that is better by the ``evidence`` at it."""
        height = self._height(to, state, log_prior, gold)
        b = regression.best_difficulty(height, to.on_b, to.rows.N)
        if evidence is not None:
            # Equal up to rounding is not better: items of the fit and new ones with the same votes must agree.
            worse = height(b)[0] < evidence + regression.log_gaussian(state.b, to.on_b) - 1e-10
            b = np.where(worse, state.b, b)
        return replace(state, b=b)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        to = self._problem(votes)
        rows = to.rows
        fixed = priors.class_prior_counts(self.class_prior, votes)
        rounds = Rounds(self.max_iter, float(rows.weight.sum()), callback)

        def log_prior(state: State) -> Floats:
            return safe_log(state.pi)[None] if item_prior is None else safe_log(state.pi)[None] + item_prior

        pi = np.full(rows.K, 1.0 / rows.K) if fixed is None else fixed
        a, b = np.full(rows.M, float(to.on_a[0])), np.full(rows.N, float(to.on_b[0]))
        state = State(a, b, self._guesses(rows, np.zeros(len(rows.item))), pi)
        q, c, _ = self._pass(to, state, log_prior(state), gold)
        if gold is not None or not (isinstance(self.start, str) and self.start == "votes"):
            # Gold labels, or the start that was asked for, decide the reliability of annotators first.
            part = Part.of(votes, gold, item_prior)
            q = starts.initial_posterior(self.start, part, votes, gold, self.random_state)
            c = rows.voted(q)
        while rounds.another():
            for _ in rounds:
                a, b = regression.ascend(to, c, state.a, state.b)
                pi = normalise(q.sum(axis=0), axis=0) if fixed is None else fixed
                state = State(a, b, self._guesses(rows, c), pi)
                q, c, evidence = self._pass(to, state, log_prior(state), gold)
                rounds.reached(self._objective(to, state, evidence), below=self.tol)
            # Some items may be at the lower of two maxima. If the higher one gains enough, EM goes on from there.
            steady = rounds.converged
            state = self._with_best_b(to, state, log_prior(state), gold, evidence)
            q, c, evidence = self._pass(to, state, log_prior(state), gold)
            rounds.iterations += 1
            rounds.reached(self._objective(to, state, evidence), below=self.tol if steady else None)
        self.ability_, self.guess_, self.prior_ = state.a, state.guess, state.pi
        share = normalise(rows.per_annotator(rows.weight), axis=0)
        self._unseen = float(share @ state.a), share @ state.guess  # like the crowd as a whole
        annotators, items = self._columns(to, state, log_prior(state), gold)
        return Outcome(
            posterior=q, prior=state.pi, confusion=self._mean_confusion(annotators[self._chance], state.guess, rows.K),
            log_likelihood=float(evidence.sum()), annotator_columns=annotators, item_columns=items, **rounds.outcome,
        )  # fmt: skip

    def _slopes(
        self, to: Problem, state: State, log_prior: Floats, gold: Ints | None, width: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """The slopes of every vote's log-likelihood in a and in the guess of its label, b integrated out.

        Also the mean and variance of every b. By Gauss-Hermite quadrature around the b of each item.
        """
        rows, heights, found = to.rows, [], []
        points = [state.b + t * width for t in NODES]
        for b, t, log_w in zip(points, NODES, LOG_WEIGHTS, strict=True):
            x, u, _ = to.x(state.a, b)
            q, evidence = regression.expect(rows, *self._evidence(rows, x, state.guess), log_prior, gold)
            c = self._credit(rows, x, state.guess, q)
            heights.append(evidence + regression.log_gaussian(b, to.on_b) + log_w + 0.5 * t * t)
            found.append((u * (c - regression.sigmoid(x)), self._guess_slope(rows, c, state.guess)))
        share = softmax(np.stack(heights, axis=1))
        in_a, in_guess = (
            sum((share[rows.item, j] * pair[side] for j, pair in enumerate(found)), np.zeros(len(rows.item)))
            for side in (0, 1)
        )
        at = np.stack(points, axis=1)
        mean = (share * at).sum(axis=1)
        return in_a, in_guess, mean, (share * (at - mean[:, None]) ** 2).sum(axis=1)

    def _columns(
        self, to: Problem, state: State, log_prior: Floats, gold: Ints | None
    ) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Columns of annotators and items, with intervals for abilities and difficulties, b integrated out.

        Given point estimates of b, abilities are too small and their information too large: both are about votes that b
        was fitted to. So the interval is around the ability after two scoring steps up the marginal likelihood.
        """
        rows, (mean, sd) = to.rows, to.on_a
        height, e = self._height(to, state, log_prior, gold), 1e-3 * to.on_b[1]
        curvature = (height(state.b - e)[1] - height(state.b + e)[1]) / (2.0 * e)
        width = 1.0 / np.sqrt(np.maximum(curvature, to.on_b[1] ** -2))
        moved, information = state, np.ones(rows.M)
        for _ in range(2):
            in_a, in_guess, centre, variance = self._slopes(to, moved, log_prior, gold, width)
            information = self._information(rows, in_a, in_guess, state.guess) + sd**-2
            step = (rows.per_annotator(rows.weight * in_a) - (moved.a - mean) / sd**2) / information
            moved = replace(moved, a=moved.a + np.clip(step, -sd, sd))
        ends = around(moved.a, 1.0 / information)
        chances = (self._mean_chance(to, replace(state, a=a)) for a in (state.a, *ends))
        hard = [self._difficulty(b) for b in around(centre, variance)]
        return (
            with_interval("ability", state.a, *ends) | with_interval(self._chance, *chances),
            with_interval("difficulty", self._difficulty(state.b), np.minimum(*hard), np.maximum(*hard)),
        )

    def _information(self, rows: Rows, in_a: Floats, in_guess: Floats, guess: Floats) -> Floats:
        """The information about a in the votes of each annotator: sums of squared slopes."""
        return rows.per_annotator(rows.weight * in_a**2)

    def _guess_slope(self, rows: Rows, c: Floats, guess: Floats) -> Floats:
        """Of every vote's log-likelihood in the guess of its label."""
        return np.zeros(len(c))

    def _mean_chance(self, to: Problem, state: State) -> Floats:
        """The mean of p_s over the votes of every annotator; on a typical item for those without votes."""
        rows = to.rows
        seen = rows.per_annotator(rows.weight)
        p = regression.sigmoid(
            to.link(state.a, np.array([to.on_b[0]]), np.arange(rows.M), np.zeros(rows.M, np.int64))[0]
        )
        total = rows.per_annotator(rows.weight * regression.sigmoid(to.x(state.a, state.b)[0]))
        return np.asarray(np.divide(total, seen, out=p, where=seen > 0))

    def _predict(self, votes: Votes) -> Floats:
        to, (ability, guess) = self._problem(votes), self._unseen
        M, log_prior = votes.n_annotators, safe_log(self.prior_)[None]
        a, g = with_unseen(self.ability_, M, ability), with_unseen(self.guess_, M, guess)
        state = self._with_best_b(to, State(a, np.zeros(to.rows.N), g, self.prior_), log_prior)
        return self._pass(to, state, log_prior)[0]
