"""SpEM: Dawid and Skene's model with a prior that shrinks annotators towards spammers, and drops those who are.

A spammer's answers do not depend on the item: the rows of the confusion matrix are equal. How far they are apart is
Raykar's and Yu's score

    S[m] = 1/(K(K-1)) sum_{c<c'} |theta[m, c] - theta[m, c']|^2 = sum_c |theta[m, c] - mean row|^2 / (K - 1),

(sensitivity + specificity - 1)^2 for two classes, and every annotator has a prior exp(-lambda[m] S[m] / 2) with a
precision of its own. The precisions are those under which the votes are most probable: small for informative
annotators, without bound for spammers. Annotators above the bound are dropped: their rows become equal and their votes
change no posterior.

===========  ==============  ==========  ==========================================================================
symbol       code            shape       equation
===========  ==============  ==========  ==========================================================================
q            posterior       N x K       as in dawid-skene
c[m, k, l]   ``counts``      M x K x L   expected counts, with pseudo-counts
theta        ``penalised``   M x K x L   argmax sum c log theta - lambda S / 2; rows c / (nu + mu (theta - s))
mu           ``mu``          M           lambda / (K - 1), with s the mean row and nu so that rows sum to one
d            ``d``           1           (K - 1)^2, the directions in which rows can differ
T[m]         ``noise``       M           tr(H^-1 Q): the mean of S that is due to the uncertainty of theta
lambda[m]    ``precision``   M           solves d / (lambda + lambda0) = S + T
===========  ==============  ==========  ==========================================================================

The evidence. With Laplace's approximation log p(votes, lambda) = max(log-likelihood - lambda S / 2) - log Z(lambda)
- log det H(lambda) / 2 + const, H the curvature with Q = d^2 (S / 2) in it. Its derivative vanishes where the mean
of S under the prior equals its mean under the posterior, S + tr(H^-1 Q). Under the prior S has mean d / lambda for
large lambda, and for lambda = 0, where rows are uniform over the simplex, d / lambda0 with lambda0 =
(K - 1) K (K + 1); d / (lambda + lambda0) has both ends right. The equation is solved in MacKay's form, lambda + lambda0
= (d - (lambda + lambda0) T) / S, which runs away quickly for spammers. An annotator whose votes leave S as uncertain as
under uniform rows (T at lambda = 0, with half a vote more in every cell, above d / lambda0) keeps lambda = 0.

V. C. Raykar and S. Yu, Eliminating spammers and ranking annotators for crowdsourced labeling tasks, Journal of
Machine Learning Research 13 (2012), for two classes; the version for more is ours, with their score for several.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core import priors
from crowdwise.core.constraints import CountFromZero, Fraction, Positive
from crowdwise.core.intervals import Z, with_interval
from crowdwise.core.loop import check_memory
from crowdwise.core.model import Callback, EMModel, Family, Outcome, Params, Stats, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.core.vote_parts import VoteParts
from crowdwise.core.vote_sums import known_share, right_votes

STEPS = 100
TOLERANCE = 1e-3
"""The change of all logarithms of precisions under which they have converged."""


def score(theta: Floats) -> Floats:
    """S[m] of M x K x K matrices (truth, label)."""
    return np.asarray(
        ((theta - theta.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2)) / (theta.shape[1] - 1.0), dtype=np.float64
    )


def penalised(counts: Floats, precision: Floats) -> Floats:
    """theta that maximises sum c log theta - lambda S / 2, each annotator's own; c > 0.

    The problem is concave. For a given mean row s the rows part, and each is solved by :func:`row`; s is found by
    Newton's method on s = mean of the rows.
    """
    K = counts.shape[1]
    theta = normalise(counts, axis=2)
    gone = np.isinf(precision)
    theta[gone] = normalise(counts[gone].sum(axis=1, keepdims=True), axis=2)
    at = np.flatnonzero((precision > 0.0) & ~gone)
    if len(at) == 0:
        return theta
    c, mu = counts[at], precision[at] / (K - 1.0)
    s = normalise(c.sum(axis=1), axis=1)
    a = row(c, mu, s)
    for _ in range(STEPS):
        gap = a.mean(axis=1) - s
        if np.abs(gap).max() < 1e-13:
            break
        D = 1.0 / (c / a**2 + mu[:, None, None])
        mean = np.einsum("mkl,lj->mlj", D, np.eye(K)) - np.einsum("mkl,mkj,mk->mlj", D, D, 1.0 / D.sum(axis=2))
        system = np.eye(K)[None] - mu[:, None, None] * mean / K
        s = s + np.linalg.solve(system, gap[:, :, None])[:, :, 0]
        s = np.maximum(s, 1e-12)
        s /= s.sum(axis=1, keepdims=True)
        a = row(c, mu, s)
    theta[at] = a / a.sum(axis=2, keepdims=True)
    return theta


def row(c: Floats, mu: Floats, s: Floats) -> Floats:
    """Rows a >= 0 that sum to one and maximise sum c log a - mu |a - s|^2 / 2.

    c / a - mu (a - s) = nu is a quadratic equation for a; the sum of its roots falls with nu and is convex, so that
    Newton's method goes up to nu from its lower bound n - mu without overshooting.
    """
    m = mu[:, None, None]
    nu = c.sum(axis=2) - mu[:, None]
    for _ in range(STEPS):
        t = m * s[:, None, :] - nu[:, :, None]
        root = np.sqrt(t * t + 4.0 * m * c)
        # The two forms of the positive root, without cancellation.
        a = np.where(t > 0.0, (t + root) / (2.0 * m), 2.0 * c / np.where(t > 0.0, 1.0, root - t))
        over = a.sum(axis=2) - 1.0
        if np.abs(over).max() < 1e-14:
            break
        step = over / (a / root).sum(axis=2)  # da/dnu = -a / root
        nu = nu + step
        if (np.abs(step) <= 1e-15 * (1.0 + np.abs(nu))).all():
            break
    return np.asarray(a)


def noise(theta: Floats, counts: Floats, precision: Floats) -> Floats:
    """T[m] = tr(H^-1 Q) for finite precisions.

    H = diag(c / theta^2) + lambda Q on rows that sum to zero, Q = (I - 1 1'/K) x I / (K - 1). The rows are coupled
    through their mean alone, so that K x K systems suffice: with B_k the inverse of row k's block and G = (K / mu -
    sum B_k)^-1, H^-1 = B + B E G E' B, E stacking K identities.
    """
    K = theta.shape[1]
    mu = precision / (K - 1.0)
    D = 1.0 / (counts / np.maximum(theta, 1e-12) ** 2 + mu[:, None, None])
    B = np.einsum("mkl,lj->mklj", D, np.eye(K)) - D[:, :, :, None] * D[:, :, None, :] / D.sum(axis=2)[:, :, None, None]
    total = B.sum(axis=1)
    trace = np.einsum("mklL,lL->m", B, np.eye(K))
    mean = np.einsum("mll->m", total)
    on = np.flatnonzero(mu > 1e-9)
    if len(on):
        G = np.linalg.inv(K / mu[on][:, None, None] * np.eye(K) - total[on])
        trace[on] += np.einsum("mij,mkjl,mkli->m", G, B[on], B[on])
        mean[on] += np.einsum("mij,mjl,mli->m", G, total[on], total[on])
    return np.asarray((trace - mean / K) / (K - 1.0))


def updated(precision: Floats, S: Floats, T: Floats, K: int) -> Floats:
    """lambda from one step of MacKay's iteration: lambda + lambda0 = (d - (lambda + lambda0) T) / S."""
    d, base = (K - 1.0) ** 2, (K - 1.0) * K * (K + 1.0)
    determined = np.clip(d - (precision + base) * T, 1e-6 * d, d)
    return np.maximum(determined / np.maximum(S, 1e-300) - base, 0.0)


@dataclass(frozen=True)
class SpammerFamily(Family):
    """The maximisation step and the objective, for given precisions (infinite: dropped)."""

    precision: Floats
    pseudo: float
    class_prior: Floats | None

    def maximise(self, stats: Stats) -> Params:
        theta = penalised(stats.table().transpose(0, 2, 1) + self.pseudo, self.precision)
        return stats.params(theta.transpose(0, 2, 1), self.class_prior)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """log-likelihood + sum b log theta - sum lambda S / 2."""
        K = params.log_score.shape[1]
        theta = np.exp(params.log_score.reshape(-1, K, K)).transpose(0, 2, 1)
        kept = np.isfinite(self.precision)
        penalty = 0.5 * float(self.precision[kept] @ score(theta[kept]))
        return log_likelihood + self.pseudo * float(params.log_score.sum()) - penalty


@declared
class SpEM(EMModel):
    """Dawid and Skene's model that drops spammers on the way (Raykar and Yu 2012).

    Parameters
    ----------
    min_skill
        Annotators with lambda above d / min_skill^2 are dropped: those who know the answer with about this probability
        or less and guess otherwise.
    prior
        Pseudo-votes per row of every confusion matrix, spread evenly over the labels; above 0, which keeps
        probabilities off zero.
    class_prior
        ``"learned"``, ``"uniform"``, or the probability of each class.
    max_rounds
        How often, at most, the precisions are learned, each time followed by EM; 0 is Dawid and Skene's model.

    Notes
    -----
    The table of annotators has the columns ``informativeness`` (S from the counts alone, less what noise adds, with
    its 95 % interval) and ``pruned``; ``precision_`` holds lambda, ``pruned_`` the names of those dropped. ``trace`` is
    the objective of the last round.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(400, n_annotators=20, n_classes=3, accuracy=0.7, random_state=0)
    >>> model = cw.SpEM().fit(crowd.votes)
    >>> bool((model.consensus_.annotator_columns["pruned"] == crowd.parameters["spammers"]).mean() > 0.9)
    True
    >>> model.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "spem"
    columns_without_interval = ("pruned",)

    min_skill: Fraction = 0.1
    prior: Positive = 0.01
    class_prior: priors.ClassPrior = "learned"
    max_rounds: CountFromZero = 100
    restarts: CountFromZero = field(default=0, init=False)
    precision_: Floats = field(init=False)
    pruned_: npt.NDArray[Any] = field(init=False)

    def _family_of(self, parts: VoteParts) -> SpammerFamily:
        fixed = priors.class_prior_counts(self.class_prior, parts.names)
        return SpammerFamily(np.zeros(parts.names.n_annotators), self.prior / parts.names.n_classes, fixed)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        parts = VoteParts.whole(votes, gold, item_prior)
        part, point, family = parts.only, self._start(parts), self._family_of(parts)
        passes, converged = 0, self.max_rounds == 0
        for turn in range(self.max_rounds + 1):
            fit = self._run_em(part, family, point, callback, turn)
            passes += fit.iterations
            q = part.posterior(fit.params)
            point = part.expect(fit.params)
            if converged or turn == self.max_rounds:
                break
            new = self._precisions(votes, point, q, family)
            converged = _same(family.precision, new)
            family = SpammerFamily(new, family.pseudo, family.class_prior)
        self.precision_ = family.precision
        gone = np.isinf(family.precision)
        self.pruned_ = votes.annotators[gone]
        columns = {**self._informativeness(votes, point, q), "pruned": gone}
        return self._outcome(
            part, fit, iterations=passes, converged=fit.converged and converged, annotator_columns=columns
        )

    def _precisions(self, votes: Votes, stats: Stats, q: Floats, family: SpammerFamily) -> Floats:
        """The precisions after one step, infinite for annotators who are dropped, now or before."""
        K = votes.n_classes
        kept = np.flatnonzero(np.isfinite(family.precision))
        counts = self._worth(votes, stats, q)[kept]
        old = family.precision[kept]
        theta = penalised(stats.table().transpose(0, 2, 1)[kept] + family.pseudo, old)
        new = updated(old, score(theta), noise(theta, counts, old), K)
        more = counts + 0.5  # a few votes for one label are not certainty, though their shares are 0 and 1
        no_evidence = noise(normalise(more, axis=2), more, np.zeros(len(kept))) >= (K - 1.0) / (K * (K + 1.0))
        new[no_evidence] = 0.0
        new[new > (K - 1.0) ** 2 / self.min_skill**2] = np.inf
        out = family.precision.copy()
        out[kept] = new
        if np.isinf(out).all():  # all are spammers: an answer is needed all the same
            out[kept] = np.where(np.isinf(new), old, new)
        return out

    def _worth(self, votes: Votes, stats: Stats, q: Floats) -> Floats:
        """Counts (annotator, truth, label), reduced to as many as would carry their information with known truths."""
        worth = known_share(*right_votes(votes, q))[:, None, None]
        return np.asarray(stats.table().transpose(0, 2, 1) * worth + self.prior / votes.n_classes)

    def _informativeness(self, votes: Votes, stats: Stats, q: Floats) -> dict[str, npt.NDArray[Any]]:
        """S from the counts alone, less the mean of what noise adds, Normal on the scale of its root."""
        K = votes.n_classes
        counts = self._worth(votes, stats, q)
        theta = normalise(stats.table().transpose(0, 2, 1) + self.prior / K, axis=2)
        T = noise(theta, counts, np.zeros(len(counts)))
        raw = score(theta)
        slope = theta - theta.mean(axis=1, keepdims=True)  # half of (K - 1) dS / dtheta
        D = theta**2 / counts
        along = (D * slope**2).sum(axis=(1, 2)) - ((D * slope).sum(axis=2) ** 2 / D.sum(axis=2)).sum(axis=1)
        variance = np.maximum(along / (K - 1.0) ** 2 / np.maximum(raw, 1e-12), T / (K - 1.0) ** 2)
        root, reach = np.sqrt(np.clip(raw - T, 0.0, 1.0)), Z * np.sqrt(variance)
        low, high = np.clip(root - reach, 0.0, 1.0) ** 2, np.clip(root + reach, 0.0, 1.0) ** 2
        return with_interval("informativeness", root**2, low, high)


def _same(old: Floats, new: Floats) -> bool:
    """Whether the same annotators are dropped and all other precisions have converged."""
    if not np.array_equal(np.isinf(old), np.isinf(new)):
        return False
    kept = np.isfinite(new)
    return bool((np.abs(np.log1p(new[kept]) - np.log1p(old[kept])) < TOLERANCE).all())
