"""MACE: each answer is known, or drawn from the annotator's habit.

On every item annotator m either knows the answer (with probability theta[m]) and gives it, or draws a label from a
strategy xi[m] of their own, whatever the item is:

    P(m says l, truth k) = theta[m] [l = k] + (1 - theta[m]) xi[m, l]

theta is the annotator's competence: the share of their answers that carry information.

=============  ==============  ============  ====================================================================
symbol         code            shape         equation
=============  ==============  ============  ====================================================================
c[m, l, k]     ``counts``      M x L x K     sum over m's votes for l of q[n, k]
r[m, l]        ``knew``        M x L         theta[m] / (theta[m] + (1 - theta[m]) xi[m, l]): knew, given l was right
e[m, l]        ``spam``        M x L         sum_k c[m, l, k] - r[m, l] c[m, l, l]: answers from habit
theta[m]       ``knowing``     M x 2         Beta( p1 + sum_l r c[m, l, l], p0 + sum_l e[m, l] )
xi[m, l]       ``strategy``    M x L         Dir( s + e[m, l] )
q[n, k]        posterior       N x K         softmax_k( log pi_k + sum_votes log s[m, l, k] )
s[m, l, k]     ``log_score``   (M L) x K     e^{E log theta} [l = k] + e^{E log (1 - theta)} e^{E log xi}
ELBO           objective                     sum_n log Z_n - KL(theta) - KL(xi)
=============  ==============  ============  ====================================================================

``em`` puts shares, smoothed by pseudo-counts b, in place of the distributions, and raises
log-likelihood + b sum( log theta + log(1 - theta) + sum_l log xi ). The settings are those of the authors' program,
which starts ten times at random. Here the first start is the vote shares, and there are two random ones.

D. Hovy, T. Berg-Kirkpatrick, A. Vaswani and E. Hovy, Learning whom to trust with MACE, NAACL-HLT 2013.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from crowdwise.core import em, priors
from crowdwise.core.constraints import Bounds, Check, CountFromZero, NonNegative, Positive, are_numbers
from crowdwise.core.intervals import around, beta_interval, with_interval
from crowdwise.core.model import Callback, EMFit, EMModel, Family, Params, Stats, declared
from crowdwise.core.numerics import Floats, clamp, normalise, safe_log
from crowdwise.core.vote_parts import VotePart, VoteParts, right_sums
from crowdwise.core.vote_sums import known_share
from crowdwise.methods.bayes_ibcc import drawn, expected_log, log_beta
from crowdwise.methods.skills_precision import knowing_information


@dataclass(frozen=True)
class Habits(Params):
    """Knowing or not (M x 2) and strategies (M x L): logarithms, and the (pseudo-)counts that they come from."""

    log_knowing: Floats
    log_strategy: Floats
    knowing: Floats
    strategy: Floats


def scores(log_knowing: Floats, log_strategy: Floats) -> Floats:
    """log s[m, l, k] = log( theta [l = k] + (1 - theta) xi[l] ), from the logarithms."""
    habit = log_knowing[:, 1:] + log_strategy
    knew = np.logaddexp(log_knowing[:, :1], habit)
    return np.where(np.eye(habit.shape[1], dtype=bool), knew[:, :, None], habit[:, :, None])


def answers(counts: Floats, log_knowing: Floats, log_strategy: Floats) -> tuple[Floats, Floats]:
    """How many answers annotators knew, and how many of each label came from habit: M x 2 and M x L."""
    right, ones = np.einsum("mll->ml", counts), np.ones(counts.shape[2])  # sums over few classes: a product is faster
    habit = log_knowing[:, 1:] + log_strategy
    knew = right * np.exp(log_knowing[:, :1] - np.logaddexp(log_knowing[:, :1], habit))
    spam = np.maximum(counts @ ones - knew, 0.0)
    return np.stack([knew @ ones, spam @ ones], axis=1), spam


@dataclass
class HabitFamily(Family):
    """The step and its objective.

    Whether an annotator knew depends on the parameters before the step, so the family stores them: each run of EM has a
    family of its own, and is not accelerated (an extrapolation that is undone would leave the wrong state).
    """

    variational: bool
    knowing_prior: Floats
    strategy_prior: Floats
    class_prior: Floats | None
    log_knowing: Floats
    log_strategy: Floats

    def __post_init__(self) -> None:
        both = (self.knowing_prior, self.strategy_prior)
        self._log_beta = sum(float(log_beta(a, axis=1).sum()) for a in both) if self.variational else 0.0

    def maximise(self, stats: Stats) -> Habits:
        known, spam = answers(stats.table(), self.log_knowing, self.log_strategy)
        knowing, strategy = known + self.knowing_prior, spam + self.strategy_prior
        if self.variational:
            self.log_knowing, self.log_strategy = expected_log(knowing, axis=1), expected_log(strategy, axis=1)
        else:
            self.log_knowing, self.log_strategy = (safe_log(normalise(x, axis=1)) for x in (knowing, strategy))
        log_prior = em.log_class_prior(stats.mass, self.class_prior)
        log_score = scores(self.log_knowing, self.log_strategy).reshape(stats.counts.shape)
        return Habits(log_score, log_prior, self.log_knowing, self.log_strategy, knowing, strategy)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """log-likelihood plus the smoothing, or less the divergences from the priors (:func:`bayes.divergence`)."""
        assert isinstance(params, Habits)
        if not self.variational:
            smoothed = (self.knowing_prior * params.log_knowing).sum()
            return log_likelihood + float(smoothed + (self.strategy_prior * params.log_strategy).sum())
        bound = log_likelihood - self._log_beta  # that of the priors, always the same
        for a, a0, mean_log in (
            (params.knowing, self.knowing_prior, params.log_knowing),
            (params.strategy, self.strategy_prior, params.log_strategy),
        ):
            bound += float(log_beta(a, axis=1).sum() - np.vdot(a - a0, mean_log))
        return bound


CompetencePrior = Annotated[Any, Check(
    lambda value: are_numbers(value, Bounds(above=0), ((), (2,))), "a number above 0, or two, (knowing, not knowing)",
    (0.5, (1.0, 2.0)), (0.0, (1.0, -1.0), (1.0, 1.0, 1.0), "x"),
)]  # fmt: skip


def random_start(part: VotePart, rng: np.random.Generator) -> Stats:
    """The statistics of a posterior that is drawn at random."""
    return em.statistics(part.part, clamp(normalise(drawn(part.votes, part.gold, rng), axis=1), part.gold))


@declared
class MACE(EMModel):
    """Multi-annotator competence estimation: answers are known, or come from the annotator's habit.

    Parameters
    ----------
    inference
        ``"variational"`` (the authors' recommendation) or ``"em"``.
    competence_prior
        With ``"variational"``: the Beta prior of competence, as (knowing, not knowing), or one number for both.
    strategy_prior
        With ``"variational"``: pseudo-votes per label on every strategy.
    smoothing
        With ``"em"``: pseudo-counts, divided by the number of classes, on every probability.
    class_prior
        ``"uniform"`` as in the paper, ``"learned"``, or the probability of each class.
    restarts
        How many further starts, at random and not from the votes, to try; the best objective is kept.

    Notes
    -----
    The table of annotators has the columns ``competence`` (theta), ``favourite`` (the label their habit prefers) and
    ``favourite_share``; ``strategy_`` holds all of xi, M x K.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(300, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    >>> model = cw.MACE().fit(crowd.votes)
    >>> model.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    >>> model.strategy_.shape
    (20, 3)
    """

    key = "mace"
    in_parts = True
    reads_backwards = False
    columns_without_interval = ("favourite",)

    inference: Literal["variational", "em"] = "variational"
    competence_prior: CompetencePrior = 0.5
    strategy_prior: Positive = 10.0
    smoothing: NonNegative = 0.01
    class_prior: priors.ClassPrior = "uniform"
    restarts: CountFromZero = 2
    accelerate: bool = field(default=False, init=False)
    strategy_: Floats = field(init=False)
    competence_: Floats = field(init=False)

    def _family_of(self, parts: VoteParts) -> HabitFamily:
        votes = parts.names
        M, K = votes.n_annotators, votes.n_classes
        vb = self.inference == "variational"
        b = self.smoothing / K
        knowing = np.asarray(self.competence_prior, dtype=np.float64) if vb else np.full(2, b)
        strategy = np.full((M, K), float(self.strategy_prior) if vb else b)
        fixed = priors.class_prior_counts(self.class_prior, votes)
        even = np.full((M, 2), np.log(0.5)), np.full((M, K), -np.log(K))
        return HabitFamily(vb, np.broadcast_to(knowing, (M, 2)), strategy, fixed, *even)

    def _best_fit(self, parts: VoteParts, callback: Callback | None) -> tuple[Family, EMFit]:
        first, rng = self._start(parts), np.random.default_rng(self.random_state)

        def run(restart: int) -> EMFit:
            start = random_start(parts.only, rng) if restart else first
            return self._run_em(parts, self._family_of(parts), start, callback, restart)

        return self._family_of(parts), em.best_fit(map(run, range(self.restarts + 1)), self.tol * parts.n_votes)

    def _run(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit, dict[str, Any]]:
        params, fit, _ = super()._run(parts, callback)
        assert isinstance(params, Habits)
        self._confusion(params, parts.names.n_classes)
        columns = with_interval("competence", self.competence_, *self._competence_interval(parts, params))
        columns["favourite"] = parts.names.classes.astype(str)[self.strategy_.argmax(axis=1)]
        most = params.strategy.max(axis=1)  # of the answers from habit, whose share is a Beta
        ends = beta_interval(np.maximum(most, 0.5), np.maximum(params.strategy.sum(axis=1) - most, 0.5))
        columns |= with_interval("favourite_share", self.strategy_.max(axis=1), *ends)
        bound = {} if self.inference == "em" else {"log_likelihood": None}
        return params, fit, {"annotator_columns": columns} | bound

    def _confusion(self, params: Params, K: int) -> Floats:
        """theta[m, k, l] of competence and strategy, which are kept."""
        assert isinstance(params, Habits)
        knowing, self.strategy_ = normalise(params.knowing, axis=1), normalise(params.strategy, axis=1)
        self.competence_ = knowing[:, 0].copy()
        return np.asarray(
            knowing[:, 1, None, None] * self.strategy_[:, None, :] + self.competence_[:, None, None] * np.eye(K)
        )

    def _competence_interval(self, parts: VoteParts, params: Habits) -> tuple[Floats, Floats]:
        """Normal in log-odds, by the information of the votes and of the priors."""
        truths = known_share(*right_sums(parts, params))[:, None] * parts.expect(params).table().sum(axis=1)
        prior = self._family_of(parts)
        theta = np.clip(self.competence_, 1e-9, 1.0 - 1e-9)
        information = knowing_information(theta, self.strategy_, truths, prior.strategy_prior)
        information += prior.knowing_prior.sum(axis=1) * theta * (1.0 - theta)
        low, high = around(np.log(theta) - np.log1p(-theta), 1.0 / np.maximum(information, 1e-12), -700.0, 700.0)
        return 1.0 / (1.0 + np.exp(-low)), 1.0 / (1.0 + np.exp(-high))
