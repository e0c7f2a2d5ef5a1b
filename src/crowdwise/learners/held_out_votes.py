"""Predictions for items that a network has not seen, scored and sharpened by the votes on those items.

Given the class, an input and the votes on it are independent. So the best that N x K class probabilities p from inputs
can say of a vote is

    P(m says l | x_n) = sum_k p[n, k] theta[m, k, l]

and the likelihood of the votes under the best theta is a score of p that needs no truth. Each vote counts alone, so
that votes that annotators have copied from one another do not support each other.

Inputs and votes together are another matter: there votes that err together must count less than as many independent
ones. How much they count, the power c of their product, is chosen by what p says, which no annotator has copied. With
pi the mean of p, the inputs are

    kappa[n] = P(x_n | votes) / P(x_n) = sum_k s[n, k] p[n, k] / pi[k],     s[n, k] ~ pi[k] (prod theta[m, k, l])^c

times as likely given the votes as without them. Its mean over all inputs is 1 for whatever votes, so the sum of
log kappa is a log-likelihood of c, and of the temperature of p. (It is the mutual information that Max-MIG raises.)

==============  =====================  =============  =============================================================
symbol          code                   shape          equation
==============  =====================  =============  =============================================================
theta           ``vote_confusions``    M x K x K      EM: r[v, k] ~ p[n, k] theta[m, k, l], theta ~ sum r + s base
base            ``BASES``              M x K x K      what theta is drawn to, with s votes (``strength``): below
                ``vote_probs``         E              P(vote v), theta from the other folds
                ``evidence``           N x K          log prod over votes theta[m, k, l], theta from the other folds
c               ``power``                             the power of the votes' product, at most 1
q               ``posterior``          N x K          p[n, k] (prod over votes theta[m, k, l])^c, normalised
==============  =====================  =============  =============================================================

**What theta is drawn to.** A matrix of few votes follows the noise, and the product of many votes under such matrices
is far too sure. Drawn to the crowd's matrix (``crowd``) it has the confusions that annotators share. Where some always
give the same answer, there is no such matrix: with

    base[m, k, l] = a[m] 1[k = l] + (1 - a[m]) r[m, l],     r[m, l] the share of l among the votes of m,

(``own``) they know the class with probability a[m], which is Cohen's kappa of their votes and the classes, or answer at
their own label rates. ``both`` is the mean of the two. The first of ``crowd``, ``both`` and ``own`` is taken under
which inputs are not clearly less likely (by kappa) than under the best.

Where p predicts votes no better than the shares of the labels do (by ``WORSE`` standard errors), it says nothing of the
annotators, and classes of noise would take the place of what the votes say together. There theta is counted against the
classes by votes alone (``votes``).

Three numbers are chosen: first, at temperature 1, with how many votes theta is drawn to its base (``strength``),
because flat predictions make up for a theta that follows the noise; then, by kappa, temperature and power: the largest
power that is not clearly worse than the best, because the best of many is partly luck. Networks on new items keep the
temperature 1, or the nearest one to it under which inputs are not clearly less likely, because an average of networks
is less sure than each of them.

**Several predictions** are compared, and mixed, with one theta for all annotators (``crowd_vote_probs``): matrices of
their own would explain the votes of annotators who know one label alone by any p.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from crowdwise.core.numerics import Floats, Ints, normalise, softmax
from crowdwise.core.vote_sums import sum_rows
from crowdwise.data.votes import Votes

ROUNDS, MORE_ROUNDS, CROWD_ROUNDS, MIXTURE_ROUNDS = 15, 5, 60, 100
"""Of EM: from counts, from the theta of another strength or temperature, with one matrix, and for a mixture."""
STRENGTHS = (2.0, 8.0, 32.0, 128.0, 512.0, 2048.0)
BASES = ("crowd", "both", "own")
CROWD_VOTES = 10.0
"""How many votes like the crowd's each row of a matrix has that is counted by votes alone."""
ABILITY_VOTES = 10.0
"""With so many votes the ability of an annotator is drawn to that of the crowd, where theta is drawn to their own."""
TEMPERATURES = (1.0, 0.67, 1.5, 2.25, 3.4, 5.0, 7.5, 11.0)
POWERS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15)
CLEARLY = 5.0
"""By how many standard errors a score must be larger to be preferred: training differs from seed to seed as well."""
WORSE = 3.0
"""By how many standard errors kappa must be smaller for a power, or a temperature, to be given up."""
FLOOR = 1e-9
MAX_JUDGES, MAX_CELLS = 100_000, 4_000_000
"""Votes that score predictions, and their number times that of the classes: of more, those on some of the items."""


class VoteList(NamedTuple):
    """Votes as one row each."""

    item: Ints
    annotator: Ints
    label: Ints
    weight: Floats
    n_annotators: int
    n_folds: int = 1
    """So many times the annotators occur: see :meth:`left_out`."""
    q: Floats | None = None
    """E x K, where it is known: what all votes on each vote's item say of its class, without inputs."""

    @classmethod
    def of(cls, votes: Votes, q: Floats | None = None) -> VoteList:
        """Votes, and N x K class probabilities of their items by votes alone."""
        item, annotator, label = (
            np.asarray(part, dtype=np.int64) for part in (votes.item, votes.annotator, votes.label)
        )
        return cls(item, annotator, label, votes.weights, votes.n_annotators, q=None if q is None else q[item])

    def judges(self, n_classes: int) -> VoteList:
        """All votes on some items, drawn by a fixed seed, so that they are about as many as they may be."""
        limit = min(MAX_JUDGES, MAX_CELLS // n_classes)
        if len(self.item) <= limit:
            return self
        drawn = np.random.default_rng(0).random(int(self.item.max()) + 1) < limit / len(self.item)
        return self.select(drawn[self.item])

    def select(self, mask: npt.NDArray[np.bool_] | Ints) -> VoteList:
        """Some of the votes."""
        return self._replace(
            item=self.item[mask], annotator=self.annotator[mask], label=self.label[mask], weight=self.weight[mask],
            q=None if self.q is None else self.q[mask],
        )  # fmt: skip

    def left_out(self, fold: Ints) -> VoteList:
        """For each fold the votes on the items of the others, as those of annotators of its own (fold * M + m)."""
        n_folds = int(fold.max()) + 1
        j, vote = np.nonzero(fold[self.item] != np.arange(n_folds)[:, None])
        return self.select(vote)._replace(annotator=j * self.n_annotators + self.annotator[vote], n_folds=n_folds)

    def of_fold(self, fold: Ints) -> VoteList:
        """The votes as those of the annotators of the fold that their item is in."""
        return self._replace(annotator=fold[self.item] * self.n_annotators + self.annotator)


def sharpened(p: Floats, temperature: float) -> Floats:
    """p^(1 / temperature), normalised."""
    return softmax(np.log(np.maximum(p, FLOOR)) / temperature)


def vote_confusions(
    p: Floats, votes: VoteList, strength: float, base: str = "crowd", start: Floats | None = None, rounds: int = 0
) -> Floats:  # fmt: skip
    """M x K x K: theta; every row has ``strength`` votes in addition, distributed like those of the base.

    EM begins with the counts of p, or from the theta of a similar fit. Of votes :meth:`VoteList.left_out` of folds:
    FM x K x K, those of each fold.
    """
    M, K, E = votes.n_annotators, p.shape[1], len(votes.item)
    cell, rows, ones = votes.annotator * K + votes.label, p[votes.item], np.ones(K)
    total = sp.csr_array((votes.weight, (cell, np.arange(E))), shape=(votes.n_folds * M * K, E))

    def counted(r: Floats, strength: float, base: str) -> Floats:
        table = (total @ r).reshape(votes.n_folds, M, K, K).swapaxes(2, 3)
        return normalise(table + strength * base_of(table, base), axis=3).reshape(-1, K, K)

    if base == "votes":
        assert votes.q is not None
        return counted(votes.q, CROWD_VOTES, "crowd")
    theta = counted(rows, strength, base) if start is None else start
    for _ in range(rounds or (ROUNDS if start is None else MORE_ROUNDS)):
        r = rows * theta.swapaxes(1, 2).reshape(-1, K).take(cell, axis=0)
        theta = counted(r / np.maximum(r @ ones, FLOOR)[:, None], strength, base)
    return theta


def base_of(table: Floats, base: str) -> Floats:
    """F x M x K x K (M may be 1, for all): what counts[f, m, k, l] are drawn to."""
    if base == "own":
        return knows_or_guesses(table)
    crowd = normalise(table.sum(axis=1, keepdims=True) + 1.0 / table.shape[-1], axis=3)
    return crowd if base == "crowd" else 0.5 * crowd + 0.5 * knows_or_guesses(table)


def knows_or_guesses(table: Floats) -> Floats:
    """... x M x K x K: annotators who know the class with a probability of their own, or answer at their own label
    rates."""
    K, labels, true = table.shape[-1], table.sum(axis=-2), table.sum(axis=-1)
    total = labels.sum(axis=-1)
    usual = normalise(labels.sum(axis=-2, keepdims=True) + 1.0 / K, axis=-1)
    rates = (labels + usual) / (total + 1.0)[..., None]
    shares = (true + 1.0 / K) / (total + 1.0)[..., None]
    chance = np.minimum((rates * shares).sum(axis=-1), 1.0 - FLOOR)
    right = np.trace(table, axis1=-2, axis2=-1)
    by_chance = (total * chance).sum(axis=-1)
    crowd = np.maximum(
        (right.sum(axis=-1) - by_chance) / np.maximum(total.sum(axis=-1) - by_chance, FLOOR), 0.0
    )[..., None]  # fmt: skip
    right = (right + ABILITY_VOTES * (chance + crowd * (1.0 - chance))) / (total + ABILITY_VOTES)
    a = np.maximum((right - chance) / (1.0 - chance), 0.0)[..., None, None]
    return np.asarray(a * np.eye(K) + (1.0 - a) * rates[..., None, :])


class Trial(NamedTuple):
    """What the votes say at one temperature, with theta from the votes on the items of other folds."""

    p: Floats
    vote_probs: Floats
    """E: the probability of each vote."""
    evidence: Floats
    """N x K: the log-likelihood of each item's votes in each class."""
    score: float
    """The mean log-likelihood of a vote."""
    theta: Floats
    """FM x K x K: of each fold, from the votes on the items of others."""

    @classmethod
    def of(
        cls, p: Floats, votes: VoteList, fold: Ints, strength: float, base: str = "crowd", start: Floats | None = None,
        rounds: int = 0,
    ) -> Trial:  # fmt: skip
        theta, mine = vote_confusions(p, votes.left_out(fold), strength, base, start, rounds), votes.of_fold(fold)
        each = theta[mine.annotator, :, mine.label]
        vote_probs = np.maximum((p[mine.item] * each).sum(axis=1), FLOOR)
        return cls(p, vote_probs, log_likelihoods(each, mine, len(p)), mean_log(vote_probs, votes), theta)

    def log_kappa(self, power: float) -> Floats:
        """N: how much more likely each input is, given the votes on it, than without them."""
        prior = np.maximum(self.p.mean(axis=0), FLOOR)
        s = softmax(np.log(prior) + power * self.evidence)
        return np.asarray(np.log(np.maximum((s * self.p / prior).sum(axis=1), FLOOR)))


class Scored(NamedTuple):
    """Predictions at their best temperature, and how much votes count beside them."""

    p: Floats
    temperature: float
    base: str
    strength: float
    power: float
    network_temperature: float
    """The temperature nearest to 1 that is not clearly worse: for networks trained in the same way, on new items."""

    def labels(self, votes: VoteList) -> tuple[Floats, Floats]:
        """q and theta: the classes from inputs and votes, and the annotators."""
        theta = vote_confusions(self.p, votes, self.strength, self.base)
        return posterior(self.p, theta, votes, self.power), theta


def scored(p: Floats, votes: VoteList, fold: Ints) -> Scored:
    """The predictions with the best base and strength of theta, temperature and power."""
    used, item = np.unique(votes.item, return_inverse=True)
    mine = votes._replace(item=item)
    bases = BASES if votes.q is None or says_something(p[used], mine, fold[used]) else ("votes",)
    tried = [best_strength(p[used], mine, fold[used], base) for base in bases]
    chosen = [balanced(trials) for _, trials in tried]
    gains = [trials[t].log_kappa(power) for (_, trials), (t, power) in zip(tried, chosen, strict=True)]
    at = next(i for i, gain in enumerate(gains) if not clearly_worse(gain, gains))
    (strength, trials), (temperature, power) = tried[at], chosen[at]
    careful = nearest_to_one({t: trial.log_kappa(power) for t, trial in trials.items()})
    return Scored(sharpened(p, temperature), temperature, bases[at], strength, power, careful)


def best_strength(p: Floats, votes: VoteList, fold: Ints, base: str) -> tuple[float, dict[float, Trial]]:
    """The strength under which votes are most likely at temperature 1, and with it a trial for each temperature."""
    trials: list[Trial] = []
    for strength in STRENGTHS if base != "votes" else STRENGTHS[:1]:
        trials.append(Trial.of(p, votes, fold, strength, base, trials[-1].theta if trials else None))
    best = max(range(len(trials)), key=lambda i: trials[i].score)
    strength, start = STRENGTHS[best], trials[best].theta
    others = {t: Trial.of(sharpened(p, t), votes, fold, strength, base, start) for t in TEMPERATURES[1:]}
    return strength, {1.0: trials[best], **others}


def balanced(trials: dict[float, Trial]) -> tuple[float, float]:
    """Temperature and power: the largest power under which inputs are not clearly less likely."""
    gains = {}
    for power in POWERS:
        each = {temperature: trial.log_kappa(power) for temperature, trial in trials.items()}
        best = max(each, key=lambda one: float(each[one].mean()))
        gains[best, power] = each[best]
    return next(choice for choice, gain in gains.items() if not clearly_worse(gain, gains.values()))


def nearest_to_one(gains: dict[float, Floats]) -> float:
    """Of temperatures and the log kappa of every item at each: the one nearest to 1 that is not clearly worse."""
    order = sorted(gains, key=lambda temperature: abs(np.log(temperature)))
    return next(temperature for temperature in order if not clearly_worse(gains[temperature], gains.values()))


def clearly_worse(gain: Floats, gains: Iterable[Floats]) -> bool:
    """Whether the mean over items is smaller than the best of all by more than chance."""
    less = max(gains, key=lambda one: float(one.mean())) - gain
    return bool(less.mean() > WORSE * less.std() / np.sqrt(len(less)))


def says_something(p: Floats, votes: VoteList, fold: Ints) -> bool:
    """Whether p predicts the votes better than the shares of the labels do, by more than chance."""
    even = crowd_vote_probs(np.ones_like(p) / p.shape[1], votes, fold, rounds=1)  # where EM begins, it ends
    return clearly_better(crowd_vote_probs(p, votes, fold), even, votes, WORSE)


def crowd_vote_probs(p: Floats, votes: VoteList, fold: Ints, rounds: int = CROWD_ROUNDS) -> Floats:
    """E: the probability of each vote, with one matrix for all annotators, from the items of other folds.

    With a matrix for each annotator, votes of annotators who know one label alone would be explained by any p.
    """
    one = votes._replace(annotator=np.zeros_like(votes.annotator), n_annotators=1)
    return Trial.of(np.maximum(p, FLOOR), one, fold, 2.0, rounds=rounds).vote_probs


def mean_log(vote_probs: Floats, votes: VoteList) -> float:
    """The mean log-likelihood of a vote."""
    return float((votes.weight * np.log(vote_probs)).sum() / votes.weight.sum())


def mixture_weights(vote_probs: Sequence[Floats], votes: VoteList) -> Floats:
    """The weights under which the mean of several predictions makes the votes most likely, by EM from even ones."""
    each = np.stack(vote_probs, axis=1)
    w = np.full(len(vote_probs), 1.0 / len(vote_probs))
    for _ in range(MIXTURE_ROUNDS):
        w = normalise(votes.weight @ normalise(each * w, axis=1), axis=0)
    return w


def clearly_better(one: Floats, other: Floats, votes: VoteList, errors: float = CLEARLY) -> bool:
    """Whether the votes are more likely by more than chance: items are independent, the votes on one are not."""
    gain = np.bincount(votes.item, votes.weight * np.log(one / other))
    gain = gain[np.bincount(votes.item) > 0]
    return bool(gain.sum() > errors * np.sqrt(len(gain)) * gain.std())


def log_likelihoods(each: Floats, votes: VoteList, N: int) -> Floats:
    """N x K: the log-likelihood of the votes on each item in each class, from that of each vote (E x K)."""
    return sum_rows(votes.weight[:, None] * np.log(each), votes.item, N)


def posterior(p: Floats, theta: Floats, votes: VoteList, power: float = 1.0) -> Floats:
    """N x K: class probabilities from inputs and votes."""
    each = theta[votes.annotator, :, votes.label]
    return softmax(np.log(np.maximum(p, FLOOR)) + power * log_likelihoods(each, votes, len(p)))
