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

Abilities and difficulties have Gaussian priors, the guesses g[m] of an annotator a Dirichlet prior. Without priors
nothing would be determined: an item has a handful of votes, and a scale (``glad``) or a shift (``irt``) can be moved
from abilities to difficulties.

Why ``irt`` is this and not another. The item response model of tests, sigmoid(a_m - d_n) with two parameters to a
vote, has no place for the label of a wrong answer. People who do not know do not err evenly: they have a favourite
answer. So whoever does not know guesses, from a distribution of their own; as in MACE, a spammer is then somebody who
rarely knows, and the guesses say which answers of theirs to ignore. Unlike MACE's, the probability of knowing depends
on the item. A guess can be right: with x_s going to minus infinity a vote says nothing at all, whatever the number of
classes, while in ``glad`` the hardest items are still answered rightly half of the time.

===============  ====================  =======  ======================================================================
symbol           code                  shape    equation
===============  ====================  =======  ======================================================================
a_m              ``a``, ability        M        prior Normal(mean, sd)
b_n              ``b``, log of ease    N        ``glad``; difficulty is exp(-b_n). Prior Normal(mean, sd)
d_n              ``b``, difficulty     N        ``irt``. Prior Normal(mean, sd)
x_s              ``x``                 S        see above; slopes u_s = dx/da, v_s = dx/db
g[m, l]          ``guess``             M x K    (expected guesses + e / K) / (their sum), e = ``guesses``
z_s              ``bonus``             S        log P(l_s | truth = l_s) - log P(l_s | another truth)
q[n, k]          posterior             N x K    softmax_k( log pi_k + sum of w_s z_s over votes of n for k )
c_s              ``c``                 S        P(right) = q[n, l_s]; ``irt``: P(knew) = q[n, l_s] sigmoid(x_s - log g)
Q(a, b)          ``surrogate``         1        sum w_s ( c_s x_s - log(1 + exp x_s) ) + log priors
J                objective             1        sum_n log sum_k pi_k prod P(l_s | k)^w_s + log priors
===============  ====================  =======  ======================================================================

EM. Given (a, b) the posterior is closed, and with it c_s, the expected value of "was right" or "knew". Given c, Q is a
logistic regression with these targets, in which each vote ties one a to one b; a few safeguarded Newton steps raise
it (:mod:`crowdwise.methods.ability_regression`), so J rises too. When EM has settled, J is maximised over every item's
difficulty by itself, from a grid: an item may have two hills, and EM has climbed the nearer one. This is also how
items that were not in the fit get their difficulty.

When they fail: difficulties are point estimates, so with a handful of votes per item they are mostly their prior, and
under a wide one they explain disagreement away; ability and difficulty are only told apart where annotators share
items; an item everybody gets wrong looks easy. ``glad`` misses annotators who are better at one class than at another,
``irt`` those who mistake one class for another. With two classes and many items that nobody knows, "nobody knows, and
guesses are even" and "half know that it is 1, the others guess 0" explain such items equally well; guesses then tilt
and the items drift into one class, unless the prior keeps guesses even.

J. Whitehill, P. Ruvolo, T. Wu, J. Bergsma and J. Movellan, Whose vote should count more: optimal integration of
labels from labelers of unknown expertise, NIPS 2009 (``glad``). G. Rasch, Probabilistic models for some intelligence
and attainment tests, 1960, and D. Hovy, T. Berg-Kirkpatrick, A. Vaswani and E. Hovy, Learning whom to trust with
MACE, NAACL 2013 (the two halves of ``irt``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from crowdwise.core import priors, starts
from crowdwise.core.checks import check_count, check_number
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.em import Part
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.loop import Callback, Progress
from crowdwise.core.model import Model, Outcome
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, softmax
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.methods.ability_regression import (
    Gaussian,
    Height,
    Problem,
    Rows,
    ascend,
    best_difficulty,
    expect,
    log_gaussian,
    sigmoid,
)

NODES = np.polynomial.hermite_e.hermegauss(9)[0]
LOG_WEIGHTS = np.log(np.polynomial.hermite_e.hermegauss(9)[1])
"""Of Gauss-Hermite quadrature, by which intervals integrate over the difficulty of an item."""

# -------------------------------------------------------------------- the classes


@dataclass(frozen=True)
class State:
    """Where a fit stands: abilities, the b of every item, guesses (``irt``), class shares."""

    a: Floats
    b: Floats
    guess: Floats
    pi: Floats


@declared
class AbilityModel(Model, ABC):
    """EM over abilities and difficulties: what ``glad`` and ``irt`` share.

    Parameters
    ----------
    start
        Where to begin: ``"votes"``, a method of moments (``"spectral-ds"``, ``"multispa"``, ``"cnmf"``, ``"symnmf"``,
        ``"tensor"``), an N x K posterior, or a :class:`~crowdwise.Consensus`.
    max_iter, tol
        Stop after so many passes over the votes, or when a pass gains less than ``tol`` per vote. Once more at the end
        every item's difficulty is looked for afresh.
    ties, random_state
        Equally probable classes: the one with the higher ``"prior"``, then the first; or ``"random"``, seeded.
    """

    takes_item_prior = True

    _chance: ClassVar[str]
    """What p_s is the probability of."""
    class_prior: Any
    start: Any = "votes"
    max_iter: Count = 500
    tol: NonNegative = 1e-7
    ability_: Floats = field(init=False)
    """a_m of every annotator."""
    guess_: Floats = field(init=False)
    """g[m, l] (``irt``)."""
    prior_: Floats = field(init=False)
    """pi_k."""
    _stranger: tuple[float, Floats] = field(init=False)

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
        """What the table of items says."""

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
        q, evidence = expect(to.rows, *self._evidence(to.rows, x, state.guess), log_prior, gold)
        return q, self._credit(to.rows, x, state.guess, q), evidence

    def _objective(self, to: Problem, state: State, evidence: Floats) -> float:
        return float(evidence.sum()) + to.log_priors(state.a, state.b) + self._log_guess_prior(state.guess)

    def _height(self, to: Problem, state: State, log_prior: Floats, gold: Ints | None) -> Height:
        """Each item's part of J, and its slope, as functions of the b of every item."""

        def height(b: Floats) -> tuple[Floats, Floats]:
            x, _, v = to.x(state.a, b)
            q, found = expect(to.rows, *self._evidence(to.rows, x, state.guess), log_prior, gold)
            r = to.rows.weight * (self._credit(to.rows, x, state.guess, q) - sigmoid(x))
            slope = to.rows.per_item(r * v) - (b - to.on_b[0]) / to.on_b[1] ** 2
            return found + log_gaussian(b, to.on_b), slope

        return height

    def _settle(
        self, to: Problem, state: State, log_prior: Floats, gold: Ints | None = None, evidence: Floats | None = None
    ) -> State:
        """The state with the best b of every item; its own b where ``evidence``, at that, shows it to be better."""

        height = self._height(to, state, log_prior, gold)
        b = best_difficulty(height, to.on_b, to.rows.N)
        if evidence is not None:
            # To rounding the same is not better: items of the fit and new ones with the same votes must agree.
            worse = height(b)[0] < evidence + log_gaussian(state.b, to.on_b) - 1e-10
            b = np.where(worse, state.b, b)
        return replace(state, b=b)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        to = self._problem(votes)
        rows = to.rows
        fixed = priors.class_prior_counts(self.class_prior, votes)
        total = max(float(rows.weight.sum()), 1.0)
        trace: list[float] = []

        def log_prior(state: State) -> Floats:
            return safe_log(state.pi)[None] if item_prior is None else safe_log(state.pi)[None] + item_prior

        def keep(state: State, evidence: Floats) -> float:
            """Note an accepted point and return its gain per vote."""
            objective = self._objective(to, state, evidence)
            gain = (objective - trace[-1]) / total if trace else float("inf")
            trace.append(objective)
            if callback is not None:
                callback(Progress(len(trace), self.max_iter, objective, gain))
            return gain

        pi = np.full(rows.K, 1.0 / rows.K) if fixed is None else fixed
        a, b = np.full(rows.M, float(to.on_a[0])), np.full(rows.N, float(to.on_b[0]))
        state = State(a, b, self._guesses(rows, np.zeros(len(rows.item))), pi)
        q, c, _ = self._pass(to, state, log_prior(state), gold)
        if gold is not None or not (isinstance(self.start, str) and self.start == "votes"):
            # Known truths, or what was asked for, say whom to believe before anything else does.
            q = starts.initial_posterior(self.start, Part.of(votes, gold, item_prior), votes, gold, self.random_state)
            c = rows.voted(q)
        converged = False
        while not converged and len(trace) < self.max_iter:
            steady = False
            while not steady and len(trace) < self.max_iter:
                a, b = ascend(to, c, state.a, state.b)
                pi = normalise(q.sum(axis=0), axis=0) if fixed is None else fixed
                state = State(a, b, self._guesses(rows, c), pi)
                q, c, evidence = self._pass(to, state, log_prior(state), gold)
                steady = keep(state, evidence) < self.tol
            # Some items may sit on the lower of two hills. If finding the higher one was worth it, go on from there.
            state = self._settle(to, state, log_prior(state), gold, evidence)
            q, c, evidence = self._pass(to, state, log_prior(state), gold)
            converged = keep(state, evidence) < self.tol and steady
        outcome = self._outcome(to, state, q, float(evidence.sum()), np.array(trace), converged)
        return self._with_intervals(outcome, to, state, log_prior(state), gold)

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
            q, evidence = expect(rows, *self._evidence(rows, x, state.guess), log_prior, gold)
            c = self._credit(rows, x, state.guess, q)
            heights.append(evidence + log_gaussian(b, to.on_b) + log_w + 0.5 * t * t)
            found.append((u * (c - sigmoid(x)), self._guess_slope(rows, c, state.guess)))
        share = softmax(np.stack(heights, axis=1))
        in_a, in_guess = (
            sum((share[rows.item, j] * pair[side] for j, pair in enumerate(found)), np.zeros(len(rows.item)))
            for side in (0, 1)
        )
        at = np.stack(points, axis=1)
        mean = (share * at).sum(axis=1)
        return in_a, in_guess, mean, (share * (at - mean[:, None]) ** 2).sum(axis=1)

    def _with_intervals(
        self, outcome: Outcome, to: Problem, state: State, log_prior: Floats, gold: Ints | None
    ) -> Outcome:
        """Intervals for abilities and difficulties, b integrated out.

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
        (low, high), (p_low, p_high) = ends, (self._mean_chance(to, replace(state, a=a)) for a in ends)
        name, ability, p = self._chance, outcome.annotator_columns["ability"], outcome.annotator_columns[self._chance]
        hard = [self._difficulty(b) for b in around(centre, variance)]
        return replace(
            outcome,
            annotator_columns=with_interval("ability", ability, low, high) | with_interval(name, p, p_low, p_high),
            item_columns=with_interval(
                "difficulty", outcome.item_columns["difficulty"], np.minimum(*hard), np.maximum(*hard)
            ),
        )

    def _information(self, rows: Rows, in_a: Floats, in_guess: Floats, guess: Floats) -> Floats:
        """What the votes of each annotator say of a: sums of squared slopes."""
        return rows.per_annotator(rows.weight * in_a**2)

    def _guess_slope(self, rows: Rows, c: Floats, guess: Floats) -> Floats:
        """Of every vote's log-likelihood in the guess of its label."""
        return np.zeros(len(c))

    def _mean_chance(self, to: Problem, state: State) -> Floats:
        """The mean of p_s over the votes of every annotator; on a typical item for those without votes."""
        rows = to.rows
        seen = rows.per_annotator(rows.weight)
        p = sigmoid(to.link(state.a, np.array([to.on_b[0]]), np.arange(rows.M), np.zeros(rows.M, np.int64))[0])
        total = rows.per_annotator(rows.weight * sigmoid(to.x(state.a, state.b)[0]))
        return np.asarray(np.divide(total, seen, out=p, where=seen > 0))

    def _outcome(
        self, to: Problem, state: State, q: Floats, log_likelihood: float, trace: Floats, converged: bool
    ) -> Outcome:
        rows = to.rows
        self.ability_, self.guess_, self.prior_ = state.a, state.guess, state.pi
        seen = rows.per_annotator(rows.weight)
        share = normalise(seen, axis=0)
        self._stranger = float(share @ state.a), share @ state.guess  # answers like the crowd as a whole
        p = self._mean_chance(to, state)
        return Outcome(
            posterior=q,
            prior=state.pi,
            confusion=self._mean_confusion(p, state.guess, rows.K),
            log_likelihood=log_likelihood,
            trace=trace,
            iterations=len(trace),
            converged=converged,
            annotator_columns={"ability": state.a, self._chance: p},
            item_columns={"difficulty": self._difficulty(state.b)},
        )

    def _predict(self, votes: Votes) -> Floats:
        to = self._problem(votes)
        ability, guess = self._stranger
        strangers = to.rows.M - len(self.ability_)
        a = np.append(self.ability_, np.full(strangers, ability))
        g = np.concatenate([self.guess_, np.tile(guess, (strangers, 1))])
        log_prior = safe_log(self.prior_)[None]
        state = self._settle(to, State(a, np.zeros(to.rows.N), g, self.prior_), log_prior)
        return self._pass(to, state, log_prior)[0]

    def _check_together(self) -> None:
        super()._check_together()
        for name in self.parameters():
            value = getattr(self, name)
            if name.endswith("_mean") and not (isinstance(value, (int, float)) and np.isfinite(value)):
                raise ParameterError(f"{name}={value!r}: expected a number, the mean of a Normal prior.")
            if name.endswith("_sd") and not (isinstance(value, (int, float)) and 0.0 < value < np.inf):
                raise ParameterError(f"{name}={value!r}: expected a standard deviation over 0.")
        check_count(self, "max_iter")
        check_number(self, "tol", least=0.0, what="a number of at least 0, the gain per vote under which the fit stops")
