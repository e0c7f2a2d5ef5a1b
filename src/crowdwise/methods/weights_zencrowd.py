"""ZenCrowd: annotators who are reliable in a share of their answers.

Each answer of annotator m comes, with probability w[m], from a reliable state that says the truth, else from an
unreliable one that says any of the K labels alike:

    theta[m, k, l] = w[m] 1[l = k] + (1 - w[m]) / K

with a Beta prior on w[m] (a and b pseudo-answers of either state) and a uniform prior on the classes. EM maximises
log-likelihood + sum_m ( a log w[m] + b log(1 - w[m]) ). With c = 1 / (K - 1), R right and W wrong expected votes, the
maximisation step is the root in [0, 1] of a quadratic,

    (R + W + a + b) w^2 - (R + a (1 - c) - (W + b) c) w - a c = 0.

It is not ``one-coin``: there 1 - w is the probability of a *wrong* answer, which may exceed chance, and then votes
count against their label. Here an unreliable answer carries no information, so no vote counts against its label; the
reliability has a prior, which matters most for annotators with few votes; and the classes' prior is fixed.

G. Demartini, D. E. Difallah and P. Cudre-Mauroux, ZenCrowd: leveraging probabilistic reasoning and crowdsourcing
techniques for large-scale entity linking, WWW (2012).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crowdwise.core import priors
from crowdwise.core.constraints import NonNegative, Share
from crowdwise.core.em import Params, Stats
from crowdwise.core.intervals import accuracy_interval, with_interval
from crowdwise.core.model import Callback, EMModel, Family, Outcome, Votes, declared
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.core.vote_parts import Totals


def reliability(right: Floats, wrong: Floats, a: float, b: float, K: int) -> Floats:
    """The w in [0, 1] that maximises R log(w + (1-w)/K) + W log((1-w)/K) + a log w + b log(1-w).

    The derivative has the sign of -A w^2 + B w + a c with A, B as below and c = 1 / (K - 1). Of the two ways to write
    the positive root the one that does not subtract nearly equal numbers is taken.
    Without votes and prior: w = 0, chance.
    """
    c = 1.0 / (K - 1.0)
    A = right + wrong + a + b
    B = right + a * (1.0 - c) - (wrong + b) * c
    root = np.sqrt(B * B + 4.0 * A * a * c)
    high = np.divide(B + root, 2.0 * A, out=np.zeros_like(A), where=A > 0)
    low = np.divide(2.0 * a * c, root - B, out=np.zeros_like(A), where=root - B > 0)
    return np.asarray(np.clip(np.where(B > 0, high, low), 0.0, 1.0))


@dataclass(frozen=True)
class ReliableFamily(Family):
    """The maximisation step and the objective of ``zencrowd``."""

    a: float
    b: float
    class_prior: Floats | None

    def maximise(self, stats: Stats) -> Params:
        counts = stats.table()
        K = counts.shape[1]
        right = np.einsum("mkk->m", counts)
        wrong = np.maximum(counts.sum(axis=(1, 2)) - right, 0.0)
        w = reliability(right, wrong, self.a, self.b, K)
        theta = np.repeat((1.0 - w) / K, K * K).reshape(-1, K, K)
        theta[:, np.arange(K), np.arange(K)] += w[:, None]
        return stats.params(theta, self.class_prior)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """log-likelihood + sum_m ( a log w + b log(1 - w) )."""
        w = reliabilities(params)
        return log_likelihood + float((self.a * safe_log(w) + self.b * safe_log(1.0 - w)).sum())


def reliabilities(params: Params) -> Floats:
    """w[m] back from the scores: theta right minus theta wrong."""
    K = params.log_score.shape[1]
    table = params.log_score.reshape(-1, K, K)
    return np.asarray(np.exp(table[:, 0, 0]) - np.exp(table[:, 1, 0]))


@declared
class ZenCrowd(EMModel):
    """Annotators who are reliable in a share of their answers and say anything in the others, by EM.

    Parameters
    ----------
    reliability, prior_strength
        The Beta prior on the share of reliable answers: ``prior_strength`` pseudo-answers, of which a share
        ``reliability`` is reliable. It stays in force through the fit. Strength 0: no prior.
    class_prior
        ``"uniform"``, ``"learned"``, or the probability of each class.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "zencrowd")
    >>> accuracy = crowd.parameters["accuracy"]
    >>> bool(abs(consensus.annotator_columns["reliability"] - (4 * accuracy - 1) / 3).max() < 0.2)
    True
    """

    key = "zencrowd"
    in_parts = True
    reads_backwards = False

    reliability: Share = 0.8
    prior_strength: NonNegative = 1.0
    class_prior: priors.ClassPrior = "uniform"

    def _family_of(self, totals: Totals) -> ReliableFamily:
        a, b = self.prior_strength * self.reliability, self.prior_strength * (1.0 - self.reliability)
        return ReliableFamily(a, b, priors.class_prior_counts(self.class_prior, totals.names))

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        outcome = super()._fit(votes, gold, item_prior, callback)
        K = votes.n_classes
        low, high = (np.maximum((K * p - 1.0) / (K - 1.0), 0.0) for p in accuracy_interval(votes, outcome.posterior))
        return replace(outcome, annotator_columns=with_interval("reliability", reliabilities(self.params_), low, high))
