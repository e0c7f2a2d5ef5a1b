"""Truth discovery: labels and the weights of annotators from one balance of losses: PM, CATD and BWA.

The loss of annotator m under the labels h is the number of votes that h contradicts, d[m] (plus a small pseudo-loss,
so that an annotator who was never contradicted does not decide every item). ``pm`` and ``catd`` alternate between
labels, by weighted votes, and weights, from losses:

=========  =============================  ======================================================
method     weight v[m] of a vote          why
=========  =============================  ======================================================
``pm``     -log( d[m] / sum_m d[m] )      minimises sum_m v[m] d[m] where sum_m exp(-v[m]) = 1
``catd``   chi2(alpha / 2; n[m]) / d[m]   1 / the upper end of an interval for the error
=========  =============================  ======================================================

Both steps of ``pm`` minimise the same sum, so it never rises (the trace is its negative). ``chi2(p; n)`` is the
p-quantile of the chi-squared distribution with n degrees of freedom, n[m] the votes of m: with few votes it is far
under n, and such annotators get little weight however well they did.

``bwa`` treats each class in turn as a number to be estimated, 1 for its own items and 0 for the others (one against
the rest). A vote is the item's number plus Gaussian noise of the annotator's precision:

=========  ===============  ======  ==================================================================================
symbol     code             shape   equation
=========  ===============  ======  ==================================================================================
y          ``label == k``   S x K   1 if the vote says k, else 0
z[n, k]    ``z``            N x K   (lambda mu[k] + sum_votes v[m, k] y) / (lambda + sum_votes v[m, k]); gold if any
mu[k]      ``mu``           K       mean_n z[n, k]
v[m, k]    ``precision``    M x K   (a + n[m]) / (b[k] + sum over m's votes of (z - y)^2)
b[k]       ``b``            K       a * 4 (1 - 1 / K) * mean over votes of s (1 - s), s the vote share of k on the item
=========  ===============  ======  ==================================================================================

The three updates each maximise the log-posterior, up to a constant

    J = sum_k [ sum_m ( (a + n[m]) log v - v (b + sum (z - y)^2) ) / 2  -  lambda / 2 sum_n (z - mu)^2 ]

so it never falls. The posterior is z with its rows normalised.

Q. Li, Y. Li, J. Gao, B. Zhao, W. Fan and J. Han, Resolving conflicts in heterogeneous data by truth discovery and
source reliability estimation, SIGMOD (2014), for PM (also called CRH). Q. Li et al., A confidence-aware approach for
truth discovery on long-tail data, PVLDB 8 (2014), for CATD. Y. Li, B. I. P. Rubinstein and T. Cohn, Truth inference at
scale: a Bayesian model for adjudicating highly redundant crowd annotations, WWW (2019), for BWA.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

import numpy as np

from crowdwise.core.constraints import Bounds, Count, NonNegative, Positive
from crowdwise.core.intervals import gamma_interval, rate_interval, with_interval
from crowdwise.core.model import Callback, Model, Outcome, Rounds, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, normalise
from crowdwise.core.unseen import with_unseen
from crowdwise.core.vote_parts import VoteParts
from crowdwise.core.vote_sums import VoteEdges, per_annotator
from crowdwise.methods.weights_agreement import AlternatingWeights, alternate, votes_of

FLOOR = 1e-6
"""The least scale b / a of ``bwa``: where everybody agrees, votes would have infinite precision."""


def loss_weights(loss: Floats, norm: str, counted: Any = True) -> Floats:
    """v[m] = -log of the loss as a share of all losses (``"sum"``) or of the largest (``"max"``) of ``some``."""
    return np.asarray(
        -np.log(loss / (loss.sum(where=counted) if norm == "sum" else loss.max(where=counted, initial=0.0)))
    )


def chi_squared_quantile(p: float, n: Floats) -> Floats:
    """The p-quantile of the chi-squared distribution with n (not necessarily whole) degrees of freedom; 0 for n = 0."""
    from scipy.special import gammaincinv

    return np.asarray(np.where(n > 0, 2.0 * gammaincinv(np.maximum(n, 1e-12) / 2.0, p), 0.0))


def squares_of(e: VoteEdges, z: Floats) -> Floats:
    """M x K: sum over the votes of m of (z - y)^2."""
    gaps = (z[e.item, k] - (e.label == k) for k in range(z.shape[1]))
    return np.stack([e.per_annotator(e.weight * gap * gap) for gap in gaps], axis=1)


def estimate(e: VoteEdges, precision: Floats, mu: Floats, lam: float) -> Floats:
    """z[n, k] = (lambda mu + sum v y) / (lambda + sum v)."""
    out = np.empty((e.N, len(mu)))
    for k in range(len(mu)):
        v = precision[e.annotator, k] * e.weight
        out[:, k] = (lam * mu[k] + e.per_item(v * (e.label == k))) / (lam + e.per_item(v))
    return out


def log_posterior(
    precision: Floats, z: Floats, mu: Floats, total: Floats, squares: Floats, a: float, b: Floats, lam: float
) -> float:
    """J of the module's docstring."""
    votes = ((a + total)[:, None] * np.log(precision) - precision * (b + squares)).sum() / 2.0
    return float(votes - lam / 2.0 * ((z - mu) ** 2).sum())


@declared
class PM(AlternatingWeights):
    """Labels and weights that together minimise the weighted number of contradicted votes (also called CRH).

    Parameters
    ----------
    norm
        ``"sum"``: weights are -log of an annotator's share of all losses, and the weighted loss never rises.
        ``"max"``: of the loss as a share of the largest, which gives the worst annotator the weight 0; this is the
        variant of published comparisons, and it has no objective.
    per_vote
        Divide each loss by the annotator's votes. To be preferred where some vote much more than others; the
        weighted loss then is not an objective either.
    smoothing
        A pseudo-loss for everybody, in votes.

    >>> import crowdwise as cw
    >>> votes = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=5, random_state=0).votes
    >>> cw.aggregate(votes, "pm").score(votes.truth) > cw.aggregate(votes, "majority").score(votes.truth)
    True
    """

    key = "pm"
    vote_shares = True

    norm: Literal["sum", "max"] = "sum"
    per_vote: bool = False
    smoothing: Positive = 0.5

    def _weights(self, parts: VoteParts, callback: Callback | None) -> tuple[Floats, Rounds]:
        def weigh(right: Floats, total: Floats) -> Floats:
            return loss_weights(self._loss(right, total), self.norm, total > 0.0)

        def value(weight: Floats, right: Floats, total: Floats) -> float:
            return -float(weight @ (self._loss(right, total) * (total > 0.0)))

        has_objective = self.norm == "sum" and not self.per_vote
        return alternate(parts, weigh, self._count, self.max_iter, callback, value if has_objective else None)

    def _loss(self, right: Floats, total: Floats) -> Floats:
        d = np.maximum(total - right, 0.0) + self.smoothing
        return d / (total + 2.0 * self.smoothing) if self.per_vote else d

    def _columns(self, weight: Floats, right: Floats, total: Floats) -> dict[str, Any]:
        """The weight at either end of the interval of the annotator's rate of loss, the losses of the others fixed."""
        all_losses = self._loss(right, total) * (total > 0.0)
        rest = all_losses.sum() - all_losses
        top = np.sort(all_losses)[::-1]
        others = np.where(all_losses == top[0], top[min(1, len(top) - 1)], top[0])

        def at(share: Floats) -> Floats:
            d = self._loss(share * total, total)
            return np.asarray(-np.log(d / (d + rest if self.norm == "sum" else np.maximum(d, others))))

        low, high = rate_interval(right, total)
        return with_interval("weight", weight, at(low), at(high))


@declared
class CATD(AlternatingWeights):
    """Weights that are one over an upper confidence bound of each annotator's error: few votes, little weight.

    Parameters
    ----------
    smoothing
        A pseudo-loss for everybody, in votes.
    alpha
        The bound is the upper end of the interval of level 1 - alpha.

    >>> import crowdwise as cw
    >>> votes = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=5, random_state=0).votes
    >>> cw.aggregate(votes, "catd").score(votes.truth) > cw.aggregate(votes, "majority").score(votes.truth)
    True
    """

    key = "catd"
    vote_shares = True

    alpha: Annotated[float, Bounds(above=0, maximum=1)] = 0.05
    smoothing: Positive = 0.5

    def _weights(self, parts: VoteParts, callback: Callback | None) -> tuple[Floats, Rounds]:
        quantile = chi_squared_quantile(self.alpha / 2.0, votes_of(parts))

        def weigh(right: Floats, total: Floats) -> Floats:
            return np.asarray(quantile / (np.maximum(total - right, 0.0) + self.smoothing))

        return alternate(parts, weigh, self._count, self.max_iter, callback)

    def _columns(self, weight: Floats, right: Floats, total: Floats) -> dict[str, Any]:
        """Of n over the loss, one over the error that the weight is a cautious bound of."""
        rate = total / (np.maximum(total - right, 0.0) + self.smoothing)
        low, high = gamma_interval(np.ones_like(total), np.maximum(total, 1e-12) / 2.0)
        return with_interval("weight", weight, rate * low, np.where(total > 0, rate * high, np.inf))


@declared
class BWA(Model):
    """Bayesian weighted average: each class against the rest as a number, with Gaussian noise per annotator.

    Parameters
    ----------
    shape
        a: the prior of an annotator's precision weighs as much as so many votes.
    prior_strength
        lambda: the precision of the prior that draws items towards their class's mean.
    max_iter, tol
        Stop after so many rounds, or when no z moves by more than ``tol``.

    >>> import crowdwise as cw
    >>> votes = cw.simulate.one_coin(400, n_annotators=15, n_classes=4, votes_per_item=5, random_state=0).votes
    >>> cw.aggregate(votes, "bwa").score(votes.truth) > cw.aggregate(votes, "majority").score(votes.truth)
    True
    """

    key = "bwa"
    vote_shares = True
    reads_backwards = False
    single_votes = "certain"

    shape: Positive = 15.0
    prior_strength: Positive = 1.0
    max_iter: Count = 500
    tol: NonNegative = 1e-4
    precision_: Floats = field(init=False)
    mean_: Floats = field(init=False)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        K, a = votes.n_classes, float(self.shape)
        e, total, share = VoteEdges.of(votes), per_annotator(votes), votes.shares()
        per_item = e.per_item(e.weight)
        doubt = per_item @ (share * (1.0 - share)) / max(per_item.sum(), 1e-300)
        b = a * np.maximum(doubt * 4.0 * (1.0 - 1.0 / K), FLOOR)
        z = clamp(share, gold)
        squares = squares_of(e, z)
        rounds = Rounds(self.max_iter, float(total.sum()), callback)
        for _ in rounds:
            mu = z.mean(axis=0)
            precision = (a + total)[:, None] / (b + squares)
            new = clamp(estimate(e, precision, mu, self.prior_strength), gold)
            moved = float(np.abs(new - z).max(initial=0.0))
            z, squares = new, squares_of(e, new)
            objective = log_posterior(precision, z, mu, total, squares, a, b, self.prior_strength)
            rounds.reached(objective, converged=moved <= self.tol)
        self.precision_, self.mean_, self._unseen = precision, mu, a / b
        # Gamma posteriors. The K questions use the same votes: their errors are correlated and do not average out.
        value, (low, high) = precision.mean(axis=1), gamma_interval(np.ones_like(total), (a + total) / 2.0)
        columns = with_interval("precision", value, value * low, value * high)
        q, prior = normalise(z, axis=1), normalise(mu, axis=0)
        return Outcome(posterior=q, prior=prior, annotator_columns=columns, **rounds.outcome)

    def _predict(self, votes: Votes) -> Floats:
        precision = with_unseen(self.precision_, votes.n_annotators, self._unseen)
        return normalise(estimate(VoteEdges.of(votes), precision, self.mean_, self.prior_strength), axis=1)
