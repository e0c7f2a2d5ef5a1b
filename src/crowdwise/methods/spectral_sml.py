"""Covariances of votes: two coins per annotator without a start or a local optimum.

Votes are +1 (yes) and -1 (no). Annotators who err independently, given the truth, have covariances of rank one off
the diagonal, and the factor, the mean votes and the class skew say how often each is right on either class.

=========  ==================  ======  ===============================================================================
symbol     code                shape   equation
=========  ==================  ======  ===============================================================================
mu[m]      ``mu``              M       mean vote
b          ``b``               1       P(yes) - P(no), the value in (-1, 1) under which the votes are likeliest
v[m]       ``rank_one``        M       v_i v_j = covariance over common items, i != j: sqrt(1 - b^2) (psi + eta - 1)
psi[m]     ``sensitivity``     M       P(says yes, given yes) = (1 + mu + v sqrt((1 - b) / (1 + b))) / 2
eta[m]     ``specificity``     M       P(says no, given no) = (1 - mu + v sqrt((1 + b) / (1 - b))) / 2
q          posterior           N x 2   Bayes' rule with psi, eta and b
=========  ==================  ======  ===============================================================================

More than two classes: one question per class, "k or not k?", and q[n, k] proportional to the odds of k. Gold labels
are one more annotator in the covariances, and count in the likelihood of b.

References: Parisi, Strino, Nadler and Kluger 2014 (v, and the rule sign(sum of v x)); Jaffe, Nadler and Kluger 2015
(psi, eta and b).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from crowdwise.core import em
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.model import Callback, Outcome, Params, Part, Votes, declared
from crowdwise.core.numerics import Floats, Ints, clamp, maximise_1d
from crowdwise.kernels import reference
from crowdwise.methods import skills_graph as graph
from crowdwise.methods import skills_precision as fallback
from crowdwise.methods.skills_graph import AgreementPairs
from crowdwise.methods.spectral_vectors import evidence, influence_variance, mean_log_odds, posterior


def covariances(A: Any) -> tuple[Floats, AgreementPairs]:
    """mu[m], the mean vote, and n and the covariance of votes on common items, off the diagonal."""
    size = abs(A)
    total = np.asarray(size.sum(axis=0)).ravel()
    mu = np.divide(np.asarray(A.sum(axis=0)).ravel(), total, out=np.zeros_like(total), where=total > 0)
    centred = A.copy()
    centred.data -= mu[A.indices] * np.abs(A.data)
    n = graph.common(size)
    return mu, AgreementPairs(n, graph.like(n, graph.on_pattern(centred.T @ centred, n) / n.data))


def rank_one(pairs: AgreementPairs, bound: Floats, max_iter: int = 500, tol: float = 1e-11) -> Floats:
    """v with v_i v_j = c_ij off the diagonal, by least squares weighted with n, and |v| <= bound; sign open.

    Alternating u_i = sum_j n_ij c_ij v_j / sum_j n_ij v_j^2, cut off at the bound, and the same for v. With equal n
    a fixed point is the top eigenvector of c with its diagonal filled in from itself (v_i^2): rank-one completion.
    Without the bound, annotators who share few items with others get any value and spoil those of the rest.
    """
    n = pairs.n
    nc = graph.like(n, n.data * pairs.c.data)

    def solve(members: Ints) -> Floats:
        w, wc, most = n[members][:, members], nc[members][:, members], bound[members]

        def half(v: Floats) -> Floats:
            top, bottom = wc @ v, w @ v**2
            ratio = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 1e-12)
            return np.asarray(np.clip(ratio, -most, most))

        degree = np.sqrt(np.asarray(w.sum(axis=1)).ravel())
        _, e = graph.leading(lambda x: (wc @ (x / degree)) / degree + x, len(members))  # + x: the top, not the bottom
        v = e / degree
        scale = np.sqrt(max(float(v @ (wc @ v)), 0.0) / max(float(v**2 @ (w @ v**2)), 1e-300))
        v = u = np.clip(v * scale, -most, most)
        for _ in range(max_iter):
            u, before = half(v), v
            v = half(u)
            if np.abs(v - before).max() <= tol:
                break
        return np.asarray(np.sign(u + v) * np.sqrt(np.maximum(u * v, 0.0)))  # u = a s, v = s / a for some a near 1

    return graph.by_group(graph.groups_of(n), solve)


def sensitivities(mu: Floats, v: Floats, b: float, size: Floats) -> tuple[Floats, Floats]:
    """psi and eta of Jaffe et al. (eq. 9) for class skew b, half a vote away from 0 and 1."""
    edge = 0.5 / (size + 1.0)
    psi = (1.0 + mu + v * np.sqrt((1.0 - b) / (1.0 + b))) / 2.0
    eta = (1.0 - mu + v * np.sqrt((1.0 + b) / (1.0 - b))) / 2.0
    return np.clip(psi, edge, 1.0 - edge), np.clip(eta, edge, 1.0 - edge)


def coin_influences(A: Any, mu: Floats, v: Floats, b: float) -> tuple[Floats, Floats]:
    """How far each stored entry of A moves psi and eta of its annotator, the other annotators and b fixed.

    Through the mean vote, and through v, a sum over items of the own centred vote times those of the others.
    """
    row, col, size = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)), A.indices, np.abs(A.data)
    vote = A.data - size * mu[col]
    term, weight = vote * v[col], size * v[col] ** 2
    others = np.bincount(row, weights=term, minlength=A.shape[0])[row] - term
    squares = np.bincount(row, weights=weight, minlength=A.shape[0])[row] - weight
    total = np.bincount(col, weights=size * squares, minlength=A.shape[1])
    on_v = (vote * others - v[col] * size * squares) / np.maximum(total, 1e-12)[col]
    on_mu = vote / np.maximum(np.bincount(col, weights=size, minlength=A.shape[1]), 1e-12)[col]
    r = np.sqrt((1.0 - b) / (1.0 + b))
    return (on_mu + on_v * r) / 2.0, (on_v / r - on_mu) / 2.0


def scores(psi: Floats, eta: Floats, b: float) -> Params:
    """The score table of the yes-or-no question, class 1 = yes."""
    s = np.empty((len(psi), 2, 2))  # annotator, label, truth
    s[:, 1, 1], s[:, 0, 1], s[:, 0, 0], s[:, 1, 0] = psi, 1.0 - psi, eta, 1.0 - eta
    return Params(np.log(s).reshape(-1, 2), np.log([[(1.0 - b) / 2.0, (1.0 + b) / 2.0]]))


@dataclass(frozen=True)
class Coins:
    """The question "class k or not?": v, b, psi and eta."""

    k: int
    v: Floats
    b: float
    psi: Floats
    eta: Floats
    log_likelihood: float
    influence: tuple[Floats, Floats]
    """How far each vote moves psi and eta."""


def alike(coins: Coins, skill: float, votes: Votes) -> Coins:
    """The question with one skill for all annotators, and classes that are equally frequent."""
    p = np.full(len(coins.v), (1.0 + skill) / 2.0)
    fit = em.expect(_question_part(votes, coins.k, None), scores(p, p, 0.0))[0].log_likelihood
    return replace(coins, v=np.full(len(p), skill), b=0.0, psi=p, eta=p, log_likelihood=fit)


@declared
class SML(fallback.FallsBack):
    """Spectral meta-learner: sensitivity and specificity of each annotator from the covariances of their votes.

    No start, no local optimum. Three or more classes: one question per class.

    Parameters
    ----------
    rule
        ``"likelihood"``: labels by Bayes' rule from psi, eta and b (Jaffe et al.). ``"linear"``: the sign of the
        votes weighted with v (Parisi et al.), with probabilities as in :class:`Ghosh`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.two_coin(800, n_annotators=15, votes_per_item=10, random_state=0)
    >>> cw.aggregate(crowd.votes, "sml").score(crowd.truth) > 0.9
    True
    """

    key = "sml"
    single_votes = "open"

    rule: Literal["likelihood", "linear"] = "likelihood"
    coins_: list[Coins] = field(init=False)
    worth_: list[float] = field(init=False)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        K = votes.n_classes
        self.used_ = graph.used_classes(votes, gold)
        self.coins_ = [self._learn(votes, k, gold) for k in ([1] if K == 2 else range(K))]
        if self.rule == "linear":
            self.worth_ = [mean_log_odds(*evidence(*self._linear(votes, c))) for c in self.coins_]
        q, notes = clamp(self._predict(votes), gold), []
        if self._unusable(votes, gold, q):
            pairs, notes = graph.pairs(votes, gold), [fallback.NOTE]
            skill = fallback.equal_skill(pairs.n.data, pairs.c.data, 0.05, 0.95)
            self.coins_ = [alike(coins, skill, votes) for coins in self.coins_]
            q = clamp(self._predict(votes), gold)
        psi, eta = (np.column_stack([getattr(c, name) for c in self.coins_]) for name in ("psi", "eta"))
        A, coins = graph.signed(votes, 0), self.coins_[0]

        def interval(name: str, value: Floats, influence: Floats) -> dict[str, Any]:
            variance = np.full(len(value), np.inf) if notes else influence_variance(A, influence)
            return with_interval(name, value, *around(value, variance, 0.0, 1.0))

        both = np.mean([(c.influence[0] + c.influence[1]) / 2.0 for c in self.coins_], axis=0)
        columns = interval("balanced_accuracy", ((psi + eta) / 2.0).mean(axis=1), both)
        if K > 2:
            skew = np.array([[c.b for c in self.coins_]])
            prior = posterior(np.log1p(skew) - np.log1p(-skew), self.used_)[0]
            return Outcome(posterior=q, prior=prior, annotator_columns=columns, notes=notes)
        theta = np.stack([np.column_stack([eta, 1.0 - eta]), np.column_stack([1.0 - psi, psi])], axis=1)
        columns |= interval("sensitivity", coins.psi, coins.influence[0])
        columns |= interval("specificity", coins.eta, coins.influence[1])
        return Outcome(
            posterior=q, prior=np.array([(1.0 - coins.b) / 2.0, (1.0 + coins.b) / 2.0]), confusion=theta,
            log_likelihood=coins.log_likelihood, annotator_columns=columns, notes=notes,
        )  # fmt: skip

    def _learn(self, votes: Votes, k: int, gold: Ints | None) -> Coins:
        from scipy.sparse import csc_matrix, hstack

        A, M = graph.signed(votes, k), votes.n_annotators
        own, truth = A, np.zeros(len(votes))
        if gold is not None:
            truth = np.where(gold < 0, 0.0, np.where(gold == k, 1.0, -1.0))
        if truth.any():
            A = hstack([A, csc_matrix(truth[:, None])]).tocsr()
        mu, pairs = covariances(A)
        size = np.asarray(abs(A).sum(axis=0)).ravel()
        bound = np.sqrt(1.0 - mu**2)  # |cov(vote, truth)| <= sd(vote) sd(truth)
        v, group = rank_one(pairs, bound), graph.groups_of(pairs.n)
        v *= graph.supported(group, v * size, v)
        paired = np.diff(pairs.n.indptr) > 0
        v[~paired] = np.average(v[paired], weights=size[paired]) if paired.any() else 0.0
        v = np.clip(v, -bound, bound)
        if -(np.sign(own @ v[:M]) * truth).sum() >= graph.CONTRADICTIONS:
            v[group == group[-1]] *= -1.0
        mu, v, size = mu[:M], v[:M], size[:M]
        part = _question_part(votes, k, gold)

        def fit(b: float) -> float:
            return em.expect(part, scores(*sensitivities(mu, v, b, size), b))[0].log_likelihood

        grid = np.linspace(-0.95, 0.95, 39)
        heights = np.array([fit(float(b)) for b in grid])
        best = int((heights >= heights.max() - 1e-9 * np.abs(heights).max()).argmax())  # the first of equals
        if np.ptp(heights) <= 1e-9 * max(float(np.abs(heights).max()), 1.0):  # no covariance: any b explains the votes
            b = float(np.clip(mu @ size / max(float(size.sum()), 1e-300), -0.95, 0.95))
        else:
            b = maximise_1d(fit, max(float(grid[best]) - 0.05, -0.99), min(float(grid[best]) + 0.05, 0.99))
        psi, eta = sensitivities(mu, v, b, size)
        return Coins(k, v, b, psi, eta, fit(b), coin_influences(own, mu, v, b))

    def _linear(self, votes: Votes, coins: Coins) -> tuple[Any, Floats, Floats]:
        A = graph.signed(votes, coins.k)
        return A, graph.at_mean(coins.v, votes.n_annotators)[A.indices], np.zeros(len(votes))

    def _predict(self, votes: Votes) -> Floats:
        logits = []
        for i, coins in enumerate(self.coins_):
            if self.rule == "linear":
                z, g = evidence(*self._linear(votes, coins))
                logits.append(self.worth_[i] * z * g)
                continue
            psi, eta = (graph.at_mean(x, votes.n_annotators) for x in (coins.psi, coins.eta))
            part, params = _question_part(votes, coins.k, None), scores(psi, eta, coins.b)
            logit = reference.logits(part.indptr, part.cell, part.weight, params.log_score, params.log_prior)
            logits.append(logit[:, 1] - logit[:, 0])
        return posterior(np.column_stack(logits), self.used_)


def _question_part(votes: Votes, k: int, gold: Ints | None) -> Part:
    """The votes as answers to "class k or not?"."""
    cell = votes.annotator.astype(np.int64) * 2 + (votes.label == k)
    weight = np.empty(0) if votes.weight is None else votes.weight
    truth = np.empty(0, np.int32) if gold is None else np.where(gold < 0, -1, gold == k).astype(np.int32)
    return Part(votes.indptr, cell, weight, truth, votes.n_annotators, 2)
