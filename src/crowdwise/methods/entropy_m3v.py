"""Max-margin majority voting: weighted votes that win by a margin.

Give every annotator a weight eta_m. Class k of item n then scores s[n, k] = sum of w eta_m over the votes for k, and
what matters is the margin of the chosen class y_n over the best of the others.

``m3v`` (max-margin majority voting) chooses weights and classes together so that margins are large and weights small,

    minimise over eta, y:  |eta|^2 / 2  +  c sum_n max(0, 1 - s[n, y_n] + max_{d != y_n} s[n, d]),

in turns: given y this is a linear multi-class support vector machine, solved through its dual to a small duality gap;
given eta the best y_n is the class with the highest score. Neither raises the objective. (The paper's l, the margin
asked for, only rescales eta here: c stands for c / l.) c is that whose classes make the votes likeliest, each annotator
having the confusion matrix that fits best (``vote_likelihood``). Scores have no scale of their own. To get
probabilities, votes are read as those of annotators right with log-odds beta eta_m and wrong answers spread evenly,
beta is set by maximum likelihood, and q[n, k] is the softmax over k of beta s[n, k].

===============  ==============  ==========  ==============================================================
symbol           code            shape       equation
===============  ==============  ==========  ==============================================================
eta_m            ``eta``         M           sum_n sum_d omega[n, d] ( m's votes for y_n less those for d )
omega[n, d]      ``omega``       N x K       dual variables: >= 0, sum_d omega[n, d] <= c, none for y_n
s[n, k]          ``s``           N x K       sum of w eta_m over the votes for k
objective        ``primal``                  as above; the dual, sum omega - |eta|^2 / 2, is never greater
beta             ``fit_scale``               the likeliest scale
===============  ==============  ==========  ==============================================================

T. Tian and J. Zhu, Max-margin majority voting for learning from crowds, NIPS 2015.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from crowdwise.core.constraints import Count, Fraction, Positive
from crowdwise.core.model import Callback, Model, Outcome, Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, decide, maximise_1d, normalise, safe_log, softmax
from crowdwise.core.starts import gold_weighted
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_order import Canonical
from crowdwise.core.vote_sums import tally

COSTS = (2.0**-8, 2.0**-6, 2.0**-4)
"""What ``m3v`` tries where the likelihood is to choose. Where all margins are missed eta is c times a vector, so still
smaller costs change little; larger ones take longest, and gained nothing on simulated crowds."""
EPOCHS = 10
"""Passes over the items between two evaluations of the duality gap."""


def scores(item: Ints, label: Ints, value: Floats, N: int, K: int) -> Floats:
    """N x K: the sum of the values of the votes for each class."""
    return np.bincount(item * K + label, weights=value, minlength=N * K).astype(np.float64).reshape(N, K)


def rivals(s: Floats, y: Ints) -> tuple[Ints, Floats]:
    """For each item the best class other than y, and by how much y is ahead of it."""
    rows = np.arange(len(s))
    rest = s.copy()
    rest[rows, y] = -np.inf
    rival = rest.argmax(axis=1)
    return rival, s[rows, y] - rest[rows, rival]


def margins(s: Floats) -> Floats:
    """N x K: how far each class is ahead of the best of the others (behind: negative)."""
    top = np.sort(s, axis=1)
    best, second = top[:, -1:], top[:, -2:-1]
    return s - np.where(s == best, second, best)


def primal(eta: Floats, s: Floats, y: Ints, c: float) -> float:
    """|eta|^2 / 2 + c sum_n max(0, 1 - margin)."""
    return 0.5 * float(eta @ eta) + c * float(np.maximum(0.0, 1.0 - rivals(s, y)[1]).sum())


def largest_margin(
    v: Canonical, y: Ints, c: float, omega: Floats, eta: Floats, tol: float, limit: int = 2000
) -> tuple[Floats, float, float]:
    """The weights for given classes: eta, its objective, and the dual's, a lower bound on any objective.

    Goes on from ``omega`` (N x K, changed in place) and stops when the gap is under ``tol`` of the objective.
    """
    from crowdwise.kernels.margin_ascent import sweep

    N, _, K = v.shape
    indptr = np.searchsorted(v.item, np.arange(N + 1))
    empty = float((np.diff(indptr) == 0).sum())  # their hinge is 1 whatever the weights
    eta = eta.copy()
    value = bound = 0.0
    for _ in range(limit // EPOCHS):
        sweep(indptr, v.annotator, v.label, v.weight, y, c, omega, eta, EPOCHS)
        value = primal(eta, scores(v.item, v.label, v.weight * eta[v.annotator], N, K), y, c)
        bound = float(omega.sum()) - 0.5 * float(eta @ eta) + c * empty
        if value - bound <= tol * value:
            break
    return eta, value, bound


def weights_from(v: Canonical, y: Ints, omega: Floats) -> Floats:
    """eta = sum_n sum_d omega[n, d] ( votes for y_n - votes for d )."""
    beta = -omega
    beta[np.arange(len(y)), y] += omega.sum(axis=1)
    value = v.weight * beta[v.item, v.label]
    return np.bincount(v.annotator, weights=value, minlength=v.shape[1]).astype(np.float64)


def confusion_counts(v: Canonical, y: Ints) -> Floats:
    """c[m, k, l]: the weight of m's votes for l on items of class k."""
    _, M, K = v.shape
    cell = (v.annotator * K + y[v.item]) * K + v.label
    return np.bincount(cell, weights=v.weight, minlength=M * K * K).astype(np.float64).reshape(M, K, K)


def vote_likelihood(v: Canonical, y: Ints) -> float:
    """log P(votes | y), every annotator with the confusion matrix that makes it greatest."""
    counts = confusion_counts(v, y)
    return float((counts * safe_log(normalise(counts, axis=2))).sum())


def fit_scale(v: Canonical, eta: Floats, s: Floats) -> float:
    """beta: annotators right with log-odds beta eta_m explain the votes best.

    log-likelihood = sum_n log sum_k exp( beta s[n, k] ) - sum_votes w log( exp(beta eta_m) + K - 1 ).
    """
    from scipy.special import logsumexp

    K = v.shape[2]
    size = float(np.abs(eta[v.annotator]).mean()) if len(v.annotator) else 0.0
    if size == 0.0:
        return 1.0
    known = np.flatnonzero(v.gold >= 0)
    total = np.bincount(v.annotator, weights=v.weight, minlength=len(eta))

    def likelihood(log_beta: float) -> float:
        beta = float(np.exp(log_beta))
        evidence = logsumexp(beta * s, axis=1)
        evidence[known] = beta * s[known, v.gold[known]]
        return float(evidence.sum() - total @ np.logaddexp(beta * eta, np.log(K - 1.0)))

    return float(np.exp(maximise_1d(likelihood, float(np.log(0.01 / size)), float(np.log(10.0 / size)), 1e-6)))


@declared
class MarginModel(Model, ABC):
    """Classes that win by a margin of weighted votes; the cost of a missed margin is given, or chosen by likelihood."""

    costs: ClassVar[tuple[float, ...]]
    """The costs to choose from."""

    cost_: float = field(init=False)
    """The cost used."""

    @abstractmethod
    def _fit_cost(self, v: Canonical, y: Ints, cost: float, restart: int, callback: Callback | None) -> Any:
        """A fit with one cost, from the classes y."""

    @abstractmethod
    def _likelihood(self, v: Canonical, fit: Any) -> float:
        """The log-likelihood of the votes given the classes of a fit."""

    def _best(self, v: Canonical, votes: Votes, gold: Ints | None, cost: Any, callback: Callback | None) -> Any:
        """The fit with the given cost, or with that under which the votes are likeliest."""
        start = gold_weighted(votes, gold)[np.ix_(v.item_order, v.class_order)]
        y = decide(start, start.sum(axis=0))
        costs = self.costs if isinstance(cost, str) else (float(cost),)
        fits = ((self._fit_cost(v, y, c, turn, callback), c) for turn, c in enumerate(costs))
        fit, self.cost_ = max(fits, key=lambda tried: self._likelihood(v, tried[0]))  # the first of equals
        return fit


@declared
class MaxMarginVote(MarginModel):
    """Max-margin majority voting (M3V): one weight per annotator, so that the chosen classes win clearly.

    Parameters
    ----------
    cost
        The cost of a missed margin, c. ``"likelihood"``: of 1/256, 1/64 and 1/16 the one whose classes make the votes
        likeliest, given the best confusion matrix for every annotator.
    max_iter
        The most turns between weights and classes.
    tol
        Weights are found to within this share of the objective; a turn that gains less than that is the last.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=15, n_classes=3, votes_per_item=5, random_state=0)
    >>> cw.aggregate(crowd.votes, "m3v").score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "m3v"
    costs = COSTS
    columns_without_interval = ("weight",)  # that of the widest margin, which is not an estimate

    cost: Positive | Literal["likelihood"] = "likelihood"
    max_iter: Count = 50
    tol: Fraction = 1e-3
    weight_: Floats = field(init=False)
    """M: the weight of each annotator, scaled to log-odds."""

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        v = Canonical.of(votes, gold)
        N, _, K = v.shape
        eta, _, rounds = self._best(v, votes, gold, self.cost, callback)
        s = scores(v.item, v.label, v.weight * eta[v.annotator], N, K)
        weight = fit_scale(v, eta, s) * eta
        self.weight_ = v.back(v.annotator_order, weight)
        self._unseen = float(np.average(weight[v.annotator], weights=v.weight))
        self._classes = np.sort(v.class_order)
        q = clamp(self._predict(votes), gold)
        prior = normalise(q.sum(axis=0), axis=0)
        return Outcome(posterior=q, prior=prior, annotator_columns={"weight": self.weight_}, **rounds.outcome)

    def _likelihood(self, v: Canonical, fit: Any) -> float:
        return vote_likelihood(v, fit[1])

    def _fit_cost(
        self, v: Canonical, y: Ints, cost: float, restart: int, callback: Callback | None
    ) -> tuple[Floats, Ints, Rounds]:
        """Weights and classes in turns: eta, y, and the rounds, whose trace is minus the objective."""
        N, M, K = v.shape
        omega, eta = np.zeros((N, K)), np.zeros(M)
        voted = np.bincount(v.item, minlength=N) > 0
        rounds = Rounds(self.max_iter, len(v.item), callback, restart)
        for _ in rounds:
            new_eta, value, _ = largest_margin(v, y, cost, omega, weights_from(v, y, omega), self.tol)
            gain = -value - rounds.trace[-1] if rounds.trace else np.inf
            if gain < 0.0:  # nothing better within the duality gap: the weights of the previous turn are kept
                rounds.iterations, rounds.converged = len(rounds.trace), True
                break
            eta = new_eta
            s = scores(v.item, v.label, v.weight * eta[v.annotator], N, K)
            held = s[np.arange(N), y] >= s.max(axis=1)
            new = np.where(v.gold >= 0, v.gold, np.where(held | ~voted, y, s.argmax(axis=1)))
            moved = new != y
            rounds.reached(-value, converged=not moved.any() or gain < self.tol * value)
            omega[moved] = 0.0
            y = new
        return eta, y, rounds

    def _predict(self, votes: Votes) -> Floats:
        weight = with_unseen(self.weight_, votes.n_annotators, self._unseen)
        q = np.zeros((len(votes), votes.n_classes))
        q[:, self._classes] = softmax(tally(votes, weight)[:, self._classes])
        return q
