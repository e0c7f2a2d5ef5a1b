"""Annotators with an ability, items with a difficulty: ``glad`` and ``irt``.

Every vote s, by annotator m on item n, has a number x_s that grows with ability and falls with difficulty, and p_s =
sigmoid(x_s) is the probability that the annotator gets it right (``glad``) or knows the answer (``irt``).

==========  ================================  ===============================================================
method      x_s                               P(m says l, given truth k)
==========  ================================  ===============================================================
``glad``    a_m exp(b_n)                      p_s if l = k, else (1 - p_s) / (K - 1)
``irt``     a_m - d_n                         p_s 1[l = k] + (1 - p_s) g[m, l]
==========  ================================  ===============================================================

Abilities and difficulties have Gaussian priors, the guesses g[m] of an annotator a Dirichlet prior.

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
raise it (below), so J rises too. When EM has converged, J is maximised over every
item's difficulty by itself, from a grid: an item may have two local maxima, and EM ends at the nearer one. Items that
were not in the fit get their difficulty in the same way.

J. Whitehill, P. Ruvolo, T. Wu, J. Bergsma and J. Movellan, Whose vote should count more: optimal integration of
labels from labelers of unknown expertise, NIPS 2009 (``glad``). G. Rasch, Probabilistic models for some intelligence
and attainment tests, 1960, and D. Hovy, T. Berg-Kirkpatrick, A. Vaswani and E. Hovy, Learning whom to trust with
MACE, NAACL 2013 (the two halves of ``irt``).

The Fisher matrix of Q has diagonal blocks A (annotators) and B (items) and one entry per vote, X, between them:

=========  ==========  =====  =======================================================
symbol     code        shape  equation
=========  ==========  =====  =======================================================
p_s                    S      sigmoid(x_s)
h_s        ``h``       S      w_s p_s (1 - p_s)
A_m        ``A``       M      sum over m's votes of h_s u_s^2, and the prior's precision
B_n        ``B``       N      sum over n's votes of h_s v_s^2, and the prior's precision
X          ``cross``   S      h_s u_s v_s
=========  ==========  =====  =======================================================

It is positive definite. Eliminating the items leaves (A - X B^-1 X') da = ga - X B^-1 gb, which a few conjugate
gradient steps solve, each two sums over the votes; then db = (gb - X' da) / B. Nothing is ever items x annotators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from crowdwise.core import priors, starts
from crowdwise.core.constraints import Count, Positive, leading
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.model import Callback, Outcome, Part, Rounds, StartedModel, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, safe_log, softmax
from crowdwise.core.priors import ClassPrior
from crowdwise.core.shrinkage import expit as sigmoid
from crowdwise.core.shrinkage import one_coin_table
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_sums import VoteEdges
from crowdwise.methods.skills_precision import marginal_information

NODES = np.polynomial.hermite_e.hermegauss(9)[0]
LOG_WEIGHTS = np.log(np.polynomial.hermite_e.hermegauss(9)[1])
"""Of Gauss-Hermite quadrature, by which intervals integrate over the difficulty of an item."""


@dataclass(frozen=True)
class AbilityState:
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
    def _link(a: Floats, b: Floats, annotator: Ints, item: Ints) -> Slopes:
        """x_s of every vote, and its derivatives in a and b."""

    @abstractmethod
    def _gaussians(self) -> tuple[Gaussian, Gaussian]:
        """The priors of a and b."""

    @abstractmethod
    def _evidence(self, rows: VoteRows, x: Floats, guess: Floats) -> tuple[Floats, Floats]:
        """z_s and log P(l_s | another truth) of every vote."""

    @abstractmethod
    def _credit(self, rows: VoteRows, x: Floats, guess: Floats, q: Floats) -> Floats:
        """c_s: the probability that the vote was right, or known."""

    @abstractmethod
    def _difficulty(self, b: Floats) -> Floats:
        """The column of the table of items."""

    @abstractmethod
    def _mean_confusion(self, p: Floats, guess: Floats, K: int) -> Floats:
        """theta[m, k, l] of annotators who are right, or know, with probability p[m]."""

    def _guesses(self, rows: VoteRows, c: Floats) -> Floats:
        """g[m, l] from the credits; a model without guesses has an empty table."""
        return np.empty((rows.M, 0))

    def _log_guess_prior(self, guess: Floats) -> float:
        return 0.0

    def _problem(self, votes: Votes, gold: Ints | None = None, item_prior: Floats | None = None) -> AbilityProblem:
        return AbilityProblem(VoteRows.of(votes), self._link, *self._gaussians(), gold, item_prior)

    def _pass(self, to: AbilityProblem, state: AbilityState) -> tuple[Floats, Floats, Floats, Slopes]:
        """Posterior, credits, each item's log-likelihood, and x with its slopes."""
        x, u, v = to.x(state.a, state.b)
        bonus, wrong = self._evidence(to.rows, x, state.guess)
        q, evidence = expect(to.rows, bonus, wrong, to.log_prior(state.pi), to.gold)
        return q, self._credit(to.rows, x, state.guess, q), evidence, (x, u, v)

    def _objective(self, to: AbilityProblem, state: AbilityState, evidence: Floats) -> float:
        return float(evidence.sum()) + to.log_priors(state.a, state.b) + self._log_guess_prior(state.guess)

    def _height(self, to: AbilityProblem, state: AbilityState) -> Height:
        """Each item's part of J, and its slope, as functions of the b of every item."""

        def height(b: Floats) -> tuple[Floats, Floats]:
            _, c, evidence, (x, _, v) = self._pass(to, replace(state, b=b))
            r = to.rows.weight * (c - sigmoid(x))
            return evidence + log_gaussian(b, to.on_b), to.rows.per_item(r * v) - (b - to.on_b[0]) / to.on_b[1] ** 2

        return height

    def _with_best_b(self, to: AbilityProblem, state: AbilityState, evidence: Floats | None = None) -> AbilityState:
        """The state with the best b of every item; its own b where that is better by the ``evidence`` at it."""
        height = self._height(to, state)
        b = best_difficulty(height, to.on_b, to.rows.N)
        if evidence is not None:
            # Equal up to rounding is not better: items of the fit and new ones with the same votes must agree.
            worse = height(b)[0] < evidence + log_gaussian(state.b, to.on_b) - 1e-10
            b = np.where(worse, state.b, b)
        return replace(state, b=b)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        to = self._problem(votes, gold, item_prior)
        rows = to.rows
        fixed = priors.class_prior_counts(self.class_prior, votes)
        rounds = Rounds(self.max_iter, float(rows.weight.sum()), callback)
        pi = np.full(rows.K, 1.0 / rows.K) if fixed is None else fixed
        a, b = np.full(rows.M, float(to.on_a[0])), np.full(rows.N, float(to.on_b[0]))
        state = AbilityState(a, b, self._guesses(rows, np.zeros(len(rows.item))), pi)
        q, c, *_ = self._pass(to, state)
        if gold is not None or not (isinstance(self.start, str) and self.start == "votes"):
            # Gold labels, or the start that was asked for, decide the reliability of annotators first.
            part = Part.of(votes, gold, item_prior)
            q = starts.initial_posterior(self.start, part, votes, gold, self.random_state)
            c = rows.voted(q)
        while rounds.another():
            for _ in rounds:
                a, b = ascend(to, c, state.a, state.b)
                pi = normalise(q.sum(axis=0), axis=0) if fixed is None else fixed
                state = AbilityState(a, b, self._guesses(rows, c), pi)
                q, c, evidence, _ = self._pass(to, state)
                rounds.reached(self._objective(to, state, evidence), below=self.tol)
            # Some items may be at the lower of two maxima. If the higher one gains enough, EM goes on from there.
            steady = rounds.converged
            state = self._with_best_b(to, state, evidence)
            q, c, evidence, _ = self._pass(to, state)
            rounds.iterations += 1
            rounds.reached(self._objective(to, state, evidence), below=self.tol if steady else None)
        self.ability_, self.guess_, self.prior_ = state.a, state.guess, state.pi
        share = normalise(rows.per_annotator(rows.weight), axis=0)
        self._unseen = float(share @ state.a), share @ state.guess  # like the crowd as a whole
        annotators, items = self._columns(to, state)
        return Outcome(
            posterior=q, prior=state.pi, confusion=self._mean_confusion(annotators[self._chance], state.guess, rows.K),
            log_likelihood=float(evidence.sum()), annotator_columns=annotators, item_columns=items, **rounds.outcome,
        )  # fmt: skip

    def _slopes(self, to: AbilityProblem, state: AbilityState, width: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """The slopes of every vote's log-likelihood in a and in the guess of its label, b integrated out.

        Also the mean and variance of every b. By Gauss-Hermite quadrature around the b of each item.
        """
        rows, heights, slopes = to.rows, [], []
        points = [state.b + t * width for t in NODES]
        for b, t, log_w in zip(points, NODES, LOG_WEIGHTS, strict=True):
            _, c, evidence, (x, u, _) = self._pass(to, replace(state, b=b))
            heights.append(evidence + log_gaussian(b, to.on_b) + log_w + 0.5 * t * t)
            slopes.append((u * (c - sigmoid(x)), self._guess_slope(rows, c, state.guess)))
        share = softmax(np.stack(heights, axis=1))
        in_a, in_guess = (
            sum((share[rows.item, j] * pair[side] for j, pair in enumerate(slopes)), np.zeros(len(rows.item)))
            for side in (0, 1)
        )
        at = np.stack(points, axis=1)
        mean = (share * at).sum(axis=1)
        return in_a, in_guess, mean, (share * (at - mean[:, None]) ** 2).sum(axis=1)

    def _columns(self, to: AbilityProblem, state: AbilityState) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Columns of annotators and items, with intervals for abilities and difficulties, b integrated out.

        Given point estimates of b, abilities are too small and their information too large: both are about votes that b
        was fitted to. So the interval is around the ability after two scoring steps up the marginal likelihood.
        """
        rows, (mean, sd) = to.rows, to.on_a
        height, e = self._height(to, state), 1e-3 * to.on_b[1]
        curvature = (height(state.b - e)[1] - height(state.b + e)[1]) / (2.0 * e)
        width = 1.0 / np.sqrt(np.maximum(curvature, to.on_b[1] ** -2))
        moved, information = state, np.ones(rows.M)
        for _ in range(2):
            in_a, in_guess, centre, variance = self._slopes(to, moved, width)
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

    def _information(self, rows: VoteRows, in_a: Floats, in_guess: Floats, guess: Floats) -> Floats:
        """The information about a in the votes of each annotator: sums of squared slopes."""
        return rows.per_annotator(rows.weight * in_a**2)

    def _guess_slope(self, rows: VoteRows, c: Floats, guess: Floats) -> Floats:
        """Of every vote's log-likelihood in the guess of its label."""
        return np.zeros(len(c))

    def _mean_chance(self, to: AbilityProblem, state: AbilityState) -> Floats:
        """The mean of p_s over the votes of every annotator; on a typical item for those without votes."""
        rows = to.rows
        seen = rows.per_annotator(rows.weight)
        p = sigmoid(to.link(state.a, np.array([to.on_b[0]]), np.arange(rows.M), np.zeros(rows.M, np.int64))[0])
        total = rows.per_annotator(rows.weight * sigmoid(to.x(state.a, state.b)[0]))
        return np.asarray(np.divide(total, seen, out=p, where=seen > 0))

    def _predict(self, votes: Votes) -> Floats:
        to, M, (ability, guess) = self._problem(votes), votes.n_annotators, self._unseen
        a, g = with_unseen(self.ability_, M, ability), with_unseen(self.guess_, M, guess)
        state = self._with_best_b(to, AbilityState(a, np.zeros(to.rows.N), g, self.prior_))
        return self._pass(to, state)[0]


def difference(a: Floats, b: Floats, annotator: Ints, item: Ints) -> tuple[Floats, float, float]:
    """x = a - b, dx/da = 1, dx/db = -1."""
    return a[annotator] - b[item], 1.0, -1.0


@declared
class ItemResponse(AbilityModel):
    """Ability minus difficulty: annotators who know the answer give it, the others guess from their own distribution.

    An annotator knows with probability sigmoid(ability - difficulty). The table of annotators has ``ability`` and
    ``knows``, the mean probability of knowing, that of items ``difficulty``; ``guess_`` has the guesses (M x K).
    Confusion matrices are averages over the items that an annotator answered.

    Parameters
    ----------
    ability_mean, ability_sd, difficulty_sd
        The Normal priors of abilities and of difficulties (whose mean is 0: only differences matter). A wide prior of
        difficulties is rarely good: they are point estimates from a few votes each.
    guess_smoothing
        Pseudo-guesses of every annotator, spread evenly over the classes: a Dirichlet prior. More of them (20) where
        no annotator knows many of the items: split votes drift into one class otherwise.
    class_prior
        ``"learned"``, ``"uniform"``, or the probability of each class. Guesses follow the class shares, and under a
        fixed, wrong prior those who know the common class look like guessers.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(400, n_classes=4, accuracy=0.9, votes_per_item=5, random_state=0)
    >>> cw.aggregate(crowd.votes, "irt").score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "irt"
    reads_backwards = False
    _link = staticmethod(difference)
    _chance = "knows"

    ability_sd: Positive = 2.0
    difficulty_sd: Positive = 0.5
    guess_smoothing: Positive = 3.0
    class_prior: ClassPrior = "learned"

    def _gaussians(self) -> tuple[Gaussian, Gaussian]:
        return (self.ability_mean, self.ability_sd), (0.0, self.difficulty_sd)

    def _evidence(self, rows: VoteRows, x: Floats, guess: Floats) -> tuple[Floats, Floats]:
        """z_s = log(1 + exp(x_s) / g), and log P(l_s | another truth) = log(1 - p_s) + log g."""
        log_guess = safe_log(guess).ravel()[rows.cell]
        return softplus(x - log_guess), log_guess - softplus(x)

    def _credit(self, rows: VoteRows, x: Floats, guess: Floats, q: Floats) -> Floats:
        return np.asarray(rows.voted(q) * sigmoid(x - safe_log(guess).ravel()[rows.cell]))

    def _guesses(self, rows: VoteRows, c: Floats) -> Floats:
        return normalise(self._per_cell(rows, 1.0 - c) + self.guess_smoothing / rows.K, axis=1)

    def _per_cell(self, rows: VoteRows, values: Floats) -> Floats:
        """M x K: the weighted sum over an annotator's votes for a label."""
        sums = np.bincount(rows.cell, weights=rows.weight * values, minlength=rows.M * rows.K)
        return np.asarray(sums.reshape(rows.M, rows.K), dtype=np.float64)

    def _guess_slope(self, rows: VoteRows, c: Floats, guess: Floats) -> Floats:
        return np.asarray((1.0 - c) / guess.ravel()[rows.cell])

    def _information(self, rows: VoteRows, in_a: Floats, in_guess: Floats, guess: Floats) -> Floats:
        own = self._per_cell(rows, in_guess**2) + self.guess_smoothing / rows.K / guess**2
        along = self._per_cell(rows, in_a * in_guess)
        return marginal_information(super()._information(rows, in_a, in_guess, guess), along, own)

    def _log_guess_prior(self, guess: Floats) -> float:
        return float(safe_log(guess).sum() * self.guess_smoothing / guess.shape[1])

    def _difficulty(self, b: Floats) -> Floats:
        return b

    def _mean_confusion(self, p: Floats, guess: Floats, K: int) -> Floats:
        return np.asarray(p[:, None, None] * np.eye(K) + (1.0 - p)[:, None, None] * guess[:, None, :])


EASIEST = 10.0
"""The greatest log of ease: sigmoid(exp(10)) is 1 to ten thousand digits, and sums of such x still have decimals."""


def product(a: Floats, b: Floats, annotator: Ints, item: Ints) -> tuple[Floats, Floats, Floats]:
    """x = a exp(b), dx/da = exp(b), dx/db = x. Ease beyond ``EASIEST`` makes no difference."""
    ease = np.exp(np.minimum(b, EASIEST))[item]
    x = a[annotator] * ease
    return x, ease, np.where(b < EASIEST, 1.0, 0.0)[item] * x


@declared
class GLAD(AbilityModel):
    """Ability times ease: an annotator is right with probability sigmoid(ability * exp(log ease)), errors uniform.

    The table of annotators has ``ability`` (under 0: more often wrong than right) and ``right``, the mean probability
    of being right, that of items ``difficulty`` = exp(-log ease). Confusion matrices are averages over the items that
    an annotator answered.

    Parameters
    ----------
    ability_mean, ability_sd, ease_mean, ease_sd
        The Normal priors of abilities and of the log of ease.
    class_prior
        ``"uniform"``, ``"learned"``, or the probability of each class.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.difficulty(500, n_annotators=30, votes_per_item=9, random_state=0)
    >>> cw.aggregate(crowd.votes, "glad").score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "glad"
    _link = staticmethod(product)
    _chance = "right"

    ease_mean: float = 1.0
    ease_sd: Positive = 1.0
    class_prior: ClassPrior = "uniform"
    max_iter: Count = 200

    def _gaussians(self) -> tuple[Gaussian, Gaussian]:
        return (self.ability_mean, self.ability_sd), (self.ease_mean, self.ease_sd)

    def _evidence(self, rows: VoteRows, x: Floats, guess: Floats) -> tuple[Floats, Floats]:
        """z_s = x_s + log(K - 1), and log P(l_s | another truth) = log(1 - p_s) - log(K - 1)."""
        others = np.log(rows.K - 1.0)
        return x + others, -softplus(x) - others

    def _credit(self, rows: VoteRows, x: Floats, guess: Floats, q: Floats) -> Floats:
        return rows.voted(q)

    def _difficulty(self, b: Floats) -> Floats:
        return np.asarray(np.exp(-b))

    def _mean_confusion(self, p: Floats, guess: Floats, K: int) -> Floats:
        return one_coin_table(p, K)


STEPS = 4
"""Newton steps in a maximisation step, at most; it ends sooner where a step gains a tenth of the first."""
INNER = 12
"""Conjugate gradient steps for one Newton step, at most."""
REACH = 2.0
"""How far one Newton step may move a parameter."""
GRID = np.linspace(-4.0, 4.0, 17)
"""Where difficulties are looked for, in standard deviations of their prior."""

Gaussian = tuple[float, float]
"""Mean and standard deviation."""
Slopes = tuple[Floats, Floats | float, Floats | float]
"""x_s, u_s, v_s of every vote."""
Link = Callable[[Floats, Floats, Ints, Ints], Slopes]
"""These from all a and b and the annotator and item of every vote."""
Height = Callable[[Floats], tuple[Floats, Floats]]
"""Each item's part of J, and its slope, from the b of every item."""


@dataclass(frozen=True)
class VoteRows(VoteEdges):
    """Votes as raw arrays, with the places of their labels."""

    K: int
    slot: Ints
    """label * N + item: classes come first, so that reductions over them run along memory."""
    cell: Ints
    """annotator * K + label."""

    @classmethod
    def of(cls, votes: Votes) -> VoteRows:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        item, annotator, label = (a.astype(np.int64) for a in (votes.item, votes.annotator, votes.label))
        weight, slot, cell = votes.weights.astype(np.float64), label * N + item, annotator * K + label
        return cls(item, annotator, label, weight, N, M, K, slot, cell)

    def voted(self, q: Floats) -> Floats:
        """q[n, l_s] of every vote."""
        return np.asarray(q.T.ravel()[self.slot])


def softplus(x: Floats) -> Floats:
    """log(1 + exp x), for any x."""
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def dot(a: Floats, b: Floats) -> float:
    """sum a b, in one thread: a threaded product of vectors costs more than it saves and sums in any order."""
    return float((a * b).sum())


def expect(
    rows: VoteRows, bonus: Floats, wrong: Floats, log_prior: Floats, gold: Ints | None = None
) -> tuple[Floats, Floats]:
    """The posterior q[n, k] and each item's log-likelihood (with its true class, where that is known).

    ``bonus`` is log P(l_s | truth = l_s) - log P(l_s | another truth), ``wrong`` the latter term. Only classes that
    with votes differ, so there is one sum over the votes, whatever K.
    """
    N, K = rows.N, rows.K
    logit = log_prior.T + np.bincount(rows.slot, weights=rows.weight * bonus, minlength=K * N).reshape(K, N)
    top = logit.max(axis=0)
    q = np.exp(logit - top)
    total = q.sum(axis=0)
    evidence = top + np.log(total)
    if gold is not None:
        known = np.flatnonzero(gold >= 0)
        evidence[known] = logit[gold[known], known]
    return clamp((q / total).T, gold), evidence + rows.per_item(rows.weight * wrong)


def log_gaussian(value: Floats, prior: Gaussian) -> Floats:
    """The log density of each value."""
    mean, sd = prior
    return np.asarray(-0.5 * ((value - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2.0 * np.pi))


@dataclass(frozen=True)
class AbilityProblem:
    """The constants of a fit: the votes, the link that gives x, the priors of a and b, gold labels, and the log prior
    of each item where it has one of its own."""

    rows: VoteRows
    link: Link
    on_a: Gaussian
    on_b: Gaussian
    gold: Ints | None = None
    item_prior: Floats | None = None

    def log_prior(self, pi: Floats) -> Floats:
        """Of the classes, 1 x K or N x K."""
        return safe_log(pi)[None] if self.item_prior is None else safe_log(pi)[None] + self.item_prior

    def x(self, a: Floats, b: Floats) -> Slopes:
        return self.link(a, b, self.rows.annotator, self.rows.item)

    def log_priors(self, a: Floats, b: Floats) -> float:
        return float(log_gaussian(a, self.on_a).sum() + log_gaussian(b, self.on_b).sum())


def surrogate(to: AbilityProblem, c: Floats, a: Floats, b: Floats) -> float:
    """Q(a, b) = sum w_s ( c_s x_s - log(1 + exp x_s) ) + log priors."""
    x, _, _ = to.x(a, b)
    return dot(to.rows.weight, c * x - softplus(x)) + to.log_priors(a, b)


def gradient(to: AbilityProblem, c: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """dQ/da and dQ/db: sums of w_s ( c_s - p_s ) times the slopes of x_s, and the slopes of the priors."""
    x, u, v = to.x(a, b)
    r = to.rows.weight * (c - sigmoid(x))
    (mean_a, sd_a), (mean_b, sd_b) = to.on_a, to.on_b
    return to.rows.per_annotator(r * u) - (a - mean_a) / sd_a**2, to.rows.per_item(r * v) - (b - mean_b) / sd_b**2


def direction(to: AbilityProblem, a: Floats, b: Floats, ga: Floats, gb: Floats) -> tuple[Floats, Floats]:
    """The Fisher matrix's answer (da, db) to a gradient (ga, gb).

    The items are eliminated exactly, so the answer points upwards wherever the conjugate gradients end.
    """
    rows = to.rows
    x, u, v = to.x(a, b)
    p = sigmoid(x)
    h = rows.weight * p * (1.0 - p)
    A = rows.per_annotator(h * u * u) + to.on_a[1] ** -2
    B = rows.per_item(h * v * v) + to.on_b[1] ** -2
    cross = h * u * v

    def to_items(y: Floats) -> Floats:
        return rows.per_item(cross * y[rows.annotator])

    def to_annotators(y: Floats) -> Floats:
        return rows.per_annotator(cross * y[rows.item])

    da, r = np.zeros_like(ga), ga - to_annotators(gb / B)
    s = r / A
    size = dot(r, s)
    enough = 1e-4 * size
    for _ in range(INNER):
        if size <= enough:
            break
        image = A * s - to_annotators(to_items(s) / B)
        step = size / dot(s, image)
        da, r = da + step * s, r - step * image
        old, size = size, dot(r, r / A)
        s = r / A + (size / old) * s
    return da, (gb - to_items(da)) / B


def ascend(to: AbilityProblem, c: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """A few safeguarded Newton steps up Q, from (a, b): Q never falls."""
    now, first = surrogate(to, c, a, b), 0.0
    for step in range(STEPS):
        ga, gb = gradient(to, c, a, b)
        da, db = within_reach(ga, gb, *direction(to, a, b, ga, gb))
        slope, length, best = dot(ga, da) + dot(gb, db), 1.0, -np.inf
        while length > 1e-6:
            best = surrogate(to, c, a + length * da, b + length * db)
            if best >= now + 1e-4 * length * slope:
                break
            length /= 2.0
        if not best > now:
            break
        a, b, gain, now = a + length * da, b + length * db, best - now, best
        first = first or gain
        if step and gain < 0.1 * first:
            break
    return a, b


def within_reach(ga: Floats, gb: Floats, da: Floats, db: Floats) -> tuple[Floats, Floats]:
    """A step with its long parts cut off; shortened as a whole where it would not point upwards any more."""
    a, b = np.clip(da, -REACH, REACH), np.clip(db, -REACH, REACH)
    if dot(ga, a) + dot(gb, b) > 0.0:
        return a, b
    longest = max(float(np.abs(da).max(initial=0.0)), float(np.abs(db).max(initial=0.0)), REACH)
    return da * (REACH / longest), db * (REACH / longest)


def best_difficulty(height: Height, on_b: Gaussian, N: int) -> Floats:
    """The b of every item at which J is greatest, all else fixed.

    A grid finds the right maximum; regula falsi on the slope (by Anderson and Bjorck's rule) refines it. The items do
    not interact, so an item has the same b whatever the others are.
    """
    mean, sd = on_b
    best, low, up = np.full(N, -np.inf), np.zeros(N), np.zeros(N)
    for point in mean + sd * GRID:
        value, slope = height(np.full(N, point))
        higher = value > best
        best, low, up = np.where(higher, value, best), np.where(higher, point, low), np.where(higher, slope, up)
    # From the best point the way goes up to `high`, which is no higher; `up` and `down` are the slopes on that way.
    way = np.where(up >= 0.0, 1.0, -1.0)
    high, up = low + way * sd * (GRID[1] - GRID[0]), np.abs(up)
    down = way * height(high)[1]
    side = np.zeros(N)
    for _ in range(60):
        falsi = (down <= 0.0) & (up > down)
        share = np.divide(up, up - down, out=np.full(N, 0.5), where=falsi)
        probe = low + share * (high - low)
        value, slope = height(probe)
        slope = slope * way
        # A slope that still goes up, but from lower ground, belongs to another maximum.
        rise = (slope > 0.0) & (value >= best - 1e-9)
        low, best = np.where(rise, probe, low), np.where(rise, np.maximum(value, best), best)
        high = np.where(rise, high, probe)
        # The end that stays a second time counts for less.
        before = np.where(rise, up, down)
        ratio = np.divide(slope, before, out=np.ones(N), where=before != 0.0)
        less = np.where(ratio < 1.0, 1.0 - ratio, 0.5)
        up = np.where(rise, slope, np.where(side < 0.0, up * less, up))
        down = np.where(rise, np.where(side > 0.0, down * less, down), slope)
        side = np.where(rise, 1.0, -1.0)
        if (np.minimum(np.abs(high - low), np.abs(slope)) < 1e-11).all():
            break
    return np.asarray(probe)
